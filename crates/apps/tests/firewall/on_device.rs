//! The stage in an engine with a device (PoCL): each packet is judged by the rules of the version that it came under,
//! while rules come and go, one by one and as whole sets of another structure. The reference judges one packet after the
//! other.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use apps::firewall::FirewallPart;
use apps::wire::{Wire, partner};
use chunk::{ColumnSet, Declaration, PORT_NONE, Packet, Pool, ReasonBlock, Rows};
use classify::RuleError;
use classify::auto::AutoBuilder;
use classify::bloom::BloomBuilder;
use classify::cuts::CutsBuilder;
use controlplane::{Newest, PartImages};
use device::accelerator::Options;
use device::faulty::{Faults, Faulty};
use device::{Cost, FaultPlan, probe};
use engine::{DeviceKind, DeviceSpec, KernelForm, MasterView, Policy, Shade};
use io::{QueueStats, RxQueue};
use lookup::Patch;
use lookup::versions::{Writer, versions};
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use teststages::harness::{Arrival, Bed, Feed, Stages, device_of_tests};

use super::*;

const PORTS: u16 = 4;
const BURSTS: usize = 30;
const PLACES: usize = 40;

/// Rules by place, as the reference has them: the first that matches is at the lowest one.
type Places = Vec<Option<Own>>;

type Build = fn(&RuleSet) -> Result<Box<dyn Classifier>, RuleError>;

fn of<C: Classifier + 'static>(set: &RuleSet) -> Result<Box<dyn Classifier>, RuleError> {
    Ok(Box::new(C::build(set)?))
}

const LINEAR: Build = of::<LinearBuilder>;
const TUPLE: Build = of::<TupleBuilder>;
const BLOOM: Build = of::<BloomBuilder>;
const CUTS: Build = of::<CutsBuilder>;
const AUTO: Build = of::<AutoBuilder>;

/// A structure over the rules of one family, whose ids are their places and one.
fn structure(build: Build, places: &Places, is_v4: bool) -> Box<dyn Classifier> {
    let mut set = RuleSet::new(if is_v4 { schema_v4() } else { schema_v6() });
    for (at, rule) in places.iter().enumerate() {
        if let Some(rule) = rule.as_ref().filter(|rule| rule.is_v4 == is_v4) {
            let (priority, id) = (at as u32, at as u32 + 1);
            set.push(RuleRef { words: &rule.words, priority, id }).unwrap();
        }
    }
    build(&set).unwrap()
}

/// What the engine receives: a burst for each version, with the rules changed before it.
struct Bursts {
    writer: Writer<FirewallTables>,
    structures: [Box<dyn Classifier>; 2],
    builds: Vec<[Build; 2]>,
    places: Places,
    runner: TestRunner,
    /// Changes that no version has yet: chunks in flight may still read the copy that is to be written.
    waiting: Option<Vec<FirewallPatch>>,
    left: usize,
    /// What must leave, in order, and what must not.
    expected: Arc<Mutex<Vec<Due>>>,
    stats: QueueStats,
}

/// Where a frame must leave, its bytes, and what was found for it.
type Due = (u16, Vec<u8>, Fate);

/// What must become of a packet: its rule's id, 0 for none; or why none was asked.
type Fate = Option<Result<u32, DropReason>>;

impl Bursts {
    fn sample<S: Strategy>(&mut self, strategy: &S) -> S::Value {
        strategy.new_tree(&mut self.runner).unwrap().current()
    }

    /// A rule that ends in no answer: those are the oracle's.
    fn rule(&mut self) -> Own {
        let action = (0_u8..5, 0..PORTS, prop::option::weighted(0.3, 0..PORTS));
        let (ending, port, mirror) = self.sample(&action);
        let ending = match ending {
            0 | 1 => Ending::Accept,
            2 | 3 => Ending::Drop,
            _ => Ending::Send(port),
        };
        Own { action: Action { ending, mirror, dscp: None, contexts: 0 }, ..self.sample(&rule()) }
    }

    /// Changes some rules, or all of them.
    fn change(&mut self) -> Vec<FirewallPatch> {
        let mut patches = [Vec::new(), Vec::new()];
        let mut records = Vec::new();
        if self.left % 10 == 7
            && let Some(builds) = self.builds.pop()
        {
            for place in 0..PLACES {
                self.places[place] = (!place.is_multiple_of(3)).then(|| self.rule());
            }
            self.structures = [true, false]
                .map(|is_v4| structure(builds[usize::from(!is_v4)], &self.places, is_v4));
            for (structure, patches) in self.structures.iter().zip(&mut patches) {
                patches.push(Patch::Replace(structure.blob().words().to_vec()));
            }
            records.extend(0..PLACES);
        } else {
            for _ in 0..1 + self.left % 4 {
                let place = self.sample(&(0..PLACES));
                let id = place as u32 + 1;
                for (structure, patches) in self.structures.iter_mut().zip(&mut patches) {
                    structure.remove(id, patches);
                }
                self.places[place] = (!place.is_multiple_of(5)).then(|| self.rule());
                if let Some(rule) = &self.places[place] {
                    let own = RuleRef { words: &rule.words, priority: place as u32, id };
                    let side = usize::from(!rule.is_v4);
                    self.structures[side].insert(own, &mut patches[side]).unwrap();
                }
                records.push(place);
            }
        }
        let [v4, v6] = patches;
        let records = records.into_iter().map(|place| {
            let rule = self.places[place].as_ref();
            let record = rule.and_then(|rule| record(rule.action));
            FirewallPatch::Record(place as u32 + 1, record)
        });
        let rules = [FirewallPatch::V4(v4), FirewallPatch::V6(v6)];
        rules.into_iter().chain(records).collect()
    }

    fn fate(&self, packet: &Packet) -> Fate {
        let none = Action::of(Ending::Accept);
        // A place without a rule matches nothing: neither family has it.
        let all = self.places.iter().map(|place| {
            place.clone().unwrap_or(Own { is_v4: false, words: Box::default(), action: none })
        });
        let is_there = |id: u32| self.places[id as usize - 1].is_some();
        let rules: Vec<_> = all.zip(1..).filter(|(_, id)| is_there(*id)).collect();
        let (rules, ids): (Vec<_>, Vec<u32>) = rules.into_iter().unzip();
        let found = reference(packet, packet.port, &rules)?;
        Some(found.map(|at| if at == 0 { 0 } else { ids[at as usize - 1] }))
    }
}

impl RxQueue for Bursts {
    fn recv(&mut self, pool: &mut Pool, out: &mut Vec<Packet>, max: usize) -> usize {
        if self.left == 0 {
            return 0;
        }
        let changes = match self.waiting.take() {
            Some(waiting) => waiting,
            None => self.change(),
        };
        if let Err(waiting) = self.writer.try_publish(changes) {
            self.waiting = Some(waiting);
            return 0;
        }
        self.left -= 1;
        let count = self.sample(&(1..90_usize)).min(max);
        for at in 0..count {
            let bytes = self.sample(&frame());
            let mut packet = Packet::copy_from(pool, &bytes).expect("a cell");
            packet.port = at as u16 % PORTS;
            packet.time_ns = 1 + self.stats.packets;
            let fate = self.fate(&packet);
            let action = match fate {
                Some(Ok(id)) if id != 0 => self.places[id as usize - 1].as_ref().unwrap().action,
                _ => Action::of(Ending::Accept),
            };
            let mut expected = self.expected.lock().unwrap();
            expected.extend(action.mirror.map(|port| (port, bytes.clone(), None)));
            let port = match (fate, action.ending) {
                (Some(Err(_)), _) | (_, Ending::Drop) => PORT_NONE,
                (_, Ending::Send(port)) => port,
                _ => partner(packet.port),
            };
            self.stats.packets += 1;
            expected.push((port, bytes, fate));
            out.push(packet);
        }
        count
    }

    fn is_finished(&self) -> bool {
        self.left == 0
    }

    fn stats(&self) -> QueueStats {
        self.stats
    }
}

/// A run, whole.
struct Whole {
    /// By port.
    frames: Vec<Vec<Arrival>>,
    expected: Vec<Due>,
    hits: Arc<Hits>,
    errors: u64,
    master: MasterView,
}

fn start(first: [Build; 2], builds: Vec<[Build; 2]>, hits: &Arc<Hits>) -> Bursts {
    let places: Places = (0..PLACES).map(|_| None).collect();
    let structures =
        [true, false].map(|is_v4| structure(first[usize::from(!is_v4)], &places, is_v4));
    let [v4, v6] = [0, 1].map(|at: usize| structures[at].tables().unwrap());
    let records = vec![record(Action::of(Ending::Accept))];
    let firewall = FirewallTables::new((v4, v6), records, FirewallOptions::default(), hits.clone());
    let (writer, _) = versions(firewall);
    Bursts {
        writer,
        structures,
        builds,
        places,
        runner: TestRunner::deterministic(),
        waiting: None,
        left: BURSTS,
        expected: Arc::default(),
        stats: QueueStats::default(),
    }
}

fn go(
    kind: impl FnOnce(&Writer<FirewallTables>) -> DeviceKind<FirewallTables>,
    bursts: Bursts,
    hits: Arc<Hits>,
) -> Whole {
    let stage = Firewall::new().decoding().with_first_region(FIRST_REGION);
    go_with(kind, bursts, hits, Box::new(stage))
}

fn go_with(
    kind: impl FnOnce(&Writer<FirewallTables>) -> DeviceKind<FirewallTables>,
    bursts: Bursts,
    hits: Arc<Hits>,
    stage: Box<dyn Stage<FirewallTables>>,
) -> Whole {
    let device =
        DeviceSpec { kind: kind(&bursts.writer), slots: 4, rows: 1024, policy: Policy::Device };
    let expected = bursts.expected.clone();
    let versions = Newest(bursts.writer.reader());
    let stages: Stages<FirewallTables> = vec![stage, Box::new(Wire::new())];
    let bed = Bed {
        feeds: vec![Feed {
            worker: 0,
            port: PORT_NONE,
            queue: Box::new(bursts),
            spread: None,
            entry: engine::Entry::default(),
        }],
        ports: PORTS.into(),
        devices: vec![device],
        chunk_packets: 64,
        packet_time: true,
        cells: 20_000,
        ..Bed::new(Vec::new())
    };
    let run = bed.run(vec![(versions, stages)]);
    assert!(run.panics.is_empty(), "{}", run.panics[0]);
    run.conserves().unwrap();
    let expected = std::mem::take(&mut *expected.lock().unwrap());
    let (errors, master) = (run.device_errors.len() as u64, run.view.master().unwrap());
    Whole { frames: run.ports, expected, hits, errors, master }
}

fn check(whole: &Whole) {
    check_packets(whole);
    assert!(whole.master.jobs > 10, "{:?}", whole.master);
}

fn check_packets(whole: &Whole) {
    for (port, frames) in whole.frames.iter().enumerate() {
        let expected = whole.expected.iter().filter(|packet| usize::from(packet.0) == port);
        let mut sent: Vec<_> = frames.iter().map(|(_, frame)| frame).collect();
        let mut wanted: Vec<_> = expected.map(|(_, frame, _)| frame).collect();
        // A copy goes out behind its cause, and before what comes later; bytes alone tell no more.
        sent.sort();
        wanted.sort();
        assert!(sent == wanted, "port {port}: {} sent, {} expected", sent.len(), wanted.len());
    }
    for id in 0..=PLACES as u32 {
        let own = whole.expected.iter().filter(|packet| packet.2 == Some(Ok(id)));
        assert_eq!(whole.hits.get(id).packets, own.count() as u64, "rule {id}");
    }
    assert_eq!(whole.master.failed, whole.errors, "each failure is of another kind");
}

/// Where the rules' regions begin: not at the first one of the image.
const FIRST_REGION: usize = 5;

/// The device that the tests run on, with faults.
fn driver(faults: Faults, writer: &Writer<FirewallTables>) -> DeviceKind<FirewallTables> {
    let (api, number) = device_of_tests();
    let driver = Box::new(Faulty::new(probe::open(api, number).expect("a device"), faults));
    let options = Options { patience: Duration::from_secs(60), ..Options::default() };
    let tables = Box::new(PartImages::<FirewallPart>::new(writer.changes(), FIRST_REGION));
    DeviceKind::Driver { driver, tables, options }
}

fn simulated(_: &Writer<FirewallTables>) -> DeviceKind<FirewallTables> {
    let cost = Cost { launch: Duration::from_micros(20), row: Duration::from_nanos(10) };
    DeviceKind::Simulated { cost, faults: FaultPlan::default() }
}

/// Structures of both families: at first, and those that take their places, the last one first.
fn sequences() -> [([Build; 2], Vec<[Build; 2]>); 4] {
    [
        ([LINEAR, LINEAR], vec![[TUPLE, TUPLE]]),
        ([TUPLE, BLOOM], vec![[CUTS, LINEAR], [BLOOM, TUPLE]]),
        ([CUTS, TUPLE], vec![[LINEAR, BLOOM]]),
        ([AUTO, AUTO], vec![[AUTO, AUTO], [AUTO, AUTO]]),
    ]
}

#[test]
fn a_device_judges_by_the_rules_of_each_packets_version() {
    if !testkit::require_opencl() {
        return;
    }
    for (first, builds) in sequences() {
        let hits = Arc::new(Hits::new(1));
        (0..=PLACES as u32).for_each(|id| hits.make(id));
        let whole = go(|w| driver(Faults::default(), w), start(first, builds, &hits), hits);
        check(&whole);
        assert_eq!(whole.errors, 0);
        let traffic = whole.master.traffic;
        // Each of the two images once, and once more for a set that outgrows its room.
        assert!(traffic.table_images <= 8, "{traffic:?}");
        assert!(traffic.launches >= 2 * traffic.jobs, "{traffic:?}");
    }
}

/// What a device did not do is done again from the columns.
#[test]
fn jobs_that_fail_are_judged_by_the_cpu() {
    if !testkit::require_opencl() {
        return;
    }
    let hits = Arc::new(Hits::new(1));
    (0..=PLACES as u32).for_each(|id| hits.make(id));
    let faults = Faults { launch: Some(20), download: Some(7), ..Faults::default() };
    let whole = go(|w| driver(faults, w), start([TUPLE, LINEAR], Vec::new(), &hits), hits);
    check(&whole);
    assert_eq!(whole.errors, 2);
}

#[test]
fn a_simulated_device_does_so_too() {
    for (first, builds) in sequences() {
        let hits = Arc::new(Hits::new(1));
        (0..=PLACES as u32).for_each(|id| hits.make(id));
        check(&go(simulated, start(first, builds, &hits), hits));
    }
}

/// Whether kernels fit a version of the tables.
type Fits = fn(&FirewallTables) -> bool;

/// The stage, whose kernels fit some versions of the tables alone.
struct Picky(Firewall, Fits);

/// Its shade.
struct PickyShade(Arc<dyn Shade<FirewallTables>>, Fits);

impl Shade<FirewallTables> for PickyShade {
    fn shade(&self, rows: &mut Rows, tables: &FirewallTables) {
        self.0.shade(rows, tables);
    }
    fn kernels(&self) -> Option<KernelForm> {
        self.0.kernels()
    }
    fn fits_device(&self, tables: &FirewallTables) -> bool {
        self.1(tables)
    }
}

impl Stage<FirewallTables> for Picky {
    fn name(&self) -> &'static str {
        "picky"
    }
    fn columns(&self) -> &'static [Declaration] {
        Stage::<FirewallTables>::columns(&self.0)
    }
    fn drop_reasons(&self) -> &'static [&'static ReasonBlock] {
        Stage::<FirewallTables>::drop_reasons(&self.0)
    }
    fn reads(&self) -> ColumnSet {
        Stage::<FirewallTables>::reads(&self.0)
    }
    fn writes(&self) -> ColumnSet {
        Stage::<FirewallTables>::writes(&self.0)
    }
    fn shader(&self) -> Option<Arc<dyn Shade<FirewallTables>>> {
        let shade = Stage::<FirewallTables>::shader(&self.0)?;
        Some(Arc::new(PickyShade(shade, self.1)))
    }
    fn pre_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, FirewallTables>) {
        self.0.pre_shade(chunk, cx);
    }
    fn post_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, FirewallTables>) {
        self.0.post_shade(chunk, cx);
    }
}

/// Chunks under tables that the kernels do not know are shaded on the CPU, whatever the policy; the others are not.
#[test]
fn tables_that_do_not_fit_a_device_stay_on_the_cpu() {
    let some: Fits =
        |tables| (1..9).filter(|id| tables.record(*id) != tables.record(0)).count() % 2 == 0;
    let picky: [(Fits, bool); 2] = [(|_| false, false), (some, true)];
    for (fits, sometimes) in picky {
        let [(first, builds), ..] = sequences();
        let hits = Arc::new(Hits::new(1));
        (0..=PLACES as u32).for_each(|id| hits.make(id));
        let stage = Firewall::new().decoding().with_first_region(FIRST_REGION);
        let stage = Box::new(Picky(stage, fits));
        let whole = go_with(simulated, start(first, builds, &hits), hits, stage);
        check_packets(&whole);
        assert_eq!(whole.master.jobs > 0, sometimes, "{:?}", whole.master);
        assert!(whole.master.packets < whole.expected.len() as u64, "{:?}", whole.master);
        assert_eq!(whole.errors, 0);
    }
}
