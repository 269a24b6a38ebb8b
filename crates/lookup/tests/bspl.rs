//! Binary search on prefix lengths against a scan, the trie, and a table built afresh.

mod common;

use common::{Change, Random, around6, ask, changes, edges, prefix6, scan};
use lookup::bspl::{Bspl, BsplBuilder};
use lookup::rib::Rib;
use lookup::trie::Trie;
use lookup::{Address, Blob, Patch, Prefix, TableError};
use proptest::prelude::*;

fn ask_table(blob: &Blob, addrs: &[u128]) -> Vec<u32> {
    let view = Bspl::new(blob).unwrap();
    let batch = ask(&view, addrs);
    let keys: Vec<_> = addrs.iter().map(|addr| addr.to_key()).collect();
    let mut scalar = vec![0; keys.len()];
    view.lookup_scalar(&keys, &mut scalar);
    assert_eq!(scalar, batch);
    for (addr, answer) in addrs.iter().zip(&batch) {
        assert_eq!(view.lookup_one(addr.to_key()), *answer);
    }
    batch
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn answers_as_a_scan(
        routes in prop::collection::btree_map(prefix6(), 1..9_u32, 0..80),
        more in prop::collection::vec(any::<u128>(), 0..50),
    ) {
        let routes: Vec<_> = routes.into_iter().collect();
        let rib: Rib<u128> = routes.iter().copied().collect();
        let trie = Trie::build(&rib);
        let (_, blob) = BsplBuilder::build(rib).unwrap();
        let mut addrs = edges(routes.iter().map(|r| r.0), around6);
        addrs.extend(more);
        let answers = ask_table(&blob, &addrs);
        for (addr, answer) in addrs.iter().zip(&answers) {
            prop_assert_eq!(*answer, scan(&routes, *addr), "{:x}", addr);
        }
        prop_assert_eq!(ask(&trie, &addrs), answers);
    }

    /// Each change's patches, applied to a copy, give what a fresh build gives; entries that nobody
    /// needs are gone.
    #[test]
    fn changes_are_as_a_fresh_build(
        first in prop::collection::btree_map(prefix6(), 1..9_u32, 0..60),
        changes in changes(prefix6(), 60),
    ) {
        let mut routes: Vec<_> = first.into_iter().collect();
        let rib: Rib<u128> = routes.iter().copied().collect();
        let mut trie = Trie::build(&rib);
        let (mut builder, mut blob) = BsplBuilder::build(rib).unwrap();
        let mut addrs = vec![0, u128::MAX];
        addrs.extend(edges(routes.iter().map(|r| r.0), around6));
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
            let answers = ask_table(&blob, &addrs);
            for (addr, answer) in addrs.iter().zip(&answers) {
                prop_assert_eq!(*answer, scan(&routes, *addr), "{:x}", addr);
            }
            prop_assert_eq!(ask(&trie, &addrs), answers);
        }
        for (prefix, _) in routes {
            builder.remove(prefix, &mut Vec::new());
        }
        prop_assert_eq!(builder.entries(), 0);
    }
}

/// All lengths, one after the other: the tree was made for none of them, so ropes overflow and the
/// table grows.
#[test]
fn new_lengths_and_growth() {
    let mut random = Random(7);
    let (mut builder, mut blob) = BsplBuilder::build(Rib::new()).unwrap();
    let mut trie = Trie::new();
    let mut routes: Vec<(Prefix<u128>, u32)> = Vec::new();
    let base = 0x2001_0db8_u128 << 96;
    let mut replaced = 0;
    for round in 0..4000_u32 {
        let len =
            if round < 400 { 17 + (round * 37 % 112) as u8 } else { 17 + random.below(112) as u8 };
        // A third below what is there, so that ropes grow.
        let addr = match random.below(3) {
            0 => base | random.next128() >> 36,
            1 => base,
            _ if routes.is_empty() => base,
            _ => routes[random.below(routes.len())].0.addr() | random.next128() >> 64,
        };
        let prefix = Prefix::masked(addr, len);
        let mut patches = Vec::new();
        builder.insert(prefix, round + 1, &mut patches).unwrap();
        trie.insert(prefix, round + 1);
        routes.push((prefix, round + 1));
        replaced += patches.iter().filter(|p| matches!(p, Patch::Replace(_))).count();
        blob.apply(&patches);
        if round % 100 == 0 || round < 150 {
            let addrs = edges(routes.iter().map(|r| r.0), around6);
            assert_eq!(ask_table(&blob, &addrs), ask(&trie, &addrs), "round {round}");
        }
    }
    assert!(replaced > 2, "{replaced}");
    // And away again, in another order.
    while !routes.is_empty() {
        let (prefix, _) = routes.swap_remove(random.below(routes.len()));
        let mut patches = Vec::new();
        builder.remove(prefix, &mut patches);
        trie.remove(prefix);
        blob.apply(&patches);
        if routes.len().is_multiple_of(200) {
            let addrs = edges(routes.iter().map(|r| r.0).chain([prefix]), around6);
            assert_eq!(ask_table(&blob, &addrs), ask(&trie, &addrs), "{} left", routes.len());
        }
    }
    assert_eq!((builder.entries(), builder.rib().len()), (0, 0));
}

#[test]
fn refuses_next_hops_that_are_none() {
    let (mut builder, _) = BsplBuilder::build(Rib::new()).unwrap();
    for next_hop in [0, 1 << 31, u32::MAX] {
        let result = builder.insert(Prefix::default_route(), next_hop, &mut Vec::new());
        assert_eq!(result, Err(TableError::NextHop(next_hop)));
    }
    assert!(builder.rib().is_empty());
}

#[test]
fn is_no_view_of_another_table() {
    for words in [16, 1 << 10, 1 << 20] {
        assert!(Bspl::new(&Blob::zeroed(words, 0).unwrap()).is_none());
    }
}
