//! The flow syntax of ovs-ofctl (ovs-fields(7), ovs-actions(7)): text to flows, groups, meters, and back.
//!
//! ```text
//!   table=0,priority=10,tcp,nw_src=10.0.0.0/8,tp_dst=80,actions=mod_vlan_vid:3,output:2
//!   └─ the flow ─────┘ └─ the match ─────────────────┘ └─ what happens ───────────────┘
//! ```
//!
//! Words of a flow are separated by commas or spaces, in any order; `actions=` is the last. Errors say at which byte of the
//! text they are. What is printed has the form of `ovs-ofctl dump-flows`, and is read again as the same flow.
//!
//! Not read are fields and actions of Nicira (registers, connection tracking, `resubmit`, `learn`, `load`, `move`).

mod actions;
mod flows;
mod groups;
mod matches;
mod nearest;
mod values;

use std::fmt;

pub use self::actions::{ActionsText, InstructionsText};
pub use self::flows::FlowText;
pub use self::groups::{GroupText, MeterText};
pub use self::matches::MatchText;
use crate::Version;
use crate::action::{Action, Instruction};
use crate::flow::{FlowCommand, FlowFilter, FlowMod};
use crate::group::{GroupMod, MeterMod, TableCommand};
use crate::matches::Match;
use crate::port::PortNo;

/// Why a text is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// The line, from 1 on; 1 for a text of one line.
    pub line: usize,
    /// The first byte of the word that is wrong, from 0 on, in its line.
    pub at: usize,
    /// What is wrong.
    pub message: String,
}

impl SyntaxError {
    fn new(at: usize, message: impl Into<String>) -> Self {
        Self { line: 1, at, message: message.into() }
    }
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.at + 1, self.message)
    }
}

impl std::error::Error for SyntaxError {}

type Parsed<T> = Result<T, SyntaxError>;

/// Ports by name.
pub type PortNames = [(String, PortNo)];

/// Reads texts; knows the names of ports.
#[derive(Clone, Copy, Default)]
pub struct Syntax<'a> {
    ports: &'a PortNames,
    version: Option<Version>,
    /// What the match of the flow at hand says of the IP protocol; `None`: actions of any packet.
    proto: Option<Option<u8>>,
}

impl fmt::Debug for Syntax<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Syntax {{ names: {} }}", !self.ports.is_empty())
    }
}

impl<'a> Syntax<'a> {
    /// Ports by number and by their reserved names.
    pub const fn new() -> Self {
        Self { ports: &[], version: None, proto: None }
    }

    /// Ports also by the names of `ports`.
    pub const fn with_ports(ports: &'a PortNames) -> Self {
        Self { ports, version: None, proto: None }
    }

    /// For a switch of `version`: what its requests cannot say is an error.
    pub const fn for_version(self, version: Version) -> Self {
        Self { version: Some(version), ..self }
    }

    /// A flow. In commands that are not strict and not add, the priority is not named; in delete neither are actions.
    ///
    /// # Errors
    /// The first word that is wrong.
    pub fn flow(&self, text: &str, command: FlowCommand) -> Parsed<FlowMod> {
        flows::parse(self, &Word { at: 0, text }, command)
    }

    /// Flows of a file, one a line; `#` begins a comment. A line may begin with `add`, `modify`, `modify_strict`,
    /// `delete` or `delete_strict`; otherwise it is an add.
    ///
    /// # Errors
    /// The first line that is wrong.
    pub fn flows(&self, text: &str) -> Parsed<Vec<FlowMod>> {
        lines(text, |line| {
            let (command, rest) = flows::command(line);
            flows::parse(self, &rest, command)
        })
    }

    /// Where the first action or instruction of a flow is that `refuses` does not let pass: it is given the flow with ever
    /// more of them. Where it lets all of them pass, or the text is no flow, it is where the text begins. The text may begin
    /// with a command, as in [`Syntax::flows`]; otherwise it is `command`.
    pub fn refused_at(
        &self,
        text: &str,
        command: FlowCommand,
        refuses: impl Fn(&FlowMod) -> bool,
    ) -> usize {
        let line = Word { at: 0, text };
        let (own, rest) = flows::command(&line);
        let command = if rest.at == line.at { command } else { own };
        flows::refused_at(self, &rest, command, &refuses).unwrap_or(0)
    }

    /// Which flows: `table=1,out_port=2,cookie=1/1,tcp`; an empty text: all.
    ///
    /// # Errors
    /// The first word that is wrong.
    pub fn filter(&self, text: &str) -> Parsed<FlowFilter> {
        let flow = self.flow(text, FlowCommand::Delete)?;
        Ok(FlowFilter {
            table: flow.table,
            out_port: flow.out_port,
            out_group: flow.out_group,
            cookie: flow.cookie,
            cookie_mask: flow.cookie_mask,
            matches: flow.matches,
        })
    }

    /// A packet, as `ofproto/trace` takes one: a match, and its TTL or hop limit where `nw_ttl` gives one.
    ///
    /// # Errors
    /// The first word that is wrong, or has a mask; `nw_ttl` of a packet that is not one of IP.
    pub fn packet(&self, text: &str) -> Parsed<(Match, Option<u8>)> {
        let words = Word { at: 0, text }.split();
        let is_ttl = |word: &Word<'_>| word.split_at(&['=']).0.text == "nw_ttl";
        let (of_ttl, others): (Vec<_>, Vec<_>) = words.into_iter().partition(is_ttl);
        let matches = matches::parse(self, &others)?;
        let is_open = matches.fields().iter().any(|field| !field.is_exact());
        if let Some(word) = others.iter().find(|word| is_open && word.text.contains('/')) {
            return Err(word.error("has a mask, and a packet has values"));
        }
        let Some(word) = of_ttl.last() else { return Ok((matches, None)) };
        let Some(value) = word.split_at(&['=']).1 else { return Err(word.error("has no value")) };
        match matches.exact(crate::Field::EthType) {
            Some(0x0800 | 0x86dd) => Ok((matches, Some(value.u8()?))),
            _ => Err(word.error("needs ip or ipv6")),
        }
    }

    /// A match alone.
    ///
    /// # Errors
    /// The first word that is wrong.
    pub fn matches(&self, text: &str) -> Parsed<Match> {
        matches::parse(self, &Word { at: 0, text }.split())
    }

    /// Instructions: the text behind `actions=`.
    ///
    /// # Errors
    /// The first word that is wrong.
    pub fn instructions(&self, text: &str) -> Parsed<Vec<Instruction>> {
        actions::parse_instructions(self, &Word { at: 0, text })
    }

    /// Actions alone, as PACKET_OUT has them.
    ///
    /// # Errors
    /// The first word that is wrong.
    pub fn actions(&self, text: &str) -> Parsed<Vec<Action>> {
        actions::parse_actions(self, &Word { at: 0, text })
    }

    /// A group: `group_id=1,type=select,bucket=weight:2,output:1,bucket=weight:1,output:2`.
    ///
    /// # Errors
    /// The first word that is wrong.
    pub fn group(&self, text: &str, command: TableCommand) -> Parsed<GroupMod> {
        groups::parse_group(self, &Word { at: 0, text }, command)
    }

    /// Groups of a file, one a line; `#` begins a comment.
    ///
    /// # Errors
    /// The first line that is wrong.
    pub fn groups(&self, text: &str) -> Parsed<Vec<GroupMod>> {
        lines(text, |line| groups::parse_group(self, line, TableCommand::Add))
    }

    /// A meter: `meter=1,kbps,burst,bands=type=drop,rate=1000,burst_size=100`.
    ///
    /// # Errors
    /// The first word that is wrong.
    pub fn meter(&self, text: &str, command: TableCommand) -> Parsed<MeterMod> {
        groups::parse_meter(&Word { at: 0, text }, command)
    }

    fn port(&self, word: &Word<'_>) -> Parsed<PortNo> {
        let named = |(_, name): &&(PortNo, &str)| name.eq_ignore_ascii_case(word.text);
        if let Some((port, _)) = PortNo::NAMES.iter().find(named) {
            return Ok(*port);
        }
        if word.text.eq_ignore_ascii_case("none") {
            return Ok(PortNo::ANY);
        }
        if let Some(number) = values::number(word.text) {
            let number = u32::try_from(number).map_err(|_| word.error("is not a port"))?;
            // 1.0's reserved numbers are those of 1.3, as Open vSwitch reads them.
            return Ok(match u16::try_from(number) {
                Ok(number) => PortNo::from_v10(number),
                Err(_) => PortNo(number),
            });
        }
        let bare = word.text.trim_matches('"');
        let found = self.ports.iter().find(|(name, _)| name == bare).map(|(_, port)| *port);
        found.ok_or_else(|| word.unknown("is not a port", self.port_names()))
    }

    /// Names of ports: those of the switch, then the reserved ones.
    fn port_names(&self) -> impl Iterator<Item = &'a str> {
        let own = self.ports.iter().map(|(name, _)| name.as_str());
        own.chain(PortNo::NAMES.iter().map(|(_, name)| *name))
    }
}

/// Part of a text, and where it begins.
#[derive(Clone, Copy, Debug)]
struct Word<'a> {
    at: usize,
    text: &'a str,
}

impl<'a> Word<'a> {
    /// ``` `word` message ```
    fn error(&self, message: &str) -> SyntaxError {
        SyntaxError::new(self.at, format!("`{}` {message}", self.text))
    }

    /// The same of a word that is none of some names, with the nearest of them.
    fn unknown<'n>(&self, message: &str, names: impl Iterator<Item = &'n str>) -> SyntaxError {
        match nearest::nearest(self.text, names.filter(|name| *name != self.text)) {
            Some(name) => self.error(&format!("{message}, did you mean `{name}`?")),
            None => self.error(message),
        }
    }

    /// From byte `from` on.
    fn from(&self, from: usize) -> Self {
        Self { at: self.at + from, text: &self.text[from..] }
    }

    fn to(&self, to: usize) -> Self {
        Self { at: self.at, text: &self.text[..to] }
    }

    /// Without spaces around it.
    fn trim(&self) -> Self {
        let start = self.text.len() - self.text.trim_start().len();
        Self { at: self.at + start, text: self.text.trim() }
    }

    /// Both sides of the first of these characters.
    fn split_at(&self, separators: &[char]) -> (Self, Option<Self>) {
        match self.text.find(separators) {
            Some(at) => (self.to(at), Some(self.from(at + 1))),
            None => (*self, None),
        }
    }

    /// Words between commas and spaces outside of parentheses.
    fn split(&self) -> Vec<Self> {
        let mut words = Vec::new();
        let (mut start, mut depth) = (0, 0_usize);
        for (at, c) in self.text.char_indices().chain([(self.text.len(), ',')]) {
            match c {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            let ends = at == self.text.len() || depth == 0 && (c == ',' || c.is_whitespace());
            if ends {
                if start < at {
                    words.push(self.to(at).from(start));
                }
                start = at + c.len_utf8();
            }
        }
        words
    }

    fn number(&self, max: u128) -> Parsed<u128> {
        let number = values::number(self.text).ok_or_else(|| self.error("is not a number"))?;
        match number <= max {
            true => Ok(number),
            false => Err(self.error(&format!("is above {max}"))),
        }
    }

    fn u8(&self) -> Parsed<u8> {
        self.number(u128::from(u8::MAX)).map(|n| n as u8)
    }

    fn u16(&self) -> Parsed<u16> {
        self.number(u128::from(u16::MAX)).map(|n| n as u16)
    }

    fn u32(&self) -> Parsed<u32> {
        self.number(u128::from(u32::MAX)).map(|n| n as u32)
    }

    /// Also below zero, as its two's complement: -1 has all bits.
    fn u64(&self) -> Parsed<u64> {
        let digits = self.text.strip_prefix('-');
        let number = Word { text: digits.unwrap_or(self.text), ..*self };
        let value = number.number(u128::from(u64::MAX)).map_err(|error| match digits {
            Some(_) => self.error("is not a number of 64 bits"),
            None => error,
        })? as u64;
        Ok(if digits.is_some() { value.wrapping_neg() } else { value })
    }

    /// `value` or `value/mask`.
    fn masked_u64(&self) -> Parsed<(u64, u64)> {
        match self.split_at(&['/']) {
            (value, Some(mask)) => Ok((value.u64()?, mask.u64()?)),
            (value, None) => Ok((value.u64()?, u64::MAX)),
        }
    }
}

/// Each line that is not empty or a comment.
fn lines<T>(text: &str, parse: impl Fn(&Word<'_>) -> Parsed<T>) -> Parsed<Vec<T>> {
    let mut all = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let word = Word { at: 0, text: line }.trim();
        if !word.text.is_empty() {
            all.push(parse(&word).map_err(|error| SyntaxError { line: n + 1, ..error })?);
        }
    }
    Ok(all)
}
