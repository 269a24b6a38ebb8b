//! Generators and the plainest oracle: a scan over all prefixes.

#![allow(dead_code, reason = "each test file uses its part")]

use std::path::PathBuf;

use lookup::{Address, Lpm, NO_ROUTE, NextHopId, Prefix};
use proptest::prelude::*;

/// The longest covering prefix by a scan over all.
pub(crate) fn scan<A: Address>(routes: &[(Prefix<A>, NextHopId)], addr: A) -> NextHopId {
    let covering = routes.iter().filter(|(prefix, _)| prefix.contains(addr));
    covering.max_by_key(|(prefix, _)| prefix.len()).map_or(NO_ROUTE, |(_, next_hop)| *next_hop)
}

/// Asks a table for all addresses in one batch.
pub(crate) fn ask<A: Address>(table: &impl Lpm<A::Key>, addrs: &[A]) -> Vec<NextHopId> {
    let keys: Vec<A::Key> = addrs.iter().map(|a| a.to_key()).collect();
    let mut out = vec![0xdead_beef; keys.len()];
    table.lookup(&keys, &mut out);
    out
}

/// Where answers change: the ends of each prefix and their neighbours.
pub(crate) fn edges<A: Address>(
    prefixes: impl IntoIterator<Item = Prefix<A>>,
    step: impl Fn(A) -> [A; 2],
) -> Vec<A> {
    let mut addrs = Vec::new();
    for prefix in prefixes {
        for end in [prefix.addr(), prefix.last()] {
            addrs.push(end);
            addrs.extend(step(end));
        }
    }
    addrs
}

/// One below and one above.
pub(crate) fn around4(addr: u32) -> [u32; 2] {
    [addr.wrapping_sub(1), addr.wrapping_add(1)]
}

/// One below and one above.
pub(crate) fn around6(addr: u128) -> [u128; 2] {
    [addr.wrapping_sub(1), addr.wrapping_add(1)]
}

/// IPv4 prefixes that nest and crowd: few distinct high bits, all lengths.
pub(crate) fn prefix4() -> impl Strategy<Value = Prefix<u32>> + Clone {
    let crowded = (0..4_u32, 0..4_u32, 0..4_u32, any::<u8>())
        .prop_map(|(a, b, c, d)| a << 30 | b << 22 | c << 8 | u32::from(d));
    let addr = prop_oneof![3 => crowded, 1 => any::<u32>()];
    let len = prop_oneof![0..=32_u8, 22..=32_u8];
    (addr, len).prop_map(|(addr, len)| Prefix::masked(addr, len)).boxed()
}

/// IPv6 prefixes that nest and crowd.
pub(crate) fn prefix6() -> impl Strategy<Value = Prefix<u128>> + Clone {
    let crowded =
        (0..3_u128, 0..3_u128, 0..3_u128, 0..3_u128, any::<u8>()).prop_map(|(a, b, c, d, e)| {
            a << 126 | 0x2000 << 112 | b << 108 | c << 94 | d << 62 | u128::from(e) << 40 | b
        });
    let addr = prop_oneof![3 => crowded, 1 => any::<u128>()];
    let len = prop_oneof![
        2 => 0..=128_u8,
        2 => prop::sample::select(vec![16_u8, 20, 29, 32, 36, 40, 44, 48, 63, 64, 65, 127, 128]),
    ];
    (addr, len).prop_map(|(addr, len)| Prefix::masked(addr, len)).boxed()
}

/// One change of a table; of `Remove`, the index is into what was inserted so far.
#[derive(Debug, Clone)]
pub(crate) enum Change<A: Address> {
    Insert(Prefix<A>, NextHopId),
    Remove(prop::sample::Index),
    RemoveExactly(Prefix<A>),
}

/// Changes, about as many removals as insertions.
pub(crate) fn changes<A: Address>(
    prefix: impl Strategy<Value = Prefix<A>> + Clone + 'static,
    count: usize,
) -> impl Strategy<Value = Vec<Change<A>>> {
    let next_hop = prop_oneof![1..6_u32, Just(lookup::NEXT_HOP_MAX)];
    let change = prop_oneof![
        5 => (prefix.clone(), next_hop).prop_map(|(p, n)| Change::Insert(p, n)),
        4 => any::<prop::sample::Index>().prop_map(Change::Remove),
        1 => prefix.prop_map(Change::RemoveExactly),
    ];
    prop::collection::vec(change, 0..count)
}

/// A file of the shared data, or `None` with a line that says so.
pub(crate) fn shared(path: &str) -> Option<PathBuf> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data").join(path);
    if !path.exists() {
        println!("skipped: ../shared/data is absent ({})", path.display());
        return None;
    }
    Some(path)
}

/// A small generator of reproducible numbers (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub(crate) fn next128(&mut self) -> u128 {
        u128::from(self.next()) << 64 | u128::from(self.next())
    }
}
