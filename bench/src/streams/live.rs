//! Packets of 64 bytes, in order, of many flows that live: how the rate depends on their number, and what new flows
//! and sweeps take.

use std::time::Instant;

use apps::flow::connections::{self, Connections};
use packet::tcp::flags::{ACK, SYN};
use stream::table::{Class, FlowTable, Found, Limits, Slot, Timeouts};
use stream::tracker::IdleTimeouts;
use stream::{FlowKey, tracker};

use super::follow::{BATCH, Counter, Head, Worker, decode_alone, options};
use super::frames::{SMALL_DATA, START_NS, STEP_NS, Segment, Small, ends, write};
use crate::forms::{ratio, thread_seconds};
use crate::limits::has_room;
use crate::report::median;
use crate::tables::Random;
use crate::{Args, Report, Row};

/// Few flows, which a core's own cache holds in part.
const FEW: usize = 10_000;
/// The number that the issue names.
const MANY: usize = 1_000_000;

/// Idle time of flows that live, far more than all rounds take.
const FOR_EVER_NS: u64 = 100 * stream::tracker::IDLE_NS * 60;

/// Bytes that a flow takes in the tracker of these rows, whose table is a quarter larger than they are many; the tracker's
/// arrays beside the table, the numbers to go on with, and what a device has of it.
const FLOW_BYTES: usize = RECORD_BYTES * 5 / 4 + 384 + 8 + 2 * (connections::CELL_BYTES + 4);

/// Records of a piece of a sweep.
pub(crate) const PIECE: usize = 1 << 16;

/// What a record of the table has beside its key.
pub(crate) type Hot = [u64; 2];

/// Bytes of a record in the table, its part of the index included.
pub(crate) const RECORD_BYTES: usize = 91;

/// So many flows that are established, and where their streams are.
struct Live {
    flows: usize,
    worker: Worker,
    sent: Vec<[u32; 2]>,
    time_ns: u64,
    random: Random,
    rates: Vec<f64>,
    /// Behind a device: without and with a connection table there.
    behind: [Vec<f64>; 2],
    /// The share of packets that were found by a number.
    numbered: Vec<f64>,
    table: Connections,
}

impl Live {
    /// Established flows in a table of `capacity`.
    fn new(flows: usize, capacity: usize, frames: &mut Small) -> Result<Self, String> {
        let options = tracker::Options {
            // New flows of the rounds go, those that live do not.
            timeouts: IdleTimeouts {
                tcp_established: FOR_EVER_NS,
                tcp_unacknowledged: FOR_EVER_NS,
                ..IdleTimeouts::default()
            },
            ..options(capacity, 1 << 20)
        };
        let worker = Worker::new(options, true)?;
        let mut own = Self {
            flows,
            worker,
            sent: vec![[0; 2]; flows],
            time_ns: START_NS,
            random: Random(flows as u64),
            rates: Vec::new(),
            behind: [Vec::new(), Vec::new()],
            numbered: Vec::new(),
            table: Connections::new(2 * flows),
        };
        own.worker.tracker.number_up_to(connections::cells(2 * flows));
        let step = frames.len();
        for first in (0..flows).step_by(step) {
            let flows = first..flows.min(first + step);
            for (from, flags, sequence, acknowledgment) in
                [(0, SYN, 0, 0), (1, SYN | ACK, 0, 1), (0, ACK, 1, 1)]
            {
                for (at, flow) in flows.clone().enumerate() {
                    let segment = Segment { from, flags, sequence, acknowledgment, len: 0 };
                    write(frames.get_mut(at), &ends(flow), &segment);
                }
                own.follow(frames, flows.len());
            }
        }
        Ok(own)
    }

    fn follow(&mut self, frames: &Small, count: usize) -> f64 {
        let begin_ns = self.time_ns;
        let begin = thread_seconds();
        self.worker.follow(count, |at| (frames.get(at), begin_ns + at as u64 * STEP_NS / 10));
        let seconds = thread_seconds() - begin;
        self.time_ns += count as u64 * STEP_NS / 10;
        seconds
    }

    /// Writes a packet of a random side of a random flow into each frame.
    fn prepare(&mut self, frames: &mut Small) {
        for at in 0..frames.len() {
            let flow = self.random.below(self.flows);
            let from = (self.random.next() & 1) as usize;
            let sent = &mut self.sent[flow];
            let segment = Segment {
                from,
                flags: ACK,
                sequence: 1_u32.wrapping_add(sent[from]),
                acknowledgment: 1_u32.wrapping_add(sent[1 - from]),
                len: SMALL_DATA,
            };
            write(frames.get_mut(at), &ends(flow), &segment);
            sent[from] = sent[from].wrapping_add(SMALL_DATA as u32);
        }
    }

    /// One pass over the frames; seconds of decoding alone, too.
    fn round(&mut self, frames: &mut Small, wrong: &mut Vec<String>) -> f64 {
        self.prepare(frames);
        let before: u64 = self.delivered();
        let begin = thread_seconds();
        decode_alone(frames.len(), |at| (frames.get(at), 0));
        let decoding = thread_seconds() - begin;
        let seconds = self.follow(frames, frames.len());
        self.rates.push(frames.len() as f64 / seconds / 1e6);
        let expected = (frames.len() * SMALL_DATA) as u64;
        let delivered = self.delivered() - before;
        if delivered != expected {
            wrong.push(format!("{} flows: {delivered} bytes of {expected}", self.flows));
        }
        decoding
    }

    /// The same of packets of which a device has found headers and segments, without and with numbers of their connections; tables are
    /// twice as large as there are flows.
    fn round_behind(&mut self, frames: &mut Small, wrong: &mut Vec<String>) {
        // The first pass teaches.
        for has_numbers in [None, Some(false), Some(true)] {
            self.prepare(frames);
            let begin_ns = self.time_ns;
            let heads = (0..frames.len()).map(|at| Head::of(frames.get(at), true));
            let heads: Vec<Head> = heads.collect();
            let of = |own: &Head| own.of_connection(begin_ns);
            let numbers = match has_numbers {
                Some(false) => Vec::new(),
                _ => self.table.job(&heads.iter().map(of).collect::<Vec<_>>()),
            };
            let (before, found) = (self.delivered(), self.worker.tracker.found_by_number());
            let begin = thread_seconds();
            let frame = |at: usize| (frames.get(at), begin_ns + at as u64 * STEP_NS / 10);
            self.worker.follow_decoded(&heads, &numbers, frame);
            let seconds = thread_seconds() - begin;
            self.time_ns += frames.len() as u64 * STEP_NS / 10;
            if self.delivered() - before != (frames.len() * SMALL_DATA) as u64 {
                wrong.push(format!("{} flows behind a device: other bytes", self.flows));
            }
            if let Some(has_numbers) = has_numbers {
                let rate = frames.len() as f64 / seconds / 1e6;
                self.behind[usize::from(has_numbers)].push(rate);
            }
            let found = self.worker.tracker.found_by_number() - found;
            if has_numbers == Some(true) {
                self.numbered.push(found as f64 / frames.len() as f64);
            }
        }
    }

    fn delivered(&mut self) -> u64 {
        self.worker.tracker.module().answer.bytes.iter().sum()
    }

    /// Flows that were not there before, `number` on; they are gone afterwards. A rate in millions a second.
    fn new_flows(&mut self, number: usize, count: usize, frames: &mut Small) -> f64 {
        let count = count.min(frames.len());
        for at in 0..count {
            let segment = Segment { from: 0, flags: SYN, sequence: 9, acknowledgment: 0, len: 0 };
            write(frames.get_mut(at), &ends(number + at), &segment);
        }
        let rate = count as f64 / self.follow(frames, count) / 1e6;
        self.time_ns += 2 * stream::tracker::IDLE_NS;
        while !self.worker.tracker.sweep(1 << 24, self.time_ns) {}
        rate
    }

    /// Sweeps the whole table once at `now_ns`: seconds in all, and of each piece.
    fn sweep(&mut self, now_ns: u64) -> Vec<f64> {
        let mut pieces = Vec::new();
        loop {
            let begin = Instant::now();
            let is_round = self.worker.tracker.sweep(PIECE, now_ns);
            pieces.push(begin.elapsed().as_secs_f64());
            if is_round {
                return pieces;
            }
        }
    }
}

/// All rows of flows that live.
pub(crate) fn run(
    args: &Args,
    flows: usize,
    packets: usize,
    report: &mut Report,
) -> Result<(), String> {
    let sizes: Vec<usize> = match flows {
        n if n > MANY => vec![FEW, MANY, n],
        n if n > FEW => vec![FEW, n],
        n => vec![n],
    };
    let total: usize = sizes.iter().sum();
    has_room(&format!("{total} flows"), total.saturating_mul(FLOW_BYTES))?;
    let mut frames = Small::new(packets);
    let half = if flows >= MANY { MANY } else { *sizes.last().unwrap_or(&flows) };
    let mut all: Vec<Live> = Vec::new();
    for flows in sizes {
        let capacity = if flows == half { 2 * flows } else { flows * 5 / 4 + 64 };
        all.push(Live::new(flows, capacity, &mut frames)?);
    }
    let (mut decoding, mut new) = (vec![Vec::new(); all.len()], Vec::new());
    let fresh = (half / 8).clamp(1, packets);
    for round in 0..args.rounds.max(1) {
        for (live, decoding) in all.iter_mut().zip(&mut decoding) {
            decoding.push(live.round(&mut frames, &mut report.wrong) / packets as f64 * 1e9);
            live.round_behind(&mut frames, &mut report.wrong);
            if live.flows == half {
                // The first pass finds slots and memory that were never used.
                let number = flows + round * 2 * fresh;
                live.new_flows(number, fresh, &mut frames);
                new.push(live.new_flows(number + fresh, fresh, &mut frames));
                if live.worker.tracker.len() != live.flows {
                    report.wrong.push(format!("{} flows are left", live.worker.tracker.len()));
                }
            }
        }
    }
    for (live, decoding) in all.iter().zip(&decoding) {
        let name = format!("64 bytes, {} flows", live.flows);
        let over: Vec<f64> =
            live.rates.iter().zip(decoding).map(|(rate, decode)| 1e3 / rate - decode).collect();
        report.rows.extend([
            Row::new(name.as_str(), "Mpps", live.rates.clone()),
            Row::new(format!("{name}, decoding alone"), "ns/packet", decoding.clone()),
            Row::new(format!("{name}, tracking and reassembly"), "ns/packet", over),
        ]);
        let [without, with] = &live.behind;
        let name = format!("{name}, behind a device");
        report.rows.extend([
            Row::new(name.as_str(), "Mpps", without.clone()),
            Row::new(format!("{name} with a connection table"), "Mpps", with.clone()),
            Row::new(format!("{name}, found by the table"), "of all", live.numbered.clone()),
            ratio(format!("{name}, with the table over without"), with, without),
        ]);
    }
    if let [few, .., most] = all.as_slice() {
        let name = format!("64 bytes, {} flows over {}", most.flows, few.flows);
        report.rows.push(ratio(name, &most.rates, &few.rates));
    }
    let name = format!("new flows, {half} in a table of {}", 2 * half);
    report.rows.push(Row::new(name, "M/s", new));
    // The largest alone stays, to be swept: flows with all that is kept of them.
    if let Some(mut most) = all.pop() {
        drop(all);
        let name = format!("sweep of {} flows with their streams", most.flows);
        let now_ns = most.time_ns + 1_000_000_000;
        let none: Vec<Vec<f64>> = (0..args.rounds.max(1)).map(|_| most.sweep(now_ns)).collect();
        sweep_rows(&format!("{name}, none idle"), &none, report);
        let ended = |live: &mut Live| live.worker.tracker.module().ended;
        let before = ended(&mut most);
        let now_ns = most.time_ns + 200 * stream::tracker::IDLE_NS * 60;
        let pieces = most.sweep(now_ns);
        sweep_rows(&format!("{name}, all idle"), &[pieces], report);
        let gone = ended(&mut most) - before;
        if gone != most.flows as u64 || !most.worker.tracker.is_empty() {
            report.wrong.push(format!("{gone} flows of {} ended", most.flows));
        }
        let Counter { missing, .. } = most.worker.tracker.module();
        if *missing > 0 {
            report.wrong.push(format!("{missing} bytes were missing"));
        }
    }
    Ok(())
}

fn sweep_rows(name: &str, rounds: &[Vec<f64>], report: &mut Report) {
    let row = |more: &str, unit: &str, scale: f64, figure: fn(&[f64]) -> f64| {
        let figures = rounds.iter().map(|pieces| figure(pieces) * scale).collect();
        Row::new(format!("{name}, {more}"), unit, figures)
    };
    let most = |pieces: &[f64]| pieces.iter().copied().fold(0.0, f64::max);
    report.rows.extend([
        row("in all", "ms", 1e3, |pieces| pieces.iter().sum()),
        row("a piece", "µs", 1e6, median),
        row("longest piece", "µs", 1e6, most),
    ]);
}

/// The table alone, full of `records`: sweeps of which no record may be idle, each may be and none is, and all are.
pub(crate) fn sweeps(args: &Args, records: usize, report: &mut Report) -> Result<(), String> {
    has_room(&format!("{records} records"), records.saturating_mul(RECORD_BYTES))?;
    let limits = Limits { capacity: records, half_open_max: records };
    let mut table = FlowTable::<Hot>::new(limits, 7).map_err(|e| e.to_string())?;
    let cases = [
        ("none may be idle", 2_000, 50_000),
        ("each may be idle, none is", 7_000, 50_000),
        ("all idle", 60_000, 50_000),
    ];
    let mut rounds = vec![Vec::new(); cases.len()];
    for _ in 0..args.rounds.max(1) {
        fill(&mut table, records);
        for ((_, now, timeout), rounds) in cases.iter().zip(&mut rounds) {
            let (mut pieces, mut ended) = (Vec::new(), 0);
            loop {
                let begin = Instant::now();
                let shortest = Timeouts { half_open: 5_000, full: 5_000 };
                let swept = table.sweep(PIECE, *now, shortest, |_, _| *timeout, ignore);
                pieces.push(begin.elapsed().as_secs_f64());
                ended += swept.ended;
                if swept.is_round {
                    break;
                }
            }
            let expected = if *now > *timeout { records } else { 0 };
            if ended != expected {
                report.wrong.push(format!("{ended} of {expected} idle records were removed"));
            }
            rounds.push(pieces);
        }
    }
    for ((name, ..), rounds) in cases.iter().zip(&rounds) {
        sweep_rows(&format!("sweep of {records} records, {name}"), rounds, report);
    }
    Ok(())
}

pub(crate) fn ignore(_: Slot, _: &FlowKey, _: &Hot) {}

/// Fills an empty table.
pub(crate) fn fill(table: &mut FlowTable<Hot>, records: usize) {
    let mut found = [Found::NONE; BATCH];
    let mut keys = Vec::with_capacity(BATCH);
    for first in (0..records).step_by(BATCH) {
        keys.clear();
        keys.extend((first..records.min(first + BATCH)).map(|number| {
            let [client, server] =
                ends(number).0.map(|(address, port)| ([0, u64::from(u32::from(address))], port));
            FlowKey::new(client, server, 6, 4, 0).0
        }));
        let found = &mut found[..keys.len()];
        table.lookup(&keys, 1_000, &mut (|_| Some(Class::Full), ignore), found);
    }
}
