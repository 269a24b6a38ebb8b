//! `bench classify --backend`: the structures on a device, and rules that come and go while it classifies.
//!
//! Each structure classifies the uniform trace of a set by its kernel alone (headers and answers on the device) and from
//! end to end (jobs of [`ROWS`] headers from the host's memory and back, several in flight). The limit that
//! copies alone set is the larger of a header's way up and a match's way down.
//!
//! For updates one thread does all: it takes rules out and puts them in again, publishes a version as soon as no job
//! holds the one before the last, and keeps the device full with jobs of the newest one. An update has reached
//! the device when a job of its version is back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ::classify::algorithms::find;
use ::classify::{Classify, Match, RuleSet, Tables};
use chunk::Arena;
use device::accelerator::Options;
use device::{Backend, Device, measure};
use lookup::versions::{Pin, versions};

use super::sets::{self, Load};
use super::{Built, ClassifyArgs, build};
use crate::classify_job::{self, ClassifyJob, Ready, RuleImages, Still, form};
use crate::on_device::{PATIENCE, open, text};
use crate::{Args, Report, Row};

/// Headers of a job.
const ROWS: usize = 1 << 16;
/// Headers of a job while rules change.
const UPDATE_ROWS: usize = 8192;
/// Time of each part of a round.
const ROUND: Duration = Duration::from_millis(300);
/// The same while rules change.
const UPDATE_ROUND: Duration = Duration::from_secs(1);
/// Changes between two looks at the device.
const CHANGES: usize = 64;
/// Changes that wait at most, until a version can be published.
const WAITING_MAX: usize = 1 << 14;

/// A device, and what copies alone allow.
struct Site {
    backend: Backend,
    is_gpu: bool,
    /// Bytes a second to the device and from it, streamed.
    up: f64,
    down: f64,
}

impl Site {
    fn new(backend: Backend) -> Result<(Self, String), String> {
        let mut driver = open(backend)?;
        let costs = measure::measure(&mut *driver, &measure::Plan::default()).map_err(text)?;
        let peak =
            |pick: fn(&measure::CopyCost) -> f64| costs.copies.iter().map(pick).fold(0.0, f64::max);
        let up = peak(|copy| copy.up.streamed_bytes_per_s);
        let down = peak(|copy| copy.down.streamed_bytes_per_s);
        let info = driver.info();
        let name = format!("{}, {}", info.name, info.driver);
        Ok((Self { backend, is_gpu: info.is_gpu, up, down }, name))
    }

    /// Million headers a second that copies alone allow: a header up, a match down.
    fn copy_limit(&self, words: usize) -> f64 {
        let up = (4 * words).next_multiple_of(16) as f64;
        (self.up / up).min(self.down / 8.0) / 1e6
    }
}

/// Rates of a structure, million headers a second, by round.
#[derive(Default)]
struct Rates {
    kernel: Vec<f64>,
    end_to_end: Vec<f64>,
}

/// The rows of all sets and of updates.
pub(super) fn rows(
    args: &Args,
    options: &ClassifyArgs,
    backend: Backend,
    report: &mut Report,
) -> Result<(), String> {
    let (site, name) = Site::new(backend)?;
    let sets = &options.sets;
    for file in ["acl1_1k", "fw1_1k", "ipc1_1k", "acl1_10k"] {
        match sets::rules(&sets.join("neurocuts"), file) {
            Err(why) => report.rows.push(Row::new(file, "Mpps", Vec::new()).note(why)),
            Ok(set) => {
                let load = sets::uniform(&set, options.headers);
                let best = of_set(args, &site, file, &set, &load, report)?;
                let Some((rates, by)) = best.filter(|_| file.ends_with("_1k")) else { continue };
                let limit = site.copy_limit(set.schema().words());
                let shares = rates.iter().map(|rate| rate / limit).collect();
                let what = format!("{file}: best on the device ({by}) over the copy limit");
                let row = Row::new(what, "ratio", shares);
                let row = if site.is_gpu { row.at_least(0.8) } else { row };
                report.rows.push(row.note(format!("{limit:.0} Mpps by copies alone; {name}")));
            }
        }
    }
    updates(args, options, &site, report)
}

/// The structures of a set of many classes. A GPU is held to `aim`, million headers a second.
pub(super) fn many_classes(
    args: &Args,
    (backend, aim): (Backend, Option<f64>),
    name: &str,
    set: &RuleSet,
    load: &Load,
    report: &mut Report,
) -> Result<(), String> {
    let (site, _) = Site::new(backend)?;
    let best = of_set(args, &site, name, set, load, report)?;
    if let (Some((rates, by)), Some(aim), true) = (best, aim, site.is_gpu) {
        let row = Row::new(format!("{name}: best on the device ({by})"), "Mpps", rates);
        report.rows.push(row.at_least(aim));
    }
    Ok(())
}

/// The rates of each structure that has a device form, from end to end, by round.
pub(super) fn end_to_end(
    args: &Args,
    backend: Backend,
    built: &[Built],
    load: &Load,
) -> Result<Vec<(&'static str, Vec<f64>)>, String> {
    let (site, _) = Site::new(backend)?;
    let mut all = Vec::new();
    for built in built {
        let Some(form) = form(&built.tables) else { continue };
        let by = built.algorithm.name;
        let rates = rates(args, &site, &form, built, load).map_err(|e| format!("{by}: {e}"))?;
        all.push((by, rates.end_to_end));
    }
    Ok(all)
}

/// The rates of the best structure from end to end, by round, and its name.
type Best = (Vec<f64>, &'static str);

/// All rows of a set.
fn of_set(
    args: &Args,
    site: &Site,
    name: &str,
    set: &RuleSet,
    load: &Load,
    report: &mut Report,
) -> Result<Option<Best>, String> {
    let mut best: Option<Best> = None;
    for built in build(name, set, report) {
        let Some(form) = form(&built.tables) else { continue };
        let algorithm = built.algorithm.name;
        let rates = rates(args, site, &form, &built, load)
            .map_err(|error| format!("{name}, {algorithm}: {error}"))?;
        let row = |what: &str, rates: &[f64]| {
            let name = format!("{name}, {}: {algorithm} on the device, {what}", load.name);
            Row::new(name, "Mpps", rates.to_vec())
        };
        let kernel = row("kernel alone", &rates.kernel);
        // What linear search does is known: each header against each rule, to the best one at least.
        let tests = crate::report::median(&rates.kernel) * set.len() as f64 / 1e3;
        report.rows.push(match algorithm {
            "linear" => kernel.note(format!("at most {tests:.0} G rules a second")),
            _ => kernel,
        });
        report.rows.push(row("end to end", &rates.end_to_end));
        let median = |rates: &[f64]| crate::report::median(rates);
        if best.as_ref().is_none_or(|(other, _)| median(other) < median(&rates.end_to_end)) {
            best = Some((rates.end_to_end, algorithm));
        }
    }
    Ok(best)
}

fn rates(
    args: &Args,
    site: &Site,
    form: &kernels::classifiers::Classifier,
    built: &Built,
    load: &Load,
) -> Result<Rates, String> {
    let count = load.headers.len() / form.words;
    let (mut wanted, mut found) = (vec![Match::NONE; count], vec![Match::NONE; count]);
    built.tables.classify(&load.headers, &mut wanted);
    let check = |found: &[Match], what: &str| match found == wanted {
        true => Ok(()),
        false => Err(format!("{what} gives other answers than the CPU")),
    };
    let mut rates = Rates::default();
    let options = Options { patience: PATIENCE, ..Options::default() };
    let made = classify_job::accelerator::<Still>(
        open(site.backend)?,
        RuleImages(None),
        form,
        ROWS,
        options,
    );
    let mut ready = made.map_err(text)?;
    let blob = built.tables.blob().try_clone().map_err(text)?;
    let rules = Arc::new(Still(Tables::new(blob)));
    for round in 0..=args.rounds.max(1) {
        let (begin, mut passes) = (Instant::now(), 0_u32);
        while passes == 0 || begin.elapsed() < ROUND {
            let headers = &load.headers;
            let failed = classify_job::classify_all(&mut ready, &rules, *form, headers, &mut found);
            failed.map_or(Ok(()), Err)?;
            passes += 1;
        }
        check(&found, "a job")?;
        // The first round brings the table along.
        if round > 0 {
            let seconds = begin.elapsed().as_secs_f64() / f64::from(passes);
            rates.end_to_end.push(count as f64 / seconds / 1e6);
            let mut driver = open(site.backend)?;
            let (driver, tables) = (&mut *driver, &built.tables);
            let (ns, _) =
                classify_job::kernel_alone(driver, tables, form, &load.headers, &mut found)?;
            check(&found, "the kernel alone")?;
            rates.kernel.push(1e3 / ns);
        }
    }
    Ok(rates)
}

/// Updates that reach the device, and what they cost it.
fn updates(
    args: &Args,
    options: &ClassifyArgs,
    site: &Site,
    report: &mut Report,
) -> Result<(), String> {
    let Ok(set) = sets::rules(&options.sets.join("neurocuts"), "acl1_10k") else { return Ok(()) };
    let load = sets::uniform(&set, options.headers);
    for name in ["tuple", "linear"] {
        let (mut changes, mut shares, mut images) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..args.rounds.max(1) {
            let mut run = Run::new(name, &set, &load, open(site.backend)?)?;
            let alone = run.part(false)?;
            let changed = run.part(true)?;
            changes.push(changed.updates);
            shares.push(changed.headers / alone.headers);
            images.push(run.ready.0.traffic().table_images as f64);
        }
        let name = format!("acl1_10k: {name}, updates that reach the device while it classifies");
        report.rows.push(Row::new(name.clone(), "/s", changes).note("one thread for both"));
        let name = name.replace("updates that reach the device while it classifies", "");
        let name = name.trim_end_matches(", ");
        report.rows.push(Row::new(
            format!("{name}, a device classifying while updated over alone"),
            "ratio",
            shares,
        ));
        report.rows.push(Row::new(format!("{name}, whole images sent"), "images", images));
    }
    Ok(())
}

/// What a part of a round came to, each a second.
struct Part {
    updates: f64,
    headers: f64,
}

/// A set that changes, and the device that follows.
struct Run<'a> {
    set: &'a RuleSet,
    headers: &'a [u32],
    classifier: Box<dyn ::classify::Classifier>,
    writer: lookup::versions::Writer<Tables>,
    reader: lookup::versions::Reader<Tables>,
    form: kernels::classifiers::Classifier,
    ready: Ready<Pin<Tables>>,
    next_rule: usize,
    next_header: usize,
}

impl<'a> Run<'a> {
    fn new(
        name: &str,
        set: &'a RuleSet,
        load: &'a Load,
        driver: Box<dyn device::driver::Driver>,
    ) -> Result<Self, String> {
        let algorithm = find(name).ok_or("no such structure")?;
        let classifier = (algorithm.build)(set).map_err(text)?;
        let tables = classifier.tables().map_err(text)?;
        let form = form(&tables).ok_or("it has no device form")?;
        let (writer, reader) = versions(tables);
        let images = RuleImages(Some(writer.changes()));
        let options = Options { patience: PATIENCE, ..Options::default() };
        let made = classify_job::accelerator(driver, images, &form, UPDATE_ROWS, options);
        let ready = made.map_err(text)?;
        let headers = &load.headers[..];
        let (next_rule, next_header) = (0, 0);
        Ok(Self { set, headers, classifier, writer, reader, form, ready, next_rule, next_header })
    }

    /// One part: the device is kept full, while rules change or while they do not.
    fn part(&mut self, with_changes: bool) -> Result<Part, String> {
        let (mut patches, mut waiting) = (Vec::new(), 0);
        // All updates up to a version.
        let mut published = vec![(self.reader.pin().version(), 0)];
        let (mut seen, mut headers_done) = (0, 0);
        let begin = Instant::now();
        let seconds = loop {
            let is_over = begin.elapsed() >= UPDATE_ROUND;
            if with_changes && !is_over {
                if waiting < WAITING_MAX {
                    self.change(&mut patches)?;
                    waiting += CHANGES;
                }
                match self.writer.try_publish(std::mem::take(&mut patches)) {
                    Err(back) => patches = back,
                    Ok(version) => {
                        let before = published.last().map_or(0, |(_, updates)| *updates);
                        published.push((version, before + waiting));
                        waiting = 0;
                    }
                }
            }
            if !is_over {
                self.launch()?;
            }
            let wait = if is_over { PATIENCE } else { Duration::ZERO };
            match self.ready.0.retire(wait) {
                None if is_over => return Err("a job does not come back".into()),
                None => {}
                Some((job, result)) => {
                    result.map_err(text)?;
                    headers_done += device::Shadeable::rows(&job);
                    let version = job.rules().version();
                    let of = published.iter().rev().find(|(other, _)| *other <= version);
                    seen = seen.max(of.map_or(0, |(_, updates)| *updates));
                    if is_over {
                        let seconds = begin.elapsed().as_secs_f64();
                        job.check()?;
                        if self.ready.0.in_flight() == 0 {
                            break seconds;
                        }
                    }
                }
            }
        };
        if waiting > 0 {
            self.writer.publish(patches);
        }
        Ok(Part { updates: seen as f64 / seconds, headers: headers_done as f64 / seconds })
    }

    /// Takes rules out and puts them in again.
    fn change(&mut self, patches: &mut Vec<lookup::Patch>) -> Result<(), String> {
        for _ in 0..CHANGES / 2 {
            let rule = self.set.rule(self.next_rule);
            self.next_rule = (self.next_rule + 7) % self.set.len();
            self.classifier.remove(rule.id, patches);
            self.classifier.insert(rule, patches).map_err(text)?;
        }
        Ok(())
    }

    /// Fills the device with jobs of the newest version.
    fn launch(&mut self) -> Result<(), String> {
        let rules = Arc::new(self.reader.pin());
        while self.ready.0.in_flight() < self.ready.0.slots() {
            let is_free = |arena: &&Arena| {
                arena.close();
                arena.reopen()
            };
            let Some(arena) = self.ready.1.iter().find(is_free) else { break };
            let capacity = self.form.words * UPDATE_ROWS;
            let first = self.next_header;
            let end = self.headers.len().min(first + capacity);
            self.next_header = if end == self.headers.len() { 0 } else { end };
            let job = ClassifyJob::new(arena, &rules, self.form, &self.headers[first..end], first)?;
            let launched = self.ready.0.launch(job);
            launched.map_err(|(_, e)| e.map_or("no slot".into(), |e| e.to_string()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ::classify::Schema;
    use ::classify::generate::synthetic;

    use super::*;

    /// Versions reach the device as patches, and its answers are those of their version.
    #[test]
    fn updates_reach_a_device() {
        if !testkit::require_opencl() {
            return;
        }
        let options = synthetic::Options {
            schema: Schema::five_tuple().into(),
            rules: 1000,
            classes: 8,
            full_classes: None,
            overlap: 1,
            distribution: synthetic::Distribution::Full,
            seed: 2,
        };
        let set = synthetic::rules(&options).unwrap().set;
        let load = sets::uniform(&set, 100_000);
        for name in ["linear", "tuple", "bloom"] {
            let driver = device::probe::open(device::driver::Api::OpenCl, 0).unwrap();
            let mut run = Run::new(name, &set, &load, driver).unwrap();
            let alone = run.part(false).unwrap();
            assert!(alone.headers > 0.0 && alone.updates == 0.0, "{name}");
            let changed = run.part(true).unwrap();
            assert!(changed.updates > 0.0 && changed.headers > 0.0, "{name}");
        }
    }
}
