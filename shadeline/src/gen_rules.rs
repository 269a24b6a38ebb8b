//! `shadeline gen rules` and `shadeline gen trace`: sets of rules and headers for `shadeline classify`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
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
            write(&args.write, |out| classbench::write_rules(out, &made.set, &made.flags))?;
            RulesFigures { rules: made.set.len(), heads: None }
        }
        None => {
            let Synthetic { set, heads } = synthetic(args)?;
            write(&args.write, |out| match args.fields {
                12 => columns::write_rules(out, &set),
                _ => classbench::write_rules(out, &set, &[]),
            })?;
            RulesFigures { rules: set.len(), heads: (heads < set.len()).then_some(heads) }
        }
    };
    if args.json {
        println!("{}", serde_json::to_string_pretty(&figures).map_err(Failure::other)?);
        return Ok(());
    }
    println!("{} rules", thousands(figures.rules as u64));
    if let Some(heads) = figures.heads {
        println!(
            "{heads} families: draw headers that {} classes match by `gen trace --first {heads}`",
            args.overlap
        );
    }
    Ok(())
}

fn synthetic(args: &GenRulesArgs) -> Result<Synthetic, Failure> {
    let schema = if args.fields == 12 { Schema::twelve_fields() } else { Schema::five_tuple() };
    let options = synthetic::Options {
        schema: Arc::new(schema),
        rules: args.rules,
        classes: args.classes,
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
        return Err(Failure::file(&args.rules, "there is no rule to draw headers from"));
    }
    let options = trace::Options {
        headers: args.count,
        copies: match args.distribution {
            TraceSpread::Uniform => Copies::Uniform,
            TraceSpread::Pareto => Copies::Pareto { scale: args.locality },
        },
        point: if args.inside { Point::Inside } else { Point::Corner },
        first: args.first,
        seed: args.seed,
    };
    let trace: Trace = trace::trace(set, &options);
    write(&args.write, |out| columns::write_trace(out, &trace, set.schema()))?;
    let headers: Vec<&[u32]> = trace.headers.chunks(set.schema().words()).collect();
    let changes = headers.windows(2).filter(|pair| pair[0] != pair[1]).count();
    let figures =
        TraceFigures { headers: trace.len(), bursts: changes + usize::from(!trace.is_empty()) };
    if args.json {
        println!("{}", serde_json::to_string_pretty(&figures).map_err(Failure::other)?);
        return Ok(());
    }
    let TraceFigures { headers, bursts } = figures;
    println!("{} headers in {} bursts", thousands(headers as u64), thousands(bursts as u64));
    Ok(())
}

fn write(
    path: &Path,
    content: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>,
) -> Result<(), Failure> {
    let written = File::create(path).map(BufWriter::new).and_then(|mut out| {
        content(&mut out)?;
        out.flush()
    });
    written.map_err(|error| Failure::file(path, error))
}
