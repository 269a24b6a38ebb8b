//! Counters: per worker and per queue, each on cache lines of its own, summed when read
//! (PacketShader §4.4).
//!
//! One thread writes a counter, so adding is a load and a store, not a locked instruction.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use chunk::{DROP_REASONS, DropReason};
use io::QueueStats;

/// A counter with one writer.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`. Only the owning thread may call this.
    #[inline(always)]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Sets it. Only the owning thread may call this.
    pub fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }

    /// Its value.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// What one phase of a stage cost at one worker.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct StageCounters {
    /// Chunks seen.
    pub calls: Counter,
    /// Packets that came in with the verdict next.
    pub packets: Counter,
    /// Nanoseconds spent in the three steps.
    pub busy_ns: Counter,
}

/// What a queue of a port did, as its owner last copied it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct QueueCounters {
    packets: Counter,
    bytes: Counter,
    dropped: Counter,
    errors: Counter,
}

impl QueueCounters {
    /// Copies `stats` in. Only the owning thread may call this.
    pub fn set(&self, stats: QueueStats) {
        self.packets.set(stats.packets);
        self.bytes.set(stats.bytes);
        self.dropped.set(stats.dropped);
        self.errors.set(stats.errors);
    }

    /// The last copy.
    pub fn get(&self) -> QueueStats {
        QueueStats {
            packets: self.packets.get(),
            bytes: self.bytes.get(),
            dropped: self.dropped.get(),
            errors: self.errors.get(),
        }
    }
}

/// Counters of one worker.
#[derive(Debug)]
#[repr(align(128))]
pub struct WorkerCounters {
    /// Packets received from ports, twins and other workers.
    pub rx_packets: Counter,
    /// Packets handed to transmit queues, to twins and to other workers.
    pub tx_packets: Counter,
    /// Packets made by stages.
    pub emitted: Counter,
    /// Packets that entered the pipeline again.
    pub again: Counter,
    /// Packets given to the worker of their flow by a stage.
    pub handed_over: Counter,
    /// Packets for the capture sink and nowhere else.
    pub dumped: Counter,
    /// Packets that were under way for longer than `max_delay`.
    pub late: Counter,
    /// Panics of stages.
    pub panics: Counter,
    /// Whether the worker has given its stages up: 0 or 1.
    pub gave_up: Counter,
    /// Chunks begun.
    pub chunks: Counter,
    /// Chunks handed to a master.
    pub chunks_to_device: Counter,
    /// Whether chunks go to the device now, by the balance: 0 or 1.
    pub on_device: Counter,
    /// How full bursts are, percent.
    pub fill_percent: Counter,
    /// Nanoseconds a row of the shades that a device could do, on this core; 0: not known.
    pub cpu_row_ns: Counter,
    /// Times a shard of state moved between this worker and the device.
    pub shard_moves: Counter,
    /// Turns of the loop that found work.
    pub busy_turns: Counter,
    /// Turns that found none.
    pub idle_turns: Counter,
    /// Times it blocked.
    pub sleeps: Counter,
    /// Nanoseconds spent in turns that found work.
    pub busy_ns: Counter,
    /// Packets that stages hold now.
    pub held: Counter,
    /// Chunks in flight now.
    pub in_flight: Counter,
    drops: Box<[Counter]>,
    /// By stage.
    pub stages: Box<[StageCounters]>,
}

impl WorkerCounters {
    /// Counters for a pipeline of `stages` stages.
    pub fn new(stages: usize) -> Self {
        Self {
            rx_packets: Counter::default(),
            tx_packets: Counter::default(),
            emitted: Counter::default(),
            again: Counter::default(),
            handed_over: Counter::default(),
            dumped: Counter::default(),
            late: Counter::default(),
            panics: Counter::default(),
            gave_up: Counter::default(),
            chunks: Counter::default(),
            chunks_to_device: Counter::default(),
            on_device: Counter::default(),
            fill_percent: Counter::default(),
            cpu_row_ns: Counter::default(),
            shard_moves: Counter::default(),
            busy_turns: Counter::default(),
            idle_turns: Counter::default(),
            sleeps: Counter::default(),
            busy_ns: Counter::default(),
            held: Counter::default(),
            in_flight: Counter::default(),
            drops: DROP_REASONS.iter().map(|_| Counter::default()).collect(),
            stages: (0..stages).map(|_| StageCounters::default()).collect(),
        }
    }

    /// Counts one drop. Only the owning thread may call this.
    #[inline]
    pub fn count_drop(&self, reason: DropReason) {
        self.drops[reason as usize].add(1);
    }

    /// Packets dropped for `reason`.
    pub fn drops(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize].get()
    }
}
