//! `shadeline classify`: rule files and traces, with the structures of the data path.

mod device;
mod explain;
mod statistics;

use std::path::Path;
use std::time::{Duration, Instant};

use ::classify::algorithms::{self, ALGORITHMS, Algorithm, Ways};
use ::classify::check::{self, Warning};
use ::classify::classbench::{Problems, RulesFile, Trace};
use ::classify::columns::{parse_rules, parse_trace};
use ::classify::{Classifier, Classify, Match, RuleSet, Stats, Tables};
use control::api::table::thousands;
use control::config::{LogFormat, LogLevel};
use serde::Serialize;

use crate::cli::ClassifyArgs;
use crate::failure::Failure;
use crate::lpm::peak_memory_bytes;
use crate::output::{self, line, note};

/// Headers classified in one call: a burst.
const BATCH: usize = 256;

/// A trace is passed over until this time is over: a short one says little about the speed.
const MEASURED: Duration = Duration::from_millis(100);

/// Warnings that are shown.
const SHOWN: usize = 10;

/// The name that stands for all structures.
pub(crate) const ALL: &str = "all";

#[derive(Serialize)]
struct Figures {
    read_s: f64,
    rules: usize,
    headers: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    matched: Option<usize>,
    /// The device that classified too; none where there was the CPU alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<String>,
    algorithms: Vec<AlgorithmFigures>,
    #[serde(skip_serializing_if = "Option::is_none")]
    check: Option<CheckFigures>,
    peak_memory_bytes: u64,
}

#[derive(Serialize)]
struct AlgorithmFigures {
    algorithm: &'static str,
    /// Of `auto`: the structure that it took.
    #[serde(skip_serializing_if = "Option::is_none")]
    chosen: Option<&'static str>,
    /// Why the structure was not built; then there are no figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(flatten)]
    built: BuiltFigures,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_mpps: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ns_per_packet: Option<f64>,
    #[serde(flatten)]
    inside: statistics::Inside,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<device::DeviceFigures>,
}

/// `null` each where the structure was not built.
#[derive(Serialize, Default)]
struct BuiltFigures {
    build_s: Option<f64>,
    memory_bytes: Option<usize>,
    memory_parts: Option<Vec<PartFigures>>,
    /// More than rules where ranges became prefixes.
    entries: Option<usize>,
    classes: Option<usize>,
    class_max: Option<usize>,
}

#[derive(Serialize)]
struct PartFigures {
    part: &'static str,
    bytes: usize,
}

#[derive(Serialize)]
struct CheckFigures {
    shadowed: usize,
    redundant: usize,
    check_s: f64,
}

/// A structure that was built.
struct Built {
    algorithm: &'static Algorithm,
    tables: Tables,
    stats: Stats,
    /// Of `auto`: the structure that it took.
    chosen: Option<&'static str>,
}

pub(crate) fn run(args: &ClassifyArgs) -> Result<(), Failure> {
    let device = device::choose(args.backend)?;
    if device.is_some() {
        crate::log::start_command(LogLevel::Warn, LogFormat::Text);
    }
    let begin = Instant::now();
    let file = read_rules(&args.rules)?;
    let set = &file.set;
    let trace = args.trace.as_deref().map(|path| read_trace(path, set)).transpose()?;
    let read_s = begin.elapsed().as_secs_f64();
    let check = args.check.then(|| tell_warnings(&args.rules, set));

    let (built, mut figures) = build(args, set)?;
    if let Some(text) = &args.explain {
        return explain::run(args, set, &built, text);
    }
    for one in &built {
        let inside = statistics::Inside::of(&one.stats, &one.tables, trace.as_ref());
        if let Some(figures) = figures.iter_mut().find(|f| f.algorithm == one.algorithm.name) {
            figures.inside = inside;
        }
    }
    let mut matched = None;
    if let Some(trace) = &trace {
        let answers = classify_all(&built, trace, device.as_ref(), &mut figures)?;
        matched = Some(answers.iter().filter(|found| found.is_some()).count());
        if let Some(path) = &args.matches {
            write_matches(path, &answers)?;
        }
    }
    let figures = Figures {
        read_s,
        rules: set.len(),
        headers: trace.as_ref().map_or(0, Trace::len),
        matched,
        device: device.map(|device| device.name().to_owned()),
        algorithms: figures,
        check,
        peak_memory_bytes: peak_memory_bytes(),
    };
    output::figures(args.matches.as_deref(), args.json, &figures, || text(&figures))
}

/// The whole of a file, decompressed.
pub(crate) fn read_all(path: &Path) -> Result<Vec<u8>, Failure> {
    files::input::read(path).map_err(|error| Failure::file(path, error))
}

/// What is wrong in a file, with its name before each line.
pub(crate) fn problems(path: &Path) -> impl Fn(Problems) -> Failure {
    let path = Some(path.to_owned());
    move |problems| Failure::other(Problems { path: path.clone(), ..problems })
}

/// Reads a rule file of either form, and warns of bits that do not count.
pub(crate) fn read_rules(path: &Path) -> Result<RulesFile, Failure> {
    let file = parse_rules(&read_all(path)?).map_err(problems(path))?;
    if file.host_bits > 0 {
        let rules = thousands(file.host_bits);
        note!(
            "warning: {}: {rules} rules have bits set beyond a prefix's length",
            files::input::name(path)
        );
    }
    Ok(file)
}

fn read_trace(path: &Path, set: &RuleSet) -> Result<Trace, Failure> {
    parse_trace(&read_all(path)?, set.schema()).map_err(problems(path))
}

/// Builds what was asked for; of all structures those that take the set.
fn build(
    args: &ClassifyArgs,
    set: &RuleSet,
) -> Result<(Vec<Built>, Vec<AlgorithmFigures>), Failure> {
    let one = algorithms::find(&args.algorithm).map(std::slice::from_ref);
    let ways = Ways { hash: args.hash.kind(), block: args.tic_block };
    let (mut built, mut figures) = (Vec::new(), Vec::new());
    for algorithm in one.unwrap_or(ALGORITHMS) {
        let begin = Instant::now();
        let classifier = algorithm.build_with(set, ways);
        let build_s = begin.elapsed().as_secs_f64();
        let ready = classifier.and_then(|classifier| Ok((classifier.tables()?, classifier)));
        match ready {
            Ok((tables, classifier)) => {
                figures.push(figures_of(algorithm, &*classifier, build_s));
                let (stats, chosen) = (classifier.stats(), classifier.chosen());
                built.push(Built { algorithm, tables, stats, chosen });
            }
            Err(error) if one.is_some() => {
                let what =
                    format!("{}: {}: {error}", files::input::name(&args.rules), algorithm.name);
                return Err(Failure::other(what));
            }
            Err(error) => figures.push(refused(algorithm, error.to_string())),
        }
    }
    Ok((built, figures))
}

fn figures_of(
    algorithm: &Algorithm,
    classifier: &dyn Classifier,
    build_s: f64,
) -> AlgorithmFigures {
    let (memory, stats) = (classifier.memory(), classifier.stats());
    let parts = memory.parts.iter().map(|(part, bytes)| PartFigures { part, bytes: *bytes });
    AlgorithmFigures {
        algorithm: algorithm.name,
        chosen: classifier.chosen(),
        error: None,
        built: BuiltFigures {
            build_s: Some(build_s),
            memory_bytes: Some(memory.total()),
            memory_parts: Some(parts.collect()),
            entries: Some(stats.entries),
            classes: Some(stats.classes),
            class_max: Some(stats.class_max),
        },
        rate_mpps: None,
        ns_per_packet: None,
        inside: statistics::Inside::default(),
        device: None,
    }
}

fn refused(algorithm: &Algorithm, why: String) -> AlgorithmFigures {
    AlgorithmFigures {
        algorithm: algorithm.name,
        chosen: None,
        error: Some(why),
        built: BuiltFigures::default(),
        rate_mpps: None,
        ns_per_packet: None,
        inside: statistics::Inside::default(),
        device: None,
    }
}

/// Classifies the trace by every structure, on the CPU and on the device; all must answer alike.
fn classify_all(
    built: &[Built],
    trace: &Trace,
    device: Option<&device::Chosen>,
    figures: &mut [AlgorithmFigures],
) -> Result<Vec<Match>, Failure> {
    let mut answers: Option<(Vec<Match>, String)> = None;
    for one in built {
        let Built { algorithm, tables, .. } = one;
        let mut out = vec![Match::NONE; trace.len()];
        let ns = pass_over(tables, &trace.headers, &mut out);
        compare(&mut answers, &out, algorithm.name.to_owned())?;
        let on_device = match device {
            None => None,
            Some(device) => {
                let (is_only, headers) = (built.len() == 1, &trace.headers);
                let figures = device.classify(one, is_only, headers, &mut out)?;
                compare(&mut answers, &out, format!("{} on {}", algorithm.name, device.name()))?;
                Some(figures)
            }
        };
        if let Some(figures) = figures.iter_mut().find(|f| f.algorithm == algorithm.name) {
            figures.ns_per_packet = ns;
            figures.rate_mpps = ns.map(|ns| 1e3 / ns);
            figures.device = on_device;
        }
    }
    Ok(answers.map(|(answers, _)| answers).unwrap_or_default())
}

/// Holds answers against the first ones, which it becomes if there are none.
fn compare(
    answers: &mut Option<(Vec<Match>, String)>,
    out: &[Match],
    by: String,
) -> Result<(), Failure> {
    let Some((first, first_by)) = answers else {
        *answers = Some((out.to_vec(), by));
        return Ok(());
    };
    match first.iter().zip(out).position(|(first, other)| first != other) {
        None => Ok(()),
        Some(at) => {
            let (header, first, other) = (at + 1, first[at], out[at]);
            let what = format!("header {header}: {first_by} finds {first:?}, {by} finds {other:?}");
            Err(Failure::other(what))
        }
    }
}

/// Nanoseconds a header, over passes that take [`MEASURED`] together, behind one to warm up.
fn pass_over(tables: &Tables, headers: &[u32], out: &mut [Match]) -> Option<f64> {
    if out.is_empty() {
        return None;
    }
    let words = tables.words();
    let pass = |out: &mut [Match]| {
        for (headers, out) in headers.chunks(BATCH * words).zip(out.chunks_mut(BATCH)) {
            tables.classify(headers, out);
        }
    };
    pass(out);
    let (begin, mut passes) = (Instant::now(), 0_u32);
    while passes == 0 || begin.elapsed() < MEASURED {
        pass(out);
        passes += 1;
    }
    Some(begin.elapsed().as_secs_f64() * 1e9 / f64::from(passes) / out.len() as f64)
}

/// A rule's id is its index in the file.
fn write_matches(path: &Path, answers: &[Match]) -> Result<(), Failure> {
    output::write(path, |file| {
        answers.iter().try_for_each(|found| match found.id() {
            Some(index) => writeln!(file, "{index}"),
            None => writeln!(file, "-1"),
        })
    })
}

fn tell_warnings(path: &Path, set: &RuleSet) -> CheckFigures {
    // A rule file names no actions: all rules are taken to do something of their own, and those that the
    // structures may leave out are the shadowed ones.
    let begin = Instant::now();
    let warnings = check::check(set, &[]);
    let check_s = begin.elapsed().as_secs_f64();
    for warning in warnings.iter().take(SHOWN) {
        let text = match warning {
            Warning::Shadowed { rule, by, same: true } => {
                format!("rule {rule} never applies: rule {by} is identical")
            }
            Warning::Shadowed { rule, by, .. } => {
                format!("rule {rule} never applies: the better rule {by} covers it")
            }
            Warning::Redundant { rule, by } => {
                format!("rule {rule} is redundant: rule {by} does the same")
            }
        };
        note!("warning: {}: {text}", files::input::name(path));
    }
    if warnings.len() > SHOWN {
        note!("warning: {}: and {} more", files::input::name(path), warnings.len() - SHOWN);
    }
    let is_shadowed = |warning: &&Warning| matches!(warning, Warning::Shadowed { .. });
    let shadowed = warnings.iter().filter(is_shadowed).count();
    CheckFigures { shadowed, redundant: warnings.len() - shadowed, check_s }
}

fn text(figures: &Figures) -> String {
    let mut out = String::new();
    let matched = match figures.matched {
        Some(matched) => format!(", {} of them matched", thousands(matched as u64)),
        None => String::new(),
    };
    line!(
        &mut out,
        "{} rules, {} headers{matched}; read in {:.3} s",
        thousands(figures.rules as u64),
        thousands(figures.headers as u64),
        figures.read_s
    );
    if let Some(check) = &figures.check {
        let CheckFigures { shadowed, redundant, check_s } = check;
        line!(
            &mut out,
            "{shadowed} rules shadowed, {redundant} redundant; checked in {check_s:.3} s"
        );
    }
    line!(
        &mut out,
        "{:<10} {:>10} {:>14} {:>10} {:>8} {:>8} {:>10} {:>10}  memory by part",
        "",
        "build s",
        "memory bytes",
        "entries",
        "classes",
        "largest",
        "Mpps",
        "ns/packet"
    );
    figures.algorithms.iter().for_each(|own| add_algorithm(&mut out, own));
    add_inside(&mut out, figures);
    add_device(&mut out, figures);
    line!(&mut out, "peak memory       {} bytes", thousands(figures.peak_memory_bytes));
    out
}

/// A line of the table.
fn add_algorithm(out: &mut String, figures: &AlgorithmFigures) {
    let AlgorithmFigures { algorithm, chosen, error, built, .. } = figures;
    if let Some(why) = error {
        line!(out, "{algorithm:<10} refused: {why}");
        return;
    }
    let rate = |value: Option<f64>| value.map_or("-".to_owned(), |v| format!("{v:.2}"));
    let count = |value: Option<usize>| thousands(value.unwrap_or(0) as u64);
    let parts = built.memory_parts.iter().flatten().filter(|part| part.bytes > 0);
    let parts = parts.map(|p| format!("{} {}", p.part, thousands(p.bytes as u64)));
    let parts = parts.collect::<Vec<_>>().join(", ");
    let parts = chosen.map_or(parts.clone(), |chosen| format!("{chosen}: {parts}"));
    line!(
        out,
        "{:<10} {:>10.4} {:>14} {:>10} {:>8} {:>8} {:>10} {:>10}  {}",
        algorithm,
        built.build_s.unwrap_or(0.0),
        count(built.memory_bytes),
        count(built.entries),
        count(built.classes),
        count(built.class_max),
        rate(figures.rate_mpps),
        rate(figures.ns_per_packet),
        parts
    );
}

/// What each structure looks like inside, where there is something to say.
fn add_inside(out: &mut String, figures: &Figures) {
    for f in &figures.algorithms {
        for (at, line) in f.inside.lines().iter().enumerate() {
            line!(out, "{:<10} {line}", if at == 0 { f.algorithm } else { "" });
        }
    }
}

fn add_device(out: &mut String, figures: &Figures) {
    let Some(name) = &figures.device else { return };
    line!(out, "on {name}:");
    line!(out, "{:<10} {:>14} {:>14} {:>10}", "", "kernel Mpps", "Mpps", "ns/packet");
    for f in &figures.algorithms {
        let Some(device) = &f.device else { continue };
        if device.kernel.is_none() {
            line!(out, "{:<10} has no device form", f.algorithm);
            continue;
        }
        let figure = |value: Option<f64>| value.map_or("-".to_owned(), |v| format!("{v:.2}"));
        line!(
            out,
            "{:<10} {:>14} {:>14} {:>10}",
            f.algorithm,
            figure(device.kernel_rate_mpps),
            figure(device.rate_mpps),
            figure(device.ns_per_packet)
        );
    }
}
