//! `shadeline devices`: where this machine can shade, whether it answers rightly, and what it costs.
//!
//! Every backend has its place in the list: the CPU, each device, each library without devices and why.
//! A device that answers wrongly makes the command fail; a machine without devices does not.

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::time::Instant;

use control::api::table::{Row, table, thousands};
use device::driver::{Api, DeviceInfo, Driver};
use device::measure::{self, Costs};
use device::{Backend, DeviceError, probe, selftest};
use serde::Serialize;

use crate::cli::DevicesArgs;
use crate::failure::Failure;
use crate::output::{self, note, put};
use crate::programs::kernel_files;

/// Everything that is shown.
#[derive(Serialize)]
struct Report {
    auto: Auto,
    backends: Vec<Entry>,
}

/// Which backend `auto` takes.
#[derive(Serialize)]
struct Auto {
    backend: String,
    why: &'static str,
}

/// A line of the list.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Entry {
    Cpu(Cpu),
    Device(Box<Found>),
    /// A library without devices.
    Absent {
        backend: &'static str,
        reason: String,
    },
}

#[derive(Serialize)]
struct Cpu {
    backend: &'static str,
    name: String,
    /// That this process may use.
    cores: usize,
    simd: &'static str,
    memory_bytes: u64,
}

#[derive(Serialize)]
struct Found {
    backend: String,
    name: String,
    driver: String,
    target: String,
    is_gpu: bool,
    memory_bytes: u64,
    units: u32,
    group_items_max: u32,
    group_bytes: u32,
    self_test: SelfTest,
    #[serde(skip_serializing_if = "Option::is_none")]
    costs: Option<Measured>,
}

#[derive(Serialize)]
struct SelfTest {
    passed: bool,
    time_s: f64,
    /// Why it could not begin.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    kernels: Vec<KernelTest>,
}

#[derive(Serialize)]
struct KernelTest {
    kernel: &'static str,
    passed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    /// Compiling included where it was the first of its file; the same for kernels that answer together.
    time_s: f64,
}

#[derive(Default, Serialize)]
struct Measured {
    /// What ended the measurement early.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    /// Why copies came from ordinary memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    unregistered: Option<String>,
    launches: Vec<Launch>,
    copies: Vec<Copy>,
}

#[derive(Serialize)]
struct Launch {
    items: u32,
    latency_ns_median: u64,
    latency_ns_p99: u64,
}

#[derive(Serialize)]
struct Copy {
    bytes: usize,
    up: Direction,
    down: Direction,
}

#[derive(Serialize)]
struct Direction {
    latency_ns_median: u64,
    latency_ns_p99: u64,
    streamed_bytes_per_s: f64,
}

pub(crate) fn run(args: &DevicesArgs) -> Result<(), Failure> {
    let report = look(args.quick);
    if args.json {
        output::json(&report)?;
    } else {
        put!("{}", text(&report))?;
    }
    let failed: Vec<&str> = devices(&report).filter(|d| !d.works()).map(|d| &*d.backend).collect();
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure::other(format!("{}: a test failed", failed.join(", "))))
}

fn devices(report: &Report) -> impl Iterator<Item = &Found> {
    report.backends.iter().filter_map(|entry| match entry {
        Entry::Device(found) => Some(&**found),
        _ => None,
    })
}

impl Found {
    fn works(&self) -> bool {
        self.self_test.passed && self.costs.as_ref().is_none_or(|c| c.problem.is_none())
    }
}

fn look(quick: bool) -> Report {
    let mut backends = vec![Entry::Cpu(cpu())];
    for probe in probe::devices() {
        backends.push(match probe.found {
            Ok(info) => Entry::Device(Box::new(examine(info, quick))),
            Err(error) => {
                let backend = match probe.api {
                    Api::Cuda => "cuda",
                    Api::OpenCl => "opencl",
                };
                Entry::Absent { backend, reason: reason(error) }
            }
        });
    }
    let mut report = Report { auto: Auto { backend: "cpu".into(), why: "no GPU" }, backends };
    let auto = choice(&report);
    report.auto = auto;
    report
}

/// As `backend::driver` chooses: the first GPU that passes its self-test.
fn choice(report: &Report) -> Auto {
    let mut gpus = devices(report).filter(|found| found.is_gpu).peekable();
    let is_any = gpus.peek().is_some();
    match gpus.find(|found| found.self_test.passed) {
        Some(found) => {
            let why = "the first GPU that passes its self-test";
            Auto { backend: found.backend.clone(), why }
        }
        None if is_any => Auto { backend: "cpu".into(), why: "no GPU passes its self-test" },
        None => Auto { backend: "cpu".into(), why: "there is no GPU" },
    }
}

fn reason(error: DeviceError) -> String {
    match error {
        DeviceError::Absent(reason) => reason,
        other => other.to_string(),
    }
}

fn cpu() -> Cpu {
    let machine = bench::Machine::here();
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = memory.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = kib.and_then(|l| l.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    Cpu {
        backend: "cpu",
        name: machine.cpu,
        cores: machine.cores,
        simd: simd(),
        memory_bytes: kib.unwrap_or(0) * 1024,
    }
}

/// Instructions that the lookups use: they have a vector form for AVX-512 alone.
fn simd() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq") {
        return "AVX-512";
    }
    "none"
}

/// Opens a device, tests it and measures it.
fn examine(info: DeviceInfo, quick: bool) -> Found {
    let backend = match info.api {
        Api::Cuda => Backend::Cuda(info.number),
        Api::OpenCl => Backend::OpenCl(info.number),
    };
    let backend = backend.to_string();
    tell(&backend, "self-test");
    let begin = Instant::now();
    let (self_test, driver) = match probe::open(info.api, info.number) {
        Ok(mut driver) => (self_test(&mut *driver, begin), Some(driver)),
        Err(error) => {
            let (time_s, problem) = (begin.elapsed().as_secs_f64(), Some(reason(error)));
            (SelfTest { passed: false, time_s, problem, kernels: Vec::new() }, None)
        }
    };
    let costs = driver.filter(|_| self_test.passed && !quick).map(|mut driver| {
        tell(&backend, "measuring");
        measured(measure::measure(&mut *driver, &measure::Plan::default()))
    });
    Found {
        backend,
        name: info.name,
        driver: info.driver,
        target: info.target,
        is_gpu: info.is_gpu,
        memory_bytes: info.memory_bytes,
        units: info.units,
        group_items_max: info.group_items_max,
        group_bytes: info.group_bytes,
        self_test,
        costs,
    }
}

/// Shows progress on a terminal: some steps take seconds.
fn tell(backend: &str, what: &str) {
    if std::io::stderr().is_terminal() {
        note!("{backend}: {what} …");
    }
}

fn self_test(driver: &mut dyn Driver, begin: Instant) -> SelfTest {
    let answers = selftest::each(driver, &kernel_files());
    let kernel = |answer: selftest::Answer| KernelTest {
        kernel: answer.kernel,
        passed: answer.result.is_ok(),
        problem: answer.result.err().map(reason),
        time_s: answer.time.as_secs_f64(),
    };
    let kernels: Vec<KernelTest> = answers.into_iter().map(kernel).collect();
    let passed = kernels.iter().all(|kernel| kernel.passed);
    SelfTest { passed, time_s: begin.elapsed().as_secs_f64(), problem: None, kernels }
}

fn measured(costs: Result<Costs, DeviceError>) -> Measured {
    let costs = match costs {
        Ok(costs) => costs,
        Err(error) => return Measured { problem: Some(reason(error)), ..Measured::default() },
    };
    let direction = |way: measure::Direction| Direction {
        latency_ns_median: way.latency_ns_median,
        latency_ns_p99: way.latency_ns_p99,
        streamed_bytes_per_s: way.streamed_bytes_per_s,
    };
    let launch = |cost: measure::LaunchCost| Launch {
        items: cost.items,
        latency_ns_median: cost.latency_ns_median,
        latency_ns_p99: cost.latency_ns_p99,
    };
    let copy = |cost: measure::CopyCost| Copy {
        bytes: cost.bytes,
        up: direction(cost.up),
        down: direction(cost.down),
    };
    Measured {
        problem: None,
        unregistered: costs.unregistered.map(reason),
        launches: costs.launches.into_iter().map(launch).collect(),
        copies: costs.copies.into_iter().map(copy).collect(),
    }
}

fn text(report: &Report) -> String {
    let mut out = table(&report.backends);
    out += &format!("\nauto takes {}: {}\n", report.auto.backend, report.auto.why);
    for found in devices(report) {
        out += &details(found);
    }
    out
}

/// Columns of the titles of [`details`].
const TITLE: usize = 10;

fn details(found: &Found) -> String {
    let mut out = format!("\n{}  {}\n", found.backend, found.name);
    let (items, shared) = (found.group_items_max, bytes(found.group_bytes.into()));
    for (name, value) in [
        ("driver", found.driver.clone()),
        ("units", found.units.to_string()),
        ("groups", format!("up to {} work items that share {shared}", thousands(items.into()))),
    ] {
        out += &format!("{name:<TITLE$}  {value}\n");
    }
    let test = &found.self_test;
    let of = |passed: bool| {
        let of = test.kernels.iter().filter(|kernel| kernel.passed == passed);
        let mut names: Vec<_> = of.map(|kernel| kernel.kernel).collect();
        names.dedup(); // some are asked more than once
        names
    };
    for (title, kernels) in [("passed", of(true)), ("failed", of(false))] {
        for (i, line) in wrapped(&kernels).iter().enumerate() {
            out += &format!("{:<TITLE$}  {line}\n", if i == 0 { title } else { "" });
        }
    }
    let problems = test.kernels.iter().filter_map(|kernel| kernel.problem.as_deref());
    let mut problems: Vec<&str> = test.problem.as_deref().into_iter().chain(problems).collect();
    problems.dedup(); // kernels of one program, or of one sequence
    for problem in problems {
        out += &format!("{:<TITLE$}  {}\n", "problem", problem.trim_end());
    }
    let Some(costs) = &found.costs else { return out };
    if let Some(problem) = &costs.problem {
        return out + &format!("{:<TITLE$}  {problem}\n", "unmeasured");
    }
    if let Some(reason) = &costs.unregistered {
        out += &format!("copies from ordinary memory: {reason}\n");
    }
    out + "\n" + &table(&costs.launches) + "\n" + &table(&costs.copies)
}

/// Words in lines of a terminal's width.
fn wrapped(words: &[&str]) -> Vec<String> {
    const WIDTH: usize = 84;
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut() {
            Some(line) if line.len() + 2 + word.len() <= WIDTH => *line += &format!(", {word}"),
            Some(line) => {
                line.push(',');
                lines.push((*word).to_owned());
            }
            None => lines.push((*word).to_owned()),
        }
    }
    lines
}

impl Row for Entry {
    const COLUMNS: &'static [&'static str] = &["backend", "kind", ">memory", "self-test", "device"];

    fn cells(&self) -> Vec<String> {
        match self {
            Entry::Cpu(cpu) => {
                let cores = if cpu.cores == 1 { "core" } else { "cores" };
                let device = format!("{}; {} {cores}, SIMD: {}", cpu.name, cpu.cores, cpu.simd);
                let memory = bytes(cpu.memory_bytes);
                vec![cpu.backend.into(), "CPU".into(), memory, String::new(), device]
            }
            Entry::Device(found) => {
                let test = &found.self_test;
                // Some are asked more than once.
                let count = |failed: bool| {
                    let kernels = test.kernels.iter().filter(|kernel| !failed || !kernel.passed);
                    kernels.map(|kernel| &kernel.kernel).collect::<BTreeSet<_>>().len()
                };
                let passed = count(false) - count(true);
                let result = match (test.passed, count(false)) {
                    (true, all) => format!("passed: {all} kernels, {:.2} s", test.time_s),
                    (false, 0) => "FAILED".into(),
                    (false, all) => format!("FAILED: {} of {all} kernels", all - passed),
                };
                let kind = if found.is_gpu { "GPU" } else { "other" };
                let memory = bytes(found.memory_bytes);
                vec![found.backend.clone(), kind.into(), memory, result, found.name.clone()]
            }
            Entry::Absent { backend, reason } => {
                let none = String::new;
                vec![(*backend).into(), none(), none(), none(), format!("none: {reason}")]
            }
        }
    }
}

impl Row for Launch {
    const COLUMNS: &'static [&'static str] = &[">launch of items", ">median", ">p99"];

    fn cells(&self) -> Vec<String> {
        let items = thousands(self.items.into());
        vec![items, micros(self.latency_ns_median), micros(self.latency_ns_p99)]
    }
}

impl Row for Copy {
    const COLUMNS: &'static [&'static str] =
        &[">copy of", ">to device", ">p99", ">streamed", ">from device", ">p99", ">streamed"];

    fn cells(&self) -> Vec<String> {
        let mut cells = vec![bytes(self.bytes as u64)];
        for way in [&self.up, &self.down] {
            cells.push(micros(way.latency_ns_median));
            cells.push(micros(way.latency_ns_p99));
            cells.push(format!("{:.3} GB/s", way.streamed_bytes_per_s / 1e9));
        }
        cells
    }
}

fn micros(ns: u64) -> String {
    format!("{}.{} µs", thousands(ns / 1000), ns % 1000 / 100)
}

fn bytes(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 30 => format!("{:.1} GiB", b as f64 / (1u64 << 30) as f64),
        b if b >= 1 << 20 => format!("{} MiB", b >> 20),
        b if b >= 1 << 10 => format!("{} KiB", b >> 10),
        b => format!("{b} B"),
    }
}
