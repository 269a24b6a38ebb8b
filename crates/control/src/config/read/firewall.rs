//! `[firewall]` and `[[rule]]`.

use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use ipnet::IpNet;
use toml::de::DeValue;

use super::values::*;
use crate::config::rules_file_name;
use crate::config::types::*;
use crate::config::walk::{Place, Section, Value, Walk, wrong_kind};
use crate::firewall::{Conditions, Rule, action, is_rule_name, of_classbench};

/// Problems of a rules file that are told one by one.
const PROBLEMS_SHOWN: usize = 10;

/// What a rule may be called, for messages.
const NAME: &str = "1 to 64 letters, digits or `.`, `_`, `-`, `:`, `#`, `/`, and not `default`";

pub(super) fn firewall(
    section: &mut Section<'_, '_>,
    walk: &mut Walk<'_>,
    firewall: &mut Firewall,
) {
    section.set(walk, "default", &mut firewall.default, parsed(action::EXPECTED));
    section.set(walk, "algorithm", &mut firewall.algorithm, |walk, value| {
        let name = string(walk, value)?;
        // A firewall has rules of both families.
        let known = classify::algorithms::ALGORITHMS.iter().filter(|known| known.any_fields);
        let known = known.map(|algorithm| algorithm.name);
        let mut known: Vec<_> = known.filter(|known| *known != "auto").collect();
        known.insert(0, "auto");
        if !known.contains(&name) {
            let expected = format!("one of {}", known.join(", "));
            walk.error(value.span(), format!("`algorithm` is `{name}`"))
                .nearest(name, known)
                .expected(expected);
            return None;
        }
        Some(name.to_owned())
    });
    section.set(walk, "icmp_rate", &mut firewall.icmp_rate, rate(0..=10_000_000));
    section.set(walk, "icmp_burst", &mut firewall.icmp_burst, integer(1..=1_000_000));
}

/// `None` where something is missing or wrong, and told. `number`: the rule's place in the file, from 1.
pub(super) fn rule(
    mut section: Section<'_, '_>,
    walk: &mut Walk<'_>,
    number: usize,
    folder: Option<&Path>,
) -> Option<(RuleEntry, Place)> {
    let place = section.place();
    let name = section.take(walk, "name", |walk, value| {
        let name = string(walk, value)?;
        if !is_rule_name(name) {
            walk.error(value.span(), format!("`name` is `{name}`")).expected(NAME);
            return None;
        }
        Some(name.to_owned())
    });
    let action = section.need(walk, "action", "\"drop\"", parsed(action::EXPECTED));
    if section.has("file") {
        let file = section.take(walk, "file", |walk, value| rules_file(walk, value, folder));
        section.finish(walk);
        let (path, rules) = file?;
        let name = name.or_else(|| rules_file_name(&path)).unwrap_or_else(|| format!("#{number}"));
        return Some((RuleEntry::File(RuleFile { name, path, action: action?, rules }), place));
    }
    let conditions = conditions(&mut section, walk);
    section.finish(walk);
    if let Err(problem) = conditions.check() {
        walk.error(place.at(problem.key), problem.message).expected(problem.expected);
    }
    let name = name.unwrap_or_else(|| format!("#{number}"));
    Some((RuleEntry::One(Rule { name, conditions, action: action? }), place))
}

fn conditions(section: &mut Section<'_, '_>, walk: &mut Walk<'_>) -> Conditions {
    Conditions {
        interface: section
            .take(walk, "in", |walk, value| string(walk, value).map(|port| port.into())),
        src: section.take(walk, "src", net),
        dst: section.take(walk, "dst", net),
        proto: section.take(walk, "proto", |walk, value| number_or(walk, value, "\"tcp\" or 6")),
        sport: section.take(walk, "sport", |walk, value| number_or(walk, value, PORTS)),
        dport: section.take(walk, "dport", |walk, value| number_or(walk, value, PORTS)),
        tcp_flags: section.take(walk, "tcp_flags", parsed("such as \"syn/syn,ack\"")),
        icmp_type: section.take(walk, "icmp_type", integer(0..=255)),
        icmp_code: section.take(walk, "icmp_code", integer(0..=255)),
        fragment: section.take(walk, "fragment", boolean),
    }
}

const PORTS: &str = "a port or a range such as 22 or \"1024-65535\"";

/// An address, or a prefix.
fn net(walk: &mut Walk<'_>, value: &Value<'_>) -> Option<IpNet> {
    let text = string(walk, value)?;
    match text.parse::<std::net::IpAddr>() {
        Ok(address) => Some(address.into()),
        Err(_) => prefix(walk, value),
    }
}

/// A text that says what it wants where it is wrong.
fn parsed<T: FromStr<Err: std::fmt::Display>>(
    expected: &'static str,
) -> impl Fn(&mut Walk<'_>, &Value<'_>) -> Option<T> {
    move |walk, value| {
        let DeValue::String(text) = value.get_ref() else {
            return wrong_kind(walk, value, expected);
        };
        told(walk, value, text)
    }
}

/// A text, or a number that says the same.
fn number_or<T: FromStr<Err: std::fmt::Display>>(
    walk: &mut Walk<'_>,
    value: &Value<'_>,
    expected: &'static str,
) -> Option<T> {
    match value.get_ref() {
        DeValue::String(text) => told(walk, value, text),
        DeValue::Integer(number) if number.radix() == 10 => {
            told(walk, value, &number.as_str().replace('_', ""))
        }
        _ => wrong_kind(walk, value, expected),
    }
}

fn told<T: FromStr<Err: std::fmt::Display>>(
    walk: &mut Walk<'_>,
    value: &Value<'_>,
    text: &str,
) -> Option<T> {
    text.parse()
        .map_err(|error: T::Err| {
            let message = error.to_string();
            let (message, expected) = match message.split_once(": expected ") {
                Some((message, expected)) => (message.to_owned(), Some(expected.to_owned())),
                None => (message, None),
            };
            let message = format!("{}: {message}", walk.subject());
            let diagnostic = walk.error(value.span(), message);
            if let Some(expected) = expected {
                diagnostic.expected(expected);
            }
        })
        .ok()
}

/// A ClassBench file, read where there is a folder to look in.
fn rules_file(
    walk: &mut Walk<'_>,
    value: &Value<'_>,
    folder: Option<&Path>,
) -> Option<(std::path::PathBuf, Arc<[Conditions]>)> {
    let file = string(walk, value)?;
    let Some(folder) = folder else { return Some((file.into(), Arc::default())) };
    let path = folder.join(file);
    match classify::classbench::read_rules(&path) {
        Ok(rules) => {
            let flags = rules.flags.iter().flatten().filter(|(_, mask)| *mask != 0).count();
            if flags > 0 {
                let message =
                    format!("{}: the TCP flags of {flags} rules are left out", path.display());
                walk.warning(value.span(), message)
                    .help("the format does not say which flags it means; [[rule]] has `tcp_flags`");
            }
            let conditions = of_classbench(&rules);
            let never = conditions.iter().filter(|conditions| conditions.check().is_err()).count();
            if never > 0 {
                let message = format!(
                    "{}: {never} rules ask for ports of a protocol without",
                    path.display()
                );
                walk.warning(value.span(), message).help("they never match");
            }
            Some((path, conditions.into()))
        }
        Err(problems) => {
            for problem in problems.first.iter().take(PROBLEMS_SHOWN) {
                walk.error(value.span(), format!("{}, {problem}", path.display()));
            }
            let more = problems.count.saturating_sub(PROBLEMS_SHOWN as u64);
            if more > 0 {
                let message = format!("{}: and {more} more", path.display());
                walk.error(value.span(), message);
            }
            None
        }
    }
}
