//! What went where: the totals at the end of a run, as a table for people and JSON for programs.

use std::time::Duration;

use control::api::table::thousands;
use controlplane::statistics::{PortCounters, lost, named_apart, stage_names, totals};
use controlplane::{Interfaces, Running, Section};
use engine::{Counter, EngineView, MasterView, StageCounters, WorkerCounters};
use io::QueueStats;
use serde::Serialize;
use serde_json::{Map, Value};

/// Totals of a run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) ports: Vec<PortTotals>,
    pub(crate) drops: Vec<DropTotals>,
    pub(crate) stages: Vec<StageTotals>,
    /// What applications add, a field each.
    #[serde(flatten)]
    sections: Map<String, Value>,
    /// The same for people.
    #[serde(skip)]
    texts: Vec<String>,
    pub(crate) rx_packets: u64,
    pub(crate) tx_packets: u64,
    pub(crate) host_packets: u64,
    pub(crate) made_packets: u64,
    pub(crate) dropped_packets: u64,
    /// Those of them that were lost at receive and are not among `rx_packets`.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) rx_lost_packets: u64,
    /// Times that a packet entered the pipeline again.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) again_packets: u64,
    /// Packets handed over to the worker of another flow.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) handed_over_packets: u64,
    /// Packets that went to captures and nowhere else.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) dumped_packets: u64,
    /// Packets that were under way for longer than `max_delay`.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) late_packets: u64,
    /// Panics of stages, each of which dropped a chunk.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) panics: u64,
    /// Workers that run no stages any more.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) workers_given_up: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seconds: Option<f64>,
    /// Not in the file: how packets fall into jobs differs from run to run.
    #[serde(skip)]
    pub(crate) devices: Vec<MasterView>,
    /// The signal that ended the run before its input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) interrupted: Option<&'static str>,
    /// Whether a part of the input is missing in these totals: after a signal, in a damaged capture, or because an output
    /// failed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) incomplete: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) errors: Vec<String>,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct PortTotals {
    pub(crate) port: String,
    pub(crate) rx_packets: u64,
    pub(crate) rx_bytes: u64,
    pub(crate) rx_drops: u64,
    pub(crate) tx_packets: u64,
    pub(crate) tx_bytes: u64,
    pub(crate) tx_drops: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct DropTotals {
    pub(crate) reason: &'static str,
    pub(crate) text: &'static str,
    pub(crate) packets: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct StageTotals {
    pub(crate) stage: String,
    #[serde(skip)]
    pub(crate) calls: u64,
    /// In the file of a live run alone: over captures they depend on the number of workers.
    #[serde(rename = "calls", skip_serializing_if = "Option::is_none")]
    pub(crate) shown_calls: Option<u64>,
    pub(crate) packets: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) packets_per_call: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ns_per_packet: Option<f64>,
}

/// A field that most runs have no use for.
fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Report {
    /// Packets that were not followed or forwarded because a checksum of them is wrong.
    pub(crate) fn wrong_checksums(&self) -> u64 {
        let of_ip = self.drops.iter().filter(|own| own.reason == "ip_bad_checksum");
        of_ip.map(|own| own.packets).sum::<u64>() + self.flow_packets("bad_checksum")
    }

    /// Reasons for which queues lost packets that they should have received.
    pub(crate) fn lost_at_receive(&self) -> impl Iterator<Item = &DropTotals> {
        self.drops.iter().filter(|own| own.reason.starts_with("rx_"))
    }

    /// Packets that the stage `flow` counted under a name of `stats.json`.
    pub(crate) fn flow_packets(&self, name: &str) -> u64 {
        let count = self.sections.get("flow").and_then(|flow| flow.get(name));
        count.and_then(Value::as_u64).unwrap_or(0)
    }

    /// The totals since the start, whatever was cleared meanwhile. `time` adds what depends on the
    /// machine; without it the same input gives the same report.
    pub(crate) fn of(
        view: &EngineView,
        ports: &[PortCounters],
        parts: &[Running],
        interfaces: &Interfaces,
        time: Option<Duration>,
    ) -> Self {
        let mut host_packets = 0;
        let (mut rx_packets, mut rx_lost_packets, mut tx_packets) = (0, 0, 0);
        for port in ports {
            let (rx, tx) = port.totals();
            rx_packets += rx.packets;
            rx_lost_packets += rx.dropped;
            if port.twin {
                host_packets += tx.packets;
                continue;
            }
            tx_packets += tx.packets;
        }
        let counters = ports;
        let ports = totals(ports, interfaces, parts).into_iter().zip(interfaces.names());
        let ports = ports.map(|((rx, tx), name)| PortTotals {
            port: name.clone(),
            rx_packets: rx.packets,
            rx_bytes: rx.bytes,
            rx_drops: rx.dropped,
            tx_packets: tx.packets,
            tx_bytes: tx.bytes,
            tx_drops: tx.dropped,
        });
        let drops: Vec<_> = view
            .reasons()
            .iter()
            .map(|r| DropTotals {
                reason: r.name(),
                text: r.text(),
                packets: view.workers.iter().map(|w| w.drops(r.code())).sum::<u64>()
                    + lost(counters, r.code()),
            })
            .filter(|d| d.packets > 0)
            .collect();
        let ratio = |a: u64, b: u64| if b == 0 { 0.0 } else { a as f64 / b as f64 };
        let stages = stage_names(view).into_iter().enumerate().map(|(i, name)| {
            let sum = |counter: fn(&StageCounters) -> &Counter| {
                view.workers.iter().map(|w| counter(&w.stages[i]).get()).sum()
            };
            let (calls, packets) = (sum(|s| &s.calls), sum(|s| &s.packets));
            StageTotals {
                stage: name,
                calls,
                shown_calls: time.map(|_| calls),
                packets,
                packets_per_call: time.map(|_| ratio(packets, calls)),
                ns_per_packet: time.map(|_| ratio(sum(|s| &s.busy_ns), packets)),
            }
        });
        let sections: Vec<Section> = parts.iter().flat_map(|own| own.part.report()).collect();
        let sum = |counter: fn(&WorkerCounters) -> &Counter| {
            view.workers.iter().map(|worker| counter(worker).get()).sum::<u64>()
        };
        Self {
            stages: stages.collect(),
            sections: sections.iter().map(|s| (s.name.clone(), s.value.clone())).collect(),
            errors: sections.iter().flat_map(|section| section.errors.clone()).collect(),
            texts: sections.into_iter().map(|section| section.text).collect(),
            rx_packets,
            tx_packets,
            host_packets,
            made_packets: view.emitted(),
            dropped_packets: drops.iter().map(|d| d.packets).sum(),
            rx_lost_packets,
            seconds: time.map(|t| t.as_secs_f64()),
            again_packets: sum(|w| &w.again),
            handed_over_packets: sum(|w| &w.handed_over),
            dumped_packets: sum(|w| &w.dumped),
            late_packets: sum(|w| &w.late),
            panics: sum(|w| &w.panics),
            workers_given_up: sum(|w| &w.gave_up),
            devices: named_apart(view.masters()),
            interrupted: None,
            incomplete: false,
            ports: ports.collect(),
            drops,
        }
    }

    /// Says what each port received, where one queue receives for several ports.
    pub(crate) fn set_received(&mut self, received: &[(u16, QueueStats)], interfaces: &Interfaces) {
        let is_port = |name: &str| interfaces.number(name).is_some_and(|n| interfaces.is_port(n));
        for port in self.ports.iter_mut().filter(|port| is_port(&port.port)) {
            let own = received.iter().find(|(n, _)| interfaces.name(*n) == port.port);
            let rx = match own {
                Some((_, rx)) => *rx,
                // That of all ports is the first one's.
                None if interfaces.number(&port.port) == Some(0) => QueueStats::default(),
                // What came by a tunnel interface, the stages have counted.
                None => continue,
            };
            (port.rx_packets, port.rx_bytes, port.rx_drops) = (rx.packets, rx.bytes, rx.dropped);
        }
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        let mut line = |text: String| {
            out.push_str(text.trim_end());
            out.push('\n');
        };
        line(format!(
            "{:<16} {:>14} {:>16} {:>14} {:>16}",
            "port", "rx packets", "rx bytes", "tx packets", "tx bytes"
        ));
        for p in &self.ports {
            line(format!(
                "{:<16} {:>14} {:>16} {:>14} {:>16}",
                p.port,
                thousands(p.rx_packets),
                thousands(p.rx_bytes),
                thousands(p.tx_packets),
                thousands(p.tx_bytes)
            ));
        }
        line(String::new());
        if self.drops.is_empty() {
            line("no drops".into());
        } else {
            line(format!("{:<28} {:>14}  {}", "dropped", "packets", "why"));
            for d in &self.drops {
                line(format!("{:<28} {:>14}  {}", d.reason, thousands(d.packets), d.text));
            }
        }
        for text in &self.texts {
            line(String::new());
            line(text.clone());
        }
        line(String::new());
        let timed = self.seconds.is_some();
        line(format!(
            "{:<16} {:>12} {:>14}{}",
            "stage",
            "calls",
            "packets",
            if timed {
                format!(" {:>14} {:>12}", "packets/call", "ns/packet")
            } else {
                String::new()
            }
        ));
        for s in &self.stages {
            let cost = match (s.packets_per_call, s.ns_per_packet) {
                (Some(per_call), Some(ns)) => format!(" {per_call:>14.1} {ns:>12.1}"),
                _ => String::new(),
            };
            let (calls, packets) = (thousands(s.calls), thousands(s.packets));
            line(format!("{:<16} {calls:>12} {packets:>14}{cost}", s.stage));
        }
        line(String::new());
        line(format!(
            "{} packets in, {} out, {} to the host, {} dropped{}; {} of the packets out were generated here",
            thousands(self.rx_packets),
            thousands(self.tx_packets),
            thousands(self.host_packets),
            thousands(self.dropped_packets),
            match self.rx_lost_packets {
                0 => String::new(),
                n => format!(" ({} of them before receipt)", thousands(n)),
            },
            thousands(self.made_packets),
        ));
        let n = thousands;
        let rare = [
            (self.again_packets, "entered the pipeline again"),
            (self.handed_over_packets, "handed over to another worker"),
            (self.dumped_packets, "dumped to captures"),
            (self.late_packets, "late"),
        ];
        let rare = rare.iter().filter(|(count, _)| *count > 0);
        let rare: Vec<_> = rare.map(|(count, what)| format!("{} {what}", n(*count))).collect();
        if !rare.is_empty() {
            line(format!("packets: {}", rare.join(", ")));
        }
        if self.panics > 0 {
            let (panics, workers) = (n(self.panics), n(self.workers_given_up));
            line(format!("{panics} panics of stages; {workers} workers no longer run stages"));
        }
        for d in &self.devices {
            line(format!(
                "device {}: {} jobs, {} packets, {} jobs repeated on the CPU",
                d.device,
                thousands(d.jobs),
                thousands(d.packets),
                thousands(d.failed)
            ));
        }
        if let Some(signal) = self.interrupted {
            line(format!("interrupted by {signal}: the rest of the input was not read"));
        }
        if let Some(seconds) = self.seconds.filter(|&s| s > 0.0) {
            let rate = self.rx_packets as f64 / seconds / 1e6;
            line(format!("{seconds:.3} s, {rate:.2} Mpps"));
        }
        out
    }
}
