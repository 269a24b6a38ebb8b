//! Random conversations through the tracker: against a plain twin, and against itself over other batches, sweeps, and shares
//! of the hosts.

use proptest::prelude::*;
use proptest::sample::select;

use super::steps::{Step, steps};
use super::twin::{Essence, Twin, of_record};
use super::*;

fn timeouts() -> impl Strategy<Value = IdleTimeouts> {
    let plain = IdleTimeouts::default();
    // Not whole milliseconds; and longer than the table can tell.
    let short = IdleTimeouts {
        tcp_syn_sent: 1_300_001,
        tcp_syn_recv: 1_100_000,
        tcp_established: 1_900_000,
        tcp_fin_wait: 900_001,
        tcp_close_wait: 800_000,
        tcp_last_ack: 600_000,
        tcp_time_wait: 700_000,
        tcp_close: 500_003,
        tcp_unacknowledged: 1_500_000,
        udp: 1_250_000,
        udp_stream: 2_000_000,
        icmp: 999_999,
        icmpv6: 1_000_001,
        generic: 0,
    };
    let long = IdleTimeouts {
        tcp_established: u64::MAX,
        tcp_unacknowledged: u64::MAX,
        tcp_time_wait: (1 << 32) * 1_000_000,
        tcp_close: ((1 << 32) + 7) * 1_000_000,
        udp: ((1 << 32) + 5_000) * 1_000_000,
        udp_stream: (1 << 31) * 1_000_000,
        ..plain
    };
    prop_oneof![3 => Just(plain), 1 => Just(short), 1 => Just(long)]
}

fn check_twin(steps: &[Step], timeouts: IdleTimeouts) {
    let scene = Scene::new(steps);
    let expected = Twin::run(&scene, timeouts);
    let (ended, counts) = run(&scene, options(timeouts), 7, Some(64), |_| true);
    let mut found: Vec<_> = ended.iter().map(Essence::of).collect();
    found.sort();
    assert_eq!(found, expected);
    let packets = scene.packets.iter().map(|packet| packet.frames.0).sum();
    // Closed connections that were idle are reported as closed.
    let (flows, of) =
        (ended.len() as u64, |reason| ended.iter().filter(move |own| own.record.reason == reason));
    let idle = of(Reason::Timeout).count() as u64;
    assert!((idle..=idle + of(Reason::Closed).count() as u64).contains(&counts.timed_out));
    let Counts { timed_out, errors, .. } = counts;
    assert_eq!(counts, Counts { packets, errors, flows, timed_out, ..scene.counts });
    check_counts(&scene, &ended, counts);
}

/// Which of so many workers a frame is spread to.
fn worker_of(frame: &scene::Frame, workers: u64) -> u64 {
    (u64::from(packet::flow::tracked_hash_of_frame(&frame.bytes)) * workers) >> 32
}

/// Whatever the batches, the sweeps, and the number of workers.
fn check_same(steps: &[Step], timeouts: IdleTimeouts, active_ns: Option<u64>) {
    let scene = Scene::new(steps);
    let options = Options { active_ns, ..options(timeouts) };
    let expected = run(&scene, options, 1, None, |_| true);
    check_counts(&scene, &expected.0, expected.1);
    for batch in [1, 7, 256] {
        for sweeps in [None, Some(1 << 20), Some(3)] {
            let found = run(&scene, options, batch, sweeps, |_| true);
            assert_eq!(found, expected, "batches of {batch}, sweeps of {sweeps:?}");
        }
    }
    for workers in [2, 4] {
        let mut split = Vec::new();
        for worker in 0..workers {
            let takes = |frame: &scene::Frame| worker_of(frame, workers) == worker;
            split.extend(run(&scene, options, 7, Some(64), takes).0);
        }
        split.sort_by_key(|ended| (ended.record.start_ns, ended.record.id));
        assert_eq!(split, expected.0, "{workers} workers");
    }
}

/// The same of frames that are up to `late_ns` earlier than others before them.
fn check_late(steps: &[Step], timeouts: IdleTimeouts, late_ns: u64, seed: u64) {
    let mut scene = Scene::new(steps);
    let mut state = seed;
    scene.frames.sort_by_cached_key(|frame| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        frame.time_ns + (state >> 11) % (late_ns + 1)
    });
    let options = Options { active_ns: Some(1_000_000_000), ..options(timeouts) };
    let expected = run(&scene, options, 1, None, |_| true).0;
    for batch in [1, 7, 256] {
        for sweeps in [Some(1 << 20), Some(3)] {
            let found = run_late(&scene, options, batch, (sweeps, late_ns), |_| true).0;
            assert_eq!(found, expected, "batches of {batch}, sweeps of {sweeps:?}");
        }
    }
    for workers in [2, 4] {
        let mut split = Vec::new();
        for worker in 0..workers {
            let takes = |frame: &scene::Frame| worker_of(frame, workers) == worker;
            split.extend(run_late(&scene, options, 7, (Some(64), late_ns), takes).0);
        }
        split.sort_by_key(|ended| (ended.record.start_ns, ended.record.id));
        assert_eq!(split, expected, "{workers} workers");
    }
}

/// What is reported of flows that go on is what a count of their packets says at the end of each period.
fn check_reports(steps: &[Step], active_ns: u64, sweeps: Sweeps) {
    let scene = Scene::new(steps);
    let options = Options { active_ns: Some(active_ns), ..options(IdleTimeouts::default()) };
    let (ended, _) = run(&scene, options, 7, sweeps, |_| true);
    for own in &ended {
        let record = &own.record;
        let is_own = |packet: &&super::scene::Packet| {
            of_record(&packet.key) == own.key()
                && (record.start_ns..=record.end_ns).contains(&packet.time_ns)
        };
        // Flows that begin at the same time with one key cannot be told apart here.
        let twins = ended.iter().filter(|other| {
            let span = other.record.start_ns..=other.record.end_ns;
            other.key() == own.key()
                && (span.contains(&record.start_ns) || span.contains(&record.end_ns))
        });
        // Nor can ICMP errors by what they quote, and queries by their kind.
        let keys = scene.packets.iter().flat_map(|own| [Some(own.key), own.about.map(|own| own.0)]);
        let keys = keys.flatten().filter(|key| of_record(key) == own.key());
        let has_others = keys.collect::<HashSet<_>>().len() > 1;
        let is_about = |packet: &super::scene::Packet| {
            packet.about.is_some_and(|(key, ..)| of_record(&key) == own.key())
        };
        // Some errors of one kind are of flows that they quote, and others begin their own.
        let are_errors = scene.packets.iter().filter(is_own).any(|packet| packet.about.is_some());
        let has_others = has_others || are_errors || scene.packets.iter().any(is_about);
        if twins.count() > 1 || has_others {
            continue;
        }
        let mut expected: Vec<Report> = Vec::new();
        let (mut end, mut sides, mut last) = (record.start_ns + active_ns, [(0, 0); 2], 0);
        let mut has_new = false;
        let until =
            |end: &mut u64, time_ns: u64, has_new: &mut bool, now: (u64, [(u64, u64); 2])| {
                let mut reports = Vec::new();
                while *end <= time_ns {
                    if std::mem::take(has_new) {
                        reports.push((*end, now.0, now.1));
                    }
                    *end += active_ns;
                }
                reports
            };
        for packet in scene.packets.iter().filter(is_own) {
            expected.extend(until(&mut end, packet.time_ns, &mut has_new, (last, sides)));
            let side = &mut sides[packet.side.index()];
            let d = packet::decode(&packet.bytes, packet.bytes.len());
            *side = (side.0 + packet.frames.0, side.1 + u64::from(d.ip_total_len));
            (last, has_new) = (packet.time_ns, true);
        }
        expected.extend(until(&mut end, own.time_ns, &mut has_new, (last, sides)));
        // What has closed goes on no more.
        if record.state == FlowState::Closed {
            expected.truncate(own.reports.len());
        }
        assert_eq!(own.reports, expected, "{record:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

    #[test]
    fn agrees_with_the_twin(steps in steps(30), timeouts in timeouts()) {
        check_twin(&steps, timeouts);
    }

    #[test]
    fn batches_sweeps_and_shares_do_not_matter(
        steps in steps(30),
        timeouts in timeouts(),
        active_ns in select(vec![None, Some(1_000_000), Some(2_300_000), Some(7_000_000_000)]),
    ) {
        check_same(&steps, timeouts, active_ns);
    }

    #[test]
    fn packets_may_come_late(
        steps in steps(30),
        timeouts in timeouts(),
        late_ns in select(vec![300_000, 5_000_000, 2_000_000_000, 10_000_000_000]),
        seed: u64,
    ) {
        check_late(&steps, timeouts, late_ns, seed);
    }

    #[test]
    fn reports_are_those_of_a_plain_count(
        steps in steps(8),
        active_ns in select(vec![1_000_000, 300_001, 700_000_000, 20_000_000_000]),
        sweeps in select(vec![None, Some(3), Some(1 << 20)]),
    ) {
        check_reports(&steps, active_ns, sweeps);
    }

    /// More flows than places: each is reported once all the same.
    #[test]
    fn a_small_table_loses_no_flow(
        steps in steps(120),
        half_open in 1usize..20,
        batch in select(vec![1, 7, 256]),
        sweeps in select(vec![None, Some(3), Some(1 << 20)]),
    ) {
        let mut scene = Scene::new(&steps);
        // A flow that is evicted and comes again in the same nanosecond would have the same number.
        scene.frames.iter_mut().zip(0..).for_each(|(frame, at)| frame.time_ns += at);
        let tcp = tcp::Options { buffer_bytes: 8 << 10, ..tcp::Options::default() };
        let defrag = defrag::Config { datagrams: 2, ..defrag::Config::default() };
        let options = Options { flows: 16, half_open, tcp, defrag, ..options(IdleTimeouts::default()) };
        let (ended, counts) = run(&scene, options, batch, sweeps, |_| true);
        check_counts(&scene, &ended, counts);
    }
}
