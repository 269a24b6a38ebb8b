//! From a RIB to nodes and buckets, and from a change to patches.
//!
//! What is below a cell follows from the routes that lie strictly below the cell's prefix: none, the
//! cell is the answer of the longest route around; few enough, a bucket; else a node. So a change makes
//! the smallest such part anew that holds its prefix, and where a route covers whole cells of a node, it
//! paints those that no longer route owns, and all below them.
//!
//! Invariants, for the routes of 1 to 128 bits:
//! - a cell that is an answer has no route strictly below its prefix; a bucket has all of them, and its
//!   rest is the next hop of the longest route around (at most as long as the cell's prefix);
//! - the routes below a node's cell do not fit into a bucket.

use std::collections::HashMap;

use super::heap::Heap;
use super::layout::*;
use crate::rib::Rib;
use crate::shadow::Shadow;
use crate::{Address, Blob, NO_ROUTE, NextHopId, Patch, Prefix, TableError, check_next_hop};

type Route = (Prefix<u128>, NextHopId);

/// How large a table may grow.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Lines of 64 bytes behind the root of 1 MB; at most 2^25.
    pub lines: u32,
}

impl Default for Limits {
    /// 2^23 lines: 512 MB of address space, of which is used what the routes need.
    fn default() -> Self {
        Self { lines: 1 << 23 }
    }
}

/// The heap grows in steps of so many lines (64 KB).
const LINE_STEP: u32 = 1024;

/// A node has about so many cells for each route below it, in bits. Measured: 2 to 4 give the same rate on the
/// full table, with 8, 11 and 15 MB.
const CELLS_PER_ROUTE_BITS: u8 = 2;

/// A node is made anew when it has so many times as many routes below it as when it was made, or as few.
const DRIFT: u32 = 8;

/// The RIB, and a working copy of the table.
#[derive(Debug, Clone)]
pub struct Mtrie6Builder {
    rib: Rib<u128>,
    table: Table,
}

#[derive(Debug, Clone)]
struct Table {
    shadow: Shadow,
    heap: Heap,
    nodes: HashMap<u32, Routes>, // by first line
}

/// How many routes lie below a node.
#[derive(Debug, Clone, Copy)]
struct Routes {
    now: u32,
    when_made: u32,
}

/// A node's cells: where they are and which bits they take.
#[derive(Debug, Clone, Copy)]
struct Cells {
    word: usize,
    at: u8,
    bits: u8,
}

impl Cells {
    const ROOT: Self = Self { word: ROOT, at: 0, bits: ROOT_BITS };

    /// The node that a cell names, which takes the bits from `at` on.
    fn of(cell: u32, at: u8) -> Self {
        Self { word: HEAP + line_of(cell) * LINE, at, bits: node_bits(cell) }
    }

    /// The length of its cells' prefixes.
    fn end(self) -> u8 {
        self.at + self.bits
    }

    /// The number of an address's cell.
    fn number(self, addr: u128) -> usize {
        (addr >> (128 - self.end())) as usize & ((1 << self.bits) - 1)
    }
}

impl Mtrie6Builder {
    /// Builds the table of `rib`.
    pub fn build(rib: Rib<u128>, limits: Limits) -> Result<(Self, Blob), TableError> {
        for (_, next_hop) in rib.iter() {
            check_next_hop(next_hop)?;
        }
        let lines = limits.lines.min(1 << LINE_BITS);
        let words = HEAP + LINE_STEP as usize * LINE;
        let shadow = Shadow::new(words, HEAP + lines as usize * LINE)?;
        let mut table = Table { shadow, heap: Heap::new(lines), nodes: HashMap::new() };
        table.shadow.put(WORD_MAGIC, MAGIC);
        table.shadow.put(WORD_DEFAULT, rib.get(Prefix::default_route()).unwrap_or(NO_ROUTE));
        let routes: Vec<Route> = rib.iter().filter(|(prefix, _)| prefix.len() > 0).collect();
        let cells = table.cells_of(&routes, 0, ROOT_BITS, NO_ROUTE, false, &mut Vec::new())?;
        table.shadow.put_all(ROOT, &cells);
        let blob = table.shadow.copy()?;
        Ok((Self { rib, table }, blob))
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
        let more = i32::from(before.is_none());
        if let Err(error) = self.table.follow(&self.rib, prefix, next_hop, more, false) {
            match before {
                Some(before) => self.rib.insert(prefix, before),
                None => self.rib.remove(prefix),
            };
            return Err(error);
        }
        self.table.shadow.flush(patches);
        Ok(before)
    }

    /// Removes a route, appending the patches to `patches`; its next hop, `None` when it was not there.
    /// A full table takes the line that this may need beyond its limit.
    ///
    /// # Panics
    /// When the system has no memory for that.
    pub fn remove(&mut self, prefix: Prefix<u128>, patches: &mut Vec<Patch>) -> Option<NextHopId> {
        let before = self.rib.remove(prefix)?;
        let around = owner(self.rib.parent(prefix));
        let done = self.table.follow(&self.rib, prefix, around, -1, true);
        done.expect("memory for a growing table");
        self.table.shadow.flush(patches);
        Some(before)
    }

    /// The routes in the table.
    pub fn rib(&self) -> &Rib<u128> {
        &self.rib
    }

    /// Bytes in use, of those that the blob has.
    pub fn used_bytes(&self) -> usize {
        HEAP * 4 + self.table.heap.used() as usize * 64
    }

    /// Nodes below the root.
    pub fn nodes(&self) -> usize {
        self.table.nodes.len()
    }
}

/// The next hop that is in the cells: the default route is in the header.
fn owner(found: Option<Route>) -> NextHopId {
    found.filter(|(prefix, _)| prefix.len() > 0).map_or(NO_ROUTE, |(_, next_hop)| next_hop)
}

impl Table {
    /// Makes the table that of `rib`, where `prefix` has come, gone or changed (`more`: 1, -1, 0); its
    /// addresses that no longer route owns now go to `next_hop`.
    fn follow(
        &mut self,
        rib: &Rib<u128>,
        prefix: Prefix<u128>,
        next_hop: NextHopId,
        more: i32,
        beyond: bool,
    ) -> Result<(), TableError> {
        if prefix.len() == 0 {
            self.shadow.put(WORD_DEFAULT, next_hop);
            return Ok(());
        }
        let mut cells = Cells::ROOT;
        let mut nodes = Vec::new(); // on the way
        while prefix.len() > cells.end() {
            let word = cells.word + cells.number(prefix.addr());
            let cell = self.shadow.words()[word];
            let routes = self.nodes.get(&(line_of(cell) as u32)).copied();
            let stays = routes.filter(|_| is_node(cell)).is_some_and(|routes| {
                let now = routes.now.saturating_add_signed(more);
                now as usize > SHORT_PREFIXES
                    && now <= routes.when_made.saturating_mul(DRIFT)
                    && now >= routes.when_made / DRIFT
            });
            if !stays {
                self.renew(rib, Prefix::masked(prefix.addr(), cells.end()), word, beyond)?;
                break;
            }
            nodes.push(line_of(cell) as u32);
            cells = Cells::of(cell, cells.end());
        }
        for node in nodes {
            if let Some(routes) = self.nodes.get_mut(&node) {
                routes.now = routes.now.saturating_add_signed(more);
            }
        }
        if prefix.len() <= cells.end() {
            self.paint_owned(rib, cells, prefix, next_hop);
        }
        Ok(())
    }

    /// Makes what is below one cell anew, or changes nothing.
    fn renew(
        &mut self,
        rib: &Rib<u128>,
        region: Prefix<u128>,
        word: usize,
        beyond: bool,
    ) -> Result<(), TableError> {
        let routes: Vec<Route> = rib.more_specifics(region).collect();
        let around = owner(rib.longest_match_up_to(region.addr(), region.len()));
        let old = self.shadow.words()[word];
        if let (true, Some((kind, line))) = (is_bucket(old), bucket(&routes, around)) {
            self.shadow.put_all(HEAP + line_of(old) * LINE, &line);
            self.shadow.put(word, kind | line_of(old) as u32);
            return Ok(());
        }
        let mut taken = Vec::new();
        let cell = self.cell_of(&routes, region.len(), around, beyond, &mut taken);
        let cell = cell.inspect_err(|_| {
            for (line, order) in taken {
                self.nodes.remove(&line);
                self.heap.give(line, order);
            }
        })?;
        self.shadow.put(word, cell);
        self.release(old);
        Ok(())
    }

    /// The cell for the routes strictly below a prefix of `at` bits, in the RIB's order.
    fn cell_of(
        &mut self,
        routes: &[Route],
        at: u8,
        around: NextHopId,
        beyond: bool,
        taken: &mut Vec<(u32, u8)>,
    ) -> Result<u32, TableError> {
        if routes.is_empty() {
            return Ok(around);
        }
        if let Some((kind, words)) = bucket(routes, around) {
            let line = self.take(0, beyond, taken)?;
            self.shadow.put_all(HEAP + line as usize * LINE, &words);
            return Ok(kind | line);
        }
        let bits = bits_for(routes.len(), at);
        let line = self.take(bits.max(4) - 4, beyond, taken)?;
        let now = routes.len() as u32;
        self.nodes.insert(line, Routes { now, when_made: now });
        let cells = self.cells_of(routes, at, bits, around, beyond, taken)?;
        self.shadow.put_all(HEAP + line as usize * LINE, &cells);
        Ok(node_cell(at, bits, line))
    }

    /// The cells of a node that takes `bits` bits from `at` on.
    fn cells_of(
        &mut self,
        mut routes: &[Route],
        at: u8,
        bits: u8,
        around: NextHopId,
        beyond: bool,
        taken: &mut Vec<(u32, u8)>,
    ) -> Result<Vec<u32>, TableError> {
        let node = Cells { word: 0, at, bits };
        let mut cells = vec![around; 1 << bits];
        while let Some((prefix, next_hop)) = routes.first() {
            let first = node.number(prefix.addr());
            if prefix.len() <= node.end() {
                cells[first..=node.number(prefix.last())].fill(*next_hop);
                routes = &routes[1..];
                continue;
            }
            // The routes around the cell came before those below it, so its answer is there.
            let below = routes.partition_point(|(prefix, _)| node.number(prefix.addr()) <= first);
            cells[first] =
                self.cell_of(&routes[..below], node.end(), cells[first], beyond, taken)?;
            routes = &routes[below..];
        }
        Ok(cells)
    }

    fn take(
        &mut self,
        order: u8,
        beyond: bool,
        taken: &mut Vec<(u32, u8)>,
    ) -> Result<u32, TableError> {
        let line = self.heap.take(order, beyond)?;
        taken.push((line, order));
        let lines = self.heap.len().next_multiple_of(LINE_STEP);
        self.shadow.grow(HEAP + lines as usize * LINE)?;
        Ok(line)
    }

    /// Gives back what a cell names, with all below it.
    fn release(&mut self, cell: u32) {
        if cell & FLAG == 0 {
            return;
        }
        let (line, mut order) = (line_of(cell), 0);
        if is_node(cell) {
            order = node_bits(cell).max(4) - 4;
            self.nodes.remove(&(line as u32));
            for number in 0..1 << node_bits(cell) {
                self.release(self.shadow.words()[HEAP + line * LINE + number]);
            }
        }
        self.heap.give(line as u32, order);
    }

    /// Paints what `prefix` owns, which covers whole cells of `cells`.
    fn paint_owned(
        &mut self,
        rib: &Rib<u128>,
        cells: Cells,
        prefix: Prefix<u128>,
        next_hop: NextHopId,
    ) {
        let mut at = Some(prefix.addr()); // none: behind the last address of all
        for (below, _) in rib.more_specifics(prefix) {
            let Some(start) = at.filter(|at| below.addr() >= *at) else {
                continue; // inside one that has been passed
            };
            if start < below.addr() {
                self.paint(cells, start, below.addr() - 1, next_hop);
            }
            at = below.last().checked_add(1);
        }
        if let Some(start) = at.filter(|at| *at <= prefix.last()) {
            self.paint(cells, start, prefix.last(), next_hop);
        }
    }

    /// Paints the addresses `first..=last`, all of one owner, in a node and below it. A cell that is an
    /// answer lies in them as a whole, for no route lies strictly below it.
    fn paint(&mut self, cells: Cells, first: u128, last: u128, next_hop: NextHopId) {
        for number in cells.number(first)..=cells.number(last) {
            let word = cells.word + number;
            let cell = self.shadow.words()[word];
            if cell & FLAG == 0 {
                self.shadow.put(word, next_hop);
            } else if is_node(cell) {
                // The part of the addresses that is this cell's.
                let own = (number as u128) << (128 - cells.end());
                let own = own | first.truncate(cells.at);
                let (start, end) = (first.max(own), last.min(own.fill(cells.end())));
                self.paint(Cells::of(cell, cells.end()), start, end, next_hop);
            } else {
                self.shadow.put(HEAP + line_of(cell) * LINE + REST, next_hop);
            }
        }
    }
}

fn is_bucket(cell: u32) -> bool {
    cell & FLAG != 0 && !is_node(cell)
}

/// How many bits a node takes for so many routes below a prefix of `at` bits.
fn bits_for(routes: usize, at: u8) -> u8 {
    let wanted = (routes.ilog2() as u8 + CELLS_PER_ROUTE_BITS).clamp(4, NODE_BITS_MAX);
    let end = if at < SHORT_LEN { SHORT_LEN } else { 128 };
    wanted.min(end - at)
}
