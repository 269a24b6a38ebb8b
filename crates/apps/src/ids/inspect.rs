//! The follower of a worker: gives flows to sessions and to a detector, and tells the stage what to drop.
//!
//! ```text
//!  flow, in its pre_shade ─▶ Inspector ─ a step per packet ─▶ Detector ─▶ alerts ─▶ lines
//!                               │ └ applayer::Session of the flow         verdict ─▶ decisions ─▶ stage `ids`, right behind it
//!                               └─▶ transactions, files, anomalies ─▶ lines
//! ```
//!
//! A packet's bytes come after the packet, so its step ends with the next one, with the next flow that ends, or when the stage
//! behind `flow` asks for decisions.
//!
//! Threads: one worker; the lock is never contended.

mod following;
mod hashes;
mod limit;
mod lone;
mod odd;
mod origin;
mod refused;
mod rows;
mod tag;
mod tee;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use applayer::{Direction, File, Limits, Session, Sink, Start, Transaction};
use control::config::{IdsEvent, IdsOnLimit};
use controlplane::PartId;
use detect::{Alert, Detector, FlowState, Found, HostTables, Packet, Ruleset, Sender, Verdict};
use flowlog::eve::{self, AnomalyKind, Context, Decision, Dropped};
use l7proto::{Ports, Protocol, Transport};
use packet::tcp::flags;
use signatures::Action;
use stream::tcp::Want;
use stream::tracker::{Identity, Input, OfFlow, Passed};
use stream::{FlowRecord, Side};

use self::following::Following;
use self::hashes::Mixed;
use self::limit::{Exceeded, OfLimit};
pub use self::rows::{Decided, OfChunk};
use self::tag::Tags;
use self::tee::Tee;
use super::counters::{Counters, add};
use super::outputs::{Lines, Outputs, To};
use crate::flow::anomalies;
use crate::flow::by_worker::{self, ByWorker};
use crate::flow::calls::{Asker, Calls};
use crate::flow::follow::{Follower, Listener, Place};
use crate::flow::search::LiteralPart;

/// Transactions whose last state is known within a step, for alerts; of later steps it is the last of them, and others are shown
/// by their number only.
const RECENT_MAX: usize = 64;

/// What a transaction costs at most, in bytes, that is kept for alerts and files of later steps: a flow that goes on may have one for
/// long.
const LATEST_MAX: usize = 4096;

/// Whether a transaction is kept for later steps: one that goes on, of a protocol whose alerts and files show it.
fn is_kept(own: &Transaction) -> bool {
    own.done != [true; 2] && own.cost().is_some_and(|bytes| bytes <= LATEST_MAX)
}

/// Rules in use: workers look when a chunk begins.
pub type Current = Arc<RwLock<Arc<Ruleset>>>;

/// An inspector, which the stage behind `flow` asks.
pub type Shared = by_worker::Shared<Inspector>;

/// What all workers share.
#[derive(Clone)]
pub struct Parts {
    /// Rules in use.
    pub current: Current,
    /// Where lines go.
    pub outputs: Arc<Outputs>,
    /// What is counted.
    pub counters: Arc<Counters>,
    /// What rules remember of hosts, of all workers.
    pub hosts: HostTables,
    /// The hosts of which rules want packets.
    pub tags: Arc<tag::HostTags>,
    /// Packets are dropped.
    pub is_inline: Arc<std::sync::atomic::AtomicBool>,
    /// Segments that are no part of a stream are among them.
    pub drops_invalid: Arc<std::sync::atomic::AtomicBool>,
    /// Bytes that the sessions of a worker may hold.
    pub session_memory: Arc<AtomicUsize>,
    /// Bytes that its rules may keep of streams and buffers.
    pub stream_memory: Arc<AtomicUsize>,
    /// What becomes of flows that exceed a bound.
    pub on_limit: IdsOnLimit,
    /// What a stage before the tracker searches packets for.
    pub literals: Option<PartId<LiteralPart>>,
}

/// By pipeline and worker: the inspector there.
pub struct Places {
    parts: Parts,
    all: ByWorker<Inspector>,
}

impl Places {
    /// None yet.
    pub fn new(parts: Parts) -> Self {
        Self { parts, all: ByWorker::default() }
    }

    /// That of a pipeline and worker, where the stage `flow` has asked for it.
    pub fn of(&self, pipeline: &str, worker: usize) -> Option<Shared> {
        self.all.find(pipeline, worker)
    }
}

impl Listener for Places {
    /// Nobody asks for a follower without its place.
    fn follower(&self, worker: usize, workers: usize) -> Box<dyn Follower> {
        self.follower_in("", worker, (worker, workers))
    }

    fn stage(&self) -> Option<&'static str> {
        Some(super::STAGE)
    }

    fn follower_in(&self, pipeline: &str, at: usize, _: (usize, usize)) -> Box<dyn Follower> {
        let inspector = Inspector::new(self.parts.clone());
        let rules = inspector.detector.rules().clone();
        let shared = Arc::new(Mutex::new(inspector));
        self.all.add(pipeline, at, shared.clone());
        Box::new(Following(shared, rules))
    }

    fn literals(&self) -> Option<PartId<LiteralPart>> {
        self.parts.literals
    }
}

/// What is kept of a flow.
struct OfFlowKept {
    identity: Identity,
    state: FlowState,
    session: Option<Box<Session>>,
    /// Bytes that it holds, as they are counted.
    session_bytes: usize,
    /// Bytes that rules keep of it.
    stream_bytes: usize,
    /// There was no memory for what rules keep of it.
    is_cut: bool,
    vlans: [u16; 2],
    icmp: Option<(u8, u8)>,
    port: u16,
    /// The time of its latest packet.
    last_ns: u64,
    /// Whether its packets are passed over, by the rules with this number.
    passing: (u64, Passing),
    /// The transaction that went on in the latest step in which one did, for what is found of it later.
    latest: Option<Box<Transaction>>,
    /// Lines that it has had.
    lines: u32,
    is_alerted: bool,
    /// Rules want packets of it.
    tags: Option<Box<Tags>>,
    /// What it has exceeded, and what has become of it.
    limit: OfLimit,
    /// A rule dropped a datagram with the fragment that completed it: were that one sent again, it must not get through either.
    drops_pieces: bool,
    /// A packet of this end was dropped with the flow, and an event says so.
    said_dropped: [bool; 2],
    /// The same of a segment that is no part of a stream.
    said_invalid: [bool; 2],
}

/// Whether packets of a flow that carry its streams on are passed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Passing {
    /// They are looked at, as far as is known.
    #[default]
    NotYet,
    /// They have to be looked at.
    Never,
    /// Nothing can come of them.
    Now,
}

/// The step that is open.
struct Open {
    flow: u64,
    /// The row of its packet; none where a flow ends.
    row: Option<usize>,
    sender: Sender,
    time_ns: u64,
    len: u64,
    /// With its frame.
    frame_len: u64,
    was_dropped: bool,
    /// The packet is a segment that is no part of a stream, and dropped for that.
    is_invalid: bool,
    /// The packet is a datagram whose fragments are passed on by themselves.
    is_joined: bool,
    /// Bytes of it that come before others were not kept.
    is_not_kept: bool,
    /// The addresses of its frame, if no literal of the rules is in it.
    clean: Range<usize>,
}

/// Inspects the flows of a worker.
pub struct Inspector {
    parts: Parts,
    detector: Detector,
    limits: Limits,
    flows: HashMap<u64, OfFlowKept, Mixed>,
    open: Option<Open>,
    now_ns: u64,
    alerts: Vec<Alert>,
    recent: Vec<Transaction>,
    /// Files that ended in the step.
    files: Vec<File>,
    calls: Calls<OfChunk>,
    /// What was decided of the last packet.
    last: Option<Decided>,
    lines: Lines,
    /// Lines of packets that belong to no flow.
    strays: u32,
    /// What of the detector's counts is in those of all workers.
    counted: detect::Counts,
    /// Searches that were given up, as far as flows have heard of them.
    given_up: u64,
    /// When the log last said that the flow table is full.
    refused_said_ns: Option<u64>,
    /// Bytes that all sessions hold, and what of them is in the count of all workers.
    session_bytes: usize,
    session_bytes_counted: usize,
    /// The same of what rules keep of streams and buffers.
    stream_bytes: usize,
    stream_bytes_counted: usize,
    /// Packets, which are counted for all workers once a chunk.
    seen: Passed,
    clean: u64,
}

impl Drop for Inspector {
    /// What it held is gone: the worker of another engine begins with nothing.
    fn drop(&mut self) {
        let bytes = self.session_bytes_counted as u64;
        add(&self.parts.counters.session_bytes, bytes.wrapping_neg());
        let bytes = self.stream_bytes_counted as u64;
        add(&self.parts.counters.stream_bytes, bytes.wrapping_neg());
    }
}

impl Inspector {
    fn new(parts: Parts) -> Self {
        let current = parts.current.read().unwrap_or_else(PoisonError::into_inner).clone();
        let lines = Lines::new(parts.outputs.clone());
        let detector = Detector::sharing(current, parts.hosts.clone());
        Self {
            parts,
            detector,
            limits: Limits::default(),
            flows: HashMap::with_hasher(Mixed(chunk::hash::random_seed())),
            open: None,
            now_ns: 0,
            alerts: Vec::new(),
            recent: Vec::new(),
            files: Vec::new(),
            calls: Calls::default(),
            last: None,
            lines,
            strays: 0,
            counted: detect::Counts::default(),
            given_up: 0,
            refused_said_ns: None,
            session_bytes: 0,
            session_bytes_counted: 0,
            stream_bytes: 0,
            stream_bytes_counted: 0,
            seen: Passed::default(),
            clean: 0,
        }
    }

    /// What a stage has as long as it asks for decisions.
    pub fn asker(&self) -> Asker {
        self.calls.asker()
    }

    /// What is to be done with rows of the chunk that the call of this number looked at, in their order; the others go on. It is
    /// taken.
    pub fn decisions(&mut self, call: u32) -> OfChunk {
        self.end_step();
        self.calls.of(call).map(std::mem::take).unwrap_or_default()
    }

    /// It is not needed any more.
    pub fn give_back(&mut self, chunk: OfChunk) {
        self.calls.keep(chunk);
    }

    fn decide_on(&mut self, row: usize, decided: Decided) {
        self.calls.now().decisions.push((row, decided));
    }

    /// Whether packets are dropped: so it is configured, and there is a stage that does it.
    pub(super) fn is_inline(&self) -> bool {
        self.parts.is_inline.load(std::sync::atomic::Ordering::Relaxed) && self.calls.is_asked()
    }

    /// Adds what the detector has counted to the counts of all workers.
    fn count(&mut self) {
        let seen = std::mem::take(&mut self.seen);
        self.parts.counters.packets(&seen);
        add(&self.parts.counters.clean, std::mem::take(&mut self.clean));
        let (bytes, before) = (self.session_bytes as u64, self.session_bytes_counted as u64);
        // The sum of all workers; less is more by a whole turn.
        add(&self.parts.counters.session_bytes, bytes.wrapping_sub(before));
        self.session_bytes_counted = self.session_bytes;
        let (bytes, before) = (self.stream_bytes as u64, self.stream_bytes_counted as u64);
        add(&self.parts.counters.stream_bytes, bytes.wrapping_sub(before));
        self.stream_bytes_counted = self.stream_bytes;
        let now = self.detector.counts();
        if now != self.counted {
            self.parts.counters.detected(now, self.counted);
            self.counted = now;
        }
    }

    /// Rules that are new since the last chunk, and whether packets wait for them.
    fn renew(&mut self) {
        self.detector.set_inline(self.is_inline());
        let current = self.parts.current.read().unwrap_or_else(PoisonError::into_inner).clone();
        if !Arc::ptr_eq(&current, self.detector.rules()) {
            self.detector.replace(current);
        }
    }

    fn end_step(&mut self) {
        let Some(open) = self.open.take() else { return };
        let is_inline = self.is_inline();
        let Some(flow) = self.flows.get_mut(&open.flow) else { return };
        let others = self.stream_bytes - flow.stream_bytes;
        let (bytes, before) = (self.detector.memory(&mut flow.state), flow.stream_bytes);
        let most = self.parts.stream_memory.load(Ordering::Relaxed);
        if bytes > before && others + bytes > most {
            self.detector.cut(&mut flow.state, most.saturating_sub(others));
            if !std::mem::replace(&mut flow.is_cut, true) {
                add(&self.parts.counters.streams_cut, 1);
            }
            flow.exceed(Exceeded::Memory, open.time_ns, &self.parts, &mut self.lines);
        }
        let verdict = self.detector.finish(&mut flow.state, &mut self.alerts);
        flow.stream_bytes = self.detector.memory(&mut flow.state);
        self.stream_bytes = others + flow.stream_bytes;
        let given_up = self.detector.counts().given_up;
        if std::mem::replace(&mut self.given_up, given_up) != given_up {
            flow.exceed(Exceeded::Search, open.time_ns, &self.parts, &mut self.lines);
        }
        let is_over = flow.give_up(&self.parts);
        let drops = verdict.drops || open.was_dropped || is_over || open.is_invalid;
        let only_invalid = open.is_invalid && !(verdict.drops || open.was_dropped || is_over);
        flow.drops_pieces |= is_inline && drops && open.is_joined;
        // The flow goes on: the sender repeats the packet.
        let is_refused = !drops && open.is_not_kept && self.parts.on_limit == IdsOnLimit::Drop;
        let drops = drops || is_refused;
        if let Some(row) = open.row {
            let by_limit = is_refused || flow.limit.drops && !(is_over && verdict.drops);
            self.last = (is_inline && drops).then(|| match by_limit {
                true => Decided::Limit,
                false if only_invalid => Decided::Invalid,
                false => decided(verdict, open.was_dropped),
            });
            if let Some(decided) = self.last {
                self.calls.now().decisions.push((row, decided));
            }
        }
        let mut drop_said = false;
        let before = flow.latest.take();
        for alert in std::mem::take(&mut self.alerts) {
            flow.is_alerted = true;
            let rule = self.detector.rules().rule(alert.rule);
            let id = (rule.gid, rule.sid);
            self.parts.counters.alert(id, &rule.msg, alert.action.name(), alert.time_ns);
            if !self.lines.outputs.has_files() {
                continue;
            }
            // What rules decide at the end of a flow comes too late for any packet.
            let is_blocked = is_inline && drops && open.row.is_some() && drops_with(alert.action);
            let transaction_id = match alert.found {
                Found::Transaction(number) => Some(number),
                _ => None,
            };
            let known = self.recent.iter().rfind(|own| Some(own.id) == transaction_id);
            let known = known.or(before.as_deref().filter(|own| Some(own.id) == transaction_id));
            let report = eve::Alert {
                decision: if is_blocked { Decision::Blocked } else { Decision::Allowed },
                gid: rule.gid,
                sid: rule.sid,
                rev: rule.rev,
                msg: &rule.msg,
                category: &rule.category,
                priority: rule.priority,
                metadata: &rule.metadata,
                to_server: Some(alert.sender == Sender::Client),
                application: flow.application(),
                protocols: flow.protocols(),
                transaction_id,
                transaction: known,
                files: &self.files,
            };
            let outputs = self.parts.outputs.clone();
            let origin = flow.origin(&outputs, alert.sender, alert.time_ns);
            let packet = (&origin, open.frame_len);
            tag::begin(rule, &alert, packet, &self.parts, Some(&mut flow.tags));
            if outputs.has(IdsEvent::Alert) {
                outputs.eve.alert(&origin, &report, &mut self.lines.line);
                let key = flow.key(alert.time_ns);
                self.lines.put(To::Eve, key);
            }
            flowlog::fast::alert(&origin, &report, &mut self.lines.line);
            let key = flow.key(alert.time_ns);
            self.lines.put(To::Fast, key);
            if is_blocked && !drop_said && outputs.has(IdsEvent::Drop) {
                drop_said = true;
                // The packet that is dropped may be one of the other end than the alert's.
                let origin = flow.origin(&outputs, open.sender, open.time_ns);
                let to_server = Some(open.sender == Sender::Client);
                let dropped = eve::Drop { len: open.len, why: Dropped::Rule(report), to_server };
                outputs.eve.dropped(&origin, &dropped, &mut self.lines.line);
                let key = flow.key(open.time_ns);
                self.lines.put(To::Eve, key);
            }
        }
        let end = open.sender as usize;
        let said = match only_invalid {
            true => &mut flow.said_invalid[end],
            false => &mut flow.said_dropped[end],
        };
        let is_said = open.was_dropped || is_over || only_invalid;
        if is_inline && is_said && !drop_said && !std::mem::replace(said, true) {
            let outputs = self.parts.outputs.clone();
            if open.row.is_some() && outputs.has(IdsEvent::Drop) {
                let origin = flow.origin(&outputs, open.sender, open.time_ns);
                let to_server = Some(open.sender == Sender::Client);
                let why = match only_invalid {
                    true => Dropped::Stream,
                    false if is_over => Dropped::Limit,
                    false => Dropped::Flow,
                };
                let dropped = eve::Drop { len: open.len, why, to_server };
                outputs.eve.dropped(&origin, &dropped, &mut self.lines.line);
                let key = flow.key(open.time_ns);
                self.lines.put(To::Eve, key);
            }
        }
        let latest = self.recent.pop().map(Box::new).or(before);
        flow.latest = latest.filter(|own| is_kept(own));
        self.recent.clear();
        self.files.clear();
    }

    /// Calls the session of the flow of the step, whose results go to the detector and into lines.
    fn session(&mut self, id: u64, call: impl FnOnce(&mut Session, &Limits, u64, &mut dyn Sink)) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        let Some(mut session) = flow.session.take() else { return };
        let was_reversed = session.is_reversed();
        let mut tee = Tee {
            detector: &mut self.detector,
            flow,
            parts: &self.parts,
            lines: &mut self.lines,
            recent: &mut self.recent,
            files: &mut self.files,
            now_ns: self.now_ns,
            is_reversed: was_reversed,
        };
        call(&mut session, &self.limits, self.now_ns, &mut tee);
        let (others, before) =
            (self.session_bytes - tee.flow.session_bytes, tee.flow.session_bytes);
        let mut bytes = session.memory();
        let most = self.parts.session_memory.load(Ordering::Relaxed);
        // The one that wants more gives up what it has: all others go on.
        if bytes > before && others + bytes > most {
            session.finish(&self.limits, self.now_ns, &mut tee);
            bytes = session.memory();
            add(&self.parts.counters.sessions_given_up, 1);
            flow.exceed(Exceeded::Memory, self.now_ns, &self.parts, &mut self.lines);
        }
        self.session_bytes = others + bytes;
        flow.session_bytes = bytes;
        if session.is_reversed() != was_reversed {
            flow.state.reverse();
        }
        flow.session = Some(session);
    }

    /// Whether there is memory for the session of a flow that begins.
    fn has_room(&self) -> bool {
        let most = self.parts.session_memory.load(Ordering::Relaxed);
        self.session_bytes + size_of::<Session>() <= most
    }

    /// A fragment of the datagram that was the last packet: what was decided of that holds for it.
    fn rest(&mut self, at: &Place) {
        self.end_step();
        if let Some(decided) = self.last {
            self.decide_on(at.row, decided);
        }
    }

    /// A fragment that is passed on by itself is inspected with its datagram. Those of a flow that was dropped are dropped.
    fn piece(&mut self, identity: &Identity, at: &Place) {
        self.end_step();
        let is_dropped = |flow: &OfFlowKept| flow.state.is_dropped() || flow.drops_pieces;
        if self.is_inline() && self.flows.get(&identity.id).is_some_and(is_dropped) {
            let by_limit = self.flows.get(&identity.id).is_some_and(|flow| flow.limit.drops);
            let decided = if by_limit { Decided::Limit } else { Decided::DropFlow };
            self.decide_on(at.row, decided);
        }
    }

    fn packet(&mut self, identity: &Identity, at: &Place, of: &OfFlow<'_>, is_joined: bool) {
        self.end_step();
        let input = of.input;
        let time_ns = input.time_ns;
        self.now_ns = time_ns;
        self.seen.add(input.frame_len.into(), time_ns);
        let mut identity = *identity;
        // Before the first segment was followed, the tracker does not know who opened the connection.
        if let Some(is_opener) = of.is_first.then(|| opens(input)).flatten() {
            identity.client = if is_opener { of.side } else { of.side.other() };
        }
        let identity = &identity;
        let has_room = self.has_room();
        let flow = self.flows.entry(identity.id).or_insert_with(|| {
            let mut flow = OfFlowKept::new(identity, input);
            if !has_room && flow.session.take().is_some() {
                add(&self.parts.counters.sessions_refused, 1);
                flow.exceed(Exceeded::Memory, time_ns, &self.parts, &mut self.lines);
            }
            flow.session_bytes = flow.session.as_ref().map_or(0, |session| session.memory());
            self.session_bytes += flow.session_bytes;
            flow
        });
        flow.identity = *identity;
        flow.last_ns = time_ns;
        let sender = flow.sender(of.side);
        tag::of_flow(flow, sender, input, &self.parts, &mut self.lines);
        let (was_dropped, is_over) = (flow.state.is_dropped(), flow.limit.is_over);
        let (decoded, frame) = (input.decoded, input.frame);
        // What was searched is the frame; a datagram that was put together is elsewhere.
        let is_clean = at.clean != 0
            && at.clean == self.detector.rules().generation() as u32
            && is_within(frame, &at.frame);
        self.clean += u64::from(is_clean);
        let clean = if is_clean { at.frame.clone() } else { 0..0 };
        let packet = Packet { decoded, frame, time_ns };
        self.detector.begin_searched(&packet, &mut flow.state, sender, is_clean);
        let len = input.frame_len.saturating_sub(decoded.l3_offset.into()).into();
        let (flow, row, frame_len) = (identity.id, Some(at.row), input.frame_len.into());
        let (is_invalid, is_not_kept) = (false, false);
        self.open = Some(Open {
            flow,
            row,
            sender,
            time_ns,
            len,
            frame_len,
            was_dropped,
            is_invalid,
            is_joined,
            is_not_kept,
            clean,
        });
        if let Some(bytes) = of.datagram().filter(|_| !was_dropped && !is_over) {
            let direction = direction(identity, of.side);
            self.session(identity.id, |session, limits, now, sink| {
                session.datagram(limits, direction, bytes, now, sink);
            });
        }
    }

    /// A step without a packet.
    fn begin_end(&mut self, id: u64, time_ns: u64) {
        self.end_step();
        self.now_ns = time_ns;
        let Some(flow) = self.flows.get_mut(&id) else { return };
        self.detector.begin_end(&mut flow.state, time_ns);
        let (row, sender, was_dropped) = (None, Sender::Client, flow.state.is_dropped());
        let (flow, len, frame_len, clean) = (id, 0, 0, 0..0);
        let (is_invalid, is_joined, is_not_kept) = (false, false, false);
        self.open = Some(Open {
            flow,
            row,
            sender,
            time_ns,
            len,
            frame_len,
            was_dropped,
            is_invalid,
            is_joined,
            is_not_kept,
            clean,
        });
    }

    /// The segment of the step is no part of a stream: rules search it by itself, and inline it is dropped.
    fn unread(&mut self, id: u64, of: &OfFlow<'_>) {
        let drops = self.drops_invalid();
        let Some(open) = self.open.as_mut().filter(|open| open.flow == id) else { return };
        open.is_invalid = drops;
        let Some(flow) = self.flows.get_mut(&id) else { return };
        let Input { decoded, frame, time_ns, .. } = *of.input;
        self.detector.unread(&Packet { decoded, frame, time_ns }, &mut flow.state);
    }

    /// Whether segments that are no part of a stream are dropped.
    pub fn drops_invalid(&self) -> bool {
        self.is_inline() && self.parts.drops_invalid.load(Ordering::Relaxed)
    }

    /// The stage has dropped so many packets.
    pub fn dropped(&self, packets: u64) {
        add(&self.parts.counters.drops, packets);
    }

    fn data(&mut self, identity: &Identity, side: Side, offset: u64, bytes: &[u8]) -> Want {
        let Some(flow) = self.flows.get_mut(&identity.id) else { return Want::More };
        // Transactions of a flow that a rule passes are reported; the detector passes over them.
        if flow.state.is_dropped() {
            return Want::More;
        }
        if flow.limit.is_over {
            return Want::EnoughOfFlow;
        }
        let sender = flow.sender(side);
        let direction = direction(identity, side);
        if flow.encrypted_from(direction).is_some_and(|from| from <= offset) {
            self.detector.pass_over(&mut flow.state, sender, offset, bytes.len());
            return match self.passes(identity.id) {
                true => Want::PassOver,
                false => Want::More,
            };
        }
        self.session(identity.id, |session, limits, now, sink| {
            session.data(limits, direction, offset, bytes, now, sink);
        });
        let Some(flow) = self.flows.get_mut(&identity.id) else { return Want::More };
        // The session may have found out that the ends are the other way round.
        let sender = flow.sender(side);
        let from = flow.encrypted_from(direction);
        let clear = from.map_or(bytes.len() as u64, |from| from.saturating_sub(offset));
        let clear = &bytes[..bytes.len().min(clear as usize)];
        // Bytes that waited for others are in no frame.
        let open = self.open.as_ref().filter(|open| open.flow == identity.id);
        let is_clean = open.is_some_and(|open| is_within(clear, &open.clean));
        self.detector.data_searched(&mut flow.state, sender, offset, clear, is_clean);
        if from.is_some() {
            self.detector.pass_over(&mut flow.state, sender, offset, bytes.len());
            flow.state.set_encrypted();
        }
        Want::More
    }

    /// Whether packets of a flow that carry its streams on need not be looked at: both are encrypted, and no rule asks for what such
    /// packets have.
    fn passes(&mut self, id: u64) -> bool {
        let Some(flow) = self.flows.get_mut(&id) else { return false };
        if flow.tags.is_some() {
            return false;
        }
        let generation = self.detector.rules().generation();
        if flow.passing.0 != generation {
            flow.passing = (generation, Passing::NotYet);
        }
        if flow.passing.1 == Passing::NotYet && flow.is_all_encrypted() {
            flow.passing.1 = match self.detector.may_pass_over(&mut flow.state) {
                None => Passing::NotYet,
                Some(false) => Passing::Never,
                Some(true) if self.detector.rules().tags_hosts() => Passing::Never,
                Some(true) => Passing::Now,
            };
        }
        flow.passing.1 == Passing::Now
    }

    fn gap(&mut self, identity: &Identity, side: Side, offset: u64, bytes: u64) {
        self.stream_event(identity.id, side, anomalies::stream_name(AnomalyKind::Gap));
        let Some(flow) = self.flows.get_mut(&identity.id) else { return };
        let sender = flow.sender(side);
        self.detector.gap(&mut flow.state, sender, offset, bytes);
        let direction = direction(identity, side);
        self.session(identity.id, |session, limits, now, sink| {
            session.gap(limits, direction, offset, bytes, now, sink);
        });
    }

    /// Bytes of a flow were not kept until those before them come, for lack of memory.
    fn not_kept(&mut self, id: u64) {
        add(&self.parts.counters.not_kept, 1);
        if let Some(open) = self.open.as_mut().filter(|open| open.flow == id) {
            open.is_not_kept = true;
        }
    }

    /// Rules about something odd in a stream of a flow, in its step.
    fn stream_event(&mut self, id: u64, side: Side, name: Option<&'static str>) {
        let Some((name, flow)) = name.zip(self.flows.get(&id)) else { return };
        if self.open.as_ref().is_some_and(|open| open.flow == id) {
            self.detector.stream_event(name, flow.sender(side));
        }
    }

    fn end_of_side(&mut self, identity: &Identity, side: Side) {
        let Some(flow) = self.flows.get_mut(&identity.id) else { return };
        let sender = flow.sender(side);
        self.detector.end_of_stream(&mut flow.state, sender);
        let direction = direction(identity, side);
        self.session(identity.id, |session, limits, now, sink| {
            session.end_of_side(limits, direction, now, sink);
        });
    }

    fn never_was(&mut self, id: u64) {
        self.end_step();
        let Some(flow) = self.flows.remove(&id) else { return };
        self.session_bytes -= flow.session_bytes;
        self.stream_bytes -= flow.stream_bytes;
    }

    fn ending(&mut self, id: u64, time_ns: u64) {
        self.end_step();
        self.lines.release(time_ns);
        self.begin_end(id, time_ns);
        self.session(id, |session, limits, now, sink| session.finish(limits, now, sink));
        self.end_step();
        self.lines.release(time_ns);
    }

    fn ended(&mut self, record: &FlowRecord, time_ns: u64) {
        add(&self.parts.counters.flows, 1);
        let Some(mut flow) = self.flows.remove(&record.id) else { return };
        self.session_bytes -= flow.session_bytes;
        self.stream_bytes -= flow.stream_bytes;
        let outputs = &self.parts.outputs;
        if outputs.has(IdsEvent::Flow) {
            let in_iface = flow.interface(outputs);
            let context = Context { in_iface, at_ns: time_ns, protocols: flow.protocols() };
            outputs.eve.flow(record, context, &mut self.lines.line);
            let key = flow.key(time_ns);
            self.lines.put(To::Eve, key);
        }
    }
}

/// Why a row is dropped.
fn decided(verdict: Verdict, was_dropped: bool) -> Decided {
    let (source, destination) = (verdict.rejects_source, verdict.rejects_destination);
    match source || destination {
        true => Decided::Reject { source, destination },
        _ if was_dropped => Decided::DropFlow,
        _ => Decided::Drop,
    }
}

/// Whether an action drops.
const fn drops_with(action: Action) -> bool {
    !matches!(action, Action::Alert | Action::Log | Action::Pass)
}

/// Whether bytes are among those at these addresses.
fn is_within(bytes: &[u8], all: &Range<usize>) -> bool {
    let own = bytes.as_ptr_range();
    all.start <= own.start.addr() && own.end.addr() <= all.end
}

fn direction(flow: &Identity, side: Side) -> Direction {
    if side == flow.client { Direction::ToServer } else { Direction::ToClient }
}

fn vlans(input: &Input<'_>) -> [u16; 2] {
    let d = input.decoded;
    let vlan = |n: usize| if usize::from(d.vlan_count) > n { d.vlan_tci[n] & 0xfff } else { 0 };
    [vlan(0), vlan(1)]
}

impl OfFlowKept {
    fn new(identity: &Identity, input: &Input<'_>) -> Self {
        let key = &identity.key;
        let transport = match key.protocol {
            6 => Some(Transport::Stream),
            17 => Some(Transport::Datagram),
            _ => None,
        };
        let (client, server) = (identity.client, identity.client.other());
        let ports = Ports { opener: key.port(client), responder: key.port(server) };
        let is_midstream = key.protocol == 6 && opens(input).is_none();
        let session = transport
            .map(|transport| Box::new(Session::new(Start { transport, ports, is_midstream })));
        Self {
            identity: *identity,
            state: FlowState::new(identity.id),
            session,
            session_bytes: 0,
            stream_bytes: 0,
            is_cut: false,
            vlans: vlans(input),
            icmp: input.decoded.icmp_type_code(),
            port: input.port,
            last_ns: input.time_ns,
            passing: <_>::default(),
            latest: None,
            lines: 0,
            is_alerted: false,
            tags: None,
            limit: OfLimit::default(),
            drops_pieces: false,
            said_dropped: [false; 2],
            said_invalid: [false; 2],
        }
    }

    /// From where on what goes there is encrypted, if it is.
    fn encrypted_from(&self, direction: Direction) -> Option<u64> {
        self.session.as_ref()?.encrypted_from(direction)
    }

    /// Whether all that follows of both streams is encrypted.
    fn is_all_encrypted(&self) -> bool {
        Side::BOTH.into_iter().all(|side| {
            let from = self.encrypted_from(direction(&self.identity, side));
            from.is_some_and(|from| from <= self.state.stream_bytes(self.sender(side)))
        })
    }

    fn is_reversed(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.is_reversed())
    }

    fn sender(&self, side: Side) -> Sender {
        match (side == self.identity.client) != self.is_reversed() {
            true => Sender::Client,
            false => Sender::Server,
        }
    }

    fn application(&self) -> Option<&'static str> {
        self.session.as_ref()?.protocol().map(Protocol::name)
    }

    fn protocols(&self) -> eve::Protocols {
        let of = |own: &Session| eve::Protocols::of(own.others(), own.protocol());
        self.session.as_deref().map(of).unwrap_or_default()
    }
}

/// Of a segment of TCP with SYN: whether it has no ACK.
fn opens(input: &Input<'_>) -> Option<bool> {
    let is_tcp = input.decoded.protocol == packet::IpProtocol::TCP;
    let at = usize::from(input.decoded.l4_offset) + 13;
    let own = u16::from(*input.frame.get(at).filter(|_| is_tcp)?);
    (own & flags::SYN != 0).then_some(own & flags::ACK == 0)
}
