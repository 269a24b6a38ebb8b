//! One table of one size and one seed, as the builder changes it.

use chunk::hash;
use interleave::prefetch;

use super::layout::*;
use crate::{Blob, Patch, TableError};

/// Lines that the search for a path looks at: with 4 ways, all that five moves reach.
const SEARCH_LINES: usize = 512;

/// No path and no room in the stash: another size or another seed is needed. Nothing has changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Crowded;

/// Where an entry is: a line of the blob and a way of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) line: u32,
    way: u32,
}

/// A table and what it writes, line by line, in the order in which it must be applied.
#[derive(Debug)]
pub(super) struct Table<K> {
    blob: Blob,
    buckets: u32,
    seed: u64,
    fillers: [K; 2],
    /// Entries, those in the stash included.
    len: usize,
    stashed: usize,
    search: Vec<Node>,
    /// What was written since the last [`Table::flush`]; `None` while the table has no readers.
    patches: Option<Vec<Patch>>,
}

/// A line that the search has come to, and how.
#[derive(Debug, Clone, Copy)]
struct Node {
    bucket: u32,
    /// The node that it was reached from, and the way there whose entry has its other bucket here.
    from: u32,
    way: u32,
}

const ROOT: u32 = u32::MAX;

impl<K: CuckooKey> Table<K> {
    /// An empty table.
    pub(super) fn new(buckets: u32, seed: u64) -> Result<Self, TableError> {
        let buckets = buckets.max(BUCKETS_MIN);
        let words = (BUCKET_LINE + buckets as usize) * WORDS_PER_LINE * 2;
        let mut blob = Blob::zeroed(words, words)
            .map_err(|e| TableError::Memory { bytes: words * 4, reason: e.to_string() })?;
        let of = |key: &K| buckets_of(key.hash(seed), buckets);
        let zero = K::filler(0);
        let apart = |key: &K| of(key).iter().all(|bucket| !of(&zero).contains(bucket));
        // One in two keys will do even in the smallest table.
        let other = (1..).map(K::filler).find(apart).unwrap_or(zero);
        let header = blob.words64_mut();
        header[HEADER_MAGIC] = MAGIC;
        header[HEADER_KEY] = K::WORDS;
        header[HEADER_BUCKETS] = buckets.into();
        header[HEADER_SEED] = seed;
        let fillers = [zero, other];
        let mut table = Self {
            blob,
            buckets,
            seed,
            fillers,
            len: 0,
            stashed: 0,
            search: Vec::new(),
            patches: None,
        };
        // Memory that is all zero is key 0 in every way.
        for bucket in of(&zero) {
            let mut line = Line::default();
            (0..K::WAYS).for_each(|way| K::set_way(&mut line, way, (other, K::Value::default())));
            table.lines_mut()[BUCKET_LINE + bucket as usize] = line;
        }
        Ok(table)
    }

    /// Somebody reads a copy of the table from now on.
    pub(super) fn publish(&mut self) {
        self.patches = Some(Vec::new());
    }

    /// Hands out what was written.
    pub(super) fn flush(&mut self, patches: &mut Vec<Patch>) {
        if let Some(written) = &mut self.patches {
            patches.append(written);
        }
    }

    pub(super) fn blob(&self) -> &Blob {
        &self.blob
    }

    pub(super) fn buckets(&self) -> u32 {
        self.buckets
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn stashed(&self) -> usize {
        self.stashed
    }

    /// Entries that the stash has room for.
    pub(super) const STASH: usize = STASH_LINES * K::WAYS;

    /// Lines that hold entries: the stash's, then the buckets'.
    pub(super) fn lines(&self) -> std::ops::Range<u32> {
        STASH_LINE as u32..BUCKET_LINE as u32 + self.buckets
    }

    /// The entries of a line.
    pub(super) fn entries(&self, line: u32) -> impl Iterator<Item = (K, K::Value)> {
        let used = move |way: &usize| self.is_used(Place { line, way: *way as u32 });
        let content = self.line(line);
        (0..K::WAYS).filter(used).map(|way| K::way(content, way))
    }

    /// Where a key is, and its value.
    pub(super) fn find(&self, key: &K) -> Option<(Place, K::Value)> {
        let buckets = self.buckets_of(key).map(|bucket| BUCKET_LINE as u32 + bucket);
        buckets.iter().for_each(|line| prefetch(self.line(*line)));
        let stash = STASH_LINE as u32..STASH_LINE as u32 + self.stashed.div_ceil(K::WAYS) as u32;
        buckets.into_iter().chain(stash).find_map(|line| {
            let value = key.find(self.line(line));
            if value == K::MISS {
                return None;
            }
            let way = (0..K::WAYS).position(|way| K::way(self.line(line), way).0 == *key)?;
            let place = Place { line, way: way as u32 };
            self.is_used(place).then_some((place, value))
        })
    }

    /// Changes the value of an entry that is there.
    pub(super) fn set(&mut self, place: Place, entry: (K, K::Value)) {
        self.write(place, entry);
    }

    /// Adds a key that is not there.
    pub(super) fn add(&mut self, entry: (K, K::Value)) -> Result<(), Crowded> {
        let buckets = self.buckets_of(&entry.0);
        if let Some(place) = self.free_slot(buckets) {
            self.write(place, entry);
        } else {
            if self.stashed == Self::STASH {
                return Err(Crowded);
            }
            self.stashed += 1;
            self.write(self.stash_place(self.stashed - 1), entry);
            self.write_header();
        }
        self.len += 1;
        Ok(())
    }

    /// Takes an entry away. What waits in the stash for the way that is free now takes it.
    pub(super) fn remove(&mut self, place: Place) {
        self.len -= 1;
        if (place.line as usize) < BUCKET_LINE {
            return self.unstash(place);
        }
        let bucket = place.line - BUCKET_LINE as u32;
        let waiting = (0..self.stashed).map(|at| self.stash_place(at)).find(|at| {
            let (key, _) = K::way(self.line(at.line), at.way as usize);
            self.buckets_of(&key).contains(&bucket)
        });
        match waiting {
            Some(from) => {
                self.write(place, K::way(self.line(from.line), from.way as usize));
                self.unstash(from);
            }
            None => self.write(place, (self.filler(bucket), K::Value::default())),
        }
    }

    /// Closes the stash over an entry that has gone: the last one takes its place.
    fn unstash(&mut self, place: Place) {
        let last = self.stash_place(self.stashed - 1);
        if last != place {
            self.write(place, K::way(self.line(last.line), last.way as usize));
        }
        self.stashed -= 1;
        let mut line = *self.line(last.line);
        repeat_first::<K>(&mut line, last.way as usize);
        self.write_line(last.line, line);
        self.write_header();
    }

    /// An empty way in one of these buckets: one that is, or one that the shortest path of moves makes.
    fn free_slot(&mut self, roots: [u32; 2]) -> Option<Place> {
        let mut search = std::mem::take(&mut self.search);
        search.clear();
        search.extend(roots.map(|bucket| Node { bucket, from: ROOT, way: 0 }));
        let mut at = 0;
        let mut found = None;
        while at < search.len() {
            let node = search[at];
            found = self.empty_way(node.bucket);
            if found.is_some() {
                break;
            }
            let content = *self.line(BUCKET_LINE as u32 + node.bucket);
            for way in 0..K::WAYS {
                let other = self.other_bucket(&K::way(&content, way).0, node.bucket);
                if search.len() < SEARCH_LINES && other != node.bucket {
                    prefetch(self.line(BUCKET_LINE as u32 + other));
                    search.push(Node { bucket: other, from: at as u32, way: way as u32 });
                }
            }
            at += 1;
        }
        // The last move first: each entry is at its new place before the next one takes its old.
        let mut free = found;
        while let Some(to) = free
            && search[at].from != ROOT
        {
            let from = search[at];
            at = from.from as usize;
            let place = Place { line: BUCKET_LINE as u32 + search[at].bucket, way: from.way };
            self.write(to, K::way(self.line(place.line), place.way as usize));
            free = Some(place);
        }
        self.search = search;
        free
    }

    fn empty_way(&self, bucket: u32) -> Option<Place> {
        let (line, filler) = (BUCKET_LINE as u32 + bucket, self.filler(bucket));
        let content = self.line(line);
        let way = (0..K::WAYS).position(|way| K::way(content, way).0 == filler)?;
        Some(Place { line, way: way as u32 })
    }

    fn is_used(&self, place: Place) -> bool {
        match place.line.checked_sub(BUCKET_LINE as u32) {
            Some(bucket) => {
                K::way(self.line(place.line), place.way as usize).0 != self.filler(bucket)
            }
            None => {
                (place.line as usize - STASH_LINE) * K::WAYS + (place.way as usize) < self.stashed
            }
        }
    }

    fn buckets_of(&self, key: &K) -> [u32; 2] {
        buckets_of(key.hash(self.seed), self.buckets)
    }

    fn other_bucket(&self, key: &K, bucket: u32) -> u32 {
        let [first, second] = self.buckets_of(key);
        if first == bucket { second } else { first }
    }

    /// The key that marks an empty way of a bucket.
    fn filler(&self, bucket: u32) -> K {
        let [zero, other] = self.fillers;
        if self.buckets_of(&zero).contains(&bucket) { other } else { zero }
    }

    fn stash_place(&self, at: usize) -> Place {
        Place { line: (STASH_LINE + at / K::WAYS) as u32, way: (at % K::WAYS) as u32 }
    }

    fn line(&self, line: u32) -> &Line {
        &self.blob.words64().as_chunks::<WORDS_PER_LINE>().0[line as usize]
    }

    fn lines_mut(&mut self) -> &mut [Line] {
        self.blob.words64_mut().as_chunks_mut::<WORDS_PER_LINE>().0
    }

    fn write(&mut self, place: Place, entry: (K, K::Value)) {
        let mut line = *self.line(place.line);
        K::set_way(&mut line, place.way as usize, entry);
        if (place.line as usize) < BUCKET_LINE {
            let used = self.stashed - (place.line as usize - STASH_LINE) * K::WAYS;
            repeat_first::<K>(&mut line, used);
        }
        self.write_line(place.line, line);
    }

    fn write_header(&mut self) {
        let mut header = *self.line(0);
        header[HEADER_STASH] = self.stashed as u64;
        self.write_line(0, header);
    }

    fn write_line(&mut self, line: u32, content: Line) {
        self.lines_mut()[line as usize] = content;
        if let Some(patches) = &mut self.patches {
            let words = content.iter().flat_map(|word| [*word as u32, (*word >> 32) as u32]);
            let words = if cfg!(target_endian = "little") {
                words.collect()
            } else {
                content.iter().flat_map(|word| [(*word >> 32) as u32, *word as u32]).collect()
            };
            patches.push(Patch::Write { offset_words: line as usize * 16, words });
        }
    }
}

/// The ways of a stash line that are not in use repeat its first entry, so that a reader need not count.
fn repeat_first<K: CuckooKey>(line: &mut Line, used: usize) {
    let first = K::way(line, 0);
    (used.max(1)..K::WAYS).for_each(|way| K::set_way(line, way, first));
}

/// Parameter of the `index`th table of a builder.
pub(super) fn seed_of(seed: u64, index: u32) -> u64 {
    hash::parameter(seed, index)
}
