//! Every kernel under Oclgrind, which sees what PoCL hides: races, uninitialised reads, accesses beyond
//! memory, barriers that not all items reach. The inputs are the known answers.
//!
//! Oclgrind's exit status says nothing, so its log is read: it must be empty. Kernels with a planted bug of
//! each kind prove that it would not be.

use chunk::Columns;
use kernels::{Launch, LpmColumns, Spec, files, known};

use crate::bed::Memories;
use crate::under_oclgrind::{BUG, END, ITEMS, oclgrind, under_oclgrind};

/// A kernel that is wrong, and words of the report about it.
struct Planted {
    name: &'static str,
    text: &'static str,
    report: &'static str,
}

const PLANTED: &[Planted] = &[
    Planted {
        name: "race",
        text: "KERNEL(race)
{
    LOCAL uint shared[GROUP_ITEMS];
    shared[ITEM_ID] = ITEM_ID;
    // A barrier is missing.
    ((GLOBAL uint *)state)[GLOBAL_ID] = shared[GROUP_ITEMS - 1u - ITEM_ID];
}
",
        report: "data race",
    },
    Planted {
        name: "race_between_groups",
        text: "KERNEL(race_between_groups)
{
    ((GLOBAL uint *)state)[0] += GLOBAL_ID;
}
",
        report: "data race",
    },
    Planted {
        name: "uninitialised",
        text: "KERNEL(uninitialised)
{
    LOCAL uint shared[GROUP_ITEMS];
    if (ITEM_ID != 0u)
        shared[ITEM_ID] = ITEM_ID;
    BARRIER();
    if (shared[0] == 7u)
        ((GLOBAL uint *)state)[GLOBAL_ID] = 1u;
}
",
        report: "ninitialized",
    },
    Planted {
        name: "beyond",
        text: "KERNEL(beyond)
{
    ((GLOBAL uint *)state)[GLOBAL_ID + 1u] = 1u;
}
",
        report: "Invalid write",
    },
    Planted {
        name: "divergent",
        text: "KERNEL(divergent)
{
    if (ITEM_ID != 0u)
        BARRIER();
}
",
        report: "divergence",
    },
];

#[test]
fn no_kernel_is_reported() {
    let Some((printed, log)) = under_oclgrind("oclgrind::run_known_answers", "") else { return };
    assert!(printed.contains(END), "{printed}");
    assert!(log.trim().is_empty(), "{log}");
}

#[test]
fn planted_bugs_are_reported() {
    for planted in PLANTED {
        let Some((printed, log)) = under_oclgrind("oclgrind::run_planted_bug", planted.name) else {
            return;
        };
        assert!(log.contains(planted.report), "{}: {log}\n{printed}", planted.name);
    }
}

/// Does its work only where `no_kernel_is_reported` has started it, under Oclgrind.
#[test]
fn run_known_answers() {
    if std::env::var_os(BUG).is_none() {
        return;
    }
    let mut bed = oclgrind();
    for known in known::of(files::ALL, ITEMS) {
        assert_eq!(bed.failure(&known), None);
    }
    // Indices that lead nowhere: no access beyond memory.
    crate::lpm::damaged_tables();
    crate::tries::damaged_tables();
    crate::classify::damaged_images();
    crate::patch::changes_beyond_the_image();
    crate::walks::damaged_images();
    println!("{END}");
}

/// Does its work only where `planted_bugs_are_reported` has started it, under Oclgrind.
#[test]
fn run_planted_bug() {
    let Ok(name) = std::env::var(BUG) else { return };
    let planted = PLANTED.iter().find(|planted| planted.name == name).expect("a planted bug");
    let mut bed = oclgrind();
    let spec = Spec::new("planted", &[&files::EMPTY], LpmColumns::COLUMNS).with_group_items(ITEMS);
    bed.build("planted", kernels::source_with(&spec, planted.text), vec![planted.name]);
    let state = bed.memory(&vec![0; 2 * 4 * ITEMS as usize]);
    let memories = Memories { state, ..bed.memories() };
    let launch = Launch { kernel: planted.name, groups: 2, items: ITEMS, job: 0 };
    bed.launch("planted", memories, &[launch]);
}
