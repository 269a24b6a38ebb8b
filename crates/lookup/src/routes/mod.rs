//! Reads prefixes and their next hops from text.
//!
//! `PREFIX NEXTHOP` a line, either family mixed. Any token is a next hop; without one, the
//! prefix is its own. An address without a length is a prefix of full length. Words that start
//! with `#` or `;` begin a comment. Files may be compressed (crate `files`). pyasn's
//! `1.0.0.0/24<TAB>13335` is the same format.
//!
//! A full Internet table is a million lines, so the input is read in pieces, addresses are parsed
//! from bytes, and a million next hops that are the prefixes themselves take no memory: a next-hop
//! number of a [`RoutesFile`] says what kind it is.
//!
//! ```text
//! 31   30 29  28                 0
//! ├───┼─────┼────────────────────┤
//! │ 0 │ kind│ number             │   0: token number - 1; 1: index in `v4`; 2: index in `v6`
//! └───┴─────┴────────────────────┘
//! ```
//!
//! Nothing in a file makes an error but a stream that cannot be read: each bad line becomes a
//! [`Problem`], and the others count. Host bits below the length are cleared. Of several lines with
//! one prefix the last one applies.

mod address;
mod tokens;

use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

pub use address::parse_address;

use crate::{Address, NO_ROUTE, NextHopId, Prefix};
use address::PrefixText;
use tokens::Tokens;

/// A routes file, read. Next-hop numbers are this file's own: [`RoutesFile::token`] names them.
#[derive(Debug, Clone, Default)]
pub struct RoutesFile {
    /// IPv4 routes, sorted, each prefix once.
    pub v4: Vec<(Prefix<u32>, NextHopId)>,
    /// IPv6 routes, sorted, each prefix once.
    pub v6: Vec<(Prefix<u128>, NextHopId)>,
    /// What was wrong in it.
    pub problems: Problems,
    tokens: Tokens,
}

/// A next hop's name; prints as it stood in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token<'a> {
    /// The token on the line.
    Text(&'a str),
    /// None stood there: the prefix is its own next hop.
    V4(Prefix<u32>),
    /// The same for IPv6.
    V6(Prefix<u128>),
    /// Not a number of this file; prints as `-`.
    Unknown,
}

/// What was wrong: the first [`Problems::KEPT`], and counts of all.
#[derive(Debug, Clone, Default)]
pub struct Problems {
    /// The first problems, by line.
    pub first: Vec<Problem>,
    /// How many there were in all.
    pub count: u64,
    /// Lines that repeated an earlier line's prefix and next hop: harmless.
    pub repeated: u64,
}

impl Problems {
    /// How many problems are kept.
    pub const KEPT: usize = 100;
}

/// One problem of a routes file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Line number, from 1.
    pub line: u64,
    /// What was found and what was expected.
    pub kind: ProblemKind,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.kind)
    }
}

/// What a line had wrong. Quoted text is cut to a few dozen characters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProblemKind {
    /// The first word is not a prefix; the line is left out.
    #[error("expected PREFIX NEXTHOP, found `{found}`")]
    Prefix {
        /// The first word.
        found: String,
    },
    /// The length is none or too long; the line is left out.
    #[error("expected a prefix length of 0 to {max}, found `{found}`")]
    Length {
        /// What stood behind the slash.
        found: String,
        /// 32 or 128.
        max: u8,
    },
    /// Bits are set below the length; the line counts with them cleared.
    #[error("host bits are set in `{found}`, used as {prefix}")]
    HostBits {
        /// The first word.
        found: String,
        /// What it was taken as.
        prefix: String,
    },
    /// More than two words; the line is left out.
    #[error("expected only PREFIX NEXTHOP, found `{found}`")]
    Trailing {
        /// The third word.
        found: String,
    },
    /// The next hop is not UTF-8; the line is left out.
    #[error("the next hop is not UTF-8 text: `{found}`")]
    Encoding {
        /// The second word, its bad bytes replaced.
        found: String,
    },
    /// The line is longer than [`MAX_LINE_BYTES`]; it is left out.
    #[error("the line is longer than {MAX_LINE_BYTES} bytes")]
    TooLong,
    /// An earlier line gives the prefix another next hop; this line is used.
    #[error("{prefix} has another next hop on line {earlier}; this line is used")]
    Replaces {
        /// The prefix.
        prefix: String,
        /// The earlier line.
        earlier: u64,
    },
    /// The stream ends here: it cannot be decompressed or read.
    #[error("the rest cannot be read: {reason}")]
    Unreadable {
        /// What the reader said.
        reason: String,
    },
}

/// The longest line that is read, without its end.
pub const MAX_LINE_BYTES: usize = 4096;

/// A file that cannot be read.
#[derive(Debug, thiserror::Error)]
pub struct RoutesError {
    /// The file.
    pub path: PathBuf,
    /// The line that was being read, from 1; 0: it could not be opened.
    pub line: u64,
    /// What the system or the decompressor said.
    pub source: io::Error,
}

impl fmt::Display for RoutesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", files::input::name(&self.path), self.source),
            line => write!(f, "{}, line {line}: {}", files::input::name(&self.path), self.source),
        }
    }
}

/// Reads a file, which may be compressed.
pub fn read_file(path: &Path) -> Result<RoutesFile, RoutesError> {
    let fail = |line, source| RoutesError { path: path.to_owned(), line, source };
    let file = files::input::Source::open(path).map_err(|e| fail(0, e))?;
    let mut lines = Lines::default();
    match lines.read(file) {
        Ok(()) => Ok(lines.finish()),
        Err(source) => Err(fail(lines.line + 1, source)),
    }
}

/// Reads any stream, which may be compressed.
pub fn read(input: impl Read + Send) -> io::Result<RoutesFile> {
    let mut lines = Lines::default();
    lines.read(input)?;
    Ok(lines.finish())
}

/// Reads bytes, which may be compressed. What follows a fault in compressed data is lost and counted as a problem.
pub fn parse_bytes(bytes: &[u8]) -> RoutesFile {
    let mut lines = Lines::default();
    if let Err(error) = lines.read(bytes) {
        lines.problem(lines.line + 1, ProblemKind::Unreadable { reason: error.to_string() });
    }
    lines.finish()
}

const KIND_SHIFT: u32 = 29;
const KIND_V4: u32 = 1 << KIND_SHIFT;
const KIND_V6: u32 = 2 << KIND_SHIFT;
const NUMBER: u32 = KIND_V4 - 1;

impl RoutesFile {
    /// The token of a next hop of this file; the prefix itself where the line had none.
    pub fn token(&self, next_hop: NextHopId) -> Token<'_> {
        let index = (next_hop & NUMBER) as usize;
        match next_hop & !NUMBER {
            0 => self.tokens.get(next_hop.wrapping_sub(1)).map(Token::Text),
            KIND_V4 => self.v4.get(index).map(|(prefix, _)| Token::V4(*prefix)),
            KIND_V6 => self.v6.get(index).map(|(prefix, _)| Token::V6(*prefix)),
            _ => None,
        }
        .unwrap_or(Token::Unknown)
    }

    /// The distinct next hops in the text of the file, each with its number.
    pub fn tokens(&self) -> impl Iterator<Item = (NextHopId, &str)> {
        (0..self.tokens.len())
            .map(|number| (number + 1, self.tokens.get(number).unwrap_or_default()))
    }

    /// Number of routes of both families.
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Whether it has no route.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.pad(text),
            Self::V4(prefix) => prefix.fmt(f),
            Self::V6(prefix) => prefix.fmt(f),
            Self::Unknown => f.pad("-"),
        }
    }
}

/// A route while the file is read: its next hop may yet be unnumbered.
struct Route<A> {
    prefix: Prefix<A>,
    next_hop: NextHopId, // OWN, or a token's number
    line: u32,
}

const OWN: NextHopId = u32::MAX;

/// The reader's state between lines.
#[derive(Default)]
struct Lines {
    v4: Vec<Route<u32>>,
    v6: Vec<Route<u128>>,
    tokens: Tokens,
    problems: Problems,
    line: u64, // lines read
}

impl Lines {
    fn read(&mut self, input: impl Read + Send) -> io::Result<()> {
        self.read_text(files::input::reader(input)?)
    }

    /// Reads pieces of a buffer; what follows the last line end of one moves to its front.
    fn read_text(&mut self, mut input: impl Read) -> io::Result<()> {
        let mut buffer = vec![0; 128 << 10];
        let mut held = 0;
        let mut skipping = false; // the rest of a line that is too long
        loop {
            let got = match input.read(&mut buffer[held..]) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                got => got?,
            };
            let filled = held + got;
            let mut rest = &buffer[..filled];
            while let Some(end) = memchr_newline(rest) {
                let (line, tail) = rest.split_at(end);
                rest = &tail[1..];
                if skipping {
                    skipping = false;
                } else {
                    self.read_line(line);
                }
            }
            if got == 0 {
                if !rest.is_empty() && !skipping {
                    self.read_line(rest);
                }
                return Ok(());
            }
            if rest.len() > MAX_LINE_BYTES {
                if !skipping {
                    self.read_line(rest); // counts it as too long
                    skipping = true;
                }
                rest = &[];
            }
            held = rest.len();
            buffer.copy_within(filled - held..filled, 0);
        }
    }

    fn read_line(&mut self, line: &[u8]) {
        self.line += 1;
        if line.len() > MAX_LINE_BYTES {
            return self.problem(self.line, ProblemKind::TooLong);
        }
        let line = match self.line {
            1 => line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line), // byte order mark
            _ => line,
        };
        let mut words = line
            .split(u8::is_ascii_whitespace)
            .filter(|word| !word.is_empty())
            .take_while(|word| !matches!(word[0], b'#' | b';'));
        let Some(first) = words.next() else { return };
        let second = words.next();
        if let Some(third) = words.next() {
            return self.problem(self.line, ProblemKind::Trailing { found: quote(third) });
        }
        let prefix = match PrefixText::parse(first) {
            Ok(prefix) => prefix,
            Err(kind) => return self.problem(self.line, kind),
        };
        let next_hop = match second.map(std::str::from_utf8) {
            None => OWN,
            Some(Ok(token)) => self.tokens.number(token) + 1,
            Some(Err(_)) => {
                let found = quote(second.unwrap_or_default());
                return self.problem(self.line, ProblemKind::Encoding { found });
            }
        };
        let line = u32::try_from(self.line).unwrap_or(u32::MAX);
        match prefix {
            PrefixText::V4(addr, len) => {
                let prefix = self.masked(addr, len, first);
                self.v4.push(Route { prefix, next_hop, line });
            }
            PrefixText::V6(addr, len) => {
                let prefix = self.masked(addr, len, first);
                self.v6.push(Route { prefix, next_hop, line });
            }
        }
    }

    fn masked<A: Address>(&mut self, addr: A, len: u8, text: &[u8]) -> Prefix<A> {
        let prefix = Prefix::masked(addr, len);
        if prefix.addr() != addr {
            let (found, prefix) = (quote(text), prefix.to_string());
            self.problem(self.line, ProblemKind::HostBits { found, prefix });
        }
        prefix
    }

    fn problem(&mut self, line: u64, kind: ProblemKind) {
        self.problems.count += 1;
        if self.problems.first.len() < Problems::KEPT {
            self.problems.first.push(Problem { line, kind });
        }
    }

    fn finish(mut self) -> RoutesFile {
        let v4 = std::mem::take(&mut self.v4);
        let v4 = self.settle(v4, KIND_V4);
        let v6 = std::mem::take(&mut self.v6);
        let v6 = self.settle(v6, KIND_V6);
        self.problems.first.sort_by_key(|problem| problem.line);
        RoutesFile { v4, v6, problems: self.problems, tokens: self.tokens }
    }

    /// Sorts, keeps the last line of each prefix, and numbers the prefixes that are their own next
    /// hop.
    fn settle<A: Address>(
        &mut self,
        mut routes: Vec<Route<A>>,
        kind: u32,
    ) -> Vec<(Prefix<A>, NextHopId)> {
        routes.sort_by_key(|route| route.prefix); // stable: lines of one prefix stay in order
        routes.dedup_by(|later, kept| {
            if later.prefix != kept.prefix {
                return false;
            }
            if later.next_hop == kept.next_hop {
                self.problems.repeated += 1;
            } else {
                let (prefix, earlier) = (kept.prefix.to_string(), u64::from(kept.line));
                self.problem(later.line.into(), ProblemKind::Replaces { prefix, earlier });
                kept.next_hop = later.next_hop;
            }
            kept.line = later.line;
            true
        });
        let number = |(index, route): (usize, Route<A>)| match route.next_hop {
            OWN => (route.prefix, kind | index as u32),
            next_hop => (route.prefix, next_hop),
        };
        debug_assert!(routes.len() <= NUMBER as usize && OWN != NO_ROUTE);
        routes.into_iter().enumerate().map(number).collect()
    }
}

/// At most 40 characters of what was found.
fn quote(bytes: &[u8]) -> String {
    const MOST: usize = 40;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * MOST)]);
    let mut quoted: String = text.chars().take(MOST).collect();
    if text.chars().count() > MOST {
        quoted.push('…');
    }
    quoted
}

fn memchr_newline(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| *byte == b'\n')
}
