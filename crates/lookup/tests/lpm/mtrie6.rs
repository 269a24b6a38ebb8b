//! The multibit trie: its limit, its nodes, and images that no builder made.

use lookup::mtrie6::{Limits, Mtrie6, Mtrie6Builder};
use lookup::rib::Rib;
use lookup::{Address, Blob, Key6, Lpm, TableError};
use proptest::prelude::*;

use crate::common::Random;
use crate::suite::{Full, Table, Visit, builder, one_by_one};

impl Table for Mtrie6Builder {
    builder!(u128);
    type Limits = Limits;
    const CASES: u32 = 64;
    const ROUTES: usize = 120;
    const CHANGES: usize = 150;
    const INTERNET: &[(u32, usize)] = &[(u32::MAX, 250_000_000)];

    fn ample() -> Limits {
        Limits::default()
    }
    fn tight() -> BoxedStrategy<Limits> {
        (0..12_u32).prop_map(|lines| Limits { lines }).boxed()
    }
    fn full() -> Option<Full<Self>> {
        let refusal = TableError::Full { what: "lines of 64 bytes", used: 1, limit: 1 };
        Some(Full {
            limits: Limits { lines: 1 },
            routes: vec!["2001:db8::/32".parse().unwrap()],
            more: "3001:db8::/32".parse().unwrap(),
            refusal: refusal.clone(),
            refusal_of_build: refusal,
        })
    }
    fn build(rib: Rib<u128>, limits: Limits) -> Result<(Self, Blob), TableError> {
        Mtrie6Builder::build(rib, limits)
    }
    fn is_image(blob: &Blob) -> bool {
        Mtrie6::new(blob).is_some()
    }
    fn forms(blob: &Blob, visit: Visit<'_, Key6>) {
        let view = Mtrie6::new(blob).unwrap();
        visit("best", &|k, o| view.lookup(k, o));
        visit("one", &|k, o| one_by_one(k, o, |key| view.lookup_one(key)));
        visit("plain", &|k, o| view.lookup_plain(k, o));
        visit("switched 1", &|k, o| view.lookup_switched::<1>(k, o));
        visit("switched 32", &|k, o| view.lookup_switched::<32>(k, o));
        visit("machine 7", &|k, o| view.lookup_machine::<7>(k, o));
        visit("machine 32", &|k, o| view.lookup_machine::<32>(k, o));
        visit("group 3", &|k, o| view.lookup_grouped::<3>(k, o));
        visit("group 64", &|k, o| view.lookup_grouped::<64>(k, o));
    }
    fn used(&self) -> usize {
        self.used_bytes() + self.nodes()
    }
    /// Buckets have burst, and nodes were made anew with more bits.
    fn is_grown(&self) -> bool {
        self.nodes() > 50
    }
}

/// An image that no builder made: any answer, but nothing is read outside.
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
    let buckets: Vec<Key6> = keys
        .into_iter()
        .filter(|key| {
            let root = blob.words()[16 + (key[0] >> 46) as usize];
            root >= 0xc000_0000
        })
        .collect();
    assert!(buckets.len() > 300);
    let mut out = vec![0; buckets.len()];
    Mtrie6Builder::forms(&blob, &mut |_, form| form(&buckets, &mut out));
}
