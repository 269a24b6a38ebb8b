//! One finding about a configuration file, and how it is shown.

use std::fmt::Write;

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
}

/// What a [`Diagnostic`] is about, for those who show some of them elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Topic {
    /// Anything.
    #[default]
    Other,
    /// A rule that never matches or may be left out.
    OddRule,
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

/// Shows each diagnostic with its line and a mark under its place, then a count.
///
/// `source` is the text that was parsed. `color`: with ANSI escapes; ask for it on a terminal only.
pub fn render(diagnostics: &[Diagnostic], file: &str, source: &str, color: bool) -> String {
    let paint = |code: &'static str| if color { code } else { "" };
    let (bold, blue, reset) = (paint("\x1b[1m"), paint("\x1b[1;34m"), paint("\x1b[0m"));
    let lines: Vec<&str> = source.split('\n').collect();
    let mut out = String::new();
    for d in diagnostics {
        let (word, mark) = match d.severity {
            Severity::Error => ("error", paint("\x1b[1;31m")),
            Severity::Warning => ("warning", paint("\x1b[1;33m")),
        };
        let number = d.line.to_string();
        let margin = " ".repeat(number.len());
        let _ = writeln!(out, "{mark}{word}{reset}{bold}: {}{reset}", printable(&d.message));
        let _ = writeln!(out, "{margin}{blue}-->{reset} {file}:{}:{}", d.line, d.column);
        let _ = writeln!(out, "{margin} {blue}|{reset}");
        // Tabs become one space, so that the mark is under its place.
        let line = lines.get(d.line.saturating_sub(1)).map_or("", |line| line.trim_end());
        let _ = writeln!(out, "{blue}{number} |{reset} {}", printable(line));
        let pad = " ".repeat(d.column.saturating_sub(1));
        let carets = "^".repeat(d.len.max(1));
        let _ = write!(out, "{margin} {blue}|{reset} {pad}{mark}{carets}{reset}");
        if let Some(expected) = &d.expected {
            let _ = write!(out, "{mark} expected {}{reset}", printable(expected));
        }
        out.push('\n');
        if let Some(help) = &d.help {
            let _ = writeln!(out, "{margin} {blue}={reset} help: {}", printable(help));
        }
        out.push('\n');
    }
    let errors = diagnostics.iter().filter(|d| d.severity == Severity::Error).count();
    let warnings = diagnostics.len() - errors;
    let count = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
    match (errors, warnings) {
        (0, 0) => {}
        (errors, 0) => _ = writeln!(out, "{file}: {}", count(errors, "error")),
        (0, warnings) => _ = writeln!(out, "{file}: {}", count(warnings, "warning")),
        _ => {
            let (errors, warnings) = (count(errors, "error"), count(warnings, "warning"));
            let _ = writeln!(out, "{file}: {errors}, {warnings}");
        }
    }
    out
}

/// Without control characters: the text comes from a file and goes to a terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
