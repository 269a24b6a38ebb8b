//! The pending-interest table: who waits for which name.
//!
//! An Interest leaves a trace at each forwarder, and Data follows the traces back. An *entry* is a name with the two
//! flags that decide which Data answers it; its *in-records* say which faces wait, its *out-record* where the
//! Interest went. A second Interest of the same kind only adds an in-record (aggregation). Data takes the entry
//! away and goes to every face that waits; without an entry it is unsolicited. What is not answered goes
//! when its lifetime ends.
//!
//! A nonce that comes back by another face is a loop. Nonces of entries that are gone are remembered for a while in
//! the *dead nonce list*, so that a loop longer than an entry's life is seen too.
//!
//! ```text
//! name hash ─→ bucket ─→ entry ─→ entry …          wheel: one list of entries for each 16 ms
//!                         ├ in-record ─→ in-record    │ 0 │ 1 │ 2 │ … │ 511 │
//!                         └ block of name ─→ block …         ▲ now
//! ```
//!
//! All memory is taken at the start: entries, in-records and blocks of 64 bytes for names. A face may hold as much of
//! it as is free (`shares`); beyond that, an Interest is refused and counted. Nothing that waits is
//! thrown away for it.
//!
//! A face that asks again with another nonce has its Interest forwarded again, unless the last one went out a moment
//! ago: 10 ms at first, twice as long each time, 250 ms at most (as NFD's RetxSuppressionExponential; NFD Developer's
//! Guide, NDN-0021).
//!
//! Data may be longer than the name that asked for it (CanBePrefix), so it is looked up at the depths at which such
//! entries exist, and no others. An Interest may end with the digest of the packet that it wants; while there are such
//! entries, Data is looked up with its digest too.
//!
//! Threads: one table a worker, not shared. Interests and Data of a name must reach the same worker, see
//! [`crate::ndn::worker_of`].

use lookup::names::{NameHash, NameHasher};
use packet::ndn::{Name, PIT_TOKEN_MAX, component_type};

use super::shares::{Amounts, Holder, Shares};

/// Nobody: the end of a list.
const NONE: u32 = u32::MAX;

/// Nanoseconds of a place of the wheel: 16.8 ms.
const TICK_SHIFT: u32 = 24;

/// Places of the wheel: 8.6 s. What lives longer goes round again.
const WHEEL: usize = 512;

/// Bytes of a name in one block.
const BLOCK: usize = 60;

/// How long a dead nonce is remembered at least; twice that at most.
const DEAD_NONCE_NS: u64 = 6_000_000_000;

/// Bytes of a digest's component.
const DIGEST: usize = 34;

/// How long a second Interest of a face is not forwarded: at first, and at most.
const QUIET_FIRST_MS: u16 = 10;
const QUIET_MAX_MS: u16 = 250;

/// Components of the longest name that a packet can hold, and one.
const DEPTHS: usize = packet::ndn::PACKET_MAX / 2 + 1;

/// How large a table may become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PitLimits {
    /// Entries.
    pub entries: u32,
    /// Faces that wait, over all entries.
    pub in_records: u32,
    /// Blocks of 60 bytes of name.
    pub name_blocks: u32,
    /// Dead nonces, rounded up to a power of two.
    pub dead_nonces: u32,
    /// The longest lifetime that is granted, milliseconds.
    pub lifetime_max_ms: u64,
}

impl Default for PitLimits {
    /// 65,536 entries: some 20 MB.
    fn default() -> Self {
        Self::of(1 << 16)
    }
}

impl PitLimits {
    /// This many entries, two in-records and two blocks for each, and ten seconds at most.
    pub fn of(entries: u32) -> Self {
        let twice = entries.saturating_mul(2).max(256);
        Self {
            entries,
            in_records: twice,
            name_blocks: twice,
            dead_nonces: twice,
            lifetime_max_ms: 10_000,
        }
    }
}

/// What an Interest asks for.
#[derive(Debug, Clone, Copy)]
pub struct PitKey<'a> {
    /// The name.
    pub name: Name<'a>,
    /// Longer names answer it too.
    pub can_be_prefix: bool,
    /// Stale Data does not.
    pub must_be_fresh: bool,
}

/// A face that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InRecord {
    /// The face.
    pub face: u16,
    /// The port of the face.
    pub port: u16,
    /// The Interest's nonce.
    pub nonce: u32,
    /// When it waits no more, nanoseconds since 1970.
    pub expires_ns: u64,
    token: [u8; PIT_TOKEN_MAX],
    token_len: u8,
}

impl InRecord {
    /// A face that waits for `lifetime_ms` from now on and wants to see `token` again, of which the first 32
    /// bytes count.
    pub fn new(face: u16, nonce: u32, now_ns: u64, lifetime_ms: u64, token: &[u8]) -> Self {
        let mut kept = [0; PIT_TOKEN_MAX];
        let len = token.len().min(PIT_TOKEN_MAX);
        kept[..len].copy_from_slice(&token[..len]);
        let expires_ns = now_ns.saturating_add(lifetime_ms.saturating_mul(1_000_000));
        InRecord { face, port: face, nonce, expires_ns, token: kept, token_len: len as u8 }
    }

    /// The same of a face on this port; otherwise each face has a port of its own.
    #[must_use]
    pub fn on_port(self, port: u16) -> Self {
        InRecord { port, ..self }
    }

    fn holder(&self) -> Holder {
        Holder { face: self.face, port: self.port }
    }

    /// What the neighbour wants to see again.
    pub fn token(&self) -> &[u8] {
        &self.token[..usize::from(self.token_len)]
    }
}

/// An entry's number, good until the table is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryId(u32);

/// What an Interest would meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// Nothing: nobody waits for what it asks for.
    New,
    /// Somebody waits.
    Pending,
    /// Its nonce has been here: [`Arrival::Loop`].
    Loop,
}

/// What becomes of an Interest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// Nobody has asked yet, or the same face asks again: it is to be forwarded.
    Forward(EntryId),
    /// Others have asked: this face waits with them.
    Aggregated,
    /// The same face asks again too soon: it waits, and its Interest is not forwarded.
    Suppressed,
    /// The nonce has been here by another face, or in an entry that is gone.
    Loop,
    /// No entry, no in-record or no block for the name was free.
    Full,
    /// The face, or all those of its port, have as many as are free.
    Share,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    hash: u64,
    next: u32, // of the bucket, or of the free entries
    name: u32, // first block
    name_len: u16,
    depth: u16,
    flags: u8,
    out_face: u16,
    records: u32, // first in-record
    expires_ns: u64,
    wheel_next: u32,
    wheel_before: u32,
    place: u16,    // of the wheel
    quiet_ms: u16, // after the time of sending
    sent_ns: u64,
    owner: Holder, // who asked first
}

const CAN_BE_PREFIX: u8 = 1;
const MUST_BE_FRESH: u8 = 2;
const HAS_DIGEST: u8 = 4; // its last component is one

/// No face.
const NO_FACE: u16 = u16::MAX;

#[derive(Debug, Clone, Copy)]
struct Block {
    bytes: [u8; BLOCK],
    next: u32,
}

/// A list of free numbers through `next` of the things themselves.
#[derive(Debug, Clone, Copy)]
struct Free {
    first: u32,
    count: u32,
}

/// The table.
#[derive(Debug)]
pub struct Pit {
    hasher: NameHasher,
    limits: PitLimits,
    buckets: Vec<u32>, // a power of two of them
    entries: Vec<Entry>,
    records: Vec<(InRecord, u32)>,
    blocks: Vec<Block>,
    free_entries: Free,
    free_records: Free,
    free_blocks: Free,
    shares: Shares,
    wheel: Box<[u32; WHEEL]>,
    tick: u64,          // up to which the wheel has been emptied
    prefixes: Vec<u32>, // entries with CanBePrefix, by depth
    digests: u32,       // entries whose last component is a digest
    whole: Vec<u8>,     // a name with a digest
    expired: u64,
    dead: DeadNonces,
}

impl Pit {
    /// An empty table.
    pub fn new(hasher: NameHasher, limits: PitLimits) -> Self {
        let count = |count: u32| count.clamp(1, 1 << 30);
        let (entries, records) = (count(limits.entries), count(limits.in_records));
        let blocks = count(limits.name_blocks);
        let empty = Entry {
            hash: 0,
            next: NONE,
            name: NONE,
            name_len: 0,
            depth: 0,
            flags: 0,
            out_face: NO_FACE,
            records: NONE,
            expires_ns: 0,
            wheel_next: NONE,
            wheel_before: NONE,
            place: 0,
            quiet_ms: 0,
            sent_ns: 0,
            owner: Holder { face: NO_FACE, port: NO_FACE },
        };
        let after = |at: u32, count: u32| if at + 1 < count { at + 1 } else { NONE };
        let free = |count: u32| Free { first: 0, count };
        let record = InRecord::new(NO_FACE, 0, 0, 0, &[]);
        Self {
            hasher,
            limits,
            buckets: vec![NONE; entries.next_power_of_two() as usize],
            entries: (0..entries).map(|at| Entry { next: after(at, entries), ..empty }).collect(),
            records: (0..records).map(|at| (record, after(at, records))).collect(),
            blocks: (0..blocks)
                .map(|at| Block { bytes: [0; BLOCK], next: after(at, blocks) })
                .collect(),
            free_entries: free(entries),
            free_records: free(records),
            free_blocks: free(blocks),
            shares: Shares::new(),
            wheel: Box::new([NONE; WHEEL]),
            tick: 0,
            prefixes: vec![0; DEPTHS + 1],
            digests: 0,
            whole: Vec::with_capacity(packet::ndn::PACKET_MAX + DIGEST),
            expired: 0,
            dead: DeadNonces::new(limits.dead_nonces),
        }
    }

    /// Entries.
    pub fn len(&self) -> usize {
        self.entries.len() - self.free_entries.count as usize
    }

    /// Nobody waits for anything.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Entries whose time ended, since the start.
    pub fn expired(&self) -> u64 {
        self.expired
    }

    /// What an Interest of this face and nonce would meet at `now_ns`; it does not wait yet.
    pub fn seen(&mut self, key: &PitKey<'_>, face: u16, nonce: u32, now_ns: u64) -> Seen {
        self.expire(now_ns);
        let hash = self.hash(&key.name);
        if self.dead.contains(hash, nonce, now_ns) {
            return Seen::Loop;
        }
        let Some(id) = self.find(hash, key) else { return Seen::New };
        let mut is_loop = false;
        self.each_record(&self.entries[id.0 as usize], |other| {
            is_loop |= other.face != face && other.nonce == nonce;
        });
        if is_loop { Seen::Loop } else { Seen::Pending }
    }

    /// An Interest arrives at `now_ns`. Unless it is a loop or there is no room, its face waits from now on.
    pub fn interest(&mut self, key: &PitKey<'_>, record: InRecord, now_ns: u64) -> Arrival {
        self.expire(now_ns);
        let hash = self.hash(&key.name);
        if self.dead.contains(hash, record.nonce, now_ns) {
            return Arrival::Loop;
        }
        let most = now_ns.saturating_add(self.limits.lifetime_max_ms.saturating_mul(1_000_000));
        let record = InRecord { expires_ns: record.expires_ns.min(most), ..record };
        match self.find(hash, key) {
            Some(id) => self.join(id, record, now_ns),
            None => self.add(hash, key, record, now_ns),
        }
    }

    /// The Interest of an entry went to a face.
    pub fn sent(&mut self, id: EntryId, face: u16) {
        self.entries[id.0 as usize].out_face = face;
    }

    /// Forgets an entry, if it is there: its Interest could not be sent.
    pub fn withdraw(&mut self, key: &PitKey<'_>) {
        if let Some(id) = self.find(self.hash(&key.name), key) {
            self.remove(id);
        }
    }

    /// Data of a name and a digest, which is asked for if anybody waits for one, arrives by a face: `send` is called for
    /// each face that waits, that face aside, and their entries are gone. False without a pending Interest: it is
    /// unsolicited.
    pub fn data(
        &mut self,
        name: &Name<'_>,
        digest: impl FnOnce() -> [u8; 32],
        from: u16,
        now_ns: u64,
        mut send: impl FnMut(&InRecord),
    ) -> bool {
        self.expire(now_ns);
        let mut solicited = false;
        let (mut hash, mut end) = (NameHash::new(), 0);
        let depth = name.len();
        if depth == 0 {
            return false; // an Interest has a component
        }
        for (at, component) in name.encodings().enumerate() {
            hash = self.hasher.absorb(hash, component);
            end += component.len();
            if at + 1 < depth && self.prefixes[(at + 1).min(DEPTHS)] == 0 {
                continue;
            }
            let prefix = &name.value()[..end];
            let full = self.hasher.finish(hash);
            let mut next = self.buckets[self.bucket(full)];
            while next != NONE {
                let (id, entry) = (EntryId(next), self.entries[next as usize]);
                next = entry.next;
                let answers = at + 1 == depth || entry.flags & CAN_BE_PREFIX != 0;
                if answers && entry.hash == full && self.has_name(&entry, prefix, at + 1) {
                    solicited = true;
                    self.satisfy(id, from, now_ns, &mut send);
                }
            }
        }
        if self.digests > 0 {
            let digest = digest();
            solicited |= self.digest(hash, name, &digest, from, now_ns, &mut send);
        }
        solicited
    }

    /// The same for those who wait for the digest of the packet; `hash` is that of its name, not finished.
    fn digest(
        &mut self,
        hash: NameHash,
        name: &Name<'_>,
        digest: &[u8; 32],
        from: u16,
        now_ns: u64,
        send: &mut impl FnMut(&InRecord),
    ) -> bool {
        let mut component = [0; DIGEST];
        component[..2].copy_from_slice(&[component_type::IMPLICIT_DIGEST as u8, 32]);
        component[2..].copy_from_slice(digest);
        let mut whole = std::mem::take(&mut self.whole);
        whole.clear();
        whole.extend_from_slice(name.value());
        whole.extend_from_slice(&component);
        let full = self.hasher.finish(self.hasher.absorb(hash, &component));
        let (mut next, mut solicited) = (self.buckets[self.bucket(full)], false);
        while next != NONE {
            let (id, entry) = (EntryId(next), self.entries[next as usize]);
            next = entry.next;
            if entry.hash == full && self.has_name(&entry, &whole, name.len() + 1) {
                solicited = true;
                self.satisfy(id, from, now_ns, send);
            }
        }
        self.whole = whole;
        solicited
    }

    /// Data answers an entry.
    fn satisfy(&mut self, id: EntryId, from: u16, now_ns: u64, send: &mut impl FnMut(&InRecord)) {
        let entry = self.entries[id.0 as usize];
        self.each_record(&entry, |record| {
            if record.face != from && record.expires_ns > now_ns {
                send(record);
            }
        });
        self.bury(&entry, now_ns);
        self.remove(id);
    }

    /// An Interest came back by the face that it went to: `send` is called for each face that waits, and the
    /// entry is gone. False when it had not gone there.
    pub fn nack(
        &mut self,
        key: &PitKey<'_>,
        from: u16,
        now_ns: u64,
        mut send: impl FnMut(&InRecord),
    ) -> bool {
        self.expire(now_ns);
        let found = self.find(self.hash(&key.name), key);
        let Some(id) = found.filter(|id| self.entries[id.0 as usize].out_face == from) else {
            return false;
        };
        let entry = self.entries[id.0 as usize];
        self.each_record(&entry, |record| {
            if record.expires_ns > now_ns {
                send(record);
            }
        });
        self.bury(&entry, now_ns);
        self.remove(id);
        true
    }

    /// Removes what waits no more at `now_ns`; the entries removed. Time does not go back.
    pub fn expire(&mut self, now_ns: u64) -> usize {
        let now = now_ns >> TICK_SHIFT;
        if now <= self.tick {
            return 0;
        }
        let mut removed = 0;
        // After a long pause once round is enough.
        let first = (self.tick + 1).max((now + 1).saturating_sub(WHEEL as u64));
        for tick in first..=now {
            let mut next = self.wheel[tick as usize % WHEEL];
            while next != NONE {
                let (id, entry) = (EntryId(next), self.entries[next as usize]);
                next = entry.wheel_next;
                if entry.expires_ns >> TICK_SHIFT < now {
                    self.bury(&entry, now_ns);
                    self.remove(id);
                    removed += 1;
                } else if entry.expires_ns >> TICK_SHIFT == now {
                    // Not yet at its end: it is looked at again in the next place.
                    self.unlink(id);
                    self.link(id, now + 1);
                }
            }
        }
        self.tick = now;
        self.expired += removed as u64;
        removed
    }

    fn hash(&self, name: &Name<'_>) -> u64 {
        let absorb = |hash, component| self.hasher.absorb(hash, component);
        self.hasher.finish(name.encodings().fold(NameHash::new(), absorb))
    }

    fn bucket(&self, hash: u64) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }

    fn find(&self, hash: u64, key: &PitKey<'_>) -> Option<EntryId> {
        let flags = flags_of(key);
        let mut at = self.buckets[self.bucket(hash)];
        while at != NONE {
            let entry = &self.entries[at as usize];
            if entry.hash == hash
                && entry.flags == flags
                && self.has_name(entry, key.name.value(), key.name.len())
            {
                return Some(EntryId(at));
            }
            at = entry.next;
        }
        None
    }

    fn has_name(&self, entry: &Entry, name: &[u8], depth: usize) -> bool {
        if (usize::from(entry.name_len), usize::from(entry.depth)) != (name.len(), depth) {
            return false;
        }
        let mut block = entry.name;
        name.chunks(BLOCK).all(|piece| {
            let stored = &self.blocks[block as usize];
            block = stored.next;
            stored.bytes[..piece.len()] == *piece
        })
    }

    fn each_record(&self, entry: &Entry, mut each: impl FnMut(&InRecord)) {
        let mut at = entry.records;
        while at != NONE {
            let (record, next) = &self.records[at as usize];
            each(record);
            at = *next;
        }
    }

    /// An Interest for an entry that is there.
    fn join(&mut self, id: EntryId, record: InRecord, now_ns: u64) -> Arrival {
        let entry = self.entries[id.0 as usize];
        let (mut own, mut at, mut looped) = (NONE, entry.records, false);
        while at != NONE {
            let (other, next) = &self.records[at as usize];
            if other.face == record.face {
                own = at;
            } else {
                looped |= other.nonce == record.nonce;
            }
            at = *next;
        }
        if looped {
            return Arrival::Loop;
        }
        let again = own != NONE && self.records[own as usize].0.nonce != record.nonce;
        if own != NONE {
            let before = self.records[own as usize].0;
            if again {
                self.dead.add(entry.hash, before.nonce, now_ns);
            }
            // A reload may have moved the face: the port that the record was charged to gets it back.
            self.records[own as usize].0 = record.on_port(before.port);
        } else {
            let more = [0, 1, 0];
            if let Err(refused) = self.may_hold(record.holder(), more) {
                return refused;
            }
            let Some(at) = self.take_record(record) else { return Arrival::Full };
            self.records[at as usize].1 = entry.records;
            self.entries[id.0 as usize].records = at;
        }
        // A face may ask again for a shorter time.
        let entry = self.entries[id.0 as usize];
        let mut last_ns = 0;
        self.each_record(&entry, |record| last_ns = last_ns.max(record.expires_ns));
        if last_ns != entry.expires_ns {
            self.entries[id.0 as usize].expires_ns = last_ns;
            self.unlink(id);
            self.link(id, last_ns >> TICK_SHIFT);
        }
        if !again {
            return Arrival::Aggregated;
        }
        let entry = &mut self.entries[id.0 as usize];
        if now_ns.saturating_sub(entry.sent_ns) < u64::from(entry.quiet_ms) * 1_000_000 {
            return Arrival::Suppressed;
        }
        entry.sent_ns = now_ns;
        entry.quiet_ms = (2 * entry.quiet_ms).min(QUIET_MAX_MS);
        Arrival::Forward(id)
    }

    /// Whether a holder may have so much more.
    fn may_hold(&self, holder: Holder, more: Amounts) -> Result<(), Arrival> {
        let free = [self.free_entries.count, self.free_records.count, self.free_blocks.count];
        if free.iter().zip(more).any(|(free, more)| *free < more) {
            return Err(Arrival::Full);
        }
        if !self.shares.allows(holder, more, free) {
            return Err(Arrival::Share);
        }
        Ok(())
    }

    fn take_record(&mut self, record: InRecord) -> Option<u32> {
        let at = self.free_records.first;
        let place = self.records.get_mut(at as usize)?;
        self.free_records = Free { first: place.1, count: self.free_records.count - 1 };
        *place = (record, NONE);
        self.shares.take(record.holder(), [0, 1, 0]);
        Some(at)
    }

    /// A new entry. Nothing has changed when it is refused.
    fn add(&mut self, hash: u64, key: &PitKey<'_>, record: InRecord, now_ns: u64) -> Arrival {
        let name = key.name.value();
        let blocks = name.len().div_ceil(BLOCK) as u32;
        if name.len() > usize::from(u16::MAX) {
            return Arrival::Full;
        }
        let owner = record.holder();
        if let Err(refused) = self.may_hold(owner, [1, 1, blocks]) {
            return refused;
        }
        let Some(records) = self.take_record(record) else { return Arrival::Full };
        self.shares.take(owner, [1, 0, blocks]);
        let id = EntryId(self.free_entries.first);
        let bucket = self.bucket(hash);
        let first = self.add_name(name);
        let entry = &mut self.entries[id.0 as usize];
        self.free_entries = Free { first: entry.next, count: self.free_entries.count - 1 };
        *entry = Entry {
            hash,
            next: self.buckets[bucket],
            name: first,
            name_len: name.len() as u16,
            depth: key.name.len() as u16,
            flags: flags_of(key),
            out_face: NO_FACE,
            records,
            expires_ns: record.expires_ns,
            wheel_next: NONE,
            wheel_before: NONE,
            place: 0,
            quiet_ms: QUIET_FIRST_MS,
            sent_ns: now_ns,
            owner,
        };
        self.buckets[bucket] = id.0;
        if key.can_be_prefix {
            self.prefixes[key.name.len().min(DEPTHS)] += 1;
        }
        self.digests += u32::from(flags_of(key) & HAS_DIGEST != 0);
        self.link(id, record.expires_ns >> TICK_SHIFT);
        Arrival::Forward(id)
    }

    /// Puts a name into blocks, of which there are enough; the first.
    fn add_name(&mut self, name: &[u8]) -> u32 {
        let first = self.free_blocks.first;
        let (mut at, mut last) = (first, NONE);
        for piece in name.chunks(BLOCK) {
            let block = &mut self.blocks[at as usize];
            block.bytes[..piece.len()].copy_from_slice(piece);
            (last, at) = (at, block.next);
            self.free_blocks.count -= 1;
        }
        if last == NONE {
            return NONE;
        }
        self.blocks[last as usize].next = NONE;
        self.free_blocks.first = at;
        first
    }

    fn remove(&mut self, id: EntryId) {
        self.unlink(id);
        let entry = self.entries[id.0 as usize];
        let bucket = self.bucket(entry.hash);
        let mut at = self.buckets[bucket];
        if at == id.0 {
            self.buckets[bucket] = entry.next;
        } else {
            while self.entries[at as usize].next != id.0 {
                at = self.entries[at as usize].next;
            }
            self.entries[at as usize].next = entry.next;
        }
        let mut at = entry.records;
        while at != NONE {
            self.shares.give(self.records[at as usize].0.holder(), [0, 1, 0]);
            let next = std::mem::replace(&mut self.records[at as usize].1, self.free_records.first);
            self.free_records = Free { first: at, count: self.free_records.count + 1 };
            at = next;
        }
        self.shares.give(entry.owner, [1, 0, u32::from(entry.name_len).div_ceil(BLOCK as u32)]);
        let mut at = entry.name;
        while at != NONE {
            let next =
                std::mem::replace(&mut self.blocks[at as usize].next, self.free_blocks.first);
            self.free_blocks = Free { first: at, count: self.free_blocks.count + 1 };
            at = next;
        }
        if entry.flags & CAN_BE_PREFIX != 0 {
            self.prefixes[usize::from(entry.depth).min(DEPTHS)] -= 1;
        }
        self.digests -= u32::from(entry.flags & HAS_DIGEST != 0);
        self.entries[id.0 as usize].next = self.free_entries.first;
        self.free_entries = Free { first: id.0, count: self.free_entries.count + 1 };
    }

    /// Remembers the nonces of an entry that goes.
    fn bury(&mut self, entry: &Entry, now_ns: u64) {
        let mut at = entry.records;
        while at != NONE {
            let (record, next) = self.records[at as usize];
            self.dead.add(entry.hash, record.nonce, now_ns);
            at = next;
        }
    }

    fn link(&mut self, id: EntryId, tick: u64) {
        // Something that has ended already is looked at next.
        let place = (tick.max(self.tick + 1) % WHEEL as u64) as u16;
        let first = std::mem::replace(&mut self.wheel[usize::from(place)], id.0);
        if let Some(first) = self.entries.get_mut(first as usize) {
            first.wheel_before = id.0;
        }
        let entry = &mut self.entries[id.0 as usize];
        (entry.place, entry.wheel_next, entry.wheel_before) = (place, first, NONE);
    }

    fn unlink(&mut self, id: EntryId) {
        let Entry { place, wheel_next, wheel_before, .. } = self.entries[id.0 as usize];
        match self.entries.get_mut(wheel_before as usize) {
            Some(before) => before.wheel_next = wheel_next,
            None => self.wheel[usize::from(place)] = wheel_next,
        }
        if let Some(next) = self.entries.get_mut(wheel_next as usize) {
            next.wheel_before = wheel_before;
        }
    }
}

fn flags_of(key: &PitKey<'_>) -> u8 {
    let fresh = if key.must_be_fresh { MUST_BE_FRESH } else { 0 };
    let is_digest =
        key.name.components().last().is_some_and(|c| c.kind == component_type::IMPLICIT_DIGEST);
    let digest = if is_digest { HAS_DIGEST } else { 0 };
    fresh | digest | u8::from(key.can_be_prefix)
}

/// Names and nonces that have been here, in two generations: as one fills, the other is forgotten. A hash leads to
/// [`WAYS`] places; when all are taken, one is overwritten, so the list never grows and now and then forgets early.
#[derive(Debug)]
struct DeadNonces {
    young: Vec<[u64; WAYS]>, // a power of two of them
    old: Vec<[u64; WAYS]>,
    since_ns: u64,
}

/// Places of a hash: half a cache line.
const WAYS: usize = 4;

impl DeadNonces {
    fn new(count: u32) -> Self {
        let sets = (count.clamp(8, 1 << 30) / 8).next_power_of_two() as usize;
        Self { young: vec![[0; WAYS]; sets], old: vec![[0; WAYS]; sets], since_ns: 0 }
    }

    fn key(hash: u64, nonce: u32) -> u64 {
        let mixed = (hash ^ u64::from(nonce) << 29).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = mixed ^ u64::from(nonce).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ mixed >> 31).max(1)
    }

    fn turn(&mut self, now_ns: u64) {
        let age = now_ns.saturating_sub(self.since_ns);
        if age < DEAD_NONCE_NS {
            return;
        }
        std::mem::swap(&mut self.young, &mut self.old);
        self.young.fill([0; WAYS]);
        if age >= 2 * DEAD_NONCE_NS {
            self.old.fill([0; WAYS]);
        }
        self.since_ns = now_ns;
    }

    fn add(&mut self, hash: u64, nonce: u32, now_ns: u64) {
        self.turn(now_ns);
        let key = Self::key(hash, nonce);
        let set = key as usize & (self.young.len() - 1);
        let places = &mut self.young[set];
        let at = places.iter().position(|place| *place == 0 || *place == key);
        places[at.unwrap_or((key >> 62) as usize)] = key;
    }

    fn contains(&mut self, hash: u64, nonce: u32, now_ns: u64) -> bool {
        self.turn(now_ns);
        let key = Self::key(hash, nonce);
        let set = key as usize & (self.young.len() - 1);
        self.young[set].contains(&key) || self.old[set].contains(&key)
    }
}
