//! Which cells the kernel has.

use chunk::{Cell, Depot, Pool, Region};

/// The cells that one half of a socket gave to the kernel, a bit each.
///
/// Invariant: a bit is set if and only if [`Region::lend`] gave the cell away through this ledger and
/// [`Region::take_back`] has not brought it back. That makes taking back safe whatever the kernel
/// says.
#[derive(Debug)]
pub(super) struct Ledger {
    region: &'static Region,
    lent: Vec<u64>,
}

impl Ledger {
    pub(super) fn new(region: &'static Region) -> Self {
        Self { region, lent: vec![0; region.cells().div_ceil(64) as usize] }
    }

    /// Gives `cell` away; its offset in the region. The cell itself if it is of another region.
    pub(super) fn lend(&mut self, cell: Cell) -> Result<u64, Cell> {
        let offset = self.region.lend(cell)?;
        let index = offset as usize / chunk::CELL_BYTES;
        self.lent[index / 64] |= 1 << (index % 64);
        Ok(offset)
    }

    /// The cell that `offset` lies in, if it was given away.
    ///
    /// # Safety
    /// The kernel does not touch the cell any more.
    pub(super) unsafe fn take_back(&mut self, offset: u64) -> Option<Cell> {
        let index = (offset / chunk::CELL_BYTES as u64) as usize;
        let word = self.lent.get_mut(index / 64)?;
        let bit = 1 << (index % 64);
        if *word & bit == 0 {
            return None;
        }
        *word &= !bit;
        // SAFETY: by the invariant it was lent and not taken back since; by the contract the kernel
        // is done with it.
        Some(unsafe { self.region.take_back(offset) })
    }

    /// Brings everything back to the depot.
    ///
    /// # Safety
    /// The kernel touches none of the cells any more.
    pub(super) unsafe fn take_all_back(mut self, depot: &std::sync::Arc<Depot>) {
        let mut pool = Pool::new(depot.clone(), 64);
        for index in 0..u64::from(self.region.cells()) {
            // SAFETY: by the contract.
            if let Some(cell) = unsafe { self.take_back(index * chunk::CELL_BYTES as u64) } {
                pool.put(cell);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chunk::HugePages;

    #[test]
    fn only_what_was_lent_comes_back_and_only_once() {
        let (region, depot) = Region::new(100, HugePages::Off).unwrap();
        let (_, other) = Region::new(1, HugePages::Off).unwrap();
        let mut ledger = Ledger::new(region);
        let mut pool = Pool::new(depot.clone(), 8);
        let a = ledger.lend(pool.get().unwrap()).unwrap();
        let b = ledger.lend(pool.get().unwrap()).unwrap();
        let stranger = Pool::new(other, 1).get().unwrap();
        assert!(ledger.lend(stranger).is_err());
        drop(pool);
        // SAFETY: there is no kernel in this test.
        unsafe {
            for wrong in [a + 2 * 2048, 100 * 2048, 128 * 2048, u64::MAX] {
                assert!(wrong == b || ledger.take_back(wrong).is_none(), "{wrong}");
            }
            let cell = ledger.take_back(a + 256).unwrap();
            assert!(ledger.take_back(a).is_none());
            Pool::new(depot.clone(), 1).put(cell);
            assert_eq!(depot.available(), 99);
            ledger.take_all_back(&depot);
        }
        assert_eq!(depot.available(), 100);
    }
}
