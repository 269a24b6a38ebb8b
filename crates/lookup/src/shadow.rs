//! A builder's own copy of its table: what is written there becomes patches.
//!
//! Words that do not change make none, and words side by side make one.
//!
//! Thread rule: one owner.

use crate::{Blob, Patch, TableError};

/// The copy, and the patches since the last flush.
#[derive(Debug, Clone)]
pub(crate) struct Shadow {
    blob: Blob,
    patches: Vec<Patch>,
}

impl Shadow {
    /// Zeroed words, and address space for `reserve` in all.
    pub(crate) fn new(len_words: usize, reserve: usize) -> Result<Self, TableError> {
        let blob = Blob::zeroed(len_words, reserve)
            .map_err(|e| TableError::Memory { bytes: len_words * 4, reason: e.to_string() })?;
        Ok(Self { blob, patches: Vec::new() })
    }

    pub(crate) fn words(&self) -> &[u32] {
        self.blob.words()
    }

    /// Makes the word at `at` the given one.
    pub(crate) fn put(&mut self, at: usize, word: u32) {
        let place = &mut self.blob.words_mut()[at];
        if *place == word {
            return;
        }
        *place = word;
        match self.patches.last_mut() {
            Some(Patch::Fill { offset_words, count, value })
                if *offset_words + *count == at && *value == word =>
            {
                *count += 1;
            }
            // Not forever: a long list of words is copied when it grows.
            Some(Patch::Write { offset_words, words })
                if *offset_words + words.len() == at && words.len() < 4096 =>
            {
                words.push(word);
            }
            Some(Patch::Fill { offset_words, count: 1, value }) if *offset_words + 1 == at => {
                let (offset_words, words) = (*offset_words, vec![*value, word]);
                self.patches.pop();
                self.patches.push(Patch::Write { offset_words, words });
            }
            _ => self.patches.push(Patch::Fill { offset_words: at, count: 1, value: word }),
        }
    }

    /// Makes the words from `at` on the given ones.
    pub(crate) fn put_all(&mut self, at: usize, words: &[u32]) {
        for (index, word) in words.iter().enumerate() {
            self.put(at + index, *word);
        }
    }

    /// Lengthens to at least `len_words`.
    pub(crate) fn grow(&mut self, len_words: usize) -> Result<(), TableError> {
        if len_words <= self.blob.len_words() {
            return Ok(());
        }
        self.blob
            .grow(len_words)
            .map_err(|e| TableError::Memory { bytes: len_words * 4, reason: e.to_string() })?;
        self.patches.push(Patch::Grow { len_words });
        Ok(())
    }

    /// Hands out the patches since the last flush.
    pub(crate) fn flush(&mut self, patches: &mut Vec<Patch>) {
        patches.append(&mut self.patches);
    }

    /// A copy as it is now; what led there is forgotten.
    pub(crate) fn copy(&mut self) -> Result<Blob, TableError> {
        self.patches.clear();
        let bytes = self.blob.len_bytes();
        self.blob.try_clone().map_err(|e| TableError::Memory { bytes, reason: e.to_string() })
    }

    /// The same as one patch.
    pub(crate) fn as_replacement(&mut self) -> Patch {
        self.patches.clear();
        Patch::Replace(self.blob.words().to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The patches make of the copy as it was the copy as it is.
        #[test]
        fn patches_lead_to_the_same(puts in prop::collection::vec((0..40_usize, 1..6_usize, 0..3_u32), 0..60)) {
            let mut shadow = Shadow::new(16, 64).unwrap();
            let mut copy = shadow.copy().unwrap();
            let mut patches = Vec::new();
            for (at, count, word) in puts {
                shadow.grow(at + count).unwrap();
                shadow.put_all(at, &vec![word; count]);
                shadow.put(at, 7);
                if word == 1 {
                    shadow.flush(&mut patches);
                }
            }
            shadow.flush(&mut patches);
            copy.apply(&patches);
            prop_assert_eq!(copy.words(), shadow.words());
        }
    }
}
