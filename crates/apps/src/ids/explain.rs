//! Why a rule matched, or did not: its conditions, each as a rule of its own.
//!
//! ```text
//!  header; condition; condition; inspection (check, check) ─▶ header alone
//!                                                             header, condition 1 … n, each by itself
//!                                                             header, inspection with its first check, its first two, …
//!                                                             all without thresholds, all
//! ```
//!
//! The made rules are evaluated beside all others, by the same engine: what sets flowbits is there. A condition that cannot be
//! tried alone, because it refers to another one, is said to be so.

use std::fmt::Write;

use signatures::{Action, Buffer, Check, Compare, Inspection, Rule, RuleSet, SetOperation};

use super::counters::RuleId;

/// The generator of made rules.
const GID: u32 = 999;

/// A made rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// By which its alerts are counted.
    pub id: RuleId,
    /// What it asks for, as a rule has it.
    pub text: String,
}

/// The steps of a rule, and the text of the made rules.
///
/// # Errors
/// There is no such rule; in words.
pub fn steps(set: &RuleSet, sid: u32) -> Result<(Vec<Step>, String), String> {
    let found = set.rules.iter().find(|own| own.rule.sid == sid && own.rule.gid != GID);
    let rule = match found {
        Some(own) => &own.rule,
        None => return Err(format!("no rule that can be read has sid {sid}")),
    };
    let bare = Rule {
        action: Action::Alert,
        msg: None,
        conditions: Vec::new(),
        inspections: Vec::new(),
        threshold: None,
        detection_filter: None,
        tags: Vec::new(),
        noalert: false,
        bypass: false,
        references: Vec::new(),
        classtype: None,
        metadata: Vec::new(),
        ..rule.clone()
    };
    let mut rules = vec![bare.clone()];
    for condition in &rule.conditions {
        rules.push(Rule { conditions: vec![condition.clone()], ..bare.clone() });
    }
    for (at, inspection) in rule.inspections.iter().enumerate() {
        // What is decoded needs what decodes it.
        let decoder = match inspection.buffer {
            Buffer::Base64Data => rule.inspections[..at].iter().rev().find(|own| decodes(own)),
            _ => None,
        };
        for checks in 1..=inspection.checks.len() {
            let mut own = inspection.clone();
            own.checks.truncate(checks);
            let inspections = decoder.cloned().into_iter().chain([own]).collect();
            rules.push(Rule { inspections, ..bare.clone() });
        }
    }
    let (conditions, inspections) = (rule.conditions.clone(), rule.inspections.clone());
    let whole = Rule { conditions, inspections, ..bare };
    let (threshold, filter) = (rule.threshold, rule.detection_filter);
    let limited = threshold.is_some() || filter.is_some();
    rules.push(whole.clone());
    if limited {
        rules.push(Rule { threshold, detection_filter: filter, ..whole });
    }
    let (mut steps, mut all) = (Vec::new(), String::new());
    for (number, mut rule) in rules.into_iter().enumerate() {
        (rule.gid, rule.sid, rule.rev) = (GID, number as u32 + 1, 1);
        let asked = rule.to_string();
        rule.inspections = rule.inspections.iter().map(unwritten).collect();
        let text = rule.to_string();
        // A string takes whatever is written to it.
        let _ = writeln!(all, "{text}");
        steps.push(Step { id: (GID, rule.sid), text: shown(&asked) });
    }
    Ok((steps, all))
}

fn decodes(inspection: &Inspection) -> bool {
    inspection.checks.iter().any(|check| matches!(check, Check::Base64Decode(_)))
}

/// An inspection that writes no set: the rule itself does, and its copies would see what it wrote.
fn unwritten(inspection: &Inspection) -> Inspection {
    let writes = |check: &Check| match check {
        Check::Dataset(own) => matches!(own.operation, SetOperation::Set | SetOperation::Unset),
        _ => false,
    };
    let mut own = inspection.clone();
    own.checks.retain(|check| !writes(check));
    if own.checks.is_empty() {
        own.checks.push(Check::Bsize(Compare::GreaterOrEqual(0)));
    }
    own
}

/// The made rule without what was made.
fn shown(text: &str) -> String {
    let end = [" gid:", "(gid:"].iter().find_map(|mark| text.rfind(mark));
    let begin = &text[..end.unwrap_or(text.len())];
    begin.strip_prefix("alert ").unwrap_or(begin).trim_end_matches(['(', ' ']).to_owned()
        + if begin.contains('(') { ")" } else { "" }
}

#[cfg(test)]
mod tests {
    use signatures::{Loader, Variables};

    use super::*;

    /// The rule writes a set; what is made of it asks for all else. What is decoded comes with what decodes it.
    #[test]
    fn made_rules_write_no_set() {
        let text = br#"alert http any any -> any any (http.host; content:"a"; dataset:set,d,type string; file_data; base64_decode; base64_data; content:"b"; sid:7;)"#;
        let mut loader = Loader::new(Variables::with_defaults([], []).unwrap());
        loader.read("a", &text[..]).unwrap();
        let (steps, made) = steps(&loader.finish(), 7).unwrap();
        assert!(!made.contains("dataset"), "{made}");
        assert!(steps.iter().any(|step| step.text.contains("dataset:set,d")), "{steps:?}");
        let mut again = Loader::new(Variables::with_defaults([], []).unwrap());
        again.read("made", made.as_bytes()).unwrap();
        let set = again.finish();
        assert!(set.problems.is_empty(), "{:?}", set.problems);
        assert_eq!(set.rules.len(), steps.len());
    }

    #[test]
    fn each_condition_becomes_a_rule_that_can_be_read() {
        let text = br#"alert http any any -> any 80 (msg:"x"; flow:established,to_server; flowbits:isset,a; http.uri; content:"/a"; content:"b"; distance:0; threshold:type limit, track by_src, count 1, seconds 60; sid:7; rev:3;)"#;
        let variables = Variables::with_defaults([], []).unwrap();
        let mut loader = Loader::new(variables.clone());
        loader.read("x", &text[..]).unwrap();
        let (steps, made) = steps(&loader.finish(), 7).unwrap();
        let mut loader = Loader::new(variables);
        loader.read("made", made.as_bytes()).unwrap();
        let set = loader.finish();
        assert!(set.problems.is_empty(), "{:?}", set.problems);
        assert_eq!(set.rules.len(), steps.len());
        let texts: Vec<&str> = steps.iter().map(|step| step.text.as_str()).collect();
        assert_eq!(texts[0], "http any any -> any 80");
        assert!(texts[3].contains("http.uri; content:\"/a\";"), "{texts:?}");
        assert!(texts.last().unwrap().contains("threshold"), "{texts:?}");
        assert!(super::steps(&set, 8000).is_err());
    }
}
