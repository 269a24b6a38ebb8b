//! Ports that are used again, in captures without SYN-ACKs.

use packet::tcp::flags::{ACK, FIN, PSH, SYN};

use super::cases::{play, show};
use super::{Bench, Recorder, segment};
use crate::key::Side::{self, A, B};
use crate::tcp::{Connection, Options, Outcome, Segment};

/// In a capture without its SYN-ACK, the connection that a SYN began has what its client sent before the other end was heard of it.
#[test]
fn a_port_used_again_without_syn_ack() {
    // What goes before, up to the segment that shows it; that one and what follows; the streams of the new connection.
    let cases = [
        (
            "A S 700001 0; !A . 700002 90001; !A . 700002 90001 one; !A . 700005 90001 two; *B . 90001 700008",
            "B . 90001 700008; A . 700008 90001 !",
            ["onetwo!", ""],
        ),
        // In another order, twice, and with FIN.
        (
            "A S 700001 0; !A . 700005 90001 two; A S 700001 0; !A . 700002 90001 one; !A . 700002 90001 one; \
             !A FA 700008 90001; *B . 90001 700009 yes",
            "B . 90001 700009 yes; B FA 90004 700009; A . 700009 90005",
            ["onetwo|", "yes|"],
        ),
        // The numbers of the client are within its window, those of the server are not.
        (
            "A S 5000 0; !A . 5001 900000001; !A . 5001 900000001 one; *B . 900000001 5004 yes",
            "B . 900000001 5004 yes",
            ["one", "yes"],
        ),
        // The server has not taken what was sent before its SYN-ACK, or what acknowledges a number that it is not at.
        (
            "A S 700001 0; !A . 700002 90001 bad; *B SA 90000 700002",
            "B SA 90000 700002; A . 700002 90001 good",
            ["good", ""],
        ),
        (
            "A S 700001 0; !A . 700002 700090001 bad; *B . 90001 700002",
            "B . 90001 700002; A . 700002 90001 good",
            ["good", ""],
        ),
        // Whatever it acknowledges moves no number of the server.
        (
            "A S 700001 0; !A . 700002 -60001 one; *B . 90001 700005 yes",
            "B . 90001 700005 yes; A . 700005 90004 two",
            ["onetwo", "yes"],
        ),
        (
            "A S 700001 0; !A . 700002 90002 one; *B . 90001 700005 y",
            "B . 90001 700005 y; A . 700005 90002 two",
            ["onetwo", "y"],
        ),
        // Another SYN: those behind the one before are none of its.
        (
            "A S 700001 0; !A . 700002 90001 bad; A S 600001 0; *B . 90001 600002",
            "B . 90001 600002; A . 600002 90001 good",
            ["good", ""],
        ),
    ];
    for (before, after, streams) in cases {
        let mut bench = Bench::open(Options::default());
        play(&mut bench, &format!("A . 1 1 old; B . 1 4; {before}"));
        let (sequence, flags) = match after.contains("SA") {
            true => (90_000, SYN | ACK),
            false => (90_001, ACK),
        };
        let first = segment(bench.initial[1] + sequence, 0, flags, b"");
        let known = bench.connection.again(&first);
        assert_eq!(known.client(), Some(A));
        bench.close();
        assert_eq!(show(&bench.sink, A), "old~", "{before}");
        bench.connection = Connection::new(B);
        bench.connection.begin_again(&known);
        bench.sink = Recorder::default();
        play(&mut bench, after);
        assert_eq!(Side::BOTH.map(|side| show(&bench.sink, side)), streams, "{before}");
        bench.close();
    }
}

/// Which packets of a connection a capture has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Capture {
    ClientOnly,
    ServerOnly,
    NoSynAck,
}

/// The segments of a connection between `client` and `server`, the numbers of their SYNs; it ends by FIN or not at all.
fn whole(client: u32, server: u32, is_ended: bool) -> Vec<(Side, Segment<'static>)> {
    let (c, s) = (client.wrapping_add(1), server.wrapping_add(1));
    let (sent, said) = (c.wrapping_add(12), s.wrapping_add(6));
    let mut all = vec![
        (A, segment(client, 0, SYN, b"")),
        (B, segment(server, c, SYN | ACK, b"")),
        (A, segment(c, s, ACK, b"")),
        (A, segment(c, s, ACK | PSH, b"first ")),
        (A, segment(c.wrapping_add(6), s, ACK | PSH, b"second")),
        (B, segment(s, sent, ACK, b"")),
        (B, segment(s, sent, ACK | PSH, b"answer")),
        (A, segment(sent, said, ACK, b"")),
    ];
    if is_ended {
        all.push((A, segment(sent, said, ACK | FIN, b"")));
        all.push((B, segment(said, sent.wrapping_add(1), ACK | FIN, b"")));
        all.push((A, segment(sent.wrapping_add(1), said.wrapping_add(1), ACK, b"")));
    }
    all
}

/// 100 ports, each with four connections one after the other.
#[test]
fn ports_used_again_and_again() {
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut draw = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 32) as u32
    };
    for capture in [Capture::ClientOnly, Capture::ServerOnly, Capture::NoSynAck] {
        let mut found = Vec::new();
        for port in 0..100 {
            let mut bench = Bench::new(Options::default());
            for number in 0..4 {
                let all = whole(draw(), draw(), (port + number) % 3 == 0);
                let is_captured = |(side, segment): &(Side, Segment<'_>)| match capture {
                    Capture::ClientOnly => *side == A,
                    Capture::ServerOnly => *side == B,
                    Capture::NoSynAck => segment.flags & (SYN | ACK) != SYN | ACK,
                };
                for (side, segment) in all.into_iter().filter(is_captured) {
                    if bench.send(side, segment) != Outcome::Restart {
                        continue;
                    }
                    let again = bench.connection.again(&segment);
                    bench.close();
                    found.push(Side::BOTH.map(|side| bench.sink.bytes(side)));
                    bench.connection = Connection::new(side);
                    bench.connection.begin_again(&again);
                    bench.sink = Recorder::default();
                    assert_ne!(bench.send(side, segment), Outcome::Restart);
                }
            }
            bench.close();
            found.push(Side::BOTH.map(|side| bench.sink.bytes(side)));
        }
        let sent: [&[u8]; 2] = match capture {
            Capture::ClientOnly => [b"first second", b""],
            Capture::ServerOnly => [b"", b"answer"],
            Capture::NoSynAck => [b"first second", b"answer"],
        };
        let is_whole = |streams: &&[Vec<u8>; 2]| {
            streams.iter().zip(sent).all(|(found, sent)| found.as_slice() == sent)
        };
        let whole = found.iter().filter(is_whole).count();
        assert_eq!((found.len(), whole), (400, 400), "{capture:?}");
    }
}
