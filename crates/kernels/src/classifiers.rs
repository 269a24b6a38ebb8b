//! Which kernels classify headers of how many words, and how headers are in their columns.
//!
//! A header of the crate `classify` has 2, 4, 9, 10, 16 or 32 words. Its words are four to a column, `head0`,
//! `head1`, …, so that a column is as wide as a work item's widest load; what is left of the last one is zero.
//! Programs differ in how many of these columns they declare, so that a 5-tuple of IPv4 takes no more room than it
//! needs.
//!
//! | file | headers | kernels |
//! | --- | --- | --- |
//! | `classify4` | up to 4 words | `linear4`, `tuple2`, `tuple4`, `rfc`, `tic`, `cuts` |
//! | `classify12` | up to 12 | `linear12`, `tuple9`, `tuple10`, `cuts12` |
//! | `classify32` | up to 32 | `linear32`, `tuple16`, `tuple32`, `cuts16` |
//!
//! `tuple…` do Bloom search too, where the table has filters. All read the image's first region.

use chunk::{ColumnId, ColumnSet, Columns, Declaration};

use crate::columns::{Classify4Columns, Classify12Columns, Classify32Columns};
use crate::files::{CLASSIFY4, CLASSIFY12, CLASSIFY32};
use crate::registry::KernelFile;

/// Words of a column.
const WORDS: usize = 4;

/// The best rule of a row: priority above id; all ones for none.
pub const FOUND: ColumnId = Classify4Columns::FOUND;

/// Work items that one row may have: the kernels of searches share them out where a launch has fewer rows than the
/// device has places.
pub const ITEMS_PER_ROW_MAX: u32 = 8;

/// The columns of the longest header; a shorter one has the first of them.
const HEADS: [ColumnId; 8] = [
    Classify32Columns::HEAD0,
    Classify32Columns::HEAD1,
    Classify32Columns::HEAD2,
    Classify32Columns::HEAD3,
    Classify32Columns::HEAD4,
    Classify32Columns::HEAD5,
    Classify32Columns::HEAD6,
    Classify32Columns::HEAD7,
];

/// A structure of the crate `classify`, by what its image says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Structure {
    /// `classify::linear`.
    Linear,
    /// `classify::tuple`, with filters or without.
    Tuple,
    /// `classify::rfc`.
    Rfc,
    /// `classify::tic`.
    Tic,
    /// `classify::cuts`.
    Cuts,
}

/// A kernel that classifies, and the columns of its headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classifier {
    /// The kernel.
    pub kernel: &'static str,
    /// Its file.
    pub file: &'static KernelFile,
    /// A declaration of columns that suits it.
    pub columns: Declaration,
    /// Words of a header.
    pub words: usize,
    /// Work items that one row may have.
    pub items_per_row: u32,
}

impl Classifier {
    /// The kernel of a structure for headers of `words` words; `None` where there is none.
    pub fn of(structure: Structure, words: usize) -> Option<Self> {
        let (file, columns) = match words {
            2 | 4 => (&CLASSIFY4, Classify4Columns::COLUMNS),
            9 | 10 => (&CLASSIFY12, Classify12Columns::COLUMNS),
            16 | 32 => (&CLASSIFY32, Classify32Columns::COLUMNS),
            _ => return None,
        };
        let (kernel, items_per_row) = match (structure, words) {
            (Structure::Linear, 2 | 4) => ("linear4", ITEMS_PER_ROW_MAX),
            (Structure::Linear, 9 | 10) => ("linear12", ITEMS_PER_ROW_MAX),
            (Structure::Linear, _) => ("linear32", ITEMS_PER_ROW_MAX),
            (Structure::Tuple, 2) => ("tuple2", ITEMS_PER_ROW_MAX),
            (Structure::Tuple, 4) => ("tuple4", ITEMS_PER_ROW_MAX),
            (Structure::Tuple, 9) => ("tuple9", ITEMS_PER_ROW_MAX),
            (Structure::Tuple, 10) => ("tuple10", ITEMS_PER_ROW_MAX),
            (Structure::Tuple, 16) => ("tuple16", ITEMS_PER_ROW_MAX),
            (Structure::Tuple, _) => ("tuple32", ITEMS_PER_ROW_MAX),
            (Structure::Rfc, 4) => ("rfc", 1),
            (Structure::Tic, 4) => ("tic", 1),
            (Structure::Cuts, 2 | 4) => ("cuts", 1),
            (Structure::Cuts, 9 | 10) => ("cuts12", 1),
            (Structure::Cuts, 16) => ("cuts16", 1),
            _ => return None,
        };
        Some(Self { kernel, file, columns, words, items_per_row })
    }

    /// The columns of a header.
    pub fn heads(&self) -> impl Iterator<Item = ColumnId> {
        HEADS[..self.words.div_ceil(WORDS)].iter().copied()
    }

    /// All of them.
    pub fn reads(&self) -> ColumnSet {
        ColumnSet::of(&HEADS[..self.words.div_ceil(WORDS)])
    }

    /// Writes column `number` of headers that are one after the other to `bytes`, 16 for each.
    ///
    /// # Panics
    /// If there are not as many headers as `bytes` has room for, or no such column.
    pub fn fill(&self, number: usize, headers: &[u32], bytes: &mut [u8]) {
        assert_eq!(headers.len() * 16, bytes.len() * self.words, "as many headers as rows");
        let words = number * WORDS..self.words.min((number + 1) * WORDS);
        let rows = bytes.as_chunks_mut::<16>().0;
        for (header, row) in headers.chunks_exact(self.words).zip(rows) {
            let mut value = [0; WORDS];
            value[..words.len()].copy_from_slice(&header[words.clone()]);
            for (bytes, word) in row.as_chunks_mut::<4>().0.iter_mut().zip(value) {
                *bytes = word.to_le_bytes();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_is_there_with_the_columns_that_it_reads() {
        for words in [2, 4, 9, 10, 16, 32] {
            let searches = [Structure::Linear, Structure::Tuple];
            let trees = [Structure::Rfc, Structure::Tic, Structure::Cuts];
            for structure in searches.into_iter().chain(trees) {
                let Some(classifier) = Classifier::of(structure, words) else {
                    let others = if words == 32 { &trees[..] } else { &trees[..2] };
                    assert!(words != 4 && others.contains(&structure));
                    continue;
                };
                let info = classifier.file.kernel(classifier.kernel).expect(classifier.kernel);
                assert!(FOUND.place_in(classifier.columns).is_some());
                assert!(classifier.file.columns == classifier.columns);
                for head in classifier.heads() {
                    assert!(head.place_in(classifier.columns).is_some(), "{head:?}");
                    assert!(info.columns.contains(&head.name), "{}: {head:?}", classifier.kernel);
                }
            }
        }
        assert_eq!(Classifier::of(Structure::Tuple, 5), None);
    }

    #[test]
    fn headers_stand_four_words_to_a_column() {
        let classifier = Classifier::of(Structure::Linear, 9).unwrap();
        let headers: Vec<u32> = (0..18).collect();
        let mut bytes = [7; 32];
        let words = |bytes: &[u8]| -> Vec<u32> {
            bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
        };
        classifier.fill(1, &headers, &mut bytes);
        assert_eq!(words(&bytes), [4, 5, 6, 7, 13, 14, 15, 16]);
        classifier.fill(2, &headers, &mut bytes);
        assert_eq!(words(&bytes), [8, 0, 0, 0, 17, 0, 0, 0]);
    }
}
