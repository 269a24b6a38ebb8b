//! The firewall: a stage that judges IP packets by the first of many rules that matches them.
//!
//! ```text
//!            ┌──────────┐  rule, one of many            ┌─▶ next stage (accept)
//!  chunk ───▶│ firewall │  or the default ──▶ action ───┼─▶ port (send), copy to a port (mirror)
//!            └──────────┘                               └─▶ drop, and an answer (reject)
//! ```
//!
//! - [`header`] says what of a packet the rules see: addresses, ports, protocol, flags, the interface. The first stage
//!   of a pipeline that decodes fills its columns.
//! - [`search`] is the step that a device can take: rules by header, and verdicts by rule.
//! - [`stage`] does the rest: counts, marks, copies, answers.
//! - [`columns`] are those of each firewall of a pipeline, by its name.
//! - [`answer`] builds what the sender of a rejected frame gets where no router is that would answer it.
//! - [`tables`] is one version of the rules ([`classify::Tables`]) and of what they do.
//! - [`hits`] counts, by rule and worker.
//! - [`commands`] and [`rows`] are what `ctl` asks of it and shows.
//!
//! The stage stands in pipelines of different applications: behind `decode` in a router, behind `bridge_in` in a
//! switch, by itself before `wire`. It never decodes what a stage before it has decoded, and it does not end its
//! segment: rows that it has settled are passed over by the next kernel. Which structure finds the rule, the tables say
//! themselves, on a device too.
//!
//! # Deliberately absent
//! - Connections: a packet is judged by its own headers. `tcp_flags` tells an opening segment from the others.
//! - Reassembly: a later fragment has no ports, and matches rules that ask for none.
//! - What tunnels carry, and frames that are not IP: these pass.
//!
//! Threads: one instance of the stage per worker; they share the tables' version and the counters.

pub mod answer;
pub mod columns;
pub mod commands;
pub mod header;
pub mod hits;
pub mod reasons;
pub mod rows;
pub mod search;
pub mod stage;
pub mod tables;

use control::config::{Application, FRAMES, StageKind};

pub use columns::Instance;
pub use header::{Header, HeaderColumns, HeaderView, Headers};
pub use hits::{Hit, Hits, Made};
pub use stage::Firewall;
pub use tables::{
    Action, Ending, FirewallOptions, FirewallPart, FirewallPatch, FirewallTables, Record,
};

/// Blocks of the reasons that the stage drops for.
pub const REASONS: &[&chunk::ReasonBlock] = &[reasons::BLOCK, kernels::reasons::BLOCK];

/// What it has in the configuration.
pub static APPLICATION: Application = Application {
    name: "firewall",
    title: "a firewall",
    sections: &["firewall", "rule"],
    port_keys: &[],
    has_host: false,
    is_promiscuous: false,
    in_pairs: false,
    requests: &["rule add", "rule replace", "rule del", "rule show"],
    metrics: &[
        "shadeline_rules",
        "shadeline_rule_packets_total",
        "shadeline_rule_bytes_total",
        "shadeline_mirror_copies_total",
        "shadeline_mirror_copies_lost_total",
        "shadeline_reject_answers_total",
        "shadeline_reject_answers_withheld_total",
    ],
    joins: Some(STAGE),
};

/// Its stage.
pub const STAGES: &[StageKind] = &[StageKind {
    name: STAGE,
    about: "Judges IP packets by the first rule that matches: accept, drop, reject, send, mark, mirror.",
    application: &APPLICATION,
    needs: &[FRAMES],
    provides: &[],
    is_first: false,
    is_last: false,
}];

/// The stage's name.
pub const STAGE: &str = "firewall";
