//! From rules to the image, and from changes to patches.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::sync::Arc;

use lookup::{Blob, Patch};

use super::columns::{Columns, Ternary};
use super::layout::*;
use super::plan::{self, Entry, TreePlan};
use crate::classifier::{Classifier, Memory, Stats};
use crate::image::{Image, LINE_WORDS};
use crate::reduction::fields::is_five_tuple;
use crate::rule::{RuleError, RuleRef, RuleSet, check};
use crate::schema::Schema;

/// The leaf without rules.
const EMPTY: u32 = 0;

/// Nodes of the first cut that a rule may be copied to; one of more goes to the tree of wide rules.
const COPIES_MAX: u32 = 1 << 7;

/// Blocks of a leaf from which on its node is cut anew.
const LONG_BLOCKS: usize = 3;

/// Long leaves that may come before everything is built anew, and one part of so many of all leaves.
const LONG_MIN: usize = 64;
const LONG_PART: usize = 16;

/// A leaf.
#[derive(Debug, Clone, Default)]
struct Leaf {
    /// The best first.
    rules: Vec<Columns>,
    /// Its room: first line and blocks.
    line: u32,
    room: u32,
    /// Cells that lead here.
    cells: u32,
}

/// A node, and its leaf for each cell.
#[derive(Debug, Clone, Default)]
struct Cut {
    node: Node,
    cells: Vec<u32>,
    /// Rules from which on it is worth to cut it anew.
    patience: usize,
}

/// A tree, and its node for each cell.
#[derive(Debug, Clone, Default)]
struct Tree {
    node: Node,
    cuts: Vec<Cut>,
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
    image: Image,
    trees: Vec<Tree>,
    leaves: Vec<Leaf>,
    unused: Vec<u32>,
    rules: HashMap<u32, Stored>,
    /// Places of rules in leaves.
    copies: usize,
    /// Long leaves, and of how many on everything is built anew.
    long: usize,
    long_max: usize,
}

impl CutsBuilder {
    fn with(schema: &Arc<Schema>, columns: Vec<Columns>) -> Result<Self, RuleError> {
        let entries: Vec<Entry> = columns.into_iter().map(Entry::new).collect();
        let (trees, numbers) = plan::plan(&entries);
        let mut image = Image::new(FRAME_WORDS)?;
        image.write(HEADER_MAGIC, &[MAGIC, WORDS as u32, 0]);
        image.write(EMPTY_LINE * LINE_WORDS, &empty_block());
        let empty = Leaf { line: EMPTY_LINE as u32, room: 1, ..Leaf::default() };
        let mut builder = Self {
            schema: schema.clone(),
            image,
            trees: Vec::new(),
            leaves: vec![empty],
            unused: Vec::new(),
            rules: HashMap::with_capacity(entries.len()),
            copies: 0,
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

    fn add_tree(&mut self, entries: &[Entry], plan: &TreePlan) -> Result<(), RuleError> {
        let first = self.image.take(NODE_WORDS * plan.nodes.len())? as u32;
        let mut tree = Tree { node: Node { bits: plan.bits, first }, cuts: Vec::new() };
        for plan in &plan.nodes {
            let cut = self.new_cut(entries, plan)?;
            tree.cuts.push(cut);
        }
        let nodes: Vec<u32> = tree.cuts.iter().flat_map(|cut| cut.node.to_words()).collect();
        self.image.write(first as usize, &nodes);
        let number = self.trees.len();
        self.image.write(TREES + number * NODE_WORDS, &tree.node.to_words());
        self.trees.push(tree);
        self.image.set(HEADER_TREES, self.trees.len() as u32);
        Ok(())
    }

    /// A node with its leaves; its words are the caller's to write.
    fn new_cut(&mut self, entries: &[Entry], plan: &plan::NodePlan) -> Result<Cut, RuleError> {
        let mut numbers = Vec::with_capacity(plan.leaves.len());
        for rules in &plan.leaves {
            let rules: Vec<Columns> =
                rules.iter().map(|rule| entries[*rule as usize].columns).collect();
            numbers.push(if rules.is_empty() { EMPTY } else { self.new_leaf(rules)? });
        }
        let cells: Vec<u32> = plan.cells.iter().map(|leaf| numbers[*leaf as usize]).collect();
        for leaf in &cells {
            let leaf = &mut self.leaves[*leaf as usize];
            leaf.cells += 1;
            self.copies += leaf.rules.len();
        }
        let first = self.image.take(cells.len())? as u32;
        let words: Vec<u32> = cells.iter().map(|leaf| self.cell_word(*leaf)).collect();
        self.image.write(first as usize, &words);
        let node = Node { bits: plan.bits, first };
        let patience = 2 * self.copies_of(&cells).max(LANES);
        Ok(Cut { node, cells, patience })
    }

    /// The word of a cell that leads to a leaf.
    fn cell_word(&self, leaf: u32) -> u32 {
        let leaf = &self.leaves[leaf as usize];
        cell(leaf.line, leaf.rules.len().div_ceil(LANES).max(1) as u32)
    }

    fn new_leaf(&mut self, rules: Vec<Columns>) -> Result<u32, RuleError> {
        let mut leaf = Leaf { rules, ..Leaf::default() };
        self.place_leaf(&mut leaf)?;
        let number = self.unused.pop().unwrap_or_else(|| {
            self.leaves.push(Leaf::default());
            self.leaves.len() as u32 - 1
        });
        self.leaves[number as usize] = leaf;
        Ok(number)
    }

    /// Takes a room for a leaf that has none, and writes it.
    fn place_leaf(&mut self, leaf: &mut Leaf) -> Result<(), RuleError> {
        let blocks = leaf.rules.len().div_ceil(LANES).max(1);
        if blocks > BLOCKS_MAX {
            let (used, limit) = (leaf.rules.len() as u64, (BLOCKS_MAX * LANES) as u64);
            return Err(RuleError::Full { what: "rules that no bit tells apart", used, limit });
        }
        let word = self.image.take(blocks * BLOCK_WORDS)?;
        let line = (word / LINE_WORDS) as u32;
        if line >= 1 << 24 {
            self.image.give(word, blocks * BLOCK_WORDS);
            let (used, limit) = (u64::from(line), 1 << 24);
            return Err(RuleError::Full { what: "lines of an image", used, limit });
        }
        (leaf.line, leaf.room) = (line, blocks as u32);
        self.long += usize::from(blocks >= LONG_BLOCKS);
        self.write_leaf(leaf, 0);
        Ok(())
    }

    /// Writes the blocks of a leaf from the one on where rule `from` stands.
    fn write_leaf(&mut self, leaf: &Leaf, from: usize) {
        let first = leaf.line as usize * LINE_WORDS;
        let count = leaf.rules.len().div_ceil(LANES).max(1);
        for at in from / LANES..count {
            let mut block = empty_block();
            let rules = leaf.rules.chunks(LANES).nth(at).unwrap_or_default();
            rules.iter().enumerate().for_each(|(lane, rule)| rule.put(&mut block, lane));
            self.image.write(first + at * BLOCK_WORDS, &block);
        }
    }

    fn free_leaf(&mut self, number: u32) {
        if number == EMPTY {
            return;
        }
        let leaf = std::mem::take(&mut self.leaves[number as usize]);
        self.image.give(leaf.line as usize * LINE_WORDS, leaf.room as usize * BLOCK_WORDS);
        self.long -= usize::from(leaf.room as usize >= LONG_BLOCKS);
        self.unused.push(number);
    }

    /// The tree that a new rule goes to: the one that copies it the least. A tree without bits of its own is for rules
    /// that all others would copy too often.
    fn tree_for(&mut self, rule: &Ternary) -> Result<usize, RuleError> {
        let copies = |tree: &Tree| 1_u32 << rule.open(&tree.node.bits).min(31);
        let best = (0..self.trees.len()).min_by_key(|at| copies(&self.trees[*at]));
        match best {
            Some(best) if copies(&self.trees[best]) <= COPIES_MAX => Ok(best),
            Some(best) if self.trees.len() == TREES_MAX => Ok(best),
            _ => {
                let node = plan::node(&[], &[]);
                self.add_tree(&[], &TreePlan { bits: [0, 0], nodes: vec![node] })?;
                Ok(self.trees.len() - 1)
            }
        }
    }

    /// Puts a rule into all leaves of a tree where it belongs, or takes it out of them.
    fn change(&mut self, tree: usize, rule: Columns, is_there: bool) -> Result<(), RuleError> {
        let ternary = rule.ternary();
        let bits = self.trees[tree].node.bits;
        for at in ternary.cells(&bits) {
            let mut cut = std::mem::take(&mut self.trees[tree].cuts[at]);
            let done = self.change_cut(&mut cut, rule, &ternary, is_there);
            let recut = done.as_ref().is_ok_and(|long| *long);
            self.trees[tree].cuts[at] = cut;
            done?;
            if recut {
                self.cut_anew(tree, at)?;
            }
        }
        Ok(())
    }

    /// The same for one node; whether a leaf has become long.
    fn change_cut(
        &mut self,
        cut: &mut Cut,
        rule: Columns,
        ternary: &Ternary,
        is_there: bool,
    ) -> Result<bool, RuleError> {
        let cells: Vec<usize> = ternary.cells(&cut.node.bits).collect();
        let mut met: Vec<(u32, u32)> = Vec::new(); // leaf, cells of it that are concerned
        for leaf in cells.iter().map(|at| cut.cells[*at]) {
            match met.iter_mut().find(|(met, _)| *met == leaf) {
                Some((_, count)) => *count += 1,
                None => met.push((leaf, 1)),
            }
        }
        let mut is_long = false;
        for (leaf, count) in met {
            let mut rules = self.leaves[leaf as usize].rules.clone();
            let place = rules.partition_point(|other| other.place < rule.place);
            match is_there {
                _ if is_there == rules.get(place).is_some_and(|r| r.place == rule.place) => {
                    continue;
                }
                true => rules.insert(place, rule),
                false => drop(rules.remove(place)),
            }
            let len = rules.len();
            let before = self.cell_word(leaf);
            let now = match leaf != EMPTY && self.leaves[leaf as usize].cells == count {
                true => self.rewrite(leaf, rules, place)?,
                false if rules.is_empty() => EMPTY,
                false => self.new_leaf(rules)?,
            };
            if now != leaf {
                self.leaves[leaf as usize].cells -= count;
                self.leaves[now as usize].cells += count;
            }
            let copies = self.copies + count as usize;
            self.copies = if is_there { copies } else { copies - 2 * count as usize };
            let word = self.cell_word(now);
            for at in &cells {
                // A leaf is met once: `now` is none of those that come after it.
                if cut.cells[*at] == leaf && (now != leaf || word != before) {
                    self.image.set(cut.node.first as usize + at, word);
                    cut.cells[*at] = now;
                }
            }
            if now != leaf && leaf != EMPTY && self.leaves[leaf as usize].cells == 0 {
                self.free_leaf(leaf);
            }
            is_long |= is_there && len.div_ceil(LANES) >= LONG_BLOCKS;
        }
        Ok(is_long && self.copies_of(&cut.cells) >= cut.patience)
    }

    /// Rules of all cells of a node.
    fn copies_of(&self, cells: &[u32]) -> usize {
        cells.iter().map(|leaf| self.leaves[*leaf as usize].rules.len()).sum()
    }

    /// Gives a leaf other rules, which are the same before number `from`; the leaf's number then.
    fn rewrite(&mut self, number: u32, rules: Vec<Columns>, from: usize) -> Result<u32, RuleError> {
        if rules.is_empty() {
            return Ok(EMPTY);
        }
        let blocks = rules.len().div_ceil(LANES);
        let mut leaf = std::mem::take(&mut self.leaves[number as usize]);
        if blocks > leaf.room as usize {
            let mut larger = Leaf { rules, cells: leaf.cells, ..Leaf::default() };
            if let Err(error) = self.place_leaf(&mut larger) {
                self.leaves[number as usize] = leaf;
                return Err(error);
            }
            self.image.give(leaf.line as usize * LINE_WORDS, leaf.room as usize * BLOCK_WORDS);
            self.long -= usize::from(leaf.room as usize >= LONG_BLOCKS);
            leaf = larger;
        } else {
            leaf.rules = rules;
            self.write_leaf(&leaf, from.min(leaf.rules.len() - 1));
        }
        self.leaves[number as usize] = leaf;
        Ok(number)
    }

    /// Cuts a node anew.
    fn cut_anew(&mut self, tree: usize, at: usize) -> Result<(), RuleError> {
        let old = std::mem::take(&mut self.trees[tree].cuts[at]);
        let mut columns: Vec<Columns> =
            old.cells.iter().flat_map(|leaf| self.leaves[*leaf as usize].rules.clone()).collect();
        columns.sort_unstable_by_key(|rule| rule.place);
        columns.dedup_by_key(|rule| rule.place);
        let entries: Vec<Entry> = columns.into_iter().map(Entry::new).collect();
        let all: Vec<u32> = (0..entries.len() as u32).collect();
        let fresh = match self.new_cut(&entries, &plan::node(&entries, &all)) {
            Ok(fresh) => fresh,
            Err(error) => {
                self.trees[tree].cuts[at] = old;
                return Err(error);
            }
        };
        let word = self.trees[tree].node.first as usize + at * NODE_WORDS;
        self.image.write(word, &fresh.node.to_words());
        self.trees[tree].cuts[at] = fresh;
        self.image.give(old.node.first as usize, old.cells.len());
        for number in old.cells {
            let leaf = &mut self.leaves[number as usize];
            leaf.cells -= 1;
            self.copies -= leaf.rules.len();
            if number != EMPTY && leaf.cells == 0 {
                self.free_leaf(number);
            }
        }
        Ok(())
    }

    /// Builds everything anew.
    fn rebuild(&mut self, patches: &mut Vec<Patch>) -> Result<(), RuleError> {
        let mut columns: Vec<Columns> = self.rules.values().map(|rule| rule.columns).collect();
        columns.sort_unstable_by_key(|rule| rule.place);
        let next = Self::with(&self.schema, columns)?;
        patches.push(next.image.replacement());
        *self = next;
        self.image.publish();
        Ok(())
    }

    fn add(&mut self, columns: Columns, id: u32) -> Result<(), RuleError> {
        let tree = self.tree_for(&columns.ternary())?;
        if let Err(error) = self.change(tree, columns, true) {
            // What was put in comes out again: that takes no room.
            let _ = self.change(tree, columns, false);
            return Err(error);
        }
        self.rules.insert(id, Stored { columns, tree: tree as u8 });
        Ok(())
    }
}

impl Classifier for CutsBuilder {
    fn build(set: &RuleSet) -> Result<Self, RuleError> {
        if !is_five_tuple(set.schema()) {
            return Err(RuleError::Schema { structure: "cut trees" });
        }
        let ranked = set.ranked();
        let columns = ranked.iter().map(|index| Columns::new(&set.rule(*index as usize)));
        let mut builder = Self::with(set.schema(), columns.collect())?;
        builder.image.publish();
        Ok(builder)
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
        if self.change(stored.tree.into(), stored.columns, false).is_err() {
            // A leaf that others share needs a room of its own: without memory for one the rule stays.
            let _ = self.change(stored.tree.into(), stored.columns, true);
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
        let nodes = self.trees.iter().map(|tree| tree.cuts.len() * NODE_WORDS).sum();
        let cells = self.trees.iter().flat_map(|tree| &tree.cuts);
        let cells: usize = cells.map(|cut| cut.cells.len().next_multiple_of(LINE_WORDS)).sum();
        let leaves: usize = self.leaves[1..].iter().map(|l| l.room as usize * BLOCK_WORDS).sum();
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
