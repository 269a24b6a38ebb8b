//! Which rows the rules of a schema have.

use lookup::{Blob, Patch};

use super::builder::{Builder, Copies};
use super::columns::Columns;
use super::layout::WORDS;
use super::masks::Masked;
use crate::classifier::{Classifier, Memory, Stats};
use crate::rule::{RuleError, RuleRef, RuleSet};
use crate::schema::{Kind, Schema};

/// Whether headers are two addresses of IPv4, two ports, and a word of which any bits may be asked for.
fn fits(schema: &Schema) -> bool {
    let fields = schema.fields().iter().take(4).map(|field| (field.bits, field.kind));
    let first = [(32, Kind::Prefix), (32, Kind::Prefix), (16, Kind::Range), (16, Kind::Range)];
    schema.words() == WORDS && fields.eq(first) && schema.ranges().count() == 2
}

/// The rules of cut trees, as the control side changes them.
#[derive(Debug)]
pub struct CutsBuilder(Box<dyn Classifier>);

impl CutsBuilder {
    /// Trees of these rules.
    ///
    /// # Errors
    /// As [`Classifier::build`].
    pub fn with(set: &RuleSet, copies: Copies) -> Result<Self, RuleError> {
        let schema = set.schema();
        Ok(Self(match schema.words() {
            _ if fits(schema) => Box::new(Builder::<Columns>::with(set, copies)?),
            _ if schema.ranges().next().is_some() => return Err(REFUSED),
            2 => Box::new(Builder::<Masked<2>>::with(set, copies)?),
            4 => Box::new(Builder::<Masked<4>>::with(set, copies)?),
            9 => Box::new(Builder::<Masked<9>>::with(set, copies)?),
            10 => Box::new(Builder::<Masked<10>>::with(set, copies)?),
            16 => Box::new(Builder::<Masked<16>>::with(set, copies)?),
            _ => return Err(REFUSED),
        }))
    }
}

const REFUSED: RuleError = RuleError::Schema { structure: "cut trees" };

impl Classifier for CutsBuilder {
    fn build(set: &RuleSet) -> Result<Self, RuleError> {
        Self::with(set, Copies::default())
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
