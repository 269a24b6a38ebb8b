//! The flow table of one shard: which flow a packet belongs to, for a batch of packets at once.
//!
//! A stateful stage looks for the flow of each packet among millions, whose lines no cache holds. New flows come all the
//! time, most of them perhaps an attacker's, and idle ones must go (GASPP §4.1: "the connection table can easily fill up
//! with adversarial partially-established connections").
//!
//! ```text
//!  FlowKey ─hash─▶ bucket (index) ─slot─▶ line                  and by the same slot
//!                  10 tags, 10 slots      key 48 │ hot 16       time 4 │ class, generation 4 │ links 8
//!                  one line, 64 bytes     one line, 64 bytes    arrays of their own; those of the user too
//! ```
//!
//! - A *slot* is the number of a flow, the same as long as the flow lives. The user keeps 16 bytes (the *hot* half)
//!   beside the key, and all else in arrays of [`capacity`](FlowTable::capacity) elements.
//! - [`FlowTable::lookup`] looks a batch up with overlapping memory accesses ([`interleave`]), and then admits new
//!   flows in the order of the rows. A flow found by a batch reads three lines: bucket, line, time.
//! - Flows have a [`Class`]. *Half-open* ones have a bound of their own; at that bound the one that was admitted first makes
//!   room for a new one. In a full table room is made by the flow that was *closed* first; without one by the oldest half-open
//!   one; without one by a *yielding* one that is idle for long. An established flow (class *full*) never makes room. A flow
//!   with a row in the present batch is not evicted, so that each slot of a batch is valid until the next batch.
//! - [`FlowTable::sweep`] removes idle flows in pieces of bounded work. It streams through the times, four bytes a slot,
//!   and reads only the lines of flows that may be idle.
//!
//! All memory is taken at creation. Every operation has a bound that does not depend on the number of flows, given that
//! the sender does not know the seed. The same seed and the same calls give the same slots and the same order of events.
//!
//! | module | holds |
//! | --- | --- |
//! | `hash` | the keyed hash |
//! | `index` | the buckets: from a hash to slots |
//! | `find` | the search for one key, step by step |
//! | `order` | free slots, and the flows of each class but *full* in order |
//! | `sweep` | removal of idle flows |
//! | `error` | what may fail at creation |
//!
//! Thread rule: a table belongs to one worker; nothing is shared.

mod error;
mod find;
mod hash;
mod index;
mod order;
mod sweep;
#[cfg(test)]
mod tests;

use interleave::{prefetch, run_machine_direct};

use crate::FlowKey;
use error::zeroed;
use find::Finder;
use hash::KeyHash;
use index::{Index, Place};
use order::Order;

pub use error::TableError;
pub(crate) use error::reserved;
pub use sweep::{Swept, Timeouts};

/// The largest capacity of a table, in flows.
pub const CAPACITY_MAX: usize = 1 << 30;

/// The slot that no flow has.
const NIL: u32 = u32::MAX;

/// Keys of a batch whose searches overlap. Measured (`examples/flow_table.rs`): 32 in flight at a time, refilled, are as
/// fast within the noise, and so are groups of 128; 32 are slower.
const GROUP: usize = 64;

/// The number of a flow, below the capacity of its table; the same as long as the flow lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Slot(pub u32);

impl Slot {
    /// Place in an array by slot.
    #[inline(always)]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A slot together with its generation: it names one flow, also after the flow ended and another one has its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle {
    /// The slot.
    pub slot: Slot,
    /// Flows that had this slot before, modulo 2^29.
    pub generation: u32,
}

/// How firmly a flow holds its slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Class {
    /// Not established yet: bounded in number, and evicted where a new flow needs its slot.
    #[default]
    HalfOpen = 1,
    /// Established: stays until it is removed or idle.
    Full = 2,
    /// Over, and kept for late packets: the first to make room in a full table.
    Closed = 3,
    /// Established, but worth less than a new flow: the last to make room in a full table.
    Yielding = 4,
}

impl Class {
    /// The list of its flows; flows of class *full* are in none.
    #[inline(always)]
    const fn list(self) -> Option<usize> {
        match self {
            Class::HalfOpen => Some(0),
            Class::Closed => Some(1),
            Class::Yielding => Some(2),
            Class::Full => None,
        }
    }
}

/// Of so many yielding flows, those that yield longest, the one that is idle longest is evicted.
pub const YIELDING_COMPARED: usize = 8;

/// What became of a row of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Outcome {
    /// A row without a key (`family` is 0).
    #[default]
    Skipped,
    /// The flow was there, or an earlier row of this batch made it.
    Known,
    /// The flow is new; its hot half is `H::default()`.
    New,
    /// The flow was not there, and the policy did not admit it.
    NotAdmitted,
    /// The policy admitted the flow, but there was no slot for it.
    Refused,
}

/// The answer for a row of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Found {
    slot: u32,
    /// What became of the row.
    pub outcome: Outcome,
}

impl Found {
    /// The answer for a row without a key.
    pub const NONE: Found = Found { slot: NIL, outcome: Outcome::Skipped };

    /// The slot of the flow, where there is one (outcomes `Known` and `New`).
    #[inline(always)]
    pub const fn slot(self) -> Option<Slot> {
        if self.slot == NIL { None } else { Some(Slot(self.slot)) }
    }

    /// Whether this row made the flow.
    #[inline(always)]
    pub fn is_new(self) -> bool {
        self.outcome == Outcome::New
    }
}

impl Default for Found {
    fn default() -> Self {
        Self::NONE
    }
}

/// What the user of a table decides and hears during [`FlowTable::lookup`].
///
/// A pair of closures is a policy: `(|row| …, |slot, key, hot| …)`.
pub trait Policy<H> {
    /// The class in which the flow of `row`, which is not in the table, is admitted; `None` if it is not.
    fn admit(&mut self, row: usize) -> Option<Class>;

    /// A flow is evicted: its slot is reused after this call.
    fn evicted(&mut self, slot: Slot, key: &FlowKey, hot: &H);
}

impl<H, A, E> Policy<H> for (A, E)
where
    A: FnMut(usize) -> Option<Class>,
    E: FnMut(Slot, &FlowKey, &H),
{
    fn admit(&mut self, row: usize) -> Option<Class> {
        self.0(row)
    }

    fn evicted(&mut self, slot: Slot, key: &FlowKey, hot: &H) {
        self.1(slot, key, hot);
    }
}

/// Bounds of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Flows at most: 1 to [`CAPACITY_MAX`].
    pub capacity: usize,
    /// Half-open flows at most; more than the capacity means the capacity.
    pub half_open_max: usize,
}

/// Flows since the table was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Inserted.
    pub inserted: u64,
    /// Evicted: flows that made room for new ones.
    pub evicted: u64,
    /// Admitted by the policy, but not inserted: no slot, and nothing to evict.
    pub refused: u64,
    /// Removed by sweeps: idle for their timeout.
    pub expired: u64,
    /// Removed by [`FlowTable::remove`].
    pub removed: u64,
}

/// A flow as [`FlowTable::iter`] shows it.
#[derive(Clone, Copy, Debug)]
pub struct Flow<'a, H> {
    /// Its slot.
    pub slot: Slot,
    /// Its key.
    pub key: &'a FlowKey,
    /// What the user keeps beside the key.
    pub hot: &'a H,
    /// Its class.
    pub class: Class,
    /// When a batch had a row of it last, in the caller's unit.
    pub seen: u32,
}

/// Key and hot half of a flow. A free slot has a key of family 0, which no row has.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
struct Line<H> {
    key: FlowKey,
    hot: H,
}

const _: () = assert!(size_of::<Line<[u64; 2]>>() == 64 && align_of::<Line<[u64; 2]>>() == 64);

/// Class in the low three bits (0: free), generation above.
///
/// ```text
///  31           3 2   0
/// ┌──────────────┬─────┐
/// │  generation  │class│
/// └──────────────┴─────┘
/// ```
#[derive(Clone, Copy, Debug, Default)]
struct Meta(u32);

impl Meta {
    #[inline(always)]
    fn class(self) -> Option<Class> {
        match self.0 & 7 {
            1 => Some(Class::HalfOpen),
            2 => Some(Class::Full),
            3 => Some(Class::Closed),
            4 => Some(Class::Yielding),
            _ => None,
        }
    }

    #[inline(always)]
    fn with(self, class: Class) -> Meta {
        Meta(self.0 & !7 | class as u32)
    }

    /// Free, and one generation later.
    #[inline(always)]
    fn freed(self) -> Meta {
        Meta((self.0 & !7).wrapping_add(8))
    }

    #[inline(always)]
    fn generation(self) -> u32 {
        self.0 >> 3
    }
}

/// The flow table of one shard. See the [module](self).
#[derive(Debug)]
pub struct FlowTable<H> {
    hash: KeyHash,
    index: Index,
    lines: Vec<Line<H>>,
    /// When each flow was seen last; 0: the slot is free.
    times: Vec<u32>,
    metas: Vec<Meta>,
    order: Order,
    half_open_max: u32,
    /// Flows by the number of their class.
    counts: [u32; 5],
    /// Where the next piece of a sweep begins.
    hand: u32,
    statistics: Statistics,
}

/// A time as it is kept: 0 is taken by free slots, and becomes 1.
#[inline(always)]
const fn stamp(now: u32) -> u32 {
    if now == 0 { 1 } else { now }
}

/// Whether a flow was not seen for `timeout`. Times wrap around: one of the last 2^31 is past, others are to come, and a
/// flow that was seen then is not idle. So a timeout of 2^31 or more is never over.
#[inline(always)]
const fn is_idle(now: u32, seen: u32, timeout: u32) -> bool {
    let age = now.wrapping_sub(seen);
    (age >= timeout) & (age <= i32::MAX as u32)
}

/// Whether keys are equal, without a branch for each field.
#[inline(always)]
fn same(x: &FlowKey, y: &FlowKey) -> bool {
    let ([a, b], [c, d]) = (x.addresses, y.addresses);
    let ends = (a[0] ^ c[0]) | (a[1] ^ c[1]) | (b[0] ^ d[0]) | (b[1] ^ d[1]);
    let word = |key: &FlowKey| {
        let [p, q] = key.ports;
        u64::from(p) | u64::from(q) << 16 | u64::from(key.scope) << 32
    };
    let kind = |key: &FlowKey| {
        let tunnels = u64::from(key.tunnels) << 16 | u64::from(key.tunnel_id) << 32;
        u64::from(key.protocol) | u64::from(key.family) << 8 | tunnels
    };
    ends | (word(x) ^ word(y)) | (kind(x) ^ kind(y)) == 0
}

impl<H: Copy + Default> FlowTable<H> {
    /// An empty table. `seed` selects the hash: draw it at random, and do not show it.
    ///
    /// # Errors
    /// If the capacity is 0 or beyond [`CAPACITY_MAX`], or the memory cannot be allocated.
    pub fn new(limits: Limits, seed: u64) -> Result<Self, TableError> {
        const {
            assert!(size_of::<H>() <= 16, "the hot half has 16 bytes at most");
            assert!(size_of::<Line<H>>() == 64, "key and hot half are one cache line");
        }
        let capacity = limits.capacity;
        if capacity == 0 {
            return Err(TableError::Zero);
        }
        if capacity > CAPACITY_MAX {
            return Err(TableError::TooLarge { capacity });
        }
        Ok(Self {
            hash: KeyHash::new(seed),
            index: Index::new(capacity)?,
            lines: zeroed(capacity)?,
            times: zeroed(capacity)?,
            metas: zeroed(capacity)?,
            order: Order::new(capacity)?,
            half_open_max: limits.half_open_max.min(capacity) as u32,
            counts: [0; 5],
            hand: 0,
            statistics: Statistics::default(),
        })
    }

    /// Bytes of memory that a table of `capacity` flows takes, 91 a flow.
    pub const fn memory_bytes(capacity: usize) -> usize {
        let slot = size_of::<Line<H>>() + size_of::<u32>() + size_of::<Meta>();
        capacity * slot + Index::memory_bytes(capacity) + Order::memory_bytes(capacity)
    }

    /// Flows at most, and the length of arrays by slot.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.lines.len()
    }

    /// Flows in the table.
    #[inline]
    pub fn len(&self) -> usize {
        self.counts.iter().sum::<u32>() as usize
    }

    /// Whether there is no flow.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Flows of a class.
    #[inline]
    pub fn count(&self, class: Class) -> usize {
        self.counts[class as usize] as usize
    }

    /// Half-open flows at most.
    #[inline]
    pub fn half_open_max(&self) -> usize {
        self.half_open_max as usize
    }

    /// Flows since creation.
    #[inline]
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// Finds the flow of each row or, where `policy` admits it, inserts it, in the order of rows. Rows whose key has
    /// family 0 are skipped. Of several rows with the same new key, the first one is [`Outcome::New`] and the others are
    /// [`Outcome::Known`]. Each flow that is found or inserted is seen `now` (any unit; it may wrap around).
    ///
    /// A slot in `found` is valid until the next call that inserts or removes flows: no flow with a row in this batch is
    /// evicted by it.
    ///
    /// # Panics
    /// When the slices differ in length.
    pub fn lookup(
        &mut self,
        keys: &[FlowKey],
        now: u32,
        policy: &mut impl Policy<H>,
        found: &mut [Found],
    ) {
        self.search(keys, found);
        self.settle(keys, now, policy, found);
    }

    /// The first half of [`lookup`](Self::lookup): finds the flow of each row that is there. Nothing changes, and a row without
    /// one is [`Outcome::NotAdmitted`].
    ///
    /// # Panics
    /// When the slices differ in length.
    pub fn search(&self, keys: &[FlowKey], found: &mut [Found]) {
        assert_eq!(keys.len(), found.len(), "one answer for each key");
        for (keys, found) in keys.chunks(GROUP).zip(found.chunks_mut(GROUP)) {
            self.search_group::<false>(keys, &[], found);
        }
    }

    /// The same, where the caller guesses the slots of flows: one for each row, beyond the capacity for no guess. A flow that has
    /// the guessed slot is found without its bucket. The answers are those of [`search`](Self::search), whatever is guessed.
    ///
    /// # Panics
    /// When the slices differ in length.
    pub fn search_guessed(&self, keys: &[FlowKey], guesses: &[Slot], found: &mut [Found]) {
        assert_eq!(keys.len(), found.len(), "one answer for each key");
        assert_eq!(keys.len(), guesses.len(), "one guess for each key");
        let groups = keys.chunks(GROUP).zip(guesses.chunks(GROUP)).zip(found.chunks_mut(GROUP));
        for ((keys, guesses), found) in groups {
            self.search_group::<true>(keys, guesses, found);
        }
    }

    /// The same of [`GROUP`] keys at most: first all buckets, then all lines. Nearly every search ends there.
    #[inline(always)]
    fn search_group<const GUESSED: bool>(
        &self,
        keys: &[FlowKey],
        guesses: &[Slot],
        found: &mut [Found],
    ) {
        let mut places = [Place { bucket: 0, tag: 0 }; GROUP];
        let guess = |row: usize| if GUESSED { guesses[row].index() } else { NIL as usize };
        for (row, (key, place)) in keys.iter().zip(&mut places).enumerate() {
            if let (Some(line), Some(time)) =
                (self.lines.get(guess(row)), self.times.get(guess(row)))
            {
                prefetch(line);
                prefetch(time);
                continue;
            }
            *place = self.index.place(self.hash.of(key));
            prefetch(self.index.bucket(place.bucket));
        }
        for (row, (place, found)) in places.iter().zip(&mut *found).enumerate() {
            if guess(row) < self.lines.len() {
                found.slot = guess(row) as u32;
                continue;
            }
            let bucket = self.index.bucket(place.bucket);
            found.slot = match bucket.matches(place.tag) {
                0 => NIL,
                ways => bucket.slot(ways.trailing_zeros()),
            };
            let at = found.slot as usize;
            if let (Some(line), Some(time)) = (self.lines.get(at), self.times.get(at)) {
                prefetch(line);
                prefetch(time);
            }
        }
        for ((key, place), found) in keys.iter().zip(&places).zip(found) {
            let is_over = match self.lines.get(found.slot as usize) {
                Some(line) => same(&line.key, key),
                None => !self.index.bucket(place.bucket).is_passed(),
            };
            if key.family == 0 {
                *found = Found::NONE;
                continue;
            }
            if !is_over {
                found.slot = self.find_hashed(key, self.hash.of(key)).unwrap_or(NIL);
            }
            found.outcome = if found.slot == NIL { Outcome::NotAdmitted } else { Outcome::Known };
        }
    }

    /// The second half of it: what was found is seen, and what was not is inserted. A row may be taken back in between: its key has
    /// family 0 then, and its answer is [`Found::NONE`].
    ///
    /// # Panics
    /// When the slices differ in length.
    pub fn settle(
        &mut self,
        keys: &[FlowKey],
        now: u32,
        policy: &mut impl Policy<H>,
        found: &mut [Found],
    ) {
        assert_eq!(keys.len(), found.len(), "one answer for each key");
        let stamp = stamp(now);
        if self.touch(stamp, found) {
            self.insert_missing(keys, stamp, policy, found);
        }
    }

    /// As [`lookup`](Self::lookup), one row after the other: to measure what overlapping gains.
    ///
    /// # Panics
    /// When the slices differ in length.
    pub fn lookup_direct(
        &mut self,
        keys: &[FlowKey],
        now: u32,
        policy: &mut impl Policy<H>,
        found: &mut [Found],
    ) {
        run_machine_direct(&Finder(self), keys, found);
        let stamp = stamp(now);
        if self.touch(stamp, found) {
            self.insert_missing(keys, stamp, policy, found);
        }
    }

    /// The slot of a key. For tests and requests; packets are looked up in batches.
    pub fn find(&self, key: &FlowKey) -> Option<Slot> {
        let mut found = [Found::NONE];
        run_machine_direct(&Finder(self), std::slice::from_ref(key), &mut found);
        found[0].slot()
    }

    /// Marks what was found as seen. True: a row has a key and no flow.
    #[inline(always)]
    fn touch(&mut self, stamp: u32, found: &[Found]) -> bool {
        let mut missing = false;
        for row in found {
            match self.times.get_mut(row.slot as usize) {
                Some(time) => *time = stamp,
                None => missing |= row.outcome == Outcome::NotAdmitted,
            }
        }
        missing
    }

    fn insert_missing(
        &mut self,
        keys: &[FlowKey],
        stamp: u32,
        policy: &mut impl Policy<H>,
        found: &mut [Found],
    ) {
        let before = self.statistics.inserted;
        // For want of a slot, and of a half-open flow at their bound.
        let mut exhausted = [false; 2];
        for (row, key) in keys.iter().enumerate() {
            if found[row].outcome != Outcome::NotAdmitted {
                continue;
            }
            // The packets of a new flow are often together.
            if let Some(last) = row.checked_sub(1)
                && found[last].slot != NIL
                && same(&keys[last], key)
            {
                found[row] = Found { slot: found[last].slot, outcome: Outcome::Known };
                continue;
            }
            let hash = self.hash.of(key);
            if self.statistics.inserted != before
                && let Some(slot) = self.find_hashed(key, hash)
            {
                found[row] = Found { slot, outcome: Outcome::Known };
                continue;
            }
            let Some(class) = policy.admit(row) else { continue };
            let at_bound = self.is_at_bound(class);
            let has_room = !at_bound && self.len() < self.capacity()
                || !exhausted[usize::from(at_bound)] && self.evict(at_bound, stamp, found, policy);
            let slot = if has_room { self.order.take() } else { None };
            found[row] = match slot {
                Some(slot) => {
                    self.insert(key, hash, slot, class, stamp);
                    Found { slot, outcome: Outcome::New }
                }
                None => {
                    // The flows of a batch only become more, so this holds for its further rows too.
                    exhausted[usize::from(at_bound)] = true;
                    self.statistics.refused += 1;
                    Found { slot: NIL, outcome: Outcome::Refused }
                }
            };
        }
    }

    fn find_hashed(&self, key: &FlowKey, hash: u64) -> Option<u32> {
        let finder = Finder(self);
        let mut search = finder.start(hash);
        while finder.advance(key, &mut search) {}
        Some(search.slot).filter(|slot| *slot != NIL)
    }

    #[inline]
    fn is_at_bound(&self, class: Class) -> bool {
        class == Class::HalfOpen && self.counts[class as usize] >= self.half_open_max
    }

    /// Evicts a flow without a row in this batch: a half-open one at their bound (`at_bound`), else one of the first class that
    /// has one.
    fn evict(
        &mut self,
        at_bound: bool,
        stamp: u32,
        found: &[Found],
        policy: &mut impl Policy<H>,
    ) -> bool {
        let classes: &[Class] = match at_bound {
            true => &[Class::HalfOpen],
            false => &[Class::Closed, Class::HalfOpen, Class::Yielding],
        };
        for &class in classes {
            let Some(slot) = self.choose(class, stamp, found) else { continue };
            let at = slot as usize;
            policy.evicted(Slot(slot), &self.lines[at].key, &self.lines[at].hot);
            self.release(slot, class);
            self.statistics.evicted += 1;
            return true;
        }
        false
    }

    /// The flow of a class that came to it first and has no row in this batch. One with a row becomes the newest: it has a
    /// second chance, and is passed once in a batch at most. Yielding flows are [compared](YIELDING_COMPARED).
    fn choose(&mut self, class: Class, stamp: u32, found: &[Found]) -> Option<u32> {
        let list = class.list()?;
        // All flows of the batch have its time, so few others are compared with the rows.
        let is_of_batch =
            |time: u32, slot: u32| time == stamp && found.iter().any(|row| row.slot == slot);
        for _ in 0..self.counts[class as usize] {
            let first = self.order.oldest(list);
            self.ask_ahead(first);
            if is_of_batch(self.times[first as usize], first) {
                self.order.renew(list, first);
                continue;
            }
            if class != Class::Yielding {
                return Some(first);
            }
            let age = |slot: u32| (stamp.wrapping_sub(self.times[slot as usize]) as i32).max(0);
            let (mut idlest, mut slot) = (first, first);
            for _ in 1..YIELDING_COMPARED {
                slot = self.order.next(slot);
                let Some(&time) = self.times.get(slot as usize) else { break };
                if age(slot) > age(idlest) && !is_of_batch(time, slot) {
                    idlest = slot;
                }
            }
            if idlest != first {
                self.order.renew(list, first);
            }
            return Some(idlest);
        }
        None
    }

    /// Starts loading what the evictions after that of `slot` read: of the next one its bucket, for its line is there
    /// by now; of the one after it its line.
    #[inline]
    fn ask_ahead(&self, slot: u32) {
        let next = self.order.next(slot);
        if let Some(line) = self.lines.get(next as usize) {
            self.index.prefetch(self.hash.of(&line.key));
            let after = self.order.next(next);
            if let Some(line) = self.lines.get(after as usize) {
                self.order.prefetch(after);
                prefetch(line);
            }
        }
    }

    /// Makes a free slot a flow.
    fn insert(&mut self, key: &FlowKey, hash: u64, slot: u32, class: Class, stamp: u32) {
        let at = slot as usize;
        self.lines[at] = Line { key: *key, hot: H::default() };
        self.times[at] = stamp;
        self.metas[at] = self.metas[at].with(class);
        self.index.insert(hash, slot);
        self.enter(slot, class);
        self.statistics.inserted += 1;
    }

    /// Makes a flow a free slot.
    fn release(&mut self, slot: u32, class: Class) {
        let at = slot as usize;
        self.index.remove(self.hash.of(&self.lines[at].key), slot);
        self.leave(slot, class);
        self.lines[at].key = FlowKey::default();
        self.times[at] = 0;
        self.metas[at] = self.metas[at].freed();
        self.order.free(slot);
    }

    fn enter(&mut self, slot: u32, class: Class) {
        if let Some(list) = class.list() {
            self.order.push(list, slot);
        }
        self.counts[class as usize] += 1;
    }

    fn leave(&mut self, slot: u32, class: Class) {
        if let Some(list) = class.list() {
            self.order.unlink(list, slot);
        }
        self.counts[class as usize] -= 1;
    }

    /// Class of a flow; `None` if the slot is free.
    #[inline]
    pub fn class(&self, slot: Slot) -> Option<Class> {
        self.metas.get(slot.index())?.class()
    }

    /// Moves a flow to a class, and says whether it is in this class now. It is not if the slot is free, or if the flow
    /// would be one half-open flow too many.
    pub fn set_class(&mut self, slot: Slot, class: Class) -> bool {
        let Some(old) = self.class(slot) else { return false };
        if old == class {
            return true;
        }
        if self.is_at_bound(class) {
            return false;
        }
        self.leave(slot.0, old);
        self.enter(slot.0, class);
        let meta = &mut self.metas[slot.index()];
        *meta = meta.with(class);
        true
    }

    /// The flow that is longest in a class; `None` if there is none, or if the class is *full*, whose flows have no order.
    pub fn oldest(&self, class: Class) -> Option<Slot> {
        Some(self.order.oldest(class.list()?)).filter(|slot| *slot != NIL).map(Slot)
    }

    /// The flow that came to the class of `slot` after it.
    pub fn next_oldest(&self, slot: Slot) -> Option<Slot> {
        self.class(slot)?.list()?;
        Some(self.order.next(slot.0)).filter(|slot| *slot != NIL).map(Slot)
    }

    /// Makes a flow the one that came to its class last.
    pub fn renew(&mut self, slot: Slot) {
        if let Some(list) = self.class(slot).and_then(Class::list) {
            self.order.renew(list, slot.0);
        }
    }

    /// Removes a flow; `None` if the slot is free.
    pub fn remove(&mut self, slot: Slot) -> Option<(FlowKey, H)> {
        let class = self.class(slot)?;
        let Line { key, hot } = self.lines[slot.index()];
        self.release(slot.0, class);
        self.statistics.removed += 1;
        Some((key, hot))
    }

    #[inline(always)]
    fn live(&self, slot: Slot) -> Option<&Line<H>> {
        self.lines.get(slot.index()).filter(|line| line.key.family != 0)
    }

    /// What the user keeps beside the key; `None` if the slot is free.
    #[inline]
    pub fn get(&self, slot: Slot) -> Option<&H> {
        Some(&self.live(slot)?.hot)
    }

    /// The same, to write.
    #[inline]
    pub fn get_mut(&mut self, slot: Slot) -> Option<&mut H> {
        let line = self.lines.get_mut(slot.index()).filter(|line| line.key.family != 0)?;
        Some(&mut line.hot)
    }

    /// Key of a flow, and what the user keeps beside it, to write; `None` if the slot is free.
    #[inline]
    pub fn entry_mut(&mut self, slot: Slot) -> Option<(&FlowKey, &mut H)> {
        let line = self.lines.get_mut(slot.index()).filter(|line| line.key.family != 0)?;
        Some((&line.key, &mut line.hot))
    }

    /// Key of a flow; `None` if the slot is free.
    #[inline]
    pub fn key(&self, slot: Slot) -> Option<&FlowKey> {
        Some(&self.live(slot)?.key)
    }

    /// Says that a flow was seen elsewhere, `now`.
    #[inline]
    pub fn set_seen(&mut self, slot: Slot, now: u32) {
        if let Some(time) = self.times.get_mut(slot.index()).filter(|time| **time != 0) {
            *time = stamp(now);
        }
    }

    /// When a batch had a row of this flow last, where 0 is shown as 1; `None` if the slot is free.
    #[inline]
    pub fn seen(&self, slot: Slot) -> Option<u32> {
        self.times.get(slot.index()).copied().filter(|time| *time != 0)
    }

    /// Starts loading key and hot half of a flow, for a caller whose flows name other flows.
    #[inline(always)]
    pub fn prefetch(&self, slot: Slot) {
        if let Some(line) = self.lines.get(slot.index()) {
            prefetch(line);
        }
    }

    /// Starts loading what the removal of a flow reads beside its [line](Self::prefetch), which is there by now.
    #[inline(always)]
    pub fn prefetch_removal(&self, slot: Slot) {
        if let Some(line) = self.live(slot) {
            self.index.prefetch(self.hash.of(&line.key));
            self.order.prefetch(slot.0);
        }
    }

    /// Slots that were in use at some time: those from here on are free.
    #[inline]
    pub fn used(&self) -> usize {
        self.order.fresh() as usize
    }

    /// Flows among `slots` slots from `first` on that were not seen for `timeout`, in the order of slots. It reads the
    /// times, four bytes a slot, and nothing else.
    pub fn idle_from(
        &self,
        first: Slot,
        slots: usize,
        now: u32,
        timeout: u32,
    ) -> impl Iterator<Item = Slot> {
        let end = first.index().saturating_add(slots).min(self.used());
        let times = self.times.get(first.index()..end).unwrap_or_default();
        let is_old = move |seen: u32| seen != 0 && is_idle(now, seen, timeout);
        let all = times.iter().enumerate().filter(move |(_, seen)| is_old(**seen));
        all.map(move |(at, _)| Slot(first.0 + at as u32))
    }

    /// The name of this flow, for use after calls that may end it; `None` if the slot is free.
    #[inline]
    pub fn handle(&self, slot: Slot) -> Option<Handle> {
        let meta = self.metas.get(slot.index()).filter(|meta| meta.class().is_some())?;
        Some(Handle { slot, generation: meta.generation() })
    }

    /// The slot of a flow that may have ended; `None` if it did.
    #[inline]
    pub fn resolve(&self, handle: Handle) -> Option<Slot> {
        (self.handle(handle.slot)? == handle).then_some(handle.slot)
    }

    /// All flows, in the order of slots.
    pub fn iter(&self) -> impl Iterator<Item = Flow<'_, H>> {
        self.iter_from(Slot(0))
    }

    /// The flows from a slot on, in the order of slots: to show a large table in pieces.
    pub fn iter_from(&self, first: Slot) -> impl Iterator<Item = Flow<'_, H>> {
        (first.0..self.order.fresh()).filter_map(|at| {
            let slot = Slot(at);
            let class = self.class(slot)?;
            let Line { key, hot } = self.live(slot)?;
            Some(Flow { slot, key, hot, class, seen: self.times[slot.index()] })
        })
    }
}
