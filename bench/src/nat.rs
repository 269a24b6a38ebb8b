//! `bench nat`: a router that translates addresses beside one that does not, from memory to memory on one core.
//!
//! ```text
//!  without     frames ─▶ decode ───────▶ route ───────────────▶ rewrite ─▶ ports
//!  with        frames ─▶ decode ─▶ nat ─▶ route ─▶ nat_source ─▶ rewrite ─▶ ports
//! ```
//!
//! Both have the packets of the same conversations, half of them from the inside and half answers: the router without
//! translation as hosts of the inside see them. Before time begins, every packet is compared with what a plain reference
//! says: the frame of its translated ends made anew, with full checksums. Rounds of both alternate.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ::nat::rules::{Action, Own, Prefix as NatPrefix, Rule, Rules};
use ::nat::translator::{Options, Source, Timeouts, Translator};
use ::nat::{Tuple, nat64};
use apps::nat::destination::Destination;
use apps::nat::source::SourceStage;
use apps::router::{PipelineOptions, RouterPart, stage};
use chunk::{Depot, HugePages, Packet, Pool, Region};
use controlplane::{OverPart, PartId, Tables};
use engine::{EngineView, Stage};
use io::memory::{Collect, Replay, Script};
use io::{QueueStats, RxQueue, TxQueue};
use lookup::Prefix;
use lookup::fib::RouteTables;
use lookup::routes::RoutesFile;
use lookup::versions::{Reader, Writer, versions};
use packet::checksum::{internet_checksum, pseudo_header_v4, pseudo_header_v6};
use packet::ipv4::Ipv4Header;
use packet::ipv6::Ipv6Header;
use packet::tcp::TcpHeader;
use packet::{IpProtocol, tcp};
use stream::table::Found;

use crate::forms::ratio;
use crate::forward::{received, start_over};
use crate::limits::{has_room, up_to};
use crate::tables::{self, PORTS, Random, Spread, keys4};
use crate::{Args, Report, RoutesArg, Row};

/// Sessions and packets at most.
const SESSIONS_MAX: usize = 1 << 23;
const PACKETS_MAX: usize = 1 << 20;

/// Fewer sessions: those of a small network, and one.
const SIZES: [usize; 2] = [1, 10_000];

/// Inside ends (address and port) of masquerade and NAT64, each with a port of the outside; further sessions are with
/// further remote ends.
const ENDS: usize = 50_000;

/// Ports of the router.
const INSIDE: usize = 0;
const OUTSIDE: usize = 1;

/// 100.64.0.0/10, the inside; 2001:db8::/32, that of IPv6; 172.16.0.0/12, outside addresses of static entries.
const HOSTS: u32 = u32::from_be_bytes([100, 64, 0, 0]);
const HOSTS_V6: u64 = 0x2001_0db8_0000_0000;
const STATIC: u32 = u32::from_be_bytes([172, 16, 0, 0]);
/// The address of the router's outside port.
const OWN: u32 = u32::from_be_bytes([10, 1, 0, 1]);
/// Outside addresses of NAT64.
const POOL: u32 = u32::from_be_bytes([192, 0, 2, 0]);

/// 64:ff9b::/96 (RFC 6052).
const WELL_KNOWN: NatPrefix = nat64::WELL_KNOWN;

const ETHERNET: usize = packet::ethernet::HEADER_LEN;
/// Data of a packet: with it, one of IPv4 has 60 bytes, 64 with the check sequence.
const DATA: usize = 6;

/// What is measured.
#[derive(Debug, Clone, clap::Args)]
pub struct NatArgs {
    /// Seconds per case and round
    #[arg(long, default_value_t = 0.5)]
    pub seconds: f64,
    /// Sessions of the largest table, about 0.9 KB each, of NAT64 1.2 KB
    #[arg(long, default_value_t = 1_000_000, value_parser = up_to::<SESSIONS_MAX>)]
    pub sessions: usize,
    /// Distinct packets, 2 KB each
    #[arg(long, default_value_t = 1 << 18, value_parser = up_to::<PACKETS_MAX>)]
    pub packets: usize,
    /// Kinds of rules, all by default
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Kind::ALL)]
    pub rules: Vec<Kind>,
    /// The routing table
    #[command(flatten)]
    pub routes: RoutesArg,
}

/// A kind of rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// Sources become the address of the way out.
    Masquerade,
    /// Destinations become an inside host.
    Destination,
    /// Inside addresses and outside ones, one to one.
    Static,
    /// IPv6 inside, IPv4 outside.
    Nat64,
}

impl Kind {
    const ALL: [Kind; 4] = [Kind::Masquerade, Kind::Destination, Kind::Static, Kind::Nat64];

    fn name(self) -> &'static str {
        match self {
            Kind::Masquerade => "masquerade",
            Kind::Destination => "destination",
            Kind::Static => "static",
            Kind::Nat64 => "nat64",
        }
    }

    fn rule(self) -> Rule {
        let (protocol, ports, action) = match self {
            Kind::Masquerade => (None, 1024..=u16::MAX, Action::Masquerade),
            Kind::Destination => {
                let action =
                    Action::Destination { at: Vec::new(), to: HOSTS | 9, to_port: Some(80) };
                (Some(IpProtocol::TCP.0), 8080..=8080, action)
            }
            Kind::Static => {
                let (inside, outside) = (NatPrefix::v4(HOSTS, 12), NatPrefix::v4(STATIC, 12));
                (None, 1024..=u16::MAX, Action::Static { inside, outside })
            }
            Kind::Nat64 => {
                let to = (POOL..POOL + 4).collect();
                (None, 1024..=u16::MAX, Action::Nat64 { prefix: WELL_KNOWN, to })
            }
        };
        let outside = vec![OUTSIDE as u16];
        Rule { number: 0, outside, sources: Vec::new(), protocol, ports, action }
    }

    /// The ends of session `number` as its first packet has them.
    fn original(self, number: usize, remotes: &[u32]) -> Tuple {
        let (end, turn) = (number % ENDS, number / ENDS);
        let remote = ([0, u64::from(remotes[number % remotes.len()])], 443 + turn as u16);
        let host = ([0, u64::from(HOSTS | end as u32 >> 3)], 40_000 + (end & 7) as u16);
        let v4 = |src, dst| Tuple {
            src,
            dst,
            protocol: IpProtocol::TCP.0,
            family: 4,
            ..Tuple::default()
        };
        match self {
            Kind::Masquerade | Kind::Static => v4(host, remote),
            Kind::Destination => v4((remote.0, 1024 + end as u16), ([0, OWN.into()], 8080)),
            Kind::Nat64 => Tuple {
                src: ([HOSTS_V6, host.0[1]], host.1),
                dst: (nat64::embed(&WELL_KNOWN, remote.0[1] as u32), remote.1),
                protocol: IpProtocol::TCP.0,
                family: 6,
                ..Tuple::default()
            },
        }
    }

    /// Begins a session.
    fn begin(self, own: &mut Translator, original: &Tuple, now_s: u32) -> Result<Tuple, String> {
        let remote = original.dst;
        let (dst, family, source) = match self {
            Kind::Masquerade | Kind::Static => (remote, 4, Source::Rule(0, OUTSIDE as u16)),
            Kind::Destination => (([0, u64::from(HOSTS | 9)], 80), 4, Source::Keep(0)),
            Kind::Nat64 => {
                let remote_v4 = nat64::extract(&WELL_KNOWN, remote.0).unwrap_or(0);
                (([0, remote_v4.into()], remote.1), 4, Source::Rule(0, OUTSIDE as u16))
            }
        };
        let made = own.begin(original, dst, family, source, now_s);
        made.map_err(|refusal| format!("{}: no session: {refusal:?}", self.name()))
    }
}

/// Packets of a case: as they come, as they leave, and as they come where nothing is translated.
#[derive(Default)]
struct Frames {
    translated: Vec<Vec<u8>>,
    /// Port, and what leaves there.
    expected: Vec<(usize, Vec<u8>)>,
    plain: Vec<Vec<u8>>,
}

impl Frames {
    /// Adds the packet of a session; an answer goes back.
    fn push(&mut self, kind: Kind, original: &Tuple, translated: &Tuple, is_answer: bool) {
        // The inside sees what a destination became, and otherwise what its own hosts sent.
        let inside = if kind == Kind::Destination { translated } else { original };
        let (is_from_outside, way) = (is_answer != (kind == Kind::Destination), |tuple: &Tuple| {
            if is_answer { tuple.reversed() } else { *tuple }
        });
        let (from, to) = match is_answer {
            false => (original, translated),
            true => (translated, original),
        };
        let port = if is_from_outside { INSIDE } else { OUTSIDE };
        self.translated.push(frame(&way(from), None));
        self.expected.push((port, frame(&way(to), Some(port as u16))));
        self.plain.push(frame(&way(inside), None));
    }
}

/// The frame of a TCP segment with these ends; `port`: as it leaves by one.
fn frame(of: &Tuple, port: Option<u16>) -> Vec<u8> {
    let header = if of.family == 4 { packet::ipv4::HEADER_LEN } else { packet::ipv6::HEADER_LEN };
    let mut frame = vec![0x61; ETHERNET + header + tcp::HEADER_LEN + DATA];
    let (link, ip) = frame.split_at_mut(ETHERNET);
    let macs = match port {
        Some(port) => [tables::gateway_mac(port), tables::port_mac(port)],
        None => [tables::port_mac(0), [2, 0, 0, 0, 9, 9]],
    };
    link[..6].copy_from_slice(&macs[0]);
    link[6..12].copy_from_slice(&macs[1]);
    let ttl = if port.is_some() { 63 } else { 64 };
    let bytes = ip.len() - header;
    let pseudo = if of.family == 4 {
        link[12..].copy_from_slice(&[0x08, 0x00]);
        let [src, dst] = [of.src, of.dst].map(|end| Ipv4Addr::from_bits(end.0[1] as u32));
        Ipv4Header { ttl, ..Ipv4Header::new(src, dst, IpProtocol::TCP) }.emit(bytes, ip);
        pseudo_header_v4(src, dst, IpProtocol::TCP, bytes as u16)
    } else {
        link[12..].copy_from_slice(&[0x86, 0xdd]);
        let address =
            |of: [u64; 2]| Ipv6Addr::from_bits(u128::from(of[0]) << 64 | u128::from(of[1]));
        let [src, dst] = [of.src, of.dst].map(|end| address(end.0));
        Ipv6Header { hop_limit: ttl, ..Ipv6Header::new(src, dst, IpProtocol::TCP) }.emit(bytes, ip);
        pseudo_header_v6(src, dst, IpProtocol::TCP, bytes as u32)
    };
    let header_of_tcp = TcpHeader {
        src_port: of.src.1,
        dst_port: of.dst.1,
        sequence: 7,
        acknowledgment: 9,
        flags: tcp::flags::ACK,
        window: 0xffff,
        ..TcpHeader::default()
    };
    header_of_tcp.emit(pseudo, &mut ip[header..]);
    frame
}

/// A frame without the identification of IPv4, which translation from IPv6 chooses, if its header checksum is right.
fn without_identification(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let is_v4 = frame.get(12..14) == Some(&[0x08, 0x00]);
    if let Some(header) = frame.get_mut(ETHERNET..ETHERNET + 20).filter(|_| is_v4)
        && internet_checksum(header) == 0
    {
        header[4..6].fill(0);
        header[10..12].fill(0);
    }
    frame
}

/// Tables, and where they are.
struct World {
    _writer: Writer<Tables>,
    reader: Reader<Tables>,
    part: PartId<RouterPart>,
    depot: Arc<Depot>,
    own: Arc<Own>,
    remotes: Vec<u32>,
}

impl World {
    fn new(mut routes: RoutesFile, packets: usize) -> Result<Self, String> {
        let prefixes: Vec<Prefix<u32>> = routes.v4.iter().map(|(prefix, _)| *prefix).collect();
        if prefixes.is_empty() {
            return Err("the table needs IPv4 prefixes".into());
        }
        let is_ours = |address: u32| {
            let is_in = |of: u32, len: u32| (address ^ of) >> (32 - len) == 0;
            is_in(HOSTS, 10) || is_in(STATIC, 12) || is_in(OWN, 8) || is_in(POOL, 24)
        };
        let mut remotes = keys4(&prefixes, packets, Spread::Prefixes, 7);
        remotes.retain(|address| !is_ours(*address));
        if remotes.is_empty() {
            return Err("no prefix of the table is outside".into());
        }
        // Hosts of both families by one port, all else by the other.
        let (inside4, inside6) =
            (Prefix::masked(HOSTS, 10), Prefix::masked(u128::from(HOSTS_V6) << 64, 32));
        let well_known = Prefix::masked(u128::from(WELL_KNOWN.address[0]) << 64, 96);
        for (prefix, hop) in [(inside6, 1), (well_known, 1)] {
            routes.v6.retain(|(own, _)| *own != prefix);
            routes.v6.push((prefix, hop));
        }
        routes.v4.retain(|(own, _)| !inside4.contains(own.addr()));
        routes.v4.push((inside4, 1));
        routes.v4.sort_unstable_by_key(|(prefix, _)| (prefix.addr(), prefix.len()));
        routes.v6.sort_unstable_by_key(|(prefix, _)| (prefix.addr(), prefix.len()));
        let four = routes.v4.iter().map(|(own, _)| inside4.contains(own.addr()));
        let six = routes.v6.iter().map(|(own, _)| inside6.contains(own.addr()));
        let mut ports = four.chain(six).collect::<Vec<bool>>().into_iter();
        let choose = move |_| if ports.next() == Some(true) { INSIDE } else { OUTSIDE };
        let (builder, fib) = tables::fib_of(&routes, RouteTables::default(), choose)?;
        drop(builder);
        let mut tables = Tables::default();
        let part = tables.add::<RouterPart>(fib);
        let (writer, reader) = versions(tables);
        let cells = packets as u32 + 16_384;
        let (_, depot) = Region::new(cells, HugePages::Advise).map_err(|e| e.to_string())?;
        let own = Own::new(usize::from(PORTS));
        own.set(OUTSIDE as u16, Some(OWN));
        Ok(Self { _writer: writer, reader, part, depot, own: Arc::new(own), remotes })
    }

    /// The stages of the router, with a translator or without.
    fn stages(&self, nat: Option<&Nat>) -> Result<Vec<Box<dyn Stage<Tables>>>, String> {
        const NAMES: [&str; 3] = ["decode", "route", "rewrite"];
        let mut stages: Vec<Box<dyn Stage<Tables>>> = Vec::new();
        for name in NAMES {
            let own =
                stage(name, &NAMES, &PipelineOptions::default()).map_err(|e| e.to_string())?;
            if let (Some(nat), "rewrite") = (nat, name) {
                stages.push(Box::new(SourceStage::new(nat.translator.clone(), 7)));
            }
            stages.push(OverPart::boxed(own, self.part));
            if let (Some(nat), "decode") = (nat, name) {
                let current = Arc::new(RwLock::new(nat.rules.clone()));
                let stage = Destination::new(nat.translator.clone(), current, false, 7);
                let stage = stage.writing_sources(true);
                stages.push(Box::new(stage));
            }
        }
        Ok(stages)
    }
}

/// A translator with its rules.
struct Nat {
    kind: Kind,
    translator: Arc<Mutex<Translator>>,
    rules: Arc<Rules>,
}

impl Nat {
    fn new(kind: Kind, sessions: usize, own: &Arc<Own>) -> Result<Self, String> {
        let rules = Arc::new(Rules::new(vec![kind.rule()], 1, own.clone()));
        // No session ends while it is measured.
        let long_s = 1 << 24;
        let timeouts = Timeouts {
            tcp_established: long_s,
            tcp_transitory: long_s,
            udp: long_s,
            icmp: long_s,
            other: long_s,
        };
        let options = Options {
            sessions,
            bindings_per_host: 1 << 20,
            filter_by_remote: true,
            timeouts,
            ftp_ports: &[],
            seed: 7,
        };
        let translator = Translator::new(options, rules.clone()).map_err(|e| e.to_string())?;
        Ok(Self { kind, translator: Arc::new(Mutex::new(translator)), rules })
    }

    fn lock(&self) -> MutexGuard<'_, Translator> {
        self.translator.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn now_s() -> u32 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_secs() as u32
}

/// Packets of a session there, back and there again: a connection is established.
fn establish(own: &mut Translator, original: &Tuple, translated: &Tuple) {
    for tuple in [*original, translated.reversed(), *original] {
        let (key, side) = tuple.key();
        let mut found = [Found::NONE];
        own.find(&[key], now_s(), &mut found);
        if let Some(slot) = found[0].slot() {
            own.step(slot, side, nat::Tcp::with(tcp::flags::ACK as u8));
        }
    }
}

/// A number of sessions of a kind.
struct Case {
    name: String,
    nat: Nat,
    frames: Frames,
    /// Mpps with translation and without, by round.
    rates: [Vec<f64>; 2],
    /// Nanoseconds a packet of the stages of translation, by round.
    costs: [Vec<f64>; 2],
}

impl Case {
    fn new(kind: Kind, sessions: usize, packets: usize, world: &World) -> Result<Self, String> {
        let nat = Nat::new(kind, sessions, &world.own)?;
        let mut all = Vec::with_capacity(sessions);
        let mut own = nat.lock();
        for number in 0..2 * sessions {
            let original = kind.original(number, &world.remotes);
            let before = own.len();
            let translated = kind.begin(&mut own, &original, now_s())?;
            // Of two random clients that are one and the same there is one session.
            if own.len() > before {
                establish(&mut own, &original, &translated);
                all.push((original, translated));
            }
            if all.len() == sessions {
                break;
            }
        }
        let began = own.len();
        drop(own);
        let name = format!("{}, {sessions} sessions", kind.name());
        if began != sessions {
            return Err(format!("{name}: {began} began"));
        }
        let (mut random, mut frames) = (Random(sessions as u64), Frames::default());
        for at in 0..packets {
            let (original, translated) = &all[random.below(all.len())];
            frames.push(kind, original, translated, at % 2 == 1);
        }
        Ok(Self { name, nat, frames, rates: Default::default(), costs: Default::default() })
    }

    /// Compares what leaves with what should.
    fn check(&self, world: &World, wrong: &mut Vec<String>) -> Result<(), String> {
        let all = &self.frames.translated;
        let rx: Box<dyn RxQueue> = Box::new(Script::untimed(all.iter().cloned()));
        let collects: Vec<Collect> = (0..PORTS).map(|_| Collect::new()).collect();
        let seen: Vec<_> = collects.iter().map(Collect::frames).collect();
        let tx = collects.into_iter().map(|own| Box::new(own) as Box<dyn TxQueue>).collect();
        let stages = world.stages(Some(&self.nat))?;
        let depot = world.depot.clone();
        let engine = start_over(stages, &world.reader, depot, Some(0), vec![rx], tx)?;
        let view = engine.view().clone();
        wait_for(&view, all.len());
        engine.stop(Duration::from_secs(1))?;
        for (port, seen) in seen.iter().enumerate() {
            let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            let expected = self.frames.expected.iter().filter(|(own, _)| *own == port);
            let expected: Vec<_> = expected.map(|(_, frame)| frame).collect();
            let is_same = |((_, seen), expected): (&(u64, Vec<u8>), &&Vec<u8>)| {
                without_identification(seen) == without_identification(expected)
            };
            let same = seen.iter().zip(&expected).filter(|pair| is_same(*pair)).count();
            if same != expected.len() || seen.len() != expected.len() {
                wrong.push(format!(
                    "{}: {same} packets of {} by port {port} are right, {} left there",
                    self.name,
                    expected.len(),
                    seen.len()
                ));
            }
        }
        Ok(())
    }

    /// Millions of packets a second, with translation or without.
    fn measure(&mut self, with: bool, world: &World, time: Duration) -> Result<(), String> {
        let (nat, frames) = match with {
            true => (Some(&self.nat), &self.frames.translated),
            false => (None, &self.frames.plain),
        };
        let (replay, tx) = replay(frames, &world.depot)?;
        let before = self.nat.lock().counts().packets;
        let (stages, depot) = (world.stages(nat)?, world.depot.clone());
        let rx: Vec<Box<dyn RxQueue>> = vec![Box::new(replay)];
        let engine = start_over(stages, &world.reader, depot, Some(0), rx, tx)?;
        let view = engine.view().clone();
        // Caches and page tables first.
        std::thread::sleep(time / 4);
        let (packets, begin) = (received(&view), Instant::now());
        let costs_before = costs(&view);
        std::thread::sleep(time);
        let (elapsed, packets) = (begin.elapsed(), received(&view) - packets);
        let costs_after = costs(&view);
        engine.stop(Duration::from_secs(1))?;
        self.rates[usize::from(!with)].push(packets as f64 / elapsed.as_secs_f64() / 1e6);
        let (all, sent) = (received(&view), sent(&view));
        let counted = self.nat.lock().counts().packets - before;
        if sent != all || counted != if with { all } else { 0 } {
            return Err(format!(
                "{}: of {all} packets {sent} left, {counted} of sessions",
                self.name
            ));
        }
        if with {
            for (at, own) in self.costs.iter_mut().enumerate() {
                let (ns, packets) = (
                    costs_after[at].0 - costs_before[at].0,
                    costs_after[at].1 - costs_before[at].1,
                );
                own.push(ns as f64 / packets.max(1) as f64);
            }
        }
        Ok(())
    }
}

/// Time and packets of the stages of translation.
fn costs(view: &EngineView) -> [(u64, u64); 2] {
    [apps::nat::STAGE, apps::nat::SOURCE_STAGE].map(|name| {
        let place = view.stages.iter().position(|own| *own == name);
        place.map_or((0, 0), |at| (view.stage(at).busy_ns, view.stage(at).packets))
    })
}

pub(crate) type Queues = (Replay, Vec<Box<dyn TxQueue>>);

pub(crate) fn replay(frames: &[Vec<u8>], depot: &Arc<Depot>) -> Result<Queues, String> {
    let mut pool = Pool::new(depot.clone(), 512);
    let mut replay =
        Replay::new(&mut pool, frames.iter().map(Vec::as_slice), true).ok_or("too few cells")?;
    let tx = (0..PORTS).map(|_| Box::new(replay.recycle(4096)) as Box<dyn TxQueue>).collect();
    Ok((replay, tx))
}

pub(crate) fn sent(view: &EngineView) -> u64 {
    view.workers.iter().map(|worker| worker.tx_packets.get()).sum()
}

/// Waits until so many packets have left or were dropped, or nothing happens any more.
pub(crate) fn wait_for(view: &EngineView, packets: usize) {
    let fate = || {
        let dropped: u64 = view.reasons().iter().map(|reason| view.drops(reason.code())).sum();
        sent(view) + dropped
    };
    let (mut last, mut since) = (0, Instant::now());
    while fate() < packets as u64 && since.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_micros(20));
        if fate() != last {
            (last, since) = (fate(), Instant::now());
        }
    }
}

/// Gives each packet once, and notes when it was first asked.
struct Once {
    replay: Replay,
    left: usize,
    begin: Arc<Mutex<Option<Instant>>>,
    given: Arc<AtomicUsize>,
}

impl RxQueue for Once {
    fn recv(&mut self, pool: &mut Pool, out: &mut Vec<Packet>, max: usize) -> usize {
        if self.left > 0 {
            let mut begin = self.begin.lock().unwrap_or_else(PoisonError::into_inner);
            begin.get_or_insert_with(Instant::now);
        }
        let n = self.replay.recv(pool, out, max.min(self.left));
        self.left -= n;
        self.given.fetch_add(n, Ordering::Relaxed);
        n
    }

    fn release(&mut self, pool: &mut Pool) {
        self.replay.release(pool);
    }

    fn stats(&self) -> QueueStats {
        self.replay.stats()
    }
}

/// Sessions of which each packet is the first: in a table that has room for twice as many, which is empty at the start of
/// each round.
struct Fresh {
    nat: Nat,
    frames: Vec<Vec<u8>>,
    rates: Vec<f64>,
}

impl Fresh {
    fn new(kind: Kind, packets: usize, world: &World) -> Result<Self, String> {
        let count = packets.min(ENDS);
        let nat = Nat::new(kind, 2 * count, &world.own)?;
        let first = |number| frame(&kind.original(number, &world.remotes), None);
        Ok(Self { nat, frames: (0..count).map(first).collect(), rates: Vec::new() })
    }

    fn measure(&mut self, world: &World, wrong: &mut Vec<String>) -> Result<(), String> {
        let (replay, tx) = replay(&self.frames, &world.depot)?;
        let (begin, given) = (Arc::default(), Arc::default());
        let left = self.frames.len();
        let once = Once { replay, left, begin: Arc::clone(&begin), given: Arc::clone(&given) };
        let (stages, depot) = (world.stages(Some(&self.nat))?, world.depot.clone());
        let engine = start_over(stages, &world.reader, depot, Some(0), vec![Box::new(once)], tx)?;
        let view = engine.view().clone();
        wait_for(&view, left);
        let end = Instant::now();
        engine.stop(Duration::from_secs(1))?;
        let begin = begin.lock().unwrap_or_else(PoisonError::into_inner).unwrap_or(end);
        self.rates.push(left as f64 / end.duration_since(begin).as_secs_f64() / 1e6);
        let mut own = self.nat.lock();
        let (began, name) = (own.len(), self.nat.kind.name());
        if began != left || given.load(Ordering::Relaxed) != left {
            wrong.push(format!("{name}: {began} new sessions of {left}"));
        }
        own.forget(|_| true);
        let used: u32 = own.pools().map(|pool| pool.used).sum();
        if !own.is_empty() || used > 0 {
            wrong.push(format!("{name}: {} sessions and {used} ports stayed", own.len()));
        }
        Ok(())
    }
}

pub(crate) fn run(args: &Args, options: &NatArgs) -> Result<Report, String> {
    let routes = tables::routes(&options.routes.routes)?;
    run_with(args, options, routes)
}

fn run_with(args: &Args, options: &NatArgs, routes: RoutesFile) -> Result<Report, String> {
    let &NatArgs { seconds, sessions, packets, ref rules, .. } = options;
    let memory = |sessions: usize| sessions * (5 * 100 + 2 * 256 + 2 * size_of::<Tuple>());
    let bytes = memory(sessions) + packets * (2048 + 9 * 120);
    has_room(&format!("{sessions} sessions and {packets} packets"), bytes)?;
    let data = format!(
        "{} IPv4 and {} IPv6 routes; {packets} distinct packets of TCP with right checksums, 64 bytes (IPv6: 84), of random \
         sessions, half of them answers; cells out of cache, one core",
        routes.v4.len(),
        routes.v6.len()
    );
    let world = World::new(routes, packets)?;
    let time = Duration::from_secs_f64(seconds);
    let mut report = Report::new("nat", data);
    let sizes = SIZES.into_iter().filter(|size| *size < sessions).chain([sessions]);
    let sizes: Vec<usize> = sizes.collect();
    for &kind in rules {
        let cases = sizes.iter().map(|size| Case::new(kind, *size, packets, &world));
        let mut cases = cases.collect::<Result<Vec<_>, _>>()?;
        for case in &cases {
            case.check(&world, &mut report.wrong)?;
        }
        let mut fresh = Fresh::new(kind, packets, &world)?;
        for _ in 0..args.rounds.max(1) {
            for case in &mut cases {
                case.measure(false, &world, time)?;
                case.measure(true, &world, time)?;
            }
            fresh.measure(&world, &mut report.wrong)?;
        }
        for Case { name, rates: [with, without], costs, .. } in cases {
            let share = ratio(format!("{name}: with / without"), &with, &without).at_least(0.7);
            report.rows.extend([
                Row::new(format!("{name}: router without"), "Mpps", without),
                Row::new(name.as_str(), "Mpps", with),
                share,
            ]);
            for (stage, costs) in [apps::nat::STAGE, apps::nat::SOURCE_STAGE].iter().zip(costs) {
                report.rows.push(Row::new(format!("{name}: {stage}"), "ns/packet", costs));
            }
        }
        let name = format!("{}, {} new sessions", kind.name(), fresh.frames.len());
        report.rows.push(Row::new(name, "M/s", fresh.rates));
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small(sessions: usize) -> Report {
        let options = NatArgs {
            seconds: 0.02,
            sessions,
            packets: 3_000,
            rules: Kind::ALL.to_vec(),
            routes: RoutesArg { routes: "none".into() },
        };
        let args = Args {
            what: crate::What::Nat(options.clone()),
            rounds: 2,
            json: false,
            against: None,
            plot: None,
        };
        let lines = (12..60u32).map(|n| format!("{n}.{n}.0.0/16 a")).collect::<Vec<_>>();
        let routes = lookup::routes::read(lines.join("\n").as_bytes()).unwrap();
        run_with(&args, &options, routes).unwrap()
    }

    #[test]
    fn all_packets_are_translated_as_the_reference_says() {
        let report = small(12_000);
        assert!(report.wrong.is_empty(), "{:?}", report.wrong);
        let names: std::collections::BTreeSet<_> =
            report.rows.iter().map(|row| &row.name).collect();
        assert_eq!(names.len(), report.rows.len());
        assert_eq!(report.rows.len(), 4 * (3 * 5 + 1));
        // How many packets pass in so short a time says nothing.
        assert!(report.rows.iter().all(|row| row.rounds.len() == 2));
        let fresh = report.rows.iter().filter(|row| row.unit == "M/s");
        assert!(fresh.clone().count() == 4 && fresh.clone().all(|row| row.median > 0.0));
        let shares = report.rows.iter().filter(|row| row.at_least == Some(0.7)).count();
        assert_eq!(shares, 4 * 3);
    }

    /// The check finds a packet that is not what the reference says.
    #[test]
    fn a_wrong_packet_is_found() {
        let lines = (12..60u32).map(|n| format!("{n}.{n}.0.0/16 a")).collect::<Vec<_>>();
        let routes = lookup::routes::read(lines.join("\n").as_bytes()).unwrap();
        let world = World::new(routes, 500).unwrap();
        let mut case = Case::new(Kind::Masquerade, 100, 500, &world).unwrap();
        let mut wrong = Vec::new();
        case.check(&world, &mut wrong).unwrap();
        assert!(wrong.is_empty(), "{wrong:?}");
        case.frames.expected[40].1[ETHERNET + 15] ^= 1;
        case.check(&world, &mut wrong).unwrap();
        assert_eq!(wrong.len(), 1, "{wrong:?}");
    }
}
