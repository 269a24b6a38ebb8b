//! `shadeline ids -r IN -S RULES -l OUTDIR`: what rules of Snort and Suricata find in captures.
//!
//! ```text
//!  captures ─▶ monitor: the pipeline `flow` `ids` `monitor` ─▶ eve.json, fast.log, stats.log; rules with alerts
//! ```
//!
//! It is the pipeline of a monitor with `[ids]` over captures: what a live program does with the same rules, it does.

use std::any::Any;
use std::path::Path;
use std::sync::Arc;

use apps::ids::counters::{Counters, RuleId, counted, get};
use apps::ids::explain::{self, Explained, Step};
use apps::ids::notes::UnsetBit;
use apps::ids::rules::{self, FURTHER, Loaded, Refusal};
use control::api::table::{Row, table, thousands};
use control::config::{Config, IdsAction};
use controlplane::Interfaces;
use packet::checksum::Checksums;
use packet::tunnel::Kinds;
use serde::Serialize;

use crate::cli::IdsArgs;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::offline::{self, Carry, Merged};
use crate::output::{self, note, print};
use crate::{check, log, pipelines, wiring};

/// The only port.
const CONFIG: &str = "mode = \"monitor\"\n[port.capture]\ninterface = \"capture\"\n[flow]\nmidstream = false\n[ids]\n";

pub(crate) fn run(args: &IdsArgs) -> Result<(), Failure> {
    if args.list_keywords {
        return list_keywords(args.json);
    }
    let config = config(args)?;
    if args.test {
        return test(args, &config);
    }
    log::start_command(config.system.log, config.system.log_format);
    let (loaded, explained) = match args.explain {
        None => (rules::load(&config, None).map_err(Failure::other)?, None),
        Some(sid) => {
            let (loaded, explained) = explained(&config, sid)?;
            (loaded, Some(explained))
        }
    };
    check_variables(args, &loaded)?;
    if let Some(folder) = &config.ids.output {
        output::folder(folder)?;
        for name in ["eve.json", "fast.log", "stats.log"] {
            remove_old(&folder.join(name))?;
        }
    }
    let (loaded, counters) = (Arc::new(loaded), Arc::<Counters>::default());
    let interfaces = Interfaces::of(&config);
    let interrupt = Interrupt::listen()?;
    let marks = vec![wiring::mark_of(args.checksums().unwrap_or(Checksums::Verify))];
    let opened = Merged::open(vec![(0, args.read.clone())], marks, &interrupt, |_, queue| queue);
    interrupt.check()?;
    let attachments: [&(dyn Any + Sync); 2] = [&loaded, &counters];
    let carried = Carry::without_outputs(&config, &interfaces, opened?, &attachments);
    let (report, elapsed) = offline::carry(carried)?;
    if let Some(explained) = &explained {
        explanation(args, explained, &loaded, &counters)?;
    } else {
        let figures = Figures::of(&loaded, &counters, report.rx_packets);
        let rows = figures.rules.as_slice();
        output::figures(None, args.json, &figures, || {
            format!(
                "{}{}\n{} in {}; {:.3} s\n",
                table(rows),
                loaded.summary(),
                counted(figures.alerts, "alert"),
                counted(report.rx_packets, "packet"),
                elapsed.as_secs_f64()
            )
        })?;
        if !loaded.problems.is_empty() {
            let refused = loaded.total - loaded.loaded;
            let are = if refused == 1 { "is" } else { "are" };
            note!(
                "warning: {} {are} not evaluated: `shadeline ids -T` lists them",
                counted(refused, "rule")
            );
        }
    }
    let wrong = report.wrong_checksums();
    if wrong > 0 {
        note!(
            "warning: {} packets with a wrong checksum were not followed; over a capture taken on the sender, use -k none",
            thousands(wrong)
        );
    }
    for error in &report.errors {
        note!("error: {error}");
    }
    if !report.errors.is_empty() {
        return Err(Failure::reported());
    }
    interrupt.check()
}

/// `--list-keywords`.
fn list_keywords(as_json: bool) -> Result<(), Failure> {
    let of = |(name, is_evaluated): (&'static str, bool)| {
        let is_later = is_evaluated.then(|| rules::is_later(name));
        Keyword { name, is_evaluated, is_later }
    };
    let all: Vec<_> = rules::keywords().into_iter().map(of).collect();
    output::figures(None, as_json, &all, || table(&all))
}

/// An option of rules.
#[derive(Debug, Serialize)]
struct Keyword {
    name: &'static str,
    #[serde(rename = "evaluated")]
    is_evaluated: bool,
    /// Suricata 7 does not have it.
    #[serde(rename = "after_suricata_7", skip_serializing_if = "Option::is_none")]
    is_later: Option<bool>,
}

impl Row for Keyword {
    const COLUMNS: &'static [&'static str] = &["keyword", "evaluated", "in Suricata 7"];

    fn cells(&self) -> Vec<String> {
        let yes = |is_so: bool| if is_so { "yes" } else { "no" }.to_owned();
        vec![
            self.name.to_owned(),
            yes(self.is_evaluated),
            self.is_later.map_or_else(String::new, |own| yes(!own)),
        ]
    }
}

/// Removes a file of an earlier run, if there is one.
fn remove_old(path: &Path) -> Result<(), Failure> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Failure::output(path, &error))
        }
        _ => Ok(()),
    }
}

/// A monitor of one port, with the settings of a file and of the command line.
fn config(args: &IdsArgs) -> Result<Config, Failure> {
    let (mut config, _) = control::config::parse(CONFIG, &pipelines::known())
        .map_err(|d| Failure::other(control::config::render(&d, "", CONFIG, false)))?;
    match &args.config {
        Some(file) => {
            let own = check::load(file)?;
            (config.flow, config.ids) = (own.flow, own.ids);
        }
        // Suricata looks into tunnels, too, and keeps VLANs apart.
        None => (config.flow.tunnels, config.flow.by_vlan) = (Kinds::all(), true),
    }
    // The pipeline of this command has no stage for a device.
    (config.flow.device, config.ids.device) = (false, false);
    config.flow.midstream |= args.midstream;
    let ids = &mut config.ids;
    ids.rules.extend(args.rules.iter().cloned());
    ids.vars.extend(args.set.iter().cloned());
    ids.reputation.extend(args.reputation.iter().cloned());
    for (own, given) in [
        (&mut ids.classification, &args.classification),
        (&mut ids.thresholds, &args.thresholds),
        (&mut ids.reputation_categories, &args.reputation_categories),
    ] {
        if given.is_some() {
            own.clone_from(given);
        }
    }
    if args.output.is_some() || args.explain.is_some() {
        ids.output.clone_from(&args.output);
    }
    if args.inline {
        ids.action = IdsAction::Inline;
    }
    if let Some(workers) = args.workers {
        (config.system.workers, config.system.has_workers) = (workers.into(), true);
    }
    Ok(config)
}

/// `-T`.
fn test(args: &IdsArgs, config: &Config) -> Result<(), Failure> {
    let loaded = rules::load(config, None).map_err(Failure::other)?;
    check_variables(args, &loaded)?;
    let problems = loaded.problems.iter().map(Problem::from).collect();
    let tested = Tested {
        rules: loaded.total,
        loaded: loaded.loaded,
        disabled: loaded.disabled,
        share: loaded.share(),
        problems,
        problems_left_out: loaded.problems_dropped,
        warnings: loaded.of_files.iter().chain(&loaded.warnings).cloned().collect(),
        unset_bits: loaded.unset_bits.clone(),
        dear: loaded.dear(),
    };
    output::figures(None, args.json, &tested, || {
        let mut text = String::new();
        for warning in loaded.of_files.iter().chain(&loaded.warnings) {
            output::line!(&mut text, "warning: {warning}");
        }
        for own in &loaded.unused {
            output::line!(&mut text, "warning: ids.vars: {own}");
        }
        for own in loaded.unset_bits.iter().take(BITS_MAX) {
            output::line!(&mut text, "warning: {own}");
        }
        if loaded.unset_bits.len() > BITS_MAX {
            let more = thousands((loaded.unset_bits.len() - BITS_MAX) as u64);
            output::line!(&mut text, "{more} more flowbits are never set; --json lists all");
        }
        for problem in &loaded.problems {
            output::line!(&mut text, "{problem}");
        }
        if loaded.problems_dropped > 0 {
            output::line!(&mut text, "{} more", thousands(loaded.problems_dropped));
        }
        for own in tested.dear.iter().take(DEAR_MAX) {
            let rules::Dear { file, line, sid, why, .. } = own;
            output::line!(&mut text, "dear: {file}:{line}: rule {sid}: {why}");
        }
        if tested.dear.len() > DEAR_MAX {
            let more = thousands((tested.dear.len() - DEAR_MAX) as u64);
            output::line!(&mut text, "{more} more are dear; --json lists all");
        }
        output::line!(&mut text, "{}", loaded.summary());
        text
    })?;
    let is_right = loaded.loaded == loaded.total && loaded.warnings.is_empty();
    if is_right { Ok(()) } else { Err(Failure::reported()) }
}

/// A variable of the command line that nothing names is a mistake; one of a configuration may be for other rules.
fn check_variables(args: &IdsArgs, loaded: &Loaded) -> Result<(), Failure> {
    let is_given = |name: &str| args.set.iter().any(|(own, _)| own == name);
    match loaded.unused.iter().find(|own| is_given(&own.name)) {
        None => Ok(()),
        Some(own) => Err(Failure::other(format!("--set {}: {own}", own.name))),
    }
}

/// So many flowbits that no rule sets are printed as text.
const BITS_MAX: usize = 20;

/// So many dear rules are printed as text.
const DEAR_MAX: usize = 20;

/// A rule that is not evaluated.
#[derive(Debug, Serialize)]
struct Problem {
    file: String,
    line: u64,
    column: u64,
    reason: String,
}

impl From<&Refusal> for Problem {
    fn from(own: &Refusal) -> Self {
        let Refusal { file, line, column, reason, .. } = own.clone();
        Self { file, line, column, reason }
    }
}

/// What `-T --json` prints.
#[derive(Debug, Serialize)]
struct Tested {
    rules: u64,
    loaded: u64,
    disabled: u64,
    /// 0 to 1.
    share: f64,
    problems: Vec<Problem>,
    problems_left_out: u64,
    warnings: Vec<String>,
    /// Flowbits that rules test and none sets.
    unset_bits: Vec<UnsetBit>,
    /// Rules that are evaluated again and again, the dearest first.
    dear: Vec<rules::Dear>,
}

/// A rule with alerts.
#[derive(Debug, Serialize)]
struct RuleRow {
    gid: u32,
    sid: u32,
    alerts: u64,
    action: &'static str,
    msg: String,
}

impl Row for RuleRow {
    const COLUMNS: &'static [&'static str] = &[">gid", ">sid", ">alerts", "action", "msg"];
    const EMPTY: &'static str = "no alerts";

    fn cells(&self) -> Vec<String> {
        let [gid, sid] = [self.gid, self.sid].map(|number| number.to_string());
        vec![gid, sid, thousands(self.alerts), self.action.to_owned(), self.msg.clone()]
    }
}

/// What a run prints.
#[derive(Debug, Serialize)]
struct Figures {
    packets: u64,
    flows: u64,
    alerts: u64,
    /// Packets that rules dropped, with `--inline`.
    dropped: u64,
    files: u64,
    rules_loaded: u64,
    rules_refused: u64,
    rules: Vec<RuleRow>,
}

impl Figures {
    fn of(loaded: &Loaded, counters: &Counters, packets: u64) -> Self {
        let rows = counters.by_rule().into_iter().map(|((gid, sid), own)| RuleRow {
            gid,
            sid,
            alerts: own.alerts,
            action: own.action,
            msg: own.msg,
        });
        let mut rules: Vec<RuleRow> = rows.collect();
        rules.sort_by_key(|row| (std::cmp::Reverse(row.alerts), row.gid, row.sid));
        Self {
            packets,
            flows: get(&counters.flows),
            alerts: get(&counters.alerts),
            dropped: get(&counters.drops),
            files: get(&counters.files),
            rules_loaded: loaded.loaded,
            rules_refused: loaded.total - loaded.loaded,
            rules,
        }
    }
}

/// The rules of the files, and beside them those that explain one.
fn explained(config: &Config, sid: u32) -> Result<(Loaded, Explanation), Failure> {
    let mut made = Err(String::new());
    let mut hiding = Vec::new();
    let loaded = rules::load_with(config, None, |set| {
        let (steps, text) = match explain::find(set, &config.ids.rules, sid) {
            Ok(own) => {
                let (steps, text) = explain::steps(&own.rule);
                (Ok((own, steps)), text)
            }
            Err(error) => (Err(error), String::new()),
        };
        made = steps;
        hiding = explain::hiding(set, sid, config.ids.action == IdsAction::Inline);
        text.into_bytes()
    });
    let loaded = loaded.map_err(Failure::other)?;
    let (explained, steps) = made.map_err(Failure::other)?;
    Ok((loaded, Explanation { explained, steps, hiding }))
}

/// What explains a rule.
struct Explanation {
    explained: Explained,
    steps: Vec<Step>,
    /// Other rules, whose packets and flows raise no alerts of it, and what they do with them.
    hiding: Vec<(RuleId, &'static str)>,
}

/// A condition and how often it held.
#[derive(Debug, Serialize)]
struct StepRow {
    matches: u64,
    /// Why it could not be tried by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
    rule: String,
}

impl Row for StepRow {
    const COLUMNS: &'static [&'static str] = &[">matches", "condition"];
    const EMPTY: &'static str = "";

    fn cells(&self) -> Vec<String> {
        match &self.refused {
            None => vec![thousands(self.matches), self.rule.clone()],
            Some(why) => vec!["-".to_owned(), format!("{}: {why}", self.rule)],
        }
    }
}

/// `--explain`.
fn explanation(
    args: &IdsArgs,
    Explanation { explained, steps, hiding }: &Explanation,
    loaded: &Loaded,
    counters: &Counters,
) -> Result<(), Failure> {
    let matches = counters.by_rule();
    let refusal = |number: usize| {
        let line = number as u64 + 1;
        loaded.problems.iter().find(|own| own.file == FURTHER && own.line == line)
    };
    // The number of a made rule says nothing.
    let why = |step: &Step, own: &Refusal| match own.reason.split_once(": ") {
        Some((first, why)) if first == format!("rule {} is not supported", step.id.1) => {
            why.to_owned()
        }
        _ => own.reason.clone(),
    };
    let rows = steps.iter().enumerate().map(|(number, step)| StepRow {
        matches: matches.get(&step.id).map_or(0, |own| own.alerts),
        refused: refusal(number).map(|own| why(step, own)),
        rule: step.text.clone(),
    });
    let Explained { rule, file, line, is_disabled } = explained;
    let unsupported = rule.unsupported.iter().map(|own| StepRow {
        matches: 0,
        refused: Some("not supported".to_owned()),
        rule: match &own.value {
            Some(value) => format!("{}:{value};", own.keyword),
            None => format!("{};", own.keyword),
        },
    });
    let rows: Vec<StepRow> = rows.chain(unsupported).collect();
    let (gid, sid) = (rule.gid, rule.sid);
    let alerts = matches.get(&(gid, sid)).map_or(0, |own| own.alerts);
    let refused = loaded.problems.iter().find(|own| own.file == *file && own.line == *line);
    // Why there are none whatever it matches.
    let silent = match refused {
        _ if *is_disabled => {
            Some(format!("it is commented out ({file}:{line}), so it is not evaluated"))
        }
        Some(own) => Some(format!("it is refused, so it is not evaluated: {own}")),
        None if rule.noalert => Some("it has `noalert`, so its matches raise no alerts".to_owned()),
        None if explained.passes() => {
            Some("it passes what it matches, so its matches raise no alerts".to_owned())
        }
        None => None,
    };
    let has_matched = |own: &&(RuleId, _)| matches.contains_key(&own.0);
    let hides = hiding.iter().find(has_matched).filter(|_| silent.is_none());
    let hidden = hides.map(|((_, by), does)| {
        format!("rule {by} matches as well and {does} what it matches, which raises no alert then")
    });
    let silent = silent.or(hidden);
    if args.json {
        if let Some(why) = silent {
            note!("rule {sid}: {why}");
        }
        return output::json(&rows);
    }
    let why = silent.map(|why| format!("; {why}")).unwrap_or_default();
    // What it matches is counted, as other rules do not hide it here.
    let count = match hides.is_none() && !explained.passes() {
        true => counted(alerts, "alert"),
        false => format!("{} {}", thousands(alerts), if alerts == 1 { "match" } else { "matches" }),
    };
    print(format_args!("{}rule {sid}: {count}{why}\n", table(&rows)))
}
