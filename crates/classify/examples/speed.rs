//! Build time, memory and speed of each structure over the ClassBench sets in `../shared/data`, one core.
//!
//! `cargo run --release -p classify --example speed [SET…]`; `classes=512` for a set as in GSwitch §6, of 256 rules
//! a class; `NAME:4000` for the first 4,000 rules of a set. For RFC and TIC also memory by part, the forms of a
//! lookup, and what TIC's tables 4 and 9 show.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use classify::bloom::BloomBuilder;
use classify::cuts::CutsBuilder;
use classify::linear::LinearBuilder;
use classify::rfc::{Rfc, RfcBuilder};
use classify::tic::{self, Block, Tic, TicBuilder};
use classify::tuple::{Form, TupleBuilder};
use classify::{Classifier, Classify, Condition, Match, RuleSet};

/// Headers of a trace.
const HEADERS: usize = 100_000;

fn main() {
    let mut sets: Vec<String> = std::env::args().skip(1).collect();
    if sets.is_empty() {
        let names = ["acl1_1k", "fw1_1k", "ipc1_1k", "acl1_10k", "fw1_10k", "ipc1_10k"];
        sets = names.map(str::to_owned).to_vec();
    }
    println!(
        "{:10} {:8} {:>7} {:>8} {:>7} {:>9} {:>9} {:>8} {:>9} {:>9}",
        "set",
        "by",
        "rules",
        "entries",
        "classes",
        "build ms",
        "KB",
        "Mpps",
        "ns/packet",
        "updates/s"
    );
    for name in sets {
        let set = match name.strip_prefix("classes=") {
            Some(classes) => Some(synthetic(classes.parse().expect("a number of classes"))),
            None => rules(&name),
        };
        let Some(set) = set else { continue };
        let headers = trace(&set);
        let begun = Instant::now();
        let warnings = classify::check::check(&set, &vec![0; set.len()]).len();
        println!("{name:10} check: {warnings} warnings in {:.3} s", begun.elapsed().as_secs_f64());
        let mut text = Vec::new();
        classify::classbench::write_rules(&mut text, &set, &[]).expect("memory");
        let text = text.repeat(2_000_000 / set.len());
        let begun = Instant::now();
        let read = classify::classbench::parse_rules(&text).expect("what was written").set.len();
        println!("{name:10} read: {read} rules in {:.3} s", begun.elapsed().as_secs_f64());
        let mut expected = Vec::new();
        if set.len() < 20_000 {
            measure::<LinearBuilder>(&name, "linear", &set, &headers, &mut expected);
        }
        measure::<TupleBuilder>(&name, "tuple", &set, &headers, &mut expected);
        measure::<BloomBuilder>(&name, "bloom", &set, &headers, &mut expected);
        if set.schema().words() == 4 {
            measure::<CutsBuilder>(&name, "cuts", &set, &headers, &mut expected);
        }
        measure_trees(&name, &set, &headers, &mut expected);
    }
}

/// The static structures: a set may be too large for them.
fn measure_trees(name: &str, set: &RuleSet, headers: &[u32], expected: &mut Vec<Match>) {
    let mut totals = Vec::new();
    let mut print = |by: &str, memory: &classify::Memory| {
        totals.push(memory.total() as f64);
        let mut parts = memory.parts.clone();
        parts.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        let parts: Vec<String> =
            parts.iter().map(|(part, bytes)| format!("{part} {}", bytes.div_ceil(1024))).collect();
        println!("{name:10} {by:8} KB: {}", parts.join(", "));
    };
    match RfcBuilder::build(set) {
        Err(error) => println!("{name:10} rfc      {error}"),
        Ok(builder) => {
            measure::<RfcBuilder>(name, "rfc", set, headers, expected);
            print("rfc", &builder.memory());
            let view = Rfc::new(builder.blob()).expect("a tree");
            measure_forms(name, "rfc", headers, |form, headers, out| {
                view.classify_by(form, headers, out);
            });
        }
    }
    for (by, block) in [("tic", Block::Bytes64), ("tic 32", Block::Bytes32)] {
        match TicBuilder::with(set, tic::Options { block, ..tic::Options::default() }) {
            Err(error) => println!("{name:10} {by:8} {error}"),
            Ok(builder) => {
                if block == Block::default() {
                    measure::<TicBuilder>(name, by, set, headers, expected);
                }
                print(by, &builder.memory());
                let view = Tic::new(builder.blob()).expect("code");
                measure_forms(name, by, headers, |form, headers, out| {
                    view.classify_by(form, headers, out);
                });
                let (report, counts) = (builder.report(), tic::measure(builder.blob(), headers));
                let counts = counts.expect("code");
                println!(
                    "{name:10} {by:8} {report:?}, mean {:.2} words; a header: {:.2} ranges, {:.2} blocks",
                    report.mean_words(),
                    counts.ranges_per_header(),
                    counts.blocks_per_header(),
                );
            }
        }
    }
    if let [rfc, tic, ..] = totals[..] {
        println!("{name:10} tic      takes {:.1} % less than rfc", 100.0 * (1.0 - tic / rfc));
    }
}

/// Each form of a lookup, the best of five rounds, in turns.
fn measure_forms(
    name: &str,
    by: &str,
    headers: &[u32],
    classify: impl Fn(Form, &[u32], &mut [Match]),
) {
    let forms = [Form::Direct, Form::Switched, Form::Vectors];
    let mut best = [f64::MAX; 3];
    let mut found = vec![Match::NONE; headers.len() / 4];
    for _ in 0..5 {
        for (form, best) in forms.into_iter().zip(&mut best) {
            let begun = Instant::now();
            for (headers, out) in headers.chunks(1024).zip(found.chunks_mut(256)) {
                classify(form, headers, out);
            }
            *best = best.min(begun.elapsed().as_secs_f64());
        }
    }
    let [direct, switched, vectors] = best.map(|best| found.len() as f64 / best / 1e6);
    println!(
        "{name:10} {by:8} Mpps: direct {direct:.1}, switched {switched:.1}, vectors {vectors:.1}"
    );
}

fn rules(name: &str) -> Option<RuleSet> {
    let (name, most) = name.split_once(':').unwrap_or((name, "2000000"));
    let most = most.parse().expect("a number of rules");
    let folder =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/classbench/neurocuts");
    let bytes = std::fs::read(folder.join(name)).ok().or_else(|| {
        let packed = folder.join(format!("{name}.xz"));
        let output = Command::new("xz").arg("-dc").arg(packed).output().ok()?;
        output.status.success().then_some(output.stdout)
    })?;
    let set = classify::classbench::parse_rules(&bytes).ok()?.set;
    let mut first = RuleSet::new(set.schema().clone());
    set.iter().take(most).for_each(|rule| first.push(rule).expect("a rule of the set"));
    Some(first)
}

/// Rules over prefixes, exact ports and protocols, 256 to each mask; the worst rules may match best.
fn synthetic(classes: u64) -> RuleSet {
    let schema = classify::Schema::five_tuple();
    let mut set = RuleSet::new(schema.clone());
    for number in 0..classes * 256 {
        let random = |at: u64| chunk::hash::fmix64(number * 8 + at);
        let class = number % classes;
        let any = Condition::Range { low: 0, high: 65535 };
        let port = |at: u64, exact: bool| {
            let value = u128::from(random(at) as u16);
            if exact { Condition::Range { low: value, high: value } } else { any }
        };
        let prefix = |at: u64, len: u64| {
            let value = u128::from(random(at) as u32);
            Condition::Prefix { value, len: len as u8 }
        };
        let conditions = [
            prefix(0, 17 + class % 16),
            prefix(1, 17 + class / 16 % 16),
            port(2, class / 256 % 2 == 1),
            port(3, class / 512 % 2 == 1),
            Condition::Mask { value: u128::from(random(4) as u8), mask: 255 },
        ];
        set.append(&conditions).expect("a rule");
    }
    set
}

/// Headers at random places of random rules.
fn trace(set: &RuleSet) -> Vec<u32> {
    let mut state = 1_u64;
    let mut next = move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        chunk::hash::fmix64(state)
    };
    let schema = set.schema();
    let mut headers = Vec::new();
    for _ in 0..HEADERS {
        let rule = set.rule((next() % set.len() as u64) as usize);
        let values = (0..schema.fields().len()).map(|field| {
            let max = schema.fields()[field].max();
            let any = u128::from(next()) & max;
            match schema.condition(rule.words, field) {
                Condition::Prefix { value, len } => {
                    let bits = schema.fields()[field].bits;
                    value | if len == bits { 0 } else { any & (max >> len) }
                }
                Condition::Range { low, high } => low + any % (high - low + 1),
                Condition::Mask { value, mask } => value | any & !mask,
            }
        });
        let values: Vec<u128> = values.collect();
        headers.extend(schema.header(&values));
    }
    headers
}

fn measure<C: Classifier>(
    name: &str,
    by: &str,
    set: &RuleSet,
    headers: &[u32],
    expected: &mut Vec<Match>,
) {
    let begun = Instant::now();
    let mut classifier = C::build(set).expect("a set that can be built");
    let build = begun.elapsed();
    let mut tables = classifier.tables().expect("memory");
    let mut found = vec![Match::NONE; headers.len() / tables.words()];
    let mut best = f64::MAX;
    for _ in 0..5 {
        let begun = Instant::now();
        for (headers, out) in headers.chunks(256 * tables.words()).zip(found.chunks_mut(256)) {
            tables.classify(headers, out);
        }
        best = best.min(begun.elapsed().as_secs_f64());
    }
    if expected.is_empty() {
        expected.clone_from(&found);
    }
    assert!(found == *expected, "{name}: {by} differs");
    // Rules go and come back, one patch list each, applied to one copy.
    let begun = Instant::now();
    let mut updates = 0_u32;
    let rounds = if classifier.rebuilds() { 2 } else { 20_000 };
    for number in 0..rounds {
        let rule = set.rule(number * 7 % set.len());
        let mut patches = Vec::new();
        classifier.remove(rule.id, &mut patches);
        classifier.insert(rule, &mut patches).expect("a rule that was there");
        patches.iter().for_each(|patch| lookup::versions::Patchable::apply(&mut tables, patch));
        updates += 2;
    }
    let updates = f64::from(updates) / begun.elapsed().as_secs_f64();
    if let Some(report) = classify::bloom::measure(classifier.blob(), &headers[..4000]) {
        let (filters, measured) = (classifier.stats().filters.unwrap_or_default(), report.rate());
        let (formula, paper) = (filters.false_positives_formula, filters.false_positives_paper);
        println!(
            "{name:10} {by:8} false positives {measured:.1e}, formula {formula:.1e}, paper's {paper:.1e}"
        );
    }
    let (stats, memory) = (classifier.stats(), classifier.memory());
    let ns = best * 1e9 / found.len() as f64;
    println!(
        "{name:10} {by:8} {:7} {:8} {:7} {:9.1} {:9} {:8.2} {ns:9.1} {updates:9.0}",
        stats.rules,
        stats.entries,
        stats.classes,
        build.as_secs_f64() * 1e3,
        memory.total() / 1024,
        1e3 / ns,
    );
}
