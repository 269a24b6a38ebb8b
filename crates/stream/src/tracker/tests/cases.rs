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

/// A client that opens connections with the same ports again and again, in a capture with coarse times.
#[test]
fn connections_that_begin_at_the_same_time_have_numbers_of_their_own() {
    let scene = Scene::new(&[step(0, 2, 0), step(0, 2, 0), step(0, 2, 0), step(0, 2, 0)]);
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
