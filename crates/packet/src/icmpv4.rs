//! ICMP (RFC 792).

use crate::bytes::{be16, be32, put};
use crate::checksum::internet_checksum;

/// Bytes of the header: type, code, checksum, and four bytes that depend on the type.
pub const HEADER_LEN: usize = 8;

/// Message types.
#[allow(missing_docs)] // the names are the registry's
pub mod message {
    pub const ECHO_REPLY: u8 = 0;
    pub const UNREACHABLE: u8 = 3;
    pub const SOURCE_QUENCH: u8 = 4;
    pub const REDIRECT: u8 = 5;
    pub const ECHO_REQUEST: u8 = 8;
    pub const TIME_EXCEEDED: u8 = 11;
    pub const PARAMETER_PROBLEM: u8 = 12;
}

/// Codes of type 3, destination unreachable.
pub mod unreachable {
    /// No route.
    pub const NET: u8 = 0;
    /// No answer from the neighbour.
    pub const HOST: u8 = 1;
    /// Protocol unknown at the destination.
    pub const PROTOCOL: u8 = 2;
    /// Port closed at the destination.
    pub const PORT: u8 = 3;
    /// Fragmentation needed and DF set.
    pub const FRAGMENTATION_NEEDED: u8 = 4;
    /// Source route failed.
    pub const SOURCE_ROUTE_FAILED: u8 = 5;
    /// Prohibited by the operator (RFC 1812 §5.2.7.1).
    pub const ADMINISTRATIVELY_PROHIBITED: u8 = 13;
}

/// Whether a message of this type is an error, about which no error is sent.
pub const fn is_error(kind: u8) -> bool {
    matches!(
        kind,
        message::UNREACHABLE
            | message::SOURCE_QUENCH
            | message::REDIRECT
            | message::TIME_EXCEEDED
            | message::PARAMETER_PROBLEM
    )
}

/// A message whose header is there.
#[derive(Clone, Copy, Debug)]
pub struct Icmpv4View<'a> {
    header: &'a [u8; HEADER_LEN],
    payload: &'a [u8],
}

impl<'a> Icmpv4View<'a> {
    /// `None` below 8 bytes.
    pub fn new_checked(bytes: &'a [u8]) -> Option<Self> {
        let (header, payload) = bytes.split_first_chunk()?;
        Some(Icmpv4View { header, payload })
    }

    /// Type, one of [`message`].
    pub fn kind(&self) -> u8 {
        self.header[0]
    }

    /// Code within the type.
    pub fn code(&self) -> u8 {
        self.header[1]
    }

    /// As stored.
    pub fn checksum(&self) -> u16 {
        be16(self.header, 2)
    }

    /// Whether the message sums up.
    pub fn is_checksum_correct(&self) -> bool {
        use crate::checksum::{finish, partial_sum};
        finish(partial_sum(self.header) + partial_sum(self.payload)) == 0
    }

    /// Bytes 4 to 8: identifier and sequence of an echo, MTU, pointer.
    pub fn parameter(&self) -> u32 {
        be32(self.header, 4)
    }

    /// Identifier of an echo.
    pub fn echo_identifier(&self) -> u16 {
        be16(self.header, 4)
    }

    /// Sequence number of an echo.
    pub fn echo_sequence(&self) -> u16 {
        be16(self.header, 6)
    }

    /// MTU of the next hop in a fragmentation-needed message (RFC 1191 §4), bytes; 0 from old
    /// routers.
    pub fn mtu(&self) -> u16 {
        be16(self.header, 6)
    }

    /// Echo data, or the packet that an error quotes.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// A header to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Icmpv4Header {
    /// Type.
    pub kind: u8,
    /// Code.
    pub code: u8,
    /// Bytes 4 to 8.
    pub parameter: u32,
}

impl Icmpv4Header {
    /// Writes the header in front of a payload that already is behind it: `message` is all of
    /// it. Returns 8, `None` where there is no room.
    pub fn emit(&self, message: &mut [u8]) -> Option<usize> {
        let header = message.get_mut(..HEADER_LEN)?;
        put(header, 0, [self.kind, self.code, 0, 0]);
        put(header, 4, self.parameter.to_be_bytes());
        let checksum = internet_checksum(message);
        put(message, 2, checksum.to_be_bytes());
        Some(HEADER_LEN)
    }
}
