//! Equal-cost groups: weights become members, members get places in one table.
//!
//! The data path chooses a member by `hash * count >> 32`, so a path's share is the number of
//! members that name it. Groups of equal members share one place. Places have a power of two of
//! members and are used again by groups of the same class.

use std::collections::HashMap;

/// Members that weights are rounded to.
pub const GROUP_MEMBERS: usize = 64;

/// Paths that a group may have; further ones are not used.
pub const GROUP_PATHS_MAX: usize = 256;

/// How many members each path gets.
///
/// Weights whose sum, after division by their common divisor, is at most [`GROUP_MEMBERS`] are kept
/// exactly. Otherwise there are [`GROUP_MEMBERS`] members (or one for each path, if there are more
/// paths), given out by largest remainder, at least one to each path. So a share is off by less
/// than 1/64, except that a path of less than 1/64 gets that much. A weight of 0 counts as 1.
pub(super) fn members_by_weight(weights: &[u32]) -> Vec<usize> {
    let weights: Vec<u64> = weights.iter().map(|w| u64::from(*w).max(1)).collect();
    let divisor = weights.iter().fold(0, |a, b| gcd(a, *b)).max(1);
    let sum: u64 = weights.iter().sum();
    if sum / divisor <= GROUP_MEMBERS as u64 {
        return weights.iter().map(|w| (w / divisor) as usize).collect();
    }
    let total = GROUP_MEMBERS.max(weights.len()) as u64;
    // In units of 1/sum of a member, so that nothing is rounded before it has to be.
    let mut counts: Vec<u64> = weights.iter().map(|w| (w * total / sum).max(1)).collect();
    let lacks = |counts: &[u64], i: usize| {
        (weights[i] * total) as i64 - (counts[i] * sum) as i64 // what path i still should get
    };
    loop {
        let given: u64 = counts.iter().sum();
        let paths = 0..counts.len();
        if given < total {
            let Some(i) = paths.max_by_key(|&i| (lacks(&counts, i), std::cmp::Reverse(i))) else {
                break;
            };
            counts[i] += 1;
        } else if given > total {
            let rich = paths.filter(|&i| counts[i] > 1);
            let Some(i) = rich.min_by_key(|&i| (lacks(&counts, i), i)) else { break };
            counts[i] -= 1;
        } else {
            break;
        }
    }
    counts.into_iter().map(|count| count as usize).collect()
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The group table on the control side.
#[derive(Debug, Clone, Default)]
pub(super) struct Groups {
    members: Vec<u32>,
    shared: HashMap<Box<[u32]>, Place>,
    free: [Vec<u32>; CLASSES], // first members, by class
    retired: Vec<(usize, u32)>,
    changed: Vec<(u32, Box<[u32]>)>,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    first: u32,
    refs: u32,
}

const CLASSES: usize = 9; // 1 to 256 members
const _: () = assert!(GROUP_PATHS_MAX == 1 << (CLASSES - 1) && GROUP_MEMBERS <= GROUP_PATHS_MAX);

impl Groups {
    /// The place of a group of these 1 to [`GROUP_PATHS_MAX`] members, held once more.
    pub(super) fn acquire(&mut self, members: &[u32]) -> u32 {
        if let Some(place) = self.shared.get_mut(members) {
            place.refs += 1;
            return place.first;
        }
        let class = class_of(members.len());
        let first = self.free[class].pop().unwrap_or_else(|| {
            let first = self.members.len();
            self.members.resize(first + (1 << class), 0);
            first as u32
        });
        self.members[first as usize..][..members.len()].copy_from_slice(members);
        self.changed.push((first, members.into()));
        self.shared.insert(members.into(), Place { first, refs: 1 });
        first
    }

    /// Lets go of a group once.
    pub(super) fn release(&mut self, members: &[u32]) {
        let Some(place) = self.shared.get_mut(members) else { return };
        place.refs -= 1;
        if place.refs == 0 {
            self.retired.push((class_of(members.len()), place.first));
            self.shared.remove(members);
        }
    }

    /// The whole table.
    pub(super) fn members(&self) -> &[u32] {
        &self.members
    }

    /// What was written since the last call. Places that were let go become free.
    pub(super) fn take_changes(&mut self) -> Vec<(u32, Box<[u32]>)> {
        for (class, first) in self.retired.drain(..) {
            self.free[class].push(first);
        }
        std::mem::take(&mut self.changed)
    }
}

fn class_of(len: usize) -> usize {
    (len.next_power_of_two().trailing_zeros() as usize).min(CLASSES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn small_weights_are_exact() {
        for (weights, members) in [
            (vec![1, 1], vec![1, 1]),
            (vec![3, 1], vec![3, 1]),
            (vec![200, 100], vec![2, 1]),
            (vec![0, 5], vec![1, 5]),
            (vec![7], vec![1]),
            (vec![1; 100], vec![1; 100]),
            (vec![255, 1], vec![63, 1]),
            (vec![65_535, 65_534, 1], vec![32, 31, 1]),
        ] {
            assert_eq!(members_by_weight(&weights), members, "{weights:?}");
        }
    }

    proptest! {
        #[test]
        fn shares_are_near_and_none_is_left_out(
            weights in prop::collection::vec(1u32..=65_535, 1..=256),
        ) {
            let members = members_by_weight(&weights);
            let total: usize = members.iter().sum();
            prop_assert!(total <= GROUP_MEMBERS.max(weights.len()));
            prop_assert!(members.iter().all(|count| *count >= 1));
            let sum: f64 = weights.iter().map(|w| f64::from(*w)).sum();
            for (weight, count) in weights.iter().zip(&members) {
                let share = f64::from(*weight) / sum * total as f64;
                // Above its share by less than one member, or by the one that everybody gets.
                prop_assert!(*count as f64 <= share + 1.0, "{} of {}", count, share);
            }
            let mut order: Vec<usize> = (0..weights.len()).collect();
            order.sort_by_key(|&i| weights[i]);
            for pair in order.windows(2) {
                prop_assert!(members[pair[0]] <= members[pair[1]] + 1);
            }
        }

        #[test]
        fn places_never_overlap(
            steps in prop::collection::vec((any::<bool>(), 0u32..6, 1usize..20), 1..100),
        ) {
            let mut groups = Groups::default();
            let mut held: Vec<(u32, Vec<u32>)> = Vec::new();
            let mut table: Vec<u32> = Vec::new();
            for (add, base, len) in steps {
                if add || held.is_empty() {
                    let members: Vec<u32> = (base..base + len as u32).collect();
                    held.push((groups.acquire(&members), members));
                } else {
                    let (_, members) = held.swap_remove(len % held.len());
                    groups.release(&members);
                }
                if base == 0 {
                    for (first, members) in groups.take_changes() {
                        let end = first as usize + members.len();
                        table.resize(table.len().max(end), u32::MAX);
                        table[first as usize..end].copy_from_slice(&members);
                    }
                    for (first, members) in &held {
                        prop_assert_eq!(&table[*first as usize..][..members.len()], &members[..]);
                    }
                }
            }
        }
    }
}
