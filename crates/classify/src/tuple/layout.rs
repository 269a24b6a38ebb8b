//! The layout of the image.
//!
//! ```text
//! line 0     magic │ words of a header │ hash │ classes │ first record │ first bound │ filter functions │ seed
//! line 1     a, b of the slots' functions │ a, b of the filters' functions
//! line 2…    parameters of the hash, two words each
//!
//! directory  a record for each class: mask │ slots │ d │ tag mask │ entries │ filter │ shift │ count │ –
//! bounds     a word for each class
//! class      3 d slots: tag │ number of an entry        0: none; entry 0 matches nothing
//!            entries: value │ Match
//! filter     bits, a power of two of them; those of a hash in one word
//! ```

use crate::image::LINE_WORDS;

pub(super) const MAGIC: u32 = 0x7475_7001;
pub(super) const HEADER_MAGIC: usize = 0;
pub(super) const HEADER_WORDS: usize = 1;
pub(super) const HEADER_HASH: usize = 2;
pub(super) const HEADER_CLASSES: usize = 3;
pub(super) const HEADER_RECORDS: usize = 4;
pub(super) const HEADER_BOUNDS: usize = 5;
pub(super) const HEADER_FILTERS: usize = 6;

/// Functions: a, b.
pub(super) const FUNCTIONS: usize = LINE_WORDS;
/// Parameters of the hash.
pub(super) const PARAMETERS: usize = 2 * LINE_WORDS;

/// Subtables of a class (GSwitch §4.2).
pub(super) const SUBTABLES: usize = 3;

/// Functions of a filter at most.
pub(super) const FILTERS_MAX: usize = 4;

/// Words before the directory.
pub(super) fn header_words(words: usize) -> usize {
    PARAMETERS + 2 * (words + 1)
}

/// Words of a class's record.
pub(super) const fn record_words(words: usize) -> usize {
    (words + 8).next_multiple_of(4)
}

/// Words of an entry.
pub(super) const fn entry_words(words: usize) -> usize {
    (words + 2).next_multiple_of(4)
}

/// What a class's record says behind its mask.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Record {
    /// First slot; three subtables of `depth` follow each other.
    pub(super) slots: u32,
    /// Slots of a subtable.
    pub(super) depth: u32,
    /// Bits of a slot that are the hash's; the others number an entry.
    pub(super) tag_mask: u32,
    /// Entry 0.
    pub(super) entries: u32,
    /// First word of the filter.
    pub(super) filter: u32,
    /// 32 less the logarithm of the filter's bits.
    pub(super) shift: u32,
    /// Entries with numbers below this may be in use.
    pub(super) count: u32,
}

impl Record {
    pub(super) fn to_words(self) -> [u32; 7] {
        let Self { slots, depth, tag_mask, entries, filter, shift, count } = self;
        [slots, depth, tag_mask, entries, filter, shift, count]
    }

    #[inline(always)]
    pub(super) fn from_words(words: &[u32]) -> Self {
        let [slots, depth, tag_mask, entries, filter, shift, count, ..] = *words else {
            return Self::default();
        };
        Self { slots, depth, tag_mask, entries, filter, shift, count }
    }
}

/// `a x + b`.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Linear {
    pub(super) a: u32,
    pub(super) b: u32,
}

impl Linear {
    #[inline(always)]
    pub(super) fn of(self, x: u32) -> u32 {
        self.a.wrapping_mul(x).wrapping_add(self.b)
    }

    /// A slot of `depth`.
    #[inline(always)]
    pub(super) fn slot(self, x: u32, depth: u32) -> u32 {
        chunk::hash::to_range(self.of(x), depth)
    }
}

/// Where a hash is in a filter of `2^(32 - shift)` bits: a word, and its bits there.
#[inline(always)]
pub(super) fn filter_bits(functions: &[Linear], x: u32, shift: u32) -> (u32, u32) {
    let Some((first, others)) = functions.split_first() else { return (0, 0) };
    let bit = first.of(x) >> (shift & 31);
    let bits = others.iter().fold(1 << (bit % 32), |bits, f| bits | 1 << (f.of(x) >> 27));
    (bit / 32, bits)
}

/// How the filters of classes are made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FilterPlan {
    /// k, the hash functions: 1 to 4.
    pub functions: u32,
    /// The part of false positives that a full class may have by the paper's formula; m is the least power of
    /// two that gives it.
    pub rate: f64,
}

impl FilterPlan {
    /// GSwitch's choice, the bold column of Table 2: two functions, and 2 KB for 282 rules.
    pub const TABLE_2: Self = Self { functions: 2, rate: 1.2e-3 };

    /// Bits of the filter of a class of at most `entries`.
    pub fn bits(&self, entries: usize) -> u64 {
        let enough = |bits: &u64| {
            false_positive_rate(self.functions, entries, *bits) <= self.rate || *bits == 1 << 31
        };
        (6..=31).map(|log| 1 << log).find(enough).unwrap_or(1 << 31)
    }
}

/// The paper's formula: `(1 - e^(-k n / m))^k`, for bits anywhere in the filter.
pub(crate) fn false_positive_rate(functions: u32, entries: usize, bits: u64) -> f64 {
    let k = f64::from(functions);
    (1.0 - (-k * entries as f64 / bits as f64).exp()).powf(k)
}

/// The same where the bits of a hash are in one word: the mean over the number of entries `j` in a word, which
/// is Poisson's, of `(1 - (31/32)^(k j))^k`.
pub(crate) fn false_positive_rate_in_words(functions: u32, entries: usize, bits: u64) -> f64 {
    let (k, mean) = (f64::from(functions), 32.0 * entries as f64 / bits as f64);
    let (mut rate, mut probability) = (0.0, (-mean).exp());
    for j in 1..64 {
        probability *= mean / f64::from(j);
        rate += probability * (1.0 - (31.0_f64 / 32.0).powf(k * f64::from(j))).powf(k);
    }
    rate
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_2_of_the_paper() {
        // k = 2; KB of the filter and rules of a class.
        for (kilobytes, rules, rate) in [(1, 309, 6e-3), (2, 282, 1e-3), (4, 225, 1e-4)] {
            let found = false_positive_rate(2, rules, kilobytes * 8192);
            assert!(found < rate * 2.0 && found > rate / 2.0, "{found} for {rate}");
        }
        // Bits in one word: more of them, and the same for filters of one function.
        let (apart, together) = (false_positive_rate(2, 256, 1 << 14), 2.7e-3);
        let found = false_positive_rate_in_words(2, 256, 1 << 14);
        assert!(found > 2.0 * apart && (found - together).abs() < 2e-4, "{found}");
        let one = [false_positive_rate(1, 99, 2048), false_positive_rate_in_words(1, 99, 2048)];
        assert!((one[0] / one[1] - 1.0).abs() < 0.03, "{one:?}");
        assert_eq!(FilterPlan::TABLE_2.bits(282), 2 * 8192);
        assert_eq!(FilterPlan::TABLE_2.bits(1), 64);
    }
}
