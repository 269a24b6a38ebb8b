//! A rule as a leaf has it, and as cuts see it.

use super::layout::*;
use crate::rule::{Match, RuleRef};

/// What of a rule a leaf holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Columns {
    /// Source, destination, ports from, their lengths, misc, value and mask of the last word.
    words: [u32; 7],
    pub(super) place: Match,
}

/// Bits of a header that a rule cares for, and their values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ternary {
    pub(super) value: Bits,
    pub(super) care: Bits,
}

/// 32 less the length of a prefix by its mask.
fn shift(mask: u32) -> u32 {
    32 - mask.leading_ones()
}

impl Columns {
    pub(super) fn new(rule: &RuleRef<'_>) -> Self {
        let (low, high) = (rule.lows(), rule.highs());
        let half = |low: u32, high: u32| high.wrapping_sub(low) & 0xffff;
        let lengths = half(low[2] >> 16, high[2] >> 16) << 16 | half(low[2], high[2]);
        let (proto, mask) = (low[3] >> 24, high[3] >> 24);
        let misc = proto << 24 | mask << 16 | shift(high[1]) << 8 | shift(high[0]);
        let words = [low[0], low[1], low[2], lengths, misc, low[3], high[3]];
        Self { words, place: rule.place() }
    }

    /// Lengths of the prefixes of source and destination.
    pub(super) fn lens(&self) -> [u32; 2] {
        [32 - (self.words[4] & 0xff), 32 - (self.words[4] >> 8 & 0xff)]
    }

    pub(super) fn ternary(&self) -> Ternary {
        let [src, dst, from, lengths, _, last, mask] = self.words;
        let [src_len, dst_len] = self.lens();
        let prefix = |len: u32| u32::MAX.checked_shl(32 - len).unwrap_or(0);
        // Bits that the ends of a range have in common from the top.
        let common = |low: u32, length: u32| {
            let differ = low ^ (low + length);
            0xffff & u32::MAX.checked_shl(32 - differ.leading_zeros()).unwrap_or(0)
        };
        let ports =
            common(from >> 16, lengths >> 16) << 16 | common(from & 0xffff, lengths & 0xffff);
        let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        let care = [pair(prefix(src_len), prefix(dst_len)), pair(ports, mask)];
        let value = [pair(src, dst), pair(from, last)];
        Ternary { value: [value[0] & care[0], value[1] & care[1]], care }
    }

    /// First and last port at `shift` of the word of ports.
    fn ports(&self, shift: u32) -> (u32, u32) {
        let first = self.words[2] >> shift & 0xffff;
        (first, first + (self.words[3] >> shift & 0xffff))
    }

    /// Writes the rule to a place of a block.
    pub(super) fn put(&self, block: &mut [u32], lane: usize) {
        let columns = [SRC, DST, PORTS, LENGTHS, MISC, VALUE, MASK];
        let count = if block.len() == WIDE { columns.len() } else { columns.len() - 2 };
        for (column, word) in columns.into_iter().zip(self.words).take(count) {
            block[column + lane] = word;
        }
        let matches = matches(block.len());
        block[matches + 2 * lane..][..2].copy_from_slice(&self.place.to_words());
    }
}

/// A rule, with what cuts see of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) columns: Columns,
    pub(super) ternary: Ternary,
}

impl Entry {
    pub(super) fn new(columns: Columns) -> Self {
        Self { columns, ternary: columns.ternary() }
    }

    /// Whether every header that `other` matches is matched by this rule too, of headers that are cut at the bits of
    /// `region` and came to one and the same place with both rules.
    pub(super) fn covers(&self, other: &Self, region: &Bits) -> bool {
        let bits = (0..2).all(|half| {
            let wanted = self.ternary.care[half] & !region[half];
            let differ = self.ternary.value[half] ^ other.ternary.value[half];
            (!other.ternary.care[half] | differ) & wanted == 0
        });
        bits && [0, 16].into_iter().all(|shift| {
            let (outer, inner) = (self.columns.ports(shift), other.columns.ports(shift));
            outer.0 <= inner.0 && inner.1 <= outer.1
        })
    }
}

impl Ternary {
    /// The number of the first cell that the rule belongs to under `bits`, and the bits of the number that it leaves
    /// open.
    fn span(&self, bits: &Bits) -> (usize, usize) {
        let open = [!self.care[0], !self.care[1]];
        (number(&self.value, bits), number(&open, bits))
    }

    /// Bits of `bits` that the rule leaves open.
    pub(super) fn open(&self, bits: &Bits) -> u32 {
        (bits[0] & !self.care[0]).count_ones() + (bits[1] & !self.care[1]).count_ones()
    }

    /// The cells that the rule belongs to.
    pub(super) fn cells(&self, bits: &Bits) -> impl Iterator<Item = usize> + use<> {
        let (first, open) = self.span(bits);
        let mut next = Some(0);
        std::iter::from_fn(move || {
            let at: usize = next?;
            // The next number whose bits are all open.
            let after = at.wrapping_sub(open) & open;
            next = (after != 0).then_some(after);
            Some(first | at)
        })
    }
}
