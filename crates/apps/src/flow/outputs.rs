//! Where the configuration sends flows: events, a collector, a table.
//!
//! ```text
//!  [flow] events  ─▶ Events ─┐ a follower per worker        a thread each
//!         ipfix   ─▶ Export ─┤▶ (follow) ─ over captures ─▶ lines, messages, row groups
//!         parquet ─▶ Export ─┘             sorted (order)
//! ```
//!
//! Live, workers never wait: what a thread cannot take is lost and counted. Over captures workers wait, and what was lost all
//! the same is an error of the run.
//!
//! Threads: control has this; what it holds is shared with workers.

use std::sync::Arc;
use std::time::Instant;

use control::api::table::thousands;
use control::config::{Config, EventType};
use control::metrics::Metrics;
use flowlog::sink::Losses;
use serde::Serialize;

use super::events::{EventLines, Events};
use super::export;
use super::follow::Listener;

/// What became of lines or records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Those that went out.
    pub written: u64,
    /// Those that were lost: no room, a collector that is not there, a disk that is full.
    pub lost: u64,
}

/// Somewhere flows go.
pub trait Output: Send + Sync {
    /// Its key in `[flow]`.
    fn key(&self) -> &'static str;
    /// The value of the key: a file or an address.
    fn target(&self) -> String;
    /// What became of lines or records so far.
    fn counts(&self) -> Counts;
    /// The last error, in words.
    fn last_error(&self) -> Option<String>;
    /// Whether it logs losses itself.
    fn says_losses(&self) -> bool {
        false
    }
    /// A file was moved away, or a connection is to be made anew.
    fn reopen(&self) {}
    /// Waits, for a time, until everything is out.
    fn close(&self);
}

/// All outputs of a run.
#[derive(Default)]
pub(super) struct Outputs {
    all: Vec<Arc<dyn Output>>,
    /// Who hears of flows for them.
    pub(super) listeners: Vec<Arc<dyn Listener>>,
    /// For events of security associations.
    pub(super) lines: Option<EventLines>,
    /// By output, unless it says itself what is lost.
    losses: Vec<Option<Losses>>,
}

/// An output in the report of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct OutputTotals {
    output: &'static str,
    target: String,
    #[serde(flatten)]
    counts: Counts,
}

impl Outputs {
    /// Opens files and sockets.
    ///
    /// # Errors
    /// One of them cannot be opened, in words.
    pub(super) fn open(
        config: &Config,
        ports: &Arc<[String]>,
        is_live: bool,
    ) -> Result<Self, String> {
        let own = &config.flow;
        let mut outputs = Self::default();
        if own.events.is_some() {
            let events = Arc::new(Events::open(own, ports.clone(), is_live)?);
            outputs.lines = events.lines();
            outputs.add(events.clone(), events);
        }
        for (output, listener) in export::open(own, is_live)? {
            outputs.add(output, listener);
        }
        Ok(outputs)
    }

    fn add(&mut self, output: Arc<dyn Output>, listener: Arc<dyn Listener>) {
        self.losses.push((!output.says_losses()).then(Losses::default));
        self.all.push(output);
        self.listeners.push(listener);
    }

    /// Whether one of them wants flows that go on.
    pub(super) fn want_active(config: &Config) -> bool {
        let own = &config.flow;
        let has_events = own.events.is_some() && own.event_types.contains(&EventType::Active);
        own.ipfix.is_some() || has_events
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn reopen(&self) {
        self.all.iter().for_each(|output| output.reopen());
    }

    pub(super) fn close(&self) {
        self.all.iter().for_each(|output| output.close());
    }

    /// Logs that records are lost, and that they go out again.
    pub(super) fn log(&mut self) {
        for (output, losses) in self.all.iter().zip(&mut self.losses) {
            let Some(losses) = losses else { continue };
            let Counts { written, lost } = output.counts();
            let why = output.last_error();
            let said = losses.turn("records", (written, lost), why.as_deref(), Instant::now());
            if let Some(said) = said {
                tracing::warn!("flow.{}: {said}", output.key());
            }
        }
    }

    pub(super) fn totals(&self) -> Vec<OutputTotals> {
        let totals = |output: &Arc<dyn Output>| OutputTotals {
            output: output.key(),
            target: output.target(),
            counts: output.counts(),
        };
        self.all.iter().map(totals).collect()
    }

    /// A line for each.
    pub(super) fn lines(&self) -> Vec<[String; 2]> {
        let line = |own: OutputTotals| {
            let [written, lost] = [own.counts.written, own.counts.lost].map(thousands);
            [own.output.to_owned(), format!("{}: {written} written, {lost} lost", own.target)]
        };
        self.totals().into_iter().map(line).collect()
    }

    /// What went wrong, a line for each.
    pub(super) fn errors(&self) -> Vec<String> {
        let error = |output: &Arc<dyn Output>| {
            let (key, lost) = (output.key(), thousands(output.counts().lost));
            match output.last_error() {
                // A collector that refused a datagram, which may have been lost.
                Some(why) => Some(format!("flow.{key}: {lost} lost: {why}")),
                None if lost == "0" => None,
                None => Some(format!("flow.{key}: {lost} lost: the output is too slow")),
            }
        };
        self.all.iter().filter_map(error).collect()
    }

    pub(super) fn metrics(&self, out: &mut Metrics) {
        for output in &self.all {
            let [written, lost] = match output.key() {
                "events" => [
                    ("flow_events_total", "Lines of flow events written."),
                    ("flow_events_lost_total", "Lines of flow events lost."),
                ],
                "ipfix" => [
                    ("flow_ipfix_records_total", "IPFIX records sent."),
                    ("flow_ipfix_records_lost_total", "IPFIX records lost."),
                ],
                _ => [
                    ("flow_parquet_rows_total", "Rows of flow records written."),
                    ("flow_parquet_rows_lost_total", "Rows of flow records lost."),
                ],
            };
            let counts = output.counts();
            out.counter(written.0, written.1).sample(&[], counts.written);
            out.counter(lost.0, lost.1).sample(&[], counts.lost);
        }
    }
}
