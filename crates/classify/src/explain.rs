//! How a structure finds what it finds, step by step: for people, not for speed.

use crate::classifier::Tables;
use crate::cuts::Cuts;
use crate::linear::Linear;
use crate::rule::Match;
use crate::schema::{Kind, Schema};
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
    /// Parts of the image that were read: blocks of rules, words of filters, slots, entries.
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
    /// The best rule there.
    pub found: Match,
}

impl Tables {
    /// The way of a header of the schema that the structure was built with; `None` for a structure that does not
    /// tell.
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
