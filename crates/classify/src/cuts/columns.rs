//! A rule as a leaf has it, and as cuts see it.

use std::fmt::Debug;

use super::layout::*;
use crate::rule::{Match, RuleRef};
use crate::schema::Schema;

/// What leaves hold of rules: of the 5-tuple ([`Columns`]), or of any words ([`Masked`](super::masks::Masked)).
pub(super) trait Row: Copy + Eq + Debug + Send + 'static {
    /// What the image begins with.
    const MAGIC: u32;
    /// Words of a header.
    const WORDS: usize;

    /// What cuts depend on beside the rules.
    type Form: Copy + Debug + Send;

    /// The form for rules of a schema that takes such rows.
    fn form(schema: &Schema, rows: &[Self]) -> Self::Form;

    /// As the image has it.
    fn form_words(form: &Self::Form) -> [u32; 2];

    /// Words of a block.
    fn block_words(schema: &Schema) -> usize;

    fn new(rule: &RuleRef<'_>) -> Self;

    /// Makes it one of a form.
    fn fit(&mut self, _form: &Self::Form) {}

    fn place(&self) -> Match;

    /// What cuts see of it.
    fn ternary(&self, form: &Self::Form) -> Ternary;

    /// Whether every header that `other` matches is matched by this row too, as far as cuts do not see it.
    fn covers_rest(&self, other: &Self) -> bool;

    /// Writes the rule to a place of a block.
    fn put(&self, block: &mut [u32], lane: usize);

    /// The first words of the columns of a block, without the matches.
    fn columns(block_words: usize) -> &'static [usize];

    /// The first word of the matches, which are two words each.
    fn matches(block_words: usize) -> usize;

    /// What a place of a block holds that no rule has: it takes every header, and finds nothing. Such places are behind all rules of
    /// a leaf.
    fn empty(block_words: usize) -> &'static [u32];
}

/// What of a rule a leaf holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Columns {
    /// Source, destination, ports from, their lengths, misc, value and mask of the last word.
    words: [u32; 7],
    place: Match,
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

impl Row for Columns {
    const MAGIC: u32 = MAGIC;
    const WORDS: usize = WORDS;

    type Form = ();

    fn form(_: &Schema, _: &[Self]) {}

    fn form_words((): &()) -> [u32; 2] {
        [0; 2]
    }

    /// Of a protocol alone there is room beside the lengths of prefixes.
    fn block_words(schema: &Schema) -> usize {
        if schema.masked_bits()[WORDS - 1] << 8 == 0 { NARROW } else { WIDE }
    }

    fn new(rule: &RuleRef<'_>) -> Self {
        let (low, high) = (rule.lows(), rule.highs());
        let half = |low: u32, high: u32| high.wrapping_sub(low) & 0xffff;
        let lengths = half(low[2] >> 16, high[2] >> 16) << 16 | half(low[2], high[2]);
        let (proto, mask) = (low[3] >> 24, high[3] >> 24);
        let misc = proto << 24 | mask << 16 | shift(high[1]) << 8 | shift(high[0]);
        let words = [low[0], low[1], low[2], lengths, misc, low[3], high[3]];
        Self { words, place: rule.place() }
    }

    fn place(&self) -> Match {
        self.place
    }

    fn ternary(&self, (): &()) -> Ternary {
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

    fn covers_rest(&self, other: &Self) -> bool {
        [0, 16].into_iter().all(|shift| {
            let (outer, inner) = (self.ports(shift), other.ports(shift));
            outer.0 <= inner.0 && inner.1 <= outer.1
        })
    }

    fn put(&self, block: &mut [u32], lane: usize) {
        for (column, word) in Self::columns(block.len()).iter().zip(self.words) {
            block[column + lane] = word;
        }
        let matches = matches(block.len());
        block[matches + 2 * lane..][..2].copy_from_slice(&self.place.to_words());
    }

    fn columns(block_words: usize) -> &'static [usize] {
        const ALL: [usize; 7] = [SRC, DST, PORTS, LENGTHS, MISC, VALUE, MASK];
        if block_words == WIDE { &ALL } else { &ALL[..5] }
    }

    fn matches(block_words: usize) -> usize {
        matches(block_words)
    }

    fn empty(block_words: usize) -> &'static [u32] {
        empty_block(block_words)
    }
}

impl Columns {
    /// Lengths of the prefixes of source and destination.
    fn lens(&self) -> [u32; 2] {
        [32 - (self.words[4] & 0xff), 32 - (self.words[4] >> 8 & 0xff)]
    }

    /// First and last port at `shift` of the word of ports.
    fn ports(&self, shift: u32) -> (u32, u32) {
        let first = self.words[2] >> shift & 0xffff;
        (first, first + (self.words[3] >> shift & 0xffff))
    }
}

/// A rule, with what cuts see of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry<R> {
    pub(super) columns: R,
    pub(super) ternary: Ternary,
}

impl<R: Row> Entry<R> {
    pub(super) fn new(mut columns: R, form: &R::Form) -> Self {
        columns.fit(form);
        Self { columns, ternary: columns.ternary(form) }
    }

    /// Bits of the first two words that are cut at which the rule cares for: of the 5-tuple, the lengths of its prefixes.
    pub(super) fn lens(&self) -> [u32; 2] {
        let first = self.ternary.care[0];
        [(first >> 32).count_ones(), (first as u32).count_ones()]
    }

    /// Whether every header that `other` matches is matched by this rule too, of headers that are cut at the bits of
    /// `region` and came to one and the same place with both rules.
    pub(super) fn covers(&self, other: &Self, region: &Bits) -> bool {
        let bits = (0..2).all(|half| {
            let wanted = self.ternary.care[half] & !region[half];
            let differ = self.ternary.value[half] ^ other.ternary.value[half];
            (!other.ternary.care[half] | differ) & wanted == 0
        });
        bits && self.columns.covers_rest(&other.columns)
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
