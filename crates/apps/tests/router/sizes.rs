//! Long packets: fragments, cut tails, errors; frames in many cells; no cells.

use apps::router::PipelineOptions;
use apps::router::reasons;
use chunk::{Packet, Verdict};
use lookup::fib::Fib;

use crate::bench::{Bench, Input, Seen};
use crate::scenario::{fib, frame, two_ports, unlimited};

fn run(fib: &Fib, frame: &[u8]) -> Seen {
    let mut bench = Bench::new(&PipelineOptions::default());
    let seen = bench.run(fib, &[Input::new(0, frame.to_vec())]).remove(0);
    bench.finish();
    seen
}

fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 256) as u8).collect()
}

/// Puts fragments together as a receiver does, with etherparse's reading of the headers.
fn reassemble(fragments: &[(u16, Vec<u8>)], mtu: usize) -> Vec<u8> {
    let mut whole = Vec::new();
    for (i, (_, frame)) in fragments.iter().enumerate() {
        assert!(frame.len() <= 14 + mtu);
        let (header, rest) = etherparse::Ipv4Header::from_slice(&frame[14..]).expect("IPv4");
        assert_eq!(header.header_checksum, header.calc_header_checksum());
        assert_eq!(usize::from(header.fragment_offset.value()) * 8, whole.len());
        assert_eq!(header.more_fragments, i + 1 < fragments.len());
        assert_eq!(usize::from(header.total_len), frame.len() - 14);
        assert_eq!(header.time_to_live, 63);
        whole.extend(rest);
    }
    whole
}

#[test]
fn a_chain_of_cells_leaves_in_fragments() {
    let fib = fib(&two_ports(unlimited()));
    // The longest frame of the shipped captures, and the longest IPv4 packet.
    for len in [16_450 - 42, 65_535 - 28] {
        let bytes = frame().ipv4("10.0.1.2", "8.8.8.8").udp(1, 2, &payload(len)).bytes();
        let seen = run(&fib, &bytes);
        assert_eq!(seen.verdict, Verdict::TAKEN);
        assert!(seen.emitted.iter().all(|(port, _)| *port == 1));
        assert_eq!(reassemble(&seen.emitted, 1500), bytes[34..], "{len}");
    }
}

/// No total length can say 1 MB: what is behind the packet is not part of it.
#[test]
fn a_frame_of_1_mb_is_as_long_as_its_packet() {
    let fib = fib(&two_ports(unlimited()));
    for len in [100, 1472, 1473, 40_000] {
        let short = frame().ipv4("10.0.1.2", "8.8.8.8").udp(1, 2, &payload(len)).bytes();
        let mut long = short.clone();
        long.resize(1 << 20, 0xee);
        let (short, long) = (run(&fib, &short), run(&fib, &long));
        assert_eq!(short, long, "{len}");
    }
}

#[test]
fn padding_stays_where_it_fits_and_goes_where_it_does_not() {
    let fib = fib(&two_ports(unlimited()));
    let cases = [(18, 60, 60), (18, 1514, 1514), (18, 1515, 60), (1472, 1520, 1514)];
    for (len, frame_len, expected) in cases {
        let bytes = frame().ipv4("10.0.1.2", "8.8.8.8").udp(1, 2, &payload(len)).padded(frame_len);
        let seen = run(&fib, &bytes);
        assert_eq!(seen.forwarded_to(), Some(1));
        assert_eq!(seen.frame.len(), expected, "{len} in {frame_len}");
    }
}

#[test]
fn a_packet_that_may_not_be_cut_causes_an_error_with_the_mtu() {
    let fib = fib(&two_ports(unlimited()));
    let v4 = frame().ipv4("10.0.1.2", "8.8.8.8").dont_fragment().udp(1, 2, &payload(3000)).bytes();
    let seen = run(&fib, &v4);
    assert_eq!(seen.drop_reason(), Some(reasons::FRAGMENTATION_NEEDED));
    let [(0, error)] = &seen.emitted[..] else { panic!("{:?}", seen.emitted) };
    assert_eq!(error.len(), 14 + 576);
    assert_eq!(error[34..36], [3, 4]);
    assert_eq!(error[40..42], 1500u16.to_be_bytes());
    assert_eq!(error[42..62], v4[14..34], "the header as it came, with its TTL");
    assert_eq!(error[26..30], [10, 0, 1, 1], "from the interface that it came in by");

    let v6 = frame().ipv6("fd00:1::2", "2600::1").udp(1, 2, &payload(3000)).bytes();
    let seen = run(&fib, &v6);
    assert_eq!(seen.drop_reason(), Some(packet::reasons::TOO_BIG));
    let [(0, error)] = &seen.emitted[..] else { panic!("{:?}", seen.emitted) };
    assert_eq!(error.len(), 14 + 1280);
    assert_eq!(error[54..56], [2, 0]);
    assert_eq!(error[58..62], 1500u32.to_be_bytes());
}

/// With cells for some fragments only, none is sent, and none is kept.
#[test]
fn fragments_leave_all_or_none() {
    let fib = fib(&two_ports(unlimited()));
    let bytes = frame().ipv4("10.0.1.2", "8.8.8.8").udp(1, 2, &payload(10_000)).bytes();
    let mut bench = Bench::new(&PipelineOptions::default());
    let mut hoard = Vec::new();
    while let Some(packet) = Packet::copy_from(&mut bench.pool, &[0]) {
        hoard.push(packet);
    }
    for spare in [6, 7, 10, 12] {
        for packet in hoard.drain(..spare) {
            packet.free(&mut bench.pool);
        }
        let seen = bench.run(&fib, &[Input::new(0, bytes.clone())]);
        // Six cells hold the packet itself; seven more hold its fragments.
        if spare < 6 + 7 {
            assert_eq!(seen[0].drop_reason(), Some(chunk::reasons::NO_CELLS), "{spare}");
            assert!(seen[0].emitted.is_empty());
        }
        for _ in 0..spare {
            hoard.extend(Packet::copy_from(&mut bench.pool, &[0]));
        }
    }
    for packet in hoard {
        packet.free(&mut bench.pool);
    }
    let seen = bench.run(&fib, &[Input::new(0, bytes)]);
    assert_eq!(seen[0].emitted.len(), 7);
    bench.finish();
}
