//! From rules to trees: who goes where.

use std::collections::HashMap;

use super::choose::{Limits, choose};
use super::columns::{Columns, Ternary};
use super::layout::*;

/// Lengths from which on an address is long.
const LONG: u32 = 14;

/// Rules on which the ways to part a set are tried.
const SAMPLE: usize = 4096;

/// Rules that a node of the first cut has about.
const NODE_RULES: usize = 24;

/// Bits of the first cut at most.
const ROOT_BITS: u32 = 14;

/// Bits of a node at most.
const NODE_BITS: u32 = 8;

/// What a tree costs, and a block more in it: in units of a block.
const TREE_COST: f64 = 1.4;

/// A rule, with what cuts see of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) columns: Columns,
    pub(super) ternary: Ternary,
}

impl Entry {
    pub(super) fn new(columns: Columns) -> Self {
        Self { columns, ternary: columns.ternary() }
    }
}

/// A node: its bits, and for each cell the number of a leaf.
#[derive(Debug, Clone, Default)]
pub(super) struct NodePlan {
    pub(super) bits: Bits,
    pub(super) cells: Vec<u32>,
    /// Rules of each leaf, the best first: numbers of entries.
    pub(super) leaves: Vec<Vec<u32>>,
}

/// A tree.
#[derive(Debug, Clone, Default)]
pub(super) struct TreePlan {
    pub(super) bits: Bits,
    pub(super) nodes: Vec<NodePlan>,
}

/// Which of the four parts a rule is in.
fn part(entry: &Entry) -> usize {
    let [src, dst] = entry.columns.lens();
    usize::from(src >= LONG) | usize::from(dst >= LONG) << 1
}

/// The ways to join four parts: for each part the number of its tree.
const WAYS: [[usize; 4]; 15] = [
    [0, 0, 0, 0],
    [0, 0, 0, 1],
    [0, 0, 1, 0],
    [0, 1, 0, 0],
    [1, 0, 0, 0],
    [0, 0, 1, 1],
    [0, 1, 0, 1],
    [0, 1, 1, 0],
    [0, 0, 1, 2],
    [0, 1, 0, 2],
    [0, 1, 1, 2],
    [0, 1, 2, 0],
    [0, 1, 2, 1],
    [0, 1, 2, 2],
    [0, 1, 2, 3],
];

/// The trees of a set whose entries are in order, and the tree of each entry.
pub(super) fn plan(entries: &[Entry]) -> (Vec<TreePlan>, Vec<u8>) {
    let step = entries.len().div_ceil(SAMPLE).max(1);
    let sample: Vec<&Entry> = entries.iter().step_by(step).collect();
    // Some ways have trees in common.
    let mut known: HashMap<usize, f64> = HashMap::new();
    let mut cost_of = |parts: usize| {
        *known.entry(parts).or_insert_with(|| {
            let of_tree = sample.iter().filter(|entry| parts >> part(entry) & 1 != 0);
            cost(&of_tree.map(|entry| **entry).collect::<Vec<_>>())
        })
    };
    let costs = WAYS.map(|way| {
        let tree = |number: usize| (0..4).filter(|at| way[*at] == number).map(|at| 1 << at).sum();
        (0..4).map(tree).map(&mut cost_of).sum::<f64>()
    });
    let best = (0..WAYS.len()).min_by(|a, b| costs[*a].total_cmp(&costs[*b])).unwrap_or(0);
    let mut numbers: Vec<usize> = entries.iter().map(|entry| WAYS[best][part(entry)]).collect();
    // Without gaps.
    let mut used: Vec<usize> = numbers.clone();
    used.sort_unstable();
    used.dedup();
    numbers.iter_mut().for_each(|n| *n = used.partition_point(|used| used < n));
    let trees = (0..used.len()).map(|number| {
        let of_tree = (0..entries.len() as u32).filter(|at| numbers[*at as usize] == number);
        tree(entries, &of_tree.collect::<Vec<_>>())
    });
    (trees.collect(), numbers.into_iter().map(|number| number as u8).collect())
}

/// What a tree of these rules costs, in blocks that a header of one of them meets; nothing without rules.
fn cost(entries: &[Entry]) -> f64 {
    if entries.is_empty() {
        return 0.0;
    }
    let all: Vec<u32> = (0..entries.len() as u32).collect();
    let tree = tree(entries, &all);
    // A rule's headers are spread over its leaves evenly.
    let mut weights = vec![(0.0_f64, 0.0_f64); entries.len()];
    for node in &tree.nodes {
        for leaf in node.cells.iter().map(|cell| &node.leaves[*cell as usize]) {
            let blocks = leaf.len().div_ceil(LANES).max(1) as f64;
            for rule in leaf {
                let (count, sum) = &mut weights[*rule as usize];
                (*count, *sum) = (*count + 1.0, *sum + blocks);
            }
        }
    }
    let blocks: f64 = weights.iter().map(|(count, sum)| sum / count.max(1.0)).sum();
    TREE_COST + blocks / entries.len() as f64
}

/// A tree over some entries.
fn tree(entries: &[Entry], rules: &[u32]) -> TreePlan {
    let wanted = rules.len().div_ceil(NODE_RULES).next_power_of_two().ilog2();
    let limits = Limits {
        bits: wanted.min(ROOT_BITS),
        enough: NODE_RULES as u32 / 2,
        copies: rules.len().min(SAMPLE) * 3,
    };
    let step = rules.len().div_ceil(SAMPLE).max(1);
    let sample: Vec<Ternary> =
        rules.iter().step_by(step).map(|rule| entries[*rule as usize].ternary).collect();
    // Of a sample a cell has the less.
    let enough = (limits.enough / step as u32).max(1);
    let bits = choose(&sample, Limits { enough, ..limits });
    let nodes = share(entries, rules, &bits);
    TreePlan { bits, nodes: nodes.iter().map(|rules| node(entries, rules)).collect() }
}

/// The rules of each cell.
fn share(entries: &[Entry], rules: &[u32], bits: &Bits) -> Vec<Vec<u32>> {
    let count = bits[0].count_ones() + bits[1].count_ones();
    let mut cells = vec![Vec::new(); 1 << count];
    for rule in rules {
        entries[*rule as usize].ternary.cells(bits).for_each(|cell| cells[cell].push(*rule));
    }
    cells
}

/// A node over some entries.
pub(super) fn node(entries: &[Entry], rules: &[u32]) -> NodePlan {
    let limits =
        Limits { bits: NODE_BITS, enough: LANES as u32, copies: 4 * rules.len() + 2 * LANES };
    let ternaries: Vec<Ternary> =
        rules.iter().map(|rule| entries[*rule as usize].ternary).collect();
    let bits = choose(&ternaries, limits);
    let mut leaves: Vec<Vec<u32>> = Vec::new();
    let mut numbers: HashMap<Vec<u32>, u32> = HashMap::new();
    let cells = share(entries, rules, &bits).into_iter().map(|rules| {
        *numbers.entry(rules).or_insert_with_key(|rules| {
            leaves.push(rules.clone());
            leaves.len() as u32 - 1
        })
    });
    let cells = cells.collect();
    NodePlan { bits, cells, leaves }
}
