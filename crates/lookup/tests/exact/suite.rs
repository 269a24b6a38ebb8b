//! What every exact-match table must do, whichever it is: each case runs for each [`Table`].

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, Ordering};

use lookup::TableError;
use lookup::versions::{Patchable, versions};
use proptest::prelude::*;

use crate::common::property;

/// One of the ways to look up a batch.
pub(crate) type Form<'a, K, V> = &'a dyn Fn(&[K], &mut [V]);

/// Takes a form and its name.
pub(crate) type Visit<'a, K, V> = &'a mut dyn FnMut(&str, Form<'_, K, V>);

type PatchOf<T> = <<T as Table>::Image as Patchable>::Patch;

/// What an exact-match table offers to the suite: its control side, and the forms of its lookup.
pub(crate) trait Table: Sized {
    type Key: Copy + Eq + Hash + Debug + Send + Sync + 'static;
    type Value: Copy + Eq + Debug + Default + Send;
    /// What readers have.
    type Image: Patchable<Patch: Send + Sync> + Clone + Send + Sync;

    /// The answer for a key that is not there.
    const MISS: Self::Value;
    /// What a refusal says is full.
    const WHAT: &str;
    /// Keys at the edges, beside small ones.
    const EXTREMES: &[Self::Key];

    /// An empty table of so many entries at most, and room for some of them from the start.
    fn new(entries: usize, reserve: usize, seed: u64) -> (Self, Self::Image);
    /// Keys and values of tests from small numbers.
    fn key(number: u64) -> Self::Key;
    fn value(number: u64) -> Self::Value;

    fn insert(
        &mut self,
        key: Self::Key,
        value: Self::Value,
        patches: &mut Vec<PatchOf<Self>>,
    ) -> Result<Option<Self::Value>, TableError>;
    fn remove(&mut self, key: Self::Key, patches: &mut Vec<PatchOf<Self>>) -> Option<Self::Value>;
    /// Goes on with a table that is built aside; whether there is more to do.
    fn step(&mut self, lines: usize, patches: &mut Vec<PatchOf<Self>>) -> bool;
    /// Begins a table with another seed, where one can ask for it.
    fn rehash(&mut self) {}

    fn get(&self, key: Self::Key) -> Option<Self::Value>;
    fn len(&self) -> usize;
    fn entries(&self) -> HashMap<Self::Key, Self::Value>;
    /// Whether a patch brings a whole image.
    fn is_whole(patch: &PatchOf<Self>) -> bool;
    /// Forms of its lookup.
    const FORMS: usize;
    /// Shows every form: first the one that the program uses, then one key at a time.
    fn forms(image: &Self::Image, visit: Visit<'_, Self::Key, Self::Value>);
}

/// The cases, and the tables that run through them.
macro_rules! suite {
    ($($name:ident: $table:ty,)*) => {
        $(mod $name {
            crate::suite::cases! { $table:
                changes_agree_with_a_hash_map
                batches_of_every_awkward_size
                every_key_can_be_stored
                a_full_table_says_so
                readers_find_what_stays
                many_come_and_go
                slices_of_different_lengths_are_a_defect
            }
        })*
    };
}
pub(crate) use suite;

macro_rules! cases {
    ($table:ty: $($case:ident)*) => {
        $(#[test]
        fn $case() {
            crate::suite::$case::<$table>();
        })*
    };
}
pub(crate) use cases;

/// A table with its readers' image, and a `HashMap` as the reference.
pub(crate) struct Bed<T: Table> {
    pub(crate) table: T,
    pub(crate) image: T::Image,
    pub(crate) reference: HashMap<T::Key, T::Value>,
}

impl<T: Table> Bed<T> {
    pub(crate) fn new(entries: usize, reserve: usize, seed: u64) -> Self {
        let (table, image) = T::new(entries, reserve, seed);
        Self { table, image, reference: HashMap::new() }
    }

    fn one(&self, key: T::Key) -> T::Value {
        let mut out = [T::Value::default()];
        T::forms(&self.image, &mut |name, form| {
            if name == "best" {
                form(&[key], &mut out);
            }
        });
        out[0]
    }

    pub(crate) fn insert(&mut self, key: T::Key, value: T::Value) -> Result<(), TableError> {
        let mut patches = Vec::new();
        let before = self.table.insert(key, value, &mut patches);
        patches.iter().for_each(|patch| self.image.apply(patch));
        assert_eq!(before?, self.reference.insert(key, value));
        assert_eq!(self.one(key), value, "{key:?} just inserted");
        Ok(())
    }

    /// As [`Bed::insert`]; after each patch every entry, but for the one that is being set, is found.
    pub(crate) fn insert_watched(&mut self, key: T::Key, value: T::Value) {
        let mut patches = Vec::new();
        let before = self.table.insert(key, value, &mut patches).unwrap();
        let others = self.reference.keys().copied().filter(|other| *other != key);
        let others: Vec<T::Key> = others.collect();
        for patch in &patches {
            self.image.apply(patch);
            ask::<T>(&self.image, &others, |key| self.reference[key]);
        }
        assert_eq!(before, self.reference.insert(key, value));
        assert_eq!(self.one(key), value, "{key:?} just inserted");
    }

    pub(crate) fn remove(&mut self, key: T::Key) {
        let mut patches = Vec::new();
        assert_eq!(self.table.remove(key, &mut patches), self.reference.remove(&key));
        patches.iter().for_each(|patch| self.image.apply(patch));
    }

    pub(crate) fn step(&mut self, lines: usize) -> bool {
        let mut patches = Vec::new();
        let more = self.table.step(lines, &mut patches);
        patches.iter().for_each(|patch| self.image.apply(patch));
        more
    }

    /// Builder, image and reference agree, in every form, about these keys and all that are there.
    pub(crate) fn check(&self, keys: impl IntoIterator<Item = T::Key>) {
        assert_eq!(self.table.len(), self.reference.len());
        assert_eq!(self.table.entries(), self.reference);
        let keys: Vec<T::Key> = keys.into_iter().chain(self.reference.keys().copied()).collect();
        self.ask(&keys);
        for key in keys {
            assert_eq!(self.table.get(key), self.reference.get(&key).copied());
        }
    }

    fn ask(&self, keys: &[T::Key]) {
        ask::<T>(&self.image, keys, |key| self.reference.get(key).copied().unwrap_or(T::MISS));
    }
}

/// Every form answers as expected.
fn ask<T: Table>(image: &T::Image, keys: &[T::Key], expected: impl Fn(&T::Key) -> T::Value) {
    let expected: Vec<T::Value> = keys.iter().map(expected).collect();
    T::forms(image, &mut |name, form| {
        let mut out = vec![T::Value::default(); keys.len()];
        form(keys, &mut out);
        let differs = out.iter().zip(&expected).position(|(a, b)| a != b);
        assert_eq!(differs.map(|at| (keys[at], out[at], expected[at])), None, "{name}");
    });
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

/// Entries come, change and go while tables are built aside; one more than the limit is refused.
pub(crate) fn changes_agree_with_a_hash_map<T: Table>() {
    property(40, (ops(), any::<u64>()), |(ops, seed)| {
        let mut bed = Bed::<T>::new(700, 10, seed);
        for op in ops {
            match op {
                Op::Insert(key, value) => {
                    let key = T::key(key);
                    let is_full = bed.reference.len() == 700 && !bed.reference.contains_key(&key);
                    let done = bed.insert(key, T::value(value));
                    assert_eq!(done.is_err(), is_full, "{done:?}");
                }
                Op::Remove(key) => bed.remove(T::key(key)),
                Op::Step(lines) => drop(bed.step(lines)),
                Op::Rehash => bed.table.rehash(),
            }
        }
        bed.check((0..950).map(T::key));
        while bed.step(7) {}
        bed.check((0..950).map(T::key));
    });
}

pub(crate) fn batches_of_every_awkward_size<T: Table>() {
    let mut bed = Bed::<T>::new(2000, 2000, 1);
    for number in 0..1500 {
        bed.insert(T::key(2 * number), T::value(number)).unwrap();
    }
    for size in [0, 1, 31, 32, 33, 1000] {
        let keys: Vec<T::Key> = (0..size).map(|i| T::key(i * 37 % 3100)).collect();
        bed.ask(&keys);
    }
}

/// Keys, the extremes among them, are not there before and can all be stored; between two patches none is lost.
pub(crate) fn every_key_can_be_stored<T: Table>() {
    for seed in 0..50 {
        let mut bed = Bed::<T>::new(100, 1, seed);
        let keys = (0..40).map(T::key).chain(T::EXTREMES.iter().copied());
        for (number, key) in (0..).zip(keys) {
            assert_eq!(bed.one(key), T::MISS, "{key:?} is not there yet");
            bed.insert_watched(key, T::value(number / 2));
        }
        bed.check([]);
    }
}

/// Beyond its limit the table says so and keeps what it holds.
pub(crate) fn a_full_table_says_so<T: Table>() {
    let mut bed = Bed::<T>::new(5000, 0, 3);
    for number in 0..5000 {
        bed.insert(T::key(number), T::value(number)).unwrap();
    }
    for number in 5000..5100 {
        let full = TableError::Full { what: T::WHAT, used: 5000, limit: 5000 };
        assert_eq!(bed.insert(T::key(number), T::value(1)), Err(full));
    }
    bed.insert(T::key(0), T::value(77)).unwrap();
    bed.check((5000..5100).map(T::key));
    bed.remove(T::key(0));
    bed.insert(T::key(5050), T::value(1)).unwrap();
    bed.check([T::key(0)]);
}

/// One thread learns, forgets and rebuilds; another looks up what is always there and must always find it.
pub(crate) fn readers_find_what_stays<T: Table>() {
    let (mut table, image) = T::new(60_000, 1000, 11);
    let (mut writer, reader) = versions(image);
    let stays: Vec<T::Key> = (0..4096).map(|i| T::key(i * 3)).collect();
    let mut patches = Vec::new();
    for (key, number) in stays.iter().zip(0..) {
        table.insert(*key, T::value(number), &mut patches).unwrap();
    }
    writer.publish(patches);
    let (done, started) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut out, mut round) = (vec![T::Value::default(); stays.len()], 0);
            while !done.load(Ordering::Relaxed) || round < 20 {
                let (pin, mut shown) = (reader.pin(), 0);
                T::forms(&pin, &mut |name, form| {
                    if shown == round % T::FORMS {
                        form(&stays, &mut out);
                        let expected = (0..stays.len() as u64).map(T::value);
                        assert!(out.iter().copied().eq(expected), "{name}");
                    }
                    shown += 1;
                });
                assert_eq!(shown, T::FORMS);
                round += 1;
                started.store(true, Ordering::Relaxed);
            }
        });
        while !started.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        let mut replaced = 0;
        for round in 0..200_u64 {
            let mut patches = Vec::new();
            for i in 0..400 {
                let key = |round| T::key(1_000_000 + round * 400 + i);
                table.insert(key(round), T::value(round), &mut patches).unwrap();
                if round >= 100 {
                    let gone = table.remove(key(round - 100), &mut patches);
                    assert_eq!(gone, Some(T::value(round - 100)));
                }
            }
            if round % 50 == 49 {
                table.rehash();
            }
            table.step(500, &mut patches);
            replaced += patches.iter().filter(|patch| T::is_whole(patch)).count();
            writer.publish(patches);
        }
        done.store(true, Ordering::Relaxed);
        assert!(replaced > 3, "the table grew or was rehashed: {replaced}");
    });
    writer.settle();
    let pin = reader.pin();
    let (entries, mut keys) = (table.entries(), stays);
    keys.extend(entries.keys());
    ask::<T>(&pin, &keys, |key| entries[key]);
    assert_eq!(table.len(), 44_096);
}

pub(crate) fn many_come_and_go<T: Table>() {
    come_and_go::<T>(10_000, 100_000);
}

/// Entries come and go, at 95 % of the limit for most of the time.
pub(crate) fn come_and_go<T: Table>(limit: u64, count: u64) {
    let mut bed = Bed::<T>::new(limit as usize, 0, 5);
    let key = |number: u64| T::key(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let kept = limit * 95 / 100;
    for number in 0..count {
        bed.insert(key(number), T::value(number % 1000)).unwrap();
        if number >= kept {
            bed.remove(key(number - kept));
        }
        if number % 64 == 0 {
            bed.step(100);
        }
    }
    bed.check((0..1000).map(key));
    assert_eq!(bed.table.len(), kept as usize);
}

pub(crate) fn slices_of_different_lengths_are_a_defect<T: Table>() {
    let (_, image) = T::new(10, 10, 1);
    T::forms(&image, &mut |name, form| {
        let (keys, mut out) = ([T::key(1), T::key(2)], [T::Value::default()]);
        let asked = std::panic::AssertUnwindSafe(|| form(&keys, &mut out));
        assert!(std::panic::catch_unwind(asked).is_err(), "{name}");
    });
}
