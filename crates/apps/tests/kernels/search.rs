//! The search for literals before the tracker against its form on the CPU.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use apps::flow::decode::reference;
use apps::flow::kernels::FLOW_SEARCH;
use apps::flow::search::{Literals, SearchColumns as S, searched_from};
use automata::{Automaton, Pattern, Patterns};
use chunk::{Columns, Verdict};
use kernels::Spec;
use kernels::image::ImageLayout;
use kernels::job::JobBytes;
use kernels::known::bytes_of;
use packet::checksum::Checksums;

use crate::bed::{Bed, GROUP_ITEMS, Memories, ROWS, over_rows};
use crate::frames::{frame, pack};
use crate::random::Random;
use crate::segments;

/// Some literals of which frames have a few, exact, folded, one in the other; or none at all.
fn literals(random: &mut Random, generation: u64) -> Literals {
    let mut patterns = Patterns::default();
    for _ in 0..[0, 1, 6, 40][random.below(4)] {
        let bytes: Vec<u8> = match random.below(4) {
            0 => (0..2).map(|_| random.next() as u8).collect(),
            _ => (0..1 + random.below(6)).map(|_| b"abAB"[random.below(4)]).collect(),
        };
        let pattern = Pattern::new(&bytes);
        let pattern = if random.below(2) == 0 { pattern.nocase() } else { pattern };
        patterns.insert(pattern).unwrap();
    }
    Literals::new(generation, Automaton::new(&patterns).unwrap())
}

/// Frames of every kind, with letters in some; of some rows nothing is known, others are settled.
fn check(seed: u64, bed: &mut Bed) -> [usize; 2] {
    let mut random = Random(seed);
    let mut seen = [0; 2];
    for items in GROUP_ITEMS {
        let spec = Spec::of_file(&FLOW_SEARCH).with_group_items(items);
        for rows in ROWS {
            let generation = 1 + random.below(1000) as u64;
            let literals = literals(&mut random, generation);
            let frames: Vec<Vec<u8>> = (0..rows)
                .map(|_| {
                    let mut frame = match random.below(3) {
                        0 => frame(&mut random),
                        _ => segments::frame(&mut || random.next(), 300),
                    };
                    let letters = random.below(frame.len() + 1).min(random.below(40));
                    let at = frame.len() - letters;
                    frame[at..].iter_mut().for_each(|byte| *byte = b"abAB."[random.below(5)]);
                    frame
                })
                .collect();
            let (payload, places) = pack(&frames, &mut random);
            let mut job = JobBytes::new(S::COLUMNS, rows);
            let mut expected = job.clone();
            for (row, frame) in frames.iter().enumerate() {
                let (is_live, is_known) = (random.below(8) > 0, random.below(8) > 0);
                let (d, found) = reference(frame, frame, Checksums::Ignore);
                let [.., w2, w3] = d.words();
                let found = if is_known { found } else { [0, 0] };
                // Of segments with routing headers nothing is known.
                let is_known = found != [0, 0];
                for job in [&mut job, &mut expected] {
                    let verdict = if is_live { Verdict::NEXT.0 } else { Verdict::DUMP.0 };
                    job.put(S::VERDICT, row, verdict);
                    job.put(S::FLOW_AT, row, places[row]);
                    job.put(S::FLOW_LEN, row, frame.len() as u32);
                    job.put(S::FLOW_HEADER1, row, [w2, w3]);
                    job.put(S::FLOW_SEGMENT, row, found);
                }
                job.put(S::FLOW_CLEAN, row, random.next() as u32);
                let bytes = frame.get(searched_from([w2, w3], found)..).unwrap_or_default();
                let is_clean = is_live && is_known && !literals.is_in(bytes);
                seen[usize::from(is_clean)] += usize::from(is_live && is_known);
                let clean = if is_clean { literals.generation() } else { 0 };
                expected.put(S::FLOW_CLEAN, row, clean);
            }
            let words = literals.words();
            // Its region is not the first one.
            let image = ImageLayout::new(&[(3, 0), (words.len(), 0)]).write(1, &[&[1; 3], words]);
            let (arena, payload) = (bed.memory(job.bytes()), bed.memory(&payload));
            let tables = bed.memory(&bytes_of(&image));
            let memories = Memories { arena, payload, tables, ..bed.memories() };
            let mut launch = over_rows("flow_search", rows, items);
            launch.job = 1;
            bed.run(&spec, memories, &[launch]);
            bed.read(arena, job.bytes_mut());
            for (row, frame) in frames.iter().enumerate() {
                let [own, twin]: [u32; 2] =
                    [&job, &expected].map(|job| job.get(S::FLOW_CLEAN, row));
                assert_eq!(own, twin, "seed {seed}, row {row}: {frame:02x?}");
            }
            assert!(job == expected, "seed {seed}: the kernel wrote beyond its column");
            for memory in [arena, payload, tables] {
                bed.free(memory);
            }
        }
    }
    seen
}

#[test]
fn rows_without_literals() {
    let Some(mut bed) = Bed::open() else { return };
    let seen = check(71, &mut bed);
    assert!(seen.iter().all(|seen| *seen > 100), "{seen:?}");
}

/// With a seed that no run had before; a failure names it.
#[test]
fn the_same_with_a_fresh_seed() {
    let Some(mut bed) = Bed::open() else { return };
    check(RandomState::new().hash_one(0), &mut bed);
}
