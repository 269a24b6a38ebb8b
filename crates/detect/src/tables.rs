//! What rules remember beside flows: matches that are counted, and bits of hosts.
//!
//! ```text
//!  detectors ─ key ─ hash ─▶ shard ─ lock ─▶ windows of counted matches, bits of hosts
//! ```
//!
//! All detectors that share them count together: a limit of 1 is one alert, whoever sees the packets. Only matches of rules that
//! count take a lock, each that of one shard.
//!
//! Both tables are bounded. When one is full, entries whose time is over go; if none is, the new one is not kept, and
//! [`HostTables::refused`] counts it. All entries are looked at for that once a second at most: were it done for each new one,
//! many hosts at once would cost as much time as there are entries, each.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use signatures::config::{RateAction, SuppressedBy};
use signatures::{Action, Intervals, ThresholdKind, Track, UniqueOn};

use crate::rule::{BitOf, Way};

/// How matches of a rule become alerts.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    /// Of all in the ruleset.
    pub(crate) id: u32,
    pub(crate) how: How,
}

#[derive(Clone, Debug)]
pub(crate) enum How {
    Suppress { by: SuppressedBy, addresses: Option<Box<Intervals>> },
    Threshold { kind: ThresholdKind, track: Track, count: u32, seconds: u32 },
    Filter { track: Track, count: u32, seconds: u32, unique: Option<UniqueOn> },
    Rate { track: Track, count: u32, seconds: u32, action: RateAction, timeout: u32 },
}

/// What becomes of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Alert,
    /// What the rule does is done; it is not reported.
    Silent,
    /// It is as if it had not matched.
    Nothing,
    /// An alert with another action.
    Changed(Action),
}

/// Matches of a window.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window {
    begin_ns: u64,
    count: u32,
    /// Until when a rate filter applies.
    until_ns: u64,
    ports: Vec<u16>,
}

/// Different ports of a window that are remembered.
const PORTS_MAX: usize = 1_024;
const SECOND: u64 = 1_000_000_000;

type Key = (u32, IpAddr, IpAddr, u64);

const NOBODY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// Windows and bits of hosts that are kept, each.
const ENTRIES: usize = 1 << 18;
/// Shards of them.
const SHARDS: usize = 16;

/// What rules remember of hosts: windows of thresholds and bits. Clones are the same tables.
#[derive(Clone, Debug)]
pub struct HostTables {
    shards: Arc<[Mutex<Shard>]>,
    hasher: RandomState,
}

impl Default for HostTables {
    fn default() -> Self {
        Self::new(ENTRIES, SHARDS)
    }
}

#[derive(Debug)]
struct Shard {
    windows: HashMap<Key, (Window, u64)>,
    bits: HashMap<(u32, IpAddr, IpAddr), u64>,
    capacity: usize,
    /// When entries that are over may go again, of each.
    sweep_ns: [u64; 2],
    refused: u64,
}

impl HostTables {
    /// So many entries in each, in all.
    pub(crate) fn new(capacity: usize, shards: usize) -> Self {
        let shard = || Shard {
            windows: HashMap::new(),
            bits: HashMap::new(),
            capacity: capacity / shards,
            sweep_ns: [0; 2],
            refused: 0,
        };
        let shards = (0..shards).map(|_| Mutex::new(shard())).collect();
        Self { shards, hasher: RandomState::new() }
    }

    /// Windows and bits for which there was no room.
    pub fn refused(&self) -> u64 {
        self.shards.iter().map(|shard| lock(shard).refused).sum()
    }

    fn shard(&self, key: impl Hash) -> MutexGuard<'_, Shard> {
        lock(&self.shards[self.hasher.hash_one(key) as usize % self.shards.len()])
    }

    /// Counts a match; `flow` is the number of its flow.
    pub(crate) fn count(&self, counted: &Counted, way: &Way, flow: u64, now_ns: u64) -> Outcome {
        let (track, seconds) = match &counted.how {
            How::Suppress { by, addresses } => {
                let has = |address| addresses.as_ref().is_none_or(|list| list.has_address(address));
                let is_suppressed = match by {
                    SuppressedBy::Source => has(way.source),
                    SuppressedBy::Destination => has(way.destination),
                    SuppressedBy::Either => has(way.source) || has(way.destination),
                };
                return if is_suppressed { Outcome::Silent } else { Outcome::Alert };
            }
            How::Threshold { track, seconds, .. } | How::Filter { track, seconds, .. } => {
                (*track, *seconds)
            }
            How::Rate { track, seconds, timeout, .. } => (*track, (*seconds).max(*timeout)),
        };
        let (a, b, flow) = match track {
            Track::Source => (way.source, NOBODY, 0),
            Track::Destination => (way.destination, NOBODY, 0),
            // Both ways of a pair count together.
            Track::Pair => {
                let (a, b) = (way.source, way.destination);
                (a.min(b), a.max(b), 0)
            }
            Track::Rule => (NOBODY, NOBODY, 0),
            Track::Flow => (NOBODY, NOBODY, flow),
        };
        let key = (counted.id, a, b, flow);
        let mut shard = self.shard(key);
        let shard = &mut *shard;
        if !shard.windows.contains_key(&key) && shard.windows.len() >= shard.capacity {
            if is_due(&mut shard.sweep_ns[0], now_ns) {
                shard.windows.retain(|_, (_, end)| *end >= now_ns);
            }
            if shard.windows.len() >= shard.capacity {
                shard.refused += 1;
                return Outcome::Alert;
            }
        }
        let (window, end) = shard.windows.entry(key).or_default();
        *end = (*end).max(now_ns.saturating_add(u64::from(seconds) * SECOND));
        window.count(&counted.how, way, now_ns)
    }

    fn places(of: BitOf, way: &Way) -> [Option<(IpAddr, IpAddr)>; 2] {
        let (low, high) = (way.source.min(way.destination), way.source.max(way.destination));
        match of {
            BitOf::Source => [Some((way.source, NOBODY)), None],
            BitOf::Destination => [Some((way.destination, NOBODY)), None],
            BitOf::Both => [Some((way.source, NOBODY)), Some((way.destination, NOBODY))],
            BitOf::Pair => [Some((low, high)), None],
        }
    }

    /// Is the bit set, of each that it is of?
    pub(crate) fn has_bit(&self, id: u32, of: BitOf, way: &Way, now_ns: u64) -> bool {
        Self::places(of, way).into_iter().flatten().all(|(a, b)| {
            let key = (id, a, b);
            self.shard(key).bits.get(&key).is_some_and(|until| *until >= now_ns)
        })
    }

    /// Sets it until then, or unsets it.
    pub(crate) fn set_bit(
        &self,
        id: u32,
        of: BitOf,
        way: &Way,
        until_ns: Option<u64>,
        now_ns: u64,
    ) {
        for (a, b) in Self::places(of, way).into_iter().flatten() {
            let key = (id, a, b);
            let mut shard = self.shard(key);
            let shard = &mut *shard;
            let Some(until_ns) = until_ns else {
                shard.bits.remove(&key);
                continue;
            };
            if shard.bits.len() >= shard.capacity && !shard.bits.contains_key(&key) {
                if is_due(&mut shard.sweep_ns[1], now_ns) {
                    shard.bits.retain(|_, until| *until >= now_ns);
                }
                if shard.bits.len() >= shard.capacity {
                    shard.refused += 1;
                    continue;
                }
            }
            shard.bits.insert(key, until_ns);
        }
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    // What is behind it is right after each statement.
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Is it time again? If so, the next time is a second later.
fn is_due(next_ns: &mut u64, now_ns: u64) -> bool {
    let is_due = now_ns >= *next_ns;
    if is_due {
        *next_ns = now_ns.saturating_add(SECOND);
    }
    is_due
}

impl Window {
    fn count(&mut self, how: &How, way: &Way, now_ns: u64) -> Outcome {
        let is_in =
            |begin: u64, seconds: u32| now_ns.saturating_sub(begin) <= u64::from(seconds) * SECOND;
        // The first match, or the first after a window, begins one.
        let begins = |window: &Self, seconds: u32| {
            window.count == 0 && window.begin_ns == 0 || !is_in(window.begin_ns, seconds)
        };
        match how {
            How::Suppress { .. } => Outcome::Alert,
            How::Threshold { kind, count, seconds, .. } => {
                if begins(self, *seconds) {
                    (self.begin_ns, self.count) = (now_ns, 0);
                }
                self.count += 1;
                let is_alert = match kind {
                    ThresholdKind::Limit => self.count <= *count,
                    ThresholdKind::Both => self.count == *count,
                    ThresholdKind::Threshold => {
                        let is_alert = self.count >= *count;
                        if is_alert {
                            // The window goes on, as in Suricata.
                            self.count = 0;
                        }
                        is_alert
                    }
                };
                match (is_alert, kind) {
                    (true, _) => Outcome::Alert,
                    (false, ThresholdKind::Threshold) => Outcome::Nothing,
                    (false, _) => Outcome::Silent,
                }
            }
            How::Filter { count, seconds, unique, .. } => {
                if begins(self, *seconds) {
                    (self.begin_ns, self.count) = (now_ns, 0);
                    self.ports.clear();
                }
                match unique {
                    None => self.count = self.count.saturating_add(1),
                    Some(unique) => {
                        let port = match unique {
                            UniqueOn::SourcePort => way.source_port,
                            UniqueOn::DestinationPort => way.destination_port,
                        };
                        if let Err(at) = self.ports.binary_search(&port)
                            && self.ports.len() < PORTS_MAX
                        {
                            self.ports.insert(at, port);
                        }
                        self.count = self.ports.len() as u32;
                    }
                }
                if self.count > *count { Outcome::Alert } else { Outcome::Nothing }
            }
            How::Rate { count, seconds, action, timeout, .. } => {
                if self.until_ns > 0 {
                    if now_ns < self.until_ns {
                        return changed(*action);
                    }
                    // The time is over: the count goes on with the next match, as in Suricata.
                    self.until_ns = 0;
                    return Outcome::Alert;
                }
                if begins(self, *seconds) {
                    (self.begin_ns, self.count) = (now_ns, 0);
                }
                self.count += 1;
                if self.count <= *count {
                    return Outcome::Alert;
                }
                self.until_ns = now_ns.saturating_add(u64::from(*timeout) * SECOND);
                changed(*action)
            }
        }
    }
}

fn changed(action: RateAction) -> Outcome {
    Outcome::Changed(match action {
        RateAction::Alert | RateAction::Log => Action::Alert,
        RateAction::Drop => Action::Drop,
        RateAction::Pass => Action::Pass,
        RateAction::Reject => Action::RejectSource,
        RateAction::SilentDrop => Action::SilentDrop,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(host: u32) -> Way {
        let (source, destination) = (Ipv4Addr::from(host).into(), Ipv4Addr::LOCALHOST.into());
        Way { source, destination, source_port: 1, destination_port: 2, protocol: 17 }
    }

    fn counted() -> Counted {
        let (kind, track) = (ThresholdKind::Limit, Track::Source);
        Counted { id: 1, how: How::Threshold { kind, track, count: 1, seconds: 2 } }
    }

    /// Those that share them count together.
    #[test]
    fn clones_are_the_same_tables() {
        let one = HostTables::default();
        let two = one.clone();
        let counted = counted();
        assert_eq!(one.count(&counted, &way(1), 0, SECOND), Outcome::Alert);
        assert_eq!(two.count(&counted, &way(1), 0, SECOND), Outcome::Silent);
        assert_eq!(two.count(&counted, &way(2), 0, SECOND), Outcome::Alert);
        two.set_bit(7, BitOf::Both, &way(1), Some(2 * SECOND), SECOND);
        assert!(one.has_bit(7, BitOf::Source, &way(1), SECOND));
        assert!(!one.has_bit(7, BitOf::Source, &way(2), SECOND));
    }

    /// Entries are looked at once a second, however many new ones come; those whose time is over make room then.
    #[test]
    fn full_tables_are_swept_once_a_second() {
        let mut tables = HostTables::new(4, 1);
        let counted = counted();
        let lens = |tables: &HostTables| {
            let shard = lock(&tables.shards[0]);
            (shard.refused, shard.bits.len(), shard.windows.len())
        };
        let ms = |number: u64| number * 1_000_000;
        let give = |tables: &mut HostTables, host, at_ns| {
            tables.set_bit(1, BitOf::Source, &way(host), Some(at_ns + 2 * SECOND), at_ns);
            assert_eq!(tables.count(&counted, &way(host), 0, at_ns), Outcome::Alert);
        };
        (0..4).for_each(|host| give(&mut tables, host, ms(0)));
        // This one sweeps, and nothing goes; none of those behind it does within the second.
        give(&mut tables, 100, ms(1_500));
        (0..1_000).for_each(|host| give(&mut tables, 200 + host, ms(1_501)));
        assert_eq!((tables.refused(), lock(&tables.shards[0]).sweep_ns), (2_002, [ms(2_500); 2]));
        // Entries are over at 2 s; they go when it is time again.
        give(&mut tables, 101, ms(2_400));
        assert_eq!(lens(&tables), (2_004, 4, 4));
        give(&mut tables, 102, ms(2_500));
        assert_eq!(lens(&tables), (2_004, 1, 1));
        // Hosts that are known need no room.
        (0..3).for_each(|host| give(&mut tables, host, ms(2_600)));
        assert!(tables.has_bit(1, BitOf::Source, &way(102), ms(2_600)));
        assert_eq!(tables.count(&counted, &way(102), 0, ms(2_600)), Outcome::Silent);
        assert_eq!(tables.refused(), 2_004);
    }
}
