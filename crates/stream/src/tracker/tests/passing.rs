//! Flows that the module passes over: what is kept and reported of them is the same, and what else is heard.

use proptest::prelude::*;
use proptest::sample::select;

use super::steps::{Step, steps};
use super::*;
use crate::tracker::Passed;

/// Passes over flows of which it had so many bytes, by a number that changes with packets.
struct Skips {
    ears: Ears,
    after: u64,
    packets: u64,
    changes: u64,
    passed: Passed,
}

impl Module for Skips {
    type State = <Ears as Module>::State;

    fn packet(&mut self, _: &Identity, _: &mut Self::State, _: &OfFlow<'_>) {
        self.packets += 1;
    }

    fn passing(&self) -> u32 {
        // Now and then none are.
        ((self.packets / self.changes + 1) % 5) as u32
    }

    fn passed(&mut self, passed: &Passed) {
        self.passed.packets += passed.packets;
        self.passed.bytes += passed.bytes;
        assert!(passed.packets > 0 && passed.times_ns.0 <= passed.times_ns.1);
    }

    fn data(
        &mut self,
        flow: &Identity,
        state: &mut Self::State,
        side: Side,
        offset: u64,
        bytes: &[u8],
    ) -> Want {
        self.ears.data(flow, state, side, offset, bytes);
        let is_enough = offset + bytes.len() as u64 >= self.after;
        if is_enough { Want::PassOver } else { Want::More }
    }

    fn gap(
        &mut self,
        flow: &Identity,
        state: &mut Self::State,
        side: Side,
        offset: u64,
        bytes: u64,
        time_ns: u64,
    ) {
        self.ears.gap(flow, state, side, offset, bytes, time_ns);
    }

    fn end_of_side(
        &mut self,
        flow: &Identity,
        state: &mut Self::State,
        side: Side,
        offset: u64,
        end: End,
    ) {
        self.ears.end_of_side(flow, state, side, offset, end);
    }

    fn event(
        &mut self,
        flow: &Identity,
        state: &mut Self::State,
        side: Side,
        event: Event,
        time_ns: u64,
    ) {
        self.ears.event(flow, state, side, event, time_ns);
    }

    fn ended(&mut self, record: &FlowRecord, client: Side, state: &mut Self::State, time_ns: u64) {
        self.ears.ended(record, client, state, time_ns);
    }

    fn goes_on(
        &mut self,
        record: &FlowRecord,
        client: Side,
        state: &mut Self::State,
        time_ns: u64,
    ) {
        self.ears.goes_on(record, client, state, time_ns);
    }
}

/// What the tracker says of a packet.
type Answer = (PacketState, bool, Option<Slot>);

fn run_skipping(
    scene: &Scene,
    options: Options,
    (batch, checksums): (usize, bool),
    (after, changes): (u64, u64),
) -> (Vec<Ended>, Counts, Passed, u64, Vec<Option<Answer>>) {
    let mut outputs = Vec::new();
    let ears = Ears::default();
    let skips = Skips { ears, after, packets: 0, changes, passed: Passed::default() };
    let mut tracker = Tracker::new(options, skips).unwrap();
    for frames in scene.frames.chunks(batch) {
        let decode = |frame: &scene::Frame| packet::decode(&frame.bytes, frame.bytes.len());
        let decoded: Vec<_> = frames.iter().map(decode).collect();
        let input = |at: usize| Input {
            decoded: &decoded[at],
            frame: &frames[at].bytes,
            frame_len: frames[at].bytes.len() as u32,
            time_ns: frames[at].time_ns,
            port: 3,
            checksums,
            tunnels: None,
            segment: None,
        };
        let begin = outputs.len();
        outputs.resize(begin + frames.len(), None);
        tracker.packets(frames.len(), input, |at, tracked| {
            let state = (tracked.state, tracked.is_reply, tracked.slot);
            assert_eq!(outputs[begin + at].replace(state), None, "one answer for each");
        });
    }
    assert!(outputs.iter().all(Option::is_some));
    tracker.finish(scene.latest_ns());
    let (counts, module) = (tracker.counts(), tracker.module());
    let mut ended = std::mem::take(&mut module.ears.ended);
    ended.sort_by_key(|ended| (ended.record.start_ns, ended.record.id));
    (ended, counts, module.passed, module.packets, outputs)
}

/// All but bytes, and of these those that were heard come in their order.
fn check_heard(heard: &[Heard], all: &[Heard]) -> bool {
    let mut left = all.iter();
    let skipped = |own: &Heard| loop {
        match left.next() {
            Some(next) if next == own => return true,
            Some(Heard::Data(..)) => {}
            _ => return false,
        }
    };
    heard.iter().all(skipped) && left.all(|own| matches!(own, Heard::Data(..)))
}

fn check(steps: &[Step], batch: usize, (after, changes): (u64, u64), active_ns: Option<u64>) {
    let scene = Scene::new(steps);
    let options = Options { active_ns, ..options(IdleTimeouts::default()) };
    // A segment with a wrong checksum counts if it is the next of a flow that is passed over.
    let checksums = scene.counts.checksum == 0;
    let (ended, own, ..) = run_skipping(&scene, options, (batch, true), (after, changes));
    check_counts(&scene, &ended, own);
    assert!(own.checksum <= scene.counts.checksum);
    // Nothing is passed over where no flow is.
    let (all, counts, passed, packets, answers) =
        run_skipping(&scene, options, (batch, checksums), (u64::MAX, 1));
    assert_eq!(passed.packets, 0);
    let (ended, own, passed, heard, skipped) =
        run_skipping(&scene, options, (batch, checksums), (after, changes));
    assert_eq!(own, counts);
    assert_eq!(skipped, answers);
    assert_eq!((all.len(), packets), (ended.len(), heard + passed.packets));
    for (own, expected) in ended.iter().zip(&all) {
        let (heard, all) = (&own.heard, &expected.heard);
        assert!(check_heard(heard, all), "{heard:?} of {all:?}");
        let mut own = Ended { heard: Vec::new(), ..own.clone() };
        if own.record.state == FlowState::Bypassed {
            assert!(after < u64::MAX && expected.record.state != FlowState::New);
            own.record.state = expected.record.state;
        }
        assert_eq!(own, Ended { heard: Vec::new(), ..expected.clone() });
    }
}

/// Where all bytes are too many.
#[test]
fn some_are_passed_over() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let (mut passed, mut bypassed) = (0, 0);
    for _ in 0..64 {
        let scene = Scene::new(&steps(2).new_tree(&mut runner).unwrap().current());
        let (ended, _, own, ..) =
            run_skipping(&scene, options(IdleTimeouts::default()), (7, true), (1, 1 << 20));
        passed += own.packets;
        bypassed += ended.iter().filter(|own| own.record.state == FlowState::Bypassed).count();
    }
    assert!(passed > 100 && bypassed > 10, "{passed} packets, {bypassed} flows");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

    #[test]
    fn all_but_bytes_is_the_same(
        steps in steps(6),
        batch in select(vec![1, 7, 256]),
        after in 1u64..400,
        changes in select(vec![1, 7, 100, 10_000]),
        active_ns in select(vec![None, Some(2_300_000)]),
    ) {
        check(&steps, batch, (after, changes), active_ns);
    }
}
