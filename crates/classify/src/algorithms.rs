//! The structures by name: what commands and benchmarks offer. One line here adds one.

use crate::auto::AutoBuilder;
use crate::bloom::BloomBuilder;
use crate::classifier::Classifier;
use crate::cuts::CutsBuilder;
use crate::linear::LinearBuilder;
use crate::rfc::RfcBuilder;
use crate::rule::{RuleError, RuleSet};
use crate::tic::TicBuilder;
use crate::tuple::TupleBuilder;

/// A structure that can be built.
#[derive(Debug, Clone, Copy)]
pub struct Algorithm {
    /// Its name on a command line.
    pub name: &'static str,
    /// What it is, in one line.
    pub about: &'static str,
    /// It takes rules over any fields; others take the 5-tuple of IPv4 and little else.
    pub any_fields: bool,
    /// Builds it.
    pub build: fn(&RuleSet) -> Result<Box<dyn Classifier>, RuleError>,
}

/// All of them.
pub const ALGORITHMS: &[Algorithm] = &[
    of::<LinearBuilder>("linear", "Every rule in order, sixteen at once"),
    of::<TupleBuilder>("tuple", "One exact match for each class of rules (tuple space search)"),
    of::<BloomBuilder>("bloom", "The same, with a Bloom filter of each class asked first"),
    of_tuple::<CutsBuilder>(
        "cuts",
        "Trees that cut at any bits, and leaves compared eight rules at once",
    ),
    of_tuple::<RfcBuilder>(
        "rfc",
        "Recursive flow classification: 13 tables, for rules that seldom change",
    ),
    of_tuple::<TicBuilder>(
        "tic",
        "Two stages: tables for the addresses, range expressions for the rest",
    ),
    of::<AutoBuilder>("auto", "The quickest of these for the set at hand, by measuring"),
];

/// The one of a name.
pub fn find(name: &str) -> Option<&'static Algorithm> {
    ALGORITHMS.iter().find(|algorithm| algorithm.name == name)
}

const fn of<C: Classifier + 'static>(name: &'static str, about: &'static str) -> Algorithm {
    Algorithm { name, about, any_fields: true, build: boxed::<C> }
}

const fn of_tuple<C: Classifier + 'static>(name: &'static str, about: &'static str) -> Algorithm {
    Algorithm { any_fields: false, ..of::<C>(name, about) }
}

fn boxed<C: Classifier + 'static>(set: &RuleSet) -> Result<Box<dyn Classifier>, RuleError> {
    Ok(Box::new(C::build(set)?))
}
