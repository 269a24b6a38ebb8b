//! Setting the kernel's view right from a full dump.

use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
};

use ipnet::IpNet;

use super::{Keys, Mended, Model};
use crate::kernel::fib::Entries;

impl Model {
    /// From now on remember what messages touch, until [`Self::adopt`].
    pub(in crate::kernel) fn begin_dump(&mut self) {
        self.touched = Some(Keys::default());
    }

    pub(in crate::kernel) fn abandon_dump(&mut self) {
        self.touched = None;
    }

    /// An empty model to fill from a dump.
    pub(in crate::kernel) fn fresh(&mut self) -> Model {
        let mut fresh = Model::new(self.table, []);
        fresh.advertised.clone_from(&self.advertised);
        self.raw_sets.trim();
        self.leg_sets.trim();
        fresh.raw_sets = std::mem::take(&mut self.raw_sets);
        fresh
    }

    /// Makes the kernel's view what `fresh` says, except for keys touched since
    /// [`Self::begin_dump`], and marks the differences.
    pub(in crate::kernel) fn adopt(&mut self, fresh: Model) -> Mended {
        let touched = self.touched.take().unwrap_or_default();
        let mut mended = Mended::default();
        self.counts.undecoded += fresh.counts.undecoded;
        self.raw_sets = fresh.raw_sets;

        let differing = differences(&self.links, &fresh.links, &touched.links);
        for (ifindex, link) in differing {
            mended.note(|| format!("interface {ifindex}"));
            match link {
                Some(link) => _ = self.links.insert(ifindex, link),
                None => _ = self.links.remove(&ifindex),
            }
            self.mark_link(ifindex);
        }
        let differing: Vec<_> =
            self.addresses.symmetric_difference(&fresh.addresses).copied().collect();
        for key in differing {
            if touched.addresses.contains(&key) {
                continue;
            }
            mended.note(|| format!("address {} on interface {}", key.1, key.0));
            if !self.addresses.remove(&key) {
                self.addresses.insert(key);
            }
            self.mark_address(key);
        }
        for (key, neighbour) in
            differences(&self.neighbours, &fresh.neighbours, &touched.neighbours)
        {
            mended.neighbours += 1;
            match neighbour {
                Some(neighbour) => _ = self.neighbours.insert(key, neighbour),
                None => _ = self.neighbours.remove(&key),
            }
            self.mark_neighbour(key);
        }
        for (id, object) in differences(&self.objects, &fresh.objects, &touched.objects) {
            mended.note(|| format!("next hop {id}: {:?}, now {object:?}", self.objects.get(&id)));
            match object {
                Some(object) => _ = self.objects.insert(id, object),
                None => _ = self.objects.remove(&id),
            }
            self.mark_object(id);
        }
        let gone: Vec<IpNet> = self
            .routes
            .iter()
            .filter(|(prefix, slot)| {
                !slot.entries.is_empty()
                    && !fresh.routes.contains_key(prefix)
                    && !touched.routes.contains(prefix)
            })
            .map(|(prefix, _)| *prefix)
            .collect();
        for prefix in gone {
            mended.note(|| format!("route {prefix}: {:?}, now none", self.routes.get(&prefix)));
            self.change_route(prefix, |entries| *entries = Entries::default());
        }
        for (prefix, slot) in fresh.routes {
            let known = self.routes.get(&prefix);
            if touched.routes.contains(&prefix)
                || known.is_some_and(|known| known.entries == slot.entries)
            {
                continue;
            }
            mended.note(|| {
                format!("route {prefix}: {:?}, now {:?}", known.map(|k| &k.entries), slot.entries)
            });
            self.change_route(prefix, |entries| *entries = slot.entries);
        }
        mended
    }
}

/// Keys whose value differs, with the new value; keys in `except` left out.
fn differences<K: Copy + Eq + Hash, V: Clone + PartialEq>(
    old: &HashMap<K, V>,
    new: &HashMap<K, V>,
    except: &HashSet<K>,
) -> Vec<(K, Option<V>)> {
    let gone = old.keys().filter(|key| !new.contains_key(key)).map(|key| (*key, None));
    let changed = new
        .iter()
        .filter(|(key, value)| old.get(key) != Some(value))
        .map(|(key, value)| (*key, Some(value.clone())));
    gone.chain(changed).filter(|(key, _)| !except.contains(key)).collect()
}
