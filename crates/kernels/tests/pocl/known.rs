//! The known answers that a device is opened with.

use kernels::known;
use kernels::{files, hash};

use crate::bed::{Bed, GROUP_ITEMS};
use crate::random::Random;

#[test]
fn known_answers_hold() {
    let Some(mut bed) = Bed::open() else { return };
    for items in GROUP_ITEMS {
        for known in known::of(files::ALL, items) {
            assert_eq!(bed.failure(&known), None, "groups of {items}");
        }
    }
}

/// An answer that differs in one bit does not pass.
#[test]
fn known_answers_can_fail() {
    let Some(mut bed) = Bed::open() else { return };
    for mut known in known::of(files::ALL, 64) {
        if known.kernels == ["empty"] {
            continue;
        }
        known.expected.iter_mut().for_each(|expected| *expected.bytes.last_mut().unwrap() ^= 1);
        assert!(bed.failure(&known).is_some(), "{:?}", known.kernels);
    }
}

/// The flow hash of the known answers is the packet crate's.
#[test]
fn flow_hashes_are_the_packet_crates() {
    let mut random = Random(12);
    for _ in 0..1000 {
        let mut draw = || random.next();
        let key = packet::flow::FlowKey {
            src: [draw(), draw()],
            dst: [draw(), draw()],
            src_port: draw() as u16,
            dst_port: draw() as u16,
            protocol: packet::IpProtocol(draw() as u8),
            version: 6,
        };
        let ports = [key.src_port, key.dst_port];
        assert_eq!(hash::flow(key.src, key.dst, ports, key.protocol.0), key.hash32());
    }
}
