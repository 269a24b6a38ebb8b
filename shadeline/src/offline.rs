//! `shadeline run CONFIG -r IN [-w DIR]`: the pipeline over captures.
//!
//! A signal, or an output that cannot be written, ends the input: what is in the pipeline is finished, files are closed,
//! and totals are printed.
//!
//! Time from the packets, files that wait instead of queues that drop, and packets that leave in the
//! order of their causes however many workers there are: the same input gives the same bytes, whichever side
//! runs it and wherever.

use std::any::Any;
use std::io::IsTerminal;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use chunk::{DropReason, Packet, Pool};
use control::api::table::thousands;
use control::config::{Config, EngineBackend, Pipeline};
use controlplane::ahead::LearnAhead;
use controlplane::{Interfaces, Publisher, Running};
use device::Backend;
use engine::UnderWay;
use indicatif::{ProgressBar, ProgressStyle};
use io::capture::{CaptureRx, CaptureTx, Format};
use io::memory::Sink;
use io::{Losses, QueueStats, RxQueue, TxQueue};
use packet::checksum::Checksums;
use packet::filter::Filter;
use stream::tracker::LATE_NS;

use crate::cli::RunArgs;
use crate::failure::Failure;
use crate::interrupt::{Interrupt, UntilStopped};
use crate::output::{self, Beside, note};
use crate::report::Report;
use crate::wiring::{self, Plan, PortIo};
use crate::{backend, check, compilers, log, ports};

pub(crate) fn run(args: &RunArgs) -> Result<(), Failure> {
    let folder = args.write.as_deref();
    if folder.is_some_and(files::is_standard) {
        let what = "-w writes a capture for each port, so it needs a folder; without -w nothing is written";
        return Err(Failure::usage(what));
    }
    if let Some(folder) = folder {
        // Whatever becomes of this run, totals of an earlier one are not its own.
        remove_old(&folder.join("stats.json"))?;
    }
    let (config, warnings) = check::read(&args.config)?;
    let is_openflow = |own: &Pipeline| own.named(apps::openflow::STAGE).next().is_some();
    if !args.flows.is_empty() && !config.in_use().any(is_openflow) {
        let what = "--flows is for an OpenFlow switch, and no pipeline of the configuration has a stage `openflow`";
        return Err(Failure::usage(what));
    }
    let flows = apps::openflow::FlowFiles(args.flows.clone());
    // Errors in files are logged; the progress of the run is in its report.
    log::start_command(config.system.log, config.system.log_format);
    check::warn(&warnings);
    let report_to = Beside::of(&config.flow)?;
    let interfaces = Interfaces::of(&config);
    let inputs = inputs(&args.read, &interfaces)?;
    let interrupt = Interrupt::listen()?;
    let marks = marks(&config, &interfaces, args.checksums());
    let opened = Merged::open(inputs, marks, &interrupt, |port, queue| {
        ports::with_faults(&config, interfaces.name(port), queue)
    });
    // A signal while a pipe was waited for.
    interrupt.check()?;
    let (merged, progress) = opened?;
    // Not before the input is known to be there.
    if let Some(folder) = folder {
        keep_inputs(&merged.paths, folder, &interfaces)?;
    }
    let outputs =
        folder.map(|folder| Outputs::create(folder, &interfaces, &interrupt)).transpose()?;
    let (outputs, captures) = outputs.unzip();
    let mut captures = captures.unwrap_or_default().into_iter();
    let mut io = Vec::new();
    for number in interfaces.ports() {
        let tx: Box<dyn TxQueue> = match captures.next() {
            Some(capture) => Box::new(capture),
            None => Box::new(Sink::new()),
        };
        io.push(PortIo::new(number, vec![(None, Some(tx))]));
    }
    let (mut report, time) = carry(Carry {
        config: &config,
        interfaces: &interfaces,
        file: files::input::name(&args.config).into_owned(),
        backends: args.backend.clone(),
        merged,
        progress,
        io,
        outputs: outputs.as_ref(),
        attachments: &[&flows, &args.beginning()],
    })?;
    report.errors.extend(outputs.as_ref().and_then(Outputs::finish));
    report.interrupted = interrupt.caught().map(|(_, name)| name);
    report.incomplete = report.interrupted.is_some() || !report.errors.is_empty();
    finish(&report, folder, args.json, report_to, time)?;
    interrupt.check()
}

/// What a run over captures needs.
pub(crate) struct Carry<'a> {
    pub(crate) config: &'a Config,
    pub(crate) interfaces: &'a Interfaces,
    /// The configuration's file, for messages; empty for one that is part of the program.
    pub(crate) file: String,
    /// Those of the command line.
    pub(crate) backends: Option<backend::Backends>,
    pub(crate) merged: Merged,
    pub(crate) progress: Arc<Progress>,
    /// The transmit queues of ports.
    pub(crate) io: Vec<PortIo>,
    /// Where dropped and dumped packets go.
    outputs: Option<&'a Outputs>,
    pub(crate) attachments: &'a [&'a (dyn Any + Sync)],
}

impl<'a> Carry<'a> {
    /// A run that writes no captures.
    pub(crate) fn without_outputs(
        config: &'a Config,
        interfaces: &'a Interfaces,
        (merged, progress): (Merged, Arc<Progress>),
        attachments: &'a [&'a (dyn Any + Sync)],
    ) -> Self {
        let sink = |port| {
            let tx: Box<dyn TxQueue> = Box::new(Sink::new());
            PortIo::new(port, vec![(None, Some(tx))])
        };
        let io = interfaces.ports().map(sink).collect();
        // No stage that follows flows has a device form of itself: looking for a device would be most of a short run.
        let (engine, is_auto) = (&config.engine, EngineBackend::Auto);
        let may_use = !engine.devices.is_empty() || engine.backend != is_auto;
        let asks = config.flow.device || config.ids.device;
        let backends = (!may_use && !asks).then(|| Backend::Cpu.into());
        let (file, outputs) = (String::new(), None);
        Self { config, interfaces, file, backends, merged, progress, io, outputs, attachments }
    }
}

/// Carries the packets of captures through the pipeline; what was counted, and how long it took.
pub(crate) fn carry(run: Carry<'_>) -> Result<(Report, Duration), Failure> {
    let Carry { config, interfaces, file, backends, merged, progress, mut io, .. } = run;
    let errors: Arc<Mutex<Vec<String>>> = Arc::default();
    let error_sink = errors.clone();

    let (publisher, reader) = wiring::offline(config, interfaces, run.attachments)?;
    // The one that the file does not ask for is enough: most captures are short.
    let workers = if config.system.has_workers { config.system.workers.max(1) } else { 1 };
    let (_, depot) = wiring::cells(config, workers)?;
    let wanted = backend::chosen(config, backends);
    let devices =
        compilers::without_counts(|| backend::open(config, &wanted, || publisher.images()))?;
    let under_way = UnderWay::default();
    let learns = publisher.parts.iter().any(|own| own.part.learns_ahead());
    let publisher = Arc::new(Mutex::new(publisher));
    let rx: Box<dyn RxQueue> = match learns {
        true => {
            let passed = passed(config, interfaces, &lock(&publisher));
            Box::new(LearnAhead::new(merged, publisher.clone(), passed, under_way.clone()))
        }
        false => Box::new(merged),
    };
    io.push(PortIo { stamps: true, ..PortIo::new(0, vec![(Some(rx), None)]) });
    let begin = Instant::now();
    let path = compilers::without_counts(|| {
        wiring::start(
            config,
            interfaces,
            depot,
            &reader,
            &mut lock(&publisher).parts,
            io,
            Plan {
                workers,
                offline: true,
                devices,
                under_way,
                on_drop: run.outputs.map(|outputs| {
                    let sink = outputs.dropped.clone();
                    Box::new(move |packet: &Packet, reason: DropReason, _| {
                        let mut sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
                        if let Some(sink) = sink.as_mut() {
                            sink.write_with_comment(packet, packet.time_ns, Some(reason.name()));
                        }
                    }) as _
                }),
                on_dump: run.outputs.map(|outputs| {
                    let sink = outputs.dumped.clone();
                    Box::new(move |packet: &Packet, _| {
                        sink.lock().unwrap_or_else(PoisonError::into_inner).write(packet);
                    }) as _
                }),
                file,
                on_error: Arc::new(move |_, error| {
                    error_sink
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(error.to_owned());
                }),
            },
        )
    })?;
    watch(&path, &progress);
    let view = path.engine.view().clone();
    let ports = path.ports;
    path.engine.join().map_err(Failure::other)?;

    let mut report = Report::of(&view, &ports, &lock(&publisher).parts, interfaces, None);
    let received = progress.received.lock().unwrap_or_else(PoisonError::into_inner).clone();
    report.set_received(&received, interfaces);
    report
        .errors
        .splice(0..0, std::mem::take(&mut *errors.lock().unwrap_or_else(PoisonError::into_inner)));
    if report.panics > 0 {
        report.errors.push(format!(
            "{} panics of stages: their packets are counted under `stage_panic`",
            report.panics
        ));
    }
    Ok((report, begin.elapsed()))
}

/// What is written into a folder beside the captures of ports.
const DROPPED: &str = "dropped.pcapng";
const DUMPED: &str = "dumped.pcapng";

/// Refuses a folder in which an output is the same file as an input.
fn keep_inputs(inputs: &[PathBuf], folder: &Path, interfaces: &Interfaces) -> Result<(), Failure> {
    let number = |path: &Path| path.metadata().ok().map(|file| (file.dev(), file.ino()));
    let ports = interfaces.ports().map(|port| file_name(interfaces.name(port)));
    let names = ports.chain([DROPPED, DUMPED].map(str::to_owned));
    let outputs: Vec<_> = names.filter_map(|name| number(&folder.join(name))).collect();
    let is_output = |path: &&PathBuf| number(path).is_some_and(|own| outputs.contains(&own));
    match inputs.iter().find(is_output) {
        Some(path) => Err(Failure::usage(format!(
            "-w {}: the input {} would be overwritten: write into another folder",
            folder.display(),
            path.display()
        ))),
        None => Ok(()),
    }
}

/// Removes a file of an earlier run, if there is one.
fn remove_old(path: &Path) -> Result<(), Failure> {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    match std::fs::remove_file(path) {
        Err(error) if !matches!(error.kind(), NotFound | NotADirectory) => {
            Err(Failure::output(path, &error))
        }
        _ => Ok(()),
    }
}

/// What a run writes into its folder.
struct Outputs {
    dropped: Arc<Mutex<Option<CaptureTx>>>,
    dumped: Arc<Mutex<Dumped>>,
    failed: Failed,
}

/// Errors of files; the first one ends the input.
#[derive(Clone)]
struct Failed {
    errors: Arc<Mutex<Vec<String>>>,
    stop: Arc<AtomicBool>,
}

impl Failed {
    fn add(&self, error: String) {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).push(error);
        self.stop.store(true, Ordering::Relaxed);
    }

    fn capture(&self, path: &Path) -> std::io::Result<CaptureTx> {
        let mut capture = CaptureTx::create(path, Format::PcapNg)?;
        let own = self.clone();
        capture.on_failure(move |error| own.add(error));
        Ok(capture)
    }
}

impl Outputs {
    /// Makes the folder and its captures; those of ports are returned, in the order of their numbers.
    fn create(
        folder: &Path,
        interfaces: &Interfaces,
        interrupt: &Interrupt,
    ) -> Result<(Self, Vec<CaptureTx>), Failure> {
        output::folder(folder)?;
        // Of an earlier run.
        remove_old(&folder.join(DUMPED))?;
        let failed = Failed { errors: Arc::default(), stop: interrupt.stop.clone() };
        let capture = |name: &str| {
            let path = folder.join(name);
            failed.capture(&path).map_err(|error| Failure::output(&path, &error))
        };
        let ports = interfaces.ports().map(|port| interfaces.name(port));
        let captures = ports.map(|port| capture(&file_name(port))).collect::<Result<_, _>>()?;
        let dropped = Arc::new(Mutex::new(Some(capture(DROPPED)?)));
        let dumped = Dumped::new(folder.join(DUMPED), failed.clone());
        Ok((Self { dropped, dumped: Arc::new(Mutex::new(dumped)), failed }, captures))
    }

    /// Closes what is open; the errors of all files, as one.
    fn finish(&self) -> Option<String> {
        drop(self.dropped.lock().unwrap_or_else(PoisonError::into_inner).take());
        drop(self.dumped.lock().unwrap_or_else(PoisonError::into_inner).file.take());
        let errors = self.failed.errors.lock().unwrap_or_else(PoisonError::into_inner);
        let (first, more) = errors.split_first()?;
        Some(match more.len() {
            0 => first.clone(),
            1 => format!("{first} (and 1 more file)"),
            more => format!("{first} (and {more} more files)"),
        })
    }
}

/// By port: the parts with a stage in its pipeline. One that sees packets of some contexts alone is left out: which
/// ones these are is not known before the packet's turn.
fn passed(config: &Config, interfaces: &Interfaces, publisher: &Publisher) -> Vec<Vec<usize>> {
    let of_port = |name: &String| {
        let pipeline = config.pipeline_of(name);
        let sees_all =
            |stage: &str| config.section_of(stage).is_none_or(|own| own.context.is_empty());
        let has_stage = |own: &Running| {
            let mut places = 0..pipeline.stages.len();
            places.any(|at| own.has(pipeline, at) && sees_all(&pipeline.stages[at]))
        };
        let parts = publisher.parts.iter().enumerate();
        parts.filter(|(_, own)| has_stage(own)).map(|(number, _)| number).collect()
    };
    interfaces.names().iter().map(of_port).collect()
}

/// By port: the mark of its packets. `checksums` is the command line's word for all of them.
fn marks(config: &Config, interfaces: &Interfaces, checksums: Option<Checksums>) -> Vec<u32> {
    let names = interfaces.ports().map(|port| interfaces.name(port));
    names.map(|name| wiring::mark_of(ports::checksums(config, name, checksums))).collect()
}

fn lock(publisher: &Mutex<Publisher>) -> MutexGuard<'_, Publisher> {
    publisher.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The capture of packets with the verdict dump. Most pipelines dump none, so the file begins with the first one.
struct Dumped {
    path: PathBuf,
    file: Option<CaptureTx>,
    failed: Failed,
    has_failed: bool,
}

impl Dumped {
    fn new(path: PathBuf, failed: Failed) -> Self {
        Self { path, file: None, failed, has_failed: false }
    }

    fn write(&mut self, packet: &Packet) {
        if self.file.is_none() && !self.has_failed {
            match self.failed.capture(&self.path) {
                Ok(file) => self.file = Some(file),
                Err(error) => {
                    self.has_failed = true;
                    self.failed.add(format!("{}: {error}", self.path.display()));
                }
            }
        }
        if let Some(file) = &mut self.file {
            file.write_with_comment(packet, packet.time_ns, None);
        }
    }
}

fn finish(
    report: &Report,
    folder: Option<&Path>,
    json: bool,
    report_to: Beside,
    time: Duration,
) -> Result<(), Failure> {
    let stats = serde_json::to_string_pretty(report).map_err(Failure::other)? + "\n";
    let written = match folder {
        Some(folder) => write_stats(folder, &stats),
        None => Ok(()),
    };
    let printed = if json {
        report_to.put(format_args!("{stats}"))
    } else {
        let files = match (report.errors.is_empty(), written.is_ok()) {
            (true, true) => "captures and stats.json",
            (true, false) => "captures, but no stats.json,",
            (false, true) => "incomplete captures and stats.json",
            (false, false) => "incomplete captures, but no stats.json,",
        };
        let place = folder.map(|folder| format!("; {files} in {}", folder.display()));
        report_to.put(format_args!(
            "{}{:.3} s, {:.2} Mpps{}\n",
            report.text(),
            time.as_secs_f64(),
            report.rx_packets as f64 / time.as_secs_f64() / 1e6,
            place.unwrap_or_default()
        ))
    };
    for error in &report.errors {
        note!("error: {error}");
    }
    match (report.errors.is_empty(), written) {
        (true, written) => written.and(printed),
        (false, Ok(())) => Err(Failure::reported()),
        (false, written) => written,
    }
}

/// Writes the totals, whole or not at all.
fn write_stats(folder: &Path, stats: &str) -> Result<(), Failure> {
    let path = folder.join("stats.json");
    std::fs::write(&path, stats).map_err(|error| {
        let _ = std::fs::remove_file(&path);
        Failure::output(&path, &error)
    })
}

/// A port's name as a file name.
fn file_name(port: &str) -> String {
    let safe = |c: char| if c == '/' || c == '\0' { '_' } else { c };
    port.chars().map(safe).collect::<String>() + ".pcapng"
}

/// Which captures go into which port: `PORT=IN`, or `IN` alone into the first port.
fn inputs(read: &[String], interfaces: &Interfaces) -> Result<Vec<(u16, Vec<PathBuf>)>, Failure> {
    let mut inputs: Vec<(u16, Vec<PathBuf>)> = Vec::new();
    for text in read {
        let named = text.split_once('=').filter(|_| !wiring::is_readable(Path::new(text)));
        let (port, path) = match named {
            None => (0, text.as_str()),
            Some((name, path)) => {
                let number = interfaces.number(name).filter(|&n| interfaces.is_port(n));
                let unknown = || {
                    let expected = interfaces.list_ports();
                    let tagged = interfaces.number(name).and_then(|n| interfaces.tagged(n));
                    Failure::usage(match tagged {
                        Some((port, _)) => format!(
                            "-r {text}: `{name}` is a subinterface: its packets are received by `{}`, with their tags",
                            interfaces.name(port)
                        ),
                        None => format!(
                            "-r {text}: there is no port `{name}`: expected one of {expected}"
                        ),
                    })
                };
                (number.ok_or_else(unknown)?, path)
            }
        };
        match inputs.iter_mut().find(|(p, _)| *p == port) {
            Some((_, paths)) => paths.push(path.into()),
            None => inputs.push((port, vec![path.into()])),
        }
    }
    Ok(inputs)
}

/// How far the input is, for the progress bar and the report.
#[derive(Default)]
pub(crate) struct Progress {
    done: AtomicU64,
    total: AtomicU64,
    received: Mutex<Vec<(u16, QueueStats)>>,
    /// Packets that were read for the filter, and those that it passed over.
    filtered: AtomicU64,
    passed_over: AtomicU64,
    clock: Mutex<Clock>,
}

/// The times of the packets of a run.
#[derive(Clone, Copy, Default)]
pub(crate) struct Clock {
    /// Packets so far.
    packets: u64,
    /// The latest one so far.
    latest: Dated,
    /// The latest one before the first packet that was earlier by more than [`LATE_NS`].
    pub(crate) ahead: Option<Dated>,
    /// How many such packets there were.
    pub(crate) late: u64,
}

/// A packet by its number in the input, from 1, and its time.
#[derive(Clone, Copy, Default)]
pub(crate) struct Dated {
    pub(crate) number: u64,
    pub(crate) time_ns: u64,
}

impl Clock {
    /// Takes the time of a packet with the number `packets`.
    fn take(&mut self, time_ns: u64) {
        if time_ns >= self.latest.time_ns {
            self.latest = Dated { number: self.packets, time_ns };
        } else if time_ns.saturating_add(LATE_NS) < self.latest.time_ns {
            self.late += 1;
            self.ahead.get_or_insert(self.latest);
        }
    }
}

impl Progress {
    /// The packets of a report, and how many of them the filter let through, as text.
    pub(crate) fn packets(&self, report: &Report) -> String {
        let passed = self.passed_over.load(Ordering::Relaxed);
        // Where none passes, the engine knows of no packet.
        let all = self.filtered.load(Ordering::Relaxed);
        match passed {
            0 => format!("{} packets", thousands(report.rx_packets)),
            passed => format!("{} of {} packets", thousands(all - passed.min(all)), thousands(all)),
        }
    }

    /// The times of what was read.
    pub(crate) fn clock(&self) -> Clock {
        *self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The captures of several ports, merged by time; ports with the same time in their order.
pub(crate) struct Merged {
    inputs: Vec<(u16, Box<dyn RxQueue>)>,
    /// Their files.
    paths: Vec<PathBuf>,
    /// By port: the mark of its packets.
    marks: Vec<u32>,
    /// Other packets are passed over.
    filter: Option<Filter>,
    clock: Clock,
    progress: Arc<Progress>,
}

impl Merged {
    /// One live queue, as port 0, until it is to stop.
    pub(crate) fn live(
        queue: impl RxQueue + 'static,
        mark: u32,
        interrupt: &Interrupt,
    ) -> (Self, Arc<Progress>) {
        let progress = Arc::new(Progress::default());
        let queue = UntilStopped { inner: queue, stop: interrupt.stop.clone() };
        let merged = Self {
            inputs: vec![(0, Box::new(queue))],
            paths: Vec::new(),
            marks: vec![mark],
            filter: None,
            clock: Clock::default(),
            progress: progress.clone(),
        };
        (merged, progress)
    }

    /// Takes only packets that the filter matches.
    pub(crate) fn only(&mut self, filter: Filter) {
        self.filter = Some(filter);
    }

    pub(crate) fn open(
        inputs: Vec<(u16, Vec<PathBuf>)>,
        marks: Vec<u32>,
        interrupt: &Interrupt,
        with_faults: impl Fn(u16, Box<dyn RxQueue>) -> Box<dyn RxQueue>,
    ) -> Result<(Self, Arc<Progress>), Failure> {
        let (mut opened, mut files) = (Vec::new(), Vec::new());
        for (port, paths) in inputs {
            let captures = CaptureRx::open_until(paths, interrupt.stop.clone());
            let captures = captures.map_err(Failure::other)?;
            files.extend(captures.waiting().map(Path::to_path_buf));
            opened.push((port, with_faults(port, Box::new(captures))));
        }
        let progress = Arc::new(Progress::default());
        let total = opened.iter().filter_map(|(_, rx)| rx.progress()).map(|(_, total)| total).sum();
        progress.total.store(total, Ordering::Relaxed);
        let own = Self {
            inputs: opened,
            paths: files,
            marks,
            filter: None,
            clock: Clock::default(),
            progress: progress.clone(),
        };
        Ok((own, progress))
    }

    /// The input with the oldest packet.
    fn oldest(&mut self) -> Option<usize> {
        if let [(_, only)] = self.inputs.as_slice() {
            return (!only.is_finished()).then_some(0);
        }
        let times = self.inputs.iter_mut().enumerate();
        times.filter_map(|(i, (_, rx))| Some((rx.peek_time_ns()?, i))).min().map(|(_, i)| i)
    }
}

impl RxQueue for Merged {
    fn recv(&mut self, pool: &mut Pool, out: &mut Vec<Packet>, max: usize) -> usize {
        let mut n = 0;
        while n < max {
            let Some(i) = self.oldest() else { break };
            // A single input is read by the burst; several take turns packet by packet.
            let burst = if self.inputs.len() == 1 { max - n } else { 1 };
            let (port, rx) = &mut self.inputs[i];
            let got = rx.recv(pool, out, burst);
            let mark = self.marks.get(usize::from(*port)).copied().unwrap_or_default();
            let first = out.len() - got;
            let mut at = first;
            while at < out.len() {
                self.clock.packets += 1;
                let packet = &mut out[at];
                packet.port = *port;
                packet.mark |= mark;
                if let Some(filter) = &self.filter {
                    let d = packet::decode::decode(packet.data(), packet.frame_len());
                    if !filter.matches_packet(&d, packet) {
                        out.remove(at).free(pool);
                        continue;
                    }
                }
                self.clock.take(packet.time_ns);
                at += 1;
            }
            let kept = out.len() - first;
            if self.filter.is_some() {
                self.progress.filtered.fetch_add(got as u64, Ordering::Relaxed);
                self.progress.passed_over.fetch_add((got - kept) as u64, Ordering::Relaxed);
            }
            n += kept;
            if got == 0 {
                break;
            }
        }
        let done = self.inputs.iter().filter_map(|(_, rx)| rx.progress()).map(|(done, _)| done);
        self.progress.done.store(done.sum(), Ordering::Relaxed);
        if self.clock.late > 0 {
            *self.progress.clock.lock().unwrap_or_else(PoisonError::into_inner) = self.clock;
        }
        if n == 0 {
            let stats = self.inputs.iter().map(|(port, rx)| (*port, rx.stats())).collect();
            *self.progress.received.lock().unwrap_or_else(PoisonError::into_inner) = stats;
        }
        n
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.inputs.first().filter(|_| self.inputs.len() == 1).and_then(|(_, rx)| rx.fd())
    }

    fn arm(&mut self) -> bool {
        self.inputs.iter_mut().all(|(_, rx)| rx.arm())
    }

    fn is_finished(&self) -> bool {
        self.inputs.iter().all(|(_, rx)| rx.is_finished())
    }

    fn take_error(&mut self) -> Option<String> {
        self.inputs.iter_mut().find_map(|(_, rx)| rx.take_error())
    }

    fn stats(&self) -> QueueStats {
        let mut sum = QueueStats::default();
        self.inputs.iter().for_each(|(_, rx)| sum += rx.stats());
        sum
    }

    fn losses(&self) -> Vec<Arc<Losses>> {
        self.inputs.iter().flat_map(|(_, rx)| rx.losses()).collect()
    }
}

/// Waits for the end, with a bar on a terminal.
fn watch(path: &wiring::DataPath, progress: &Progress) {
    let bar = std::io::stderr().is_terminal().then(|| {
        // The length of a pipe is not known.
        let (bar, style) = match progress.total.load(Ordering::Relaxed) {
            0 => (ProgressBar::new_spinner(), "{bytes}  {msg}"),
            total => (ProgressBar::new(total), "{bar:40} {bytes}/{total_bytes}  {msg}  {eta} left"),
        };
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        bar
    });
    let view = path.engine.view();
    let (mut last, mut then) = (0, Instant::now());
    while !path.engine.is_finished() {
        std::thread::sleep(Duration::from_millis(if bar.is_some() { 100 } else { 2 }));
        if let Some(bar) = &bar {
            let packets: u64 = view.workers.iter().map(|w| w.rx_packets.get()).sum();
            let rate = (packets - last) as f64 / then.elapsed().as_secs_f64();
            (last, then) = (packets, Instant::now());
            bar.set_position(progress.done.load(Ordering::Relaxed));
            bar.set_message(format!("{:.2} Mpackets/s", rate / 1e6));
        }
    }
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_capture_of_dumps_begins_with_the_first_one() {
        let folder = testkit::Scratch::new();
        let path = folder.join("dumped.pcapng");
        let failed = Failed { errors: Arc::default(), stop: Arc::default() };
        drop(Dumped::new(path.clone(), failed.clone()));
        assert!(!path.exists());

        let (_, depot) = chunk::Region::new(16, chunk::HugePages::Off).unwrap();
        let mut pool = Pool::new(depot, 4);
        let mut dumped = Dumped::new(path.clone(), failed.clone());
        for byte in [1, 2] {
            let mut packet = Packet::copy_from(&mut pool, &[byte; 60]).unwrap();
            packet.time_ns = 1_700_000_000_000_000_000 + u64::from(byte);
            dumped.write(&packet);
            packet.free(&mut pool);
        }
        drop(dumped);
        assert!(failed.errors.lock().unwrap().is_empty() && !failed.stop.load(Ordering::Relaxed));
        let mut rx = CaptureRx::open(vec![path]).unwrap();
        let mut packets = Vec::new();
        while !rx.is_finished() {
            rx.recv(&mut pool, &mut packets, 4);
        }
        let read: Vec<_> = packets.iter().map(|p| (p.data()[0], p.time_ns % 10)).collect();
        assert_eq!(read, [(1, 1), (2, 2)]);
        packets.into_iter().for_each(|packet| packet.free(&mut pool));

        let mut lost = Dumped::new(folder.join("absent/dumped.pcapng"), failed.clone());
        let packet = Packet::copy_from(&mut pool, &[0; 60]).unwrap();
        lost.write(&packet);
        lost.write(&packet);
        packet.free(&mut pool);
        let errors = failed.errors.lock().unwrap();
        assert!(errors.len() == 1 && errors[0].contains("dumped.pcapng"), "{errors:?}");
        assert!(failed.stop.load(Ordering::Relaxed));
    }
}
