//! `shadeline classify --explain`: which rules match one header, and which structure finds them how.
//!
//! Text leaves out places that held nothing where there are many, and counts them by their reasons; JSON has all.

use ::classify::columns::{header_text, parse_header, rule_text};
use ::classify::{Classify, Match, Outcome, RuleSet, Step};
use control::api::table::thousands;
use serde::Serialize;

use super::Built;
use crate::cli::ClassifyArgs;
use crate::failure::Failure;
use crate::output::{self, say};

#[derive(Serialize)]
struct Explanation {
    header: String,
    /// All rules that match, the best first.
    rules: Vec<RuleFigures>,
    algorithms: Vec<Way>,
}

#[derive(Serialize)]
struct RuleFigures {
    index: usize,
    rule: String,
}

/// Places of a structure that held nothing, of one reason, which text shows one by one.
const MISSES_SHOWN: usize = 3;

/// The way through one structure.
#[derive(Serialize)]
struct Way {
    algorithm: &'static str,
    /// Of `auto`: the structure that it took.
    #[serde(skip_serializing_if = "Option::is_none")]
    chosen: Option<&'static str>,
    found: Option<u32>,
    /// Parts of the table that were read.
    accesses: Option<u32>,
    steps: Vec<StepFigures>,
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<&'static str>,
}

#[derive(Serialize)]
struct StepFigures {
    place: String,
    /// The best rule there.
    found: Option<u32>,
    /// Where the way goes on: a class, code.
    #[serde(skip_serializing_if = "Option::is_none")]
    leads_to: Option<String>,
    /// Why there is nothing for the header.
    #[serde(skip_serializing_if = "Option::is_none")]
    nothing: Option<&'static str>,
    accesses: u32,
}

impl StepFigures {
    fn of(Step { place, accesses, outcome }: Step) -> Self {
        let found = outcome.found().id();
        let (leads_to, nothing) = match outcome {
            Outcome::Found(_) => (None, None),
            Outcome::LeadsTo(next) => (Some(next), None),
            Outcome::Nothing(why) => (None, Some(why)),
        };
        Self { place, found, leads_to, nothing, accesses }
    }
}

pub(super) fn run(
    args: &ClassifyArgs,
    set: &RuleSet,
    built: &[Built],
    text: &str,
) -> Result<(), Failure> {
    let schema = set.schema();
    let header = parse_header(text, schema).map_err(|problem| {
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name.as_ref()).collect();
        Failure::usage(format!(
            "--explain `{text}`: {problem} (the fields are {})",
            names.join(" ")
        ))
    })?;
    // The plain way: every rule, in order.
    let matching = set.iter().enumerate().filter(|(_, rule)| schema.matches(rule.words, &header));
    let rules =
        matching.map(|(index, rule)| RuleFigures { index, rule: rule_text(schema, rule.words) });
    let rules: Vec<RuleFigures> = rules.collect();
    let mut explanation =
        Explanation { header: header_text(schema, &header), rules, algorithms: Vec::new() };
    for Built { algorithm, tables, chosen, .. } in built {
        let mut found = [Match::NONE];
        tables.classify(&header, &mut found);
        let explained = tables.explain(schema, &header);
        let accesses = explained.as_ref().map(|explained| explained.accesses());
        let end = explained.as_ref().map(|explained| explained.end);
        let steps = explained
            .into_iter()
            .flat_map(|explained| explained.steps)
            .map(StepFigures::of)
            .collect();
        let (algorithm, chosen, found) = (algorithm.name, *chosen, found[0].id());
        let way = Way { algorithm, chosen, found, accesses, steps, end };
        explanation.algorithms.push(way);
    }
    let best = explanation.rules.first().map(|rule| rule.index as u32);
    if let Some(way) = explanation.algorithms.iter().find(|way| way.found != best) {
        let (name, found) = (way.algorithm, way.found);
        return Err(Failure::other(format!(
            "{name} finds {found:?}, every rule in order {best:?}"
        )));
    }
    print(&explanation, args.json)
}

fn print(explanation: &Explanation, json: bool) -> Result<(), Failure> {
    if json {
        return output::json(explanation);
    }
    say!("header {}", explanation.header)?;
    if explanation.rules.is_empty() {
        say!("no rule matches")?;
    }
    for (at, RuleFigures { index, rule }) in explanation.rules.iter().enumerate() {
        say!("rule {index:>8}  {rule}{}", if at == 0 { "  (the best)" } else { "" })?;
    }
    explanation.algorithms.iter().try_for_each(print_way)
}

fn print_way(way: &Way) -> Result<(), Failure> {
    let Way { algorithm, chosen, found, accesses, steps, end } = way;
    let chosen = chosen.map_or(String::new(), |chosen| format!(" ({chosen})"));
    let found = found.map_or("none".to_owned(), |index| format!("rule {index}"));
    let accesses = accesses.map_or(String::new(), |accesses| format!(", {}", count(accesses)));
    say!("{algorithm}{chosen}: {found}{accesses}")?;
    // Reasons, how often, and accesses there.
    let mut misses: Vec<(&str, usize, u32)> = Vec::new();
    for why in steps.iter().filter_map(|step| step.nothing) {
        if misses.iter().all(|(other, ..)| *other != why) {
            let of_it = steps.iter().filter(|step| step.nothing == Some(why));
            misses.push((why, of_it.clone().count(), of_it.map(|step| step.accesses).sum()));
        }
    }
    misses.retain(|(_, places, _)| *places > MISSES_SHOWN);
    for step in steps {
        let says = match (step.found, &step.leads_to, step.nothing) {
            (_, Some(next), _) => next.clone(),
            (Some(index), ..) => format!("rule {index}"),
            (.., Some(why)) if misses.iter().any(|(other, ..)| *other == why) => continue,
            (.., why) => why.unwrap_or("none").to_owned(),
        };
        match step.accesses {
            0 => say!("  {}: {says}", step.place)?,
            accesses => say!("  {}: {says}, {}", step.place, count(accesses))?,
        }
    }
    for (why, places, accesses) in misses {
        say!("  {} more places: {why}, {}", thousands(places as u64), count(accesses))?;
    }
    if let Some(end) = end {
        say!("  end: {end}")?;
    }
    Ok(())
}

fn count(accesses: u32) -> String {
    if accesses == 1 { "1 access".to_owned() } else { format!("{accesses} accesses") }
}
