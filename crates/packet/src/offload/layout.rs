//! Where the parts of an unfinished packet are, also inside a tunnel.
//!
//! ```text
//!   plain      │ Ethernet, tags │ IP │ TCP or UDP │ payload │
//!   in tunnel  │ Ethernet, tags │ IP │ carrier │ Ethernet, tags, or nothing │ IP │ TCP or UDP │ payload │
//!   carrier      UDP and VXLAN (RFC 7348) or GENEVE (RFC 8926), GRE (RFC 2784, RFC 2890), or nothing (RFC 2003, RFC 2473)
//! ```
//!
//! The ports of VXLAN and GENEVE are whatever hosts agree upon, so a tunnel is known by what is in it: an IP packet of TCP
//! or UDP that ends where the outer packet ends.

use chunk::{Offload, Packet};

use super::HEADERS_LEN_MAX;
use crate::checksum::partial_sum;
use crate::decode::{Decoded, Kind, decode, decode_ip};
use crate::ipv6::Ipv6View;
use crate::{EtherType, IpProtocol, ipv6, tcp, udp};

/// EtherType of an Ethernet frame inside GRE and GENEVE.
const ETHERNET_INSIDE: u16 = 0x6558;

/// The Home Address option of a destination options header (RFC 6275 §6.3).
const HOME_ADDRESS: u8 = 0xc9;

/// Where the parts of a TCP or UDP packet are, in bytes from the start of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The IP header.
    pub l3: u16,
    /// The TCP or UDP header.
    pub l4: u16,
    /// What that header is of.
    pub payload: u16,
    /// The end of the packet; bytes behind it are padding.
    pub end: u32,
    /// IPv4, else IPv6.
    pub is_v4: bool,
    /// TCP, else UDP.
    pub is_tcp: bool,
    /// Tags of the frame.
    pub tags: u8,
    /// The address that the pseudo-header has as destination: that of the IP header, or the last one of a routing header
    /// (RFC 8200 §8.1).
    pub destination: u16,
    /// The headers round the packet, if it is in a tunnel.
    pub outer: Option<Outer>,
}

/// The headers round a packet in a tunnel, in bytes from the start of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outer {
    /// The IP header.
    pub l3: u16,
    /// What follows it and its extension headers.
    pub l4: u16,
    /// IPv4, else IPv6.
    pub is_v4: bool,
    /// As [`Layout::destination`].
    pub destination: u16,
    /// What carries the inner packet.
    pub carrier: Carrier,
}

/// What carries a packet in a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// The IP header by itself.
    Ip,
    /// UDP, with VXLAN or GENEVE.
    Udp,
    /// GRE without a checksum.
    Gre,
    /// GRE with a checksum.
    GreChecksum,
}

/// An IP header that is no fragment's.
struct Ip {
    l3: usize,
    l4: usize,
    end: usize,
    is_v4: bool,
    destination: usize,
    protocol: IpProtocol,
}

impl Ip {
    /// The header of the record `d`, whose offsets count from byte `base` of the frame.
    fn of(d: &Decoded, base: usize, frame: &[u8], frame_len: usize) -> Option<Ip> {
        if !d.is_ip() || d.flags & (Decoded::FRAGMENT | Decoded::FRAGMENT_HEADER) != 0 {
            return None;
        }
        let (l3, l4) = (base + usize::from(d.l3_offset), base + usize::from(d.l4_offset));
        let is_v4 = d.kind == Kind::Ipv4;
        let end = base + d.l3_end();
        if l4 < l3 + if is_v4 { 20 } else { ipv6::HEADER_LEN } || end > frame_len || l4 > end {
            return None;
        }
        let destination = match (is_v4, d.extension_count) {
            (true, _) => l3 + 16,
            (false, 0) => l3 + 24,
            (false, _) => final_destination(frame, l3)?,
        };
        Some(Ip { l3, l4, end, is_v4, destination, protocol: d.protocol })
    }

    /// The layout of the TCP or UDP packet that it is the header of.
    fn layout(&self, frame: &[u8], tags: u8, outer: Option<Outer>) -> Option<Layout> {
        let is_tcp = self.protocol == IpProtocol::TCP;
        if !is_tcp && self.protocol != IpProtocol::UDP {
            return None;
        }
        let header_len = match is_tcp {
            true => usize::from(frame.get(self.l4 + 12)? >> 4) * 4,
            false => udp::HEADER_LEN,
        };
        let payload = self.l4 + header_len;
        let fits = payload <= self.end && payload <= frame.len().min(HEADERS_LEN_MAX);
        if !fits || (is_tcp && header_len < tcp::HEADER_LEN) {
            return None;
        }
        Some(Layout {
            l3: self.l3 as u16,
            l4: self.l4 as u16,
            payload: payload as u16,
            end: self.end as u32,
            is_v4: self.is_v4,
            is_tcp,
            tags,
            destination: self.destination as u16,
            outer,
        })
    }
}

/// Where the address of the last destination is of an IPv6 packet with extension headers, whose header begins at `l3`.
/// `None` if these do not tell, or if they do not let a packet be cut: an authentication header covers all of it.
fn final_destination(frame: &[u8], l3: usize) -> Option<usize> {
    let view = Ipv6View::new_quoted(frame.get(l3..)?)?;
    let (mut at, mut found) = (l3 + ipv6::HEADER_LEN, l3 + 24);
    for header in view.extensions() {
        match header.kind {
            IpProtocol::AH => return None,
            IpProtocol::DESTINATION_OPTIONS if has_home_address(header.bytes) => return None,
            IpProtocol::IPV6_ROUTING => {
                let [_, len, kind, left, last, ..] = *header.bytes else { return None };
                let (len, left, last) = (usize::from(len), usize::from(left), usize::from(last));
                let place = match kind {
                    _ if left == 0 => None,
                    0 if len % 2 == 0 && left <= len / 2 => Some(8 * len - 8), // RFC 2460 §4.4
                    2 if len == 2 && left == 1 => Some(8),                     // RFC 6275 §6.4
                    4 if left <= last + 1 && 2 * (last + 1) <= len => Some(8), // RFC 8754 §2
                    _ => return None,
                };
                found = place.map_or(found, |place| at + place);
            }
            _ => {}
        }
        at += header.bytes.len();
    }
    Some(found)
}

/// Whether a destination options header replaces the source address.
fn has_home_address(header: &[u8]) -> bool {
    let mut rest = header.get(2..).unwrap_or_default();
    while let [kind, behind @ ..] = rest {
        match (*kind, behind) {
            (HOME_ADDRESS, _) => return true,
            (0, _) => rest = behind,
            (_, [len, value @ ..]) => rest = value.get(usize::from(*len)..).unwrap_or_default(),
            (_, []) => break,
        }
    }
    false
}

impl Layout {
    /// The layout of a frame of `frame_len` bytes whose headers are in `frame`; tunnels are not looked into. `None` for other
    /// protocols, fragments, IPv6 headers that do not tell the last destination, and lengths that contradict each other.
    pub fn of(frame: &[u8], frame_len: usize) -> Option<Layout> {
        let d = decode(frame, frame_len);
        if d.has(Decoded::L4_TRUNCATED) {
            return None;
        }
        Ip::of(&d, 0, frame, frame_len)?.layout(frame, d.vlan_count, None)
    }

    /// The layout of the packet inside a tunnel. `None` if there is none, and for tunnels that are not known.
    pub fn in_tunnel(frame: &[u8], frame_len: usize) -> Option<Layout> {
        let d = decode(frame, frame_len);
        let ip = Ip::of(&d, 0, frame, frame_len)?;
        let carried = frame.get(ip.l4..)?;
        let found = |len: usize, inside: u16, carrier: Carrier| {
            let base = ip.l4 + len;
            let rest = frame.get(base..)?;
            let rest_len = frame_len.checked_sub(base)?;
            let inner = match EtherType(inside) {
                EtherType::IPV4 | EtherType::IPV6 => decode_ip(rest, rest_len),
                EtherType(ETHERNET_INSIDE) => decode(rest, rest_len),
                _ => return None,
            };
            let inner = Ip::of(&inner, base, frame, frame_len).filter(|i| i.end == ip.end)?;
            let outer = Outer {
                l3: ip.l3 as u16,
                l4: ip.l4 as u16,
                is_v4: ip.is_v4,
                destination: ip.destination as u16,
                carrier,
            };
            inner.layout(frame, d.vlan_count, Some(outer))
        };
        const IPV4_INSIDE: IpProtocol = IpProtocol(4);
        const IPV6_INSIDE: IpProtocol = IpProtocol(41);
        match ip.protocol {
            IPV4_INSIDE => found(0, EtherType::IPV4.0, Carrier::Ip),
            IPV6_INSIDE => found(0, EtherType::IPV6.0, Carrier::Ip),
            IpProtocol::GRE => {
                let [flags, version, a, b, ..] = *carried else { return None };
                const CHECKSUM: u8 = 0x80;
                const KEY: u8 = 0x20;
                // With sequence numbers, each packet has one of its own.
                if flags & !(CHECKSUM | KEY) != 0 || version != 0 {
                    return None;
                }
                let len = 4 + 4 * (flags & (CHECKSUM | KEY)).count_ones() as usize;
                let has_checksum = flags & CHECKSUM != 0;
                let carrier = if has_checksum { Carrier::GreChecksum } else { Carrier::Gre };
                found(len, u16::from_be_bytes([a, b]), carrier)
            }
            IpProtocol::UDP => {
                let [_, _, _, _, len_a, len_b, _, _, first, control, a, b, ..] = *carried else {
                    return None;
                };
                if usize::from(u16::from_be_bytes([len_a, len_b])) != ip.end - ip.l4 {
                    return None;
                }
                // VXLAN: an identifier, and perhaps a policy (draft-smith-vxlan-group-policy).
                const IDENTIFIER: u8 = 0x08;
                const POLICY: u8 = 0x80;
                let vxlan = (first & !POLICY == IDENTIFIER)
                    .then(|| found(16, ETHERNET_INSIDE, Carrier::Udp))
                    .flatten();
                // GENEVE: version 0, options, no control packet.
                let options = usize::from(first & 0x3f) * 4;
                let is_geneve = first >> 6 == 0 && control & 0x80 == 0;
                vxlan.or_else(|| match is_geneve {
                    true => found(16 + options, u16::from_be_bytes([a, b]), Carrier::Udp),
                    false => None,
                })
            }
            _ => None,
        }
    }

    /// The layout of what `packet` is to be finished by: if it is to be cut, of the packet inside a tunnel, where there is
    /// one. `None` as for [`Layout::of`].
    pub fn of_packet(packet: &Packet) -> Option<Layout> {
        let (frame, frame_len) = (packet.data(), packet.frame_len());
        let is_cut = packet.offload.segment_bytes().is_some();
        let inner = is_cut.then(|| Layout::in_tunnel(frame, frame_len)).flatten();
        inner.or_else(|| Layout::of(frame, frame_len))
    }

    /// Where the checksum of TCP or UDP is in its header.
    pub fn checksum_at(&self) -> usize {
        if self.is_tcp { 16 } else { 6 }
    }

    /// What is left to do with a packet whose checksum alone is open.
    pub fn open(&self) -> Offload {
        match self.outer {
            None => Offload::CHECKSUM,
            Some(outer) => {
                let field = self.checksum_at() as u16;
                Offload::checksum_at(self.l4 - outer.l3, field).unwrap_or(Offload::CHECKSUM)
            }
        }
    }

    /// Sum of the pseudo-header (RFC 9293 §3.1, RFC 8200 §8.1) for `len` bytes of TCP or UDP.
    pub(super) fn pseudo_sum(&self, headers: &[u8], len: usize) -> u32 {
        let protocol = if self.is_tcp { IpProtocol::TCP } else { IpProtocol::UDP };
        pseudo_sum(headers, (self.l3, self.destination, self.is_v4), protocol, len)
    }
}

impl Outer {
    /// Sum of the pseudo-header for `len` bytes of the UDP that carries.
    pub(super) fn pseudo_sum(&self, headers: &[u8], len: usize) -> u32 {
        pseudo_sum(headers, (self.l3, self.destination, self.is_v4), IpProtocol::UDP, len)
    }
}

fn pseudo_sum(
    headers: &[u8],
    (l3, destination, is_v4): (u16, u16, bool),
    protocol: IpProtocol,
    len: usize,
) -> u32 {
    let sum = |at: usize, n: usize| partial_sum(headers.get(at..at + n).unwrap_or_default());
    let (source, n) = if is_v4 { (12, 4) } else { (8, 16) };
    // Only IPv6 has packets whose length needs more than 16 bits, and none is handled here.
    sum(usize::from(l3) + source, n)
        + sum(usize::from(destination), n)
        + u32::from(protocol.0)
        + len as u32
}
