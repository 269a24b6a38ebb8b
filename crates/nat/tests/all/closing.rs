//! How sessions end and begin again, and which make room for others.

use nat::Translator;
use nat::rules::Action;
use nat::translator::{Options, Refusal, Source};
use nat::tuple::Tuple;
use packet::IpProtocol;

use crate::properties::{OUTSIDE, all_sessions, cached_step, options, rules};

/// Ports that are used again, and a reset that is ignored: the session lasts as long as an open one.
#[test]
fn closed_sessions_open_again() {
    const FIN: u8 = 1;
    const SYN: u8 = 2;
    const RST: u8 = 4;
    const ACK: u8 = 16;
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
        assert_eq!(cached_step(&mut own, &original, SYN, 100), None);
        let made = own.begin(&original, original.dst, 4, Source::Rule(3, 1), 100).unwrap();
        let mut send = |is_forward: bool, tcp: u8, now_s: u32| {
            let of = if is_forward { original } else { made.reversed() };
            cached_step(&mut own, &of, tcp, now_s).is_some()
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
    const FIN: u8 = 1;
    const SYN: u8 = 2;
    const RST: u8 = 4;
    const ACK: u8 = 16;
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
            assert!(cached_step(&mut own, &packet, *tcp, 100).is_some());
        }
    }
    for (number, gone) in [5004u16, 5005, 5003, 5002].iter().enumerate() {
        let original = of(5010 + number as u16, IpProtocol::TCP);
        let made = begin(&mut own, original, 101).unwrap();
        for (is_forward, tcp) in open {
            let packet = if is_forward { original } else { made.reversed() };
            assert!(cached_step(&mut own, &packet, tcp, 101).is_some());
        }
        let left: Vec<u16> = all_sessions(&own, 101).iter().map(|own| own.original.src.1).collect();
        assert!(!left.contains(gone) && left.len() == 5, "{gone}: {left:?}");
    }
    assert_eq!(begin(&mut own, of(5020, IpProtocol::TCP), 102), Err(Refusal::Sessions));
    assert_eq!((own.counts().given_up, own.counts().sessions_exhausted), (4, 1));
    let used: u32 = own.pools().map(|pool| pool.used).sum();
    assert_eq!(used, 5, "ports of what made room are free again");
}
