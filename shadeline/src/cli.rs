//! The command line.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use ::classify::NO_ID;
use ::classify::tic::Block;
use ::classify::tuple::HashKind;
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use control::config::units::parse_duration;
use device::Backend;
use ipnet::IpNet;

use crate::backend::Backends;

/// A software router and packet-processing system.
///
/// Start with `shadeline demo`; then write a configuration (docs/configuration.md), check it with
/// `shadeline check`, try it on captures with `shadeline run CONFIG -r IN.pcap -w DIR`, and run it.
#[derive(Debug, Parser)]
#[command(name = "shadeline", version, propagate_version = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Forward a shipped capture and a generated load by a shipped routing table
    Demo(DemoArgs),
    /// Run a configuration, live or over captures
    ///
    /// Live it needs CAP_NET_RAW, CAP_NET_ADMIN and, for AF_XDP, CAP_BPF; over captures nothing.
    Run(RunArgs),
    /// Check a configuration: all errors at once, each with its place and what was expected
    Check {
        /// The configuration
        config: PathBuf,
        /// Print the diagnostics as JSON
        #[arg(long)]
        json: bool,
    },
    /// Ask or steer a running router, switch or named-data forwarder
    Ctl(CtlArgs),
    /// List the stages that pipelines are composed of
    ///
    /// With a name: what the stage needs and provides, the columns and kernels that it has, its drop reasons,
    /// configuration keys, `ctl` requests and metrics.
    Stages(StagesArgs),
    /// Show where this machine can shade: memory, self-test, what a launch and a copy cost
    ///
    /// Lists every backend: the CPU, each CUDA and OpenCL device, or why a library has none. Each
    /// device runs every kernel on inputs whose answers are known; then launches and copies in both
    /// directions are measured, which takes some seconds and wants an idle machine. Says which device
    /// `--backend auto` takes. The exit status is 1 when a device fails, 0 also without any device.
    Devices(DevicesArgs),
    /// Look addresses up in a routes file
    Lpm(LpmArgs),
    /// Look names up in a file of name prefixes
    ///
    /// Names are NDN URIs: `/org/example/a%20b/54=%01`. The longest prefix, component by component, wins.
    Names(NamesArgs),
    /// Classify headers by a rule file: ClassBench's, or one over any fields
    ///
    /// The first rule of a file that matches a header is the best one. Prints what each structure costs to
    /// build, takes of memory, and classifies in a second.
    Classify(ClassifyArgs),
    /// Generate traffic, rules and headers
    #[command(subcommand)]
    Gen(GenCommand),
    /// Measure loss, throughput and latency through a device under test
    ///
    /// By default at 10 kpps for 10 s; with --max-loss from the highest rate on, 10 s a trial. Packets
    /// are numbered over all flows: those that overtake packets of another flow count as reordered,
    /// too. For one flow give --src, --dst, --sport and --dport a single value each.
    Measure(MeasureArgs),
    /// Run a benchmark
    Bench(bench::Args),
    /// List the device programs of this build, with the PTX that it brings
    #[command(hide = true)]
    Programs {
        /// Compile them into this file instead
        #[arg(long, value_name = "FILE")]
        pack: Option<PathBuf>,
    },
    /// Print the shell's completions
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the man pages into a folder
    Man {
        /// The folder, made if need be
        folder: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct StagesArgs {
    /// One stage, with all that it declares
    pub(crate) name: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Print the report as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Where to shade: auto, cpu, sim, opencl, opencl:N, cuda or cuda:N
    #[arg(long, default_value = "cpu", value_name = "BACKEND")]
    pub(crate) backend: Backend,
    /// Packets of the generated load
    #[arg(long, default_value_t = 4_000_000, value_name = "N")]
    pub(crate) packets: u64,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The configuration
    pub(crate) config: PathBuf,
    /// Read packets from a capture, or from those in a folder and its folders, into PORT (by default
    /// the first)
    #[arg(short = 'r', long = "read", value_name = "[PORT=]IN", requires = "write")]
    pub(crate) read: Vec<String>,
    /// Write one capture per output port, dropped.pcapng, dumped.pcapng where packets are dumped, and stats.json into
    /// this folder
    #[arg(short = 'w', long = "write", value_name = "DIR", requires = "read")]
    pub(crate) write: Option<PathBuf>,
    /// Where to shade: auto, cpu, sim, opencl, opencl:N, cuda or cuda:N, or several devices with commas between them;
    /// by default as the configuration says
    #[arg(long, value_name = "BACKEND[,BACKEND]...")]
    pub(crate) backend: Option<Backends>,
    /// Stop after this time (live)
    #[arg(long, value_parser = duration, value_name = "TIME", conflicts_with = "read")]
    pub(crate) duration: Option<Duration>,
    /// Print the totals as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CtlArgs {
    /// The control socket of the running program
    #[arg(long, global = true, default_value = control::config::SOCKET, value_name = "PATH")]
    pub(crate) socket: PathBuf,
    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: CtlCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CtlCommand {
    /// Print a table
    Show {
        /// Which
        what: ShowWhat,
    },
    /// Change or look up a route
    #[command(subcommand)]
    Route(RouteCommand),
    /// Change or look up a route for names
    #[command(subcommand)]
    Name(NameCommand),
    /// Show or change the rules of the firewall
    #[command(subcommand)]
    Rule(RuleCommand),
    /// Start counters at zero, or forget learned stations
    Clear {
        /// What to clear
        what: ClearWhat,
        /// Only stations of this port
        #[arg(long, value_name = "PORT")]
        port: Option<String>,
        /// Only stations of this VLAN
        #[arg(long, value_name = "VLAN", value_parser = clap::value_parser!(u16).range(1..=4094))]
        vlan: Option<u16>,
    },
    /// Apply the changed configuration file without losing a packet
    Reload,
    /// Follow some packets, stage by stage
    ///
    /// With --json an array of steps a line, one line for each packet.
    Trace {
        /// How many packets
        #[arg(short = 'c', long, default_value_t = 5)]
        count: u32,
        /// Give up after this time
        #[arg(long, value_parser = duration, value_name = "TIME", default_value = "10s")]
        duration: Duration,
        /// Which packets, such as `tcp and port 80`
        filter: Vec<String>,
    },
    /// Copy packets into a capture
    Capture {
        /// A port, a stage, `drops`, or `dumps`: the packets that stages give to captures and nothing else
        #[arg(value_name = "PORT|STAGE|drops|dumps")]
        at: String,
        /// The capture (pcapng) to write
        #[arg(short = 'w', long, value_name = "FILE")]
        write: PathBuf,
        /// End after so many packets
        #[arg(short = 'c', long)]
        count: Option<u64>,
        /// End after this time
        #[arg(long, value_parser = duration, value_name = "TIME")]
        duration: Option<Duration>,
        /// Which packets, such as `tcp and port 80`
        filter: Vec<String>,
    },
    /// Drain and end the router
    Stop,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ShowWhat {
    Interfaces,
    Queues,
    Routes,
    Neighbours,
    /// Stations of a switch
    Macs,
    /// Ways to neighbours of a named-data forwarder
    Faces,
    /// Routes for names of a named-data forwarder
    Names,
    Stages,
    Drops,
    Runtime,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ClearWhat {
    Counters,
    /// Stations that a switch learned
    Macs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RouteCommand {
    /// Add a route
    Add(RouteArgs),
    /// Add a route or change the one there is
    Replace(RouteArgs),
    /// Remove a route that was added here
    Del {
        /// Its prefix
        #[arg(value_parser = prefix)]
        prefix: IpNet,
    },
    /// Which route an address takes
    Get {
        /// The address
        address: IpAddr,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum RuleCommand {
    /// Add a rule, behind all others unless said otherwise
    Add {
        #[command(flatten)]
        rule: RuleArgs,
        /// Right before this rule
        #[arg(long, value_name = "RULE", conflicts_with_all = ["after", "first"])]
        before: Option<String>,
        /// Right behind this rule
        #[arg(long, value_name = "RULE", conflicts_with = "first")]
        after: Option<String>,
        /// Before all others
        #[arg(long)]
        first: bool,
    },
    /// Remove a rule
    Del {
        /// Its name
        name: String,
    },
    /// Change a rule in its place, or with --file all rules at once
    Replace {
        #[command(flatten)]
        rule: RuleArgs,
        /// Make the rules those of this file, at once: `[[rule]]` entries, or a ClassBench file with --action for all
        #[arg(long, value_name = "FILE", conflicts_with = "name")]
        file: Option<PathBuf>,
    },
    /// Print the rules in order, with their counters
    Show {
        /// Only this one; `default` for what no rule matches
        name: Option<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RuleArgs {
    /// Its name
    pub(crate) name: Option<String>,
    /// What it does: accept, drop, reject or `send PORT`, before it `mirror PORT` and `mark DSCP`, joined by `,`
    #[arg(long, value_name = "ACTION")]
    pub(crate) action: Option<control::firewall::Action>,
    /// Packets that came in by this interface
    #[arg(long = "in", value_name = "PORT")]
    pub(crate) interface: Option<String>,
    /// From this address or prefix
    #[arg(long, value_parser = net, value_name = "PREFIX")]
    pub(crate) src: Option<IpNet>,
    /// To this address or prefix
    #[arg(long, value_parser = net, value_name = "PREFIX")]
    pub(crate) dst: Option<IpNet>,
    /// Of this protocol, by name or number
    #[arg(long)]
    pub(crate) proto: Option<control::firewall::Protocol>,
    /// From this port or range, such as 1024-65535
    #[arg(long, value_name = "PORTS")]
    pub(crate) sport: Option<control::firewall::Ports>,
    /// To this port or range
    #[arg(long, value_name = "PORTS")]
    pub(crate) dport: Option<control::firewall::Ports>,
    /// With these TCP flags, such as syn/syn,ack
    #[arg(long, value_name = "SET/OF")]
    pub(crate) tcp_flags: Option<control::firewall::TcpFlags>,
    /// Of this type of ICMP
    #[arg(long, value_name = "N")]
    pub(crate) icmp_type: Option<u8>,
    /// Of this code beside the type
    #[arg(long, value_name = "N")]
    pub(crate) icmp_code: Option<u8>,
    /// Fragments alone, or none
    #[arg(long, value_name = "true|false")]
    pub(crate) fragment: Option<bool>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NameCommand {
    /// Add a route
    Add {
        /// What names begin with, such as `/org/example`
        prefix: String,
        /// Names of faces joined by `,`, best first
        #[arg(value_delimiter = ',', required = true, value_name = "FACE[,FACE]")]
        faces: Vec<String>,
    },
    /// Remove a route that was added here
    Del {
        /// Its prefix
        prefix: String,
    },
    /// Which route an Interest for a name takes
    Get {
        /// The name
        name: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RouteArgs {
    /// Its prefix
    #[arg(value_parser = prefix)]
    pub(crate) prefix: IpNet,
    /// An address, `ADDRESS%PORT`, a port, several joined by `,`, `blackhole` or `unreachable`
    pub(crate) next_hop: control::config::NextHop,
}

#[derive(Debug, Args)]
pub(crate) struct DevicesArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Measure nothing
    #[arg(long)]
    pub(crate) quick: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LpmArgs {
    /// `PREFIX NEXTHOP` a line; either family, `#` and `;` comments, gzip and xz read as they are
    #[arg(long, value_name = "FILE")]
    pub(crate) routes: PathBuf,
    /// One address a line; `#` and `;` comments and blank lines have no result; gzip and xz read as they are
    #[arg(long, value_name = "FILE")]
    pub(crate) addresses: PathBuf,
    /// Written: one next hop or `-` a line, one for each address
    #[arg(long, value_name = "FILE")]
    pub(crate) results: PathBuf,
    /// The table; one of one family leaves the other to `auto`
    #[arg(long, value_enum, default_value_t = Algorithm::Auto)]
    pub(crate) algorithm: Algorithm,
    /// Where to look up: auto, cpu, opencl, opencl:N, cuda or cuda:N
    #[arg(long, default_value = "cpu", value_name = "BACKEND")]
    pub(crate) backend: Backend,
    /// Print the figures as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct NamesArgs {
    /// `NAME NEXTHOP` a line; words that begin with `#` or `;` begin a comment, gzip and xz read as they are
    #[arg(long, value_name = "FILE")]
    pub(crate) routes: PathBuf,
    /// One name a line; comments and blank lines have no result; gzip and xz read as they are
    #[arg(long, value_name = "FILE")]
    pub(crate) names: PathBuf,
    /// Written: one next hop or `-` a line, one for each name
    #[arg(long, value_name = "FILE")]
    pub(crate) results: PathBuf,
    /// Print the figures as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ClassifyArgs {
    /// The rules: ClassBench's format, or a first line `fields NAME:BITS:KIND …`; gzip and xz read as they are
    #[arg(long, value_name = "FILE")]
    pub(crate) rules: PathBuf,
    /// The headers: sip dip sport dport proto, in decimal, and more columns; gzip and xz read as they are
    #[arg(long, value_name = "FILE", required_unless_present_any = ["explain", "check"])]
    pub(crate) trace: Option<PathBuf>,
    /// The structure; `all` runs every one and compares the answers
    #[arg(long, value_parser = classify_algorithm(), default_value = crate::classify::ALL, value_name = "NAME")]
    pub(crate) algorithm: String,
    /// The hash of `tuple` and `bloom`
    #[arg(long, value_enum, default_value_t = TupleHash::Universal, value_name = "HASH")]
    pub(crate) hash: TupleHash,
    /// Bytes of a block of the instructions of `tic`: a cache line, or half of one
    #[arg(long, value_name = "32|64", default_value = "64", value_parser = tic_block)]
    pub(crate) tic_block: Block,
    /// Written: the index of the best rule, from 0, or -1 a line, one for each header
    #[arg(long, value_name = "FILE", requires = "trace")]
    pub(crate) matches: Option<PathBuf>,
    /// Say which rules match this header, and which structure finds them how
    ///
    /// One value for each field: `SIP DIP SPORT DPORT PROTO`, such as `10.0.0.1 192.0.2.1 1024 80 tcp`.
    #[arg(long, value_name = "TUPLE", conflicts_with_all = ["trace", "matches"])]
    pub(crate) explain: Option<String>,
    /// Warn of rules that never count, because a better one matches all that they do
    #[arg(long)]
    pub(crate) check: bool,
    /// Where to classify, beside the CPU: auto, cpu, opencl, opencl:N, cuda or cuda:N
    #[arg(long, default_value = "cpu", value_name = "BACKEND", requires = "trace")]
    pub(crate) backend: Backend,
    /// Print the figures as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TupleHash {
    /// Multiply-shift, strongly universal
    Universal,
    /// Murmur3 x86_32, beside it
    Murmur3,
}

impl TupleHash {
    pub(crate) fn kind(self) -> HashKind {
        match self {
            Self::Universal => HashKind::Universal,
            Self::Murmur3 => HashKind::Murmur3,
        }
    }
}

fn tic_block(text: &str) -> Result<Block, String> {
    let block = text.parse().ok().and_then(Block::of_bytes);
    block.ok_or_else(|| "a block has 32 or 64 bytes".to_owned())
}

/// The names of the structures, and `all`.
fn classify_algorithm() -> PossibleValuesParser {
    let names = ::classify::algorithms::ALGORITHMS.iter();
    let names = names.map(|algorithm| PossibleValue::new(algorithm.name).help(algorithm.about));
    let all = PossibleValue::new(crate::classify::ALL).help("All of them, side by side");
    PossibleValuesParser::new(names.chain([all]))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Algorithm {
    /// The quickest for each family
    Auto,
    /// DIR-24-8 (IPv4)
    #[value(name = "dir24-8")]
    Dir24_8,
    /// Poptrie, compressed (IPv4)
    Poptrie,
    /// Binary search on prefix lengths (IPv6)
    Bspl,
    /// Multibit trie with buckets (IPv6)
    Mtrie6,
    /// The plain trie (both families)
    Trie,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GenCommand {
    /// Packets of any kind, to an interface, a file or straight into the engine
    Packets(Box<GenPacketsArgs>),
    /// Rules: so many classes of them, or with the structure of a ClassBench parameter file
    ///
    /// Writes ClassBench's format; for 12 fields a file whose first line names them. The same options give the
    /// same bytes.
    Rules(GenRulesArgs),
    /// Headers drawn from the rules of a file, for `shadeline classify`
    ///
    /// A header is a random corner of a rule, as in ClassBench's traces; the last column is that rule's index.
    Trace(GenTraceArgs),
}

#[derive(Debug, Args)]
pub(crate) struct GenRulesArgs {
    /// Rules
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) rules: usize,
    /// Written: the rules; `-` is standard output
    #[arg(short = 'w', long, value_name = "FILE")]
    pub(crate) write: PathBuf,
    /// A parameter file of ClassBench
    #[arg(long, value_name = "FILE", conflicts_with_all = ["fields", "classes", "full_classes", "overlap", "distribution"])]
    pub(crate) parameters: Option<PathBuf>,
    /// With a parameter file: bits that prefix lengths move at most
    #[arg(
        long,
        value_name = "BITS",
        default_value_t = 0,
        requires = "parameters",
        value_parser = clap::value_parser!(u8).range(0..=32)
    )]
    pub(crate) smoothing: u8,
    /// With a parameter file: above 0 shorter prefixes than in the file, below longer ones; -1 to 1
    #[arg(
        long,
        value_name = "S",
        default_value_t = 0.0,
        requires = "parameters",
        value_parser = scope,
        allow_negative_numbers = true
    )]
    pub(crate) address_scope: f64,
    /// With a parameter file: above 0 wider ports than in the file, below narrower ones; -1 to 1
    #[arg(
        long,
        value_name = "S",
        default_value_t = 0.0,
        requires = "parameters",
        value_parser = scope,
        allow_negative_numbers = true
    )]
    pub(crate) port_scope: f64,
    /// Fields: the IPv4 5-tuple, or the 12 of OpenFlow
    #[arg(long, value_name = "5|12", default_value = "5", value_parser = fields)]
    pub(crate) fields: u8,
    /// Classes: masks that rules have; by default 16, or as many as rules where these are fewer
    #[arg(long, value_name = "C", value_parser = count)]
    pub(crate) classes: Option<usize>,
    /// Classes that share all rules but one of each other class; by default all
    #[arg(long, value_name = "F", value_parser = count)]
    pub(crate) full_classes: Option<usize>,
    /// Classes that match a header of the first rules (`gen trace --first`)
    #[arg(long, value_name = "C_m", default_value_t = 1, value_parser = count)]
    pub(crate) overlap: usize,
    /// How rules are spread over classes
    #[arg(long, value_enum, default_value_t = Spread::Full)]
    pub(crate) distribution: Spread,
    /// The seed of all that is random
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Print the totals as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Spread {
    /// Full classes, and classes of one rule
    Full,
    /// The n-th class has a part of 1/n
    Zipf,
}

#[derive(Debug, Args)]
pub(crate) struct GenTraceArgs {
    /// The rules; gzip and xz read as they are
    #[arg(long, value_name = "FILE")]
    pub(crate) rules: PathBuf,
    /// Headers
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) count: usize,
    /// Written: the headers; `-` is standard output
    #[arg(short = 'w', long, value_name = "FILE")]
    pub(crate) write: PathBuf,
    /// How often a header comes in a row
    #[arg(long, value_enum, default_value_t = TraceSpread::Pareto)]
    pub(crate) distribution: TraceSpread,
    /// With `pareto`: its scale; ClassBench says 0 for no locality, 0.0001 for low, 1 (the default) for high
    #[arg(long, value_name = "B", value_parser = locality, allow_negative_numbers = true)]
    pub(crate) locality: Option<f64>,
    /// Headers anywhere inside their rules, not at corners
    #[arg(long)]
    pub(crate) inside: bool,
    /// Only from the first N rules
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) first: Option<usize>,
    /// The seed of all that is random
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Print the totals as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TraceSpread {
    /// By a Pareto distribution
    Pareto,
    /// Once
    Uniform,
}

#[derive(Debug, Args)]
pub(crate) struct GenPacketsArgs {
    #[command(flatten)]
    pub(crate) traffic: crate::traffic::TrafficArgs,
    /// Send by this interface (needs CAP_NET_RAW)
    #[arg(long, value_name = "IF", group = "to")]
    pub(crate) interface: Option<String>,
    /// Write this capture: pcap if the name ends in .pcap, else pcapng
    #[arg(short = 'w', long, value_name = "FILE", group = "to")]
    pub(crate) write: Option<PathBuf>,
    /// Feed them to the engine with this configuration, into PORT (by default the first)
    #[arg(long, value_name = "[PORT=]CONFIG", group = "to")]
    pub(crate) engine: Option<String>,
    /// Where the engine shades: auto, cpu, sim, opencl, opencl:N, cuda or cuda:N; by default as the
    /// configuration says
    #[arg(long, value_name = "BACKEND", requires = "engine")]
    pub(crate) backend: Option<Backend>,
    /// Print the totals as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MeasureArgs {
    #[command(flatten)]
    pub(crate) traffic: crate::traffic::TrafficArgs,
    /// Send by this interface
    #[arg(long, value_name = "IF")]
    pub(crate) tx: String,
    /// Receive by this interface
    #[arg(long, value_name = "IF")]
    pub(crate) rx: String,
    /// Search for the highest rate with at most this loss, in percent (RFC 2544)
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub(crate) max_loss: Option<f64>,
    /// End the search when the rate is known to so many percent of the highest
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "1")]
    pub(crate) resolution: f64,
    /// Wait so long for late packets after the last one of a trial (RFC 2544 §23)
    #[arg(long, value_parser = duration, value_name = "TIME", default_value = "2s")]
    pub(crate) wait: Duration,
    /// Print the figures as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A time such as `10s` or `200us`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| "expected a time with its unit, such as 10s or 200us".into())
}

/// An address, or a prefix without host bits.
fn net(text: &str) -> Result<IpNet, String> {
    text.parse::<IpAddr>().map_or_else(|_| prefix(text), |address| Ok(address.into()))
}

/// A prefix without host bits, as the configuration wants it.
fn prefix(text: &str) -> Result<IpNet, String> {
    let form = || "expected a prefix such as 192.0.2.0/24 or 2001:db8::/32".to_owned();
    let (address, length) = text.split_once('/').ok_or_else(form)?;
    let address: IpAddr = address.parse().map_err(|_| form())?;
    let max = if address.is_ipv4() { 32 } else { 128 };
    let length = length.parse().ok().filter(|&length| length <= max);
    let length = length.ok_or_else(|| format!("expected a prefix length of 0 to {max}"))?;
    let net = IpNet::new(address, length).map_err(|_| form())?;
    if net == net.trunc() {
        Ok(net)
    } else {
        Err(format!("bits are set beyond the length, expected {}", net.trunc()))
    }
}

/// 5 or 12 fields.
fn fields(text: &str) -> Result<u8, String> {
    match text {
        "5" => Ok(5),
        "12" => Ok(12),
        _ => Err("expected 5 (the IPv4 5-tuple) or 12 (OpenFlow)".into()),
    }
}

/// The scale of a Pareto distribution.
fn locality(text: &str) -> Result<f64, String> {
    let scale = text.parse::<f64>().ok().filter(|scale| (0.0..=1e6).contains(scale));
    scale.ok_or_else(|| "expected a number of 0 to 1000000".into())
}

/// How many of something: at least one, and rules have ids.
fn count(text: &str) -> Result<usize, String> {
    const MOST: usize = NO_ID as usize - 1;
    let count = text.parse().ok().filter(|count| (1..=MOST).contains(count));
    count.ok_or_else(|| format!("expected a number of 1 to {MOST}"))
}

/// How far rules are made wider or narrower.
fn scope(text: &str) -> Result<f64, String> {
    let scope = text.parse::<f64>().ok().filter(|scope| (-1.0..=1.0).contains(scope));
    scope.ok_or_else(|| "expected a number of -1 to 1".into())
}

/// A share of 0 to 100.
fn percent(text: &str) -> Result<f64, String> {
    let percent = text.trim_end_matches('%').parse::<f64>().ok();
    let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
    percent.ok_or_else(|| "expected a percentage of 0 to 100".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_judged_as_the_configuration_does() {
        assert_eq!(prefix("10.0.0.0/8"), Ok("10.0.0.0/8".parse().unwrap()));
        for (text, expected) in [
            ("38.0.0.1/8", "expected 38.0.0.0/8"),
            ("39.0.0.0/33", "prefix length of 0 to 32"),
            ("2001:db8::/129", "prefix length of 0 to 128"),
            ("2001:db8::1/64", "expected 2001:db8::/64"),
            ("10.0.0.0", "expected a prefix such as"),
            ("ten/8", "expected a prefix such as"),
        ] {
            let error = prefix(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
