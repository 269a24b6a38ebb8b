//! A random run: what it is made of, and the engine that it is.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chunk::{PORT_NONE, Packet, Pool};
use engine::{DeviceSpec, Entry, Gate, InContext, InOrder, PipelineSpec, Stage};
use io::{QueueStats, RxQueue};

use super::Totals;
use super::compare::Seen;
use crate::brittle::{Breaks, Brittle, Call};
use crate::harness::{
    Backing, Bed, Ends, Feed, NumberImage, Numbered, Random, Run, Setup, flow_hash,
};
use crate::parts::{
    Age, Ask, At, Divert, Ending, Hold, Key, Named, Out, Plain, Show, Sift, Spray, Stamp, Steps,
    Touchy, Turn,
};
use crate::{Count, Find, Flows, HostXor, Sum, Xor};

/// Bytes below this are what [`Find`] finds.
pub(super) const FIND_BELOW: u32 = 8;

/// A stage of a scenario.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Part {
    First,
    Last,
    /// A segment by itself.
    Fence,
    /// `Sum` and `Stamp` behind it.
    Sum,
    Xor,
    HostXor,
    /// The first or the second one.
    Count(usize),
    /// With room for so many words of records in a job.
    Find {
        words: u32,
    },
    /// In state that grows by so many slots, swept this often.
    Flows {
        step: usize,
        sweep_ns: u64,
    },
    Plain,
    Age,
    Sift,
    Key(Key),
    Steps(Steps),
    /// What `Steps` made.
    Show,
    Touchy(Touchy),
    Turn,
    Hold,
    Divert,
    Spray,
    Ask,
    Out,
}

impl Part {
    /// Whether it has a shade, which may panic or end its segment.
    fn is_shaded(self) -> bool {
        match self {
            Part::Sum | Part::Xor | Part::HostXor | Part::Count(_) => true,
            Part::Find { .. } | Part::Flows { .. } | Part::Plain | Part::Sift => true,
            Part::Key(key) => key.at == At::Shade,
            Part::Steps(_) => true,
            Part::Show => false,
            Part::First | Part::Last | Part::Fence | Part::Age | Part::Touchy(_) => false,
            Part::Turn | Part::Hold | Part::Divert | Part::Spray | Part::Ask | Part::Out => false,
        }
    }
}

/// A stage at its place in a pipeline.
#[derive(Clone, Copy)]
pub(super) struct Placed {
    pub(super) part: Part,
    /// It sees packets with one of these contexts; 0: all.
    pub(super) contexts: u32,
    /// A segment ends behind it.
    ends: bool,
    /// Its shade panics.
    pub(super) breaks: Option<Breaks>,
    /// It panics at this worker and at no other one; `None`: at all.
    only: Option<usize>,
}

impl fmt::Debug for Placed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.part)?;
        if self.contexts != 0 {
            write!(f, " of {:#b}", self.contexts)?;
        }
        if let Some(Breaks { call, is_late, every, times }) = self.breaks {
            let late = if is_late { " late" } else { "" };
            write!(f, " panics{late} in {call:?} {every} {times} times")?;
        }
        if let Some(worker) = self.only {
            write!(f, " at worker {worker}")?;
        }
        f.write_str(if self.ends { " |" } else { "" })
    }
}

/// A random run.
pub struct Scenario {
    /// The seed that it was made from.
    pub seed: u64,
    pub(super) pipelines: Vec<Vec<Placed>>,
    /// By worker: its pipelines.
    pub(super) of_worker: Vec<Vec<usize>>,
    queues: usize,
    /// Packets enter pipelines by their port, which is their flow modulo this; `None`: by their queue.
    ports_in: Option<usize>,
    /// The worker of the first queue; the next ones have the next.
    first_worker: usize,
    is_spread: bool,
    pub(super) ports: usize,
    setup: Setup,
    devices: Vec<Setup>,
    pub(super) is_lossless: bool,
    /// Behind the workers is a merger.
    pub(super) is_in_order: bool,
    /// And one worker must give the same.
    has_reference: bool,
    packet_time: bool,
    pub(super) refuses: Option<u64>,
    pub(super) ends: Ends,
    cells: u32,
    pub(super) frames: Vec<Vec<u8>>,
}

impl Scenario {
    /// The scenario of a seed. `with_driver`: a real driver may take part.
    pub fn new(seed: u64, with_driver: bool) -> Self {
        let mut random = Random::new(seed);
        let (is_in_order, panics) = (random.one_in(4), random.one_in(3));
        let backing = match random.below(6) {
            0 => Backing::Cpu,
            // Most calls that panic are a device's.
            1 if !panics => Backing::Cpu,
            2 | 3 if with_driver => Backing::Driver,
            _ => Backing::Simulated,
        };
        let setup = Setup::random(&mut random, backing);
        let kinds = if random.one_in(2) { 1 } else { random.between(2, 3) };
        let panicking = panics.then_some(setup.workers);
        let mut pipelines: Vec<Vec<Placed>> =
            (0..kinds).map(|_| pipeline(&mut random, is_in_order, panicking)).collect();
        if kinds > 1 && random.one_in(4) {
            // Pipelines are what their names say, whatever their stages are.
            pipelines[1] = pipelines[0].clone();
        }
        let all_alike = is_in_order || random.one_in(3);
        let own = |_| {
            let mut own: Vec<usize> = (0..kinds).collect();
            if !all_alike {
                random.shuffle(&mut own);
                own.truncate(random.between(1, kinds));
            }
            own
        };
        let of_worker = (0..setup.workers).map(own).collect();
        let count = if backing == Backing::Cpu { 0 } else { random.between(1, 3) };
        let is_mixed = with_driver && random.one_in(3);
        let devices = (0..count).map(|_| {
            let other = random.pick(&[Backing::Simulated, Backing::Driver]);
            let backing = if is_mixed { other } else { backing };
            Setup { devices: 1, ..Setup::random(&mut random, backing) }
        });
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
        let queues = if is_in_order { 1 } else { random.between(1, 12) };
        Self {
            seed,
            pipelines,
            of_worker,
            queues,
            ports_in: random.one_in(2).then(|| random.between(1, 5)),
            first_worker: random.below(setup.workers),
            is_spread: is_in_order || !random.one_in(4),
            ports: random.between(1, 4),
            setup,
            devices,
            is_lossless,
            is_in_order,
            has_reference: is_in_order && !panics && random.one_in(2),
            packet_time: is_in_order && random.one_in(2),
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
        let several = self.run_with(&self.of_worker, true, totals)?;
        if self.has_reference && self.ends == Ends::Finished {
            let one = self.run_with(&self.of_worker[..1], false, totals)?;
            same_counts(&one, &several)?;
        }
        Ok(())
    }

    fn run_with(
        &self,
        of_worker: &[Vec<usize>],
        with_devices: bool,
        totals: &mut Totals,
    ) -> Result<Run, String> {
        let n = of_worker.len();
        let odd: Arc<Mutex<Vec<String>>> = Arc::default();
        // By worker, each of its pipelines.
        let all = of_worker.iter().flatten().copied();
        let counts: Vec<[Count; 2]> =
            all.clone().map(|_| [Count::new(), Count::second()]).collect();
        let find = |kind: usize| {
            let mut parts = self.pipelines[kind].iter().map(|placed| placed.part);
            let words = parts.find_map(|part| match part {
                Part::Find { words } => Some(words),
                _ => None,
            });
            Find::new(false, FIND_BELOW, words.unwrap_or(1))
        };
        let finds: Vec<Find> = all.clone().map(find).collect();
        let flows = |kind: usize| {
            let mut parts = self.pipelines[kind].iter().map(|placed| placed.part);
            let form = parts.find_map(|part| match part {
                Part::Flows { step, sweep_ns } => Some((step, sweep_ns)),
                _ => None,
            });
            let (step, sweep_ns) = form.unwrap_or((1, 0));
            Flows::new(false, step).swept_every(sweep_ns)
        };
        let flows: Vec<Flows> = all.map(flows).collect();
        let tables = Numbered::new(1);
        let mut places = 0..;
        let workers = of_worker.iter().enumerate().map(|(worker, own)| {
            let pipeline = |(kind, at): (&usize, usize)| {
                let parts = (&counts[at], &finds[at], &flows[at]);
                PipelineSpec::new(format!("kind {kind}"), self.stages(worker, *kind, parts, &odd))
            };
            (tables.clone(), own.iter().zip(places.by_ref()).map(pipeline).collect())
        });
        let source = || Box::new(NumberImage) as Box<_>;
        let devices = if with_devices { &self.devices[..] } else { &[] };
        let devices: Vec<DeviceSpec<u64>> =
            devices.iter().flat_map(|setup| setup.devices(source)).collect();
        let asked: Arc<Mutex<Vec<u64>>> = Arc::default();
        let in_order = self.is_in_order.then(|| {
            let gate = Box::new(TwoOfThree { asked: asked.clone() });
            InOrder { gate: Some(gate), ..InOrder::default() }
        });
        let bed = Bed::<Numbered> {
            name: format!("scenario {} with {n} workers", self.seed),
            feeds: (0..self.queues).map(|queue| self.feed(queue, of_worker)).collect(),
            ports: self.ports,
            refuses: self.refuses,
            devices,
            chunk_packets: self.setup.chunk_packets,
            chunks: self.setup.chunks,
            max_delay: self.setup.max_delay,
            packet_time: self.packet_time,
            lossless: self.is_lossless,
            in_order,
            ends: self.ends,
            cells: self.cells,
            limit: Duration::from_secs(180),
        };
        let changes = tables.clone();
        let run = bed.run_pipelines(workers.collect(), move |_| {
            changes.0.fetch_add(1, Ordering::Relaxed);
        });
        totals.add(&run);
        totals.in_order += u64::from(self.is_in_order);
        run.conserves()?;
        let odd = odd.lock().map_err(|_| "a stage panicked over its tables")?;
        if let Some(first) = odd.first() {
            return Err(format!("{} times the tables were odd: {first}", odd.len()));
        }
        drop(odd);
        let asked = std::mem::take(&mut *asked.lock().map_err(|_| "the gate panicked")?);
        let of_packet = |flow: u8| self.worker_of(flow, of_worker);
        let seen = Seen { run: &run, counts: &counts, finds: &finds, flows: &flows, asked: &asked };
        if self.is_in_order {
            self.compare_in_order(&seen)?;
        } else {
            self.compare(&seen, of_packet)?;
        }
        Ok(run)
    }

    fn stages(
        &self,
        worker: usize,
        kind: usize,
        (counts, find, flows): (&[Count; 2], &Find, &Flows),
        odd: &Arc<Mutex<Vec<String>>>,
    ) -> Vec<Box<dyn Stage<u64>>> {
        let ports = self.ports as u16;
        let mut stages: Vec<Box<dyn Stage<u64>>> = Vec::new();
        for &Placed { part, contexts, ends, breaks, only } in &self.pipelines[kind] {
            let panics = only.is_none_or(|only| only == worker);
            let mut stage: Box<dyn Stage<u64>> = match part {
                Part::First => Box::new(Named(Turn::FIRST)),
                Part::Last => Box::new(Named(Turn::LAST)),
                Part::Fence => Box::new(Named("fence")),
                Part::Sum => Box::new(Sum),
                Part::Xor => Box::new(Xor),
                Part::HostXor => Box::new(HostXor),
                Part::Count(which) => Box::new(counts[which].clone()),
                Part::Find { .. } => Box::new(find.clone()),
                Part::Flows { .. } => Box::new(flows.clone()),
                Part::Plain => Box::new(Plain),
                Part::Age => Box::new(Age::new(odd.clone())),
                Part::Sift => Box::new(Sift),
                Part::Key(key) => Box::new(key),
                Part::Steps(steps) => Box::new(steps),
                Part::Show => Box::new(Show),
                Part::Touchy(touchy) if panics => Box::new(touchy),
                Part::Touchy(touchy) => Box::new(Touchy { at: At::Never, ..touchy }),
                Part::Turn => Box::new(Turn),
                Part::Hold => Box::new(Hold::default()),
                Part::Divert => Box::new(Divert),
                Part::Spray => Box::new(Spray),
                Part::Ask => Box::new(Ask { ports }),
                Part::Out => Box::new(Out { ports }),
            };
            if let Some(breaks) = breaks.filter(|_| panics) {
                stage = Box::new(Brittle::new(stage, breaks));
            }
            stage = if ends { Box::new(Ending(stage)) } else { stage };
            let seen = |stage| match contexts {
                0 => stage,
                _ => Box::new(InContext::new(stage, contexts)),
            };
            stages.push(seen(stage));
            if part == Part::Sum {
                stages.push(seen(Box::new(Stamp)));
            }
        }
        stages
    }

    /// The queue of a packet: all packets of a flow come by one.
    fn queue_of(&self, flow: u8) -> usize {
        usize::from(flow) % self.queues
    }

    /// The worker that receives a queue's packets.
    fn receiver(&self, queue: usize, workers: usize) -> usize {
        (queue + self.first_worker) % workers
    }

    /// The pipeline that packets of a queue, received at a port, enter: the place among the worker's.
    fn entry(&self, queue: usize, port: usize, own: &[usize]) -> usize {
        match self.ports_in {
            // The last port is in no list.
            Some(ports) if port + 1 < ports => (queue + port) % own.len(),
            Some(_) => 0,
            None => queue / self.of_worker.len() % own.len(),
        }
    }

    /// The port at which a flow's packets are received, where that leads to their pipeline.
    fn port_in(&self, flow: u8) -> usize {
        usize::from(flow) % self.ports_in.unwrap_or(1)
    }

    /// The pipeline of a received packet.
    pub(super) fn kind_of(&self, flow: u8, of_worker: &[Vec<usize>]) -> usize {
        let queue = self.queue_of(flow);
        let own = &of_worker[self.receiver(queue, of_worker.len())];
        own[self.entry(queue, self.port_in(flow), own)]
    }

    /// The worker at which a received packet begins: one of its pipeline.
    fn worker_of(&self, flow: u8, of_worker: &[Vec<usize>]) -> usize {
        let n = of_worker.len();
        if !self.is_spread {
            return self.receiver(self.queue_of(flow), n);
        }
        let kind = self.kind_of(flow, of_worker);
        let peers: Vec<usize> =
            (0..n).filter(|worker| of_worker[*worker].contains(&kind)).collect();
        peers[((u64::from(flow_hash(&[flow])) * peers.len() as u64) >> 32) as usize]
    }

    fn feed(&self, queue: usize, of_worker: &[Vec<usize>]) -> Feed {
        let own = (1..).zip(&self.frames).filter(|(_, frame)| self.queue_of(frame[0]) == queue);
        let source = Bursts {
            frames: own
                .map(|(number, frame)| (number, frame.clone()))
                .collect::<Vec<_>>()
                .into_iter(),
            random: Random::new(self.seed ^ queue as u64),
            ports: self.ports_in.unwrap_or(1),
            stats: QueueStats::default(),
        };
        let worker = self.receiver(queue, of_worker.len());
        let entry = |port| self.entry(queue, port, &of_worker[worker]);
        Feed {
            worker,
            port: if self.ports_in.is_some() { PORT_NONE } else { 0 },
            queue: Box::new(source),
            spread: self.is_spread.then(|| flow_hash.into()),
            entry: match self.ports_in {
                Some(ports) => Entry::ByPort((0..ports - 1).map(entry).collect()),
                None => Entry::Pipeline(entry(0)),
            },
        }
    }

    /// Whether a simulated device takes part.
    pub(super) fn has_simulated(&self) -> bool {
        self.devices.iter().any(|setup| setup.backing == Backing::Simulated)
    }

    /// Whether a part is in some pipeline.
    pub(super) fn has(&self, is_it: impl Fn(&Placed) -> bool) -> bool {
        self.pipelines.iter().flatten().any(is_it)
    }

    /// Whether a stage of some pipeline panics.
    pub(super) fn may_panic(&self) -> bool {
        self.has(|placed| placed.breaks.is_some() || matches!(placed.part, Part::Touchy(_)))
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "scenario {}", self.seed)?;
        for (kind, pipeline) in self.pipelines.iter().enumerate() {
            writeln!(f, "pipeline {kind}: {pipeline:?}")?;
        }
        let Self { of_worker, queues, ports_in, first_worker, is_spread, is_in_order, .. } = self;
        writeln!(
            f,
            "workers' pipelines {of_worker:?}, {queues} queues from worker {first_worker}, ports {ports_in:?}, \
             spread: {is_spread}, in order: {is_in_order}",
        )?;
        writeln!(
            f,
            "{} ports, lossless: {}, refuse: {}, the packets' time: {}",
            self.ports,
            self.is_lossless,
            self.refuses.is_some(),
            self.packet_time
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

/// Whether one worker counted what several did.
fn same_counts(one: &Run, several: &Run) -> Result<(), String> {
    let stages = |run: &Run| -> Vec<(&'static str, u64)> {
        let names = run.view.stages.iter().enumerate();
        names.map(|(i, name)| (*name, run.view.stage(i).packets)).collect()
    };
    let rest = |run: &Run| [run.received, run.view.emitted(), run.sum(|w| w.dumped.get())];
    for (what, one, several) in [
        ("stages' packets", format!("{:?}", stages(one)), format!("{:?}", stages(several))),
        ("counts", format!("{:?}", rest(one)), format!("{:?}", rest(several))),
    ] {
        if one != several {
            return Err(format!("{what} of one worker {one}, of several {several}"));
        }
    }
    Ok(())
}

/// A random pipeline, whose order a merger knows if it `is_in_order`. `panics`: stages panic at some of so many
/// workers.
fn pipeline(random: &mut Random, is_in_order: bool, panics: Option<usize>) -> Vec<Placed> {
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
    if random.one_in(5) {
        parts.push(Part::Find { words: random.pick(&[64, 4096, 65_536]) });
    }
    if random.one_in(4) {
        // Of the packets' time, which are numbers, and of the clock's.
        let (step, sweep_ns) = (random.pick(&[1, 16, 64]), random.pick(&[0, 100, 200_000]));
        parts.push(Part::Flows { step, sweep_ns });
    }
    if random.one_in(4) {
        parts.push(Part::Divert);
    }
    if is_in_order {
        if random.one_in(2) {
            parts.push(Part::Ask);
        }
    } else {
        if random.one_in(4) {
            parts.push(Part::Hold);
        }
        if random.one_in(2) {
            parts.extend([Part::Turn, Part::Last]);
        }
    }
    let only = |random: &mut Random| {
        let workers = panics.unwrap_or(1);
        random.one_in(2).then(|| random.below(workers))
    };
    let mut touchy_at = None;
    if panics.is_some() && random.one_in(2) {
        let at = random.pick(&[At::Pre, At::Shade, At::Post, At::Tick]);
        let every = random.pick(&[1, 2, 5]);
        parts.push(Part::Touchy(Touchy { at, flow: random.below(8) as u8, every }));
        // If each tick panicked, no worker would do anything.
        touchy_at = if at == At::Tick { Some(0) } else { only(random) };
    }
    let has_contexts = random.one_in(2);
    if has_contexts {
        for at in [At::Pre, At::Shade, At::Post] {
            if !random.one_in(3) {
                parts.push(Part::Key(Key { at, shift: random.below(7) as u32 }));
            }
        }
        for (name, is_second) in [("steps", false), ("more_steps", true)] {
            let at = random.pick(&[At::Pre, At::Shade, At::Post, At::Never]);
            let key = Key { at, shift: random.below(7) as u32 };
            parts.push(Part::Steps(Steps { name, is_second, key }));
        }
    }
    random.shuffle(&mut parts);
    // Flows takes values from packets before its segment is shaded: who changes them must be in one before.
    let flows = parts.iter().position(|part| matches!(part, Part::Flows { .. }));
    if let Some(flows) = flows.filter(|&flows| parts[..flows].contains(&Part::Xor)) {
        parts.insert(flows, Part::Fence);
    }
    parts.insert(0, Part::First);
    if random.one_in(4) {
        parts.push(Part::Spray);
    }
    if has_contexts {
        parts.push(Part::Show);
    }
    parts.push(Part::Out);
    let place = |part: Part| {
        let is_touchy = matches!(part, Part::Touchy(_));
        let ends = random.one_in(4) && part.is_shaded();
        // What panics over packets does not look whether it sees them.
        let sees_all = !has_contexts || is_touchy || part == Part::Show || random.one_in(2);
        let contexts = if sees_all { 0 } else { random.between(1, 15) as u32 };
        Placed { part, contexts, ends, breaks: None, only: touchy_at.filter(|_| is_touchy) }
    };
    let mut placed: Vec<Placed> = parts.into_iter().map(place).collect();
    for placed in placed.iter_mut().filter(|placed| placed.part.is_shaded()) {
        let has_state = matches!(placed.part, Part::Count(_) | Part::Flows { .. });
        if panics.is_none() || !random.one_in(if has_state { 2 } else { 4 }) {
            continue;
        }
        let calls: &[Call] = match placed.part {
            Part::Count(_) | Part::Flows { .. } => &[
                Call::Shade,
                Call::TwinShade,
                Call::Twin,
                Call::SetState,
                Call::State,
                Call::Slots,
                Call::Retired,
            ],
            Part::Find { .. } => &[Call::Shade, Call::Records, Call::Retired],
            _ => &[Call::Shade, Call::Retired],
        };
        placed.breaks = Some(Breaks {
            call: random.pick(calls),
            is_late: random.one_in(2),
            every: random.pick(&[1, 2, 7]),
            times: random.pick(&[1, 3, 40]),
        });
        placed.only = only(random);
    }
    placed
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
    // The flows of `Flows`: no more than its state has room for.
    frame.iter_mut().skip(1).take(1).for_each(|byte| *byte &= 3);
    frame
}

/// Lets two of three packets leave, and keeps the numbers of those that it was asked about.
struct TwoOfThree {
    asked: Arc<Mutex<Vec<u64>>>,
}

/// Whether the gate lets the packet leave that it is asked about after `before` others.
pub(super) fn is_admitted(before: usize) -> bool {
    before % 3 != 1
}

impl Gate for TwoOfThree {
    fn admits(&mut self, packet: &Packet) -> bool {
        let mut asked = self.asked.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        asked.push(packet.time_ns);
        is_admitted(asked.len() - 1)
    }
}

/// Gives its frames in bursts of any size, and nothing in between.
struct Bursts {
    frames: std::vec::IntoIter<(u64, Vec<u8>)>,
    random: Random,
    /// A packet's port is its flow modulo this.
    ports: usize,
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
            packet.port = u16::from(frame[0]) % self.ports as u16;
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
