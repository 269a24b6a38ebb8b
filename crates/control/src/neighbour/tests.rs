//! Scenarios in simulated time, and a link that loses and reorders, from a seed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use lookup::fib::{Interface, NeighbourEvent};
use packet::MacAddr;
use packet::arp::{ArpOperation, ArpView};
use packet::ethernet::EthernetView;
use packet::ipv6::Ipv6View;
use packet::nd::NdView;
use packet::vlan::VlanView;
use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;
const OWN_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0xaa];

fn interface(addresses4: &[&str], addresses6: &[&str]) -> Interface {
    let split = |text: &&str| {
        let (address, len) = text.split_once('/').unwrap();
        (address.parse::<IpAddr>().unwrap(), len.parse::<u8>().unwrap())
    };
    let v4 = addresses4.iter().map(split).map(|(address, len)| match address {
        IpAddr::V4(v4) => (v4.to_bits(), len),
        IpAddr::V6(_) => unreachable!(),
    });
    let v6 = addresses6.iter().map(split).map(|(address, len)| match address {
        IpAddr::V6(v6) => ([(v6.to_bits() >> 64) as u64, v6.to_bits() as u64], len),
        IpAddr::V4(_) => unreachable!(),
    });
    Interface {
        up: true,
        mac: OWN_MAC,
        mtu: 1500,
        addresses4: v4.collect(),
        addresses6: v6.collect(),
        ..Interface::default()
    }
}

fn lan() -> Interface {
    interface(&["10.0.0.1/24", "192.0.2.1/31"], &["2001:db8::1/64", "fe80::aa/64"])
}

fn mac(last: u8) -> [u8; 6] {
    [2, 0, 0, 0, 1, last]
}

/// What a frame asks, in one line, checked to be well-formed on the way.
fn read(frame: &[u8]) -> String {
    let ethernet = EthernetView::new_checked(frame).unwrap();
    assert_eq!(ethernet.src(), MacAddr(OWN_MAC));
    let (mut ethertype, mut payload) = (ethernet.ethertype(), ethernet.payload());
    let mut tags = String::new();
    while ethertype.is_vlan() {
        let tag = VlanView::new_checked(payload).unwrap();
        tags += &format!("vlan {} ", tag.id());
        (ethertype, payload) = (tag.ethertype(), tag.payload());
    }
    let to = if ethernet.dst().is_multicast() {
        "all".to_owned()
    } else {
        format!("{}", ethernet.dst().0[5])
    };
    if let Some(arp) = ArpView::new_checked(payload) {
        assert_eq!(arp.operation(), ArpOperation::Request);
        assert_eq!(arp.sender_mac(), MacAddr(OWN_MAC));
        assert_eq!(arp.target_mac(), MacAddr::ZERO);
        return format!("{tags}{} asks {to} for {}", arp.sender_ip(), arp.target_ip());
    }
    let ip = Ipv6View::new_checked(payload).unwrap();
    assert_eq!(ip.hop_limit(), 255);
    let message = packet::icmpv6::Icmpv6View::new_checked(ip.payload()).unwrap();
    assert!(message.is_checksum_correct(ip.src(), ip.dst()));
    let Some(NdView::NeighbourSolicitation(ask)) = NdView::new_checked(ip.payload()) else {
        panic!("no solicitation");
    };
    assert_eq!(ask.source_mac(), Some(MacAddr(OWN_MAC)));
    if ethernet.dst().is_multicast() {
        assert_eq!(ip.dst(), packet::ipv6::solicited_node(ask.target()));
        assert_eq!(Some(ethernet.dst()), MacAddr::for_multicast(ip.dst().into()));
    } else {
        assert_eq!(ip.dst(), ask.target());
    }
    format!("{tags}{} asks {to} for {}", ip.src(), ask.target())
}

/// Everything that came out, in one line each.
fn lines(out: &mut Output) -> Vec<String> {
    let out = std::mem::take(out);
    let frames = out.frames.iter().map(|(index, frame)| format!("{index}: {}", read(frame)));
    let changes = out.changes.iter().map(|change| match change.mac {
        Some(mac) => format!("{}: {} is {}", change.interface, change.address, mac[5]),
        None => format!("{}: {} is gone", change.interface, change.address),
    });
    frames.chain(changes).collect()
}

#[derive(Clone, Copy)]
enum Do {
    Wanted(&'static str),
    /// An answer to us.
    Answer(&'static str, u8),
    /// An advertisement that answers us without the override flag.
    Weak(&'static str, u8),
    /// A request or solicitation to somebody else.
    Mention(&'static str, u8),
    /// A request or solicitation to us.
    Asks(&'static str, u8),
    Hint(&'static str, u8),
    Static(&'static str, Option<u8>),
    Kernel(&'static str, Option<u8>),
    Up(bool),
    /// Only time passes.
    Nothing,
}

/// Plays steps, each at its time in ms: what came out since the step before, timers first, and the
/// states after it.
fn play(settings: Settings, steps: &[(u64, Do, &[&str])]) -> Resolver {
    let mut resolver = Resolver::new(settings);
    let mut out = Output::default();
    resolver.set_interface(1, Some(&lan()), &mut out);
    for (at, step, expected) in steps {
        let now_ns = at * MS;
        while let Some(deadline_ns) = resolver.next_deadline_ns().filter(|at| *at <= now_ns) {
            resolver.tick(deadline_ns, &mut out);
        }
        let seen = |address: &str, last, solicited, overrides, asks_us| NeighbourEvent::Seen {
            interface: 1,
            address: address.parse().unwrap(),
            mac: mac(last),
            solicited,
            overrides,
            asks_us,
        };
        let ip = |address: &str| address.parse::<IpAddr>().unwrap();
        match *step {
            Do::Wanted(address) => {
                let event = NeighbourEvent::Wanted { interface: 1, address: ip(address) };
                resolver.event(event, now_ns, &mut out);
            }
            Do::Answer(address, last) => {
                resolver.event(seen(address, last, true, true, false), now_ns, &mut out);
            }
            Do::Weak(address, last) => {
                resolver.event(seen(address, last, true, false, false), now_ns, &mut out);
            }
            Do::Mention(address, last) => {
                resolver.event(seen(address, last, false, true, false), now_ns, &mut out);
            }
            Do::Asks(address, last) => {
                resolver.event(seen(address, last, false, true, true), now_ns, &mut out);
            }
            Do::Hint(address, last) => {
                resolver.hint(1, ip(address), mac(last), now_ns, &mut out);
            }
            Do::Static(address, last) => {
                let by = Permanent::Configuration;
                resolver.set_permanent(1, ip(address), last.map(mac), by, now_ns, &mut out);
            }
            Do::Kernel(address, last) => {
                let by = Permanent::Kernel;
                resolver.set_permanent(1, ip(address), last.map(mac), by, now_ns, &mut out);
            }
            Do::Up(up) => {
                let record = Interface { up, ..lan() };
                resolver.set_interface(1, Some(&record), &mut out);
            }
            Do::Nothing => {}
        }
        assert_eq!(lines(&mut out), *expected, "at {at} ms");
    }
    resolver
}

fn state(resolver: &Resolver, address: &str) -> Option<NeighbourState> {
    let address: IpAddr = address.parse().unwrap();
    resolver.neighbours().find(|n| n.address == address).map(|n| n.state)
}

#[test]
fn a_neighbour_is_found_confirmed_and_lost() {
    let resolver = play(
        Settings::default(),
        &[
            (0, Do::Wanted("10.0.0.9"), &["1: 10.0.0.1 asks all for 10.0.0.9"]),
            (100, Do::Wanted("10.0.0.9"), &[]),
            (1_000, Do::Nothing, &["1: 10.0.0.1 asks all for 10.0.0.9"]),
            (1_200, Do::Answer("10.0.0.9", 9), &["1: 10.0.0.9 is 9"]),
            (1_300, Do::Answer("10.0.0.9", 9), &[]),
            (31_299, Do::Nothing, &[]),
            (31_300, Do::Nothing, &["1: 10.0.0.1 asks 9 for 10.0.0.9"]),
            (31_400, Do::Answer("10.0.0.9", 9), &[]),
            (
                63_400,
                Do::Nothing,
                &[
                    "1: 10.0.0.1 asks 9 for 10.0.0.9",
                    "1: 10.0.0.1 asks 9 for 10.0.0.9",
                    "1: 10.0.0.1 asks 9 for 10.0.0.9",
                ],
            ),
            (64_400, Do::Nothing, &["1: 10.0.0.9 is gone"]),
            (64_500, Do::Wanted("10.0.0.9"), &["1: 10.0.0.1 asks all for 10.0.0.9"]),
        ],
    );
    assert_eq!(state(&resolver, "10.0.0.9"), Some(NeighbourState::Incomplete));
    let counters = resolver.counters();
    assert_eq!((counters.requests, counters.probes), (3, 4));
    assert_eq!((counters.resolved, counters.lost, counters.failed), (1, 1, 0));
}

#[test]
fn a_silent_neighbour_fails_for_a_while() {
    let resolver = play(
        Settings::default(),
        &[
            (0, Do::Wanted("2001:db8::9"), &["1: fe80::aa asks all for 2001:db8::9"]),
            (
                2_999,
                Do::Nothing,
                &["1: fe80::aa asks all for 2001:db8::9", "1: fe80::aa asks all for 2001:db8::9"],
            ),
            (3_000, Do::Wanted("2001:db8::9"), &[]),
            (5_999, Do::Wanted("2001:db8::9"), &[]),
            (6_000, Do::Wanted("2001:db8::9"), &["1: fe80::aa asks all for 2001:db8::9"]),
            (9_500, Do::Nothing, &["1: fe80::aa asks all for 2001:db8::9"; 2]),
            (9_600, Do::Answer("2001:db8::9", 9), &["1: 2001:db8::9 is 9"]), // late, but welcome
        ],
    );
    assert_eq!(state(&resolver, "2001:db8::9"), Some(NeighbourState::Reachable));
    assert_eq!(resolver.counters().failed, 2);
}

#[test]
fn mentions_create_nothing_unless_they_ask_us() {
    let resolver = play(
        Settings::default(),
        &[
            (0, Do::Mention("10.0.0.9", 9), &[]),
            (1, Do::Answer("10.0.0.9", 9), &[]), // nobody asked
            (2, Do::Asks("10.0.0.9", 9), &["1: 10.0.0.9 is 9"]),
            (3, Do::Asks("fe80::9", 9), &["1: fe80::9 is 9"]),
            (4, Do::Hint("2001:db8::8", 8), &["1: 2001:db8::8 is 8"]),
            (5_001, Do::Nothing, &[]),
            (5_002, Do::Nothing, &["1: 10.0.0.1 asks 9 for 10.0.0.9"]),
            (
                5_100,
                Do::Answer("10.0.0.9", 9),
                &["1: fe80::aa asks 9 for fe80::9", "1: fe80::aa asks 8 for 2001:db8::8"],
            ),
            // A mention confirms nothing, so the question is repeated.
            (6_003, Do::Mention("fe80::9", 9), &["1: fe80::aa asks 9 for fe80::9"]),
            (
                6_010,
                Do::Wanted("10.0.0.7"),
                &["1: fe80::aa asks 8 for 2001:db8::8", "1: 10.0.0.1 asks all for 10.0.0.7"],
            ),
            (6_020, Do::Mention("10.0.0.7", 7), &["1: 10.0.0.7 is 7"]), // RFC 826: merged
        ],
    );
    assert_eq!(resolver.counters().unasked, 2);
    assert_eq!(state(&resolver, "10.0.0.9"), Some(NeighbourState::Reachable));
    assert_eq!(state(&resolver, "10.0.0.7"), Some(NeighbourState::Stale));
}

#[test]
fn a_neighbour_moves() {
    let resolver = play(
        Settings::default(),
        &[
            (0, Do::Wanted("10.0.0.9"), &["1: 10.0.0.1 asks all for 10.0.0.9"]),
            (1, Do::Answer("10.0.0.9", 9), &["1: 10.0.0.9 is 9"]),
            (2, Do::Mention("10.0.0.9", 5), &["1: 10.0.0.9 is 5"]), // gratuitous ARP
            (5_002, Do::Nothing, &["1: 10.0.0.1 asks 5 for 10.0.0.9"]),
            (5_003, Do::Answer("10.0.0.9", 5), &[]),
            // Without the override flag the old address stays but is doubted.
            (5_004, Do::Weak("10.0.0.9", 6), &[]),
            (10_004, Do::Nothing, &["1: 10.0.0.1 asks 5 for 10.0.0.9"]),
            (10_005, Do::Weak("10.0.0.9", 5), &[]),
        ],
    );
    assert_eq!(state(&resolver, "10.0.0.9"), Some(NeighbourState::Reachable));
    assert_eq!((resolver.counters().moved, resolver.counters().contradicted), (1, 1));
}

#[test]
fn static_neighbours_stay() {
    let resolver = play(
        Settings::default(),
        &[
            (0, Do::Kernel("10.0.0.9", Some(8)), &["1: 10.0.0.9 is 8"]),
            (1, Do::Static("10.0.0.9", Some(9)), &["1: 10.0.0.9 is 9"]),
            (2, Do::Kernel("10.0.0.9", Some(7)), &[]),
            (3, Do::Answer("10.0.0.9", 5), &[]),
            (4, Do::Hint("10.0.0.9", 5), &[]),
            (5, Do::Wanted("10.0.0.9"), &[]),
            (6, Do::Up(false), &[]),
            (7, Do::Up(true), &[]),
            (9_999_999, Do::Static("10.0.0.9", None), &["1: 10.0.0.9 is 7"]),
            (9_999_999, Do::Kernel("10.0.0.9", None), &["1: 10.0.0.9 is gone"]),
            (9_999_999, Do::Kernel("10.0.0.9", None), &[]),
        ],
    );
    assert!(resolver.is_empty());
    assert_eq!(resolver.counters().contradicted, 2);
}

#[test]
fn what_no_neighbour_can_be_is_ignored_and_counted() {
    let resolver = play(
        Settings::default(),
        &[
            (0, Do::Asks("10.0.1.9", 9), &[]),    // no subnet of ours
            (0, Do::Asks("10.0.0.255", 9), &[]),  // a broadcast address
            (0, Do::Asks("10.0.0.1", 9), &[]),    // our own
            (0, Do::Asks("2001:db8::1", 9), &[]), // our own
            (0, Do::Wanted("10.0.0.1"), &[]),     //
            (0, Do::Wanted("10.0.0.255"), &[]),   //
            (0, Do::Wanted("224.0.0.5"), &[]),    //
            (0, Do::Wanted("ff02::1"), &[]),      //
            (0, Do::Wanted("0.0.0.0"), &[]),      //
            (0, Do::Wanted("192.0.2.0"), &["1: 192.0.2.1 asks all for 192.0.2.0"]), // a /31 has none
            // On-link gateways need no subnet once they are wanted.
            (0, Do::Wanted("172.16.0.1"), &["1: 10.0.0.1 asks all for 172.16.0.1"]),
            (0, Do::Answer("172.16.0.1", 3), &["1: 172.16.0.1 is 3"]),
        ],
    );
    let counters = *resolver.counters();
    assert_eq!((counters.foreign, counters.duplicate_address, counters.impossible), (2, 2, 5));

    let mut resolver = resolver;
    let mut out = Output::default();
    for mac in [[0xff; 6], [1, 0, 0x5e, 0, 0, 1], [0; 6], OWN_MAC] {
        let address = "10.0.0.9".parse().unwrap();
        resolver.hint(1, address, mac, 0, &mut out);
        resolver.hint(7, address, mac, 0, &mut out); // no such interface
    }
    assert_eq!(out, Output::default());
    assert_eq!(resolver.counters().bad_mac, 4);
}

#[test]
fn an_interface_that_goes_down_forgets() {
    let resolver = play(
        Settings::default(),
        &[
            (0, Do::Wanted("10.0.0.9"), &["1: 10.0.0.1 asks all for 10.0.0.9"]),
            (1, Do::Answer("10.0.0.9", 9), &["1: 10.0.0.9 is 9"]),
            (2, Do::Up(true), &[]), // reported again
            (3, Do::Wanted("10.0.0.8"), &["1: 10.0.0.1 asks all for 10.0.0.8"]),
            (4, Do::Up(false), &["1: 10.0.0.9 is gone"]),
            (5, Do::Wanted("10.0.0.9"), &[]),
            (5_000, Do::Up(true), &[]),
            (5_001, Do::Wanted("10.0.0.9"), &["1: 10.0.0.1 asks all for 10.0.0.9"]),
        ],
    );
    assert_eq!(resolver.len(), 1);
}

#[test]
fn unused_neighbours_go_stale_where_use_is_reported() {
    let settings = Settings { assume_used: false, ..Settings::default() };
    play(
        settings,
        &[
            (0, Do::Wanted("10.0.0.9"), &["1: 10.0.0.1 asks all for 10.0.0.9"]),
            (1, Do::Answer("10.0.0.9", 9), &["1: 10.0.0.9 is 9"]),
            (30_001, Do::Nothing, &[]), // stale, still usable
            (40_000, Do::Wanted("10.0.0.9"), &["1: 10.0.0.1 asks 9 for 10.0.0.9"]),
            (40_001, Do::Answer("10.0.0.9", 9), &[]),
            (50_000, Do::Wanted("10.0.0.9"), &[]),
            (70_001, Do::Nothing, &["1: 10.0.0.1 asks 9 for 10.0.0.9"]), // used since
            (70_002, Do::Answer("10.0.0.9", 9), &[]),
            (700_001, Do::Nothing, &[]),
            (700_002, Do::Nothing, &["1: 10.0.0.9 is gone"]),
        ],
    );
}

#[test]
fn questions_carry_the_interface_s_tags_and_best_source() {
    let mut resolver = Resolver::new(Settings::default());
    let mut out = Output::default();
    let tagged = Interface { tags: vec![(0x88a8, 100), (0x8100, 7)], ..lan() };
    resolver.set_interface(2, Some(&tagged), &mut out);
    resolver.set_interface(3, Some(&interface(&[], &[])), &mut out);
    resolver.set_interface(4, Some(&interface(&[], &["2001:db8:4::1/64"])), &mut out);
    for (interface, address) in
        [(2, "192.0.2.0"), (2, "fe80::9"), (3, "10.0.0.9"), (3, "fe80::9"), (4, "fe80::9")]
    {
        let address = address.parse().unwrap();
        resolver.event(NeighbourEvent::Wanted { interface, address }, 0, &mut out);
    }
    assert_eq!(
        lines(&mut out),
        [
            "2: vlan 100 vlan 7 192.0.2.1 asks all for 192.0.2.0",
            "2: vlan 100 vlan 7 fe80::aa asks all for fe80::9",
            "3: 0.0.0.0 asks all for 10.0.0.9",
            "3: fe80::ff:fe00:aa asks all for fe80::9",
            "4: 2001:db8:4::1 asks all for fe80::9",
        ]
    );
}

#[test]
fn a_full_table_keeps_answers_over_questions() {
    let settings = Settings { entries_max: 4, ..Settings::default() };
    let mut resolver = play(
        settings,
        &[
            (0, Do::Static("10.0.0.2", Some(2)), &["1: 10.0.0.2 is 2"]),
            (1, Do::Wanted("10.0.0.3"), &["1: 10.0.0.1 asks all for 10.0.0.3"]),
            (2, Do::Answer("10.0.0.3", 3), &["1: 10.0.0.3 is 3"]),
            (3, Do::Wanted("10.0.0.4"), &["1: 10.0.0.1 asks all for 10.0.0.4"]),
            (4, Do::Wanted("10.0.0.5"), &["1: 10.0.0.1 asks all for 10.0.0.5"]),
            (5, Do::Wanted("10.0.0.6"), &["1: 10.0.0.1 asks all for 10.0.0.6"]), // 4 goes
            (6, Do::Wanted("10.0.0.7"), &["1: 10.0.0.1 asks all for 10.0.0.7"]), // 5 goes
            (7, Do::Static("10.0.0.8", Some(8)), &["1: 10.0.0.8 is 8"]),         // 6 goes
            (8, Do::Static("10.0.0.9", Some(9)), &["1: 10.0.0.9 is 9"]),         // 7 goes
            (9, Do::Static("10.0.0.10", Some(1)), &["1: 10.0.0.3 is gone", "1: 10.0.0.10 is 1"]),
            (10, Do::Wanted("10.0.0.11"), &[]),
        ],
    );
    assert_eq!(resolver.len(), 4);
    assert_eq!((resolver.counters().evicted, resolver.counters().refused), (5, 1));
    let mut out = Output::default();
    resolver.set_permanent(
        1,
        "10.0.0.10".parse().unwrap(),
        None,
        Permanent::Configuration,
        0,
        &mut out,
    );
    assert_eq!(lines(&mut out), ["1: 10.0.0.10 is gone"]);
}

/// A link of hosts, some dead, that loses and delays frames. The resolver's picture, put together
/// from its changes alone, must be that of its own table, and in the end that of the link.
#[derive(Debug)]
struct Link {
    seed: u64,
    loss_percent: u64,
    delay_max: u64,
    alive: BTreeSet<u8>,
    entries_max: usize,
}

fn random(seed: &mut u64) -> u64 {
    // SplitMix64.
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut x = *seed;
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn simulate(link: Link) -> Resolver {
    let mut seed = link.seed;
    let settings = Settings { entries_max: link.entries_max, ..Settings::default() };
    let mut resolver = Resolver::new(settings);
    let mut out = Output::default();
    resolver.set_interface(1, Some(&lan()), &mut out);
    let mut answers: BTreeSet<(u64, u64, u8)> = BTreeSet::new(); // time, tie-break, host
    let mut asked: BTreeMap<u8, u64> = BTreeMap::new();
    let mut picture: BTreeMap<IpAddr, [u8; 6]> = BTreeMap::new();
    let mut evicted = 0;
    let address = |host: u8| IpAddr::from([10, 0, 0, host]);
    for step in 0..20_000u64 {
        let now_ns = step * 10 * MS;
        if step % 7 == 0 && step < 15_000 {
            // Every host is wanted now and then; the last quarter is for settling down.
            let host = 2 + (random(&mut seed) % 12) as u8;
            let event = NeighbourEvent::Wanted { interface: 1, address: address(host) };
            resolver.event(event, now_ns, &mut out);
        }
        while let Some(&(at, tie, host)) = answers.first()
            && at <= now_ns
        {
            answers.remove(&(at, tie, host));
            let event = NeighbourEvent::Seen {
                interface: 1,
                address: address(host),
                mac: mac(host),
                solicited: true,
                overrides: true,
                asks_us: false,
            };
            resolver.event(event, now_ns, &mut out);
        }
        resolver.tick(now_ns, &mut out);
        assert!(resolver.next_deadline_ns().is_none_or(|at| at > now_ns));
        assert!(resolver.len() <= link.entries_max);
        for change in out.changes.drain(..) {
            match change.mac {
                Some(mac) => assert_ne!(picture.insert(change.address, mac), Some(mac)),
                None => assert!(picture.remove(&change.address).is_some()),
            }
        }
        for (_, frame) in out.frames.drain(..) {
            let line = read(&frame);
            let host: u8 = line.rsplit('.').next().unwrap().parse().unwrap();
            // Never more often than the retry time, unless the entry was pushed out in between.
            let before = asked.insert(host, now_ns);
            let early = before.is_some_and(|before| now_ns - before < 1000 * MS);
            evicted += u64::from(early);
            if link.alive.contains(&host) && random(&mut seed) % 100 >= link.loss_percent {
                let delay = random(&mut seed) % (link.delay_max + 1);
                answers.insert((now_ns + delay * MS, random(&mut seed), host));
            }
        }
        let known = resolver.neighbours().filter_map(|n| Some((n.address, n.mac?)));
        assert_eq!(known.collect::<BTreeMap<_, _>>(), picture);
    }
    assert!(evicted <= resolver.counters().evicted + resolver.counters().resolved);
    resolver
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_picture_holds_under_loss_and_reordering(
        seed in any::<u64>(),
        loss_percent in 0u64..60,
        delay_max in 0u64..4000,
        alive in prop::collection::btree_set(2u8..14, 0..12),
        entries_max in 3usize..20,
    ) {
        simulate(Link { seed, loss_percent, delay_max, alive, entries_max });
    }

    #[test]
    fn without_loss_the_living_are_known_and_the_dead_are_not(
        seed in any::<u64>(),
        delay_max in 0u64..900,
        alive in prop::collection::btree_set(2u8..14, 0..12),
    ) {
        let link = Link { seed, loss_percent: 0, delay_max, alive: alive.clone(), entries_max: 20 };
        let resolver = simulate(link);
        let known: BTreeSet<IpAddr> =
            resolver.neighbours().filter(|n| n.mac.is_some()).map(|n| n.address).collect();
        let expected: BTreeSet<IpAddr> =
            alive.iter().map(|host| IpAddr::from([10, 0, 0, *host])).collect();
        prop_assert_eq!(known, expected);
        prop_assert_eq!(resolver.counters().lost, 0);
    }
}
