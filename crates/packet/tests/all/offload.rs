//! Unfinished frames: what they become is judged by etherparse.

use chunk::{HugePages, Offload, Packet, Pool, Region};
use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use packet::offload::{
    Checksums, Layout, cut, fill_checksum, open_checksum, open_offload, wire_len,
};
use proptest::prelude::*;
use std::sync::Arc;

const CELLS: u32 = 400;

fn pool() -> (Arc<chunk::Depot>, Pool) {
    let (_, depot) = Region::new(CELLS, HugePages::Off).unwrap();
    (depot.clone(), Pool::new(depot, 64))
}

/// What a frame is made of.
#[derive(Clone, Debug)]
struct Sent {
    tags: usize,
    is_v4: bool,
    is_tcp: bool,
    options: usize,
    flags: [bool; 3],
    sequence: u32,
    payload: Vec<u8>,
}

fn sent() -> impl Strategy<Value = Sent> {
    let payload = (any::<u8>(), prop_oneof![0usize..3000, 20_000usize..60_000]);
    let fields =
        (0usize..3, any::<bool>(), any::<bool>(), 0usize..11, any::<[bool; 3]>(), any::<u32>());
    (fields, payload).prop_map(|((tags, is_v4, is_tcp, options, flags, sequence), (seed, len))| {
        let payload = (0..len).map(|i| ((i * 31) >> 3) as u8 ^ seed).collect();
        Sent { tags, is_v4, is_tcp, options, flags, sequence, payload }
    })
}

impl Sent {
    /// The finished frame, in one piece however long.
    fn frame(&self) -> Vec<u8> {
        let link = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let id = |n| etherparse::VlanId::try_new(n).unwrap();
        let step = match (self.tags, self.is_v4) {
            (0, true) => link.ipv4([10, 0, 0, 1], [198, 51, 100, 7], 60),
            (0, false) => link.ipv6([0x20; 16], [0x21; 16], 60),
            (1, true) => link.single_vlan(id(7)).ipv4([10, 0, 0, 1], [198, 51, 100, 7], 60),
            (1, false) => link.single_vlan(id(7)).ipv6([0x20; 16], [0x21; 16], 60),
            (_, true) => link.double_vlan(id(7), id(9)).ipv4([10, 0, 0, 1], [198, 51, 100, 7], 60),
            (_, false) => link.double_vlan(id(7), id(9)).ipv6([0x20; 16], [0x21; 16], 60),
        };
        let mut frame = Vec::new();
        if self.is_tcp {
            let mut step = step.tcp(4000, 80, self.sequence, 65_000).ack(77);
            let [fin, psh, cwr] = self.flags;
            if fin {
                step = step.fin();
            }
            if psh {
                step = step.psh();
            }
            if cwr {
                step = step.cwr();
            }
            let options = vec![1; self.options * 4];
            step.options_raw(&options).unwrap().write(&mut frame, &self.payload).unwrap();
        } else {
            step.udp(4000, 53).write(&mut frame, &self.payload).unwrap();
        }
        frame
    }
}

/// Asserts that the headers of a frame are right, and returns identification, sequence number, flags and payload.
fn judged(frame: &[u8]) -> (Option<u16>, u32, [bool; 3], Vec<u8>) {
    let sliced = SlicedPacket::from_ethernet(frame).unwrap();
    let id = match sliced.net.as_ref().unwrap() {
        NetSlice::Ipv4(ip) => {
            let header = ip.header().to_header();
            assert_eq!(header.header_checksum, header.calc_header_checksum());
            Some(header.identification)
        }
        NetSlice::Ipv6(_) => None,
        _ => panic!("not IP"),
    };
    let (net, transport) = (sliced.net.unwrap(), sliced.transport.unwrap());
    match transport {
        TransportSlice::Tcp(tcp) => {
            let header = tcp.to_header();
            let right = match &net {
                NetSlice::Ipv4(ip) => {
                    header.calc_checksum_ipv4(&ip.header().to_header(), tcp.payload())
                }
                NetSlice::Ipv6(ip) => {
                    header.calc_checksum_ipv6(&ip.header().to_header(), tcp.payload())
                }
                _ => panic!("not IP"),
            };
            assert_eq!(header.checksum, right.unwrap());
            let flags = [header.fin, header.psh, header.cwr];
            (id, header.sequence_number, flags, tcp.payload().to_vec())
        }
        TransportSlice::Udp(udp) => {
            let header = udp.to_header();
            let right = match &net {
                NetSlice::Ipv4(ip) => {
                    header.calc_checksum_ipv4(&ip.header().to_header(), udp.payload())
                }
                NetSlice::Ipv6(ip) => {
                    header.calc_checksum_ipv6(&ip.header().to_header(), udp.payload())
                }
                _ => panic!("not IP"),
            };
            assert_eq!(
                (header.checksum, usize::from(header.length)),
                (right.unwrap(), 8 + udp.payload().len())
            );
            (id, 0, [false; 3], udp.payload().to_vec())
        }
        _ => panic!("neither TCP nor UDP"),
    }
}

fn bytes_of(packet: &Packet) -> Vec<u8> {
    packet.segments().collect::<Vec<_>>().concat()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn segments_are_what_a_card_would_send(sent in sent(), size in 2u16..9000) {
        let (depot, mut pool) = pool();
        let whole = sent.frame();
        let (id, sequence, flags, payload) = judged(&whole);
        prop_assert_eq!(&payload, &sent.payload);
        let mut packet = Packet::copy_from(&mut pool, &whole).unwrap();
        (packet.time_ns, packet.port, packet.mark) = (5, 6, 7);
        prop_assert!(open_checksum(&mut packet));
        let size = size.max((payload.len() / 300) as u16).max(2);
        packet.offload = Offload::segments(size).unwrap();
        let mut frames = Vec::new();
        prop_assert!(cut(&packet, &mut pool, &mut frames, Checksums::Filled));
        prop_assert_eq!(frames.len(), payload.len().div_ceil(size.into()).max(1));
        let longest = frames.iter().map(Packet::frame_len).max().unwrap();
        prop_assert_eq!(wire_len(&packet), longest);
        let last = frames.len() - 1;
        let mut joined = Vec::new();
        for (i, frame) in frames.iter().enumerate() {
            prop_assert!(frame.offload.is_none());
            prop_assert_eq!((frame.time_ns, frame.port, frame.mark), (5, 6, 7));
            let bytes = bytes_of(frame);
            prop_assert_eq!(&bytes[..12], &whole[..12]);
            let (own_id, own_sequence, own_flags, own) = judged(&bytes);
            prop_assert_eq!(own_id, id.map(|id| id.wrapping_add(i as u16)));
            if sent.is_tcp {
                prop_assert_eq!(own_sequence, sequence.wrapping_add(joined.len() as u32));
                let expected = [flags[0] && i == last, flags[1] && i == last, flags[2] && i == 0];
                prop_assert_eq!(own_flags, expected);
            }
            joined.extend(own);
        }
        prop_assert_eq!(joined, payload);
        frames.drain(..).for_each(|frame| frame.free(&mut pool));
        packet.free(&mut pool);
        drop(pool);
        prop_assert_eq!(depot.available(), CELLS as usize);
    }

    #[test]
    fn an_open_checksum_is_filled_in(sent in sent(), padding in 0usize..3) {
        let (_, mut pool) = pool();
        let whole = sent.frame();
        let mut frame = whole.clone();
        frame.resize(whole.len() + padding, 0xee); // not part of the packet
        let mut packet = Packet::copy_from(&mut pool, &frame).unwrap();
        prop_assert!(open_checksum(&mut packet));
        prop_assert_eq!(open_offload(&packet), Offload::CHECKSUM);
        prop_assert!(fill_checksum(&mut packet));
        prop_assert_eq!(bytes_of(&packet), frame);
        packet.free(&mut pool);
    }

    #[test]
    fn no_bytes_make_it_panic(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..200),
        kind in 0usize..4,
        protocol in prop::sample::select(vec![6u8, 17, 1, 0]),
        size in 0u16..300,
    ) {
        if let (Some(field), Some(value)) =
            (bytes.get_mut(12..15), [[8, 0, 0x45], [0x86, 0xdd, 0x60], [0x81, 0, 0]].get(kind))
        {
            field.copy_from_slice(value);
        }
        for at in [20, 23] {
            bytes.get_mut(at).into_iter().for_each(|byte| *byte = protocol);
        }
        let (_, mut pool) = pool();
        let mut packet = Packet::copy_from(&mut pool, &bytes).unwrap();
        packet.offload = Offload::segments(size).unwrap_or(Offload::CHECKSUM);
        let is_known = Layout::of(&bytes, bytes.len()).is_some();
        let mut frames = Vec::new();
        prop_assert_eq!(cut(&packet, &mut pool, &mut frames, Checksums::Filled), is_known);
        prop_assert!(wire_len(&packet) <= bytes.len());
        frames.drain(..).for_each(|frame| frame.free(&mut pool));
        prop_assert_eq!(fill_checksum(&mut packet), is_known);
        prop_assert_eq!(packet.frame_len(), bytes.len());
        packet.free(&mut pool);
    }
}

#[test]
fn without_cells_nothing_is_cut() {
    let (_, depot) = Region::new(4, HugePages::Off).unwrap();
    let mut pool = Pool::new(depot.clone(), 1);
    let sent = Sent {
        tags: 0,
        is_v4: true,
        is_tcp: true,
        options: 0,
        flags: [false; 3],
        sequence: 1,
        payload: vec![7; 1800],
    };
    let mut packet = Packet::copy_from(&mut pool, &sent.frame()).unwrap();
    packet.offload = Offload::segments(200).unwrap();
    let mut frames = Vec::new();
    let is_cut = cut(&packet, &mut pool, &mut frames, Checksums::Filled);
    assert!(!is_cut && frames.is_empty());
    packet.free(&mut pool);
    drop(pool);
    assert_eq!(depot.available(), 4);
}

/// One packet in 65,536: the sum over a payload that makes up for all the rest.
#[test]
fn a_checksum_of_zero_is_zero_in_tcp_and_all_ones_in_udp() {
    let (_, mut pool) = pool();
    for (is_tcp, expected) in [(true, [0, 0]), (false, [0xff, 0xff])] {
        let frame = |payload: [u8; 2]| {
            let flags = [false; 3];
            let payload = payload.to_vec();
            Sent { tags: 0, is_v4: true, is_tcp, options: 0, flags, sequence: 1, payload }.frame()
        };
        let zero = frame([0, 0]);
        let field = zero.len() - 2 - if is_tcp { 4 } else { 2 };
        let made = frame([zero[field], zero[field + 1]]);
        let mut packet = Packet::copy_from(&mut pool, &made).unwrap();
        assert!(open_checksum(&mut packet) && fill_checksum(&mut packet));
        assert_eq!(packet.data()[field..field + 2], expected, "TCP: {is_tcp}");
        packet.free(&mut pool);
    }
}

#[test]
fn a_right_checksum_is_not_open() {
    let (_, mut pool) = pool();
    let open = (0..200u8).filter(|&i| {
        let sent = Sent {
            tags: 0,
            is_v4: i % 2 == 0,
            is_tcp: i % 3 == 0,
            options: 0,
            flags: [false; 3],
            sequence: 1,
            payload: vec![i; 10 + usize::from(i)],
        };
        let packet = Packet::copy_from(&mut pool, &sent.frame()).unwrap();
        let is_open = !open_offload(&packet).is_none();
        packet.free(&mut pool);
        is_open
    });
    assert_eq!(open.count(), 0);
}

#[test]
fn fragments_and_other_protocols_have_no_layout() {
    let sent = Sent {
        tags: 0,
        is_v4: true,
        is_tcp: false,
        options: 0,
        flags: [false; 3],
        sequence: 0,
        payload: vec![7; 40],
    };
    let frame = sent.frame();
    assert!(Layout::of(&frame, frame.len()).is_some());
    assert!(Layout::of(&frame, frame.len() - 1).is_none(), "the packet is not all there");
    let mut fragment = frame.clone();
    fragment[20] |= 0x20; // more fragments
    assert!(Layout::of(&fragment, fragment.len()).is_none());
    let mut icmp = frame.clone();
    icmp[23] = 1;
    assert!(Layout::of(&icmp, icmp.len()).is_none());
}
