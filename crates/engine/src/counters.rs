//! Counters: per worker and per queue, each on cache lines of its own, summed when read
//! (PacketShader §4.4).
//!
//! One thread writes a counter, so adding is a load and a store, not a locked instruction.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use chunk::reasons::{self, BLOCKS_MAX};
use chunk::{DropReason, Reason};
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
    /// Packets that came in with the verdict next. Of a stage that sees some contexts only: those that it saw, less
    /// those that a stage behind it in its segment has settled, where it has no `pre_shade`.
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

/// Counters in a [`Line`].
const LINE: usize = 16;

/// Counters that share no cache line with another worker's.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line([Counter; LINE]);

/// Counters of one worker.
#[derive(Debug)]
#[repr(align(128))]
pub struct WorkerCounters {
    /// Packets received from ports and twins; those that other workers pass on count where they were received.
    pub rx_packets: Counter,
    /// Packets handed to the transmit queues of ports and of twins, by the worker that owns the queue.
    pub tx_packets: Counter,
    /// Packets made by stages.
    pub emitted: Counter,
    /// Packets that entered the pipeline again.
    pub again: Counter,
    /// Packets given to the worker of their flow by a stage.
    pub handed_over: Counter,
    /// Packets for the capture sink and nowhere else.
    pub dumped: Counter,
    /// Packets that were under way for longer than `max_delay`: from the worker's first look at each until the turn
    /// in which it left had sent its packets. Time in a queue before that look, and in the pipeline again, is in no
    /// worker's count.
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
    places: Arc<DropPlaces>,
    drops: Box<[Line]>,
    /// By stage.
    pub stages: Box<[StageCounters]>,
}

impl WorkerCounters {
    /// Counters for a pipeline of `stages` stages and these drop reasons.
    pub fn new(stages: usize, places: &Arc<DropPlaces>) -> Self {
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
            places: places.clone(),
            drops: (0..places.len.div_ceil(LINE)).map(|_| Line::default()).collect(),
            stages: (0..stages).map(|_| StageCounters::default()).collect(),
        }
    }

    /// Begins with what the counters of an engine before show. `from`: by stage, its number there. Before the owning
    /// thread starts.
    pub(crate) fn go_on_from(&self, before: &WorkerCounters, from: &[Option<usize>]) {
        let sums: [fn(&WorkerCounters) -> &Counter; 15] = [
            |c| &c.rx_packets,
            |c| &c.tx_packets,
            |c| &c.emitted,
            |c| &c.again,
            |c| &c.handed_over,
            |c| &c.dumped,
            |c| &c.late,
            |c| &c.panics,
            |c| &c.chunks,
            |c| &c.chunks_to_device,
            |c| &c.shard_moves,
            |c| &c.busy_turns,
            |c| &c.idle_turns,
            |c| &c.sleeps,
            |c| &c.busy_ns,
        ];
        sums.iter().for_each(|of| of(self).set(of(before).get()));
        for (own, from) in self.stages.iter().zip(from) {
            let Some(from) = from.and_then(|from| before.stages.get(from)) else { continue };
            own.calls.set(from.calls.get());
            own.packets.set(from.packets.get());
            own.busy_ns.set(from.busy_ns.get());
        }
        for reason in before.reasons() {
            // Those of unknown codes become one.
            self.drop_counter(self.places.of(reason.code())).set(before.drops(reason.code()));
        }
    }

    /// Counts one drop. Only the owning thread may call this.
    #[inline]
    pub fn count_drop(&self, reason: DropReason) {
        self.drop_counter(self.places.of(reason)).add(1);
    }

    #[inline]
    fn drop_counter(&self, place: usize) -> &Counter {
        &self.drops[place / LINE].0[place % LINE]
    }

    /// The drop reasons that have a counter, in order of code.
    pub fn reasons(&self) -> &[&'static Reason] {
        self.places.reasons()
    }

    /// Packets dropped for `reason`; 0 for a code that was not declared at the start, for its packets count
    /// as [`reasons::UNKNOWN`].
    pub fn drops(&self, reason: DropReason) -> u64 {
        let at = |place: &usize| self.drop_counter(*place).get();
        if reason == reasons::UNKNOWN {
            return self.places.unknown.iter().map(at).sum();
        }
        if self.places.knows(reason) { self.drop_counter(self.places.of(reason)).get() } else { 0 }
    }
}

/// Where the counter of each drop reason lies, made of the reasons that are registered when an engine starts.
///
/// The reasons of a block lie together in order of their numbers, so that a code leads to its counter by an
/// addition. Undeclared numbers of a block have counters too; they are part of [`reasons::UNKNOWN`],
/// as is counter 0, where every other code leads.
#[derive(Debug)]
pub struct DropPlaces {
    spans: Box<[Span; BLOCKS_MAX]>,
    /// How many counters there are.
    len: usize,
    /// The registered reasons, in order of code.
    reasons: Vec<&'static Reason>,
    /// Counters of undeclared codes.
    unknown: Vec<usize>,
}

/// The counters of a block.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    first: u16,
    len: u16,
}

impl DropPlaces {
    /// Counters for every reason that is registered now.
    pub fn of_registered() -> Self {
        Self::new(reasons::registered())
    }

    /// Counters for `reasons`, which are in order of code and begin with [`reasons::UNKNOWN`].
    fn new(reasons: Vec<&'static Reason>) -> Self {
        let mut spans = Box::new([Span::default(); BLOCKS_MAX]);
        let mut len = 0;
        for block in reasons.chunk_by(|a, b| a.code().block() == b.code().block()) {
            let (first, last) = (block[0].code(), block[block.len() - 1].code());
            let span = Span { first: len as u16, len: u16::from(last.number()) + 1 };
            len += usize::from(span.len);
            spans[usize::from(first.block())] = span;
        }
        let mut places = Self { spans, len, reasons: Vec::new(), unknown: Vec::new() };
        let declared: Vec<_> = reasons.iter().map(|r| places.of(r.code())).collect();
        let is_unknown = |place: &usize| *place == 0 || !declared.contains(place);
        places.unknown = (0..len).filter(is_unknown).collect();
        places.reasons = reasons;
        places
    }

    /// The reasons that have a counter of their own, in order of code.
    pub fn reasons(&self) -> &[&'static Reason] {
        &self.reasons
    }

    /// Index of the counter of `reason`.
    #[inline(always)]
    fn of(&self, reason: DropReason) -> usize {
        let span = self.spans[usize::from(reason.block())];
        let number = u16::from(reason.number());
        if number < span.len { usize::from(span.first + number) } else { 0 }
    }

    fn knows(&self, reason: DropReason) -> bool {
        self.reasons.binary_search_by_key(&reason, |known| known.code()).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    mod declared {
        chunk::drop_reasons! {
            /// Numbers with gaps, the last one at the end of the block.
            pub(super) const BLOCK: 77, "sparse";
            LOW = 2, "sparse_low", "a reason", "Nothing.";
            HIGH = 255, "sparse_high", "another one", "Nothing.";
        }
    }

    /// Every code there is, against a map from code to packets.
    #[test]
    fn each_code_counts_where_a_map_says() {
        let mut known: Vec<&'static Reason> = reasons::BLOCK.reasons().iter().collect();
        known.extend(declared::BLOCK.reasons());
        known.sort_by_key(|reason| reason.code());
        let places = Arc::new(DropPlaces::new(known.clone()));
        let counters = WorkerCounters::new(0, &places);
        let mut expected = BTreeMap::new();
        for code in 0..=u16::MAX {
            let reason = DropReason::from_code(code);
            let is_known = known.iter().any(|known| known.code() == reason);
            for _ in 0..code % 3 {
                counters.count_drop(reason);
                *expected.entry(if is_known { reason } else { reasons::UNKNOWN }).or_insert(0) += 1;
            }
        }
        for code in 0..=u16::MAX {
            let reason = DropReason::from_code(code);
            assert_eq!(counters.drops(reason), expected.get(&reason).copied().unwrap_or(0));
        }
        assert!(counters.drops(declared::HIGH) + counters.drops(declared::LOW) > 0);
        assert_eq!(places.len, reasons::BLOCK.reasons().len() + BLOCKS_MAX);
    }
}
