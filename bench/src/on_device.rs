//! `bench device`: what a device does with lookups and payload, from the kernel alone to end to end.
//!
//! On PoCL, where the "device" is the same cores, only the ratios between variants mean something: many
//! chunks in a launch against one, overlap against one after the other, packed payload against cells,
//! rows in order of length against rows as they came. Answers are compared with the CPU's.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use apps::router::FibImages;
use chunk::{Arena, Columns, JobHeader, Layout};
use device::accelerator::{Accelerator, Options};
use device::driver::{Arguments, Driver, Event, Kernel, Memory, Program, Queue, Shape};
use device::measure::{self, Costs};
use device::tables::TableSource;
use device::{Backend, Device, probe};
use kernels::image::ImageLayout;
use kernels::{KernelFile, LpmColumns, Spec};
use lookup::fib::Fib;
use lookup::versions::{Pin, versions};
use lookup::{Key6, Prefix};

use crate::app_kernels;
use crate::flow_kernels;
use crate::ipsec::IpsecArgs;
use crate::lookup_job::{self, Kind, LookupJob, LookupKernels};
use crate::payload;
use crate::regex_kernels;
use crate::tables::{self, Spread, keys4, keys6};
use crate::{Args, ClassifyArgs, PaperArgs, Report, Row, What};

/// Rows of the largest job.
const ROWS: usize = 1 << 20;

/// Jobs of as many rows that the kernels alone go through in turn: their keys, and the parts of the tables
/// that they touch, are more than a device's caches hold.
const BATCHES: usize = 16;

/// Words of a table that are sent at a time.
const PIECE_WORDS: usize = 4 << 20;

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Refuses a backend that a benchmark cannot measure.
///
/// # Errors
/// What is accepted in its place.
pub fn check_backend(args: &Args) -> Result<(), String> {
    let (name, backend) = match &args.what {
        What::Device { backend, .. } => ("device", *backend),
        What::Update { backend: Some(backend), .. } => ("update", *backend),
        What::Delay { backend: Some(backend), .. } => ("delay", *backend),
        What::Classify(ClassifyArgs { backend: Some(backend), .. }) => ("classify", *backend),
        What::Paper(PaperArgs { backend: Some(backend), .. }) => ("paper", *backend),
        What::Ipsec(IpsecArgs { backend: Some(backend), .. }) => ("ipsec", *backend),
        _ => return Ok(()),
    };
    if matches!(backend, Backend::Cpu | Backend::Sim) {
        return Err(format!(
            "bench {name} --backend {backend}: there are no kernels to measure; \
             expected auto, opencl, opencl:N, cuda or cuda:N"
        ));
    }
    Ok(())
}

/// Opens the device that was asked for; `auto` takes a GPU, else the first OpenCL device there is.
pub(crate) fn open(backend: Backend) -> Result<Box<dyn Driver>, String> {
    let (api, number) = match backend.device() {
        Some(named) => named,
        None => {
            let mut found: Vec<_> =
                probe::devices().into_iter().filter_map(|probe| probe.found.ok()).collect();
            found.sort_by_key(|info| !info.is_gpu);
            let info = found.first().ok_or("there is no OpenCL or CUDA device here")?;
            (info.api, info.number)
        }
    };
    probe::open(api, number).map_err(|e| format!("--backend {backend}: {e}"))
}

pub(crate) fn run(
    args: &Args,
    (routes, rules): (&Path, &Path),
    backend: Backend,
    seconds: f64,
) -> Result<Report, String> {
    let routes = tables::routes(routes)?;
    let prefixes4: Vec<_> = routes.v4.iter().map(|(p, _)| *p).collect();
    let prefixes6: Vec<_> = routes.v6.iter().map(|(p, _)| *p).collect();
    let (builder, fib) = tables::fib(&routes, tables::of_kernels())?;
    drop(builder);
    let mut driver = open(backend)?;
    let info = driver.info().clone();
    let data = format!(
        "{}, {}; {} IPv4 and {} IPv6 routes, addresses inside prefixes",
        info.name,
        info.driver,
        prefixes4.len(),
        prefixes6.len()
    );
    let mut report = Report::new("device", data);
    let costs = measure::measure(&mut *driver, &measure::Plan::default()).map_err(text)?;
    copies(&costs, &mut report);
    drop(driver);

    let keys4 = keys4(&prefixes4, ROWS, Spread::Prefixes, 7);
    let keys6 = keys6(&prefixes6, ROWS, Spread::Prefixes, 8);
    let (writer, reader) = versions(fib);
    let pin = Arc::new(reader.pin());
    let source = || Box::new(FibImages::new(writer.changes(), 0));

    // Each variant has a device of its own; rounds go through all of them in turn.
    let time = Duration::from_secs_f64(seconds);
    let mut variants = Vec::new();
    for (name, rows, slots, overlap) in [
        ("jobs of 256 rows, 4 in flight", 256, 4, true),
        ("jobs of 8,192 rows, 4 in flight", 8192, 4, true),
        ("jobs of 8,192 rows, 4 in one queue", 8192, 4, false),
        ("jobs of 8,192 rows, one after the other", 8192, 1, false),
        ("jobs of 1,048,576 rows, 4 in flight", ROWS, 4, true),
    ] {
        let options = Options { slots, overlap, patience: PATIENCE, ..Options::default() };
        let made = lookup_job::accelerator::<Pin<Fib>>(
            open(backend)?,
            source(),
            LookupKernels::default(),
            rows,
            options,
        );
        let (device, arenas) = made.map_err(text)?;
        variants.push(Variant { name, rows, device, arenas, rates: [Vec::new(), Vec::new()] });
    }
    for _ in 0..args.rounds.max(1) {
        for variant in &mut variants {
            for kind in [Kind::V4, Kind::V6] {
                let rate = stream(variant, &pin, kind, &keys4, &keys6, time)?;
                variant.rates[kind as usize].push(rate);
            }
        }
    }
    let peak =
        |pick: fn(&measure::CopyCost) -> f64| costs.copies.iter().map(pick).fold(0.0, f64::max);
    let (up, down) = (peak(|c| c.up.streamed_bytes_per_s), peak(|c| c.down.streamed_bytes_per_s));
    for variant in &variants {
        for (kind, name, bytes) in [(Kind::V4, "IPv4", 4.0), (Kind::V6, "IPv6", 16.0)] {
            let rates = variant.rates[kind as usize].clone();
            // Both directions may run at once: the slower one is the limit.
            let limit = (up / bytes).min(down / 4.0) / 1e6;
            let share: Vec<_> = rates.iter().map(|rate| rate / limit).collect();
            report.rows.push(Row::new(format!("{name}, {}", variant.name), "M/s", rates));
            if variant.rows == ROWS {
                let row = Row::new(format!("{name}, share of the copy limit"), "ratio", share);
                let row = if info.is_gpu { row.at_least(0.8) } else { row };
                report.rows.push(row.note(format!("{limit:.0} M/s by copies alone")));
            }
        }
    }
    latency(&mut variants, &pin, &keys4, args.rounds, info.is_gpu, &mut report)?;
    drop(variants);
    kernels_alone(args, backend, &pin, &source(), (&prefixes4[..], &prefixes6[..]), &mut report)?;
    payload::run(args, backend, seconds, &mut report)?;
    let mut driver = open(backend)?;
    flow_kernels::run(&mut *driver, args.rounds, &mut report)?;
    app_kernels::run(&mut *driver, args.rounds, &mut report)?;
    regex_kernels::run(&mut *driver, args.rounds, rules, &mut report)?;
    Ok(report)
}

struct Variant {
    name: &'static str,
    rows: usize,
    device: Accelerator<LookupJob>,
    arenas: Vec<Arena>,
    /// By family.
    rates: [Vec<f64>; 2],
}

fn copies(costs: &Costs, report: &mut Report) {
    for launch in &costs.launches {
        let name = format!("empty launch of {} items: median", launch.items);
        report.rows.push(Row::new(name, "us", vec![launch.latency_ns_median as f64 / 1e3]));
    }
    for copy in &costs.copies {
        for (way, direction) in [("up", &copy.up), ("down", &copy.down)] {
            let name = format!("copy {way}, {} bytes", copy.bytes);
            report.rows.push(Row::new(name, "GB/s", vec![direction.streamed_bytes_per_s / 1e9]));
        }
    }
}

/// Jobs one behind the other for `time`; million lookups a second. The first job's answers are checked.
fn stream(
    variant: &mut Variant,
    pin: &Arc<Pin<Fib>>,
    kind: Kind,
    keys4: &[u32],
    keys6: &[Key6],
    time: Duration,
) -> Result<f64, String> {
    let rows = variant.rows;
    let slots = variant.device.slots();
    // Keys lie in the arenas already, as the workers of an engine leave them there.
    let mut ready: VecDeque<LookupJob> = VecDeque::new();
    for (i, arena) in variant.arenas.iter().take(slots).enumerate() {
        arena.close();
        arena.reopen();
        let at = i * rows % (ROWS - rows + 1).max(1);
        let keys = (&keys4[at..at + rows], &keys6[at..at + rows]);
        ready.push_back(lookup_job::job(arena, pin, kind, keys.0, keys.1)?);
    }
    let (mut begin, mut done, mut is_checked) = (Instant::now(), 0u64, false);
    loop {
        while let Some(job) = ready.pop_front() {
            if let Err((_, error)) = variant.device.launch(job) {
                return Err(error.map_or("no slot".into(), |e| e.to_string()));
            }
        }
        let Some((mut job, result)) = variant.device.retire(PATIENCE) else {
            return Err("a job does not come back".into());
        };
        result.map_err(text)?;
        if !is_checked {
            // The first one brings the tables along and is not timed.
            lookup_job::check(&mut job).map_err(|e| format!("{}: {e}", variant.name))?;
            (is_checked, begin, done) = (true, Instant::now(), 0);
        } else {
            done += job.rows.len() as u64;
        }
        if begin.elapsed() >= time && done > 0 {
            break;
        }
        ready.push_back(job);
    }
    let rate = done as f64 / begin.elapsed().as_secs_f64() / 1e6;
    while variant.device.in_flight() > 0 {
        variant.device.retire(PATIENCE);
    }
    Ok(rate)
}

/// From launch to result, one job at a time.
fn latency(
    variants: &mut [Variant],
    pin: &Arc<Pin<Fib>>,
    keys4: &[u32],
    rounds: usize,
    is_gpu: bool,
    report: &mut Report,
) -> Result<(), String> {
    const JOBS: usize = 300;
    for (rows, bound_us) in [(256, 30.0), (8192, 100.0)] {
        let Some(variant) = variants.iter_mut().find(|v| v.rows == rows) else { continue };
        let (mut medians, mut tails) = (Vec::new(), Vec::new());
        for _ in 0..rounds.max(1) {
            let mut times = Vec::new();
            for i in 0..JOBS {
                let arena = &variant.arenas[0];
                arena.close();
                arena.reopen();
                let at = i * rows % (ROWS - rows);
                let job = lookup_job::job(arena, pin, Kind::V4, &keys4[at..at + rows], &[])?;
                let begin = Instant::now();
                lookup_job::run(&mut variant.device, job)?;
                times.push(begin.elapsed().as_secs_f64() * 1e6);
            }
            times.sort_by(f64::total_cmp);
            medians.push(times[JOBS / 2]);
            tails.push(times[JOBS * 99 / 100]);
        }
        let row = Row::new(format!("launch to result, {rows} rows: median"), "us", medians);
        report.rows.push(if is_gpu { row.at_most(bound_us) } else { row });
        report.rows.push(Row::new(format!("launch to result, {rows} rows: 99 %"), "us", tails));
    }
    Ok(())
}

/// A batch of keys and its answers, on the device.
struct Batch {
    arena: Memory,
    /// Byte offset of the answers.
    result: usize,
    first: usize,
}

/// The kernels alone: keys and answers stay on the device. The launches of a round go through all batches
/// in turn, twice; the time is the device's own where its library measures it.
fn kernels_alone(
    args: &Args,
    backend: Backend,
    pin: &Arc<Pin<Fib>>,
    source: &FibImages,
    prefixes: (&[Prefix<u32>], &[Prefix<u128>]),
    report: &mut Report,
) -> Result<(), String> {
    let mut device = open(backend)?;
    let driver = &mut *device;
    let is_gpu = driver.info().is_gpu;
    let kernels = driver.build(&lookup_job::program(), &["lpm4", "lpm6"]).map_err(text)?;
    let regions = source.regions(pin);
    let image = send_image(driver, &regions.iter().map(|words| &**words).collect::<Vec<_>>())?;
    let queue = driver.queue().map_err(text)?;
    let n = BATCHES * ROWS;
    let keys4 = keys4(prefixes.0, n, Spread::Prefixes, 17);
    let keys6 = keys6(prefixes.1, n, Spread::Prefixes, 18);
    for (kind, name, aim) in [(0, "IPv4", 10_000.0), (1, "IPv6", 3_000.0)] {
        let (column, width) =
            if kind == 0 { (LpmColumns::DST4, 4) } else { (LpmColumns::DST6, 16) };
        let layout = Layout::new(LpmColumns::COLUMNS, ROWS);
        // Only the columns that the kernel touches.
        let mut header = vec![0; layout.header_bytes()];
        let (key_at, result) = (header.len(), header.len() + width * ROWS);
        layout.write_header(0, ROWS as u32, 1, &mut header);
        for (column, at) in [(column, key_at), (LpmColumns::RESULT, result)] {
            JobHeader::write_offset(&mut header, layout.column(column), at as u32);
        }
        let mut batches = Vec::new();
        for first in (0..n).step_by(ROWS) {
            let keys: Vec<u8> = match kind {
                0 => keys4[first..][..ROWS].iter().flat_map(|key| key.to_ne_bytes()).collect(),
                _ => {
                    let words = keys6[first..][..ROWS].iter().flatten();
                    words.flat_map(|word| word.to_ne_bytes()).collect()
                }
            };
            let arena = driver.allocate(result + 4 * ROWS).map_err(text)?;
            let parts = [(&header[..], 0), (&keys[..], key_at)];
            device::upload_all(driver, queue, arena, &parts, PATIENCE).map_err(text)?;
            batches.push(Batch { arena, result, first });
        }
        let shape = Shape::of_rows(ROWS, 256);
        let launch = |batch: &Batch| {
            let arena = batch.arena;
            let arguments =
                Arguments { arena, payload: arena, tables: image, state: arena, job: 0 };
            (kernels[kind], shape, arguments)
        };
        let twice: Vec<_> = batches.iter().chain(&batches).map(launch).collect();
        timed(driver, queue, &twice[..BATCHES])?;
        for batch in &batches {
            check_batch(driver, queue, pin, batch, (kind, &keys4[..], &keys6[..]))?;
        }
        let (mut rates, mut clock) = (Vec::new(), "");
        for _ in 0..args.rounds.max(1) {
            let (time, by) = timed(driver, queue, &twice)?;
            clock = by;
            rates.push((twice.len() * ROWS) as f64 / time.as_secs_f64() / 1e6);
        }
        for batch in &batches {
            driver.free(batch.arena);
        }
        let row = Row::new(format!("{name}, kernel alone"), "M/s", rates);
        let row = if is_gpu { row.at_least(aim) } else { row };
        report.rows.push(row.note(format!("{n} keys in turn; {clock}")));
    }
    Ok(())
}

/// Compares a batch's answers with the CPU's.
fn check_batch(
    driver: &mut dyn Driver,
    queue: Queue,
    pin: &Pin<Fib>,
    batch: &Batch,
    (kind, keys4, keys6): (usize, &[u32], &[Key6]),
) -> Result<(), String> {
    let mut wanted = vec![0; ROWS];
    match kind {
        0 => pin.lookup4(&keys4[batch.first..][..ROWS], &mut wanted),
        _ => pin.lookup6(&keys6[batch.first..][..ROWS], &mut wanted),
    }
    let mut got = vec![0u8; 4 * ROWS];
    device::download_all(driver, queue, batch.arena, batch.result, &mut got, PATIENCE)
        .map_err(text)?;
    let got = got.chunks_exact(4).map(|b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]]));
    match got.eq(wanted.iter().copied()) {
        true => Ok(()),
        false => Err(format!("kernel {kind} alone gives other answers than the CPU")),
    }
}

/// Time of launches, the last one's end included, and whose clock it is.
pub(crate) fn timed(
    driver: &mut dyn Driver,
    queue: Queue,
    launches: &[(Kernel, Shape, Arguments)],
) -> Result<(Duration, &'static str), String> {
    if let Some(time) = driver.timed(launches, PATIENCE).map_err(text)? {
        return Ok((time, "by the device's events"));
    }
    let begin = Instant::now();
    for (kernel, shape, arguments) in launches {
        driver.launch(queue, *kernel, *shape, arguments).map_err(text)?;
    }
    finish(driver, queue)?;
    Ok((begin.elapsed(), "by the host's clock"))
}

pub(crate) fn finish(driver: &mut dyn Driver, queue: Queue) -> Result<(), String> {
    let event: Event = driver.event(queue).map_err(text)?;
    match driver.wait(event, PATIENCE).map_err(text)? {
        true => Ok(()),
        false => Err("the device hangs".into()),
    }
}

/// Tables as one image on the device, by region.
pub(crate) fn send_image(driver: &mut dyn Driver, regions: &[&[u32]]) -> Result<Memory, String> {
    let lens: Vec<_> = regions.iter().map(|words| (words.len(), words.len())).collect();
    let layout = ImageLayout::new(&lens);
    let memory = driver.allocate(layout.bytes()).map_err(text)?;
    let queue = driver.queue().map_err(text)?;
    let mut send = |words: &[u32], at: usize| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        device::upload_all(driver, queue, memory, &[(&bytes, at)], PATIENCE).map_err(text)
    };
    send(&layout.header(1), 0)?;
    for (region, words) in regions.iter().enumerate() {
        let start = layout.region(region).offset_words;
        // A table may have gigabytes.
        for (piece, words) in words.chunks(PIECE_WORDS).enumerate() {
            send(words, 4 * (start + piece * PIECE_WORDS))?;
        }
    }
    Ok(memory)
}

/// A program of one file of kernels, over these columns, and a text of its own.
pub(crate) fn program_of(
    name: &'static str,
    files: &[&'static KernelFile],
    columns: &[chunk::ColumnDesc],
    own: &str,
) -> Program {
    let spec = Spec::new(name, files, columns);
    let source = kernels::source_with(&spec, own);
    Program { name: name.into(), source, defines: Vec::new(), ptx: None }
}

pub(crate) fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
