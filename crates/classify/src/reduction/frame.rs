//! What the images of reduction trees have in common.
//!
//! ```text
//! line 0     magic │ words of a header │ first place │ places │ first word of code │ words of code │ of a block │ of a unit
//! line 1…    the tables, four words each
//!            tables, code, places (a Match for each rule, by rank)        each from a cache line on
//! ```

use lookup::Blob;

use super::Budget;
use super::nest::Address;
use super::strips::STRIP;
use super::table::{self, DESCRIPTION, Table};
use crate::classifier::Memory;
use crate::image::{LINE_WORDS, no_memory};
use crate::rule::{Match, RuleError};

/// Words of a header of the 5-tuple.
pub(crate) const WORDS: usize = 4;

const HEADER_MAGIC: usize = 0;
const HEADER_WORDS: usize = 1;
const HEADER_PLACES: usize = 2;
const HEADER_CODE: usize = 4;

/// Tables of the tree of addresses.
pub(crate) const SRC_HIGH: usize = 0;
pub(crate) const SRC_LOW: usize = 1;
pub(crate) const DST_HIGH: usize = 2;
pub(crate) const DST_LOW: usize = 3;
pub(crate) const SRC: usize = 4;
pub(crate) const DST: usize = 5;
pub(crate) const ADDRESSES: usize = 6;

/// Tables of those three cross products in strips: the directory has the number of the cross product, the strips have
/// one that is higher by this.
pub(crate) const STRIPS: usize = 3;

/// Words before the first table.
fn header_words(tables: usize) -> usize {
    (LINE_WORDS + DESCRIPTION * tables).next_multiple_of(LINE_WORDS)
}

/// A table that has no place yet, whose entries are up to `largest`.
pub(crate) fn planned(rows: usize, columns: usize, largest: u64) -> Table {
    // A budget was asked first, so both fit.
    let entries = rows as u64 * columns as u64;
    Table {
        offset: 0,
        width: table::width(largest),
        columns: columns as u32,
        entries: u32::try_from(entries).unwrap_or(u32::MAX),
    }
}

/// Takes what is in every image out of a budget.
pub(crate) fn take_frame(
    budget: &mut Budget,
    tables: usize,
    rules: usize,
) -> Result<(), RuleError> {
    let places = (2 * rules).next_multiple_of(LINE_WORDS);
    budget.take("header and rules", 4 * (header_words(tables) + places) as u64)
}

/// The tables of phases 0 and 1 of both addresses.
pub(crate) fn plan_addresses(
    src: &Address,
    dst: &Address,
    budget: &mut Budget,
) -> Result<Vec<Table>, RuleError> {
    let mut tables = Vec::new();
    plan_halves(src, dst, budget, &mut tables)?;
    for side in [src, dst] {
        let table = planned(side.high.len(), side.low.len(), side.whole.len() as u64 - 1);
        budget.take_table(HALVES, &table)?;
        tables.push(table);
    }
    Ok(tables)
}

/// What a budget calls the tables of phases 0 and 1.
pub(crate) const HALVES: &str = "tables of the halves of addresses";

/// The tables of phase 0 of both addresses.
pub(crate) fn plan_halves(
    src: &Address,
    dst: &Address,
    budget: &mut Budget,
    tables: &mut Vec<Table>,
) -> Result<(), RuleError> {
    for half in [&src.high, &src.low, &dst.high, &dst.low] {
        let table = planned(1 << 16, 1, half.len() as u64 - 1);
        budget.take_table(HALVES, &table)?;
        tables.push(table);
    }
    Ok(())
}

/// An image while it is written.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) blob: Blob,
    /// First word of the code.
    pub(crate) code: usize,
    places: usize,
    rules: usize,
}

impl Writer {
    /// An empty image with room for these tables, which get their places, for code and for rules.
    pub(crate) fn new(
        magic: u32,
        tables: &mut [Table],
        code_words: usize,
        rules: usize,
    ) -> Result<Self, RuleError> {
        let mut end = header_words(tables.len());
        for table in tables.iter_mut() {
            table.offset = end as u32;
            end += table.len_bytes() / 4;
        }
        let code = end;
        let places = code + code_words.next_multiple_of(LINE_WORDS);
        let end = places + (2 * rules).next_multiple_of(LINE_WORDS);
        let mut blob = Blob::zeroed(end, end).map_err(|e| no_memory(end, &e))?;
        let image = blob.words_mut();
        image[HEADER_MAGIC] = magic;
        image[HEADER_WORDS] = WORDS as u32;
        image[HEADER_PLACES..][..2].copy_from_slice(&[places as u32, rules as u32]);
        image[HEADER_CODE..][..2].copy_from_slice(&[code as u32, code_words as u32]);
        for (at, table) in tables.iter().enumerate() {
            image[LINE_WORDS + DESCRIPTION * at..][..DESCRIPTION]
                .copy_from_slice(&table.to_words());
        }
        Ok(Self { blob, code, places, rules })
    }

    /// Words of a block and of a unit of code.
    pub(crate) fn code_sizes(&mut self, block: usize, unit: usize) {
        self.blob.words_mut()[HEADER_CODE + 2..][..2].copy_from_slice(&[block as u32, unit as u32]);
    }

    /// Writes the tables of phase 0 of both addresses.
    pub(crate) fn halves(&mut self, tables: &[Table], src: &Address, dst: &Address) {
        let image = self.blob.words_mut();
        for (side, high, low) in [(src, SRC_HIGH, SRC_LOW), (dst, DST_HIGH, DST_LOW)] {
            tables[high].fill(image, 0, side.high.each(1 << 16));
            tables[low].fill(image, 0, side.low.each(1 << 16));
        }
    }

    /// Writes the tables of phases 0 and 1 of both addresses.
    pub(crate) fn addresses(&mut self, tables: &[Table], src: &Address, dst: &Address) {
        self.halves(tables, src, dst);
        let image = self.blob.words_mut();
        for (side, both) in [(src, SRC), (dst, DST)] {
            side.each_row(|row, cells| {
                tables[both].fill(image, row * cells.len(), cells.iter().copied());
            });
        }
    }

    /// Writes the places of the rules.
    pub(crate) fn places(&mut self, places: &[Match]) {
        let image = &mut self.blob.words_mut()[self.places..];
        for (words, place) in image.chunks_exact_mut(2).zip(places) {
            words.copy_from_slice(&place.to_words());
        }
    }

    /// Memory by part.
    pub(crate) fn memory(&self, tables: &[Table], names: &[&'static str]) -> Memory {
        let mut parts = vec![("header", 4 * header_words(tables.len()))];
        parts.extend(names.iter().zip(tables).map(|(name, table)| (*name, table.len_bytes())));
        if self.places > self.code {
            parts.push(("code", 4 * (self.places - self.code)));
        }
        parts.push(("rules", self.blob.len_bytes() - 4 * self.places));
        debug_assert!(self.rules * 8 <= self.blob.len_bytes());
        Memory { parts }
    }
}

/// An image to read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame<'a, const TABLES: usize> {
    pub(crate) image: &'a [u32],
    pub(crate) tables: [Table; TABLES],
    /// First word of the places, and rules.
    pub(crate) places: usize,
    pub(crate) rules: usize,
    /// First word of the code, its words, those of a block and of a unit.
    pub(crate) code: [u32; 4],
}

impl<'a, const TABLES: usize> Frame<'a, TABLES> {
    /// The image in `blob`; `None` if that holds another one.
    pub(crate) fn new(blob: &'a Blob, magic: u32) -> Option<Self> {
        let image = blob.words();
        if *image.get(HEADER_MAGIC)? != magic || image.len() > i32::MAX as usize {
            return None;
        }
        let (descriptions, _) = image.get(LINE_WORDS..)?.as_chunks::<DESCRIPTION>();
        let mut tables = [Table::default(); TABLES];
        for (table, words) in tables.iter_mut().zip(descriptions.get(..TABLES)?) {
            *table = Table::from_words(*words, image)?;
        }
        let [places, rules] = *image.get(HEADER_PLACES..)?.first_chunk()?;
        let (places, rules) = (places as usize, rules as usize);
        image.get(places..)?.get(..rules.checked_mul(2)?)?;
        let code: [u32; 4] = *image.get(HEADER_CODE..)?.first_chunk()?;
        image.get(code[0] as usize..)?.get(..code[1] as usize)?;
        Some(Self { image, tables, places, rules, code })
    }

    /// The place of a rule by its number from 1; of 0, and beyond, none.
    #[inline(always)]
    pub(crate) fn place(&self, number: u32) -> Match {
        let rule = number.wrapping_sub(1) as usize;
        if rule >= self.rules {
            return Match::NONE;
        }
        match self.image.get(self.places + 2 * rule..) {
            Some([low, high, ..]) => Match::from_words(*low, *high),
            _ => Match::NONE,
        }
    }

    #[inline(always)]
    pub(crate) fn get(&self, table: usize, at: u32) -> u32 {
        self.tables[table].get(self.image, at)
    }

    /// An entry of a cross product.
    #[inline(always)]
    pub(crate) fn cross(&self, table: usize, row: u32, column: u32) -> u32 {
        self.get(table, self.tables[table].at(row, column))
    }

    /// An entry of a cross product in strips.
    #[inline(always)]
    pub(crate) fn in_strips(&self, table: usize, row: u32, column: u32) -> u32 {
        let strip = self.cross(table, row, column / STRIP as u32);
        self.cross(table + STRIPS, strip, column % STRIP as u32)
    }

    #[inline(always)]
    pub(crate) fn come(&self, table: usize, at: u32) {
        self.tables[table].come(self.image, at);
    }
}
