//! The read side: one lookup, in all its forms.

use std::task::Poll;

use interleave::{
    Machine, Memory, Walk, map_direct, map_switched, prefetch, run_grouped, run_machine,
};

use super::layout::*;
use crate::Blob;

/// Lookups in flight. Measured: fewer starve the memory, more add nothing.
const IN_FLIGHT: usize = 32;

/// Batches of at most so many keys are one group: turns pay when slots are refilled.
const FEW_KEYS: usize = 32;

/// Tables of at most so many bytes stay in the second-level cache, where turns cost more than they hide.
const SMALL_BYTES: usize = 1 << 20;

/// A line on which every key misses.
static NOWHERE: Line = [u64::MAX; WORDS_PER_LINE];

/// A table to look up in.
///
/// | form | method | for |
/// | --- | --- | --- |
/// | best | [`lookup`](Self::lookup) | everything |
/// | plain | [`lookup_direct`](Self::lookup_direct), [`get`](Self::get) | single keys |
/// | switched | [`lookup_switched`](Self::lookup_switched) | the same source as the plain one |
/// | machine | [`lookup_machine`](Self::lookup_machine) | the same by hand |
/// | group | [`lookup_grouped`](Self::lookup_grouped) | small batches, tables in cache: both lines of a group at once |
#[derive(Clone, Copy, Debug)]
pub struct Cuckoo<'a, K> {
    buckets: &'a [Line],
    stash: &'a [Line],
    count: u32, // of buckets
    seed: u64,
    key: std::marker::PhantomData<K>,
}

impl<'a, K: CuckooKey> Cuckoo<'a, K> {
    /// The table in `blob`; `None` if that holds none with keys of this kind.
    pub fn new(blob: &'a Blob) -> Option<Self> {
        let (lines, _) = blob.words64().as_chunks::<WORDS_PER_LINE>();
        let header = lines.first()?;
        if header[HEADER_MAGIC] != MAGIC || header[HEADER_KEY] != K::WORDS {
            return None;
        }
        let count = u32::try_from(header[HEADER_BUCKETS]).ok().filter(|count| *count > 0)?;
        let buckets = lines.get(BUCKET_LINE..)?.get(..count as usize)?;
        let stashed = (header[HEADER_STASH] as usize).div_ceil(K::WAYS).min(STASH_LINES);
        let stash = lines.get(STASH_LINE..)?.get(..stashed)?;
        let seed = header[HEADER_SEED];
        Some(Self { buckets, stash, count, seed, key: std::marker::PhantomData })
    }

    #[inline(always)]
    fn lines(&self, key: &K) -> [&'a Line; 2] {
        buckets_of(key.hash(self.seed), self.count).map(|bucket| self.bucket(bucket))
    }

    /// A bucket. One out of range cannot be, for `count` is the length; it reads as a miss, because a panic
    /// would make a lookup's state machine too large to be inlined where it is polled.
    #[inline(always)]
    fn bucket(&self, bucket: u32) -> &'a Line {
        self.buckets.get(bucket as usize).unwrap_or(&NOWHERE)
    }

    /// Looks `key` up, over any [`Memory`]. The second line is asked for only when the first says nothing: two
    /// thirds of the keys are in their first one, and where memory is the limit half a line less for each
    /// key counts more than the turn.
    ///
    /// The hash is not part of the future: what is polled is so small that it is inlined there.
    #[inline(always)]
    pub fn find<M: Memory>(&self, memory: M, key: &K) -> impl Future<Output = K::Value> {
        let [mut line, second] = self.lines(key);
        let mut last = false;
        async move {
            loop {
                memory.touch(line).await;
                let value = key.find(line);
                if value != K::MISS || last {
                    return self.or_stashed(key, value);
                }
                (line, last) = (second, true);
            }
        }
    }

    /// As [`Cuckoo::find`], with both lines asked for at once.
    #[inline(always)]
    pub fn find_both<M: Memory>(&self, memory: M, key: &K) -> impl Future<Output = K::Value> {
        let [first, second] = self.lines(key);
        async move {
            memory.touch_both(first, second).await;
            let value = key.find(first);
            let value = if value != K::MISS { value } else { key.find(second) };
            self.or_stashed(key, value)
        }
    }

    /// What the buckets said, or the stash, which is empty nearly always.
    #[inline(always)]
    fn or_stashed(&self, key: &K, value: K::Value) -> K::Value {
        if value != K::MISS || self.stash.is_empty() {
            return value;
        }
        self.find_in_stash(key)
    }

    #[cold]
    fn find_in_stash(&self, key: &K) -> K::Value {
        let values = self.stash.iter().map(|line| key.find(line));
        values.into_iter().find(|value| *value != K::MISS).unwrap_or(K::MISS)
    }

    /// The value of one key; [`CuckooKey::MISS`] when it is not there.
    #[inline]
    pub fn get(&self, key: &K) -> K::Value {
        let mut out = [K::MISS];
        self.lookup_direct(std::slice::from_ref(key), &mut out);
        out[0]
    }

    /// Writes the value of `keys[i]`, or [`CuckooKey::MISS`], to `out[i]`, in the form that is best for this
    /// table.
    ///
    /// # Panics
    /// When the slices differ in length; so do all forms.
    #[inline]
    pub fn lookup(&self, keys: &[K], out: &mut [K::Value]) {
        if keys.len() <= FEW_KEYS || size_of_val(self.buckets) <= SMALL_BYTES {
            self.lookup_grouped::<FEW_KEYS>(keys, out);
        } else {
            self.lookup_machine::<IN_FLIGHT>(keys, out);
        }
    }

    /// One key after the other.
    #[inline]
    pub fn lookup_direct(&self, keys: &[K], out: &mut [K::Value]) {
        map_direct(keys, out, |memory, key| self.find(memory, key));
    }

    /// `B` keys in turns.
    #[inline]
    pub fn lookup_switched<const B: usize>(&self, keys: &[K], out: &mut [K::Value]) {
        map_switched::<B, _, _, _, _>(keys, out, |memory, key| self.find(memory, key));
    }

    /// `B` keys in turns, by hand.
    #[inline]
    pub fn lookup_machine<const B: usize>(&self, keys: &[K], out: &mut [K::Value]) {
        run_machine::<B, _>(self, keys, out);
    }

    /// `G` keys at a time: all lines asked for, then all read.
    #[inline]
    pub fn lookup_grouped<const G: usize>(&self, keys: &[K], out: &mut [K::Value]) {
        run_grouped::<G, _>(self, keys, out);
    }
}

/// Which line was asked for, and the one after it.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    line: u32,
    second: u32,
    last: bool,
}

impl<K: CuckooKey> Machine for Cuckoo<'_, K> {
    type Key = K;
    type Value = K::Value;
    type State = Step;

    #[inline(always)]
    fn begin(&self, key: &K) -> Step {
        let [line, second] = buckets_of(key.hash(self.seed), self.count);
        prefetch(self.bucket(line));
        Step { line, second, last: false }
    }

    #[inline(always)]
    fn step(&self, key: &K, state: &mut Step) -> Poll<K::Value> {
        let value = key.find(self.bucket(state.line));
        if value != K::MISS || state.last {
            return Poll::Ready(self.or_stashed(key, value));
        }
        prefetch(self.bucket(state.second));
        *state = Step { line: state.second, second: state.second, last: true };
        Poll::Pending
    }
}

impl<K: CuckooKey> Walk for Cuckoo<'_, K> {
    type Key = K;
    type Value = K::Value;
    type State = [u32; 2];

    #[inline(always)]
    fn begin(&self, key: &K) -> [u32; 2] {
        let buckets = buckets_of(key.hash(self.seed), self.count);
        buckets.iter().for_each(|bucket| prefetch(self.bucket(*bucket)));
        buckets
    }

    #[inline(always)]
    fn level(&self, _: &K, _: &mut [u32; 2]) -> bool {
        false
    }

    #[inline(always)]
    fn end(&self, key: &K, [first, second]: &[u32; 2]) -> K::Value {
        let value = key.find(self.bucket(*first));
        let value = if value != K::MISS { value } else { key.find(self.bucket(*second)) };
        self.or_stashed(key, value)
    }
}
