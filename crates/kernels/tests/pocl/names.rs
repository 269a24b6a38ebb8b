//! `names` and `name_lookup` against the map and the CPU's table, on random names and real ones.

use std::process::Command;

use chunk::{Columns, Verdict};
use kernels::image::{ImageLayout, ndn::NAMES};
use kernels::job::JobBytes;
use kernels::{Launch, NameColumns as N, NameLookupColumns as L, Spec, files};
use lookup::Blob;
use lookup::names::{
    DEPTH_MAX, NaiveNames, NameFib, NameFibBuilder, NameHasher, NameKey, NameLimits, NameList,
    NamePrefixes,
};

use crate::bed::{Bed, GROUP_ITEMS, Memories, ROWS, over_rows};
use crate::frames::pack;
use crate::lpm::Random;

fn component(value: &[u8]) -> Vec<u8> {
    let mut encoded = vec![8];
    match value.len() {
        len @ 0..=252 => encoded.push(len as u8),
        len => {
            encoded.push(253);
            encoded.extend((len as u16).to_be_bytes());
        }
    }
    encoded.extend_from_slice(value);
    encoded
}

type Components = Vec<Vec<u8>>;

fn list(names: &[Components]) -> NameList {
    let mut list = NameList::new();
    names.iter().for_each(|name| list.push(name.iter().map(Vec::as_slice)));
    list
}

/// Few different components, some of them long.
fn random_name(random: &mut Random) -> Components {
    let depth = random.below(7);
    let part = |random: &mut Random| match random.below(8) {
        0 => component(&vec![b'x'; 5 + random.below(30)]),
        1 => component(&vec![b'y'; 250 + random.below(20)]),
        _ => component(&[b'a' + random.below(3) as u8]),
    };
    (0..depth).map(|_| part(random)).collect()
}

/// The answers of the kernel, of the CPU's table and of the map are one.
fn check(bed: &mut Bed, spec: &Spec, blob: &Blob, map: &NaiveNames, names: &[Components]) {
    let words = blob.words();
    let layout = ImageLayout::new(&[(words.len(), words.len())]);
    let tables = bed.memory_of_words(&layout.write(1, &[words]));
    let bytes: Vec<Vec<u8>> = names.iter().map(|name| name.concat()).collect();
    let (payload, places) = pack(&bytes, &mut Random(1));
    let mut job = JobBytes::new(N::COLUMNS, names.len());
    for (row, bytes) in bytes.iter().enumerate() {
        job.put(N::PAYLOAD_AT, row, places[row]);
        job.put(N::PAYLOAD_LEN, row, bytes.len() as u32);
        job.put(N::RESULT, row, 0xdead_beef_u32);
    }
    let (arena, payload) = (bed.memory(job.bytes()), bed.memory(&payload));
    let memories = Memories { arena, payload, tables, ..bed.memories() };
    bed.run(spec, memories, &[over_rows("names", names.len(), spec.group_items)]);
    bed.read(arena, job.bytes_mut());

    let fib = NameFib::new(blob).unwrap();
    let (list, mut prefixes) = (list(names), NamePrefixes::new());
    list.iter().for_each(|name| prefixes.push(fib.hasher(), name, DEPTH_MAX));
    let keys: Vec<NameKey> =
        list.iter().enumerate().map(|(at, name)| prefixes.key(at, name)).collect();
    let mut expected = vec![0; keys.len()];
    fib.lookup(&keys, &mut expected);
    for (row, (name, expected)) in names.iter().zip(expected).enumerate() {
        assert_eq!(map.lookup(name.iter().map(Vec::as_slice)), expected);
        assert_eq!(job.get::<u32>(N::RESULT, row), expected, "row {row} of {}", names.len());
    }
    for memory in [arena, payload, tables] {
        bed.free(memory);
    }
}

fn build(routes: &[Components], seed: u64) -> (Blob, NaiveNames) {
    let hops: Vec<u32> = (1..=routes.len() as u32).collect();
    let mut map = NaiveNames::default();
    for (name, hop) in routes.iter().zip(&hops) {
        map.insert(name.iter().map(Vec::as_slice), *hop);
    }
    let limits = NameLimits { prefixes: routes.len().max(1), name_bytes: 1 << 24 };
    let blob =
        NameFibBuilder::build(NameHasher::new(seed), &list(routes), &hops, limits).unwrap().1;
    (blob, map)
}

#[test]
fn random_names() {
    let Some(mut bed) = Bed::open() else { return };
    let mut random = Random(3);
    for items in GROUP_ITEMS {
        let spec = Spec::new("names", &[&files::NAMES], N::COLUMNS).with_group_items(items);
        for rows in ROWS {
            let routes: Vec<Components> =
                (0..random.below(200)).map(|_| random_name(&mut random)).collect();
            let (blob, map) = build(&routes, random.next());
            let names: Vec<Components> = (0..rows).map(|_| random_name(&mut random)).collect();
            check(&mut bed, &spec, &blob, &map, &names);
        }
    }
}

#[test]
fn real_names() {
    let Some(path) = testkit::shared_data("ndn/urls-kasztp.txt.xz") else { return };
    let Some(xz) = testkit::require_tool("xz") else { return };
    let Some(mut bed) = Bed::open() else { return };
    let text = Command::new(xz).arg("-dc").arg(path).output().unwrap().stdout;
    let names: Vec<Components> = String::from_utf8_lossy(&text)
        .lines()
        .map(|url| {
            let url = url.split_once("://").map_or(url, |(_, rest)| rest);
            let (host, path) = url.split_once('/').unwrap_or((url, ""));
            let path = path.split('/').filter(|segment| !segment.is_empty());
            host.split('.').rev().chain(path).map(|part| component(part.as_bytes())).collect()
        })
        .collect();
    assert!(names.len() > 40_000);
    let routes: Vec<Components> = names
        .iter()
        .step_by(2)
        .enumerate()
        .map(|(at, name)| name[..name.len() - at % name.len()].to_vec())
        .collect();
    let (blob, map) = build(&routes, 8);
    check(&mut bed, &Spec::new("names", &[&files::NAMES], N::COLUMNS), &blob, &map, &names);
}

/// No image, an image of something else, a table whose counts lie: no route, and no access beyond.
#[test]
fn damaged_tables() {
    let Some(mut bed) = Bed::open() else { return };
    let (blob, _) = build(&[vec![], vec![component(b"a")]], 8);
    let name = component(b"a");
    let mut lying = blob.words().to_vec();
    lying[6] = u32::MAX; // bucket lines
    let layout = |words: &[u32]| ImageLayout::new(&[(words.len(), 0)]).write(1, &[words]);
    for (image, answer) in [
        (vec![0; 64], 0),
        (layout(&[7; 64]), 0),
        (layout(&lying), 0),
        (layout(&blob.words()[..32]), 0),
        (layout(blob.words()), 2),
    ] {
        let mut job = JobBytes::new(N::COLUMNS, 1);
        job.put(N::PAYLOAD_LEN, 0, name.len() as u32);
        job.put(N::RESULT, 0, 0xdead_beef_u32);
        let (arena, tables) = (bed.memory(job.bytes()), bed.memory_of_words(&image));
        let payload = bed.memory(&name);
        let memories = Memories { arena, payload, tables, ..bed.memories() };
        bed.run(
            &Spec::new("names", &[&files::NAMES], N::COLUMNS),
            memories,
            &[over_rows("names", 1, 16)],
        );
        bed.read(arena, job.bytes_mut());
        assert_eq!(job.get::<u32>(N::RESULT, 0), answer);
    }
}

/// Names inside frames, some of them of packets that are dropped or have none, with other regions before the table.
#[test]
fn names_of_frames() {
    let Some(mut bed) = Bed::open() else { return };
    let mut random = Random(11);
    for items in GROUP_ITEMS {
        let spec =
            Spec::new("name_lookup", &[&files::NAME_LOOKUP], L::COLUMNS).with_group_items(items);
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
