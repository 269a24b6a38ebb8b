//! The gateway between queues in memory, and the packets that it gets.
//!
//! ```text
//!  sealing   plain frames ─▶ decode ─▶ esp_in ─▶ route ─▶ esp_out ─▶ rewrite ─▶ ports
//!  opening   ESP frames   ─▶ the same stages                                  ─▶ ports
//! ```
//!
//! Each packet is there once, in cells that no cache holds, and each measurement has associations whose numbers and windows
//! are new. Time is the worker's own, from its first packet until its queue is empty.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use apps::ipsec::current::{Counters, Current, Reader as Views};
use apps::ipsec::device::keys::{EspPart, Places};
use apps::ipsec::incoming::EspIn;
use apps::ipsec::outgoing::EspOut;
use apps::router::{PipelineOptions, RouterPart, stage};
use chunk::{Depot, HugePages, Packet, Pool, Region};
use controlplane::{OverPart, PartId, Tables, TablesImages};
use crypto::esp::{self, Outbound};
use crypto::{Authentication, Encryption, Icv, Key, KeySize, Secret, Suite};
use engine::{DeviceSpec, Stage};
use io::memory::{Collect, Replay, Script};
use io::{QueueStats, RxQueue, TxQueue};
use ipsec::{Action, Database, Direction, Parameters, Policies, Policy, Selector, Template, View};
use lookup::fib::RouteTables;
use lookup::versions::{Reader, Writer, versions};
use packet::IpProtocol;
use packet::ipv4::Ipv4Header;

use super::on_device::{self, CHUNKS};
use crate::forms::thread_seconds;
use crate::forward::{Ends, start_workers, start_workers_with};
use crate::nat::{sent, wait_for};
use crate::tables::{self, PORTS, Random};

/// The router's own end of the tunnels when it opens, and when it seals.
const OWN: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 1, 0, 1)];
/// The other end.
const PEER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);
/// Behind it: 172.16.0.0/12, a host for each association.
const HOSTS: u32 = u32::from_be_bytes([172, 16, 0, 0]);
/// On this side.
const HERE: Ipv4Addr = Ipv4Addr::new(192, 168, 0, 7);
/// The SPI of the first association, as the peer has it.
const SPI: u32 = 0x1000;
/// Room for what a tunnel adds to the longest frame.
const MTU: u16 = 9000;
/// Bytes in front of an IP packet, and of the outer IP header.
const LINK: usize = packet::ethernet::HEADER_LEN;
const OUTER: usize = packet::ipv4::HEADER_LEN;
/// Two workers of one association stay this close, in packets: less than the window.
const APART: usize = 1024;

/// A suite that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cipher {
    CtrSha1,
    Gcm,
}

impl Cipher {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::CtrSha1 => "AES-128-CTR + HMAC-SHA1",
            Self::Gcm => "AES-128-GCM",
        }
    }

    fn suite(self) -> Suite {
        let (encryption, authentication) = match self {
            Self::CtrSha1 => (Encryption::AesCtr(KeySize::Bits128), Authentication::HmacSha1_96),
            Self::Gcm => (Encryption::AesGcm(KeySize::Bits128, Icv::Bytes16), Authentication::None),
        };
        Suite::new(encryption, authentication).expect("ESP has these suites")
    }

    /// The key of an association, as the peer has it.
    pub(super) fn key(self, number: usize) -> Result<Key, String> {
        let suite = self.suite();
        let bytes = |len: usize| Secret::new((0..len).map(|at| (at * 7 + number) as u8).collect());
        let (own, mac) = (suite.encryption_key_len(), suite.authentication_key_len());
        Key::new(suite, &bytes(own), &bytes(mac)).map_err(|error| error.to_string())
    }
}

/// Which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Seal,
    Open,
}

impl Way {
    pub(super) const ALL: [Self; 2] = [Self::Seal, Self::Open];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Seal => "sealing",
            Self::Open => "opening",
        }
    }
}

/// Packets of a measurement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load<'a> {
    pub(super) cipher: Cipher,
    pub(super) way: Way,
    pub(super) associations: usize,
    pub(super) packets: usize,
    /// Bytes of the inner packets, IP headers included, which take turns.
    pub(super) sizes: &'a [usize],
}

impl Load<'_> {
    /// The associations of the packets: at random where there are several.
    fn turns(&self) -> impl Iterator<Item = usize> + use<> {
        let (count, mut random) = (self.associations, Random(3));
        let any = move |_| if count == 1 { 0 } else { random.below(count) };
        (0..self.packets).map(any)
    }

    fn inner(&self, at: usize, association: usize) -> Vec<u8> {
        let there = Ipv4Addr::from_bits(HOSTS + association as u32);
        let ends = if self.way == Way::Seal { (HERE, there) } else { (there, HERE) };
        inner(ends, self.sizes[at % self.sizes.len()], at)
    }

    /// The frames of a worker out of `workers`, which take turns.
    fn frames(&self, worker: usize, workers: usize) -> Result<Vec<Vec<u8>>, String> {
        let own = |(at, _): &(usize, usize)| at / 256 % workers == worker;
        if self.way == Way::Seal {
            let all = self.turns().enumerate().filter(own);
            return Ok(all.map(|(at, association)| link(&self.inner(at, association))).collect());
        }
        let suite = self.cipher.suite();
        let mut sealers: Vec<Option<Outbound>> = (0..self.associations).map(|_| None).collect();
        let mut frames = Vec::with_capacity(self.packets / workers);
        for (at, association) in self.turns().enumerate() {
            let sealer = match &mut sealers[association] {
                Some(sealer) => sealer,
                place => {
                    let key = self.cipher.key(association)?;
                    let made = Outbound::new(key, SPI + association as u32, false);
                    place.insert(made.map_err(|error| error.to_string())?)
                }
            };
            let number = sealer.take(1).next().ok_or("numbers have ended")?;
            if !own(&(at, association)) {
                continue;
            }
            let inner = self.inner(at, association);
            let front = LINK + OUTER + esp::front_len(suite);
            let mut frame = vec![0; front + inner.len() + esp::back_len(suite, inner.len())];
            frame[front..front + inner.len()].copy_from_slice(&inner);
            write_link(&mut frame);
            let (head, body) = frame.split_at_mut(LINK + OUTER);
            let from = front - LINK - OUTER;
            let mut seal = [number.seal(body, from..from + inner.len(), 4, 0)];
            esp::seal_batch(&mut seal);
            seal[0].result().map_err(|error| error.to_string())?;
            let header = Ipv4Header::new(PEER, OWN[0], IpProtocol::ESP);
            header.emit(body.len(), &mut head[LINK..]);
            frames.push(frame);
        }
        Ok(frames)
    }

    /// Bytes of inner packets.
    pub(super) fn bytes(&self) -> usize {
        (0..self.packets).map(|at| self.sizes[at % self.sizes.len()]).sum()
    }

    /// Bytes that the gateway receives, with 24 for each packet as PacketShader counts what Ethernet adds.
    pub(super) fn received_bytes(&self) -> usize {
        let suite = self.cipher.suite();
        let len = |size: usize| match self.way {
            Way::Seal => LINK + size,
            Way::Open => LINK + OUTER + esp::front_len(suite) + size + esp::back_len(suite, size),
        };
        (0..self.packets).map(|at| len(self.sizes[at % self.sizes.len()]) + 24).sum()
    }
}

fn write_link(frame: &mut [u8]) {
    frame[..6].copy_from_slice(&tables::port_mac(0));
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 2, 0]);
    frame[12..LINK].copy_from_slice(&[0x08, 0x00]);
}

fn link(inner: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; LINK];
    write_link(&mut frame);
    frame.extend_from_slice(inner);
    frame
}

/// A UDP packet of `size` bytes.
fn inner((from, to): (Ipv4Addr, Ipv4Addr), size: usize, at: usize) -> Vec<u8> {
    let mut packet = vec![at as u8; size];
    let len = size - OUTER;
    Ipv4Header::new(from, to, IpProtocol::UDP).emit(len, &mut packet);
    let fields = [1024 + (at % 60_000) as u16, 53, len as u16, 0].map(u16::to_be_bytes);
    packet[OUTER..OUTER + 8].copy_from_slice(fields.as_flattened());
    packet
}

/// Gives each packet once, in step with another worker.
struct Once {
    replay: Replay,
    left: usize,
    begin: Option<f64>,
    took: Arc<OnceLock<f64>>,
    step: Option<Arc<Step>>,
    worker: usize,
    given: usize,
}

/// Queues of a worker that has each frame once: nothing of it needs to be written anew, which would be work of the load.
fn queues(
    frames: &[Vec<u8>],
    depot: &Arc<Depot>,
) -> Result<(Replay, Vec<Box<dyn TxQueue>>), String> {
    let mut pool = Pool::new(depot.clone(), 512);
    let mut replay =
        Replay::new(&mut pool, frames.iter().map(Vec::as_slice), false).ok_or("too few cells")?;
    let tx = (0..PORTS).map(|_| Box::new(replay.recycle(4096)) as Box<dyn TxQueue>).collect();
    Ok((replay, tx))
}

/// How many packets two workers have had.
#[derive(Default)]
struct Step {
    had: Mutex<[usize; 2]>,
    more: Condvar,
}

impl Step {
    /// Waits until the other worker is near, or does not come.
    fn wait(&self, worker: usize, given: usize) {
        let mut had = self.had.lock().unwrap_or_else(PoisonError::into_inner);
        had[worker] = given;
        self.more.notify_all();
        let is_ahead = |had: &mut [usize; 2]| given > had[1 - worker] + APART;
        let _ = self.more.wait_timeout_while(had, Duration::from_secs(5), is_ahead);
    }
}

impl RxQueue for Once {
    fn recv(&mut self, pool: &mut Pool, out: &mut Vec<Packet>, max: usize) -> usize {
        let begin = *self.begin.get_or_insert_with(thread_seconds);
        if self.left == 0 {
            self.took.get_or_init(|| thread_seconds() - begin);
            return 0;
        }
        if let Some(step) = &self.step {
            step.wait(self.worker, self.given);
        }
        let n = self.replay.recv(pool, out, max.min(self.left));
        self.left -= n;
        self.given += n;
        if let (0, Some(step)) = (self.left, &self.step) {
            step.wait(self.worker, self.given);
        }
        n
    }

    fn release(&mut self, pool: &mut Pool) {
        self.replay.release(pool);
    }

    fn stats(&self) -> QueueStats {
        self.replay.stats()
    }
}

/// What became of a load that several workers received.
#[cfg(test)]
pub(super) struct Shared {
    /// Places of the packets in the load, as they left.
    pub(super) left: Vec<usize>,
    /// The numbers of sealed packets, in the same order.
    pub(super) numbers: Vec<u32>,
    /// Packets that each worker has opened or sealed.
    pub(super) done: Vec<u64>,
    /// The association's worker.
    pub(super) owner: Option<u16>,
}

/// Tables, and where the packets are.
pub(super) struct Gateway {
    _writer: Writer<Tables>,
    reader: Reader<Tables>,
    part: PartId<RouterPart>,
    depot: Arc<Depot>,
}

impl Gateway {
    /// With room for so many packets.
    pub(super) fn new(packets: usize) -> Result<Self, String> {
        let routes = lookup::routes::read(&b"0.0.0.0/1 a\n128.0.0.0/1 a\n"[..])
            .map_err(|error| error.to_string())?;
        let (builder, fib) = tables::fib_of_mtu(&routes, RouteTables::default(), MTU, |_| 1)?;
        drop(builder);
        let mut tables = Tables::default();
        let part = tables.add::<RouterPart>(fib);
        let (writer, reader) = versions(tables);
        let cells = packets as u32 + 16_384;
        let (_, depot) = Region::new(cells, HugePages::Advise).map_err(|e| e.to_string())?;
        Ok(Self { _writer: writer, reader, part, depot })
    }

    /// Associations and policies of a load.
    fn database(load: &Load<'_>) -> Result<(Database, Vec<Policy>), String> {
        let (direction, ends) = match load.way {
            Way::Seal => (Direction::Out, (OWN[1], PEER)),
            Way::Open => (Direction::In, (PEER, OWN[0])),
        };
        let ends = (IpAddr::V4(ends.0), IpAddr::V4(ends.1));
        let mut database = Database::new();
        let mut all = Vec::with_capacity(load.associations);
        for number in 0..load.associations {
            let reqid = number as u32 + 1;
            let parameters = Parameters {
                window: 4096,
                ..Parameters::new(direction, SPI + number as u32, ends, reqid)
            };
            let added = database.add(parameters, load.cipher.key(number)?, 0);
            added.map_err(|error| error.to_string())?;
            let host = ipnet::IpNet::from(IpAddr::from(Ipv4Addr::from_bits(HOSTS + number as u32)));
            let selector = Selector { destination: Some(host), ..Selector::ANY };
            let selector = if direction == Direction::Out { selector } else { selector.reversed() };
            let action = Action::Protect(Template { reqid, tunnel: None });
            all.push(Policy { direction, priority: reqid, if_id: 0, selector, action });
        }
        Ok((database, all))
    }

    fn view(load: &Load<'_>) -> Result<Arc<View>, String> {
        let (database, policies) = Self::database(load)?;
        with_policies(database, load.way, &policies)
    }

    fn stages(
        &self,
        current: &Arc<Current>,
        part: Option<PartId<EspPart>>,
    ) -> Result<Vec<Box<dyn Stage<Tables>>>, String> {
        self.stages_with(current, part, &Arc::default())
    }

    fn stages_with(
        &self,
        current: &Arc<Current>,
        part: Option<PartId<EspPart>>,
        counters: &Arc<Counters>,
    ) -> Result<Vec<Box<dyn Stage<Tables>>>, String> {
        const NAMES: [&str; 3] = ["decode", "route", "rewrite"];
        let names = ["decode", apps::ipsec::IN, "route", apps::ipsec::OUT, "rewrite"];
        let names = names.map(str::to_owned);
        let options = PipelineOptions::default();
        let views = || Views::new(current.clone());
        let mut stages: Vec<Box<dyn Stage<Tables>>> = Vec::new();
        for name in NAMES {
            if name == "rewrite" {
                let own = EspOut::new(views(), &options, &names, counters.clone());
                stages.push(match part {
                    Some(part) => Box::new(own.with_device(part)),
                    None => Box::new(own),
                });
            }
            let own = stage(name, &names, &options).map_err(|error| error.to_string())?;
            stages.push(OverPart::boxed(own, self.part));
            if name == "decode" {
                let own = EspIn::new(views(), &options, &names, counters.clone());
                stages.push(match part {
                    Some(part) => Box::new(own.with_device(part)),
                    None => Box::new(own),
                });
            }
        }
        Ok(stages)
    }

    /// Millions of packets a second of all workers together, each by its own time.
    pub(super) fn measure(&self, load: &Load<'_>, workers: usize) -> Result<f64, String> {
        let current = Arc::new(Current::new(Self::view(load)?, None, None));
        let step = (workers == 2).then(Arc::<Step>::default);
        let (mut ends, mut times) = (Vec::new(), Vec::new());
        for worker in 0..workers {
            let frames = load.frames(worker, workers)?;
            let (replay, tx) = queues(&frames, &self.depot)?;
            let took = Arc::<OnceLock<f64>>::default();
            times.push((frames.len(), took.clone()));
            let (left, step) = (frames.len(), step.clone());
            let rx = Once { replay, left, begin: None, took, step, worker, given: 0 };
            let stages = self.stages(&current, None)?;
            ends.push(Ends { stages, cpu: Some(worker), rx: vec![Box::new(rx)], tx });
        }
        let engine = start_workers(ends, &self.reader, self.depot.clone())?;
        let view = engine.view().clone();
        wait_for(&view, load.packets);
        // The workers ask once more.
        for _ in 0..2_000 {
            if times.iter().all(|(_, took)| took.get().is_some()) {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let sent = sent(&view);
        let drops: Vec<_> = view
            .reasons()
            .iter()
            .map(|own| (own.name(), view.drops(own.code())))
            .filter(|own| own.1 > 0)
            .collect();
        engine.stop(Duration::from_secs(1))?;
        if sent != load.packets as u64 {
            return Err(format!("{load:?}: {sent} packets left, dropped were {drops:?}"));
        }
        let rate = |(packets, took): &(usize, Arc<OnceLock<f64>>)| {
            took.get().map(|seconds| *packets as f64 / seconds / 1e6)
        };
        let rates: Option<Vec<f64>> = times.iter().map(rate).collect();
        Ok(rates.ok_or("a queue was not read to its end")?.iter().sum())
    }

    /// Packets a second of so many workers and a device, by the clock.
    pub(super) fn measure_on_device(
        &self,
        load: &Load<'_>,
        workers: usize,
        device: impl FnOnce(TablesImages) -> DeviceSpec<Tables>,
    ) -> Result<f64, String> {
        let (database, policies) = Self::database(load)?;
        let mut tables = Tables::clone(&self.reader.clone().pin());
        let part = Places::start(&database, &mut tables).part();
        let (writer, reader) = versions(tables);
        let view = with_policies(database, load.way, &policies)?;
        let current = Arc::new(Current::new(view, None, None));
        let mut ends = Vec::new();
        for worker in 0..workers {
            let frames = load.frames(worker, workers)?;
            let (replay, tx) = queues(&frames, &self.depot)?;
            let took = Arc::<OnceLock<f64>>::default();
            let rx = Once {
                replay,
                left: frames.len(),
                begin: None,
                took,
                step: None,
                worker,
                given: 0,
            };
            let stages = self.stages(&current, Some(part))?;
            ends.push(Ends { stages, cpu: Some(worker), rx: vec![Box::new(rx)], tx });
        }
        let devices = vec![device(TablesImages(writer.changes()))];
        let engine = start_workers_with(ends, &reader, self.depot.clone(), CHUNKS, devices)?;
        let view = engine.view().clone();
        let rate = on_device::rate(&view, load.packets);
        wait_for(&view, load.packets);
        let (sent, masters) = (sent(&view), view.masters());
        engine.stop(Duration::from_secs(5))?;
        let shaded: u64 = masters.iter().map(|master| master.packets).sum();
        let failed: u64 = masters.iter().map(|master| master.failed).sum();
        if sent != load.packets as u64 || shaded == 0 || failed > 0 {
            return Err(format!(
                "{load:?}: {sent} packets left, {shaded} of them were at the device, {failed} jobs failed"
            ));
        }
        rate
    }

    /// What leaves of a load that several workers receive in turn, with `workers` of `[ipsec]` and the association's worker. Each
    /// packet has to be what was sealed.
    #[cfg(test)]
    pub(super) fn shared(
        &self,
        load: &Load<'_>,
        workers: usize,
        (who, given): (control::config::SaWorkers, Option<u16>),
    ) -> Result<Shared, String> {
        let view = Self::view(load)?;
        let current = Arc::new(Current::new(view.clone(), None, None).with_workers(who));
        let tuple;
        let association = match load.way {
            Way::Open => {
                let (_, destination) = ipsec::words(OWN[0].into());
                view.inbound(4, destination, SPI)
            }
            Way::Seal => {
                let d = packet::decode(&link(&load.inner(0, 0)), LINK + load.sizes[0]);
                tuple = ipsec::Tuple::of(&d).ok_or("no packet")?;
                view.outbound(&Template { reqid: 1, tunnel: None }, &tuple)
            }
        };
        let association = association.ok_or("no association")?;
        association.set_worker(given);
        let (mut ends, mut left, mut counters) = (Vec::new(), Vec::new(), Vec::new());
        for worker in 0..workers {
            let given = load.frames(worker, workers)?;
            let collect = Collect::new();
            left.push(collect.frames());
            let mut tx: Vec<Box<dyn TxQueue>> =
                (0..PORTS).map(|_| Box::new(Collect::new()) as Box<dyn TxQueue>).collect();
            tx[1] = Box::new(collect);
            let rx: Vec<Box<dyn RxQueue>> = vec![Box::new(Script::untimed(given.into_iter()))];
            let own = Arc::<Counters>::default();
            counters.push(own.clone());
            let stages = self.stages_with(&current, None, &own)?;
            ends.push(Ends { stages, cpu: None, rx, tx });
        }
        let engine = start_workers(ends, &self.reader, self.depot.clone())?;
        wait_for(engine.view(), load.packets);
        engine.stop(Duration::from_secs(5))?;
        let take = |own: &io::memory::Frames| {
            std::mem::take(&mut *own.lock().unwrap_or_else(PoisonError::into_inner))
        };
        let opener =
            esp::Inbound::new(load.cipher.key(0)?, SPI, false, 0).map_err(|e| e.to_string())?;
        let mut numbers = Vec::with_capacity(load.packets);
        let place = |(_, mut frame): (u64, Vec<u8>)| {
            let mut ip = frame.get_mut(LINK..).unwrap_or_default();
            if load.way == Way::Seal {
                ip = ip.get_mut(OUTER..).unwrap_or_default();
                numbers.push(esp::Header::parse(ip).ok_or("no ESP")?.number);
                let mut open = [opener.open(ip)];
                esp::open_batch(&mut open);
                let opened = open[0].result().map_err(|error| error.to_string())?;
                ip = ip.get_mut(opened.payload).unwrap_or_default();
            }
            let port = ip.get(OUTER..OUTER + 2).ok_or("a short frame")?;
            let at = usize::from(u16::from_be_bytes([port[0], port[1]]) - 1024);
            let mut expected = load.inner(at, 0);
            packet::checksum::ipv4_decrement_ttl(&mut expected);
            if ip == expected { Ok(at) } else { Err(format!("packet {at} is another one")) }
        };
        let left: Result<Vec<usize>, String> = left.iter().flat_map(take).map(place).collect();
        let left = left?;
        let done = |own: &Arc<Counters>| match load.way {
            Way::Open => own.opened.get(),
            Way::Seal => own.sealed.get(),
        };
        let done = counters.iter().map(done).collect();
        Ok(Shared { left, numbers, done, owner: association.worker() })
    }

    /// What leaves of a load, frame by frame, and what should have been inside.
    pub(super) fn frames(&self, load: &Load<'_>) -> Result<Checked, String> {
        let current = Arc::new(Current::new(Self::view(load)?, None, None));
        let given = load.frames(0, 1)?;
        let collect = Collect::new();
        let left = collect.frames();
        let mut tx: Vec<Box<dyn TxQueue>> =
            (0..PORTS).map(|_| Box::new(Collect::new()) as Box<dyn TxQueue>).collect();
        tx[1] = Box::new(collect);
        let rx: Vec<Box<dyn RxQueue>> = vec![Box::new(Script::untimed(given.iter().cloned()))];
        let ends = Ends { stages: self.stages(&current, None)?, cpu: None, rx, tx };
        let engine = start_workers(vec![ends], &self.reader, self.depot.clone())?;
        wait_for(engine.view(), load.packets);
        engine.stop(Duration::from_secs(1))?;
        let left = std::mem::take(&mut *left.lock().unwrap_or_else(PoisonError::into_inner));
        if left.len() != load.packets {
            return Err(format!("{load:?}: {} of {} packets left", left.len(), load.packets));
        }
        let expected = load.turns().enumerate().map(|(at, own)| {
            let mut inner = load.inner(at, own);
            packet::checksum::ipv4_decrement_ttl(&mut inner);
            inner
        });
        let ip = |frame: &[u8]| frame.get(LINK..).unwrap_or_default().to_vec();
        let is_sealed = load.way == Way::Seal;
        let esp = |frame: &Vec<u8>| frame.get(LINK + OUTER..).unwrap_or_default().to_vec();
        let left: Vec<Vec<u8>> = left.into_iter().map(|(_, frame)| frame).collect();
        Ok(Checked {
            sealed: if is_sealed { &left } else { &given }.iter().map(esp).collect(),
            inner: if is_sealed { Vec::new() } else { left.iter().map(|own| ip(own)).collect() },
            expected: expected.collect(),
        })
    }
}

/// The view of a database, with policies that are made at once.
fn with_policies(mut database: Database, way: Way, all: &[Policy]) -> Result<Arc<View>, String> {
    let view = database.view().map_err(|error| error.to_string())?;
    drop(database);
    let mut view = Arc::into_inner(view).ok_or("the view is shared")?;
    let policies = Arc::new(Policies::new(all.iter()).map_err(|error| error.to_string())?);
    match way {
        Way::Seal => view.set_outgoing(policies),
        Way::Open => view.incoming = policies,
    }
    Ok(Arc::new(view))
}

/// What a gateway made.
pub(super) struct Checked {
    /// ESP packets, from the SPI on.
    pub(super) sealed: Vec<Vec<u8>>,
    /// What was inside; of sealed packets the answer is elsewhere.
    pub(super) inner: Vec<Vec<u8>>,
    /// What has to be inside, with a TTL one lower.
    pub(super) expected: Vec<Vec<u8>>,
}
