//! A panic in a stage ends the chunk that it worked on, and nothing else.
//!
//! The worker drops the chunk's packets, counted, says which stage and which packet it was, and goes on. A stage that
//! panics [`PANICS_MAX`] times at one worker is not run there any more: the worker hands its packets to another
//! ([`crate::heirs`]).

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use chunk::{Arena, Packet, Verdict, reasons};

use super::Worker;
use crate::in_flight::InFlight;
use crate::merge::MARK_DEFERRED;
use crate::ring::Passed;
use crate::stage::{Shade, Stage, Versions};

/// Panics after which a worker gives its stages up.
pub(super) const PANICS_MAX: u64 = 16;

/// Bytes of a packet that a report shows.
const SHOWN_BYTES: usize = 64;

/// A panic in a stage.
#[derive(Clone, Debug)]
pub struct StagePanic {
    /// The worker.
    pub worker: u16,
    /// Number of the stage in the pipeline, and its name.
    pub stage: (usize, &'static str),
    /// Where the operator wrote the stage down, a file and a line. The engine knows nothing of that and leaves it empty:
    /// whoever receives the report may fill it in.
    pub origin: String,
    /// Which of its functions: `pre_shade`, `shade`, `post_shade`, `retired`, `records`, `state`, `state_slots`, `sweep`,
    /// `next_sweep_ns`, `tick`, `next_tick_ns`, `held`, `drain`. A panic of `describe` is an empty description. What
    /// panics on the simulated device is named when its worker does the same.
    pub step: &'static str,
    /// What it said.
    pub message: String,
    /// The row of the packet in the chunk, where that is known, and the packet's first bytes.
    pub packet: Option<(usize, Vec<u8>)>,
    /// Packets of the chunk, all of which are dropped.
    pub packets: usize,
    /// The worker runs no stage any more.
    pub gave_up: bool,
}

impl std::fmt::Display for StagePanic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let StagePanic { worker, stage, origin, step, message, packet, packets, gave_up } = self;
        write!(f, "worker {worker}: stage `{}`", stage.1)?;
        if !origin.is_empty() {
            write!(f, " ({origin})")?;
        }
        write!(f, " panicked in {step}: {message}")?;
        match packet {
            Some((row, bytes)) => {
                write!(f, "; packet {row} of {packets}, which begins ")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
            }
            None if *packets > 0 => write!(f, "; packet unknown (chunk of {packets})")?,
            None => {}
        }
        if *packets > 0 {
            write!(f, "; the chunk is dropped (stage_panic)")?;
        }
        if *gave_up {
            write!(f, "; the worker runs no stage any more")?;
        }
        Ok(())
    }
}

/// Told of each panic of a stage.
pub type PanicSink = Arc<dyn Fn(StagePanic) + Send + Sync>;

/// What a panic said.
pub fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".into())
}

impl<V: Versions> Worker<V> {
    /// A stage panicked over a chunk, at `row` if that is known.
    #[cold]
    pub(super) fn chunk_panicked(
        &mut self,
        (stage, step): (usize, &'static str),
        row: Option<usize>,
        flight: &mut InFlight<V>,
        panic: &(dyn Any + Send),
    ) {
        flight.is_spoilt = true;
        let head = |packet: &Packet| packet.data()[..packet.data().len().min(SHOWN_BYTES)].to_vec();
        let packet = row.and_then(|row| Some((row, head(flight.chunk.packets.get(row)?))));
        self.panicked(stage, step, panic, packet, flight.count);
    }

    /// Counts and reports a panic, and gives the stages up after too many.
    #[cold]
    pub(super) fn panicked(
        &mut self,
        stage: usize,
        step: &'static str,
        panic: &(dyn Any + Send),
        packet: Option<(usize, Vec<u8>)>,
        packets: usize,
    ) {
        self.reports.counters.panics.add(1);
        let gave_up = !self.gave_up && self.reports.counters.panics.get() >= PANICS_MAX;
        let report = StagePanic {
            worker: self.links.index,
            stage: (stage, self.path.stages[usize::from(self.owned.stages[stage])].name()),
            origin: String::new(),
            step,
            message: panic_text(panic),
            packet,
            packets,
            gave_up,
        };
        (self.reports.on_panic)(report);
        if gave_up {
            self.gave_up = true;
            self.reports.counters.gave_up.set(1);
            self.links.heirs.give_up(self.links.index.into(), &self.links.heirs_of);
        }
    }

    /// The row at which a shade without state panics, found by shading the rows one by one.
    #[cold]
    pub(super) fn find_row(
        &self,
        shader: &dyn Shade<V::Tables>,
        flight: &mut InFlight<V>,
    ) -> Option<usize> {
        let pin = flight.pin.as_ref()?;
        let mut one = Arena::new(flight.chunk.rows.layout().with_capacity(1)).reserve(1)?;
        (0..flight.chunk.packets.len().min(flight.chunk.rows.len())).find(|&row| {
            one.copy_row_from(&flight.chunk.rows, row);
            let packet = &mut flight.chunk.packets[row..=row];
            catch_unwind(AssertUnwindSafe(|| shader.shade_packets(&mut one, packet, pin))).is_err()
        })
    }

    /// The end of a chunk over which a stage panicked: all its packets are dropped. Those that stages have taken over
    /// are theirs; those that went with the panic are counted all the same.
    #[cold]
    pub(super) fn drop_chunk(&mut self, flight: &mut InFlight<V>) {
        let mut packets = std::mem::take(&mut flight.chunk.packets);
        let mut emitted = std::mem::take(&mut flight.chunk.emitted);
        if self.links.lane.is_some() {
            // What the gate would decide about was not made: nobody asks.
            let deferred = emitted.extract_if(.., |e| e.packet.mark & MARK_DEFERRED != 0);
            deferred.for_each(|e| e.packet.free(&mut self.queues.pool));
        }
        self.reports.counters.emitted.add(emitted.len() as u64);
        emitted.sort_by_key(|e| e.cause);
        let (count, rows) = (flight.count, packets.len());
        let mut lost = count.saturating_sub(rows);
        let mut made = emitted.drain(..).peekable();
        for (row, packet) in packets.drain(..).enumerate() {
            let verdict =
                flight.chunk.rows.verdicts().get(row).map_or(Verdict::NEXT, |v| Verdict(*v));
            if !packet.is_empty() {
                self.drop_packet(packet, reasons::STAGE_PANIC);
            } else if verdict != Verdict::TAKEN {
                lost += 1;
            }
            while let Some(e) = made.next_if(|e| usize::from(e.cause) <= row || row + 1 == rows) {
                self.drop_packet(e.packet, reasons::STAGE_PANIC);
            }
            // Each at its place among those of other workers.
            self.retired_on_lane(usize::from(row < count));
        }
        made.for_each(|e| self.drop_packet(e.packet, reasons::STAGE_PANIC));
        self.retired_on_lane(count.saturating_sub(rows));
        (0..lost).for_each(|_| self.reports.counters.count_drop(reasons::STAGE_PANIC));
        flight.chunk.packets = packets;
        flight.chunk.emitted = emitted;
        self.settle();
    }

    /// Hands the inbox to the heir, or drops it where there is none. Before a merger it is dropped, once the chunks that
    /// began earlier have retired.
    #[cold]
    pub(super) fn relay(&mut self) {
        self.arrivals.clear();
        self.noted = 0;
        if self.links.lane.is_some() {
            if self.order.len() > 0 {
                return;
            }
            self.drop_inbox_on_lane();
        }
        let heir = self.links.heirs.of(self.links.index.into());
        let mut inbox = std::mem::take(&mut self.inbox);
        for (at, packet) in inbox.drain(..).enumerate() {
            if heir == usize::from(self.links.index) {
                self.drop_packet(packet, reasons::STAGE_PANIC);
            } else {
                let entry = self.entries.get(at).copied().unwrap_or(0);
                let number = self.path.pipelines[usize::from(entry)].number;
                self.pass(heir, Passed::Received(packet, number));
            }
        }
        self.entries.clear();
        self.inbox = inbox;
        let mut again = std::mem::take(&mut self.again);
        self.again_count = 0;
        for again in again.iter_mut().flat_map(|waiting| waiting.drain(..)) {
            if heir == usize::from(self.links.index) {
                self.drop_packet(again.packet, reasons::STAGE_PANIC);
            } else {
                self.pass(heir, Passed::Again(again));
            }
        }
        self.again = again;
        if !self.is_drained && self.order.len() == 0 {
            self.is_drained = true;
            self.drain_stages();
        }
    }

    /// Gives the receive queues to the heir. One that nobody inherits from stays with its queues, and drops what they
    /// receive; so does the reader of captures, whose order is bound to its queue.
    #[cold]
    pub(super) fn give_queues(&mut self) {
        if let Some(heir) = self.gave_to
            && self.links.heirs.has_queues(heir)
            && self.links.rings_out[heir].as_ref().is_some_and(|(ring, _)| ring.is_abandoned())
        {
            self.inherit_from(heir); // it died before it took them
        }
        // What it received before and passed on must not be overtaken by what the heir receives: it has to have arrived.
        let has_arrived =
            self.inbox.is_empty()
                && self.order.len() == 0
                && self.again_count == 0
                && self.ring_waiting.iter().all(VecDeque::is_empty)
                && self.links.rings_out.iter().flatten().all(|(ring, _)| {
                    ring.slots() == ring.buffer().capacity() || ring.is_abandoned()
                });
        if !self.is_to_give() || !has_arrived {
            return;
        }
        let heir = self.links.heirs.of(self.links.index.into());
        // Not quiet until they are taken; where all were quiet before, nobody would take them.
        if !self.links.quiet.leave() {
            return;
        }
        self.links.heirs.give(heir, &mut self.queues.rx);
        self.next_rx = 0;
        self.gave_to = Some(heir);
        if let Some(Some((_, wakeup))) = self.links.rings_out.get(heir) {
            wakeup.wake();
        }
    }

    /// Whether its queues are another worker's from now on: it does not look at them any more.
    pub(super) fn is_to_give(&self) -> bool {
        self.gave_up
            && !self.queues.rx.is_empty()
            && self.links.lane.is_none()
            && self.links.heirs.of(self.links.index.into()) != usize::from(self.links.index)
    }

    /// Takes the queues of a worker that gave its stages up.
    #[cold]
    pub(super) fn inherit(&mut self) {
        self.inherit_from(self.links.index.into());
    }

    fn inherit_from(&mut self, worker: usize) {
        // First: who gave them is not quiet before they are taken, so this cannot be too late.
        self.links.quiet.leave();
        self.queues.rx.append(&mut self.links.heirs.take(worker));
    }

    /// Whether its heir has not taken its queues yet.
    pub(super) fn is_giving(&self) -> bool {
        self.gave_to.is_some_and(|heir| self.links.heirs.has_queues(heir))
    }

    /// Asks some stages for a time and answers the earliest; one that panics ends the asking. Stages that are given up
    /// are not asked.
    pub(super) fn earliest(
        &mut self,
        stages: impl Iterator<Item = usize>,
        step: &'static str,
        ask: impl Fn(&dyn Stage<V::Tables>) -> Option<u64>,
    ) -> Option<u64> {
        if self.gave_up {
            return None;
        }
        let (mut asked, mut earliest) = (0, None);
        let all = || {
            for i in stages {
                asked = i;
                earliest = [earliest, ask(&*self.path.stages[i])].into_iter().flatten().min();
            }
        };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(all)) {
            self.panicked(self.owned.numbers[asked].0, step, &*panic, None, 0);
        }
        earliest
    }

    /// Lets the stages part with what they hold.
    pub(super) fn drain_stages(&mut self) {
        let pin = self.path.versions.pin();
        for i in 0..self.path.stages.len() {
            let stage = &mut self.path.stages[i];
            let (number, own) = self.owned.numbers[i];
            let mut cx = context!(self, own, &*pin, V::number(&pin), self.now_ns, &[]);
            let drained = catch_unwind(AssertUnwindSafe(|| stage.drain(&mut cx)));
            if let Err(panic) = drained {
                self.panicked(number, "drain", &*panic, None, 0);
            }
            self.settle();
        }
    }

    /// Whether the worker is told to give up what it cannot send.
    pub(super) fn is_aborting(&self) -> bool {
        self.signals.abort.load(Ordering::Relaxed)
    }
}
