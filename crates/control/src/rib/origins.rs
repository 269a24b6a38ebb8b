//! Origins: what routes have in common, and how it resolves.

use std::collections::BTreeSet;
use std::net::IpAddr;

use lookup::fib::{Path, RouteTarget};
use lookup::{NextHopId, Prefix};

use super::family::RibFamily;
use super::manager::RibManager;
use super::resolve::{Resolution, resolve};
use super::types::{RibError, Source, Target};

/// What routes of one origin have in common.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct OriginKey {
    pub(super) v4: bool,
    pub(super) source: Source,
    pub(super) metric: u32,
    pub(super) target: Target,
}

#[derive(Debug, Clone)]
pub(super) struct Origin {
    pub(super) key: OriginKey,
    pub(super) routes: u32,
    pub(super) resolution: Resolution,
}

impl RibManager {
    /// The origin of these, made if there is none; without a route yet.
    pub(super) fn origin<A: RibFamily>(
        &mut self,
        source: Source,
        metric: u32,
        target: Target,
    ) -> Result<NextHopId, RibError> {
        if let Target::Legs(legs) = &target
            && !A::V4
            && let Some(v4) = legs.iter().filter_map(|leg| leg.gateway).find(IpAddr::is_ipv4)
        {
            return Err(RibError::Family(v4));
        }
        let key = OriginKey { v4: A::V4, source, metric, target };
        if let Some(id) = self.numbers.get(&key) {
            return Ok(*id);
        }
        let resolution = self.resolve(&key.target, A::V4, true);
        let id = self.fib.create_hop::<A>(&hop(&resolution))?;
        if resolution.recursive {
            self.recursive.insert(id);
        }
        if self.origins.len() <= id as usize {
            self.origins.resize_with(id as usize + 1, || None);
        }
        self.numbers.insert(key.clone(), id);
        self.origins[id as usize] = Some(Origin { key, routes: 0, resolution });
        Ok(id)
    }

    pub(super) fn drop_if_unused(&mut self, id: NextHopId) {
        let Some(slot) = self.origins.get_mut(id as usize) else { return };
        if let Some(origin) = slot.take_if(|origin| origin.routes == 0) {
            self.numbers.remove(&origin.key);
            self.recursive.remove(&id);
            self.fib.destroy_hop(id);
        }
    }

    pub(super) fn count(&mut self, id: NextHopId, change: i32) {
        if let Some(Some(origin)) = self.origins.get_mut(id as usize) {
            origin.routes = origin.routes.saturating_add_signed(change);
        }
    }

    pub(super) fn key(&self, id: NextHopId) -> Option<&OriginKey> {
        Some(&self.origins.get(id as usize)?.as_ref()?.key)
    }

    pub(super) fn source(&self, id: NextHopId) -> Option<Source> {
        self.key(id).map(|key| key.source)
    }

    /// What `target` comes to for packets of one family; without `deep`, direct legs alone count.
    pub(super) fn resolve(&self, target: &Target, v4: bool, deep: bool) -> Resolution {
        let mut resolution = resolve(target, &self.fib, &self.objects, |gateway| match gateway {
            _ if !deep => None,
            IpAddr::V4(v4) => self.paths_to(v4.to_bits()),
            IpAddr::V6(v6) => self.paths_to(v6.to_bits()),
        });
        // An object may have legs of both families.
        if let Some(RouteTarget::Paths(paths)) = &mut resolution.target
            && !v4
        {
            paths.retain(|path| !path.gateway.is_some_and(|gateway| gateway.is_ipv4()));
            if paths.is_empty() {
                resolution.target = None;
            }
        }
        resolution
    }

    /// The paths of the longest route for `gateway`, the default route aside, that is on its own
    /// feet. Routes that do not are looked past, so that how a route resolves never depends on
    /// itself or on the order of events.
    pub(super) fn paths_to<A: RibFamily>(&self, gateway: A) -> Option<Vec<Path>> {
        let mut len = A::WIDTH;
        loop {
            let (prefix, _) = self.fib.longest_match_up_to(gateway, len)?;
            let mut candidates = self.candidates(prefix);
            candidates.retain(|id| {
                let origin = self.origins.get(*id as usize).and_then(Option::as_ref);
                origin.is_some_and(|origin| !origin.resolution.recursive)
            });
            len = prefix.len().checked_sub(1)?;
            if let Some(id) = self.best(&candidates) {
                let origin = self.origins.get(id as usize)?.as_ref()?;
                return match &origin.resolution.target {
                    Some(RouteTarget::Paths(paths)) => Some(paths.clone()),
                    _ => None,
                };
            }
        }
    }

    pub(super) fn is_resolved_by<A: RibFamily>(&self, prefix: Prefix<A>) -> bool {
        let legs = |id: &NextHopId| match self.key(*id).map(|key| &key.target) {
            Some(Target::Object(object)) => match self.objects.get(object) {
                Some(Target::Legs(legs)) => Some(legs),
                _ => None,
            },
            Some(Target::Legs(legs)) => Some(legs),
            _ => None,
        };
        let gateways = self.recursive.iter().filter_map(legs).flat_map(|legs| legs.iter());
        let mut gateways = gateways.filter_map(|leg| A::of(leg.gateway?));
        gateways.any(|gateway| prefix.contains(gateway))
    }

    /// Resolves all origins anew after a change, and installs what follows from it: first those
    /// that resolve by themselves, then those that depend on them. [`RibManager::take_patches`] does so, too.
    pub fn settle(&mut self) {
        if !std::mem::take(&mut self.unsettled) {
            return;
        }
        for deep in [false, true] {
            let mut turned = BTreeSet::new();
            for id in 0..self.origins.len() as NextHopId {
                self.resolve_again(id, deep, &mut turned);
            }
            if !turned.is_empty() {
                self.reinstall::<u32>(&turned);
                self.reinstall::<u128>(&turned);
            }
        }
        self.unsettled = false;
    }

    pub(super) fn resolve_again(
        &mut self,
        id: NextHopId,
        deep: bool,
        turned: &mut BTreeSet<NextHopId>,
    ) {
        let Some(Some(origin)) = self.origins.get(id as usize) else { return };
        if deep && !origin.resolution.recursive {
            return; // settled in the first pass
        }
        let v4 = origin.key.v4;
        let mut resolution = self.resolve(&origin.key.target, v4, deep);
        if resolution.recursive {
            self.recursive.insert(id);
        } else {
            self.recursive.remove(&id);
        }
        if resolution.recursive && !deep {
            resolution.target = origin.resolution.target.clone(); // until the second pass
        }
        if resolution == origin.resolution {
            return;
        }
        if resolution.target.is_some() != origin.resolution.target.is_some() {
            turned.insert(id);
        }
        if resolution.target != origin.resolution.target {
            if v4 {
                self.fib.set_hop::<u32>(id, &hop(&resolution));
            } else {
                self.fib.set_hop::<u128>(id, &hop(&resolution));
            }
        }
        if let Some(Some(origin)) = self.origins.get_mut(id as usize) {
            origin.resolution = resolution;
        }
    }

    /// Chooses anew wherever one of `turned` is a candidate.
    pub(super) fn reinstall<A: RibFamily>(&mut self, turned: &BTreeSet<NextHopId>) {
        let single = self.fib.routes::<A>(None).filter(|(_, id)| turned.contains(id));
        let mut prefixes: Vec<Prefix<A>> = single.map(|(prefix, _)| prefix).collect();
        let several = A::several(&self.several).iter();
        let several = several.filter(|(_, ids)| ids.iter().any(|id| turned.contains(id)));
        prefixes.extend(several.map(|(prefix, _)| *prefix));
        prefixes.sort_unstable();
        prefixes.dedup();
        for prefix in prefixes {
            let candidates = self.candidates(prefix);
            if self.install(prefix, candidates).is_err() {
                self.refused += 1; // it stays a candidate
            }
        }
    }
}

/// What is in the tables for a resolution.
fn hop(resolution: &Resolution) -> RouteTarget {
    resolution.target.clone().unwrap_or(RouteTarget::Paths(Vec::new()))
}
