//! Candidates of prefixes, and which of them are installed.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use lookup::fib::Interface;
use lookup::{NextHopId, Prefix};

use super::connected::{Connected, connected4, connected6};
use super::family::{Candidates, RibFamily};
use super::manager::{Loaded, RibManager, RouteView};
use super::origins::OriginKey;
use super::types::{RibError, Source, Target};

impl RibManager {
    pub(super) fn add<A: RibFamily>(
        &mut self,
        prefix: Prefix<A>,
        source: Source,
        metric: u32,
        target: Target,
    ) -> Result<(), RibError> {
        let id = self.origin::<A>(source, metric, target)?;
        let done = self.add_origin(prefix, id);
        self.drop_if_unused(id);
        done
    }

    /// Adds origin `id` to the candidates of `prefix`, in place of the one that it replaces.
    pub(super) fn add_origin<A: RibFamily>(
        &mut self,
        prefix: Prefix<A>,
        id: NextHopId,
    ) -> Result<(), RibError> {
        let mut candidates = self.candidates(prefix);
        if candidates.contains(&id) {
            return Ok(());
        }
        let replaced = candidates.iter().position(|other| self.replaces(id, *other));
        let replaced = replaced.map(|at| candidates.remove(at));
        candidates.push(id);
        self.install(prefix, candidates).inspect_err(|_| self.refused += 1)?;
        self.count(id, 1);
        if let Some(replaced) = replaced {
            self.count(replaced, -1);
            self.drop_if_unused(replaced);
        }
        Ok(())
    }

    pub(super) fn remove<A: RibFamily>(
        &mut self,
        prefix: Prefix<A>,
        source: Source,
        metric: Option<u32>,
    ) -> Result<(), RibError> {
        let gone: Candidates = self.candidates(prefix);
        let gone = gone.into_iter().filter(|id| {
            self.key(*id).is_some_and(|key| {
                key.source == source && metric.is_none_or(|metric| metric == key.metric)
            })
        });
        let gone: Candidates = gone.collect();
        if gone.is_empty() {
            return Err(RibError::NoSuchRoute);
        }
        for id in gone {
            self.remove_origin(prefix, id);
        }
        Ok(())
    }

    pub(super) fn remove_origin<A: RibFamily>(&mut self, prefix: Prefix<A>, id: NextHopId) {
        let mut candidates = self.candidates(prefix);
        let Some(at) = candidates.iter().position(|other| *other == id) else { return };
        candidates.remove(at);
        // Whatever is installed instead is in the table already or needs no room.
        if self.install(prefix, candidates).is_err() {
            self.refused += 1;
        }
        self.count(id, -1);
        self.drop_if_unused(id);
    }

    /// Whether a route of origin `new` takes the place of one of origin `old`.
    pub(super) fn replaces(&self, new: NextHopId, old: NextHopId) -> bool {
        let (Some(new), Some(old)) = (self.key(new), self.key(old)) else { return false };
        new.source == old.source
            && match new.source {
                Source::Connected => new.target == old.target,
                Source::Static => new.metric == old.metric,
                Source::Api | Source::Kernel | Source::File(_) | Source::Advertised => true,
            }
    }

    pub(super) fn candidates<A: RibFamily>(&self, prefix: Prefix<A>) -> Candidates {
        match A::several(&self.several).get(&prefix) {
            Some(candidates) => candidates.clone(),
            None => self.fib.get(prefix).into_iter().collect(),
        }
    }

    /// Makes these the candidates of `prefix` and installs the best. On an error nothing changed.
    pub(super) fn install<A: RibFamily>(
        &mut self,
        prefix: Prefix<A>,
        candidates: Candidates,
    ) -> Result<(), RibError> {
        let best = self.best(&candidates);
        if best != self.fib.get(prefix) {
            match best {
                Some(id) => drop(self.fib.insert(prefix, id)?),
                None => drop(self.fib.remove(prefix)),
            }
        }
        self.unsettled |= self.is_resolved_by(prefix);
        let several = A::several_mut(&mut self.several);
        if candidates.is_empty() || (candidates.len() == 1 && best.is_some()) {
            several.remove(&prefix);
        } else {
            several.insert(prefix, candidates);
        }
        Ok(())
    }

    pub(super) fn best(&self, candidates: &[NextHopId]) -> Option<NextHopId> {
        let mut best: Option<((u8, u32), NextHopId)> = None;
        for &id in candidates {
            let Some(origin) = self.origins.get(id as usize).and_then(Option::as_ref) else {
                continue;
            };
            let rank = (origin.key.source.preference(), origin.key.metric);
            if origin.resolution.target.is_some() && best.is_none_or(|(other, _)| rank <= other) {
                best = Some((rank, id)); // the later one of equals
            }
        }
        best.map(|(_, id)| id)
    }

    pub(super) fn set_interface(
        &mut self,
        index: u16,
        interface: Option<Interface>,
    ) -> Result<(), RibError> {
        let before = self.fib.interface(index).cloned();
        if before == interface {
            return Ok(());
        }
        self.fib.set_interface(index, interface);
        self.unsettled = true;
        let now = self.fib.interface(index).cloned();
        let (before, now) = (before.as_ref(), now.as_ref());
        let v4 = self.sync_connected(connected4(index, before), connected4(index, now));
        let v6 = self.sync_connected(connected6(index, before), connected6(index, now));
        v4.and(v6)
    }

    pub(super) fn sync_connected<A: RibFamily>(
        &mut self,
        before: Vec<Connected<A>>,
        now: Vec<Connected<A>>,
    ) -> Result<(), RibError> {
        let mut result = Ok(());
        for (prefix, metric, target) in &before {
            let stays = now.iter().any(|route| route.0 == *prefix && route.2 == *target);
            let key = OriginKey {
                v4: A::V4,
                source: Source::Connected,
                metric: *metric,
                target: target.clone(),
            };
            if let Some(&id) = self.numbers.get(&key)
                && !stays
            {
                self.remove_origin(*prefix, id);
            }
        }
        for (prefix, metric, target) in now {
            // A full table must not keep the other addresses from being ours.
            let added = self.add(prefix, Source::Connected, metric, target);
            result = result.and(added);
        }
        result
    }

    pub(super) fn sync_targets<A: RibFamily>(
        &mut self,
        routes: BTreeMap<(Prefix<A>, u32), Target>,
    ) -> Result<(), RibError> {
        let mut ids = Vec::with_capacity(routes.len());
        for ((prefix, metric), target) in routes {
            match self.origin::<A>(Source::Static, metric, target) {
                Ok(id) => ids.push((prefix, id)),
                Err(error) => {
                    for (_, id) in ids {
                        self.drop_if_unused(id);
                    }
                    return Err(error);
                }
            }
        }
        self.sync(Source::Static, ids).map(drop)
    }

    pub(super) fn sync_tokens<A: RibFamily>(
        &mut self,
        source: Source,
        metric: u32,
        mut routes: Vec<(Prefix<A>, u32)>,
        mut target: impl FnMut(u32) -> Option<Target>,
        loaded: &mut Loaded,
    ) -> Result<(), RibError> {
        let mut ids: HashMap<u32, Option<NextHopId>> = HashMap::new();
        let mut error = None;
        let given = routes.len();
        // In place: a full table is worth not having twice.
        routes.retain_mut(|(_, token)| {
            let id = *ids.entry(*token).or_insert_with(|| {
                let target = target(*token)?;
                self.origin::<A>(source, metric, target).map_err(|e| error = Some(e)).ok()
            });
            *token = id.unwrap_or(0);
            id.is_some()
        });
        if let Some(error) = error {
            for id in ids.into_values().flatten() {
                self.drop_if_unused(id);
            }
            return Err(error);
        }
        loaded.skipped += given - routes.len();
        if !routes.is_sorted_by(|a, b| a.0 < b.0) {
            routes.sort_by_key(|(prefix, _)| *prefix);
            routes.dedup_by(|next, kept| {
                let same = next.0 == kept.0;
                if same {
                    kept.1 = next.1; // the last one stays
                }
                same
            });
        }
        loaded.routes += routes.len();
        let done = self.sync(source, routes);
        for id in ids.into_values().flatten() {
            self.drop_if_unused(id); // all its prefixes were repeated with another target
        }
        loaded.changed += done?;
        Ok(())
    }

    /// Makes these the routes of `source`; for how many prefixes that is a change. Their origins may be unused before.
    pub(super) fn sync<A: RibFamily>(
        &mut self,
        source: Source,
        mut routes: Vec<(Prefix<A>, NextHopId)>,
    ) -> Result<usize, RibError> {
        let (mut result, mut changed) = (Ok(()), 0);
        let used = |rib: &Self| {
            let all = rib.origins.iter().flatten();
            all.filter(|o| o.key.source == source && o.key.v4 == A::V4).any(|o| o.routes > 0)
        };
        // One route a prefix, none of them there yet, and the table has no readers.
        let loads = matches!(source, Source::File(_)) && !self.is_frozen && !used(self);
        // Held meanwhile: one may lose its last route before it gets its first new one.
        let ids: BTreeSet<NextHopId> = routes.iter().map(|(_, id)| *id).collect();
        for id in &ids {
            self.count(*id, 1);
        }
        if loads {
            changed = routes.len();
            self.unsettled |= !self.recursive.is_empty();
            routes.retain(|(prefix, id)| {
                let alone = self.candidates(*prefix).is_empty() && self.best(&[*id]).is_some();
                if alone {
                    self.count(*id, 1);
                } else if let Err(error) = self.add_origin(*prefix, *id) {
                    result = Err(error);
                }
                alone
            });
            result = result.and(self.fib.load(routes).map_err(RibError::from));
        } else {
            let mut before = self.of_source::<A>(source);
            before.sort_unstable();
            routes.sort_unstable();
            // What goes makes room for what comes. Where a prefix stays, its new route replaces the old one.
            before.retain(|(prefix, id)| {
                let stays = routes.binary_search_by_key(prefix, |route| route.0).is_ok();
                if !stays {
                    changed += 1;
                    self.remove_origin(*prefix, *id);
                }
                stays
            });
            for route in &routes {
                if before.binary_search(route).is_err() {
                    changed += 1;
                    result = result.and(self.add_origin(route.0, route.1));
                }
            }
            for (prefix, id) in before {
                if routes.binary_search(&(prefix, id)).is_err() {
                    self.remove_origin(prefix, id);
                }
            }
        }
        for id in ids {
            self.count(id, -1);
            self.drop_if_unused(id);
        }
        result.map(|()| changed)
    }

    pub(super) fn of_source<A: RibFamily>(&self, source: Source) -> Vec<(Prefix<A>, NextHopId)> {
        let several = A::several(&self.several);
        let single = self.fib.routes::<A>(None).filter(|(prefix, id)| {
            self.source(*id) == Some(source) && !several.contains_key(prefix)
        });
        let among = several.iter().flat_map(|(prefix, ids)| ids.iter().map(|id| (*prefix, *id)));
        single.chain(among.filter(|(_, id)| self.source(*id) == Some(source))).collect()
    }

    pub(super) fn family_routes<A: RibFamily>(
        &self,
        after: Option<Prefix<A>>,
    ) -> impl Iterator<Item = RouteView<'_>> {
        use std::ops::Bound::{Excluded, Unbounded};
        let mut installed = self.fib.routes::<A>(after).peekable();
        let bound = after.map_or(Unbounded, Excluded);
        let mut several = A::several(&self.several).range((bound, Unbounded)).peekable();
        let next = move || -> Option<(Prefix<A>, Candidates)> {
            let other = several.peek().map(|(prefix, _)| **prefix);
            match (installed.peek().map(|(prefix, _)| *prefix), other) {
                (Some(prefix), other) if other.is_none_or(|other| prefix < other) => {
                    installed.next().map(|(prefix, id)| (prefix, Candidates::from_iter([id])))
                }
                (prefix, Some(other)) => {
                    if prefix == Some(other) {
                        installed.next();
                    }
                    several.next().map(|(prefix, ids)| (*prefix, ids.clone()))
                }
                _ => None,
            }
        };
        std::iter::from_fn(next).flat_map(move |(prefix, ids)| {
            ids.into_iter().filter_map(move |id| self.view(prefix, id))
        })
    }

    pub(super) fn prefix_routes<A: RibFamily>(
        &self,
        prefix: Prefix<A>,
    ) -> impl Iterator<Item = RouteView<'_>> {
        self.candidates(prefix).into_iter().filter_map(move |id| self.view(prefix, id))
    }

    pub(super) fn view<A: RibFamily>(
        &self,
        prefix: Prefix<A>,
        id: NextHopId,
    ) -> Option<RouteView<'_>> {
        let origin = self.origins.get(id as usize)?.as_ref()?;
        Some(RouteView {
            prefix: A::net(prefix),
            source: origin.key.source,
            metric: origin.key.metric,
            target: &origin.key.target,
            resolved: origin.resolution.target.as_ref(),
            installed: self.fib.get(prefix) == Some(id),
        })
    }
}

/// Adds a static route, joined with one of equal prefix and metric where both have legs.
pub(super) fn join<K: Ord>(entry: Entry<'_, K, Target>, target: Target) {
    match (entry, target) {
        (Entry::Vacant(entry), target) => drop(entry.insert(target)),
        (Entry::Occupied(mut entry), target) => match (entry.get_mut(), target) {
            (Target::Legs(legs), Target::Legs(more)) => {
                let mut all = legs.to_vec();
                all.extend(more.iter().filter(|leg| !legs.contains(leg)));
                *legs = all.into();
            }
            (same, target) => *same = target,
        },
    }
}
