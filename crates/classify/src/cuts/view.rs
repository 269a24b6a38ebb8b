//! The read side.

use interleave::{Walk, prefetch, run_grouped};
use lookup::Blob;

use super::layout::*;
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
    is_wide: bool,
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
        let [magic, words, count, levels, block, ..] = *image.get(..FRAME_WORDS)? else {
            return None;
        };
        let (count, levels) = (count as usize, levels as usize);
        if magic != MAGIC || words as usize != WORDS || count > TREES_MAX {
            return None;
        }
        let is_wide = block as usize == WIDE;
        if !(1..=LEVELS_MAX).contains(&levels) || !is_wide && block as usize != NARROW {
            return None;
        }
        let mut trees = [Node::default(); TREES_MAX];
        for (at, tree) in trees.iter_mut().enumerate() {
            *tree = node(image, TREES + at * NODE_WORDS).0;
        }
        Some(Self { image, trees, count, levels, is_wide })
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
        assert_eq!(headers.len(), out.len() * WORDS, "one result for each header");
        let (headers, _) = headers.as_chunks::<WORDS>();
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
        assert_eq!(headers.len(), out.len() * WORDS, "one result for each header");
        self.run(Portable, false, headers.as_chunks::<WORDS>().0, out);
    }

    #[inline(always)]
    pub(super) fn run<L: Leaves>(
        &self,
        leaves: L,
        switched: bool,
        headers: &[[u32; WORDS]],
        out: &mut [Match],
    ) {
        match self.is_wide {
            false => self.run_blocks::<NARROW, L>(leaves, switched, headers, out),
            true => self.run_blocks::<WIDE, L>(leaves, switched, headers, out),
        }
    }

    #[inline(always)]
    fn run_blocks<const B: usize, L: Leaves>(
        &self,
        leaves: L,
        switched: bool,
        headers: &[[u32; WORDS]],
        out: &mut [Match],
    ) {
        match self.count {
            0 => out.fill(Match::NONE),
            1 => self.run_trees::<1, B, L>(leaves, switched, headers, out),
            2 => self.run_trees::<2, B, L>(leaves, switched, headers, out),
            3 => self.run_trees::<3, B, L>(leaves, switched, headers, out),
            4 => self.run_trees::<4, B, L>(leaves, switched, headers, out),
            _ => self.run_trees::<TREES_MAX, B, L>(leaves, switched, headers, out),
        }
    }

    #[inline(always)]
    fn run_trees<const T: usize, const B: usize, L: Leaves>(
        &self,
        leaves: L,
        switched: bool,
        headers: &[[u32; WORDS]],
        out: &mut [Match],
    ) {
        let trees = self.trees.first_chunk::<T>().expect("as many as there may be");
        let search = Search::<T, B, L> { cuts: *self, trees: *trees, leaves };
        if switched {
            return run_grouped::<GROUP, _>(&search, headers, out);
        }
        for (header, out) in headers.iter().zip(out) {
            let (x, halves) = (leaves.header(header), halves(header));
            let mut best = Match::NONE;
            for tree in &search.trees {
                let cell = self.image[self.cell(leaves, tree, &halves)];
                best = best.min(self.leaf::<B, L>(leaves, &x, cell));
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
    fn blocks<const B: usize>(&self, cell: u32) -> &'a [[u32; B]] {
        let (first, count) = ((cell >> 8) as usize * LINE_WORDS, cell as usize & 0xff);
        self.image[first..][..count * B].as_chunks::<B>().0
    }

    /// The best rule of a leaf: rules are in order, so it is the first.
    #[inline(always)]
    fn leaf<const B: usize, L: Leaves>(&self, leaves: L, header: &L::Header, cell: u32) -> Match {
        let blocks = self.blocks::<B>(cell);
        let Some((first, others)) = blocks.split_first() else { return Match::NONE };
        let mut found = leaves.find(header, first);
        for block in others {
            if found.is_some() {
                break;
            }
            found = leaves.find(header, block);
        }
        found
    }

    /// The way of a header, tree by tree.
    ///
    /// # Panics
    /// For a header of another width.
    pub(crate) fn explain(&self, header: &[u32]) -> Explained {
        let header = header.first_chunk::<WORDS>().expect("a header of four words");
        let halves = halves(header);
        let explained = |(at, tree): (usize, &Node)| {
            let node = self.first_node(Portable, tree, &halves) - tree.first as usize;
            let node = node / NODE_WORDS;
            let cell = self.image[self.cell(Portable, tree, &halves)];
            let (blocks, found) = match self.is_wide {
                false => (cell & 0xff, self.leaf::<NARROW, _>(Portable, header, cell)),
                true => (cell & 0xff, self.leaf::<WIDE, _>(Portable, header, cell)),
            };
            let place = format!("tree {at} of {}, node {node}, blocks: {blocks}", self.count);
            let outcome = Outcome::of(found, "no rule of the leaf matches");
            Step { place, accesses: self.levels as u32 + 1 + blocks, outcome }
        };
        let steps: Vec<Step> = self.trees[..self.count].iter().enumerate().map(explained).collect();
        let found = explain::best(&steps);
        Explained { steps, end: "no tree is left", found }
    }
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
struct Search<'a, const T: usize, const B: usize, L> {
    cuts: Cuts<'a>,
    trees: [Node; T],
    leaves: L,
}

/// Words that are read next, one of each tree.
#[derive(Debug, Clone, Copy)]
struct State<const T: usize> {
    at: [u32; T],
    level: usize,
    best: Match,
}

impl<const T: usize, const B: usize, L: Leaves> Walk for Search<'_, T, B, L> {
    type Key = [u32; WORDS];
    type Value = Match;
    type State = State<T>;

    #[inline(always)]
    fn begin(&self, header: &[u32; WORDS]) -> State<T> {
        let halves = halves(header);
        let at = std::array::from_fn(|tree| {
            let at = self.cuts.first_node(self.leaves, &self.trees[tree], &halves);
            prefetch(&self.cuts.image[at]);
            at as u32
        });
        State { at, level: LEVELS_MAX - self.cuts.levels, best: Match::NONE }
    }

    #[inline(always)]
    fn level(&self, header: &[u32; WORDS], state: &mut State<T>) -> bool {
        let image = self.cuts.image;
        match state.level {
            0 => {
                let halves = halves(header);
                for at in &mut state.at {
                    *at = self.cuts.next_node(self.leaves, *at as usize, &halves) as u32;
                    prefetch(&image[*at as usize]);
                }
            }
            1 => {
                let halves = halves(header);
                for at in &mut state.at {
                    *at = self.cuts.cell_below(self.leaves, *at as usize, &halves) as u32;
                    prefetch(&image[*at as usize]);
                }
            }
            LEVELS_MAX => {
                for at in &mut state.at {
                    *at = image[*at as usize];
                    if let Some(block) = self.cuts.blocks::<B>(*at).first() {
                        (0..B / LINE_WORDS).for_each(|l| prefetch(&block[l * LINE_WORDS]));
                    }
                }
            }
            _ => {
                let header = self.leaves.header(header);
                for cell in state.at {
                    state.best = state.best.min(self.cuts.leaf::<B, L>(self.leaves, &header, cell));
                }
                return false;
            }
        }
        state.level += 1;
        true
    }

    #[inline(always)]
    fn end(&self, _: &[u32; WORDS], state: &State<T>) -> Match {
        state.best
    }
}

impl Classify for Cuts<'_> {
    fn words(&self) -> usize {
        WORDS
    }

    fn classify(&self, headers: &[u32], out: &mut [Match]) {
        self.classify_by(Form::Best, headers, out);
    }
}
