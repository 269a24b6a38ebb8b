//! Eight buckets of patterns: a place passes where, for one bucket at least, each of its four bytes has a low half and a
//! high half that some pattern of the bucket has there.
//!
//! Neighbours in the order of bytes share a bucket, so that high halves stay few. Patterns that are shorter than the
//! window say nothing about the bytes behind them, and so have a bucket to themselves.

use super::WINDOW;
#[cfg(test)]
use super::{BLOCK, PLACES};
use crate::Pattern;

const BUCKETS: usize = 8;

/// For each byte of the window and each half: the buckets (bits) in which that half is there.
#[derive(Clone, Default)]
pub(super) struct Buckets {
    pub(super) low: [[u8; 16]; WINDOW],
    pub(super) high: [[u8; 16]; WINDOW],
}

impl Buckets {
    pub(super) fn new(patterns: &[&Pattern]) -> Self {
        let (short, mut long): (Vec<&Pattern>, Vec<&Pattern>) =
            patterns.iter().partition(|pattern| pattern.bytes().len() < WINDOW);
        long.sort_unstable_by(|a, b| a.bytes()[..WINDOW].cmp(&b.bytes()[..WINDOW]));
        let buckets = BUCKETS - usize::from(!short.is_empty());
        let mut tables = Self::default();
        for (place, pattern) in long.iter().enumerate() {
            tables.insert(1 << (place * buckets / long.len()), pattern);
        }
        short.iter().for_each(|pattern| tables.insert(1 << (BUCKETS - 1), pattern));
        tables
    }

    fn insert(&mut self, bucket: u8, pattern: &Pattern) {
        for place in 0..WINDOW {
            let Some(byte) = pattern.bytes().get(place) else {
                self.low[place].iter_mut().for_each(|buckets| *buckets |= bucket);
                self.high[place].iter_mut().for_each(|buckets| *buckets |= bucket);
                continue;
            };
            let upper = if pattern.is_nocase() { byte.to_ascii_uppercase() } else { *byte };
            for byte in [*byte, upper] {
                self.low[place][usize::from(byte & 15)] |= bucket;
                self.high[place][usize::from(byte >> 4)] |= bucket;
            }
        }
    }

    /// The places of a block that pass, byte by byte: the reference of the vectors.
    #[cfg(test)]
    pub(super) fn block(&self, text: &[u8; BLOCK]) -> u64 {
        let mut passed = [0xff_u8; PLACES];
        for (place, (low, high)) in self.low.iter().zip(&self.high).enumerate() {
            for (passed, byte) in passed.iter_mut().zip(&text[place..]) {
                *passed &= low[usize::from(byte & 15)] & high[usize::from(byte >> 4)];
            }
        }
        let bits = passed.iter().rev();
        bits.fold(0, |mask, passed| mask << 1 | u64::from(*passed != 0))
    }
}
