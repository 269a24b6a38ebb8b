//! Every kernel of the applications under Oclgrind: see the tests of the crate `kernels`.

use kernels::known;

use crate::under_oclgrind::{BUG, END, ITEMS, oclgrind, under_oclgrind};

#[test]
fn no_kernel_is_reported() {
    let Some((printed, log)) = under_oclgrind("oclgrind::run_known_answers", "") else { return };
    assert!(printed.contains(END), "{printed}");
    assert!(log.trim().is_empty(), "{log}");
}

/// Does its work only where `no_kernel_is_reported` has started it, under Oclgrind.
#[test]
fn run_known_answers() {
    if std::env::var_os(BUG).is_none() {
        return;
    }
    let mut bed = oclgrind();
    for known in known::of(&apps::kernel_files(), ITEMS) {
        assert_eq!(bed.failure(&known), None);
    }
    // Indices that lead nowhere: no access beyond memory.
    crate::route::numbers_out_of_range();
    crate::modules::program_over_frames(&mut bed, ITEMS);
    println!("{END}");
}
