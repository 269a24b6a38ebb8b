//! The cuckoo table: the value that cannot be stored, keys that share their buckets, images of something else, a million
//! entries.

use std::collections::HashMap;
use std::hash::Hash;

use chunk::hash;
use lookup::cuckoo::{Cuckoo, CuckooBuilder, CuckooKey, Limits};
use lookup::{Blob, Patch, TableError};

use crate::suite::{Bed, Table, Visit};

type Cuckoo64 = CuckooBuilder<u64>;

/// Keys and values of tests.
pub(crate) trait Small: CuckooKey<Value: Default + Send> + Hash + 'static {
    const EXTREMES: &[Self];
    fn key(number: u64) -> Self;
    fn value(number: u64) -> Self::Value;
}

impl Small for u64 {
    const EXTREMES: &[u64] = &[u64::MAX, u64::MAX - 1, 1 << 63];
    fn key(number: u64) -> u64 {
        number
    }
    /// Both halves of its word matter.
    fn value(number: u64) -> u64 {
        number << 32 | number
    }
}

impl Small for [u64; 2] {
    const EXTREMES: &[[u64; 2]] = &[[u64::MAX; 2], [u64::MAX, 0], [0, u64::MAX], [1 << 63, 0]];
    /// Both words matter, and keys that differ in one of them alone occur.
    fn key(number: u64) -> [u64; 2] {
        [number % 7, number / 7]
    }
    fn value(number: u64) -> u32 {
        number as u32
    }
}

impl<K: Small> Table for CuckooBuilder<K> {
    type Key = K;
    type Value = K::Value;
    type Image = Blob;
    const MISS: K::Value = K::MISS;
    const WHAT: &str = "entries";
    const FORMS: usize = 13;
    const EXTREMES: &[K] = K::EXTREMES;

    fn new(entries: usize, reserve: usize, seed: u64) -> (Self, Blob) {
        CuckooBuilder::with_seed(Limits { entries, reserve }, seed).unwrap()
    }
    fn key(number: u64) -> K {
        K::key(number)
    }
    fn value(number: u64) -> K::Value {
        K::value(number)
    }
    fn insert(
        &mut self,
        key: K,
        value: K::Value,
        patches: &mut Vec<Patch>,
    ) -> Result<Option<K::Value>, TableError> {
        self.insert(key, value, patches)
    }
    fn remove(&mut self, key: K, patches: &mut Vec<Patch>) -> Option<K::Value> {
        self.remove(&key, patches)
    }
    fn step(&mut self, lines: usize, patches: &mut Vec<Patch>) -> bool {
        self.step(lines, patches).unwrap()
    }
    fn rehash(&mut self) {
        self.rehash().unwrap();
    }
    fn get(&self, key: K) -> Option<K::Value> {
        self.get(&key)
    }
    fn len(&self) -> usize {
        self.len()
    }
    fn entries(&self) -> HashMap<K, K::Value> {
        self.iter().collect()
    }
    fn is_whole(patch: &Patch) -> bool {
        matches!(patch, Patch::Replace(_))
    }
    fn forms(image: &Blob, visit: Visit<'_, K, K::Value>) {
        let table = Cuckoo::<K>::new(image).unwrap();
        visit("best", &|k, o| table.lookup(k, o));
        visit("one", &|k, o| {
            assert_eq!(k.len(), o.len());
            k.iter().zip(o).for_each(|(key, out)| *out = table.get(key));
        });
        visit("switched 16", &|k, o| table.lookup_switched::<16>(k, o));
        visit("direct", &|k, o| table.lookup_direct(k, o));
        visit("switched 1", &|k, o| table.lookup_switched::<1>(k, o));
        visit("switched 3", &|k, o| table.lookup_switched::<3>(k, o));
        visit("switched 32", &|k, o| table.lookup_switched::<32>(k, o));
        visit("switched, both", &|k, o| {
            interleave::map_switched::<8, _, _, _, _>(k, o, |memory, key| {
                table.find_both(memory, key)
            });
        });
        visit("machine 1", &|k, o| table.lookup_machine::<1>(k, o));
        visit("machine 5", &|k, o| table.lookup_machine::<5>(k, o));
        visit("machine 32", &|k, o| table.lookup_machine::<32>(k, o));
        visit("grouped 1", &|k, o| table.lookup_grouped::<1>(k, o));
        visit("grouped 16", &|k, o| table.lookup_grouped::<16>(k, o));
    }
}

#[test]
fn the_value_of_a_miss_cannot_be_stored() {
    let mut bed = Bed::<Cuckoo64>::new(100, 1, 1);
    bed.insert(5, 2).unwrap();
    assert_eq!(bed.insert(5, u64::MAX), Err(TableError::Reserved));
    bed.check([5]);
}

/// Keys that all have the same two buckets, found by their hash: the stash takes them, then a table with
/// another seed does, and none is missing after any patch.
#[test]
fn a_cycling_insert_loses_nothing() {
    let mut bed = Bed::<Cuckoo64>::new(2000, 1000, 7);
    let (seed, buckets) = {
        let words = bed.image.words64();
        (words[3], words[2] as u32)
    };
    let of = |key: u64| {
        let h = hash::key64(key, seed);
        let mut pair =
            [hash::to_range((h >> 32) as u32, buckets), hash::to_range(h as u32, buckets)];
        pair.sort_unstable();
        pair
    };
    let target = of(1 << 40);
    let hostile: Vec<u64> = (1 << 40..).filter(|key| of(*key) == target).take(90).collect();
    for (number, key) in (0..).zip(&hostile) {
        bed.insert_watched(*key, number);
        if number == 8 {
            assert_eq!(bed.table.stashed(), 1, "two buckets hold eight");
        }
        if number == 30 {
            bed.check([]);
        }
        if number == 60 {
            // The rebuilding goes on beside the inserts.
            assert!(bed.table.is_rebuilding(), "the stash is more than half full");
            bed.step(3);
        }
    }
    while bed.step(5) {}
    assert_eq!(bed.table.stashed(), 0, "another seed spreads them");
    bed.check(0..100);
    // The same while nobody calls `step`: the insert that finds no room finishes the table itself.
    let mut bed = Bed::<Cuckoo64>::new(2000, 1000, 7);
    for key in &hostile {
        bed.insert_watched(*key, 1);
    }
    bed.check(0..100);
}

/// A blob of something else, or of keys of another kind, is refused.
#[test]
fn other_blobs_are_refused() {
    let (_, blob) = CuckooBuilder::<u64>::with_seed(Limits::default(), 1).unwrap();
    assert!(Cuckoo::<u64>::new(&blob).is_some());
    assert!(Cuckoo::<[u64; 2]>::new(&blob).is_none());
    assert!(Cuckoo::<u64>::new(&Blob::zeroed(1000, 0).unwrap()).is_none());
    let mut lies = blob.clone();
    lies.words64_mut()[2] = 1 << 40;
    assert!(Cuckoo::<u64>::new(&lies).is_none());
    lies.words64_mut()[2] = u64::from(u32::MAX);
    assert!(Cuckoo::<u64>::new(&lies).is_none());
    lies.words64_mut()[2] = 0;
    assert!(Cuckoo::<u64>::new(&lies).is_none());
}

/// A million entries come and go, at 95 % of the limit for most of the time.
#[test]
fn soak_of_a_million() {
    crate::suite::come_and_go::<Cuckoo64>(100_000, 1_000_000);
}
