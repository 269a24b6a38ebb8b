//! Rules in order: their words, and what is odd about them.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use classify::check::{Warning, check};
use classify::classbench::RulesFile;
use classify::filter::{schema_v4, schema_v4_wide, schema_v6, schema_v6_wide};
use classify::{Condition, RuleRef, RuleSet, Schema};
use ipnet::{IpNet, Ipv4Net};

use super::action::Action;
use super::conditions::{Conditions, Family, Ports, Protocol};

/// The schema of a family, for rules of which one asks for an application or none does.
pub fn schema(family: Family, has_applications: bool) -> Arc<Schema> {
    match (family, has_applications) {
        (Family::V4, false) => schema_v4(),
        (Family::V6, false) => schema_v6(),
        (Family::V4, true) => schema_v4_wide(),
        (Family::V6, true) => schema_v6_wide(),
    }
}

/// Words of a rule in a family's set; `None` where no packet of the family matches. `number` gives the number of
/// an interface.
///
/// # Errors
/// What contradicts itself, or names an interface that does not exist.
pub fn words(
    conditions: &Conditions,
    schema: &Schema,
    family: Family,
    number: impl Fn(&str) -> Option<u16>,
) -> Result<Option<Box<[u32]>>, String> {
    if !conditions.is_of(family) {
        return Ok(None);
    }
    let interface = match conditions.interface.as_deref() {
        None => None,
        Some(name) => {
            let number = number(name).ok_or_else(|| format!("there is no port `{name}`"))?;
            if number > classify::filter::INTERFACE_MAX {
                return Err(format!(
                    "port `{name}` is not among the first 1024 ports, the only ones that rules can name"
                ));
            }
            Some(number)
        }
    };
    conditions.words(schema, interface).map(Some)
}

/// Conditions of the rules of a ClassBench file, in order.
pub fn of_classbench(file: &RulesFile) -> Vec<Conditions> {
    let schema = file.set.schema();
    let net = |condition| match condition {
        Condition::Prefix { value, len: len @ 1.. } => {
            Ipv4Net::new(Ipv4Addr::from_bits(value as u32), len).ok().map(IpNet::V4)
        }
        _ => None,
    };
    let ports = |condition| match condition {
        Condition::Range { low, high } => {
            Some(Ports::new(low as u16, high as u16)).filter(|ports| !ports.is_all())
        }
        _ => None,
    };
    let every = file.set.iter().map(|rule| {
        let proto = match schema.condition(rule.words, 4) {
            Condition::Mask { value, mask: 0xff } => Some(Protocol(value as u8)),
            _ => None,
        };
        // Headers of a protocol without ports have zeros in their place.
        let without = proto.is_some_and(|proto| !proto.has_ports());
        let ports =
            |field| ports(schema.condition(rule.words, field)).filter(|p| !without || !p.has(0));
        Conditions {
            src: net(schema.condition(rule.words, 0)).or_else(|| any_v4(schema, rule)),
            dst: net(schema.condition(rule.words, 1)),
            sport: ports(2),
            dport: ports(3),
            proto,
            ..Conditions::default()
        }
    });
    every.collect()
}

/// `0.0.0.0/0` where neither address says that the rule is IPv4's: a ClassBench file knows no other family.
fn any_v4(schema: &Schema, rule: RuleRef<'_>) -> Option<IpNet> {
    let is_any =
        |field| matches!(schema.condition(rule.words, field), Condition::Prefix { len: 0, .. });
    is_any(1).then(|| IpNet::V4(Ipv4Net::default()))
}

/// One finding. Numbers are places in the order, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding {
    /// `rule` never matches: the earlier rule `by` is before it and matches all that it does.
    Shadowed {
        /// The rule.
        rule: usize,
        /// The one before it.
        by: usize,
    },
    /// `rule` is redundant: the later rule `by` does the same.
    Redundant {
        /// The rule.
        rule: usize,
        /// The one behind it.
        by: usize,
    },
}

impl Finding {
    /// The rule that it is about.
    pub fn rule(self) -> usize {
        match self {
            Self::Shadowed { rule, .. } | Self::Redundant { rule, .. } => rule,
        }
    }

    /// In words; `name` gives those of rules.
    pub fn text(self, name: impl Fn(usize) -> String) -> String {
        match self {
            Self::Shadowed { rule, by } => format!(
                "rule `{}` never matches: the earlier rule `{}` covers it",
                name(rule),
                name(by)
            ),
            Self::Redundant { rule, by } => format!(
                "rule `{}` is redundant: the later rule `{}` does the same",
                name(rule),
                name(by)
            ),
        }
    }
}

/// Findings about rules, in order. A rule that packets of both families may match is reported only if the same holds
/// in both; then the finding is the first family's. `number` is as in [`words`]; rules without words are left out.
pub fn findings<'a>(
    rules: impl Iterator<Item = (&'a Conditions, &'a Action)> + Clone,
    number: impl Fn(&str) -> Option<u16>,
) -> Vec<Finding> {
    let mut actions: HashMap<&Action, u32> = HashMap::new();
    // By rule: how many families it is of, and the warnings of these.
    let mut by_rule: HashMap<u32, Vec<Warning>> = HashMap::new();
    let has_applications = rules.clone().any(|(conditions, _)| conditions.application.is_some());
    for family in Family::both() {
        let schema = schema(family, has_applications);
        let mut set = RuleSet::new(schema.clone());
        let (mut places, mut kinds) = (Vec::new(), Vec::new());
        for (place, (conditions, action)) in rules.clone().enumerate() {
            let Ok(Some(words)) = words(conditions, &schema, family, &number) else { continue };
            let at = places.len() as u32;
            if set.push(RuleRef { words: &words, priority: at, id: at }).is_ok() {
                places.push(place as u32);
                let count = actions.len() as u32;
                kinds.push(*actions.entry(action).or_insert(count));
            }
        }
        let of = |at: u32| places[at as usize];
        for warning in check(&set, &kinds) {
            let warning = match warning {
                Warning::Shadowed { rule, by, same } => {
                    Warning::Shadowed { rule: of(rule), by: of(by), same }
                }
                Warning::Redundant { rule, by } => {
                    Warning::Redundant { rule: of(rule), by: of(by) }
                }
            };
            by_rule.entry(warning.rule()).or_default().push(warning);
        }
    }
    let mut findings = Vec::new();
    for (place, (conditions, _)) in rules.enumerate() {
        let Some(warnings) = by_rule.get(&(place as u32)) else { continue };
        let families = Family::both().iter().filter(|f| conditions.is_of(**f)).count();
        if warnings.len() < families {
            continue;
        }
        // A rule that is shadowed in one family and redundant in the other is redundant.
        let shadowed = warnings.iter().all(|w| matches!(w, Warning::Shadowed { .. }));
        let first = warnings.iter().find(|w| matches!(w, Warning::Shadowed { .. }) == shadowed);
        findings.extend(first.map(|warning| match *warning {
            Warning::Shadowed { by, .. } => Finding::Shadowed { rule: place, by: by as usize },
            Warning::Redundant { by, .. } => Finding::Redundant { rule: place, by: by as usize },
        }));
    }
    findings
}

/// What is odd about one rule of a set, at `place`, and what it makes odd of others: rules behind it that it
/// shadows. For a set whose other rules were looked at before; time is about their number.
pub fn findings_of_one<'a>(
    rules: impl Iterator<Item = (&'a Conditions, &'a Action)> + Clone,
    place: usize,
    number: impl Fn(&str) -> Option<u16>,
) -> Vec<Finding> {
    let Some((own, _)) = rules.clone().nth(place) else { return Vec::new() };
    let families: Vec<_> = Family::both().into_iter().filter(|family| own.is_of(*family)).collect();
    let schemas: Vec<_> = families.iter().map(|family| schema(*family, true)).collect();
    let words_of = |conditions: &Conditions, at: usize| {
        words(conditions, &schemas[at], families[at], &number).ok().flatten()
    };
    let own: Vec<_> = (0..families.len()).map(|at| words_of(own, at)).collect();
    // Whether one of both matches all that the other does, in every family that the other is of.
    let covers = |inner_is_own: bool, other: &Conditions| {
        (0..families.len()).all(|at| match (&own[at], words_of(other, at)) {
            (Some(own), Some(other)) if inner_is_own => schemas[at].covers(&other, own),
            (Some(own), Some(other)) => schemas[at].covers(own, &other),
            (_, None) => !inner_is_own,
            (None, _) => false,
        })
    };
    let overlaps = |other: &Conditions| {
        (0..families.len()).any(|at| match (&own[at], words_of(other, at)) {
            (Some(own), Some(other)) => schemas[at].overlap(own, &other),
            _ => false,
        })
    };
    let mut found = Vec::new();
    let mut actions = rules.clone();
    let Some((conditions, action)) = actions.nth(place) else { return found };
    for (by, (other, _)) in rules.clone().enumerate().take(place) {
        if covers(true, other) {
            return vec![Finding::Shadowed { rule: place, by }];
        }
    }
    let mut is_open = true;
    for (at, (other, other_action)) in rules.enumerate().skip(place + 1) {
        let is_inside = Family::both().iter().all(|f| !other.is_of(*f) || conditions.is_of(*f));
        if is_inside && covers(false, other) {
            found.push(Finding::Shadowed { rule: at, by: place });
        }
        if is_open && action == other_action && covers(true, other) {
            found.push(Finding::Redundant { rule: place, by: at });
            is_open = false;
        } else if is_open && action != other_action && overlaps(other) {
            is_open = false;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(texts: &[(&str, &str)]) -> Vec<(Conditions, Action)> {
        let rule = |(json, action): &(&str, &str)| {
            (serde_json::from_str(json).unwrap(), action.parse().unwrap())
        };
        texts.iter().map(rule).collect()
    }

    fn all(rules: &[(Conditions, Action)]) -> Vec<Finding> {
        findings(rules.iter().map(|(c, a)| (c, a)), |_| Some(1))
    }

    fn one(rules: &[(Conditions, Action)], place: usize) -> Vec<Finding> {
        findings_of_one(rules.iter().map(|(c, a)| (c, a)), place, |_| Some(1))
    }

    #[test]
    fn odd_rules_are_found_in_the_families_that_they_are_of() {
        let set = rules(&[
            (r#"{"src":"10.0.0.0/8"}"#, "drop"),
            (r#"{"src":"10.1.0.0/16","proto":"tcp","dport":"22"}"#, "accept"), // shadowed
            (r#"{"proto":"tcp","dport":"22"}"#, "accept"),                     // IPv6 has no such
            (r#"{"src":"2001:db8::/32"}"#, "drop"),                            // may be left out
            (r#"{}"#, "drop"),
            (r#"{"in":"lan"}"#, "drop"), // shadowed
        ]);
        let found = [Finding::Redundant { rule: 3, by: 4 }, Finding::Shadowed { rule: 5, by: 4 }];
        assert_eq!(all(&set)[1..], found);
        assert_eq!(all(&set)[0], Finding::Shadowed { rule: 1, by: 0 });
        assert_eq!(one(&set, 1), [Finding::Shadowed { rule: 1, by: 0 }]);
        assert_eq!(one(&set, 2), []);
        assert_eq!(one(&set, 3), [Finding::Redundant { rule: 3, by: 4 }]);
        assert_eq!(one(&set, 4), [Finding::Shadowed { rule: 5, by: 4 }]);
        assert_eq!(one(&set, 0), [Finding::Shadowed { rule: 1, by: 0 }]);
        assert_eq!(one(&set, 9), []);
        let text = Finding::Shadowed { rule: 1, by: 0 }.text(|at| format!("#{at}"));
        assert_eq!(text, "rule `#1` never matches: the earlier rule `#0` covers it");
    }

    #[test]
    fn a_rule_of_both_families_is_odd_only_in_both() {
        let set = rules(&[
            (r#"{"src":"0.0.0.0/0"}"#, "drop"),
            (r#"{"proto":"udp"}"#, "drop"),
            (r#"{"src":"::/0"}"#, "accept"),
            (r#"{"proto":"tcp"}"#, "drop"),
        ]);
        assert_eq!(all(&set), [Finding::Shadowed { rule: 3, by: 0 }]);
        assert_eq!(one(&set, 0), [], "of both families, and only half of it is covered");
        assert_eq!(one(&set, 1), []);
    }

    #[test]
    fn classbench_rules_are_ipv4s() {
        let text = b"@0.0.0.0/0 0.0.0.0/0 0 : 65535 0 : 65535 0x00/0x00\n\
            @10.0.0.0/8 192.0.2.1/32 0 : 65535 80 : 90 0x06/0xFF\n\
            @0.0.0.0/0 10.0.0.0/8 0 : 0 0 : 7 0x01/0xFF\n\
            @0.0.0.0/0 10.0.0.0/8 0 : 0 1 : 7 0x01/0xFF\n";
        let file = classify::classbench::parse_rules(text).unwrap();
        let rules = of_classbench(&file);
        assert_eq!(rules[0].to_string(), "src 0.0.0.0/0");
        assert!(!rules[0].is_of(Family::V6));
        assert_eq!(rules[1].to_string(), "proto tcp src 10.0.0.0/8 dst 192.0.2.1/32 dport 80-90");
        assert_eq!(rules[2].to_string(), "proto icmp dst 10.0.0.0/8");
        assert_eq!(rules[3].check().unwrap_err().key, "dport");
        // Ports without a protocol: packets without ports do not match.
        let words = words(&rules[1], &schema(Family::V4, false), Family::V4, |_| None).unwrap();
        assert!(words.is_some());
    }
}
