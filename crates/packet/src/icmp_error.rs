//! ICMP and ICMPv6 errors about a packet, and when they may be sent.

use std::net::{Ipv4Addr, Ipv6Addr};

/// An error about an IPv4 packet (RFC 792, RFC 1812 §4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Icmpv4Error {
    /// Type 3 with one of the codes in [`crate::icmpv4::unreachable`].
    Unreachable(u8),
    /// Type 3 code 4 with the next hop's MTU in bytes (RFC 1191 §4).
    FragmentationNeeded {
        /// Bytes of IP packet that the next hop takes.
        mtu: u16,
    },
    /// Type 11 code 0: the TTL ran out.
    TtlExceeded,
    /// Type 11 code 1: fragments were missing.
    ReassemblyTimeExceeded,
    /// Type 12 code 0, with the offset of the offending byte.
    ParameterProblem {
        /// Offset in the IP header.
        pointer: u8,
    },
}

/// An error about an IPv6 packet (RFC 4443 §3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Icmpv6Error {
    /// Type 1 with one of the codes in [`crate::icmpv6::unreachable`].
    Unreachable(u8),
    /// Type 2 with the next hop's MTU in bytes.
    PacketTooBig {
        /// Bytes of IP packet that the next hop takes.
        mtu: u32,
    },
    /// Type 3 code 0: the hop limit ran out.
    HopLimitExceeded,
    /// Type 4 with a code, and the offset of the offending byte.
    ParameterProblem {
        /// 0 erroneous field, 1 unrecognised next header, 2 unrecognised option.
        code: u8,
        /// Offset in the packet.
        pointer: u32,
    },
}

/// Longest packet that [`build_icmpv4_error`] writes (RFC 1812 §4.3.2.3), bytes.
pub const ICMPV4_ERROR_LEN_MAX: usize = 576;
/// Longest packet that [`build_icmpv6_error`] writes (RFC 4443 §2.4 c), bytes.
pub const ICMPV6_ERROR_LEN_MAX: usize = 1280;

/// Writes a whole IPv4 packet, from `source` to the source of `original`, into `out`; returns its
/// length in bytes. `original` is the offending packet from its IP header on, as many bytes of it
/// as are at hand (padding behind its total length is left out).
///
/// `None` where `original` holds no IPv4 header or `out` has no room for header and 8 bytes.
/// Whether the error may be sent at all says [`may_send_icmpv4_error`].
pub fn build_icmpv4_error(
    original: &[u8],
    error: Icmpv4Error,
    source: Ipv4Addr,
    out: &mut [u8],
) -> Option<usize> {
    let _ = (original, error, source, out);
    todo!()
}

/// [`build_icmpv4_error`] for IPv6.
pub fn build_icmpv6_error(
    original: &[u8],
    error: Icmpv6Error,
    source: Ipv6Addr,
    out: &mut [u8],
) -> Option<usize> {
    let _ = (original, error, source, out);
    todo!()
}

/// RFC 1812 §4.3.2.7: no error about an ICMP error, a later fragment, a packet to a group or the
/// limited broadcast address, one that came as a link-layer group frame, or one whose source is
/// no single host. Directed broadcasts are known only to the router.
pub fn may_send_icmpv4_error(original: &[u8], dst_mac_is_group: bool) -> bool {
    let _ = (original, dst_mac_is_group);
    todo!()
}

/// RFC 4443 §2.4 (e). Packet too big, and parameter problem code 2, may be sent about packets to
/// groups.
pub fn may_send_icmpv6_error(original: &[u8], error: Icmpv6Error, dst_mac_is_group: bool) -> bool {
    let _ = (original, error, dst_mac_is_group);
    todo!()
}

/// Either family, by the version nibble, without IPv6's exceptions for groups.
pub fn may_send_icmp_error(original: &[u8]) -> bool {
    match original.first().map(|byte| byte >> 4) {
        Some(4) => may_send_icmpv4_error(original, false),
        Some(6) => may_send_icmpv6_error(original, Icmpv6Error::HopLimitExceeded, false),
        _ => false,
    }
}

/// Writes the echo reply to an ICMP echo request, a whole IPv4 packet with TTL 64, into `out`;
/// returns its length. `None` where `request` is none (or a fragment, or its checksum is wrong) or
/// `out` is shorter.
pub fn build_icmpv4_echo_reply(request: &[u8], out: &mut [u8]) -> Option<usize> {
    let _ = (request, out);
    todo!()
}

/// [`build_icmpv4_echo_reply`] for IPv6, with hop limit 64. A request to a group is answered from
/// `source`.
pub fn build_icmpv6_echo_reply(request: &[u8], source: Ipv6Addr, out: &mut [u8]) -> Option<usize> {
    let _ = (request, source, out);
    todo!()
}
