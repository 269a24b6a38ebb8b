//! The one file that wires queues, workers, stages and control.
//!
//! ```text
//!  Config ─▶ Interfaces (numbers for names)
//!         ─▶ Publisher (control parts) ─versions─▶ Reader<Tables> per worker
//!         ─▶ PortIo per port (live, captures, memory) ─▶ WorkerSpec per worker ─▶ Engine
//! ```

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use chunk::{Depot, HugePages, Region};
use control::config::{self, Config, Pipeline};
use controlplane::statistics::PortCounters;
use controlplane::{
    Interfaces, Newest, PortFacts, Publisher, Running, Setup, Shared, Tables, Without, WorkerSetup,
};
use device::tables::NoTables;
use engine::{
    DeviceEvent, DeviceKind, DeviceSpec, DropSink, DumpSink, Engine, EngineError, EngineSpec,
    Entry, ErrorSink, Gate, Hooks, HostGate, InContext, InOrder, MARK_CHECKSUMS_IGNORED,
    MARK_FROM_HOST, PipelineSpec, QueueCounters, Reserve, RxSlot, Spread, SpreadHash, Stage,
    Suspended, TxSlot, UnderWay, Versions, WorkerQueues, WorkerSpec,
};
use io::{RxQueue, TxQueue};
use lookup::versions::Reader;
use packet::checksum::Checksums;

use crate::drops;
use crate::failure::Failure;

/// The control parts and tables of a run over captures: no kernel, no twins, neighbours made up from their addresses.
pub(crate) fn offline(
    config: &Config,
    interfaces: &Interfaces,
    attachments: &[&(dyn std::any::Any + Sync)],
) -> Result<(Publisher, Reader<Tables>), Failure> {
    let setup = setup(config, interfaces, attachments);
    Publisher::start(crate::pipelines::descriptors(), &setup).map_err(Failure::other)
}

/// The same to describe stages and to compile their device programs: what the file must say of them may be missing.
pub(crate) fn examples(
    config: &Config,
    interfaces: &Interfaces,
) -> Result<(Publisher, Reader<Tables>), Failure> {
    let setup = setup(config, interfaces, &[]);
    Publisher::start_examples(crate::pipelines::descriptors(), &setup).map_err(Failure::other)
}

fn setup<'a>(
    config: &'a Config,
    interfaces: &'a Interfaces,
    attachments: &'a [&'a (dyn std::any::Any + Sync)],
) -> Setup<'a> {
    let facts = &|_| PortFacts::default();
    Setup { config, name: "", interfaces, facts, is_live: false, modules: &[], attachments }
}

/// Both sides of a queue, of which a capture may have only one.
pub(crate) type Queue = (Option<Box<dyn RxQueue>>, Option<Box<dyn TxQueue>>);

/// Queues of one port (or one twin) as they come from the back end; one worker owns each.
pub(crate) struct PortIo {
    /// The port, or for a twin its interface.
    pub(crate) number: u16,
    /// Whether it is the twin of that interface.
    pub(crate) twin: bool,
    /// One a queue. Receive and transmit side of a queue belong to the same worker.
    pub(crate) queues: Vec<Queue>,
    /// The receive queue stamps packets with their ports itself, and with the marks of these.
    pub(crate) stamps: bool,
    /// Of received packets; where the queue stamps them, it marks them, too.
    pub(crate) checksums: Checksums,
}

impl PortIo {
    /// Queues of a port whose checksums are verified.
    pub(crate) fn new(number: u16, queues: Vec<Queue>) -> Self {
        Self { number, twin: false, queues, stamps: false, checksums: Checksums::Verify }
    }
}

/// The mark of received packets whose checksums are to be treated so.
pub(crate) fn mark_of(checksums: Checksums) -> u32 {
    match checksums {
        Checksums::Verify => 0,
        Checksums::Ignore => MARK_CHECKSUMS_IGNORED,
    }
}

/// How the engine is to run, beside what the configuration says.
pub(crate) struct Plan {
    /// Worker threads.
    pub(crate) workers: usize,
    /// Time is the packets', queues are files, the end of input is the end.
    pub(crate) offline: bool,
    /// Over captures: how many packets are on their way.
    pub(crate) under_way: UnderWay,
    /// Receives each dropped packet; live with one worker only.
    pub(crate) on_drop: Option<DropSink>,
    /// Receives each packet with the verdict dump; over captures alone.
    pub(crate) on_dump: Option<DumpSink>,
    /// Receives the failure of a queue.
    pub(crate) on_error: ErrorSink,
    /// Where to shade beside the CPU; the workers are dealt out to them in turn.
    pub(crate) devices: Vec<DeviceSpec<Tables>>,
    /// The configuration's file, for messages; empty for one that is part of the program.
    pub(crate) file: String,
}

/// A running data path and what may be seen of it.
pub(crate) struct DataPath {
    pub(crate) engine: Engine<Newest<Tables>>,
    /// Counters of the queues, by port.
    pub(crate) ports: Vec<PortCounters>,
}

/// Cells that a pool of the engine may keep for itself.
const POOL_CELLS: usize = 4 * chunk::CHUNK_PACKETS_MAX;

/// The cells of the configuration; for several workers that many for each, and what the pools of workers and merger keep.
pub(crate) fn cells(
    config: &Config,
    workers: usize,
) -> Result<(&'static Region, Arc<Depot>), Failure> {
    let huge = match config.system.huge_pages {
        config::HugePages::Off => HugePages::Off,
        _ => HugePages::Advise,
    };
    let cells = match workers {
        0 | 1 => config.system.cells,
        n => config.system.cells.saturating_mul(n).saturating_add((n + 1) * POOL_CELLS),
    };
    let cells = u32::try_from(cells).unwrap_or(u32::MAX);
    Region::new(cells, huge)
        .map_err(|error| Failure::other(format!("no memory for cells: {error}")))
}

/// Starts the engine over `ports`.
pub(crate) fn start(
    config: &Config,
    interfaces: &Interfaces,
    depot: Arc<Depot>,
    reader: &Reader<Tables>,
    parts: &mut [Running],
    ports: Vec<PortIo>,
    plan: Plan,
) -> Result<DataPath, Failure> {
    prepare(config, interfaces, depot, reader, parts, plan)?.start(ports).map_err(Failure::other)
}

/// An engine that is ready to start, but for its queues.
pub(crate) struct Prepared {
    spec: EngineSpec<Newest<Tables>>,
    spread: Vec<Spreading>,
    entries: Entries,
    in_order: Option<InOrder>,
    reserve: Option<Reserve<Newest<Tables>>>,
}

/// Makes the stages of all workers.
pub(crate) fn prepare(
    config: &Config,
    interfaces: &Interfaces,
    depot: Arc<Depot>,
    reader: &Reader<Tables>,
    parts: &mut [Running],
    plan: Plan,
) -> Result<Prepared, Failure> {
    let mut devices = plan.devices;
    let on_device = on_device(parts, &mut devices, &reader.pin());
    let mut pipelines =
        Pipelines { config, parts, on_device, interfaces, packet_time: plan.offline };
    let n = match plan.workers.max(1) {
        n if n > 1 && plan.offline => pipelines.capture_workers(n, &reader.pin())?,
        n => n,
    };
    // Several workers over captures: what they make is put in order behind them.
    let in_order = plan.offline && n > 1;
    let cpus =
        if plan.offline { Vec::new() } else { pinned(&config.system.cpus, n, usable_cpus()) };
    let (mut on_drop, mut on_dump) = (plan.on_drop, plan.on_dump);
    let mut workers = Vec::with_capacity(n);
    let numbers: Vec<usize> =
        interfaces.names().iter().map(|name| config.pipeline_number(name)).collect();
    let entries = Entries { by_port: numbers.into() };
    // A port of a live program is closed until it has queues.
    let unplaced = |number| match !plan.offline && interfaces.is_port(number) {
        true => TxSlot::Closed,
        false => TxSlot::Absent,
    };
    for i in 0..n {
        let own = pipelines.all(i, in_order)?;
        workers.push(WorkerSpec {
            cpu: cpus.get(i).copied(),
            versions: Newest(reader.clone()),
            pipelines: own,
            rx: Vec::new(),
            tx: (0..interfaces.count() as u16).map(unplaced).collect(),
            host: (0..interfaces.count()).map(|_| TxSlot::Absent).collect(),
            on_drop: on_drop.take(),
            device: None,
            on_dump: on_dump.take(),
        });
    }
    let origins = origins(config, &plan.file);
    let spread: Vec<Spreading> =
        workers[0].pipelines.iter().map(|own| Spreading::of(&own.stages)).collect();
    let max_delay = config.in_use().filter_map(|pipeline| pipeline.max_delay).min();
    let max_delay = max_delay.unwrap_or(config.engine.max_delay);
    drops::register().map_err(Failure::other)?;
    let gate = match in_order {
        true => pipelines.gate(interfaces.count()),
        false => None,
    };
    let spec = EngineSpec {
        workers,
        depot,
        chunk_packets: config.engine.chunk,
        chunks: if devices.is_empty() { 8 } else { 64 },
        max_delay: (!plan.offline && !devices.is_empty()).then_some(max_delay),
        devices,
        packet_time: plan.offline,
        until_finished: plan.offline,
        lossless: plan.offline,
        on_error: plan.on_error,
        host_gate: None,
        on_device_error: Arc::new(|number, event| match event {
            DeviceEvent::JobFailed(error) => {
                tracing::warn!(%error, "device {number}: a job failed and was repeated on the CPU; further failures of this kind are only counted");
            }
            DeviceEvent::SegmentGivenUp(error) => {
                tracing::warn!(%error, "device {number}: the kernels of a segment are disabled; the CPU processes it, as far as stages do not need a device");
            }
            DeviceEvent::PartGivenUp(error) => {
                tracing::warn!("device {number}: {error}: it is disabled, the others go on");
            }
            DeviceEvent::GivenUp(error) => {
                tracing::warn!(%error, "device {number}: disabled; the CPU processes its packets, as far as stages do not need a device");
            }
            DeviceEvent::Idle(what) => tracing::warn!("device {number}: {what}"),
        }),
        before: None,
        hooks: Arc::default(),
        on_panic: Arc::new(move |mut panic| {
            let of_name = |(stage, _): &&(String, String)| stage == panic.stage.1;
            let known = origins.get(panic.stage.0).filter(of_name);
            let known = known.or_else(|| origins.iter().find(of_name));
            panic.origin = known.map(|(_, origin)| origin.clone()).unwrap_or_default();
            tracing::error!("{panic}");
        }),
    };
    let in_order = in_order.then(|| InOrder { gate, under_way: plan.under_way });
    Ok(Prepared { spec, spread, entries, in_order, reserve: None })
}

impl Prepared {
    /// Its devices, and the programs that are built for them by [`Prepared::reserve`].
    pub(crate) fn programs(
        &self,
    ) -> Result<(&[DeviceSpec<Tables>], Vec<device::apart::Kernels>), EngineError> {
        Ok((&self.spec.devices, self.spec.programs()?))
    }

    /// Makes sure that it can start: there is nothing wrong with the spec, and its threads are there.
    pub(crate) fn reserve(&mut self) -> Result<(), EngineError> {
        self.reserve = Some(self.spec.reserve()?);
        Ok(())
    }

    /// With captures and traces that have begun.
    pub(crate) fn with_hooks(mut self, hooks: Arc<Hooks>) -> Self {
        self.spec.hooks = hooks;
        self
    }

    /// With a gate before the twins.
    pub(crate) fn with_host_gate(mut self, gate: Arc<dyn HostGate>) -> Self {
        self.spec.host_gate = Some(gate);
        self
    }

    /// Starts it over `ports`.
    pub(crate) fn start(self, ports: Vec<PortIo>) -> Result<DataPath, EngineError> {
        let Self { mut spec, spread, entries, in_order, reserve } = self;
        let place = |port| place(port, &spread, &entries, &mut spec.workers);
        let ports = ports.into_iter().map(place).collect();
        let engine = match (in_order, reserve) {
            (Some(in_order), _) => Engine::start_in_order(spec, in_order),
            (None, Some(reserve)) => Engine::start_reserved(spec, reserve),
            (None, None) => Engine::start(spec),
        };
        Ok(DataPath { engine: engine?, ports })
    }

    /// Starts it over the queues of one that has stopped, but for those of interfaces that close, and over `opened`. Its
    /// stages inherit what the others held. `counters` are those of the queues as they were placed. The queues to be
    /// closed come along. `publish` is called while no stage runs.
    pub(crate) fn follow(
        mut self,
        mut before: Suspended<Newest<Tables>>,
        counters: &[PortCounters],
        closes: impl Fn(u16) -> bool,
        opened: Vec<PortIo>,
        publish: &mut dyn FnMut(),
    ) -> Result<(DataPath, Vec<Closed>), EngineError> {
        before.bequeath(&mut self.spec.workers);
        self.spec.before = Some(before.view().clone());
        let mut ports = collect(before.into_queues(), counters);
        // Not before the old stages are done: tables of theirs may be gone then.
        publish();
        let is_closed = |(port, _): &(PortIo, &PortCounters)| !port.stamps && closes(port.number);
        let (closed, stay): (Vec<_>, Vec<_>) = ports.drain(..).partition(is_closed);
        let closed = closed.into_iter().map(|(port, counters)| (port, counters.clone())).collect();
        let stay = stay.into_iter().map(|(port, _)| port);
        Ok((self.start(stay.chain(opened).collect())?, closed))
    }
}

/// Queues that are to be closed, and what they counted.
pub(crate) type Closed = (PortIo, PortCounters);

/// The queues of all workers, port by port as [`place`] got them, with the counters that it made.
fn collect(workers: Vec<WorkerQueues>, counters: &[PortCounters]) -> Vec<(PortIo, &PortCounters)> {
    let (mut rx, mut tx) = (Vec::new(), Vec::new());
    for worker in workers {
        rx.extend(worker.rx.into_iter().map(Some));
        tx.extend(worker.tx.into_iter().chain(worker.host).map(Some));
    }
    let mut ports = Vec::new();
    for port in counters {
        let mut io = PortIo { twin: port.twin, ..PortIo::new(port.number, Vec::new()) };
        for (_, rx_counters, tx_counters) in &port.queues {
            let is_rx = |slot: &Option<RxSlot>| {
                slot.as_ref().is_some_and(|slot| Arc::ptr_eq(&slot.counters, rx_counters))
            };
            let is_tx = |slot: &Option<TxSlot>| match slot {
                Some(TxSlot::Own(_, counters)) => Arc::ptr_eq(counters, tx_counters),
                _ => false,
            };
            let slot = rx.iter_mut().find(|slot| is_rx(slot)).and_then(Option::take);
            let own = tx.iter_mut().find(|slot| is_tx(slot)).and_then(Option::take);
            let queue = slot.map(|slot| {
                io.stamps = slot.port == chunk::PORT_NONE;
                io.checksums = match slot.mark & MARK_CHECKSUMS_IGNORED {
                    0 => Checksums::Verify,
                    _ => Checksums::Ignore,
                };
                slot.queue
            });
            let own = own.and_then(|slot| match slot {
                TxSlot::Own(queue, _) => Some(queue),
                TxSlot::Absent | TxSlot::Closed | TxSlot::Worker(_) => None,
            });
            io.queues.push((queue, own));
        }
        ports.push((io, port));
    }
    ports
}

/// The stages of the pipeline, each with the file and line that put it there; no lines for a configuration without a
/// file.
fn origins(config: &Config, file: &str) -> Vec<(String, String)> {
    let lines = config.stage_lines.iter().flatten().map(|line| match line {
        _ if file.is_empty() => String::new(),
        Some(line) => format!("{file}:{line}"),
        None => file.to_owned(),
    });
    let stages = config.in_use().flat_map(|pipeline| pipeline.stages.iter().cloned());
    stages.zip(lines).collect()
}

/// Makes the stages of each worker.
struct Pipelines<'a> {
    config: &'a Config,
    parts: &'a mut [Running],
    /// By part: the devices have its tables.
    on_device: Vec<bool>,
    interfaces: &'a Interfaces,
    /// Time is the packets'.
    packet_time: bool,
}

impl Pipelines<'_> {
    /// The pipelines of one worker.
    fn all(
        &mut self,
        worker: usize,
        defers_limits: bool,
    ) -> Result<Vec<PipelineSpec<Tables>>, Failure> {
        let config = self.config;
        let spec = |pipeline: &Pipeline| {
            let stages = self.stages(pipeline, worker, defers_limits)?;
            let places = pipeline.places.clone();
            Ok(PipelineSpec { places, ..PipelineSpec::new(&pipeline.name, stages) })
        };
        config.in_use().map(spec).collect()
    }

    /// The stages of one pipeline of one worker.
    fn stages(
        &mut self,
        pipeline: &Pipeline,
        worker: usize,
        defers_limits: bool,
    ) -> Result<Vec<Box<dyn Stage<Tables>>>, Failure> {
        let mut stages = Vec::with_capacity(pipeline.stages.len());
        let shared = Shared::default();
        for (at, name) in pipeline.stages.iter().enumerate() {
            let own = self.parts.iter().position(|own| own.has(pipeline, at));
            let made = own.and_then(|own| {
                let setup = WorkerSetup {
                    worker,
                    config: self.config,
                    pipeline,
                    at,
                    interfaces: self.interfaces,
                    packet_time: self.packet_time,
                    defers_limits,
                    has_device: self.on_device[own],
                    shared: &shared,
                };
                self.parts[own].part.stage(&pipeline.kinds[at], &setup)
            });
            let unknown = || Failure::other(format!("unknown stage `{name}`"));
            let made = made.ok_or_else(unknown)?;
            stages.push(match self.contexts_of(name) {
                0 => made,
                contexts => Box::new(InContext::new(made, contexts)),
            });
        }
        Ok(stages)
    }

    /// The contexts that a stage sees, a bit each; 0: all packets.
    fn contexts_of(&self, stage: &str) -> u32 {
        let all = self.config.contexts();
        let own = self.config.section_of(stage).map(|stage| &stage.context);
        let number = |name| all.iter().position(|own| own == name);
        own.into_iter().flatten().filter_map(number).fold(0, |bits, number| bits | 1 << number)
    }

    /// The parts whose stages leave limits to a gate, once for each pipeline that packets enter.
    fn gated(&self) -> impl Iterator<Item = usize> {
        let gates_of = |pipeline| {
            let parts = self.parts.iter().enumerate();
            parts.filter(move |(_, own)| own.part.has_gate(pipeline)).map(|(number, _)| number)
        };
        let is_entered = |number: usize| {
            self.config.ports.iter().any(|own| self.config.pipeline_number(&own.name) == number)
        };
        let entered =
            self.config.in_use().enumerate().filter(move |(number, _)| is_entered(*number));
        entered.flat_map(move |(_, pipeline)| gates_of(pipeline))
    }

    /// Over captures with several workers: the gate, of the one part that has any.
    fn gate(&mut self, interfaces: usize) -> Option<Box<dyn Gate>> {
        let number = self.gated().next()?;
        self.parts[number].part.gate(self.config, interfaces)
    }

    /// How many of `wanted` workers captures go through: one where a stage needs that, which the log says.
    fn capture_workers(&mut self, wanted: usize, tables: &Tables) -> Result<usize, Failure> {
        let all = self.all(0, true)?;
        let needs = |stage: &dyn Stage<Tables>| {
            stage.needs_one_worker(tables).map(|why| (stage.name(), why))
        };
        // One queue is spread for all pipelines.
        let needs_of: Vec<Need> = all.iter().map(|own| Spreading::of(&own.stages).need).collect();
        let others = needs_of.iter().filter(|need| **need > Need::Nothing).count();
        if needs_of.contains(&Need::Own) && others > 1 {
            tracing::warn!(
                "captures are processed by one worker, not {wanted}: pipelines spread their packets differently"
            );
            return Ok(1);
        }
        if self.gated().count() > 1 {
            tracing::warn!(
                "captures are processed by one worker, not {wanted}: several pipelines or firewalls limit ICMP errors"
            );
            return Ok(1);
        }
        let mut stages = all.iter().flat_map(|own| &own.stages);
        Ok(match stages.find_map(|stage| needs(&**stage)) {
            Some((stage, why)) => {
                tracing::warn!(
                    "captures are processed by one worker, not {wanted}: stage `{stage}`: {why}"
                );
                1
            }
            None => wanted,
        })
    }
}

/// The stages of a pipeline as one worker would have them, by themselves, as if there were a device.
pub(crate) fn stages_of(
    config: &Config,
    parts: &mut [Running],
) -> Result<Vec<Box<dyn Stage<Tables>>>, Failure> {
    let on_device = vec![true; parts.len()];
    let interfaces = &Interfaces::of(config);
    let mut all = Pipelines { config, parts, on_device, interfaces, packet_time: true };
    all.stages(&config.pipeline, 0, false)
}

/// Which parts' tables the devices have. Where one of the devices cannot have them, none is sent them, for they all run the
/// same kernels; the log says why.
fn on_device(parts: &[Running], devices: &mut [DeviceSpec<Tables>], tables: &Tables) -> Vec<bool> {
    let fits = |own: &Running| {
        for device in devices.iter_mut() {
            let DeviceKind::Driver { driver, .. } = &mut device.kind else { continue };
            if let Some(why) = own.part.unfit(tables, driver.info().memory_bytes) {
                tracing::warn!("{}: {why}; the CPU processes its stages", own.name);
                return false;
            }
        }
        true
    };
    let fits: Vec<bool> = parts.iter().map(fits).collect();
    for (own, _) in parts.iter().zip(&fits).filter(|(_, fits)| !**fits) {
        devices.iter_mut().for_each(|device| without(device, own.part.regions()));
    }
    fits
}

/// Keeps some tables from a device.
fn without(device: &mut DeviceSpec<Tables>, regions: Range<usize>) {
    if let DeviceKind::Driver { tables, .. } = &mut device.kind {
        let source = std::mem::replace(tables, Box::new(NoTables));
        *tables = Box::new(Without { source, regions });
    }
}

/// The CPUs of `workers` workers: those of the configuration, else the usable ones in order. More
/// workers than CPUs are left to the scheduler.
fn pinned(wanted: &[usize], workers: usize, usable: Vec<usize>) -> Vec<usize> {
    if !wanted.is_empty() {
        wanted.to_vec()
    } else if workers <= usable.len() {
        usable
    } else {
        Vec::new()
    }
}

/// The CPUs that this process may run on; none where the system does not say.
fn usable_cpus() -> Vec<usize> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else { return Vec::new() };
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
}

/// How received packets come to their workers.
#[derive(Clone)]
struct Spreading {
    hash: SpreadHash,
    need: Need,
}

/// What the stages of a pipeline need of that; each includes those before it, but for a hash of their own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Need {
    /// Nothing: a port with a queue for every worker keeps its network card's spread. Such a spread is not symmetric and
    /// knows neither hosts nor names, so in all other cases every port is spread.
    Nothing,
    Flow,
    Hosts,
    Own,
}

impl Spreading {
    /// What the stages of a pipeline need.
    fn of<T>(stages: &[Box<dyn Stage<T>>]) -> Self {
        if let Some(hash) = stages.iter().find_map(|stage| stage.spread_hash()) {
            return Self { hash, need: Need::Own };
        }
        let (hash, need): (fn(&[u8]) -> u32, Need) = match Spread::of(stages) {
            Spread::Any => (packet::flow::flow_hash_of_frame, Need::Nothing),
            Spread::Flow => (packet::flow::flow_hash_of_frame, Need::Flow),
            Spread::Hosts => (packet::flow::tracked_hash_of_frame, Need::Hosts),
        };
        Self { hash: hash.into(), need }
    }
}

/// By port and subinterface: the number of the pipeline that its packets enter.
struct Entries {
    by_port: Arc<[usize]>,
}

impl Entries {
    /// Where packets of a port's queues enter, and how they are spread: for a queue of several ports as the most demanding of
    /// their pipelines needs it.
    fn of(&self, port: &PortIo, spreading: &[Spreading]) -> (Entry, Spreading) {
        if port.stamps {
            let strictest = spreading.iter().max_by_key(|own| own.need);
            let strictest = strictest.unwrap_or(&spreading[0]).clone();
            return (Entry::ByPort(self.by_port.clone()), strictest);
        }
        let own = self.by_port.get(usize::from(port.number)).copied().unwrap_or_default();
        (Entry::Pipeline(own), spreading[own].clone())
    }
}

/// Gives each queue of a port to a worker. A worker without a queue of its own sends by the ring to
/// one that has; a port with fewer queues than workers is spread, and every port where packets must meet.
/// Packets from a twin stay with its owner: Linux sends them, they belong to no flow that we keep.
fn place<V: Versions>(
    port: PortIo,
    spreading: &[Spreading],
    entries: &Entries,
    workers: &mut [WorkerSpec<V>],
) -> PortCounters {
    let number = usize::from(port.number);
    if !port.twin && !port.stamps && port.queues.iter().all(|(_, tx)| tx.is_none()) {
        // It is open, and only receives.
        let slots = workers.iter_mut().filter_map(|worker| worker.tx.get_mut(number));
        let closed = slots.filter(|slot| matches!(slot, TxSlot::Closed));
        closed.for_each(|slot| *slot = TxSlot::Absent);
    }
    let (entry, spreading) = entries.of(&port, spreading);
    let is_needed = spreading.need > Need::Nothing || port.queues.len() < workers.len();
    let spread = (!port.twin && is_needed && workers.len() > 1).then_some(spreading.hash);
    // Ports with one queue each are dealt out in turn, so that no worker owns them all.
    let first = if port.twin || port.queues.len() > 1 { 0 } else { number };
    let (mut counters, mut losses) = (Vec::new(), Vec::new());
    for (q, (rx, tx)) in port.queues.into_iter().enumerate() {
        losses.extend(rx.iter().flat_map(|rx| rx.losses()));
        losses.extend(tx.iter().flat_map(|tx| tx.losses()));
        let owner = (first + q) % workers.len();
        let (rx_counters, tx_counters) =
            (Arc::<QueueCounters>::default(), Arc::<QueueCounters>::default());
        // A queue that was another engine's has counted already.
        rx.iter().for_each(|queue| rx_counters.set(queue.stats()));
        tx.iter().for_each(|queue| tx_counters.set(queue.stats()));
        if let Some(queue) = rx {
            workers[owner].rx.push(RxSlot {
                entry: entry.clone(),
                port: if port.stamps { chunk::PORT_NONE } else { port.number },
                mark: if port.twin { MARK_FROM_HOST } else { mark_of(port.checksums) },
                queue,
                spread: spread.clone(),
                counters: Arc::clone(&rx_counters),
            });
        }
        if let Some(queue) = tx {
            let own = TxSlot::Own(queue, Arc::clone(&tx_counters));
            let slots = |w: &mut WorkerSpec<V>, slot| {
                let side = if port.twin { &mut w.host } else { &mut w.tx };
                if let Some(place) = side.get_mut(number) {
                    *place = slot;
                }
            };
            if q == 0 {
                for (w, worker) in workers.iter_mut().enumerate() {
                    if w != owner {
                        slots(worker, TxSlot::Worker(owner));
                    }
                }
            }
            slots(&mut workers[owner], own);
        }
        counters.push((owner, rx_counters, tx_counters));
    }
    PortCounters { number: port.number, twin: port.twin, queues: counters, losses }
}

/// The path of a file that a configuration embedded in the program names.
pub(crate) fn is_readable(path: &Path) -> bool {
    std::fs::metadata(path).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tables of nothing.
    struct NoTables;

    struct Nothing;

    impl std::ops::Deref for Nothing {
        type Target = ();
        fn deref(&self) -> &() {
            &()
        }
    }

    impl Versions for NoTables {
        type Tables = ();
        type Pin = Nothing;
        fn pin(&mut self) -> Nothing {
            Nothing
        }
        fn number(_: &Nothing) -> u64 {
            0
        }
    }

    /// By pair of hosts, the smaller address first: the workers that saw their packets, and how many.
    type Seen = std::collections::HashMap<(u128, u128), (std::collections::HashSet<u16>, u32)>;

    /// Needs its packets to be spread so; remembers who met where.
    struct Meets(Spread, Arc<std::sync::Mutex<Seen>>);

    impl Stage<()> for Meets {
        fn name(&self) -> &'static str {
            "meets"
        }
        fn spread(&self) -> Spread {
            self.0
        }
        fn post_shade(&mut self, chunk: &mut chunk::Chunk, cx: &mut engine::Context<'_, ()>) {
            let mut seen = self.1.lock().unwrap();
            for row in 0..chunk.len() {
                let d = packet::decode(chunk.packets[row].data(), chunk.packets[row].frame_len());
                let address = |[high, low]: [u64; 2]| u128::from(high) << 64 | u128::from(low);
                let (src, dst) = (address(d.src), address(d.dst));
                let entry = seen.entry((src.min(dst), src.max(dst))).or_default();
                entry.0.insert(cx.worker);
                entry.1 += 1;
                chunk.rows.verdicts()[row] = chunk::Verdict::forward(0).0;
            }
        }
    }

    /// Whole packets of several flows and fragments, there and back, between hosts of 10.0.0.0/24 and a server.
    fn frames_of(host: u8) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        for i in 0..12u16 {
            let (client, server) = ([10, 0, 0, host], [192, 0, 2, 1]);
            let (src, dst) = if i % 2 == 0 { (client, server) } else { (server, client) };
            let mut frame = vec![2; 12];
            frame.extend([8, 0, 0x45, 0, 0, 48, 0, i as u8]);
            // Every third one is a fragment: the first of a datagram, a middle, the last.
            let fragment: u16 =
                [0x2000, 0, 0, 0x2003, 0, 0, 0x0006, 0, 0, 0x2000, 0, 0][usize::from(i)];
            frame.extend(fragment.to_be_bytes());
            frame.extend([64, 17, 0, 0]);
            frame.extend(src.into_iter().chain(dst));
            frame.extend([1000 + i / 2, 53].into_iter().flat_map(u16::to_be_bytes));
            frame.resize(62, 0);
            frames.push(frame);
        }
        frames
    }

    /// Runs the frames of many hosts through two workers with a queue each, which get them as a network card
    /// without a symmetric spread gives them out: in turn. By pair of hosts, how many workers saw it.
    fn workers_per_pair(need: Spread) -> Vec<usize> {
        let (_, depot) = Region::new(20_000, HugePages::Off).unwrap();
        let frames: Vec<_> = (0..100).flat_map(frames_of).collect();
        let n = frames.len() as u32;
        let queue = |q: usize| -> Queue {
            let frames = frames.iter().skip(q).step_by(2).cloned();
            let rx: Box<dyn RxQueue> = Box::new(io::memory::Script::untimed(frames));
            (Some(rx), Some(Box::new(io::memory::Sink::new())))
        };
        let port = PortIo::new(0, vec![queue(0), queue(1)]);
        let seen = Arc::<std::sync::Mutex<Seen>>::default();
        let mut workers: Vec<_> = (0..2)
            .map(|_| {
                let stage = Box::new(Meets(need, seen.clone())) as Box<dyn Stage<()>>;
                WorkerSpec { tx: vec![TxSlot::Absent], ..WorkerSpec::new(NoTables, vec![stage]) }
            })
            .collect();
        let spreading = [Spreading::of(&workers[0].pipelines[0].stages)];
        let entries = Entries { by_port: Arc::new([0]) };
        place(port, &spreading, &entries, &mut workers);
        let spread = |w: &WorkerSpec<NoTables>| w.rx[0].spread.is_some();
        assert!(workers.iter().all(|w| spread(w) == (need > Spread::Any)));
        let engine = Engine::start(EngineSpec {
            chunk_packets: 16,
            until_finished: true,
            lossless: true,
            on_error: Arc::new(|_, error| panic!("{error}")),
            ..EngineSpec::new(workers, depot)
        })
        .unwrap();
        engine.join().unwrap();
        let seen = seen.lock().unwrap();
        assert_eq!((seen.len(), seen.values().map(|(_, n)| n).sum::<u32>()), (100, n));
        seen.values().map(|(workers, _)| workers.len()).collect()
    }

    #[test]
    fn a_pipeline_with_state_gets_a_symmetric_spread_on_ports_with_queues_enough() {
        let by_hosts = workers_per_pair(Spread::Hosts);
        assert!(by_hosts.iter().all(|&n| n == 1), "{by_hosts:?}");
        // By flow, a pair's flows and fragments may be apart; without a need, the card's spread stays.
        assert!(workers_per_pair(Spread::Flow).iter().any(|&n| n > 1));
        assert!(workers_per_pair(Spread::Any).iter().all(|&n| n == 2));
    }

    #[test]
    fn a_stage_has_the_line_that_put_it_there() {
        let of = |text: &str, file: &str| {
            let (config, _) = config::parse(text, &crate::pipelines::known()).unwrap();
            origins(&config, file)
        };
        let ports = "[port.a]\nbackend = \"memory\"\n[port.b]\nbackend = \"memory\"\n";
        let text = format!("mode = \"switch\"\n{ports}[firewall]\n");
        let expected =
            ["bridge_in f.toml:1", "firewall f.toml:6", "bridge f.toml:1", "bridge_out f.toml:1"];
        let all = of(&text, "f.toml");
        let all: Vec<_> = all.iter().map(|(stage, origin)| format!("{stage} {origin}")).collect();
        assert_eq!(all, expected);
        assert!(of(ports, "f.toml").iter().all(|(_, origin)| origin == "f.toml"), "by default");
        assert!(of(&text, "").iter().all(|(_, origin)| origin.is_empty()));
    }

    #[test]
    fn workers_have_the_usable_cpus_in_order() {
        assert_eq!(pinned(&[], 2, vec![1, 3, 5]), [1, 3, 5]);
        assert_eq!(pinned(&[7, 2], 2, vec![1, 3]), [7, 2]);
        assert!(pinned(&[], 3, vec![1, 3]).is_empty(), "more workers than CPUs");
        let n = std::thread::available_parallelism().unwrap().get();
        // A limit of time may allow fewer than there are.
        assert!(usable_cpus().len() >= n);
    }
}
