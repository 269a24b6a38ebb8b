//! A chunk on its way, and the job that carries several of them to a device.

use std::collections::VecDeque;
use std::sync::Arc;

use std::time::Instant;

use chunk::{Chunk, Packet, Rows};
use crossbeam_queue::ArrayQueue;
use device::Shadeable;
use device::accelerator::Offload;

use crate::segment::Segment;
use crate::stage::{Shade, Versions};

/// The shaders of one segment, in order of its stages.
pub(crate) type Shaders<T> = Arc<[Arc<dyn Shade<T>>]>;

/// Chunks on their way back from a master to one worker.
pub(crate) type Returns<V> = Arc<ArrayQueue<Box<Flight<V>>>>;

/// A chunk with what belongs to it while it is worked on.
pub(crate) struct Flight<V: Versions> {
    pub(crate) chunk: Chunk,
    /// The chunk's own rows while it uses a range of a job's arena.
    pub(crate) spare: Option<Rows>,
    /// Verdicts as they were before the shade, so that a failed job can be done again.
    pub(crate) before: Vec<u32>,
    pub(crate) pin: Option<V::Pin>,
    /// The segment it is in.
    pub(crate) segment: usize,
    /// It is the first of its shard since that moved to the device: the state goes along.
    pub(crate) moves_state: bool,
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
    pub(crate) lines: Vec<String>,
}

impl<V: Versions> Flight<V> {
    pub(crate) fn new(chunk: Chunk) -> Self {
        Self {
            chunk,
            spare: None,
            before: Vec::with_capacity(chunk::CHUNK_PACKETS_MAX),
            pin: None,
            segment: 0,
            moves_state: false,
            begun: None,
            handed: Instant::now(),
            traced: Vec::new(),
        }
    }

    /// Remembers the verdicts before a shade that may fail.
    pub(crate) fn remember(&mut self) {
        self.before.clear();
        self.before.extend_from_slice(self.chunk.rows.verdicts());
    }

    /// Puts the verdicts back to what they were: the other columns that a shade reads it never
    /// wrote.
    pub(crate) fn restore(&mut self) {
        self.chunk.rows.verdicts().copy_from_slice(&self.before);
    }

    /// Shades one segment on this thread.
    pub(crate) fn shade(&mut self, shaders: &[Arc<dyn Shade<V::Tables>>]) {
        let Some(pin) = &self.pin else { return };
        for shader in shaders {
            shader.shade_packets(&mut self.chunk.rows, &mut self.chunk.packets, pin);
        }
    }
}

/// Chunks of several workers, in one arena, of one version of the tables, to be shaded by one launch.
pub(crate) struct Job<V: Versions> {
    pub(crate) number: u64,
    /// The segment of all its chunks.
    pub(crate) segment: usize,
    /// Whose state it works on, where its segment has any.
    pub(crate) shard: Option<u16>,
    /// When it was launched.
    pub(crate) launched: Instant,
    pub(crate) flights: Vec<Box<Flight<V>>>,
    pub(crate) shaders: Shaders<V::Tables>,
}

impl<V: Versions> Job<V> {
    /// Tells the shades that their device has done the job.
    pub(crate) fn retired(&mut self) {
        for flight in &mut self.flights {
            for shader in self.shaders.iter() {
                shader.retired(&mut flight.chunk.rows);
            }
        }
    }

    /// Does on this thread what the device failed to do.
    pub(crate) fn redo(&mut self) {
        for flight in &mut self.flights {
            flight.restore();
            flight.shade(&self.shaders);
        }
    }
}

impl<V: Versions> Shadeable for Job<V> {
    fn rows(&self) -> usize {
        self.flights.iter().map(|flight| flight.chunk.len()).sum()
    }

    fn shade(&mut self) {
        for flight in &mut self.flights {
            flight.shade(&self.shaders);
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

    fn state(&mut self) -> (usize, Option<Vec<u8>>) {
        let shard = self.shard.map_or(0, usize::from);
        let moves = self.flights.iter_mut().any(|f| std::mem::take(&mut f.moves_state));
        let content = moves.then(|| self.shaders.iter().map(|s| s.state()).find(|s| !s.is_empty()));
        (shard, content.flatten())
    }
}

/// A worker's chunks between receipt and retirement, in order of receipt.
pub(crate) struct InOrder<V: Versions> {
    slots: VecDeque<Slot<V>>,
    /// Number of the chunk in the first slot.
    first: u64,
}

/// Where a chunk is.
pub(crate) enum Slot<V: Versions> {
    /// Here, its segment shaded.
    Shaded(Box<Flight<V>>),
    /// At a master, in this segment.
    Away(usize),
}

impl<V: Versions> InOrder<V> {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { slots: VecDeque::with_capacity(capacity), first: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Enters the youngest chunk.
    pub(crate) fn push(&mut self, slot: Slot<V>) {
        self.slots.push_back(slot);
    }

    /// A chunk is back from its master.
    pub(crate) fn came_back(&mut self, flight: Box<Flight<V>>) {
        let place = (flight.chunk.seq - self.first) as usize;
        self.slots[place] = Slot::Shaded(flight);
    }

    /// Walks the chunks from the oldest and lets `step` move each on that is here and whose elder
    /// has left its segment; `step` returns the slot it is in then, or `None` once it is retired.
    ///
    /// So every post-shade sees the chunks in order, whichever side shaded them, and chunks may
    /// be in several segments at a time.
    pub(crate) fn advance(
        &mut self,
        segments: &[Segment],
        mut step: impl FnMut(Box<Flight<V>>) -> Option<Slot<V>>,
    ) {
        let mut elder_segment = segments.len();
        let mut place = 0;
        while place < self.slots.len() {
            let segment = match &self.slots[place] {
                Slot::Shaded(flight) => flight.segment,
                Slot::Away(segment) => *segment,
            };
            if matches!(self.slots[place], Slot::Away(_)) || segment >= elder_segment {
                if segment == 0 {
                    return; // all younger ones are in the first segment too
                }
                elder_segment = segment;
                place += 1;
                continue;
            }
            let Slot::Shaded(flight) =
                std::mem::replace(&mut self.slots[place], Slot::Away(segment))
            else {
                return;
            };
            match step(flight) {
                // Looked at again: it may go on at once.
                Some(slot) => self.slots[place] = slot,
                None => {
                    debug_assert_eq!(place, 0, "only the oldest chunk can retire");
                    self.slots.pop_front();
                    self.first += 1;
                }
            }
        }
    }
}
