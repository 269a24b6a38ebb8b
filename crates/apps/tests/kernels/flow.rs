//! The kernels of flow tracking against their form on the CPU.

use apps::flow::decode::{HeadColumns as H, head, reference, segment};
use apps::flow::kernels::FLOW;
use chunk::{Columns, Verdict};
use kernels::Spec;
use kernels::job::JobBytes;
use packet::checksum::Checksums;

use crate::bed::{Bed, GROUP_ITEMS, Memories, ROWS, over_rows};
use crate::frames::{frame, pack};
use crate::random::Random;
use crate::segments;

/// Frames of every kind, some of which are only in part in their first cell, some of ports that ignore checksums, some settled.
#[test]
fn headers_and_segments() {
    let Some(mut bed) = Bed::open() else { return };
    let mut random = Random(71);
    let mut seen = [0; 5];
    for items in GROUP_ITEMS {
        let spec = Spec::of_file(&FLOW).with_group_items(items);
        for rows in ROWS {
            let frames: Vec<Vec<u8>> = (0..rows)
                .map(|_| match random.below(3) {
                    0 => frame(&mut random),
                    _ => segments::frame(&mut || random.next(), 3000),
                })
                .collect();
            let (payload, places) = pack(&frames, &mut random);
            let mut job = JobBytes::new(H::COLUMNS, rows);
            for row in 0..rows {
                for column in [H::FLOW_SRC, H::FLOW_DST, H::FLOW_HEADER0, H::FLOW_HEADER1] {
                    job.put(column, row, [random.next(), random.next()]);
                }
                job.put(H::FLOW_SEGMENT, row, [random.next(), random.next()]);
            }
            let mut expected = job.clone();
            for (row, frame) in frames.iter().enumerate() {
                let is_live = random.below(8) > 0;
                let checksums = [Checksums::Verify, Checksums::Ignore][random.below(4) / 3];
                let there = match random.below(6) {
                    0 => random.below(frame.len() + 1),
                    _ => frame.len(),
                };
                let ignores = match checksums {
                    Checksums::Verify => 0,
                    Checksums::Ignore => head::IGNORES_CHECKSUMS,
                };
                for job in [&mut job, &mut expected] {
                    job.put(
                        H::VERDICT,
                        row,
                        if is_live { Verdict::NEXT.0 } else { Verdict::DUMP.0 },
                    );
                    job.put(H::FLOW_AT, row, places[row]);
                    job.put(H::FLOW_LEN, row, frame.len() as u32);
                    job.put(H::FLOW_HEAD, row, there as u32 | ignores);
                }
                if !is_live {
                    expected.put(H::FLOW_SEGMENT, row, [0u64; 2]);
                    continue;
                }
                let (d, found) = reference(&frame[..there], frame, checksums);
                let [w0, w1, w2, w3] = d.words();
                expected.put(H::FLOW_SRC, row, d.src);
                expected.put(H::FLOW_DST, row, d.dst);
                expected.put(H::FLOW_HEADER0, row, [w0, w1]);
                expected.put(H::FLOW_HEADER1, row, [w2, w3]);
                expected.put(H::FLOW_SEGMENT, row, found);
                seen[(found[1] >> 56) as usize] += 1;
            }
            let (arena, payload) = (bed.memory(job.bytes()), bed.memory(&payload));
            let memories = Memories { arena, payload, ..bed.memories() };
            let launches =
                ["flow_headers", "flow_segments"].map(|kernel| over_rows(kernel, rows, items));
            bed.run(&spec, memories, &launches);
            bed.read(arena, job.bytes_mut());
            for (row, frame) in frames.iter().enumerate() {
                for column in
                    [H::FLOW_SRC, H::FLOW_DST, H::FLOW_HEADER0, H::FLOW_HEADER1, H::FLOW_SEGMENT]
                {
                    let (own, twin): ([u64; 2], [u64; 2]) =
                        (job.get(column, row), expected.get(column, row));
                    assert_eq!(own, twin, "{} of row {row}: {frame:02x?}", column.name);
                }
            }
            assert!(job == expected, "the kernels wrote beyond their columns");
            bed.free(arena);
            bed.free(payload);
        }
    }
    // Segments with routing headers are left to the CPU.
    assert!(seen[0] > 0, "{seen:?}");
    let least = [segment::NONE, segment::RIGHT, segment::MALFORMED, segment::CHECKSUM]
        .map(|status| seen[usize::from(status)]);
    assert!(least.iter().all(|seen| *seen > 100), "{seen:?}");
}
