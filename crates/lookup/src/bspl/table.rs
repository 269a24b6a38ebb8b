//! The builder's working copy of the table: entries by prefix, and which cache lines changed.

use super::layout::*;
use super::tree::Rope;
use crate::{Blob, Patch, Prefix, TableError};

/// The place of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    line: usize, // of the blob
    index: usize,
    wide: bool,
}

/// How many entries of each kind there are or are to be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) narrow: usize,
    pub(super) wide: usize,
}

impl Counts {
    pub(super) fn add(&mut self, len: u8) {
        if is_wide(len) {
            self.wide += 1;
        } else {
            self.narrow += 1;
        }
    }
}

/// A bucket chain has become too long, or a region too full.
#[derive(Debug)]
pub(super) struct Crowded;

#[derive(Debug, Clone)]
pub(super) struct Table {
    blob: Blob,
    shape: Shape,
    counts: Counts,
    dirty: Vec<u32>, // lines
    replaced: bool,  // all of it
}

/// Maximum distance of an entry from its own bucket.
const CHAIN_MAX: u32 = 24;

impl Table {
    /// An empty table with room for `counts`, at the load that lookups like. Until it is settled or
    /// flushed, all of it counts as changed.
    pub(super) fn new(counts: Counts, seed: u64) -> Result<Self, TableError> {
        // At these loads one bucket in ten or so overflows.
        let shape = Shape {
            narrow: (counts.narrow * 5 / 9).max(16) as u32, // 3 slots, 60 %
            wide: counts.wide.max(16) as u32,               // 2 slots, 50 %
            seed: seed | 1,
        };
        let words = shape.lines() * WORDS_PER_LINE * 2;
        let mut blob = Blob::zeroed(words, words)
            .map_err(|e| TableError::Memory { bytes: words * 4, reason: e.to_string() })?;
        let header = blob.words64_mut();
        header[HEADER_MAGIC] = MAGIC;
        header[HEADER_NARROW] = shape.narrow.into();
        header[HEADER_WIDE] = shape.wide.into();
        header[HEADER_SEED] = shape.seed;
        Ok(Self { blob, shape, counts: Counts::default(), dirty: Vec::new(), replaced: true })
    }

    /// The same entries in a table with more room and another seed. What changed is the whole.
    pub(super) fn grown(&self) -> Result<Self, TableError> {
        let with_reserve = |count: usize| count + count / 4 + 64;
        let mut counts = Counts {
            narrow: with_reserve(self.counts.narrow),
            wide: with_reserve(self.counts.wide),
        };
        let mut seed = self.shape.seed;
        loop {
            seed = next_seed(seed);
            let mut table = Self::new(counts, seed)?;
            if self.copy_to(&mut table).is_ok() {
                return Ok(table);
            }
            // A worse hash than chance: more room helps against any.
            counts =
                Counts { narrow: with_reserve(counts.narrow), wide: with_reserve(counts.wide) };
        }
    }

    fn copy_to(&self, other: &mut Self) -> Result<(), Crowded> {
        other.set_default(self.blob.words64()[HEADER_DEFAULT] as u32);
        let cells = CELLS_LINE * WORDS_PER_LINE..(CELLS_LINE + CELL_LINES) * WORDS_PER_LINE;
        other.blob.words64_mut()[cells.clone()].copy_from_slice(&self.blob.words64()[cells]);
        for line in self.shape.narrow_line()..self.shape.lines() {
            let bucket = *self.line(line);
            let wide = line >= self.shape.wide_line();
            for index in 0..slots(wide) {
                let prefix =
                    if wide { wide_prefix(&bucket, index) } else { narrow_prefix(&bucket, index) };
                if let Some(prefix) = prefix {
                    let slot = Slot { line, index, wide };
                    other.add(prefix, self.rope(slot), self.best(slot))?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    pub(super) fn find(&self, prefix: Prefix<u128>) -> Option<Slot> {
        let wide = is_wide(prefix.len());
        let (first, buckets) = self.region(wide);
        let mut bucket = self.shape.bucket(prefix);
        loop {
            let line = first + bucket as usize;
            let words = self.line(line);
            if let Some(index) = find_in(words, prefix) {
                return Some(Slot { line, index, wide });
            }
            if overflow(words) == 0 {
                return None;
            }
            bucket = next_bucket(bucket, buckets);
        }
    }

    /// Adds an entry that is not there.
    pub(super) fn add(
        &mut self,
        prefix: Prefix<u128>,
        rope: Rope,
        best: u32,
    ) -> Result<Slot, Crowded> {
        let wide = is_wide(prefix.len());
        let (first, buckets) = self.region(wide);
        let used = if wide { self.counts.wide } else { self.counts.narrow };
        if used >= buckets as usize * slots(wide) * 4 / 5 {
            return Err(Crowded);
        }
        let home = self.shape.bucket(prefix);
        let mut bucket = home;
        for distance in 0..CHAIN_MAX.min(buckets) {
            let line = first + bucket as usize;
            if let Some(index) = (0..slots(wide)).find(|i| is_free(self.line(line), wide, *i)) {
                let mut passed = home;
                for _ in 0..distance {
                    let line = first + passed as usize;
                    add_overflow(self.line_mut(line), 1);
                    passed = next_bucket(passed, buckets);
                }
                let slot = Slot { line, index, wide };
                set_key(self.line_mut(line), index, prefix);
                self.set_rope(slot, rope);
                self.set_best(slot, best);
                self.counts.add(prefix.len());
                return Ok(slot);
            }
            bucket = next_bucket(bucket, buckets);
        }
        Err(Crowded)
    }

    pub(super) fn remove(&mut self, prefix: Prefix<u128>, slot: Slot) {
        let (first, buckets) = self.region(slot.wide);
        let mut passed = self.shape.bucket(prefix);
        while first + passed as usize != slot.line {
            let line = first + passed as usize;
            add_overflow(self.line_mut(line), -1);
            passed = next_bucket(passed, buckets);
        }
        clear_slot(self.line_mut(slot.line), slot.wide, slot.index);
        if slot.wide {
            self.counts.wide -= 1;
        } else {
            self.counts.narrow -= 1;
        }
    }

    pub(super) fn rope(&self, slot: Slot) -> Rope {
        Rope(self.line(slot.line)[rope_word(slot.wide, slot.index)])
    }

    pub(super) fn set_rope(&mut self, slot: Slot, rope: Rope) {
        if self.rope(slot) != rope {
            self.line_mut(slot.line)[rope_word(slot.wide, slot.index)] = rope.0;
        }
    }

    pub(super) fn best(&self, slot: Slot) -> u32 {
        best_in(self.line(slot.line), slot.index)
    }

    pub(super) fn set_best(&mut self, slot: Slot, next_hop: u32) {
        if self.best(slot) != next_hop {
            set_best(self.line_mut(slot.line), slot.index, next_hop);
        }
    }

    pub(super) fn cell_rope(&self, cell: usize) -> Rope {
        Rope(self.blob.words64()[cell_word(cell)])
    }

    pub(super) fn set_cell_rope(&mut self, cell: usize, rope: Rope) {
        if self.cell_rope(cell) != rope {
            self.set_word(cell_word(cell), rope.0);
        }
    }

    pub(super) fn set_cell_best(&mut self, cell: usize, next_hop: u32) {
        let word = self.blob.words64()[cell_word(cell) + 1];
        if word as u32 != next_hop {
            self.set_word(cell_word(cell) + 1, word & !0xffff_ffff | u64::from(next_hop));
        }
    }

    /// The parts of the cell in use, one bit each.
    pub(super) fn cell_parts(&self, cell: usize) -> u32 {
        (self.blob.words64()[cell_word(cell) + 1] >> 32) as u32
    }

    pub(super) fn set_cell_parts(&mut self, cell: usize, parts: u32) {
        if self.cell_parts(cell) != parts {
            let word = self.blob.words64()[cell_word(cell) + 1];
            self.set_word(cell_word(cell) + 1, word & 0xffff_ffff | u64::from(parts) << 32);
        }
    }

    pub(super) fn set_default(&mut self, next_hop: u32) {
        self.set_word(HEADER_DEFAULT, next_hop.into());
    }

    pub(super) fn blob(&self) -> &Blob {
        &self.blob
    }

    /// Forgets what changed: the blob itself is handed out.
    pub(super) fn settle(&mut self) {
        self.dirty.clear();
        self.replaced = false;
    }

    /// What changed since, as patches.
    pub(super) fn flush(&mut self, patches: &mut Vec<Patch>) {
        let words = self.blob.words();
        if std::mem::take(&mut self.replaced) {
            patches.push(Patch::Replace(words.to_vec()));
            return;
        }
        self.dirty.sort_unstable();
        self.dirty.dedup();
        for lines in self.dirty.chunk_by(|a, b| a + 1 == *b) {
            let offset_words = lines[0] as usize * WORDS_PER_LINE * 2;
            let count = lines.len() * WORDS_PER_LINE * 2;
            let words = words[offset_words..][..count].to_vec();
            patches.push(Patch::Write { offset_words, words });
        }
        self.dirty.clear();
        self.dirty.shrink_to(1 << 12);
    }

    fn region(&self, wide: bool) -> (usize, u32) {
        if wide {
            (self.shape.wide_line(), self.shape.wide)
        } else {
            (self.shape.narrow_line(), self.shape.narrow)
        }
    }

    fn line(&self, line: usize) -> &Line {
        &self.blob.words64().as_chunks().0[line]
    }

    fn line_mut(&mut self, line: usize) -> &mut Line {
        self.mark(line);
        &mut self.blob.words64_mut().as_chunks_mut().0[line]
    }

    fn set_word(&mut self, word: usize, value: u64) {
        self.mark(word / WORDS_PER_LINE);
        self.blob.words64_mut()[word] = value;
    }

    fn mark(&mut self, line: usize) {
        if !self.replaced && self.dirty.last() != Some(&(line as u32)) {
            self.dirty.push(line as u32);
        }
    }
}

fn next_seed(seed: u64) -> u64 {
    (seed ^ seed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9).wrapping_add(0x9e37_79b9_7f4a_7c15) | 1
}
