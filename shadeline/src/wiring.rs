//! The one file that wires queues, workers, stages and control.
//!
//! ```text
//!  Config ─▶ Interfaces (numbers for names)
//!         ─▶ RibManager ─versions─▶ Reader<Fib> per worker
//!         ─▶ PortIo per port (live, captures, memory) ─▶ WorkerSpec per worker ─▶ Engine
//! ```
//!
//! Numbers: physical ports first, in the order of the file, then subinterfaces; so an untagged
//! frame's interface has its port's number.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use apps::router::{FibVersions, PipelineOptions, RouterColumns, RouterCounters};
use chunk::{Columns, Depot, HugePages, Layout, Region};
use control::config::{self, Config, PortKind, Rpf, VlanTag};
use device::{Cost, DeviceError, FaultPlan};
use engine::{
    DropSink, Engine, EngineSpec, ErrorSink, MARK_FROM_HOST, Policy, QueueCounters, RxSlot,
    SimulatedSpec, TxSlot, WorkerSpec,
};
use io::{QueueStats, RxQueue, TxQueue};
use lookup::fib::{Fib, Interface, NeighbourEvent, Options, ReversePath};
use lookup::versions::Reader;
use packet::MacAddr;

use crate::failure::Failure;

/// The TPIDs of an outer and an inner tag (IEEE 802.1ad, 802.1Q).
const TPID_SERVICE: u16 = 0x88a8;
const TPID_CUSTOMER: u16 = 0x8100;

/// Numbers for names.
#[derive(Debug, Clone)]
pub(crate) struct Interfaces {
    names: Vec<String>,
    physical: usize,
}

impl Interfaces {
    pub(crate) fn of(config: &Config) -> Self {
        let is = |physical: bool| {
            config.ports.iter().filter(move |p| matches!(p.kind, PortKind::Physical(_)) == physical)
        };
        let names = is(true).chain(is(false)).map(|port| port.name.clone()).collect();
        Self { names, physical: is(true).count() }
    }

    /// The number of an interface.
    pub(crate) fn number(&self, name: &str) -> Option<u16> {
        self.names.iter().position(|n| n == name).map(|n| n as u16)
    }

    /// The name of an interface; `-` for no interface at all.
    pub(crate) fn name(&self, number: u16) -> &str {
        self.names.get(usize::from(number)).map_or("-", String::as_str)
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
    /// Worker threads.
    pub(crate) workers: usize,
    /// Time is the packets', queues are files, the end of input is the end.
    pub(crate) offline: bool,
    /// Where neighbour events go.
    pub(crate) events: Option<SyncSender<NeighbourEvent>>,
    /// Told of each dropped packet (one worker only).
    pub(crate) on_drop: Option<DropSink>,
    /// Told of a queue's failure.
    pub(crate) on_error: ErrorSink,
}

/// A running data path and what may be seen of it.
pub(crate) struct DataPath {
    pub(crate) engine: Engine<FibVersions>,
    pub(crate) ports: Vec<PortCounters>,
    #[allow(dead_code, reason = "read by debuggers until the metrics show them")]
    pub(crate) router: Vec<Arc<RouterCounters>>,
}

/// The cells of the configuration.
pub(crate) fn cells(config: &Config) -> Result<(&'static Region, Arc<Depot>), Failure> {
    let huge = match config.system.huge_pages {
        config::HugePages::Off => HugePages::Off,
        _ => HugePages::Advise,
    };
    let cells = u32::try_from(config.system.cells).unwrap_or(u32::MAX);
    Region::new(cells, huge)
        .map_err(|error| Failure::other(format!("no memory for cells: {error}")))
}

/// Starts the engine over `ports`.
pub(crate) fn start(
    config: &Config,
    interfaces: &Interfaces,
    depot: Arc<Depot>,
    reader: &Reader<Fib>,
    ports: Vec<PortIo>,
    plan: Plan,
) -> Result<DataPath, Failure> {
    let n = plan.workers.max(1);
    let count = interfaces.names().len();
    let router: Vec<_> = (0..n).map(|_| Arc::new(RouterCounters::default())).collect();
    let mut on_drop = plan.on_drop;
    let mut workers = Vec::with_capacity(n);
    for (i, counters) in router.iter().enumerate() {
        let options = PipelineOptions { events: plan.events.clone(), counters: counters.clone() };
        workers.push(WorkerSpec {
            cpu: if n > 1 || !plan.offline { config.system.cpus.get(i).copied() } else { None },
            versions: FibVersions(reader.clone()),
            stages: apps::router::pipeline(&config.pipeline.stages, &options)
                .map_err(Failure::other)?,
            rx: Vec::new(),
            tx: (0..interfaces.physical()).map(|_| TxSlot::Absent).collect(),
            host: (0..count).map(|_| TxSlot::Absent).collect(),
            on_drop: on_drop.take(),
        });
    }
    let counters = ports.into_iter().map(|port| place(port, &mut workers)).collect();
    let engine = Engine::start(EngineSpec {
        workers,
        layout: Layout::new(RouterColumns::COLUMNS, 1),
        depot,
        chunk_packets: config.engine.chunk,
        chunks: if simulated(config).is_some() { 64 } else { 8 },
        simulated: simulated(config),
        packet_time: plan.offline,
        until_finished: plan.offline,
        lossless: plan.offline,
        on_error: plan.on_error,
        on_device_error: Box::new(|error: &DeviceError| {
            tracing::warn!(%error, "device: its jobs are done on the CPU");
        }),
    })
    .map_err(Failure::other)?;
    Ok(DataPath { engine, ports: counters, router })
}

/// Gives each queue of a port to a worker. A worker without a queue of its own sends by the ring to
/// one that has; a port with fewer queues than workers is spread.
fn place(port: PortIo, workers: &mut [WorkerSpec<FibVersions>]) -> PortCounters {
    let number = usize::from(port.number);
    let spread = (!port.twin && port.queues.len() < workers.len() && workers.len() > 1)
        .then_some(packet::flow::flow_hash_of_frame as engine::SpreadHash);
    // Ports with one queue each are dealt out in turn, so that no worker owns them all.
    let first = if port.twin || port.queues.len() > 1 { 0 } else { number };
    let mut counters = Vec::new();
    for (q, (rx, tx)) in port.queues.into_iter().enumerate() {
        let owner = (first + q) % workers.len();
        let (rx_counters, tx_counters) = (Arc::default(), Arc::default());
        if let Some(queue) = rx {
            workers[owner].rx.push(RxSlot {
                port: if port.stamps { chunk::PORT_NONE } else { port.number },
                mark: if port.twin { MARK_FROM_HOST } else { 0 },
                queue,
                spread,
                counters: Arc::clone(&rx_counters),
            });
        }
        if let Some(queue) = tx {
            let own = TxSlot::Own(queue, Arc::clone(&tx_counters));
            let slots = |w: &mut WorkerSpec<FibVersions>, slot| {
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
    PortCounters { number: port.number, twin: port.twin, queues: counters }
}

fn simulated(config: &Config) -> Option<SimulatedSpec> {
    let engine = &config.engine;
    match engine.backend {
        config::EngineBackend::Cpu => None,
        config::EngineBackend::Sim => Some(SimulatedSpec {
            slots: engine.jobs_in_flight,
            rows: 8192,
            cost: Cost { launch: engine.sim.launch, row: engine.sim.packet },
            faults: FaultPlan::default(),
            policy: Policy::Device,
        }),
    }
}

/// The path of a file that a configuration embedded in the program names.
pub(crate) fn is_readable(path: &Path) -> bool {
    std::fs::metadata(path).is_ok()
}

/// A MAC as the configuration writes it.
pub(crate) fn mac_text(mac: [u8; 6]) -> String {
    MacAddr(mac).to_string()
}
