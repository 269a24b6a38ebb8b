//! The reference: every rule, field by field, the best one first.

use std::sync::Arc;

use crate::classifier::Classify;
use crate::rule::{Condition, Match, Rule, RuleError, RuleRef, RuleSet, check};
use crate::schema::Schema;

/// Rules in order.
#[derive(Debug, Clone)]
pub struct Reference {
    schema: Arc<Schema>,
    /// The best first.
    rules: Vec<(Rule, Vec<Condition>)>,
}

impl Reference {
    /// The rules of a set.
    ///
    /// # Errors
    /// Two rules with one id.
    pub fn new(set: &RuleSet) -> Result<Self, RuleError> {
        let mut reference = Self { schema: set.schema().clone(), rules: Vec::new() };
        set.iter().try_for_each(|rule| reference.insert(rule))?;
        Ok(reference)
    }

    /// Adds a rule.
    ///
    /// # Errors
    /// A rule of another width, the reserved id, or an id that is there.
    pub fn insert(&mut self, rule: RuleRef<'_>) -> Result<(), RuleError> {
        check(&self.schema, &rule)?;
        if self.rules.iter().any(|(other, _)| other.id == rule.id) {
            return Err(RuleError::DuplicateId(rule.id));
        }
        let fields = 0..self.schema.fields().len();
        let conditions = fields.map(|field| self.schema.condition(rule.words, field)).collect();
        let at = self.rules.partition_point(|(other, _)| other.as_ref().place() < rule.place());
        self.rules.insert(at, (rule.to_rule(), conditions));
        Ok(())
    }

    /// Takes a rule away; whether it was there.
    pub fn remove(&mut self, id: u32) -> bool {
        let before = self.rules.len();
        self.rules.retain(|(rule, _)| rule.id != id);
        self.rules.len() < before
    }

    /// All rules that match a header, the best first.
    pub fn explain<'a>(&'a self, header: &'a [u32]) -> impl Iterator<Item = RuleRef<'a>> {
        let matching = self.rules.iter().filter(|(_, conditions)| self.matches(conditions, header));
        matching.map(|(rule, _)| rule.as_ref())
    }

    fn matches(&self, conditions: &[Condition], header: &[u32]) -> bool {
        conditions.iter().enumerate().all(|(field, condition)| {
            let found = self.schema.get(header, field);
            match *condition {
                Condition::Prefix { value, len } => {
                    let bits = self.schema.fields()[field].bits;
                    (0..len).all(|at| (found ^ value) >> (bits - 1 - at) & 1 == 0)
                }
                Condition::Range { low, high } => low <= found && found <= high,
                Condition::Mask { value, mask } => found & mask == value,
            }
        })
    }
}

impl Classify for Reference {
    fn words(&self) -> usize {
        self.schema.words()
    }

    fn classify(&self, headers: &[u32], out: &mut [Match]) {
        let words = self.words();
        assert_eq!(headers.len(), out.len() * words, "one result for each header");
        for (header, out) in headers.chunks_exact(words).zip(out) {
            *out = self.explain(header).next().map_or(Match::NONE, |rule| rule.place());
        }
    }
}
