//! `shadeline gen rules` and `shadeline gen trace`: sets of rules and headers for `shadeline classify`.

use std::sync::Arc;

use ::classify::classbench::{self, Trace};
use ::classify::generate::parameters::Parameters;
use ::classify::generate::structured;
use ::classify::generate::synthetic::{self, Synthetic};
use ::classify::generate::trace::{self, Copies, Point};
use ::classify::{RuleSet, Schema, columns};
use control::api::table::thousands;
use serde::Serialize;

use crate::classify::{problems, read_all, read_rules};
use crate::cli::{GenRulesArgs, GenTraceArgs, Spread, TraceSpread};
use crate::failure::Failure;
use crate::output;

#[derive(Serialize)]
struct RulesFigures {
    rules: usize,
    /// How many of the first rules are the narrowest of their families.
    #[serde(skip_serializing_if = "Option::is_none")]
    heads: Option<usize>,
}

#[derive(Serialize)]
struct TraceFigures {
    headers: usize,
    /// Headers that differ from the one before.
    bursts: usize,
}

/// Classes of a set unless one says otherwise.
const CLASSES: usize = 16;

/// Makes rules.
pub(crate) fn rules(args: &GenRulesArgs) -> Result<(), Failure> {
    let figures = match &args.parameters {
        Some(path) => {
            let parameters = Parameters::parse(&read_all(path)?).map_err(problems(path))?;
            let options = structured::Options {
                rules: args.rules,
                smoothing: args.smoothing,
                address_scope: args.address_scope,
                port_scope: args.port_scope,
                seed: args.seed,
            };
            let made =
                structured::rules(&parameters, &options).map_err(|e| Failure::file(path, e))?;
            output::write(&args.write, |out| classbench::write_rules(out, &made.set, &made.flags))?;
            RulesFigures { rules: made.set.len(), heads: None }
        }
        None => {
            let Synthetic { set, heads } = synthetic(args)?;
            output::write(&args.write, |out| match args.fields {
                12 => columns::write_rules(out, &set),
                _ => classbench::write_rules(out, &set, &[]),
            })?;
            RulesFigures { rules: set.len(), heads: (heads < set.len()).then_some(heads) }
        }
    };
    let mut text = format!("{} rules", thousands(figures.rules as u64));
    if let Some(heads) = figures.heads {
        text += &format!(
            "\n{heads} families: for headers that {} classes match, use `gen trace --first {heads}`",
            args.overlap
        );
    }
    output::figures(Some(&args.write), args.json, &figures, || text)
}

/// Options that contradict each other: which, what was given, what may be.
fn check(args: &GenRulesArgs) -> Result<usize, Failure> {
    let rules = args.rules;
    let classes = args.classes.unwrap_or(CLASSES.min(rules));
    let within = |option: &str, given: usize, most: usize, of: &str| match given <= most {
        true => Ok(()),
        false => Err(Failure::usage(format!(
            "--{option} {given}: expected 1 to {most}, the number of {of}"
        ))),
    };
    within("classes", classes, rules, "rules")?;
    within("overlap", args.overlap, classes, "classes")?;
    let Some(full) = args.full_classes else { return Ok(classes) };
    if args.distribution == Spread::Zipf {
        let what = "--full-classes requires --distribution full, not zipf";
        return Err(Failure::usage(what));
    }
    within("full-classes", full, classes, "classes")?;
    Ok(classes)
}

fn synthetic(args: &GenRulesArgs) -> Result<Synthetic, Failure> {
    let classes = check(args)?;
    let schema = if args.fields == 12 { Schema::twelve_fields() } else { Schema::five_tuple() };
    let options = synthetic::Options {
        schema: Arc::new(schema),
        rules: args.rules,
        classes,
        full_classes: args.full_classes,
        overlap: args.overlap,
        distribution: match args.distribution {
            Spread::Full => synthetic::Distribution::Full,
            Spread::Zipf => synthetic::Distribution::Zipf,
        },
        seed: args.seed,
    };
    synthetic::rules(&options).map_err(Failure::usage)
}

/// Makes a trace.
pub(crate) fn trace(args: &GenTraceArgs) -> Result<(), Failure> {
    let file = read_rules(&args.rules)?;
    let set: &RuleSet = &file.set;
    if set.is_empty() {
        return Err(Failure::file(&args.rules, "the file has no rules"));
    }
    if let Some(first) = args.first.filter(|first| *first > set.len()) {
        let (rules, file) = (set.len(), files::input::name(&args.rules));
        let what = format!("--first {first}: expected 1 to {rules}, the number of rules in {file}");
        return Err(Failure::usage(what));
    }
    let copies = match (args.distribution, args.locality) {
        (TraceSpread::Uniform, None) => Copies::Uniform,
        (TraceSpread::Uniform, Some(scale)) => {
            let what = "requires --distribution pareto, not uniform";
            return Err(Failure::usage(format!("--locality {scale} {what}")));
        }
        (TraceSpread::Pareto, scale) => Copies::Pareto { scale: scale.unwrap_or(1.0) },
    };
    let options = trace::Options {
        headers: args.count,
        copies,
        point: if args.inside { Point::Inside } else { Point::Corner },
        first: args.first,
        seed: args.seed,
    };
    let trace: Trace = trace::trace(set, &options);
    output::write(&args.write, |out| columns::write_trace(out, &trace, set.schema()))?;
    let headers: Vec<&[u32]> = trace.headers.chunks(set.schema().words()).collect();
    let changes = headers.windows(2).filter(|pair| pair[0] != pair[1]).count();
    let figures =
        TraceFigures { headers: trace.len(), bursts: changes + usize::from(!trace.is_empty()) };
    let (headers, bursts) = (thousands(figures.headers as u64), thousands(figures.bursts as u64));
    let text = format!("{headers} headers in {bursts} bursts");
    output::figures(Some(&args.write), args.json, &figures, || text)
}
