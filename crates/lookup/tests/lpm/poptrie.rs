//! Poptrie: its limit, answers of 16 and 32 bits, and images that no builder made.

use lookup::poptrie::{Limits, Poptrie, PoptrieBuilder};
use lookup::rib::Rib;
use lookup::{Blob, Lpm, Prefix, TableError};
use proptest::prelude::*;

use crate::common::Random;
use crate::suite::{Bed, Full, How, Table, Visit, builder, one_by_one};

impl Table for PoptrieBuilder {
    builder!(u32);
    type Limits = Limits;
    const CASES: u32 = 48;
    const ROUTES: usize = 60;
    const CHANGES: usize = 60;
    /// Answers of 32 bits, and of 16.
    const INTERNET: &[(u32, usize)] = &[(u32::MAX, 10_000_000), (200, 8_000_000)];

    fn ample() -> Limits {
        Limits::default()
    }
    fn tight() -> BoxedStrategy<Limits> {
        (0..6_u32).prop_map(|pages| Limits { pages }).boxed()
    }
    fn full() -> Option<Full<Self>> {
        let host = |third: u32| Prefix::masked(10 << 24 | third << 8, 32);
        let refusal = TableError::Full { what: "pages of 1 KB", used: 2, limit: 2 };
        Some(Full {
            limits: Limits { pages: 2 },
            routes: vec![host(0)],
            more: host(1),
            refusal: refusal.clone(),
            refusal_of_build: refusal,
        })
    }
    fn build(rib: Rib<u32>, limits: Limits) -> Result<(Self, Blob), TableError> {
        PoptrieBuilder::build(rib, limits)
    }
    fn is_image(blob: &Blob) -> bool {
        Poptrie::new(blob).is_some()
    }
    fn forms(blob: &Blob, visit: Visit<'_, u32>) {
        let view = Poptrie::new(blob).unwrap();
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
        self.used_bytes()
    }
}

#[test]
fn answers_become_wide_with_the_first_large_next_hop() {
    let mut bed = Bed::<PoptrieBuilder>::new(Vec::new(), Limits::default());
    for at in 0..600_u32 {
        let next_hop = if at < 400 { 1 + at % 7 } else { (1 << 15) - 2 + at % 5 };
        let prefix = Prefix::masked(10 << 24 | at << 8, 24 + at as u8 % 3);
        bed.insert(prefix, next_hop).unwrap();
        assert_eq!(bed.replaced, usize::from(at >= 402), "{at}");
    }
    bed.check(How::AllSizes);
}

/// An image that no builder made: any answer, but nothing is read outside.
#[test]
fn references_out_of_range_are_brought_into_it() {
    let (_, mut blob) = PoptrieBuilder::build(Rib::new(), Limits::default()).unwrap();
    let mut random = Random(7);
    for wide in [0, 1] {
        blob.words_mut()[2] = wide;
        blob.words_mut()[16..].iter_mut().for_each(|word| *word = random.next() as u32 | 1 << 31);
        let addrs: Vec<u32> = (0..1000).map(|_| random.next() as u32).collect();
        PoptrieBuilder::forms(&blob, &mut |_, form| form(&addrs, &mut [0; 1000]));
    }
}
