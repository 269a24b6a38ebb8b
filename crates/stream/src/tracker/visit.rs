//! What is known of the flows that go on.

use super::Tracker;
use super::module::Module;
use super::tracked::TrackedFlow;

use crate::record::{FlowRecord, Reason};
use crate::table::Slot;

impl<M: Module> Tracker<M> {
    /// The same as [`Tracker::visit`], with what a firewall knows of its connections; those that are not decided yet, too.
    pub fn visit_connections(
        &self,
        from: u32,
        count: usize,
        visit: &mut impl FnMut(TrackedFlow),
    ) -> Option<u32> {
        for (number, flow) in self.table.iter_from(Slot(from)).enumerate() {
            if number == count {
                return Some(flow.slot.0);
            }
            let record = self.rest.record(flow.slot, flow.key, *flow.hot, Reason::Active);
            let client = self.rest.client(flow.slot, flow.key);
            visit(TrackedFlow {
                is_original_client: self.rest.first(flow.slot) == client,
                timeout_ns: self.rest.timeouts.of(flow.hot.phase),
                errors: self.rest.errors(flow.slot),
                announced_by: self.rest.announced_by(flow.slot),
                is_confirmed: !flow.hot.is_undecided,
                conntrack: flow.hot.is_tcp.then(|| self.rest.conntrack(flow.slot)),
                record,
            });
        }
        None
    }

    /// Calls `visit` with the records of at most `count` flows, from slot `from` on; the slot to go on with, `None` at the
    /// end.
    pub fn visit(
        &self,
        from: u32,
        count: usize,
        visit: &mut impl FnMut(FlowRecord),
    ) -> Option<u32> {
        for (number, flow) in self.table.iter_from(Slot(from)).enumerate() {
            if number == count {
                return Some(flow.slot.0);
            }
            if flow.hot.is_undecided {
                continue;
            }
            visit(self.rest.record(flow.slot, flow.key, *flow.hot, Reason::Active));
        }
        None
    }
}
