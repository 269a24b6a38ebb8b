//! The bounded table of neighbours, with their deadlines and their order of eviction.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// A neighbour's name: interface and address.
pub(super) type Key = (u16, IpAddr);

/// What is known of a neighbour, in RFC 4861's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NeighbourState {
    /// Asked for, not answered yet.
    Incomplete,
    /// Confirmed a short time ago.
    Reachable,
    /// Known, not confirmed lately.
    Stale,
    /// Known, being asked whether it is still there.
    Probe,
    /// Did not answer; not asked again for a while.
    Failed,
    /// Set by the configuration or as permanent in the kernel.
    Static,
}

impl NeighbourState {
    /// Its word in tables.
    pub fn name(self) -> &'static str {
        match self {
            NeighbourState::Incomplete => "incomplete",
            NeighbourState::Reachable => "reachable",
            NeighbourState::Stale => "stale",
            NeighbourState::Probe => "probe",
            NeighbourState::Failed => "failed",
            NeighbourState::Static => "static",
        }
    }

    /// Lower goes first. Questions that a stranger's packets cause must not push out answers.
    fn rank(self) -> u8 {
        match self {
            NeighbourState::Failed => 0,
            NeighbourState::Incomplete => 1,
            NeighbourState::Stale => 2,
            NeighbourState::Probe | NeighbourState::Reachable => 3,
            NeighbourState::Static => 4,
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) state: NeighbourState,
    pub(super) mac: Option<[u8; 6]>,
    /// Questions sent in this state.
    pub(super) sent: u32,
    /// When something is to be done; `None` for static ones.
    pub(super) deadline_ns: Option<u64>,
    pub(super) confirmed_ns: Option<u64>,
    pub(super) wanted_ns: Option<u64>,
    /// When it was last of use.
    pub(super) touched_ns: u64,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    entries: BTreeMap<Key, Entry>,
    deadlines: BTreeSet<(u64, Key)>,
    order: BTreeSet<(u8, u64, Key)>, // rank, touched_ns: the first one is evicted first
}

impl Table {
    pub(super) fn get(&self, key: Key) -> Option<Entry> {
        self.entries.get(&key).copied()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, &Entry)> {
        self.entries.iter().map(|(key, entry)| (*key, entry))
    }

    /// Adds or replaces.
    pub(super) fn set(&mut self, key: Key, entry: Entry) {
        self.remove(key);
        if let Some(deadline_ns) = entry.deadline_ns {
            self.deadlines.insert((deadline_ns, key));
        }
        self.order.insert((entry.state.rank(), entry.touched_ns, key));
        self.entries.insert(key, entry);
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<Entry> {
        let entry = self.entries.remove(&key)?;
        if let Some(deadline_ns) = entry.deadline_ns {
            self.deadlines.remove(&(deadline_ns, key));
        }
        self.order.remove(&(entry.state.rank(), entry.touched_ns, key));
        Some(entry)
    }

    /// The first deadline.
    pub(super) fn next_deadline_ns(&self) -> Option<u64> {
        self.deadlines.first().map(|(deadline_ns, _)| *deadline_ns)
    }

    /// An entry whose deadline has come.
    pub(super) fn due(&self, now_ns: u64) -> Option<(Key, Entry)> {
        let (_, key) = *self.deadlines.first().filter(|(deadline_ns, _)| *deadline_ns <= now_ns)?;
        Some((key, self.get(key)?))
    }

    /// The entry that is worth least; never a static one.
    pub(super) fn least(&self) -> Option<Key> {
        let (rank, _, key) = *self.order.first()?;
        (rank < NeighbourState::Static.rank()).then_some(key)
    }
}
