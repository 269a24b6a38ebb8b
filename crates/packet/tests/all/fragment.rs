//! Fragments, put together again, are the original; and each is a packet in its own right.

use packet::fragment::{Fragmenter, Fragmenter6};
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

/// An IPv6 packet with a fragment header of the whole, and `len` bytes behind it.
fn atomic(len: usize, identification: u32) -> Vec<u8> {
    let mut packet = vec![0x60, 0x12, 0x34, 0x56];
    packet.extend(((8 + len) as u16).to_be_bytes());
    packet.extend([44, 64]);
    packet.extend((0..32).map(|byte| byte as u8));
    packet.extend([17, 0, 0, 0]);
    packet.extend(identification.to_be_bytes());
    packet.extend((0..len).map(|at| (at * 7) as u8));
    packet
}

proptest! {
    /// The pieces fit, and put together by their offsets they are the packet.
    #[test]
    fn pieces_of_ipv6_make_the_packet(len in 0usize..9000, mtu in 56u16..2000, identification: u32) {
        let packet = atomic(len, identification);
        let pieces: Vec<_> = Fragmenter6::new(&packet, mtu).unwrap().collect();
        let (mut whole, mut is_last) = (Vec::new(), false);
        for piece in &pieces {
            let header = piece.header();
            prop_assert!(piece.total_len() <= usize::from(mtu));
            prop_assert_eq!(header.len(), 48);
            let payload_len = usize::from(u16::from_be_bytes([header[4], header[5]]));
            prop_assert_eq!(payload_len, 8 + piece.payload.len());
            let word = u16::from_be_bytes([header[42], header[43]]);
            prop_assert_eq!(usize::from(word & 0xfff8), whole.len());
            prop_assert!(!is_last);
            is_last = word & 1 == 0;
            prop_assert!(is_last || piece.payload.len() % 8 == 0 && !piece.payload.is_empty());
            // All else is as it was.
            let others = |bytes: &[u8]| [&bytes[..4], &bytes[6..42], &bytes[44..48]].concat();
            prop_assert_eq!(others(header), others(&packet));
            whole.extend_from_slice(&packet[piece.payload.clone()]);
        }
        prop_assert!(is_last);
        prop_assert_eq!(&whole[..], &packet[48..]);
        prop_assert_eq!(pieces.len() == 1, packet.len() <= usize::from(mtu));
    }
}

#[test]
fn packets_of_ipv6_without_a_fragment_header_of_the_whole_stay() {
    let packet = atomic(3000, 5);
    assert!(Fragmenter6::new(&packet, 1280).is_some());
    assert!(Fragmenter6::new(&packet, 55).is_none(), "no room for 8 bytes");
    assert!(Fragmenter6::new(&packet[..47], 1280).is_none(), "no headers");
    let changed = |at: usize, byte: u8| {
        let mut packet = packet.clone();
        packet[at] = byte;
        Fragmenter6::new(&packet, 1280).is_none()
    };
    assert!(changed(6, 17), "no fragment header");
    assert!(changed(0, 0x45), "not IPv6");
    assert!(changed(43, 1), "more fragments");
    assert!(changed(42, 1), "a later fragment");
}
