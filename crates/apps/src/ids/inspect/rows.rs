//! What is found out about the rows of chunks.

use crate::flow::calls::OfCall;

/// What is done with the packet of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decided {
    /// A rule drops it.
    Drop,
    /// A rule dropped an earlier one of the flow.
    DropFlow,
    /// The flow has exceeded a bound.
    Limit,
    /// It is a segment of no stream.
    Invalid,
    /// It is dropped, and its ends are told.
    Reject {
        /// The sender gets an answer.
        source: bool,
        /// The receiver gets a reset of the connection.
        destination: bool,
    },
}

/// What was found out about the rows of a chunk.
#[derive(Debug, Default)]
pub struct OfChunk {
    /// What is to be done with rows.
    pub decisions: Vec<(usize, Decided)>,
    /// Rows whose headers or checksums are wrong: their receivers discard them.
    pub undecoded: Vec<usize>,
}

impl OfCall for OfChunk {
    fn clear(&mut self) {
        self.decisions.clear();
        self.undecoded.clear();
    }

    fn is_empty(&self) -> bool {
        self.decisions.is_empty() && self.undecoded.is_empty()
    }
}
