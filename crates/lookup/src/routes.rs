//! Routes files (signatures; the body follows).
//!
//! `PREFIX NEXTHOP` a line, either family mixed; any token is a next hop, the prefix itself where none
//! stands; `#` and `;` start comments; gzip is recognised by its magic. pyasn's
//! `1.0.0.0/24<TAB>13335` is the same format.

use std::io::{self, Read};
use std::net::IpAddr;
use std::path::Path;

use crate::{NextHopId, Prefix};

/// A routes file, read. Next-hop numbers are this file's own: [`RoutesFile::token`] names them.
#[derive(Debug, Clone, Default)]
pub struct RoutesFile {
    /// IPv4 routes, sorted, each prefix once.
    pub v4: Vec<(Prefix<u32>, NextHopId)>,
    /// IPv6 routes, sorted, each prefix once.
    pub v6: Vec<(Prefix<u128>, NextHopId)>,
    /// What was wrong in it.
    pub problems: Problems,
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

/// What a line had wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProblemKind {
    /// To be filled in.
    #[error("expected PREFIX NEXTHOP")]
    Syntax,
}

/// Reads a file, gzip or plain.
pub fn read_file(path: &Path) -> io::Result<RoutesFile> {
    let _ = path;
    todo!()
}

/// Reads any stream, gzip or plain.
pub fn read(input: impl Read) -> io::Result<RoutesFile> {
    let _ = input;
    todo!()
}

/// Reads bytes, gzip or plain. What follows a broken gzip stream is lost and counted as a problem.
pub fn parse_bytes(bytes: &[u8]) -> RoutesFile {
    let _ = bytes;
    todo!()
}

/// An address of either family from text, quicker than std for the usual forms.
pub fn parse_address(text: &[u8]) -> Option<IpAddr> {
    let _ = text;
    todo!()
}

impl RoutesFile {
    /// The token of a next hop of this file; the prefix itself where the line had none.
    pub fn token(&self, next_hop: NextHopId) -> Token<'_> {
        let _ = next_hop;
        todo!()
    }
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
    /// Not a number of this file.
    Unknown,
}
