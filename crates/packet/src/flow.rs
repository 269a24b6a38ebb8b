//! Flow keys and the symmetric flow hash.
//!
//! Packets of a flow belong to one worker, in both directions, and all fragments of a datagram go
//! the same way. So the hash mixes only what does not change when the two ends are swapped, and a
//! fragment, the first one included, is hashed without its ports.
//!
//! A fragment and a whole packet of one flow have different flow hashes therefore. A pipeline in
//! which they must meet takes the *host hash*, which mixes the two addresses and nothing else.
//!
//! Pure functions: any thread.

use crate::bytes::{be16, be32, be64};
use crate::decode::{Decoded, Kind, decode, has_ports};
use crate::ipv6::extension_len;
use crate::quoted::is_error;
use crate::{EtherType, IpProtocol};

/// A 5-tuple. Addresses as in [`Decoded`]; ports are 0 where the packet has none or is a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[repr(C)]
pub struct FlowKey {
    /// Source address: IPv6 as `[high, low]`, IPv4 as `[0, address]`.
    pub src: [u64; 2],
    /// Destination address, likewise.
    pub dst: [u64; 2],
    /// Source port, host order.
    pub src_port: u16,
    /// Destination port, host order.
    pub dst_port: u16,
    /// Upper-layer protocol; of IPv6 fragments always [`IpProtocol::IPV6_FRAGMENT`], because only
    /// the first of them can tell.
    pub protocol: IpProtocol,
    /// 4 or 6.
    pub version: u8,
}

impl FlowKey {
    /// The key of an IP packet; `None` for anything else.
    #[inline]
    pub fn of(d: &Decoded) -> Option<FlowKey> {
        let version = match d.kind {
            Kind::Ipv4 => 4,
            Kind::Ipv6 => 6,
            Kind::Arp | Kind::Other => return None,
        };
        let whole = !d.has(Decoded::FRAGMENT);
        let (src_port, dst_port) = if whole { d.ports().unwrap_or((0, 0)) } else { (0, 0) };
        let protocol = if whole || version == 4 { d.protocol } else { IpProtocol::IPV6_FRAGMENT };
        Some(FlowKey { src: d.src, dst: d.dst, src_port, dst_port, protocol, version })
    }

    /// The key of the opposite direction.
    pub const fn reversed(self) -> FlowKey {
        FlowKey {
            src: self.dst,
            dst: self.src,
            src_port: self.dst_port,
            dst_port: self.src_port,
            ..self
        }
    }

    /// One of the two directions, the same for both: the smaller (address, port) first.
    pub fn canonical(self) -> FlowKey {
        let swap = (self.src, self.src_port) > (self.dst, self.dst_port);
        if swap { self.reversed() } else { self }
    }

    /// Symmetric: `key.hash32() == key.reversed().hash32()`.
    #[inline]
    pub fn hash32(&self) -> u32 {
        let end_a = fold_end(self.src, self.src_port);
        let end_b = fold_end(self.dst, self.dst_port);
        mix(end_a, end_b, self.protocol)
    }
}

/// Symmetric flow hash of a decoded frame; 0 where it is not IP.
#[inline]
pub fn flow_hash(d: &Decoded) -> u32 {
    FlowKey::of(d).map_or(0, |key| key.hash32())
}

/// [`flow_hash`] for frames that were not decoded yet, without checking them: it spreads
/// received packets over workers. Equal to [`flow_hash`] wherever decoding finds no anomaly;
/// `frame` may be only the first cell.
#[inline]
pub fn flow_hash_of_frame(frame: &[u8]) -> u32 {
    hash_plain(frame).unwrap_or_else(|| hash_odd(frame))
}

/// Symmetric hash of the two addresses of a decoded frame; 0 where it is not IP.
///
/// Equal for every packet between two hosts, in both directions, whole or fragment, whatever its
/// protocol, ports, options, extension headers and VLAN tags.
#[inline]
pub fn host_hash(d: &Decoded) -> u32 {
    match d.kind {
        Kind::Ipv4 | Kind::Ipv6 => hash_hosts(d.src, d.dst),
        Kind::Arp | Kind::Other => 0,
    }
}

/// [`host_hash`] for frames that were not decoded yet, without checking them. Equal to
/// [`host_hash`] wherever decoding finds no anomaly; `frame` may be only the first cell.
#[inline]
pub fn host_hash_of_frame(frame: &[u8]) -> u32 {
    let Some((ethertype, l3)) = network_layer(frame) else { return 0 };
    match ethertype {
        EtherType::IPV4 => l3
            .first_chunk::<20>()
            .map_or(0, |h| hash_hosts([0, u64::from(be32(h, 12))], [0, u64::from(be32(h, 16))])),
        EtherType::IPV6 => l3
            .first_chunk::<40>()
            .map_or(0, |h| hash_hosts([be64(h, 8), be64(h, 16)], [be64(h, 24), be64(h, 32)])),
        _ => 0,
    }
}

/// [`host_hash_of_frame`]; of an ICMP error that of the packet which it quotes, so that it meets the flow that it is about,
/// whichever router sent it.
#[inline]
pub fn tracked_hash_of_frame(frame: &[u8]) -> u32 {
    let Some((ethertype, l3)) = network_layer(frame) else { return 0 };
    let kind = match ethertype {
        EtherType::IPV4 => Kind::Ipv4,
        EtherType::IPV6 => Kind::Ipv6,
        _ => return 0,
    };
    tracked_hash_of_packet(kind, l3).unwrap_or(0)
}

/// [`tracked_hash_of_frame`] of an IP packet without a link header; `None` if it has no IP header of that kind.
#[inline(always)]
pub(crate) fn tracked_hash_of_packet(kind: Kind, l3: &[u8]) -> Option<u32> {
    match kind {
        Kind::Ipv4 => {
            let h = l3.first_chunk::<20>()?;
            let quoted =
                if h[9] == IpProtocol::ICMP.0 { quoted_hash_of_packet(kind, l3) } else { None };
            let hosts = || hash_hosts([0, u64::from(be32(h, 12))], [0, u64::from(be32(h, 16))]);
            Some(quoted.unwrap_or_else(hosts))
        }
        Kind::Ipv6 => {
            let h = l3.first_chunk::<40>()?;
            let next = IpProtocol(h[6]);
            let may_quote = next == IpProtocol::ICMPV6 || next.is_extension_header();
            let quoted = if may_quote { quoted_hash_of_packet(kind, l3) } else { None };
            let hosts = || hash_hosts([be64(h, 8), be64(h, 16)], [be64(h, 24), be64(h, 32)]);
            Some(quoted.unwrap_or_else(hosts))
        }
        Kind::Arp | Kind::Other => None,
    }
}

/// The host hash of the packet that a whole ICMP error quotes, by which [`tracked_hash_of_frame`] spreads it: `frame` is decoded
/// to `d`. `None` where that hash is of the addresses of the packet itself: for all other packets, and for errors that quote
/// no whole IP header within [`QUOTED_WITHIN`] bytes.
pub fn quoted_hash(frame: &[u8], d: &Decoded) -> Option<u32> {
    quoted_hash_of_packet(d.kind, frame.get(usize::from(d.l3_offset)..)?)
}

/// An error is spread by what it quotes if the quoted header ends within so many bytes of the IP packet. They are in the first
/// cell, so that the hash does not depend on how much of a frame its reader has at hand.
pub const QUOTED_WITHIN: usize = 512;

#[cold]
fn quoted_hash_of_packet(kind: Kind, l3: &[u8]) -> Option<u32> {
    let l3 = l3.get(..QUOTED_WITHIN).unwrap_or(l3);
    match kind {
        Kind::Ipv4 => {
            let h = l3.first_chunk::<20>()?;
            let at = usize::from(h[0] & 0xf) * 4;
            let is_whole = h[9] == IpProtocol::ICMP.0 && be16(h, 6) & 0x3fff == 0;
            if !is_whole || !is_error(kind, *l3.get(at)?) {
                return None;
            }
            let q = l3.get(at + 8..)?.first_chunk::<20>()?;
            Some(hash_hosts([0, u64::from(be32(q, 12))], [0, u64::from(be32(q, 16))]))
        }
        Kind::Ipv6 => {
            let (mut next, mut at) = (IpProtocol(l3.first_chunk::<40>()?[6]), 40);
            while next.is_extension_header() {
                let h = l3.get(at..)?.first_chunk::<8>()?;
                if next == IpProtocol::IPV6_FRAGMENT && be16(h, 2) & 0xfff9 != 0 {
                    return None;
                }
                at += extension_len(next, h);
                next = IpProtocol(h[0]);
            }
            if next != IpProtocol::ICMPV6 || !is_error(kind, *l3.get(at)?) {
                return None;
            }
            let q = l3.get(at + 8..)?.first_chunk::<40>()?;
            Some(hash_hosts([be64(q, 8), be64(q, 16)], [be64(q, 24), be64(q, 32)]))
        }
        Kind::Arp | Kind::Other => None,
    }
}

#[inline(always)]
fn hash_hosts(src: [u64; 2], dst: [u64; 2]) -> u32 {
    mix(fold_end(src, 0), fold_end(dst, 0), IpProtocol(0))
}

/// The EtherType behind at most two tags, and what follows it.
#[inline(always)]
fn network_layer(frame: &[u8]) -> Option<(EtherType, &[u8])> {
    let mut at = 12;
    let mut ethertype = ethertype_at(frame, at)?;
    for _ in 0..2 {
        if ethertype.is_vlan() {
            at += 4;
            ethertype = ethertype_at(frame, at)?;
        }
    }
    Some((ethertype, frame.get(at + 2..)?))
}

/// Untagged or tagged, IPv4, or IPv6 without extension headers. `None` for all else.
#[inline(always)]
fn hash_plain(frame: &[u8]) -> Option<u32> {
    let (ethertype, l3) = network_layer(frame)?;
    if ethertype == EtherType::IPV4 {
        let h = l3.first_chunk::<20>()?;
        let is_fragment = be16(h, 6) & 0x3fff != 0;
        let header_len = usize::from(h[0] & 0xf) * 4;
        let l4_len = usize::from(be16(h, 2)).wrapping_sub(header_len);
        let protocol = IpProtocol(h[9]);
        let (mut src_port, mut dst_port) = (0, 0);
        if !is_fragment && has_ports(protocol) && l4_len >= 4 {
            (src_port, dst_port) = ports_at(l3, header_len);
        }
        let src = fold_end([0, u64::from(be32(h, 12))], src_port);
        let dst = fold_end([0, u64::from(be32(h, 16))], dst_port);
        return Some(mix(src, dst, protocol));
    }
    if ethertype == EtherType::IPV6 {
        let h = l3.first_chunk::<40>()?;
        let protocol = IpProtocol(h[6]);
        if protocol.is_extension_header() {
            return None;
        }
        let (mut src_port, mut dst_port) = (0, 0);
        if has_ports(protocol) && be16(h, 4) >= 4 {
            (src_port, dst_port) = ports_at(l3, 40);
        }
        let src = fold_end([be64(h, 8), be64(h, 16)], src_port);
        let dst = fold_end([be64(h, 24), be64(h, 32)], dst_port);
        return Some(mix(src, dst, protocol));
    }
    None
}

#[cold]
fn hash_odd(frame: &[u8]) -> u32 {
    flow_hash(&decode(frame, usize::MAX))
}

#[inline(always)]
fn ethertype_at(frame: &[u8], at: usize) -> Option<EtherType> {
    let bytes = frame.get(at..)?.first_chunk::<2>()?;
    Some(EtherType(u16::from_be_bytes(*bytes)))
}

#[inline(always)]
fn ports_at(l3: &[u8], at: usize) -> (u16, u16) {
    let Some(ports) = l3.get(at..).and_then(|l4| l4.first_chunk::<4>()) else { return (0, 0) };
    (be16(ports, 0), be16(ports, 2))
}

/// One end of a flow in 64 well mixed bits. Mixing before the ends are joined keeps pairs apart
/// that only swap parts of their addresses, or the ports between the same two hosts; the high half
/// of the product makes it more than a sum of address and port.
#[inline(always)]
fn fold_end(address: [u64; 2], port: u16) -> u64 {
    let x = address[0].wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32) ^ address[1];
    let port = u64::from(port).wrapping_mul(0xd6e8_feb8_6659_fd93);
    fold_product(x ^ port ^ 0x5851_f42d_4c95_7f2d, 0xbf58_476d_1ce4_e5b9)
}

/// The sum does not know which end was which.
#[inline(always)]
fn mix(a: u64, b: u64, protocol: IpProtocol) -> u32 {
    let x = a.wrapping_add(b).wrapping_add(u64::from(protocol.0));
    fold_product(x, 0x94d0_49bb_1331_11eb) as u32
}

/// High half of the 128-bit product upon the low half.
#[inline(always)]
fn fold_product(x: u64, constant: u64) -> u64 {
    let product = u128::from(x) * u128::from(constant);
    (product >> 64) as u64 ^ product as u64
}
