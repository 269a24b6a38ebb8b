//! Areas of a job: blocks, records and sorts, against plain Rust, over random rows.

use chunk::Columns;
use kernels::job::JobBytes;
use kernels::plan::OrderPlan;
use kernels::{Launch, PayloadColumns as P, ScheduleColumns as S, Spec, files};
use proptest::prelude::*;

use crate::bed::{Bed, Memories, over_rows};

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// Sums by blocks and records of these frames; `room`: words that the records have.
fn check_records(frames: &[Vec<u8>], items: u32, capacity: usize) {
    let Some(mut bed) = Bed::open() else { return };
    let rows = frames.len();
    let (mut payload, mut job) = (Vec::new(), JobBytes::new(P::COLUMNS, rows));
    for (row, frame) in frames.iter().enumerate() {
        job.put(P::PAYLOAD_AT, row, payload.len() as u32);
        job.put(P::PAYLOAD_LEN, row, frame.len() as u32);
        payload.extend_from_slice(frame);
        payload.resize(payload.len().next_multiple_of(16), 0);
    }
    let head = 4 + rows + 1;
    let places = job.add_areas(&[4 * rows.max(1), 4 * head, 4 * capacity]);
    let blocks = payload.len() / 16;
    payload.resize(payload.len() + 16, 0);
    let (arena, memory) = (bed.memory(job.bytes()), bed.memory(&payload));
    let memories = Memories { arena, payload: memory, ..bed.memories() };
    let launch = |kernel, over: usize, job| Launch { job, ..over_rows(kernel, over, items) };
    let launches = [
        launch("payload_blocks", blocks, 0),
        launch("payload_count", rows, 1),
        Launch { groups: 1, ..launch("output_scan", rows, 1) },
        launch("payload_words", rows, 1),
    ];
    let spec =
        Spec::new("records", &[&files::PAYLOAD, &files::AREAS], P::COLUMNS).with_group_items(items);
    bed.run(&spec, memories, &launches);
    bed.read(arena, job.bytes_mut());
    let area = |i: usize, count: usize| words(&job.bytes()[places[i]..][..4 * count]);

    let sums: Vec<u32> = frames.iter().map(|f| f.iter().map(|b| u32::from(*b)).sum()).collect();
    assert_eq!(area(0, rows), sums, "in groups of {items}");
    let counts: Vec<usize> = frames.iter().map(|frame| frame.len().div_ceil(4)).collect();
    let is_long = counts.iter().any(|count| *count > 64);
    let fit = |count: &usize| if *count > 64 { 0 } else { *count };
    let total: usize = counts.iter().map(fit).sum();
    let starts = area(1, head);
    let is_over = is_long || total > capacity;
    assert_eq!((starts[0] as usize, starts[1] != 0), (total, is_over));
    let expected: Vec<u32> = if is_over {
        vec![0; capacity]
    } else {
        let mut all = Vec::new();
        for frame in frames {
            for (i, bytes) in frame.chunks(4).enumerate() {
                let mut word = [0; 4];
                word[..bytes.len()].copy_from_slice(bytes);
                let word = u32::from_le_bytes(word);
                all.push(if i % 2 == 0 { word } else { word.swap_bytes() });
            }
        }
        all.resize(capacity, 0);
        all
    };
    assert!(area(2, capacity) == expected, "{rows} rows in groups of {items}");
    for memory in [arena, memory] {
        bed.free(memory);
    }
}

/// Sorts rows by keys of so many bits.
fn check_order(keys: &[u64], bits: u32, items: u32) {
    let Some(mut bed) = Bed::open() else { return };
    let rows = keys.len();
    let mut job = JobBytes::new(S::COLUMNS, rows);
    let (fixed, per_row) = OrderPlan::AREA_BYTES;
    let at = job.add_areas(&[fixed + per_row * rows])[0];
    let plan = OrderPlan::new(0, bits);
    // Keys and rows are where the kernel that puts them would have put them: in the half that its job names.
    let (capacity, half) = (rows.next_multiple_of(16), usize::from(plan.keys_job() & 0x100 != 0));
    for (row, key) in keys.iter().enumerate() {
        let bytes = job.bytes_mut();
        let (rows_at, keys_at) = (at + 4 * capacity * half, at + 4 * capacity * (2 + 2 * half));
        bytes[rows_at + 4 * row..][..4].copy_from_slice(&(row as u32).to_le_bytes());
        bytes[keys_at + 8 * row..][..8].copy_from_slice(&key.to_le_bytes());
    }
    let arena = bed.memory(job.bytes());
    let memories = Memories { arena, ..bed.memories() };
    let tiles = rows.div_ceil((items * OrderPlan::ROWS_PER_ITEM) as usize).max(1) as u32;
    let launch = |(kernel, job)| {
        let groups = if kernel == "order_scan" { 1 } else { tiles };
        Launch { kernel, groups, items, job }
    };
    let launches: Vec<Launch> = plan.launches().map(launch).collect();
    let spec = Spec::new("order", &[&files::ORDER], S::COLUMNS).with_group_items(items);
    bed.run(&spec, memories, &launches);
    bed.read(arena, job.bytes_mut());
    let mut sorted: Vec<u32> = (0..rows as u32).collect();
    sorted.sort_by_key(|row| keys[*row as usize]);
    assert!(words(&job.bytes()[at..][..4 * rows]) == sorted, "{rows} rows in groups of {items}");
    bed.free(arena);
}

fn any_items() -> impl Strategy<Value = u32> {
    prop_oneof![Just(32u32), Just(64), Just(256)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]

    #[test]
    fn records_and_blocks(
        frames in prop::collection::vec(
            prop_oneof![4 => 0usize..100, 1 => 0usize..1].prop_flat_map(|len| prop::collection::vec(any::<u8>(), len)),
            0..300,
        ),
        long in prop::bool::weighted(0.1),
        items in any_items(),
        capacity in prop_oneof![Just(1usize), Just(40), Just(8000)],
    ) {
        let mut frames = frames;
        if long {
            frames.push(vec![9; 257]);
        }
        check_records(&frames, items, capacity);
    }

    #[test]
    fn rows_in_the_order_of_keys(
        (bits, seeds) in (1u32..=64).prop_flat_map(|bits| {
            (Just(bits), prop::collection::vec(any::<(u64, bool)>(), 0..1500))
        }),
        items in any_items(),
    ) {
        // Many keys that are equal, and keys of all bits.
        let key = |(seed, is_common): &(u64, bool)| if *is_common { seed % 3 } else { *seed };
        let keys: Vec<u64> = seeds.iter().map(|seed| key(seed) & u64::MAX >> (64 - bits)).collect();
        check_order(&keys, bits, items);
    }
}
