//! Rules that are dear: what of them is evaluated on each buffer, whatever is in it.

use std::fmt;

use signatures::Buffer;

use crate::Ruleset;
use crate::checks::Op;
use crate::rule::{Kind, Part};

/// Why a rule is dear, by an estimate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dear {
    /// The buffer that is searched each time.
    pub buffer: Buffer,
    /// An expression that backtracks is run on it.
    pub backtracks: bool,
    /// An expression is run on it.
    pub is_expression: bool,
    /// It has contents, but all of them are in nearly every buffer.
    pub has_short: bool,
    /// The more, the dearer: an order, no time.
    pub weight: u32,
}

impl fmt::Display for Dear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match (self.backtracks, self.is_expression, self.has_short) {
            (true, ..) => {
                "an expression that backtracks, without a content that is always in what it matches"
            }
            (_, true, _) => "an expression without a content that is always in what it matches",
            (_, _, true) => "no content but such as are in nearly every buffer",
            _ => "no content",
        };
        write!(f, "{what}: evaluated on every {}", self.buffer.name())
    }
}

impl Ruleset {
    /// Rules that have nothing to be found by, with their numbers: a part of them is evaluated on every buffer of its kind. Of
    /// rules for few ports that is a buffer of these ports.
    pub fn dear(&self) -> Vec<(u32, Dear)> {
        let of = |(number, rule): (usize, &crate::rule::Compiled)| {
            let parts = rule.parts.iter().map(|part| &self.parts[*part as usize]);
            let is_free = |part: &&Part| {
                let is_of_headers = rule.headers & part.bit != 0;
                !part.has_literal && !part.is_lazy && !is_of_headers && !part.ops.is_empty()
            };
            let dear = parts.filter(is_free).filter_map(|part| dear(part, rule.kind));
            Some((number as u32, dear.max_by_key(|own| own.weight)?))
        };
        self.rules.iter().enumerate().filter_map(of).collect()
    }
}

fn dear(part: &Part, kind: Kind) -> Option<Dear> {
    let backtracks = part.ops.iter().any(|op| match op {
        Op::Pattern { pattern, .. } => pattern.backtracks(),
        _ => false,
    });
    let is_expression = part.ops.iter().any(|op| matches!(op, Op::Pattern { .. }));
    let has_short = part.ops.iter().any(|op| matches!(op, Op::Literal(own) if !own.negated));
    // A place or a length that fails at once costs nothing.
    let is_cheap = |op: &Op| match op {
        Op::Literal(own) => own.starts || own.depth.is_some() && !own.is_relative(),
        Op::Pattern { .. } => false,
        _ => true,
    };
    if is_cheap(part.ops.first()?) {
        return None;
    }
    let of_expression = match (backtracks, is_expression) {
        (true, _) => 100,
        (_, true) => 20,
        _ => 3,
    };
    let of_buffer = match (kind, part.buffer) {
        (Kind::Stream | Kind::Packet, _) | (_, Buffer::FileData | Buffer::HttpRequestBody) => 4,
        _ => 1,
    };
    let (buffer, weight) = (part.buffer, of_expression * of_buffer);
    Some(Dear { buffer, backtracks, is_expression, has_short, weight })
}
