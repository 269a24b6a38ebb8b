//! `bench classify`: every structure over ClassBench's sets, beside DPDK's `rte_acl`.
//!
//! The sets of 1,000 and 10,000 rules are those of the shared data, those of 100,000 are made from ClassBench's
//! parameter files; for each there are two traces of 100,000 headers, as `gen trace --seed 1` makes them, and
//! where a set has a trace of its own, that. Rounds alternate: every structure once, then the peer, each for
//! [`ROUND_SECONDS`] of its thread's own time. All must answer alike; the peer gives the sum of its answers in each
//! round and a hash over all in order.

mod devices;
pub(crate) mod figures;
pub(crate) mod hashes;
mod peer;
pub(crate) mod sets;
mod updates;

use std::hint::black_box;
use std::path::PathBuf;
use std::time::Instant;

use ::classify::algorithms::{ALGORITHMS, Algorithm, Ways};
use ::classify::generate::synthetic;
use ::classify::{Classify, Match, RuleSet, Schema, Tables};

use self::peer::Acl;
use self::sets::Load;
use crate::forms::{ratio, thread_seconds};
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

/// The options of the benchmark.
#[derive(Debug, Clone, clap::Args)]
pub struct ClassifyArgs {
    /// Rule sets: 1,000 and 10,000 rules, or 100,000 too
    #[arg(long, value_enum, default_value_t = Size::Full)]
    pub size: Size,
    /// Folder with the rule sets
    #[arg(long, value_name = "FOLDER", default_value = DEFAULT_SETS)]
    pub sets: PathBuf,
    /// Folder with ClassBench's parameter files, from which the sets of 100,000 rules are generated
    #[arg(long, value_name = "FOLDER", default_value = DEFAULT_SEEDS)]
    pub seeds: PathBuf,
    /// Also measure a device, and rule changes while it classifies: auto, opencl, opencl:N, cuda or cuda:N
    #[arg(long, value_name = "BACKEND")]
    pub backend: Option<device::Backend>,
    /// Headers per trace
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = crate::limits::up_to::<HEADERS_MAX>)]
    pub headers: usize,
}

/// The most headers of a trace.
pub(crate) const HEADERS_MAX: usize = 1 << 24;

/// Headers of one call, and of the peer's.
const BURST: usize = 256;

/// Passes over a trace are repeated until so much time has gone.
const ROUND_SECONDS: f64 = 0.03;

/// Rules above which a search through all of them is not worth waiting for.
const LINEAR_RULES: usize = 20_000;

/// What a GPU is to reach with 128K rules in 512 classes, headers of 16 bytes, from end to end: Mpps.
const DEVICE_AIM: f64 = 500.0;

/// A structure, built.
struct Built {
    algorithm: &'static Algorithm,
    tables: Tables,
    /// Of `auto`: which structure it took.
    chosen: &'static str,
    build_s: f64,
    memory_bytes: usize,
}

pub(crate) fn run(args: &Args, options: &ClassifyArgs) -> Result<Report, String> {
    let ClassifyArgs { sets, seeds, headers, .. } = options;
    let data = format!("ClassBench sets, traces of {headers} headers, {BURST} a call; one core");
    let mut report = Report::new("classify", data);
    // Of the sets that are aimed at: ours over the peer's functions, by round.
    let mut over_peer = Ratios::default();
    for set in sets::names(options.size) {
        let (rules, loads) = match set.read(sets, seeds, *headers) {
            Ok(read) => read,
            Err(why) => {
                report.rows.push(Row::new(set.name(), "Mpps", Vec::new()).note(why));
                continue;
            }
        };
        let ratios = of_set(args, &set.name(), &rules, &loads, &mut report)?;
        if set.is_aimed_at() {
            over_peer.aimed_at.extend(ratios.aimed_at);
            over_peer.best.extend(ratios.best);
        }
    }
    let traces = format!("{} traces of acl1, fw1 and ipc1", over_peer.aimed_at.len());
    let means = [("avx2", &over_peer.aimed_at), ("at its best", &over_peer.best)];
    for (by, ratios) in means.into_iter().filter(|(_, ratios)| !ratios.is_empty()) {
        let name = format!("auto over rte_acl, {by}, geometric mean");
        let row = Row::new(name, "ratio", geometric_means(ratios)).note(traces.clone());
        report.rows.push(if by == "avx2" { row.at_least(1.3) } else { row });
    }
    many_classes(args, options, &mut report)?;
    updates::rows(args, options, &mut report)?;
    if let Some(backend) = options.backend {
        devices::rows(args, options, backend, &mut report)?;
    }
    Ok(report)
}

/// Ours over the peer's, by trace and round.
#[derive(Debug, Default)]
struct Ratios {
    /// Over the function that the aims speak of.
    aimed_at: Vec<Vec<f64>>,
    /// Over the quickest.
    best: Vec<Vec<f64>>,
}

/// The geometric mean of each round.
fn geometric_means(ratios: &[Vec<f64>]) -> Vec<f64> {
    let rounds = ratios.iter().map(Vec::len).min().unwrap_or(0);
    let mean = |round: usize| {
        let logarithms = ratios.iter().map(|rounds| rounds[round].ln());
        (logarithms.sum::<f64>() / ratios.len() as f64).exp()
    };
    (0..rounds).map(mean).collect()
}

/// All rows of a set.
fn of_set(
    args: &Args,
    name: &str,
    set: &RuleSet,
    loads: &[Load],
    report: &mut Report,
) -> Result<Ratios, String> {
    let built = build(name, set, report);
    let mut acl = Acl::start(set);
    let mut ratios = Ratios::default();
    for load in loads {
        let prefix = format!("{name}, {}", load.name);
        let figures = measure(args, &prefix, &built, load, &mut acl, report)?;
        for (built, rates) in built.iter().zip(&figures.ours) {
            let row =
                Row::new(format!("{prefix}: {}", built.algorithm.name), "Mpps", rates.clone());
            report.rows.push(row.note(built.chosen));
        }
        for (variant, rates) in &figures.theirs {
            let name = format!("{prefix}: rte_acl, {variant}");
            report.rows.push(Row::new(name, "Mpps", rates.clone()).note(acl.note()));
        }
        if figures.theirs.is_empty() {
            report
                .rows
                .push(Row::new(format!("{prefix}: rte_acl"), "Mpps", vec![]).note(acl.note()));
        }
        let auto = built.iter().position(|built| built.algorithm.name == "auto");
        let Some(auto) = auto.map(|at| &figures.ours[at]) else { continue };
        for (at, (variant, theirs)) in figures.theirs.iter().enumerate() {
            let row = ratio(format!("{prefix}: auto over rte_acl, {variant}"), auto, theirs);
            if at == 0 {
                ratios.aimed_at.push(row.rounds.clone());
            }
            if at + 1 == figures.theirs.len() {
                ratios.best.push(row.rounds.clone());
            }
            report.rows.push(row);
        }
    }
    let is_large = set.len() >= 100_000;
    for built in &built {
        let (name, aims) = (format!("{name}: {}", built.algorithm.name), built.algorithm.name);
        let memory = built.memory_bytes as f64 / 1e6;
        let memory = Row::new(format!("{name}, memory"), "MB", vec![memory]);
        let build = Row::new(format!("{name}, build"), "s", vec![built.build_s]);
        match is_large && aims == "auto" {
            true => report.rows.extend([memory.at_most(300.0), build.at_most(5.0)]),
            false => report.rows.extend([memory, build]),
        }
    }
    if let Some((build_s, bytes)) = acl.built() {
        let name = format!("{name}: rte_acl");
        report.rows.push(Row::new(format!("{name}, memory"), "MB", vec![bytes as f64 / 1e6]));
        report.rows.push(Row::new(format!("{name}, build"), "s", vec![build_s]));
    }
    Ok(ratios)
}

/// Builds every structure that takes the set; a refusal is a row.
fn build(name: &str, set: &RuleSet, report: &mut Report) -> Vec<Built> {
    build_those(name, set, |_| true, Ways::default(), report)
}

/// The same of those whose names are wanted, in a way.
fn build_those(
    name: &str,
    set: &RuleSet,
    wanted: impl Fn(&str) -> bool,
    ways: Ways,
    report: &mut Report,
) -> Vec<Built> {
    let mut all = Vec::new();
    for algorithm in ALGORITHMS.iter().filter(|algorithm| wanted(algorithm.name)) {
        if algorithm.name == "linear" && set.len() > LINEAR_RULES {
            continue;
        }
        let begin = Instant::now();
        let built = algorithm.build_with(set, ways).and_then(|built| {
            let build_s = begin.elapsed().as_secs_f64();
            let (tables, memory_bytes) = (built.tables()?, built.memory().total());
            let chosen = built.chosen().unwrap_or_default();
            Ok(Built { algorithm, tables, chosen, build_s, memory_bytes })
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

/// Rates in Mpps: by structure and round, and by the peer's function and round.
#[derive(Debug, Default)]
struct Figures {
    ours: Vec<Vec<f64>>,
    theirs: Vec<(&'static str, Vec<f64>)>,
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
        return Ok(Figures::default());
    };
    let count = headers.len() / words;
    let mut answers = vec![Match::NONE; count];
    pass(&built[0].tables, headers, &mut answers);
    acl.take_headers(headers, &answers, prefix, report);
    let theirs = acl.variants().iter().map(|variant| (*variant, Vec::new())).collect();
    let mut figures = Figures { ours: vec![Vec::new(); built.len()], theirs };
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
        for (variant, rates) in &mut figures.theirs {
            let seconds = acl.round(variant, ROUND_SECONDS, prefix, report)?;
            rates.push(count as f64 / seconds / 1e6);
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
fn many_classes(args: &Args, options: &ClassifyArgs, report: &mut Report) -> Result<(), String> {
    let (size, headers, backend) = (options.size, options.headers, options.backend);
    let (rules, classes) = if size == Size::Full { (128 << 10, 512) } else { (16 << 10, 64) };
    for schema in [Schema::five_tuple(), Schema::twelve_fields()] {
        let fields = schema.fields().len();
        let plan = synthetic::Options {
            schema: schema.into(),
            rules,
            classes,
            full_classes: None,
            overlap: 1,
            distribution: synthetic::Distribution::Full,
            seed: 1,
        };
        let set = synthetic::rules(&plan).map_err(|e| e.to_string())?.set;
        let name = format!("{}K rules, {classes} classes, {fields} fields", rules >> 10);
        let shown = |by: &str| ["tuple", "bloom"].contains(&by);
        let built = build_those(&name, &set, shown, Ways::default(), report);
        let load = sets::uniform(&set, headers);
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
        if let Some(backend) = backend {
            let aim = aimed_at.then_some(DEVICE_AIM);
            devices::many_classes(args, (backend, aim), &name, &set, &load, report)?;
        }
    }
    Ok(())
}
