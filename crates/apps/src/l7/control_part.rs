//! The part of the control plane: makes the stages, reads patterns, shows what was counted.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use control::api::ErrorKind;
use control::api::table::{Row, thousands};
use control::config::{self, Config};
use control::metrics::Metrics;
use controlplane::{
    Built, Call, ControlPart, Environment, Refusal, Rows, Section, Setup, Tables, WorkerSetup,
};
use engine::Stage;
use serde::Serialize;

use super::gather::{Places, Sum, UNKNOWN};
use super::label::{Confidence, collision, number};
use super::labelling::Options;
use super::patterns::Patterns;
use super::stage::L7;
use crate::flow::Attached;
use crate::flow::by_worker::lock;

struct L7Control {
    places: Arc<Places>,
    options: Options,
    /// Those of a reload that is not kept yet.
    next: Option<Options>,
    /// By application: what was counted when the counters were cleared.
    cleared: BTreeMap<&'static str, Sum>,
}

/// Starts it.
pub(super) fn start(setup: &Setup<'_>, _: &mut Tables) -> Result<Box<dyn ControlPart>, String> {
    let options = options(setup.config)?;
    let cleared = BTreeMap::new();
    Ok(Box::new(L7Control { places: Arc::default(), options, next: None, cleared }))
}

/// How flows are labelled by a configuration.
///
/// # Errors
/// The patterns cannot be read.
pub(super) fn options(config: &Config) -> Result<Options, String> {
    let read = |folder: &std::path::PathBuf| {
        let patterns = Patterns::read(folder)?;
        let names: Vec<&'static str> = patterns.all().iter().map(|own| own.name).collect();
        match collision(&names) {
            Some((one, other)) => {
                Err(format!("the names `{one}` and `{other}` cannot be told apart: rename one"))
            }
            None => Ok(Arc::new(patterns)),
        }
    };
    let patterns = config.l7.patterns.as_ref().map(read).transpose();
    let patterns = patterns.map_err(|error| format!("l7.patterns: {error}"))?;
    Ok(Options { patterns, details: false })
}

/// The least sure labels that count.
fn least(config: &Config) -> Confidence {
    match config.l7.confidence {
        config::Sureness::Low => Confidence::Low,
        config::Sureness::Medium => Confidence::Medium,
        config::Sureness::High => Confidence::High,
    }
}

/// What was counted of an application.
#[derive(Debug, Clone, Serialize)]
struct ApplicationRow {
    application: &'static str,
    flows: u64,
    packets: u64,
    bytes: u64,
}

impl Row for ApplicationRow {
    const COLUMNS: &'static [&'static str] = &["application", ">flows", ">packets", ">bytes"];
    const EMPTY: &'static str = "no flows";

    fn cells(&self) -> Vec<String> {
        let [flows, packets, bytes] = [self.flows, self.packets, self.bytes].map(thousands);
        vec![self.application.to_owned(), flows, packets, bytes]
    }
}

impl L7Control {
    fn totals(&self) -> BTreeMap<&'static str, Sum> {
        let mut all: BTreeMap<&'static str, Sum> = BTreeMap::new();
        for shared in self.places.all() {
            for (name, sum) in lock(&shared).sums() {
                let total = all.entry(name).or_default();
                total.iter_mut().zip(sum).for_each(|(total, own)| *total += own);
            }
        }
        all
    }

    /// The applications with most bytes first.
    fn rows(&self) -> Vec<ApplicationRow> {
        let row = |(application, mut sum): (&'static str, Sum)| {
            let cleared = self.cleared.get(application).copied().unwrap_or_default();
            sum.iter_mut().zip(cleared).for_each(|(own, cleared)| *own -= cleared);
            let [flows, packets, bytes] = sum;
            ApplicationRow { application, flows, packets, bytes }
        };
        let mut rows: Vec<_> =
            self.totals().into_iter().map(row).filter(|row| row.flows + row.packets > 0).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.bytes));
        rows
    }
}

impl ControlPart for L7Control {
    fn offer(&self) -> Option<Box<dyn Any + Send + Sync>> {
        Some(Box::new(Attached(self.places.clone())))
    }

    fn stage(&mut self, kind: &str, worker: &WorkerSetup<'_>) -> Option<Box<dyn Stage<Tables>>> {
        if kind != super::STAGE {
            return None;
        }
        let options = self.next.as_ref().unwrap_or(&self.options).clone();
        let shared = self.places.of(&worker.pipeline.name, worker.worker);
        lock(&shared).set(options, least(worker.config));
        let contexts = worker.config.l7.contexts.iter();
        let contexts = contexts
            .map(|(application, context)| (number(application), worker.context(context)))
            .filter(|(_, bit)| *bit != 0)
            .collect();
        Some(Box::new(L7::new(shared, contexts)))
    }

    fn table(&self, call: Call<'_>, _: &Environment<'_>) -> Result<Rows, Refusal> {
        match call.name {
            "applications" => Ok(Rows::of("applications", call.as_text, self.rows())),
            name => Err(Refusal::new(ErrorKind::Internal, format!("no table `{name}`"))),
        }
    }

    /// Patterns that cannot be read refuse the reload.
    fn apply(
        &mut self,
        _: &Config,
        _: Option<Built>,
        env: &mut Environment<'_>,
    ) -> Result<(), String> {
        self.next = Some(options(env.config)?);
        Ok(())
    }

    /// Flows that begin from now on are labelled by the new patterns.
    fn commit(&mut self, _: &Config, _: &Config, env: &mut Environment<'_>) -> String {
        if let Some(next) = self.next.take() {
            self.options = next;
        }
        for shared in self.places.all() {
            lock(&shared).set(self.options.clone(), least(env.config));
        }
        String::new()
    }

    fn clear(&mut self) {
        self.cleared = self.totals();
    }

    fn metrics(&self, out: &mut Metrics) {
        let families = [
            ("l7_flows_total", "Flows by application, when it is settled or the flow ends."),
            ("l7_packets_total", "Packets of these flows."),
            ("l7_bytes_total", "Bytes of these packets."),
        ];
        let totals = self.totals();
        for (at, (name, help)) in families.into_iter().enumerate() {
            let mut family = out.counter(name, help);
            for (application, sum) in &totals {
                family.sample(&[("application", application)], sum[at]);
            }
        }
    }

    fn report(&self) -> Vec<Section> {
        let rows = self.rows();
        let mut text = String::new();
        for row in rows.iter().take(LINES_MAX) {
            let [flows, packets, bytes] = [row.flows, row.packets, row.bytes].map(thousands);
            let name = if row.application == UNKNOWN { "without a label" } else { row.application };
            let word = if row.flows == 1 { "flow" } else { "flows" };
            text +=
                &format!("application {name}: {flows} {word}, {packets} packets, {bytes} bytes\n");
        }
        if rows.len() > LINES_MAX {
            text += &format!("and {} more applications\n", rows.len() - LINES_MAX);
        }
        vec![Section::new("applications", &rows, text)]
    }
}

/// Applications in the report of a run, for people.
const LINES_MAX: usize = 20;
