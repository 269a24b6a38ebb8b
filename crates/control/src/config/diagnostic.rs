//! One finding about a configuration file, and how it is shown.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use files::output::shown;
use serde::Serialize;

/// A mistake or a doubt, with its place in the text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// Errors refuse the file, warnings do not.
    pub severity: Severity,
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// Characters from `column` on that are meant, at least 1, within the line.
    pub len: usize,
    /// What is wrong.
    pub message: String,
    /// What would be right.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// A way out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// What it is about.
    #[serde(skip)]
    pub topic: Topic,
    /// Where it is in a file that this one names; the message begins with that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

/// A place in another file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Origin {
    /// Its path.
    pub file: String,
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
}

/// What a [`Diagnostic`] is about, for those who show some of them elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Topic {
    /// Anything.
    #[default]
    Other,
    /// A rule that never matches or may be left out.
    OddRule,
    /// Ports whose packets no rule filters, though there are rules.
    Unfiltered,
}

/// Of a [`Diagnostic`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The file cannot be used.
    Error,
    /// It can, but probably means something else.
    Warning,
}

impl Diagnostic {
    /// In one line, for a log.
    pub fn in_line(&self, file: &str) -> String {
        format!("{file}:{}:{}: {}", self.line, self.column, self.text())
    }

    /// The message and what was expected, without the place.
    pub fn text(&self) -> String {
        let message = &self.message;
        match &self.expected {
            None => message.clone(),
            // "did you mean `wan`?"
            Some(expected) if message.ends_with('?') => format!("{message} Expected {expected}"),
            Some(expected) => format!("{message}: expected {expected}"),
        }
    }
}

/// Warnings of one kind that are shown one by one; more of them are one line with a count.
pub const LISTED: usize = 3;

/// What a message says, without the names and numbers in it: messages of one kind say the same of different things.
pub fn kind(message: &str) -> String {
    let parts = message.split('`').enumerate().map(|(at, part)| match at % 2 {
        1 => "…".to_owned(),
        _ => {
            let is_value = |word: &str| word.contains(|c: char| c.is_ascii_digit());
            let words = part.split(' ').map(|word| if is_value(word) { "…" } else { word });
            words.collect::<Vec<_>>().join(" ")
        }
    });
    parts.collect::<Vec<_>>().join("`")
}

/// For each of several messages, by their kinds: whether it is shown, and how many more of its kind are not. The first of
/// a kind stands for many of them. Messages without a kind are always shown.
pub fn in_groups(kinds: &[Option<String>]) -> Vec<Option<usize>> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    kinds.iter().flatten().for_each(|kind| *counts.entry(kind).or_default() += 1);
    let mut seen = HashSet::new();
    let shown = |kind: &Option<String>| match kind.as_deref() {
        Some(kind) if counts[kind] > LISTED => {
            let others = counts[kind] - 1;
            seen.insert(kind.to_owned()).then_some(others)
        }
        _ => Some(0),
    };
    kinds.iter().map(shown).collect()
}

/// Shows each diagnostic with its line and a mark under its place, then a count.
///
/// `source` is the text that was parsed. `color`: with ANSI escapes; ask for it on a terminal only.
pub fn render(diagnostics: &[Diagnostic], file: &str, source: &str, color: bool) -> String {
    let all = diagnostics.iter().map(|d| render_one(d, file, source, color));
    all.chain([summary(diagnostics.iter().map(|d| d.severity), file)]).collect()
}

/// Shows one diagnostic with its line and a mark under its place.
pub fn render_one(d: &Diagnostic, file: &str, source: &str, color: bool) -> String {
    let paint = |code: &'static str| if color { code } else { "" };
    let (bold, blue, reset) = (paint("\x1b[1m"), paint("\x1b[1;34m"), paint("\x1b[0m"));
    let mut out = String::new();
    let (word, mark) = match d.severity {
        Severity::Error => ("error", paint("\x1b[1;31m")),
        Severity::Warning => ("warning", paint("\x1b[1;33m")),
    };
    let number = d.line.to_string();
    let margin = " ".repeat(number.len());
    let (file, message) = (shown(file), shown(&d.message));
    let _ = writeln!(out, "{mark}{word}{reset}{bold}: {message}{reset}");
    let _ = writeln!(out, "{margin}{blue}-->{reset} {file}:{}:{}", d.line, d.column);
    let _ = writeln!(out, "{margin} {blue}|{reset}");
    // What is not printable becomes one space, so that the mark is under its place.
    let line = source.split('\n').nth(d.line.saturating_sub(1)).map_or("", |line| line.trim_end());
    let _ = writeln!(out, "{blue}{number} |{reset} {}", printable(line));
    let pad = " ".repeat(d.column.saturating_sub(1));
    let carets = "^".repeat(d.len.max(1));
    let _ = write!(out, "{margin} {blue}|{reset} {pad}{mark}{carets}{reset}");
    if let Some(expected) = &d.expected {
        let _ = write!(out, "{mark} expected {}{reset}", shown(expected));
    }
    out.push('\n');
    if let Some(help) = &d.help {
        let _ = writeln!(out, "{margin} {blue}={reset} help: {}", shown(help));
    }
    out.push('\n');
    out
}

/// How many errors and warnings there are, as a line; nothing where there are none.
pub fn summary(all: impl Iterator<Item = Severity> + Clone, file: &str) -> String {
    let errors = all.clone().filter(|severity| *severity == Severity::Error).count();
    let warnings = all.count() - errors;
    let file = shown(file);
    let count = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
    match (errors, warnings) {
        (0, 0) => String::new(),
        (errors, 0) => format!("{file}: {}\n", count(errors, "error")),
        (0, warnings) => format!("{file}: {}\n", count(warnings, "warning")),
        _ => format!("{file}: {}, {}\n", count(errors, "error"), count(warnings, "warning")),
    }
}

/// A line of a file as [`shown`], with a space for each character that is not.
fn printable(text: &str) -> String {
    let one = |c: char| match shown(c.encode_utf8(&mut [0; 4])).len() == c.len_utf8() && c != '\t' {
        true => c,
        false => ' ',
    };
    text.chars().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_one_kind_differ_in_names_and_numbers() {
        for (one, other) in [
            ("there is no port `a`", "there is no port `west`"),
            ("bits set in `10.0.0.1/8`, used as 10.0.0.0/8", "bits set in `::1/8`, used as 0::/8"),
            (
                "expected a length of 0 to 32, found `33`",
                "expected a length of 0 to 128, found `x`",
            ),
        ] {
            assert_eq!(kind(one), kind(other));
        }
        assert_ne!(kind("there is no port `a`"), kind("there is no face `a`"));
        assert_eq!(kind("no `"), "no `…", "a backtick without its other one");
    }

    #[test]
    fn a_line_has_what_was_expected() {
        let of = |message: &str, expected: Option<&str>| Diagnostic {
            severity: Severity::Error,
            line: 3,
            column: 7,
            len: 1,
            message: message.into(),
            expected: expected.map(str::to_owned),
            help: None,
            topic: Topic::Other,
            origin: None,
        };
        assert_eq!(of("no `to`", None).in_line("a.toml"), "a.toml:3:7: no `to`");
        assert_eq!(of("`mtu` is 9", Some("68 or more")).text(), "`mtu` is 9: expected 68 or more");
        let meant = of("unknown port `wann`, did you mean `wan`?", Some("one of lan, wan"));
        let expected = "unknown port `wann`, did you mean `wan`? Expected one of lan, wan";
        assert_eq!(meant.text(), expected);
    }

    #[test]
    fn many_of_a_kind_are_one() {
        let kinds = ["no `a`", "odd", "no `b`", "no `c`", "no `d`"].map(|text| Some(kind(text)));
        assert_eq!(in_groups(&kinds), [Some(3), Some(0), None, None, None]);
        // As many as are listed; and errors.
        assert_eq!(in_groups(&kinds[..4]), [Some(0); 4]);
        assert_eq!(in_groups(&[const { None }; 9]), [Some(0); 9]);
    }
}
