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
    of::<LinearBuilder>("linear", "Every rule in order, sixteen at once"),
    of::<TupleBuilder>(TUPLE, "One exact match for each class of rules (tuple space search)"),
    of::<BloomBuilder>(BLOOM, "The same, with a Bloom filter of each class asked first"),
    of_tuple::<CutsBuilder>(
        "cuts",
        "Trees that cut at any bits, and leaves compared eight rules at once",
    ),
    of_tuple::<RfcBuilder>(
        "rfc",
        "Recursive flow classification: 13 tables, for rules that seldom change",
    ),
    of_tuple::<TicBuilder>(
        TIC,
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
