//! Encryption of payload: GASPP's AES application (§6, §7).
//!
//! ```text
//!  … ─▶ encrypt ─▶ … ─▶ wire, rewrite          … ─▶ decrypt ─▶ …         two instances of `cipher`, by [stage.NAME]
//!
//!  │ Ethernet │ IP │ TCP, UDP │ payload │  ◀──▶  │ Ethernet │ IP │ TCP, UDP │ IV │ payload, encrypted │ padding, tag │
//! ```
//!
//! The payload of TCP and UDP is encrypted packet by packet, so packets may get lost and come out of order. All that is needed
//! to decrypt a packet is in it, beside the key.
//!
//! - [`stage`] finds payload, makes room, and puts lengths and checksums right; [`shade`] runs the cipher over a chunk.
//! - [`kernels`] is the same on a device, which derives keys itself.
//! - [`keys`] reads key files and derives keys of connections; [`table`] makes the key of a file a part of the tables.
//! - `headers` is about bytes around the payload.
//!
//! # Deliberately absent
//! - Fragments, and what may be TCP or UDP behind headers that are not read: they are dropped. A stage before a router that
//!   fragments encrypts whole packets.
//! - Agreement on keys, replay windows: that is IPsec's.
//!
//! Threads: one instance per worker, with keys of its own; the key of the file is shared.

pub mod columns;
mod control_part;
mod headers;
pub mod kernels;
pub mod keys;
pub mod reasons;
pub mod settings;
pub mod shade;
pub mod stage;
pub mod table;
#[cfg(test)]
mod tests;

use control::config::{Application, FRAMES, StageKind};
use controlplane::Descriptor;
use controlplane::request::TableKind;

/// The stage's name.
pub const STAGE: &str = "cipher";

/// Blocks of the reasons that it drops for.
pub const REASONS: &[&chunk::ReasonBlock] = &[reasons::BLOCK];

/// What it declares.
pub static DESCRIPTOR: Descriptor = Descriptor {
    application: &APPLICATION,
    stages: STAGES,
    reasons: REASONS,
    kernels: kernels::FILES,
    tables: &[TableKind::new("ciphers", "Encryption stages with what they did")],
    absent: "this instance encrypts nothing: its pipelines have no stage `cipher`",
    check: control_part::check_files,
    example: Some(control_part::example),
    start: control_part::start,
    ..Descriptor::NONE
};

/// What it has in the configuration.
pub static APPLICATION: Application =
    Application { name: STAGE, title: "an encryption stage", ..Application::NONE };

/// Its stage.
pub const STAGES: &[StageKind] = &[StageKind {
    about: "Encrypts or decrypts the payload of TCP and UDP packets with AES.",
    needs: &[FRAMES],
    settings: control::config::Settings::of::<settings::Settings>(),
    ..StageKind::new(STAGE, &APPLICATION)
}];
