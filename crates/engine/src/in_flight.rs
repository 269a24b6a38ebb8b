//! A chunk on its way, and the job that carries several of them to a device.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use std::time::Instant;

use chunk::{Chunk, DropReason, Packet, Rows};
use crossbeam_queue::ArrayQueue;
use device::Shadeable;
use device::accelerator::{Landing, Offload, PayloadPart, PayloadWay};

use crate::balance::Side;
use crate::stage::{Shade, Versions};
use crate::twins::Crew;
use crate::worker::{OwnPipeline, Rest, panic_text};

/// The shaders of one segment in order of its stages, each with its stage's place in the segment.
pub(crate) type Shaders<T> = Arc<[(usize, Arc<dyn Shade<T>>)]>;

/// Chunks on their way back from a master to one worker.
pub(crate) type Returns<V> = Arc<ArrayQueue<Box<InFlight<V>>>>;

/// Room for the stages of a segment; more of them take memory once.
const STAGES: usize = 32;

/// A chunk with what belongs to it while it is worked on.
pub(crate) struct InFlight<V: Versions> {
    pub(crate) chunk: Chunk,
    /// The chunk's own rows while it uses a range of a job's arena.
    pub(crate) spare: Option<Rows>,
    /// Verdicts and contexts as they were before the shade, so that a failed job can be done again.
    pub(crate) before: [Vec<u32>; 2],
    pub(crate) pin: Option<V::Pin>,
    /// Its pipeline, by the place among the worker's.
    pub(crate) pipeline: usize,
    /// The segment it is in, or enters next.
    pub(crate) segment: usize,
    /// The side that was chosen for the segment it enters next: chosen once, however long it waits.
    pub(crate) wanted: Option<Side>,
    /// By stage of the segment: how many rows were on their way when its pre-shade had its turn.
    pub(crate) live: Vec<u32>,
    /// How it came back from a master.
    pub(crate) outcome: Outcome,
    /// What came down for its job, of which its rows' part begins at `first_row`: its worker takes that.
    pub(crate) landing: Option<Arc<Landing>>,
    pub(crate) first_row: usize,
    /// What its worker found of its packets' bytes, for the device, and the nanoseconds that this took, where that is
    /// measured.
    pub(crate) payload: PayloadPart,
    pub(crate) payload_ns: u64,
    /// It is the first of its shard since that moved to the device: the state goes along.
    pub(crate) moves_state: bool,
    /// Its packets that wait for the others.
    pub(crate) rest: Rest,
    /// The stage at which its packets enter the segment: those before have seen them.
    pub(crate) resumes: Option<usize>,
    /// How often each packet went through the pipeline again; empty where none did.
    pub(crate) passes: Vec<u8>,
    /// The stage, among the worker's, that sweeps its state by this chunk: it has rows and no packets.
    pub(crate) sweep: Option<usize>,
    /// Packets that stages held before and dropped in its pre-shade: they go when it retires, before its own, so that chunks which
    /// a device still has come first.
    pub(crate) dropped: Vec<(Packet, DropReason)>,
    /// A stage panicked over it: its packets are dropped.
    pub(crate) is_spoilt: bool,
    /// A stage panicked when a master wanted to read its state: the worker reports it.
    pub(crate) panic: Option<StatePanic>,
    /// Packets at the start.
    pub(crate) count: usize,
    /// When its packets were received, and how many each time, where that is measured.
    pub(crate) received: Vec<(Instant, u32)>,
    /// When it was begun, where that is measured.
    pub(crate) begun: Option<Instant>,
    /// When it was handed to a master.
    pub(crate) handed: Instant,
    /// The trace that one of its packets has.
    pub(crate) traced: Vec<Traced>,
}

/// A packet under trace: its row and what was seen so far.
pub(crate) struct Traced {
    pub(crate) row: usize,
    pub(crate) trace: Arc<crate::hooks::Trace>,
    pub(crate) events: Vec<crate::hooks::TraceEvent>,
}

impl<V: Versions> InFlight<V> {
    pub(crate) fn new(chunk: Chunk) -> Self {
        Self {
            chunk,
            spare: None,
            before: [(); 2].map(|()| Vec::with_capacity(chunk::CHUNK_PACKETS_MAX)),
            pin: None,
            pipeline: 0,
            segment: 0,
            wanted: None,
            live: Vec::with_capacity(STAGES),
            outcome: Outcome::Done,
            landing: None,
            first_row: 0,
            payload: PayloadPart::with_capacity(chunk::CHUNK_PACKETS_MAX),
            payload_ns: 0,
            moves_state: false,
            rest: Rest::default(),
            resumes: None,
            passes: Vec::with_capacity(chunk::CHUNK_PACKETS_MAX),
            sweep: None,
            dropped: Vec::new(),
            is_spoilt: false,
            panic: None,
            count: 0,
            received: Vec::with_capacity(chunk::CHUNK_PACKETS_MAX),
            begun: None,
            handed: Instant::now(),
            traced: Vec::new(),
        }
    }

    /// Remembers the verdicts and contexts before a shade that may fail.
    pub(crate) fn remember(&mut self) {
        let (verdict, context) = self.chunk.rows.common();
        for (before, now) in self.before.iter_mut().zip([verdict, context]) {
            before.clear();
            before.extend_from_slice(now);
        }
    }

    /// Puts the verdicts and contexts back to what they were: the other columns that a shade reads it
    /// never wrote.
    pub(crate) fn restore(&mut self) {
        let (verdict, context) = self.chunk.rows.common();
        let [verdict_before, context_before] = &self.before;
        verdict.copy_from_slice(verdict_before);
        context.copy_from_slice(context_before);
    }

    /// Moves the columns to the chunk's own rows and gives its range of a job's arena back.
    pub(crate) fn leave_arena(&mut self) {
        if let Some(mut own) = self.spare.take() {
            own.copy_from(&mut self.chunk.rows);
            self.chunk.rows = own;
        }
    }

    /// The progress that chunks behind it may not pass: its own, or that of its rest.
    pub(crate) fn bound(&self, progress: usize) -> usize {
        self.rest.at.map_or(progress, |(segment, _)| progress.min(2 * segment))
    }

    /// Whether all of its packets are in the rest: no stage has to do with it until that goes on.
    pub(crate) fn has_left(&self) -> bool {
        self.rest.at.is_some() && self.chunk.packets.is_empty()
    }

    /// Shades one segment on this thread.
    fn shade(&mut self, shaders: &Shaders<V::Tables>) {
        let Some(pin) = &self.pin else { return };
        for (_, shader) in &**shaders {
            shader.shade_packets(&mut self.chunk.rows, &mut self.chunk.packets, pin);
        }
    }
}

/// How a chunk came back from a master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The device shaded it.
    Done,
    /// The device did not: its worker shades it.
    Failed,
}

/// What was chosen for a job by the costs of those before it. Nothing that it gives depends on that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chosen {
    /// Who brings its payload; `None` where there is no choice.
    pub(crate) payload: Option<PayloadWay>,
    /// Whether its rows are sorted for the kernels.
    pub(crate) is_scheduled: bool,
}

/// Chunks of several workers, in one arena, of one version of the tables, to be shaded by one launch.
pub(crate) struct Job<V: Versions> {
    /// Its place in the order of the jobs with state, in which these come back.
    pub(crate) number: Option<u64>,
    /// The segment of all its chunks.
    pub(crate) segment: usize,
    /// When it was launched.
    pub(crate) launched: Instant,
    /// How it is done, where that was chosen.
    pub(crate) chosen: Chosen,
    pub(crate) flights: Vec<Box<InFlight<V>>>,
    pub(crate) crew: Arc<Crew<V::Tables>>,
    /// What came down, until the workers have taken their parts of it.
    pub(crate) landing: Option<Arc<Landing>>,
    /// A stage panicked on the master's thread: the job is done again by its workers.
    pub(crate) is_spoilt: AtomicBool,
    /// The first such panic.
    pub(crate) panic: Mutex<Option<StatePanic>>,
}

/// A panic of a stage whose state a master wanted to read.
#[derive(Debug)]
pub(crate) struct StatePanic {
    /// The worker whose shard it was.
    pub(crate) shard: usize,
    /// The stage's place in the segment.
    pub(crate) place: usize,
    /// `state` or `state_slots`.
    pub(crate) step: &'static str,
    /// What it said.
    pub(crate) message: String,
}

impl<V: Versions> Job<V> {
    /// Calls a stage on the master's thread. What it panics with goes home with a chunk of its worker, which reports it.
    fn guarded<R: Default>(
        &self,
        (shard, state): (usize, usize),
        step: &'static str,
        call: impl FnOnce() -> R,
    ) -> R {
        catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
            self.is_spoilt.store(true, Ordering::Relaxed);
            let place = self.crew.place(shard, self.segment, state);
            let message = panic_text(&*panic);
            let mut first = self.panic.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert(StatePanic { shard, place, step, message });
            R::default()
        })
    }
}

impl<V: Versions> Shadeable for Job<V> {
    fn rows(&self) -> usize {
        self.flights.iter().map(|flight| flight.chunk.rows.len()).sum()
    }

    fn shade(&mut self) {
        let before = self.crew.changes_packets(self.segment).then(|| self.frames());
        let shaded = catch_unwind(AssertUnwindSafe(|| self.shade_flights()));
        if let Err(panic) = shaded {
            // The job is done again, from what its packets were.
            let mut before = before.into_iter().flatten();
            self.packets(&mut |packet| {
                before.next().into_iter().for_each(|frame| packet.write_all(&frame))
            });
            resume_unwind(panic);
        }
    }

    fn chain(&self) -> Option<usize> {
        self.number.map(|_| self.segment)
    }
}

impl<V: Versions> Job<V> {
    /// Copies of its packets' bytes.
    fn frames(&self) -> Vec<Vec<u8>> {
        let packets = self.flights.iter().flat_map(|flight| &flight.chunk.packets);
        packets.map(|packet| packet.segments().collect::<Vec<_>>().concat()).collect()
    }

    /// Shades its chunks by the shades of their workers, or by these shades' twins.
    fn shade_flights(&mut self) {
        let (crew, segment, has_state) = (&self.crew, self.segment, self.number.is_some());
        for flight in &mut self.flights {
            let worker = usize::from(flight.chunk.worker);
            let has_moved = std::mem::take(&mut flight.moves_state);
            if !has_state {
                flight.shade(crew.shaders(worker, segment));
            } else if let Some(twins) = crew.twins(worker, segment, has_moved) {
                flight.shade(&twins);
            }
        }
    }
}

impl<V: Versions> Offload for Job<V> {
    type Tables = V::Tables;

    fn segment(&self) -> usize {
        self.segment
    }

    fn tables(&self) -> Option<(&V::Tables, u64)> {
        let pin = self.flights.first()?.pin.as_ref()?;
        Some((&**pin, V::number(pin)))
    }

    fn parts(&mut self, part: &mut dyn FnMut(&mut Rows)) {
        self.flights.iter_mut().for_each(|flight| part(&mut flight.chunk.rows));
    }

    fn packets(&mut self, packet: &mut dyn FnMut(&mut Packet)) {
        self.flights.iter_mut().flat_map(|flight| &mut flight.chunk.packets).for_each(packet);
    }

    fn attached(&mut self, each: &mut dyn FnMut(usize, &[u8])) {
        let mut first = 0;
        for flight in &self.flights {
            flight.chunk.attached.iter().for_each(|(row, bytes)| each(first + row, bytes));
            first += flight.chunk.rows.len();
        }
    }

    fn payload(&mut self, part: &mut dyn FnMut(&mut PayloadPart)) -> bool {
        let is_known = self.flights.iter().all(|flight| flight.payload.is_known());
        if is_known {
            self.flights.iter_mut().for_each(|flight| part(&mut flight.payload));
        }
        is_known
    }

    fn payload_way(&self) -> Option<PayloadWay> {
        self.chosen.payload
    }

    fn is_scheduled(&self) -> bool {
        self.chosen.is_scheduled
    }

    fn landed(&mut self, landing: &Arc<Landing>) {
        self.landing = Some(landing.clone());
    }

    fn is_spoilt(&self) -> bool {
        self.is_spoilt.load(Ordering::Relaxed)
    }

    fn shards(&mut self, shard: &mut dyn FnMut(usize, bool)) {
        for flight in &mut self.flights {
            shard(flight.chunk.worker.into(), std::mem::take(&mut flight.moves_state));
        }
    }

    fn state_slots(&self, shard: usize, state: usize) -> usize {
        self.guarded((shard, state), "state_slots", || self.crew.slots(shard, self.segment, state))
    }

    fn state(&self, shard: usize, state: usize, step: usize, bytes: &mut [u8]) {
        self.guarded((shard, state), "state", || {
            self.crew.state((shard, self.segment, state), step, bytes);
        });
    }
}

/// A worker's chunks between receipt and retirement, in order of receipt.
pub(crate) struct InOrder<V: Versions> {
    slots: VecDeque<Slot<V>>,
    /// Number of the chunk in the first slot.
    first: u64,
    /// By pipeline.
    lines: Vec<Line>,
}

/// What is known of a pipeline's chunks while they are walked.
#[derive(Clone, Copy, Debug)]
struct Line {
    /// Progress in front of the first segment, and out of the last one.
    start: usize,
    end: usize,
    /// Progress of the chunk that is least far of those before.
    elder: usize,
}

/// Where a chunk is.
pub(crate) enum Slot<V: Versions> {
    /// Here, about to enter its segment.
    Ready(Box<InFlight<V>>),
    /// Here, its segment shaded.
    Shaded(Box<InFlight<V>>),
    /// At a master, in this segment of this pipeline; chunks behind it may not pass `bound`.
    Away { pipeline: usize, segment: usize, bound: usize },
}

impl<V: Versions> Slot<V> {
    /// How far the chunk is: two steps for each segment, into it and out of it. And its pipeline.
    fn progress(&self) -> (usize, usize) {
        match self {
            Slot::Ready(flight) => (2 * flight.segment, flight.pipeline),
            Slot::Shaded(flight) => (2 * flight.segment + 1, flight.pipeline),
            Slot::Away { pipeline, segment, .. } => (2 * segment + 1, *pipeline),
        }
    }

    /// How far chunks behind it may go.
    fn bound(&self) -> usize {
        match self {
            Slot::Ready(flight) | Slot::Shaded(flight) => flight.bound(self.progress().0),
            Slot::Away { bound, .. } => *bound,
        }
    }
}

impl<V: Versions> Default for InOrder<V> {
    /// For no chunk.
    fn default() -> Self {
        Self { slots: VecDeque::new(), first: 0, lines: Vec::new() }
    }
}

impl<V: Versions> InOrder<V> {
    /// For `capacity` chunks of these pipelines.
    pub(crate) fn new(capacity: usize, pipelines: &[OwnPipeline]) -> Self {
        let line = |own: &OwnPipeline| {
            let (start, end) = (2 * own.segments.start, 2 * own.segments.end);
            Line { start, end: end.saturating_sub(1), elder: usize::MAX }
        };
        let lines = pipelines.iter().map(line).collect();
        Self { slots: VecDeque::with_capacity(capacity), first: 0, lines }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Adds the youngest chunk.
    pub(crate) fn push(&mut self, flight: Box<InFlight<V>>) {
        self.slots.push_back(Slot::Ready(flight));
    }

    /// A chunk is back from its master.
    pub(crate) fn came_back(&mut self, flight: Box<InFlight<V>>) {
        let place = (flight.chunk.seq - self.first) as usize;
        self.slots[place] = Slot::Shaded(flight);
    }

    /// The chunks that are here.
    pub(crate) fn here(&mut self) -> impl Iterator<Item = &mut InFlight<V>> {
        self.slots.iter_mut().filter_map(|slot| match slot {
            Slot::Ready(flight) | Slot::Shaded(flight) => Some(&mut **flight),
            Slot::Away { .. } => None,
        })
    }

    /// Walks the chunks from the oldest and lets `step` take each one on that is here and whose elder of the same pipeline
    /// is further: into its segment, or out of it. `step` returns the slot it is in then, or `None` once it has retired. A
    /// chunk that cannot enter its segment yet comes back as it was, and holds up those of its pipeline behind it.
    ///
    /// So every pre-shade and every post-shade sees the chunks in order, whichever side shades them, and chunks may
    /// be in several segments at a time. Those of all pipelines retire in one order.
    pub(crate) fn advance(&mut self, mut step: impl FnMut(Slot<V>) -> Option<Slot<V>>) {
        self.lines.iter_mut().for_each(|line| line.elder = usize::MAX);
        // Pipelines of which a chunk behind this one may still go on.
        let mut open = self.lines.len();
        let mut place = 0;
        while let Some(slot) = self.slots.get_mut(place) {
            let (progress, pipeline) = slot.progress();
            let bound = slot.bound();
            let line = &mut self.lines[pipeline];
            let may_retire = place == 0 || progress < line.end;
            if !matches!(slot, Slot::Away { .. }) && progress < line.elder && may_retire {
                let away = Slot::Away { pipeline, segment: 0, bound: 0 };
                match step(std::mem::replace(slot, away)) {
                    Some(next) => {
                        let moved = next.progress().0 != progress;
                        *slot = next;
                        if moved {
                            continue; // it may go on at once
                        }
                    }
                    None => {
                        debug_assert_eq!(place, 0, "only the oldest chunk can retire");
                        self.slots.pop_front();
                        self.first += 1;
                        continue;
                    }
                }
            }
            if progress == line.start && line.elder > progress {
                open -= 1;
                if open == 0 {
                    return; // nobody behind it can be further
                }
            }
            // A chunk that began at a place is far on and waits for its elders: those behind it wait for them too.
            line.elder = line.elder.min(bound);
            place += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chunk::{Arena, Layout};

    struct Nothing(());

    impl std::ops::Deref for Nothing {
        type Target = ();
        fn deref(&self) -> &() {
            &self.0
        }
    }

    struct Plain;

    impl Versions for Plain {
        type Tables = ();
        type Pin = Nothing;
        fn pin(&mut self) -> Nothing {
            Nothing(())
        }
        fn number(_: &Nothing) -> u64 {
            0
        }
    }

    /// Counts up the context, and drops every other packet that it sees.
    struct Count;

    impl Shade<()> for Count {
        fn shade(&self, rows: &mut Rows, (): &()) {
            let (verdict, context) = rows.common();
            for (row, (verdict, context)) in verdict.iter_mut().zip(context).enumerate() {
                if *verdict == 0 {
                    *context += 1;
                    *verdict = row as u32 % 2;
                }
            }
        }
    }

    /// A job that a device has done on state that lacked something: its results are in the rows.
    #[test]
    fn a_job_done_again_sees_verdicts_and_contexts_as_they_were() {
        let rows = Arena::new(Layout::join(&[], 8).unwrap()).reserve(8).unwrap();
        let mut flight = Box::new(InFlight::<Plain>::new(Chunk::new(rows, 0)));
        let (verdict, context) = flight.chunk.rows.common();
        verdict[6..].fill(9);
        context.copy_from_slice(&[0, 10, 20, 30, 40, 50, 60, 70]);
        flight.pin = Some(Nothing(()));
        flight.remember();
        let shaders: Shaders<()> = Arc::new([(0, Arc::new(Count) as Arc<dyn Shade<()>>)]);
        for _ in 0..2 {
            flight.shade(&shaders);
        }
        flight.restore();
        flight.shade(&shaders);
        let (verdict, context) = flight.chunk.rows.common();
        assert_eq!(*verdict, [0, 1, 0, 1, 0, 1, 9, 9]);
        assert_eq!(*context, [1, 11, 21, 31, 41, 51, 60, 70]);
    }
}
