//! From a logical line to a [`Rule`]: the header, the options one by one, the checks that need more than one of them.

use std::collections::HashSet;

use crate::keywords::{self, Arg};
use crate::list::{Item, List, clip};
use crate::model::PROTOCOL_WORDS;
use crate::never;
use crate::problem::Fault;
use crate::text::{ACTION_WORDS, Joined, RULE_BYTES_MAX};
use crate::{
    Action, Buffer, Check, Compare, Condition, Content, Direction, FastPattern, FlowSide,
    Inspection, Problem, Protocol, Rule, Transform, Value,
};

/// Most options of a rule.
pub const OPTIONS_MAX: usize = 4096;

/// Most parts of an option between commas.
pub const VALUE_PARTS_MAX: usize = 1024;

/// Most buffers of a rule that are looked into, each time one is chosen.
const INSPECTIONS_MAX: usize = 64;

/// Words that begin lines of snort.conf.
const DIRECTIVES: &[&str] = &[
    "var",
    "ipvar",
    "portvar",
    "config",
    "preprocessor",
    "include",
    "output",
    "ruletype",
    "dynamicpreprocessor",
    "dynamicengine",
    "dynamicdetection",
    "event_filter",
    "suppress",
    "rate_filter",
    "threshold",
];

impl Rule {
    /// Reads one rule; it may go over several lines, each but the last ending in `\`.
    ///
    /// # Errors
    /// The first problem, with its place in the text.
    pub fn parse(text: &[u8]) -> Result<Self, Problem> {
        let (line, rest) = Joined::from_text(text);
        let rule = Self::parse_joined(&line)?;
        match rest {
            None => Ok(rule),
            Some(line) => {
                let reason = "a second line, and no `\\` at the end of the first".to_owned();
                Err(Problem { line, column: 1, keyword: None, reason, unknown: None })
            }
        }
    }

    pub(crate) fn parse_joined(line: &Joined) -> Result<Self, Problem> {
        let mut keyword = None;
        let result = match line.bytes.len() > RULE_BYTES_MAX {
            true => Err(Fault::new(0, too_long())),
            false => parse(&line.bytes, &mut keyword),
        };
        result.map_err(|fault| {
            let (line, column) = line.place(fault.at);
            Problem { line, column, keyword, reason: fault.reason, unknown: fault.unknown }
        })
    }
}

pub(crate) fn too_long() -> String {
    format!("the rule is longer than {RULE_BYTES_MAX} bytes")
}

fn parse(line: &[u8], keyword: &mut Option<String>) -> Result<Rule, Fault> {
    let (rule, body) = header(line)?;
    let mut builder = Builder::new(rule);
    let end = closing(line, body)?;
    let mut at = body;
    let mut count = 0;
    loop {
        at += line[at..end].len() - line[at..end].trim_ascii_start().len();
        if at == end {
            break;
        }
        count += 1;
        if count > OPTIONS_MAX {
            return Err(Fault::new(at, format!("the rule has more than {OPTIONS_MAX} options")));
        }
        let Some(length) = option_length(&line[at..end]) else {
            *keyword = keyword_of(&line[at..end]);
            return Err(Fault::new(at, "the last option has no `;`"));
        };
        *keyword = keyword_of(&line[at..at + length]);
        option(&mut builder, line, at, at + length)?;
        at += length + 1;
    }
    *keyword = None;
    builder.finish(end)
}

/// Bytes up to the `;` that ends an option; one behind a backslash does not.
fn option_length(text: &[u8]) -> Option<usize> {
    let mut escaped = false;
    text.iter().position(|&byte| {
        let ends = byte == b';' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })
}

fn keyword_of(option: &[u8]) -> Option<String> {
    let name = option.split(|b| *b == b':').next().unwrap_or_default().trim_ascii();
    let name = String::from_utf8_lossy(name);
    (!name.is_empty()).then(|| clip(&name).to_owned())
}

fn option(builder: &mut Builder, line: &[u8], start: usize, end: usize) -> Result<(), Fault> {
    let text = &line[start..end];
    let (name, value) = match text.iter().position(|b| *b == b':') {
        Some(colon) => (&text[..colon], Some(&text[colon + 1..])),
        None => (text, None),
    };
    let name = String::from_utf8_lossy(name.trim_ascii());
    let arg = match value {
        Some(value) => {
            let lead = value.len() - value.trim_ascii_start().len();
            Arg::new(end - value.len() + lead, Some(value.trim_ascii()))
        }
        None => Arg::new(start, None),
    };
    if name.is_empty() {
        return Err(Fault::new(start, "an option is empty"));
    }
    if let Some(space) = name.find(|c: char| !c.is_ascii_alphanumeric() && !"._-".contains(c)) {
        let reason = "`:` or `;` is missing after the name of the option";
        return Err(Fault::new(start + space, reason));
    }
    builder.at = start;
    match keywords::apply(builder, &name.to_ascii_lowercase(), &arg) {
        // The rule is not for this program.
        Err(_) if builder.skips => Ok(()),
        result => result,
    }
}

/// A header and where its options begin.
fn header(line: &[u8]) -> Result<(Rule, usize), Fault> {
    let end = line.iter().position(|b| *b == b'(').unwrap_or(line.len());
    let (words, open) = words(&line[..end]);
    if let Some(at) = open {
        return Err(Fault::new(at, "a list has no closing `]`"));
    }
    let word = |at: usize| {
        let (start, text) = words.get(at).copied().unwrap_or((end, &[]));
        (start, String::from_utf8_lossy(text))
    };
    let (at, text) = word(0);
    let Some(action) = Action::from_name(&text.to_ascii_lowercase()) else {
        return Err(match &*text {
            "" => Fault::new(at, "the rule has no header"),
            "activate" | "dynamic" => {
                Fault::new(at, format!("rules of Snort's action `{text}` are not supported"))
            }
            text if DIRECTIVES.contains(&text) => {
                Fault::new(at, format!("`{text}` is a directive of a configuration, not a rule"))
            }
            text => {
                let reason = format!("unknown action `{}`", clip(text));
                Fault::unknown(at, reason, ACTION_WORDS, text)
            }
        });
    };
    let (at, text) = word(1);
    let Some(protocol) = Protocol::from_name(&text) else {
        return Err(match text.is_empty() {
            true => Fault::new(at, "the protocol is missing"),
            false if text == "file" => {
                Fault::new(at, "rules of Snort 3 for files are not supported")
            }
            false => {
                let reason = format!("unknown protocol `{}`", clip(&text));
                Fault::unknown(at, reason, PROTOCOL_WORDS, &text)
            }
        });
    };
    if words.len() == 2 && end < line.len() {
        return Err(Fault::new(end, "rules of Snort 3 without addresses are not supported"));
    }
    let names = ["", "", "source address", "source port", "arrow", "destination address"];
    if let Some(missing) = names.get(words.len()) {
        return Err(Fault::new(end, format!("the {missing} is missing")));
    }
    let (at, text) = word(4);
    let direction = match &*text {
        "->" => Direction::Forward,
        "<>" => Direction::Both,
        "<-" => return Err(Fault::new(at, "`<-` is not an arrow; exchange both sides")),
        "=>" => {
            let reason = "`=>` of Suricata 8 is not supported; a rule has buffers of one direction";
            return Err(Fault::new(at, reason));
        }
        text => {
            return Err(Fault::new(at, format!("`->` or `<>` expected, not `{}`", clip(text))));
        }
    };
    if words.len() == 6 {
        return Err(Fault::new(end, "the destination port is missing"));
    }
    if words.len() > 7 {
        let (at, text) = word(7);
        return Err(Fault::new(at, format!("`{}` after the destination port", clip(&text))));
    }
    let rule = Rule {
        action,
        protocol,
        source: list(words[2])?,
        source_ports: list(words[3])?,
        direction,
        destination: list(words[5])?,
        destination_ports: list(words[6])?,
        msg: None,
        conditions: Vec::new(),
        inspections: Vec::new(),
        threshold: None,
        detection_filter: None,
        tags: Vec::new(),
        noalert: false,
        prefilter: false,
        bypass: false,
        target: None,
        references: Vec::new(),
        classtype: None,
        priority: None,
        metadata: Vec::new(),
        unsupported: Vec::new(),
        gid: 1,
        sid: 0,
        rev: 0,
    };
    if end == line.len() {
        return Err(Fault::new(end, "the options are missing: `(…)`"));
    }
    Ok((rule, end + 1))
}

fn list<T: Item>((at, text): (usize, &[u8])) -> Result<List<T>, Fault> {
    List::parse_at(text, at)
}

/// A word and its offset.
type Word<'a> = (usize, &'a [u8]);

/// Words between white space; a list in brackets is one, whatever is in it. And the last bracket that stays open.
fn words(text: &[u8]) -> (Vec<Word<'_>>, Option<usize>) {
    let mut words = Vec::new();
    let (mut start, mut depth, mut open) = (None, 0_usize, None);
    for (at, &byte) in text.iter().enumerate() {
        depth = match byte {
            b'[' => depth + 1,
            b']' => depth.saturating_sub(1),
            _ => depth,
        };
        if byte == b'[' && depth == 1 {
            open = Some(at);
        }
        match (start, byte.is_ascii_whitespace() && depth == 0) {
            // `! 1.2.3.4` is one word.
            (Some(from), true) if text[from..at] != *b"!" => {
                words.push((from, &text[from..at]));
                start = None;
            }
            (None, false) => start = Some(at),
            _ => {}
        }
    }
    words.extend(start.map(|from| (from, text[from..].trim_ascii_end())));
    (words, open.filter(|_| depth > 0))
}

/// Where the parenthesis is that ends the options.
fn closing(line: &[u8], body: usize) -> Result<usize, Fault> {
    let end = line.trim_ascii_end().len();
    if end > body && line[end - 1] == b')' {
        return Ok(end - 1);
    }
    let is_end = |at: &usize| line[*at] == b')' && line[body..*at].trim_ascii_end().ends_with(b";");
    // Each candidate looks back over white space only, so those without any are found first.
    let last = (body..end).rev().filter(|at| line[*at] == b')').take(64).find(is_end);
    Err(match last {
        Some(at) => Fault::new(at + 1, "text after the closing parenthesis"),
        None => Fault::new(
            end,
            "the closing parenthesis is missing; a rule continues on the next line only after `\\`",
        ),
    })
}

/// A sticky buffer while it applies.
struct Selected {
    buffer: Buffer,
    transforms: Vec<Transform>,
    /// Once a check is in it.
    inspection: Option<usize>,
    at: usize,
}

/// A rule while its options are read.
pub(crate) struct Builder {
    pub(crate) rule: Rule,
    /// Offset of the option.
    pub(crate) at: usize,
    selected: Option<Selected>,
    /// Inspection and check of the last content.
    last_content: Option<(usize, usize)>,
    /// Inspection of the last content or regular expression.
    last_match: Option<usize>,
    /// Names of numbers extracted so far.
    names: HashSet<String>,
    has_fast_pattern: bool,
    /// Options that a rule has once.
    once: HashSet<&'static str>,
    first_base64: Option<usize>,
    /// Its requirements do not hold: nothing but its number counts.
    pub(crate) skips: bool,
}

impl Builder {
    fn new(rule: Rule) -> Self {
        Self {
            rule,
            at: 0,
            selected: None,
            last_content: None,
            last_match: None,
            names: HashSet::new(),
            has_fast_pattern: false,
            once: HashSet::new(),
            first_base64: None,
            skips: false,
        }
    }

    pub(crate) fn fault(&self, reason: impl Into<String>) -> Fault {
        Fault::new(self.at, reason)
    }

    /// Refuses the second of an option that a rule has once.
    pub(crate) fn once(&mut self, name: &'static str) -> Result<(), Fault> {
        match self.once.insert(name) {
            true => Ok(()),
            false => Err(self.fault("the rule has this option already")),
        }
    }

    pub(crate) fn condition(&mut self, condition: Condition) {
        self.rule.conditions.push(condition);
    }

    /// A number is named here and may be used from now on.
    pub(crate) fn define(&mut self, name: &str) -> Result<(), Fault> {
        match self.names.insert(name.to_owned()) {
            true => Ok(()),
            false => Err(self.fault(format!("`{name}` is defined already"))),
        }
    }

    pub(crate) fn is_defined(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// A sticky buffer is chosen.
    pub(crate) fn select(&mut self, buffer: Buffer) -> Result<(), Fault> {
        self.close_selected()?;
        if buffer == Buffer::Base64Data && self.first_base64.is_none() {
            return Err(self.fault("it needs an earlier base64_decode"));
        }
        let (transforms, inspection, at) = (Vec::new(), None, self.at);
        self.selected = match buffer {
            Buffer::Payload => None,
            buffer => Some(Selected { buffer, transforms, inspection, at }),
        };
        Ok(())
    }

    fn close_selected(&mut self) -> Result<(), Fault> {
        match self.selected.take() {
            Some(Selected { buffer, inspection: None, at, .. }) => {
                let reason = format!("nothing is looked for in the buffer {}", buffer.name());
                Err(Fault::new(at, reason))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn has_selected(&self) -> bool {
        self.selected.is_some()
    }

    pub(crate) fn transform(&mut self, transform: Transform) -> Result<(), Fault> {
        let at = self.at;
        match &mut self.selected {
            None => Err(Fault::new(at, "a transform needs a sticky buffer before it")),
            Some(Selected { inspection: Some(_), .. }) => {
                Err(Fault::new(at, "a transform is before all checks of its buffer"))
            }
            Some(selected) => {
                selected.transforms.push(transform);
                Ok(())
            }
        }
    }

    /// The inspection of a buffer without transforms, or with those of the sticky buffer.
    fn inspection(&mut self, buffer: Buffer, transforms: Vec<Transform>) -> Result<usize, Fault> {
        let same = |i: &Inspection| {
            i.buffer == buffer && i.transforms == transforms && !buffer.is_several()
        };
        if let Some(at) = self.rule.inspections.iter().position(same) {
            return Ok(at);
        }
        if self.rule.inspections.len() >= INSPECTIONS_MAX {
            return Err(self.fault(format!("the rule chooses more than {INSPECTIONS_MAX} buffers")));
        }
        self.rule.inspections.push(Inspection { buffer, transforms, checks: Vec::new() });
        Ok(self.rule.inspections.len() - 1)
    }

    fn selected_inspection(&mut self) -> Result<Option<usize>, Fault> {
        let Some(selected) = &self.selected else { return Ok(None) };
        if selected.inspection.is_some() {
            return Ok(selected.inspection);
        }
        let (buffer, transforms) = (selected.buffer, selected.transforms.clone());
        let at = self.inspection(buffer, transforms)?;
        if let Some(selected) = &mut self.selected {
            selected.inspection = Some(at);
        }
        Ok(Some(at))
    }

    fn push(&mut self, inspection: usize, check: Check) -> usize {
        let checks = &mut self.rule.inspections[inspection].checks;
        checks.push(check);
        checks.len() - 1
    }

    /// A check of the sticky buffer; without one, of the buffer of the last match where it is relative, else of the payload.
    pub(crate) fn check(&mut self, check: Check, relative: bool) -> Result<(), Fault> {
        let inspection = match self.selected_inspection()? {
            Some(at) => at,
            None => match self.last_match.filter(|_| relative) {
                Some(at) => at,
                None => self.inspection(Buffer::Payload, Vec::new())?,
            },
        };
        if matches!(check, Check::Base64Decode(_)) {
            self.first_base64.get_or_insert(inspection);
        }
        self.push(inspection, check);
        Ok(())
    }

    /// A content of the sticky buffer or the payload, or of a buffer that the option names itself (`uricontent`).
    pub(crate) fn content(&mut self, content: Content, named: Option<Buffer>) -> Result<(), Fault> {
        if let (Some(named), Some(selected)) = (named, &self.selected) {
            let reason = sticky_is_set(selected.buffer, named);
            return Err(self.fault(reason));
        }
        let inspection = match self.selected_inspection()? {
            Some(at) => at,
            None => self.inspection(named.unwrap_or(Buffer::Payload), Vec::new())?,
        };
        let check = self.push(inspection, Check::Content(content));
        (self.last_content, self.last_match) = (Some((inspection, check)), Some(inspection));
        Ok(())
    }

    /// A regular expression, perhaps with a buffer of its own.
    pub(crate) fn pcre(&mut self, pcre: crate::Pcre, named: Option<Buffer>) -> Result<(), Fault> {
        let inspection = match (&self.selected, named) {
            (Some(selected), Some(named)) if selected.buffer != named => {
                let reason = sticky_is_set(selected.buffer, named);
                return Err(self.fault(reason));
            }
            (Some(_), _) => None,
            (None, named) => Some(named.unwrap_or(Buffer::Payload)),
        };
        let inspection = match inspection {
            Some(buffer) => self.inspection(buffer, Vec::new())?,
            None => self.selected_inspection()?.unwrap_or_default(),
        };
        if pcre.relative && self.selected.is_none() {
            let is_match = |c: &Check| matches!(c, Check::Content(_) | Check::Pcre(_));
            // The last match is nearly always there; else one is looked for once a rule.
            let there = self.last_match == Some(inspection)
                || self.rule.inspections[inspection].checks.iter().any(is_match);
            if !there {
                return Err(self.fault("`R` needs an earlier match in the same buffer"));
            }
        }
        self.push(inspection, Check::Pcre(pcre));
        self.last_match = Some(inspection);
        Ok(())
    }

    /// Moves the last content into the buffer of a modifier.
    pub(crate) fn modifier(&mut self, buffer: Buffer) -> Result<(), Fault> {
        if let Some(selected) = &self.selected {
            let reason = sticky_is_set(selected.buffer, buffer);
            return Err(self.fault(reason));
        }
        let Some((from, check)) = self.last_content else {
            let reason =
                format!("it needs an earlier content; before one it is `{}`", buffer.name());
            return Err(self.fault(reason));
        };
        let now = self.rule.inspections[from].buffer;
        if now != Buffer::Payload {
            return Err(self.fault(format!("the content is in the buffer {} already", now.name())));
        }
        let to = self.inspection(buffer, Vec::new())?;
        let content = self.rule.inspections[from].checks.remove(check);
        let check = self.push(to, content);
        (self.last_content, self.last_match) = (Some((to, check)), Some(to));
        Ok(())
    }

    /// Changes the last content; what it is then must make sense.
    pub(crate) fn amend(
        &mut self,
        change: impl FnOnce(&mut Content) -> Result<(), String>,
    ) -> Result<(), Fault> {
        let Some((inspection, check)) = self.last_content else {
            return Err(self.fault("it needs an earlier content"));
        };
        let Check::Content(content) = &mut self.rule.inspections[inspection].checks[check] else {
            return Err(self.fault("it needs an earlier content"));
        };
        let had = content.fast_pattern.is_some();
        let result = change(content).and_then(|()| content_fault(content).map_or(Ok(()), Err));
        let has = content.fast_pattern.is_some();
        result.map_err(|reason| self.fault(reason))?;
        if has && !had && std::mem::replace(&mut self.has_fast_pattern, true) {
            return Err(self.fault("another content of the rule is the fast pattern already"));
        }
        Ok(())
    }

    fn finish(mut self, end: usize) -> Result<Rule, Fault> {
        self.close_selected().or_else(|fault| if self.skips { Ok(()) } else { Err(fault) })?;
        self.at = end;
        self.rule.inspections.retain(|inspection| !inspection.checks.is_empty());
        if self.rule.sid == 0 {
            return Err(self.fault("the rule has no `sid`"));
        }
        match rule_fault(&self.rule) {
            Some(reason) if !self.skips => Err(self.fault(reason)),
            _ => Ok(self.rule),
        }
    }
}

fn sticky_is_set(sticky: Buffer, named: Buffer) -> String {
    if sticky == named {
        return format!("the sticky buffer {} applies already", sticky.name());
    }
    format!(
        "the sticky buffer {} still applies; use {} as one, or end it by pkt_data",
        sticky.name(),
        named.name()
    )
}

/// What contradicts itself in a content.
fn content_fault(content: &Content) -> Option<String> {
    let absolute = content.offset.is_some() || content.depth.is_some();
    let relative = content.distance.is_some() || content.within.is_some();
    let length = content.bytes.len() as i64;
    if absolute && relative {
        return Some("a content has either offset and depth, or distance and within".into());
    }
    for (name, value) in [("depth", &content.depth), ("within", &content.within)] {
        if let Some(Value::Number(number)) = value.as_ref().filter(|v| v.is_less_than(length)) {
            let shorter = format!("{name} {number} is shorter than the content ({length} bytes)");
            return Some(shorter);
        }
    }
    if content.startswith && (absolute || relative) {
        return Some("startswith excludes offset, depth, distance and within".into());
    }
    match content.fast_pattern {
        Some(FastPattern::Only) if absolute || relative || content.negated => {
            Some("fast_pattern:only excludes negation, offset, depth, distance and within".into())
        }
        Some(_) if content.negated && (absolute || relative) => {
            Some("a negated content with a place cannot be the fast pattern".into())
        }
        Some(FastPattern::Piece { offset, length: piece })
            if i64::from(offset) + i64::from(piece) > length =>
        {
            Some(format!("the piece of fast_pattern ends after the content ({length} bytes)"))
        }
        _ => None,
    }
}

impl Value {
    fn is_less_than(&self, length: i64) -> bool {
        matches!(self, Self::Number(number) if *number < length)
    }
}

/// What contradicts itself in a rule.
fn rule_fault(rule: &Rule) -> Option<String> {
    let to = rule.conditions.iter().find_map(|condition| match condition {
        Condition::Flow(flow) => flow.to,
        _ => None,
    });
    let mut side: Option<(FlowSide, Buffer)> = None;
    for inspection in &rule.inspections {
        let buffer = inspection.buffer;
        if let Some(reason) = never::fault(inspection) {
            return Some(reason);
        }
        let portless = matches!(
            rule.protocol,
            Protocol::Udp | Protocol::Icmp | Protocol::Icmpv4 | Protocol::Icmpv6 | Protocol::Dns
        );
        if portless && buffer.name().starts_with("http.") {
            let name = rule.protocol.name();
            return Some(format!("the buffer {} does not occur in {name}", buffer.name()));
        }
        let Some(of) = buffer.side() else { continue };
        if to.is_some_and(|to| to != of) {
            let flow = if of == FlowSide::Server { "to_client" } else { "to_server" };
            return Some(format!("the buffer {} contradicts flow:{flow}", buffer.name()));
        }
        match side {
            Some((other, first)) if other != of => {
                let (first, second) = (first.name(), buffer.name());
                return Some(format!(
                    "the buffers {first} and {second} are of opposite directions"
                ));
            }
            _ => side = Some((of, buffer)),
        }
    }
    let longest = |dsize: &Compare| dsize.bounds().map_or(0, |(_, high)| high);
    let dsize = rule.conditions.iter().find_map(|condition| match condition {
        Condition::Dsize(dsize) => Some(longest(dsize)),
        _ => None,
    });
    let payload = rule.inspections.iter().filter(|i| i.buffer == Buffer::Payload);
    let mut contents = payload.flat_map(|i| &i.checks);
    contents.find_map(|check| match (check, dsize) {
        (Check::Content(content), Some(most)) if !content.negated => {
            let length = content.bytes.len() as u64;
            (length > most).then(|| format!("dsize excludes the content ({length} bytes)"))
        }
        _ => None,
    })
}
