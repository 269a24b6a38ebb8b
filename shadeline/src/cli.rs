//! The command line.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use control::config::units::parse_duration;
use ipnet::IpNet;

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
    /// Ask or steer a running router
    Ctl(CtlArgs),
    /// Look addresses up in a routes file
    Lpm(LpmArgs),
    /// Generate traffic
    #[command(subcommand)]
    Gen(GenCommand),
    /// Measure loss, throughput and latency through a device under test
    Measure(MeasureArgs),
    /// Run a benchmark
    Bench(bench::Args),
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
pub(crate) struct DemoArgs {
    /// Print the report as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Packets of the generated load
    #[arg(long, default_value_t = 4_000_000, value_name = "N")]
    pub(crate) packets: u64,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The configuration
    pub(crate) config: PathBuf,
    /// Read packets from a capture or a folder of captures, into PORT (by default the first)
    #[arg(short = 'r', long = "read", value_name = "[PORT=]IN", requires = "write")]
    pub(crate) read: Vec<String>,
    /// Write one capture per output port, dropped.pcapng and stats.json into this folder
    #[arg(short = 'w', long = "write", value_name = "DIR", requires = "read")]
    pub(crate) write: Option<PathBuf>,
    /// Stop after this time (live)
    #[arg(long, value_parser = duration, value_name = "TIME", conflicts_with = "read")]
    pub(crate) duration: Option<Duration>,
    /// Print the totals as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CtlArgs {
    /// The router's control socket
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
    /// Start counters at zero
    Clear {
        /// What to clear
        what: ClearWhat,
    },
    /// Apply the changed configuration file without losing a packet
    Reload,
    /// Follow some packets, stage by stage
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
        /// A port, a stage, or `drops`
        #[arg(value_name = "PORT|STAGE|drops")]
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
    Stages,
    Drops,
    Runtime,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ClearWhat {
    Counters,
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
        prefix: IpNet,
    },
    /// Which route an address takes
    Get {
        /// The address
        address: IpAddr,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RouteArgs {
    /// Its prefix
    pub(crate) prefix: IpNet,
    /// An address, `ADDRESS@PORT`, a port, several joined by `,`, `blackhole` or `unreachable`
    pub(crate) next_hop: control::config::NextHop,
}

#[derive(Debug, Args)]
pub(crate) struct LpmArgs {
    /// `PREFIX NEXTHOP` a line; either family, `#` and `;` comments, gzip read as is
    #[arg(long, value_name = "FILE")]
    pub(crate) routes: PathBuf,
    /// One address a line
    #[arg(long, value_name = "FILE")]
    pub(crate) addresses: PathBuf,
    /// Written: one next hop or `-` a line
    #[arg(long, value_name = "FILE")]
    pub(crate) results: PathBuf,
    /// The table; one of one family leaves the other to `auto`
    #[arg(long, value_enum, default_value_t = Algorithm::Auto)]
    pub(crate) algorithm: Algorithm,
    /// Print the figures as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Algorithm {
    /// The quickest for each family
    Auto,
    /// DIR-24-8 (IPv4)
    #[value(name = "dir24-8")]
    Dir24_8,
    /// Binary search on prefix lengths (IPv6)
    Bspl,
    /// The plain trie (both families)
    Trie,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GenCommand {
    /// Packets of any kind, to an interface, a file or straight into the engine
    Packets(Box<GenPacketsArgs>),
}

#[derive(Debug, Args)]
pub(crate) struct GenPacketsArgs {
    #[command(flatten)]
    pub(crate) traffic: crate::traffic::TrafficArgs,
    /// Send by this interface (needs CAP_NET_RAW)
    #[arg(long, value_name = "IF", group = "to")]
    pub(crate) interface: Option<String>,
    /// Write this capture (pcapng)
    #[arg(short = 'w', long, value_name = "FILE", group = "to")]
    pub(crate) write: Option<PathBuf>,
    /// Feed them to the engine with this configuration, into PORT (by default the first)
    #[arg(long, value_name = "[PORT=]CONFIG", group = "to")]
    pub(crate) engine: Option<String>,
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

/// A share of 0 to 100.
fn percent(text: &str) -> Result<f64, String> {
    let percent = text.trim_end_matches('%').parse::<f64>().ok();
    let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
    percent.ok_or_else(|| "expected a percentage of 0 to 100".into())
}
