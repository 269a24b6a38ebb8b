//! One search, written once for all widths and hashes: one class a step.

use std::task::Poll;

use interleave::{Machine, prefetch};

use super::hashes::TupleHash;
use super::layout::*;
use super::view::{FilterCounts, SearchReport, TupleSpace};
use crate::explain::{Explained, Outcome, Step, mask_text};
use crate::rule::Match;
use crate::schema::Schema;

/// A hash in all forms that a search has.
#[cfg(target_arch = "x86_64")]
pub(super) trait Hash<const W: usize>: TupleHash<W> + super::vectors::Hash16<W> {}
#[cfg(target_arch = "x86_64")]
impl<const W: usize, H: TupleHash<W> + super::vectors::Hash16<W>> Hash<W> for H {}
/// A hash in all forms that a search has.
#[cfg(not(target_arch = "x86_64"))]
pub(super) trait Hash<const W: usize>: TupleHash<W> {}
#[cfg(not(target_arch = "x86_64"))]
impl<const W: usize, H: TupleHash<W>> Hash<W> for H {}

/// A space, and its hash.
#[derive(Debug, Clone, Copy)]
pub(super) struct Search<'a, const W: usize, H> {
    pub(super) space: TupleSpace<'a>,
    pub(super) hash: H,
}

impl<'a, const W: usize, H: TupleHash<W>> Search<'a, W, H> {
    /// Mask and record of a class.
    #[inline(always)]
    pub(super) fn class(&self, class: usize) -> (&'a [u32; W], Record) {
        let stride = record_words(W);
        let words = &self.space.records[class * stride..][..stride];
        let (mask, rest) = words.split_first_chunk::<W>().unwrap_or((&[0; W], &[]));
        (mask, Record::from_words(rest))
    }

    /// Whether no class from this one on can hold a better rule.
    #[inline(always)]
    fn is_over(&self, class: usize, best: Match) -> bool {
        self.space.bounds.get(class).is_none_or(|bound| best.priority() < *bound)
    }

    /// The word of a class's filter that a hash's bits are in.
    #[inline(always)]
    fn filter_word(&self, record: &Record, x: u32) -> &'a u32 {
        let (word, _) = filter_bits(self.space.filters(), x, record.shift);
        &self.space.image[(record.filter + word) as usize]
    }

    /// Whether a class's filter lets a hash pass; always, where there are none.
    #[inline(always)]
    fn passes(&self, record: &Record, x: u32) -> bool {
        let (_, bits) = filter_bits(self.space.filters(), x, record.shift);
        !self.space.has_filters() || bits & !self.filter_word(record, x) == 0
    }

    #[inline(always)]
    fn slot(&self, record: &Record, table: usize, x: u32) -> &'a u32 {
        let slot = self.space.slots[table].slot(x, record.depth);
        &self.space.image[(record.slots + table as u32 * record.depth + slot) as usize]
    }

    /// What a class holds for a header.
    #[inline(always)]
    fn find_in(&self, header: &[u32; W], mask: &[u32; W], record: &Record, x: u32) -> Match {
        let mut best = Match::NONE;
        for table in 0..SUBTABLES {
            let slot = *self.slot(record, table, x);
            if (slot ^ x) & record.tag_mask == 0 {
                best = best.min(self.entry(header, mask, record, slot & !record.tag_mask));
            }
        }
        best
    }

    /// The best rule of an entry, if the header is one of its.
    #[inline(always)]
    pub(super) fn entry(
        &self,
        header: &[u32; W],
        mask: &[u32; W],
        record: &Record,
        number: u32,
    ) -> Match {
        let words = entry_words(W);
        let entry = &self.space.image[record.entries as usize + number as usize * words..][..words];
        let differ = (0..W).fold(0, |differ, at| differ | header[at] & mask[at] ^ entry[at]);
        if differ == 0 { Match::from_words(entry[W], entry[W + 1]) } else { Match::NONE }
    }

    /// The hash of a header under a mask.
    #[inline(always)]
    fn masked_hash(&self, header: &[u32; W], mask: &[u32; W]) -> u32 {
        self.hash.hash(&std::array::from_fn(|at| header[at] & mask[at]))
    }

    /// Comes to a class: its hash, with what is read first on its way.
    #[inline(always)]
    fn come(&self, header: &[u32; W], class: usize) -> u32 {
        let (mask, record) = self.class(class);
        let x = self.masked_hash(header, mask);
        match self.space.has_filters() {
            true => prefetch(self.filter_word(&record, x)),
            false => (0..SUBTABLES).for_each(|table| prefetch(self.slot(&record, table, x))),
        }
        x
    }

    /// The way of a header, class by class.
    pub(super) fn explain(&self, schema: &Schema, header: &[u32; W]) -> Explained {
        let classes = self.space.classes();
        let (mut steps, mut best, mut end) = (Vec::new(), Match::NONE, "no class is left");
        for class in 0..classes {
            if self.is_over(class, best) {
                end = "no later class has a better rule";
                break;
            }
            let (mask, record) = self.class(class);
            let x = self.masked_hash(header, mask);
            let text = mask_text(schema, mask);
            let place = format!("class {class} of {classes} ({text})");
            let mut accesses = u32::from(self.space.has_filters());
            let mut outcome = Outcome::Nothing("not in its filter");
            if self.passes(&record, x) {
                let slots = (0..SUBTABLES).map(|table| *self.slot(&record, table, x));
                let tags = slots.filter(|slot| (slot ^ x) & record.tag_mask == 0).count();
                accesses += SUBTABLES as u32 + tags as u32;
                let found = self.find_in(header, mask, &record, x);
                best = best.min(found);
                outcome = Outcome::of(found, "no entry");
            }
            steps.push(Step { place, accesses, outcome });
        }
        Explained { steps, end, found: best }
    }

    /// What headers have searches do.
    pub(super) fn cost(&self, headers: &[[u32; W]]) -> SearchReport {
        let mut report = SearchReport { headers: headers.len() as u64, ..SearchReport::default() };
        for header in headers {
            let (mut class, mut best) = (0, Match::NONE);
            while !self.is_over(class, best) {
                let (mask, record) = self.class(class);
                let x = self.masked_hash(header, mask);
                if self.passes(&record, x) {
                    report.tables += 1;
                    let slots = (0..SUBTABLES).map(|table| *self.slot(&record, table, x));
                    let equal = |slot: &u32| (slot ^ x) & record.tag_mask == 0;
                    report.entries += slots.filter(equal).count() as u64;
                    best = best.min(self.find_in(header, mask, &record, x));
                }
                class += 1;
            }
            report.classes += class as u64;
            report.classes_max = report.classes_max.max(class as u64);
        }
        report
    }

    pub(super) fn count(&self, headers: &[[u32; W]]) -> FilterCounts {
        let mut counts = FilterCounts::default();
        for header in headers {
            for class in 0..self.space.classes() {
                let (mask, record) = self.class(class);
                let x = self.masked_hash(header, mask);
                if !self.find_in(header, mask, &record, x).is_some() {
                    counts.misses += 1;
                    counts.passed += u64::from(self.passes(&record, x));
                }
            }
        }
        counts
    }
}

/// Which class, the hash there, and what was found before.
#[derive(Debug, Clone, Copy)]
pub(super) struct State {
    class: u32,
    x: u32,
    best: Match,
}

impl<const W: usize, H: TupleHash<W>> Machine for Search<'_, W, H> {
    type Key = [u32; W];
    type Value = Match;
    type State = State;

    #[inline(always)]
    fn begin(&self, header: &[u32; W]) -> State {
        let x = if self.space.classes() > 0 { self.come(header, 0) } else { 0 };
        State { class: 0, x, best: Match::NONE }
    }

    #[inline(always)]
    fn step(&self, header: &[u32; W], state: &mut State) -> Poll<Match> {
        if self.space.bounds.is_empty() {
            return Poll::Ready(Match::NONE);
        }
        let class = state.class as usize;
        let (mask, record) = self.class(class);
        if self.passes(&record, state.x) {
            state.best = state.best.min(self.find_in(header, mask, &record, state.x));
        }
        if self.is_over(class + 1, state.best) {
            return Poll::Ready(state.best);
        }
        state.class += 1;
        state.x = self.come(header, class + 1);
        Poll::Pending
    }
}
