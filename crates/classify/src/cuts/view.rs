//! The read side.

use interleave::{Walk, prefetch, run_grouped};
use lookup::Blob;

use super::layout::*;
use super::masks::{MaskForm, block_words};
use crate::classifier::Classify;
use crate::explain::{self, Explained, Outcome, Step};
use crate::image::LINE_WORDS;
use crate::rule::Match;
use crate::tuple::Form;

/// Searches that go level by level together.
const GROUP: usize = 16;

/// Images of so many words are beyond a core's own caches: 1 MB.
const NEAR_WORDS: usize = 256 << 10;

/// Cut trees to search.
#[derive(Debug, Clone, Copy)]
pub struct Cuts<'a> {
    pub(super) image: &'a [u32],
    pub(super) trees: [Node; TREES_MAX],
    count: usize,
    levels: usize,
    rows: Kind,
}

/// What leaves hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Narrow,
    Wide,
    /// Of headers of so many words.
    Masks(usize, MaskForm),
}

/// How bits are taken out of a header, and how the rules of a block are compared with it.
pub(super) trait Leaves: Copy {
    /// A header, ready to be compared.
    type Header: Copy;

    fn header(self, header: &[u32; WORDS]) -> Self::Header;

    /// What `bits` of a header number, where `shift` is how many the first of them are.
    fn number(self, halves: &Bits, bits: &Bits, shift: u32) -> usize;

    /// The first rule of a block that a header matches.
    fn find<const B: usize>(self, header: &Self::Header, block: &[u32; B]) -> Match;

    /// The same of a block of masks.
    fn find_masked(self, header: &[u32], block: &[u32]) -> Match;
}

/// Leaves over the rows of an image.
trait Rows: Copy {
    /// A header.
    type Key;
    /// The same, ready to be compared.
    type Header: Copy;

    fn leaves(self) -> impl Leaves;
    fn block_words(self) -> usize;
    fn header(self, key: &Self::Key) -> Self::Header;
    fn halves(self, key: &Self::Key) -> Bits;
    fn find(self, header: &Self::Header, block: &[u32]) -> Match;
}

/// Of the 5-tuple, in blocks of `B` words.
#[derive(Debug, Clone, Copy)]
struct Tuples<L, const B: usize>(L);

impl<L: Leaves, const B: usize> Rows for Tuples<L, B> {
    type Key = [u32; WORDS];
    type Header = L::Header;

    #[inline(always)]
    fn leaves(self) -> impl Leaves {
        self.0
    }

    #[inline(always)]
    fn block_words(self) -> usize {
        B
    }

    #[inline(always)]
    fn header(self, key: &Self::Key) -> L::Header {
        self.0.header(key)
    }

    #[inline(always)]
    fn halves(self, key: &Self::Key) -> Bits {
        halves(key)
    }

    #[inline(always)]
    fn find(self, header: &L::Header, block: &[u32]) -> Match {
        block.first_chunk::<B>().map_or(Match::NONE, |block| self.0.find(header, block))
    }
}

/// Of masks, over headers of `W` words.
#[derive(Debug, Clone, Copy)]
struct Masks<L, const W: usize>(L, MaskForm);

impl<L: Leaves, const W: usize> Rows for Masks<L, W> {
    type Key = [u32; W];
    type Header = [u32; W];

    #[inline(always)]
    fn leaves(self) -> impl Leaves {
        self.0
    }

    #[inline(always)]
    fn block_words(self) -> usize {
        block_words(self.1.columns.into())
    }

    #[inline(always)]
    fn header(self, key: &[u32; W]) -> [u32; W] {
        *key
    }

    #[inline(always)]
    fn halves(self, key: &[u32; W]) -> Bits {
        self.1.halves(key)
    }

    #[inline(always)]
    fn find(self, header: &[u32; W], block: &[u32]) -> Match {
        self.0.find_masked(header, block)
    }
}

/// The rule of a place of a block of masks.
#[inline(always)]
pub(super) fn masked_place(block: &[u32], lane: usize) -> Match {
    let at = 2 * (lane % LANES);
    Match::from_words(block[at], block[at + 1])
}

/// Any processor.
#[derive(Debug, Clone, Copy)]
pub(super) struct Portable;

impl Leaves for Portable {
    type Header = [u32; WORDS];

    #[inline(always)]
    fn header(self, header: &[u32; WORDS]) -> Self::Header {
        *header
    }

    #[inline(always)]
    fn number(self, halves: &Bits, bits: &Bits, _: u32) -> usize {
        number(halves, bits)
    }

    #[inline(always)]
    fn find<const B: usize>(
        self,
        &[src, dst, ports, last]: &[u32; WORDS],
        block: &[u32; B],
    ) -> Match {
        let differ = |x: u32, value: u32, shift: u32| (x ^ value).checked_shr(shift).unwrap_or(0);
        let over = |x: u32, low: u32, length: u32| (x.wrapping_sub(low) & 0xffff) > length;
        let matches = |lane: &usize| {
            let word = |column: usize| block[column + lane];
            let (from, length, misc) = (word(PORTS), word(LENGTHS), word(MISC));
            differ(src, word(SRC), misc & 0xff) == 0
                && differ(dst, word(DST), misc >> 8 & 0xff) == 0
                && !over(ports >> 16, from >> 16, length >> 16)
                && !over(ports, from, length & 0xffff)
                && match B {
                    WIDE => (last ^ word(VALUE)) & word(MASK) == 0,
                    _ => (last ^ misc) >> 24 & misc >> 16 & 0xff == 0,
                }
        };
        (0..LANES).find(matches).map_or(Match::NONE, |lane| place(block, lane))
    }

    #[inline(always)]
    fn find_masked(self, header: &[u32], block: &[u32]) -> Match {
        let columns = block[LINE_WORDS..].as_chunks::<LINE_WORDS>().0;
        let matches = |lane: &usize| {
            let mut columns = header.iter().zip(columns);
            columns.all(|(word, own)| (word ^ own[*lane]) & own[LANES + lane] == 0)
        };
        (0..LANES).find(matches).map_or(Match::NONE, |lane| masked_place(block, lane))
    }
}

/// The rule of a place of a block.
#[inline(always)]
pub(super) fn place<const B: usize>(block: &[u32; B], lane: usize) -> Match {
    let at = matches(B) + 2 * (lane % LANES);
    Match::from_words(block[at], block[at + 1])
}

impl<'a> Cuts<'a> {
    /// The trees in `blob`; `None` if that holds none.
    pub fn new(blob: &'a Blob) -> Option<Self> {
        let image = blob.words();
        let [magic, words, count, levels, block, form @ ..] = image.get(..FRAME_WORDS)? else {
            return None;
        };
        let (words, count) = (*words as usize, *count as usize);
        let (levels, block) = (*levels as usize, *block as usize);
        let rows = match *magic {
            MAGIC if words == WORDS && block == NARROW => Kind::Narrow,
            MAGIC if words == WORDS && block == WIDE => Kind::Wide,
            MAGIC_MASKS => {
                let form = MaskForm::from_words(*form.first_chunk()?)?;
                let is_form = block == block_words(form.columns.into());
                is_form.then_some(Kind::Masks(words, form))?
            }
            _ => return None,
        };
        if count > TREES_MAX || !(1..=LEVELS_MAX).contains(&levels) {
            return None;
        }
        let mut trees = [Node::default(); TREES_MAX];
        for (at, tree) in trees.iter_mut().enumerate() {
            *tree = node(image, TREES + at * NODE_WORDS).0;
        }
        Some(Self { image, trees, count, levels, rows })
    }

    /// Trees.
    pub fn trees(&self) -> usize {
        self.count
    }

    /// As [`Classify::classify`], in a form. [`Form::Switched`] goes level by level; it is [`Form::Best`] for images
    /// beyond a core's own caches, and [`Form::Direct`] for others. [`Form::Vectors`] is [`Form::Direct`]: leaves are
    /// compared with vectors in all forms.
    ///
    /// # Panics
    /// As [`Classify::classify`].
    pub fn classify_by(&self, form: Form, headers: &[u32], out: &mut [Match]) {
        assert_eq!(headers.len(), out.len() * self.words(), "one result for each header");
        let switched = match form {
            Form::Best => self.image.len() >= NEAR_WORDS,
            form => form == Form::Switched,
        };
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2") {
            // SAFETY: the processor has AVX2 and BMI2, it was asked above.
            return unsafe { self.run_vectors(switched, headers, out) };
        }
        self.run(Portable, switched, headers, out);
    }

    /// The same without vectors, for tests.
    ///
    /// # Panics
    /// As [`Classify::classify`].
    pub fn classify_portable(&self, headers: &[u32], out: &mut [Match]) {
        assert_eq!(headers.len(), out.len() * self.words(), "one result for each header");
        self.run(Portable, false, headers, out);
    }

    #[inline(always)]
    pub(super) fn run<L: Leaves>(
        &self,
        leaves: L,
        switched: bool,
        headers: &[u32],
        out: &mut [Match],
    ) {
        match self.rows {
            Kind::Narrow => {
                self.run_rows(Tuples::<L, NARROW>(leaves), switched, headers.as_chunks().0, out);
            }
            Kind::Wide => {
                self.run_rows(Tuples::<L, WIDE>(leaves), switched, headers.as_chunks().0, out);
            }
            Kind::Masks(2, form) => {
                self.run_rows(Masks::<L, 2>(leaves, form), switched, headers.as_chunks().0, out);
            }
            Kind::Masks(4, form) => {
                self.run_rows(Masks::<L, 4>(leaves, form), switched, headers.as_chunks().0, out);
            }
            Kind::Masks(9, form) => {
                self.run_rows(Masks::<L, 9>(leaves, form), switched, headers.as_chunks().0, out);
            }
            Kind::Masks(10, form) => {
                self.run_rows(Masks::<L, 10>(leaves, form), switched, headers.as_chunks().0, out);
            }
            Kind::Masks(16, form) => {
                self.run_rows(Masks::<L, 16>(leaves, form), switched, headers.as_chunks().0, out);
            }
            Kind::Masks(..) => out.fill(Match::NONE),
        }
    }

    #[inline(always)]
    fn run_rows<R: Rows>(&self, rows: R, switched: bool, headers: &[R::Key], out: &mut [Match]) {
        match self.count {
            0 => out.fill(Match::NONE),
            1 => self.run_trees::<1, R>(rows, switched, headers, out),
            2 => self.run_trees::<2, R>(rows, switched, headers, out),
            3 => self.run_trees::<3, R>(rows, switched, headers, out),
            4 => self.run_trees::<4, R>(rows, switched, headers, out),
            _ => self.run_trees::<TREES_MAX, R>(rows, switched, headers, out),
        }
    }

    #[inline(always)]
    fn run_trees<const T: usize, R: Rows>(
        &self,
        rows: R,
        switched: bool,
        headers: &[R::Key],
        out: &mut [Match],
    ) {
        let trees = self.trees.first_chunk::<T>().expect("as many as there may be");
        let search = Search::<T, R> { cuts: *self, trees: *trees, rows };
        if switched {
            return run_grouped::<GROUP, _>(&search, headers, out);
        }
        for (header, out) in headers.iter().zip(out) {
            let (x, halves) = (rows.header(header), rows.halves(header));
            let mut best = Match::NONE;
            for tree in &search.trees {
                let cell = self.image[self.cell(rows.leaves(), tree, &halves)];
                best = best.min(self.leaf(rows, &x, cell));
            }
            *out = best;
        }
    }

    /// The word of the node that a header comes to first.
    #[inline(always)]
    fn first_node<L: Leaves>(&self, leaves: L, tree: &Node, halves: &Bits) -> usize {
        let at = leaves.number(halves, &tree.bits, tree.bits[0].count_ones());
        tree.first as usize + at * NODE_WORDS
    }

    /// The word of the node below a node.
    #[inline(always)]
    fn next_node<L: Leaves>(&self, leaves: L, at: usize, halves: &Bits) -> usize {
        let (node, shift) = node(self.image, at);
        node.first as usize + leaves.number(halves, &node.bits, shift) * NODE_WORDS
    }

    /// The word of the cell below a last node.
    #[inline(always)]
    fn cell_below<L: Leaves>(&self, leaves: L, at: usize, halves: &Bits) -> usize {
        let (node, shift) = node(self.image, at);
        node.first as usize + leaves.number(halves, &node.bits, shift)
    }

    /// The word of the cell that a header comes to.
    #[inline(always)]
    fn cell<L: Leaves>(&self, leaves: L, tree: &Node, halves: &Bits) -> usize {
        let mut at = self.first_node(leaves, tree, halves);
        for _ in 1..self.levels {
            at = self.next_node(leaves, at, halves);
        }
        self.cell_below(leaves, at, halves)
    }

    /// The blocks of a leaf.
    #[inline(always)]
    fn blocks(&self, cell: u32, block_words: usize) -> &'a [u32] {
        let (first, count) = ((cell >> 8) as usize * LINE_WORDS, cell as usize & 0xff);
        &self.image[first..][..count * block_words]
    }

    /// The best rule of a leaf: rules are in order, so it is the first.
    #[inline(always)]
    fn leaf<R: Rows>(&self, rows: R, header: &R::Header, cell: u32) -> Match {
        let mut blocks = self.blocks(cell, rows.block_words()).chunks_exact(rows.block_words());
        let Some(first) = blocks.next() else { return Match::NONE };
        let mut found = rows.find(header, first);
        for block in blocks {
            if found.is_some() {
                break;
            }
            found = rows.find(header, block);
        }
        found
    }

    /// The way of a header, tree by tree.
    ///
    /// # Panics
    /// For a header of another width.
    pub(crate) fn explain(&self, header: &[u32]) -> Explained {
        match self.rows {
            Kind::Narrow => self.explain_rows(Tuples::<_, NARROW>(Portable), key(header)),
            Kind::Wide => self.explain_rows(Tuples::<_, WIDE>(Portable), key(header)),
            Kind::Masks(2, form) => self.explain_rows(Masks::<_, 2>(Portable, form), key(header)),
            Kind::Masks(4, form) => self.explain_rows(Masks::<_, 4>(Portable, form), key(header)),
            Kind::Masks(9, form) => self.explain_rows(Masks::<_, 9>(Portable, form), key(header)),
            Kind::Masks(10, form) => self.explain_rows(Masks::<_, 10>(Portable, form), key(header)),
            Kind::Masks(_, form) => self.explain_rows(Masks::<_, 16>(Portable, form), key(header)),
        }
    }

    fn explain_rows<R: Rows>(&self, rows: R, header: &R::Key) -> Explained {
        let (halves, header) = (rows.halves(header), rows.header(header));
        let explained = |(at, tree): (usize, &Node)| {
            let node = self.first_node(Portable, tree, &halves) - tree.first as usize;
            let node = node / NODE_WORDS;
            let cell = self.image[self.cell(Portable, tree, &halves)];
            let (blocks, found) = (cell & 0xff, self.leaf(rows, &header, cell));
            let place = format!("tree {at} of {}, node {node}, blocks: {blocks}", self.count);
            let outcome = Outcome::of(found, "no rule of the leaf matches");
            Step { place, accesses: self.levels as u32 + 1 + blocks, outcome }
        };
        let steps: Vec<Step> = self.trees[..self.count].iter().enumerate().map(explained).collect();
        let found = explain::best(&steps);
        Explained { steps, end: "no tree is left", found }
    }
}

/// A header that is to have so many words.
fn key<const W: usize>(header: &[u32]) -> &[u32; W] {
    header.first_chunk().expect("a header of the table's width")
}

/// A node of the image, and how many its first bits are.
#[inline(always)]
fn node(image: &[u32], at: usize) -> (Node, u32) {
    let [a, b, c, d, shift, first, ..] = image[at..][..NODE_WORDS] else {
        return (Node::default(), 0);
    };
    let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    (Node { bits: [pair(a, b), pair(c, d)], first }, shift)
}

/// Searches level by level, in all trees at once.
#[derive(Debug, Clone, Copy)]
struct Search<'a, const T: usize, R> {
    cuts: Cuts<'a>,
    trees: [Node; T],
    rows: R,
}

/// Words that are read next, one of each tree.
#[derive(Debug, Clone, Copy)]
struct State<const T: usize> {
    at: [u32; T],
    level: usize,
    best: Match,
}

impl<const T: usize, R: Rows> Walk for Search<'_, T, R> {
    type Key = R::Key;
    type Value = Match;
    type State = State<T>;

    #[inline(always)]
    fn begin(&self, header: &R::Key) -> State<T> {
        let halves = self.rows.halves(header);
        let at = std::array::from_fn(|tree| {
            let at = self.cuts.first_node(self.rows.leaves(), &self.trees[tree], &halves);
            prefetch(&self.cuts.image[at]);
            at as u32
        });
        State { at, level: LEVELS_MAX - self.cuts.levels, best: Match::NONE }
    }

    #[inline(always)]
    fn level(&self, header: &R::Key, state: &mut State<T>) -> bool {
        let (image, leaves) = (self.cuts.image, self.rows.leaves());
        match state.level {
            0 => {
                let halves = self.rows.halves(header);
                for at in &mut state.at {
                    *at = self.cuts.next_node(leaves, *at as usize, &halves) as u32;
                    prefetch(&image[*at as usize]);
                }
            }
            1 => {
                let halves = self.rows.halves(header);
                for at in &mut state.at {
                    *at = self.cuts.cell_below(leaves, *at as usize, &halves) as u32;
                    prefetch(&image[*at as usize]);
                }
            }
            LEVELS_MAX => {
                let words = self.rows.block_words();
                for at in &mut state.at {
                    *at = image[*at as usize];
                    let lines = self.cuts.blocks(*at, words).iter().step_by(LINE_WORDS);
                    lines.take(words / LINE_WORDS).for_each(prefetch);
                }
            }
            _ => {
                let header = self.rows.header(header);
                for cell in state.at {
                    state.best = state.best.min(self.cuts.leaf(self.rows, &header, cell));
                }
                return false;
            }
        }
        state.level += 1;
        true
    }

    #[inline(always)]
    fn end(&self, _: &R::Key, state: &State<T>) -> Match {
        state.best
    }
}

impl Classify for Cuts<'_> {
    fn words(&self) -> usize {
        match self.rows {
            Kind::Narrow | Kind::Wide => WORDS,
            Kind::Masks(words, _) => words,
        }
    }

    fn classify(&self, headers: &[u32], out: &mut [Match]) {
        self.classify_by(Form::Best, headers, out);
    }
}
