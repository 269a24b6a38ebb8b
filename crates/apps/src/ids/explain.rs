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
use std::io::{self, BufRead};
use std::path::PathBuf;

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

/// A rule that is explained, and why it may be silent whatever it matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explained {
    /// The rule.
    pub rule: Rule,
    /// The file that has it.
    pub file: String,
    /// The line where it begins, from 1.
    pub line: u64,
    /// It is behind `#`.
    pub is_disabled: bool,
}

impl Explained {
    /// It passes what it matches.
    pub fn passes(&self) -> bool {
        self.rule.action == Action::Pass
    }
}

/// Other rules than that with a sid, whose matches hide packets and flows from it, and what they do with those.
pub fn hiding(set: &RuleSet, sid: u32, is_inline: bool) -> Vec<(RuleId, &'static str)> {
    let others = set.rules.iter().map(|own| &own.rule).filter(|own| own.sid != sid);
    let hides = |own: &Rule| match own.action {
        Action::Pass => Some(((own.gid, own.sid), "passes")),
        Action::Alert | Action::Log => None,
        _ => is_inline.then_some(((own.gid, own.sid), "drops")),
    };
    others.filter_map(hides).collect()
}

/// The rule with a sid: one that is evaluated or refused, or is in one of these files behind `#`.
///
/// # Errors
/// There is no such rule, a file cannot be read, or the rule cannot; in words.
pub fn find(set: &RuleSet, files: &[PathBuf], sid: u32) -> Result<Explained, String> {
    let known = set.rules.iter().find(|own| own.rule.sid == sid && own.rule.gid != GID);
    if let Some(own) = known {
        let (rule, file, line) = (own.rule.clone(), set.files[own.file].clone(), own.line);
        return Ok(Explained { rule, file, line, is_disabled: false });
    }
    let mut disabled = None;
    for path in files {
        let file = path.display().to_string();
        let opened = files::input::open(path).map_err(|error| format!("{file}: {error}"))?;
        let found = written(opened, sid).map_err(|error| format!("{file}: {error}"))?;
        for Written { line, text, is_disabled } in found {
            let rule = Rule::parse(&text).map_err(|own| {
                let (line, column) = (line + own.line - 1, own.column);
                format!("rule {sid} cannot be read: {file}:{line}:{column}: {}", own.message())
            });
            match (rule, is_disabled) {
                (Ok(rule), false) => return Ok(Explained { rule, file, line, is_disabled }),
                (Err(error), false) => return Err(error),
                (rule, true) => {
                    let own = |rule| Explained { rule, file: file.clone(), line, is_disabled };
                    disabled = disabled.or(Some(rule.map(own)));
                }
            }
        }
    }
    disabled.unwrap_or_else(|| Err(format!("no rule has sid {sid}")))
}

/// A rule as a file has it.
struct Written {
    line: u64,
    text: Vec<u8>,
    is_disabled: bool,
}

/// Rules with this sid, behind `#` or not.
fn written(reader: impl BufRead, sid: u32) -> io::Result<Vec<Written>> {
    let (mut all, mut text, mut begin) = (Vec::new(), Vec::new(), 1);
    for (line, number) in reader.split(b'\n').zip(1..) {
        let line = line?;
        if text.is_empty() {
            begin = number;
        }
        if text.len() + line.len() <= 2 * signatures::RULE_BYTES_MAX {
            text.extend_from_slice(line.strip_suffix(b"\r").unwrap_or(&line));
        }
        if line.trim_ascii_end().ends_with(b"\\") {
            text.push(b'\n');
            continue;
        }
        let whole = std::mem::take(&mut text);
        let start = whole.trim_ascii_start();
        let is_disabled = start.starts_with(b"#");
        let hashes = start.iter().take_while(|byte| **byte == b'#' || byte.is_ascii_whitespace());
        let rule = if is_disabled { &start[hashes.count()..] } else { start };
        if has_sid(rule, sid) {
            all.push(Written { line: begin, text: rule.to_vec(), is_disabled });
        }
    }
    Ok(all)
}

/// Whether a text has the option `sid` with this number.
fn has_sid(text: &[u8], sid: u32) -> bool {
    let number = sid.to_string();
    let at = |start: usize| {
        let rest = text[start + 3..].trim_ascii_start().strip_prefix(b":")?;
        let rest = rest.trim_ascii_start().strip_prefix(number.as_bytes())?;
        rest.trim_ascii_start().strip_prefix(b";")
    };
    let starts = text.windows(3).enumerate().filter(|(_, own)| *own == b"sid");
    { starts }.any(|(start, _)| {
        let before = text[..start].trim_ascii_end().last();
        matches!(before, Some(b';' | b'(')) && at(start).is_some()
    })
}

/// The steps of a rule, and the text of the made rules.
pub fn steps(rule: &Rule) -> (Vec<Step>, String) {
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
        unsupported: Vec::new(),
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
    (steps, all)
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
        let (steps, made) = steps(&loader.finish().rules[0].rule);
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
        let (steps, made) = steps(&loader.finish().rules[0].rule);
        let mut loader = Loader::new(variables);
        loader.read("made", made.as_bytes()).unwrap();
        let set = loader.finish();
        assert!(set.problems.is_empty(), "{:?}", set.problems);
        assert_eq!(set.rules.len(), steps.len());
        let texts: Vec<&str> = steps.iter().map(|step| step.text.as_str()).collect();
        assert_eq!(texts[0], "http any any -> any 80");
        assert!(texts[3].contains("http.uri; content:\"/a\";"), "{texts:?}");
        assert!(texts.last().unwrap().contains("threshold"), "{texts:?}");
    }
}
