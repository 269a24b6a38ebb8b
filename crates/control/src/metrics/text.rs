//! A [`Snapshot`] in the Prometheus text format 0.0.4.
//!
//! Names: `shadeline_`, what is counted, base unit, `_total` for counters. Each family is written
//! once, with its help, before its samples.

use std::fmt::{Display, Write};

use super::Snapshot;
use crate::api::{InterfaceRow, NdnTotals, QueueRow, RouteSource, SwitchTotals, WorkerRow};

/// Of [`encode`]'s text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Writes every family of a snapshot.
pub fn encode(snapshot: &Snapshot) -> String {
    let mut out = Text(String::with_capacity(4096));
    interfaces(&mut out, &snapshot.interfaces);
    queues(&mut out, &snapshot.queues);

    let mut family = out.counter("stage_calls_total", "Calls of a stage, one a batch.");
    for stage in &snapshot.stages {
        family.sample(&[("stage", &stage.name)], stage.calls);
    }
    let mut family = out.counter("stage_packets_total", "Packets that a stage was called with.");
    for stage in &snapshot.stages {
        family.sample(&[("stage", &stage.name)], stage.packets);
    }
    let mut family = out.counter("stage_seconds_total", "Time spent in a stage.");
    for stage in &snapshot.stages {
        let seconds = stage.ns_per_packet * stage.packets as f64 / 1e9;
        family.sample(&[("stage", &stage.name)], seconds);
    }
    let mut family = out.counter("drop_packets_total", "Packets dropped, by reason.");
    for drop in &snapshot.drops {
        family.sample(&[("reason", &drop.reason)], drop.packets);
    }
    let mut family = out.gauge("routes", "Known routes, by source.");
    for (source, routes) in &snapshot.routes {
        let source = match source {
            RouteSource::Connected => "connected",
            RouteSource::Static => "static",
            RouteSource::File => "file",
            RouteSource::Kernel => "kernel",
            RouteSource::Api => "api",
        };
        family.sample(&[("source", source)], routes);
    }
    runtime(&mut out, snapshot);
    out.0
}

fn interfaces(out: &mut Text, rows: &[InterfaceRow]) {
    type Family = (&'static str, &'static str, fn(&InterfaceRow) -> u64);
    let families: [Family; 8] = [
        ("interface_receive_packets_total", "Packets received.", |r| r.rx_packets),
        ("interface_receive_bytes_total", "Bytes received.", |r| r.rx_bytes),
        ("interface_receive_errors_total", "Receive errors.", |r| r.rx_errors),
        ("interface_receive_drops_total", "Frames lost because a ring or pool was full.", |r| {
            r.rx_drops
        }),
        ("interface_transmit_packets_total", "Packets sent.", |r| r.tx_packets),
        ("interface_transmit_bytes_total", "Bytes sent.", |r| r.tx_bytes),
        ("interface_transmit_errors_total", "Frames refused at transmit.", |r| r.tx_errors),
        ("interface_transmit_drops_total", "Frames lost to a full ring.", |r| r.tx_drops),
    ];
    for (name, help, value) in families {
        let mut family = out.counter(name, help);
        for row in rows {
            family.sample(&[("interface", &row.name)], value(row));
        }
    }
    let mut family = out.gauge("interface_up", "Whether the interface is up.");
    for row in rows {
        family.sample(&[("interface", &row.name)], u64::from(row.state == "up"));
    }
    let mut family = out.gauge("interface_info", "What an interface is; always 1.");
    for row in rows {
        let index = row.index.to_string();
        family.sample(
            &[("interface", &row.name), ("index", &index), ("kind", &row.kind), ("mac", &row.mac)],
            1,
        );
    }
}

fn queues(out: &mut Text, rows: &[QueueRow]) {
    type Family = (&'static str, &'static str, fn(&QueueRow) -> u64);
    let families: [Family; 6] = [
        ("queue_receive_packets_total", "Packets received by a queue.", |r| r.rx_packets),
        ("queue_receive_bytes_total", "Bytes received by a queue.", |r| r.rx_bytes),
        ("queue_receive_drops_total", "Frames a queue lost to a full ring or pool.", |r| {
            r.rx_drops
        }),
        ("queue_transmit_packets_total", "Packets sent by a queue.", |r| r.tx_packets),
        ("queue_transmit_bytes_total", "Bytes sent by a queue.", |r| r.tx_bytes),
        ("queue_transmit_drops_total", "Frames a queue lost to a full ring.", |r| r.tx_drops),
    ];
    for (name, help, value) in families {
        let mut family = out.counter(name, help);
        for row in rows {
            let (queue, worker) = (row.queue.to_string(), row.worker.to_string());
            family.sample(
                &[("interface", &row.port), ("queue", &queue), ("worker", &worker)],
                value(row),
            );
        }
    }
}

fn switch(out: &mut Text, totals: &SwitchTotals) {
    out.gauge("stations", "Known stations.").sample(&[], totals.stations);
    out.gauge("stations_max", "Maximum number of stations.").sample(&[], totals.stations_max);
    let families = [
        ("stations_learned_total", "Stations learned.", totals.learned),
        ("stations_moved_total", "Stations that moved to another port.", totals.moved),
        ("stations_aged_total", "Stations removed after the ageing time.", totals.aged),
        (
            "stations_flushed_total",
            "Stations removed by a command or a link failure.",
            totals.flushed,
        ),
        (
            "stations_refused_total",
            "Stations not learned because the table was full.",
            totals.refused,
        ),
        ("station_events_lost_total", "Station events lost (queue full).", totals.events_lost),
        ("flooded_packets_total", "Frames flooded.", totals.flooded),
        ("flood_copies_total", "Copies of flooded frames.", totals.copies),
        ("flood_copies_lost_total", "Copies lost for lack of a cell.", totals.copies_lost),
    ];
    for (name, help, value) in families {
        out.counter(name, help).sample(&[], value);
    }
}

/// What a firewall counts; absent without one.
fn firewall(out: &mut Text, snapshot: &Snapshot) {
    let Some(totals) = &snapshot.runtime.firewall else { return };
    out.gauge("rules", "Rules of the firewall.").sample(&[], totals.rules);
    let families = [
        ("mirror_copies_total", "Copies sent by rules.", totals.copies),
        ("mirror_copies_lost_total", "Copies lost for lack of a cell.", totals.copies_lost),
        ("reject_answers_total", "Answers of a switch to rejected packets.", totals.answers),
        (
            "reject_answers_withheld_total",
            "Answers withheld by the rate limit.",
            totals.answers_withheld,
        ),
    ];
    for (name, help, value) in families {
        out.counter(name, help).sample(&[], value);
    }
    let rules = &snapshot.rules;
    let mut family = out.counter("rule_packets_total", "Packets that matched a rule.");
    rules.iter().for_each(|r| family.sample(&[("rule", &r.name)], r.packets));
    let mut family = out.counter("rule_bytes_total", "Bytes that matched a rule.");
    rules.iter().for_each(|r| family.sample(&[("rule", &r.name)], r.bytes));
    let mut family =
        out.gauge("rule_last_hit_timestamp_seconds", "When the last one came, since 1970.");
    for rule in rules {
        if let Some(seconds) = rule.last_hit_s {
            family.sample(&[("rule", &rule.name)], seconds);
        }
    }
}

fn runtime(out: &mut Text, snapshot: &Snapshot) {
    let r = &snapshot.runtime;
    let mut family = out.gauge("build_info", "Version and pipeline; always 1.");
    family.sample(&[("version", &r.version), ("mode", &r.mode)], 1);
    out.gauge("uptime_seconds", "Time since the start.").sample(&[], r.uptime_s);
    out.gauge("table_version", "Version of the tables that new packets see.")
        .sample(&[], r.table_version);
    let mut family = out.gauge("table_routes", "Routes in the forwarding tables.");
    family.sample(&[("family", "ipv4")], r.routes_v4);
    family.sample(&[("family", "ipv6")], r.routes_v6);
    out.gauge("neighbours", "Known neighbours.").sample(&[], r.neighbours);
    if let Some(switch) = &r.switch {
        self::switch(out, switch);
    }
    let mut family = out.gauge("memory_bytes", "Memory in use, by purpose.");
    family.sample(&[("purpose", "tables")], r.table_bytes);
    family.sample(&[("purpose", "pools")], r.pool_bytes);
    family.sample(&[("purpose", "resident")], r.resident_bytes);

    let ids: Vec<String> = r.workers.iter().map(|worker| worker.id.to_string()).collect();
    let workers = || r.workers.iter().zip(&ids);
    let mut family = out.counter("worker_packets_total", "Packets received by a worker.");
    workers().for_each(|(w, id)| family.sample(&[("worker", id)], w.packets));
    let mut family = out.counter("worker_empty_polls_total", "Polls that found nothing.");
    workers().for_each(|(w, id)| family.sample(&[("worker", id)], w.empty_polls));
    let mut family = out.counter("worker_wakeups_total", "Returns from waiting.");
    workers().for_each(|(w, id)| family.sample(&[("worker", id)], w.wakeups));
    let mut family = out.gauge("worker_busy_ratio", "Share of time with packets in hand.");
    workers().for_each(|(w, id)| family.sample(&[("worker", id)], w.busy_percent / 100.0));
    type Family = (&'static str, &'static str, fn(&WorkerRow) -> u64);
    let families: [Family; 5] = [
        ("worker_again_packets_total", "Packets that entered the pipeline again.", |w| {
            w.packets_again
        }),
        (
            "worker_handed_over_packets_total",
            "Packets that stages gave to the worker of another flow.",
            |w| w.packets_handed_over,
        ),
        ("worker_dumped_packets_total", "Packets for captures and nothing else.", |w| {
            w.packets_dumped
        }),
        ("worker_late_packets_total", "Packets under way for longer than max_delay.", |w| {
            w.packets_late
        }),
        ("worker_panics_total", "Panics of stages; each one dropped a chunk.", |w| w.panics),
    ];
    for (name, help, value) in families {
        let mut family = out.counter(name, help);
        workers().for_each(|(w, id)| family.sample(&[("worker", id)], value(w)));
    }
    let mut family =
        out.gauge("worker_gave_up", "Whether a worker runs no stages after too many panics.");
    workers().for_each(|(w, id)| family.sample(&[("worker", id)], u64::from(w.gave_up)));
    let mut family = out.gauge("worker_packets_held", "Packets that wait for a neighbour.");
    workers().for_each(|(w, id)| family.sample(&[("worker", id)], w.packets_held));
    let mut family = out.gauge("worker_cells_free", "Free cells in a worker's pool.");
    workers().for_each(|(w, id)| family.sample(&[("worker", id)], w.cells_free));
    let mut family = out.gauge("worker_cells", "Cells of a worker's pool.");
    workers().for_each(|(w, id)| family.sample(&[("worker", id)], w.cells));

    let made = &r.router;
    out.counter("icmp_errors_sent_total", "ICMP and ICMPv6 errors sent.")
        .sample(&[], made.icmp_errors_sent);
    out.counter("icmp_errors_withheld_total", "ICMP and ICMPv6 errors withheld by the rate limit.")
        .sample(&[], made.icmp_errors_withheld);
    out.counter(
        "answers_sent_total",
        "ARP and neighbour discovery answers for own addresses without a twin.",
    )
    .sample(&[], made.answers_sent);
    out.counter("fragmented_packets_total", "IPv4 packets that were fragmented.")
        .sample(&[], made.fragmented);
    out.counter("fragments_made_total", "Fragments made.").sample(&[], made.fragments_made);
    r.ndn.iter().for_each(|totals| ndn(out, totals));
    firewall(out, snapshot);

    let mut family = out.counter("device_jobs_total", "Jobs completed by a device.");
    r.masters.iter().for_each(|m| family.sample(&[("device", &m.device)], m.jobs));
    let mut family = out.counter("device_packets_total", "Packets processed by a device.");
    r.masters.iter().for_each(|m| family.sample(&[("device", &m.device)], m.packets));
    let mut family = out.counter(
        "device_jobs_failed_total",
        "Device jobs that failed and were repeated on the CPU.",
    );
    r.masters.iter().for_each(|m| family.sample(&[("device", &m.device)], m.jobs_failed));
    let mut family = out.gauge("device_up", "Whether a device is still in use.");
    r.masters.iter().for_each(|m| family.sample(&[("device", &m.device)], u64::from(!m.is_lost)));
    let mut family = out.counter("device_up_bytes_total", "Bytes copied to a device.");
    r.masters.iter().for_each(|m| family.sample(&[("device", &m.device)], m.up_bytes));
    let mut family = out.counter("device_down_bytes_total", "Bytes copied from a device.");
    r.masters.iter().for_each(|m| family.sample(&[("device", &m.device)], m.down_bytes));
    let mut family = out.gauge("worker_on_device", "Whether a worker's chunks go to a device now.");
    workers().for_each(|(w, id)| family.sample(&[("worker", id)], u64::from(w.side == "device")));
    let mut family = out.counter("worker_chunks_to_device_total", "Chunks sent to a device.");
    workers().for_each(|(w, id)| family.sample(&[("worker", id)], w.chunks_to_device));
    let mut family = out.gauge("device_jobs_in_flight", "Jobs on a device now.");
    r.masters.iter().for_each(|m| family.sample(&[("device", &m.device)], m.jobs_in_flight));
}

/// What a named-data forwarder counts; absent in others.
fn ndn(out: &mut Text, totals: &NdnTotals) {
    let t = totals;
    out.gauge("ndn_faces", "Faces.").sample(&[], t.faces);
    out.gauge("ndn_names", "Prefixes of names in the table.").sample(&[], t.names);
    out.gauge("ndn_pending_interests", "Pending Interests.").sample(&[], t.pending);
    let families = [
        ("ndn_expired_interests_total", "Interests that expired without Data.", t.expired),
        ("ndn_transmit_interests_total", "Interests sent.", t.interests),
        ("ndn_transmit_data_total", "Data sent, copies among them.", t.data),
        ("ndn_transmit_nacks_total", "Nacks sent.", t.nacks),
        ("ndn_copies_lost_total", "Copies lost for lack of a cell.", t.copies_lost),
    ];
    for (name, help, value) in families {
        out.counter(name, help).sample(&[], value);
    }
}

struct Text(String);

/// A family under way. Its head is written with its first sample: without samples it is absent.
struct Family<'a> {
    out: &'a mut String,
    kind: &'static str,
    name: &'static str,
    help: &'static str,
    begun: bool,
}

impl Text {
    fn counter(&mut self, name: &'static str, help: &'static str) -> Family<'_> {
        Family { out: &mut self.0, kind: "counter", name, help, begun: false }
    }

    fn gauge(&mut self, name: &'static str, help: &'static str) -> Family<'_> {
        Family { out: &mut self.0, kind: "gauge", name, help, begun: false }
    }
}

impl Family<'_> {
    fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        let Family { name, kind, help, .. } = self;
        if !std::mem::replace(&mut self.begun, true) {
            let _ = writeln!(self.out, "# HELP shadeline_{name} {help}");
            let _ = writeln!(self.out, "# TYPE shadeline_{name} {kind}");
        }
        let _ = write!(self.out, "shadeline_{name}");
        for (i, (label, value)) in labels.iter().enumerate() {
            let open = if i == 0 { '{' } else { ',' };
            let _ = write!(self.out, "{open}{label}=\"");
            for c in value.chars() {
                match c {
                    '\\' => self.out.push_str("\\\\"),
                    '"' => self.out.push_str("\\\""),
                    '\n' => self.out.push_str("\\n"),
                    c => self.out.push(c),
                }
            }
            self.out.push('"');
        }
        let _ = writeln!(self.out, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }
}

#[cfg(test)]
mod tests;
