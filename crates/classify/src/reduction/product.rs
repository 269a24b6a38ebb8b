//! Equivalence classes of pairs of addresses, and the rules of each.
//!
//! The rules of a pair of nodes `(P, Q)` of the two trees are those whose source is `P` or above and whose
//! destination is `Q` or above. For a row (one `P`), let the *group* of `Q` be the rules with just that destination.
//! Then
//!
//! ```text
//! group(P, Q) = group(above P, Q) + rules of just (P, Q)
//! rules(P, Q) = rules(P, above Q) + group(P, Q)
//! ```
//!
//! and both are copies wherever nothing is added. What is added is found again by the pair of a class and a group:
//! equal sets of rules are taken apart in the same way, so each gets one number.
//!
//! **Trimmed lists.** A rule that a better one of the list covers is never the answer there and is left out.
//! Classes that differ in such rules only are one.

use std::collections::HashMap;
use std::rc::Rc;

use super::fields::{Fields, Tail};
use super::nest::{NOTHING, Nest};
use crate::rule::RuleError;

/// Lists of rules, best first, each once.
#[derive(Debug, Default)]
struct Lists {
    lists: Vec<Rc<[u32]>>,
    numbers: HashMap<Rc<[u32]>, u32>,
    /// Memory, bytes.
    bytes: u64,
}

impl Lists {
    fn number(&mut self, list: Vec<u32>) -> u32 {
        if let Some(number) = self.numbers.get(list.as_slice()) {
            return *number;
        }
        let number = self.lists.len() as u32;
        self.bytes += 4 * list.len() as u64 + 64;
        let list: Rc<[u32]> = list.into();
        self.lists.push(list.clone());
        self.numbers.insert(list, number);
        number
    }
}

/// One node's row over the other tree's nodes.
#[derive(Debug, Default)]
struct Row {
    node: u32,
    groups: Vec<u32>,
    cells: Vec<u32>,
}

/// All classes of pairs.
#[derive(Debug)]
pub(crate) struct Product<'a> {
    src: &'a Nest,
    dst: &'a Nest,
    fields: &'a Fields,
    /// Node of the source, node of the destination, rule; in order.
    rules: Vec<(u32, u32, u32)>,
    groups: Lists,
    classes: Lists,
    /// The class of a class and a group.
    sums: HashMap<(u32, u32), u32>,
    /// The number under which each class is seen; [`NOTHING`] if none.
    seen: Vec<u32>,
    /// Classes in the order in which they were seen.
    order: Vec<u32>,
}

impl<'a> Product<'a> {
    pub(crate) fn new(fields: &'a Fields, src: &'a Nest, dst: &'a Nest) -> Self {
        let nodes = fields
            .rules
            .iter()
            .map(|rule| (src.nodes[rule.src as usize], dst.nodes[rule.dst as usize]));
        let mut rules: Vec<_> =
            (0..).zip(nodes).map(|(rule, (src, dst))| (src, dst, rule)).collect();
        rules.sort_unstable();
        let (mut groups, mut classes) = (Lists::default(), Lists::default());
        // Number 0 is the empty one of both.
        groups.number(Vec::new());
        classes.number(Vec::new());
        let (sums, seen, order) = (HashMap::new(), Vec::new(), Vec::new());
        Self { src, dst, fields, rules, groups, classes, sums, seen, order }
    }

    /// Rows and columns together.
    pub(crate) fn cells(&self) -> u64 {
        self.src.len() as u64 * self.dst.len() as u64
    }

    /// Classes that were seen.
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// Rules of a class, best first.
    pub(crate) fn list(&self, class: usize) -> &[u32] {
        &self.classes.lists[self.order[class] as usize]
    }

    /// Memory of all lists, bytes.
    pub(crate) fn len_bytes(&self) -> u64 {
        self.groups.bytes + self.classes.bytes
    }

    /// Finds all classes, row by row; after each row `check` may end it.
    pub(crate) fn find(
        &mut self,
        check: impl Fn(&Self) -> Result<(), RuleError>,
    ) -> Result<(), RuleError> {
        self.each_node(|product, row| {
            if product.src.classes[row.node as usize] != NOTHING {
                product.see(row);
            }
            check(product)
        })
    }

    /// Sees which classes a row has.
    fn see(&mut self, row: &Row) {
        self.seen.resize(self.classes.lists.len(), NOTHING);
        for node in &self.dst.class_nodes {
            let class = row.cells[*node as usize];
            let number = &mut self.seen[class as usize];
            if *number == NOTHING {
                *number = self.order.len() as u32;
                self.order.push(class);
            }
        }
    }

    /// The table, after [`Product::find`]: for each row its number and its entries. Rows come in any order.
    pub(crate) fn each_row(
        &mut self,
        mut emit: impl FnMut(usize, &[u32]) -> Result<(), RuleError>,
    ) -> Result<(), RuleError> {
        let mut cells = vec![0; self.dst.len()];
        self.each_node(|product, row| {
            let number = product.src.classes[row.node as usize];
            if number != NOTHING {
                for (cell, node) in cells.iter_mut().zip(&product.dst.class_nodes) {
                    *cell = product.seen[row.cells[*node as usize] as usize];
                }
                emit(number as usize, &cells)?;
            }
            Ok(())
        })
    }

    fn each_node(
        &mut self,
        mut each: impl FnMut(&mut Self, &Row) -> Result<(), RuleError>,
    ) -> Result<(), RuleError> {
        let width = self.dst.parents.len();
        let mut open: Vec<Row> = Vec::new();
        let mut spare: Vec<Row> = Vec::new();
        let mut next = 0;
        for (node, parent) in (0..).zip(&self.src.parents) {
            while open.last().is_some_and(|row| row.node != *parent) {
                spare.extend(open.pop());
            }
            let mut row = spare.pop().unwrap_or_default();
            row.node = node;
            row.groups.clear();
            row.cells.clear();
            match open.last() {
                Some(above) => {
                    row.groups.extend_from_slice(&above.groups);
                    row.cells.extend_from_slice(&above.cells);
                }
                None => {
                    row.groups.resize(width, 0);
                    row.cells.resize(width, 0);
                }
            }
            let end = next + self.rules[next..].partition_point(|(src, ..)| *src == node);
            self.add(&mut row, next..end);
            next = end;
            each(self, &row)?;
            open.push(row);
        }
        Ok(())
    }

    /// Adds rules of just this row's source.
    fn add(&mut self, row: &mut Row, rules: std::ops::Range<usize>) {
        // Nodes below this one are done.
        let mut done = 0;
        let mut at = rules.start;
        let mut changed = Vec::new();
        while at < rules.end {
            let dst = self.rules[at].1;
            let end = at + self.rules[at..rules.end].partition_point(|(_, to, _)| *to == dst);
            let group = &mut row.groups[dst as usize];
            let before = &self.groups.lists[*group as usize];
            let mut list = before.to_vec();
            list.extend(self.rules[at..end].iter().map(|(.., rule)| rule));
            list.sort_unstable();
            *group = self.groups.number(list);
            changed.push(dst);
            at = end;
        }
        for dst in changed {
            if dst < done {
                continue;
            }
            done = self.dst.ends[dst as usize];
            for node in dst..done {
                let above = self.dst.parents[node as usize];
                let above = if above == NOTHING { 0 } else { row.cells[above as usize] };
                row.cells[node as usize] = match row.groups[node as usize] {
                    0 => above,
                    group => self.sum(above, group),
                };
            }
        }
    }

    fn sum(&mut self, class: u32, group: u32) -> u32 {
        if let Some(sum) = self.sums.get(&(class, group)) {
            return *sum;
        }
        let list =
            self.trimmed(&self.classes.lists[class as usize], &self.groups.lists[group as usize]);
        let sum = self.classes.number(list);
        self.sums.insert((class, group), sum);
        sum
    }

    /// Two lists together, without what is covered; in the first one nothing is.
    fn trimmed(&self, old: &[u32], new: &[u32]) -> Vec<u32> {
        let tail = |rule: u32| -> &Tail {
            &self.fields.tails[self.fields.rules[rule as usize].tail as usize]
        };
        let (mut old, mut new) = (old, new);
        let mut list: Vec<u32> = Vec::with_capacity(old.len() + new.len());
        // Of those in the list, the ones from `new`.
        let mut fresh: Vec<u32> = Vec::new();
        loop {
            let rest = match (old, new) {
                ([], []) => return list,
                ([a, ..], [b, ..]) if a < b => &mut old,
                (_, [_, ..]) => {
                    let rule = new[0];
                    new = &new[1..];
                    if !list.iter().any(|better| tail(*better).covers(tail(rule))) {
                        list.push(rule);
                        fresh.push(rule);
                        if tail(rule).is_any() {
                            return list;
                        }
                    }
                    continue;
                }
                _ => &mut old,
            };
            let rule = rest[0];
            *rest = &rest[1..];
            if !fresh.iter().any(|better| tail(*better).covers(tail(rule))) {
                list.push(rule);
            }
        }
    }
}
