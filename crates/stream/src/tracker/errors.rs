//! ICMP errors: each belongs to the flow of the packet that it quotes.
//!
//! ```text
//!                      quotes a packet of a flow        of none
//!  for a firewall      of that flow: related            invalid
//!  otherwise           of that flow: related            a flow by addresses, type, code and quoted hosts
//! ```
//!
//! Errors are spread over workers by the hosts that they quote ([`packet::flow::quoted_hash`]), so that they meet the flow whoever sent
//! them. Those of no flow have these hosts in their key for that reason: those with one key are at one worker. An error in
//! fragments is spread by its own addresses; only before a firewall it may belong to a flow.

use packet::flow::quoted_hash;
use packet::quoted::is_error_packet;

use super::input::{Input, cause_of};
use super::module::Module;
use super::{OfFlow, Tracked, Tracker};
use crate::key::Side;
use crate::table::{Found, Slot};

impl<M: Module> Tracker<M> {
    /// Whether a packet is an ICMP error that is looked up by itself: its flow is there before it, or it is of none.
    #[inline(always)]
    pub(super) fn is_lone_error(&self, input: &Input<'_>) -> bool {
        !self.options.confirms && is_error_packet(input.decoded)
    }

    /// Such an error. The table does not see it: it does not keep a flow that is idle.
    #[cold]
    pub(super) fn lone_error(&mut self, number: usize, input: &Input<'_>) -> Tracked {
        let (mut key, row) = match self.of_one(input) {
            Ok(of) => of,
            Err(why) => {
                self.count_tunnels(input, 1);
                return self.reject(number, input, 1, why);
            }
        };
        self.count_tunnels(input, 1);
        if let Some(hash) = quoted_hash(input.frame, input.decoded) {
            if let Some(tracked) = self.of_flow(number, input) {
                return tracked;
            }
            key = key.quoting(hash);
        }
        let found = self.find(&key, row, input.time_ns);
        self.row(number, input, key, row.side, found, (1, input.frame_len.into()))
    }

    /// The same of an error about a flow that is known: it is no packet of that, and changes nothing of it.
    fn of_flow(&mut self, number: usize, input: &Input<'_>) -> Option<Tracked> {
        let ((key, side), sequence) = cause_of(input, &self.options)?;
        let slot = self.table.find(&key)?;
        let tracked = self.about(slot, side, sequence, input.time_ns)?;
        let hot = *self.table.get(slot)?;
        self.rest.report(slot, &key, hot, input.time_ns);
        self.counts.packets += 1;
        self.counts.errors += 1;
        self.hear_error(number, slot, side, input);
        Some(tracked)
    }

    /// An ICMP error about a packet that `side` of a flow sent.
    pub(super) fn error(
        &mut self,
        side: Side,
        found: Found,
        sequence: Option<u32>,
        time_ns: u64,
    ) -> Tracked {
        let slot = found.slot();
        let tracked = slot.and_then(|slot| self.about(slot, side, sequence, time_ns));
        tracked.unwrap_or(Tracked::INVALID)
    }

    /// `None`: the flow is over, or is none, or that end has not sent such a packet.
    fn about(
        &mut self,
        slot: Slot,
        side: Side,
        sequence: Option<u32>,
        time_ns: u64,
    ) -> Option<Tracked> {
        let hot = *self.table.get(slot).filter(|hot| !hot.is_void)?;
        if !hot.is_undecided {
            self.keeps_nothing(slot);
        }
        let has_sent =
            sequence.is_none_or(|sequence| self.rest.may_have_sent(slot, side, sequence));
        let is_about = has_sent && !self.rest.is_over(slot, hot, time_ns);
        is_about.then(|| self.rest.error(slot, side))
    }

    /// An ICMP error that is whole, about a packet that `side` of a flow sent: the module hears of it.
    pub(super) fn whole_error(
        &mut self,
        number: usize,
        input: &Input<'_>,
        (side, found): (Side, Found),
        sequence: Option<u32>,
    ) -> Tracked {
        let tracked = self.error(side, found, sequence, input.time_ns);
        if let Some(slot) = tracked.slot {
            self.hear_error(number, slot, side, input);
        }
        tracked
    }

    /// The module hears of an ICMP error about a flow, a packet of which `side` sent.
    pub(super) fn hear_error(&mut self, number: usize, slot: Slot, side: Side, input: &Input<'_>) {
        if let Some(key) = self.table.key(slot).copied() {
            let of_flow = OfFlow { number, slot, side, is_first: false, is_rest: false, input };
            self.rest.about(&key, &of_flow);
        }
    }
}
