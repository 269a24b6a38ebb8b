//! The command line.

pub(crate) mod ctl;
pub(crate) mod words;

use std::path::PathBuf;
use std::time::Duration;

use ::classify::NO_ID;
use ::classify::tic::Block;
use ::classify::tuple::HashKind;
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use control::config::units::parse_duration;
use device::Backend;
use packet::checksum::Checksums;
use packet::tunnel::Kinds;

use crate::backend::Backends;
pub(crate) use ctl::{ClearCommand, CoreCommand, CtlArgs, CtlCommand, FlowsCommand};

/// A software router and packet-processing system.
///
/// Start with `shadeline demo`. Then write a configuration (`shadeline help configuration`), check it with
/// `shadeline check`, try it on captures with `shadeline run CONFIG -r IN.pcap -w DIR`, and run it.
#[derive(Debug, Parser)]
#[command(
    name = "shadeline",
    version,
    propagate_version = true,
    max_term_width = 100,
    after_help = "`shadeline help TOPIC` shows a page of the documentation; `shadeline help` lists them."
)]
pub(crate) struct Cli {
    /// Whether messages, help and logs have colours; auto: on a terminal, unless NO_COLOR is set
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        help_heading = "Global options"
    )]
    pub(crate) color: clap::ColorChoice,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Forward a shipped capture and generated packets with a shipped routing table
    Demo(DemoArgs),
    /// Run a configuration, live or over captures
    ///
    /// Live runs need CAP_NET_RAW, CAP_NET_ADMIN and, for AF_XDP, CAP_BPF and CAP_IPC_LOCK. Capture runs need no privileges.
    Run(RunArgs),
    /// Check a configuration and print all errors, each with its place and the expected value
    ///
    /// Files of routes and rules that it names are read, too. An interface that this machine does not have is a warning,
    /// because runs over captures need none.
    Check(CheckArgs),
    /// Restore the settings of interfaces after an instance was killed
    ///
    /// An instance changes settings of its interfaces (IPv6, offloads, number of queues) and restores them when it ends. If
    /// it was killed, this command restores them in this network namespace; so does the next instance at its end.
    /// Interfaces that a running instance uses are left alone.
    Restore,
    /// Query or control a running instance
    ///
    /// Without a command, it is a shell: Tab completes, `?` lists what may come next. If standard input is not a terminal,
    /// it runs the commands of a script, one per line. Commands may be abbreviated, and the words of ip-route(8) work.
    Ctl(CtlArgs),
    /// List the stages that a pipeline can use
    ///
    /// With a name, print what the stage needs and provides, its columns, kernels, drop reasons, configuration keys, `ctl`
    /// requests and metrics.
    Stages(StagesArgs),
    /// List the devices of this machine: memory, self-test, time of launches and copies
    ///
    /// Lists every backend: the CPU, and each CUDA and OpenCL device or the reason why a library has none.
    /// Each device runs every kernel on inputs with known answers. Then launches and copies in both
    /// directions are measured, which takes some seconds and needs an idle machine. The output shows which
    /// device `--backend auto` takes. The exit status is 1 if a device fails, and 0 if there is none.
    Devices(DevicesArgs),
    /// Print the TCP connections of captures: state, bytes, gaps, retransmissions, SHA-1 of both directions
    ///
    /// Fragments and streams are reassembled. The SHA-1 of a direction covers its bytes without the gaps. The result does not
    /// depend on the number of workers. Needs no privileges.
    Streams(StreamsArgs),
    /// Print the application of each flow of captures, what found it, and names such as the server's in TLS
    ///
    /// Applications are identified by the first bytes of both directions, whatever the ports are. Patterns of l7-filter may
    /// be added. A summary by application follows. The result does not depend on the number of workers. Needs no privileges.
    L7(L7Args),
    /// Search captures with rules of Snort and Suricata
    ///
    /// Writes eve.json, fast.log and stats.log, as Suricata does. The result does not depend on the number of workers. Needs no
    /// privileges. For live traffic, `[ids]` of a configuration does the same.
    Ids(IdsArgs),
    /// Look up addresses in a routes file
    ///
    /// `-` is standard input for one of the inputs, and standard output for the results; the figures then go to
    /// standard error.
    Lpm(LpmArgs),
    /// Look up names in a file of name prefixes
    ///
    /// Names are NDN URIs: `/org/example/a%20b/54=%01`. The prefix with the most matching components wins. `-` is
    /// standard input for one of the inputs, and standard output for the results; the figures then go to standard error.
    Names(NamesArgs),
    /// Classify headers by a rule file, in ClassBench's format or with fields of its own
    ///
    /// The first rule of the file that matches a header is the best one. Prints build time, memory use and headers
    /// per second of each structure. `-` is standard input for one of the inputs, and standard output for the matches;
    /// the figures then go to standard error.
    Classify(ClassifyArgs),
    /// Generate traffic, rules and headers
    #[command(subcommand)]
    Gen(GenCommand),
    /// Measure loss, throughput and latency through a device under test
    ///
    /// By default it sends 10 kpps for 10 s. With --max-loss it searches from the highest rate down, 10 s a
    /// trial. Packets are numbered over all flows, so a packet that overtakes one of another flow counts as
    /// reordered. For one flow, give --src, --dst, --sport and --dport one value each.
    Measure(MeasureArgs),
    /// Run a benchmark
    Bench(bench::Args),
    /// List the device programs of this build and their PTX
    #[command(hide = true)]
    Programs {
        /// Compile them into this file
        #[arg(long, value_name = "FILE")]
        pack: Option<PathBuf>,
    },
    /// Compile the device programs of another process, from standard input
    #[command(hide = true)]
    Compile,
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the man pages into a folder
    Man {
        /// The folder; created if it does not exist
        folder: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The configuration; `-` is standard input
    pub(crate) config: PathBuf,
    /// Check what a live start needs, too: interfaces, capabilities, socket and port of the metrics
    ///
    /// Nothing is changed. An interface that this machine does not have is an error.
    #[arg(long)]
    pub(crate) live: bool,
    /// List every warning; by default more than three of one kind are one line with a count
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Print the diagnostics as JSON, all of them
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StagesArgs {
    /// One stage, in detail
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
    /// Processing backend: auto, cpu, sim, opencl, opencl:N, cuda or cuda:N
    #[arg(long, default_value = "cpu", value_name = "BACKEND")]
    pub(crate) backend: Backend,
    /// Number of generated packets
    #[arg(long, default_value_t = 4_000_000, value_name = "N")]
    pub(crate) packets: u64,
}

/// Seconds whose nanoseconds have 64 bits.
const MAX_SECONDS: u64 = u64::MAX / 1_000_000_000;

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The configuration; `-` is standard input
    pub(crate) config: PathBuf,
    /// Read packets from a capture, or from all captures below a folder, into PORT (default: the first port)
    ///
    /// pcap or pcapng, which may be compressed by gzip, xz or zstd; `-` is standard input. Without -w the summary is
    /// printed and nothing is written.
    #[arg(short = 'r', long = "read", value_name = "[PORT=]IN")]
    pub(crate) read: Vec<String>,
    /// Write one capture per port, dropped.pcapng, dumped.pcapng (if packets are dumped) and stats.json into this
    /// folder
    #[arg(short = 'w', long = "write", value_name = "DIR", requires = "read")]
    pub(crate) write: Option<PathBuf>,
    /// Verify the checksums of received packets on all ports, or ignore them (for a capture taken on the sender)
    /// [default: `checksums` of each port]
    #[arg(short = 'k', value_enum, value_name = "all|none", hide_possible_values = true)]
    checksums: Option<ChecksumChecks>,
    /// With -r: flows of an OpenFlow switch, in addition to those of the configuration, in the syntax of ovs-ofctl
    #[arg(long, value_name = "FILE", requires = "read")]
    pub(crate) flows: Vec<PathBuf>,
    /// Processing backend: auto, cpu, sim, opencl, opencl:N, cuda or cuda:N, or several devices separated by commas
    /// (default: as in the configuration)
    #[arg(long, value_name = "BACKEND[,BACKEND]...")]
    pub(crate) backend: Option<Backends>,
    /// With -r: the time at which the run begins, in seconds since 1970: lifetimes of IPsec associations count from then (default:
    /// from their first packet)
    #[arg(long, value_name = "SECONDS", requires = "read", value_parser = clap::value_parser!(u64).range(1..=MAX_SECONDS))]
    pub(crate) now: Option<u64>,
    /// With -r: the seed of hashes and of ports that address translation chooses; two runs with the same input and seed give the same
    /// bytes
    #[arg(long, value_name = "NUMBER", requires = "read", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Stop after this time (live runs)
    #[arg(long, value_parser = duration, value_name = "TIME", conflicts_with = "read")]
    pub(crate) duration: Option<Duration>,
    /// Print the totals as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl RunArgs {
    /// What `--now` and `--seed` say.
    pub(crate) fn beginning(&self) -> controlplane::Beginning {
        let now_ns = self.now.unwrap_or(0) * 1_000_000_000; // bounded by MAX_SECONDS
        controlplane::Beginning { now_ns, seed: self.seed }
    }

    /// What `-k` says of all ports.
    pub(crate) fn checksums(&self) -> Option<Checksums> {
        self.checksums.map(ChecksumChecks::meaning)
    }
}

impl ChecksumChecks {
    fn meaning(self) -> Checksums {
        match self {
            ChecksumChecks::All => Checksums::Verify,
            ChecksumChecks::None => Checksums::Ignore,
        }
    }
}

/// The words of `-k`, which are Suricata's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ChecksumChecks {
    All,
    None,
}

#[derive(Debug, Args)]
pub(crate) struct DevicesArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Skip the measurements
    #[arg(long)]
    pub(crate) quick: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LpmArgs {
    /// `PREFIX NEXTHOP` per line, IPv4 and IPv6; `#` and `;` start comments; may be gzip, xz or zstd
    #[arg(long, value_name = "FILE")]
    pub(crate) routes: PathBuf,
    /// One address per line; comments and blank lines have no result; may be gzip, xz or zstd
    #[arg(long, value_name = "FILE")]
    pub(crate) addresses: PathBuf,
    /// Output: one next hop or `-` per line, one line for each address; `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) results: PathBuf,
    /// The table; for a table of one family, the other family uses `auto`
    #[arg(long, value_enum, default_value_t = Algorithm::Auto)]
    pub(crate) algorithm: Algorithm,
    /// Backend for lookups: auto, cpu, opencl, opencl:N, cuda or cuda:N
    #[arg(long, default_value = "cpu", value_name = "BACKEND")]
    pub(crate) backend: Backend,
    /// Print the results as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("input").required(true).args(["read", "interface"])))]
pub(crate) struct StreamsArgs {
    /// Read packets from a capture, or from all captures below a folder
    ///
    /// pcap or pcapng, which may be compressed by gzip, xz or zstd; `-` is standard input.
    #[arg(short = 'r', long = "read", value_name = "IN")]
    pub(crate) read: Vec<PathBuf>,
    /// Read packets that this network interface receives and sends, until Ctrl-C; needs root or CAP_NET_RAW
    ///
    /// The host keeps the interface. A connection is reported with the next packet after its time-out, or at the end.
    #[arg(short = 'i', long, value_name = "INTERFACE", conflicts_with = "read")]
    pub(crate) interface: Option<String>,
    /// With -i: stop after this time
    #[arg(long, value_parser = duration, value_name = "TIME", requires = "interface", conflicts_with = "read")]
    pub(crate) duration: Option<Duration>,
    /// Read only packets that match this expression, in the language of tcpdump
    #[arg(long, value_name = "EXPRESSION")]
    pub(crate) filter: Option<String>,
    /// Decode the packets inside these tunnels: ipip, gre, erspan, vxlan, geneve, gtp-u, teredo, separated by commas, or all
    ///
    /// A connection in a tunnel is shown with the addresses inside. `vxlan:8472` replaces the usual port.
    #[arg(long, value_name = "KINDS")]
    pub(crate) tunnels: Option<Kinds>,
    /// Write the bytes of each direction into a file in this folder; gaps are holes in it
    #[arg(long, value_name = "DIR")]
    pub(crate) bytes: Option<PathBuf>,
    /// Write a record of each flow into this file, Apache Parquet; `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) parquet: Option<PathBuf>,
    /// Apply `[flow]` of this configuration: time-outs, bounds, outputs
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Worker threads
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) workers: Option<u16>,
    /// Verify TCP checksums, or ignore them (for a capture taken on the sender)
    #[arg(short = 'k', value_enum, value_name = "all|none", hide_possible_values = true)]
    checksums: Option<ChecksumChecks>,
    /// Print one JSON object per connection, as soon as it has ended
    #[arg(long)]
    pub(crate) json: bool,
}

impl StreamsArgs {
    /// What `-k` says.
    pub(crate) fn checksums(&self) -> Option<Checksums> {
        self.checksums.map(ChecksumChecks::meaning)
    }
}

#[derive(Debug, Args)]
pub(crate) struct L7Args {
    /// Read packets from a capture, or from all captures below a folder
    ///
    /// pcap or pcapng, which may be compressed by gzip, xz or zstd; `-` is standard input.
    #[arg(short = 'r', long = "read", value_name = "IN", required = true)]
    pub(crate) read: Vec<PathBuf>,
    /// Search for the patterns in this folder, too: files with the extension .pat, in the format of l7-filter
    ///
    /// A matching pattern takes precedence over Shadeline's own labels.
    #[arg(long, value_name = "DIR")]
    pub(crate) patterns: Option<PathBuf>,
    /// Read only packets that match this expression, in the language of tcpdump
    #[arg(long, value_name = "EXPRESSION")]
    pub(crate) filter: Option<String>,
    /// Decode the packets inside these tunnels: ipip, gre, erspan, vxlan, geneve, gtp-u, teredo, separated by commas, or all
    ///
    /// A flow in a tunnel is shown with the addresses inside. `vxlan:8472` replaces the usual port.
    #[arg(long, value_name = "KINDS")]
    pub(crate) tunnels: Option<Kinds>,
    /// Apply `[flow]` of this configuration: time-outs, bounds, outputs
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Worker threads
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) workers: Option<u16>,
    /// Verify TCP checksums, or ignore them (for a capture taken on the sender)
    #[arg(short = 'k', value_enum, value_name = "all|none", hide_possible_values = true)]
    checksums: Option<ChecksumChecks>,
    /// Print one JSON object per flow, as soon as it has ended, and the summary as the last one
    #[arg(long)]
    pub(crate) json: bool,
}

impl L7Args {
    /// What `-k` says.
    pub(crate) fn checksums(&self) -> Option<Checksums> {
        self.checksums.map(ChecksumChecks::meaning)
    }
}

#[derive(Debug, Args)]
pub(crate) struct IdsArgs {
    /// Read packets from a capture, or from all captures below a folder
    ///
    /// pcap or pcapng, which may be compressed by gzip, xz or zstd; `-` is standard input.
    #[arg(short = 'r', long = "read", value_name = "IN", required_unless_present_any = ["test", "list_keywords"])]
    pub(crate) read: Vec<PathBuf>,
    /// A file of rules, which may be compressed; may be repeated
    #[arg(short = 'S', long = "rules", value_name = "RULES", required_unless_present_any = ["config", "list_keywords"])]
    pub(crate) rules: Vec<PathBuf>,
    /// Write eve.json, fast.log and stats.log into this folder; files of an earlier run are replaced
    #[arg(short = 'l', long = "output", value_name = "OUTDIR")]
    pub(crate) output: Option<PathBuf>,
    /// Set a variable that rules use, such as HOME_NET=192.0.2.0/24; may be repeated
    ///
    /// Other variables have the values of Suricata's suricata.yaml. A name that ends in _PORT or _PORTS stands for ports,
    /// any other name for addresses.
    #[arg(long = "set", value_name = "VAR=VALUE", value_parser = variable)]
    pub(crate) set: Vec<(String, String)>,
    /// Test the rules: print each refused rule, and how many were loaded; the exit status is 1 if a rule was refused
    #[arg(short = 'T', long, conflicts_with = "read")]
    pub(crate) test: bool,
    /// List the keywords of rules, and which of them are evaluated
    #[arg(long, conflicts_with_all = ["read", "test", "output"])]
    pub(crate) list_keywords: bool,
    /// Explain why a rule matched or did not: count the matches of each of its conditions alone
    #[arg(long, value_name = "SID", requires = "read")]
    pub(crate) explain: Option<u32>,
    /// Apply drop and reject rules: events have the action `blocked`, and packets count as dropped
    #[arg(long)]
    pub(crate) inline: bool,
    /// Inspect connections whose beginning is not in the capture, too
    #[arg(long)]
    pub(crate) midstream: bool,
    /// Read classes of rules and their priorities from this file, a classification.config
    #[arg(long, value_name = "FILE")]
    pub(crate) classification: Option<PathBuf>,
    /// Read thresholds and suppressed alerts from this file, a threshold.config
    #[arg(long, value_name = "FILE")]
    pub(crate) thresholds: Option<PathBuf>,
    /// Read categories of reputations from this file, with lines `NUMBER,NAME,DESCRIPTION`
    #[arg(long, value_name = "FILE")]
    pub(crate) reputation_categories: Option<PathBuf>,
    /// Read reputations of addresses for `iprep` from this file, with lines `ADDRESS,CATEGORY,SCORE`; may be repeated
    #[arg(long, value_name = "FILE", requires = "reputation_categories")]
    pub(crate) reputation: Vec<PathBuf>,
    /// Apply `[ids]` and `[flow]` of this configuration
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Worker threads
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) workers: Option<u16>,
    /// Verify checksums, or ignore them (for a capture taken on the sender)
    #[arg(short = 'k', value_enum, value_name = "all|none", hide_possible_values = true)]
    checksums: Option<ChecksumChecks>,
    /// Print the figures as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl IdsArgs {
    /// What `-k` says.
    pub(crate) fn checksums(&self) -> Option<Checksums> {
        self.checksums.map(ChecksumChecks::meaning)
    }
}

/// `NAME=VALUE`
fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected VAR=VALUE")?;
    let name = name.strip_prefix('$').unwrap_or(name);
    if name.is_empty() || value.is_empty() {
        return Err("expected VAR=VALUE".to_owned());
    }
    Ok((name.to_owned(), value.to_owned()))
}

#[derive(Debug, Args)]
pub(crate) struct NamesArgs {
    /// `NAME NEXTHOP` per line; a word that begins with `#` or `;` starts a comment; may be gzip, xz or zstd
    #[arg(long, value_name = "FILE")]
    pub(crate) routes: PathBuf,
    /// One name per line; comments and blank lines have no result; may be gzip, xz or zstd
    #[arg(long, value_name = "FILE")]
    pub(crate) names: PathBuf,
    /// Output: one next hop or `-` per line, one line for each name; `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) results: PathBuf,
    /// Print the results as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ClassifyArgs {
    /// The rules: ClassBench's format, or a first line `fields NAME:BITS:KIND …`; may be gzip, xz or zstd
    #[arg(long, value_name = "FILE")]
    pub(crate) rules: PathBuf,
    /// The headers: sip dip sport dport proto in decimal, and further columns; may be gzip, xz or zstd
    #[arg(long, value_name = "FILE", required_unless_present_any = ["explain", "check"])]
    pub(crate) trace: Option<PathBuf>,
    /// The structure; `all` runs every one and compares the answers
    #[arg(long, value_parser = classify_algorithm(), default_value = crate::classify::ALL, value_name = "NAME")]
    pub(crate) algorithm: String,
    /// Hash function of `tuple` and `bloom`
    #[arg(long, value_enum, default_value_t = TupleHash::Universal, value_name = "HASH")]
    pub(crate) hash: TupleHash,
    /// Bytes of an instruction block of `tic`: a cache line, or half of one
    #[arg(long, value_name = "32|64", default_value = "64", value_parser = tic_block)]
    pub(crate) tic_block: Block,
    /// Output: the index of the best rule from 0, or -1, one line for each header; `-` is standard output
    #[arg(long, value_name = "FILE", requires = "trace")]
    pub(crate) matches: Option<PathBuf>,
    /// Print which rules match this header, and how each structure finds them
    ///
    /// One value for each field: `SIP DIP SPORT DPORT PROTO`, such as `10.0.0.1 192.0.2.1 1024 80 tcp`.
    #[arg(long, value_name = "TUPLE", conflicts_with_all = ["trace", "matches"])]
    pub(crate) explain: Option<String>,
    /// Warn of rules that never apply because a better rule covers them
    #[arg(long)]
    pub(crate) check: bool,
    /// Backend to classify on, in addition to the CPU: auto, cpu, opencl, opencl:N, cuda or cuda:N
    #[arg(long, default_value = "cpu", value_name = "BACKEND", requires = "trace")]
    pub(crate) backend: Backend,
    /// Print the results as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TupleHash {
    /// Multiply-shift, strongly universal
    Universal,
    /// Murmur3 x86_32
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
    let all = PossibleValue::new(crate::classify::ALL).help("All of them; compare the answers");
    PossibleValuesParser::new(names.chain([all]))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Algorithm {
    /// The fastest of each family
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
    /// Generate packets for an interface, a file or the engine
    ///
    /// Packets are written to a capture or the engine as fast as possible; --rate then determines their timestamps.
    Packets(Box<GenPacketsArgs>),
    /// Generate rules with a given number of classes, or from a ClassBench parameter file
    ///
    /// Writes ClassBench's format, or for 12 fields a file whose first line names them. The same options give the
    /// same bytes.
    Rules(GenRulesArgs),
    /// Generate headers from the rules of a file, for `shadeline classify`
    ///
    /// A header is a random corner of a rule, as in ClassBench's traces; the last column is that rule's index.
    Trace(GenTraceArgs),
}

#[derive(Debug, Args)]
pub(crate) struct GenRulesArgs {
    /// Number of rules
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) rules: usize,
    /// Output: the rules; `-` is standard output
    #[arg(short = 'w', long, value_name = "FILE")]
    pub(crate) write: PathBuf,
    /// A parameter file of ClassBench; may be gzip, xz or zstd
    #[arg(long, value_name = "FILE", conflicts_with_all = ["fields", "classes", "full_classes", "overlap", "distribution"])]
    pub(crate) parameters: Option<PathBuf>,
    /// With a parameter file: the most bits by which prefix lengths change
    #[arg(
        long,
        value_name = "BITS",
        default_value_t = 0,
        requires = "parameters",
        value_parser = clap::value_parser!(u8).range(0..=32)
    )]
    pub(crate) smoothing: u8,
    /// With a parameter file: above 0, shorter prefixes than in the file; below 0, longer ones; -1 to 1
    #[arg(
        long,
        value_name = "S",
        default_value_t = 0.0,
        requires = "parameters",
        value_parser = scope,
        allow_negative_numbers = true
    )]
    pub(crate) address_scope: f64,
    /// With a parameter file: above 0, wider port ranges than in the file; below 0, narrower ones; -1 to 1
    #[arg(
        long,
        value_name = "S",
        default_value_t = 0.0,
        requires = "parameters",
        value_parser = scope,
        allow_negative_numbers = true
    )]
    pub(crate) port_scope: f64,
    /// Number of fields: the IPv4 5-tuple, or the 12 fields of OpenFlow
    #[arg(long, value_name = "5|12", default_value = "5", value_parser = fields)]
    pub(crate) fields: u8,
    /// Number of classes (masks); default: 16, but at most the number of rules
    #[arg(long, value_name = "C", value_parser = count)]
    pub(crate) classes: Option<usize>,
    /// Number of classes that share all rules except one of each other class (default: all)
    #[arg(long, value_name = "F", value_parser = count)]
    pub(crate) full_classes: Option<usize>,
    /// Classes that match a header of the first rules (`gen trace --first`)
    #[arg(long, value_name = "C_m", default_value_t = 1, value_parser = count)]
    pub(crate) overlap: usize,
    /// Distribution of rules over classes
    #[arg(long, value_enum, default_value_t = Spread::Full)]
    pub(crate) distribution: Spread,
    /// Seed of the random numbers
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
    /// The n-th class has a share of 1/n
    Zipf,
}

#[derive(Debug, Args)]
pub(crate) struct GenTraceArgs {
    /// The rules; may be gzip, xz or zstd
    #[arg(long, value_name = "FILE")]
    pub(crate) rules: PathBuf,
    /// Number of headers
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) count: usize,
    /// Output: the headers; `-` is standard output
    #[arg(short = 'w', long, value_name = "FILE")]
    pub(crate) write: PathBuf,
    /// How often a header repeats
    #[arg(long, value_enum, default_value_t = TraceSpread::Pareto)]
    pub(crate) distribution: TraceSpread,
    /// Scale of `pareto`: 0 for no locality, 0.0001 for low, 1 (default) for high, as in ClassBench
    #[arg(long, value_name = "B", value_parser = locality, allow_negative_numbers = true)]
    pub(crate) locality: Option<f64>,
    /// Draw headers from anywhere inside their rules, not from corners
    #[arg(long)]
    pub(crate) inside: bool,
    /// Use the first N rules only
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) first: Option<usize>,
    /// Seed of the random numbers
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
    /// Send the frames of this capture (at most 65,536) unchanged, again and again; may be gzip, xz or zstd
    #[arg(
        long,
        value_name = "CAPTURE",
        conflicts_with_all = [
            "size", "src", "dst", "ipv6", "sport", "dport", "protocol", "vlan", "src_mac", "dst_mac", "ttl", "seed",
        ]
    )]
    pub(crate) frames: Option<PathBuf>,
    /// Send on this interface (needs CAP_NET_RAW)
    #[arg(long, value_name = "IF", group = "to")]
    pub(crate) interface: Option<String>,
    /// Write this capture: pcap if the name ends in .pcap, else pcapng; `-` is standard output
    #[arg(short = 'w', long, value_name = "FILE", group = "to")]
    pub(crate) write: Option<PathBuf>,
    /// Feed the engine with this configuration, into PORT (default: the first port)
    #[arg(long, value_name = "[PORT=]CONFIG", group = "to")]
    pub(crate) engine: Option<String>,
    /// Backend of the engine: auto, cpu, sim, opencl, opencl:N, cuda or cuda:N (default: as in the
    /// configuration)
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
    /// Send on this interface
    #[arg(long, value_name = "IF")]
    pub(crate) tx: String,
    /// Receive on this interface
    #[arg(long, value_name = "IF")]
    pub(crate) rx: String,
    /// Search for the highest rate with at most this loss, in percent (RFC 2544)
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub(crate) max_loss: Option<f64>,
    /// End the search when the rate is known to this percentage of the highest rate
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "1")]
    pub(crate) resolution: f64,
    /// Wait this long for late packets after the last packet of a trial (RFC 2544 §23)
    #[arg(long, value_parser = duration, value_name = "TIME", default_value = "2s")]
    pub(crate) wait: Duration,
    /// Print the results as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A time such as `10s` or `200us`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| "expected a time with its unit, such as 10s or 200us".into())
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
    scale.ok_or_else(|| "expected a number from 0 to 1000000".into())
}

/// How many of something: at least one, and rules have ids.
fn count(text: &str) -> Result<usize, String> {
    const MOST: usize = NO_ID as usize - 1;
    let count = text.parse().ok().filter(|count| (1..=MOST).contains(count));
    count.ok_or_else(|| format!("expected a number from 1 to {MOST}"))
}

/// How far rules are made wider or narrower.
fn scope(text: &str) -> Result<f64, String> {
    let scope = text.parse::<f64>().ok().filter(|scope| (-1.0..=1.0).contains(scope));
    scope.ok_or_else(|| "expected a number from -1 to 1".into())
}

/// A share of 0 to 100.
fn percent(text: &str) -> Result<f64, String> {
    let percent = text.trim_end_matches('%').parse::<f64>().ok();
    let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
    percent.ok_or_else(|| "expected a percentage from 0 to 100".into())
}
