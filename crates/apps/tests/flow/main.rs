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

use apps::flow::connections::ConnectionColumns;
use apps::flow::follow::{Follower, Followers, Kept, Listener, Place};
use apps::flow::stage::Shared;
use apps::flow::{Flow, FlowDecode};
use apps::wire::Wire;
use chunk::{Chunk, Columns, Declaration};
use engine::{Context, Phases, Stage};
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

/// A stage between decoding and the tracker.
#[derive(Clone, Copy, Debug, Default)]
struct Before {
    decodes: bool,
    /// Connections that a device numbers.
    connections: usize,
    /// What it says of them is changed.
    lies: bool,
}

impl Before {
    const NONE: Self = Self { decodes: false, connections: 0, lies: false };
    const DECODES: Self = Self { decodes: true, ..Self::NONE };
}

/// Changes the numbers of connections.
struct Liar(Random);

impl Stage<u64> for Liar {
    fn name(&self) -> &'static str {
        "liar"
    }

    fn columns(&self) -> &'static [Declaration] {
        &[ConnectionColumns::COLUMNS]
    }

    fn phases(&self) -> Phases {
        Phases::PRE
    }

    fn pre_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, u64>) {
        for number in ConnectionColumns::view(&mut chunk.rows).flow_number {
            if self.0.one_in(3) {
                *number = self.0.below(100) as u32;
            }
        }
    }
}

/// And how many packets had the answer of another one's look-up, and were found by a number.
fn run(
    frames: &[(u64, Vec<u8>)],
    before: Before,
    confirms: bool,
    setup: &Setup,
) -> (Outcome, [u64; 2]) {
    let ears = Ears::default();
    let latest = Arc::new(AtomicU64::new(0));
    let trackers: Vec<Shared> = (0..setup.workers)
        .map(|worker| {
            let followers = Followers::new(vec![ears.follower(worker, setup.workers)]);
            let options = Options { flows: 4096, half_open: 4096, ..Options::default() };
            let mut tracker = Tracker::new(options, followers).expect("memory");
            tracker.number_up_to(before.connections);
            Arc::new(Mutex::new(tracker))
        })
        .collect();
    let stages = |worker: usize| {
        let tracker = trackers[worker].clone();
        let flow = Flow::new(tracker, latest.clone()).confirming(confirms);
        let flow = flow.decoded(before.decodes).numbered(before.connections > 0);
        let mut all: Stages<u64> = Vec::new();
        if before.decodes {
            all.push(Box::new(FlowDecode::numbering(before.connections)));
        }
        if before.lies {
            all.push(Box::new(Liar(Random::new(worker as u64))));
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
    let (mut counts, mut states, mut shared) = ([0; 9], [0; 5], [0; 2]);
    for tracker in &trackers {
        let tracker = tracker.lock().unwrap();
        shared[0] += tracker.shared();
        shared[1] += tracker.found_by_number();
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

/// How many packets had the answer of another one's look-up, and were found by a number.
fn rounds(backing: Backing, seed: u64, rounds: usize, numbers: bool) -> [u64; 2] {
    let mut random = Random::new(seed);
    let (mut counts, mut shared) = ([0; 9], [0; 2]);
    for round in 0..rounds {
        let (frames, confirms) = (traffic(&mut random), random.one_in(3));
        let plain = Setup { chunk_packets: 256, ..Setup::cpu() };
        let (expected, _) = run(&frames, Before::NONE, confirms, &plain);
        counts.iter_mut().zip(expected.counts).for_each(|(sum, own)| *sum += own);
        let setup = Setup::random(&mut random, backing);
        let before = match numbers {
            false => Before::DECODES,
            // Too few of them, too.
            true => Before {
                connections: [8, 64, 512, 40_000][random.below(4)],
                lies: random.one_in(3),
                ..Before::DECODES
            },
        };
        let (found, own) = run(&frames, before, confirms, &setup);
        shared.iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
        let first = found.heard.iter().zip(&expected.heard).find(|(own, other)| own != other);
        assert!(
            found == expected,
            "seed {seed}, round {round}, {confirms}: {:?} and {:?}; {:?}, {:?}; {first:?}; {before:?}, {setup:?}",
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
    assert_eq!(rounds(Backing::Cpu, 81, 20, false), [0, 0]);
}

#[test]
fn the_stage_before_it_changes_nothing_on_the_simulated_device() {
    assert_eq!(rounds(Backing::Simulated, 82, 20, false), [0, 0]);
}

#[test]
fn the_stage_before_it_changes_nothing_on_a_device() {
    if testkit::require_opencl() {
        let [shared, numbered] = rounds(Backing::Driver, 83, 10, false);
        assert!(shared > 20 && numbered == 0, "{shared}"); // batches are small
    }
}

/// Connections have numbers, right or wrong, of a table that fails, moves and is too small.
#[test]
fn numbers_of_connections_change_nothing_on_the_simulated_device() {
    // Most packets have none: flows are short, tables too small, and workers shade.
    let [_, numbered] = rounds(Backing::Simulated, 84, 20, true);
    assert!(numbered > 100, "{numbered}");
}

#[test]
fn numbers_of_connections_change_nothing_on_a_device() {
    if testkit::require_opencl() {
        let [_, numbered] = rounds(Backing::Driver, 85, 10, true);
        assert!(numbered > 30, "{numbered}");
    }
}

/// Enough of them that what every connection has to show is seen.
#[test]
fn nor_with_fresh_seeds() {
    rounds(Backing::Simulated, Random::from_time().word(), 20, false);
    rounds(Backing::Simulated, Random::from_time().word(), 20, true);
}
