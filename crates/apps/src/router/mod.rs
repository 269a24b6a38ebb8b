//! The router: IPv4 and IPv6 forwarding after RFC 1812 and RFC 8200.
//!
//! ```text
//!            ┌─────────┐     ┌─────┐     ┌───────┐     ┌─────────┐
//!  chunk ───▶│ decode  │────▶│ rpf │────▶│ route │────▶│ rewrite │───▶ ports
//!            └────┬────┘     └──┬──┘     └───┬───┘     └────┬────┘
//!                 │host, drop   │drop        │drop          │host, drop, held, ICMP, fragments
//! ```
//!
//! - [`decode`] looks at every byte that decides anything, once, and settles what is not plain
//!   transit: malformed, not for us, multicast, ARP and neighbour discovery, packets of the host.
//! - [`rpf`] (optional) asks whether the source could have come in here.
//! - [`route`] finds next hop and adjacency: the pure step, which a device can take.
//! - [`rewrite`] acts: TTL, link header, fragments, ICMP errors, answers, waiting for neighbours.
//!
//! Each stage's module says which columns it reads and writes and where packets go next (the node
//! contract of VPP).
//!
//! # Deliberately absent
//! - Forwarding of multicast; link-local groups go to the host.
//! - ICMP redirects. A redirect tells a host about a better first hop, at the price of state per
//!   host and of a well-known attack; RFC 1812 §5.2.7.2 lets a router leave them out, and operators
//!   turn them off.
//! - Source routes: RFC 1812 §5.3.13.4 lets a router discard them, and RFC 7126 §4.3 tells it to.
//! - Acting on router alert (RFC 2113, RFC 2711): such a packet goes to the host when it is for us
//!   or for a link-local group, and is forwarded like any other when it is not.
//!
//! Threads: one instance of each stage per worker; they share nothing but the tables' version and
//! the bounded channel of [`NeighbourEvent`]s.

mod answers;
pub mod capacity;
mod check;
pub(crate) mod columns;
pub mod commands;
mod control;
mod control_part;
mod counters;
pub mod decode;
pub(crate) mod errors;
mod events;
pub(crate) mod frames;
pub(crate) mod gate;
pub mod kernels;
mod neighbours;
pub mod reasons;
pub mod reference;
pub mod rewrite;
pub mod route;
pub mod routes;
pub mod rows;
pub mod rpf;
mod save;
mod size;
mod versions;

use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Weak};

use ::control::config::{Application, FRAMES, Settings, StageKind};
use chunk::Packet;
use controlplane::Descriptor;
use engine::Stage;
use lookup::fib::{Fib, NeighbourEvent};

use crate::ports::PortNames;

pub(crate) use columns::{NOWHERE, egress};
pub use columns::{RouterColumns, RouterView};
pub use control_part::RouterControl;
pub use counters::{RouterCounters, TaggedCounters};
pub use gate::ErrorGate;
pub(crate) use route::{mtu_of, way};
pub use versions::{FibImages, RouterPart};

/// Blocks of the reasons that its stages drop for. `rewrite` rejects packets for the firewall.
pub const REASONS: &[&chunk::ReasonBlock] = &[
    reasons::BLOCK,
    crate::firewall::reasons::BLOCK,
    packet::reasons::BLOCK,
    ::kernels::reasons::BLOCK,
];

/// What it declares.
pub static DESCRIPTOR: Descriptor = Descriptor {
    application: &APPLICATION,
    stages: STAGES,
    pipeline: DEFAULT_STAGES,
    kernels: kernels::FILES,
    reasons: REASONS,
    requests: commands::REQUESTS,
    tables: commands::TABLES,
    groups: commands::GROUPS,
    names: commands::NAMES,
    modules: &[],
    absent: "this instance has no routes: its pipeline has no router stages",
    check: check::check,
    start: control_part::start,
    ..Descriptor::NONE
};

/// What it has in the configuration.
pub static APPLICATION: Application = Application {
    name: "router",
    title: "a router",
    sections: &["router", "route", "routes", "neighbour"],
    port_keys: &[
        "addresses",
        "twin",
        "host",
        "accept_ra",
        "accept_ra_routes",
        "rpf",
        "parent",
        "vlan",
    ],
    has_host: true,
    is_promiscuous: false,
    in_pairs: false,
    joins: None,
    joins_for: &[],
    joins_when: None,
    behind: &[],
    parts: None,
    joins_end: None,
};

/// Its stages.
pub const STAGES: &[StageKind] = &[
    StageKind {
        name: "decode",
        about: "Reads IPv4, IPv6, ARP and neighbour discovery headers; decides about packets that are not routed.",
        application: &APPLICATION,
        needs: &[FRAMES],
        provides: &[FRAMES, "ip"],
        is_first: true,
        is_last: false,
        places: &[],
        leads_to: &[],
        settings: Settings::None,
    },
    StageKind {
        name: "rpf",
        about: "Drops packets whose source address fails the reverse-path check (RFC 3704).",
        application: &APPLICATION,
        needs: &["ip"],
        provides: &[],
        is_first: false,
        is_last: false,
        places: &[],
        leads_to: &[],
        settings: Settings::None,
    },
    StageKind {
        name: "route",
        about: "Finds the next hop by longest-prefix match of the destination address.",
        application: &APPLICATION,
        needs: &["ip"],
        provides: &["next_hop"],
        is_first: false,
        is_last: false,
        places: &[],
        leads_to: &[],
        settings: Settings::None,
    },
    StageKind {
        name: "rewrite",
        about: "Rewrites TTL and link header, fragments packets, sends ICMP errors, forwards packets.",
        application: &APPLICATION,
        needs: &["ip", "next_hop"],
        provides: &[],
        is_first: false,
        is_last: true,
        places: &[],
        leads_to: &[],
        settings: Settings::None,
    },
];

/// The stages that `mode = "router"` stands for.
pub const DEFAULT_STAGES: &[&str] = &["decode", "rpf", "route", "rewrite"];

/// A packet that came protected, and was opened, or an answer to one: it would show what was inside.
pub(crate) const MARK_OPENED: u32 = 1 << 28;

/// What the stages of one worker are given.
#[derive(Clone, Debug, Default)]
pub struct PipelineOptions {
    /// Where neighbour events go; `None` without a resolver (captures).
    pub events: Option<SyncSender<NeighbourEvent>>,
    /// Counters of this worker's stages.
    pub counters: Arc<RouterCounters>,
    /// For the hashes of events: a number that nobody outside can know.
    pub seed: u64,
    /// The limit of errors is kept by an [`ErrorGate`] over all workers, in the order of the packets
    /// (captures), and not by each worker.
    pub defers_errors: bool,
    /// The first region of the router's part of the tables in a device's image.
    pub first_region: usize,
    /// For traces.
    pub names: PortNames,
    /// What packets were when their senders sent them, where a stage before `rewrite` changes their ends.
    pub origin: Option<Arc<dyn Origin>>,
    /// What the router sends itself that must not leave as it is.
    pub guard: Option<Arc<dyn Guard>>,
    /// Addresses that `decode` answers for beside its own, as long as the application is there whose they are.
    pub proxy: Option<Weak<dyn Proxy>>,
}

/// Addresses that no interface has and that the router answers for all the same, where they are in a connected prefix of the
/// interface: proxy ARP (RFC 1027) and its like of neighbour discovery (RFC 4861 §7.2.8).
///
/// The part of another application [offers](controlplane::ControlPart::offer) an `Arc` of it.
pub trait Proxy: std::fmt::Debug + Send + Sync {
    /// Whether an IPv4 address is one of them on the link of an interface.
    fn has4(&self, interface: u16, address: u32) -> bool;

    /// Whether an IPv6 address is one.
    fn has6(&self, interface: u16, address: [u64; 2]) -> bool;
}

/// Takes back what a stage did to the ends of a packet, so that an ICMP error is about the packet that its sender sent.
pub trait Origin: std::fmt::Debug + Send + Sync {
    /// Makes of a packet, of which at least the headers are there and whose IP header begins with byte `l3`, the one that
    /// was sent, perhaps of the other family. `false`: it is as it was sent.
    fn restore(&self, packet: &mut Packet, l3: usize) -> bool;
}

/// Says which errors, resets and echo replies of `rewrite` another stage protects or discards. They go through the pipeline again, as
/// frames that the twin of their interface sends.
pub trait Guard: std::fmt::Debug + Send + Sync {
    /// Whether this frame, an Ethernet header without tags and an IP packet, is one of those.
    fn holds(&self, frame: &Packet) -> bool;
}

/// A name that is none of [`STAGES`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a router has no stage `{0}`")]
pub struct UnknownStage(String);

/// A stage for one worker, over any tables that the forwarding tables are part of. `pipeline`: all stages of its
/// pipeline; `decode` writes what they read.
///
/// # Errors
/// A name that is none of [`STAGES`].
pub fn stage<T: AsRef<Fib> + 'static>(
    name: &str,
    pipeline: &[impl AsRef<str>],
    options: &PipelineOptions,
) -> Result<Box<dyn Stage<T>>, UnknownStage> {
    let has = |stage: &str| pipeline.iter().any(|name| name.as_ref() == stage);
    Ok(match name {
        "decode" => {
            let stage = decode::Decode::new(has("rpf"), options);
            let stage = if has(crate::firewall::STAGE) { stage.with_headers() } else { stage };
            Box::new(if crate::records::are_shared(pipeline) {
                stage.with_records()
            } else {
                stage
            })
        }
        "rpf" => Box::new(rpf::ReversePathCheck::new().with_first_region(options.first_region)),
        "route" => Box::new(route::Route::new().with_first_region(options.first_region)),
        "rewrite" => Box::new(rewrite::Rewrite::new(options)),
        _ => return Err(UnknownStage(name.to_owned())),
    })
}

/// Several stages for one worker, in this order. A firewall among them is left out: its tables are others.
///
/// # Errors
/// As [`stage`].
pub fn pipeline<T: AsRef<Fib> + 'static>(
    names: &[impl AsRef<str>],
    options: &PipelineOptions,
) -> Result<Vec<Box<dyn Stage<T>>>, UnknownStage> {
    let own = names.iter().filter(|name| name.as_ref() != crate::firewall::STAGE);
    own.map(|name| stage(name.as_ref(), names, options)).collect()
}
