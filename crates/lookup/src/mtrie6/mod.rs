//! A multibit trie with buckets: IPv6 longest-prefix match in about three reads.
//!
//! A multibit trie takes several bits of the address at each node (Srinivasan, Varghese: Fast Address
//! Lookups Using Controlled Prefix Expansion, ACM TOCS 1999): few reads, but 104 bits below the usual
//! first table are many nodes for a single long prefix. Two things keep it small and shallow:
//!
//! - where few prefixes lie below a cell, there is no node but a bucket, one cache line with these
//!   prefixes, longest first, and the answer for what none of them covers. A bucket that overflows bursts
//!   into a node (Heinz, Zobel, Williams: Burst Tries, ACM TOIS 2002);
//! - a node takes as many bits as make it pay: the more prefixes below it, the more (Nilsson, Karlsson:
//!   IP-Address Lookup Using LC-Tries, IEEE JSAC 1999), so that most of the Internet's are one or two
//!   nodes away from their bucket.
//!
//! ```text
//!  root[first 18 bits]         node of s bits: 2^s cells       bucket, 64 bytes
//! ┌───┬─────────────┐         ┌───┬─────────────┐             ┌────────────────────────────┐
//! │ 0 │ answer      │     ┌──▶│ 0 │ answer      │         ┌──▶│ prefix · prefix · …        │
//! │ 1 │ s, node ────┼─────┘   │ 1 │ bucket ─────┼─────────┘   │ next hop · next hop · …    │
//! └───┴─────────────┘         └───┴─────────────┘             │ next hop of the rest       │
//!                                                             └────────────────────────────┘
//! ```
//!
//! Cells hold answers, pushed down from shorter prefixes, so that a search keeps nothing but where it is.
//! The default route is in the header and not in the cells.
//!
//! A lookup's number of steps varies, and each ends in a branch that the processor cannot foresee: it is
//! the lookup that switching pays for most. The forms are in `forms`, portable, and `avx512`.
//!
//! Thread rule: the builder has one owner; the view only reads.

#[cfg(target_arch = "x86_64")]
mod avx512;
mod builder;
mod forms;
mod heap;
mod layout;

pub use builder::{Limits, Mtrie6Builder};
pub use forms::State;

use crate::{Blob, Key6, Lpm, NextHopId};
use layout::*;

/// A view over the blob of an [`Mtrie6Builder`].
#[derive(Debug, Clone, Copy)]
pub struct Mtrie6<'a> {
    default: NextHopId,
    root: &'a [u32; ROOTS],
    lines: &'a [Line],
}

impl<'a> Mtrie6<'a> {
    /// Views `blob`; `None` when it is not such a table.
    pub fn new(blob: &'a Blob) -> Option<Self> {
        let words = blob.words();
        if *words.get(WORD_MAGIC)? != MAGIC {
            return None;
        }
        let (root, heap) = words.get(ROOT..)?.split_first_chunk()?;
        let (lines, _) = heap.as_chunks();
        // At least one line, so that every reference can be brought into range.
        lines.first()?;
        Some(Self { default: words[WORD_DEFAULT], root, lines })
    }

    /// The next hop of one address, or [`crate::NO_ROUTE`].
    pub fn lookup_one(&self, key: Key6) -> NextHopId {
        let (mut cell, mut at) = (self.root[root_of(key)], ROOT_BITS);
        while let Some(next) = self.descend(key, cell, &mut at) {
            cell = next;
        }
        self.answer(key, cell)
    }

    /// The next cell of a search, when `cell` names a node, whose bits begin at `at`.
    #[inline(always)]
    fn descend(&self, key: Key6, cell: u32, at: &mut u8) -> Option<u32> {
        if !is_node(cell) {
            return None;
        }
        let place = node_place(key, cell, *at);
        *at += node_bits(cell);
        // In range: the builder writes a node before it names it, and grows the heap before that.
        Some(self.lines.as_flattened().get(place).copied().unwrap_or(0))
    }

    /// The answer in a cell that names no node.
    #[inline(always)]
    fn answer(&self, key: Key6, cell: u32) -> NextHopId {
        let answer = if cell & FLAG == 0 { cell } else { self.in_bucket(key, cell) };
        if answer == 0 { self.default } else { answer }
    }

    #[inline(always)]
    fn in_bucket(&self, key: Key6, cell: u32) -> u32 {
        let Some(line) = self.lines.get(line_of(cell)) else { return 0 };
        if cell & KIND == KIND_SHORT { in_short(line, short_bits(key)) } else { in_wide(line, key) }
    }
}

impl Lpm<Key6> for Mtrie6<'_> {
    fn lookup(&self, keys: &[Key6], out: &mut [NextHopId]) {
        assert_eq!(keys.len(), out.len());
        #[cfg(target_arch = "x86_64")]
        if avx512::available() {
            // SAFETY: the processor has what the function is compiled for.
            return unsafe { avx512::batch(self, keys, out) };
        }
        self.lookup_grouped::<{ forms::GROUP }>(keys, out);
    }
}
