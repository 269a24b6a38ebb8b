//! Regular expressions of rules.
//!
//! PCRE's syntax is written anew for the engine that runs it. Most expressions are regular: `regex` takes time linear in the
//! bytes. Those with look-around, back-references, atomic groups or possessive repetition go to `fancy-regex`, whose
//! backtracking is bounded; it reads text, so bytes are its first 256 characters.
//!
//! ```text
//!  pcre ─▶ translate ─┬─ regular ─▶ regex::bytes, bounded in size
//!                     ├─ not ─────▶ fancy_regex, bounded in steps
//!                     └─ neither ─▶ refused, with the construct
//! ```

use std::fmt::Write;

use signatures::Pcre;

/// What expressions may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatternLimits {
    /// Bytes of the program of one expression.
    pub size_max: usize,
    /// Steps of one search that backtracks.
    pub backtrack_max: usize,
}

impl Default for PatternLimits {
    /// 4 MiB, 100,000 steps.
    fn default() -> Self {
        Self { size_max: 4 << 20, backtrack_max: 100_000 }
    }
}

/// An expression, compiled.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    engine: Engine,
    /// It matches at the first byte only.
    is_anchored: bool,
    /// It has `^` or the like, which is true at the beginning of a buffer.
    pub(crate) looks_at_start: bool,
    /// Whether it matches may depend on where the bytes end.
    pub(crate) looks_at_end: bool,
    /// Where it matches nowhere behind a place, it matches nowhere behind a later one: it does not look at what is before it.
    pub(crate) goes_forward: bool,
    /// What it matches has one of these in it, in small letters; none: nothing is known.
    pub(crate) literals: Vec<Vec<u8>>,
}

#[derive(Clone, Debug)]
enum Engine {
    Linear(regex::bytes::Regex),
    /// The second one matches in all that the first one matches in, in linear time.
    Backtracking(Box<fancy_regex::Regex>, Option<regex::bytes::Regex>),
}

/// A search reached its bound: whether there is a match is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GaveUp;

impl Pattern {
    pub(crate) fn new(pcre: &Pcre, limits: &PatternLimits) -> Result<Self, String> {
        let written =
            translate(&pcre.pattern, pcre.extended, pcre.multiline, pcre.dollar_end_only)?;
        let looks_at_end = written.looks_at_end || written.backtracks;
        let looks_at_start = written.looks_at_start || pcre.anchored;
        let mut parser = regex_syntax::ParserBuilder::new();
        parser
            .unicode(false)
            .utf8(false)
            .case_insensitive(pcre.caseless)
            .multi_line(pcre.multiline)
            .dot_matches_new_line(pcre.dotall)
            .ignore_whitespace(pcre.extended)
            .swap_greed(pcre.ungreedy);
        let regular = match written.backtracks {
            true => wider(&written.text),
            false => written.text.clone(),
        };
        let goes_forward = !looks_at_start && !written.text.contains("(?<");
        let hir = parser.build().parse(&regular);
        let mut literals: Vec<Vec<u8>> =
            hir.map_or_else(|_| Vec::new(), |hir| crate::literals::of_expression(&hir));
        // Letters above 127 in small and large are the same for `fancy_regex`.
        if written.backtracks && pcre.caseless && literals.iter().flatten().any(|b| *b > 127) {
            literals.clear();
        }
        let engine = match written.backtracks {
            false => Engine::Linear(
                linear(&written.text, pcre, limits).map_err(|e| one_line(&e.to_string()))?,
            ),
            true if pcre.ungreedy => return Err("`U` with look-around or the like".to_owned()),
            true => {
                let flags = [
                    (pcre.caseless, 'i'),
                    (pcre.multiline, 'm'),
                    (pcre.dotall, 's'),
                    (pcre.extended, 'x'),
                ];
                let flags: String = flags.iter().filter(|(on, _)| *on).map(|(_, c)| *c).collect();
                let text = match flags.is_empty() {
                    true => written.text,
                    false => format!("(?{flags}){}", written.text),
                };
                let mut builder = fancy_regex::RegexBuilder::new(&text);
                builder
                    .backtrack_limit(limits.backtrack_max)
                    .delegate_size_limit(limits.size_max)
                    .delegate_dfa_size_limit(limits.size_max);
                let regex = builder.build().map_err(|e| one_line(&e.to_string()))?;
                Engine::Backtracking(Box::new(regex), linear(&regular, pcre, limits).ok())
            }
        };
        let is_anchored = pcre.anchored;
        Ok(Self { engine, is_anchored, looks_at_start, looks_at_end, goes_forward, literals })
    }

    /// Whether it backtracks.
    pub(crate) fn backtracks(&self) -> bool {
        matches!(self.engine, Engine::Backtracking(..))
    }

    /// What a search of so many bytes costs, in bytes that a linear one searches.
    pub(crate) fn cost(&self, bytes: usize) -> usize {
        match self.engine {
            Engine::Linear(_) => bytes,
            // Each of them may be where a step begins that goes over many.
            Engine::Backtracking(..) => 4096 + 16 * bytes,
        }
    }

    /// Where it first matches at or behind `from`.
    ///
    /// # Errors
    /// The bound of steps was reached.
    pub(crate) fn find(&self, bytes: &[u8], from: usize) -> Result<Option<(usize, usize)>, GaveUp> {
        if from > bytes.len() || self.is_anchored && from > 0 {
            return Ok(None);
        }
        let found = match &self.engine {
            Engine::Linear(regex) => regex.find_at(bytes, from).map(|m| (m.start(), m.end())),
            Engine::Backtracking(_, Some(wider)) if !wider.is_match_at(bytes, from) => None,
            Engine::Backtracking(regex, _) => {
                // A byte is a character; those above 127 take two bytes of text.
                let text: String = bytes.iter().map(|b| char::from(*b)).collect();
                let wide = |bytes: &[u8]| bytes.iter().filter(|b| **b > 127).count();
                let at = from + wide(&bytes[..from]);
                let found = regex.find_from_pos(&text, at).map_err(|_| GaveUp)?;
                let place = |at: usize| text[..at].chars().count();
                found.map(|found| (place(found.start()), place(found.end())))
            }
        };
        Ok(found.filter(|(start, _)| !self.is_anchored || *start == 0))
    }
}

/// An expression that is regular.
fn linear(
    text: &str,
    pcre: &Pcre,
    limits: &PatternLimits,
) -> Result<regex::bytes::Regex, regex::Error> {
    let mut builder = regex::bytes::RegexBuilder::new(text);
    builder
        .unicode(false)
        .case_insensitive(pcre.caseless)
        .multi_line(pcre.multiline)
        .dot_matches_new_line(pcre.dotall)
        .ignore_whitespace(pcre.extended)
        .swap_greed(pcre.ungreedy)
        .size_limit(limits.size_max)
        .dfa_size_limit(limits.size_max);
    builder.build()
}

/// A regular expression that matches in all that a written one matches in: without look-around, with anything for references.
fn wider(text: &str) -> String {
    let (mut to, mut rest) = (String::with_capacity(text.len()), text);
    // Of each group that is open: whether it is left out.
    let mut open: Vec<bool> = Vec::new();
    while let Some(letter) = rest.chars().next() {
        let is_out = open.contains(&true);
        let around = ["(?=", "(?!", "(?<=", "(?<!"].iter().find(|own| rest.starts_with(**own));
        let mut put = |text: &str| {
            if !is_out {
                to.push_str(text);
            }
        };
        let mut len = letter.len_utf8();
        match letter {
            '(' if around.is_some() => {
                put("(?:");
                open.push(true);
                len = around.map_or(1, |own| own.len());
            }
            '(' if rest.starts_with("(?P=") => {
                put("(?s:.*)");
                len = rest.find(')').map_or(rest.len(), |at| at + 1);
            }
            '(' if rest.starts_with("(?>") => {
                put("(?:");
                open.push(false);
                len = 3;
            }
            '(' => {
                put("(");
                // Flags alone are no group.
                open.push(false);
            }
            ')' => {
                // The end of what was left out is there again.
                if open.pop() == Some(true) && !open.contains(&true) || !is_out {
                    to.push(')');
                }
            }
            '\\' if rest[1..].starts_with(|next: char| next.is_ascii_digit()) => {
                put("(?s:.*)");
                len = 1 + rest[1..].bytes().take_while(u8::is_ascii_digit).count();
            }
            '\\' => {
                len = 1 + rest[1..].chars().next().map_or(0, char::len_utf8);
                put(&rest[..len]);
            }
            '[' => {
                len = class_len(rest);
                put(&rest[..len]);
            }
            '*' | '+' | '?' | '}' => {
                put(&rest[..1]);
                // Possessive.
                len = if rest[1..].starts_with('+') { 2 } else { 1 };
            }
            _ => put(&rest[..len]),
        }
        rest = &rest[len..];
    }
    to
}

/// How many bytes the class has that a text begins with.
fn class_len(text: &str) -> usize {
    let (mut at, bytes) = (1, text.as_bytes());
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'[' => at += class_len(&text[at..]),
            b']' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn one_line(text: &str) -> String {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.next_back().unwrap_or("wrong").trim_start_matches("error: ").to_owned()
}

/// An expression in the syntax of `regex`.
struct Written {
    text: String,

    backtracks: bool,
    looks_at_start: bool,
    looks_at_end: bool,
}

struct Translation<'a> {
    from: &'a [u8],
    at: usize,
    to: Written,
    multiline: bool,
    end_only: bool,
    extended: bool,
    groups: usize,
}

/// What a backslash stands for.
enum Escape {
    Byte(u8),
    /// A class, without brackets, and whether it is negated.
    Class(&'static str, bool),
    /// As it is written, outside of a class.
    Other(&'static str),
    Reference(usize),
}

const WORD: &str = "0-9A-Za-z_";
const SPACE: &str = r"\x09-\x0d\x20";
const HORIZONTAL: &str = r"\x09\x20\xa0";
const VERTICAL: &str = r"\x0a-\x0d\x85";

fn translate(
    from: &str,
    extended: bool,
    multiline: bool,
    end_only: bool,
) -> Result<Written, String> {
    let to = Written {
        text: String::with_capacity(from.len() + 16),
        backtracks: false,
        looks_at_start: false,
        looks_at_end: false,
    };
    let groups = from.bytes().filter(|byte| *byte == b'(').count();
    let from = from.as_bytes();
    let mut translation = Translation { from, at: 0, to, multiline, end_only, extended, groups };
    while translation.at < from.len() {
        translation.token()?;
    }
    Ok(translation.to)
}

impl Translation<'_> {
    fn rest(&self) -> &[u8] {
        &self.from[self.at.min(self.from.len())..]
    }

    fn peek(&self) -> Option<u8> {
        self.rest().first().copied()
    }

    fn literal(&mut self, byte: u8) {
        match byte.is_ascii_alphanumeric() {
            true => self.to.text.push(char::from(byte)),
            false => write!(self.to.text, "\\x{byte:02x}").expect("a string takes all"),
        }
    }

    fn token(&mut self) -> Result<(), String> {
        let byte = self.from[self.at];
        self.at += 1;
        match byte {
            b'\\' if self.peek() == Some(b'Q') => {
                self.at += 1;
                let end = self.rest().windows(2).position(|w| w == b"\\E");
                let end = end.unwrap_or(self.rest().len());
                let quoted = self.rest()[..end].to_vec();
                quoted.iter().for_each(|byte| self.literal(*byte));
                self.at = (self.at + end + 2).min(self.from.len());
            }
            b'\\' if self.peek() == Some(b'E') => self.at += 1,
            b'\\' => match self.escape(false)? {
                Escape::Byte(byte) => self.literal(byte),
                Escape::Class(class, negated) => {
                    let not = if negated { "^" } else { "" };
                    write!(self.to.text, "[{not}{class}]").expect("a string takes all");
                }
                Escape::Other(text) => self.to.text.push_str(text),
                Escape::Reference(number) => {
                    self.to.backtracks = true;
                    write!(self.to.text, "(?:\\{number})").expect("a string takes all");
                }
            },
            b'[' => self.class()?,
            b'(' => self.group()?,
            b'^' => {
                self.to.looks_at_start = true;
                self.to.text.push('^');
            }
            b'$' => {
                self.to.looks_at_end = true;
                self.to.text.push_str(match (self.multiline, self.end_only) {
                    (true, _) => "$",
                    (false, true) => r"\z",
                    (false, false) => r"(?:\n?\z)",
                });
            }
            b'{' if !is_repetition(self.rest()) => self.literal(byte),
            b'*' | b'+' | b'?' | b'{' => {
                self.to.text.push(char::from(byte));
                if byte == b'{' {
                    let end = self.rest().iter().position(|b| *b == b'}').unwrap_or(0);
                    let inner = String::from_utf8_lossy(&self.rest()[..=end]).into_owned();
                    self.to.text.push_str(&inner);
                    self.at += end + 1;
                }
                match self.peek() {
                    Some(b'?') => {
                        self.to.text.push('?');
                        self.at += 1;
                    }
                    Some(b'+') => {
                        self.to.backtracks = true;
                        self.to.text.push('+');
                        self.at += 1;
                    }
                    _ => {}
                }
            }
            b'|' | b')' | b'.' => self.to.text.push(char::from(byte)),
            b'#' if self.extended => {
                let end = self.rest().iter().position(|b| *b == b'\n');
                self.at += end.unwrap_or(self.rest().len());
            }
            byte if self.extended && byte.is_ascii_whitespace() => {}
            byte => self.literal(byte),
        }
        Ok(())
    }

    /// Behind a backslash.
    fn escape(&mut self, in_class: bool) -> Result<Escape, String> {
        let Some(byte) = self.peek() else { return Err("ends in a backslash".to_owned()) };
        self.at += 1;
        Ok(match byte {
            b'x' => Escape::Byte(self.hex()?),
            b'0' => Escape::Byte(self.octal(0)),
            b'1'..=b'9' => {
                let number = usize::from(byte - b'0');
                match in_class || number > self.groups && byte < b'8' {
                    true if byte < b'8' => Escape::Byte(self.octal(u32::from(byte - b'0'))),
                    true => Escape::Byte(byte),
                    false => Escape::Reference(number),
                }
            }
            b'a' => Escape::Byte(7),
            b'e' => Escape::Byte(27),
            b'f' => Escape::Byte(12),
            b'n' => Escape::Byte(10),
            b'r' => Escape::Byte(13),
            b't' => Escape::Byte(9),
            b'c' => {
                let control = self.peek().ok_or("ends in `\\c`")?;
                self.at += 1;
                Escape::Byte(control.to_ascii_uppercase() ^ 64)
            }
            b'd' => Escape::Class("0-9", false),
            b'D' => Escape::Class("0-9", true),
            b'w' => Escape::Class(WORD, false),
            b'W' => Escape::Class(WORD, true),
            b's' => Escape::Class(SPACE, false),
            b'S' => Escape::Class(SPACE, true),
            b'h' => Escape::Class(HORIZONTAL, false),
            b'H' => Escape::Class(HORIZONTAL, true),
            b'v' => Escape::Class(VERTICAL, false),
            b'V' => Escape::Class(VERTICAL, true),
            b'b' if in_class => Escape::Byte(8),
            b'N' if !in_class => Escape::Class(r"\n", true),
            b'R' if !in_class => Escape::Other(r"(?:\r\n|[\n-\r\x85])"),
            b'b' | b'B' if !in_class => {
                (self.to.looks_at_end, self.to.looks_at_start) = (true, true);
                Escape::Other(if byte == b'b' { r"\b" } else { r"\B" })
            }
            b'A' | b'G' if !in_class => {
                self.to.looks_at_start = true;
                Escape::Other(r"\A")
            }
            b'z' | b'Z' if !in_class => {
                self.to.looks_at_end = true;
                Escape::Other(if byte == b'z' { r"\z" } else { r"(?:\n?\z)" })
            }
            b'k' | b'g' | b'K' | b'p' | b'P' | b'X' | b'C' if !in_class => {
                return Err(format!("`\\{}`", char::from(byte)));
            }
            byte => Escape::Byte(byte),
        })
    }

    fn hex(&mut self) -> Result<u8, String> {
        if self.peek() == Some(b'{') {
            let end = self.rest().iter().position(|b| *b == b'}').ok_or("`\\x{` without end")?;
            let digits = std::str::from_utf8(&self.rest()[1..end]).unwrap_or("");
            let byte = u8::from_str_radix(digits, 16);
            let byte = byte.map_err(|_| format!("`\\x{{{digits}}}` is not a byte"))?;
            self.at += end + 1;
            return Ok(byte);
        }
        let mut byte = 0;
        for _ in 0..2 {
            let Some(digit) = self.peek().and_then(|b| char::from(b).to_digit(16)) else { break };
            byte = byte << 4 | digit as u8;
            self.at += 1;
        }
        Ok(byte)
    }

    fn octal(&mut self, first: u32) -> u8 {
        let mut byte = first;
        for _ in 0..2 {
            let Some(digit) = self.peek().and_then(|b| char::from(b).to_digit(8)) else { break };
            byte = byte << 3 | digit;
            self.at += 1;
        }
        byte as u8
    }

    /// Behind `(`.
    fn group(&mut self) -> Result<(), String> {
        let rest = self.rest();
        if rest.first() == Some(&b'*') {
            return Err("a verb, `(*…)`".to_owned());
        }
        if rest.first() != Some(&b'?') {
            self.to.text.push('(');
            return Ok(());
        }
        if rest.starts_with(b"?#") {
            let end = rest.iter().position(|b| *b == b')').ok_or("a comment without end")?;
            self.at += end + 1;
            return Ok(());
        }
        for around in ["?=", "?!", "?<=", "?<!", "?>"] {
            if rest.starts_with(around.as_bytes()) {
                self.to.backtracks = true;
                self.to.text.push('(');
                self.to.text.push_str(around);
                self.at += around.len();
                return Ok(());
            }
        }
        if rest.starts_with(b"?P=") {
            let end = rest.iter().position(|b| *b == b')').ok_or("a name without end")?;
            let name = String::from_utf8_lossy(&rest[..=end]).into_owned();
            self.to.backtracks = true;
            write!(self.to.text, "({name}").expect("a string takes all");
            self.at += end + 1;
            return Ok(());
        }
        let named = match rest {
            [b'?', b'P', b'<', ..] => Some(3),
            [b'?', b'<', ..] => Some(2),
            _ => None,
        };
        if let Some(lead) = named {
            let end = rest.iter().position(|b| *b == b'>').ok_or("a name without end")?;
            let name = String::from_utf8_lossy(&rest[lead..end]).into_owned();
            write!(self.to.text, "(?P<{name}>").expect("a string takes all");
            self.at += end + 1;
            return Ok(());
        }
        let end = rest[1..].iter().position(|b| !matches!(b, b'i' | b'm' | b's' | b'x' | b'-'));
        let end = end.map(|end| end + 1).ok_or("a group without end")?;
        match rest[end] {
            b':' | b')' => {
                let flags = String::from_utf8_lossy(&rest[..=end]).into_owned();
                // Text is written without white space, so that `x` has no work to do; what is between is taken as it is.
                let (on, _) = flags.split_once('-').unwrap_or((&flags, ""));
                if on.contains('x') && !self.extended {
                    return Err("`(?x)` within an expression".to_owned());
                }
                if on.contains('m') {
                    (self.to.looks_at_end, self.multiline) = (true, true);
                }
                self.to.text.push('(');
                self.to.text.push_str(&flags);
                self.at += end + 1;
                Ok(())
            }
            other => Err(format!("a group `(?{}`", char::from(other))),
        }
    }

    /// Behind `[`.
    fn class(&mut self) -> Result<(), String> {
        let negated = self.peek() == Some(b'^');
        self.at += usize::from(negated);
        self.to.text.push_str(if negated { "[^" } else { "[" });
        let begin = self.at;
        // The first byte of a range, if there may be one.
        let mut has_first = false;
        loop {
            let Some(byte) = self.peek() else { return Err("a class without end".to_owned()) };
            if byte == b']' && self.at > begin {
                self.at += 1;
                self.to.text.push(']');
                return Ok(());
            }
            if self.rest().starts_with(b"[:")
                && let Some(end) = self.rest().windows(2).position(|w| w == b":]")
            {
                let posix = String::from_utf8_lossy(&self.rest()[..end + 2]).into_owned();
                self.to.text.push_str(&posix);
                self.at += end + 2;
                has_first = false;
                continue;
            }
            self.at += 1;
            let item = match byte {
                b'\\' => self.escape(true)?,
                b'-' if has_first && !matches!(self.peek(), None | Some(b']')) => {
                    let mut ahead = self.rest().iter();
                    let is_class = ahead.next() == Some(&b'\\')
                        && ahead.next().is_some_and(|b| b"dDwWsShHvV".contains(b));
                    if !is_class && !self.rest().starts_with(b"[:") {
                        self.to.text.push('-');
                        has_first = false;
                        // The other end of the range follows.
                        let end = self.peek().unwrap_or(b']');
                        self.at += 1;
                        match if end == b'\\' { self.escape(true)? } else { Escape::Byte(end) } {
                            Escape::Byte(end) => self.literal(end),
                            _ => return Err("a range to a class".to_owned()),
                        }
                        continue;
                    }
                    Escape::Byte(b'-')
                }
                byte => Escape::Byte(byte),
            };
            has_first = matches!(item, Escape::Byte(_));
            match item {
                Escape::Byte(byte) => self.literal(byte),
                Escape::Class(class, false) => self.to.text.push_str(class),
                Escape::Class(class, true) => {
                    write!(self.to.text, "[^{class}]").expect("a string takes all");
                }
                Escape::Other(_) | Escape::Reference(_) => return Err("a class".to_owned()),
            }
        }
    }
}

/// Is it `3}`, `3,}` or `3,5}`?
fn is_repetition(rest: &[u8]) -> bool {
    let Some(end) = rest.iter().position(|b| *b == b'}') else { return false };
    let mut parts = rest[..end].splitn(2, |b| *b == b',');
    let digits = |part: &[u8]| part.iter().all(u8::is_ascii_digit);
    parts.next().is_some_and(|first| !first.is_empty() && digits(first))
        && parts.next().is_none_or(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(pattern: &str, flags: &str, bytes: &[u8]) -> Option<(usize, usize)> {
        let has = |flag| flags.contains(flag);
        let pcre = Pcre {
            pattern: pattern.to_owned(),
            caseless: has('i'),
            multiline: has('m'),
            dotall: has('s'),
            extended: has('x'),
            anchored: has('A'),
            dollar_end_only: has('E'),
            ..Pcre::default()
        };
        let pattern = Pattern::new(&pcre, &PatternLimits::default())
            .unwrap_or_else(|e| panic!("{pattern}: {e}"));
        pattern.find(bytes, 0).expect("within its bound")
    }

    #[test]
    fn what_pcre_writes_otherwise() {
        type Place = Option<(usize, usize)>;
        let cases: &[(&str, &str, &[u8], Place)] = &[
            (r"\/a\;\-\_", "", b"x/a;-_", Some((1, 6))),
            (r"a{,2}", "", b"a{,2}", Some((0, 5))),
            (r"a{2}b", "", b"aab", Some((0, 3))),
            (r"[]a]+", "", b"x]a", Some((1, 3))),
            (r"[a-z\-]+", "", b"1b-c", Some((1, 4))),
            (r"[\w-]+", "", b".a-_.", Some((1, 4))),
            (r"[^\x00-\x7f]", "", b"a\xff", Some((1, 2))),
            (r"[[:digit:]&&~]+", "", b"a1&~", Some((1, 4))),
            (r"\xE9\x2f", "", b"\xe9/", Some((0, 2))),
            (r"a$", "", b"a\n", Some((0, 2))),
            (r"a$", "E", b"a\n", None),
            (r"^b", "m", b"a\nb", Some((2, 3))),
            (r"a b # c", "x", b"ab", Some((0, 2))),
            (r"\Qa.b\E.", "", b"a.bc", Some((0, 4))),
            (r"(?i)abc", "", b"xABC", Some((1, 4))),
            (r"b", "A", b"ab", None),
            (r"\101\t", "", b"A\t", Some((0, 2))),
            // These backtrack.
            (r"(a|b)\1", "", b"abb", Some((1, 3))),
            (r"a(?!b)", "", b"abac", Some((2, 3))),
            (r"(?<=\xff)a", "", b"a\xffa", Some((2, 3))),
            (r"a++b", "", b"xaab", Some((1, 4))),
            (r"(?P<x>[ab])\xe9(?P=x)", "", b"a\xe9ba\xe9a", Some((3, 6))),
        ];
        for (pattern, flags, bytes, expected) in cases {
            assert_eq!(find(pattern, flags, bytes), *expected, "{pattern} {flags}");
        }
    }

    #[test]
    fn what_is_not_regular_is_left_out() {
        for (text, expected) in [
            (r"ab(?=c(d)e)f", "ab(?:)f"),
            (r"(?<![a-z\])]x)ab++c*+", "(?:)ab+c*"),
            (r"(['\x22])abc(?:\1)", r"(['\x22])abc(?:(?s:.*))"),
            (r"(?P<a>b)(?P=a)(?>cd|e)", "(?P<a>b)(?s:.*)(?:cd|e)"),
        ] {
            assert_eq!(wider(text), expected);
        }
    }

    #[test]
    fn nested_repetition_is_bounded() {
        let bytes = [b'a'; 4_000];
        assert_eq!(find(r"(?=a)(a+)+\1(a+)+b", "", &bytes), None);
        assert_eq!(find("(a+)+b", "", &bytes), None);
    }
}
