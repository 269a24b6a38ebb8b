//! From rules to trees: who goes where.

use std::collections::HashMap;

use super::builder::Copies;
use super::choose::{Limits, choose};
use super::columns::{Entry, Row, Ternary};
use super::layout::*;

/// Lengths from which on an address is long.
const LONG: u32 = 8;

/// Rules on which the ways to part a set are tried.
const SAMPLE: usize = 2048;

/// Sets of so many rules have a second level of nodes.
const LEVELS_RULES: usize = 32 << 10;

/// How a level is cut.
#[derive(Debug, Clone, Copy)]
struct Level {
    /// Bits at most.
    bits: u32,
    /// Cells for each cell's worth of rules: rules are not spread evenly.
    spread: usize,
    /// Rules of a cell that needs no further cut.
    enough: usize,
    /// Copies of each rule at most, on an average, and so many more in all: small sets may be copied often.
    copies: usize,
    free: usize,
}

/// How trees are made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Effort {
    /// The first cut of a tree, the last one before leaves, and where there are three the one between.
    first: Level,
    last: Level,
    middle: Level,
    /// What a tree costs, in blocks.
    tree_cost: f64,
    /// What a copy of each rule costs, in blocks: memory, and changes.
    copy_cost: f64,
}

impl Effort {
    pub(super) const fn of(copies: Copies) -> Self {
        let first = Level { bits: 14, spread: 1, enough: 16, copies: 3, free: 0 };
        let middle = Level { bits: 8, spread: 2, enough: 3 * LANES, copies: 3, free: 0 };
        let last = Level { bits: 8, spread: 16, enough: LANES, copies: 6, free: 2 * LANES };
        match copies {
            Copies::Few => Self { first, last, middle, tree_cost: 1.4, copy_cost: 0.15 },
            Copies::Fewest => {
                let (first, last) = (Level { copies: 2, ..first }, Level { copies: 3, ..last });
                Self { first, last, middle, tree_cost: 1.4, copy_cost: 0.5 }
            }
            Copies::Many => {
                let last = Level { bits: 10, spread: 64, copies: 16, ..last };
                Self { first, last, middle, tree_cost: 1.4, copy_cost: 0.02 }
            }
        }
    }
}

/// A node.
#[derive(Debug, Clone, Default)]
pub(super) struct NodePlan {
    pub(super) bits: Bits,
    /// Bits that have been cut at on the way to its kids.
    pub(super) region: Bits,
    pub(super) kids: Kids,
}

/// What is below a node.
#[derive(Debug, Clone)]
pub(super) enum Kids {
    Nodes(Vec<NodePlan>),
    /// For each cell the number of a leaf, and the rules of each leaf, the best first: numbers of entries.
    Cells(Vec<u32>, Vec<Vec<u32>>),
}

impl Default for Kids {
    /// One cell, of a leaf without rules.
    fn default() -> Self {
        Self::Cells(vec![0], vec![Vec::new()])
    }
}

/// A node without rules, `levels` of nodes above its cells.
pub(super) fn empty(levels: usize) -> NodePlan {
    let nodes = |_| NodePlan { kids: Kids::Nodes(vec![empty(levels - 1)]), ..NodePlan::default() };
    levels.checked_sub(1).map_or_else(NodePlan::default, nodes)
}

/// Which of the four parts a rule is in.
pub(super) fn part<R: Row>(entry: &Entry<R>) -> usize {
    let [src, dst] = entry.lens();
    usize::from(src >= LONG) | usize::from(dst >= LONG) << 1
}

/// The ways to join four parts to trees: for each part the number of its tree.
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

/// The parts of each tree of a way, a bit each.
fn trees_of(way: &[usize; 4]) -> impl Iterator<Item = usize> {
    let tree = |number: usize| (0..4).filter(|at| way[*at] == number).map(|at| 1 << at).sum();
    (0..4).map(tree).filter(|parts| *parts != 0)
}

/// Levels of nodes that trees of so many rules have.
pub(super) fn levels(rules: usize) -> usize {
    if rules >= LEVELS_RULES { 2 } else { 1 }
}

/// The trees of a set.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) trees: Vec<NodePlan>,
    /// The tree of each entry.
    pub(super) numbers: Vec<u8>,
    /// The tree of each part, where it has one.
    pub(super) parts: [Option<u8>; 4],
}

/// The trees of a set whose entries are in order.
pub(super) fn plan<R: Row>(entries: &[Entry<R>], effort: &Effort) -> Plan {
    let levels = levels(entries.len());
    let step = entries.len().div_ceil(SAMPLE).max(1);
    let sample: Vec<Entry<R>> = entries.iter().step_by(step).copied().collect();
    let of = |entries: &[Entry<R>], parts: usize| -> Vec<u32> {
        let numbers = 0..entries.len() as u32;
        numbers.filter(|at| parts >> part(&entries[*at as usize]) & 1 != 0).collect()
    };
    // Some ways have trees in common.
    let mut known: HashMap<usize, f64> = HashMap::new();
    let costs = WAYS.map(|way| {
        let cost = |parts| {
            *known
                .entry(parts)
                .or_insert_with(|| cost(&sample, &of(&sample, parts), levels, effort, step))
        };
        trees_of(&way).map(cost).sum::<f64>()
    });
    let best = (0..WAYS.len()).min_by(|a, b| costs[*a].total_cmp(&costs[*b])).unwrap_or(0);
    let mut plan = Plan { trees: Vec::new(), numbers: vec![0; entries.len()], parts: [None; 4] };
    for parts in trees_of(&WAYS[best]) {
        let rules = of(entries, parts);
        if rules.is_empty() {
            continue;
        }
        let number = plan.trees.len() as u8;
        rules.iter().for_each(|rule| plan.numbers[*rule as usize] = number);
        let mine = (0..4).filter(|part| parts >> part & 1 != 0);
        mine.for_each(|part| plan.parts[part] = Some(number));
        plan.trees.push(tree(entries, &rules, levels, effort, 1));
    }
    plan
}

/// What a tree of these rules costs, in blocks that a header of one of them meets, where each stands for `scale` of
/// them; nothing without rules.
fn cost<R: Row>(
    entries: &[Entry<R>],
    rules: &[u32],
    levels: usize,
    effort: &Effort,
    scale: usize,
) -> f64 {
    if rules.is_empty() {
        return 0.0;
    }
    // A rule's headers are spread over its leaves evenly: their number, and their blocks.
    let mut met = vec![(0.0_f64, 0.0_f64); entries.len()];
    let mut nodes = vec![tree(entries, rules, levels, effort, scale)];
    while let Some(node) = nodes.pop() {
        match node.kids {
            Kids::Nodes(below) => nodes.extend(below),
            Kids::Cells(cells, leaves) => {
                for leaf in cells.iter().map(|cell| &leaves[*cell as usize]) {
                    let seen = visible(entries, leaf, &node.region).len();
                    let blocks = (seen * scale).div_ceil(LANES).max(1) as f64;
                    for rule in leaf {
                        let (count, sum) = &mut met[*rule as usize];
                        (*count, *sum) = (*count + 1.0, *sum + blocks);
                    }
                }
            }
        }
    }
    let costs = met.iter().map(|(count, sum)| sum / count.max(1.0) + effort.copy_cost * count);
    effort.tree_cost + costs.sum::<f64>() / rules.len() as f64
}

/// The rules of a place that no better one there covers.
pub(super) fn visible<R: Row>(entries: &[Entry<R>], rules: &[u32], region: &Bits) -> Vec<u32> {
    let mut kept: Vec<u32> = Vec::with_capacity(rules.len());
    for rule in rules {
        let entry = &entries[*rule as usize];
        if !kept.iter().any(|better| entries[*better as usize].covers(entry, region)) {
            kept.push(*rule);
        }
    }
    kept
}

/// A tree over some entries, each of which stands for `scale` of them.
fn tree<R: Row>(
    entries: &[Entry<R>],
    rules: &[u32],
    levels: usize,
    effort: &Effort,
    scale: usize,
) -> NodePlan {
    node(entries, rules, &[0, 0], levels, effort, scale)
}

/// A last node over some entries that were cut at the bits of `region`.
pub(super) fn last_node<R: Row>(
    entries: &[Entry<R>],
    rules: &[u32],
    region: &Bits,
    effort: &Effort,
) -> NodePlan {
    node(entries, rules, region, 0, effort, 1)
}

fn node<R: Row>(
    entries: &[Entry<R>],
    rules: &[u32],
    region: &Bits,
    levels: usize,
    effort: &Effort,
    scale: usize,
) -> NodePlan {
    let level = match levels {
        0 => effort.last,
        _ if *region == [0, 0] => effort.first,
        _ => effort.middle,
    };
    // So many that the search among all of them would take long are not looked through.
    let seen = match rules.len() <= SAMPLE {
        true => visible(entries, rules, region),
        false => rules.to_vec(),
    };
    let step = seen.len().div_ceil(SAMPLE).max(1);
    let sample: Vec<Ternary> =
        seen.iter().step_by(step).map(|rule| entries[*rule as usize].ternary).collect();
    let limits = Limits {
        bits: (level.spread * sample.len() * step * scale / level.enough)
            .max(1)
            .ilog2()
            .min(level.bits),
        enough: (level.enough / (step * scale)).max(1) as u32,
        copies: level.copies * sample.len() + level.free,
    };
    let bits = choose(&sample, limits);
    let region = [region[0] | bits[0], region[1] | bits[1]];
    let cells = share(entries, rules, &bits);
    let kids = match levels {
        0 => {
            let mut leaves: Vec<Vec<u32>> = Vec::new();
            let mut numbers: HashMap<Vec<u32>, u32> = HashMap::new();
            let cells = cells.into_iter().map(|rules| {
                *numbers.entry(rules).or_insert_with_key(|rules| {
                    leaves.push(rules.clone());
                    leaves.len() as u32 - 1
                })
            });
            Kids::Cells(cells.collect(), leaves)
        }
        _ => {
            let kid = |rules: &Vec<u32>| match rules.is_empty() {
                true => empty(levels - 1),
                false => node(entries, rules, &region, levels - 1, effort, scale),
            };
            Kids::Nodes(cells.iter().map(kid).collect())
        }
    };
    NodePlan { bits, region, kids }
}

/// The rules of each cell.
fn share<R: Row>(entries: &[Entry<R>], rules: &[u32], bits: &Bits) -> Vec<Vec<u32>> {
    let count = bits[0].count_ones() + bits[1].count_ones();
    let mut cells = vec![Vec::new(); 1 << count];
    for rule in rules {
        entries[*rule as usize].ternary.cells(bits).for_each(|cell| cells[cell].push(*rule));
    }
    cells
}
