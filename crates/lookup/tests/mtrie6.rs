//! The multibit trie against a scan and the trie: all forms, all batch sizes, changes. And the forms of
//! binary search on prefix lengths.

mod common;

use common::{Change, Random, around6, ask, changes, edges, prefix6, scan};
use lookup::bspl::{Bspl, BsplBuilder};
use lookup::mtrie6::{Limits, Mtrie6, Mtrie6Builder};
use lookup::rib::Rib;
use lookup::trie::Trie;
use lookup::{Address, Blob, Key6, Lpm, NextHopId, Prefix, TableError};
use proptest::prelude::*;

type Form<'a> = (&'a str, &'a dyn Fn(&[Key6], &mut [NextHopId]));

/// Every form, with the addresses in batches of many sizes.
fn ask_forms(forms: &[Form<'_>], addrs: &[u128], expected: &[NextHopId]) {
    let keys: Vec<Key6> = addrs.iter().map(|addr| addr.to_key()).collect();
    for (name, form) in forms {
        for size in [0, 1, 31, 32, 33, 1000] {
            let mut out = vec![0xdead_beef; keys.len()];
            if size == 0 {
                form(&[], &mut []);
                form(&keys, &mut out);
            } else {
                keys.chunks(size).zip(out.chunks_mut(size)).for_each(|(k, o)| form(k, o));
            }
            assert_eq!(out, expected, "{name}, {size} at a time");
        }
    }
}

fn ask_all(blob: &Blob, addrs: &[u128]) -> Vec<NextHopId> {
    let view = Mtrie6::new(blob).unwrap();
    let one: Vec<_> = addrs.iter().map(|addr| view.lookup_one(addr.to_key())).collect();
    let forms: [Form<'_>; 8] = [
        ("best", &|k, o| view.lookup(k, o)),
        ("plain", &|k, o| view.lookup_plain(k, o)),
        ("switched 1", &|k, o| view.lookup_switched::<1>(k, o)),
        ("switched 32", &|k, o| view.lookup_switched::<32>(k, o)),
        ("machine 7", &|k, o| view.lookup_machine::<7>(k, o)),
        ("machine 32", &|k, o| view.lookup_machine::<32>(k, o)),
        ("group 3", &|k, o| view.lookup_grouped::<3>(k, o)),
        ("group 64", &|k, o| view.lookup_grouped::<64>(k, o)),
    ];
    ask_forms(&forms, addrs, &one);
    one
}

/// Prefixes in one small part of the address space, so that buckets burst and nodes grow.
fn crowded6() -> impl Strategy<Value = Prefix<u128>> + Clone {
    let addr = (0..2_u128, 0..8_u128, 0..64_u128, any::<u16>()).prop_map(|(a, b, c, d)| {
        0x2001 << 112 | a << 108 | b << 92 | c << 76 | u128::from(d) << 54
    });
    (addr, 17..=90_u8).prop_map(|(addr, len)| Prefix::masked(addr, len)).boxed()
}

fn any6() -> impl Strategy<Value = Prefix<u128>> + Clone {
    prop_oneof![1 => prefix6(), 2 => crowded6()].boxed()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn answers_as_a_scan(
        routes in prop::collection::btree_map(any6(), 1..9_u32, 0..120),
        more in prop::collection::vec(any::<u128>(), 0..50),
    ) {
        let routes: Vec<_> = routes.into_iter().collect();
        let rib: Rib<u128> = routes.iter().copied().collect();
        let trie = Trie::build(&rib);
        let (_, blob) = Mtrie6Builder::build(rib.clone(), Limits::default()).unwrap();
        let mut addrs = edges(routes.iter().map(|r| r.0), around6);
        addrs.extend(more);
        let answers = ask_all(&blob, &addrs);
        for (addr, answer) in addrs.iter().zip(&answers) {
            prop_assert_eq!(*answer, scan(&routes, *addr));
        }
        prop_assert_eq!(&ask(&trie, &addrs), &answers);
        let (_, blob) = BsplBuilder::build(rib).unwrap();
        let bspl = Bspl::new(&blob).unwrap();
        let forms: [Form<'_>; 5] = [
            ("bspl plain", &|k, o| bspl.lookup_plain(k, o)),
            ("bspl switched 1", &|k, o| bspl.lookup_switched::<1>(k, o)),
            ("bspl switched 32", &|k, o| bspl.lookup_switched::<32>(k, o)),
            ("bspl machine 7", &|k, o| bspl.lookup_machine::<7>(k, o)),
            ("bspl machine 32", &|k, o| bspl.lookup_machine::<32>(k, o)),
        ];
        ask_forms(&forms, &addrs, &answers);
    }

    /// Each change's patches, applied to a copy, give what the routes say; when all are gone, all room is
    /// free again.
    #[test]
    fn changes_are_as_the_routes(changes in changes(any6(), 150)) {
        let mut trie = Trie::new();
        let (mut builder, mut blob) = Mtrie6Builder::build(Rib::new(), Limits::default()).unwrap();
        let empty = builder.used_bytes();
        let mut routes: Vec<(Prefix<u128>, u32)> = Vec::new();
        let mut addrs = vec![0, u128::MAX];
        for change in changes {
            let mut patches = Vec::new();
            match change {
                Change::Insert(prefix, next_hop) => {
                    let before = builder.insert(prefix, next_hop, &mut patches).unwrap();
                    prop_assert_eq!(before, trie.insert(prefix, next_hop));
                    routes.retain(|r| r.0 != prefix);
                    routes.push((prefix, next_hop));
                    addrs.extend(edges([prefix], around6));
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
            let view = Mtrie6::new(&blob).unwrap();
            prop_assert_eq!(ask(&view, &addrs), ask(&trie, &addrs));
        }
        prop_assert_eq!(ask_all(&blob, &addrs), ask(&trie, &addrs));
        prop_assert_eq!(builder.rib().len(), routes.len());
        let mut patches = Vec::new();
        for (prefix, _) in routes {
            builder.remove(prefix, &mut patches).unwrap();
        }
        blob.apply(&patches);
        prop_assert_eq!((builder.used_bytes(), builder.nodes()), (empty, 0));
        prop_assert!(ask_all(&blob, &addrs).iter().all(|answer| *answer == 0));
    }

    /// With little room, each change is made or refused as a whole, and a removal is never refused.
    #[test]
    fn a_full_table_keeps_what_it_holds(changes in changes(any6(), 150), lines in 0..12_u32) {
        let (mut builder, mut blob) = Mtrie6Builder::build(Rib::new(), Limits { lines }).unwrap();
        let mut trie = Trie::new();
        let mut addrs = vec![0, u128::MAX];
        for change in changes {
            let mut patches = Vec::new();
            let before: Vec<_> = builder.rib().iter().collect();
            match change {
                Change::Insert(prefix, next_hop) => {
                    addrs.extend(edges([prefix], around6));
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
            let view = Mtrie6::new(&blob).unwrap();
            prop_assert_eq!(ask(&view, &addrs), ask(&trie, &addrs));
        }
    }
}

/// A region that fills and empties: buckets burst, nodes are made anew with more bits and with fewer, and
/// become buckets again.
#[test]
fn a_region_fills_and_empties() {
    let mut random = Random(3);
    let (mut builder, mut blob) = Mtrie6Builder::build(Rib::new(), Limits::default()).unwrap();
    let mut trie = Trie::new();
    let mut routes = Vec::new();
    let mut most = 0;
    for round in 0..6000_u32 {
        let mut patches = Vec::new();
        if round < 3000 {
            let addr = 0x2a00_u128 << 112 | u128::from(random.next() as u32) << 64;
            let prefix = Prefix::masked(addr, 33 + random.below(32) as u8);
            assert_eq!(
                builder.insert(prefix, round + 1, &mut patches),
                Ok(trie.insert(prefix, round + 1))
            );
            routes.push(prefix);
        } else {
            let prefix = routes.swap_remove(random.below(routes.len()));
            assert_eq!(builder.remove(prefix, &mut patches), trie.remove(prefix));
        }
        blob.apply(&patches);
        most = most.max(builder.nodes());
        if round % 500 == 499 {
            let addrs = edges(routes.iter().copied(), around6);
            assert_eq!(ask_all(&blob, &addrs), ask(&trie, &addrs), "{round}");
        }
    }
    assert!(most > 50, "{most}");
    assert_eq!(builder.nodes(), 0);
}

#[test]
fn a_full_table_says_so() {
    let (mut builder, mut blob) = Mtrie6Builder::build(Rib::new(), Limits { lines: 1 }).unwrap();
    let mut patches = Vec::new();
    let first: Prefix<u128> = "2001:db8::/32".parse().unwrap();
    let second: Prefix<u128> = "3001:db8::/32".parse().unwrap();
    builder.insert(first, 1, &mut patches).unwrap();
    let full = TableError::Full { what: "lines of 64 bytes", used: 1, limit: 1 };
    let before = patches.len();
    assert_eq!(builder.insert(second, 2, &mut patches), Err(full.clone()));
    assert_eq!((builder.rib().get(second), patches.len()), (None, before));
    // Another next hop for a route that is there needs no room.
    assert_eq!(builder.insert(first, 3, &mut patches), Ok(Some(1)));
    builder.remove(first, &mut patches).unwrap();
    builder.insert(second, 2, &mut patches).unwrap();
    blob.apply(&patches);
    assert_eq!(ask_all(&blob, &[first.addr(), second.addr()]), [0, 2]);
    let routes = [(first, 1), (second, 2)].into_iter().collect();
    assert_eq!(Mtrie6Builder::build(routes, Limits { lines: 1 }).err(), Some(full));
}

#[test]
fn refuses_next_hops_that_are_none() {
    let (mut builder, _) = Mtrie6Builder::build(Rib::new(), Limits::default()).unwrap();
    for next_hop in [0, 1 << 31, u32::MAX] {
        let result = builder.insert(Prefix::default_route(), next_hop, &mut Vec::new());
        assert_eq!(result, Err(TableError::NextHop(next_hop)));
    }
    assert!(builder.rib().is_empty());
}

#[test]
fn is_no_view_of_another_table() {
    assert!(Mtrie6::new(&Blob::zeroed(1 << 20, 0).unwrap()).is_none());
    assert!(Mtrie6::new(&Blob::zeroed(16, 0).unwrap()).is_none());
}

/// A blob that no builder made: any answer, but nothing is read outside.
#[test]
fn references_out_of_range_are_brought_into_it() {
    let (_, mut blob) = Mtrie6Builder::build(Rib::new(), Limits::default()).unwrap();
    let mut random = Random(7);
    // Shallow nodes and buckets: deep nodes may lead round in circles, as no builder's do.
    let words = [0x8000_0000, 0xc000_0000, 0xe000_0000];
    let len = blob.len_words();
    for word in &mut blob.words_mut()[16..len] {
        *word = words[random.below(3)] | random.next() as u32 & 0x1fff_ffff;
    }
    let keys: Vec<Key6> = (0..1000).map(|_| random.next128().to_key()).collect();
    let table = Mtrie6::new(&blob).unwrap();
    let buckets: Vec<Key6> = keys
        .into_iter()
        .filter(|key| {
            let root = blob.words()[16 + (key[0] >> 46) as usize];
            root >= 0xc000_0000
        })
        .collect();
    assert!(buckets.len() > 300);
    let mut out = vec![0; buckets.len()];
    table.lookup(&buckets, &mut out);
    table.lookup_plain(&buckets, &mut out);
}
