//! A bit for each four bytes with which a pattern begins; for patterns of up to three bytes, for each two.
//!
//! Three bytes choose a word, and the fourth a bit of it. Two neighbours of a text have three bytes in common, so that
//! one word answers for both:
//!
//! ```text
//!  text        a  b  c  d  e            the word of b, c and d:
//!  place 0     ▓  ═  ═  ═                 bits 0–31:  a, of patterns that begin with abcd
//!  place 1        ═  ═  ═  ▓              bits 32–63: e, of patterns that begin with bcde
//! ```
//!
//! The lower five bits of a byte choose the bit, and bit 5 of the others is set on either side, so that the cases of a
//! letter are one. The table has 8 words for each pattern, so that about one place of 256 passes by chance; up to 512 KiB,
//! half of a second-level cache, which is one place of 100 for 20,000 patterns; from 131,072 patterns on it has half a word
//! for each.

use super::{BLOCK, PLACES, WINDOW};
use crate::Pattern;

const WORDS_MIN: usize = 8;
/// What a second-level cache holds beside other things.
const WORDS_NEAR: usize = 1 << 16;
/// The bits in which the cases of three letters differ.
pub(super) const CASES: u32 = 0x20_2020;
/// The golden ratio of 2^32.
pub(super) const FACTOR: u32 = 0x9e37_79b1;

#[derive(Clone)]
pub(super) struct Grams {
    /// 2^(32 − `shift`) words.
    pub(super) table: Box<[u64]>,
    pub(super) shift: u32,
    /// Of short patterns: for each first byte, a bit for each second one.
    pub(super) short: Option<Box<[u32; 256]>>,
}

impl Grams {
    pub(super) fn new(patterns: &[&Pattern]) -> Self {
        let count = patterns.len();
        let words = (8 * count).clamp(WORDS_MIN, WORDS_NEAR).max(count / 2).next_power_of_two();
        let shift = 32 - words.ilog2();
        let mut grams = Self { table: vec![0; words].into(), shift, short: None };
        patterns.iter().for_each(|pattern| grams.insert(pattern.bytes()));
        grams
    }

    fn insert(&mut self, bytes: &[u8]) {
        if let Some([a, b, c, d]) = bytes.first_chunk::<WINDOW>() {
            for (common, bit) in [([*b, *c, *d], a & 31), ([*a, *b, *c], 32 + (d & 31))] {
                let [a, b, c] = common;
                let word = hash(u32::from_le_bytes([a, b, c, 0]), self.shift);
                self.table[word as usize] |= 1 << bit;
            }
            return;
        }
        let short = self.short.get_or_insert_with(|| Box::new([0; 256]));
        let Some(first) = bytes.first() else { return };
        let seconds = bytes.get(1).map_or(u32::MAX, |second| 1 << (second & 31));
        for first in [first.to_ascii_lowercase(), first.to_ascii_uppercase()] {
            short[usize::from(first)] |= seconds;
        }
    }

    /// The word of three bytes (the lower ones of `common`).
    #[inline(always)]
    pub(super) fn word(&self, common: u32) -> u64 {
        self.at(hash(common, self.shift))
    }

    /// A word of the table. The mask changes nothing, as each hash is below the length; it spares the test of that.
    #[inline(always)]
    pub(super) fn at(&self, index: u32) -> u64 {
        self.table[index as usize & (self.table.len() - 1)]
    }

    /// 1 where a pattern may begin with these bytes; by both words that say so.
    #[inline(always)]
    pub(super) fn test(&self, window: [u8; WINDOW]) -> u64 {
        let [first, second, _, last] = window;
        let window = u32::from_le_bytes(window);
        let mut passed = self.word(window >> 8) >> (first & 31);
        passed &= self.word(window & 0xff_ffff) >> (32 + (last & 31));
        if let Some(short) = &self.short {
            passed |= u64::from(short[usize::from(first)] >> (second & 31));
        }
        passed & 1
    }

    /// Whether a pattern of up to three bytes may begin with these.
    #[inline(always)]
    pub(super) fn short(&self, [first, second, ..]: [u8; WINDOW]) -> bool {
        self.short.as_ref().is_some_and(|short| short[usize::from(first)] >> (second & 31) & 1 != 0)
    }

    /// All places of a block.
    pub(super) fn block(&self, text: &[u8; BLOCK]) -> u64 {
        let mut places = 0;
        for at in (0..PLACES).step_by(2) {
            let common = u32::from_le_bytes([text[at + 1], text[at + 2], text[at + 3], 0]);
            let word = self.word(common);
            places |= (word >> (text[at] & 31) & 1) << at;
            places |= (word >> (32 + (text[at + 4] & 31)) & 1) << (at + 1);
        }
        if let Some(short) = &self.short {
            for at in 0..PLACES {
                places |= u64::from(short[usize::from(text[at])] >> (text[at + 1] & 31) & 1) << at;
            }
        }
        places
    }
}

/// The upper bits of a product depend on all bytes (Knuth volume 3, §6.4).
#[inline(always)]
fn hash(common: u32, shift: u32) -> u32 {
    (common | CASES).wrapping_mul(FACTOR) >> shift
}
