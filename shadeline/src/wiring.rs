//! The one file that wires queues, workers, stages and control.
//!
//! ```text
//!  Config ─▶ Interfaces (numbers for names)
//!         ─▶ RibManager ─versions─▶ Reader<Tables> per worker
//!         ─▶ PortIo per port (live, captures, memory) ─▶ WorkerSpec per worker ─▶ Engine
//! ```
//!
//! Numbers: physical ports first, in the order of the file, then subinterfaces; so an untagged
//! frame's interface has its port's number.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use apps::firewall::{self, Firewall, FirewallTables};
use apps::ndn::pit::PitLimits;
use apps::ndn::{NdnCounters, NdnOptions};
use apps::router::{ErrorGate, PipelineOptions, RouterCounters};
use apps::switch::{SwitchCounters, SwitchPipeline};
use apps::wire::Wire;
use chunk::{Depot, DropReason, HugePages, Region};
use control::config::{self, Config, PortKind, Rpf, VlanTag};
use controlplane::{Newest, OverPart, Tables, Without};
use device::tables::NoTables;
use device::{Cost, FaultPlan};
use engine::{
    DeviceEvent, DeviceKind, DeviceSpec, DropSink, DumpSink, Engine, EngineSpec, ErrorSink, Gate,
    InOrder, MARK_FROM_HOST, Policy, QueueCounters, RxSlot, Spread, SpreadHash, Stage, TxSlot,
    UnderWay, Versions, WorkerSpec,
};
use io::{Losses, QueueStats, RxQueue, TxQueue};
use lookup::bridge::StationEvent;
use lookup::fib::{Interface, NeighbourEvent, Options, ReversePath};
use lookup::names::NameHasher;
use lookup::versions::Reader;
use packet::MacAddr;

use crate::drops;
use crate::failure::Failure;
use crate::plane::Parts;

/// The TPIDs of an outer and an inner tag (IEEE 802.1ad, 802.1Q).
const TPID_SERVICE: u16 = 0x88a8;
const TPID_CUSTOMER: u16 = 0x8100;

/// Numbers for names.
#[derive(Debug, Clone)]
pub(crate) struct Interfaces {
    names: Vec<String>,
    physical: usize,
    /// Of each subinterface: the port that carries it and its VLANs, the outer one first.
    tagged: Vec<(u16, Vec<u16>)>,
}

impl Interfaces {
    pub(crate) fn of(config: &Config) -> Self {
        let is = |physical: bool| {
            config.ports.iter().filter(move |p| matches!(p.kind, PortKind::Physical(_)) == physical)
        };
        let names: Vec<_> = is(true).chain(is(false)).map(|port| port.name.clone()).collect();
        let tagged = is(false).filter_map(|port| match &port.kind {
            PortKind::Physical(_) => None,
            PortKind::Vlan { parent, tag } => {
                let parent = names.iter().position(|n| n == parent).unwrap_or_default() as u16;
                Some(match *tag {
                    VlanTag::Single(id) => (parent, vec![id]),
                    VlanTag::Double(outer, inner) => (parent, vec![outer, inner]),
                })
            }
        });
        Self { tagged: tagged.collect(), physical: is(true).count(), names }
    }

    /// The number of an interface.
    pub(crate) fn number(&self, name: &str) -> Option<u16> {
        self.names.iter().position(|n| n == name).map(|n| n as u16)
    }

    /// The name of an interface; `-` for no interface at all.
    pub(crate) fn name(&self, number: u16) -> &str {
        self.names.get(usize::from(number)).map_or("-", String::as_str)
    }

    /// Of a subinterface: the port that carries it and its VLANs, the outer one first.
    pub(crate) fn tagged(&self, number: u16) -> Option<(u16, &[u16])> {
        let (port, vlans) = self.tagged.get(usize::from(number).checked_sub(self.physical)?)?;
        Some((*port, vlans))
    }

    /// All, in order of their numbers.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// How many of them are ports; they come first.
    pub(crate) fn physical(&self) -> usize {
        self.physical
    }
}

/// What the system says of a port, where the configuration leaves it open.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PortFacts {
    /// The MAC of the network interface.
    pub(crate) mac: Option<[u8; 6]>,
    /// Its MTU.
    pub(crate) mtu: Option<u32>,
}

/// The record of interface `number` in the forwarding tables.
pub(crate) fn interface(
    config: &Config,
    interfaces: &Interfaces,
    number: u16,
    facts: impl Fn(u16) -> PortFacts,
    twins: bool,
) -> Interface {
    let Some(port) = config.port(interfaces.name(number)) else { return Interface::default() };
    let (physical, tags) = match &port.kind {
        PortKind::Physical(_) => (number, Vec::new()),
        PortKind::Vlan { parent, tag } => {
            let tags = match *tag {
                VlanTag::Single(id) => vec![(TPID_CUSTOMER, id)],
                VlanTag::Double(outer, inner) => {
                    vec![(TPID_SERVICE, outer), (TPID_CUSTOMER, inner)]
                }
            };
            (interfaces.number(parent).unwrap_or(number), tags)
        }
    };
    let facts = facts(physical);
    let parent = config.port(interfaces.name(physical));
    let mac = port.mac.or(parent.and_then(|p| p.mac)).map(|m| m.0).or(facts.mac);
    let mtu = port.mtu.or(parent.and_then(|p| p.mtu)).or(facts.mtu).unwrap_or(1500);
    let mut addresses4 = Vec::new();
    let mut addresses6 = Vec::new();
    for address in &port.addresses {
        match address {
            ipnet::IpNet::V4(net) => addresses4.push((net.addr().to_bits(), net.prefix_len())),
            ipnet::IpNet::V6(net) => {
                let bits = net.addr().to_bits();
                addresses6.push(([(bits >> 64) as u64, bits as u64], net.prefix_len()));
            }
        }
    }
    Interface {
        name: port.name.clone(),
        up: true,
        port: physical,
        tags,
        mac: mac.unwrap_or_else(|| derived_mac(physical)),
        mtu: mtu.min(u32::from(u16::MAX)) as u16,
        addresses4,
        addresses6,
        reverse_path: match port.rpf {
            Rpf::Off => ReversePath::Off,
            Rpf::Strict => ReversePath::Strict,
            Rpf::Loose => ReversePath::Loose,
        },
        any_mac: promiscuous(config, interfaces.name(physical)),
        twin: twins && port.twin.is_some(),
    }
}

fn promiscuous(config: &Config, port: &str) -> bool {
    let kind = config.port(port).map(|p| &p.kind);
    matches!(kind, Some(PortKind::Physical(physical)) if physical.promiscuous)
}

/// The MAC of a port that nobody gave one, locally administered: captures need some.
fn derived_mac(port: u16) -> [u8; 6] {
    let [high, low] = port.to_be_bytes();
    [0x02, 0x53, 0x4c, 0x00, high, low]
}

/// What the data path is told of the configuration.
pub(crate) fn options(config: &Config, offline: bool) -> Options {
    let router = &config.router;
    Options {
        derive_neighbours: offline,
        ttl: router.ttl,
        fragment: router.fragment,
        icmp_rate: router.icmp_rate,
        icmp_burst: router.icmp_burst,
        neighbour_queue_packets: router.arp_queue_packets.min(u32::MAX as usize) as u32,
        neighbour_queue_total_packets: router.arp_queue_total_packets.min(u32::MAX as usize) as u32,
        neighbour_wait_ns: (router.neighbour_retry * router.neighbour_attempts).as_nanos() as u64,
    }
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
    /// The receive queue stamps packets with their ports itself.
    pub(crate) stamps: bool,
}

/// Counters of the queues of a port, for those who show them.
#[derive(Clone)]
pub(crate) struct PortCounters {
    pub(crate) number: u16,
    pub(crate) twin: bool,
    /// By queue: the worker, its receive side, its transmit side.
    pub(crate) queues: Vec<(usize, Arc<QueueCounters>, Arc<QueueCounters>)>,
    /// Why its queues lost packets.
    pub(crate) losses: Vec<Arc<Losses>>,
}

/// What may be seen of a data path, also after its end.
#[derive(Clone)]
pub(crate) struct Counters {
    pub(crate) ports: Vec<PortCounters>,
    /// By worker; none where no router is.
    pub(crate) router: Vec<Arc<RouterCounters>>,
    /// By worker; none where no switch is.
    pub(crate) switch: Vec<Arc<SwitchCounters>>,
    /// By worker; none where no named-data forwarder is.
    pub(crate) ndn: Vec<Arc<NdnCounters>>,
}

impl Counters {
    /// What each interface received and sent. A port's queues count for it; for a subinterface,
    /// which has none, the router's stages do.
    pub(crate) fn interfaces(&self, interfaces: &Interfaces) -> Vec<(QueueStats, QueueStats)> {
        let mut all = vec![<(QueueStats, QueueStats)>::default(); interfaces.names().len()];
        for port in self.ports.iter().filter(|port| !port.twin) {
            let (rx, tx) = port.totals();
            if let Some(sums) = all.get_mut(usize::from(port.number)) {
                sums.0 += rx;
                sums.1 += tx;
            }
        }
        for (i, sums) in all.iter_mut().enumerate().skip(interfaces.physical()) {
            for tagged in self.router.iter().filter_map(|worker| worker.tagged(i as u16)) {
                sums.0.packets += tagged.rx_packets.get();
                sums.0.bytes += tagged.rx_bytes.get();
                sums.1.packets += tagged.tx_packets.get();
                sums.1.bytes += tagged.tx_bytes.get();
            }
        }
        all
    }

    /// Packets that queues lost for `reason`: no stage gave them a verdict.
    pub(crate) fn lost(&self, reason: DropReason) -> u64 {
        self.ports.iter().map(|port| io::lost(&port.losses, reason)).sum()
    }
}

impl PortCounters {
    /// Sums over the queues: received, sent.
    pub(crate) fn totals(&self) -> (QueueStats, QueueStats) {
        let mut sums = (QueueStats::default(), QueueStats::default());
        for (_, rx, tx) in &self.queues {
            sums.0 += rx.get();
            sums.1 += tx.get();
        }
        sums
    }
}

/// How the engine is to run, beside what the configuration says.
pub(crate) struct Plan {
    /// Where the tables of each application are.
    pub(crate) parts: Parts,
    /// Worker threads.
    pub(crate) workers: usize,
    /// Time is the packets', queues are files, the end of input is the end.
    pub(crate) offline: bool,
    /// Where workers tell what they saw.
    pub(crate) events: Events,
    /// Told of each dropped packet; live with one worker only.
    pub(crate) on_drop: Option<DropSink>,
    /// Receives each packet with the verdict dump; over captures alone.
    pub(crate) on_dump: Option<DumpSink>,
    /// Told of a queue's failure.
    pub(crate) on_error: ErrorSink,
    /// Where to shade beside the CPU; the workers are dealt out to them in turn.
    pub(crate) devices: Vec<DeviceSpec<Tables>>,
    /// The configuration's file, for messages; empty for one that is part of the program.
    pub(crate) file: String,
}

/// Where workers tell what they saw; `None` where nobody listens.
#[derive(Default)]
pub(crate) struct Events {
    pub(crate) neighbours: Option<SyncSender<NeighbourEvent>>,
    pub(crate) stations: Option<SyncSender<StationEvent>>,
    /// Over captures: how many packets are on their way.
    pub(crate) under_way: UnderWay,
}

/// A running data path and what may be seen of it.
pub(crate) struct DataPath {
    pub(crate) engine: Engine<Newest<Tables>>,
    pub(crate) counters: Counters,
}

/// Cells that a pool of the engine may keep for itself.
const POOL_CELLS: usize = 4 * chunk::CHUNK_PACKETS_MAX;

/// The cells of the configuration; for several workers over captures, that many for each, and what the pools of
/// workers and merger keep.
pub(crate) fn cells(
    config: &Config,
    capture_workers: usize,
) -> Result<(&'static Region, Arc<Depot>), Failure> {
    let huge = match config.system.huge_pages {
        config::HugePages::Off => HugePages::Off,
        _ => HugePages::Advise,
    };
    let cells = match capture_workers {
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
    ports: Vec<PortIo>,
    plan: Plan,
) -> Result<DataPath, Failure> {
    let parts = &plan.parts;
    let pipelines = Pipelines { config, parts, offline: plan.offline, events: &plan.events };
    let mut devices = plan.devices;
    let filter = Filter::of(config, parts, &mut devices, &reader.pin());
    let n = match plan.workers.max(1) {
        n if n > 1 && plan.offline => {
            pipelines.capture_workers(n, filter.as_ref(), &reader.pin())?
        }
        n => n,
    };
    // Several workers over captures: what they make is put in order behind them.
    let in_order = plan.offline && n > 1;
    let count = interfaces.names().len();
    let cpus =
        if plan.offline { Vec::new() } else { pinned(&config.system.cpus, n, usable_cpus()) };
    let (mut on_drop, mut on_dump) = (plan.on_drop, plan.on_dump);
    let mut workers = Vec::with_capacity(n);
    let mut counters = StageCounters::default();
    for i in 0..n {
        let stages = pipelines.stages(in_order, filter.as_ref(), &mut counters)?;
        workers.push(WorkerSpec {
            cpu: cpus.get(i).copied(),
            versions: Newest(reader.clone()),
            pipelines: vec![engine::PipelineSpec::new("", stages)],
            rx: Vec::new(),
            tx: (0..interfaces.physical()).map(|_| TxSlot::Absent).collect(),
            host: (0..count).map(|_| TxSlot::Absent).collect(),
            on_drop: on_drop.take(),
            device: None,
            on_dump: on_dump.take(),
        });
    }
    let origins = origins(config, &plan.file);
    let spread = Spreading::of(&workers[0].pipelines[0].stages);
    let ports = ports.into_iter().map(|port| place(port, spread, &mut workers)).collect();
    let max_delay = config.pipeline.max_delay.unwrap_or(config.engine.max_delay);
    drops::register().map_err(Failure::other)?;
    let gate = in_order.then(|| {
        error_gate(config, reader.pin().part(parts.firewall), count, &mut counters.router)
    });
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
        on_device_error: Arc::new(|number, event| match event {
            DeviceEvent::JobFailed(error) => {
                tracing::warn!(%error, "device {number}: a job failed and was repeated on the CPU; further failures of this kind are only counted");
            }
            DeviceEvent::SegmentGivenUp(error) => {
                tracing::warn!(%error, "device {number}: the kernels of a segment are disabled; the CPU processes it");
            }
            DeviceEvent::GivenUp(error) => {
                tracing::warn!(%error, "device {number}: disabled; the CPU takes over");
            }
        }),
        on_panic: Arc::new(move |mut panic| {
            let known = origins.iter().find(|(stage, _)| stage == panic.stage.1);
            panic.origin = known.map(|(_, origin)| origin.clone()).unwrap_or_default();
            tracing::error!("{panic}");
        }),
    };
    let engine = match gate {
        Some(gate) => {
            let gate: Option<Box<dyn Gate>> = Some(Box::new(gate));
            Engine::start_in_order(spec, InOrder { gate, under_way: plan.events.under_way })
        }
        None => Engine::start(spec),
    };
    let StageCounters { router, switch, ndn } = counters;
    let engine = engine.map_err(Failure::other)?;
    Ok(DataPath { engine, counters: Counters { ports, router, switch, ndn } })
}

/// The stages of the pipeline, each with the file and line that put it there; no lines for a configuration without a
/// file.
fn origins(config: &Config, file: &str) -> Vec<(String, String)> {
    let lines = config.stage_lines.iter().map(|line| match line {
        _ if file.is_empty() => String::new(),
        Some(line) => format!("{file}:{line}"),
        None => file.to_owned(),
    });
    config.pipeline.stages.iter().cloned().zip(lines).collect()
}

/// Counters of the stages, by worker.
#[derive(Default)]
struct StageCounters {
    router: Vec<Arc<RouterCounters>>,
    switch: Vec<Arc<SwitchCounters>>,
    ndn: Vec<Arc<NdnCounters>>,
}

/// Makes the stages of each worker.
struct Pipelines<'a> {
    config: &'a Config,
    parts: &'a Parts,
    offline: bool,
    events: &'a Events,
}

impl Pipelines<'_> {
    /// The stages of one more worker.
    fn stages(
        &self,
        defers_errors: bool,
        filter: Option<&Filter>,
        all: &mut StageCounters,
    ) -> Result<Vec<Box<dyn Stage<Tables>>>, Failure> {
        let (config, parts) = (self.config, self.parts);
        let pipeline = &config.pipeline;
        let router = pipeline.uses("router").then(|| {
            let counters = Arc::new(RouterCounters::new(Interfaces::of(config).names().len()));
            all.router.push(counters.clone());
            let events = self.events.neighbours.clone();
            PipelineOptions { events, counters, defers_errors }
        });
        let switch = pipeline.uses("switch").then(|| {
            let counters = Arc::new(SwitchCounters::default());
            all.switch.push(counters.clone());
            let events = self.events.stations.clone();
            let with_headers = pipeline.has(firewall::STAGE);
            SwitchPipeline { events, learns_ahead: self.offline, with_headers, counters }
        });
        let ndn = pipeline.uses("ndn").then(|| {
            let counters = Arc::new(NdnCounters::new());
            all.ndn.push(counters.clone());
            ndn_options(config, self.offline, counters)
        });
        let stage = |name: &String| -> Option<Box<dyn Stage<Tables>>> {
            let of_router = |options| apps::router::stage(name, &pipeline.stages, options).ok();
            let router = router.as_ref().and_then(of_router);
            let switch = switch.as_ref().and_then(|options| apps::switch::stage(name, options));
            let ndn = ndn.as_ref().and_then(|options| apps::ndn::stage(name, options));
            let rules = filter.filter(|_| name == firewall::STAGE);
            let rules = rules.map(|filter| Box::new(filter.stage(defers_errors)) as _);
            let over_router = router.map(|stage| OverPart::boxed(stage, parts.router));
            over_router
                .or_else(|| switch.map(|stage| OverPart::boxed(stage, parts.switch)))
                .or_else(|| ndn.map(|stage| OverPart::boxed(stage, parts.ndn)))
                .or_else(|| rules.map(|stage| OverPart::boxed(stage, parts.firewall)))
                .or_else(|| (name == "wire").then(|| Box::new(Wire::new()) as _))
        };
        let unknown = |name: &String| Failure::other(format!("unknown stage `{name}`"));
        pipeline.stages.iter().map(|name| stage(name).ok_or_else(|| unknown(name))).collect()
    }

    /// How many of `wanted` workers captures go through: one where a stage needs that, which the log says.
    fn capture_workers(
        &self,
        wanted: usize,
        filter: Option<&Filter>,
        tables: &Tables,
    ) -> Result<usize, Failure> {
        let stages = self.stages(true, filter, &mut StageCounters::default())?;
        let needs = |stage: &dyn Stage<Tables>| {
            stage.needs_one_worker(tables).map(|why| (stage.name(), why))
        };
        Ok(match stages.iter().find_map(|stage| needs(&**stage)) {
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

/// The stages of a pipeline as one worker would have them, by themselves.
pub(crate) fn stages_of(
    config: &Config,
    parts: &Parts,
    tables: &Tables,
) -> Result<Vec<Box<dyn Stage<Tables>>>, Failure> {
    let pipelines = Pipelines { config, parts, offline: true, events: &Events::default() };
    // As a device would have them.
    let cost = Cost { launch: Duration::ZERO, row: Duration::ZERO };
    let simulated = DeviceKind::Simulated { cost, faults: FaultPlan::default() };
    let rows = chunk::CHUNK_PACKETS_MAX;
    let device = DeviceSpec { kind: simulated, slots: 1, rows, policy: Policy::Device };
    let filter = Filter::of(config, parts, &mut [device], tables);
    pipelines.stages(false, filter.as_ref(), &mut StageCounters::default())
}

/// The limit of errors of all workers together; it counts beside them.
fn error_gate(
    config: &Config,
    rules: &FirewallTables,
    interfaces: usize,
    counters: &mut Vec<Arc<RouterCounters>>,
) -> ErrorGate {
    let own = Arc::new(RouterCounters::new(interfaces));
    // A router's firewall leaves its errors to `rewrite`.
    let (rate, burst) = if config.pipeline.uses("router") {
        counters.push(own.clone());
        (config.router.icmp_rate, config.router.icmp_burst)
    } else {
        let options = rules.options();
        (options.icmp_rate, options.icmp_burst)
    };
    ErrorGate::new(rate, burst, own)
}

/// Who decodes before a firewall.
#[derive(Clone, Copy)]
enum First {
    /// A router's `decode`.
    Router,
    /// The firewall itself.
    Firewall,
    /// Another stage that provides its headers.
    Other,
}

/// A pipeline's firewall.
struct Filter {
    /// What stands first in its pipeline.
    first: First,
    /// The devices have the rules.
    has_device: bool,
}

impl Filter {
    /// That of a configuration, if it has one. Where one of the devices does not take the rules, none is sent them: they
    /// all run the same kernels.
    fn of(
        config: &Config,
        parts: &Parts,
        devices: &mut [DeviceSpec<Tables>],
        tables: &Tables,
    ) -> Option<Self> {
        let stages = &config.pipeline.stages;
        let at = stages.iter().position(|stage| stage == firewall::STAGE)?;
        let first = match (at, config.pipeline.uses("router")) {
            (0, _) => First::Firewall,
            (_, true) => First::Router,
            (_, false) => First::Other,
        };
        let rules = tables.part(parts.firewall);
        let take = devices.iter_mut().all(|device| takes(device, rules));
        if !take {
            let regions = parts.firewall.regions();
            devices.iter_mut().for_each(|device| without_rules(device, regions.clone()));
        }
        Some(Self { first, has_device: take })
    }

    /// The stage of one worker.
    fn stage(&self, defers_answers: bool) -> Firewall {
        let stage = match self.first {
            First::Router => Firewall::new().in_router(),
            First::Firewall => Firewall::new().decoding(),
            First::Other => Firewall::new(),
        };
        let stage = if self.has_device { stage } else { stage.on_cpu() };
        if defers_answers { stage.deferring_answers() } else { stage }
    }
}

/// Whether a device takes a firewall's rules; where it does not, the log says why.
fn takes(device: &mut DeviceSpec<Tables>, rules: &FirewallTables) -> bool {
    let DeviceKind::Driver { driver, .. } = &mut device.kind else { return true };
    // There are two images, each with room to grow, and others than these.
    let (bytes, memory_bytes) = (rules.rules_bytes() as u64, driver.info().memory_bytes);
    let is_small = rules.is_for_device() && 4 * bytes <= memory_bytes;
    if is_small && rules.has_kernels() {
        return true;
    }
    match is_small {
        true => tracing::warn!("firewall: no kernel supports its structure; the CPU classifies"),
        false => tracing::warn!(
            "firewall: its rules need {} MiB, too much for a device with {} MiB; the CPU classifies",
            bytes >> 20,
            memory_bytes >> 20
        ),
    }
    false
}

/// Keeps the rules from a device.
fn without_rules(device: &mut DeviceSpec<Tables>, regions: Range<usize>) {
    if let DeviceKind::Driver { tables, .. } = &mut device.kind {
        let source = std::mem::replace(tables, Box::new(NoTables));
        *tables = Box::new(Without { source, regions });
    }
}

/// What a worker's stages of a named-data forwarder are given.
fn ndn_options(config: &Config, packet_time: bool, counters: Arc<NdnCounters>) -> NdnOptions {
    let lifetime_max_ms = config.ndn.lifetime_max.as_millis() as u64;
    NdnOptions {
        hasher: NameHasher::random(),
        pit: PitLimits { lifetime_max_ms, ..PitLimits::of(config.ndn.pit_entries) },
        nack: config.ndn.nack,
        packet_time,
        counters,
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
#[derive(Clone, Copy)]
struct Spreading {
    hash: SpreadHash,
    /// Also where a port has a queue for every worker: a network card's own spread is not symmetric and knows
    /// neither hosts nor names.
    always: bool,
}

impl Spreading {
    /// What the stages of a pipeline need.
    fn of<T>(stages: &[Box<dyn Stage<T>>]) -> Self {
        if let Some(hash) = stages.iter().find_map(|stage| stage.spread_hash()) {
            return Self { hash, always: true };
        }
        let (hash, always): (SpreadHash, bool) = match Spread::of(stages) {
            Spread::Any => (packet::flow::flow_hash_of_frame, false),
            Spread::Flow => (packet::flow::flow_hash_of_frame, true),
            Spread::Hosts => (packet::flow::host_hash_of_frame, true),
        };
        Self { hash, always }
    }
}

/// Gives each queue of a port to a worker. A worker without a queue of its own sends by the ring to
/// one that has; a port with fewer queues than workers is spread, and every port where packets must meet.
/// Packets from a twin stay with its owner: Linux sends them, they belong to no flow that we keep.
fn place<V: Versions>(
    port: PortIo,
    spreading: Spreading,
    workers: &mut [WorkerSpec<V>],
) -> PortCounters {
    let number = usize::from(port.number);
    let is_needed = spreading.always || port.queues.len() < workers.len();
    let spread = (!port.twin && is_needed && workers.len() > 1).then_some(spreading.hash);
    // Ports with one queue each are dealt out in turn, so that no worker owns them all.
    let first = if port.twin || port.queues.len() > 1 { 0 } else { number };
    let (mut counters, mut losses) = (Vec::new(), Vec::new());
    for (q, (rx, tx)) in port.queues.into_iter().enumerate() {
        losses.extend(rx.iter().flat_map(|rx| rx.losses()));
        losses.extend(tx.iter().flat_map(|tx| tx.losses()));
        let owner = (first + q) % workers.len();
        let (rx_counters, tx_counters) = (Arc::default(), Arc::default());
        if let Some(queue) = rx {
            workers[owner].rx.push(RxSlot {
                entry: engine::Entry::default(),
                port: if port.stamps { chunk::PORT_NONE } else { port.number },
                mark: if port.twin { MARK_FROM_HOST } else { 0 },
                queue,
                spread,
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

/// A MAC as the configuration writes it.
pub(crate) fn mac_text(mac: [u8; 6]) -> String {
    MacAddr(mac).to_string()
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
        let port =
            PortIo { number: 0, twin: false, queues: vec![queue(0), queue(1)], stamps: false };
        let seen = Arc::<std::sync::Mutex<Seen>>::default();
        let mut workers: Vec<_> = (0..2)
            .map(|_| {
                let stage = Box::new(Meets(need, seen.clone())) as Box<dyn Stage<()>>;
                WorkerSpec { tx: vec![TxSlot::Absent], ..WorkerSpec::new(NoTables, vec![stage]) }
            })
            .collect();
        let spreading = Spreading::of(&workers[0].pipelines[0].stages);
        place(port, spreading, &mut workers);
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
