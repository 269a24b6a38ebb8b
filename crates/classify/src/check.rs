//! What is odd about a set: rules that can never match, and rules that could be left out.
//!
//! - A rule is *shadowed* when a better one matches every header that it matches. It never counts. (A rule
//!   that only several better ones together cover never counts either; finding those takes time that grows
//!   with every overlap, and is not done.)
//! - A rule is *redundant* when leaving it out changes nothing: a worse rule with the same action covers it, and
//!   no rule between the two with another action overlaps it. A shadowed rule is reported as shadowed only.
//!
//! Covering rules are found as tuple search finds entries: a rule's masks say in which classes a rule that covers
//! it may be, and its values where in them. Ranges are compared, they make no entries here.
//!
//! Time is about `rules × classes`, and for redundant rules `rules × distance` to the covering one, which
//! is bounded by [`DISTANCE_MAX`].

use std::collections::HashMap;

use crate::rule::RuleSet;

/// Rules between a rule and the worse one that covers it: beyond so many, redundancy is not looked for.
pub const DISTANCE_MAX: usize = 20_000;

/// One finding. Numbers are indices of the set, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Warning {
    /// `rule` never counts, because `by` is better and covers it.
    Shadowed {
        /// The rule.
        rule: u32,
        /// The best rule that covers it.
        by: u32,
        /// Whether both match the same headers.
        same: bool,
    },
    /// `rule` is redundant: the later rule `by` does the same for its headers.
    Redundant {
        /// The rule.
        rule: u32,
        /// The worse rule that covers it.
        by: u32,
    },
}

impl Warning {
    /// The rule that it is about.
    pub fn rule(&self) -> u32 {
        match self {
            Self::Shadowed { rule, .. } | Self::Redundant { rule, .. } => *rule,
        }
    }
}

/// All findings, by rule. `actions` are those of the rules by index, as numbers; where there is none for a rule
/// it is taken to be unlike every other, so without actions only shadowed rules are found.
pub fn check(set: &RuleSet, actions: &[u32]) -> Vec<Warning> {
    let ranked = set.ranked();
    let classes = classes(set, &ranked);
    let width = set.schema().words();
    let mut value = vec![0; width];
    let mut warnings = Vec::new();
    for (rank, index) in ranked.iter().enumerate() {
        let rule = set.rule(*index as usize).words;
        // Of the ranks that cover this one: the first, and the next one behind with the same action.
        let (mut first, mut behind) = (usize::MAX, usize::MAX);
        for (mask, ranks) in &classes {
            if mask.iter().zip(&rule[width..]).any(|(mask, own)| mask & !own != 0) {
                continue;
            }
            let masked = value.iter_mut().zip(mask).zip(rule);
            masked.for_each(|((value, mask), own)| *value = mask & own);
            let Some(ranks) = ranks.get(value.as_slice()) else { continue };
            let covers = |other: &usize| {
                let other = set.rule(ranked[*other] as usize).words;
                set.schema().covers(other, rule)
            };
            let before = ranks.iter().map(|other| *other as usize);
            let before = before.take_while(|other| *other < rank.min(first));
            first = before.clone().find(covers).unwrap_or(first);
            if first < rank {
                continue;
            }
            let from = ranks.partition_point(|other| *other as usize <= rank);
            let after = ranks[from..].iter().map(|other| *other as usize);
            let after = after.take_while(|other| *other < behind.min(rank + DISTANCE_MAX));
            let mut alike = after.filter(|other| is_same(actions, *index, ranked[*other]));
            behind = alike.find(covers).unwrap_or(behind);
        }
        if first < rank {
            let by = ranked[first];
            let same = set.rule(by as usize).words == rule;
            warnings.push(Warning::Shadowed { rule: *index, by, same });
        } else if behind < usize::MAX {
            let mut between = ranked[rank + 1..behind].iter();
            let is_kept = between.any(|other| {
                !is_same(actions, *index, *other)
                    && set.schema().overlap(rule, set.rule(*other as usize).words)
            });
            if !is_kept {
                warnings.push(Warning::Redundant { rule: *index, by: ranked[behind] });
            }
        }
    }
    warnings.sort_unstable_by_key(Warning::rule);
    warnings
}

fn is_same(actions: &[u32], a: u32, b: u32) -> bool {
    match (actions.get(a as usize), actions.get(b as usize)) {
        (Some(a), Some(b)) => a == b,
        _ => false,
    }
}

/// Ranks by value, for each mask of the fields that are not ranges.
type Class = (Vec<u32>, HashMap<Box<[u32]>, Vec<u32>>);

fn classes(set: &RuleSet, ranked: &[u32]) -> Vec<Class> {
    let bits = set.schema().masked_bits();
    let masked =
        |words: &[u32]| -> Vec<u32> { words.iter().zip(bits).map(|(w, b)| w & b).collect() };
    let mut by_mask: HashMap<Vec<u32>, usize> = HashMap::new();
    let mut classes: Vec<Class> = Vec::new();
    for (rank, index) in (0_u32..).zip(ranked) {
        let rule = set.rule(*index as usize);
        let mask = masked(rule.highs());
        let class = *by_mask.entry(mask).or_insert_with_key(|mask| {
            classes.push((mask.clone(), HashMap::new()));
            classes.len() - 1
        });
        let ranks = classes[class].1.entry(masked(rule.lows()).into()).or_default();
        ranks.push(rank);
    }
    classes
}
