//! Poptrie against a scan, the trie, and DIR-24-8: all forms, all batch sizes, changes.

mod common;

use common::{Change, around4, ask, changes, edges, prefix4, scan};
use lookup::poptrie::{Limits, Poptrie, PoptrieBuilder};
use lookup::rib::Rib;
use lookup::trie::Trie;
use lookup::{Blob, Lpm, NextHopId, Prefix, TableError};
use proptest::prelude::*;

/// Every form, with the addresses in batches of many sizes, and the single lookup.
fn ask_all(blob: &Blob, addrs: &[u32]) -> Vec<NextHopId> {
    let view = Poptrie::new(blob).unwrap();
    let one: Vec<_> = addrs.iter().map(|addr| view.lookup_one(*addr)).collect();
    type Form<'a> = &'a dyn Fn(&[u32], &mut [NextHopId]);
    let forms: [(&str, Form<'_>); 8] = [
        ("best", &|k, o| view.lookup(k, o)),
        ("plain", &|k, o| view.lookup_plain(k, o)),
        ("switched 1", &|k, o| view.lookup_switched::<1>(k, o)),
        ("switched 32", &|k, o| view.lookup_switched::<32>(k, o)),
        ("machine 7", &|k, o| view.lookup_machine::<7>(k, o)),
        ("machine 32", &|k, o| view.lookup_machine::<32>(k, o)),
        ("group 3", &|k, o| view.lookup_grouped::<3>(k, o)),
        ("group 64", &|k, o| view.lookup_grouped::<64>(k, o)),
    ];
    for (name, form) in forms {
        for size in [0, 1, 31, 32, 33, 1000] {
            let mut out = vec![0xdead_beef; addrs.len()];
            if size == 0 {
                form(&[], &mut []);
                form(addrs, &mut out);
            } else {
                addrs.chunks(size).zip(out.chunks_mut(size)).for_each(|(k, o)| form(k, o));
            }
            assert_eq!(out, one, "{name}, {size} at a time");
        }
    }
    one
}

fn small_or_large() -> impl Strategy<Value = NextHopId> + Clone {
    prop_oneof![3 => 1..9_u32, 1 => Just((1 << 15) - 1)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// With answers of 16 bits, and, where one next hop is larger, of 32.
    #[test]
    fn answers_as_a_scan(
        routes in prop::collection::btree_map(prefix4(), small_or_large(), 0..60),
        large in any::<bool>(),
        more in prop::collection::vec(any::<u32>(), 0..50),
    ) {
        let mut routes: Vec<_> = routes.into_iter().collect();
        if let (true, Some(route)) = (large, routes.first_mut()) {
            route.1 = 1 << 15;
        }
        let rib: Rib<u32> = routes.iter().copied().collect();
        let trie = Trie::build(&rib);
        let (_, blob) = PoptrieBuilder::build(rib, Limits::default()).unwrap();
        let mut addrs = edges(routes.iter().map(|r| r.0), around4);
        addrs.extend(more);
        let answers = ask_all(&blob, &addrs);
        for (addr, answer) in addrs.iter().zip(&answers) {
            prop_assert_eq!(*answer, scan(&routes, *addr));
        }
        prop_assert_eq!(ask(&trie, &addrs), answers);
    }

    /// Each change's patches, applied to a copy, give what the routes say; when all are gone, all room is
    /// free again.
    #[test]
    fn changes_are_as_the_routes(changes in changes(prefix4(), 60), large in any::<bool>()) {
        let mut trie = Trie::new();
        let (mut builder, mut blob) = PoptrieBuilder::build(Rib::new(), Limits::default()).unwrap();
        let empty = builder.used_bytes();
        let mut routes: Vec<(Prefix<u32>, u32)> = Vec::new();
        let mut addrs = vec![0, u32::MAX];
        for change in changes {
            let mut patches = Vec::new();
            match change {
                Change::Insert(prefix, next_hop) => {
                    let next_hop = if large { next_hop } else { next_hop.min(9) };
                    let before = builder.insert(prefix, next_hop, &mut patches).unwrap();
                    prop_assert_eq!(before, trie.insert(prefix, next_hop));
                    routes.retain(|r| r.0 != prefix);
                    routes.push((prefix, next_hop));
                    addrs.extend(edges([prefix], around4));
                }
                Change::Remove(index) => {
                    if routes.is_empty() {
                        continue;
                    }
                    let (prefix, next_hop) = routes.swap_remove(index.index(routes.len()));
                    prop_assert_eq!(builder.remove(prefix, &mut patches), Some(next_hop));
                    trie.remove(prefix);
                }
                Change::RemoveExactly(prefix) => {
                    let before = builder.remove(prefix, &mut patches);
                    prop_assert_eq!(before, trie.remove(prefix));
                    routes.retain(|r| r.0 != prefix);
                }
            }
            blob.apply(&patches);
            let view = Poptrie::new(&blob).unwrap();
            prop_assert_eq!(ask(&view, &addrs), ask(&trie, &addrs));
        }
        prop_assert_eq!(ask_all(&blob, &addrs), ask(&trie, &addrs));
        prop_assert_eq!(builder.rib().len(), routes.len());
        let mut patches = Vec::new();
        for (prefix, _) in routes {
            builder.remove(prefix, &mut patches).unwrap();
        }
        blob.apply(&patches);
        prop_assert_eq!(builder.used_bytes(), empty);
        prop_assert!(ask_all(&blob, &addrs).iter().all(|answer| *answer == 0));
    }

    /// With little room, each change is made or refused as a whole, and a removal is never refused.
    #[test]
    fn a_full_table_keeps_what_it_holds(changes in changes(prefix4(), 80), pages in 0..6_u32) {
        let (mut builder, mut blob) = PoptrieBuilder::build(Rib::new(), Limits { pages }).unwrap();
        let mut trie = Trie::new();
        let mut addrs = vec![0, u32::MAX];
        for change in changes {
            let mut patches = Vec::new();
            let before: Vec<_> = builder.rib().iter().collect();
            match change {
                Change::Insert(prefix, next_hop) => {
                    addrs.extend(edges([prefix], around4));
                    match builder.insert(prefix, next_hop, &mut patches) {
                        Ok(_) => drop(trie.insert(prefix, next_hop)),
                        Err(error) => {
                            prop_assert!(matches!(error, TableError::Full { .. }), "{error}");
                            prop_assert!(builder.rib().iter().eq(before) && patches.is_empty());
                        }
                    }
                }
                Change::Remove(index) if !before.is_empty() => {
                    let prefix = before[index.index(before.len())].0;
                    prop_assert!(builder.remove(prefix, &mut patches).is_some());
                    trie.remove(prefix);
                }
                _ => continue,
            }
            blob.apply(&patches);
            let view = Poptrie::new(&blob).unwrap();
            prop_assert_eq!(ask(&view, &addrs), ask(&trie, &addrs));
        }
    }
}

#[test]
fn a_full_table_says_so() {
    let (mut builder, mut blob) = PoptrieBuilder::build(Rib::new(), Limits { pages: 2 }).unwrap();
    let mut patches = Vec::new();
    builder.insert("10.0.0.0/32".parse().unwrap(), 1, &mut patches).unwrap();
    let second: Prefix<u32> = "10.0.1.0/32".parse().unwrap();
    let full = TableError::Full { what: "pages of 1 KB", used: 2, limit: 2 };
    let before = patches.len();
    assert_eq!(builder.insert(second, 2, &mut patches), Err(full.clone()));
    assert_eq!((builder.rib().get(second), patches.len()), (None, before));
    builder.remove("10.0.0.0/32".parse().unwrap(), &mut patches).unwrap();
    builder.insert(second, 2, &mut patches).unwrap();
    blob.apply(&patches);
    assert_eq!(ask_all(&blob, &[0x0a00_0000, 0x0a00_0100]), [0, 2]);
    let routes = (0..3).map(|i| (Prefix::masked(i << 8, 32), 1)).collect();
    assert_eq!(PoptrieBuilder::build(routes, Limits { pages: 2 }).err(), Some(full));
}

#[test]
fn answers_become_wide_with_the_first_large_next_hop() {
    let (mut builder, mut blob) = PoptrieBuilder::build(Rib::new(), Limits::default()).unwrap();
    let addrs: Vec<u32> = (0..600).map(|i| 0x0a00_0000 | i << 8).collect();
    let mut trie = Trie::new();
    for (at, addr) in addrs.iter().enumerate() {
        let next_hop = if at < 400 { 1 + at as u32 % 7 } else { (1 << 15) - 2 + at as u32 % 5 };
        let mut patches = Vec::new();
        let prefix = Prefix::masked(*addr, 24 + at as u8 % 3);
        builder.insert(prefix, next_hop, &mut patches).unwrap();
        trie.insert(prefix, next_hop);
        let replaced = patches.iter().any(|patch| matches!(patch, lookup::Patch::Replace(_)));
        assert_eq!(replaced, at == 402, "{at}");
        blob.apply(&patches);
    }
    assert_eq!(ask_all(&blob, &addrs), ask(&trie, &addrs));
}

#[test]
fn refuses_next_hops_that_are_none() {
    let (mut builder, _) = PoptrieBuilder::build(Rib::new(), Limits::default()).unwrap();
    for next_hop in [0, 1 << 31, u32::MAX] {
        let result = builder.insert(Prefix::default_route(), next_hop, &mut Vec::new());
        assert_eq!(result, Err(TableError::NextHop(next_hop)));
    }
    assert!(builder.rib().is_empty());
}

#[test]
fn is_no_view_of_another_table() {
    assert!(Poptrie::new(&Blob::zeroed(1 << 20, 0).unwrap()).is_none());
    assert!(Poptrie::new(&Blob::zeroed(16, 0).unwrap()).is_none());
}

/// A blob that no builder made: any answer, but nothing is read outside.
#[test]
fn references_out_of_range_are_brought_into_it() {
    let (_, mut blob) = PoptrieBuilder::build(Rib::new(), Limits::default()).unwrap();
    let mut random = common::Random(7);
    for wide in [0, 1] {
        blob.words_mut()[2] = wide;
        blob.words_mut()[16..].iter_mut().for_each(|word| *word = random.next() as u32 | 1 << 31);
        let addrs: Vec<u32> = (0..1000).map(|_| random.next() as u32).collect();
        ask(&Poptrie::new(&blob).unwrap(), &addrs);
        Poptrie::new(&blob).unwrap().lookup_plain(&addrs, &mut vec![0; 1000]);
    }
}
