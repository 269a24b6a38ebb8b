//! What went where: the totals at the end of a run, as a table for people and JSON for programs.

use std::time::Duration;

use chunk::DROP_REASONS;
use control::api::table::thousands;
use engine::EngineView;
use io::QueueStats;
use serde::Serialize;

use crate::wiring::{Interfaces, PortCounters};

/// Totals of a run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) ports: Vec<PortTotals>,
    pub(crate) drops: Vec<DropTotals>,
    pub(crate) stages: Vec<StageTotals>,
    pub(crate) rx_packets: u64,
    pub(crate) tx_packets: u64,
    pub(crate) host_packets: u64,
    pub(crate) made_packets: u64,
    pub(crate) dropped_packets: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seconds: Option<f64>,
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
    pub(crate) calls: u64,
    pub(crate) packets: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) packets_per_call: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ns_per_packet: Option<f64>,
}

impl Report {
    /// The totals of `path` now. `timed` adds what depends on the machine; without it the same
    /// input gives the same report.
    pub(crate) fn of(
        view: &EngineView,
        counters: &[PortCounters],
        interfaces: &Interfaces,
        time: Option<Duration>,
    ) -> Self {
        let mut ports = Vec::new();
        let mut host_packets = 0;
        let (mut rx_packets, mut tx_packets) = (0, 0);
        for port in counters {
            let (rx, tx) = port.totals();
            rx_packets += rx.packets;
            if port.twin {
                host_packets += tx.packets;
                continue;
            }
            tx_packets += tx.packets;
            // A port may have its queues in several places (captures: one for input, one for
            // output).
            let name = interfaces.name(port.number);
            let at = ports.iter().position(|p: &PortTotals| p.port == name).unwrap_or_else(|| {
                ports.push(PortTotals { port: name.to_owned(), ..PortTotals::default() });
                ports.len() - 1
            });
            let totals = &mut ports[at];
            totals.rx_packets += rx.packets;
            totals.rx_bytes += rx.bytes;
            totals.rx_drops += rx.dropped;
            totals.tx_packets += tx.packets;
            totals.tx_bytes += tx.bytes;
            totals.tx_drops += tx.dropped;
        }
        let drops: Vec<_> = DROP_REASONS
            .iter()
            .map(|&r| DropTotals { reason: r.name(), text: r.text(), packets: view.drops(r) })
            .filter(|d| d.packets > 0)
            .collect();
        let ratio = |a: u64, b: u64| if b == 0 { 0.0 } else { a as f64 / b as f64 };
        let stages = view.stages.iter().enumerate().map(|(i, name)| {
            let totals = view.stage(i);
            StageTotals {
                stage: (*name).to_owned(),
                calls: totals.calls,
                packets: totals.packets,
                packets_per_call: time.map(|_| ratio(totals.packets, totals.calls)),
                ns_per_packet: time.map(|_| ratio(totals.busy_ns, totals.packets)),
            }
        });
        Self {
            stages: stages.collect(),
            rx_packets,
            tx_packets,
            host_packets,
            made_packets: view.workers.iter().map(|w| w.emitted.get()).sum(),
            dropped_packets: drops.iter().map(|d| d.packets).sum(),
            seconds: time.map(|t| t.as_secs_f64()),
            errors: Vec::new(),
            ports,
            drops,
        }
    }

    /// Says what each port received, where one queue receives for several ports.
    pub(crate) fn set_received(&mut self, received: &[(u16, QueueStats)], interfaces: &Interfaces) {
        for port in &mut self.ports {
            let own = received.iter().find(|(n, _)| interfaces.name(*n) == port.port);
            let rx = own.map_or_else(QueueStats::default, |(_, rx)| *rx);
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
            "{} packets in, {} out, {} to the host, {} dropped; {} of those out were made here",
            thousands(self.rx_packets),
            thousands(self.tx_packets),
            thousands(self.host_packets),
            thousands(self.dropped_packets),
            thousands(self.made_packets),
        ));
        if let Some(seconds) = self.seconds.filter(|&s| s > 0.0) {
            let rate = self.rx_packets as f64 / seconds / 1e6;
            line(format!("{seconds:.3} s, {rate:.2} Mpps"));
        }
        out
    }
}
