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

/// A method for the width of a table's headers.
macro_rules! by_width {
    ($space:ident, $method:ident($($argument:expr),*)) => {
        match $space.words {
            2 => $space.$method::<2>($($argument),*),
            4 => $space.$method::<4>($($argument),*),
            9 => $space.$method::<9>($($argument),*),
            10 => $space.$method::<10>($($argument),*),
            16 => $space.$method::<16>($($argument),*),
            32 => $space.$method::<32>($($argument),*),
            _ => unreachable!("`new` takes no other width"),
        }
    };
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

/// What searches had to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SearchReport {
    /// Headers.
    pub headers: u64,
    /// Classes that they came to.
    pub classes: u64,
    /// Classes of one header at most: the longest search.
    pub classes_max: u64,
    /// Class tables that were read; fewer than classes where filters kept headers off.
    pub tables: u64,
    /// Entries that were compared.
    pub entries: u64,
}

impl SearchReport {
    /// Classes a header.
    pub fn classes_per_header(&self) -> f64 {
        self.classes as f64 / self.headers.max(1) as f64
    }

    /// Class tables a header.
    pub fn tables_per_header(&self) -> f64 {
        self.tables as f64 / self.headers.max(1) as f64
    }

    /// Entries a header.
    pub fn entries_per_header(&self) -> f64 {
        self.entries as f64 / self.headers.max(1) as f64
    }
}

/// Searches for headers, and counts. `None` where the image is none of this structure.
pub fn measure(blob: &Blob, headers: &[u32]) -> Option<SearchReport> {
    let space = TupleSpace::new(blob)?;
    Some(by_width!(space, cost_of_width(headers)))
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
        by_width!(self, of_width(form, headers, out))
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
        by_width!(self, count_of_width(headers))
    }

    /// The way of a header, class by class.
    ///
    /// # Panics
    /// For a header of another width.
    pub(crate) fn explain(&self, schema: &Schema, header: &[u32]) -> Explained {
        by_width!(self, explain_width(schema, header))
    }

    fn explain_width<const W: usize>(&self, schema: &Schema, header: &[u32]) -> Explained {
        let header = header.first_chunk::<W>().expect("a header of the table's width");
        match self.murmur3 {
            false => Search { space: *self, hash: self.universal::<W>() }.explain(schema, header),
            true => Search { space: *self, hash: self.murmur3() }.explain(schema, header),
        }
    }

    fn cost_of_width<const W: usize>(&self, headers: &[u32]) -> SearchReport {
        let (headers, _) = headers.as_chunks::<W>();
        match self.murmur3 {
            false => Search { space: *self, hash: self.universal::<W>() }.cost(headers),
            true => Search { space: *self, hash: self.murmur3() }.cost(headers),
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
