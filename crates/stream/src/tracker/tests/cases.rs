//! Cases that random scenes found.

use super::steps::{Fate, Step};
use super::*;

fn step(conversation: u8, what: u8, pause_ns: u64) -> Step {
    Step { pause_ns, conversation, by_server: false, what, len: 0, fate: Fate::Good }
}

/// A sweep does not end a flow that its next packet would continue.
#[test]
fn a_sweep_does_not_shorten_a_time_out_between_milliseconds() {
    let timeouts = IdleTimeouts { udp: 1_250_000, ..IdleTimeouts::default() };
    let scene = Scene::new(&[step(2, 0, 999_999), step(7, 0, 1_000_001), step(2, 0, 200_000)]);
    let swept = run(&scene, options(timeouts), 1, Some(1 << 20), |_| true);
    assert_eq!(swept, run(&scene, options(timeouts), 1, None, |_| true));
    assert_eq!(swept.0[0].record.sides[0].packets, 2);
}

/// Milliseconds of the table have 32 bits.
#[test]
fn a_sweep_does_not_shorten_a_long_time_out() {
    for timeout_ns in [u64::MAX, (1 << 32) * 1_000_000, ((1 << 32) + 5) * 1_000_000] {
        let timeouts = IdleTimeouts { udp: timeout_ns, ..IdleTimeouts::default() };
        let minute_ns = 60_000_000_000;
        let scene = Scene::new(&[step(2, 0, 0), step(7, 0, minute_ns), step(2, 0, minute_ns)]);
        let (ended, _) = run(&scene, options(timeouts), 1, Some(1 << 20), |_| true);
        assert_eq!(ended[0].record.sides[0].packets, 2, "{timeout_ns}");
    }
}

/// A client that opens and resets connections with the same ports again and again, in a capture with coarse times.
#[test]
fn connections_that_begin_at_the_same_time_have_numbers_of_their_own() {
    let scene = Scene::new(&[2, 13, 2, 13, 2, 13, 2].map(|what| step(0, what, 0)));
    let expected = run(&scene, options(IdleTimeouts::default()), 1, None, |_| true);
    check_counts(&scene, &expected.0, expected.1);
    assert_eq!(expected.0.len(), 4);
    assert_eq!(run(&scene, options(IdleTimeouts::default()), 7, Some(64), |_| true), expected);
}

/// A forged segment costs its sender nothing, and no flow its place.
#[test]
fn a_damaged_segment_evicts_no_flow() {
    for fate in [Fate::Checksum, Fate::Header] {
        let scene = Scene::new(&[step(2, 0, 0), Step { fate, ..step(0, 3, 1_000) }]);
        let options = Options { half_open: 1, ..options(IdleTimeouts::default()) };
        let (ended, counts) = run(&scene, options, 1, None, |_| true);
        check_counts(&scene, &ended, counts);
        assert_eq!(ended.len(), 1);
        assert_eq!(ended[0].record.reason, Reason::Shutdown);
    }
}

/// It ended before the other one needed its place.
#[test]
fn an_idle_flow_is_not_evicted() {
    let scene = Scene::new(&[step(2, 0, 0), step(7, 0, IDLE_NS + 1), step(12, 0, IDLE_NS)]);
    let options = Options { half_open: 1, ..options(IdleTimeouts::default()) };
    let (ended, _) = run(&scene, options, 1, None, |_| true);
    let reasons: Vec<_> = ended.iter().map(|ended| ended.record.reason).collect();
    assert_eq!(reasons, [Reason::Timeout, Reason::Evicted, Reason::Shutdown]);
    assert_eq!(ended[0].time_ns, ended[0].record.end_ns + IDLE_NS);
}

/// What 32 bits cannot hold is kept elsewhere.
#[test]
fn a_flow_may_have_many_bytes() {
    let scene = Scene::new(&[(); 5].map(|()| step(2, 0, 0)));
    let mut tracker =
        Tracker::new(options(IdleTimeouts::default()), Ears::default()).expect("memory");
    let decode = |frame: &scene::Frame| packet::decode(&frame.bytes, frame.bytes.len());
    let decoded: Vec<_> = scene.frames.iter().map(decode).collect();
    let input = |at: usize| Input {
        decoded: &decoded[at],
        frame: &scene.frames[at].bytes,
        frame_len: 3_000_000_000,
        time_ns: scene.frames[at].time_ns,
        port: 0,
        checksums: true,
        tunnels: None,
        segment: None,
    };
    let mut tracked = Vec::new();
    tracker.packets(5, input, |_, own| tracked.push(own.state));
    tracker.finish(scene.latest_ns());
    let [ended] = tracker.module().ended.as_slice() else { panic!("one flow") };
    let [client, server] = ended.record.sides;
    let ip_bytes = decoded.iter().map(|own| u64::from(own.ip_total_len)).sum::<u64>();
    assert_eq!((client.packets, client.bytes, client.ip_bytes), (5, 15_000_000_000, ip_bytes));
    assert_eq!(server.packets, 0);
    assert_eq!(tracked, [PacketState::New; 5]);
}

/// After a gap of years, of any length, flows from before it have ended by their time-outs when the next packet is seen.
#[test]
fn flows_end_in_a_gap_of_years() {
    const DAY_NS: u64 = 86_400 * 1_000_000_000;
    for days in [23, 25, 31, 49, 50, 75, 365, 2119] {
        let scene = Scene::new(&[step(2, 0, 1), step(7, 0, 1), step(12, 0, days * DAY_NS)]);
        let decoded: Vec<_> =
            scene.frames.iter().map(|own| packet::decode(&own.bytes, own.bytes.len())).collect();
        let input = |at: usize| Input {
            decoded: &decoded[at],
            frame: &scene.frames[at].bytes,
            frame_len: 60,
            time_ns: scene.frames[at].time_ns,
            port: 0,
            checksums: false,
            tunnels: None,
            segment: None,
        };
        let mut tracker = Tracker::new(options(IdleTimeouts::default()), Ears::default()).unwrap();
        tracker.packets(3, input, |_, _| {});
        let latest_ns = scene.latest_ns();
        while !tracker.sweep(1000, latest_ns) {}
        let ended = &tracker.module().ended;
        assert_eq!(ended.len(), 2, "{days} days");
        assert!(ended.iter().all(|own| own.record.reason == Reason::Timeout), "{days} days");
    }
}

/// Gaps that are shorter, one behind the other, with no sweep in the meantime: the flows before them have ended when the last packet
/// is seen, in the order of their times.
#[test]
fn flows_end_in_several_gaps() {
    const DAY_NS: u64 = 86_400 * 1_000_000_000;
    for days in [[7, 161], [7, 20], [11, 11], [13, 13], [20, 20], [24, 24], [2, 365]] {
        let [first, second] = days.map(|days| days * DAY_NS);
        let scene = Scene::new(&[step(2, 0, 1), step(7, 0, first), step(12, 0, second)]);
        let mut tracker = Tracker::new(options(IdleTimeouts::default()), Ears::default()).unwrap();
        for frame in &scene.frames {
            let decoded = packet::decode(&frame.bytes, frame.bytes.len());
            let input = |_| Input {
                decoded: &decoded,
                frame: &frame.bytes,
                frame_len: 60,
                time_ns: frame.time_ns,
                port: 0,
                checksums: false,
                tunnels: None,
                segment: None,
            };
            tracker.packets(1, input, |_, _| {});
        }
        let ended = &tracker.module().ended;
        let times: Vec<u64> = ended.iter().map(|own| own.record.end_ns).collect();
        assert_eq!(times, [scene.frames[0].time_ns, scene.frames[1].time_ns], "{days:?}");
        assert!(ended.iter().all(|own| own.record.reason == Reason::Timeout), "{days:?}");
    }
}

/// A sweep that began before a gap goes on behind it with the time of its begin, and ends no flow that is new.
#[test]
fn a_sweep_goes_on_behind_a_gap() {
    const DAY_NS: u64 = 86_400 * 1_000_000_000;
    for days in [1, 13, 30, 50, 2119] {
        let scene = Scene::new(&[step(2, 0, 1), step(7, 0, days * DAY_NS), step(7, 0, 1)]);
        let active = Options { active_ns: Some(1_000_000_000), ..options(IdleTimeouts::default()) };
        let mut tracker = Tracker::new(active, Ears::default()).unwrap();
        let before_ns = scene.frames[0].time_ns;
        for frame in &scene.frames {
            let decoded = packet::decode(&frame.bytes, frame.bytes.len());
            let input = |_| Input {
                decoded: &decoded,
                frame: &frame.bytes,
                frame_len: 60,
                time_ns: frame.time_ns,
                port: 0,
                checksums: false,
                tunnels: None,
                segment: None,
            };
            tracker.packets(1, input, |_, _| {});
            tracker.sweep(usize::MAX, before_ns);
        }
        while !tracker.sweep(usize::MAX, before_ns) {}
        let ended = &tracker.module().ended;
        assert!(ended.iter().all(|own| own.record.end_ns == before_ns), "{days} days");
        assert_eq!(ended.len(), usize::from(days > 12), "{days} days");
    }
}

/// A connection that has closed is over, though its place is kept: no report says that it goes on.
#[test]
fn a_closed_connection_is_not_reported_as_one_that_goes_on() {
    const SECOND_NS: u64 = 1_000_000_000;
    let end = |by_server, pause_ns| Step { by_server, ..step(0, 11, pause_ns) };
    let open = [step(0, 0, 1), step(0, 3, 1), step(0, 3, 7 * SECOND_NS)];
    let active = Options { active_ns: Some(5 * SECOND_NS), ..options(IdleTimeouts::default()) };
    for (steps, reports) in [
        ([&open[..], &[step(2, 0, 20 * SECOND_NS)]].concat(), 2),
        (
            [&open[..], &[end(false, 1), end(true, 1), step(0, 3, 1), step(2, 0, 20 * SECOND_NS)]]
                .concat(),
            1,
        ),
    ] {
        let scene = Scene::new(&steps);
        for sweeps in [None, Some(1 << 20)] {
            let (ended, _) = run(&scene, active, 1, sweeps, |_| true);
            let tcp = ended.iter().find(|own| own.record.protocol == 6).unwrap();
            assert_eq!(tcp.record.state == FlowState::Closed, reports == 1);
            assert_eq!(tcp.reports.len(), reports, "{sweeps:?}: {:?}", tcp.record);
        }
    }
}

/// Fragments from before such a gap are lost, those behind it make their datagram, and all are counted, whatever comes first behind it.
#[test]
fn fragments_on_both_sides_of_a_gap_are_counted() {
    const DAY_NS: u64 = 86_400 * 1_000_000_000;
    let fragmented = |fate, pause_ns| Step { len: 290, fate, ..step(2, 0, pause_ns) };
    for days in [25, 50] {
        let before = fragmented(Fate::FragmentLost, 1);
        let behind = fragmented(Fate::Fragmented, days * DAY_NS);
        let mut steps = vec![before];
        steps.extend(std::iter::repeat_n(step(7, 0, 1), 6));
        steps.push(behind);
        let scene = Scene::new(&steps);
        for batch in [1, 7, 64] {
            let (ended, counts) =
                run(&scene, options(IdleTimeouts::default()), batch, None, |_| true);
            check_counts(&scene, &ended, counts);
            assert_eq!(counts.fragments_lost, scene.counts.fragments_lost, "{days} {batch}");
            assert!(counts.fragments > counts.fragments_lost && counts.fragments_lost > 0);
        }
    }
}

/// Packets that are later than sweeps allow for are counted.
#[test]
fn very_late_packets_are_counted() {
    let mut scene =
        Scene::new(&[step(2, 0, 0), step(7, 0, LATE_NS), step(12, 0, 1), step(2, 0, 0)]);
    scene.frames[2].time_ns = scene.frames[0].time_ns;
    scene.frames[3].time_ns = scene.frames[1].time_ns - LATE_NS - 1;
    for batch in [1, 4] {
        let (_, counts) = run(&scene, options(IdleTimeouts::default()), batch, None, |_| true);
        assert_eq!((counts.packets, counts.late, counts.late_flows), (4, 1, 0), "{batch}");
    }
}

/// Right, wrong, too few: what is said of packets spares look-ups and nothing else.
#[test]
fn packets_of_one_group_are_looked_up_once() {
    let scene = Scene::new(&[2, 7, 2, 2, 7].map(|conversation| step(conversation, 0, 1)));
    let decode = |frame: &scene::Frame| packet::decode(&frame.bytes, frame.bytes.len());
    let decoded: Vec<_> = scene.frames.iter().map(decode).collect();
    let input = |at: usize| Input {
        decoded: &decoded[at],
        frame: &scene.frames[at].bytes,
        frame_len: 60,
        time_ns: scene.frames[at].time_ns,
        port: 0,
        checksums: true,
        tunnels: None,
        segment: None,
    };
    let run = |groups: &[u32]| {
        let mut tracker =
            Tracker::new(options(IdleTimeouts::default()), Ears::default()).expect("memory");
        let mut tracked = Vec::new();
        for _ in 0..2 {
            tracker.shares(groups.iter().copied());
            tracker.packets(5, input, |_, own| tracked.push(own));
        }
        (tracker.shared(), tracked, tracker.counts())
    };
    let (none, tracked, counts) = run(&[]);
    assert_eq!(none, 0);
    for (groups, shared) in [
        ([5, 6, 5, 5, 6].as_slice(), 6),
        (&[5, NO_GROUP, 5, NO_GROUP, 6], 2),
        (&[5, 5, 5, 5, 5], 2), // the one behind the first one of the same flow
        (&[5, 69, 5, 5, 69], 2), // one place for both
        (&[5, 6, 5], 2),
    ] {
        assert_eq!(run(groups), (shared, tracked.clone(), counts), "{groups:?}");
    }
}

/// Right, wrong, too large: a number leads to the flow that had it last, and to no other.
#[test]
fn packets_are_found_by_numbers() {
    let scene = Scene::new(&[2, 7, 2, 2, 7].map(|conversation| step(conversation, 0, 1)));
    let decode = |frame: &scene::Frame| packet::decode(&frame.bytes, frame.bytes.len());
    let decoded: Vec<_> = scene.frames.iter().map(decode).collect();
    let input = |at: usize| Input {
        decoded: &decoded[at],
        frame: &scene.frames[at].bytes,
        frame_len: 60,
        time_ns: scene.frames[at].time_ns,
        port: 0,
        checksums: true,
        tunnels: None,
        segment: None,
    };
    let run = |numbers: &[u32]| {
        let mut tracker =
            Tracker::new(options(IdleTimeouts::default()), Ears::default()).expect("memory");
        tracker.number_up_to(4);
        let mut tracked = Vec::new();
        for _ in 0..3 {
            tracker.numbers(numbers.iter().copied());
            tracker.packets(5, input, |_, own| tracked.push(own));
        }
        (tracker.found_by_number(), tracked, tracker.counts())
    };
    let (none, tracked, counts) = run(&[]);
    assert_eq!(none, 0);
    for (numbers, found) in [
        ([0, 3, 0, 0, 3].as_slice(), 10),
        (&[0, NO_NUMBER, 0, 4, 3], 6), // the first batch teaches, and two of five have no number
        (&[1, 1, 1, 1, 1], 5), // first it is that of the second flow, then that of the other one
        (&[0, 3], 4),
    ] {
        assert_eq!(run(numbers), (found, tracked.clone(), counts), "{numbers:?}");
    }
}

/// The checksum of a segment on its way through the list of a routing header is that of the last destination (RFC 8200 §8.1).
#[test]
fn a_checksum_has_the_last_destination_of_a_routing_header() {
    let [src, dst, last] =
        [1u16, 2, 3].map(|host| std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host));
    let segment = |to: std::net::Ipv6Addr| {
        let mut bytes = [0u8; 20];
        (bytes[1], bytes[3], bytes[12], bytes[13]) = (7, 80, 5 << 4, 2);
        let pseudo = packet::checksum::pseudo_header_v6(src, to, packet::IpProtocol::TCP, 20);
        let sum = packet::checksum::finish(pseudo + packet::checksum::partial_sum(&bytes));
        bytes[16..18].copy_from_slice(&sum.to_be_bytes());
        bytes
    };
    for (left, to, is_right) in
        [(1, last, true), (1, dst, true), (1, src, false), (0, dst, true), (0, last, false)]
    {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd];
        frame.extend([0x60, 0, 0, 0, 0, 24 + 20, 43, 64]);
        frame.extend(src.octets());
        frame.extend(dst.octets());
        frame.extend([6, 2, 4, left, 0, 0, 0, 0]);
        frame.extend(last.octets());
        frame.extend(segment(to));
        let decoded = packet::decode(&frame, frame.len());
        let input = Input {
            decoded: &decoded,
            frame: &frame,
            frame_len: frame.len() as u32,
            time_ns: 0,
            port: 0,
            checksums: true,
            tunnels: None,
            segment: None,
        };
        assert_eq!(super::super::checked_segment(&input).is_ok(), is_right, "{left} {to}");
    }
}
