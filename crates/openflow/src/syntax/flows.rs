//! Flows in text.

use std::fmt;

use super::actions::{InstructionsText, parse_instructions};
use super::matches::{self, MatchText};
use super::{Parsed, Syntax, Word};
use crate::Version;
use crate::field::Field;
use crate::flow::{ALL_TABLES, ANY_GROUP, FlowCommand, FlowFlags, FlowMod, FlowStats};
use crate::port::PortNo;

/// The priority of a flow that names none.
const PRIORITY: u16 = 0x8000;

/// Words with a value that are not of the match.
pub(super) const KEYS: &[&str] = &[
    "table",
    "priority",
    "idle_timeout",
    "hard_timeout",
    "cookie",
    "out_port",
    "out_group",
    "buffer",
    "buffer_id",
    "duration",
    "n_packets",
    "n_bytes",
    "idle_age",
    "hard_age",
    "importance",
];

/// The command at the start of a line, and the rest.
pub(super) fn command<'a>(line: &Word<'a>) -> (FlowCommand, Word<'a>) {
    let (first, rest) = line.split_at(&[' ', '\t']);
    let command = match first.text {
        "add" => FlowCommand::Add,
        "modify" => FlowCommand::Modify,
        "modify_strict" => FlowCommand::ModifyStrict,
        "delete" => FlowCommand::Delete,
        "delete_strict" => FlowCommand::DeleteStrict,
        _ => return (FlowCommand::Add, *line),
    };
    (command, rest.unwrap_or(Word { at: line.at + line.text.len(), text: "" }))
}

/// Where `actions=` begins: at the start of a word.
fn find_actions(text: &str) -> Option<(usize, usize)> {
    ["actions=", "action="].iter().find_map(|key| {
        let is_start =
            |at: &usize| *at == 0 || text[..*at].ends_with(|c: char| c == ',' || c.is_whitespace());
        let at = text.match_indices(key).map(|(at, _)| at).find(is_start)?;
        Some((at, at + key.len()))
    })
}

pub(super) fn parse(syntax: &Syntax<'_>, text: &Word<'_>, command: FlowCommand) -> Parsed<FlowMod> {
    let is_delete = matches!(command, FlowCommand::Delete | FlowCommand::DeleteStrict);
    let is_strict = matches!(command, FlowCommand::ModifyStrict | FlowCommand::DeleteStrict);
    let (head, actions) = match find_actions(text.text) {
        Some((start, end)) => (text.to(start), Some(text.from(end))),
        None => (*text, None),
    };
    let mut flow = FlowMod::new(command);
    // Commands over many flows are about all tables where none is named.
    if is_delete || command == FlowCommand::Modify && actions.is_none() {
        flow.table = ALL_TABLES;
    }
    let mut rest = Vec::new();
    for word in head.split() {
        let (name, value) = word.split_at(&['=']);
        let flag = FlowFlags::NAMES.iter().find(|(_, flag)| *flag == name.text);
        let is_key = KEYS.contains(&name.text);
        let value = match (value, flag) {
            (Some(value), None) if is_key => value,
            (None, None) if is_key || name.text == "actions" => {
                return Err(word.error("has no value"));
            }
            (None, Some((flag, _))) => {
                flow.flags |= *flag;
                continue;
            }
            (Some(value), Some(_)) => return Err(value.error("is a value, and there is none")),
            (_, None) => {
                rest.push(word);
                continue;
            }
        };
        match name.text {
            "table" => flow.table = value.u8()?,
            "priority" if command == FlowCommand::Add || is_strict => {
                flow.priority = value.u16()?;
            }
            "priority" => return Err(word.error("is of no use: the command is not strict")),
            "idle_timeout" => flow.idle_timeout = value.u16()?,
            "hard_timeout" => flow.hard_timeout = value.u16()?,
            "cookie" => match value.split_at(&['/']) {
                (cookie, Some(mask)) if command != FlowCommand::Add => {
                    (flow.cookie, flow.cookie_mask) = (cookie.u64()?, mask.u64()?);
                }
                (_, Some(mask)) => return Err(mask.error("is a mask, and a new flow has none")),
                (cookie, None) if is_delete => {
                    (flow.cookie, flow.cookie_mask) = (cookie.u64()?, u64::MAX);
                }
                (cookie, None) if command == FlowCommand::Add => flow.cookie = cookie.u64()?,
                (_, None) if syntax.version == Some(Version::V13) => {
                    let reason = "is a new cookie, which a modify of OpenFlow 1.3 cannot give: \
                                  cookie=VALUE/MASK says which flows";
                    return Err(word.error(reason));
                }
                // A modify may have both: which flows, and what they get.
                (cookie, None) => flow.new_cookie = Some(cookie.u64()?),
            },
            "out_port" if is_delete => flow.out_port = syntax.port(&value)?,
            "out_group" if is_delete => flow.out_group = value.u32()?,
            "out_port" | "out_group" => {
                return Err(word.error("is only in commands that delete or show"));
            }
            "buffer" | "buffer_id" => flow.buffer_id = Some(value.u32()?),
            // What a dump says about the past of a flow.
            "duration" | "n_packets" | "n_bytes" | "idle_age" | "hard_age" | "importance" => {}
            _ => rest.push(word),
        }
    }
    // In 1.0 a modify that names no flows adds one where there is none.
    if !is_delete && command != FlowCommand::Add && flow.cookie_mask == 0 {
        flow.new_cookie.get_or_insert(0);
    }
    flow.matches = matches::parse(syntax, &rest)?;
    match actions {
        Some(actions) if !is_delete => {
            let proto = flow.matches.exact(Field::IpProto).map(|proto| proto as u8);
            let syntax = Syntax { proto: Some(proto), ..*syntax };
            flow.instructions = parse_instructions(&syntax, &actions)?;
        }
        Some(actions) if !actions.text.trim().is_empty() => {
            return Err(actions.error("are actions, and the command takes none"));
        }
        Some(_) => {}
        None if is_delete => {}
        None => {
            let end = Word { at: text.at + text.text.len(), text: "" };
            return Err(super::SyntaxError::new(end.at, "`actions=` is missing"));
        }
    }
    Ok(flow)
}

/// See [`Syntax::refused_at`].
pub(super) fn refused_at(
    syntax: &Syntax<'_>,
    text: &Word<'_>,
    command: FlowCommand,
    refuses: &impl Fn(&FlowMod) -> bool,
) -> Option<usize> {
    let (_, end) = find_actions(text.text)?;
    let actions = text.from(end).split();
    let refused = |last: &&Word<'_>| {
        let before = Word { at: text.at, text: &text.text[..last.at - text.at + last.text.len()] };
        parse(syntax, &before, command).is_ok_and(|flow| refuses(&flow))
    };
    actions.iter().find(refused).map(|word| word.at)
}

/// Prints a flow as `ovs-ofctl dump-flows` does; without counters as `dump-flows --no-stats` does. The second form is
/// also what [`Syntax::flow`] reads.
#[derive(Clone, Copy, Debug)]
pub struct FlowText<'a> {
    /// The flow.
    pub flow: &'a FlowStats,
    /// With its duration and counters.
    pub with_stats: bool,
}

impl fmt::Display for FlowText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flow = self.flow;
        if self.with_stats || flow.cookie != 0 {
            write!(f, "cookie={:#x}, ", flow.cookie)?;
        }
        if self.with_stats {
            let nanoseconds = flow.duration.subsec_nanos();
            write!(f, "duration={}", flow.duration.as_secs())?;
            if nanoseconds > 0 {
                let digits = format!("{nanoseconds:09}");
                write!(f, ".{}", digits.trim_end_matches('0'))?;
            }
            f.write_str("s, ")?;
        }
        if self.with_stats || flow.table != 0 {
            write!(f, "table={}, ", flow.table)?;
        }
        if self.with_stats {
            write!(f, "n_packets={}, n_bytes={}, ", flow.packets, flow.bytes)?;
        }
        if flow.idle_timeout != 0 {
            write!(f, "idle_timeout={}, ", flow.idle_timeout)?;
        }
        if flow.hard_timeout != 0 {
            write!(f, "hard_timeout={}, ", flow.hard_timeout)?;
        }
        for name in flow.flags.names() {
            write!(f, "{name} ")?;
        }
        write_rule(f, flow)?;
        write!(f, "actions={}", InstructionsText(&flow.instructions))
    }
}

/// Priority and match with a space behind, where there is any.
fn write_rule(f: &mut fmt::Formatter<'_>, flow: &FlowStats) -> fmt::Result {
    let has_priority = flow.priority != PRIORITY;
    if has_priority {
        write!(f, "priority={}", flow.priority)?;
    }
    if !flow.matches.is_empty() {
        f.write_str(if has_priority { "," } else { "" })?;
        write!(f, "{}", MatchText(&flow.matches))?;
    }
    f.write_str(if has_priority || !flow.matches.is_empty() { " " } else { "" })
}

impl FlowMod {
    /// The flow that an add makes, with counters of zero: for printing.
    pub fn to_flow(&self) -> FlowStats {
        FlowStats {
            table: self.table,
            duration: std::time::Duration::ZERO,
            priority: self.priority,
            idle_timeout: self.idle_timeout,
            hard_timeout: self.hard_timeout,
            flags: self.flags,
            cookie: self.cookie,
            packets: 0,
            bytes: 0,
            matches: self.matches.clone(),
            instructions: self.instructions.clone(),
        }
    }
}

impl FlowStats {
    /// The add that makes this flow.
    pub fn to_add(&self) -> FlowMod {
        FlowMod {
            cookie: self.cookie,
            cookie_mask: 0,
            new_cookie: None,
            table: self.table,
            command: FlowCommand::Add,
            idle_timeout: self.idle_timeout,
            hard_timeout: self.hard_timeout,
            priority: self.priority,
            buffer_id: None,
            out_port: PortNo::ANY,
            out_group: ANY_GROUP,
            flags: self.flags,
            matches: self.matches.clone(),
            instructions: self.instructions.clone(),
        }
    }
}
