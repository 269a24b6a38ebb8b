//! Intrusion detection: rules of Snort and Suricata over the flows of a pipeline.
//!
//! ```text
//!  decode ─▶ flow ─▶ ids ─▶ firewall ─▶ …                  any shipped pipeline with [ids]
//!             │       └ drops what rules drop (`action = "inline"`)
//!             └▶ Inspector, per worker: applayer::Session ─ buffers ─▶ detect::Detector ─▶ eve.json, fast.log
//! ```
//!
//! - [`rules`] makes rules of files; [`inspect`] evaluates them; [`stage`] drops packets.
//! - [`outputs`] is where events go; [`counters`] is what `ctl show ids` and `stats` say.
//!
//! # Deliberately absent
//! - Inspection behind a firewall: it is that of the stage `flow`, whatever drops packets before `ids`.
//! - Drops by rules that match packets of no flow (ARP, broken IP): such packets are alerted.
//! - Answers to the receiver of other packets than TCP segments: it hears nothing of them.
//! - Fragments put together where a firewall or a wire forwards them one by one: what they carry is not inspected there.
//!
//! Threads: one inspector per worker. Control replaces the rules; a worker takes them over at its next chunk.

mod control_part;
pub mod counters;
pub mod explain;
pub mod inspect;
pub mod notes;
pub mod outputs;
pub mod reasons;
pub mod rules;
pub mod stage;

use control::config::{Application, Config, EngineBackend, Settings, StageKind};
use controlplane::request::TableKind;
use controlplane::{Descriptor, Findings, Interfaces};

use crate::flow;

/// The stage's name.
pub const STAGE: &str = "ids";

/// What it declares.
pub static DESCRIPTOR: Descriptor = Descriptor {
    application: &APPLICATION,
    stages: STAGES,
    reasons: &[reasons::BLOCK],
    tables: &[TableKind::new("ids", "Rules of intrusion detection with alerts")],
    variants: &[|config| (config.ids.is_on, config.ids.device) = (true, true)],
    absent: "this instance has no intrusion detection: add [ids] to the configuration and reload",
    start: control_part::start,
    check,
    ..Descriptor::NONE
};

/// What it has in the configuration.
pub static APPLICATION: Application = Application {
    name: "ids",
    title: "intrusion detection",
    sections: &["ids"],
    joins: Some(STAGE),
    behind: &[flow::STAGE],
    ..Application::NONE
};

/// Its stage.
pub const STAGES: &[StageKind] = &[StageKind {
    name: STAGE,
    about: "Searches packets, streams and transactions with rules of Snort and Suricata; drops what they drop.",
    application: &APPLICATION,
    needs: &["flow_state"],
    provides: &[],
    is_first: false,
    is_last: false,
    places: &[],
    leads_to: &[],
    settings: Settings::None,
}];

/// Whether a firewall is between the stage in which packets are inspected and the one that drops them.
fn is_behind_a_firewall(kinds: &[String]) -> bool {
    let Some(at) = kinds.iter().position(|kind| kind == STAGE) else { return false };
    let before = kinds[..at].iter().skip_while(|kind| *kind != flow::STAGE);
    { before }.any(|kind| kind == crate::firewall::STAGE)
}

/// So many rules that are replaced are named by `check`, and one other that is refused.
const REPLACED_MAX: usize = 10;

/// A context would limit what is dropped, but not what is inspected and reported.
///
/// # Errors
/// A stage has one.
fn without_context(config: &Config) -> Result<(), String> {
    let kinds = config.in_use().flat_map(|own| own.stages.iter().zip(&own.kinds));
    let names: Vec<_> = kinds.filter(|(_, kind)| *kind == STAGE).map(|(name, _)| name).collect();
    let own =
        config.stages.iter().find(|own| names.contains(&&own.name) && !own.context.is_empty());
    match own {
        None => Ok(()),
        Some(own) => Err(format!(
            "`context` of [stage.{}]: packets are inspected in the stage `flow`, whatever their context is: leave it out, and limit \
             rules by their headers, or by rules with the action `pass`",
            own.name
        )),
    }
}

/// `check`: files that cannot be read, rules that are not evaluated, packets that are inspected and do not get so far.
fn check(config: &Config, _: &Interfaces, findings: &mut Findings) {
    let has_device = config.engine.may_use(|backend| backend != EngineBackend::Cpu);
    if config.ids.device && !has_device {
        findings.warn_of_all(
            "`device` of [ids] only costs time with this back end: choose auto, opencl or cuda"
                .to_owned(),
        );
    }
    for own in config.in_use().filter(|own| is_behind_a_firewall(&own.kinds)) {
        findings.warn_of_all(format!(
            "pipeline `{}`: packets are inspected in the stage `flow`, so rules also match packets that the firewall between \
             `flow` and `ids` drops, and events report them: place `ids` before the firewall",
            own.name
        ));
    }
    if let Err(error) = without_context(config) {
        findings.error_of_all(error);
    }
    match rules::load(config, None) {
        Ok(loaded) => {
            for warning in loaded.of_files.iter().chain(&loaded.warnings) {
                findings.warn_of_all(warning.clone());
            }
            for own in &loaded.unused {
                findings.warn_of_all(format!("ids.vars: {own}"));
            }
            if let Some(first) = loaded.unset_bits.first() {
                findings.warn_of_all(format!("[ids]: {}: {first}", loaded.tested_bits()));
            }
            let named = loaded.foremost().take_while(|own| own.is_replaced).take(REPLACED_MAX);
            let other = loaded.problems.iter().find(|own| !own.is_replaced);
            let named: Vec<String> = named.chain(other).map(ToString::to_string).collect();
            if let Some((first, others)) = named.split_first() {
                let summary = loaded.summary();
                let first = format!("[ids]: {summary}; the first that is not: {first}");
                findings.warn_of_all(first);
                others.iter().for_each(|own| findings.warn_of_all(format!("[ids]: {own}")));
            }
        }
        Err(error) => findings.error_of_all(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever else is refused before it.
    #[test]
    fn replaced_rules_are_named() {
        let path = std::env::temp_dir().join(format!("shadeline-replaced-{}", std::process::id()));
        let rules = "alert ip any any -> any any (nosuch; sid:8;)\n\
                     drop ip any any -> any any (sid:7; rev:1;)\n\
                     alert ip any any -> any any (sid:7; rev:2;)\n";
        std::fs::write(&path, rules).unwrap();
        let file = path.display();
        let text = format!(
            "mode = \"monitor\"\n[port.a]\n[ids]\nclassification = \"off\"\nrules = [\"{file}\"]\n"
        );
        let (config, _) = control::config::parse(&text, &crate::known_stages()).unwrap();
        let mut findings = Findings::default();
        check(&config, &Interfaces::of(&config), &mut findings);
        std::fs::remove_file(&path).unwrap();
        let said: Vec<&str> = findings.0.iter().map(|own| own.message.as_str()).collect();
        let [first, other] = said[..] else { panic!("{said:?}") };
        let named = format!("{file}:2:1: replaced: sid 7 has revision 2 at {file}:3");
        assert!(first.starts_with("[ids]: 3 rules: 1 loaded"), "{first}");
        assert!(first.ends_with(&named), "{first}");
        assert!(other.contains("nosuch"), "{other}");
    }

    #[test]
    fn a_firewall_between_flow_and_ids_is_warned_of() {
        let said = |stages: &str| {
            let text = format!(
                "mode = \"own\"\n[port.a]\n[port.b]\n[flow]\n[ids]\n[firewall]\n[pipeline.own]\nstages = [{stages}]\n"
            );
            let (config, _) = control::config::parse(&text, &crate::known_stages()).unwrap();
            let mut findings = Findings::default();
            check(&config, &Interfaces::of(&config), &mut findings);
            findings.0.len()
        };
        assert_eq!(said("\"flow\", \"firewall\", \"ids\", \"wire\""), 1);
        assert_eq!(said("\"flow\", \"ids\", \"firewall\", \"wire\""), 0);
    }
}
