//! The tables as a device has them: regions of words, and patches of them.
//!
//! ```text
//!  DIRECTORY   magic │ tables │ exact wins │ – │ parameters of the hash of EXACT, two words each …
//!              for each table: words that its classifier looks at (0: no wildcard flow) │ – … │ their numbers, four to a word
//!  FLOWS       32 words for each number of a flow:
//!              kind, next table, changes │ rank │ metadata: value, mask │ table │ – │ the key of an exact flow: 9 words
//!              │ changes of the key: 5 of 3 words
//!  EXACT       the exact flows of all tables, a hash table: hash │ number + 1; 0 is free, all ones was taken away
//!  CLASSES     a region for each table: the image of its classifier ([`classify`])
//! ```
//!
//! An exact flow is found by the words of the key that the longest [shape](crate::exact::shape) has, under the shape of
//! the packet, and its table. Control keeps a twin of EXACT and makes patches of it (`Follower`); everything else follows from the
//! patches that the CPU's tables get. Nothing of this is made without `device` of [`Settings`].
//!
//! A device knows the first [`TABLES_MAX`] tables, and linear search, tuple and Bloom search and cut trees, all but the first over
//! [`TUPLE_WORDS_MAX`] words.
//! Paths end at other tables.

use std::borrow::Cow;

use chunk::hash::MultiplyShift;
use classify::cuts::Cuts;
use classify::linear::Linear;
use classify::tuple::TupleSpace;
use classify::{Classify, Tables as Classes};
use lookup::Patch;

use crate::exact;
use crate::flow::Flow;
use crate::key::Key;
use crate::tables::{FlowPatch, FlowTables, Settings, rank};
use crate::walk::OPS_MAX;

/// Tables that a device knows.
pub const TABLES_MAX: usize = 16;
/// Words of the headers of tuple and Bloom search that a device knows: those that a kernel keeps in registers.
pub const TUPLE_WORDS_MAX: usize = 16;
/// Numbers of flows that a device knows: 1 GiB of records.
pub const FLOWS_MAX: usize = 1 << 23;
/// Words of a region that a device is sent: 1 GiB.
pub const WORDS_MAX: usize = 1 << 28;

/// Numbers of the regions.
pub mod region {
    #![allow(missing_docs)] // the picture above has them
    pub const DIRECTORY: usize = 0;
    pub const FLOWS: usize = 1;
    pub const EXACT: usize = 2;
    pub const CLASSES: usize = 3;
    pub const COUNT: usize = CLASSES + super::TABLES_MAX;
}

/// The first word of the directory.
pub const MAGIC: u32 = 0x666c_6f01;
/// The first word of the hash's parameters.
pub const PARAMETERS: usize = 4;
/// The first table's entry.
pub const ENTRIES: usize = 32;
/// Words of an entry.
pub const ENTRY: usize = 16;
/// Where an entry has the numbers of words.
pub const ENTRY_WORDS: usize = 4;

/// Words of a flow's record.
pub const RECORD: usize = 32;
/// Where a record has the key of an exact flow.
pub const RECORD_KEY: usize = 7;
/// Where a record has changes of the key.
pub const RECORD_OPS: usize = 16;
/// In the first word of a record: there is a flow.
pub const IS_THERE: u32 = 1;
/// In the same: the path is open behind it.
pub const IS_OPEN: u32 = 2;
/// In the same, in the second byte: no next table.
pub const NO_TABLE: u32 = 0xff;

/// Words of a key that exact flows give.
pub const EXACT_WORDS: [u8; 9] = [4, 5, 6, 7, 8, 9, 10, 14, 18];
/// Words that are hashed: the table, too.
pub const HASHED: usize = EXACT_WORDS.len() + 1;

const _: () = assert!(RECORD_KEY + EXACT_WORDS.len() <= RECORD_OPS);
const _: () = assert!(RECORD_OPS + 3 * OPS_MAX <= RECORD);
const _: () = assert!(PARAMETERS + 2 * (HASHED + 1) <= ENTRIES);

/// Words of records that make one patch.
const PATCH_WORDS: usize = 1 << 16;

/// A slot whose flow was taken away.
pub const GONE: u32 = u32::MAX;

/// The record of a flow; zeros for none.
pub fn record(flow: Option<&Flow>) -> [u32; RECORD] {
    let mut words = [0; RECORD];
    let Some(flow) = flow else { return words };
    let effect = &flow.steps.effect;
    let goto = flow.steps.goto.map_or(NO_TABLE, u32::from);
    let is_open = if effect.is_open { IS_OPEN } else { 0 };
    words[0] = IS_THERE | is_open | goto << 8 | (effect.ops.len() as u32) << 16;
    words[1] = rank(flow.priority);
    let (value, mask) = flow.steps.metadata.unwrap_or_default();
    for (at, word) in [value & mask, mask].into_iter().enumerate() {
        words[2 + 2 * at] = (word >> 32) as u32;
        words[3 + 2 * at] = word as u32;
    }
    words[6] = flow.table.into();
    let key = flow.words.value.and(exact::shape(&flow.words.value));
    for (to, word) in words[RECORD_KEY..].iter_mut().zip(EXACT_WORDS) {
        *to = key.0[usize::from(word)];
    }
    for (to, op) in words[RECORD_OPS..].chunks_exact_mut(3).zip(&effect.ops) {
        to.copy_from_slice(op);
    }
    words
}

/// What is hashed of an exact flow.
fn hashed(table: u8, key: &Key) -> [u32; HASHED] {
    let mut words = [u32::from(table); HASHED];
    for (to, word) in words.iter_mut().zip(EXACT_WORDS) {
        *to = key.0[usize::from(word)];
    }
    words
}

fn directory(settings: Settings, seed: u64) -> Vec<u32> {
    let mut words = vec![0; ENTRIES + ENTRY * TABLES_MAX];
    words[0] = MAGIC;
    words[1] = u32::from(settings.tables).min(TABLES_MAX as u32);
    words[2] = settings.exact_wins.into();
    for at in 0..=HASHED {
        let parameter = chunk::hash::parameter(seed, at as u32);
        words[PARAMETERS + 2 * at] = parameter as u32;
        words[PARAMETERS + 2 * at + 1] = (parameter >> 32) as u32;
    }
    words
}

/// The entry of a table whose classifier looks at these words.
fn entry(looked_at: &[u8]) -> [u32; ENTRY] {
    let mut entry = [0; ENTRY];
    entry[0] = looked_at.len() as u32;
    for (at, word) in looked_at.iter().enumerate() {
        entry[ENTRY_WORDS + at / 4] |= u32::from(*word) << (8 * (at % 4));
    }
    entry
}

/// Whether a device knows how the wildcard flows of a table are searched. A table without any is known.
pub fn knows(tables: &FlowTables, table: u8) -> bool {
    tables.classes(table).is_none_or(|(_, classes)| {
        let blob = classes.blob();
        let tuple = TupleSpace::new(blob).is_some_and(|own| own.words() <= TUPLE_WORDS_MAX);
        // Cut trees have no more words.
        tuple || Linear::new(blob).is_some() || Cuts::new(blob).is_some()
    })
}

/// Whether a version is small enough for a device.
pub fn fits(tables: &FlowTables) -> bool {
    let mut classes = (0..TABLES_MAX as u8).filter_map(|table| tables.classes(table));
    tables.numbers() <= FLOWS_MAX
        && classes.all(|(_, classes)| classes.blob().len_words() <= WORDS_MAX)
}

/// All regions of a version; empty ones without a device.
pub fn regions(tables: &FlowTables) -> Vec<Cow<'_, [u32]>> {
    let mut regions = vec![Cow::Borrowed(&[][..]); region::COUNT];
    let Some(exact) = tables.device() else { return regions };
    if !fits(tables) {
        return regions;
    }
    let mut first = directory(tables.settings(), exact.seed);
    for table in 0..TABLES_MAX as u8 {
        let Some((words, classes)) = tables.classes(table) else { continue };
        let at = ENTRIES + ENTRY * usize::from(table);
        first[at..][..ENTRY].copy_from_slice(&entry(words));
        regions[region::CLASSES + usize::from(table)] = Cow::Borrowed(classes.blob().words());
    }
    regions[region::DIRECTORY] = Cow::Owned(first);
    let records = (0..tables.numbers()).flat_map(|id| record(tables.flow(id as u32)));
    regions[region::FLOWS] = Cow::Owned(records.collect());
    regions[region::EXACT] = Cow::Borrowed(&exact.slots);
    regions
}

/// EXACT as versions have it: words, and what it is hashed by.
#[derive(Clone, Debug)]
pub struct ExactSlots {
    seed: u64,
    slots: Vec<u32>,
}

impl ExactSlots {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, slots: Vec::new() }
    }

    /// Memory, bytes.
    pub(crate) fn len_bytes(&self) -> usize {
        size_of_val(&*self.slots)
    }

    pub(crate) fn apply(&mut self, patch: &Patch) {
        match patch {
            Patch::Replace(words) => self.slots.clone_from(words),
            Patch::Write { offset_words, words } => {
                self.slots[*offset_words..][..words.len()].copy_from_slice(words);
            }
            // The follower makes no others.
            _ => {}
        }
    }
}

/// Makes patches of a device's regions of those of the CPU's tables.
#[derive(Debug)]
pub(crate) struct Follower {
    hash: MultiplyShift<HASHED>,
    slots: Vec<u32>,
    /// Flows, and slots that are not free.
    len: usize,
    used: usize,
}

impl Follower {
    /// Over empty tables with this seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self { hash: MultiplyShift::new(seed), slots: Vec::new(), len: 0, used: 0 }
    }

    /// Adds the patches that follow from those from place `from` on.
    pub(crate) fn follow(&mut self, patches: &mut Vec<FlowPatch>, from: usize) {
        let mut own = Vec::new();
        let write =
            |at: usize, words: &[u32]| Patch::Write { offset_words: at, words: words.to_vec() };
        for patch in &patches[from..] {
            match patch {
                FlowPatch::Flow(id, flow) => {
                    let (at, record) = (RECORD * *id as usize, record(flow.as_deref()));
                    match own.last_mut() {
                        Some(FlowPatch::Device(
                            region::FLOWS,
                            Patch::Write { offset_words, words },
                        )) if *offset_words + words.len() == at && words.len() < PATCH_WORDS => {
                            words.extend_from_slice(&record);
                        }
                        _ => own.push(FlowPatch::Device(region::FLOWS, write(at, &record))),
                    }
                }
                FlowPatch::Exact(table, flow, is_there) => {
                    let key = &flow.words.value;
                    let hash = self.hash.hash(&hashed(*table, &key.and(exact::shape(key))));
                    let patch = match is_there {
                        true => Some(self.insert(hash, flow.id)),
                        false => self.remove(hash, flow.id),
                    };
                    own.extend(patch.map(|patch| FlowPatch::Device(region::EXACT, patch)));
                }
                FlowPatch::Classifier(table, classes) if usize::from(*table) < TABLES_MAX => {
                    let words = classes.as_ref().map_or(&[][..], |own| &own.words);
                    let at = ENTRIES + ENTRY * usize::from(*table);
                    own.push(FlowPatch::Device(region::DIRECTORY, write(at, &entry(words))));
                    let image = classes.as_ref().map(|own| own.classes.blob().words());
                    let image = image.map_or_else(|| vec![0; ENTRY], <[u32]>::to_vec);
                    let region = region::CLASSES + usize::from(*table);
                    own.push(FlowPatch::Device(region, Patch::Replace(image)));
                }
                FlowPatch::Classes(table, patch) if usize::from(*table) < TABLES_MAX => {
                    let region = region::CLASSES + usize::from(*table);
                    own.push(FlowPatch::Device(region, patch.clone()));
                }
                _ => {}
            }
        }
        patches.append(&mut own);
    }

    /// Where the number of a hash is, or the first place where it can be.
    fn place(&self, hash: u32, is_it: impl Fn(u32) -> bool) -> Option<usize> {
        let mask = (self.slots.len() / 2).checked_sub(1)?;
        let mut at = hash as usize & mask;
        for _ in 0..=mask {
            let [own, number] = [self.slots[2 * at], self.slots[2 * at + 1]];
            if is_it(number) && (own == hash || number == 0 || number == GONE) {
                return Some(at);
            }
            if number == 0 {
                return None;
            }
            at = (at + 1) & mask;
        }
        None
    }

    fn put(&mut self, hash: u32, number: u32) -> Option<Patch> {
        let at = self.place(hash, |own| own == 0 || own == GONE)?;
        self.used += usize::from(self.slots[2 * at + 1] == 0);
        self.len += 1;
        self.slots[2 * at..][..2].copy_from_slice(&[hash, number]);
        Some(Patch::Write { offset_words: 2 * at, words: vec![hash, number] })
    }

    fn insert(&mut self, hash: u32, id: u32) -> Patch {
        if 4 * (self.used + 1) > self.slots.len() {
            let old = std::mem::take(&mut self.slots);
            let kept = old.chunks_exact(2).filter(|slot| slot[1] != 0 && slot[1] != GONE);
            self.slots = vec![0; 2 * (4 * (self.len + 1)).next_power_of_two().max(16)];
            (self.len, self.used) = (0, 0);
            kept.for_each(|slot| drop(self.put(slot[0], slot[1])));
            self.put(hash, id + 1);
            return Patch::Replace(self.slots.clone());
        }
        self.put(hash, id + 1).unwrap_or_else(|| Patch::Replace(self.slots.clone()))
    }

    fn remove(&mut self, hash: u32, id: u32) -> Option<Patch> {
        let at = self.place(hash, |own| own == id + 1)?;
        self.len -= 1;
        self.slots[2 * at + 1] = GONE;
        Some(Patch::Write { offset_words: 2 * at, words: vec![hash, GONE] })
    }
}

/// The classifier of a table: the words of the key that it looks at, and the image.
pub(crate) type Searched<'a> = (&'a [u8], &'a Classes);
