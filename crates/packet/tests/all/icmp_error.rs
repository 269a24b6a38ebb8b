//! Errors as etherparse reads them, and the cases in which none may be sent.

use etherparse::{
    Icmpv4Slice, Icmpv4Type, Icmpv6Slice, Icmpv6Type, Ipv4Slice, Ipv6Slice, icmpv4, icmpv6,
};
use packet::checksum::Checksums;
use packet::icmp_error::*;
use packet::icmpv4::Icmpv4Header;
use packet::icmpv6::Icmpv6Header;
use packet::ipv4::Ipv4Header;
use packet::ipv6::Ipv6Header;
use packet::{IpProtocol, ipv4};
use std::net::{Ipv4Addr, Ipv6Addr};

const A4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const B4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const R4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);
const A6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const B6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);
const R6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0xfe);
const VERIFY: Checksums = Checksums::Verify;

fn v4(header: Ipv4Header, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; header.len()];
    header.emit(payload.len(), &mut packet).unwrap();
    packet.extend_from_slice(payload);
    packet
}

fn v6(header: Ipv6Header, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; 40];
    header.emit(payload.len(), &mut packet).unwrap();
    packet.extend_from_slice(payload);
    packet
}

fn udp4(payload_len: usize) -> Vec<u8> {
    v4(Ipv4Header::new(A4, B4, IpProtocol::UDP), &vec![9; payload_len])
}

fn udp6(payload_len: usize) -> Vec<u8> {
    v6(Ipv6Header::new(A6, B6, IpProtocol::UDP), &vec![9; payload_len])
}

#[test]
fn icmpv4_errors_as_the_oracle_reads_them() {
    use icmpv4::DestUnreachableHeader as Unreachable;
    let cases = [
        (Icmpv4Error::Unreachable(0), Icmpv4Type::DestinationUnreachable(Unreachable::Network)),
        (Icmpv4Error::Unreachable(1), Icmpv4Type::DestinationUnreachable(Unreachable::Host)),
        (
            Icmpv4Error::FragmentationNeeded { mtu: 1400 },
            Icmpv4Type::DestinationUnreachable(Unreachable::FragmentationNeeded {
                next_hop_mtu: 1400,
            }),
        ),
        (
            Icmpv4Error::TtlExceeded,
            Icmpv4Type::TimeExceeded(icmpv4::TimeExceededCode::TtlExceededInTransit),
        ),
        (
            Icmpv4Error::ReassemblyTimeExceeded,
            Icmpv4Type::TimeExceeded(icmpv4::TimeExceededCode::FragmentReassemblyTimeExceeded),
        ),
        (
            Icmpv4Error::ParameterProblem { pointer: 20 },
            Icmpv4Type::ParameterProblem(icmpv4::ParameterProblemHeader::PointerIndicatesError(20)),
        ),
    ];
    for (error, expected) in cases {
        for (payload_len, quoted_len) in [(0, 20), (8, 28), (400, 420), (528, 548), (1480, 548)] {
            let mut original = udp4(payload_len);
            original.extend_from_slice(&[0xee; 18]); // padding is not quoted
            let mut out = [0xaa; 2000];
            let len = build_icmpv4_error(&original, error, R4, &mut out).unwrap();
            assert_eq!(len, 28 + quoted_len);
            let ip = Ipv4Slice::from_slice(&out[..len]).unwrap();
            let header = ip.header().to_header();
            assert_eq!(header.calc_header_checksum(), header.header_checksum);
            assert_eq!((ip.header().source_addr(), ip.header().destination_addr()), (R4, A4));
            assert_eq!(header.dscp.value() >> 3, 6, "precedence");
            let icmp = Icmpv4Slice::from_slice(ip.payload().payload).unwrap();
            assert_eq!(icmp.icmp_type(), expected);
            assert_eq!(icmp.header().icmp_type.calc_checksum(icmp.payload()), icmp.checksum());
            assert_eq!(icmp.payload(), &original[..quoted_len]);
        }
    }
    // A short buffer quotes less, but never less than header and 8 bytes.
    let original = udp4(100);
    assert_eq!(build_icmpv4_error(&original, Icmpv4Error::TtlExceeded, R4, &mut [0; 56]), Some(56));
    assert_eq!(build_icmpv4_error(&original, Icmpv4Error::TtlExceeded, R4, &mut [0; 55]), None);
    assert_eq!(build_icmpv4_error(&[0x45; 19], Icmpv4Error::TtlExceeded, R4, &mut [0; 99]), None);
}

#[test]
fn icmpv6_errors_as_the_oracle_reads_them() {
    let cases = [
        (
            Icmpv6Error::Unreachable(0),
            Icmpv6Type::DestinationUnreachable(icmpv6::DestUnreachableCode::NoRoute),
        ),
        (
            Icmpv6Error::Unreachable(3),
            Icmpv6Type::DestinationUnreachable(icmpv6::DestUnreachableCode::Address),
        ),
        (Icmpv6Error::PacketTooBig { mtu: 1400 }, Icmpv6Type::PacketTooBig { mtu: 1400 }),
        (
            Icmpv6Error::HopLimitExceeded,
            Icmpv6Type::TimeExceeded(icmpv6::TimeExceededCode::HopLimitExceeded),
        ),
        (
            Icmpv6Error::ParameterProblem { code: 2, pointer: 42 },
            Icmpv6Type::ParameterProblem(icmpv6::ParameterProblemHeader {
                code: icmpv6::ParameterProblemCode::UnrecognizedIpv6Option,
                pointer: 42,
            }),
        ),
    ];
    for (error, expected) in cases {
        for (payload_len, quoted_len) in [(0, 40), (8, 48), (1192, 1232), (1460, 1232)] {
            let mut original = udp6(payload_len);
            original.extend_from_slice(&[0xee; 6]);
            let mut out = [0xaa; 2000];
            let len = build_icmpv6_error(&original, error, R6, &mut out).unwrap();
            assert_eq!(len, 48 + quoted_len);
            let ip = Ipv6Slice::from_slice(&out[..len]).unwrap();
            assert_eq!((ip.header().source_addr(), ip.header().destination_addr()), (R6, A6));
            let icmp = Icmpv6Slice::from_slice(ip.payload().payload).unwrap();
            assert_eq!(icmp.icmp_type(), expected);
            assert!(icmp.is_checksum_valid(R6.octets(), A6.octets()));
            assert_eq!(icmp.payload(), &original[..quoted_len]);
        }
    }
    assert_eq!(
        build_icmpv6_error(&[0x60; 39], Icmpv6Error::HopLimitExceeded, R6, &mut [0; 99]),
        None
    );
}

/// RFC 1812 §4.3.2.7.
#[test]
fn no_icmpv4_error_about() {
    let plain = Ipv4Header::new(A4, B4, IpProtocol::UDP);
    let icmp = |kind: u8| {
        let mut message = [0; 8];
        Icmpv4Header { kind, code: 0, parameter: 0 }.emit(&mut message).unwrap();
        v4(Ipv4Header { protocol: IpProtocol::ICMP, ..plain }, &message)
    };
    let mut corrupt = udp4(8);
    corrupt[10] ^= 1;
    let cases: &[(&str, Vec<u8>, bool)] = &[
        ("a datagram", udp4(8), true),
        ("an echo request", icmp(8), true),
        ("an echo reply", icmp(0), true),
        ("unreachable", icmp(3), false),
        ("source quench", icmp(4), false),
        ("redirect", icmp(5), false),
        ("time exceeded", icmp(11), false),
        ("parameter problem", icmp(12), false),
        ("ICMP without a type", v4(Ipv4Header { protocol: IpProtocol::ICMP, ..plain }, &[]), false),
        ("the first fragment", v4(Ipv4Header { more_fragments: true, ..plain }, &[0; 8]), true),
        ("a later fragment", v4(Ipv4Header { fragment_offset: 8, ..plain }, &[0; 8]), false),
        ("a group", v4(Ipv4Header { dst: Ipv4Addr::new(224, 0, 0, 5), ..plain }, &[0; 8]), false),
        ("broadcast", v4(Ipv4Header { dst: Ipv4Addr::BROADCAST, ..plain }, &[0; 8]), false),
        ("source 0.0.0.0", v4(Ipv4Header { src: Ipv4Addr::UNSPECIFIED, ..plain }, &[0; 8]), false),
        ("source loopback", v4(Ipv4Header { src: Ipv4Addr::LOCALHOST, ..plain }, &[0; 8]), false),
        (
            "source group",
            v4(Ipv4Header { src: Ipv4Addr::new(239, 1, 1, 1), ..plain }, &[0; 8]),
            false,
        ),
        (
            "source class E",
            v4(Ipv4Header { src: Ipv4Addr::new(240, 0, 0, 1), ..plain }, &[0; 8]),
            false,
        ),
        ("a wrong checksum", corrupt, false),
        ("a stub", vec![0x45; 19], false),
        ("nothing", vec![], false),
    ];
    for (name, original, allowed) in cases {
        assert_eq!(may_send_icmp_error(original), *allowed, "{name}");
        assert!(!may_send_icmpv4_error(original, true, VERIFY), "{name}, to a group MAC");
    }
}

/// RFC 4443 §2.4 (e).
#[test]
fn no_icmpv6_error_about() {
    let plain = Ipv6Header::new(A6, B6, IpProtocol::UDP);
    let icmp = |kind: u8| {
        let mut message = [0; 8];
        Icmpv6Header { kind, code: 0, parameter: 0 }.emit(A6, B6, &mut message).unwrap();
        message
    };
    let with = |header: Ipv6Header| v6(header, &[0; 8]);
    let to_icmp = Ipv6Header { next_header: IpProtocol::ICMPV6, ..plain };
    let fragment = |next: u8, offset: u8, rest: &[u8]| {
        let mut payload = vec![next, 0, 0, offset, 0, 0, 0, 7];
        payload.extend_from_slice(rest);
        v6(Ipv6Header { next_header: IpProtocol::IPV6_FRAGMENT, ..plain }, &payload)
    };
    let group = Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 0, 1);
    // Hop limit exceeded; packet too big.
    let cases: &[(&str, Vec<u8>, bool, bool)] = &[
        ("a datagram", udp6(8), true, true),
        ("an echo request", v6(to_icmp, &icmp(128)), true, true),
        ("unreachable", v6(to_icmp, &icmp(1)), false, false),
        ("an unknown error", v6(to_icmp, &icmp(127)), false, false),
        ("a redirect", v6(to_icmp, &icmp(137)), false, false),
        ("ICMP without a type", v6(to_icmp, &[]), false, false),
        ("an error behind a fragment header", fragment(58, 1, &icmp(1)), false, false),
        ("the first fragment of an echo", fragment(58, 1, &icmp(128)), true, true),
        ("a later fragment of ICMP", fragment(58, 8, &[128; 8]), false, false),
        ("a later fragment", fragment(17, 8, &[0; 8]), true, true),
        ("a group", with(Ipv6Header { dst: group, ..plain }), false, true),
        ("source ::", with(Ipv6Header { src: Ipv6Addr::UNSPECIFIED, ..plain }), false, false),
        ("source ::1", with(Ipv6Header { src: Ipv6Addr::LOCALHOST, ..plain }), false, false),
        ("source group", with(Ipv6Header { src: group, ..plain }), false, false),
        (
            "a broken chain",
            v6(Ipv6Header { next_header: IpProtocol(0), ..plain }, &[0, 9]),
            false,
            false,
        ),
        ("a stub", vec![0x60; 39], false, false),
    ];
    let too_big = Icmpv6Error::PacketTooBig { mtu: 1280 };
    for (name, original, exceeded, too_big_allowed) in cases {
        assert_eq!(may_send_icmp_error(original), *exceeded, "{name}");
        assert_eq!(may_send_icmpv6_error(original, too_big, false), *too_big_allowed, "{name}");
        assert!(!may_send_icmpv6_error(original, Icmpv6Error::HopLimitExceeded, true), "{name}");
        assert_eq!(may_send_icmpv6_error(original, too_big, true), *too_big_allowed, "{name}");
    }
}

#[test]
fn echo_replies() {
    let data: Vec<u8> = (0..57).collect();
    let builder =
        etherparse::PacketBuilder::ipv4(A4.octets(), B4.octets(), 3).icmpv4_echo_request(7, 9);
    let mut request = Vec::new();
    builder.write(&mut request, &data).unwrap();
    let mut out = [0; 200];
    let len = build_icmpv4_echo_reply(&request, VERIFY, &mut out).unwrap();
    let ip = Ipv4Slice::from_slice(&out[..len]).unwrap();
    let header = ip.header().to_header();
    assert_eq!(header.calc_header_checksum(), header.header_checksum);
    assert_eq!((header.source, header.destination), (B4.octets(), A4.octets()));
    assert_eq!(header.time_to_live, 64);
    let icmp = Icmpv4Slice::from_slice(ip.payload().payload).unwrap();
    let echo = etherparse::IcmpEchoHeader { id: 7, seq: 9 };
    assert_eq!(icmp.icmp_type(), Icmpv4Type::EchoReply(echo));
    assert_eq!(icmp.header().icmp_type.calc_checksum(icmp.payload()), icmp.checksum());
    assert_eq!(icmp.payload(), data);

    assert_eq!(build_icmpv4_echo_reply(&out[..len], VERIFY, &mut [0; 200]), None, "a reply");
    assert_eq!(build_icmpv4_echo_reply(&request, VERIFY, &mut [0; 84]), None, "no room");
    let mut fragment = request.clone();
    fragment[6] = 0x20;
    ipv4::fill_checksum(&mut fragment);
    assert_eq!(build_icmpv4_echo_reply(&fragment, VERIFY, &mut out), None, "a fragment");
    request[40] ^= 1;
    assert_eq!(build_icmpv4_echo_reply(&request, VERIFY, &mut out), None, "a wrong checksum");
    let ignored = build_icmpv4_echo_reply(&request, Checksums::Ignore, &mut out).unwrap();
    let icmp = Icmpv4Slice::from_slice(&out[20..ignored]).unwrap();
    assert_eq!(icmp.header().icmp_type.calc_checksum(icmp.payload()), icmp.checksum(), "ours");

    let mut request = Vec::new();
    let builder =
        etherparse::PacketBuilder::ipv6(A6.octets(), B6.octets(), 3).icmpv6_echo_request(7, 9);
    builder.write(&mut request, &data).unwrap();
    let len = build_icmpv6_echo_reply(&request, R6, VERIFY, &mut out).unwrap();
    let ip = Ipv6Slice::from_slice(&out[..len]).unwrap();
    assert_eq!((ip.header().source_addr(), ip.header().destination_addr()), (B6, A6));
    let icmp = Icmpv6Slice::from_slice(ip.payload().payload).unwrap();
    assert_eq!(icmp.icmp_type(), Icmpv6Type::EchoReply(echo));
    assert!(icmp.is_checksum_valid(B6.octets(), A6.octets()));
    assert_eq!(icmp.payload(), data);
    request[60] ^= 1;
    assert_eq!(build_icmpv6_echo_reply(&request, R6, VERIFY, &mut out), None, "a wrong checksum");
    let ignored = build_icmpv6_echo_reply(&request, R6, Checksums::Ignore, &mut out).unwrap();
    let icmp = Icmpv6Slice::from_slice(&out[40..ignored]).unwrap();
    assert!(icmp.is_checksum_valid(B6.octets(), A6.octets()), "ours");
}
