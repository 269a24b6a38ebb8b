//! The table that goes over from Poptrie to DIR-24-8: its answers against the trie's, before and after.

mod common;

use common::{Change, around4, ask, changes, edges, prefix4};
use lookup::auto4::{Auto4Builder, Limits};
use lookup::dir24_8::Dir24_8;
use lookup::poptrie::Poptrie;
use lookup::rib::Rib;
use lookup::trie::Trie;
use lookup::{Blob, NO_ROUTE, NextHopId, Patch, Prefix, TableError, dir24_8, poptrie};
use proptest::prelude::*;

/// As a reader does: the image itself tells what it is.
fn read(blob: &Blob, addrs: &[u32]) -> Vec<NextHopId> {
    match (Poptrie::new(blob), Dir24_8::new(blob)) {
        (Some(table), None) => ask(&table, addrs),
        (None, Some(table)) => ask(&table, addrs),
        _ => panic!("neither of both"),
    }
}

fn limits(record_pages: u32, pages: u32, groups: u32) -> Limits {
    Limits { record_pages, poptrie: poptrie::Limits { pages }, dir24_8: dir24_8::Limits { groups } }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Whichever limit is met first: each change is made or refused as a whole, and what is published says what the
    /// routes say.
    #[test]
    fn changes_are_as_the_routes(
        changes in changes(prefix4(), 60),
        record_pages in 0..4_u32,
        pages in 0..8_u32,
        groups in 0..6_u32,
    ) {
        let limits = limits(record_pages, pages, groups);
        let (mut builder, mut blob) = Auto4Builder::build(Rib::new(), limits).unwrap();
        let mut trie = Trie::new();
        let mut addrs = vec![0, u32::MAX];
        for change in changes {
            let mut patches = Vec::new();
            let before: Vec<_> = builder.rib().iter().collect();
            let name = builder.table_name();
            match change {
                Change::Insert(prefix, next_hop) => {
                    addrs.extend(edges([prefix], around4));
                    match builder.insert(prefix, next_hop, &mut patches) {
                        Ok(old) => prop_assert_eq!(old, trie.insert(prefix, next_hop)),
                        Err(error) => {
                            prop_assert!(matches!(error, TableError::Full { .. }), "{error}");
                            prop_assert!(builder.rib().iter().eq(before) && patches.is_empty());
                            prop_assert_eq!(builder.table_name(), name);
                        }
                    }
                }
                Change::Remove(index) if !before.is_empty() => {
                    let prefix = before[index.index(before.len())].0;
                    prop_assert_eq!(builder.remove(prefix, &mut patches), trie.remove(prefix));
                }
                Change::RemoveExactly(prefix) => {
                    prop_assert_eq!(builder.remove(prefix, &mut patches), trie.remove(prefix));
                }
                Change::Remove(_) => continue,
            }
            let replaced = patches.iter().any(|patch| matches!(patch, Patch::Replace(_)));
            prop_assert!(builder.table_name() == name || replaced);
            blob.apply(&patches);
            prop_assert_eq!(Dir24_8::new(&blob).is_some(), builder.table_name() == "dir24-8");
            prop_assert_eq!(read(&blob, &addrs), ask(&trie, &addrs));
        }
        // What is built at once of the same routes gives the same answers, where there is room for them.
        if let Ok((_, blob)) = Auto4Builder::build(builder.rib().clone(), limits) {
            prop_assert_eq!(read(&blob, &addrs), ask(&trie, &addrs));
        }
    }
}

/// Routes whose chunks each need a record of two answers: 4 units of 8 bytes, 32 to a page.
fn scattered(count: u32) -> impl Iterator<Item = (Prefix<u32>, NextHopId)> {
    (0..count).map(|i| (Prefix::masked(i << 14, 24), 1 + i % 7))
}

#[test]
fn the_number_of_records_decides() {
    let of = |count| Auto4Builder::build(scattered(count).collect(), limits(1, 100, 0)).unwrap();
    let (mut builder, mut blob) = of(40);
    assert_eq!((builder.table_name(), Poptrie::new(&blob).is_some()), ("poptrie", true));
    let (large, image) = of(2000);
    assert_eq!((large.table_name(), Dir24_8::new(&image).is_some()), ("dir24-8", true));
    let mut went_over = None;
    for (at, (prefix, next_hop)) in scattered(2000).enumerate() {
        let mut patches = Vec::new();
        builder.insert(prefix, next_hop, &mut patches).unwrap();
        if patches.iter().any(|patch| matches!(patch, Patch::Replace(_))) {
            assert_eq!(patches.len(), 1, "the image, and nothing that leads to another");
            assert!(went_over.replace(at).is_none(), "once");
        }
        blob.apply(&patches);
    }
    assert!(went_over.is_some_and(|at| (40..200).contains(&at)), "{went_over:?}");
    let addrs: Vec<u32> = (0..2100).map(|i| i << 14 | 9).collect();
    assert_eq!(read(&blob, &addrs), read(&image, &addrs));
    assert_eq!(read(&blob, &addrs[2000..]), vec![NO_ROUTE; 100]);
    // Routes longer than 24 bits cost both the same and move nothing.
    let long = (0..50).map(|i| (Prefix::masked(i << 8, 32), 1 + i % 3)).collect();
    let (builder, _) = Auto4Builder::build(long, limits(1, 100, 0)).unwrap();
    assert_eq!(builder.table_name(), "poptrie");
}

#[test]
fn a_full_one_goes_over_where_the_other_has_room() {
    let (mut builder, mut blob) = Auto4Builder::build(Rib::new(), limits(9, 2, 3)).unwrap();
    let route = |n: u32| Prefix::masked(n << 8, 32);
    let mut insert = |n| {
        let mut patches = Vec::new();
        let done = builder.insert(route(n), 1 + n, &mut patches);
        blob.apply(&patches);
        (done, builder.table_name(), builder.rib().len())
    };
    assert_eq!(insert(0), (Ok(None), "poptrie", 1)); // a group and a page of records
    assert_eq!(insert(1), (Ok(None), "dir24-8", 2));
    assert_eq!(insert(2), (Ok(None), "dir24-8", 3));
    let full = TableError::Full { what: "extension groups", used: 3, limit: 3 };
    assert_eq!(insert(3), (Err(full.clone()), "dir24-8", 3));
    assert_eq!(read(&blob, &[0, 0x100, 0x200, 0x300]), [1, 2, 3, NO_ROUTE]);
    let all = |count: u32| (0..count).map(|n| (route(n), 1)).collect::<Rib<u32>>();
    assert_eq!(Auto4Builder::build(all(3), limits(9, 2, 3)).unwrap().0.table_name(), "dir24-8");
    assert_eq!(
        Auto4Builder::build(all(4), limits(9, 2, 3)).err(),
        Some(TableError::Full { what: "extension groups", used: 4, limit: 3 })
    );
    // Records alone beyond their limit stay where they are if the other has no room for the groups.
    let (builder, _) = Auto4Builder::build(all(5), limits(0, 100, 3)).unwrap();
    assert_eq!(builder.table_name(), "poptrie");
}

/// As many lone hosts as a large access network has: 100,000 in as many /24s, by default limits.
#[test]
fn scattered_hosts_fit() {
    let hosts = (0..100_000_u32).map(|i| (i.wrapping_mul(0x9e37_79b1), 1 + i % 16));
    let rib: Rib<u32> = hosts.clone().map(|(addr, hop)| (Prefix::masked(addr, 32), hop)).collect();
    let (builder, blob) = Auto4Builder::build(rib, Limits::default()).unwrap();
    assert_eq!((builder.table_name(), builder.rib().len()), ("poptrie", 100_000));
    let (addrs, hops): (Vec<u32>, Vec<NextHopId>) = hosts.unzip();
    assert_eq!(read(&blob, &addrs), hops);
}
