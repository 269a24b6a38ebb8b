//! `bench shade`: lookups on a device against the best form of the CPU, by the size of the batch.
//!
//! Kalia et al. (NSDI 2015) held against GPUs in packet processing that they win by hiding the latency of memory, and
//! that a core does so too when it takes turns among the lookups of a batch. So a device must be compared with the
//! best form of the CPU, not with the plain one, and on the four lookups of that paper: IPv4, IPv6, layer 2 and names.
//!
//! ```text
//!  CPU, plain        chunks of 256 rows, one key after the other         ┐ one core, its own time
//!  CPU, best form    chunks of 256 rows, the table's own choice          ┘
//!  device, alone     keys, answers and table on the device               its events' time
//!  device, whole     columns up ─ kernel ─ answers down, 4 jobs at once  the clock on the wall, one core drives it
//! ```
//!
//! All read the same columns and answer into the same ones. Names include hashing on both sides, and come to the device
//! as payload, packed by the host. In each round all rows of a load are measured once, in turn. Answers of the device
//! are compared with the CPU's plain form, row by row, and so are the best form's.

mod alone;
mod jobs;
mod loads;

use std::path::PathBuf;
use std::time::Duration;

use device::driver::Program;
use device::{Backend, Cost, Device, FaultPlan, SimulatedDevice};
use kernels::{KernelFile, files};

use crate::forms::ratio;
use crate::on_device::{open, text};
use crate::report::median;
use crate::{Args, Report, RoutesArg, Row, l2, names};
use alone::Alone;
use jobs::{Batch, Keys};
use loads::{Form, Load};

/// Rows of a batch.
const SIZES: [usize; 5] = [256, 1024, 4096, 16_384, 65_536];

/// Jobs in flight.
const SLOTS: usize = 4;

const PATIENCE: Duration = Duration::from_secs(60);

/// What is to be looked up, and where.
#[derive(Debug, Clone, clap::Args)]
pub struct ShadeArgs {
    /// The device: auto (a GPU if there is one, else the first OpenCL device), cpu (none), sim, opencl, opencl:N, cuda or cuda:N
    #[arg(long, default_value = "auto", value_name = "BACKEND")]
    pub backend: Backend,
    /// Seconds per row and round
    #[arg(long, default_value_t = 0.2)]
    pub seconds: f64,
    /// Which lookups
    #[arg(long, value_enum, value_delimiter = ',', default_value = "ipv4,ipv6,l2,names")]
    pub loads: Vec<ShadeLoad>,
    /// Number of keys; for names at most 262,144
    #[arg(long, default_value_t = 1 << 20)]
    pub keys: usize,
    /// Stations in the large layer-2 table; the small one has a million
    #[arg(long, default_value_t = 16 << 20)]
    pub stations: usize,
    /// Number of name prefixes, including the real names
    #[arg(long, default_value_t = 1_000_000)]
    pub prefixes: usize,
    /// The folder of the lists of URLs and domains
    #[arg(long, value_name = "FOLDER", default_value = names::DEFAULT_NAMES)]
    pub names: PathBuf,
    /// The routing table
    #[command(flatten)]
    pub routes: RoutesArg,
}

/// A kind of lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ShadeLoad {
    /// Poptrie, the full table.
    Ipv4,
    /// Multibit trie, the full table.
    Ipv6,
    /// Stations of a switch, in two sizes.
    L2,
    /// Prefixes of names.
    Names,
}

/// Where batches go beside the CPU.
enum Target {
    /// Nowhere.
    None,
    /// To threads that do what the CPU does.
    Simulated,
    /// To a device.
    Device(Backend),
}

/// The programs of all loads.
pub(crate) fn programs() -> Vec<Program> {
    let of = |file: &'static KernelFile| {
        crate::on_device::program_of(file.name, &[file], file.columns, "")
    };
    [&files::TRIES, &apps::switch::kernels::BRIDGE, &files::NAMES].map(of).into()
}

pub(crate) fn run(args: &Args, options: &ShadeArgs) -> Result<Report, String> {
    let sizes: Vec<usize> = SIZES.into_iter().filter(|size| *size <= options.keys).collect();
    if sizes.is_empty() || options.loads.is_empty() {
        return Err(format!("nothing to look up: at least {} keys of one load", SIZES[0]));
    }
    if !(0.0..=3600.0).contains(&options.seconds) {
        return Err(format!("--seconds {}: expected 0 to 3600", options.seconds));
    }
    let (target, device) = target(options.backend)?;
    let data = format!(
        "{} keys, {SLOTS} jobs in flight; {device}; the CPU: one core, chunks of 256",
        options.keys
    );
    let mut report = Report::new("shade", data);
    for load in &options.loads {
        // One after the other, so that the tables need not be in memory together.
        let keys = options.keys;
        match load {
            ShadeLoad::Ipv4 => {
                measure(
                    loads::ipv4(&options.routes.routes, keys)?,
                    &target,
                    args,
                    options,
                    &mut report,
                )?;
            }
            ShadeLoad::Ipv6 => {
                measure(
                    loads::ipv6(&options.routes.routes, keys)?,
                    &target,
                    args,
                    options,
                    &mut report,
                )?;
            }
            ShadeLoad::L2 => {
                let mut stations = vec![l2::FEW.min(options.stations), options.stations];
                stations.dedup();
                for stations in stations {
                    measure(loads::l2(stations, keys)?, &target, args, options, &mut report)?;
                }
            }
            ShadeLoad::Names => {
                let load = loads::names(&options.names, options.prefixes, keys)?;
                measure(load, &target, args, options, &mut report)?;
            }
        }
    }
    Ok(report)
}

/// The device that was asked for, and what is to be said of it.
fn target(backend: Backend) -> Result<(Target, String), String> {
    let (driver, none) = match backend {
        Backend::Cpu => (None, "--backend cpu".to_owned()),
        Backend::Sim => return Ok((Target::Simulated, "simulated device".to_owned())),
        Backend::Auto => open(backend).map_or_else(|why| (None, why), |d| (Some(d), String::new())),
        Backend::OpenCl(_) | Backend::Cuda(_) => (Some(open(backend)?), String::new()),
    };
    Ok(match driver {
        None => (Target::None, format!("no device, rows of the CPU only: {none}")),
        Some(driver) => {
            let info = driver.info();
            (Target::Device(backend), format!("device {}, {}", info.name, info.driver))
        }
    })
}

/// One row of a report, a figure a round.
struct Figures {
    line: &'static str,
    size: Option<usize>,
    rates: Vec<f64>,
}

impl Figures {
    fn name(&self) -> String {
        let size = self.size.map(|size| format!(", batches of {size}")).unwrap_or_default();
        format!("{}{size}", self.line)
    }
}

const PLAIN: &str = "CPU, plain";
const BEST: &str = "CPU, best form";
const ALONE: &str = "device, kernel alone";
const WHOLE: &str = "device, end to end";

/// A load on both sides.
struct Sides {
    keys: Keys,
    sizes: Vec<usize>,
    device: Option<Box<dyn Device<Batch>>>,
    alone: Option<Alone>,
}

impl Sides {
    fn new(load: Box<dyn Load>, target: &Target) -> Result<Self, String> {
        let mut keys = Keys::new(load)?;
        let sizes: Vec<_> = SIZES.into_iter().filter(|size| *size <= keys.load.len()).collect();
        let rows_max = sizes.last().copied().unwrap_or_default();
        let (device, alone): (Option<Box<dyn Device<Batch>>>, _) = match target {
            Target::None => (None, None),
            Target::Simulated => {
                let cost = Cost { launch: Duration::ZERO, row: Duration::ZERO };
                let faults = FaultPlan::default();
                let device = SimulatedDevice::new(SLOTS, cost, faults).map_err(text)?;
                (Some(Box::new(device)), None)
            }
            Target::Device(backend) => {
                let device = keys.accelerator(open(*backend)?, rows_max, SLOTS)?;
                (Some(device), Some(Alone::new(open(*backend)?, &mut keys, &sizes)?))
            }
        };
        Ok(Self { keys, sizes, device, alone })
    }

    /// Measures every row once, and hands out its line, its batch, million lookups a second, and the first key
    /// whose answer is wrong.
    fn round(
        &mut self,
        seconds: f64,
        found: &mut dyn FnMut(&'static str, Option<usize>, f64, Option<usize>),
    ) -> Result<(), String> {
        let Self { keys, sizes, device, alone } = self;
        let (time, lookups) = (Duration::from_secs_f64(seconds), keys.load.lookups() as f64);
        for (line, form) in [(PLAIN, Form::Plain), (BEST, Form::Best)] {
            let mut batches = keys.batches(chunk::CHUNK_PACKETS_MAX)?;
            let rate = keys.on_cpu(&mut batches, form, seconds);
            found(line, None, lookups * rate, keys.wrong(&batches));
            keys.put_back(batches);
        }
        if let Some(alone) = alone {
            for &size in &*sizes {
                let rate = alone.rate(size, time)?;
                found(ALONE, Some(size), lookups * rate, alone.wrong(keys, size)?);
            }
        }
        if let Some(device) = device {
            for &size in &*sizes {
                let (rate, batches) = jobs::stream(&mut **device, keys.batches(size)?, time)?;
                found(WHOLE, Some(size), lookups * rate, keys.wrong(&batches));
                keys.put_back(batches);
            }
        }
        Ok(())
    }
}

/// Measures a load in all rounds.
fn measure(
    load: Box<dyn Load>,
    target: &Target,
    args: &Args,
    options: &ShadeArgs,
    report: &mut Report,
) -> Result<(), String> {
    let (name, about) = (load.name(), load.about());
    let mut sides = Sides::new(load, target)?;
    let (mut figures, mut wrong): (Vec<Figures>, Vec<String>) = (Vec::new(), Vec::new());
    // The first round is not counted: it brings the tables to the device and pages to the CPU.
    for round in 0..=args.rounds.max(1) {
        let seconds = if round == 0 { 0.0 } else { options.seconds };
        sides.round(seconds, &mut |line, size, rate, key| {
            let at = figures.iter().position(|row| row.line == line && row.size == size);
            let at = at.unwrap_or_else(|| {
                figures.push(Figures { line, size, rates: Vec::new() });
                figures.len() - 1
            });
            if round > 0 {
                figures[at].rates.push(rate);
            }
            let text =
                |key| format!("{name}: {}: key {key} has another answer", figures[at].name());
            wrong.extend(key.map(text));
        })?;
    }
    wrong.sort_unstable();
    wrong.dedup(); // the same key in each round
    report.wrong.extend(wrong);
    let alone = sides.alone.as_ref();
    let alone_note = |size| alone.map_or_else(String::new, |alone| alone.note(size));
    tell(&name, &about, &alone_note, &figures, report);
    Ok(())
}

/// Adds the rows of a load.
fn tell(
    name: &str,
    about: &str,
    alone_note: &dyn Fn(usize) -> String,
    figures: &[Figures],
    report: &mut Report,
) {
    for row in figures {
        let note = match (row.line, row.size) {
            (PLAIN, _) => about.to_owned(),
            (ALONE, Some(size)) => alone_note(size),
            _ => String::new(),
        };
        let of = format!("{name}: {}", row.name());
        let made = Row::new(of, "Mlookups/s", row.rates.clone()).note(note);
        report.rows.push(made.curve(name, row.line, row.size));
    }
    // Whichever form is the best: in a small table it may be the plain one.
    let cpu = figures.iter().filter(|row| row.size.is_none());
    let Some(best) = cpu.max_by(|a, b| median(&a.rates).total_cmp(&median(&b.rates))) else {
        return;
    };
    let mut whole = figures.iter().filter(|row| row.line == WHOLE).peekable();
    if whole.peek().is_none() {
        return;
    }
    let mut wins = None;
    for row in whole {
        let size = row.size.unwrap_or_default();
        let of = format!("{name}: device, end to end / {}, batches of {size}", best.line);
        let row = ratio(of, &row.rates, &best.rates);
        wins = wins.or((row.median > 1.0).then_some(size));
        report.rows.push(row);
    }
    let row = Row::new(
        format!("{name}: batch at which the device wins"),
        "rows",
        vec![wins.unwrap_or_default() as f64],
    );
    report.rows.push(row.note(if wins.is_none() { "never here" } else { "" }));
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use device::DeviceError;
    use testkit::Scratch;

    use super::*;
    use crate::What;

    const KEYS: usize = 1500; // the last batch of each size is a part of one

    fn arguments(folder: &Scratch, backend: Backend) -> (Args, ShadeArgs) {
        let routes = (1..99).flat_map(|n| {
            [format!("{n}.{n}.0.0/17 a"), format!("{n}.0.0.0/9 b"), format!("2001:{n}::/33 c")]
        });
        let routes = folder.write("routes", &routes.collect::<Vec<_>>().join("\n"));
        let urls = (0..40).map(|n| format!("http://www{n}.example.org/a{n}/b/{}", n % 7));
        folder.write("urls-kasztp.txt", &urls.collect::<Vec<_>>().join("\n"));
        folder.write("opendns-top-domains.txt", "example.com\nexample.net\n");
        let options = ShadeArgs {
            backend,
            seconds: 0.002,
            loads: vec![ShadeLoad::Ipv4, ShadeLoad::Ipv6, ShadeLoad::L2, ShadeLoad::Names],
            keys: KEYS,
            stations: 5000,
            prefixes: 300,
            names: folder.path().to_owned(),
            routes: RoutesArg { routes },
        };
        let args = Args {
            what: What::Shade(options.clone()),
            rounds: 2,
            json: false,
            against: None,
            plot: None,
        };
        (args, options)
    }

    const LOADS: [&str; 4] = ["IPv4", "IPv6", "layer 2, 5000 stations", "names"];

    /// The names of the rows of a report, and that each has its figures.
    fn rows(report: &Report) -> Vec<&str> {
        assert!(report.wrong.is_empty(), "{:?}", report.wrong);
        for row in &report.rows {
            let is_choice = row.unit == "rows";
            assert_eq!(row.rounds.len(), if is_choice { 1 } else { 2 }, "{}", row.name);
            assert!(is_choice || row.median > 0.0, "{}", row.name);
            assert_eq!(row.curve.is_some(), row.unit == "Mlookups/s", "{}", row.name);
        }
        report.rows.iter().map(|row| row.name.as_str()).collect()
    }

    fn expected(of_load: &[&str]) -> Vec<String> {
        LOADS
            .iter()
            .flat_map(|load| of_load.iter().map(move |row| format!("{load}: {row}")))
            .collect()
    }

    #[test]
    fn a_device_is_measured_alone_and_end_to_end_and_answers_as_the_cpu() {
        if !testkit::require_opencl() {
            return;
        }
        let folder = Scratch::new();
        let (args, options) = arguments(&folder, Backend::OpenCl(0));
        let report = run(&args, &options).unwrap();
        let names = rows(&report);
        assert_eq!(names.len(), 4 * 9, "{names:?}");
        for row in expected(&[
            "CPU, plain",
            "CPU, best form",
            "device, kernel alone, batches of 256",
            "device, kernel alone, batches of 1024",
            "device, end to end, batches of 256",
            "device, end to end, batches of 1024",
            "batch at which the device wins",
        ]) {
            assert!(names.contains(&row.as_str()), "{row} is not among {names:?}");
        }
        assert!(report.data.contains("; device ") && !report.data.contains("no device"));
    }

    #[test]
    fn without_a_device_the_cpu_has_its_rows() {
        let folder = Scratch::new();
        let (args, options) = arguments(&folder, Backend::Cpu);
        let report = run(&args, &options).unwrap();
        assert_eq!(rows(&report), expected(&["CPU, plain", "CPU, best form"]));
        assert!(report.data.contains("no device, rows of the CPU only: --backend cpu"));
    }

    #[test]
    fn the_simulated_device_has_no_kernels() {
        let folder = Scratch::new();
        let (args, options) = arguments(&folder, Backend::Sim);
        let report = run(&args, &options).unwrap();
        let names = rows(&report);
        assert_eq!(names.len(), 4 * 7, "{names:?}");
        assert!(!names.iter().any(|name| name.contains("alone")), "{names:?}");
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        let folder = Scratch::new();
        let (args, options) = arguments(&folder, Backend::Cpu);
        for wrong in [
            ShadeArgs { keys: 255, ..options.clone() },
            ShadeArgs { loads: Vec::new(), ..options.clone() },
            ShadeArgs { stations: 0, ..options.clone() },
            ShadeArgs { prefixes: 0, ..options.clone() },
            ShadeArgs { seconds: -1.0, ..options.clone() },
            ShadeArgs { seconds: f64::NAN, ..options.clone() },
            ShadeArgs { names: folder.join("nothing"), ..options },
        ] {
            assert!(run(&args, &wrong).is_err(), "{wrong:?}");
        }
    }

    /// Gives back what it was given.
    struct Idle(VecDeque<Batch>);

    impl Device<Batch> for Idle {
        fn name(&self) -> String {
            "idle".into()
        }
        fn slots(&self) -> usize {
            2
        }
        fn launch(&mut self, job: Batch) -> Result<(), (Batch, Option<DeviceError>)> {
            self.0.push_back(job);
            Ok(())
        }
        fn retire(&mut self, _: Duration) -> Option<(Batch, Result<(), DeviceError>)> {
            self.0.pop_front().map(|job| (job, Ok(())))
        }
        fn in_flight(&self) -> usize {
            self.0.len()
        }
    }

    #[test]
    fn a_device_that_does_not_answer_is_found() {
        let folder = Scratch::new();
        let (_, options) = arguments(&folder, Backend::Cpu);
        for load in [
            loads::ipv4(&options.routes.routes, KEYS),
            loads::ipv6(&options.routes.routes, KEYS),
            loads::l2(5000, KEYS),
            loads::names(&options.names, options.prefixes, KEYS),
        ] {
            let mut keys = Keys::new(load.unwrap()).unwrap();
            let batches = keys.batches(256).unwrap();
            assert_eq!(keys.wrong(&batches), None, "none of them has ended");
            let mut idle = Idle(VecDeque::new());
            let (_, batches) = jobs::stream(&mut idle, batches, Duration::ZERO).unwrap();
            assert_eq!(keys.wrong(&batches), Some(0));
            keys.put_back(batches);

            // One wrong answer in the last row.
            let mut batches = keys.batches(256).unwrap();
            keys.on_cpu(&mut batches, Form::Best, 0.0);
            assert_eq!(keys.wrong(&batches), None);
            let rows = &mut batches.last_mut().unwrap().rows;
            let column = rows.layout().column(*keys.load.kernel().writes.last().unwrap());
            let last = rows.column_bytes_mut(column);
            *last.last_mut().unwrap() ^= 1;
            assert_eq!(keys.wrong(&batches), Some(KEYS - 1));
        }
    }

    #[test]
    fn answers_that_were_never_there_are_found_on_the_device() {
        if !testkit::require_opencl() {
            return;
        }
        let folder = Scratch::new();
        let (_, options) = arguments(&folder, Backend::OpenCl(0));
        for load in [
            loads::ipv4(&options.routes.routes, KEYS),
            loads::l2(5000, KEYS),
            loads::names(&options.names, options.prefixes, KEYS),
        ] {
            let mut keys = Keys::new(load.unwrap()).unwrap();
            let driver = open(options.backend).unwrap();
            let mut alone = Alone::new(driver, &mut keys, &[256, 1024]).unwrap();
            assert_eq!(alone.wrong(&keys, 256), Ok(Some(0)));
            assert!(alone.rate(256, Duration::ZERO).unwrap() > 0.0);
            assert_eq!(alone.wrong(&keys, 256), Ok(None));
            assert_eq!(alone.wrong(&keys, 1024), Ok(Some(0)), "the others were not asked");
        }
    }

    /// A release compiles every program beforehand: those of the benchmark are the ones of the self-tests.
    #[test]
    fn programs_are_those_of_the_registry() {
        let of_file = |file: &&'static KernelFile| kernels::source(&kernels::Spec::of_file(file));
        let known: Vec<_> = files::ALL.iter().chain(&apps::kernel_files()).map(of_file).collect();
        let own = programs();
        assert_eq!(own.len(), 3);
        for program in own {
            assert!(known.contains(&program.source), "{}", program.name);
        }
    }

    #[test]
    fn the_device_wins_from_the_first_batch_that_is_quicker() {
        let figures = |line, size, rate| Figures { line, size, rates: vec![rate] };
        for (rates, wins, note) in
            [([5.0, 11.0, 9.0], 1024.0, ""), ([5.0, 6.0, 10.0], 0.0, "never here")]
        {
            let mut all = vec![figures(PLAIN, None, 10.0), figures(BEST, None, 8.0)];
            all.extend(
                SIZES.iter().zip(rates).map(|(size, rate)| figures(WHOLE, Some(*size), rate)),
            );
            let mut report = Report::new("shade", "toy");
            tell("x", "", &|_| String::new(), &all, &mut report);
            let row = report.rows.last().unwrap();
            assert_eq!((row.median, row.note.as_str()), (wins, note));
            let ratio = &report.rows[5];
            assert_eq!(ratio.name, "x: device, end to end / CPU, plain, batches of 256");
            assert_eq!(ratio.median, 0.5);
        }
    }
}
