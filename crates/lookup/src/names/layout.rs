//! The layout of the blob. A line is 64 bytes: 8 words of 8 bytes, or 16 of 4.
//!
//! ```text
//! line 0      magic │ seed │ hint lines │ bucket lines │ name lines │ default next hop │ depths to ask, hint depth
//! hints       5 × hash (8 bytes) │ 5 × depths (4 bytes) │ overflow
//! buckets     4 × tag │ 4 × next hop │ 4 × name │ 4 × length (2 bytes) │ 4 × depth (1 byte) │ overflow
//! names       the encodings of prefixes, from units of 16 bytes; none of at most 64 bytes crosses a line
//! ```
//!
//! A hint says of a name's first `hint depth` components at which depths prefixes below them exist. It is
//! found by the whole hash; names that share it share the hint, which then says what is true of either.
//! An entry is found by its tag, the low half of its hash, and then compared byte by byte. `name` counts
//! units from the start of the names. A free hint has no depths, a free entry no next hop. `overflow` counts
//! the entries that found this line full and went on to a later one. At least one hint line and one bucket line
//! has none, so that every search ends.

/// A cache line.
pub(super) type Line = [u64; 8];

pub(super) const MAGIC: u64 = 0x0073_656d_616e_0001;
pub(super) const HEADER_MAGIC: usize = 0;
pub(super) const HEADER_SEED: usize = 1;
pub(super) const HEADER_HINTS: usize = 2;
pub(super) const HEADER_BUCKETS: usize = 3;
pub(super) const HEADER_DEFAULT: usize = 4;
pub(super) const HEADER_DEPTHS: usize = 5; // always asked; from bit 32 on the depth of hints

pub(super) const HINTS: usize = 5;
pub(super) const ENTRIES: usize = 4;
pub(super) const UNIT_BYTES: usize = 16;
pub(super) const LINE_UNITS: u32 = 4;

/// What the header says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) hints: u32, // lines, at least 1
    pub(super) buckets: u32,
}

impl Shape {
    pub(super) const HINT_LINE: u32 = 1;

    pub(super) fn bucket_line(&self) -> u32 {
        Self::HINT_LINE + self.hints
    }

    pub(super) fn name_line(&self) -> u32 {
        self.bucket_line() + self.buckets
    }

    #[inline(always)]
    pub(super) fn hint_of(&self, hash: u64) -> u32 {
        Self::HINT_LINE + scale(hash, self.hints)
    }

    #[inline(always)]
    pub(super) fn bucket_of(&self, hash: u64) -> u32 {
        self.bucket_line() + scale(hash, self.buckets)
    }

    #[inline(always)]
    pub(super) fn next_hint(&self, line: u32) -> u32 {
        if line + 1 < self.bucket_line() { line + 1 } else { Self::HINT_LINE }
    }

    #[inline(always)]
    pub(super) fn next_bucket(&self, line: u32) -> u32 {
        if line + 1 < self.name_line() { line + 1 } else { self.bucket_line() }
    }
}

/// From the upper bits of a hash of 61 to 0..count.
#[inline(always)]
fn scale(hash: u64, count: u32) -> u32 {
    (((hash >> 29) * u64::from(count)) >> 32) as u32
}

#[inline(always)]
pub(super) fn half(line: &Line, index: usize) -> u32 {
    (line[index / 2] >> (32 * (index % 2))) as u32
}

pub(super) fn set_half(line: &mut Line, index: usize, value: u32) {
    let shift = 32 * (index % 2);
    let word = &mut line[index / 2];
    *word = *word & !(0xffff_ffff << shift) | u64::from(value) << shift;
}

#[inline(always)]
pub(super) fn overflow(line: &Line) -> u32 {
    half(line, 15)
}

#[inline(always)]
pub(super) fn hint_depths(line: &Line, index: usize) -> u32 {
    half(line, 2 * HINTS + index)
}

pub(super) fn set_hint(line: &mut Line, index: usize, hash: u64, depths: u32) {
    line[index] = hash;
    set_half(line, 2 * HINTS + index, depths);
}

/// Which hint of a line is a hash's.
#[inline(always)]
pub(super) fn find_hint(line: &Line, hash: u64) -> Option<usize> {
    (0..HINTS).find(|i| line[*i] == hash && hint_depths(line, *i) != 0)
}

/// One entry of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Entry {
    pub(super) tag: u32,
    pub(super) next_hop: u32,
    pub(super) name: u32, // unit
    pub(super) len: u16,
    pub(super) depth: u8,
}

#[inline(always)]
pub(super) fn tag(line: &Line, index: usize) -> u32 {
    half(line, index)
}

#[inline(always)]
pub(super) fn entry(line: &Line, index: usize) -> Entry {
    Entry {
        tag: tag(line, index),
        next_hop: half(line, 4 + index),
        name: half(line, 8 + index),
        len: (line[6] >> (16 * index)) as u16,
        depth: (line[7] >> (8 * index)) as u8,
    }
}

pub(super) fn set_entry(line: &mut Line, index: usize, entry: Entry) {
    set_half(line, index, entry.tag);
    set_half(line, 4 + index, entry.next_hop);
    set_half(line, 8 + index, entry.name);
    line[6] = line[6] & !(0xffff << (16 * index)) | u64::from(entry.len) << (16 * index);
    line[7] = line[7] & !(0xff << (8 * index)) | u64::from(entry.depth) << (8 * index);
}

/// Words of a name as they stand in the table: 8 bytes each, zeros behind the last.
pub(super) fn words_of(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks(8).map(last_word)
}

/// Whether words of the table are a name's.
#[inline(always)]
pub(super) fn is_name(words: &[u64], bytes: &[u8]) -> bool {
    let (whole, rest) = bytes.as_chunks::<8>();
    words.len() == bytes.len().div_ceil(8)
        && whole.iter().zip(words).all(|(bytes, word)| u64::from_ne_bytes(*bytes) == *word)
        && (rest.is_empty() || words.last() == Some(&last_word(rest)))
}

/// At most 8 bytes, and zeros.
#[inline(always)]
fn last_word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_ne_bytes(word)
}

/// The depths up to `depth`, one bit each.
#[inline(always)]
pub(super) fn up_to(depth: usize) -> u32 {
    u32::MAX >> ((31 - depth as u32) & 31)
}
