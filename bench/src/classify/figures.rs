//! Figures and tables of GSwitch and TIC, for `bench paper`.
//!
//! | figure | what the paper shows | rows |
//! | --- | --- | --- |
//! | `gswitch-6c` | GSwitch, Figure 6(c): rate over rules, 256 rules a class, tuples of 12 fields | linear, tuple, Bloom search |
//! | `gswitch-7a` | GSwitch, Figure 7(a): rate over classes, 32K rules | the same |
//! | `gswitch-hash` | GSwitch §4.2: hash functions compared | hash alone, tuple, Bloom search, tables: see `hashes.rs` |
//! | `tic-5` | TIC, Table 5: memory of sets of 2K and 4K rules | RFC, TIC, how much less TIC takes |
//! | `tic-7` | TIC, Table 7: rate over threads, sets of 2K rules | RFC, TIC |
//!
//! GSwitch measures a GPU: with `--backend` the same structures are on a device beside the CPU's. The paper's sets of
//! TIC were made by ClassBench and not published; here they are the first 2,000 and 4,000 rules of sets of 10,000 that
//! were made alike. In `tic-7` all threads classify the whole trace at once, and the rate is that of all together by
//! their mean time (the paper's average case).

use std::hint::black_box;
use std::path::Path;
use std::sync::Barrier;
use std::time::Instant;

use ::classify::algorithms::Ways;
use ::classify::generate::synthetic;
use ::classify::rfc::RfcBuilder;
use ::classify::tic::TicBuilder;
use ::classify::{Classifier, Match, RuleError, RuleSet, Schema, Tables};

use super::peer::Acl;
use super::sets::{self, Load};
use super::{build_those, devices, measure, pass};
use crate::{Args, PaperArgs, Report, Row};

/// Rules of a class (GSwitch §7.1).
const CLASS_RULES: usize = 256;

/// Rules of Figure 6(c), and of Figure 7(a) with its classes.
const RULES: [usize; 8] = [256, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 128 << 10];
const RULES_7A: usize = 32 << 10;
const CLASSES: [usize; 5] = [128, 256, 512, 1024, 2048];

/// The sets of the tables of TIC.
const SETS: [&str; 7] = ["acl1", "acl2", "acl3", "fw1", "fw2", "fw3", "ipc1"];

/// GSwitch, Figure 6(c).
pub(crate) fn by_rules(args: &Args, options: &PaperArgs) -> Result<Report, String> {
    let points = RULES.map(|rules| (rules, rules, rules.div_ceil(CLASS_RULES)));
    gswitch(args, "GSwitch, Figure 6(c)", "rules", &points, options)
}

/// GSwitch, Figure 7(a).
pub(crate) fn by_classes(args: &Args, options: &PaperArgs) -> Result<Report, String> {
    let points = CLASSES.map(|classes| (classes, RULES_7A, classes));
    gswitch(args, "GSwitch, Figure 7(a)", "classes", &points, options)
}

/// Rates over something. `points`: its value, rules, classes.
fn gswitch(
    args: &Args,
    title: &str,
    over: &str,
    points: &[(usize, usize, usize)],
    args_of: &PaperArgs,
) -> Result<Report, String> {
    let data = format!("{title}: rules of 12 fields, 288 bits; headers uniform over the rules");
    let mut report = Report::new("paper", data);
    for (at, rules, classes) in points.iter().copied() {
        let options = synthetic::Options {
            schema: Schema::twelve_fields().into(),
            rules,
            classes,
            full_classes: None,
            overlap: 1,
            distribution: synthetic::Distribution::Full,
            seed: 1,
        };
        let set = synthetic::rules(&options).map_err(|e| e.to_string())?.set;
        let name = format!("{rules} rules, {classes} classes");
        let shown = |by: &str| ["linear", "tuple", "bloom"].contains(&by);
        let built = build_those(&name, &set, shown, Ways::default(), &mut report);
        let load = sets::uniform(&set, args_of.headers);
        let figures = measure(args, &name, &built, &load, &mut Acl::none(), &mut report)?;
        for (built, rates) in built.iter().zip(figures.ours) {
            let by = built.algorithm.name;
            let row = Row::new(format!("{name}: {by}"), "Mpps", rates);
            report.rows.push(row.curve("CPU, one core", by, Some(at)).over(over));
        }
        let Some(backend) = args_of.backend else { continue };
        for (by, rates) in devices::end_to_end(args, backend, &built, &load)? {
            let row = Row::new(format!("{name}: {by} on the device"), "Mpps", rates);
            report.rows.push(row.curve("device, end to end", by, Some(at)).over(over));
        }
    }
    Ok(report)
}

/// The first rules of a set of 10,000.
fn first(folder: &Path, name: &str, count: usize) -> Result<RuleSet, String> {
    let whole = sets::rules(&folder.join("neurocuts"), &format!("{name}_10k"))?;
    let mut set = RuleSet::new(whole.schema().clone());
    for rule in whole.iter().take(count) {
        set.push(rule).map_err(|e| e.to_string())?;
    }
    Ok(set)
}

/// TIC, Table 5.
pub(crate) fn memory(folder: &Path) -> Result<Report, String> {
    let data = "TIC, Table 5: the first 2,000 and 4,000 rules of ClassBench sets".to_owned();
    let mut report = Report::new("paper", data);
    for count in [2000, 4000] {
        for name in SETS {
            let set = match first(folder, name, count) {
                Ok(set) => set,
                Err(why) => {
                    report.rows.push(Row::new(name, "MB", Vec::new()).note(why));
                    continue;
                }
            };
            let name = format!("{name}, {} rules", set.len());
            let bytes = |by: &str, built: Result<usize, RuleError>, report: &mut Report| {
                let row = |rounds| Row::new(format!("{name}: {by}"), "MB", rounds);
                match &built {
                    Ok(bytes) => report.rows.push(row(vec![*bytes as f64 / 1e6])),
                    Err(why) => report.rows.push(row(Vec::new()).note(why.to_string())),
                }
                built.ok()
            };
            let rfc = RfcBuilder::build(&set).map(|built| built.memory().total());
            let tic = TicBuilder::build(&set).map(|built| built.memory().total());
            let rfc = bytes("RFC", rfc, &mut report);
            let tic = bytes("TIC", tic, &mut report);
            let (Some(rfc), Some(tic)) = (rfc, tic) else { continue };
            let less = 1.0 - tic as f64 / rfc as f64;
            let row = Row::new(format!("{name}: TIC takes less by"), "of RFC", vec![less]);
            let aim = if count == 4000 && name.starts_with("fw") { 0.9 } else { 0.0 };
            report.rows.push(row.at_least(aim));
        }
    }
    Ok(report)
}

/// TIC, Table 7.
pub(crate) fn threads(args: &Args, folder: &Path, headers: usize) -> Result<Report, String> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from).min(8);
    let data = "TIC, Table 7: the first 2,000 rules of ClassBench sets; all threads at once";
    let mut report = Report::new("paper", data.to_owned());
    for name in SETS {
        let set = match first(folder, name, 2000) {
            Ok(set) => set,
            Err(why) => {
                report.rows.push(Row::new(name, "Mpps", Vec::new()).note(why));
                continue;
            }
        };
        let load = sets::uniform(&set, headers);
        let mut built: Vec<(&str, Tables)> = Vec::new();
        let mut add = |by, tables: Result<Tables, RuleError>| match tables {
            Ok(tables) => built.push((by, tables)),
            Err(why) => {
                let row = Row::new(format!("{name}: {by}"), "Mpps", Vec::new());
                report.rows.push(row.note(why.to_string()));
            }
        };
        add("RFC", RfcBuilder::build(&set).and_then(|built| built.tables()));
        add("TIC", TicBuilder::build(&set).and_then(|built| built.tables()));
        for threads in 1..=cores {
            let mut rates = vec![Vec::new(); built.len()];
            for _ in 0..args.rounds.max(1) {
                for ((_, tables), rates) in built.iter().zip(&mut rates) {
                    rates.push(together(tables, &load, threads));
                }
            }
            for ((by, _), rates) in built.iter().zip(rates) {
                let row = Row::new(format!("{name}: {by}, {threads} threads"), "Mpps", rates);
                report.rows.push(row.curve(name, by, Some(threads)).over("threads"));
            }
        }
    }
    Ok(report)
}

/// Passes of each thread over the trace.
const PASSES: usize = 4;

/// The rate of so many threads together by their mean time, Mpps.
fn together(tables: &Tables, load: &Load, threads: usize) -> f64 {
    let count = load.headers.len() / ::classify::Classify::words(tables);
    let start = Barrier::new(threads);
    let seconds: f64 = std::thread::scope(|scope| {
        let run = || {
            let mut out = vec![Match::NONE; count];
            pass(tables, &load.headers, &mut out);
            start.wait();
            let begin = Instant::now();
            for _ in 0..PASSES {
                pass(tables, &load.headers, black_box(&mut out));
            }
            begin.elapsed().as_secs_f64()
        };
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        all.into_iter().map(|thread| thread.join().unwrap_or(f64::INFINITY)).sum()
    });
    let mean = seconds / threads as f64;
    (count * PASSES * threads) as f64 / mean / 1e6
}
