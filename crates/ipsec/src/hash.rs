//! The hash of tables that packets are looked up in.
//!
//! Control chooses the keys, so no sender can fill a table with keys that meet. What a packet asks for is mixed with a secret by
//! multiplications; the standard library's hash defends against more, and costs more.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Odd, of ones and zeros without a pattern: the fraction of the golden ratio.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// A secret.
#[derive(Debug, Clone)]
pub(crate) struct Keyed(u64);

impl Default for Keyed {
    fn default() -> Self {
        Self(RandomState::new().hash_one(FACTOR))
    }
}

impl Keyed {
    /// No secret: a run over captures is repeatable.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }
}

impl BuildHasher for Keyed {
    type Hasher = Mixed;

    fn build_hasher(&self) -> Mixed {
        Mixed(self.0)
    }
}

/// What was mixed so far.
#[derive(Debug)]
pub(crate) struct Mixed(u64);

impl Mixed {
    fn mix(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * u128::from(FACTOR);
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.mix(u64::from_le_bytes(*word)));
        rest.iter().for_each(|byte| self.mix((*byte).into()));
    }

    fn write_u8(&mut self, value: u8) {
        self.mix(value.into());
    }

    fn write_u32(&mut self, value: u32) {
        self.mix(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        self.mix(value);
    }

    /// Lengths of arrays: always the same here.
    fn write_usize(&mut self, _: usize) {}
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Neighbouring keys, as control counts them, are apart in their lower and in their upper bits, by which a table finds them.
    #[test]
    fn neighbours_are_apart() {
        let keyed = Keyed::default();
        let hash = |n: u32| keyed.hash_one((4_u8, [0_u64, 0x0a00_0001], 0x1000 + n));
        let all: Vec<u64> = (0..4096).map(hash).collect();
        let low: HashSet<u64> = all.iter().map(|own| own & 0xffff).collect();
        let high: HashSet<u64> = all.iter().map(|own| own >> 48).collect();
        // 4,096 of 65,536 at random: about 3,970 are distinct.
        assert!(low.len() > 3500 && high.len() > 3500, "{} {}", low.len(), high.len());
        assert_ne!(keyed.hash_one(1_u32), Keyed::default().hash_one(1_u32));
    }
}
