//! Encryption on devices: whatever encrypts or decrypts packets, in whatever jobs, with any number of workers, and whatever fails,
//! frames and reasons are those of one worker on the CPU.

mod esp;
#[allow(dead_code, unreachable_pub)] // that of another test
#[path = "../router/scenario.rs"]
mod scenario;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use apps::cipher::keys::Master;
use apps::cipher::settings::{Algorithm, Direction, Fill, Keys, Settings, Vector};
use apps::cipher::stage::Cipher;
use apps::cipher::table::{KeyPart, KeyPatch, KeyTable};
use apps::wire::Wire;
use chunk::{Packet, Pool};
use control::config::section::Word;
use controlplane::{Newest, PartId, Tables, TablesImages};
use crypto::Secret;
use device::accelerator::Options;
use device::faulty::{Faults, Faulty};
use device::witness::{Seen, Witness};
use device::{Cost, FaultPlan, probe};
use engine::{DeviceKind, DeviceSpec, Policy};
use io::{QueueStats, RxQueue};
use lookup::versions::{Reader, Writer, versions};
use packet::flow::tracked_hash_of_frame;
use testkit::frames::Frame;
use teststages::harness::{
    self, Backing, Case, Feed, Random, Setup, Stages, Subject, device_of_tests,
};

fn master(settings: &Settings, number: u8) -> Arc<Master> {
    let len = if settings.keys == Keys::Static { settings.key_len() } else { 32 };
    let key = Secret::new((0..len as u8).map(|byte| byte ^ 0x5a ^ number).collect());
    Arc::new(Master::new(settings, &key).expect("a key"))
}

/// Ciphers with their keys as tables.
struct Bed {
    ciphers: Vec<(Settings, Arc<Master>, PartId<KeyPart>)>,
    writer: Writer<Tables>,
    reader: Reader<Tables>,
}

impl Bed {
    /// Stages behind one another.
    fn new(all: Vec<Settings>) -> Self {
        let mut tables = Tables::default();
        let add = |settings: Settings| {
            let master = master(&settings, 0);
            let part = tables.add::<KeyPart>(KeyTable(master.clone()));
            (settings, master, part)
        };
        let ciphers = all.into_iter().map(add).collect();
        let (writer, reader) = versions(tables);
        Self { ciphers, writer, reader }
    }

    fn stages(&self) -> Stages<Tables> {
        let cipher = |(settings, master, part): &(Settings, Arc<Master>, PartId<KeyPart>)| {
            let name = match settings.direction {
                Direction::Encrypt => "seal",
                Direction::Decrypt => "open",
            };
            Box::new(Cipher::new(name, settings, *part, master.clone(), Arc::default())) as _
        };
        let mut stages: Stages<Tables> = self.ciphers.iter().map(cipher).collect();
        stages.push(Box::new(Wire::new()));
        stages
    }

    fn set_key(&mut self, number: u8) {
        let (settings, own, part) = &mut self.ciphers[0];
        *own = master(settings, number);
        self.writer.publish(vec![part.patch(vec![KeyPatch::new(own)])]);
    }

    /// What comes out of one worker on the CPU, by port.
    fn of_cpu(&self, input: &[Vec<u8>]) -> Vec<Vec<u8>> {
        self.check("on the CPU", input, &mut Random::new(0), (Backing::Cpu, 0))
    }

    /// Frames that come out of one worker on the CPU, and what `rounds` other setups of a kind make of them.
    fn check(
        &self,
        name: &str,
        input: &[Vec<u8>],
        random: &mut Random,
        (kind, rounds): (Backing, usize),
    ) -> Vec<Vec<u8>> {
        let versions = || Newest(self.reader.clone());
        let tables = || Box::new(TablesImages(self.writer.changes())) as Box<_>;
        let subject = |workers: usize| Subject {
            workers: (0..workers).map(|_| self.stages()).collect(),
            state: Box::new(Vec::new),
        };
        let case = Case {
            name,
            input: input.to_vec(),
            ports: 2,
            flow: |frame| tracked_hash_of_frame(frame),
            spread: tracked_hash_of_frame.into(),
            versions: &versions,
            tables: &tables,
            subject: &subject,
        };
        let (reference, run) = case.run(&Setup::cpu());
        let dropped = |mut all: Vec<(chunk::DropReason, (u64, Vec<u8>))>| {
            all.sort_by(|a, b| (a.0.code(), &a.1.1).cmp(&(b.0.code(), &b.1.1)));
            all.into_iter().map(|(reason, (_, frame))| (reason.code(), frame)).collect::<Vec<_>>()
        };
        let lost = dropped(run.dropped);
        if kind == Backing::Cpu {
            return reference.ports.concat();
        }
        // Nothing goes wrong, and all packets take the device.
        let run = case.check(&Setup { backing: kind, ..Setup::default() }, &reference);
        let master = run.view.master().expect("a device");
        assert_eq!((master.failed, run.device_errors), (0, vec![]), "{name}");
        assert!(master.jobs >= self.ciphers.len() as u64, "{name}: {master:?}");
        assert!(dropped(run.dropped) == lost, "{name}: other packets were dropped");
        for _ in 0..rounds {
            let run = case.check(&Setup::random(random, kind), &reference);
            assert!(dropped(run.dropped) == lost, "{name}: other packets were dropped");
        }
        reference.ports.concat()
    }
}

/// Packets of some connections, of all lengths, and some frames that are not encrypted.
fn traffic(random: &mut Random, count: usize) -> Vec<Vec<u8>> {
    let frame = |random: &mut Random| {
        let len = match random.below(12) {
            0 => 0,
            1 => 16 * random.between(1, 8),
            2 => random.between(1200, 1500),
            3 => random.between(2000, 6000),
            4 => 1,
            _ => random.between(1, 300),
        };
        let payload: Vec<u8> = (0..len).map(|_| random.word() as u8).collect();
        let connection = random.below(9) as u16;
        let own = match random.below(3) {
            0 => Frame::new().ipv6("2001:db8::1", &format!("2001:db8::2:{connection}")),
            _ => Frame::new()
                .ipv4("192.0.2.1", &format!("198.51.100.{connection}"))
                .identification(random.word() as u16),
        };
        let own = if random.one_in(4) { own.vlan(7) } else { own };
        let own = match random.below(8) {
            0 => own.echo_request(7, 1, &payload),
            1..4 => own.udp(4000 + connection, 53, &payload),
            _ => own.tcp(5000 + connection, 80, random.word() as u32, &payload),
        };
        if random.one_in(6) { own.padded(80) } else { own.bytes() }
    };
    (0..count).map(|_| frame(random)).collect()
}

/// Every cipher in each form.
fn ciphers() -> Vec<Settings> {
    let mut all = Vec::new();
    for (_, algorithm) in Algorithm::WORDS {
        for iv in [Vector::Carried, Vector::Derived] {
            for padding in [Fill::Pkcs7, Fill::None] {
                for keys in [Keys::Connection, Keys::Static] {
                    let own = Settings {
                        algorithm: *algorithm,
                        iv,
                        padding,
                        keys,
                        mtu: 9000,
                        ..Settings::default()
                    };
                    all.push(own);
                }
            }
        }
    }
    all.retain(|own| own.check().is_ok());
    all
}

/// Encrypted, decrypted with some frames damaged, and both in one pipeline.
fn round(settings: Settings, random: &mut Random, (kind, rounds): (Backing, usize)) {
    let frames = traffic(random, 150);
    let name =
        format!("{} {:?} {:?} {:?}", settings.name(), settings.iv, settings.keys, settings.padding);
    let back = Settings { direction: Direction::Decrypt, ..settings.clone() };
    let how = (kind, rounds);
    let mut sealed = Bed::new(vec![settings.clone()]).check(&name, &frames, random, how);
    assert!(sealed.len() > 20, "{name}: {}", sealed.len());
    for frame in &mut sealed {
        if random.one_in(8) {
            let at = random.between(12, frame.len() - 1);
            frame[at] ^= 1 << random.below(8);
        }
    }
    Bed::new(vec![back.clone()]).check(&format!("back, {name}"), &sealed, random, how);
    let again =
        Bed::new(vec![settings, back]).check(&format!("to and fro, {name}"), &frames, random, how);
    assert!(again.iter().all(|frame| frames.contains(frame)), "{name}");
}

fn some(kind: Backing, seed: u64, (count, rounds): (usize, usize)) {
    eprintln!("seed {seed}");
    let mut random = Random::new(seed);
    let mut all = ciphers();
    random.shuffle(&mut all);
    all.truncate(count);
    all.into_iter().for_each(|settings| round(settings, &mut random, (kind, rounds)));
}

#[test]
fn a_simulated_device_changes_nothing() {
    some(Backing::Simulated, 91, (usize::MAX, 1));
}

#[test]
fn a_device_changes_nothing() {
    if testkit::require_opencl() {
        some(Backing::Driver, 92, (usize::MAX, 0));
    }
}

/// Some ciphers, in more setups, with jobs that fail.
#[test]
fn nor_with_fresh_seeds() {
    some(Backing::Simulated, Random::from_time().word(), (3, 3));
    if testkit::require_opencl() {
        some(Backing::Driver, Random::from_time().word(), (2, 3));
    }
}

/// Bursts, each under another key, which is published before it.
struct Turns {
    bursts: Vec<Vec<Vec<u8>>>,
    settings: Settings,
    writer: Writer<Tables>,
    part: PartId<KeyPart>,
    next: usize,
    /// The number of the first key.
    base: u8,
    /// The newest key: nobody else keeps it but the tables.
    master: Arc<Master>,
    stats: QueueStats,
}

impl RxQueue for Turns {
    fn recv(&mut self, pool: &mut Pool, out: &mut Vec<Packet>, max: usize) -> usize {
        let Some(burst) = self.bursts.get(self.next) else { return 0 };
        assert!(burst.len() <= max);
        let master = master(&self.settings, self.base + self.next as u8);
        // Chunks in flight may still read the copy that is to be written.
        if self.writer.try_publish(vec![self.part.patch(vec![KeyPatch::new(&master)])]).is_err() {
            return 0;
        }
        self.master = master;
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

/// Keys, numbered from `base`, change while packets flow: each packet has the key of its version.
fn keys_change(
    base: u8,
    kind: impl FnOnce(&Writer<Tables>, &Settings) -> DeviceKind<Tables>,
    errors: u64,
) {
    let settings = Settings { mtu: 9000, ..Settings::default() };
    let mut random = Random::new(93);
    let bursts: Vec<_> = (0..12).map(|_| traffic(&mut random, 40)).collect();
    let mut expected = Vec::new();
    for (number, burst) in bursts.iter().enumerate() {
        let mut bed = Bed::new(vec![settings.clone()]);
        bed.set_key(base + number as u8);
        expected.extend(bed.of_cpu(burst));
    }
    let mut bed = Bed::new(vec![settings.clone()]);
    let stages = bed.stages();
    let (_, _, part) = bed.ciphers.remove(0);
    let device = DeviceSpec {
        kind: kind(&bed.writer, &settings),
        slots: 2,
        rows: 256,
        policy: Policy::Device,
    };
    let versions = Newest(bed.reader.clone());
    let first = master(&settings, 99);
    let turns = Turns {
        bursts,
        settings,
        writer: bed.writer,
        part,
        next: 0,
        base,
        master: first,
        stats: QueueStats::default(),
    };
    let feed = Feed {
        worker: 0,
        port: 0,
        queue: Box::new(turns),
        spread: None,
        entry: engine::Entry::default(),
    };
    let bed = harness::Bed {
        feeds: vec![feed],
        ports: 2,
        devices: vec![device],
        chunk_packets: 64,
        packet_time: true,
        cells: 20_000,
        ..harness::Bed::new(Vec::new())
    };
    let run = bed.run(vec![(versions, stages)]);
    assert!(run.panics.is_empty(), "{}", run.panics[0]);
    run.conserves().unwrap();
    let sent: Vec<Vec<u8>> = run.ports.into_iter().flatten().map(|(_, frame)| frame).collect();
    assert!(sent == expected);
    let master = run.view.master().expect("a device");
    assert_eq!(master.failed, errors, "{:?}", run.device_errors);
    assert!(master.jobs > 5, "{master:?}");
}

#[test]
fn keys_change_on_a_simulated_device() {
    keys_change(
        100,
        |_, _| DeviceKind::Simulated {
            cost: Cost { launch: Duration::from_micros(20), row: Duration::from_nanos(10) },
            faults: FaultPlan { failing: [2, 5].into(), ..FaultPlan::default() },
        },
        2,
    );
}

/// What a device had of keys is gone in the end, also if jobs fail between two kernels or before the key is there.
#[test]
fn keys_do_not_stay_on_a_device() {
    if !testkit::require_opencl() {
        return;
    }
    // Memory of the device may be memory that the test has freed, so each run has other keys.
    for (base, at) in [(16, None), (32, Some(18)), (48, Some(19)), (64, Some(20)), (80, Some(21))] {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let kind = |writer: &Writer<Tables>, settings: &Settings| {
            let words = |master: &Master| -> Vec<u8> {
                master.words()[8..16].iter().flat_map(|word| word.to_le_bytes()).collect()
            };
            let masters = (0..12).map(|number| words(&master(settings, base + number)));
            seen.lock().unwrap().secrets = masters.collect();
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
        // The only job of a version may be the one that fails.
        let unsent = seen.sent.iter().filter(|sent| !**sent).count();
        assert!(unsent <= usize::from(at.is_some()), "{at:?}: {:?}", seen.sent);
        assert!(seen.looked_at > 100_000 && seen.left.is_empty(), "{at:?}: {:?}", seen.left);
    }
}
