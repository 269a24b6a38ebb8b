//! Addresses for prefixes of given lengths, so that they make a trie of a given form.
//!
//! All prefixes begin at the root. At each node those that end there stop; the others go to one child or to two, by
//! the parts of the parameter file for this level. Of two children the lighter one gets `(1 - skew) / (2 - skew)`
//! of them. Which child is which is random.
//!
//! - *Correlation*: a destination whose bits have been those of its rule's source so far goes on like it as often as
//!   the file says for the level, and else the other way.
//! - *Nesting*: below as many prefixes as may be within each other, those that end first go to a child of their
//!   own, as far as the lengths allow.
//! - *More rules than the file was made from*: a trie that branches as seldom as that of a few hundred rules gives the
//!   same addresses over and over. Where prefixes have hardly levels enough left to be different, a node has two
//!   children of one weight. [`SHARE`] of them may still be the same.

use super::Random;
use super::parameters::{LEVELS, Side};

/// Prefixes that may share an address without being forced apart.
const SHARE: usize = 4;

/// Sources, for the correlation of destinations with them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Correlated<'a> {
    pub(super) sources: &'a [u32],
    pub(super) source_lengths: &'a [u8],
    /// By level.
    pub(super) parts: &'a [f64; LEVELS],
}

/// An address for each of these prefix lengths; bits behind the length are 0.
pub(super) fn addresses(
    lengths: &[u8],
    side: &Side,
    correlated: Option<Correlated<'_>>,
    random: &mut Random,
) -> Vec<u32> {
    let mut trie = Trie { lengths, side, correlated, random, addresses: vec![0; lengths.len()] };
    trie.grow((0..lengths.len() as u32).collect(), 0, 0);
    trie.addresses
}

struct Trie<'a> {
    lengths: &'a [u8],
    side: &'a Side,
    correlated: Option<Correlated<'a>>,
    random: &'a mut Random,
    addresses: Vec<u32>,
}

impl Trie<'_> {
    /// Chooses the bits from `level` on of prefixes that share those before. At most 32 deep.
    fn grow(&mut self, mut members: Vec<u32>, level: usize, nested: usize) {
        let before = members.len();
        members.retain(|member| usize::from(self.lengths[*member as usize]) > level);
        let nested = nested + usize::from(members.len() < before);
        if members.is_empty() || level == LEVELS {
            return;
        }
        let heavy_bit = self.random.below(2);
        let mut children = [Vec::new(), Vec::new()];
        let mut free = Vec::with_capacity(members.len());
        for member in members {
            match self.correlated_bit(member as usize, level) {
                Some(bit) => children[bit].push(member),
                None => free.push(member),
            }
        }
        let light = self.light(&free, level);
        self.random.shuffle(&mut free);
        if nested >= self.side.nesting_max {
            free.sort_by_key(|member| self.lengths[*member as usize]);
        }
        let heavy = free.split_off(light);
        children[1 - heavy_bit].append(&mut free);
        children[heavy_bit].extend(heavy);
        for (bit, child) in children.into_iter().enumerate() {
            for member in &child {
                self.addresses[*member as usize] |= (bit as u32) << (LEVELS - 1 - level);
            }
            self.grow(child, level + 1, nested);
        }
    }

    /// How many go to the lighter child.
    fn light(&mut self, free: &[u32], level: usize) -> usize {
        let shape = self.side.levels[level];
        let lengths = free.iter().map(|member| usize::from(self.lengths[*member as usize]));
        let left = lengths.max().unwrap_or(level).saturating_sub(level);
        let draw = self.random.unit();
        if free.len() < 2 {
            return 0;
        }
        let crowded =
            (free.len() / SHARE).checked_ilog2().is_some_and(|needed| left <= needed as usize + 1);
        match (crowded, draw < shape.two) {
            (true, _) => free.len() / 2,
            (_, false) => 0,
            _ => {
                let part = (1.0 - shape.skew) / (2.0 - shape.skew);
                ((free.len() as f64 * part).round() as usize).clamp(1, free.len() / 2)
            }
        }
    }

    /// The next bit of a destination that has been like its source so far.
    fn correlated_bit(&mut self, member: usize, level: usize) -> Option<usize> {
        let correlated = self.correlated?;
        if usize::from(correlated.source_lengths[member]) <= level {
            return None;
        }
        let source = correlated.sources[member];
        let before = u32::MAX.checked_shl((LEVELS - level) as u32).unwrap_or(0);
        if (source ^ self.addresses[member]) & before != 0 {
            return None;
        }
        let bit = (source >> (LEVELS - 1 - level) & 1) as usize;
        Some(if self.random.unit() < correlated.parts[level] { bit } else { 1 - bit })
    }
}
