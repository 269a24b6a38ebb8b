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
//! - `flow_cache` keeps the rules of established flows.
//! - [`answer`] builds what the sender of a rejected frame gets where no router is that would answer it.
//! - [`tables`] is one version of the rules ([`classify::Tables`]) and of what they do.
//! - [`hits`] counts, by rule and worker.
//! - [`refused`] tells the stage `flow` of packets that rules dropped, for events.
//!
//! The stage is in pipelines of different applications: behind `decode` in a router, behind `bridge_in` in a
//! switch, by itself before `wire`. It never decodes what a stage before it has decoded, and it does not end its
//! segment: rows that it has settled are passed over by the next kernel. Which structure finds the rule, the tables say
//! themselves, on a device too.
//!
//! # Deliberately absent
//! - Connections of its own: the stage `flow` before it tracks flows, and says the state of each packet, which rules may ask
//!   for.
//! - What an application is: the stage `l7` before it labels flows, and rules may ask for the name of one.
//! - Reassembly: a later fragment has no ports, and matches rules that ask for none.
//! - What tunnels carry, and frames that are not IP: these pass.
//!
//! Threads: one instance of the stage per worker; they share the tables' version and the counters.

pub mod answer;
pub mod columns;
pub mod commands;
mod control_part;
mod flow_cache;
pub mod header;
pub mod hits;
mod ids;
pub mod kernels;
mod knows;
pub mod reasons;
pub mod refused;
pub mod rows;
mod rule_list;
mod save;
pub mod search;
pub mod stage;
pub mod tables;

use std::collections::BTreeSet;

use control::config::{Application, Config, FRAMES, Pipeline, Settings, StageKind};
use controlplane::{Descriptor, Findings, Interfaces};

pub use columns::Instance;
pub use header::{Header, HeaderColumns, HeaderView, Headers};
pub use hits::{Hit, Hits, Made};
pub use stage::Firewall;
pub use tables::{
    Action, Ending, FirewallOptions, FirewallPart, FirewallPatch, FirewallTables, Record,
};

/// Blocks of the reasons that the stage drops for.
pub const REASONS: &[&chunk::ReasonBlock] = &[reasons::BLOCK, ::kernels::reasons::BLOCK];

/// What it declares.
pub static DESCRIPTOR: Descriptor = Descriptor {
    application: &APPLICATION,
    stages: STAGES,
    pipeline: &[],
    kernels: kernels::FILES,
    reasons: REASONS,
    requests: commands::REQUESTS,
    tables: commands::TABLES,
    groups: commands::GROUPS,
    names: commands::NAMES,
    modules: &[],
    absent: "this instance has no firewall: add [firewall] or a [[rule]] to the configuration and reload; a [pipeline.NAME] of the \
             file needs the stage `firewall`",
    check,
    start: control_part::start,
    ..Descriptor::NONE
};

/// Adds the structures of a configuration that cannot hold their rules.
fn check(config: &Config, interfaces: &Interfaces, findings: &mut Findings) {
    let names = config.in_use().flat_map(|pipeline| pipeline.named(STAGE));
    // Pipelines may share a firewall.
    let names: BTreeSet<&str> = names.collect();
    for error in names
        .into_iter()
        .filter_map(|name| rule_list::RuleList::new(name, config, interfaces).err())
    {
        findings.error_of_all(error);
    }
}

/// Whether the stage at a place of a pipeline comes behind one of this kind.
fn is_behind(pipeline: &Pipeline, place: Option<usize>, kind: &str) -> bool {
    let before = pipeline.kinds.iter().take(place.unwrap_or(0));
    before.into_iter().any(|own| own == kind)
}

/// What it has in the configuration.
pub static APPLICATION: Application = Application {
    name: "firewall",
    title: "a firewall",
    sections: &["firewall", "rule"],
    port_keys: &[],
    has_host: false,
    is_promiscuous: false,
    in_pairs: false,
    joins: Some(STAGE),
    joins_for: &[],
    joins_when: None,
    behind: &[crate::flow::STAGE, crate::l7::STAGE],
    parts: None,
    joins_end: None,
};

/// Its stage.
pub const STAGES: &[StageKind] = &[StageKind {
    name: STAGE,
    about: "Applies the first rule that matches an IP packet: accept, drop, reject, send, dump, mark, mirror, context.",
    application: &APPLICATION,
    needs: &[FRAMES],
    provides: &[],
    is_first: false,
    is_last: false,
    places: &[],
    leads_to: &[],
    settings: Settings::Rules,
}];

/// The stage's name.
pub const STAGE: &str = "firewall";
