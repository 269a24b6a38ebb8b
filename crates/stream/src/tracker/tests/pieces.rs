//! Fragments that are passed on one by one, and the datagrams that they make.

use packet::fragment::Fragmenter;
use proptest::prelude::*;

use super::super::pieces::PIECES;
use super::*;

/// What the module of this test hears: packets and wholes, by their place in the batch.
#[derive(Default)]
struct Places {
    packets: Vec<(usize, bool)>,
    wholes: Vec<(usize, Vec<u8>)>,
    bytes: Vec<u8>,
    /// ICMP errors, with whether they are whole.
    errors: Vec<(usize, bool)>,
}

impl Module for Places {
    type State = ();

    fn packet(&mut self, _: &Identity, (): &mut (), packet: &OfFlow<'_>) {
        self.packets.push((packet.number, packet.is_piece()));
    }

    fn datagram(&mut self, _: &Identity, (): &mut (), whole: &OfFlow<'_>) {
        let payload = whole.datagram().map(<[u8]>::to_vec);
        self.wholes.push((whole.number, payload.unwrap_or_default()));
    }

    fn error(&mut self, _: &Identity, (): &mut (), error: &OfFlow<'_>) {
        self.errors.push((error.number, !error.is_piece()));
    }

    fn data(&mut self, _: &Identity, (): &mut (), _: Side, _: u64, bytes: &[u8]) -> Want {
        self.bytes.extend_from_slice(bytes);
        Want::More
    }

    fn ended(&mut self, _: &FlowRecord, _: Side, (): &mut (), _: u64) {}
}

/// A frame with IPv4; `serial` is the identification.
fn frame(protocol: u8, serial: u16, payload: &[u8]) -> Vec<u8> {
    let len = (20 + payload.len()) as u16;
    let [a, b] = len.to_be_bytes();
    let [c, d] = serial.to_be_bytes();
    let mut ip = vec![0x45, 0, a, b, c, d, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    let sum = packet::checksum::internet_checksum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    [&[2; 12][..], &[8, 0], &ip, payload].concat()
}

fn udp(payload: &[u8]) -> Vec<u8> {
    let len = (8 + payload.len()) as u16;
    [&[0x10, 0, 0, 53][..], &len.to_be_bytes(), &[0, 0], payload].concat()
}

/// A segment of TCP; its checksum is not looked at.
fn tcp_segment(flags: u8, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let header = [
        &[0x10, 0, 0, 80][..],
        &sequence.to_be_bytes(),
        &[0, 0, 0, 1, 0x50, flags, 16, 0, 0, 0, 0, 0],
    ];
    [&header.concat()[..], payload].concat()
}

fn fragments(frame: &[u8], mtu: u16) -> Vec<Vec<u8>> {
    let pieces = Fragmenter::new(&frame[14..], mtu).unwrap();
    let piece = |piece: packet::fragment::Fragment| {
        [&frame[..14], piece.header(), &frame[14..][piece.payload.clone()]].concat()
    };
    pieces.map(piece).collect()
}

/// Gives the frames in batches; each packet gets through.
fn track(frames: &[Vec<u8>], batch: usize) -> (Places, Vec<PacketState>) {
    track_checked(frames, batch, false)
}

/// The same, with checksums compared or not.
fn track_checked(frames: &[Vec<u8>], batch: usize, checksums: bool) -> (Places, Vec<PacketState>) {
    let options = Options { confirms: true, ..options(IdleTimeouts::default()) };
    let mut tracker = Tracker::new(options, Places::default()).unwrap();
    let (mut said, mut places) = (Vec::new(), Places::default());
    let mut first = 0;
    while first < frames.len() {
        let last = frames.len().min(first + batch);
        let decoded: Vec<_> =
            frames[first..last].iter().map(|own| packet::decode(own, own.len())).collect();
        let mut opened = Vec::new();
        let input = |at: usize| Input {
            decoded: &decoded[at],
            frame: &frames[first + at],
            frame_len: frames[first + at].len() as u32,
            time_ns: (first + at) as u64 * 1_000_000 + 1_000_000_000,
            port: 0,
            checksums,
            tunnels: None,
            segment: None,
        };
        let taken = tracker.packets(last - first, input, |_, tracked| {
            said.push(tracked.state);
            opened.extend(tracked.opens);
        });
        opened.into_iter().for_each(|flow| tracker.decide(flow, true));
        let own = std::mem::take(tracker.module());
        places.packets.extend(own.packets.iter().map(|(at, is_piece)| (first + at, *is_piece)));
        places.wholes.extend(own.wholes.into_iter().map(|(at, bytes)| (first + at, bytes)));
        places.bytes.extend(own.bytes);
        places.errors.extend(own.errors.into_iter().map(|(at, is_whole)| (first + at, is_whole)));
        first += taken;
    }
    (places, said)
}

proptest! {
    /// Each datagram is given once, whole, with the fragment that completes it, and each fragment by itself.
    #[test]
    fn datagrams_are_whole_with_the_fragment_that_completes_them(
        lens in prop::collection::vec(700_usize..3_000, 1..5),
        mtu in 60_u16..700,
        order in any::<u64>(),
        batch in 1_usize..40,
    ) {
        let payloads: Vec<Vec<u8>> =
            lens.iter().enumerate().map(|(n, len)| (0..*len).map(|at| (at * 7 + n) as u8).collect()).collect();
        let mut all: Vec<(usize, Vec<u8>)> = Vec::new();
        let mut last_of = Vec::new();
        let mut random = order | 1;
        for (number, payload) in payloads.iter().enumerate() {
            let whole = frame(17, number as u16 + 1, &udp(payload));
            let mut pieces = fragments(&whole, mtu);
            // The first one comes first; the others in any order.
            for at in (2..pieces.len()).rev() {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                pieces.swap(at, 1 + (random >> 33) as usize % at);
            }
            all.extend(pieces.into_iter().map(|piece| (number, piece)));
            last_of.push(all.len() - 1);
        }
        let frames: Vec<Vec<u8>> = all.iter().map(|(_, bytes)| bytes.clone()).collect();
        let (places, said) = track(&frames, batch);
        let expected: Vec<_> = last_of.into_iter().zip(payloads).collect();
        prop_assert_eq!(places.wholes, expected);
        let pieces: Vec<_> = (0..frames.len()).map(|at| (at, true)).collect();
        prop_assert_eq!(places.packets, pieces);
        prop_assert!(said.iter().all(|state| *state == PacketState::New));
    }
}

/// Segments of TCP in fragments are part of their stream.
#[test]
fn segments_in_fragments_are_followed() {
    let text: Vec<u8> = (0..2_000_u32).map(|at| at as u8).collect();
    let mut frames = vec![
        frame(6, 1, &tcp_segment(16, 100, b"")),
        frame(6, 2, &tcp_segment(16, 100, &text[..500])),
    ];
    frames.extend(fragments(&frame(6, 3, &tcp_segment(16, 600, &text[500..])), 300));
    let (places, _) = track(&frames, 64);
    assert_eq!(places.bytes, text);
    assert_eq!(places.wholes.len(), 1);
}

/// A datagram without its first fragment, or whose first one was of no flow, is nobody's.
#[test]
fn later_fragments_alone_are_of_no_flow() {
    let pieces = fragments(&frame(17, 9, &udp(&[7; 600])), 200);
    let (places, said) = track(&pieces[1..], 8);
    assert!(places.wholes.is_empty() && places.packets.is_empty());
    assert!(said.iter().all(|state| *state == PacketState::Invalid));
}

/// The bytes of a segment whose checksum is wrong are not those that the receiver reads, in fragments neither.
#[test]
fn segments_in_fragments_with_a_wrong_checksum_are_passed_over() {
    let with_sum = |serial, mut segment: Vec<u8>, wrong: u16| {
        let len = segment.len() as u16;
        let (src, dst) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let pseudo = packet::checksum::pseudo_header_v4(src, dst, packet::IpProtocol::TCP, len);
        let sum = pseudo + packet::checksum::partial_sum(&segment);
        let sum = packet::checksum::finish(sum);
        segment[16..18].copy_from_slice(&(sum ^ wrong).to_be_bytes());
        frame(6, serial, &segment)
    };
    let mut frames = vec![with_sum(1, tcp_segment(16, 100, b""), 0)];
    frames.extend(fragments(&with_sum(2, tcp_segment(16, 100, &[b'x'; 600]), 0xffff), 300));
    frames.extend(fragments(&with_sum(3, tcp_segment(16, 100, &[b'y'; 600]), 0), 300));
    let (places, _) = track_checked(&frames, 64, true);
    assert_eq!((places.bytes, places.wholes.len()), (vec![b'y'; 600], 1));
}

/// First fragments of others, as many as there are places, do not hide a datagram.
#[test]
fn a_datagram_whose_place_is_taken_has_its_flow() {
    let payload = [7; 600];
    let mut frames = fragments(&frame(17, 9, &udp(&payload)), 200);
    let last = frames.pop().unwrap();
    for at in 0..3 * PIECES {
        let other = frame(17, 10 + at as u16, &udp(&[0; 24]));
        // Complete in two, so that none waits.
        frames.extend(fragments(&other, 44));
    }
    frames.push(last);
    let (places, _) = track(&frames, 1 << 16);
    let own = places.wholes.iter().filter(|(_, bytes)| bytes == &payload).count();
    assert_eq!(own, 1);
}

/// An error about a UDP packet of the other end, which quotes so many bytes of it.
fn icmp_error(serial: u16, bytes: usize) -> Vec<u8> {
    let mut quoted = frame(17, 1, &[&[0, 53, 0x10, 0][..], &[0; 4], &vec![7; bytes]].concat());
    let ip = &mut quoted[14..];
    let [src, dst] = [[10, 0, 0, 2], [10, 0, 0, 1]];
    ip[12..16].copy_from_slice(&src);
    ip[16..20].copy_from_slice(&dst);
    frame(1, serial, &[&[3, 3, 0, 0, 0, 0, 0, 0][..], ip].concat())
}

/// An ICMP error belongs to the flow that it quotes, in fragments too, and the module hears of it once, when it is whole.
#[test]
fn icmp_errors_in_fragments_are_related_and_heard() {
    let whole = icmp_error(2, 100);
    let pieces = fragments(&icmp_error(3, 900), 300);
    let mut frames = vec![frame(17, 1, &udp(&[7; 30])), whole];
    frames.extend(pieces);
    for batch in [1, 3, 64] {
        let (places, said) = track(&frames, batch);
        assert!(said[1..].iter().all(|state| *state == PacketState::Related), "{said:?}");
        assert_eq!(places.errors, [(1, true), (frames.len() - 1, true)]);
    }
}

/// Datagrams whose fragments the caller holds are tracked as if they had come whole.
#[test]
fn datagrams_of_held_fragments_are_as_whole_ones() {
    let options = Options { confirms: true, ..options(IdleTimeouts::default()) };
    let error = icmp_error(5, 900);
    for frame in [frame(17, 1, &udp(&[7; 600])), frame(6, 2, &tcp_segment(2, 99, b"")), error] {
        let mut trackers =
            [(); 2].map(|()| Tracker::new(options, Places::default()).expect("memory"));
        let decoded = packet::decode(&frame, frame.len());
        let input = Input {
            decoded: &decoded,
            frame: &frame,
            frame_len: frame.len() as u32,
            time_ns: 1_000_000_000,
            port: 0,
            checksums: false,
            tunnels: None,
            segment: None,
        };
        let [one, other] = &mut trackers;
        let mut expected = None;
        one.packets(1, |_| input, |_, tracked| expected = Some(tracked));
        let found = other.datagram(0, &input, (3, 660));
        assert_eq!(Some(found), expected);
        assert_eq!(one.counts().flows, other.counts().flows);
        if found.slot.is_some() {
            other.rest_of_datagram(0, found, &input);
            assert_eq!(other.module().packets.len(), 2);
        }
        assert_eq!(other.counts().fragments, 3);
    }
}
