//! Truncated and lying headers as data: each has one anomaly, the first that the RFC's order of
//! checks comes upon.

use packet::{Anomaly, Decoded, EtherType, IpProtocol, Kind, decode, ipv4};
use std::net::{Ipv4Addr, Ipv6Addr};

const MACS: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];

fn frame(ethertype: EtherType, l3: &[u8]) -> Vec<u8> {
    let mut frame = MACS.to_vec();
    frame.extend_from_slice(&ethertype.0.to_be_bytes());
    frame.extend_from_slice(l3);
    frame
}

/// A good UDP datagram with `edit` applied and the checksum right again.
fn v4(edit: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 36, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 192, 0, 2, 1];
    packet.extend_from_slice(&[0, 7, 0, 9, 0, 16, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
    edit(&mut packet);
    ipv4::fill_checksum(&mut packet);
    frame(EtherType::IPV4, &packet)
}

fn v6(next_header: u8, payload: &[u8]) -> Vec<u8> {
    v6_edited(next_header, payload, |_| {})
}

fn v6_edited(next_header: u8, payload: &[u8], edit: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, payload.len() as u8, next_header, 64];
    packet.extend_from_slice(&Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).octets());
    packet.extend_from_slice(&Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2).octets());
    packet.extend_from_slice(payload);
    edit(&mut packet);
    frame(EtherType::IPV6, &packet)
}

/// Extension headers of 8 bytes each, in this order, then 8 bytes of UDP.
fn chain(kinds: &[u8]) -> Vec<u8> {
    let mut payload = Vec::new();
    for next in kinds.iter().skip(1).chain(&[17]) {
        payload.extend_from_slice(&[*next, 0, 0, 0, 0, 0, 0, 0]);
    }
    payload.extend_from_slice(&[0, 7, 0, 9, 0, 8, 0, 0]);
    v6(kinds.first().copied().unwrap_or(17), &payload)
}

fn fragment6(offset: u16, more: bool, payload_len: usize) -> Vec<u8> {
    let [a, b] = (offset | u16::from(more)).to_be_bytes();
    let mut payload = vec![17, 0, a, b, 0, 0, 0, 1];
    payload.resize(8 + payload_len, 1);
    v6(44, &payload)
}

fn set_src(packet: &mut [u8], ip: [u8; 4]) {
    packet[12..16].copy_from_slice(&ip);
}

fn set_dst(packet: &mut [u8], ip: [u8; 4]) {
    packet[16..20].copy_from_slice(&ip);
}

fn tagged(tpids: &[u16], rest: &[u8]) -> Vec<u8> {
    let mut frame = MACS.to_vec();
    for tpid in tpids {
        frame.extend_from_slice(&tpid.to_be_bytes());
        frame.extend_from_slice(&[0, 5]);
    }
    frame.extend_from_slice(rest);
    frame
}

/// The same frame with one tag.
fn with_tag(frame: &[u8]) -> Vec<u8> {
    tagged(&[0x8100], &frame[12..])
}

#[test]
fn table() {
    let good = v4(|_| {});
    let wrong_checksum = {
        let mut frame = good.clone();
        frame[24] ^= 1;
        frame
    };
    let src6 = |ip: [u8; 16]| v6_edited(17, &[0; 8], move |p| p[8..24].copy_from_slice(&ip));
    let dst6 = |ip: [u8; 16]| v6_edited(17, &[0; 8], move |p| p[24..40].copy_from_slice(&ip));
    let arp = [0, 1, 8, 0, 6, 4, 0, 1];
    let arp_of = |start: &[u8], len: usize| {
        let mut packet = start.to_vec();
        packet.resize(len, 0);
        frame(EtherType::ARP, &packet)
    };
    let first = |ip: [u8; 2]| {
        let mut address = [0; 16];
        address[..2].copy_from_slice(&ip);
        address[15] = 1;
        address
    };
    use Anomaly::*;
    let cases: Vec<(&str, Vec<u8>, Anomaly)> = vec![
        ("nothing", vec![], Truncated),
        ("13 bytes", good[..13].to_vec(), Truncated),
        ("Ethernet alone", good[..14].to_vec(), Truncated),
        ("an unknown EtherType", frame(EtherType(0x1234), &[0; 46]), NonIp),
        ("an 802.3 length", frame(EtherType(46), &[0; 46]), NonIp),
        ("a tag cut off", tagged(&[0x8100], &[]), VlanTruncated),
        ("a tag cut in two", MACS.iter().copied().chain([0x81, 0, 0]).collect(), VlanTruncated),
        ("a second tag cut off", tagged(&[0x88a8, 0x8100], &[]), VlanTruncated),
        ("three tags", tagged(&[0x88a8, 0x8100, 0x8100], &[8, 0, 0x45]), TooManyVlanTags),
        ("tagged IPv4", with_tag(&good), None),
        ("tagged IPv4, total length one too long", with_tag(&v4(|p| p[3] = 37)), Truncated),
        (
            "tagged IPv6, payload one too long",
            with_tag(&v6_edited(17, &[0; 8], |p| p[5] = 9)),
            Truncated,
        ),
        ("tagged IPv4 cut off", tagged(&[0x8100], &[8, 0]), Truncated),
        // IPv4: RFC 1812 §5.2.2.
        ("IPv4", good.clone(), None),
        ("IPv4 with padding", [good.clone(), vec![0; 10]].concat(), None),
        ("19 bytes of header", good[..33].to_vec(), Truncated),
        ("version 5", v4(|p| p[0] = 0x55), BadVersion),
        ("version 6 behind 0800", v4(|p| p[0] = 0x65), BadVersion),
        ("IHL 4", v4(|p| p[0] = 0x44), BadHeaderLength),
        ("IHL 0", v4(|p| p[0] = 0x40), BadHeaderLength),
        ("IHL beyond the frame", v4(|p| p[0] = 0x4f), Truncated),
        ("total length 0", v4(|p| p[2..4].copy_from_slice(&[0, 0])), BadTotalLength),
        ("total length 19", v4(|p| p[3] = 19), BadTotalLength),
        ("total length inside the options", v4(|p| (p[0], p[3]) = (0x46, 20)), BadTotalLength),
        ("total length one too long", v4(|p| p[3] = 37), Truncated),
        ("total length 65535", v4(|p| p[2..4].copy_from_slice(&[255, 255])), Truncated),
        ("a wrong checksum", wrong_checksum, BadChecksum),
        (
            "no payload at all",
            v4(|p| {
                p.truncate(20);
                p[3] = 20
            }),
            None,
        ),
        ("TTL 0", v4(|p| p[8] = 0), None),
        ("TTL 1", v4(|p| p[8] = 1), None),
        // RFC 1812 §5.3.7.
        ("source 0.0.0.0", v4(|p| set_src(p, [0, 0, 0, 0])), MartianSource),
        ("source 0.1.2.3", v4(|p| set_src(p, [0, 1, 2, 3])), MartianSource),
        ("source 127.0.0.1", v4(|p| set_src(p, [127, 0, 0, 1])), MartianSource),
        ("source 224.0.0.1", v4(|p| set_src(p, [224, 0, 0, 1])), MartianSource),
        ("source 240.0.0.1", v4(|p| set_src(p, [240, 0, 0, 1])), MartianSource),
        ("source broadcast", v4(|p| set_src(p, [255; 4])), MartianSource),
        ("source 1.0.0.0", v4(|p| set_src(p, [1, 0, 0, 0])), None),
        ("source 223.255.255.255", v4(|p| set_src(p, [223, 255, 255, 255])), None),
        (
            "source 126 and 128",
            v4(|p| {
                set_src(p, [126, 1, 1, 1]);
                set_dst(p, [128, 0, 0, 1])
            }),
            None,
        ),
        (
            "DHCP discover",
            v4(|p| {
                set_src(p, [0; 4]);
                set_dst(p, [255; 4])
            }),
            None,
        ),
        (
            "IGMP of a proxy",
            v4(|p| {
                set_src(p, [0; 4]);
                set_dst(p, [224, 0, 0, 1])
            }),
            None,
        ),
        (
            "0.0.0.1 to broadcast",
            v4(|p| {
                set_src(p, [0, 0, 0, 1]);
                set_dst(p, [255; 4])
            }),
            MartianSource,
        ),
        ("destination 0.0.0.0", v4(|p| set_dst(p, [0; 4])), MartianDestination),
        ("destination 127.1.1.1", v4(|p| set_dst(p, [127, 1, 1, 1])), MartianDestination),
        ("destination 240.0.0.1", v4(|p| set_dst(p, [240, 0, 0, 1])), MartianDestination),
        ("destination broadcast", v4(|p| set_dst(p, [255; 4])), None),
        ("destination 224.0.0.5", v4(|p| set_dst(p, [224, 0, 0, 5])), None),
        // Fragments.
        (
            "an empty first fragment",
            v4(|p| {
                p[6] = 0x20;
                p[3] = 20
            }),
            ZeroLengthFragment,
        ),
        (
            "an empty last fragment",
            v4(|p| {
                p[7] = 1;
                p[3] = 20
            }),
            ZeroLengthFragment,
        ),
        (
            "a fragment up to 65535",
            v4(|p| {
                p[6..8].copy_from_slice(&[0x1f, 0xfe]);
                p[3] = 35
            }),
            None,
        ),
        (
            "a fragment beyond 65535",
            v4(|p| p[6..8].copy_from_slice(&[0x1f, 0xfe])),
            OverlongFragment,
        ),
        ("DF with an offset", v4(|p| p[6..8].copy_from_slice(&[0x40, 1])), None),
        // IPv6.
        ("IPv6", v6(17, &[0; 8]), None),
        ("39 bytes of header", v6(17, &[])[..53].to_vec(), Truncated),
        ("no next header", v6(59, &[]), None),
        ("version 4 behind 86dd", v6_edited(17, &[0; 8], |p| p[0] = 0x45), BadVersion),
        ("payload length one too long", v6_edited(17, &[0; 8], |p| p[5] = 9), Truncated),
        ("source ff02::1", src6(first([0xff, 2])), MartianSource),
        ("source ::1", src6(Ipv6Addr::LOCALHOST.octets()), MartianSource),
        ("source ::", src6([0; 16]), MartianSource),
        ("source ::2", src6(Ipv6Addr::from(2).octets()), None),
        ("source fe80::1", src6(first([0xfe, 0x80])), None),
        ("destination ::1", dst6(Ipv6Addr::LOCALHOST.octets()), MartianDestination),
        ("destination ::", dst6([0; 16]), MartianDestination),
        ("destination ff01::1", dst6(first([0xff, 1])), MartianDestination),
        ("destination ff10::1", dst6(first([0xff, 0x10])), MartianDestination),
        ("destination ff02::1", dst6(first([0xff, 2])), None),
        (
            "duplicate address detection",
            v6_edited(58, &[135, 0, 0, 0, 0, 0, 0, 0], |p| {
                p[8..24].fill(0);
                p[24..26].copy_from_slice(&[0xff, 2]);
            }),
            None,
        ),
        // Extension headers.
        ("all of them in order", chain(&[0, 60, 43, 44, 60]), None),
        ("hop-by-hop not first", chain(&[60, 0]), ExtensionHeaderLoop),
        ("hop-by-hop twice", chain(&[0, 0]), ExtensionHeaderLoop),
        ("routing twice", chain(&[43, 43]), ExtensionHeaderLoop),
        ("fragment twice", chain(&[44, 44]), ExtensionHeaderLoop),
        ("destination options three times", chain(&[60, 60, 60]), ExtensionHeaderLoop),
        ("hop-by-hop for ever", chain(&[0; 25]), ExtensionHeaderLoop),
        ("destination options for ever", chain(&[60; 25]), ExtensionHeaderLoop),
        ("an extension header cut off", v6(0, &[17, 0, 0, 0]), BadExtensionHeader),
        ("an extension header that is not there", v6(60, &[]), BadExtensionHeader),
        (
            "an extension header over the end",
            v6(0, &[17, 1, 0, 0, 0, 0, 0, 0, 1]),
            BadExtensionHeader,
        ),
        (
            "an extension header of 2,048 bytes",
            v6(0, &[17, 255, 0, 0, 0, 0, 0, 0]),
            BadExtensionHeader,
        ),
        ("AH over the end", v6(51, &[17, 4, 0, 0, 0, 0, 0, 0]), BadExtensionHeader),
        ("AH of 8 bytes", v6(51, &[59, 0, 0, 0, 0, 0, 0, 0]), BadExtensionHeader),
        ("AH of 12 bytes", v6(51, &[59, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), None),
        ("a first fragment", fragment6(0, true, 8), None),
        ("a later fragment", fragment6(8, false, 8), None),
        ("an atomic fragment without payload", fragment6(0, false, 0), None),
        ("an empty first fragment", fragment6(0, true, 0), ZeroLengthFragment),
        ("an empty last fragment", fragment6(1480, false, 0), ZeroLengthFragment),
        ("a fragment up to 65535", fragment6(65_528, false, 7), None),
        ("a fragment beyond 65535", fragment6(65_528, false, 8), OverlongFragment),
        // ARP.
        ("ARP", arp_of(&arp, 28), None),
        ("ARP with padding", arp_of(&arp, 46), None),
        ("ARP cut off", arp_of(&arp, 27), Truncated),
        ("ARP cut off early", arp_of(&arp, 7), Truncated),
        ("ARP of other hardware", arp_of(&[0, 6, 8, 0, 6, 4, 0, 1], 28), BadArp),
        ("ARP of IPv6", arp_of(&[0, 1, 0x86, 0xdd, 6, 16, 0, 1], 46), BadArp),
        ("ARP with lengths that lie", arp_of(&[0, 1, 8, 0, 6, 16, 0, 1], 28), BadArp),
    ];
    for (name, frame, expected) in &cases {
        let d = decode(frame, frame.len());
        assert_eq!(d.anomaly, *expected, "{name}: {d:?}");
        // Only bytes that were there are described.
        if expected.leaves_lengths_right() && d.is_ip() {
            assert!(d.l3_end() <= frame.len(), "{name}");
        }
        // However it is cut, it stays within bounds.
        for len in 0..frame.len() {
            decode(&frame[..len], len);
            decode(&frame[..len], frame.len());
        }
    }
    // Each reason but the one below has a case.
    for anomaly in Anomaly::ALL {
        let found = cases.iter().any(|(_, _, expected)| *expected == anomaly);
        assert!(found || anomaly == TooManyExtensionHeaders, "{anomaly:?}");
    }
}

/// Limits on how often a header may occur leave seven at most, so the bound of eight is reached by
/// chains that leave the cell.
#[test]
fn a_chain_that_leaves_the_cell() {
    let mut payload = vec![60, 0, 0, 0, 0, 0, 0, 0];
    payload.extend_from_slice(&[17, 2, 0, 0, 0, 0, 0, 0]);
    payload.resize(8 + 24 + 8, 0);
    let frame = v6(0, &payload);
    assert_eq!(decode(&frame, frame.len()).anomaly, Anomaly::None);
    let cell = &frame[..14 + 40 + 8];
    assert_eq!(decode(cell, frame.len()).anomaly, Anomaly::TooManyExtensionHeaders);
}

/// A router forwards what it need not understand.
#[test]
fn upper_layers_are_information_only() {
    let cases: &[(&str, u8, usize, bool, bool)] = &[
        // protocol, payload bytes, has ports, truncated
        ("TCP without a header", 6, 0, false, true),
        ("TCP of 3 bytes", 6, 3, false, true),
        ("TCP of 4 bytes", 6, 4, true, true),
        ("TCP of 19 bytes", 6, 19, true, true),
        ("TCP of 20 bytes", 6, 20, true, false),
        ("UDP of 7 bytes", 17, 7, true, true),
        ("UDP of 8 bytes", 17, 8, true, false),
        ("ICMP of 4 bytes", 1, 4, false, true),
        ("ESP of 8 bytes", 50, 8, false, false),
        ("an unknown protocol", 200, 0, false, false),
    ];
    for (name, protocol, payload_len, has_ports, truncated) in cases {
        let frame = v4(|p| {
            p[9] = *protocol;
            p.resize(20 + payload_len, 0);
            p[3] = p.len() as u8;
        });
        // Padding must not be taken for the upper layer.
        let padded = [frame.clone(), vec![0xff; 40]].concat();
        for frame in [frame, padded] {
            let d = decode(&frame, frame.len());
            assert_eq!(d.anomaly, Anomaly::None, "{name}");
            assert_eq!(d.protocol, IpProtocol(*protocol), "{name}");
            assert_eq!(d.ports(), has_ports.then_some((7, 9)), "{name}");
            assert_eq!(d.has(Decoded::L4_TRUNCATED), *truncated, "{name}");
        }
    }
}

#[test]
fn fragments_tell_their_place() {
    let first = decode(&v4(|p| p[6] = 0x20), 50);
    assert!(first.has(Decoded::FRAGMENT | Decoded::MORE_FRAGMENTS));
    assert_eq!((first.fragment_offset, first.ports()), (0, Some((7, 9))));
    let last = decode(&v4(|p| p[7] = 185), 50);
    assert!(last.has(Decoded::FRAGMENT) && !last.has(Decoded::MORE_FRAGMENTS));
    assert_eq!((last.fragment_offset, last.ports()), (1480, None));
    let frame = fragment6(1448, false, 8);
    let last = decode(&frame, frame.len());
    assert!(last.has(Decoded::FRAGMENT | Decoded::FRAGMENT_HEADER));
    assert_eq!((last.fragment_offset, last.ports()), (1448, None));
    assert_eq!(last.protocol, IpProtocol::UDP);
    let frame = fragment6(0, false, 8);
    let atomic = decode(&frame, frame.len());
    assert!(atomic.has(Decoded::FRAGMENT_HEADER) && !atomic.has(Decoded::FRAGMENT));
    assert_eq!(atomic.ports(), Some((0x0101, 0x0101)));
}

/// A dropped packet can be shown.
#[test]
fn fields_are_filled_beside_an_anomaly() {
    let mut frame = v4(|_| {});
    frame[24] ^= 0xff;
    let d = decode(&frame, frame.len());
    assert_eq!((d.anomaly, d.kind), (Anomaly::BadChecksum, Kind::Ipv4));
    assert_eq!(d.src_ip(), Some(Ipv4Addr::new(10, 0, 0, 1).into()));
    assert_eq!(d.dst_ip(), Some(Ipv4Addr::new(192, 0, 2, 1).into()));
    assert_eq!((d.ttl, d.protocol, d.ports()), (64, IpProtocol::UDP, Some((7, 9))));
}
