//! Cross products in which rows are cut into strips, of which equal ones are stored once.
//!
//! ```text
//! row, column ─▶ directory: row × strips of a row + column / 32 ─▶ strip ─▶ strip × 32 + column % 32 ─▶ entry
//! ```
//!
//! Rows are of nodes of a tree of prefixes, and differ from the row above in few columns: of 4,000 rules of a firewall
//! one strip in ten is new, of the halves of their addresses one in a hundred. So one access more takes a tenth of the
//! memory, or less.

use std::collections::HashMap;
use std::rc::Rc;

use super::Budget;
use super::frame::planned;
use super::table::Table;
use crate::rule::RuleError;

/// Columns of a strip.
pub(crate) const STRIP: usize = 32;

/// A cross product while it is made.
#[derive(Debug)]
pub(crate) struct Strips {
    rows: usize,
    /// Strips of a row.
    columns: usize,
    directory: Vec<u32>,
    strips: Vec<Rc<[u32; STRIP]>>,
    numbers: HashMap<Rc<[u32; STRIP]>, u32>,
}

impl Strips {
    /// An empty one of so many rows and columns.
    ///
    /// # Errors
    /// The directory by itself would pass the limit.
    pub(crate) fn new(rows: usize, columns: usize, budget: &Budget) -> Result<Self, RuleError> {
        let columns = columns.div_ceil(STRIP);
        budget.check("directory of strips", 2 * rows as u64 * columns as u64)?;
        let directory = vec![0; rows * columns];
        Ok(Self { rows, columns, directory, strips: Vec::new(), numbers: HashMap::new() })
    }

    /// Writes a row.
    pub(crate) fn row(&mut self, row: usize, cells: &[u32]) {
        let places = &mut self.directory[row * self.columns..][..self.columns];
        for (place, cells) in places.iter_mut().zip(cells.chunks(STRIP)) {
            // Nobody reads what is behind the last column.
            let mut strip = [cells[cells.len() - 1]; STRIP];
            strip[..cells.len()].copy_from_slice(cells);
            *place = match self.numbers.get(&strip) {
                Some(number) => *number,
                None => {
                    let (strip, number) = (Rc::new(strip), self.strips.len() as u32);
                    self.strips.push(strip.clone());
                    self.numbers.insert(strip, number);
                    number
                }
            };
        }
    }

    /// Entries of all strips.
    pub(crate) fn cells(&self) -> u64 {
        self.strips.len() as u64 * STRIP as u64
    }

    /// Memory while it is made, bytes.
    pub(crate) fn len_bytes(&self) -> u64 {
        4 * self.directory.len() as u64 + self.strips.len() as u64 * (4 * STRIP as u64 + 64)
    }

    /// The tables of the directory and of the strips, whose entries are up to `largest`.
    pub(crate) fn planned(&self, largest: u64) -> [Table; 2] {
        let last = (self.strips.len() as u64).saturating_sub(1);
        [planned(self.rows, self.columns, last), planned(self.strips.len().max(1), STRIP, largest)]
    }

    /// Writes both tables, where `of` says what an entry is.
    pub(crate) fn fill(
        &self,
        [directory, strips]: [&Table; 2],
        image: &mut [u32],
        of: impl Fn(u32) -> u32,
    ) {
        directory.fill(image, 0, self.directory.iter().copied());
        let entries = self.strips.iter().flat_map(|strip| strip.iter().map(|entry| of(*entry)));
        strips.fill(image, 0, entries);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_and_equal_strips_are_one() {
        let (rows, columns) = (50, 3 * STRIP + 5);
        let of = |row: usize, column: usize| match (row % 7, column / STRIP) {
            (3, 1) => 1000 + (row * columns + column) as u32,
            (_, strip) => strip as u32,
        };
        let mut strips = Strips::new(rows, columns, &Budget::new(1 << 20)).unwrap();
        for row in (0..rows).rev() {
            strips.row(row, &(0..columns).map(|column| of(row, column)).collect::<Vec<_>>());
        }
        let apart = (0..rows).filter(|row| row % 7 == 3).count();
        assert_eq!(strips.cells(), ((4 + apart) * STRIP) as u64);
        let mut tables = strips.planned(2 * 7000);
        tables[1].offset = (tables[0].len_bytes() / 4) as u32;
        let mut image = vec![0; tables.iter().map(|table| table.len_bytes() / 4).sum()];
        strips.fill([&tables[0], &tables[1]], &mut image, |entry| 2 * entry);
        for row in 0..rows {
            for column in 0..columns {
                let at = tables[0].at(row as u32, (column / STRIP) as u32);
                let strip = tables[0].get(&image, at);
                let at = tables[1].at(strip, (column % STRIP) as u32);
                assert_eq!(tables[1].get(&image, at), 2 * of(row, column));
            }
        }
        assert!(Strips::new(1 << 20, 1 << 20, &Budget::new(1 << 20)).is_err());
    }
}
