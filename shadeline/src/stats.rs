//! What is counted of a live router, gathered for `ctl show`, the metrics and the end.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use chunk::{CELL_BYTES, DROP_REASONS, Depot};
use control::api::{
    DropRow, InterfaceRow, MasterRow, QueueRow, RouteSource, Runtime, StageRow, WorkerRow,
};
use control::metrics::Snapshot;
use control::rib::RibStats;
use engine::EngineView;
use io::QueueStats;
use ipnet::IpNet;
use lookup::fib::Interface;
use lookup::versions::Reader;

use crate::ports::net;
use crate::wiring::{self, Interfaces, PortCounters};

/// Counters of a running data path and what was noted of the tables.
pub(crate) struct Statistics {
    view: Arc<EngineView>,
    ports: Vec<PortCounters>,
    interfaces: Interfaces,
    kinds: Vec<String>,
    depot: Arc<Depot>,
    reader: Mutex<Reader<lookup::fib::Fib>>,
    started: Instant,
    mode: String,
    version: AtomicU64,
    tables: Mutex<Tables>,
    sampled: Mutex<Sample>,
    /// What ports had counted when the counters were cleared.
    base: Mutex<Vec<(QueueStats, QueueStats)>>,
}

#[derive(Default, Clone)]
struct Tables {
    rib: RibStats,
    neighbours: usize,
    records: Vec<Interface>,
}

/// Counters some time ago, and the rates since the time before.
struct Sample {
    at: Instant,
    ports: Vec<(QueueStats, QueueStats)>,
    busy_ns: Vec<u64>,
    rates_pps: Vec<(f64, f64)>,
    busy_percent: Vec<f64>,
}

impl Statistics {
    pub(crate) fn new(
        view: Arc<EngineView>,
        ports: Vec<PortCounters>,
        interfaces: Interfaces,
        kinds: Vec<String>,
        depot: Arc<Depot>,
        reader: Reader<lookup::fib::Fib>,
        mode: String,
    ) -> Self {
        let sample = Sample {
            at: Instant::now(),
            ports: ports.iter().map(PortCounters::totals).collect(),
            busy_ns: vec![0; view.workers.len()],
            rates_pps: vec![(0.0, 0.0); ports.len()],
            busy_percent: vec![0.0; view.workers.len()],
        };
        Self {
            base: Mutex::new(vec![Default::default(); ports.len()]),
            sampled: Mutex::new(sample),
            view,
            ports,
            interfaces,
            kinds,
            depot,
            reader: Mutex::new(reader),
            started: Instant::now(),
            mode,
            version: AtomicU64::new(0),
            tables: Mutex::default(),
        }
    }

    /// Notes what a new version of the tables holds.
    pub(crate) fn tables(&self, version: u64, rib: &RibStats, neighbours: usize) {
        self.version.store(version, Relaxed);
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        tables.rib = *rib;
        tables.neighbours = neighbours;
    }

    /// Measures rates since the last call, if that was at least half a second ago.
    pub(crate) fn sample(&self) {
        let mut sample = self.sampled.lock().unwrap_or_else(PoisonError::into_inner);
        let seconds = sample.at.elapsed().as_secs_f64();
        if seconds < 0.5 {
            return;
        }
        let ports: Vec<_> = self.ports.iter().map(PortCounters::totals).collect();
        let busy_ns: Vec<_> = self.view.workers.iter().map(|w| w.busy_ns.get()).collect();
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
        sample.rates_pps = ports
            .iter()
            .zip(&sample.ports)
            .map(|((rx, tx), (rx0, tx0))| {
                (rate(rx.packets, rx0.packets), rate(tx.packets, tx0.packets))
            })
            .collect();
        sample.busy_percent =
            busy_ns.iter().zip(&sample.busy_ns).map(|(n, t)| rate(*n, *t) / 1e7).collect();
        (sample.ports, sample.busy_ns, sample.at) = (ports, busy_ns, Instant::now());
    }

    /// Ports count from zero from now on.
    pub(crate) fn clear(&self) {
        let totals = self.ports.iter().map(PortCounters::totals).collect();
        *self.base.lock().unwrap_or_else(PoisonError::into_inner) = totals;
    }

    /// A row for each interface; `records` as the steward knows them.
    pub(crate) fn interfaces(&self, records: &[Interface]) -> Vec<InterfaceRow> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner).records = records.to_vec();
        self.sample();
        let sample = self.sampled.lock().unwrap_or_else(PoisonError::into_inner);
        let base = self.base.lock().unwrap_or_else(PoisonError::into_inner);
        let row = |(i, record): (usize, &Interface)| {
            let mut row = InterfaceRow {
                name: self.interfaces.name(i as u16).to_owned(),
                index: i as u32,
                kind: self.kinds.get(i).cloned().unwrap_or_default(),
                mac: wiring::mac_text(record.mac),
                mtu: record.mtu.into(),
                state: if record.up { "up" } else { "down" }.into(),
                addresses: addresses(record),
                ..InterfaceRow::default()
            };
            // A subinterface has no queues of its own; its port counts its packets.
            let own = |p: &PortCounters| usize::from(p.number) == i && !p.twin;
            for (at, port) in self.ports.iter().enumerate().filter(|(_, p)| own(p)) {
                let (rx, tx) = port.totals();
                let (rx0, tx0) = base[at];
                row.rx_packets += rx.packets - rx0.packets;
                row.rx_bytes += rx.bytes - rx0.bytes;
                row.rx_errors += rx.errors - rx0.errors;
                row.rx_drops += rx.dropped - rx0.dropped;
                row.tx_packets += tx.packets - tx0.packets;
                row.tx_bytes += tx.bytes - tx0.bytes;
                row.tx_errors += tx.errors - tx0.errors;
                row.tx_drops += tx.dropped - tx0.dropped;
                row.rx_rate_pps += sample.rates_pps[at].0;
                row.tx_rate_pps += sample.rates_pps[at].1;
            }
            row
        };
        records.iter().enumerate().map(row).collect()
    }

    /// A row for each queue of each port.
    pub(crate) fn queues(&self) -> Vec<QueueRow> {
        let mut rows = Vec::new();
        for port in self.ports.iter().filter(|p| !p.twin) {
            for (q, (worker, rx, tx)) in port.queues.iter().enumerate() {
                let (rx, tx) = (rx.get(), tx.get());
                rows.push(QueueRow {
                    port: self.interfaces.name(port.number).to_owned(),
                    queue: q as u32,
                    worker: *worker as u32,
                    rx_packets: rx.packets,
                    rx_bytes: rx.bytes,
                    rx_drops: rx.dropped,
                    tx_packets: tx.packets,
                    tx_bytes: tx.bytes,
                    tx_drops: tx.dropped,
                });
            }
        }
        rows
    }

    pub(crate) fn stages(&self) -> Vec<StageRow> {
        let ratio = |a: u64, b: u64| if b == 0 { 0.0 } else { a as f64 / b as f64 };
        let row = |(i, name): (usize, &&'static str)| {
            let totals = self.view.stage(i);
            StageRow {
                name: (*name).to_owned(),
                phase: String::new(),
                calls: totals.calls,
                packets: totals.packets,
                packets_per_call: ratio(totals.packets, totals.calls),
                ns_per_packet: ratio(totals.busy_ns, totals.packets),
            }
        };
        self.view.stages.iter().enumerate().map(row).collect()
    }

    pub(crate) fn drops(&self) -> Vec<DropRow> {
        let row = |r: &chunk::DropReason| DropRow {
            reason: r.name().to_owned(),
            text: r.text().to_owned(),
            packets: self.view.drops(*r),
        };
        DROP_REASONS.iter().map(row).filter(|row| row.packets > 0).collect()
    }

    pub(crate) fn runtime(&self) -> Runtime {
        self.sample();
        let tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let sample = self.sampled.lock().unwrap_or_else(PoisonError::into_inner);
        let cells = self.depot.region().cells();
        let table_bytes = {
            let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
            2 * reader.pin().len_bytes()
        };
        let workers = self.view.workers.iter().enumerate().map(|(i, w)| WorkerRow {
            id: i as u32,
            cpu: self.view.cpus[i].map(|cpu| cpu as u32),
            packets: w.rx_packets.get(),
            busy_percent: sample.busy_percent.get(i).copied().unwrap_or(0.0),
            empty_polls: w.idle_turns.get(),
            wakeups: w.sleeps.get(),
            cells_free: self.depot.available() as u64,
            cells: cells.into(),
        });
        let masters = self.view.master().map(|m| MasterRow {
            device: "simulated".into(),
            jobs: m.jobs,
            packets: m.packets,
            jobs_in_flight: 0,
            jobs_failed: m.failed,
        });
        Runtime {
            version: env!("CARGO_PKG_VERSION").into(),
            mode: self.mode.clone(),
            uptime_s: self.started.elapsed().as_secs_f64(),
            workers: workers.collect(),
            masters: masters.into_iter().collect(),
            table_version: self.version.load(Relaxed),
            routes_v4: tables.rib.installed_v4 as u64,
            routes_v6: tables.rib.installed_v6 as u64,
            neighbours: tables.neighbours as u64,
            table_bytes: table_bytes as u64,
            pool_bytes: u64::from(cells) * CELL_BYTES as u64,
            resident_bytes: resident_bytes(),
        }
    }

    /// Everything, for a scrape.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let rib = tables.rib;
        let mut records = tables.records;
        if records.is_empty() {
            let name = |i: &String| Interface { name: i.clone(), up: true, ..Interface::default() };
            records = self.interfaces.names().iter().map(name).collect();
        }
        Snapshot {
            interfaces: self.interfaces(&records),
            queues: self.queues(),
            stages: self.stages(),
            // Every reason, so that a counter is there before its first drop.
            drops: DROP_REASONS
                .iter()
                .map(|r| DropRow {
                    reason: r.name().to_owned(),
                    text: r.text().to_owned(),
                    packets: self.view.drops(*r),
                })
                .collect(),
            routes: vec![
                (RouteSource::Connected, rib.connected as u64),
                (RouteSource::Static, rib.static_ as u64),
                (RouteSource::Api, rib.api as u64),
                (RouteSource::Kernel, rib.kernel as u64),
                (RouteSource::File, rib.file as u64),
            ],
            runtime: self.runtime(),
        }
    }

    /// Notes the interfaces as they are now.
    pub(crate) fn records(&self, records: &[Interface]) {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner).records = records.to_vec();
    }
}

fn addresses(record: &Interface) -> Vec<IpNet> {
    let v4 = record.addresses4.iter().map(|&(a, len)| net(true, [0, u64::from(a)], len));
    let v6 = record.addresses6.iter().map(|&(a, len)| net(false, a, len));
    v4.chain(v6).flatten().collect()
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}
