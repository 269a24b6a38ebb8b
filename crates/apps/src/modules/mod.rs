//! Modules of a user: what is done with packets at each layer, in Rust or in the kernel dialect (GASPP §3.1).
//!
//! ```text
//!  decode ─▶ flow ─▶ modules ─▶ firewall ─▶ …          a shipped pipeline with [[module]]
//!             │        │
//!             │        ├ pre_shade: Rust modules, packet by packet
//!             │        ├ shade: modules with a source, all of them one program on a device, which decodes for them
//!             │        └ post_shade: counters
//!             └▶ gather: which flow a packet is of, and bytes in order
//! ```
//!
//! A Rust module behind one with a source waits for the device, so the modules of a file may be several stages
//! ([`Application::parts`]).
//!
//! - [`stage`] is the stage; [`kernels`] makes one program of the sources; [`control::module_source`] reads them.
//! - [`decoded`] is what the device tells modules with a source of a frame.
//! - [`gather`] is what the stage `flow` tells it; [`pieces`] is what it hands on of streams; [`held`] are bytes that stay dropped.
//! - The trait of Rust modules is [`controlplane::module::Module`].
//!
//! # Deliberately absent
//! - A CPU form of sources: they need a device, and PoCL is one.
//!
//! Threads: one instance per worker.

pub mod columns;
mod compile;
mod control_part;
pub mod counters;
pub mod decoded;
pub mod gather;
pub mod held;
pub mod kernels;
pub mod patterns;
pub mod pieces;
pub mod stage;
pub mod table;
#[cfg(test)]
mod tests;

use control::config::{Application, FRAMES, Settings, StageKind};
use controlplane::request::TableKind;
use controlplane::{Descriptor, module};

use crate::flow;

/// The stage's name.
pub const STAGE: &str = "modules";

/// What it declares.
pub static DESCRIPTOR: Descriptor = Descriptor {
    application: &APPLICATION,
    stages: STAGES,
    kernels: &[&table::TABLE],
    reasons: &[module::reasons::BLOCK],
    tables: &[TableKind::new("modules", "Modules with what they did")],
    absent: "this instance has no modules: add a [[module]] to the configuration and reload; a [pipeline.NAME] of the \
             file needs the stage `modules`",
    check: control_part::check_files,
    start: control_part::start,
    ..Descriptor::NONE
};

/// What it has in the configuration.
pub static APPLICATION: Application = Application {
    name: "modules",
    title: "modules",
    sections: &["module"],
    joins: Some(STAGE),
    behind: &[flow::STAGE],
    parts: Some(|config| control::config::module_groups(&config.modules).len()),
    ..Application::NONE
};

/// Its stage.
pub const STAGES: &[StageKind] = &[StageKind {
    name: STAGE,
    about: "Runs the modules of the configuration, for packets of each layer and streams; on a device those with a source.",
    application: &APPLICATION,
    needs: &[FRAMES],
    provides: &[],
    is_first: false,
    is_last: false,
    places: &[],
    leads_to: &[],
    settings: Settings::None,
}];
