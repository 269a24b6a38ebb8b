//! What is given to a detector.

use packet::Decoded;
use signatures::Buffer;

/// A packet of IP, decoded. Of a packet in a tunnel it is the inner one; of a datagram in fragments the whole.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// What decoding found.
    pub decoded: &'a Decoded,
    /// The bytes that the offsets of `decoded` count in.
    pub frame: &'a [u8],
    /// When it came, in nanoseconds since 1970.
    pub time_ns: u64,
}

/// An end of a flow, as rules name it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Sender {
    /// The end that opened the flow: its bytes go `to_server`.
    #[default]
    Client = 0,
    /// The other one.
    Server = 1,
}

impl Sender {
    /// 0 or 1: a place in arrays by sender.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The other end.
    pub const fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// A buffer of an application's message, or a part of it.
#[derive(Clone, Copy, Debug)]
pub struct BufferPart<'a> {
    /// Which.
    pub buffer: Buffer,
    /// Who sent the bytes that it was made of.
    pub sender: Sender,
    /// The transaction, by its number within the flow.
    pub transaction: u64,
    /// Which of several of the kind in this transaction, from 0.
    pub number: u32,
    /// Its next bytes.
    pub bytes: &'a [u8],
    /// Nothing of it follows.
    pub is_complete: bool,
}
