//! The files beside the rules: `classification.config`, `reference.config`, `threshold.config`.
//!
//! Each is read line by line; a wrong line is a problem and the others apply. Lines may end in `\` to go on.

use std::collections::HashMap;
use std::io::{self, BufRead};

use crate::keywords::{Arg, Part, Rate, threshold, track};
use crate::list::clip;
use crate::problem::Fault;
use crate::text::{Entry, Joined, Lines};
use crate::{AddressItem, List, PROBLEMS_MAX, Problem, Threshold, Track};

/// What was read of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Read<T> {
    /// What is right in it.
    pub found: T,
    /// What is not: the first [`PROBLEMS_MAX`].
    pub problems: Vec<Problem>,
}

/// A class of rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// What an alert shows.
    pub description: String,
    /// Of rules that have none of their own.
    pub priority: u8,
}

/// Reads lines `config classification: NAME,DESCRIPTION,PRIORITY`: classes by name, in small letters. The first of a name
/// applies, a second one is a problem.
///
/// # Errors
/// The reader fails.
pub fn classifications(reader: impl BufRead) -> io::Result<Read<HashMap<String, Class>>> {
    read(reader, |line, found: &mut HashMap<String, Class>| {
        let value = directive(line, "classification")?;
        let parts: Vec<Part<'_>> = value.split(',');
        let [name, description, priority] = parts.as_slice() else {
            return Err(Fault::new(value.at, "it is written `NAME,DESCRIPTION,PRIORITY`"));
        };
        let key = name.name()?.to_ascii_lowercase();
        let priority = match priority.number(255)? as u8 {
            0 => return Err(Fault::new(value.at, "a priority is 1 to 255")),
            priority => priority,
        };
        if found.contains_key(&key) {
            return Err(Fault::new(value.at, format!("`{key}` is listed twice")));
        }
        found.insert(key, Class { description: description.text.to_owned(), priority });
        Ok(())
    })
}

/// Reads lines `config reference: SYSTEM URL`: the beginnings of addresses by system, in small letters. A later line of a
/// system replaces an earlier one.
///
/// # Errors
/// The reader fails.
pub fn references(reader: impl BufRead) -> io::Result<Read<HashMap<String, String>>> {
    read(reader, |line, found: &mut HashMap<String, String>| {
        let value = directive(line, "reference")?;
        let (system, url) = value.part().pair();
        if url.text.is_empty() {
            return Err(Fault::new(value.at, "it is written `SYSTEM URL`"));
        }
        if url.text.contains(|c: char| c.is_ascii_whitespace()) {
            return Err(Fault::new(url.at, "the URL has white space"));
        }
        found.insert(system.to_ascii_lowercase(), url.text.to_owned());
        Ok(())
    })
}

/// A line of `threshold.config`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Its line.
    pub line: u64,
    /// Of rules with this gid; of all where it is 0.
    pub gid: u32,
    /// Of the rule with this sid; of all where it is 0.
    pub sid: u32,
    /// What it does.
    pub kind: LimitKind,
}

/// What a line of `threshold.config` does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitKind {
    /// No alerts; where there are addresses, of these only.
    Suppress(Option<Suppressed>),
    /// As the option `threshold`.
    Threshold(Threshold),
    /// Another action after `count` matches in `seconds`.
    Rate {
        /// What is counted together.
        track: Track,
        /// Matches.
        count: u32,
        /// The window.
        seconds: u32,
        /// The action.
        action: RateAction,
        /// Seconds for which it applies.
        timeout: u32,
    },
}

/// Whose alerts are suppressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suppressed {
    /// Which end the addresses are of.
    pub by: SuppressedBy,
    /// The addresses.
    pub addresses: List<AddressItem>,
}

/// Which end of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SuppressedBy {
    /// `by_src`
    Source,
    /// `by_dst`
    Destination,
    /// `by_either`
    Either,
}

/// The action of a rate filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RateAction {
    /// `alert`
    Alert,
    /// `drop`
    Drop,
    /// `pass`
    Pass,
    /// `log`
    Log,
    /// `reject`
    Reject,
    /// `sdrop`
    SilentDrop,
}

/// Reads lines `suppress gen_id G, sig_id S[, track by_src, ip LIST]`, `threshold …` (or `event_filter …`) and
/// `rate_filter …`, in order.
///
/// # Errors
/// The reader fails.
pub fn thresholds(reader: impl BufRead) -> io::Result<Read<Vec<Limit>>> {
    read(reader, |line, found: &mut Vec<Limit>| {
        let text = utf8(line)?;
        let (word, rest) = Part { at: 0, text }.pair();
        let lead = Value { at: rest.at, text: rest.text };
        let (line, _) = line.place(0);
        let mut ids = Ids::default();
        let kind = match word {
            "suppress" => suppress(lead, &mut ids)?,
            "threshold" | "event_filter" => {
                let mut parts = Vec::new();
                for part in lead.split(',') {
                    if !ids.take(&part)? {
                        parts.push(part);
                    }
                }
                let arg = Arg::new(lead.at, None);
                LimitKind::Threshold(threshold(&parts, &arg)?)
            }
            "rate_filter" => rate(lead, &mut ids)?,
            word => {
                let reason = format!("unknown directive `{}`", clip(word));
                let known = &["suppress", "threshold", "event_filter", "rate_filter"];
                return Err(Fault::unknown(0, reason, known, word));
            }
        };
        let (gid, sid) = ids.both(lead.at)?;
        found.push(Limit { line, gid, sid, kind });
        Ok(())
    })
}

fn suppress(value: Value<'_>, ids: &mut Ids) -> Result<LimitKind, Fault> {
    let (mut by, mut addresses) = (None, None);
    let mut rest = value;
    while !rest.text.is_empty() {
        let start = rest.text.trim_ascii_start();
        if let Some(list) = start.strip_prefix("ip").filter(|l| l.starts_with([' ', '\t', '['])) {
            // The list has commas of its own and is the last.
            let at = rest.at + rest.text.len() - list.len();
            addresses = Some(List::parse_at(list.as_bytes(), at)?);
            break;
        }
        let end = rest.text.find(',').unwrap_or(rest.text.len());
        let part = Value { at: rest.at, text: &rest.text[..end] }.part();
        let next = (end + 1).min(rest.text.len());
        rest = Value { at: rest.at + next, text: &rest.text[next..] };
        if ids.take(&part)? {
            continue;
        }
        let (word, value) = part.pair();
        if word != "track" {
            return Err(part.unknown(&["gen_id", "sig_id", "track", "ip"]));
        }
        by = Some(match value.text {
            "by_src" => SuppressedBy::Source,
            "by_dst" => SuppressedBy::Destination,
            "by_either" => SuppressedBy::Either,
            _ => return Err(value.unknown(&["by_src", "by_dst", "by_either"])),
        });
    }
    match (by, addresses) {
        (None, None) => Ok(LimitKind::Suppress(None)),
        (Some(by), Some(addresses)) => Ok(LimitKind::Suppress(Some(Suppressed { by, addresses }))),
        (Some(_), None) => Err(Fault::new(value.at, "`ip` is missing")),
        (None, Some(_)) => Err(Fault::new(value.at, "`track` is missing")),
    }
}

fn rate(value: Value<'_>, ids: &mut Ids) -> Result<LimitKind, Fault> {
    let mut rate = Rate::default();
    let (mut action, mut timeout) = (None, None);
    for part in value.split(',') {
        let (word, text) = part.pair();
        if ids.take(&part)? {
            continue;
        }
        match word {
            "new_action" => {
                action = Some(match text.text {
                    "alert" => RateAction::Alert,
                    "drop" => RateAction::Drop,
                    "pass" => RateAction::Pass,
                    "log" => RateAction::Log,
                    "reject" => RateAction::Reject,
                    "sdrop" => RateAction::SilentDrop,
                    _ => {
                        let known = &["alert", "drop", "pass", "log", "reject", "sdrop"];
                        return Err(text.unknown(known));
                    }
                });
            }
            "timeout" => timeout = Some(text.number(u64::from(u32::MAX))? as u32),
            "track" => rate.track = Some(track(&text)?),
            "count" | "seconds" if rate.take(&part)? => {}
            _ => {
                let known = &["track", "count", "seconds", "new_action", "timeout"];
                return Err(part.unknown(known));
            }
        }
    }
    let (track, count, seconds) = rate.window(&Arg::new(value.at, None))?;
    let missing = |name: &str| Fault::new(value.at, format!("`{name}` is missing"));
    let action = action.ok_or_else(|| missing("new_action"))?;
    let timeout = timeout.ok_or_else(|| missing("timeout"))?;
    Ok(LimitKind::Rate { track, count, seconds, action, timeout })
}

#[derive(Default)]
struct Ids {
    gid: Option<u32>,
    sid: Option<u32>,
}

impl Ids {
    fn take(&mut self, part: &Part<'_>) -> Result<bool, Fault> {
        let (word, value) = part.pair();
        let place = match word {
            "gen_id" => &mut self.gid,
            "sig_id" => &mut self.sid,
            _ => return Ok(false),
        };
        match place.replace(value.number(u64::from(u32::MAX))? as u32) {
            None => Ok(true),
            Some(_) => Err(part.fault(format!("`{word}` is given twice"))),
        }
    }

    fn both(&self, at: usize) -> Result<(u32, u32), Fault> {
        let missing = |name: &str| Fault::new(at, format!("`{name}` is missing"));
        let gid = self.gid.ok_or_else(|| missing("gen_id"))?;
        let sid = self.sid.ok_or_else(|| missing("sig_id"))?;
        match (gid, sid) {
            (0, 1..) => Err(Fault::new(at, "gen_id 0 is for all rules, so sig_id is 0 as well")),
            both => Ok(both),
        }
    }
}

/// The rest of a line and its offset.
#[derive(Clone, Copy)]
struct Value<'a> {
    at: usize,
    text: &'a str,
}

impl<'a> Value<'a> {
    fn part(&self) -> Part<'a> {
        let lead = self.text.len() - self.text.trim_ascii_start().len();
        Part { at: self.at + lead, text: self.text.trim_ascii() }
    }

    fn split(&self, at: char) -> Vec<Part<'a>> {
        let mut offset = self.at;
        let pieces = self.text.split(at).map(|text| {
            let part = Value { at: offset, text }.part();
            offset += text.len() + 1;
            part
        });
        pieces.collect()
    }
}

fn utf8(line: &Joined) -> Result<&str, Fault> {
    let text = std::str::from_utf8(&line.bytes);
    text.map_err(|e| Fault::new(e.valid_up_to(), "not valid UTF-8"))
}

/// What is behind `config NAME:`.
fn directive<'a>(line: &'a Joined, name: &'static str) -> Result<Value<'a>, Fault> {
    let text = utf8(line)?;
    let wrong = || Fault::new(0, format!("`config {name}: …` expected"));
    let rest = text.trim_ascii_start().strip_prefix("config").ok_or_else(wrong)?;
    let rest = rest.trim_ascii_start().strip_prefix(name).ok_or_else(wrong)?;
    let rest = rest.trim_ascii_start().strip_prefix(':').ok_or_else(wrong)?;
    let value = rest.trim_ascii_start();
    Ok(Value { at: text.len() - value.len(), text: value.trim_ascii_end() })
}

fn read<T: Default>(
    reader: impl BufRead,
    mut take: impl FnMut(&Joined, &mut T) -> Result<(), Fault>,
) -> io::Result<Read<T>> {
    let mut read = Read { found: T::default(), problems: Vec::new() };
    let mut lines = Lines::new(reader);
    while let Some(entry) = lines.next_entry()? {
        let problem = match entry {
            Entry::Disabled => continue,
            Entry::TooLong(line) => {
                let (column, keyword) = (1, None);
                let reason = "the line is too long".to_owned();
                Problem { line, column, keyword, reason, unknown: None }
            }
            Entry::Rule(joined) => match take(&joined, &mut read.found) {
                Ok(()) => continue,
                Err(fault) => {
                    let (line, column) = joined.place(fault.at);
                    let Fault { reason, unknown, .. } = fault;
                    Problem { line, column, keyword: None, reason, unknown }
                }
            },
        };
        if read.problems.len() < PROBLEMS_MAX {
            read.problems.push(problem);
        }
    }
    Ok(read)
}
