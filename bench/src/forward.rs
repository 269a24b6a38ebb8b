//! `bench forward`: memory to memory, one worker, the full table, beside the same loop without
//! parse, lookup and rewrite.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use apps::router::PipelineOptions;
use chunk::{CHUNK_PACKETS_MAX, Chunk, HugePages, Packet, Pool, Region, Verdict};
use controlplane::Newest;
use engine::{
    Context, DeviceSpec, Engine, EngineSpec, EngineView, Phases, QueueCounters, RxSlot, Stage,
    TxSlot, WorkerSpec,
};
use io::memory::Replay;
use io::{QueueStats, RxQueue, TxQueue};
use lookup::fib::{Fib, RouteTables};
use lookup::versions::{Reader, versions};

use crate::tables::{self, PORTS, Spread, keys4, keys6};
use crate::{Args, Probes, Report, Row};

/// Distinct packets: cells of 2 KB each, 512 MB in all, far more than fits in a cache near a core.
pub(crate) const PACKETS: usize = 262_144;

/// What a case leaves out, so that the cost of each part is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The whole router.
    Router,
    /// Receive and transmit only.
    Bare,
}

/// How packets come: the queues, and the packets that each has ready when it is asked.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    queues: usize,
    burst: usize,
}

const FULL: Arrival = Arrival { queues: 1, burst: CHUNK_PACKETS_MAX };

/// One of the queues among which the packets of a replay are dealt out, a burst each time.
struct Share {
    replay: Arc<Mutex<Replay>>,
    burst: usize,
    stats: QueueStats,
}

impl RxQueue for Share {
    fn recv(&mut self, pool: &mut Pool, out: &mut Vec<Packet>, max: usize) -> usize {
        let mut replay = self.replay.lock().unwrap_or_else(PoisonError::into_inner);
        let n = replay.recv(pool, out, max.min(self.burst));
        self.stats.packets += n as u64;
        n
    }
    fn release(&mut self, pool: &mut Pool) {
        self.replay.lock().unwrap_or_else(PoisonError::into_inner).release(pool);
    }
    fn stats(&self) -> QueueStats {
        self.stats
    }
}

/// Sends every packet out by port 0, untouched.
pub(crate) struct Pass;

impl<T: Send + Sync + 'static> Stage<T> for Pass {
    fn name(&self) -> &'static str {
        "pass"
    }

    fn phases(&self) -> Phases {
        Phases::POST
    }
    fn post_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, T>) {
        chunk.rows.verdicts().fill(Verdict::forward(0).0);
    }
}

struct Case {
    name: &'static str,
    part: Part,
    arrival: Arrival,
    frames: Arc<Vec<Vec<u8>>>,
    aim: Option<f64>,
    rates: Vec<f64>,
    allocations: Vec<f64>,
    /// Nanoseconds a packet of each stage, by round.
    costs: Vec<Vec<(String, f64)>>,
}

pub(crate) fn run(
    args: &Args,
    routes: &Path,
    seconds: f64,
    probes: Probes,
) -> Result<Report, String> {
    let routes = tables::routes(routes)?;
    let prefixes4: Vec<_> = routes.v4.iter().map(|(p, _)| *p).collect();
    let prefixes6: Vec<_> = routes.v6.iter().map(|(p, _)| *p).collect();
    if prefixes4.is_empty() || prefixes6.is_empty() {
        return Err("the table needs prefixes of both families".into());
    }
    let (builder, fib) = tables::fib(&routes, RouteTables::default())?;
    drop(builder);
    let data = format!(
        "{} IPv4 and {} IPv6 routes; {PACKETS} distinct 64-byte packets (60 bytes and frame check \
         sequence), cells out of cache, one core",
        prefixes4.len(),
        prefixes6.len()
    );
    drop(routes);
    let (_writer, reader) = versions(fib);
    let frames4 = |spread| Arc::new(udp4(&keys4(&prefixes4, PACKETS, spread, 7)));
    let frames6 = |spread| Arc::new(udp6(&keys6(&prefixes6, PACKETS, spread, 8)));
    let v4 = frames4(Spread::Prefixes);
    let v6 = frames6(Spread::Prefixes);
    let case = |name, part, frames: &Arc<Vec<Vec<u8>>>, aim| Case {
        name,
        part,
        arrival: FULL,
        frames: frames.clone(),
        aim,
        rates: Vec::new(),
        allocations: Vec::new(),
        costs: Vec::new(),
    };
    let mut cases = vec![
        case("IPv4, inside prefixes", Part::Router, &v4, Some(15.0)),
        case("IPv4, uniform", Part::Router, &frames4(Spread::Uniform), None),
        case("IPv4, bare loop", Part::Bare, &v4, None),
        Case {
            arrival: Arrival { queues: 8, burst: 32 },
            ..case("IPv4, 32 packets in each of 8 queues", Part::Router, &v4, None)
        },
        Case {
            arrival: Arrival { queues: 32, burst: 8 },
            ..case("IPv4, 8 packets in each of 32 queues", Part::Router, &v4, None)
        },
        case("IPv6, inside prefixes", Part::Router, &v6, Some(6.0)),
        case("IPv6, uniform", Part::Router, &frames6(Spread::Uniform), None),
        case("IPv6, bare loop", Part::Bare, &v6, None),
    ];
    for _ in 0..args.rounds.max(1) {
        for case in &mut cases {
            measure(case, &reader, Duration::from_secs_f64(seconds), probes)?;
        }
    }
    let mut report = Report::new("forward", data);
    for case in cases {
        let row = Row::new(case.name, "Mpps", case.rates);
        report.rows.push(match case.aim {
            Some(aim) => row.at_least(aim),
            None => row,
        });
        let stages = case.costs.first().map_or(0, Vec::len);
        for i in 0..stages {
            let name = format!("{}: {}", case.name, case.costs[0][i].0);
            let costs = case.costs.iter().map(|c| c[i].1).collect();
            report.rows.push(Row::new(name, "ns/packet", costs));
        }
        if probes.allocations.is_some() {
            let name = format!("{}: allocations", case.name);
            report.rows.push(Row::new(name, "1/packet", case.allocations).at_most(0.0));
        }
    }
    Ok(report)
}

/// Allocations so far; 0 in a build that does not count them.
fn count(probes: Probes) -> u64 {
    probes.allocations.map_or(0, |count| count())
}

/// Runs one case for a while.
fn measure(
    case: &mut Case,
    reader: &Reader<Fib>,
    time: Duration,
    probes: Probes,
) -> Result<(), String> {
    let stages = match case.part {
        Part::Bare => vec![Box::new(Pass) as Box<dyn Stage<Fib>>],
        Part::Router => router()?,
    };
    // Cells come back to the depot when the case ends; regions stay mapped, so all cases share one.
    let engine = start_arriving(&case.frames, stages, reader, depot()?, Some(0), case.arrival)?;
    let view = engine.view().clone();
    // Warm up: caches, page tables, and every vector at its size.
    std::thread::sleep(time / 4);
    view.clear();
    let (packets, allocations, begin) = (received(&view), count(probes), Instant::now());
    std::thread::sleep(time);
    let elapsed = begin.elapsed();
    let (packets, allocations) = (received(&view) - packets, count(probes) - allocations);
    let sent: u64 = view.workers.iter().map(|w| w.tx_packets.get()).sum();
    let dropped: u64 = view.reasons().iter().map(|r| view.drops(r.code())).sum();
    case.rates.push(packets as f64 / elapsed.as_secs_f64() / 1e6);
    case.allocations.push(allocations as f64 / packets.max(1) as f64);
    let cost = |i| {
        let t = view.stage(i);
        t.busy_ns as f64 / t.packets.max(1) as f64
    };
    if case.part == Part::Router {
        let names = view.stages.iter().enumerate();
        case.costs.push(names.map(|(i, name)| ((*name).to_owned(), cost(i))).collect());
    }
    engine.stop(Duration::from_secs(1))?;
    if sent == 0 || (case.name.contains("inside") && dropped > 0) {
        return Err(format!("{}: {sent} packets sent, {dropped} dropped", case.name));
    }
    Ok(())
}

/// The stages of a plain router.
pub(crate) fn router() -> Result<Vec<Box<dyn Stage<Fib>>>, String> {
    apps::router::pipeline(&["decode", "route", "rewrite"], &PipelineOptions::default())
        .map_err(|e| e.to_string())
}

/// One worker that sends `frames` through `stages`, round and round, until it is stopped.
pub(crate) fn start<T: Send + Sync + 'static>(
    frames: &[Vec<u8>],
    stages: Vec<Box<dyn Stage<T>>>,
    reader: &Reader<T>,
    depot: Arc<chunk::Depot>,
    cpu: Option<usize>,
) -> Result<Engine<Newest<T>>, String> {
    start_arriving(frames, stages, reader, depot, cpu, FULL)
}

fn start_arriving<T: Send + Sync + 'static>(
    frames: &[Vec<u8>],
    stages: Vec<Box<dyn Stage<T>>>,
    reader: &Reader<T>,
    depot: Arc<chunk::Depot>,
    cpu: Option<usize>,
    arrival: Arrival,
) -> Result<Engine<Newest<T>>, String> {
    let mut pool = Pool::new(depot.clone(), 512);
    let frames = frames.iter().map(Vec::as_slice);
    let mut replay = Replay::new(&mut pool, frames, true).ok_or("too few cells")?;
    let tx = (0..PORTS).map(|_| Box::new(replay.recycle(4096)) as Box<dyn TxQueue>).collect();
    drop(pool);
    let rx = if arrival.queues == 1 {
        vec![Box::new(replay) as Box<dyn RxQueue>]
    } else {
        let replay = Arc::new(Mutex::new(replay));
        let share =
            || Share { replay: replay.clone(), burst: arrival.burst, stats: QueueStats::default() };
        (0..arrival.queues).map(|_| Box::new(share()) as Box<dyn RxQueue>).collect()
    };
    start_over(stages, reader, depot, cpu, rx, tx)
}

/// One worker between these queues: all receive queues are of port 0, transmit queues of the ports from 0 on.
pub(crate) fn start_over<T: Send + Sync + 'static>(
    stages: Vec<Box<dyn Stage<T>>>,
    reader: &Reader<T>,
    depot: Arc<chunk::Depot>,
    cpu: Option<usize>,
    rx: Vec<Box<dyn RxQueue>>,
    tx: Vec<Box<dyn TxQueue>>,
) -> Result<Engine<Newest<T>>, String> {
    start_workers(vec![Ends { stages, cpu, rx, tx }], reader, depot)
}

/// What a worker has.
pub(crate) struct Ends<T: Send + Sync + 'static> {
    pub(crate) stages: Vec<Box<dyn Stage<T>>>,
    pub(crate) cpu: Option<usize>,
    /// All of port 0.
    pub(crate) rx: Vec<Box<dyn RxQueue>>,
    /// Of the ports from 0 on.
    pub(crate) tx: Vec<Box<dyn TxQueue>>,
}

/// Workers between their queues.
pub(crate) fn start_workers<T: Send + Sync + 'static>(
    workers: Vec<Ends<T>>,
    reader: &Reader<T>,
    depot: Arc<chunk::Depot>,
) -> Result<Engine<Newest<T>>, String> {
    let chunks = if workers.iter().all(|own| own.rx.len() == 1) { 2 } else { 8 };
    start_workers_with(workers, reader, depot, chunks, Vec::new())
}

/// Workers between their queues, with so many chunks each and devices.
pub(crate) fn start_workers_with<T: Send + Sync + 'static>(
    workers: Vec<Ends<T>>,
    reader: &Reader<T>,
    depot: Arc<chunk::Depot>,
    chunks: usize,
    devices: Vec<DeviceSpec<T>>,
) -> Result<Engine<Newest<T>>, String> {
    let slot = |queue: Box<dyn RxQueue>| RxSlot {
        entry: engine::Entry::default(),
        port: 0,
        mark: 0,
        queue,
        spread: None,
        counters: Arc::default(),
    };
    let own = |queue: Box<dyn TxQueue>| TxSlot::Own(queue, Arc::<QueueCounters>::default());
    let worker = |Ends { stages, cpu, rx, tx }: Ends<T>| WorkerSpec {
        cpu,
        versions: Newest(reader.clone()),
        pipelines: vec![engine::PipelineSpec::new("", stages)],
        rx: rx.into_iter().map(slot).collect(),
        tx: tx.into_iter().map(own).collect(),
        host: Vec::new(),
        on_drop: None,
        device: None,
        on_dump: None,
    };
    let spec = EngineSpec {
        before: None,
        hooks: Arc::default(),
        host_gate: None,
        workers: workers.into_iter().map(worker).collect(),
        depot,
        chunk_packets: 256,
        chunks,
        devices,
        max_delay: None,
        packet_time: false,
        until_finished: false,
        lossless: false,
        on_error: Arc::new(|_, _| {}),
        on_device_error: Arc::new(|_, event| files::output::note(format_args!("{event:?}"))),
        on_panic: Arc::new(|panic| files::output::note(format_args!("{panic}"))),
    };
    Engine::start(spec).map_err(|e| e.to_string())
}

pub(crate) fn received(view: &EngineView) -> u64 {
    view.workers.iter().map(|w| w.rx_packets.get()).sum()
}

/// Cells for [`PACKETS`] frames and those under way, shared by all runs.
pub(crate) fn depot() -> Result<Arc<chunk::Depot>, String> {
    static DEPOT: std::sync::OnceLock<Arc<chunk::Depot>> = std::sync::OnceLock::new();
    if let Some(depot) = DEPOT.get() {
        return Ok(depot.clone());
    }
    let cells = PACKETS as u32 + 16_384;
    let (_, depot) = Region::new(cells, HugePages::Advise).map_err(|e| e.to_string())?;
    Ok(DEPOT.get_or_init(|| depot).clone())
}

/// UDP packets of 60 bytes to `keys`.
pub(crate) fn udp4(keys: &[u32]) -> Vec<Vec<u8>> {
    let make = |(i, key): (usize, &u32)| {
        let mut f = vec![0u8; 60];
        ethernet(&mut f, 0x0800);
        f[14] = 0x45;
        f[16..18].copy_from_slice(&46u16.to_be_bytes());
        (f[22], f[23]) = (64, 17);
        f[26..30].copy_from_slice(&[10, 0, 0, 2]);
        f[30..34].copy_from_slice(&key.to_be_bytes());
        let sum = packet::checksum::internet_checksum(&f[14..34]);
        f[24..26].copy_from_slice(&sum.to_be_bytes());
        udp(&mut f[34..60], i);
        f
    };
    keys.iter().enumerate().map(make).collect()
}

/// UDP packets of 62 bytes, the least that IPv6 and UDP need, to `keys`.
pub(crate) fn udp6(keys: &[lookup::Key6]) -> Vec<Vec<u8>> {
    let make = |(i, key): (usize, &lookup::Key6)| {
        let mut f = vec![0u8; 62];
        ethernet(&mut f, 0x86dd);
        f[14] = 0x60;
        f[18..20].copy_from_slice(&8u16.to_be_bytes());
        (f[20], f[21]) = (17, 64);
        f[22..38].copy_from_slice(&(0xfd00u128 << 112 | 2).to_be_bytes());
        f[38..46].copy_from_slice(&key[0].to_be_bytes());
        f[46..54].copy_from_slice(&key[1].to_be_bytes());
        udp(&mut f[54..62], i);
        f
    };
    keys.iter().enumerate().map(make).collect()
}

fn ethernet(frame: &mut [u8], ethertype: u16) {
    frame[..6].copy_from_slice(&tables::port_mac(0));
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 2, 0]);
    frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
}

/// A UDP header without a checksum over `datagram`, the ports telling flow `i` from the others.
fn udp(datagram: &mut [u8], i: usize) {
    let len = datagram.len() as u16;
    datagram[..2].copy_from_slice(&(1024 + (i % 60_000) as u16).to_be_bytes());
    datagram[2..4].copy_from_slice(&53u16.to_be_bytes());
    datagram[4..6].copy_from_slice(&len.to_be_bytes());
}
