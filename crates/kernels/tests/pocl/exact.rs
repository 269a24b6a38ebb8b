//! `exact8`, `exact16` and `bridge` against the CPU's cuckoo table: full tables, stashes, misses, and blobs that
//! are none.

use chunk::{Columns, Verdict};
use kernels::image::{ImageLayout, bridge::STATIONS};
use kernels::job::JobBytes;
use kernels::{BridgeColumns as B, ExactColumns as E, Launch, Spec, bridge, files};
use lookup::Blob;
use lookup::cuckoo::{Cuckoo, CuckooBuilder, Limits};

use crate::bed::{Bed, GROUP_ITEMS, Memories, ROWS, over_rows};
use crate::lpm::Random;

/// The table in a region, those before it empty.
fn image(region: usize, blob: &Blob) -> Vec<u32> {
    let mut lengths = vec![(0, 0); region];
    lengths.push((blob.words().len(), 0));
    let mut regions: Vec<&[u32]> = vec![&[]; region];
    regions.push(blob.words());
    ImageLayout::new(&lengths).write(1, &regions)
}

/// Tables of random entries, some of them so full that the stash is in use.
fn tables(random: &mut Random) -> (Blob, Vec<u64>, Blob, Vec<[u64; 2]>) {
    let n = [0, 1, 50, 900, 5000][random.below(5)];
    let limits = Limits { entries: 6000, reserve: [1, n][random.below(2)] };
    // Half of the keys are small and crowd together, as addresses of one vendor do.
    let keys8: Vec<u64> =
        (0..n).map(|i| if i % 2 == 0 { i as u64 } else { random.next() }).collect();
    let keys16: Vec<[u64; 2]> = keys8.iter().map(|key| [key % 77, *key]).collect();
    let (mut builder8, mut blob8) = CuckooBuilder::with_seed(limits, random.next()).unwrap();
    let (mut builder16, mut blob16) = CuckooBuilder::with_seed(limits, random.next()).unwrap();
    let mut patches = [Vec::new(), Vec::new()];
    // Every other table is left as soon as its stash has entries; the keys after that are misses.
    let crowded = random.below(2) == 0;
    for (value, key) in keys8.iter().enumerate() {
        if !(crowded && builder8.stashed() >= 5) {
            builder8.insert(*key, value as u64 * 3, &mut patches[0]).unwrap();
        }
        if !(crowded && builder16.stashed() >= 4) {
            builder16.insert([key % 77, *key], value as u32 * 5, &mut patches[1]).unwrap();
        }
    }
    // Nobody calls `step`, so what waits for a larger table waits in the stash.
    blob8.apply(&patches[0]);
    blob16.apply(&patches[1]);
    (blob8, keys8, blob16, keys16)
}

#[test]
fn as_on_the_cpu() {
    let Some(mut bed) = Bed::open() else { return };
    let mut random = Random(31);
    let mut stashes = 0;
    for items in GROUP_ITEMS {
        let exact = Spec::new("exact", &[&files::CUCKOO], E::COLUMNS).with_group_items(items);
        let forward = Spec::new("bridge", &[&files::BRIDGE], B::COLUMNS).with_group_items(items);
        for rows in ROWS {
            let (blob8, keys8, blob16, keys16) = tables(&mut random);
            let table8 = Cuckoo::<u64>::new(&blob8).unwrap();
            let table16 = Cuckoo::<[u64; 2]>::new(&blob16).unwrap();
            stashes += usize::from(blob8.words64()[4] > 0) + usize::from(blob16.words64()[4] > 0);
            let key = |random: &mut Random| match random.below(4) {
                0 => random.next(),
                1 => random.below(9000) as u64,
                _ if keys8.is_empty() => 0,
                _ => keys8[random.below(keys8.len())],
            };
            let mut job = JobBytes::new(E::COLUMNS, rows);
            let mut switch = JobBytes::new(B::COLUMNS, rows);
            for row in 0..rows {
                let (one, two) = (key(&mut random), key(&mut random));
                job.put(E::KEY8, row, one);
                let known = random.below(3) > 0 && !keys16.is_empty();
                let pair = if known { keys16[random.below(keys16.len())] } else { [one % 77, two] };
                job.put(E::KEY16, row, pair);
                switch.put(B::VERDICT, row, if random.below(8) == 0 { Verdict::DUMP.0 } else { 0 });
                switch.put(B::FLAGS, row, random.next() as u16 & 7);
                switch.put(B::SOURCE_KEY, row, one);
                switch.put(B::DESTINATION_KEY, row, two);
                switch.put(B::SOURCE, row, 1u64);
                switch.put(B::DESTINATION, row, 2u64);
            }
            let (mut expected, mut expected_switch) = (job.clone(), switch.clone());
            for row in 0..rows {
                expected.put(E::VALUE8, row, table8.get(&job.get(E::KEY8, row)));
                expected.put(E::VALUE16, row, table16.get(&job.get(E::KEY16, row)));
                let (verdict, flags): (u32, u16) =
                    (switch.get(B::VERDICT, row), switch.get(B::FLAGS, row));
                if verdict == Verdict::NEXT.0 {
                    let to = table8.get(&switch.get(B::DESTINATION_KEY, row));
                    let to = if flags & bridge::GROUP != 0 { u64::MAX } else { to };
                    expected_switch.put(
                        B::SOURCE,
                        row,
                        table8.get(&switch.get(B::SOURCE_KEY, row)),
                    );
                    expected_switch.put(B::DESTINATION, row, to);
                }
            }
            let (arena, arena_switch) = (bed.memory(job.bytes()), bed.memory(switch.bytes()));
            let images = [&blob8, &blob16].map(|blob| bed.memory_of_words(&image(0, blob)));
            // The switch's part begins anywhere.
            let first = rows % 20;
            let of_switch = bed.memory_of_words(&image(first + STATIONS, &blob8));
            let with = |bed: &Bed, arena, tables| Memories { arena, tables, ..bed.memories() };
            let memories = with(&bed, arena, images[0]);
            bed.run(&exact, memories, &[over_rows("exact8", rows, items)]);
            let memories = with(&bed, arena, images[1]);
            bed.run(&exact, memories, &[over_rows("exact16", rows, items)]);
            let memories = with(&bed, arena_switch, of_switch);
            let launch = Launch { job: first as u32, ..over_rows("bridge", rows, items) };
            bed.run(&forward, memories, &[launch]);
            bed.read(arena, job.bytes_mut());
            assert!(job.bytes() == expected.bytes(), "exact: {items} items, {rows} rows");
            bed.read(arena_switch, switch.bytes_mut());
            assert!(
                switch.bytes() == expected_switch.bytes(),
                "bridge: {items} items, {rows} rows"
            );
            for memory in [arena, arena_switch, images[0], images[1], of_switch] {
                bed.free(memory);
            }
        }
    }
    assert!(stashes > 3, "only {stashes} tables had something in the stash");
}

/// A region that holds no table, or one of keys of another width, or one that says it is longer than it is.
#[test]
fn no_table_holds_nothing() {
    let Some(mut bed) = Bed::open() else { return };
    let (mut builder, mut blob) = CuckooBuilder::with_seed(Limits::default(), 3).unwrap();
    let mut patches = Vec::new();
    builder.insert(7u64, 8, &mut patches).unwrap();
    blob.apply(&patches);
    let mut long = blob.clone();
    long.words64_mut()[2] += 1;
    let mut longer = blob.clone();
    longer.words64_mut()[2] = 1 << 32;
    let spec = Spec::new("exact", &[&files::CUCKOO], E::COLUMNS);
    let small = Blob::zeroed(16, 0).unwrap();
    for (blob, value8) in [(&blob, 8), (&long, u64::MAX), (&longer, u64::MAX), (&small, u64::MAX)] {
        let mut job = JobBytes::new(E::COLUMNS, 1);
        job.put(E::KEY8, 0, 7u64);
        job.put(E::KEY16, 0, [7u64, 7]);
        let arena = bed.memory(job.bytes());
        let tables = bed.memory_of_words(&image(0, blob));
        let launches = [over_rows("exact8", 1, 64), over_rows("exact16", 1, 64)];
        let memories = Memories { arena, tables, ..bed.memories() };
        bed.run(&spec.clone().with_group_items(64), memories, &launches);
        bed.read(arena, job.bytes_mut());
        assert_eq!(job.get::<u64>(E::VALUE8, 0), value8);
        assert_eq!(job.get::<u32>(E::VALUE16, 0), u32::MAX, "no table of keys of 16 bytes");
        bed.free(arena);
        bed.free(tables);
    }
}
