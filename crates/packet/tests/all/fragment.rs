//! Fragments, put together again, are the original; and each is a packet in its own right.

use packet::fragment::Fragmenter;
use packet::ipv4::{Ipv4Header, Ipv4View};
use packet::{IpProtocol, decode};
use proptest::prelude::*;
use std::net::Ipv4Addr;

const SRC: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const DST: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

fn packet(options: &[u8], payload_len: usize, offset: u16, more: bool) -> Vec<u8> {
    let header = Ipv4Header {
        identification: 0x1234,
        traffic_class: 0x2e << 2 | 1,
        fragment_offset: offset,
        more_fragments: more,
        options,
        ..Ipv4Header::new(SRC, DST, IpProtocol::UDP)
    };
    let mut packet = vec![0; header.len() + payload_len];
    header.emit(payload_len, &mut packet).unwrap();
    for (n, byte) in packet[header.len()..].iter_mut().enumerate() {
        *byte = (n * 7 + n / 256) as u8;
    }
    packet
}

fn fragments(packet: &[u8], mtu: u16) -> Vec<Vec<u8>> {
    Fragmenter::new(packet, mtu)
        .unwrap()
        .map(|fragment| {
            let mut bytes = fragment.header().to_vec();
            bytes.extend_from_slice(&packet[fragment.payload.clone()]);
            assert_eq!(bytes.len(), fragment.total_len());
            bytes
        })
        .collect()
}

proptest! {
    #[test]
    fn reassembled_is_original(
        payload_len in 0usize..9000,
        mtu in 68u16..2000,
        options in prop::sample::select(vec![
            vec![],
            vec![148, 4, 0, 0],                                  // router alert: copied
            vec![7, 7, 4, 0, 0, 0, 0, 1],                        // record route: first only
            vec![1, 148, 4, 0, 0, 7, 7, 4, 0, 0, 0, 0, 130, 2],  // mixed, odd length
        ]),
        // What is cut may be a fragment already.
        offset in prop::sample::select(vec![0u16, 8, 1480]),
        more: bool,
    ) {
        let payload_len = if more { payload_len & !7 } else { payload_len };
        let original = packet(&options, payload_len, offset, more);
        let view = Ipv4View::new_checked(&original).unwrap();
        let pieces = fragments(&original, mtu);
        let mut payload = Vec::new();
        for (n, piece) in pieces.iter().enumerate() {
            prop_assert!(piece.len() <= usize::from(mtu));
            // The oracle reads the fields.
            let slice = etherparse::Ipv4Slice::from_slice(piece).unwrap();
            let header = slice.header().to_header();
            prop_assert_eq!(header.calc_header_checksum(), header.header_checksum);
            prop_assert_eq!(
                usize::from(header.fragment_offset.byte_offset()),
                usize::from(offset) + payload.len()
            );
            let is_last = n + 1 == pieces.len();
            prop_assert_eq!(header.more_fragments, more || !is_last);
            prop_assert_eq!(header.identification, 0x1234);
            prop_assert_eq!((header.dscp.value(), header.ecn.value()), (0x2e, 1));
            prop_assert_eq!(header.time_to_live, 64);
            let kinds = |view: Ipv4View| -> Vec<u8> { view.options().map(|o| o.kind).collect() };
            let expected: Vec<u8> =
                kinds(view).into_iter().filter(|kind| n == 0 || kind & 0x80 != 0).collect();
            prop_assert_eq!(kinds(Ipv4View::new_checked(piece).unwrap()), expected);
            payload.extend_from_slice(slice.payload().payload);
            // And the router at the next hop finds nothing wrong.
            let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
            frame.extend_from_slice(piece);
            let anomaly = decode(&frame, frame.len()).anomaly;
            prop_assert!(anomaly == packet::Anomaly::None || payload_len == 0, "{anomaly:?}");
        }
        prop_assert_eq!(payload.as_slice(), view.payload());
    }
}

#[test]
fn ethernet_to_minimum() {
    let original = packet(&[], 1480, 0, false);
    let lengths = |mtu| fragments(&original, mtu).iter().map(Vec::len).collect::<Vec<_>>();
    assert_eq!(lengths(1500), [1500]);
    assert_eq!(fragments(&original, 1500)[0], original);
    assert_eq!(lengths(1499), [20 + 1472, 20 + 8]);
    assert_eq!(lengths(1280), [1276, 244]);
    assert_eq!(lengths(576), [572, 572, 396]);
    assert_eq!(lengths(28).len(), 185);
}

#[test]
fn refused() {
    let mut original = packet(&[], 1480, 0, false);
    assert!(Fragmenter::new(&original, 27).is_none(), "no room for 8 bytes");
    assert!(Fragmenter::new(&original[..19], 576).is_none(), "no header");
    assert!(Fragmenter::new(&original[..20], 576).is_some(), "the payload is not looked at");
    original[6] |= 0x40;
    assert!(Fragmenter::new(&original, 576).is_none(), "DF");
    assert!(Fragmenter::new(&original, 1500).is_some(), "DF, but it fits");
    assert!(Fragmenter::new(&[0x65; 40], 576).is_none(), "not IPv4");
    original[2..4].copy_from_slice(&[0, 19]);
    assert!(Fragmenter::new(&original, 576).is_none(), "total length below the header's");
}
