//! The hash of a masked header.

use chunk::hash;

use super::layout::*;

/// Hash functions to choose from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HashKind {
    /// Multiply-shift over words (Dietzfelbinger 1996): strongly universal.
    #[default]
    Universal,
    /// Murmur3 x86_32.
    Murmur3,
}

/// 32 bits of a masked header.
pub(super) trait TupleHash<const W: usize>: Copy {
    fn hash(&self, masked: &[u32; W]) -> u32;
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Universal<const W: usize> {
    pub(super) a: [u64; W],
    pub(super) b: u64,
}

impl<const W: usize> TupleHash<W> for Universal<W> {
    #[inline(always)]
    fn hash(&self, masked: &[u32; W]) -> u32 {
        let mut sum = self.b;
        for (a, word) in self.a.iter().zip(masked) {
            sum = sum.wrapping_add(a.wrapping_mul(u64::from(*word)));
        }
        (sum >> 32) as u32
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Murmur3 {
    pub(super) seed: u32,
}

impl<const W: usize> TupleHash<W> for Murmur3 {
    #[inline(always)]
    fn hash(&self, masked: &[u32; W]) -> u32 {
        hash::murmur3_words(masked, self.seed)
    }
}

/// All functions of a table, from its seed: what is in the image, and the builder's own form.
#[derive(Debug, Clone)]
pub(super) struct Functions {
    pub(super) kind: HashKind,
    /// a of each word, then b.
    pub(super) parameters: Vec<u64>,
    pub(super) slots: [Linear; SUBTABLES],
    pub(super) filters: [Linear; FILTERS_MAX],
}

impl Functions {
    pub(super) fn new(kind: HashKind, words: usize, seed: u64) -> Self {
        let parameter = |index: usize| hash::parameter(seed, index as u32);
        let linear = |index: usize| {
            let both = parameter(words + 1 + index);
            Linear { a: both as u32 | 1, b: (both >> 32) as u32 }
        };
        Self {
            kind,
            parameters: (0..=words).map(parameter).collect(),
            slots: std::array::from_fn(linear),
            filters: std::array::from_fn(|index| linear(SUBTABLES + index)),
        }
    }

    /// The hash of a masked header.
    pub(super) fn hash(&self, masked: impl IntoIterator<Item = u32>) -> u32 {
        match self.kind {
            HashKind::Universal => {
                let b = self.parameters[self.parameters.len() - 1];
                let products = self.parameters.iter().zip(masked);
                let sum = products
                    .fold(b, |sum, (a, word)| sum.wrapping_add(a.wrapping_mul(u64::from(word))));
                (sum >> 32) as u32
            }
            HashKind::Murmur3 => {
                let masked: Vec<u32> = masked.into_iter().collect();
                hash::murmur3_words(&masked, self.parameters[0] as u32)
            }
        }
    }

    /// As they stand in the image, from [`FUNCTIONS`] on.
    pub(super) fn to_words(&self) -> Vec<u32> {
        let linear = self.slots.iter().chain(&self.filters).flat_map(|f| [f.a, f.b]);
        let mut words: Vec<u32> = linear.collect();
        words.resize(PARAMETERS - FUNCTIONS, 0);
        words.extend(self.parameters.iter().flat_map(|p| [*p as u32, (*p >> 32) as u32]));
        words
    }
}
