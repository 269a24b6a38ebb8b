//! What is kept of flows beside the table, from their first packet to their record. [`usual`] has the short way of most packets.

mod usual;

use interleave::{prefetch, prefetch_at};
use packet::IpProtocol;
use packet::tunnel::Path;

use super::input::Input;
use super::module::{Identity, Module, OfFlow, Unseen};
use super::timeouts::{ByPhase, Phase};
use super::tracked::{PacketState, Tracked};
use super::{Options, Row};
use crate::helper::{Helpers, Reading};
use crate::key::{FlowKey, Side};
use crate::record::{FlowRecord, FlowState, Reason, SideRecord};
use crate::table::{Class, Found, Policy, Slot, TableError, reserved};
use crate::tcp::{
    self, Again, Connection, Conntrack, End, Event, Reassembler, Segment, Sink, Want,
};

/// In the line of the flow, beside its key.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hot {
    /// Idle time-out of its state, in milliseconds.
    pub(super) timeout_ms: u32,
    pub(super) phase: Phase,
    pub(super) is_tcp: bool,
    /// Its first packet is on its way: whether it gets through is not known yet.
    pub(super) is_undecided: bool,
    /// It holds its place: of a firewall only what both ends have sent packets of.
    pub(super) is_firm: bool,
    /// It has announced another flow, in a packet that is on its way.
    pub(super) is_announcing: bool,
    /// It is passed over, as long as what decided that has this number; 0: it is not.
    pub(super) passing: u32,
    /// No packet has begun it: those of the batch so far may not. It goes with the batch.
    pub(super) is_void: bool,
    /// The table has the time of its last packet, since one came that does not count; of others the time of the batch.
    pub(super) is_early: bool,
}

/// What was counted of a side lately: see [`SideCounts`].
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Lately {
    packets: u32,
    bytes: u32,
    ip_bytes: u32,
    tcp_flags: u16,
    ttl: (u8, u8),
}

/// What was counted of a side before.
#[derive(Clone, Copy, Debug, Default)]
struct SideCounts {
    packets: u64,
    bytes: u64,
    ip_bytes: u64,
}

/// What each packet reads and writes of its flow, beside the table and the connection: one line.
///
/// ```text
///  id 8 │ start 8 │ end 8 │ side A 16 │ side B 16 │ first 1, announced 1
/// ```
///
/// Counters have 32 bits. What they cannot hold moves to [`Cold`], but for one packet: a side that has sent packets has some
/// here.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Warm {
    id: u64,
    start_ns: u64,
    end_ns: u64,
    sides: [Lately; 2],
    first: Side,
    /// Another flow has announced it.
    is_announced: bool,
}

const _: () = assert!(size_of::<Warm>() == 64);

impl Warm {
    const NONE: Warm = Warm {
        id: 0,
        start_ns: 0,
        end_ns: 0,
        sides: [Lately { packets: 0, bytes: 0, ip_bytes: 0, tcp_flags: 0, ttl: (0, 0) }; 2],
        first: Side::A,
        is_announced: false,
    };

    fn has_sent(&self, side: Side) -> bool {
        self.sides[side.index()].packets > 0
    }
}

/// What packets need of a flow, side by side: on one page.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Record {
    warm: Warm,
    connection: Connection,
}

/// The rest of a flow, which few packets need.
#[derive(Clone, Debug)]
struct Cold {
    /// The time of the packet that began it, and how many flows of its key before it began at the same time.
    begin_ns: u64,
    before: u32,
    /// When the period began of which it was not reported yet.
    period_ns: u64,
    /// What was counted before, of the few flows whose [`Lately`] was full; and ICMP errors about it, but for a firewall.
    sides: Option<Box<[SideCounts; 2]>>,
    vlans: [u16; 2],
    icmp: Option<(u8, u8)>,
    port: u16,
    /// Of its first packet.
    tunnels: Path,
    /// ICMP errors about it.
    errors: u32,
    /// Number of the flow that announced it; 0 for none.
    announced_by: u64,
}

impl Cold {
    const NONE: Cold = Cold {
        begin_ns: 0,
        before: 0,
        period_ns: 0,
        sides: None,
        vlans: [0; 2],
        icmp: None,
        port: 0,
        tunnels: Path::NONE,
        errors: 0,
        announced_by: 0,
    };
}

/// Slots by which the arrays grow.
const LENGTHEN: usize = 64;

/// What flows have beside the table, so that a table under work can report an evicted one.
pub(super) struct Rest<M: Module> {
    records: Vec<Record>,
    cold: Vec<Cold>,
    states: Vec<M::State>,
    pub(super) reassembler: Reassembler,
    pub(super) module: M,
    pub(super) timeouts: ByPhase,
    pub(super) helpers: Helpers,
    /// How often flows that go on are reported.
    active_ns: Option<u64>,
    /// Flows that ended because they were idle.
    pub(super) timed_out: u64,
    /// The module passes over the flow of the last segment.
    pub(super) passes: bool,
}

impl<M: Module> Rest<M> {
    /// For so many flows; pages of memory are taken when flows need them.
    ///
    /// # Errors
    /// There is not so much.
    pub(super) fn new(
        options: &Options,
        reassembler: Reassembler,
        module: M,
    ) -> Result<Self, TableError> {
        let &Options { flows, timeouts, active_ns, helpers, confirms, .. } = options;
        let (records, cold, states) = (reserved(flows)?, reserved(flows)?, reserved(flows)?);
        Ok(Self {
            records,
            cold,
            states,
            reassembler,
            module,
            timeouts: timeouts.by_phase(),
            helpers: Helpers::new(helpers, confirms),
            active_ns: active_ns.map(|ns| ns.max(1)),
            timed_out: 0,
            passes: false,
        })
    }

    /// Memory that it reserves for so many flows, in bytes.
    pub(super) fn memory_bytes(flows: usize) -> usize {
        let flow = size_of::<Record>() + size_of::<Cold>() + size_of::<M::State>();
        flows.saturating_mul(flow)
    }

    /// Asks for what a packet in order reads and writes of its flow beside the table.
    #[inline(always)]
    pub(super) fn prefetch(&self, found: Found) {
        let record = found.slot().and_then(|slot| self.records.get(slot.index()));
        if let Some(Record { warm, connection }) = record {
            prefetch(warm);
            prefetch_at(connection); // its first line
        }
    }

    /// Asks for what the end of a flow reads.
    #[inline(always)]
    pub(super) fn prefetch_end(&self, slot: Slot) {
        if let Some(Record { warm, connection }) = self.records.get(slot.index()) {
            prefetch(warm);
            prefetch(connection);
        }
        if let Some(cold) = self.cold.get(slot.index()) {
            prefetch(cold);
        }
    }

    /// Whether the data of a packet that `side` sends is likely to be copied, because other data waits already. Then it asks for
    /// what that reads and writes of the connection, too.
    #[inline(always)]
    pub(super) fn copies(&self, found: Found, side: Side) -> bool {
        let record = found.slot().and_then(|slot| self.records.get(slot.index()));
        let connection = record.map(|own| &own.connection);
        let Some(connection) = connection.filter(|own| own.waits(side)) else { return false };
        prefetch(connection);
        self.reassembler.prefetch_lists(connection);
        true
    }

    /// Asks for what waits of a side, where something does.
    #[inline(always)]
    pub(super) fn prefetch_waiting(&self, found: Found, side: Side) {
        let record = found.slot().and_then(|slot| self.records.get(slot.index()));
        let connection = record.map(|own| &own.connection);
        if let Some(connection) = connection.filter(|own| own.waits(side)) {
            self.reassembler.prefetch(connection, side);
        }
    }

    /// Makes the arrays long enough for a slot.
    #[inline(always)]
    pub(super) fn make_place(&mut self, slot: Slot) {
        let len = slot.index() + 1;
        if self.records.len() >= len {
            return;
        }
        self.lengthen(len);
    }

    /// By several slots at once, within what is reserved: slots are taken one after the other.
    #[cold]
    fn lengthen(&mut self, len: usize) {
        let len = len.next_multiple_of(LENGTHEN).min(self.records.capacity()).max(len);
        let none = || Record { warm: Warm::NONE, connection: Connection::new(Side::A) };
        self.records.resize_with(len, none);
        self.cold.resize(len, Cold::NONE);
        self.states.resize_with(len, M::State::default);
    }

    /// Begins a flow; `is_next`: right after another one with its key.
    pub(super) fn begin(
        &mut self,
        slot: Slot,
        key: &FlowKey,
        side: Side,
        input: &Input<'_>,
        is_next: bool,
    ) {
        let d = input.decoded;
        let at = slot.index();
        let vlan = |n: usize| if usize::from(d.vlan_count) > n { d.vlan_tci[n] & 0xfff } else { 0 };
        let Cold { begin_ns, before, .. } = self.cold[at];
        let before = if is_next && begin_ns == input.time_ns { before + 1 } else { 0 };
        self.records[at].warm = Warm {
            id: id_of(key, input.time_ns, before),
            start_ns: input.time_ns,
            end_ns: input.time_ns,
            first: side,
            ..Warm::NONE
        };
        self.cold[at] = Cold {
            begin_ns: input.time_ns,
            before,
            period_ns: input.time_ns,
            vlans: [vlan(0), vlan(1)],
            icmp: d.icmp_type_code(),
            port: input.port,
            tunnels: input.tunnels.copied().unwrap_or_default(),
            ..Cold::NONE
        };
        self.records[at].connection = Connection::for_key(key, side);
        self.states[at] = M::State::default();
    }

    #[inline(always)]
    fn identity(warm: &Warm, key: &FlowKey, client: Side) -> Identity {
        OneFlow { warm, key, client }.identity()
    }

    /// Lets the module know of a packet, before its bytes.
    #[inline(always)]
    pub(super) fn packet(&mut self, key: &FlowKey, packet: &OfFlow<'_>) {
        let at = packet.slot.index();
        let flow = Self::identity(&self.records[at].warm, key, self.client(packet.slot, key));
        self.module.packet(&flow, &mut self.states[at], packet);
    }

    /// A segment that was given to the module is no part of a stream.
    #[cold]
    pub(super) fn unread(&mut self, key: &FlowKey, packet: &OfFlow<'_>) {
        let at = packet.slot.index();
        let flow = Self::identity(&self.records[at].warm, key, self.client(packet.slot, key));
        self.module.unread(&flow, &mut self.states[at], packet);
    }

    /// A fragment of a segment passes by itself.
    #[cold]
    pub(super) fn note_fragment(&mut self, slot: Slot, key: &FlowKey, side: Side) {
        if key.protocol == IpProtocol::TCP.0 {
            self.records[slot.index()].connection.note_fragment(side);
        }
    }

    pub(super) fn about(&mut self, key: &FlowKey, error: &OfFlow<'_>) {
        let at = error.slot.index();
        let flow = Self::identity(&self.records[at].warm, key, self.client(error.slot, key));
        self.module.error(&flow, &mut self.states[at], error);
    }

    pub(super) fn datagram(&mut self, key: &FlowKey, whole: &OfFlow<'_>) {
        let at = whole.slot.index();
        let flow = Self::identity(&self.records[at].warm, key, self.client(whole.slot, key));
        self.module.datagram(&flow, &mut self.states[at], whole);
    }

    pub(super) fn segment(
        &mut self,
        slot: Slot,
        key: &FlowKey,
        side: Side,
        segment: &Segment<'_>,
        time_ns: u64,
    ) -> tcp::Outcome {
        let at = slot.index();
        let Record { warm, connection } = &mut self.records[at];
        let flow = OneFlow { warm, key, client: connection.client() };
        let module = &mut self.module;
        let helper = match (self.helpers.reads(key), segment.payload.is_empty()) {
            (false, _) => None,
            (true, true) => self.helpers.known(slot, connection.client()),
            (true, false) => self.helpers.reading(slot, key, flow.warm.id, connection),
        };
        let (state, passes) = (&mut self.states[at], &mut self.passes);
        *passes = false;
        let mut sink = Streams { module, flow, state, time_ns, helper, passes };
        self.reassembler.segment(connection, side, segment, time_ns, &mut sink)
    }

    /// Whether a segment of a flow that is passed over only carries the stream on, before the flow is over.
    #[inline(always)]
    pub(super) fn passes(
        &self,
        slot: Slot,
        side: Side,
        (segment, hot): (&Segment<'_>, &Hot),
        time_ns: u64,
    ) -> bool {
        let Some(Record { warm, connection }) = self.records.get(slot.index()) else {
            return false;
        };
        time_ns.saturating_sub(warm.end_ns) <= self.timeouts.of(hot.phase)
            && self.reassembler.passes(connection, side, segment)
    }

    /// Takes such a segment; what the packet is, and the phase behind it: all that may change is whether data waits to be
    /// acknowledged.
    #[inline(always)]
    pub(super) fn pass(
        &mut self,
        slot: Slot,
        side: Side,
        (segment, hot): (&Segment<'_>, &Hot),
        input: &Input<'_>,
    ) -> Option<(Tracked, Phase)> {
        let connection = &mut self.records.get_mut(slot.index())?.connection;
        let _ = self.reassembler.carry_on(connection, side, segment, input.time_ns);
        let phase = hot.phase.with_unacknowledged(connection.is_unacknowledged());
        self.count(slot, side, input, segment.flags, (1, input.frame_len.into()));
        Some((self.tracked(slot, side, true), phase))
    }

    #[inline(always)]
    pub(super) fn count(
        &mut self,
        slot: Slot,
        side: Side,
        input: &Input<'_>,
        tcp_flags: u16,
        (frames, bytes): (u64, u64),
    ) {
        let at = slot.index();
        let warm = &mut self.records[at].warm;
        let ttl = input.decoded.ttl;
        warm.end_ns = warm.end_ns.max(input.time_ns);
        warm.start_ns = warm.start_ns.min(input.time_ns);
        let own = &mut warm.sides[side.index()];
        own.ttl = match own.packets {
            0 => (ttl, ttl),
            _ => (own.ttl.0.min(ttl), own.ttl.1.max(ttl)),
        };
        own.tcp_flags |= tcp_flags;
        let packets = u64::from(own.packets) + frames;
        let bytes = u64::from(own.bytes) + bytes;
        let ip_bytes = u64::from(own.ip_bytes) + u64::from(input.decoded.ip_total_len);
        if (packets | bytes | ip_bytes) >> 32 != 0 {
            (own.packets, own.bytes, own.ip_bytes) = (1, 0, 0);
            let all = self.cold[at].sides.get_or_insert_default();
            let all = &mut all[side.index()];
            all.packets += packets - 1;
            all.bytes += bytes;
            all.ip_bytes += ip_bytes;
            return;
        }
        (own.packets, own.bytes, own.ip_bytes) = (packets as u32, bytes as u32, ip_bytes as u32);
    }

    /// What is known of the connection that a segment begins with the ends of this one.
    pub(super) fn again(&self, slot: Slot, segment: &Segment<'_>) -> Again {
        self.records[slot.index()].connection.again(segment)
    }

    /// Its SYN came while the one before was open.
    pub(super) fn begin_again(&mut self, slot: Slot, again: &Again) {
        self.records[slot.index()].connection.begin_again(again);
    }

    /// State of a TCP connection.
    pub(super) fn conntrack(&self, slot: Slot) -> Conntrack {
        self.records[slot.index()].connection.conntrack()
    }

    /// Which time-out it has.
    #[inline]
    pub(super) fn phase(&self, slot: Slot, key: &FlowKey) -> Phase {
        if key.protocol != IpProtocol::TCP.0 {
            return Phase::of_other(key.protocol, self.is_answered(slot));
        }
        let connection = &self.records[slot.index()].connection;
        Phase::of_tcp(connection.conntrack(), connection.is_unacknowledged())
    }

    /// What a packet is that the flow has just counted, by the rules of Linux's conntrack: an answer is established, and what
    /// the end sends that opened the flow once there was an answer.
    #[inline(always)]
    pub(super) fn tracked(&self, slot: Slot, side: Side, is_valid: bool) -> Tracked {
        let warm = &self.records[slot.index()].warm;
        let is_reply = side != warm.first;
        let has_answer = warm.has_sent(warm.first.other());
        let state = match (is_valid, has_answer) {
            (false, _) => PacketState::Invalid,
            (true, true) => PacketState::Established,
            (true, false) if warm.is_announced => PacketState::Related,
            (true, false) => PacketState::New,
        };
        Tracked { is_reply, slot: Some(slot), number: warm.id, ..Tracked::of(state) }
    }

    /// An ICMP error about a packet that `side` sent: it is on its way to that side.
    pub(super) fn error(&mut self, slot: Slot, side: Side) -> Tracked {
        let cold = &mut self.cold[slot.index()];
        cold.errors = cold.errors.saturating_add(1);
        let is_reply = side == self.records[slot.index()].warm.first;
        let state = PacketState::Related;
        Tracked { is_reply, slot: Some(slot), ..Tracked::of(state) }
    }

    /// Whether a side of a TCP connection may have sent a segment with this sequence number: one that nobody can guess who
    /// has not seen the connection (RFC 5927 §4).
    pub(super) fn may_have_sent(&self, slot: Slot, side: Side, sequence: u32) -> bool {
        self.records[slot.index()].connection.may_have_sent(side, sequence)
    }

    /// Whether both ends have sent packets.
    pub(super) fn is_answered(&self, slot: Slot) -> bool {
        Side::BOTH.into_iter().all(|side| self.records[slot.index()].warm.has_sent(side))
    }

    /// ICMP errors about it.
    pub(super) fn errors(&self, slot: Slot) -> u32 {
        self.cold[slot.index()].errors
    }

    /// Number of the flow that announced it.
    pub(super) fn announced_by(&self, slot: Slot) -> Option<u64> {
        let id = self.cold[slot.index()].announced_by;
        (id != 0).then_some(id)
    }

    /// `side` has begun it: another flow may have announced that.
    #[inline(always)]
    pub(super) fn relate(&mut self, slot: Slot, key: &FlowKey, side: Side, time_ns: u64) {
        if let Some(id) = self.helpers.announced(key, side, time_ns) {
            self.cold[slot.index()].announced_by = id;
            self.records[slot.index()].warm.is_announced = id != 0;
        }
    }

    /// Whether the segment of it that was taken announces flows, which its packet decides about.
    #[inline(always)]
    pub(super) fn announces(&mut self, slot: Slot, key: &FlowKey, time_ns: u64) -> bool {
        let client = self.records[slot.index()].connection.client();
        self.helpers.announces(slot, key, client, time_ns)
    }

    /// Its number.
    pub(super) fn id(&self, slot: Slot) -> u64 {
        self.records[slot.index()].warm.id
    }

    /// When its last packet came.
    pub(super) fn latest(&self, slot: Slot) -> u64 {
        self.records[slot.index()].warm.end_ns
    }

    /// The side that sent its first packet.
    pub(super) fn first(&self, slot: Slot) -> Side {
        self.records[slot.index()].warm.first
    }

    /// A flow never was: its first packet did not get through.
    pub(super) fn forget(&mut self, slot: Slot, hot: Hot) {
        let at = slot.index();
        if hot.is_tcp {
            self.reassembler.close(&mut self.records[at].connection, &mut Silence);
        }
        self.helpers.end(slot);
        self.never_was(slot);
    }

    /// A flow that the module has seen a packet of never was.
    pub(super) fn never_was(&mut self, slot: Slot) {
        let at = slot.index();
        self.module.never_was(self.records[at].warm.id);
        self.states[at] = M::State::default();
    }

    /// Whether a flow had ended by `now_ns`, because of its time-out.
    #[inline(always)]
    pub(super) fn is_over(&self, slot: Slot, hot: Hot, now_ns: u64) -> bool {
        let idle_ns = now_ns.saturating_sub(self.records[slot.index()].warm.end_ns);
        idle_ns > self.timeouts.of(hot.phase)
    }

    /// When it ends if nothing more comes, its start and its number.
    pub(super) fn end_of(&self, slot: Slot, hot: Hot, now_ns: u64) -> (u64, u64, u64) {
        let Warm { id, start_ns, end_ns, .. } = self.records[slot.index()].warm;
        let over_ns = end_ns.saturating_add(self.timeouts.of(hot.phase));
        (if over_ns < now_ns { over_ns } else { now_ns }, start_ns, id)
    }

    /// A flow ends because it was idle for its time-out.
    pub(super) fn time_out(&mut self, slot: Slot, key: &FlowKey, hot: Hot) {
        let end_ns = self.records[slot.index()].warm.end_ns;
        let time_ns = end_ns.saturating_add(self.timeouts.of(hot.phase));
        self.timed_out += 1;
        self.end_at(slot, key, hot, Reason::Timeout, time_ns);
    }

    pub(super) fn end_at(
        &mut self,
        slot: Slot,
        key: &FlowKey,
        hot: Hot,
        reason: Reason,
        time_ns: u64,
    ) {
        self.report(slot, key, hot, time_ns);
        let at = slot.index();
        let client = self.client(slot, key);
        if hot.is_tcp {
            let Record { warm, connection } = &mut self.records[at];
            let flow = OneFlow { warm, key, client };
            let module = &mut self.module;
            module.closing(&flow.identity());
            let helper = self.helpers.known(slot, client);
            let (state, passes) = (&mut self.states[at], &mut self.passes);
            let mut sink = Streams { module, flow, state, time_ns, helper, passes };
            self.reassembler.close(connection, &mut sink);
            self.helpers.end(slot);
        }
        let reason = match (reason, hot.phase.state()) {
            (_, FlowState::Closed) if reason != Reason::Active => Reason::Closed,
            _ => reason,
        };
        let record = self.record(slot, key, hot, reason);
        self.module.ended(&record, client, &mut self.states[at], time_ns);
        self.states[at] = M::State::default();
    }

    /// The module hears of a tunnel in too many others.
    #[inline(always)]
    pub(super) fn note_depth(&mut self, number: usize, input: &Input<'_>) {
        if input.tunnels.is_some_and(Path::is_too_deep) {
            self.module.not_looked_into(number, input, Unseen::TooDeep);
        }
    }

    /// Reports a flow that goes on, if its period is over at `now_ns` and it had packets in it. There was no packet between
    /// its last one and `now_ns`. What has closed does not go on: all that is left to say of it is said at its end.
    #[inline(always)]
    pub(super) fn report(&mut self, slot: Slot, key: &FlowKey, hot: Hot, now_ns: u64) {
        if let Some(active_ns) = self.active_ns
            && hot.phase.state() != FlowState::Closed
        {
            self.report_each(active_ns, slot, key, hot, now_ns);
        }
    }

    fn report_each(&mut self, active_ns: u64, slot: Slot, key: &FlowKey, hot: Hot, now_ns: u64) {
        let at = slot.index();
        let (warm, cold) = (&self.records[at].warm, &mut self.cold[at]);
        // It does not go on longer than its time-out, whenever a sweep finds it.
        let over_ns = warm.end_ns.saturating_add(self.timeouts.of(hot.phase));
        let since_ns = now_ns.min(over_ns).saturating_sub(cold.period_ns);
        if since_ns < active_ns {
            return;
        }
        let time_ns = cold.period_ns + active_ns;
        let had_packets = warm.end_ns >= cold.period_ns;
        cold.period_ns += since_ns - since_ns % active_ns;
        if had_packets {
            let record = self.record(slot, key, hot, Reason::Active);
            let client = self.client(slot, key);
            self.module.goes_on(&record, client, &mut self.states[at], time_ns);
        }
    }

    /// Whether the module passes over a flow, as what decides is now.
    fn is_passing(&self, hot: Hot) -> bool {
        hot.passing != 0 && hot.passing == self.module.passing()
    }

    #[inline(always)]
    pub(super) fn client(&self, slot: Slot, key: &FlowKey) -> Side {
        match key.protocol == IpProtocol::TCP.0 {
            true => self.records[slot.index()].connection.client(),
            false => self.records[slot.index()].warm.first,
        }
    }

    pub(super) fn record(&self, slot: Slot, key: &FlowKey, hot: Hot, reason: Reason) -> FlowRecord {
        let at = slot.index();
        let (Record { warm, connection }, cold) = (&self.records[at], &self.cold[at]);
        let client = self.client(slot, key);
        let is_tcp = hot.is_tcp;
        let side = |side: Side| {
            let lately = warm.sides[side.index()];
            let before = cold.sides.as_ref().map(|all| all[side.index()]).unwrap_or_default();
            let mut own = SideRecord {
                packets: before.packets + u64::from(lately.packets),
                bytes: before.bytes + u64::from(lately.bytes),
                ip_bytes: before.ip_bytes + u64::from(lately.ip_bytes),
                ttl: lately.ttl,
                tcp_flags: lately.tcp_flags,
                ..SideRecord::default()
            };
            if is_tcp {
                connection.report(side, &mut own);
            }
            own
        };
        FlowRecord {
            id: warm.id,
            client: key.address(client),
            server: key.address(client.other()),
            client_port: key.port(client),
            server_port: key.port(client.other()),
            protocol: key.protocol,
            icmp: cold.icmp,
            vlans: cold.vlans,
            tunnels: cold.tunnels,
            port: cold.port,
            start_ns: warm.start_ns,
            end_ns: warm.end_ns,
            sides: [side(client), side(client.other())],
            state: match hot.phase.state() {
                FlowState::Established | FlowState::Closed if self.is_passing(hot) => {
                    FlowState::Bypassed
                }
                state => state,
            },
            reason,
            tcp: is_tcp.then(|| connection.state()),
            handshake_rtt_ns: connection.handshake_rtt_ns().filter(|_| is_tcp),
            application: None,
            is_alerted: false,
        }
    }
}

/// Admits all flows, and reports those that are evicted.
pub(super) struct Admission<'a, M: Module> {
    pub(super) rest: &'a mut Rest<M>,
    pub(super) now_ns: u64,
    pub(super) rows: &'a [Row],
}

impl<M: Module> Policy<Hot> for Admission<'_, M> {
    /// An error opens no flow.
    fn admit(&mut self, row: usize) -> Option<Class> {
        self.rows.get(row).is_none_or(|row| row.about.is_none()).then_some(Class::HalfOpen)
    }

    fn evicted(&mut self, slot: Slot, key: &FlowKey, hot: &Hot) {
        let (rest, now_ns) = (&mut *self.rest, self.now_ns);
        if hot.is_undecided {
            rest.forget(slot, *hot);
        } else if rest.is_over(slot, *hot, now_ns) {
            rest.time_out(slot, key, *hot); // no sweep has found it yet
        } else {
            rest.end_at(slot, key, *hot, Reason::Evicted, now_ns);
        }
    }
}

/// Hears nothing.
struct Silence;

impl Sink for Silence {
    fn data(&mut self, _: Side, _: u64, _: &[u8]) -> Want {
        Want::EnoughOfFlow
    }

    fn gap(&mut self, _: Side, _: u64, _: u64) {}

    fn end(&mut self, _: Side, _: u64, _: End) {}
}

/// Which flow it is, as long as nobody asks.
#[derive(Clone, Copy)]
struct OneFlow<'a> {
    warm: &'a Warm,
    key: &'a FlowKey,
    client: Side,
}

impl OneFlow<'_> {
    #[inline(always)]
    fn identity(&self) -> Identity {
        let Warm { id, start_ns, end_ns, .. } = *self.warm;
        Identity { key: *self.key, id, start_ns, latest_ns: end_ns, client: self.client }
    }
}

/// Hands the streams of one connection to the module.
struct Streams<'a, M: Module> {
    module: &'a mut M,
    flow: OneFlow<'a>,
    state: &'a mut M::State,
    time_ns: u64,
    /// It is a control flow.
    helper: Option<Reading<'a>>,
    /// Whether the module passes over the flow.
    passes: &'a mut bool,
}

impl<M: Module> Streams<'_, M> {
    /// The helper wants all bytes; the module may have had enough of a side.
    fn is_enough(&self, side: Side) -> bool {
        self.helper.as_ref().is_some_and(|helper| helper.is_enough(side))
    }

    /// Bytes for both.
    #[cold]
    fn read(&mut self, side: Side, offset: u64, bytes: &[u8]) {
        let Some(helper) = &mut self.helper else { return };
        helper.data(side, offset, bytes);
        if helper.is_enough(side) {
            return;
        }
        let enough = match self.module.data(&self.flow.identity(), self.state, side, offset, bytes)
        {
            Want::More | Want::PassOver => &[][..],
            Want::EnoughOfSide => &[side],
            Want::EnoughOfFlow => &Side::BOTH,
        };
        for &side in enough {
            if helper.is_enough(side) {
                continue;
            }
            helper.set_enough(side);
            let offset = helper.offset(side);
            self.module.end_of_side(&self.flow.identity(), self.state, side, offset, End::Enough);
        }
    }
}

impl<M: Module> Sink for Streams<'_, M> {
    fn data(&mut self, side: Side, offset: u64, bytes: &[u8]) -> Want {
        if self.helper.is_some() {
            self.read(side, offset, bytes);
            return Want::More;
        }
        let want = self.module.data(&self.flow.identity(), self.state, side, offset, bytes);
        *self.passes = want == Want::PassOver;
        want
    }

    fn gap(&mut self, side: Side, offset: u64, bytes: u64) {
        if let Some(helper) = &mut self.helper {
            helper.gap(side, offset, bytes);
        }
        if !self.is_enough(side) {
            self.module.gap(&self.flow.identity(), self.state, side, offset, bytes, self.time_ns);
        }
    }

    fn end(&mut self, side: Side, offset: u64, end: End) {
        if self.is_enough(side) {
            return; // it was told
        }
        self.module.end_of_side(&self.flow.identity(), self.state, side, offset, end);
    }

    fn event(&mut self, side: Side, event: Event) {
        self.module.event(&self.flow.identity(), self.state, side, event, self.time_ns);
    }
}

/// The number of a flow; `before`: flows of its key that began before it, at the same time.
fn id_of(key: &FlowKey, start_ns: u64, before: u32) -> u64 {
    let [a, b] = key.addresses;
    let ports = u64::from(key.ports[0]) << 16 | u64::from(key.ports[1]);
    let rest = ports << 8 | u64::from(key.protocol);
    let mut hash = chunk::hash::key128(a, start_ns);
    hash = chunk::hash::key128([b[0] ^ hash, b[1]], rest);
    if key.tunnels != 0 {
        let tunnels = u64::from(key.tunnels) << 32 | u64::from(key.tunnel_id);
        hash = chunk::hash::key64(hash ^ tunnels, rest);
    }
    chunk::hash::key64(hash ^ u64::from(key.scope), u64::from(before) << 32).max(1)
}
