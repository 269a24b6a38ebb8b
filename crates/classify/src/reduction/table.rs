//! Tables as they stand in an image.
//!
//! Entries have 1, 2 or 4 bytes, as many as the largest needs, and are read as a word and a shift, so that every
//! width is read alike. A table is described by four words: its first word, the logarithm of an entry's bytes,
//! columns, entries.

use interleave::prefetch;

/// Words of a table's description.
pub(crate) const DESCRIPTION: usize = 4;

/// The place of a table.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Table {
    /// First word.
    pub(crate) offset: u32,
    /// Logarithm of an entry's bytes: 0, 1 or 2.
    pub(crate) width: u32,
    /// Columns; 1 in phase 0.
    pub(crate) columns: u32,
    /// Entries.
    pub(crate) entries: u32,
}

/// Logarithm of the bytes of an entry that may be up to `largest`.
pub(crate) fn width(largest: u64) -> u32 {
    match largest {
        0..=0xff => 0,
        0x100..=0xffff => 1,
        _ => 2,
    }
}

/// Bytes of a table, in whole cache lines.
pub(crate) fn bytes(entries: u64, width: u32) -> u64 {
    (entries << width).next_multiple_of(64)
}

impl Table {
    pub(crate) fn to_words(self) -> [u32; DESCRIPTION] {
        [self.offset, self.width, self.columns, self.entries]
    }

    /// The table, if it is within the image.
    pub(crate) fn from_words(words: [u32; DESCRIPTION], image: &[u32]) -> Option<Self> {
        let [offset, width, columns, entries] = words;
        let table = Self { offset, width, columns, entries };
        let end = u64::from(offset) + (u64::from(entries) << width.min(2)).div_ceil(4);
        (width <= 2 && entries > 0 && end <= image.len() as u64).then_some(table)
    }

    /// Bytes that it takes.
    pub(crate) fn len_bytes(&self) -> usize {
        bytes(self.entries.into(), self.width) as usize
    }

    /// An entry's number.
    #[inline(always)]
    pub(crate) fn at(&self, row: u32, column: u32) -> u32 {
        row.wrapping_mul(self.columns).wrapping_add(column)
    }

    #[inline(always)]
    fn word<'a>(&self, image: &'a [u32], at: u32) -> Option<&'a u32> {
        image.get(self.offset as usize + (at >> (2 - self.width)) as usize)
    }

    /// An entry.
    #[inline(always)]
    pub(crate) fn get(&self, image: &[u32], at: u32) -> u32 {
        let word = self.word(image, at).copied().unwrap_or(0);
        let bits = 8 << self.width;
        let shift = at.wrapping_mul(bits) & 31;
        word >> shift & u32::MAX >> (32 - bits)
    }

    /// Starts loading an entry.
    #[inline(always)]
    pub(crate) fn come(&self, image: &[u32], at: u32) {
        if let Some(word) = self.word(image, at) {
            prefetch(word);
        }
    }

    /// Writes entries from `at` on; they were zero.
    pub(crate) fn fill(&self, image: &mut [u32], at: usize, entries: impl Iterator<Item = u32>) {
        let bits = 8 << self.width;
        for (at, entry) in (at..).zip(entries) {
            let word = &mut image[self.offset as usize + (at >> (2 - self.width))];
            *word |= entry << ((at as u32).wrapping_mul(bits) % 32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_every_width_come_back() {
        for (width, largest) in [(0, 0xff), (1, 0xffff), (2, u32::MAX)] {
            assert_eq!(super::width(largest.into()), width);
            let table = Table { offset: 3, width, columns: 7, entries: 70 };
            let mut image = vec![0; 80];
            let of = |at: u32| chunk::hash::fmix32(at) & largest;
            table.fill(&mut image, 0, (0..40).map(of));
            table.fill(&mut image, 40, (40..70).map(of));
            (0..70).for_each(|at| assert_eq!(table.get(&image, at), of(at)));
            assert_eq!(table.at(9, 6), 69);
            assert_eq!(table.get(&image, 1 << 20), 0);
            assert!(Table::from_words(table.to_words(), &image).is_some());
            assert!(Table::from_words(table.to_words(), &image[..10]).is_none());
        }
    }
}
