//! Which side shades a chunk, decided from measured costs and load.
//!
//! PacketShader §7 calls it opportunistic offloading: a device does many rows cheaply and few rows late.
//! Under light load the CPU shades, for low latency; under heavy load the device does, if it costs less
//! there. What that means is measured while packets flow:
//!
//! ```text
//!  load    on the CPU: how full a turn's fullest burst is; full ones mean that packets wait already
//!          on the device: the rate of packets, against the rate at which the CPU was full
//!  CPU     nanoseconds a row of the shades on this worker
//!  device  launch and nanoseconds a row, fitted to its jobs; and how long a chunk is away
//!
//!           bursts full, device cheaper, chunk back within the bound
//!     CPU ───────────────────────────────────────────────────────────▶ device
//!         ◀───────────────────────────────────────────────────────────
//!           rate well below what filled the CPU, or device dearer, or too late
//! ```
//!
//! Bursts say nothing once the device shades: a worker that hands its chunks over is soon back for the
//! next few packets. Nor does the cost of its small jobs: a device that is not full takes what there is.
//! So the device is judged by what a large job would cost. Probes alone, single chunks, do not tell that: then
//! the device is tried if it could be cheaper at best, and kept if its larger jobs show that it is.
//!
//! State must not go to and fro with single chunks. A shard moves as a whole ([`Auto::choose_home`]): to a side
//! whose cost is not known for [`KEEP_CHUNKS`] chunks at least, and after that where it costs less.
//!
//! A device that has no room for a chunk leaves it to the CPU, so at the limit both sides work. The
//! costs of a side that is not in use grow old: now and then a chunk goes there to learn them again.
//!
//! [`Auto`] depends on its inputs only, so it is tested in simulated time (`shadeline bench
//! balance`). Threads: each worker has its own; [`DeviceCost`] is written by the master.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Where a chunk is shaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// On the worker's core.
    Cpu,
    /// On the device, by way of its master.
    Device,
}

/// How the side is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Always the CPU.
    Cpu,
    /// The device whenever it has room.
    Device,
    /// By load and measured costs.
    Auto,
    /// `device` of each `of` chunks to the device, spread evenly: both sides share the load.
    Share {
        /// Chunks for the device.
        device: u32,
        /// Of so many.
        of: u32,
    },
}

/// What a device costs, as its master measures it.
#[derive(Debug, Default)]
pub struct DeviceCost {
    fit: Mutex<Fit>,
    /// Of a row of a large job, in 1/256 nanoseconds; 0: not known yet.
    row: AtomicU64,
    /// The jobs so far were of one size: a row of a large one costs this at least.
    is_guess: AtomicBool,
    /// From a chunk's handing over to its return, nanoseconds; 0: not known yet.
    away_ns: AtomicU64,
}

/// Rows of a large job.
const LARGE_ROWS: f64 = 2048.0;

/// How much each job fades at the next one.
const FADE: f64 = 31.0 / 32.0;

/// A line through the jobs, the last ones counting most: time = launch + rows × row.
#[derive(Debug, Default)]
struct Fit {
    n: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
}

impl Fit {
    fn add(&mut self, rows: f64, ns: f64) {
        for (sum, value) in [
            (&mut self.n, 1.0),
            (&mut self.x, rows),
            (&mut self.y, ns),
            (&mut self.xx, rows * rows),
            (&mut self.xy, rows * ns),
        ] {
            *sum = *sum * FADE + value;
        }
    }

    /// Nanoseconds a row of a job of `rows`, and whether that is a guess: jobs of one size do not tell what a
    /// launch costs and what a row. Then a larger job is taken to cost as much as they do, the least it can.
    fn row_ns(&self, rows: f64) -> (f64, bool) {
        let spread = self.n * self.xx - self.x * self.x;
        let mean = self.y / self.x.max(1.0);
        if spread <= 1e-3 * self.n * self.xx {
            let of_jobs = self.x / self.n.max(1.0);
            return (mean * (of_jobs / rows).min(1.0), of_jobs < rows);
        }
        let slope = ((self.n * self.xy - self.x * self.y) / spread).clamp(0.0, mean);
        let launch = ((self.y - slope * self.x) / self.n).max(0.0);
        (launch / rows + slope, false)
    }
}

impl DeviceCost {
    /// A job of `rows` rows has ended, `busy_ns` after the one before it ended or, if there was none
    /// in flight, after its own launch.
    pub fn job_ended(&self, rows: usize, busy_ns: u64) {
        if rows == 0 {
            return;
        }
        let mut fit = self.fit.lock().unwrap_or_else(PoisonError::into_inner);
        fit.add(rows as f64, busy_ns as f64);
        let (row, is_guess) = fit.row_ns(LARGE_ROWS.max(rows as f64));
        self.is_guess.store(is_guess, Ordering::Relaxed);
        self.row.store(((row * 256.0) as u64).max(1), Ordering::Relaxed);
    }

    /// A chunk came back `ns` after it was handed over.
    pub fn chunk_was_away(&self, ns: u64) {
        smooth(&self.away_ns, ns);
    }

    /// Nanoseconds a row of a large job; `None` before the first job.
    pub fn row_ns(&self) -> Option<f64> {
        let row = self.row.load(Ordering::Relaxed);
        (row > 0).then_some(row as f64 / 256.0)
    }

    /// Whether [`DeviceCost::row_ns`] is the least that it can be, larger jobs not being known yet.
    pub fn is_guess(&self) -> bool {
        self.is_guess.load(Ordering::Relaxed)
    }

    /// How long a chunk is away; `None` before the first came back.
    pub fn away(&self) -> Option<Duration> {
        let ns = self.away_ns.load(Ordering::Relaxed);
        (ns > 0).then(|| Duration::from_nanos(ns))
    }
}

/// An exponential mean over about 16 values.
fn smooth(mean: &AtomicU64, value: u64) {
    let old = mean.load(Ordering::Relaxed);
    let new = if old == 0 { value } else { old - old / 16 + value / 16 };
    mean.store(new.max(1), Ordering::Relaxed);
}

/// A burst as full as this says that packets wait.
const FULL: f64 = 0.75;

/// The CPU takes over again below this share of the rate that filled it.
const RELIEVED: f64 = 0.7;

/// Over how long rates are measured.
const WINDOW_NS: u64 = 1_000_000;

/// How much cheaper the other side must be.
const MARGIN: f64 = 0.8;

/// Chunks for which a side is kept at least.
const KEEP_CHUNKS: u32 = 64;

/// Of so many chunks under heavy load, one goes to the side that is not in use, to learn its cost.
const PROBE_EVERY: u32 = 512;

/// Of so many chunks under heavy load, a shard of state tries the other side once.
const TRY_EVERY: u32 = 32 * PROBE_EVERY;

/// Chunks by which the device is measured at first.
const FIRST_PROBES: u32 = 4;

/// The automatic choice of one worker.
#[derive(Clone, Debug)]
pub struct Auto {
    side: Side,
    kept: u32,
    since_probe: u32,
    probes: u32,
    fill: f64,
    /// Packets since, and the time of, the window's start.
    window: (u64, u64),
    /// Packets a second, and the rate at which the CPU was full.
    rate: f64,
    full_rate: f64,
    was_full: bool,
    cpu_row_ns: Option<f64>,
    /// The device is in use on the strength of a guess.
    is_trial: bool,
    bound: Option<Duration>,
}

/// What a comparison of the sides was based on.
enum Compared {
    /// Little load: the CPU.
    Light,
    /// The cost of a side is not known yet.
    Unknown,
    /// Both costs.
    Known,
}

impl Auto {
    /// A choice that starts on the CPU. `bound`: how long a packet may be under way at most.
    pub fn new(bound: Option<Duration>) -> Self {
        Self {
            side: Side::Cpu,
            kept: 0,
            since_probe: 0,
            probes: 0,
            fill: 0.0,
            window: (0, 0),
            rate: 0.0,
            full_rate: 0.0,
            was_full: false,
            cpu_row_ns: None,
            is_trial: false,
            bound,
        }
    }

    /// A turn of the worker's loop brought `packets`, its fullest burst being so full (0 to 1), at `now_ns` by
    /// a clock that only goes on. Queues that brought less do not count: one that is full has packets
    /// waiting, however many idle ones are beside it.
    pub fn turn_ended(&mut self, packets: usize, fullest: f64, now_ns: u64) {
        self.fill += (fullest - self.fill) / 16.0;
        self.window.0 += packets as u64;
        let passed_ns = now_ns.saturating_sub(self.window.1);
        if passed_ns >= WINDOW_NS {
            self.rate = self.window.0 as f64 * 1e9 / passed_ns as f64;
            self.window = (0, now_ns);
            if self.side == Side::Cpu {
                // Full at both ends of the window: the CPU forwards all it can.
                let is_full = self.fill >= FULL;
                self.full_rate = if is_full && self.was_full { self.rate } else { 0.0 };
                self.was_full = is_full;
            }
        }
    }

    /// The CPU shaded `rows` rows in `ns`.
    pub fn shaded(&mut self, rows: usize, ns: u64) {
        if rows > 0 {
            let row = ns as f64 / rows as f64;
            let mean = self.cpu_row_ns.get_or_insert(row);
            *mean += (row - *mean) / 16.0;
        }
    }

    /// The side in use.
    pub fn side(&self) -> Side {
        self.side
    }

    /// How full bursts are, 0 to 1.
    pub fn fill(&self) -> f64 {
        self.fill
    }

    /// Nanoseconds a row on this core; `None` before the first.
    pub fn cpu_row_ns(&self) -> Option<f64> {
        self.cpu_row_ns
    }

    /// The side of the next chunk.
    pub fn choose(&mut self, device: &DeviceCost) -> Side {
        let other = if self.side == Side::Cpu { Side::Device } else { Side::Cpu };
        match self.compare(device) {
            Compared::Light => {}
            Compared::Unknown => {
                // On the CPU until its own cost is known, then chunk by chunk to the device.
                if self.cpu_row_ns.is_some() {
                    return self.probe(Side::Device);
                }
                return Side::Cpu;
            }
            Compared::Known => {
                let is_new = other == Side::Device && self.probes < FIRST_PROBES;
                if self.side != other && (self.since_probe >= PROBE_EVERY || is_new) {
                    return self.probe(other);
                }
            }
        }
        self.side
    }

    /// The side where a shard of state should be at home, asked for each of its chunks.
    pub fn choose_home(&mut self, device: &DeviceCost) -> Side {
        let other = if self.side == Side::Cpu { Side::Device } else { Side::Cpu };
        match self.compare(device) {
            Compared::Light => {}
            Compared::Unknown if self.cpu_row_ns.is_some() => self.turn(Side::Device),
            Compared::Unknown => self.turn(Side::Cpu),
            Compared::Known if self.since_probe >= TRY_EVERY => {
                self.since_probe = 0;
                self.turn(other);
            }
            Compared::Known => {}
        }
        self.side
    }

    /// Turns to the side that the load and what is known of the costs speak for.
    fn compare(&mut self, device: &DeviceCost) -> Compared {
        self.kept = self.kept.saturating_add(1);
        self.since_probe = self.since_probe.saturating_add(1);
        let is_heavy = match self.side {
            Side::Cpu => self.full_rate > 0.0,
            Side::Device => self.rate >= RELIEVED * self.full_rate,
        };
        if !is_heavy {
            self.turn(Side::Cpu);
            return Compared::Light;
        }
        let (Some(cpu), Some(on_device)) = (self.cpu_row_ns, device.row_ns()) else {
            return Compared::Unknown;
        };
        let is_late = match (self.bound, device.away()) {
            (Some(bound), Some(away)) => away > bound,
            _ => false,
        };
        let is_cheaper = on_device < cpu * MARGIN;
        match self.side {
            Side::Cpu if !is_late && is_cheaper => {
                self.turn(Side::Device);
                self.is_trial = device.is_guess();
            }
            Side::Device if is_late || cpu < on_device * MARGIN => self.turn(Side::Cpu),
            // What it turned for was a guess: now it is known.
            Side::Device if self.is_trial && !device.is_guess() && self.kept >= KEEP_CHUNKS => {
                self.is_trial = false;
                if !is_cheaper {
                    self.turn(Side::Cpu);
                }
            }
            _ => {}
        }
        Compared::Known
    }

    fn probe(&mut self, side: Side) -> Side {
        self.since_probe = 0;
        self.probes = self.probes.saturating_add(1);
        side
    }

    fn turn(&mut self, side: Side) {
        if self.side != side && self.kept >= KEEP_CHUNKS {
            self.side = side;
            self.was_full = false;
            self.kept = 0;
        }
    }
}

/// A worker's choice, chunk by chunk.
#[derive(Clone, Debug)]
pub(crate) struct Balance {
    policy: Policy,
    credit: u32,
    pub(crate) auto: Auto,
}

impl Balance {
    pub(crate) fn new(policy: Policy, bound: Option<Duration>) -> Self {
        Self { policy, credit: 0, auto: Auto::new(bound) }
    }

    /// Whether chunks go to the device now, probes apart.
    pub(crate) fn is_on_device(&self) -> bool {
        match self.policy {
            Policy::Cpu => false,
            Policy::Device => true,
            Policy::Auto => self.auto.side() == Side::Device,
            Policy::Share { device, .. } => device > 0,
        }
    }

    pub(crate) fn choose(&mut self, device: &DeviceCost, has_state: bool) -> Side {
        match self.policy {
            Policy::Cpu => Side::Cpu,
            Policy::Device => Side::Device,
            Policy::Auto if has_state => self.auto.choose_home(device),
            Policy::Auto => self.auto.choose(device),
            Policy::Share { device, of } => {
                self.credit += device;
                if self.credit >= of {
                    self.credit -= of;
                    Side::Device
                } else {
                    Side::Cpu
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `chunks` chunks of `fill` of 256 packets, one each 20 µs; how many went to the device.
    fn run(
        auto: &mut Auto,
        cost: &DeviceCost,
        chunks: u32,
        fill: usize,
        cpu: u64,
        dev: u64,
    ) -> u32 {
        run_by(Auto::choose, auto, cost, chunks, fill, cpu, dev).0
    }

    /// The same by either way to choose; also how often one chunk's side was not that of the chunk before.
    fn run_by(
        choose: fn(&mut Auto, &DeviceCost) -> Side,
        auto: &mut Auto,
        cost: &DeviceCost,
        chunks: u32,
        fill: usize,
        cpu: u64,
        dev: u64,
    ) -> (u32, u32) {
        let (mut last, mut moves) = (auto.side(), 0);
        // Time goes on from the last chunk.
        let since = auto.window.0 / fill as u64 * 20_000;
        let (mut to_device, start_ns) = (0, auto.window.1 + since + 20_000);
        for i in 0..chunks {
            auto.turn_ended(fill, fill as f64 / 256.0, start_ns + u64::from(i) * 20_000);
            let side = choose(auto, cost);
            moves += u32::from(std::mem::replace(&mut last, side) != side);
            match side {
                Side::Cpu => auto.shaded(fill, cpu * fill as u64),
                Side::Device => {
                    to_device += 1;
                    cost.job_ended(fill, dev * fill as u64);
                    cost.chunk_was_away(100_000);
                }
            }
        }
        (to_device, moves)
    }

    #[test]
    fn a_shard_moves_for_good_or_for_a_while_but_never_for_a_chunk() {
        let (mut auto, cost) = (Auto::new(None), DeviceCost::default());
        let (to_device, moves) = run_by(Auto::choose_home, &mut auto, &cost, 5000, 256, 100, 10);
        assert!(to_device > 4000 && moves == 1, "{to_device} to the device in {moves} moves");
        let (mut auto, cost) = (Auto::new(None), DeviceCost::default());
        let chunks = 3 * TRY_EVERY;
        let (to_device, moves) = run_by(Auto::choose_home, &mut auto, &cost, chunks, 256, 10, 400);
        assert!((2..=8).contains(&moves), "{moves} moves");
        assert!(to_device >= moves / 2 * KEEP_CHUNKS && to_device < chunks / 20, "{to_device}");
        let (mut auto, cost) = (Auto::new(None), DeviceCost::default());
        assert_eq!(run_by(Auto::choose_home, &mut auto, &cost, 1000, 16, 100, 10), (0, 0));
    }

    #[test]
    fn light_load_stays_on_the_cpu_and_heavy_load_goes_where_it_costs_less() {
        let (mut auto, cost) = (Auto::new(None), DeviceCost::default());
        assert_eq!(run(&mut auto, &cost, 1000, 16, 100, 10), 0);
        assert!(run(&mut auto, &cost, 1000, 256, 100, 10) > 800);
        assert_eq!(auto.side(), Side::Device);
        assert!(run(&mut auto, &cost, 1000, 16, 100, 10) < 100);
        assert_eq!(auto.side(), Side::Cpu);
    }

    #[test]
    fn a_dearer_device_gets_probes_and_no_more() {
        let (mut auto, cost) = (Auto::new(None), DeviceCost::default());
        let probes = run(&mut auto, &cost, 10_000, 256, 10, 400);
        assert!((FIRST_PROBES..40).contains(&probes), "{probes}");
    }

    #[test]
    fn costs_that_are_alike_do_not_make_it_swing() {
        let (mut auto, cost) = (Auto::new(None), DeviceCost::default());
        run(&mut auto, &cost, 1000, 256, 100, 90);
        let before = auto.side();
        for round in 0..50u64 {
            run(&mut auto, &cost, 20, 256, 95 + round % 10, 95 + (round + 5) % 10);
            assert_eq!(auto.side(), before);
        }
    }

    #[test]
    fn a_device_that_would_break_the_bound_is_left_alone() {
        let bound = Some(Duration::from_micros(50));
        let (mut auto, cost) = (Auto::new(bound), DeviceCost::default());
        assert!(run(&mut auto, &cost, 2000, 256, 100, 10) < 20);
    }

    /// Runs full chunks, one each 20 µs, that a device gathers into jobs of `gathered` chunks while it is in
    /// use; how many went to it.
    fn gathering(cpu: u64, launch: u64, row: u64, gathered: u64) -> u32 {
        let (mut auto, cost) = (Auto::new(None), DeviceCost::default());
        let (mut to_device, mut waiting) = (0, 0);
        for i in 0..20_000u64 {
            auto.turn_ended(256, 1.0, WINDOW_NS + i * 20_000);
            if auto.choose(&cost) == Side::Cpu {
                auto.shaded(256, cpu * 256);
                continue;
            }
            (to_device, waiting) = (to_device + 1, waiting + 1);
            // A probe goes by itself.
            if auto.side() == Side::Cpu || waiting == gathered {
                let rows = 256 * waiting;
                cost.job_ended(rows as usize, launch + row * rows);
                waiting = 0;
            }
            cost.chunk_was_away(30_000);
        }
        to_device
    }

    #[test]
    fn probes_of_one_chunk_do_not_hide_what_a_large_job_costs() {
        // 80 ns a row by single chunks, 12 by jobs of eight; the CPU takes 40.
        let to_device = gathering(40, 20_000, 2, 8);
        assert!(to_device > 15_000, "{to_device} of 20,000 to the device");
        // The best that single chunks leave possible is 14 ns a row; larger ones show 82.
        let to_device = gathering(40, 10_000, 77, 8);
        assert!((64..1_000).contains(&to_device), "{to_device} of 20,000 to the device");
        // As dear as the CPU: tried, not kept.
        let to_device = gathering(40, 1_000, 38, 8);
        assert!((64..1_000).contains(&to_device), "{to_device} of 20,000 to the device");
    }
}
