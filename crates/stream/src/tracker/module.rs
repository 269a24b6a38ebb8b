//! Who is given the streams and records of flows.

use crate::defrag::{DatagramKey, Notes, Reason};
use crate::key::{FlowKey, Side};
use crate::record::FlowRecord;
use crate::table::Slot;
use crate::tcp::{End, Event, Want};
use crate::tracker::{Input, Reject};

/// What is done with flows: a module at GASPP's layer `process_stream` (§3.1).
pub trait Module {
    /// What it keeps for each flow.
    type State: Default;

    /// Packet `number` of the batch belongs to the flow in place `slot` of the table; `side` sent it. `is_first`: it began
    /// the flow, which has the place from now on. Its bytes follow. Of a datagram in fragments it is the last one that
    /// came.
    fn packet(
        &mut self,
        _flow: &Identity,
        _number: usize,
        _slot: Slot,
        _side: Side,
        _is_first: bool,
    ) {
    }

    /// The flow ends: what waited for others is given up. The bytes and gaps that follow are brought by no packet.
    fn closing(&mut self, _flow: &Identity) {}

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

    /// A flow goes on: the record says what it was at `time_ns`, a multiple of [`Options::active_ns`](super::Options) after
    /// its start. One without packets since the report before is not reported.
    fn goes_on(
        &mut self,
        _record: &FlowRecord,
        _client: Side,
        _state: &mut Self::State,
        _time_ns: u64,
    ) {
    }

    /// A packet belongs to no flow.
    fn rejected(&mut self, _input: &Input<'_>, _why: Reject) {}

    /// A datagram of fragments is whole or has failed, or a fragment was discarded.
    fn fragments(&mut self, _fragments: &Fragments) {}

    /// A flow has ended, at `time_ns`. `client` is the side of the client.
    fn ended(&mut self, record: &FlowRecord, client: Side, state: &mut Self::State, time_ns: u64);
}

/// What became of a datagram that came in fragments.
#[derive(Clone, Copy, Debug)]
pub struct Fragments {
    /// The datagram.
    pub key: DatagramKey,
    /// Why it did not become whole.
    pub failed: Option<Reason>,
    /// What happened to its fragments.
    pub notes: Notes,
    /// The time of the fragment that decided it, in nanoseconds since 1970.
    pub time_ns: u64,
}

/// Which flow it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Both ends.
    pub key: FlowKey,
    /// The number of the flow: a hash of key and start, so that it is the same in each run over a capture. Of the flows
    /// with one key that begin at the same time each has another number, unless the first was evicted.
    pub id: u64,
    /// When it began, in nanoseconds since 1970.
    pub start_ns: u64,
    /// The end that opened it, as far as is known.
    pub client: Side,
}
