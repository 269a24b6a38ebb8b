//! The mirror's thread: listens, dumps, audits, reports.
//!
//! ```text
//! rtnetlink groups ─→ Listener ─→ Model ─→ Vec<Event> ─→ sink
//!                        │ ENOBUFS   ↑
//!                        └─→ full dump (Client)   also: at start, after a link went up or
//!                                                 down, and every `audit_every`
//! ```
//!
//! A single change is reported at once; frequent changes are collected for
//! `collect_for`, so that the consumer gets large batches and a route that changes twice is reported
//! once. If the consumer is slow, the kernel's receive buffer fills; if that overruns, a full
//! dump reveals the differences. Nothing is lost either way, only intermediate states.
//!
//! A dump runs beside the notifications. What they touch while it runs is newer than the dump's
//! word and is left alone; the rest is compared.
//!
//! Some changes are silent: when an interface goes down or loses its last address, IPv4 routes
//! and next-hop objects vanish without a message. The model drops what it can know to be gone,
//! and a dump shortly afterwards settles the rest.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, Sender, TrySendError},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use netlink_packet_route::{
    AddressFamily,
    address::AddressMessage,
    link::LinkMessage,
    neighbour::NeighbourMessage,
    route::{RouteAttribute, RouteMessage},
};
use rustix::event::{EventfdFlags, eventfd};

use super::{
    event::Event,
    model::{Mended, Model},
    twin::Advertisements,
};
use crate::netlink::{
    Client, Error, Listener, Received, emit, group, nexthop::NextHopMessage, rtm,
};

const GROUPS: [u32; 7] = [
    group::LINK,
    group::NEIGH,
    group::IPV4_IFADDR,
    group::IPV6_IFADDR,
    group::IPV4_ROUTE,
    group::IPV6_ROUTE,
    group::NEXTHOP,
];
/// Datagrams taken before the thread looks at its other duties.
const TAKE_MAX: usize = 16_384;
/// Settling time before the dump that follows a silent change.
const SETTLE: Duration = Duration::from_millis(50);
/// Dumps that the kernel calls torn are tried again this often.
const DUMP_TRIES: usize = 3;
const ENOENT: i32 = 2;
const EOPNOTSUPP: i32 = 95;

/// How to mirror.
#[derive(Debug, Clone)]
pub struct Options {
    /// Interfaces (by index) whose addresses, neighbours and routes matter: the twins.
    pub watch: Vec<u32>,
    /// Those among them whose Router Advertisements give routes, as [`twin::behave_as_router`](super::twin::behave_as_router)
    /// has the kernel accept them.
    pub advertised: Vec<u32>,
    /// The routing table; 254 is `main`.
    pub table: u32,
    /// Routes that are reported at most.
    pub routes_max: usize,
    /// Time between full comparisons. A comparison that takes long is made more seldom, so that
    /// it takes at most 2 % of a core.
    pub audit_every: Duration,
    /// Receive buffer for notifications, bytes. A route's notification takes about 1 KB of it.
    pub receive_buffer_bytes: usize,
    /// How long to collect while changes pour in.
    pub collect_for: Duration,
    /// Most events in one batch.
    pub batch_events_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            watch: Vec::new(),
            advertised: Vec::new(),
            table: 254,
            routes_max: usize::MAX,
            audit_every: Duration::from_secs(60),
            receive_buffer_bytes: 32 << 20,
            collect_for: Duration::from_millis(5),
            batch_events_max: 65_536,
        }
    }
}

/// What the mirror has done so far.
#[derive(Debug, Clone, Default)]
pub struct Stats {
    /// Messages read, dumps included.
    pub messages: u64,
    /// Events reported.
    pub events: u64,
    /// Batches reported.
    pub batches: u64,
    /// Times the kernel dropped notifications.
    pub overruns: u64,
    /// Full dumps, for whatever reason.
    pub dumps: u64,
    /// How long the last dump and comparison took.
    pub dump_ms_last: u64,
    /// Periodic comparisons.
    pub audits: u64,
    /// Entries that an audit found wrong and set right. Should stay 0.
    pub audit_mended: u64,
    /// The first few of the last of them, in words, for a log.
    pub audit_mended_last: Vec<String>,
    /// Neighbours that an audit found changed.
    pub audit_mended_neighbours: u64,
    /// Messages that could not be decoded.
    pub undecoded: u64,
    /// Routes that depend on TOS or source and are not followed.
    pub unsupported_routes: u64,
    /// Legs left out of reported routes because their interface is not watched.
    pub foreign_legs: u64,
    /// Prefixes that the kernel's table holds.
    pub prefixes_kernel: usize,
    /// Prefixes reported to the consumer.
    pub prefixes_reported: usize,
    /// Prefixes that are not reported, for there is no room.
    pub prefixes_held_back: usize,
    /// Receive buffer granted, in the kernel's count.
    pub receive_buffer_bytes: usize,
    /// Failures to talk to the kernel; each is tried again.
    pub errors: u64,
    /// The last of them.
    pub last_error: Option<String>,
}

enum Command {
    Watch(u32, Advertisements),
    Unwatch(u32),
    Repeat,
    Audit(Sender<Result<u64, String>>),
}

/// A running mirror. Dropping it stops it.
#[derive(Debug)]
pub struct Mirror {
    commands: Sender<Command>,
    wake: Arc<OwnedFd>,
    stop: Arc<AtomicBool>,
    stats: Arc<Mutex<Stats>>,
    thread: Option<JoinHandle<()>>,
}

impl Mirror {
    /// Starts mirroring the calling thread's network namespace. `sink` gets each batch on the
    /// mirror's thread, in order; it returns `false` to end the mirror. After the first full
    /// picture comes [`Event::Synced`].
    ///
    /// # Errors
    ///
    /// If the sockets cannot be opened. Later failures are counted in [`Stats`] and tried again.
    pub fn start(
        options: Options,
        sink: impl FnMut(Vec<Event>) -> bool + Send + 'static,
    ) -> Result<Mirror, Error> {
        let stop = Arc::new(AtomicBool::new(false));
        Self::start_stoppable(options, stop, sink)
    }

    /// Starts a mirror whose batches wait in a channel of `depth` batches.
    pub fn channel(
        options: Options,
        depth: usize,
    ) -> Result<(Mirror, Receiver<Vec<Event>>), Error> {
        let (sender, receiver) = mpsc::sync_channel(depth);
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = stop.clone();
        let sink = move |mut batch: Vec<Event>| {
            loop {
                match sender.try_send(batch) {
                    Ok(()) => return true,
                    Err(TrySendError::Disconnected(_)) => return false,
                    Err(TrySendError::Full(back)) => batch = back,
                }
                if stopping.load(Ordering::Relaxed) {
                    return false;
                }
                std::thread::sleep(Duration::from_micros(200));
            }
        };
        Ok((Self::start_stoppable(options, stop, sink)?, receiver))
    }

    fn start_stoppable(
        options: Options,
        stop: Arc<AtomicBool>,
        sink: impl FnMut(Vec<Event>) -> bool + Send + 'static,
    ) -> Result<Mirror, Error> {
        let failed = |error: std::io::Error| Error::socket("starting the kernel mirror", error);
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| failed(error.into()))?;
        let wake = Arc::new(wake);
        let (commands, inbox) = mpsc::channel();
        let stats = Arc::new(Mutex::new(Stats::default()));
        // Opened here: a socket belongs to the namespace of the thread that opens it.
        let mut model = Model::new(options.table, options.watch.iter().copied());
        model.limit_routes(options.routes_max);
        options.advertised.iter().for_each(|ifindex| model.advertise(*ifindex, true));
        let mut worker = Worker {
            listener: Listener::route(&GROUPS, options.receive_buffer_bytes)?,
            client: Client::route()?,
            model,
            sink: Box::new(sink),
            inbox,
            wake: wake.clone(),
            stop: stop.clone(),
            shared_stats: stats.clone(),
            stats: Stats::default(),
            last_report: None,
            dump_at: Some((Instant::now(), Why::Start)),
            audit_at: Instant::now() + options.audit_every,
            last_dump: None,
            waiting: Vec::new(),
            options,
        };
        worker.stats.receive_buffer_bytes = worker.listener.buffer_bytes();
        let thread = std::thread::Builder::new()
            .name("kernel-mirror".into())
            .spawn(move || worker.run())
            .map_err(failed)?;
        Ok(Mirror { commands, wake, stop, stats, thread: Some(thread) })
    }

    /// Begins to mirror what concerns this interface.
    pub fn watch(&self, ifindex: u32, advertisements: Advertisements) {
        self.command(Command::Watch(ifindex, advertisements));
    }

    /// Stops watching it; everything reported about it, except the link itself, is reported as removed.
    pub fn unwatch(&self, ifindex: u32) {
        self.command(Command::Unwatch(ifindex));
    }

    /// Reports everything once more, for a consumer that has not heard of it; others get what they know.
    pub fn repeat(&self) {
        self.command(Command::Repeat);
    }

    /// Compares with a full dump now and waits for the result: how many entries were wrong.
    /// All resulting events have been reported when this returns.
    ///
    /// # Errors
    ///
    /// In words, if the kernel could not be asked or the mirror has ended.
    pub fn audit(&self) -> Result<u64, String> {
        let (answer, result) = mpsc::channel();
        self.command(Command::Audit(answer));
        result.recv().unwrap_or_else(|_| Err("the mirror has ended".into()))
    }

    /// What it has done so far.
    pub fn stats(&self) -> Stats {
        self.stats.lock().map(|stats| stats.clone()).unwrap_or_default()
    }

    fn command(&self, command: Command) {
        let _ = self.commands.send(command);
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Why to dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    Start,
    Overrun,
    /// The kernel changed more than it said.
    Silent,
    Audit,
}

struct Worker {
    listener: Listener,
    client: Client,
    model: Model,
    sink: Box<dyn FnMut(Vec<Event>) -> bool + Send>,
    inbox: Receiver<Command>,
    wake: Arc<OwnedFd>,
    stop: Arc<AtomicBool>,
    shared_stats: Arc<Mutex<Stats>>,
    stats: Stats,
    last_report: Option<Instant>,
    dump_at: Option<(Instant, Why)>,
    audit_at: Instant,
    /// End and length of the last dump.
    last_dump: Option<(Instant, Duration)>,
    waiting: Vec<Sender<Result<u64, String>>>,
    options: Options,
}

impl Worker {
    fn run(&mut self) {
        while !self.stop.load(Ordering::Relaxed) {
            if !self.obey() {
                break;
            }
            let more = self.listen();
            if !self.dump_if_due() || !self.report_if_due(more) {
                break;
            }
            self.publish_stats();
            if !more {
                self.rest();
            }
        }
    }

    /// Returns `false` when the sink has ended.
    fn obey(&mut self) -> bool {
        while let Ok(command) = self.inbox.try_recv() {
            match command {
                Command::Watch(ifindex, advertisements) => {
                    self.model.watch(ifindex, true);
                    if advertisements != Advertisements::Ignored {
                        self.model.advertise(ifindex, true);
                        // Those that have come were ignored.
                        self.dump_at.get_or_insert((Instant::now(), Why::Silent));
                    }
                }
                Command::Unwatch(ifindex) => {
                    self.model.watch(ifindex, false);
                    self.model.advertise(ifindex, false);
                }
                Command::Repeat => {
                    let events = self.model.repeat();
                    if !self.report(events) {
                        return false;
                    }
                }
                Command::Audit(answer) => {
                    self.waiting.push(answer);
                    self.audit_at = Instant::now();
                }
            }
        }
        true
    }

    /// Takes what is waiting. `true`: there may be more.
    fn listen(&mut self) -> bool {
        for _ in 0..TAKE_MAX {
            match self.listener.take() {
                Ok(Received::Messages(messages)) => {
                    for message in messages {
                        if self.model.apply(&message) {
                            let at = Instant::now() + SETTLE;
                            self.dump_at.get_or_insert((at, Why::Silent));
                        }
                    }
                }
                Ok(Received::Overrun) => {
                    self.stats.overruns += 1;
                    self.dump_at = Some((Instant::now(), Why::Overrun));
                    return false;
                }
                Ok(Received::Nothing) => return false,
                Err(error) => {
                    self.failed(&error);
                    return false;
                }
            }
        }
        true
    }

    fn failed(&mut self, error: &Error) {
        self.stats.errors += 1;
        self.stats.last_error = Some(error.to_string());
    }

    /// Returns `false` when the sink has ended.
    fn dump_if_due(&mut self) -> bool {
        let now = Instant::now();
        let why = match self.dump_at {
            Some((at, why)) if at <= now && self.rested(now, why) => why,
            _ if self.audit_at <= now => Why::Audit,
            _ => return true,
        };
        if self.dump_at.is_some_and(|(at, _)| at <= now) {
            self.dump_at = None;
        }
        match self.dump(why) {
            Ok(mended) => {
                if why == Why::Start {
                    let mut events = Vec::new();
                    self.model.flush(&mut events);
                    events.push(Event::Synced);
                    if !self.report(events) {
                        return false;
                    }
                }
                if why == Why::Audit && !self.report_now() {
                    return false;
                }
                self.publish_stats();
                if why == Why::Audit {
                    for answer in self.waiting.drain(..) {
                        let _ = answer.send(Ok(mended.entries));
                    }
                }
            }
            Err(error) => {
                self.failed(&error);
                self.model.abandon_dump();
                if why != Why::Audit {
                    self.dump_at = Some((Instant::now() + Duration::from_secs(1), why));
                }
                for answer in self.waiting.drain(..) {
                    let _ = answer.send(Err(error.to_string()));
                }
            }
        }
        if why == Why::Audit || self.audit_at <= now {
            let length = self.last_dump.map_or(Duration::ZERO, |(_, length)| length);
            self.audit_at = Instant::now() + self.options.audit_every.max(length * 50);
        }
        true
    }

    /// Silent changes in a row do not keep the thread dumping.
    fn rested(&self, now: Instant, why: Why) -> bool {
        why != Why::Silent || self.last_dump.is_none_or(|(end, length)| now >= end + length * 2)
    }

    fn dump(&mut self, why: Why) -> Result<Mended, Error> {
        let began = Instant::now();
        self.stats.dumps += 1;
        if why == Why::Overrun {
            self.discard()?;
        } else if why != Why::Start {
            self.drain()?;
        }
        let mut tries = 0;
        let mended = loop {
            tries += 1;
            self.model.begin_dump();
            let (fresh, torn) = self.dump_all()?;
            if torn && tries < DUMP_TRIES {
                self.drain()?;
                continue;
            }
            if matches!(why, Why::Overrun | Why::Start) {
                // What was known is not to be trusted: the dump first, then what came since.
                self.model.abandon_dump();
                let mended = self.model.adopt(fresh);
                if torn {
                    self.dump_at = Some((Instant::now() + Duration::from_millis(200), Why::Silent));
                }
                break mended;
            }
            self.drain()?;
            if torn {
                // Under constant change no dump is whole. Notifications carry on; look later.
                self.model.abandon_dump();
                if why == Why::Silent {
                    self.dump_at = Some((Instant::now() + Duration::from_millis(200), why));
                }
                break Mended::default();
            }
            break self.model.adopt(fresh);
        };
        if why == Why::Audit {
            self.stats.audits += 1;
            self.stats.audit_mended += mended.entries;
            self.stats.audit_mended_neighbours += mended.neighbours;
            if mended.entries > 0 {
                self.stats.audit_mended_last.clone_from(&mended.samples);
            }
        }
        let length = began.elapsed();
        self.stats.dump_ms_last = length.as_millis() as u64;
        self.last_dump = Some((Instant::now(), length));
        Ok(mended)
    }

    /// Applies all that is waiting now, with a bound in case it never ends.
    fn drain(&mut self) -> Result<(), Error> {
        for _ in 0..64 {
            if !self.listen() {
                break;
            }
        }
        Ok(())
    }

    /// After an overrun the kernel queues nothing until its buffer has been emptied; what is
    /// still in it is older than the dump to come.
    fn discard(&mut self) -> Result<(), Error> {
        loop {
            match self.listener.take()? {
                Received::Nothing => return Ok(()),
                Received::Overrun | Received::Messages(_) => {}
            }
        }
    }

    /// Everything the kernel holds, and whether it changed meanwhile.
    fn dump_all(&mut self) -> Result<(Model, bool), Error> {
        let mut fresh = self.model.fresh();
        let mut torn = false;
        let route_of = |family| {
            let mut message = RouteMessage::default();
            message.header.address_family = family;
            message.attributes = vec![RouteAttribute::Table(self.options.table)];
            emit(&message)
        };
        let dumps = [
            ("reading links", rtm::GETLINK, emit(&LinkMessage::default())),
            ("reading addresses", rtm::GETADDR, emit(&AddressMessage::default())),
            ("reading neighbours", rtm::GETNEIGH, emit(&NeighbourMessage::default())),
            ("reading next-hop objects", rtm::GETNEXTHOP, emit(&NextHopMessage::default())),
            ("reading IPv4 routes", rtm::GETROUTE, route_of(AddressFamily::Inet)),
            ("reading IPv6 routes", rtm::GETROUTE, route_of(AddressFamily::Inet6)),
        ];
        for (what, kind, body) in dumps {
            match self.client.dump(what, kind, &body, |message| fresh.take_dumped(&message)) {
                Ok(end) => torn |= end.interrupted,
                // No such table yet, or a kernel without next-hop objects or IPv6.
                Err(error) if matches!(error.errno(), Some(ENOENT | EOPNOTSUPP)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok((fresh, torn))
    }

    /// Returns `false` when the sink has ended.
    fn report_if_due(&mut self, more: bool) -> bool {
        // Before the first dump, nothing has its context.
        if !self.model.changed() || self.last_dump.is_none() {
            return true;
        }
        let due = self.last_report.is_none_or(|at| at.elapsed() >= self.options.collect_for);
        if !due || (more && self.last_report.is_none()) {
            return true;
        }
        self.report_now()
    }

    fn report_now(&mut self) -> bool {
        let mut events = Vec::new();
        self.model.flush(&mut events);
        self.report(events)
    }

    fn report(&mut self, mut events: Vec<Event>) -> bool {
        self.last_report = Some(Instant::now());
        self.stats.events += events.len() as u64;
        while !events.is_empty() {
            let rest = events.split_off(events.len().min(self.options.batch_events_max.max(1)));
            self.stats.batches += 1;
            if !(self.sink)(std::mem::replace(&mut events, rest)) {
                return false;
            }
        }
        true
    }

    /// Sleeps until the next message, command or duty.
    fn rest(&mut self) {
        let now = Instant::now();
        let mut until = self.audit_at.min(now + Duration::from_secs(1));
        if let Some((at, why)) = self.dump_at {
            let rested = self.last_dump.map_or(at, |(end, length)| end + length * 2);
            until = until.min(if why == Why::Silent { at.max(rested) } else { at });
        }
        if let (true, Some(at)) = (self.model.changed(), self.last_report) {
            until = until.min(at + self.options.collect_for);
        }
        match self.listener.wait(self.wake.as_fd(), until.saturating_duration_since(now)) {
            Ok(_) => {
                let mut count = [0; 8];
                let _ = rustix::io::read(&self.wake, &mut count);
            }
            Err(error) => {
                self.failed(&error);
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }

    fn publish_stats(&mut self) {
        let counts = self.model.counts;
        self.stats.messages = counts.messages;
        self.stats.undecoded = counts.undecoded;
        self.stats.unsupported_routes = counts.unsupported_routes;
        self.stats.foreign_legs = counts.foreign_legs;
        let (kernel, reported, held_back) = self.model.route_counts();
        (self.stats.prefixes_kernel, self.stats.prefixes_reported) = (kernel, reported);
        self.stats.prefixes_held_back = held_back;
        if let Ok(mut shared) = self.shared_stats.lock() {
            shared.clone_from(&self.stats);
        }
    }
}
