//! `shadeline classify --explain`: which rules match one header, and which structure finds them how.

use ::classify::columns::{header_text, parse_header, rule_text};
use ::classify::{Classify, Match, RuleSet};
use serde::Serialize;

use super::Built;
use crate::cli::ClassifyArgs;
use crate::failure::Failure;

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

/// The way through one structure.
#[derive(Serialize)]
struct Way {
    algorithm: &'static str,
    found: Option<u32>,
    /// Parts of the table that were read; `None` where the structure does not tell.
    accesses: Option<u32>,
    steps: Vec<StepFigures>,
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<&'static str>,
}

#[derive(Serialize)]
struct StepFigures {
    place: String,
    found: Option<u32>,
    accesses: u32,
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
    for Built { algorithm, tables } in built {
        let mut found = [Match::NONE];
        tables.classify(&header, &mut found);
        let told = tables.explain(schema, &header);
        let accesses = told.as_ref().map(|told| told.accesses());
        let end = told.as_ref().map(|told| told.end);
        let steps = told.into_iter().flat_map(|told| told.steps).map(|step| StepFigures {
            place: step.place,
            found: step.found.id(),
            accesses: step.accesses,
        });
        let (algorithm, found) = (algorithm.name, found[0].id());
        let way = Way { algorithm, found, accesses, steps: steps.collect(), end };
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
        println!("{}", serde_json::to_string_pretty(explanation).map_err(Failure::other)?);
        return Ok(());
    }
    println!("header {}", explanation.header);
    if explanation.rules.is_empty() {
        println!("no rule matches");
    }
    for (at, RuleFigures { index, rule }) in explanation.rules.iter().enumerate() {
        println!("rule {index:>8}  {rule}{}", if at == 0 { "  (the best)" } else { "" });
    }
    let name =
        |found: Option<u32>| found.map_or("none".to_owned(), |index| format!("rule {index}"));
    for way in &explanation.algorithms {
        let accesses = way.accesses.map_or(String::new(), |n| format!(", {n} accesses"));
        println!("{}: {}{accesses}", way.algorithm, name(way.found));
        for step in &way.steps {
            println!("  {}: {}, {} accesses", step.place, name(step.found), step.accesses);
        }
        if let Some(end) = way.end {
            println!("  end: {end}");
        }
    }
    Ok(())
}
