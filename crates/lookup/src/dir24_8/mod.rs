//! DIR-24-8: IPv4 longest-prefix match in one memory access, rarely two.
//!
//! Gupta, Lin, McKeown: Routing Lookups in Hardware at Memory Access Speeds, INFOCOM 1998;
//! PacketShader §6.2.1. One cell for each of the 2^24 first three bytes. A cell holds the next hop,
//! or, where a prefix longer than 24 bits lies inside, the number of a group of 256 cells, one for
//! each last byte.
//!
//! ```text
//! words of the blob          cell
//! 0   magic                  31          30                        0
//! 1   default next hop       ├───────────┼─────────────────────────┤
//! 2   groups in the blob     │ extension │ next hop or group       │
//! 16  2^24 cells             └───────────┴─────────────────────────┘
//! …   256 cells per group    a group's cells are next hops; 0: the default route
//! ```
//!
//! The default route is in the header and not in the cells, so that changing it is one word.
//!
//! The accesses of a batch are independent, and out-of-order execution has dozens of them in flight:
//! software prefetch, at any distance from 15 to 128 keys, gained nothing that could be measured.
//! Where the processor gathers (AVX-512), a gather of 16 keys saves instructions: a fifth more
//! lookups.
//!
//! Thread rule: the builder has one owner; the view only reads.

mod builder;

pub use builder::{Dir24_8Builder, Limits};

use crate::{Blob, Lpm, NextHopId};

const MAGIC: u32 = 0x0024_0801;
const WORD_MAGIC: usize = 0;
const WORD_DEFAULT: usize = 1;
const WORD_GROUPS: usize = 2;
const CELLS: usize = 1 << 24;
const TBL24: usize = 16; // offset in words
const TBL8: usize = TBL24 + CELLS;
const EXTENSION: u32 = 1 << 31;

/// A view over the blob of a [`Dir24_8Builder`].
#[derive(Debug, Clone, Copy)]
pub struct Dir24_8<'a> {
    default: NextHopId,
    tbl24: &'a [u32; CELLS],
    tbl8: &'a [u32],
}

impl<'a> Dir24_8<'a> {
    /// Views `blob`; `None` when it is not such a table.
    pub fn new(blob: &'a Blob) -> Option<Self> {
        let words = blob.words();
        if *words.get(WORD_MAGIC)? != MAGIC {
            return None;
        }
        let (tbl24, tbl8) = words.get(TBL24..)?.split_first_chunk()?;
        Some(Self { default: words[WORD_DEFAULT], tbl24, tbl8 })
    }

    /// The next hop of one address, or [`crate::NO_ROUTE`].
    #[inline]
    pub fn lookup_one(&self, key: u32) -> NextHopId {
        self.settle(key, self.tbl24[(key >> 8) as usize])
    }

    /// How many cache lines a lookup reads: 2 where more than 24 bits decide.
    pub fn lines_read(&self, key: u32) -> u32 {
        1 + u32::from(self.tbl24[(key >> 8) as usize] & EXTENSION != 0)
    }

    /// From the cell of the first level to the answer.
    #[inline(always)]
    fn settle(&self, key: u32, mut cell: u32) -> NextHopId {
        if cell & EXTENSION != 0 {
            // In range: the builder grows the blob before it names a group.
            let index = ((cell & !EXTENSION) << 8 | key & 0xff) as usize;
            cell = self.tbl8.get(index).copied().unwrap_or(0);
        }
        if cell == 0 { self.default } else { cell }
    }

    /// The portable batch.
    pub fn lookup_scalar(&self, keys: &[u32], out: &mut [NextHopId]) {
        assert_eq!(keys.len(), out.len());
        for (key, out) in keys.iter().zip(out) {
            *out = self.lookup_one(*key);
        }
    }
}

impl Lpm<u32> for Dir24_8<'_> {
    fn lookup(&self, keys: &[u32], out: &mut [NextHopId]) {
        assert_eq!(keys.len(), out.len());
        let done = crate::arch::dir24_8_lookup(self.tbl24, self.tbl8, self.default, keys, out);
        self.lookup_scalar(&keys[done..], &mut out[done..]);
    }
}
