//! Flow tracking behind a device: whatever decodes packets and verifies their segments, in whatever jobs, with any number of
//! workers, and whatever fails, flows, events and bytes are those of the plain stage.

#[path = "../../../kernels/tests/pocl/frames.rs"]
#[allow(dead_code)] // not all of it is used here
mod frames;
mod held;
#[path = "../../../kernels/tests/pocl/random.rs"]
mod random;
mod segments;
#[path = "../modules/traffic.rs"]
mod traffic;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use apps::flow::follow::{Follower, Followers, Kept, Listener, Place};
use apps::flow::stage::Shared;
use apps::flow::{Flow, FlowDecode};
use apps::wire::Wire;
use io::memory::Script;
use stream::tcp::{Event, Want};
use stream::tracker::{Counts, Fragments, Identity, Input, OfFlow, Options, Reject};
use stream::{FlowRecord, Side, Tracker};
use teststages::harness::{
    Arrival, Backing, Bed, Feed, NumberImage, Numbered, Random, Setup, Stages,
};

/// What is heard of each flow, by its number, in order; of packets without a flow and of fragments by 0.
#[derive(Clone, Default)]
struct Ears(Arc<Mutex<Vec<(u64, String)>>>);

impl Ears {
    fn hear(&self, flow: u64, what: String) {
        self.0.lock().unwrap().push((flow, what));
    }
}

impl Listener for Ears {
    fn follower(&self, _: usize, _: usize) -> Box<dyn Follower> {
        Box::new(self.clone())
    }
}

impl Follower for Ears {
    fn packet(&mut self, flow: &Identity, _: &mut Kept, at: &Place, packet: &OfFlow<'_>) {
        let OfFlow { side, is_first, .. } = packet;
        self.hear(flow.id, format!("packet of {} bytes, {side:?}, {is_first}", at.frame.len()));
    }

    fn closing(&mut self, flow: &Identity) {
        self.hear(flow.id, "closing".to_owned());
    }

    fn data(&mut self, flow: &Identity, _: &mut Kept, side: Side, at: u64, bytes: &[u8]) -> Want {
        self.hear(flow.id, format!("data of {side:?} at {at}: {bytes:02x?}"));
        Want::More
    }

    fn gap(&mut self, flow: &Identity, _: &mut Kept, side: Side, at: u64, len: u64, now: u64) {
        self.hear(flow.id, format!("gap of {side:?} at {at}: {len}, {now}"));
    }

    fn event(&mut self, flow: &Identity, _: &mut Kept, side: Side, event: Event, now: u64) {
        self.hear(flow.id, format!("{event:?} of {side:?}, {now}"));
    }

    fn rejected(&mut self, _: Option<usize>, input: &Input<'_>, why: Reject) {
        self.hear(0, format!("{why:?}: {}, {:?}", input.time_ns, input.decoded));
    }

    /// When a worker finds that fragments are too late depends on its other fragments.
    fn fragments(&mut self, fragments: &Fragments) -> bool {
        if fragments.failed.is_none() {
            self.hear(0, format!("{} fragments: {:?}", fragments.time_ns, fragments.notes));
        }
        false
    }

    fn ended(&mut self, record: &FlowRecord, client: Side, _: &mut Kept, now: u64) {
        self.hear(record.id, format!("{record:?}, {client:?}, {now}"));
    }
}

/// What came of frames.
#[derive(Debug, PartialEq)]
struct Outcome {
    heard: Vec<(u64, String)>,
    sent: Vec<Arrival>,
    counts: [u64; 9],
    states: [u64; 5],
}

fn numbers(counts: Counts) -> [u64; 9] {
    let Counts {
        flows,
        timed_out,
        packets,
        not_ip,
        malformed,
        checksum,
        no_room,
        fragments,
        fragments_lost,
        ..
    } = counts;
    [flows, timed_out, packets, not_ip, malformed, checksum, no_room, fragments, fragments_lost]
}

/// And how many packets had the answer of another one's look-up.
fn run(frames: &[(u64, Vec<u8>)], decodes: bool, confirms: bool, setup: &Setup) -> (Outcome, u64) {
    let ears = Ears::default();
    let latest = Arc::new(AtomicU64::new(0));
    let trackers: Vec<Shared> = (0..setup.workers)
        .map(|worker| {
            let followers = Followers::new(vec![ears.follower(worker, setup.workers)]);
            let options = Options { flows: 4096, half_open: 4096, ..Options::default() };
            Arc::new(Mutex::new(Tracker::new(options, followers).expect("memory")))
        })
        .collect();
    let stages = |worker: usize| {
        let tracker = trackers[worker].clone();
        let flow = Flow::new(tracker, latest.clone()).confirming(confirms).decoded(decodes);
        let mut all: Stages<u64> = Vec::new();
        if decodes {
            all.push(Box::new(FlowDecode));
        }
        all.push(Box::new(flow));
        all.push(Box::new(Wire::new()));
        all
    };
    let feed = Feed {
        worker: 0,
        port: 0,
        queue: Box::new(Script::new(frames.to_vec())),
        spread: Some(packet::flow::tracked_hash_of_frame.into()),
        entry: engine::Entry::default(),
    };
    let bed = Bed {
        name: format!("{setup:?}"),
        feeds: vec![feed],
        ports: 2,
        devices: setup.devices(|| Box::new(NumberImage)),
        chunk_packets: setup.chunk_packets,
        chunks: setup.chunks,
        max_delay: setup.max_delay,
        packet_time: true,
        cells: 40_000,
        ..Bed::new(Vec::new())
    };
    let ran =
        bed.run((0..setup.workers).map(|worker| (Numbered::new(1), stages(worker))).collect());
    assert!(ran.panics.is_empty(), "{}", ran.panics[0]);
    ran.conserves().unwrap();
    let mut sent: Vec<Arrival> = ran.ports.into_iter().flatten().collect();
    sent.sort();
    let mut heard = std::mem::take(&mut *ears.0.lock().unwrap());
    // What is heard of a flow keeps its order; what has no flow has its time.
    heard.sort_by(|(flow, what), (other, line)| match flow {
        0 => (flow, what).cmp(&(other, line)),
        _ => flow.cmp(other),
    });
    let (mut counts, mut states, mut shared) = ([0; 9], [0; 5], 0);
    for tracker in &trackers {
        let tracker = tracker.lock().unwrap();
        shared += tracker.shared();
        counts.iter_mut().zip(numbers(tracker.counts())).for_each(|(sum, own)| *sum += own);
        states.iter_mut().zip(tracker.states()).for_each(|(sum, (_, own))| *sum += own);
    }
    counts[8] = 0; // as with the events of fragments
    (Outcome { heard, sent, counts, states }, shared)
}

/// Connections that are cut, reordered, doubled, overlapped and in fragments, damaged segments, segments of more than a cell, and
/// frames that are nothing.
fn traffic(random: &mut Random) -> Vec<(u64, Vec<u8>)> {
    let mut all = traffic::frames(random);
    for _ in 0..random.below(60) {
        let at = random.below(all.len() + 1);
        let mut drawn = random::Random(random.word());
        all.insert(
            at,
            match random.below(3) {
                0 => frames::frame(&mut drawn),
                _ => segments::frame(&mut || drawn.next(), 6000),
            },
        );
    }
    for frame in &mut all {
        if random.one_in(20) && !frame.is_empty() {
            let at = random.below(frame.len());
            frame[at] ^= 1 << random.below(8);
        }
    }
    all.retain(|frame| !frame.is_empty());
    let mut now = 1_700_000_000_000_000_000;
    let mut timed = Vec::new();
    for frame in all {
        now += match random.one_in(40) {
            true => random.below(80) as u64 * 1_000_000_000,
            false => random.below(2000) as u64,
        } + 1;
        timed.push((now, frame));
    }
    timed
}

/// How many packets had the answer of another one's look-up.
fn rounds(backing: Backing, seed: u64, rounds: usize) -> u64 {
    let mut random = Random::new(seed);
    let (mut counts, mut shared) = ([0; 9], 0);
    for round in 0..rounds {
        let (frames, confirms) = (traffic(&mut random), random.one_in(3));
        let plain = Setup { chunk_packets: 256, ..Setup::cpu() };
        let (expected, _) = run(&frames, false, confirms, &plain);
        counts.iter_mut().zip(expected.counts).for_each(|(sum, own)| *sum += own);
        let setup = Setup::random(&mut random, backing);
        let (found, own) = run(&frames, true, confirms, &setup);
        shared += own;
        let first = found.heard.iter().zip(&expected.heard).find(|(own, other)| own != other);
        assert!(
            found == expected,
            "seed {seed}, round {round}, {confirms}: {:?} and {:?}; {:?}, {:?}; {first:?}; {setup:?}",
            found.counts,
            expected.counts,
            found.states,
            expected.states
        );
    }
    assert!(counts[5] > 10 && counts[4] > 10 && counts[2] > 1000, "{counts:?}");
    shared
}

/// Without a device.
#[test]
fn the_stage_before_it_changes_nothing_on_the_cpu() {
    assert_eq!(rounds(Backing::Cpu, 81, 20), 0);
}

#[test]
fn the_stage_before_it_changes_nothing_on_the_simulated_device() {
    assert_eq!(rounds(Backing::Simulated, 82, 20), 0);
}

#[test]
fn the_stage_before_it_changes_nothing_on_a_device() {
    if testkit::require_opencl() {
        let shared = rounds(Backing::Driver, 83, 10);
        assert!(shared > 20, "{shared}"); // batches are small
    }
}

/// Enough of them that what every connection has to show is seen.
#[test]
fn nor_with_fresh_seeds() {
    rounds(Backing::Simulated, Random::from_time().word(), 20);
}
