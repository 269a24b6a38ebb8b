//! Numbers of connections, given by somebody who knows them for longer than a batch: a device with a table of its own. The tracker
//! keeps the slot of each number, and looks there first.
//!
//! ```text
//!  number   3    8    –    3        said by the caller
//!  slots    [3] 17  [8] none        what the tracker found for them last time: that row's key is compared
//! ```
//!
//! What is said is believed of no packet whose key is another, so it changes nothing but the work.
//!
//! Memory: four bytes a number, taken when the caller says how many there may be.

use interleave::prefetch;

use super::Tracker;
use super::flows::Hot;
use super::module::Module;
use crate::FlowKey;
use crate::table::{FlowTable, Found, Slot};

/// The number of a packet of which nothing is said.
pub const NO_NUMBER: u32 = u32::MAX;

/// No slot has this place.
const NO_SLOT: Slot = Slot(u32::MAX);

/// What is said of the next batch, and what became of earlier numbers.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    /// By row.
    said: Vec<u32>,
    /// By number: the slot that a packet with it had last.
    slots: Vec<Slot>,
    /// By row of what is looked up together; empty where nothing is said.
    guesses: Vec<Slot>,
    /// Packets that were found by their number.
    count: u64,
}

impl Numbers {
    /// Slots of the rows from `first` on, by their numbers.
    #[inline(always)]
    pub(super) fn guess(&mut self, first: usize, rows: usize) {
        self.guesses.clear();
        if self.said.len() > first {
            self.guess_said(first, rows);
        }
    }

    fn guess_said(&mut self, first: usize, rows: usize) {
        let said = &self.said[first..];
        let said = &said[..said.len().min(rows)];
        let slot = |number: &u32| self.slots.get(*number as usize);
        said.iter().filter_map(slot).for_each(prefetch);
        self.guesses.extend(said.iter().map(|number| slot(number).copied().unwrap_or(NO_SLOT)));
        self.guesses.resize(rows, NO_SLOT);
    }

    /// Finds the flows of a batch, with what was guessed.
    #[inline(always)]
    pub(super) fn search(&mut self, table: &FlowTable<Hot>, keys: &[FlowKey], found: &mut [Found]) {
        if self.guesses.is_empty() {
            table.search(keys, found);
            return;
        }
        table.search_guessed(keys, &self.guesses, found);
        let is_right = |(guess, found): &(&Slot, &Found)| found.slot() == Some(**guess);
        self.count += self.guesses.iter().zip(&*found).filter(is_right).count() as u64;
    }

    /// The batch is over.
    pub(super) fn clear(&mut self) {
        self.said.clear();
    }

    /// What was found, or inserted, for the rows from `first` on.
    #[inline(always)]
    pub(super) fn learn(&mut self, first: usize, found: &[Found]) {
        let Some(said) = self.said.get(first..) else { return };
        for ((number, found), guess) in said.iter().zip(found).zip(&self.guesses) {
            if let Some(slot) = found.slot().filter(|slot| slot != guess)
                && let Some(own) = self.slots.get_mut(*number as usize)
            {
                *own = slot;
            }
        }
    }
}

impl<M: Module> Tracker<M> {
    /// Connections may have numbers below this one from now on.
    pub fn number_up_to(&mut self, numbers: usize) {
        let slots = &mut self.sharing.numbers.slots;
        slots.clear();
        slots.resize(numbers, NO_SLOT);
    }

    /// Says which connections the packets of the next batch belong to. A number should be that of one connection for as long as it
    /// lives; a packet with [`NO_NUMBER`], behind the last one, or with one that is too large, is looked up by its key.
    pub fn numbers(&mut self, numbers: impl IntoIterator<Item = u32>) {
        let said = &mut self.sharing.numbers.said;
        said.clear();
        said.extend(numbers);
    }

    /// Packets whose flow was found by its number.
    pub fn found_by_number(&self) -> u64 {
        self.sharing.numbers.count
    }
}
