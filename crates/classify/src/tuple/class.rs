//! One class: its cuckoo table and filter in the image.

use super::hashes::Functions;
use super::layout::*;
use crate::image::Image;
use crate::rule::{Match, RuleError};

/// Slots that the search for a path of moves looks at.
const SEARCH: usize = 256;

/// Of 100 slots, those in use before a class moves to a larger block. Three subtables take 91.
pub(super) const LOAD_MAX: usize = 84;

/// No path of moves.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Crowded;

/// Why an entry was not added.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// There is room, and no path of moves: another hash is needed.
    Crowded,
    /// Anything else.
    Rule(RuleError),
}

impl From<RuleError> for Trouble {
    fn from(error: RuleError) -> Self {
        Self::Rule(error)
    }
}

/// How often a class that finds no path of moves tries a larger block.
const TRIES: usize = 4;

/// What a class's table and filter are made with.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) functions: Functions,
    pub(super) filter: Option<FilterPlan>,
    /// Words of a header.
    pub(super) words: usize,
}

/// A class, as the builder knows it.
#[derive(Debug, Clone)]
pub(super) struct Class {
    pub(super) mask: Box<[u32]>,
    pub(super) record: Record,
    /// Entries.
    pub(super) len: usize,
    /// Numbers that an entry may have, with 0.
    numbers: u32,
    /// Numbers below `record.count` that no entry has.
    free: Vec<u32>,
    /// Entries whose bits are in the filter although they are gone.
    stale: usize,
}

/// Sizes of a class of up to `entries`.
fn depth_for(entries: usize) -> usize {
    (entries * 100).div_ceil(LOAD_MAX * SUBTABLES).max(2)
}

fn capacity(depth: usize) -> usize {
    depth * SUBTABLES * LOAD_MAX / 100
}

impl Class {
    /// An empty class with room for `entries`.
    pub(super) fn new(
        image: &mut Image,
        plan: &Plan,
        mask: Box<[u32]>,
        entries: usize,
    ) -> Result<Self, RuleError> {
        let record = Record::default();
        let mut class = Self { mask, record, len: 0, numbers: 0, free: Vec::new(), stale: 0 };
        class.allocate(image, plan, depth_for(entries))?;
        Ok(class)
    }

    /// An empty class of three subtables of `depth` slots that takes an entry for each of them, if the hash can.
    pub(super) fn to_fill(
        image: &mut Image,
        plan: &Plan,
        mask: Box<[u32]>,
        depth: usize,
    ) -> Result<Self, RuleError> {
        let mut class = Self::new(image, plan, mask, 0)?;
        class.allocate_slots(image, plan, depth, SUBTABLES * depth)?;
        Ok(class)
    }

    fn allocate(&mut self, image: &mut Image, plan: &Plan, depth: usize) -> Result<(), RuleError> {
        self.allocate_slots(image, plan, depth, capacity(depth))
    }

    fn allocate_slots(
        &mut self,
        image: &mut Image,
        plan: &Plan,
        depth: usize,
        entries: usize,
    ) -> Result<(), RuleError> {
        let numbers = entries + 1;
        let slots = image.take(table_words(depth, numbers, plan.words))?;
        let entries = slots + entries_offset(depth);
        let tag_mask = !(numbers.next_power_of_two() as u32 - 1);
        self.record = Record {
            slots: slots as u32,
            depth: depth as u32,
            tag_mask,
            entries: entries as u32,
            count: 1,
            ..Record::default()
        };
        self.numbers = numbers as u32;
        self.free.clear();
        (self.len, self.stale) = (0, 0);
        // Entry 0 stands for empty slots.
        image.write(entries + plan.words, &Match::NONE.to_words());
        if let Some(filter) = plan.filter {
            let bits = filter.bits(capacity(depth));
            match image.take(filter_words(bits)) {
                Ok(offset) => self.record.filter = offset as u32,
                Err(error) => {
                    image.give(slots, table_words(depth, numbers, plan.words));
                    return Err(error);
                }
            }
            self.record.shift = 32 - bits.ilog2();
        }
        Ok(())
    }

    /// Gives the blocks back.
    pub(super) fn release(&self, image: &mut Image, plan: &Plan) {
        image.give(self.record.slots as usize, self.table_words(plan));
        if plan.filter.is_some() {
            image.give(self.record.filter as usize, filter_words(self.filter_bits()));
        }
    }

    /// Words of slots and entries.
    pub(super) fn table_words(&self, plan: &Plan) -> usize {
        table_words(self.record.depth as usize, self.numbers as usize, plan.words)
    }

    pub(super) fn filter_bits(&self) -> u64 {
        1 << (32 - self.record.shift)
    }

    fn entry_offset(&self, plan: &Plan, number: u32) -> usize {
        self.record.entries as usize + number as usize * entry_words(plan.words)
    }

    fn value<'i>(&self, image: &'i Image, plan: &Plan, number: u32) -> &'i [u32] {
        &image.words()[self.entry_offset(plan, number)..][..plan.words]
    }

    /// The best rule of an entry.
    pub(super) fn found(&self, image: &Image, plan: &Plan, number: u32) -> Match {
        let offset = self.entry_offset(plan, number) + plan.words;
        Match::from_words(image.words()[offset], image.words()[offset + 1])
    }

    pub(super) fn set_found(&self, image: &mut Image, plan: &Plan, number: u32, found: Match) {
        image.write(self.entry_offset(plan, number) + plan.words, &found.to_words());
    }

    /// Numbers of the entries.
    pub(super) fn numbers<'c>(
        &'c self,
        image: &'c Image,
        plan: &'c Plan,
    ) -> impl Iterator<Item = u32> + 'c {
        (1..self.record.count).filter(|number| self.found(image, plan, *number).is_some())
    }

    fn slots_of(&self, plan: &Plan, x: u32) -> [usize; SUBTABLES] {
        let (first, depth) = (self.record.slots as usize, self.record.depth);
        std::array::from_fn(|table| {
            let slot = plan.functions.slots[table].slot(x, depth);
            first + table * depth as usize + slot as usize
        })
    }

    /// Whether one of the slots of a hash is empty.
    pub(super) fn has_empty_slot(&self, image: &Image, plan: &Plan, x: u32) -> bool {
        self.slots_of(plan, x).into_iter().any(|slot| image.words()[slot] == 0)
    }

    /// The entry of a value and the slot where its number is.
    pub(super) fn find(&self, image: &Image, plan: &Plan, value: &[u32]) -> Option<(u32, usize)> {
        let x = plan.functions.hash(value.iter().copied());
        self.slots_of(plan, x).into_iter().find_map(|slot| {
            let word = image.words()[slot];
            let number = word & !self.record.tag_mask;
            let tagged = (word ^ x) & self.record.tag_mask == 0 && number != 0;
            (tagged && self.value(image, plan, number) == value).then_some((number, slot))
        })
    }

    /// Whether a further entry needs a larger block.
    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty() && self.record.count == self.numbers
    }

    /// Adds an entry whose value is not there and for which there is room. Nothing has changed after an error.
    pub(super) fn add(
        &mut self,
        image: &mut Image,
        plan: &Plan,
        value: &[u32],
        found: Match,
    ) -> Result<(), Crowded> {
        let number = self.free.last().copied().unwrap_or(self.record.count);
        let x = plan.functions.hash(value.iter().copied());
        let slot = self.free_slot(image, plan, x).ok_or(Crowded)?;
        if self.free.pop().is_none() {
            self.record.count += 1;
        }
        self.len += 1;
        let mut entry = value.to_vec();
        entry.extend(found.to_words());
        image.write(self.entry_offset(plan, number), &entry);
        image.set(slot, x & self.record.tag_mask | number);
        self.add_to_filter(image, plan, x);
        Ok(())
    }

    /// Takes an entry away.
    pub(super) fn remove(&mut self, image: &mut Image, plan: &Plan, number: u32, slot: usize) {
        image.set(slot, 0);
        self.set_found(image, plan, number, Match::NONE);
        self.free.push(number);
        self.len -= 1;
        self.stale += 1;
        if plan.filter.is_some() && self.stale > self.len + 8 {
            self.refill(image, plan);
        }
    }

    /// The filter again, of the entries that are there.
    fn refill(&mut self, image: &mut Image, plan: &Plan) {
        let words = filter_words(self.filter_bits());
        image.fill(self.record.filter as usize, words, 0);
        let numbers: Vec<u32> = self.numbers(image, plan).collect();
        for number in numbers {
            let x = plan.functions.hash(self.value(image, plan, number).iter().copied());
            self.add_to_filter(image, plan, x);
        }
        self.stale = 0;
    }

    fn add_to_filter(&self, image: &mut Image, plan: &Plan, x: u32) {
        let Some(filter) = plan.filter else { return };
        let functions = &plan.functions.filters[..filter.functions as usize];
        let (word, bits) = filter_bits(functions, x, self.record.shift);
        let offset = (self.record.filter + word) as usize;
        let all = image.words()[offset] | bits;
        if all != image.words()[offset] {
            image.set(offset, all);
        }
    }

    /// Moves to a block for twice as many entries. Nothing has changed after an error.
    pub(super) fn grow(&mut self, image: &mut Image, plan: &Plan) -> Result<(), Trouble> {
        let old = self.clone();
        let mut depth = depth_for(2 * self.len.max(2));
        for _ in 0..TRIES {
            if let Err(error) = self.allocate(image, plan, depth) {
                *self = old;
                return Err(error.into());
            }
            let numbers: Vec<u32> = old.numbers(image, plan).collect();
            let moved = numbers.into_iter().try_for_each(|number| {
                let found = old.found(image, plan, number);
                let value = old.value(image, plan, number).to_vec();
                self.add(image, plan, &value, found)
            });
            if moved.is_ok() {
                old.release(image, plan);
                return Ok(());
            }
            self.release(image, plan);
            depth += depth / 2 + 1;
        }
        *self = old;
        Err(Trouble::Crowded)
    }

    /// An empty slot for `x`: one that is, or one that the shortest path of moves makes.
    fn free_slot(&self, image: &mut Image, plan: &Plan, x: u32) -> Option<usize> {
        let roots = self.slots_of(plan, x);
        let empty = roots.into_iter().find(|slot| image.words()[*slot] == 0);
        if empty.is_some() {
            return empty;
        }
        // Slots that the search has come to, and the one whose entry has this one as another.
        let mut search: Vec<(usize, usize)> = roots.map(|slot| (slot, usize::MAX)).to_vec();
        let mut at = 0;
        while at < search.len() && search.len() < SEARCH {
            let slot = search[at].0;
            let number = image.words()[slot] & !self.record.tag_mask;
            let x = plan.functions.hash(self.value(image, plan, number).iter().copied());
            for other in self.slots_of(plan, x) {
                if image.words()[other] == 0 {
                    return Some(self.move_along(image, &search, at, other));
                }
                if search.iter().all(|(seen, _)| *seen != other) {
                    search.push((other, at));
                }
            }
            at += 1;
        }
        None
    }

    /// Moves the entries of a path, the last first; the slot that is empty then.
    fn move_along(
        &self,
        image: &mut Image,
        search: &[(usize, usize)],
        mut at: usize,
        mut empty: usize,
    ) -> usize {
        loop {
            let (slot, from) = search[at];
            let word = image.words()[slot];
            image.set(empty, word);
            empty = slot;
            if from == usize::MAX {
                image.set(empty, 0);
                return empty;
            }
            at = from;
        }
    }
}

/// The first entry's offset from the first slot.
fn entries_offset(depth: usize) -> usize {
    (SUBTABLES * depth).next_multiple_of(4)
}

fn table_words(depth: usize, numbers: usize, words: usize) -> usize {
    entries_offset(depth) + numbers * entry_words(words)
}

pub(super) fn filter_words(bits: u64) -> usize {
    bits.div_ceil(32) as usize
}
