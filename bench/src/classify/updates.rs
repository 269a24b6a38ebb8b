//! Rules that come and go while another thread classifies.
//!
//! The structure begins with seven of eight rules. One thread takes a rule out, far from the one before, and puts one in
//! that was out, and publishes a version after [`CHANGES`] changes, or as soon as the older copy is free
//! (`lookup::versions`). Another one classifies the trace meanwhile. Both figures are by the time that the thread ran:
//! what other programs on the machine take does not count.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ::classify::algorithms::{Algorithm, find};
use ::classify::{Classifier, Classify, Match, RuleError, RuleSet, Tables};
use lookup::Patch;
use lookup::versions::versions;

use super::sets::{self, Load};
use super::{BURST, ClassifyArgs, pass};
use crate::forms::thread_seconds;
use crate::{Args, Report, Row};

/// Changes of a version.
const CHANGES: usize = 64;

/// Rules between one that is changed and the next: a prime.
const STEP: usize = 7919;

/// Time of each part of a round.
const ROUND: Duration = Duration::from_millis(300);

pub(super) fn rows(args: &Args, options: &ClassifyArgs, report: &mut Report) -> Result<(), String> {
    let folder = &options.sets;
    let algorithm = find("auto").ok_or("no structure takes updates")?;
    for name in ["acl1_1k", "fw1_1k", "ipc1_1k", "acl1_10k", "fw1_10k", "ipc1_10k"] {
        let set = match sets::rules(&folder.join("neurocuts"), name) {
            Ok(set) => set,
            Err(why) => {
                let name = format!("{name}: updates while classifying");
                report.rows.push(Row::new(name, "/s", Vec::new()).note(why));
                continue;
            }
        };
        let load = sets::uniform(&set, options.headers);
        let (mut changes, mut shares, mut own) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..args.rounds.max(1) {
            let round = round(algorithm, &set, &load)?;
            changes.push(round.updates);
            shares.push(round.rate / round.alone);
            own.push(round.rate / round.alone_changed);
        }
        let row = Row::new(format!("{name}: auto, updates while classifying"), "/s", changes);
        let note = format!("{CHANGES} a version or more; by the time of each thread");
        report.rows.push(row.at_least(500_000.0).note(note));
        let set = name;
        let name = format!("{set}: auto, classifying while updated over alone");
        report.rows.push(Row::new(name, "ratio", shares).at_least(0.8));
        let name = format!("{set}: auto, the same over the structure that takes changes, alone");
        report.rows.push(Row::new(name, "ratio", own));
    }
    Ok(())
}

/// Rules of a set, of which some are in the structure and some are not.
struct Changing<'a> {
    set: &'a RuleSet,
    inside: Vec<usize>,
    outside: Vec<usize>,
    next: usize,
}

impl<'a> Changing<'a> {
    fn new(set: &'a RuleSet) -> Self {
        let (outside, inside) = (0..set.len()).partition(|at| at % 8 == 3);
        Self { set, inside, outside, next: 0 }
    }

    /// The rules that are in the structure.
    fn first(&self) -> Result<RuleSet, RuleError> {
        let mut set = RuleSet::new(self.set.schema().clone());
        self.inside.iter().try_for_each(|at| set.push(self.set.rule(*at)))?;
        Ok(set)
    }

    /// Takes one rule out and puts another one in.
    fn change(&mut self, to: &mut dyn Classifier, patches: &mut Vec<Patch>) -> Result<(), String> {
        self.next += STEP;
        let inside = self.next % self.inside.len();
        let outside = self.next % self.outside.len();
        let (gone, come) = (&mut self.inside[inside], &mut self.outside[outside]);
        if !to.remove(self.set.rule(*gone).id, patches) {
            return Err("a rule could not be taken out".into());
        }
        std::mem::swap(gone, come);
        to.insert(self.set.rule(*gone), patches).map_err(|e| e.to_string())
    }
}

/// What a round found, each a second.
struct Round {
    updates: f64,
    /// Passes over the trace while there are updates.
    rate: f64,
    /// Passes before the first change, and by the structure that takes changes before the next one.
    alone: f64,
    alone_changed: f64,
}

fn round(algorithm: &Algorithm, set: &RuleSet, load: &Load) -> Result<Round, String> {
    let failed = |e: RuleError| e.to_string();
    let mut changing = Changing::new(set);
    let mut classifier = (algorithm.build)(&changing.first().map_err(failed)?).map_err(failed)?;
    let tables = classifier.tables().map_err(failed)?;
    let words = tables.words();
    let count = load.headers.len() / words;
    let mut out = vec![Match::NONE; count];
    let mut passes_alone = |tables: &Tables| {
        let (begin, started, mut passes) = (Instant::now(), thread_seconds(), 0);
        while begin.elapsed() < ROUND {
            pass(tables, &load.headers, &mut out);
            passes += 1;
        }
        f64::from(passes) / (thread_seconds() - started)
    };
    let alone = passes_alone(&tables);
    // With its first change `auto` may go over to another structure, once.
    changing.change(&mut *classifier, &mut Vec::new())?;
    let tables = classifier.tables().map_err(failed)?;
    let alone_changed = passes_alone(&tables);
    let (mut writer, reader) = versions(tables);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let classifying = scope.spawn(|| {
            let mut out = vec![Match::NONE; count];
            let (started, mut passes) = (thread_seconds(), 0);
            while !done.load(Ordering::Relaxed) {
                for (headers, out) in load.headers.chunks(BURST * words).zip(out.chunks_mut(BURST))
                {
                    reader.pin().classify(headers, out);
                }
                passes += 1;
            }
            f64::from(passes) / (thread_seconds() - started)
        });
        let (begin, started) = (Instant::now(), thread_seconds());
        let (mut updates, mut patches, mut result) = (0_u64, Vec::new(), Ok(()));
        while begin.elapsed() < ROUND && result.is_ok() {
            for _ in 0..CHANGES / 2 {
                result = result.and_then(|()| changing.change(&mut *classifier, &mut patches));
                updates += 2;
            }
            // A reader may be in the older copy still: then the next version brings more.
            patches = writer.try_publish(patches).err().unwrap_or_default();
        }
        writer.publish(patches);
        let updates = updates as f64 / (thread_seconds() - started);
        done.store(true, Ordering::Relaxed);
        let rate = classifying.join().map_err(|_| "the classifying thread ended early")?;
        result?;
        // What was changed all the time finds what a structure finds that is built of the rules that are left.
        let rules = (algorithm.build)(&changing.first().map_err(failed)?).map_err(failed)?;
        let (now, mut found) = (reader.pin(), vec![Match::NONE; count]);
        now.classify(&load.headers, &mut found);
        pass(&rules.tables().map_err(failed)?, &load.headers, &mut out);
        if found != out {
            return Err("after the updates other rules are found than without".into());
        }
        Ok(Round { updates, rate, alone, alone_changed })
    })
}
