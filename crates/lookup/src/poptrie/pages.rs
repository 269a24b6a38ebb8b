//! Room in the heap: pages of 1 KB, each carved into records of one size or given away whole.

use std::collections::BTreeSet;

use super::PAGE_WORDS;
use crate::TableError;

/// Units of 8 bytes in a page.
pub(super) const UNITS: u32 = PAGE_WORDS as u32 / 2;

/// Which units of which pages are in use. Offsets are in units from the start of the heap.
#[derive(Debug, Clone, Default)]
pub(super) struct Pages {
    pages: Vec<Page>,
    empty: BTreeSet<u32>,
    /// By size in units: pages of that size that have room.
    open: Vec<BTreeSet<u32>>,
    /// How many pages may be used, unless one is needed to take a route away.
    limit: u32,
}

/// One bit for each unit: set where a free record begins.
#[derive(Debug, Clone, Copy)]
struct Page {
    units: u32, // of a record here
    free: u128,
}

impl Page {
    fn all_free(units: u32) -> u128 {
        (0..UNITS / units).fold(0, |free, number| free | 1 << (number * units))
    }
}

impl Pages {
    pub(super) fn new(limit: u32) -> Self {
        Self { limit, open: vec![BTreeSet::new(); UNITS as usize + 1], ..Self::default() }
    }

    /// Pages that have ever been used: as long must the heap be.
    pub(super) fn len(&self) -> u32 {
        self.pages.len() as u32
    }

    /// Pages that something is in.
    pub(super) fn used(&self) -> u32 {
        self.len() - self.empty.len() as u32
    }

    /// A place of so many units. `beyond`: the limit does not count.
    pub(super) fn take(&mut self, units: u32, beyond: bool) -> Result<u32, TableError> {
        let page = match self.open[units as usize].first() {
            Some(page) => *page,
            None => self.carve(units, beyond)?,
        };
        let free = &mut self.pages[page as usize].free;
        let unit = free.trailing_zeros();
        *free &= *free - 1;
        if *free == 0 {
            self.open[units as usize].remove(&page);
        }
        Ok(page * UNITS + unit)
    }

    /// Gives a place back.
    pub(super) fn give(&mut self, offset: u32) {
        let (number, unit) = (offset / UNITS, offset % UNITS);
        let page = &mut self.pages[number as usize];
        page.free |= 1 << unit;
        let open = &mut self.open[page.units as usize];
        if page.free == Page::all_free(page.units) {
            open.remove(&number);
            self.empty.insert(number);
        } else {
            open.insert(number);
        }
    }

    /// Units of all records in use.
    pub(super) fn units_used(&self) -> u32 {
        let used = self.pages.iter().map(|page| {
            let all = Page::all_free(page.units);
            (all.count_ones() - page.free.count_ones()) * page.units
        });
        used.sum()
    }

    fn carve(&mut self, units: u32, beyond: bool) -> Result<u32, TableError> {
        let page = match self.empty.pop_first() {
            Some(page) => page,
            None => {
                let (used, limit) = (self.len(), self.limit);
                if used >= limit && !beyond {
                    return Err(TableError::Full { what: "pages of 1 KB", used, limit });
                }
                self.pages.push(Page { units, free: 0 });
                used
            }
        };
        self.pages[page as usize] = Page { units, free: Page::all_free(units) };
        self.open[units as usize].insert(page);
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// No place overlaps another, and all room comes back.
        #[test]
        fn places_are_apart(steps in prop::collection::vec((1..=34_u32, any::<bool>(), any::<prop::sample::Index>()), 1..400)) {
            let mut pages = Pages::new(1 << 20);
            let mut held: Vec<(u32, u32)> = Vec::new();
            for (units, take, which) in steps {
                if take || held.is_empty() {
                    let units = if units == 34 { UNITS } else { units };
                    let at = pages.take(units, false).unwrap();
                    prop_assert!(at % UNITS + units <= UNITS);
                    prop_assert!(held.iter().all(|(a, n)| at + units <= *a || a + n <= at));
                    held.push((at, units));
                } else {
                    pages.give(held.swap_remove(which.index(held.len())).0);
                }
                prop_assert_eq!(pages.units_used(), held.iter().map(|h| h.1).sum::<u32>());
            }
            let len = pages.len();
            for (at, _) in held {
                pages.give(at);
            }
            prop_assert_eq!(pages.units_used(), 0);
            for _ in 0..len {
                pages.take(UNITS, false).unwrap();
            }
            prop_assert_eq!(pages.len(), len);
        }
    }

    #[test]
    fn the_limit_holds_except_beyond() {
        let mut pages = Pages::new(1);
        pages.take(UNITS, false).unwrap();
        let full = TableError::Full { what: "pages of 1 KB", used: 1, limit: 1 };
        assert_eq!(pages.take(1, false), Err(full));
        assert_eq!(pages.take(1, true), Ok(UNITS));
    }
}
