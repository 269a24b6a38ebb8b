//! Prometheus text, read at scrape time.
//!
//! The text format 0.0.4 is written by hand: the `prometheus-client` crate writes OpenMetrics,
//! where a counter's family lacks `_total`, and `promtool check metrics` refuses that. Counters
//! live in the data path; nothing is registered here, a scrape asks `source` for a [`Snapshot`].
//!
//! Thread rule: [`serve`] owns one thread with a single-threaded runtime; `source` is called on it
//! and may take a few milliseconds.

mod serve;
mod text;

pub use serve::{ServeError, Serving, serve};
pub use text::{CONTENT_TYPE, encode};

use crate::api::{DropRow, InterfaceRow, QueueRow, RouteSource, RuleRow, Runtime, StageRow};

/// All that is counted, at one moment.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// Ports.
    pub interfaces: Vec<InterfaceRow>,
    /// Queues of ports.
    pub queues: Vec<QueueRow>,
    /// Stages.
    pub stages: Vec<StageRow>,
    /// Drop reasons.
    pub drops: Vec<DropRow>,
    /// Routes known by who told of them.
    pub routes: Vec<(RouteSource, u64)>,
    /// Rules of the firewall, the default last.
    pub rules: Vec<RuleRow>,
    /// Workers, masters, tables, memory.
    pub runtime: Runtime,
}
