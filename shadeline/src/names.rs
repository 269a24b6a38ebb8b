//! `shadeline names`: longest-prefix match of names from files, with the table of the data path.

use std::path::Path;
use std::time::{Duration, Instant};

use apps::ndn::name_lines::{Problems, Routes, Tokens, read_names, read_routes};
use apps::router::routes::repeated;
use control::api::table::thousands;
use files::input;
use lookup::names::{
    DEPTH_MAX, NameFib, NameFibBuilder, NameHasher, NameKey, NameLimits, NameList, NamePrefixes,
};
use lookup::{Blob, NO_ROUTE, NextHopId};
use serde::Serialize;

use crate::cli::NamesArgs;
use crate::failure::Failure;
use crate::lpm::peak_memory_bytes;
use crate::output::{self, line, note};

/// Names looked up in one call: a burst.
const BATCH: usize = 256;

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

pub(crate) fn run(args: &NamesArgs) -> Result<(), Failure> {
    let begin = Instant::now();
    let mut routes = read_routes(&args.routes).map_err(Failure::other)?;
    let read = begin.elapsed();
    let begin = Instant::now();
    let (count, blob) = build(&mut routes, &args.routes)?;
    let built = begin.elapsed();
    tell(&routes.problems, &args.routes);
    let names = read_names(&args.names).map_err(Failure::other)?;
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
    output::figures(Some(&args.results), args.json, &figures, || text(&figures))
}

/// Prints what was left out.
fn tell(problems: &Problems, path: &Path) {
    for (line, problem) in &problems.first {
        note!("warning: {}: line {line}: {problem}", input::name(path));
    }
    if problems.count > problems.first.len() as u64 {
        let more = problems.count - problems.first.len() as u64;
        note!("warning: {}: and {more} more", input::name(path));
    }
    if let Some(text) = repeated(problems.repeated) {
        note!("warning: {}: {text}", input::name(path));
    }
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
                "{name} has another next hop on an earlier line, {before}; this line is used"
            ),
        );
    };
    let hasher = NameHasher::random();
    let (builder, blob) = NameFibBuilder::build_telling(hasher, names, next_hops, limits, replaced)
        .map_err(|error| Failure::other(format!("{}: {error}", input::name(path))))?;
    Ok((builder.len(), blob))
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
    output::write(path, |file| {
        out.iter().try_for_each(|next_hop| writeln!(file, "{}", tokens.text(*next_hop)))
    })
}

fn text(figures: &Figures) -> String {
    let mut out = String::new();
    line!(&mut out, "routes read in    {:.3} s", figures.read_s);
    line!(
        &mut out,
        "names {:>10} routes, built in {:.3} s, {} bytes; {} lookups, {:.1} Mlookups/s, {:.1} with hashing",
        thousands(figures.routes as u64),
        figures.build_s,
        thousands(figures.table_bytes as u64),
        thousands(figures.lookups as u64),
        figures.lookup_rate_mps,
        figures.hash_and_lookup_rate_mps,
    );
    line!(&mut out, "peak memory       {} bytes", thousands(figures.peak_memory_bytes));
    out
}
