//! Who is given the streams and records of flows.

use crate::key::{FlowKey, Side};
use crate::record::FlowRecord;
use crate::tcp::{End, Event, Want};

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
    /// The number of the flow: a hash of key and start, so that it is the same in each run over a capture. Of the flows
    /// with one key that begin at the same time each has another number, unless the first was evicted.
    pub id: u64,
    /// When it began, in nanoseconds since 1970.
    pub start_ns: u64,
    /// The end that opened it, as far as is known.
    pub client: Side,
}
