//! The way of a header through a reduction tree, table by table: for people.

use super::frame::*;
use super::strips::STRIP;
use crate::explain::{Outcome, Step};
use crate::rule::Match;

/// The steps so far.
#[derive(Debug)]
pub(crate) struct Way<'f, 'a, const TABLES: usize> {
    frame: &'f Frame<'a, TABLES>,
    names: &'static [&'static str; TABLES],
    pub(crate) steps: Vec<Step>,
}

impl<'f, 'a, const TABLES: usize> Way<'f, 'a, TABLES> {
    pub(crate) fn new(
        frame: &'f Frame<'a, TABLES>,
        names: &'static [&'static str; TABLES],
    ) -> Self {
        Self { frame, names, steps: Vec::new() }
    }

    fn read(
        &mut self,
        table: usize,
        at: u32,
        place: String,
        means: impl Fn(u32) -> Outcome,
    ) -> u32 {
        let read = self.frame.get(table, at);
        self.steps.push(Step { place, accesses: 1, outcome: means(read) });
        read
    }

    /// Reads a table of phase 0 at a part of the header; the class.
    pub(crate) fn part(&mut self, table: usize, at: u32) -> u32 {
        let place = format!("phase 0, {}, entry {at:#x}", self.names[table]);
        self.read(table, at, place, class)
    }

    /// Reads a cross product; returns the entry.
    pub(crate) fn cross(
        &mut self,
        phase: u32,
        table: usize,
        (row, column): (u32, u32),
        means: impl Fn(u32) -> Outcome,
    ) -> u32 {
        let name = self.names[table];
        let place = format!("phase {phase}, {name}, row {row}, column {column}");
        self.read(table, self.frame.tables[table].at(row, column), place, means)
    }

    /// The same of one in strips.
    pub(crate) fn in_strips(
        &mut self,
        phase: u32,
        table: usize,
        (row, column): (u32, u32),
        means: impl Fn(u32) -> Outcome,
    ) -> u32 {
        let (first, column) = (column / STRIP as u32, column % STRIP as u32);
        let strip = self
            .cross(phase, table, (row, first), |strip| Outcome::LeadsTo(format!("strip {strip}")));
        self.cross(phase, table + STRIPS, (strip, column), means)
    }

    /// Phases 0 and 1 of both addresses, whose cross products may be in strips: their classes.
    pub(crate) fn addresses(
        &mut self,
        [src, dst, ..]: &[u32; WORDS],
        in_strips: bool,
    ) -> (u32, u32) {
        let mut both = |address: u32, high: usize, low: usize, whole: usize| {
            let parts = (self.part(high, address >> 16), self.part(low, address & 0xffff));
            match in_strips {
                true => self.in_strips(1, whole, parts, class),
                false => self.cross(1, whole, parts, class),
            }
        };
        (both(*src, SRC_HIGH, SRC_LOW, SRC), both(*dst, DST_HIGH, DST_LOW, DST))
    }

    /// Reads the place of a rule by its number from 1; 0 is none, and nothing is read.
    pub(crate) fn rule(&mut self, number: u32) -> Match {
        let found = self.frame.place(number);
        if number != 0 {
            let place = format!("rules, entry {}", number - 1);
            let outcome = Outcome::of(found, "no such rule");
            self.steps.push(Step { place, accesses: 1, outcome });
        }
        found
    }
}

/// An entry that is the number of an equivalence class.
pub(crate) fn class(number: u32) -> Outcome {
    Outcome::LeadsTo(format!("class {number}"))
}

/// An entry that is 1 + the rank of a rule, or 0.
pub(crate) fn rank(number: u32) -> Outcome {
    match number {
        0 => Outcome::Nothing("no rule"),
        number => Outcome::LeadsTo(format!("the rule of rank {}", number - 1)),
    }
}
