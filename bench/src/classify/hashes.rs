//! `bench paper gswitch-hash`: universal hashing and Murmur3 beside each other (GSwitch §4.2).
//!
//! The paper compares hash functions on a GPU and takes universal ones, the quickest. Here the same are beside each
//! other: alone, in tuple and Bloom search, on the device with `--backend`, and in how well class tables take entries:
//! random ones, and addresses one after the other, which a weak hash would put into few slots.

use std::hint::black_box;

use ::classify::algorithms::Ways;
use ::classify::generate::synthetic;
use ::classify::tuple::{Filling, HashKind, fill, hash_headers};
use ::classify::{RuleSet, Schema};

use super::peer::Acl;
use super::sets::{self, Load};
use super::{ROUND_SECONDS, build_those, devices, measure};
use crate::forms::{ratio, thread_seconds};
use crate::{Args, PaperArgs, Report, Row};

const KINDS: [(HashKind, &str); 2] =
    [(HashKind::Universal, "universal"), (HashKind::Murmur3, "Murmur3")];

/// Rules and classes that are searched: as in Figure 7(a), full classes of 256.
const RULES: usize = 32 << 10;
const CLASSES: usize = 128;

/// Entries of a table that is filled, and seeds that are tried.
const ENTRIES: u32 = 3 << 12;
const SEEDS: u64 = 16;

pub(crate) fn run(args: &Args, options: &PaperArgs) -> Result<Report, String> {
    let data = format!(
        "GSwitch §4.2: two hashes of masked tuples; {RULES} rules in {CLASSES} classes; tables of {ENTRIES} slots"
    );
    let mut report = Report::new("paper", data);
    of_width::<4>(args, options, Schema::five_tuple(), &mut report)?;
    of_width::<9>(args, options, Schema::twelve_fields(), &mut report)?;
    Ok(report)
}

/// All rows of headers of `W` words.
fn of_width<const W: usize>(
    args: &Args,
    options: &PaperArgs,
    schema: Schema,
    report: &mut Report,
) -> Result<(), String> {
    let name = format!("{} fields, {} bytes", schema.fields().len(), 4 * W);
    let plan = synthetic::Options {
        schema: schema.into(),
        rules: RULES,
        classes: CLASSES,
        full_classes: None,
        overlap: 1,
        distribution: synthetic::Distribution::Full,
        seed: 1,
    };
    let set = synthetic::rules(&plan).map_err(|e| e.to_string())?.set;
    let load = sets::uniform(&set, options.headers);
    alone::<W>(args, &name, &load, report);
    searches(args, options, &name, &set, &load, report)?;
    tables::<W>(&name, report)
}

/// Both in turns; a ratio of them behind.
fn rows(name: &str, unit: &str, rates: [Vec<f64>; 2], report: &mut Report) {
    let over = ratio(format!("{name}, universal over Murmur3"), &rates[0], &rates[1]);
    for ((_, kind), rates) in KINDS.iter().zip(rates) {
        report.rows.push(Row::new(format!("{name}, {kind}"), unit, rates));
    }
    report.rows.push(over);
}

/// Headers hashed and nothing else.
fn alone<const W: usize>(args: &Args, name: &str, load: &Load, report: &mut Report) {
    let (headers, _) = load.headers.as_chunks::<W>();
    let mut out = vec![0; headers.len()];
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..args.rounds.max(1) {
        for ((kind, _), rates) in KINDS.iter().zip(&mut rates) {
            let (begin, mut passes, mut seconds) = (thread_seconds(), 0, 0.0);
            while seconds < ROUND_SECONDS {
                hash_headers(*kind, 1, black_box(headers), black_box(&mut out));
                passes += 1;
                seconds = thread_seconds() - begin;
            }
            rates.push((headers.len() * passes) as f64 / seconds / 1e6);
        }
    }
    rows(&format!("{name}: hash alone"), "Mhashes/s", rates, report);
}

/// Tuple and Bloom search by each.
fn searches(
    args: &Args,
    options: &PaperArgs,
    name: &str,
    set: &RuleSet,
    load: &Load,
    report: &mut Report,
) -> Result<(), String> {
    for by in ["tuple", "bloom"] {
        let mut built = Vec::new();
        for (hash, _) in KINDS {
            let ways = Ways { hash, ..Ways::default() };
            built.extend(build_those(name, set, |name| name == by, ways, report));
        }
        let prefix = format!("{name}: {by}");
        let figures = measure(args, &prefix, &built, load, &mut Acl::none(), report)?;
        if let Ok(rates) = figures.ours.try_into() {
            rows(&prefix, "Mpps", rates, report);
        }
        let Some(backend) = options.backend else { continue };
        let on_device = devices::end_to_end(args, backend, &built, load)?;
        let rates: Vec<Vec<f64>> = on_device.into_iter().map(|(_, rates)| rates).collect();
        if let Ok(rates) = rates.try_into() {
            rows(&format!("{prefix} on the device"), "Mpps", rates, report);
        }
    }
    Ok(())
}

/// How tables take entries, a figure for each seed.
fn tables<const W: usize>(name: &str, report: &mut Report) -> Result<(), String> {
    let value = |at: u32, of: fn(u32) -> u32| -> [u32; W] {
        std::array::from_fn(|word| if word == 0 { of(at) } else { 0 })
    };
    type Keys = (&'static str, fn(u32) -> u32);
    let kinds: [Keys; 2] =
        [("random addresses", chunk::hash::fmix32), ("addresses in a row", |at| 0x0a00_0000 + at)];
    let note = format!("{SEEDS} seeds");
    for (keys, of) in kinds {
        let values: Vec<[u32; W]> = (0..ENTRIES).map(|at| value(at, of)).collect();
        for (kind, by) in KINDS {
            let filled = (0..SEEDS).map(|seed| fill(kind, seed, &values));
            let filled = filled.collect::<Result<Vec<Filling>, _>>().map_err(|e| e.to_string())?;
            let name = format!("{name}, {keys}, {by}");
            let row = |what: &str, unit: &str, figure: fn(&Filling) -> f64| {
                let name = format!("{name}: {what}");
                Row::new(name, unit, filled.iter().map(figure).collect()).note(note.clone())
            };
            let equal = row("pairs of one hash", "pairs", |filling| filling.equal_hashes as f64);
            let at_once = row("placed at once", "of entries", Filling::at_once_part);
            let load = row("in use at the first refusal", "of slots", Filling::load);
            report.rows.extend([equal, at_once, load]);
        }
    }
    Ok(())
}
