//! Leaves: which rules they have, and how those are in blocks.

use super::columns::{Entry, Row};
use super::layout::*;
use crate::rule::Match;

/// A rule of a leaf.
#[derive(Debug, Clone, Copy)]
pub(super) struct Resident {
    pub(super) place: Match,
    pub(super) slot: u32,
    /// A better one of the leaf matches whatever it does there: it is not written.
    pub(super) hidden: bool,
}

/// A leaf.
#[derive(Debug, Clone, Default)]
pub(super) struct Leaf {
    /// The best first.
    pub(super) rules: Vec<Resident>,
    /// Those that are not hidden.
    pub(super) shown: u32,
    /// Its blocks: the first line, and how many.
    pub(super) line: u32,
    pub(super) capacity: u32,
    /// Cells that lead here.
    pub(super) cells: u32,
}

/// What changes for readers with a rule of a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shift {
    None,
    /// The rule is to be put into this lane.
    Insert(usize),
    /// This lane is to be closed.
    Remove(usize),
    /// From this lane on all is to be written anew.
    From(usize),
}

/// The rules of all leaves, by slot.
pub(super) trait Slots {
    type Row: Row;

    fn entry(&self, slot: u32) -> &Entry<Self::Row>;
}

impl Leaf {
    /// A leaf without blocks.
    pub(super) fn new(rules: Vec<Resident>) -> Self {
        Self { rules, ..Self::default() }
    }

    /// Blocks in use.
    pub(super) fn blocks(&self) -> usize {
        (self.shown as usize).div_ceil(LANES).max(1)
    }

    /// The slots of the rules that are written.
    pub(super) fn written(&self) -> impl Iterator<Item = u32> {
        self.rules.iter().filter(|rule| !rule.hidden).map(|rule| rule.slot)
    }

    /// Lanes before rule number `at`.
    fn lane(&self, at: usize) -> usize {
        self.rules[..at].iter().filter(|rule| !rule.hidden).count()
    }

    /// Whether a better rule of the leaf covers an entry that is, or would be, at number `at`.
    fn is_covered<S: Slots>(
        &self,
        at: usize,
        entry: &Entry<S::Row>,
        region: &Bits,
        slots: &S,
    ) -> bool {
        let mut shown = self.rules[..at].iter().filter(|better| !better.hidden);
        shown.any(|better| slots.entry(better.slot).covers(entry, region))
    }

    /// Hides the rules that better ones cover, where headers were cut at the bits of `region`.
    pub(super) fn hide(&mut self, region: &Bits, slots: &impl Slots) {
        for at in 0..self.rules.len() {
            self.rules[at].hidden =
                self.is_covered(at, slots.entry(self.rules[at].slot), region, slots);
        }
        self.shown = self.lane(self.rules.len()) as u32;
    }

    /// Where a rule is, or would be.
    fn find(&self, place: Match) -> Result<usize, usize> {
        self.rules.binary_search_by_key(&place, |rule| rule.place)
    }

    /// Puts a rule in.
    ///
    /// Worse rules that it covers stay written, until the leaf would need one block more for it: that is quicker, and
    /// readers find the better one first.
    pub(super) fn insert(&mut self, slot: u32, region: &Bits, slots: &impl Slots) -> Shift {
        let entry = slots.entry(slot);
        let place = entry.columns.place();
        let Err(at) = self.find(place) else { return Shift::None };
        let hidden = self.is_covered(at, entry, region, slots);
        self.rules.insert(at, Resident { place, slot, hidden });
        if hidden {
            return Shift::None;
        }
        let lane = self.lane(at);
        self.shown += 1;
        if (self.shown as usize) <= LANES * self.capacity as usize {
            return Shift::Insert(lane);
        }
        // Rules before this one may be hidden now too.
        self.hide(region, slots);
        Shift::From(0)
    }

    /// Takes a rule out.
    pub(super) fn remove<S: Slots>(
        &mut self,
        entry: &Entry<S::Row>,
        region: &Bits,
        slots: &S,
    ) -> Shift {
        let Ok(at) = self.find(entry.columns.place()) else { return Shift::None };
        if self.rules.remove(at).hidden {
            return Shift::None;
        }
        let lane = self.lane(at);
        self.shown -= 1;
        let mut is_lit = false;
        for later in at..self.rules.len() {
            let rule = self.rules[later];
            // Only what it hid can come to light.
            if rule.hidden && entry.covers(slots.entry(rule.slot), region) {
                let hidden = self.is_covered(later, slots.entry(rule.slot), region, slots);
                self.rules[later].hidden = hidden;
                self.shown += u32::from(!hidden);
                is_lit |= !hidden;
            }
        }
        if is_lit { Shift::From(lane) } else { Shift::Remove(lane) }
    }
}

/// Moves what is in lanes from `first` on: by one away from it, or by one up to it. All lanes are looked at, so that
/// a processor does it at once.
fn move_lanes<T: Copy>(lanes: &mut [T; LANES], first: usize, is_open: bool) {
    let old = *lanes;
    for lane in 0..LANES {
        let (before, behind) = (old[lane.saturating_sub(1)], old[(lane + 1).min(LANES - 1)]);
        lanes[lane] = match is_open {
            true if lane > first => before,
            false if lane >= first => behind,
            _ => old[lane],
        };
    }
}

/// The same for all columns of a block.
fn move_block<R: Row>(block: &mut [u32], first: usize, is_open: bool) {
    for column in R::columns(block.len()) {
        if let Some(lanes) = block[*column..].first_chunk_mut() {
            move_lanes(lanes, first, is_open);
        }
    }
    let matches = R::matches(block.len());
    if let Some(lanes) = block[matches..].as_chunks_mut::<2>().0.first_chunk_mut() {
        move_lanes(lanes, first, is_open);
    }
}

/// Copies a lane of one block to another block.
fn copy_lane<R: Row>(from: &[u32], lane: usize, to: &mut [u32], to_lane: usize) {
    for column in R::columns(from.len()) {
        to[column + to_lane] = from[column + lane];
    }
    let matches = R::matches(from.len());
    for word in 0..2 {
        to[matches + 2 * to_lane + word] = from[matches + 2 * lane + word];
    }
}

/// Puts a rule into a lane of blocks that hold `used` rules and have room for one more: those behind it move on.
/// `blocks` begins with the block of that lane's.
pub(super) fn open_lane<R: Row>(
    blocks: &mut [u32],
    block_words: usize,
    lane: usize,
    used: usize,
    rule: &R,
) {
    if used.is_multiple_of(LANES) {
        blocks[used / LANES * block_words..].copy_from_slice(R::empty(block_words));
    }
    for at in (0..=used / LANES).rev() {
        let (before, block) = blocks.split_at_mut(at * block_words);
        let block = &mut block[..block_words];
        let first = if at == 0 { lane } else { 0 };
        move_block::<R>(block, first, true);
        if at > 0 {
            copy_lane::<R>(&before[(at - 1) * block_words..], LANES - 1, block, 0);
        }
    }
    rule.put(&mut blocks[..block_words], lane);
}

/// Closes a lane of blocks that hold `used` rules: those behind it move up.
pub(super) fn close_lane<R: Row>(blocks: &mut [u32], block_words: usize, lane: usize, used: usize) {
    let last = (used - 1) / LANES;
    for at in 0..=last {
        let (block, behind) = blocks[at * block_words..].split_at_mut(block_words);
        let first = if at == 0 { lane } else { 0 };
        move_block::<R>(block, first, false);
        match at == last {
            true => copy_lane::<R>(R::empty(block_words), 0, block, LANES - 1),
            false => copy_lane::<R>(&behind[..block_words], 0, block, LANES - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::columns::Columns;
    use super::super::masks::Masked;
    use super::*;
    use crate::rule::RuleSet;
    use crate::schema::{Field, Kind, Schema};

    /// What is in the lanes of blocks.
    fn written<R: Row>(rules: &[R], block_words: usize) -> Vec<u32> {
        let mut blocks = Vec::new();
        for at in 0..rules.len().div_ceil(LANES).max(1) {
            let mut block = R::empty(block_words).to_vec();
            let rules = rules.chunks(LANES).nth(at).unwrap_or_default();
            rules.iter().enumerate().for_each(|(lane, rule)| rule.put(&mut block, lane));
            blocks.extend(block);
        }
        blocks
    }

    fn moves<R: Row>(
        schema: impl Into<std::sync::Arc<Schema>>,
        block_words: usize,
        changes: Vec<(bool, usize)>,
    ) -> Result<(), TestCaseError> {
        let mut set = RuleSet::new(schema);
        let any: Vec<_> = set.schema().fields().iter().map(crate::Condition::any).collect();
        let (mut list, mut blocks) = (Vec::<R>::new(), written::<R>(&[], block_words));
        for (is_there, at) in changes {
            if is_there {
                set.append(&any).unwrap();
                let rule = R::new(&set.rule(set.len() - 1));
                let at = at % (list.len() + 1);
                let words = (list.len() / LANES + 1) * block_words;
                blocks.resize(words.max(blocks.len()), 7);
                let first = at / LANES * block_words;
                let used = list.len() - at / LANES * LANES;
                open_lane(&mut blocks[first..words], block_words, at % LANES, used, &rule);
                list.insert(at, rule);
            } else if !list.is_empty() {
                let at = at % list.len();
                let used = list.len() - at / LANES * LANES;
                let words = list.len().div_ceil(LANES) * block_words;
                let first = at / LANES * block_words;
                close_lane::<R>(&mut blocks[first..words], block_words, at % LANES, used);
                list.remove(at);
            }
            let wanted = written(&list, block_words);
            prop_assert_eq!(&blocks[..wanted.len()], &wanted[..]);
        }
        Ok(())
    }

    proptest! {
        /// Lanes that are opened and closed leave what would be written anew.
        #[test]
        fn lanes_move_as_a_list_does(kind in 0..3, changes in prop::collection::vec((any::<bool>(), 0_usize..40), 1..60)) {
            match kind {
                0 => moves::<Columns>(Schema::five_tuple(), NARROW, changes)?,
                1 => moves::<Columns>(Schema::five_tuple(), WIDE, changes)?,
                _ => {
                    let fields = (0..5).map(|_| Field::new("word", 32, Kind::Mask)).collect();
                    let schema = Schema::new(fields).unwrap();
                    moves::<Masked<9>>(schema.clone(), Masked::<9>::block_words(&schema), changes)?;
                }
            }
        }
    }
}
