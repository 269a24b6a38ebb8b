//! `bench ids`: rules over real captures, from memory to memory on one core, beside the plain design.
//!
//! ```text
//!  frames in memory ─▶ decode, 256 at a time ─▶ Tracker ─▶ Inspector of [ids]: sessions, Detector ─▶ alerts, counted
//!                                                            └ the same rules in groups by port, each with the full
//!                                                              table of an Aho-Corasick automaton, walked byte by byte
//! ```
//!
//! What is measured is the follower that `shadeline ids` and the stage run, without files of events. Every pass begins with
//! no flows. Passes alternate over all cases, and each case must give the same alerts by rule.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, RwLock};

use apps::flow::follow::{Follower, Kept, Listener, Place};
use apps::ids::counters::{Counters, RuleId};
use apps::ids::inspect::{Parts, Places};
use apps::ids::outputs::Outputs;
use control::config::Ids;
use detect::{Options, Ruleset, Search};
use signatures::{Loader, RuleSet, Variables};
use stream::tcp::{End, Event, Want};
use stream::tracker::{Fragments, Identity, Input, Module, OfFlow, Reject};
use stream::{FlowRecord, Side};

use crate::forms::{ratio, thread_seconds};
use crate::streams::follow::{Counter, Worker, options};
use crate::streams::frames::Frames;
use crate::{Args, Report, Row, encrypted};

/// Captures of more frames are a workload of their own: else they would be nearly all of it.
const MANY: usize = 50_000;
/// Between the captures of a workload, so that no flow goes on in the next one.
const GAP_NS: u64 = 86_400_000_000_000;
/// A measurement takes so many seconds at least, in as many passes as that needs.
const SECONDS: f64 = 0.2;
/// What the issue of the work asks for.
const AIM: f64 = 2.0;

/// The rules and the captures.
#[derive(Debug, Clone, clap::Args)]
pub struct IdsArgs {
    /// Folder with rules (`.rules`; gzip, xz and zstd are read)
    #[arg(long, value_name = "FOLDER", default_value = "../shared/data/ids/etopen-2017")]
    pub rules: PathBuf,
    /// Folders with captures of Ethernet
    #[arg(long, value_name = "FOLDER", value_delimiter = ',', default_values = DEFAULT_CAPTURES)]
    pub captures: Vec<PathBuf>,
    /// Without the rules that are switched off in the files
    #[arg(long)]
    pub active_only: bool,
}

const DEFAULT_CAPTURES: [&str; 3] =
    ["../shared/data/pcap-mixed", "../shared/data/pcap-l7", "../shared/data/pcap-tcp"];

pub(crate) fn run(args: &Args, options: &IdsArgs) -> Result<Report, String> {
    let (set, variables) = read_rules(&options.rules, options.active_only)?;
    let compile = |search| {
        let options = Options { search, ..Options::default() };
        Arc::new(Ruleset::compile(&set, &variables, &options).0)
    };
    let ours = compile(Search::Shared);
    let cases = [
        Case { name: "tracking alone", rules: None },
        Case { name: "without rules", rules: Some(Arc::default()) },
        Case { name: "plain design", rules: Some(compile(Search::Grouped)) },
        Case { name: "shadeline", rules: Some(ours.clone()) },
    ];
    let folders: Vec<String> =
        options.captures.iter().map(|folder| folder.display().to_string()).collect();
    let data = format!(
        "{} rules of {}, HOME_NET and EXTERNAL_NET any; captures of {}; one core",
        ours.len(),
        options.rules.display(),
        folders.join(", ")
    );
    let mut report = Report::new("ids", data);
    let loads = loads(&options.captures)?;
    if loads.is_empty() {
        report.rows.push(Row::new("captures", "Gbit/s", Vec::new()).note("no capture of Ethernet"));
    }
    for load in &loads {
        measure((args.rounds, SECONDS), load, &cases, &mut report)?;
    }
    encrypted::run(args.rounds, &ours, &mut report)?;
    Ok(report)
}

/// All rules of a folder; those that are switched off too, unless `active_only`.
pub(crate) fn read_rules(folder: &Path, active_only: bool) -> Result<(RuleSet, Variables), String> {
    let any = [("HOME_NET", "any"), ("EXTERNAL_NET", "any")];
    let variables = Variables::with_defaults(any, []).map_err(|e| e.to_string())?;
    let mut loader = Loader::new(variables.clone());
    let mut files = files_below(folder)?;
    files.retain(|path| path.to_string_lossy().contains(".rules"));
    if files.is_empty() {
        return Err(format!("{}: no rules", folder.display()));
    }
    for path in files {
        let failed = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
        let bytes = files::input::read(&path).map_err(|e| failed(&e))?;
        let text = String::from_utf8_lossy(&bytes);
        let lines = text.lines().map(|line| match line.strip_prefix('#') {
            Some(rule) if !active_only && rule.trim_start().starts_with("alert ") => {
                rule.trim_start()
            }
            _ => line,
        });
        let text = lines.collect::<Vec<_>>().join("\n");
        loader.read(&path.display().to_string(), text.as_bytes()).map_err(|e| failed(&e))?;
    }
    Ok((loader.finish(), variables))
}

/// The files below a folder, sorted.
fn files_below(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    Ok(files)
}

/// Frames that are followed in one pass.
struct Load {
    name: String,
    frames: Frames,
}

/// One of each folder, and one of each capture with many frames.
fn loads(folders: &[PathBuf]) -> Result<Vec<Load>, String> {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (mut loads, mut alone) = (Vec::new(), Vec::new());
    for folder in folders.iter().filter(|folder| folder.is_dir()) {
        let mut captures = Vec::new();
        for path in files_below(folder)? {
            // Other files, and captures of other links.
            match Frames::read(&path) {
                Ok(own) if own.len() > MANY => alone.push(Load { name: name(&path), frames: own }),
                Ok(own) if own.len() > 0 => captures.push(own),
                _ => {}
            }
        }
        if !captures.is_empty() {
            let frames = Frames::joined(&captures, GAP_NS);
            loads.push(Load { name: name(folder), frames });
        }
    }
    loads.append(&mut alone);
    Ok(loads)
}

/// What inspects.
struct Case {
    name: &'static str,
    /// None: flows are tracked, and nothing else.
    rules: Option<Arc<Ruleset>>,
}

type Alerts = BTreeMap<RuleId, u64>;

impl Case {
    /// The seconds of a pass over all frames, and alerts by rule.
    fn pass(&self, frames: &Frames) -> Result<(f64, Alerts), String> {
        let own = options(1 << 14, 16 << 20);
        let Some(rules) = &self.rules else {
            let mut worker = Worker::with(own, false, Counter::default())?;
            let seconds = timed(&mut worker, frames, |_| ());
            return Ok((seconds, Alerts::new()));
        };
        let counters = Arc::new(Counters::default());
        let parts = Parts {
            hosts: detect::HostTables::default(),
            tags: Arc::default(),
            current: Arc::new(RwLock::new(rules.clone())),
            outputs: Arc::new(Outputs::open(&Ids::default(), 0, Arc::default(), false)?),
            counters: counters.clone(),
            is_inline: Arc::new(AtomicBool::new(false)),
            session_memory: Arc::new(AtomicUsize::new(usize::MAX)),
            drops_invalid: Arc::default(),
            stream_memory: Arc::new(AtomicUsize::new(usize::MAX)),
            on_limit: control::config::IdsOnLimit::Inspect,
            literals: None,
        };
        let follower = Places::new(parts).follower(0, 1);
        let mut worker = Worker::with(own, false, Following(follower))?;
        let seconds = timed(&mut worker, frames, |own| own.0.finished());
        let alerts = counters.by_rule().into_iter().map(|(id, own)| (id, own.alerts));
        Ok((seconds, alerts.collect()))
    }
}

/// The seconds of this thread until all frames are followed and all flows have ended.
fn timed<M: Module>(worker: &mut Worker<M>, frames: &Frames, end: impl Fn(&mut M)) -> f64 {
    let begin = thread_seconds();
    worker.follow(frames.len(), |at| frames.get(at));
    worker.tracker.finish(frames.get(frames.len() - 1).1);
    end(worker.tracker.module());
    thread_seconds() - begin
}

fn measure(
    (rounds, least): (usize, f64),
    load: &Load,
    cases: &[Case],
    report: &mut Report,
) -> Result<(), String> {
    let Load { name, frames } = load;
    let (count, bytes) = (frames.len(), frames.len_bytes());
    let mut seconds = vec![Vec::new(); cases.len()];
    let mut expected: Option<Alerts> = None;
    for _ in 0..rounds.max(1) {
        for (case, seconds) in cases.iter().zip(&mut seconds) {
            let (mut sum, mut passes) = (0.0, 0);
            while passes == 0 || sum < least {
                let (pass, alerts) = case.pass(frames)?;
                (sum, passes) = (sum + pass, passes + 1);
                if case.rules.as_ref().is_some_and(|rules| !rules.is_empty())
                    && *expected.get_or_insert_with(|| alerts.clone()) != alerts
                {
                    report.wrong.push(format!("{name}, {}: other alerts", case.name));
                }
            }
            seconds.push(sum / f64::from(passes));
        }
    }
    let alerts = expected.unwrap_or_default();
    for (case, seconds) in cases.iter().zip(&seconds) {
        let rates = seconds.iter().map(|own| bytes as f64 * 8.0 / own / 1e9).collect();
        let row = Row::new(format!("{name}, {}", case.name), "Gbit/s", rates);
        let ns = crate::report::median(seconds) * 1e9 / count as f64;
        report.rows.push(row.note(match case.rules.as_ref().is_some_and(|own| !own.is_empty()) {
            true => format!(
                "{ns:.0} ns a packet; {} alerts of {} rules",
                alerts.values().sum::<u64>(),
                alerts.len()
            ),
            false => format!("{ns:.0} ns a packet; {count} of {} bytes", bytes / count),
        }));
    }
    if let [_, without, plain, ours] = &seconds[..] {
        let own = |all: &[f64]| all.iter().zip(without).map(|(a, b)| a - b).collect::<Vec<f64>>();
        let note = "all of the packet's work, tracking and sessions too";
        report.rows.extend([
            ratio(format!("{name}, over the plain design"), plain, ours).at_least(AIM).note(note),
            ratio(format!("{name}, rules alone, over the plain design"), &own(plain), &own(ours)),
        ]);
    }
    Ok(())
}

/// A follower as the module of a tracker.
struct Following(Box<dyn Follower>);

impl Module for Following {
    type State = Kept;

    fn packet(&mut self, flow: &Identity, kept: &mut Kept, packet: &OfFlow<'_>) {
        if packet.number == 0 {
            self.0.begin(1);
        }
        let frame = packet.input.frame.as_ptr_range();
        let frame = frame.start.addr()..frame.end.addr();
        let place = Place { row: packet.number, slot: packet.slot, frame, clean: 0 };
        self.0.packet(flow, kept, &place, packet);
    }

    fn closing(&mut self, flow: &Identity) {
        self.0.closing(flow);
    }

    fn data(&mut self, flow: &Identity, kept: &mut Kept, side: Side, at: u64, b: &[u8]) -> Want {
        self.0.data(flow, kept, side, at, b)
    }

    fn gap(
        &mut self,
        flow: &Identity,
        kept: &mut Kept,
        side: Side,
        offset: u64,
        bytes: u64,
        time_ns: u64,
    ) {
        self.0.gap(flow, kept, side, offset, bytes, time_ns);
    }

    fn end_of_side(&mut self, flow: &Identity, kept: &mut Kept, side: Side, at: u64, end: End) {
        self.0.end_of_side(flow, kept, side, at, end);
    }

    fn event(&mut self, flow: &Identity, kept: &mut Kept, side: Side, event: Event, time_ns: u64) {
        self.0.event(flow, kept, side, event, time_ns);
    }

    fn rejected(&mut self, number: usize, input: &Input<'_>, why: Reject) {
        self.0.rejected(Some(number), input, why);
    }

    fn fragment(&mut self, number: usize, input: &Input<'_>) {
        let _ = self.0.fragment(number, input);
    }

    fn fragments(&mut self, fragments: &Fragments) -> bool {
        self.0.fragments(fragments)
    }

    fn ended(&mut self, record: &FlowRecord, client: Side, kept: &mut Kept, time_ns: u64) {
        self.0.ended(record, client, kept, time_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rules over a generated connection: both designs give the same alerts, and another number is seen.
    #[test]
    fn alerts_are_compared() {
        let mut loader = Loader::new(Variables::with_defaults([], []).unwrap());
        let text = "alert tcp any any -> any 80 (content:\"GET /\"; sid:1;)\nalert http any any -> any any (http.host; content:\"example\"; sid:2;)";
        loader.read("x", text.as_bytes()).unwrap();
        let (set, variables) = (loader.finish(), Variables::with_defaults([], []).unwrap());
        let compile = |search| {
            let options = Options { search, ..Options::default() };
            Some(Arc::new(Ruleset::compile(&set, &variables, &options).0))
        };
        let load = Load { name: "x".into(), frames: crate::streams::frames::short_http(3) };
        let case = |name, rules| Case { name, rules };
        let cases = [
            case("tracking", None),
            case("none", Some(Arc::default())),
            case("plain", compile(Search::Grouped)),
            case("ours", compile(Search::Shared)),
        ];
        let mut report = Report::new("ids", String::new());
        measure((1, 0.0), &load, &cases, &mut report).unwrap();
        assert_eq!(report.wrong, [""; 0]);
        assert_eq!(report.rows.len(), 6);
        assert!(report.rows[3].note.contains("6 alerts of 2 rules"), "{}", report.rows[3].note);
        let mut cases = cases;
        let mut fewer = set.clone();
        fewer.rules.truncate(1);
        cases[3].rules =
            Some(Arc::new(Ruleset::compile(&fewer, &variables, &Options::default()).0));
        measure((1, 0.0), &load, &cases, &mut report).unwrap();
        assert!(!report.wrong.is_empty());
    }
}
