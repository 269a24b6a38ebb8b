//! The structures by name: what commands and benchmarks offer. One line here adds one.

use crate::auto::AutoBuilder;
use crate::bloom::BloomBuilder;
use crate::classifier::Classifier;
use crate::cuts::CutsBuilder;
use crate::linear::LinearBuilder;
use crate::rfc::RfcBuilder;
use crate::rule::{RuleError, RuleSet};
use crate::tic::{self, Block, TicBuilder};
use crate::tuple::{self, HashKind, TupleBuilder};

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

/// What structures that can be built in several ways are built with. The default is what [`Algorithm::build`] does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ways {
    /// The hash of tuple and Bloom search.
    pub hash: HashKind,
    /// Blocks of TIC's code.
    pub block: Block,
}

impl Algorithm {
    /// Builds it in a way; structures that know only one take that.
    ///
    /// # Errors
    /// As [`Classifier::build`].
    pub fn build_with(&self, set: &RuleSet, ways: Ways) -> Result<Box<dyn Classifier>, RuleError> {
        let Ways { hash, block } = ways;
        let of_tuples = tuple::Options { hash, ..tuple::Options::default() };
        let of_tic = tic::Options { block, ..tic::Options::default() };
        Ok(match self.name {
            TUPLE => Box::new(TupleBuilder::with(set, of_tuples)?),
            BLOOM => Box::new(BloomBuilder::with(set, of_tuples)?),
            TIC => Box::new(TicBuilder::with(set, of_tic)?),
            _ => (self.build)(set)?,
        })
    }
}

/// Those that can be built in several ways.
const TUPLE: &str = "tuple";
const BLOOM: &str = "bloom";
const TIC: &str = "tic";

/// All of them.
pub const ALGORITHMS: &[Algorithm] = &[
    of::<LinearBuilder>("linear", "Linear search, sixteen rules at once"),
    of::<TupleBuilder>(TUPLE, "Tuple space search: one hash table for each class of rules"),
    of::<BloomBuilder>(BLOOM, "Tuple space search with a Bloom filter for each class"),
    of_tuple::<CutsBuilder>(
        "cuts",
        "Decision trees that cut at any bits, with leaves of eight rules compared at once",
    ),
    of_tuple::<RfcBuilder>(
        "rfc",
        "Recursive flow classification: 13 tables, for rules that seldom change",
    ),
    of_tuple::<TicBuilder>(
        TIC,
        "Two stages: tables for the addresses, range expressions for the rest",
    ),
    of::<AutoBuilder>("auto", "The fastest of these for the given rules, by measurement"),
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
