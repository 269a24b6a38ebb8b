//! Files of names: `NAME NEXTHOP` lines, and lists of names.

use std::collections::HashMap;
use std::io::BufRead;
use std::path::Path;

use control::config::{ParsePrefixError, read_prefix};
use lookup::NextHopId;
use lookup::names::NameList;
use packet::ndn::NameBuf;

/// Bad names and bad routes that are shown.
const SHOWN: usize = 10;

/// The longest line: a name of 64 KB, which is as much as a packet holds, written in up to four characters a byte (`%XX`
/// takes three, and an empty component with its type in front, such as `/252=...`, eight for two bytes), and a next hop.
const LINE_MAX: usize = 272 << 10;

const TOO_LONG: &str = "the line is longer than 278528 bytes";
const _: () = assert!(LINE_MAX == 278_528);

/// What a routes file says.
#[derive(Default)]
pub struct Routes {
    /// Prefixes.
    pub names: NameList,
    /// By prefix: the number of its token, from 1.
    pub next_hops: Vec<NextHopId>,
    /// By prefix.
    pub lines: Vec<u64>,
    /// Next hops as they were written.
    pub tokens: Tokens,
    /// Lines that were left out.
    pub problems: Problems,
}

/// Next hops' names, numbered from 1.
#[derive(Default)]
pub struct Tokens {
    /// By number, from 1.
    pub texts: Vec<String>,
    numbers: HashMap<String, NextHopId>,
}

impl Tokens {
    fn number(&mut self, token: &str) -> NextHopId {
        if let Some(number) = self.numbers.get(token) {
            return *number;
        }
        self.texts.push(token.to_owned());
        let number = self.texts.len() as NextHopId;
        self.numbers.insert(token.to_owned(), number);
        number
    }

    /// The next hop of a number, `-` for none.
    pub fn text(&self, number: NextHopId) -> &str {
        self.texts.get((number as usize).wrapping_sub(1)).map_or("-", String::as_str)
    }
}

/// Lines of a routes file that were left out, or say something else than an earlier one.
#[derive(Default)]
pub struct Problems {
    /// The first of them, by line.
    pub first: Vec<(u64, String)>,
    /// How many there are.
    pub count: u64,
    /// Lines that say what an earlier one says.
    pub repeated: u64,
}

impl Problems {
    /// Notes one.
    pub fn add(&mut self, line: u64, what: impl std::fmt::Display) {
        self.count += 1;
        if self.first.len() < SHOWN {
            self.first.push((line, what.to_string()));
        }
    }
}

/// Calls `each` with the number and the words of every line that has any. A word that begins with `#` or
/// `;` begins a comment. `None` stands for a line that is too long.
///
/// # Errors
/// The file cannot be read.
pub fn each_line(
    path: &Path,
    mut each: impl FnMut(u64, Option<&mut dyn Iterator<Item = &[u8]>>),
) -> Result<(), String> {
    let failed = |error| format!("{}: {error}", files::input::name(path));
    let mut input = files::input::open(path).map_err(failed)?;
    let (mut line, mut number) = (Vec::new(), 0);
    loop {
        line.clear();
        if read_line(&mut input, &mut line).map_err(failed)? == 0 {
            return Ok(());
        }
        number += 1;
        if line.len() > LINE_MAX {
            each(number, None);
            continue;
        }
        let words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let mut words = words.take_while(|word| !word.starts_with(b"#") && !word.starts_with(b";"));
        let mut words = words.by_ref().peekable();
        if words.peek().is_some() {
            each(number, Some(&mut words));
        }
    }
}

/// Reads a line, keeping at most one byte more than [`LINE_MAX`] of it; the bytes read.
fn read_line(input: &mut dyn BufRead, line: &mut Vec<u8>) -> std::io::Result<usize> {
    let mut total = 0;
    loop {
        let buffer = input.fill_buf()?;
        let end = buffer.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
        let used = end.unwrap_or(buffer.len());
        let left = (LINE_MAX + 1).saturating_sub(line.len());
        line.extend_from_slice(&buffer[..used.min(left)]);
        input.consume(used);
        total += used;
        if end.is_some() || used == 0 {
            return Ok(total);
        }
    }
}

/// A word for a message: its first characters.
fn cut(word: &[u8]) -> String {
    String::from_utf8_lossy(&word[..word.len().min(200)]).chars().take(48).collect()
}

/// Reads a file of `NAME NEXTHOP` lines. Bad lines are left out and listed.
///
/// # Errors
/// It cannot be read.
pub fn read_routes(path: &Path) -> Result<Routes, String> {
    let mut routes = Routes::default();
    let mut name = NameBuf::new();
    each_line(path, |line, words| {
        let Some(words) = words else {
            return routes.problems.add(line, TOO_LONG);
        };
        let text = words.next().unwrap_or_default();
        match read_prefix(text, &mut name) {
            Ok(()) => {}
            Err(ParsePrefixError::Uri(error)) => {
                return routes.problems.add(
                    line,
                    format_args!("expected NAME NEXTHOP, found `{}`: {error}", cut(text)),
                );
            }
            Err(error) => return routes.problems.add(line, error),
        }
        let Some(hop) = words.next() else {
            return routes.problems.add(
                line,
                format_args!("expected NAME NEXTHOP, found no next hop after `{}`", cut(text)),
            );
        };
        if let Some(more) = words.next() {
            return routes
                .problems
                .add(line, format_args!("expected only NAME NEXTHOP, found `{}`", cut(more)));
        }
        let Ok(hop) = std::str::from_utf8(hop) else {
            return routes
                .problems
                .add(line, format_args!("the next hop is not UTF-8 text: `{}`", cut(hop)));
        };
        routes.names.push(name.name().encodings());
        let number = routes.tokens.number(hop);
        routes.next_hops.push(number);
        routes.lines.push(line);
    })?;
    Ok(routes)
}

/// Reads a file of names, one a line.
///
/// # Errors
/// It cannot be read, or lines are not names: the first of them.
pub fn read_names(path: &Path) -> Result<NameList, String> {
    let (mut names, mut name) = (NameList::new(), NameBuf::new());
    let (mut bad, mut bad_count) = (Vec::new(), 0_usize);
    each_line(path, |line, words| {
        let problem = match words {
            None => TOO_LONG.to_owned(),
            Some(words) => {
                let text = words.next().unwrap_or_default();
                match (name.read_uri(text), words.next()) {
                    (Ok(()), None) => return names.push(name.name().encodings()),
                    (Ok(()), Some(more)) => {
                        format!("expected only a name, found `{}`", cut(more))
                    }
                    (Err(error), _) => format!("expected a name, found `{}`: {error}", cut(text)),
                }
            }
        };
        bad_count += 1;
        if bad.len() < SHOWN {
            bad.push(format!("{}, line {line}: {problem}", files::input::name(path)));
        }
    })?;
    if bad_count > 0 {
        let more = bad_count - bad.len();
        let more = if more > 0 { format!("\n(and {more} more)") } else { String::new() };
        return Err(bad.join("\nerror: ") + &more);
    }
    Ok(names)
}
