//! Neighbour discovery: what is written is read back and accepted by etherparse; what is broken is
//! refused as a whole.

use packet::nd::{HOP_LIMIT, NdView, NeighbourMessage, option};
use packet::{Anomaly, IpProtocol, MacAddr, decode, ipv6};
use proptest::prelude::*;
use std::net::Ipv6Addr;

const MAC: MacAddr = MacAddr([2, 0, 0x5e, 0x10, 0, 1]);
const A: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const B: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0x12, 0x3456);

#[test]
fn solicitation_and_advertisement() {
    let group = ipv6::solicited_node(B);
    assert_eq!(group, "ff02::1:ff12:3456".parse::<Ipv6Addr>().unwrap());
    assert_eq!(ipv6::link_local(MAC), "fe80::5eff:fe10:1".parse::<Ipv6Addr>().unwrap());
    let ask = NeighbourMessage::Solicitation { target: B, source_mac: Some(MAC) };
    let probe = NeighbourMessage::Solicitation { target: B, source_mac: None };
    let answer = NeighbourMessage::Advertisement {
        target: B,
        target_mac: MAC,
        router: true,
        solicited: true,
        overrides: false,
    };
    for (message, src, dst) in
        [(ask, A, group), (probe, Ipv6Addr::UNSPECIFIED, group), (answer, B, A)]
    {
        let mut frame = vec![0xaa; 14 + 72];
        frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd]);
        let len = message.emit_packet(src, dst, &mut frame[14..]).unwrap();
        assert_eq!(len, 40 + message.len());
        frame.truncate(14 + len);
        let d = decode(&frame, frame.len());
        assert_eq!((d.anomaly, d.protocol, d.ttl), (Anomaly::None, IpProtocol::ICMPV6, HOP_LIMIT));
        let icmp = &frame[54..];
        let oracle = etherparse::Icmpv6Slice::from_slice(icmp).unwrap();
        assert!(oracle.is_checksum_valid(src.octets(), dst.octets()));
        match (NdView::new_checked(icmp).unwrap(), message) {
            (
                NdView::NeighbourSolicitation(view),
                NeighbourMessage::Solicitation { target, source_mac },
            ) => {
                assert_eq!(oracle.icmp_type(), etherparse::Icmpv6Type::NeighborSolicitation);
                assert_eq!((view.target(), view.source_mac()), (target, source_mac));
                assert_eq!(view.options().count(), usize::from(source_mac.is_some()));
            }
            (NdView::NeighbourAdvertisement(view), NeighbourMessage::Advertisement { .. }) => {
                let flags = etherparse::icmpv6::NeighborAdvertisementHeader {
                    router: true,
                    solicited: true,
                    r#override: false,
                };
                assert_eq!(
                    oracle.icmp_type(),
                    etherparse::Icmpv6Type::NeighborAdvertisement(flags)
                );
                assert_eq!((view.target(), view.target_mac()), (B, Some(MAC)));
                assert!(view.is_router() && view.is_solicited() && !view.is_override());
                assert_eq!(view.source_mac(), None);
            }
            _ => panic!("another message"),
        }
        assert_eq!(message.emit(src, dst, &mut vec![0; message.len() - 1]), None);
    }
}

#[test]
fn routers() {
    // Hop limit 64, M, lifetime 1800 s, reachable 30 s, retransmit 1 s; MAC, MTU 1500.
    let mut advertisement =
        vec![134, 0, 0, 0, 64, 0x80, 0x07, 0x08, 0, 0, 0x75, 0x30, 0, 0, 0x03, 0xe8];
    advertisement.extend_from_slice(&[1, 1, 2, 0, 0x5e, 0x10, 0, 1]);
    advertisement.extend_from_slice(&[5, 1, 0, 0, 0, 0, 5, 0xdc]);
    let Some(NdView::RouterAdvertisement(view)) = NdView::new_checked(&advertisement) else {
        panic!("not an advertisement")
    };
    assert_eq!((view.hop_limit(), view.lifetime_s()), (64, 1800));
    assert_eq!((view.reachable_time_ms(), view.retransmit_timer_ms()), (30_000, 1000));
    assert!(view.is_managed() && !view.is_other_config());
    assert_eq!(view.source_mac(), Some(MAC));
    let kinds: Vec<u8> = view.options().map(|option| option.kind).collect();
    assert_eq!(kinds, [option::SOURCE_LINK_LAYER, option::MTU]);
    let solicitation = [133, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 0, 0x5e, 0x10, 0, 1];
    let Some(NdView::RouterSolicitation(mut options)) = NdView::new_checked(&solicitation) else {
        panic!("not a solicitation")
    };
    assert_eq!(options.mac(option::SOURCE_LINK_LAYER), Some(MAC));
    assert_eq!(options.next().map(|option| option.data.len()), Some(6));
}

#[test]
fn refused() {
    let mut good = [0; 32];
    let message = NeighbourMessage::Solicitation { target: B, source_mac: Some(MAC) };
    message.emit(A, B, &mut good).unwrap();
    let edited = |at: usize, value: u8| {
        let mut bytes = good;
        bytes[at] = value;
        NdView::new_checked(&bytes).is_some()
    };
    assert!(edited(0, 135) && edited(0, 136));
    assert!(!edited(0, 128), "an echo request");
    assert!(!edited(0, 137), "a redirect");
    assert!(!edited(1, 1), "a code");
    assert!(!edited(8, 0xff), "a group as target");
    assert!(!edited(25, 0), "an option of length 0");
    assert!(!edited(25, 2), "an option over the end");
    for len in 0..32 {
        assert_eq!(NdView::new_checked(&good[..len]).is_some(), len == 24, "{len} bytes");
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes(kind in 132u8..138, mut bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        if bytes.len() > 1 {
            bytes[0] = kind;
            bytes[1] = 0;
        }
        let options = match NdView::new_checked(&bytes) {
            Some(NdView::NeighbourSolicitation(view) | NdView::NeighbourAdvertisement(view)) => {
                view.options()
            }
            Some(NdView::RouterSolicitation(options)) => options,
            Some(NdView::RouterAdvertisement(view)) => view.options(),
            None => return Ok(()),
        };
        // The options tile the rest: 8 bytes a unit, 2 of them type and length.
        let fixed = match bytes[0] { 133 => 8, 134 => 16, _ => 24 };
        let covered: usize = options.map(|option| option.data.len() + 2).sum();
        prop_assert_eq!(fixed + covered, bytes.len());
    }
}
