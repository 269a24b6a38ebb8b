//! What `check` finds in the files that a configuration names.

use std::fmt;
use std::path::{Path, PathBuf};

use control::config::Severity;

/// Something that is wrong in a file, or does not fit into a table. A run skips what is a warning here, and fails at
/// what is an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Whether a run fails.
    pub severity: Severity,
    /// The file; `None`: no single one.
    pub file: Option<PathBuf>,
    /// From 1; `None`: of the whole file.
    pub line: Option<u64>,
    /// From 1; `None`: of the whole line.
    pub column: Option<u64>,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(f, "{severity}: {}", self.text())
    }
}

impl Finding {
    /// The place and the message.
    pub fn text(&self) -> String {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => {
                let column = self.column.map(|column| format!(":{column}")).unwrap_or_default();
                format!("{}:{line}{column}: {}", file.display(), self.message)
            }
            (Some(file), None) => format!("{}: {}", file.display(), self.message),
            (None, _) => self.message.clone(),
        }
    }
}

/// Findings in the order in which they are made.
#[derive(Debug, Default)]
pub struct Findings(pub Vec<Finding>);

impl Findings {
    /// Adds a warning.
    pub fn warn(&mut self, file: &Path, line: Option<u64>, message: impl fmt::Display) {
        self.push(Severity::Warning, Some(file), line, &message);
    }

    /// Adds an error.
    pub fn error(&mut self, file: &Path, line: Option<u64>, message: impl fmt::Display) {
        self.push(Severity::Error, Some(file), line, &message);
    }

    /// Adds an error at a line and, where that is known, a column.
    pub fn error_at(
        &mut self,
        file: &Path,
        (line, column): (u64, Option<u64>),
        message: impl fmt::Display,
    ) {
        self.error(file, Some(line), message);
        if let Some(last) = self.0.last_mut() {
            last.column = column;
        }
    }

    /// Adds an error of no single file.
    pub fn error_of_all(&mut self, message: impl fmt::Display) {
        self.push(Severity::Error, None, None, &message);
    }

    /// Adds a warning of no single file.
    pub fn warn_of_all(&mut self, message: impl fmt::Display) {
        self.push(Severity::Warning, None, None, &message);
    }

    /// Adds a warning about `count` more findings of a file, which are not listed.
    pub fn more(&mut self, file: &Path, count: u64) {
        if count > 0 {
            self.warn(file, None, format_args!("and {count} more"));
        }
    }

    /// Adds an error about a file that cannot be read; the message may begin with its path.
    pub fn failed(&mut self, file: &Path, message: &str) {
        let shown = file.display().to_string();
        let rest = message.strip_prefix(&shown).and_then(|rest| rest.strip_prefix(": "));
        self.error(file, None, rest.unwrap_or(message));
    }

    fn push(
        &mut self,
        severity: Severity,
        file: Option<&Path>,
        line: Option<u64>,
        message: &dyn fmt::Display,
    ) {
        let (file, message) = (file.map(Path::to_owned), message.to_string());
        self.0.push(Finding { severity, file, line, column: None, message });
    }
}
