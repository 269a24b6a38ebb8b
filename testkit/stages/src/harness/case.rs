//! Stages and their reference, compared over every way to run them.

use std::collections::BTreeMap;
use std::time::Duration;

use device::accelerator::{Options, Packing, Scheduling};
use device::driver::Api;
use device::faulty::{Faults, Faulty};
use device::tables::TableSource;
use device::{Backend, Cost, FaultPlan};
use engine::{DeviceKind, DeviceSpec, Entry, Policy, SpreadHash, Versions};
use io::memory::Script;

use super::{Bed, Feed, NumberImage, Numbered, Random, Run, Stages, flow_hash};

/// The instances of a pipeline, one list for each worker, and a look at their state.
pub struct Subject<T> {
    /// By worker.
    pub workers: Vec<Stages<T>>,
    /// The state of all shards, joined, once the engine has ended. It must not depend on the number of workers.
    pub state: Box<dyn FnOnce() -> Vec<u8>>,
}

/// What stages must give.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// By port: frames in order.
    pub ports: Vec<Vec<Vec<u8>>>,
    /// Packets dropped, by the code of the reason.
    pub drops: BTreeMap<u16, u64>,
    /// Packets with the verdict dump.
    pub dumped: u64,
    /// The state at the end.
    pub state: Vec<u8>,
}

/// What is behind the devices of a [`Setup`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// There is none.
    Cpu,
    /// The simulated device.
    Simulated,
    /// OpenCL, or the device that `SHADELINE_TEST_BACKEND` names.
    Driver,
}

/// One way to run stages.
#[derive(Clone, Debug)]
pub struct Setup {
    /// What is behind the devices.
    pub backing: Backing,
    /// How many there are; [`Setup::faults`] and [`Setup::plan`] are the first one's.
    pub devices: usize,
    /// Workers.
    pub workers: usize,
    /// Packets in a chunk at most.
    pub chunk_packets: usize,
    /// Chunks in flight at each worker at most.
    pub chunks: usize,
    /// Jobs in flight at most.
    pub slots: usize,
    /// Rows of a job at most.
    pub rows: usize,
    /// Which chunks go to the device. [`Policy::Share`] moves shards to and fro.
    pub policy: Policy,
    /// See [`engine::EngineSpec::max_delay`].
    pub max_delay: Option<Duration>,
    /// What goes wrong in the driver.
    pub faults: Faults,
    /// What goes wrong on the simulated device.
    pub plan: FaultPlan,
    /// How the driver is set up.
    pub options: Options,
}

impl Default for Setup {
    /// One worker and one device of the driver, for all chunks.
    fn default() -> Self {
        Self {
            backing: Backing::Driver,
            devices: 1,
            workers: 1,
            chunk_packets: 256,
            chunks: 128,
            slots: 8,
            rows: 1024,
            policy: Policy::Device,
            max_delay: None,
            faults: Faults::default(),
            plan: FaultPlan::default(),
            options: Options { patience: Duration::from_secs(60), ..Options::default() },
        }
    }
}

impl Setup {
    /// One worker on the CPU.
    pub fn cpu() -> Self {
        Self { backing: Backing::Cpu, devices: 0, ..Self::default() }
    }

    /// A random way to run stages on what is behind `backing`.
    pub fn random(random: &mut Random, backing: Backing) -> Self {
        let micros = |n: usize| Duration::from_micros(n as u64);
        let faults = random_faults(random);
        let is_hanging = faults.hang.is_some() || faults.hang_call.is_some();
        let patience = if is_hanging { Duration::from_secs(1) } else { Duration::from_secs(60) };
        let packing = random.pick(&[
            Packing::Auto,
            Packing::InPlace,
            Packing::Packed,
            Packing::Measured,
            Packing::Measured,
        ]);
        let scheduling =
            random.pick(&[Scheduling::Never, Scheduling::Always, Scheduling::Measured]);
        let options = Options { patience, warm_up: patience, packing, ..Options::default() };
        Self {
            backing,
            devices: if backing == Backing::Cpu { 0 } else { random.between(1, 2) },
            workers: random.between(1, 4),
            chunk_packets: if random.one_in(3) { 256 } else { random.between(1, 256) },
            chunks: random.between(2, 64),
            slots: random.between(1, 8),
            rows: random.pick(&[256, 512, 1024, 2048]),
            policy: random_policy(random),
            max_delay: random.one_in(3).then(|| micros(random.between(100, 5000))),
            faults,
            plan: random_plan(random),
            options: Options { scheduling, ..options },
        }
    }

    /// The devices.
    pub fn devices<T: 'static>(
        &self,
        source: impl Fn() -> Box<dyn TableSource<T>>,
    ) -> Vec<DeviceSpec<T>> {
        (0..self.devices).filter_map(|i| self.device(i == 0, &source)).collect()
    }

    fn device<T>(
        &self,
        is_first: bool,
        source: &impl Fn() -> Box<dyn TableSource<T>>,
    ) -> Option<DeviceSpec<T>> {
        let kind = match self.backing {
            Backing::Cpu => return None,
            Backing::Simulated => {
                let cost = Cost { launch: Duration::from_micros(20), row: Duration::ZERO };
                let faults = if is_first { self.plan.clone() } else { FaultPlan::default() };
                DeviceKind::Simulated { cost, faults }
            }
            Backing::Driver => {
                let faults = if is_first { self.faults } else { Faults::default() };
                let (api, number) = device_of_tests();
                let opened = device::probe::open(api, number);
                let driver =
                    opened.unwrap_or_else(|error| panic!("the device of the tests: {error}"));
                let driver = Box::new(Faulty::new(driver, faults));
                DeviceKind::Driver { driver, tables: source(), options: self.options }
            }
        };
        Some(DeviceSpec { kind, slots: self.slots, rows: self.rows, policy: self.policy })
    }
}

fn random_policy(random: &mut Random) -> Policy {
    let of = random.between(2, 6) as u32;
    let device = random.between(1, of as usize - 1) as u32;
    random.pick(&[Policy::Device, Policy::Device, Policy::Auto, Policy::Share { device, of }])
}

fn random_faults(random: &mut Random) -> Faults {
    let at = Some(random.below(40) as u64);
    let none = Faults { after_launches: random.below(30) as u64, ..Faults::default() };
    match random.below(24) {
        0 | 1 => Faults { upload: at, ..none },
        2..=5 => Faults { launch: at, ..none },
        6 | 7 => Faults { download: at, ..none },
        8 | 9 => Faults { lost: at, ..none },
        10 => Faults { late_then_lost: at, ..none },
        11 => Faults { build: true, ..none },
        12 => Faults { hang: at, ..none },
        13 => Faults { hang_call: at, ..none },
        14 | 15 => Faults { slow: Some(Duration::from_micros(random.below(3000) as u64)), ..none },
        _ => Faults::default(),
    }
}

fn random_plan(random: &mut Random) -> FaultPlan {
    let mut some = || (0..random.below(6)).map(|_| random.below(60) as u64).collect();
    let (failing, failing_copy) = (some(), some());
    let none = FaultPlan::default();
    match random.below(8) {
        0 => FaultPlan { no_build: true, ..none },
        1 => FaultPlan { failing, ..none },
        2 => FaultPlan { failing, failing_copy, ..none },
        3 => FaultPlan { lost_from: Some(random.below(40) as u64), ..none },
        4 => {
            FaultPlan { hangs: Some((random.below(20) as u64, Duration::from_millis(20))), ..none }
        }
        _ => none,
    }
}

/// Stages, what goes in, and what must come out.
pub struct Case<'a, V: Versions> {
    /// What it is called where it fails.
    pub name: &'a str,
    /// Frames.
    pub input: Vec<Vec<u8>>,
    /// Ports that the stages send to.
    pub ports: usize,
    /// The flow of a frame that leaves: each must be in order.
    pub flow: fn(&[u8]) -> u32,
    /// Chooses the worker of a frame that comes; the packets of a flow must have one hash.
    pub spread: SpreadHash,
    /// Tables of a worker.
    pub versions: &'a dyn Fn() -> V,
    /// The same for devices.
    pub tables: &'a dyn Fn() -> Box<dyn TableSource<V::Tables>>,
    /// New instances of the stages for so many workers.
    pub subject: &'a dyn Fn(usize) -> Subject<V::Tables>,
}

impl<'a> Case<'a, Numbered> {
    /// A case of stages over [`Numbered`] tables that do not change, a frame's flow being its first byte.
    pub fn new(
        name: &'a str,
        input: Vec<Vec<u8>>,
        subject: &'a dyn Fn(usize) -> Subject<u64>,
    ) -> Self {
        let flow = |frame: &[u8]| u32::from(frame.first().copied().unwrap_or(0));
        let versions = &|| Numbered::new(1);
        let tables = &|| Box::new(NumberImage) as Box<_>;
        Self { name, input, ports: 1, flow, spread: flow_hash.into(), versions, tables, subject }
    }
}

impl<V: Versions> Case<'_, V> {
    /// Runs it.
    ///
    /// # Panics
    /// When it hangs, a stage panics, or packets or cells are lost.
    pub fn run(&self, setup: &Setup) -> (Answer, Run) {
        let Subject { workers, state } = (self.subject)(setup.workers);
        let queue = Box::new(Script::untimed(self.input.clone()));
        let bed = Bed {
            name: format!("{} with {setup:?}", self.name),
            feeds: vec![Feed {
                worker: 0,
                port: 0,
                queue,
                spread: Some(self.spread.clone()),
                entry: Entry::default(),
            }],
            ports: self.ports,
            devices: setup.devices(self.tables),
            chunk_packets: setup.chunk_packets,
            chunks: setup.chunks,
            max_delay: setup.max_delay,
            cells: 65_536,
            ..Bed::new(Vec::new())
        };
        let workers = workers.into_iter().map(|stages| ((self.versions)(), stages)).collect();
        let run = bed.run(workers);
        let name = || format!("{} with {setup:?}", self.name);
        assert!(run.panics.is_empty(), "{}: {}", name(), run.panics[0]);
        run.conserves().unwrap_or_else(|error| panic!("{}: {error}", name()));
        let codes = run.view.reasons().iter().map(|reason| reason.code());
        let drops = codes.map(|code| (code.code(), run.view.drops(code))).filter(|(_, n)| *n > 0);
        let ports = run.ports.iter();
        let frames =
            |port: &Vec<super::Arrival>| port.iter().map(|(_, frame)| frame.clone()).collect();
        let answer = Answer {
            ports: ports.map(frames).collect(),
            drops: drops.collect(),
            dumped: run.sum(|worker| worker.dumped.get()),
            state: state(),
        };
        (answer, run)
    }

    /// Runs it and compares: with one worker the same packets in the same order, with several in the same order
    /// within each flow.
    ///
    /// # Panics
    /// As [`Case::run`], and when the answer differs from `reference`.
    pub fn check(&self, setup: &Setup, reference: &Answer) -> Run {
        let (answer, run) = self.run(setup);
        let same = if setup.workers == 1 {
            answer.ports == reference.ports
        } else {
            let (ours, theirs) = (answer.ports.iter(), reference.ports.iter());
            ours.len() == theirs.len()
                && ours.zip(theirs).all(|(ours, theirs)| self.by_flow(ours) == self.by_flow(theirs))
        };
        assert!(same, "{} with {setup:?}: other packets, or another order", self.name);
        let rest = |answer: &Answer| Answer { ports: Vec::new(), ..answer.clone() };
        assert_eq!(rest(&answer), rest(reference), "{} with {setup:?}", self.name);
        run
    }

    /// Checks `rounds` random setups of each kind of device that is there, against `reference`; `None`: against what
    /// one worker on the CPU answers.
    ///
    /// # Panics
    /// As [`Case::check`]; the message names the seed.
    pub fn check_random(&self, seed: u64, rounds: usize, reference: Option<&Answer>) {
        let of_cpu = reference.is_none().then(|| self.run(&Setup::cpu()).0);
        let Some(reference) = reference.or(of_cpu.as_ref()) else { return };
        let mut kinds = vec![Backing::Cpu, Backing::Simulated];
        if testkit::require_opencl() {
            kinds.push(Backing::Driver);
        }
        eprintln!("{}: seed {seed}", self.name);
        let mut random = Random::new(seed);
        for _ in 0..rounds {
            for backing in &kinds {
                self.check(&Setup::random(&mut random, *backing), reference);
            }
        }
    }

    fn by_flow<'f>(&self, frames: &'f [Vec<u8>]) -> BTreeMap<u32, Vec<&'f [u8]>> {
        let mut flows: BTreeMap<u32, Vec<&[u8]>> = BTreeMap::new();
        for frame in frames {
            flows.entry((self.flow)(frame)).or_default().push(frame);
        }
        flows
    }
}

/// The device that tests run on: the first of OpenCL, unless another one is named.
///
/// # Panics
/// When the name names none.
pub fn device_of_tests() -> (Api, u32) {
    let named = testkit::named_backend().map(|name| {
        name.parse::<Backend>()
            .unwrap_or_else(|_| panic!("SHADELINE_TEST_BACKEND={name}: no such backend"))
    });
    named.and_then(Backend::device).unwrap_or((Api::OpenCl, 0))
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::parts::{At, Meddler};
    use crate::{Deliver, Sum};

    /// A stage that writes a column which it did not declare fails every case that it is in.
    #[test]
    fn a_stage_that_meddles_fails() {
        for (at, step) in [(At::Pre, "pre_shade"), (At::Shade, "shade"), (At::Post, "post_shade")] {
            let subject = |workers: usize| Subject {
                workers: (0..workers)
                    .map(|_| -> Stages<u64> {
                        vec![Box::new(Meddler(at)), Box::new(Sum), Box::new(Deliver)]
                    })
                    .collect(),
                state: Box::new(Vec::new),
            };
            let case = Case::new("a meddler", vec![vec![1; 60]; 100], &subject);
            let ran = catch_unwind(AssertUnwindSafe(|| case.run(&Setup::cpu())));
            let panic = ran.err().expect("it fails").downcast::<String>().expect("a message");
            let wanted =
                format!("panicked in {step}: stage `meddler` wrote column `sum`, which it did not");
            assert!(panic.contains(&wanted), "{panic}");
        }
    }
}
