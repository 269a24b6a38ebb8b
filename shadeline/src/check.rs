//! `shadeline check`: the configuration, and once that has no errors the files of routes that it names and, with --live,
//! what a live start needs; and how every command reads its configuration.

mod live;

use std::path::Path;

use control::config::{Config, Diagnostic, LoadError, Machine, Report, Severity};
use control::config::{in_groups, kind, render_one, summary};
use controlplane::{Finding, Findings, Interfaces};
use files::output;
use tracing::Level;

use crate::cli::CheckArgs;
use crate::failure::Failure;
use crate::output::{coloured, say};
use crate::{color, compilers, log, pipelines};

/// Reads a configuration; warnings go to standard error.
pub(crate) fn load(path: &Path) -> Result<Config, Failure> {
    let (config, warnings) = read(path)?;
    warn(&warnings);
    Ok(config)
}

/// Reads a configuration; its warnings are for [`warn()`], once the log runs that it asks for.
pub(crate) fn read(path: &Path) -> Result<(Config, Report), Failure> {
    match control::config::load(path, &pipelines::known()) {
        Ok(read) => Ok(read),
        Err(LoadError::Invalid(report)) => {
            log::say(Level::ERROR, &on_stderr(&report));
            Err(Failure::reported())
        }
        Err(error) => Err(Failure::other(error)),
    }
}

/// Prints warnings to standard error.
pub(crate) fn warn(warnings: &Report) {
    let Report { file, diagnostics, .. } = warnings;
    if diagnostics.is_empty() {
    } else if log::is_json(Level::WARN) {
        for diagnostic in diagnostics {
            tracing::warn!("{}", diagnostic.in_line(file));
        }
    } else {
        log::say(Level::WARN, &on_stderr(warnings));
    }
}

fn on_stderr(report: &Report) -> String {
    let Report { file, diagnostics, .. } = report;
    let text = rendered(report, false, color::is_on(std::io::stderr()));
    text + &summary(diagnostics.iter().map(|own| own.severity), file)
}

/// `shadeline check CONFIG`.
pub(crate) fn run(args: &CheckArgs) -> Result<(), Failure> {
    let path = &args.config;
    let mut known = pipelines::known();
    let interfaces = live::interfaces();
    if let Ok(interfaces) = &interfaces {
        let mut interfaces: Vec<String> = interfaces.iter().map(|link| link.name.clone()).collect();
        interfaces.sort_unstable();
        known.machine = Some(Machine { interfaces, is_needed: args.live });
    }
    let (report, findings, mut good) = match control::config::load(path, &known) {
        Ok((config, report)) => {
            let mut findings = compilers::without_counts(|| findings(&config));
            if args.live {
                live::check(&config, path, interfaces.as_deref(), &mut findings);
            }
            (report, findings.0, true)
        }
        Err(LoadError::Invalid(report)) => {
            let mut findings = Findings::default();
            // Where only interfaces are missing, all else that a start needs is to be known, too.
            known.machine = None;
            if args.live
                && let Ok((config, _)) = control::config::load(path, &known)
            {
                live::check(&config, path, interfaces.as_deref(), &mut findings);
            }
            (report, findings.0, false)
        }
        Err(error) => return Err(Failure::other(error)),
    };
    good &= findings.iter().all(|finding| finding.severity == Severity::Warning);
    if args.json {
        say!("{}", as_json(&report, &findings))?;
    } else {
        let color = color::is_on(std::io::stdout());
        coloured(&rendered(&report, args.verbose, color))?;
        coloured(&listed(&findings, args.verbose, color))?;
        let all = report.diagnostics.iter().map(|own| own.severity);
        let all = all.chain(findings.iter().map(|own| own.severity));
        match summary(all, &report.file).as_str() {
            "" => say!("{}: no errors", files::input::name(path))?,
            counts => coloured(counts)?,
        }
    }
    if good { Ok(()) } else { Err(Failure::reported()) }
}

/// What is wrong in the files that the configuration's applications read, in order.
fn findings(config: &Config) -> Findings {
    let (interfaces, mut findings) = (Interfaces::of(config), Findings::default());
    for own in pipelines::descriptors() {
        if config.uses(own.application.name) {
            (own.check)(config, &interfaces, &mut findings);
        }
    }
    findings
}

/// Warnings of a kind of which there are many are one line, unless all are wanted.
fn rendered(report: &Report, all: bool, color: bool) -> String {
    let Report { file, source, diagnostics } = report;
    let groups = match all {
        true => vec![Some(0); diagnostics.len()],
        false => {
            let kinds = diagnostics.iter().map(|d| kind_of(d.severity, &d.message));
            in_groups(&kinds.collect::<Vec<_>>())
        }
    };
    let one = |(d, others): (&Diagnostic, Option<usize>)| match others {
        None => String::new(),
        Some(0) => render_one(d, file, source, color),
        Some(others) => {
            let place = format!("{file}:{}:{}", d.line, d.column);
            line(d.severity, &format!("{place}: {}{}", d.message, and_more(others)), color)
        }
    };
    diagnostics.iter().zip(groups).map(one).collect()
}

/// The same of what is wrong in other files, a line each.
fn listed(findings: &[Finding], all: bool, color: bool) -> String {
    // Of each file by itself: which one is wrong matters.
    let own = |finding: &Finding| {
        let kind = kind_of(finding.severity, &finding.message)?;
        Some(format!("{:?} {kind}", finding.file))
    };
    let groups = match all {
        true => vec![Some(0); findings.len()],
        false => in_groups(&findings.iter().map(own).collect::<Vec<_>>()),
    };
    let one = |(finding, others): (&Finding, Option<usize>)| match others {
        None => String::new(),
        Some(0) => line(finding.severity, &finding.text(), color),
        Some(others) => {
            line(finding.severity, &format!("{}{}", finding.text(), and_more(others)), color)
        }
    };
    findings.iter().zip(groups).map(one).collect()
}

/// The kind of a warning; errors are all shown.
fn kind_of(severity: Severity, message: &str) -> Option<String> {
    (severity == Severity::Warning).then(|| kind(message))
}

fn and_more(others: usize) -> String {
    format!(" (and {others} more of this kind; `shadeline check -v` lists them)")
}

fn line(severity: Severity, text: &str, color: bool) -> String {
    let paint = match (color, severity) {
        (false, _) => "",
        (true, Severity::Error) => "\x1b[1;31m",
        (true, Severity::Warning) => "\x1b[1;33m",
    };
    let reset = if color { "\x1b[0m" } else { "" };
    format!("{paint}{}{reset}: {}\n", word(severity), output::shown(text))
}

fn as_json(report: &Report, findings: &[Finding]) -> serde_json::Value {
    let row = |d: &Diagnostic| match &d.origin {
        // As what is found in files later.
        Some(origin) => {
            let place = format!("{}:{}:{}: ", origin.file, origin.line, origin.column);
            serde_json::json!({
                "severity": word(d.severity),
                "file": origin.file,
                "line": origin.line,
                "column": origin.column,
                "message": d.message.strip_prefix(&place).unwrap_or(&d.message),
            })
        }
        None => serde_json::json!({
            "severity": word(d.severity),
            "file": report.file,
            "line": d.line,
            "column": d.column,
            "message": d.message,
            "expected": d.expected,
            "help": d.help,
        }),
    };
    let of_files = findings.iter().map(|f| {
        serde_json::json!({
            "severity": word(f.severity),
            "file": f.file.as_ref().map(|file| file.display().to_string()),
            "line": f.line,
            "column": f.column,
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
