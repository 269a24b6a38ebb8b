//! etherparse as the oracle, in both directions: what it builds is parsed here, what is built here
//! it parses, and over damaged bytes both accept or reject alike.
//!
//! Where the two differ, and why:
//!
//! * etherparse takes an IPv6 payload length of 0 for a jumbogram and the rest of the slice for its
//!   payload; here it is 0, because no link here carries jumbograms.
//! * etherparse goes on parsing extension headers behind the header of a later fragment, whose
//!   bytes are the middle of something; here the walk ends there.
//! * etherparse allows any number of extension headers, and routing, fragment and authentication
//!   headers more than once; here that is an anomaly (bounded work).
//! * etherparse parses the authentication header of IPv4 as an extension; here it is the protocol.
//! * etherparse takes a UDP length of 0 for the rest of the slice; here it is invalid (RFC 768
//!   knows none below 8).
//! * etherparse forgets IPv4's reserved flag, and so computes another checksum where it is set.
//! * etherparse verifies no IPv4 checksum and knows no martian addresses.

use etherparse::{
    IpHeaders, IpNumber, Ipv4Extensions, Ipv4Slice, Ipv6Extensions, Ipv6Slice, NetSlice,
    PacketBuilder, SlicedPacket, TcpSlice, TransportSlice, UdpSlice,
};
use packet::arp::{ArpOperation, ArpPacket, ArpView};
use packet::ethernet::{EthernetHeader, EthernetView};
use packet::icmpv4::Icmpv4View;
use packet::icmpv6::Icmpv6View;
use packet::ipv4::{Ipv4Header, Ipv4View};
use packet::ipv6::{Ipv6Header, Ipv6View};
use packet::tcp::{TcpHeader, TcpView};
use packet::udp::{UdpHeader, UdpView};
use packet::vlan::VlanView;
use packet::{Anomaly, Decoded, EtherType, IpProtocol, Kind, MacAddr, MacClass, checksum, decode};
use proptest::collection::vec;
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

#[derive(Clone, Debug)]
struct Spec {
    dst_mac: [u8; 6],
    src_mac: [u8; 6],
    tags: Vec<u16>,
    src: IpAddr,
    dst: IpAddr,
    ttl: u8,
    traffic_class: u8,
    options: Vec<u8>,
    /// Bytes of a hop-by-hop header, for IPv6.
    hop_by_hop: Option<u8>,
    dont_fragment: bool,
    transport: Transport,
    payload: Vec<u8>,
}

#[derive(Clone, Debug)]
enum Transport {
    Udp(u16, u16),
    Tcp(u16, u16, u32, u16),
    Echo(u16, u16),
}

fn addresses() -> impl Strategy<Value = (IpAddr, IpAddr)> {
    let v4 = prop_oneof![
        8 => any::<u32>(),
        1 => prop::sample::select(vec![0, 1, 0x7f00_0001, 0xe000_0001, 0xefff_ffff, 0xf000_0000, !0]),
    ];
    let v6 = prop_oneof![
        4 => any::<u128>(),
        4 => any::<u128>().prop_map(|n| 0x2001_0db8 << 96 | n >> 32),
        1 => prop::sample::select(vec![0, 1, 2, 0xff02 << 112 | 1, 0xff01 << 112 | 1, 0xff00 << 112, 0xfe80 << 112 | 1]),
    ];
    prop_oneof![
        (v4.clone(), v4).prop_map(|(a, b)| (Ipv4Addr::from(a).into(), Ipv4Addr::from(b).into())),
        (v6.clone(), v6).prop_map(|(a, b)| (Ipv6Addr::from(a).into(), Ipv6Addr::from(b).into())),
    ]
}

fn specs() -> impl Strategy<Value = Spec> {
    let transport = prop_oneof![
        any::<(u16, u16)>().prop_map(|(a, b)| Transport::Udp(a, b)),
        any::<(u16, u16, u32, u16)>().prop_map(|(a, b, c, d)| Transport::Tcp(a, b, c, d)),
        any::<(u16, u16)>().prop_map(|(a, b)| Transport::Echo(a, b)),
    ];
    let options = prop_oneof![
        3 => Just(Vec::new()),
        1 => (1usize..=10).prop_map(|words| vec![1; words * 4]),
        1 => Just(vec![148, 4, 0, 0]),
    ];
    let link = (any::<[u8; 6]>(), any::<[u8; 6]>(), vec(any::<u16>(), 0..3));
    let ip =
        (addresses(), any::<u8>(), any::<u8>(), options, prop::option::of(0u8..4), any::<bool>());
    (link, ip, transport, vec(any::<u8>(), 0..300)).prop_map(
        |(
            (dst_mac, src_mac, tags),
            (ips, ttl, class, options, hop_by_hop, df),
            transport,
            payload,
        )| Spec {
            dst_mac,
            src_mac,
            tags,
            src: ips.0,
            dst: ips.1,
            ttl,
            traffic_class: class,
            options,
            hop_by_hop,
            dont_fragment: df,
            transport,
            payload,
        },
    )
}

impl Spec {
    fn protocol(&self) -> IpProtocol {
        match (&self.transport, self.src) {
            (Transport::Udp(..), _) => IpProtocol::UDP,
            (Transport::Tcp(..), _) => IpProtocol::TCP,
            (Transport::Echo(..), IpAddr::V4(_)) => IpProtocol::ICMP,
            (Transport::Echo(..), IpAddr::V6(_)) => IpProtocol::ICMPV6,
        }
    }

    /// As etherparse writes it.
    fn build(&self) -> Vec<u8> {
        let ip = match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let mut header = etherparse::Ipv4Header::new(
                    0,
                    self.ttl,
                    IpNumber::UDP,
                    src.octets(),
                    dst.octets(),
                )
                .unwrap();
                header.dscp = (self.traffic_class >> 2).try_into().unwrap();
                header.ecn = (self.traffic_class & 3).try_into().unwrap();
                header.dont_fragment = self.dont_fragment;
                header.options = self.options[..].try_into().unwrap();
                IpHeaders::Ipv4(header, Ipv4Extensions::default())
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let header = etherparse::Ipv6Header {
                    traffic_class: self.traffic_class,
                    hop_limit: self.ttl,
                    source: src.octets(),
                    destination: dst.octets(),
                    ..Default::default()
                };
                let mut extensions = Ipv6Extensions::default();
                if let Some(units) = self.hop_by_hop {
                    let data = vec![0; 6 + 8 * usize::from(units)];
                    let raw = etherparse::Ipv6RawExtHeader::new_raw(IpNumber::UDP, &data).unwrap();
                    extensions.hop_by_hop_options = Some(raw);
                }
                IpHeaders::Ipv6(header, extensions)
            }
            _ => unreachable!(),
        };
        let link = PacketBuilder::ethernet2(self.src_mac, self.dst_mac);
        let id = |tci: u16| etherparse::VlanId::try_new(tci & 0xfff).unwrap();
        let step = match self.tags[..] {
            [] => link.ip(ip),
            [tci] => link.single_vlan(id(tci)).ip(ip),
            [outer, inner, ..] => link.double_vlan(id(outer), id(inner)).ip(ip),
        };
        let mut frame = Vec::new();
        match (&self.transport, self.src) {
            (Transport::Udp(src, dst), _) => step.udp(*src, *dst).write(&mut frame, &self.payload),
            (Transport::Tcp(src, dst, sequence, window), _) => {
                step.tcp(*src, *dst, *sequence, *window).write(&mut frame, &self.payload)
            }
            (Transport::Echo(id, seq), IpAddr::V4(_)) => {
                step.icmpv4_echo_request(*id, *seq).write(&mut frame, &self.payload)
            }
            (Transport::Echo(id, seq), IpAddr::V6(_)) => {
                step.icmpv6_echo_request(*id, *seq).write(&mut frame, &self.payload)
            }
        }
        .unwrap();
        frame
    }

    /// By the standard library's predicates.
    fn expected_anomaly(&self) -> Anomaly {
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let class_e = |ip: Ipv4Addr| ip.octets()[0] >= 240;
                let to_many = dst.is_multicast() || dst.is_broadcast();
                if src.is_loopback()
                    || src.is_multicast()
                    || class_e(src)
                    || (src.octets()[0] == 0 && !(src.is_unspecified() && to_many))
                {
                    Anomaly::MartianSource
                } else if dst.is_loopback()
                    || dst.octets()[0] == 0
                    || (class_e(dst) && !dst.is_broadcast())
                {
                    Anomaly::MartianDestination
                } else {
                    Anomaly::None
                }
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                if src.is_multicast()
                    || src.is_loopback()
                    || (src.is_unspecified() && !dst.is_multicast())
                {
                    Anomaly::MartianSource
                } else if dst.is_unspecified()
                    || dst.is_loopback()
                    || (dst.is_multicast() && dst.octets()[1] & 0xf <= 1)
                {
                    Anomaly::MartianDestination
                } else {
                    Anomaly::None
                }
            }
            _ => unreachable!(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn what_etherparse_builds(spec in specs(), padding in 0usize..20) {
        let mut frame = spec.build();
        let end = frame.len();
        frame.resize(end + padding, 0);
        let d = decode(&frame, frame.len());

        prop_assert_eq!(d.anomaly, spec.expected_anomaly());
        prop_assert_eq!(usize::from(d.vlan_count), spec.tags.len());
        prop_assert_eq!(d.vlan_id(), spec.tags.first().map(|tci| tci & 0xfff));
        prop_assert_eq!(d.inner_vlan_id(), spec.tags.get(1).map(|tci| tci & 0xfff));
        let is_v4 = spec.src.is_ipv4();
        prop_assert_eq!(d.kind, if is_v4 { Kind::Ipv4 } else { Kind::Ipv6 });
        prop_assert_eq!(d.dst_mac, match MacAddr(spec.dst_mac) {
            MacAddr::BROADCAST => MacClass::Broadcast,
            mac if mac.is_multicast() => MacClass::Multicast,
            _ => MacClass::Unicast,
        });
        prop_assert_eq!(d.has(Decoded::SRC_MAC_GROUP), MacAddr(spec.src_mac).is_multicast());
        prop_assert_eq!((d.src_ip(), d.dst_ip()), (Some(spec.src), Some(spec.dst)));
        prop_assert_eq!((d.ttl, d.traffic_class), (spec.ttl, spec.traffic_class));
        prop_assert_eq!(usize::from(d.l3_offset), 14 + 4 * spec.tags.len());
        prop_assert_eq!(d.l3_end(), end);
        prop_assert_eq!(d.has(Decoded::DST_MULTICAST), spec.dst.is_multicast());
        prop_assert_eq!(d.has(Decoded::HAS_OPTIONS), is_v4 && !spec.options.is_empty());
        prop_assert!(!d.has(Decoded::FRAGMENT));
        // A martian is decoded to the end as well.
        prop_assert_eq!(d.protocol, spec.protocol());
        prop_assert_eq!(d.has(Decoded::HOP_BY_HOP), !is_v4 && spec.hop_by_hop.is_some());
        prop_assert!(!d.has(Decoded::L4_TRUNCATED));
        let l4 = &frame[usize::from(d.l4_offset)..end];
        let pseudo = match (spec.src, spec.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                checksum::pseudo_header_v4(src, dst, d.protocol, l4.len() as u16)
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                checksum::pseudo_header_v6(src, dst, d.protocol, l4.len() as u32)
            }
            _ => unreachable!(),
        };
        match spec.transport {
            Transport::Udp(src, dst) => {
                prop_assert_eq!(d.ports(), Some((src, dst)));
                let udp = UdpView::new_checked(l4).unwrap();
                prop_assert_eq!((udp.src_port(), udp.dst_port()), (src, dst));
                prop_assert_eq!(udp.payload(), spec.payload.as_slice());
                prop_assert!(udp.is_checksum_correct(pseudo));
                prop_assert!(!udp.is_checksum_correct(pseudo + 1));
            }
            Transport::Tcp(src, dst, sequence, window) => {
                prop_assert_eq!(d.ports(), Some((src, dst)));
                let tcp = TcpView::new_checked(l4).unwrap();
                prop_assert_eq!((tcp.src_port(), tcp.dst_port()), (src, dst));
                prop_assert_eq!((tcp.sequence(), tcp.window()), (sequence, window));
                prop_assert_eq!(tcp.payload(), spec.payload.as_slice());
                prop_assert!(tcp.is_checksum_correct(pseudo));
                prop_assert!(!tcp.is_checksum_correct(pseudo + 1));
            }
            Transport::Echo(id, seq) => {
                prop_assert_eq!(d.ports(), None);
                prop_assert_eq!(d.icmp_type_code(), Some((if is_v4 { 8 } else { 128 }, 0)));
                let (identifier, sequence, payload, correct) = match (spec.src, spec.dst) {
                    (IpAddr::V6(src), IpAddr::V6(dst)) => {
                        let icmp = Icmpv6View::new_checked(l4).unwrap();
                        let correct = icmp.is_checksum_correct(src, dst);
                        (icmp.echo_identifier(), icmp.echo_sequence(), icmp.payload(), correct)
                    }
                    _ => {
                        let icmp = Icmpv4View::new_checked(l4).unwrap();
                        let correct = icmp.is_checksum_correct();
                        (icmp.echo_identifier(), icmp.echo_sequence(), icmp.payload(), correct)
                    }
                };
                prop_assert_eq!((identifier, sequence), (id, seq));
                prop_assert_eq!(payload, spec.payload.as_slice());
                prop_assert!(correct);
            }
        }
        // A first cell that ends behind the upper header tells the same.
        let cell = &frame[..(usize::from(d.l4_offset) + 4).min(frame.len())];
        prop_assert_eq!(decode(cell, frame.len()), d);
    }

    #[test]
    fn what_is_built_here(spec in specs()) {
        let mut frame = vec![0xaa; 600];
        let tpids = [EtherType::QINQ, EtherType::VLAN];
        let tag = |n: usize| {
            spec.tags.get(n).map(|tci| (tpids[n + 2 - spec.tags.len()], *tci))
        };
        let l3 = EthernetHeader {
            dst: MacAddr(spec.dst_mac),
            src: MacAddr(spec.src_mac),
            tags: [tag(0), tag(1)],
            ethertype: if spec.src.is_ipv4() { EtherType::IPV4 } else { EtherType::IPV6 },
        }
        .emit(&mut frame)
        .unwrap();
        let tcp_options = [2, 4, 5, 0xb4, 1];
        let l4_header_len = match spec.transport {
            Transport::Udp(..) => 8,
            Transport::Tcp(..) => 28,
            Transport::Echo(..) => 8,
        };
        let l4_len = l4_header_len + spec.payload.len();
        let (ip_len, pseudo) = match (spec.src, spec.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let header = Ipv4Header {
                    traffic_class: spec.traffic_class,
                    identification: 0xbeef,
                    dont_fragment: spec.dont_fragment,
                    ttl: spec.ttl,
                    options: &spec.options,
                    ..Ipv4Header::new(src, dst, spec.protocol())
                };
                let pseudo = checksum::pseudo_header_v4(src, dst, spec.protocol(), l4_len as u16);
                (header.emit(l4_len, &mut frame[l3..]).unwrap(), pseudo)
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let header = Ipv6Header {
                    traffic_class: spec.traffic_class,
                    flow_label: 0xabcde,
                    hop_limit: spec.ttl,
                    ..Ipv6Header::new(src, dst, spec.protocol())
                };
                let pseudo = checksum::pseudo_header_v6(src, dst, spec.protocol(), l4_len as u32);
                (header.emit(l4_len, &mut frame[l3..]).unwrap(), pseudo)
            }
            _ => unreachable!(),
        };
        frame.truncate(l3 + ip_len + l4_len);
        let l4 = &mut frame[l3 + ip_len..];
        l4[l4_header_len..].copy_from_slice(&spec.payload);
        match (&spec.transport, spec.src, spec.dst) {
            (Transport::Udp(src_port, dst_port), ..) => {
                let header = UdpHeader { src_port: *src_port, dst_port: *dst_port };
                header.emit(Some(pseudo), l4).unwrap();
            }
            (Transport::Tcp(src_port, dst_port, sequence, window), ..) => {
                let header = TcpHeader {
                    src_port: *src_port,
                    dst_port: *dst_port,
                    sequence: *sequence,
                    acknowledgment: 77,
                    flags: packet::tcp::flags::SYN | packet::tcp::flags::ACK,
                    window: *window,
                    urgent_pointer: 0,
                    options: &tcp_options,
                };
                prop_assert_eq!(header.emit(pseudo, l4), Some(28));
            }
            (Transport::Echo(id, seq), IpAddr::V6(src), IpAddr::V6(dst)) => {
                let parameter = u32::from(*id) << 16 | u32::from(*seq);
                let header = packet::icmpv6::Icmpv6Header { kind: 128, code: 0, parameter };
                header.emit(src, dst, l4).unwrap();
            }
            (Transport::Echo(id, seq), ..) => {
                let parameter = u32::from(*id) << 16 | u32::from(*seq);
                packet::icmpv4::Icmpv4Header { kind: 8, code: 0, parameter }.emit(l4).unwrap();
            }
        }

        let sliced = SlicedPacket::from_ethernet(&frame).unwrap();
        let Some(etherparse::LinkSlice::Ethernet2(link)) = &sliced.link else { panic!() };
        prop_assert_eq!((link.destination(), link.source()), (spec.dst_mac, spec.src_mac));
        let ids: Vec<u16> = sliced.vlan_ids().iter().map(|id| id.value()).collect();
        prop_assert_eq!(ids, spec.tags.iter().map(|tci| tci & 0xfff).collect::<Vec<_>>());
        match (sliced.net.unwrap(), spec.src, spec.dst) {
            (NetSlice::Ipv4(ip), IpAddr::V4(src), IpAddr::V4(dst)) => {
                let header = ip.header().to_header();
                prop_assert_eq!(header.calc_header_checksum(), header.header_checksum);
                prop_assert_eq!((header.source, header.destination), (src.octets(), dst.octets()));
                prop_assert_eq!(header.dscp.value() << 2 | header.ecn.value(), spec.traffic_class);
                prop_assert_eq!((header.time_to_live, header.identification), (spec.ttl, 0xbeef));
                prop_assert_eq!(header.dont_fragment, spec.dont_fragment);
                prop_assert!(!header.is_fragmenting_payload());
                prop_assert_eq!(header.options.as_slice(), spec.options.as_slice());
            }
            (NetSlice::Ipv6(ip), IpAddr::V6(src), IpAddr::V6(dst)) => {
                let header = ip.header().to_header();
                prop_assert_eq!((header.source, header.destination), (src.octets(), dst.octets()));
                prop_assert_eq!((header.traffic_class, header.hop_limit), (spec.traffic_class, spec.ttl));
                prop_assert_eq!(header.flow_label.value(), 0xabcde);
            }
            _ => panic!("wrong family"),
        }
        match (sliced.transport.unwrap(), spec.transport) {
            (TransportSlice::Udp(udp), Transport::Udp(src_port, dst_port)) => {
                prop_assert_eq!((udp.source_port(), udp.destination_port()), (src_port, dst_port));
                prop_assert_eq!(udp.payload(), spec.payload.as_slice());
                let header = udp.to_header();
                let expected = match (spec.src, spec.dst) {
                    (IpAddr::V4(src), IpAddr::V4(dst)) => {
                        header.calc_checksum_ipv4_raw(src.octets(), dst.octets(), &spec.payload)
                    }
                    (IpAddr::V6(src), IpAddr::V6(dst)) => {
                        header.calc_checksum_ipv6_raw(src.octets(), dst.octets(), &spec.payload)
                    }
                    _ => unreachable!(),
                };
                prop_assert_eq!(udp.checksum(), expected.unwrap());
            }
            (TransportSlice::Tcp(tcp), Transport::Tcp(src_port, dst_port, sequence, window)) => {
                prop_assert_eq!((tcp.source_port(), tcp.destination_port()), (src_port, dst_port));
                prop_assert_eq!((tcp.sequence_number(), tcp.window_size()), (sequence, window));
                prop_assert_eq!(tcp.acknowledgment_number(), 77);
                prop_assert!(tcp.syn() && tcp.ack() && !tcp.fin() && !tcp.rst());
                prop_assert_eq!(tcp.options(), &[2, 4, 5, 0xb4, 1, 0, 0, 0]);
                prop_assert_eq!(tcp.payload(), spec.payload.as_slice());
                let expected = match (spec.src, spec.dst) {
                    (IpAddr::V4(src), IpAddr::V4(dst)) => {
                        tcp.calc_checksum_ipv4(src.octets(), dst.octets()).unwrap()
                    }
                    (IpAddr::V6(src), IpAddr::V6(dst)) => {
                        tcp.calc_checksum_ipv6(src.octets(), dst.octets()).unwrap()
                    }
                    _ => unreachable!(),
                };
                prop_assert_eq!(tcp.checksum(), expected);
            }
            (TransportSlice::Icmpv4(icmp), Transport::Echo(id, seq)) => {
                let echo = etherparse::IcmpEchoHeader { id, seq };
                prop_assert_eq!(icmp.icmp_type(), etherparse::Icmpv4Type::EchoRequest(echo));
                let expected = icmp.header().icmp_type.calc_checksum(icmp.payload());
                prop_assert_eq!(icmp.checksum(), expected);
            }
            (TransportSlice::Icmpv6(icmp), Transport::Echo(id, seq)) => {
                let echo = etherparse::IcmpEchoHeader { id, seq };
                prop_assert_eq!(icmp.icmp_type(), etherparse::Icmpv6Type::EchoRequest(echo));
                let (IpAddr::V6(src), IpAddr::V6(dst)) = (spec.src, spec.dst) else { panic!() };
                prop_assert!(icmp.is_checksum_valid(src.octets(), dst.octets()));
            }
            _ => panic!("wrong transport"),
        }
        // And the views read back what was written.
        let ethernet = EthernetView::new_checked(&frame).unwrap();
        prop_assert_eq!((ethernet.dst().0, ethernet.src().0), (spec.dst_mac, spec.src_mac));
        let mut payload = ethernet.payload();
        let mut ethertype = ethernet.ethertype();
        for tci in &spec.tags {
            prop_assert!(ethertype.is_vlan());
            let tag = VlanView::new_checked(payload).unwrap();
            prop_assert_eq!(tag.tci(), *tci);
            prop_assert_eq!(packet::vlan::tci(tag.priority(), tag.dei(), tag.id()), *tci);
            (payload, ethertype) = (tag.payload(), tag.ethertype());
        }
        prop_assert_eq!(payload, &frame[l3..]);
    }

    /// Valid frames, a few bytes of which are changed and the end of which is cut off.
    #[test]
    fn damaged_packets(
        spec in specs(),
        pokes in vec((0usize..80, any::<u8>()), 0..4),
        cut in prop::option::of(0usize..120),
    ) {
        let frame = Spec { tags: Vec::new(), ..spec }.build();
        let mut bytes = frame[14..].to_vec();
        for (at, value) in pokes {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        bytes.truncate(cut.unwrap_or(bytes.len()));
        compare_ipv4(&bytes)?;
        compare_ipv6(&bytes)?;
        compare_transport(&bytes[bytes.len().min(20)..])?;
    }

    #[test]
    fn arbitrary_bytes(
        mut bytes in vec(any::<u8>(), 0..120),
        version in prop::sample::select(vec![0x45u8, 0x46, 0x4f, 0x60, 0x65]),
        length in prop::option::of(0u16..140),
        next_header in prop::sample::select(vec![0u8, 6, 17, 43, 44, 50, 51, 58, 59, 60]),
    ) {
        if bytes.len() > 8 {
            bytes[0] = version;
            if let Some(length) = length {
                let at = if version >> 4 == 4 { 2 } else { 4 };
                bytes[at..at + 2].copy_from_slice(&length.to_be_bytes());
            }
            if version >> 4 == 6 {
                bytes[6] = next_header;
            }
        }
        compare_ipv4(&bytes)?;
        compare_ipv6(&bytes)?;
        compare_transport(&bytes)?;
        // Whatever it is: no panic, and nothing beyond the bytes.
        for ethertype in [EtherType::IPV4, EtherType::IPV6, EtherType::ARP, EtherType::VLAN] {
            let mut frame = vec![0; 12];
            frame.extend_from_slice(&ethertype.0.to_be_bytes());
            frame.extend_from_slice(&bytes);
            let d = decode(&frame, frame.len());
            prop_assert!(d.anomaly != Anomaly::None || d.l3_end() <= frame.len());
        }
    }

    #[test]
    fn arp_both_ways(
        operation in 0u16..4,
        macs: [[u8; 6]; 2],
        ips: [[u8; 4]; 2],
        poke in prop::option::of((0usize..8, any::<u8>())),
        cut in 0usize..29,
    ) {
        let theirs = etherparse::ArpPacket::new(
            etherparse::ArpHardwareId::ETHERNET,
            etherparse::EtherType::IPV4,
            etherparse::ArpOperation(operation),
            &macs[0], &ips[0], &macs[1], &ips[1],
        )
        .unwrap();
        let mut bytes = theirs.to_bytes().to_vec();
        let ours = ArpPacket {
            operation: match operation {
                1 => ArpOperation::Request,
                2 => ArpOperation::Reply,
                other => ArpOperation::Other(other),
            },
            sender_mac: MacAddr(macs[0]),
            sender_ip: ips[0].into(),
            target_mac: MacAddr(macs[1]),
            target_ip: ips[1].into(),
        };
        prop_assert_eq!(ArpView::new_checked(&bytes).unwrap().header(), ours);
        let mut out = [0; 28];
        prop_assert_eq!(ours.emit(&mut out), Some(28));
        prop_assert_eq!(out.as_slice(), bytes.as_slice());
        prop_assert_eq!(ours.emit(&mut out[..27]), None);

        if let Some((at, value)) = poke {
            bytes[at] = value;
        }
        bytes.truncate(cut);
        let theirs = etherparse::ArpPacketSlice::from_slice(&bytes)
            .ok()
            .and_then(|slice| slice.to_packet().try_eth_ipv4().ok());
        prop_assert_eq!(ArpView::new_checked(&bytes).is_some(), theirs.is_some());
    }
}

fn compare_ipv4(bytes: &[u8]) -> Result<(), TestCaseError> {
    let ours = Ipv4View::new_checked(bytes);
    // An authentication header is the one thing behind the header that etherparse judges.
    if bytes.len() > 9 && bytes[9] == IpProtocol::AH.0 {
        return Ok(());
    }
    let theirs = Ipv4Slice::from_slice(bytes).ok();
    prop_assert_eq!(ours.is_some(), theirs.is_some());
    if let (Some(ours), Some(theirs)) = (ours, theirs) {
        let header = theirs.header();
        prop_assert_eq!(ours.payload(), theirs.payload().payload);
        prop_assert_eq!(
            (ours.src(), ours.dst()),
            (header.source_addr(), header.destination_addr())
        );
        prop_assert_eq!((ours.ttl(), ours.protocol().0), (header.ttl(), header.protocol().0));
        prop_assert_eq!(ours.options_bytes(), header.options());
        prop_assert_eq!(ours.fragment_offset(), header.fragments_offset().byte_offset());
        prop_assert_eq!(ours.more_fragments(), header.more_fragments());
        prop_assert_eq!(ours.dont_fragment(), header.dont_fragment());
        prop_assert_eq!(ours.identification(), header.identification());
        if bytes[6] & 0x80 == 0 {
            let checksum = header.to_header().calc_header_checksum();
            // A stored ffff stands for 0000 but is never computed.
            prop_assert_eq!(
                ours.is_checksum_correct(),
                ours.checksum() == checksum || (ours.checksum(), checksum) == (0xffff, 0)
            );
        }
    }
    Ok(())
}

fn compare_ipv6(bytes: &[u8]) -> Result<(), TestCaseError> {
    let ours = Ipv6View::new_checked(bytes);
    if ours.is_some_and(|ours| ours.payload_len() == 0) {
        return Ok(()); // a jumbogram to etherparse
    }
    let upper = ours.and_then(|ours| ours.upper_layer());
    let theirs = Ipv6Slice::from_slice(bytes).ok();
    let mut frame = vec![0; 12];
    frame.extend_from_slice(&EtherType::IPV6.0.to_be_bytes());
    frame.extend_from_slice(bytes);
    let d = decode(&frame, frame.len());
    // Decoding and views are two parsers of the same thing.
    let stricter = matches!(
        d.anomaly,
        Anomaly::ExtensionHeaderLoop
            | Anomaly::TooManyExtensionHeaders
            | Anomaly::ZeroLengthFragment
            | Anomaly::OverlongFragment
    );
    if !stricter {
        prop_assert_eq!(d.anomaly.leaves_lengths_right(), upper.is_some());
        if let Some((protocol, rest)) = upper {
            prop_assert_eq!(d.protocol, protocol);
            prop_assert_eq!(&frame[usize::from(d.l4_offset)..d.l3_end()], rest);
        }
    }
    if d.anomaly == Anomaly::ExtensionHeaderLoop
        || d.anomaly == Anomaly::TooManyExtensionHeaders
        || d.fragment_offset != 0
    {
        return Ok(()); // etherparse allows it, or goes on
    }
    let later_fragment = |ours: Ipv6View| {
        ours.extensions().filter_map(|h| h.fragment()).any(|fragment| fragment.offset != 0)
    };
    if ours.is_some_and(|ours| {
        let hop_by_hop = ours.extensions().filter(|h| h.kind == IpProtocol::HOP_BY_HOP).count();
        // Views leave order and repetition to decoding.
        later_fragment(ours)
            || hop_by_hop > 1
            || ours.extensions().count() == 8
            || (hop_by_hop == 1 && ours.next_header() != IpProtocol::HOP_BY_HOP)
    }) {
        return Ok(());
    }
    prop_assert_eq!(upper.is_some(), theirs.is_some());
    if let (Some(ours), Some((protocol, rest)), Some(theirs)) = (ours, upper, theirs) {
        prop_assert_eq!(protocol.0, theirs.payload().ip_number.0);
        prop_assert_eq!(rest, theirs.payload().payload);
        prop_assert_eq!(ours.flow_label(), theirs.header().flow_label().value());
        prop_assert_eq!(ours.src(), theirs.header().source_addr());
    }
    Ok(())
}

fn compare_transport(bytes: &[u8]) -> Result<(), TestCaseError> {
    let ours = TcpView::new_checked(bytes);
    let theirs = TcpSlice::from_slice(bytes).ok();
    prop_assert_eq!(ours.is_some(), theirs.is_some());
    if let (Some(ours), Some(theirs)) = (ours, theirs) {
        prop_assert_eq!(ours.payload(), theirs.payload());
        prop_assert_eq!(ours.options_bytes(), theirs.options());
        prop_assert_eq!(ours.flags() & packet::tcp::flags::NS != 0, theirs.ns());
        prop_assert_eq!(ours.flags() & packet::tcp::flags::CWR != 0, theirs.cwr());
        prop_assert_eq!(ours.flags() & packet::tcp::flags::FIN != 0, theirs.fin());
    }
    let ours = UdpView::new_checked(bytes);
    let theirs = UdpSlice::from_slice(bytes).ok();
    if theirs.as_ref().is_some_and(|udp| udp.length() == 0) {
        prop_assert!(ours.is_none());
        return Ok(());
    }
    prop_assert_eq!(ours.is_some(), theirs.is_some());
    if let (Some(ours), Some(theirs)) = (ours, theirs) {
        prop_assert_eq!(ours.payload(), theirs.payload());
    }
    Ok(())
}
