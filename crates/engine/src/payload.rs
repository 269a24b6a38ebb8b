//! What a device needs workers to do about payload, and the way that was chosen for it.
//!
//! Where the device reaches the cells, frames may be left to it, or packed (GASPP §5.1). All chunks of a segment in one arena
//! go the same way, so that they make one job: the master chooses when it opens the arena ([`crate::ways`]).
//!
//! Threads: the master writes what it has chosen before it opens the arena; workers read that when they have rows of it.

use std::sync::atomic::{AtomicUsize, Ordering};

use chunk::{Attached, Packet, Region, Rows};
use device::accelerator::{PayloadBlock, PayloadPart, PayloadWay, PayloadWork};
use device::{Device, Shadeable};

/// See the module.
pub(crate) struct PayloadNeeds {
    /// By segment.
    work: Vec<PayloadWork>,
    /// By segment: the ways that there are, if there is a choice.
    ways: Vec<&'static [PayloadWay]>,
    /// By arena and segment: the number of the way that was chosen.
    chosen: Vec<AtomicUsize>,
    /// By arena, where frames are packed: memory for those of its chunks.
    blocks: Vec<PayloadBlock>,
}

impl PayloadNeeds {
    /// Those of a device, with so many arenas and segments.
    pub(crate) fn of<J: Shadeable, D: Device<J>>(
        device: &mut D,
        arenas: usize,
        segments: usize,
    ) -> Self {
        Self {
            work: (0..segments).map(|segment| device.payload_work(segment)).collect(),
            ways: (0..segments).map(|segment| device.payload_ways(segment)).collect(),
            chosen: (0..arenas * segments).map(|_| AtomicUsize::new(0)).collect(),
            blocks: device.payload_blocks(arenas),
        }
    }

    /// The ways of a segment; none where there is no choice.
    pub(crate) fn ways(&self, segment: usize) -> &'static [PayloadWay] {
        self.ways[segment]
    }

    /// Whether there is a choice.
    pub(crate) fn has_choice(&self, segment: usize) -> bool {
        self.ways[segment].len() > 1
    }

    /// Whether what is to be done for a chunk depends on its arena.
    pub(crate) fn is_by_arena(&self, segment: usize) -> bool {
        self.work[segment] == PayloadWork::Pack || self.has_choice(segment)
    }

    /// The way of chunks of a segment in an arena; `None` where there is no choice.
    pub(crate) fn chosen(&self, arena: usize, segment: usize) -> Option<PayloadWay> {
        let ways = self.ways[segment];
        let number = self.chosen[arena * self.work.len() + segment].load(Ordering::Relaxed);
        ways.get(number).copied()
    }

    /// Chooses a way, by its number, for an arena that is about to be opened.
    pub(crate) fn choose(&self, arena: usize, segment: usize, number: usize) {
        self.chosen[arena * self.work.len() + segment].store(number, Ordering::Relaxed);
    }

    /// An arena is about to be opened again: nobody holds any of its block, for chunks give their part back before the
    /// arena's rows.
    pub(crate) fn reopen(&self, arena: usize) {
        if let Some(block) = self.blocks.get(arena) {
            block.reuse();
        }
    }

    /// Finds the frames of a chunk of a segment and what is attached to them, and packs that where it is to be done.
    pub(crate) fn look(
        &self,
        (segment, arena): (usize, Option<usize>),
        part: &mut PayloadPart,
        rows: &mut Rows,
        bytes: (&[Packet], &Attached),
        region: &'static Region,
    ) {
        let chosen = arena.and_then(|arena| self.chosen(arena, segment));
        let work = match chosen {
            Some(PayloadWay::Packed) => PayloadWork::Pack,
            // What is attached is in no cell: the device cannot fetch it.
            Some(_) if !bytes.1.is_empty() => PayloadWork::Pack,
            _ => self.work[segment],
        };
        match work {
            PayloadWork::None => {}
            PayloadWork::Find => part.find(rows, bytes, Some(region)),
            PayloadWork::Pack => {
                part.find(rows, bytes, None);
                // The master packs what finds no room.
                if let Some(block) = arena.and_then(|arena| self.blocks.get(arena)) {
                    part.pack(bytes, block);
                }
            }
        }
    }
}
