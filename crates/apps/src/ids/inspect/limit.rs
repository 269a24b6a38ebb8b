//! Flows that exceed a bound of their inspection, and what becomes of them.

use control::config::{IdsEvent, IdsOnLimit};
use detect::Sender;
use flowlog::eve::ApplicationAnomaly;

use super::{Inspector, OfFlowKept, Parts};
use crate::ids::counters::add;
use crate::ids::outputs::{Lines, To};

/// What a flow exceeds that no parser tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exceeded {
    /// There is no memory for its session or its streams.
    Memory,
    /// A search takes too long.
    Search,
}

/// What is known of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OfLimit {
    /// It has exceeded a bound.
    pub(super) is_exceeded: bool,
    /// It was bypassed or dropped for that.
    pub(super) is_over: bool,
    /// It was dropped for that.
    pub(super) drops: bool,
    /// An event says so: of memory, of a search.
    said: [bool; 2],
}

impl OfFlowKept {
    /// It exceeds a bound, of which an event tells once.
    pub(super) fn exceed(
        &mut self,
        what: Exceeded,
        time_ns: u64,
        parts: &Parts,
        lines: &mut Lines,
    ) {
        self.limit.is_exceeded = true;
        if std::mem::replace(&mut self.limit.said[what as usize], true) {
            return;
        }
        add(&parts.counters.anomalies, 1);
        if !parts.outputs.has(IdsEvent::Anomaly) {
            return;
        }
        let (event, layer) = match what {
            Exceeded::Memory => ("session_memory_exceeded", "proto_parser"),
            Exceeded::Search => ("search_given_up", "detect"),
        };
        let application = self.application();
        let report = ApplicationAnomaly { event, layer, application, transaction_id: None };
        let origin = self.origin(&parts.outputs, Sender::Client, time_ns);
        parts.outputs.eve.application_anomaly(&origin, &report, &mut lines.line);
        let key = self.key(time_ns);
        lines.put(To::Eve, key);
    }

    /// A step ends: whether the flow is dropped from its packet on.
    pub(super) fn give_up(&mut self, parts: &Parts) -> bool {
        if !self.limit.is_exceeded || self.limit.is_over {
            return false;
        }
        let drops = match parts.on_limit {
            IdsOnLimit::Inspect => return false,
            IdsOnLimit::Bypass => false,
            IdsOnLimit::Drop => true,
        };
        self.limit.is_over = true;
        // What a rule has dropped is dropped by the rule.
        self.limit.drops = drops && !self.state.is_dropped();
        self.state.give_up(drops);
        add(&parts.counters.limited, 1);
        self.limit.drops
    }
}

/// Between two lines of the log about a full flow table.
const REFUSED_QUIET_NS: u64 = 10_000_000_000;

impl Inspector {
    /// What becomes of flows that exceed a bound.
    pub(in crate::ids) fn on_limit(&self) -> IdsOnLimit {
        self.parts.on_limit
    }

    /// So many packets were of flows for which the flow table has no place, and so many of them were dropped. The log says so once in
    /// a while.
    pub(in crate::ids) fn no_place(&mut self, packets: u64, dropped: u64, now_ns: u64) {
        let counters = &self.parts.counters;
        add(&counters.refused, packets);
        add(&counters.drops, dropped);
        if self.refused_said_ns.is_some_and(|said_ns| now_ns.abs_diff(said_ns) < REFUSED_QUIET_NS) {
            return;
        }
        self.refused_said_ns = Some(now_ns);
        let how = if dropped > 0 { "are dropped" } else { "pass without inspection" };
        tracing::warn!(
            "intrusion detection: the flow table is full (`flows` of [flow]); packets of new flows {how}"
        );
    }
}
