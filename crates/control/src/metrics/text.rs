//! A [`Snapshot`] in the Prometheus text format 0.0.4.
//!
//! Names: `shadeline_`, what is counted, base unit, `_total` for counters. Each family is written
//! once, with its help, before its samples.

use std::collections::HashMap;
use std::fmt::{Display, Write};

use super::Snapshot;
use crate::api::{InterfaceRow, MasterRow, QueueRow, WorkerRow};

/// Of [`encode`]'s text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Writes every family of a snapshot, then those that `applications` writes.
pub fn encode(snapshot: &Snapshot, applications: impl FnOnce(&mut Metrics)) -> String {
    let mut out = Metrics::default();
    interfaces(&mut out, &snapshot.interfaces);
    queues(&mut out, &snapshot.queues);

    let mut family = out.counter("stage_calls_total", "Calls of a stage, one per chunk.");
    for stage in &snapshot.stages {
        family.sample(&[("stage", &stage.name)], stage.calls);
    }
    let mut family = out.counter("stage_packets_total", "Packets processed by a stage.");
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
    runtime(&mut out, snapshot);
    applications(&mut out);
    out.text()
}

fn interfaces(out: &mut Metrics, rows: &[InterfaceRow]) {
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
    let mut family = out.gauge("interface_info", "Information about an interface; always 1.");
    for row in rows {
        let index = row.index.to_string();
        family.sample(
            &[("interface", &row.name), ("index", &index), ("kind", &row.kind), ("mac", &row.mac)],
            1,
        );
    }
}

fn queues(out: &mut Metrics, rows: &[QueueRow]) {
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

fn runtime(out: &mut Metrics, snapshot: &Snapshot) {
    let r = &snapshot.runtime;
    let mut family = out.gauge("build_info", "Version and pipeline; always 1.");
    family.sample(&[("version", &r.version), ("mode", &r.mode)], 1);
    out.gauge("uptime_seconds", "Time since the start.").sample(&[], r.uptime_s);
    out.gauge("table_version", "Version of the tables that new packets see.")
        .sample(&[], r.table_version);
    let mut family = out.gauge("memory_bytes", "Memory in use, by purpose.");
    family.sample(&[("purpose", "tables")], r.table_bytes);
    family.sample(&[("purpose", "pools")], r.pool_bytes);
    family.sample(&[("purpose", "resident")], r.resident_bytes);
    let help = "Lines of the log that were not read in time, and are lost.";
    out.counter("log_lines_lost_total", help).sample(&[], r.log_lines_lost);

    let ids: Vec<String> = r.workers.iter().map(|worker| worker.id.to_string()).collect();
    let workers = || r.workers.iter().zip(&ids);
    let mut family = out.counter("worker_packets_total", "Packets received by a worker.");
    workers().for_each(|(w, id)| family.sample(&[("worker", id)], w.packets));
    let mut family = out.counter("worker_empty_polls_total", "Polls that found nothing.");
    workers().for_each(|(w, id)| family.sample(&[("worker", id)], w.empty_polls));
    let mut family = out.counter("worker_wakeups_total", "Wake-ups.");
    workers().for_each(|(w, id)| family.sample(&[("worker", id)], w.wakeups));
    let mut family = out.gauge("worker_busy_ratio", "Share of time spent on packets.");
    workers().for_each(|(w, id)| family.sample(&[("worker", id)], w.busy_percent / 100.0));
    type Family = (&'static str, &'static str, fn(&WorkerRow) -> u64);
    let families: [Family; 5] = [
        ("worker_again_packets_total", "Packets that entered the pipeline again.", |w| {
            w.packets_again
        }),
        (
            "worker_handed_over_packets_total",
            "Packets handed over to the worker of another flow.",
            |w| w.packets_handed_over,
        ),
        ("worker_dumped_packets_total", "Packets dumped to captures only.", |w| w.packets_dumped),
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

    let mut family = out.gauge("worker_on_device", "Whether a worker's chunks go to a device now.");
    workers().for_each(|(w, id)| family.sample(&[("worker", id)], u64::from(w.side == "device")));
    let mut family = out.counter("worker_chunks_to_device_total", "Chunks sent to a device.");
    workers().for_each(|(w, id)| family.sample(&[("worker", id)], w.chunks_to_device));
    devices(out, &r.masters);
}

fn devices(out: &mut Metrics, masters: &[MasterRow]) {
    type Family = (&'static str, &'static str, fn(&MasterRow) -> u64);
    let counters: [Family; 13] = [
        ("device_jobs_total", "Jobs completed by a device.", |m| m.jobs),
        ("device_packets_total", "Packets processed by a device.", |m| m.packets),
        (
            "device_jobs_failed_total",
            "Device jobs that failed and were repeated on the CPU.",
            |m| m.jobs_failed,
        ),
        ("device_uploads_total", "Copies to a device for its jobs.", |m| m.uploads),
        ("device_launches_total", "Kernels launched on a device.", |m| m.launches),
        (
            "device_jobs_sorted_total",
            "Device jobs whose packets were sorted before the kernels.",
            |m| m.jobs_sorted,
        ),
        (
            "device_jobs_in_place_total",
            "Device jobs whose kernels read the packets in place.",
            |m| m.jobs_in_place,
        ),
        ("device_jobs_gathered_total", "Device jobs whose packets the device copied.", |m| {
            m.jobs_gathered
        }),
        ("device_jobs_packed_total", "Device jobs whose packets the workers packed.", |m| {
            m.jobs_packed
        }),
        ("device_upload_bytes_total", "Bytes copied to a device.", |m| m.up_bytes),
        ("device_download_bytes_total", "Bytes copied from a device.", |m| m.down_bytes),
        // Beside `device_up`, these read like states. They go after one release.
        ("device_up_bytes_total", "Deprecated: use shadeline_device_upload_bytes_total.", |m| {
            m.up_bytes
        }),
        (
            "device_down_bytes_total",
            "Deprecated: use shadeline_device_download_bytes_total.",
            |m| m.down_bytes,
        ),
    ];
    for (name, help, value) in counters {
        let mut family = out.counter(name, help);
        masters.iter().for_each(|m| family.sample(&[("device", &m.device)], value(m)));
    }
    let mut family = out.gauge("device_up", "Whether a device is still in use.");
    masters.iter().for_each(|m| family.sample(&[("device", &m.device)], u64::from(!m.is_lost)));
    let mut family = out.gauge("device_jobs_in_flight", "Jobs on a device now.");
    masters.iter().for_each(|m| family.sample(&[("device", &m.device)], m.jobs_in_flight));
}

/// Families under way to a scrape. A family is written at one place: samples of a name that is there already are left
/// out, for Prometheus refuses a text with a family twice.
#[derive(Debug, Default)]
pub struct Metrics {
    /// In the order in which they began.
    families: Vec<String>,
    /// By name: where it is among them.
    places: HashMap<String, usize>,
}

/// A family under way. Its head is written with its first sample: without samples it is absent.
#[derive(Debug)]
pub struct Family<'a> {
    out: &'a mut Metrics,
    kind: &'static str,
    name: &'a str,
    help: &'a str,
    /// Where it is, once it has a sample.
    place: Option<usize>,
}

impl Metrics {
    /// A family that only grows. `name`: what is counted and its unit, without the prefix `shadeline_`; it ends in
    /// `_total`. `help`: a sentence.
    pub fn counter<'a>(&'a mut self, name: &'a str, help: &'a str) -> Family<'a> {
        debug_assert!(name.ends_with("_total"), "{name}: a counter's name ends in _total");
        Family { out: self, kind: "counter", name, help, place: None }
    }

    /// A family that grows and shrinks; `name` and `help` as in [`Metrics::counter`], without `_total`.
    pub fn gauge<'a>(&'a mut self, name: &'a str, help: &'a str) -> Family<'a> {
        debug_assert!(!name.ends_with("_total"), "{name}: only a counter's name ends in _total");
        Family { out: self, kind: "gauge", name, help, place: None }
    }

    /// The text so far.
    pub fn text(&self) -> String {
        self.families.concat()
    }
}

impl Family<'_> {
    /// Adds a sample; each has other values of the same labels.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        let Family { out, name, kind, help, place } = self;
        let at = *place.get_or_insert_with(|| {
            let Metrics { families, places } = &mut **out;
            *places.entry((*name).to_owned()).or_insert_with(|| {
                let head = "shadeline_";
                families.push(format!("# HELP {head}{name} {help}\n# TYPE {head}{name} {kind}\n"));
                families.len() - 1
            })
        });
        let out = &mut out.families[at];
        let _ = write!(out, "shadeline_{name}");
        for (i, (label, value)) in labels.iter().enumerate() {
            let open = if i == 0 { '{' } else { ',' };
            let _ = write!(out, "{open}{label}=\"");
            for c in value.chars() {
                match c {
                    '\\' => out.push_str("\\\\"),
                    '"' => out.push_str("\\\""),
                    '\n' => out.push_str("\\n"),
                    c => out.push(c),
                }
            }
            out.push('"');
        }
        let _ = writeln!(out, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }
}

#[cfg(test)]
mod tests;
