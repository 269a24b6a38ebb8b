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
//! - [`egress`] (`bridge_out`) sends events of new stations, refreshes known ones, sends each frame out by its port,
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
pub mod commands;
mod control_part;
mod counters;
pub mod egress;
pub mod forward;
pub mod ingress;
pub mod kernels;
pub mod reasons;
pub mod reference;
pub mod rows;
mod stations;
mod versions;

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use control::config::{Application, FRAMES, Settings, StageKind};
use controlplane::Descriptor;
use engine::Stage;
use lookup::bridge::{StationEvent, SwitchTables};

use crate::ports::PortNames;

pub use columns::{SwitchColumns, SwitchView};
pub use counters::SwitchCounters;
pub use stations::Waiting;
pub use versions::{SwitchImages, SwitchPart};

/// Blocks of the reasons that its stages drop for.
pub const REASONS: &[&chunk::ReasonBlock] = &[reasons::BLOCK, packet::reasons::BLOCK];

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
    absent: "this instance has no stations: its pipeline has no switch stages",
    start: control_part::start,
    ..Descriptor::NONE
};

/// What it has in the configuration.
pub static APPLICATION: Application = Application {
    name: "switch",
    title: "a switch",
    sections: &["switch", "station"],
    port_keys: &["access", "trunk", "native", "learning", "stations", "extra_stations", "storm"],
    has_host: false,
    is_promiscuous: true,
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
        name: "bridge_in",
        about: "Reads MAC addresses and VLAN tag, finds the VLAN, drops frames that no bridge forwards.",
        application: &APPLICATION,
        needs: &[FRAMES],
        provides: &[FRAMES, "vlan"],
        is_first: true,
        is_last: false,
        places: &[],
        leads_to: &[],
        settings: Settings::None,
    },
    StageKind {
        name: "bridge",
        about: "Finds the ports of source and destination in the table of stations.",
        application: &APPLICATION,
        needs: &["vlan"],
        provides: &["station"],
        is_first: false,
        is_last: false,
        places: &[],
        leads_to: &[],
        settings: Settings::None,
    },
    StageKind {
        name: "bridge_out",
        about: "Learns stations; forwards or floods each frame, tagged or untagged as the port is configured.",
        application: &APPLICATION,
        needs: &["vlan", "station"],
        provides: &[],
        is_first: false,
        is_last: true,
        places: &[],
        leads_to: &[],
        settings: Settings::None,
    },
];

/// The stages of a switch, in their order: what `mode = "switch"` stands for.
pub const DEFAULT_STAGES: &[&str] = &["bridge_in", "bridge", "bridge_out"];

/// What the stages of one worker are given.
#[derive(Clone, Debug, Default)]
pub struct SwitchPipeline {
    /// Where station events go; `None` without learning.
    pub events: Option<SyncSender<StationEvent>>,
    /// Those that wait; whoever takes one calls [`Waiting::end`].
    pub waiting: Arc<Waiting>,
    /// The receive queue itself learns stations and keeps their times, frame by frame (captures): the
    /// stages do neither.
    pub learns_ahead: bool,
    /// A later stage reads the [header columns](crate::firewall::HeaderColumns).
    pub with_headers: bool,
    /// And records.
    pub with_records: bool,
    /// The first region of the switch's part of the tables in a device's image.
    pub first_region: usize,
    /// Counters of this worker's stages.
    pub counters: Arc<SwitchCounters>,
    /// For traces.
    pub names: PortNames,
}

/// A stage for one worker; `None` for a name that is none of [`STAGES`].
pub fn stage<T>(name: &str, options: &SwitchPipeline) -> Option<Box<dyn Stage<T>>>
where
    T: AsRef<SwitchTables> + Send + Sync + 'static,
{
    Some(match name {
        "bridge_in" => {
            let stage = ingress::BridgeIn::new();
            let stage = if options.with_headers { stage.with_headers() } else { stage };
            Box::new(if options.with_records { stage.with_records() } else { stage })
        }
        "bridge" => {
            let stage = forward::Bridge::new().with_first_region(options.first_region);
            Box::new(stage.with_names(options.names.clone()))
        }
        "bridge_out" => Box::new(egress::BridgeOut::new(options)),
        _ => return None,
    })
}

/// The stages of a switch for one worker.
pub fn pipeline<T>(options: &SwitchPipeline) -> Vec<Box<dyn Stage<T>>>
where
    T: AsRef<SwitchTables> + Send + Sync + 'static,
{
    DEFAULT_STAGES.iter().filter_map(|name| stage(name, options)).collect()
}
