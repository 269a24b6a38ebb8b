//! The trie of a set of patterns with its failure links, level by level (Aho and Corasick: Efficient String Matching, an
//! Aid to Bibliographic Search, CACM 1975, algorithms 2 and 3).
//!
//! A node is a range of the sorted patterns that have a prefix in common. Nodes are made level by level, so that the
//! children of a node are neighbours, sorted by class, and each failure link leads to a smaller number.
//!
//! Anchored patterns have a root of their own, node 1, which only the start of a stream is at. Its nodes fail into the
//! nodes of the other patterns, which are all there is once the anchored ones have failed.
//!
//! Lists of the patterns that end at a node are written where a pattern of its own ends; all other nodes share the list
//! of the node that they fail to. A list has at most as many entries as the node is deep (twice as many with anchored
//! ones), so all lists together have about as many as the patterns have bytes.

use crate::patterns::Pattern;

/// No list.
pub(crate) const NONE: u32 = u32::MAX;

/// The bytes as the tables see them: each byte that is in a pattern is a class of its own, all others are one.
#[derive(Clone)]
pub(crate) struct Classes {
    pub(crate) of: [u8; 256],
    pub(crate) count: usize,
}

impl Classes {
    /// Of the patterns; with `fold`, A–Z belong to the classes of a–z.
    pub(crate) fn new<'a>(patterns: impl Iterator<Item = &'a Pattern>, fold: bool) -> Self {
        let mut used = [false; 256];
        patterns.for_each(|p| p.bytes().iter().for_each(|byte| used[usize::from(*byte)] = true));
        let folded = |byte: usize| match fold {
            true => usize::from((byte as u8).to_ascii_lowercase()),
            false => byte,
        };
        let has_others = (0..256).any(|byte| !used[folded(byte)]);
        let mut of = [0; 256];
        let mut count = usize::from(has_others);
        for byte in 0..256 {
            if used[byte] {
                of[byte] = count as u8;
                count += 1;
            }
        }
        for byte in 0..256 {
            of[byte] = of[folded(byte)];
        }
        Self { of, count: count.max(1) }
    }
}

pub(crate) struct Trie {
    /// Of the last byte on the way to the node.
    pub(crate) class: Vec<u8>,
    /// The first of its children.
    first: Vec<u32>,
    children: Vec<u16>,
    pub(crate) depth: Vec<u16>,
    /// The node of the longest proper suffix; of an anchored node, the longest suffix that is not anchored.
    pub(crate) fail: Vec<u32>,
    /// Where in `lists` the list of the node is, or [`NONE`].
    pub(crate) list: Vec<u32>,
    /// Lists: their number of patterns, then these in order.
    pub(crate) lists: Vec<u32>,
    /// The node of the start of a stream: 1, or 0 where no pattern is anchored.
    pub(crate) start: u32,
    /// Whether the node belongs to the anchored patterns.
    pub(crate) anchored: Vec<bool>,
}

impl Trie {
    /// Of the patterns with these numbers; `None` where it would have more than `nodes_max` nodes.
    pub(crate) fn new(
        patterns: &[Pattern],
        mut numbers: Vec<u32>,
        classes: &Classes,
        nodes_max: usize,
    ) -> Option<Self> {
        let of = |number: &u32| &patterns[*number as usize];
        numbers.sort_unstable_by(|a, b| {
            let key = |number| (of(number).is_anchored(), of(number).bytes());
            key(a).cmp(&key(b))
        });
        let split = numbers.partition_point(|number| !of(number).is_anchored());
        let mut trie = Self {
            class: Vec::new(),
            first: Vec::new(),
            children: Vec::new(),
            depth: Vec::new(),
            fail: Vec::new(),
            list: Vec::new(),
            lists: Vec::new(),
            start: u32::from(split < numbers.len()),
            anchored: Vec::new(),
        };
        let mut ranges = Vec::new();
        let mut own = Vec::new();
        trie.push(0, 0, false);
        ranges.push((0, split));
        if trie.start != 0 {
            trie.push(0, 0, true);
            ranges.push((split, numbers.len()));
        }
        let mut node = 0;
        while node < ranges.len() {
            let (mut low, high) = ranges[node];
            let depth = usize::from(trie.depth[node]);
            trie.first[node] = ranges.len() as u32;
            // The patterns are different, so only one can end here, and a prefix comes first.
            let ends = low < high && of(&numbers[low]).bytes().len() == depth;
            own.push(if ends { numbers[low] } else { NONE });
            low += usize::from(ends);
            while low < high {
                let byte = of(&numbers[low]).bytes()[depth];
                let same = numbers[low..high].iter().take_while(|n| of(n).bytes()[depth] == byte);
                let end = low + same.count();
                if ranges.len() >= nodes_max {
                    return None;
                }
                trie.push(classes.of[usize::from(byte)], depth as u16 + 1, trie.anchored[node]);
                ranges.push((low, end));
                trie.children[node] += 1;
                low = end;
            }
            node += 1;
        }
        drop(ranges);
        trie.link(&own);
        Some(trie)
    }

    fn push(&mut self, class: u8, depth: u16, anchored: bool) {
        self.class.push(class);
        self.first.push(0);
        self.children.push(0);
        self.depth.push(depth);
        self.fail.push(0);
        self.list.push(NONE);
        self.anchored.push(anchored);
    }

    /// Failure links and lists; `own` is the pattern that ends at each node.
    fn link(&mut self, own: &[u32]) {
        for parent in 0..self.len() as u32 {
            for node in self.children(parent) {
                let class = self.class[node as usize];
                let mut suffix = self.fail[parent as usize];
                self.fail[node as usize] = loop {
                    if parent == 0 {
                        break 0;
                    }
                    match self.child(suffix, class) {
                        Some(found) => break found,
                        None if suffix == 0 => break 0,
                        None => suffix = self.fail[suffix as usize],
                    }
                };
                let shared = self.list[self.fail[node as usize] as usize];
                self.list[node as usize] = match own[node as usize] {
                    NONE => shared,
                    number => self.extend(shared, number),
                };
            }
        }
    }

    /// A new list: another one and a pattern in its place.
    fn extend(&mut self, shared: u32, number: u32) -> u32 {
        let at = self.lists.len();
        let range = self.list_range(shared);
        self.lists.push(range.len() as u32 + 1);
        self.lists.extend_from_within(range);
        let place = self.lists[at + 1..].partition_point(|other| *other < number);
        self.lists.insert(at + 1 + place, number);
        at as u32
    }

    fn list_range(&self, list: u32) -> std::ops::Range<usize> {
        match list {
            NONE => 0..0,
            list => {
                let at = list as usize + 1;
                at..at + self.lists[at - 1] as usize
            }
        }
    }

    /// The patterns that end at a node, in order.
    pub(crate) fn list(&self, node: u32) -> &[u32] {
        &self.lists[self.list_range(self.list[node as usize])]
    }

    pub(crate) fn len(&self) -> usize {
        self.class.len()
    }

    pub(crate) fn children(&self, node: u32) -> std::ops::Range<u32> {
        let first = self.first[node as usize];
        first..first + u32::from(self.children[node as usize])
    }

    /// The classes of its children, sorted.
    pub(crate) fn classes(&self, node: u32) -> &[u8] {
        let range = self.children(node);
        &self.class[range.start as usize..range.end as usize]
    }

    pub(crate) fn child(&self, node: u32, class: u8) -> Option<u32> {
        let at = self.classes(node).binary_search(&class).ok()?;
        Some(self.first[node as usize] + at as u32)
    }
}
