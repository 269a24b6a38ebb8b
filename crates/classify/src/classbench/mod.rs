//! Reads and writes rule files and traces of ClassBench (Taylor and Turner, "ClassBench: A Packet
//! Classification Benchmark", INFOCOM 2005).
//!
//! ```text
//! rule    @10.1.0.0/16  0.0.0.0/0  0 : 65535  80 : 80  0x06/0xFF  0x0000/0x0200      the flags may be absent
//! trace   167837953  3232235777  40000  80  6  4294967295  17                        sip dip sport dport proto
//! ```
//!
//! The first rule of a file is the best one. Columns stand apart by tabs or blanks; DOS line ends, empty lines and
//! lines that begin with `#` do no harm. What follows the flags of a rule is left out.
//!
//! The TCP flags of a rule are read and written again, but no field of the 5-tuple: the generator's traces have
//! no packet flags to hold against them.
//!
//! A trace of five columns has headers only; one of six or more ends with the number of the *filter* that
//! the header was drawn from, from 0. That is a rule that matches, not always the best one. Columns between are
//! left out.
//!
//! A file that is not text is reported as such, and none of its contents are shown. For a file with bad lines, the
//! result is the list of problems instead of rules: the first [`Problems::KEPT`], and their number.

mod rules;
pub(crate) mod text;
mod trace;

use std::fmt;
use std::path::{Path, PathBuf};

pub use rules::{Flags, RulesFile, parse_rules, write_rules};
pub use trace::{NO_FILTER, Trace, parse_trace, write_trace};

/// What is wrong in a file: the first [`Problems::KEPT`], and counts of all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Problems {
    /// The file, where there is one.
    pub path: Option<PathBuf>,
    /// The first problems, by line.
    pub first: Vec<Problem>,
    /// How many there were in all.
    pub count: u64,
}

impl Problems {
    /// How many problems are kept.
    pub const KEPT: usize = 100;

    pub(crate) fn add(&mut self, line: u64, kind: ProblemKind) {
        self.count += 1;
        if self.first.len() < Self::KEPT {
            self.first.push(Problem { line, kind });
        }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.first.iter().enumerate() {
            let end = if at + 1 < self.first.len() { "\n" } else { "" };
            match &self.path {
                Some(path) => write!(f, "{}, {problem}{end}", files::input::name(path))?,
                None => write!(f, "{problem}{end}")?,
            }
        }
        match self.count - self.first.len() as u64 {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

impl std::error::Error for Problems {}

/// One problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Line number, from 1; 0: the file as a whole.
    pub line: u64,
    /// What was found and what was expected.
    pub kind: ProblemKind,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => self.kind.fmt(f),
            line => write!(f, "line {line}: {}", self.kind),
        }
    }
}

/// What a line had wrong. Quoted text is cut to a few dozen characters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProblemKind {
    /// A rule begins with `@`.
    #[error("expected `@` at the beginning of a rule, found `{found}`")]
    At {
        /// What stood there.
        found: String,
    },
    /// Something else than what should be there.
    #[error("expected {expected}, found `{found}`")]
    Expected {
        /// What should be there.
        expected: &'static str,
        /// What did.
        found: String,
    },
    /// A prefix of an IPv4 address has up to 32 bits.
    #[error("expected a prefix length of 0 to 32 in the {column}, found {found}")]
    Length {
        /// The column.
        column: &'static str,
        /// The length.
        found: u64,
    },
    /// The lowest value is above the highest.
    #[error("the range of the {column} is reversed: {low} : {high}")]
    Reversed {
        /// The column.
        column: &'static str,
        /// The lowest value.
        low: u64,
        /// The highest value.
        high: u64,
    },
    /// A number that its column does not hold.
    #[error("expected a {column} of 0 to {max}, found {found}")]
    Range {
        /// The column.
        column: &'static str,
        /// The largest number.
        max: u64,
        /// The number.
        found: u64,
    },
    /// Neither one protocol nor any.
    #[error("expected a protocol mask of 0xFF (this protocol) or 0x00 (any), found {found:#04X}")]
    ProtocolMask {
        /// The mask.
        found: u64,
    },
    /// Too few columns.
    #[error("expected at least {expected} columns (sip dip sport dport proto), found {found}")]
    Columns {
        /// How many there are at least.
        expected: usize,
        /// How many there were.
        found: usize,
    },
    /// More rules than ids.
    #[error("more than {max} rules")]
    TooMany {
        /// How many there may be.
        max: u64,
    },
    /// A line of a file over any fields has not one column for each of them.
    #[error("expected {expected} columns, one for each field, found {found}")]
    FieldCount {
        /// Fields.
        expected: usize,
        /// Columns.
        found: usize,
    },
    /// Fields that make no schema.
    #[error("{reason}")]
    Fields {
        /// Why.
        reason: String,
    },
    /// Conditions that make no rule.
    #[error("{reason}")]
    Rule {
        /// Why.
        reason: String,
    },
    /// The file is not text.
    #[error("expected text, found {found}")]
    Binary {
        /// What it is, or where a byte is that no text has.
        found: String,
    },
    /// The file cannot be read.
    #[error("cannot be read: {reason}")]
    Unreadable {
        /// What the system said.
        reason: String,
    },
}

/// Reads a rule file, unpacking it if it is packed.
///
/// # Errors
/// The file cannot be read, or has bad lines.
pub fn read_rules(path: &Path) -> Result<RulesFile, Problems> {
    of_file(path, parse_rules)
}

/// Reads a trace, unpacking it if it is packed.
///
/// # Errors
/// The file cannot be read, or has bad lines.
pub fn read_trace(path: &Path) -> Result<Trace, Problems> {
    of_file(path, parse_trace)
}

fn of_file<T>(path: &Path, parse: fn(&[u8]) -> Result<T, Problems>) -> Result<T, Problems> {
    let named = |problems: Problems| Problems { path: Some(path.to_owned()), ..problems };
    let bytes = files::input::read(path).map_err(|error| {
        let mut problems = Problems::default();
        problems.add(0, ProblemKind::Unreadable { reason: error.to_string() });
        named(problems)
    })?;
    parse(&bytes).map_err(named)
}
