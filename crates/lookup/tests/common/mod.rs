//! What tests of tables share: generators, the runner of properties, the shared data.

#![allow(dead_code, reason = "each test file uses its part")]

use lookup::{Address, NextHopId, Prefix};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

/// Runs a property over fresh random inputs; a failing one is shrunk, and its seed kept beside the caller's file. Where
/// `PROPTEST_CASES` is set there are no more than that.
#[track_caller]
pub(crate) fn property<S: Strategy>(cases: u32, inputs: S, property: impl Fn(S::Value)) {
    let most = std::env::var("PROPTEST_CASES").ok().and_then(|most| most.parse().ok());
    let cases = most.map_or(cases, |most: u32| most.min(cases));
    let source_file = Some(std::panic::Location::caller().file());
    let config = ProptestConfig { source_file, ..ProptestConfig::with_cases(cases) };
    let result = TestRunner::new(config).run(&inputs, |input| {
        property(input);
        Ok(())
    });
    result.unwrap_or_else(|failure| panic!("{failure}"));
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

/// IPv6 prefixes in one small part of the address space, so that buckets burst and nodes grow.
pub(crate) fn crowded6() -> impl Strategy<Value = Prefix<u128>> + Clone {
    let addr = (0..2_u128, 0..8_u128, 0..64_u128, any::<u16>()).prop_map(|(a, b, c, d)| {
        0x2001 << 112 | a << 108 | b << 92 | c << 76 | u128::from(d) << 54
    });
    (addr, 17..=90_u8).prop_map(|(addr, len)| Prefix::masked(addr, len)).boxed()
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
