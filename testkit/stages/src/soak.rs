//! Random pipelines of test stages over random workers, queues and devices with faults, moves of shards, changing
//! tables and panics, each run compared with a model of one packet after the other.
//!
//! ```text
//!  seed ─▶ Scenario ─┬─▶ engine ─▶ what became of each packet, what was counted ─┐
//!                    └─▶ model  ─▶ what must become of it, what must be counted ─┴─▶ the same
//! ```
//!
//! A packet's number is its time stamp, which no stage changes. Each number that was received must come out once, where
//! the model says and with its bytes, or be dropped for want of room, or by a panic, where the scenario has those. A
//! flow's packets that go straight through keep their order.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chunk::{DropReason, Packet, Pool, reasons};
use engine::{DeviceSpec, Stage};
use io::{QueueStats, RxQueue};

use crate::harness::{
    Backing, Bed, Ends, Feed, NumberImage, Numbered, Random, Run, Setup, flow_hash,
};
use crate::parts::{
    Age, At, COPY_OF_SPRAY, COPY_OF_TURN, Ending, HELD, Hold, Named, Out, Plain, Sift, Spray,
    Stamp, TURNED, Touchy, Turn,
};
use crate::{Count, HostXor, SLOTS, Sum, Xor};

/// How often a packet may enter the pipeline at a place, as the engine has it.
const PASSES_MAX: u8 = 8;

/// A stage of a scenario.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    First,
    Last,
    /// `Sum` and `Stamp` behind it.
    Sum,
    Xor,
    HostXor,
    /// The first or the second one.
    Count(usize),
    Plain,
    Age,
    Sift,
    Touchy(Touchy),
    Turn,
    Hold,
    Spray,
    Out,
}

/// A random run.
pub struct Scenario {
    /// The seed that it was made from.
    pub seed: u64,
    pipelines: Vec<Vec<(Part, bool)>>,
    /// By worker: its pipeline.
    of_worker: Vec<usize>,
    queues: usize,
    is_spread: bool,
    ports: usize,
    setup: Setup,
    devices: Vec<Setup>,
    is_lossless: bool,
    refuses: Option<u64>,
    ends: Ends,
    cells: u32,
    frames: Vec<Vec<u8>>,
}

/// Sums over scenarios.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Scenarios run.
    pub scenarios: u64,
    /// Packets received.
    pub packets: u64,
    /// Packets that stages made.
    pub emitted: u64,
    /// Packets that entered a pipeline again or were handed over.
    pub again: u64,
    /// Jobs of devices.
    pub jobs: u64,
    /// Jobs that failed.
    pub failed: u64,
    /// Devices that were given up.
    pub lost_devices: u64,
    /// Moves of shards.
    pub moves: u64,
    /// Panics of stages.
    pub panics: u64,
    /// Workers that gave their stages up.
    pub gave_up: u64,
}

/// What must become of a packet.
#[derive(Clone, Debug, PartialEq)]
enum Fate {
    Sent(usize, Vec<u8>),
    Dropped(DropReason),
    Dumped,
    /// Sent or dropped, by when the engine ends.
    Held(Vec<u8>),
}

/// What the model says of a packet or of a copy.
#[derive(Clone, Debug)]
struct Told {
    fate: Fate,
    /// Which counter counts it for which flow.
    counted: Vec<(usize, u8)>,
    /// Copies made on its way, by their numbers.
    copies: Vec<(u64, Told)>,
    /// It goes through once, in its own flow, and is sent at the end: it keeps its order.
    is_straight: bool,
}

/// A packet in the model.
#[derive(Clone)]
struct Seen {
    number: u64,
    bytes: Vec<u8>,
    mark: u32,
    passes: u8,
}

impl Scenario {
    /// The scenario of a seed. `with_driver`: a real driver may take part.
    pub fn new(seed: u64, with_driver: bool) -> Self {
        let mut random = Random::new(seed);
        let backing = match random.below(6) {
            0 | 1 => Backing::Cpu,
            2 | 3 if with_driver => Backing::Driver,
            _ => Backing::Simulated,
        };
        let setup = Setup::random(&mut random, backing);
        let is_single = random.one_in(2);
        let kinds = if is_single { 1 } else { random.between(1, 3) };
        let panics = random.one_in(4);
        let pipelines: Vec<_> =
            (0..kinds).map(|_| pipeline(&mut random, kinds == 1, panics)).collect();
        let of_worker = (0..setup.workers).map(|_| random.below(kinds)).collect();
        let devices = match backing {
            Backing::Cpu => 0,
            _ => random.between(1, 3),
        };
        // All of one kind: beside a driver's kernels the simulated device would run stages with state, for which it has
        // no order.
        let devices =
            (0..devices).map(|_| Setup { devices: 1, ..Setup::random(&mut random, backing) });
        let mut devices: Vec<Setup> = devices.collect();
        // The memory of a device that hangs is never freed: few of them, or a long soak needs much.
        if !random.one_in(10) {
            for Setup { faults, .. } in &mut devices {
                (faults.hang, faults.hang_call) = (None, None);
            }
        }
        let is_lossless = !random.one_in(3);
        let packets = random.between(1, 4000);
        // Few flows meet a stage that panics often enough for a worker to give up.
        let flows = random.pick(&[256, 256, 40, 6]);
        let frames = (0..packets).map(|_| frame(&mut random, flows)).collect();
        let micros = random.below(20_000) as u64;
        Self {
            seed,
            pipelines,
            of_worker,
            queues: random.between(1, 12),
            is_spread: !random.one_in(4),
            ports: random.between(1, 4),
            setup,
            devices,
            is_lossless,
            refuses: random.one_in(3).then(|| random.word()),
            ends: if random.one_in(5) {
                Ends::Stopped(Duration::from_micros(micros))
            } else {
                Ends::Finished
            },
            cells: if random.one_in(6) { 8192 } else { 32_768 },
            frames,
        }
    }

    /// Runs it and compares.
    ///
    /// # Errors
    /// What differs from the model.
    ///
    /// # Panics
    /// When it hangs, or a thread dies.
    pub fn run(&self, totals: &mut Totals) -> Result<(), String> {
        let n = self.of_worker.len();
        let odd: Arc<Mutex<Vec<String>>> = Arc::default();
        let counts: Vec<[Count; 2]> = (0..n).map(|_| [Count::new(), Count::second()]).collect();
        let tables = Numbered::new(1);
        let workers = (0..n).map(|w| {
            let stages = self.stages(self.of_worker[w], &counts[w], &odd);
            (tables.clone(), stages)
        });
        let source = || Box::new(NumberImage) as Box<_>;
        let devices: Vec<DeviceSpec<u64>> =
            self.devices.iter().flat_map(|setup| setup.devices(source)).collect();
        let bed = Bed::<Numbered> {
            name: format!("scenario {}", self.seed),
            feeds: (0..self.queues).map(|queue| self.feed(queue)).collect(),
            ports: self.ports,
            refuses: self.refuses,
            devices,
            chunk_packets: self.setup.chunk_packets,
            chunks: self.setup.chunks,
            max_delay: self.setup.max_delay,
            packet_time: false,
            lossless: self.is_lossless,
            ends: self.ends,
            cells: self.cells,
            limit: Duration::from_secs(180),
        };
        let changes = tables.clone();
        let run = bed.run_while(workers.collect(), move |_| {
            changes.0.fetch_add(1, Ordering::Relaxed);
        });
        totals.add(&run);
        run.conserves()?;
        let odd = odd.lock().map_err(|_| "a stage panicked over its tables")?;
        if let Some(first) = odd.first() {
            return Err(format!("{} times the tables were odd: {first}", odd.len()));
        }
        drop(odd);
        self.compare(&run, &counts)
    }

    fn stages(
        &self,
        kind: usize,
        counts: &[Count; 2],
        odd: &Arc<Mutex<Vec<String>>>,
    ) -> Vec<Box<dyn Stage<u64>>> {
        let ports = self.ports as u16;
        let mut stages: Vec<Box<dyn Stage<u64>>> = Vec::new();
        for &(part, ends) in &self.pipelines[kind] {
            let stage: Box<dyn Stage<u64>> = match part {
                Part::First => Box::new(Named(Turn::FIRST)),
                Part::Last => Box::new(Named(Turn::LAST)),
                Part::Sum => Box::new(Sum),
                Part::Xor => Box::new(Xor),
                Part::HostXor => Box::new(HostXor),
                Part::Count(which) => Box::new(counts[which].clone()),
                Part::Plain => Box::new(Plain),
                Part::Age => Box::new(Age::new(odd.clone())),
                Part::Sift => Box::new(Sift),
                Part::Touchy(touchy) => Box::new(touchy),
                Part::Turn => Box::new(Turn),
                Part::Hold => Box::new(Hold::default()),
                Part::Spray => Box::new(Spray),
                Part::Out => Box::new(Out { ports }),
            };
            // Only what is shaded has a segment to end.
            let is_shaded = stage.shader().is_some() && part != Part::Age;
            stages.push(if ends && is_shaded { Box::new(Ending(stage)) } else { stage });
            if part == Part::Sum {
                stages.push(Box::new(Stamp));
            }
        }
        stages
    }

    /// The queue of a packet: all packets of a flow come by one.
    fn queue_of(&self, flow: u8) -> usize {
        usize::from(flow) % self.queues
    }

    fn feed(&self, queue: usize) -> Feed {
        let own = (1..).zip(&self.frames).filter(|(_, frame)| self.queue_of(frame[0]) == queue);
        let source = Bursts {
            frames: own
                .map(|(number, frame)| (number, frame.clone()))
                .collect::<Vec<_>>()
                .into_iter(),
            random: Random::new(self.seed ^ queue as u64),
            stats: QueueStats::default(),
        };
        Feed {
            worker: queue % self.of_worker.len(),
            port: 0,
            queue: Box::new(source),
            spread: self.is_spread.then_some(flow_hash as _),
        }
    }

    /// The pipelines by which a packet may go.
    fn pipelines_of(&self, flow: u8, any: bool) -> Vec<usize> {
        if any {
            return (0..self.pipelines.len()).collect();
        }
        let n = self.of_worker.len();
        let worker = match self.is_spread {
            true => ((u64::from(flow_hash(&[flow])) * n as u64) >> 32) as usize,
            false => self.queue_of(flow) % n,
        };
        vec![self.of_worker[worker]]
    }

    /// What becomes of a packet from stage `at` on.
    fn walk(&self, kind: usize, at: usize, packet: Seen) -> Told {
        let parts = &self.pipelines[kind];
        let place = |part| parts.iter().position(|(p, _)| *p == part);
        let Seen { number, mut bytes, mut mark, passes } = packet;
        let mut told = Told {
            fate: Fate::Dropped(reasons::UNKNOWN),
            counted: Vec::new(),
            copies: Vec::new(),
            is_straight: passes == 0,
        };
        for (i, (part, _)) in parts.iter().enumerate().skip(at) {
            let flow = bytes[0];
            let turned_to = match part {
                Part::First | Part::Last | Part::Plain | Part::Age | Part::Touchy(_) => None,
                Part::Sum => {
                    let sum = bytes.iter().fold(0u32, |sum, byte| sum.wrapping_add((*byte).into()));
                    if let Some(room) = bytes.get_mut(8..12) {
                        room.copy_from_slice(&sum.to_be_bytes());
                    }
                    None
                }
                Part::Xor | Part::HostXor => {
                    bytes.iter_mut().skip(1).for_each(|byte| *byte ^= flow | 1);
                    None
                }
                Part::Count(which) => {
                    told.counted.push((*which, flow));
                    None
                }
                Part::Sift if Sift::drops(flow) => {
                    told.fate = Fate::Dropped(crate::reasons::TEST);
                    return told;
                }
                Part::Sift => None,
                Part::Turn if mark & TURNED != 0 && flow & 15 != 6 => None,
                Part::Turn => {
                    mark |= TURNED;
                    match flow & 15 {
                        0 | 6 => Some(Part::First),
                        8 => Some(Part::Last),
                        2 => {
                            bytes[0] = Turn::handed(flow);
                            Some(Part::Last)
                        }
                        4 => {
                            let copy = Seen {
                                number: number | COPY_OF_TURN,
                                bytes: bytes.clone(),
                                mark,
                                passes: passes + 1,
                            };
                            let from = place(Part::Last).expect("a turn has its places");
                            told.copies.push((copy.number, self.walk(kind, from, copy)));
                            told.fate = Fate::Dumped;
                            return told;
                        }
                        _ => None,
                    }
                }
                Part::Hold if Hold::holds(flow) && mark & HELD == 0 => {
                    told.fate = Fate::Held(bytes);
                    return told;
                }
                Part::Hold => None,
                Part::Spray => {
                    if number.is_multiple_of(16) {
                        let fate = Fate::Sent(0, bytes.clone());
                        let copy = Told {
                            fate,
                            counted: Vec::new(),
                            copies: Vec::new(),
                            is_straight: false,
                        };
                        told.copies.push((number | COPY_OF_SPRAY, copy));
                    }
                    None
                }
                Part::Out => {
                    told.fate = Fate::Sent(usize::from(flow) % self.ports, bytes);
                    return told;
                }
            };
            if let Some(target) = turned_to {
                told.is_straight = false;
                if passes + 1 > PASSES_MAX {
                    told.fate = Fate::Dropped(reasons::AGAIN_TOO_OFTEN);
                    return told;
                }
                let from = place(target).expect("a turn has its places");
                let rest = self.walk(kind, from, Seen { number, bytes, mark, passes: passes + 1 });
                told.counted.extend(rest.counted);
                told.copies.extend(rest.copies);
                told.fate = rest.fate;
                return told;
            }
            debug_assert!(i + 1 < parts.len(), "a pipeline ends with Out");
        }
        told
    }

    /// Whether packets may be lost for this reason here.
    fn may_lose(&self, reason: DropReason, panics: bool) -> bool {
        if reason == reasons::STAGE_PANIC {
            return panics;
        }
        let has_turn = self.pipelines.iter().flatten().any(|(part, _)| *part == Part::Turn);
        let is_full = reason == reasons::RING_FULL || reason == reasons::TX_FULL;
        (is_full && !self.is_lossless) || (reason == reasons::AGAIN_FULL && has_turn)
    }

    fn compare(&self, run: &Run, counts: &[[Count; 2]]) -> Result<(), String> {
        let panics = !run.panics.is_empty();
        let gave_up = run.sum(|worker| worker.gave_up.get()) > 0;
        let name = |number: u64| match number & !(COPY_OF_SPRAY | COPY_OF_TURN) {
            own if own == number => format!("packet {own}"),
            own => format!("a copy of packet {own}"),
        };
        // What became of each number.
        let mut came: HashMap<u64, Fate> = HashMap::new();
        let mut twice = Vec::new();
        let mut put = |number, fate| {
            if came.insert(number, fate).is_some() {
                twice.push(number);
            }
        };
        for (port, frames) in run.ports.iter().enumerate() {
            frames.iter().for_each(|(number, bytes)| put(*number, Fate::Sent(port, bytes.clone())));
        }
        for (reason, (number, _)) in &run.dropped {
            put(*number, Fate::Dropped(*reason));
        }
        run.dumped.iter().for_each(|(number, _)| put(*number, Fate::Dumped));
        if let Some(number) = twice.first() {
            return Err(format!("{} came out twice ({} of them)", name(*number), twice.len()));
        }
        // What must have become of it, and what was counted at least and at most.
        let mut least: BTreeMap<(usize, u8), u64> = BTreeMap::new();
        let mut most = least.clone();
        let mut received = 0;
        let mut straight: HashSet<u64> = HashSet::new();
        for (number, frame) in (1..).zip(&self.frames) {
            let kinds = self.pipelines_of(frame[0], gave_up);
            let seen = Seen { number, bytes: frame.clone(), mark: 0, passes: 0 };
            let all: Vec<Told> =
                kinds.iter().map(|kind| self.walk(*kind, 0, seen.clone())).collect();
            let Some(fate) = came.remove(&number) else {
                // A source that was stopped still has it.
                if self.ends == Ends::Finished {
                    return Err(format!("{} vanished", name(number)));
                }
                continue;
            };
            received += 1;
            if all.iter().all(|told| told.is_straight) {
                straight.insert(number);
            }
            let mut queue: Vec<(u64, Option<Fate>, Vec<Told>)> = vec![(number, Some(fate), all)];
            while let Some((number, fate, all)) = queue.pop() {
                let fits = |told: &&Told| match (&told.fate, &fate) {
                    (Fate::Held(bytes), Some(Fate::Sent(0, sent))) => bytes == sent,
                    (Fate::Held(_), Some(Fate::Dropped(reason))) => *reason == crate::reasons::TEST,
                    (wanted, Some(fate)) => wanted == fate,
                    (_, None) => false,
                };
                let lost = match &fate {
                    Some(Fate::Dropped(reason)) => self.may_lose(*reason, panics),
                    // No cell was free for it, or what it is a copy of was lost before.
                    None => true,
                    _ => false,
                };
                let told = all.iter().find(fits);
                if told.is_none() && !lost {
                    return Err(format!("{}: {fate:?}, but must be one of {all:?}", name(number)));
                }
                for told in &all {
                    // A packet that was lost may have been counted before.
                    for counted in &told.counted {
                        *most.entry(*counted).or_default() += 1;
                        *least.entry(*counted).or_default() += u64::from(!lost && all.len() == 1);
                    }
                    for (copy, of_copy) in &told.copies {
                        let fate = came.remove(copy);
                        queue.push((*copy, fate, vec![of_copy.clone()]));
                    }
                }
            }
        }
        if let Some(number) = came.keys().min() {
            return Err(format!("{} came from nowhere", name(*number)));
        }
        if received != run.received {
            return Err(format!("{} received by count, {received} came out", run.received));
        }
        for (which, flow) in
            (0..2).flat_map(|which| (0..SLOTS).map(move |flow| (which, flow as u8)))
        {
            let of = |count: &[Count; 2]| count[which].of(flow);
            let counted: u64 = counts.iter().map(of).sum();
            let bound =
                |bounds: &BTreeMap<_, u64>| bounds.get(&(which, flow)).copied().unwrap_or(0);
            let (least, most) = (bound(&least), bound(&most));
            if !(least..=most).contains(&counted) {
                return Err(format!(
                    "counter {which}, flow {flow}: {counted}, but must be {least} to {most}"
                ));
            }
        }
        if gave_up {
            return Ok(()); // the heir may overtake
        }
        for (port, frames) in run.ports.iter().enumerate() {
            let mut last = HashMap::new();
            for (number, bytes) in frames.iter().filter(|(number, _)| straight.contains(number)) {
                let before = last.insert(bytes[0], *number).unwrap_or(0);
                if before > *number {
                    let flow = bytes[0];
                    return Err(format!(
                        "port {port}, flow {flow}: packet {number} behind {before}"
                    ));
                }
            }
        }
        Ok(())
    }
}

impl std::fmt::Display for Scenario {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "scenario {}", self.seed)?;
        for (kind, pipeline) in self.pipelines.iter().enumerate() {
            writeln!(f, "pipeline {kind}: {pipeline:?}")?;
        }
        writeln!(
            f,
            "workers' pipelines {:?}, {} queues, spread: {}",
            self.of_worker, self.queues, self.is_spread
        )?;
        writeln!(
            f,
            "{} ports, lossless: {}, refuse: {}",
            self.ports,
            self.is_lossless,
            self.refuses.is_some()
        )?;
        let Setup { chunk_packets, chunks, max_delay, .. } = &self.setup;
        writeln!(f, "{chunk_packets} packets a chunk, {chunks} chunks, {max_delay:?} of delay")?;
        writeln!(f, "{} packets, {} cells, ends: {:?}", self.frames.len(), self.cells, self.ends)?;
        for device in &self.devices {
            writeln!(f, "device: {device:?}")?;
        }
        Ok(())
    }
}

impl std::fmt::Display for Totals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Totals { scenarios, packets, emitted, again, jobs, failed, .. } = self;
        let Totals { lost_devices, moves, panics, gave_up, .. } = self;
        write!(
            f,
            "{scenarios} scenarios, {packets} packets, {emitted} made, {again} again, {jobs} jobs, "
        )?;
        write!(
            f,
            "{failed} of them failed, {lost_devices} devices lost, {moves} moves of shards, "
        )?;
        write!(f, "{panics} panics, {gave_up} workers gave up")
    }
}

impl Totals {
    fn add(&mut self, run: &Run) {
        self.scenarios += 1;
        self.packets += run.received;
        self.emitted += run.sum(|worker| worker.emitted.get());
        self.again += run.sum(|worker| worker.again.get());
        self.moves += run.sum(|worker| worker.shard_moves.get());
        self.panics += run.panics.len() as u64;
        self.gave_up += run.sum(|worker| worker.gave_up.get());
        for master in run.view.masters() {
            self.jobs += master.jobs;
            self.failed += master.failed;
            self.lost_devices += u64::from(master.is_lost);
        }
    }
}

/// A random pipeline. `may_turn`: all workers have the same one.
fn pipeline(random: &mut Random, may_turn: bool, panics: bool) -> Vec<(Part, bool)> {
    let mut parts = vec![
        Part::Sum,
        Part::Xor,
        Part::HostXor,
        Part::Count(0),
        Part::Count(1),
        Part::Plain,
        Part::Age,
        Part::Sift,
    ];
    random.shuffle(&mut parts);
    parts.truncate(random.between(1, 6));
    if random.one_in(4) {
        parts.push(Part::Hold);
    }
    if may_turn && random.one_in(2) {
        parts.extend([Part::Turn, Part::Last]);
    }
    if panics {
        let at = random.pick(&[At::Pre, At::Shade, At::Post]);
        let every = random.pick(&[1, 2, 5]);
        parts.push(Part::Touchy(Touchy { at, flow: random.below(8) as u8, every }));
    }
    random.shuffle(&mut parts);
    parts.insert(0, Part::First);
    if random.one_in(4) {
        parts.push(Part::Spray);
    }
    parts.push(Part::Out);
    parts.into_iter().map(|part| (part, random.one_in(4))).collect()
}

/// A random frame of one of `flows` flows: mostly short, now and then over several cells.
fn frame(random: &mut Random, flows: usize) -> Vec<u8> {
    let len = match random.below(100) {
        0 => random.between(2000, 5000),
        1..=9 => random.between(200, 1500),
        _ => random.between(1, 120),
    };
    let mut frame: Vec<u8> = (0..len).map(|_| random.word() as u8).collect();
    frame[0] = random.below(flows) as u8;
    frame
}

/// Gives its frames in bursts of any size, and nothing in between.
struct Bursts {
    frames: std::vec::IntoIter<(u64, Vec<u8>)>,
    random: Random,
    stats: QueueStats,
}

impl RxQueue for Bursts {
    fn recv(&mut self, pool: &mut Pool, out: &mut Vec<Packet>, max: usize) -> usize {
        if self.random.one_in(8) {
            return 0;
        }
        let burst = if self.random.one_in(2) { max } else { self.random.between(1, max) };
        for n in 0..burst {
            let Some((number, frame)) = self.frames.as_slice().first() else { return n };
            let Some(mut packet) = Packet::copy_from(pool, frame) else { return n };
            packet.time_ns = *number;
            self.stats.packets += 1;
            self.stats.bytes += frame.len() as u64;
            self.frames.next();
            out.push(packet);
        }
        burst
    }

    fn is_finished(&self) -> bool {
        self.frames.as_slice().is_empty()
    }

    fn stats(&self) -> QueueStats {
        self.stats
    }
}

/// Runs scenarios from `seed` on, each with the next number, until `goes_on` says no.
///
/// # Errors
/// What differs from the model, with the scenario; everything that ends it early.
pub fn soak(
    seed: u64,
    with_driver: bool,
    mut goes_on: impl FnMut(&Totals) -> bool,
) -> Result<Totals, String> {
    let mut totals = Totals::default();
    while goes_on(&totals) {
        let seed = seed.wrapping_add(totals.scenarios);
        let scenario = Scenario::new(seed, with_driver);
        let result =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| scenario.run(&mut totals)));
        let result = result.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            Err(text.unwrap_or_else(|| "it panicked".into()))
        });
        result.map_err(|error| {
            format!("{error}\n{scenario}again: cargo xtask soak --seed {seed} --count 1")
        })?;
    }
    Ok(totals)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_scenarios_agree_with_the_model() {
        let seed = Random::from_time().word();
        eprintln!("seed {seed}");
        let count = std::env::var("SOAK_SCENARIOS").ok().and_then(|n| n.parse().ok()).unwrap_or(12);
        let with_driver = testkit::require_opencl();
        let ended = soak(seed, with_driver, |totals| totals.scenarios < count);
        ended.unwrap_or_else(|error| panic!("{error}"));
    }
}
