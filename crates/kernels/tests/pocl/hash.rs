//! The hashes against their references.

use chunk::Columns;
use kernels::hash::{MultiplyShift, Polynomial61, fmix32, fmix64, murmur3_bytes, murmur3_words};
use kernels::job::JobBytes;
use kernels::{HashColumns as H, Spec, files};
use packet::IpProtocol;
use packet::flow::FlowKey;

use crate::bed::{Bed, GROUP_ITEMS, Memories, ROWS, over_rows};
use crate::frames::pack;
use crate::random::Random;

#[test]
fn as_on_the_cpu() {
    let Some(mut bed) = Bed::open() else { return };
    let mut random = Random(9);
    for items in GROUP_ITEMS {
        let spec = Spec::new("hash", &[&files::HASH], H::COLUMNS).with_group_items(items);
        for rows in ROWS {
            let frames: Vec<Vec<u8>> = (0..rows)
                .map(|_| (0..random.below(70)).map(|_| random.next() as u8).collect())
                .collect();
            let (payload, places) = pack(&frames, &mut random);
            let mut job = JobBytes::new(H::COLUMNS, rows);
            let mut expected = Vec::new();
            for (row, frame) in frames.iter().enumerate() {
                // Extreme keys too: sums and products carry.
                let mut draw = || match random.below(5) {
                    0 => 0,
                    1 => u64::MAX,
                    _ => random.next(),
                };
                let [src, dst] = [[draw(), draw()], [draw(), draw()]];
                let (ports, protocol, seed) = (draw() as u32, draw() as u8, draw());
                job.put(H::SRC, row, src);
                job.put(H::DST, row, dst);
                job.put(H::PORTS, row, ports);
                job.put(H::PROTOCOL, row, protocol);
                job.put(H::SEED, row, seed);
                job.put(H::PAYLOAD_AT, row, places[row]);
                job.put(H::PAYLOAD_LEN, row, frame.len() as u32);
                let key = FlowKey {
                    src,
                    dst,
                    src_port: (ports >> 16) as u16,
                    dst_port: ports as u16,
                    protocol: IpProtocol(protocol),
                    version: 6,
                };
                let words =
                    [src[0] as u32, (src[0] >> 32) as u32, src[1] as u32, (src[1] >> 32) as u32];
                expected.push((
                    key.hash32(),
                    murmur3_words(&words, seed as u32),
                    MultiplyShift::<4>::new(seed).hash(&words),
                    Polynomial61::new(seed).hash(&words),
                    fmix32(words[0]),
                    fmix64(src[1]),
                    murmur3_bytes(frame, seed as u32),
                ));
            }
            let (arena, payload) = (bed.memory(job.bytes()), bed.memory(&payload));
            let memories = Memories { arena, payload, ..bed.memories() };
            let words = [over_rows("hash_flow", rows, items), over_rows("hash_words", rows, items)];
            bed.run(&spec, memories, &words);
            bed.read(arena, job.bytes_mut());
            bed.run(&spec, memories, &[over_rows("hash_payload", rows, items)]);
            let mut with_payload = job.clone();
            bed.read(arena, with_payload.bytes_mut());
            for (row, expected) in expected.into_iter().enumerate() {
                let found = (
                    job.get(H::FLOW, row),
                    job.get(H::MURMUR, row),
                    job.get(H::SHIFT, row),
                    job.get(H::PRIME, row),
                    job.get(H::FMIX32, row),
                    job.get(H::FMIX64, row),
                    with_payload.get(H::MURMUR, row),
                );
                assert_eq!(found, expected, "row {row} of {rows}");
            }
            bed.free(arena);
            bed.free(payload);
        }
    }
}
