//! One pass over a frame.
//!
//! The problem: a router looks at every header of every packet, about 15 million times a second on
//! one core, and must never trust a length. The idea: read the fixed part of each header as an
//! array, so that one comparison covers all of its fields; compute every check as a bit and branch
//! once on the sum of them; find out *which* check failed only on the cold path. The result is one
//! cache line of plain numbers in host order, from which columns are filled.
//!
//! ```text
//! Ethernet ─ up to two tags ─┬─ ARP
//!                            ├─ IPv4 ─ options ──────────────┬─ first 4 bytes of the upper layer
//!                            ├─ IPv6 ─ up to 8 extensions ───┘
//!                            └─ anything else: Kind::Other
//! ```
//!
//! The checks on IPv4 are those of RFC 1812 §5.2.2 and the martian addresses of §5.3.7; IPv6 has
//! the like. What depends on the router (whether a MAC is its own, TTL 0 and 1, directed
//! broadcasts, options that it acts upon) is not judged here. Fields are filled as far as the
//! bytes go, also where there is an anomaly, so that a dropped packet can still be shown.
//!
//! Pure functions without state: any thread.

use crate::bytes::{array, be16, be32, be64};
use crate::checksum::{internet_checksum, sum20};
use crate::ipv6::{extension_len, extension_len_min};
use crate::{EtherType, IpProtocol};

pub use crate::anomaly::{
    Anomaly, is_martian_destination_v4, is_martian_destination_v6, is_martian_source_v4,
    is_martian_source_v6,
};
pub use crate::decoded::{Decoded, Kind, MacClass};

/// Extension headers that are followed in one IPv6 packet. RFC 8200 knows a use for seven.
pub const MAX_EXTENSION_HEADERS: usize = 8;

/// Decodes an Ethernet frame. `frame` may be only the first cell of it; `frame_len` is the length
/// of the whole in bytes, without the FCS.
#[inline]
pub fn decode(frame: &[u8], frame_len: usize) -> Decoded {
    let mut d = Decoded::default();
    decode_into(frame, frame_len, &mut d);
    d
}

/// [`decode`] straight into a row of a burst, whatever stood there. A copy of a record that has
/// just been written field by field stalls until all the small stores are done.
#[inline]
pub fn decode_into(frame: &[u8], frame_len: usize, d: &mut Decoded) {
    if let Some(plain) = decode_plain_ipv4(frame, frame_len) {
        *d = plain;
    } else {
        decode_any(frame, frame_len, d);
    }
}

/// The bulk of what a router sees, untagged IPv4 without options or fragmentation and with
/// nothing wrong, in one expression: half the time of [`decode_any`], which finds the same. `None`
/// for anything else, also where it only might be odd.
#[inline(always)]
fn decode_plain_ipv4(frame: &[u8], frame_len: usize) -> Option<Decoded> {
    // Ethernet, IPv4 and the four bytes behind it.
    let start = frame.first_chunk::<38>()?;
    if be16(start, 12) != EtherType::IPV4.0 {
        return None;
    }
    let (h, word) = (&array::<20, 38>(start, 14), be32(start, 34));
    let total_len = usize::from(be16(h, 2));
    let (src, dst) = (be32(h, 12), be32(h, 16));
    let fragment = be16(h, 6);
    let protocol = IpProtocol(h[9]);
    let shape = L4[usize::from(protocol.0)];
    let (src_top, dst_top) = ((src >> 24) as u8, (dst >> 24) as u8);
    let odd = (h[0] != 0x45)
        | (total_len < 20 + usize::from((shape & !PORTS).max(4)))
        | (total_len > frame_len.max(frame.len()) - 14)
        | (sum20(h) != 0xffff)
        | (fragment & 0x3fff != 0)
        | (start[0] & 1 != 0)
        | (start[6] & 1 != 0)
        | (src_top.wrapping_sub(1) >= 223)
        | (src_top == 127)
        | (dst_top.wrapping_sub(1) >= 223)
        | (dst_top == 127);
    if odd {
        return None;
    }
    Some(Decoded {
        src: [0, u64::from(src)],
        dst: [0, u64::from(dst)],
        ip_total_len: total_len as u32,
        l4_word: word,
        ethertype: EtherType::IPV4,
        vlan_tci: [0, 0],
        l3_offset: 14,
        l4_offset: 34,
        ip_header_len: 20,
        fragment_offset: 0,
        flags: ((fragment >> 14) & 1) << Decoded::DONT_FRAGMENT.trailing_zeros()
            | u16::from(shape & PORTS != 0) << Decoded::HAS_PORTS.trailing_zeros(),
        kind: Kind::Ipv4,
        protocol,
        ttl: h[8],
        traffic_class: h[1],
        vlan_count: 0,
        dst_mac: MacClass::Unicast,
        anomaly: Anomaly::None,
        extension_count: 0,
    })
}

/// Decodes an IP packet without a link header: offsets count from its first byte. `packet` may be only the start of it,
/// of `len` bytes in all.
pub fn decode_ip(packet: &[u8], len: usize) -> Decoded {
    let mut d = Decoded::default();
    match packet.first().map(|byte| byte >> 4) {
        Some(4) => decode_ipv4(&mut d, packet, len),
        Some(6) => decode_ipv6(&mut d, packet, len),
        _ => d.anomaly = Anomaly::NonIp,
    }
    d
}

fn decode_any(frame: &[u8], frame_len: usize, d: &mut Decoded) {
    *d = Decoded::default();
    let Some(ethernet) = frame.first_chunk::<14>() else {
        d.anomaly = Anomaly::Truncated;
        return;
    };
    let dst_high = be32(ethernet, 0);
    if dst_high & 0x0100_0000 != 0 {
        let broadcast = dst_high == 0xffff_ffff && be16(ethernet, 4) == 0xffff;
        d.dst_mac = if broadcast { MacClass::Broadcast } else { MacClass::Multicast };
    }
    d.flags = u16::from(ethernet[6] & 1) << Decoded::SRC_MAC_GROUP.trailing_zeros();
    d.ethertype = EtherType(be16(ethernet, 12));
    d.l3_offset = 14;
    if d.ethertype.is_vlan() {
        decode_tags(d, frame);
        if d.anomaly != Anomaly::None {
            return;
        }
    }
    let offset = usize::from(d.l3_offset);
    let l3 = frame.get(offset..).unwrap_or_default();
    let available = frame_len.max(frame.len()) - offset;
    match d.ethertype {
        EtherType::IPV4 => decode_ipv4(d, l3, available),
        EtherType::IPV6 => decode_ipv6(d, l3, available),
        EtherType::ARP => decode_arp(d, l3),
        _ => d.anomaly = Anomaly::NonIp,
    }
}

fn decode_tags(d: &mut Decoded, frame: &[u8]) {
    while d.ethertype.is_vlan() {
        if d.vlan_count == 2 {
            d.anomaly = Anomaly::TooManyVlanTags;
            return;
        }
        let at = usize::from(d.l3_offset);
        let Some(tag) = frame.get(at..).and_then(|rest| rest.first_chunk::<4>()) else {
            d.anomaly = Anomaly::VlanTruncated;
            return;
        };
        d.vlan_tci[usize::from(d.vlan_count)] = be16(tag, 0);
        d.vlan_count += 1;
        d.ethertype = EtherType(be16(tag, 2));
        d.l3_offset += 4;
    }
}

#[cold]
fn decode_arp(d: &mut Decoded, l3: &[u8]) {
    d.kind = Kind::Arp;
    d.anomaly = if l3.len() < 8 {
        Anomaly::Truncated
    } else if l3[..6] != [0, 1, 8, 0, 6, 4] {
        Anomaly::BadArp
    } else if l3.len() < 28 {
        Anomaly::Truncated
    } else {
        Anomaly::None
    };
}

#[inline(always)]
fn decode_ipv4(d: &mut Decoded, l3: &[u8], available: usize) {
    d.kind = Kind::Ipv4;
    let Some(h) = l3.first_chunk::<20>() else {
        d.anomaly = Anomaly::Truncated;
        return;
    };
    let header_len = usize::from(h[0] & 0xf) * 4;
    let total_len = usize::from(be16(h, 2));
    let fragment = be16(h, 6);
    let (src, dst) = (be32(h, 12), be32(h, 16));
    d.traffic_class = h[1];
    d.ttl = h[8];
    d.protocol = IpProtocol(h[9]);
    d.src[1] = u64::from(src);
    d.dst[1] = u64::from(dst);
    d.ip_total_len = total_len as u32;
    d.ip_header_len = header_len as u16;
    d.l4_offset = d.l3_offset + header_len as u16;
    d.fragment_offset = (fragment & 0x1fff).wrapping_mul(8);
    let more = (fragment >> 13) & 1;
    let df = (fragment >> 14) & 1;
    let is_fragment = fragment & 0x3fff != 0;
    d.flags |= more << Decoded::MORE_FRAGMENTS.trailing_zeros()
        | df << Decoded::DONT_FRAGMENT.trailing_zeros()
        | u16::from(is_fragment) << Decoded::FRAGMENT.trailing_zeros()
        | u16::from(header_len > 20) << Decoded::HAS_OPTIONS.trailing_zeros()
        | u16::from(dst >> 28 == 0xe) << Decoded::DST_MULTICAST.trailing_zeros()
        | u16::from(dst == u32::MAX) << Decoded::DST_BROADCAST.trailing_zeros();

    // 0, 127 and 224 to 255 in the first octet. A fragment, options and every fault are rare, so
    // one branch takes all of them.
    let (src_top, dst_top) = ((src >> 24) as u8, (dst >> 24) as u8);
    let odd = (h[0] != 0x45)
        | (total_len < 20)
        | (total_len > available)
        | (sum20(h) != 0xffff)
        | is_fragment
        | (src_top.wrapping_sub(1) >= 223)
        | (src_top == 127)
        | (dst_top.wrapping_sub(1) >= 239)
        | (dst_top == 127);
    if odd {
        d.anomaly = judge_ipv4(d, h, l3, available);
        if !d.anomaly.leaves_lengths_right() || d.fragment_offset != 0 {
            return;
        }
    }
    decode_l4(d, l3, header_len, total_len);
}

/// The first reason: lengths, because everything else leans on them, then content. RFC 1812
/// §5.2.2 allows any order.
#[cold]
fn judge_ipv4(d: &Decoded, h: &[u8; 20], l3: &[u8], available: usize) -> Anomaly {
    let header_len = usize::from(d.ip_header_len);
    let total_len = d.ip_total_len as usize;
    if h[0] >> 4 != 4 {
        return Anomaly::BadVersion;
    }
    if header_len < 20 {
        return Anomaly::BadHeaderLength;
    }
    let Some(header) = l3.get(..header_len) else {
        return Anomaly::Truncated;
    };
    if total_len < header_len {
        return Anomaly::BadTotalLength;
    }
    if total_len > available {
        return Anomaly::Truncated;
    }
    if internet_checksum(header) != 0 {
        return Anomaly::BadChecksum;
    }
    judge_content(d)
}

/// What may be wrong with an IPv4 header beside lengths and checksum.
fn judge_content(d: &Decoded) -> Anomaly {
    let (src, dst) = (d.src_v4(), d.dst_v4());
    if is_martian_source_v4(src, dst) {
        return Anomaly::MartianSource;
    }
    if is_martian_destination_v4(dst) {
        return Anomaly::MartianDestination;
    }
    judge_fragment(d, d.ip_total_len as usize - usize::from(d.ip_header_len))
}

/// Makes of a record with [`Anomaly::BadChecksum`] what it would be with the right checksum, for packets whose checksums
/// are not to be verified; leaves any other record alone. So the way of good packets does not pay for the choice.
#[cold]
pub fn ignore_checksum(d: &mut Decoded) {
    if d.anomaly != Anomaly::BadChecksum {
        return;
    }
    d.anomaly = judge_content(d);
    if !d.anomaly.leaves_lengths_right() {
        // Decoding would have ended before the upper layer.
        d.flags &= !(Decoded::L4_TRUNCATED | Decoded::HAS_PORTS);
        d.l4_word = 0;
    }
}

fn judge_fragment(d: &Decoded, payload_len: usize) -> Anomaly {
    if !d.has(Decoded::FRAGMENT) {
        Anomaly::None
    } else if payload_len == 0 {
        Anomaly::ZeroLengthFragment
    } else if usize::from(d.fragment_offset) + payload_len > 65_535 {
        Anomaly::OverlongFragment
    } else {
        Anomaly::None
    }
}

#[inline(always)]
fn decode_ipv6(d: &mut Decoded, l3: &[u8], available: usize) {
    d.kind = Kind::Ipv6;
    let Some(h) = l3.first_chunk::<40>() else {
        d.anomaly = Anomaly::Truncated;
        return;
    };
    let total_len = usize::from(be16(h, 4)) + 40;
    d.traffic_class = (be16(h, 0) >> 4) as u8;
    d.protocol = IpProtocol(h[6]);
    d.ttl = h[7];
    d.src = [be64(h, 8), be64(h, 16)];
    d.dst = [be64(h, 24), be64(h, 32)];
    d.ip_total_len = total_len as u32;
    d.ip_header_len = 40;
    d.l4_offset = d.l3_offset + 40;
    let multicast = d.dst[0] >> 56 == 0xff;
    d.flags |=
        Decoded::DONT_FRAGMENT | u16::from(multicast) << Decoded::DST_MULTICAST.trailing_zeros();

    // Unspecified, loopback and group addresses have a first octet of 0 or 255.
    let (src_top, dst_top) = (h[8], h[24]);
    let odd = (h[0] >> 4 != 6)
        | (total_len > available)
        | (src_top.wrapping_sub(1) >= 254)
        | (dst_top.wrapping_sub(1) >= 254)
        | d.protocol.is_extension_header();
    if odd {
        d.anomaly = judge_ipv6(d, h, l3, available);
        if !d.anomaly.leaves_lengths_right() || d.fragment_offset != 0 {
            return;
        }
    }
    decode_l4(d, l3, usize::from(d.ip_header_len), total_len);
}

#[cold]
fn judge_ipv6(d: &mut Decoded, h: &[u8; 40], l3: &[u8], available: usize) -> Anomaly {
    if h[0] >> 4 != 6 {
        return Anomaly::BadVersion;
    }
    if d.ip_total_len as usize > available {
        return Anomaly::Truncated;
    }
    let broken = walk_extensions(d, l3);
    if broken != Anomaly::None {
        return broken;
    }
    if is_martian_source_v6(d.src, d.dst) {
        return Anomaly::MartianSource;
    }
    if is_martian_destination_v6(d.dst) {
        return Anomaly::MartianDestination;
    }
    judge_fragment(d, d.ip_total_len as usize - usize::from(d.ip_header_len))
}

/// Walks at most [`MAX_EXTENSION_HEADERS`] headers; stops behind the header of a later fragment,
/// whose payload is the middle of something.
fn walk_extensions(d: &mut Decoded, l3: &[u8]) -> Anomaly {
    let total_len = d.ip_total_len as usize;
    let mut seen = [0u8; 5];
    while d.protocol.is_extension_header() {
        if usize::from(d.extension_count) == MAX_EXTENSION_HEADERS {
            return Anomaly::TooManyExtensionHeaders;
        }
        let at = usize::from(d.ip_header_len);
        // (slot in `seen`, times it may occur: RFC 8200 §4.1)
        let (slot, limit) = match d.protocol {
            IpProtocol::HOP_BY_HOP => (0, u8::from(d.extension_count == 0)),
            IpProtocol::IPV6_ROUTING => (1, 1),
            IpProtocol::IPV6_FRAGMENT => (2, 1),
            IpProtocol::AH => (3, 1),
            _ => (4, 2),
        };
        seen[slot] += 1;
        if seen[slot] > limit {
            return Anomaly::ExtensionHeaderLoop;
        }
        if at + 8 > total_len {
            return Anomaly::BadExtensionHeader;
        }
        let Some(h) = l3.get(at..).and_then(|rest| rest.first_chunk::<8>()) else {
            return Anomaly::TooManyExtensionHeaders; // it is there, but not in this cell
        };
        let length = extension_len(d.protocol, h);
        if at + length > total_len || length < extension_len_min(d.protocol) {
            return Anomaly::BadExtensionHeader;
        }
        match d.protocol {
            IpProtocol::HOP_BY_HOP => d.flags |= Decoded::HOP_BY_HOP,
            IpProtocol::IPV6_ROUTING => d.flags |= Decoded::ROUTING_HEADER,
            IpProtocol::IPV6_FRAGMENT => {
                let fragment = be16(h, 2);
                d.fragment_offset = fragment & 0xfff8;
                d.flags |= Decoded::FRAGMENT_HEADER
                    | (fragment & 1) << Decoded::MORE_FRAGMENTS.trailing_zeros()
                    | u16::from(fragment & 0xfff9 != 0) << Decoded::FRAGMENT.trailing_zeros();
            }
            _ => {}
        }
        d.extension_count += 1;
        d.protocol = IpProtocol(h[0]);
        d.ip_header_len += length as u16;
        d.l4_offset += length as u16;
        if d.fragment_offset != 0 {
            break;
        }
    }
    Anomaly::None
}

/// By protocol: length of the fixed header, and [`PORTS`] where it starts with two ports.
static L4: [u8; 256] = {
    let mut table = [0; 256];
    table[1] = 8; // ICMP
    table[6] = 20 | PORTS; // TCP
    table[17] = 8 | PORTS; // UDP
    table[33] = 12 | PORTS; // DCCP
    table[50] = 8; // ESP
    table[58] = 4; // ICMPv6
    table[132] = 12 | PORTS; // SCTP
    table[136] = 8 | PORTS; // UDP-Lite
    table
};
const PORTS: u8 = 0x80;

/// Whether the upper layer starts with two ports.
#[inline(always)]
pub(crate) fn has_ports(protocol: IpProtocol) -> bool {
    L4[usize::from(protocol.0)] & PORTS != 0
}

#[inline(always)]
fn decode_l4(d: &mut Decoded, l3: &[u8], header_len: usize, total_len: usize) {
    let l4_len = total_len - header_len;
    let shape = L4[usize::from(d.protocol.0)];
    d.flags |=
        u16::from(l4_len < usize::from(shape & !PORTS)) << Decoded::L4_TRUNCATED.trailing_zeros();
    if l4_len >= 4
        && let Some(word) = l3.get(header_len..).and_then(|l4| l4.first_chunk::<4>())
    {
        d.l4_word = u32::from_be_bytes(*word);
        d.flags |= u16::from(shape & PORTS != 0) << Decoded::HAS_PORTS.trailing_zeros();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipv4::Ipv4Header;
    use proptest::prelude::*;
    use std::net::Ipv4Addr;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        /// The quick way is taken where it may be, and finds what the long way finds.
        #[test]
        fn plain_agrees_with_any(
            src: u32,
            dst: u32,
            protocol in prop::sample::select(vec![1u8, 6, 17, 50, 58, 89, 132]),
            payload_len in 0usize..64,
            padding in 0usize..8,
            poke in prop::option::of((0usize..34, any::<u8>())),
            dont_fragment: bool,
        ) {
            let mut frame = vec![7; 14 + 20 + payload_len + padding];
            frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
            let (src, dst) = (Ipv4Addr::from(src), Ipv4Addr::from(dst));
            Ipv4Header { dont_fragment, ..Ipv4Header::new(src, dst, IpProtocol(protocol)) }
                .emit(payload_len, &mut frame[14..])
                .unwrap();
            if let Some((at, value)) = poke {
                frame[at] = value;
            }
            let mut any = Decoded::default();
            decode_any(&frame, frame.len(), &mut any);
            match decode_plain_ipv4(&frame, frame.len()) {
                Some(plain) => prop_assert_eq!(plain, any),
                None => prop_assert!(
                    any.anomaly != Anomaly::None
                        || any.has(Decoded::FRAGMENT)
                        || any.has(Decoded::HAS_OPTIONS)
                        || any.has(Decoded::L4_TRUNCATED)
                        || any.has(Decoded::SRC_MAC_GROUP)
                        || any.has(Decoded::DST_MULTICAST)
                        || any.has(Decoded::DST_BROADCAST)
                        || any.dst_mac != MacClass::Unicast
                        || any.vlan_count > 0
                        || any.kind != Kind::Ipv4
                        || payload_len < 4
                ),
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        /// A wrong checksum that is ignored leaves what a right one would.
        #[test]
        fn an_ignored_checksum_is_as_good_as_a_right_one(
            src in prop::sample::select(vec![0x0a00_0001u32, 0x7f00_0001, 0, 0xe000_0001]),
            dst in prop::sample::select(vec![0x0a00_0102u32, 0xf000_0001, 0xe000_0005, u32::MAX]),
            protocol in prop::sample::select(vec![1u8, 6, 17, 50, 89]),
            payload_len in 0usize..64,
            fragment_offset in prop::sample::select(vec![0u16, 8, 65_528]),
            more_fragments: bool,
            options in prop::sample::select(vec![&[][..], &[1, 1, 1, 0]]),
            wrong in 1u16..0xffff,
        ) {
            let mut frame = vec![7; 14 + 20 + options.len() + payload_len];
            frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
            let plain = Ipv4Header::new(src.into(), dst.into(), IpProtocol(protocol));
            Ipv4Header { fragment_offset, more_fragments, options, ..plain }
                .emit(payload_len, &mut frame[14..])
                .unwrap();
            let good = decode(&frame, frame.len());
            let checksum = u32::from(be16(&frame[14..34].try_into().unwrap_or([0; 20]), 10));
            let spoilt = ((checksum + u32::from(wrong)) % 0xffff) as u16;
            frame[24..26].copy_from_slice(&spoilt.to_be_bytes());
            let mut d = decode(&frame, frame.len());
            prop_assert_eq!(d.anomaly, Anomaly::BadChecksum);
            ignore_checksum(&mut d);
            prop_assert_eq!(&d, &good);
            ignore_checksum(&mut d);
            prop_assert_eq!(&d, &good);
        }
    }

    #[test]
    fn anomalies_are_numbered_and_named_apart() {
        for (number, anomaly) in Anomaly::ALL.into_iter().enumerate() {
            assert_eq!(anomaly as usize, number);
        }
        let names: std::collections::BTreeSet<_> = Anomaly::ALL.iter().map(|a| a.name()).collect();
        assert_eq!(names.len(), Anomaly::ALL.len());
    }
}
