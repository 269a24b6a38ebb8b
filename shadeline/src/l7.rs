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
use apps::l7::label::Label;
use apps::l7::labelling::Options;
use apps::l7::patterns::Patterns;
use control::api::table::{Row, table, thousands};
use controlplane::Interfaces;
use flowlog::community_id;
use flowlog::json::{self, Object};
use packet::IpProtocol;
use packet::checksum::Checksums;
use packet::filter::Filter;
use packet::tunnel::Path;
use serde::Serialize;
use stream::FlowRecord;

use crate::cli::L7Args;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::offline::{self, Carry, Merged};
use crate::output::{Beside, print, print_lines};
use crate::streams;
use crate::{log, wiring};

pub(crate) fn run(args: &L7Args) -> Result<(), Failure> {
    let mut config = streams::monitor(args.config.as_deref(), args.tunnels, args.workers)?;
    // As Suricata has it; a file says it itself.
    config.flow.by_vlan |= args.config.is_none();
    let table_to = Beside::of(&config.flow)?;
    if args.json && table_to == Beside::Error {
        let what = "standard output gets the rows of --json: name a file for the records of flows";
        return Err(Failure::usage(what));
    }
    log::start_command(config.system.log, config.system.log_format);
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
    let carried =
        Carry::without_outputs(&config, &interfaces, (merged, progress.clone()), &attachments);
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
        rows.sort_by_key(|row| (row.start_ns, row.id));
        let flows = if rows.len() == 1 { "flow" } else { "flows" };
        table_to.put(format_args!(
            "{}\n{}{} {flows} in {}; {:.3} s\n",
            table(&rows),
            table(&sums),
            thousands(rows.len() as u64),
            progress.packets(&report),
            elapsed.as_secs_f64()
        ))?;
    }
    streams::warn_of_time(&report, &progress);
    streams::warn_of(&report)?;
    interrupt.check()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// So many bytes of JSON are printed at once.
const LINES_MAX: usize = 1 << 16;

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
    lines: Mutex<Vec<u8>>,
    /// The first output that failed; it ends the input.
    failure: Mutex<Option<Failure>>,
}

impl Shared {
    fn put(&self, own: FlowRow) {
        {
            let mut sums = lock(&self.sums);
            let name = own.label.map_or(own.without(), |label| label.name);
            let sum = match sums.get_mut(name) {
                Some(sum) => sum,
                None => sums.entry(name.to_owned()).or_default(),
            };
            *sum = [sum[0] + 1, sum[1] + own.packets, sum[2] + own.bytes];
        }
        if !self.json {
            return lock(&self.rows).push(own);
        }
        let mut lines = lock(&self.lines);
        own.write(&mut lines);
        let is_full = lines.len() >= LINES_MAX;
        drop(lines);
        if is_full {
            self.flush();
        }
    }

    /// Prints the lines that have come.
    fn flush(&self) {
        let mut lines = lock(&self.lines);
        if lines.is_empty() || lock(&self.failure).is_some() {
            return lines.clear();
        }
        let printed = print_lines(&lines);
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
    ordered: OnceLock<Arc<Ordered<FlowRow>>>,
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
    ordered: Arc<Ordered<FlowRow>>,
    items: Vec<(Key, FlowRow)>,
}

impl Hears for OfWorker {
    fn options(&mut self) -> Options {
        self.options.clone()
    }

    fn ended(&mut self, record: &FlowRecord, own: Option<&mut OfLabels>, time_ns: u64) {
        let row = FlowRow::of(record, own);
        self.items.push(((time_ns, record.start_ns, record.id, 0), row));
    }

    fn ends_from(&mut self, (time_ns, start_ns, id): (u64, u64, u64)) {
        let key = (time_ns, start_ns, id, 0);
        self.ordered.advance_to(self.worker, &mut self.items, key);
    }

    fn advanced(&mut self, time_ns: u64) {
        self.ordered.advance(self.worker, &mut self.items, time_ns);
        self.shared.flush();
    }

    fn finished(&mut self) {
        self.advanced(u64::MAX);
    }
}

/// A flow. Those of a capture end at once, at its end, so each is small until it is printed.
#[derive(Debug)]
struct FlowRow {
    /// In nanoseconds since 1970.
    start_ns: u64,
    end_ns: u64,
    id: u64,
    client: (IpAddr, u16),
    server: (IpAddr, u16),
    protocol: IpProtocol,
    icmp: Option<(u8, u8)>,
    /// Outer first; 0 for none.
    vlans: [u16; 2],
    /// Around it, the outermost first.
    tunnels: Path,
    /// Of both directions.
    packets: u64,
    bytes: u64,
    label: Option<Label>,
    /// Packets with payload, until more bytes would have changed nothing.
    known_after: Option<u32>,
    facts: Facts,
}

impl FlowRow {
    fn of(record: &FlowRecord, own: Option<&mut OfLabels>) -> Self {
        let sum = |of: fn(&stream::SideRecord) -> u64| record.sides.iter().map(of).sum();
        let (label, known_after, facts) = match own.map(|own| &mut own.labelling) {
            Some(own) => (own.label(), own.known_after(), own.take_facts()),
            None => (None, None, Facts::default()),
        };
        Self {
            start_ns: record.start_ns,
            end_ns: record.end_ns,
            id: record.id,
            client: (record.client, record.client_port),
            server: (record.server, record.server_port),
            protocol: IpProtocol(record.protocol),
            icmp: record.icmp,
            vlans: record.vlans,
            tunnels: record.tunnels,
            packets: sum(|side| side.packets),
            bytes: sum(|side| side.bytes),
            label,
            known_after,
            facts,
        }
    }

    /// Appends its line of JSON.
    fn write(&self, out: &mut Vec<u8>) {
        let mut line = Object::begin(out);
        seconds(line.value("start"), self.start_ns);
        seconds(line.value("end"), self.end_ns);
        line.string("proto", &protocol(self.protocol.0));
        line.address("client_ip", self.client.0);
        line.number("client_port", self.client.1);
        line.address("server_ip", self.server.0);
        line.number("server_port", self.server.1);
        let vlans = line.value("vlans");
        vlans.push(b'[');
        for (at, vlan) in self.vlans.iter().filter(|vlan| **vlan != 0).enumerate() {
            vlans.extend_from_slice(if at > 0 { b"," } else { b"" });
            json::number((*vlan).into(), vlans);
        }
        vlans.push(b']');
        if !self.tunnels.is_empty() {
            let tunnels = line.value("tunnels");
            for (at, tunnel) in self.tunnels.iter().enumerate() {
                tunnels.push(if at > 0 { b',' } else { b'[' });
                let mut own = Object::begin(tunnels);
                own.string("type", tunnel.kind.name());
                if tunnel.id != 0 {
                    own.number("id", tunnel.id);
                }
                own.end();
            }
            tunnels.push(b']');
        }
        line.number("packets", self.packets);
        line.number("bytes", self.bytes);
        match self.label {
            Some(label) => {
                line.string("application", label.name);
                line.string("found_by", label.found_by.name());
                line.string("confidence", label.confidence.name());
            }
            None => {
                for name in ["application", "found_by", "confidence"] {
                    line.value(name).extend_from_slice(NULL);
                }
            }
        }
        match self.known_after {
            Some(count) => line.number("packets_until_known", count),
            None => line.value("packets_until_known").extend_from_slice(NULL),
        }
        self.facts.write(&mut line);
        let id = line.value("community_id");
        id.push(b'"');
        let (client, server) = (self.client, self.server);
        id.extend(community_id::v1(0, client, server, self.protocol.0, self.icmp));
        id.push(b'"');
        line.end();
        out.push(b'\n');
    }

    /// What the summary calls a flow without a label.
    fn without(&self) -> &'static str {
        match self.protocol {
            IpProtocol::TCP | IpProtocol::UDP => "unknown",
            _ => "neither TCP nor UDP",
        }
    }

    fn has_ports(&self) -> bool {
        !matches!(self.protocol, IpProtocol::ICMP | IpProtocol::ICMPV6)
            && (self.client.1, self.server.1) != (0, 0)
    }
}

const NULL: &[u8] = b"null";

/// Appends seconds since 1970, to the nanosecond.
fn seconds(out: &mut Vec<u8>, ns: u64) {
    out.push(b'"');
    json::number(ns / 1_000_000_000, out);
    out.push(b'.');
    let (mut digits, mut rest) = ([b'0'; 9], ns % 1_000_000_000);
    for digit in digits.iter_mut().rev() {
        *digit += (rest % 10) as u8; // below ten
        rest /= 10;
    }
    out.extend(digits);
    out.push(b'"');
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
        let end = |(ip, port): (IpAddr, u16)| match self.has_ports() {
            true => SocketAddr::new(ip, port).to_string(),
            false => ip.to_string(),
        };
        vec![
            in_tunnels(&self.tunnels.to_string(), &end(self.client)),
            end(self.server),
            protocol(self.protocol.0),
            self.label.map_or_else(String::new, |label| label.name.to_owned()),
            text(self.label.as_ref().map(|label| &label.found_by as _)),
            text(self.label.as_ref().map(|label| &label.confidence as _)),
            text(self.known_after.as_ref().map(|own| own as _)),
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

#[cfg(test)]
mod tests {
    use apps::l7::details::Details;
    use apps::l7::label::{Confidence, FoundBy};
    use l7proto::{Direction, Protocol, Transport};
    use packet::tunnel::{Kind, Tunnel};
    use proptest::prelude::*;

    use super::*;
    use crate::streams::TunnelRow;

    /// The reference of [`FlowRow::write`]: the same fields, written by `serde_json`.
    #[derive(Serialize)]
    struct Plain {
        start: String,
        end: String,
        proto: String,
        client_ip: IpAddr,
        client_port: u16,
        server_ip: IpAddr,
        server_port: u16,
        vlans: Vec<u16>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tunnels: Vec<TunnelRow>,
        packets: u64,
        bytes: u64,
        application: Option<&'static str>,
        found_by: Option<FoundBy>,
        confidence: Option<Confidence>,
        packets_until_known: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        host: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        user_agent: Option<String>,
        community_id: String,
    }

    impl Plain {
        fn of(row: &FlowRow) -> Self {
            let time = |ns: u64| format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
            let id = community_id::v1(0, row.client, row.server, row.protocol.0, row.icmp);
            let text = |own: Option<&str>| own.map(str::to_owned);
            Self {
                start: time(row.start_ns),
                end: time(row.end_ns),
                proto: protocol(row.protocol.0),
                client_ip: row.client.0,
                client_port: row.client.1,
                server_ip: row.server.0,
                server_port: row.server.1,
                vlans: row.vlans.into_iter().filter(|vlan| *vlan != 0).collect(),
                tunnels: row.tunnels.iter().map(TunnelRow::of).collect(),
                packets: row.packets,
                bytes: row.bytes,
                application: row.label.map(|label| label.name),
                found_by: row.label.map(|label| label.found_by),
                confidence: row.label.map(|label| label.confidence),
                packets_until_known: row.known_after,
                host: text(row.facts.host()),
                user_agent: text(row.facts.user_agent()),
                community_id: String::from_utf8_lossy(&id).into_owned(),
            }
        }
    }

    fn address() -> impl Strategy<Value = IpAddr> {
        prop_oneof![
            any::<[u8; 4]>().prop_map(IpAddr::from),
            any::<[u8; 16]>().prop_map(IpAddr::from),
            any::<[u8; 2]>().prop_map(|[a, b]| IpAddr::from([
                0x2001,
                0,
                0,
                0,
                0,
                0,
                a.into(),
                b.into()
            ])),
        ]
    }

    fn tunnels() -> impl Strategy<Value = Path> {
        let tunnel = (0..Kind::ALL.len(), prop_oneof![Just(0), any::<u32>()]);
        prop::collection::vec(tunnel, 0..3).prop_map(|all| {
            let kind = |at: usize| Kind::ALL[at];
            let tunnels = all.into_iter().map(|(at, id)| Tunnel { kind: kind(at), id });
            tunnels.fold(Path::NONE, |path, tunnel| path.through(tunnel).unwrap_or(path))
        })
    }

    /// What HTTP says of a host and of a program, whatever bytes these are.
    fn facts(host: &[u8], agent: &[u8]) -> Facts {
        let mut details = Details::new(Transport::Stream);
        let parts = [b"GET / HTTP/1.1\r\nHost: ", host, b"\r\nUser-Agent: ", agent, b"\r\n\r\n"];
        details.feed(Direction::Opener, &parts.concat(), Some(Protocol::Http1), true);
        details.into_facts()
    }

    fn row() -> impl Strategy<Value = FlowRow> {
        let label = prop::option::of((0..3_usize, 0..4_usize, 0..3_usize)).prop_map(|own| {
            let (name, found_by, confidence) = own?;
            Some(Label {
                name: ["http", "tls", "it's \"mine\" \\ ü"][name],
                found_by: [FoundBy::Pattern, FoundBy::Parser, FoundBy::Port, FoundBy::File]
                    [found_by],
                confidence: [Confidence::Low, Confidence::Medium, Confidence::High][confidence],
            })
        });
        let letters = || prop::collection::vec(any::<u8>(), 0..40);
        let facts = prop::option::of((letters(), letters()))
            .prop_map(|own| own.map_or_else(Facts::default, |(host, agent)| facts(&host, &agent)));
        let ends = (address(), any::<u16>(), address(), any::<u16>());
        let protocol = prop_oneof![Just(6), Just(17), Just(1), Just(58), any::<u8>()];
        let icmp = prop::option::of(any::<(u8, u8)>());
        let counts = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>());
        let vlan = || prop_oneof![Just(0), 1..4096_u16];
        let rest = (protocol, icmp, (vlan(), vlan()), tunnels(), prop::option::of(any::<u32>()));
        (counts, ends, label, facts, rest).prop_map(|(counts, ends, label, facts, rest)| {
            let (protocol, icmp, vlans, tunnels, known_after) = rest;
            FlowRow {
                start_ns: counts.0,
                end_ns: counts.1,
                id: 1,
                client: (ends.0, ends.1),
                server: (ends.2, ends.3),
                protocol: IpProtocol(protocol),
                icmp,
                vlans: vlans.into(),
                tunnels,
                packets: counts.2,
                bytes: counts.3,
                label,
                known_after,
                facts,
            }
        })
    }

    proptest! {
        #[test]
        fn lines_are_those_of_serde(row in row()) {
            let mut line = Vec::new();
            row.write(&mut line);
            let plain = serde_json::to_string(&Plain::of(&row)).unwrap() + "\n";
            prop_assert_eq!(String::from_utf8(line).unwrap(), plain);
        }
    }
}
