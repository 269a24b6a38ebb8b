//! The known answers that a device is opened with, and what the applications declare of their kernels.

use apps::router::kernels::{DECODE, HeaderColumns};
use chunk::Columns;
use kernels::known;

use crate::bed::{Bed, GROUP_ITEMS};

#[test]
fn files_are_what_they_declare() {
    let all = [kernels::files::ALL, &apps::kernel_files()].concat();
    assert_eq!(kernels::problems(&all), [""; 0]);
}

#[test]
fn known_answers_hold() {
    let Some(mut bed) = Bed::open() else { return };
    for items in GROUP_ITEMS {
        for known in known::of(&apps::kernel_files(), items) {
            assert_eq!(bed.failure(&known), None, "groups of {items}");
        }
    }
}

/// An answer that differs in one bit does not pass.
#[test]
fn known_answers_can_fail() {
    let Some(mut bed) = Bed::open() else { return };
    for mut known in known::of(&apps::kernel_files(), 64) {
        known.expected.iter_mut().for_each(|expected| *expected.bytes.last_mut().unwrap() ^= 1);
        assert!(bed.failure(&known).is_some(), "{:?}", known.kernels);
    }
}

/// The frames of the known answers are what the packet crate says of them.
#[test]
fn known_headers_are_the_packet_crates() {
    let decode = &known::of(&[&DECODE], 64)[0];
    let mut job = kernels::job::JobBytes::new(HeaderColumns::COLUMNS, 3);
    job.bytes_mut().copy_from_slice(&decode.arena);
    for row in 0..3 {
        let at: u32 = job.get(HeaderColumns::PAYLOAD_AT, row);
        let len: u32 = job.get(HeaderColumns::PAYLOAD_LEN, row);
        let frame = &decode.payload[at as usize..][..len as usize];
        crate::decode::expect(&mut job, row, frame, frame.len());
    }
    assert_eq!(job.bytes(), decode.expected[0].bytes);
}
