//! The layout of the image.
//!
//! ```text
//! line 0       magic │ words of a header │ trees │ levels of nodes │ words of a block │ –
//! lines 1…3    the trees, eight words each: bits of src, dst (2) │ of ports, protocol (2) │ shift │ first node │ –
//! line 4…      a block without rules
//!
//! node         bits (2) │ bits (2) │ shift │ first node of the next level, or first cell │ –       eight words
//! cell         line of the first block << 8 │ blocks                             a word
//! block        src [8] │ dst [8] ║ ports from [8] │ lengths [8] ║ misc [8] │ – ║ Match [8]       four lines
//! wide block   src [8] │ dst [8] ║ ports from [8] │ lengths [8] ║ misc [8] │ value [8] ║ mask [8] │ – ║ Match [8]
//! misc         protocol │ its mask │ 32 - length of dst │ 32 - length of src      a byte each, the highest first
//! ```
//!
//! mask block   Match [8] ║ value of the first word [8] │ its mask [8] ║ …         a line more for each word of a header
//!
//! Images of masks say in line 0 how many words of a header rules look at, and which four of them are cut at.
//! Wide blocks are for schemas whose last word holds more than a protocol: value and mask are of that word.

use crate::image::LINE_WORDS;
use crate::rule::Match;

pub(super) const MAGIC: u32 = 0x6375_7401;
/// Of images with blocks of masks.
pub(super) const MAGIC_MASKS: u32 = 0x6375_7402;
pub(super) const HEADER_MAGIC: usize = 0;
pub(super) const HEADER_TREES: usize = 2;
pub(super) const HEADER_BLOCK: usize = 4;
pub(super) const HEADER_FORM: usize = 5;

/// Words of a header of the 5-tuple.
pub(super) const WORDS: usize = 4;

/// Trees at most.
pub(super) const TREES_MAX: usize = 5;

/// Levels of nodes below a tree's own cut, at most.
pub(super) const LEVELS_MAX: usize = 2;

/// The first tree.
pub(super) const TREES: usize = LINE_WORDS;

/// Words of a tree, and of a node.
pub(super) const NODE_WORDS: usize = 8;

/// The line of the block without rules.
pub(super) const EMPTY_LINE: usize = 4;

/// Words before the first block at least.
pub(super) const FRAME_WORDS: usize = EMPTY_LINE * LINE_WORDS + WIDE;

/// Rules of a block.
pub(super) const LANES: usize = 8;

/// Words of a block, and of a wide one.
pub(super) const NARROW: usize = 64;
/// See [`NARROW`].
pub(super) const WIDE: usize = 80;

/// First words of the columns of a block.
pub(super) const SRC: usize = 0;
pub(super) const DST: usize = 8;
pub(super) const PORTS: usize = 16;
pub(super) const LENGTHS: usize = 24;
pub(super) const MISC: usize = 32;
pub(super) const VALUE: usize = 40;
pub(super) const MASK: usize = 48;

/// The same of the matches, which end a block.
pub(super) const fn matches(block_words: usize) -> usize {
    block_words - 2 * LANES
}

/// Blocks of a leaf at most, as a cell tells them.
pub(super) const BLOCKS_MAX: usize = 255;

const _: () = assert!(TREES + TREES_MAX * NODE_WORDS <= EMPTY_LINE * LINE_WORDS);
const _: () = assert!(MISC + LANES <= matches(NARROW) && MASK + LANES <= matches(WIDE));

/// Bits of a header that a tree or a node looks at: of source and destination, then of ports and protocol.
pub(super) type Bits = [u64; 2];

/// A header as two numbers.
#[inline(always)]
pub(super) fn halves(header: &[u32; WORDS]) -> Bits {
    let [src, dst, ports, proto] = header.map(u64::from);
    [src << 32 | dst, ports << 32 | proto]
}

/// A tree or a node: which bits, and what they number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) bits: Bits,
    /// Word of the first node or cell.
    pub(super) first: u32,
}

impl Node {
    pub(super) fn to_words(self) -> [u32; NODE_WORDS] {
        let [a, b] = self.bits;
        let shift = a.count_ones();
        [a as u32, (a >> 32) as u32, b as u32, (b >> 32) as u32, shift, self.first, 0, 0]
    }
}

/// The bits of `value` under `mask`, one beside the other: `pext` of BMI2.
pub(super) fn extract(value: u64, mut mask: u64) -> u64 {
    let (mut out, mut at) = (0, 0);
    while mask != 0 {
        out |= (value >> mask.trailing_zeros() & 1) << at;
        at += 1;
        mask &= mask - 1;
    }
    out
}

/// What the bits of a header number.
pub(super) fn number(header: &Bits, bits: &Bits) -> usize {
    let high = extract(header[1], bits[1]) << bits[0].count_ones();
    (extract(header[0], bits[0]) | high) as usize
}

/// A cell.
pub(super) fn cell(line: u32, blocks: u32) -> u32 {
    line << 8 | blocks
}

/// A block of the 5-tuple without rules.
pub(super) fn empty_block(block_words: usize) -> &'static [u32] {
    const EMPTY_NARROW: [u32; NARROW] = empty();
    const EMPTY_WIDE: [u32; WIDE] = empty();
    if block_words == WIDE { &EMPTY_WIDE } else { &EMPTY_NARROW }
}

const fn empty<const B: usize>() -> [u32; B] {
    let (mut block, mut lane, none) = ([0; B], 0, Match::NONE.to_words());
    while lane < LANES {
        block[LENGTHS + lane] = u32::MAX;
        block[MISC + lane] = 32 << 8 | 32;
        block[matches(B) + 2 * lane] = none[0];
        block[matches(B) + 2 * lane + 1] = none[1];
        lane += 1;
    }
    block
}
