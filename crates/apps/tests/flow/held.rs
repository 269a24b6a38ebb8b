//! Fragments that are held back: whatever the cuts, order, overlaps, copies, batches, workers and devices, all fragments of a
//! datagram have the verdict that the datagram has, in the place of the fragment that completes it. A plain twin puts them together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use apps::flow::follow::{Follower, Followers, Kept, Listener, Place};
use apps::flow::reasons::held::{
    FRAGMENT_CONFLICT, FRAGMENT_EVICTED, FRAGMENT_INVALID, FRAGMENT_TIMEOUT,
};
use apps::flow::{Flow, FlowDecode};
use apps::wire::Wire;
use chunk::{Chunk, DropReason, ReasonBlock, Verdict};
use engine::{Context, InOrder, Phases, Stage};
use io::memory::Script;
use stream::defrag::Config;
use stream::tcp::Want;
use stream::tracker::{Identity, OfFlow, Options};
use stream::{FlowRecord, Side, Tracker};
use teststages::harness::{
    Arrival, Backing, Bed, Feed, NumberImage, Numbered, Random, Setup, Stages,
};
use teststages::reasons::TEST;

const SECOND: u64 = 1_000_000_000;

/// Whether a datagram with these bytes of its upper layer is dropped.
fn is_bad(upper: &[u8]) -> bool {
    upper.get(8..).is_some_and(|payload| payload.windows(4).any(|own| own == b"evil"))
}

/// Rows that are to be dropped, of the chunk at hand.
type Rows = Arc<Mutex<BTreeSet<usize>>>;

/// Judges datagrams as a whole. `judges_rest`: it says of each further fragment what it said of the datagram, as intrusion
/// detection does, or of the first one alone, as modules do.
struct Judge {
    rows: Rows,
    judges_rest: bool,
    last: bool,
}

impl Follower for Judge {
    fn begin(&mut self, _: u32) {
        self.rows.lock().unwrap().clear();
    }

    fn packet(&mut self, _: &Identity, _: &mut Kept, at: &Place, packet: &OfFlow<'_>) {
        if !packet.is_rest {
            assert!(!packet.is_piece(), "no fragment comes alone");
            let d = packet.input.decoded;
            self.last = is_bad(&packet.input.frame[usize::from(d.l4_offset)..d.l3_end()]);
        }
        if self.last && (self.judges_rest || !packet.is_rest) {
            self.rows.lock().unwrap().insert(at.row);
        }
    }

    fn data(&mut self, _: &Identity, _: &mut Kept, _: Side, _: u64, _: &[u8]) -> Want {
        Want::More
    }

    fn ended(&mut self, _: &FlowRecord, _: Side, _: &mut Kept, _: u64) {}
}

struct Judges(Vec<Rows>, bool);

impl Listener for Judges {
    fn follower(&self, worker: usize, _: usize) -> Box<dyn Follower> {
        let rows = self.0[worker].clone();
        Box::new(Judge { rows, judges_rest: self.1, last: false })
    }
}

/// Drops them.
struct Dropper(Rows);

impl Stage<u64> for Dropper {
    fn name(&self) -> &'static str {
        "dropper"
    }

    fn phases(&self) -> Phases {
        Phases::PRE
    }

    fn drop_reasons(&self) -> &'static [&'static ReasonBlock] {
        &[teststages::reasons::BLOCK]
    }

    fn pre_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, u64>) {
        for row in self.0.lock().unwrap().iter() {
            // Of a chunk without a row on its way nothing was said.
            if let Some(verdict) = chunk.rows.verdicts().get_mut(*row)
                && Verdict(*verdict).is_next()
            {
                *verdict = Verdict::drop(TEST).0;
            }
        }
    }
}

/// A packet with IPv4 or IPv6, whole or a fragment.
fn frame(is_v6: bool, host: u8, id: u32, (offset, more): (usize, bool), part: &[u8]) -> Vec<u8> {
    let is_fragment = more || offset > 0;
    let mut frame = vec![2; 12];
    match is_v6 {
        false => {
            let [a, b] = ((20 + part.len()) as u16).to_be_bytes();
            let [c, d] = (id as u16).to_be_bytes();
            let [e, f] = ((offset / 8) as u16 + (u16::from(more) << 13)).to_be_bytes();
            let mut ip = [0x45, 0, a, b, c, d, e, f, 64, 17, 0, 0, 10, 0, 0, host, 10, 0, 1, 1];
            let sum = packet::checksum::internet_checksum(&ip);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
            frame.extend([8, 0]);
            frame.extend(ip);
        }
        true => {
            let own = if is_fragment { 8 } else { 0 };
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(((own + part.len()) as u16).to_be_bytes());
            frame.extend([if is_fragment { 44 } else { 17 }, 64]);
            for last in [host, 200] {
                frame.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
            }
            if is_fragment {
                frame.extend([17, 0]);
                frame.extend((offset as u16 | u16::from(more)).to_be_bytes());
                frame.extend(id.to_be_bytes());
            }
        }
    }
    frame.extend_from_slice(part);
    frame
}

/// A fragment as the twin sees it.
#[derive(Clone)]
struct Piece {
    /// Of a whole packet `None`.
    datagram: Option<(bool, u8, u32)>,
    offset: usize,
    more: bool,
    part: Vec<u8>,
    frame: Vec<u8>,
}

fn piece((is_v6, host, id): (bool, u8, u32), (offset, more): (usize, bool), part: &[u8]) -> Piece {
    let frame = frame(is_v6, host, id, (offset, more), part);
    let datagram = (more || offset > 0).then_some((is_v6, host, id));
    Piece { datagram, offset, more, part: part.to_vec(), frame }
}

/// A UDP datagram, bad or not.
fn upper(random: &mut Random, host: u8) -> Vec<u8> {
    let mut payload: Vec<u8> =
        (0..random.between(9, 400)).map(|_| random.below(200) as u8).collect();
    if random.one_in(3) {
        let at = random.below(payload.len() - 4);
        payload[at..at + 4].copy_from_slice(b"evil");
    }
    let len = (8 + payload.len()) as u16;
    [&[0x10, host, 0, 53][..], &len.to_be_bytes(), &[0, 0], &payload].concat()
}

/// Packets, and datagrams cut anywhere, in any order, with copies, with overlaps of IPv4 whose bytes are the same or are not; some
/// are not complete.
fn traffic(random: &mut Random) -> Vec<Piece> {
    let mut queues: Vec<Vec<Piece>> = Vec::new();
    for id in 0..random.between(5, 60) as u32 {
        let (is_v6, host) = (random.one_in(3), random.below(6) as u8 + 1);
        let (key, upper) = ((is_v6, host, id), upper(random, host));
        if random.one_in(4) {
            queues.push(vec![piece(key, (0, false), &upper)]);
            continue;
        }
        let mut cuts: BTreeSet<usize> =
            (0..random.between(1, 12)).map(|_| 8 * random.below(upper.len().div_ceil(8))).collect();
        cuts.remove(&0);
        if cuts.is_empty() {
            cuts.insert(8);
        }
        let ends = cuts.iter().copied().chain([upper.len()]);
        let begins = [0].into_iter().chain(cuts.iter().copied());
        let mut all: Vec<Piece> = begins
            .zip(ends)
            .map(|(begin, end)| piece(key, (begin, end < upper.len()), &upper[begin..end]))
            .collect();
        if random.one_in(3) {
            let copy = all[random.below(all.len())].clone();
            all.push(copy);
        }
        if !is_v6 && random.one_in(3) {
            let begin = 8 * random.below(upper.len() / 8);
            let end = (begin + 8 * random.between(1, 6)).min(upper.len());
            let mut part = upper[begin..end].to_vec();
            if random.one_in(2) {
                let at = random.below(part.len());
                part[at] ^= 1;
            }
            if begin > 0 || end < upper.len() {
                all.push(piece(key, (begin, end < upper.len()), &part));
            }
        }
        if random.one_in(3) {
            random.shuffle(&mut all);
        }
        if random.one_in(8) {
            all.remove(random.below(all.len()));
        }
        all.reverse(); // taken from the end
        queues.push(all);
    }
    let mut all = Vec::new();
    while !queues.is_empty() {
        let at = random.below(queues.len().min(9));
        match queues[at].pop() {
            Some(own) => all.push(own),
            None => {
                queues.remove(at);
            }
        }
    }
    all
}

/// What is sent, with the time at which it leaves, and what is dropped.
#[derive(Debug, Default, PartialEq)]
struct Fates {
    sent: Vec<Arrival>,
    dropped: BTreeMap<u16, Vec<Vec<u8>>>,
}

impl Fates {
    fn drop(&mut self, reason: DropReason, frame: &[u8]) {
        self.dropped.entry(reason.code()).or_default().push(frame.to_vec());
    }

    fn sorted(mut self) -> Self {
        self.dropped.values_mut().for_each(|frames| frames.sort());
        self
    }
}

/// One packet after the other, bytes in a map.
fn plainly(frames: &[(u64, Piece)]) -> Fates {
    let mut waiting: BTreeMap<(bool, u8, u32), Vec<&Piece>> = BTreeMap::new();
    let mut fates = Fates::default();
    for (time_ns, own) in frames {
        let Some(key) = own.datagram else {
            match is_bad(&own.part) {
                true => fates.drop(TEST, &own.frame),
                false => fates.sent.push((*time_ns, own.frame.clone())),
            }
            continue;
        };
        let pieces = waiting.entry(key).or_default();
        pieces.push(own);
        let Some(last) = pieces.iter().find(|own| !own.more) else { continue };
        let (len, mut bytes, mut differ) = (last.offset + last.part.len(), BTreeMap::new(), false);
        for own in &*pieces {
            for (at, byte) in own.part.iter().enumerate() {
                differ |= bytes.insert(own.offset + at, *byte).is_some_and(|other| other != *byte);
            }
        }
        if bytes.len() < len {
            continue;
        }
        let upper: Vec<u8> = bytes.into_values().collect();
        for own in waiting.remove(&key).into_iter().flatten() {
            match (differ, is_bad(&upper)) {
                (true, _) => fates.drop(FRAGMENT_CONFLICT, &own.frame),
                (_, true) => fates.drop(TEST, &own.frame),
                _ => fates.sent.push((*time_ns, own.frame.clone())),
            }
        }
    }
    for own in waiting.into_values().flatten() {
        fates.drop(FRAGMENT_TIMEOUT, &own.frame);
    }
    fates.sorted()
}

/// How the stage is used.
#[derive(Clone, Copy, Debug)]
struct Form {
    confirms: bool,
    judges_rest: bool,
    /// Headers come from a stage before it, on a device if there is one.
    decodes: bool,
}

fn run(frames: &[(u64, Vec<u8>)], form: Form, bounds: Config, setup: &Setup) -> Fates {
    run_in(40_000, frames, form, bounds, setup)
}

/// With so many cells.
fn run_in(
    cells: u32,
    frames: &[(u64, Vec<u8>)],
    form: Form,
    bounds: Config,
    setup: &Setup,
) -> Fates {
    let rows: Vec<Rows> = (0..setup.workers).map(|_| Rows::default()).collect();
    let judges = Judges(rows.clone(), form.judges_rest);
    let latest = Arc::new(AtomicU64::new(0));
    let stages = |worker: usize| {
        let followers = Followers::new(vec![judges.follower(worker, setup.workers)]);
        let options = Options { flows: 1024, half_open: 1024, ..Options::default() };
        let tracker = Arc::new(Mutex::new(Tracker::new(options, followers).expect("memory")));
        let flow = Flow::new(tracker, latest.clone()).confirming(form.confirms);
        let flow = flow.decoded(form.decodes).holding(Some(bounds), setup.workers);
        let mut all: Stages<u64> = Vec::new();
        if form.decodes {
            all.push(Box::new(FlowDecode::default()));
        }
        all.push(Box::new(flow));
        all.push(Box::new(Dropper(rows[worker].clone())));
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
        name: format!("{form:?}, {setup:?}"),
        feeds: vec![feed],
        ports: 2,
        devices: setup.devices(|| Box::new(NumberImage)),
        chunk_packets: setup.chunk_packets,
        chunks: setup.chunks,
        max_delay: setup.max_delay,
        packet_time: true,
        in_order: Some(InOrder::default()),
        cells,
        ..Bed::new(Vec::new())
    };
    let ran =
        bed.run((0..setup.workers).map(|worker| (Numbered::new(1), stages(worker))).collect());
    assert!(ran.panics.is_empty(), "{}", ran.panics[0]);
    ran.conserves().unwrap();
    let mut fates = Fates { sent: ran.ports.into_iter().flatten().collect(), ..Fates::default() };
    for (reason, (_, frame)) in ran.dropped {
        fates.drop(reason, &frame);
    }
    fates.sorted()
}

fn timed(pieces: Vec<Piece>) -> Vec<(u64, Piece)> {
    let begin = 1_700_000_000 * SECOND;
    pieces.into_iter().enumerate().map(|(at, own)| (begin + at as u64 * 1000, own)).collect()
}

fn bytes(frames: &[(u64, Piece)]) -> Vec<(u64, Vec<u8>)> {
    frames.iter().map(|(time_ns, own)| (*time_ns, own.frame.clone())).collect()
}

fn rounds(backing: Backing, seed: u64, rounds: usize) {
    let mut random = Random::new(seed);
    let mut seen = BTreeMap::<u16, usize>::new();
    for round in 0..rounds {
        let frames = timed(traffic(&mut random));
        let expected = plainly(&frames);
        for (reason, frames) in &expected.dropped {
            *seen.entry(*reason).or_default() += frames.len();
        }
        let setup =
            Setup { workers: random.pick(&[1, 2, 4]), ..Setup::random(&mut random, backing) };
        let form = Form {
            confirms: random.one_in(2),
            judges_rest: random.one_in(2),
            decodes: backing != Backing::Cpu || random.one_in(2),
        };
        let found = run(&bytes(&frames), form, Config::default(), &setup);
        assert!(
            found == expected,
            "seed {seed}, round {round}: {form:?}, {setup:?}\n{found:x?}\n{expected:x?}"
        );
    }
    for reason in [TEST, FRAGMENT_CONFLICT, FRAGMENT_TIMEOUT] {
        assert!(seen.get(&reason.code()).is_some_and(|count| *count > rounds), "{seen:?}");
    }
}

#[test]
fn fragments_have_the_verdict_of_their_datagram() {
    rounds(Backing::Cpu, 91, 30);
}

#[test]
fn fragments_have_the_verdict_of_their_datagram_on_the_simulated_device() {
    rounds(Backing::Simulated, 92, 30);
}

#[test]
fn fragments_have_that_verdict_with_fresh_seeds() {
    rounds(Backing::Simulated, Random::from_time().word(), 20);
}

const PLAIN: Form = Form { confirms: true, judges_rest: true, decodes: false };

/// A datagram in so many fragments of 8 bytes.
fn cut(key: (bool, u8, u32), fragments: usize) -> Vec<Piece> {
    let bytes = vec![key.1; 8 * fragments];
    let more = |at: usize| at + 1 < fragments;
    (0..fragments).map(|at| piece(key, (8 * at, more(at)), &bytes[8 * at..8 * at + 8])).collect()
}

#[test]
fn fragments_that_wait_too_long_are_dropped() {
    let start = 1_700_000_000 * SECOND;
    let [first, second] = cut((false, 1, 1), 2).try_into().ok().unwrap();
    let other = piece((false, 2, 2), (0, true), &[0; 8]);
    for (delay, passes) in [(29, true), (31, false)] {
        // A host that waits longer would have it whole.
        let frames = vec![
            (start, first.clone()),
            (start + delay * SECOND, second.clone()),
            (start + 100 * SECOND, other.clone()),
        ];
        let found = run(&bytes(&frames), PLAIN, Config::default(), &Setup::cpu());
        assert_eq!(found.sent.len(), if passes { 2 } else { 0 }, "after {delay} s");
        let dropped = &found.dropped[&FRAGMENT_TIMEOUT.code()];
        assert_eq!(dropped.len(), if passes { 1 } else { 3 }, "after {delay} s");
    }
}

#[test]
fn floods_push_out_their_own_fragments() {
    let bounds = Config { datagrams: 16, ..Config::default() };
    let mut pieces = cut((false, 1, 1), 3);
    let last = pieces.pop().unwrap();
    pieces.extend((0..200).map(|id| piece((false, 2, id), (0, true), &[7; 8])));
    pieces.push(last);
    let frames = timed(pieces);
    let found = run(&bytes(&frames), PLAIN, bounds, &Setup::cpu());
    assert_eq!(found.sent.len(), 3, "a datagram of another pair is whole");
    assert_eq!(found.dropped[&FRAGMENT_EVICTED.code()].len(), 185);
    assert_eq!(found.dropped[&FRAGMENT_TIMEOUT.code()].len(), 15, "those at the end");
}

/// A datagram alone may not hold more cells than all may.
#[test]
fn a_share_of_few_cells_is_kept() {
    const CELLS: u32 = 800;
    let pieces = (0..300).map(|id| piece((false, 2, id), (0, true), &[7; 8])).collect();
    let frames = bytes(&timed(pieces));
    let found = run_in(CELLS, &frames, PLAIN, Config::default(), &Setup::cpu());
    let held = found.dropped[&FRAGMENT_TIMEOUT.code()].len();
    assert_eq!(held, CELLS as usize / 8, "those at the end");
    assert_eq!(found.dropped[&FRAGMENT_EVICTED.code()].len(), 300 - held);
}

/// What is behind an IP packet is none of it, but takes cells.
#[test]
fn fragments_with_cells_of_padding_are_dropped() {
    let mut frames = bytes(&timed([cut((false, 1, 1), 2), cut((true, 2, 2), 2)].concat()));
    frames[1].1.extend([0; 100]);
    frames[3].1.extend([0; 5000]);
    let found = run(&frames, PLAIN, Config::default(), &Setup::cpu());
    assert_eq!(found.sent.len(), 2, "with some padding");
    assert_eq!(found.dropped[&FRAGMENT_INVALID.code()], [frames[3].1.clone()]);
    assert_eq!(found.dropped[&FRAGMENT_TIMEOUT.code()], [frames[2].1.clone()]);
}

/// A first fragment sent again with other ports begins a datagram that never completes.
#[test]
fn a_second_first_fragment_does_not_get_through() {
    let key = (false, 1, 1);
    let mut pieces = cut(key, 3);
    let forged = piece(key, (0, true), &[9; 8]);
    pieces.push(forged.clone());
    let found = run(&bytes(&timed(pieces)), PLAIN, Config::default(), &Setup::cpu());
    assert_eq!(found.sent.len(), 3);
    assert_eq!(found.dropped[&FRAGMENT_TIMEOUT.code()], [forged.frame]);
    // In the midst, nobody knows which one a host takes.
    let mut pieces = cut(key, 3);
    pieces.insert(1, piece(key, (0, true), &[9; 8]));
    let found = run(&bytes(&timed(pieces)), PLAIN, Config::default(), &Setup::cpu());
    assert_eq!((found.sent.len(), found.dropped[&FRAGMENT_CONFLICT.code()].len()), (0, 4));
    // So with two ends.
    let mut pieces = cut(key, 3);
    pieces.insert(0, piece(key, (32, false), &[9; 8]));
    let found = run(&bytes(&timed(pieces)), PLAIN, Config::default(), &Setup::cpu());
    assert_eq!((found.sent.len(), found.dropped[&FRAGMENT_CONFLICT.code()].len()), (0, 4));
}

#[test]
fn fragments_that_no_host_takes_are_dropped() {
    let mut pieces = vec![piece((false, 1, 1), (0, true), &[7; 9])];
    pieces.extend(cut((false, 1, 2), 2));
    let found = run(&bytes(&timed(pieces)), PLAIN, Config::default(), &Setup::cpu());
    assert_eq!((found.sent.len(), found.dropped[&FRAGMENT_INVALID.code()].len()), (2, 1));
}
