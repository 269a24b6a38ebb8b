//! From rules to the image, and from changes to patches.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::sync::Arc;

use interleave::prefetch;
use lookup::{Blob, Patch};

use super::columns::{Entry, Row};
use super::layout::*;
use super::leaf::{Leaf, Resident, Shift, Slots, close_lane, open_lane};
use super::plan::{self, Effort, NodePlan};
use crate::classifier::{Classifier, Memory, Stats};
use crate::image::{Image, LINE_WORDS};
use crate::rule::{RuleError, RuleRef, RuleSet, check};
use crate::schema::Schema;

/// The leaf without rules.
const EMPTY: u32 = 0;

/// Nodes of the first cut that a rule may be copied to; one of more goes to the tree of wide rules, where the trees
/// have as many copies already as when they were made.
const COPIES_MAX: u64 = 1 << 7;

/// How many more copies the tree of a rule's part may make than another one.
const MORE_COPIES: u64 = 4;

/// Of how many nodes' worth of copies more than at first, in hundredths, rules of many copies may stay in their trees.
const COPIES_PART: u64 = 110;

/// Blocks of a leaf from which on its node is cut anew.
const LONG_BLOCKS: usize = 3;

/// Long leaves that may come before everything is built anew, and one part of so many of all leaves.
const LONG_MIN: usize = 64;
const LONG_PART: usize = 16;

/// How often rules may be copied, so that leaves get short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Copies {
    /// As few as there may be: for sets that change without end.
    Fewest,
    /// Some copies: little memory, quick changes.
    #[default]
    Few,
    /// Many: for small sets that seldom change.
    Many,
}

/// A node.
#[derive(Debug, Clone, Default)]
struct Branch {
    node: Node,
    region: Bits,
    kids: Kids,
}

/// What is below a node.
#[derive(Debug, Clone)]
enum Kids {
    Nodes(Vec<Branch>),
    /// The leaf of each cell, and copies from which on it is worth to cut the node anew.
    Cells(Vec<u32>, usize),
}

impl Default for Kids {
    fn default() -> Self {
        Self::Nodes(Vec::new())
    }
}

/// A rule, and where it is.
#[derive(Debug, Clone, Copy)]
struct Stored<R> {
    entry: Entry<R>,
    tree: u8,
}

/// All rules. Leaves name them by slot.
#[derive(Debug)]
struct Rules<R> {
    stored: Vec<Stored<R>>,
    unused: Vec<u32>,
    slots: HashMap<u32, u32>,
}

impl<R: Row> Slots for Rules<R> {
    type Row = R;

    fn entry(&self, slot: u32) -> &Entry<R> {
        &self.stored[slot as usize].entry
    }
}

impl<R: Row> Rules<R> {
    fn new() -> Self {
        Self { stored: Vec::new(), unused: Vec::new(), slots: HashMap::new() }
    }

    /// Takes a rule in; its slot.
    fn add(&mut self, stored: Stored<R>) -> Result<u32, RuleError> {
        let id = stored.entry.columns.place().id().unwrap_or_default();
        let slot = match self.slots.entry(id) {
            Slot::Occupied(_) => return Err(RuleError::DuplicateId(id)),
            Slot::Vacant(vacant) => {
                let slot = self.unused.last().map_or(self.stored.len() as u32, |slot| *slot);
                *vacant.insert(slot)
            }
        };
        match self.unused.pop() {
            Some(slot) => self.stored[slot as usize] = stored,
            None => self.stored.push(stored),
        }
        Ok(slot)
    }

    /// Lets a rule go.
    fn forget(&mut self, id: u32) {
        self.unused.extend(self.slots.remove(&id));
    }
}

/// The rules of cut trees over rows of a kind, as the control side changes them.
#[derive(Debug)]
pub(super) struct Builder<R: Row> {
    schema: Arc<Schema>,
    form: R::Form,
    effort: Effort,
    image: Image,
    block_words: usize,
    levels: usize,
    trees: Vec<Branch>,
    /// The tree of each part of the rules, where it has one.
    parts: [Option<u8>; 4],
    leaves: Vec<Leaf>,
    unused: Vec<u32>,
    rules: Rules<R>,
    /// Nodes of the first cuts that all rules are copied to, and how many that may be.
    copies: u64,
    copies_max: u64,
    /// Leaves that a change is about to look at, and the cells that lead there.
    met: Vec<(u32, u32)>,
    /// Long leaves, and of how many on everything is built anew.
    long: usize,
    long_max: usize,
}

impl<R: Row> Builder<R> {
    pub(super) fn with(set: &RuleSet, copies: Copies) -> Result<Self, RuleError> {
        let ranked = set.ranked();
        let columns = ranked.iter().map(|index| R::new(&set.rule(*index as usize)));
        let mut builder = Self::of_columns(set.schema(), columns.collect(), Effort::of(copies))?;
        builder.image.publish();
        Ok(builder)
    }

    fn of_columns(
        schema: &Arc<Schema>,
        columns: Vec<R>,
        effort: Effort,
    ) -> Result<Self, RuleError> {
        let form = R::form(schema, &columns);
        let entries: Vec<Entry<R>> =
            columns.into_iter().map(|columns| Entry::new(columns, &form)).collect();
        let plan = plan::plan(&entries, &effort);
        let levels = plan::levels(entries.len());
        let block_words = R::block_words(schema);
        let mut image = Image::new(FRAME_WORDS.max(EMPTY_LINE * LINE_WORDS + block_words))?;
        image.write(HEADER_MAGIC, &[R::MAGIC, R::WORDS as u32, 0, levels as u32]);
        image.set(HEADER_BLOCK, block_words as u32);
        image.write(HEADER_FORM, &R::form_words(&form));
        image.write(EMPTY_LINE * LINE_WORDS, R::empty(block_words));
        let empty = Leaf { line: EMPTY_LINE as u32, capacity: 1, ..Leaf::default() };
        let mut builder = Self {
            schema: schema.clone(),
            form,
            effort,
            image,
            block_words,
            levels,
            trees: Vec::new(),
            parts: plan.parts,
            leaves: vec![empty],
            unused: Vec::new(),
            rules: Rules::new(),
            copies: 0,
            copies_max: 0,
            met: Vec::new(),
            long: 0,
            long_max: 0,
        };
        builder.rules.slots.reserve(entries.len());
        builder.rules.stored.reserve_exact(entries.len());
        for (entry, tree) in entries.iter().zip(plan.numbers) {
            builder.rules.add(Stored { entry: *entry, tree })?;
        }
        let slots: Vec<u32> = (0..entries.len() as u32).collect();
        for tree in plan.trees {
            builder.add_tree(&slots, &tree)?;
        }
        let copies = builder.rules.stored.iter().map(|rule| builder.copies(&rule.entry, rule.tree));
        builder.copies = copies.sum();
        builder.copies_max = builder.copies * COPIES_PART / 100;
        builder.long_max = builder.long + LONG_MIN + builder.leaves.len() / LONG_PART;
        Ok(builder)
    }

    fn add_tree(&mut self, slots: &[u32], plan: &NodePlan) -> Result<(), RuleError> {
        let tree = self.new_branch(slots, plan)?;
        let number = self.trees.len();
        self.image.write(TREES + number * NODE_WORDS, &tree.node.to_words());
        self.trees.push(tree);
        self.image.set(HEADER_TREES, self.trees.len() as u32);
        Ok(())
    }

    /// A node with all that is below it; its own words are the caller's to write. The plan speaks of the rules of
    /// these slots.
    fn new_branch(&mut self, slots: &[u32], plan: &NodePlan) -> Result<Branch, RuleError> {
        let (first, kids) = match &plan.kids {
            plan::Kids::Nodes(nodes) => {
                let first = self.image.take(NODE_WORDS * nodes.len())?;
                let kids = nodes.iter().map(|plan| self.new_branch(slots, plan));
                let kids = kids.collect::<Result<Vec<_>, _>>()?;
                let words: Vec<u32> = kids.iter().flat_map(|kid| kid.node.to_words()).collect();
                self.image.write(first, &words);
                (first, Kids::Nodes(kids))
            }
            plan::Kids::Cells(cells, leaves) => {
                let mut numbers = Vec::with_capacity(leaves.len());
                for rules in leaves {
                    let resident = |rule: &u32| {
                        let slot = slots[*rule as usize];
                        let place = self.rules.entry(slot).columns.place();
                        Resident { place, slot, hidden: false }
                    };
                    let mut leaf = Leaf::new(rules.iter().map(resident).collect());
                    leaf.hide(&plan.region, &self.rules);
                    numbers.push(if leaf.rules.is_empty() { EMPTY } else { self.new_leaf(leaf)? });
                }
                let cells: Vec<u32> = cells.iter().map(|leaf| numbers[*leaf as usize]).collect();
                cells.iter().for_each(|leaf| self.leaves[*leaf as usize].cells += 1);
                let first = self.image.take(cells.len())?;
                let words: Vec<u32> = cells.iter().map(|leaf| self.cell_word(*leaf)).collect();
                self.image.write(first, &words);
                let patience = 2 * self.copies_of(&cells).max(LANES);
                (first, Kids::Cells(cells, patience))
            }
        };
        let node = Node { bits: plan.bits, first: first as u32 };
        Ok(Branch { node, region: plan.region, kids })
    }

    /// The word of a cell that leads to a leaf.
    fn cell_word(&self, leaf: u32) -> u32 {
        let leaf = &self.leaves[leaf as usize];
        cell(leaf.line, leaf.blocks() as u32)
    }

    /// Rules of all cells of a node.
    fn copies_of(&self, cells: &[u32]) -> usize {
        cells.iter().map(|leaf| self.leaves[*leaf as usize].rules.len()).sum()
    }

    fn new_leaf(&mut self, mut leaf: Leaf) -> Result<u32, RuleError> {
        self.place_leaf(&mut leaf)?;
        leaf.cells = 0;
        let number = self.unused.pop().unwrap_or_else(|| {
            self.leaves.push(Leaf::default());
            self.leaves.len() as u32 - 1
        });
        self.leaves[number as usize] = leaf;
        Ok(number)
    }

    /// Allocates blocks for a leaf, which must have none to lose, and writes it.
    fn place_leaf(&mut self, leaf: &mut Leaf) -> Result<(), RuleError> {
        let blocks = leaf.blocks();
        if blocks > BLOCKS_MAX {
            let (used, limit) = (leaf.rules.len() as u64, (BLOCKS_MAX * LANES) as u64);
            return Err(RuleError::Full { what: "rules that no bit tells apart", used, limit });
        }
        let word = self.image.take_used(blocks * self.block_words)?;
        let line = (word / LINE_WORDS) as u32;
        if line >= 1 << 24 {
            self.image.give(word, blocks * self.block_words);
            let (used, limit) = (u64::from(line), 1 << 24);
            return Err(RuleError::Full { what: "lines of an image", used, limit });
        }
        (leaf.line, leaf.capacity) = (line, blocks as u32);
        self.long += usize::from(blocks >= LONG_BLOCKS);
        self.write_leaf(leaf, 0);
        Ok(())
    }

    /// Writes the blocks of a leaf from that of a lane on.
    fn write_leaf(&mut self, leaf: &Leaf, lane: usize) {
        let (first, words) = (leaf.line as usize * LINE_WORDS, self.block_words);
        let slots: Vec<u32> = leaf.written().collect();
        let blocks = leaf.blocks();
        for at in (lane / LANES).min(blocks - 1)..blocks {
            let slots = slots.chunks(LANES).nth(at).unwrap_or_default();
            let rules = &self.rules;
            self.image.edit(first + at * words, words, |block| {
                block.copy_from_slice(R::empty(words));
                for (lane, slot) in slots.iter().enumerate() {
                    rules.entry(*slot).columns.put(block, lane);
                }
            });
        }
    }

    /// Opens or closes a lane of a leaf, whose rules have been changed already.
    fn shift_leaf(&mut self, leaf: &Leaf, shift: Shift, rule: &R) {
        let words = self.block_words;
        let (lane, used, is_open) = match shift {
            Shift::None => return,
            Shift::From(lane) => return self.write_leaf(leaf, lane),
            Shift::Insert(lane) => (lane, leaf.shown as usize - 1, true),
            Shift::Remove(lane) => (lane, leaf.shown as usize + 1, false),
        };
        let block = lane / LANES;
        let blocks = used.max(leaf.shown as usize).div_ceil(LANES) - block;
        let first = leaf.line as usize * LINE_WORDS + block * words;
        let (lane, used) = (lane % LANES, used - block * LANES);
        self.image.edit(first, blocks * words, |blocks| match is_open {
            true => open_lane(blocks, words, lane, used, rule),
            false => close_lane::<R>(blocks, words, lane, used),
        });
    }

    fn release(&mut self, line: u32, capacity: u32) {
        self.image.give(line as usize * LINE_WORDS, capacity as usize * self.block_words);
        self.long -= usize::from(capacity as usize >= LONG_BLOCKS);
    }

    fn free_leaf(&mut self, number: u32) {
        if number != EMPTY {
            let leaf = std::mem::take(&mut self.leaves[number as usize]);
            self.release(leaf.line, leaf.capacity);
            self.unused.push(number);
        }
    }

    /// Nodes of a tree's first cut that a rule is copied to.
    fn copies(&self, entry: &Entry<R>, tree: u8) -> u64 {
        1 << entry.ternary.open(&self.trees[usize::from(tree)].node.bits).min(31)
    }

    /// The tree that a new rule goes to: the one of its part, unless another one copies it much less. A tree without
    /// bits of its own is for rules that all others would copy too often.
    fn tree_for(&mut self, entry: &Entry<R>) -> Result<u8, RuleError> {
        let trees = self.trees.len() as u8;
        let copies = |tree: u8| self.copies(entry, tree);
        if let Some(least) = (0..trees).min_by_key(|tree| copies(*tree)) {
            let max = COPIES_MAX.max(self.copies_max.saturating_sub(self.copies));
            match self.parts[plan::part(entry)] {
                Some(own) if copies(own) <= max.min(MORE_COPIES * copies(least)) => return Ok(own),
                _ if copies(least) <= max || self.trees.len() == TREES_MAX => return Ok(least),
                _ => {}
            }
        }
        self.add_tree(&[], &plan::empty(self.levels))?;
        Ok(trees)
    }

    /// Puts a rule into all leaves of a tree where it belongs, or takes it out of them.
    fn change(&mut self, tree: usize, slot: u32, is_there: bool) -> Result<(), RuleError> {
        let mut branch = std::mem::take(&mut self.trees[tree]);
        let done = self.change_branch(&mut branch, TREES + tree * NODE_WORDS, slot, is_there);
        self.trees[tree] = branch;
        done
    }

    /// The same below a node, whose own words are at `word`.
    fn change_branch(
        &mut self,
        branch: &mut Branch,
        word: usize,
        slot: u32,
        is_there: bool,
    ) -> Result<(), RuleError> {
        let at = self.rules.entry(slot).ternary.cells(&branch.node.bits);
        let first = branch.node.first as usize;
        match &mut branch.kids {
            Kids::Nodes(nodes) => {
                for at in at {
                    let word = first + at * NODE_WORDS;
                    self.change_branch(&mut nodes[at], word, slot, is_there)?;
                }
                Ok(())
            }
            Kids::Cells(cells, patience) => {
                let mut met = std::mem::take(&mut self.met);
                met.clear();
                met.extend(at.map(|at| (cells[at], at as u32)));
                let region = branch.region;
                let is_long = self.change_cells(cells, first, &mut met, &region, slot, is_there);
                self.met = met;
                let is_long = is_long?;
                if is_long && self.copies_of(cells) >= *patience {
                    self.cut_anew(branch, word)?;
                }
                Ok(())
            }
        }
    }

    /// The same for cells of a last node, of which `met` has the leaves and the numbers; whether a leaf has become
    /// long.
    fn change_cells(
        &mut self,
        cells: &mut [u32],
        first: usize,
        met: &mut [(u32, u32)],
        region: &Bits,
        slot: u32,
        is_there: bool,
    ) -> Result<bool, RuleError> {
        met.sort_unstable();
        self.prefetch(met);
        let mut is_long = false;
        for met in met.chunk_by(|a, b| a.0 == b.0) {
            let (leaf, count) = (met[0].0, met.len() as u32);
            let before = self.cell_word(leaf);
            let now = match leaf != EMPTY && self.leaves[leaf as usize].cells == count {
                true => self.change_leaf(leaf, region, slot, is_there)?,
                false => self.part_leaf(leaf, region, slot, is_there)?,
            };
            if now != leaf {
                self.leaves[leaf as usize].cells -= count;
                self.leaves[now as usize].cells += count;
            }
            let word = self.cell_word(now);
            if now != leaf || word != before {
                for (_, at) in met {
                    self.image.set(first + *at as usize, word);
                    cells[*at as usize] = now;
                }
            }
            if now != leaf && leaf != EMPTY && self.leaves[leaf as usize].cells == 0 {
                self.free_leaf(leaf);
            }
            is_long |= is_there && self.leaves[now as usize].blocks() >= LONG_BLOCKS;
        }
        Ok(is_long)
    }

    /// Fetches what a change of these leaves reads and writes.
    fn prefetch(&self, met: &[(u32, u32)]) {
        met.iter().for_each(|(leaf, _)| prefetch(&self.leaves[*leaf as usize]));
        for (leaf, _) in met {
            let leaf = &self.leaves[*leaf as usize];
            leaf.rules.first().into_iter().for_each(prefetch);
            let block = &self.image.words()[leaf.line as usize * LINE_WORDS..][..self.block_words];
            block.iter().step_by(LINE_WORDS).for_each(prefetch);
        }
    }

    /// A changed copy of a leaf, with which other cells go on as it is; its number.
    fn part_leaf(
        &mut self,
        number: u32,
        region: &Bits,
        slot: u32,
        is_there: bool,
    ) -> Result<u32, RuleError> {
        let mut leaf = Leaf::new(self.leaves[number as usize].rules.clone());
        leaf.shown = self.leaves[number as usize].shown;
        match is_there {
            true => leaf.insert(slot, region, &self.rules),
            false => leaf.remove(self.rules.entry(slot), region, &self.rules),
        };
        if leaf.rules.is_empty() { Ok(EMPTY) } else { self.new_leaf(leaf) }
    }

    /// Changes a leaf that is all concerned; its number then.
    fn change_leaf(
        &mut self,
        number: u32,
        region: &Bits,
        slot: u32,
        is_there: bool,
    ) -> Result<u32, RuleError> {
        let mut leaf = std::mem::take(&mut self.leaves[number as usize]);
        let entry = *self.rules.entry(slot);
        let shift = match is_there {
            true => leaf.insert(slot, region, &self.rules),
            false => leaf.remove(&entry, region, &self.rules),
        };
        let mut done = Ok(if leaf.rules.is_empty() { EMPTY } else { number });
        if leaf.blocks() > leaf.capacity as usize {
            let old = (leaf.line, leaf.capacity);
            match self.place_leaf(&mut leaf) {
                Ok(()) => self.release(old.0, old.1),
                // Restore the leaf: the rules alone decide which rules are visible or hidden now.
                Err(error) => {
                    match is_there {
                        true => leaf.remove(&entry, region, &self.rules),
                        false => leaf.insert(slot, region, &self.rules),
                    };
                    leaf.hide(region, &self.rules);
                    self.write_leaf(&leaf, 0);
                    done = Err(error);
                }
            }
        } else if !leaf.rules.is_empty() {
            self.shift_leaf(&leaf, shift, &entry.columns);
        }
        self.leaves[number as usize] = leaf;
        done
    }

    /// Cuts a last node anew, whose words are at `word`.
    fn cut_anew(&mut self, branch: &mut Branch, word: usize) -> Result<(), RuleError> {
        let Kids::Cells(cells, _) = &branch.kids else { return Ok(()) };
        let [a, b] = branch.node.bits;
        let above = [branch.region[0] & !a, branch.region[1] & !b];
        let of_leaf = |leaf: &u32| self.leaves[*leaf as usize].rules.iter();
        let mut rules: Vec<&Resident> = cells.iter().flat_map(of_leaf).collect();
        rules.sort_unstable_by_key(|rule| rule.place);
        rules.dedup_by_key(|rule| rule.place);
        let slots: Vec<u32> = rules.iter().map(|rule| rule.slot).collect();
        let entries: Vec<Entry<R>> = slots.iter().map(|slot| *self.rules.entry(*slot)).collect();
        let all: Vec<u32> = (0..entries.len() as u32).collect();
        let fresh =
            self.new_branch(&slots, &plan::last_node(&entries, &all, &above, &self.effort))?;
        self.image.write(word, &fresh.node.to_words());
        let old = std::mem::replace(branch, fresh);
        if let Kids::Cells(cells, _) = old.kids {
            self.image.give(old.node.first as usize, cells.len());
            for number in cells {
                self.leaves[number as usize].cells -= 1;
                if self.leaves[number as usize].cells == 0 {
                    self.free_leaf(number);
                }
            }
        }
        Ok(())
    }

    /// Builds everything anew.
    fn rebuild(&mut self, patches: &mut Vec<Patch>) -> Result<(), RuleError> {
        let slots = self.rules.slots.values();
        let mut columns: Vec<R> = slots.map(|slot| self.rules.entry(*slot).columns).collect();
        columns.sort_unstable_by_key(Row::place);
        let next = Self::of_columns(&self.schema, columns, self.effort)?;
        patches.push(next.image.replacement());
        *self = next;
        self.image.publish();
        Ok(())
    }

    fn add(&mut self, columns: R, id: u32) -> Result<(), RuleError> {
        let entry = Entry::new(columns, &self.form);
        let tree = self.tree_for(&entry)?;
        let slot = self.rules.add(Stored { entry, tree })?;
        if let Err(error) = self.change(tree.into(), slot, true) {
            // What was put in comes out again.
            let _ = self.change(tree.into(), slot, false);
            self.rules.forget(id);
            return Err(error);
        }
        self.copies += self.copies(&entry, tree);
        Ok(())
    }

    /// Words of nodes and of cells, with their blocks.
    fn node_words(&self) -> (usize, usize) {
        let (mut nodes, mut cells) = (0, 0);
        let mut branches: Vec<&Branch> = self.trees.iter().collect();
        while let Some(branch) = branches.pop() {
            match &branch.kids {
                Kids::Nodes(kids) => {
                    nodes += kids.len() * NODE_WORDS;
                    branches.extend(kids);
                }
                Kids::Cells(leaves, _) => cells += leaves.len().next_multiple_of(LINE_WORDS),
            }
        }
        (nodes, cells)
    }
}

impl<R: Row> Classifier for Builder<R> {
    fn build(set: &RuleSet) -> Result<Self, RuleError> {
        Self::with(set, Copies::default())
    }

    fn insert(&mut self, rule: RuleRef<'_>, patches: &mut Vec<Patch>) -> Result<(), RuleError> {
        check(&self.schema, &rule)?;
        if self.rules.slots.contains_key(&rule.id) {
            return Err(RuleError::DuplicateId(rule.id));
        }
        self.add(R::new(&rule), rule.id)?;
        // Where there is no memory to build everything anew, what is there goes on.
        if self.long > self.long_max && self.rebuild(patches).is_err() {
            self.long_max = 2 * self.long;
        }
        self.image.flush(patches);
        Ok(())
    }

    fn remove(&mut self, id: u32, patches: &mut Vec<Patch>) -> bool {
        let Some(slot) = self.rules.slots.get(&id).copied() else { return false };
        let Stored { entry, tree } = self.rules.stored[slot as usize];
        if self.change(tree.into(), slot, false).is_err() {
            // A leaf that others share needs blocks of its own: without memory for one the rule stays.
            let _ = self.change(tree.into(), slot, true);
            self.image.flush(patches);
            return false;
        }
        self.copies -= self.copies(&entry, tree);
        self.rules.forget(id);
        self.image.flush(patches);
        true
    }

    fn blob(&self) -> &Blob {
        self.image.blob()
    }

    fn len(&self) -> usize {
        self.rules.slots.len()
    }

    fn memory(&self) -> Memory {
        let words = |n: usize| 4 * n;
        let (nodes, cells) = self.node_words();
        let leaves: usize =
            self.leaves[1..].iter().map(|l| l.capacity as usize * self.block_words).sum();
        let idle = self.image.idle_words();
        let rest = self.image.blob().len_words().saturating_sub(nodes + cells + leaves + idle);
        let parts = [
            ("nodes", nodes),
            ("cells", cells),
            ("leaves", leaves),
            ("frame", rest),
            ("idle", idle),
        ];
        Memory { parts: parts.map(|(name, count)| (name, words(count))).to_vec() }
    }

    fn stats(&self) -> Stats {
        let class_max = self.leaves.iter().map(|leaf| leaf.rules.len()).max().unwrap_or(0);
        let stored = self.leaves.iter().map(|leaf| leaf.rules.len()).sum();
        Stats {
            rules: self.rules.slots.len(),
            entries: stored,
            classes: self.trees.len(),
            class_max,
            ..Stats::default()
        }
    }
}
