//! The plain twin of the pending-interest table: a list.

use std::collections::HashSet;

use apps::ndn::pit::{InRecord, PitLimits};
use packet::ndn::NameBuf;

/// Nanoseconds of a place of the wheel.
const TICK: u64 = 1 << 24;

/// An entry of the twin.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) name: NameBuf,
    pub(crate) flags: u8,
    pub(crate) out_face: Option<u16>,
    pub(crate) records: Vec<InRecord>,
    sent: u64,
    quiet: u64,
    owner: [u16; 2],
}

/// What becomes of an Interest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Forward,
    Aggregated,
    Suppressed,
    Loop,
    Refused,
}

/// Room, and what is taken of it: entries, in-records, blocks of names.
type Amounts = [usize; 3];

/// The plain table: a list.
#[derive(Debug)]
pub(crate) struct List {
    pub(crate) entries: Vec<Entry>,
    room: Amounts,
    dead: HashSet<(NameBuf, u32)>,
    tick: u64,
}

impl List {
    pub(crate) fn new(limits: PitLimits) -> Self {
        let room = [limits.entries, limits.in_records, limits.name_blocks].map(|n| n as usize);
        Self { entries: Vec::new(), room, dead: HashSet::new(), tick: 0 }
    }

    /// What is held by those for whom `is_own` says so of face and port.
    fn held(&self, is_own: impl Fn([u16; 2]) -> bool) -> Amounts {
        let mut held = [0; 3];
        for entry in &self.entries {
            if is_own(entry.owner) {
                held[0] += 1;
                held[2] += entry.name.name().value().len().div_ceil(60);
            }
            held[1] += entry.records.iter().filter(|r| is_own([r.face, r.port])).count();
        }
        held
    }

    /// Whether there is room, and the share of face and port allows it.
    fn allows(&self, record: &InRecord, more: Amounts) -> bool {
        let all = self.held(|_| true);
        let face = self.held(|[face, _]| face == record.face);
        let port = self.held(|[_, port]| port == record.port);
        (0..3).all(|i| more[i] == 0 || face[i] + more[i] + port[i] + all[i] <= self.room[i])
    }

    pub(crate) fn expire(&mut self, now: u64) {
        if now / TICK <= self.tick {
            return;
        }
        self.tick = now / TICK;
        let dead = &mut self.dead;
        self.entries.retain(|entry| {
            let last = entry.records.iter().map(|record| record.expires_ns).max().unwrap();
            let stays = last / TICK >= now / TICK;
            if !stays {
                dead.extend(entry.records.iter().map(|r| (entry.name.clone(), r.nonce)));
            }
            stays
        });
    }

    /// Whether nobody waits for it, and it is no loop.
    pub(crate) fn is_new(&mut self, of: &NameBuf, flags: u8, nonce: u32, now: u64) -> bool {
        self.expire(now);
        let is_pending = self.entries.iter().any(|e| e.name == *of && e.flags == flags);
        !is_pending && !self.dead.contains(&(of.clone(), nonce))
    }

    pub(crate) fn interest(&mut self, of: &NameBuf, flags: u8, record: InRecord, now: u64) -> Fate {
        self.expire(now);
        if self.dead.contains(&(of.clone(), record.nonce)) {
            return Fate::Loop;
        }
        let blocks = of.name().value().len().div_ceil(60);
        let [may_add, may_join] =
            [[1, 1, blocks], [0, 1, 0]].map(|more| self.allows(&record, more));
        let found = self.entries.iter_mut().find(|e| e.name == *of && e.flags == flags);
        let Some(entry) = found else {
            if !may_add {
                return Fate::Refused;
            }
            let (records, owner) = (vec![record], [record.face, record.port]);
            let (name, quiet) = (of.clone(), 10_000_000);
            self.entries.push(Entry {
                name,
                flags,
                out_face: None,
                records,
                sent: now,
                quiet,
                owner,
            });
            return Fate::Forward;
        };
        let looped = |other: &InRecord| other.face != record.face && other.nonce == record.nonce;
        if entry.records.iter().any(looped) {
            return Fate::Loop;
        }
        match entry.records.iter_mut().find(|other| other.face == record.face) {
            Some(own) => {
                let again = own.nonce != record.nonce;
                if again {
                    self.dead.insert((of.clone(), own.nonce));
                }
                *own = record;
                if !again {
                    return Fate::Aggregated;
                }
                if now - entry.sent < entry.quiet {
                    return Fate::Suppressed;
                }
                (entry.sent, entry.quiet) = (now, (2 * entry.quiet).min(250_000_000));
                Fate::Forward
            }
            None if !may_join => Fate::Refused,
            None => {
                entry.records.push(record);
                Fate::Aggregated
            }
        }
    }

    pub(crate) fn data(&mut self, of: &NameBuf, from: u16, now: u64) -> (bool, Vec<InRecord>) {
        self.expire(now);
        let (mut sent, mut solicited) = (Vec::new(), false);
        let dead = &mut self.dead;
        self.entries.retain(|entry| {
            let answers = match entry.flags & 1 {
                0 => entry.name == *of,
                _ => entry.name.name().is_prefix_of(&of.name()),
            };
            if answers {
                solicited = true;
                let waits = |r: &&InRecord| r.face != from && r.expires_ns > now;
                sent.extend(entry.records.iter().filter(waits).copied());
                dead.extend(entry.records.iter().map(|r| (entry.name.clone(), r.nonce)));
            }
            !answers
        });
        (solicited, sent)
    }

    pub(crate) fn nack(
        &mut self,
        of: &NameBuf,
        flags: u8,
        from: u16,
        now: u64,
    ) -> Option<Vec<InRecord>> {
        self.expire(now);
        let at = self
            .entries
            .iter()
            .position(|e| e.name == *of && e.flags == flags && e.out_face == Some(from))?;
        let entry = self.entries.remove(at);
        self.dead.extend(entry.records.iter().map(|r| (entry.name.clone(), r.nonce)));
        Some(entry.records.into_iter().filter(|r| r.expires_ns > now).collect())
    }
}
