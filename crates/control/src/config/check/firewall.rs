//! What a firewall has.

use std::collections::HashSet;

use super::addresses::unknown_port;
use crate::config::Topic;
use crate::config::read::Spans;
use crate::config::types::*;
use crate::config::walk::{Place, Walk};
use crate::firewall::{Action, findings};

/// Questionable rules of one file that are reported one by one.
const ODD_SHOWN: usize = 3;

/// The stage that reads the rules.
const STAGE: &str = "firewall";

/// `may_be`: whether the pipeline can have a firewall.
pub(super) fn check(may_be: bool, config: &Config, spans: &Spans, walk: &mut Walk<'_>) {
    if !config.firewall.is_on {
        return;
    }
    let section = if spans.file.has("rule") { "rule" } else { "firewall" };
    if config.has_own_firewall(STAGE) {
        let message =
            format!("`{section}` has no effect: `[stage.{STAGE}]` has keys or rules of its own");
        walk.error(spans.file.at(section), message)
            .expected("all keys and rules of a firewall in one place")
            .help(format!("without them `[stage.{STAGE}]` may have a `context`"));
    }
    let has_it = |pipeline: &Pipeline| pipeline.stages.iter().any(|stage| stage == STAGE);
    if may_be && !config.in_use().any(has_it) {
        let name = &config.pipeline.name;
        // No warning: whoever writes rules relies on them, at a start and all the more at a reload.
        let message = format!(
            "`{section}` has no effect: the pipeline `{name}` has no firewall: no packet would be filtered"
        );
        walk.error(spans.file.at(section), message)
            .expected("`firewall` in its `stages`, after the first one");
    } else if may_be {
        for pipeline in config.in_use().filter(|pipeline| !pipeline.has(STAGE)) {
            let name = &pipeline.name;
            let message =
                format!("`{section}` has no effect at ports of `{name}`: it has no firewall");
            walk.warning(spans.file.at(section), message).about(Topic::Unfiltered);
        }
    }
    of_stage(config, &config.firewall, &spans.firewall, &spans.rules, walk);
}

/// The firewalls of `[stage.NAME]`, each with a pipeline that has it or not.
pub(super) fn stages(config: &Config, spans: &Spans, walk: &mut Walk<'_>) {
    for (stage, (place, rules)) in config.stages.iter().zip(&spans.stages) {
        let own = stage.settings.as_deref().and_then(|settings| settings.get::<Firewall>());
        if let Some(firewall) = own {
            of_stage(config, firewall, place, rules, walk);
        }
    }
}

/// One firewall.
fn of_stage(
    config: &Config,
    firewall: &Firewall,
    keys: &Place,
    places: &[Place],
    walk: &mut Walk<'_>,
) {
    ports(config, &firewall.default, keys.at("default"), walk);
    let mut names = HashSet::new();
    for (entry, place) in firewall.rules.iter().zip(places) {
        if !names.insert(entry.name()) {
            walk.error(place.at("name"), format!("rule `{}` is listed twice", entry.name()))
                .expected("a name that no other rule has");
        }
        ports(config, entry.action(), place.at("action"), walk);
        if let RuleEntry::One(rule) = entry
            && let Some(name) = &rule.conditions.interface
            && config.port(name).is_none()
        {
            unknown_port(config, name, place.at("in"), walk);
        }
    }
    // A file's rules have its name and a number.
    for (entry, place) in firewall.rules.iter().zip(places) {
        let twin =
            entry.name().rsplit_once(':').filter(|(_, number)| number.parse::<usize>().is_ok());
        let file = |name: &str| {
            firewall.rules.iter().any(|e| matches!(e, RuleEntry::File(_)) && e.name() == name)
        };
        if twin.is_some_and(|(name, _)| file(name)) {
            walk.error(place.at("name"), format!("`{}` is a rule of that file", entry.name()))
                .expected("another name");
        }
    }
    odd(config, firewall, places, walk);
}

/// Packets leave by ports that have queues.
fn ports(config: &Config, action: &Action, span: std::ops::Range<usize>, walk: &mut Walk<'_>) {
    for name in action.ports() {
        match config.port(name).map(|port| &port.kind) {
            None => unknown_port(config, name, span.clone(), walk),
            Some(PortKind::Vlan { parent, .. }) => {
                walk.error(span.clone(), format!("`{name}` is a subinterface"))
                    .expected(format!("a port, such as `{parent}`"))
                    .help("a packet leaves unchanged, with its tags");
            }
            Some(PortKind::Physical(_)) => {}
        }
    }
}

/// Rules that never match, or that may be left out. What is wrong comes first.
fn odd(config: &Config, firewall: &Firewall, places: &[Place], walk: &mut Walk<'_>) {
    if walk.has_errors() {
        return;
    }
    let number = |name: &str| config.ports.iter().position(|p| p.name == name).map(|n| n as u16);
    let rules: Vec<_> = rule_list(&firewall.rules).collect();
    let name = |at: usize| rules[at].0.to_string();
    let found = findings(rules.iter().map(|(_, c, a)| (*c, *a)), number);
    let mut found = found.into_iter().peekable();
    let mut begin = 0;
    for (entry, place) in firewall.rules.iter().zip(places) {
        let end = begin + entry.len();
        let mut count = 0;
        while let Some(finding) = found.next_if(|finding| finding.rule() < end) {
            count += 1;
            if count <= ODD_SHOWN {
                walk.warning(place.at("name"), finding.text(name)).about(Topic::OddRule);
            }
        }
        if count > ODD_SHOWN {
            let (more, file) = (count - ODD_SHOWN, entry.name());
            let message = format!("{more} more rules of `{file}` never match or are redundant");
            walk.warning(place.at("name"), message).about(Topic::OddRule);
        }
        begin = end;
    }
}
