//! What rules remember beside flows: matches that are counted, and bits of hosts.
//!
//! Both tables are bounded. When one is full, entries whose time is over go; if none is, the new one is not kept, and
//! [`Tables::refused`] counts it.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

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

/// Tables of one worker.
#[derive(Debug)]
pub(crate) struct Tables {
    windows: HashMap<Key, (Window, u64)>,
    bits: HashMap<(u32, IpAddr, IpAddr), u64>,
    capacity: usize,
    pub(crate) refused: u64,
}

impl Tables {
    /// So many entries in each.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { windows: HashMap::new(), bits: HashMap::new(), capacity, refused: 0 }
    }

    /// Counts a match; `flow` is the number of its flow.
    pub(crate) fn count(
        &mut self,
        counted: &Counted,
        way: &Way,
        flow: u64,
        now_ns: u64,
    ) -> Outcome {
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
            Track::Pair => (way.source, way.destination, 0),
            Track::Rule => (NOBODY, NOBODY, 0),
            Track::Flow => (NOBODY, NOBODY, flow),
        };
        let key = (counted.id, a, b, flow);
        if !self.windows.contains_key(&key) && self.windows.len() >= self.capacity {
            self.windows.retain(|_, (_, end)| *end >= now_ns);
            if self.windows.len() >= self.capacity {
                self.refused += 1;
                return Outcome::Alert;
            }
        }
        let (window, end) = self.windows.entry(key).or_default();
        *end = (*end).max(now_ns + u64::from(seconds) * SECOND);
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
        let places = Self::places(of, way);
        let mut set = places.iter().flatten().map(|(a, b)| self.bits.get(&(id, *a, *b)));
        set.all(|until| until.is_some_and(|until| *until >= now_ns))
    }

    /// Sets it until then, or unsets it.
    pub(crate) fn set_bit(
        &mut self,
        id: u32,
        of: BitOf,
        way: &Way,
        until_ns: Option<u64>,
        now_ns: u64,
    ) {
        for (a, b) in Self::places(of, way).into_iter().flatten() {
            let Some(until_ns) = until_ns else {
                self.bits.remove(&(id, a, b));
                continue;
            };
            if self.bits.len() >= self.capacity && !self.bits.contains_key(&(id, a, b)) {
                self.bits.retain(|_, until| *until >= now_ns);
                if self.bits.len() >= self.capacity {
                    self.refused += 1;
                    continue;
                }
            }
            self.bits.insert((id, a, b), until_ns);
        }
    }
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
                            (self.begin_ns, self.count) = (now_ns, 0);
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
                if now_ns < self.until_ns {
                    return changed(*action);
                }
                if begins(self, *seconds) {
                    (self.begin_ns, self.count) = (now_ns, 0);
                }
                self.count += 1;
                if self.count <= *count {
                    return Outcome::Alert;
                }
                (self.begin_ns, self.count) = (now_ns, 0);
                self.until_ns = now_ns + u64::from(*timeout) * SECOND;
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
