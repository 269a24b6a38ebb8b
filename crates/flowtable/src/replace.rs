//! A whole set of flows in the place of those that there are: only what differs changes.
//!
//! ```text
//!   wanted ─┬─ same table, match, priority ─┬─ same otherwise ──▶ stays, with its counters
//!           │                               └─ another one ─────▶ takes its place
//!           └─ not there ──────────────────────────────────────▶ is added
//!   there, not wanted ─────────────────────────────────────────▶ leaves, before any is added
//! ```
//!
//! As `ovs-ofctl replace-flows` and `diff-flows` have it. Of two wanted flows with the same table, match and priority the
//! later one counts.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use openflow::flow::RemovedReason;
use openflow::{ErrorCode, FlowFlags, FlowMod, Version};

use crate::control::FlowControl;
use crate::flow::Flow;

/// A flow of a list that is refused, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wrong {
    /// Its place in the list.
    pub index: usize,
    /// Why.
    pub code: ErrorCode,
}

/// What differs between the flows that are wanted and those that there are.
#[derive(Debug, Default)]
pub struct Differences {
    /// Flows that are there and not wanted as they are, by number.
    pub gone: Vec<Arc<Flow>>,
    /// Places of wanted flows that are not there, or not as they are wanted, in order.
    pub new: Vec<usize>,
    /// Those of `new` that take the place of a flow of `gone`.
    pub changed: usize,
    /// Flows that stay as they are.
    pub kept: usize,
}

/// Flags that a flow keeps; the others are of the request.
const KEPT: FlowFlags =
    FlowFlags(FlowFlags::SEND_FLOW_REM.0 | FlowFlags::NO_PKT_COUNTS.0 | FlowFlags::NO_BYT_COUNTS.0);

/// Whether an add of `wanted` would leave a flow with the same match as it is.
fn is_same(flow: &Flow, wanted: &FlowMod) -> bool {
    flow.cookie == wanted.cookie
        && flow.idle_timeout == wanted.idle_timeout
        && flow.hard_timeout == wanted.hard_timeout
        && flow.flags.0 & KEPT.0 == wanted.flags.0 & KEPT.0
        && flow.instructions == wanted.instructions
}

impl FlowControl {
    /// Whether an add or modify is refused, whatever flows there are. Nothing changes.
    ///
    /// # Errors
    /// As [`FlowControl::flow_mod`].
    pub fn check_flow(&self, request: &FlowMod, version: Version) -> Result<(), ErrorCode> {
        self.identity(request, version)?;
        self.check_request(request, version)
    }

    /// What [`FlowControl::replace`] would change. Nothing changes.
    ///
    /// # Errors
    /// A wanted flow whose table or match cannot be.
    pub fn differences(&self, wanted: &[FlowMod], version: Version) -> Result<Differences, Wrong> {
        // The later flow of an identity counts, in the place of the list where it is.
        let mut last = BTreeMap::new();
        let mut identities = Vec::with_capacity(wanted.len());
        for (index, flow) in wanted.iter().enumerate() {
            let identity = self.identity(flow, version).map_err(|code| Wrong { index, code })?;
            identities.push(identity);
        }
        let mut numbers: std::collections::HashMap<_, usize> = std::collections::HashMap::new();
        for (index, identity) in identities.iter().enumerate() {
            if let Some(earlier) = numbers.insert(identity, index) {
                last.remove(&earlier);
            }
            last.insert(index, identity);
        }
        let mut differences = Differences::default();
        let mut stays = HashSet::new();
        for (index, identity) in last {
            match self.flow_of(identity) {
                Some(flow) if is_same(flow, &wanted[index]) => {
                    stays.insert(flow.id);
                    differences.kept += 1;
                }
                old => {
                    differences.changed += usize::from(old.is_some());
                    differences.new.push(index);
                }
            }
        }
        let gone = self.flows().filter(|flow| !stays.contains(&flow.id)).cloned();
        differences.gone = gone.collect();
        Ok(differences)
    }

    /// Makes `wanted` the flows of all tables; they are adds. Flows that are there already, with the same instructions,
    /// cookie, time-outs and flags, are not touched. Call it within [`FlowControl::all_or_nothing`].
    ///
    /// # Errors
    /// The first flow that is refused; some may have changed then.
    pub fn replace(
        &mut self,
        wanted: &[FlowMod],
        version: Version,
        now_ns: u64,
    ) -> Result<Differences, Wrong> {
        let differences = self.differences(wanted, version)?;
        let identity = |flow: &Flow| (flow.table, flow.words, flow.priority);
        // A flow that is changed keeps its number and, without `reset_counts`, its counters.
        let mut changed = HashSet::new();
        for &index in &differences.new {
            let own = self.identity(&wanted[index], version);
            changed.insert(own.map_err(|code| Wrong { index, code })?);
        }
        for flow in &differences.gone {
            if !changed.contains(&identity(flow)) {
                self.leave(flow.id, RemovedReason::Delete, now_ns);
            }
        }
        for &index in &differences.new {
            let done = self.flow_mod(&wanted[index], version, now_ns);
            done.map_err(|code| Wrong { index, code })?;
        }
        Ok(differences)
    }
}
