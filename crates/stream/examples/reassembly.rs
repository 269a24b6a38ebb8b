//! Nanoseconds per segment of TCP reassembly, over synthetic HTTP (GASPP §7.2): a connection has 870 packets, of which 320
//! are ACKs of the client and 550 are full-size data of the server.
//!
//! | row | data segments |
//! | --- | --- |
//! | in order | as sent |
//! | half late | half of them, chosen at random, come 1 to 64 places later |
//! | all twice | each follows itself |
//!
//! Connections take turns, packet by packet. A sink that counts shows the cost of reassembly alone; one that reads all bytes
//! is the least that an inspecting application does. Run: `cargo run --release -p stream --example reassembly`.

use std::time::Instant;

use packet::tcp::flags::{ACK, FIN, SYN};
use stream::tcp::{Connection, End, Options, Outcome, Reassembler, Segment, Sink, Want};
use stream::{Side, SideRecord};

const DATA: usize = 550;
const ACKS: usize = 320;
const PAYLOAD: usize = 1448;
/// Payloads are in cells of a ring, as those of a network card.
const CELLS: usize = 1024;
const CELL: usize = 2048;

/// A packet of the script that all connections follow, relative to the initial sequence numbers.
#[derive(Clone, Copy)]
struct Packet {
    side: Side,
    flags: u16,
    sequence: u32,
    acknowledgment: u32,
    len: usize,
}

/// xorshift64*
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Order {
    AsSent,
    HalfLate,
    Twice,
}

/// The script of a connection: handshake, request, data with ACKs of what arrived in order, FIN.
fn script(order: Order) -> Vec<Packet> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut places: Vec<(usize, usize)> = (0..DATA)
        .map(|index| match order {
            Order::HalfLate if random.below(2) == 0 => {
                (index + 1 + random.below(64) as usize, index)
            }
            _ => (index, index),
        })
        .collect();
    places.sort_by_key(|&(place, index)| (place, order == Order::HalfLate && place == index));
    let client = |flags, sequence, acknowledgment, len| Packet {
        side: Side::A,
        flags,
        sequence,
        acknowledgment,
        len,
    };
    let server = |flags, sequence, acknowledgment, len| Packet {
        side: Side::B,
        ..client(flags, sequence, acknowledgment, len)
    };
    let mut packets =
        vec![client(SYN, 0, 0, 0), server(SYN | ACK, 0, 1, 0), client(ACK, 1, 1, 300)];
    let (mut arrived, mut next, mut acks) = (vec![false; DATA], 0, 0);
    for (count, &(_, index)) in places.iter().enumerate() {
        let sequence = (1 + index * PAYLOAD) as u32;
        for _ in 0..if order == Order::Twice { 2 } else { 1 } {
            packets.push(server(ACK, sequence, 301, PAYLOAD));
        }
        arrived[index] = true;
        while arrived.get(next) == Some(&true) {
            next += 1;
        }
        if (count + 1) * ACKS / DATA > acks {
            acks += 1;
            packets.push(client(ACK, 301, (1 + next * PAYLOAD) as u32, 0));
        }
    }
    let end = (1 + DATA * PAYLOAD) as u32;
    packets.push(server(FIN | ACK, end, 301, 0));
    packets.push(client(FIN | ACK, 301, end + 1, 0));
    packets.push(server(ACK, end + 1, 302, 0));
    packets
}

struct Reader {
    reads: bool,
    bytes: u64,
    sum: u64,
    gaps: u64,
}

impl Sink for Reader {
    fn data(&mut self, _side: Side, _offset: u64, bytes: &[u8]) -> Want {
        self.bytes += bytes.len() as u64;
        if self.reads {
            let words = bytes.as_chunks::<8>().0;
            self.sum = words.iter().fold(self.sum, |sum, word| {
                sum.wrapping_add(u64::from_le_bytes(*word)).rotate_left(1)
            });
        }
        Want::More
    }

    fn gap(&mut self, _side: Side, _offset: u64, bytes: u64) {
        self.gaps += bytes;
    }

    fn end(&mut self, _side: Side, _offset: u64, _end: End) {}
}

struct Run {
    ns_per_segment: f64,
    out_of_order: u64,
    retransmissions: u64,
}

fn run(order: Order, connections: usize, reads: bool, cells: &[u8]) -> Run {
    let packets = script(order);
    let mut reassembler =
        Reassembler::new(Options { buffer_bytes: connections * (256 << 10), ..Options::default() });
    let rounds = (2_000_000 / (packets.len() * connections)).clamp(1, 2_000);
    let mut best_ns = f64::INFINITY;
    let mut totals = [0; 2];
    for _ in 0..5 {
        let mut sink = Reader { reads, bytes: 0, sum: 0, gaps: 0 };
        totals = [0; 2];
        let mut spent_ns = 0;
        for _ in 0..rounds {
            let mut flows = vec![Connection::new(Side::A); connections];
            let (mut cell, mut now_ns) = (0, 0);
            let start = Instant::now();
            for packet in &packets {
                for (index, flow) in flows.iter_mut().enumerate() {
                    now_ns += 1_000;
                    cell = (cell + 1) % CELLS;
                    let initial = [index as u32 * 7919, index as u32 * 104_729];
                    let [own, other] = match packet.side {
                        Side::A => initial,
                        Side::B => [initial[1], initial[0]],
                    };
                    let segment = Segment {
                        sequence: own.wrapping_add(packet.sequence),
                        acknowledgment: other.wrapping_add(packet.acknowledgment),
                        flags: packet.flags,
                        window: 0xffff,
                        payload: &cells[cell * CELL..][..packet.len],
                        ..Segment::default()
                    };
                    let outcome =
                        reassembler.segment(flow, packet.side, &segment, now_ns, &mut sink);
                    debug_assert_eq!(outcome, Outcome::Accepted);
                }
            }
            spent_ns += start.elapsed().as_nanos();
            for flow in &mut flows {
                let mut record = SideRecord::default();
                flow.report(Side::B, &mut record);
                totals[0] += u64::from(record.out_of_order);
                totals[1] += u64::from(record.retransmissions);
                assert!(flow.is_closed());
                reassembler.close(flow, &mut sink);
            }
        }
        let expected = (rounds * connections * (DATA * PAYLOAD + 300)) as u64;
        assert_eq!((sink.bytes, sink.gaps), (expected, 0), "all bytes, once");
        std::hint::black_box(sink.sum);
        best_ns = best_ns.min(spent_ns as f64 / (rounds * connections * packets.len()) as f64);
    }
    let flows = (rounds * connections) as u64;
    Run {
        ns_per_segment: best_ns,
        out_of_order: totals[0] / flows,
        retransmissions: totals[1] / flows,
    }
}

fn main() {
    let cells: Vec<u8> = (0..CELLS * CELL).map(|at| ((at * 31) >> 3) as u8).collect();
    println!("Connection {} bytes; best of 5; per segment, ACKs included", size_of::<Connection>());
    println!(
        "{:>11} {:>6} {:>14} {:>14} {:>8} {:>16}",
        "connections", "sink", "in order ns", "half late ns", "rate", "retransmitted ns"
    );
    for connections in [1, 100, 2_000] {
        for reads in [false, true] {
            let in_order = run(Order::AsSent, connections, reads, &cells);
            let late = run(Order::HalfLate, connections, reads, &cells);
            let twice = run(Order::Twice, connections, reads, &cells);
            let (once, both) = (script(Order::AsSent).len(), script(Order::Twice).len());
            let again = (twice.ns_per_segment * both as f64
                - in_order.ns_per_segment * once as f64)
                / (both - once) as f64;
            println!(
                "{connections:>11} {:>6} {:>14.1} {:>14.1} {:>7.0}% {again:>16.1}   ({} of {DATA} out of order, {} repeated)",
                if reads { "reads" } else { "counts" },
                in_order.ns_per_segment,
                late.ns_per_segment,
                100.0 * in_order.ns_per_segment / late.ns_per_segment,
                late.out_of_order,
                twice.retransmissions,
            );
        }
    }
}
