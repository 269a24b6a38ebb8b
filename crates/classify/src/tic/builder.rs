//! From rules to the image.

use lookup::{Blob, Patch};

use super::code::*;
use super::view::*;
use crate::classifier::{Classifier, Memory, Stats};
use crate::reduction::fields::Fields;
use crate::reduction::frame::*;
use crate::reduction::nest::Address;
use crate::reduction::product::Product;
use crate::reduction::strips::Strips;
use crate::reduction::{Budget, table, with, without};
use crate::rfc::LIMIT_BYTES;
use crate::rule::{RuleError, RuleRef, RuleSet};

/// How a structure is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Bytes that the image may have, at most 8 GiB.
    pub limit_bytes: u64,
    /// Blocks of code.
    pub block: Block,
}

impl Default for Options {
    fn default() -> Self {
        Self { limit_bytes: LIMIT_BYTES, block: Block::default() }
    }
}

/// The rules of a two-stage structure, as the control side changes them.
#[derive(Debug)]
pub struct TicBuilder {
    set: RuleSet,
    options: Options,
    blob: Blob,
    memory: Memory,
    report: Report,
    /// Rules that differ.
    entries: usize,
}

impl TicBuilder {
    /// With a limit or a size of blocks of its own.
    ///
    /// # Errors
    /// As [`Classifier::build`]; [`RuleError::TooLarge`] with the size where it would pass the limit.
    pub fn with(set: &RuleSet, options: Options) -> Result<Self, RuleError> {
        let fields = Fields::of(set, "TIC")?;
        let rules = fields.rules.len();
        let block = options.block.words();
        let mut budget = Budget::new(options.limit_bytes);
        take_frame(&mut budget, TABLES, rules)?;
        let (src, dst) = (Address::new(&fields.src), Address::new(&fields.dst));
        let mut tables = Vec::with_capacity(TABLES);
        plan_halves(&src, &dst, &mut budget, &mut tables)?;
        let mut sides = Vec::with_capacity(2);
        for side in [&src, &dst] {
            let mut strips = Strips::new(side.high.len(), side.low.len(), &budget)?;
            side.each_row(|row, cells| strips.row(row, cells));
            let planned = strips.planned(side.whole.len() as u64 - 1);
            budget.take_strips(HALVES, &planned)?;
            sides.push((strips, planned));
        }

        // Each list is some code of its own, and is in some strip, so this is the least that both will take.
        let mut product = Product::new(&fields, &src.whole, &dst.whole);
        let mut strips = Strips::new(src.whole.len(), dst.whole.len(), &budget)?;
        let check = |product: &Product<'_>| {
            let lists = product.len() as u64;
            budget.check_workspace("lists of rules while building", product.len_bytes())?;
            let addresses = table::bytes(lists, table::width(lists.saturating_sub(1)));
            budget.check("code", addresses + 4 * lists)
        };
        check(&product)?;
        product.find(check)?;
        product.each_row(|row, cells| {
            strips.row(row, cells);
            budget.check_workspace("table of addresses while building", strips.len_bytes())
        })?;
        let cells = strips.cells();

        let mut report = Report { lists: product.len() as u64, ..Report::default() };
        let mut lists = Vec::with_capacity(product.len());
        let mut instruction_words = 0;
        for number in 0..product.len() {
            let tail = |rule: &u32| &fields.tails[fields.rules[*rule as usize].tail as usize];
            let rules = product.list(number).iter().map(|rule| (*rule, tail(rule)));
            let list = List::new(rules, &mut report);
            instruction_words += list.len();
            lists.push(list.in_blocks(block));
        }
        let lengths: Vec<usize> = lists.iter().map(Vec::len).collect();
        let (layout, unit) = smallest(&lengths, block, cells);
        let largest = layout.starts.iter().max().map_or(0, |start| *start as usize / unit);
        let addresses = strips.planned(largest as u64);
        budget.take_strips("table of addresses", &addresses)?;
        budget.take("code", 4 * layout.words as u64)?;
        sides.push((strips, addresses));
        for half in 0..2 {
            tables.extend(sides.iter().map(|(_, planned)| planned[half]));
        }

        let mut writer = Writer::new(MAGIC, &mut tables, layout.words, rules)?;
        writer.code_sizes(block, unit);
        writer.halves(&tables, &src, &dst);
        writer.places(&fields.places);
        let first = writer.code;
        let image = writer.blob.words_mut();
        let code = &mut image[first..][..layout.words];
        code.fill(NOP_WORD);
        for (start, list) in layout.starts.iter().zip(&lists) {
            code[*start as usize..][..list.len()].copy_from_slice(list);
        }
        report.padding_words = (layout.words - instruction_words) as u64;
        report.blocks = (layout.words / block) as u64;
        report.in_one_block = lengths.iter().filter(|length| **length <= block).count() as u64;
        report.unit_bytes = 4 * unit as u64;
        report.block_bytes = 4 * block as u64;
        report.tree_bytes = tables.iter().map(|table| table.len_bytes() as u64).sum();
        report.code_bytes = 4 * layout.words as u64;
        let start = |class: u32| layout.starts[class as usize] / unit as u32;
        for ((strips, _), table) in sides.iter().zip(SRC..) {
            let both = [&tables[table], &tables[table + STRIPS]];
            match table {
                ADDRESSES => strips.fill(both, image, start),
                _ => strips.fill(both, image, |class| class),
            }
        }
        let memory = writer.memory(&tables, &NAMES);
        Ok(Self { set: set.clone(), options, blob: writer.blob, memory, report, entries: rules })
    }

    /// How its instructions look.
    pub fn report(&self) -> Report {
        self.report
    }

    fn replace(&mut self, next: Self, patches: &mut Vec<Patch>) {
        patches.push(Patch::Replace(next.blob.words().to_vec()));
        *self = next;
    }
}

/// The layout with which table and code are smallest, and its unit.
fn smallest(lengths: &[usize], block: usize, cells: u64) -> (Layout, usize) {
    let units = (0..).map(|log| block >> log).take_while(|unit| *unit > 0);
    let layouts = units.map(|unit| (Layout::new(lengths, block, unit), unit));
    let bytes = |(layout, unit): &(Layout, usize)| {
        let largest = layout.starts.iter().max().map_or(0, |start| *start as usize / unit);
        table::bytes(cells, table::width(largest as u64)) + 4 * layout.words as u64
    };
    layouts.min_by_key(bytes).unwrap_or_default()
}

impl Classifier for TicBuilder {
    fn build(set: &RuleSet) -> Result<Self, RuleError> {
        Self::with(set, Options::default())
    }

    /// Builds the whole structure anew.
    fn insert(&mut self, rule: RuleRef<'_>, patches: &mut Vec<Patch>) -> Result<(), RuleError> {
        self.replace(Self::with(&with(&self.set, rule)?, self.options)?, patches);
        Ok(())
    }

    /// Builds the whole structure anew; `false` also where there is no memory for that, and then nothing changes.
    fn remove(&mut self, id: u32, patches: &mut Vec<Patch>) -> bool {
        let next = without(&self.set, id).and_then(|set| Self::with(&set, self.options).ok());
        let Some(next) = next else { return false };
        self.replace(next, patches);
        true
    }

    fn rebuilds(&self) -> bool {
        true
    }

    fn blob(&self) -> &Blob {
        &self.blob
    }

    fn len(&self) -> usize {
        self.set.len()
    }

    fn memory(&self) -> Memory {
        self.memory.clone()
    }

    fn stats(&self) -> Stats {
        let (rules, entries) = (self.set.len(), self.entries);
        let classes = self.report.lists as usize;
        Stats { rules, entries, classes, code: Some(self.report), ..Stats::default() }
    }
}
