//! What structures look like inside, and what the headers of a trace cost them: the tables that their papers have.
//!
//! | structure | figures | source |
//! | --- | --- | --- |
//! | tuple, Bloom | classes, the longest chain, entries that ranges made; classes, tables and entries a header | GSwitch §4.2 |
//! | Bloom | k, m, false positives as measured, by our formula and by the paper's | GSwitch §4.3, Table 2 |
//! | TIC | sizes of instructions; tree and code; rules a list; ranges and blocks a header | TIC Tables 4, 6 and 9 |
//!
//! `auto` has those of the structure that it took.

use ::classify::classbench::Trace;
use ::classify::tic::{Evaluations, Report};
use ::classify::tuple::{SearchReport, TupleSpace};
use ::classify::{FilterStats, Stats, Tables, bloom, tic, tuple};
use control::api::table::thousands;
use serde::Serialize;

/// Lookups in classes that a measurement may take; of a longer trace every so manieth header is taken.
const LOOKUPS_MAX: usize = 1 << 22;

/// What a structure looks like inside; a part of the JSON of each.
#[derive(Serialize, Default)]
pub(super) struct Inside {
    #[serde(skip_serializing_if = "Option::is_none")]
    tuple: Option<TupleFigures>,
    #[serde(skip_serializing_if = "Option::is_none")]
    filters: Option<FilterFigures>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<CodeFigures>,
}

#[derive(Serialize)]
struct TupleFigures {
    classes: usize,
    /// Entries of the largest class.
    class_max: usize,
    /// Entries that rules made when their ranges became prefixes, and those of one rule at most.
    entries: usize,
    entries_per_rule_max: usize,
    /// Rules that share one entry at most.
    chain_max: usize,
    search: Option<SearchFigures>,
}

/// By the headers of the trace.
#[derive(Serialize)]
struct SearchFigures {
    headers: u64,
    classes_per_header: f64,
    /// Of one header at most.
    classes_max: u64,
    tables_per_header: f64,
    entries_per_header: f64,
}

#[derive(Serialize)]
struct FilterFigures {
    /// k.
    functions: u32,
    /// m of the smallest filter and of the largest, and all together.
    bits_min: u64,
    bits_max: u64,
    bits: u64,
    /// By the formula for filters whose bits are in one word, as ours do; mean over the classes.
    false_positives_formula: f64,
    /// By the paper's formula, for bits anywhere in the filter.
    false_positives_paper: f64,
    measured: Option<MeasuredFilters>,
}

/// By the headers of the trace, each asked of every filter.
#[derive(Serialize)]
struct MeasuredFilters {
    headers: u64,
    /// Pairs of a header and a class that holds nothing for it.
    lookups: u64,
    false_positives: f64,
}

#[derive(Serialize)]
struct CodeFigures {
    /// Table 4: range expressions of 4, 8 and 12 bytes, the part of each, and their mean size.
    instructions: [u64; 3],
    instruction_parts: [f64; 3],
    mean_words: f64,
    /// Table 6.
    tree_bytes: u64,
    code_bytes: u64,
    block_bytes: u64,
    blocks: u64,
    padding_bytes: u64,
    /// Lists of candidates, their rules, and the part of them that one block holds.
    lists: u64,
    rules_per_list: f64,
    rules_per_list_max: u64,
    one_block_part: f64,
    /// What the paper does not have: numbers of rules beyond 65,535, and protocols under a mask.
    base_instructions: u64,
    guard_instructions: u64,
    evaluation: Option<EvaluationFigures>,
}

/// Table 9, by the headers of the trace.
#[derive(Serialize)]
struct EvaluationFigures {
    headers: u64,
    ranges_per_header: f64,
    ranges_max: u64,
    blocks_per_header: f64,
    blocks_max: u64,
}

impl Inside {
    /// Of a structure, and of the headers where there are some.
    pub(super) fn of(stats: &Stats, tables: &Tables, trace: Option<&Trace>) -> Self {
        let is_tuple = TupleSpace::new(tables.blob()).is_some();
        let headers = trace.filter(|trace| !trace.is_empty());
        let headers = headers.map(|trace| sample(trace, if is_tuple { stats.classes } else { 1 }));
        let headers = headers.as_deref();
        Self {
            tuple: is_tuple.then(|| TupleFigures::of(stats, tables, headers)),
            filters: stats.filters.map(|filters| FilterFigures::of(&filters, tables, headers)),
            code: stats.code.map(|report| CodeFigures::of(&report, tables, headers)),
        }
    }

    /// Lines for people.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(tuple) = &self.tuple {
            tuple.lines(&mut lines);
        }
        if let Some(filters) = &self.filters {
            filters.lines(&mut lines);
        }
        if let Some(code) = &self.code {
            code.lines(&mut lines);
        }
        lines
    }
}

/// Headers of a trace, evenly, so few that asking so many classes about all of them takes a moment.
fn sample(trace: &Trace, classes: usize) -> Vec<u32> {
    let words = trace.headers.len() / trace.len();
    let step = trace.len().div_ceil((LOOKUPS_MAX / classes.max(1)).max(1));
    trace.headers.chunks(words).step_by(step).flatten().copied().collect()
}

impl TupleFigures {
    fn of(stats: &Stats, tables: &Tables, headers: Option<&[u32]>) -> Self {
        Self {
            classes: stats.classes,
            class_max: stats.class_max,
            entries: stats.entries,
            entries_per_rule_max: stats.expansion_max,
            chain_max: stats.chain_max,
            search: headers.and_then(|h| tuple::measure(tables.blob(), h)).map(SearchFigures::of),
        }
    }

    fn lines(&self, lines: &mut Vec<String>) {
        let Self { classes, class_max, entries, entries_per_rule_max, chain_max, search } = self;
        let entries = thousands(*entries as u64);
        lines.push(format!(
            "{classes} classes, the largest of {class_max} entries; {entries} entries, of one rule up to \
             {entries_per_rule_max}; the longest chain: {chain_max} rules of one entry"
        ));
        let Some(search) = search else { return };
        lines.push(format!(
            "a header: {:.2} classes (at most {}), {:.2} tables, {:.2} entries",
            search.classes_per_header,
            search.classes_max,
            search.tables_per_header,
            search.entries_per_header
        ));
    }
}

impl SearchFigures {
    fn of(report: SearchReport) -> Self {
        Self {
            headers: report.headers,
            classes_per_header: report.classes_per_header(),
            classes_max: report.classes_max,
            tables_per_header: report.tables_per_header(),
            entries_per_header: report.entries_per_header(),
        }
    }
}

impl FilterFigures {
    fn of(filters: &FilterStats, tables: &Tables, headers: Option<&[u32]>) -> Self {
        let words = ::classify::Classify::words(tables);
        let measured = headers.and_then(|headers| {
            let report = bloom::measure(tables.blob(), headers)?;
            let (headers, lookups) = ((headers.len() / words) as u64, report.misses);
            Some(MeasuredFilters { headers, lookups, false_positives: report.rate() })
        });
        Self {
            functions: filters.functions,
            bits_min: filters.bits_min,
            bits_max: filters.bits_max,
            bits: filters.bits,
            false_positives_formula: filters.false_positives_formula,
            false_positives_paper: filters.false_positives_paper,
            measured,
        }
    }

    fn lines(&self, lines: &mut Vec<String>) {
        let [least, most, all] = [self.bits_min, self.bits_max, self.bits].map(thousands);
        let m = if least == most { least } else { format!("{least} to {most}") };
        let functions = self.functions;
        lines.push(format!("filters: k = {functions} functions, m = {m} bits each, {all} in all"));
        let (ours, paper) = (self.false_positives_formula, self.false_positives_paper);
        let formulas =
            format!("by the formula {}, by the paper's {}", percent(ours), percent(paper));
        lines.push(match &self.measured {
            None => format!("false positives: {formulas}"),
            Some(measured) => {
                let (rate, lookups) = (measured.false_positives, thousands(measured.lookups));
                format!("false positives: {} of {lookups} lookups, {formulas}", percent(rate))
            }
        });
    }
}

impl CodeFigures {
    fn of(report: &Report, tables: &Tables, headers: Option<&[u32]>) -> Self {
        Self {
            instructions: report.instructions,
            instruction_parts: report.parts(),
            mean_words: report.mean_words(),
            tree_bytes: report.tree_bytes,
            code_bytes: report.code_bytes,
            block_bytes: report.block_bytes,
            blocks: report.blocks,
            padding_bytes: 4 * report.padding_words,
            lists: report.lists,
            rules_per_list: report.rules_per_list(),
            rules_per_list_max: report.rules_max,
            one_block_part: report.in_one_block as f64 / report.lists.max(1) as f64,
            base_instructions: report.bases,
            guard_instructions: report.guards,
            evaluation: headers
                .and_then(|headers| tic::measure(tables.blob(), headers))
                .map(EvaluationFigures::of),
        }
    }

    fn lines(&self, lines: &mut Vec<String>) {
        let [four, eight, twelve] = self.instruction_parts.map(percent);
        lines.push(format!(
            "instructions of 4 bytes {four}, of 8 {eight}, of 12 {twelve}; {:.2} words on average (Table 4)",
            self.mean_words
        ));
        let bytes = [self.tree_bytes, self.code_bytes, self.tree_bytes + self.code_bytes];
        let [tree, code, both] = bytes.map(|bytes| format!("{:.2} MB", bytes as f64 / 1e6));
        lines.push(format!("reduction tree {tree}, code {code}, both {both} (Table 6)"));
        lines.push(format!(
            "{} lists of {:.2} rules (at most {}), {} of them in one block of {} bytes",
            thousands(self.lists),
            self.rules_per_list,
            self.rules_per_list_max,
            percent(self.one_block_part),
            self.block_bytes
        ));
        if let Some(evaluation) = &self.evaluation {
            lines.push(format!(
                "a header: {:.2} ranges (at most {}), {:.2} blocks (at most {}) (Table 9)",
                evaluation.ranges_per_header,
                evaluation.ranges_max,
                evaluation.blocks_per_header,
                evaluation.blocks_max
            ));
        }
        lines.push(format!(
            "beyond the paper: {} BASE (rules from the 65,537th on), {} GUARD (protocols under a mask)",
            thousands(self.base_instructions),
            thousands(self.guard_instructions)
        ));
    }
}

impl EvaluationFigures {
    fn of(counts: Evaluations) -> Self {
        Self {
            headers: counts.headers,
            ranges_per_header: counts.ranges_per_header(),
            ranges_max: counts.ranges_max,
            blocks_per_header: counts.blocks_per_header(),
            blocks_max: counts.blocks_max,
        }
    }
}

/// `12.3 %`, with as many places as a small part needs.
fn percent(part: f64) -> String {
    match part {
        0.0 => "0 %".to_owned(),
        0.01.. => format!("{:.1} %", part * 100.0),
        _ => format!("{:.3} %", part * 100.0),
    }
}
