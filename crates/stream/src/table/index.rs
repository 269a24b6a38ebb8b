//! The index: from a hash to the slots that may have its key, one cache line for nearly every key.
//!
//! ```text
//!  bucket, 64 bytes    0        4                  40       42              60       64
//!                      │ slot 0 │ … │ slot 9       │ tag 0  │ … │ tag 9     │ passed │
//! ```
//!
//! A tag is 16 bits of the hash; 0 is an empty way. A key whose bucket is full goes on to the next bucket that has an
//! empty way, and each full bucket on its way counts it in `passed`. A search ends at the first bucket that no key has
//! passed; a removal counts down along the same way, so that nothing remains of a removed key and the table does not
//! age (the overflow counters of Facebook's F14). There are more ways than flows, so every flow has a place.
//!
//! A full table has six flows per bucket in the mean. Then 4 % of the buckets are full and passed by keys, 1.4 % of the
//! flows are not in their home bucket, and a search reads 1.02 buckets for a flow and 1.05 for a key that is not there.
//! That holds for a sender who cannot predict the hash, see
//! [`hash`](super::hash).

use chunk::hash::to_range;

use super::error::{TableError, zeroed};

/// Ways of a bucket.
pub(super) const WAYS: usize = 10;
/// Flows per bucket of a full table, in the mean.
const MEAN: usize = 6;

/// One line of the index.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Bucket {
    slots: [u32; WAYS],
    tags: [u16; WAYS],
    passed: u32,
}

const _: () = assert!(size_of::<Bucket>() == 64 && align_of::<Bucket>() == 64);

impl Bucket {
    /// The ways with a tag, as bits.
    #[inline(always)]
    pub(super) fn matches(&self, tag: u16) -> u32 {
        // The first eight as one vector; a bit for each, at its place.
        let (eight, rest) = self.tags.split_at(8);
        let mut ways = 0_u16;
        for (at, other) in eight.iter().enumerate() {
            ways |= if *other == tag { 1 << at } else { 0 };
        }
        for (at, other) in (8..).zip(rest) {
            ways |= u16::from(*other == tag) << at;
        }
        ways.into()
    }

    /// The slot of a way.
    #[inline(always)]
    pub(super) fn slot(&self, way: u32) -> u32 {
        self.slots.get(way as usize).copied().unwrap_or(super::NIL)
    }

    /// Whether the search goes on to the next bucket.
    #[inline(always)]
    pub(super) fn is_passed(&self) -> bool {
        self.passed != 0
    }
}

/// Where a hash leads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) bucket: u32,
    pub(super) tag: u16,
}

/// All buckets.
#[derive(Debug)]
pub(super) struct Index {
    buckets: Vec<Bucket>,
}

/// Buckets for `capacity` flows.
const fn buckets(capacity: usize) -> usize {
    capacity / MEAN + 1
}

impl Index {
    /// Bytes for `capacity` flows.
    pub(super) const fn memory_bytes(capacity: usize) -> usize {
        buckets(capacity) * size_of::<Bucket>()
    }

    /// An empty index for `capacity` flows.
    pub(super) fn new(capacity: usize) -> Result<Self, TableError> {
        Ok(Self { buckets: zeroed(buckets(capacity))? })
    }

    /// Home bucket and tag of a hash.
    #[inline(always)]
    pub(super) fn place(&self, hash: u64) -> Place {
        let bucket = to_range((hash >> 32) as u32, self.buckets.len() as u32);
        Place { bucket, tag: (hash as u16).max(1) }
    }

    /// A bucket; `at` is below the number of buckets.
    #[inline(always)]
    pub(super) fn bucket(&self, at: u32) -> &Bucket {
        &self.buckets[at as usize]
    }

    /// The bucket behind a bucket.
    #[inline(always)]
    pub(super) fn next(&self, bucket: u32) -> u32 {
        let next = bucket + 1;
        if next as usize == self.buckets.len() { 0 } else { next }
    }

    /// Starts loading the home bucket of a hash.
    #[inline(always)]
    pub(super) fn prefetch(&self, hash: u64) {
        interleave::prefetch(self.bucket(self.place(hash).bucket));
    }

    /// Adds a slot, which is not in the index. There are more ways than slots, so it finds one.
    pub(super) fn insert(&mut self, hash: u64, slot: u32) {
        let Place { bucket: mut at, tag } = self.place(hash);
        for _ in 0..self.buckets.len() {
            let bucket = &mut self.buckets[at as usize];
            let empty = bucket.matches(0);
            if empty != 0 {
                let way = empty.trailing_zeros() as usize;
                (bucket.slots[way], bucket.tags[way]) = (slot, tag);
                return;
            }
            bucket.passed += 1;
            at = self.next(at);
        }
        debug_assert!(false, "more slots than ways");
    }

    /// Removes a slot, which is in the index under this hash.
    pub(super) fn remove(&mut self, hash: u64, slot: u32) {
        let Place { bucket: mut at, tag } = self.place(hash);
        for _ in 0..self.buckets.len() {
            let bucket = &mut self.buckets[at as usize];
            let mut ways = bucket.matches(tag);
            while ways != 0 {
                let way = ways.trailing_zeros() as usize;
                if bucket.slots[way] == slot {
                    bucket.tags[way] = 0;
                    return;
                }
                ways &= ways - 1;
            }
            debug_assert!(bucket.passed > 0, "a slot that is not in the index");
            bucket.passed = bucket.passed.saturating_sub(1);
            at = self.next(at);
        }
    }

    /// Bytes that are held: for tests.
    #[cfg(test)]
    pub(super) fn capacity_bytes(&self) -> usize {
        self.buckets.capacity() * size_of::<Bucket>()
    }

    /// Slots in the index, and the sum of `passed`: for tests.
    #[cfg(test)]
    pub(super) fn totals(&self) -> (usize, u64) {
        let used = |bucket: &Bucket| WAYS - bucket.matches(0).count_ones() as usize;
        let passed = |bucket: &Bucket| u64::from(bucket.passed);
        (self.buckets.iter().map(used).sum(), self.buckets.iter().map(passed).sum())
    }
}
