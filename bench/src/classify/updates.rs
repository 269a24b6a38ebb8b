//! Rules that come and go while another thread classifies.
//!
//! One thread takes a rule out and puts it in again, rule after rule, and publishes a version after
//! [`CHANGES`] of them, or as soon as the older copy is free (`lookup::versions`). Another one classifies the trace at full
//! speed meanwhile. Both figures are by the clock on the wall: on a machine with other work they suffer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ::classify::algorithms::{Algorithm, find};
use ::classify::{Classify, Match, RuleSet};
use lookup::versions::versions;

use super::sets::{self, Load};
use super::{BURST, ClassifyArgs, pass};
use crate::{Args, Report, Row};

/// Changes of a version.
const CHANGES: usize = 64;

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
        let (mut changes, mut shares) = (Vec::new(), Vec::new());
        for _ in 0..args.rounds.max(1) {
            let (change, share) = round(algorithm, &set, &load)?;
            changes.push(change);
            shares.push(share);
        }
        let row = Row::new(format!("{name}: auto, updates while classifying"), "/s", changes);
        let note = format!("{CHANGES} a version or more; a thread for each side");
        report.rows.push(row.at_least(500_000.0).note(note));
        let name = format!("{name}: auto, classifying while updated over alone");
        report.rows.push(Row::new(name, "ratio", shares).at_least(0.8));
    }
    Ok(())
}

/// Updates a second, and the rate meanwhile over that without them.
fn round(algorithm: &Algorithm, set: &RuleSet, load: &Load) -> Result<(f64, f64), String> {
    let failed = |e: ::classify::RuleError| e.to_string();
    let mut classifier = (algorithm.build)(set).map_err(failed)?;
    let tables = classifier.tables().map_err(failed)?;
    let words = tables.words();
    let count = load.headers.len() / words;
    let mut out = vec![Match::NONE; count];
    let alone = {
        let (begin, mut passes) = (Instant::now(), 0);
        while begin.elapsed() < ROUND {
            pass(&tables, &load.headers, &mut out);
            passes += 1;
        }
        f64::from(passes) / begin.elapsed().as_secs_f64()
    };
    // With its first change `auto` may go over to another structure, once.
    let first = set.rule(0);
    classifier.remove(first.id, &mut Vec::new());
    classifier.insert(first, &mut Vec::new()).map_err(failed)?;
    let (mut writer, reader) = versions(classifier.tables().map_err(failed)?);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let classifying = scope.spawn(|| {
            let (begin, mut headers_done) = (Instant::now(), 0_usize);
            while !done.load(Ordering::Relaxed) {
                for (headers, out) in load.headers.chunks(BURST * words).zip(out.chunks_mut(BURST))
                {
                    reader.pin().classify(headers, out);
                }
                headers_done += count;
            }
            headers_done as f64 / count as f64 / begin.elapsed().as_secs_f64()
        });
        let begin = Instant::now();
        let (mut updates, mut rules) = (0_u64, (0..set.len()).cycle().step_by(7));
        let mut result = Ok(());
        let mut patches = Vec::new();
        while begin.elapsed() < ROUND && result.is_ok() {
            for _ in 0..CHANGES / 2 {
                let Some(index) = rules.next() else { break };
                let rule = set.rule(index);
                classifier.remove(rule.id, &mut patches);
                result = result.and(classifier.insert(rule, &mut patches));
                updates += 2;
            }
            // A reader may be in the older copy still: then the next version brings more.
            patches = writer.try_publish(patches).err().unwrap_or_default();
        }
        writer.publish(patches);
        let rate = updates as f64 / begin.elapsed().as_secs_f64();
        done.store(true, Ordering::Relaxed);
        let meanwhile = classifying.join().map_err(|_| "the classifying thread ended early")?;
        result.map_err(failed)?;
        Ok((rate, meanwhile / alone))
    })
}
