//! `bridge` against the CPU's cuckoo table: full tables, stashes, misses, groups, and parts that begin anywhere.

use apps::switch::kernels::{BRIDGE, BridgeColumns as B, STATIONS, flags};
use chunk::{Columns, Verdict};
use kernels::job::JobBytes;
use kernels::{Launch, Spec};
use lookup::cuckoo::Cuckoo;

use crate::bed::{Bed, GROUP_ITEMS, Memories, ROWS, over_rows};
use crate::cuckoo_tables::{image, tables};
use crate::random::Random;

#[test]
fn as_on_the_cpu() {
    let Some(mut bed) = Bed::open() else { return };
    let mut random = Random(31);
    let mut stashes = 0;
    for items in GROUP_ITEMS {
        let spec = Spec::of_file(&BRIDGE).with_group_items(items);
        for rows in ROWS {
            let (blob, keys, ..) = tables(&mut random);
            let table = Cuckoo::<u64>::new(&blob).unwrap();
            stashes += usize::from(blob.words64()[4] > 0);
            let key = |random: &mut Random| match random.below(4) {
                0 => random.next(),
                1 => random.below(9000) as u64,
                _ if keys.is_empty() => 0,
                _ => keys[random.below(keys.len())],
            };
            let mut job = JobBytes::new(B::COLUMNS, rows);
            for row in 0..rows {
                job.put(B::VERDICT, row, if random.below(8) == 0 { Verdict::DUMP.0 } else { 0 });
                job.put(B::FLAGS, row, random.next() as u16 & 7);
                job.put(B::SOURCE_KEY, row, key(&mut random));
                job.put(B::DESTINATION_KEY, row, key(&mut random));
                job.put(B::SOURCE, row, 1u64);
                job.put(B::DESTINATION, row, 2u64);
            }
            let mut expected = job.clone();
            for row in 0..rows {
                if !Verdict(job.get(B::VERDICT, row)).is_next() {
                    continue;
                }
                let is_group = job.get::<u16>(B::FLAGS, row) & flags::GROUP != 0;
                let station = |column| table.get(&job.get(column, row));
                let to = if is_group { u64::MAX } else { station(B::DESTINATION_KEY) };
                expected.put(B::SOURCE, row, station(B::SOURCE_KEY));
                expected.put(B::DESTINATION, row, to);
            }
            let first = rows % 20;
            let arena = bed.memory(job.bytes());
            let tables = bed.memory_of_words(&image(first + STATIONS, &blob));
            let memories = Memories { arena, tables, ..bed.memories() };
            let launch = Launch { job: first as u32, ..over_rows("bridge", rows, items) };
            bed.run(&spec, memories, &[launch]);
            bed.read(arena, job.bytes_mut());
            assert!(job.bytes() == expected.bytes(), "{items} items, {rows} rows");
            bed.free(arena);
            bed.free(tables);
        }
    }
    assert!(stashes > 3, "only {stashes} tables had something in the stash");
}
