//! What a configuration file says, as plain owned values with every default filled in.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use lookup::bridge::{PortMode, StormLimits};
use packet::MacAddr;
use packet::ndn::NameBuf;

use super::next_hop::NextHop;
use super::stages::Application;
use crate::firewall::{Action, Conditions, Rule};

/// A checked configuration. Names resolve, ranges hold, defaults are filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The pipeline that `mode` chose: a shipped one or one of `pipelines`.
    pub pipeline: Pipeline,
    /// `[system]`.
    pub system: System,
    /// `[port.NAME]`, physical ports and VLAN subinterfaces, in the file's order.
    pub ports: Vec<Port>,
    /// `[router]`.
    pub router: Router,
    /// `[[route]]`, in the file's order.
    pub routes: Vec<Route>,
    /// `[[routes]]`, in the file's order.
    pub route_files: Vec<RouteFile>,
    /// `[[neighbour]]`, in the file's order.
    pub neighbours: Vec<Neighbour>,
    /// `[switch]`.
    pub switch: Switch,
    /// `[[station]]`, in the file's order.
    pub stations: Vec<Station>,
    /// `[ndn]`.
    pub ndn: Ndn,
    /// `[ndn.face.NAME]`, in the file's order.
    pub faces: Vec<Face>,
    /// `[[name]]`, in the file's order.
    pub names: Vec<NameRoute>,
    /// `[[names]]`, in the file's order.
    pub name_files: Vec<PathBuf>,
    /// `[firewall]`.
    pub firewall: Firewall,
    /// `[[rule]]`, in the file's order: the first is the best.
    pub rules: Vec<RuleEntry>,
    /// `[engine]`.
    pub engine: Engine,
    /// `[pipeline.NAME]`, in the file's order, chosen or not.
    pub pipelines: Vec<Pipeline>,
    /// By stage of `pipeline`: the line that puts it there, from 1; for a shipped pipeline that of `mode`, for a
    /// firewall that was put in that of `[firewall]` or of the first `[[rule]]`. `None`: no line does, the pipeline is
    /// the default.
    pub stage_lines: Vec<Option<usize>>,
}

impl Config {
    /// The port of that name.
    pub fn port(&self, name: &str) -> Option<&Port> {
        self.ports.iter().find(|port| port.name == name)
    }

    /// The face of that name.
    pub fn face(&self, name: &str) -> Option<&Face> {
        self.faces.iter().find(|face| face.name == name)
    }

    /// All rules in order, those of files among them.
    pub fn rule_list(&self) -> impl Iterator<Item = (RuleName<'_>, &Conditions, &Action)> {
        rule_list(&self.rules)
    }

    /// Ports with queues of their own, in the file's order; the first is the default input of
    /// captures.
    pub fn physical_ports(&self) -> impl Iterator<Item = (&Port, &Physical)> {
        self.ports.iter().filter_map(|port| match &port.kind {
            PortKind::Physical(physical) => Some((port, physical)),
            PortKind::Vlan { .. } => None,
        })
    }
}

/// Stages in order, under a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pipeline {
    /// What `mode` calls it.
    pub name: String,
    /// The applications of its stages, each once, that of the last stage first; none in one that was refused.
    pub applications: Vec<&'static Application>,
    /// Names of stages, at least one.
    pub stages: Vec<String>,
    /// How long a packet may be under way because chunks wait to fill; `None`: as `[engine]` says.
    pub max_delay: Option<Duration>,
}

impl Pipeline {
    /// The application of its last stage, which says what becomes of packets.
    ///
    /// # Panics
    /// In one that [`super::parse`] refused.
    pub fn main(&self) -> &'static Application {
        self.applications.first().expect("a pipeline that was taken")
    }

    /// Whether one of its stages belongs to this application.
    pub fn uses(&self, application: &str) -> bool {
        self.applications.iter().any(|own| own.name == application)
    }

    /// Whether it has this stage.
    pub fn has(&self, stage: &str) -> bool {
        self.stages.iter().any(|own| own == stage)
    }
}

/// `[system]`: threads, memory, and the doors to the outside.
#[derive(Debug, Clone, PartialEq)]
pub struct System {
    /// Worker threads.
    pub workers: usize,
    /// Whether the file says how many. Captures have one worker where it does not.
    pub has_workers: bool,
    /// CPU of each worker; empty: worker `i` goes to the `i`-th CPU that the process may use.
    pub cpus: Vec<usize>,
    /// Cells (2,048 bytes each) in each worker's pool.
    pub cells: usize,
    /// Pages behind cells and tables.
    pub huge_pages: HugePages,
    /// What is logged.
    pub log: LogLevel,
    /// How it is written.
    pub log_format: LogFormat,
    /// Path of the control socket.
    pub socket: PathBuf,
    /// Where Prometheus text is served; `None`: nowhere.
    pub metrics: Option<SocketAddr>,
}

/// `system.huge_pages`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HugePages {
    /// `madvise`: the kernel gives 2 MB pages where it can.
    Auto,
    /// 4 KB pages.
    Off,
    /// Reserved 2 MB pages (`hugetlbfs`) first, else as `Auto`.
    Try,
}

/// `system.log`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names of the levels say it")]
pub enum LogLevel {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// `system.log_format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object a line.
    Json,
}

/// `[port.NAME]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Port {
    /// The name in routes, tables and counters.
    pub name: String,
    /// Where its packets come from.
    pub kind: PortKind,
    /// Longest layer-3 packet in bytes; `None`: as the interface says (a subinterface: as its
    /// parent).
    pub mtu: Option<u32>,
    /// `None`: as the interface says, or derived from the name where there is none.
    pub mac: Option<MacAddr>,
    /// The router's addresses here, each with the length of its subnet; host bits kept.
    pub addresses: Vec<IpNet>,
    /// Reverse-path check of sources.
    pub rpf: Rpf,
    /// The TAP twin's name; `None`: no twin.
    pub twin: Option<String>,
    /// As a port of a switch.
    pub bridging: Bridging,
}

/// What a port of a switch carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bridging {
    /// `access`, or `trunk` and `native`.
    pub mode: PortMode,
    /// Whether stations are learned here.
    pub learning: bool,
    /// `storm`.
    pub storm: StormLimits,
}

/// Queues of its own, or a tag on another port.
#[derive(Debug, Clone, PartialEq)]
pub enum PortKind {
    /// Has queues.
    Physical(Physical),
    /// A VLAN subinterface.
    Vlan {
        /// The physical port that carries it.
        parent: String,
        /// Its tags.
        tag: VlanTag,
    },
}

/// The tags that make a frame belong to a subinterface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VlanTag {
    /// One 802.1Q tag.
    Single(u16),
    /// QinQ: an outer and an inner tag.
    Double(u16, u16),
}

/// How a physical port does its I/O.
#[derive(Debug, Clone, PartialEq)]
pub struct Physical {
    /// The kernel's name of the interface (`backend = "tap"`: of the TAP device); the port's own
    /// name where the file names none. Unused by `memory` and `pcap`.
    pub interface: String,
    /// Back end.
    pub backend: Backend,
    /// Where the XDP program is attached.
    pub xdp: XdpMode,
    /// AF_XDP without copies.
    pub zero_copy: ZeroCopy,
    /// Receive queues; `None`: as many as the interface and the workers allow.
    pub queues: Option<usize>,
    /// Receive frames for other stations too.
    pub promiscuous: bool,
    /// `backend = "pcap"`: the capture that is read.
    pub read: Option<PathBuf>,
    /// `backend = "pcap"`: the capture that is written.
    pub write: Option<PathBuf>,
    /// Test middleware.
    pub fault: Option<Fault>,
}

/// `port.backend`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// AF_XDP where the interface does it natively, else AF_PACKET.
    Auto,
    /// TPACKET_V3.
    AfPacket,
    /// AF_XDP sockets.
    AfXdp,
    /// In-process rings.
    Memory,
    /// A TAP device.
    Tap,
    /// Capture files.
    Pcap,
}

/// `port.xdp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XdpMode {
    /// Native, else SKB.
    Auto,
    /// In the driver.
    Native,
    /// In the stack (generic).
    Skb,
}

/// `port.zero_copy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZeroCopy {
    /// Where the driver has it.
    Auto,
    /// Or fail.
    On,
    /// Copy.
    Off,
}

/// Reverse-path check (RFC 3704).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rpf {
    /// None.
    Off,
    /// The route to the source leaves by the port that received.
    Strict,
    /// There is a route to the source.
    Loose,
}

/// Seeded faults on receive. Rates are probabilities per frame, 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fault {
    /// Frames lost.
    pub loss: f64,
    /// Frames doubled.
    pub duplicate: f64,
    /// Frames swapped with a later one.
    pub reorder: f64,
    /// Frames with one bit flipped.
    pub corrupt: f64,
    /// Of the pseudo-random sequence.
    pub seed: u64,
}

/// `[router]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Router {
    /// Mirror the kernel's links, addresses, neighbours, routes and next-hop objects.
    pub kernel: bool,
    /// TTL and hop limit of packets the router makes.
    pub ttl: u8,
    /// Fragment IPv4 packets that are too long and may be fragmented.
    pub fragment: bool,
    /// ICMP and ICMPv6 errors per second, over all ports; 0: none.
    pub icmp_rate: u32,
    /// ICMP errors that may leave at once.
    pub icmp_burst: u32,
    /// Packets that wait for one unresolved neighbour.
    pub arp_queue_packets: usize,
    /// Packets that wait for unresolved neighbours, per worker.
    pub arp_queue_total_packets: usize,
    /// Neighbours kept.
    pub neighbours_max: usize,
    /// A neighbour is asked again when it was confirmed this long ago.
    pub neighbour_reachable: Duration,
    /// Time between two requests.
    pub neighbour_retry: Duration,
    /// Requests without an answer after which a neighbour has failed.
    pub neighbour_attempts: u32,
    /// What holds the IPv4 routes.
    pub table_v4: TableV4,
    /// What holds the IPv6 routes.
    pub table_v6: TableV6,
}

/// `router.table_v4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableV4 {
    /// The quickest.
    Auto,
    /// DIR-24-8.
    Dir24_8,
    /// Poptrie.
    Poptrie,
}

/// `router.table_v6`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableV6 {
    /// The quickest.
    Auto,
    /// Binary search on prefix lengths.
    Bspl,
    /// A multibit trie.
    Mtrie6,
}

/// `[switch]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Switch {
    /// Stations kept, static ones among them.
    pub stations: u32,
    /// A station that was not seen for so long is forgotten; zero: none is.
    pub ageing: Duration,
}

/// `[[station]]`: a station that is known from the start, and does not move.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Station {
    /// Name of the port.
    pub port: String,
    /// Its VLAN; `None`: that of frames without a tag at the port.
    pub vlan: Option<u16>,
    /// Its address.
    pub mac: MacAddr,
}

/// `[ndn]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ndn {
    /// Prefixes that may be kept.
    pub names: usize,
    /// Pending Interests of each worker.
    pub pit_entries: u32,
    /// The longest lifetime that an Interest is granted.
    pub lifetime_max: Duration,
    /// An Interest without a route goes back as a Nack.
    pub nack: bool,
}

/// `[ndn.face.NAME]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Face {
    /// The name in routes and tables.
    pub name: String,
    /// Name of the port.
    pub port: String,
    /// What its frames are.
    pub link: FaceLink,
}

/// The frames of a face.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum FaceLink {
    /// NDN packets in Ethernet frames.
    Ethernet {
        /// The neighbour, or the group of all forwarders.
        mac: MacAddr,
    },
    /// NDN packets in UDP datagrams.
    Udp {
        /// Our address, one of the port's, and our UDP port.
        local: SocketAddr,
        /// The neighbour's, of the same family.
        remote: SocketAddr,
        /// Who takes datagrams to the neighbour; `None`: the neighbour is on the link.
        gateway: Option<IpAddr>,
        /// The MAC of the gateway or the neighbour; `None`: it is asked for.
        mac: Option<MacAddr>,
    },
}

/// `02:00:5e:10:00:07` or `192.0.2.1:6363 - 192.0.2.2:6363`.
impl std::fmt::Display for FaceLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ethernet { mac } => write!(f, "{mac}"),
            Self::Udp { local, remote, gateway, mac } => {
                write!(f, "{local} - {remote}")?;
                gateway.map_or(Ok(()), |gateway| write!(f, " by {gateway}"))?;
                mac.map_or(Ok(()), |mac| write!(f, " at {mac}"))
            }
        }
    }
}

/// `[[name]]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NameRoute {
    /// What names begin with; no components: all names.
    pub prefix: NameBuf,
    /// Names of faces, best first.
    pub faces: Vec<String>,
}

/// `[[route]]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Route {
    /// No host bits set.
    pub prefix: IpNet,
    /// Where to.
    pub next_hop: NextHop,
    /// Among routes of the same prefix the smallest wins.
    pub metric: u32,
}

/// `[[routes]]`: a file with a prefix (and perhaps a next hop) a line.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RouteFile {
    /// Relative paths start at the configuration's folder once [`super::load`] read it.
    pub file: PathBuf,
    /// Who gets a prefix.
    pub next_hops: FileNextHops,
    /// Of all its routes.
    pub metric: u32,
}

/// Next hops of a routes file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum FileNextHops {
    /// The file's own tokens, in [`NextHop`]'s text form.
    Tokens,
    /// One of these by hash of the prefix ([`FileNextHops::get`]). An empty family: its prefixes
    /// are skipped and counted.
    Spread {
        /// For IPv4 prefixes.
        v4: Vec<NextHop>,
        /// For IPv6 prefixes.
        v6: Vec<NextHop>,
    },
}

/// `[[neighbour]]`: a static entry.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Neighbour {
    /// Name of the port.
    pub port: String,
    /// Its address.
    pub address: IpAddr,
    /// Its MAC.
    pub mac: MacAddr,
}

/// `[firewall]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Firewall {
    /// The file has the section, or a rule.
    pub is_on: bool,
    /// For packets that no rule matches.
    pub default: Action,
    /// The structure that finds the rule, by its name in `classify::algorithms`; `auto`: the best one.
    pub algorithm: String,
    /// ICMP errors a second of a switch, for packets that it rejects; 0: none.
    pub icmp_rate: u32,
    /// How many of them may leave at once.
    pub icmp_burst: u32,
}

/// `[[rule]]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RuleEntry {
    /// A rule.
    One(Rule),
    /// Many of one action.
    File(RuleFile),
}

/// A ClassBench file in the place of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RuleFile {
    /// Its rules are called so, with `:` and their number from 0 behind it.
    pub name: String,
    /// Relative paths start at the configuration's folder once [`super::load`] read it.
    pub path: PathBuf,
    /// Of all its rules.
    pub action: Action,
    /// Its rules in order; none where nobody looked into the file.
    pub rules: Arc<[Conditions]>,
}

impl RuleEntry {
    /// The name of the rule, or of the file.
    pub fn name(&self) -> &str {
        match self {
            Self::One(rule) => &rule.name,
            Self::File(file) => &file.name,
        }
    }

    /// What it does.
    pub fn action(&self) -> &Action {
        match self {
            Self::One(rule) => &rule.action,
            Self::File(file) => &file.action,
        }
    }

    /// Rules.
    pub fn len(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::File(file) => file.rules.len(),
        }
    }

    /// Whether there is no rule: an empty file.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The name of a rule, which one of a file has only when somebody asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleName<'a> {
    name: &'a str,
    number: Option<usize>,
}

impl std::fmt::Display for RuleName<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.number {
            None => f.write_str(self.name),
            Some(number) => write!(f, "{}:{number}", self.name),
        }
    }
}

/// All rules of entries, in order.
pub fn rule_list(
    entries: &[RuleEntry],
) -> impl Iterator<Item = (RuleName<'_>, &Conditions, &Action)> {
    entries.iter().flat_map(|entry| {
        let (rules, is_file) = match entry {
            RuleEntry::One(rule) => (std::slice::from_ref(&rule.conditions), false),
            RuleEntry::File(file) => (&file.rules[..], true),
        };
        rules.iter().enumerate().map(move |(number, conditions)| {
            let name = RuleName { name: entry.name(), number: is_file.then_some(number) };
            (name, conditions, entry.action())
        })
    })
}

/// `[engine]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Engine {
    /// Who shades; where `devices` names some, it has no meaning.
    pub backend: EngineBackend,
    /// Devices that shade together, in the file's order, each a device and not [`EngineBackend::Auto`] or
    /// [`EngineBackend::Cpu`]; empty: as `backend` says.
    pub devices: Vec<EngineBackend>,
    /// Which chunks go to a device; `None`: `Auto` where the backend is, else `Always`.
    pub offload: Option<Offload>,
    /// Packets in a chunk at most.
    pub chunk: usize,
    /// Longest that a packet waits for its job to fill.
    pub max_delay: Duration,
    /// Jobs in flight on a device.
    pub jobs_in_flight: usize,
    /// A device whose job takes longer is given up.
    pub device_timeout: Duration,
    /// Cost of the simulated device.
    pub sim: SimCost,
}

impl Engine {
    /// Whether some chunks may be shaded on a device that `is_such`.
    pub(super) fn may_use(&self, is_such: impl Fn(EngineBackend) -> bool) -> bool {
        match self.devices.as_slice() {
            [] => is_such(self.backend),
            devices => devices.iter().any(|device| is_such(*device)),
        }
    }
}

/// `engine.backend`, or an element of `engine.devices`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineBackend {
    /// A GPU if one answers its self-test, else the workers.
    Auto,
    /// The workers.
    Cpu,
    /// The simulated device.
    Sim,
    /// The OpenCL device of this number.
    OpenCl(u32),
    /// The CUDA device of this number.
    Cuda(u32),
}

impl std::fmt::Display for EngineBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Sim => f.write_str("sim"),
            Self::OpenCl(number) => write!(f, "opencl:{number}"),
            Self::Cuda(number) => write!(f, "cuda:{number}"),
        }
    }
}

/// `engine.offload`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offload {
    /// By load and measured cost.
    Auto,
    /// Whenever the device has room.
    Always,
}

/// `engine.sim`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SimCost {
    /// Of a launch.
    pub launch: Duration,
    /// Of a packet.
    pub packet: Duration,
}
