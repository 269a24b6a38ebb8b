//! The set of prefixes and their next hops, on the control side.
//!
//! A sorted map keyed by (address, length): 12 bytes an entry for IPv4. In that order a prefix
//! is right before everything below it, so its more-specifics are one range scan, and the
//! longest match of an address is found by a few predecessor searches, each of which shortens the
//! candidate length to the bits that predecessor and address share.
//!
//! Thread rule: one owner.

use std::collections::BTreeMap;
use std::collections::btree_map;

use crate::{Address, NextHopId, Prefix};

/// A mutable set of prefixes, each with one next hop.
#[derive(Debug, Clone, Default)]
pub struct Rib<A: Address> {
    map: BTreeMap<Prefix<A>, NextHopId>,
}

impl<A: Address> Rib<A> {
    /// An empty set.
    pub fn new() -> Self {
        Self { map: BTreeMap::new() }
    }

    /// Adds or replaces; the next hop that stood there before.
    pub fn insert(&mut self, prefix: Prefix<A>, next_hop: NextHopId) -> Option<NextHopId> {
        self.map.insert(prefix, next_hop)
    }

    /// Takes away exactly this prefix; its next hop.
    pub fn remove(&mut self, prefix: Prefix<A>) -> Option<NextHopId> {
        self.map.remove(&prefix)
    }

    /// The next hop of exactly this prefix.
    pub fn get(&self, prefix: Prefix<A>) -> Option<NextHopId> {
        self.map.get(&prefix).copied()
    }

    /// The longest prefix that covers `addr`.
    pub fn longest_match(&self, addr: A) -> Option<(Prefix<A>, NextHopId)> {
        self.longest_match_up_to(addr, A::WIDTH)
    }

    /// The longest prefix of at most `len` bits that covers `addr`.
    pub fn longest_match_up_to(&self, addr: A, len: u8) -> Option<(Prefix<A>, NextHopId)> {
        let mut bound = Prefix::masked(addr, len);
        loop {
            let (found, next_hop) = self.map.range(..=bound).next_back()?;
            if found.covers(bound) {
                return Some((*found, *next_hop));
            }
            // Every prefix that covers `bound` sorts at or before it. Were one of them longer than
            // the bits that `found` shares with it, it would sort behind `found`.
            bound = Prefix::masked(addr, bound.addr().common_len(found.addr()));
        }
    }

    /// The longest prefix that covers `prefix` and is shorter than it.
    pub fn parent(&self, prefix: Prefix<A>) -> Option<(Prefix<A>, NextHopId)> {
        let len = prefix.len().checked_sub(1)?;
        self.longest_match_up_to(prefix.addr(), len)
    }

    /// What lies strictly below `prefix`, in order.
    pub fn more_specifics(
        &self,
        prefix: Prefix<A>,
    ) -> impl Iterator<Item = (Prefix<A>, NextHopId)> + '_ {
        let last = Prefix::masked(prefix.last(), A::WIDTH);
        let range = if prefix == last {
            self.map.range(prefix..prefix)
        } else {
            use std::ops::Bound::{Excluded, Included};
            self.map.range((Excluded(prefix), Included(last)))
        };
        range.map(|(p, n)| (*p, *n))
    }

    /// All prefixes in order of (address, length).
    pub fn iter(&self) -> impl Iterator<Item = (Prefix<A>, NextHopId)> + '_ {
        self.map.iter().map(|(p, n)| (*p, *n))
    }

    /// Number of prefixes.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }
}

/// Of equal prefixes the last one stays. Sorted input is quickest.
impl<A: Address> FromIterator<(Prefix<A>, NextHopId)> for Rib<A> {
    fn from_iter<I: IntoIterator<Item = (Prefix<A>, NextHopId)>>(routes: I) -> Self {
        Self { map: routes.into_iter().collect() }
    }
}

impl<A: Address> IntoIterator for Rib<A> {
    type Item = (Prefix<A>, NextHopId);
    type IntoIter = btree_map::IntoIter<Prefix<A>, NextHopId>;

    fn into_iter(self) -> Self::IntoIter {
        self.map.into_iter()
    }
}
