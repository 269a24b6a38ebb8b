//! `shadeline check`, and how every command reads its configuration.

use std::io::IsTerminal;
use std::path::Path;

use control::config::{Config, Diagnostic, LoadError, Report, Severity};

use crate::failure::Failure;
use crate::pipelines;

/// Reads a configuration; warnings go to standard error.
pub(crate) fn load(path: &Path) -> Result<Config, Failure> {
    match control::config::load(path, &pipelines::known()) {
        Ok((config, report)) => {
            if !report.diagnostics.is_empty() {
                eprint!("{}", render(&report));
            }
            Ok(config)
        }
        Err(LoadError::Invalid(report)) => {
            eprint!("{}", render(&report));
            Err(Failure::told())
        }
        Err(error) => Err(Failure::other(error)),
    }
}

/// `shadeline check CONFIG`.
pub(crate) fn run(path: &Path, json: bool) -> Result<(), Failure> {
    let (report, good) = match control::config::load(path, &pipelines::known()) {
        Ok((_, report)) => (report, true),
        Err(LoadError::Invalid(report)) => (report, false),
        Err(error) => return Err(Failure::other(error)),
    };
    if json {
        println!("{}", as_json(&report));
    } else {
        print!("{}", render(&report));
        if report.diagnostics.is_empty() {
            println!("{}: no errors", path.display());
        }
    }
    if good { Ok(()) } else { Err(Failure::told()) }
}

fn render(report: &Report) -> String {
    let color = std::io::stderr().is_terminal() && std::io::stdout().is_terminal();
    control::config::render(&report.diagnostics, &report.file, &report.source, color)
}

fn as_json(report: &Report) -> serde_json::Value {
    let row = |d: &Diagnostic| {
        serde_json::json!({
            "severity": if d.severity == Severity::Error { "error" } else { "warning" },
            "file": report.file,
            "line": d.line,
            "column": d.column,
            "message": d.message,
            "expected": d.expected,
            "help": d.help,
        })
    };
    serde_json::Value::Array(report.diagnostics.iter().map(row).collect())
}
