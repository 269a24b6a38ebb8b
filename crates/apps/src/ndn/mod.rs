//! The named-data forwarder: Interests go towards Data, Data goes back the way that Interests came.
//!
//! What an Interest meets: its hop limit, the nonces that have been here ([`pit`]), others who wait for the same
//! name ([`pit`]), Data that has passed ([`store`]), and the longest prefix of its name ([`lookup::names`]). What Data
//! meets: those who wait, and the store.
//! [`pipeline`] makes the stages; [`NdnTables`] holds prefixes, next hops and faces.
//!
//! # Deliberately absent
//! - Forwarding hints: an Interest goes by its name (NDN Packet Format §3.3 lets a forwarder ignore hints).
//! - Putting fragments of link packets together; packets of more than one cell (2 KB).
//! - Passing Nacks on: one is counted, and the Interest ends with its lifetime.
//! - VLAN tags.
//!
//! Linux stays on the box: what is not an NDN packet goes to a port's twin, and what the twin sends goes out.
//!
//! Threads: a worker's table is its own.

mod check;
pub mod commands;
mod control_part;
mod counters;
mod frames;
pub mod kernels;
pub mod name_files;
pub mod name_lines;
mod name_routes;
pub mod pit;
mod questions;
pub mod reasons;
pub mod rows;
mod save;
mod shares;
mod spread;
mod stages;
pub mod store;
mod tables;

pub use counters::{FACES_MAX, FaceCounters, NdnCounters};
pub use questions::{Ask, Question};
pub use spread::spread_hash;
pub use stages::{
    DATA, INTEREST, NameForm, NdnColumns, NdnOptions, NdnView, STRANGER, pipeline, pipeline_with,
    stage,
};
pub use tables::{Face, NdnPart, NdnPatch, NdnPort, NdnTables, UdpEnds};

/// Blocks of the reasons that its stages drop for.
pub const REASONS: &[&chunk::ReasonBlock] =
    &[reasons::BLOCK, packet::reasons::BLOCK, ::kernels::reasons::BLOCK];

use control::config::{Application, FRAMES, Settings, StageKind};
use controlplane::Descriptor;
use lookup::names::{NameHash, NameHasher};
use packet::ndn::Name;

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
    absent: "this instance has no faces and names: its pipeline has no named-data stages",
    check: check::check,
    start: control_part::start,
    ..Descriptor::NONE
};

/// What it has in the configuration.
pub static APPLICATION: Application = Application {
    name: "ndn",
    title: "a named-data forwarder",
    sections: &["neighbour", "ndn", "name", "names"],
    port_keys: &["addresses", "twin", "host", "faces", "register"],
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
        name: "ndn_decode",
        about: "Finds NDN packets in Ethernet frames and datagrams, and the face that they arrived on.",
        application: &APPLICATION,
        needs: &[FRAMES],
        provides: &["name"],
        is_first: true,
        is_last: false,
        places: &[],
        leads_to: &[],
        settings: Settings::None,
    },
    StageKind {
        name: "name_lookup",
        about: "Finds the next hop by longest-prefix match of an Interest's name.",
        application: &APPLICATION,
        needs: &["name"],
        provides: &["name_hop"],
        is_first: false,
        is_last: false,
        places: &[],
        leads_to: &[],
        settings: Settings::None,
    },
    StageKind {
        name: "pit",
        about: "Keeps pending Interests and Data that has passed; sends Interests on and Data back, answers commands.",
        application: &APPLICATION,
        needs: &["name", "name_hop"],
        provides: &[],
        is_first: false,
        is_last: true,
        places: &[],
        leads_to: &[],
        settings: Settings::None,
    },
];

/// The stages that `mode = "ndn"` stands for.
pub const DEFAULT_STAGES: &[&str] = &["ndn_decode", "name_lookup", "pit"];

/// The worker, of `workers`, whose table a name belongs to.
///
/// An Interest and the Data that answers it must meet in one table, and the Data may be longer (CanBePrefix).
/// The first component is in both, so it alone decides; names that all begin with one component stay with one
/// worker. [`spread_hash`] says the same of a frame, in the engine's terms.
pub fn worker_of(hasher: &NameHasher, name: &Name<'_>, workers: u32) -> u32 {
    let hash = hash_of(hasher, name.encodings().next().unwrap_or_default());
    ((u64::from(hash) * u64::from(workers)) >> 32) as u32
}

/// The hash of a first component, its upper 32 bits.
fn hash_of(hasher: &NameHasher, first: &[u8]) -> u32 {
    (hasher.finish(hasher.absorb(NameHash::new(), first)) >> 29) as u32
}
