//! The routes of one address family: the table, and the host routes of neighbours laid over it.
//!
//! A neighbour on a connected subnet gets a route of full length, so that the data path finds its
//! adjacency by the same lookup. That route is a copy of what the other routes and the neighbours
//! say together, and never changes which interface a packet leaves by:
//!
//! > the neighbour (interface, address) has a host route exactly when the longest *explicit* route
//! > (one that control inserted) for the address leads onto the link of that interface and nowhere else.
//!
//! An explicit route of full length that leads onto the link is hidden by the host route meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use super::hops::Hops;
use crate::auto4::Auto4Builder;
use crate::bspl::BsplBuilder;
use crate::dir24_8::Dir24_8Builder;
use crate::mtrie6::Mtrie6Builder;
use crate::poptrie::PoptrieBuilder;
use crate::rib::Rib;
use crate::{Address, NextHopId, Patch, Prefix, TableError};

/// What all table builders do.
pub(super) trait Builder<A: Address>: Send + std::fmt::Debug {
    fn boxed_clone(&self) -> Box<dyn Builder<A>>;
    fn insert(
        &mut self,
        prefix: Prefix<A>,
        id: NextHopId,
        patches: &mut Vec<Patch>,
    ) -> Result<Option<NextHopId>, TableError>;
    fn remove(&mut self, prefix: Prefix<A>, patches: &mut Vec<Patch>) -> Option<NextHopId>;
    fn rib(&self) -> &Rib<A>;
}

macro_rules! builder {
    ($builder:ty, $address:ty) => {
        impl Builder<$address> for $builder {
            fn boxed_clone(&self) -> Box<dyn Builder<$address>> {
                Box::new(self.clone())
            }
            fn insert(
                &mut self,
                prefix: Prefix<$address>,
                id: NextHopId,
                patches: &mut Vec<Patch>,
            ) -> Result<Option<NextHopId>, TableError> {
                self.insert(prefix, id, patches)
            }
            fn remove(
                &mut self,
                prefix: Prefix<$address>,
                patches: &mut Vec<Patch>,
            ) -> Option<NextHopId> {
                self.remove(prefix, patches)
            }
            fn rib(&self) -> &Rib<$address> {
                self.rib()
            }
        }
    };
}

builder!(Auto4Builder, u32);
builder!(Dir24_8Builder, u32);
builder!(PoptrieBuilder, u32);
builder!(BsplBuilder, u128);
builder!(Mtrie6Builder, u128);

impl<A: Address> Clone for Box<dyn Builder<A>> {
    fn clone(&self) -> Self {
        self.as_ref().boxed_clone()
    }
}

#[derive(Debug, Clone)]
enum Table<A: Address> {
    /// Before the first version: routes are collected.
    Loading(Rib<A>),
    /// Changes become patches.
    Frozen(Box<dyn Builder<A>>),
}

/// Routes and neighbours of one family.
#[derive(Debug, Clone)]
pub struct Half<A: Address> {
    table: Table<A>,
    patches: Vec<Patch>,
    hidden: BTreeMap<A, NextHopId>,
    connected: BTreeSet<Prefix<A>>, // explicit routes that lead onto one link
    hosts: BTreeMap<(A, u16), NextHopId>,
    /// Host routes that the full table refused: their packets take the slow path.
    pub(super) hosts_refused: u64,
}

impl<A: Address> Half<A> {
    pub(super) fn new() -> Self {
        Self {
            table: Table::Loading(Rib::new()),
            patches: Vec::new(),
            hidden: BTreeMap::new(),
            connected: BTreeSet::new(),
            hosts: BTreeMap::new(),
            hosts_refused: 0,
        }
    }

    /// Explicit routes and host routes.
    pub(super) fn rib(&self) -> &Rib<A> {
        match &self.table {
            Table::Loading(rib) => rib,
            Table::Frozen(builder) => builder.rib(),
        }
    }

    pub(super) fn take_patches(&mut self) -> Vec<Patch> {
        std::mem::take(&mut self.patches)
    }

    /// Hands the routes to a table builder; `None` when that has been done.
    pub(super) fn freeze<B: Builder<A> + 'static, T>(
        &mut self,
        build: impl FnOnce(Rib<A>) -> Result<(B, T), TableError>,
    ) -> Option<Result<T, TableError>> {
        let Table::Loading(rib) = &mut self.table else { return None };
        Some(build(std::mem::replace(rib, Rib::new())).map(|(builder, table)| {
            self.table = Table::Frozen(Box::new(builder));
            table
        }))
    }

    /// The next hop of the explicit route for exactly this prefix.
    pub(super) fn explicit(&self, prefix: Prefix<A>, hops: &Hops) -> Option<NextHopId> {
        let id = self.rib().get(prefix)?;
        if hops.is_host(id) { self.hidden.get(&prefix.addr()).copied() } else { Some(id) }
    }

    /// The longest explicit route for `address`.
    pub(super) fn explicit_match(&self, address: A, hops: &Hops) -> Option<(Prefix<A>, NextHopId)> {
        let full = Prefix::masked(address, A::WIDTH);
        match self.explicit(full, hops) {
            Some(id) => Some((full, id)),
            None => self.rib().longest_match_up_to(address, A::WIDTH - 1),
        }
    }

    /// Explicit routes in order, from the first one behind `after`.
    pub(super) fn explicit_routes(
        &self,
        after: Option<Prefix<A>>,
        hops: &Hops,
    ) -> impl Iterator<Item = (Prefix<A>, NextHopId)> {
        following(self.rib(), after).filter_map(|(prefix, id)| {
            let explicit =
                if hops.is_host(id) { self.hidden.get(&prefix.addr()).copied() } else { Some(id) };
            Some((prefix, explicit?))
        })
    }

    /// Adds or replaces an explicit route. On an error nothing has changed.
    pub(super) fn insert(
        &mut self,
        prefix: Prefix<A>,
        id: NextHopId,
        hops: &Hops,
    ) -> Result<Option<NextHopId>, TableError> {
        let before = self.explicit(prefix, hops);
        if before == Some(id) {
            return Ok(before);
        }
        let under_host = self.rib().get(prefix).is_some_and(|id| hops.is_host(id));
        if under_host {
            self.hidden.insert(prefix.addr(), id);
        } else {
            self.table_insert(prefix, id)?;
        }
        self.connected_changed(prefix, hops.link(id).is_some(), hops);
        Ok(before)
    }

    /// Removes an explicit route.
    pub(super) fn remove(&mut self, prefix: Prefix<A>, hops: &Hops) -> Option<NextHopId> {
        let before = self.explicit(prefix, hops)?;
        let under_host = self.rib().get(prefix) != Some(before);
        if under_host {
            self.hidden.remove(&prefix.addr());
        } else {
            self.table_remove(prefix);
        }
        self.connected_changed(prefix, false, hops);
        Some(before)
    }

    /// Adds many routes, sorted or not; of equal prefixes the last one stays. Quick before the
    /// first version, when there are no patches to make.
    pub(super) fn load(
        &mut self,
        routes: Vec<(Prefix<A>, NextHopId)>,
        hops: &Hops,
    ) -> Result<(), TableError> {
        let rib = match &mut self.table {
            Table::Loading(rib) if self.hosts.is_empty() && routes.len() > rib.len() => rib,
            _ => {
                for (prefix, id) in routes {
                    self.insert(prefix, id, hops)?;
                }
                return Ok(());
            }
        };
        for (_, id) in &routes {
            crate::check_next_hop(*id)?;
        }
        if rib.is_empty() {
            *rib = routes.into_iter().collect();
        } else {
            *rib = std::mem::replace(rib, Rib::new()).into_iter().chain(routes).collect();
        }
        let onto_links = rib.iter().filter(|(_, id)| hops.link(*id).is_some());
        self.connected = onto_links.map(|(prefix, _)| prefix).collect();
        Ok(())
    }

    /// A neighbour's next hop, `None` when it is not known any more; the one before.
    pub(super) fn set_host(
        &mut self,
        address: A,
        interface: u16,
        id: Option<NextHopId>,
        hops: &Hops,
    ) -> Option<NextHopId> {
        let before = match id {
            Some(id) => self.hosts.insert((address, interface), id),
            None => self.hosts.remove(&(address, interface)),
        };
        self.recheck(address, hops);
        before
    }

    /// After next hop `id` began or ceased to lead onto a link.
    pub(super) fn link_changed(&mut self, id: NextHopId, hops: &Hops) {
        let prefixes: Vec<Prefix<A>> = self
            .explicit_routes(None, hops)
            .filter(|(_, explicit)| *explicit == id)
            .map(|(p, _)| p)
            .collect();
        for prefix in prefixes {
            self.connected_changed(prefix, hops.link(id).is_some(), hops);
        }
    }

    fn connected_changed(&mut self, prefix: Prefix<A>, now: bool, hops: &Hops) {
        let before =
            if now { !self.connected.insert(prefix) } else { self.connected.remove(&prefix) };
        // Host routes are only below connected routes, so other changes touch none.
        let concerns = now || before || self.connected.iter().any(|c| c.covers(prefix));
        if !concerns || self.hosts.is_empty() {
            return;
        }
        let range = (prefix.addr(), 0)..=(prefix.last(), u16::MAX);
        let mut below: Vec<A> = self.hosts.range(range).map(|((addr, _), _)| *addr).collect();
        below.dedup();
        for address in below {
            self.recheck(address, hops);
        }
    }

    /// Updates the host route of `address` from the explicit routes and the neighbours.
    fn recheck(&mut self, address: A, hops: &Hops) {
        let full = Prefix::masked(address, A::WIDTH);
        let current = self.rib().get(full).filter(|id| hops.is_host(*id));
        let wanted = self
            .explicit_match(address, hops)
            .and_then(|(_, id)| hops.link(id))
            .and_then(|interface| self.hosts.get(&(address, interface)).copied());
        match wanted {
            _ if wanted == current => {}
            Some(id) => {
                let explicit = self.explicit(full, hops);
                match self.table_insert(full, id) {
                    Ok(()) => {
                        if let Some(explicit) = explicit {
                            self.hidden.insert(address, explicit);
                        }
                    }
                    Err(_) => self.hosts_refused += 1,
                }
            }
            None => match self.hidden.remove(&address) {
                // Replaces a route of the same length, which needs no room.
                Some(explicit) => {
                    if self.table_insert(full, explicit).is_err() {
                        self.hosts_refused += 1;
                    }
                }
                None => self.table_remove(full),
            },
        }
    }

    fn table_insert(&mut self, prefix: Prefix<A>, id: NextHopId) -> Result<(), TableError> {
        match &mut self.table {
            Table::Loading(rib) => {
                crate::check_next_hop(id)?;
                rib.insert(prefix, id);
                Ok(())
            }
            Table::Frozen(builder) => builder.insert(prefix, id, &mut self.patches).map(drop),
        }
    }

    fn table_remove(&mut self, prefix: Prefix<A>) {
        match &mut self.table {
            Table::Loading(rib) => drop(rib.remove(prefix)),
            Table::Frozen(builder) => drop(builder.remove(prefix, &mut self.patches)),
        }
    }
}

/// What is behind `after` in a RIB, in order: what lies below it, then everything below the
/// right-hand siblings on its way up.
fn following<A: Address>(
    rib: &Rib<A>,
    after: Option<Prefix<A>>,
) -> impl Iterator<Item = (Prefix<A>, NextHopId)> {
    let start = after.unwrap_or(Prefix::default_route());
    let first = rib.get(start).filter(|_| after.is_none()).map(|id| (start, id));
    let siblings = (0..start.len()).rev().filter(move |bit| !start.addr().bit(*bit));
    let siblings = siblings.map(move |bit| {
        // Only the bits before `bit` and that one set: the last address below it, cut off.
        let parent = Prefix::masked(start.addr(), bit);
        Prefix::masked(parent.last(), bit + 1)
    });
    let behind = siblings.flat_map(move |sibling| {
        rib.get(sibling).map(|id| (sibling, id)).into_iter().chain(rib.more_specifics(sibling))
    });
    first.into_iter().chain(rib.more_specifics(start)).chain(behind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn following_goes_on_where_it_was_left(
            routes in prop::collection::vec((any::<u8>(), 0u8..=8), 0..60),
            from in prop::option::of((any::<u8>(), 0u8..=8)),
        ) {
            let prefix = |(addr, len): (u8, u8)| Prefix::masked(u32::from(addr) << 24, len);
            let rib: Rib<u32> = routes.into_iter().map(|r| (prefix(r), 1)).collect();
            let after = from.map(prefix);
            let expected: Vec<_> =
                rib.iter().filter(|(p, _)| after.is_none_or(|after| *p > after)).collect();
            prop_assert_eq!(following(&rib, after).collect::<Vec<_>>(), expected);
        }
    }
}
