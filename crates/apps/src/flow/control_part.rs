//! The part of the control plane: makes the trackers of workers, and reads them.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use control::api::ErrorKind;
use control::api::table::{bytes_text, thousands};
use control::config::Config;
use control::metrics::Metrics;
use controlplane::memory::{self, Need};
use controlplane::{
    Built, Call, ControlPart, Environment, Refusal, Rows, Section, Setup, Tables, WorkerSetup,
};
use engine::Stage;
use packet::tunnel::Kinds;
use serde::Serialize;
use serde_json::{Map, Value};
use stream::record::FlowState;
use stream::tracker::{Options, TrackedFlow};
use stream::{FlowRecord, Tracker, helper};

use super::commands::{ShowConnections, ShowFlows};
use super::decode::FlowDecode;
use super::follow::{Attached, Followers, Listener};
use super::outputs::Outputs;
use super::rows::{
    ConnectionRow, FlowRow, SummaryRow, flow_state, is_protocol, protocol, state_of, tcp_state,
};
use super::search::FlowSearch;
use super::stage::{Flow, Shared};
use crate::firewall::refused::Mailbox;

/// Flows that control reads under the lock of a worker before it lets the worker go on.
const PIECE: usize = 256;

/// How often records that were lost are logged, in nanoseconds.
const LOG_NS: u64 = 10_000_000_000;

struct FlowControl {
    options: Options,
    listeners: Vec<Arc<dyn Listener>>,
    outputs: Outputs,
    /// By pipeline and worker.
    trackers: Vec<(String, usize, Shared)>,
    /// By tracker: the listeners whose followers it has.
    heard: Vec<Vec<Arc<dyn Listener>>>,
    /// How many there will be.
    count: usize,
    latest_ns: Arc<AtomicU64>,
    /// When lost records are logged next.
    log_ns: u64,
}

/// Starts it.
pub(super) fn start(
    setup: &Setup<'_>,
    _tables: &mut Tables,
) -> Result<Box<dyn ControlPart>, String> {
    let config = setup.config;
    super::whole_connections(config)?;
    let ports: Arc<[String]> = setup.interfaces.names().to_vec().into();
    let outputs = Outputs::open(config, &ports, setup.is_live)?;
    let mut listeners = outputs.listeners.clone();
    listeners.extend(setup.attached::<Attached>().map(|own| own.0.clone()));
    let seed = setup.seed();
    let workers = match setup.is_live || config.system.has_workers {
        true => config.system.workers.max(1),
        false => 1,
    };
    let count = workers * config.in_use().filter(|own| own.has(super::STAGE)).count();
    let options = super::options(config, seed);
    let bytes = count as u64 * Tracker::<Followers>::memory_bytes(&options) as u64;
    memory::ask_for(
        Need { bytes, reserved_bytes: 0 },
        "flow tracking (`flows` and `reassembly_mib`)",
    )?;
    Ok(Box::new(FlowControl {
        options,
        listeners,
        outputs,
        trackers: Vec::new(),
        heard: Vec::new(),
        count,
        latest_ns: Arc::default(),
        log_ns: 0,
    }))
}

/// A field that most runs have no use for.
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Counts of all workers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct FlowTotals {
    /// Flows that are followed.
    pub flows: u64,
    /// Flows that began.
    pub started: u64,
    /// Flows that ended after their idle time.
    pub expired: u64,
    /// Flows that made room for others.
    pub evicted: u64,
    /// Packets for whose flow there was no room.
    pub refused: u64,
    /// Packets of flows.
    pub packets: u64,
    /// Packets with a wrong checksum of IPv4 or TCP.
    pub bad_checksum: u64,
    /// IP packets whose headers are wrong.
    pub malformed: u64,
    /// IP packets of which a capture has a part only, by its snap length; left out if there were none.
    #[serde(skip_serializing_if = "is_zero")]
    pub cut: u64,
    /// Frames that are not IP.
    pub not_ip: u64,
    /// Of them those with MPLS, PPPoE or more than two VLAN tags, which are not looked into; left out if there were none.
    #[serde(skip_serializing_if = "is_zero")]
    pub encapsulated: u64,
    /// Packets that were earlier than one before them by more than 10 s; left out if there were none.
    #[serde(skip_serializing_if = "is_zero")]
    pub late: u64,
    /// Flows that began with such a packet; left out if there were none.
    #[serde(skip_serializing_if = "is_zero")]
    pub late_flows: u64,
    /// Fragments of IP datagrams.
    pub fragments: u64,
    /// Fragments that did not become a datagram.
    pub fragments_lost: u64,
    /// Packets of tunnels, if tunnels are looked into.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tunnels: Option<TunnelTotals>,
    /// Bytes of TCP segments that wait for others.
    pub buffered_bytes: u64,
    /// Such segments that were not kept, as their connection had its share of the memory, or as there was none.
    pub given_up_flow: u64,
    pub given_up_total: u64,
    /// Packets by state, as rules of a firewall ask for it.
    pub states: States,
    /// What helpers did.
    pub helpers: HelperTotals,
}

/// What was looked into.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct TunnelTotals {
    /// Packets out of tunnels.
    pub packets: u64,
    /// Of them those with a tunnel inside that was not looked into: there were three around it.
    pub too_deep: u64,
    /// Datagrams that came in fragments; they are not looked into.
    pub in_fragments: u64,
}

/// What helpers did: FTP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct HelperTotals {
    /// Connections that are expected.
    pub expected: u64,
    /// Announcements of connections.
    pub announced: u64,
    /// Announced connections that came.
    pub related: u64,
    /// Announcements of an address of another host, or of a port below 1024.
    pub refused: u64,
    /// Announcements, and segments of control connections, for which there was no room.
    pub full: u64,
}

impl TunnelTotals {
    fn text(&self) -> String {
        format!(
            "{} packets looked into, {} with more than three tunnels, {} datagrams in fragments not looked into",
            thousands(self.packets),
            thousands(self.too_deep),
            thousands(self.in_fragments)
        )
    }
}

/// Packets by their state in their flow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct States {
    /// Without a flow by their nature.
    pub untracked: u64,
    /// Of no flow, or not acceptable in theirs.
    pub invalid: u64,
    /// The first packets of flows.
    pub new: u64,
    /// Packets of flows with an answer.
    pub established: u64,
    /// Errors about flows, and flows that others announced.
    pub related: u64,
}

/// Bounds of all workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct Bounds {
    /// Flows at most.
    flows_max: u64,
    /// Of them without an answer.
    half_open_max: u64,
    /// Memory that was reserved at the start.
    memory_bytes: u64,
    /// Of it, for TCP segments that wait for others.
    buffer_bytes_max: u64,
}

impl FlowControl {
    fn bounds(&self) -> Bounds {
        let count = self.count as u64;
        Bounds {
            flows_max: count * self.options.flows as u64,
            half_open_max: count * self.options.half_open as u64,
            memory_bytes: count * Tracker::<Followers>::memory_bytes(&self.options) as u64,
            buffer_bytes_max: count * self.options.tcp.buffer_bytes as u64,
        }
    }

    /// What is counted, and what became of outputs.
    fn fields(&self, totals: &FlowTotals) -> Map<String, Value> {
        let mut fields = match serde_json::to_value(totals) {
            Ok(Value::Object(fields)) => fields,
            _ => Map::new(),
        };
        if !self.outputs.is_empty() {
            let outputs = serde_json::to_value(self.outputs.totals()).unwrap_or_default();
            fields.insert("outputs".to_owned(), outputs);
        }
        fields
    }

    fn totals(&self) -> FlowTotals {
        let tunnels = (!self.options.tunnels.is_empty()).then(TunnelTotals::default);
        let mut all = FlowTotals { tunnels, ..FlowTotals::default() };
        for (.., tracker) in &self.trackers {
            let tracker = tracker.lock().unwrap_or_else(PoisonError::into_inner);
            let (counts, table) = (tracker.counts(), tracker.statistics());
            all.flows += tracker.len() as u64;
            all.started += counts.flows;
            all.expired += counts.timed_out;
            all.evicted += table.evicted;
            all.refused += counts.no_room;
            all.packets += counts.packets;
            all.bad_checksum += counts.checksum;
            all.malformed += counts.malformed;
            all.cut += counts.cut;
            all.not_ip += counts.not_ip;
            all.encapsulated += counts.encapsulated;
            all.late += counts.late;
            all.late_flows += counts.late_flows;
            all.fragments += counts.fragments;
            all.fragments_lost += counts.fragments_lost;
            if let Some(tunnels) = &mut all.tunnels {
                tunnels.packets += counts.tunnelled;
                tunnels.too_deep += counts.tunnels_too_deep;
                tunnels.in_fragments += counts.tunnels_in_fragments;
            }
            all.buffered_bytes += tracker.buffered_bytes() as u64;
            let given_up = tracker.given_up();
            all.given_up_flow += given_up.given_up_flow;
            all.given_up_total += given_up.given_up_total;
            let [untracked, invalid, new, established, related] = tracker.states().map(|own| own.1);
            all.states.untracked += untracked;
            all.states.invalid += invalid;
            all.states.new += new;
            all.states.established += established;
            all.states.related += related;
            let helper::Counts { expected, announced, related, refused, full } =
                tracker.helper_counts();
            all.helpers.expected += expected;
            all.helpers.announced += announced;
            all.helpers.related += related;
            all.helpers.refused += refused;
            all.helpers.full += full;
        }
        all
    }

    /// Visits all flows; each worker waits for some at a time.
    fn visit(&self, mut visit: impl FnMut(FlowRecord)) {
        for (.., tracker) in &self.trackers {
            let mut next = Some(0);
            while let Some(from) = next {
                let tracker = tracker.lock().unwrap_or_else(PoisonError::into_inner);
                next = tracker.visit(from, PIECE, &mut visit);
            }
        }
    }

    fn connections(&self, wanted: &ShowConnections, now_ns: u64) -> Vec<ConnectionRow> {
        let mut all = Vec::new();
        self.visit_connections(|flow| {
            let record = &flow.record;
            let address =
                |net: &ipnet::IpNet| net.contains(&record.client) || net.contains(&record.server);
            let port = |port: &u16| record.client_port == *port || record.server_port == *port;
            let row = ConnectionRow::of(&flow, now_ns);
            let is_wanted = wanted.address.as_ref().is_none_or(address)
                && wanted.port.as_ref().is_none_or(port)
                && wanted.state.as_ref().is_none_or(|state| *state == row.state)
                && wanted.proto.as_ref().is_none_or(|proto| is_protocol(proto, record.protocol));
            if is_wanted {
                all.push((record.start_ns, record.id, row));
            }
        });
        all.sort_by_key(|(start_ns, id, _)| (*start_ns, *id));
        let mut rows: Vec<_> = all.into_iter().map(|(.., row)| row).collect();
        let related = || rows.iter().filter_map(|row| row.related_to.as_ref());
        let mut ends: BTreeMap<u64, Option<[String; 2]>> =
            related().map(|own| (own.id, None)).collect();
        if !ends.is_empty() {
            self.visit_connections(|flow| {
                if let Some(own) = ends.get_mut(&flow.record.id) {
                    let row = ConnectionRow::of(&flow, now_ns);
                    *own = Some([row.src, row.dst]);
                }
            });
        }
        for own in rows.iter_mut().filter_map(|row| row.related_to.as_mut()) {
            own.ends = ends.get(&own.id).cloned().flatten();
        }
        rows
    }

    /// Visits all connections; each worker waits for some at a time.
    fn visit_connections(&self, mut visit: impl FnMut(TrackedFlow)) {
        for (.., tracker) in &self.trackers {
            let mut next = Some(0);
            while let Some(from) = next {
                let tracker = tracker.lock().unwrap_or_else(PoisonError::into_inner);
                next = tracker.visit_connections(from, PIECE, &mut visit);
            }
        }
    }

    /// By protocol and state.
    fn summary(&self, wanted: &ShowFlows, now_ns: u64) -> Vec<SummaryRow> {
        let mut sums: BTreeMap<(u8, &str), [u64; 3]> = BTreeMap::new();
        self.visit(|record| {
            if is_wanted(wanted, &record, now_ns) {
                let sum = sums.entry((record.protocol, state_of(&record))).or_default();
                sum[0] += 1;
                sum[1] += record.sides.iter().map(|side| side.packets).sum::<u64>();
                sum[2] += record.sides.iter().map(|side| side.bytes).sum::<u64>();
            }
        });
        let row = |((number, state), [flows, packets, bytes]): ((u8, &str), [u64; 3])| SummaryRow {
            proto: protocol(number),
            state: state.to_owned(),
            flows,
            packets,
            bytes,
        };
        sums.into_iter().map(row).collect()
    }

    fn rows(&self, wanted: &ShowFlows, now_ns: u64) -> Vec<FlowRow> {
        let mut records = Vec::new();
        self.visit(|record| {
            if is_wanted(wanted, &record, now_ns) {
                records.push(record);
            }
        });
        let bytes = |record: &FlowRecord| record.sides[0].bytes + record.sides[1].bytes;
        match wanted.top {
            Some(most) => {
                records.sort_by_key(|record| std::cmp::Reverse(bytes(record)));
                records.truncate(most as usize);
            }
            None => records.sort_by_key(|record| (record.start_ns, record.id)),
        }
        records.iter().map(|record| FlowRow::of(record, now_ns)).collect()
    }
}

/// Whether a flow is one of those that are asked for.
fn is_wanted(wanted: &ShowFlows, record: &FlowRecord, now_ns: u64) -> bool {
    let address = |net: &ipnet::IpNet| net.contains(&record.client) || net.contains(&record.server);
    let port = |port: &u16| record.client_port == *port || record.server_port == *port;
    let proto = |proto: &String| is_protocol(proto, record.protocol);
    let is_tcp = |state: &String| record.tcp.is_some_and(|own| tcp_state(own) == state);
    let state = |state: &String| {
        flow_state(record.state) == state || record.state != FlowState::Bypassed && is_tcp(state)
    };
    let within = |seconds: &f64| now_ns.saturating_sub(record.end_ns) as f64 <= seconds * 1e9;
    wanted.address.as_ref().is_none_or(address)
        && wanted.port.as_ref().is_none_or(port)
        && wanted.proto.as_ref().is_none_or(proto)
        && wanted.state.as_ref().is_none_or(state)
        && wanted.within_s.as_ref().is_none_or(within)
}

impl FlowControl {
    /// Gives a tracker the followers that it does not have: of a listener for a stage, if that is among those of its pipeline.
    fn follow(&mut self, number: usize, kinds: &[String]) {
        let (pipeline, worker, tracker) = &self.trackers[number];
        let count = self.count.max(number + 1);
        for listener in &self.listeners {
            let is_known = self.heard[number].iter().any(|own| Arc::ptr_eq(own, listener));
            let is_of = |stage: &str| kinds.iter().any(|kind| kind == stage);
            if is_known || !listener.stage().is_none_or(is_of) {
                continue;
            }
            let follower = listener.follower_in(pipeline, *worker, (number, count));
            let mut tracker = tracker.lock().unwrap_or_else(PoisonError::into_inner);
            tracker.module().all.push(follower);
            self.heard[number].push(listener.clone());
        }
    }
}

impl ControlPart for FlowControl {
    /// A listener of another application hears of all flows from now on.
    fn attach(&mut self, offered: &(dyn std::any::Any + Send + Sync)) {
        let Some(Attached(listener)) = offered.downcast_ref() else { return };
        if self.listeners.iter().any(|own| Arc::ptr_eq(own, listener)) {
            return;
        }
        self.listeners.push(listener.clone());
        (0..self.trackers.len()).for_each(|number| self.follow(number, &[]));
    }

    fn apply(
        &mut self,
        _: &Config,
        _: Option<Built>,
        env: &mut Environment<'_>,
    ) -> Result<(), String> {
        super::whole_connections(env.config)
    }

    fn stage(&mut self, kind: &str, worker: &WorkerSetup<'_>) -> Option<Box<dyn Stage<Tables>>> {
        if kind != super::STAGE {
            return None;
        }
        if let Some(lines) = &self.outputs.lines {
            worker.shared.put(lines.clone());
        }
        let before = &worker.pipeline.kinds[..worker.at];
        let is_decoded = before.iter().any(|kind| kind == super::STAGE);
        // Literals are those of rules, which the stage behind evaluates.
        let has_rules = worker.pipeline.kinds.iter().any(|kind| kind == crate::ids::STAGE);
        let literals = self.listeners.iter().rev().find_map(|own| own.literals());
        let literals = literals.filter(|_| has_rules);
        // Of two stages, the first one decodes.
        let decodes =
            worker.pipeline.kinds[worker.at + 1..].iter().any(|kind| kind == super::STAGE);
        if decodes {
            let decode = FlowDecode::numbering(worker.config.flow.device_connections);
            return Some(match literals {
                Some(part) => Box::new(FlowSearch::new(part, decode)),
                None => Box::new(decode),
            });
        }
        let own = |(pipeline, number, _): &(String, usize, Shared)| {
            *pipeline == worker.pipeline.name && *number == worker.worker
        };
        // The flows of a stage that this one replaces while the program runs.
        let known = self.trackers.iter().position(own);
        let numbers = super::connections::cells(worker.config.flow.device_connections);
        let tracker = match known {
            Some(number) => {
                self.follow(number, &worker.pipeline.kinds);
                self.trackers[number].2.clone()
            }
            None => {
                let tracker = Tracker::new(self.options, Followers::new(Vec::new()));
                let tracker =
                    tracker.inspect_err(|error| tracing::error!("flow tracking: {error}"));
                let mut tracker = tracker.ok()?;
                tracker.number_up_to(if is_decoded { numbers } else { 0 });
                let tracker = Arc::new(Mutex::new(tracker));
                let name = worker.pipeline.name.clone();
                self.trackers.push((name, worker.worker, tracker.clone()));
                self.heard.push(Vec::new());
                self.follow(self.trackers.len() - 1, &worker.pipeline.kinds);
                tracker
            }
        };
        let mut behind = worker.pipeline.kinds.iter().skip(worker.at);
        let confirms = behind.any(|kind| kind == crate::firewall::STAGE);
        // Who asks does not change while the program runs.
        let hears = confirms && {
            let mut tracker = tracker.lock().unwrap_or_else(PoisonError::into_inner);
            super::refused_are_events(worker.config, &tracker.module().all)
        };
        let looks = super::looks_into_tunnels(&worker.pipeline.kinds);
        let tunnels = if looks { self.options.tunnels } else { Kinds::NONE };
        let stage = Flow::new(tracker, self.latest_ns.clone()).decoded(is_decoded);
        let stage = stage.numbered(numbers > 0).searched(literals.is_some());
        let stage = stage.sharing(crate::records::are_shared(&worker.pipeline.kinds));
        let holds = super::holds_fragments(worker.config, &worker.pipeline.kinds);
        let stage = stage.holding(holds.then_some(self.options.defrag), self.count);
        let mailbox = hears.then(Arc::<Mailbox>::default);
        if let Some(mailbox) = &mailbox {
            worker.shared.put(mailbox.clone());
        }
        let stage = stage.hearing_of_refused(mailbox);
        let ids = &worker.config.ids;
        let is_monitor = worker.pipeline.kinds.iter().any(|kind| kind == super::monitor::STAGE);
        let is_inline = ids.is_on && ids.action == control::config::IdsAction::Inline;
        let stage = stage.confirming(confirms).complete(is_inline && !is_monitor);
        Some(Box::new(stage.looking_into(tunnels)))
    }

    fn table(&self, mut call: Call<'_>, env: &Environment<'_>) -> Result<Rows, Refusal> {
        match call.name {
            "flows" => {
                let wanted: ShowFlows = call.read()?;
                if wanted.summary {
                    let rows = self.summary(&wanted, env.now_ns);
                    return Ok(Rows::of("flows", call.as_text, rows));
                }
                Ok(Rows::of("flows", call.as_text, self.rows(&wanted, env.now_ns)))
            }
            "connections" => {
                let wanted: ShowConnections = call.read()?;
                let rows = self.connections(&wanted, env.now_ns);
                Ok(Rows::of("connections", call.as_text, rows))
            }
            name => Err(Refusal::new(ErrorKind::Internal, format!("no table `{name}`"))),
        }
    }

    fn runtime(&self) -> (Map<String, Value>, Vec<[String; 2]>) {
        let (t, bounds) = (self.totals(), self.bounds());
        let mut fields = self.fields(&t);
        if let Ok(Value::Object(bounds)) = serde_json::to_value(bounds) {
            fields.extend(bounds);
        }
        let [flows, started, expired, evicted, refused, most] =
            [t.flows, t.started, t.expired, t.evicted, t.refused, bounds.flows_max].map(thousands);
        let [memory, buffered, buffer] =
            [bounds.memory_bytes, t.buffered_bytes, bounds.buffer_bytes_max].map(bytes_text);
        let mut lines = vec![
            [
                "flows".to_owned(),
                format!(
                    "{flows} of {most}: {started} began, {expired} idle, {evicted} evicted, {refused} refused"
                ),
            ],
            [
                "flow memory".to_owned(),
                format!("{memory} reserved; segments that wait: {buffered} of {buffer}"),
            ],
        ];
        if t.given_up_flow + t.given_up_total > 0 {
            let [of_flow, of_all] = [t.given_up_flow, t.given_up_total].map(thousands);
            let text = format!("{of_flow} for the share of a connection, {of_all} for all memory");
            lines.push(["segments not kept".to_owned(), text]);
        }
        if !self.options.helpers.ftp_ports.is_empty() {
            let [expected, announced, related, refused, full] = [
                t.helpers.expected,
                t.helpers.announced,
                t.helpers.related,
                t.helpers.refused,
                t.helpers.full,
            ]
            .map(thousands);
            let text = format!(
                "{announced} announced, {related} related, {expected} expected, {refused} refused, {full} without room"
            );
            lines.push(["FTP data connections".to_owned(), text]);
        }
        if let Some(tunnels) = t.tunnels {
            lines.push(["tunnels".to_owned(), tunnels.text()]);
        }
        lines.extend(self.outputs.lines());
        (Map::from_iter([("flow".to_owned(), Value::Object(fields))]), lines)
    }

    fn next_deadline_ns(&self) -> Option<u64> {
        (!self.outputs.is_empty()).then_some(self.log_ns)
    }

    fn tick(&mut self, env: &mut Environment<'_>) {
        if env.now_ns >= self.log_ns {
            self.outputs.log();
            self.log_ns = env.now_ns + LOG_NS;
        }
    }

    fn metrics(&self, out: &mut Metrics) {
        let t = self.totals();
        out.gauge("flows", "Flows that are followed.").sample(&[], t.flows);
        out.gauge("flow_buffered_bytes", "TCP segments that wait for others.")
            .sample(&[], t.buffered_bytes);
        let families = [
            ("flows_started_total", "Flows that began.", t.started),
            ("flows_expired_total", "Flows that ended after their idle time.", t.expired),
            ("flows_evicted_total", "Flows that made room for others.", t.evicted),
            ("flows_refused_total", "Packets for whose flow there was no room.", t.refused),
            ("flow_packets_total", "Packets of flows.", t.packets),
            (
                "flow_checksum_errors_total",
                "Packets with a wrong checksum of IPv4 or TCP.",
                t.bad_checksum,
            ),
            (
                "flow_late_packets_total",
                "Packets earlier than one before them by more than 10 s.",
                t.late,
            ),
            ("flow_late_flows_total", "Flows that began with such a packet.", t.late_flows),
            ("flow_fragments_total", "Fragments of IP datagrams.", t.fragments),
            (
                "flow_fragments_lost_total",
                "Fragments that did not become a datagram.",
                t.fragments_lost,
            ),
            (
                "flow_segments_not_kept_by_share_total",
                "TCP segments before others that were not kept, as their connection had its share of the memory.",
                t.given_up_flow,
            ),
            (
                "flow_segments_not_kept_by_total_total",
                "TCP segments before others that were not kept, as there was no memory.",
                t.given_up_total,
            ),
            (
                "flow_announced_total",
                "Connections that others announced, such as FTP's data connections.",
                t.helpers.announced,
            ),
            ("flow_related_total", "Announced connections that came.", t.helpers.related),
            (
                "flow_announcements_refused_total",
                "Announcements of an address of another host, or of a port below 1024.",
                t.helpers.refused,
            ),
            (
                "flow_announcements_full_total",
                "Announcements, and segments of control connections, for which there was no room.",
                t.helpers.full,
            ),
        ];
        for (name, help, value) in families {
            out.counter(name, help).sample(&[], value);
        }
        if let Some(TunnelTotals { packets, too_deep, in_fragments }) = t.tunnels {
            let families = [
                ("flow_tunnel_packets_total", "Packets out of tunnels.", packets),
                (
                    "flow_tunnels_too_deep_total",
                    "Packets out of tunnels with a tunnel inside that was not looked into.",
                    too_deep,
                ),
                (
                    "flow_tunnel_fragments_total",
                    "Datagrams of tunnels that came in fragments and were not looked into.",
                    in_fragments,
                ),
            ];
            for (name, help, value) in families {
                out.counter(name, help).sample(&[], value);
            }
        }
        let States { untracked, invalid, new, established, related } = t.states;
        let by_state = [
            ("untracked", untracked),
            ("invalid", invalid),
            ("new", new),
            ("established", established),
            ("related", related),
        ];
        let mut family =
            out.counter("flow_state_packets_total", "Packets by their state in their flow.");
        for (state, packets) in by_state {
            family.sample(&[("state", state)], packets);
        }
        self.outputs.metrics(out);
    }

    /// Whoever rotates logs has moved the file away.
    fn commit(&mut self, _old: &Config, _started: &Config, _env: &mut Environment<'_>) -> String {
        self.outputs.reopen();
        String::new()
    }

    fn report(&self) -> Vec<Section> {
        self.outputs.close();
        let t = self.totals();
        let mut text = format!(
            "flows: {} in {} packets; {} with a wrong checksum, {} malformed, {} fragments\n",
            thousands(t.started),
            thousands(t.packets),
            thousands(t.bad_checksum),
            thousands(t.malformed),
            thousands(t.fragments)
        );
        if t.refused > 0 {
            text += &format!(
                "warning: {} packets belong to no flow, because the table is full of open connections: raise `flows` of [flow]\n",
                thousands(t.refused)
            );
        }
        if let Some(tunnels) = t.tunnels {
            text += &format!("tunnels: {}\n", tunnels.text());
        }
        for [name, line] in self.outputs.lines() {
            text += &format!("{name}: {line}\n");
        }
        let errors = self.outputs.errors();
        vec![Section { errors, ..Section::new("flow", &self.fields(&t), text) }]
    }
}
