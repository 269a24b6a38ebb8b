//! Which units of the names' region are in use.
//!
//! Prefixes come in all lengths. One of at most a line takes 1 to 4 units inside one line, so that comparing
//! it reads one line; a longer one takes whole lines. What is freed is kept by size and used again, split
//! where only larger pieces are left; pieces are not joined, for lengths repeat.

use std::collections::BTreeMap;

use super::layout::{LINE_UNITS, UNIT_BYTES};

/// The allocator of the region.
#[derive(Debug, Clone)]
pub(super) struct Store {
    free: BTreeMap<u32, Vec<u32>>, // first units, by number of units
    used: u32,                     // units from the start that were ever handed out
    limit: u32,
}

/// The units that a name of `bytes` takes.
pub(super) fn units_of(bytes: usize) -> u32 {
    let units = bytes.div_ceil(UNIT_BYTES).max(1) as u32;
    if units <= LINE_UNITS { units } else { units.next_multiple_of(LINE_UNITS) }
}

impl Store {
    /// An empty region of at most `limit` units.
    pub(super) fn new(limit: u32) -> Self {
        Self { free: BTreeMap::new(), used: 0, limit }
    }

    /// Units from the start that hold or held names.
    pub(super) fn used(&self) -> u32 {
        self.used
    }

    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    /// The first of `units` free ones; `None` when there are none left.
    pub(super) fn take(&mut self, units: u32) -> Option<u32> {
        let size =
            self.free.range(units..).find(|(_, list)| !list.is_empty()).map(|(size, _)| *size);
        if let Some(size) = size {
            let start = self.free.get_mut(&size)?.pop()?;
            self.give(start + units, size - units);
            return Some(start);
        }
        let line_end = self.used.next_multiple_of(LINE_UNITS);
        let crosses = !self.used.is_multiple_of(LINE_UNITS) && self.used + units > line_end;
        let start = if crosses { line_end } else { self.used };
        let end = start.checked_add(units).filter(|end| *end <= self.limit)?;
        let (gap, gap_units) = (self.used, start - self.used);
        self.used = end;
        self.give(gap, gap_units);
        Some(start)
    }

    /// Gives units back.
    pub(super) fn give(&mut self, start: u32, units: u32) {
        let to_line = start.next_multiple_of(LINE_UNITS) - start;
        let parts = [to_line.min(units), units - to_line.min(units)];
        let mut start = start;
        for units in parts {
            // Behind whole lines there may be a piece of one.
            let whole = if units > LINE_UNITS { units / LINE_UNITS * LINE_UNITS } else { units };
            for units in [whole, units - whole] {
                if units > 0 {
                    self.free.entry(units).or_default().push(start);
                    start += units;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// What is handed out never overlaps, crosses no line when it is short, and comes back.
        #[test]
        fn pieces_are_apart(steps in prop::collection::vec((0..300_usize, any::<prop::sample::Index>(), any::<bool>()), 1..200)) {
            let mut store = Store::new(400);
            let mut held: Vec<(u32, u32)> = Vec::new();
            for (bytes, which, give) in steps {
                if give && !held.is_empty() {
                    let (start, units) = held.swap_remove(which.index(held.len()));
                    store.give(start, units);
                    continue;
                }
                let units = units_of(bytes);
                prop_assert!(units as usize * UNIT_BYTES >= bytes);
                let Some(start) = store.take(units) else {
                    prop_assert!(held.iter().map(|(_, units)| units).sum::<u32>() > 0 || units > 400);
                    continue;
                };
                prop_assert!(start + units <= 400);
                if units <= LINE_UNITS {
                    prop_assert_eq!(start / LINE_UNITS, (start + units - 1) / LINE_UNITS);
                } else {
                    prop_assert_eq!(start % LINE_UNITS, 0);
                }
                for (other, many) in &held {
                    prop_assert!(start + units <= *other || other + many <= start);
                }
                held.push((start, units));
            }
        }
    }
}
