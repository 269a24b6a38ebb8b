//! Which slots are free, and the flows of some classes in the order in which they came to it.
//!
//! ```text
//!  oldest ─▶ slot 7 ⇄ slot 2 ⇄ slot 9 ◀─ newest          for each such class a list in both directions
//!  free   ─▶ slot 4 ─▶ slot 1 ─▶ nil                     freed last, used first: its lines are still in cache
//!  fresh  = 12                                           slots from here on were never used
//! ```
//!
//! All lists lie in one array of eight bytes per slot, because no slot is in two; an established flow is in none.
//! Each operation is a few writes, whatever the number of flows. A clock hand over all records was considered: where few
//! flows are half-open, it passes all others to find one.

use super::NIL;
use super::error::{TableError, zeroed};

#[derive(Clone, Copy, Debug, Default)]
struct Link {
    next: u32,
    previous: u32,
}

/// Lists of flows.
const LISTS: usize = 3;

#[derive(Debug)]
pub(super) struct Order {
    links: Vec<Link>,
    /// Of each list.
    oldest: [u32; LISTS],
    newest: [u32; LISTS],
    free: u32,
    fresh: u32,
}

impl Order {
    /// Bytes for `capacity` slots.
    pub(super) const fn memory_bytes(capacity: usize) -> usize {
        capacity * size_of::<Link>()
    }

    /// All of `capacity` slots free.
    pub(super) fn new(capacity: usize) -> Result<Self, TableError> {
        let none = [NIL; LISTS];
        Ok(Self { links: zeroed(capacity)?, oldest: none, newest: none, free: NIL, fresh: 0 })
    }

    /// The first slot that was never used: all behind it are free too.
    #[inline(always)]
    pub(super) fn fresh(&self) -> u32 {
        self.fresh
    }

    /// A free slot.
    #[inline]
    pub(super) fn take(&mut self) -> Option<u32> {
        if self.free != NIL {
            let slot = self.free;
            self.free = self.links[slot as usize].next;
            return Some(slot);
        }
        let slot = self.fresh;
        if slot as usize == self.links.len() {
            return None;
        }
        self.fresh += 1;
        Some(slot)
    }

    /// Frees a slot that is in no list.
    #[inline]
    pub(super) fn free(&mut self, slot: u32) {
        self.links[slot as usize].next = self.free;
        self.free = slot;
    }

    /// The flow that is longest in a list; `NIL` if there is none.
    #[inline(always)]
    pub(super) fn oldest(&self, list: usize) -> u32 {
        self.oldest[list]
    }

    /// The flow that follows another one in its list; `NIL` behind the last.
    #[inline(always)]
    pub(super) fn next(&self, slot: u32) -> u32 {
        self.links[slot as usize].next
    }

    /// Adds a flow to a list as the newest.
    #[inline]
    pub(super) fn push(&mut self, list: usize, slot: u32) {
        let newest = &mut self.newest[list];
        self.links[slot as usize] = Link { next: NIL, previous: *newest };
        match self.links.get_mut(*newest as usize) {
            Some(newest) => newest.next = slot,
            None => self.oldest[list] = slot,
        }
        *newest = slot;
    }

    /// Makes a flow the newest of its list.
    #[inline]
    pub(super) fn renew(&mut self, list: usize, slot: u32) {
        self.unlink(list, slot);
        self.push(list, slot);
    }

    /// Takes a flow out of its list.
    #[inline]
    pub(super) fn unlink(&mut self, list: usize, slot: u32) {
        let Link { next, previous } = self.links[slot as usize];
        match self.links.get_mut(previous as usize) {
            Some(link) => link.next = next,
            None => self.oldest[list] = next,
        }
        match self.links.get_mut(next as usize) {
            Some(link) => link.previous = previous,
            None => self.newest[list] = previous,
        }
    }

    /// Starts loading what `take` of the slots to come, and `unlink` of the oldest, read.
    #[inline(always)]
    pub(super) fn prefetch(&self, slot: u32) {
        if let Some(link) = self.links.get(slot as usize) {
            interleave::prefetch(link);
        }
    }

    /// Bytes that are held: for tests.
    #[cfg(test)]
    pub(super) fn capacity_bytes(&self) -> usize {
        self.links.capacity() * size_of::<Link>()
    }
}
