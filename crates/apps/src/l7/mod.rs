//! The application of each flow, whatever its ports are: by the first bytes of both directions.
//!
//! ```text
//!  decode ─▶ flow ─▶ l7 ─▶ firewall ─▶ …       a router, switch, wire or monitor with [l7]
//!             │      └ column `l7_application`, contexts of applications
//!             └▶ Labels (a follower) ─▶ Labelling, one a flow: crate `l7proto`, patterns of a user
//!                       ├▶ Gathered ─▶ the stage
//!                       └▶ records of flows: `app_proto` of events
//! ```
//!
//! - [`labelling`] is what is known of a flow; [`label`] is the result; [`details`] reads names and fingerprints for
//!   `shadeline l7`.
//! - [`patterns`] are those of a user, in files as l7-filter has them.
//! - [`follow`] is the follower, [`gather`] what it leaves for the [`stage`].
//!
//! | | |
//! | --- | --- |
//! | reads | `flow_state`, `flow_slot` |
//! | writes | `l7_application` ([`columns`]), `context` |
//! | next | all packets |
//!
//! A label may come later than the first packets of its flow, and a label that is only likely may change: what is behind goes by
//! the column of each packet. A firewall's answers for established flows are kept by all that its rules see, and the application
//! is among that.
//!
//! # Deliberately absent
//! - A device form: a label needs bytes in order, which the tracker of a worker has. A firewall whose rules ask for applications
//!   is searched on the CPU.
//! - Flows that turn to TLS later (STARTTLS) keep the label of the plain protocol.
//!
//! Threads: one instance of stage and follower per worker.

pub mod columns;
mod control_part;
pub mod details;
pub mod follow;
pub mod gather;
pub mod label;
pub mod labelling;
pub mod patterns;
pub mod stage;

use control::config::{Application, Config, Pipeline, Settings, StageKind};
use controlplane::request::TableKind;
use controlplane::{Descriptor, Findings, Interfaces};

use crate::flow;

pub use columns::{L7Columns, L7View};

/// The stage's name.
pub const STAGE: &str = "l7";

/// What it declares.
pub static DESCRIPTOR: Descriptor = Descriptor {
    application: &APPLICATION,
    stages: STAGES,
    tables: &[TableKind::new("applications", "Flows, packets and bytes by application")],
    absent: "this instance labels no flows: add [l7] to the configuration and reload; a [pipeline.NAME] of the file needs \
             the stage `l7` behind `flow`",
    check,
    start: control_part::start,
    ..Descriptor::NONE
};

/// What it has in the configuration.
pub static APPLICATION: Application = Application {
    name: "l7",
    title: "application labels",
    sections: &["l7"],
    joins: Some(STAGE),
    behind: &[flow::STAGE],
    ..Application::NONE
};

/// Its stage.
pub const STAGES: &[StageKind] = &[StageKind {
    name: STAGE,
    about: "Labels flows with their application, for rules, contexts and events.",
    application: &APPLICATION,
    needs: &["flow_state"],
    provides: &["l7_application"],
    is_first: false,
    is_last: false,
    places: &[],
    leads_to: &[],
    settings: Settings::None,
}];

/// What is wrong with a name that no application has, known without files or by the patterns of the configuration.
fn unknown(name: &str, options: &labelling::Options) -> Option<String> {
    let of_files = options.patterns.iter().flat_map(|patterns| patterns.all());
    let all: Vec<&str> = label::names().chain(of_files.map(|own| own.name)).collect();
    let meant = control::config::nearest(name, all.iter().copied());
    let meant = meant.map_or_else(String::new, |own| format!(", did you mean `{own}`?"));
    (!all.contains(&name)).then(|| format!("unknown application `{name}`{meant}"))
}

/// `check`: patterns that cannot be read, names that no application has.
fn check(config: &Config, _: &Interfaces, findings: &mut Findings) {
    let options = match control_part::options(config) {
        Ok(options) => options,
        Err(error) => return findings.error_of_all(error),
    };
    for (name, _) in &config.l7.contexts {
        if let Some(unknown) = unknown(name, &options) {
            findings.error_of_all(format!("l7.contexts: {unknown}"));
        }
    }
    let named = |pipeline: &Pipeline| -> Vec<String> {
        pipeline.named(crate::firewall::STAGE).map(str::to_owned).collect()
    };
    for stage in config.in_use().flat_map(named).collect::<std::collections::BTreeSet<_>>() {
        let Some(firewall) = config.firewall_of(&stage) else { continue };
        for (rule, conditions, _) in control::config::rule_list(&firewall.rules) {
            let name = conditions.application.as_deref();
            if let Some(unknown) = name.and_then(|name| unknown(name, &options)) {
                findings.warn_of_all(format!("{stage}: rule `{rule}` never matches: {unknown}"));
            }
        }
    }
}
