//! The layout of the blob. Words are of 8 bytes; a line is 8 of them.
//!
//! ```text
//! line 0          magic │ words of a key │ buckets │ seed │ entries in the stash │ …
//! lines 1…16      the stash: entries that found no bucket, the first ones in use
//! then            the buckets, one line each
//!
//! keys of 8 bytes, 4 ways     key 0 │ key 1 │ key 2 │ key 3 │ value 0 │ value 1 │ value 2 │ value 3
//! keys of 16 bytes, 3 ways    key 0 (2) │ key 1 (2) │ key 2 (2) │ value 0, 1 │ value 2, –
//! ```
//!
//! Two values of 4 bytes in a word are named low first.
//!
//! A way that is empty holds a *filler*: a key that has neither of its buckets here. Nobody who looks for that
//! key ever comes to this line, so no mark and no test is needed, and every key may be stored. Two fillers
//! without a common bucket do for all lines: key 0 where it has no bucket, another one there.

use chunk::hash;

/// A cache line.
pub(super) type Line = [u64; 8];

pub(super) const WORDS_PER_LINE: usize = 8;
pub(super) const MAGIC: u64 = 0x6375_636b_6f6f_0001;
pub(super) const HEADER_MAGIC: usize = 0;
pub(super) const HEADER_KEY: usize = 1;
pub(super) const HEADER_BUCKETS: usize = 2;
pub(super) const HEADER_SEED: usize = 3;
pub(super) const HEADER_STASH: usize = 4;

/// Lines of the stash.
pub(super) const STASH_LINES: usize = 16;
pub(super) const STASH_LINE: usize = 1;
/// The first bucket.
pub(super) const BUCKET_LINE: usize = STASH_LINE + STASH_LINES;

/// Buckets at least: enough for two fillers without a common one.
pub(super) const BUCKETS_MIN: u32 = 16;

/// A key that a table can hold: 8 bytes (`u64`) with a value of 8, or 16 bytes (`[u64; 2]`) with a value of 4.
///
/// Implemented for these two and closed, for the layout of lines and the kernels know no others.
pub trait CuckooKey: Copy + Eq + std::fmt::Debug + Send + Sync + sealed::Key {
    /// What is beside a key.
    type Value: Copy + Eq + Default + std::fmt::Debug + Send + Sync;
    /// The answer for a key that is not there; no value may be this.
    const MISS: Self::Value;
    /// Entries of a line.
    const WAYS: usize;
}

impl CuckooKey for u64 {
    type Value = u64;
    const MISS: u64 = u64::MAX;
    const WAYS: usize = 4;
}

impl CuckooKey for [u64; 2] {
    type Value = u32;
    const MISS: u32 = u32::MAX;
    const WAYS: usize = 3;
}

pub(super) mod sealed {
    use super::{CuckooKey, Line, hash};

    /// How a key is in a line.
    pub trait Key: Sized {
        /// Words of 8 bytes.
        const WORDS: u64;
        /// Of 100 ways, those that may be in use before the table grows: the BFS finds paths up to 97 with
        /// 4 ways and up to 91 with 3, and gets dear before.
        const LOAD_MAX: usize;
        /// 64 good bits.
        fn hash(&self, seed: u64) -> u64;
        /// A key; the same for the same number.
        fn filler(number: u64) -> Self;
        /// What is in a way.
        fn way(line: &Line, way: usize) -> (Self, <Self as CuckooKey>::Value)
        where
            Self: CuckooKey;
        /// Writes a way.
        fn set_way(line: &mut Line, way: usize, entry: (Self, <Self as CuckooKey>::Value))
        where
            Self: CuckooKey;
        /// The value of this key in a line, or `MISS`.
        fn find(&self, line: &Line) -> <Self as CuckooKey>::Value
        where
            Self: CuckooKey;
    }

    impl Key for u64 {
        const WORDS: u64 = 1;
        const LOAD_MAX: usize = 90;

        #[inline(always)]
        fn hash(&self, seed: u64) -> u64 {
            hash::key64(*self, seed)
        }

        fn filler(number: u64) -> Self {
            number
        }

        fn way(line: &Line, way: usize) -> (u64, u64) {
            (line[way], line[4 + way])
        }

        fn set_way(line: &mut Line, way: usize, (key, value): (u64, u64)) {
            line[way] = key;
            line[4 + way] = value;
        }

        #[inline(always)]
        fn find(&self, line: &Line) -> u64 {
            // A key occurs once, so that the order says nothing and no branch is needed.
            let mut value = Self::MISS;
            for way in 0..4 {
                value = if line[way] == *self { line[4 + way] } else { value };
            }
            value
        }
    }

    impl Key for [u64; 2] {
        const WORDS: u64 = 2;
        const LOAD_MAX: usize = 82;

        #[inline(always)]
        fn hash(&self, seed: u64) -> u64 {
            hash::key128(*self, seed)
        }

        fn filler(number: u64) -> Self {
            [number, 0]
        }

        fn way(line: &Line, way: usize) -> ([u64; 2], u32) {
            let value = line[6 + way / 2] >> (32 * (way % 2));
            ([line[2 * way], line[2 * way + 1]], value as u32)
        }

        fn set_way(line: &mut Line, way: usize, (key, value): ([u64; 2], u32)) {
            line[2 * way..][..2].copy_from_slice(&key);
            let shift = 32 * (way % 2);
            let word = &mut line[6 + way / 2];
            *word = *word & !(0xffff_ffff << shift) | u64::from(value) << shift;
        }

        #[inline(always)]
        fn find(&self, line: &Line) -> u32 {
            let is = |way: usize| (line[2 * way] ^ self[0]) | (line[2 * way + 1] ^ self[1]) == 0;
            let mut value = Self::MISS;
            value = if is(0) { line[6] as u32 } else { value };
            value = if is(1) { (line[6] >> 32) as u32 } else { value };
            if is(2) { line[7] as u32 } else { value }
        }
    }
}

/// The two buckets of a hash.
#[inline(always)]
pub(super) fn buckets_of(hash: u64, buckets: u32) -> [u32; 2] {
    [hash::to_range((hash >> 32) as u32, buckets), hash::to_range(hash as u32, buckets)]
}
