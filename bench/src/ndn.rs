//! `bench ndn`: longest-prefix match of names, plain, switched and as a machine, beside a map of the standard
//! library that is asked from the longest prefix on.
//!
//! One table of millions of prefixes on huge pages; the same on pages of 4 KB; and a small one that caches hold.
//! Each round runs every form once, in turn, and counts the time that its thread ran. The time is that of the lookups:
//! names come hashed, and hashing has a row of its own. Answers of all forms are compared with the map's, name by name.
//! The whole forwarding loop is in `ndn_loop`.

use std::collections::{HashMap, HashSet};
use std::hint::black_box;
use std::path::Path;
use std::sync::Barrier;
use std::time::Instant;

use apps::ndn::NameForm;
use lookup::blob::Pages;
use lookup::names::{
    DEPTH_MAX, NameFib, NameFibBuilder, NameHasher, NameKey, NameLimits, NameList, NamePrefixes,
};
use lookup::{Blob, NextHopId};

use crate::forms::{mean, share, thread_seconds};
use crate::limit::lines_per_second;
use crate::limits::has_room;
use crate::names::{self, Prefixes};
use crate::report::median;
use crate::{Args, Report, Row, ndn_loop};

/// Prefixes of the small table.
const SMALL: usize = 8_000;

/// Of a hundred names, those that no prefix begins.
const MISSES: usize = 10;

/// Names of one call.
const BURSTS: [usize; 3] = [256, 64, 32];

/// Lookups in flight.
const TURNS: usize = 32;

/// The ways to look a burst up, the plain one first.
pub(crate) const FORMS: [(&str, NameForm); 3] = [
    ("plain", |fib, keys, out| fib.lookup_direct(keys, out)),
    ("switched", |fib, keys, out| fib.lookup_switched::<TURNS>(keys, out)),
    ("machine", |fib, keys, out| fib.lookup_machine::<TURNS>(keys, out)),
];

/// A table under load.
struct Case<'a> {
    name: String,
    blob: &'a Blob,
    burst: usize,
    threads: usize,
    aim: Option<f64>, // of switched against plain
    limit: f64,       // million random lines a second from a table of this size on its pages
}

pub(crate) fn run(
    args: &Args,
    folder: &Path,
    prefixes: usize,
    keys: usize,
) -> Result<Report, String> {
    if prefixes == 0 || keys == 0 {
        return Err("nothing to look up: prefixes and names are needed".into());
    }
    // Names, a map of them, and the table three times; names that are asked, hashed.
    has_room(&format!("{prefixes} prefixes"), prefixes.saturating_mul(500))?;
    has_room(&format!("{keys} names"), keys.saturating_mul(400))?;
    let mut report = Report::new(
        "ndn",
        format!(
            "{prefixes} prefixes made of the names in {}, {keys} names inside them, {MISSES} % elsewhere",
            folder.display()
        ),
    );
    let hasher = NameHasher::new(1);
    let large = names::prefixes(folder, prefixes, 7)?;
    let blob = table(&large, &hasher, "large", &mut report)?;
    let asked = large.keys(keys, MISSES, 42);
    let expected = by_map(&large, &asked, args.rounds, &mut report);
    other_searches(&large, &asked, &hasher, &mut report);
    drop(large);
    let small_pages = blob.copy_on(Pages::Small).map_err(|e| e.to_string())?;
    let limit = |blob: &Blob, pages| lines_per_second(blob.len_bytes(), pages, args.rounds);
    let (huge, small) = (limit(&blob, Pages::Huge)?, limit(&blob, Pages::Small)?);
    let cases = [
        Case { aim: Some(2.0), ..case("large", &blob, BURSTS[0], 1, huge) },
        case("large", &blob, BURSTS[1], 1, huge),
        case("large", &blob, BURSTS[2], 1, huge),
        case("large", &blob, BURSTS[0], 2, huge),
        case("large on 4 KB pages", &small_pages, BURSTS[0], 1, small),
    ];
    measure(&cases, &hasher, &asked, &expected, args.rounds, &mut report);
    drop(small_pages);
    ndn_loop::run("large", blob, &asked, &expected, args.rounds, &mut report)?;

    let small = names::prefixes(folder, SMALL, 7)?;
    let blob = table(&small, &hasher, "in cache", &mut report)?;
    let asked = small.keys(keys.min(1 << 14), MISSES, 43);
    let expected = by_map(&small, &asked, 0, &mut report);
    let huge = limit(&blob, Pages::Huge)?;
    let cases = [
        case("in cache", &blob, BURSTS[0], 1, huge),
        case("in cache", &blob, BURSTS[2], 1, huge),
        case("in cache", &blob, BURSTS[0], 2, huge),
    ];
    measure(&cases, &hasher, &asked, &expected, args.rounds, &mut report);
    ndn_loop::run("in cache", blob, &asked, &expected, args.rounds, &mut report)?;
    Ok(report)
}

fn case<'a>(name: &str, blob: &'a Blob, burst: usize, threads: usize, limit: f64) -> Case<'a> {
    let threads_name = if threads > 1 { format!(", {threads} threads") } else { String::new() };
    let name = format!("{name}, {burst} a call{threads_name}");
    Case { name, blob, burst, threads, aim: None, limit }
}

fn table(
    prefixes: &Prefixes,
    hasher: &NameHasher,
    name: &str,
    report: &mut Report,
) -> Result<Blob, String> {
    let bytes: usize =
        prefixes.names.iter().map(|name| (name.bytes().len() + 16).next_multiple_of(64)).sum();
    let limits = NameLimits { prefixes: prefixes.names.len(), name_bytes: bytes + 4096 };
    let begin = Instant::now();
    let (builder, blob) =
        NameFibBuilder::build(*hasher, &prefixes.names, &prefixes.next_hops, limits)
            .map_err(|e| e.to_string())?;
    let seconds = begin.elapsed().as_secs_f64();
    if builder.len() != prefixes.names.len() {
        report.wrong.push(format!(
            "{name}: {} prefixes of {}",
            builder.len(),
            prefixes.names.len()
        ));
    }
    let real = format!("{} prefixes, {} of them real", prefixes.names.len(), prefixes.real);
    report.rows.push(Row::new(format!("{name}: built in"), "s", vec![seconds]).note(real));
    let mib = blob.len_bytes() as f64 / f64::from(1 << 20);
    let hints = format!("hints at {} components", builder.hint_depth());
    report.rows.push(Row::new(format!("{name}: memory"), "MiB", vec![mib]).note(hints));
    Ok(blob)
}

/// The answers of a map of whole prefixes, and how quick it is.
fn by_map(
    prefixes: &Prefixes,
    asked: &NameList,
    rounds: usize,
    report: &mut Report,
) -> Vec<NextHopId> {
    let map: HashMap<&[u8], NextHopId> = prefixes
        .names
        .iter()
        .zip(&prefixes.next_hops)
        .map(|(name, next_hop)| (name.bytes(), *next_hop))
        .collect();
    let answer = |index: usize| {
        let name = asked.get(index);
        let mut end = name.bytes().len();
        let mut lengths: Vec<usize> = name.components().map(<[u8]>::len).collect();
        loop {
            if let Some(next_hop) = map.get(&name.bytes()[..end]) {
                return *next_hop;
            }
            let Some(last) = lengths.pop() else { return lookup::NO_ROUTE };
            end -= last;
        }
    };
    let answers: Vec<NextHopId> = (0..asked.len()).map(answer).collect();
    let sample = asked.len().min(1 << 18);
    let rates: Vec<f64> = (0..rounds)
        .map(|_| {
            let begin = thread_seconds();
            black_box((0..sample).map(answer).fold(0, u32::wrapping_add));
            sample as f64 / (thread_seconds() - begin) / 1e6
        })
        .collect();
    if rounds > 0 {
        let note =
            format!("the twin: whole prefixes, longest first, hashing included; {sample} names");
        report.rows.push(Row::new("large: std::collections::HashMap", "M/s", rates).note(note));
    }
    answers
}

/// Lines that other searches over the same entries would read: from the longest depth present on, and binary search
/// over the depths present, with markers. Buckets that overflow are left aside; the name of the match counts.
fn other_searches(prefixes: &Prefixes, asked: &NameList, hasher: &NameHasher, report: &mut Report) {
    let (mut entries, mut markers) = (HashSet::new(), HashSet::new());
    let (mut depths, mut hashed) = ([false; DEPTH_MAX + 1], Vec::new());
    for name in prefixes.names.iter() {
        hashed.clear();
        hasher.prefixes(name.components(), DEPTH_MAX, &mut hashed);
        depths[hashed.len()] = true;
        entries.extend(hashed.last().map(|prefix| prefix.hash));
        markers.extend(hashed.iter().map(|prefix| prefix.hash));
    }
    let depths: Vec<usize> = (1..=DEPTH_MAX).filter(|depth| depths[*depth]).collect();
    let (mut longest_first, mut binary) = (0, 0);
    let sample = asked.len().min(1 << 17);
    for name in asked.iter().take(sample) {
        hashed.clear();
        hasher.prefixes(name.components(), DEPTH_MAX, &mut hashed);
        let at: Vec<u64> =
            depths.iter().filter_map(|depth| Some(hashed.get(depth - 1)?.hash)).collect();
        let found = at.iter().rev().position(|hash| entries.contains(hash));
        longest_first += found.map_or(at.len(), |misses| misses + 2);
        let (mut low, mut high) = (0, at.len());
        while low < high {
            let middle = (low + high) / 2;
            binary += 1;
            match markers.contains(&at[middle]) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        binary += usize::from(found.is_some());
    }
    for (search, lines) in [("longest first", longest_first), ("binary search", binary)] {
        let lines = vec![lines as f64 / sample as f64];
        let note = format!("depths in use: {depths:?}");
        report.rows.push(
            Row::new(format!("large: lines that {search} would read"), "lines", lines).note(note),
        );
    }
}

fn measure(
    cases: &[Case<'_>],
    hasher: &NameHasher,
    asked: &NameList,
    expected: &[NextHopId],
    rounds: usize,
    report: &mut Report,
) {
    let mut prefixes = NamePrefixes::new();
    let mut hashing = Vec::new();
    for _ in 0..rounds.max(1) {
        prefixes.clear();
        let begin = thread_seconds();
        asked.iter().for_each(|name| prefixes.push(hasher, name, DEPTH_MAX));
        hashing.push((thread_seconds() - begin) / asked.len() as f64 * 1e9);
    }
    let keys: Vec<NameKey> =
        asked.iter().enumerate().map(|(at, name)| prefixes.key(at, name)).collect();
    let mut rates = vec![[const { Vec::new() }; FORMS.len()]; cases.len()];
    let mut out = vec![0; keys.len()];
    for round in 0..rounds.max(1) {
        for (case, rates) in cases.iter().zip(&mut rates) {
            let Some(fib) = NameFib::new(case.blob) else {
                report.wrong.push(format!("{}: no table", case.name));
                return;
            };
            for ((form_name, form), rates) in FORMS.iter().zip(rates) {
                let seconds = pass(case, &fib, *form, &keys, &mut out);
                rates.push(keys.len() as f64 / seconds / 1e6);
                if out != expected && round == 0 {
                    report.wrong.push(format!("{}, {form_name}: not the map's answers", case.name));
                }
            }
        }
    }
    let title = cases.first().map_or("", |case| case.name.split(',').next().unwrap_or_default());
    report.rows.push(Row::new(format!("{title}: hashing a name"), "ns", hashing));
    let mut lines = f64::NAN;
    if let Some(fib) = cases.first().and_then(|case| NameFib::new(case.blob)) {
        lines = mean(keys.iter().map(|key| fib.lines_read(key).into()));
        let name = format!("{title}: cache lines a lookup reads");
        report.rows.push(Row::new(name, "lines", vec![lines]));
    }
    for (case, rates) in cases.iter().zip(rates) {
        let [plain, others @ ..] = &rates;
        for ((form, _), rates) in FORMS.iter().zip(&rates) {
            let row = Row::new(format!("{}: {form}", case.name), "M/s", rates.clone());
            let limit = case.limit * case.threads as f64;
            report.rows.push(row.note(share(median(rates), lines, limit)));
        }
        for ((form, _), rates) in FORMS[1..].iter().zip(others) {
            let ratios = rates.iter().zip(plain).map(|(a, b)| a / b).collect();
            let row = Row::new(format!("{}: {form}/plain", case.name), "ratio", ratios);
            report.rows.push(match case.aim {
                Some(aim) if *form == "switched" => row.at_least(aim),
                _ => row,
            });
        }
    }
}

/// One pass over the keys, by one thread or shared by several; seconds.
fn pass<'k>(
    case: &Case<'_>,
    fib: &NameFib<'_>,
    form: NameForm,
    keys: &'k [NameKey<'k>],
    out: &mut [NextHopId],
) -> f64 {
    let run = |keys: &'k [NameKey<'k>], out: &mut [NextHopId]| {
        for (keys, out) in keys.chunks(case.burst).zip(out.chunks_mut(case.burst)) {
            form(fib, keys, out);
        }
    };
    if case.threads == 1 {
        let begin = thread_seconds();
        run(keys, out);
        return thread_seconds() - begin;
    }
    let part = keys.len().div_ceil(case.threads);
    let barrier = Barrier::new(case.threads);
    let (run, barrier) = (&run, &barrier);
    std::thread::scope(|scope| {
        let threads: Vec<_> = keys
            .chunks(part)
            .zip(out.chunks_mut(part))
            .map(|(keys, out)| {
                scope.spawn(move || {
                    barrier.wait();
                    let begin = thread_seconds();
                    run(keys, out);
                    thread_seconds() - begin
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(f64::NAN)).fold(0.0, f64::max)
    })
}
