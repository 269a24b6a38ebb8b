//! `name_lookup` against the map, on names inside frames.

use apps::ndn::kernels::{NAME_LOOKUP, NAMES, NameLookupColumns as L};
use chunk::{Columns, Verdict};
use kernels::image::ImageLayout;
use kernels::job::JobBytes;
use kernels::{Launch, Spec};

use crate::bed::{Bed, GROUP_ITEMS, Memories, ROWS, over_rows};
use crate::frames::pack;
use crate::name_tables::{Components, build, random_name};
use crate::random::Random;

/// Names inside frames, some of them of packets that are dropped or have none, with other regions before the table.
#[test]
fn names_of_frames() {
    let Some(mut bed) = Bed::open() else { return };
    let mut random = Random(11);
    for items in GROUP_ITEMS {
        let spec = Spec::of_file(&NAME_LOOKUP).with_group_items(items);
        for rows in ROWS {
            let routes: Vec<Components> = (0..100).map(|_| random_name(&mut random)).collect();
            let (blob, map) = build(&routes, random.next());
            let names: Vec<Components> = (0..rows).map(|_| random_name(&mut random)).collect();
            let starts: Vec<usize> = (0..rows).map(|_| random.below(60)).collect();
            let frame = |(name, start): (&Components, &usize)| {
                [&vec![8; *start][..], &name.concat(), b"\x08\x01a"].concat()
            };
            let frames: Vec<Vec<u8>> = names.iter().zip(&starts).map(frame).collect();
            let (payload, places) = pack(&frames, &mut random);
            let (mut job, mut answers) = (JobBytes::new(L::COLUMNS, rows), Vec::new());
            for (row, name) in names.iter().enumerate() {
                let (is_live, before) = (random.below(8) > 0, random.next() as u32);
                let len: usize = name.iter().map(Vec::len).sum();
                job.put(L::VERDICT, row, if is_live { Verdict::NEXT.0 } else { Verdict::DUMP.0 });
                job.put(L::PAYLOAD_AT, row, places[row]);
                job.put(L::PAYLOAD_LEN, row, frames[row].len() as u32);
                job.put(L::NAME_AT, row, starts[row] as u16);
                job.put(L::NAME_LEN, row, len as u16);
                job.put(L::NEXT_HOP, row, before);
                let answer = map.lookup(name.iter().map(Vec::as_slice));
                answers.push(if is_live && len > 0 { answer } else { before });
            }
            let mut expected = job.clone();
            for (row, answer) in answers.into_iter().enumerate() {
                expected.put(L::NEXT_HOP, row, answer);
            }
            let first = rows % 20;
            let mut regions: Vec<&[u32]> = vec![&[7; 16]; first + NAMES];
            regions.push(blob.words());
            let lengths: Vec<_> = regions.iter().map(|words| (words.len(), 0)).collect();
            let image = ImageLayout::new(&lengths).write(1, &regions);
            let (arena, payload) = (bed.memory(job.bytes()), bed.memory(&payload));
            let tables = bed.memory_of_words(&image);
            let memories = Memories { arena, payload, tables, ..bed.memories() };
            let launch = Launch { job: first as u32, ..over_rows("name_lookup", rows, items) };
            bed.run(&spec, memories, &[launch]);
            bed.read(arena, job.bytes_mut());
            assert!(job.bytes() == expected.bytes(), "{items} items, {rows} rows");
            for memory in [arena, payload, tables] {
                bed.free(memory);
            }
        }
    }
}
