//! Waiting for neighbours: bounded queues, order, release, failure.

use std::net::IpAddr;
use std::sync::mpsc::{Receiver, sync_channel};

use apps::router::PipelineOptions;
use apps::router::reasons;
use chunk::Verdict;
use lookup::fib::{Fib, NeighbourEvent, Options};
use lookup::versions::Patchable;

use crate::bench::{Bench, Input};
use crate::scenario::{builder, frame, host_mac, port_mac, two_ports, unlimited};

const UNKNOWN: &str = "10.0.2.50";

fn input(to: &str, serial: u8) -> Input {
    Input::new(0, frame().ipv4("10.0.1.2", to).udp(1, 2, &[serial; 30]).bytes())
}

fn bench() -> (Bench, Receiver<NeighbourEvent>) {
    let (sender, receiver) = sync_channel(64);
    let options = PipelineOptions { events: Some(sender), ..PipelineOptions::default() };
    let mut bench = Bench::new(&options);
    bench.version = 1;
    (bench, receiver)
}

/// Tables, and the same with the neighbour known.
fn before_and_after(options: Options) -> (Fib, Fib) {
    let mut builder = builder(&two_ports(options));
    let before = builder.freeze().expect("tables");
    let mut after = before.clone();
    builder.set_neighbour(1, UNKNOWN.parse().expect("an address"), Some([2, 7, 7, 7, 7, 7]));
    for patch in builder.take_patches() {
        after.apply(&patch);
    }
    (before, after)
}

fn wanted() -> NeighbourEvent {
    NeighbourEvent::Wanted { interface: 1, address: UNKNOWN.parse::<IpAddr>().expect("an address") }
}

#[test]
fn packets_wait_and_leave_in_order_when_the_neighbour_is_known() {
    let (before, after) = before_and_after(unlimited());
    let (mut bench, events) = bench();
    let inputs: Vec<_> = (0..5).map(|serial| input(UNKNOWN, serial)).collect();
    let seen = bench.run(&before, &inputs);
    assert!(seen.iter().all(|s| s.verdict == Verdict::TAKEN && s.emitted.is_empty()));
    assert_eq!(bench.held(), 5);
    assert_eq!(events.try_iter().collect::<Vec<_>>(), [wanted()], "asked for once");
    bench.now_ns += 10_000_000;
    bench.tick(&before);
    assert_eq!(bench.held(), 5);

    bench.version = 2;
    bench.tick(&after);
    assert_eq!(bench.held(), 0);
    assert!(bench.dropped.is_empty());
    let serials: Vec<u8> = bench.released.iter().map(|(frame, _)| frame[50]).collect();
    assert_eq!(serials, [0, 1, 2, 3, 4]);
    for (frame, verdict) in &bench.released {
        assert_eq!(*verdict, Verdict::forward(1));
        assert_eq!(frame[..6], [2, 7, 7, 7, 7, 7]);
        assert_eq!(frame[22], 63, "the TTL goes down once");
    }
    bench.finish();
}

/// A chunk with the new version may come before any tick: what waited still goes first.
#[test]
fn later_packets_do_not_overtake() {
    let (before, after) = before_and_after(unlimited());
    let (mut bench, _events) = bench();
    bench.run(&before, &[input(UNKNOWN, 0)]);
    bench.version = 2;
    bench.tick(&after); // lets the first one go
    bench.version = 1;
    bench.run(&before, &[input(UNKNOWN, 1)]); // a chunk that was pinned before
    assert_eq!(bench.held(), 1);
    bench.version = 2;
    let seen = bench.run(&after, &[input(UNKNOWN, 2)]);
    assert_eq!(seen[0].forwarded_to(), Some(1));
    let serials: Vec<u8> = bench.released.iter().map(|(frame, _)| frame[50]).collect();
    assert_eq!(serials, [0, 1], "both left before the chunk was through");
    bench.finish();
}

/// Three packets for each neighbour; for all of one port, half of ten; other ports have half of what is left.
#[test]
fn queues_are_bounded() {
    let options =
        Options { neighbour_queue_packets: 3, neighbour_queue_total_packets: 10, ..unlimited() };
    let (before, _) = before_and_after(options);
    let (mut bench, events) = bench();
    let to = ["10.0.2.50", "10.0.2.51", "10.0.2.52"];
    let inputs: Vec<_> = (0..12).map(|n| input(to[n / 4], n as u8)).collect();
    let seen = bench.run(&before, &inputs);
    let held: Vec<bool> = seen.iter().map(|s| s.verdict == Verdict::TAKEN).collect();
    let expected = [1, 1, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0].map(|held| held == 1);
    assert_eq!(held, expected);
    for seen in seen.iter().filter(|s| s.verdict != Verdict::TAKEN) {
        assert_eq!(seen.drop_reason(), Some(reasons::NEIGHBOUR_QUEUE_FULL));
    }
    let wanted: Vec<_> =
        to.map(|to| IpAddr::from(to.parse::<std::net::Ipv4Addr>().unwrap())).into();
    let asked: Vec<_> = events.try_iter().collect();
    let question = |address: &IpAddr| NeighbourEvent::Wanted { interface: 1, address: *address };
    for address in &wanted {
        assert!(asked.contains(&question(address)), "{address}: refused or not, it is asked for");
    }
    let other = |serial| {
        let frame = frame().macs(host_mac(1), port_mac(1)).ipv4("10.0.2.2", "10.0.2.53");
        Input::new(1, frame.udp(1, 2, &[serial; 30]).bytes())
    };
    let seen = bench.run(&before, &[other(20), other(21), other(22)]);
    assert!(seen.iter().all(|seen| seen.verdict == Verdict::TAKEN), "room for another port");
    bench.now_ns += options.neighbour_wait_ns;
    bench.tick(&before);
    assert_eq!(bench.dropped.len(), 8);
    bench.finish();
}

#[test]
fn a_silent_neighbour_costs_its_packets_and_one_error() {
    let (before, _) = before_and_after(unlimited());
    let (mut bench, _events) = bench();
    bench.run(&before, &[input(UNKNOWN, 0), input(UNKNOWN, 1)]);
    let wait = unlimited().neighbour_wait_ns;
    let due = bench.stages.iter().filter_map(|stage| stage.next_tick_ns()).min();
    assert_eq!(due, Some(bench.now_ns + wait));
    bench.now_ns += wait - 1;
    bench.tick(&before);
    assert_eq!(bench.held(), 2);
    bench.now_ns += 1;
    bench.tick(&before);
    let reasons: Vec<_> = bench.dropped.iter().map(|dropped| dropped.1).collect();
    assert_eq!(reasons, [packet::reasons::NEIGHBOUR_FAILED; 2]);
    let [(error, verdict)] = &bench.released[..] else { panic!("{:?}", bench.released) };
    assert_eq!(*verdict, Verdict::forward(0));
    assert_eq!(error[34..36], [3, 1], "host unreachable");
    assert_eq!(error[42 + 28], 0, "about the first packet");
    bench.finish();
}

/// A neighbour that is in use is to be confirmed now and then, one that is not is left to age.
#[test]
fn neighbours_in_use_are_reported() {
    let (fib, _) = before_and_after(unlimited());
    let (mut bench, events) = bench();
    bench.tick(&fib); // learns how many adjacencies there are
    bench.run(&fib, &[input("8.8.8.8", 0), input("8.8.4.4", 1)]);
    bench.now_ns += 10_000_000_000;
    bench.tick(&fib);
    let gateway = IpAddr::from([10, 0, 2, 2]);
    let expected = NeighbourEvent::Wanted { interface: 1, address: gateway };
    assert_eq!(events.try_iter().collect::<Vec<_>>(), [expected]);
    bench.now_ns += 10_000_000_000;
    bench.tick(&fib);
    assert_eq!(events.try_iter().count(), 0);
    bench.finish();
}
