//! Equivalence classes of prefixes: the nodes of their tree.

use super::fields::Prefix;

/// No node above, or no class.
pub(crate) const NOTHING: u32 = u32::MAX;

/// A tree of prefixes over the numbers of some bits. Node 0 is above all others and may be no prefix of the
/// rules; nodes are in preorder.
#[derive(Debug)]
pub(crate) struct Nest {
    /// The node above each.
    pub(crate) parents: Vec<u32>,
    /// The node behind the last one below each.
    pub(crate) ends: Vec<u32>,
    /// The node of each prefix that was given.
    pub(crate) nodes: Vec<u32>,
    /// Where the numbers of which node begin, in order.
    segments: Vec<(u32, u32)>,
    /// The class of each node; [`NOTHING`] where all its numbers are of nodes below it.
    pub(crate) classes: Vec<u32>,
    /// The node of each class.
    pub(crate) class_nodes: Vec<u32>,
    /// A number of each class.
    samples: Vec<u32>,
}

impl Nest {
    /// The tree of prefixes of numbers of `bits` bits, in any order, perhaps more than once.
    pub(crate) fn new(prefixes: impl Iterator<Item = Prefix>, bits: u8) -> Self {
        let given: Vec<Prefix> = prefixes.collect();
        let mut sorted = given.clone();
        sorted.push((0, 0));
        sorted.sort_unstable();
        sorted.dedup();
        let nodes = given.iter().map(|p| sorted.partition_point(|q| q < p) as u32).collect();
        let mut nest = Self {
            parents: Vec::with_capacity(sorted.len()),
            ends: vec![sorted.len() as u32; sorted.len()],
            nodes,
            segments: Vec::new(),
            classes: vec![NOTHING; sorted.len()],
            class_nodes: Vec::new(),
            samples: Vec::new(),
        };
        // Nodes around the place, and their last numbers.
        let mut open: Vec<(u32, u64)> = Vec::new();
        let mut next = 0_u64;
        for (node, (value, len)) in sorted.iter().enumerate() {
            let first = u64::from(*value);
            nest.close(&mut open, &mut next, first, node as u32);
            if let Some((around, _)) = open.last()
                && next < first
            {
                nest.segments.push((next as u32, *around));
            }
            next = first;
            nest.parents.push(open.last().map_or(NOTHING, |(around, _)| *around));
            open.push((node as u32, first + (1_u64 << (bits - len)) - 1));
        }
        nest.close(&mut open, &mut next, u64::MAX, sorted.len() as u32);
        for (first, node) in &nest.segments {
            let class = &mut nest.classes[*node as usize];
            if *class == NOTHING {
                *class = nest.samples.len() as u32;
                nest.samples.push(*first);
                nest.class_nodes.push(*node);
            }
        }
        nest
    }

    /// Leaves the nodes that end before `first`.
    fn close(&mut self, open: &mut Vec<(u32, u64)>, next: &mut u64, first: u64, node: u32) {
        while let Some((inner, last)) = open.last().copied()
            && last < first
        {
            if *next <= last {
                self.segments.push((*next as u32, inner));
                *next = last + 1;
            }
            self.ends[inner as usize] = node;
            open.pop();
        }
    }

    /// Classes.
    pub(crate) fn len(&self) -> usize {
        self.samples.len()
    }

    /// The class of every number, in order: for trees of few bits.
    pub(crate) fn each(&self, numbers: usize) -> impl Iterator<Item = u32> {
        let ends = self.segments.iter().skip(1).map(|(first, _)| *first as usize);
        let spans = self.segments.iter().zip(ends.chain([numbers]));
        spans.flat_map(|((first, node), end)| {
            std::iter::repeat_n(self.classes[*node as usize], end - *first as usize)
        })
    }
}

/// The trees of an address: whole, and in two halves.
#[derive(Debug)]
pub(crate) struct Address {
    pub(crate) whole: Nest,
    pub(crate) high: Nest,
    pub(crate) low: Nest,
}

impl Address {
    pub(crate) fn new(prefixes: &[Prefix]) -> Self {
        let high = prefixes.iter().map(|(value, len)| (value >> 16, (*len).min(16)));
        let low = prefixes.iter().filter(|(_, len)| *len > 16);
        let low = low.map(|(value, len)| (value & 0xffff, len - 16));
        Self {
            whole: Nest::new(prefixes.iter().copied(), 32),
            high: Nest::new(high, 16),
            low: Nest::new(low, 16),
        }
    }

    /// The table that puts the halves together, row by row.
    pub(crate) fn each_row(&self, mut row: impl FnMut(usize, &[u32])) {
        let Nest { segments, classes, .. } = &self.whole;
        let class = |segment: &(u32, u32)| classes[segment.1 as usize];
        let mut cells = vec![0; self.low.len()];
        for (number, high) in self.high.samples.iter().enumerate() {
            let (first, last) = (high << 16, high << 16 | 0xffff);
            // The segment that `first` is in, up to the one that `last` is in.
            let begin = segments.partition_point(|(start, _)| *start <= first) - 1;
            let end = segments.partition_point(|(start, _)| *start <= last);
            let inside = &segments[begin..end];
            if let [only] = inside {
                cells.fill(class(only));
            } else {
                for (cell, low) in cells.iter_mut().zip(&self.low.samples) {
                    let address = first | low;
                    let at = inside.partition_point(|(start, _)| *start <= address) - 1;
                    *cell = class(&inside[at]);
                }
            }
            row(number, &cells);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chunk::hash::fmix32;

    /// The longest of the prefixes around a number.
    fn longest(prefixes: &[Prefix], bits: u8, number: u32) -> Option<Prefix> {
        let inside = |p: &&Prefix| u64::from(number ^ p.0) >> (bits - p.1) == 0;
        prefixes.iter().filter(inside).max_by_key(|p| p.1).copied()
    }

    fn some(count: u32, bits: u8, seed: u32) -> Vec<Prefix> {
        let of = |at| {
            let x = fmix32(seed * 1000 + at);
            // Few different bits, so that they nest; sometimes all numbers of a node are below it.
            let len = (x % (u32::from(bits) + 1)) as u8;
            let value = (fmix32(x) & 0x8181_0003).wrapping_mul(1 + (x >> 8 & 1));
            let value = if bits == 32 { value } else { value & ((1 << bits) - 1) };
            (value & !(((1_u64 << (bits - len)) - 1) as u32), len)
        };
        let mut prefixes: Vec<Prefix> = (0..count).map(of).collect();
        if seed.is_multiple_of(3) {
            prefixes.extend([(0, 1), (1 << (bits - 1), 1)]);
        }
        prefixes
    }

    #[test]
    fn classes_are_longest_prefixes() {
        for seed in 0..40 {
            let prefixes = some(seed * 2, 8, seed);
            let nest = Nest::new(prefixes.iter().copied(), 8);
            let classes: Vec<u32> = nest.each(256).collect();
            assert_eq!(classes.len(), 256);
            for (number, class) in (0..).zip(&classes) {
                let node = nest.class_nodes[*class as usize];
                match longest(&prefixes, 8, number) {
                    Some(prefix) => {
                        let at = prefixes.iter().position(|p| *p == prefix).unwrap();
                        assert_eq!(nest.nodes[at], node);
                    }
                    None => assert_eq!(node, 0),
                }
            }
            for (node, parent) in (0..).zip(&nest.parents) {
                assert!(*parent == NOTHING && node == 0 || *parent < node);
                let below = |mut at: u32| {
                    while at > node && at != NOTHING {
                        at = nest.parents[at as usize];
                    }
                    at == node
                };
                let found: Vec<u32> =
                    (0..nest.parents.len() as u32).filter(|n| below(*n)).collect();
                assert!(found.iter().copied().eq(node..nest.ends[node as usize]));
            }
        }
    }

    #[test]
    fn halves_come_together() {
        for seed in 0..20 {
            let prefixes = some(seed * 3, 32, seed);
            let address = Address::new(&prefixes);
            let mut rows = Vec::new();
            address.each_row(|number, row| {
                assert_eq!(number, rows.len());
                rows.push(row.to_vec());
            });
            assert_eq!(rows.len(), address.high.len());
            assert!(rows.iter().all(|row| row.len() == address.low.len()));
            let high: Vec<u32> = address.high.each(65536).collect();
            let low: Vec<u32> = address.low.each(65536).collect();
            let ends = prefixes.iter().flat_map(|p| {
                let span = ((1_u64 << (32 - p.1)) - 1) as u32;
                [p.0, p.0 | span, p.0.wrapping_sub(1), (p.0 | span).wrapping_add(1)]
            });
            for number in ends.chain((0..200).map(fmix32)).chain([0, u32::MAX]) {
                let row = &rows[high[number as usize >> 16] as usize];
                let class = row[low[number as usize & 0xffff] as usize];
                let node = address.whole.class_nodes[class as usize];
                let expected = longest(&prefixes, 32, number).map_or(0, |prefix| {
                    let at = prefixes.iter().position(|p| *p == prefix).unwrap();
                    address.whole.nodes[at]
                });
                assert_eq!(node, expected, "{number:x}");
            }
        }
    }
}
