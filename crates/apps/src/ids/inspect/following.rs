//! The follower of a worker: it hands on what it hears to the inspector, which the stage shares.

use std::sync::Arc;

use detect::Ruleset;
use stream::tcp::{End, Event, Segment, Want};
use stream::tracker::{Fragments, Identity, Input, OfFlow, Passed, Reject, Unseen};
use stream::{FlowRecord, Side};

use super::{Passing, Shared};
use crate::firewall::refused::Refused;
use crate::flow::anomalies;
use crate::flow::by_worker::lock;
use crate::flow::follow::{Follower, Kept, Place};
use crate::ids::counters::add;

/// The follower of a worker, with the rules of the chunk.
pub(super) struct Following(pub(super) Shared, pub(super) Arc<Ruleset>);

impl Follower for Following {
    fn begin(&mut self, call: u32) {
        let mut own = lock(&self.0);
        own.end_step();
        own.count();
        own.calls.begin(call);
        own.renew();
        if !Arc::ptr_eq(&self.1, own.detector.rules()) {
            self.1 = own.detector.rules().clone();
        }
    }

    fn packet(&mut self, flow: &Identity, _: &mut Kept, at: &Place, packet: &OfFlow<'_>) {
        let mut own = lock(&self.0);
        match packet.is_piece() {
            _ if packet.is_rest => own.rest(at),
            true => own.piece(flow, at),
            false => own.packet(flow, at, packet, false),
        }
    }

    fn unread(&mut self, flow: &Identity, _: &mut Kept, packet: &OfFlow<'_>) {
        lock(&self.0).unread(flow.id, packet);
    }

    /// It is inspected by itself: rules that drop it do not drop the flow that it is about.
    fn error(&mut self, flow: &Identity, _: &mut Kept, at: &Place, error: &OfFlow<'_>) {
        lock(&self.0).lone(error.input, Some(at.row), Some(flow.id));
    }

    fn datagram(&mut self, flow: &Identity, _: &mut Kept, at: &Place, whole: &OfFlow<'_>) {
        let mut own = lock(&self.0);
        // Its last fragment was dropped as the others, then.
        if own.flows.get(&flow.id).is_none_or(|flow| !flow.state.is_dropped()) {
            own.packet(flow, at, whole, true);
        }
    }

    fn passing(&self) -> u32 {
        (self.1.generation() as u32).wrapping_add(1)
    }

    fn looks_at(&self, input: &Input<'_>, segment: &Segment<'_>) -> bool {
        self.1.asks_for(input.decoded, segment)
    }

    fn passed(&mut self, packets: &Passed) {
        let own = lock(&self.0);
        own.parts.counters.packets(packets);
        add(&own.parts.counters.passed, packets.packets);
    }

    fn closing(&mut self, flow: &Identity) {
        let mut own = lock(&self.0);
        // The time of the latest packet depends on the other flows of the worker; that of its own latest does not.
        let last_ns = own.flows.get(&flow.id).map_or(0, |own| match own.passing.1 {
            Passing::Now => own.last_ns.max(flow.latest_ns),
            _ => own.last_ns,
        });
        own.begin_end(flow.id, last_ns);
        own.lines.hold();
    }

    fn data(&mut self, flow: &Identity, _: &mut Kept, side: Side, at: u64, bytes: &[u8]) -> Want {
        lock(&self.0).data(flow, side, at, bytes)
    }

    fn gap(&mut self, flow: &Identity, _: &mut Kept, side: Side, offset: u64, bytes: u64, _: u64) {
        lock(&self.0).gap(flow, side, offset, bytes);
    }

    fn end_of_side(&mut self, flow: &Identity, _: &mut Kept, side: Side, _: u64, end: End) {
        let mut own = lock(&self.0);
        if end == End::Depth {
            own.stream_event(flow.id, side, Some(anomalies::DEPTH_REACHED));
        }
        own.end_of_side(flow, side);
    }

    fn application(&mut self, record: &FlowRecord, _: &mut Kept) -> Option<&'static str> {
        lock(&self.0).flows.get(&record.id)?.application()
    }

    /// What the latest packet of the flow raised is among it, whatever other flows the worker has.
    fn is_alerted(&mut self, record: &FlowRecord, _: &mut Kept) -> bool {
        let mut own = lock(&self.0);
        own.end_step();
        own.flows.get(&record.id).is_some_and(|flow| flow.is_alerted)
    }

    fn event(&mut self, flow: &Identity, _: &mut Kept, side: Side, event: Event, _: u64) {
        if event == Event::GivenUp {
            lock(&self.0).not_kept(flow.id);
        }
        if let Some(name) = anomalies::stream_event(event) {
            lock(&self.0).stream_event(flow.id, side, Some(name));
        }
    }

    fn rejected(&mut self, row: Option<usize>, input: &Input<'_>, why: Reject) {
        match why {
            Reject::Untracked => lock(&self.0).lone(input, row, None),
            why => {
                let mut own = lock(&self.0);
                own.calls.now().undecoded.extend(row);
                own.undecoded(row, input, why);
            }
        }
    }

    fn not_looked_into(&mut self, row: usize, input: &Input<'_>, why: Unseen) {
        lock(&self.0).not_looked_into(row, input, why);
    }

    fn fragment(&mut self, row: usize, input: &Input<'_>) -> bool {
        lock(&self.0).fragment(row, input)
    }

    fn fragments(&mut self, fragments: &Fragments) -> bool {
        lock(&self.0).fragments(fragments)
    }

    fn never_was(&mut self, flow: u64) {
        lock(&self.0).never_was(flow);
    }

    fn ending(&mut self, record: &FlowRecord, _: &mut Kept, time_ns: u64) {
        lock(&self.0).ending(record.id, time_ns);
    }

    fn ended(&mut self, record: &FlowRecord, _: Side, _: &mut Kept, time_ns: u64) {
        lock(&self.0).ended(record, time_ns);
    }

    fn asks_for_refused(&self) -> bool {
        lock(&self.0).asks_for_refused()
    }

    fn refused(&mut self, packet: &Refused, flow: Option<u64>) {
        lock(&self.0).refused(packet, flow);
    }

    fn advanced(&mut self, time_ns: u64) {
        let mut own = lock(&self.0);
        own.end_step();
        own.count();
        own.lines.advance(time_ns);
    }

    fn finished(&mut self) {
        self.advanced(u64::MAX);
    }
}
