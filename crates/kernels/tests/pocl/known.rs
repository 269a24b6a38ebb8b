//! The known answers that a device is opened with.

use chunk::Columns;
use kernels::known::{self, Known, Place};
use kernels::{HeaderColumns, files, hash};

use crate::bed::{Bed, GROUP_ITEMS, Memories};
use crate::lpm::Random;

/// What a kernel did wrong with a known answer.
pub(crate) fn failure(bed: &mut Bed, known: &Known) -> Option<String> {
    let memories = Memories {
        arena: bed.memory(&known.arena),
        payload: bed.memory(&known.payload),
        tables: bed.room(known.tables.bytes),
        state: bed.memory(&known.state),
    };
    if bed.name().contains("Oclgrind") && known.tables.bytes > 0 {
        // It forgets what the first write initialised when a second one follows (version 21.10).
        let mut whole = vec![0; known.tables.bytes];
        for (at, part) in &known.tables.parts {
            whole[*at..][..part.len()].copy_from_slice(part);
        }
        bed.write(memories.tables, 0, &whole);
    } else {
        for (at, part) in &known.tables.parts {
            bed.write(memories.tables, *at, part);
        }
    }
    bed.run(&known.spec, memories, &known.launches);
    let mut wrong = None;
    for expected in &known.expected {
        let memory = match expected.place {
            Place::Arena => memories.arena,
            Place::Payload => memories.payload,
            Place::Tables => memories.tables,
            Place::State => memories.state,
        };
        let mut found = vec![0; expected.at + expected.bytes.len()];
        bed.read(memory, &mut found);
        if let Some(i) =
            (0..expected.bytes.len()).find(|i| found[expected.at + i] != expected.bytes[*i])
        {
            wrong =
                Some(format!("{:?}: {:?} at {}", known.kernels, expected.place, expected.at + i));
        }
    }
    for memory in [memories.arena, memories.payload, memories.tables, memories.state] {
        bed.free(memory);
    }
    wrong
}

#[test]
fn known_answers_hold() {
    let Some(mut bed) = Bed::open() else { return };
    for items in GROUP_ITEMS {
        for known in known::of(files::ALL, items) {
            assert_eq!(failure(&mut bed, &known), None, "groups of {items}");
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
        assert!(failure(&mut bed, &known).is_some(), "{:?}", known.kernels);
    }
}

/// The frames of the known answers are what the packet crate says of them, and the flow hash is its own.
#[test]
fn known_answers_are_the_twins() {
    let all = known::of(files::ALL, 64);
    let decode = all.iter().find(|known| known.kernels == ["decode"]).unwrap();
    let mut job = kernels::job::JobBytes::new(HeaderColumns::COLUMNS, 3);
    job.bytes_mut().copy_from_slice(&decode.arena);
    for row in 0..3 {
        let at: u32 = job.get(HeaderColumns::PAYLOAD_AT, row);
        let len: u32 = job.get(HeaderColumns::PAYLOAD_LEN, row);
        let frame = &decode.payload[at as usize..][..len as usize];
        crate::decode::expect(&mut job, row, frame, frame.len());
    }
    assert_eq!(job.bytes(), decode.expected[0].bytes);

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
