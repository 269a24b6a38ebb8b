//! `shadeline l7 -r IN`: the application of each flow of captures.
//!
//! ```text
//!  captures ─▶ monitor: the pipeline `flow` `monitor` ─▶ Labels, one per worker ─▶ Ordered ─▶ table or lines of JSON
//!                                                                                         └─▶ summary by application
//! ```
//!
//! It is the pipeline of a monitor over captures, with the follower of the stage `l7`. Lines come in the order in which flows
//! end, rows of the table in that in which they began; neither depends on the number of workers.

use std::any::Any;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use apps::flow::order::{Key, Ordered};
use apps::flow::rows::{in_tunnels, protocol};
use apps::flow::{Attached, Follower, Listener};
use apps::l7::details::Facts;
use apps::l7::follow::{Hears, Labels, OfLabels};
use apps::l7::label::{Confidence, FoundBy};
use apps::l7::labelling::Options;
use apps::l7::patterns::Patterns;
use control::api::table::{Row, table, thousands};
use control::config::LogLevel;
use controlplane::Interfaces;
use packet::IpProtocol;
use packet::checksum::Checksums;
use packet::filter::Filter;
use serde::Serialize;
use stream::FlowRecord;

use crate::cli::L7Args;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::offline::{self, Carry, Merged};
use crate::output::{Beside, print};
use crate::streams::{self, TunnelRow};
use crate::{log, wiring};

pub(crate) fn run(args: &L7Args) -> Result<(), Failure> {
    let config = streams::monitor(args.config.as_deref(), args.tunnels, args.workers)?;
    let table_to = Beside::of(&config.flow)?;
    if args.json && table_to == Beside::Error {
        let what = "standard output gets the rows of --json: name a file for the records of flows";
        return Err(Failure::usage(what));
    }
    log::start(config.system.log.min(LogLevel::Warn), config.system.log_format);
    let filter = args.filter.as_deref().map(|text| {
        Filter::parse(text).map_err(|error| Failure::usage(format!("--filter `{text}`: {error}")))
    });
    let filter = filter.transpose()?;
    let patterns = args.patterns.as_deref().map(Patterns::read).transpose();
    let patterns = patterns.map_err(|error| Failure::usage(format!("--patterns: {error}")))?;
    let options = Options { patterns: patterns.map(Arc::new), details: true };
    let interfaces = Interfaces::of(&config);
    let interrupt = Interrupt::listen()?;
    let marks = vec![wiring::mark_of(args.checksums().unwrap_or(Checksums::Verify))];
    let opened = Merged::open(vec![(0, args.read.clone())], marks, &interrupt, |_, queue| queue);
    interrupt.check()?;
    let (mut merged, progress) = opened?;
    if let Some(filter) = filter {
        merged.only(filter);
    }
    let shared = Arc::new(Shared {
        options,
        json: args.json,
        interrupt: interrupt.clone(),
        rows: Mutex::default(),
        lines: Mutex::default(),
        sums: Mutex::default(),
        failure: Mutex::default(),
    });
    let attached = Attached(Arc::new(Flows { shared: shared.clone(), ordered: OnceLock::new() }));
    let attachments: [&(dyn Any + Sync); 1] = [&attached];
    let carried = Carry::without_outputs(&config, &interfaces, (merged, progress), &attachments);
    let (report, elapsed) = offline::carry(carried)?;
    if let Some(failure) = lock(&shared.failure).take() {
        return Err(failure);
    }
    let sums = shared.sums();
    if args.json {
        let line = serde_json::to_string(&Summary { summary: &sums }).map_err(Failure::other)?;
        print(format_args!("{line}\n"))?;
    } else {
        let mut rows = std::mem::take(&mut *lock(&shared.rows));
        rows.sort_by_key(|row| row.order);
        let flows = if rows.len() == 1 { "flow" } else { "flows" };
        table_to.put(format_args!(
            "{}\n{}{} {flows} in {} packets; {:.3} s\n",
            table(&rows),
            table(&sums),
            thousands(rows.len() as u64),
            thousands(report.rx_packets),
            elapsed.as_secs_f64()
        ))?;
    }
    streams::warn_of(&report)?;
    interrupt.check()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// So many bytes of JSON are printed at once.
const LINES_MAX: usize = 1 << 16;

/// What a worker says of a flow that has ended.
struct Told {
    /// What the summary calls it.
    name: &'static str,
    packets: u64,
    bytes: u64,
    what: What,
}

enum What {
    /// Of JSON.
    Line(Box<str>),
    /// For the table.
    Row(Box<FlowRow>),
    Failed(Box<Failure>),
}

impl Told {
    fn of(row: FlowRow, json: bool) -> Self {
        let (packets, bytes) = (row.packets, row.bytes);
        let name = row.application.unwrap_or(row.without());
        let what = match json {
            false => What::Row(Box::new(row)),
            true => match serde_json::to_string(&row) {
                Ok(line) => What::Line(line.into()),
                Err(error) => What::Failed(Box::new(Failure::other(error))),
            },
        };
        Self { name, packets, bytes, what }
    }
}

/// What workers share.
struct Shared {
    options: Options,
    json: bool,
    interrupt: Interrupt,
    /// For the table.
    rows: Mutex<Vec<FlowRow>>,
    /// By application: flows, packets, bytes.
    sums: Mutex<BTreeMap<String, [u64; 3]>>,
    /// JSON that is printed with what follows, or once a worker has said all that it knows by now.
    lines: Mutex<String>,
    /// The first output that failed; it ends the input.
    failure: Mutex<Option<Failure>>,
}

impl Shared {
    fn put(&self, own: Told) {
        {
            let mut sums = lock(&self.sums);
            let sum = match sums.get_mut(own.name) {
                Some(sum) => sum,
                None => sums.entry(own.name.to_owned()).or_default(),
            };
            *sum = [sum[0] + 1, sum[1] + own.packets, sum[2] + own.bytes];
        }
        match own.what {
            What::Row(row) => lock(&self.rows).push(*row),
            What::Failed(failure) => self.fail(*failure),
            What::Line(line) => {
                let mut lines = lock(&self.lines);
                lines.push_str(&line);
                lines.push('\n');
                let is_full = lines.len() >= LINES_MAX;
                drop(lines);
                if is_full {
                    self.flush();
                }
            }
        }
    }

    /// Prints the lines that have come.
    fn flush(&self) {
        let mut lines = lock(&self.lines);
        if lines.is_empty() || lock(&self.failure).is_some() {
            return lines.clear();
        }
        let printed = print(format_args!("{lines}"));
        lines.clear();
        drop(lines);
        if let Err(failure) = printed {
            self.fail(failure);
        }
    }

    fn fail(&self, failure: Failure) {
        lock(&self.failure).get_or_insert(failure);
        self.interrupt.stop.store(true, Ordering::Relaxed);
    }

    /// The applications with most bytes first.
    fn sums(&self) -> Vec<SumRow> {
        let sums = lock(&self.sums);
        let mut rows: Vec<SumRow> = sums
            .iter()
            .map(|(name, [flows, packets, bytes])| SumRow {
                application: name.clone(),
                flows: *flows,
                packets: *packets,
                bytes: *bytes,
            })
            .collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.bytes));
        rows
    }
}

struct Flows {
    shared: Arc<Shared>,
    ordered: OnceLock<Arc<Ordered<Told>>>,
}

impl Listener for Flows {
    fn follower(&self, _: usize, _: usize) -> Box<dyn Follower> {
        let shared = self.shared.clone();
        let out = move |row| shared.put(row);
        let ordered = self.ordered.get_or_init(|| Arc::new(Ordered::new(out))).clone();
        let worker = ordered.join();
        let options = self.shared.options.clone();
        let own =
            OfWorker { options, shared: self.shared.clone(), worker, ordered, items: Vec::new() };
        Box::new(Labels::new(own))
    }
}

/// What is told at one worker.
struct OfWorker {
    options: Options,
    shared: Arc<Shared>,
    worker: usize,
    ordered: Arc<Ordered<Told>>,
    items: Vec<(Key, Told)>,
}

impl Hears for OfWorker {
    fn options(&mut self) -> Options {
        self.options.clone()
    }

    fn ended(&mut self, record: &FlowRecord, own: Option<&mut OfLabels>, time_ns: u64) {
        let told = Told::of(FlowRow::of(record, own), self.shared.json);
        self.items.push(((time_ns, record.start_ns, record.id, 0), told));
    }

    fn advanced(&mut self, time_ns: u64) {
        self.ordered.advance(self.worker, &mut self.items, time_ns);
        self.shared.flush();
    }

    fn finished(&mut self) {
        self.advanced(u64::MAX);
    }
}

/// A flow.
#[derive(Debug, Clone, Serialize)]
struct FlowRow {
    /// Seconds since 1970, to the nanosecond.
    start: String,
    end: String,
    /// `tcp`, `udp`, or another name or number.
    proto: String,
    client_ip: IpAddr,
    client_port: u16,
    server_ip: IpAddr,
    server_port: u16,
    vlans: Vec<u16>,
    /// Around it, the outermost first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tunnels: Vec<TunnelRow>,
    /// Of both directions.
    packets: u64,
    bytes: u64,
    application: Option<&'static str>,
    found_by: Option<FoundBy>,
    confidence: Option<Confidence>,
    /// With payload, until more bytes would have changed nothing.
    packets_until_known: Option<u32>,
    #[serde(flatten)]
    facts: Facts,
    community_id: String,
    #[serde(skip)]
    number: IpProtocol,
    #[serde(skip)]
    order: (u64, u64),
    /// The tunnels as text.
    #[serde(skip)]
    around: String,
}

impl FlowRow {
    fn of(record: &FlowRecord, own: Option<&mut OfLabels>) -> Self {
        let time = |ns: u64| format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
        let id = flowlog::community_id::v1(
            0,
            (record.client, record.client_port),
            (record.server, record.server_port),
            record.protocol,
            record.icmp,
        );
        let labelling = own.map(|own| &own.labelling);
        let label = labelling.and_then(|own| own.label());
        let facts = labelling.and_then(|own| own.details()).map(|details| details.facts().clone());
        let sum = |of: fn(&stream::SideRecord) -> u64| record.sides.iter().map(of).sum();
        Self {
            start: time(record.start_ns),
            end: time(record.end_ns),
            proto: protocol(record.protocol),
            client_ip: record.client,
            client_port: record.client_port,
            server_ip: record.server,
            server_port: record.server_port,
            vlans: record.vlans.into_iter().filter(|vlan| *vlan != 0).collect(),
            tunnels: record.tunnels.iter().map(TunnelRow::of).collect(),
            packets: sum(|side| side.packets),
            bytes: sum(|side| side.bytes),
            application: label.map(|label| label.name),
            found_by: label.map(|label| label.found_by),
            confidence: label.map(|label| label.confidence),
            packets_until_known: labelling.and_then(|own| own.known_after()),
            facts: facts.unwrap_or_default(),
            community_id: String::from_utf8_lossy(&id).into_owned(),
            number: IpProtocol(record.protocol),
            order: (record.start_ns, record.id),
            around: record.tunnels.to_string(),
        }
    }

    /// What the summary calls a flow without a label.
    fn without(&self) -> &'static str {
        match self.number {
            IpProtocol::TCP | IpProtocol::UDP => "unknown",
            _ => "neither TCP nor UDP",
        }
    }

    fn has_ports(&self) -> bool {
        !matches!(self.number, IpProtocol::ICMP | IpProtocol::ICMPV6)
            && (self.client_port, self.server_port) != (0, 0)
    }
}

impl Row for FlowRow {
    const COLUMNS: &'static [&'static str] = &[
        "client",
        "server",
        "proto",
        "application",
        "found by",
        "sure",
        ">known after",
        ">packets",
        ">bytes",
        "name",
    ];
    const EMPTY: &'static str = "no flows";

    fn cells(&self) -> Vec<String> {
        let text =
            |value: Option<&dyn ToString>| value.map_or_else(String::new, |own| own.to_string());
        let end = |ip: IpAddr, port: u16| match self.has_ports() {
            true => SocketAddr::new(ip, port).to_string(),
            false => ip.to_string(),
        };
        vec![
            in_tunnels(&self.around, &end(self.client_ip, self.client_port)),
            end(self.server_ip, self.server_port),
            self.proto.clone(),
            self.application.unwrap_or_default().to_owned(),
            text(self.found_by.as_ref().map(|own| own as _)),
            text(self.confidence.as_ref().map(|own| own as _)),
            text(self.packets_until_known.as_ref().map(|own| own as _)),
            thousands(self.packets),
            thousands(self.bytes),
            self.facts.name().unwrap_or_default().to_owned(),
        ]
    }
}

/// The last line of JSON.
#[derive(Serialize)]
struct Summary<'a> {
    summary: &'a [SumRow],
}

/// All flows of an application.
#[derive(Debug, Clone, Serialize)]
struct SumRow {
    application: String,
    flows: u64,
    packets: u64,
    bytes: u64,
}

impl Row for SumRow {
    const COLUMNS: &'static [&'static str] = &["application", ">flows", ">packets", ">bytes"];

    fn cells(&self) -> Vec<String> {
        let [flows, packets, bytes] = [self.flows, self.packets, self.bytes].map(thousands);
        vec![self.application.clone(), flows, packets, bytes]
    }
}
