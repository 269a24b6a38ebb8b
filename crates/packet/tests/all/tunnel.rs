//! Unfinished frames with IPv6 extension headers and in tunnels: what they become is judged by sums that know nothing of
//! the code under test.

use chunk::{HugePages, Offload, Packet, Pool, Region};
use packet::offload::{
    Checksums, Layout, cut, fill_checksum, link_len, open_checksum, open_offload, wire_len,
};
use proptest::prelude::*;

const SOURCE: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const NEXT: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
const LAST: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 7, 9, 0, 0, 0, 0, 0, 0xab, 0xcd, 0, 3];
const TCP: u8 = 6;
const UDP: u8 = 17;

fn pool() -> Pool {
    let (_, depot) = Region::new(400, HugePages::Off).unwrap();
    Pool::new(depot, 64)
}

fn bytes_of(packet: &Packet) -> Vec<u8> {
    packet.segments().collect::<Vec<_>>().concat()
}

/// One's complement sum, word by word; all ones is right over a checksum that is filled in.
fn sum(parts: &[&[u8]]) -> u16 {
    let mut all = parts.concat();
    all.resize(all.len().next_multiple_of(2), 0);
    let sum: u64 = all.chunks(2).map(|w| u64::from(w[0]) << 8 | u64::from(w[1])).sum();
    let sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

fn be16(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]))
}

/// A TCP or UDP packet with the checksum that it has between two addresses.
fn transport(protocol: u8, source: &[u8], destination: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut l4 = match protocol {
        TCP => {
            vec![0x0f, 0xa0, 0, 80, 0xff, 0xff, 0xff, 0, 0, 0, 0, 9, 0x50, 0x99, 1, 0, 0, 0, 0, 0]
        }
        _ => vec![0x0f, 0xa0, 0, 53, 0, 0, 0, 0],
    };
    if protocol == UDP {
        let len = (8 + payload.len()) as u16;
        l4[4..6].copy_from_slice(&len.to_be_bytes());
    }
    l4.extend(payload);
    let len = (l4.len() as u32).to_be_bytes();
    let field = if protocol == TCP { 16 } else { 6 };
    let mut checksum = !sum(&[source, destination, &len, &[0, 0, 0, protocol], &l4]);
    if checksum == 0 && protocol == UDP {
        checksum = 0xffff;
    }
    l4[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
    l4
}

fn ipv4(protocol: u8, payload: &[u8], [a, b]: [u8; 2]) -> Vec<u8> {
    let mut header =
        vec![0x45, 0, 0, 0, 0xff, 0xfe, 0, 0, 60, protocol, 0, 0, 10, 0, 0, a, 10, 0, 0, b];
    header[2..4].copy_from_slice(&((20 + payload.len()) as u16).to_be_bytes());
    let checksum = !sum(&[&header]);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    [header, payload.to_vec()].concat()
}

fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![0x60, 0, 0, 0, 0, 0, next, 60];
    header[4..6].copy_from_slice(&(payload.len() as u16).to_be_bytes());
    [&header, &SOURCE[..], &NEXT, payload].concat()
}

fn ethernet(tags: usize, packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    frame.extend([0x81, 0, 0, 7].repeat(tags));
    frame.extend(if packet[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] });
    frame.extend(packet);
    frame
}

/// Extension headers, as they can come before TCP or UDP.
#[derive(Clone, Debug)]
enum Extension {
    HopByHop,
    Options(usize),
    /// Type, segments left, segments.
    Routing(u8, usize, usize),
}

fn extensions() -> impl Strategy<Value = Vec<Extension>> {
    let routing = prop_oneof![
        (1usize..4).prop_flat_map(|n| (Just(0), 0..=n, Just(n))),
        (0usize..2).prop_map(|left| (2, left, 1)),
        (1usize..4).prop_flat_map(|n| (Just(4), 0..=n, Just(n))),
        (1usize..3).prop_map(|n| (9, 0, n)), // unknown, and at its end
    ];
    let routing = routing.prop_map(|(kind, left, n)| Extension::Routing(kind, left, n));
    let options = || prop::option::of((0usize..3).prop_map(Extension::Options));
    let hop_by_hop = prop::option::of(Just(Extension::HopByHop));
    (hop_by_hop, options(), prop::option::of(routing), options())
        .prop_map(|(a, b, c, d)| [a, b, c, d].into_iter().flatten().collect())
}

impl Extension {
    fn number(&self) -> u8 {
        match self {
            Extension::HopByHop => 0,
            Extension::Options(_) => 60,
            Extension::Routing(..) => 43,
        }
    }

    /// The header, and the last destination if it names one.
    fn header(&self, next: u8) -> (Vec<u8>, Option<[u8; 16]>) {
        match *self {
            Extension::HopByHop => (vec![next, 0, 5, 2, 0, 0, 1, 0], None),
            Extension::Options(more) => {
                let len = 4 + 8 * more;
                let fill = vec![0xc9; len]; // not an option: inside padding
                ([&[next, more as u8, 1, len as u8][..], &fill].concat(), None)
            }
            Extension::Routing(kind, left, n) => {
                let mut header = vec![next, 2 * n as u8, kind, left as u8, 0, 0, 0, 0];
                let mut segments = vec![[0x31; 16]; n];
                match kind {
                    0 => segments[n - 1] = LAST, // the last of a list
                    _ => segments[0] = LAST,     // the first of a list in reverse
                }
                if kind == 4 {
                    header[4] = n as u8 - 1;
                }
                header.extend(segments.concat());
                (header, (left > 0).then_some(LAST))
            }
        }
    }
}

/// A packet with extension headers, and the destination of its pseudo-header.
fn extended(extensions: &[Extension], protocol: u8, payload: &[u8]) -> (Vec<u8>, [u8; 16]) {
    let (mut rest, mut next, mut destination) = (Vec::new(), protocol, NEXT);
    for extension in extensions.iter().rev() {
        let (header, last) = extension.header(next);
        rest = [header, rest].concat();
        next = extension.number();
        destination = last.unwrap_or(destination);
    }
    rest.extend(transport(protocol, &SOURCE, &destination, payload));
    (ipv6(next, &rest), destination)
}

/// A way to carry an inner packet.
#[derive(Clone, Copy, Debug)]
enum Tunnel {
    /// With an outer checksum?
    Vxlan(bool),
    /// With an outer checksum? Words of options.
    Geneve(bool, usize),
    /// With a checksum, with a key, an Ethernet frame inside?
    Gre(bool, bool, bool),
    Ip,
}

fn tunnel() -> impl Strategy<Value = Tunnel> {
    prop_oneof![
        any::<bool>().prop_map(Tunnel::Vxlan),
        (any::<bool>(), 0usize..5).prop_map(|(sum, words)| Tunnel::Geneve(sum, words)),
        any::<[bool; 3]>().prop_map(|[sum, key, ethernet]| Tunnel::Gre(sum, key, ethernet)),
        Just(Tunnel::Ip),
    ]
}

impl Tunnel {
    /// The outer packet.
    fn carry(self, is_v4: bool, inner: &[u8]) -> Vec<u8> {
        let inner_is_v4 = inner[0] >> 4 == 4;
        let in_ethernet = |tags| ethernet(tags, inner);
        let wrap = |protocol, payload: &[u8]| match is_v4 {
            true => ipv4(protocol, payload, [1, 2]),
            false => ipv6(protocol, payload),
        };
        let datagram = |has_sum: bool, payload: &[u8]| {
            let (source, destination): (&[u8], &[u8]) = match is_v4 {
                true => (&[10, 0, 0, 1], &[10, 0, 0, 2]),
                false => (&SOURCE, &NEXT),
            };
            let mut l4 = transport(UDP, source, destination, payload);
            if !has_sum {
                l4[6..8].fill(0);
            }
            wrap(UDP, &l4)
        };
        match self {
            Tunnel::Vxlan(has_sum) => {
                let header = [8, 0, 0, 0, 0, 0, 7, 0];
                datagram(has_sum, &[&header[..], &in_ethernet(0)].concat())
            }
            Tunnel::Geneve(has_sum, words) => {
                let header = [words as u8, 0, 0x65, 0x58, 0, 0, 7, 0];
                let options = vec![0x11; words * 4];
                datagram(has_sum, &[&header[..], &options, &in_ethernet(1)].concat())
            }
            Tunnel::Gre(has_sum, has_key, has_ethernet) => {
                let flags = u8::from(has_sum) << 7 | u8::from(has_key) << 5;
                let kind = match (has_ethernet, inner_is_v4) {
                    (true, _) => [0x65, 0x58],
                    (false, true) => [8, 0],
                    (false, false) => [0x86, 0xdd],
                };
                let mut gre = vec![flags, 0, kind[0], kind[1]];
                gre.extend([0; 4].repeat(usize::from(has_sum)));
                gre.extend([1, 2, 3, 4].repeat(usize::from(has_key)));
                gre.extend(if has_ethernet { in_ethernet(0) } else { inner.to_vec() });
                if has_sum {
                    let checksum = match !sum(&[&gre]) {
                        0 => 0xffff,
                        checksum => checksum,
                    };
                    gre[4..6].copy_from_slice(&checksum.to_be_bytes());
                }
                wrap(47, &gre)
            }
            Tunnel::Ip => wrap(if inner_is_v4 { 4 } else { 41 }, inner),
        }
    }

    /// Bytes of a frame without tags before the inner IP header.
    fn len(self, is_v4: bool) -> usize {
        14 + if is_v4 { 20 } else { 40 }
            + match self {
                Tunnel::Vxlan(_) => 8 + 8 + 14,
                Tunnel::Geneve(_, words) => 8 + 8 + words * 4 + 18,
                Tunnel::Gre(has_sum, has_key, has_ethernet) => {
                    4 + 4 * usize::from(has_sum)
                        + 4 * usize::from(has_key)
                        + 14 * usize::from(has_ethernet)
                }
                Tunnel::Ip => 0,
            }
    }
}

/// The inner packet: its TCP or UDP header at byte 20 or 40.
fn inner_of(is_v4: bool, protocol: u8, payload: &[u8]) -> Vec<u8> {
    match is_v4 {
        true => {
            ipv4(protocol, &transport(protocol, &[10, 0, 0, 8], &[10, 0, 0, 9], payload), [8, 9])
        }
        false => ipv6(protocol, &transport(protocol, &SOURCE, &NEXT, payload)),
    }
}

fn payload() -> impl Strategy<Value = Vec<u8>> {
    (any::<u8>(), prop_oneof![0usize..3000, 20_000usize..60_000])
        .prop_map(|(seed, len)| (0..len).map(|i| ((i * 31) >> 3) as u8 ^ seed).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// RFC 8200 §8.1: the destination is the last one, wherever the packet is on its way.
    #[test]
    fn the_pseudo_header_has_the_last_destination(
        extensions in extensions(),
        is_tcp in any::<bool>(),
        tags in 0usize..3,
        payload in payload(),
        size in 200u16..9000,
    ) {
        let mut pool = pool();
        let protocol = if is_tcp { TCP } else { UDP };
        let (packet, destination) = extended(&extensions, protocol, &payload);
        let whole = ethernet(tags, &packet);
        let headers = whole.len() - payload.len();
        let l4 = headers - if is_tcp { 20 } else { 8 };
        let layout = Layout::of(&whole, whole.len());
        prop_assert_eq!(layout.is_some(), headers <= 256, "{:?}", layout);
        let mut packet = Packet::copy_from(&mut pool, &whole).unwrap();
        prop_assert_eq!(open_checksum(&mut packet), layout.is_some());
        if layout.is_some() {
            prop_assert_eq!(open_offload(&packet), Offload::CHECKSUM);
            prop_assert!(fill_checksum(&mut packet));
            prop_assert!(bytes_of(&packet) == whole);
            packet.offload = Offload::segments(size).unwrap();
            let mut frames = Vec::new();
            prop_assert!(cut(&packet, &mut pool, &mut frames, Checksums::Filled));
            let mut joined = Vec::new();
            for frame in frames.drain(..) {
                let bytes = bytes_of(&frame);
                frame.free(&mut pool);
                prop_assert_eq!(be16(&bytes, 14 + 4 * tags + 4), bytes.len() - 54 - 4 * tags);
                let len = ((bytes.len() - l4) as u32).to_be_bytes();
                let pseudo = [&SOURCE[..], &destination, &len, &[0, 0, 0, protocol]].concat();
                prop_assert_eq!(sum(&[&pseudo, &bytes[l4..]]), 0xffff);
                joined.extend_from_slice(&bytes[headers..]);
            }
            prop_assert!(joined == payload);
        }
        packet.free(&mut pool);
    }

    #[test]
    fn segments_in_a_tunnel_are_packets_in_that_tunnel(
        tunnel in tunnel(),
        families in any::<[bool; 2]>(),
        is_tcp in any::<bool>(),
        tags in 0usize..3,
        payload in payload(),
        size in 200u16..9000,
        is_open in any::<bool>(),
    ) {
        let mut pool = pool();
        let [is_v4, inner_is_v4] = families;
        let protocol = if is_tcp { TCP } else { UDP };
        let of = |payload: &[u8]| {
            ethernet(tags, &tunnel.carry(is_v4, &inner_of(inner_is_v4, protocol, payload)))
        };
        let whole = of(&payload);
        let headers = whole.len() - payload.len();
        let mut packet = Packet::copy_from(&mut pool, &whole).unwrap();
        packet.offload = Offload::segments(size).unwrap();
        prop_assert!(open_checksum(&mut packet));
        prop_assert_eq!(wire_len(&packet), whole.len().min(headers + usize::from(size)));
        let checksums = if is_open { Checksums::Open } else { Checksums::Filled };
        let mut frames = Vec::new();
        prop_assert!(cut(&packet, &mut pool, &mut frames, checksums));
        prop_assert_eq!(frames.len(), payload.len().div_ceil(size.into()).max(1));
        let count = frames.len();
        let inner = tunnel.len(is_v4) + 4 * tags;
        for (i, mut frame) in frames.drain(..).enumerate() {
            prop_assert_eq!(frame.offload.is_none(), !is_open);
            if is_open {
                prop_assert_eq!(open_offload(&frame), frame.offload);
                prop_assert!(fill_checksum(&mut frame));
            }
            let bytes = bytes_of(&frame);
            frame.free(&mut pool);
            // The frame that a sender would have made of this part, which counts and flags then.
            let part = &payload[i * usize::from(size)..payload.len().min((i + 1) * usize::from(size))];
            let mut expected = inner_of(inner_is_v4, protocol, part);
            let l4 = if inner_is_v4 { 20 } else { 40 };
            let identify = |header: &mut [u8]| {
                let id = 0xfffe_u16.wrapping_add(i as u16);
                header[4..6].copy_from_slice(&id.to_be_bytes());
                header[10..12].fill(0);
                let checksum = !sum(&[&header[..20]]);
                header[10..12].copy_from_slice(&checksum.to_be_bytes());
            };
            if inner_is_v4 {
                identify(&mut expected);
            }
            if is_tcp {
                let sequence = 0xffff_ff00_u32.wrapping_add((i * usize::from(size)) as u32);
                expected[l4 + 4..l4 + 8].copy_from_slice(&sequence.to_be_bytes());
                // FIN and PSH at the last, CWR at the first.
                expected[l4 + 13] = 0x10 | if i + 1 == count { 0x09 } else { 0 } | if i == 0 { 0x80 } else { 0 };
                expected[l4 + 16..l4 + 18].fill(0);
                let addresses = if inner_is_v4 { 12..20 } else { 8..40 };
                let len = ((expected.len() - l4) as u32).to_be_bytes();
                let pseudo = [&expected[addresses], &len, &[0, 0, 0, protocol]].concat();
                let checksum = !sum(&[&pseudo, &expected[l4..]]);
                expected[l4 + 16..l4 + 18].copy_from_slice(&checksum.to_be_bytes());
            }
            let mut expected = ethernet(tags, &tunnel.carry(is_v4, &expected));
            if is_v4 {
                identify(&mut expected[14 + 4 * tags..]);
            }
            // Two forms of one checksum: all ones and all zeros.
            let same = bytes == expected || {
                let at = inner + l4 + if is_tcp { 16 } else { 6 };
                bytes[at..at + 2] == [0xff; 2] && expected[at..at + 2] == [0; 2]
            };
            prop_assert!(same, "{:x?}\n{:x?}", &bytes[..headers], &expected[..headers]);
        }
        packet.free(&mut pool);
    }

    /// Nobody needs to know what is before the sum.
    #[test]
    fn a_checksum_with_its_place_is_filled_in(
        tags in 0usize..4,
        before in 0usize..100,
        behind in payload(),
        field in 0usize..20,
    ) {
        let mut pool = pool();
        let field = field * 2;
        let mut frame = ethernet(tags, &[vec![0x45; before * 2], vec![7; field + 2], behind].concat());
        let link = 14 + 4 * tags;
        prop_assert_eq!(link_len(&frame), link);
        let from = link + before * 2;
        let mut packet = Packet::copy_from(&mut pool, &frame).unwrap();
        packet.offload = Offload::checksum_at(before as u16 * 2, field as u16).unwrap();
        let mut cuts = Vec::new();
        let fits = from + field + 2 <= 256;
        prop_assert_eq!(cut(&packet, &mut pool, &mut cuts, Checksums::Filled), fits);
        prop_assert_eq!(fill_checksum(&mut packet), fits);
        if fits {
            let checksum = match !sum(&[&frame[from..]]) { 0 => 0xffff, sum => sum };
            frame[from + field..from + field + 2].copy_from_slice(&checksum.to_be_bytes());
            prop_assert!(cuts.len() == 1 && bytes_of(&cuts[0]) == frame);
        }
        prop_assert!(bytes_of(&packet) == frame);
        cuts.drain(..).for_each(|packet| packet.free(&mut pool));
        packet.free(&mut pool);
    }

    /// Few bytes are wrong in a frame that is otherwise a tunnel.
    #[test]
    fn no_tunnel_makes_it_panic(
        tunnel in tunnel(),
        families in any::<[bool; 2]>(),
        is_tcp in any::<bool>(),
        len in 0usize..300,
        wrong in prop::collection::vec((0usize..200, any::<u8>()), 0..4),
        end in 0usize..400,
        size in 2u16..300,
    ) {
        let mut pool = pool();
        let [is_v4, inner_is_v4] = families;
        let protocol = if is_tcp { TCP } else { UDP };
        let inner = inner_of(inner_is_v4, protocol, &vec![1; len]);
        let mut frame = ethernet(0, &tunnel.carry(is_v4, &inner));
        for (at, value) in wrong {
            frame.get_mut(at).into_iter().for_each(|byte| *byte = value);
        }
        frame.truncate(end);
        let mut packet = Packet::copy_from(&mut pool, &frame).unwrap();
        for offload in [Offload::segments(size).unwrap(), Offload::checksum_at(size.min(255), 6).unwrap()] {
            packet.offload = offload;
            let mut frames = Vec::new();
            cut(&packet, &mut pool, &mut frames, Checksums::Open);
            frames.drain(..).for_each(|frame| frame.free(&mut pool));
            prop_assert!(wire_len(&packet) <= frame.len());
            open_checksum(&mut packet);
            open_offload(&packet);
            fill_checksum(&mut packet);
            prop_assert_eq!(packet.frame_len(), frame.len());
        }
        packet.free(&mut pool);
    }
}

/// What cannot be cut, because all of the packet is signed or part of another, or because nothing tells the addresses.
#[test]
fn headers_that_forbid_it_have_no_layout() {
    let payload = [1; 40];
    let l4 = transport(UDP, &SOURCE, &NEXT, &payload);
    let behind = |kind: u8, header: &[u8]| {
        let frame = ethernet(0, &ipv6(kind, &[header, &l4].concat()));
        Layout::of(&frame, frame.len()).is_some()
    };
    assert!(behind(60, &[UDP, 0, 1, 4, 0, 0, 0, 0]), "options");
    assert!(!behind(44, &[UDP, 0, 0, 0, 0, 0, 0, 9]), "a fragment header of a whole packet");
    assert!(!behind(44, &[UDP, 0, 0, 1, 0, 0, 0, 9]), "a fragment");
    assert!(!behind(51, &[UDP, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1]), "an authentication header");
    let home = [&[UDP, 2, 1, 2, 0, 0, 0xc9, 16][..], &LAST].concat();
    assert!(!behind(60, &home), "another source address");
    let route =
        |kind, left, len, last| [&[UDP, len, kind, left, last, 0, 0, 0][..], &LAST].concat();
    for (kind, left, len, last, expected) in [
        (0, 1, 2, 0, true),
        (0, 2, 2, 0, false), // more left than there are
        (2, 1, 2, 0, true),
        (2, 2, 2, 0, false),
        (3, 1, 2, 0, false), // compressed (RFC 6554)
        (3, 0, 2, 0, true),
        (4, 1, 2, 0, true),
        (4, 2, 2, 0, false),
        (4, 1, 2, 1, false), // fewer segments than it says
        (77, 1, 2, 0, false),
    ] {
        let header = route(kind, left, len, last);
        assert_eq!(behind(43, &header), expected, "type {kind}, {left} left, last {last}");
    }
}

#[test]
fn only_whole_tunnels_are_looked_into() {
    let inner = inner_of(true, TCP, &[7; 100]);
    let is_known = |frame: &[u8]| Layout::in_tunnel(frame, frame.len()).is_some();
    let vxlan = ethernet(0, &Tunnel::Vxlan(true).carry(true, &inner));
    assert!(is_known(&vxlan));
    let changed = |at: usize, value: u8| {
        let mut frame = vxlan.clone();
        frame[at] = value;
        frame
    };
    assert!(!is_known(&changed(42, 0x0c)), "another form of VXLAN");
    assert!(!is_known(&changed(39, vxlan[39] + 1)), "the length of UDP");
    assert!(!is_known(&changed(67, vxlan[67].wrapping_sub(1))), "the inner length");
    assert!(!is_known(&changed(20, 0x20)), "a fragment");
    let gre = ethernet(0, &Tunnel::Gre(false, false, false).carry(true, &inner));
    assert!(is_known(&gre));
    let mut numbered = gre.clone();
    numbered[34] = 0x10;
    assert!(!is_known(&numbered), "sequence numbers");
    let mut nested = Tunnel::Ip.carry(true, &inner);
    nested = ethernet(0, &Tunnel::Vxlan(true).carry(true, &nested));
    assert!(!is_known(&nested), "a tunnel in a tunnel");
}
