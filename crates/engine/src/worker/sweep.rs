//! Sweeps: chunks of rows without packets, by which a stage looks at its state where that is at home.
//!
//! They lie among the worker's other chunks, in front of the stage's segment, and go through that one alone. So nothing
//! of the shard overtakes them, and they move and fail with it.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use chunk::Verdict;

use super::Worker;
use crate::columns;
use crate::in_flight::InFlight;
use crate::stage::Versions;

impl<V: Versions> Worker<V> {
    /// Begins a sweep of each stage that wants one and has none under way. The last free chunk is for packets.
    pub(super) fn begin_sweeps(&mut self, stopping: bool) -> usize {
        let mut work = 0;
        for stage in 0..self.path.stages.len() {
            let next = self.next_sweep_ns(stage..stage + 1);
            if next.is_none_or(|next| next > self.now_ns) {
                continue;
            }
            // A worker without queues of its own sweeps as long as others pass packets to it, so that it comes to an end.
            let has_worked = self.queues.rx.is_empty() && self.packets_begun() > self.swept_at;
            let is_ending = self.settings.until_finished && self.rx_finished() && !has_worked;
            if stopping || is_ending || self.free.len() < 2 {
                break;
            }
            work += usize::from(self.begin_sweep(stage));
        }
        if work > 0 {
            self.swept_at = self.packets_begun();
        }
        work
    }

    /// Grows with each chunk that has packets.
    fn packets_begun(&self) -> u64 {
        self.reports.counters.chunks.get() + self.reports.counters.again.get()
    }

    /// When the first of some stages wants to sweep, of those that have no sweep under way.
    fn next_sweep_ns(&mut self, stages: Range<usize>) -> Option<u64> {
        let sweeping = std::mem::take(&mut self.sweeping);
        let still = stages.filter(|stage| !sweeping[*stage]);
        let next = self.earliest(still, "next_sweep_ns", |stage| stage.next_sweep_ns());
        self.sweeping = sweeping;
        next
    }

    /// How long it is until a stage wants to sweep.
    pub(super) fn until_sweep(&mut self) -> Option<Duration> {
        let next = self.next_sweep_ns(0..self.path.stages.len())?;
        let may_begin = self.free.len() >= 2 && !self.gave_up && !self.settings.packet_time;
        may_begin.then(|| Duration::from_nanos(next.saturating_sub(self.now_ns)))
    }

    fn begin_sweep(&mut self, stage: usize) -> bool {
        let (number, own) = self.owned.numbers[stage];
        let holds = |segment: &usize| {
            let segment = &self.path.segments[*segment];
            (segment.first..segment.end).contains(&number)
        };
        let Some(segment) = self.path.pipelines[own].segments.clone().find(holds) else {
            return false;
        };
        let Some(mut flight) = self.free.pop() else { return false };
        let pin = self.path.versions.pin();
        let rows = &mut flight.chunk.rows;
        rows.set_len(rows.reserved());
        columns::begin(rows, &self.path.zeroed);
        rows.verdicts().fill(Verdict::TAKEN.0);
        let mut cx = context!(self, own, &*pin, V::number(&pin), self.now_ns, &[]);
        cx.home = self.homes[segment].side();
        let swept = catch_unwind(AssertUnwindSafe(|| self.path.stages[stage].sweep(rows, &mut cx)));
        let count = swept.unwrap_or_else(|panic| {
            self.panicked(number, "sweep", &*panic, None, 0);
            0
        });
        self.settle();
        if count == 0 {
            self.free.push(flight);
            return false;
        }
        let chunk = &mut flight.chunk;
        chunk.rows.set_len(count.min(chunk.rows.reserved()));
        chunk.time_ns = self.now_ns;
        chunk.attached.clear();
        chunk.seq = self.next_seq;
        self.next_seq += 1;
        flight.count = 0;
        (flight.pipeline, flight.segment) = (own, segment);
        flight.wanted = None;
        flight.is_spoilt = false;
        flight.pin = Some(pin);
        flight.sweep = Some(stage);
        self.sweeping[stage] = true;
        self.order.push(flight);
        true
    }

    /// Whether a chunk has nothing to do in the segment that it enters: a sweep of another one.
    pub(super) fn sweeps_elsewhere(&self, flight: &InFlight<V>) -> bool {
        let segment = &self.path.segments[flight.segment];
        let stage = flight.sweep.map(|stage| self.owned.numbers[stage].0);
        stage.is_some_and(|stage| !(segment.first..segment.end).contains(&stage))
    }

    /// The end of a sweep.
    pub(super) fn end_sweep(&mut self, mut flight: Box<InFlight<V>>) {
        if let Some(stage) = flight.sweep.take() {
            self.sweeping[stage] = false;
        }
        if let Some(own) = flight.spare.take() {
            flight.chunk.rows = own;
        }
        flight.pin = None;
        self.free.push(flight);
    }
}
