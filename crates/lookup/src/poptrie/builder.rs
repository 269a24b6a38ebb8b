//! From a RIB to records, and from a change to patches.
//!
//! A change concerns the chunks (64 /24s, one entry of the array) that its prefix touches. Their answers
//! are computed anew from the RIB, in one walk, and what differs is written: first room is taken for all of
//! it, so that a full table can say so before anything has changed; then it is written; then the room of
//! what went is given back.
//!
//! Invariant: a /24 has a group exactly when a prefix longer than 24 bits lies in it.

use std::collections::BTreeMap;

use super::pages::{Pages, UNITS};
use super::*;
use crate::rib::Rib;
use crate::shadow::Shadow;
use crate::{NO_ROUTE, Patch, Prefix, TableError, check_next_hop};

/// How large a table may grow.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Pages of 1 KB behind the array of 1 MB; at most 2^22.
    pub pages: u32,
}

impl Default for Limits {
    /// 2^18 pages, as many groups as DIR-24-8 has by default, and 2^16 for records: 320 MB of address space, of which
    /// is used what the routes need.
    fn default() -> Self {
        Self { pages: (1 << 18) + (1 << 16) }
    }
}

/// Word and half-word numbers are 32 bits in the vector form.
const PAGES_MAX: u32 = 1 << 22;

/// The heap grows in steps of so many pages.
const PAGE_STEP: u32 = 64;

/// /24s of a chunk.
const CELLS: usize = 64;

/// Bits of a chunk's own part of an address.
const CHUNK_SHIFT: u8 = 32 - DIRECT_BITS;

/// The RIB, and a working copy of the table.
#[derive(Debug, Clone)]
pub struct PoptrieBuilder {
    rib: Rib<u32>,
    limits: Limits,
    table: Table,
}

#[derive(Debug, Clone)]
struct Table {
    wide: bool,
    pages: Pages,
    groups: BTreeMap<u32, u32>, // the page of a /24's group
    shadow: Shadow,
}

/// Why a change could not be made in the table as it is.
enum Stuck {
    /// A number needs more than 15 bits.
    Narrow,
    /// For good.
    Refused(TableError),
}

impl From<TableError> for Stuck {
    fn from(error: TableError) -> Self {
        Self::Refused(error)
    }
}

/// A change before it is made.
#[derive(Default)]
struct Change {
    writes: Vec<(usize, Vec<u32>)>, // word of the heap, words
    entries: Vec<(usize, u32)>,
    taken: Vec<u32>,   // units
    dropped: Vec<u32>, // units
    new_groups: Vec<(u32, u32)>,
    old_groups: Vec<u32>,
}

impl PoptrieBuilder {
    /// Builds the table of `rib`.
    pub fn build(rib: Rib<u32>, limits: Limits) -> Result<(Self, Blob), TableError> {
        Self::build_or_return(rib, limits).map_err(|(_, error)| error)
    }

    /// The same, but a RIB that does not fit comes back.
    pub(crate) fn build_or_return(
        rib: Rib<u32>,
        limits: Limits,
    ) -> Result<(Self, Blob), (Rib<u32>, TableError)> {
        let limits = Limits { pages: limits.pages.min(PAGES_MAX) };
        let wide = rib.iter().any(|(_, next_hop)| next_hop >= FLAG16);
        let made = rib.iter().try_for_each(|(_, next_hop)| check_next_hop(next_hop));
        let made = made.and_then(|()| Table::of(&rib, wide, limits));
        match made.and_then(|mut table| Ok((table.shadow.copy()?, table))) {
            Ok((blob, table)) => Ok((Self { rib, limits, table }, blob)),
            Err(error) => Err((rib, error)),
        }
    }

    /// Adds or replaces a route, appending the patches to `patches`; the next hop that stood there.
    /// On an error nothing has changed.
    pub fn insert(
        &mut self,
        prefix: Prefix<u32>,
        next_hop: NextHopId,
        patches: &mut Vec<Patch>,
    ) -> Result<Option<NextHopId>, TableError> {
        check_next_hop(next_hop)?;
        let before = self.rib.insert(prefix, next_hop);
        if before == Some(next_hop) {
            return Ok(before);
        }
        let stuck = if next_hop >= FLAG16 && !self.table.wide {
            Err(Stuck::Narrow)
        } else {
            self.table.follow(&self.rib, prefix, false)
        };
        let done = match stuck {
            Ok(()) => {
                self.table.shadow.flush(patches);
                Ok(before)
            }
            Err(Stuck::Narrow) => Table::of(&self.rib, true, self.limits).map(|table| {
                self.table = table;
                patches.push(self.table.shadow.as_replacement());
                before
            }),
            Err(Stuck::Refused(error)) => Err(error),
        };
        done.inspect_err(|_| {
            match before {
                Some(before) => self.rib.insert(prefix, before),
                None => self.rib.remove(prefix),
            };
        })
    }

    /// Removes a route, appending the patches to `patches`; its next hop, `None` when it was not there.
    /// A full table takes the room that this may need beyond its limit.
    ///
    /// # Panics
    /// When the system has no memory for that.
    pub fn remove(&mut self, prefix: Prefix<u32>, patches: &mut Vec<Patch>) -> Option<NextHopId> {
        let before = self.rib.remove(prefix)?;
        if self.table.follow(&self.rib, prefix, true).is_err() {
            // A removal makes no group and no larger number, and counts no limit.
            panic!("memory for a growing table");
        }
        self.table.shadow.flush(patches);
        Some(before)
    }

    /// The routes in the table.
    pub fn rib(&self) -> &Rib<u32> {
        &self.rib
    }

    /// The routes, without the table.
    pub(crate) fn into_rib(self) -> Rib<u32> {
        self.rib
    }

    /// Pages of records: all that are in use but those of groups.
    pub(crate) fn record_pages(&self) -> u32 {
        self.table.pages.used().saturating_sub(self.groups_used())
    }

    /// Groups in use: /24s that have longer prefixes.
    pub fn groups_used(&self) -> u32 {
        self.table.groups.len() as u32
    }

    /// Bytes in use, of those that the blob has.
    pub fn used_bytes(&self) -> usize {
        HEAP * 4 + self.table.pages.units_used() as usize * 8
    }
}

impl Table {
    /// The table of a RIB.
    fn of(rib: &Rib<u32>, wide: bool, limits: Limits) -> Result<Self, TableError> {
        let reserve = HEAP + limits.pages as usize * PAGE_WORDS;
        let mut shadow = Shadow::new(HEAP + PAGE_STEP as usize * PAGE_WORDS, reserve)?;
        shadow.put(WORD_MAGIC, MAGIC);
        shadow.put(WORD_WIDE, u32::from(wide));
        let pages = Pages::new(limits.pages);
        let mut table = Self { wide, pages, groups: BTreeMap::new(), shadow };
        table.shadow.put(WORD_DEFAULT, default_of(rib));
        match table.renew(rib, Prefix::default_route(), false) {
            Ok(()) => Ok(table),
            Err(Stuck::Refused(error)) => Err(error),
            Err(Stuck::Narrow) => Self::of(rib, true, limits),
        }
    }

    /// Makes the table that of `rib`, which differs at `prefix`.
    fn follow(&mut self, rib: &Rib<u32>, prefix: Prefix<u32>, beyond: bool) -> Result<(), Stuck> {
        if prefix.len() == 0 {
            self.shadow.put(WORD_DEFAULT, default_of(rib));
            return Ok(());
        }
        let region = Prefix::masked(prefix.addr(), prefix.len().min(DIRECT_BITS));
        self.renew(rib, region, beyond)
    }

    /// Makes all chunks of `region` anew, or none.
    fn renew(&mut self, rib: &Rib<u32>, region: Prefix<u32>, beyond: bool) -> Result<(), Stuck> {
        let mut change = Change::default();
        let mut result = Ok(());
        for_each_chunk(rib, region, |chunk, cells, long| {
            if result.is_ok() {
                result = self.plan(chunk, cells, long, beyond, &mut change);
            }
        });
        let len = HEAP + self.pages.len().next_multiple_of(PAGE_STEP) as usize * PAGE_WORDS;
        let result = result.and_then(|()| Ok(self.shadow.grow(len)?));
        if result.is_err() {
            change.taken.into_iter().for_each(|units| self.pages.give(units));
            return result;
        }
        for (at, words) in &change.writes {
            self.shadow.put_all(HEAP + at, words);
        }
        for (chunk, entry) in &change.entries {
            self.shadow.put(DIRECT + chunk, *entry);
        }
        for cell in &change.old_groups {
            self.groups.remove(cell);
        }
        self.groups.extend(change.new_groups);
        change.dropped.into_iter().for_each(|units| self.pages.give(units));
        Ok(())
    }

    /// Takes room for what a chunk becomes, and notes what is to be written.
    fn plan(
        &mut self,
        chunk: usize,
        cells: &mut [u32; CELLS],
        long: &[(Prefix<u32>, NextHopId)],
        beyond: bool,
        change: &mut Change,
    ) -> Result<(), Stuck> {
        let first = (chunk << (CHUNK_SHIFT - 8)) as u32;
        self.plan_groups(first, cells, long, beyond, change)?;
        let mut runs = 0_u64;
        let mut answers = Vec::with_capacity(CELLS);
        for (at, cell) in cells.iter().enumerate() {
            if answers.last() != Some(cell) {
                runs |= 1 << at;
                answers.push(*cell);
            }
        }
        let before = self.shadow.words()[DIRECT + chunk];
        let old = (before & FLAG != 0).then(|| (before & !FLAG, self.units_at(before & !FLAG)));
        let flag = if self.wide { FLAG } else { FLAG16 };
        if runs == 1 && answers[0] & flag == 0 {
            if before != answers[0] {
                change.entries.push((chunk, answers[0]));
            }
            change.dropped.extend(old.map(|(at, _)| at));
            return Ok(());
        }
        let mut words = vec![runs as u32, (runs >> 32) as u32];
        if self.wide {
            words.extend(answers);
        } else {
            words.extend(answers.chunks(2).map(|two| two[0] | two.get(1).unwrap_or(&0) << 16));
        }
        let units = words.len().div_ceil(2) as u32;
        let at = match old {
            Some((at, before)) if before == units => at,
            _ => {
                let at = self.pages.take(units, beyond)?;
                change.taken.push(at);
                change.dropped.extend(old.map(|(at, _)| at));
                change.entries.push((chunk, FLAG | at));
                at
            }
        };
        change.writes.push((at as usize * 2, words));
        Ok(())
    }

    /// The groups of a chunk, whose first /24 is `first`: their cells become the groups' numbers.
    fn plan_groups(
        &mut self,
        first: u32,
        cells: &mut [u32; CELLS],
        long: &[(Prefix<u32>, NextHopId)],
        beyond: bool,
        change: &mut Change,
    ) -> Result<(), Stuck> {
        let mut kept = Vec::new();
        for routes in long.chunk_by(|a, b| a.0.addr() >> 8 == b.0.addr() >> 8) {
            let cell = routes[0].0.addr() >> 8;
            let around = &mut cells[(cell - first) as usize];
            let mut group = vec![*around; PAGE_WORDS];
            for (prefix, next_hop) in routes {
                let last = prefix.last() as usize & 0xff;
                group[prefix.addr() as usize & 0xff..=last].fill(*next_hop);
            }
            let page = match self.groups.get(&cell) {
                Some(page) => *page,
                None => {
                    let units = self.pages.take(UNITS, beyond)?;
                    change.taken.push(units);
                    change.new_groups.push((cell, units / UNITS));
                    units / UNITS
                }
            };
            if !self.wide && page >= FLAG16 {
                return Err(Stuck::Narrow);
            }
            change.writes.push((page as usize * PAGE_WORDS, group));
            *around = page | if self.wide { FLAG } else { FLAG16 };
            kept.push(cell);
        }
        for (cell, page) in self.groups.range(first..first + CELLS as u32) {
            if !kept.contains(cell) {
                change.old_groups.push(*cell);
                change.dropped.push(page * UNITS);
            }
        }
        Ok(())
    }

    /// The size of a record, in units.
    fn units_at(&self, at: u32) -> u32 {
        let words = &self.shadow.words()[HEAP + at as usize * 2..];
        let answers = words[0].count_ones() + words[1].count_ones();
        1 + answers.div_ceil(if self.wide { 2 } else { 4 })
    }
}

fn default_of(rib: &Rib<u32>) -> NextHopId {
    rib.get(Prefix::default_route()).unwrap_or(NO_ROUTE)
}

/// Every chunk of `region` (at most 18 bits) in order: its /24s' answers from the routes of 1 to 24 bits,
/// and the routes that are longer. The default route answers nothing here.
fn for_each_chunk(
    rib: &Rib<u32>,
    region: Prefix<u32>,
    mut chunk: impl FnMut(usize, &mut [u32; CELLS], &[(Prefix<u32>, NextHopId)]),
) {
    let number = |addr: u32| (addr >> CHUNK_SHIFT) as usize;
    let around = rib.longest_match_up_to(region.addr(), region.len());
    let around = around.filter(|(prefix, _)| prefix.len() > 0).map_or(NO_ROUTE, |(_, id)| id);
    // Routes around what comes next, nested: their last chunks.
    let mut nested: Vec<(usize, NextHopId)> = vec![(number(region.last()), around)];
    let mut at = number(region.addr());
    let mut cells = [around; CELLS];
    let mut long = Vec::new();
    let mut finish = |at: &mut usize,
                      until: usize,
                      cells: &mut [u32; CELLS],
                      long: &mut Vec<(Prefix<u32>, NextHopId)>,
                      nested: &mut Vec<(usize, NextHopId)>| {
        while *at < until {
            chunk(*at, cells, long);
            *at += 1;
            long.clear();
            while nested.len() > 1 && nested.pop_if(|(last, _)| *last < *at).is_some() {}
            cells.fill(nested.last().map_or(NO_ROUTE, |(_, next_hop)| *next_hop));
        }
    };
    for (prefix, next_hop) in rib.more_specifics(region) {
        finish(&mut at, number(prefix.addr()), &mut cells, &mut long, &mut nested);
        match prefix.len() {
            0..=DIRECT_BITS => {
                nested.push((number(prefix.last()), next_hop));
                cells.fill(next_hop);
            }
            19..=24 => {
                let cell = |addr: u32| (addr >> 8) as usize % CELLS;
                cells[cell(prefix.addr())..=cell(prefix.last())].fill(next_hop);
            }
            _ => long.push((prefix, next_hop)),
        }
    }
    finish(&mut at, number(region.last()) + 1, &mut cells, &mut long, &mut nested);
}
