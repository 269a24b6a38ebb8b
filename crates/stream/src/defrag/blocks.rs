//! The bytes of incomplete datagrams, in blocks of one region.
//!
//! A datagram has a space of its own, of which only the blocks with bytes in them take memory. The header is right-aligned
//! in front of the payload, so that both are in one piece, wherever the header starts:
//!
//! ```text
//!  0          HEADER_ROOM                                            SPACE
//!  │ … header │ payload of the datagram, fragment offset 0 on         │
//!  ├── block 0 ────┼── block 1 ────┼── not taken ──┼── block 3 ── …
//! ```

use super::shares::NONE;

/// Most bytes of the headers in front of the payload, link header included.
pub const HEADER_ROOM: usize = 256;
/// Bytes of a block.
pub(super) const BLOCK: usize = 2048;
const SPACE: usize = HEADER_ROOM + 65_535;
/// Blocks of the largest datagram.
pub(super) const BLOCKS_MAX: usize = SPACE.div_ceil(BLOCK);

/// Blocks of a datagram by their place in its space; [`NONE`] where none is taken.
pub(super) type Space = [u32; BLOCKS_MAX];

/// All blocks. Memory is taken at creation.
#[derive(Clone, Debug)]
pub(super) struct Blocks {
    bytes: Vec<u8>,
    free: Vec<u32>,
}

impl Blocks {
    pub(super) fn new(blocks: usize) -> Self {
        Self { bytes: vec![0; blocks * BLOCK], free: (0..blocks as u32).rev().collect() }
    }

    /// Blocks that are not taken.
    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// Blocks that a range of a space lacks.
    pub(super) fn lacking(&self, space: &Space, start: usize, end: usize) -> usize {
        space[start / BLOCK..end.div_ceil(BLOCK)].iter().filter(|block| **block == NONE).count()
    }

    /// Takes the blocks that a range lacks; as many must be free. Returns how many were taken.
    pub(super) fn take(&mut self, space: &mut Space, start: usize, end: usize) -> usize {
        let before = self.free.len();
        let lacking = space[start / BLOCK..end.div_ceil(BLOCK)].iter_mut();
        for block in lacking.filter(|block| **block == NONE) {
            *block = self.free.pop().unwrap_or(NONE);
        }
        before - self.free.len()
    }

    /// Gives all blocks of a space back. Returns how many there were.
    pub(super) fn give_back(&mut self, space: &mut Space) -> usize {
        let before = self.free.len();
        self.free.extend(space.iter().filter(|block| **block != NONE));
        *space = [NONE; BLOCKS_MAX];
        self.free.len() - before
    }

    /// Calls `f` with each part of a range that is in one block, and with its offset in the range.
    fn parts(start: usize, end: usize, mut f: impl FnMut(usize, usize, usize, usize)) {
        let mut at = start;
        while at < end {
            let stop = end.min((at / BLOCK + 1) * BLOCK);
            f(at / BLOCK, at % BLOCK, stop - at, at - start);
            at = stop;
        }
    }

    fn place(block: u32, offset: usize, len: usize) -> std::ops::Range<usize> {
        let start = block as usize * BLOCK + offset;
        start..start + len
    }

    /// Writes `bytes` at `start`; the blocks must be taken.
    pub(super) fn write(&mut self, space: &Space, start: usize, bytes: &[u8]) {
        Self::parts(start, start + bytes.len(), |block, offset, len, from| {
            self.bytes[Self::place(space[block], offset, len)]
                .copy_from_slice(&bytes[from..from + len]);
        });
    }

    /// Whether the bytes at `start` are `bytes`.
    pub(super) fn equal(&self, space: &Space, start: usize, bytes: &[u8]) -> bool {
        let mut equal = true;
        Self::parts(start, start + bytes.len(), |block, offset, len, from| {
            equal &= self.bytes[Self::place(space[block], offset, len)] == bytes[from..from + len];
        });
        equal
    }

    /// Appends a range to `out`.
    pub(super) fn read(&self, space: &Space, start: usize, end: usize, out: &mut Vec<u8>) {
        Self::parts(start, end, |block, offset, len, _| {
            out.extend_from_slice(&self.bytes[Self::place(space[block], offset, len)]);
        });
    }
}
