//! Sets of rules and traces, made: the same options and seed give the same ones, everywhere.
//!
//! - [`synthetic`]: so many rules in so many classes, as GSwitch's generator does (§6).
//! - [`parameters`], [`structured`]: sets with the structure that a parameter file of ClassBench describes (Taylor,
//!   Turner, "ClassBench: A Packet Classification Benchmark", INFOCOM 2005).
//! - [`trace`]: headers drawn from the rules of a set, in bursts.

pub mod parameters;
pub mod structured;
pub mod synthetic;
pub mod trace;
mod trie;

/// Why a set cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GenerateError {
    /// Options that contradict each other.
    #[error("{0}")]
    Options(String),
    /// Not so many different rules.
    #[error("only {found} different rules could be generated, {wanted} were requested")]
    TooFew {
        /// How many there are.
        found: usize,
        /// How many there should be.
        wanted: usize,
    },
}

/// A small, good and reproducible generator (SplitMix64; Steele, Lea, Flood, OOPSLA 2014).
#[derive(Debug, Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `n`; 0 for none.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }

    /// From 0 to below 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(crate) fn wide(&mut self) -> u128 {
        u128::from(self.next()) << 64 | u128::from(self.next())
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at + 1));
        }
    }
}
