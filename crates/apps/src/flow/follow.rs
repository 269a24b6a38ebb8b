//! Who hears of flows.
//!
//! The tracker of a worker has one module, [`Followers`]: it hands all it hears on to followers, of which each keeps
//! something of its own for a flow. A [`Listener`] makes the followers of all workers: that of the configuration's events,
//! and one that the program attaches ([`controlplane::Setup::attached`]), such as `shadeline streams`.
//!
//! Threads: a follower belongs to its worker. A listener is shared.

use std::any::Any;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use controlplane::PartId;
use stream::table::Slot;
use stream::tcp::{End, Event, Segment, Want};
use stream::tracker::{Fragments, Identity, Input, Module, OfFlow, Passed, Reject, Unseen};
use stream::{FlowRecord, Side};

use super::search::LiteralPart;
use crate::firewall::refused::Refused;

/// What a follower keeps for one flow; nothing until it puts something there.
pub type Kept = Option<Box<dyn Any + Send>>;

/// Where a packet is, and its flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its row in the chunk.
    pub row: usize,
    /// The place of its flow in the table.
    pub slot: Slot,
    /// The addresses of the frame's bytes, by which bytes of a stream are found in it; those of other packets and of
    /// datagrams in fragments are elsewhere. Nothing where nobody [asks](Follower::asks_for_frames) and packets were not searched.
    pub frame: Range<usize>,
    /// The number of the literals of which none is in its bytes behind the headers; 0: not known (see [`search`](super::search)).
    pub clean: u32,
}

/// Hears of the flows of one worker.
pub trait Follower: Send {
    /// The packets of another chunk follow; the number of the call, which is not 0, is in their columns
    /// ([`FlowColumns::flow_call`](super::FlowColumns)).
    fn begin(&mut self, _call: u32) {}

    /// Whether [`Place::frame`] matters to it where packets were not searched.
    fn asks_for_frames(&self) -> bool {
        false
    }

    /// A packet belongs to a flow: see [`Module::packet`].
    fn packet(&mut self, _flow: &Identity, _kept: &mut Kept, _at: &Place, _packet: &OfFlow<'_>) {}

    /// The segment that was given last is no part of a stream: see [`Module::unread`].
    fn unread(&mut self, _flow: &Identity, _kept: &mut Kept, _packet: &OfFlow<'_>) {}

    /// A datagram is whole whose fragments are passed on by themselves: see [`Module::datagram`].
    fn datagram(&mut self, _flow: &Identity, _kept: &mut Kept, _at: &Place, _whole: &OfFlow<'_>) {}

    /// An ICMP error is about a packet of the flow: see [`Module::error`].
    fn error(&mut self, _flow: &Identity, _kept: &mut Kept, _at: &Place, _error: &OfFlow<'_>) {}

    /// The flow ends: see [`Module::closing`].
    fn closing(&mut self, _flow: &Identity) {}

    /// It does not matter to it whether further packets of a flow are passed over ([`Want::PassOver`]): it needs neither packets nor
    /// bytes of it any more.
    fn is_indifferent(&self, _kept: &Kept) -> bool {
        false
    }

    /// The number of what decides which flows it passes over: see [`Module::passing`].
    fn passing(&self) -> u32 {
        0
    }

    /// Whether it looks at a segment of a flow that is passed over: see [`Module::looks_at`].
    fn looks_at(&self, _input: &Input<'_>, _segment: &Segment<'_>) -> bool {
        false
    }

    /// Packets of flows that are passed over: see [`Module::passed`].
    fn passed(&mut self, _packets: &Passed) {}

    /// Bytes of a side of a TCP connection, in order. A flow is passed over if all who are not indifferent pass over it.
    fn data(
        &mut self,
        _flow: &Identity,
        _kept: &mut Kept,
        _side: Side,
        _offset: u64,
        _bytes: &[u8],
    ) -> Want {
        Want::More
    }

    /// Bytes that will not come.
    fn gap(
        &mut self,
        _flow: &Identity,
        _kept: &mut Kept,
        _side: Side,
        _offset: u64,
        _bytes: u64,
        _time_ns: u64,
    ) {
    }

    /// Nothing more of a side follows; `offset` is the end of it.
    fn end_of_side(
        &mut self,
        _flow: &Identity,
        _kept: &mut Kept,
        _side: Side,
        _offset: u64,
        _end: End,
    ) {
    }

    /// Something notable about a segment.
    fn event(
        &mut self,
        _flow: &Identity,
        _kept: &mut Kept,
        _side: Side,
        _event: Event,
        _time_ns: u64,
    ) {
    }

    /// A flow goes on; the record has its totals as of `time_ns`, in nanoseconds since 1970.
    fn goes_on(&mut self, _record: &FlowRecord, _client: Side, _kept: &mut Kept, _time_ns: u64) {}

    /// The application of a flow that is about to be reported, by its name, if the follower knows it. The others read it in
    /// the record.
    fn application(&mut self, _record: &FlowRecord, _kept: &mut Kept) -> Option<&'static str> {
        None
    }

    /// Whether it has raised an alert for a flow that is about to be reported. The others read it in the record.
    fn is_alerted(&mut self, _record: &FlowRecord, _kept: &mut Kept) -> bool {
        false
    }

    /// A packet belongs to no flow. It is in this row of the chunk; none where a stage before has dropped it.
    fn rejected(&mut self, _row: Option<usize>, _input: &Input<'_>, _why: Reject) {}

    /// The packet of a row has a tunnel in it that is not looked into: see [`Module::not_looked_into`].
    fn not_looked_into(&mut self, _row: usize, _input: &Input<'_>, _why: Unseen) {}

    /// A fragment has come: see [`Module::fragment`]. Returns whether it is dropped behind this stage, so that it need not be held
    /// back for its datagram.
    fn fragment(&mut self, _row: usize, _input: &Input<'_>) -> bool {
        false
    }

    /// A datagram of fragments is whole or has failed: see [`Module::fragments`].
    fn fragments(&mut self, _fragments: &Fragments) -> bool {
        false
    }

    /// The flow of this number never was: the packet that opened it was dropped. Its end is not reported.
    fn never_was(&mut self, _flow: u64) {}

    /// A flow has ended, and is about to be reported: nothing of it follows.
    fn ending(&mut self, _record: &FlowRecord, _kept: &mut Kept, _time_ns: u64) {}

    /// A flow has ended, at `time_ns` nanoseconds since 1970.
    fn ended(&mut self, _record: &FlowRecord, _client: Side, _kept: &mut Kept, _time_ns: u64) {}

    /// Whether it hears of packets that rules of a firewall drop.
    fn asks_for_refused(&self) -> bool {
        false
    }

    /// A rule of a firewall has dropped a packet; with the number of its flow, if it has one.
    fn refused(&mut self, _packet: &Refused, _flow: Option<u64>) {}

    /// A chunk is through. No flow ends before `time_ns` any more, except for packets that were captured out of order.
    fn advanced(&mut self, _time_ns: u64) {}

    /// The worker ends all flows at the end of its input, in the order of time, start and number; none before this one follows.
    fn ends_from(&mut self, _next: (u64, u64, u64)) {}

    /// There are no more flows.
    fn finished(&mut self) {}
}

/// Makes followers.
pub trait Listener: Send + Sync {
    /// That of a worker; `workers` is how many there are.
    fn follower(&self, worker: usize, workers: usize) -> Box<dyn Follower>;

    /// The same for one that shares something with another stage of the pipeline at that worker, from 0.
    fn follower_in(
        &self,
        _pipeline: &str,
        _at: usize,
        number: (usize, usize),
    ) -> Box<dyn Follower> {
        self.follower(number.0, number.1)
    }

    /// The stage for which its followers leave something: pipelines without it have none of them.
    fn stage(&self) -> Option<&'static str> {
        None
    }

    /// Literals for which its followers search bytes: a stage before the tracker may search packets for all of them
    /// ([`search`](super::search)).
    fn literals(&self) -> Option<PartId<LiteralPart>> {
        None
    }
}

/// A listener that the program attaches.
#[derive(Clone)]
pub struct Attached(pub Arc<dyn Listener>);

/// What the tracker has as its module.
pub struct Followers {
    pub(super) all: Vec<Box<dyn Follower>>,
    /// By packet of the batch at hand: its row in the chunk.
    pub(super) rows: Vec<u16>,
    /// By packet, too: the addresses of its frame. None where nobody asks for them.
    pub(super) frames: Vec<Range<usize>>,
    /// By packet, where packets were searched: see [`Place::clean`].
    pub(super) clean: Vec<u32>,
}

/// What followers keep for a flow: that of the first one in place, for most often there is no other.
#[derive(Default)]
pub struct KeptByAll {
    first: Kept,
    others: Box<[Kept]>,
}

impl KeptByAll {
    #[inline]
    fn of(&mut self, follower: usize) -> &mut Kept {
        let Some(at) = follower.checked_sub(1) else { return &mut self.first };
        if self.others.len() <= at {
            self.lengthen(at + 1);
        }
        &mut self.others[at]
    }

    #[cold]
    fn lengthen(&mut self, len: usize) {
        let mut others = std::mem::take(&mut self.others).into_vec();
        others.resize_with(len, || None);
        self.others = others.into();
    }
}

impl Followers {
    /// These.
    pub fn new(all: Vec<Box<dyn Follower>>) -> Self {
        Self { all, rows: Vec::new(), frames: Vec::new(), clean: Vec::new() }
    }

    /// A fragment has come, in this row of the chunk; whether it is dropped behind this stage.
    pub(super) fn fragment_in(&mut self, row: usize, input: &Input<'_>) -> bool {
        let own = self.all.iter_mut().map(|follower| follower.fragment(row, input));
        own.fold(false, |all, own| all | own)
    }

    /// The record, with what followers know of the flow.
    fn completed<'a>(
        &mut self,
        record: &'a FlowRecord,
        state: &mut KeptByAll,
    ) -> Cow<'a, FlowRecord> {
        let all = self.all.iter_mut().enumerate();
        let application =
            { all }.find_map(|(at, follower)| follower.application(record, state.of(at)));
        let mut all = self.all.iter_mut().enumerate();
        let is_alerted = all.any(|(at, follower)| follower.is_alerted(record, state.of(at)));
        match application.is_some() || is_alerted {
            true => Cow::Owned(FlowRecord { application, is_alerted, ..record.clone() }),
            false => Cow::Borrowed(record),
        }
    }
}

impl Module for Followers {
    type State = KeptByAll;

    fn packet(&mut self, flow: &Identity, state: &mut KeptByAll, packet: &OfFlow<'_>) {
        if self.all.is_empty() {
            return;
        }
        let number = packet.number;
        let row = self.rows[number].into();
        let frame = self.frames.get(number).cloned().unwrap_or_default();
        let clean = self.clean.get(number).copied().unwrap_or_default();
        let place = Place { row, slot: packet.slot, frame, clean };
        for (at, follower) in self.all.iter_mut().enumerate() {
            follower.packet(flow, state.of(at), &place, packet);
        }
    }

    fn unread(&mut self, flow: &Identity, state: &mut KeptByAll, packet: &OfFlow<'_>) {
        for (at, follower) in self.all.iter_mut().enumerate() {
            follower.unread(flow, state.of(at), packet);
        }
    }

    fn datagram(&mut self, flow: &Identity, state: &mut KeptByAll, whole: &OfFlow<'_>) {
        // Its bytes are in no frame.
        let (row, slot) = (self.rows[whole.number].into(), whole.slot);
        let place = Place { row, slot, frame: 0..0, clean: 0 };
        for (at, follower) in self.all.iter_mut().enumerate() {
            follower.datagram(flow, state.of(at), &place, whole);
        }
    }

    fn error(&mut self, flow: &Identity, state: &mut KeptByAll, error: &OfFlow<'_>) {
        let (row, slot) = (self.rows[error.number].into(), error.slot);
        let place = Place { row, slot, frame: 0..0, clean: 0 };
        for (at, follower) in self.all.iter_mut().enumerate() {
            follower.error(flow, state.of(at), &place, error);
        }
    }

    fn reads(&self) -> bool {
        !self.all.is_empty()
    }

    fn closing(&mut self, flow: &Identity) {
        self.all.iter_mut().for_each(|follower| follower.closing(flow));
    }

    fn data(
        &mut self,
        flow: &Identity,
        state: &mut KeptByAll,
        side: Side,
        offset: u64,
        bytes: &[u8],
    ) -> Want {
        let mut want = Want::EnoughOfFlow;
        let (mut passing, mut others) = (0, 0);
        for (at, follower) in self.all.iter_mut().enumerate() {
            let own = follower.data(flow, state.of(at), side, offset, bytes);
            match own {
                Want::PassOver => passing += 1,
                _ => others += usize::from(!follower.is_indifferent(state.of(at))),
            }
            want = match (want, own) {
                (Want::More | Want::PassOver, _) | (_, Want::More | Want::PassOver) => Want::More,
                (Want::EnoughOfSide, _) | (_, Want::EnoughOfSide) => Want::EnoughOfSide,
                _ => Want::EnoughOfFlow,
            };
        }
        if passing > 0 && others == 0 {
            return Want::PassOver;
        }
        // Without anybody who reads, records still say what was there.
        if self.all.is_empty() { Want::More } else { want }
    }

    fn passing(&self) -> u32 {
        self.all.iter().fold(0, |all, own| all.wrapping_add(own.passing()))
    }

    fn looks_at(&self, input: &Input<'_>, segment: &Segment<'_>) -> bool {
        self.all.iter().any(|follower| follower.looks_at(input, segment))
    }

    fn passed(&mut self, packets: &Passed) {
        self.all.iter_mut().for_each(|follower| follower.passed(packets));
    }

    fn gap(
        &mut self,
        flow: &Identity,
        state: &mut KeptByAll,
        side: Side,
        offset: u64,
        bytes: u64,
        time_ns: u64,
    ) {
        for (at, follower) in self.all.iter_mut().enumerate() {
            follower.gap(flow, state.of(at), side, offset, bytes, time_ns);
        }
    }

    fn end_of_side(
        &mut self,
        flow: &Identity,
        state: &mut KeptByAll,
        side: Side,
        offset: u64,
        end: End,
    ) {
        for (at, follower) in self.all.iter_mut().enumerate() {
            follower.end_of_side(flow, state.of(at), side, offset, end);
        }
    }

    fn event(
        &mut self,
        flow: &Identity,
        state: &mut KeptByAll,
        side: Side,
        event: Event,
        time_ns: u64,
    ) {
        for (at, follower) in self.all.iter_mut().enumerate() {
            follower.event(flow, state.of(at), side, event, time_ns);
        }
    }

    fn goes_on(&mut self, record: &FlowRecord, client: Side, state: &mut KeptByAll, time_ns: u64) {
        let record = &self.completed(record, state);
        for (at, follower) in self.all.iter_mut().enumerate() {
            follower.goes_on(record, client, state.of(at), time_ns);
        }
    }

    fn rejected(&mut self, number: usize, input: &Input<'_>, why: Reject) {
        let row = self.rows.get(number).map(|row| usize::from(*row));
        self.all.iter_mut().for_each(|follower| follower.rejected(row, input, why));
    }

    fn not_looked_into(&mut self, number: usize, input: &Input<'_>, why: Unseen) {
        let row = self.rows[number].into();
        self.all.iter_mut().for_each(|follower| follower.not_looked_into(row, input, why));
    }

    fn fragment(&mut self, number: usize, input: &Input<'_>) {
        let _ = self.fragment_in(self.rows[number].into(), input);
    }

    fn fragments(&mut self, fragments: &Fragments) -> bool {
        let own = self.all.iter_mut().map(|follower| follower.fragments(fragments));
        own.fold(false, |all, own| all | own)
    }

    fn never_was(&mut self, flow: u64) {
        self.all.iter_mut().for_each(|follower| follower.never_was(flow));
    }

    fn ends_from(&mut self, next: (u64, u64, u64)) {
        self.all.iter_mut().for_each(|follower| follower.ends_from(next));
    }

    fn ended(&mut self, record: &FlowRecord, client: Side, state: &mut KeptByAll, time_ns: u64) {
        for (at, follower) in self.all.iter_mut().enumerate() {
            follower.ending(record, state.of(at), time_ns);
        }
        let record = &self.completed(record, state);
        for (at, follower) in self.all.iter_mut().enumerate() {
            follower.ended(record, client, state.of(at), time_ns);
        }
    }
}
