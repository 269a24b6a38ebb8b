//! The read side.

use interleave::{run_machine, run_machine_direct};
use lookup::Blob;

use super::hashes::{Murmur3, Universal};
use super::layout::*;
use super::search::Search;
use crate::classifier::Classify;
use crate::explain::Explained;
use crate::linear::Vectors;
use crate::rule::Match;
use crate::schema::Schema;

/// Lookups in flight.
const IN_FLIGHT: usize = 32;

/// How headers are looked up; all give the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Form {
    /// What is best on this processor.
    #[default]
    Best,
    /// One header after the other.
    Direct,
    /// Headers in turns, which take one class each time: `interleave`'s machine.
    Switched,
    /// Sixteen headers at once, with AVX-512; as [`Form::Direct`] where that is absent.
    Vectors,
}

/// A tuple space to search.
#[derive(Debug, Clone, Copy)]
pub struct TupleSpace<'a> {
    pub(super) image: &'a [u32],
    pub(super) words: usize,
    murmur3: bool,
    pub(super) records: &'a [u32],
    pub(super) bounds: &'a [u32],
    pub(super) slots: [Linear; SUBTABLES],
    filters: [Linear; FILTERS_MAX],
    filter_count: usize,
}

/// How often filters were asked, and what they said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct FilterCounts {
    /// Classes without an entry for a header whose filters were asked.
    pub(crate) misses: u64,
    /// Of them, those whose filters said yes.
    pub(crate) passed: u64,
}

impl<'a> TupleSpace<'a> {
    /// The table in `blob`; `None` if that holds none.
    pub fn new(blob: &'a Blob) -> Option<Self> {
        let image = blob.words();
        if *image.get(HEADER_MAGIC)? != MAGIC || image.len() > i32::MAX as usize {
            return None;
        }
        let header = |at: usize| image.get(at).map(|word| *word as usize);
        let (words, classes) = (header(HEADER_WORDS)?, header(HEADER_CLASSES)?);
        if !crate::schema::WIDTHS.contains(&words) {
            return None;
        }
        image.get(..header_words(words))?;
        let records = image.get(header(HEADER_RECORDS)?..)?;
        let records = records.get(..classes.checked_mul(record_words(words))?)?;
        let bounds = image.get(header(HEADER_BOUNDS)?..)?.get(..classes)?;
        let (functions, _) = image[FUNCTIONS..PARAMETERS].as_chunks::<2>();
        let function = |at: usize| Linear { a: functions[at][0], b: functions[at][1] };
        Some(Self {
            image,
            words,
            murmur3: header(HEADER_HASH)? == 1,
            records,
            bounds,
            slots: std::array::from_fn(function),
            filters: std::array::from_fn(|at| function(SUBTABLES + at)),
            filter_count: header(HEADER_FILTERS)?.min(FILTERS_MAX),
        })
    }

    /// Classes.
    pub fn classes(&self) -> usize {
        self.bounds.len()
    }

    /// Whether classes have filters.
    pub fn has_filters(&self) -> bool {
        self.filter_count > 0
    }

    #[inline(always)]
    pub(super) fn filters(&self) -> &[Linear] {
        &self.filters[..self.filter_count]
    }

    fn parameter(&self, at: usize) -> u64 {
        let at = PARAMETERS + 2 * at;
        u64::from(self.image[at]) | u64::from(self.image[at + 1]) << 32
    }

    fn universal<const W: usize>(&self) -> Universal<W> {
        Universal { a: std::array::from_fn(|at| self.parameter(at)), b: self.parameter(W) }
    }

    fn murmur3(&self) -> Murmur3 {
        Murmur3 { seed: self.parameter(0) as u32 }
    }

    /// As [`Classify::classify`], in a form.
    ///
    /// # Panics
    /// As [`Classify::classify`].
    pub fn classify_by(&self, form: Form, headers: &[u32], out: &mut [Match]) {
        assert_eq!(headers.len(), out.len() * self.words, "one result for each header");
        let form = match form {
            Form::Best => Form::Vectors,
            form => form,
        };
        let vectors = Vectors::Avx512.is_there() && cfg!(target_arch = "x86_64");
        let form = if form == Form::Vectors && !vectors { Form::Direct } else { form };
        match self.words {
            2 => self.of_width::<2>(form, headers, out),
            4 => self.of_width::<4>(form, headers, out),
            9 => self.of_width::<9>(form, headers, out),
            10 => self.of_width::<10>(form, headers, out),
            16 => self.of_width::<16>(form, headers, out),
            32 => self.of_width::<32>(form, headers, out),
            _ => unreachable!("`new` takes no other width"),
        }
    }

    fn of_width<const W: usize>(&self, form: Form, headers: &[u32], out: &mut [Match]) {
        let (headers, _) = headers.as_chunks::<W>();
        match self.murmur3 {
            false => Search { space: *self, hash: self.universal::<W>() }.run(form, headers, out),
            true => Search { space: *self, hash: self.murmur3() }.run(form, headers, out),
        }
    }

    /// Asks all filters for all headers, and counts.
    pub(crate) fn count_filters(&self, headers: &[u32]) -> FilterCounts {
        match self.words {
            2 => self.count_of_width::<2>(headers),
            4 => self.count_of_width::<4>(headers),
            9 => self.count_of_width::<9>(headers),
            10 => self.count_of_width::<10>(headers),
            16 => self.count_of_width::<16>(headers),
            _ => self.count_of_width::<32>(headers),
        }
    }

    /// The way of a header, class by class.
    ///
    /// # Panics
    /// For a header of another width.
    pub(crate) fn explain(&self, schema: &Schema, header: &[u32]) -> Explained {
        match self.words {
            2 => self.explain_width::<2>(schema, header),
            4 => self.explain_width::<4>(schema, header),
            9 => self.explain_width::<9>(schema, header),
            10 => self.explain_width::<10>(schema, header),
            16 => self.explain_width::<16>(schema, header),
            _ => self.explain_width::<32>(schema, header),
        }
    }

    fn explain_width<const W: usize>(&self, schema: &Schema, header: &[u32]) -> Explained {
        let header = header.first_chunk::<W>().expect("a header of the table's width");
        match self.murmur3 {
            false => Search { space: *self, hash: self.universal::<W>() }.explain(schema, header),
            true => Search { space: *self, hash: self.murmur3() }.explain(schema, header),
        }
    }

    fn count_of_width<const W: usize>(&self, headers: &[u32]) -> FilterCounts {
        let (headers, _) = headers.as_chunks::<W>();
        match self.murmur3 {
            false => Search { space: *self, hash: self.universal::<W>() }.count(headers),
            true => Search { space: *self, hash: self.murmur3() }.count(headers),
        }
    }
}

impl Classify for TupleSpace<'_> {
    fn words(&self) -> usize {
        self.words
    }

    fn classify(&self, headers: &[u32], out: &mut [Match]) {
        self.classify_by(Form::Best, headers, out);
    }
}

impl<const W: usize, H: super::search::Hash<W>> Search<'_, W, H> {
    fn run(&self, form: Form, headers: &[[u32; W]], out: &mut [Match]) {
        match form {
            Form::Switched => run_machine::<IN_FLIGHT, _>(self, headers, out),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `classify_by` asked whether the processor has AVX-512 F and BW.
            Form::Vectors => unsafe { self.run_vectors(headers, out) },
            _ => run_machine_direct(self, headers, out),
        }
    }
}
