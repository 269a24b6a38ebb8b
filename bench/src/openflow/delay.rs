//! GSwitch, Figure 9 (§7.4): throughput by the longest delay that a packet may have, and by size of packets.
//!
//! ```text
//!  as many packets as the worker takes ─▶ batch of n, its time ─▶ openflow ─▶ transmit: time since then
//! ```
//!
//! A batch is what one receive hands over. The larger it is, the more misses of the cache overlap, and the longer its packets wait for
//! one another. Each size of a batch gives a throughput and a delay; for a bound the batch counts that sends most among those
//! whose packets keep it, but for one in a hundred. The worker itself receives and transmits, so time in queues of cards is not in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use chunk::{Packet, Pool};
use engine::Stage;
use flowtable::FlowTables;
use io::memory::{Recycle, Replay};
use io::{QueueStats, RxQueue, TxQueue};

use super::{Case, Counters, OpenFlow, PACKETS, Size};
use crate::forward::{depot, received, start_over};
use crate::report::median;
use crate::tables::PORTS;
use crate::{Args, Report, Row};

/// Bytes of frames on the wire, the check sequence included.
pub(super) const SIZES: [usize; 3] = [64, 512, 1518];
pub(super) const BATCHES: [usize; 6] = [8, 16, 32, 64, 128, 256];
/// Bounds, microseconds.
const BOUNDS: [usize; 7] = [2, 5, 10, 20, 50, 100, 200];

/// A step of the delays, nanoseconds, and their number: what takes longer is in the last one.
const STEP_NS: u64 = 100;
const STEPS: usize = 20_000;
/// The longest delay that is told apart, microseconds.
pub(super) const LATEST_US: f64 = (STEP_NS as usize * STEPS) as f64 / 1e3;

/// Delays of packets by steps, which one thread counts.
pub(super) struct Delays(Vec<AtomicU64>);

impl Delays {
    pub(super) fn new() -> Self {
        Self((0..STEPS).map(|_| AtomicU64::new(0)).collect())
    }

    fn add(&self, ns: u64, packets: u64) {
        let step = ((ns / STEP_NS) as usize).min(STEPS - 1);
        self.0[step].fetch_add(packets, Ordering::Relaxed);
    }

    pub(super) fn clear(&self) {
        self.0.iter().for_each(|step| step.store(0, Ordering::Relaxed));
    }

    /// Packets since it was cleared.
    pub(super) fn packets(&self) -> u64 {
        self.0.iter().map(|step| step.load(Ordering::Relaxed)).sum()
    }

    /// Microseconds that 99 of 100 packets do not exceed.
    pub(super) fn p99(&self) -> f64 {
        let counts: Vec<u64> = self.0.iter().map(|step| step.load(Ordering::Relaxed)).collect();
        let (all, mut below) = (counts.iter().sum::<u64>(), 0);
        let step = counts.iter().position(|count| {
            below += count;
            below * 100 >= all * 99
        });
        ((step.unwrap_or(0) + 1) as u64 * STEP_NS) as f64 / 1e3
    }
}

/// Hands over batches with their time.
struct Timed {
    replay: Replay,
    batch: usize,
    begin: Instant,
}

impl RxQueue for Timed {
    fn recv(&mut self, pool: &mut Pool, out: &mut Vec<Packet>, max: usize) -> usize {
        self.replay.set_time_ns(1 + self.begin.elapsed().as_nanos() as u64);
        self.replay.recv(pool, out, max.min(self.batch))
    }
    fn release(&mut self, pool: &mut Pool) {
        self.replay.release(pool);
    }
    fn stats(&self) -> QueueStats {
        self.replay.stats()
    }
}

/// Takes the delay of what it sends.
pub(super) struct Measured {
    queue: Recycle,
    delays: Arc<Delays>,
    begin: Instant,
}

impl Measured {
    /// Times of packets are nanoseconds since `begin`, one of which is too many.
    pub(super) fn new(queue: Recycle, delays: Arc<Delays>, begin: Instant) -> Self {
        Self { queue, delays, begin }
    }
}

impl TxQueue for Measured {
    fn send(&mut self, pool: &mut Pool, packets: &mut Vec<Packet>) {
        let now = 1 + self.begin.elapsed().as_nanos() as u64;
        // Packets of one time are counted together.
        for same in packets.chunk_by(|a, b| a.time_ns == b.time_ns) {
            self.delays.add(now.saturating_sub(same[0].time_ns), same.len() as u64);
        }
        self.queue.send(pool, packets);
    }
    fn flush(&mut self, pool: &mut Pool) {
        self.queue.flush(pool);
    }
    fn stats(&self) -> QueueStats {
        self.queue.stats()
    }
}

/// Millions of packets a second, and the delay that 99 of 100 keep.
fn round(
    case: &Case,
    frames: &[Vec<u8>],
    batch: usize,
    time: Duration,
) -> Result<(f64, f64), String> {
    let (depot, begin, delays) = (depot()?, Instant::now(), Arc::new(Delays::new()));
    let mut pool = Pool::new(depot.clone(), 512);
    let frames = frames.iter().map(Vec::as_slice);
    let mut replay = Replay::new(&mut pool, frames, true).ok_or("too few cells")?;
    let mut measured =
        || Box::new(Measured::new(replay.recycle(4096), delays.clone(), begin)) as Box<dyn TxQueue>;
    let tx = (0..PORTS).map(|_| measured()).collect();
    drop(pool);
    let rx = vec![Box::new(Timed { replay, batch, begin }) as Box<dyn RxQueue>];
    let stage = OpenFlow::new("openflow", Arc::new(Counters::new(1)), None, &[]);
    let stages = vec![Box::new(stage) as Box<dyn Stage<FlowTables>>];
    let engine = start_over(stages, &case.reader, depot, Some(0), rx, tx)?;
    let view = engine.view().clone();
    std::thread::sleep(time / 4);
    delays.clear();
    let (packets, begin) = (received(&view), Instant::now());
    std::thread::sleep(time);
    let packets = received(&view) - packets;
    let rate = packets as f64 / begin.elapsed().as_secs_f64() / 1e6;
    let p99 = delays.p99();
    engine.stop(Duration::from_secs(1))?;
    Ok((rate, p99))
}

/// The figure.
pub(crate) fn figure(args: &Args, seconds: f64) -> Result<Report, String> {
    let size = Size::new(32 << 10, 32, 32);
    let data = format!(
        "{}, {PACKETS} distinct packets, {seconds} s a round, one core receives and transmits; delay from receive to transmit",
        size.name()
    );
    let mut report = Report::new("GSwitch, Figure 9", data);
    let case = Case::new(size, PACKETS, &mut report)?;
    let time = Duration::from_secs_f64(seconds);
    let frames: Vec<Vec<Vec<u8>>> = SIZES.map(|size| padded(&case.frames, size)).into();
    let mut rounds = vec![vec![(Vec::new(), Vec::new()); BATCHES.len()]; SIZES.len()];
    for _ in 0..args.rounds.max(1) {
        for (frames, rounds) in frames.iter().zip(&mut rounds) {
            for (batch, (rates, delays)) in BATCHES.iter().zip(rounds) {
                let (rate, delay) = round(&case, frames, *batch, time)?;
                rates.push(rate);
                delays.push(delay);
            }
        }
    }
    for (bytes, rounds) in SIZES.iter().zip(&rounds) {
        let line = format!("{bytes} bytes");
        for (batch, (rates, delays)) in BATCHES.iter().zip(rounds) {
            let name = format!("{line}, batches of {batch}");
            report.rows.push(Row::new(name.clone(), "Mpps", rates.clone()));
            let name = format!("{name}: delay of 99 in 100");
            report.rows.push(Row::new(name, "µs", delays.clone()));
        }
        for bound in BOUNDS {
            let best = best_within(rounds, bound).map(|at| &rounds[at]);
            // With the gap between frames and the preamble, as GSwitch counts.
            let gigabits = |rate: &f64| rate * (bytes + 20) as f64 * 8.0 / 1e3;
            let rates = best.map(|own| own.0.iter().map(gigabits).collect::<Vec<_>>());
            let Some(rates) = rates else { continue };
            let row = Row::new(format!("{line}, delay of {bound} µs at most"), "Gbit/s", rates);
            let row = row.curve("throughput under a bound of the delay", &line, Some(bound));
            report.rows.push(row.over("bound of the delay, µs"));
        }
    }
    Ok(report)
}

/// Of batches with their rates and delays the one that sends most among those whose packets keep a bound, microseconds.
pub(super) fn best_within(rounds: &[(Vec<f64>, Vec<f64>)], bound: usize) -> Option<usize> {
    let keeps = |at: &usize| median(&rounds[*at].1) <= bound as f64;
    let of = |at: &usize| median(&rounds[*at].0);
    (0..rounds.len()).filter(keeps).max_by(|a, b| of(a).total_cmp(&of(b)))
}

/// The same packets with so many bytes on the wire.
pub(super) fn padded(frames: &[Vec<u8>], bytes: usize) -> Vec<Vec<u8>> {
    let longer = |frame: &Vec<u8>| {
        let mut frame = frame.clone();
        frame.resize(bytes - 4, 0);
        let len = (frame.len() - 14) as u16;
        frame[16..18].copy_from_slice(&len.to_be_bytes());
        frame[38..40].copy_from_slice(&(len - 20).to_be_bytes());
        frame[24..26].fill(0);
        let sum = packet::checksum::internet_checksum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame
    };
    frames.iter().map(longer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ninety_nine_of_a_hundred_keep_the_delay() {
        let delays = Delays::new();
        delays.add(1_000, 99);
        delays.add(1_000_000_000, 1);
        assert!((delays.p99() - 1.1).abs() < 1e-9, "{}", delays.p99());
        delays.add(2_000, 10);
        assert!((delays.p99() - 2.1).abs() < 1e-9, "{}", delays.p99());
    }
}
