//! Flows that leave: by a request, with what they use, or because their time is over (OpenFlow 1.3.5 §5.5).

use std::cmp::Reverse;
use std::sync::atomic::Ordering;
use std::time::Duration;

use openflow::FlowFlags;
use openflow::flow::{FlowRemoved, RemovedReason};
use openflow::monitor::FlowEvent;

use super::FlowControl;
use crate::flow::Flow;

impl FlowControl {
    /// A flow leaves.
    pub(crate) fn leave(&mut self, id: u32, reason: RemovedReason, now_ns: u64) {
        let Some(flow) = self.flows.get(id as usize).and_then(Clone::clone) else { return };
        if flow.flags.contains(FlowFlags::SEND_FLOW_REM) {
            let (packets, bytes) = flow.counters.get();
            self.removed.push(FlowRemoved {
                cookie: flow.cookie,
                priority: flow.priority,
                reason,
                table: flow.table,
                duration: Duration::from_nanos(
                    now_ns.saturating_sub(flow.created_ns.max(self.epoch_ns)),
                ),
                idle_timeout: flow.idle_timeout,
                hard_timeout: flow.hard_timeout,
                packets,
                bytes,
                matches: flow.matches.clone(),
            });
        }
        self.next_change();
        self.change(id, None, FlowEvent::Deleted(reason));
    }

    /// Flows that use something that is gone leave.
    pub(crate) fn leave_all(&mut self, ids: Vec<u32>, now_ns: u64) {
        ids.into_iter().for_each(|id| self.leave(id, RemovedReason::GroupDelete, now_ns));
    }

    /// Lets the flows leave whose time is over; how many did.
    pub fn expire(&mut self, now_ns: u64) -> usize {
        let mut left = 0;
        while let Some(Reverse((at, id))) = self.deadlines.peek().copied() {
            if at > now_ns {
                break;
            }
            self.deadlines.pop();
            let Some(flow) = self.flows.get(id as usize).and_then(Option::as_ref) else { continue };
            match deadline(flow, self.epoch_ns) {
                Some(later) if later > now_ns => self.deadlines.push(Reverse((later, id))),
                Some(_) => {
                    let hard = hard_end(flow, self.epoch_ns).is_some_and(|end| end <= now_ns);
                    let reason =
                        if hard { RemovedReason::HardTimeout } else { RemovedReason::IdleTimeout };
                    self.leave(id, reason, now_ns);
                    left += 1;
                }
                None => {}
            }
        }
        left
    }

    /// Time begins: over captures, with the first packet.
    pub fn begin_time(&mut self, epoch_ns: u64) {
        self.epoch_ns = epoch_ns;
        self.collect_deadlines();
    }

    /// One entry for each flow that may leave.
    pub(super) fn collect_deadlines(&mut self) {
        let flows = self.flows.iter().flatten();
        let deadlines =
            flows.filter_map(|flow| Some(Reverse((deadline(flow, self.epoch_ns)?, flow.id))));
        self.deadlines = deadlines.collect();
    }

    /// When the next flow may have to leave, nanoseconds since 1970.
    pub fn next_deadline(&self) -> Option<u64> {
        self.deadlines.peek().map(|Reverse((at, _))| *at)
    }
}

fn hard_end(flow: &Flow, epoch_ns: u64) -> Option<u64> {
    let seconds = u64::from(flow.hard_timeout);
    (seconds > 0).then(|| flow.created_ns.max(epoch_ns) + seconds * 1_000_000_000)
}

/// When a flow leaves unless a packet comes.
pub(super) fn deadline(flow: &Flow, epoch_ns: u64) -> Option<u64> {
    let used = flow.counters.used_ns.load(Ordering::Relaxed);
    let seconds = u64::from(flow.idle_timeout);
    let idle =
        (seconds > 0).then(|| used.max(flow.created_ns).max(epoch_ns) + seconds * 1_000_000_000);
    match (idle, hard_end(flow, epoch_ns)) {
        (Some(idle), Some(hard)) => Some(idle.min(hard)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use openflow::{ErrorCode, FlowCommand, FlowMod, Version};

    use super::*;
    use crate::tables::Settings;

    /// A million requests that leave as many flows as there were leave as much memory.
    #[test]
    fn flows_that_come_again_leave_nothing_behind() {
        let (mut control, _) = FlowControl::new(Settings::of_13(1), 10, "linear");
        let mut flow = FlowMod::new(FlowCommand::Add);
        (flow.idle_timeout, flow.hard_timeout) = (10, u16::MAX);
        let delete = FlowMod::new(FlowCommand::Delete);
        let wrong = FlowMod { table: 9, ..flow.clone() };
        for n in 0..2000 {
            control.flow_mod(&flow, Version::V13, n).unwrap();
            let bundle = control.all_or_nothing(|control| {
                control.flow_mod(&delete, Version::V13, n)?;
                control.flow_mod(&wrong, Version::V13, n)
            });
            assert_eq!(bundle, Err(ErrorCode::FlowModTableId));
            assert_eq!(control.len(), 1);
        }
        assert!(control.deadlines.len() < 100, "{} deadlines", control.deadlines.len());
        assert!(control.free.len() < 2, "{} free numbers", control.free.len());
        // It still leaves in time.
        assert_eq!(control.expire(5_000_000_000), 0);
        assert_eq!(control.expire(20_000_000_000), 1);
    }
}
