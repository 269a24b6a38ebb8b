//! Bad input as data: each fault has its drop reason, and the packet behind it is not lost.

use apps::router::reasons;
use apps::router::{PipelineOptions, decode};
use chunk::DropReason;
use packet::Anomaly;

use crate::bench::{Bench, Input};
use crate::scenario::{fib, frame, two_ports, unlimited};

/// A change of a good frame's bytes.
type Fault = fn(&mut Vec<u8>);

fn good4() -> Vec<u8> {
    frame().ipv4("10.0.1.2", "8.8.8.8").udp(1, 2, &[0; 40]).bytes()
}

fn good6() -> Vec<u8> {
    frame().ipv6("fd00:1::2", "2600::1").udp(1, 2, &[0; 40]).bytes()
}

/// Writes bytes into an IPv4 header and corrects its checksum.
fn set4(frame: &mut [u8], at: usize, bytes: &[u8]) {
    frame[14 + at..14 + at + bytes.len()].copy_from_slice(bytes);
    frame[24..26].fill(0);
    let len = usize::from(frame[14] & 15) * 4;
    let mut sum: u32 = frame[14..14 + len]
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]))
        .sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    frame[24..26].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

/// Puts extension headers, each 8 bytes long, between an IPv6 header and its payload.
fn extend6(frame: &mut Vec<u8>, kinds: &[u8]) {
    let last = frame[20];
    let mut bytes = Vec::new();
    for (i, _) in kinds.iter().enumerate() {
        bytes.extend([kinds.get(i + 1).copied().unwrap_or(last), 0, 1, 4, 0, 0, 0, 0]);
    }
    frame[20] = kinds[0];
    let len = u16::from_be_bytes([frame[18], frame[19]]) + bytes.len() as u16;
    frame[18..20].copy_from_slice(&len.to_be_bytes());
    frame.splice(54..54, bytes);
}

const CASES4: &[(&str, DropReason, Fault)] = &[
    ("a frame without a whole Ethernet header", packet::reasons::TRUNCATED, |f| f.truncate(13)),
    ("half an IPv4 header", packet::reasons::TRUNCATED, |f| f.truncate(30)),
    ("half a VLAN tag", packet::reasons::VLAN_TRUNCATED, |f| {
        f[12..14].copy_from_slice(&[0x81, 0]);
        f.truncate(16);
    }),
    ("three VLAN tags", packet::reasons::VLAN_TOO_MANY, |f| {
        for _ in 0..3 {
            f.splice(12..12, [0x81, 0, 0, 9]);
        }
    }),
    ("an unknown VLAN", packet::reasons::VLAN_UNKNOWN, |f| {
        f.splice(12..12, [0x81, 0, 0, 9]);
    }),
    ("a group as source", packet::reasons::SOURCE_MAC_GROUP, |f| f[6] |= 1),
    ("another station's MAC", packet::reasons::NOT_FOR_US, |f| f[5] ^= 0x40),
    ("an unknown EtherType", packet::reasons::ETHERTYPE_UNKNOWN, |f| f[12] = 0x77),
    ("an 802.3 length", packet::reasons::ETHERTYPE_UNKNOWN, |f| {
        f[12..14].copy_from_slice(&[0, 40])
    }),
    ("an ARP packet of another kind", packet::reasons::ARP_MALFORMED, |f| {
        f[12..20].copy_from_slice(&[8, 6, 0, 6, 8, 0, 6, 4]);
    }),
    ("half an ARP packet", packet::reasons::TRUNCATED, |f| {
        f[12..20].copy_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4]);
        f.truncate(41);
    }),
    ("version 5", packet::reasons::IP_BAD_VERSION, |f| f[14] = 0x55),
    ("version 6 under IPv4's EtherType", packet::reasons::IP_BAD_VERSION, |f| f[14] = 0x65),
    ("a header of 16 bytes", packet::reasons::IP_BAD_HEADER_LENGTH, |f| f[14] = 0x44),
    ("a header beyond the frame", packet::reasons::TRUNCATED, |f| {
        f[14] = 0x4f;
        f.truncate(60);
    }),
    ("a total length below the header's", packet::reasons::IP_BAD_TOTAL_LENGTH, |f| {
        set4(f, 2, &[0, 19])
    }),
    ("a total length beyond the frame", packet::reasons::TRUNCATED, |f| set4(f, 2, &[9, 0])),
    ("a wrong checksum", packet::reasons::IP_BAD_CHECKSUM, |f| f[24] ^= 1),
    ("loopback as source", packet::reasons::IP_MARTIAN_SOURCE, |f| set4(f, 12, &[127, 0, 0, 1])),
    ("this network as source", packet::reasons::IP_MARTIAN_SOURCE, |f| set4(f, 12, &[0, 0, 0, 9])),
    ("a group as IP source", packet::reasons::IP_MARTIAN_SOURCE, |f| set4(f, 12, &[224, 0, 0, 9])),
    ("class E as source", packet::reasons::IP_MARTIAN_SOURCE, |f| set4(f, 12, &[240, 0, 0, 9])),
    ("loopback as destination", packet::reasons::IP_MARTIAN_DESTINATION, |f| {
        set4(f, 16, &[127, 9, 9, 9])
    }),
    ("class E as destination", packet::reasons::IP_MARTIAN_DESTINATION, |f| {
        set4(f, 16, &[255, 0, 0, 1])
    }),
    ("a fragment of nothing", packet::reasons::IP_ZERO_LENGTH_FRAGMENT, |f| {
        set4(f, 2, &[0, 20]);
        set4(f, 6, &[0x20, 9]);
    }),
    ("the ping of death", packet::reasons::IP_OVERLONG_FRAGMENT, |f| set4(f, 6, &[0x1f, 0xff])),
    ("a multicast group", reasons::MULTICAST_NOT_FORWARDED, |f| set4(f, 16, &[239, 1, 1, 1])),
    ("OSPF's group, and no host", chunk::reasons::HOST_ABSENT, |f| set4(f, 16, &[224, 0, 0, 5])),
    ("the limited broadcast, and no host", chunk::reasons::HOST_ABSENT, |f| {
        f[..6].fill(0xff);
        set4(f, 16, &[255; 4]);
    }),
    ("unicast in a broadcast frame", reasons::BROADCAST_NOT_FORWARDED, |f| f[..6].fill(0xff)),
    ("the broadcast of another subnet", reasons::BROADCAST_NOT_FORWARDED, |f| {
        set4(f, 16, &[10, 0, 2, 255]);
    }),
    ("a link-local destination", reasons::LINK_LOCAL_NOT_FORWARDED, |f| {
        set4(f, 16, &[169, 254, 3, 4]);
    }),
    ("our own address as source", reasons::OWN_SOURCE, |f| set4(f, 12, &[10, 0, 1, 1])),
    ("that of another port, to ourselves", reasons::OWN_SOURCE, |f| {
        set4(f, 12, &[10, 0, 2, 1]);
        set4(f, 16, &[10, 0, 1, 1]);
    }),
    ("TTL 1", reasons::TTL_EXPIRED, |f| set4(f, 8, &[1])),
    ("TTL 0", reasons::TTL_EXPIRED, |f| set4(f, 8, &[0])),
    ("a loose source route", reasons::SOURCE_ROUTE, |f| {
        f.splice(34..34, [131, 7, 4, 10, 0, 0, 1, 0]);
        set4(f, 0, &[0x47]);
    }),
    ("an option beyond the header", packet::reasons::IP_BAD_OPTIONS, |f| {
        f.splice(34..34, [7, 5, 4, 10]);
        set4(f, 0, &[0x46]);
    }),
];

const CASES6: &[(&str, DropReason, Fault)] = &[
    ("half an IPv6 header", packet::reasons::TRUNCATED, |f| f.truncate(50)),
    ("version 4 under IPv6's EtherType", packet::reasons::IP_BAD_VERSION, |f| f[14] = 0x45),
    ("a payload beyond the frame", packet::reasons::TRUNCATED, |f| f[18] = 9),
    ("loopback as source", packet::reasons::IP_MARTIAN_SOURCE, |f| {
        f[22..37].fill(0);
        f[37] = 1;
    }),
    ("no source", packet::reasons::IP_MARTIAN_SOURCE, |f| f[22..38].fill(0)),
    ("a group as source", packet::reasons::IP_MARTIAN_SOURCE, |f| f[22] = 0xff),
    ("IPv4 in IPv6's form as source", packet::reasons::IP_MARTIAN_SOURCE, |f| {
        f[22..38].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 1, 2]);
    }),
    ("IPv4 in IPv6's form as destination", packet::reasons::IP_MARTIAN_DESTINATION, |f| {
        f[38..54].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 1, 2]);
    }),
    ("no destination", packet::reasons::IP_MARTIAN_DESTINATION, |f| f[38..54].fill(0)),
    ("a group of this node alone", packet::reasons::IP_MARTIAN_DESTINATION, |f| {
        f[38..40].copy_from_slice(&[0xff, 1]);
    }),
    ("a group of the site", reasons::MULTICAST_NOT_FORWARDED, |f| {
        f[38..40].copy_from_slice(&[0xff, 5]);
    }),
    ("OSPF's group, and no host", chunk::reasons::HOST_ABSENT, |f| {
        f[38..54].copy_from_slice(&[0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5]);
    }),
    ("an unknown link-local destination", reasons::LINK_LOCAL_NOT_FORWARDED, |f| {
        f[38..40].copy_from_slice(&[0xfe, 0x80]);
        f[53] = 9;
    }),
    ("a link-local source", reasons::LINK_LOCAL_NOT_FORWARDED, |f| {
        f[22..24].copy_from_slice(&[0xfe, 0x80]);
    }),
    ("our own address as source", reasons::OWN_SOURCE, |f| {
        f[22..38].copy_from_slice(&[0xfd, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    }),
    ("hop limit 1", reasons::TTL_EXPIRED, |f| f[21] = 1),
    ("hop-by-hop options behind others", packet::reasons::IP6_EXTENSION_LOOP, |f| {
        extend6(f, &[60, 0])
    }),
    ("a loop of routing headers", packet::reasons::IP6_EXTENSION_LOOP, |f| extend6(f, &[43, 43])),
    ("an extension header beyond the packet", packet::reasons::IP6_EXTENSION_HEADERS, |f| {
        extend6(f, &[60]);
        f[55] = 200;
    }),
    ("a fragment of nothing", packet::reasons::IP_ZERO_LENGTH_FRAGMENT, |f| {
        extend6(f, &[44]);
        f[18..20].copy_from_slice(&[0, 8]);
        f[54..62].copy_from_slice(&[17, 0, 0, 1, 0, 0, 0, 9]);
    }),
    ("the ping of death", packet::reasons::IP_OVERLONG_FRAGMENT, |f| {
        extend6(f, &[44]);
        f[54..62].copy_from_slice(&[17, 0, 0xff, 0xf8, 0, 0, 0, 9]);
    }),
    ("a neighbour solicitation with a wrong checksum", packet::reasons::ND_MALFORMED, |f| {
        let mut to = [0u8; 16];
        to[..2].copy_from_slice(&[0xff, 2]);
        to[15] = 1;
        f[38..54].copy_from_slice(&to);
        f[20] = 58;
        f[21] = 255;
        f[54] = 135;
        f[55] = 0;
    }),
];

/// Good, bad, good, in one chunk: the bad one is dropped for its reason, the others go on.
#[test]
fn every_fault_has_its_reason_and_nothing_else_is_lost() {
    let fib = fib(&two_ports(unlimited()));
    for (good, cases) in [(good4(), CASES4), (good6(), CASES6)] {
        for (name, reason, fault) in cases {
            let mut bad = good.clone();
            fault(&mut bad);
            let mut bench = Bench::new(&PipelineOptions::default());
            let inputs = [&good, &bad, &good].map(|frame| Input::new(0, frame.clone()));
            let seen = bench.run(&fib, &inputs);
            assert_eq!(seen[1].drop_reason(), Some(*reason), "{name}");
            assert_eq!(seen[1].frame, bad, "{name}: a dropped frame is shown as it came");
            for neighbour in [&seen[0], &seen[2]] {
                assert_eq!(neighbour.forwarded_to(), Some(1), "{name}");
                assert!(neighbour.emitted.is_empty(), "{name}");
            }
            bench.finish();
        }
    }
}

#[test]
fn every_anomaly_has_a_reason_of_its_own() {
    let reasons: std::collections::BTreeSet<DropReason> =
        Anomaly::ALL.into_iter().map(decode::reason).collect();
    assert_eq!(reasons.len(), Anomaly::ALL.len());
    let known: std::collections::BTreeSet<DropReason> =
        CASES4.iter().chain(CASES6).map(|case| case.1).collect();
    for anomaly in Anomaly::ALL {
        let seldom = matches!(anomaly, Anomaly::None | Anomaly::TooManyExtensionHeaders);
        assert!(seldom || known.contains(&decode::reason(anomaly)), "no case for {anomaly:?}");
    }
}

/// A port without an interface, or one that is down, drops.
#[test]
fn ports_that_are_not_there() {
    let mut reference = two_ports(unlimited());
    if let Some(interface) = &mut reference.interfaces[0] {
        interface.up = false;
    }
    let fib = fib(&reference);
    let mut bench = Bench::new(&PipelineOptions::default());
    let seen = bench.run(&fib, &[Input::new(0, good4()), Input::new(9, good4())]);
    assert_eq!(seen[0].drop_reason(), Some(packet::reasons::INTERFACE_DOWN));
    assert_eq!(seen[1].drop_reason(), Some(packet::reasons::INTERFACE_DOWN));
    bench.finish();
}
