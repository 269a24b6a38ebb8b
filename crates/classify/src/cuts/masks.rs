//! Rows of values and masks: rules over any words of a header, as those of flow tables are.
//!
//! A node cuts at 128 bits at most. Of a header of more than four words those four are chosen whose bits part the rules best; the others
//! are compared in leaves alone. A block has a line for each word of the header: eight values, eight masks.
//!
//! ```text
//! header  w0 w1 w2 w3 w4 w5      block   Match [8] ║ values of w0 [8] │ masks of w0 [8] ║ values of w1 [8] │ …
//!            └──┴──┴─────┴─ cut at these, the one that parts best first
//! ```

use super::columns::{Row, Ternary};
use super::layout::*;
use crate::image::LINE_WORDS;
use crate::rule::{Match, RuleRef};
use crate::schema::Schema;

/// Words of a header that are cut at.
const PICKED: usize = 4;

/// A place among them that no word has.
const NO_WORD: u8 = u8::MAX;

/// Rows that are looked at to choose words.
const SAMPLE: usize = 4096;

/// Words of a header that rows of masks have at most.
const COLUMNS_MAX: usize = 16;

/// What headers are, and the words that are cut at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MaskForm {
    /// Words that rules look at: the first ones of a header.
    pub(super) columns: u8,
    picked: [u8; PICKED],
}

impl MaskForm {
    /// As the image has it.
    pub(super) fn to_words(self) -> [u32; 2] {
        [self.columns.into(), u32::from_le_bytes(self.picked)]
    }

    /// `None`: no image has such words.
    pub(super) fn from_words([columns, picked]: [u32; 2]) -> Option<Self> {
        let columns = u8::try_from(columns).ok().filter(|n| usize::from(*n) <= COLUMNS_MAX)?;
        Some(Self { columns, picked: picked.to_le_bytes() })
    }

    /// The bits of a header that are cut at.
    #[inline(always)]
    pub(super) fn halves(&self, words: &[u32]) -> Bits {
        let word = |at: usize| {
            u64::from(words.get(usize::from(self.picked[at])).copied().unwrap_or_default())
        };
        [word(0) << 32 | word(1), word(2) << 32 | word(3)]
    }

    /// Whether a word is cut at.
    fn has(&self, word: usize) -> bool {
        self.picked.iter().any(|own| usize::from(*own) == word)
    }
}

/// Words of a block for headers of so many words.
pub(super) fn block_words(columns: usize) -> usize {
    LINE_WORDS * (1 + columns)
}

/// A rule over headers of `W` words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Masked<const W: usize> {
    value: [u32; W],
    mask: [u32; W],
    place: Match,
    /// Words that are compared in leaves alone, a bit each.
    rest: u32,
}

/// Words of a header that fields are in.
fn columns(schema: &Schema) -> usize {
    let bits = schema.masked_bits();
    bits.iter().rposition(|bits| *bits != 0).map_or(1, |last| last + 1)
}

/// How well the bits of a word part rows: for each bit the smaller side, of those that care for it.
fn parts<const W: usize>(rows: &[Masked<W>], word: usize) -> usize {
    let step = rows.len().div_ceil(SAMPLE).max(1);
    let mut sides = [[0_usize; 2]; 32];
    for row in rows.iter().step_by(step) {
        let mut care = row.mask[word];
        while care != 0 {
            let bit = care.trailing_zeros();
            sides[bit as usize][(row.value[word] >> bit & 1) as usize] += 1;
            care &= care - 1;
        }
    }
    sides.iter().map(|[zero, one]| zero.min(one)).sum()
}

impl<const W: usize> Row for Masked<W> {
    const MAGIC: u32 = MAGIC_MASKS;
    const WORDS: usize = W;

    type Form = MaskForm;

    fn form(schema: &Schema, rows: &[Self]) -> MaskForm {
        let columns = columns(schema);
        let mut words: Vec<(usize, usize)> =
            (0..columns).map(|word| (parts(rows, word), word)).collect();
        // Without rules the first ones.
        words.sort_by_key(|(parts, word)| (std::cmp::Reverse(*parts), *word));
        let mut picked = [NO_WORD; PICKED];
        for (place, (_, word)) in picked.iter_mut().zip(words) {
            *place = word as u8;
        }
        MaskForm { columns: columns as u8, picked }
    }

    fn form_words(form: &MaskForm) -> [u32; 2] {
        form.to_words()
    }

    fn block_words(schema: &Schema) -> usize {
        block_words(columns(schema))
    }

    fn new(rule: &RuleRef<'_>) -> Self {
        let word = |of: &[u32], at: usize| of.get(at).copied().unwrap_or_default();
        let mask: [u32; W] = std::array::from_fn(|at| word(rule.highs(), at));
        let value = std::array::from_fn(|at| word(rule.lows(), at) & mask[at]);
        Self { value, mask, place: rule.place(), rest: 0 }
    }

    fn fit(&mut self, form: &MaskForm) {
        self.rest = (0..W).filter(|word| !form.has(*word)).map(|word| 1 << word).sum();
    }

    fn place(&self) -> Match {
        self.place
    }

    fn ternary(&self, form: &MaskForm) -> Ternary {
        Ternary { value: form.halves(&self.value), care: form.halves(&self.mask) }
    }

    fn covers_rest(&self, other: &Self) -> bool {
        (0..W).filter(|word| self.rest >> word & 1 != 0).all(|at| {
            let differ = self.value[at] ^ other.value[at];
            (!other.mask[at] | differ) & self.mask[at] == 0
        })
    }

    fn put(&self, block: &mut [u32], lane: usize) {
        block[2 * lane..][..2].copy_from_slice(&self.place.to_words());
        let columns = block[LINE_WORDS..].as_chunks_mut::<LINE_WORDS>().0;
        for (column, (value, mask)) in columns.iter_mut().zip(self.value.iter().zip(&self.mask)) {
            (column[lane], column[LANES + lane]) = (*value, *mask);
        }
    }

    fn columns(block_words: usize) -> &'static [usize] {
        const ALL: [usize; 2 * COLUMNS_MAX] = {
            let (mut all, mut at) = ([0; 2 * COLUMNS_MAX], 0);
            while at < all.len() {
                all[at] = LINE_WORDS + at * LANES;
                at += 1;
            }
            all
        };
        &ALL[..(block_words - LINE_WORDS) / LANES]
    }

    fn matches(_: usize) -> usize {
        0
    }

    /// Every header goes with masks that are zero, and what is found is nothing.
    fn empty(block_words: usize) -> &'static [u32] {
        const ALL: [u32; LINE_WORDS * (1 + COLUMNS_MAX)] = {
            let (mut all, mut lane, none) =
                ([0; LINE_WORDS * (1 + COLUMNS_MAX)], 0, Match::NONE.to_words());
            while lane < LANES {
                (all[2 * lane], all[2 * lane + 1]) = (none[0], none[1]);
                lane += 1;
            }
            all
        };
        &ALL[..block_words]
    }
}
