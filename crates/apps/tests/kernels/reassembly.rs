//! The order of segments within a job against its form on the CPU.

use std::borrow::Cow;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use apps::flow::decode::segment;
use apps::flow::kernels::REASSEMBLY;
use apps::flow::reassembly::{
    BEGINS_RUN, InStream, NO_ROW, PROBES, Placed, ReassemblyColumns as R, areas, reference, steps,
};
use chunk::Columns;
use chunk::hash::{MultiplyShift, fmix32, to_range};
use kernels::job::JobBytes;
use kernels::plan::OrderPlan;
use kernels::{Launch, Spec, files};

use crate::bed::{Bed, GROUP_ITEMS, Memories, ROWS, over_rows};
use crate::random::Random;

/// The columns of a row.
type Row = ([[u64; 2]; 2], [[u64; 2]; 2], [u64; 2]);

/// A row of one of some connections, which differ by little: what its stream has next, or before, or what overlaps; with SYN, FIN,
/// no data; sometimes no segment, sometimes words that mean nothing.
fn row(random: &mut Random, streams: &mut [u32]) -> Row {
    let any = |random: &mut Random| [random.next(), random.next()];
    if random.below(40) == 0 {
        let [src, dst, header0, header1] = [(); 4].map(|()| any(random));
        let status = u64::from(segment::RIGHT) << 56;
        return ([src, dst], [header0, header1], [random.next(), random.next() >> 8 | status]);
    }
    let stream = random.below(streams.len());
    let number = stream as u64 / 2;
    let ends = [
        ([number & 1, 0x0a00_0001 + (number >> 1 & 1)], 40_000 + (number >> 2)),
        ([0, 0x0a00_0009], 80),
    ];
    let (src, dst) = if stream & 1 == 0 { (ends[0], ends[1]) } else { (ends[1], ends[0]) };
    let data = [0, 0, 1, 10, 10, 10, 1 + random.below(1400) as u32][random.below(7)];
    let flags = [0, 0, 0, 0, 0, 1, 2, 3][random.below(8)];
    let next = &mut streams[stream];
    let sequence = match random.below(8) {
        0 => next.wrapping_sub(10),
        1 => next.wrapping_add(10),
        2 => next.wrapping_sub(random.below(30) as u32),
        3 if random.below(9) == 0 => random.next() as u32,
        _ => *next,
    };
    *next = sequence.wrapping_add(data + (flags & 1) + (flags >> 1));
    let status = [segment::RIGHT; 9];
    let status = status.get(random.below(10)).copied().unwrap_or(random.below(5) as u8);
    let options = 4 * random.below(3) as u32;
    let header0 = [src.1 << 48 | dst.1 << 32 | u64::from(40 + options + data), random.next()];
    let header1 = [random.next() << 32 | 0x0022_000e, random.next()];
    let words = u64::from(status) << 56 | u64::from(20 + options) << 48 | u64::from(flags);
    ([src.0, dst.0], [header0, header1], [random.next() << 32 | u64::from(sequence), words])
}

/// The launches for groups of so many items.
fn launches(rows: usize, seed: u32, items: u32) -> Vec<Launch> {
    let launch = |step: device::accelerator::Step| {
        let Cow::Borrowed(kernel) = step.kernel else { unreachable!("names are literals") };
        let groups = match kernel {
            "order_scan" => 1,
            "order_count" | "order_scatter" => {
                rows.div_ceil((items * OrderPlan::ROWS_PER_ITEM) as usize).max(1) as u32
            }
            _ => over_rows(kernel, rows, items).groups,
        };
        Launch { kernel, groups, items, job: step.job.unwrap_or_default() }
    };
    steps(rows, seed).into_iter().map(launch).collect()
}

/// Rows as the kernels find their order, and as the twin does. Returns what was found.
fn compare(bed: &mut Bed, items: u32, rows: &[Row], seed: u32, name: &str) -> Vec<Placed> {
    let spec = Spec::new("reassembly", &[&REASSEMBLY, &files::ORDER], R::COLUMNS);
    let spec = spec.with_group_items(items);
    let mut job = JobBytes::new(R::COLUMNS, rows.len());
    let places = job.add_areas(&areas().map(|area| area.bytes(rows.len())));
    // Whatever was in the areas.
    job.bytes_mut()[places[0]..].fill(0xa5);
    for (row, (ends, headers, found)) in rows.iter().enumerate() {
        job.put(R::FLOW_SRC, row, ends[0]);
        job.put(R::FLOW_DST, row, ends[1]);
        job.put(R::FLOW_HEADER0, row, headers[0]);
        job.put(R::FLOW_HEADER1, row, headers[1]);
        job.put(R::FLOW_SEGMENT, row, *found);
        for (number, column) in [R::FLOW_GROUP, R::FLOW_PLACE, R::FLOW_NEXT].into_iter().enumerate()
        {
            job.put(column, row, (row * 7 + number) as u32);
        }
    }
    let segments: Vec<Option<InStream>> = rows
        .iter()
        .map(|&([src, dst], [header0, header1], found)| {
            InStream::of_columns((src, dst), (header0, header1), found)
        })
        .collect();
    let twin = reference(&segments, 0, seed);
    let mut after = job.clone();
    let arena = bed.memory(job.bytes());
    let memories = Memories { arena, ..bed.memories() };
    bed.run(&spec, memories, &launches(rows.len(), seed, items));
    bed.read(arena, after.bytes_mut());
    for (row, twin) in twin.iter().enumerate() {
        let own = Placed {
            group: after.get(R::FLOW_GROUP, row),
            place: after.get(R::FLOW_PLACE, row),
            next: after.get(R::FLOW_NEXT, row),
        };
        assert_eq!(own, *twin, "{name}: row {row} of {}: {:?}", rows.len(), segments[row]);
    }
    for column in [R::FLOW_SRC, R::FLOW_DST, R::FLOW_HEADER0, R::FLOW_HEADER1, R::FLOW_SEGMENT] {
        let range = job.column_range(column, rows.len());
        assert!(job.bytes()[range.clone()] == after.bytes()[range], "{name}: {}", column.name);
    }
    bed.free(arena);
    twin
}

fn check(seed: u64, bed: &mut Bed) -> [usize; 4] {
    let mut random = Random(seed);
    let mut seen = [0; 4];
    for items in GROUP_ITEMS {
        for count in ROWS {
            let mut streams = vec![0; [1, 2, 5, 40, 2000][random.below(5)]];
            let near = |random: &mut Random| (random.next() as u32 % 3000).wrapping_sub(1500);
            streams.iter_mut().for_each(|next| *next = near(&mut random));
            let rows: Vec<Row> = (0..count).map(|_| row(&mut random, &mut streams)).collect();
            let own = random.next() as u32;
            let found = compare(bed, items, &rows, own, &format!("seed {seed}"));
            for own in found {
                seen[0] += usize::from(own.group == NO_ROW);
                seen[1] += usize::from(own.next != NO_ROW);
                seen[2] += usize::from(own.group != NO_ROW && own.place & BEGINS_RUN != 0);
                seen[3] += usize::from(own.group != NO_ROW && own.place & !BEGINS_RUN > 3);
            }
        }
    }
    seen
}

#[test]
fn rows_of_all_kinds() {
    let Some(mut bed) = Bed::open() else { return };
    let seen = check(71, &mut bed);
    assert!(seen.iter().all(|seen| *seen > 1000), "{seen:?}");
}

/// With a seed that no run had before; a failure names it.
#[test]
fn the_same_with_a_fresh_seed() {
    let Some(mut bed) = Bed::open() else { return };
    check(RandomState::new().hash_one(0), &mut bed);
}

/// Directions, or sequence numbers, whose hashes lead to a few cells: some find none.
#[test]
fn what_finds_no_cell_is_marked() {
    let Some(mut bed) = Bed::open() else { return };
    let (count, seed) = (300_usize, 9);
    let hash = MultiplyShift::<10>::new(seed.into());
    let home = |src: u32, port: u32, sequence: u32| {
        let tag = fmix32(hash.hash(&[0, 0, src, 0, 0, 0, 2, 0, port, sequence]));
        to_range(tag, 2 * count as u32)
    };
    let row = |src: u32, port: u32, sequence: u32| -> Row {
        let words = u64::from(segment::RIGHT) << 56 | 20 << 48;
        let headers = [[u64::from(port) << 32 | 41, 0], [0x0022_000e, 0]];
        ([[0, src.into()], [0, 2]], headers, [sequence.into(), words])
    };
    for by_sequence in [false, true] {
        let mut rows: Vec<Row> = match by_sequence {
            false => (0..)
                .filter(|src| home(*src, 4, 0) < 5)
                .take(60)
                .map(|src| row(src, 4, 1))
                .collect(),
            // What ends where these begin finds some of them.
            true => {
                let near = (1..).filter(|sequence| home(7, 4, *sequence) < 5).take(60);
                near.flat_map(|sequence| [row(7, 4, sequence), row(7, 4, sequence - 1)]).collect()
            }
        };
        rows.extend((rows.len()..count).map(|n| row(1 << 20 | n as u32, 5, 1)));
        let found = compare(&mut bed, 64, &rows, seed, "crowded cells");
        let without = found[..60].iter().filter(|own| own.group == NO_ROW).count();
        let alone = found[..120].iter().filter(|own| own.next == NO_ROW).count();
        match by_sequence {
            false => assert!(without > 60 - PROBES as usize - 5 && without < 60, "{without}"),
            true => assert!(without == 0 && alone > 60 + 60 - PROBES as usize - 15, "{alone}"),
        }
    }
}
