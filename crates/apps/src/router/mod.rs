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
pub(crate) mod columns;
mod control;
mod counters;
pub mod decode;
pub(crate) mod errors;
mod events;
pub(crate) mod frames;
pub(crate) mod gate;
mod neighbours;
pub mod reasons;
pub mod reference;
pub mod rewrite;
pub mod route;
pub mod rpf;
mod size;
mod versions;

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use engine::Stage;
use lookup::fib::{Fib, NeighbourEvent};

pub use columns::{RouterColumns, RouterView};
pub use counters::{RouterCounters, TaggedCounters};
pub use gate::ErrorGate;
pub use versions::FibImages;

/// Blocks of the reasons that its stages drop for. `rewrite` rejects packets for the firewall.
pub const REASONS: &[&chunk::ReasonBlock] = &[
    reasons::BLOCK,
    crate::firewall::reasons::BLOCK,
    packet::reasons::BLOCK,
    kernels::reasons::BLOCK,
];

/// The names that `[pipeline.NAME] stages` may hold, in the order in which they make sense. The
/// firewall is [`crate::firewall::Firewall`], which whoever builds the pipeline puts in its place.
pub const KNOWN_STAGES: &[&str] = &["decode", crate::firewall::STAGE, "rpf", "route", "rewrite"];

/// The stages that `mode = "router"` stands for.
pub const DEFAULT_STAGES: &[&str] = &["decode", "rpf", "route", "rewrite"];

/// What the stages of one worker are given.
#[derive(Clone, Debug, Default)]
pub struct PipelineOptions {
    /// Where neighbour events go; `None` where nobody resolves (captures).
    pub events: Option<SyncSender<NeighbourEvent>>,
    /// Counters of this worker's stages.
    pub counters: Arc<RouterCounters>,
    /// The limit of errors is kept by an [`ErrorGate`] over all workers, in the order of the packets
    /// (captures), and not by each worker.
    pub defers_errors: bool,
}

/// A list of stages that makes no pipeline.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PipelineError {
    /// A name that is none of [`KNOWN_STAGES`].
    #[error("unknown stage `{name}`: expected one of decode, firewall, rpf, route, rewrite")]
    Unknown {
        /// The name.
        name: String,
    },
    /// A stage that needs columns of one that does not come before it, or comes twice.
    #[error("stage `{name}` {problem}")]
    Order {
        /// The stage.
        name: &'static str,
        /// What is wrong with its place.
        problem: &'static str,
    },
}

/// Checks a list of stages: `decode` first, then `firewall` and `rpf` (optional), `route` and
/// `rewrite`.
///
/// # Errors
/// An unknown name, a stage that is missing, comes twice or too early.
pub fn check<S: AsRef<str>>(names: &[S]) -> Result<(), PipelineError> {
    let order = |name: &str| KNOWN_STAGES.iter().position(|known| *known == name);
    let mut next = 0;
    for name in names {
        let name = name.as_ref();
        let place = order(name).ok_or_else(|| PipelineError::Unknown { name: name.to_string() })?;
        if place < next {
            let problem =
                "comes twice or too late: the order is decode, firewall, rpf, route, rewrite";
            return Err(PipelineError::Order { name: KNOWN_STAGES[place], problem });
        }
        next = place + 1;
    }
    for needed in ["decode", "route", "rewrite"] {
        if !names.iter().any(|name| name.as_ref() == needed) {
            let problem = "is missing";
            return Err(PipelineError::Order { name: needed, problem });
        }
    }
    Ok(())
}

/// The stages of a router for one worker, over any tables that the forwarding tables are part of;
/// all that `names` names but the firewall.
///
/// # Errors
/// As [`check`].
pub fn pipeline<T: AsRef<Fib> + 'static>(
    names: &[impl AsRef<str>],
    options: &PipelineOptions,
) -> Result<Vec<Box<dyn Stage<T>>>, PipelineError> {
    check(names)?;
    let with_source = names.iter().any(|name| name.as_ref() == "rpf");
    let has_firewall = names.iter().any(|name| name.as_ref() == crate::firewall::STAGE);
    let own = names.iter().filter(|name| name.as_ref() != crate::firewall::STAGE);
    let stages = own.map(|name| -> Box<dyn Stage<T>> {
        match name.as_ref() {
            "decode" => {
                let stage = decode::Decode::new(with_source, options);
                Box::new(if has_firewall { stage.with_headers() } else { stage })
            }
            "rpf" => Box::new(rpf::ReversePathCheck::new()),
            "route" => Box::new(route::Route::new()),
            _ => Box::new(rewrite::Rewrite::new(options)),
        }
    });
    Ok(stages.collect())
}
