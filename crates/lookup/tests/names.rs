//! The table of names against a map of component lists: random names that share prefixes, changes, all forms,
//! names of the real world, and what must be refused.

use std::sync::atomic::{AtomicBool, Ordering};

use lookup::names::*;
use lookup::versions::versions;
use lookup::{Blob, NO_ROUTE, NextHopId, Patch, TableError};
use proptest::prelude::*;
use proptest::sample::Index;

type Components = Vec<Vec<u8>>;

/// A component as NDN encodes a generic one.
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

fn list<'a>(names: impl IntoIterator<Item = &'a Components>) -> NameList {
    let mut list = NameList::new();
    for name in names {
        list.push(name.iter().map(Vec::as_slice));
    }
    list
}

fn slices(name: &Components) -> impl Iterator<Item = &[u8]> {
    name.iter().map(Vec::as_slice)
}

/// Few different components, so that names meet; some long, some empty.
fn any_component() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => (0..3_u8).prop_map(|c| component(&[b'a' + c])),
        2 => (0..2_u8, 5..40_usize).prop_map(|(c, len)| component(&vec![b'x' + c; len])),
        1 => Just(component(b"")),
        1 => (250..300_usize).prop_map(|len| component(&vec![7; len])),
    ]
}

fn any_name() -> impl Strategy<Value = Components> {
    prop::collection::vec(any_component(), 0..7)
}

/// What all forms answer, which must be the same.
fn ask(blob: &Blob, names: &NameList) -> Vec<NextHopId> {
    let fib = NameFib::new(blob).unwrap();
    let mut prefixes = NamePrefixes::new();
    for name in names.iter() {
        prefixes.push(fib.hasher(), name, DEPTH_MAX);
    }
    let keys: Vec<NameKey> =
        names.iter().enumerate().map(|(at, name)| prefixes.key(at, name)).collect();
    let answers = |form: &dyn Fn(&[NameKey], &mut [NextHopId])| {
        let mut out = vec![0xdead_beef; keys.len()];
        form(&keys, &mut out);
        out
    };
    let direct = answers(&|keys, out| fib.lookup_direct(keys, out));
    assert_eq!(answers(&|keys, out| fib.lookup(keys, out)), direct);
    assert_eq!(answers(&|keys, out| fib.lookup_switched::<1>(keys, out)), direct);
    assert_eq!(answers(&|keys, out| fib.lookup_switched::<3>(keys, out)), direct);
    assert_eq!(answers(&|keys, out| fib.lookup_switched::<32>(keys, out)), direct);
    assert_eq!(answers(&|keys, out| fib.lookup_machine::<5>(keys, out)), direct);
    assert_eq!(answers(&|keys, out| fib.lookup_machine::<32>(keys, out)), direct);
    assert_eq!(answers(&|keys, out| fib.lookup_machine_direct(keys, out)), direct);
    direct
}

fn reference(map: &ReferenceNames, names: &[Components]) -> Vec<NextHopId> {
    names.iter().map(|name| map.lookup(slices(name))).collect()
}

#[derive(Debug, Clone)]
enum Step {
    Insert(Components, NextHopId),
    /// One of those that have been inserted, or anything.
    Remove(Index, Components),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (any_name(), 1..9_u32).prop_map(|(name, hop)| Step::Insert(name, hop)),
        2 => (any::<Index>(), any_name()).prop_map(|(at, name)| Step::Remove(at, name)),
    ]
}

proptest! {
    /// Built at once, then changed step by step: the copy that the patches make is the builder's, and each
    /// answer is that of the reference.
    #[test]
    fn agrees_with_a_map(
        first in prop::collection::vec((any_name(), 1..9_u32), 0..60),
        steps in prop::collection::vec(any_step(), 0..60),
        asked in prop::collection::vec(any_name(), 0..60),
        seed in any::<u64>(),
        hint_depth in 1..6_usize,
    ) {
        let mut map = ReferenceNames::default();
        let mut inserted: Vec<Components> = Vec::new();
        for (name, hop) in &first {
            map.insert(slices(name), *hop);
            inserted.push(name.clone());
        }
        let names = list(first.iter().map(|(name, _)| name));
        let hops: Vec<_> = first.iter().map(|(_, hop)| *hop).collect();
        // Few hint lines, so that some prefixes find no room for a hint.
        let limits = NameLimits { prefixes: 200, name_bytes: 1 << 16 };
        let hasher = NameHasher::new(seed);
        let (mut builder, mut blob) =
            NameFibBuilder::build_with_hints(hasher, &names, &hops, limits, hint_depth).unwrap();
        let asked = [asked, inserted.clone()].concat();
        prop_assert_eq!(ask(&blob, &list(&asked)), reference(&map, &asked));
        for step in steps {
            let mut patches = Vec::new();
            match step {
                Step::Insert(name, hop) => {
                    let one = list([&name]);
                    let before = builder.insert(one.get(0), hop, &mut patches).unwrap();
                    prop_assert_eq!(before, map.insert(slices(&name), hop));
                    inserted.push(name);
                }
                Step::Remove(at, name) => {
                    let name =
                        if inserted.is_empty() { name } else { at.get(&inserted).clone() };
                    let one = list([&name]);
                    let before = builder.remove(one.get(0), &mut patches);
                    prop_assert_eq!(before, map.remove(slices(&name)));
                    prop_assert_eq!(builder.get(one.get(0)), None);
                }
            }
            blob.apply(&patches);
            prop_assert_eq!(builder.len(), map.len());
        }
        let asked = [asked, inserted.clone()].concat();
        prop_assert_eq!(ask(&blob, &list(&asked)), reference(&map, &asked));
        // All gone: nothing is left behind, hints included.
        for name in &inserted {
            let mut patches = Vec::new();
            builder.remove(list([name]).get(0), &mut patches);
            blob.apply(&patches);
        }
        prop_assert_eq!(builder.len(), 0);
        prop_assert!(ask(&blob, &list(&asked)).iter().all(|hop| *hop == NO_ROUTE));
        let empty = NameFibBuilder::build_with_hints(
            hasher, &NameList::new(), &[], limits, hint_depth).unwrap().1;
        let tables = |blob: &Blob| blob.words()[8..16].to_vec();
        prop_assert_eq!(&tables(&blob)[2..4], &tables(&empty)[2..4], "no depth is asked any more");
    }

    /// Names whose bytes are the same and whose cuts are not are different names.
    #[test]
    fn cuts_matter(values in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..12), 1..6)) {
        let name: Components = values.iter().map(|value| component(value)).collect();
        let joined: Components = vec![component(&values.concat())];
        let (_, blob) = NameFibBuilder::build(
            NameHasher::new(1), &list([&name]), &[5], NameLimits::of(4)).unwrap();
        let expected = if name == joined { 5 } else { NO_ROUTE };
        prop_assert_eq!(ask(&blob, &list([&name, &joined])), [5, expected]);
    }
}

/// Real names: host labels from the last to the first, then the path.
fn real_names() -> Option<Vec<Components>> {
    let mut names = Vec::new();
    for file in ["ndn/urls-kasztp.txt", "ndn/opendns-top-domains.txt"] {
        let text = testdata::bytes(file)?;
        for line in String::from_utf8_lossy(&text).lines() {
            let line = line.trim().trim_start_matches('\u{feff}');
            let line = line.split_once("://").map_or(line, |(_, rest)| rest);
            let (host, path) = line.split_once('/').unwrap_or((line, ""));
            let host = host.split('.').rev();
            let path = path.split('/').filter(|segment| !segment.is_empty());
            names.push(host.chain(path).map(|c| component(c.as_bytes())).collect());
        }
    }
    Some(names)
}

#[test]
fn real_names_against_the_map() {
    let Some(names) = real_names() else { return };
    assert!(names.len() > 57_000);
    // Every second name is a route, cut after one to all of its components.
    let routes: Vec<Components> = names
        .iter()
        .step_by(2)
        .enumerate()
        .map(|(at, name)| name[..name.len() - at % name.len()].to_vec())
        .collect();
    let hops: Vec<NextHopId> = (0..routes.len()).map(|at| at as NextHopId + 1).collect();
    let mut map = ReferenceNames::default();
    for (name, hop) in routes.iter().zip(&hops) {
        map.insert(slices(name), *hop);
    }
    let hasher = NameHasher::random();
    let limits = NameLimits::of(routes.len());
    let (mut builder, mut blob) =
        NameFibBuilder::build(hasher, &list(&routes), &hops, limits).unwrap();
    assert_eq!(builder.len(), map.len());
    let expected = reference(&map, &names);
    assert_eq!(ask(&blob, &list(&names)), expected);
    assert!(expected.iter().filter(|hop| **hop != NO_ROUTE).count() > names.len() / 2);
    // A third goes, a third gets another next hop.
    for (at, name) in routes.iter().enumerate() {
        let (mut patches, one) = (Vec::new(), list([name]));
        match at % 3 {
            0 => assert_eq!(builder.remove(one.get(0), &mut patches), map.remove(slices(name)),),
            1 => assert_eq!(
                builder.insert(one.get(0), 7, &mut patches).unwrap(),
                map.insert(slices(name), 7),
            ),
            _ => {}
        }
        blob.apply(&patches);
    }
    assert_eq!(ask(&blob, &list(&names)), reference(&map, &names));
}

/// One thread moves all prefixes from one next hop to another, again and again, as a whole; others never
/// see a mixture.
#[test]
fn changes_are_seen_whole() {
    let names: Vec<Components> = (0..200_u32)
        .map(|i| vec![component(b"a"), component(&i.to_be_bytes()), component(b"c")])
        .collect();
    let names = list(&names);
    let hasher = NameHasher::random();
    let (mut builder, blob) =
        NameFibBuilder::build(hasher, &names, &[1; 200], NameLimits::of(400)).unwrap();
    let (mut writer, reader) = versions(blob);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (reader, names, stop) = (reader.clone(), &names, &stop);
            scope.spawn(move || {
                let mut prefixes = NamePrefixes::new();
                for name in names.iter() {
                    prefixes.push(&hasher, name, DEPTH_MAX);
                }
                let keys: Vec<NameKey> =
                    names.iter().enumerate().map(|(at, name)| prefixes.key(at, name)).collect();
                let mut out = vec![0; keys.len()];
                let mut rounds = 0_u32;
                while rounds < 50 || !stop.load(Ordering::Relaxed) {
                    let pin = reader.pin();
                    let fib = NameFib::new(&pin).unwrap();
                    fib.lookup_switched::<32>(&keys, &mut out);
                    let version = pin.version();
                    let expected = if version % 2 == 0 { version / 2 % 5 + 1 } else { 0 };
                    assert!(out.iter().all(|hop| u64::from(*hop) == expected), "{version} {out:?}");
                    rounds += 1;
                }
            });
        }
        for version in 1..400_u64 {
            let mut patches: Vec<Patch> = Vec::new();
            for name in names.iter() {
                if version % 2 == 1 {
                    assert!(builder.remove(name, &mut patches).is_some());
                } else {
                    let hop = (version / 2 % 5 + 1) as NextHopId;
                    assert_eq!(builder.insert(name, hop, &mut patches).unwrap(), None);
                }
            }
            writer.publish(patches);
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn what_does_not_fit_is_refused_and_the_table_stays() {
    let hasher = NameHasher::new(3);
    let limits = NameLimits { prefixes: 10, name_bytes: 4096 };
    let (mut builder, mut blob) =
        NameFibBuilder::build(hasher, &NameList::new(), &[], limits).unwrap();
    let mut insert = |name: &Components, hop| {
        let mut patches = Vec::new();
        let result = builder.insert(list([name]).get(0), hop, &mut patches);
        assert!(result.is_ok() || patches.is_empty());
        blob.apply(&patches);
        result
    };
    let deep = vec![component(b"d"); DEPTH_MAX + 1];
    assert_eq!(insert(&deep, 1), Err(NameRouteError::TooDeep(DEPTH_MAX + 1)));
    let deepest = deep[..DEPTH_MAX].to_vec();
    assert_eq!(insert(&deepest, 1), Ok(None));
    let long = vec![component(&[1; 8_798])];
    assert_eq!(insert(&long, 1), Err(NameRouteError::TooLong(8_802)));
    let longer_than_allowed = vec![component(&[1; 8_190])];
    let full = insert(&longer_than_allowed, 1);
    assert!(matches!(full, Err(NameRouteError::Table(TableError::Full { .. }))), "{full:?}");
    assert!(matches!(insert(&vec![], 0), Err(NameRouteError::Table(TableError::NextHop(0)))));
    assert_eq!(insert(&vec![], 9), Ok(None));
    for i in 0..8_u8 {
        assert_eq!(insert(&vec![component(&[i])], 2), Ok(None));
    }
    let full = insert(&vec![component(b"one more")], 3);
    let expected = TableError::Full { what: "name prefixes", used: 10, limit: 10 };
    assert_eq!(full, Err(NameRouteError::Table(expected)));
    assert_eq!(insert(&vec![], 4), Ok(Some(9)), "what is there can still be changed");
    let asked =
        vec![vec![component(&[3]), component(b"x")], deep, vec![component(b"one more")], vec![]];
    assert_eq!(ask(&blob, &list(&asked)), [2, 1, 4, 4]);
}

/// Names of no components, of 10,000, and of one that is 8 KB long.
#[test]
fn odd_names_are_looked_up() {
    let many = vec![component(b"m"); 10_000];
    let huge = vec![component(&[5; 8_192])];
    let routes = [vec![], many[..20].to_vec(), huge.clone()];
    let (_, blob) = NameFibBuilder::build(
        NameHasher::random(),
        &list(&routes),
        &[1, 2, 3],
        NameLimits::of(1000),
    )
    .unwrap();
    let almost = vec![component(&[[5; 8_191].as_slice(), &[6]].concat())];
    let asked = vec![many, huge.clone(), [huge, vec![component(b"")]].concat(), almost, vec![]];
    assert_eq!(ask(&blob, &list(&asked)), [2, 3, 3, 1, 1]);
}

#[test]
fn another_blob_is_no_table_of_names() {
    assert!(NameFib::new(&Blob::zeroed(16, 16).unwrap()).is_none());
    let (_, blob) =
        NameFibBuilder::build(NameHasher::new(0), &NameList::new(), &[], NameLimits::of(9))
            .unwrap();
    let mut cut = Blob::zeroed(64, 64).unwrap();
    cut.words_mut().copy_from_slice(&blob.words()[..64]);
    assert!(NameFib::new(&cut).is_none(), "shorter than its header says");
}
