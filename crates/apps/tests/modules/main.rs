//! Modules in an engine with a device: whichever of them are in Rust and whichever have a source, and in which order they are,
//! packets come out the same, byte for byte. What a module does depends on every byte that it has been given, and when.

mod traffic;
mod twins;

use std::borrow::Cow;
use std::sync::{Arc, Mutex};

use apps::flow::Flow;
use apps::flow::follow::{Followers, Listener};
use apps::modules::counters::Counters;
use apps::modules::gather::Places;
use apps::modules::kernels::{KernelShade, Sources};
use apps::modules::patterns::Automata;
use apps::modules::stage::{Group, Modules, Parts, Rust};
use apps::wire::Wire;
use control::config::{Config, ModuleEntry, ModulePatterns, ModuleSource, module_groups};
use controlplane::module::ModuleKind;
use device::accelerator::{Packing, Scheduling};
use device::tables::{Change, TableSource};
use io::memory::Script;
use stream::Tracker;
use stream::tracker::Options;
use teststages::harness::{Arrival, Bed, Feed, NumberImage, Numbered, Random, Setup, Stages};

use twins::{Judge, Mix, Search, Still, Tag, Turn};

/// Modules of a test: a Rust module, the source that is its twin, and parameters.
#[derive(Clone, Copy)]
struct Twins {
    kind: ModuleKind,
    text: &'static str,
    parameters: &'static [(&'static str, u32)],
}

const fn mix(parameters: &'static [(&'static str, u32)]) -> Twins {
    Twins { kind: ModuleKind::of::<Mix>(), text: include_str!("mix.k"), parameters }
}

const fn judge(parameters: &'static [(&'static str, u32)]) -> Twins {
    Twins { kind: ModuleKind::of::<Judge>(), text: include_str!("judge.k"), parameters }
}

const MIXES: [Twins; 3] = [
    mix(&[("AT", 0), ("FACTOR", 3)]),
    mix(&[("AT", 4), ("FACTOR", 5)]),
    mix(&[("AT", 8), ("FACTOR", 7)]),
];

const JUDGES: [Twins; 3] =
    [judge(&[("FACTOR", 1)]), judge(&[("FACTOR", 2)]), judge(&[("FACTOR", 3)])];

const fn turn(parameters: &'static [(&'static str, u32)]) -> Twins {
    Twins { kind: ModuleKind::of::<Turn>(), text: include_str!("turn.k"), parameters }
}

const TURNS: [Twins; 3] = [
    turn(&[("AT", 0), ("FACTOR", 3)]),
    turn(&[("AT", 1), ("FACTOR", 5)]),
    turn(&[("AT", 2), ("FACTOR", 7)]),
];

/// They look for patterns; with the others a stage has modules that do and some that do not.
const SEARCHES: [Twins; 3] = [
    Twins { kind: ModuleKind::of::<Search>(), text: include_str!("search.k"), parameters: &[] },
    mix(&[("AT", 4), ("FACTOR", 5)]),
    Twins { kind: ModuleKind::of::<Search>(), text: include_str!("search.k"), parameters: &[] },
];

const STILL: Twins = Twins {
    kind: ModuleKind::of::<Still>(),
    text: "MODULE_ETH(packet)\n{\n    return PASS;\n}\n",
    parameters: &[],
};

/// In Rust alone.
const TAG: Twins = Twins { kind: ModuleKind::of::<Tag>(), text: "", parameters: &[] };

/// With a source alone.
const PLACES: Twins =
    Twins { kind: ModuleKind::of::<Still>(), text: include_str!("places.k"), parameters: &[] };

/// The tables of the tests on a device: the number, and in region 1 the patterns of modules.
struct Image(Vec<u32>);

impl TableSource<u64> for Image {
    fn regions<'a>(&self, tables: &'a u64) -> Vec<Cow<'a, [u32]>> {
        let mut all = NumberImage.regions(tables);
        all.push(Cow::Owned(self.0.clone()));
        all
    }

    fn changes(&self, from: u64, to: u64, change: &mut dyn FnMut(usize, Change<'_>)) -> bool {
        NumberImage.changes(from, to, change)
    }
}

/// A configuration of these modules, in this order; `sources`: a bit for each that has a source.
fn config(twins: &[Twins], sources: u32) -> Config {
    let text = "mode = \"wire\"\n[port.a]\n[port.b]\n";
    let (mut config, _) =
        control::config::parse(text, &apps::known_stages()).expect("a configuration");
    for (number, own) in twins.iter().enumerate() {
        let name = format!("own{number}");
        let file = format!("{name}.k");
        let has_source = sources >> number & 1 == 1;
        let source = ModuleSource { path: (&file).into(), file, text: own.text.into() };
        config.modules.push(ModuleEntry {
            name,
            patterns: (has_source && own.kind.name == "search").then(|| ModulePatterns {
                all: twins::patterns().into(),
                ..ModulePatterns::default()
            }),
            source: has_source.then_some(source),
            kind: (!has_source).then(|| own.kind.name.to_owned()),
            parameters: own.parameters.iter().map(|(name, n)| ((*name).into(), *n)).collect(),
            time_limit: std::time::Duration::from_secs(30),
            ..ModuleEntry::default()
        });
    }
    config
}

/// The stages of a worker.
fn stages(config: &Config, twins: &[Twins]) -> Stages<u64> {
    let places = Places::default();
    let followers = Followers::new(vec![places.follower_in("", 0, (0, 1))]);
    let gathered = places.of("", 0);
    places.set_readers(true);
    let options = Options { flows: 1024, half_open: 1024, ..Options::default() };
    let tracker = Arc::new(Mutex::new(Tracker::new(options, followers).expect("memory")));
    let mut all: Stages<u64> = vec![Box::new(Flow::new(tracker, Arc::default()))];
    let sources = Sources::of(config).expect("modules");
    let names = config.modules.iter().map(|module| module.name.clone()).collect();
    let counters = Arc::new(Counters::new(names));
    for (at, group) in module_groups(&config.modules).into_iter().enumerate() {
        let rust = group.clone().filter(|number| config.modules[*number].kind.is_some());
        let rust = rust.map(|number| {
            let entry = config.modules[number].clone();
            let module = (twins[number].kind.make)(&entry.parameters).expect("parameters");
            Rust { entry, number, contexts: 0, module }
        });
        let own = sources[at].clone().with_region(1);
        let kernels = (!own.is_empty()).then(|| Arc::new(KernelShade::new(Arc::new(own))));
        all.push(Box::new(Modules::new(Parts {
            name: ["modules", "modules.2", "modules.3"][at],
            group: Group::of(config, &sources, at),
            gathered: gathered.clone(),
            rust: rust.collect(),
            kernels,
            by_port: vec![u32::MAX],
            contexts: Arc::from([]),
            counters: counters.clone(),
            needs_one_worker: None,
            shares: false,
        })));
    }
    all.push(Box::new(Wire::new()));
    all
}

/// What came out: sent, dropped, dumped, each by the time of its packet.
type Outcome = [Vec<Arrival>; 3];

fn run(twins: &[Twins], sources: u32, frames: &[Vec<u8>], setup: &Setup) -> Outcome {
    let config = config(twins, sources);
    let timed = frames.iter().enumerate().map(|(i, frame)| (1 + i as u64 * 1000, frame.clone()));
    let feed = Feed {
        worker: 0,
        port: 0,
        queue: Box::new(Script::new(timed.collect())),
        spread: Some(packet::flow::tracked_hash_of_frame.into()),
        entry: engine::Entry::default(),
    };
    let devices = match sources {
        0 => Vec::new(),
        _ => setup.devices(|| Box::new(Image(Automata::of(&config).expect("patterns").words))),
    };
    let bed = Bed {
        name: format!("modules {sources:b}, {setup:?}"),
        feeds: vec![feed],
        ports: 2,
        devices,
        chunk_packets: setup.chunk_packets,
        chunks: setup.chunks,
        packet_time: true,
        cells: 20_000,
        ..Bed::new(Vec::new())
    };
    let workers = (0..setup.workers).map(|_| (Numbered::new(1), stages(&config, twins)));
    let ran = bed.run(workers.collect());
    assert!(ran.panics.is_empty(), "{}", ran.panics[0]);
    assert!(ran.device_errors.is_empty(), "{:?}", ran.device_errors);
    ran.conserves().unwrap();
    let dropped = ran.dropped.into_iter().map(|(_, frame)| frame).collect();
    let mut all = [ran.ports.into_iter().flatten().collect(), dropped, ran.dumped];
    all.iter_mut().for_each(|list: &mut Vec<Arrival>| list.sort());
    all
}

/// Any of the modules have a source, in any chunks, with any number of workers, against all of them in Rust with one.
fn any_order_is_the_same(twins: &[Twins], seed: u64, rounds: usize) {
    if !testkit::require_opencl() {
        return;
    }
    let mut random = Random::new(seed);
    let mut seen = [0; 3];
    for round in 0..rounds {
        let frames = traffic::frames(&mut random);
        let plain = Setup { chunk_packets: 256, ..Setup::cpu() };
        let expected = run(twins, 0, &frames, &plain);
        for (seen, list) in seen.iter_mut().zip(&expected) {
            *seen += list.len();
        }
        for sources in [7, 1 + random.below(7) as u32, 1 + round as u32 % 7] {
            let plain = Setup::default();
            let packing = [Packing::Auto, Packing::Packed, Packing::Measured, Packing::Measured];
            let scheduling = [Scheduling::Never, Scheduling::Always, Scheduling::Measured];
            let (packing, scheduling) = (random.pick(&packing), random.pick(&scheduling));
            let setup = Setup {
                workers: random.between(1, 3),
                chunk_packets: random.pick(&[1, 2, 7, 32, 256]),
                rows: 256,
                options: device::accelerator::Options { packing, scheduling, ..plain.options },
                ..plain
            };
            let own = run(twins, sources, &frames, &setup);
            for ((own, expected), what) in
                own.iter().zip(&expected).zip(["sent", "dropped", "dumped"])
            {
                let first = own.iter().zip(expected).position(|(own, expected)| own != expected);
                assert!(
                    own == expected,
                    "seed {seed}, round {round}, sources {sources:03b}, {} workers, chunks of {}: {what} {} of {}, first \
                     other one {first:?}",
                    setup.workers,
                    setup.chunk_packets,
                    own.len(),
                    expected.len()
                );
            }
        }
    }
    assert!(seen.iter().all(|seen| *seen > 3), "{seen:?}");
}

#[test]
fn modules_that_change_packets_do_the_same_in_any_order() {
    any_order_is_the_same(&MIXES, 31, 3);
}

#[test]
fn modules_that_decide_do_the_same_in_any_order() {
    any_order_is_the_same(&JUDGES, 32, 3);
}

/// Patterns in streams and datagrams, found by a device and by the crate `automata`.
#[test]
fn modules_that_search_do_the_same_in_any_order() {
    any_order_is_the_same(&SEARCHES, 36, 3);
}

/// These are processed in the order of the jobs' rows, or sorted.
#[test]
fn modules_without_state_do_the_same_in_any_order() {
    any_order_is_the_same(&TURNS, 35, 3);
}

/// Rust modules alone: in chunks of any size, with any number of workers.
#[test]
fn rust_modules_do_not_depend_on_chunks() {
    let mut random = Random::new(33);
    for _ in 0..20 {
        let frames = traffic::frames(&mut random);
        for twins in [&MIXES, &JUDGES] {
            let plain = Setup { chunk_packets: 256, ..Setup::cpu() };
            let expected = run(twins, 0, &frames, &plain);
            let setup = Setup {
                workers: random.between(1, 3),
                chunk_packets: random.between(1, 60),
                ..Setup::cpu()
            };
            assert!(
                run(twins, 0, &frames, &setup) == expected,
                "chunks of {}",
                setup.chunk_packets
            );
        }
    }
}

/// A module that moves bytes in the frame: no later one looks for pieces where they were, in the same stage or behind a device.
#[test]
fn pieces_are_where_modules_are_told() {
    if !testkit::require_opencl() {
        return;
    }
    let mut random = Random::new(34);
    for _ in 0..3 {
        let frames = traffic::frames(&mut random);
        let setup = Setup { chunk_packets: random.pick(&[7, 256]), rows: 256, ..Setup::default() };
        for (twins, sources) in
            [([TAG, STILL, STILL, PLACES], 0b1010), ([TAG, STILL, PLACES, STILL], 0b1110)]
        {
            let [sent, dropped, dumped] = run(&twins, sources, &frames, &setup);
            assert_eq!((sent.len(), dropped.len(), dumped.len()), (frames.len(), 0, 0));
        }
        let [sent, dropped, dumped] = run(&[STILL, STILL, STILL, PLACES], 0b1010, &frames, &setup);
        assert!(dropped.is_empty() && dumped.len() > 3, "{} at their places", dumped.len());
        assert_eq!(sent.len() + dumped.len(), frames.len());
    }
}
