//! The record that decoding a frame fills in.

use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes, try_transmute_mut};

use crate::anomaly::Anomaly;
use crate::{EtherType, IpProtocol};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What a frame carries.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    Default,
    TryFromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
)]
#[repr(u8)]
pub enum Kind {
    /// EtherType 0x0800.
    Ipv4,
    /// EtherType 0x86dd.
    Ipv6,
    /// EtherType 0x0806.
    Arp,
    /// Any other EtherType, an 802.3 length, or a frame too short to say.
    #[default]
    Other,
}

/// Class of the destination MAC; whether it is one's own is the caller's comparison.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    Default,
    TryFromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
)]
#[repr(u8)]
pub enum MacClass {
    /// No group bit.
    #[default]
    Unicast,
    /// Group bit, not all ones.
    Multicast,
    /// All ones.
    Broadcast,
}

/// What one pass finds. 64 bytes; numbers in host order; offsets in bytes from the frame's start.
/// A field that the packet does not have is 0.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    Default,
    TryFromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
)]
#[repr(C)]
pub struct Decoded {
    /// Source address: IPv6 as `[high, low]`, IPv4 as `[0, address]`.
    pub src: [u64; 2],
    /// Destination address, likewise.
    pub dst: [u64; 2],
    /// IPv4 total length; IPv6 payload length + 40. Bytes, from `l3_offset`; padding excluded.
    pub ip_total_len: u32,
    /// First four bytes of the upper layer: ports, or ICMP type and code. See [`Decoded::ports`].
    pub l4_word: u32,
    /// EtherType behind the tags.
    pub ethertype: EtherType,
    /// Tag control information (priority 3 bits, DEI 1, VLAN identifier 12), outer tag first.
    pub vlan_tci: [u16; 2],
    /// Where the IP or ARP header starts.
    pub l3_offset: u16,
    /// Where the upper layer starts; behind all extension headers.
    pub l4_offset: u16,
    /// IPv4 header with options, or IPv6 header with extension headers; bytes.
    pub ip_header_len: u16,
    /// Fragment offset in bytes.
    pub fragment_offset: u16,
    /// Bits, named by the constants of this type.
    pub flags: u16,
    /// Discriminates the rest.
    pub kind: Kind,
    /// Final upper-layer protocol; of a later fragment, the one its fragment header names.
    pub protocol: IpProtocol,
    /// TTL or hop limit.
    pub ttl: u8,
    /// DSCP (6 bits) and ECN (2 bits).
    pub traffic_class: u8,
    /// Tags found, 0 to 2.
    pub vlan_count: u8,
    /// Class of the destination MAC.
    pub dst_mac: MacClass,
    /// First thing wrong.
    pub anomaly: Anomaly,
    /// Extension headers walked over.
    pub extension_count: u8,
}

const _: () = assert!(size_of::<Decoded>() == 64);

impl Decoded {
    /// The upper layer has ports and both are there.
    pub const HAS_PORTS: u16 = 1 << 0;
    /// Part of a datagram: offset above 0, or more fragments to come.
    pub const FRAGMENT: u16 = 1 << 1;
    /// More fragments follow.
    pub const MORE_FRAGMENTS: u16 = 1 << 2;
    /// IPv4 DF; every IPv6 packet.
    pub const DONT_FRAGMENT: u16 = 1 << 3;
    /// IPv4 options.
    pub const HAS_OPTIONS: u16 = 1 << 4;
    /// An IPv6 hop-by-hop options header, which asks every router to look.
    pub const HOP_BY_HOP: u16 = 1 << 5;
    /// The upper layer's fixed header is not all there. A router forwards it all the same.
    pub const L4_TRUNCATED: u16 = 1 << 6;
    /// The source MAC has the group bit, which no station may send.
    pub const SRC_MAC_GROUP: u16 = 1 << 7;
    /// IP destination is a multicast group.
    pub const DST_MULTICAST: u16 = 1 << 8;
    /// IPv4 destination is 255.255.255.255.
    pub const DST_BROADCAST: u16 = 1 << 9;
    /// An IPv6 routing header.
    pub const ROUTING_HEADER: u16 = 1 << 10;
    /// An IPv6 fragment header, also one that fragments nothing (RFC 6946).
    pub const FRAGMENT_HEADER: u16 = 1 << 11;

    /// Whether all bits of `flags` are set.
    #[inline]
    pub const fn has(&self, flags: u16) -> bool {
        self.flags & flags == flags
    }

    /// IPv4 source, host order.
    #[inline]
    pub const fn src_v4(&self) -> u32 {
        self.src[1] as u32
    }

    /// IPv4 destination, host order.
    #[inline]
    pub const fn dst_v4(&self) -> u32 {
        self.dst[1] as u32
    }

    /// Source address of an IP packet.
    pub const fn src_ip(&self) -> Option<IpAddr> {
        ip(self.kind, self.src)
    }

    /// Destination address of an IP packet.
    pub const fn dst_ip(&self) -> Option<IpAddr> {
        ip(self.kind, self.dst)
    }

    /// IPv4 or IPv6.
    #[inline]
    pub const fn is_ip(&self) -> bool {
        matches!(self.kind, Kind::Ipv4 | Kind::Ipv6)
    }

    /// Source and destination port of TCP, UDP, SCTP, DCCP or UDP-Lite; not of later fragments.
    #[inline]
    pub const fn ports(&self) -> Option<(u16, u16)> {
        if self.has(Decoded::HAS_PORTS) { Some((self.src_port(), self.dst_port())) } else { None }
    }

    /// Source port; meaningful with [`Decoded::HAS_PORTS`].
    #[inline]
    pub const fn src_port(&self) -> u16 {
        (self.l4_word >> 16) as u16
    }

    /// Destination port; meaningful with [`Decoded::HAS_PORTS`].
    #[inline]
    pub const fn dst_port(&self) -> u16 {
        self.l4_word as u16
    }

    /// Type and code of an ICMP or ICMPv6 message whose first four bytes are there.
    pub const fn icmp_type_code(&self) -> Option<(u8, u8)> {
        let is_icmp = matches!(
            (self.kind, self.protocol),
            (Kind::Ipv4, IpProtocol::ICMP) | (Kind::Ipv6, IpProtocol::ICMPV6)
        );
        if is_icmp && self.fragment_offset == 0 && !self.has(Decoded::L4_TRUNCATED) {
            Some(((self.l4_word >> 24) as u8, (self.l4_word >> 16) as u8))
        } else {
            None
        }
    }

    /// Differentiated services code point, 6 bits.
    #[inline]
    pub const fn dscp(&self) -> u8 {
        self.traffic_class >> 2
    }

    /// VLAN identifier of the outer tag, 12 bits; 0 is a priority tag.
    pub const fn vlan_id(&self) -> Option<u16> {
        if self.vlan_count > 0 { Some(self.vlan_tci[0] & 0xfff) } else { None }
    }

    /// VLAN identifier of the inner tag where there are two.
    pub const fn inner_vlan_id(&self) -> Option<u16> {
        if self.vlan_count > 1 { Some(self.vlan_tci[1] & 0xfff) } else { None }
    }

    /// Where the packet ends and padding starts.
    #[inline]
    pub const fn l3_end(&self) -> usize {
        self.l3_offset as usize + self.ip_total_len as usize
    }

    /// The record that is in these words, in place and to be written too: a column of words can hold records, and who finds one
    /// there copies nothing. `None` where the words are no record; zeros are one.
    #[inline(always)]
    pub fn in_words(words: &mut [u64; 8]) -> Option<&mut Self> {
        let found: Result<&mut Self, _> = try_transmute_mut!(words);
        found.ok()
    }

    /// All fields but the addresses as four words, for columns that a device fills.
    ///
    /// ```text
    ///  63          48           32                16             0
    /// │ first four bytes of L4   │ total length of IP             │
    /// │ flags       │ EtherType  │ inner tag       │ outer tag    │
    /// │ fragment    │ IP header  │ upper layer at  │ IP header at │
    /// │ extensions, MAC class │ tags, anomaly │ class, TTL │ protocol, kind │   8 bits each
    /// ```
    #[inline]
    pub fn words(&self) -> [u64; 4] {
        let four = |w: [u16; 4]| {
            let [a, b, c, d] = w.map(u64::from);
            a | b << 16 | c << 32 | d << 48
        };
        [
            u64::from(self.ip_total_len) | u64::from(self.l4_word) << 32,
            four([self.vlan_tci[0], self.vlan_tci[1], self.ethertype.0, self.flags]),
            four([self.l3_offset, self.l4_offset, self.ip_header_len, self.fragment_offset]),
            u64::from_le_bytes([
                self.kind as u8,
                self.protocol.0,
                self.ttl,
                self.traffic_class,
                self.anomaly as u8,
                self.vlan_count,
                self.dst_mac as u8,
                self.extension_count,
            ]),
        ]
    }

    /// The record of two addresses and the words of the rest: see [`Decoded::words`]. Numbers that name nothing are taken for
    /// the last of their kind.
    #[inline]
    pub fn from_words(src: [u64; 2], dst: [u64; 2], words: [u64; 4]) -> Self {
        let half = |word: u64, n: u32| (word >> (16 * n)) as u16;
        let [kind, protocol, ttl, traffic_class, anomaly, vlan_count, dst_mac, extension_count] =
            words[3].to_le_bytes();
        let anomalies = Anomaly::ALL;
        Self {
            src,
            dst,
            ip_total_len: words[0] as u32,
            l4_word: (words[0] >> 32) as u32,
            ethertype: EtherType(half(words[1], 2)),
            vlan_tci: [half(words[1], 0), half(words[1], 1)],
            l3_offset: half(words[2], 0),
            l4_offset: half(words[2], 1),
            ip_header_len: half(words[2], 2),
            fragment_offset: half(words[2], 3),
            flags: half(words[1], 3),
            kind: match kind {
                0 => Kind::Ipv4,
                1 => Kind::Ipv6,
                2 => Kind::Arp,
                _ => Kind::Other,
            },
            protocol: IpProtocol(protocol),
            ttl,
            traffic_class,
            vlan_count,
            dst_mac: match dst_mac {
                0 => MacClass::Unicast,
                1 => MacClass::Multicast,
                _ => MacClass::Broadcast,
            },
            anomaly: anomalies[usize::from(anomaly).min(anomalies.len() - 1)],
            extension_count,
        }
    }
}

const fn ip(kind: Kind, words: [u64; 2]) -> Option<IpAddr> {
    match kind {
        Kind::Ipv4 => Some(IpAddr::V4(Ipv4Addr::from_bits(words[1] as u32))),
        Kind::Ipv6 => {
            Some(IpAddr::V6(Ipv6Addr::from_bits(((words[0] as u128) << 64) | words[1] as u128)))
        }
        Kind::Arp | Kind::Other => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each field has a place of its own.
    #[test]
    fn words_are_the_record() {
        let plain = Decoded::default();
        let mut all = vec![plain];
        for anomaly in Anomaly::ALL {
            all.push(Decoded { anomaly, ..plain });
        }
        for kind in [Kind::Ipv4, Kind::Ipv6, Kind::Arp, Kind::Other] {
            for dst_mac in [MacClass::Unicast, MacClass::Multicast, MacClass::Broadcast] {
                all.push(Decoded { kind, dst_mac, ..plain });
            }
        }
        let fields: [fn(&mut Decoded); 15] = [
            |d| d.ip_total_len = u32::MAX,
            |d| d.l4_word = u32::MAX,
            |d| d.ethertype.0 = u16::MAX,
            |d| d.vlan_tci[0] = u16::MAX,
            |d| d.vlan_tci[1] = u16::MAX,
            |d| d.l3_offset = u16::MAX,
            |d| d.l4_offset = u16::MAX,
            |d| d.ip_header_len = u16::MAX,
            |d| d.fragment_offset = u16::MAX,
            |d| d.flags = u16::MAX,
            |d| d.protocol.0 = u8::MAX,
            |d| d.ttl = u8::MAX,
            |d| d.traffic_class = u8::MAX,
            |d| d.vlan_count = u8::MAX,
            |d| d.extension_count = u8::MAX,
        ];
        for field in fields {
            let mut own = plain;
            field(&mut own);
            all.push(own);
        }
        for own in all {
            let own = Decoded { src: [1, 2], dst: [3, 4], ..own };
            assert_eq!(Decoded::from_words(own.src, own.dst, own.words()), own);
        }
        // In place they are the record itself.
        let mut words = [0; 8];
        assert_eq!(Decoded::in_words(&mut words).map(|zero| zero.kind), Some(Kind::Ipv4));
        *Decoded::in_words(&mut words).unwrap() =
            Decoded { src: [1, 2], dst_mac: MacClass::Broadcast, ..plain };
        assert_eq!((words[0], words[1]), (1, 2));
        assert_eq!(Decoded::in_words(&mut words).unwrap().dst_mac, MacClass::Broadcast);
        assert_eq!(Decoded::in_words(&mut [u64::MAX; 8]), None);
        // A device that answers nonsense is no reason to end.
        let odd = Decoded::from_words([0; 2], [0; 2], [u64::MAX; 4]);
        assert_eq!((odd.kind, odd.anomaly), (Kind::Other, Anomaly::TooManyExtensionHeaders));
    }
}
