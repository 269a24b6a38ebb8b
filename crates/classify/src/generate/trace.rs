//! Headers drawn from the rules of a set.
//!
//! As ClassBench's trace generator does: a rule is chosen at random, each field of the header is the lowest or the
//! highest value that the rule allows (a random *corner* of it), and the header comes a number of times in a row.
//! That number is drawn from a Pareto distribution of shape 1 and a scale *b*: `b / u`, rounded up, for a uniform
//! `u`. ClassBench calls `b = 0` no, `0.0001` low and `1` high locality.
//!
//! The filter of a header is the rule that it was drawn from: it matches, a better one may too.

use super::Random;
use crate::classbench::Trace;
use crate::rule::{Condition, RuleSet};

/// How often a header comes in a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Copies {
    /// Once: rules are uniform over the trace.
    Uniform,
    /// By a Pareto distribution of shape 1.
    Pareto {
        /// b.
        scale: f64,
    },
}

/// Where in a rule a header lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Point {
    /// At a corner.
    #[default]
    Corner,
    /// Anywhere.
    Inside,
}

/// What a trace should be like.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// Headers.
    pub headers: usize,
    /// How often each comes.
    pub copies: Copies,
    /// Where they lie.
    pub point: Point,
    /// Only rules with an index below this.
    pub first: Option<usize>,
    /// The seed of all that is random.
    pub seed: u64,
}

/// Makes a trace. One of a set without rules is empty.
pub fn trace(set: &RuleSet, options: &Options) -> Trace {
    let mut random = Random(options.seed);
    let mut trace = Trace::default();
    let rules = options.first.unwrap_or(usize::MAX).min(set.len());
    if rules == 0 {
        return trace;
    }
    let schema = set.schema();
    trace.headers.reserve(options.headers * schema.words());
    trace.filters.reserve(options.headers);
    while trace.len() < options.headers {
        let number = random.below(rules);
        let rule = set.rule(number);
        let values: Vec<u128> = schema
            .fields()
            .iter()
            .enumerate()
            .map(|(at, field)| {
                let condition = schema.condition(rule.words, at);
                let any = match options.point {
                    Point::Inside => random.wide(),
                    Point::Corner => [0, u128::MAX][random.below(2)],
                };
                match condition {
                    Condition::Prefix { value, len } => {
                        value | any & crate::schema::ones(field.bits - len)
                    }
                    Condition::Range { low, high } if options.point == Point::Corner => {
                        if any == 0 { low } else { high }
                    }
                    Condition::Range { low, high } => low + any % (high - low + 1),
                    Condition::Mask { value, mask } => value | any & field.max() & !mask,
                }
            })
            .collect();
        let header = schema.header(&values);
        let left = options.headers - trace.len();
        let copies = match options.copies {
            Copies::Uniform => 1,
            // What is beyond a `usize` becomes the largest one.
            Copies::Pareto { scale } => (scale / (1.0 - random.unit())).ceil() as usize,
        };
        for _ in 0..copies.clamp(1, left) {
            trace.headers.extend_from_slice(&header);
            trace.filters.push(number as u32);
        }
    }
    trace
}
