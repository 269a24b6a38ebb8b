//! From a frame to its flow key, and where its headers are.
//!
//! ```text
//! Ethernet ─ one tag ─┬─ IPv4, IPv6 ─ TCP, UDP, SCTP, ICMP, ICMPv6 ─ neighbour discovery
//!                     ├─ ARP
//!                     ├─ MPLS: the outermost entry
//!                     └─ PBB: the I-TAG
//! ```
//!
//! The headers of IP are read by [`packet::decode()`]; what is odd about a packet (addresses that no router forwards, a wrong
//! checksum) does not matter to a switch, but lengths that contradict each other end the headers there. Only the outer tag is
//! a VLAN to OpenFlow; behind a second one nothing is read, as in Open vSwitch with its default limit. A tag that a flow has pushed
//! before another one hides nothing: later actions and tables see what they saw before. A later fragment has no ports: they are zero.

use packet::decode::{Anomaly, Decoded, decode_ip, ignore_checksum};
use packet::icmpv6::message;
use packet::ipv6::Ipv6View;
use packet::mpls::LabelStackEntry;
use packet::nd::option;
use packet::{EtherType, IpProtocol, arp, pbb};

use crate::key::{Key, WORDS, place};

/// What follows the link header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Network {
    /// Nothing that is read.
    #[default]
    Other,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// ARP for Ethernet and IPv4.
    Arp,
    /// A label stack.
    Mpls,
    /// An I-TAG.
    Pbb,
}

/// What follows IP, where its fixed header is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Transport {
    /// Nothing that is read.
    #[default]
    Other,
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
    /// ICMP.
    Icmp,
    /// ICMPv6.
    Icmpv6,
}

/// Where the headers of a frame are, in bytes from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Headers {
    /// What follows the link header.
    pub network: Network,
    /// What follows IP.
    pub transport: Transport,
    /// There is a tag.
    pub tagged: bool,
    /// Tags behind the outer one before which flows have pushed others.
    pub covered: u8,
    /// The header of the network layer; the EtherType is in the two bytes before it, but for 802.3 frames.
    pub l3: u16,
    /// The transport header; 0 where there is none.
    pub l4: u16,
    /// The end of the IP packet.
    pub l3_end: u16,
    /// The source and the target link-layer address of neighbour discovery; 0 where there is none.
    pub nd_macs: [u16; 2],
    /// A neighbour solicitation or advertisement.
    pub is_nd: bool,
    /// The link header has no EtherType: an 802.3 length, or a frame too short.
    pub is_802_3: bool,
    /// IPv6 with a routing header: its destination is not that of the checksum.
    pub is_routed: bool,
}

/// The EtherType of a frame without one (`OFP_DL_TYPE_NOT_ETH_TYPE`).
pub const NOT_ETHERTYPE: u16 = 0x05ff;

/// The tag is there: bit 12 of the VLAN field (`OFPVID_PRESENT`).
pub const VID_PRESENT: u16 = 0x1000;

/// Bits of the field of IPv6 extension headers (OpenFlow 1.3.5 §A.2.3.8, `ofp_ipv6exthdr_flags`).
pub mod exthdr {
    #![allow(missing_docs)] // the names are the specification's
    pub const NO_NEXT: u16 = 1 << 0;
    pub const ESP: u16 = 1 << 1;
    pub const AUTH: u16 = 1 << 2;
    pub const DEST: u16 = 1 << 3;
    pub const FRAG: u16 = 1 << 4;
    pub const ROUTER: u16 = 1 << 5;
    pub const HOP: u16 = 1 << 6;
    /// More often than it should be.
    pub const UNREP: u16 = 1 << 7;
    /// Not in the order of RFC 8200 §4.1.
    pub const UNSEQ: u16 = 1 << 8;
}

/// Reads a frame. `frame` may be only its first part, `frame_len` is the length of the whole. All of `key` but metadata and
/// tunnel identifier is set.
pub fn read(frame: &[u8], frame_len: usize, in_port: u32, key: &mut Key) -> Headers {
    let mut headers = Headers::default();
    read_into(frame, frame_len, in_port, key, 0, &mut headers);
    headers
}

/// [`read`] of a frame in which flows have pushed tags before `covered` others.
pub(crate) fn read_behind(
    frame: &[u8],
    frame_len: usize,
    in_port: u32,
    key: &mut Key,
    covered: u8,
) -> Headers {
    let mut headers = Headers::default();
    read_into(frame, frame_len, in_port, key, covered, &mut headers);
    headers
}

/// The same to where it is kept: a copy of what has just been written field by field would wait for all of them.
pub(crate) fn read_into(
    frame: &[u8],
    frame_len: usize,
    in_port: u32,
    key: &mut Key,
    covered: u8,
    headers: &mut Headers,
) {
    let [a, b, c, d, ..] = key.0;
    key.0 = [0; WORDS];
    (key.0[0], key.0[1], key.0[2], key.0[3]) = (a, b, c, d);
    // Words as the picture of `key` has them: a field at a time would cost more than all else here.
    (key.0[4], key.0[29]) = (in_port, in_port);
    *headers = Headers::default();
    let Some(link) = frame.first_chunk::<14>() else {
        key.set(place::ETH_TYPE, NOT_ETHERTYPE.into());
        headers.is_802_3 = true;
        headers.l3 = frame.len() as u16;
        return;
    };
    let macs = link.as_chunks::<4>().0;
    (key.0[5], key.0[6], key.0[7]) = (word(macs[0]), word(macs[1]), word(macs[2]));
    let mut ethertype = EtherType(u16::from_be_bytes([link[12], link[13]]));
    let mut l3 = 14;
    if ethertype.is_vlan()
        && let Some(tag) = frame.get(l3..).and_then(|rest| rest.first_chunk::<4>())
    {
        let tci = u16::from_be_bytes([tag[0], tag[1]]);
        key.0[8] = u32::from(tci & 0xfff | VID_PRESENT) << 3 | u32::from(tci >> 13);
        ethertype = EtherType(u16::from_be_bytes([tag[2], tag[3]]));
        headers.tagged = true;
        l3 += 4;
        while headers.covered < covered
            && ethertype.is_vlan()
            && let Some(tag) = frame.get(l3..).and_then(|rest| rest.first_chunk::<4>())
        {
            ethertype = EtherType(u16::from_be_bytes([tag[2], tag[3]]));
            headers.covered += 1;
            l3 += 4;
        }
    }
    if ethertype.0 < 0x0600 {
        // 802.3: a SNAP header with an EtherType (RFC 1042), or none.
        headers.is_802_3 = true;
        let snap = frame.get(l3..).and_then(|rest| rest.first_chunk::<8>());
        ethertype = match snap {
            Some([0xaa, 0xaa, 3, 0, 0, 0, high, low]) if *high >= 6 => {
                l3 += 8;
                EtherType(u16::from_be_bytes([*high, *low]))
            }
            _ => EtherType(NOT_ETHERTYPE),
        };
    }
    headers.l3 = l3 as u16;
    key.0[8] |= u32::from(ethertype.0) << 16;
    let rest = frame.get(l3..).unwrap_or_default();
    let available = frame_len.max(frame.len()) - l3;
    match ethertype {
        EtherType::IPV4 | EtherType::IPV6 => read_ip(rest, available, ethertype, key, headers),
        EtherType::ARP => read_arp(rest, key, headers),
        EtherType::MPLS | EtherType::MPLS_MULTICAST => {
            if let Some(entry) = LabelStackEntry::read(rest) {
                headers.network = Network::Mpls;
                key.set(place::MPLS_LABEL, entry.label().into());
                key.set(place::MPLS_TC, entry.traffic_class().into());
                key.set(place::MPLS_BOS, entry.is_bottom().into());
            }
        }
        EtherType::PBB => {
            if let Some(tag) = pbb::i_tag(rest) {
                headers.network = Network::Pbb;
                key.set(place::PBB_ISID, pbb::service_id(tag).into());
            }
        }
        _ => {}
    }
}

#[inline(always)]
fn word(bytes: [u8; 4]) -> u32 {
    u32::from_be_bytes(bytes)
}

/// Up to 16 bytes as a number, most significant first.
fn number(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0, |number, byte| number << 8 | u128::from(*byte))
}

fn read_arp(rest: &[u8], key: &mut Key, headers: &mut Headers) {
    if arp::ArpView::new_checked(rest).is_none() {
        return;
    }
    let Some(body) = rest.first_chunk::<28>() else { return };
    headers.network = Network::Arp;
    key.set(place::ARP_OP, number(&body[6..8]));
    key.set(place::SENDER_MAC, number(&body[8..14]));
    key.set(place::SRC_V4, number(&body[14..18]));
    key.set(place::TARGET_MAC, number(&body[18..24]));
    key.set(place::DST_V4, number(&body[24..28]));
}

#[inline(always)]
fn read_ip(
    rest: &[u8],
    available: usize,
    ethertype: EtherType,
    key: &mut Key,
    headers: &mut Headers,
) {
    let is_plain = match ethertype {
        EtherType::IPV4 => read_plain_v4(rest, available, key, headers),
        _ => read_plain_v6(rest, available, key, headers),
    };
    if !is_plain {
        read_any_ip(rest, available, ethertype, key, headers);
    }
}

/// By protocol: what it is, and bytes that it has at least; of some, what it begins with are ports.
static UPPER: [(Transport, u8, u32); 256] = {
    let mut all = [(Transport::Other, 0, 0); 256];
    all[1] = (Transport::Icmp, 8, 0);
    all[6] = (Transport::Tcp, 20, u32::MAX);
    all[17] = (Transport::Udp, 8, u32::MAX);
    all[132] = (Transport::Sctp, 12, u32::MAX);
    all
};

/// [`read_any_ip`] of nearly all that there is of IPv4: no options, no fragment, all there. `false`: it is something else, and nothing is
/// written.
#[inline(always)]
fn read_plain_v4(rest: &[u8], available: usize, key: &mut Key, headers: &mut Headers) -> bool {
    let Some(h) = rest.first_chunk::<24>() else { return false };
    let words = h.as_chunks::<4>().0;
    let total_len = usize::from(u16::from_be_bytes([h[2], h[3]]));
    let fragment = u16::from_be_bytes([h[6], h[7]]);
    let (transport, least, ports) = UPPER[usize::from(h[9])];
    let is_odd = (h[0] != 0x45)
        | (total_len < 20 + usize::from(least))
        | (total_len > available)
        | (fragment & 0x3fff != 0);
    if is_odd {
        return false;
    }
    key.0[9] = u32::from(h[9]) << 24 | u32::from(h[1]) << 16;
    key.0[10] = match transport {
        Transport::Icmp => u32::from(h[20]) << 16 | u32::from(h[21]),
        _ => word(words[5]) & ports,
    };
    (key.0[14], key.0[18]) = (word(words[3]), word(words[4]));
    (headers.network, headers.transport) = (Network::Ipv4, transport);
    headers.l3_end = headers.l3.saturating_add(total_len as u16);
    headers.l4 = if transport == Transport::Other { 0 } else { headers.l3 + 20 };
    true
}

/// The same of IPv6: ports behind the header.
#[inline(always)]
fn read_plain_v6(rest: &[u8], available: usize, key: &mut Key, headers: &mut Headers) -> bool {
    let Some(h) = rest.first_chunk::<44>() else { return false };
    let words = h.as_chunks::<4>().0;
    let first = word(words[0]);
    let total_len = 40 + usize::from(u16::from_be_bytes([h[4], h[5]]));
    let (transport, least, ports) = UPPER[usize::from(h[6])];
    let is_odd = (first >> 28 != 6)
        | (ports == 0)
        | (total_len < 40 + usize::from(least))
        | (total_len > available);
    if is_odd {
        return false;
    }
    key.0[9] = u32::from(h[6]) << 24 | (first >> 20 & 0xff) << 16;
    key.0[10] = word(words[10]);
    for (own, bytes) in key.0[11..19].iter_mut().zip(&words[2..10]) {
        *own = word(*bytes);
    }
    key.0[26] = first & 0xf_ffff;
    (headers.network, headers.transport) = (Network::Ipv6, transport);
    headers.l3_end = headers.l3.saturating_add(total_len.min(u16::MAX.into()) as u16);
    headers.l4 = headers.l3 + 40;
    true
}

/// Any other, and the reference of those.
fn read_any_ip(
    rest: &[u8],
    available: usize,
    ethertype: EtherType,
    key: &mut Key,
    headers: &mut Headers,
) {
    let version = rest.first().map(|byte| byte >> 4);
    if version != Some(if ethertype == EtherType::IPV4 { 4 } else { 6 }) {
        return;
    }
    let mut d = decode_ip(rest, available);
    ignore_checksum(&mut d);
    // Fragments of nothing and the like are whole headers all the same.
    if matches!(
        d.anomaly,
        Anomaly::Truncated
            | Anomaly::BadVersion
            | Anomaly::BadHeaderLength
            | Anomaly::BadTotalLength
    ) {
        return;
    }
    let is_v6 = ethertype == EtherType::IPV6;
    headers.network = if is_v6 { Network::Ipv6 } else { Network::Ipv4 };
    headers.l3_end = headers.l3.saturating_add(d.ip_total_len.min(u16::MAX.into()) as u16);
    let words =
        |[high, low]: [u64; 2]| [(high >> 32) as u32, high as u32, (low >> 32) as u32, low as u32];
    key.0[11..15].copy_from_slice(&words(d.src));
    key.0[15..19].copy_from_slice(&words(d.dst));
    key.0[9] = u32::from(d.protocol.0) << 24 | u32::from(d.traffic_class) << 16;
    if is_v6 {
        headers.is_routed = d.has(Decoded::ROUTING_HEADER);
        if let Some(h) = rest.first_chunk::<4>() {
            key.set(place::IPV6_FLABEL, u128::from(u32::from_be_bytes(*h) & 0xf_ffff));
        }
        key.set(place::IPV6_EXTHDR, extension_bits(rest, d.protocol).into());
    }
    let upper_is_there = d.anomaly == Anomaly::None || d.anomaly.leaves_lengths_right();
    if !upper_is_there || d.fragment_offset != 0 || d.has(Decoded::L4_TRUNCATED) {
        return;
    }
    let transport = match (d.protocol, is_v6) {
        (IpProtocol::TCP, _) => Transport::Tcp,
        (IpProtocol::UDP, _) => Transport::Udp,
        (IpProtocol::SCTP, _) => Transport::Sctp,
        (IpProtocol::ICMP, false) => Transport::Icmp,
        (IpProtocol::ICMPV6, true) => Transport::Icmpv6,
        _ => return,
    };
    let at = usize::from(d.l4_offset);
    let end = rest.len().min(d.ip_total_len as usize);
    let Some(l4) = rest.get(at..end).filter(|l4| l4.len() >= 4) else { return };
    headers.transport = transport;
    headers.l4 = headers.l3 + d.l4_offset;
    if let Some((kind, code)) = d.icmp_type_code() {
        key.0[10] = u32::from(kind) << 16 | u32::from(code);
        if transport == Transport::Icmpv6 && code == 0 {
            read_nd(l4, kind, key, headers);
        }
    } else {
        key.0[10] = u32::from(d.src_port()) << 16 | u32::from(d.dst_port());
    }
}

/// The target and the link-layer address of a neighbour solicitation or advertisement, as Open vSwitch reads them: options end where one is
/// not well formed, and with the same one twice there is nothing.
fn read_nd(l4: &[u8], kind: u8, key: &mut Key, headers: &mut Headers) {
    let wanted = match kind {
        message::NEIGHBOUR_SOLICITATION => option::SOURCE_LINK_LAYER,
        message::NEIGHBOUR_ADVERTISEMENT => option::TARGET_LINK_LAYER,
        _ => return,
    };
    let Some((fixed, options)) = l4.split_first_chunk::<24>() else { return };
    let (mut found, mut at) = ([None; 2], 0);
    while let Some(rest @ [own, units, ..]) = options.get(at..).filter(|rest| rest.len() >= 8) {
        let len = usize::from(*units) * 8;
        if len == 0 || len > rest.len() {
            break;
        }
        if len == 8 && matches!(*own, option::SOURCE_LINK_LAYER | option::TARGET_LINK_LAYER) {
            let found = &mut found[usize::from(*own == option::TARGET_LINK_LAYER)];
            if found.is_some() {
                return;
            }
            *found = Some((24 + at + 2, number(&rest[2..8]))).filter(|(_, mac)| *mac != 0);
        }
        at += len;
    }
    headers.is_nd = true;
    key.set(place::ND_TARGET, number(&fixed[8..]));
    let is_target = wanted == option::TARGET_LINK_LAYER;
    if let Some((at, mac)) = found[usize::from(is_target)] {
        headers.nd_macs[usize::from(is_target)] = headers.l4 + at as u16;
        key.set(if is_target { place::TARGET_MAC } else { place::SENDER_MAC }, mac);
    }
}

/// Which extension headers a packet has, and whether they are as RFC 8200 §4.1 recommends.
fn extension_bits(packet: &[u8], last: IpProtocol) -> u16 {
    let mut bits = match last {
        IpProtocol::NO_NEXT_HEADER => exthdr::NO_NEXT,
        IpProtocol::ESP => exthdr::ESP,
        _ => 0,
    };
    let first = packet.get(6).map_or(IpProtocol::NO_NEXT_HEADER, |next| IpProtocol(*next));
    if !first.is_extension_header() {
        return bits;
    }
    let Some(view) = Ipv6View::new_quoted(packet) else { return bits };
    let (mut place, mut destinations) = (0, 0);
    for header in view.extensions() {
        // Destination options may be in two places: before a routing header, and last.
        let (bit, own) = match header.kind {
            IpProtocol::HOP_BY_HOP => (exthdr::HOP, 1),
            IpProtocol::DESTINATION_OPTIONS if place < 3 && destinations == 0 => (exthdr::DEST, 2),
            IpProtocol::IPV6_ROUTING => (exthdr::ROUTER, 3),
            IpProtocol::IPV6_FRAGMENT => (exthdr::FRAG, 4),
            IpProtocol::AH => (exthdr::AUTH, 5),
            _ => (exthdr::DEST, 7),
        };
        destinations += u8::from(bit == exthdr::DEST);
        let repeats = bits & bit != 0 && (bit != exthdr::DEST || destinations > 2);
        bits |= bit | if repeats { exthdr::UNREP } else { 0 };
        if own < place {
            bits |= exthdr::UNSEQ;
        }
        place = place.max(own);
    }
    // ESP comes before the last destination options, which it hides: behind clear ones it is out of order.
    if bits & exthdr::ESP != 0 && place > 6 {
        bits |= exthdr::UNSEQ;
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Noise, splitmix64.
    struct Noise(u64);

    impl Noise {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            x ^ x >> 31
        }

        fn below(&mut self, bound: u64) -> u64 {
            self.next() % bound
        }
    }

    /// A packet of IP with something wrong in it now and then, and the bytes that there are.
    fn packet(noise: &mut Noise) -> (Vec<u8>, usize, EtherType) {
        const PROTOCOLS: [u8; 10] = [6, 17, 132, 1, 58, 50, 59, 44, 0, 89];
        let mut packet: Vec<u8> = (0..100).map(|_| noise.next() as u8).collect();
        let (upper, protocol) = (noise.below(40) as u8, PROTOCOLS[noise.below(10) as usize]);
        let is_v6 = noise.below(2) == 0;
        if is_v6 {
            packet[0] = 0x60 | packet[0] & 0xf;
            (packet[4], packet[5], packet[6]) = (0, upper, protocol);
        } else {
            (packet[0], packet[2], packet[3]) = (0x45, 0, 20 + upper);
            (packet[6], packet[7], packet[9]) =
                ([0, 0x40, 0x80][noise.below(3) as usize], 0, protocol);
            // Addresses that a router would not forward, and a wrong checksum, do not matter.
        }
        for _ in 0..noise.below(3) {
            packet[noise.below(if is_v6 { 44 } else { 24 }) as usize] = noise.next() as u8;
        }
        let len = if noise.below(4) == 0 { noise.below(101) as usize } else { 100 };
        packet.truncate(len);
        let available = len + if noise.below(4) == 0 { noise.below(300) as usize } else { 0 };
        (packet, available, if is_v6 { EtherType::IPV6 } else { EtherType::IPV4 })
    }

    #[test]
    fn plain_packets_are_read_as_any() {
        use std::hash::{BuildHasher, RandomState};
        let seed = RandomState::new().hash_one(0);
        let (mut noise, mut plain) = (Noise(seed), [0; 2]);
        for round in 0..200_000 {
            let (rest, available, ethertype) = packet(&mut noise);
            let before = (Key::default(), Headers { l3: 14, ..Headers::default() });
            let ((mut any, mut of_any), (mut own, mut of_own)) = (before, before);
            read_any_ip(&rest, available, ethertype, &mut any, &mut of_any);
            let is_plain = match ethertype {
                EtherType::IPV4 => read_plain_v4(&rest, available, &mut own, &mut of_own),
                _ => read_plain_v6(&rest, available, &mut own, &mut of_own),
            };
            let wanted = if is_plain { (any, of_any) } else { before };
            assert_eq!(
                (own, of_own),
                wanted,
                "seed {seed}, round {round}: {rest:02x?}, {available}"
            );
            plain[usize::from(ethertype == EtherType::IPV6)] += usize::from(is_plain);
        }
        assert!(plain.iter().all(|n| *n > 5_000), "{plain:?} of them are plain");
    }
}
