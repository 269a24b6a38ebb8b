//! Which units of the buffer's memory are free: blocks of [`BLOCK_UNITS`] units, and a run of units of a block for each piece.
//!
//! ```text
//!   block: used   ▓▓▓▓░░░▓▓▓▓▓▓░░░░░░░░░░░     free blocks: a stack, those used last on top
//!          starts ▓  ▓   ▓     ░               others with free units: a list for each length of their longest free run
//! ```
//!
//! A run is taken where the shortest free run has room for it, so that small pieces share blocks and large ones find whole
//! blocks. All of it takes constant time.

use super::NONE;

/// Units of a block.
pub(super) const BLOCK_UNITS: u32 = 48;
/// From so many units on, a piece takes a whole block: the rest of it is not worth a list.
const WHOLE_FROM: u32 = 44;

const FULL: u64 = (1 << BLOCK_UNITS) - 1;

/// Runs of one, of two, and of all units of a block that wait for the next one who wants such.
const SPARE_MAX: usize = 1024;

#[derive(Clone, Copy)]
struct Block {
    /// A bit for each unit that is taken, and one for each unit that is the first of those of a piece.
    used: u64,
    starts: u64,
    /// Units of the longest free run.
    longest: u32,
    next: u32,
    prev: u32,
}

impl Block {
    fn longest_free(self) -> u32 {
        // A bit for each unit that ends so many free ones: of 1, 2, 4, 8, 16, 32.
        let mut ends = [!self.used & FULL; 6];
        for step in 1..6 {
            ends[step] = ends[step - 1] & ends[step - 1] << (1 << (step - 1));
        }
        let (mut runs, mut len) = (FULL, 0);
        for step in (0..6).rev() {
            let longer = runs & ends[step] << len;
            if longer != 0 {
                (runs, len) = (longer, len + (1 << step));
            }
        }
        len
    }
}

pub(super) struct Units {
    blocks: Vec<Block>,
    whole: u32,
    whole_count: u32,
    /// First block of those whose longest free run has so many units, and a bit for each length that has one.
    partial: [u32; BLOCK_UNITS as usize],
    lengths: u64,
    /// Units that are free although their blocks say that they are taken: one alone, as each piece has for its links, two together,
    /// as each connection has, and whole blocks.
    spare: [Vec<u32>; 3],
    used: u32,
}

impl Units {
    pub(super) fn new(blocks: u32) -> Self {
        let block = |next| Block { used: 0, starts: 0, longest: BLOCK_UNITS, next, prev: NONE };
        let list = (1..=blocks).map(|next| block(if next == blocks { NONE } else { next }));
        Self {
            blocks: list.collect(),
            whole: 0,
            whole_count: blocks,
            partial: [NONE; BLOCK_UNITS as usize],
            lengths: 0,
            spare: [(); 3].map(|()| Vec::with_capacity(SPARE_MAX)),
            used: 0,
        }
    }

    pub(super) fn used(&self) -> u32 {
        self.used
    }

    pub(super) fn total(&self) -> u32 {
        self.blocks.len() as u32 * BLOCK_UNITS
    }

    pub(super) fn free(&self) -> u32 {
        self.total() - self.used
    }

    pub(super) fn whole_blocks(&self) -> u32 {
        self.whole_count + self.spare[2].len() as u32
    }

    /// The block that the next whole one will be.
    pub(super) fn next_whole(&self) -> Option<u32> {
        let spare = self.spare[2].last().copied();
        spare.or_else(|| (self.whole != NONE).then(|| self.whole * BLOCK_UNITS))
    }

    /// Units that a piece of so many takes, if it is not divided.
    pub(super) fn rounded(count: u32) -> u32 {
        if count >= WHOLE_FROM { BLOCK_UNITS } else { count }
    }

    /// Takes at most `count` units that follow each other, fewer if no block has as many: the first one, and how many.
    pub(super) fn take(&mut self, count: u32) -> Option<(u32, u32)> {
        let count = Self::rounded(count.clamp(1, BLOCK_UNITS));
        if count == BLOCK_UNITS
            && let Some(unit) = self.spare[2].pop()
        {
            self.used += count;
            return Some((unit, count));
        }
        if self.lengths >> count == 0 && self.whole == NONE {
            self.settle();
        }
        let fitting = self.lengths >> count;
        let (block, count) = if count < BLOCK_UNITS && fitting != 0 {
            (self.partial[(count + fitting.trailing_zeros()) as usize], count)
        } else if self.whole != NONE {
            (self.whole, count)
        } else {
            let longest = self.lengths.checked_ilog2()?;
            (self.partial[longest as usize], longest.min(count))
        };
        let before = self.blocks[block as usize];
        let mut at = 0;
        if before.used != 0 {
            let mut runs = !before.used & FULL;
            let mut len = 1;
            while len < count {
                let more = len.min(count - len);
                runs &= runs >> more;
                len += more;
            }
            at = runs.trailing_zeros();
        }
        self.detach(block, before);
        let own = &mut self.blocks[block as usize];
        own.used |= (FULL >> (BLOCK_UNITS - count)) << at;
        own.starts |= 1 << at;
        self.attach(block);
        self.used += count;
        Some((block * BLOCK_UNITS + at, count))
    }

    /// Where runs of so many wait, if they do.
    #[inline(always)]
    fn spare_of(&mut self, count: u32) -> Option<&mut Vec<u32>> {
        match count {
            1 | 2 => self.spare.get_mut(count as usize - 1),
            BLOCK_UNITS => self.spare.last_mut(),
            _ => None,
        }
    }

    /// Takes one unit, two that follow each other, or a block; nothing less.
    #[inline(always)]
    pub(super) fn take_all(&mut self, count: u32) -> Option<u32> {
        if let Some(unit) = self.spare_of(count).and_then(Vec::pop) {
            self.used += count;
            return Some(unit);
        }
        let (unit, taken) = self.take(count)?;
        if taken < count {
            self.give_back(unit);
            return None;
        }
        Some(unit)
    }

    /// Gives back so many units that were taken together.
    #[inline(always)]
    pub(super) fn give_back_all(&mut self, unit: u32, count: u32) {
        match self.spare_of(count) {
            Some(spare) if spare.len() < SPARE_MAX => {
                spare.push(unit);
                self.used -= count;
            }
            _ => self.give_back(unit),
        }
    }

    /// Tells the blocks of all units that are free.
    #[cold]
    pub(super) fn settle(&mut self) {
        for count in [1, 2, BLOCK_UNITS] {
            while let Some(unit) = self.spare_of(count).and_then(Vec::pop) {
                self.used += count;
                self.give_back(unit);
            }
        }
    }

    /// Gives back the units that begin with this one.
    pub(super) fn give_back(&mut self, unit: u32) {
        let (block, at) = (unit / BLOCK_UNITS, unit % BLOCK_UNITS);
        let before = self.blocks[block as usize];
        let count = self.count(unit);
        self.detach(block, before);
        let own = &mut self.blocks[block as usize];
        own.used &= !((FULL >> (BLOCK_UNITS - count)) << at);
        own.starts &= !(1 << at);
        self.attach(block);
        self.used -= count;
    }

    /// How many units were taken with this one, which is the first.
    pub(super) fn count(&self, unit: u32) -> u32 {
        let (block, at) = (unit / BLOCK_UNITS, unit % BLOCK_UNITS);
        let own = self.blocks[block as usize];
        let ends = (own.starts | !own.used) >> at >> 1;
        1 + ends.trailing_zeros()
    }

    /// Takes a block out of its list.
    fn detach(&mut self, block: u32, own: Block) {
        if own.used == 0 {
            // The one on top.
            self.whole = own.next;
            self.whole_count -= 1;
            return;
        }
        let length = own.longest;
        if length == 0 {
            return;
        }
        match self.blocks.get_mut(own.prev as usize) {
            Some(before) => before.next = own.next,
            None => {
                self.partial[length as usize] = own.next;
                if own.next == NONE {
                    self.lengths &= !(1 << length);
                }
            }
        }
        if let Some(behind) = self.blocks.get_mut(own.next as usize) {
            behind.prev = own.prev;
        }
        debug_assert!(block != own.next && block != own.prev);
    }

    fn attach(&mut self, block: u32) {
        let own = &mut self.blocks[block as usize];
        if own.used == 0 {
            own.next = self.whole;
            self.whole = block;
            self.whole_count += 1;
            return;
        }
        let length = if own.used == FULL { 0 } else { own.longest_free() };
        own.longest = length;
        if length == 0 {
            return;
        }
        let next = std::mem::replace(&mut self.partial[length as usize], block);
        self.lengths |= 1 << length;
        if let Some(behind) = self.blocks.get_mut(next as usize) {
            behind.prev = block;
        }
        let own = &mut self.blocks[block as usize];
        (own.next, own.prev) = (next, NONE);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    use super::*;

    proptest! {
        /// Against a map of what is taken: runs never overlap, are as long as can be, and come back as a whole; spare units
        /// are free all the time.
        #[test]
        fn runs_are_those_of_a_map(
            blocks in 1u32..9,
            steps in prop::collection::vec((0u32..9, prop_oneof![1u32..3, 1u32..60], any::<prop::sample::Index>()), 0..400),
        ) {
            let mut units = Units::new(blocks);
            let mut taken: BTreeMap<u32, u32> = BTreeMap::new();
            for (kind, count, which) in steps {
                let is_free = |unit: u32| {
                    taken.range(..=unit).next_back().is_none_or(|(at, len)| at + len <= unit)
                };
                let mut longest = 0;
                for block in 0..blocks {
                    let mut run = 0;
                    for unit in block * BLOCK_UNITS..(block + 1) * BLOCK_UNITS {
                        run = if is_free(unit) { run + 1 } else { 0 };
                        longest = longest.max(run);
                    }
                }
                match kind {
                    0 => units.settle(),
                    1 | 2 => {
                        let found = units.take_all(kind);
                        prop_assert_eq!(found.is_some(), longest >= kind);
                        let Some(unit) = found else { continue };
                        prop_assert!((unit..unit + kind).all(is_free));
                        prop_assert_eq!(unit / BLOCK_UNITS, (unit + kind - 1) / BLOCK_UNITS);
                        taken.insert(unit, kind);
                    }
                    3 | 4 => {
                        let wanted = Units::rounded(count.min(BLOCK_UNITS));
                        let found = units.take(count);
                        prop_assert_eq!(found.map(|own| own.1), (longest > 0).then_some(longest.min(wanted)));
                        let Some((unit, count)) = found else { continue };
                        prop_assert!((unit..unit + count).all(is_free));
                        prop_assert_eq!(unit / BLOCK_UNITS, (unit + count - 1) / BLOCK_UNITS);
                        taken.insert(unit, count);
                    }
                    _ if taken.is_empty() => {}
                    kind => {
                        let unit = *which.get(&taken.keys().copied().collect::<Vec<_>>());
                        prop_assert_eq!(taken.remove(&unit), Some(units.count(unit)));
                        match units.count(unit) {
                            count if kind < 8 => units.give_back_all(unit, count),
                            _ => units.give_back(unit),
                        }
                    }
                }
                prop_assert_eq!(units.used(), taken.values().sum::<u32>());
                let begun = |block: u32| {
                    taken.range(block * BLOCK_UNITS..(block + 1) * BLOCK_UNITS).next().is_some()
                };
                let whole = (0..blocks).filter(|block| !begun(*block)).count() as u32;
                prop_assert!(units.whole_blocks() <= whole);
                if units.spare.iter().all(Vec::is_empty) {
                    prop_assert_eq!(units.whole_blocks(), whole);
                }
            }
        }
    }
}
