//! A worker: one thread, pinned to one core, that owns queues and carries chunks through the
//! pipeline (PacketShader §5.1; chunk pipelining §5.4).
//!
//! ```text
//!  turn:  receive one chunk, or one for each pipeline: rings from other workers, then queues, each turn from the
//!         next one on
//!         take back what masters have shaded
//!         advance, oldest first: pre-shade ─▶ shade here, or hand over to a master
//!                                post-shade ─▶ next segment … ─▶ retire: transmit, host, drop
//!         housekeeping; flush queues
//!  idle:  arm the wake-ups, look once more, block
//! ```
//!
//! A turn takes the packets of a chunk at most and ends by sending, so an overloaded worker forwards at its limit and never
//! livelocks (PacketShader §5.2); an idle one blocks. Nothing in a turn waits: a chunk that cannot go on stays where
//! it is until a later turn.

/// What a stage may use, borrowed from the worker's parts: a method would borrow the whole worker.
macro_rules! context {
    ($worker:ident, $own:expr, $tables:expr, $version:expr, $now_ns:expr, $passes:expr) => {
        crate::stage::Context {
            pool: &mut $worker.queues.pool,
            tables: $tables,
            version: $version,
            now_ns: $now_ns,
            worker: $worker.links.index,
            home: crate::balance::Side::Cpu,
            packet_time: $worker.settings.packet_time,
            dropped: &mut $worker.dropped,
            released: &mut $worker.released,
            handed: Some(&mut $worker.handed),
            settled: Some(&mut $worker.settled),
            divided: None,
            waiting: None,
            before: None,
            others: Some(crate::stage::Others {
                peers: &$worker.path.pipelines[$own].peers,
                heirs: &$worker.links.heirs,
            }),
            places: &$worker.path.pipelines[$own].places,
            passes: $passes,
            row: None,
            outer_row: None,
        }
    };
}

#[cfg(debug_assertions)]
mod declared;
mod divide;
mod in_order;
mod look;
mod overtake;
mod panics;
mod parting;
mod parts;
mod receive;
mod send;
mod shade;
mod sweep;

pub(crate) use divide::Rest;
pub use panics::panic_text;
pub use panics::{PanicSink, StagePanic};
pub use parts::{DropSink, DumpSink, Entry, ErrorSink, HostGate, RxSlot, SpreadHash, TxSlot};
pub(crate) use parts::{
    Links, OwnPipeline, Parts, Path, Queues, Reports, Settings, Signals, TxSide,
};

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arrayvec::ArrayVec;
use chunk::{Arena, CHUNK_PACKETS_MAX, Chunk, DropReason, Packet, Verdict, reasons};

use crate::balance::Balance;
use crate::in_flight::{InFlight, InOrder, Shaders};
use crate::ring::{Again, Passed};
use crate::segment::Segment;
use crate::stage::{HandOver, Phases, Spread, Stage, Versions};
use shade::Home;

/// Set in [`Packet::mark`] of packets that come from a twin: the host sends them.
pub const MARK_FROM_HOST: u32 = 1 << 31;

/// Set in [`Packet::mark`] of packets whose checksums are not to be verified: their port says so.
pub const MARK_CHECKSUMS_IGNORED: u32 = 1 << 29;

/// How often `tick` is called at least, while a worker is awake.
const TICK: Duration = Duration::from_millis(10);

/// How long a worker sleeps at least before it looks again for what cannot call.
const STEP: Duration = Duration::from_micros(50);

/// Empty turns before a worker blocks: a burst is often followed by the next one.
const SPINS: u32 = 64;

/// Packets that wait at a worker to enter the pipeline at a place.
pub(crate) const AGAIN_PACKETS: usize = 4096;

/// How often a packet may enter the pipeline at a place.
pub(crate) const PASSES_MAX: u8 = 8;

/// Packets that a ring from one worker to another holds.
pub(crate) const RING_PACKETS: usize = 1024;

/// Descriptors that a worker can block on; queues beyond are looked at every 50 µs.
const POLLED_MAX: usize = 128;

/// In a list by numbers among those of all pipelines: another worker's.
const ABSENT: u16 = u16::MAX;

/// What belongs to a worker of stages, segments and pipelines, which have numbers among those of the engine.
struct Owned {
    /// By number of a stage: its place among the worker's.
    stages: Box<[u16]>,
    /// By place: the stage's number, and its pipeline's place.
    numbers: Box<[(usize, usize)]>,
    /// By number of a segment: the place of its pipeline.
    segments: Box<[u16]>,
    /// By number of a pipeline: its place.
    pipelines: Box<[u16]>,
}

impl Owned {
    fn of(pipelines: &[OwnPipeline], segments: usize) -> Self {
        let stages = pipelines.iter().map(|own| own.stages.end).max().unwrap_or(0);
        let numbers = pipelines.iter().map(|own| usize::from(own.number) + 1).max().unwrap_or(0);
        let mut owned = Self {
            stages: vec![ABSENT; stages].into(),
            numbers: Box::default(),
            segments: vec![ABSENT; segments].into(),
            pipelines: vec![ABSENT; numbers].into(),
        };
        let mut all = Vec::new();
        for (at, own) in pipelines.iter().enumerate() {
            owned.pipelines[usize::from(own.number)] = at as u16;
            owned.segments[own.segments.clone()].fill(at as u16);
            for stage in own.stages.clone() {
                owned.stages[stage] = all.len() as u16;
                all.push((stage, at));
            }
        }
        owned.numbers = all.into();
        owned
    }

    /// The place of the pipeline that a segment is of; `None` if that is another worker's.
    fn of_segment(&self, segment: usize) -> Option<usize> {
        self.segments.get(segment).filter(|at| **at != ABSENT).map(|at| usize::from(*at))
    }
}

/// Everything of one worker: what it was given, as it was given, and what it works with.
pub(crate) struct Worker<V: Versions> {
    path: Path<V>,
    queues: Queues,
    links: Links<V>,
    signals: Signals,
    reports: Reports,
    settings: Settings,
    /// Which numbers of its path are whose.
    owned: Owned,
    /// By stage: the steps that it has, and the contexts of the rows that it sees.
    steps: Vec<Phases>,
    contexts: Vec<u32>,
    /// By pipeline: the stages that see chunks retire, by their numbers.
    see_retired: Vec<Box<[usize]>>,
    /// The row at which the stage at work divides its chunk.
    divided: Option<u16>,
    /// Rows before that one which wait, too.
    waiting: Vec<u16>,
    /// All rows that a chunk leaves behind.
    left: Vec<u16>,
    /// By stage that divides chunks: which packets must meet for the others of its pipeline, if nothing but [`Stage::spread`] says that.
    overtakes: Box<[Option<Spread>]>,
    /// Packets that it puts before that row.
    before: Vec<Packet>,
    /// How large chunks are.
    room: divide::Room,
    /// Which columns they may write.
    #[cfg(debug_assertions)]
    declared: declared::Declared,
    shaders: Vec<Shaders<V::Tables>>,
    /// By segment: a shade of it has no CPU form.
    needs_device: Vec<bool>,
    /// By segment.
    balances: Vec<Balance>,
    /// The merger has no room: more packets may come once it has.
    is_held_up: bool,
    /// Packets of the chunks begun in this turn, and how full the fullest of them and of the queues' bursts
    /// was, 0 to 1.
    begun: (usize, f64),
    /// When the chunk in the inbox must leave at the latest.
    leaves: Option<Instant>,
    /// When its packets were received, and how many each time, where that is measured; and how many in all.
    arrivals: Vec<(Instant, u32)>,
    noted: usize,
    /// What a chunk takes from leaving the inbox to its retirement, a mean.
    service: Duration,
    /// Packets that retired in this turn: when they were received.
    retired: Vec<(Instant, u32)>,
    /// By segment: chunks that are away, and where its shard of state is at home.
    homes: Vec<Home>,
    free: Vec<Box<InFlight<V>>>,
    /// By stage: a sweep of it is under way; and how much work was begun before the last turn that began one.
    sweeping: Vec<bool>,
    swept_at: u64,
    /// The queue that the next turn begins with.
    next_rx: usize,
    /// The end of the last step that was timed.
    timed: Instant,
    order: InOrder<V>,
    next_seq: u64,
    inbox: Vec<Packet>,
    /// Of a worker with several pipelines, by packet of the inbox: the place of its pipeline.
    entries: Vec<u16>,
    /// What stays of the inbox, and its entries.
    passed: Vec<Packet>,
    passed_entries: Vec<u16>,
    /// By pipeline: a chunk that is being filled.
    filling: Vec<Option<Box<InFlight<V>>>>,
    dropped: Vec<(Packet, DropReason)>,
    released: Vec<(Packet, Verdict)>,
    handed: Vec<HandOver>,
    /// Rows that the stage at work says its shade has settled, and rows settled before it that it has worked on.
    settled: [u32; 2],
    /// By segment: packets that enter there; and how many these are.
    again: Vec<VecDeque<Again>>,
    again_count: usize,
    /// The ring that the next turn begins with.
    next_ring: usize,
    /// How often the packet that retires now went through again.
    passes_now: u8,
    /// Its stages panicked too often: it runs none of them any more.
    gave_up: bool,
    /// The worker that it gave its receive queues to.
    gave_to: Option<usize>,
    /// And they have parted with what they held.
    is_drained: bool,
    last_version: u64,
    last_tick: Instant,
    now_ns: u64,
    /// Since it was made, by a clock that only goes on.
    clock_ns: u64,
    started: Instant,
    to_wake: Vec<bool>,
    /// By worker: what found its ring full and waits, where nothing may be lost.
    ring_waiting: Vec<VecDeque<Passed>>,
}

impl<V: Versions> Worker<V> {
    pub(crate) fn new(parts: Parts<V>) -> Self {
        let Parts { path, queues, links, signals, reports, settings, chunks, layout, balance } =
            parts;
        let arena = Arena::new(layout.with_capacity(chunks * CHUNK_PACKETS_MAX));
        let mut free: Vec<Box<InFlight<V>>> = (0..chunks)
            .filter_map(|_| arena.reserve(CHUNK_PACKETS_MAX))
            .map(|rows| Box::new(InFlight::new(Chunk::new(rows, links.index))))
            .collect();
        if path.stages.iter().any(|stage| stage.divides()) {
            let arena = Arena::new(layout.with_capacity(chunks * CHUNK_PACKETS_MAX));
            free.iter_mut().for_each(|flight| flight.rest.prepare(&arena));
        }
        let stages: Vec<_> = path.stages.iter().map(|stage| &**stage).collect();
        let segments = path.segments.len();
        let peers = links.rings_out.len();
        let owned = Owned::of(&path.pipelines, segments);
        let shaders = segment_shaders(&stages, &path.pipelines, &path.segments);
        let needs_device = |own: &Shaders<V::Tables>| own.iter().any(|(_, own)| own.needs_device());
        Self {
            needs_device: shaders.iter().map(needs_device).collect(),
            steps: stages.iter().map(|stage| stage.phases()).collect(),
            contexts: stages.iter().map(|stage| stage.contexts()).collect(),
            see_retired: divide::see_retired(&stages, &path.pipelines, &owned),
            #[cfg(debug_assertions)]
            declared: declared::Declared::new(&path.stages, &layout),
            shaders,
            balances: vec![balance; segments],
            is_held_up: false,
            begun: (0, 0.0),
            leaves: None,
            arrivals: Vec::with_capacity(CHUNK_PACKETS_MAX),
            noted: 0,
            service: Duration::ZERO,
            retired: Vec::with_capacity(4 * chunks),
            homes: (0..segments).map(|_| Home::default()).collect(),
            free,
            sweeping: vec![false; stages.len()],
            swept_at: 0,
            next_rx: 0,
            timed: Instant::now(),
            order: InOrder::new(chunks, &path.pipelines),
            next_seq: 0,
            inbox: Vec::with_capacity(CHUNK_PACKETS_MAX),
            entries: Vec::with_capacity(CHUNK_PACKETS_MAX),
            passed: Vec::with_capacity(CHUNK_PACKETS_MAX),
            passed_entries: Vec::with_capacity(CHUNK_PACKETS_MAX),
            filling: path.pipelines.iter().map(|_| None).collect(),
            dropped: Vec::with_capacity(CHUNK_PACKETS_MAX),
            released: Vec::with_capacity(CHUNK_PACKETS_MAX),
            handed: Vec::with_capacity(CHUNK_PACKETS_MAX),
            settled: [0; 2],
            again: (0..segments).map(|_| VecDeque::new()).collect(),
            again_count: 0,
            next_ring: 0,
            passes_now: 0,
            gave_up: false,
            gave_to: None,
            is_drained: false,
            last_version: u64::MAX,
            last_tick: Instant::now(),
            now_ns: 0,
            clock_ns: 0,
            started: Instant::now(),
            to_wake: vec![false; peers],
            ring_waiting: (0..peers).map(|_| VecDeque::new()).collect(),
            divided: None,
            waiting: Vec::with_capacity(CHUNK_PACKETS_MAX),
            left: Vec::with_capacity(CHUNK_PACKETS_MAX),
            overtakes: overtake::stages(&stages, &path.pipelines, &owned),
            before: Vec::with_capacity(CHUNK_PACKETS_MAX),
            room: divide::Room::new(settings.chunk_packets),
            owned,
            path,
            queues,
            links,
            signals,
            reports,
            settings,
        }
    }

    /// Works until told to stop, then drains: no packet that was received is left undone.
    pub(crate) fn run(mut self) -> Self {
        let mut empty_turns = 0;
        loop {
            let begin = Instant::now();
            self.clock_ns = begin.duration_since(self.started).as_nanos() as u64;
            if !self.settings.packet_time {
                self.now_ns = wall_clock_ns();
            }
            let stopping = self.signals.stop.load(Ordering::Relaxed);
            let mut work = self.receive(stopping);
            self.weigh();
            work += self.begin_sweeps(stopping);
            work += self.take_back();
            work += self.advance();
            work += self.housekeep(begin);
            self.flush();
            if work > 0 {
                self.links.quiet.leave();
                empty_turns = 0;
                self.reports.counters.busy_turns.add(1);
                self.reports.counters.busy_ns.add(begin.elapsed().as_nanos() as u64);
                continue;
            }
            self.reports.counters.idle_turns.add(1);
            empty_turns += 1;
            if self.is_done(stopping) {
                return self;
            }
            if self.links.quiet.is_quiet() {
                std::thread::yield_now(); // the others are about to be
            } else if empty_turns > SPINS && !self.holds_packets() {
                self.block();
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// Whether there is nothing left to do, here and at every other worker: told to stop, or
    /// every source finished.
    ///
    /// It is quiet only while the rings to it and from it are empty; see [`crate::quiet`].
    fn is_done(&mut self, stopping: bool) -> bool {
        let sources_done =
            stopping || (self.settings.until_finished && self.rx_finished() && !self.is_held_up);
        let rings_empty =
            self.links.rings_in.iter().all(rtrb::Consumer::is_empty)
                && self.links.rings_out.iter().flatten().all(|(ring, _)| {
                    ring.slots() == ring.buffer().capacity() || ring.is_abandoned()
                });
        let quiet = sources_done
            && rings_empty
            && !self.is_giving()
            && !self.links.heirs.has_queues(self.links.index.into())
            && !self.holds_packets()
            && self.order.len() == 0
            && (self.tx_drained() || self.is_aborting());
        if !quiet {
            self.links.quiet.leave();
            return false;
        }
        self.links.quiet.enter()
    }

    /// Whether packets wait here for a chunk or for a ring, or queues for their heir: nobody calls when these are free.
    fn holds_packets(&self) -> bool {
        !self.inbox.is_empty()
            || self.is_to_give()
            || self.again_count > 0
            || self.ring_waiting.iter().any(|waiting| !waiting.is_empty())
    }

    fn rx_finished(&self) -> bool {
        self.queues.rx.iter().all(|slot| slot.queue.is_finished())
    }

    fn tx_drained(&self) -> bool {
        self.queues.tx.iter().chain(&self.queues.host).all(|side| {
            side.waiting.is_empty()
                && match &side.slot {
                    TxSlot::Own(queue, _) => queue.is_drained(),
                    _ => true,
                }
        })
    }

    /// Ticks the stages when the tables changed or time has passed.
    fn housekeep(&mut self, now: Instant) -> usize {
        let due = now.duration_since(self.last_tick) >= TICK;
        let tick = self.earliest(0..self.path.stages.len(), "next_tick_ns", |s| s.next_tick_ns());
        let timed = due || tick.is_some_and(|tick| tick <= self.now_ns);
        let pin = self.path.versions.pin();
        let number = V::number(&pin);
        if !timed && number == self.last_version {
            return 0;
        }
        // What a stage releases may go by a ring. Once all are quiet, it stays with the stage.
        if !self.links.quiet.leave() {
            return 0;
        }
        self.last_tick = now;
        self.last_version = number;
        let mut held = 0;
        for i in 0..if self.gave_up { 0 } else { self.path.stages.len() } {
            let stage = &mut self.path.stages[i];
            let (of_engine, own) = self.owned.numbers[i];
            let mut cx = context!(self, own, &*pin, number, self.now_ns, &[]);
            let mut step = "tick";
            let ticked = catch_unwind(AssertUnwindSafe(|| {
                stage.tick(&mut cx);
                step = "held";
                stage.held()
            }));
            match ticked {
                Ok(of_stage) => held += of_stage,
                Err(panic) => self.panicked(of_engine, step, &*panic, None, 0),
            }
        }
        drop(pin);
        // Stages that are given up hold what they held until they are drained.
        if !self.gave_up || self.is_drained {
            self.reports.counters.held.set(held as u64);
        }
        self.reports.counters.in_flight.set(self.order.len() as u64);
        if self.links.master.is_some() {
            let shared = || self.shared_segments().map(|segment| &self.balances[segment]);
            let cpu_row_ns = shared().filter_map(|balance| balance.auto.cpu_row_ns()).sum::<f64>();
            let fill = shared().next().map_or(0.0, |balance| balance.auto.fill());
            self.reports.counters.on_device.set(u64::from(shared().any(Balance::is_on_device)));
            self.reports.counters.fill_percent.set((fill * 100.0) as u64);
            self.reports.counters.cpu_row_ns.set(cpu_row_ns as u64);
        }
        if due {
            for slot in &mut self.queues.rx {
                slot.counters.set(slot.queue.stats());
                if let Some(error) = slot.queue.take_error() {
                    (self.reports.on_error)(slot.port, &error);
                }
            }
        }
        let work = self.dropped.len() + self.released.len() + self.handed.len();
        self.settle();
        work
    }

    /// Blocks until a queue, a ring, a master or a timer calls.
    fn block(&mut self) {
        let holds = |stage: &dyn Stage<V::Tables>| (stage.held() > 0).then_some(0);
        let holds = self.earliest(0..self.path.stages.len(), "held", holds).is_some();
        let until_sweep = self.until_sweep();
        let until_tick = self.until_tick();
        self.links.wakeup.about_to_sleep();
        let quiet = self.queues.rx.iter_mut().all(|slot| slot.queue.arm())
            && self.links.rings_in.iter().all(rtrb::Consumer::is_empty)
            && self.links.returns.is_empty()
            && !self.links.heirs.has_queues(self.links.index.into());
        if quiet && !self.signals.stop.load(Ordering::Acquire) {
            self.reports.counters.sleeps.add(1);
            let mut fds = ArrayVec::<_, POLLED_MAX>::new();
            fds.push(self.links.wakeup.fd());
            let mut polled = true;
            for slot in &self.queues.rx {
                match slot.queue.fd() {
                    Some(fd) => polled &= fds.try_push(fd).is_ok(),
                    None => polled &= slot.queue.is_finished(),
                }
            }
            let wait = match (polled && self.order.len() == 0, holds) {
                (false, _) => STEP, // a queue that cannot call
                (true, true) => TICK,
                (true, false) => Duration::from_millis(100),
            };
            let wait = [until_sweep, until_tick].into_iter().flatten().fold(wait, Duration::min);
            poll_fds(&fds, Some(wait));
        }
        self.links.wakeup.awake();
    }

    /// How long it is until the tick of a stage has something to do. Over captures time goes on with packets.
    fn until_tick(&mut self) -> Option<Duration> {
        if self.settings.packet_time {
            return None;
        }
        let next =
            self.earliest(0..self.path.stages.len(), "next_tick_ns", |stage| stage.next_tick_ns());
        // One that has just had its tick and wants the next one at once goes on step by step.
        next.map(|next| Duration::from_nanos(next.saturating_sub(wall_clock_ns())).max(STEP))
    }

    /// Lets the stages part with what they hold, and gives the cells in queues back: the region
    /// outlives the engine.
    pub(crate) fn recycle(mut self) {
        if !self.is_drained {
            self.drain_stages();
        }
        for again in self.again.iter_mut().flat_map(|waiting| waiting.drain(..)) {
            again.packet.free(&mut self.queues.pool);
        }
        self.hand_in();
        for slot in &mut self.queues.rx {
            slot.queue.release(&mut self.queues.pool);
        }
        for side in self.queues.tx.iter_mut().chain(&mut self.queues.host) {
            for packet in side.waiting.drain(..) {
                packet.free(&mut self.queues.pool);
            }
        }
        for ring in &mut self.links.rings_in {
            while let Ok(passed) = ring.pop() {
                passed.into_packet().free(&mut self.queues.pool);
            }
        }
    }
}

impl<V: Versions> Drop for Worker<V> {
    /// A worker that dies of a panic outside of its stages leaves its work to another one. It counts as quiet from then
    /// on.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.links.heirs.give_up(self.links.index.into(), &self.links.heirs_of);
            self.signals.died.store(true, Ordering::Release);
            self.lose_packets();
            if let Some(lane) = &mut self.links.lane {
                lane.die();
            }
            if let Some(master) = &self.links.master {
                master.worker_is_gone(self.links.index.into());
            }
        }
    }
}

impl<V: Versions> Worker<V> {
    /// Counts the packets that go with a thread that dies, as far as they are known.
    #[cold]
    fn lose_packets(&mut self) {
        let mut lost: Vec<Packet> = self.inbox.drain(..).collect();
        for flight in self.order.here() {
            lost.append(&mut flight.chunk.packets);
            flight.rest.lose(&mut lost);
            self.reports.counters.emitted.add(flight.chunk.emitted.len() as u64);
            lost.extend(flight.chunk.emitted.drain(..).map(|emitted| emitted.packet));
        }
        let again = self.again.iter_mut().flat_map(|waiting| waiting.drain(..));
        lost.extend(again.map(|again| again.packet));
        let passed = self.ring_waiting.iter_mut().flat_map(|waiting| waiting.drain(..));
        lost.extend(passed.map(Passed::into_packet));
        let sides = self.queues.tx.iter_mut().chain(&mut self.queues.host);
        lost.extend(sides.flat_map(|side| side.waiting.drain(..)));
        for packet in lost.into_iter().filter(|packet| !packet.is_empty()) {
            self.reports.counters.count_drop(reasons::STAGE_PANIC);
            packet.free(&mut self.queues.pool);
        }
    }
}

/// The shaders of each segment in order of the stages; none for segments of other workers. `stages` are those of
/// `pipelines`, one behind the other.
pub(crate) fn segment_shaders<T>(
    stages: &[&dyn Stage<T>],
    pipelines: &[OwnPipeline],
    segments: &[Segment],
) -> Vec<Shaders<T>> {
    let mut all: Vec<Shaders<T>> = segments.iter().map(|_| Shaders::from([])).collect();
    let mut before = 0;
    for own in pipelines {
        let of_own = &stages[before..before + own.stages.len()];
        before += own.stages.len();
        for number in own.segments.clone() {
            let Segment { first, end, .. } = segments[number];
            let stages =
                of_own[first - own.stages.start..end - own.stages.start].iter().enumerate();
            all[number] = stages.filter_map(|(i, stage)| Some((i, stage.shader()?))).collect();
        }
    }
    all
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
