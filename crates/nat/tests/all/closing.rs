//! How sessions end and begin again, and which make room for others.

use std::collections::BTreeSet;
use std::sync::Arc;

use nat::rules::{Action, Rules};
use nat::translator::{Options, Refusal, Source};
use nat::tuple::{Message, Tuple};
use nat::{Tcp, Translator, nat64};
use packet::IpProtocol;
use proptest::prelude::*;
use stream::table::Found;

use crate::properties::{
    OFFSETS, OUTSIDE, PREFIX, all_sessions, cached_step, options, rules, table_step,
};

/// Ports that are used again, and a reset that is ignored: the session lasts as long as an open one.
#[test]
fn closed_sessions_open_again() {
    for end in [&[(true, FIN | ACK), (false, FIN | ACK), (true, ACK)][..], &[(false, RST)]] {
        let mut own =
            Translator::new(options(), rules(Action::Source(vec![OUTSIDE]), 5000..=5009, 1))
                .unwrap();
        let original = Tuple {
            src: ([0, 0xc0a8_0101], 5001),
            dst: ([0, 0x0808_0808], 80),
            protocol: IpProtocol::TCP.0,
            family: 4,
            ..Tuple::default()
        };
        assert_eq!(cached_step(&mut own, &original, Tcp::with(SYN), 100), None);
        let made = own.begin(&original, original.dst, 4, Source::Rule(3, 1), 100).unwrap();
        let mut send = |is_forward: bool, tcp: u8, now_s: u32| {
            let of = if is_forward { original } else { made.reversed() };
            cached_step(&mut own, &of, Tcp::with(tcp), now_s).is_some()
        };
        let open = [(false, SYN | ACK), (true, ACK), (true, ACK), (false, ACK)];
        for (is_forward, tcp) in open.iter().chain(end) {
            assert!(send(*is_forward, *tcp, 101));
        }
        // A reset may be ignored; a closed connection is followed by a new one.
        let again: &[(bool, u8)] = if end.len() == 1 { &[] } else { &[(true, SYN)] };
        for (is_forward, tcp) in again.iter().chain(&open[usize::from(end.len() == 1)..]) {
            assert!(send(*is_forward, *tcp, 102));
        }
        while !own.sweep(1000, 102 + 7000) {}
        assert_eq!(all_sessions(&own, 7102).len(), 1, "{end:?}");
        while !own.sweep(1000, 102 + 7500) {}
        assert_eq!(all_sessions(&own, 7602).len(), 0, "{end:?}");
    }
}

/// A full table has room for a new connection as long as one is closed or has no answer, or one of UDP has one; then it has none.
#[test]
fn sessions_make_room_in_their_order() {
    let options = Options { sessions: 5, ..options() };
    let rules = rules(Action::Source(vec![OUTSIDE]), 5000..=5999, 1);
    let mut own = Translator::new(options, rules).unwrap();
    let of = |port: u16, protocol: IpProtocol| Tuple {
        src: ([0, 0xc0a8_0101 + u64::from(port)], port),
        dst: ([0, 0x0808_0808], 80),
        protocol: protocol.0,
        family: 4,
        ..Tuple::default()
    };
    let begin = |own: &mut Translator, original: Tuple, now_s: u32| {
        own.begin(&original, original.dst, 4, Source::Rule(3, 1), now_s)
    };
    let open = [(false, SYN | ACK), (true, ACK)];
    let closed = [(false, SYN | ACK), (true, ACK), (true, FIN | ACK), (false, FIN | ACK)];
    let reset = [(false, RST | ACK)];
    let scenes = [
        (5001, IpProtocol::TCP, &open[..]),
        (5002, IpProtocol::UDP, &[(false, 0)]),
        (5003, IpProtocol::TCP, &[]),
        (5004, IpProtocol::TCP, &closed),
        (5005, IpProtocol::TCP, &reset),
    ];
    for (port, protocol, packets) in scenes {
        let original = of(port, protocol);
        let made = begin(&mut own, original, 100).unwrap();
        for (is_forward, tcp) in packets {
            let packet = if *is_forward { original } else { made.reversed() };
            assert!(cached_step(&mut own, &packet, Tcp::with(*tcp), 100).is_some());
        }
    }
    for (number, gone) in [5004u16, 5005, 5003, 5002].iter().enumerate() {
        let original = of(5010 + number as u16, IpProtocol::TCP);
        let made = begin(&mut own, original, 101).unwrap();
        for (is_forward, tcp) in open {
            let packet = if is_forward { original } else { made.reversed() };
            assert!(cached_step(&mut own, &packet, Tcp::with(tcp), 101).is_some());
        }
        let left: Vec<u16> = all_sessions(&own, 101).iter().map(|own| own.original.src.1).collect();
        assert!(!left.contains(gone) && left.len() == 5, "{gone}: {left:?}");
    }
    assert_eq!(begin(&mut own, of(5020, IpProtocol::TCP), 102), Err(Refusal::Sessions));
    assert_eq!((own.counts().given_up, own.counts().sessions_exhausted), (4, 1));
    let used: u32 = own.pools().map(|pool| pool.used).sum();
    assert_eq!(used, 5, "ports of what made room are free again");
}

/// A reset ends a session if its receiver may take it: whoever does not see the connection has to guess a number.
#[test]
fn a_forged_reset_ends_no_session() {
    let [client, server] = [0xffff_fff0u32, 70_000];
    // Data of the server in the same second: 100 segments of 1,000 bytes, each acknowledged.
    let sent = server.wrapping_add(100_001);
    let begun = client.wrapping_add(1);
    // The reset, whether it is the client's, and whether it ends the session.
    let cases = [
        (of(RST, sent, 0), false, true),
        (of(RST | ACK, sent.wrapping_add(60_000), 5), false, true),
        (of(RST, sent.wrapping_sub(40_000), 0), false, false),
        (of(RST, sent.wrapping_add(200_000), 0), false, false),
        (of(RST | ACK, 0, begun), false, false),
        (of(RST, begun, 0), true, true),
        (of(RST, begun.wrapping_sub(1), 0), true, false),
        (of(RST, begun.wrapping_add(1 << 31), 0), true, false),
    ];
    for is_plain in [true, false] {
        for (reset, is_clients, ends) in cases {
            let mut own = Translator::new(options(), one_rule()).unwrap();
            let back = open(&mut own, of(SYN, client, 0));
            let mut send = |is_forward: bool, tcp: Tcp| {
                let of = if is_forward { ORIGINAL } else { back };
                let step = match is_plain {
                    true => cached_step(&mut own, &of, tcp, 100),
                    false => table_step(&mut own, &of, tcp, 100),
                };
                assert!(step.is_some(), "it is translated, whatever it is");
            };
            send(false, of(SYN | ACK, server, begun));
            send(true, of(ACK, begun, server.wrapping_add(1)));
            for at in 0..100 {
                let number = server.wrapping_add(1 + at * 1_000);
                send(false, of(ACK, number, begun));
                send(true, of(ACK, begun, number.wrapping_add(1_000)));
            }
            send(is_clients, reset);
            while !own.sweep(1000, 100 + 300) {}
            let left = all_sessions(&own, 400).len();
            assert_eq!(left, usize::from(!ends), "{reset:?} {is_plain}");
            assert_eq!(own.counts().resets_ignored, u64::from(!ends));
        }
    }
}

/// A server refuses a SYN by acknowledging it; its opener gives up behind it.
#[test]
fn a_syn_is_refused() {
    let isn = u32::MAX;
    for (reset, is_clients, counts) in [
        (of(RST | ACK, 0, 0), false, true),
        (of(RST | ACK, 0, isn), false, false),
        (of(RST | ACK, 0, 1 << 20), false, false),
        (of(RST, 0, 0), false, false),
        (of(RST, 0, 0), true, true),
        (of(RST, isn, 0), true, false),
    ] {
        let mut own = Translator::new(options(), one_rule()).unwrap();
        let back = open(&mut own, of(SYN, isn, 0));
        let packet = if is_clients { ORIGINAL } else { back };
        assert!(cached_step(&mut own, &packet, reset, 100).is_some());
        assert_eq!(own.counts().resets_ignored, u64::from(!counts), "{reset:?}");
    }
}

/// A host that has lost a connection begins another one with its ports, and is refused: the server's number is that of the new SYN.
#[test]
fn a_syn_of_an_open_connection_is_refused() {
    let mut own = Translator::new(options(), one_rule()).unwrap();
    let back = open(&mut own, of(SYN, 10, 0));
    let mut send = |is_forward: bool, tcp: Tcp| {
        let of = if is_forward { ORIGINAL } else { back };
        assert!(cached_step(&mut own, &of, tcp, 100).is_some());
        own.counts().resets_ignored
    };
    let open =
        [(false, of(SYN | ACK, 70, 11)), (true, of(ACK, 11, 71)), (true, of(ACK, 12, 9_071))];
    for (is_forward, tcp) in open {
        send(is_forward, tcp);
    }
    send(true, of(SYN, 1 << 30, 0));
    assert_eq!(send(false, of(RST, 9_071, 0)), 1, "of the connection before");
    assert_eq!(send(false, of(RST | ACK, 0, (1 << 30) + 1)), 1);
    while !own.sweep(1000, 100 + 300) {}
    assert!(own.is_empty());
}

/// What a cache knows is not lost with its line: connections of two families have room for few lines here, in other places with each seed.
#[test]
fn numbers_of_forgotten_lines_are_known() {
    let action = Action::Nat64 { prefix: PREFIX, to: vec![OUTSIDE] };
    for seed in 0..64 {
        let options = Options { sessions: 2, seed, ..options() };
        let mut own = Translator::new(options, rules(action.clone(), 5000..=5009, 1)).unwrap();
        let [first, second] = [7, 8].map(|host| {
            let (dst, src) = (nat64::embed(&PREFIX, 0x0808_0808), [0x2001_0db8_0000_0000, host]);
            let inside = Tuple { src: (src, 5001), dst: (dst, 80), family: 6, ..ORIGINAL };
            let by = (of(SYN, 0, 0), 100);
            let to = ([0, 0x0808_0808], 80);
            let made = own.begin_by(&inside, to, 4, Source::Rule(3, 1), by).unwrap();
            (inside, made.reversed())
        });
        let mut send = |packet: &Tuple, tcp: Tcp, now_s: u32| {
            assert!(cached_step(&mut own, packet, tcp, now_s).is_some());
        };
        for (inside, back) in [first, second] {
            send(&back, of(SYN | ACK, 0, 1), 100);
            send(&inside, of(ACK, 1, 1), 100);
        }
        for at in 0..20 {
            send(&first.0, of(ACK, 1, 1 + at * 20_000), 100);
        }
        send(&second.0, of(ACK, 1, 1), 101);
        send(&second.1, of(ACK, 1, 1), 101);
        send(&first.1, of(RST, 380_001, 0), 101);
        assert_eq!(own.counts().resets_ignored, 0, "{seed}");
    }
}

/// A packet that is refused ends no session to make room for its own.
#[test]
fn who_is_refused_takes_nobodys_place() {
    let options = Options { sessions: 3, bindings_per_host: 2, ..options() };
    let rules = rules(Action::Source(vec![OUTSIDE]), 5000..=5003, 1);
    let mut own = Translator::new(options, rules).unwrap();
    let udp = IpProtocol::UDP.0;
    for (host, port, protocol) in [(1, 5000, udp), (1, 5001, udp), (2, 0, 47)] {
        begin(&mut own, from(host, port, protocol)).unwrap();
    }
    let before = originals(&own);
    assert_eq!(begin(&mut own, from(1, 5002, udp)), Err(Refusal::HostLimit));
    assert_eq!(begin(&mut own, from(3, 0, 47)), Err(Refusal::Conflict));
    assert_eq!((originals(&own), own.counts().given_up), (before, 0));
    // One that is not refused does; the binding that both have stays.
    let again = Tuple { dst: ([0, 0x0808_0808], 81), ..from(1, 5000, udp) };
    let made = begin(&mut own, again).unwrap();
    assert_eq!((made.src.1, own.len(), own.counts().given_up), (5000, 3, 1));
    assert!(!originals(&own).contains(&from(1, 5000, udp)));
    let used: u32 = own.pools().map(|pool| pool.used).sum();
    assert_eq!(used, 2);
}

/// Where all ports are in use, a session makes room if the new one can have its port.
#[test]
fn the_port_of_what_makes_room_is_free() {
    let (udp, tcp) = (IpProtocol::UDP.0, IpProtocol::TCP.0);
    // The first session and the ports of others, the new one and the port that it gets.
    for (first, others, new, port) in [
        (from(1, 5000, udp), &[5001][..], from(3, 7000, udp), Ok(5000)),
        (from(1, 5001, udp), &[5000], from(3, 7000, udp), Ok(5001)),
        (from(1, 5001, udp), &[5000], from(3, 5001, udp), Ok(5001)),
        // Its port is that of another protocol, or it has none.
        (from(1, 5000, tcp), &[5000, 5001], from(3, 7000, udp), Err(Refusal::Ports)),
        (from(1, 0, 47), &[5000, 5001], from(3, 7000, udp), Err(Refusal::Ports)),
        // Only one host has a protocol without ports to a remote end.
        (from(1, 0, 47), &[], from(3, 0, 47), Ok(0)),
    ] {
        let options = Options { sessions: 1 + others.len(), ..options() };
        let rules = rules(Action::Source(vec![OUTSIDE]), 5000..=5001, 1);
        let mut own = Translator::new(options, rules).unwrap();
        begin(&mut own, first).unwrap();
        for other in others {
            begin(&mut own, from(2, *other, udp)).unwrap();
        }
        let before = originals(&own);
        assert_eq!(begin(&mut own, new).map(|made| made.src.1), port, "{first:?} {new:?}");
        let mut after = before.clone();
        if port.is_ok() {
            after.remove(&first);
            after.insert(new);
        }
        assert_eq!(originals(&own), after);
        assert_eq!(own.counts().given_up, u64::from(port.is_ok()));
    }
}

/// Sessions may end between the search of a batch and its packets, as those of an address that has changed: whoever looks at
/// [`Translator::ended`] knows.
#[test]
fn places_that_were_found_are_known_to_be_old() {
    let rules = rules(Action::Masquerade, 5000..=5999, 1);
    let mut own = Translator::new(options(), rules.clone()).unwrap();
    let first = from(1, 5000, 17);
    begin(&mut own, first).unwrap();
    let (key, _) = first.key();
    let mut found = [Found::NONE];
    own.find(&[key], 100, &mut found);
    let before = own.ended();
    begin(&mut own, from(1, 5001, 17)).unwrap();
    assert_eq!((own.ended(), own.find_again(&key)), (before, found[0].slot()));
    rules.own.set(1, Some(OUTSIDE + 1));
    begin(&mut own, from(1, 5002, 17)).unwrap();
    assert_eq!((own.ended(), own.len(), own.counts().given_up), (before + 2, 1, 0));
    assert_eq!(own.find_again(&key), None);
}

/// A packet whose rule has gone since it was looked up begins no session.
#[test]
fn rules_that_are_gone_begin_nothing() {
    let mut own = Translator::new(options(), one_rule()).unwrap();
    own.set_rules(Arc::new(Rules::new(Vec::new(), 1, one_rule().own.clone())));
    let dst = ([0, u64::from(OUTSIDE)], 80);
    for source in [Source::Keep(3), Source::Rule(3, 1), Source::Hairpin(3, 1), Source::Hairpin64(3)]
    {
        assert_eq!(own.begin(&ORIGINAL, dst, 4, source, 100), Err(Refusal::Gone), "{source:?}");
    }
    assert!(own.is_empty());
}

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

const ORIGINAL: Tuple = Tuple {
    src: ([0, 0xc0a8_0101], 5001),
    dst: ([0, 0x0808_0808], 80),
    protocol: IpProtocol::TCP.0,
    family: 4,
    message: Message::NONE,
};

fn of(flags: u8, sequence: u32, acknowledgment: u32) -> Tcp {
    Tcp { flags, sequence, acknowledgment }
}

fn one_rule() -> Arc<Rules> {
    rules(Action::Source(vec![OUTSIDE]), 5000..=5009, 1)
}

/// Begins the session of [`ORIGINAL`] with this segment; the ends of the answers.
fn open(own: &mut Translator, first: Tcp) -> Tuple {
    let made = own.begin_by(&ORIGINAL, ORIGINAL.dst, 4, Source::Rule(3, 1), (first, 100));
    made.unwrap().reversed()
}

/// A packet of an inside host to one remote end.
fn from(host: u64, port: u16, protocol: u8) -> Tuple {
    Tuple { src: ([0, host], port), protocol, ..ORIGINAL }
}

fn begin(own: &mut Translator, original: Tuple) -> Result<Tuple, Refusal> {
    own.begin(&original, original.dst, 4, Source::Rule(3, 1), 100)
}

/// The first packets of all sessions.
fn originals(own: &Translator) -> BTreeSet<Tuple> {
    all_sessions(own, 100).iter().map(|own| own.original).collect()
}

/// What a textbook knows of a connection: the number behind its SYN, what its ends have acknowledged, and its state.
#[derive(Default)]
struct Connection {
    begun: u32,
    acked: [Option<u32>; 2],
    is_answered: bool,
    is_established: bool,
    fin: [bool; 2],
    is_reset: bool,
}

impl Connection {
    fn is_over(&self) -> bool {
        self.is_reset || self.fin == [true; 2]
    }

    /// Whether a reset counts, of the opener (0) or of the other end.
    fn takes(&self, end: usize, tcp: Tcp) -> bool {
        let is_near = |from: u32, number: u32| number.wrapping_sub(from) <= 65_535 + 32_766;
        match (self.acked[1 - end], end) {
            (Some(acked), _) => is_near(acked, tcp.sequence),
            (None, 1) => tcp.flags & ACK != 0 && is_near(self.begun, tcp.acknowledgment),
            (None, _) => self.acked[0].is_some() || is_near(self.begun, tcp.sequence),
        }
    }

    fn send(&mut self, end: usize, tcp: Tcp) {
        if tcp.flags & RST != 0 {
            self.is_reset = true;
        } else {
            if self.is_over() && end == 0 && tcp.flags & SYN != 0 {
                *self = Connection { acked: self.acked, begun: self.begun, ..Self::default() };
            }
            self.is_reset = false;
        }
        self.is_established |= end == 0 && self.is_answered;
        self.is_answered |= end == 1;
        self.fin[end] |= tcp.flags & FIN != 0;
        if tcp.flags & (RST | ACK) == ACK {
            self.acked[end] = Some(tcp.acknowledgment);
        } else if tcp.flags == SYN && end == 0 {
            self.begun = tcp.sequence.wrapping_add(1);
            let is_new = !self.is_answered && !self.is_established;
            self.acked = [None, self.acked[1].filter(|_| !is_new)];
        }
    }
}

proptest! {
    /// Resets count as a textbook says, whether packets are plain or not.
    #[test]
    fn resets_count_as_in_a_plain_connection(
        steps in prop::collection::vec(
            (
                prop::sample::select(vec![
                    (SYN, 0usize), (SYN | ACK, 1), (ACK, 0), (ACK, 0), (ACK, 0), (ACK, 1), (ACK, 1), (FIN | ACK, 0), (FIN | ACK, 1),
                    (RST, 0), (RST, 1), (RST | ACK, 0), (RST | ACK, 1),
                ]),
                0u32..100_000, prop::sample::select(OFFSETS.to_vec()), 0u8..3, 0u32..2,
            ),
            1..100,
        ),
        start in prop::sample::select(vec![0u32, 0xffff_f000, 1 << 31]), first in prop::sample::select(vec![SYN, ACK, SYN | ACK]),
    ) {
        let mut own = Translator::new(options(), one_rule()).unwrap();
        let first = of(first, start, start);
        let back = open(&mut own, first);
        let mut plain = Connection::default();
        plain.send(0, first);
        let (mut now_s, mut ignored) = (100, 0);
        for ((flags, end), growth, offset, path, pause) in steps {
            now_s += pause;
            let acked = plain.acked.map(|acked| acked.unwrap_or(plain.begun));
            let tcp = match flags & RST {
                0 => of(flags, start.wrapping_add(growth), acked[end].wrapping_add(growth)),
                _ => of(flags, acked[1 - end].wrapping_add(offset), plain.begun.wrapping_add(offset)),
            };
            let packet = if end == 0 { ORIGINAL } else { back };
            let step = match path {
                0 => table_step(&mut own, &packet, tcp, now_s),
                _ => cached_step(&mut own, &packet, tcp, now_s),
            };
            prop_assert!(step.is_some());
            match flags & RST != 0 && !plain.takes(end, tcp) {
                true => ignored += 1,
                false => plain.send(end, tcp),
            }
            prop_assert_eq!(own.counts().resets_ignored, ignored, "{:?} of {}", tcp, end);
            let left_s = if plain.is_established && !plain.is_over() { 7440 } else { 240 };
            prop_assert_eq!(all_sessions(&own, now_s)[0].left_s, left_s, "{:?} of {}", tcp, end);
        }
    }
}
