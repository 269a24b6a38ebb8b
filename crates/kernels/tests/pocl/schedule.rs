//! Selecting and sorting rows against the standard library.

use chunk::{Columns, Verdict};
use kernels::job::JobBytes;
use kernels::plan::{SelectPlan, SortPlan};
use kernels::{ScheduleColumns as S, Spec, files};

use crate::bed::{Bed, GROUP_ITEMS, Memories, ROWS};
use crate::random::Random;

fn spec(items: u32) -> Spec {
    Spec::new("schedule", &[&files::SELECT, &files::SORT], S::COLUMNS).with_group_items(items)
}

fn job(rows: usize, contexts: usize, random: &mut Random) -> JobBytes {
    let mut job = JobBytes::new(S::COLUMNS, rows);
    for row in 0..rows {
        let live = random.below(3) > 0;
        let verdict = if live { Verdict::NEXT } else { Verdict::drop(kernels::reasons::NO_ROUTE) };
        job.put(S::VERDICT, row, verdict.0);
        job.put(S::CONTEXT, row, random.below(contexts) as u32);
        job.put(S::PROTOCOL, row, [6u8, 17, 1, 255, 0][random.below(5)]);
        let len = [60, 60, 1514, 70_000, 65_535, random.below(1515)][random.below(6)];
        job.put(S::PAYLOAD_LEN, row, len as u32);
    }
    job
}

/// The rows that a job's launch covers.
fn ranges(rows: usize) -> Vec<(usize, usize)> {
    if rows > 10 { vec![(0, rows), (rows / 3, rows / 2)] } else { vec![(0, rows)] }
}

#[test]
fn selected_rows_in_order() {
    let Some(mut bed) = Bed::open() else { return };
    let mut random = Random(6);
    for items in GROUP_ITEMS {
        for rows in ROWS {
            let mut job = job(rows, 3, &mut random);
            for (first, count) in ranges(rows) {
                job.set_range(first as u32, count as u32);
                let arena = bed.memory(job.bytes());
                for context in [0, 2, 9, SelectPlan::ALL] {
                    let expected: Vec<u32> = (first..first + count)
                        .filter(|&row| job.get::<u32>(S::VERDICT, row) == Verdict::NEXT.0)
                        .filter(|&row| [job.get(S::CONTEXT, row), u32::MAX].contains(&context))
                        .map(|row| row as u32)
                        .collect();
                    let plan = SelectPlan::new(count, context, items);
                    let state = bed.memory(&vec![0xcd; plan.state_bytes]);
                    let memories = Memories { arena, state, ..bed.memories() };
                    bed.run(&spec(items), memories, &plan.launches);
                    let words = bed.read_words(state, plan.state_bytes / 4);
                    assert_eq!(words[SelectPlan::COUNT_WORD] as usize, expected.len());
                    assert_eq!(&words[SelectPlan::LIST_WORD..][..expected.len()], expected);
                    bed.free(state);
                }
                bed.free(arena);
            }
        }
    }
}

fn sorted(job: &JobBytes, first: usize, count: usize) -> Vec<u32> {
    let mut rows: Vec<usize> = (first..first + count).collect();
    rows.sort_by_key(|&row| {
        let protocol: u8 = job.get(S::PROTOCOL, row);
        let context: u32 = job.get(S::CONTEXT, row);
        let len: u32 = job.get(S::PAYLOAD_LEN, row);
        (protocol, context, len.min(0xffff))
    });
    rows.into_iter().map(|row| row as u32).collect()
}

fn check_sort(bed: &mut Bed, job: &JobBytes, range: (usize, usize), context_bits: u32, items: u32) {
    let arena = bed.memory(job.bytes());
    let plan = SortPlan::new(range.1, context_bits, items);
    let state = bed.memory(&vec![0xcd; plan.state_bytes.max(64)]);
    let memories = Memories { arena, state, ..bed.memories() };
    bed.run(&spec(items), memories, &plan.launches);
    let found = bed.read_words(state, range.1);
    assert!(found == sorted(job, range.0, range.1), "{range:?} in groups of {items}");
    bed.free(arena);
    bed.free(state);
}

#[test]
fn sorted_rows_are_stable() {
    let Some(mut bed) = Bed::open() else { return };
    let mut random = Random(7);
    for items in GROUP_ITEMS {
        for rows in ROWS {
            for (contexts, context_bits) in [(1, 0), (200, 8), (1 << 32, 32)] {
                let mut job = job(rows, contexts, &mut random);
                for (first, count) in ranges(rows) {
                    job.set_range(first as u32, count as u32);
                    check_sort(&mut bed, &job, (first, count), context_bits, items);
                }
            }
        }
    }
}

#[test]
fn a_million_rows() {
    let Some(mut bed) = Bed::open() else { return };
    let mut random = Random(8);
    let rows = 1 << 20;
    let job = job(rows, 50, &mut random);
    check_sort(&mut bed, &job, (0, rows), 8, 256);
}
