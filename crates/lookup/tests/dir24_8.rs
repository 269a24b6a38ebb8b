//! DIR-24-8 against a scan, the trie, and a table built afresh.

mod common;

use common::{Change, around4, ask, changes, edges, prefix4, scan};
use lookup::dir24_8::{Dir24_8, Dir24_8Builder, Limits};
use lookup::rib::Rib;
use lookup::trie::Trie;
use lookup::{Blob, Lpm, Patch, Prefix, TableError};
use proptest::prelude::*;

/// Both forms of the batch and the single lookup.
fn ask_all(blob: &Blob, addrs: &[u32]) -> Vec<u32> {
    let view = Dir24_8::new(blob).unwrap();
    let batch = ask(&view, addrs);
    let mut scalar = vec![0; addrs.len()];
    view.lookup_scalar(addrs, &mut scalar);
    assert_eq!(scalar, batch);
    for (addr, answer) in addrs.iter().zip(&batch) {
        assert_eq!(view.lookup_one(*addr), *answer);
    }
    batch
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn answers_as_a_scan(
        routes in prop::collection::btree_map(prefix4(), 1..9_u32, 0..60),
        more in prop::collection::vec(any::<u32>(), 0..50),
    ) {
        let routes: Vec<_> = routes.into_iter().collect();
        let rib: Rib<u32> = routes.iter().copied().collect();
        let trie = Trie::build(&rib);
        let (_, blob) = Dir24_8Builder::build(rib, Limits::default()).unwrap();
        let mut addrs = edges(routes.iter().map(|r| r.0), around4);
        addrs.extend(more);
        let answers = ask_all(&blob, &addrs);
        for (addr, answer) in addrs.iter().zip(&answers) {
            prop_assert_eq!(*answer, scan(&routes, *addr));
        }
        prop_assert_eq!(ask(&trie, &addrs), answers);
    }

    /// Each change's patches, applied to a copy, give what a fresh build gives.
    #[test]
    fn changes_are_as_a_fresh_build(changes in changes(prefix4(), 60)) {
        let mut trie = Trie::new();
        let (mut builder, mut blob) =
            Dir24_8Builder::build(Rib::new(), Limits::default()).unwrap();
        let mut routes: Vec<(Prefix<u32>, u32)> = Vec::new();
        let mut addrs = vec![0, u32::MAX];
        for change in changes {
            let mut patches = Vec::new();
            match change {
                Change::Insert(prefix, next_hop) => {
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
            let answers = ask_all(&blob, &addrs);
            for (addr, answer) in addrs.iter().zip(&answers) {
                prop_assert_eq!(*answer, scan(&routes, *addr), "{}", addr.to_be_bytes().map(|b| b.to_string()).join("."));
            }
            prop_assert_eq!(ask(&trie, &addrs), answers);
        }
        prop_assert_eq!(builder.rib().len(), routes.len());
        let long: std::collections::BTreeSet<u32> =
            routes.iter().filter(|r| r.0.len() > 24).map(|r| r.0.addr() >> 8).collect();
        prop_assert_eq!(builder.groups_used() as usize, long.len());
    }
}

#[test]
fn no_cell_is_written_twice_by_one_change() {
    let mut random = common::Random(1);
    let rib: Rib<u32> = (0..3_000)
        .map(|_| {
            let len = 18 + random.below(15) as u8;
            (Prefix::masked(0x0a00_0000 | random.next() as u32 >> 8, len), 1)
        })
        .collect();
    let (mut builder, blob) = Dir24_8Builder::build(rib, Limits::default()).unwrap();
    let mut written = vec![0_u8; blob.len_words()];
    let mut patches = Vec::new();
    builder.insert("10.0.0.0/8".parse().unwrap(), 7, &mut patches).unwrap();
    for patch in &patches {
        let Patch::Fill { offset_words, count, .. } = patch else { panic!("{patch:?}") };
        for cell in &mut written[*offset_words..][..*count] {
            *cell += 1;
        }
    }
    assert_eq!(written.iter().max(), Some(&1));
}

#[test]
fn a_full_table_says_so_and_keeps_what_it_holds() {
    let limits = Limits { groups: 2 };
    let (mut builder, mut blob) = Dir24_8Builder::build(Rib::new(), limits).unwrap();
    let mut patches = Vec::new();
    for third in 0..2 {
        let prefix = Prefix::masked(0x0a00_0000 | third << 8, 32);
        builder.insert(prefix, 1 + third, &mut patches).unwrap();
    }
    let third: Prefix<u32> = "10.0.2.0/32".parse().unwrap();
    let before = patches.len();
    let full = TableError::Full { what: "extension groups", used: 2, limit: 2 };
    assert_eq!(builder.insert(third, 3, &mut patches), Err(full.clone()));
    assert_eq!((builder.rib().get(third), patches.len()), (None, before));
    blob.apply(&patches);
    assert_eq!(ask_all(&blob, &[0x0a00_0000, 0x0a00_0100, 0x0a00_0200]), [1, 2, 0]);
    // A group that becomes empty is used again.
    let mut patches = Vec::new();
    builder.remove("10.0.0.0/32".parse().unwrap(), &mut patches).unwrap();
    builder.insert(third, 3, &mut patches).unwrap();
    blob.apply(&patches);
    assert_eq!(ask_all(&blob, &[0x0a00_0000, 0x0a00_0100, 0x0a00_0200]), [0, 2, 3]);
    assert_eq!(
        Dir24_8Builder::build(
            (0..3).map(|i| (Prefix::masked(i << 8, 32), 1)).collect(),
            Limits { groups: 2 }
        )
        .err(),
        Some(TableError::Full { what: "extension groups", used: 3, limit: 2 })
    );
}

#[test]
fn refuses_next_hops_that_are_none() {
    let (mut builder, _) = Dir24_8Builder::build(Rib::new(), Limits::default()).unwrap();
    for next_hop in [0, 1 << 31, u32::MAX] {
        let result = builder.insert(Prefix::default_route(), next_hop, &mut Vec::new());
        assert_eq!(result, Err(TableError::NextHop(next_hop)));
    }
    assert!(builder.rib().is_empty());
}

#[test]
fn is_no_view_of_another_table() {
    assert!(Dir24_8::new(&Blob::zeroed(1 << 25, 0).unwrap()).is_none());
    assert!(Dir24_8::new(&Blob::zeroed(16, 0).unwrap()).is_none());
}

#[test]
#[should_panic(expected = "left == right")]
fn slices_of_different_lengths_are_a_defect() {
    let (_, blob) = Dir24_8Builder::build(Rib::new(), Limits::default()).unwrap();
    Dir24_8::new(&blob).unwrap().lookup(&[1, 2], &mut [0]);
}

#[test]
fn more_than_24_bits_are_a_second_line() {
    let routes = ["10.0.0.0/8", "10.0.1.128/25"].map(|text| (text.parse().unwrap(), 1));
    let (_, blob) = Dir24_8Builder::build(routes.into_iter().collect(), Limits::default()).unwrap();
    let view = Dir24_8::new(&blob).unwrap();
    let lines =
        [0x0a00_0001, 0x0a00_0101, 0x0a00_0181, 0x0b00_0000].map(|key| view.lines_read(key));
    assert_eq!(lines, [1, 2, 2, 1]);
}
