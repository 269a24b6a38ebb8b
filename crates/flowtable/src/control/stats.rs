//! FLOW and AGGREGATE statistics, and which flows a filter is about.

use std::time::Duration;

use openflow::flow::{ALL_TABLES, ANY_GROUP, AggregateStats, FlowFilter, FlowStats};
use openflow::{Action, ErrorCode, Match, PortNo, Version};

use super::FlowControl;
use super::flow_mod::check_match;
use crate::flow::{Flow, Steps};
use crate::key::Words;

impl FlowControl {
    /// FLOW statistics.
    ///
    /// # Errors
    /// A match that cannot be, a table that there is not.
    pub fn flow_stats(
        &self,
        filter: &FlowFilter,
        version: Version,
        now_ns: u64,
    ) -> Result<Vec<FlowStats>, ErrorCode> {
        self.flow_page(filter, version, now_ns, 0, usize::MAX).map(|(flows, _)| flows)
    }

    /// FLOW statistics of at most `limit` flows, beginning at `from`: 0, or what the page before gave for the next one. A flow
    /// that is there all the time is in exactly one page.
    ///
    /// # Errors
    /// A match that cannot be, a table that there is not.
    pub fn flow_page(
        &self,
        filter: &FlowFilter,
        version: Version,
        now_ns: u64,
        from: usize,
        limit: usize,
    ) -> Result<(Vec<FlowStats>, Option<usize>), ErrorCode> {
        if filter.table != ALL_TABLES && filter.table >= self.settings.tables {
            return Err(ErrorCode::BadRequestTableId);
        }
        let matches = check_match(&filter.matches, version)?;
        let words = Words::of(&matches);
        let mut page = Vec::new();
        for (id, flow) in self.flows.iter().enumerate().skip(from) {
            let Some(flow) = flow else { continue };
            let passes = is_within(flow, filter, &words)
                && (flow.cookie ^ filter.cookie) & filter.cookie_mask == 0
                && goes_to(&flow.steps, filter.out_port, filter.out_group);
            if !passes {
                continue;
            }
            if page.len() == limit {
                return Ok((page, Some(id)));
            }
            let since = now_ns.saturating_sub(flow.created_ns.max(self.epoch_ns));
            page.push(FlowStats { duration: Duration::from_nanos(since), ..flow.stats() });
        }
        Ok((page, None))
    }

    /// AGGREGATE statistics.
    ///
    /// # Errors
    /// A match that cannot be, a table that there is not.
    pub fn aggregate(
        &self,
        filter: &FlowFilter,
        version: Version,
    ) -> Result<AggregateStats, ErrorCode> {
        let mut sum = AggregateStats::default();
        for flow in self.flow_stats(filter, version, 0)? {
            sum.packets += flow.packets;
            sum.bytes += flow.bytes;
            sum.flows += 1;
        }
        Ok(sum)
    }
}

/// A flow of the tables and within the match of a filter; `words` is of that match.
pub(super) fn is_within(flow: &Flow, filter: &FlowFilter, words: &Words) -> bool {
    (filter.table == ALL_TABLES || filter.table == flow.table)
        && flow.words.is_within(words)
        && has_fields(&flow.matches, &filter.matches)
}

/// Fields share places in words; within a match they have to be the same fields.
fn has_fields(matches: &Match, filter: &Match) -> bool {
    filter.fields().iter().all(|field| matches.get(field.field).is_some())
}

/// Whether some action sends to a port and some to a group, where these are asked for.
pub(super) fn goes_to(steps: &Steps, port: PortNo, group: u32) -> bool {
    let actions = || steps.apply.iter().chain(&steps.write);
    let to_port = |action: &Action| match action {
        Action::Output { port: to, .. } | Action::Enqueue { port: to, .. } => *to == port,
        _ => false,
    };
    (port == PortNo::ANY || actions().any(to_port))
        && (group == ANY_GROUP || uses_group(steps, group))
}

/// Whether a flow leads to a group.
fn uses_group(steps: &Steps, group: u32) -> bool {
    steps.apply.iter().chain(&steps.write).any(|action| *action == Action::Group(group))
}
