//! A job as bytes: what an arena holds, for self-tests, benches and tests that have no live arena.
//!
//! The layout is the arena's ([`Layout`]); values are written and read one by one.

use chunk::{ColumnId, Declaration, Element, JobHeader, Layout};

/// Where the header says where the list of areas is, in words of four bytes.
pub(crate) const AREAS_WORD: usize = JobHeader::AREAS_WORD;

/// A value of a column, to and from the device's byte order (little-endian).
pub trait Value: Element {
    /// Writes the value.
    fn put(self, bytes: &mut [u8]);
    /// Reads a value.
    fn get(bytes: &[u8]) -> Self;
}

macro_rules! value {
    ($($t:ty),*) => {$(
        impl Value for $t {
            fn put(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_le_bytes());
            }
            fn get(bytes: &[u8]) -> Self {
                let mut array = [0; size_of::<$t>()];
                array.copy_from_slice(bytes);
                <$t>::from_le_bytes(array)
            }
        }
    )*};
}
value!(u8, u16, u32, u64);

impl Value for [u64; 2] {
    fn put(self, bytes: &mut [u8]) {
        self[0].put(&mut bytes[..8]);
        self[1].put(&mut bytes[8..]);
    }
    fn get(bytes: &[u8]) -> Self {
        [u64::get(&bytes[..8]), u64::get(&bytes[8..])]
    }
}

/// The bytes of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobBytes {
    layout: Layout,
    bytes: Vec<u8>,
}

impl JobBytes {
    /// A job of `capacity` rows, all in use, of version 1; the columns are zero.
    ///
    /// # Panics
    /// As [`Layout::new`].
    pub fn new(columns: Declaration, capacity: usize) -> Self {
        Self::of(Layout::new(columns, capacity))
    }

    /// The same over the columns of any layout.
    pub fn of(layout: Layout) -> Self {
        let capacity = layout.capacity();
        let mut job = Self { bytes: vec![0; layout.bytes()], layout };
        job.set_range(0, capacity as u32);
        job
    }

    /// The launch covers rows `first .. first + count`.
    pub fn set_range(&mut self, first: u32, count: u32) {
        let areas = u32::get(&self.bytes[4 * AREAS_WORD..][..4]);
        self.layout.write_header(first, count, 1, &mut self.bytes);
        areas.put(&mut self.bytes[4 * AREAS_WORD..][..4]);
    }

    /// Adds areas of these bytes behind the columns, zero; where each one lies.
    pub fn add_areas(&mut self, areas: &[usize]) -> Vec<usize> {
        let list = self.bytes.len().next_multiple_of(64);
        let mut at = (list + 8 * areas.len()).next_multiple_of(64);
        let (mut places, mut entries) = (Vec::new(), Vec::new());
        for bytes in areas {
            places.push(at);
            entries.extend([at as u32, *bytes as u32]);
            at += bytes.next_multiple_of(64);
        }
        self.bytes.resize(at, 0);
        (list as u32).put(&mut self.bytes[4 * AREAS_WORD..][..4]);
        for (to, entry) in self.bytes[list..].chunks_exact_mut(4).zip(entries) {
            entry.put(to);
        }
        places
    }

    /// Sets a value.
    ///
    /// # Panics
    /// If there is no such row, or the column is of another type.
    pub fn put<T: Value>(&mut self, column: ColumnId, row: usize, value: T) {
        let range = self.range::<T>(column, row);
        value.put(&mut self.bytes[range]);
    }

    /// Sets a value of a column of at most eight bytes.
    ///
    /// # Panics
    /// If there is no such row, or the column is wider.
    pub fn put_number(&mut self, column: ColumnId, row: usize, value: u64) {
        let range = self.column_range(column, row + 1);
        let at = range.end - column.width;
        assert!(row < self.layout.capacity(), "{} has no row {row}", column.name);
        self.bytes[at..range.end].copy_from_slice(&value.to_le_bytes()[..column.width]);
    }

    /// A value.
    ///
    /// # Panics
    /// As [`JobBytes::put`].
    pub fn get<T: Value>(&self, column: ColumnId, row: usize) -> T {
        T::get(&self.bytes[self.range::<T>(column, row)])
    }

    /// Where the first `rows` values of a column lie.
    ///
    /// # Panics
    /// If there is no such column.
    pub fn column_range(&self, column: ColumnId, rows: usize) -> std::ops::Range<usize> {
        let start = self.layout.offset(self.layout.column(column));
        start..start + rows * column.width
    }

    /// Everything, as it is uploaded.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Everything, to be overwritten by what came back.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    fn range<T: Value>(&self, column: ColumnId, row: usize) -> std::ops::Range<usize> {
        assert_eq!(column.width, size_of::<T>(), "{}", column.name);
        assert!(row < self.layout.capacity(), "{} has no row {row}", column.name);
        let at = self.layout.offset(self.layout.column(column)) + row * size_of::<T>();
        at..at + size_of::<T>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LpmColumns;
    use chunk::{Columns, JobHeader, Layout};

    #[test]
    fn it_is_laid_out_as_an_arena() {
        let mut job = JobBytes::new(LpmColumns::COLUMNS, 100);
        assert_eq!(job.bytes().len(), Layout::new(LpmColumns::COLUMNS, 100).bytes());
        job.put(LpmColumns::DST6, 99, [1u64, u64::MAX]);
        job.put(LpmColumns::RESULT, 0, 7u32);
        assert_eq!(job.get::<[u64; 2]>(LpmColumns::DST6, 99), [1, u64::MAX]);
        assert_eq!(job.get::<u32>(LpmColumns::RESULT, 0), 7);
        job.set_range(5, 6);
        let word = |i: usize| u32::get(&job.bytes()[4 * i..][..4]);
        assert_eq!((word(0), word(1), word(5)), (6, 100, 5));
        assert_eq!(word(JobHeader::OFFSETS_WORD), 64);
    }
}
