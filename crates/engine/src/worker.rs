//! A worker: one thread, pinned to one core, that owns queues and carries chunks through the
//! pipeline (PacketShader §5.1; chunk pipelining §5.4).
//!
//! ```text
//!  turn:  receive ─▶ pre-shade ─▶ shade here, or hand over to a master
//!         take back what masters have shaded
//!         advance, oldest first: post-shade ─▶ next segment … ─▶ retire: transmit, host, drop
//!         flush queues; housekeeping
//!  idle:  arm the wake-ups, look once more, block
//! ```
//!
//! A turn takes a bounded number of packets from each queue and ends by sending, so an overloaded
//! worker forwards at its limit and never livelocks (PacketShader §5.2); an idle one blocks.

mod away;
mod send;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arrayvec::ArrayVec;
use chunk::{Arena, CHUNK_PACKETS_MAX, Chunk, DropReason, Layout, Packet, Pool, Verdict};
use io::{RxQueue, TxQueue};

use crate::balance::{Balance, Side};
use crate::counters::{QueueCounters, WorkerCounters};
use crate::flight::{Flight, InOrder, Returns, Shaders, Slot, Traced};
use crate::hooks::{CapturePoint, Hooks};
use crate::master::MasterLink;
use crate::ring::{Bell, Passed};
use crate::segment::Segment;
use crate::stage::{Context, Stage, Versions};

/// Set in [`Packet::mark`] of packets that come from a twin: the host sends them.
pub const MARK_FROM_HOST: u32 = 1 << 31;

/// How often `tick` is called at least, while a worker is awake.
const TICK: Duration = Duration::from_millis(10);

/// Empty turns before a worker blocks: a burst is often followed by the next one.
const SPINS: u32 = 64;

/// Packets that a ring from one worker to another holds.
pub(crate) const RING_PACKETS: usize = 1024;

/// Descriptors that a worker can block on; queues beyond are looked at every 50 µs.
const POLLED_MAX: usize = 128;

/// Hash of a frame that is the same for both directions of a flow.
pub type SpreadHash = fn(&[u8]) -> u32;

/// A receive queue and what its owner must know of it.
pub struct RxSlot {
    /// Its port; [`chunk::PORT_NONE`] if the queue itself stamps each packet.
    pub port: u16,
    /// Set in each packet's mark.
    pub mark: u32,
    /// The queue.
    pub queue: Box<dyn RxQueue>,
    /// Spreads its packets over all workers; `None` keeps them.
    pub spread: Option<SpreadHash>,
    /// Where its counters are read.
    pub counters: Arc<QueueCounters>,
}

/// Where packets for a port, or for a twin, go at this worker.
pub enum TxSlot {
    /// There is no such port.
    Absent,
    /// Its queue belongs to this worker.
    Own(Box<dyn TxQueue>, Arc<QueueCounters>),
    /// Its queue belongs to that worker.
    Worker(usize),
}

/// Told of each dropped packet before its cells are recycled.
pub type DropSink = Box<dyn FnMut(&Packet, DropReason, u64) + Send>;

/// Told of a queue's failure: the port and what happened.
pub type ErrorSink = Arc<dyn Fn(u16, &str) + Send + Sync>;

struct TxSide {
    slot: TxSlot,
    waiting: Vec<Packet>,
}

/// Everything of one worker.
pub(crate) struct Worker<V: Versions> {
    pub(crate) index: u16,
    pub(crate) pool: Pool,
    pub(crate) versions: V,
    pub(crate) stages: Vec<Box<dyn Stage<V::Tables>>>,
    pub(crate) segments: Arc<[Segment]>,
    pub(crate) shaders: Vec<Shaders<V::Tables>>,
    pub(crate) rx: Vec<RxSlot>,
    tx: Vec<TxSide>,
    host: Vec<TxSide>,
    /// Rings from the other workers, and to them.
    pub(crate) rings_in: Vec<rtrb::Consumer<Passed>>,
    pub(crate) rings_out: Vec<Option<(rtrb::Producer<Passed>, Bell)>>,
    pub(crate) bell: Bell,
    pub(crate) master: Option<Arc<MasterLink<V>>>,
    pub(crate) returns: Returns<V>,
    pub(crate) balance: Balance,
    pub(crate) counters: Arc<WorkerCounters>,
    pub(crate) hooks: Arc<Hooks>,
    pub(crate) on_drop: Option<DropSink>,
    pub(crate) on_error: ErrorSink,
    /// How many workers have nothing left to do; see `is_done`.
    pub(crate) quiet_workers: Arc<AtomicUsize>,
    /// Stop by itself once every source is finished.
    pub(crate) until_finished: bool,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) abort: Arc<AtomicBool>,
    /// Take chunk time from the packets instead of the clock.
    pub(crate) packet_time: bool,
    /// Wait for a full transmit queue instead of dropping.
    pub(crate) lossless: bool,
    pub(crate) chunk_packets: usize,
    /// How long a packet may be under way; zero: a burst leaves at once.
    max_delay: Duration,
    /// Packets of the chunks begun in this turn, and how full the fullest of them and of the queues' bursts
    /// was, 0 to 1.
    begun: (usize, f64),
    /// When the chunk in the inbox must leave at the latest.
    leaves: Option<Instant>,
    /// What a chunk takes from leaving the inbox to its retirement, a mean.
    service: Duration,
    /// By segment: where its shard of state is at home, and chunks that are away.
    homes: Vec<Side>,
    /// By segment: whether the device has had the shard's state since it moved there.
    state_is_there: Vec<bool>,
    away: Vec<usize>,
    /// Chunks that came back while a shard was drained.
    back: Vec<Box<Flight<V>>>,
    free: Vec<Box<Flight<V>>>,
    order: InOrder<V>,
    next_seq: u64,
    inbox: Vec<Packet>,
    passed: Vec<Packet>,
    dropped: Vec<(Packet, DropReason)>,
    released: Vec<(Packet, Verdict)>,
    last_version: u64,
    last_tick: Instant,
    now_ns: u64,
    /// Since it was made, by a clock that only goes on.
    clock_ns: u64,
    started: Instant,
    rung: Vec<bool>,
    quiet: bool,
}

/// What a worker is made of; see [`Worker`].
pub(crate) struct Parts<V: Versions> {
    pub(crate) index: u16,
    pub(crate) pool: Pool,
    pub(crate) versions: V,
    pub(crate) stages: Vec<Box<dyn Stage<V::Tables>>>,
    pub(crate) segments: Arc<[Segment]>,
    pub(crate) layout: Layout,
    pub(crate) rx: Vec<RxSlot>,
    pub(crate) tx: Vec<TxSlot>,
    pub(crate) host: Vec<TxSlot>,
    pub(crate) rings_in: Vec<rtrb::Consumer<Passed>>,
    pub(crate) rings_out: Vec<Option<(rtrb::Producer<Passed>, Bell)>>,
    pub(crate) bell: Bell,
    pub(crate) master: Option<Arc<MasterLink<V>>>,
    pub(crate) returns: Returns<V>,
    pub(crate) balance: Balance,
    pub(crate) counters: Arc<WorkerCounters>,
    pub(crate) hooks: Arc<Hooks>,
    pub(crate) on_drop: Option<DropSink>,
    pub(crate) on_error: ErrorSink,
    /// How many workers have nothing left to do; see `is_done`.
    pub(crate) quiet_workers: Arc<AtomicUsize>,
    /// Stop by itself once every source is finished.
    pub(crate) until_finished: bool,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) abort: Arc<AtomicBool>,
    pub(crate) packet_time: bool,
    pub(crate) lossless: bool,
    pub(crate) chunk_packets: usize,
    pub(crate) max_delay: Duration,
    pub(crate) chunks: usize,
}

impl<V: Versions> Worker<V> {
    pub(crate) fn new(parts: Parts<V>) -> Self {
        let arena = Arena::new(parts.layout.with_capacity(parts.chunks * CHUNK_PACKETS_MAX));
        let free = (0..parts.chunks)
            .filter_map(|_| arena.reserve(CHUNK_PACKETS_MAX))
            .map(|rows| Box::new(Flight::new(Chunk::new(rows, parts.index))))
            .collect();
        let side = |slot| TxSide { slot, waiting: Vec::with_capacity(4 * CHUNK_PACKETS_MAX) };
        let shaders = segment_shaders(&parts.stages, &parts.segments);
        let peers = parts.rings_out.len();
        let homes = vec![Side::Cpu; parts.segments.len()];
        let state_is_there = vec![false; parts.segments.len()];
        let away = vec![0; parts.segments.len()];
        Self {
            index: parts.index,
            pool: parts.pool,
            versions: parts.versions,
            stages: parts.stages,
            segments: parts.segments,
            shaders,
            rx: parts.rx,
            tx: parts.tx.into_iter().map(side).collect(),
            host: parts.host.into_iter().map(side).collect(),
            rings_in: parts.rings_in,
            rings_out: parts.rings_out,
            bell: parts.bell,
            master: parts.master,
            returns: parts.returns,
            balance: parts.balance,
            counters: parts.counters,
            hooks: parts.hooks,
            on_drop: parts.on_drop,
            on_error: parts.on_error,
            quiet_workers: parts.quiet_workers,
            until_finished: parts.until_finished,
            quiet: false,
            stop: parts.stop,
            abort: parts.abort,
            packet_time: parts.packet_time,
            lossless: parts.lossless,
            chunk_packets: parts.chunk_packets.clamp(1, CHUNK_PACKETS_MAX),
            max_delay: parts.max_delay,
            begun: (0, 0.0),
            leaves: None,
            service: Duration::ZERO,
            homes,
            state_is_there,
            away,
            back: Vec::new(),
            free,
            order: InOrder::new(parts.chunks),
            next_seq: 0,
            inbox: Vec::with_capacity(CHUNK_PACKETS_MAX),
            passed: Vec::with_capacity(CHUNK_PACKETS_MAX),
            dropped: Vec::with_capacity(CHUNK_PACKETS_MAX),
            released: Vec::with_capacity(CHUNK_PACKETS_MAX),
            last_version: u64::MAX,
            last_tick: Instant::now(),
            now_ns: 0,
            clock_ns: 0,
            started: Instant::now(),
            rung: vec![false; peers],
        }
    }

    /// Works until told to stop, then drains: no packet that was received is left undone.
    pub(crate) fn run(mut self) -> Self {
        let mut empty_turns = 0;
        loop {
            let begin = Instant::now();
            self.clock_ns = begin.duration_since(self.started).as_nanos() as u64;
            if !self.packet_time {
                self.now_ns = wall_clock_ns();
            }
            let stopping = self.stop.load(Ordering::Relaxed);
            let mut work = if stopping { 0 } else { self.receive() };
            if stopping {
                self.begin_chunk();
            } else if !self.inbox.is_empty() {
                self.gather();
            }
            work += self.take_passed();
            self.weigh();
            work += self.take_back();
            work += self.advance();
            work += self.housekeep(begin);
            self.flush();
            if work > 0 {
                self.set_quiet(false);
                empty_turns = 0;
                self.counters.busy_turns.add(1);
                self.counters.busy_ns.add(begin.elapsed().as_nanos() as u64);
                continue;
            }
            self.counters.idle_turns.add(1);
            empty_turns += 1;
            if self.is_done(stopping) {
                return self;
            }
            if self.quiet {
                std::thread::yield_now(); // the others are about to be
            } else if empty_turns > SPINS && self.inbox.is_empty() {
                self.block();
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// Whether there is nothing left to do, here and at every other worker: told to stop, or
    /// every source finished.
    ///
    /// A worker says that it is quiet only while the rings to it and from it are empty. So when
    /// all are quiet at once, no packet is anywhere: one that has just been passed on keeps its
    /// sender from being quiet until the receiver, no longer quiet, has taken it.
    fn is_done(&mut self, stopping: bool) -> bool {
        let sources_done = stopping || (self.until_finished && self.rx_finished());
        let rings_empty = self.rings_in.iter().all(rtrb::Consumer::is_empty)
            && self.rings_out.iter().flatten().all(|(ring, _)| ring.slots() == RING_PACKETS);
        let quiet = sources_done
            && rings_empty
            && self.inbox.is_empty()
            && self.order.len() == 0
            && (self.tx_drained() || self.abort.load(Ordering::Relaxed));
        self.set_quiet(quiet);
        quiet && self.quiet_workers.load(Ordering::Acquire) == self.rings_out.len()
    }

    fn set_quiet(&mut self, quiet: bool) {
        if quiet && !self.quiet {
            self.quiet_workers.fetch_add(1, Ordering::AcqRel);
        } else if !quiet && self.quiet {
            self.quiet_workers.fetch_sub(1, Ordering::AcqRel);
        }
        self.quiet = quiet;
    }

    fn rx_finished(&self) -> bool {
        self.rx.iter().all(|slot| slot.queue.is_finished())
    }

    fn tx_drained(&self) -> bool {
        self.tx.iter().chain(&self.host).all(|side| {
            side.waiting.is_empty()
                && match &side.slot {
                    TxSlot::Own(queue, _) => queue.is_drained(),
                    _ => true,
                }
        })
    }

    /// Takes a burst from each queue.
    fn receive(&mut self) -> usize {
        let mut received = 0;
        if self.lossless && self.tx.iter().any(|side| side.waiting.len() > CHUNK_PACKETS_MAX) {
            return 0; // let the transmit queues catch up
        }
        for i in 0..self.rx.len() {
            if self.free.is_empty() {
                break; // chunks in flight bound the work in progress
            }
            let slot = &mut self.rx[i];
            let waiting = self.inbox.len();
            let room = self.chunk_packets - waiting.min(self.chunk_packets - 1);
            let n = slot.queue.recv(&mut self.pool, &mut self.inbox, room);
            if n == 0 {
                while let Some(error) = slot.queue.take_error() {
                    (self.on_error)(slot.port, &error);
                }
                continue;
            }
            slot.counters.set(slot.queue.stats());
            received += n;
            // A full queue is one, also where most of its packets are other workers'.
            self.begun.1 = self.begun.1.max(n as f64 / room as f64);
            if slot.port != chunk::PORT_NONE {
                for packet in &mut self.inbox[waiting..] {
                    packet.port = slot.port;
                    packet.mark |= slot.mark;
                }
            }
            self.counters.rx_packets.add(n as u64);
            // What a twin sent is seen where it leaves.
            if self.hooks.capturing() && self.rx[i].mark & MARK_FROM_HOST == 0 {
                let now = self.now_ns;
                for packet in &self.inbox[waiting..] {
                    let point = CapturePoint::Port(packet.port);
                    self.hooks.offer(point, packet, now, packet.port, false, None);
                }
            }
            if let (Some(hash), true) = (self.rx[i].spread, self.rings_out.len() > 1) {
                self.spread(hash, waiting);
            }
            self.gather();
        }
        received
    }

    /// Tells the balance what the turn brought. A turn that had no chunk to begin says nothing.
    fn weigh(&mut self) {
        let (packets, fullest) = std::mem::take(&mut self.begun);
        if self.master.is_some() && (packets > 0 || !self.free.is_empty()) {
            self.balance.auto.turn_ended(packets, fullest, self.clock_ns);
        }
    }

    /// Whether chunks wait to fill: a device does many rows cheaply. Where the worker shades, a burst leaves
    /// at once.
    fn gathers(&self) -> bool {
        let there = |master: &Arc<MasterLink<V>>| !master.is_lost.load(Ordering::Relaxed);
        !self.max_delay.is_zero()
            && self.segments.iter().any(|segment| segment.on_device)
            && self.balance.is_on_device()
            && self.master.as_ref().is_some_and(there)
    }

    /// Begins a chunk of the inbox when it is full or may wait no longer.
    fn gather(&mut self) {
        if self.inbox.len() >= self.chunk_packets || !self.gathers() {
            return self.begin_chunk();
        }
        if self.inbox.is_empty() {
            return;
        }
        let now = Instant::now();
        // What the chunk still has before it counts as delay too.
        let wait = self.max_delay.saturating_sub(self.service);
        if now >= *self.leaves.get_or_insert(now + wait) {
            self.begin_chunk();
        }
    }

    /// Leaves in the inbox, of the packets from place `first` on, what this worker keeps, and passes on
    /// the rest.
    fn spread(&mut self, hash: SpreadHash, first: usize) {
        let workers = self.rings_out.len() as u64;
        let mut inbox = std::mem::take(&mut self.inbox);
        for packet in inbox.drain(first..) {
            let target = ((u64::from(hash(packet.data())) * workers) >> 32) as usize;
            if target == usize::from(self.index) {
                self.passed.push(packet);
            } else {
                self.pass(target, Passed::Received(packet));
            }
        }
        self.inbox = inbox;
        self.inbox.append(&mut self.passed);
    }

    /// Puts `passed` in the ring to worker `target`; a full ring drops it, counted.
    fn pass(&mut self, target: usize, passed: Passed) {
        let Some(Some((ring, _))) = self.rings_out.get_mut(target) else {
            let (Passed::Received(packet) | Passed::Transmit(packet, _) | Passed::Host(packet, _)) =
                passed;
            return self.drop_packet(packet, DropReason::TxNoPort);
        };
        match ring.push(passed) {
            Ok(()) => self.rung[target] = true,
            Err(rtrb::PushError::Full(
                Passed::Received(packet) | Passed::Transmit(packet, _) | Passed::Host(packet, _),
            )) => {
                // Rung at once: the other one may sleep on a full ring.
                if let Some(Some((_, bell))) = self.rings_out.get(target) {
                    bell.ring();
                }
                self.drop_packet(packet, DropReason::RingFull);
            }
        }
    }

    /// What other workers have passed on.
    fn take_passed(&mut self) -> usize {
        let mut work = 0;
        for i in 0..self.rings_in.len() {
            if !self.rings_in[i].is_empty() {
                self.set_quiet(false); // before the ring is seen to be empty by its producer
            }
            for _ in self.inbox.len()..self.chunk_packets {
                // A received packet needs a chunk; without one it stays in the ring.
                if self.free.is_empty() {
                    break;
                }
                let Ok(passed) = self.rings_in[i].pop() else { break };
                work += 1;
                match passed {
                    Passed::Received(packet) => self.inbox.push(packet),
                    Passed::Transmit(packet, port) => self.queue_tx(packet, port),
                    Passed::Host(packet, port) => self.queue_host(packet, port),
                }
            }
            self.gather();
        }
        work
    }

    /// Makes a chunk of the inbox and takes it into the first segment.
    fn begin_chunk(&mut self) {
        if self.inbox.is_empty() {
            return;
        }
        // Without a free chunk the packets wait for one.
        let Some(mut flight) = self.free.pop() else { return };
        self.begun.0 += self.inbox.len();
        self.begun.1 = self.begun.1.max(self.inbox.len() as f64 / self.chunk_packets as f64);
        if self.leaves.take().is_some() || !self.max_delay.is_zero() {
            flight.begun = Some(Instant::now());
        }
        let chunk = &mut flight.chunk;
        std::mem::swap(&mut chunk.packets, &mut self.inbox);
        if self.packet_time {
            // The capture's time never runs back here, whatever the file says.
            let newest = chunk.packets.last().map_or(0, |packet| packet.time_ns);
            self.now_ns = self.now_ns.max(newest);
        }
        chunk.time_ns = self.now_ns;
        chunk.seq = self.next_seq;
        self.next_seq += 1;
        chunk.rows.set_len(chunk.packets.len());
        chunk.rows.verdicts().fill(Verdict::NEXT.0);
        flight.segment = 0;
        flight.pin = Some(self.versions.pin());
        if self.hooks.tracing() {
            begin_trace(&self.hooks, &mut flight);
        }
        self.counters.chunks.add(1);
        let slot = self.enter_segment(flight);
        self.order.push(slot);
    }

    /// Pre-shades a segment and shades it here, or hands it over.
    fn enter_segment(&mut self, mut flight: Box<Flight<V>>) -> Slot<V> {
        let segment = self.segments[flight.segment];
        let mut to_device = false;
        if segment.on_device
            && let Some(master) = self.master.clone()
            && self.side(flight.segment, &master) == Side::Device
            && let Some(rows) = self.reserve(flight.segment, &master, flight.chunk.len())
        {
            // Columns written by earlier segments move with the chunk; the first has none yet.
            let mut rows = rows;
            flight.moves_state = segment.has_state
                && !std::mem::replace(&mut self.state_is_there[flight.segment], true);
            if flight.segment > 0 {
                rows.copy_from(&mut flight.chunk.rows);
            } else {
                rows.verdicts().fill(Verdict::NEXT.0);
            }
            let before = std::mem::replace(&mut flight.chunk.rows, rows);
            // Its own rows are kept; a range of an earlier job's arena is given back here.
            flight.spare.get_or_insert(before);
            to_device = true;
        }
        for i in segment.first..segment.end {
            self.with_stage(i, &mut flight, |stage, chunk, cx| stage.pre_shade(chunk, cx), true);
        }
        if to_device && let Some(master) = self.master.clone() {
            flight.remember();
            flight.handed = Instant::now();
            let away = flight.segment;
            self.away[away] += 1;
            self.counters.chunks_to_device.add(1);
            match master.submissions.push(flight) {
                Ok(()) => {
                    master.bell.ring();
                    return Slot::Away(away);
                }
                // Not possible with room for every chunk there is; shaded here all the same.
                Err(back) => {
                    self.away[away] -= 1;
                    flight = back;
                }
            }
        }
        let mut shaded_ns = 0;
        if let Some(pin) = &flight.pin {
            // On this side each stage of the segment is timed apart.
            for (i, shader) in self.shaders[flight.segment].iter().enumerate() {
                let begin = Instant::now();
                let chunk = &mut flight.chunk;
                shader.shade_packets(&mut chunk.rows, &mut chunk.packets, pin);
                let stage = &self.counters.stages[segment.first + i];
                let ns = begin.elapsed().as_nanos() as u64;
                stage.busy_ns.add(ns);
                shaded_ns += ns;
            }
        }
        if segment.on_device {
            self.balance.auto.shaded(flight.chunk.len(), shaded_ns);
        }
        Slot::Shaded(flight)
    }

    /// Post-shades whatever may go on, in order, and retires what is through.
    fn advance(&mut self) -> usize {
        let mut work = 0;
        let segments = self.segments.clone();
        let mut order = std::mem::replace(&mut self.order, InOrder::new(0));
        order.advance(&segments, |mut flight| {
            work += 1;
            let segment = segments[flight.segment];
            for i in segment.first..segment.end {
                self.with_stage(i, &mut flight, |s, chunk, cx| s.post_shade(chunk, cx), false);
                if !flight.traced.is_empty() {
                    self.trace_stage(i, &mut flight);
                }
                if self.hooks.capturing() {
                    self.capture_stage(i, &mut flight);
                }
            }
            flight.segment += 1;
            if flight.segment < segments.len() {
                return Some(self.enter_segment(flight));
            }
            self.retire(flight);
            None
        });
        self.order = order;
        work
    }

    /// Runs one step of a stage, timed and counted.
    fn with_stage(
        &mut self,
        i: usize,
        flight: &mut Flight<V>,
        step: impl FnOnce(&mut dyn Stage<V::Tables>, &mut Chunk, &mut Context<'_, V::Tables>),
        count: bool,
    ) {
        let begin = Instant::now();
        let Some(pin) = &flight.pin else { return };
        if count {
            let stage = &self.counters.stages[i];
            stage.calls.add(1);
            let live =
                flight.chunk.rows.verdicts().iter().filter(|&&v| Verdict(v).is_next()).count();
            stage.packets.add(live as u64);
        }
        let mut cx = Context {
            pool: &mut self.pool,
            tables: &**pin,
            version: V::number(pin),
            now_ns: flight.chunk.time_ns,
            worker: self.index,
            packet_time: self.packet_time,
            dropped: &mut self.dropped,
            released: &mut self.released,
        };
        step(&mut *self.stages[i], &mut flight.chunk, &mut cx);
        self.counters.stages[i].busy_ns.add(begin.elapsed().as_nanos() as u64);
        self.settle();
    }

    /// What stages have dropped or released.
    fn settle(&mut self) {
        if !self.dropped.is_empty() {
            let mut dropped = std::mem::take(&mut self.dropped);
            for (packet, reason) in dropped.drain(..) {
                self.drop_packet(packet, reason);
            }
            self.dropped = dropped;
        }
        if !self.released.is_empty() {
            let mut released = std::mem::take(&mut self.released);
            for (packet, verdict) in released.drain(..) {
                self.dispose(packet, verdict);
            }
            self.released = released;
        }
    }

    /// Ticks the stages when the tables changed or time has passed.
    fn housekeep(&mut self, now: Instant) -> usize {
        let due = now.duration_since(self.last_tick) >= TICK;
        let timed =
            due || self.stages.iter().any(|s| s.next_tick_ns().is_some_and(|t| t <= self.now_ns));
        let pin = self.versions.pin();
        let number = V::number(&pin);
        if !timed && number == self.last_version {
            return 0;
        }
        self.last_tick = now;
        self.last_version = number;
        let mut held = 0;
        for i in 0..self.stages.len() {
            let mut cx = Context {
                pool: &mut self.pool,
                tables: &*pin,
                version: number,
                now_ns: self.now_ns,
                worker: self.index,
                packet_time: self.packet_time,
                dropped: &mut self.dropped,
                released: &mut self.released,
            };
            self.stages[i].tick(&mut cx);
            held += self.stages[i].held();
        }
        drop(pin);
        self.counters.held.set(held as u64);
        self.counters.in_flight.set(self.order.len() as u64);
        if self.master.is_some() {
            let auto = &self.balance.auto;
            self.counters.on_device.set(u64::from(self.balance.is_on_device()));
            self.counters.fill_percent.set((auto.fill() * 100.0) as u64);
            self.counters.cpu_row_ns.set(auto.cpu_row_ns().unwrap_or(0.0) as u64);
        }
        if due {
            for slot in &mut self.rx {
                slot.counters.set(slot.queue.stats());
                if let Some(error) = slot.queue.take_error() {
                    (self.on_error)(slot.port, &error);
                }
            }
        }
        let work = self.dropped.len() + self.released.len();
        self.settle();
        work
    }

    /// Blocks until a queue, a ring, a master or a timer calls.
    fn block(&mut self) {
        self.bell.about_to_sleep();
        let quiet = self.rx.iter_mut().all(|slot| slot.queue.arm())
            && self.rings_in.iter().all(rtrb::Consumer::is_empty)
            && self.returns.is_empty();
        if quiet && !self.stop.load(Ordering::Acquire) {
            self.counters.sleeps.add(1);
            let mut fds = ArrayVec::<_, POLLED_MAX>::new();
            fds.push(self.bell.fd());
            let mut polled = true;
            for slot in &self.rx {
                match slot.queue.fd() {
                    Some(fd) => polled &= fds.try_push(fd).is_ok(),
                    None => polled &= slot.queue.is_finished(),
                }
            }
            let held = self.stages.iter().any(|s| s.held() > 0);
            let wait = match (polled && self.order.len() == 0, held) {
                (false, _) => Duration::from_micros(50), // a queue that cannot call
                (true, true) => TICK,
                (true, false) => Duration::from_millis(100),
            };
            poll_fds(&fds, Some(wait));
        }
        self.bell.awake();
    }

    fn capture_stage(&mut self, stage: usize, flight: &mut Flight<V>) {
        let chunk = &mut flight.chunk;
        for row in 0..chunk.packets.len() {
            if Verdict(chunk.rows.verdicts()[row]).is_next() {
                let packet = &chunk.packets[row];
                let point = CapturePoint::Stage(stage);
                self.hooks.offer(point, packet, self.now_ns, packet.port, false, None);
            }
        }
    }

    fn trace_stage(&mut self, i: usize, flight: &mut Flight<V>) {
        let Some(pin) = &flight.pin else { return };
        for t in &mut flight.traced {
            let verdict = Verdict(flight.chunk.rows.verdicts()[t.row]);
            let told = self.stages[i].describe(&mut flight.chunk, t.row, pin);
            t.lines.push(format!(
                "{}: {told}{}{verdict}",
                self.stages[i].name(),
                if told.is_empty() { "" } else { " → " }
            ));
        }
    }

    /// Lets the stages part with what they hold, and gives the cells in queues back: the region
    /// outlives the engine.
    pub(crate) fn recycle(mut self) {
        let pin = self.versions.pin();
        for stage in &mut self.stages {
            let mut cx = Context {
                pool: &mut self.pool,
                tables: &*pin,
                version: V::number(&pin),
                now_ns: self.now_ns,
                worker: self.index,
                packet_time: self.packet_time,
                dropped: &mut self.dropped,
                released: &mut self.released,
            };
            stage.drain(&mut cx);
        }
        drop(pin);
        self.settle();
        for slot in &mut self.rx {
            slot.queue.release(&mut self.pool);
        }
        for side in self.tx.iter_mut().chain(&mut self.host) {
            for packet in side.waiting.drain(..) {
                packet.free(&mut self.pool);
            }
        }
        for ring in &mut self.rings_in {
            while let Ok(
                Passed::Received(packet) | Passed::Transmit(packet, _) | Passed::Host(packet, _),
            ) = ring.pop()
            {
                packet.free(&mut self.pool);
            }
        }
    }
}

fn begin_trace<V: Versions>(hooks: &Hooks, flight: &mut Flight<V>) {
    for (row, packet) in flight.chunk.packets.iter().enumerate() {
        if let Some(trace) = hooks.wants_trace(packet.data()) {
            let line = format!("rx: port {}, {} bytes", packet.port, packet.frame_len());
            flight.traced.push(Traced { row, trace, lines: vec![line] });
        }
    }
}

fn end_trace<V: Versions>(flight: &mut Flight<V>) {
    for mut traced in flight.traced.drain(..) {
        let made = flight.chunk.emitted.iter().filter(|e| usize::from(e.cause) == traced.row);
        for e in made {
            traced.lines.push(format!("emitted {} bytes: {}", e.packet.frame_len(), e.verdict));
        }
        let verdict = Verdict(flight.chunk.rows.verdicts()[traced.row]);
        traced.lines.push(format!("end: {verdict}"));
        // A reader that is gone or slow loses the report; packets are not held up.
        let _ = traced.trace.sender.try_send(traced.lines);
    }
}

/// The shaders of each segment, in order of the stages.
pub(crate) fn segment_shaders<T>(
    stages: &[Box<dyn Stage<T>>],
    segments: &[Segment],
) -> Vec<Shaders<T>> {
    let of = |s: &Segment| stages[s.first..s.end].iter().filter_map(|stage| stage.shader());
    segments.iter().map(|s| of(s).collect()).collect()
}

/// Waits until a descriptor is readable, or `wait` has passed.
pub(crate) fn poll_fds(fds: &[BorrowedFd<'_>], wait: Option<Duration>) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut polled: ArrayVec<_, POLLED_MAX> =
        fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    let wait =
        wait.map(|w| Timespec { tv_sec: w.as_secs() as i64, tv_nsec: w.subsec_nanos().into() });
    // An interrupted or failed poll is an early wake-up: the caller looks for work again anyway.
    let _ = poll(&mut polled, wait.as_ref());
}

fn wall_clock_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64)
}
