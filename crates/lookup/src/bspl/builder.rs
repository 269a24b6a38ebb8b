//! From a RIB to entries, and from a change to patches.
//!
//! Invariants, for every prefix P of the RIB longer than 16 bits, with markers at the lengths that
//! the tree names for its length:
//! - P has an entry, and so has each of its markers (the same prefix cut to that length);
//! - an entry's best match is the next hop of the longest prefix of more than 16 bits that covers
//!   it, 0 when there is none; a cell's is the same of at most 16 bits;
//! - an entry's rope is the rope over the lengths of the prefixes that have it as a marker; a
//!   cell's is the rope over all lengths below it;
//! - a part of a cell is in use exactly when a prefix of more than 16 bits touches it;
//! - there is no other entry.
//!
//! In the RIB's order all prefixes below an entry follow each other, so one walk meets each entry's
//! prefixes together: `Trail` remembers the last entry at each length.

use super::layout::CELLS;
use super::table::{Counts, Crowded, Slot, Table};
use super::tree::{Rope, SHORT, Tree, Weights, length_bit};
use crate::rib::Rib;
use crate::{Blob, NO_ROUTE, NextHopId, Patch, Prefix, TableError, check_next_hop};

type Route = (Prefix<u128>, NextHopId);

/// The RIB, the order of lengths, and a working copy of the table.
#[derive(Debug, Clone)]
pub struct BsplBuilder {
    rib: Rib<u128>,
    tree: Tree,
    table: Table,
}

/// Why a step could not be done in the table as it is.
enum Stuck {
    /// More room or another hash helps.
    Crowded,
    /// Another tree helps.
    LongRope,
}

impl From<Crowded> for Stuck {
    fn from(_: Crowded) -> Self {
        Self::Crowded
    }
}

const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

impl BsplBuilder {
    /// Builds the table of `rib`.
    pub fn build(rib: Rib<u128>) -> Result<(Self, Blob), TableError> {
        let (tree, mut table) = freeze(&rib)?;
        table.settle();
        let blob = table.blob().try_clone().map_err(|e| TableError::Memory {
            bytes: table.blob().len_bytes(),
            reason: e.to_string(),
        })?;
        Ok((Self { rib, tree, table }, blob))
    }

    /// Adds or replaces a route, appending the patches to `patches`; the next hop that stood there.
    /// On an error nothing has changed.
    pub fn insert(
        &mut self,
        prefix: Prefix<u128>,
        next_hop: NextHopId,
        patches: &mut Vec<Patch>,
    ) -> Result<Option<NextHopId>, TableError> {
        check_next_hop(next_hop)?;
        let before = self.rib.insert(prefix, next_hop);
        if before == Some(next_hop) {
            return Ok(before);
        }
        if prefix.len() > SHORT && before.is_none() {
            self.add_entries(prefix).inspect_err(|_| {
                self.rib.remove(prefix);
            })?;
        }
        self.set_owned(prefix, next_hop);
        self.table.flush(patches);
        Ok(before)
    }

    /// Removes a route, appending the patches to `patches`; its next hop, `None` when it was not
    /// there.
    pub fn remove(&mut self, prefix: Prefix<u128>, patches: &mut Vec<Patch>) -> Option<NextHopId> {
        let before = self.rib.remove(prefix)?;
        let parent = self.rib.parent(prefix);
        let around = parent.filter(|(parent, _)| {
            parent.len() > 0 && (parent.len() > SHORT) == (prefix.len() > SHORT)
        });
        self.set_owned(prefix, around.map_or(NO_ROUTE, |(_, next_hop)| next_hop));
        if prefix.len() > SHORT {
            self.remove_entries(prefix);
        }
        self.table.flush(patches);
        Some(before)
    }

    /// The routes in the table.
    pub fn rib(&self) -> &Rib<u128> {
        &self.rib
    }

    /// Entries in the table: prefixes and markers of more than 16 bits.
    pub fn entries(&self) -> usize {
        let Counts { narrow, wide } = self.table.counts();
        narrow + wide
    }

    /// Makes the entries and ropes of a prefix that is in the RIB and has none yet.
    fn add_entries(&mut self, prefix: Prefix<u128>) -> Result<(), TableError> {
        loop {
            match add_entries(&self.rib, &self.tree, &mut self.table, prefix) {
                Ok(()) => return Ok(()),
                // Doing it again is harmless: what is there is found.
                Err(Stuck::Crowded) => self.table = self.table.grown()?,
                Err(Stuck::LongRope) => {
                    (self.tree, self.table) = freeze(&self.rib)?;
                    return Ok(());
                }
            }
        }
    }

    /// Takes away the entries and ropes of a prefix that is no more in the RIB.
    fn remove_entries(&mut self, prefix: Prefix<u128>) {
        let (addr, len) = (prefix.addr(), prefix.len());
        if let Some(slot) = self.table.find(prefix)
            && self.table.rope(slot) == Rope::default()
        {
            self.table.remove(prefix, slot);
        }
        for at in self.tree.markers(len) {
            let entry = Prefix::masked(addr, at);
            let Some(slot) = self.table.find(entry) else { continue };
            let range = at + 1..=self.tree.longest_after(at);
            let rope = self.rope_below(entry, range, self.table.rope(slot));
            if rope == Rope::default() && self.rib.get(entry).is_none() {
                self.table.remove(entry, slot);
            } else {
                self.table.set_rope(slot, rope);
            }
        }
        let cell = cell_of(addr);
        let entry = Prefix::masked(addr, SHORT);
        let rope = self.rope_below(entry, SHORT + 1..=128, self.table.cell_rope(cell));
        self.table.set_cell_rope(cell, rope);
        let mut parts = self.table.cell_parts(cell);
        for part in parts_of(prefix) {
            let entry = Prefix::masked(entry.addr() | (part as u128) << PART_SHIFT, PART_LEN);
            let around = self.rib.longest_match_up_to(entry.addr(), PART_LEN);
            if around.is_none_or(|(around, _)| around.len() <= SHORT)
                && self.rib.more_specifics(entry).next().is_none()
            {
                parts &= !(1 << part);
            }
        }
        self.table.set_cell_parts(cell, parts);
    }

    /// The rope over the lengths in `range` of the prefixes below `entry`. `before` is the rope over
    /// these and perhaps one more: as soon as that is reached, no more can come.
    fn rope_below(
        &self,
        entry: Prefix<u128>,
        range: std::ops::RangeInclusive<u8>,
        before: Rope,
    ) -> Rope {
        let (mut lens, mut rope) = (0, Rope::default());
        for (below, _) in self.rib.more_specifics(entry) {
            let bit = length_bit(below.len());
            if lens & bit == 0 && range.contains(&below.len()) {
                lens |= bit;
                rope = Rope::over(&self.tree, lens).unwrap_or(before);
                if rope == before {
                    break;
                }
            }
        }
        rope
    }

    /// Sets the best match of all that `prefix` owns: its entry and the markers, or the cells, below
    /// it that no more-specific covers.
    fn set_owned(&mut self, prefix: Prefix<u128>, next_hop: NextHopId) {
        match prefix.len() {
            0 => self.table.set_default(next_hop),
            1..=SHORT => self.set_owned_cells(prefix, next_hop),
            _ => self.set_owned_entries(prefix, next_hop),
        }
    }

    fn set_owned_cells(&mut self, prefix: Prefix<u128>, next_hop: NextHopId) {
        let table = &mut self.table;
        let mut set = |from: usize, to: usize| {
            (from..to).for_each(|cell| table.set_cell_best(cell, next_hop));
        };
        let mut at = cell_of(prefix.addr());
        for (below, _) in self.rib.more_specifics(prefix) {
            let start = cell_of(below.addr());
            if below.len() <= SHORT && start >= at {
                set(at, start);
                at = cell_of(below.last()) + 1;
            }
        }
        set(at, cell_of(prefix.last()) + 1);
    }

    fn set_owned_entries(&mut self, prefix: Prefix<u128>, next_hop: NextHopId) {
        if let Some(slot) = self.table.find(prefix) {
            self.table.set_best(slot, next_hop);
        }
        let mut trail = Trail::new();
        let mut child: Option<Prefix<u128>> = None; // the more-specific we are in
        for (below, _) in self.rib.more_specifics(prefix) {
            if !child.is_some_and(|child| child.covers(below)) {
                child = Some(below);
            }
            let end = child.map_or(128, Prefix::len);
            // Of the same length as `child` or longer, it is the child's or its more-specific's.
            for at in self.tree.markers(below.len()).filter(|at| prefix.len() < *at && *at < end) {
                let entry = Prefix::masked(below.addr(), at);
                if trail.is_new(entry)
                    && let Some(slot) = self.table.find(entry)
                {
                    self.table.set_best(slot, next_hop);
                }
            }
        }
    }
}

/// Makes what is missing of the entries and ropes of `prefix`, which is in the RIB.
fn add_entries(
    rib: &Rib<u128>,
    tree: &Tree,
    table: &mut Table,
    prefix: Prefix<u128>,
) -> Result<(), Stuck> {
    let (addr, len) = (prefix.addr(), prefix.len());
    for at in tree.markers(len).chain([len]) {
        let entry = Prefix::masked(addr, at);
        let below = if at < len { Some(len) } else { None };
        let slot = match table.find(entry) {
            Some(slot) => slot,
            None => {
                let best = rib.longest_match_up_to(addr, at).filter(|(best, _)| best.len() > SHORT);
                table.add(
                    entry,
                    Rope::default(),
                    best.map_or(NO_ROUTE, |(_, next_hop)| next_hop),
                )?
            }
        };
        if let Some(len) = below {
            let rope = table.rope(slot).with(tree, len).ok_or(Stuck::LongRope)?;
            table.set_rope(slot, rope);
        }
    }
    let cell = cell_of(addr);
    let rope = table.cell_rope(cell).with(tree, len).ok_or(Stuck::LongRope)?;
    table.set_cell_rope(cell, rope);
    use_parts(table, prefix);
    Ok(())
}

/// The tree and the table of a RIB.
fn freeze(rib: &Rib<u128>) -> Result<(Tree, Table), TableError> {
    let mut weights: Weights = [0; 129];
    for (prefix, next_hop) in rib.iter() {
        check_next_hop(next_hop)?;
        weights[prefix.len() as usize] += 1;
    }
    let tree = Tree::new(&weights);
    let mut counts = count_entries(rib, &tree);
    let mut seed = SEED;
    loop {
        let mut table = Table::new(counts, seed)?;
        if fill(rib, &tree, &mut table).is_ok() {
            return Ok((tree, table));
        }
        // Chance, or routes chosen against this hash: another one, and more room.
        seed = seed.rotate_left(17).wrapping_mul(SEED);
        counts.narrow += counts.narrow / 4 + 16;
        counts.wide += counts.wide / 4 + 16;
    }
}

fn count_entries(rib: &Rib<u128>, tree: &Tree) -> Counts {
    let mut counts = Counts::default();
    let mut trail = Trail::new();
    for (prefix, _) in rib.iter().filter(|(prefix, _)| prefix.len() > SHORT) {
        for at in tree.markers(prefix.len()).chain([prefix.len()]) {
            if trail.is_new(Prefix::masked(prefix.addr(), at)) {
                counts.add(at);
            }
        }
    }
    counts
}

fn fill(rib: &Rib<u128>, tree: &Tree, table: &mut Table) -> Result<(), Crowded> {
    let mut trail = Trail::new();
    let mut slots: [Option<Slot>; 129] = [None; 129]; // of the trail's entries
    let mut around: Vec<Route> = Vec::with_capacity(128); // covering prefixes, nested
    // A tree is made for the lengths that occur, so every rope fits.
    let with = |rope: Rope, len| rope.with(tree, len).unwrap_or(rope);
    for (prefix, next_hop) in rib.iter() {
        let (addr, len) = (prefix.addr(), prefix.len());
        if len == 0 {
            table.set_default(next_hop);
            continue;
        }
        if len <= SHORT {
            for cell in cell_of(addr)..=cell_of(prefix.last()) {
                table.set_cell_best(cell, next_hop); // more-specifics come later
            }
            continue;
        }
        while around.pop_if(|(outer, _)| !outer.covers(prefix)).is_some() {}
        around.push((prefix, next_hop));
        for at in tree.markers(len).chain([len]) {
            let entry = Prefix::masked(addr, at);
            let slot = &mut slots[at as usize];
            if trail.is_new(entry) {
                let best = around.iter().rev().find(|(outer, _)| outer.len() <= at);
                let best = best.map_or(NO_ROUTE, |(_, next_hop)| *next_hop);
                *slot = Some(table.add(entry, Rope::default(), best)?);
            }
            if let (Some(slot), true) = (*slot, at < len) {
                table.set_rope(slot, with(table.rope(slot), len));
            }
        }
        let cell = cell_of(addr);
        table.set_cell_rope(cell, with(table.cell_rope(cell), len));
        use_parts(table, prefix);
    }
    Ok(())
}

fn cell_of(addr: u128) -> usize {
    const _: () = assert!(CELLS == 1 << 16);
    (addr >> 112) as usize
}

/// Parts of a cell are the prefixes of this length.
const PART_LEN: u8 = SHORT + 5;
const PART_SHIFT: u8 = 128 - PART_LEN;

/// The parts of its cell that a prefix of more than 16 bits touches.
fn parts_of(prefix: Prefix<u128>) -> std::ops::RangeInclusive<u32> {
    let part = |addr: u128| (addr >> PART_SHIFT) as u32 & 31;
    part(prefix.addr())..=part(prefix.last())
}

fn use_parts(table: &mut Table, prefix: Prefix<u128>) {
    let cell = cell_of(prefix.addr());
    let parts = parts_of(prefix).fold(table.cell_parts(cell), |parts, part| parts | 1 << part);
    table.set_cell_parts(cell, parts);
}

/// The last entry met at each length.
struct Trail(Box<[Option<u128>; 129]>);

impl Trail {
    fn new() -> Self {
        Self(Box::new([None; 129]))
    }

    /// Whether it is another entry than the last of this length.
    fn is_new(&mut self, entry: Prefix<u128>) -> bool {
        self.0[entry.len() as usize].replace(entry.addr()) != Some(entry.addr())
    }
}
