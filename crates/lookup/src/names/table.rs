//! The builder's working copy of the table: hints, entries and names, and which lines changed.

use super::hash::PrefixKey;
use super::layout::*;
use super::store::{Store, units_of};
use crate::{Blob, NextHopId, Patch, TableError};

/// The place of an entry or a hint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) line: u32,
    pub(super) index: usize,
}

/// Maximum distance of an entry from its own line.
const CHAIN_MAX: u32 = 64;

/// Lines that the names' region grows by: 64 KB.
const GROW_LINES: usize = 1024;

#[derive(Debug)]
pub(super) struct Table {
    blob: Blob,
    shape: Shape,
    store: Store,
    dirty: Vec<u32>, // lines
    grown: bool,
    settled: bool, // the blob has been handed out
    /// Hint lines and bucket lines that nothing overflowed. Invariant: at least one of each, for there a search
    /// in a ring of lines ends.
    open: [u32; 2],
}

/// How large a table is to be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub(super) hints: usize,
    pub(super) prefixes: usize,
    pub(super) name_bytes: usize, // at once
    pub(super) name_bytes_max: usize,
}

impl Table {
    /// An empty table.
    pub(super) fn new(sizes: Sizes, seed: u64, hint_depth: usize) -> Result<Self, TableError> {
        // Three of five places, or of four, in use: one line in ten or so overflows.
        // A prefix must find its place also in the smallest table; a hint need not.
        let lines =
            |count: usize, of: usize, least| count.div_ceil(of).clamp(least, 1 << 30) as u32;
        let shape =
            Shape { hints: lines(sizes.hints, 3, 4), buckets: lines(sizes.prefixes * 2, 5, 16) };
        let limit = sizes.name_bytes_max.div_ceil(UNIT_BYTES).min(u32::MAX as usize / 2);
        let store = Store::new((limit as u32).next_multiple_of(LINE_UNITS));
        let words = |lines: usize| (shape.name_line() as usize + lines) * 16;
        let name_lines = sizes.name_bytes.div_ceil(64).max(1);
        let blob =
            Blob::zeroed(words(name_lines), words((store.limit() / LINE_UNITS) as usize)).map_err(
                |e| TableError::Memory { bytes: words(name_lines) * 4, reason: e.to_string() },
            )?;
        let mut table = Self {
            blob,
            shape,
            store,
            dirty: Vec::new(),
            grown: false,
            settled: false,
            open: [shape.hints, shape.buckets],
        };
        let header = table.line_mut(0);
        header[HEADER_MAGIC] = MAGIC;
        header[HEADER_SEED] = seed;
        header[HEADER_HINTS] = shape.hints.into();
        header[HEADER_BUCKETS] = shape.buckets.into();
        header[HEADER_DEPTHS] = (hint_depth as u64) << 32;
        Ok(table)
    }

    /// The entry of a prefix, whose bytes are `bytes`.
    pub(super) fn find(&self, prefix: PrefixKey, depth: usize, bytes: &[u8]) -> Option<Slot> {
        let mut line = self.shape.bucket_of(prefix.hash);
        loop {
            let words = self.line(line);
            for index in 0..ENTRIES {
                let entry = entry(words, index);
                let may_be = entry.next_hop != 0
                    && entry.tag == prefix.hash as u32
                    && (entry.len, entry.depth) == (bytes.len() as u16, depth as u8);
                if may_be && is_name(self.name_words(entry), bytes) {
                    return Some(Slot { line, index });
                }
            }
            if overflow(words) == 0 {
                return None;
            }
            line = self.shape.next_bucket(line);
        }
    }

    fn name_words(&self, entry: Entry) -> &[u64] {
        let start = self.name_word(entry.name);
        &self.blob.words64()[start..start + (entry.len as usize).div_ceil(8)]
    }

    fn name_word(&self, unit: u32) -> usize {
        self.shape.name_line() as usize * 8 + unit as usize * (UNIT_BYTES / 8)
    }

    pub(super) fn next_hop(&self, slot: Slot) -> NextHopId {
        entry(self.line(slot.line), slot.index).next_hop
    }

    pub(super) fn set_next_hop(&mut self, slot: Slot, next_hop: NextHopId) {
        let line = self.line_mut(slot.line);
        let mut changed = entry(line, slot.index);
        changed.next_hop = next_hop;
        set_entry(line, slot.index, changed);
    }

    /// Adds an entry that is not there. On an error nothing has changed.
    pub(super) fn add(
        &mut self,
        prefix: PrefixKey,
        depth: usize,
        bytes: &[u8],
        next_hop: NextHopId,
    ) -> Result<(), TableError> {
        let home = self.shape.bucket_of(prefix.hash);
        let free = |words: &Line, index| entry(words, index).next_hop == 0;
        let (slot, distance) =
            self.place_for(home, ENTRIES, free, Shape::next_bucket).ok_or(TableError::Full {
                what: "lines near a prefix's own",
                used: CHAIN_MAX,
                limit: CHAIN_MAX,
            })?;
        let name = self.add_name(bytes)?;
        self.pass(home, distance, 1, Shape::next_bucket);
        let new = Entry {
            tag: prefix.hash as u32,
            next_hop,
            name,
            len: bytes.len() as u16,
            depth: depth as u8,
        };
        set_entry(self.line_mut(slot.line), slot.index, new);
        Ok(())
    }

    fn add_name(&mut self, bytes: &[u8]) -> Result<u32, TableError> {
        let units = units_of(bytes.len());
        let unit = self.store.take(units).ok_or(TableError::Full {
            what: "units of 16 bytes for names",
            used: self.store.used(),
            limit: self.store.limit(),
        })?;
        let start = self.name_word(unit);
        let need = (start + units as usize * 2).div_ceil(8);
        let have = self.blob.len_words() / 16;
        if need > have {
            let most = self.shape.name_line() as usize + (self.store.limit() / LINE_UNITS) as usize;
            let lines = (need + GROW_LINES.max(have / 16)).min(most.max(need));
            if let Err(error) = self.blob.grow(lines * 16) {
                self.store.give(unit, units);
                return Err(TableError::Memory { bytes: lines * 64, reason: error.to_string() });
            }
            self.grown = true;
        }
        for (at, word) in words_of(bytes).enumerate() {
            self.mark(((start + at) / 8) as u32);
            self.blob.words64_mut()[start + at] = word;
        }
        Ok(unit)
    }

    pub(super) fn remove(&mut self, prefix: PrefixKey, slot: Slot) {
        let gone = entry(self.line(slot.line), slot.index);
        self.store.give(gone.name, units_of(gone.len as usize));
        self.unpass(self.shape.bucket_of(prefix.hash), slot.line, Shape::next_bucket);
        set_entry(self.line_mut(slot.line), slot.index, Entry::default());
    }

    pub(super) fn find_hint(&self, hash: u64) -> Option<Slot> {
        let mut line = self.shape.hint_of(hash);
        loop {
            if let Some(index) = find_hint(self.line(line), hash) {
                return Some(Slot { line, index });
            }
            if overflow(self.line(line)) == 0 {
                return None;
            }
            line = self.shape.next_hint(line);
        }
    }

    pub(super) fn depths(&self, slot: Slot) -> u32 {
        hint_depths(self.line(slot.line), slot.index)
    }

    pub(super) fn set_depths(&mut self, hash: u64, slot: Slot, depths: u32) {
        if depths == 0 {
            self.unpass(self.shape.hint_of(hash), slot.line, Shape::next_hint);
            set_hint(self.line_mut(slot.line), slot.index, 0, 0);
        } else if self.depths(slot) != depths {
            set_hint(self.line_mut(slot.line), slot.index, hash, depths);
        }
    }

    /// Adds a hint that is not there; false when there is no room near its line.
    pub(super) fn add_hint(&mut self, hash: u64, depths: u32) -> bool {
        let home = self.shape.hint_of(hash);
        let free = |words: &Line, index| hint_depths(words, index) == 0;
        let Some((slot, distance)) = self.place_for(home, HINTS, free, Shape::next_hint) else {
            return false;
        };
        self.pass(home, distance, 1, Shape::next_hint);
        set_hint(self.line_mut(slot.line), slot.index, hash, depths);
        true
    }

    /// The first free place from line `home` on, and how many full lines are before it; none when all lines
    /// of the ring would have overflowed then.
    fn place_for(
        &self,
        home: u32,
        places: usize,
        free: impl Fn(&Line, usize) -> bool,
        next: impl Fn(&Shape, u32) -> u32,
    ) -> Option<(Slot, u32)> {
        let mut line = home;
        let mut open = self.open[self.ring(home)];
        for distance in 0..CHAIN_MAX {
            if let Some(index) = (0..places).find(|index| free(self.line(line), *index)) {
                return (open > 0).then_some((Slot { line, index }, distance));
            }
            open -= u32::from(overflow(self.line(line)) == 0);
            line = next(&self.shape, line);
            if line == home {
                break;
            }
        }
        None
    }

    /// Which of the two rings a line is in.
    fn ring(&self, line: u32) -> usize {
        usize::from(line >= self.shape.bucket_line())
    }

    /// Counts an entry in or out of the lines that it passed.
    fn pass(&mut self, home: u32, lines: u32, by: i32, next: impl Fn(&Shape, u32) -> u32) {
        let ring = self.ring(home);
        let mut line = home;
        for _ in 0..lines {
            let words = self.line_mut(line);
            let before = overflow(words);
            let after = before.wrapping_add_signed(by);
            set_half(words, 15, after);
            self.open[ring] += u32::from(after == 0);
            self.open[ring] -= u32::from(before == 0);
            line = next(&self.shape, line);
        }
    }

    fn unpass(&mut self, home: u32, end: u32, next: impl Fn(&Shape, u32) -> u32) {
        let (mut line, mut lines) = (home, 0);
        while line != end {
            lines += 1;
            line = next(&self.shape, line);
        }
        self.pass(home, lines, -1, next);
    }

    pub(super) fn default_hop(&self) -> NextHopId {
        self.line(0)[HEADER_DEFAULT] as NextHopId
    }

    pub(super) fn set_default_hop(&mut self, next_hop: NextHopId) {
        self.line_mut(0)[HEADER_DEFAULT] = next_hop.into();
    }

    /// Sets the depths that are asked whatever the hint says.
    pub(super) fn set_always(&mut self, depths: u32) {
        let word = self.line(0)[HEADER_DEPTHS];
        if word as u32 != depths {
            self.line_mut(0)[HEADER_DEPTHS] = word & !0xffff_ffff | u64::from(depths);
        }
    }

    pub(super) fn blob(&self) -> &Blob {
        &self.blob
    }

    /// Forgets what changed: the blob itself is handed out.
    pub(super) fn settle(&mut self) {
        (self.settled, self.grown) = (true, false);
        self.dirty.clear();
    }

    /// What changed since, as patches.
    pub(super) fn flush(&mut self, patches: &mut Vec<Patch>) {
        if std::mem::take(&mut self.grown) {
            patches.push(Patch::Grow { len_words: self.blob.len_words() });
        }
        self.dirty.sort_unstable();
        self.dirty.dedup();
        let words = self.blob.words();
        for lines in self.dirty.chunk_by(|a, b| a + 1 == *b) {
            let offset_words = lines[0] as usize * 16;
            let words = words[offset_words..][..lines.len() * 16].to_vec();
            patches.push(Patch::Write { offset_words, words });
        }
        self.dirty.clear();
        self.dirty.shrink_to(1 << 12);
    }

    fn line(&self, line: u32) -> &Line {
        &self.blob.words64().as_chunks().0[line as usize]
    }

    fn line_mut(&mut self, line: u32) -> &mut Line {
        self.mark(line);
        &mut self.blob.words64_mut().as_chunks_mut().0[line as usize]
    }

    fn mark(&mut self, line: u32) {
        if self.settled && self.dirty.last() != Some(&line) {
            self.dirty.push(line);
        }
    }
}
