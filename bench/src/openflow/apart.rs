//! GSwitch, Figure 10 (§7.4, §5): throughput by the longest delay that a packet may have, receive and transmit on threads of their own,
//! batches by the bound.
//!
//! ```text
//!  packets at a rate ─▶ two batches wait ─▶ worker 0: receive, openflow ─ ring ─▶ worker 1: transmit: time since arrival
//! ```
//!
//! Packets arrive at the rate of a line. One worker takes them when a batch is complete, finds their flows and carries out the
//! actions; the other one sends. Where two batches wait, the source stops until one is taken (GSwitch: flow control of the cards). A
//! batch of n packets takes n times the gap between packets to be complete, so a rate, a size and a bound limit the batch. For a
//! bound the batch counts that sends most among those whose packets keep it, but for one in a hundred. Delays are from arrival, so
//! the wait for the rest of a batch is in them, and queues of cards are not. Where the ring between the workers loses more than one in a
//! hundred, no bound is kept.
//!
//! The flows are those of ClassBench's acl1_1k, searched in each way; the same with one worker for both ends stands beside.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chunk::{Packet, Pool};
use controlplane::Newest;
use engine::{Engine, EngineSpec, RxSlot, Stage, TxSlot, WorkerSpec};
use flowtable::{FlowControl, FlowTables, Settings};
use io::memory::Replay;
use io::{QueueStats, RxQueue, TxQueue};
use lookup::versions::{Reader, Writer, versions};
use openflow::Version;

use super::delay::{BATCHES, Delays, LATEST_US, Measured, SIZES, best_within, padded};
use super::{Counters, Load, OpenFlow, PACKETS, Size, check, set_ports, sets};
use crate::forward::depot;
use crate::tables::PORTS;
use crate::{Args, Report, Row};

/// Bounds, microseconds.
const BOUNDS: [usize; 7] = [5, 10, 20, 50, 100, 200, 500];

/// Gbit/s of the line, with the gap between frames and the preamble.
const LINES: [usize; 2] = [10, 40];

/// How flows are searched.
const SEARCHES: [&str; 4] = ["linear", "tuple", "bloom", "auto"];

/// Bytes of a frame on the line beside those that are counted as its own.
const OVERHEAD: usize = 20;

/// Packets of a rate, in batches.
struct Line {
    replay: Replay,
    batch: usize,
    /// Nanoseconds from one packet to the next, and when the next one arrives.
    gap_ns: f64,
    next_ns: f64,
    /// When those that wait arrived.
    waiting: VecDeque<u64>,
    begin: Instant,
}

impl Line {
    /// What has arrived by now; `true` where the source has stopped.
    fn arrive(&mut self, now: f64) -> bool {
        let most = 2 * self.batch;
        while self.waiting.len() < most && self.next_ns <= now {
            // No packet has the time 0.
            self.waiting.push_back(1 + self.next_ns as u64);
            self.next_ns += self.gap_ns;
        }
        self.waiting.len() == most
    }
}

impl RxQueue for Line {
    fn recv(&mut self, pool: &mut Pool, out: &mut Vec<Packet>, max: usize) -> usize {
        let now = self.begin.elapsed().as_nanos() as f64;
        let has_stopped = self.arrive(now);
        if self.waiting.len() < self.batch {
            return 0;
        }
        let first = out.len();
        let n = self.replay.recv(pool, out, self.batch.min(max));
        for (packet, arrived) in out[first..].iter_mut().zip(self.waiting.drain(..n)) {
            packet.time_ns = arrived;
        }
        if has_stopped {
            self.next_ns = self.next_ns.max(now);
        }
        n
    }

    /// Packets may arrive at any time: the worker must not sleep.
    fn arm(&mut self) -> bool {
        false
    }

    fn release(&mut self, pool: &mut Pool) {
        self.replay.release(pool);
    }

    fn stats(&self) -> QueueStats {
        self.replay.stats()
    }
}

/// Keeps a worker that only transmits awake.
struct Nothing;

impl RxQueue for Nothing {
    fn recv(&mut self, _: &mut Pool, _: &mut Vec<Packet>, _: usize) -> usize {
        0
    }

    fn arm(&mut self) -> bool {
        false
    }

    fn stats(&self) -> QueueStats {
        QueueStats::default()
    }
}

/// Who transmits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    /// The worker that receives.
    Together,
    /// A worker of its own.
    Apart,
}

/// What is measured.
#[derive(Clone, Copy, Debug)]
struct Trial {
    ends: Ends,
    batch: usize,
    /// Gbit/s.
    line: usize,
    /// Bytes of a frame, the check sequence included.
    bytes: usize,
    time: Duration,
}

fn start(
    trial: Trial,
    reader: &Reader<FlowTables>,
    rx: Box<dyn RxQueue>,
    tx: Vec<Box<dyn TxQueue>>,
) -> Result<Engine<Newest<FlowTables>>, String> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let worker = |number: usize, queue: Box<dyn RxQueue>| {
        let stage = OpenFlow::new("openflow", Arc::new(Counters::new(1)), None, &[]);
        let stages = vec![Box::new(stage) as Box<dyn Stage<FlowTables>>];
        let mut worker = WorkerSpec::new(Newest(reader.clone()), stages);
        worker.cpu = (number < cores).then_some(number);
        worker.rx.push(RxSlot {
            entry: engine::Entry::default(),
            port: 0,
            mark: 0,
            queue,
            spread: None,
            counters: Arc::default(),
        });
        worker
    };
    let own = tx.into_iter().map(|queue| TxSlot::Own(queue, Arc::default())).collect();
    let mut first = worker(0, rx);
    let workers = match trial.ends {
        Ends::Together => {
            first.tx = own;
            vec![first]
        }
        Ends::Apart => {
            first.tx = (0..PORTS).map(|_| TxSlot::Worker(1)).collect();
            let mut second = worker(1, Box::new(Nothing));
            second.tx = own;
            vec![first, second]
        }
    };
    let spec = EngineSpec { chunk_packets: 256, chunks: 2, ..EngineSpec::new(workers, depot()?) };
    Engine::start(spec).map_err(|e| e.to_string())
}

/// Gbit/s sent, and the delay in microseconds that 99 of 100 packets keep.
fn round(
    trial: Trial,
    reader: &Reader<FlowTables>,
    frames: &[Vec<u8>],
) -> Result<(f64, f64), String> {
    let (begin, delays) = (Instant::now(), Arc::new(Delays::new()));
    let mut pool = Pool::new(depot()?, 512);
    let mut replay =
        Replay::new(&mut pool, frames.iter().map(Vec::as_slice), true).ok_or("too few cells")?;
    let tx = (0..PORTS)
        .map(|_| Box::new(Measured::new(replay.recycle(4096), delays.clone(), begin)) as _)
        .collect();
    drop(pool);
    let bits = ((trial.bytes + OVERHEAD) * 8) as f64;
    let line = Line {
        replay,
        batch: trial.batch,
        gap_ns: bits / trial.line as f64,
        next_ns: begin.elapsed().as_nanos() as f64,
        waiting: VecDeque::with_capacity(2 * trial.batch),
        begin,
    };
    let engine = start(trial, reader, Box::new(line), tx)?;
    let view = engine.view().clone();
    let lost = || view.reasons().iter().map(|reason| view.drops(reason.code())).sum::<u64>();
    std::thread::sleep(trial.time / 4);
    delays.clear();
    let (begun, lost_before) = (Instant::now(), lost());
    std::thread::sleep(trial.time);
    let (packets, elapsed, p99) = (delays.packets(), begun.elapsed(), delays.p99());
    let lost = lost() - lost_before;
    engine.stop(Duration::from_secs(1))?;
    let rate = packets as f64 * bits / elapsed.as_nanos() as f64;
    Ok((rate, if lost * 100 > packets + lost { LATEST_US } else { p99 }))
}

/// Tables with the flows of a load, searched in one way.
fn tables(load: &Load, search: &str) -> Result<Writer<FlowTables>, String> {
    let (mut control, tables) = FlowControl::new(Settings::of_10(128), load.flows.len(), search);
    set_ports(&mut control);
    for flow in &load.flows {
        control.flow_mod(flow, Version::V10, 1).map_err(|e| e.to_string())?;
    }
    let (mut writer, _) = versions(tables);
    writer.publish(control.take_patches());
    Ok(writer)
}

/// A line of the figure: what is measured, and the tables.
struct Curve {
    chart: String,
    name: String,
    trial: Trial,
    search: &'static str,
}

/// All of them: searches by each way of the ends, and sizes and lines with both ends apart.
fn curves(time: Duration) -> Vec<Curve> {
    let mut all = Vec::new();
    for (ends, chart) in
        [(Ends::Apart, "transmit by a worker of its own"), (Ends::Together, "one worker")]
    {
        all.extend(SEARCHES.map(|search| Curve {
            chart: format!("throughput under a bound of the delay, {chart}"),
            name: search.to_owned(),
            trial: Trial { ends, batch: 0, line: LINES[1], bytes: SIZES[0], time },
            search,
        }));
    }
    for line in LINES {
        all.extend(SIZES.map(|bytes| Curve {
            chart: format!("throughput under a bound of the delay, a line of {line} Gbit/s"),
            name: format!("{bytes} bytes"),
            trial: Trial { ends: Ends::Apart, batch: 0, line, bytes, time },
            search: "auto",
        }));
    }
    all
}

/// The flows and packets: ClassBench's acl1_1k as the paper's real rules, or where that is not there as many random flows.
fn load(folder: &Path) -> Load {
    let acl = sets::loads(folder, PACKETS).next().and_then(Result::ok);
    acl.unwrap_or_else(|| Load::of(Size::new(0, 1_000, 64), PACKETS))
}

/// The figure.
pub(crate) fn figure(args: &Args, seconds: f64, folder: &Path) -> Result<Report, String> {
    let load = load(folder);
    let data = format!(
        "{}, {PACKETS} distinct packets, {seconds} s a round; delay from arrival to transmit, Gbit/s with the gap between frames",
        load.name
    );
    let mut report = Report::new("GSwitch, Figure 10", data);
    let mut by_search = Vec::new();
    for search in SEARCHES {
        let writer = tables(&load, search)?;
        let wanted = vec![None; load.frames.len()];
        let by_port = check(search, &writer, &load.frames, &wanted, &mut report);
        by_search.push((search, writer, by_port));
    }
    for (search, _, by_port) in &by_search {
        if *by_port != by_search[0].2 {
            report.wrong.push(format!("{search} sends {by_port:?}, and not as {}", SEARCHES[0]));
        }
    }
    let frames = SIZES.map(|size| padded(&load.frames, size));
    let curves = curves(Duration::from_secs_f64(seconds));
    let mut rounds = vec![vec![(Vec::new(), Vec::new()); BATCHES.len()]; curves.len()];
    for _ in 0..args.rounds.max(1) {
        for (curve, rounds) in curves.iter().zip(&mut rounds) {
            let own = by_search.iter().find(|own| own.0 == curve.search);
            let reader = own.map(|own| own.1.reader()).ok_or("a search that is not there")?;
            let at = SIZES.iter().position(|bytes| *bytes == curve.trial.bytes).unwrap_or(0);
            for (batch, (rates, delays)) in BATCHES.into_iter().zip(rounds) {
                let (rate, delay) = round(Trial { batch, ..curve.trial }, &reader, &frames[at])?;
                rates.push(rate);
                delays.push(delay);
            }
        }
    }
    for (curve, rounds) in curves.iter().zip(&rounds) {
        let name = format!("{}: {}", curve.chart, curve.name);
        for (batch, (rates, delays)) in BATCHES.iter().zip(rounds) {
            let name = format!("{name}, batches of {batch}");
            report.rows.push(Row::new(name.clone(), "Gbit/s", rates.clone()));
            report.rows.push(Row::new(format!("{name}: delay of 99 in 100"), "µs", delays.clone()));
        }
        for bound in BOUNDS {
            let Some(at) = best_within(rounds, bound) else { continue };
            let row =
                Row::new(format!("{name}, {bound} µs at most"), "Gbit/s", rounds[at].0.clone());
            let row = row.curve(&curve.chart, &curve.name, Some(bound));
            let row = row.over("bound of the delay, µs");
            report.rows.push(row.note(format!("batches of {}", BATCHES[at])));
        }
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_gives_whole_batches_with_their_arrivals_and_stops_at_two() {
        let mut pool = Pool::new(depot().unwrap(), 64);
        let frames = vec![vec![1u8; 60]; 16];
        let replay = Replay::new(&mut pool, frames.iter().map(Vec::as_slice), false).unwrap();
        let mut line = Line {
            replay,
            batch: 4,
            gap_ns: 1e6,
            next_ns: 0.0,
            waiting: VecDeque::new(),
            begin: Instant::now(),
        };
        assert!(!line.arrive(2.5e6));
        assert_eq!(line.waiting, [1, 1_000_001, 2_000_001]);
        assert!(line.arrive(1e9), "two batches wait");
        assert_eq!(line.waiting.len(), 8);
        // A line whose packets come at once.
        (line.gap_ns, line.next_ns) = (0.0, 0.0);
        let mut out = Vec::new();
        assert_eq!(line.recv(&mut pool, &mut out, 256), 4);
        assert_eq!(out[3].time_ns, 3_000_001);
        assert!(line.next_ns > 0.0, "the source goes on from now");
        out.drain(..).for_each(|packet| packet.free(&mut pool));
        line.release(&mut pool);
    }

    #[test]
    fn both_ways_send_what_the_flows_say() {
        let load = Load::of(Size::new(0, 100, 8), 2_000);
        let writer = tables(&load, "auto").unwrap();
        for ends in [Ends::Together, Ends::Apart] {
            let time = Duration::from_millis(50);
            let trial = Trial { ends, batch: 32, line: 10, bytes: 64, time };
            let (rate, delay) = round(trial, &writer.reader(), &load.frames).unwrap();
            assert!(rate > 0.0 && delay > 0.0, "{ends:?}: {rate} {delay}");
        }
    }
}
