//! The table that goes over from Poptrie to DIR-24-8: when it does so.

use lookup::auto4::{Auto4Builder, Limits};
use lookup::dir24_8::Dir24_8;
use lookup::poptrie::Poptrie;
use lookup::rib::Rib;
use lookup::{Blob, NO_ROUTE, NextHopId, Patch, Prefix, TableError, dir24_8, poptrie};
use proptest::prelude::*;

use crate::suite::{Bed, Full, How, Table, Visit, ask, builder};

fn limits(record_pages: u32, pages: u32, groups: u32) -> Limits {
    Limits { record_pages, poptrie: poptrie::Limits { pages }, dir24_8: dir24_8::Limits { groups } }
}

/// As a reader does: the image itself says what it is.
fn read(blob: &Blob, addrs: &[u32]) -> Vec<NextHopId> {
    ask::<Auto4Builder>(blob, addrs, How::Once)
}

fn host(number: u32) -> Prefix<u32> {
    Prefix::masked(number << 8, 32)
}

impl Table for Auto4Builder {
    builder!(u32);
    type Limits = Limits;
    const CASES: u32 = 12;
    const ROUTES: usize = 60;
    const CHANGES: usize = 60;

    /// Room for few records, so that it goes over while a region fills.
    fn ample() -> Limits {
        Limits { record_pages: 4, ..Limits::default() }
    }
    /// Whichever limit is met first.
    fn tight() -> BoxedStrategy<Limits> {
        let of = |(record_pages, pages, groups)| limits(record_pages, pages, groups);
        (0..4_u32, 0..8_u32, 0..6_u32).prop_map(of).boxed()
    }
    fn full() -> Option<Full<Self>> {
        let refusal = |used| TableError::Full { what: "extension groups", used, limit: 3 };
        Some(Full {
            limits: limits(9, 2, 3),
            routes: vec![host(0), host(1), host(2)],
            more: host(3),
            refusal: refusal(3),
            refusal_of_build: refusal(4),
        })
    }
    fn build(rib: Rib<u32>, limits: Limits) -> Result<(Self, Blob), TableError> {
        Auto4Builder::build(rib, limits)
    }
    fn is_image(blob: &Blob) -> bool {
        Poptrie::new(blob).is_some() || Dir24_8::new(blob).is_some()
    }
    fn forms(blob: &Blob, visit: Visit<'_, u32>) {
        match (Poptrie::new(blob), Dir24_8::new(blob)) {
            (Some(_), None) => poptrie::PoptrieBuilder::forms(blob, visit),
            (None, Some(_)) => dir24_8::Dir24_8Builder::forms(blob, visit),
            _ => panic!("neither, or both"),
        }
    }
    /// Its tables answer for that.
    fn used(&self) -> usize {
        0
    }
    fn is_grown(&self) -> bool {
        self.kind() == "dir24-8"
    }
    fn kind(&self) -> &'static str {
        self.table_name()
    }
    fn check(&self, image: &Blob) {
        assert_eq!(Dir24_8::new(image).is_some(), self.table_name() == "dir24-8");
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
    let mut bed = Bed::<Auto4Builder>::new(Vec::new(), limits(9, 2, 3));
    let mut name_after = |n| {
        bed.insert(host(n), 1 + n).unwrap();
        bed.builder.table_name()
    };
    // A group and a page of records fit into Poptrie.
    assert_eq!([0, 1, 2].map(&mut name_after), ["poptrie", "dir24-8", "dir24-8"]);
    let name_of = |count, limits| {
        let all = (0..count).map(|n| (host(n), 1)).collect();
        Auto4Builder::build(all, limits).unwrap().0.table_name()
    };
    assert_eq!(name_of(3, limits(9, 2, 3)), "dir24-8");
    // Records alone beyond their limit stay where they are if the other has no room for the groups.
    assert_eq!(name_of(5, limits(0, 100, 3)), "poptrie");
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
