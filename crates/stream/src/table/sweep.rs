//! Removal of idle flows, in pieces (the mark and sweep of GASPP §4.1, with times for marks).
//!
//! ```text
//!  times    │ 64 slots │ 64 slots │ 64 slots │ …    may any be idle? compared as vectors, no branch for a slot
//!                 │ yes
//!  metas    │ class ─▶ shortest timeout of the class    asks for the lines of those that may be idle
//!  lines    │ 32 or more: timeout of the flow           asks for the buckets of those that are idle
//!  index    │ ended(slot, key, hot), then removed
//! ```
//!
//! What a piece costs is counted in *records*: one for a time that is read, more for a line and for a removal, so that a
//! piece takes about as long where all of its flows are idle as where none is.

use interleave::prefetch;

use super::{Class, FlowTable, Slot, is_idle};
use crate::FlowKey;

/// Slots whose times are compared at once.
const STRIDE: usize = 64;
/// Flows that may be idle, which wait for their lines.
const PENDING: usize = 32;
/// What reading a line costs, in records.
const LINE_RECORDS: usize = 8;
/// What removing a flow costs, in records.
const REMOVAL_RECORDS: usize = 64;

/// The shortest timeout of each class, in the unit of times: a flow that was seen later is not looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timeouts {
    /// Of half-open flows.
    pub half_open: u32,
    /// Of all others.
    pub full: u32,
}

impl Timeouts {
    #[inline(always)]
    fn of(self, class: Class) -> u32 {
        match class {
            Class::HalfOpen => self.half_open,
            _ => self.full,
        }
    }
}

/// What a piece of a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Slots that were looked at.
    pub slots: usize,
    /// Flows that were idle and removed.
    pub ended: usize,
    /// Whether the piece reached the end of the table: the next one begins at its start.
    pub is_round: bool,
}

/// Slots that wait for a cache line.
struct Pending {
    slots: [u32; PENDING + STRIDE],
    len: usize,
}

impl Pending {
    #[inline(always)]
    fn push(&mut self, slot: u32) {
        if let Some(place) = self.slots.get_mut(self.len) {
            *place = slot;
            self.len += 1;
        }
    }
}

impl<H: Copy + Default> FlowTable<H> {
    /// Removes flows that were not seen for `timeout_of` them, in a piece of the table that begins where the last piece
    /// ended. `ended` gets each of them before its slot is free.
    ///
    /// `records` is the amount of work: a slot costs 1, a flow that is idle for the shortest timeout of its class 8, a
    /// removal 64; the piece ends when it is used up (at most 96 such flows later) or at the end of the table. With a
    /// shortest timeout of more than `timeout_of` some flow, that flow stays until then. Timeouts of
    /// 2^31 or more are never over.
    pub fn sweep(
        &mut self,
        records: usize,
        now: u32,
        shortest: Timeouts,
        timeout_of: impl Fn(&FlowKey, &H) -> u32,
        mut ended: impl FnMut(Slot, &FlowKey, &H),
    ) -> Swept {
        let mut swept = Swept::default();
        let mut pending = Pending { slots: [0; PENDING + STRIDE], len: 0 };
        let least = shortest.half_open.min(shortest.full);
        let end = self.order.fresh() as usize;
        let mut hand = self.hand as usize;
        let mut left = records;
        while left > 0 && hand < end {
            let stride = STRIDE.min(end - hand).min(left);
            let times = &self.times[hand..hand + stride];
            if any_idle(times, now, least) {
                self.gather(hand, stride, now, shortest, &mut pending);
                if pending.len >= PENDING {
                    let (lines, removed) =
                        self.end_idle(&mut pending, now, &timeout_of, &mut ended);
                    left = left.saturating_sub(lines * LINE_RECORDS + removed * REMOVAL_RECORDS);
                    swept.ended += removed;
                }
            }
            hand += stride;
            left = left.saturating_sub(stride);
            swept.slots += stride;
        }
        swept.ended += self.end_idle(&mut pending, now, &timeout_of, &mut ended).1;
        swept.is_round = hand >= end;
        self.hand = if swept.is_round { 0 } else { hand as u32 };
        swept
    }

    /// Adds the flows of a stride that are idle for the shortest timeout of their class, and asks for their lines.
    fn gather(
        &self,
        first: usize,
        len: usize,
        now: u32,
        shortest: Timeouts,
        pending: &mut Pending,
    ) {
        let slots = first..first + len;
        let columns = self.times[slots.clone()].iter().zip(&self.metas[slots.clone()]);
        for (slot, (time, meta)) in slots.zip(columns) {
            let Some(class) = meta.class() else { continue };
            if is_idle(now, *time, shortest.of(class)) {
                prefetch(&self.lines[slot]);
                pending.push(slot as u32);
            }
        }
    }

    /// Reads the lines of the flows that wait, and removes those that are idle: how many of both.
    fn end_idle(
        &mut self,
        pending: &mut Pending,
        now: u32,
        timeout_of: &impl Fn(&FlowKey, &H) -> u32,
        ended: &mut impl FnMut(Slot, &FlowKey, &H),
    ) -> (usize, usize) {
        let lines = std::mem::take(&mut pending.len);
        let mut idle = 0;
        for at in 0..lines {
            let slot = pending.slots[at];
            let line = &self.lines[slot as usize];
            if is_idle(now, self.times[slot as usize], timeout_of(&line.key, &line.hot)) {
                self.index.prefetch(self.hash.of(&line.key));
                pending.slots[idle] = slot;
                idle += 1;
            }
        }
        for slot in &pending.slots[..idle] {
            let at = *slot as usize;
            let Some(class) = self.metas[at].class() else { continue };
            ended(Slot(*slot), &self.lines[at].key, &self.lines[at].hot);
            self.release(*slot, class);
            self.statistics.expired += 1;
        }
        (lines, idle)
    }
}

/// Whether any slot has a flow that was not seen for `least`. Without a branch, so that it is compiled to vectors.
#[inline(always)]
fn any_idle(times: &[u32], now: u32, least: u32) -> bool {
    let is = |time: u32| u32::from(time != 0) & u32::from(is_idle(now, time, least));
    times.iter().fold(0, |any, time| any | is(*time)) != 0
}
