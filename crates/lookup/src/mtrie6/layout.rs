//! The layout of the blob.
//!
//! ```text
//!  words 0..16: header                    a cell
//!  2^18 words:  root                      31   30  29   28     25 24                0
//!  lines of 64 bytes: nodes and buckets   ├─┬──────────┬─────────┬──────────────────┤
//!                                         │0│ next hop, 0: the default route        │
//!                                         │1│ 0, deep  │ bits − 1│ first line       │ node
//!                                         │1│ 1, wide  │         │ line             │ bucket
//!                                         └─┴──────────┴─────────┴──────────────────┘
//!
//!  bucket  words 0..6       6..8          8..14       14
//!  short   bits 18 to 49    shifts, bytes  next hops   of the rest   up to 6 prefixes of at most 50 bits
//!  wide    2 × 4 words: high and low half, low word first
//!                           8, 9: next hops, 10: shifts of the halves, bytes; 14: of the rest
//! ```
//!
//! In a bucket the longest prefix is first, and places behind the last one repeat it, so that a search
//! that takes the first match needs to know no number. A node is deep when its bits reach beyond the first
//! 50 of the address; a shallow one's all lie in bits 18 to 49.

use crate::{Address, Key6, NextHopId, Prefix};

pub(super) const MAGIC: u32 = 0x006d_7436;
pub(super) const WORD_MAGIC: usize = 0;
pub(super) const WORD_DEFAULT: usize = 1;

/// Bits that index the root.
pub(super) const ROOT_BITS: u8 = 18;
pub(super) const ROOTS: usize = 1 << ROOT_BITS;
pub(super) const ROOT: usize = 16; // offset in words
pub(super) const HEAP: usize = ROOT + ROOTS;

/// Words of a cache line.
pub(super) const LINE: usize = 16;
pub(super) type Line = [u32; LINE];

/// The cell names something; else it is an answer.
pub(super) const FLAG: u32 = 1 << 31;
pub(super) const KIND: u32 = FLAG | 3 << 29;
pub(super) const KIND_NODE: u32 = FLAG;
pub(super) const KIND_DEEP: u32 = FLAG | 1 << 29;
pub(super) const KIND_SHORT: u32 = FLAG | 2 << 29;
pub(super) const KIND_WIDE: u32 = FLAG | 3 << 29;

/// Bits of a line's number.
pub(super) const LINE_BITS: u8 = 25;

/// Bits that prefixes in short buckets have at most, and that shallow nodes end at.
pub(super) const SHORT_LEN: u8 = ROOT_BITS + 32;
/// Prefixes of a short bucket.
pub(super) const SHORT_PREFIXES: usize = 6;
/// Prefixes of a wide one.
pub(super) const WIDE_PREFIXES: usize = 2;

pub(super) const SHORT_SHIFTS: usize = 6;
pub(super) const NEXT_HOPS: usize = 8;
/// Two shifts for each prefix: how much of the high and of the low half is not the prefix's.
pub(super) const WIDE_SHIFTS: usize = 10;
/// The word of a bucket with the next hop of what no prefix there covers.
pub(super) const REST: usize = 14;

/// Most bits of a node.
pub(super) const NODE_BITS_MAX: u8 = 16;

#[inline(always)]
pub(super) fn root_of(key: Key6) -> usize {
    (key[0] >> (64 - ROOT_BITS)) as usize
}

/// Bits 18 to 49.
#[inline(always)]
pub(super) fn short_bits(key: Key6) -> u32 {
    (key[0] >> (64 - SHORT_LEN)) as u32
}

/// Whether the cell names a node.
#[inline(always)]
pub(super) fn is_node(cell: u32) -> bool {
    cell & (FLAG | 2 << 29) == FLAG
}

/// How many bits the node takes that a cell names.
#[inline(always)]
pub(super) fn node_bits(cell: u32) -> u8 {
    (cell >> LINE_BITS & 15) as u8 + 1
}

/// The line that a cell names.
#[inline(always)]
pub(super) fn line_of(cell: u32) -> usize {
    (cell & ((1 << LINE_BITS) - 1)) as usize
}

/// The word of the heap with the next cell, under a node whose bits begin at `at`.
#[inline(always)]
pub(super) fn node_place(key: Key6, cell: u32, at: u8) -> usize {
    let bits =
        if at < 64 { key[0] << at | key[1] >> 1 >> (63 - at) } else { key[1] << ((at - 64) & 63) };
    line_of(cell) * LINE + (bits >> (64 - node_bits(cell))) as usize
}

/// A cell that names a node of `bits` bits beginning at `at`.
pub(super) fn node_cell(at: u8, bits: u8, line: u32) -> u32 {
    let kind = if at + bits <= SHORT_LEN { KIND_NODE } else { KIND_DEEP };
    kind | u32::from(bits - 1) << LINE_BITS | line
}

#[inline(always)]
pub(super) fn in_short(line: &Line, bits: u32) -> NextHopId {
    let shifts = u64::from(line[SHORT_SHIFTS]) | u64::from(line[SHORT_SHIFTS + 1]) << 32;
    let mut answer = line[REST];
    for at in (0..SHORT_PREFIXES).rev() {
        let differs = (line[at] ^ bits) >> (shifts >> (8 * at) & 31) != 0;
        answer = if differs { answer } else { line[NEXT_HOPS + at] };
    }
    answer
}

#[inline(always)]
pub(super) fn in_wide(line: &Line, key: Key6) -> NextHopId {
    let mut answer = line[REST];
    for at in (0..WIDE_PREFIXES).rev() {
        let differs = |half: usize| {
            let words = &line[4 * at + 2 * half..][..2];
            let prefix = u64::from(words[0]) | u64::from(words[1]) << 32;
            let shift = line[WIDE_SHIFTS] >> (16 * at + 8 * half) & 0xff;
            (prefix ^ key[half]).checked_shr(shift).unwrap_or(0) != 0
        };
        answer = if differs(0) | differs(1) { answer } else { line[NEXT_HOPS + at] };
    }
    answer
}

/// The bucket of these routes, in any order, and its kind; `None` when they do not fit or are none.
pub(super) fn bucket(routes: &[(Prefix<u128>, NextHopId)], rest: NextHopId) -> Option<(u32, Line)> {
    if routes.is_empty() || routes.len() > SHORT_PREFIXES {
        return None;
    }
    let mut sorted = [routes[0]; SHORT_PREFIXES];
    sorted[..routes.len()].copy_from_slice(routes);
    let sorted = &mut sorted[..routes.len()];
    sorted.sort_unstable_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
    let place = |at: usize| sorted[at.min(sorted.len() - 1)];
    let mut line = [0; LINE];
    line[REST] = rest;
    if sorted[0].0.len() <= SHORT_LEN {
        for at in 0..SHORT_PREFIXES {
            let (prefix, next_hop) = place(at);
            line[at] = short_bits(prefix.addr().to_key());
            let shift = u32::from(SHORT_LEN - prefix.len());
            line[SHORT_SHIFTS + at / 4] |= shift << (8 * (at % 4));
            line[NEXT_HOPS + at] = next_hop;
        }
        return Some((KIND_SHORT, line));
    }
    if sorted.len() > WIDE_PREFIXES {
        return None;
    }
    for at in 0..WIDE_PREFIXES {
        let (prefix, next_hop) = place(at);
        let [high, low] = prefix.addr().to_key();
        let halves = [high as u32, (high >> 32) as u32, low as u32, (low >> 32) as u32];
        line[4 * at..][..4].copy_from_slice(&halves);
        let len = u32::from(prefix.len());
        let shifts = (64 - len.min(64)) | (64 - (len.max(64) - 64)) << 8;
        line[WIDE_SHIFTS] |= shifts << (16 * at);
        line[NEXT_HOPS + at] = next_hop;
    }
    Some((KIND_WIDE, line))
}
