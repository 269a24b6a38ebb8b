//! Range expressions as instructions, and how they are in blocks.

use crate::reduction::fields::{Range, Tail};

/// Bytes of a block of code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Block {
    /// Half a cache line: the paper's choice for memories without caches (§6.5).
    Bytes32,
    /// A cache line.
    #[default]
    Bytes64,
}

impl Block {
    /// Its words.
    pub(super) fn words(self) -> usize {
        match self {
            Self::Bytes32 => 8,
            Self::Bytes64 => 16,
        }
    }

    /// A block of so many bytes; `None` for what is neither 32 nor 64.
    pub fn of_bytes(bytes: usize) -> Option<Self> {
        [Self::Bytes32, Self::Bytes64].into_iter().find(|block| 4 * block.words() == bytes)
    }
}

/// The list ends with this instruction.
pub(super) const LAST: u32 = 0x80;
/// The protocol must be equal.
pub(super) const PROTO: u32 = 0x40;
/// In place of the source port's class: no range expression.
pub(super) const SPECIAL: u32 = 7;
/// In place of the destination port's class: the rest of the block is empty.
pub(super) const NOP: u32 = 0;
/// The upper 16 bits of rule numbers from here on.
pub(super) const BASE: u32 = 1;
/// The next instruction counts only if the protocol matches value and mask.
pub(super) const GUARD: u32 = 2;

/// Operands of a port by its class.
pub(super) const OPERANDS: [u32; 8] = [0, 0, 0, 1, 2, 0, 0, 0];
/// Lowest port of a class without operands.
pub(super) const LOWS: [u32; 8] = [0, 1024, 0, 0, 0, 0, 0, 0];
/// Highest port.
pub(super) const HIGHS: [u32; 8] = [0xffff, 0xffff, 1023, 0, 0, 0, 0, 0];

const fn special(kind: u32) -> u32 {
    (SPECIAL << 3 | kind) << 24
}

/// A word of padding.
pub(super) const NOP_WORD: u32 = special(NOP);

/// How a structure's instructions look (TIC Tables 4 and 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Report {
    /// Range expressions of 4, 8 and 12 bytes.
    pub instructions: [u64; 3],
    /// BASE instructions, which the paper does not have: for numbers of rules beyond 16 bits.
    pub bases: u64,
    /// GUARD instructions, which the paper does not have: for protocols under a mask.
    pub guards: u64,
    /// Words of padding.
    pub padding_words: u64,
    /// Lists of candidates.
    pub lists: u64,
    /// Rules of the longest list.
    pub rules_max: u64,
    /// Of them, those that one block holds.
    pub in_one_block: u64,
    /// Blocks.
    pub blocks: u64,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Bytes of the reduction tree (Table 6's RT).
    pub tree_bytes: u64,
    /// Bytes of all blocks (Table 6's Code).
    pub code_bytes: u64,
    /// Bytes that entries of the table of addresses count in.
    pub unit_bytes: u64,
}

impl Report {
    /// Range expressions of all sizes: rules of all lists together.
    pub fn ranges(&self) -> u64 {
        self.instructions.iter().sum()
    }

    /// The part of range expressions of 4, 8 and 12 bytes; 0 where there are none.
    pub fn parts(&self) -> [f64; 3] {
        self.instructions.map(|count| count as f64 / self.ranges().max(1) as f64)
    }

    /// Rules of a list, in the mean.
    pub fn rules_per_list(&self) -> f64 {
        self.ranges() as f64 / self.lists.max(1) as f64
    }

    /// The mean size of a range expression, in words of 4 bytes.
    pub fn mean_words(&self) -> f64 {
        let [four, eight, twelve] = self.instructions;
        (four + 2 * eight + 3 * twelve) as f64 / self.ranges().max(1) as f64
    }
}

/// A list's instructions, one after the other, and the words of each.
#[derive(Debug, Clone, Default)]
pub(super) struct List {
    words: Vec<u32>,
    lengths: Vec<u8>,
}

/// Class and operands of a port.
fn port((low, high): Range) -> (u32, Vec<u16>) {
    match (low, high) {
        (0, 0xffff) => (0, vec![]),
        (1024, 0xffff) => (1, vec![]),
        (0, 1023) => (2, vec![]),
        (low, high) if low == high => (3, vec![low]),
        (low, high) => (4, vec![low, high]),
    }
}

impl List {
    /// The instructions of rules, best first, by number and what they want.
    pub(super) fn new<'t>(
        rules: impl Iterator<Item = (u32, &'t Tail)>,
        report: &mut Report,
    ) -> Self {
        let mut list = Self::default();
        let mut base = 0;
        let before = report.ranges();
        // Where the last operator is.
        let mut last = None;
        for (rule, tail) in rules {
            if rule >> 16 != base {
                base = rule >> 16;
                list.push(&[special(BASE) | base]);
                report.bases += 1;
            }
            let (value, mask) = tail.proto;
            if mask != 0 && mask != 255 {
                list.push(&[special(GUARD) | u32::from(value) << 16 | u32::from(mask) << 8]);
                report.guards += 1;
            }
            let proto = if mask == 255 { PROTO } else { 0 };
            let (sport, mut operands) = port(tail.sport);
            let (dport, more) = port(tail.dport);
            operands.extend(more);
            let operator = proto | sport << 3 | dport;
            let value = if mask == 255 { u32::from(value) } else { 0 };
            let mut words = vec![operator << 24 | value << 16 | rule & 0xffff];
            for pair in operands.chunks(2) {
                let high = pair.get(1).map_or(0, |high| u32::from(*high) << 16);
                words.push(u32::from(pair[0]) | high);
            }
            last = Some(list.words.len());
            report.instructions[words.len() - 1] += 1;
            list.push(&words);
        }
        report.rules_max = report.rules_max.max(report.ranges() - before);
        match last {
            Some(at) => list.words[at] |= LAST << 24,
            None => list.push(&[NOP_WORD | LAST << 24]),
        }
        list
    }

    /// Words of all instructions.
    pub(super) fn len(&self) -> usize {
        self.words.len()
    }

    fn push(&mut self, words: &[u32]) {
        self.words.extend_from_slice(words);
        self.lengths.push(words.len() as u8);
    }

    /// The words from the beginning of a block on, with padding where it is needed.
    pub(super) fn in_blocks(self, block: usize) -> Vec<u32> {
        if self.words.len() <= block {
            return self.words;
        }
        let mut words = Vec::with_capacity(self.words.len() + self.words.len() / 8);
        let mut rest = self.words.as_slice();
        for length in self.lengths {
            let (instruction, behind) = rest.split_at(length.into());
            if words.len() % block + instruction.len() > block {
                words.resize(words.len().next_multiple_of(block), NOP_WORD);
            }
            words.extend_from_slice(instruction);
            rest = behind;
        }
        words
    }
}

/// Where lists are.
#[derive(Debug, Default)]
pub(super) struct Layout {
    /// First word of each.
    pub(super) starts: Vec<u32>,
    /// Words of all blocks.
    pub(super) words: usize,
}

impl Layout {
    /// Lists of these lengths in blocks, so that each begins at a multiple of `unit` and one that fits into a
    /// block is in one.
    pub(super) fn new(lengths: &[usize], block: usize, unit: usize) -> Self {
        let mut order: Vec<u32> = (0..lengths.len() as u32).collect();
        order.sort_by_key(|list| std::cmp::Reverse(lengths[*list as usize]));
        let mut layout = Self { starts: vec![0; lengths.len()], words: 0 };
        // Unused ends of blocks, by their words.
        let mut gaps: Vec<Vec<usize>> = vec![Vec::new(); block + 1];
        for list in order {
            let length = lengths[list as usize];
            let taken = length.next_multiple_of(unit);
            let gap =
                if taken <= block { (taken..block).find(|n| !gaps[*n].is_empty()) } else { None };
            let (start, end) = match gap.and_then(|gap| gaps[gap].pop().map(|at| (at, gap))) {
                Some((start, gap)) => (start, start + gap),
                None => {
                    let start = layout.words;
                    layout.words += length.next_multiple_of(block);
                    (start, layout.words)
                }
            };
            layout.starts[list as usize] = start as u32;
            let left = end - (start + taken).min(end);
            if left > 0 {
                gaps[left].push(start + taken);
            }
        }
        layout
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail(sport: Range, dport: Range, proto: (u8, u8)) -> Tail {
        Tail { sport, dport, proto }
    }

    #[test]
    fn instructions_are_as_in_figure_3() {
        const ANY: Range = (0, 0xffff);
        let rules = [
            (5, tail(ANY, ANY, (6, 255))),
            (6, tail((80, 80), (1024, 0xffff), (0, 0))),
            (9, tail((1, 2), (3, 3), (17, 255))),
            (0x2_0001, tail((0, 1023), (3, 4), (16, 0xf0))),
        ];
        let mut report = Report::default();
        let list = List::new(rules.iter().map(|(rule, tail)| (*rule, tail)), &mut report);
        let expected = [
            0x40 << 24 | 6 << 16 | 5,
            (3 << 3 | 1) << 24 | 6,
            80,
            (0x40 | 4 << 3 | 3) << 24 | 17 << 16 | 9,
            2 << 16 | 1,
            3,
            (7 << 3 | 1) << 24 | 2,
            (7 << 3 | 2) << 24 | 16 << 16 | 0xf0 << 8,
            (0x80 | 2 << 3 | 4) << 24 | 1,
            4 << 16 | 3,
        ];
        assert_eq!(list.words, expected);
        assert_eq!((report.instructions, report.bases, report.guards), ([1, 2, 1], 1, 1));
        assert_eq!((report.mean_words(), report.rules_max), (2.0, 4));
        assert_eq!(report.parts(), [0.25, 0.5, 0.25]);
        // In blocks of eight words: the last instruction would be in two.
        let blocks = List { words: list.words.clone(), lengths: list.lengths.clone() };
        let mut report = Report::default();
        let mut words = blocks.in_blocks(8);
        assert_eq!(words.len(), 10);
        words = List { words: list.words[2..].to_vec(), lengths: vec![1, 3, 1, 1, 2] }.in_blocks(4);
        assert_eq!(words[..4], expected[2..6]);
        assert_eq!(words[4..], expected[6..]);
        words = List { words: expected[3..].to_vec(), lengths: vec![3, 1, 1, 2] }.in_blocks(4);
        assert_eq!(words[4..], [expected[7], expected[8], expected[9]]);
        let words = List { words: expected[1..6].to_vec(), lengths: vec![2, 3] }.in_blocks(4);
        assert_eq!(words, [expected[1], 80, NOP_WORD, NOP_WORD, expected[3], expected[4], 3]);
        let none = List::new(std::iter::empty(), &mut report);
        assert_eq!(none.words, [0xb8 << 24]);
    }

    #[test]
    fn lists_stand_apart_and_within_blocks() {
        for (block, unit) in [(16, 1), (16, 4), (16, 16), (8, 2), (8, 8)] {
            let length = |at: u32| {
                1 + chunk::hash::fmix32(at) as usize % if at.is_multiple_of(9) { 50 } else { 6 }
            };
            let lengths: Vec<usize> = (0..500).map(length).collect();
            let layout = Layout::new(&lengths, block, unit);
            let mut used = vec![false; layout.words];
            for (start, length) in layout.starts.iter().zip(&lengths) {
                let start = *start as usize;
                assert_eq!(start % unit, 0);
                assert!(start % block + length <= block || start.is_multiple_of(block));
                used[start..start + length].iter_mut().for_each(|used| {
                    assert!(!*used);
                    *used = true;
                });
            }
            let least: usize = lengths.iter().map(|l| l.next_multiple_of(unit)).sum();
            assert!(layout.words <= least + least / 4 + block, "{} {least}", layout.words);
        }
    }
}
