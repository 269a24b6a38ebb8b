//! The layout of the blob. Words are of 8 bytes; a line is 8 of them.
//!
//! ```text
//! line 0           magic, default next hop, bucket counts, seed
//! line 1…          2^16 cells of two words, by the first 16 bits of the address:
//!                  rope over the lengths above 16 │ best match of at most 16 bits, parts in use
//! narrow buckets   one line each, entries of at most 63 bits:
//!                  key 0 │ key 1 │ key 2 │ rope 0 │ rope 1 │ rope 2 │ best 0,1 │ best 2, overflow
//! wide buckets     one line each, entries of 64 bits and more:
//!                  key 0 (2 words) │ key 1 (2) │ rope 0 │ rope 1 │ best 0,1 │ lengths, overflow
//! ```
//!
//! A bit of `parts in use` says whether any prefix of more than 16 bits touches that 32nd part of the
//! cell's addresses (the next five bits): where none does, there is nothing to try.
//!
//! A narrow key is the prefix, then a one, then zeros: the length is in the key. Two halves of a
//! word are named low first. `overflow` counts the entries that found this bucket full and went on
//! to a later one: a search goes on when it is not zero.

use super::tree::SHORT;
use crate::{Key6, Prefix};

pub(super) const MAGIC: u64 = 0x0000_6273_706c_0001;
pub(super) const HEADER_MAGIC: usize = 0;
pub(super) const HEADER_DEFAULT: usize = 1;
pub(super) const HEADER_NARROW: usize = 2;
pub(super) const HEADER_WIDE: usize = 3;
pub(super) const HEADER_SEED: usize = 4;

pub(super) const WORDS_PER_LINE: usize = 8;
pub(super) const CELLS: usize = 1 << SHORT;
pub(super) const CELLS_LINE: usize = 1;
pub(super) const CELL_LINES: usize = CELLS * 2 / WORDS_PER_LINE;

/// A cache line.
pub(super) type Line = [u64; WORDS_PER_LINE];

/// What the header says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) narrow: u32, // buckets, at least 1
    pub(super) wide: u32,
    pub(super) seed: u64, // odd
}

impl Shape {
    pub(super) fn narrow_line(&self) -> usize {
        CELLS_LINE + CELL_LINES
    }

    pub(super) fn wide_line(&self) -> usize {
        self.narrow_line() + self.narrow as usize
    }

    pub(super) fn lines(&self) -> usize {
        self.wide_line() + self.wide as usize
    }

    /// The bucket of a prefix in its region.
    pub(super) fn bucket(&self, prefix: Prefix<u128>) -> u32 {
        let [high, low] = halves(prefix);
        if is_wide(prefix.len()) {
            self.wide_bucket(high, low, prefix.len())
        } else {
            self.narrow_bucket(narrow_key(high, prefix.len()))
        }
    }

    #[inline(always)]
    pub(super) fn narrow_bucket(&self, key: u64) -> u32 {
        scale((key ^ key >> 32).wrapping_mul(self.seed), self.narrow)
    }

    #[inline(always)]
    pub(super) fn wide_bucket(&self, high: u64, low: u64, len: u8) -> u32 {
        let high = (high ^ high >> 32).wrapping_add(len.into()).wrapping_mul(self.seed);
        let low = (low ^ low >> 32).wrapping_mul(self.seed.rotate_left(24) | 1);
        scale(high ^ low, self.wide)
    }
}

/// From the upper half of a hash to 0..count.
#[inline(always)]
fn scale(hash: u64, count: u32) -> u32 {
    (((hash >> 32) * u64::from(count)) >> 32) as u32
}

#[inline(always)]
pub(super) fn next_bucket(bucket: u32, buckets: u32) -> u32 {
    if bucket + 1 < buckets { bucket + 1 } else { 0 }
}

#[inline(always)]
pub(super) fn is_wide(len: u8) -> bool {
    len >= 64
}

/// The key of the first `len` < 64 bits of an address.
#[inline(always)]
pub(super) fn narrow_key(high: u64, len: u8) -> u64 {
    let below = (63 - u32::from(len)) & 63;
    (high >> below | 1) << below
}

/// The first `len` ≥ 64 bits of an address.
#[inline(always)]
pub(super) fn wide_key(key: Key6, len: u8) -> Key6 {
    // Two shifts, for 64 bits at once are none.
    let below = (128 - u32::from(len)) & 127;
    let mask = if below == 64 { 0 } else { u64::MAX << (below & 63) };
    [key[0], key[1] & mask]
}

pub(super) fn halves(prefix: Prefix<u128>) -> Key6 {
    crate::Address::to_key(prefix.addr())
}

/// The part of its cell that an address lies in, 0 to 31.
#[inline(always)]
pub(super) fn part(high: u64) -> u32 {
    (high >> 43) as u32 & 31
}

/// The rope of a cell for an address in it.
#[inline(always)]
pub(super) fn cell_rope(cell: &[u64; 2], high: u64) -> u64 {
    if cell[1] >> (32 + part(high)) & 1 == 1 { cell[0] } else { 0 }
}

pub(super) fn cell_word(cell: usize) -> usize {
    CELLS_LINE * WORDS_PER_LINE + cell * 2
}

pub(super) fn slots(wide: bool) -> usize {
    if wide { 2 } else { 3 }
}

pub(super) fn rope_word(wide: bool, index: usize) -> usize {
    if wide { 4 + index } else { 3 + index }
}

#[inline(always)]
pub(super) fn best_in(line: &Line, index: usize) -> u32 {
    (line[6 + (index >> 1)] >> (32 * (index & 1))) as u32
}

pub(super) fn set_best(line: &mut Line, index: usize, next_hop: u32) {
    let shift = 32 * (index & 1);
    let word = &mut line[6 + (index >> 1)];
    *word = *word & !(0xffff_ffff << shift) | u64::from(next_hop) << shift;
}

#[inline(always)]
pub(super) fn overflow(line: &Line) -> u32 {
    (line[7] >> 32) as u32
}

pub(super) fn add_overflow(line: &mut Line, by: i64) {
    line[7] = line[7].wrapping_add_signed(by << 32);
}

#[inline(always)]
pub(super) fn wide_len(line: &Line, index: usize) -> u8 {
    (line[7] >> (8 * index)) as u8
}

pub(super) fn is_free(line: &Line, wide: bool, index: usize) -> bool {
    if wide { wide_len(line, index) == 0 } else { line[index] == 0 }
}

pub(super) fn find_in(line: &Line, prefix: Prefix<u128>) -> Option<usize> {
    let [high, low] = halves(prefix);
    let len = prefix.len();
    if is_wide(len) {
        (0..2).find(|i| wide_len(line, *i) == len && line[2 * i..][..2] == [high, low])
    } else {
        let key = narrow_key(high, len);
        (0..3).find(|i| line[*i] == key)
    }
}

pub(super) fn set_key(line: &mut Line, index: usize, prefix: Prefix<u128>) {
    let [high, low] = halves(prefix);
    if is_wide(prefix.len()) {
        line[2 * index..][..2].copy_from_slice(&[high, low]);
        line[7] |= u64::from(prefix.len()) << (8 * index);
    } else {
        line[index] = narrow_key(high, prefix.len());
    }
}

pub(super) fn clear_slot(line: &mut Line, wide: bool, index: usize) {
    if wide {
        line[2 * index..][..2].fill(0);
        line[7] &= !(0xff << (8 * index));
    } else {
        line[index] = 0;
    }
    line[rope_word(wide, index)] = 0;
    set_best(line, index, 0);
}

pub(super) fn narrow_prefix(line: &Line, index: usize) -> Option<Prefix<u128>> {
    let key = line[index];
    let len = 63_u32.checked_sub(key.trailing_zeros())?;
    Some(Prefix::masked(u128::from(key) << 64, len as u8))
}

pub(super) fn wide_prefix(line: &Line, index: usize) -> Option<Prefix<u128>> {
    let addr = u128::from(line[2 * index]) << 64 | u128::from(line[2 * index + 1]);
    let len = wide_len(line, index);
    (len > 0).then(|| Prefix::masked(addr, len))
}
