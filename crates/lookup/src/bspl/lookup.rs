//! The batch.

use super::Bspl;
use super::layout::*;
use crate::arch::prefetch;
use crate::{Key6, NextHopId};

/// Searches in flight. Measured: fewer starve the memory, more add nothing.
const LANES: usize = 64;

/// A search between two steps.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lane {
    key: Key6,
    cut: Key6, // the key of the probe on its way
    rope: u64, // what to try when it misses
    pub(super) bucket: u32,
    pub(super) len: u32, // 0: none
    pub(super) best: NextHopId,
    index: u32, // in the batch
}

impl Lane {
    /// A search that has read nothing.
    #[inline(always)]
    pub(super) fn of(key: Key6) -> Self {
        Self { key, ..Self::default() }
    }
}

/// Lane numbers, appended without a branch.
struct List {
    lanes: [u8; LANES],
    len: usize,
}

impl List {
    #[inline(always)]
    fn new() -> Self {
        Self { lanes: [0; LANES], len: 0 }
    }

    #[inline(always)]
    fn push_if(&mut self, condition: bool, lane: u8) {
        // A lane is in one list, so there is always room; the mask tells the compiler.
        self.lanes[self.len % LANES] = lane;
        self.len += usize::from(condition);
    }
}

pub(super) fn batch(table: &Bspl<'_>, keys: &[Key6], out: &mut [NextHopId]) {
    let mut lanes = [Lane::default(); LANES];
    let mut free = List::new();
    let mut fresh = List::new();
    let mut narrow = List::new();
    let mut wide = List::new();
    for lane in 0..LANES.min(keys.len()) {
        free.push_if(true, lane as u8);
    }
    let mut next = 0;
    while free.len < LANES.min(keys.len()) || next < keys.len() {
        let (mut narrow_next, mut wide_next) = (List::new(), List::new());
        let mut done = List::new();
        // What was asked for in the round before.
        for id in &fresh.lanes[..fresh.len] {
            let lane = &mut lanes[*id as usize % LANES];
            let cell = &table.cells[(lane.key[0] >> 48) as usize];
            lane.best = cell[1] as u32;
            let rope = cell_rope(cell, lane.key[0]);
            advance(table, lane, rope, *id, &mut narrow_next, &mut wide_next, &mut done, out);
        }
        for id in &narrow.lanes[..narrow.len] {
            let lane = &mut lanes[*id as usize % LANES];
            let rope = step_narrow(table, lane);
            advance(table, lane, rope, *id, &mut narrow_next, &mut wide_next, &mut done, out);
        }
        for id in &wide.lanes[..wide.len] {
            let lane = &mut lanes[*id as usize % LANES];
            let rope = step_wide(table, lane);
            advance(table, lane, rope, *id, &mut narrow_next, &mut wide_next, &mut done, out);
        }
        (narrow, wide) = (narrow_next, wide_next);
        // Finished and never used lanes take new keys.
        for id in &done.lanes[..done.len] {
            free.push_if(true, *id);
        }
        let take = free.len.min(keys.len() - next);
        fresh.len = take;
        for (slot, key) in keys[next..next + take].iter().enumerate() {
            free.len -= 1;
            let id = free.lanes[free.len % LANES];
            let lane = &mut lanes[id as usize % LANES];
            lane.key = *key;
            lane.index = (next + slot) as u32;
            prefetch(&table.cells[(key[0] >> 48) as usize]);
            fresh.lanes[slot % LANES] = id;
        }
        next += take;
    }
}

/// The next probe of a rope: what it looks for and where. Of an empty rope, anything, with the length 0.
#[inline(always)]
pub(super) fn aim(table: &Bspl<'_>, lane: &mut Lane, rope: u64) {
    let len = rope as u8;
    lane.rope = rope >> 8;
    lane.len = len.into();
    if is_wide(len) {
        lane.cut = wide_key(lane.key, len);
        lane.bucket = table.shape.wide_bucket(lane.cut[0], lane.cut[1], len);
    } else {
        lane.cut[0] = narrow_key(lane.key[0], len);
        lane.bucket = table.shape.narrow_bucket(lane.cut[0]);
    }
}

/// Sends the lane to its next probe, or out.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
fn advance(
    table: &Bspl<'_>,
    lane: &mut Lane,
    rope: u64,
    id: u8,
    narrow: &mut List,
    wide: &mut List,
    done: &mut List,
    out: &mut [NextHopId],
) {
    let len = rope as u8;
    aim(table, lane, rope);
    let answer = if lane.best == 0 { table.default } else { lane.best };
    out[lane.index as usize] = answer; // overwritten while the search lasts
    if is_wide(len) {
        prefetch(&table.wide[lane.bucket as usize]);
    } else {
        // An ended search prefetches an unused line: cheaper than a branch.
        prefetch(&table.narrow[lane.bucket as usize]);
    }
    narrow.push_if(len != 0 && !is_wide(len), id);
    wide.push_if(is_wide(len), id);
    done.push_if(len == 0, id);
}

/// The rope after a probe.
#[inline(always)]
pub(super) fn step_narrow(table: &Bspl<'_>, lane: &mut Lane) -> u64 {
    let key = lane.cut[0];
    let mut line = &table.narrow[lane.bucket as usize];
    let (mut one, mut two) = (line[1] == key, line[2] == key);
    let mut hit = line[0] == key || one || two;
    if !hit && overflow(line) != 0 {
        let mut bucket = lane.bucket;
        while !hit && overflow(line) != 0 {
            bucket = next_bucket(bucket, table.shape.narrow);
            line = &table.narrow[bucket as usize];
            (one, two) = (line[1] == key, line[2] == key);
            hit = line[0] == key || one || two;
        }
    }
    let index = usize::from(one) + 2 * usize::from(two);
    settle(lane, hit, line[3 + index % 3], best_in(line, index % 3))
}

#[inline(always)]
pub(super) fn step_wide(table: &Bspl<'_>, lane: &mut Lane) -> u64 {
    let cut = lane.cut;
    let matches = |line: &Line, i: usize| {
        (line[2 * i] ^ cut[0])
            | (line[2 * i + 1] ^ cut[1])
            | u64::from(u32::from(wide_len(line, i)) ^ lane.len)
            == 0
    };
    let mut line = &table.wide[lane.bucket as usize];
    let mut one = matches(line, 1);
    let mut hit = matches(line, 0) || one;
    if !hit && overflow(line) != 0 {
        let mut bucket = lane.bucket;
        while !hit && overflow(line) != 0 {
            bucket = next_bucket(bucket, table.shape.wide);
            line = &table.wide[bucket as usize];
            one = matches(line, 1);
            hit = matches(line, 0) || one;
        }
    }
    let index = usize::from(one);
    settle(lane, hit, line[4 + index], best_in(line, index))
}

#[inline(always)]
fn settle(lane: &mut Lane, hit: bool, rope: u64, best: NextHopId) -> u64 {
    lane.best = if hit && best != 0 { best } else { lane.best };
    if hit { rope } else { lane.rope }
}
