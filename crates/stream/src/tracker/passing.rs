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
//!
//! Such packets of a batch are taken right after its search, before all others ([`Tracker::pass_all`]): in one loop that does little
//! for each. Packets of one flow keep their order.

use packet::Decoded;

use super::flows::Hot;
use super::input::{Input, check_header, check_segment, segment_of};
use super::module::{Module, Passed};
use super::tracked::Tracked;
use super::{AHEAD, Row, Tracker, Unkeyed};
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

    /// Takes the packets of the batch that their flows pass over, and verifies the segments of the others; whether there are
    /// others. Those that are wrong reach no table. `first`: the number of the first row.
    ///
    /// Packets of different flows may be taken in any order, and those of one flow keep theirs: once one of a flow that is passed
    /// over is left, all behind it are.
    pub(super) fn pass_all<'a>(
        &mut self,
        first: usize,
        input: &impl Fn(usize) -> Input<'a>,
        output: &mut impl FnMut(usize, Tracked),
    ) -> bool {
        self.found.iter().take(AHEAD).for_each(|found| self.rest.prefetch(*found));
        let (mut is_left, mut are_others) = (false, false);
        for at in 0..self.rows.len() {
            if at.is_multiple_of(AHEAD) {
                let later = self.found.iter().skip(at + AHEAD).take(AHEAD);
                later.for_each(|found| self.rest.prefetch(*found));
            }
            let (Row { side, is_unchecked, .. }, found) = (self.rows[at], self.found[at]);
            let hot = found.slot().and_then(|slot| self.table.get(slot));
            let passes = hot.is_some_and(|hot| self.passing.passes(hot));
            if passes && !is_left {
                let number = first + at;
                if let Some(tracked) = self.pass(&input(number), side, found) {
                    output(number, tracked);
                    self.rows[at].is_taken = true;
                    continue;
                }
            }
            (is_left, are_others) = (is_left | passes, true);
            if is_unchecked {
                self.check_other(at, &input(first + at), passes);
            }
        }
        are_others
    }

    /// Verifies a segment that was not taken; if its flow is passed over, its header, as far as that says which flow it is of.
    #[inline(never)]
    fn check_other(&mut self, at: usize, input: &Input<'_>, passes: bool) {
        self.rows[at].is_unchecked = passes;
        let checked = match passes {
            true => check_header(input).map(drop),
            false => check_segment(input),
        };
        if let Err(why) = checked {
            self.rows[at] = Row { none: Some(Unkeyed::Rejected(why)), ..Row::NONE };
            (self.keys[at], self.found[at]) = (FlowKey::NONE, Found::NONE);
        }
    }

    /// Takes a packet that its flow passes over, if the flow holds its place.
    #[inline(always)]
    pub(super) fn pass(&mut self, input: &Input<'_>, side: Side, found: Found) -> Option<Tracked> {
        let Self { table, rest, passing, counts, .. } = self;
        let slot = found.slot()?;
        let (key, hot) = table.entry_mut(slot)?;
        let may_pass = passing.passes(hot) && hot.is_firm && !hot.is_void && !hot.is_early;
        if !may_pass || input.decoded.has(Decoded::FRAGMENT) {
            return None;
        }
        let segment = segment_of(input)?;
        let of_segment = (&segment, &*hot);
        if !rest.passes(slot, side, of_segment, input.time_ns)
            || rest.module.looks_at(input, &segment)
        {
            return None;
        }
        // Its record goes on before the packet counts.
        rest.report(slot, key, *hot, input.time_ns);
        let (tracked, phase) = rest.pass(slot, side, of_segment, input)?;
        if phase != hot.phase {
            (hot.phase, hot.timeout_ms) = (phase, rest.timeouts.ms_of(phase));
        }
        passing.passed.add(input.frame_len.into(), input.time_ns);
        counts.packets += 1;
        self.count_tunnels(input, 1);
        Some(tracked)
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
