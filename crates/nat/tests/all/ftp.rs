//! What control connections of FTP announce, against a plain list of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use nat::ftp::{Passed, Segment, Stop};
use nat::rules::{Action, Own, Owner, Prefix, Rule, Rules};
use nat::translator::{EXPECTED_S, Options, Refusal, Source, Timeouts, Way};
use nat::tuple::{End, Tuple};
use nat::{Tcp, Translator};
use proptest::prelude::*;
use stream::table::Found;

const OUTSIDE: u32 = 0xcb00_7101;
const NUMBER: u16 = 3;

fn rule(action: Action, ports: std::ops::RangeInclusive<u16>) -> Rule {
    let (outside, sources) = (Vec::new(), Vec::new());
    Rule { number: NUMBER, outside, sources, protocol: Some(6), ports, action }
}

fn translator(rule: Rule, sessions: usize) -> Translator {
    translator_of(Rules::new(vec![rule], 1, Arc::new(Own::new(2))).with_ftp(true), sessions)
}

fn translator_of(rules: Rules, sessions: usize) -> Translator {
    let long = 1_000_000;
    let timeouts = Timeouts {
        tcp_established: long,
        tcp_transitory: long,
        udp: long,
        icmp: long,
        other: long,
    };
    let options = Options {
        sessions,
        bindings_per_host: 1000,
        filter_by_remote: true,
        timeouts,
        ftp_ports: &[21],
        seed: 5,
    };
    Translator::new(options, Arc::new(rules)).expect("memory")
}

fn v4(address: u32, port: u16) -> End {
    ([0, address.into()], port)
}

fn tcp(src: End, dst: End) -> Tuple {
    Tuple { src, dst, protocol: 6, family: 4, ..Tuple::default() }
}

/// A segment as it leaves with the ends `tuple`: what the stage does behind the translation of ends.
fn send(
    own: &mut Translator,
    tuple: &Tuple,
    seq: u32,
    flags: u8,
    text: &str,
    now_s: u32,
) -> Option<Result<String, Stop<Refusal>>> {
    let mut out = [0; 400];
    let segment = Segment { seq, flags, payload: text.as_bytes(), room: 400 };
    let passed = own.announce(tuple, &segment, &mut out, now_s)?;
    Some(passed.map(|Passed { kept, len, .. }| {
        let text = len.map_or(&text.as_bytes()[..kept], |len| &out[..len]);
        String::from_utf8_lossy(text).into_owned()
    }))
}

fn port_line(address: u32, port: u16) -> String {
    let [a, b, c, d] = address.to_be_bytes();
    format!("PORT {a},{b},{c},{d},{},{}\r\n", port >> 8, port & 255)
}

/// The receiver acknowledges all bytes up to `ack`, as it counts; the number as the sender counts.
fn acknowledge(own: &mut Translator, control: &Control, ack: u32) -> u32 {
    let (key, side) = control.translated.reversed().key();
    let mut found = [Found::NONE];
    own.find(&[key], 100, &mut found);
    let slot = found[0].slot().expect("a session");
    assert_eq!(own.step(slot, side, Tcp::with(0x10)).expect("a session").1, Way::Back);
    assert!(own.is_control(slot));
    let mut ip = [0; 40];
    ip[28..32].copy_from_slice(&ack.to_be_bytes());
    (ip[32], ip[33]) = (0x50, 0x10);
    own.acknowledge(slot, Way::Back, &mut ip, 20);
    u32::from_be_bytes([ip[28], ip[29], ip[30], ip[31]])
}

/// The handshake of a connection ends: its session makes no room for others.
fn establish(own: &mut Translator, original: &Tuple, translated: &Tuple) {
    for (packet, flags) in [(translated.reversed(), 0x12), (*original, 0x10)] {
        let (key, side) = packet.key();
        let mut found = [Found::NONE];
        own.find(&[key], 100, &mut found);
        assert!(own.step(found[0].slot().expect("a session"), side, Tcp::with(flags)).is_some());
    }
}

/// The end in a line.
fn end_of(line: &str) -> (u32, u16) {
    let numbers: Vec<u8> =
        line.trim()[5..].split(',').map(|own| own.parse().expect("a number")).collect();
    let address = u32::from_be_bytes(numbers[..4].try_into().expect("four"));
    (address, u16::from_be_bytes(numbers[4..].try_into().expect("two")))
}

/// A control connection of the list.
struct Control {
    original: Tuple,
    translated: Tuple,
    next: u32,
    /// The next number as the server counts.
    there: u32,
    expected: Option<Expected>,
}

impl Control {
    /// A line went on as `sent`, and is acknowledged.
    fn sent(&mut self, own: &mut Translator, line: &str, sent: &str) {
        self.next += line.len() as u32;
        self.there += sent.len() as u32;
        assert_eq!(acknowledge(own, self, self.there), self.next);
    }
}

#[derive(Clone, Copy)]
struct Expected {
    outside: u16,
    inside: End,
    until_s: u32,
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn announced_ends_are_those_of_a_list(
        steps in prop::collection::vec((0u8..12, 0usize..5, 0u16..6, 0u32..40), 1..200),
        narrow in 3u16..20, sessions in prop::sample::select(vec![4usize, 9, 64]),
    ) {
        let action = Action::Source(vec![OUTSIDE]);
        let mut own = translator(rule(action, 5000..=5000 + narrow), sessions);
        let server = |number: usize| 0x0808_0800 + number as u32 % 2;
        let host = |number: usize| 0xc0a8_0100 + number as u32 % 3;
        let mut controls: BTreeMap<usize, Control> = BTreeMap::new();
        // Data connections: their ends before the translator, and the inside end.
        let mut data: Vec<(Tuple, End)> = Vec::new();
        let (mut now_s, mut source) = (100, 1000);
        for (what, number, port, pause) in steps {
            now_s += pause;
            while !own.sweep(11, now_s) {}
            for control in controls.values_mut() {
                control.expected = control.expected.filter(|known| known.until_s > now_s);
            }
            let held = |controls: &BTreeMap<usize, Control>, data: &[(Tuple, End)]| {
                let of = controls.values().map(|own| own.original.src);
                let expected = controls.values().filter_map(|own| Some(own.expected?.inside));
                of.chain(expected).chain(data.iter().map(|own| own.1)).collect::<BTreeSet<_>>()
            };
            let expected = controls.values().filter(|own| own.expected.is_some()).count();
            let room = sessions > controls.len() + data.len() + expected;
            match what {
                // A control connection begins or ends.
                0 | 1 if !controls.contains_key(&number) => {
                    let original = tcp(v4(host(number), 6000 + number as u16), v4(server(number), 21));
                    let made = own.begin(&original, original.dst, 4, Source::Rule(NUMBER, 0), now_s);
                    let free = usize::from(narrow) + 1 > held(&controls, &data).len();
                    match (made, room, free) {
                        (Ok(translated), true, true) => {
                            let sent = send(&mut own, &translated, 9, 2, "", now_s);
                            prop_assert_eq!(sent, Some(Ok(String::new())));
                            establish(&mut own, &original, &translated);
                            controls.insert(number, Control { original, translated, next: 10, there: 10, expected: None });
                        }
                        (Err(Refusal::Sessions), false, _) | (Err(Refusal::Ports), true, false) => {}
                        other => prop_assert!(false, "{:?}", other),
                    }
                }
                1 => {
                    let control = controls.remove(&number).expect("one");
                    prop_assert_eq!(own.forget(|known| known.tuple == control.translated), 1);
                }
                // It announces an end of its host, or of another one, or a low port.
                2..=6 => {
                    let Some(control) = controls.get(&number) else { continue };
                    let (address, announced) = match (what, port) {
                        (2, 0) => (host(number) + 9, 7000),
                        (2, 1) => (host(number), 999),
                        _ => (host(number), 7000 + port),
                    };
                    let line = port_line(address, announced);
                    let refused = own.counts().ftp_refused;
                    let sent = send(&mut own, &control.translated, control.next, 0x18, &line, now_s);
                    let sent = sent.expect("a control connection");
                    if (address, announced) == (host(number) + 9, 7000) || announced == 999 {
                        prop_assert_eq!(sent, Ok(line.clone()));
                        prop_assert_eq!(own.counts().ftp_refused, refused + 1);
                        controls.get_mut(&number).expect("one").sent(&mut own, &line, &line);
                        continue;
                    }
                    // What it announced before is over, and what another one of the host announced to the same server.
                    controls.get_mut(&number).expect("one").expected = None;
                    let inside = v4(address, announced);
                    let is_free = usize::from(narrow) + 1 > held(&controls, &data).len();
                    let is_known = held(&controls, &data).contains(&inside);
                    let expected = controls.values().filter(|own| own.expected.is_some()).count();
                    let room = sessions > controls.len() + data.len() + expected;
                    match sent {
                        Ok(edited) => {
                            prop_assert!(room && (is_free || is_known));
                            let (at, outside) = end_of(&edited);
                            prop_assert!(at == OUTSIDE && (5000..=5000 + narrow).contains(&outside));
                            for other in controls.values_mut().filter(|own| own.original.dst.0 == v4(server(number), 0).0) {
                                other.expected = other.expected.filter(|known| known.outside != outside);
                            }
                            let control = controls.get_mut(&number).expect("one");
                            control.sent(&mut own, &line, &edited);
                            control.expected = Some(Expected { outside, inside, until_s: now_s + EXPECTED_S });
                        }
                        Err(Stop::Refused(Refusal::Ports)) => prop_assert!(room && !is_free && !is_known),
                        Err(Stop::Refused(Refusal::Sessions)) => prop_assert!(!room),
                        other => prop_assert!(false, "{:?}", other),
                    }
                }
                // A data connection comes, from whom it should or from another one.
                7..=9 => {
                    let Some(control) = controls.get(&number) else { continue };
                    let Some(known) = control.expected else { continue };
                    source += 1;
                    let from = if what == 9 { server(number + 1) } else { server(number) };
                    let first = tcp(v4(from, source), v4(OUTSIDE, known.outside));
                    let hit = controls.values().find(|own| {
                        own.original.dst.0 == first.src.0
                            && own.expected.is_some_and(|known| known.outside == first.dst.1)
                    });
                    let inside = hit.and_then(|own| Some(own.expected?.inside));
                    prop_assert_eq!(own.expected(&first), inside.map(|inside| (NUMBER, inside)));
                    let Some(inside) = inside else { continue };
                    let made = own.begin(&first, inside, 4, Source::Keep(NUMBER), now_s);
                    prop_assert_eq!(made, Ok(Tuple { dst: inside, ..first }));
                    prop_assert_eq!(own.expected(&first), None, "one connection");
                    for control in controls.values_mut().filter(|own| own.original.dst.0 == first.src.0) {
                        control.expected = control.expected.filter(|known| known.outside != first.dst.1);
                    }
                    // Its answers are translated back.
                    let answer = tcp(inside, first.src);
                    let (key, side) = answer.key();
                    let mut found = [Found::NONE];
                    own.find(&[key], now_s, &mut found);
                    let step = own.step(found[0].slot().expect("a session"), side, Tcp::with(0x10));
                    prop_assert_eq!(step, Some((first.reversed(), Way::Back)));
                    establish(&mut own, &first, &Tuple { dst: inside, ..first });
                    data.push((first, inside));
                }
                10 if !data.is_empty() => {
                    let (first, inside) = data.swap_remove(number % data.len());
                    prop_assert_eq!(own.forget(|known| known.tuple == Tuple { dst: inside, ..first }), 1);
                }
                _ => now_s += 100,
            }
            while !own.sweep(5, now_s) {}
            for control in controls.values_mut() {
                control.expected = control.expected.filter(|known| known.until_s > now_s);
            }
            prop_assert_eq!(own.len(), controls.len() + data.len());
            let used: u32 = own.pools().map(|pool| pool.used).sum();
            prop_assert_eq!(used as usize, held(&controls, &data).len());
        }
    }
}

/// The port of a data connection is of the worker that has its inside end, also where a port forward alone has the address.
#[test]
fn data_connections_meet_at_the_worker_of_their_host() {
    for workers in [1, 2, 3, 8, 16] {
        for (host, is_forward) in (0..40).flat_map(|host| [(host, true), (host, false)]) {
            let inside = 0x0a00_0000 + host;
            let action = match is_forward {
                true => Action::Destination { at: vec![OUTSIDE], to: inside, to_port: None },
                false => Action::Source(vec![OUTSIDE]),
            };
            let ports = if is_forward { 21..=21 } else { 1024..=u16::MAX };
            let own = Arc::new(Own::new(2));
            let rules = Rules::new(vec![rule(action, ports)], workers, own).with_ftp(true);
            let mut own = translator_of(rules, 16);
            let remote = v4(0x0808_0808, if is_forward { 4000 } else { 21 });
            let sent = if is_forward {
                let original = tcp(remote, v4(OUTSIDE, 21));
                let to = v4(inside, 21);
                own.begin(&original, to, 4, Source::Keep(NUMBER), 1).expect("a session");
                let line = "229 ok (|||40999|)\r\n";
                let back = original.reversed();
                send(&mut own, &back, 1, 0x12, "", 1);
                send(&mut own, &back, 2, 0x18, line, 1)
            } else {
                let original = tcp(v4(inside, 4000), remote);
                let made = own.begin(&original, remote, 4, Source::Rule(NUMBER, 0), 1);
                let made = made.expect("a session");
                send(&mut own, &made, 1, 2, "", 1);
                send(&mut own, &made, 2, 0x18, &port_line(inside, 40_999), 1)
            };
            let sent = sent.expect("a control connection").expect("a port");
            let port = match is_forward {
                true => sent.split('|').nth(3).expect("a port").parse().expect("a number"),
                false => end_of(&sent).1,
            };
            let rules = own.rules();
            assert_eq!(rules.owner(6, OUTSIDE, port), Owner::Port, "{sent}");
            assert_eq!(u32::from(port) & (rules.classes - 1), rules.class_of(v4(inside, 0).0));
            let first = tcp(v4(0x0808_0808, 5000), v4(OUTSIDE, port));
            assert_eq!(own.expected(&first), Some((NUMBER, v4(inside, 40_999))));
        }
    }
}

/// A server behind a port forward: its replies name the outside address, at a port of its own choice if that is free.
#[test]
fn servers_of_port_forwards_announce_the_outside() {
    let action = Action::Destination { at: vec![OUTSIDE], to: 0x0a00_0002, to_port: Some(2121) };
    let mut own = translator(rule(action, 21..=21), 16);
    let server = v4(0x0a00_0002, 2121);
    let mut ends = BTreeSet::new();
    for client in 0..3u16 {
        let original = tcp(v4(0x0808_0808, 4000 + client), v4(OUTSIDE, 21));
        let made = own.begin(&original, server, 4, Source::Keep(NUMBER), 1).expect("a session");
        let back = original.reversed();
        assert_eq!(send(&mut own, &made, 1, 2, "", 1), Some(Ok(String::new())));
        assert_eq!(send(&mut own, &back, 1, 0x12, "", 1), Some(Ok(String::new())));
        let line = "227 Entering Passive Mode (10,0,0,2,160,39).\r\n";
        let sent = send(&mut own, &back, 2, 0x18, line, 1).expect("control").expect("room");
        let numbers = sent.split(['(', ')']).nth(1).expect("an end");
        let (address, port) = end_of(&format!("PORT {numbers}"));
        assert!(address == OUTSIDE && port >= 1024, "{sent}");
        // One inside end has one outside end.
        ends.insert(port);
        let first = tcp(v4(0x0808_0808, 5000), v4(OUTSIDE, port));
        assert_eq!(own.expected(&first), Some((NUMBER, v4(0x0a00_0002, 40_999))));
        let other = tcp(v4(0x0808_0809, 5000), v4(OUTSIDE, port));
        assert_eq!(own.expected(&other), None);
    }
    assert_eq!(ends.into_iter().collect::<Vec<_>>(), [40_999]);
}

/// A static rule leads all ports to the inside: nothing needs to be reserved, and the port stays.
#[test]
fn a_static_address_announces_the_same_port() {
    let [inside, outside] = [0x0a00_0010, 0xcb00_7110].map(|address| Prefix::v4(address, 28));
    let mut all = rule(Action::Static { inside, outside }, 0..=u16::MAX);
    all.protocol = None;
    let mut own = translator(all, 16);
    let original = tcp(v4(0x0a00_0013, 4000), v4(0x0808_0808, 21));
    let made =
        own.begin(&original, original.dst, 4, Source::Rule(NUMBER, 0), 1).expect("a session");
    assert_eq!(made.src, v4(0xcb00_7113, 4000));
    assert_eq!(send(&mut own, &made, 1, 2, "", 1), Some(Ok(String::new())));
    let sent = send(&mut own, &made, 2, 0x18, &port_line(0x0a00_0013, 7777), 1);
    assert_eq!(sent, Some(Ok(port_line(0xcb00_7113, 7777))));
    let first = tcp(v4(0x0808_0808, 20), v4(0xcb00_7113, 7777));
    assert_eq!((own.expected(&first), own.counts().ftp_announced), (None, 1));
}
