//! `exact8` and `exact16` against the CPU's cuckoo table: full tables, stashes, misses, and blobs that are none.

use chunk::Columns;
use kernels::job::JobBytes;
use kernels::{ExactColumns as E, Spec, files};
use lookup::Blob;
use lookup::cuckoo::{Cuckoo, CuckooBuilder, Limits};

use crate::bed::{Bed, GROUP_ITEMS, Memories, ROWS, over_rows};
use crate::cuckoo_tables::{image, tables};
use crate::random::Random;

#[test]
fn as_on_the_cpu() {
    let Some(mut bed) = Bed::open() else { return };
    let mut random = Random(31);
    let mut stashes = 0;
    for items in GROUP_ITEMS {
        let exact = Spec::new("exact", &[&files::CUCKOO], E::COLUMNS).with_group_items(items);
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
            for row in 0..rows {
                let (one, two) = (key(&mut random), key(&mut random));
                job.put(E::KEY8, row, one);
                let known = random.below(3) > 0 && !keys16.is_empty();
                let pair = if known { keys16[random.below(keys16.len())] } else { [one % 77, two] };
                job.put(E::KEY16, row, pair);
            }
            let mut expected = job.clone();
            for row in 0..rows {
                expected.put(E::VALUE8, row, table8.get(&job.get(E::KEY8, row)));
                expected.put(E::VALUE16, row, table16.get(&job.get(E::KEY16, row)));
            }
            let arena = bed.memory(job.bytes());
            let images = [&blob8, &blob16].map(|blob| bed.memory_of_words(&image(0, blob)));
            let with = |bed: &Bed, arena, tables| Memories { arena, tables, ..bed.memories() };
            let memories = with(&bed, arena, images[0]);
            bed.run(&exact, memories, &[over_rows("exact8", rows, items)]);
            let memories = with(&bed, arena, images[1]);
            bed.run(&exact, memories, &[over_rows("exact16", rows, items)]);
            bed.read(arena, job.bytes_mut());
            assert!(job.bytes() == expected.bytes(), "exact: {items} items, {rows} rows");
            for memory in [arena, images[0], images[1]] {
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
