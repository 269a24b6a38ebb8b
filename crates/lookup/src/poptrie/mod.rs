//! Poptrie: IPv4 longest-prefix match in a table that a processor's own caches nearly hold.
//!
//! Asai, Ohara: Poptrie: A Compressed Trie with Population Count for Fast and Scalable Software IP
//! Routing Table Lookup, SIGCOMM 2015. The first 18 bits of an address index an array (the paper's
//! direct pointing, §3.4). Where all 64 following /24s have one answer, it is there. Elsewhere a
//! record holds 64 bits, one for each /24, set where another answer begins than the /24 before had
//! (§3.3), and behind them these answers, in order: the count of the bits up to the address's own is the
//! number of its answer.
//!
//! ```text
//!  direct[first 18 bits]            record                        group, as in DIR-24-8
//! ┌───┬──────────────────┐         ┌───────────────────────┐     ┌───────────────────────┐
//! │ 0 │ answer           │    ┌───▶│ 64 bits: runs begin   │ ┌──▶│ 256 answers, one for  │
//! │ 1 │ record ──────────┼────┘    │ answer · answer · ─┼──┼─┘   │ each last byte        │
//! └───┴──────────────────┘         └───────────────────────┘     └───────────────────────┘
//! ```
//!
//! Two things are not as in the paper. A route longer than 24 bits is rare in the Internet, so that one
//! level of records is enough; below it are plain groups, and an answer with its flag set is the number
//! of one. And answers are in the record itself instead of in an array of their own: mostly on the line
//! that has been read for the bits.
//!
//! Answers take 16 bits, as the paper's, while all next hops are below 2^15, and 32 bits from the first
//! one that is not; then the table is made anew. The full table takes 5 to 8 MB so, against 64 MB of DIR-24-8.
//!
//! | forms, by module | |
//! | --- | --- |
//! | `forms` | one `async` source, plain and switched; a machine; a group; all portable |
//! | `avx512` | 16 addresses to a vector, the fastest where the processor has it |
//!
//! Thread rule: the builder has one owner; the view only reads.

#[cfg(target_arch = "x86_64")]
mod avx512;
mod builder;
mod forms;
mod pages;

pub use builder::{Limits, PoptrieBuilder};
pub use forms::State;

use crate::{Blob, Lpm, NextHopId};

/// Bits that index the array.
const DIRECT_BITS: u8 = 18;
const DIRECTS: usize = 1 << DIRECT_BITS;
const MAGIC: u32 = 0x0018_0624;
const WORD_MAGIC: usize = 0;
const WORD_DEFAULT: usize = 1;
/// 1 where answers take 32 bits.
const WORD_WIDE: usize = 2;
const DIRECT: usize = 16; // offset in words
const HEAP: usize = DIRECT + DIRECTS;
/// Words of a page of the heap, which is also what a group takes.
const PAGE_WORDS: usize = 256;
/// In an entry of the array: the rest is a record's offset in the heap, in units of 8 bytes. In an answer
/// of 32 bits: the rest is a group's page.
const FLAG: u32 = 1 << 31;
/// The same in an answer of 16 bits.
const FLAG16: u32 = 1 << 15;

/// A view over the blob of a [`PoptrieBuilder`].
#[derive(Debug, Clone, Copy)]
pub struct Poptrie<'a> {
    default: NextHopId,
    wide: bool,
    direct: &'a [u32; DIRECTS],
    heap: &'a [u32],
}

impl<'a> Poptrie<'a> {
    /// Views `blob`; `None` when it is not such a table.
    pub fn new(blob: &'a Blob) -> Option<Self> {
        let words = blob.words();
        if *words.get(WORD_MAGIC)? != MAGIC {
            return None;
        }
        let (direct, heap) = words.get(DIRECT..)?.split_first_chunk()?;
        let wide = words[WORD_WIDE] != 0;
        Some(Self { default: words[WORD_DEFAULT], wide, direct, heap })
    }

    /// The next hop of one address, or [`crate::NO_ROUTE`].
    #[inline]
    pub fn lookup_one(&self, key: u32) -> NextHopId {
        let entry = self.direct[direct_of(key)];
        if entry & FLAG == 0 { self.or_default(entry) } else { self.in_record(key, entry) }
    }

    /// From an entry with its flag set to the answer.
    #[inline(always)]
    fn in_record(&self, key: u32, entry: u32) -> NextHopId {
        if self.wide { self.settle::<true>(key, entry) } else { self.settle::<false>(key, entry) }
    }

    #[inline(always)]
    fn settle<const WIDE: bool>(&self, key: u32, entry: u32) -> NextHopId {
        // In range: the builder writes a record before it names it, and grows the heap before that.
        let word = |at: usize| self.heap.get(at).copied().unwrap_or(0);
        let record = (entry & !FLAG) as usize * 2;
        let runs = u64::from(word(record)) | u64::from(word(record + 1)) << 32;
        let number = run_of(runs, key);
        let (answer, group) = if WIDE {
            let answer = word(record + 1 + number);
            (answer, answer & FLAG != 0)
        } else {
            let at = record * 2 + 3 + number;
            let answer = word(at / 2) >> (at % 2 * 16) & 0xffff;
            (answer, answer & FLAG16 != 0)
        };
        if !group {
            return self.or_default(answer);
        }
        let page = if WIDE { answer & !FLAG } else { answer & !FLAG16 } as usize;
        self.or_default(word(page * PAGE_WORDS + (key & 0xff) as usize))
    }

    #[inline(always)]
    fn or_default(&self, answer: u32) -> NextHopId {
        if answer == 0 { self.default } else { answer }
    }
}

/// Where an address's entry is.
#[inline(always)]
fn direct_of(key: u32) -> usize {
    (key >> (32 - DIRECT_BITS)) as usize
}

/// Which answer of a record is the address's, counted from 1.
#[inline(always)]
fn run_of(runs: u64, key: u32) -> usize {
    (runs << (63 - (key >> 8 & 63))).count_ones() as usize
}

impl Lpm<u32> for Poptrie<'_> {
    fn lookup(&self, keys: &[u32], out: &mut [NextHopId]) {
        assert_eq!(keys.len(), out.len());
        #[cfg(target_arch = "x86_64")]
        if avx512::available() {
            // SAFETY: the processor has what the function is compiled for.
            return unsafe { avx512::batch(self, keys, out) };
        }
        self.lookup_grouped::<{ forms::GROUP }>(keys, out);
    }
}
