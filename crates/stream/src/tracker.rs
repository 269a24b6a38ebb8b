//! Follows the flows of one worker: from decoded packets to connections, their byte streams, and a record of each.
//!
//! ```text
//!  batch ─▶ fragments ─▶ keys ─▶ FlowTable::lookup ─▶ row by row: counts ─▶ Reassembler ─▶ Module
//!           (defrag)             all rows at once      (time-out, TCP)       in order
//! ```
//!
//! When a flow ends does not depend on when the table is swept, on batches, or on what other workers do: a flow ends with
//! its last packet plus the time-out of its state, whether a sweep finds it later or a packet of the next flow with the same
//! key comes first. So any number of workers, over batches of any size, report the same flows, as long as no table is full.
//! Time is that of each packet.
//!
//! Threads: a tracker belongs to one worker.

use std::net::IpAddr;
use std::ops::Range;

use interleave::{prefetch, prefetch_at};
use packet::checksum::{pseudo_header_v4, pseudo_header_v6};
use packet::tcp::TcpView;
use packet::{Anomaly, Decoded, IpProtocol, Kind};

use crate::defrag::{self, Defragmenter};
use crate::key::{FlowKey, Side};
use crate::record::{FlowRecord, FlowState, Reason, SideRecord, TcpState};
use crate::table::{Class, FlowTable, Found, Limits, Policy, Slot, TableError, Timeouts};
use crate::tcp::{self, Connection, End, Event, Reassembler, Segment, Sink, Want};

/// A packet, decoded.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// What decoding found.
    pub decoded: &'a Decoded,
    /// The frame; all of it, for TCP and fragments.
    pub frame: &'a [u8],
    /// Bytes of the frame on the wire.
    pub frame_len: u32,
    /// When it came, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Number of the port by which it came.
    pub port: u16,
    /// Whether a TCP segment with a wrong checksum is passed over, as its receiver does.
    pub checksums: bool,
}

/// How long flows are kept without packets, in nanoseconds, by protocol and state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleTimeouts {
    /// TCP before the handshake is over.
    pub tcp_new: u64,
    /// TCP after it.
    pub tcp_established: u64,
    /// TCP after both ends closed, or a reset.
    pub tcp_closed: u64,
    /// UDP without an answer.
    pub udp_new: u64,
    /// UDP with one.
    pub udp_established: u64,
    /// ICMP and ICMPv6.
    pub icmp: u64,
    /// Other protocols.
    pub other: u64,
}

/// The default: GASPP §4.1 removes connections after 60 s.
pub const IDLE_NS: u64 = 60_000_000_000;

impl Default for IdleTimeouts {
    fn default() -> Self {
        Self {
            tcp_new: IDLE_NS,
            tcp_established: 10 * IDLE_NS,
            tcp_closed: IDLE_NS,
            udp_new: IDLE_NS,
            udp_established: IDLE_NS,
            icmp: IDLE_NS,
            other: IDLE_NS,
        }
    }
}

impl IdleTimeouts {
    fn of(&self, protocol: u8, state: FlowState) -> u64 {
        match (IpProtocol(protocol), state) {
            (IpProtocol::TCP, FlowState::New) => self.tcp_new,
            (IpProtocol::TCP, FlowState::Closed) => self.tcp_closed,
            (IpProtocol::TCP, _) => self.tcp_established,
            (IpProtocol::UDP, FlowState::New) => self.udp_new,
            (IpProtocol::UDP, _) => self.udp_established,
            (IpProtocol::ICMP | IpProtocol::ICMPV6, _) => self.icmp,
            _ => self.other,
        }
    }

    /// The shortest of a class of the table, in milliseconds.
    fn shortest_ms(&self, class: Class) -> u32 {
        let shortest = match class {
            Class::HalfOpen => self.tcp_new.min(self.udp_new).min(self.icmp).min(self.other),
            Class::Full => self
                .tcp_established
                .min(self.tcp_closed)
                .min(self.udp_established)
                .min(self.icmp)
                .min(self.other),
        };
        ms_of(shortest)
    }
}

/// Bounds and policies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Flows at most.
    pub flows: usize,
    /// Of them without an answer.
    pub half_open: usize,
    /// Idle time-outs.
    pub timeouts: IdleTimeouts,
    /// TCP; its buffer is taken at creation.
    pub tcp: tcp::Options,
    /// Fragments.
    pub defrag: defrag::Config,
    /// Whether flows of different VLANs are different.
    pub by_vlan: bool,
    /// Key of the table's hash.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            flows: 1 << 18,
            half_open: 1 << 17,
            timeouts: IdleTimeouts::default(),
            tcp: tcp::Options::default(),
            defrag: defrag::Config::default(),
            by_vlan: false,
            seed: 0,
        }
    }
}

/// How many rows before its turn a flow is asked for.
const AHEAD: usize = 16;

/// What is done with flows: a module at GASPP's layer `process_stream` (§3.1).
pub trait Module {
    /// What it keeps for each flow.
    type State: Default;

    /// Bytes of a side in order.
    fn data(
        &mut self,
        flow: &Identity,
        state: &mut Self::State,
        side: Side,
        offset: u64,
        bytes: &[u8],
    ) -> Want;

    /// Bytes that will not come.
    fn gap(
        &mut self,
        _flow: &Identity,
        _state: &mut Self::State,
        _side: Side,
        _offset: u64,
        _bytes: u64,
        _time_ns: u64,
    ) {
    }

    /// Nothing more of a side follows.
    fn end_of_side(
        &mut self,
        _flow: &Identity,
        _state: &mut Self::State,
        _side: Side,
        _offset: u64,
        _end: End,
    ) {
    }

    /// Something notable about a segment.
    fn event(
        &mut self,
        _flow: &Identity,
        _state: &mut Self::State,
        _side: Side,
        _event: Event,
        _time_ns: u64,
    ) {
    }

    /// A flow has ended, at `time_ns`. `client` is the side of the client.
    fn ended(&mut self, record: &FlowRecord, client: Side, state: &mut Self::State, time_ns: u64);
}

/// Which flow it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Both ends.
    pub key: FlowKey,
    /// The number of the flow: a hash of key and start, so that it is the same in each run over a capture.
    pub id: u64,
    /// When it began, in nanoseconds since 1970.
    pub start_ns: u64,
    /// The end that opened it, as far as is known.
    pub client: Side,
}

/// What was not followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets of flows.
    pub packets: u64,
    /// Frames that are not IP, or whose IP header is wrong.
    pub not_ip: u64,
    /// Packets whose upper-layer header is missing or wrong.
    pub malformed: u64,
    /// Packets with a wrong checksum of TCP or UDP.
    pub checksum: u64,
    /// Packets for whose flow there was no place.
    pub no_room: u64,
    /// Fragments.
    pub fragments: u64,
    /// Fragments that did not become a datagram.
    pub fragments_lost: u64,
}

/// In the line of the flow, beside its key.
#[derive(Clone, Copy, Debug, Default)]
struct Hot {
    /// Idle time-out of its state, in milliseconds.
    timeout_ms: u32,
    state: FlowState,
    is_tcp: bool,
}

/// What is counted of a side.
#[derive(Clone, Copy, Debug, Default)]
struct SideCounts {
    packets: u64,
    bytes: u64,
    ip_bytes: u64,
    tcp_flags: u16,
    ttl: (u8, u8),
}

/// The rest of a flow.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Cold {
    id: u64,
    start_ns: u64,
    end_ns: u64,
    sides: [SideCounts; 2],
    vlans: [u16; 2],
    icmp: Option<(u8, u8)>,
    port: u16,
    first: Side,
}

impl Cold {
    const NONE: Cold = Cold {
        id: 0,
        start_ns: 0,
        end_ns: 0,
        sides: [SideCounts { packets: 0, bytes: 0, ip_bytes: 0, tcp_flags: 0, ttl: (0, 0) }; 2],
        vlans: [0; 2],
        icmp: None,
        port: 0,
        first: Side::A,
    };
}

/// Flows of one worker.
pub struct Tracker<M: Module> {
    table: FlowTable<Hot>,
    rest: Rest<M>,
    defrag: Defragmenter<u32>,
    /// Datagrams that became whole: their bytes, one after the other.
    whole: Whole,
    keys: Vec<FlowKey>,
    sides: Vec<Side>,
    found: Vec<Found>,
    options: Options,
    counts: Counts,
}

/// What flows have beside the table, so that a table under work can report an evicted one.
struct Rest<M: Module> {
    cold: Vec<Cold>,
    connections: Vec<Connection>,
    states: Vec<M::State>,
    reassembler: Reassembler,
    module: M,
    timeouts: IdleTimeouts,
}

/// A datagram that became whole.
#[derive(Default)]
struct Whole {
    frame: Vec<u8>,
    ip_at: usize,
    /// Frames that it came in, and their bytes.
    pieces: u32,
    bytes: u64,
    is_there: bool,
    lost: u64,
}

impl<M: Module> Tracker<M> {
    /// Takes memory for all flows and the buffers of TCP and fragments.
    ///
    /// # Errors
    /// There is not so much, or a bound is out of range.
    pub fn new(options: Options, module: M) -> Result<Self, TableError> {
        let limits = Limits { capacity: options.flows, half_open_max: options.half_open };
        let table = FlowTable::new(limits, options.seed)?;
        let rest = Rest {
            cold: Vec::new(),
            connections: Vec::new(),
            states: Vec::new(),
            reassembler: Reassembler::new(options.tcp),
            module,
            timeouts: options.timeouts,
        };
        Ok(Self {
            table,
            rest,
            defrag: Defragmenter::new(options.defrag),
            whole: Whole::default(),
            keys: Vec::new(),
            sides: Vec::new(),
            found: Vec::new(),
            options,
            counts: Counts::default(),
        })
    }

    /// Flows that are followed now.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// What was counted.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The table's counts.
    pub fn statistics(&self) -> crate::table::Statistics {
        self.table.statistics()
    }

    /// Bytes of segments that wait for others.
    pub fn buffered_bytes(&self) -> usize {
        self.rest.reassembler.buffer_bytes_used()
    }

    /// The module.
    pub fn module(&mut self) -> &mut M {
        &mut self.rest.module
    }

    /// Takes a batch of packets, in the order of their arrival.
    pub fn packets<'a>(&mut self, count: usize, input: impl Fn(usize) -> Input<'a>) {
        let mut first = 0;
        for at in 0..count {
            let own = input(at);
            if !own.decoded.has(Decoded::FRAGMENT) || !own.decoded.is_ip() {
                continue;
            }
            // What was before it comes first.
            self.whole_packets(first..at, &input);
            first = at + 1;
            self.fragment(&own);
        }
        self.whole_packets(first..count, &input);
    }

    /// Packets that are no fragments.
    fn whole_packets<'a>(&mut self, rows: Range<usize>, input: &impl Fn(usize) -> Input<'a>) {
        self.keys.clear();
        self.sides.clear();
        let mut latest = 0;
        for row in rows.clone() {
            let own = input(row);
            let (key, side) = key_of(&own, self.options.by_vlan);
            self.keys.push(key);
            self.sides.push(side);
            latest = latest.max(own.time_ns);
        }
        if self.keys.is_empty() {
            return;
        }
        self.found.clear();
        self.found.resize(self.keys.len(), Found::NONE);
        let mut policy = Admission { rest: &mut self.rest, now_ns: latest };
        self.table.lookup(&self.keys, ms_of(latest), &mut policy, &mut self.found);
        self.found.iter().take(AHEAD).for_each(|found| self.rest.prefetch(*found));
        for (at, row) in rows.enumerate() {
            if let Some(later) = self.found.get(at + AHEAD) {
                self.rest.prefetch(*later);
            }
            let own = input(row);
            let (key, side) = (self.keys[at], self.sides[at]);
            self.row(&own, key, side, self.found[at], (1, own.frame_len.into()));
        }
    }

    fn fragment(&mut self, input: &Input<'_>) {
        self.counts.fragments += 1;
        let whole = &mut self.whole;
        whole.is_there = false;
        let mut take = |output: defrag::Output<'_, u32>| match output.outcome {
            defrag::Outcome::Whole { frame, ip_at } => {
                whole.frame.clear();
                whole.frame.extend_from_slice(frame);
                (whole.ip_at, whole.is_there) = (ip_at, true);
                let frames = output.tokens;
                whole.pieces = frames.len() as u32;
                whole.bytes = frames.map(u64::from).sum();
            }
            defrag::Outcome::Failed(_) => whole.lost += output.tokens.len() as u64,
        };
        let time_ns = input.time_ns;
        self.defrag.push_frame(input.decoded, input.frame, input.frame_len, time_ns, &mut take);
        self.counts.fragments_lost = whole.lost;
        if !whole.is_there {
            return;
        }
        let whole = std::mem::take(&mut self.whole);
        let decoded = packet::decode::decode(&whole.frame, whole.frame.len());
        let input = Input {
            decoded: &decoded,
            frame: &whole.frame,
            frame_len: whole.frame.len() as u32,
            ..*input
        };
        // Fragments again would be of a datagram in a datagram.
        if !decoded.has(Decoded::FRAGMENT) {
            let (key, side) = key_of(&input, self.options.by_vlan);
            let mut found = [Found::NONE];
            let mut policy = Admission { rest: &mut self.rest, now_ns: time_ns };
            self.table.lookup(&[key], ms_of(time_ns), &mut policy, &mut found);
            self.row(&input, key, side, found[0], (u64::from(whole.pieces), whole.bytes));
        }
        self.whole = whole;
    }

    /// A packet and the place of its flow. `frames`: how many frames it came in, and their bytes.
    fn row(
        &mut self,
        input: &Input<'_>,
        key: FlowKey,
        side: Side,
        found: Found,
        frames: (u64, u64),
    ) {
        let Some(slot) = found.slot() else {
            match (key.family, input.decoded.is_ip()) {
                (0, false) => self.counts.not_ip += frames.0,
                (0, true) => self.counts.malformed += frames.0,
                _ => self.counts.no_room += frames.0,
            }
            return;
        };
        let segment = match IpProtocol(key.protocol) {
            IpProtocol::TCP => match segment_of(input) {
                Ok(segment) => Some(segment),
                Err(Bad::Header) => return self.counts.malformed += frames.0,
                Err(Bad::Checksum) => return self.counts.checksum += frames.0,
            },
            _ => None,
        };
        self.counts.packets += frames.0;
        let Some(mut hot) = self.table.get(slot).copied() else { return };
        let rest = &mut self.rest;
        let is_new = rest.make_place(slot) || found.is_new() || rest.cold[slot.index()].id == 0;
        if is_new {
            rest.begin(slot, &key, side, input);
            hot = Hot::default();
        } else {
            let idle_ns = input.time_ns.saturating_sub(rest.cold[slot.index()].end_ns);
            if idle_ns > rest.timeouts.of(key.protocol, hot.state) {
                rest.end(slot, &key, hot, Reason::Timeout);
                rest.begin(slot, &key, side, input);
                hot = Hot::default();
                self.table.set_class(slot, Class::HalfOpen);
            }
        }
        if let Some(segment) = segment {
            let outcome = rest.segment(slot, &key, side, &segment, input.time_ns);
            if outcome == tcp::Outcome::Restart {
                rest.end(slot, &key, hot, Reason::Closed);
                rest.begin(slot, &key, side, input);
                hot = Hot::default();
                self.table.set_class(slot, Class::HalfOpen);
                let _ = rest.segment(slot, &key, side, &segment, input.time_ns);
            }
        }
        rest.count(slot, side, input, segment.map_or(0, |segment| segment.flags), frames);
        let state = rest.state(slot, &key);
        if state != hot.state || hot.timeout_ms == 0 {
            if state != FlowState::New && hot.state == FlowState::New {
                self.table.set_class(slot, Class::Full);
            }
            let timeout_ms = ms_of(self.rest.timeouts.of(key.protocol, state));
            let is_tcp = key.protocol == IpProtocol::TCP.0;
            if let Some(own) = self.table.get_mut(slot) {
                *own = Hot { timeout_ms, state, is_tcp };
            }
        }
    }

    /// Removes flows that are idle at `now_ns`, in a piece of about so many records; whether the piece reached the end of
    /// the table.
    pub fn sweep(&mut self, records: usize, now_ns: u64) -> bool {
        let timeouts = &self.options.timeouts;
        let shortest = Timeouts {
            half_open: timeouts.shortest_ms(Class::HalfOpen),
            full: timeouts.shortest_ms(Class::Full),
        };
        let rest = &mut self.rest;
        let swept = self.table.sweep(
            records,
            ms_of(now_ns),
            shortest,
            |_, hot| hot.timeout_ms.saturating_add(1), // times of the table are rounded
            |slot, key, hot| rest.end(slot, key, *hot, Reason::Timeout),
        );
        swept.is_round
    }

    /// Ends all flows; `now_ns` is the time of the last packet of all workers.
    pub fn finish(&mut self, now_ns: u64) {
        let (rest, table) = (&mut self.rest, &mut self.table);
        let slots: Vec<Slot> = table.iter().map(|flow| flow.slot).collect();
        for slot in slots {
            let Some((key, hot)) = table.remove(slot) else { continue };
            let end_ns = rest.cold.get(slot.index()).map_or(0, |cold| cold.end_ns);
            let idle_ns = now_ns.saturating_sub(end_ns);
            let is_over = idle_ns > rest.timeouts.of(key.protocol, hot.state);
            rest.end(slot, &key, hot, if is_over { Reason::Timeout } else { Reason::Shutdown });
        }
        let lost = &mut self.whole.lost;
        self.defrag
            .clear(&mut |output: defrag::Output<'_, u32>| *lost += output.tokens.len() as u64);
        self.counts.fragments_lost = *lost;
    }

    /// Calls `visit` with the records of at most `count` flows, from slot `from` on; the slot to go on with, `None` at the
    /// end.
    pub fn visit(
        &self,
        from: u32,
        count: usize,
        visit: &mut impl FnMut(FlowRecord),
    ) -> Option<u32> {
        for (number, flow) in self.table.iter_from(Slot(from)).enumerate() {
            if number == count {
                return Some(flow.slot.0);
            }
            if self.rest.cold.get(flow.slot.index()).is_some_and(|cold| cold.id != 0) {
                visit(self.rest.record(flow.slot, flow.key, *flow.hot, Reason::Active));
            }
        }
        None
    }
}

/// Admits all flows, and reports those that are evicted.
struct Admission<'a, M: Module> {
    rest: &'a mut Rest<M>,
    now_ns: u64,
}

impl<M: Module> Policy<Hot> for Admission<'_, M> {
    fn admit(&mut self, _row: usize) -> Option<Class> {
        Some(Class::HalfOpen)
    }

    fn evicted(&mut self, slot: Slot, key: &FlowKey, hot: &Hot) {
        let now_ns = self.now_ns;
        self.rest.end_at(slot, key, *hot, Reason::Evicted, now_ns);
    }
}

impl<M: Module> Rest<M> {
    /// Asks for what a packet in order reads and writes of its flow beside the table.
    #[inline(always)]
    fn prefetch(&self, found: Found) {
        let Some(slot) = found.slot() else { return };
        if let Some(cold) = self.cold.get(slot.index()) {
            prefetch(cold);
        }
        if let Some(connection) = self.connections.get(slot.index()) {
            prefetch_at(connection); // its first line
        }
    }

    /// Makes the arrays long enough for a slot.
    fn make_place(&mut self, slot: Slot) -> bool {
        let len = slot.index() + 1;
        if self.cold.len() >= len {
            return false;
        }
        self.cold.resize(len, Cold::NONE);
        self.connections.resize_with(len, || Connection::new(Side::A));
        self.states.resize_with(len, M::State::default);
        true
    }

    fn begin(&mut self, slot: Slot, key: &FlowKey, side: Side, input: &Input<'_>) {
        let d = input.decoded;
        let at = slot.index();
        let vlan = |n: usize| if usize::from(d.vlan_count) > n { d.vlan_tci[n] & 0xfff } else { 0 };
        let before = self.cold[at].id;
        let mut id = id_of(key, input.time_ns);
        if id == before {
            id ^= 1 << 63; // two flows of one key that begin in the same nanosecond
        }
        self.cold[at] = Cold {
            id,
            start_ns: input.time_ns,
            end_ns: input.time_ns,
            vlans: [vlan(0), vlan(1)],
            icmp: d.icmp_type_code(),
            port: input.port,
            first: side,
            ..Cold::NONE
        };
        self.connections[at] = Connection::for_key(key, side);
        self.states[at] = M::State::default();
    }

    fn identity(cold: &Cold, key: &FlowKey, client: Side) -> Identity {
        Identity { key: *key, id: cold.id, start_ns: cold.start_ns, client }
    }

    fn segment(
        &mut self,
        slot: Slot,
        key: &FlowKey,
        side: Side,
        segment: &Segment<'_>,
        time_ns: u64,
    ) -> tcp::Outcome {
        let at = slot.index();
        let connection = &mut self.connections[at];
        let flow = Self::identity(&self.cold[at], key, connection.client());
        let module = &mut self.module;
        let mut sink = Streams { module, flow, state: &mut self.states[at], time_ns };
        self.reassembler.segment(connection, side, segment, time_ns, &mut sink)
    }

    fn count(
        &mut self,
        slot: Slot,
        side: Side,
        input: &Input<'_>,
        tcp_flags: u16,
        (frames, bytes): (u64, u64),
    ) {
        let cold = &mut self.cold[slot.index()];
        let ttl = input.decoded.ttl;
        cold.end_ns = cold.end_ns.max(input.time_ns);
        cold.start_ns = cold.start_ns.min(input.time_ns);
        let own = &mut cold.sides[side.index()];
        own.ttl = match own.packets {
            0 => (ttl, ttl),
            _ => (own.ttl.0.min(ttl), own.ttl.1.max(ttl)),
        };
        own.packets += frames;
        own.bytes += bytes;
        own.ip_bytes += u64::from(input.decoded.ip_total_len);
        own.tcp_flags |= tcp_flags;
    }

    fn state(&self, slot: Slot, key: &FlowKey) -> FlowState {
        if key.protocol != IpProtocol::TCP.0 {
            let [a, b] = &self.cold[slot.index()].sides;
            let has_answer = a.packets > 0 && b.packets > 0;
            return if has_answer { FlowState::Established } else { FlowState::New };
        }
        match self.connections[slot.index()].state() {
            TcpState::None | TcpState::SynSent | TcpState::SynReceived => FlowState::New,
            TcpState::TimeWait | TcpState::Closed => FlowState::Closed,
            _ => FlowState::Established,
        }
    }

    /// A flow ends because of its time-out, or earlier for another reason.
    fn end(&mut self, slot: Slot, key: &FlowKey, hot: Hot, reason: Reason) {
        let end_ns = self.cold.get(slot.index()).map_or(0, |cold| cold.end_ns);
        let time_ns = match reason {
            Reason::Timeout => end_ns.saturating_add(self.timeouts.of(key.protocol, hot.state)),
            _ => end_ns,
        };
        self.end_at(slot, key, hot, reason, time_ns);
    }

    fn end_at(&mut self, slot: Slot, key: &FlowKey, hot: Hot, reason: Reason, time_ns: u64) {
        let at = slot.index();
        // A flow whose packets were all wrong.
        if self.cold.get(at).is_none_or(|cold| cold.id == 0) {
            return;
        }
        let client = self.client(slot, key);
        if hot.is_tcp {
            let flow = Self::identity(&self.cold[at], key, client);
            let module = &mut self.module;
            let mut sink = Streams { module, flow, state: &mut self.states[at], time_ns };
            self.reassembler.close(&mut self.connections[at], &mut sink);
        }
        let reason = match (reason, hot.state) {
            (Reason::Timeout | Reason::Shutdown, FlowState::Closed) => Reason::Closed,
            _ => reason,
        };
        let record = self.record(slot, key, hot, reason);
        self.module.ended(&record, client, &mut self.states[at], time_ns);
        self.cold[at].id = 0;
        self.states[at] = M::State::default();
    }

    fn client(&self, slot: Slot, key: &FlowKey) -> Side {
        match key.protocol == IpProtocol::TCP.0 {
            true => self.connections[slot.index()].client(),
            false => self.cold[slot.index()].first,
        }
    }

    fn record(&self, slot: Slot, key: &FlowKey, hot: Hot, reason: Reason) -> FlowRecord {
        let at = slot.index();
        let (cold, connection) = (&self.cold[at], &self.connections[at]);
        let client = self.client(slot, key);
        let is_tcp = hot.is_tcp;
        let side = |side: Side| {
            let SideCounts { packets, bytes, ip_bytes, tcp_flags, ttl } = cold.sides[side.index()];
            let mut own =
                SideRecord { packets, bytes, ip_bytes, ttl, tcp_flags, ..SideRecord::default() };
            if is_tcp {
                connection.report(side, &mut own);
            }
            own
        };
        FlowRecord {
            id: cold.id,
            client: key.address(client),
            server: key.address(client.other()),
            client_port: key.port(client),
            server_port: key.port(client.other()),
            protocol: key.protocol,
            icmp: cold.icmp,
            vlans: cold.vlans,
            port: cold.port,
            start_ns: cold.start_ns,
            end_ns: cold.end_ns,
            sides: [side(client), side(client.other())],
            state: hot.state,
            reason,
            tcp: is_tcp.then(|| connection.state()),
            handshake_rtt_ns: connection.handshake_rtt_ns().filter(|_| is_tcp),
        }
    }
}

/// Hands the streams of one connection to the module.
struct Streams<'a, M: Module> {
    module: &'a mut M,
    flow: Identity,
    state: &'a mut M::State,
    time_ns: u64,
}

impl<M: Module> Sink for Streams<'_, M> {
    fn data(&mut self, side: Side, offset: u64, bytes: &[u8]) -> Want {
        self.module.data(&self.flow, self.state, side, offset, bytes)
    }

    fn gap(&mut self, side: Side, offset: u64, bytes: u64) {
        self.module.gap(&self.flow, self.state, side, offset, bytes, self.time_ns);
    }

    fn end(&mut self, side: Side, offset: u64, end: End) {
        self.module.end_of_side(&self.flow, self.state, side, offset, end);
    }

    fn event(&mut self, side: Side, event: Event) {
        self.module.event(&self.flow, self.state, side, event, self.time_ns);
    }
}

/// The key of a packet, and the side that sent it; a key of family 0 for what belongs to no flow.
#[inline(always)] // so that neither is written to memory only to be read at once
fn key_of(input: &Input<'_>, by_vlan: bool) -> (FlowKey, Side) {
    let d = input.decoded;
    let is_whole = d.is_ip()
        && !d.has(Decoded::FRAGMENT)
        && matches!(
            d.anomaly,
            Anomaly::None | Anomaly::MartianSource | Anomaly::MartianDestination
        );
    if !is_whole {
        return <_>::default();
    }
    let ports = match (d.ports(), d.protocol) {
        (Some(ports), _) => ports,
        (None, IpProtocol::TCP | IpProtocol::UDP) => return <_>::default(),
        (None, IpProtocol::ICMP | IpProtocol::ICMPV6) => {
            let id = echo_id(input);
            (id, id)
        }
        (None, _) => (0, 0),
    };
    // 0 is no tag.
    let vlan = |n: usize| match by_vlan && usize::from(d.vlan_count) > n {
        true => u32::from(d.vlan_tci[n] & 0xfff) + 1,
        false => 0,
    };
    let scope = vlan(0) | vlan(1) << 16;
    let family = if d.kind == Kind::Ipv4 { 4 } else { 6 };
    FlowKey::new((d.src, ports.0), (d.dst, ports.1), d.protocol.0, family, scope)
}

/// The identifier of an echo, a timestamp or the like (RFC 792, RFC 4443); 0 for other messages.
fn echo_id(input: &Input<'_>) -> u16 {
    let d = input.decoded;
    let has_id = match (d.kind, d.icmp_type_code()) {
        (Kind::Ipv4, Some((kind, _))) => matches!(kind, 0 | 8 | 13..=18),
        (_, Some((kind, _))) => matches!(kind, 128 | 129),
        (_, None) => false,
    };
    let at = usize::from(d.l4_offset) + 4;
    let bytes = input.frame.get(at..at + 2).filter(|_| has_id);
    bytes.map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
}

enum Bad {
    Header,
    Checksum,
}

/// The TCP segment of a packet, without padding of the link.
#[inline(always)] // as above
fn segment_of<'a>(input: &Input<'a>) -> Result<Segment<'a>, Bad> {
    let d = input.decoded;
    let end = d.l3_end().min(input.frame.len());
    let bytes = input.frame.get(usize::from(d.l4_offset)..end).ok_or(Bad::Header)?;
    let view = TcpView::new_checked(bytes).ok_or(Bad::Header)?;
    let is_cut = d.l3_end() > input.frame.len();
    if input.checksums && !is_cut {
        let (protocol, len) = (IpProtocol::TCP, bytes.len());
        let pseudo = match (d.src_ip(), d.dst_ip()) {
            (Some(IpAddr::V4(src)), Some(IpAddr::V4(dst))) => {
                pseudo_header_v4(src, dst, protocol, len as u16)
            }
            (Some(IpAddr::V6(src)), Some(IpAddr::V6(dst))) => {
                pseudo_header_v6(src, dst, protocol, len as u32)
            }
            _ => return Err(Bad::Header),
        };
        if !view.is_checksum_correct(pseudo) {
            return Err(Bad::Checksum);
        }
    }
    Ok(Segment::from(&view))
}

/// The number of a flow.
fn id_of(key: &FlowKey, start_ns: u64) -> u64 {
    let [a, b] = key.addresses;
    let ports = u64::from(key.ports[0]) << 16 | u64::from(key.ports[1]);
    let rest = ports << 8 | u64::from(key.protocol);
    let mut hash = chunk::hash::key128(a, start_ns);
    hash = chunk::hash::key128([b[0] ^ hash, b[1]], rest);
    chunk::hash::key64(hash ^ u64::from(key.scope), 0).max(1)
}

/// Milliseconds, for the table; they wrap around.
fn ms_of(ns: u64) -> u32 {
    (ns / 1_000_000) as u32
}
