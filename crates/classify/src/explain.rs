//! How a structure finds what it finds, step by step: for people, not for speed.

use crate::classifier::Tables;
use crate::cuts::Cuts;
use crate::linear::Linear;
use crate::rfc::Rfc;
use crate::rule::Match;
use crate::schema::{Kind, Schema};
use crate::tic::Tic;
use crate::tuple::TupleSpace;

/// The way of one header through a structure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explained {
    /// Where it looked, in order.
    pub steps: Vec<Step>,
    /// Why it ended there.
    pub end: &'static str,
    /// What it found.
    pub found: Match,
}

impl Explained {
    /// Parts of the image that were read: blocks of rules, words of filters, slots, entries, blocks of code.
    pub fn accesses(&self) -> u32 {
        self.steps.iter().map(|step| step.accesses).sum()
    }
}

/// One place that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The place.
    pub place: String,
    /// Parts of the image that were read there.
    pub accesses: u32,
    /// What was there.
    pub outcome: Outcome,
}

/// What a place said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The best rule there.
    Found(Match),
    /// Where to look next: a class, code.
    LeadsTo(String),
    /// Nothing for this header, and why.
    Nothing(&'static str),
}

impl Outcome {
    /// Of a place that holds rules; `why` is said where none matches.
    pub(crate) fn of(found: Match, why: &'static str) -> Self {
        if found.is_some() { Self::Found(found) } else { Self::Nothing(why) }
    }

    /// The rule; [`Match::NONE`] where there is none.
    pub fn found(&self) -> Match {
        match self {
            Self::Found(found) => *found,
            _ => Match::NONE,
        }
    }
}

/// The best rule of some steps.
pub(crate) fn best(steps: &[Step]) -> Match {
    steps.iter().map(|step| step.outcome.found()).min().unwrap_or(Match::NONE)
}

impl Tables {
    /// The way of a header of the schema that the structure was built with; `None` for an image that is none of
    /// ours.
    ///
    /// # Panics
    /// As [`Classify::classify`](crate::Classify::classify), for another width.
    pub fn explain(&self, schema: &Schema, header: &[u32]) -> Option<Explained> {
        if let Some(linear) = Linear::new(self.blob()) {
            return Some(linear.explain(header));
        }
        if let Some(cuts) = Cuts::new(self.blob()) {
            return Some(cuts.explain(header));
        }
        if let Some(rfc) = Rfc::new(self.blob()) {
            return Some(rfc.explain(header));
        }
        if let Some(tic) = Tic::new(self.blob()) {
            return Some(tic.explain(header));
        }
        TupleSpace::new(self.blob()).map(|space| space.explain(schema, header))
    }
}

/// Which bits a class looks at: `src/24 dport/16 proto`.
pub(crate) fn mask_text(schema: &Schema, mask: &[u32]) -> String {
    let mut text = Vec::new();
    for (at, field) in schema.fields().iter().enumerate() {
        let bits = schema.get(mask, at);
        match (field.kind, bits.count_ones()) {
            (_, 0) => {}
            (Kind::Mask, _) if bits == field.max() => text.push(field.name.to_string()),
            (Kind::Mask, _) => text.push(format!("{}&{bits:#x}", field.name)),
            (_, length) => text.push(format!("{}/{length}", field.name)),
        }
    }
    if text.is_empty() { "any".to_owned() } else { text.join(" ") }
}
