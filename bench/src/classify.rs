//! `bench classify`: every structure over ClassBench's sets, beside DPDK's `rte_acl`.
//!
//! The sets of 1,000 and 10,000 rules are those of the shared data, those of 100,000 are made from ClassBench's
//! parameter files; for each there are two traces of 100,000 headers, as `gen trace --seed 1` makes them, and
//! where a set has a trace of its own, that. Rounds alternate: every structure once, then the peer, each for
//! [`ROUND_SECONDS`] of its thread's own time. All must answer alike; the peer gives the sum of its answers in each
//! round and a hash over all in order.

mod peer;
mod sets;
mod updates;

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use ::classify::algorithms::{ALGORITHMS, Algorithm};
use ::classify::generate::synthetic;
use ::classify::{Classify, Match, RuleSet, Schema, Tables};

use self::peer::Acl;
use self::sets::Load;
use crate::forms::{ratio, thread_seconds};
use crate::report::median;
use crate::{Args, Report, Row};

/// Where the sets are by default.
pub(crate) const DEFAULT_SETS: &str = "../shared/data/classbench";

/// Where the parameter files are by default.
pub(crate) const DEFAULT_SEEDS: &str = "../shared/data/restricted/classbench-seeds";

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Size {
    /// Sets of 1,000 and 10,000 rules.
    Small,
    /// Sets of 100,000 rules too, and 128K rules in 512 classes.
    Full,
}

/// Headers of one call, and of the peer's.
const BURST: usize = 256;

/// Passes over a trace are repeated until so much time has gone.
const ROUND_SECONDS: f64 = 0.03;

/// Rules above which a search through all of them is not worth waiting for.
const LINEAR_RULES: usize = 20_000;

/// A structure, built.
struct Built {
    algorithm: &'static Algorithm,
    tables: Tables,
    build_s: f64,
    memory_bytes: usize,
}

pub(crate) fn run(args: &Args, size: Size, sets: &Path, seeds: &Path) -> Result<Report, String> {
    let data =
        format!("ClassBench sets, traces of {} headers, {BURST} a call; one core", sets::HEADERS);
    let mut report = Report::new("classify", data);
    // Of the sets that are aimed at: ours over the peer, by round.
    let mut over_peer: Vec<Vec<f64>> = Vec::new();
    for set in sets::names(size) {
        let (rules, loads) = match set.read(sets, seeds) {
            Ok(read) => read,
            Err(why) => {
                report.rows.push(Row::new(set.name(), "Mpps", Vec::new()).note(why));
                continue;
            }
        };
        let ratios = of_set(args, &set.name(), &rules, &loads, &mut report)?;
        if set.is_aimed_at() {
            over_peer.extend(ratios);
        }
    }
    if !over_peer.is_empty() {
        let rounds = (0..args.rounds.max(1)).map(|round| {
            let logarithms =
                over_peer.iter().filter_map(|rounds| rounds.get(round)).map(|r| r.ln());
            (logarithms.sum::<f64>() / over_peer.len() as f64).exp()
        });
        let row = Row::new("best over rte_acl, geometric mean", "ratio", rounds.collect());
        let note = format!("{} traces of acl1, fw1 and ipc1", over_peer.len());
        report.rows.push(row.at_least(1.3).note(note));
    }
    many_classes(args, size, &mut report)?;
    updates::rows(args, sets, &mut report)?;
    Ok(report)
}

/// All rows of a set; for each trace ours over the peer, by round.
fn of_set(
    args: &Args,
    name: &str,
    set: &RuleSet,
    loads: &[Load],
    report: &mut Report,
) -> Result<Vec<Vec<f64>>, String> {
    let built = build(name, set, report);
    let mut acl = Acl::start(set);
    let mut ratios = Vec::new();
    for load in loads {
        let prefix = format!("{name}, {}", load.name);
        let figures = measure(args, &prefix, &built, load, &mut acl, report)?;
        let best = best(&built, &figures.ours);
        for (built, rates) in built.iter().zip(&figures.ours) {
            let name = format!("{prefix}: {}", built.algorithm.name);
            report.rows.push(Row::new(name, "Mpps", rates.clone()));
        }
        let row = Row::new(format!("{prefix}: rte_acl"), "Mpps", figures.theirs.clone());
        report.rows.push(row.note(acl.note()));
        if let (Some(best), false) = (best, figures.theirs.is_empty()) {
            let by = built[best].algorithm.name;
            let row =
                ratio(format!("{prefix}: best over rte_acl"), &figures.ours[best], &figures.theirs);
            ratios.push(row.rounds.clone());
            report.rows.push(row.note(by));
        }
    }
    let megabytes = |bytes: f64| bytes / 1e6;
    for built in &built {
        let name = format!("{name}: {}", built.algorithm.name);
        let memory = megabytes(built.memory_bytes as f64);
        report.rows.push(Row::new(format!("{name}, memory"), "MB", vec![memory]));
        report.rows.push(Row::new(format!("{name}, build"), "s", vec![built.build_s]));
    }
    if let Some((build_s, bytes)) = acl.built() {
        let name = format!("{name}: rte_acl");
        let memory = megabytes(bytes as f64);
        report.rows.push(Row::new(format!("{name}, memory"), "MB", vec![memory]));
        report.rows.push(Row::new(format!("{name}, build"), "s", vec![build_s]));
    }
    Ok(ratios)
}

/// Which to hold against the peer: `auto` where there is one, else the quickest.
fn best(built: &[Built], rates: &[Vec<f64>]) -> Option<usize> {
    let auto = built.iter().position(|built| built.algorithm.name == "auto");
    let by_median = |a: &usize, b: &usize| median(&rates[*a]).total_cmp(&median(&rates[*b]));
    auto.or_else(|| (0..rates.len()).max_by(by_median))
}

/// Builds every structure that takes the set; a refusal is a row.
fn build(name: &str, set: &RuleSet, report: &mut Report) -> Vec<Built> {
    let mut all = Vec::new();
    for algorithm in ALGORITHMS {
        if algorithm.name == "linear" && set.len() > LINEAR_RULES {
            continue;
        }
        let begin = Instant::now();
        let built = (algorithm.build)(set).and_then(|built| {
            let build_s = begin.elapsed().as_secs_f64();
            let (tables, memory_bytes) = (built.tables()?, built.memory().total());
            Ok(Built { algorithm, tables, build_s, memory_bytes })
        });
        match built {
            Ok(built) => all.push(built),
            Err(why) => {
                let row = Row::new(format!("{name}: {}", algorithm.name), "Mpps", Vec::new());
                report.rows.push(row.note(why.to_string()));
            }
        }
    }
    all
}

/// Rates in Mpps: by structure and round, and the peer's by round.
struct Figures {
    ours: Vec<Vec<f64>>,
    theirs: Vec<f64>,
}

fn measure(
    args: &Args,
    prefix: &str,
    built: &[Built],
    load: &Load,
    acl: &mut Acl,
    report: &mut Report,
) -> Result<Figures, String> {
    let headers = &load.headers;
    let Some(words) = built.first().map(|built| built.tables.words()) else {
        return Ok(Figures { ours: Vec::new(), theirs: Vec::new() });
    };
    let count = headers.len() / words;
    let mut answers = vec![Match::NONE; count];
    pass(&built[0].tables, headers, &mut answers);
    acl.take_headers(headers, &answers, prefix, report);
    let mut figures = Figures { ours: vec![Vec::new(); built.len()], theirs: Vec::new() };
    let mut out = vec![Match::NONE; count];
    for _ in 0..args.rounds.max(1) {
        for (built, rates) in built.iter().zip(&mut figures.ours) {
            let (begin, mut passes) = (thread_seconds(), 0);
            let mut seconds = 0.0;
            while seconds < ROUND_SECONDS {
                pass(&built.tables, headers, black_box(&mut out));
                passes += 1;
                seconds = thread_seconds() - begin;
            }
            rates.push((count * passes) as f64 / seconds / 1e6);
            if out != answers {
                report.wrong.push(format!("{prefix}: {} answers otherwise", built.algorithm.name));
            }
        }
        if let Some(seconds) = acl.round(ROUND_SECONDS, prefix, report)? {
            figures.theirs.push(count as f64 / seconds / 1e6);
        }
    }
    Ok(figures)
}

/// Classifies all headers, burst by burst.
fn pass(tables: &Tables, headers: &[u32], out: &mut [Match]) {
    let words = tables.words();
    for (headers, out) in headers.chunks(BURST * words).zip(out.chunks_mut(BURST)) {
        tables.classify(headers, out);
    }
}

/// Bloom search against tuple search where there are many classes, on 5 and 12 fields.
fn many_classes(args: &Args, size: Size, report: &mut Report) -> Result<(), String> {
    let (rules, classes) = if size == Size::Full { (128 << 10, 512) } else { (16 << 10, 64) };
    for schema in [Schema::five_tuple(), Schema::twelve_fields()] {
        let fields = schema.fields().len();
        let options = synthetic::Options {
            schema: schema.into(),
            rules,
            classes,
            full_classes: None,
            overlap: 1,
            distribution: synthetic::Distribution::Full,
            seed: 1,
        };
        let set = synthetic::rules(&options).map_err(|e| e.to_string())?.set;
        let name = format!("{}K rules, {classes} classes, {fields} fields", rules >> 10);
        let mut built = build(&name, &set, report);
        built.retain(|built| ["tuple", "bloom"].contains(&built.algorithm.name));
        let load = sets::uniform(&set);
        let figures = measure(args, &name, &built, &load, &mut Acl::none(), report)?;
        for (built, rates) in built.iter().zip(&figures.ours) {
            let name = format!("{name}: {}", built.algorithm.name);
            report.rows.push(Row::new(name, "Mpps", rates.clone()));
        }
        let rates = |name: &str| {
            let at = built.iter().position(|built| built.algorithm.name == name);
            at.map_or(&[][..], |at| &figures.ours[at])
        };
        let row = ratio(format!("{name}: bloom over tuple"), rates("bloom"), rates("tuple"));
        let aimed_at = size == Size::Full && fields == 5;
        report.rows.push(if aimed_at { row.at_least(1.5) } else { row });
    }
    Ok(())
}
