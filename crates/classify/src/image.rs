//! The builder's own copy of an image: what is written to it is also noted as patches.
//!
//! Writes are many and short, so those that follow each other become one patch ([`Patch::Writes`]).
//!
//! Blocks for parts of the image are allocated by size: a block that is given back serves the next part of the
//! same size, and the image grows at its end when there is none.

use std::collections::BTreeMap;

use lookup::{Blob, Patch};

use crate::rule::RuleError;

/// Words of a cache line; every block begins on one.
pub(crate) const LINE_WORDS: usize = 16;

/// Words of a patch that takes further writes.
const PATCH_WORDS: usize = 8 << 10;

/// Words that an image may have: vector gathers take signed offsets.
const WORDS_LIMIT: usize = i32::MAX as usize;

#[derive(Debug)]
pub(crate) struct Image {
    blob: Blob,
    /// Words in use at the front.
    end: usize,
    /// Blocks that were given back, by size.
    free: BTreeMap<usize, Vec<usize>>,
    /// `None` while the image has no readers.
    patches: Option<Vec<Patch>>,
}

impl Image {
    /// `words` zeroed words, all in use.
    pub(crate) fn new(words: usize) -> Result<Self, RuleError> {
        let end = words.next_multiple_of(LINE_WORDS);
        let blob = Blob::zeroed(end, end).map_err(|e| no_memory(end, &e))?;
        Ok(Self { blob, end, free: BTreeMap::new(), patches: None })
    }

    /// Somebody reads a copy from now on.
    pub(crate) fn publish(&mut self) {
        self.patches = Some(Vec::new());
    }

    /// Hands out what was written.
    pub(crate) fn flush(&mut self, patches: &mut Vec<Patch>) {
        let Some(written) = &mut self.patches else { return };
        // What goes behind the writes of changes before makes no patch of its own.
        if let (Some(Patch::Writes { spans, words }), [Patch::Writes { spans: s, words: w }]) =
            (patches.last_mut(), &mut written[..])
            && words.len() < PATCH_WORDS
        {
            spans.append(s);
            words.append(w);
            return;
        }
        patches.append(written);
    }

    /// Notes what was written.
    fn note(&mut self, offset_words: usize, count: usize) {
        let Some(patches) = &mut self.patches else { return };
        let new = &self.blob.words()[offset_words..][..count];
        let span = (offset_words as u32, count as u32);
        match patches.last_mut() {
            Some(Patch::Writes { spans, words }) if words.len() < PATCH_WORDS => {
                words.extend_from_slice(new);
                match spans.last_mut() {
                    Some((at, count)) if *at + *count == span.0 => *count += span.1,
                    _ => spans.push(span),
                }
            }
            _ => patches.push(Patch::Writes { spans: vec![span], words: new.to_vec() }),
        }
    }

    /// The whole image in one patch.
    pub(crate) fn replacement(&self) -> Patch {
        Patch::Replace(self.blob.words().to_vec())
    }

    pub(crate) fn blob(&self) -> &Blob {
        &self.blob
    }

    pub(crate) fn words(&self) -> &[u32] {
        self.blob.words()
    }

    /// Sets one word.
    pub(crate) fn set(&mut self, offset: usize, value: u32) {
        self.write(offset, &[value]);
    }

    pub(crate) fn fill(&mut self, offset_words: usize, count: usize, value: u32) {
        self.blob.words_mut()[offset_words..][..count].fill(value);
        if count <= LINE_WORDS {
            self.note(offset_words, count);
        } else if let Some(patches) = &mut self.patches {
            patches.push(Patch::Fill { offset_words, count, value });
        }
    }

    pub(crate) fn write(&mut self, offset_words: usize, words: &[u32]) {
        self.blob.words_mut()[offset_words..][..words.len()].copy_from_slice(words);
        self.note(offset_words, words.len());
    }

    /// Changes words where they are.
    pub(crate) fn edit(&mut self, offset: usize, count: usize, change: impl FnOnce(&mut [u32])) {
        change(&mut self.blob.words_mut()[offset..][..count]);
        self.note(offset, count);
    }

    /// A block of at least `words` zeroed words; its first one. Give it back with the same number.
    pub(crate) fn take(&mut self, words: usize) -> Result<usize, RuleError> {
        let before = self.end;
        let offset = self.take_used(words)?;
        if offset < before {
            self.fill(offset, block_words(words), 0);
        }
        Ok(offset)
    }

    /// As [`Image::take`], but its words are what they were.
    pub(crate) fn take_used(&mut self, words: usize) -> Result<usize, RuleError> {
        let size = block_words(words);
        let used = self.free.get_mut(&size).and_then(Vec::pop);
        used.map_or_else(|| self.extend(size), Ok)
    }

    /// `words` zeroed words right behind the last ones in use; the first of them.
    pub(crate) fn extend(&mut self, words: usize) -> Result<usize, RuleError> {
        let (offset, end) = (self.end, self.end + words);
        if end > WORDS_LIMIT {
            let (used, limit) = (self.end as u64, WORDS_LIMIT as u64);
            return Err(RuleError::Full { what: "words of an image", used, limit });
        }
        if end > self.blob.len_words() {
            // Ahead of need, so that few patches make the readers' copies grow.
            let len_words = end + end / 4;
            self.blob.grow(len_words).map_err(|e| no_memory(len_words, &e))?;
            if let Some(patches) = &mut self.patches {
                patches.push(Patch::Grow { len_words });
            }
        }
        self.end = end;
        Ok(offset)
    }

    /// Takes a block back.
    pub(crate) fn give(&mut self, offset: usize, words: usize) {
        self.free.entry(block_words(words)).or_default().push(offset);
    }

    /// Words in unused blocks, and beyond the last one.
    pub(crate) fn idle_words(&self) -> usize {
        let free: usize = self.free.iter().map(|(size, blocks)| size * blocks.len()).sum();
        free + self.blob.len_words() - self.end
    }
}

/// Sizes of blocks: whole lines, beyond 16 of them eight steps to each doubling.
fn block_words(words: usize) -> usize {
    let lines = words.div_ceil(LINE_WORDS).max(1);
    let step = (lines.next_power_of_two() / 16).max(1);
    lines.next_multiple_of(step) * LINE_WORDS
}

pub(crate) fn no_memory(words: usize, error: &std::io::Error) -> RuleError {
    RuleError::Memory { bytes: words.saturating_mul(4), reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_apart_and_are_reused() {
        let mut image = Image::new(5).unwrap();
        let mut copy = image.blob().clone();
        image.publish();
        let blocks: Vec<(usize, usize)> =
            [1, 16, 17, 400, 3].map(|words| (image.take(words).unwrap(), words)).to_vec();
        for (number, (offset, words)) in (1..).zip(&blocks) {
            assert_eq!(offset % LINE_WORDS, 0);
            assert!(image.words()[*offset..][..*words].iter().all(|word| *word == 0));
            image.fill(*offset, *words, number);
        }
        for (number, (offset, words)) in (1..).zip(&blocks) {
            assert!(image.words()[*offset..][..*words].iter().all(|word| *word == number));
        }
        image.give(blocks[3].0, blocks[3].1);
        let idle = image.idle_words();
        assert_eq!(image.take(400).unwrap(), blocks[3].0);
        assert!(image.words()[blocks[3].0..][..400].iter().all(|word| *word == 0));
        assert!(image.idle_words() < idle);
        image.write(blocks[0].0, &[7, 8]);
        let mut patches = Vec::new();
        image.flush(&mut patches);
        copy.apply(&patches);
        assert_eq!(copy.words(), image.words());
    }

    #[test]
    fn sizes_waste_little() {
        for words in 1..5000 {
            let size = block_words(words);
            assert!(size >= words && size.is_multiple_of(LINE_WORDS));
            assert!(size <= words + words / 4 + LINE_WORDS, "{words}: {size}");
        }
    }
}
