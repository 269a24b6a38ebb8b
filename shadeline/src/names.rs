//! `shadeline names`: longest-prefix match of names from files, with the table of the data path.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufWriter, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use control::api::table::thousands;
use control::config::{ParsePrefixError, read_prefix};
use lookup::names::{
    DEPTH_MAX, NameFib, NameFibBuilder, NameHasher, NameKey, NameLimits, NameList, NamePrefixes,
};
use lookup::{Blob, NO_ROUTE, NextHopId, unpacked};
use packet::ndn::NameBuf;
use serde::Serialize;

use crate::cli::NamesArgs;
use crate::failure::Failure;
use crate::lpm::peak_memory_bytes;

/// Names looked up in one call: a burst.
const BATCH: usize = 256;

/// Bad names and bad routes that are shown.
const SHOWN: usize = 10;

/// The longest line: a name of 64 KB, which is as much as a packet holds, written in up to four characters a byte (`%XX`
/// takes three, and an empty component with its type in front, such as `/252=...`, eight for two bytes), and a next hop.
const LINE_MAX: usize = 272 << 10;

const TOO_LONG: &str = "the line is longer than 278528 bytes";
const _: () = assert!(LINE_MAX == 278_528);

#[derive(Serialize)]
struct Figures {
    read_s: f64,
    problems: u64,
    routes: usize,
    build_s: f64,
    table_bytes: usize,
    lookups: usize,
    lookup_rate_mps: f64,
    hash_and_lookup_rate_mps: f64,
    peak_memory_bytes: u64,
}

/// What a routes file says.
#[derive(Default)]
pub(crate) struct Routes {
    /// Prefixes.
    pub(crate) names: NameList,
    /// By prefix: the number of its token, from 1.
    pub(crate) next_hops: Vec<NextHopId>,
    /// By prefix.
    pub(crate) lines: Vec<u64>,
    /// Next hops as they were written.
    pub(crate) tokens: Tokens,
    /// Lines that were left out.
    pub(crate) problems: Problems,
}

pub(crate) fn run(args: &NamesArgs) -> Result<(), Failure> {
    let begin = Instant::now();
    let mut routes = read_routes(&args.routes)?;
    let read = begin.elapsed();
    let begin = Instant::now();
    let (count, blob) = build(&mut routes, &args.routes)?;
    let built = begin.elapsed();
    routes.problems.tell(&args.routes);
    let names = read_names(&args.names)?;
    let (out, lookup, whole) = lookup_all(&blob, &names)?;
    write_results(&args.results, &out, &routes.tokens)?;
    let rate = |time: Duration| match names.len() {
        0 => 0.0,
        n => n as f64 / time.as_secs_f64() / 1e6,
    };
    let figures = Figures {
        read_s: read.as_secs_f64(),
        problems: routes.problems.count,
        routes: count,
        build_s: built.as_secs_f64(),
        table_bytes: blob.len_bytes(),
        lookups: names.len(),
        lookup_rate_mps: rate(lookup),
        hash_and_lookup_rate_mps: rate(whole),
        peak_memory_bytes: peak_memory_bytes(),
    };
    print(&figures, args.json)
}

/// Next hops' names, numbered from 1.
#[derive(Default)]
pub(crate) struct Tokens {
    pub(crate) texts: Vec<String>,
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

    fn text(&self, number: NextHopId) -> &str {
        self.texts.get((number as usize).wrapping_sub(1)).map_or("-", String::as_str)
    }
}

/// Lines of a routes file that were left out, or say something else than an earlier one.
#[derive(Default)]
pub(crate) struct Problems {
    /// The first of them, by line.
    pub(crate) first: Vec<(u64, String)>,
    pub(crate) count: u64,
    /// Lines that say what an earlier one says.
    pub(crate) repeated: u64,
}

impl Problems {
    pub(crate) fn add(&mut self, line: u64, what: impl std::fmt::Display) {
        self.count += 1;
        if self.first.len() < SHOWN {
            self.first.push((line, what.to_string()));
        }
    }

    fn tell(&self, path: &Path) {
        for (line, problem) in &self.first {
            eprintln!("warning: {}: line {line}: {problem}", path.display());
        }
        if self.count > self.first.len() as u64 {
            let more = self.count - self.first.len() as u64;
            eprintln!("warning: {}: and {more} more", path.display());
        }
        if let Some(text) = crate::lpm::repeats(self.repeated) {
            eprintln!("warning: {}: {text}", path.display());
        }
    }
}

/// Calls `each` with the number and the words of every line that has any. A word that begins with `#` or
/// `;` begins a comment. `None` stands for a line that is too long.
pub(crate) fn each_line(
    path: &Path,
    mut each: impl FnMut(u64, Option<&mut dyn Iterator<Item = &[u8]>>),
) -> Result<(), Failure> {
    let failed = |error| Failure::file(path, error);
    let mut input = unpacked::open(path).map_err(failed)?;
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
        let room = (LINE_MAX + 1).saturating_sub(line.len());
        line.extend_from_slice(&buffer[..used.min(room)]);
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

/// Reads a file of `NAME NEXTHOP` lines. Bad lines are told and left out.
pub(crate) fn read_routes(path: &Path) -> Result<Routes, Failure> {
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
                format_args!("expected NAME NEXTHOP, found no next hop behind `{}`", cut(text)),
            );
        };
        if let Some(more) = words.next() {
            return routes.problems.add(
                line,
                format_args!("expected NAME NEXTHOP and no more, found `{}`", cut(more)),
            );
        }
        let Ok(hop) = std::str::from_utf8(hop) else {
            return routes
                .problems
                .add(line, format_args!("the next hop is no UTF-8 text: `{}`", cut(hop)));
        };
        routes.names.push(name.name().encodings());
        let number = routes.tokens.number(hop);
        routes.next_hops.push(number);
        routes.lines.push(line);
    })?;
    Ok(routes)
}

/// Builds the table, made to measure; the prefixes in it.
fn build(routes: &mut Routes, path: &Path) -> Result<(usize, Blob), Failure> {
    let name_bytes: usize =
        routes.names.iter().map(|name| (name.bytes().len() + 16).next_multiple_of(64)).sum();
    let limits = NameLimits { prefixes: routes.names.len().max(1), name_bytes: name_bytes + 4096 };
    let Routes { names, next_hops, lines, tokens, problems } = routes;
    let replaced = |index: usize, before: NextHopId| {
        if before == next_hops[index] {
            problems.repeated += 1;
            return;
        }
        let name = packet::ndn::Name::new_checked(names.get(index).bytes()).unwrap_or_default();
        let before = tokens.text(before);
        problems.add(
            lines[index],
            format_args!(
                "{name} has another next hop on an earlier line, {before}; this line stands"
            ),
        );
    };
    let hasher = NameHasher::random();
    let (builder, blob) = NameFibBuilder::build_telling(hasher, names, next_hops, limits, replaced)
        .map_err(|error| Failure::other(format!("{}: {error}", path.display())))?;
    Ok((builder.len(), blob))
}

fn read_names(path: &Path) -> Result<NameList, Failure> {
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
                        format!("expected a name and no more, found `{}`", cut(more))
                    }
                    (Err(error), _) => format!("expected a name, found `{}`: {error}", cut(text)),
                }
            }
        };
        bad_count += 1;
        if bad.len() < SHOWN {
            bad.push(format!("{}, line {line}: {problem}", path.display()));
        }
    })?;
    if bad_count > 0 {
        let more = bad_count - bad.len();
        let more = if more > 0 { format!("\n(and {more} more)") } else { String::new() };
        return Err(Failure::other(bad.join("\nerror: ") + &more));
    }
    Ok(names)
}

/// All next hops, the time that lookups took, and the time with hashing.
fn lookup_all(
    blob: &Blob,
    names: &NameList,
) -> Result<(Vec<NextHopId>, Duration, Duration), Failure> {
    let fib = NameFib::new(blob).ok_or_else(|| Failure::other("the table cannot be viewed"))?;
    let mut out = vec![NO_ROUTE; names.len()];
    let mut prefixes = NamePrefixes::new();
    let (mut lookup, mut whole) = (Duration::ZERO, Duration::ZERO);
    for (at, out) in (0..).step_by(BATCH).zip(out.chunks_mut(BATCH)) {
        let begin = Instant::now();
        prefixes.clear();
        (at..at + out.len()).for_each(|at| prefixes.push(fib.hasher(), names.get(at), DEPTH_MAX));
        let mut keys = [NameKey::default(); BATCH];
        for (index, key) in keys[..out.len()].iter_mut().enumerate() {
            *key = prefixes.key(index, names.get(at + index));
        }
        let hashed = Instant::now();
        fib.lookup(&keys[..out.len()], out);
        lookup += hashed.elapsed();
        whole += begin.elapsed();
    }
    Ok((out, lookup, whole))
}

fn write_results(path: &Path, out: &[NextHopId], tokens: &Tokens) -> Result<(), Failure> {
    let failed = |error| Failure::file(path, error);
    let mut file = BufWriter::new(File::create(path).map_err(failed)?);
    for next_hop in out {
        writeln!(file, "{}", tokens.text(*next_hop)).map_err(failed)?;
    }
    file.flush().map_err(failed)
}

fn print(figures: &Figures, json: bool) -> Result<(), Failure> {
    if json {
        println!("{}", serde_json::to_string_pretty(figures).map_err(Failure::other)?);
        return Ok(());
    }
    println!("routes read in    {:.3} s", figures.read_s);
    println!(
        "names {:>10} routes, built in {:.3} s, {} bytes; {} lookups, {:.1} Mlookups/s, {:.1} with hashing",
        thousands(figures.routes as u64),
        figures.build_s,
        thousands(figures.table_bytes as u64),
        thousands(figures.lookups as u64),
        figures.lookup_rate_mps,
        figures.hash_and_lookup_rate_mps,
    );
    println!("peak memory       {} bytes", thousands(figures.peak_memory_bytes));
    Ok(())
}
