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

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use chunk::{Arena, Layout, Rows};
use crossbeam_queue::ArrayQueue;
use device::{Device, DeviceError};

use crate::flight::{Flight, Job, Returns, Shaders};
use crate::ring::Bell;
use crate::stage::Versions;

/// What workers share with a master.
pub(crate) struct MasterLink<V: Versions> {
    arenas: Vec<Arena>,
    open: AtomicUsize,
    pub(crate) submissions: ArrayQueue<Box<Flight<V>>>,
    pub(crate) bell: Bell,
    pub(crate) returns: Vec<(Returns<V>, Bell)>,
    pub(crate) counters: MasterCounters,
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
    /// Most jobs in flight at a time.
    pub(crate) in_flight_max: AtomicU64,
}

impl<V: Versions> MasterLink<V> {
    pub(crate) fn new(
        layout: &Layout,
        arenas: usize,
        returns: Vec<(Returns<V>, Bell)>,
        chunks: usize,
    ) -> std::io::Result<Self> {
        Ok(Self {
            arenas: (0..arenas.max(2)).map(|_| Arena::new(layout.clone())).collect(),
            open: AtomicUsize::new(0),
            submissions: ArrayQueue::new(chunks.max(1)),
            bell: Bell::new()?,
            returns,
            counters: MasterCounters::default(),
            stop: AtomicBool::new(false),
        })
    }

    /// Rows in the open arena; `None` when it is full or every arena is at the device.
    pub(crate) fn reserve(&self, n: usize) -> Option<Rows> {
        self.arenas[self.open.load(Ordering::Acquire)].reserve(n)
    }
}

/// The master's own side.
pub(crate) struct Master<V: Versions, D> {
    link: Arc<MasterLink<V>>,
    device: D,
    shaders: Vec<Shaders<V::Tables>>,
    /// Chunks that have come in, by arena.
    waiting: Vec<Vec<Box<Flight<V>>>>,
    /// Closed arenas, oldest first, with the rows that were given out of each.
    closed: std::collections::VecDeque<(usize, usize)>,
    next_number: u64,
    next_retired: u64,
    early: BTreeMap<u64, Job<V>>,
    /// The last error, told once.
    lost: Option<DeviceError>,
    report: Box<dyn FnMut(&DeviceError) + Send>,
}

impl<V: Versions, D: Device<Job<V>>> Master<V, D> {
    pub(crate) fn new(
        link: Arc<MasterLink<V>>,
        device: D,
        shaders: Vec<Shaders<V::Tables>>,
        report: Box<dyn FnMut(&DeviceError) + Send>,
    ) -> Self {
        let waiting = link.arenas.iter().map(|_| Vec::new()).collect();
        Self {
            link,
            device,
            shaders,
            waiting,
            closed: std::collections::VecDeque::new(),
            next_number: 0,
            next_retired: 0,
            early: BTreeMap::new(),
            lost: None,
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
        let Some(next) = next else { return };
        self.link.open.store(next, Ordering::Release);
        let rows = self.link.arenas[open].close();
        self.closed.push_back((open, rows));
    }

    /// Launches the oldest closed arena, once all its chunks are here.
    fn launch(&mut self) -> bool {
        let Some(&(arena, rows)) = self.closed.front() else { return false };
        let here: usize = self.waiting[arena].iter().map(|f| f.chunk.rows.reserved()).sum();
        if here < rows {
            return false;
        }
        // One launch, one version of the tables, one segment.
        let key = |f: &Flight<V>| (f.pin.as_ref().map_or(0, V::number), f.segment);
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
            let shaders = self.shaders[wanted.1].clone();
            let job = Job { number: self.next_number, flights, shaders };
            self.next_number += 1;
            let counters = &self.link.counters;
            counters.jobs.fetch_add(1, Ordering::Relaxed);
            counters.packets.fetch_add(device::Shadeable::rows(&job) as u64, Ordering::Relaxed);
            if self.lost.is_some() {
                self.do_again(job);
            } else if let Err(job) = self.device.launch(job) {
                self.do_again(job);
            }
            let in_flight = self.device.in_flight() as u64;
            self.link.counters.in_flight_max.fetch_max(in_flight, Ordering::Relaxed);
        }
        self.closed.pop_front();
        true
    }

    fn do_again(&mut self, mut job: Job<V>) {
        self.link.counters.failed.fetch_add(1, Ordering::Relaxed);
        job.redo();
        self.early.insert(job.number, job);
        self.give_back();
    }

    fn retire(&mut self, wait: Duration) -> bool {
        let Some((job, result)) = self.device.retire(wait) else { return false };
        match result {
            Ok(()) => {
                self.early.insert(job.number, job);
                self.give_back();
            }
            Err(error) => {
                if self.lost.is_none() {
                    (self.report)(&error);
                }
                if matches!(error, DeviceError::Lost(_)) {
                    self.lost = Some(error);
                }
                self.do_again(job);
            }
        }
        true
    }

    /// Gives the chunks of retired jobs back, in order of launch.
    fn give_back(&mut self) {
        while let Some(job) = self.early.remove(&self.next_retired) {
            self.next_retired += 1;
            for mut flight in job.flights {
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
