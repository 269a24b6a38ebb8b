//! ICMPv6 (RFC 4443).

use crate::IpProtocol;
use crate::bytes::{be16, be32, put};
use crate::checksum::{finish, partial_sum, pseudo_header_v6};
use std::net::Ipv6Addr;

/// Bytes of the header: type, code, checksum, and four bytes that depend on the type.
pub const HEADER_LEN: usize = 8;

/// Message types.
#[allow(missing_docs)] // the names are the registry's
pub mod message {
    pub const UNREACHABLE: u8 = 1;
    pub const PACKET_TOO_BIG: u8 = 2;
    pub const TIME_EXCEEDED: u8 = 3;
    pub const PARAMETER_PROBLEM: u8 = 4;
    pub const ECHO_REQUEST: u8 = 128;
    pub const ECHO_REPLY: u8 = 129;
    pub const ROUTER_SOLICITATION: u8 = 133;
    pub const ROUTER_ADVERTISEMENT: u8 = 134;
    pub const NEIGHBOUR_SOLICITATION: u8 = 135;
    pub const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
    pub const REDIRECT: u8 = 137;
}

/// Codes of type 1, destination unreachable.
pub mod unreachable {
    /// No route.
    pub const NO_ROUTE: u8 = 0;
    /// Prohibited by the operator.
    pub const ADMINISTRATIVELY_PROHIBITED: u8 = 1;
    /// Beyond the scope of the source address.
    pub const BEYOND_SCOPE: u8 = 2;
    /// No answer from the neighbour, and other reasons.
    pub const ADDRESS: u8 = 3;
    /// Port closed at the destination.
    pub const PORT: u8 = 4;
    /// Source address failed the ingress policy.
    pub const SOURCE_POLICY: u8 = 5;
    /// Route to the destination rejects.
    pub const REJECT_ROUTE: u8 = 6;
}

/// Whether a message of this type is an error, or a redirect: no error is sent about it (RFC 4443
/// §2.4 e.1, e.2).
pub const fn is_error(kind: u8) -> bool {
    kind < 128 || kind == message::REDIRECT
}

/// A message whose header is there.
#[derive(Clone, Copy, Debug)]
pub struct Icmpv6View<'a> {
    header: &'a [u8; HEADER_LEN],
    payload: &'a [u8],
}

impl<'a> Icmpv6View<'a> {
    /// `None` below 8 bytes: all messages that matter here have as many.
    pub fn new_checked(bytes: &'a [u8]) -> Option<Self> {
        let (header, payload) = bytes.split_first_chunk()?;
        Some(Icmpv6View { header, payload })
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

    /// Whether the message sums up between these addresses.
    pub fn is_checksum_correct(&self, src: Ipv6Addr, dst: Ipv6Addr) -> bool {
        let len = (HEADER_LEN + self.payload.len()) as u32;
        let pseudo_header = pseudo_header_v6(src, dst, IpProtocol::ICMPV6, len);
        finish(pseudo_header + partial_sum(self.header) + partial_sum(self.payload)) == 0
    }

    /// Bytes 4 to 8: identifier and sequence of an echo, MTU, pointer, flags.
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

    /// MTU in a packet-too-big message, bytes.
    pub fn mtu(&self) -> u32 {
        self.parameter()
    }

    /// Everything behind the header.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// A header to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Icmpv6Header {
    /// Type.
    pub kind: u8,
    /// Code.
    pub code: u8,
    /// Bytes 4 to 8.
    pub parameter: u32,
}

impl Icmpv6Header {
    /// Writes the header in front of a payload that already is behind it: `message` is all of
    /// it, between `src` and `dst`. Returns 8, `None` where there is no room.
    pub fn emit(&self, src: Ipv6Addr, dst: Ipv6Addr, message: &mut [u8]) -> Option<usize> {
        let len = u32::try_from(message.len()).ok()?;
        let header = message.get_mut(..HEADER_LEN)?;
        put(header, 0, [self.kind, self.code, 0, 0]);
        put(header, 4, self.parameter.to_be_bytes());
        let pseudo_header = pseudo_header_v6(src, dst, IpProtocol::ICMPV6, len);
        let checksum = finish(pseudo_header + partial_sum(message));
        put(message, 2, checksum.to_be_bytes());
        Some(HEADER_LEN)
    }
}
