//! The forwarding tables as regions of words, for a copy of them on a device.
//!
//! A device has no use for names, MAC addresses or the maps of the control side. What its kernels read
//! is six regions without pointers:
//!
//! | region | words of 4 bytes |
//! | --- | --- |
//! | [`V4`] | the blob of [`Poptrie`](crate::poptrie::Poptrie) or [`Dir24_8`](crate::dir24_8::Dir24_8) |
//! | [`V6`] | the blob of [`Mtrie6`](crate::mtrie6::Mtrie6) or [`Bspl`](crate::bspl::Bspl) |
//! | [`NEXT_HOPS`] | two a next hop: kind and count, first |
//! | [`GROUP_MEMBERS`] | one a member: the number of an adjacency |
//! | [`ADJACENCIES`] | one an adjacency: family (upper half), interface |
//! | [`INTERFACES`] | one an interface: its reverse-path mode; off where there is none |
//!
//! A change of the tables ([`FibPatch`]) is a list of changes of regions, applied to each copy on the
//! device in the same order as to the copies on the host. A write beyond a region's end lengthens it; words
//! between are zero.

use std::borrow::Cow;

use super::records::{Adjacency, Interface, NextHop};
use super::tables::{Fib, FibPatch};
use crate::blob::Patch;

/// IPv4 routes.
pub const V4: usize = 0;
/// IPv6 routes.
pub const V6: usize = 1;
/// Records of next hops.
pub const NEXT_HOPS: usize = 2;
/// Members of equal-cost groups.
pub const GROUP_MEMBERS: usize = 3;
/// What a lookup needs of an adjacency.
pub const ADJACENCIES: usize = 4;
/// What a lookup needs of an interface.
pub const INTERFACES: usize = 5;
/// Number of regions.
pub const REGIONS: usize = 6;

fn next_hop(record: &NextHop) -> [u32; 2] {
    [record.kind as u32 | u32::from(record.count) << 16, record.first]
}

fn adjacency(record: &Adjacency) -> u32 {
    u32::from(record.family) << 16 | u32::from(record.interface)
}

fn interface(record: Option<&Interface>) -> u32 {
    record.map_or(0, |record| record.reverse_path as u32)
}

impl Fib {
    /// All regions, in order.
    pub fn regions(&self) -> [Cow<'_, [u32]>; REGIONS] {
        [
            Cow::Borrowed(self.v4.words()),
            Cow::Borrowed(self.v6.words()),
            self.next_hops.iter().flat_map(next_hop).collect(),
            Cow::Borrowed(&self.group_members),
            self.adjacencies.iter().map(adjacency).collect(),
            self.interfaces.iter().map(|record| interface(record.as_ref())).collect(),
        ]
    }
}

impl FibPatch {
    /// Hands each change of a region to `change`, in order.
    pub fn regions(&self, change: &mut dyn FnMut(usize, Cow<'_, Patch>)) {
        let mut write = |region, offset_words, words: Vec<u32>| {
            change(region, Cow::Owned(Patch::Write { offset_words, words }));
        };
        match self {
            FibPatch::V4(patches) => {
                patches.iter().for_each(|patch| change(V4, Cow::Borrowed(patch)));
            }
            FibPatch::V6(patches) => {
                patches.iter().for_each(|patch| change(V6, Cow::Borrowed(patch)));
            }
            FibPatch::NextHop(id, record) => {
                write(NEXT_HOPS, 2 * *id as usize, next_hop(record).to_vec());
            }
            FibPatch::GroupMembers { first, members } => {
                write(GROUP_MEMBERS, *first as usize, members.clone());
            }
            FibPatch::Adjacency(index, record) => {
                write(ADJACENCIES, *index as usize, vec![adjacency(record)]);
            }
            FibPatch::Interface(index, record) => {
                write(INTERFACES, usize::from(*index), vec![interface(record.as_ref())]);
            }
            // Kernels read neither: both belong to the post-shade.
            FibPatch::Neighbour(..) | FibPatch::Options(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dir24_8::Limits;
    use crate::fib::{FibBuilder, Options, Path, RouteTables, RouteTarget, V4Table};
    use crate::versions::Patchable;
    use crate::{Blob, Prefix};

    /// Applies a change to regions the way a device does.
    fn apply(regions: &mut [Vec<u32>], region: usize, patch: &Patch) {
        let words = &mut regions[region];
        match patch {
            Patch::Write { offset_words, words: new } => {
                let end = offset_words + new.len();
                if words.len() < end {
                    words.resize(end, 0);
                }
                words[*offset_words..end].copy_from_slice(new);
            }
            Patch::Fill { offset_words, count, value } => {
                words[*offset_words..][..*count].fill(*value);
            }
            Patch::Writes { .. } => {
                patch.writes().for_each(|(at, new)| words[at..][..new.len()].copy_from_slice(new));
            }
            Patch::Grow { len_words } => {
                let len = len_words.next_multiple_of(16).max(words.len());
                words.resize(len, 0);
            }
            Patch::Replace(new) => {
                *words = Blob::zeroed(new.len(), 0).unwrap().words().to_vec();
                words[..new.len()].copy_from_slice(new);
            }
        }
    }

    /// A copy that follows the changes is, region by region, what the tables say of themselves.
    #[test]
    fn a_copy_that_follows_is_the_tables() {
        follow(Limits::default().into());
        // The IPv4 image is replaced by one of another kind on the way.
        let poptrie = crate::poptrie::Limits { pages: 20 };
        let v4 = V4Table::Auto(crate::auto4::Limits { poptrie, ..Default::default() });
        let fib = follow(RouteTables { v4, ..RouteTables::default() });
        assert!(crate::dir24_8::Dir24_8::new(&fib.v4).is_some());
    }

    fn follow(tables: RouteTables) -> Fib {
        let mut builder = FibBuilder::new(Options::default(), tables);
        for port in 0..3u16 {
            let name = format!("p{port}");
            builder.set_interface(port, Some(Interface { name, ..Interface::default() }));
        }
        let mut fib = builder.freeze().unwrap();
        let mut copy: Vec<Vec<u32>> = fib.regions().iter().map(|r| r.to_vec()).collect();
        let mut seed = 7u64;
        let mut random = move |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % n
        };
        for round in 0..200u32 {
            let path = |interface: u64, last: u64| Path {
                interface: interface as u16,
                gateway: Some(std::net::IpAddr::from([10, 0, interface as u8, last as u8])),
                weight: 1,
            };
            let paths = (0..=random(3)).map(|i| path(i % 3, 1 + random(9))).collect();
            let hop = builder.create_hop::<u32>(&RouteTarget::Paths(paths)).unwrap();
            let address = random(1 << 32) as u32;
            let prefix = Prefix::masked(address, 8 + random(25) as u8);
            builder.insert(prefix, hop).unwrap();
            let hop6 = builder.create_hop::<u128>(&RouteTarget::Blackhole).unwrap();
            let bits = u128::from(random(1 << 31)) << 96;
            builder.insert(Prefix::masked(bits, 16 + random(40) as u8), hop6).unwrap();
            if round % 50 == 0 {
                let reverse_path = crate::fib::ReversePath::Strict;
                let record = Interface { reverse_path, ..Interface::default() };
                builder.set_interface(round as u16 / 10, Some(record));
            }
            for patch in builder.take_patches() {
                fib.apply(&patch);
                patch.regions(&mut |region, change| apply(&mut copy, region, &change));
            }
        }
        for (region, (own, copied)) in fib.regions().iter().zip(&copy).enumerate() {
            assert_eq!(own.len(), copied.len(), "length of region {region}");
            assert!(**own == **copied, "region {region}");
        }
        fib
    }
}
