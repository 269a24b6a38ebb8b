//! ICMP and ICMPv6 errors about a packet, when they may be sent, and echo replies.
//!
//! A router that cannot deliver a packet sends its source an error that quotes the packet. Errors about errors,
//! or to many receivers at once, would multiply, so the rules of RFC 1812 §4.3.2.7 and RFC 4443
//! §2.4 (e) come first: `may_send_…`, then `build_…`. Rate limits are the router's.
//!
//! Pure functions: any thread.

use crate::IpProtocol;
use crate::checksum::Checksums;
use crate::decode::is_martian_source_v4;
use crate::icmpv4::{self, Icmpv4Header, Icmpv4View};
use crate::icmpv6::{self, Icmpv6Header, Icmpv6View};
use crate::ipv4::{self, Ipv4Header, Ipv4View};
use crate::ipv6::{self, Ipv6Header, Ipv6View};
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

/// TTL and hop limit of what is sent.
const TTL: u8 = 64;
/// Precedence 6, internetwork control (RFC 1812 §4.3.2.5).
const ERROR_TRAFFIC_CLASS: u8 = 0xc0;

impl Icmpv4Error {
    /// Type, code and the four bytes behind the checksum.
    pub const fn header(self) -> Icmpv4Header {
        let (kind, code, parameter) = match self {
            Icmpv4Error::Unreachable(code) => (icmpv4::message::UNREACHABLE, code, 0),
            Icmpv4Error::FragmentationNeeded { mtu } => (
                icmpv4::message::UNREACHABLE,
                icmpv4::unreachable::FRAGMENTATION_NEEDED,
                mtu as u32,
            ),
            Icmpv4Error::TtlExceeded => (icmpv4::message::TIME_EXCEEDED, 0, 0),
            Icmpv4Error::ReassemblyTimeExceeded => (icmpv4::message::TIME_EXCEEDED, 1, 0),
            Icmpv4Error::ParameterProblem { pointer } => {
                (icmpv4::message::PARAMETER_PROBLEM, 0, (pointer as u32) << 24)
            }
        };
        Icmpv4Header { kind, code, parameter }
    }
}

impl Icmpv6Error {
    /// Type, code and the four bytes behind the checksum.
    pub const fn header(self) -> Icmpv6Header {
        let (kind, code, parameter) = match self {
            Icmpv6Error::Unreachable(code) => (icmpv6::message::UNREACHABLE, code, 0),
            Icmpv6Error::PacketTooBig { mtu } => (icmpv6::message::PACKET_TOO_BIG, 0, mtu),
            Icmpv6Error::HopLimitExceeded => (icmpv6::message::TIME_EXCEEDED, 0, 0),
            Icmpv6Error::ParameterProblem { code, pointer } => {
                (icmpv6::message::PARAMETER_PROBLEM, code, pointer)
            }
        };
        Icmpv6Header { kind, code, parameter }
    }

    /// RFC 4443 §2.4 (e.3): path MTU discovery works for groups too.
    const fn is_for_groups_too(self) -> bool {
        matches!(
            self,
            Icmpv6Error::PacketTooBig { .. } | Icmpv6Error::ParameterProblem { code: 2, .. }
        )
    }
}

/// Writes a whole IPv4 packet, from `source` to the source of `original`, into `out`; returns its
/// length in bytes, at most [`ICMPV4_ERROR_LEN_MAX`] and the length of `out`. `original` is the
/// offending packet from its IP header on, as many bytes of it as are at hand (padding behind its
/// total length is left out).
///
/// `None` where `original` holds no IPv4 header or `out` has no room for header and 8 bytes of it.
/// Whether the error may be sent at all says [`may_send_icmpv4_error`].
pub fn build_icmpv4_error(
    original: &[u8],
    error: Icmpv4Error,
    source: Ipv4Addr,
    out: &mut [u8],
) -> Option<usize> {
    const HEADERS: usize = ipv4::HEADER_LEN + icmpv4::HEADER_LEN;
    let view = Ipv4View::new_quoted(original)?;
    let packet_len = view.header_len() + view.payload().len();
    let available = out.len().min(ICMPV4_ERROR_LEN_MAX).checked_sub(HEADERS)?;
    let quoted_len = packet_len.min(available);
    if quoted_len < packet_len.min(view.header_len() + 8) {
        return None;
    }
    let out = &mut out[..HEADERS + quoted_len];
    out[HEADERS..].copy_from_slice(&original[..quoted_len]);
    error.header().emit(&mut out[ipv4::HEADER_LEN..])?;
    let header = Ipv4Header {
        traffic_class: ERROR_TRAFFIC_CLASS,
        dont_fragment: true, // and so needs no identification (RFC 6864 §4.1)
        ttl: TTL,
        ..Ipv4Header::new(source, view.src(), IpProtocol::ICMP)
    };
    header.emit(icmpv4::HEADER_LEN + quoted_len, out)?;
    Some(out.len())
}

/// [`build_icmpv4_error`] for IPv6, up to [`ICMPV6_ERROR_LEN_MAX`].
pub fn build_icmpv6_error(
    original: &[u8],
    error: Icmpv6Error,
    source: Ipv6Addr,
    out: &mut [u8],
) -> Option<usize> {
    const HEADERS: usize = ipv6::HEADER_LEN + icmpv6::HEADER_LEN;
    let view = Ipv6View::new_quoted(original)?;
    let packet_len = ipv6::HEADER_LEN + view.payload().len();
    let available = out.len().min(ICMPV6_ERROR_LEN_MAX).checked_sub(HEADERS)?;
    let quoted_len = packet_len.min(available);
    if quoted_len < packet_len.min(ipv6::HEADER_LEN + 8) {
        return None;
    }
    let out = &mut out[..HEADERS + quoted_len];
    out[HEADERS..].copy_from_slice(&original[..quoted_len]);
    error.header().emit(source, view.src(), &mut out[ipv6::HEADER_LEN..])?;
    let header =
        Ipv6Header { hop_limit: TTL, ..Ipv6Header::new(source, view.src(), IpProtocol::ICMPV6) };
    header.emit(icmpv6::HEADER_LEN + quoted_len, out)?;
    Some(out.len())
}

/// RFC 1812 §4.3.2.7: no error about an ICMP error, a later fragment, a packet to a group or the
/// limited broadcast address, one that came as a link-layer group frame, one whose header is
/// invalid, or one whose source is not a single host. Directed broadcasts are known only to the
/// router.
pub fn may_send_icmpv4_error(
    original: &[u8],
    dst_mac_is_group: bool,
    checksums: Checksums,
) -> bool {
    let Some(view) = Ipv4View::new_quoted(original) else { return false };
    let (src, dst) = (view.src(), view.dst());
    let single_source =
        src != Ipv4Addr::UNSPECIFIED && !is_martian_source_v4(src.into(), dst.into());
    let is_error = view.protocol() == IpProtocol::ICMP
        && view.payload().first().is_none_or(|kind| icmpv4::is_error(*kind));
    single_source
        && !dst_mac_is_group
        && !dst.is_multicast()
        && dst != Ipv4Addr::BROADCAST
        && view.fragment_offset() == 0
        && !is_error
        && (checksums == Checksums::Ignore || view.is_checksum_correct())
}

/// RFC 4443 §2.4 (e): no error about an ICMPv6 error or redirect, a packet to a group (packet too
/// big and parameter problem code 2 excepted), or one whose source is not a single node. Neither
/// where that is unknown: later fragments of ICMPv6 messages, broken chains of headers.
pub fn may_send_icmpv6_error(original: &[u8], error: Icmpv6Error, dst_mac_is_group: bool) -> bool {
    let Some(view) = Ipv6View::new_quoted(original) else { return false };
    let (src, dst) = (view.src(), view.dst());
    let Some((protocol, upper)) = view.upper_layer() else { return false };
    let later_fragment =
        view.extensions().filter_map(|h| h.fragment()).any(|fragment| fragment.offset != 0);
    let is_error = protocol == IpProtocol::ICMPV6
        && (later_fragment || upper.first().is_none_or(|kind| icmpv6::is_error(*kind)));
    let to_group = dst_mac_is_group || dst.is_multicast();
    !src.is_unspecified()
        && !src.is_multicast()
        && !src.is_loopback()
        && (!to_group || error.is_for_groups_too())
        && !is_error
}

/// Either family, by the version nibble, without IPv6's exceptions for groups.
pub fn may_send_icmp_error(original: &[u8]) -> bool {
    match original.first().map(|byte| byte >> 4) {
        Some(4) => may_send_icmpv4_error(original, false, Checksums::Verify),
        Some(6) => may_send_icmpv6_error(original, Icmpv6Error::HopLimitExceeded, false),
        _ => false,
    }
}

/// Writes the echo reply to an ICMP echo request, a whole IPv4 packet with TTL 64 and without
/// options, into `out`; returns its length. `None` where `request` is not a whole request from one
/// host to another, a checksum is wrong and not to be ignored, or `out` is too short.
pub fn build_icmpv4_echo_reply(
    request: &[u8],
    checksums: Checksums,
    out: &mut [u8],
) -> Option<usize> {
    let view = Ipv4View::new_checked(request)?;
    let (src, dst) = (view.src(), view.dst());
    let echo = Icmpv4View::new_checked(view.payload())?;
    let whole = view.fragment_offset() == 0 && !view.more_fragments();
    let asks = view.protocol() == IpProtocol::ICMP
        && (echo.kind(), echo.code()) == (icmpv4::message::ECHO_REQUEST, 0);
    let from_host = src != Ipv4Addr::UNSPECIFIED && !is_martian_source_v4(src.into(), dst.into());
    let to_host = !dst.is_multicast() && dst != Ipv4Addr::BROADCAST;
    let correct = checksums == Checksums::Ignore
        || (view.is_checksum_correct() && echo.is_checksum_correct());
    if !(whole && asks && from_host && to_host && correct) {
        return None;
    }
    let message_len = view.payload().len();
    let out = out.get_mut(..ipv4::HEADER_LEN + message_len)?;
    let message = &mut out[ipv4::HEADER_LEN..];
    message.copy_from_slice(view.payload());
    Icmpv4Header { kind: icmpv4::message::ECHO_REPLY, code: 0, parameter: echo.parameter() }
        .emit(message)?;
    let header = Ipv4Header {
        traffic_class: view.dscp() << 2,
        identification: view.identification(),
        ttl: TTL,
        ..Ipv4Header::new(dst, src, IpProtocol::ICMP)
    };
    header.emit(message_len, out)?;
    Some(out.len())
}

/// [`build_icmpv4_echo_reply`] for IPv6, with hop limit 64 and without extension headers. A
/// request to a group is answered from `source`, any other from its destination.
pub fn build_icmpv6_echo_reply(
    request: &[u8],
    source: Ipv6Addr,
    checksums: Checksums,
    out: &mut [u8],
) -> Option<usize> {
    let view = Ipv6View::new_checked(request)?;
    let (src, dst) = (view.src(), view.dst());
    let whole = view.extensions().all(|extension| extension.fragment().is_none());
    let (protocol, message) = view.upper_layer()?;
    let echo = Icmpv6View::new_checked(message)?;
    let asks = protocol == IpProtocol::ICMPV6
        && (echo.kind(), echo.code()) == (icmpv6::message::ECHO_REQUEST, 0);
    let from_node = !src.is_unspecified() && !src.is_multicast() && !src.is_loopback();
    let correct = checksums == Checksums::Ignore || echo.is_checksum_correct(src, dst);
    if !(whole && asks && from_node && correct) {
        return None;
    }
    let from = if dst.is_multicast() { source } else { dst };
    let message_len = message.len();
    let out = out.get_mut(..ipv6::HEADER_LEN + message_len)?;
    let reply = &mut out[ipv6::HEADER_LEN..];
    reply.copy_from_slice(message);
    Icmpv6Header { kind: icmpv6::message::ECHO_REPLY, code: 0, parameter: echo.parameter() }
        .emit(from, src, reply)?;
    let header = Ipv6Header { hop_limit: TTL, ..Ipv6Header::new(from, src, IpProtocol::ICMPV6) };
    header.emit(message_len, out)?;
    Some(out.len())
}
