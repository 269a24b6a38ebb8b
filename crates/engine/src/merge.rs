//! Captures over several workers: what they make comes out as if one worker had made it.
//!
//! The reader, the worker that owns the receive queue, spreads packets over all workers and notes
//! the worker of each: the *schedule*. A worker works on its packets in the order in which it was
//! given them and retires them in that order, so what it made of its first packet comes before what
//! it made of its second one. Each worker puts that on a *lane*, with a mark behind each packet. The
//! merger walks the schedule and takes, for each packet, everything up to the next mark from the
//! lane of its worker:
//!
//! ```text
//!  schedule   0 1 1 0          lane 0   a ▮ ┆ d d' ▮
//!             └─┴─┴─┴──▶       lane 1   ▮ ┆ c ▮               out: a, c, d, d'
//! ```
//!
//! No packet carries a number, and nothing is compared. The merger owns the transmit queues and the
//! sink of dropped packets.
//!
//! Nothing is lost for want of room: the reader waits while [`Merging::is_full`], so the packets
//! under way are bounded, the rings to the workers hold all of them, and a lane is no longer than
//! what these packets have become.
//!
//! What only the order of *all* packets decides, such as a rate limit, a stage leaves to the merger:
//! it sets [`MARK_DEFERRED`] in a packet that it emits, and a [`Gate`] says in capture order whether
//! that packet leaves.
//!
//! Threads: the reader writes the schedule, a worker its lane, the merger reads all, each under a
//! lock that is taken once for each chunk.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chunk::{CHUNK_PACKETS_MAX, Depot, DropReason, Packet, Pool, Verdict, VerdictKind};
use io::TxQueue;

use crate::counters::{Counter, QueueCounters};
use crate::ring::Wakeup;
use crate::worker::{DropSink, DumpSink, ErrorSink, poll_fds};

/// Set in [`Packet::mark`] of a packet that a stage emits and that may leave only if the [`Gate`]
/// lets it. The other bits are the stage's own, for the gate; a packet that leaves has none.
pub const MARK_DEFERRED: u32 = 1 << 30;

/// The most packets that the reader is ahead of the merger.
pub(crate) const WINDOW_PACKETS: usize = 8192;

/// Decides what only the order of all packets can decide.
pub trait Gate: Send {
    /// Whether `packet`, which a stage emitted with [`MARK_DEFERRED`], leaves. Called in capture
    /// order. An empty packet has nothing to send: the stage tells that it would have decided here.
    fn admits(&mut self, packet: &Packet) -> bool;
}

/// How many packets are between the reader and the merger. A receive queue may ask: one that changes
/// the tables between packets must know that no packet before is still to be looked up.
#[derive(Clone, Debug, Default)]
pub struct UnderWay(Arc<Passage>);

/// Packets scheduled and packets merged since the start.
#[derive(Debug, Default)]
struct Passage {
    scheduled: AtomicU64,
    merged: AtomicU64,
    /// Nobody merges any more: the merger's thread has died.
    is_dead: AtomicBool,
}

impl UnderWay {
    /// Whether every packet that was received has gone its way. Always, where no merger is.
    pub fn is_none(&self) -> bool {
        self.packets() == 0
    }

    /// Never too few: what was merged before the first look is scheduled at the second one.
    fn packets(&self) -> u64 {
        if self.0.is_dead.load(Ordering::Relaxed) {
            return 0;
        }
        let merged = self.0.merged.load(Ordering::Acquire);
        self.0.scheduled.load(Ordering::Relaxed) - merged
    }
}

/// What an engine is given that puts packets in order; see [`crate::Engine::start_in_order`].
#[derive(Default)]
pub struct InOrder {
    /// Decides about packets that stages emit with [`MARK_DEFERRED`]; without one all leave.
    pub gate: Option<Box<dyn Gate>>,
    /// Kept up to date by the engine.
    pub under_way: UnderWay,
}

/// What a worker put on its lane.
enum Record {
    /// A packet and what becomes of it: forward, host, drop or dump.
    Packet(Packet, Verdict),
    /// Everything of one received packet is before this.
    Retired,
}

/// What reader, workers and merger share.
pub(crate) struct Merging {
    /// By received packet: its worker.
    schedule: Mutex<Vec<u16>>,
    lanes: Box<[Mutex<Vec<Record>>]>,
    under_way: UnderWay,
    /// Wakes the merger.
    wakeup: Wakeup,
    /// No record will come any more.
    is_ended: AtomicBool,
    /// By worker: its thread has died. What it did not hand in before is lost.
    is_dead: Box<[AtomicBool]>,
    /// Packets under way at most.
    window: u64,
    depot: Arc<Depot>,
    /// With fewer cells than these in the depot the reader waits while packets are under way.
    reserve_cells: usize,
    /// Emitted packets that the gate let pass.
    admitted: Counter,
    /// Which ports and which interfaces' twins have a queue.
    has_tx: Box<[bool]>,
    has_host: Box<[bool]>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a thread that panicked left behind is whole: only appends and swaps happen under a lock.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Merging {
    /// Whether the reader must wait: too many packets are under way, or too few cells are free for
    /// what may still be made of them. Never while nothing is under way.
    pub(crate) fn is_full(&self) -> bool {
        let under_way = self.under_way.packets();
        under_way > 0
            && (under_way + CHUNK_PACKETS_MAX as u64 > self.window
                || self.depot.available() < self.reserve_cells)
    }

    /// Emitted packets that the gate let pass.
    pub(crate) fn admitted(&self) -> u64 {
        self.admitted.get()
    }

    /// No record will come any more: the merger ends once it has written all.
    pub(crate) fn end(&self) {
        self.is_ended.store(true, Ordering::Release);
        self.wakeup.wake();
    }
}

/// One worker's end.
pub(crate) struct Lane {
    merging: Arc<Merging>,
    index: u16,
    /// Not handed in yet.
    records: Vec<Record>,
    /// At the reader: not in the schedule yet.
    targets: Vec<u16>,
}

impl Lane {
    pub(crate) fn new(merging: Arc<Merging>, index: u16) -> Self {
        let records = Vec::with_capacity(4 * CHUNK_PACKETS_MAX);
        Self { merging, index, records, targets: Vec::with_capacity(CHUNK_PACKETS_MAX) }
    }

    /// At the reader: see [`Merging::is_full`].
    pub(crate) fn is_full(&self) -> bool {
        self.merging.is_full()
    }

    /// At the reader: the next packet goes to worker `target`.
    #[inline]
    pub(crate) fn note(&mut self, target: usize) {
        self.targets.push(target as u16);
    }

    /// At the reader: the next `n` packets stay here.
    pub(crate) fn note_own(&mut self, n: usize) {
        self.targets.resize(self.targets.len() + n, self.index);
    }

    /// At the reader: what was noted is in the schedule from now on.
    pub(crate) fn schedule(&mut self) {
        // First: what is merged is never more than what is scheduled.
        if self.merging.under_way.0.is_dead.load(Ordering::Relaxed) {
            return self.targets.clear(); // it is not taken any more
        }
        let n = self.targets.len() as u64;
        self.merging.under_way.0.scheduled.fetch_add(n, Ordering::Relaxed);
        lock(&self.merging.schedule).append(&mut self.targets);
    }

    /// Whether a port, or an interface's twin, has a queue.
    pub(crate) fn has_queue(&self, port: u16, host: bool) -> bool {
        let queues = if host { &self.merging.has_host } else { &self.merging.has_tx };
        queues.get(usize::from(port)).copied().unwrap_or(false)
    }

    /// A packet that is to be sent, given to the host or dropped.
    #[inline]
    pub(crate) fn put(&mut self, packet: Packet, verdict: Verdict) {
        self.records.push(Record::Packet(packet, verdict));
    }

    /// What was put belongs to the packet that retires now.
    #[inline]
    pub(crate) fn retired(&mut self) {
        self.records.push(Record::Retired);
    }

    /// The worker's thread dies: the merger does not wait for its packets. At the reader: none follow those that were
    /// noted.
    pub(crate) fn die(&mut self) {
        self.schedule();
        self.hand_in();
        self.merging.is_dead[usize::from(self.index)].store(true, Ordering::Release);
        self.merging.wakeup.wake();
    }

    /// Where the merger has died, nothing more is sent: the cells of what was put go back to `pool`.
    pub(crate) fn free_if_dead(&mut self, pool: &mut Pool) {
        if self.merging.under_way.0.is_dead.load(Ordering::Relaxed) {
            for record in self.records.drain(..) {
                if let Record::Packet(packet, _) = record {
                    packet.free(pool);
                }
            }
        }
    }

    /// Gives the merger what was put.
    pub(crate) fn hand_in(&mut self) {
        if !self.records.is_empty() {
            lock(&self.merging.lanes[usize::from(self.index)]).append(&mut self.records);
            self.merging.wakeup.wake();
        }
    }
}

/// A queue behind the merger.
pub(crate) struct Out {
    pub(crate) queue: Box<dyn TxQueue>,
    pub(crate) counters: Arc<QueueCounters>,
    pub(crate) waiting: Vec<Packet>,
}

/// What a merger is made of.
pub(crate) struct MergerParts {
    pub(crate) workers: usize,
    /// Free cells of the region.
    pub(crate) depot: Arc<Depot>,
    /// By port, by interface.
    pub(crate) tx: Vec<Option<Out>>,
    pub(crate) host: Vec<Option<Out>>,
    pub(crate) on_drop: Option<DropSink>,
    pub(crate) on_dump: Option<DumpSink>,
    pub(crate) on_error: ErrorSink,
    pub(crate) in_order: InOrder,
    /// Queues that cannot get rid of their packets are given up.
    pub(crate) abort: Arc<AtomicBool>,
}

/// Puts what the workers made into capture order and sends it.
pub(crate) struct Merger {
    shared: Arc<Merging>,
    pool: Pool,
    schedule: VecDeque<u16>,
    lanes: Vec<VecDeque<Record>>,
    /// By worker: its thread had died when the lanes were taken.
    is_dead: Vec<bool>,
    /// Swapped with a lane or with the schedule, so that their locks are short.
    taken: Vec<Record>,
    targets: Vec<u16>,
    tx: Vec<Option<Out>>,
    host: Vec<Option<Out>>,
    on_drop: Option<DropSink>,
    on_dump: Option<DumpSink>,
    on_error: ErrorSink,
    gate: Option<Box<dyn Gate>>,
    abort: Arc<AtomicBool>,
}

impl Drop for Merger {
    /// A gate, a sink or a queue panicked: the workers go on without a merger, or they would wait for it.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.under_way.0.is_dead.store(true, Ordering::Relaxed);
        }
    }
}

impl Merger {
    /// A merger and what its workers share with it.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub(crate) fn new(parts: MergerParts) -> std::io::Result<(Self, Arc<Merging>)> {
        let cells = parts.depot.available();
        let has = |outs: &[Option<Out>]| outs.iter().map(Option::is_some).collect();
        let shared = Arc::new(Merging {
            schedule: Mutex::default(),
            lanes: (0..parts.workers).map(|_| Mutex::default()).collect(),
            under_way: parts.in_order.under_way,
            wakeup: Wakeup::new()?,
            is_ended: AtomicBool::new(false),
            is_dead: (0..parts.workers).map(|_| AtomicBool::new(false)).collect(),
            window: WINDOW_PACKETS.min(cells / 4) as u64,
            reserve_cells: cells / 2,
            admitted: Counter::default(),
            has_tx: has(&parts.tx),
            has_host: has(&parts.host),
            depot: parts.depot.clone(),
        });
        let merger = Self {
            shared: shared.clone(),
            pool: Pool::new(parts.depot, 2 * CHUNK_PACKETS_MAX),
            schedule: VecDeque::with_capacity(WINDOW_PACKETS),
            lanes: (0..parts.workers).map(|_| VecDeque::new()).collect(),
            is_dead: vec![false; parts.workers],
            taken: Vec::new(),
            targets: Vec::new(),
            tx: parts.tx,
            host: parts.host,
            on_drop: parts.on_drop,
            on_dump: parts.on_dump,
            on_error: parts.on_error,
            gate: parts.in_order.gate,
            abort: parts.abort,
        };
        Ok((merger, shared))
    }

    /// Works until [`Merging::end`], then writes what is left.
    pub(crate) fn run(mut self) -> Self {
        loop {
            // Looked at first: what was handed in before the end is seen by the step.
            let is_ended = self.shared.is_ended.load(Ordering::Acquire);
            if self.step() > 0 {
                continue;
            }
            if is_ended {
                break;
            }
            self.shared.wakeup.about_to_sleep();
            if self.step() == 0 && !self.shared.is_ended.load(Ordering::Acquire) {
                poll_fds(&[self.shared.wakeup.fd()], Some(Duration::from_millis(100)));
            }
            self.shared.wakeup.awake();
        }
        self.finish();
        self
    }

    /// Takes what was handed in and sends what is in order now; how many packets were merged.
    pub(crate) fn step(&mut self) -> usize {
        // Looked at first: a dead worker hands nothing in that the taking does not see.
        for (is_dead, shared) in self.is_dead.iter_mut().zip(&self.shared.is_dead) {
            *is_dead = shared.load(Ordering::Acquire);
        }
        self.take();
        let mut merged = 0;
        while let Some(&worker) = self.schedule.front() {
            if self.is_congested() {
                self.flush();
                if self.is_congested() {
                    return merged;
                }
            }
            let worker = usize::from(worker);
            if !self.merge_one(worker) && !self.is_dead[worker] {
                break;
            }
            self.schedule.pop_front();
            merged += 1;
            // Soon seen by the reader, which waits for room.
            self.shared.under_way.0.merged.fetch_add(1, Ordering::Release);
        }
        self.flush();
        merged
    }

    fn take(&mut self) {
        std::mem::swap(&mut *lock(&self.shared.schedule), &mut self.targets);
        self.schedule.extend(self.targets.drain(..));
        for (lane, shared) in self.lanes.iter_mut().zip(&self.shared.lanes) {
            std::mem::swap(&mut *lock(shared), &mut self.taken);
            lane.extend(self.taken.drain(..));
        }
    }

    /// Takes from a worker's lane what belongs to one received packet; `false` if the mark behind it
    /// has not come yet.
    fn merge_one(&mut self, worker: usize) -> bool {
        while let Some(record) = self.lanes.get_mut(worker).and_then(VecDeque::pop_front) {
            match record {
                Record::Packet(packet, verdict) => self.send(packet, verdict),
                Record::Retired => return true,
            }
        }
        false
    }

    fn send(&mut self, mut packet: Packet, verdict: Verdict) {
        if packet.mark & MARK_DEFERRED != 0 {
            let is_admitted = self.gate.as_mut().is_none_or(|gate| gate.admits(&packet));
            if !is_admitted || packet.is_empty() {
                return packet.free(&mut self.pool);
            }
            packet.mark = 0;
            self.shared.admitted.add(1);
        }
        let queues = match verdict.kind() {
            VerdictKind::Forward => &mut self.tx,
            VerdictKind::Host => &mut self.host,
            VerdictKind::Dump => return self.dump_packet(packet),
            _ => return self.drop_packet(packet, verdict.reason()),
        };
        match queues.get_mut(usize::from(verdict.port())) {
            Some(Some(out)) => out.waiting.push(packet),
            // Workers know which queues there are.
            _ => packet.free(&mut self.pool),
        }
    }

    fn drop_packet(&mut self, packet: Packet, reason: DropReason) {
        if let Some(sink) = &mut self.on_drop {
            sink(&packet, reason, packet.time_ns);
        }
        packet.free(&mut self.pool);
    }

    fn dump_packet(&mut self, packet: Packet) {
        if let Some(sink) = &mut self.on_dump {
            sink(&packet, packet.time_ns);
        }
        packet.free(&mut self.pool);
    }

    /// Whether a queue has so much to send that the rest must wait.
    fn is_congested(&self) -> bool {
        self.tx.iter().chain(&self.host).flatten().any(|out| out.waiting.len() > CHUNK_PACKETS_MAX)
    }

    fn flush(&mut self) {
        for outs in [&mut self.tx, &mut self.host] {
            for (port, out) in outs.iter_mut().enumerate() {
                let Some(out) = out else { continue };
                if out.waiting.is_empty() && out.queue.is_drained() {
                    continue;
                }
                if !out.waiting.is_empty() {
                    out.queue.send(&mut self.pool, &mut out.waiting);
                }
                out.queue.flush(&mut self.pool);
                out.counters.set(out.queue.stats());
                if let Some(error) = out.queue.take_error() {
                    (self.on_error)(port as u16, &error);
                }
            }
        }
    }

    /// Writes what is left. Where a worker has died, its packets are missing and the others' follow.
    fn finish(&mut self) {
        self.take();
        while let Some(worker) = self.schedule.pop_front() {
            self.merge_one(usize::from(worker));
        }
        // What stages held until the end belongs to no packet.
        for worker in 0..self.lanes.len() {
            while self.merge_one(worker) {}
        }
        loop {
            self.flush();
            let mut outs = self.tx.iter().chain(&self.host).flatten();
            let is_drained = outs.all(|out| out.waiting.is_empty() && out.queue.is_drained());
            if is_drained || self.abort.load(Ordering::Relaxed) {
                break;
            }
            std::thread::yield_now();
        }
        for out in self.tx.iter_mut().chain(&mut self.host).flatten() {
            out.waiting.drain(..).for_each(|packet| packet.free(&mut self.pool));
        }
    }
}

#[cfg(test)]
mod tests;
