//! The flow hash: symmetric, spread, and the same for all fragments of a datagram.

use packet::flow::{FlowKey, flow_hash, flow_hash_of_frame};
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
        }
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
}
