//! `bench delay`: how long a packet is under way through a pipeline with a device, against `max_delay`.
//!
//! One worker and one device. A source makes packets at a steady rate, 10, 50 and 90 % of what the same pipeline took
//! in the same round, and writes two times into each: when it *arrived* by that rate, whether or not it was taken
//! then, and when the worker *saw* it first. The transmit side takes its own time of each.
//!
//! The delay from arrival is what a network sees. The engine promises less, for it cannot know how long a packet lay
//! in a queue: `max_delay` and the counter *late* go from the worker's first look at a packet until the turn in which
//! it retires has been sent. So packets that took longer than `max_delay` from first look to transmit must be counted
//! late.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use chunk::{HugePages, Packet, Pool, Region};
use device::tables::NoTables;
use device::{Backend, Cost, FaultPlan, accelerator};
use engine::{
    Counter, DeviceKind, DeviceSpec, Engine, EngineSpec, Policy, RxSlot, TxSlot, WorkerCounters,
    WorkerSpec,
};
use io::{QueueStats, RxQueue, TxQueue};

use crate::order::{ByFlow, OneVersion, flow_of};
use crate::tables::Random;
use crate::{Args, Report, Row, on_device};

/// Values of `max_delay`; the second one is the configuration's default.
const BOUNDS: [Duration; 3] =
    [Duration::from_micros(100), Duration::from_micros(200), Duration::from_millis(1)];

/// Shares of the full rate.
const LOADS: [u64; 3] = [10, 50, 90];

/// What the two sides' looks at the clock, one a burst, may add to a delay.
const CLOCKS_NS: u64 = 2_000;

/// Where a frame has its flow, the time of its arrival, and that of the first look at it: nanoseconds since the start.
const ARRIVED: usize = 8;
const SEEN: usize = 16;
const FRAME_BYTES: usize = 60;

/// Delays by size: 32 steps for each power of two, so that a step is 3 % wide at most.
struct Delays {
    steps: Vec<u64>,
    packets: u64,
}

impl Delays {
    const FINE: u32 = 5;

    fn new() -> Self {
        Self { steps: vec![0; 64 << Self::FINE], packets: 0 }
    }

    fn step(ns: u64) -> usize {
        let ns = ns.max(1 << Self::FINE);
        let shift = ns.ilog2() - Self::FINE;
        ((shift as usize) << Self::FINE) + (ns >> shift) as usize - (1 << Self::FINE)
    }

    fn add(&mut self, ns: u64) {
        self.steps[Self::step(ns)] += 1;
        self.packets += 1;
    }

    /// The least delay of the step in which the packet is that `share` of them are not slower than.
    fn at(&self, share: f64) -> u64 {
        let rank = ((self.packets as f64 * share).ceil() as u64).max(1);
        let mut below = 0;
        let step = self.steps.iter().position(|count| {
            below += count;
            below >= rank
        });
        step.map_or(0, |step| {
            let (shift, fine) = (step >> Self::FINE, step & ((1 << Self::FINE) - 1));
            ((1 << Self::FINE) + fine as u64) << shift
        })
    }
}

/// Makes packets at a steady rate, or as many as there is room for, until it is stopped.
struct Source {
    random: Random,
    epoch: Instant,
    /// Nanoseconds between packets; `None`: no end of packets waits.
    gap_ns: Option<f64>,
    /// When the first packet arrived, and how many have since.
    begun_ns: Option<u64>,
    is_ended: Arc<AtomicBool>,
    stats: QueueStats,
}

impl RxQueue for Source {
    fn recv(&mut self, pool: &mut Pool, out: &mut Vec<Packet>, max: usize) -> usize {
        if self.is_finished() {
            return 0;
        }
        let now = self.epoch.elapsed().as_nanos() as u64;
        let begun = *self.begun_ns.get_or_insert(now);
        let mut made = 0;
        while made < max {
            let arrived = match self.gap_ns {
                Some(gap) => begun + (self.stats.packets as f64 * gap) as u64,
                None => now,
            };
            if arrived > now {
                break;
            }
            let mut frame = [0u8; FRAME_BYTES];
            frame[..4].copy_from_slice(&(self.random.below(4096) as u32).to_be_bytes());
            frame[ARRIVED..ARRIVED + 8].copy_from_slice(&arrived.to_be_bytes());
            frame[SEEN..SEEN + 8].copy_from_slice(&now.to_be_bytes());
            let Some(packet) = Packet::copy_from(pool, &frame) else { break };
            out.push(packet);
            self.stats.packets += 1;
            made += 1;
        }
        made
    }

    /// Packets may arrive at any time: the worker must not sleep.
    fn arm(&mut self) -> bool {
        self.is_finished()
    }

    fn is_finished(&self) -> bool {
        self.is_ended.load(Ordering::Relaxed)
    }

    fn stats(&self) -> QueueStats {
        self.stats
    }
}

/// What the transmit sides saw.
struct Seen {
    from_arrival: Delays,
    /// Packets that took longer than the bound, from arrival and from the first look.
    over_from_arrival: u64,
    over_from_look: u64,
    wrong_ports: u64,
}

struct Judge {
    port: u32,
    epoch: Instant,
    bound_ns: u64,
    seen: Arc<Mutex<Seen>>,
    stats: QueueStats,
}

impl TxQueue for Judge {
    fn send(&mut self, pool: &mut Pool, packets: &mut Vec<Packet>) {
        let now = self.epoch.elapsed().as_nanos() as u64;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        for packet in packets.drain(..) {
            let frame = packet.data();
            let time = |at: usize| {
                let bytes = frame.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
                bytes.map_or(0, u64::from_be_bytes)
            };
            let (delay, under_way) = (now - time(ARRIVED), now - time(SEEN));
            seen.from_arrival.add(delay);
            seen.over_from_arrival += u64::from(delay > self.bound_ns);
            seen.over_from_look += u64::from(under_way > self.bound_ns + CLOCKS_NS);
            seen.wrong_ports += u64::from(flow_of(frame) % 2 != self.port);
            self.stats.packets += 1;
            packet.free(pool);
        }
    }

    fn flush(&mut self, _: &mut Pool) {}

    fn stats(&self) -> QueueStats {
        self.stats
    }
}

/// Where a pipeline runs.
#[derive(Clone, Copy)]
struct Site {
    /// `None`: the simulated device.
    backend: Option<Backend>,
    bound: Duration,
    /// `None`: one worker, where the system puts it; else a worker on each of so many cores, from the first one on.
    workers: Option<usize>,
}

/// What a run gave.
struct Outcome {
    seen: Seen,
    packets: u64,
    late: u64,
    /// Packets a second.
    rate: f64,
}

/// Figures of a case, one a round.
#[derive(Default)]
struct Case {
    p50: Vec<f64>,
    p99: Vec<f64>,
    p999: Vec<f64>,
    within: Vec<f64>,
    late: Vec<f64>,
    kept: Vec<f64>,
}

/// Figures of a layout of workers on cores, one a round.
#[derive(Default)]
struct OnLayout {
    full: Vec<f64>,
    case: Case,
}

pub(crate) fn run(args: &Args, backend: Option<Backend>, seconds: f64) -> Result<Report, String> {
    let sides: Vec<_> = [None].into_iter().chain(backend.map(Some)).collect();
    let data = format!(
        "{FRAME_BYTES}-byte packets of 4096 flows, a kernel that chooses the port, one worker unless a row says more; the \
         simulated device: 20 µs a job, 10 ns a packet, 4 jobs at once; {seconds} s a run"
    );
    let mut report = Report::new("delay", data);
    let time = Duration::from_secs_f64(seconds);
    let site = |backend| BOUNDS.map(|bound| Site { backend, bound, workers: None });
    let sites: Vec<Site> = sides.iter().flat_map(|side| site(*side)).collect();
    let mut full: Vec<Vec<f64>> = vec![Vec::new(); sites.len()];
    let mut cases: Vec<[Case; LOADS.len()]> = sites.iter().map(|_| Default::default()).collect();
    // A worker on each core, or one core left to the master and what belongs to the device.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let on_cores = |backend| {
        let site = move |n| Site { backend, bound: BOUNDS[1], workers: Some(n) };
        (cores > 1).then_some([site(cores), site(cores - 1)])
    };
    let layouts: Vec<Site> = sides.iter().filter_map(|side| on_cores(*side)).flatten().collect();
    let mut on_layouts: Vec<OnLayout> = layouts.iter().map(|_| OnLayout::default()).collect();
    for _ in 0..args.rounds.max(1) {
        for ((site, full), cases) in sites.iter().zip(&mut full).zip(&mut cases) {
            let rate = forward(*site, None, time)?.rate;
            full.push(rate / 1e6);
            for (case, load) in cases.iter_mut().zip(LOADS) {
                case.add(&forward(*site, Some(rate * load as f64 / 100.0), time)?);
            }
        }
        for (pair, figures) in layouts.chunks(2).zip(on_layouts.chunks_mut(2)) {
            // The same load for both: half of what the one with fewer workers takes.
            let mut load = f64::INFINITY;
            for (site, figures) in pair.iter().zip(&mut *figures) {
                let rate = forward(*site, None, time)?.rate;
                load = load.min(rate / 2.0);
                figures.full.push(rate / 1e6);
            }
            for (site, figures) in pair.iter().zip(figures) {
                let share = load / site.workers.unwrap_or(1) as f64;
                figures.case.add(&forward(*site, Some(share), time)?);
            }
        }
    }
    for ((site, full), cases) in sites.into_iter().zip(full).zip(cases) {
        let name = site.name();
        report.rows.push(Row::new(format!("{name}: full rate"), "Mpps", full));
        for (case, load) in cases.into_iter().zip(LOADS) {
            case.rows(&format!("{name}, {load} %"), &mut report.rows);
        }
    }
    for (site, OnLayout { full, case }) in layouts.into_iter().zip(on_layouts) {
        let workers = site.workers.unwrap_or(1);
        let left = if workers == cores { "no core left" } else { "a core left" };
        let name = format!("{}, {workers} pinned, {left}", site.name());
        report.rows.push(Row::new(format!("{name}: full rate"), "Mpps", full));
        case.rows(&format!("{name}, equal load"), &mut report.rows);
    }
    Ok(report)
}

impl Site {
    fn name(&self) -> String {
        let side = self.backend.map_or("simulated".to_owned(), |backend| backend.to_string());
        format!("{side}, max_delay {} µs", self.bound.as_micros())
    }
}

impl Case {
    fn add(&mut self, outcome: &Outcome) {
        let seen = &outcome.seen;
        let us = |share: f64| seen.from_arrival.at(share) as f64 / 1e3;
        let percent = |packets: u64| 100.0 * packets as f64 / outcome.packets.max(1) as f64;
        self.p50.push(us(0.5));
        self.p99.push(us(0.99));
        self.p999.push(us(0.999));
        self.within.push(percent(outcome.packets - seen.over_from_arrival));
        self.late.push(percent(outcome.late));
        let uncounted = seen.over_from_look.saturating_sub(outcome.late);
        self.kept.push(percent(outcome.packets - uncounted));
    }

    fn rows(self, name: &str, rows: &mut Vec<Row>) {
        let row =
            |what: &str, unit: &str, figures| Row::new(format!("{name}: {what}"), unit, figures);
        rows.push(row("p50", "µs", self.p50));
        rows.push(row("p99", "µs", self.p99));
        rows.push(row("p99.9", "µs", self.p999));
        rows.push(row("within the bound", "%", self.within).note("from arrival to transmit"));
        rows.push(row("late", "%", self.late).note("the engine's counter"));
        let kept = row("within the bound from the first look, or late", "%", self.kept);
        rows.push(kept.at_least(99.9));
    }
}

/// Runs the pipeline for a while at `rate` packets a second for each worker; `None`: as quickly as it takes them.
fn forward(site: Site, rate: Option<f64>, time: Duration) -> Result<Outcome, String> {
    // Freed one run after the other; the region itself stays mapped.
    static DEPOT: std::sync::OnceLock<Arc<chunk::Depot>> = std::sync::OnceLock::new();
    if DEPOT.get().is_none() {
        let (_, depot) = Region::new(65_536, HugePages::Advise).map_err(|e| e.to_string())?;
        DEPOT.get_or_init(|| depot);
    }
    let depot = DEPOT.get().ok_or("no cells")?.clone();
    let epoch = Instant::now();
    let seen = Arc::new(Mutex::new(Seen {
        from_arrival: Delays::new(),
        over_from_arrival: 0,
        over_from_look: 0,
        wrong_ports: 0,
    }));
    let is_ended = Arc::new(AtomicBool::new(false));
    let bound_ns = site.bound.as_nanos() as u64;
    let judge = |port| {
        let seen = seen.clone();
        let queue = Judge { port, epoch, bound_ns, seen, stats: QueueStats::default() };
        TxSlot::Own(Box::new(queue), Arc::default())
    };
    let kind = match site.backend {
        None => DeviceKind::Simulated {
            cost: Cost { launch: Duration::from_micros(20), row: Duration::from_nanos(10) },
            faults: FaultPlan::default(),
        },
        Some(backend) => DeviceKind::Driver {
            driver: on_device::open(backend)?,
            tables: Box::new(NoTables),
            options: accelerator::Options::default(),
        },
    };
    let worker = |i: usize| {
        let source = Source {
            random: Random(5 + i as u64),
            epoch,
            gap_ns: rate.map(|rate| 1e9 / rate),
            begun_ns: None,
            is_ended: is_ended.clone(),
            stats: QueueStats::default(),
        };
        let mut worker = WorkerSpec::new(OneVersion, vec![Box::new(ByFlow) as _]);
        worker.cpu = site.workers.map(|_| i);
        worker.rx.push(RxSlot {
            entry: engine::Entry::default(),
            port: 0,
            mark: 0,
            queue: Box::new(source),
            spread: None,
            counters: Arc::default(),
        });
        worker.tx = (0..2).map(judge).collect();
        worker
    };
    let workers = (0..site.workers.unwrap_or(1)).map(worker).collect();
    // As the program wires it by default.
    let device = DeviceSpec { kind, slots: 4, rows: 8192, policy: Policy::Device };
    let failures = Arc::new(AtomicU64::new(0));
    let failed = failures.clone();
    let engine = Engine::start(EngineSpec {
        chunk_packets: 256,
        chunks: 64,
        devices: vec![device],
        max_delay: Some(site.bound),
        until_finished: true,
        on_device_error: Arc::new(move |_, event| {
            files::output::note(format_args!("{event:?}"));
            failed.fetch_add(1, Ordering::Relaxed);
        }),
        ..EngineSpec::new(workers, depot)
    });
    let engine = engine.map_err(|e| e.to_string())?;
    let view = engine.view().clone();
    let begin = Instant::now();
    std::thread::sleep(time);
    let sum = |counter: fn(&WorkerCounters) -> &Counter| {
        view.workers.iter().map(|worker| counter(worker).get()).sum::<u64>()
    };
    let rate = sum(|worker| &worker.tx_packets) as f64 / begin.elapsed().as_secs_f64();
    is_ended.store(true, Ordering::Relaxed);
    engine.join()?;
    let (packets, late) = (sum(|worker| &worker.rx_packets), sum(|worker| &worker.late));
    let on_device: u64 = view.masters().iter().map(|master| master.packets).sum();
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    let nothing = Seen {
        from_arrival: Delays::new(),
        over_from_arrival: 0,
        over_from_look: 0,
        wrong_ports: 0,
    };
    let seen = std::mem::replace(&mut *seen, nothing);
    let judged = seen.from_arrival.packets;
    if failures.load(Ordering::Relaxed) > 0 || seen.wrong_ports > 0 || judged != packets {
        return Err(format!(
            "{packets} packets received, {judged} sent, {} of them by the wrong port; {} failures of the device",
            seen.wrong_ports,
            failures.load(Ordering::Relaxed)
        ));
    }
    if packets > 0 && on_device == 0 {
        return Err("no packet went to the device".into());
    }
    Ok(Outcome { seen, packets, late, rate })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_sorted_delays_to_a_step() {
        let mut random = Random(11);
        let mut delays = Delays::new();
        let mut sorted: Vec<u64> =
            (0..20_000).map(|_| (random.below(1 << 20) as u64) << random.below(20)).collect();
        sorted.iter().for_each(|ns| delays.add(*ns));
        sorted.sort_unstable();
        for share in [0.0, 0.001, 0.5, 0.9, 0.99, 0.999, 1.0] {
            let rank = ((sorted.len() as f64 * share).ceil() as usize).max(1);
            let (exact, found) = (sorted[rank - 1].max(32), delays.at(share));
            assert!(found <= exact && exact <= found + found / 32 + 1, "{share}: {found} {exact}");
        }
        assert_eq!(Delays::new().at(0.5), 0);
        delays.add(u64::MAX);
    }

    #[test]
    fn every_packet_is_judged_and_late_ones_are_counted() {
        let site = |bound_us| {
            let bound = Duration::from_micros(bound_us);
            Site { backend: None, bound, workers: None }
        };
        let full = forward(site(1000), None, Duration::from_millis(50)).unwrap();
        assert!(full.packets > 0 && full.rate > 0.0);
        let some = forward(site(1000), Some(100_000.0), Duration::from_millis(200)).unwrap();
        // Up to the time that the engine needs to start and to stop.
        assert!((10_000..60_000).contains(&some.packets), "{} packets", some.packets);
        // No packet can be back before the device's launch has passed; where that has no room, the worker shades.
        assert!(some.seen.from_arrival.at(0.5) > 19_000);
        // Impossible to keep: what is over the bound must be counted.
        let late = forward(site(1), Some(100_000.0), Duration::from_millis(50)).unwrap();
        assert_eq!((late.late, late.seen.over_from_arrival), (late.packets, late.packets));
    }
}
