//! Who is given what a session reads.

use l7proto::Protocol;

use crate::anomaly::Anomaly;
use crate::buffer::Buffer;
use crate::file::File;
use crate::transaction::{Email, Transaction};

/// Whither bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// From the client.
    ToServer,
    /// From the server.
    ToClient,
}

impl Direction {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::ToServer, Self::ToClient];

    /// The other one.
    pub const fn opposite(self) -> Self {
        match self {
            Self::ToServer => Self::ToClient,
            Self::ToClient => Self::ToServer,
        }
    }
}

/// Bytes of a buffer.
///
/// The pieces of a buffer come in order and without gaps, and joined they are the same however the stream was cut. Only
/// bodies, files and `file.data` come in several; all others are whole (`offset` 0, `is_last`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// The number of the transaction within the session.
    pub transaction: u64,
    /// The side whose message it is of.
    pub direction: Direction,
    /// Which.
    pub buffer: Buffer,
    /// Which of several with one name in the transaction and direction, from 0: a header, a query, a file.
    pub number: u32,
    /// Bytes of this buffer before these.
    pub offset: u64,
    /// The bytes; none where only the end is said.
    pub bytes: &'a [u8],
    /// The buffer ends with them.
    pub is_last: bool,
}

/// How far a transaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Progress {
    /// Its first bytes are read.
    Begun,
    /// All of this side's message is there but its body.
    Head(Direction),
    /// This side's message has ended. Its buffers and files were handed on before.
    Done(Direction),
    /// Nothing more of it follows: both sides are done, or what is missing will not come. Said once of each transaction.
    Finished,
}

/// Takes what a session reads. All calls happen within a call of the session.
pub trait Sink {
    /// The protocol is known, or is another one from now on (a tunnel, STARTTLS). `None`: nothing is known of it.
    fn protocol(&mut self, _protocol: Option<Protocol>) {}

    /// Bytes of a buffer.
    fn piece(&mut self, _piece: &Piece<'_>) {}

    /// A transaction went on; `transaction` is what is known so far.
    fn transaction(&mut self, _transaction: &Transaction, _progress: Progress) {}

    /// What is known so far of the mail of a transaction: its header, attachments and URLs.
    fn mail(&mut self, transaction: u64, email: &Email) {
        let _ = (transaction, email);
    }

    /// A file has ended, whole or not.
    fn file(&mut self, _file: &File) {}

    /// Something is as it should not be.
    fn anomaly(&mut self, _anomaly: &Anomaly) {}
}

/// Leaves everything out.
impl Sink for () {}
