//! Binary search on prefix lengths: the lengths that its tree was not made for, and growth.

use lookup::bspl::{Bspl, BsplBuilder};
use lookup::rib::Rib;
use lookup::{Blob, Key6, Lpm, Prefix, TableError};
use proptest::prelude::*;

use crate::common::{Random, crowded6, prefix6};
use crate::suite::{Bed, How, Table, Visit, builder, one_by_one};

impl Table for BsplBuilder {
    builder!(u128);
    type Limits = ();
    const CASES: u32 = 256;
    const ROUTES: usize = 80;
    const CHANGES: usize = 60;

    fn ample() {}
    fn prefixes() -> BoxedStrategy<Prefix<u128>> {
        prop_oneof![4 => prefix6(), 1 => crowded6()].boxed()
    }
    fn build(rib: Rib<u128>, (): ()) -> Result<(Self, Blob), TableError> {
        BsplBuilder::build(rib)
    }
    fn is_image(blob: &Blob) -> bool {
        Bspl::new(blob).is_some()
    }
    fn forms(blob: &Blob, visit: Visit<'_, Key6>) {
        let view = Bspl::new(blob).unwrap();
        visit("best", &|k, o| view.lookup(k, o));
        visit("one", &|k, o| one_by_one(k, o, |key| view.lookup_one(key)));
        visit("scalar", &|k, o| view.lookup_scalar(k, o));
        visit("plain", &|k, o| view.lookup_plain(k, o));
        visit("switched 1", &|k, o| view.lookup_switched::<1>(k, o));
        visit("switched 3", &|k, o| view.lookup_switched::<3>(k, o));
        visit("switched 32", &|k, o| view.lookup_switched::<32>(k, o));
        visit("switched 64", &|k, o| view.lookup_switched::<64>(k, o));
        visit("machine 1", &|k, o| view.lookup_machine::<1>(k, o));
        visit("machine 7", &|k, o| view.lookup_machine::<7>(k, o));
        visit("machine 16", &|k, o| view.lookup_machine::<16>(k, o));
        visit("machine 32", &|k, o| view.lookup_machine::<32>(k, o));
        visit("machine 64", &|k, o| view.lookup_machine::<64>(k, o));
    }
    fn used(&self) -> usize {
        self.entries()
    }
}

/// All lengths, one after the other: the tree was made for none of them, so ropes overflow and the
/// table grows. And away again, in another order.
#[test]
fn new_lengths_and_growth() {
    let random = &mut Random(7);
    let mut bed = Bed::<BsplBuilder>::new(Vec::new(), ());
    let base = 0x2001_0db8_u128 << 96;
    for round in 0..4000_u32 {
        let len =
            if round < 400 { 17 + (round * 37 % 112) as u8 } else { 17 + random.below(112) as u8 };
        // A third below what is there, so that ropes grow.
        let addr = match random.below(3) {
            0 => base | random.next128() >> 36,
            1 => base,
            _ if bed.routes.is_empty() => base,
            _ => bed.routes[random.below(bed.routes.len())].0.addr() | random.next128() >> 64,
        };
        bed.insert(Prefix::masked(addr, len), round + 1).unwrap();
        if round % 100 == 0 || round < 150 {
            bed.check(How::ThreeForms);
        }
    }
    assert!(bed.replaced > 2, "{}", bed.replaced);
    bed.remove_all(random, 0);
}
