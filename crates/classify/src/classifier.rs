//! What all structures have in common.

use lookup::versions::Patchable;
use lookup::{Blob, Patch};

use crate::cuts::Cuts;
use crate::linear::Linear;
use crate::rfc::Rfc;
use crate::rule::{Match, RuleError, RuleRef, RuleSet};
use crate::tic::Tic;
use crate::tuple::TupleSpace;

/// Finds the best rule of each header of a batch: the data side of every structure.
pub trait Classify {
    /// Words of a header.
    fn words(&self) -> usize;

    /// Writes the best rule of header `i`, or [`Match::NONE`], to `out[i]`. Headers are one after the other.
    ///
    /// # Panics
    /// When `headers` does not hold [`Classify::words`] words for each place of `out`.
    fn classify(&self, headers: &[u32], out: &mut [Match]);
}

/// The control side of a structure: rules in, an image and patches of it out.
///
/// The image that readers have begins as a copy of [`Classifier::blob`] ([`Classifier::tables`]) after the
/// build, and then takes every patch in order.
///
/// A builder's patches apply only to copies of its own image. A second build of the same rules may have another
/// image, because its hashes may have another secret seed.
pub trait Classifier: std::fmt::Debug + Send {
    /// A structure of these rules.
    ///
    /// # Errors
    /// Two rules with one id, a rule that the structure cannot hold, or no memory.
    fn build(set: &RuleSet) -> Result<Self, RuleError>
    where
        Self: Sized;

    /// Adds a rule, appending the patches to `patches`.
    ///
    /// # Errors
    /// As in [`Classifier::build`]; nothing has changed then for readers.
    fn insert(&mut self, rule: RuleRef<'_>, patches: &mut Vec<Patch>) -> Result<(), RuleError>;

    /// Takes a rule away, appending the patches to `patches`; `false` if there is none of this id.
    fn remove(&mut self, id: u32, patches: &mut Vec<Patch>) -> bool;

    /// Whether every change builds the whole structure anew, and its patch is a whole image. Such a structure is for
    /// rules that seldom change.
    fn rebuilds(&self) -> bool {
        false
    }

    /// The structure that was chosen, of one that chooses.
    fn chosen(&self) -> Option<&'static str> {
        None
    }

    /// The image, as it is for a reader who has all patches.
    fn blob(&self) -> &Blob;

    /// Rules.
    fn len(&self) -> usize;

    /// Whether there is no rule.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Memory of the image by part.
    fn memory(&self) -> Memory;

    /// What it looks like inside.
    fn stats(&self) -> Stats;

    /// A first copy for readers.
    ///
    /// # Errors
    /// The system gives no memory.
    fn tables(&self) -> Result<Tables, RuleError> {
        let blob = self.blob().try_clone();
        let bytes = self.blob().len_bytes();
        let blob = blob.map_err(|e| RuleError::Memory { bytes, reason: e.to_string() })?;
        Ok(Tables::new(blob))
    }
}

/// Memory of an image, bytes by part.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Memory {
    /// Name and bytes of each part.
    pub parts: Vec<(&'static str, usize)>,
}

impl Memory {
    /// All parts together.
    pub fn total(&self) -> usize {
        self.parts.iter().map(|(_, bytes)| bytes).sum()
    }
}

/// What a structure looks like inside.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Stats {
    /// Rules.
    pub rules: usize,
    /// Entries that the rules made: where ranges become prefixes, more than rules.
    pub entries: usize,
    /// Classes: entries of one mask. 0 in structures without.
    pub classes: usize,
    /// Entries of the largest class.
    pub class_max: usize,
    /// Entries that one rule made at most, where ranges become prefixes. 0 in other structures.
    pub expansion_max: usize,
    /// The longest chain of rules that share one entry, of which the best is found; 1 where no two are equal. 0 in
    /// structures without entries.
    pub chain_max: usize,
    /// Of the filters before classes, where there are any.
    pub filters: Option<FilterStats>,
    /// Of the instructions of TIC.
    pub code: Option<crate::tic::Report>,
}

/// The Bloom filters of a structure: k and m, and what formulas say of them.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct FilterStats {
    /// k, the hash functions.
    pub functions: u32,
    /// m, the bits of a filter: of the smallest.
    pub bits_min: u64,
    /// Of the largest.
    pub bits_max: u64,
    /// Bits of all filters.
    pub bits: u64,
    /// The part of lookups in filters that say yes for nothing, by GSwitch's formula; mean over the classes.
    pub false_positives_paper: f64,
    /// The same by the formula of our filters, whose bits are in one word.
    pub false_positives_formula: f64,
}

/// One version of a classifier, as readers have it: an image of any structure of this crate.
///
/// The image says itself what it is, so that a stage need not know which structure was chosen, and so that a
/// patch may bring another one.
#[derive(Debug, Clone)]
pub struct Tables {
    blob: Blob,
}

impl Tables {
    /// An image, made by a [`Classifier`].
    pub fn new(blob: Blob) -> Self {
        Self { blob }
    }

    /// The bytes, for devices.
    pub fn blob(&self) -> &Blob {
        &self.blob
    }
}

impl Classify for Tables {
    fn words(&self) -> usize {
        view(&self.blob).map_or(0, |view| view.words())
    }

    /// Headers of an image that is none of ours match nothing.
    fn classify(&self, headers: &[u32], out: &mut [Match]) {
        match view(&self.blob) {
            Some(view) => view.classify(headers, out),
            None => out.fill(Match::NONE),
        }
    }
}

impl Patchable for Tables {
    type Patch = Patch;

    fn apply(&mut self, patch: &Patch) {
        self.blob.apply(std::slice::from_ref(patch));
    }
}

/// A view of an image of any structure.
enum View<'a> {
    Linear(Linear<'a>),
    Tuple(TupleSpace<'a>),
    Cuts(Cuts<'a>),
    Rfc(Rfc<'a>),
    Tic(Tic<'a>),
}

fn view(blob: &Blob) -> Option<View<'_>> {
    let view = Linear::new(blob).map(View::Linear);
    let view = view.or_else(|| TupleSpace::new(blob).map(View::Tuple));
    let view = view.or_else(|| Cuts::new(blob).map(View::Cuts));
    let view = view.or_else(|| Rfc::new(blob).map(View::Rfc));
    view.or_else(|| Tic::new(blob).map(View::Tic))
}

impl View<'_> {
    fn words(&self) -> usize {
        match self {
            Self::Linear(view) => view.words(),
            Self::Tuple(view) => view.words(),
            Self::Cuts(view) => view.words(),
            Self::Rfc(view) => view.words(),
            Self::Tic(view) => view.words(),
        }
    }

    fn classify(&self, headers: &[u32], out: &mut [Match]) {
        match self {
            Self::Linear(view) => view.classify(headers, out),
            Self::Tuple(view) => view.classify(headers, out),
            Self::Cuts(view) => view.classify(headers, out),
            Self::Rfc(view) => view.classify(headers, out),
            Self::Tic(view) => view.classify(headers, out),
        }
    }
}
