//! Prometheus text, read at scrape time.
//!
//! The text format 0.0.4 is written by hand: the `prometheus-client` crate writes OpenMetrics,
//! where a counter's family lacks `_total`, and `promtool check metrics` refuses that. Counters
//! live in the data path; nothing is registered here. A scrape asks [`Sources`] for the text, which is
//! what [`encode`] makes of a [`Snapshot`]; applications write their families through [`Metrics`].
//!
//! The same port serves a page with the same [`Snapshot`] as tables, which it asks for as JSON once a second.
//!
//! Thread rule: [`serve`] owns one thread with a single-threaded runtime; the [`Sources`] are called on
//! it and may take a few milliseconds.

mod connections;
mod hosts;
mod serve;
mod text;

pub use serve::{ServeError, Serving, Sources, serve};
pub use text::{CONTENT_TYPE, Family, Metrics, encode};

use serde::{Deserialize, Serialize};

use crate::api::{DropRow, HotTable, InterfaceRow, QueueRow, Runtime, StageRow};

/// All that is counted in any pipeline, at one moment: what a scrape encodes, and what the dashboards show.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    /// Ports.
    pub interfaces: Vec<InterfaceRow>,
    /// Queues of ports.
    pub queues: Vec<QueueRow>,
    /// Stages.
    pub stages: Vec<StageRow>,
    /// Drop reasons.
    pub drops: Vec<DropRow>,
    /// The hottest rows of applications' tables.
    pub hottest: Vec<HotTable>,
    /// Workers, masters, tables, memory.
    pub runtime: Runtime,
}
