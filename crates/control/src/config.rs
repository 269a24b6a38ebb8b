//! The configuration file.
//!
//! Problem: a user with ten mistakes in a file wants ten messages at once, each with a place, what
//! was expected and a way out. Serde stops at the first and knows no places once values are typed.
//!
//! So the file becomes a table with spans (`toml`), which recovers from syntax errors, and three
//! passes of our own collect [`Diagnostic`]s and never stop: `read` turns tables into
//! `types` and knows keys, kinds and ranges; `check` compares parts with each other (names,
//! addresses, next hops); [`Diff`] tells a reload what a new file changes.
//!
//! A key is declared once, in `schema`: type, default, range, text, and whether a reload applies it ([`section!`]). Its
//! reading, the difference at a reload, `docs/configuration.md` and the manual page ([`manual`]) follow from that. Other
//! crates declare sections of their own in the same way. Nothing here touches the network or keeps state; [`parse`] never
//! panics, whatever the text.
//!
//! [`section!`]: crate::section!

mod check;
mod diagnostic;
mod diff;
pub mod draft;
pub mod kinds;
pub mod manual;
mod names;
mod next_hop;
mod read;
mod schema;
pub mod section;
mod stages;
mod types;
pub mod units;
pub mod values;
mod walk;

use std::path::{Path, PathBuf};

use classify::classbench::Problems;

pub use diagnostic::{
    Diagnostic, LISTED, Origin, Severity, Topic, in_groups, kind, render, render_one, summary,
};
pub use diff::{Change, Diff, NOTHING};
pub use names::{ParsePrefixError, parse_prefix, read_prefix};
pub use next_hop::{NextHop, ParseNextHopError, is_port_name};
pub use schema::{SectionKeys, keys};
pub use stages::{
    Application, FRAMES, KnownStages, Machine, RAW, RustModule, Settings, StageKind, kept,
};
pub use types::*;
pub use walk::nearest;

use crate::firewall::Action;

/// Reads a configuration from its text.
///
/// `Ok` carries warnings, `Err` at least one error, both in the order of the file. Files that the
/// text names are not looked at ([`load`] does).
pub fn parse(
    text: &str,
    known: &KnownStages,
) -> Result<(Config, Vec<Diagnostic>), Vec<Diagnostic>> {
    parse_in(text, known, None)
}

/// Reads a configuration file; `-` is standard input. Relative paths of routes files start at its folder, and routes
/// files that cannot be read are errors.
pub fn load(path: &Path, known: &KnownStages) -> Result<(Config, Report), LoadError> {
    let source = files::input::read(path)
        .map_err(|source| LoadError::Read { path: path.to_owned(), source })?;
    let source = String::from_utf8(source).map_err(|error| {
        let line = 1 + error.as_bytes()[..error.utf8_error().valid_up_to()]
            .iter()
            .filter(|&&byte| byte == b'\n')
            .count();
        LoadError::Utf8 { path: path.to_owned(), line }
    })?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let report = |diagnostics| Report {
        file: files::input::name(path).into_owned(),
        source: source.clone(),
        diagnostics,
    };
    match parse_in(&source, known, Some(folder)) {
        Ok((config, warnings)) => Ok((config, report(warnings))),
        Err(diagnostics) => Err(LoadError::Invalid(report(diagnostics))),
    }
}

/// Diagnostics with the text they speak of; `Display` is [`render`] without colour.
#[derive(Debug, Clone)]
pub struct Report {
    /// Name of the file.
    pub file: String,
    /// Its text.
    pub source: String,
    /// In the file's order.
    pub diagnostics: Vec<Diagnostic>,
}

impl Report {
    /// The errors in one line, for a log.
    pub fn errors_in_line(&self) -> String {
        let errors = self.diagnostics.iter().filter(|d| d.severity == Severity::Error);
        errors.map(|d| d.in_line(&self.file)).collect::<Vec<_>>().join("; ")
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&render(&self.diagnostics, &self.file, &self.source, false))
    }
}

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("{}: {source}", files::input::name(path))]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not text.
    #[error("{}:{line}: expected UTF-8 text", files::input::name(path))]
    Utf8 {
        /// Which.
        path: PathBuf,
        /// Line of the first byte that is none, from 1.
        line: usize,
    },
    /// The file holds no rules of either form.
    #[error(
        "{}:{line}: expected ClassBench rules (`@…`) or `[[rule]]` entries, found `{found}`",
        path.display()
    )]
    NoRules {
        /// Which.
        path: PathBuf,
        /// Its first line that says something, from 1.
        line: usize,
        /// How that begins.
        found: String,
    },
    /// A ClassBench file says nothing of what its rules do.
    #[error("{}: the rules of a ClassBench file have no actions: give one for all of them", path.display())]
    NoAction {
        /// Which.
        path: PathBuf,
    },
    /// A ClassBench file has bad lines.
    #[error("{0}")]
    Rules(Problems),
    /// The other form does.
    #[error("{}: its rules have actions of their own", path.display())]
    OwnActions {
        /// Which.
        path: PathBuf,
    },
    /// The text has errors.
    #[error("{0}")]
    Invalid(Report),
}

/// What the rules of a file are called, by its path.
fn rules_file_name(path: &Path) -> Option<String> {
    let stem = path.file_stem()?.to_str()?;
    // Names of its rules have a number behind them.
    (crate::firewall::is_rule_name(stem) && stem.len() < 48).then(|| stem.to_owned())
}

/// Bytes of a file of rules alone; 100,000 rules have 10 MB.
pub const RULES_BYTES_MAX: u64 = 32 << 20;

/// Reads a file of rules alone, `[[rule]]` as in a configuration or a ClassBench file, whose rules all get `action`;
/// one that is compressed is decompressed, `-` is standard input. A client does that, with its own rights: an instance
/// opens no file that a request names.
///
/// # Errors
/// The file cannot be read, has more than [`RULES_BYTES_MAX`], holds no rules, or has errors; an action where rules have
/// their own, or none where they have none.
pub fn load_rules(path: &Path, action: Option<&Action>) -> Result<Vec<RuleEntry>, LoadError> {
    let source = files::input::read_at_most(path, RULES_BYTES_MAX)
        .map_err(|source| LoadError::Read { path: path.to_owned(), source })?;
    let path = path.to_owned();
    let form = rules_form(&source).map_err(|(line, found)| match found {
        None => LoadError::Utf8 { path: path.clone(), line },
        Some(found) => LoadError::NoRules { path: path.clone(), line, found },
    })?;
    match (form, action) {
        (RulesForm::ClassBench, Some(action)) => {
            let named = |problems| Problems { path: Some(path.clone()), ..problems };
            let parsed = classify::classbench::parse_rules(&source);
            let file = parsed.map_err(|problems| LoadError::Rules(named(problems)))?;
            let name = rules_file_name(&path).unwrap_or_else(|| "file".to_owned());
            let rules = crate::firewall::of_classbench(&file).into();
            let action = action.clone();
            Ok(vec![RuleEntry::File(RuleFile { name, path, action, rules })])
        }
        (RulesForm::ClassBench, None) => Err(LoadError::NoAction { path }),
        (RulesForm::Toml(_), Some(_)) => Err(LoadError::OwnActions { path }),
        (RulesForm::Toml(text), None) => toml_rules(&path, text),
    }
}

/// The forms of a file of rules.
enum RulesForm<'a> {
    ClassBench,
    Toml(&'a str),
}

/// Which form a file has, by its first line that says something. Else the line and how it begins; nothing where that
/// is not text.
fn rules_form(source: &[u8]) -> Result<RulesForm<'_>, (usize, Option<String>)> {
    let mut lines = (1..).zip(source.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii));
    let first = lines.find(|(_, line)| !line.is_empty() && line[0] != b'#');
    // Other forms begin with a table, or with a key.
    let is_toml = |line: &[u8]| line[0] == b'[' || line.contains(&b'=');
    match first {
        Some((_, line)) if line[0] == b'@' => return Ok(RulesForm::ClassBench),
        Some((number, line)) if !is_toml(line) => {
            let text = std::str::from_utf8(line).ok();
            let text = text.filter(|text| !text.contains(|c: char| c.is_control() && c != '\t'));
            let found = text.map(|text| text.chars().take(FOUND_MAX).collect());
            return Err((number, found));
        }
        _ => {}
    }
    std::str::from_utf8(source).map(RulesForm::Toml).map_err(|error| {
        let before = &source[..error.valid_up_to()];
        (1 + before.iter().filter(|byte| **byte == b'\n').count(), None)
    })
}

/// Characters that are shown of a line.
const FOUND_MAX: usize = 40;

fn toml_rules(path: &Path, text: &str) -> Result<Vec<RuleEntry>, LoadError> {
    let (table, syntax) = toml::de::DeTable::parse_recoverable(text);
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut walk = walk::Walk::new(text, &syntax).in_folder(Some(folder));
    let rules = read::rules(table.get_ref(), &mut walk);
    let diagnostics = walk.into_diagnostics();
    if diagnostics.iter().any(|d| d.severity == Severity::Error) {
        let file = path.display().to_string();
        return Err(LoadError::Invalid(Report { file, source: text.to_owned(), diagnostics }));
    }
    Ok(rules)
}

fn parse_in(
    text: &str,
    known: &KnownStages,
    folder: Option<&Path>,
) -> Result<(Config, Vec<Diagnostic>), Vec<Diagnostic>> {
    let (table, syntax) = toml::de::DeTable::parse_recoverable(text);
    let mut walk = walk::Walk::new(text, &syntax).in_folder(folder);
    let cores = match known.cores {
        0 => std::thread::available_parallelism().map_or(1, |cores| cores.get()),
        cores => cores,
    };
    let (config, spans) = read::config(table.get_ref(), known, cores, &mut walk);
    if walk.is_whole() {
        check::check(&config, &spans, known, cores, &mut walk);
    }
    let diagnostics = walk.into_diagnostics();
    if diagnostics.iter().any(|d| d.severity == Severity::Error) {
        Err(diagnostics)
    } else {
        Ok((config, diagnostics))
    }
}

#[cfg(test)]
mod tests;
