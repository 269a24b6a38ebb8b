//! Payload and state: sums, rewriting, counting.

use chunk::Columns;
use kernels::job::JobBytes;
use kernels::{Launch, PayloadColumns as P, Spec, files};

use crate::bed::{Bed, GROUP_ITEMS, Memories, ROWS, over_rows};
use crate::frames::pack;
use crate::random::Random;

#[test]
fn as_on_the_cpu() {
    let Some(mut bed) = Bed::open() else { return };
    let mut random = Random(10);
    const SLOTS: usize = 17;
    for items in GROUP_ITEMS {
        let spec = Spec::new("payload", &[&files::PAYLOAD], P::COLUMNS).with_group_items(items);
        for rows in ROWS {
            let frames: Vec<Vec<u8>> = (0..rows)
                .map(|_| (0..random.below(100)).map(|_| random.next() as u8).collect())
                .collect();
            let (mut payload, places) = pack(&frames, &mut random);
            let mut changed = payload.clone();
            let mut job = JobBytes::new(P::COLUMNS, rows);
            let mut expected = job.clone();
            let mut counts = vec![5u32; SLOTS + 1];
            for (row, frame) in frames.iter().enumerate() {
                let key = random.next() as u32;
                let slot = random.below(SLOTS + 3) as u32; // some beyond the state
                for job in [&mut job, &mut expected] {
                    job.put(P::PAYLOAD_AT, row, places[row]);
                    job.put(P::PAYLOAD_LEN, row, frame.len() as u32);
                    job.put(P::KEY, row, key);
                    job.put(P::SLOT, row, slot);
                }
                expected.put(P::SUM, row, frame.iter().map(|b| u32::from(*b)).sum::<u32>());
                for byte in &mut changed[places[row] as usize..][..frame.len()] {
                    *byte ^= key as u8;
                }
                if (slot as usize) < SLOTS {
                    counts[slot as usize] += 1;
                }
            }
            let (arena, memory) = (bed.memory(job.bytes()), bed.memory(&payload));
            let state = bed.memory_of_words(&[5; SLOTS + 1]);
            let memories = Memories { arena, payload: memory, state, ..bed.memories() };
            let mut launches = ["payload_sum", "payload_xor", "flow_count"]
                .map(|kernel| over_rows(kernel, rows, items));
            launches[2].job = SLOTS as u32;
            bed.run(&spec, memories, &launches);
            bed.read(arena, job.bytes_mut());
            bed.read(memory, &mut payload);
            assert!(job == expected && payload == changed, "{rows} rows in groups of {items}");
            assert_eq!(bed.read_words(state, SLOTS + 1), counts);
            for memory in [arena, memory, state] {
                bed.free(memory);
            }
        }
    }
}

/// Pieces from anywhere to anywhere, of any length, in more and fewer groups than pieces.
#[test]
fn gather_copies_exactly_the_pieces() {
    let Some(mut bed) = Bed::open() else { return };
    let mut random = Random(12);
    for round in 0..24 {
        let items = GROUP_ITEMS[round % GROUP_ITEMS.len()];
        let spec = Spec::new("gather", &[&files::GATHER], &[]).with_group_items(items);
        let region: Vec<u8> = (0..40_000).map(|_| random.next() as u8).collect();
        let mut expected = vec![0x55; 64];
        let mut list = vec![0u32; 4];
        for _ in 0..random.below(60) {
            let len = [0, 1, 3, 4, 5, 60, 64, 257, 1500][random.below(9)];
            let from = random.below(region.len() - len);
            // Half of them as the accelerator places them: whole words.
            expected.resize(expected.len() + random.below(20), 0x55);
            if random.below(2) == 0 {
                expected.resize(expected.len().next_multiple_of(16) + from % 16, 0x55);
            }
            list.extend([from as u32, expected.len() as u32, len as u32, 0]);
            expected.extend_from_slice(&region[from..from + len]);
        }
        expected.extend([0x55; 64]);
        let pieces = list.len() / 4 - 1;
        list[0] = pieces as u32;
        let (arena, payload) = (bed.memory_of_words(&list), bed.memory(&region));
        let state = bed.memory(&vec![0x55; expected.len()]);
        let memories = Memories { arena, payload, state, ..bed.memories() };
        let groups = if round % 3 == 0 { 3 } else { pieces.max(1) as u32 };
        bed.run(&spec, memories, &[Launch { kernel: "gather", groups, items, job: 0 }]);
        let mut found = vec![0; expected.len()];
        bed.read(state, &mut found);
        assert!(found == expected, "round {round}: {pieces} pieces in groups of {items}");
        for memory in [arena, payload, state] {
            bed.free(memory);
        }
    }
}
