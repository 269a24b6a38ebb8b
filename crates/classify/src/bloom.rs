//! Bloom search: a filter of each class before its table (GSwitch §4.3 and Algorithm 5).
//!
//! Most classes hold nothing for a header. A Bloom filter of `m` bits and `k` functions says so nearly always,
//! and reads one word for it. The structure is that of [`tuple`](crate::tuple), with filters beside the class
//! tables.
//!
//! **All bits of a hash are in one word.** As in the paper `m` is a power of two, and the first function,
//! `g(x) = (a x + b) >> (32 - log2 m)`, chooses any bit; the other functions choose bits of the same word of 32. A
//! second access, and a branch that one header in thirty takes the other way, cost more than they save: with
//! them the filters gained 15 % over tuple search (128K rules, 512 classes), with one word 45 %. The price
//! is a higher rate of false positives for the same `m`: of 282 rules in 2 KB 0.3 % where the paper has 0.1 %.
//! Both formulas and the measured rate are reported ([`FilterStats`](crate::FilterStats), [`measure`]).
//!
//! **k and m** are chosen from the set ([`plan`]): as in Table 2 (`k = 2`, and the least `m` that gives what 2 KB
//! give 282 rules), unless the filters of all classes would then be larger than a core's second-level cache:
//! more functions give the same rate with fewer bits.
//!
//! An entry that is removed leaves its bits; when more have gone than are there the filter is made again.
//!
//! Thread rule: as the crate's.

use std::collections::HashMap;

use lookup::{Blob, Patch};

use crate::classifier::{Classifier, Memory, Stats};
use crate::rule::{RuleError, RuleRef, RuleSet};
use crate::tuple::{
    FilterPlan, Options, TupleBuilder, TupleSpace, false_positive_rate,
    false_positive_rate_in_words,
};

/// Filters of this size in all stay near a core, bytes.
const NEAR_BYTES: u64 = 1 << 20;

/// The rules of a Bloom search, as the control side changes them.
#[derive(Debug)]
pub struct BloomBuilder(TupleBuilder);

impl BloomBuilder {
    /// With a plan for the filters of its own, or another hash.
    ///
    /// # Errors
    /// As [`Classifier::build`].
    pub fn with(set: &RuleSet, options: Options) -> Result<Self, RuleError> {
        let filter = Some(options.filter.unwrap_or_else(|| plan(set)));
        Ok(Self(TupleBuilder::with(set, Options { filter, ..options })?))
    }
}

/// k and m for a set.
pub fn plan(set: &RuleSet) -> FilterPlan {
    // By what their fields look at that are not ranges: near enough to the classes, and quick.
    let width = set.schema().words();
    let mut classes: HashMap<&[u32], usize> = HashMap::new();
    for rule in set.iter() {
        *classes.entry(&rule.words[width..]).or_default() += 1;
    }
    let bytes = |plan: &FilterPlan| -> u64 {
        classes.values().map(|entries| plan.bits(*entries) / 8).sum()
    };
    let plans = (2..=4).map(|functions| FilterPlan { functions, ..FilterPlan::TABLE_2 });
    let mut plans: Vec<(u64, FilterPlan)> = plans.map(|plan| (bytes(&plan), plan)).collect();
    let near = plans.iter().find(|(bytes, _)| *bytes <= NEAR_BYTES).copied();
    plans.sort_by_key(|(bytes, _)| *bytes);
    near.unwrap_or(plans[0]).1
}

/// What the filters say for headers.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct FilterReport {
    /// Pairs of a header and a class that holds nothing for it.
    pub misses: u64,
    /// Of them, those that passed the filter.
    pub passed: u64,
}

impl FilterReport {
    /// The measured part of false positives.
    pub fn rate(&self) -> f64 {
        self.passed as f64 / self.misses.max(1) as f64
    }
}

/// Asks the filters of all classes for all headers: false positives as they are, beside
/// those of [`FilterStats`](crate::FilterStats). `None` where the image has no filters.
pub fn measure(blob: &Blob, headers: &[u32]) -> Option<FilterReport> {
    let space = TupleSpace::new(blob).filter(TupleSpace::has_filters)?;
    let counts = space.count_filters(headers);
    Some(FilterReport { misses: counts.misses, passed: counts.passed })
}

/// The formula of §4.3: the part of false positives of a filter of `bits` bits that holds `entries`, if the
/// bits of a hash could be anywhere.
pub fn paper_formula(functions: u32, entries: usize, bits: u64) -> f64 {
    false_positive_rate(functions, entries, bits)
}

/// The same for our filters.
pub fn formula(functions: u32, entries: usize, bits: u64) -> f64 {
    false_positive_rate_in_words(functions, entries, bits)
}

impl Classifier for BloomBuilder {
    fn build(set: &RuleSet) -> Result<Self, RuleError> {
        Self::with(set, Options::default())
    }

    fn insert(&mut self, rule: RuleRef<'_>, patches: &mut Vec<Patch>) -> Result<(), RuleError> {
        self.0.insert(rule, patches)
    }

    fn remove(&mut self, id: u32, patches: &mut Vec<Patch>) -> bool {
        self.0.remove(id, patches)
    }

    fn blob(&self) -> &Blob {
        self.0.blob()
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn memory(&self) -> Memory {
        self.0.memory()
    }

    fn stats(&self) -> Stats {
        self.0.stats()
    }
}
