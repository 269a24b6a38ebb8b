use chunk::{HugePages, Offload, Packet, Pool, Region};

use super::*;

fn pool() -> Pool {
    let (_, depot) = Region::new(64, HugePages::Off).unwrap();
    Pool::new(depot, 8)
}

/// As Linux gives it.
fn header(kind: u8, segment: u16, from: u16, field: u16) -> [u8; HEADER_LEN] {
    let mut header = [0; HEADER_LEN];
    (header[0], header[1]) = (NEEDS_CHECKSUM, kind);
    header[4..6].copy_from_slice(&segment.to_ne_bytes());
    header[6..8].copy_from_slice(&from.to_ne_bytes());
    header[8..10].copy_from_slice(&field.to_ne_bytes());
    header
}

fn ipv4(protocol: u8, rest: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0, 1, 0, 0, 60, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    packet[2..4].copy_from_slice(&((20 + rest.len()) as u16).to_be_bytes());
    packet.extend(rest);
    packet
}

fn tcp(payload: usize) -> Vec<u8> {
    let mut tcp = vec![0, 9, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 1, 0, 0, 0, 0, 0];
    tcp.resize(20 + payload, 7);
    tcp
}

fn ethernet(tags: usize, packet: &[u8]) -> Vec<u8> {
    let addresses = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    [&addresses, &[0x81, 0, 0, 7].repeat(tags)[..], &[8, 0], packet].concat()
}

/// The TCP header is at byte 84 of a frame without tags.
fn vxlan(tags: usize, payload: usize) -> Vec<u8> {
    let inner = ethernet(0, &ipv4(6, &tcp(payload)));
    let len = (16 + inner.len() as u16).to_be_bytes();
    let outer = [0xc0, 0, 0x12, 0xb5, len[0], len[1], 0, 0, 8, 0, 0, 0, 0, 0, 7, 0];
    ethernet(tags, &ipv4(17, &[&outer, &inner[..]].concat()))
}

/// Whether the frame is taken, what is left to do, and the header when it leaves.
fn pass(header: [u8; HEADER_LEN], tag: bool, frame: &[u8]) -> Option<(Offload, Option<[u8; 10]>)> {
    let mut pool = pool();
    let mut packet = Packet::copy_from(&mut pool, frame).unwrap();
    let result = read(&header, tag, &mut packet).then(|| (packet.offload, write(&packet)));
    packet.free(&mut pool);
    result
}

#[test]
fn a_checksum_in_a_tunnel_passes_as_it_came() {
    for tags in 0..3 {
        let from = 84 + 4 * tags;
        let came = header(TYPE_NONE, 0, from, 16);
        let expected = Offload::checksum_at(70, 16).unwrap();
        let frame = vxlan(tags.into(), 100);
        assert_eq!(pass(came, false, &frame), Some((expected, Some(came))), "{tags} tags");
        // The kernel counts without the tag that it has taken out.
        if tags > 0 {
            let without = header(TYPE_NONE, 0, from - 4, 16);
            assert_eq!(pass(without, true, &frame), Some((expected, Some(came))), "{tags} tags");
        }
    }
}

#[test]
fn its_place_moves_with_tags_that_a_stage_adds_or_removes() {
    let mut pool = pool();
    let mut packet = Packet::copy_from(&mut pool, &vxlan(1, 100)).unwrap();
    assert!(read(&header(TYPE_NONE, 0, 88, 16), false, &mut packet));
    for tags in [0usize, 2] {
        let mut other = Packet::copy_from(&mut pool, &vxlan(tags, 100)).unwrap();
        other.offload = packet.offload;
        assert_eq!(write(&other), Some(header(TYPE_NONE, 0, 84 + 4 * tags as u16, 16)));
        other.free(&mut pool);
    }
    packet.free(&mut pool);
}

#[test]
fn any_protocol_may_leave_an_internet_checksum() {
    // ICMPv6 over who knows what, behind a header that nobody knows.
    let mut frame = ethernet(0, &[9; 100]);
    frame[12..14].copy_from_slice(&[0x88, 0x47]);
    let came = header(TYPE_NONE, 0, 58, 2);
    assert_eq!(pass(came, false, &frame), Some((Offload::checksum_at(44, 2).unwrap(), Some(came))));
    // Not SCTP, whose checksum is a CRC.
    let sctp = ethernet(0, &ipv4(132, &[0; 40]));
    assert_eq!(pass(header(TYPE_NONE, 0, 34, 8), false, &sctp), None);
    // Not in the frame, not a word, before its headers, or behind those that are looked at.
    for (from, field) in [(34, 100), (34, 3), (10, 6), (60, 200), (600, 6)] {
        assert_eq!(pass(header(TYPE_NONE, 0, from, field), false, &sctp), None, "{from} {field}");
    }
}

#[test]
fn plain_tcp_needs_no_place() {
    let frame = ethernet(1, &ipv4(6, &tcp(3000)));
    let came = header(TYPE_NONE, 0, 38, 16);
    assert_eq!(pass(came, false, &frame), Some((Offload::CHECKSUM, Some(came))));
    let mut cut = header(TYPE_TCP_V4, 1000, 38, 16);
    let expected = Offload::segments(1000).unwrap();
    let (offload, left) = pass(cut, false, &frame).unwrap();
    cut[2..4].copy_from_slice(&58u16.to_ne_bytes()); // the length of all headers
    assert_eq!((offload, left), (expected, Some(cut)));
}

/// The kernel would not know that there is a tunnel.
#[test]
fn segments_in_a_tunnel_are_taken_and_not_passed_on() {
    let frame = vxlan(0, 3000);
    let segments = Offload::segments(1000).unwrap();
    assert_eq!(pass(header(TYPE_TCP_V4, 1000, 84, 16), false, &frame), Some((segments, None)));
    // Another place or type than that of the inner packet, or no tunnel that is known.
    assert_eq!(pass(header(TYPE_TCP_V4, 1000, 34, 6), false, &frame), None);
    assert_eq!(pass(header(TYPE_TCP_V6, 1000, 84, 16), false, &frame), None);
    assert_eq!(pass(header(TYPE_UDP, 1000, 34, 6), false, &frame), None);
    let mut unknown = frame.clone();
    unknown[42] = 0xff;
    assert_eq!(pass(header(TYPE_TCP_V4, 1000, 84, 16), false, &unknown), None);
}

/// A link with an MTU of 64 KB has them: of the loopback interface, a sender may leave segments of 47,616 bytes, and more.
#[test]
fn segments_may_have_more_than_32_kb() {
    let frame = ethernet(0, &ipv4(6, &tcp(60_000)));
    let of =
        |size| Some((Offload::segments(size).unwrap(), Some(header(TYPE_TCP_V4, size, 34, 16))));
    let expect = |payload: [u8; 2], size| {
        of(size).map(|(offload, header)| {
            let mut header = header.unwrap();
            header[2..4].copy_from_slice(&payload);
            (offload, Some(header))
        })
    };
    let payload = 54u16.to_ne_bytes();
    for (came, left) in [(32_767, 32_767), (32_768, 32_768), (47_616, 47_616), (47_617, 47_616)] {
        let passed = pass(header(TYPE_TCP_V4, came, 34, 16), false, &frame);
        assert_eq!(passed, expect(payload, left), "{came}");
    }
    // A datagram stays what it is.
    let udp = [&[0, 9, 0, 9, 0, 0, 0, 0][..], &[7; 60_000]].concat();
    let frame = ethernet(0, &ipv4(17, &udp));
    assert!(pass(header(TYPE_UDP, 40_000, 34, 6), false, &frame).is_some());
    assert_eq!(pass(header(TYPE_UDP, 40_001, 34, 6), false, &frame), None);
}
