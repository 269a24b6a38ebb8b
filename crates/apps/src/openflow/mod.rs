//! An OpenFlow switch: what becomes of a packet is what controllers, or a file of flows, say.
//!
//! ```text
//!            ┌──────────┐
//!  chunk ───▶│ openflow │───▶ ports, one copy for each output
//!            └────┬─────┘
//!                 │ drop
//! ```
//!
//! - [`stage`] brings the packets of a chunk through tables, groups and meters ([`flowtable::pipeline`]): all packets that meet in a
//!   table are looked up together.
//! - [`mod@shade`], [`kernels`]: with `device`, a device looks up the keys of a chunk's packets in all tables before.
//! - `control_part` makes patches of changes, lets flows leave when their time is over; `files` reads files of flows.
//! - `channel` has the connections to controllers, `switch` what they see.
//! - [`queues`] are in front of ports: packets that a flow sends to one wait in the stage ([`flowtable::queues`]).
//! - [`commands`] are `ctl flow` and the tables of `ctl show`.
//!
//! Ports have the numbers 1, 2, … in the order of the configuration; one may be LOCAL instead.
//!
//! NORMAL is the switch of `mode = "switch"`: a packet that is sent there goes on to its stages, which come behind `openflow`. With
//! `fail_mode = "standalone"` all packets do, while no controller can be reached.
//!
//! Threads: one instance of the stage per worker. Flows, groups and meters are shared by all of them, with atomic counters.

mod channel;
pub mod columns;
pub mod commands;
mod control_part;
mod files;
pub mod kernels;
pub mod queues;
pub mod reasons;
pub mod settings;
pub mod shade;
pub mod stage;
mod switch;
mod tables;

use std::path::PathBuf;

use control::config::{Application, RAW, StageKind};
use controlplane::Descriptor;

/// The stage's name.
pub const STAGE: &str = "openflow";

/// Blocks of the reasons that it drops for.
pub const REASONS: &[&chunk::ReasonBlock] = &[reasons::BLOCK];

/// What it declares.
pub static DESCRIPTOR: Descriptor = Descriptor {
    application: &APPLICATION,
    stages: STAGES,
    pipeline: DEFAULT_STAGES,
    reasons: REASONS,
    requests: commands::REQUESTS,
    tables: commands::TABLES,
    groups: commands::GROUPS,
    absent: "this instance is not an OpenFlow switch: its pipelines have no stage `openflow`",
    kernels: kernels::FILES,
    variants: &[settings::with_device],
    check: control_part::check_files,
    start: control_part::start,
    ..Descriptor::NONE
};

/// What it has in the configuration.
pub static APPLICATION: Application = Application {
    name: STAGE,
    title: "an OpenFlow switch",
    // Those of the switch that NORMAL is.
    sections: crate::switch::APPLICATION.sections,
    port_keys: crate::switch::APPLICATION.port_keys,
    is_promiscuous: true,
    ..Application::NONE
};

/// Its stage.
pub const STAGES: &[StageKind] = &[StageKind {
    about: "Carries out the flows, groups and meters of an OpenFlow switch; packets to NORMAL go on.",
    needs: &[RAW],
    is_last: true,
    leads_to: crate::switch::DEFAULT_STAGES,
    settings: control::config::Settings::of::<settings::Settings>(),
    ..StageKind::new(STAGE, &APPLICATION)
}];

/// The stages that `mode = "openflow"` stands for.
pub const DEFAULT_STAGES: &[&str] = &[STAGE, "bridge_in", "bridge", "bridge_out"];

/// Files of flows that a program reads beside those of the configuration, behind them ([`controlplane::Setup::attached`]).
#[derive(Debug, Clone, Default)]
pub struct FlowFiles(pub Vec<PathBuf>);
