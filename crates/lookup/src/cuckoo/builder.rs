//! From changes to patches, and to a new table when the old one is full.
//!
//! ```text
//!            insert, remove ──┬──────────▶ current   (blob, patches: what readers see)
//!                             └ the same ─▶ next      (aside, without readers)
//!            step: lines of current, from the first to the last ──▶ next;  then one Replace
//! ```
//!
//! While a table is built aside it holds no entry that the current one has not. Every insert and remove goes to
//! both, and the cursor brings the rest. What a path of moves carries back over the cursor is missed: the lines
//! are walked again until both hold the same number of entries, and so the same entries.

use std::hash::{BuildHasher, RandomState};

use super::layout::*;
use super::table::{Table, seed_of};
use crate::{Blob, Patch, TableError};

/// How much a table may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Entries at most.
    pub entries: usize,
    /// Entries that it has room for from the start; beyond that it grows, twofold each time.
    pub reserve: usize,
}

impl Default for Limits {
    /// 16 million entries at most, room for a thousand at first.
    fn default() -> Self {
        Self { entries: 16 << 20, reserve: 1000 }
    }
}

/// The entries, as the control side changes them.
#[derive(Debug)]
pub struct CuckooBuilder<K: CuckooKey> {
    current: Table<K>,
    next: Option<Rebuild<K>>,
    limits: Limits,
    seed: u64,
    /// Tables made so far: each has another seed.
    tables: u32,
}

/// A table that is built aside.
#[derive(Debug)]
struct Rebuild<K> {
    table: Table<K>,
    /// Lines of the current table before this one are done.
    cursor: u32,
}

impl<K: CuckooKey> CuckooBuilder<K> {
    /// An empty table, with a secret seed.
    ///
    /// # Errors
    /// The system gives no memory.
    pub fn new(limits: Limits) -> Result<(Self, Blob), TableError> {
        Self::with_seed(limits, RandomState::new().hash_one(0))
    }

    /// An empty table whose seeds follow from `seed`: for tests and measurements.
    ///
    /// # Errors
    /// As [`CuckooBuilder::new`].
    pub fn with_seed(limits: Limits, seed: u64) -> Result<(Self, Blob), TableError> {
        let mut current = Table::new(buckets_for::<K>(limits.reserve), seed_of(seed, 0))?;
        let blob = copy(current.blob())?;
        current.publish();
        Ok((Self { current, next: None, limits, seed, tables: 1 }, blob))
    }

    /// A table of these entries; of a key that comes twice the last one.
    ///
    /// # Errors
    /// More entries than the limits allow, a value that is [`CuckooKey::MISS`], or no memory.
    pub fn build(
        entries: impl IntoIterator<Item = (K, K::Value)>,
        limits: Limits,
    ) -> Result<(Self, Blob), TableError> {
        let (mut builder, _) = Self::new(limits)?;
        let mut nobody = Vec::new();
        for (key, value) in entries {
            builder.insert(key, value, &mut nobody)?;
            nobody.clear();
        }
        while builder.step(usize::MAX, &mut nobody)? {}
        let blob = copy(builder.current.blob())?;
        Ok((builder, blob))
    }

    /// Adds an entry or replaces its value, appending the patches to `patches`; the value that stood there.
    ///
    /// # Errors
    /// The table is full ([`TableError::Full`]) or the value is [`CuckooKey::MISS`]; nothing has changed then,
    /// but what was built aside may have become the table.
    pub fn insert(
        &mut self,
        key: K,
        value: K::Value,
        patches: &mut Vec<Patch>,
    ) -> Result<Option<K::Value>, TableError> {
        if value == K::MISS {
            return Err(TableError::Reserved);
        }
        let before = self.current.find(&key);
        if let Some((place, before)) = before {
            if before != value {
                self.current.set(place, (key, value));
                self.follow(key, Some(value));
                self.current.flush(patches);
            }
            return Ok(Some(before));
        }
        if self.len() >= self.limits.entries {
            return Err(self.full());
        }
        // As a rule the first try succeeds; a table under attack is built anew, perhaps more than once.
        for _ in 0..TRIES {
            if self.current.add((key, value)).is_ok() {
                self.current.flush(patches);
                self.follow(key, Some(value));
                if self.next.is_none() && self.is_crowded() {
                    // Without memory for a larger table this one goes on as long as it can.
                    let _ = self.begin(self.larger());
                }
                return Ok(None);
            }
            if self.next.is_none() {
                self.begin(self.larger())?;
            }
            while self.step(usize::MAX, patches)? {}
        }
        Err(self.full())
    }

    /// Removes an entry, appending the patches to `patches`; its value, `None` when it was not there.
    pub fn remove(&mut self, key: &K, patches: &mut Vec<Patch>) -> Option<K::Value> {
        let (place, value) = self.current.find(key)?;
        self.current.remove(place);
        self.current.flush(patches);
        self.follow(*key, None);
        Some(value)
    }

    /// The value of a key.
    pub fn get(&self, key: &K) -> Option<K::Value> {
        Some(self.current.find(key)?.1)
    }

    /// Entries.
    pub fn len(&self) -> usize {
        self.current.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What the table may hold.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Entries that are in the stash, because both their buckets were full.
    pub fn stashed(&self) -> usize {
        self.current.stashed()
    }

    /// Memory of the table, and of the one that is built aside, bytes.
    pub fn len_bytes(&self) -> usize {
        let aside = self.next.as_ref().map_or(0, |next| next.table.blob().len_bytes());
        self.current.blob().len_bytes() + aside
    }

    /// Every entry, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (K, K::Value)> {
        self.current.lines().flat_map(|line| self.current.entries(line))
    }

    /// Whether a table is built aside, so that [`CuckooBuilder::step`] has something to do.
    pub fn is_rebuilding(&self) -> bool {
        self.next.is_some()
    }

    /// Begins a table of the same size with another seed.
    ///
    /// # Errors
    /// The system gives no memory.
    pub fn rehash(&mut self) -> Result<(), TableError> {
        self.begin(self.current.buckets())
    }

    /// Goes on with the table that is built aside, by `lines` lines at most; true while there is more to do. The
    /// last step appends the patch that brings it in.
    ///
    /// # Errors
    /// The system gives no memory; the table that serves goes on.
    pub fn step(&mut self, lines: usize, patches: &mut Vec<Patch>) -> Result<bool, TableError> {
        let Some(next) = &mut self.next else { return Ok(false) };
        let all = self.current.lines();
        let end = all.end.min(next.cursor.saturating_add(u32::try_from(lines).unwrap_or(u32::MAX)));
        let crowded = (next.cursor..end).any(|line| {
            self.current.entries(line).any(|entry| put(&mut next.table, entry).is_err())
        });
        next.cursor = end;
        if crowded {
            self.begin(self.larger())?;
            return Ok(self.next.is_some());
        }
        if end < all.end {
            return Ok(true);
        }
        if next.table.len() < self.current.len() {
            // Moves have carried entries over the cursor.
            next.cursor = all.start;
            return Ok(true);
        }
        if let Some(next) = self.next.take() {
            self.current = next.table;
            patches.push(Patch::Replace(self.current.blob().words().to_vec()));
            self.current.publish();
        }
        Ok(false)
    }

    /// Brings a change to the table that is built aside.
    fn follow(&mut self, key: K, value: Option<K::Value>) {
        let Some(next) = &mut self.next else { return };
        let done = match value {
            Some(value) => put(&mut next.table, (key, value)),
            None => {
                if let Some((place, _)) = next.table.find(&key) {
                    next.table.remove(place);
                }
                Ok(())
            }
        };
        if done.is_err() {
            // Another one, or none: then the next insert that finds no room begins it.
            self.next = None;
            let _ = self.begin(self.larger());
        }
    }

    /// Begins a table aside, in place of one that was under way.
    fn begin(&mut self, buckets: u32) -> Result<(), TableError> {
        let table = Table::new(buckets, seed_of(self.seed, self.tables));
        self.tables = self.tables.wrapping_add(1);
        self.next = None;
        self.next = Some(Rebuild { table: table?, cursor: STASH_LINE as u32 });
        Ok(())
    }

    /// Whether it is time to build a table aside.
    fn is_crowded(&self) -> bool {
        let can_grow = self.larger() > self.current.buckets();
        let ways = self.current.buckets() as usize * K::WAYS;
        if can_grow {
            self.len() * 100 > ways * K::LOAD_MAX || self.current.stashed() > 0
        } else {
            self.current.stashed() > Table::<K>::STASH / 2
        }
    }

    /// Buckets of the next table: twice as many where the limit leaves room and the table is not nearly empty
    /// (then other seeds are what helps).
    fn larger(&self) -> u32 {
        let now = self.current.buckets();
        let most = buckets_for::<K>(self.limits.entries).max(now);
        let ways = now as usize * K::WAYS;
        if self.len() < ways / 2 { now } else { now.saturating_mul(2).min(most) }
    }

    fn full(&self) -> TableError {
        let clamp = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let (used, limit) = (clamp(self.len()), clamp(self.limits.entries));
        TableError::Full { what: "entries", used, limit }
    }
}

/// Tables with other seeds that an insert tries before it gives up.
const TRIES: usize = 8;

/// Adds an entry or sets its value.
fn put<K: CuckooKey>(
    table: &mut Table<K>,
    entry: (K, K::Value),
) -> Result<(), super::table::Crowded> {
    match table.find(&entry.0) {
        Some((place, value)) => {
            if value != entry.1 {
                table.set(place, entry);
            }
            Ok(())
        }
        None => table.add(entry),
    }
}

/// Number of buckets that suits so many entries.
fn buckets_for<K: CuckooKey>(entries: usize) -> u32 {
    let buckets = (entries * 100).div_ceil(K::WAYS * K::LOAD_MAX);
    u32::try_from(buckets).unwrap_or(u32::MAX).max(BUCKETS_MIN)
}

fn copy(blob: &Blob) -> Result<Blob, TableError> {
    blob.try_clone()
        .map_err(|e| TableError::Memory { bytes: blob.len_bytes(), reason: e.to_string() })
}
