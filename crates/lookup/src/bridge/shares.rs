//! The learned stations of each port, and which of them gives way in a full table.
//!
//! ```text
//!  table full, a new station ─▶ port with the most learned stations ─▶ its oldest one is removed
//!
//!  port 0: oldest ⇄ … ⇄ newest      seen since it was put there: once more to the end (CLOCK, Corbató 1968)
//!  port 1: oldest ⇄ … ⇄ newest      not seen: removed
//! ```
//!
//! A port that floods the table with addresses therefore loses its own ones, as in the MAC table of Open vSwitch: a
//! port with fewer stations than its share of the table loses none. Static stations are in no list.

use super::mac::Seen;

/// The end of a list.
const NONE: u32 = u32::MAX;

/// In a record that is in no list.
const NO_PORT: u16 = u16::MAX;

/// Stations that get a second chance before one is removed: a bound on the work for one new station.
pub(super) const SECOND_CHANCES: usize = 64;

/// The lists.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// By port.
    ports: Vec<Share>,
    /// By record.
    links: Vec<Link>,
    len: usize,
}

/// The stations of a port.
#[derive(Debug, Clone, Copy)]
struct Share {
    count: u32,
    limit: Option<u32>,
    oldest: u32,
    newest: u32,
    /// What the data side knows of [`Shares::is_at_limit`].
    published: bool,
}

const EMPTY: Share = Share { count: 0, limit: None, oldest: NONE, newest: NONE, published: false };

/// The place of a station in the list of its port.
#[derive(Debug, Clone, Copy)]
struct Link {
    port: u16,
    older: u32,
    newer: u32,
    /// When it had been seen last when it was put there, seconds.
    seen_s: u32,
}

const UNLINKED: Link = Link { port: NO_PORT, older: NONE, newer: NONE, seen_s: 0 };

impl Shares {
    /// A station is learned on a port: the newest one there. It must be in no list.
    pub(super) fn push(&mut self, record: u32, port: u16, seen_s: u32) {
        if self.links.len() <= record as usize {
            self.links.resize(record as usize + 1, UNLINKED);
        }
        let older = std::mem::replace(&mut self.share(port).newest, record);
        self.links[record as usize] = Link { port, older, newer: NONE, seen_s };
        match self.links.get_mut(older as usize) {
            Some(link) => link.newer = record,
            None => self.share(port).oldest = record,
        }
        self.share(port).count += 1;
        self.len += 1;
    }

    /// A station is no longer learned, if it was.
    pub(super) fn take(&mut self, record: u32) {
        let Some(link) = self.links.get_mut(record as usize).filter(|link| link.port != NO_PORT)
        else {
            return;
        };
        let Link { port, older, newer, .. } = std::mem::replace(link, UNLINKED);
        match self.links.get_mut(older as usize) {
            Some(link) => link.newer = newer,
            None => self.share(port).oldest = newer,
        }
        match self.links.get_mut(newer as usize) {
            Some(link) => link.older = older,
            None => self.share(port).newest = older,
        }
        self.share(port).count -= 1;
        self.len -= 1;
    }

    /// The port whose oldest station gives way to a new one of `learner`: that with the most; of several `learner`, and
    /// then the first one. `None` without a learned station.
    pub(super) fn largest(&self, learner: u16) -> Option<u16> {
        let most = self.ports.iter().map(|share| share.count).max().filter(|most| *most > 0)?;
        let has_most = |port: &u16| self.count(*port) == most;
        Some(learner).filter(has_most).or_else(|| (0..self.ports.len() as u16).find(has_most))
    }

    /// The station of a port that gives way: the oldest one that was not seen since it was looked at last.
    pub(super) fn oldest(&mut self, port: u16, seen: &Seen) -> Option<u32> {
        let first = |shares: &Self| shares.ports.get(usize::from(port)).map(|share| share.oldest);
        for _ in 0..SECOND_CHANCES {
            let record = first(self).filter(|record| *record != NONE)?;
            let seen_s = seen.get(record);
            if seen_s == self.links[record as usize].seen_s {
                return Some(record);
            }
            self.take(record);
            self.push(record, port, seen_s);
        }
        first(self).filter(|record| *record != NONE)
    }

    /// Learned stations.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Those of a port.
    pub(super) fn count(&self, port: u16) -> u32 {
        self.ports.get(usize::from(port)).map_or(0, |share| share.count)
    }

    /// Limits the learned stations of a port.
    pub(super) fn set_limit(&mut self, port: u16, limit: Option<u32>) {
        self.share(port).limit = limit;
    }

    /// Whether a port has more learned stations than it may have.
    pub(super) fn is_over_limit(&self, port: u16) -> bool {
        let share = self.ports.get(usize::from(port)).unwrap_or(&EMPTY);
        share.limit.is_some_and(|limit| share.count > limit)
    }

    /// Whether a port has as many learned stations as it may have.
    pub(super) fn is_at_limit(&self, port: u16) -> bool {
        self.ports.get(usize::from(port)).is_some_and(Share::is_at_limit)
    }

    /// What the data side does not know yet: ports that reached their limit, and ports that are below it again.
    pub(super) fn changed(&mut self) -> impl Iterator<Item = (u16, bool)> {
        (0..).zip(&mut self.ports).filter_map(|(port, share)| {
            let is_at_limit = share.is_at_limit();
            let before = std::mem::replace(&mut share.published, is_at_limit);
            (before != is_at_limit).then_some((port, is_at_limit))
        })
    }

    fn share(&mut self, port: u16) -> &mut Share {
        let at = usize::from(port);
        if self.ports.len() <= at {
            self.ports.resize(at + 1, EMPTY);
        }
        &mut self.ports[at]
    }
}

impl Share {
    fn is_at_limit(&self) -> bool {
        self.limit.is_some_and(|limit| self.count >= limit)
    }
}
