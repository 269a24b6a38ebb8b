//! A chunk's way through the segments: which side shades it, where a shard of state is at home, and how chunks come
//! back from a master.
//!
//! ```text
//!            move: no chunk of the shard is away, its state goes along with the next one
//!  home: CPU ───────────────────────────────────────────────────────────────────────────▶ device
//!            ◀───────────────────────────────────────────────────────────────────────────
//!            a job failed or the device is lost: what is away comes back and is shaded here, then
//! ```
//!
//! Every segment of a worker has a home of its own: a move or a failure of one changes nothing for another. A chunk
//! whose shard is moving, or for which a device has no room, stays in front of its segment until a later turn.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::Instant;

use chunk::{Chunk, Columns, Verdict};

#[cfg(debug_assertions)]
use super::declared;
use super::{PASSES_MAX, Worker};
use crate::balance::Side;
use crate::columns::{self, Shard};
use crate::context;
use crate::in_flight::{InFlight, Outcome, Slot, StatePanic};
use crate::master::MasterLink;
use crate::ring::{Again, Passed};
use crate::stage::{Context, HandOver, Receiver, Stage, Versions};

/// What a worker knows of one of its segments.
#[derive(Debug)]
pub(super) struct Home {
    /// Chunks that are at a master.
    pub(super) away: usize,
    /// Where the shard of state is.
    side: Side,
    /// The device has had the shard's state since it moved there.
    has_state: bool,
    /// A job of the shard failed: what is still away was shaded from state that lacks it.
    is_broken: bool,
}

impl Home {
    /// Where the shard of state is.
    pub(super) fn side(&self) -> Side {
        self.side
    }
}

impl Default for Home {
    fn default() -> Self {
        Self { away: 0, side: Side::Cpu, has_state: false, is_broken: false }
    }
}

/// Where a chunk goes now.
enum Way<V: Versions> {
    /// Shaded on this core.
    Here(Box<InFlight<V>>),
    /// To the master, its columns in an open arena.
    There(Box<InFlight<V>>),
    /// It cannot go on yet.
    Wait(Box<InFlight<V>>),
}

impl<V: Versions> Worker<V> {
    /// Takes chunks on, in order: into their segments, out of them, and to their end.
    pub(super) fn advance(&mut self) -> usize {
        let mut work = 0;
        let mut order = std::mem::take(&mut self.order);
        self.timed = Instant::now();
        let mut waits = false;
        order.advance(|slot| match slot {
            Slot::Ready(flight) => Some(match self.way(flight) {
                Way::Wait(flight) => {
                    waits = true;
                    Slot::Ready(flight)
                }
                Way::Here(flight) => {
                    work += 1;
                    self.enter(flight, None)
                }
                Way::There(flight) => {
                    work += 1;
                    let master = self.links.master.take();
                    let slot = self.enter(flight, master.as_deref());
                    self.links.master = master;
                    slot
                }
            }),
            Slot::Shaded(flight) => {
                work += 1;
                self.leave(flight)
            }
            Slot::Away { .. } => None,
        });
        if waits {
            // For a device, with state or without: the master may need the arenas in which chunks wait that have come back.
            order.here().for_each(InFlight::leave_arena);
        }
        self.order = order;
        work
    }

    /// The side of a chunk in the segment that it is about to enter.
    fn way(&mut self, mut flight: Box<InFlight<V>>) -> Way<V> {
        let segment = flight.segment;
        if flight.is_spoilt || flight.has_left() || self.sweeps_elsewhere(&flight) {
            return Way::Here(flight);
        }
        let is_shared = self.path.segments[segment].on_device;
        let master = self.links.master.as_ref().filter(|master| {
            is_shared && (master.shades(segment) || self.homes[segment].side == Side::Device)
        });
        let Some(master) = master else {
            flight.leave_arena();
            return Way::Here(flight);
        };
        let master = master.clone();
        let has_state = self.path.segments[segment].has_state;
        let waits = has_state || self.needs_device[segment];
        let wanted = match flight.sweep {
            // State stays where it is.
            Some(_) => self.homes[segment].side,
            None => match flight.wanted {
                Some(wanted) => wanted,
                None => {
                    let wanted = match self.fits_device(&flight) {
                        true if self.needs_device[segment] => Side::Device,
                        true => self.balances[segment].choose(&master.cost[segment], has_state),
                        false => Side::Cpu,
                    };
                    *flight.wanted.insert(wanted)
                }
            },
        };
        let side = if has_state { self.home(segment, wanted, &master) } else { Some(wanted) };
        match side {
            None => Way::Wait(flight),
            Some(Side::Cpu) => {
                // Rows that it kept of an earlier job's arena could hold that arena up.
                flight.leave_arena();
                Way::Here(flight)
            }
            Some(Side::Device) => match master.reserve(segment, flight.chunk.rows.len()) {
                Some(mut rows) => {
                    // Columns written by earlier segments move with the chunk; the first has none yet.
                    let start = self.path.pipelines[flight.pipeline].segments.start;
                    let has_columns = segment > start || flight.resumes.is_some();
                    if has_columns || flight.sweep.is_some() {
                        rows.copy_from(&mut flight.chunk.rows);
                    } else {
                        columns::begin(&mut rows, &self.path.zeroed);
                    }
                    let before = std::mem::replace(&mut flight.chunk.rows, rows);
                    // Its own rows are kept; a range of an earlier job's arena is given back here.
                    flight.spare.get_or_insert(before);
                    Way::There(flight)
                }
                None if waits => Way::Wait(flight),
                None => {
                    flight.leave_arena();
                    Way::Here(flight)
                }
            },
        }
    }

    /// Whether a device's kernels can work with the tables of a chunk.
    fn fits_device(&self, flight: &InFlight<V>) -> bool {
        let Some(pin) = &flight.pin else { return true };
        self.shaders[flight.segment].iter().all(|(_, shader)| shader.fits_device(pin))
    }

    /// Where the shard of a segment is at home for its next chunk; `None` while it moves.
    fn home(&mut self, segment: usize, wanted: Side, master: &MasterLink<V>) -> Option<Side> {
        let is_stale = master.is_stale(self.links.index, segment);
        let is_lost = !master.shades(segment);
        let home = &mut self.homes[segment];
        let is_failing = home.is_broken || is_lost || is_stale.load(Ordering::Acquire);
        let side = match (home.side, wanted) {
            (Side::Device, _) if is_failing => Side::Cpu,
            (Side::Cpu, Side::Device) if is_lost => Side::Cpu,
            (_, wanted) => wanted,
        };
        if side != home.side {
            if home.away > 0 {
                return None;
            }
            *home = Home { side, ..Home::default() };
            is_stale.store(false, Ordering::Release);
            self.reports.counters.shard_moves.add(u64::from(!is_failing));
        }
        Some(side)
    }

    /// Pre-shades a segment and shades it here, or hands it over.
    fn enter(&mut self, mut flight: Box<InFlight<V>>, master: Option<&MasterLink<V>>) -> Slot<V> {
        let at = flight.segment;
        let segment = self.path.segments[at];
        flight.wanted = None;
        flight.live.clear();
        if self.sweeps_elsewhere(&flight) {
            return Slot::Shaded(flight);
        }
        if flight.sweep.is_none() {
            let begin = flight.resumes.take().unwrap_or(segment.first);
            flight.live.resize(begin - segment.first, 0);
            for i in begin..segment.end {
                self.with_stage(
                    i,
                    &mut flight,
                    |stage, chunk, cx| stage.pre_shade(chunk, cx),
                    true,
                );
                // A stage that panicked divides nothing; what it held goes on.
                let divided = self.divided.take();
                if divided.is_some() {
                    let row = divided.filter(|_| !flight.is_spoilt).map_or(usize::MAX, usize::from);
                    self.divide(&mut flight, i, row);
                }
            }
        }
        if flight.is_spoilt {
            // The master goes on when it sees that nobody holds these rows any more. The verdicts come along: they say
            // which packets stages have taken over.
            flight.leave_arena();
            master.into_iter().for_each(|master| master.wakeup.wake());
            return Slot::Shaded(flight);
        }
        if let Some(master) = master
            && flight.sweep.is_none()
            && !flight.chunk.rows.verdicts().iter().any(|verdict| Verdict(*verdict).is_next())
        {
            // No shade looks at its rows.
            flight.leave_arena();
            master.wakeup.wake();
            return Slot::Shaded(flight);
        }
        if let Some(master) = master {
            let home = &mut self.homes[at];
            flight.moves_state = segment.has_state && !std::mem::replace(&mut home.has_state, true);
            if segment.has_state {
                Shard::view(&mut flight.chunk.rows).shard.fill(self.links.index.into());
            }
            flight.remember();
            master.find_payload(&mut flight, self.queues.pool.region());
            flight.handed = Instant::now();
            home.away += 1;
            self.reports.counters.chunks_to_device.add(1);
            let (pipeline, bound) = (flight.pipeline, flight.bound(2 * at + 1));
            match master.submissions.push(flight) {
                Ok(()) => {
                    master.wakeup.wake();
                    return Slot::Away { pipeline, segment: at, bound };
                }
                // Not possible: there is room for every chunk.
                Err(back) => {
                    flight = back;
                    flight.outcome = Outcome::Failed;
                    return Slot::Shaded(self.came_back(flight));
                }
            }
        }
        let shaded_ns = self.shade(&mut flight);
        if segment.on_device && flight.sweep.is_none() {
            self.balances[at].auto.shaded(flight.chunk.rows.len(), shaded_ns);
        }
        Slot::Shaded(flight)
    }

    /// Shades a chunk's segment on this core; the nanoseconds that it took.
    fn shade(&mut self, flight: &mut InFlight<V>) -> u64 {
        let first = self.path.segments[flight.segment].first;
        let shaders = self.shaders[flight.segment].clone();
        let mut shaded_ns = 0;
        for (i, shader) in &*shaders {
            if !self.is_concerned(flight, first + i) {
                continue;
            }
            let is_idle = flight.is_spoilt || flight.has_left();
            let Some(pin) = flight.pin.as_ref().filter(|_| !is_idle) else { break };
            #[cfg(debug_assertions)]
            self.declared.remember(&flight.chunk.rows);
            let (rows, packets) = (&mut flight.chunk.rows, &mut flight.chunk.packets);
            let shade = || shader.shade_packets(rows, packets, pin);
            let shaded = catch_unwind(AssertUnwindSafe(shade));
            #[cfg(debug_assertions)]
            let shaded = shaded.and_then(|()| {
                let local = usize::from(self.owned.stages[first + i]);
                self.declared.check(local, declared::Step::Shade, &flight.chunk.rows)
            });
            if let Err(panic) = shaded {
                let has_state = crate::stage::has_state(&**shader);
                let row = if has_state { None } else { self.find_row(&**shader, flight) };
                self.chunk_panicked((first + i, "shade"), row, flight, &*panic);
            }
            let now = Instant::now();
            let ns = now.duration_since(self.timed).as_nanos() as u64;
            self.timed = now;
            self.reports.counters.stages[first + i].busy_ns.add(ns);
            shaded_ns += ns;
        }
        shaded_ns
    }

    /// Whether a stage's shade has to do with a chunk: a sweep is one stage's.
    fn is_concerned(&self, flight: &InFlight<V>, stage: usize) -> bool {
        flight.sweep.is_none_or(|sweep| self.owned.numbers[sweep].0 == stage)
    }

    /// Post-shades a segment; the end of the last one retires the chunk.
    fn leave(&mut self, mut flight: Box<InFlight<V>>) -> Option<Slot<V>> {
        let segment = self.path.segments[flight.segment];
        let stages = if flight.sweep.is_some() { 0..0 } else { segment.first..segment.end };
        let mut settled = 0;
        self.settled = [0; 2]; // only what a `post_shade` says counts
        for i in stages {
            let live = flight.live.get(i - segment.first).copied().unwrap_or(0);
            let local = usize::from(self.owned.stages[i]);
            let packets = match self.contexts[local] {
                // Those that a stage of the segment settled in its shade never came to the stages behind it.
                0 => live.saturating_sub(settled),
                _ if self.steps[local].pre_shade => live,
                // A shade of the segment may have set them.
                contexts => context::count(&mut flight.chunk.rows, contexts) as u32,
            };
            self.with_stage(i, &mut flight, |s, chunk, cx| s.post_shade(chunk, cx), false);
            let [own, answered] = std::mem::take(&mut self.settled);
            settled += own;
            let is_late = self.contexts[local] != 0 && !self.steps[local].pre_shade;
            let of_stage = packets + answered + if is_late { own } else { 0 };
            self.reports.counters.stages[i].packets.add(of_stage.into());
            if !flight.traced.is_empty() {
                self.trace_stage(i, &mut flight);
            }
            if self.reports.hooks.capturing() {
                self.capture_stage(i, &mut flight);
            }
        }
        flight.segment += 1;
        if flight.segment < self.path.pipelines[flight.pipeline].segments.end {
            return Some(Slot::Ready(flight));
        }
        match flight.sweep {
            Some(_) => {
                self.end_sweep(flight);
                None
            }
            None => self.retire(flight).map(Slot::Ready),
        }
    }

    /// Takes back the chunks that masters have ended with.
    pub(super) fn take_back(&mut self) -> usize {
        let mut work = 0;
        while let Some(flight) = self.links.returns.pop() {
            work += 1;
            self.timed = Instant::now();
            let flight = self.came_back(flight);
            self.order.came_back(flight);
        }
        work
    }

    /// A chunk that was away is here: what came down for it is brought to its rows and packets, or it is shaded. Chunks
    /// of a shard come back in the order in which they left, and the host's copy of its state follows in that order.
    fn came_back(&mut self, mut flight: Box<InFlight<V>>) -> Box<InFlight<V>> {
        let has_state = self.path.segments[flight.segment].has_state;
        if let Some(StatePanic { place, step, message, .. }) = flight.panic.take() {
            let stage = self.path.segments[flight.segment].first + place;
            self.panicked(stage, step, &message, None, 0);
        }
        let home = &mut self.homes[flight.segment];
        home.away -= 1;
        home.is_broken |= has_state && flight.outcome == Outcome::Failed;
        // Dropped when its part is taken: the device waits for it.
        let landing = flight.landing.take();
        flight.payload.clear();
        if flight.outcome == Outcome::Failed || home.is_broken {
            flight.restore();
            self.shade(&mut flight);
            return flight;
        }
        if let Some(landing) = &landing {
            let Chunk { rows, packets, .. } = &mut flight.chunk;
            landing.land(flight.first_row, rows, packets);
        }
        let records = || landing.iter().flat_map(|landing| landing.records());
        let first = self.path.segments[flight.segment].first;
        let shaders = self.shaders[flight.segment].clone();
        for (number, (i, shader)) in shaders.iter().enumerate() {
            if !self.is_concerned(&flight, first + i) {
                continue;
            }
            let (chunk, first_row) = (&mut flight.chunk, flight.first_row);
            let mut step = "records";
            let retired = || {
                for (_, records) in records().filter(|(shade, _)| *shade == number) {
                    shader.records(&mut chunk.rows, records, first_row);
                }
                step = "retired";
                shader.retired(&mut chunk.rows, &mut chunk.packets);
            };
            if let Err(panic) = catch_unwind(AssertUnwindSafe(retired)) {
                // The host's copy lacks this chunk's part, like the chunk itself; the device's does not.
                self.chunk_panicked((first + i, step), None, &mut flight, &*panic);
            }
        }
        flight
    }

    /// Runs one step of a stage, timed and counted.
    fn with_stage(
        &mut self,
        i: usize,
        flight: &mut InFlight<V>,
        step: impl FnOnce(&mut dyn Stage<V::Tables>, &mut Chunk, &mut Context<'_, V::Tables>),
        is_first: bool,
    ) {
        let Some(pin) = flight.pin.as_ref().filter(|_| !flight.is_spoilt) else { return };
        if is_first {
            let stage = &self.reports.counters.stages[i];
            stage.calls.add(1);
        }
        let local = usize::from(self.owned.stages[i]);
        if is_first {
            let live = context::count(&mut flight.chunk.rows, self.contexts[local]);
            flight.live.push(live as u32);
        }
        let steps = self.steps[local];
        if flight.has_left() {
            return;
        }
        if !(if is_first { steps.pre_shade } else { steps.post_shade }) {
            return;
        }
        let overtakes = if is_first { self.overtakes(flight.pipeline, i, pin) } else { None };
        let now_ns = flight.chunk.time_ns;
        let mut cx =
            context!(self, flight.pipeline, &**pin, V::number(pin), now_ns, &flight.passes);
        cx.home = self.homes[flight.segment].side;
        cx.divided = is_first.then_some(&mut self.divided);
        cx.before = is_first.then_some(&mut self.before);
        cx.waiting = overtakes.map(|spread| (&mut self.waiting, spread));
        let (stage, chunk) = (&mut *self.path.stages[local], &mut flight.chunk);
        #[cfg(debug_assertions)]
        self.declared.remember(&chunk.rows);
        let done = catch_unwind(AssertUnwindSafe(|| step(stage, chunk, &mut cx)));
        let row = cx.row;
        #[cfg(debug_assertions)]
        let done = done.and_then(|()| {
            let step = if is_first { declared::Step::Pre } else { declared::Step::Post };
            self.declared.check(local, step, &chunk.rows)
        });
        if let Err(panic) = done {
            let name = if is_first { "pre_shade" } else { "post_shade" };
            self.chunk_panicked((i, name), row, flight, &*panic);
        }
        let now = Instant::now();
        let ns = now.duration_since(self.timed).as_nanos() as u64;
        self.timed = now;
        self.reports.counters.stages[i].busy_ns.add(ns);
        if is_first {
            flight.dropped.append(&mut self.dropped);
        }
        self.settle();
    }

    /// What stages have dropped, released or handed over.
    pub(super) fn settle(&mut self) {
        if !self.dropped.is_empty() {
            let mut dropped = std::mem::take(&mut self.dropped);
            for (packet, reason) in dropped.drain(..) {
                self.drop_packet(packet, reason);
            }
            self.dropped = dropped;
        }
        if !self.released.is_empty() {
            let mut released = std::mem::take(&mut self.released);
            for (packet, verdict) in released.drain(..) {
                self.dispose(packet, verdict);
            }
            self.released = released;
        }
        if !self.handed.is_empty() {
            let mut handed = std::mem::take(&mut self.handed);
            self.reports.counters.handed_over.add(handed.len() as u64);
            for HandOver { packet, to, place, passes } in handed.drain(..) {
                let again = Again { packet, place, passes };
                // A place that there is not is found out here.
                let own = self.owned.of_segment(place.into());
                let target = own.map_or(self.links.index.into(), |own| match to {
                    Receiver::Flow(hash) => self.peer_of(own, hash),
                    Receiver::Worker(worker) => self.links.heirs.of(worker.into()),
                });
                if target == usize::from(self.links.index) || passes > PASSES_MAX {
                    self.queue_again(again);
                } else {
                    self.pass(target, Passed::Again(again));
                }
            }
            self.handed = handed;
        }
    }
}
