//! The structure that is quickest for the set at hand, found by measuring.
//!
//! Which structure is quickest depends on the set (how many masks, how many wide rules, does it fit the caches) and on
//! the processor, so nothing is guessed: every structure that takes the set and is not hopeless is built, headers of
//! its rules are classified with each, and the quickest stays.
//!
//! | candidates | for |
//! | --- | --- |
//! | linear | up to [`LINEAR_RULES`] rules |
//! | cut trees, with few copies and with many | the 5-tuple of IPv4, up to sixteen words without ranges; many copies up to [`COPIES_RULES`] rules |
//! | cut trees with the fewest copies | sets that change |
//! | tuple and Bloom search | all |
//! | RFC | the 5-tuple of IPv4, up to [`STATIC_RULES`] rules and [`STATIC_BYTES`] |
//!
//! **Updates.** RFC builds itself anew for each change, and many copies are many places to change. So RFC must be
//! quicker than the others by a quarter to be taken, and the first change makes the quickest of those that change
//! easily take the place of either. Then changes are measured too: a structure that takes fewer than [`CHANGES`] a
//! second counts for so much less.
//!
//! Thread rule: as the crate's.

use std::collections::HashSet;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lookup::versions::Patchable;
use lookup::{Blob, Patch};

use crate::bloom::BloomBuilder;
use crate::classifier::{Classifier, Classify, Memory, Stats, Tables};
use crate::cuts::{Copies, CutsBuilder};
use crate::generate::trace::{self, Point};
use crate::linear::LinearBuilder;
use crate::rfc::{self, RfcBuilder};
use crate::rule::{RuleError, RuleRef, RuleSet};
use crate::schema::Schema;
use crate::tuple::TupleBuilder;

/// Rules above which a search through all of them is not tried.
pub const LINEAR_RULES: usize = 2048;

/// Masks below which cut trees are not tried where rules are masks: nothing is quicker than so few hash tables.
pub const MASKS_MIN: usize = 3;

/// Rules above which cut trees with many copies are not tried.
pub const COPIES_RULES: usize = 16 << 10;

/// Rules above which RFC is not tried, and bytes that it may take.
pub const STATIC_RULES: usize = 16 << 10;
/// See [`STATIC_RULES`].
pub const STATIC_BYTES: u64 = 16 << 20;

/// Changes a second that a structure of a set that changes should take.
pub const CHANGES: f64 = 750_000.0;

/// Rules that are taken out and put in to see that, twice, and the time that each may take.
const CHANGED: usize = 512;
const CHANGING: Duration = Duration::from_millis(4);

/// The structures that change easily.
const LINEAR: &str = "linear";
const CUTS: &str = "cuts";
const TUPLE: &str = "tuple";
const BLOOM: &str = "bloom";

/// How much quicker a structure must be that every change builds anew.
const STATIC_GAIN: f64 = 1.25;

/// Headers of a measurement, those of a call, and rounds of which the best counts.
const HEADERS: usize = 4096;
const BURST: usize = 256;
const ROUNDS: usize = 5;

/// A round ends after this time, with what was done.
const ROUND: Duration = Duration::from_millis(2);

/// A structure that was built, and how it did.
#[derive(Debug)]
struct Candidate {
    name: &'static str,
    classifier: Box<dyn Classifier>,
    /// Headers a second, of a set that changes less what the structure's changes are too slow.
    rate: f64,
}

/// What is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// The set changes from the beginning: only structures that change easily.
    pub changes: bool,
}

/// The quickest structure of a set.
#[derive(Debug)]
pub struct AutoBuilder {
    schema: Arc<Schema>,
    chosen: Candidate,
    /// The rules, while the chosen structure does not change easily.
    rules: Option<RuleSet>,
}

type Build = fn(&RuleSet) -> Result<Box<dyn Classifier>, RuleError>;

/// Whether rules have so many masks.
fn has_masks(set: &RuleSet, least: usize) -> bool {
    let width = set.schema().words();
    let mut seen = HashSet::new();
    set.iter().any(|rule| {
        seen.insert(&rule.words[width..]);
        seen.len() >= least
    })
}

/// What is tried for a set: for one that changes, structures that change easily.
fn candidates(set: &RuleSet, changes: bool) -> Vec<(&'static str, Build)> {
    let mut all: Vec<(&'static str, Build)> = Vec::new();
    if set.len() <= LINEAR_RULES {
        all.push((LINEAR, |set| Ok(Box::new(LinearBuilder::build(set)?))));
    }
    let is_masks = set.schema().ranges().next().is_none();
    let has_trees = !is_masks || has_masks(set, MASKS_MIN);
    if has_trees {
        all.push((CUTS, |set| Ok(Box::new(CutsBuilder::build(set)?))));
    }
    if changes && has_trees {
        all.push((CUTS, |set| Ok(Box::new(CutsBuilder::with(set, Copies::Fewest)?))));
    }
    all.push((TUPLE, |set| Ok(Box::new(TupleBuilder::build(set)?))));
    all.push((BLOOM, |set| Ok(Box::new(BloomBuilder::build(set)?))));
    if changes {
        return all;
    }
    if has_trees && set.len() <= COPIES_RULES {
        let many: Build = |set| Ok(Box::new(CutsBuilder::with(set, Copies::Many)?));
        all.push(("cuts, many copies", many));
    }
    if set.len() <= STATIC_RULES {
        all.push(("rfc", |set| {
            let options = rfc::Options { limit_bytes: STATIC_BYTES };
            Ok(Box::new(RfcBuilder::with(set, options)?))
        }));
    }
    all
}

/// The quickest of those that take the set; of its rules' errors the last one, where none does.
fn choose(set: &RuleSet, changes: bool) -> Result<Candidate, RuleError> {
    let of_trace = trace::Options {
        headers: HEADERS,
        copies: trace::Copies::Uniform,
        point: Point::Inside,
        first: None,
        seed: 1,
    };
    let headers = trace::trace(set, &of_trace).headers;
    let (mut best, mut failed) = (None::<Candidate>, None);
    let worth = |of: &Candidate| {
        if of.classifier.rebuilds() { of.rate / STATIC_GAIN } else { of.rate }
    };
    for (name, build) in candidates(set, changes) {
        let built = build(set).and_then(|mut classifier| {
            let mut rate = measure(&*classifier, &headers)?;
            if changes {
                rate *= (measure_changes(&mut *classifier, set)? / CHANGES).min(1.0);
            }
            Ok(Candidate { name, rate, classifier })
        });
        match built {
            // That a structure takes other schemas alone says the least.
            Err(error) if matches!(failed, None | Some(RuleError::Schema { .. })) => {
                failed = Some(error);
            }
            Err(_) => {}
            Ok(found) if best.as_ref().is_none_or(|best| worth(&found) > worth(best)) => {
                best = Some(found);
            }
            Ok(_) => {}
        }
    }
    match (best, failed) {
        (Some(best), _) => Ok(best),
        (None, Some(error)) => Err(error),
        (None, None) => unreachable!("something is tried for every set"),
    }
}

/// Headers a second, by the best of some rounds.
fn measure(classifier: &dyn Classifier, headers: &[u32]) -> Result<f64, RuleError> {
    let tables = classifier.tables()?;
    let words = tables.words();
    let mut out = [crate::Match::NONE; BURST];
    let mut best = 0.0_f64;
    for _ in 0..ROUNDS {
        let (begin, mut done) = (Instant::now(), 0);
        for headers in headers.chunks(BURST * words) {
            let count = headers.len() / words;
            tables.classify(headers, &mut out[..count]);
            black_box(&out);
            done += count;
            if begin.elapsed() > ROUND {
                break;
            }
        }
        best = best.max(done as f64 / begin.elapsed().as_secs_f64().max(1e-9));
    }
    Ok(best)
}

/// Changes a second: rules come out and in again. The first time parts what shares a place, so the second counts.
fn measure_changes(classifier: &mut dyn Classifier, set: &RuleSet) -> Result<f64, RuleError> {
    let mut tables = classifier.tables()?;
    change_some(classifier, &mut tables, set)?;
    change_some(classifier, &mut tables, set)
}

fn change_some(
    classifier: &mut dyn Classifier,
    tables: &mut Tables,
    set: &RuleSet,
) -> Result<f64, RuleError> {
    let (begin, mut done, mut patches) = (Instant::now(), 0, Vec::new());
    for index in (0..set.len()).step_by((set.len() / CHANGED).max(1)) {
        let rule = set.rule(index);
        if classifier.remove(rule.id, &mut patches) {
            classifier.insert(rule, &mut patches)?;
        }
        done += 2;
        // As readers have two copies.
        patches.iter().for_each(|patch| tables.apply(patch));
        patches.drain(..).for_each(|patch| tables.apply(&patch));
        if begin.elapsed() > CHANGING {
            break;
        }
    }
    Ok(f64::from(done) / begin.elapsed().as_secs_f64().max(1e-9))
}

impl AutoBuilder {
    /// The quickest of those that options allow.
    ///
    /// # Errors
    /// As [`Classifier::build`].
    pub fn with(set: &RuleSet, options: Options) -> Result<Self, RuleError> {
        let chosen = choose(set, options.changes)?;
        let changes = [LINEAR, CUTS, TUPLE, BLOOM].contains(&chosen.name);
        let rules = (!changes).then(|| set.clone());
        Ok(Self { schema: set.schema().clone(), chosen, rules })
    }

    /// From now on a structure that takes changes; its image, where it has become another one.
    fn changeable(&mut self, patches: &mut Vec<Patch>) -> Result<(), RuleError> {
        if let Some(rules) = &self.rules {
            self.chosen = choose(rules, true)?;
            self.rules = None;
            patches.push(Patch::Replace(self.chosen.classifier.blob().words().to_vec()));
        }
        Ok(())
    }
}

impl Classifier for AutoBuilder {
    fn build(set: &RuleSet) -> Result<Self, RuleError> {
        Self::with(set, Options::default())
    }

    fn insert(&mut self, rule: RuleRef<'_>, patches: &mut Vec<Patch>) -> Result<(), RuleError> {
        crate::rule::check(&self.schema, &rule)?;
        self.changeable(patches)?;
        self.chosen.classifier.insert(rule, patches)
    }

    fn remove(&mut self, id: u32, patches: &mut Vec<Patch>) -> bool {
        self.changeable(patches).is_ok() && self.chosen.classifier.remove(id, patches)
    }

    fn chosen(&self) -> Option<&'static str> {
        Some(self.chosen.name)
    }

    fn blob(&self) -> &Blob {
        self.chosen.classifier.blob()
    }

    fn len(&self) -> usize {
        self.chosen.classifier.len()
    }

    fn memory(&self) -> Memory {
        self.chosen.classifier.memory()
    }

    fn stats(&self) -> Stats {
        self.chosen.classifier.stats()
    }
}
