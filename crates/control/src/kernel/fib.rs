//! The routes of one prefix, changed as the kernel changes its own.
//!
//! A prefix can have several routes: one per metric, and within one metric several more
//! (`ip route append`; IPv6 link-local prefixes, one per interface). A notification says what
//! happened by its flags, not by position, so a mirror has to repeat the kernel's own steps
//! (`fib_table_insert` in `net/ipv4/fib_trie.c`, `fib6_add_rt2node` in `net/ipv6/ip6_fib.c`):
//!
//! - `EXCL`: the metric had no route before;
//! - `REPLACE`: the first route of the metric (IPv6: of the same multipath kind) went;
//! - `APPEND`: behind those of the same metric (IPv4), or the IPv6 multipath route now has the
//!   reported legs;
//! - otherwise before them.
//!
//! Where that is a guess, the periodic audit mends it.

use std::sync::Arc;

use netlink_packet_core::{NLM_F_APPEND, NLM_F_EXCL, NLM_F_REPLACE};
use smallvec::SmallVec;

use super::event::Leg;

/// A leg as the kernel holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct RawLeg {
    pub(super) leg: Leg,
    /// The kernel does not use it: its interface is down, or it asks for an encapsulation that
    /// this router does not do.
    pub(super) unusable: bool,
}

/// The weight of a single leg means nothing, and the kernel does not always report it.
pub(super) fn settle_weight<T>(legs: &mut [T], leg: impl Fn(&mut T) -> &mut Leg) {
    if let [only] = legs {
        leg(only).weight = 1;
    }
}

/// Where a kernel route leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RawTarget {
    Legs(Arc<[RawLeg]>),
    Object(u32),
    Blackhole,
    Unreachable,
    Prohibit,
}

/// How much a route is preferred before its metric counts; the first wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// Somebody on this machine installed it.
    Configured,
    /// Of a Router Advertisement, by the preference in it (RFC 4191 §2.1).
    AdvertisedHigh,
    Advertised,
    AdvertisedLow,
}

/// One kernel route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) metric: u32,
    pub(super) protocol: u8,
    pub(super) rank: Rank,
    pub(super) target: RawTarget,
}

impl Entry {
    fn legs(&self) -> Option<&[RawLeg]> {
        match &self.target {
            RawTarget::Legs(legs) => Some(legs),
            _ => None,
        }
    }

    /// IPv6 joins routes of one metric into a multipath route only if each has a gateway, and never those of Router
    /// Advertisements.
    fn joins(&self) -> bool {
        self.rank == Rank::Configured
            && self.legs().is_some_and(|legs| legs.iter().all(|raw| raw.leg.gateway.is_some()))
    }

    /// The same route, whatever the state of its legs.
    fn same(&self, other: &Entry) -> bool {
        self.metric == other.metric
            && self.protocol == other.protocol
            && match (self.legs(), other.legs()) {
                (Some(ours), Some(theirs)) => {
                    ours.iter().map(|raw| raw.leg).eq(theirs.iter().map(|raw| raw.leg))
                }
                _ => self.target == other.target,
            }
    }
}

/// What a removal did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Removal {
    /// Found and done, or there was nothing to do.
    Done,
    /// The metric has routes, but not this one: the mirror should look again.
    Unknown,
}

/// The kernel's routes of one prefix, lowest metric first, in the kernel's order within one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Entries(SmallVec<[Entry; 1]>);

impl Entries {
    pub(super) fn iter(&self) -> std::slice::Iter<'_, Entry> {
        self.0.iter()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As a dump lists it: behind those of its metric. A dump that was torn by a change can
    /// list a route twice.
    pub(super) fn push(&mut self, entry: Entry) {
        let group = self.group(entry.metric);
        if !self.0[group.clone()].iter().any(|known| known.same(&entry)) {
            self.0.insert(group.end, entry);
        }
    }

    pub(super) fn retain(&mut self, mut keep: impl FnMut(&mut Entry) -> bool) {
        self.0.retain(|entry| keep(entry));
    }

    fn group(&self, metric: u32) -> std::ops::Range<usize> {
        let start = self.0.partition_point(|entry| entry.metric < metric);
        let end = self.0.partition_point(|entry| entry.metric <= metric);
        start..end
    }

    /// `RTM_NEWROUTE` with the message's `flags`.
    pub(super) fn add(&mut self, v6: bool, flags: u16, entry: Entry) {
        let group = self.group(entry.metric);
        if flags & NLM_F_EXCL != 0 && flags & NLM_F_REPLACE == 0 {
            self.0.drain(group.clone());
            self.0.insert(group.start, entry);
            return;
        }
        if let Some(at) = self.0[group.clone()].iter().position(|known| known.same(&entry)) {
            self.0[group.start + at] = entry; // reported twice; leg states may be newer
            return;
        }
        if flags & NLM_F_REPLACE != 0 {
            let alike = |known: &Entry| !v6 || known.joins() == entry.joins();
            let at = self.0[group.clone()].iter().position(alike).unwrap_or(0) + group.start;
            if at < group.end {
                self.0[at] = entry;
            } else {
                self.0.insert(at, entry);
            }
            return;
        }
        if v6 {
            let joined = |known: &Entry| entry.joins() && known.joins();
            match self.0[group.clone()].iter().position(joined) {
                Some(at) => self.0[group.start + at] = entry,
                None => self.0.insert(group.end, entry),
            }
            return;
        }
        let at = if flags & NLM_F_APPEND != 0 { group.end } else { group.start };
        self.0.insert(at, entry);
    }

    /// `RTM_DELROUTE`.
    pub(super) fn remove(&mut self, v6: bool, entry: &Entry) -> Removal {
        let group = self.group(entry.metric);
        if let Some(at) = self.0[group.clone()].iter().position(|known| known.same(entry)) {
            self.0.remove(group.start + at);
            return Removal::Done;
        }
        if v6 && entry.joins() {
            // One leg, or several, of a multipath route.
            let gone = entry.legs().unwrap_or(&[]);
            let is_gone = |raw: &RawLeg| {
                gone.iter()
                    .any(|g| g.leg.ifindex == raw.leg.ifindex && g.leg.gateway == raw.leg.gateway)
            };
            for at in group.clone() {
                let known = &mut self.0[at];
                if !known.joins() || !known.legs().unwrap_or(&[]).iter().any(is_gone) {
                    continue;
                }
                let mut left: Vec<RawLeg> = known
                    .legs()
                    .unwrap_or(&[])
                    .iter()
                    .copied()
                    .filter(|raw| !is_gone(raw))
                    .collect();
                if left.is_empty() {
                    self.0.remove(at);
                } else {
                    settle_weight(&mut left, |raw| &mut raw.leg);
                    known.target = RawTarget::Legs(left.into());
                }
                return Removal::Done;
            }
        }
        // The routes of an object that went were dropped with it already.
        if group.is_empty() || matches!(entry.target, RawTarget::Object(_)) {
            Removal::Done
        } else {
            Removal::Unknown
        }
    }
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::NLM_F_CREATE;

    use super::*;

    fn via(metric: u32, gateways: &[&str]) -> Entry {
        let legs = gateways.iter().map(|gateway| RawLeg {
            leg: Leg { gateway: Some(gateway.parse().unwrap()), ifindex: 1, weight: 1 },
            unusable: false,
        });
        Entry {
            metric,
            protocol: 4,
            rank: Rank::Configured,
            target: RawTarget::Legs(legs.collect()),
        }
    }

    fn on(ifindex: u32) -> Entry {
        let leg = Leg { gateway: None, ifindex, weight: 1 };
        let target = RawTarget::Legs([RawLeg { leg, unusable: false }].into());
        Entry { metric: 256, protocol: 2, rank: Rank::Configured, target }
    }

    fn list(entries: &Entries) -> Vec<Entry> {
        entries.iter().cloned().collect()
    }

    #[test]
    fn v4_follows_the_kernels_order() {
        let (a, b, c) = (via(0, &["10.0.0.1"]), via(0, &["10.0.0.2"]), via(0, &["10.0.0.3"]));
        let mut entries = Entries::default();
        entries.add(false, NLM_F_CREATE | NLM_F_EXCL, a.clone());
        entries.add(false, NLM_F_CREATE | NLM_F_APPEND, b.clone());
        entries.add(false, NLM_F_CREATE, c.clone()); // ip route prepend
        entries.add(false, NLM_F_CREATE | NLM_F_EXCL, via(7, &["10.0.0.9"]));
        assert_eq!(list(&entries), [c, a.clone(), b.clone(), via(7, &["10.0.0.9"])]);
        entries.add(false, NLM_F_REPLACE, via(0, &["10.0.0.4"]));
        assert_eq!(entries.remove(false, &a), Removal::Done);
        assert_eq!(list(&entries), [via(0, &["10.0.0.4"]), b, via(7, &["10.0.0.9"])]);
        assert_eq!(entries.remove(false, &via(0, &["1.1.1.1"])), Removal::Unknown);
        assert_eq!(entries.remove(false, &via(5, &["1.1.1.1"])), Removal::Done);
        assert_eq!(entries.iter().count(), 3);
    }

    #[test]
    fn a_repeated_report_is_one_route() {
        let mut entries = Entries::default();
        entries.push(via(0, &["10.0.0.1"]));
        entries.push(via(0, &["10.0.0.2"]));
        let before = entries.clone();
        entries.add(false, NLM_F_CREATE | NLM_F_APPEND, via(0, &["10.0.0.2"]));
        assert_eq!(entries, before);
    }

    #[test]
    fn v6_legs_join_and_leave_one_route() {
        let mut entries = Entries::default();
        entries.add(true, NLM_F_CREATE | NLM_F_EXCL, via(1024, &["fe80::1"]));
        entries.add(true, NLM_F_CREATE | NLM_F_APPEND, via(1024, &["fe80::1", "fe80::2"]));
        assert_eq!(list(&entries), [via(1024, &["fe80::1", "fe80::2"])]);
        entries.remove(true, &via(1024, &["fe80::1"]));
        assert_eq!(list(&entries), [via(1024, &["fe80::2"])]);
        entries.remove(true, &via(1024, &["fe80::2"]));
        assert!(entries.is_empty());
    }

    #[test]
    fn v6_link_local_prefixes_stand_side_by_side() {
        let mut entries = Entries::default();
        entries.add(true, NLM_F_CREATE | NLM_F_EXCL, on(1));
        entries.add(true, NLM_F_CREATE, on(2));
        assert_eq!(list(&entries), [on(1), on(2)]);
        assert_eq!(entries.remove(true, &on(1)), Removal::Done);
        assert_eq!(list(&entries), [on(2)]);
    }
}
