//! Ends what is idle, and reports what goes on: in pieces, so that packets need not wait.

use super::timeouts::ms_of;
use super::{Module, Tracker, WALK_RECORDS};
use crate::defrag;
use crate::table::{Class, Slot, Timeouts};

impl<M: Module> Tracker<M> {
    /// Removes datagrams whose fragments did not come by `now_ns` and flows that are idle then, and then reports those that
    /// go on, in a piece of about so many records; whether the piece reached the end of both.
    pub fn sweep(&mut self, records: usize, now_ns: u64) -> bool {
        if self.crossed_ns.is_some() {
            self.note_time(now_ns);
        }
        self.sweep_piece(records, now_ns)
    }

    /// See [`Tracker::sweep`].
    pub(super) fn sweep_piece(&mut self, records: usize, now_ns: u64) -> bool {
        let now_ns = now_ns.max(self.swept_ns());
        self.expire_datagrams(now_ns);
        if let Some(from) = self.walk {
            return self.walk(from, records / WALK_RECORDS, now_ns);
        }
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
            |slot, key, hot| rest.time_out(slot, key, *hot),
        );
        if swept.is_round {
            self.note_round(now_ns);
        }
        if swept.is_round && self.options.active_ns.is_some() {
            self.walk = Some(0);
            return false;
        }
        swept.is_round
    }

    /// Ends datagrams whose time-outs are due.
    pub(super) fn expire_datagrams(&mut self, now_ns: u64) {
        let (whole, module, config) =
            (&mut self.whole, &mut self.rest.module, &self.options.defrag);
        self.defrag.expire(now_ns, &mut |output: defrag::Output<'_, u32>| {
            whole.take(output, now_ns, config, module)
        });
        // Copies of fragments that were passed on are no loss.
        if !self.options.confirms {
            self.counts.fragments_lost = whole.lost;
        }
    }

    /// Reports flows that go on, a piece of them; whether it was the last piece.
    fn walk(&mut self, from: u32, count: usize, now_ns: u64) -> bool {
        self.walk = None;
        for (number, flow) in self.table.iter_from(Slot(from)).enumerate() {
            if number == count.max(1) {
                self.walk = Some(flow.slot.0);
                break;
            }
            if !flow.hot.is_undecided {
                self.rest.report(flow.slot, flow.key, *flow.hot, now_ns);
            }
        }
        self.walk.is_none()
    }
}
