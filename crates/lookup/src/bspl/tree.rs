//! In which order lengths are tried, and ropes.
//!
//! The tree is a binary search tree over the lengths 17..=128 in which the lengths that occur are
//! on top, the frequent ones highest; lengths that do not occur hang below, where they cost nothing
//! until a route brings them. So a new length never changes the tree, and with it no marker of
//! another route. Only a rope that would grow too long does: then the table is built afresh.
//!
//! A rope is what a search has left to try at some entry: of the lengths of the prefixes below the
//! entry, the left spine of the smallest subtree that holds them all. After a miss the next one is
//! tried; after a hit the rope of the entry that was hit takes its place.

/// Lengths up to this one are answered by the first array and have no entries.
pub(super) const SHORT: u8 = 16;

const LENGTHS: usize = 129;

/// The deepest that a length which occurs may be, so that every rope fits.
const DEPTH_MAX: u32 = 8;

/// How often each length occurs.
pub(super) type Weights = [u64; LENGTHS];

#[derive(Debug, Clone)]
pub(super) struct Tree {
    root: u8,
    children: [[u8; 2]; LENGTHS], // below and above; 0: none
    longest: [u8; LENGTHS],       // of the subtree
}

impl Tree {
    pub(super) fn new(weights: &Weights) -> Self {
        let occur: Vec<u8> = (SHORT + 1..=128).filter(|len| weights[*len as usize] > 0).collect();
        let mut tree = Self { root: 0, children: [[0; 2]; LENGTHS], longest: [0; LENGTHS] };
        tree.root = tree.plant(weights, SHORT + 1, 128, &occur, DEPTH_MAX);
        tree
    }

    /// A subtree over `first..=last`, of which `occur` do.
    fn plant(&mut self, weights: &Weights, first: u8, last: u8, occur: &[u8], depth: u32) -> u8 {
        if first > last {
            return 0;
        }
        let (len, split) = match choose(weights, occur, depth) {
            Some(split) => (occur[split], split),
            None => (first + (last - first) / 2, 0),
        };
        let above = if occur.is_empty() { occur } else { &occur[split + 1..] };
        let depth = depth.saturating_sub(1);
        let left = self.plant(weights, first, len - 1, &occur[..split], depth);
        let right = self.plant(weights, len + 1, last, above, depth);
        self.children[len as usize] = [left, right];
        self.longest[len as usize] = last;
        len
    }

    /// The lengths below `len` that a search for it hits: where it needs markers, in this order.
    pub(super) fn markers(&self, len: u8) -> impl Iterator<Item = u8> + '_ {
        let mut at = self.root;
        std::iter::from_fn(move || {
            while at != len && at != 0 {
                let node = at;
                at = self.children[node as usize][usize::from(node < len)];
                if node < len {
                    return Some(node);
                }
            }
            None
        })
    }

    /// The longest length that a search may come to after a hit at `len`.
    pub(super) fn longest_after(&self, len: u8) -> u8 {
        self.longest[len as usize]
    }

    /// The node under which both lengths are, or one of them.
    fn common(&self, a: u8, b: u8) -> u8 {
        let (low, high) = (a.min(b), a.max(b));
        let mut at = self.root;
        while at != 0 && (at < low || at > high) {
            at = self.children[at as usize][usize::from(at < low)];
        }
        at
    }
}

/// Splits `occur` at a length that is frequent and has weight on both sides, as far as the depth
/// allows. The factor was found by measuring: with a balanced tree, searches in the Internet's table
/// read 4.1 lines, so 3.5; for random lengths it makes no difference.
fn choose(weights: &Weights, occur: &[u8], depth: u32) -> Option<usize> {
    if occur.is_empty() {
        return None;
    }
    let capacity = (1_usize << depth.saturating_sub(1)) - 1; // lengths that fit on either side
    let weigh = |lens: &[u8]| lens.iter().map(|len| weights[*len as usize]).sum::<u64>();
    (0..occur.len())
        .filter(|split| *split <= capacity && occur.len() - 1 - split <= capacity)
        .max_by_key(|split| {
            let lighter = weigh(&occur[..*split]).min(weigh(&occur[split + 1..]));
            3 * weights[occur[*split] as usize] + lighter
        })
        .or(Some(occur.len() / 2))
}

/// Lengths to try, descending, one per byte from the lowest; 0 ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Rope(pub(super) u64);

impl Rope {
    /// The rope over the lengths of `self` and `len`; `None` when it would have more than eight.
    pub(super) fn with(self, tree: &Tree, len: u8) -> Option<Self> {
        let mut lens = self.0.to_le_bytes();
        for at in 0..lens.len() {
            let here = lens[at];
            if here == 0 {
                lens[at] = len;
                return Some(Self(u64::from_le_bytes(lens)));
            }
            let common = tree.common(here, len);
            if common == here {
                if len >= here {
                    return Some(self); // a search for it hits here
                }
                continue; // beyond a miss here
            }
            if common > here {
                // All so far are below `common` on its left: they come after a miss there.
                if lens[7] != 0 {
                    return None;
                }
                lens.copy_within(at..7, at + 1);
                lens[at] = common;
            } else {
                // All so far are on its right and have markers there.
                lens[at..].fill(0);
                lens[at] = common;
                if len < common {
                    *lens.get_mut(at + 1)? = len;
                }
            }
            return Some(Self(u64::from_le_bytes(lens)));
        }
        None
    }

    /// The rope over a set of lengths, bit by bit; `None` when it would have more than eight.
    pub(super) fn over(tree: &Tree, mut lens: u128) -> Option<Self> {
        let mut rope = Self::default();
        while lens != 0 {
            rope = rope.with(tree, lens.trailing_zeros() as u8 + 1)?;
            lens &= lens - 1;
        }
        Some(rope)
    }
}

/// The bit of a length in a set of lengths 1..=128.
pub(super) fn length_bit(len: u8) -> u128 {
    1 << (len - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn weights(lens: &[(u8, u64)]) -> Weights {
        let mut weights = [0; LENGTHS];
        for (len, weight) in lens {
            weights[*len as usize] = *weight;
        }
        weights
    }

    fn depth(tree: &Tree, len: u8) -> u32 {
        let (mut at, mut depth) = (tree.root, 1);
        while at != len {
            assert_ne!(at, 0, "{len} is not in the tree");
            at = tree.children[at as usize][usize::from(at < len)];
            depth += 1;
        }
        depth
    }

    /// By definition: the top of the set, then the same of what is shorter.
    fn rope_by_definition(tree: &Tree, mut lens: Vec<u8>) -> Vec<u8> {
        let mut rope = Vec::new();
        while let Some(top) = lens.iter().copied().reduce(|a, b| tree.common(a, b)) {
            rope.push(top);
            lens.retain(|len| *len < top);
        }
        rope
    }

    proptest! {
        #[test]
        fn ropes_are_as_defined_in_any_order(
            heavy in prop::collection::vec((17..=128_u8, 1..1000_u64), 0..40),
            lens in prop::collection::vec(17..=128_u8, 0..40),
        ) {
            let tree = Tree::new(&weights(&heavy));
            let expected = rope_by_definition(&tree, lens.clone());
            let rope = lens.iter().try_fold(Rope::default(), |rope, len| rope.with(&tree, *len));
            match rope {
                Some(rope) => {
                    let got: Vec<u8> =
                        rope.0.to_le_bytes().into_iter().take_while(|len| *len != 0).collect();
                    prop_assert_eq!(got, expected);
                }
                None => {
                    let longest = (0..lens.len())
                        .map(|n| rope_by_definition(&tree, lens[..=n].to_vec()).len())
                        .max();
                    prop_assert!(longest > Some(8));
                }
            }
        }

        #[test]
        fn every_length_is_there_and_those_that_occur_are_near(
            heavy in prop::collection::vec((17..=128_u8, 1..1_000_000_u64), 0..200),
        ) {
            let tree = Tree::new(&weights(&heavy));
            for len in 17..=128 {
                depth(&tree, len);
                prop_assert_eq!(
                    tree.markers(len).collect::<Vec<_>>(),
                    (17..len).filter(|m| tree.common(*m, len) == *m).collect::<std::collections::BTreeSet<_>>()
                        .into_iter().collect::<Vec<_>>()
                );
            }
            for (len, _) in heavy {
                prop_assert!(depth(&tree, len) <= DEPTH_MAX);
            }
        }
    }
}
