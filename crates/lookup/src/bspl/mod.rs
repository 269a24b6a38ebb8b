//! Binary search on prefix lengths: IPv6 longest-prefix match in a handful of hash probes.
//!
//! Waldvogel, Varghese, Turner, Plattner: Scalable High Speed IP Routing Lookups, SIGCOMM 1997;
//! PacketShader §6.2.2. All prefixes of one length can be asked with one hash probe. A probe that
//! hits says: try longer; one that misses: try shorter. For a longer prefix to be found, the search
//! must hit on the way to it, so each prefix leaves markers, cut to the lengths where the search
//! turns to longer ones. An entry, prefix or marker, carries the best match known for it, so that a
//! search that follows a marker without result need not go back.
//!
//! Two refinements of the paper (its §4) make most searches short:
//! - an array by the first 16 bits, with a bit for each 32nd part of those, answers what no longer
//!   prefix touches, and says what to try;
//! - each entry carries a rope: the lengths still worth trying below it, in order, in one word.
//!   A search holds a rope: a miss drops its first length, a hit replaces it, an empty one ends.
//!
//! ```text
//! cells[first 16 bits] ─→ rope 48,40,32 · best ──48?─→ miss ──40?─→ hit: rope 44 · best ──44?─→ …
//! ```
//!
//! So a lookup knows no tree; the tree is the builder's ([`BsplBuilder`]), and what is where in
//! the blob is in `layout`.
//!
//! The batch keeps some dozens of searches in flight: in each round every search takes one step on
//! a line that was prefetched in the round before, and finished ones give way to new keys. No
//! branch depends on hit or miss. Where the processor gathers (AVX-512), eight searches share a
//! vector (`avx512`).
//!
//! Thread rule: the builder has one owner; the view only reads.

#[cfg(target_arch = "x86_64")]
mod avx512;
mod builder;
mod forms;
mod layout;
mod lookup;
mod table;
mod tree;

pub use builder::BsplBuilder;
pub use forms::State;

use crate::{Address, Blob, Key6, Lpm, NextHopId, Prefix};
use layout::*;

/// A view over the blob of a [`BsplBuilder`].
#[derive(Debug, Clone, Copy)]
pub struct Bspl<'a> {
    default: NextHopId,
    shape: Shape,
    cells: &'a [[u64; 2]; CELLS],
    narrow: &'a [Line],
    wide: &'a [Line],
}

impl<'a> Bspl<'a> {
    /// Views `blob`; `None` when it is not such a table.
    pub fn new(blob: &'a Blob) -> Option<Self> {
        let (lines, _) = blob.words64().as_chunks::<WORDS_PER_LINE>();
        let header = lines.first()?;
        if header[HEADER_MAGIC] != MAGIC {
            return None;
        }
        let shape = Shape {
            narrow: header[HEADER_NARROW].try_into().ok().filter(|count| *count > 0)?,
            wide: header[HEADER_WIDE].try_into().ok().filter(|count| *count > 0)?,
            seed: header[HEADER_SEED],
        };
        let cells = lines.get(CELLS_LINE..shape.narrow_line())?.as_flattened();
        Some(Self {
            default: header[HEADER_DEFAULT] as NextHopId,
            shape,
            cells: cells.as_chunks().0.try_into().ok()?,
            narrow: lines.get(shape.narrow_line()..shape.wide_line())?,
            wide: lines.get(shape.wide_line()..shape.lines())?,
        })
    }

    /// The next hop of one address, or [`crate::NO_ROUTE`].
    pub fn lookup_one(&self, key: Key6) -> NextHopId {
        self.walk(key).0
    }

    /// The portable batch.
    pub fn lookup_scalar(&self, keys: &[Key6], out: &mut [NextHopId]) {
        assert_eq!(keys.len(), out.len());
        lookup::batch(self, keys, out);
    }

    /// How many cache lines the search for an address reads, the array's included.
    pub fn lines_read(&self, key: Key6) -> u32 {
        self.walk(key).1
    }

    /// The search as it is defined, one step after the other.
    fn walk(&self, key: Key6) -> (NextHopId, u32) {
        let cell = &self.cells[(key[0] >> 48) as usize];
        let mut rope = cell_rope(cell, key[0]);
        let mut answer = cell[1] as NextHopId;
        let mut read = 1;
        while rope as u8 != 0 {
            let prefix = Prefix::masked(Address::from_key(key), rope as u8);
            rope >>= 8;
            let (lines, wide) = match is_wide(prefix.len()) {
                false => (self.narrow, false),
                true => (self.wide, true),
            };
            let mut bucket = self.shape.bucket(prefix);
            loop {
                let line = &lines[bucket as usize];
                read += 1;
                if let Some(index) = find_in(line, prefix) {
                    rope = line[rope_word(wide, index)];
                    answer = if best_in(line, index) == 0 { answer } else { best_in(line, index) };
                    break;
                }
                if overflow(line) == 0 {
                    break;
                }
                bucket = next_bucket(bucket, lines.len() as u32);
            }
        }
        (if answer == 0 { self.default } else { answer }, read)
    }
}

impl Lpm<Key6> for Bspl<'_> {
    fn lookup(&self, keys: &[Key6], out: &mut [NextHopId]) {
        assert_eq!(keys.len(), out.len());
        #[cfg(target_arch = "x86_64")]
        if avx512::available() {
            // SAFETY: the processor has what the function is compiled for.
            return unsafe { avx512::batch(self, keys, out) };
        }
        lookup::batch(self, keys, out);
    }
}
