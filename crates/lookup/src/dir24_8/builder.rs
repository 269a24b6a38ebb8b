//! From a RIB to cells, and from a change to patches.
//!
//! A prefix owns the addresses that no more-specific owns. In the RIB's order its more-specifics
//! follow it, so what it owns comes out of one walk as runs, each cell once. A change paints these
//! runs and nothing else: with the prefix's next hop, or, when it goes, with that of the longest
//! prefix around it.
//!
//! Invariant: a /24 has a group exactly when a prefix longer than 24 bits lies in it. Hence a run
//! never covers a whole /24 that has a group, and its ends inside a /24 always lie in a group.

use std::collections::BTreeMap;

use super::{EXTENSION, MAGIC, TBL8, TBL24, WORD_DEFAULT, WORD_GROUPS, WORD_MAGIC};
use crate::rib::Rib;
use crate::{Blob, NO_ROUTE, NextHopId, Patch, Prefix, TableError, check_next_hop};

/// How large a table may grow.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Extension groups of 1 KB, one for each /24 that has longer prefixes.
    pub groups: u32,
}

impl Default for Limits {
    /// 2^18 groups: 256 MB of address space, of which is used what the routes need.
    fn default() -> Self {
        Self { groups: 1 << 18 }
    }
}

/// The RIB, and which /24 has which extension group.
#[derive(Debug, Clone)]
pub struct Dir24_8Builder {
    rib: Rib<u32>,
    groups: Groups,
}

#[derive(Debug, Clone)]
struct Groups {
    of_cell: BTreeMap<u32, u32>,
    free: Vec<u32>,
    allocated: u32, // groups in the blob
    limit: u32,
}

/// Group and last byte make a 32-bit index.
const GROUPS_MAX: u32 = 1 << 24;

/// Groups are added to the blob in steps of this many (256 KB).
const GROUP_STEP: u32 = 256;

impl Dir24_8Builder {
    /// Builds the table of `rib`: 64 MB and 1 KB for each /24 that has longer prefixes.
    pub fn build(rib: Rib<u32>, limits: Limits) -> Result<(Self, Blob), TableError> {
        Self::build_or_return(rib, limits).map_err(|(_, error)| error)
    }

    /// The same, but a RIB that does not fit comes back.
    pub(crate) fn build_or_return(
        rib: Rib<u32>,
        limits: Limits,
    ) -> Result<(Self, Blob), (Rib<u32>, TableError)> {
        let mut builder = Self {
            groups: Groups {
                of_cell: BTreeMap::new(),
                free: Vec::new(),
                allocated: 0,
                limit: limits.groups.min(GROUPS_MAX),
            },
            rib,
        };
        match builder.freeze() {
            Ok(blob) => Ok((builder, blob)),
            Err(error) => Err((builder.rib, error)),
        }
    }

    fn freeze(&mut self) -> Result<Blob, TableError> {
        let mut cells: Vec<u32> = Vec::new();
        for (prefix, next_hop) in self.rib.iter() {
            check_next_hop(next_hop)?;
            let cell = prefix.addr() >> 8;
            if prefix.len() > 24 && cells.last() != Some(&cell) {
                cells.push(cell);
            }
        }
        let groups = &mut self.groups;
        let used = cells.len() as u32;
        if used > groups.limit {
            let limit = groups.limit;
            return Err(TableError::Full { what: "extension groups", used, limit });
        }
        groups.allocated = used.saturating_add(4 * GROUP_STEP).min(groups.limit);
        groups.free = (used..groups.allocated).rev().collect();
        groups.of_cell = cells.iter().copied().zip(0..).collect();

        let len_words = TBL8 + groups.allocated as usize * 256;
        let reserve = TBL8 + groups.limit as usize * 256;
        let mut blob = Blob::zeroed(len_words, reserve)
            .map_err(|e| TableError::Memory { bytes: len_words * 4, reason: e.to_string() })?;
        let words = blob.words_mut();
        words[WORD_MAGIC] = MAGIC;
        words[WORD_DEFAULT] = self.rib.get(Prefix::default_route()).unwrap_or(NO_ROUTE);
        words[WORD_GROUPS] = groups.allocated;
        for (group, cell) in cells.iter().enumerate() {
            words[TBL24 + *cell as usize] = EXTENSION | group as u32;
        }
        let groups = &self.groups;
        for_each_run(&self.rib, |start, end, next_hop| {
            groups.paint(start, end, |offset, count| words[offset..][..count].fill(next_hop));
        });
        Ok(blob)
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
        let cell = prefix.addr() >> 8;
        if prefix.len() > 24 && !self.groups.of_cell.contains_key(&cell) {
            let around = self.owner(self.rib.longest_match_up_to(prefix.addr(), 24));
            let group = self.groups.take(patches)?;
            self.groups.of_cell.insert(cell, group);
            patches.push(fill(group_offset(group), 256, around));
            patches.push(fill(TBL24 + cell as usize, 1, EXTENSION | group));
        }
        let before = self.rib.insert(prefix, next_hop);
        if before != Some(next_hop) {
            self.paint_owned(prefix, next_hop, patches);
        }
        Ok(before)
    }

    /// Removes a route, appending the patches to `patches`; its next hop, `None` when it was not
    /// there.
    pub fn remove(&mut self, prefix: Prefix<u32>, patches: &mut Vec<Patch>) -> Option<NextHopId> {
        let before = self.rib.remove(prefix)?;
        let around = self.owner(self.rib.parent(prefix));
        let cell = prefix.addr() >> 8;
        let slash24 = Prefix::masked(prefix.addr(), 24);
        if prefix.len() > 24 && self.rib.more_specifics(slash24).next().is_none() {
            // The last one in its group: the cell is whole again. Its owner is `around`, for
            // nothing longer than 24 bits is left here.
            if let Some(group) = self.groups.of_cell.remove(&cell) {
                self.groups.free.push(group);
            }
            patches.push(fill(TBL24 + cell as usize, 1, around));
        } else {
            self.paint_owned(prefix, around, patches);
        }
        Some(before)
    }

    /// The routes in the table.
    pub fn rib(&self) -> &Rib<u32> {
        &self.rib
    }

    /// Extension groups in use.
    pub fn groups_used(&self) -> u32 {
        self.groups.of_cell.len() as u32
    }

    /// The next hop that is in the cells: the default route is in the header.
    fn owner(&self, found: Option<(Prefix<u32>, NextHopId)>) -> NextHopId {
        found.filter(|(prefix, _)| prefix.len() > 0).map_or(NO_ROUTE, |(_, next_hop)| next_hop)
    }

    /// Paints what `prefix` owns.
    fn paint_owned(&self, prefix: Prefix<u32>, next_hop: NextHopId, patches: &mut Vec<Patch>) {
        if prefix.len() == 0 {
            patches.push(fill(WORD_DEFAULT, 1, next_hop));
            return;
        }
        let mut paint = |start, end| {
            self.groups.paint(start, end, |offset, count| {
                patches.push(fill(offset, count, next_hop));
            });
        };
        let mut at = u64::from(prefix.addr());
        for (below, _) in self.rib.more_specifics(prefix) {
            let start = u64::from(below.addr());
            if start < at {
                continue; // inside one that has been passed
            }
            paint(at, start);
            at = u64::from(below.last()) + 1;
        }
        paint(at, u64::from(prefix.last()) + 1);
    }
}

impl Groups {
    /// A group to use, whose content is old.
    fn take(&mut self, patches: &mut Vec<Patch>) -> Result<u32, TableError> {
        if let Some(group) = self.free.pop() {
            return Ok(group);
        }
        let used = self.allocated;
        let limit = self.limit;
        let allocated = used.saturating_add(GROUP_STEP).min(limit);
        if allocated == used {
            return Err(TableError::Full { what: "extension groups", used, limit });
        }
        self.allocated = allocated;
        self.free = (used + 1..allocated).rev().collect();
        patches.push(Patch::Grow { len_words: group_offset(allocated) });
        patches.push(fill(WORD_GROUPS, 1, allocated));
        Ok(used)
    }

    /// Splits the addresses `start..end` of one owner into words: `(offset, count)`.
    fn paint(&self, start: u64, end: u64, mut words: impl FnMut(usize, usize)) {
        let mut at = start;
        if at < end && !at.is_multiple_of(256) {
            let stop = end.min(at.next_multiple_of(256));
            self.paint_in_group(at, stop, &mut words);
            at = stop;
        }
        let whole = end / 256 * 256;
        if at < whole {
            words(TBL24 + (at / 256) as usize, ((whole - at) / 256) as usize);
            at = whole;
        }
        if at < end {
            self.paint_in_group(at, end, &mut words);
        }
    }

    fn paint_in_group(&self, start: u64, end: u64, words: &mut impl FnMut(usize, usize)) {
        // By the invariant the group is there.
        let group = self.of_cell.get(&((start / 256) as u32));
        debug_assert!(group.is_some());
        if let Some(group) = group {
            words(group_offset(*group) + (start % 256) as usize, (end - start) as usize);
        }
    }
}

/// Every run of addresses with one owner, in order, each address at most once. The default route
/// owns none.
fn for_each_run(rib: &Rib<u32>, mut run: impl FnMut(u64, u64, NextHopId)) {
    let mut around: Vec<(u64, NextHopId)> = Vec::with_capacity(33); // ends, nested
    let mut at = 0;
    for (prefix, next_hop) in rib.iter().filter(|(prefix, _)| prefix.len() > 0) {
        let start = u64::from(prefix.addr());
        while let Some((end, owner)) = around.pop_if(|(end, _)| *end <= start) {
            if at < end {
                run(at, end, owner);
                at = end;
            }
        }
        if let Some((_, owner)) = around.last()
            && at < start
        {
            run(at, start, *owner);
        }
        at = start;
        around.push((u64::from(prefix.last()) + 1, next_hop));
    }
    while let Some((end, owner)) = around.pop() {
        if at < end {
            run(at, end, owner);
            at = end;
        }
    }
}

fn group_offset(group: u32) -> usize {
    TBL8 + group as usize * 256
}

fn fill(offset_words: usize, count: usize, value: u32) -> Patch {
    Patch::Fill { offset_words, count, value }
}
