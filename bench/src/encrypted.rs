//! What intrusion detection costs on encrypted flows once the handshake is over: a router beside one that inspects.
//!
//! ```text
//!  forwarding   frames ─▶ decode ─────────────▶ route ─▶ rewrite ─▶ ports
//!  flows        frames ─▶ decode ─▶ flow ─────▶ route ─▶ rewrite ─▶ ports
//!  inspection   frames ─▶ decode ─▶ flow ─▶ ids ▶ route ─▶ rewrite ─▶ ports
//! ```
//!
//! Connections shake hands before time begins. Each packet of data is one of its stream, in order, and is there once: so every
//! measurement has new connections. Time is the worker's own, from its first packet of data until the queue is empty.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::time::Duration;

use apps::flow::follow::{Followers, Listener};
use apps::flow::stage::Flow;
use apps::ids::counters::Counters;
use apps::ids::inspect::{Parts, Places};
use apps::ids::outputs::Outputs;
use apps::ids::stage::Ids;
use apps::router::{PipelineOptions, RouterPart, stage};
use chunk::{Depot, HugePages, Packet, Pool, Region};
use controlplane::{OverPart, PartId, Tables};
use detect::Ruleset;
use engine::Stage;
use io::memory::Replay;
use io::{QueueStats, RxQueue};
use lookup::fib::RouteTables;
use lookup::versions::{Reader, Writer, versions};
use packet::tcp::flags::{ACK, PSH, SYN};
use stream::Tracker;

use crate::forms::{ratio, thread_seconds};
use crate::forward::start_over;
use crate::nat::{replay, sent, wait_for};
use crate::streams::follow::options;
use crate::streams::frames::{Ends, HEADERS, Segment, write};
use crate::tables::{self, Random};
use crate::{Report, Row};

/// Connections, and packets of data of each.
const CONNECTIONS: usize = 512;
const PACKETS: usize = 96;
/// Bytes of a packet's data: one record of TLS.
const DATA: usize = 1_420;
/// What the issue of the work asks for.
const AIM: f64 = 1.3;

/// Frames: those of the handshakes, and behind them those of data.
struct Load {
    frames: Vec<Vec<u8>>,
    handshakes: usize,
}

/// A record of TLS 1.2.
fn record(kind: u8, bytes: &[u8]) -> Vec<u8> {
    let len = (bytes.len() as u16).to_be_bytes();
    [&[kind, 3, 3, len[0], len[1]], bytes].concat()
}

/// A hello: version, random, no session, a cipher, no compression, no extensions.
fn hello(kind: u8, cipher: &[u8]) -> Vec<u8> {
    let body = [&[3, 3][..], &[7; 32], &[0], cipher].concat();
    record(22, &[&[kind, 0, 0, body.len() as u8], &body[..]].concat())
}

impl Load {
    fn new(connections: usize, packets: usize) -> Self {
        let mut random = Random(5);
        let change = record(20, &[1]);
        let mut finished = || {
            let bytes: Vec<u8> = (0..40).map(|_| random.next() as u8).collect();
            [&change[..], &record(22, &bytes)].concat()
        };
        // Who sends, and what: ends of a handshake without certificates.
        let flights = [
            (0, hello(1, &[0, 2, 0xc0, 0x2f, 1, 0])),
            (1, [hello(2, &[0xc0, 0x2f, 0]), record(22, &[14, 0, 0, 0])].concat()),
            (0, finished()),
            (1, finished()),
        ];
        let noise: Vec<u8> = (0..1 << 16).flat_map(|_| random.next().to_le_bytes()).collect();
        let ends = |at: usize| {
            let client = Ipv4Addr::from_bits(0x0b00_0001 + at as u32);
            Ends([(client, 40_000), (Ipv4Addr::new(203, 0, 113, 5), 443)])
        };
        let mut sequences = vec![[100_u32, 200]; connections];
        let mut frames = Vec::new();
        let mut push = |at: usize, from: usize, flags: u16, data: &[u8]| {
            let mut frame = vec![0; (HEADERS + data.len()).max(60)];
            frame[HEADERS..HEADERS + data.len()].copy_from_slice(data);
            let own = &mut sequences[at];
            let (sequence, acknowledgment) = (own[from], own[1 - from]);
            let acknowledgment = if flags == SYN { 0 } else { acknowledgment };
            let segment = Segment { from, flags, sequence, acknowledgment, len: data.len() };
            write(&mut frame, &ends(at), &segment);
            frame[..6].copy_from_slice(&tables::port_mac(0));
            own[from] += data.len() as u32 + u32::from(flags & SYN != 0);
            frames.push(frame);
        };
        for at in 0..connections {
            push(at, 0, SYN, &[]);
            push(at, 1, SYN | ACK, &[]);
            push(at, 0, ACK, &[]);
            flights.iter().for_each(|(from, bytes)| push(at, *from, ACK | PSH, bytes));
        }
        let handshakes = connections * (3 + flights.len());
        for number in 0..packets {
            for at in 0..connections {
                let begin = random.below(noise.len() - DATA);
                let data = record(23, &noise[begin..begin + DATA - 5]);
                // Of four packets the server sends three.
                push(at, usize::from(number % 4 != 0), ACK, &data);
            }
        }
        Self { frames, handshakes }
    }
}

/// Gives the handshakes, then waits, then gives the data.
struct InTurn {
    replay: Replay,
    handshakes: usize,
    data: usize,
    goes: Arc<AtomicBool>,
    /// The worker's own time when it asked for the first packets of data, and when there were no more.
    begin: Option<f64>,
    took: Arc<OnceLock<f64>>,
}

impl RxQueue for InTurn {
    fn recv(&mut self, pool: &mut Pool, out: &mut Vec<Packet>, max: usize) -> usize {
        if self.handshakes == 0 && self.goes.load(Ordering::Acquire) {
            let begin = *self.begin.get_or_insert_with(thread_seconds);
            if self.data == 0 {
                self.took.get_or_init(|| thread_seconds() - begin);
            }
        }
        let left = match self.handshakes {
            0 if self.goes.load(Ordering::Acquire) => &mut self.data,
            _ => &mut self.handshakes,
        };
        let n = self.replay.recv(pool, out, max.min(*left));
        *left -= n;
        n
    }

    fn release(&mut self, pool: &mut Pool) {
        self.replay.release(pool);
    }

    fn stats(&self) -> QueueStats {
        self.replay.stats()
    }
}

/// What is between decoding and routing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Case {
    Forwarding,
    Flows,
    Inspection,
}

impl Case {
    const ALL: [Self; 3] = [Self::Forwarding, Self::Flows, Self::Inspection];

    fn name(self) -> &'static str {
        match self {
            Self::Forwarding => "encrypted, forwarding",
            Self::Flows => "encrypted, with flows",
            Self::Inspection => "encrypted, with flows and rules",
        }
    }
}

struct World {
    _writer: Writer<Tables>,
    reader: Reader<Tables>,
    part: PartId<RouterPart>,
    depot: Arc<Depot>,
    rules: Arc<Ruleset>,
}

impl World {
    fn new(rules: Arc<Ruleset>, frames: usize) -> Result<Self, String> {
        let routes = lookup::routes::read(&b"0.0.0.0/1 a\n128.0.0.0/1 a\n"[..])
            .map_err(|error| error.to_string())?;
        let (builder, fib) = tables::fib_of(&routes, RouteTables::default(), |_| 1)?;
        drop(builder);
        let mut tables = Tables::default();
        let part = tables.add::<RouterPart>(fib);
        let (writer, reader) = versions(tables);
        let (_, depot) =
            Region::new(frames as u32 + 16_384, HugePages::Advise).map_err(|e| e.to_string())?;
        Ok(Self { _writer: writer, reader, part, depot, rules })
    }

    fn stages(
        &self,
        case: Case,
        connections: usize,
    ) -> Result<Vec<Box<dyn Stage<Tables>>>, String> {
        // As the program has it: the first stage leaves its records of headers to `flow`.
        let kinds: &[&str] = match case {
            Case::Forwarding => &["decode", "route", "rewrite"],
            Case::Flows => &["decode", "flow", "route", "rewrite"],
            Case::Inspection => &["decode", "flow", "ids", "route", "rewrite"],
        };
        let mut stages: Vec<Box<dyn Stage<Tables>>> = Vec::new();
        for name in ["decode", "route", "rewrite"] {
            let own = stage(name, kinds, &PipelineOptions::default()).map_err(|e| e.to_string())?;
            stages.push(OverPart::boxed(own, self.part));
            if name != "decode" || case == Case::Forwarding {
                continue;
            }
            let parts = Parts {
                hosts: detect::HostTables::default(),
                tags: Arc::default(),
                current: Arc::new(RwLock::new(self.rules.clone())),
                outputs: Arc::new(Outputs::open(
                    &control::config::Ids::default(),
                    0,
                    Arc::default(),
                    false,
                )?),
                counters: Arc::new(Counters::default()),
                is_inline: Arc::new(AtomicBool::new(true)),
                session_memory: Arc::new(AtomicUsize::new(usize::MAX)),
                drops_invalid: Arc::default(),
                stream_memory: Arc::new(AtomicUsize::new(usize::MAX)),
                on_limit: control::config::IdsOnLimit::Inspect,
                literals: None,
            };
            let places = Places::new(parts);
            let followers = match case {
                Case::Inspection => vec![places.follower_in("", 0, (0, 1))],
                _ => Vec::new(),
            };
            let tracker =
                Tracker::new(options(2 * connections, 1 << 20), Followers::new(followers))
                    .map_err(|error| error.to_string())?;
            let flow = Flow::new(Arc::new(Mutex::new(tracker)), Arc::default());
            stages.push(Box::new(flow.sharing(true)));
            if case == Case::Inspection {
                stages.push(Box::new(Ids::new(places.of("", 0), 100).sharing(true)));
            }
        }
        Ok(stages)
    }

    /// Millions of packets of data a second.
    fn measure(&self, case: Case, load: &Load, connections: usize) -> Result<f64, String> {
        let (replay, tx) = replay(&load.frames, &self.depot)?;
        let (goes, data) = (Arc::<AtomicBool>::default(), load.frames.len() - load.handshakes);
        let handshakes = load.handshakes;
        let took = Arc::<OnceLock<f64>>::default();
        let (goes_too, took_too) = (goes.clone(), took.clone());
        let rx = InTurn { replay, handshakes, data, goes: goes_too, begin: None, took: took_too };
        let (stages, depot) = (self.stages(case, connections)?, self.depot.clone());
        let engine = start_over(stages, &self.reader, depot, Some(0), vec![Box::new(rx)], tx)?;
        let view = engine.view().clone();
        wait_for(&view, handshakes);
        goes.store(true, Ordering::Release);
        wait_for(&view, load.frames.len());
        // The worker asks once more.
        for _ in 0..1_000 {
            if took.get().is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let sent = sent(&view);
        engine.stop(Duration::from_secs(1))?;
        if sent != load.frames.len() as u64 {
            return Err(format!("{}: {sent} packets left", case.name()));
        }
        match took.get() {
            Some(seconds) => Ok(data as f64 / seconds / 1e6),
            None => Err(format!("{}: the queue was not read to its end", case.name())),
        }
    }
}

pub(crate) fn run(rounds: usize, rules: &Arc<Ruleset>, report: &mut Report) -> Result<(), String> {
    run_with(rounds, rules, (CONNECTIONS, PACKETS), report)
}

fn run_with(
    rounds: usize,
    rules: &Arc<Ruleset>,
    (connections, packets): (usize, usize),
    report: &mut Report,
) -> Result<(), String> {
    let load = Load::new(connections, packets);
    let world = World::new(rules.clone(), load.frames.len())?;
    let mut rates: [Vec<f64>; 3] = Default::default();
    for _ in 0..rounds.max(1) {
        for (case, rates) in Case::ALL.into_iter().zip(&mut rates) {
            rates.push(world.measure(case, &load, connections)?);
        }
    }
    for (case, rates) in Case::ALL.into_iter().zip(&rates) {
        report.rows.push(Row::new(case.name(), "Mpps", rates.clone()));
    }
    let [forwarding, flows, inspection] = &rates;
    report.rows.extend([
        ratio("encrypted, cost over forwarding", forwarding, inspection).at_most(AIM),
        ratio("encrypted, cost over forwarding with flows", flows, inspection),
    ]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_packets_leave() {
        let mut report = Report::new("ids", String::new());
        run_with(1, &Arc::default(), (8, 8), &mut report).unwrap();
        assert_eq!(report.rows.len(), 5);
    }
}
