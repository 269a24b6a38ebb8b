//! The layer-2 switch: a bridge after IEEE 802.1Q, without spanning tree.
//!
//! ```text
//!            ┌───────────┐     ┌────────┐     ┌────────────┐
//!  chunk ───▶│ bridge_in │────▶│ bridge │────▶│ bridge_out │───▶ ports, one copy each when it floods
//!            └─────┬─────┘     └────────┘     └─────┬──────┘
//!                  │drop                           │drop, StationEvent
//! ```
//!
//! - [`ingress`] (`bridge_in`) reads addresses and tag once, finds the VLAN, settles what no bridge forwards.
//! - [`forward`] (`bridge`) looks up source and destination of the whole batch in one table, one lookup after
//!   the other: the pure step, which a device can take (CuckooSwitch, CoNEXT 2013).
//! - [`egress`] (`bridge_out`) tells of new stations, keeps known ones young, sends each frame out by its port,
//!   or floods it, with the tag that the port wants.
//!
//! The tables are [`SwitchTables`]; every stage is one over any `T: AsRef<SwitchTables>`, so that a program may
//! keep them beside others.
//!
//! # Deliberately absent
//! - Spanning tree (IEEE 802.1D §17): frames to its group address are dropped as 802.1Q §8.6.3 has it, so a loop
//!   is broken by storm control alone.
//! - Snooping of IGMP and MLD: multicast goes to all ports of its VLAN.
//! - Service tags (802.1ad): a frame tagged with 88a8 is, for the VLANs, a frame without a tag.
//!
//! Threads: one instance of each stage per worker; they share the tables' version, the times of stations and
//! the storm buckets, and the bounded channel of [`StationEvent`]s.

mod columns;
mod counters;
pub mod egress;
pub mod forward;
pub mod ingress;
pub mod reasons;
pub mod reference;
mod stations;
mod versions;

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use engine::Stage;
use lookup::bridge::{StationEvent, SwitchTables};

pub use columns::{SwitchColumns, SwitchView};
pub use counters::SwitchCounters;
pub use versions::SwitchImages;

/// Blocks of the reasons that its stages drop for.
pub const REASONS: &[&chunk::ReasonBlock] = &[reasons::BLOCK, packet::reasons::BLOCK];

/// The names that `[pipeline.NAME] stages` may hold, in their order. The firewall is
/// [`crate::firewall::Firewall`], which whoever builds the pipeline puts in its place.
pub const KNOWN_STAGES: &[&str] = &["bridge_in", crate::firewall::STAGE, "bridge", "bridge_out"];

/// The stages of a switch, in their order: what `mode = "switch"` stands for.
pub const DEFAULT_STAGES: &[&str] = &["bridge_in", "bridge", "bridge_out"];

/// What the stages of one worker are given.
#[derive(Clone, Debug, Default)]
pub struct SwitchPipeline {
    /// Where station events go; `None` where nobody learns.
    pub events: Option<SyncSender<StationEvent>>,
    /// The receive queue itself learns stations and keeps their times, frame by frame (captures): the
    /// stages do neither.
    pub learns_ahead: bool,
    /// A later stage reads the [header columns](crate::firewall::HeaderColumns).
    pub with_headers: bool,
    /// Counters of this worker's stages.
    pub counters: Arc<SwitchCounters>,
}

/// A list of stages that makes no switch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a switch has the stages bridge_in, bridge, bridge_out, in this order, and may have `firewall` behind the first"
)]
pub struct PipelineError;

/// Checks a list of stages: all of [`DEFAULT_STAGES`] in their order, `firewall` behind the first or not.
///
/// # Errors
/// Any other list.
pub fn check<S: AsRef<str>>(names: &[S]) -> Result<(), PipelineError> {
    let is = |stages: &[&str]| names.iter().map(AsRef::as_ref).eq(stages.iter().copied());
    if is(DEFAULT_STAGES) || is(KNOWN_STAGES) { Ok(()) } else { Err(PipelineError) }
}

/// The stages of a switch for one worker, all but the firewall.
pub fn pipeline<T>(options: &SwitchPipeline) -> Vec<Box<dyn Stage<T>>>
where
    T: AsRef<SwitchTables> + Send + Sync + 'static,
{
    let first = ingress::BridgeIn::new();
    vec![
        Box::new(if options.with_headers { first.with_headers() } else { first }),
        Box::new(forward::Bridge::new()),
        Box::new(egress::BridgeOut::new(options)),
    ]
}
