//! The master: gathers chunks of all workers into jobs and keeps a device busy (PacketShader §5.1,
//! §5.4).
//!
//! ```text
//!  workers ──reserve rows──▶ open arena        master: close, wait for its chunks, launch
//!          ──chunks────────▶ submissions ────▶         retire in order ──▶ each worker's returns
//! ```
//!
//! While the device works on one arena, the workers fill the next one: the busier the device, the
//! larger the jobs. A job that fails is done again here, on the CPU; its packets are not lost.
//!
//! Threads: one per device. Workers meet it only in arenas and two kinds of queues.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use chunk::{Arena, Layout, Rows};
use crossbeam_queue::ArrayQueue;
use device::accelerator::Traffic;
use device::{Device, DeviceError};

use crate::balance::DeviceCost;
use crate::engine::DeviceEvent;
use crate::flight::{Flight, Job, Returns, Shaders};
use crate::ring::Bell;
use crate::segment::Segment;
use crate::stage::Versions;

/// Failed jobs after which a device is used no more.
const FAILURES_MAX: u32 = 64;

/// What workers share with a master.
pub(crate) struct MasterLink<V: Versions> {
    arenas: Vec<Arena>,
    open: AtomicUsize,
    pub(crate) submissions: ArrayQueue<Box<Flight<V>>>,
    pub(crate) bell: Bell,
    pub(crate) returns: Vec<(Returns<V>, Bell)>,
    pub(crate) counters: MasterCounters,
    /// What the device costs, for the workers' balance.
    pub(crate) cost: DeviceCost,
    /// Whether the device is gone for good.
    pub(crate) is_lost: AtomicBool,
    /// By worker: whether the device's copy of its shard is out of step, because a job of it failed.
    pub(crate) is_stale: Vec<AtomicBool>,
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
    pub(crate) fn new(
        layout: &Layout,
        arenas: usize,
        returns: Vec<(Returns<V>, Bell)>,
        chunks: usize,
        workers: usize,
    ) -> std::io::Result<Self> {
        Ok(Self {
            arenas: (0..arenas.max(2)).map(|_| Arena::new(layout.clone())).collect(),
            open: AtomicUsize::new(0),
            submissions: ArrayQueue::new(chunks.max(1)),
            bell: Bell::new()?,
            returns,
            counters: MasterCounters::default(),
            cost: DeviceCost::default(),
            is_lost: AtomicBool::new(false),
            is_stale: (0..workers).map(|_| AtomicBool::new(false)).collect(),
            stop: AtomicBool::new(false),
        })
    }

    /// Its arenas, for a device to know of.
    pub(crate) fn arenas(&self) -> Vec<Arena> {
        self.arenas.clone()
    }

    /// Rows in the open arena; `None` when it is full, every arena is at the device, or the device is
    /// gone.
    pub(crate) fn reserve(&self, n: usize) -> Option<Rows> {
        if self.is_lost.load(Ordering::Relaxed) {
            return None;
        }
        self.arenas[self.open.load(Ordering::Acquire)].reserve(n)
    }
}

/// The master's own side.
pub(crate) struct Master<V: Versions, D> {
    link: Arc<MasterLink<V>>,
    device: D,
    /// By worker and segment: a stage with state has a shard for each worker.
    shaders: Vec<Vec<Shaders<V::Tables>>>,
    /// Chunks that have come in, by arena.
    waiting: Vec<Vec<Box<Flight<V>>>>,
    /// Closed arenas, oldest first, with the rows that were given out of each.
    closed: std::collections::VecDeque<(usize, usize)>,
    last_end: Instant,
    next_number: u64,
    next_retired: u64,
    /// Jobs that have ended before an older one, and whether the device did them.
    early: BTreeMap<u64, (Job<V>, bool)>,
    segments: Arc<[Segment]>,
    /// By shard: from this job on up to that one the device worked on stale state.
    stale: HashMap<u16, (u64, u64)>,
    /// Why the device is used no more.
    lost: Option<DeviceError>,
    /// Kinds of errors that were told.
    told: HashSet<std::mem::Discriminant<DeviceError>>,
    failures: u32,
    report: Box<dyn FnMut(DeviceEvent<'_>) + Send>,
}

impl<V: Versions, D: Device<Job<V>>> Master<V, D> {
    pub(crate) fn new(
        link: Arc<MasterLink<V>>,
        device: D,
        shaders: Vec<Vec<Shaders<V::Tables>>>,
        segments: Arc<[Segment]>,
        report: Box<dyn FnMut(DeviceEvent<'_>) + Send>,
    ) -> Self {
        let waiting = link.arenas.iter().map(|_| Vec::new()).collect();
        Self {
            link,
            device,
            shaders,
            waiting,
            closed: std::collections::VecDeque::new(),
            last_end: Instant::now(),
            next_number: 0,
            next_retired: 0,
            early: BTreeMap::new(),
            segments,
            stale: HashMap::new(),
            lost: None,
            told: HashSet::new(),
            failures: 0,
            report,
        }
    }

    /// Works until told to stop and nothing is left.
    pub(crate) fn run(mut self) {
        let mut quiet_since = Instant::now();
        loop {
            let mut worked = self.take_submissions();
            self.close_open_arena();
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
            // nothing needs a bell.
            if idle && quiet_since.elapsed() > Duration::from_micros(50) {
                self.sleep();
            } else {
                std::thread::yield_now();
            }
        }
    }

    fn sleep(&self) {
        self.link.bell.about_to_sleep();
        if self.link.submissions.is_empty() && !self.link.stop.load(Ordering::Acquire) {
            crate::worker::poll_fds(&[self.link.bell.fd()], Some(Duration::from_millis(100)));
        }
        self.link.bell.awake();
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

    /// Closes the open arena once it holds something, a slot of the device is free for it, and
    /// another arena can take its place.
    fn close_open_arena(&mut self) {
        let open = self.link.open.load(Ordering::Relaxed);
        let busy = self.device.in_flight() + self.closed.len();
        if self.waiting[open].is_empty() || busy >= self.device.slots() {
            return;
        }
        let n = self.link.arenas.len();
        let next = (1..n).map(|i| (open + i) % n).find(|&i| {
            let arena = &self.link.arenas[i];
            // Never used yet, or closed and given back whole.
            let taken = self.closed.iter().any(|&(c, _)| c == i);
            !taken && self.waiting[i].is_empty() && (arena.reserved() == 0 || arena.reopen())
        });
        let Some(next) = next else {
            // A device that hangs keeps arenas for good; what is in the open one needs no launch any more.
            if self.lost.is_some() && self.closed.is_empty() {
                self.redo_open(open);
            }
            return;
        };
        self.link.open.store(next, Ordering::Release);
        let rows = self.link.arenas[open].close();
        self.closed.push_back((open, rows));
    }

    /// Does the chunks of the open arena on the CPU, each as a job of its own.
    fn redo_open(&mut self, open: usize) {
        for flight in std::mem::take(&mut self.waiting[open]) {
            let segment = flight.segment;
            let shard = self.segments[segment].has_state.then_some(flight.chunk.worker);
            let shaders = self.shaders[shard.map_or(0, usize::from)][segment].clone();
            let (number, launched) = (self.next_number, Instant::now());
            self.next_number += 1;
            self.do_again(Job { number, segment, shard, launched, flights: vec![flight], shaders });
        }
    }

    /// Launches the oldest closed arena, once all its chunks are here.
    fn launch(&mut self) -> bool {
        let Some(&(arena, rows)) = self.closed.front() else { return false };
        let here: usize = self.waiting[arena].iter().map(|f| f.chunk.rows.reserved()).sum();
        if here < rows {
            return false;
        }
        // One launch, one version of the tables, one segment, one shard of state.
        let segments = self.segments.clone();
        let key = |f: &Flight<V>| {
            let shard = segments[f.segment].has_state.then_some(f.chunk.worker);
            (f.pin.as_ref().map_or(0, V::number), f.segment, shard)
        };
        while let Some(first) = self.waiting[arena].first() {
            if self.device.in_flight() >= self.device.slots() {
                return true;
            }
            let wanted = key(first);
            let (flights, rest): (Vec<_>, Vec<_>) =
                self.waiting[arena].drain(..).partition(|f| key(f) == wanted);
            self.waiting[arena] = rest;
            if let Some((_, left)) = self.closed.front_mut() {
                *left -= flights.iter().map(|f| f.chunk.rows.reserved()).sum::<usize>();
            }
            let shaders = self.shaders[wanted.2.map_or(0, usize::from)][wanted.1].clone();
            let (number, launched) = (self.next_number, Instant::now());
            let (segment, shard) = (wanted.1, wanted.2);
            let job = Job { number, segment, shard, launched, flights, shaders };
            self.next_number += 1;
            let counters = &self.link.counters;
            counters.jobs.fetch_add(1, Ordering::Relaxed);
            counters.packets.fetch_add(device::Shadeable::rows(&job) as u64, Ordering::Relaxed);
            let is_stale = shard.is_some_and(|shard| {
                self.link.is_stale[usize::from(shard)].load(Ordering::Acquire)
            });
            if self.lost.is_some() || is_stale {
                self.do_again(job);
            } else if let Err((job, error)) = self.device.launch(job) {
                if let Some(error) = error {
                    self.note(error);
                }
                self.do_again(job);
            }
            let in_flight = self.device.in_flight() as u64;
            self.link.counters.in_flight.store(in_flight, Ordering::Relaxed);
            self.link.counters.in_flight_max.fetch_max(in_flight, Ordering::Relaxed);
        }
        self.closed.pop_front();
        true
    }

    /// Leaves a job to this thread, when its turn comes: state must see jobs in order.
    fn do_again(&mut self, job: Job<V>) {
        self.link.counters.failed.fetch_add(1, Ordering::Relaxed);
        if let Some(shard) = job.shard {
            self.link.is_stale[usize::from(shard)].store(true, Ordering::Release);
            let until = self.next_number;
            let (_, last) = self.stale.entry(shard).or_insert((job.number, until));
            *last = until;
        }
        self.early.insert(job.number, (job, false));
        self.give_back();
    }

    fn retire(&mut self, wait: Duration) -> bool {
        let Some((job, result)) = self.device.retire(wait) else { return false };
        *self.link.counters.traffic.lock().unwrap_or_else(PoisonError::into_inner) =
            self.device.traffic();
        let in_flight = self.device.in_flight() as u64;
        self.link.counters.in_flight.store(in_flight, Ordering::Relaxed);
        match result {
            Ok(()) => {
                let now = Instant::now();
                let begin = self.last_end.max(job.launched);
                let busy_ns = now.duration_since(begin).as_nanos() as u64;
                self.link.cost.job_ended(device::Shadeable::rows(&job), busy_ns);
                self.last_end = now;
                self.early.insert(job.number, (job, true));
                self.give_back();
            }
            Err(error) => {
                self.note(error);
                self.do_again(job);
            }
        }
        true
    }

    /// Tells of an error: of each kind once, and once that the device is given up.
    fn note(&mut self, error: DeviceError) {
        if self.lost.is_some() {
            return;
        }
        self.failures += 1;
        let is_gone = matches!(error, DeviceError::Lost(_) | DeviceError::Hang(_));
        if is_gone || self.failures >= FAILURES_MAX {
            (self.report)(DeviceEvent::GivenUp(&error));
            self.lost = Some(error);
            self.link.is_lost.store(true, Ordering::Relaxed);
        } else if self.told.insert(std::mem::discriminant(&error)) {
            (self.report)(DeviceEvent::JobFailed(&error));
        }
    }

    /// Gives the chunks of retired jobs back, in order of launch.
    fn give_back(&mut self) {
        while let Some((mut job, done)) = self.early.remove(&self.next_retired) {
            self.next_retired += 1;
            // Jobs of a shard behind one that failed worked on state that lacked it.
            let stale = job.shard.and_then(|shard| self.stale.get(&shard).copied());
            let is_stale = stale.is_some_and(|(from, to)| (from..to).contains(&job.number));
            if let (Some(shard), Some((_, to))) = (job.shard, stale)
                && job.number >= to
            {
                self.stale.remove(&shard);
            }
            if done && !is_stale {
                job.retired()
            } else {
                job.redo()
            }
            for mut flight in job.flights {
                let away_ns = flight.handed.elapsed().as_nanos() as u64;
                self.link.cost.chunk_was_away(away_ns);
                let (returns, bell) = &self.link.returns[usize::from(flight.chunk.worker)];
                // A worker's queue has room for every chunk it owns.
                while let Err(back) = returns.push(flight) {
                    flight = back;
                    std::thread::yield_now();
                }
                bell.ring();
            }
        }
    }
}
