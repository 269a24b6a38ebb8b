//! Flows whose packets the module passes over, as nothing that it looks for can be in them: those that are encrypted.
//!
//! ```text
//!  headers ─▶ key ─▶ table ─▶ its line says so ─▶ the next segment, ACK and PSH alone ─▶ counted, and no more
//!                                 └ no ───────────────┴ no ─▶ checksum ─▶ module and streams, as any other
//! ```
//!
//! The payload of such a packet is not read: a sum over it would be most of what the packet costs, as it is in no cache. A wrong
//! checksum is found where a segment does anything but carry the stream on. One that is wrong and next is counted with the flow;
//! its receiver drops it, and what is sent again is a retransmission here. A firewall depends on sums, so there all are verified.

use packet::Decoded;

use super::flows::Hot;
use super::input::{Input, check_segment, segment_of};
use super::module::{Module, Passed};
use super::tracked::Tracked;
use super::{Tracker, Unkeyed};
use crate::key::{FlowKey, Side};
use crate::table::{Found, Slot};

/// What is known of such flows.
#[derive(Debug, Default)]
pub(super) struct Passing {
    /// There may be some.
    pub(super) is_on: bool,
    /// There have been some.
    has_flows: bool,
    /// The number of what decides now; 0: none are passed over.
    number: u32,
    /// Their packets in the batch.
    passed: Passed,
}

impl Passing {
    /// Whether a flow is passed over now.
    #[inline(always)]
    pub(super) fn passes(&self, hot: &Hot) -> bool {
        self.is_on && hot.passing != 0 && hot.passing == self.number
    }
}

impl<M: Module> Tracker<M> {
    /// A batch begins; whether checksums of segments are verified once their flows are known.
    pub(super) fn begin_passing(&mut self) -> bool {
        let own = &mut self.passing;
        own.number = self.rest.module.passing();
        own.is_on = own.has_flows && own.number != 0;
        own.is_on && !self.options.confirms
    }

    /// Tells the module of packets that were passed over.
    pub(super) fn end_passing(&mut self) {
        if self.passing.passed.packets > 0 {
            self.rest.module.passed(&std::mem::take(&mut self.passing.passed));
        }
    }

    /// Verifies the segments of the batch whose flows are looked at. Those that are wrong reach no table. `first`: the number of the
    /// first row.
    pub(super) fn check_others<'a>(&mut self, first: usize, input: &impl Fn(usize) -> Input<'a>) {
        for at in 0..self.rows.len() {
            if !self.rows[at].is_unchecked || self.is_passed(self.found[at]).is_some() {
                continue;
            }
            self.rows[at].is_unchecked = false;
            if let Err(why) = check_segment(&input(first + at)) {
                self.rows[at].none = Some(Unkeyed::Rejected(why));
                (self.keys[at], self.found[at]) = (FlowKey::default(), Found::NONE);
            }
        }
    }

    /// The place of a flow that is passed over.
    #[inline(always)]
    fn is_passed(&self, found: Found) -> Option<Slot> {
        let slot = found.slot()?;
        let hot = self.table.get(slot)?;
        self.passing.passes(hot).then_some(slot)
    }

    /// Takes a packet that its flow passes over.
    #[inline(always)]
    pub(super) fn pass(
        &mut self,
        input: &Input<'_>,
        key: &FlowKey,
        side: Side,
        found: Found,
    ) -> Option<Tracked> {
        let slot = self.is_passed(found)?;
        let hot = *self.table.get(slot)?;
        let is_over = hot.is_void || self.rest.is_over(slot, hot, input.time_ns);
        if is_over || input.decoded.has(Decoded::FRAGMENT) {
            return None;
        }
        let segment = segment_of(input)?;
        if self.rest.module.looks_at(input, &segment) {
            return None;
        }
        // Its record goes on before the packet counts.
        self.rest.report(slot, key, hot, input.time_ns);
        if !self.rest.pass(slot, side, &segment, input.time_ns) {
            return None;
        }
        self.count_tunnels(input, 1);
        self.counts.packets += 1;
        let bytes = u64::from(input.frame_len);
        self.rest.count(slot, side, input, segment.flags, (1, bytes));
        let phase = self.rest.phase(slot, key);
        if phase != hot.phase {
            self.set_phase(slot, key, hot, phase);
        }
        self.passing.passed.add(bytes, input.time_ns);
        Some(self.rest.tracked(slot, side, true))
    }

    /// The module passes over the flow from now on, unless a helper reads it; the number in its line.
    #[cold]
    pub(super) fn begin_to_pass(&mut self, slot: Slot, key: &FlowKey) -> u32 {
        let reads = self.rest.helpers.reads(key);
        let number = if reads { 0 } else { self.rest.module.passing() };
        if let Some(hot) = self.table.get_mut(slot) {
            hot.passing = number;
            self.passing.has_flows |= number != 0;
        }
        number
    }
}
