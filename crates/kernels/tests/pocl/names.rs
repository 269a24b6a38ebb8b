//! `names` against the map and the CPU's table, on random names and real ones.

use chunk::Columns;
use kernels::image::ImageLayout;
use kernels::job::JobBytes;
use kernels::{NameColumns as N, Spec, files};
use lookup::Blob;
use lookup::names::{DEPTH_MAX, NameFib, NameKey, NamePrefixes, ReferenceNames};

use crate::bed::{Bed, GROUP_ITEMS, Memories, ROWS, over_rows};
use crate::frames::pack;
use crate::name_tables::{Components, build, component, list, random_name};
use crate::random::Random;

/// The answers of the kernel, of the CPU's table and of the map are one.
fn check(bed: &mut Bed, spec: &Spec, blob: &Blob, map: &ReferenceNames, names: &[Components]) {
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
    let Some(text) = testkit::data::bytes("ndn/urls-kasztp.txt") else { return };
    let Some(mut bed) = Bed::open() else { return };
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
