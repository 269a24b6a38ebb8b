//! Which flows overlap with a match, and which flows and groups lead to a group, without a walk over all flows.
//!
//! ```text
//!   table, priority ─▶ mask a ─▶ flows with this mask      group ─▶ flows, groups that lead to it
//!                      mask b ─▶ …  ─▶ under a wider mask: values, and how many flows have each
//! ```
//!
//! Two matches overlap if they agree in the bits that both look at. For flows of one mask these are the same bits, so the question
//! is whether a value is there: for a match that looks at all bits of the mask it is the value of a flow, for others one of the
//! values under the bits in common. Those are collected when they are asked for first, and kept up to date from then on, for
//! [`VIEWS_MAX`] sets of bits of each mask. So a check costs as much as there are masks at a priority, whatever the number of
//! flows; matches of ever other masks cost what a walk costs.
//!
//! Threads: belongs to control.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use openflow::Action;
use openflow::flow::ANY_GROUP;

use crate::control::groups_of;
use crate::flow::{Flow, Group};
use crate::key::{Key, Words};

/// Sets of bits for which the values of a mask are kept.
const VIEWS_MAX: usize = 4;

/// Flows with the same table, priority and mask.
#[derive(Debug, Default)]
struct Subtable {
    flows: HashSet<u32>,
    /// Values of the flows under these bits, and how many have each; the one that was made last comes last.
    views: Vec<(Key, HashMap<Key, u32>)>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Index {
    masks: HashMap<(u8, u16), HashMap<Key, Subtable>>,
    by_group: HashMap<u32, HashSet<u32>>,
    by_meter: HashMap<u32, HashSet<u32>>,
    /// Groups that lead to a group, or watch it.
    parents: HashMap<u32, BTreeSet<u32>>,
}

/// Takes an entry away, and its set with the last one.
fn take<K: std::hash::Hash + Eq>(sets: &mut HashMap<K, HashSet<u32>>, key: K, id: u32) {
    let Some(set) = sets.get_mut(&key) else { return };
    set.remove(&id);
    if set.is_empty() {
        sets.remove(&key);
    }
}

fn groups(flow: &Flow) -> impl Iterator<Item = u32> + '_ {
    let actions = flow.steps.apply.iter().chain(&flow.steps.write);
    actions.filter_map(|action| match action {
        Action::Group(group) => Some(*group),
        _ => None,
    })
}

/// Groups that a group leads to, those that it watches among them.
pub(crate) fn next_groups(group: &Group) -> impl Iterator<Item = u32> + '_ {
    let watched = group.buckets.iter().map(|bucket| bucket.watch_group);
    let next = group.buckets.iter().flat_map(|bucket| groups_of(&bucket.actions));
    next.chain(watched.filter(|group| *group != ANY_GROUP))
}

/// Numbers in order.
fn sorted(set: Option<&HashSet<u32>>) -> Vec<u32> {
    let mut ids: Vec<u32> = set.into_iter().flatten().copied().collect();
    ids.sort_unstable();
    ids
}

impl Index {
    /// A flow has come.
    pub(crate) fn insert(&mut self, flow: &Flow) {
        let masks = self.masks.entry((flow.table, flow.priority)).or_default();
        let own = masks.entry(flow.words.mask).or_default();
        own.flows.insert(flow.id);
        for (bits, values) in &mut own.views {
            *values.entry(flow.words.value.and(bits)).or_default() += 1;
        }
        for group in groups(flow) {
            self.by_group.entry(group).or_default().insert(flow.id);
        }
        if let Some(meter) = flow.steps.meter {
            self.by_meter.entry(meter).or_default().insert(flow.id);
        }
    }

    /// A flow has left.
    pub(crate) fn remove(&mut self, flow: &Flow) {
        groups(flow).for_each(|group| take(&mut self.by_group, group, flow.id));
        if let Some(meter) = flow.steps.meter {
            take(&mut self.by_meter, meter, flow.id);
        }
        let Some(masks) = self.masks.get_mut(&(flow.table, flow.priority)) else { return };
        let Some(own) = masks.get_mut(&flow.words.mask) else { return };
        own.flows.remove(&flow.id);
        for (bits, values) in &mut own.views {
            let value = flow.words.value.and(bits);
            match values.get_mut(&value) {
                Some(count) if *count > 1 => *count -= 1,
                _ => drop(values.remove(&value)),
            }
        }
        if own.flows.is_empty() {
            masks.remove(&flow.words.mask);
        }
        if masks.is_empty() {
            self.masks.remove(&(flow.table, flow.priority));
        }
    }

    /// A group is another one, has come or has left.
    pub(crate) fn change_group(&mut self, number: u32, old: Option<&Group>, new: Option<&Group>) {
        for next in old.into_iter().flat_map(next_groups) {
            let Some(parents) = self.parents.get_mut(&next) else { continue };
            parents.remove(&number);
            if parents.is_empty() {
                self.parents.remove(&next);
            }
        }
        for next in new.into_iter().flat_map(next_groups) {
            self.parents.entry(next).or_default().insert(number);
        }
    }

    /// Flows that lead to a group.
    pub(crate) fn of_group(&self, group: u32) -> Vec<u32> {
        sorted(self.by_group.get(&group))
    }

    /// Flows that use a meter.
    pub(crate) fn of_meter(&self, meter: u32) -> Vec<u32> {
        sorted(self.by_meter.get(&meter))
    }

    /// How many flows lead to a group, and how many use a meter.
    pub(crate) fn counts(&self, group: u32, meter: u32) -> [usize; 2] {
        let of = |sets: &HashMap<u32, HashSet<u32>>, key| sets.get(&key).map_or(0, HashSet::len);
        [of(&self.by_group, group), of(&self.by_meter, meter)]
    }

    /// Groups that lead to a group, or watch it.
    pub(crate) fn parents(&self, group: u32) -> impl Iterator<Item = u32> + '_ {
        self.parents.get(&group).into_iter().flatten().copied()
    }

    /// Whether some flow of a table with this priority takes a packet that a match takes. `has`: whether there is a flow of this
    /// table and priority with these words. `flows`: all flows, by number.
    pub(crate) fn overlaps(
        &mut self,
        place: (u8, u16),
        words: &Words,
        has: impl Fn(&Words) -> bool,
        flows: &[Option<Arc<Flow>>],
    ) -> bool {
        let Some(masks) = self.masks.get_mut(&place) else { return false };
        masks.iter_mut().any(|(mask, own)| {
            let bits = mask.and(&words.mask);
            let value = words.value.and(&bits);
            if bits == *mask {
                return has(&Words { value, mask: *mask });
            }
            own.view(bits, flows).contains_key(&value)
        })
    }
}

impl Subtable {
    /// The values of its flows under some bits.
    fn view(&mut self, bits: Key, flows: &[Option<Arc<Flow>>]) -> &HashMap<Key, u32> {
        if let Some(at) = self.views.iter().position(|own| own.0 == bits) {
            return &self.views[at].1;
        }
        if self.views.len() == VIEWS_MAX {
            self.views.remove(0);
        }
        let mut values = HashMap::new();
        for flow in self.flows.iter().filter_map(|id| flows[*id as usize].as_ref()) {
            *values.entry(flow.words.value.and(&bits)).or_default() += 1;
        }
        self.views.push((bits, values));
        &self.views[self.views.len() - 1].1
    }
}
