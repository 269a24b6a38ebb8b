//! From rules to the image.

use lookup::{Blob, Patch};

use super::LIMIT_BYTES;
use super::view::*;
use crate::classifier::{Classifier, Memory, Stats};
use crate::reduction::fields::{Fields, Numbers};
use crate::reduction::frame::*;
use crate::reduction::nest::Address;
use crate::reduction::product::Product;
use crate::reduction::sets::{self, Sets};
use crate::reduction::{Budget, table, with, without};
use crate::rule::{RuleError, RuleRef, RuleSet};

/// How a structure is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Bytes that the image may have, at most 8 GiB.
    pub limit_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { limit_bytes: LIMIT_BYTES }
    }
}

/// The rules of a reduction tree, as the control side changes them.
#[derive(Debug)]
pub struct RfcBuilder {
    set: RuleSet,
    options: Options,
    blob: Blob,
    memory: Memory,
    /// Rules that differ.
    entries: usize,
    /// Classes of addresses.
    classes: usize,
}

impl RfcBuilder {
    /// With a limit of its own.
    ///
    /// # Errors
    /// As [`Classifier::build`]; [`RuleError::TooLarge`] with the size where it would pass the limit.
    pub fn with(set: &RuleSet, options: Options) -> Result<Self, RuleError> {
        let fields = Fields::of(set, "RFC")?;
        let rules = fields.rules.len();
        let mut budget = Budget::new(options.limit_bytes);
        take_frame(&mut budget, TABLES, rules)?;
        let (src, dst) = (Address::new(&fields.src), Address::new(&fields.dst));
        let mut tables = plan_addresses(&src, &dst, &mut budget)?;

        // Ports and protocol, by their different conditions.
        let (mut sports, mut dports, mut protos) = (Vec::new(), Vec::new(), Vec::new());
        let (mut pairs, mut tails) = (Vec::new(), Vec::new());
        let (mut of_sport, mut of_dport) = (Numbers::new(), Numbers::new());
        let (mut of_proto, mut of_pair) = (Numbers::new(), Numbers::new());
        for tail in &fields.tails {
            let sport = of_sport.of(tail.sport, &mut sports);
            let dport = of_dport.of(tail.dport, &mut dports);
            let pair = of_pair.of((sport, dport), &mut pairs);
            tails.push((pair, of_proto.of(tail.proto, &mut protos)));
        }
        let sport = sets::of_ranges(&sports, &budget)?;
        let dport = sets::of_ranges(&dports, &budget)?;
        let proto = sets::of_masks(&protos);
        let ports = sets::product(&sport.sets, &dport.sets, &pairs, "table of ports", &budget)?;
        let last = sets::product(&ports.sets, &proto.sets, &tails, "table of tails", &budget)?;
        let shapes = [
            (&sport, 1),
            (&dport, 1),
            (&proto, 1),
            (&ports, dport.sets.len()),
            (&last, proto.sets.len()),
        ];
        let plan = shapes.map(|(classes, columns)| {
            planned(classes.cells.len() / columns, columns, classes.sets.len() as u64 - 1)
        });
        plan.iter().try_for_each(|table| budget.take_table("tables of ports", table))?;

        // Addresses, held against what they and the result would take by what is known so far.
        let columns = last.sets.len();
        let mut product = Product::new(&fields, &src.whole, &dst.whole);
        let cells = product.cells();
        let check = |product: &Product<'_>| {
            let classes = product.len() as u64;
            budget.check_workspace("lists of rules while building", product.len_bytes())?;
            let addresses = table::bytes(cells, table::width(classes.saturating_sub(1)));
            budget.check("table of addresses", addresses)?;
            let result = table::bytes(classes * columns as u64, table::width(rules as u64));
            budget.check("table of results", addresses + result)
        };
        check(&product)?;
        product.find(check)?;
        let classes = product.len();
        let addresses = planned(src.whole.len(), dst.whole.len(), classes as u64 - 1);
        budget.take_table("table of addresses", &addresses)?;
        let result = planned(classes, columns, rules as u64);
        budget.take_table("table of results", &result)?;
        tables.push(addresses);
        tables.extend(plan);
        tables.push(result);

        let mut writer = Writer::new(MAGIC, &mut tables, 0, rules)?;
        writer.addresses(&tables, &src, &dst);
        writer.places(&fields.places);
        let image = writer.blob.words_mut();
        for (table, (classes, _)) in tables[SPORT..].iter().zip(shapes) {
            table.fill(image, 0, classes.cells.iter().copied());
        }
        let mut best = Best::new(&fields, &last.sets);
        for class in 0..classes {
            let row = best.of(product.list(class));
            tables[RESULT].fill(image, class * columns, row.iter().copied());
        }
        product.each_row(|row, cells| {
            tables[ADDRESSES].fill(image, row * cells.len(), cells.iter().copied());
            Ok(())
        })?;
        let memory = writer.memory(&tables, &NAMES);
        Ok(Self { set: set.clone(), options, blob: writer.blob, memory, entries: rules, classes })
    }

    fn replace(&mut self, next: Self, patches: &mut Vec<Patch>) {
        patches.push(Patch::Replace(next.blob.words().to_vec()));
        *self = next;
    }
}

/// Makes rows of the result.
#[derive(Debug)]
struct Best<'a> {
    fields: &'a Fields,
    /// Words of a set of classes of tails.
    words: usize,
    /// The classes that each tail holds in.
    classes: Vec<u64>,
    /// Classes without a rule yet.
    open: Vec<u64>,
    row: Vec<u32>,
}

impl<'a> Best<'a> {
    fn new(fields: &'a Fields, sets: &Sets) -> Self {
        let words = sets.len().div_ceil(64);
        let mut classes = vec![0_u64; words * fields.tails.len()];
        for class in 0..sets.len() {
            for tail in 0..fields.tails.len() {
                let bit = u64::from(sets.holds(class, tail)) << (class % 64);
                classes[tail * words + class / 64] |= bit;
            }
        }
        Self { fields, words, classes, open: vec![0; words], row: vec![0; sets.len()] }
    }

    /// 1 + the best rule of a list for each class of tails, or 0.
    fn of(&mut self, list: &[u32]) -> &[u32] {
        self.row.fill(0);
        self.open.fill(u64::MAX);
        for rule in list {
            let tail = self.fields.rules[*rule as usize].tail as usize;
            let classes = &self.classes[tail * self.words..][..self.words];
            for (at, (open, classes)) in self.open.iter_mut().zip(classes).enumerate() {
                let mut found = *open & classes;
                *open &= !classes;
                while found != 0 {
                    self.row[at * 64 + found.trailing_zeros() as usize] = rule + 1;
                    found &= found - 1;
                }
            }
        }
        &self.row
    }
}

impl Classifier for RfcBuilder {
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
        let (rules, entries, classes) = (self.set.len(), self.entries, self.classes);
        Stats { rules, entries, classes, ..Stats::default() }
    }
}
