//! Payload and state: sums, rewriting, counting.

use chunk::Columns;
use kernels::job::JobBytes;
use kernels::{PayloadColumns as P, Spec};

use crate::bed::{Bed, GROUP_ITEMS, Memories, ROWS, over_rows};
use crate::frames::pack;
use crate::lpm::Random;

#[test]
fn as_on_the_cpu() {
    let Some(mut bed) = Bed::open() else { return };
    let mut random = Random(10);
    const SLOTS: usize = 17;
    for items in GROUP_ITEMS {
        let spec = Spec::new("payload", &["payload"], P::COLUMNS).with_group_items(items);
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
