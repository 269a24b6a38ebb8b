//! Equivalence classes by bitmaps over the different conditions, for fields that do not nest.

use std::collections::HashMap;

use super::Budget;
use super::fields::{Masked, Range};
use crate::rule::RuleError;

/// Classes, each the set of conditions that hold in it: a bit for each condition.
#[derive(Debug)]
pub(crate) struct Sets {
    /// Words of a set.
    words: usize,
    numbers: HashMap<Box<[u64]>, u32>,
    sets: Vec<u64>,
}

impl Sets {
    fn new(conditions: usize) -> Self {
        Self { words: conditions.div_ceil(64).max(1), numbers: HashMap::new(), sets: Vec::new() }
    }

    /// The class of a set.
    fn number(&mut self, set: &[u64]) -> u32 {
        if let Some(number) = self.numbers.get(set) {
            return *number;
        }
        let number = self.numbers.len() as u32;
        self.numbers.insert(set.into(), number);
        self.sets.extend_from_slice(set);
        number
    }

    /// Classes.
    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Memory of the sets, bytes.
    fn len_bytes(&self) -> u64 {
        self.sets.len() as u64 * 16
    }

    fn set(&self, class: usize) -> &[u64] {
        &self.sets[class * self.words..][..self.words]
    }

    /// Whether a condition holds in a class.
    pub(crate) fn holds(&self, class: usize, condition: usize) -> bool {
        self.set(class)[condition / 64] >> (condition % 64) & 1 == 1
    }

    /// The classes by pairs: a bit for each pair whose first (or second) condition is the one of `of`.
    fn spread(&self, conditions: impl Iterator<Item = u32> + Clone, words: usize) -> Vec<u64> {
        let mut spread = vec![0; self.len() * words];
        for (class, set) in spread.chunks_exact_mut(words).enumerate() {
            for (at, condition) in conditions.clone().enumerate() {
                set[at / 64] |= u64::from(self.holds(class, condition as usize)) << (at % 64);
            }
        }
        spread
    }
}

/// A table of classes.
#[derive(Debug)]
pub(crate) struct Classes {
    pub(crate) cells: Vec<u32>,
    pub(crate) sets: Sets,
}

/// What is refused while classes are made.
const BITMAPS: &str = "bitmaps while building";

/// Classes of all ports.
pub(crate) fn of_ranges(ranges: &[Range], budget: &Budget) -> Result<Classes, RuleError> {
    let mut sets = Sets::new(ranges.len());
    let mut changes: Vec<(u32, usize)> = Vec::new();
    for (at, (low, high)) in ranges.iter().enumerate() {
        changes.extend([(u32::from(*low), at), (u32::from(*high) + 1, at)]);
    }
    changes.sort_unstable();
    let mut set = vec![0_u64; sets.words];
    let mut cells = Vec::with_capacity(1 << 16);
    let mut rest = changes.as_slice();
    loop {
        let end = rest.first().map_or(1 << 16, |(at, _)| *at as usize);
        if end > cells.len() {
            let number = sets.number(&set);
            cells.resize(end, number);
            budget.check_workspace(BITMAPS, sets.len_bytes())?;
        }
        let Some(((at, _), _)) = rest.split_first() else { break };
        let here = rest.partition_point(|(other, _)| other == at);
        let (now, later) = rest.split_at(here);
        now.iter().for_each(|(_, condition)| set[condition / 64] ^= 1 << (condition % 64));
        rest = later;
    }
    cells.resize(1 << 16, 0);
    Ok(Classes { cells, sets })
}

/// Classes of all protocols.
pub(crate) fn of_masks(masks: &[Masked]) -> Classes {
    let mut sets = Sets::new(masks.len());
    let cells = (0..=255_u8).map(|proto| {
        let mut set = vec![0_u64; sets.words];
        for (at, (value, mask)) in masks.iter().enumerate() {
            set[at / 64] |= u64::from(proto & mask == *value) << (at % 64);
        }
        sets.number(&set)
    });
    Classes { cells: cells.collect(), sets }
}

/// The cross product of two tables' classes: those of pairs of their conditions.
pub(crate) fn product(
    rows: &Sets,
    columns: &Sets,
    pairs: &[(u32, u32)],
    part: &'static str,
    budget: &Budget,
) -> Result<Classes, RuleError> {
    let mut sets = Sets::new(pairs.len());
    let words = sets.words;
    let cells = rows.len() as u64 * columns.len() as u64;
    budget.check(part, cells)?;
    budget.check_workspace(BITMAPS, (rows.len() + columns.len()) as u64 * words as u64 * 8)?;
    let of_rows = rows.spread(pairs.iter().map(|(row, _)| *row), words);
    let of_columns = columns.spread(pairs.iter().map(|(_, column)| *column), words);
    let mut both = vec![0_u64; words];
    let mut cells = Vec::with_capacity(cells as usize);
    for row in of_rows.chunks_exact(words) {
        for column in of_columns.chunks_exact(words) {
            both.iter_mut().zip(row).zip(column).for_each(|((both, a), b)| *both = a & b);
            cells.push(sets.number(&both));
        }
        budget.check_workspace(BITMAPS, sets.len_bytes())?;
    }
    Ok(Classes { cells, sets })
}

#[cfg(test)]
mod tests {
    use super::*;
    use chunk::hash::fmix32;

    #[test]
    fn values_are_of_one_class_if_the_same_conditions_hold() {
        for seed in 0..12_u32 {
            let budget = Budget::new(1 << 30);
            let of = |at| {
                let x = fmix32(seed * 100 + at);
                let (a, b) = (x as u16 & 0x8fff, (x >> 16) as u16);
                (a.min(b), a.max(b))
            };
            let mut ranges: Vec<Range> = (0..seed * 7).map(of).collect();
            ranges.extend([(0, 65535), (65535, 65535)]);
            let classes = of_ranges(&ranges, &budget).unwrap();
            assert_eq!(classes.cells.len(), 65536);
            for (port, class) in (0..=65535_u16).zip(&classes.cells) {
                for (at, (low, high)) in ranges.iter().enumerate() {
                    let holds = (*low..=*high).contains(&port);
                    assert_eq!(classes.sets.holds(*class as usize, at), holds);
                }
            }
            let masks = [(6, 255), (17, 255), (0, 0), (1, 3), (16, 0xf0)];
            let protos = of_masks(&masks);
            let pairs: Vec<(u32, u32)> =
                (0..60).map(|at| (fmix32(at) % ranges.len() as u32, fmix32(at + 60) % 5)).collect();
            let both = product(&classes.sets, &protos.sets, &pairs, "", &budget).unwrap();
            for port in (0..65536_usize).step_by(97) {
                for proto in 0..=255_u8 {
                    let (row, column) = (classes.cells[port], protos.cells[usize::from(proto)]);
                    let cell = row as usize * protos.sets.len() + column as usize;
                    let class = both.cells[cell] as usize;
                    for (at, (range, mask)) in pairs.iter().enumerate() {
                        let (low, high) = ranges[*range as usize];
                        let (value, mask) = masks[*mask as usize];
                        let holds = (low..=high).contains(&(port as u16)) && proto & mask == value;
                        assert_eq!(both.sets.holds(class, at), holds);
                    }
                }
            }
        }
    }
}
