//! Resets, read back by another parser.

use etherparse::{SlicedPacket, TcpHeader, TransportSlice};
use packet::decode;
use packet::ipv4::set_dscp_v4;
use packet::ipv6::set_dscp_v6;
use packet::tcp_reset::{build_tcp_reset, build_tcp_reset_onward};

const ETHERNET: [u8; 14] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];

fn segment(is_v4: bool, change: impl FnOnce(&mut TcpHeader), payload: usize) -> Vec<u8> {
    let mut header = TcpHeader::new(4000, 22, 1000, 500);
    change(&mut header);
    let builder = etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1]);
    let mut frame = Vec::new();
    let payload = vec![7; payload];
    if is_v4 {
        builder.ipv4([192, 0, 2, 1], [198, 51, 100, 2], 9).tcp_header(header)
    } else {
        builder.ipv6([1; 16], [2; 16], 9).tcp_header(header)
    }
    .write(&mut frame, &payload)
    .unwrap();
    frame
}

/// The answer's header, after the checks that both families share.
fn reset(frame: &[u8]) -> Option<TcpHeader> {
    let d = decode(frame, frame.len());
    let mut out = [0; 100];
    let len = build_tcp_reset(&d, frame, &mut out)?;
    let packet = SlicedPacket::from_ip(&out[..len]).unwrap();
    let Some(TransportSlice::Tcp(tcp)) = &packet.transport else { panic!("no TCP") };
    let header = tcp.to_header();
    let sum = match packet.net.as_ref().unwrap() {
        etherparse::NetSlice::Ipv4(ip) => {
            assert_eq!(ip.header().source(), [198, 51, 100, 2]);
            assert_eq!(ip.header().destination(), [192, 0, 2, 1]);
            assert_eq!(
                ip.header().to_header().calc_header_checksum(),
                ip.header().header_checksum()
            );
            header.calc_checksum_ipv4(&ip.header().to_header(), &[]).unwrap()
        }
        etherparse::NetSlice::Ipv6(ip) => {
            assert_eq!((ip.header().source(), ip.header().destination()), ([2; 16], [1; 16]));
            header.calc_checksum_ipv6(&ip.header().to_header(), &[]).unwrap()
        }
        _ => panic!("no IP"),
    };
    assert_eq!((header.checksum, header.source_port, header.destination_port), (sum, 22, 4000));
    assert!(header.rst && tcp.payload().is_empty());
    Some(header)
}

#[test]
fn answers_are_those_of_rfc_9293() {
    for is_v4 in [true, false] {
        let syn = reset(&segment(is_v4, |h| h.syn = true, 0)).unwrap();
        assert_eq!((syn.sequence_number, syn.ack, syn.acknowledgment_number), (0, true, 1001));
        let both = |h: &mut TcpHeader| (h.syn, h.fin) = (true, true);
        let both = reset(&segment(is_v4, both, 10)).unwrap();
        assert_eq!(both.acknowledgment_number, 1012, "SYN and FIN count");
        let wraps = |h: &mut TcpHeader| h.sequence_number = u32::MAX;
        assert_eq!(reset(&segment(is_v4, wraps, 3)).unwrap().acknowledgment_number, 2);
        let data = |h: &mut TcpHeader| (h.ack, h.acknowledgment_number) = (true, 77);
        let data = reset(&segment(is_v4, data, 100)).unwrap();
        assert_eq!((data.sequence_number, data.ack), (77, false));
        assert_eq!(reset(&segment(is_v4, |h| h.rst = true, 0)), None, "never about a reset");
    }
    // A frame of which only the first bytes are at hand, and one that is cut within its header.
    let frame = segment(true, |_| {}, 500);
    let d = decode(&frame, frame.len());
    let mut out = [0; 100];
    assert_eq!(build_tcp_reset(&d, &frame[..60], &mut out), Some(40));
    assert_eq!(out[28..32], 1500_u32.to_be_bytes(), "the bytes that are not at hand count");
    assert_eq!(build_tcp_reset(&d, &frame[..50], &mut out), None);
    assert_eq!(build_tcp_reset(&d, &frame, &mut out[..39]), None);
    let mut fragment = frame.clone();
    fragment[20] |= 0x20;
    packet::ipv4::fill_checksum(&mut fragment[14..]);
    let d = decode(&fragment, fragment.len());
    assert_eq!(build_tcp_reset(&d, &fragment, &mut out), None);
    assert_eq!(frame[..14], ETHERNET);
}

#[test]
fn marks_keep_what_stands_beside_them() {
    for dscp in 0..64_u8 {
        let mut frame = segment(true, |_| {}, 5);
        frame[15] = 0xe1;
        packet::ipv4::fill_checksum(&mut frame[14..]);
        set_dscp_v4(&mut frame[14..], dscp);
        let d = decode(&frame, frame.len());
        assert_eq!((d.anomaly, d.traffic_class), (packet::Anomaly::None, dscp << 2 | 1));
        let mut frame = segment(false, |_| {}, 5);
        frame[14..18].copy_from_slice(&0x6e1a_bcde_u32.to_be_bytes());
        set_dscp_v6(&mut frame[14..], dscp);
        let word = u32::from_be_bytes(frame[14..18].try_into().unwrap());
        assert_eq!(word, 0x601a_bcde & !0x0fc0_0000 | u32::from(dscp) << 22, "{word:#x}");
    }
    set_dscp_v4(&mut [0x45; 5], 1);
    set_dscp_v6(&mut [0x60], 1);
}

#[test]
fn a_reset_that_goes_on_has_the_ends_of_its_segment() {
    for is_v4 in [true, false] {
        for (flags, acks) in [(0, false), (1, true)] {
            let frame = segment(
                is_v4,
                |h| (h.syn, h.ack, h.acknowledgment_number) = (flags == 0, acks, 77),
                9,
            );
            let d = decode(&frame, frame.len());
            let mut out = [0; 100];
            let len = build_tcp_reset_onward(&d, &frame, &mut out).unwrap();
            let packet = SlicedPacket::from_ip(&out[..len]).unwrap();
            let Some(TransportSlice::Tcp(tcp)) = &packet.transport else { panic!("no TCP") };
            let header = tcp.to_header();
            let (sum, ttl, ends) = match packet.net.as_ref().unwrap() {
                etherparse::NetSlice::Ipv4(ip) => {
                    let own = ip.header().to_header();
                    let ends = (own.source == [192, 0, 2, 1], own.destination == [198, 51, 100, 2]);
                    assert_eq!(own.calc_header_checksum(), own.header_checksum);
                    (header.calc_checksum_ipv4(&own, &[]).unwrap(), own.time_to_live, ends)
                }
                etherparse::NetSlice::Ipv6(ip) => {
                    let own = ip.header().to_header();
                    let ends = (own.source == [1; 16], own.destination == [2; 16]);
                    (header.calc_checksum_ipv6(&own, &[]).unwrap(), own.hop_limit, ends)
                }
                _ => panic!("no IP"),
            };
            assert_eq!((header.checksum, ttl, ends), (sum, 9, (true, true)));
            assert_eq!((header.source_port, header.destination_port), (4000, 22));
            assert_eq!((header.sequence_number, header.rst, header.syn), (1000, true, false));
            let acknowledgment = if acks { 77 } else { 0 };
            assert_eq!((header.ack, header.acknowledgment_number), (acks, acknowledgment));
            assert!(tcp.payload().is_empty());
        }
    }
    let reset = segment(true, |h| h.rst = true, 0);
    let d = decode(&reset, reset.len());
    assert_eq!(build_tcp_reset_onward(&d, &reset, &mut [0; 100]), None);
    let frame = segment(true, |_| {}, 0);
    let d = decode(&frame, frame.len());
    assert_eq!(build_tcp_reset_onward(&d, &frame, &mut [0; 39]), None);
    assert_eq!(build_tcp_reset_onward(&d, &frame[..40], &mut [0; 100]), None);
}
