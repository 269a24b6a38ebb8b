//! `shadeline bench`: workloads, beside peers where there are any.
//!
//! A benchmark is a list of *cases*; a round runs each of them once, in turn, so that all see the
//! same machine; a row is the median over the rounds. Absolute figures belong to the machine they
//! were measured on; ratios within one run are what can be compared. Answers are checked: a case
//! that computes something wrong fails instead of being quick.

#![forbid(unsafe_code)]

mod against;
mod app_kernels;
mod balance;
mod captures;
mod classify;
pub mod classify_job;
mod crypto;
mod curves;
mod delay;
mod encrypted;
mod flow_kernels;
mod forms;
mod forward;
mod hash;
mod idle;
mod ids;
mod ipsec;
mod l2;
mod l7;
mod limit;
mod limits;
pub mod lookup_job;
mod lpm;
mod names;
mod namespace;
mod nat;
mod ndn;
mod ndn_loop;
mod on_device;
mod openflow;
mod order;
mod paper;
mod patterns;
mod payload;
#[allow(dead_code, unreachable_pub)] // shared with an example of `lookup`
mod peer;
mod plot;
mod regex_kernels;
mod report;
mod shade;
mod streams;
mod svg;
mod switching;
mod tables;
mod tcp;
mod update;
mod veth;

pub use self::classify::{ClassifyArgs, Size as ClassifySize};
pub use self::ipsec::IpsecArgs;
pub use self::openflow::OpenFlowArgs;
pub use ids::IdsArgs;
pub use l7::L7Args;
pub use nat::NatArgs;
pub use on_device::check_backend;
pub use paper::{Figure, PaperArgs};
pub use patterns::PatternsArgs;
pub use report::{Curve, Machine, Report, Row};
pub use shade::{ShadeArgs, ShadeLoad};
pub use streams::StreamsArgs;

use std::path::PathBuf;

/// The most keys, frames, stations, prefixes, names and flows that a run may have.
const KEYS_MAX: usize = 1 << 28;
const STATIONS_MAX: usize = 1 << 27;
const PREFIXES_MAX: usize = 1 << 27;
const NAMES_MAX: usize = 1 << 27;
const FLOWS_MAX: usize = 1 << 27;

/// The arguments of `shadeline bench`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The benchmark
    #[command(subcommand)]
    pub what: What,
    /// Number of rounds; medians need at least five
    #[arg(long, global = true, default_value_t = 5)]
    pub rounds: usize,
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// Compare with this older build of the program, in alternate rounds
    #[arg(long, global = true, value_name = "OLD_BINARY")]
    pub against: Option<PathBuf>,
    /// Write a chart of the results to this SVG file
    #[arg(long, global = true, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}

/// The routing table, of the benchmarks that have one.
#[derive(Debug, Clone, clap::Args)]
pub struct RoutesArg {
    /// Routing table: one prefix per line; may be gzip, xz or zstd
    #[arg(long, value_name = "FILE", default_value = tables::DEFAULT_ROUTES)]
    pub routes: PathBuf,
}

/// The benchmarks.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum What {
    /// Forwarding from memory to memory on one core with the full table, compared with the bare loop
    Forward {
        /// Seconds per case and round
        #[arg(long, default_value_t = 1.0)]
        seconds: f64,
        /// From memory to memory, or between two veth ports (needs root)
        #[arg(long, value_enum, default_value_t = Backend::Memory)]
        backend: Backend,
        /// The routing table
        #[command(flatten)]
        routes: RoutesArg,
    },
    /// IPv4 lookups in the full table, compared with DPDK's rte_fib
    Lpm4 {
        /// Addresses
        #[arg(long, default_value_t = 1 << 22, value_parser = limits::up_to::<KEYS_MAX>)]
        keys: usize,
        /// The routing table
        #[command(flatten)]
        routes: RoutesArg,
    },
    /// IPv6 lookups in 200,000 random routes and in the full table, compared with DPDK's rte_fib6
    Lpm6 {
        /// Addresses
        #[arg(long, default_value_t = 1 << 22, value_parser = limits::up_to::<KEYS_MAX>)]
        keys: usize,
        /// The routing table
        #[command(flatten)]
        routes: RoutesArg,
    },
    /// Plain, grouped, interleaved and hand-written lookups in a toy table; two lookups in one pipeline
    Switching {
        /// Keys per pass
        #[arg(long, default_value_t = 1 << 22, value_parser = limits::up_to::<KEYS_MAX>)]
        keys: usize,
        /// Size of the table in MiB
        #[arg(long, default_value_t = 512, value_name = "MIB")]
        table: usize,
    },
    /// Exact match in a cuckoo table, in all its forms, compared with DPDK's rte_hash
    Hash {
        /// Keys per pass
        #[arg(long, default_value_t = 1 << 23, value_parser = limits::up_to::<KEYS_MAX>)]
        keys: usize,
        /// Size of the table in MiB
        #[arg(long, default_value_t = 512, value_name = "MIB")]
        table: usize,
    },
    /// The whole loop of a layer-2 switch: decode, two lookups, transmit
    L2 {
        /// Frames per pass
        #[arg(long, default_value_t = 1 << 22, value_parser = limits::up_to::<KEYS_MAX>)]
        packets: usize,
        /// Stations in the table
        #[arg(long, default_value_t = 16 << 20, value_parser = limits::up_to::<STATIONS_MAX>)]
        stations: usize,
    },
    /// Packet classification: every structure with ClassBench rule sets, compared with DPDK's rte_acl
    Classify(ClassifyArgs),
    /// Flow tracking and TCP reassembly on one core, compared with libnids; by number of flows; new flows; sweeps
    Streams(StreamsArgs),
    /// Whole programs over one capture: `shadeline streams` with one and two workers, compared with nDPI's ndpiReader
    Captures {
        /// Connections in the capture, 1 MB each
        #[arg(long, default_value_t = 2048, value_parser = limits::up_to::<{ streams::CONNECTIONS_MAX }>)]
        connections: usize,
    },
    /// Application labels of short connections, compared with nDPI's ndpiReader; packets until a label is known
    L7(L7Args),
    /// Intrusion detection with the rules of a folder over real captures, compared with the plain design
    Ids(IdsArgs),
    /// Figures and tables of the papers, on this machine
    Paper(PaperArgs),
    /// Address translation from memory to memory on one core, compared with the router without; new sessions
    Nat(NatArgs),
    /// An OpenFlow switch from memory to memory on one core, by size of its tables; flow changes; a million flows
    #[command(name = "openflow")]
    OpenFlow(OpenFlowArgs),
    /// Thousands of literals in packets: every way to scan, compared with Vectorscan
    Patterns(PatternsArgs),
    /// AES-128-CTR and GCM over batches of packets, compared with `openssl speed` and intel-ipsec-mb
    Crypto,
    /// The IPsec gateway from memory to memory on one core, compared with intel-ipsec-mb doing cipher and HMAC alone
    Ipsec(IpsecArgs),
    /// Random cache lines per second by table size, page size and reads in flight: the limit of every lookup
    Limit,
    /// Longest-prefix match of names: plain, interleaved and as a state machine
    Ndn {
        /// Number of prefixes, including the real names
        #[arg(long, default_value_t = 10_000_000, value_parser = limits::up_to::<PREFIXES_MAX>)]
        prefixes: usize,
        /// Names to look up
        #[arg(long, default_value_t = 1 << 20, value_parser = limits::up_to::<NAMES_MAX>)]
        keys: usize,
        /// Folder with the lists of URLs and domains
        #[arg(long, value_name = "FOLDER", default_value = names::DEFAULT_NAMES)]
        names: PathBuf,
    },
    /// Time until a route change takes effect, under full forwarding load
    Update {
        /// Changes of each kind per round
        #[arg(long, default_value_t = 300)]
        changes: usize,
        /// Device that follows the changes too: auto, opencl, opencl:N, cuda or cuda:N
        #[arg(long, value_name = "BACKEND")]
        backend: Option<device::Backend>,
        /// The routing table
        #[command(flatten)]
        routes: RoutesArg,
    },
    /// Lookups and payload on a device: kernels, copies, overlap, packing, scheduling
    Device {
        /// Device: auto (a GPU if there is one, else the first OpenCL device), opencl, opencl:N, cuda or cuda:N
        #[arg(long, default_value = "auto", value_name = "BACKEND")]
        backend: device::Backend,
        /// Seconds per variant and round
        #[arg(long, default_value_t = 0.5)]
        seconds: f64,
        /// The routing table
        #[command(flatten)]
        routes: RoutesArg,
        /// Folder with rules (`.rules`; gzip, xz and zstd are read), whose regular expressions are searched for
        #[arg(long, value_name = "FOLDER", default_value = "../shared/data/ids/etopen-2017")]
        rules: PathBuf,
    },
    /// Lookups on a device compared with the best form on one core, by batch size: IPv4, IPv6, layer 2, names
    Shade(ShadeArgs),
    /// Choice between CPU and device, in simulated time with configurable costs
    Balance {
        /// Packets per scenario
        #[arg(long, default_value_t = 10_000_000)]
        packets: u64,
    },
    /// CPU use of a router without traffic (needs root)
    Idle {
        /// Seconds per round
        #[arg(long, default_value_t = 3.0)]
        seconds: f64,
    },
    /// One TCP stream over untuned veth pairs, compared with forwarding by Linux (needs root, iperf3)
    Tcp {
        /// Seconds per case and round
        #[arg(long, default_value_t = 5.0)]
        seconds: f64,
    },
    /// The forwarding side of `forward --backend af_packet|af_xdp`
    #[command(hide = true)]
    VethChild {
        /// Which back end
        #[arg(long, value_enum)]
        backend: Backend,
        /// `bare` or `router`
        #[arg(long)]
        case: String,
        /// Seconds of the round
        #[arg(long)]
        seconds: f64,
        /// The routing table
        #[command(flatten)]
        routes: RoutesArg,
    },
    /// Delay of packets through a device, by load, compared with `max_delay`
    Delay {
        /// Device in addition to the simulated one: auto (a GPU if there is one, else the first OpenCL device), opencl,
        /// opencl:N, cuda or cuda:N
        #[arg(long, value_name = "BACKEND")]
        backend: Option<device::Backend>,
        /// Seconds per run
        #[arg(long, default_value_t = 0.5)]
        seconds: f64,
    },
    /// Reordering within a flow with several jobs in flight (expected: none)
    Order {
        /// Packets
        #[arg(long, default_value_t = 2_000_000)]
        packets: u64,
    },
}

/// Where the packets of `bench forward` come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Backend {
    /// Prepared packets.
    Memory,
    /// A veth pair by AF_PACKET.
    AfPacket,
    /// A veth pair by AF_XDP.
    AfXdp,
}

impl Backend {
    fn name(self) -> &'static str {
        match self {
            Backend::Memory => "memory",
            Backend::AfPacket => "af_packet",
            Backend::AfXdp => "af_xdp",
        }
    }
}

/// What a benchmark is given beside its arguments.
#[derive(Clone, Copy)]
pub struct Probes {
    /// Allocations that the process has made so far.
    pub allocations: Option<fn() -> u64>,
}

/// The device programs that benchmarks build, for `cargo xtask dist`.
pub fn programs() -> Vec<device::driver::Program> {
    let mut programs = vec![lookup_job::program(), payload::summing(), payload::sorting()];
    programs.push(paper::scheduling());
    programs.extend(paper::transfers());
    programs.extend(flow_kernels::programs());
    programs.extend(app_kernels::programs());
    programs.push(regex_kernels::program());
    programs.extend(shade::programs());
    programs
}

/// Runs a benchmark and prints its report.
///
/// # Errors
/// What stood in the way, or which answer was wrong.
pub fn run(args: &Args, probes: Probes) -> Result<(), String> {
    if let Some(path) = &args.plot {
        plot::may_draw(path)?;
    }
    let report = match &args.against {
        Some(old) => against::run(old, args)?,
        None => match &args.what {
            What::Forward { seconds, backend: Backend::Memory, routes } => {
                forward::run(args, &routes.routes, *seconds, probes)?
            }
            What::Forward { seconds, backend, routes } => {
                veth::run(args, &routes.routes, *backend, *seconds)?
            }
            What::Lpm4 { keys, routes } => lpm::run4(args, &routes.routes, *keys)?,
            What::Lpm6 { keys, routes } => lpm::run6(args, &routes.routes, *keys)?,
            What::Switching { keys, table } => switching::run(args, *keys, *table)?,
            What::Hash { keys, table } => hash::run(args, *keys, *table)?,
            What::L2 { packets, stations } => l2::run(args, *packets, *stations)?,
            What::Classify(options) => classify::run(args, options)?,
            What::Streams(options) => streams::run(args, options)?,
            What::Captures { connections } => captures::run(args, *connections)?,
            What::L7(options) => l7::run(args, options)?,
            What::Ids(options) => ids::run(args, options)?,
            What::Paper(options) => paper::run(args, options)?,
            What::Nat(options) => nat::run(args, options)?,
            What::OpenFlow(options) => self::openflow::run(args, options)?,
            What::Patterns(options) => patterns::run(args, options)?,
            What::Crypto => crypto::run(args)?,
            What::Ipsec(options) => ipsec::run(args, options)?,
            What::Limit => limit::run(args)?,
            What::Ndn { prefixes, keys, names } => ndn::run(args, names, *prefixes, *keys)?,
            What::Update { changes, backend, routes } => {
                update::run(args, &routes.routes, *changes, *backend)?
            }
            What::Device { backend, seconds, routes, rules } => {
                on_device::run(args, (&routes.routes, rules), *backend, *seconds)?
            }
            What::Shade(options) => shade::run(args, options)?,
            What::Balance { packets } => balance::run(*packets)?,
            What::Idle { seconds } => idle::run(args, *seconds)?,
            What::Tcp { seconds } => tcp::run(args, *seconds)?,
            What::VethChild { backend, case, seconds, routes } => {
                return veth::child(&routes.routes, *backend, case == "bare", *seconds);
            }
            What::Delay { backend, seconds } => delay::run(args, *backend, *seconds)?,
            What::Order { packets } => order::run(*packets)?,
        },
    };
    if report.rows.is_empty() {
        return Err("--only: no case has this in its name".to_owned());
    }
    if args.json {
        let json = serde_json::to_string_pretty(&report).map_err(|e| e.to_string())?;
        print(format_args!("{json}\n"))?;
    } else {
        print(format_args!("{report}"))?;
    }
    // After the figures are out: a disk that is full must not cost them.
    if let Some(path) = &args.plot {
        plot::draw(&report, path)?;
    }
    report.check()
}

/// Prints to standard output.
fn print(text: std::fmt::Arguments<'_>) -> Result<(), String> {
    files::output::print(text)
        .map_err(|error| format!("{}: {}", files::output::STANDARD, files::output::reason(&error)))
}
