//! One pass over a frame against the views, field by field.
#![no_main]

use libfuzzer_sys::fuzz_target;
use packet::ethernet::EthernetView;
use packet::ipv4::Ipv4View;
use packet::ipv6::Ipv6View;
use packet::checksum::Checksums;
use packet::tunnel::Kinds;
use packet::vlan::VlanView;
use packet::{Anomaly, Decoded, Kind, arp::ArpView, decode, flow, tunnel};

/// What is inside of tunnels is in the frame, and is hashed as a packet by itself; by what it is without a right checksum, too.
fn look_inside(frame: &[u8]) {
    let asked = Kinds::all();
    let hash = tunnel::hash_of_frame(frame, &asked);
    for checksums in [Checksums::Verify, Checksums::Ignore] {
        let mut outer = decode(frame, frame.len());
        if checksums == Checksums::Ignore {
            packet::decode::ignore_checksum(&mut outer);
        }
        let Some(inner) = tunnel::inside(frame, &outer, &asked, checksums) else { continue };
        let d = &inner.decoded;
        assert!(d.is_ip() && (1..=tunnel::DEPTH_MAX).contains(&inner.path.iter().count()));
        assert!(inner.at + d.l3_end() <= outer.l3_end() && outer.l3_end() <= frame.len());
        let l3 = &frame[inner.at + usize::from(d.l3_offset)..];
        let ethertype = if d.kind == Kind::Ipv4 { [8, 0] } else { [0x86, 0xdd] };
        let alone = [&[2; 12][..], &ethertype, l3].concat();
        if d.anomaly != Anomaly::BadChecksum {
            assert_eq!(hash, flow::tracked_hash_of_frame(&alone));
        }
    }
}

fuzz_target!(|frame: &[u8]| {
    look_inside(frame);
    let d = decode(frame, frame.len());
    let Some(ethernet) = EthernetView::new_checked(frame) else {
        assert_eq!(d.anomaly, Anomaly::Truncated);
        return;
    };
    let (mut ethertype, mut l3) = (ethernet.ethertype(), ethernet.payload());
    for n in 0..usize::from(d.vlan_count) {
        let Some(tag) = VlanView::new_checked(l3) else { panic!("a tag that is not there") };
        assert_eq!(d.vlan_tci[n], tag.tci());
        (ethertype, l3) = (tag.ethertype(), tag.payload());
    }
    assert_eq!(d.ethertype, ethertype);
    assert_eq!(usize::from(d.l3_offset), frame.len() - l3.len());
    let lengths_right = d.anomaly.leaves_lengths_right();
    match d.kind {
        Kind::Ipv4 => {
            let view = Ipv4View::new_checked(l3);
            let fragment =
                matches!(d.anomaly, Anomaly::ZeroLengthFragment | Anomaly::OverlongFragment);
            assert_eq!(view.is_some(), lengths_right || fragment, "{d:?}");
            let Some(view) = view else { return };
            assert_eq!(d.src_ip(), Some(view.src().into()));
            assert_eq!(d.dst_ip(), Some(view.dst().into()));
            assert_eq!(usize::from(d.ip_header_len), view.header_len());
            assert_eq!(d.ip_total_len, u32::from(view.total_len()));
            assert_eq!(d.fragment_offset, view.fragment_offset());
            assert_eq!(d.has(Decoded::MORE_FRAGMENTS), view.more_fragments());
            assert_eq!(d.has(Decoded::DONT_FRAGMENT), view.dont_fragment());
            assert_eq!((d.ttl, d.protocol), (view.ttl(), view.protocol()));
            assert_eq!(view.is_checksum_correct(), d.anomaly != Anomaly::BadChecksum);
            word(&d, view.payload());
        }
        Kind::Ipv6 => {
            let Some(view) = Ipv6View::new_checked(l3) else {
                assert!(!lengths_right);
                return;
            };
            assert_eq!(d.src_ip(), Some(view.src().into()));
            assert_eq!(d.dst_ip(), Some(view.dst().into()));
            if lengths_right {
                let Some((protocol, upper)) = view.upper_layer() else { panic!("{d:?}") };
                assert_eq!(d.protocol, protocol);
                assert_eq!(usize::from(d.l4_offset) + upper.len(), d.l3_end());
                word(&d, upper);
            }
        }
        Kind::Arp => assert_eq!(ArpView::new_checked(l3).is_some(), d.anomaly == Anomaly::None),
        Kind::Other => assert_ne!(d.anomaly, Anomaly::None),
    }
    if d.anomaly == Anomaly::None {
        assert!(!d.is_ip() || d.l3_end() <= frame.len());
        assert_eq!(flow::flow_hash(&d), flow::flow_hash_of_frame(frame));
    }
    // A first cell never says more than the whole.
    let cell = &frame[..frame.len() / 2];
    let part = decode(cell, frame.len());
    assert!(part.anomaly != Anomaly::None || part.kind == d.kind);
});

fn word(d: &Decoded, upper: &[u8]) {
    match upper.first_chunk() {
        Some(first) if d.anomaly.leaves_lengths_right() && d.fragment_offset == 0 => {
            assert_eq!(d.l4_word, u32::from_be_bytes(*first));
        }
        _ => assert_eq!(d.l4_word, 0),
    }
}
