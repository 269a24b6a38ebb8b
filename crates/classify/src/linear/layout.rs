//! The layout of the image.

use crate::image::LINE_WORDS;
use crate::schema::Schema;

/// Rules of a block.
pub(super) const LANES: usize = 16;

/// The same word of the rules of a block.
pub(super) type Column = [u32; LANES];

pub(super) const MAGIC: u32 = 0x6c69_6e01;
pub(super) const HEADER_MAGIC: usize = 0;
pub(super) const HEADER_WORDS: usize = 1;
pub(super) const HEADER_TESTS: usize = 2;
pub(super) const HEADER_ORDERED: usize = 3;
pub(super) const HEADER_BLOCKS: usize = 4;

/// The first test; four words each.
pub(super) const TESTS: usize = LINE_WORDS;

/// Tests at most: one for each word, and ranges of more than 16 bits have a word each.
pub(super) const TESTS_MAX: usize = 2 * crate::schema::WORDS_MAX;

/// What is looked at in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TestKind {
    Masked = 0,
    Halves = 1,
    Wide = 2,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Test {
    pub(super) kind: TestKind,
    pub(super) word: usize,
    pub(super) shift: u32,
    pub(super) max: u32,
}

impl Test {
    pub(super) fn to_words(self) -> [u32; 4] {
        [self.kind as u32, self.word as u32, self.shift, self.max]
    }

    pub(super) fn from_words([kind, word, shift, max]: [u32; 4]) -> Option<Self> {
        let kind = match kind {
            0 => TestKind::Masked,
            1 => TestKind::Halves,
            2 => TestKind::Wide,
            _ => return None,
        };
        Some(Self { kind, word: word as usize, shift, max }).filter(|test| test.shift < 32)
    }

    /// What a header brings to the test.
    #[inline(always)]
    pub(super) fn operand(&self, header: &[u32]) -> u32 {
        header[self.word] >> self.shift & self.max
    }

    /// What a rule brings: value and mask, or lowest value and length.
    pub(super) fn of_rule(&self, lows: &[u32], highs: &[u32], masked_bits: &[u32]) -> [u32; 2] {
        let (low, high) = (self.operand(lows), self.operand(highs));
        match self.kind {
            TestKind::Masked => {
                let bits = masked_bits[self.word];
                [low & bits, high & bits]
            }
            TestKind::Halves => {
                let half = |low: u32, high: u32| high.wrapping_sub(low) & 0xffff;
                [low, half(low >> 16, high >> 16) << 16 | half(low, high)]
            }
            TestKind::Wide => [low, high.wrapping_sub(low)],
        }
    }

    /// What an empty place holds: a masked test refuses every header then. Where there is none, the empty
    /// place's [`Match`](crate::Match) does not count.
    pub(super) fn of_nothing(&self) -> [u32; 2] {
        match self.kind {
            TestKind::Masked => [1, 0],
            TestKind::Halves | TestKind::Wide => [self.max, 0],
        }
    }
}

/// The tests that a schema needs.
pub(super) fn tests(schema: &Schema) -> Vec<Test> {
    let mut tests = Vec::new();
    for word in 0..schema.words() {
        if schema.masked_bits()[word] != 0 {
            tests.push(Test { kind: TestKind::Masked, word, shift: 0, max: u32::MAX });
        }
        let ranges: Vec<_> = schema.ranges().filter(|place| place.word == word).collect();
        if ranges.is_empty() {
            continue;
        }
        if ranges.iter().all(|place| place.max == 0xffff && place.shift.is_multiple_of(16)) {
            // A half that is not a range must bring the same on both sides.
            let max = ranges.iter().fold(0, |max, place| max | place.max << place.shift);
            tests.push(Test { kind: TestKind::Halves, word, shift: 0, max });
        } else {
            let wide = |place: &crate::schema::Place| Test {
                kind: TestKind::Wide,
                word,
                shift: place.shift,
                max: place.max,
            };
            tests.extend(ranges.iter().map(wide));
        }
    }
    tests
}

/// The first block.
pub(super) fn blocks_offset(tests: usize) -> usize {
    (TESTS + 4 * tests).next_multiple_of(LINE_WORDS)
}

/// Words of a block.
pub(super) fn block_words(tests: usize) -> usize {
    (2 * tests + 2) * LANES
}
