//! Prometheus text, read at scrape time.
//!
//! The text format 0.0.4 is written by hand: the `prometheus-client` crate writes OpenMetrics,
//! where a counter's family lacks `_total`, and `promtool check metrics` refuses that. Counters
//! live in the data path; nothing is registered here. A scrape asks `source` for the text, which is
//! what [`encode`] makes of a [`Snapshot`]; applications write their families through [`Metrics`].
//!
//! Thread rule: [`serve`] owns one thread with a single-threaded runtime; `source` is called on it
//! and may take a few milliseconds.

mod serve;
mod text;

pub use serve::{ServeError, Serving, serve};
pub use text::{CONTENT_TYPE, Family, Metrics, encode};

use crate::api::{DropRow, InterfaceRow, QueueRow, Runtime, StageRow};

/// All that is counted in any pipeline, at one moment.
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
    /// Workers, masters, tables, memory.
    pub runtime: Runtime,
}
