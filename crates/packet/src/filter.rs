//! A small packet-filter language for captures, after tcpdump's.

use crate::Decoded;

/// A parsed expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {}

/// Where an expression went wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: expected {expected}")]
pub struct FilterError {
    /// Character, counted from 1.
    pub column: usize,
    /// What could stand there.
    pub expected: String,
}

impl Filter {
    /// Parses `text`; the empty text matches everything.
    pub fn parse(text: &str) -> Result<Filter, FilterError> {
        let _ = text;
        todo!()
    }

    /// Whether the frame matches. `frame` is needed for nothing but its length where `decoded`
    /// says all else; it may be the first cell only, and then `less` and `greater` go by it.
    pub fn matches(&self, decoded: &Decoded, frame: &[u8]) -> bool {
        let _ = (decoded, frame);
        todo!()
    }
}
