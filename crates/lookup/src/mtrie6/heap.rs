//! Allocation in the heap: blocks of 1, 2, 4 … lines, split and joined again.
//!
//! The buddy system (Knuth, The Art of Computer Programming, volume 1, §2.5): a block of 2^k lines begins
//! at a multiple of 2^k; a larger one is split in halves where none of the size is free, and halves that
//! are both free are joined.

use std::collections::BTreeSet;

use crate::TableError;

/// Blocks have 2^0 to 2^`ORDER_MAX` lines: the largest node.
pub(super) const ORDER_MAX: u8 = 12;

#[derive(Debug, Clone, Default)]
pub(super) struct Heap {
    free: [BTreeSet<u32>; ORDER_MAX as usize + 1],
    len: u32, // lines that have ever been given out or split
    used: u32,
    limit: u32,
}

impl Heap {
    pub(super) fn new(limit: u32) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Heap that the heap must have.
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// Heap in use.
    pub(super) fn used(&self) -> u32 {
        self.used
    }

    /// A block of 2^`order` lines. `beyond`: the limit does not count.
    pub(super) fn take(&mut self, order: u8, beyond: bool) -> Result<u32, TableError> {
        let lines = 1 << order;
        let found = (order..=ORDER_MAX).find(|order| !self.free[*order as usize].is_empty());
        let (line, mut size) = match found {
            Some(size) => (self.free[size as usize].pop_first().unwrap_or_default(), size),
            None => {
                let line = self.len.next_multiple_of(lines);
                if line + lines > self.limit && !beyond {
                    let (used, limit) = (self.used, self.limit);
                    return Err(TableError::Full { what: "lines of 64 bytes", used, limit });
                }
                while self.len < line {
                    // What is skipped, in blocks as large as their place allows.
                    let order = self.len.trailing_zeros().min(u32::from(ORDER_MAX)) as u8;
                    let skipped = self.len;
                    self.len += 1 << order;
                    self.join(skipped, order);
                }
                self.len = line + lines;
                (line, order)
            }
        };
        while size > order {
            size -= 1;
            self.free[size as usize].insert(line + (1 << size));
        }
        self.used += lines;
        Ok(line)
    }

    /// Gives a block back.
    pub(super) fn give(&mut self, line: u32, order: u8) {
        self.used -= 1 << order;
        self.join(line, order);
    }

    /// Makes a block free, joined with its other half as long as that is free too.
    fn join(&mut self, mut line: u32, mut order: u8) {
        while order < ORDER_MAX && self.free[order as usize].remove(&(line ^ 1 << order)) {
            line &= !(1 << order);
            order += 1;
        }
        self.free[order as usize].insert(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// No block overlaps another, each begins where its size says, and all are joined in the end.
        #[test]
        fn blocks_are_apart(steps in prop::collection::vec((0..=ORDER_MAX, any::<bool>(), any::<prop::sample::Index>()), 1..200)) {
            let mut heap = Heap::new(u32::MAX >> 1);
            let mut held: Vec<(u32, u8)> = Vec::new();
            for (order, take, which) in steps {
                if take || held.is_empty() {
                    let line = heap.take(order, false).unwrap();
                    prop_assert_eq!(line % (1 << order), 0);
                    prop_assert!(line + (1 << order) <= heap.len());
                    prop_assert!(held.iter().all(|(a, n)| line + (1 << order) <= *a || a + (1 << n) <= line));
                    held.push((line, order));
                } else {
                    let (line, order) = held.swap_remove(which.index(held.len()));
                    heap.give(line, order);
                }
                prop_assert_eq!(heap.used(), held.iter().map(|(_, order)| 1 << order).sum::<u32>());
            }
            for (line, order) in held {
                heap.give(line, order);
            }
            prop_assert_eq!(heap.used(), 0);
            let free: u32 = (0..).zip(&heap.free).map(|(order, of)| (of.len() as u32) << order).sum();
            prop_assert_eq!(free, heap.len());
            prop_assert!(heap.free[..ORDER_MAX as usize].iter().all(|of| of.len() <= 1));
        }
    }

    #[test]
    fn the_limit_holds_except_beyond() {
        let mut heap = Heap::new(3);
        heap.take(1, false).unwrap();
        let full = TableError::Full { what: "lines of 64 bytes", used: 2, limit: 3 };
        assert_eq!(heap.take(1, false), Err(full));
        assert_eq!(heap.take(0, false), Ok(2));
        assert_eq!(heap.take(0, true), Ok(3));
    }
}
