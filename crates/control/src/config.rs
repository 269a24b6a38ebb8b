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
//! Defaults stand in one place, `defaults.rs`; `docs/configuration.md` lists every key. Nothing
//! here touches the network or keeps state; [`parse`] never panics, whatever the text.

mod check;
mod defaults;
mod diagnostic;
mod diff;
mod names;
mod next_hop;
mod owners;
mod read;
mod types;
pub mod units;
mod walk;

use std::path::{Path, PathBuf};

pub use defaults::SOCKET;
pub use diagnostic::{Diagnostic, Severity, render};
pub use diff::{Change, Diff};
pub use names::{ParsePrefixError, parse_prefix, read_prefix};
pub use next_hop::{NextHop, ParseNextHopError, is_port_name};
pub use types::*;

use crate::firewall::Action;

/// What stages in an order do, or why they make no pipeline.
pub type AppOf = fn(&[String]) -> Result<App, String>;

/// What the file may name that this crate does not know: the caller's stages and pipelines.
#[derive(Debug, Clone, Default)]
pub struct KnownStages {
    /// Names of stages that `[pipeline.NAME] stages` may list.
    pub stages: Vec<String>,
    /// Shipped pipelines that `mode` may name; the first is the default.
    pub modes: Vec<Pipeline>,
    /// CPUs that the process may use, the default of `system.workers`; 0: ask the system.
    pub cores: usize,
    /// What stages in this order do, or why they make no pipeline; `None`: all make a router.
    pub app_of: Option<AppOf>,
}

impl KnownStages {
    fn app_of(&self, stages: &[String]) -> Result<App, String> {
        self.app_of.map_or(Ok(App::Router), |app_of| app_of(stages))
    }
}

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

/// Reads a configuration file. Relative paths of routes files start at its folder, and routes
/// files that cannot be read are errors.
pub fn load(path: &Path, known: &KnownStages) -> Result<(Config, Report), LoadError> {
    let source =
        std::fs::read(path).map_err(|source| LoadError::Read { path: path.to_owned(), source })?;
    let source = String::from_utf8(source).map_err(|error| {
        let line = 1 + error.as_bytes()[..error.utf8_error().valid_up_to()]
            .iter()
            .filter(|&&byte| byte == b'\n')
            .count();
        LoadError::Utf8 { path: path.to_owned(), line }
    })?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let report = |diagnostics| Report {
        file: path.display().to_string(),
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

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&render(&self.diagnostics, &self.file, &self.source, false))
    }
}

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is no text.
    #[error("{}:{line}: expected UTF-8 text", path.display())]
    Utf8 {
        /// Which.
        path: PathBuf,
        /// Line of the first byte that is none, from 1.
        line: usize,
    },
    /// A ClassBench file says nothing of what its rules do.
    #[error("{}: the rules of a ClassBench file have no actions: say which one they all get", path.display())]
    NoAction {
        /// Which.
        path: PathBuf,
    },
    /// A ClassBench file has bad lines.
    #[error("{0}")]
    Rules(classify::classbench::Problems),
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

/// Reads a file of rules alone, `[[rule]]` as in a configuration or a ClassBench file, whose rules all get `action`.
pub fn load_rules(path: &Path, action: Option<&Action>) -> Result<Vec<RuleEntry>, LoadError> {
    let source =
        std::fs::read(path).map_err(|source| LoadError::Read { path: path.to_owned(), source })?;
    let mut lines = source.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let first = lines.find(|line| !line.is_empty() && line[0] != b'#');
    let text = match (first.is_some_and(|line| line[0] == b'@'), action) {
        (true, Some(action)) => {
            let file = classify::classbench::read_rules(path).map_err(LoadError::Rules)?;
            let name = rules_file_name(path).unwrap_or_else(|| "file".to_owned());
            let rules = crate::firewall::of_classbench(&file).into();
            let (path, action) = (path.to_owned(), action.clone());
            return Ok(vec![RuleEntry::File(RuleFile { name, path, action, rules })]);
        }
        (true, None) => return Err(LoadError::NoAction { path: path.to_owned() }),
        (false, Some(_)) => return Err(LoadError::OwnActions { path: path.to_owned() }),
        (false, None) => String::from_utf8(source)
            .map_err(|_| LoadError::Utf8 { path: path.to_owned(), line: 1 })?,
    };
    let (table, syntax) = toml::de::DeTable::parse_recoverable(&text);
    let mut walk = walk::Walk::new(&text, &syntax);
    let folder = path.parent().unwrap_or(Path::new(""));
    let rules = read::rules(table.get_ref(), folder, &mut walk);
    let diagnostics = walk.into_diagnostics();
    if diagnostics.iter().any(|d| d.severity == Severity::Error) {
        let file = path.display().to_string();
        return Err(LoadError::Invalid(Report { file, source: text, diagnostics }));
    }
    Ok(rules)
}

fn parse_in(
    text: &str,
    known: &KnownStages,
    folder: Option<&Path>,
) -> Result<(Config, Vec<Diagnostic>), Vec<Diagnostic>> {
    let (table, syntax) = toml::de::DeTable::parse_recoverable(text);
    let mut walk = walk::Walk::new(text, &syntax);
    let cores = match known.cores {
        0 => std::thread::available_parallelism().map_or(1, |cores| cores.get()),
        cores => cores,
    };
    let (config, spans) = read::config(table.get_ref(), known, cores, folder, &mut walk);
    if walk.is_whole() {
        check::check(&config, &spans, cores, &mut walk);
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
