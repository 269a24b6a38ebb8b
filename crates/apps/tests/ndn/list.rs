//! The plain twin of the pending-interest table: a list.

use std::collections::HashSet;

use apps::ndn::pit::InRecord;
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
}

/// The plain table: a list. It holds whatever comes.
#[derive(Debug, Default)]
pub(crate) struct List {
    pub(crate) entries: Vec<Entry>,
    dead: HashSet<(NameBuf, u32)>,
    tick: u64,
}

impl List {
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

    /// Whether to forward; `None` for a loop.
    pub(crate) fn interest(
        &mut self,
        of: &NameBuf,
        flags: u8,
        record: InRecord,
        now: u64,
    ) -> Option<bool> {
        self.expire(now);
        if self.dead.contains(&(of.clone(), record.nonce)) {
            return None;
        }
        let found = self.entries.iter_mut().find(|e| e.name == *of && e.flags == flags);
        let Some(entry) = found else {
            let records = vec![record];
            self.entries.push(Entry { name: of.clone(), flags, out_face: None, records });
            return Some(true);
        };
        let looped = |other: &InRecord| other.face != record.face && other.nonce == record.nonce;
        if entry.records.iter().any(looped) {
            return None;
        }
        match entry.records.iter_mut().find(|other| other.face == record.face) {
            Some(own) => {
                let again = own.nonce != record.nonce;
                if again {
                    self.dead.insert((of.clone(), own.nonce));
                }
                *own = record;
                Some(again)
            }
            None => {
                entry.records.push(record);
                Some(false)
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
