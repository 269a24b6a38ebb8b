//! How an automaton lies in memory: words of 32 bits, no pointers, in quads of four words, so that a record's head is one
//! load of 16 bytes on a device and never straddles a cache line.
//!
//! ```text
//!  quad 0      MAGIC, 1, number of patterns, mark of the states (16 bits)
//!  quads 1–2   machine of the exact patterns:  classes, start, quad of the classes, quad of the defaults │
//!                                              quad of the records, their quads, quad of the lists, their words
//!  quads 3–4   machine of the patterns where case does not count; `classes` is 0 where a machine has no pattern
//!  then, for each machine:
//!    classes   256 bytes: the class of each byte
//!    defaults  classes + 1 rows of `classes` states: where a class leads from the root after a class; the last row
//!              where nothing is known of the byte before
//!    records   of the nodes, level by level
//!    lists     of patterns: for nodes where more than three end
//! ```
//!
//! A *state* is the number of a record's quad (24 bits), with bit 31 set where patterns end. Record 0 is the root.
//!
//! ```text
//!  quad −1   only where patterns end:
//!            how many, and up to three of them; or how many (over three) and where in the lists they begin
//!  quad 0    head │ mask │ fail │ next
//!            head:  reach (16 bits), children that the record lists (8; 255: a bitmap), class of a single child (8)
//!            mask:  bit c mod 32 for each class c that the record lists
//!            fail:  the record to try next (24 bits; 0: the defaults), class of the last byte (8)
//!            next:  one child: its state; two to four: their classes, a byte each
//!  quad 1    two to four children: their states
//!  quads 1…  more: for each 32 classes a bitmap, and where the states of its bits begin (words from quad 1); states
//! ```
//!
//! What leads to nodes of depth one or two depends on two bytes of the text alone, so it is in the *defaults*, which stay
//! in a near cache, and no record of depth below two lists a child: a walk over text that matches nothing reads one
//! record and one default for each byte, and neither waits for the other. A failure link that could give nothing is left
//! out when the tables are written, and leads to the defaults.
//!
//! *Reach* is how far before the next byte a pattern that may still match begins: the depth, and one more for anchored
//! nodes, so that it is before the start of the stream.

use crate::patterns::{PatternError, Patterns};
use crate::trie::{Classes, NONE, Trie};

/// Bits of a state that number a record's quad.
pub(crate) const RECORD: u32 = (1 << 24) - 1;
/// Set in a state where patterns end.
pub(crate) const ENDS: u32 = 1 << 31;
/// First word of an image.
pub const MAGIC: u32 = 0x6175_746f;
/// Children of a record that has a bitmap.
const BITMAP: u32 = 255;
/// Patterns that a quad holds beside their number.
const FEW: usize = 3;
/// How many links are followed to leave out those that give nothing.
const LEAVE_OUT_MAX: usize = 8;

pub(crate) type Quad = [u32; 4];

/// Where the parts of one machine are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Parts {
    pub(crate) classes: [u8; 256],
    pub(crate) class_count: usize,
    pub(crate) start: u32,
    /// Words.
    pub(crate) defaults: std::ops::Range<usize>,
    /// Quads.
    pub(crate) records: std::ops::Range<usize>,
    /// Words.
    pub(crate) lists: std::ops::Range<usize>,
}

/// Writes the image of a set; the two machines, where they have patterns.
pub(crate) fn write(patterns: &Patterns) -> Result<(Vec<Quad>, [Option<Parts>; 2]), PatternError> {
    let limit = patterns.limits().table_bytes_max;
    let mut image = vec![[0; 4]; 5];
    image[0] = [MAGIC, 1, patterns.len() as u32, 0];
    let mut parts = [None, None];
    for (machine, fold) in [false, true].into_iter().enumerate() {
        let all = patterns.as_slice();
        let is_in = |number: &u32| all[*number as usize].is_nocase() == fold;
        let numbers: Vec<u32> = (0..all.len() as u32).filter(is_in).collect();
        if numbers.is_empty() {
            continue;
        }
        let classes = Classes::new(numbers.iter().map(|number| &all[*number as usize]), fold);
        let nodes_max = (limit / 16).saturating_sub(image.len()).min(RECORD as usize);
        let Some(trie) = Trie::new(all, numbers, &classes, nodes_max) else {
            let bytes = (image.len() + nodes_max + 1) * 16;
            return Err(PatternError::TableTooLarge { bytes, limit: bytes_max(limit) });
        };
        let written = machine_parts(&mut image, &trie, &classes, limit)?;
        let first = 1 + 2 * machine;
        let defaults = written.defaults.start / 4;
        let lists = (written.lists.start / 4) as u32;
        let (count, start) = (classes.count as u32, written.start);
        image[first] = [count, start, defaults as u32 - 16, defaults as u32];
        let records = (written.records.start as u32, written.records.len() as u32);
        image[first + 1] = [records.0, records.1, lists, written.lists.len() as u32];
        parts[machine] = Some(written);
    }
    Ok((image, parts))
}

/// The lower of the set's limit and that of the records' numbers.
fn bytes_max(limit: usize) -> usize {
    limit.min(RECORD as usize * 16)
}

/// Adds one machine to the image.
fn machine_parts(
    image: &mut Vec<Quad>,
    trie: &Trie,
    classes: &Classes,
    limit: usize,
) -> Result<Parts, PatternError> {
    let plan = Plan::new(trie, classes);
    let default_words = (classes.count + 1) * classes.count;
    let quads = 16 + default_words.div_ceil(4) + plan.quads + trie.lists.len().div_ceil(4);
    let bytes = (image.len() + quads).saturating_mul(16);
    if bytes > limit || plan.quads > RECORD as usize {
        return Err(PatternError::TableTooLarge { bytes, limit: bytes_max(limit) });
    }
    image.reserve_exact(quads);
    let (groups, _) = classes.of.as_chunks::<16>();
    image.extend(groups.iter().map(|bytes| {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        [word(0), word(4), word(8), word(12)]
    }));

    let mut defaults = vec![0; default_words];
    let single: Vec<Option<u32>> =
        (0..classes.count).map(|class| trie.child(0, class as u8)).collect();
    let mut rows = defaults.chunks_exact_mut(classes.count);
    for before in single.iter().copied().chain([None]) {
        let Some(row) = rows.next() else { break };
        for (class, state) in row.iter_mut().enumerate() {
            let pair = before.and_then(|node| trie.child(node, class as u8));
            *state = plan.state(trie, pair.or(single[class]).unwrap_or(0));
        }
    }
    let defaults = extend_words(image, &defaults);

    let records = image.len();
    image.resize(records + plan.quads, [0; 4]);
    for node in 0..trie.len() as u32 {
        plan.record(trie, node, &mut image[records..]);
    }
    let records = records..image.len();
    let lists = extend_words(image, &trie.lists);
    let start = plan.at[trie.start as usize];
    Ok(Parts { classes: classes.of, class_count: classes.count, start, defaults, records, lists })
}

/// Adds words and fills their last quad; gives their place in words.
fn extend_words(image: &mut Vec<Quad>, words: &[u32]) -> std::ops::Range<usize> {
    let start = image.len() * 4;
    let (quads, rest) = words.as_chunks::<4>();
    image.extend_from_slice(quads);
    if !rest.is_empty() {
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        image.push(last);
    }
    start..start + words.len()
}

/// Which record each node gets.
struct Plan {
    at: Vec<u32>,
    /// The node whose record is tried next, or 0 for the defaults.
    fail: Vec<u32>,
    quads: usize,
    bitmap_words: usize,
}

impl Plan {
    fn new(trie: &Trie, classes: &Classes) -> Self {
        let nodes = trie.len();
        let bitmap_words = 2 * classes.count.div_ceil(32);
        let mut plan = Self {
            at: Vec::with_capacity(nodes),
            fail: Vec::with_capacity(nodes),
            quads: 0,
            bitmap_words,
        };
        for node in 0..nodes as u32 {
            plan.quads += usize::from(trie.list[node as usize] != NONE);
            plan.at.push(plan.quads.min(u32::MAX as usize) as u32);
            plan.quads += 1 + match listed(trie, node).len() {
                0 | 1 => 0,
                2..=4 => 1,
                many => (bitmap_words + many).div_ceil(4),
            };
            plan.fail.push(plan.link(trie, node));
        }
        plan
    }

    /// The nearest suffix whose record lists a class that this node's does not.
    fn link(&self, trie: &Trie, node: u32) -> u32 {
        let mine = listed(trie, node);
        let mut suffix = trie.fail[node as usize];
        for _ in 0..LEAVE_OUT_MAX {
            let theirs = listed(trie, suffix);
            if suffix == 0 || !theirs.iter().all(|class| mine.binary_search(class).is_ok()) {
                break;
            }
            suffix = self.fail[suffix as usize];
        }
        match trie.depth[suffix as usize] {
            0 | 1 => 0,
            _ => suffix,
        }
    }

    fn state(&self, trie: &Trie, node: u32) -> u32 {
        let ends = if trie.list[node as usize] == NONE { 0 } else { ENDS };
        self.at[node as usize] | ends
    }

    fn record(&self, trie: &Trie, node: u32, records: &mut [Quad]) {
        let at = self.at[node as usize] as usize;
        let list = trie.list(node);
        if !list.is_empty() {
            let mut few = [list.len() as u32, trie.list[node as usize] + 1, 0, 0];
            if list.len() <= FEW {
                few[1..=list.len()].copy_from_slice(list);
            }
            records[at - 1] = few;
        }
        let listed = listed(trie, node);
        let first = trie.children(node).start;
        let states: Vec<u32> =
            (0..listed.len() as u32).map(|child| self.state(trie, first + child)).collect();
        let reach = u32::from(trie.depth[node as usize]) + u32::from(trie.anchored[node as usize]);
        let mask = listed.iter().fold(0, |mask, class| mask | 1 << (class & 31));
        let fail = self.at[self.fail[node as usize] as usize];
        let mut head = [reach, mask, fail | u32::from(trie.class[node as usize]) << 24, 0];
        match states.len() {
            0 => {}
            1 => {
                head[0] |= 1 << 16 | u32::from(listed[0]) << 24;
                head[3] = states[0];
            }
            few @ 2..=4 => {
                head[0] |= (few as u32) << 16;
                for (place, class) in listed.iter().enumerate() {
                    head[3] |= u32::from(*class) << (8 * place);
                }
                records[at + 1][..few].copy_from_slice(&states);
            }
            _ => {
                head[0] |= BITMAP << 16;
                let words = records[at + 1..].as_flattened_mut();
                for (place, (class, state)) in listed.iter().zip(&states).enumerate() {
                    words[2 * usize::from(class >> 5)] |= 1 << (class & 31);
                    words[self.bitmap_words + place] = *state;
                }
                let mut begins = self.bitmap_words as u32;
                for pair in words[..self.bitmap_words].chunks_exact_mut(2) {
                    pair[1] = begins;
                    begins += pair[0].count_ones();
                }
            }
        }
        records[at] = head;
    }
}

/// The classes that a node's record lists: all but those that the defaults know.
fn listed(trie: &Trie, node: u32) -> &[u8] {
    let at = node as usize;
    match trie.depth[at] {
        0 | 1 if !trie.anchored[at] => &[],
        _ => trie.classes(node),
    }
}

/// One machine over its parts of the image.
#[derive(Clone, Copy)]
pub(crate) struct Machine<'a> {
    pub(crate) classes: &'a [u8; 256],
    pub(crate) class_count: usize,
    pub(crate) start: u32,
    defaults: &'a [u32],
    records: &'a [Quad],
    lists: &'a [u32],
}

impl<'a> Machine<'a> {
    pub(crate) fn new(image: &'a [Quad], parts: &'a Parts) -> Self {
        let words = image.as_flattened();
        Self {
            classes: &parts.classes,
            class_count: parts.class_count,
            start: parts.start,
            defaults: &words[parts.defaults.clone()],
            records: &image[parts.records.clone()],
            lists: &words[parts.lists.clone()],
        }
    }

    /// A quad of the records; zeros outside of them, which only a state of another automaton can name.
    #[inline(always)]
    fn quad(&self, at: u32) -> Quad {
        self.records.get(at as usize).copied().unwrap_or_default()
    }

    /// The row of the defaults after a byte of this class.
    #[inline(always)]
    pub(crate) fn row(&self, class: u8) -> usize {
        usize::from(class) * self.class_count
    }

    /// The row of the defaults after the bytes that led to a state.
    #[inline]
    pub(crate) fn row_of(&self, state: u32) -> usize {
        let at = state & RECORD;
        match at == 0 || at == self.start {
            true => self.class_count * self.class_count,
            false => self.row((self.quad(at)[2] >> 24) as u8),
        }
    }

    /// How many bytes before the next one a pattern that may still match begins.
    #[inline(always)]
    pub(crate) fn reach(&self, state: u32) -> usize {
        (self.quad(state & RECORD)[0] & 0xffff) as usize
    }

    /// The next state after a byte of this class; `row` is that of the byte before.
    ///
    /// Most records list no such class and have no link: two loads, neither of which waits for the other. Most of the
    /// others are on the way through a pattern of which they list the next class. The rest is a call.
    #[inline(always)]
    pub(crate) fn step(&self, state: u32, row: usize, class: u8) -> u32 {
        let at = state & RECORD;
        let [head, mask, fail, next] = self.quad(at);
        if mask >> (class & 31) & 1 == 0 && fail & RECORD == 0 {
            return self.default(row, class);
        }
        if head >> 16 == 1 | u32::from(class) << 8 {
            return next;
        }
        self.step_call(at, row, class)
    }

    #[inline(never)]
    fn step_call(&self, at: u32, row: usize, class: u8) -> u32 {
        self.step_with(at, row, class, || ())
    }

    /// The same, always in full; `read` hears of each record.
    #[inline(always)]
    fn step_with(&self, mut at: u32, row: usize, class: u8, mut read: impl FnMut()) -> u32 {
        // In tables that `write` made each link leads to a smaller depth: the bound is for states of other tables.
        for _ in 0..=u16::MAX {
            read();
            let [head, mask, fail, next] = self.quad(at);
            if mask >> (class & 31) & 1 != 0
                && let Some(state) = self.child(at, head, next, class)
            {
                return state;
            }
            at = fail & RECORD;
            if at == 0 {
                break;
            }
        }
        self.default(row, class)
    }

    /// Where a class leads from the root after a class.
    #[inline(always)]
    fn default(&self, row: usize, class: u8) -> u32 {
        self.defaults.get(row + usize::from(class)).copied().unwrap_or_default()
    }

    #[inline(always)]
    fn child(&self, at: u32, head: u32, next: u32, class: u8) -> Option<u32> {
        match head >> 16 & 0xff {
            0 => None,
            1 => (head >> 24 == u32::from(class)).then_some(next),
            BITMAP => {
                let words = self.records.get(at as usize + 1..)?.as_flattened();
                let pair = 2 * usize::from(class >> 5);
                let (bits, begins) = (*words.get(pair)?, *words.get(pair + 1)?);
                let bit = 1 << (class & 31);
                if bits & bit == 0 {
                    return None;
                }
                words.get((begins + (bits & (bit - 1)).count_ones()) as usize).copied()
            }
            few => {
                let states = self.quad(at + 1);
                let classes = next.to_le_bytes();
                (0..few.min(4) as usize)
                    .find(|place| classes[*place] == class)
                    .map(|place| states[place])
            }
        }
    }

    /// The patterns that end at a state, in order; they are copied from the record's quad to `few`.
    #[inline]
    pub(crate) fn ends<'b>(&self, state: u32, few: &'b mut Quad) -> &'b [u32]
    where
        'a: 'b,
    {
        if state & ENDS == 0 {
            return &[];
        }
        *few = self.quad((state & RECORD).wrapping_sub(1));
        let count = few[0] as usize;
        match count <= FEW {
            true => &few[1..=count],
            false => {
                let start = few[1] as usize;
                self.lists.get(start..start + count).unwrap_or_default()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pattern;

    /// A failure link costs a read, but only what was read before: at most two records for each byte, and not many
    /// more than one over ordinary text.
    #[test]
    fn reads_are_bounded() {
        let mut random = 5_u64;
        let mut random = move |below: u32| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) as u32 % below
        };
        for (letters, most) in [(2, 2.0), (4, 2.0), (26, 1.3)] {
            let mut patterns = Patterns::default();
            for _ in 0..500 {
                let bytes: Vec<u8> =
                    (0..3 + random(20)).map(|_| b'a' + random(letters) as u8).collect();
                patterns.insert(Pattern::new(&bytes)).unwrap();
            }
            let (image, parts) = write(&patterns).unwrap();
            let machine = Machine::new(&image, parts[0].as_ref().unwrap());
            let text: Vec<u8> = (0..20_000).map(|_| b'a' + random(letters) as u8).collect();
            let (mut state, mut row, mut reads) = (0, machine.row_of(0), 0);
            for byte in &text {
                let class = machine.classes[usize::from(*byte)];
                state = machine.step_with(state & RECORD, row, class, || reads += 1);
                row = machine.row(class);
            }
            let reads = f64::from(reads) / text.len() as f64;
            assert!((1.0..=most).contains(&reads), "{reads} reads a byte of {letters} letters");
        }
    }
}
