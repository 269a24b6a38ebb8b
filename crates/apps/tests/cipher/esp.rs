//! ESP on devices: whatever is sealed and opened, in whatever jobs, and whatever fails, frames and reasons are those of stages that
//! do it in one step on the CPU.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use apps::ipsec::current::{Current, Reader as ViewReader};
use apps::ipsec::device::keys::{KEY_WORDS, Places, word, write_record};
use apps::ipsec::incoming::EspIn;
use apps::ipsec::outgoing::EspOut;
use apps::router::{PipelineOptions, RouterPart};
use chunk::{Packet, Pool};
use controlplane::{Newest, OverPart, PartId, Tables, TablesImages};
use crypto::{Key, Secret, SecretWords, Suite};
use device::accelerator::Options;
use device::faulty::{Faults, Faulty};
use device::probe;
use device::witness::{Seen, Witness};
use engine::{DeviceKind, DeviceSpec, Policy as Balance};
use io::{QueueStats, RxQueue};
use ipsec::{Action, Database, Direction, Dont, Mode, Parameters, Policy, Selector, Template, Udp};
use lookup::versions::{Reader, Writer, versions};
use testkit::frames::Frame;
use teststages::harness::{
    self, Answer, Backing, Case, Feed, Random, Run, Setup, Stages, Subject, device_of_tests,
};

use crate::scenario;

/// What an association is in a test: its number is index, place of its network, and key.
#[derive(Clone)]
struct Own {
    suite: Suite,
    number: u16,
    /// The family of what a tunnel carries.
    carries_v6: bool,
    parameters: Parameters,
}

fn address(text: String) -> IpAddr {
    text.parse().expect("an address")
}

/// An association for each suite, in any mode, with any numbers.
fn associations(random: &mut Random) -> Vec<Own> {
    let of = |(suite, number): (Suite, u16)| {
        let (is_v6, carries_v6) = (random.one_in(2), random.one_in(2));
        let mode = if random.one_in(3) { Mode::Transport } else { Mode::Tunnel };
        let carries_v6 = if mode == Mode::Transport { is_v6 } else { carries_v6 };
        let ends = match (mode, is_v6) {
            (Mode::Tunnel, false) => ("10.0.2.1".to_owned(), "10.0.2.2".to_owned()),
            (Mode::Tunnel, true) => ("fd00:2::1".to_owned(), "fd00:2::2".to_owned()),
            (Mode::Transport, false) => ("10.0.1.2".to_owned(), format!("10.9.{number}.7")),
            (Mode::Transport, true) => ("fd00:1::2".to_owned(), format!("fd09:{number}::7")),
        };
        let parameters = Parameters {
            mode,
            is_extended: random.one_in(2),
            window: random.pick(&[64, 1024]),
            first_number: random.pick(&[1, 77, 0xffff_ff00]),
            udp: random.one_in(3).then_some(Udp { source: 4500, destination: 4500 }),
            pad_to: random.pick(&[0, 0, 200]),
            dont_fragment: Dont::Set,
            ..Parameters::new(
                Direction::Out,
                0x1000 + u32::from(number),
                (address(ends.0), address(ends.1)),
                number.into(),
            )
        };
        Own { suite, number, carries_v6, parameters }
    };
    Suite::all().zip(1..).map(of).collect()
}

fn key(own: &Own, salt: u8) -> Key {
    let of = |len: usize| {
        let byte = |at: u8| at.wrapping_mul(31) ^ own.number as u8 ^ salt;
        Secret::new((0..len as u8).map(byte).collect())
    };
    let (encryption, authentication) =
        (of(own.suite.encryption_key_len()), of(own.suite.authentication_key_len()));
    Key::new(own.suite, &encryption, &authentication).expect("a key")
}

/// A router that seals or opens, with associations that nobody has used.
struct Bed {
    direction: Direction,
    router: PartId<RouterPart>,
    places: Option<Places>,
    database: Database,
    current: Arc<Current>,
    writer: Option<Writer<Tables>>,
    reader: Reader<Tables>,
}

impl Bed {
    fn new(direction: Direction, all: &[Own], is_split: bool) -> Self {
        let mut tables = Tables::default();
        let mut two_ports = scenario::two_ports(scenario::unlimited());
        if !two_ports.routes4.len().is_multiple_of(2) {
            // The smaller tables.
            scenario::add_route(
                &mut two_ports,
                "192.88.99.0/24",
                scenario::via(&[(1, "10.0.2.2")]),
            );
        }
        let router = tables.add::<RouterPart>(scenario::fib(&two_ports));
        let mut database = Database::new();
        for own in all {
            add(&mut database, direction, own, 0);
            let destination = match own.carries_v6 {
                true => format!("fd09:{}::/32", own.number),
                false => format!("10.9.{}.0/24", own.number),
            };
            let destination = Some(destination.parse().expect("a prefix"));
            let selector = Selector { destination, ..Selector::ANY };
            let action = Action::Protect(Template { reqid: own.number.into(), tunnel: None });
            let policy =
                Policy { direction, priority: own.number.into(), if_id: 0, selector, action };
            database.add_policy(policy).expect("a policy");
        }
        let current = Arc::new(Current::new(database.view().expect("a view"), None, None));
        let places = is_split.then(|| Places::start(&database, &mut tables));
        let (writer, reader) = versions(tables);
        let writer = Some(writer);
        Self { direction, router, places, database, current, writer, reader }
    }

    fn stages(&self) -> Stages<Tables> {
        let esp = if self.direction == Direction::Out { "esp_out" } else { "esp_in" };
        let names = match self.direction {
            Direction::Out => ["decode", "route", esp, "rewrite"],
            Direction::In => ["decode", esp, "route", "rewrite"],
        };
        let names = names.map(str::to_owned);
        let options =
            PipelineOptions { first_region: self.router.regions().start, ..Default::default() };
        let view = || ViewReader::new(self.current.clone());
        let part = self.places.as_ref().map(Places::part);
        let stage = |name: &String| match (&**name, part) {
            ("esp_out", part) => {
                let own = EspOut::new(view(), &options, &names, Arc::default());
                Box::new(if let Some(part) = part { own.with_device(part) } else { own }) as _
            }
            ("esp_in", part) => {
                let own = EspIn::new(view(), &options, &names, Arc::default());
                Box::new(if let Some(part) = part { own.with_device(part) } else { own }) as _
            }
            (name, _) => {
                let own = apps::router::stage(name, &names, &options).expect("a stage");
                OverPart::boxed(own, self.router)
            }
        };
        names.iter().map(stage).collect()
    }

    fn with<R>(
        &self,
        name: &str,
        input: &[Vec<u8>],
        run: impl FnOnce(&Case<'_, Newest<Tables>>) -> R,
    ) -> R {
        let versions = || Newest(self.reader.clone());
        let writer = self.writer.as_ref().expect("a writer");
        let tables = || Box::new(TablesImages(writer.changes())) as Box<_>;
        let subject =
            |_: usize| Subject { workers: vec![self.stages()], state: Box::new(Vec::new) };
        let hash = |_: &[u8]| 0;
        run(&Case {
            name,
            input: input.to_vec(),
            ports: 2,
            flow: |_| 0,
            spread: hash.into(),
            versions: &versions,
            tables: &tables,
            subject: &subject,
        })
    }
}

fn add(database: &mut Database, direction: Direction, own: &Own, salt: u8) {
    let parameters = Parameters { direction, ..own.parameters.clone() };
    database.replace(parameters, key(own, salt), 0).expect("an association");
}

/// Packets for all associations, and some that no policy protects.
fn traffic(random: &mut Random, all: &[Own], count: usize) -> Vec<Vec<u8>> {
    let frame = |random: &mut Random| {
        let len = match random.below(8) {
            0 => 0,
            1 => random.between(1380, 1472),
            2 => random.between(1, 40),
            _ => random.between(1, 700),
        };
        let payload: Vec<u8> = (0..len).map(|_| random.word() as u8).collect();
        let own = &all[random.below(all.len())];
        let number = if random.one_in(9) { 200 } else { own.number };
        let frame = match own.carries_v6 {
            true => scenario::frame().ipv6("fd00:1::2", &format!("fd09:{number}::7")),
            false => scenario::frame().ipv4("10.0.1.2", &format!("10.9.{number}.7")),
        };
        // Fragments are the router's.
        let frame = frame.ttl(random.pick(&[64, 64, 64, 64, 64, 64, 3, 2, 1])).dont_fragment();
        if random.one_in(6) {
            frame.echo_request(7, 1, &payload).bytes()
        } else {
            udp(frame, &payload)
        }
    };
    (0..count).map(|_| frame(random)).collect()
}

fn udp(frame: Frame, payload: &[u8]) -> Vec<u8> {
    frame.udp(4000, 53, payload).bytes()
}

/// What the other router receives of frames that were sent to it: some twice, some late, some damaged.
fn received(random: &mut Random, sealed: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for frame in sealed {
        let mut frame = frame.clone();
        let front = scenario::frame().ipv4("10.0.1.2", "10.0.1.2").udp(1, 1, &[]).bytes();
        frame[..12].copy_from_slice(&front[..12]);
        if random.one_in(12) && frame.len() > 60 {
            let at = random.between(48, frame.len() - 1);
            frame[at] ^= 1 << random.below(8);
        }
        if random.one_in(15) {
            all.push(frame.clone());
        }
        let at =
            all.len() - if random.one_in(10) { random.below(all.len().min(30) + 1) } else { 0 };
        all.insert(at, frame);
    }
    all
}

/// What stages that do all in one step answer, and then what those with a step in between do: on the CPU, and on what is behind
/// `kind` in some ways.
fn check(
    name: &str,
    direction: Direction,
    all: &[Own],
    input: &[Vec<u8>],
    (random, kind, rounds): (&mut Random, Backing, usize),
) -> Vec<Vec<u8>> {
    let reference =
        Bed::new(direction, all, false).with(name, input, |case| case.run(&Setup::cpu()));
    let lost = dropped(&reference.1);
    let reference: Answer = reference.0;
    let run = |setup: &Setup| {
        let run =
            Bed::new(direction, all, true).with(name, input, |case| case.check(setup, &reference));
        assert!(dropped(&run) == lost, "{name}: other packets were dropped");
        run
    };
    run(&Setup::cpu());
    let whole = run(&Setup { backing: kind, ..Setup::default() });
    let master = whole.view.master().expect("a device");
    assert_eq!((master.failed, whole.device_errors), (0, vec![]), "{name}");
    assert!(master.jobs > 0, "{name}");
    for _ in 0..rounds {
        run(&Setup { workers: 1, ..Setup::random(random, kind) });
    }
    reference.ports.concat()
}

fn dropped(run: &Run) -> Vec<(u16, Vec<u8>)> {
    let all = run.dropped.iter().map(|(reason, (_, frame))| (reason.code(), frame.clone()));
    let mut all: Vec<_> = all.collect();
    all.sort();
    all
}

fn there_and_back(kind: Backing, seed: u64, (count, rounds): (usize, usize)) {
    eprintln!("seed {seed}");
    let mut random = Random::new(seed);
    let all = associations(&mut random);
    let frames = traffic(&mut random, &all, count);
    let sealed = check("seal", Direction::Out, &all, &frames, (&mut random, kind, rounds));
    assert!(sealed.len() > count / 2, "{}", sealed.len());
    let received = received(&mut random, &sealed);
    let opened = check("open", Direction::In, &all, &received, (&mut random, kind, rounds));
    let payload = |frame: &Vec<u8>| frame[frame.len().saturating_sub(8)..].to_vec();
    let sent: Vec<_> = frames.iter().map(payload).collect();
    let back = opened.iter().filter(|frame| sent.contains(&payload(frame))).count();
    assert!(back > count / 8, "{back} of {count} came back");
}

#[test]
fn a_simulated_device_seals_and_opens_alike() {
    there_and_back(Backing::Simulated, 81, (1500, 4));
}

#[test]
fn a_device_seals_and_opens_alike() {
    if testkit::require_opencl() {
        there_and_back(Backing::Driver, 82, (700, 1));
    }
}

/// In more setups, with jobs that fail.
#[test]
fn nor_do_fresh_seeds_differ() {
    there_and_back(Backing::Simulated, Random::from_time().word(), (600, 4));
    if testkit::require_opencl() {
        there_and_back(Backing::Driver, Random::from_time().word(), (200, 2));
    }
}

/// Bursts, before each of which every association gets another key; the one before has ended.
struct Turns {
    bursts: Vec<Vec<Vec<u8>>>,
    all: Vec<Own>,
    database: Database,
    places: Places,
    current: Arc<Current>,
    writer: Writer<Tables>,
    /// Changes that no version has yet: chunks in flight may still read the copy that is to be written.
    waiting: Option<Vec<controlplane::TablesPatch>>,
    next: usize,
    base: u8,
    stats: QueueStats,
}

impl RxQueue for Turns {
    fn recv(&mut self, pool: &mut Pool, out: &mut Vec<Packet>, max: usize) -> usize {
        let Some(burst) = self.bursts.get(self.next) else { return 0 };
        assert!(burst.len() <= max);
        let patches = self.waiting.take().unwrap_or_else(|| {
            for own in &self.all {
                add(&mut self.database, Direction::Out, own, self.base + self.next as u8);
            }
            self.places.look(&self.database);
            self.places.take_patches().into_iter().collect()
        });
        if let Err(waiting) = self.writer.try_publish(patches) {
            self.waiting = Some(waiting);
            return 0;
        }
        self.current.set(self.database.view().expect("a view"));
        self.next += 1;
        for frame in burst {
            let mut packet = Packet::copy_from(pool, frame).expect("a cell");
            packet.port = 0;
            packet.time_ns = 1 + self.stats.packets;
            self.stats.packets += 1;
            out.push(packet);
        }
        burst.len()
    }

    fn is_finished(&self) -> bool {
        self.next == self.bursts.len()
    }

    fn stats(&self) -> QueueStats {
        self.stats
    }
}

const BURSTS: usize = 10;

/// Associations of suites with kernels, in tunnel mode with short numbers.
fn plain_associations() -> Vec<Own> {
    let mut all = associations(&mut Random::new(7));
    all.retain(|own| apps::ipsec::device::keys::has_kernels(own.suite));
    all = all.into_iter().step_by(5).collect();
    for own in &mut all {
        let ends = (address("10.0.2.1".to_owned()), address("10.0.2.2".to_owned()));
        own.parameters = Parameters {
            dont_fragment: Dont::Set,
            ..Parameters::new(Direction::Out, own.parameters.spi, ends, own.parameters.reqid)
        };
    }
    all
}

/// Keys change while packets flow: each packet is sealed by one of the keys of its association, whole.
fn keys_change(base: u8, kind: impl FnOnce(&Writer<Tables>) -> DeviceKind<Tables>, errors: u64) {
    let all = plain_associations();
    let mut random = Random::new(83);
    let bursts: Vec<_> = (0..BURSTS).map(|_| traffic(&mut random, &all, 40)).collect();
    let mut bed = Bed::new(Direction::Out, &all, true);
    let stages = bed.stages();
    let writer = bed.writer.take().expect("a writer");
    let device = DeviceSpec { kind: kind(&writer), slots: 2, rows: 256, policy: Balance::Device };
    let versions = Newest(bed.reader.clone());
    let turns = Turns {
        bursts,
        all: all.clone(),
        database: bed.database,
        places: bed.places.take().expect("places"),
        current: bed.current,
        writer,
        waiting: None,
        next: 0,
        base,
        stats: QueueStats::default(),
    };
    let entry = engine::Entry::default();
    let feed = Feed { worker: 0, port: 0, queue: Box::new(turns), spread: None, entry };
    let run = harness::Bed {
        feeds: vec![feed],
        ports: 2,
        devices: vec![device],
        chunk_packets: 64,
        packet_time: true,
        cells: 20_000,
        ..harness::Bed::new(Vec::new())
    }
    .run(vec![(versions, stages)]);
    assert!(run.panics.is_empty(), "{}", run.panics[0]);
    run.conserves().unwrap();
    let master = run.view.master().expect("a device");
    assert_eq!(master.failed, errors, "{:?}", run.device_errors);
    assert!(master.jobs > 3, "{master:?}");
    let sent = run.ports.into_iter().flatten().map(|(_, frame)| frame);
    let sealed: Vec<_> = sent.filter(|frame| frame[23] == 50).collect();
    assert!(sealed.len() > BURSTS * 20, "{}", sealed.len());
    for frame in sealed {
        let spi = u32::from_be_bytes(frame[34..38].try_into().unwrap());
        let own = all.iter().find(|own| own.parameters.spi == spi).expect("an association");
        let is_genuine = (0..BURSTS as u8).any(|turn| {
            let mut packet = frame[34..].to_vec();
            let opener = crypto::esp::Inbound::new(key(own, base + turn), spi, false, 0).unwrap();
            let mut opens = [opener.open(&mut packet)];
            crypto::esp::open_batch(&mut opens);
            opens[0].result().is_ok()
        });
        assert!(is_genuine, "{}", own.suite);
    }
}

#[test]
fn keys_change_on_a_simulated_device() {
    keys_change(
        100,
        |_| DeviceKind::Simulated {
            cost: device::Cost { launch: Duration::from_micros(20), row: Duration::from_nanos(10) },
            faults: device::FaultPlan { failing: [2, 5].into(), ..device::FaultPlan::default() },
        },
        2,
    );
}

/// What a device had of keys is gone in the end, also if jobs fail between two kernels.
#[test]
fn keys_do_not_stay_on_a_device() {
    if !testkit::require_opencl() {
        return;
    }
    // Memory of the device may be memory that the test has freed, so each run has other keys.
    for (base, at) in [(16, None), (48, Some(20)), (80, Some(24))] {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let kind = |writer: &Writer<Tables>| {
            let mut secrets = Vec::new();
            for own in plain_associations() {
                for turn in 0..BURSTS as u8 {
                    let parameters = own.parameters.clone();
                    let association =
                        ipsec::Association::new(parameters, key(&own, base + turn), 0).unwrap();
                    let mut words = SecretWords::zeros(KEY_WORDS);
                    write_record(&mut words, 0, Some(&association));
                    let bytes = |at: usize| -> Vec<u8> {
                        let words = &words.expose()[at..at + 8];
                        words.iter().flat_map(|word| word.to_le_bytes()).collect()
                    };
                    let all = [word::AES + 4, word::HASH].map(bytes);
                    secrets.extend(all.into_iter().filter(|own| own.iter().any(|byte| *byte != 0)));
                }
            }
            seen.lock().unwrap().secrets = secrets;
            let (api, number) = device_of_tests();
            let driver = probe::open(api, number).expect("a device");
            let witness = Box::new(Witness::new(driver, seen.clone()));
            DeviceKind::Driver {
                driver: Box::new(Faulty::new(witness, Faults { launch: at, ..Faults::default() })),
                tables: Box::new(TablesImages(writer.changes())),
                options: Options { patience: Duration::from_secs(60), ..Options::default() },
            }
        };
        keys_change(base, kind, at.is_some().into());
        let seen = seen.lock().unwrap();
        let sent = seen.sent.iter().filter(|sent| **sent).count();
        assert!(sent > seen.secrets.len() / 4, "{at:?}: {sent} of {}", seen.secrets.len());
        assert!(seen.looked_at > 100_000 && seen.left.is_empty(), "{at:?}: {:?}", seen.left);
    }
}
