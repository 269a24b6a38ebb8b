//! DIR-24-8: its limit, what a change writes, and the lines that a lookup reads.

use std::collections::BTreeSet;

use lookup::dir24_8::{Dir24_8, Dir24_8Builder, Limits};
use lookup::rib::Rib;
use lookup::{Blob, Lpm, Patch, Prefix, TableError};
use proptest::prelude::*;

use crate::common::Random;
use crate::suite::{Full, Table, Visit, builder, one_by_one};

impl Table for Dir24_8Builder {
    builder!(u32);
    type Limits = Limits;
    const CASES: u32 = 48;
    const ROUTES: usize = 60;
    const CHANGES: usize = 60;
    const STRIDE: usize = 61;

    fn ample() -> Limits {
        Limits::default()
    }
    fn tight() -> BoxedStrategy<Limits> {
        (0..6_u32).prop_map(|groups| Limits { groups }).boxed()
    }
    fn full() -> Option<Full<Self>> {
        let host = |third: u32| Prefix::masked(10 << 24 | third << 8, 32);
        let refusal = |used| TableError::Full { what: "extension groups", used, limit: 2 };
        Some(Full {
            limits: Limits { groups: 2 },
            routes: vec![host(0), host(1)],
            more: host(2),
            refusal: refusal(2),
            refusal_of_build: refusal(3),
        })
    }
    fn build(rib: Rib<u32>, limits: Limits) -> Result<(Self, Blob), TableError> {
        Dir24_8Builder::build(rib, limits)
    }
    fn is_image(blob: &Blob) -> bool {
        Dir24_8::new(blob).is_some()
    }
    fn forms(blob: &Blob, visit: Visit<'_, u32>) {
        let view = Dir24_8::new(blob).unwrap();
        visit("best", &|k, o| view.lookup(k, o));
        visit("one", &|k, o| one_by_one(k, o, |key| view.lookup_one(key)));
        visit("scalar", &|k, o| view.lookup_scalar(k, o));
    }
    fn used(&self) -> usize {
        self.groups_used() as usize
    }
    fn check(&self, _image: &Blob) {
        let long = self.rib().iter().filter(|route| route.0.len() > 24);
        let groups: BTreeSet<u32> = long.map(|route| route.0.addr() >> 8).collect();
        assert_eq!(self.used(), groups.len(), "extension groups");
    }
}

#[test]
fn no_cell_is_written_twice_by_one_change() {
    let mut random = Random(1);
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
fn more_than_24_bits_are_a_second_line() {
    let routes = ["10.0.0.0/8", "10.0.1.128/25"].map(|text| (text.parse().unwrap(), 1));
    let (_, blob) = Dir24_8Builder::build(routes.into_iter().collect(), Limits::default()).unwrap();
    let view = Dir24_8::new(&blob).unwrap();
    let lines =
        [0x0a00_0001, 0x0a00_0101, 0x0a00_0181, 0x0b00_0000].map(|key| view.lines_read(key));
    assert_eq!(lines, [1, 2, 2, 1]);
}
