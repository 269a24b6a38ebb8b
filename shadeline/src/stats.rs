//! What is counted of a live router, gathered for `ctl show`, the metrics and the end.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use apps::ndn::{FACES_MAX, NdnCounters};
use apps::router::RouterCounters;
use apps::switch::SwitchCounters;
use chunk::{CELL_BYTES, Depot, Reason};
use control::api::{
    DropRow, FaceRow, InterfaceRow, MasterRow, NdnTotals, QueueRow, RouteSource, RouterTotals,
    Runtime, StageRow, SwitchTotals, WorkerRow,
};
use control::metrics::Snapshot;
use control::rib::RibStats;
use engine::{Counter, EngineView, MasterView};
use io::QueueStats;
use ipnet::IpNet;
use lookup::fib::Interface;
use lookup::versions::Reader;

use crate::firewall::Shown;
use crate::ports::net;
use crate::wiring::{self, Counters, Interfaces};

/// Counters of a running data path and what was noted of the tables.
pub(crate) struct Statistics {
    view: Arc<EngineView>,
    counters: Counters,
    interfaces: Interfaces,
    kinds: Vec<String>,
    depot: Arc<Depot>,
    reader: Mutex<Reader<controlplane::Tables>>,
    started: Instant,
    mode: String,
    version: AtomicU64,
    tables: Mutex<Tables>,
    sampled: Mutex<Sample>,
    /// What interfaces had counted when the counters were cleared.
    base: Mutex<Vec<(QueueStats, QueueStats)>>,
    /// What their queues had lost then, by reason.
    lost_base: Mutex<Vec<u64>>,
    /// What the router had made then.
    router_base: Mutex<RouterTotals>,
    /// What the switch had done then.
    switch_base: Mutex<SwitchTotals>,
    /// Rules of a firewall, as last noted.
    rules: Mutex<Option<Shown>>,
    /// What the named-data forwarder had done then, and each of its faces.
    ndn_base: Mutex<(NdnTotals, Vec<FaceTotals>)>,
}

/// Interests and Data that came in by a face, and those that went out.
type FaceTotals = [u64; 4];

#[derive(Default, Clone)]
struct Tables {
    rib: RibStats,
    /// Of a switch; those of its stages are added when somebody asks.
    switch: Option<SwitchTotals>,
    /// Of a named-data forwarder, likewise.
    ndn: Option<NdnTotals>,
    neighbours: usize,
    records: Vec<Interface>,
}

/// Counters some time ago, and the rates since the time before.
struct Sample {
    at: Instant,
    interfaces: Vec<(QueueStats, QueueStats)>,
    busy_ns: Vec<u64>,
    rates_pps: Vec<(f64, f64)>,
    busy_percent: Vec<f64>,
}

impl Statistics {
    pub(crate) fn new(
        view: Arc<EngineView>,
        counters: Counters,
        interfaces: Interfaces,
        kinds: Vec<String>,
        depot: Arc<Depot>,
        reader: Reader<controlplane::Tables>,
        mode: String,
    ) -> Self {
        let n = interfaces.names().len();
        let sample = Sample {
            at: Instant::now(),
            interfaces: counters.interfaces(&interfaces),
            busy_ns: vec![0; view.workers.len()],
            rates_pps: vec![(0.0, 0.0); n],
            busy_percent: vec![0.0; view.workers.len()],
        };
        Self {
            base: Mutex::new(vec![Default::default(); n]),
            lost_base: Mutex::new(vec![0; view.reasons().len()]),
            router_base: Mutex::default(),
            switch_base: Mutex::default(),
            rules: Mutex::default(),
            ndn_base: Mutex::default(),
            sampled: Mutex::new(sample),
            view,
            counters,
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

    /// Notes the rules of a firewall.
    pub(crate) fn rules(&self, shown: Shown) {
        *self.rules.lock().unwrap_or_else(PoisonError::into_inner) = Some(shown);
    }

    /// Notes what a switch knows.
    pub(crate) fn stations(&self, totals: SwitchTotals) {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner).switch = Some(totals);
    }

    /// What a switch knows and did, since the start or since the counters were cleared.
    fn switch(&self, noted: Option<SwitchTotals>) -> Option<SwitchTotals> {
        let sum = |counter: fn(&SwitchCounters) -> &Counter| {
            self.counters.switch.iter().map(|worker| counter(worker).get()).sum::<u64>()
        };
        let now = SwitchTotals {
            table_full: sum(|c| &c.table_full),
            events_lost: sum(|c| &c.events_lost),
            flooded: sum(|c| &c.flooded),
            copies: sum(|c| &c.copies),
            copies_lost: sum(|c| &c.copies_lost),
            ..noted?
        };
        let then = *self.switch_base.lock().unwrap_or_else(PoisonError::into_inner);
        Some(SwitchTotals {
            learned: now.learned - then.learned,
            moved: now.moved - then.moved,
            aged: now.aged - then.aged,
            flushed: now.flushed - then.flushed,
            refused: now.refused - then.refused,
            table_full: now.table_full - then.table_full,
            events_lost: now.events_lost - then.events_lost,
            flooded: now.flooded - then.flooded,
            copies: now.copies - then.copies,
            copies_lost: now.copies_lost - then.copies_lost,
            ..now
        })
    }

    /// Notes what a named-data forwarder knows.
    pub(crate) fn named(&self, totals: NdnTotals) {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner).ndn = Some(totals);
    }

    /// What passed each face since the start; none where no forwarder is.
    fn faces_since_start(&self) -> Vec<FaceTotals> {
        let sum = |face: u16| {
            let mut totals = FaceTotals::default();
            for counters in self.counters.ndn.iter().filter_map(|worker| worker.face(face)) {
                let c = counters;
                let all = [&c.in_interests, &c.in_data, &c.out_interests, &c.out_data];
                totals.iter_mut().zip(all).for_each(|(sum, counter)| *sum += counter.get());
            }
            totals
        };
        let count = if self.counters.ndn.is_empty() { 0 } else { FACES_MAX as u16 };
        (0..count).map(sum).collect()
    }

    /// Fills counters into the rows of faces, each with its number.
    pub(crate) fn faces(&self, rows: Vec<(u16, FaceRow)>) -> Vec<FaceRow> {
        let now = self.faces_since_start();
        let then = self.ndn_base.lock().unwrap_or_else(PoisonError::into_inner);
        let row = |(number, mut row): (u16, FaceRow)| {
            let at = usize::from(number);
            let now = now.get(at).copied().unwrap_or_default();
            let then = then.1.get(at).copied().unwrap_or_default();
            row.in_interests = now[0] - then[0];
            row.in_data = now[1] - then[1];
            row.out_interests = now[2] - then[2];
            row.out_data = now[3] - then[3];
            row
        };
        rows.into_iter().map(row).collect()
    }

    /// What a named-data forwarder knows and did since the start.
    fn ndn_since_start(&self, noted: Option<NdnTotals>) -> Option<NdnTotals> {
        let sum = |counter: fn(&NdnCounters) -> &Counter| {
            self.counters.ndn.iter().map(|worker| counter(worker).get()).sum::<u64>()
        };
        let noted = noted?;
        let faces = self.faces_since_start();
        Some(NdnTotals {
            pending: sum(|c| &c.pending),
            expired: sum(|c| &c.expired),
            nacks: sum(|c| &c.nacks),
            copies_lost: sum(|c| &c.copies_lost),
            interests: faces.iter().map(|face| face[2]).sum(),
            data: faces.iter().map(|face| face[3]).sum(),
            ..noted
        })
    }

    /// The same, since the counters were cleared.
    fn ndn(&self, noted: Option<NdnTotals>) -> Option<NdnTotals> {
        let now = self.ndn_since_start(noted)?;
        let then = self.ndn_base.lock().unwrap_or_else(PoisonError::into_inner).0;
        Some(NdnTotals {
            expired: now.expired - then.expired,
            nacks: now.nacks - then.nacks,
            copies_lost: now.copies_lost - then.copies_lost,
            interests: now.interests - then.interests,
            data: now.data - then.data,
            ..now
        })
    }

    /// Measures rates since the last call, if that was at least half a second ago.
    pub(crate) fn sample(&self) {
        let mut sample = self.sampled.lock().unwrap_or_else(PoisonError::into_inner);
        let seconds = sample.at.elapsed().as_secs_f64();
        if seconds < 0.5 {
            return;
        }
        let interfaces = self.counters.interfaces(&self.interfaces);
        let busy_ns: Vec<_> = self.view.workers.iter().map(|w| w.busy_ns.get()).collect();
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
        sample.rates_pps = interfaces
            .iter()
            .zip(&sample.interfaces)
            .map(|((rx, tx), (rx0, tx0))| {
                (rate(rx.packets, rx0.packets), rate(tx.packets, tx0.packets))
            })
            .collect();
        sample.busy_percent = busy_ns
            .iter()
            .zip(&sample.busy_ns)
            .map(|(n, t)| (rate(*n, *t) / 1e7).min(100.0))
            .collect();
        (sample.interfaces, sample.busy_ns, sample.at) = (interfaces, busy_ns, Instant::now());
    }

    /// Sums over the workers, since the start.
    fn made(&self) -> RouterTotals {
        let sum = |counter: fn(&RouterCounters) -> &Counter| {
            self.counters.router.iter().map(|worker| counter(worker).get()).sum()
        };
        RouterTotals {
            icmp_errors_sent: sum(|c| &c.icmp_errors_sent),
            icmp_errors_withheld: sum(|c| &c.icmp_errors_withheld),
            answers_sent: sum(|c| &c.answers_sent),
            fragmented: sum(|c| &c.fragmented),
            fragments_made: sum(|c| &c.fragments_made),
        }
    }

    /// The same, since the counters were cleared.
    fn router(&self) -> RouterTotals {
        let now = self.made();
        let then = *self.router_base.lock().unwrap_or_else(PoisonError::into_inner);
        RouterTotals {
            icmp_errors_sent: now.icmp_errors_sent - then.icmp_errors_sent,
            icmp_errors_withheld: now.icmp_errors_withheld - then.icmp_errors_withheld,
            answers_sent: now.answers_sent - then.answers_sent,
            fragmented: now.fragmented - then.fragmented,
            fragments_made: now.fragments_made - then.fragments_made,
        }
    }

    /// Everything counts from zero from now on.
    pub(crate) fn clear(&self) {
        self.view.clear();
        let lost = self.view.reasons().iter().map(|r| self.counters.lost(r.code())).collect();
        *self.lost_base.lock().unwrap_or_else(PoisonError::into_inner) = lost;
        *self.router_base.lock().unwrap_or_else(PoisonError::into_inner) = self.made();
        let Tables { switch: noted, ndn, .. } =
            self.tables.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let ndn = self.ndn_since_start(ndn).unwrap_or_default();
        *self.ndn_base.lock().unwrap_or_else(PoisonError::into_inner) =
            (ndn, self.faces_since_start());
        *self.switch_base.lock().unwrap_or_else(PoisonError::into_inner) = SwitchTotals::default();
        let switch = self.switch(noted).unwrap_or_default();
        *self.switch_base.lock().unwrap_or_else(PoisonError::into_inner) = switch;
        *self.base.lock().unwrap_or_else(PoisonError::into_inner) =
            self.counters.interfaces(&self.interfaces);
    }

    /// A row for each interface; `records` as the steward knows them.
    pub(crate) fn interfaces(&self, records: &[Interface]) -> Vec<InterfaceRow> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner).records = records.to_vec();
        self.sample();
        let sample = self.sampled.lock().unwrap_or_else(PoisonError::into_inner);
        let base = self.base.lock().unwrap_or_else(PoisonError::into_inner);
        let totals = self.counters.interfaces(&self.interfaces);
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
            if let (Some((rx, tx)), Some((rx0, tx0))) = (totals.get(i), base.get(i)) {
                row.rx_packets = rx.packets - rx0.packets;
                row.rx_bytes = rx.bytes - rx0.bytes;
                row.rx_errors = rx.errors - rx0.errors;
                row.rx_drops = rx.dropped - rx0.dropped;
                row.tx_packets = tx.packets - tx0.packets;
                row.tx_bytes = tx.bytes - tx0.bytes;
                row.tx_errors = tx.errors - tx0.errors;
                row.tx_drops = tx.dropped - tx0.dropped;
            }
            if let Some(&(rx_pps, tx_pps)) = sample.rates_pps.get(i) {
                (row.rx_rate_pps, row.tx_rate_pps) = (rx_pps, tx_pps);
            }
            row
        };
        records.iter().enumerate().map(row).collect()
    }

    /// A row for each queue of each port.
    pub(crate) fn queues(&self) -> Vec<QueueRow> {
        let mut rows = Vec::new();
        for port in self.counters.ports.iter().filter(|p| !p.twin) {
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
                calls: totals.calls,
                packets: totals.packets,
                packets_per_call: ratio(totals.packets, totals.calls),
                ns_per_packet: ratio(totals.busy_ns, totals.packets),
            }
        };
        self.view.stages.iter().enumerate().map(row).collect()
    }

    /// A row for each reason that occurred.
    pub(crate) fn drops(&self) -> Vec<DropRow> {
        let mut rows = self.all_drops();
        rows.retain(|row| row.packets > 0);
        rows
    }

    /// A row for each reason: what stages and the engine dropped, and what queues lost.
    fn all_drops(&self) -> Vec<DropRow> {
        let base = self.lost_base.lock().unwrap_or_else(PoisonError::into_inner);
        let row = |(reason, base): (&&Reason, &u64)| DropRow {
            reason: reason.name().to_owned(),
            code: reason.code().code(),
            text: reason.text().to_owned(),
            remedy: reason.remedy().to_owned(),
            packets: self.view.drops(reason.code()) + self.counters.lost(reason.code()) - base,
        };
        self.view.reasons().iter().zip(base.iter()).map(row).collect()
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
            side: if w.on_device.get() > 0 { "device" } else { "cpu" }.into(),
            chunks_to_device: w.chunks_to_device.get(),
            burst_fill_percent: w.fill_percent.get(),
            shade_ns_per_packet: w.cpu_row_ns.get(),
            packets_held: w.held.get(),
            packets_again: w.again.get(),
            packets_handed_over: w.handed_over.get(),
            packets_dumped: w.dumped.get(),
            packets_late: w.late.get(),
            panics: w.panics.get(),
            gave_up: w.gave_up.get() > 0,
            cells_free: self.depot.available() as u64,
            cells: cells.into(),
        });
        let masters = named_apart(self.view.masters()).into_iter().map(|m| MasterRow {
            number: m.number as u32,
            device: m.device,
            jobs: m.jobs,
            packets: m.packets,
            jobs_in_flight: m.in_flight,
            jobs_failed: m.failed,
            is_lost: m.is_lost,
            ns_per_packet: m.row_ns,
            away_us: m.away_ns as f64 / 1e3,
            up_bytes: m.traffic.up_bytes + m.traffic.payload_up_bytes + m.traffic.table_bytes,
            down_bytes: m.traffic.down_bytes + m.traffic.payload_down_bytes,
        });
        Runtime {
            version: env!("CARGO_PKG_VERSION").into(),
            mode: self.mode.clone(),
            uptime_s: self.started.elapsed().as_secs_f64(),
            workers: workers.collect(),
            masters: masters.collect(),
            router: self.router(),
            switch: self.switch(tables.switch),
            ndn: self.ndn(tables.ndn),
            firewall: self
                .rules
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .as_ref()
                .map(Shown::totals),
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
            drops: self.all_drops(),
            routes: vec![
                (RouteSource::Connected, rib.connected as u64),
                (RouteSource::Static, rib.static_ as u64),
                (RouteSource::Api, rib.api as u64),
                (RouteSource::Kernel, rib.kernel as u64),
                (RouteSource::File, rib.file as u64),
            ],
            rules: {
                let rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
                rules.as_ref().map(Shown::rows).unwrap_or_default()
            },
            runtime: self.runtime(),
        }
    }

    /// Notes the interfaces as they are now.
    pub(crate) fn records(&self, records: &[Interface]) {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner).records = records.to_vec();
    }
}

/// Puts a number behind the name of each device that has the name of another one: a label of the metrics must tell them
/// apart.
pub(crate) fn named_apart(mut masters: Vec<MasterView>) -> Vec<MasterView> {
    let names: Vec<String> = masters.iter().map(|master| master.device.clone()).collect();
    for master in &mut masters {
        if names.iter().filter(|name| **name == master.device).count() > 1 {
            master.device = format!("{} #{}", master.device, master.number);
        }
    }
    masters
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_of_one_name_are_told_apart() {
        let names = |names: &[&str]| {
            let named = |(number, name): (usize, &&str)| MasterView {
                number,
                device: (*name).to_owned(),
                ..MasterView::default()
            };
            let masters = names.iter().enumerate().map(named).collect();
            named_apart(masters).into_iter().map(|master| master.device).collect::<Vec<_>>()
        };
        assert_eq!(names(&["a", "b"]), ["a", "b"]);
        assert_eq!(names(&["a", "b", "a"]), ["a #0", "b", "a #2"]);
    }
}
