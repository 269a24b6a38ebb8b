//! Distinct strings, numbered in order of appearance.

use std::hash::{BuildHasher, RandomState};

/// One arena of text and a hash table of numbers: 12 bytes and the text for each token.
#[derive(Debug, Clone, Default)]
pub(super) struct Tokens {
    text: String,
    ends: Vec<usize>,
    slots: Vec<u32>, // number + 1, or 0; a power of two of them, at most half in use
    hasher: RandomState,
    last: u32, // most files have runs of one next hop
}

impl Tokens {
    /// The number of `token`, a new one when it is new.
    pub(super) fn number(&mut self, token: &str) -> u32 {
        if self.get(self.last) == Some(token) {
            return self.last;
        }
        if self.slots.len() <= 2 * self.ends.len() {
            self.grow();
        }
        let mut at = self.slot(token);
        self.last = loop {
            match self.slots[at].checked_sub(1) {
                None => break self.add(token, at),
                Some(number) if self.get(number) == Some(token) => break number,
                Some(_) => at = (at + 1) % self.slots.len(),
            }
        };
        self.last
    }

    pub(super) fn get(&self, number: u32) -> Option<&str> {
        let number = number as usize;
        let end = *self.ends.get(number)?;
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.text[start..end])
    }

    pub(super) fn len(&self) -> u32 {
        self.ends.len() as u32
    }

    fn add(&mut self, token: &str, at: usize) -> u32 {
        let number = self.len();
        self.text.push_str(token);
        self.ends.push(self.text.len());
        self.slots[at] = number + 1;
        number
    }

    fn slot(&self, token: &str) -> usize {
        self.hasher.hash_one(token) as usize % self.slots.len()
    }

    fn grow(&mut self) {
        self.slots = vec![0; (self.slots.len() * 2).max(64)];
        for number in 0..self.len() {
            let mut at = self.get(number).map_or(0, |token| self.slot(token));
            while self.slots[at] != 0 {
                at = (at + 1) % self.slots.len();
            }
            self.slots[at] = number + 1;
        }
    }
}
