//! What is counted of a running data path, for `ctl show`, the metrics and the end.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use chunk::{CELL_BYTES, Depot, DropReason, Reason};
use control::api::{DropRow, InterfaceRow, MasterRow, QueueRow, Runtime, StageRow, WorkerRow};
use control::metrics::{Metrics, Snapshot, encode};
use engine::{EngineView, MasterView, PipelineView, QueueCounters};
use io::{Losses, QueueStats};
use lookup::fib::Interface;
use lookup::versions::Reader;

use crate::data_path::Seen;
use crate::interfaces::{Interfaces, addresses, mac_text};
use crate::publisher::Running;
use crate::tables::Tables;

/// Rows of each table of an application in a snapshot, at most.
const HOTTEST: usize = 64;

/// Counters of the queues of a port, for those who show them.
#[derive(Clone)]
pub struct PortCounters {
    /// The port, or for a twin its interface.
    pub number: u16,
    /// Whether it is the twin of that interface.
    pub twin: bool,
    /// By queue: the worker, its receive side, its transmit side.
    pub queues: Vec<(usize, Arc<QueueCounters>, Arc<QueueCounters>)>,
    /// Why its queues lost packets.
    pub losses: Vec<Arc<Losses>>,
}

impl PortCounters {
    /// Takes over what the queues of a port that is closed have counted.
    pub fn absorb(&mut self, closed: &PortCounters) {
        let (own, new) = (self.totals(), closed.totals());
        let (rx, tx) = (Arc::<QueueCounters>::default(), Arc::<QueueCounters>::default());
        let sum = |mut own: QueueStats, new: QueueStats| {
            own += new;
            own
        };
        rx.set(sum(own.0, new.0));
        tx.set(sum(own.1, new.1));
        self.queues = vec![(0, rx, tx)];
        let losses = Losses::default();
        [&self.losses, &closed.losses].into_iter().flatten().for_each(|own| losses.absorb(own));
        self.losses = vec![Arc::new(losses)];
    }

    /// Sums over the queues: received, sent.
    pub fn totals(&self) -> (QueueStats, QueueStats) {
        let mut sums = (QueueStats::default(), QueueStats::default());
        for (_, rx, tx) in &self.queues {
            sums.0 += rx.get();
            sums.1 += tx.get();
        }
        sums
    }
}

/// What each interface received and sent. A port's queues count for it; for a subinterface and a tunnel, which have none,
/// the stages do.
pub fn totals(
    ports: &[PortCounters],
    interfaces: &Interfaces,
    parts: &[Running],
) -> Vec<(QueueStats, QueueStats)> {
    let mut all = vec![<(QueueStats, QueueStats)>::default(); interfaces.count()];
    for port in ports.iter().filter(|port| !port.twin) {
        let (rx, tx) = port.totals();
        if let Some(sums) = all.get_mut(usize::from(port.number)) {
            sums.0 += rx;
            sums.1 += tx;
        }
    }
    // Nothing is counted there for a port with packets of its own.
    for (i, sums) in all.iter_mut().enumerate() {
        for (rx, tx) in parts.iter().map(|own| own.part.tagged(i as u16)) {
            sums.0 += rx;
            sums.1 += tx;
        }
    }
    all
}

/// What the queues of a port received and sent.
pub fn totals_of(ports: &[PortCounters], number: u16) -> (QueueStats, QueueStats) {
    let mut sums = (QueueStats::default(), QueueStats::default());
    for own in ports.iter().filter(|own| own.number == number && !own.twin) {
        let (rx, tx) = own.totals();
        sums.0 += rx;
        sums.1 += tx;
    }
    sums
}

/// Packets that queues lost for `reason`: no stage gave them a verdict.
pub fn lost(ports: &[PortCounters], reason: DropReason) -> u64 {
    ports.iter().map(|port| io::lost(&port.losses, reason)).sum()
}

/// Counters of a running data path.
pub struct Statistics {
    view: Arc<EngineView>,
    /// Those of queues that are open, and of all.
    open: Vec<PortCounters>,
    ports: Vec<PortCounters>,
    interfaces: Interfaces,
    kinds: Vec<String>,
    depot: Arc<Depot>,
    reader: Mutex<Reader<Tables>>,
    log_lines_lost: fn() -> u64,
    started: Instant,
    mode: String,
    sampled: Sample,
    /// What interfaces had counted when the counters were cleared.
    base: Vec<(QueueStats, QueueStats)>,
    /// What their queues had lost then, by reason.
    lost_base: Vec<u64>,
    /// Ports whose network interface is gone.
    gone: BTreeSet<u16>,
}

/// Counters some time ago, and the rates since the time before.
struct Sample {
    at: Instant,
    interfaces: Vec<(QueueStats, QueueStats)>,
    busy_ns: Vec<u64>,
    rates_pps: Vec<(f64, f64)>,
    busy_percent: Vec<f64>,
}

/// What a running data path shows.
pub struct Shown {
    /// Its counters.
    pub seen: Seen,
    /// By interface: the back end as it runs.
    pub kinds: Vec<String>,
    /// Where its cells come from.
    pub depot: Arc<Depot>,
    /// Its tables.
    pub reader: Reader<Tables>,
    /// Lines of its log that were lost.
    pub log_lines_lost: fn() -> u64,
}

impl Statistics {
    /// Those of a data path; `mode` is the name of its pipeline.
    pub fn new(shown: Shown, mode: String, parts: &[Running]) -> Self {
        let Shown { seen, kinds, depot, reader, log_lines_lost } = shown;
        let ports = seen.all_ports();
        let Seen { view, ports: open, interfaces, .. } = seen;
        let n = interfaces.count();
        let sampled = Sample {
            at: Instant::now(),
            interfaces: totals(&ports, &interfaces, parts),
            busy_ns: vec![0; view.workers.len()],
            rates_pps: vec![(0.0, 0.0); n],
            busy_percent: vec![0.0; view.workers.len()],
        };
        Self {
            base: vec![Default::default(); n],
            lost_base: vec![0; view.reasons().len()],
            sampled,
            view,
            open,
            ports,
            interfaces,
            kinds,
            depot,
            reader: Mutex::new(reader),
            log_lines_lost,
            started: Instant::now(),
            mode,
            gone: BTreeSet::new(),
        }
    }

    /// What may be seen of the engine.
    pub fn view(&self) -> &Arc<EngineView> {
        &self.view
    }

    /// Counters of the queues of ports and twins, of closed ones too.
    pub fn ports(&self) -> &[PortCounters] {
        &self.ports
    }

    /// The data path has changed: another engine goes on with the counters, and interfaces came and went.
    pub fn go_on(&mut self, seen: Seen, kinds: Vec<String>, mode: String) {
        // A reason that was not known had no packets.
        let base = |reason: &&'static Reason| {
            let known = self.view.reasons().iter().position(|own| own.code() == reason.code());
            known.map_or(0, |known| self.lost_base[known])
        };
        self.lost_base = seen.view.reasons().iter().map(base).collect();
        self.ports = seen.all_ports();
        let n = seen.interfaces.count();
        self.base.resize(n, Default::default());
        self.sampled.interfaces.resize(n, Default::default());
        self.sampled.rates_pps.resize(n, (0.0, 0.0));
        (self.view, self.open, self.interfaces) = (seen.view, seen.ports, seen.interfaces);
        (self.kinds, self.mode) = (kinds, mode);
    }

    /// Measures rates since the last call, if that was at least half a second ago.
    pub fn sample(&mut self, parts: &[Running]) {
        let sample = &mut self.sampled;
        let seconds = sample.at.elapsed().as_secs_f64();
        if seconds < 0.5 {
            return;
        }
        let interfaces = totals(&self.ports, &self.interfaces, parts);
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

    /// Everything counts from zero from now on.
    pub fn clear(&mut self, parts: &mut [Running]) {
        self.view.clear();
        self.lost_base = self.view.reasons().iter().map(|r| lost(&self.ports, r.code())).collect();
        self.base = totals(&self.ports, &self.interfaces, parts);
        parts.iter_mut().for_each(|own| own.part.clear());
    }

    /// The network interface of a port is gone, or is there again.
    pub fn set_gone(&mut self, port: u16, is_gone: bool) {
        match is_gone {
            true => _ = self.gone.insert(port),
            false => _ = self.gone.remove(&port),
        }
    }

    fn state(&self, record: &Interface) -> &'static str {
        match record.up {
            true => "up",
            false if self.gone.contains(&record.port) => "gone",
            false => "down",
        }
    }

    /// A row for each interface; `records` are the interfaces as they are now.
    pub fn interfaces(&mut self, records: &[Interface], parts: &[Running]) -> Vec<InterfaceRow> {
        self.sample(parts);
        let totals = totals(&self.ports, &self.interfaces, parts);
        let row = |(i, record): (usize, &Interface)| {
            let mut row = InterfaceRow {
                name: self.interfaces.name(i as u16).to_owned(),
                index: i as u32,
                kind: self.kinds.get(i).cloned().unwrap_or_default(),
                mac: mac_text(record.mac),
                mtu: record.mtu.into(),
                state: self.state(record).into(),
                addresses: addresses(record),
                ..InterfaceRow::default()
            };
            if let (Some((rx, tx)), Some((rx0, tx0))) = (totals.get(i), self.base.get(i)) {
                row.rx_packets = rx.packets - rx0.packets;
                row.rx_bytes = rx.bytes - rx0.bytes;
                row.rx_errors = rx.errors - rx0.errors;
                row.rx_drops = rx.dropped - rx0.dropped;
                row.tx_packets = tx.packets - tx0.packets;
                row.tx_bytes = tx.bytes - tx0.bytes;
                row.tx_errors = tx.errors - tx0.errors;
                row.tx_drops = tx.dropped - tx0.dropped;
            }
            if let Some(&(rx_pps, tx_pps)) = self.sampled.rates_pps.get(i) {
                (row.rx_rate_pps, row.tx_rate_pps) = (rx_pps, tx_pps);
            }
            row
        };
        let all = records.iter().enumerate();
        all.filter(|(i, _)| self.interfaces.has(*i as u16)).map(row).collect()
    }

    /// A row for each queue of each port.
    pub fn queues(&self) -> Vec<QueueRow> {
        let mut rows = Vec::new();
        for port in self.open.iter().filter(|p| !p.twin) {
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

    /// A row for each stage.
    pub fn stages(&self) -> Vec<StageRow> {
        let ratio = |a: u64, b: u64| if b == 0 { 0.0 } else { a as f64 / b as f64 };
        let row = |(i, name): (usize, String)| {
            let totals = self.view.stage(i);
            StageRow {
                name,
                calls: totals.calls,
                packets: totals.packets,
                packets_per_call: ratio(totals.packets, totals.calls),
                ns_per_packet: ratio(totals.busy_ns, totals.packets),
            }
        };
        stage_names(&self.view).into_iter().enumerate().map(row).collect()
    }

    /// A row for each reason that occurred.
    pub fn drops(&self) -> Vec<DropRow> {
        let mut rows = self.all_drops();
        rows.retain(|row| row.packets > 0);
        rows
    }

    /// A row for each reason: what stages and the engine dropped, and what queues lost.
    fn all_drops(&self) -> Vec<DropRow> {
        let row = |(reason, base): (&&Reason, &u64)| DropRow {
            reason: reason.name().to_owned(),
            code: reason.code().code(),
            text: reason.text().to_owned(),
            remedy: reason.remedy().to_owned(),
            packets: self.view.drops(reason.code()) + lost(&self.ports, reason.code()) - base,
        };
        self.view.reasons().iter().zip(self.lost_base.iter()).map(row).collect()
    }

    /// The process.
    pub fn runtime(&mut self, version: u64, parts: &[Running]) -> Runtime {
        self.sample(parts);
        let sample = &self.sampled;
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
        let masters = named_apart(self.view.masters());
        let mut runtime = Runtime {
            version: env!("CARGO_PKG_VERSION").into(),
            mode: self.mode.clone(),
            uptime_s: self.started.elapsed().as_secs_f64(),
            workers: workers.collect(),
            masters: masters.into_iter().map(master).collect(),
            table_version: version,
            table_bytes: table_bytes as u64,
            pool_bytes: u64::from(cells) * CELL_BYTES as u64,
            resident_bytes: resident_bytes(),
            log_lines_lost: (self.log_lines_lost)(),
            ..Runtime::default()
        };
        for own in parts {
            let (fields, lines) = own.part.runtime();
            runtime.applications.extend(fields);
            runtime.lines.extend(lines);
        }
        runtime
    }

    /// What dashboards show, all of one moment.
    pub fn snapshot(&mut self, records: &[Interface], version: u64, parts: &[Running]) -> Snapshot {
        Snapshot {
            interfaces: self.interfaces(records, parts),
            queues: self.queues(),
            stages: self.stages(),
            drops: self.drops(),
            hottest: parts.iter().flat_map(|own| own.part.hottest(HOTTEST)).collect(),
            runtime: self.runtime(version, parts),
        }
    }

    /// Everything, for a scrape.
    pub fn metrics(&mut self, records: &[Interface], version: u64, parts: &[Running]) -> String {
        let snapshot = Snapshot {
            interfaces: self.interfaces(records, parts),
            queues: self.queues(),
            stages: self.stages(),
            // Every reason, so that a counter is there before its first drop.
            drops: self.all_drops(),
            // Applications write these themselves.
            hottest: Vec::new(),
            runtime: self.runtime(version, parts),
        };
        let applications = |out: &mut Metrics| parts.iter().for_each(|own| own.part.metrics(out));
        encode(&snapshot, applications)
    }
}

/// The names of all stages, by number: where there are several pipelines, with that of the pipeline before it,
/// `edge.decode`.
pub fn stage_names(view: &EngineView) -> Vec<String> {
    let of = |pipeline: &PipelineView| {
        let stages = &view.stages[pipeline.stages.clone()];
        let name = |stage: &&str| match view.pipelines.len() {
            1 => (*stage).to_owned(),
            _ => format!("{}.{stage}", pipeline.name),
        };
        stages.iter().map(name).collect::<Vec<_>>()
    };
    view.pipelines.iter().flat_map(of).collect()
}

fn master(m: MasterView) -> MasterRow {
    let per_job = |n: u64| if m.jobs == 0 { 0.0 } else { n as f64 / m.jobs as f64 };
    MasterRow {
        number: m.number as u32,
        jobs: m.jobs,
        packets: m.packets,
        jobs_in_flight: m.in_flight,
        jobs_failed: m.failed,
        is_lost: m.is_lost,
        ns_per_packet: m.row_ns,
        away_us: m.away_ns as f64 / 1e3,
        up_bytes: m.traffic.up_bytes + m.traffic.payload_up_bytes + m.traffic.table_bytes,
        down_bytes: m.traffic.down_bytes + m.traffic.payload_down_bytes,
        uploads: m.traffic.uploads,
        launches: m.traffic.launches,
        uploads_per_job: per_job(m.traffic.uploads),
        launches_per_job: per_job(m.traffic.launches),
        jobs_sorted: m.traffic.scheduled,
        jobs_in_place: m.traffic.payload_in_place,
        jobs_gathered: m.traffic.payload_gathered,
        jobs_packed: m.traffic.payload_packed,
        device: m.device,
    }
}

/// Puts a number behind the name of each device that has the name of another one: a label of the metrics must tell them
/// apart.
pub fn named_apart(mut masters: Vec<MasterView>) -> Vec<MasterView> {
    let names: Vec<String> = masters.iter().map(|master| master.device.clone()).collect();
    for master in &mut masters {
        if names.iter().filter(|name| **name == master.device).count() > 1 {
            master.device = format!("{} #{}", master.device, master.number);
        }
    }
    masters
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
