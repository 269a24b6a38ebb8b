//! What a session asks of the parser of a protocol.

use std::fmt::Debug;

use l7proto::Protocol;

use crate::output::Output;
use crate::sink::Direction;

/// What comes after the bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// More of the same.
    More,
    /// Nothing that can be read: encrypted, or given up.
    Bypass,
    /// What follows of both sides is encrypted, with so many bytes at the end of the call's.
    Encrypted {
        /// How many.
        unread: usize,
    },
    /// Another protocol.
    Change {
        /// Which; found by its bytes otherwise.
        to: Option<Protocol>,
        /// Bytes at the end of the call's that are of that protocol.
        unread: usize,
        /// Bytes of the other side that were held back and are of that protocol.
        held: Vec<u8>,
    },
}

/// The state of one flow in one protocol.
pub(crate) trait Parser: Debug + Send {
    /// The next bytes of a side; a datagram, for protocols of those.
    fn data(&mut self, out: &mut Output<'_>, direction: Direction, bytes: &[u8]) -> Next;

    /// Bytes that will not come.
    fn gap(&mut self, out: &mut Output<'_>, direction: Direction, bytes: u64) -> Next;

    /// Nothing more of a side follows.
    fn end_of_side(&mut self, out: &mut Output<'_>, direction: Direction);

    /// Bytes of memory that it holds, with its own: about what the allocator has given. It takes no longer than a call of the parser.
    fn held(&self) -> usize;

    /// Nothing more follows at all, or another protocol does: what is open ends. Called once.
    fn finish(&mut self, out: &mut Output<'_>);
}
