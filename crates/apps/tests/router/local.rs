//! What is for the router itself: answers without a twin, the kernel's with one; what the resolver
//! hears; how many errors leave.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use apps::router::reasons;
use apps::router::{PipelineOptions, RouterCounters, pipeline};
use chunk::Verdict;
use lookup::fib::{Fib, NeighbourEvent, Options};

use crate::bench::{Bench, Input};
use crate::scenario::{fib, frame, host_mac, port_mac, two_ports, unlimited};

fn arp_request(target: [u8; 4]) -> Vec<u8> {
    let mut arp = [&[0xff; 6][..], &host_mac(0), &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]].concat();
    arp.extend(host_mac(0));
    arp.extend([10, 0, 1, 2, 0, 0, 0, 0, 0, 0]);
    arp.extend(target);
    arp
}

#[test]
fn without_a_twin_the_router_answers_arp_and_echo() {
    let fib = fib(&two_ports(unlimited()));
    let counters = Arc::new(RouterCounters::default());
    let options = PipelineOptions { counters: counters.clone(), ..PipelineOptions::default() };
    let mut bench = Bench::new(&options);
    let inputs = [
        arp_request([10, 0, 1, 1]),
        arp_request([10, 0, 1, 9]),
        frame().ipv4("10.0.1.2", "10.0.2.1").ttl(1).echo_request(7, 9, b"hello").bytes(),
        frame().ipv6("fd00:1::2", "fd00:1::1").ttl(1).echo_request(7, 9, b"hello").bytes(),
        frame().ipv4("10.0.1.2", "10.0.1.1").tcp(1, 22, 0, b"").bytes(),
    ];
    let seen = bench.run(&fib, &inputs.map(|frame| Input::new(0, frame)));
    let reasons: Vec<_> = seen.iter().map(|s| s.drop_reason().expect("a drop")).collect();
    assert_eq!(
        reasons,
        [
            reasons::CONSUMED,
            reasons::NOT_MINE,
            reasons::CONSUMED,
            reasons::CONSUMED,
            chunk::reasons::HOST_ABSENT,
        ]
    );
    let reply = &seen[0].emitted[0].1;
    assert_eq!(reply[..6], host_mac(0));
    assert_eq!(reply[20..28], [&[0, 2][..], &port_mac(0)].concat());
    assert_eq!(reply[28..32], [10, 0, 1, 1]);
    let expected = frame()
        .macs(port_mac(0), host_mac(0))
        .ipv4("10.0.2.1", "10.0.1.2")
        .echo_reply(7, 9, b"hello")
        .bytes();
    assert_eq!(seen[2].emitted, [(0, expected)]);
    let expected = frame()
        .macs(port_mac(0), host_mac(0))
        .ipv6("fd00:1::1", "fd00:1::2")
        .echo_reply(7, 9, b"hello")
        .bytes();
    assert_eq!(seen[3].emitted, [(0, expected)]);
    assert_eq!(counters.answers_sent.get(), 3);
    bench.finish();
}

#[test]
fn with_a_twin_the_kernel_gets_what_is_for_it_untagged() {
    let mut reference = two_ports(unlimited());
    for interface in reference.interfaces.iter_mut().flatten() {
        interface.twin = true;
    }
    if let Some(interface) = &mut reference.interfaces[0] {
        interface.tags = vec![(0x8100, 7)];
    }
    // The first interface is now a subinterface of the second's port.
    let first = reference.interfaces[0].take();
    if let Some(mut interface) = first {
        interface.port = 1;
        reference.interfaces[0] = Some(interface);
    }
    let fib = fib(&reference);
    let mut bench = Bench::new(&PipelineOptions::default());
    let plain = [
        arp_request([10, 0, 1, 1]),
        frame().ipv4("10.0.1.2", "10.0.1.1").echo_request(7, 9, b"hello").bytes(),
        frame().ipv4("10.0.1.2", "224.0.0.5").raw(89, b"hello").bytes(),
        frame().ipv4("10.0.1.2", "10.0.1.255").udp(1, 2, b"all").bytes(),
        frame().ipv6("fe80::5", "fe80::1").tcp(1, 179, 0, b"").bytes(),
    ];
    let tagged = plain.clone().map(|mut frame| {
        frame.splice(12..12, [0x81, 0, 0, 7]);
        Input::new(1, frame)
    });
    for (seen, plain) in bench.run(&fib, &tagged).into_iter().zip(plain) {
        assert_eq!(seen.verdict, Verdict::host(0));
        assert_eq!(seen.frame, plain);
        assert!(seen.emitted.is_empty(), "no second answer");
    }
    // And back: what the twin sends leaves with its tag.
    let frame = frame().bytes();
    let input = Input { from_host: true, ..Input::new(0, frame.clone()) };
    let seen = &bench.run(&fib, &[input])[0];
    assert_eq!(seen.verdict, Verdict::forward(1));
    assert_eq!(seen.frame[12..16], [0x81, 0, 0, 7]);
    assert_eq!([&seen.frame[..12], &seen.frame[16..]].concat(), frame);
    bench.finish();
}

#[test]
fn the_resolver_hears_who_is_where() {
    let fib = fib(&two_ports(unlimited()));
    let (sender, receiver) = sync_channel(16);
    let options = PipelineOptions { events: Some(sender), ..PipelineOptions::default() };
    let mut bench = Bench::new(&options);
    let asked = [1, 9, 1, 1, 1, 1, 1].map(|host| arp_request([10, 0, 1, host]));
    bench.run(&fib, &asked.map(|frame| Input::new(0, frame)));
    let seen = |asks_us| NeighbourEvent::Seen {
        interface: 0,
        address: IpAddr::from([10, 0, 1, 2]),
        mac: host_mac(0),
        solicited: false,
        overrides: true,
        asks_us,
    };
    let events: Vec<_> = receiver.try_iter().collect();
    let expected = [true, false, true, true, true].map(seen);
    assert_eq!(events, expected, "the same at most four times at once");
    bench.finish();
}

#[test]
fn errors_are_rate_limited_and_the_packets_counted_all_the_same() {
    let options = Options { icmp_rate: 10, icmp_burst: 3, ..Options::default() };
    let fib = fib(&two_ports(options));
    let counters = Arc::new(RouterCounters::default());
    let options = PipelineOptions { counters: counters.clone(), ..PipelineOptions::default() };
    let mut bench = Bench::new(&options);
    let expired = frame().ipv4("10.0.1.2", "8.8.8.8").ttl(1).udp(1, 2, b"").bytes();
    let inputs: Vec<_> = (0..20).map(|_| Input::new(0, expired.clone())).collect();
    for (round, sent) in [(0, 3), (1, 1), (2, 1)] {
        let seen = bench.run(&fib, &inputs);
        assert!(seen.iter().all(|s| s.drop_reason() == Some(reasons::TTL_EXPIRED)));
        let emitted: usize = seen.iter().map(|s| s.emitted.len()).sum();
        assert_eq!(emitted, sent, "round {round}");
        bench.now_ns += 100_000_000;
    }
    assert_eq!(counters.icmp_errors_sent.get(), 5);
    assert_eq!(counters.icmp_errors_withheld.get(), 55);
    bench.finish();
}

#[test]
fn unknown_stages_are_named() {
    match pipeline::<Fib>(&["decode", "nat"], &PipelineOptions::default()) {
        Ok(_) => panic!("a router has no such stage"),
        Err(error) => assert_eq!(error.to_string(), "a router has no stage `nat`"),
    }
}
