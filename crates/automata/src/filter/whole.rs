//! Whether a whole pattern may be at a place, not its first four bytes alone.
//!
//! Texts that are made of patterns' beginnings (an attacker's, or those of one protocol that all patterns are of) pass
//! what looks at the first four bytes everywhere. So what has passed is asked for more: how long are the patterns that begin
//! with these bytes, and does one of that length end with what the text has there?
//!
//! ```text
//!  text     … a b c d e f g h …        lengths: abcd ─▶ 6 and 7, a bit each, by hash
//!               ═══════                pairs:   (abcd, cdef, 6)? (abcd, defg, 7)?   two bits of a word, by hash
//!                   ═══════
//! ```
//!
//! Patterns that are longer than [`LEN_MAX`] count as their first bytes. A pattern that may go on behind the segment passes, so
//! that the state behind it is exact.

use super::WINDOW;
use crate::Pattern;

/// Bytes of a pattern that are looked at.
const LEN_MAX: usize = WINDOW + 63;
/// The bit in which the cases of a letter differ, in four bytes.
const CASES: u32 = 0x2020_2020;

#[derive(Clone)]
pub(super) struct Whole {
    /// For each hash of four bytes, a bit for each length from four on.
    lengths: Box<[u64]>,
    /// Sets of hashes.
    pairs: Box<[u64]>,
}

impl Whole {
    pub(super) fn new(patterns: &[&Pattern]) -> Self {
        let count = patterns.len().max(4);
        let mut whole = Self {
            lengths: vec![0; count.next_power_of_two()].into(),
            // About 16 bits for each.
            pairs: vec![0; (count / 4).next_power_of_two()].into(),
        };
        patterns.iter().for_each(|pattern| whole.insert(pattern.bytes()));
        whole
    }

    fn insert(&mut self, bytes: &[u8]) {
        let bytes = &bytes[..bytes.len().min(LEN_MAX)];
        let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) else { return };
        let first = folded(*first);
        let at = self.at(first);
        self.lengths[at] |= 1 << (bytes.len() - WINDOW);
        let (word, bits) = self.pair(first, folded(*last), bytes.len());
        self.pairs[word] |= bits;
    }

    #[inline]
    fn at(&self, first: u32) -> usize {
        let hash = u64::from(first).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash >> 32) as usize & (self.lengths.len() - 1)
    }

    /// A word of the pairs, and its bits.
    #[inline]
    fn pair(&self, first: u32, last: u32, len: usize) -> (usize, u64) {
        let pair = u64::from(first) << 32 | u64::from(last);
        let hash = (pair ^ (len as u64).wrapping_mul(0xd6e8_feb8_6659_fd93))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let hash = (hash ^ hash >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (hash >> 32) as usize & (self.pairs.len() - 1);
        (word, 1 << (hash >> 20 & 63) | 1 << (hash >> 26 & 63))
    }

    /// Whether a pattern of four bytes or more may begin with the text, which is what a segment has from a place on.
    #[inline]
    pub(super) fn test(&self, text: &[u8]) -> bool {
        let Some(first) = text.first_chunk() else { return true };
        let first = folded(*first);
        let mut lengths = self.lengths[self.at(first)];
        while lengths != 0 {
            let len = WINDOW + lengths.trailing_zeros() as usize;
            let Some(last) = text.get(..len).and_then(|text| text.last_chunk()) else {
                return true;
            };
            let (word, bits) = self.pair(first, folded(*last), len);
            if self.pairs[word] & bits == bits {
                return true;
            }
            lengths &= lengths - 1;
        }
        false
    }
}

#[inline]
fn folded(bytes: [u8; WINDOW]) -> u32 {
    u32::from_le_bytes(bytes) | CASES
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Patterns pass, whole or cut by the end; their beginnings before other bytes nearly never.
    #[test]
    fn whole_patterns_pass() {
        let mut seed = 3_u64;
        let mut random = move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 40) as u8
        };
        let patterns: Vec<Pattern> = (0..2000)
            .map(|at| {
                let bytes: Vec<u8> = (0..WINDOW + at % 60).map(|_| random()).collect();
                let pattern = Pattern::new(&bytes);
                if at % 2 == 0 { pattern.nocase() } else { pattern }
            })
            .collect();
        let whole = Whole::new(&patterns.iter().collect::<Vec<_>>());
        let mut passed = 0;
        for pattern in &patterns {
            let len = pattern.bytes().len();
            let upper = pattern.bytes().to_ascii_uppercase();
            let bytes = if pattern.is_nocase() { &upper } else { pattern.bytes() };
            assert!(whole.test(&[bytes, b"behind"].concat()));
            (0..=len).for_each(|end| assert!(whole.test(&bytes[..end]), "{end} of {len}"));
            let mut other = [bytes, &[0; LEN_MAX]].concat();
            other[len.min(LEN_MAX) - 1] ^= 0x55;
            passed += u32::from(whole.test(&other));
        }
        assert!((1..200).contains(&passed), "{passed} of 2000");
        let none = Whole::new(&[]);
        assert!(!none.test(b"abcd") && none.test(b"abc"));
    }
}
