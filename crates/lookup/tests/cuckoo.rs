//! The cuckoo table against `HashMap`: changes, rebuilding aside, every form, and learning under load.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, Ordering};

use chunk::hash;
use lookup::cuckoo::{Cuckoo, CuckooBuilder, CuckooKey, Limits};
use lookup::versions::versions;
use lookup::{Blob, TableError};
use proptest::prelude::*;

/// Keys and values of tests from small numbers.
trait Small: CuckooKey + Hash {
    fn key(number: u64) -> Self;
    fn value(number: u64) -> Self::Value;
}

impl Small for u64 {
    fn key(number: u64) -> u64 {
        number
    }
    fn value(number: u64) -> u64 {
        number
    }
}

impl Small for [u64; 2] {
    /// Both words matter, and keys that differ in one of them alone occur.
    fn key(number: u64) -> [u64; 2] {
        [number % 7, number / 7]
    }
    fn value(number: u64) -> u32 {
        number as u32
    }
}

/// The blob as a reader has it, and the twin.
struct Bed<K: Small> {
    builder: CuckooBuilder<K>,
    blob: Blob,
    twin: HashMap<K, K::Value>,
}

impl<K: Small> Bed<K> {
    fn new(limits: Limits, seed: u64) -> Self {
        let (builder, blob) = CuckooBuilder::with_seed(limits, seed).unwrap();
        Self { builder, blob, twin: HashMap::new() }
    }

    /// Inserts, applying each patch by itself: between two of them every entry must be found.
    fn insert(&mut self, key: K, value: K::Value, each: bool) -> Result<(), TableError> {
        let mut patches = Vec::new();
        let before = self.builder.insert(key, value, &mut patches);
        for patch in &patches {
            self.blob.apply(std::slice::from_ref(patch));
            if each {
                self.check_twin();
            }
        }
        assert_eq!(before?, self.twin.insert(key, value));
        assert_eq!(Cuckoo::new(&self.blob).unwrap().get(&key), value);
        Ok(())
    }

    fn remove(&mut self, key: K) {
        let mut patches = Vec::new();
        assert_eq!(self.builder.remove(&key, &mut patches), self.twin.remove(&key));
        self.blob.apply(&patches);
    }

    fn step(&mut self, lines: usize) -> bool {
        let mut patches = Vec::new();
        let more = self.builder.step(lines, &mut patches).unwrap();
        self.blob.apply(&patches);
        more
    }

    /// All entries but one that is being replaced are found in the blob.
    fn check_twin(&self) {
        let table = Cuckoo::<K>::new(&self.blob).unwrap();
        for key in self.twin.keys() {
            assert_ne!(table.get(key), K::MISS, "{key:?} is lost");
        }
    }

    /// Builder, blob and twin agree, in every form.
    fn check(&self, keys: impl IntoIterator<Item = K>) {
        assert_eq!(self.builder.len(), self.twin.len());
        let entries: HashMap<K, K::Value> = self.builder.iter().collect();
        assert_eq!(entries, self.twin);
        let keys: Vec<K> = keys.into_iter().chain(self.twin.keys().copied()).collect();
        check_forms(&self.blob, &keys, |key| self.twin.get(key).copied().unwrap_or(K::MISS));
        for key in keys {
            assert_eq!(self.builder.get(&key), self.twin.get(&key).copied());
        }
    }
}

/// Every form, at several numbers of lookups in flight, gives what `plain` gives.
fn check_forms<K: CuckooKey>(blob: &Blob, keys: &[K], plain: impl Fn(&K) -> K::Value) {
    let table = Cuckoo::<K>::new(blob).unwrap();
    let expected: Vec<_> = keys.iter().map(plain).collect();
    type Form<'a, K> = &'a dyn Fn(&[K], &mut [<K as CuckooKey>::Value]);
    let both = |keys: &[K], out: &mut [K::Value]| {
        interleave::map_switched::<8, _, _, _, _>(keys, out, |memory, key| {
            table.find_both(memory, key)
        });
    };
    let forms: [(&str, Form<'_, K>); 11] = [
        ("best", &|keys, out| table.lookup(keys, out)),
        ("direct", &|keys, out| table.lookup_direct(keys, out)),
        ("switched 1", &|keys, out| table.lookup_switched::<1>(keys, out)),
        ("switched 3", &|keys, out| table.lookup_switched::<3>(keys, out)),
        ("switched 32", &|keys, out| table.lookup_switched::<32>(keys, out)),
        ("switched, both", &both),
        ("machine 1", &|keys, out| table.lookup_machine::<1>(keys, out)),
        ("machine 5", &|keys, out| table.lookup_machine::<5>(keys, out)),
        ("machine 32", &|keys, out| table.lookup_machine::<32>(keys, out)),
        ("grouped 1", &|keys, out| table.lookup_grouped::<1>(keys, out)),
        ("grouped 16", &|keys, out| table.lookup_grouped::<16>(keys, out)),
    ];
    for (name, form) in forms {
        let mut out = vec![K::Value::default(); keys.len()];
        form(keys, &mut out);
        assert!(out == expected, "{name}");
    }
}

#[derive(Debug, Clone)]
enum Op {
    Insert(u64, u64),
    Remove(u64),
    Step(usize),
    Rehash,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        12 => (0..900u64, 0..1000u64).prop_map(|(key, value)| Op::Insert(key, value)),
        4 => (0..900u64).prop_map(Op::Remove),
        3 => (1..9usize).prop_map(Op::Step),
        1 => Just(Op::Rehash),
    ];
    prop::collection::vec(op, 0..1500)
}

fn agrees<K: Small>(ops: Vec<Op>, seed: u64) {
    let mut bed = Bed::<K>::new(Limits { entries: 700, reserve: 10 }, seed);
    for op in ops {
        match op {
            Op::Insert(key, value) => {
                let full = bed.twin.len() == 700 && !bed.twin.contains_key(&K::key(key));
                let done = bed.insert(K::key(key), K::value(value), false);
                assert_eq!(done.is_err(), full, "{done:?}");
            }
            Op::Remove(key) => bed.remove(K::key(key)),
            Op::Step(lines) => {
                bed.step(lines);
            }
            Op::Rehash => bed.builder.rehash().unwrap(),
        }
    }
    bed.check((0..950).map(K::key));
    while bed.step(7) {}
    bed.check((0..950).map(K::key));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn keys_of_8_bytes_agree_with_a_hash_map(ops in ops(), seed: u64) {
        agrees::<u64>(ops, seed);
    }

    #[test]
    fn keys_of_16_bytes_agree_with_a_hash_map(ops in ops(), seed: u64) {
        agrees::<[u64; 2]>(ops, seed);
    }
}

/// Batches of every awkward size.
#[test]
fn batch_sizes() {
    fn run<K: Small>() {
        let mut bed = Bed::<K>::new(Limits { entries: 2000, reserve: 2000 }, 1);
        for number in 0..1500 {
            bed.insert(K::key(2 * number), K::value(number), false).unwrap();
        }
        for size in [0, 1, 31, 32, 33, 1000] {
            let keys: Vec<K> = (0..size).map(|i| K::key(i * 37 % 3100)).collect();
            check_forms(&bed.blob, &keys, |key| bed.twin.get(key).copied().unwrap_or(K::MISS));
        }
    }
    run::<u64>();
    run::<[u64; 2]>();
}

/// Keys, the fillers and the extremes among them, can all be stored; the value of a miss cannot.
#[test]
fn every_key_can_be_stored() {
    for seed in 0..50 {
        let mut bed = Bed::<u64>::new(Limits { entries: 100, reserve: 1 }, seed);
        for key in (0..40).chain([u64::MAX, u64::MAX - 1, 1 << 63]) {
            assert!(
                Cuckoo::new(&bed.blob).unwrap().get(&key) == u64::MAX,
                "{key} is not there yet"
            );
            bed.insert(key, key / 2, true).unwrap();
        }
        bed.check([]);
        assert_eq!(bed.builder.insert(5, u64::MAX, &mut Vec::new()), Err(TableError::Reserved));
        bed.check([5]);
    }
}

/// Keys that all have the same two buckets, found by their hash: the stash takes them, then a table with
/// another seed does, and none is missing after any patch.
#[test]
fn a_cycling_insert_loses_nothing() {
    let (builder_seed, reserve) = (7, 1000);
    let limits = Limits { entries: 2000, reserve };
    let mut bed = Bed::<u64>::new(limits, builder_seed);
    let (seed, buckets) = {
        let words = bed.blob.words64();
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
        bed.insert(*key, number, true).unwrap();
        if number == 8 {
            assert_eq!(bed.builder.stashed(), 1, "two buckets hold eight");
        }
        if number == 30 {
            bed.check([]);
        }
        if number == 60 {
            // The rebuilding goes on beside the inserts.
            assert!(bed.builder.is_rebuilding(), "the stash is more than half full");
            bed.step(3);
        }
    }
    while bed.step(5) {}
    assert_eq!(bed.builder.stashed(), 0, "another seed spreads them");
    bed.check(0..100);
    // The same while nobody calls `step`: the insert that finds no room finishes the table itself.
    let mut bed = Bed::<u64>::new(limits, builder_seed);
    for key in &hostile {
        bed.insert(*key, 1, true).unwrap();
    }
    bed.check(0..100);
}

/// Beyond its limit the table says so and keeps what it holds.
#[test]
fn a_full_table_says_so() {
    let mut bed = Bed::<[u64; 2]>::new(Limits { entries: 5000, reserve: 0 }, 3);
    for number in 0..5000 {
        bed.insert(<[u64; 2]>::key(number), number as u32, false).unwrap();
    }
    for number in 5000..5100 {
        let full = TableError::Full { what: "entries", used: 5000, limit: 5000 };
        assert_eq!(bed.insert(<[u64; 2]>::key(number), 1, false), Err(full));
    }
    bed.insert([0, 0], 77, false).unwrap();
    bed.check((5000..5100).map(<[u64; 2]>::key));
    bed.remove([0, 0]);
    bed.insert([9, 9], 1, false).unwrap();
    bed.check([[0, 0]]);
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

/// One thread learns, ages and rebuilds; another looks up what is always there and must always find it.
#[test]
fn lookups_go_on_while_another_thread_learns() {
    let limits = Limits { entries: 60_000, reserve: 1000 };
    let (mut builder, mut blob) = CuckooBuilder::<u64>::with_seed(limits, 11).unwrap();
    let lasting: Vec<u64> = (0..1000).map(|i| i * 3).collect();
    let mut patches = Vec::new();
    for key in &lasting {
        builder.insert(*key, key + 1, &mut patches).unwrap();
    }
    blob.apply(&patches);
    let (mut writer, reader) = versions(blob);
    let (done, started) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut out = vec![0; lasting.len()];
            let mut rounds = 0;
            while !done.load(Ordering::Relaxed) || rounds < 10 {
                let pin = reader.pin();
                let table = Cuckoo::new(&pin).unwrap();
                table.lookup_switched::<16>(&lasting, &mut out);
                for (key, value) in lasting.iter().zip(&out) {
                    assert_eq!(*value, key + 1);
                }
                rounds += 1;
                started.store(true, Ordering::Relaxed);
            }
        });
        while !started.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        let mut replaced = 0;
        for round in 0..200u64 {
            let mut patches = Vec::new();
            for i in 0..400 {
                let key = 1_000_000 + round * 400 + i;
                builder.insert(key, round, &mut patches).unwrap();
                if round >= 100 {
                    let old = 1_000_000 + (round - 100) * 400 + i;
                    assert_eq!(builder.remove(&old, &mut patches), Some(round - 100));
                }
            }
            if round % 50 == 49 && !builder.is_rebuilding() {
                builder.rehash().unwrap();
            }
            builder.step(500, &mut patches).unwrap();
            replaced += patches.iter().filter(|p| matches!(p, lookup::Patch::Replace(_))).count();
            writer.publish(patches);
        }
        done.store(true, Ordering::Relaxed);
        assert!(replaced > 5, "the table grew and was rehashed: {replaced}");
    });
    writer.settle();
    let pin = reader.pin();
    let table = Cuckoo::<u64>::new(&pin).unwrap();
    for (key, value) in builder.iter() {
        assert_eq!(table.get(&key), value);
    }
    assert_eq!(builder.len(), 41_000);
}

/// A million entries come and go, at 90 % of the limit for most of the time.
#[test]
fn soak_of_a_million() {
    let limits = Limits { entries: 100_000, reserve: 0 };
    let mut bed = Bed::<u64>::new(limits, 5);
    let key = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for i in 0..1_000_000u64 {
        bed.insert(key(i), i, false).unwrap();
        if i >= 95_000 {
            bed.remove(key(i - 95_000));
        }
        if i % 64 == 0 {
            bed.step(100);
        }
    }
    bed.check((0..1000).map(key));
    assert_eq!(bed.builder.len(), 95_000);
}
