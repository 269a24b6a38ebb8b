//! The flow hash: symmetric, spread, and the same for all fragments of a datagram; the host hash: the
//! same for all packets between two hosts.

use packet::flow::{
    FlowKey, flow_hash, flow_hash_of_frame, host_hash, host_hash_of_frame, quoted_hash,
    tracked_hash_of_frame,
};
use packet::fragment::Fragmenter;
use packet::{Anomaly, IpProtocol, decode};
use proptest::prelude::*;
use std::collections::HashSet;

fn key(src: u32, dst: u32, src_port: u16, dst_port: u16) -> FlowKey {
    FlowKey {
        src: [0, src.into()],
        dst: [0, dst.into()],
        src_port,
        dst_port,
        protocol: IpProtocol::UDP,
        version: 4,
    }
}

fn frame(src: [u8; 4], dst: [u8; 4], ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    etherparse::PacketBuilder::ethernet2([2; 6], [4; 6])
        .ipv4(src, dst, 64)
        .udp(ports.0, ports.1)
        .write(&mut frame, payload)
        .unwrap();
    frame
}

proptest! {
    #[test]
    fn both_directions(src: [u64; 2], dst: [u64; 2], src_port: u16, dst_port: u16, protocol: u8) {
        let key = FlowKey { src, dst, src_port, dst_port, protocol: IpProtocol(protocol), version: 6 };
        prop_assert_eq!(key.hash32(), key.reversed().hash32());
        prop_assert_eq!(key.canonical(), key.reversed().canonical());
        prop_assert_eq!(key.reversed().reversed(), key);
    }

    /// The undecoded frame's hash is the decoded one's, whatever the bytes, if nothing is wrong.
    #[test]
    fn of_frames(
        src: u128, dst: u128, ports: (u16, u16), kind in 0u8..6, protocol: u8,
        poke in prop::option::of((12usize..60, any::<u8>())), cut in 0usize..40,
    ) {
        let link = etherparse::PacketBuilder::ethernet2([2; 6], [4; 6]);
        let (src4, dst4) = ((src as u32 | 1).to_be_bytes(), (dst as u32 | 1).to_be_bytes());
        let id = etherparse::VlanId::try_new(5).unwrap();
        let step = match kind % 3 {
            0 => link.ipv4(src4, dst4, 64),
            1 => link.ipv6(src.to_be_bytes(), dst.to_be_bytes(), 64),
            _ => link.double_vlan(id, id).ipv4(src4, dst4, 64),
        };
        let mut frame = Vec::new();
        if kind < 3 {
            step.udp(ports.0, ports.1).write(&mut frame, &[1; 20]).unwrap();
        } else {
            // etherparse panics on the numbers of IPv6 extension headers: those are put in behind it.
            step.write(&mut frame, 253.into(), &[1; 20]).unwrap();
            if kind == 4 {
                frame[14 + 6] = protocol;
            } else {
                let l3 = if kind == 3 { 14 } else { 22 };
                frame[l3 + 9] = protocol;
                packet::ipv4::fill_checksum(&mut frame[l3..]);
            }
        }
        if let Some((at, value)) = poke
            && let Some(byte) = frame.get_mut(at)
        {
            *byte = value;
        }
        frame.truncate(frame.len() - cut.min(frame.len()));
        let d = decode(&frame, 90);
        if d.anomaly == Anomaly::None {
            prop_assert_eq!(flow_hash_of_frame(&frame), flow_hash(&d));
            prop_assert_eq!(host_hash_of_frame(&frame), host_hash(&d));
        }
    }

    /// Every packet between two hosts has their hash: both directions, whole and fragment, any
    /// protocol, ports, options, extension headers and up to two tags. Packets of another pair have
    /// another hash.
    #[test]
    fn two_hosts_meet(
        a: u128, b: u128, c: u128, is_v4: bool,
        kinds in prop::collection::vec(between(), 2..8),
    ) {
        let mask = if is_v4 { u128::from(u32::MAX) } else { u128::MAX };
        let (a, b, c) = (a & mask, b & mask, c & mask);
        let hashes: HashSet<u32> = kinds
            .iter()
            .map(|kind| {
                let (src, dst) = if kind.back { (b, a) } else { (a, b) };
                host_hash_of_frame(&kind.frame(is_v4, src, dst))
            })
            .collect();
        prop_assert_eq!(hashes.len(), 1);
        if c != a && c != b {
            // Equal by chance once in 4 billion pairs.
            prop_assert!(!hashes.contains(&host_hash_of_frame(&kinds[0].frame(is_v4, a, c))));
        }
    }
}

/// What may differ between packets of two hosts.
#[derive(Debug, Clone)]
struct Between {
    back: bool,
    /// VLANs of at most two tags.
    tags: Vec<u16>,
    protocol: u8,
    /// Offset field and flags of a fragment.
    fragment: Option<u16>,
    /// Words of IPv4 options; extension headers of IPv6.
    more: usize,
    payload: Vec<u8>,
}

fn between() -> impl Strategy<Value = Between> {
    let tags = prop::collection::vec(any::<u16>(), 0..3);
    let payload = prop::collection::vec(any::<u8>(), 0..40);
    (any::<bool>(), tags, any::<u8>(), any::<Option<u16>>(), 0usize..4, payload).prop_map(
        |(back, tags, protocol, fragment, more, payload)| Between {
            back,
            tags,
            protocol,
            fragment,
            more,
            payload,
        },
    )
}

impl Between {
    /// The frame, written byte by byte from RFC 791, RFC 8200 and IEEE 802.1Q.
    fn frame(&self, is_v4: bool, src: u128, dst: u128) -> Vec<u8> {
        let mut frame = vec![2; 12];
        for (vlan, tpid) in self.tags.iter().zip([[0x88, 0xa8], [0x81, 0x00]]) {
            frame.extend(tpid.into_iter().chain(vlan.to_be_bytes()));
        }
        if is_v4 {
            let header_len = 20 + 4 * self.more;
            let total = (header_len + self.payload.len()) as u16;
            frame.extend([8, 0, 0x40 | (header_len / 4) as u8, 0]);
            frame.extend(total.to_be_bytes());
            frame.extend([0, 1]);
            frame.extend(self.fragment.unwrap_or(0).to_be_bytes());
            frame.extend([64, self.protocol, 0, 0]);
            frame.extend((src as u32).to_be_bytes());
            frame.extend((dst as u32).to_be_bytes());
            frame.extend(vec![1; 4 * self.more]);
        } else {
            let mut extensions = Vec::new();
            let mut next = self.protocol;
            if let Some(fragment) = self.fragment {
                extensions.extend([next, 0]);
                extensions.extend(fragment.to_be_bytes());
                extensions.extend([0, 0, 0, 1]);
                next = 44;
            }
            for _ in 0..self.more {
                // Destination options: one PadN.
                let header = [next, 0, 1, 4, 0, 0, 0, 0];
                extensions.splice(..0, header);
                next = 60;
            }
            let len = (extensions.len() + self.payload.len()) as u16;
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(len.to_be_bytes());
            frame.extend([next, 64]);
            frame.extend(src.to_be_bytes());
            frame.extend(dst.to_be_bytes());
            frame.extend(extensions);
        }
        frame.extend(&self.payload);
        frame
    }
}

#[test]
fn fragments_stay_together() {
    let mut whole = frame([10, 0, 0, 1], [10, 0, 0, 2], (1000, 2000), &[0; 3000]);
    whole[20] = 0; // DF, as etherparse sets it
    packet::ipv4::fill_checksum(&mut whole[14..]);
    let pieces: Vec<Vec<u8>> = Fragmenter::new(&whole[14..], 576)
        .unwrap()
        .map(|piece| [&whole[..14], piece.header(), &whole[14..][piece.payload.clone()]].concat())
        .collect();
    assert_eq!(pieces.len(), 6);
    let hashes: HashSet<u32> = pieces.iter().map(|piece| flow_hash_of_frame(piece)).collect();
    assert_eq!(hashes.len(), 1);
    // By addresses they meet the whole packets of their flow, too.
    let by_hosts = host_hash_of_frame(&whole);
    assert!(pieces.iter().all(|piece| host_hash_of_frame(piece) == by_hosts));

    // IPv6: only the first fragment can tell that destination options hide UDP.
    let v6 = |next: u8, offset: u8, more: u8, rest: [u8; 16]| {
        let mut frame = vec![2; 12];
        frame.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0, 0, 24, 44, 64]);
        frame.extend_from_slice(&[0x20; 16]);
        frame.extend_from_slice(&[0x21; 16]);
        frame.extend_from_slice(&[next, 0, 0, offset | more, 0, 0, 0, 1]);
        frame.extend_from_slice(&rest);
        frame
    };
    let first = v6(60, 0, 1, [17, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 9, 0, 16, 0, 0]);
    let last = v6(60, 16, 0, [3; 16]);
    let decoded = decode(&first, first.len());
    assert_eq!((decoded.anomaly, decoded.ports()), (Anomaly::None, Some((7, 9))));
    assert_eq!(flow_hash_of_frame(&first), flow_hash_of_frame(&last));
    assert_ne!(flow_hash_of_frame(&first), 0);
}

/// Structured sets of flows, as generators and measurement use them: few collisions, and buckets
/// within 4 standard deviations, by the low bits as well as by the high ones.
#[test]
fn spread() {
    let sets: [(&str, Vec<FlowKey>); 5] = [
        ("consecutive ports", (0..40_000).map(|n| key(0x0a00_0001, 0x0a00_0002, n, 53)).collect()),
        (
            "consecutive sources",
            (0..40_000).map(|n| key(0x0a00_0000 + n, 0xc000_0201, 5, 53)).collect(),
        ),
        (
            "all pairs of 280 hosts",
            (0..280)
                .flat_map(|a| (0..a).map(move |b| key(0x0a00_0000 + a, 0x0a00_0000 + b, 9, 9)))
                .collect(),
        ),
        (
            "ports of two hosts, crosswise",
            (0..200).flat_map(|a| (0..200).map(move |b| key(1, 2, 1000 + a, 1000 + b))).collect(),
        ),
        (
            "IPv6 by their last bits",
            (0..40_000)
                .map(|n| FlowKey {
                    src: [0x2001_0db8_0000_0000, n],
                    dst: [0x2001_0db8_0000_0001, n],
                    version: 6,
                    ..key(0, 0, 1, 2)
                })
                .collect(),
        ),
    ];
    for (name, keys) in sets {
        let distinct: HashSet<u32> = keys.iter().map(FlowKey::hash32).collect();
        let collisions = keys.len() - distinct.len();
        assert!(collisions < 5, "{name}: {collisions} of {}", keys.len());
        for shift in [0, 8, 16, 24] {
            let mut buckets = [0f64; 64];
            for key in &keys {
                buckets[(key.hash32() >> shift) as usize % 64] += 1.0;
            }
            let mean = keys.len() as f64 / 64.0;
            let chi_squared: f64 = buckets.iter().map(|n| (n - mean).powi(2) / mean).sum();
            // 63 degrees of freedom: mean 63, standard deviation 11.2.
            assert!(chi_squared < 63.0 + 4.0 * 11.2, "{name} >> {shift}: {chi_squared:.0}");
        }
    }
}

#[test]
fn what_is_no_ip_has_no_flow() {
    let arp = [&[0u8; 12][..], &[8, 6], &[0; 28]].concat();
    assert_eq!(flow_hash_of_frame(&arp), 0);
    assert_eq!(FlowKey::of(&decode(&arp, arp.len())), None);
    assert_eq!(flow_hash_of_frame(&[]), 0);
    assert_eq!(host_hash_of_frame(&arp), 0);
    assert_eq!(host_hash(&decode(&arp, arp.len())), 0);
    assert_eq!(host_hash_of_frame(&[]), 0);
}

/// Pairs of hosts, as many as there are flows in the sets above.
#[test]
fn hosts_are_spread() {
    let frame_of = |a: u32, b: u32| frame(a.to_be_bytes(), b.to_be_bytes(), (1, 2), &[]);
    let net = 0x0a00_0000;
    let sets: [(&str, Vec<Vec<u8>>); 2] = [
        ("clients of one server", (1..20_000).map(|n| frame_of(net + n, 0xc000_0201)).collect()),
        (
            "all pairs of 200 hosts",
            (0..200).flat_map(|a| (0..a).map(move |b| frame_of(net + a, net + b))).collect(),
        ),
    ];
    for (name, frames) in sets {
        let mut workers = [0f64; 64];
        for frame in &frames {
            workers[((u64::from(host_hash_of_frame(frame)) * 64) >> 32) as usize] += 1.0;
        }
        let mean = frames.len() as f64 / 64.0;
        let chi_squared: f64 = workers.iter().map(|n| (n - mean).powi(2) / mean).sum();
        assert!(chi_squared < 63.0 + 4.0 * 11.2, "{name}: {chi_squared:.0}");
    }
}

/// An ICMPv6 error with these extension headers, about a packet between the hosts that end with `a` and `b`.
fn error_v6(extensions: &[(u8, usize)], (a, b): (u8, u8), router: u8) -> Vec<u8> {
    let host = |last: u8| [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
    let mut body = vec![3, 0, 0, 0, 0, 0, 0, 0];
    body.extend([0x60, 0, 0, 0, 0, 8, 17, 64]);
    body.extend([host(a), host(b)].concat());
    body.extend([4, 0, 0, 53, 0, 8, 0, 0]);
    let mut upper = 58;
    for (kind, len) in extensions.iter().rev() {
        let mut header = vec![0; *len];
        (header[0], header[1]) = (upper, if *kind == 51 { len / 4 - 2 } else { len / 8 - 1 } as u8);
        if *kind == 44 {
            header[1] = 0;
        }
        body.splice(0..0, header);
        upper = *kind;
    }
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd, 0x60, 0, 0, 0];
    frame.extend((body.len() as u16).to_be_bytes());
    frame.extend([upper, 64]);
    frame.extend([host(router), host(a)].concat());
    frame.extend(body);
    frame
}

/// An ICMPv6 error meets the flow that it quotes whatever extension headers it has; a fragment of one has the hosts of its own header.
#[test]
fn errors_behind_extension_headers_meet_their_flow() {
    let flow = host_hash_of_frame(&error_v6(&[], (1, 2), 2));
    let plain: &[&[(u8, usize)]] = &[
        &[],
        &[(0, 8)],
        &[(60, 24)],
        &[(0, 8), (43, 24), (44, 8), (51, 24), (60, 16)],
        &[(60, 256)],
    ];
    for extensions in plain {
        let frame = error_v6(extensions, (1, 2), 9);
        let d = decode(&frame, frame.len());
        assert_eq!((d.anomaly, d.protocol), (Anomaly::None, IpProtocol::ICMPV6), "{extensions:?}");
        assert_eq!(tracked_hash_of_frame(&frame), flow, "{extensions:?}");
        assert_eq!(quoted_hash(&frame, &d), Some(flow));
        assert_ne!(host_hash_of_frame(&frame), flow);
    }
    // Too far behind, a fragment, and a payload of another protocol.
    let mut fragment = error_v6(&[(44, 8)], (1, 2), 9);
    fragment[14 + 40 + 3] = 1;
    let mut other = error_v6(&[(60, 8)], (1, 2), 9);
    other[14 + 40] = 17;
    for frame in [error_v6(&[(60, 512)], (1, 2), 9), fragment, other] {
        let d = decode(&frame, frame.len());
        assert_eq!(tracked_hash_of_frame(&frame), host_hash_of_frame(&frame));
        assert_eq!(quoted_hash(&frame, &d), None);
    }
}
