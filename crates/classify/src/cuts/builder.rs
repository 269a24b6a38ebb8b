//! From rules to the image, and from changes to patches.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::sync::Arc;

use lookup::{Blob, Patch};

use super::columns::{Columns, Entry, Ternary};
use super::layout::*;
use super::plan::{self, Effort, NodePlan};
use crate::classifier::{Classifier, Memory, Stats};
use crate::image::{Image, LINE_WORDS};
use crate::rule::{RuleError, RuleRef, RuleSet, check};
use crate::schema::{Kind, Schema};

/// The leaf without rules.
const EMPTY: u32 = 0;

/// Nodes of the first cut that a rule may be copied to; one of more goes to the tree of wide rules.
const COPIES_MAX: u32 = 1 << 7;

/// Blocks of a leaf from which on its node is cut anew.
const LONG_BLOCKS: usize = 3;

/// Long leaves that may come before everything is built anew, and one part of so many of all leaves.
const LONG_MIN: usize = 64;
const LONG_PART: usize = 16;

/// How often rules may be copied, so that leaves get short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Copies {
    /// Some copies: little memory, quick changes.
    #[default]
    Few,
    /// Many: for small sets that seldom change.
    Many,
}

/// Whether headers are two addresses of IPv4, two ports, and a word of which any bits may be asked for.
fn fits(schema: &Schema) -> bool {
    let fields = schema.fields().iter().take(4).map(|field| (field.bits, field.kind));
    let first = [(32, Kind::Prefix), (32, Kind::Prefix), (16, Kind::Range), (16, Kind::Range)];
    schema.words() == WORDS && fields.eq(first) && schema.ranges().count() == 2
}

/// Words of a block: of a protocol alone there is room beside the lengths of prefixes.
fn block_words(schema: &Schema) -> usize {
    if schema.masked_bits()[WORDS - 1] << 8 == 0 { NARROW } else { WIDE }
}

/// A rule of a leaf.
#[derive(Debug, Clone, Copy)]
struct Resident {
    entry: Entry,
    /// A better one of the leaf matches whatever it does there: it is not written.
    hidden: bool,
}

/// A leaf.
#[derive(Debug, Clone, Default)]
struct Leaf {
    /// The best first.
    rules: Vec<Resident>,
    /// Bits that were cut at on the way here.
    region: Bits,
    /// Its room: first line and blocks.
    line: u32,
    room: u32,
    /// Blocks in use.
    blocks: u32,
    /// Cells that lead here.
    cells: u32,
}

impl Leaf {
    fn written(&self) -> impl Iterator<Item = &Columns> {
        self.rules.iter().filter(|rule| !rule.hidden).map(|rule| &rule.entry.columns)
    }

    /// Hides the rules that better ones cover. Those before number `from` are as they should be.
    fn hide(&mut self, from: usize) {
        for at in from..self.rules.len() {
            let (better, rest) = self.rules.split_at_mut(at);
            let rule = &mut rest[0];
            let mut shown = better.iter().filter(|better| !better.hidden);
            rule.hidden = shown.any(|better| better.entry.covers(&rule.entry, &self.region));
        }
    }

    /// Puts a rule in or takes it out; `None` if nothing changes for readers, and else the number of the first rule
    /// from which on they see others.
    fn change(&mut self, entry: &Entry, is_there: bool) -> Option<usize> {
        let place = entry.columns.place;
        let at = self.rules.partition_point(|other| other.entry.columns.place < place);
        let is_here = self.rules.get(at).is_some_and(|r| r.entry.columns.place == place);
        if is_there == is_here {
            return None;
        }
        if !is_there {
            let gone = self.rules.remove(at);
            if gone.hidden {
                return None;
            }
            // Only what it hid can come to light.
            for later in at..self.rules.len() {
                let (better, rest) = self.rules.split_at_mut(later);
                let rule = &mut rest[0];
                if rule.hidden && gone.entry.covers(&rule.entry, &self.region) {
                    let mut shown = better.iter().filter(|better| !better.hidden);
                    rule.hidden = shown.any(|b| b.entry.covers(&rule.entry, &self.region));
                }
            }
            return Some(at);
        }
        let mut shown = self.rules[..at].iter().filter(|better| !better.hidden);
        let hidden = shown.any(|better| better.entry.covers(entry, &self.region));
        self.rules.insert(at, Resident { entry: *entry, hidden });
        if hidden {
            return None;
        }
        for later in &mut self.rules[at + 1..] {
            later.hidden |= entry.covers(&later.entry, &self.region);
        }
        Some(at)
    }
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
struct Stored {
    columns: Columns,
    tree: u8,
}

/// The rules of cut trees, as the control side changes them.
#[derive(Debug)]
pub struct CutsBuilder {
    schema: Arc<Schema>,
    effort: Effort,
    image: Image,
    block_words: usize,
    levels: usize,
    trees: Vec<Branch>,
    leaves: Vec<Leaf>,
    unused: Vec<u32>,
    rules: HashMap<u32, Stored>,
    /// Long leaves, and of how many on everything is built anew.
    long: usize,
    long_max: usize,
}

impl CutsBuilder {
    /// Trees of these rules.
    ///
    /// # Errors
    /// As [`Classifier::build`].
    pub fn with(set: &RuleSet, copies: Copies) -> Result<Self, RuleError> {
        if !fits(set.schema()) {
            return Err(RuleError::Schema { structure: "cut trees" });
        }
        let ranked = set.ranked();
        let columns = ranked.iter().map(|index| Columns::new(&set.rule(*index as usize)));
        let mut builder = Self::of_columns(set.schema(), columns.collect(), Effort::of(copies))?;
        builder.image.publish();
        Ok(builder)
    }

    fn of_columns(
        schema: &Arc<Schema>,
        columns: Vec<Columns>,
        effort: Effort,
    ) -> Result<Self, RuleError> {
        let entries: Vec<Entry> = columns.into_iter().map(Entry::new).collect();
        let (trees, numbers) = plan::plan(&entries, &effort);
        let levels = plan::levels(entries.len());
        let mut image = Image::new(FRAME_WORDS)?;
        let block_words = block_words(schema);
        image.write(HEADER_MAGIC, &[MAGIC, WORDS as u32, 0, levels as u32]);
        image.set(HEADER_BLOCK, block_words as u32);
        image.write(EMPTY_LINE * LINE_WORDS, &empty_block(block_words));
        let empty = Leaf { line: EMPTY_LINE as u32, room: 1, blocks: 1, ..Leaf::default() };
        let mut builder = Self {
            schema: schema.clone(),
            effort,
            image,
            block_words,
            levels,
            trees: Vec::new(),
            leaves: vec![empty],
            unused: Vec::new(),
            rules: HashMap::with_capacity(entries.len()),
            long: 0,
            long_max: 0,
        };
        for (entry, tree) in entries.iter().zip(numbers) {
            let id = entry.columns.place.id().unwrap_or_default();
            match builder.rules.entry(id) {
                Slot::Occupied(_) => return Err(RuleError::DuplicateId(id)),
                Slot::Vacant(slot) => slot.insert(Stored { columns: entry.columns, tree }),
            };
        }
        for tree in trees {
            builder.add_tree(&entries, &tree)?;
        }
        builder.long_max = builder.long + LONG_MIN + builder.leaves.len() / LONG_PART;
        Ok(builder)
    }

    fn add_tree(&mut self, entries: &[Entry], plan: &NodePlan) -> Result<(), RuleError> {
        let tree = self.new_branch(entries, plan)?;
        let number = self.trees.len();
        self.image.write(TREES + number * NODE_WORDS, &tree.node.to_words());
        self.trees.push(tree);
        self.image.set(HEADER_TREES, self.trees.len() as u32);
        Ok(())
    }

    /// A node with all that is below it; its own words are the caller's to write.
    fn new_branch(&mut self, entries: &[Entry], plan: &NodePlan) -> Result<Branch, RuleError> {
        let (first, kids) = match &plan.kids {
            plan::Kids::Nodes(nodes) => {
                let first = self.image.take(NODE_WORDS * nodes.len())?;
                let kids = nodes.iter().map(|plan| self.new_branch(entries, plan));
                let kids = kids.collect::<Result<Vec<_>, _>>()?;
                let words: Vec<u32> = kids.iter().flat_map(|kid| kid.node.to_words()).collect();
                self.image.write(first, &words);
                (first, Kids::Nodes(kids))
            }
            plan::Kids::Cells(cells, leaves) => {
                let mut numbers = Vec::with_capacity(leaves.len());
                for rules in leaves {
                    let entry =
                        |rule: &u32| Resident { entry: entries[*rule as usize], hidden: false };
                    let rules: Vec<Resident> = rules.iter().map(entry).collect();
                    let mut leaf = Leaf { rules, region: plan.region, ..Leaf::default() };
                    leaf.hide(0);
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
        cell(leaf.line, leaf.blocks)
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

    /// Takes a room for a leaf, which must have none to lose, and writes it.
    fn place_leaf(&mut self, leaf: &mut Leaf) -> Result<(), RuleError> {
        let blocks = leaf.written().count().div_ceil(LANES).max(1);
        if blocks > BLOCKS_MAX {
            let (used, limit) = (leaf.rules.len() as u64, (BLOCKS_MAX * LANES) as u64);
            return Err(RuleError::Full { what: "rules that no bit tells apart", used, limit });
        }
        let word = self.image.take(blocks * self.block_words)?;
        let line = (word / LINE_WORDS) as u32;
        if line >= 1 << 24 {
            self.image.give(word, blocks * self.block_words);
            let (used, limit) = (u64::from(line), 1 << 24);
            return Err(RuleError::Full { what: "lines of an image", used, limit });
        }
        (leaf.line, leaf.room) = (line, blocks as u32);
        self.long += usize::from(blocks >= LONG_BLOCKS);
        self.write_leaf(leaf, 0);
        Ok(())
    }

    /// Writes the blocks of a leaf from the one on where rule `from` stands.
    fn write_leaf(&mut self, leaf: &mut Leaf, from: usize) {
        let first = leaf.line as usize * LINE_WORDS;
        let before = leaf.rules[..from].iter().filter(|rule| !rule.hidden).count();
        let written: Vec<&Columns> = leaf.written().collect();
        let blocks = written.len().div_ceil(LANES).max(1);
        for at in (before / LANES).min(blocks - 1)..blocks {
            let mut block = empty_block(self.block_words);
            let rules = written.chunks(LANES).nth(at).unwrap_or_default();
            rules.iter().enumerate().for_each(|(lane, rule)| rule.put(&mut block, lane));
            self.image.write(first + at * self.block_words, &block);
        }
        leaf.blocks = blocks as u32;
    }

    fn give_room(&mut self, leaf: &Leaf) {
        self.image.give(leaf.line as usize * LINE_WORDS, leaf.room as usize * self.block_words);
        self.long -= usize::from(leaf.room as usize >= LONG_BLOCKS);
    }

    fn free_leaf(&mut self, number: u32) {
        if number != EMPTY {
            let leaf = std::mem::take(&mut self.leaves[number as usize]);
            self.give_room(&leaf);
            self.unused.push(number);
        }
    }

    /// The tree that a new rule goes to: the one that copies it the least. A tree without bits of its own is for rules
    /// that all others would copy too often.
    fn tree_for(&mut self, rule: &Ternary) -> Result<usize, RuleError> {
        let copies = |tree: &Branch| 1_u32 << rule.open(&tree.node.bits).min(31);
        let best = (0..self.trees.len()).min_by_key(|at| copies(&self.trees[*at]));
        match best {
            Some(best) if copies(&self.trees[best]) <= COPIES_MAX => Ok(best),
            Some(best) if self.trees.len() == TREES_MAX => Ok(best),
            _ => {
                self.add_tree(&[], &plan::empty(self.levels))?;
                Ok(self.trees.len() - 1)
            }
        }
    }

    /// Puts a rule into all leaves of a tree where it belongs, or takes it out of them.
    fn change(&mut self, tree: usize, entry: &Entry, is_there: bool) -> Result<(), RuleError> {
        let mut branch = std::mem::take(&mut self.trees[tree]);
        let done = self.change_branch(&mut branch, TREES + tree * NODE_WORDS, entry, is_there);
        self.trees[tree] = branch;
        done
    }

    /// The same below a node, whose own words stand at `word`.
    fn change_branch(
        &mut self,
        branch: &mut Branch,
        word: usize,
        entry: &Entry,
        is_there: bool,
    ) -> Result<(), RuleError> {
        let at = entry.ternary.cells(&branch.node.bits);
        let first = branch.node.first as usize;
        match &mut branch.kids {
            Kids::Nodes(nodes) => {
                for at in at {
                    let word = first + at * NODE_WORDS;
                    self.change_branch(&mut nodes[at], word, entry, is_there)?;
                }
                Ok(())
            }
            Kids::Cells(cells, patience) => {
                let at: Vec<usize> = at.collect();
                let is_long =
                    self.change_cells(cells, first, &at, branch.region, entry, is_there)?;
                if is_long && self.copies_of(cells) >= *patience {
                    self.cut_anew(branch, word)?;
                }
                Ok(())
            }
        }
    }

    /// The same for the cells `at` of a last node; whether a leaf has become long.
    fn change_cells(
        &mut self,
        cells: &mut [u32],
        first: usize,
        at: &[usize],
        region: Bits,
        entry: &Entry,
        is_there: bool,
    ) -> Result<bool, RuleError> {
        let mut met: Vec<(u32, u32)> = Vec::new(); // leaf, cells of it that are concerned
        for leaf in at.iter().map(|at| cells[*at]) {
            match met.iter_mut().find(|(met, _)| *met == leaf) {
                Some((_, count)) => *count += 1,
                None => met.push((leaf, 1)),
            }
        }
        let mut is_long = false;
        for (leaf, count) in met {
            let before = self.cell_word(leaf);
            let now = match leaf != EMPTY && self.leaves[leaf as usize].cells == count {
                true => self.change_leaf(leaf, entry, is_there)?,
                false => {
                    // Other cells go on with the leaf as it is.
                    let old = &self.leaves[leaf as usize];
                    let mut leaf = Leaf { rules: old.rules.clone(), region, ..Leaf::default() };
                    leaf.change(entry, is_there);
                    if leaf.rules.is_empty() { EMPTY } else { self.new_leaf(leaf)? }
                }
            };
            if now != leaf {
                self.leaves[leaf as usize].cells -= count;
                self.leaves[now as usize].cells += count;
            }
            let word = self.cell_word(now);
            for at in at {
                // A leaf is met once: `now` is none of those that come after it.
                if cells[*at] == leaf && (now != leaf || word != before) {
                    self.image.set(first + at, word);
                    cells[*at] = now;
                }
            }
            if now != leaf && leaf != EMPTY && self.leaves[leaf as usize].cells == 0 {
                self.free_leaf(leaf);
            }
            is_long |= is_there && self.leaves[now as usize].blocks as usize >= LONG_BLOCKS;
        }
        Ok(is_long)
    }

    /// Changes a leaf that is all concerned; its number then.
    fn change_leaf(
        &mut self,
        number: u32,
        entry: &Entry,
        is_there: bool,
    ) -> Result<u32, RuleError> {
        let mut leaf = std::mem::take(&mut self.leaves[number as usize]);
        let changed = leaf.change(entry, is_there);
        let mut done = Ok(if leaf.rules.is_empty() { EMPTY } else { number });
        if let (Some(from), false) = (changed, leaf.rules.is_empty()) {
            if leaf.written().count().div_ceil(LANES) > leaf.room as usize {
                let old = leaf.clone();
                match self.place_leaf(&mut leaf) {
                    Ok(()) => self.give_room(&old),
                    Err(error) => {
                        leaf.change(entry, !is_there);
                        done = Err(error);
                    }
                }
            } else {
                self.write_leaf(&mut leaf, from);
            }
        }
        self.leaves[number as usize] = leaf;
        done
    }

    /// Cuts a last node anew, whose words stand at `word`.
    fn cut_anew(&mut self, branch: &mut Branch, word: usize) -> Result<(), RuleError> {
        let Kids::Cells(cells, _) = &branch.kids else { return Ok(()) };
        let [a, b] = branch.node.bits;
        let above = [branch.region[0] & !a, branch.region[1] & !b];
        let of_leaf = |leaf: &u32| self.leaves[*leaf as usize].rules.iter().map(|rule| rule.entry);
        let mut entries: Vec<Entry> = cells.iter().flat_map(of_leaf).collect();
        entries.sort_unstable_by_key(|entry| entry.columns.place);
        entries.dedup_by_key(|entry| entry.columns.place);
        let all: Vec<u32> = (0..entries.len() as u32).collect();
        let fresh =
            self.new_branch(&entries, &plan::last_node(&entries, &all, &above, &self.effort))?;
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
        let mut columns: Vec<Columns> = self.rules.values().map(|rule| rule.columns).collect();
        columns.sort_unstable_by_key(|rule| rule.place);
        let next = Self::of_columns(&self.schema, columns, self.effort)?;
        patches.push(next.image.replacement());
        *self = next;
        self.image.publish();
        Ok(())
    }

    fn add(&mut self, columns: Columns, id: u32) -> Result<(), RuleError> {
        let entry = Entry::new(columns);
        let tree = self.tree_for(&entry.ternary)?;
        if let Err(error) = self.change(tree, &entry, true) {
            // What was put in comes out again.
            let _ = self.change(tree, &entry, false);
            return Err(error);
        }
        self.rules.insert(id, Stored { columns, tree: tree as u8 });
        Ok(())
    }

    /// Words of nodes and of cells, with their rooms.
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

impl Classifier for CutsBuilder {
    fn build(set: &RuleSet) -> Result<Self, RuleError> {
        Self::with(set, Copies::default())
    }

    fn insert(&mut self, rule: RuleRef<'_>, patches: &mut Vec<Patch>) -> Result<(), RuleError> {
        check(&self.schema, &rule)?;
        if self.rules.contains_key(&rule.id) {
            return Err(RuleError::DuplicateId(rule.id));
        }
        self.add(Columns::new(&rule), rule.id)?;
        // Where there is no memory to build everything anew, what is there goes on.
        if self.long > self.long_max && self.rebuild(patches).is_err() {
            self.long_max = 2 * self.long;
        }
        self.image.flush(patches);
        Ok(())
    }

    fn remove(&mut self, id: u32, patches: &mut Vec<Patch>) -> bool {
        let Some(stored) = self.rules.remove(&id) else { return false };
        let entry = Entry::new(stored.columns);
        if self.change(stored.tree.into(), &entry, false).is_err() {
            // A leaf that others share needs a room of its own: without memory for one the rule stays.
            let _ = self.change(stored.tree.into(), &entry, true);
            self.rules.insert(id, stored);
            self.image.flush(patches);
            return false;
        }
        self.image.flush(patches);
        true
    }

    fn blob(&self) -> &Blob {
        self.image.blob()
    }

    fn len(&self) -> usize {
        self.rules.len()
    }

    fn memory(&self) -> Memory {
        let words = |n: usize| 4 * n;
        let (nodes, cells) = self.node_words();
        let leaves: usize =
            self.leaves[1..].iter().map(|l| l.room as usize * self.block_words).sum();
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
            rules: self.rules.len(),
            entries: stored,
            classes: self.trees.len(),
            class_max,
            ..Stats::default()
        }
    }
}
