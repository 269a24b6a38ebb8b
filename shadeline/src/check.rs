//! `shadeline check`: the configuration, and once that has no errors the files of routes that it names; and how every
//! command reads its configuration.

use std::io::IsTerminal;
use std::path::Path;

use control::config::{Config, Diagnostic, LoadError, Report, Severity};
use controlplane::{Finding, Findings, Interfaces};
use tracing::Level;

use crate::failure::Failure;
use crate::output::{note, put, say};
use crate::{log, pipelines};

/// Reads a configuration; warnings go to standard error.
pub(crate) fn load(path: &Path) -> Result<Config, Failure> {
    match control::config::load(path, &pipelines::known()) {
        Ok((config, report)) => {
            if !report.diagnostics.is_empty() {
                note!("{}", log::on_stderr(Level::WARN, &render(&report)).trim_end());
            }
            Ok(config)
        }
        Err(LoadError::Invalid(report)) => {
            note!("{}", log::on_stderr(Level::ERROR, &render(&report)).trim_end());
            Err(Failure::reported())
        }
        Err(error) => Err(Failure::other(error)),
    }
}

/// `shadeline check CONFIG`.
pub(crate) fn run(path: &Path, json: bool) -> Result<(), Failure> {
    let (report, findings, mut good) = match control::config::load(path, &pipelines::known()) {
        Ok((config, report)) => (report, findings(&config), true),
        Err(LoadError::Invalid(report)) => (report, Vec::new(), false),
        Err(error) => return Err(Failure::other(error)),
    };
    good &= findings.iter().all(|finding| finding.severity == Severity::Warning);
    if json {
        say!("{}", as_json(&report, &findings))?;
    } else {
        put!("{}", render(&report))?;
        findings.iter().try_for_each(|finding| say!("{finding}"))?;
        if report.diagnostics.is_empty() && findings.is_empty() {
            say!("{}: no errors", files::input::name(path))?;
        }
    }
    if good { Ok(()) } else { Err(Failure::reported()) }
}

/// What is wrong in the files that the configuration's applications read, in order.
fn findings(config: &Config) -> Vec<Finding> {
    let (interfaces, mut findings) = (Interfaces::of(config), Findings::default());
    for own in pipelines::descriptors() {
        if config.uses(own.application.name) {
            (own.check)(config, &interfaces, &mut findings);
        }
    }
    findings.0
}

fn render(report: &Report) -> String {
    let color = std::io::stderr().is_terminal() && std::io::stdout().is_terminal();
    control::config::render(&report.diagnostics, &report.file, &report.source, color)
}

fn as_json(report: &Report, findings: &[Finding]) -> serde_json::Value {
    let row = |d: &Diagnostic| {
        serde_json::json!({
            "severity": word(d.severity),
            "file": report.file,
            "line": d.line,
            "column": d.column,
            "message": d.message,
            "expected": d.expected,
            "help": d.help,
        })
    };
    let of_files = findings.iter().map(|f| {
        serde_json::json!({
            "severity": word(f.severity),
            "file": f.file.as_ref().map(|file| file.display().to_string()),
            "line": f.line,
            "message": f.message,
        })
    });
    serde_json::Value::Array(report.diagnostics.iter().map(row).chain(of_files).collect())
}

fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    }
}
