//! The master: gathers chunks of all workers into jobs and keeps a device busy (PacketShader §5.1,
//! §5.4).
//!
//! ```text
//!  workers ──reserve rows──▶ open arena        master: close, wait for its chunks, launch
//!          ──chunks────────▶ submissions ────▶         retire in order ──▶ each worker's returns
//! ```
//!
//! While the device works on one arena, the workers fill the next one: the busier the device, the
//! larger the jobs. A job that fails goes back as it is, and each chunk's own worker shades it on its
//! core; its packets are not lost.
//!
//! The master looks at no packet. What a device needs to know of packets' bytes, their workers find out before they
//! hand a chunk in ([`device::accelerator::PayloadPart`]), and where it does not reach them, workers pack them into a
//! block that goes with the arena. What a job brought down goes home with its chunks as it came
//! ([`device::accelerator::Landing`]), and each worker copies its part. A device takes no further job in the place of
//! one whose results are still being read, and while it has no room the open arena fills.
//!
//! Threads: one per device. Workers meet it only in arenas, two kinds of queues, and what came down, which they read.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use chunk::{Arena, Chunk, Layout, Region, Rows};
use crossbeam_queue::ArrayQueue;
use device::accelerator::{PayloadWay, Scheduling, Traffic};
use device::{Device, DeviceError};

use crate::balance::DeviceCost;
use crate::engine::DeviceEvent;
use crate::in_flight::{Chosen, InFlight, Job, Outcome, Returns};
use crate::payload::PayloadNeeds;
use crate::reserve::Report;
use crate::ring::Wakeup;
use crate::segment::Segment;
use crate::stage::Versions;
use crate::twins::Crew;
use crate::ways::Ways;

/// Failed jobs after which a device is used no more.
const FAILURES_MAX: u32 = 64;

/// What stands for the open arena while there is none.
const NO_ARENA: usize = usize::MAX;

/// What workers share with a master.
pub(crate) struct MasterLink<V: Versions> {
    arenas: Vec<Arena>,
    /// The arena that workers reserve in; [`NO_ARENA`] while every one is at the device or still held.
    open: AtomicUsize,
    /// What its device needs of payload; nothing before there is one.
    payload: OnceLock<PayloadNeeds>,
    pub(crate) submissions: ArrayQueue<Box<InFlight<V>>>,
    pub(crate) wakeup: Wakeup,
    pub(crate) returns: Vec<(Returns<V>, Wakeup)>,
    /// By worker: its thread has ended, and takes nothing back.
    is_gone: Vec<AtomicBool>,
    pub(crate) counters: MasterCounters,
    /// What the device costs, by segment, for the workers' balance.
    pub(crate) cost: Vec<DeviceCost>,
    /// Whether the device is gone for good.
    pub(crate) is_lost: AtomicBool,
    /// By worker and segment: whether the device's copy of that shard is out of step, because a job of it failed.
    is_stale: Vec<AtomicBool>,
    /// By segment: whether its kernels are used no more, while those of others are.
    is_disabled: Vec<AtomicBool>,
    pub(crate) stop: AtomicBool,
}

/// Counters of a master.
#[derive(Debug, Default)]
pub(crate) struct MasterCounters {
    /// Jobs launched.
    pub(crate) jobs: AtomicU64,
    /// Packets in them.
    pub(crate) packets: AtomicU64,
    /// Jobs that the device did not do and the CPU did.
    pub(crate) failed: AtomicU64,
    /// What travelled.
    pub(crate) traffic: Mutex<Traffic>,
    /// Jobs in flight now.
    pub(crate) in_flight: AtomicU64,
    /// Most jobs in flight at a time.
    pub(crate) in_flight_max: AtomicU64,
}

impl<V: Versions> MasterLink<V> {
    /// A link with so many arenas, chunks of all workers and segments.
    pub(crate) fn new(
        layout: &Layout,
        (arenas, chunks, segments): (usize, usize, usize),
        returns: Vec<(Returns<V>, Wakeup)>,
        wakeup: Wakeup,
    ) -> Self {
        let shards = returns.len() * segments;
        Self {
            arenas: (0..arenas.max(2)).map(|_| Arena::new(layout.clone())).collect(),
            open: AtomicUsize::new(0),
            payload: OnceLock::new(),
            submissions: ArrayQueue::new(chunks.max(1)),
            wakeup,
            is_gone: returns.iter().map(|_| AtomicBool::new(false)).collect(),
            returns,
            counters: MasterCounters::default(),
            cost: (0..segments).map(|_| DeviceCost::default()).collect(),
            is_lost: AtomicBool::new(false),
            is_stale: (0..shards).map(|_| AtomicBool::new(false)).collect(),
            is_disabled: (0..segments).map(|_| AtomicBool::new(false)).collect(),
            stop: AtomicBool::new(false),
        }
    }

    /// Its arenas, for a device to know of.
    pub(crate) fn arenas(&self) -> Vec<Arena> {
        self.arenas.clone()
    }

    /// Whether the device shades this segment.
    pub(crate) fn shades(&self, segment: usize) -> bool {
        !self.is_lost.load(Ordering::Relaxed) && !self.is_disabled[segment].load(Ordering::Relaxed)
    }

    /// Gives a chunk to its worker.
    fn send_home(&self, mut flight: Box<InFlight<V>>) {
        let worker = usize::from(flight.chunk.worker);
        let (returns, wakeup) = &self.returns[worker];
        // A worker's queue has room for every chunk it owns.
        while let Err(back) = returns.push(flight) {
            flight = back;
            std::thread::yield_now();
        }
        wakeup.wake();
        // The other half is in `worker_is_gone`. Of "push, look at the flag" here and "set the flag, drain" there, with
        // these fences one sees the other: a chunk is drained there, or here.
        fence(Ordering::SeqCst);
        if self.is_gone[worker].load(Ordering::Relaxed) {
            self.drain(worker);
        }
    }

    /// A worker's thread has ended before its chunks came back, because of a panic of its own. Nobody takes them any
    /// more: what they hold of arenas and of a device's results is given back, now and when others come. Their packets
    /// are lost.
    pub(crate) fn worker_is_gone(&self, worker: usize) {
        self.is_gone[worker].store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.drain(worker);
        // The master may wait for what they held.
        self.wakeup.wake();
    }

    fn drain(&self, worker: usize) {
        while self.returns[worker].0.pop().is_some() {}
    }

    /// Rows in the open arena for a chunk of a segment; `None` when it is full, every arena is at the device, or the
    /// device does not shade this segment any more.
    pub(crate) fn reserve(&self, segment: usize, n: usize) -> Option<Rows> {
        if !self.shades(segment) {
            return None;
        }
        self.arenas.get(self.open.load(Ordering::Acquire))?.reserve(n)
    }

    /// Finds the frames of a chunk that has its rows in an arena, and packs them, if the device needs that. `region`:
    /// all cells.
    pub(crate) fn find_payload(&self, flight: &mut InFlight<V>, region: &'static Region) {
        let Some(needs) = self.payload.get() else { return };
        let segment = flight.segment;
        let Chunk { rows, packets, attached, .. } = &mut flight.chunk;
        let arena = || self.arenas.iter().position(|arena| arena.holds(rows));
        let arena = if needs.is_by_arena(segment) { arena() } else { None };
        let begin = needs.has_choice(segment).then(Instant::now);
        needs.look((segment, arena), &mut flight.payload, rows, (packets, attached), region);
        flight.payload_ns = begin.map_or(0, |begin| begin.elapsed().as_nanos() as u64);
    }

    /// Whether the device's copy of a shard is out of step. Set by the master; cleared by the shard's worker when
    /// nothing of it is away.
    pub(crate) fn is_stale(&self, worker: u16, segment: usize) -> &AtomicBool {
        &self.is_stale[usize::from(worker) * self.is_disabled.len() + segment]
    }
}

/// The master's own side.
pub(crate) struct Master<V: Versions, D> {
    link: Arc<MasterLink<V>>,
    device: D,
    crew: Arc<Crew<V::Tables>>,
    /// Chunks that have come in, by arena.
    waiting: Vec<Vec<Box<InFlight<V>>>>,
    /// Lists of flights, kept so that none is allocated for the next job.
    lists: Vec<Vec<Box<InFlight<V>>>>,
    /// By worker: a chunk of it is left for a later job.
    held_up: Vec<bool>,
    /// Closed arenas, oldest first, with the rows that were given out of each.
    closed: VecDeque<(usize, usize)>,
    last_end: Instant,
    /// Jobs with state go back in the order of their launch.
    next_number: u64,
    next_back: u64,
    /// Those that have ended before an older one.
    early: Vec<(u64, Job<V>, Outcome)>,
    /// By worker and segment with state: chunks that are at the device.
    flying: Vec<u32>,
    /// By segment: who brings payload, and whether rows are sorted, each where that is chosen by costs.
    payload_ways: Vec<Option<Ways>>,
    scheduling: Vec<(Scheduling, Option<Ways>)>,
    segments: Arc<[Segment]>,
    /// Why the device is used no more.
    lost: Option<DeviceError>,
    /// Kinds of errors that were reported.
    reported: HashSet<std::mem::Discriminant<DeviceError>>,
    failures: u32,
    report: Report,
}

impl<V: Versions, D: Device<Job<V>>> Master<V, D> {
    pub(crate) fn new(
        link: Arc<MasterLink<V>>,
        mut device: D,
        crew: Arc<Crew<V::Tables>>,
        segments: Arc<[Segment]>,
        report: Report,
    ) -> Self {
        let needs = link
            .payload
            .get_or_init(|| PayloadNeeds::of(&mut device, link.arenas.len(), segments.len()));
        let ways = |segment| needs.ways(segment).len();
        let choice = |segment| needs.has_choice(segment).then(|| Ways::new(ways(segment)));
        let payload_ways = (0..segments.len()).map(choice).collect();
        let scheduling = (0..segments.len()).map(|segment| match device.scheduling(segment) {
            Scheduling::Measured => (Scheduling::Measured, Some(Ways::new(2))),
            other => (other, None),
        });
        let scheduling = scheduling.collect();
        let workers = link.returns.len();
        let chunks = link.submissions.capacity();
        let waiting = link.arenas.iter().map(|_| Vec::with_capacity(chunks)).collect();
        // One for each job in flight, and two for the next.
        let lists = (0..device.slots() + 2).map(|_| Vec::with_capacity(chunks)).collect();
        // Those of a segment that are in flight, and one that never was.
        let early = device.slots() + 1;
        let flying = vec![0; workers * segments.len()];
        Self {
            link,
            device,
            crew,
            waiting,
            lists,
            held_up: vec![false; workers],
            closed: VecDeque::new(),
            last_end: Instant::now(),
            next_number: 0,
            next_back: 0,
            early: Vec::with_capacity(early),
            flying,
            payload_ways,
            scheduling,
            segments,
            lost: None,
            reported: HashSet::new(),
            failures: 0,
            report,
        }
    }

    /// Works until asked to stop and nothing is left.
    pub(crate) fn run(mut self) {
        (0..self.segments.len()).for_each(|segment| self.note_disabled(segment));
        let mut quiet_since = Instant::now();
        loop {
            let mut worked = self.take_submissions();
            worked |= self.turn_arenas();
            worked |= self.launch();
            worked |= self.retire(Duration::ZERO);
            if worked {
                quiet_since = Instant::now();
                continue;
            }
            if self.device.in_flight() > 0 {
                self.retire(Duration::from_micros(20));
                continue;
            }
            let idle = self.waiting.iter().all(Vec::is_empty) && self.closed.is_empty();
            if idle && self.link.stop.load(Ordering::Acquire) && self.link.submissions.is_empty() {
                return;
            }
            // A worker between reserving and submitting needs some microseconds; one that has
            // nothing needs a wakeup. Nobody wakes it when an arena comes free.
            let has_capacity = self.link.open.load(Ordering::Relaxed) != NO_ARENA;
            if idle && has_capacity && quiet_since.elapsed() > Duration::from_micros(50) {
                self.sleep();
            } else {
                std::thread::yield_now();
            }
        }
    }

    fn sleep(&self) {
        self.link.wakeup.about_to_sleep();
        if self.link.submissions.is_empty() && !self.link.stop.load(Ordering::Acquire) {
            crate::worker::poll_fds(&[self.link.wakeup.fd()], Some(Duration::from_millis(100)));
        }
        self.link.wakeup.awake();
    }

    fn take_submissions(&mut self) -> bool {
        let mut any = false;
        while let Some(flight) = self.link.submissions.pop() {
            let arena = self.link.arenas.iter().position(|a| a.holds(&flight.chunk.rows));
            any = true;
            match arena {
                Some(arena) => self.waiting[arena].push(flight),
                None => debug_assert!(false, "a chunk without a place in an arena"),
            }
        }
        any
    }

    /// Closes the open arena once it holds something and a slot of the device is free for it, and opens another one.
    /// Where none is free, workers find no room until one is: then the chunks of stages without state are shaded on
    /// the CPU, and those of stages with state wait at their worker.
    fn turn_arenas(&mut self) -> bool {
        let open = self.link.open.load(Ordering::Relaxed);
        let busy = self.device.in_flight() + self.closed.len();
        match self.waiting.get(open) {
            Some(_) if busy >= self.device.slots() || !self.device.has_capacity() => return false,
            // Rows may have been given back without a job.
            Some(waiting) if waiting.is_empty() => {
                let arena = &self.link.arenas[open];
                if arena.outstanding() > 0 || arena.reserved() == 0 {
                    return false;
                }
            }
            _ => {}
        }
        let n = self.link.arenas.len();
        let next = (1..=n).map(|i| open.wrapping_add(i) % n).find(|&i| {
            let arena = &self.link.arenas[i];
            // Never used yet, or closed and given back whole.
            let taken = i == open || self.closed.iter().any(|&(c, _)| c == i);
            !taken && self.waiting[i].is_empty() && (arena.reserved() == 0 || arena.reopen())
        });
        if open == NO_ARENA && next.is_none() {
            return false;
        }
        if let (Some(next), Some(needs)) = (next, self.link.payload.get()) {
            needs.reopen(next);
            // What it will hold is not known yet: most likely the like of what the last ones did.
            for (segment, ways) in self.payload_ways.iter_mut().enumerate() {
                if let Some(ways) = ways {
                    needs.choose(next, segment, ways.choose_ahead());
                }
            }
        }
        self.link.open.store(next.unwrap_or(NO_ARENA), Ordering::Release);
        if open != NO_ARENA {
            let rows = self.link.arenas[open].close();
            self.closed.push_back((open, rows));
        } else {
            // Workers may wait for room.
            self.link.returns.iter().for_each(|(_, wakeup)| wakeup.wake());
        }
        true
    }

    /// Launches the oldest closed arena, once all its chunks are here.
    fn launch(&mut self) -> bool {
        let Some(&(arena, rows)) = self.closed.front() else { return false };
        let here: usize = self.waiting[arena].iter().map(|f| f.chunk.rows.reserved()).sum();
        // A worker that dies between reserving and submitting gives its rows back: no worker holds more than is here.
        if here < rows && self.link.arenas[arena].outstanding() > here {
            return false;
        }
        if let Some((_, left)) = self.closed.front_mut() {
            *left = here; // what was given back without a job is not waited for
        }
        let mut has_launched = false;
        while !self.waiting[arena].is_empty() {
            // A worker that still reads an earlier job's results needs the core more than this thread.
            if !self.device.has_capacity() {
                return has_launched;
            }
            self.launch_one(arena);
            has_launched = true;
        }
        self.closed.pop_front();
        true
    }

    /// Launches a job of chunks that wait in an arena. One launch, one version of the tables, one segment; of a segment
    /// with state the shards of all workers, each one's chunks in order. Shards that are out of step go back at once.
    fn launch_one(&mut self, arena: usize) {
        // Sweeps go by themselves: they have rows without packets.
        let key = |flight: &InFlight<V>| {
            let version = flight.pin.as_ref().map_or(0, V::number);
            (version, flight.segment, flight.sweep.is_some())
        };
        let Some(wanted) = self.waiting[arena].first().map(|first| key(first)) else { return };
        let segment = wanted.1;
        let has_state = self.segments[segment].has_state;
        let mut flights = self.lists.pop().unwrap_or_default();
        let mut stale = self.lists.pop().unwrap_or_default();
        let held_up = &mut self.held_up;
        held_up.fill(false);
        let taken = self.waiting[arena].extract_if(.., |flight| {
            let worker = usize::from(flight.chunk.worker);
            let is_of_job = key(flight) == wanted && !held_up[worker];
            // No chunk overtakes an older one of its shard.
            held_up[worker] |= has_state && flight.segment == segment && !is_of_job;
            is_of_job
        });
        let link = &self.link;
        let mut rows = 0;
        for flight in taken {
            rows += flight.chunk.rows.reserved();
            let worker = flight.chunk.worker;
            let is_stale = has_state && link.is_stale(worker, segment).load(Ordering::Acquire);
            if is_stale { stale.push(flight) } else { flights.push(flight) }
        }
        if let Some((_, left)) = self.closed.front_mut() {
            *left = left.saturating_sub(rows);
        }
        for (flights, is_stale) in [(stale, true), (flights, false)] {
            if flights.is_empty() {
                self.lists.push(flights);
                continue;
            }
            let number = has_state.then(|| {
                self.next_number += 1;
                self.next_number - 1
            });
            let (launched, landing, crew) = (Instant::now(), None, self.crew.clone());
            let (is_spoilt, panic) = (AtomicBool::new(false), Mutex::default());
            let chosen = self.choose(arena, segment, &flights);
            let job =
                Job { number, segment, launched, chosen, flights, crew, landing, is_spoilt, panic };
            let counters = &self.link.counters;
            counters.jobs.fetch_add(1, Ordering::Relaxed);
            let packets: usize = job.flights.iter().map(|flight| flight.count).sum();
            counters.packets.fetch_add(packets as u64, Ordering::Relaxed);
            if self.lost.is_some() || is_stale {
                self.failed(job);
            } else {
                self.count_flying(&job, true);
                if let Err((job, error)) = self.device.launch(job) {
                    self.count_flying(&job, false);
                    if let Some(error) = error {
                        self.note(error, job.segment);
                    }
                    self.failed(job);
                }
            }
            let in_flight = self.device.in_flight() as u64;
            self.link.counters.in_flight.store(in_flight, Ordering::Relaxed);
            self.link.counters.in_flight_max.fetch_max(in_flight, Ordering::Relaxed);
        }
    }

    /// How a job of these chunks is to be done.
    fn choose(&mut self, arena: usize, segment: usize, flights: &[Box<InFlight<V>>]) -> Chosen {
        let needs = self.link.payload.get();
        let payload = needs.and_then(|needs| needs.chosen(arena, segment));
        let (scheduling, ways) = &mut self.scheduling[segment];
        let is_scheduled = match (scheduling, ways) {
            (Scheduling::Measured, Some(ways)) => {
                let (rows, bytes) = sizes_of(flights);
                ways.choose(rows, bytes) == 1
            }
            (scheduling, _) => *scheduling == Scheduling::Always,
        };
        Chosen { payload, is_scheduled }
    }

    /// Notes what a job has cost that has ended well, for the choices of the next ones.
    fn learn(&mut self, job: &Job<V>, busy_ns: u64) {
        let (rows, bytes) = sizes_of(&job.flights);
        if let Some(ways) = &mut self.scheduling[job.segment].1 {
            ways.ended(job.chosen.is_scheduled.into(), rows, bytes, busy_ns);
        }
        let known = self.link.payload.get().map(|needs| needs.ways(job.segment));
        // With bytes that are attached to packets it was packed, whatever was chosen.
        let has_attached = job.flights.iter().any(|flight| !flight.chunk.attached.is_empty());
        let way = job.chosen.payload.map(|way| if has_attached { PayloadWay::Packed } else { way });
        let is_it = |own: &PayloadWay| Some(*own) == way;
        if let (Some(ways), Some(number)) = (
            &mut self.payload_ways[job.segment],
            known.and_then(|known| known.iter().position(is_it)),
        ) {
            // Workers' time is part of what a way costs.
            let workers_ns: u64 = job.flights.iter().map(|flight| flight.payload_ns).sum();
            ways.ended(number, rows, bytes, busy_ns + workers_ns);
        }
    }

    /// Counts the chunks of a job with state that goes to the device, or comes back from it.
    fn count_flying(&mut self, job: &Job<V>, goes: bool) {
        for flight in job.flights.iter().filter(|_| job.number.is_some()) {
            let shard = usize::from(flight.chunk.worker) * self.segments.len() + job.segment;
            let flying = &mut self.flying[shard];
            *flying = if goes { *flying + 1 } else { *flying - 1 };
        }
    }

    /// A job with state failed by itself: those that are at the device now will fail behind it. Their shards are out of
    /// step from now on, or chunks launched before they are back would be done without them.
    fn fail_those_behind(&self, segment: usize) {
        let segments = self.segments.len();
        for (worker, flying) in self.flying.chunks_exact(segments).enumerate() {
            if flying[segment] > 0 {
                self.link.is_stale(worker as u16, segment).store(true, Ordering::Release);
            }
        }
    }

    /// Leaves a job to the workers whose chunks it holds.
    fn failed(&mut self, job: Job<V>) {
        self.link.counters.failed.fetch_add(1, Ordering::Relaxed);
        if job.number.is_some() {
            for flight in &job.flights {
                self.link.is_stale(flight.chunk.worker, job.segment).store(true, Ordering::Release);
            }
        }
        self.give_back(job, Outcome::Failed);
    }

    fn retire(&mut self, wait: Duration) -> bool {
        let retired = self.device.retire(wait);
        while let Some(error) = self.device.take_notice() {
            (self.report)(None, DeviceEvent::PartGivenUp(&error));
        }
        let Some((job, result)) = retired else { return false };
        *self.link.counters.traffic.lock().unwrap_or_else(PoisonError::into_inner) =
            self.device.traffic();
        let in_flight = self.device.in_flight() as u64;
        self.link.counters.in_flight.store(in_flight, Ordering::Relaxed);
        self.count_flying(&job, false);
        match result {
            Ok(()) => {
                let now = Instant::now();
                let begin = self.last_end.max(job.launched);
                let busy_ns = now.duration_since(begin).as_nanos() as u64;
                self.link.cost[job.segment].job_ended(device::Shadeable::rows(&job), busy_ns);
                self.learn(&job, busy_ns);
                self.last_end = now;
                self.give_back(job, Outcome::Done);
            }
            Err(error) => {
                let is_own = error != DeviceError::Behind || job.is_spoilt.load(Ordering::Relaxed);
                if job.number.is_some() && is_own {
                    self.fail_those_behind(job.segment);
                }
                self.note(error, job.segment);
                self.failed(job);
            }
        }
        true
    }

    /// Tells of an error: of each kind once, and once that the device, or its use for a segment, is given up. What a
    /// segment's own kernels do wrong says nothing against the device.
    fn note(&mut self, error: DeviceError, segment: usize) {
        if self.lost.is_some() || error == DeviceError::Behind {
            return;
        }
        self.note_disabled(segment);
        let is_disabled = self.link.is_disabled[segment].load(Ordering::Relaxed);
        let is_own = error.is_of_stage() || is_disabled;
        self.failures += u32::from(!is_own);
        let is_gone = matches!(error, DeviceError::Lost(_) | DeviceError::Hang(_));
        if is_gone || self.failures >= FAILURES_MAX {
            (self.report)(None, DeviceEvent::GivenUp(&error));
            self.lost = Some(error);
            self.link.is_lost.store(true, Ordering::Relaxed);
        } else if !is_disabled && self.reported.insert(std::mem::discriminant(&error)) {
            (self.report)(None, DeviceEvent::JobFailed(&error));
        }
    }

    /// Lets the workers know, once, that a segment's kernels are used no more.
    fn note_disabled(&mut self, segment: usize) {
        let Some(error) = self.device.disabled(segment) else { return };
        if !self.link.is_disabled[segment].swap(true, Ordering::Relaxed) {
            (self.report)(Some(segment), DeviceEvent::SegmentGivenUp(error));
        }
    }

    /// Gives the chunks of an ended job back: at once, or where its segment has state in the order of the launches.
    fn give_back(&mut self, job: Job<V>, outcome: Outcome) {
        let Some(number) = job.number else { return self.send_home(job, outcome) };
        self.early.push((number, job, outcome));
        while let Some(next) = self.early.iter().position(|early| early.0 == self.next_back) {
            let (_, job, outcome) = self.early.swap_remove(next);
            self.next_back += 1;
            self.send_home(job, outcome);
        }
    }

    /// Gives each chunk to its worker, which brings what came down for it to its rows and packets.
    fn send_home(&mut self, mut job: Job<V>, outcome: Outcome) {
        let mut first_row = 0;
        let landing = job.landing.take().filter(|_| outcome == Outcome::Done);
        if let Some(panic) = job.panic.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            let is_its = |flight: &&mut Box<InFlight<V>>| panic.shard == flight.chunk.worker.into();
            if let Some(flight) = job.flights.iter_mut().find(is_its) {
                flight.panic = Some(panic);
            }
        }
        for mut flight in job.flights.drain(..) {
            flight.outcome = outcome;
            flight.landing.clone_from(&landing);
            flight.first_row = first_row;
            first_row += flight.chunk.rows.len();
            let away_ns = flight.handed.elapsed().as_nanos() as u64;
            self.link.cost[job.segment].chunk_was_away(away_ns);
            self.link.send_home(flight);
        }
        self.lists.push(job.flights);
    }
}

/// Rows of chunks, and bytes of their payload.
fn sizes_of<V: Versions>(flights: &[Box<InFlight<V>>]) -> (usize, usize) {
    flights.iter().fold((0, 0), |(rows, bytes), flight| {
        let known = if flight.payload.is_known() { flight.payload.bytes() } else { 0 };
        (rows + flight.chunk.rows.len(), bytes + known)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use chunk::Chunk;
    use device::accelerator::{Landing, Offload, PayloadBlock, PayloadWork};

    struct Nothing;

    impl std::ops::Deref for Nothing {
        type Target = ();
        fn deref(&self) -> &() {
            &()
        }
    }

    struct Plain;

    impl Versions for Plain {
        type Tables = ();
        type Pin = Nothing;
        fn pin(&mut self) -> Nothing {
            Nothing
        }
        fn number(_: &Nothing) -> u64 {
            0
        }
    }

    fn link(workers: usize) -> MasterLink<Plain> {
        link_of(workers, 1)
    }

    fn link_of(workers: usize, segments: usize) -> MasterLink<Plain> {
        let layout = Layout::join(&[], 4096).unwrap();
        let returns =
            (0..workers).map(|_| (Returns::new(ArrayQueue::new(64)), Wakeup::new().unwrap()));
        MasterLink::new(&layout, (2, 64, segments), returns.collect(), Wakeup::new().unwrap())
    }

    /// A chunk of a worker on its way home.
    fn flight(
        link: &MasterLink<Plain>,
        worker: u16,
        landing: &Arc<Landing>,
    ) -> Box<InFlight<Plain>> {
        let rows = link.reserve(0, 8).unwrap();
        let mut flight = Box::new(InFlight::new(Chunk::new(rows, worker)));
        flight.landing = Some(landing.clone());
        flight
    }

    /// A device that needs payload of its second segment packed, and takes one job.
    #[derive(Default)]
    struct Packs(Vec<Job<Plain>>);

    impl Device<Job<Plain>> for Packs {
        fn name(&self) -> String {
            String::new()
        }
        fn slots(&self) -> usize {
            1
        }
        fn launch(&mut self, job: Job<Plain>) -> Result<(), (Job<Plain>, Option<DeviceError>)> {
            self.0.push(job);
            Ok(())
        }
        fn retire(&mut self, _: Duration) -> Option<(Job<Plain>, Result<(), DeviceError>)> {
            Some((self.0.pop()?, Ok(())))
        }
        fn in_flight(&self) -> usize {
            self.0.len()
        }
        fn payload_work(&self, segment: usize) -> PayloadWork {
            if segment == 1 { PayloadWork::Pack } else { PayloadWork::None }
        }
        fn payload_blocks(&mut self, number: usize) -> Vec<PayloadBlock> {
            (0..number).map(|_| PayloadBlock::new(1024)).collect()
        }
    }

    /// Blocks go with arenas: a chunk packs into that of its arena, and finds room again when the arena is reopened.
    #[test]
    fn workers_pack_beside_the_arena_of_their_rows() {
        let (region, depot) = Region::new(256, chunk::HugePages::Off).unwrap();
        let mut pool = chunk::Pool::new(depot, 16);
        let link = Arc::new(link_of(1, 2));
        let segment = |first| Segment { first, end: first + 1, on_device: true, has_state: false };
        let segments: Arc<[Segment]> = [segment(0), segment(1)].into();
        let crew = Arc::new(Crew::new(vec![vec![[].into(), [].into()]], vec![Vec::new(); 2]));
        let report = Box::new(|_: Option<usize>, _: DeviceEvent<'_>| ());
        let mut master = Master::new(link.clone(), Packs::default(), crew, segments, report);
        let landing = Arc::new(Landing::default());
        let mut make = |segment: usize| {
            let mut flight = flight(&link, 0, &landing);
            flight.segment = segment;
            let packet = |i| chunk::Packet::copy_from(&mut pool, &[i; 60]).unwrap();
            flight.chunk.packets.extend((0..8).map(packet));
            link.find_payload(&mut flight, region);
            flight
        };
        for round in 0..5 {
            // Two chunks of 8 frames of 64 bytes fill a block. The third is found, not packed.
            for (segment, is_known) in [(1, true), (1, true), (1, true), (0, false)] {
                let flight = make(segment);
                assert_eq!(flight.payload.is_known(), is_known);
                assert!(link.submissions.push(flight).is_ok());
            }
            let mut jobs = 0;
            while jobs < 2 {
                master.take_submissions();
                master.turn_arenas();
                master.launch();
                for job in &mut master.device.0 {
                    let mut packed = Vec::new();
                    let is_known = Offload::payload(job, &mut |part| packed.push(part.is_packed()));
                    assert_eq!(is_known, job.segment == 1);
                    let wanted: &[bool] = if is_known { &[true, true, false] } else { &[] };
                    assert_eq!(packed, wanted, "round {round}");
                }
                jobs += usize::from(master.retire(Duration::ZERO));
            }
            while link.returns[0].0.pop().is_some() {}
        }
    }

    /// What a worker held that is gone is given back, whether it came home before that or after; others keep theirs.
    #[test]
    fn a_worker_that_is_gone_holds_nothing() {
        let (link, landing) = (link(2), Arc::new(Landing::default()));
        (0..3).for_each(|i| link.send_home(flight(&link, i % 2, &landing)));
        assert_eq!(Arc::strong_count(&landing), 4);
        link.worker_is_gone(0);
        assert_eq!((Arc::strong_count(&landing), link.arenas[0].outstanding()), (2, 8));
        link.send_home(flight(&link, 0, &landing));
        link.send_home(flight(&link, 1, &landing));
        assert_eq!((Arc::strong_count(&landing), link.returns[1].0.len()), (3, 2));
    }

    /// The worker dies while its chunks come home.
    #[test]
    fn no_chunk_stays_between_a_master_and_a_worker_that_dies() {
        for round in 0..300u32 {
            let (link, landing) = (link(1), Arc::new(Landing::default()));
            let flights: Vec<_> = (0..20).map(|_| flight(&link, 0, &landing)).collect();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    (0..round % 64).for_each(|_| std::hint::spin_loop());
                    link.worker_is_gone(0);
                });
                flights.into_iter().for_each(|flight| link.send_home(flight));
            });
            assert_eq!((Arc::strong_count(&landing), link.arenas[0].outstanding()), (1, 0));
        }
    }
}
