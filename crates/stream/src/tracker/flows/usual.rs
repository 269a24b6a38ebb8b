//! The usual packet: the next segment of an established connection, which changes nothing but what it carries on.
//!
//! ```text
//!  line of the flow: established? ─▶ not idle too long? ─▶ segment: ACK, in order? ─▶ module ─▶ counts, time-out
//!        └ no ─────────────┴ no ─────────────┴ no ─▶ the way of all packets: see `Tracker::row`
//! ```
//!
//! What it does is what the way of all packets does with such a packet, in the same order. It is apart because most packets
//! are of this kind: what they need is on three lines of the flow, and none of the other cases is looked at.

use packet::Decoded;

use super::{Hot, OneFlow, Record, Rest, Streams};
use crate::key::{FlowKey, Side};
use crate::table::{Found, Slot};
use crate::tcp::{Conntrack, Want};
use crate::tracker::Tracker;
use crate::tracker::input::{Input, segment_of};
use crate::tracker::module::{Module, OfFlow};
use crate::tracker::timeouts::Phase;
use crate::tracker::tracked::Tracked;

impl Hot {
    /// An established TCP connection that holds its place, with nothing to be decided.
    #[inline(always)]
    fn is_usual(&self) -> bool {
        let waits = self.is_undecided | self.is_announcing | self.is_void | self.is_early;
        self.phase.is_established_tcp() & self.is_firm & !waits
    }
}

impl<M: Module> Tracker<M> {
    /// Takes a packet if it is a usual one; `number`: its place in the batch. `None`: nothing was done.
    #[inline(always)]
    pub(in crate::tracker) fn usual(
        &mut self,
        number: usize,
        input: &Input<'_>,
        side: Side,
        found: Found,
    ) -> Option<Tracked> {
        let Self { table, rest, passing, .. } = self;
        let slot = found.slot()?;
        let (key, hot) = table.entry_mut(slot)?;
        if !hot.is_usual() || passing.passes(hot) || rest.helpers.reads(key) {
            return None;
        }
        if input.decoded.has(Decoded::FRAGMENT) || rest.is_over(slot, *hot, input.time_ns) {
            return None;
        }
        let segment = segment_of(input)?;
        let record = rest.records.get_mut(slot.index())?;
        if !rest.reassembler.is_usual(&record.connection, side, &segment) {
            return None;
        }
        rest.report(slot, key, *hot, input.time_ns);
        let of_flow = OfFlow { number, slot, side, is_first: false, is_rest: false, input };
        rest.note_depth(number, input);
        rest.packet(key, &of_flow);
        let Record { warm, connection } = rest.records.get_mut(slot.index())?;
        let offset = rest.reassembler.carry_on(connection, side, &segment, input.time_ns);
        let mut want = Want::More;
        if !segment.payload.is_empty() {
            let flow = OneFlow { warm, key, client: connection.client() };
            let state = &mut rest.states[slot.index()];
            want = rest.module.data(&flow.identity(), state, side, offset, segment.payload);
        }
        if want != Want::More {
            self.heed(slot, side, want, input.time_ns);
        }
        let Self { table, rest, counts, .. } = self;
        rest.count(slot, side, input, segment.flags, (1, input.frame_len.into()));
        let connection = &rest.records[slot.index()].connection;
        let phase = Phase::of_tcp(Conntrack::Established, connection.is_unacknowledged());
        if let Some(hot) = table.get_mut(slot).filter(|hot| hot.phase != phase) {
            (hot.phase, hot.timeout_ms) = (phase, rest.timeouts.ms_of(phase));
        }
        counts.packets += 1;
        self.count_tunnels(input, 1);
        Some(self.rest.tracked(slot, side, true))
    }

    /// The module wants no more, or passes over the flow.
    #[cold]
    #[inline(never)]
    fn heed(&mut self, slot: Slot, side: Side, want: Want, time_ns: u64) {
        let Some(key) = self.table.key(slot).copied() else { return };
        match want {
            Want::More => {}
            Want::PassOver => _ = self.begin_to_pass(slot, &key),
            Want::EnoughOfSide | Want::EnoughOfFlow => {
                self.rest.enough(slot, &key, side, want, time_ns);
            }
        }
    }
}

impl<M: Module> Rest<M> {
    /// The module has enough of a side of a flow that no helper reads, or of both.
    fn enough(&mut self, slot: Slot, key: &FlowKey, side: Side, want: Want, time_ns: u64) {
        let Record { warm, connection } = &mut self.records[slot.index()];
        let flow = OneFlow { warm, key, client: connection.client() };
        let (module, state) = (&mut self.module, &mut self.states[slot.index()]);
        let passes = &mut self.passes;
        let mut sink = Streams { module, flow, state, time_ns, helper: None, passes };
        self.reassembler.had_enough(connection, side, want, &mut sink);
    }
}
