//! Reports the net difference between the kernel's view and the reported state.
//!
//! Order within a flush: links, addresses, neighbours, next-hop objects, routes, objects that
//! are gone, links that are gone. So every event names only what the consumer knows.

use std::{collections::HashSet, net::IpAddr};

use ipnet::IpNet;
use smallvec::SmallVec;

use super::{
    super::{
        decode::Object,
        event::{Event, Leg, NextHop, Route, Target},
        fib::{Entry, RawLeg, RawTarget, settle_weight},
    },
    Model,
};

impl Model {
    /// Appends to `out` what changed since the last flush.
    pub(in crate::kernel) fn flush(&mut self, out: &mut Vec<Event>) {
        let dirty = std::mem::take(&mut self.dirty);
        let used_objects = std::mem::take(&mut self.used_objects);
        let watch_changed = std::mem::take(&mut self.watch_changed);

        let mut removed_links = Vec::new();
        for ifindex in dirty.links {
            match self.links.get(&ifindex) {
                Some(link) if self.reported_links.get(&ifindex) != Some(link) => {
                    self.reported_links.insert(ifindex, link.clone());
                    out.push(Event::LinkChanged(link.clone()));
                }
                Some(_) => {}
                None => removed_links.extend(self.reported_links.remove(&ifindex)),
            }
        }
        let usable: HashSet<u32> = self
            .watched
            .iter()
            .filter(|ifindex| self.links.get(ifindex).is_some_and(|link| link.up))
            .copied()
            .collect();
        let all = usable != self.usable;
        self.usable = usable;

        self.flush_addresses(dirty.addresses, watch_changed, out);
        self.flush_neighbours(dirty.neighbours, watch_changed, out);
        let (removed_objects, look) = self.flush_objects(dirty.objects, &used_objects, all, out);
        let mut routes = dirty.routes;
        if all {
            routes.extend(self.routes.keys().copied());
        } else if !look.is_empty() {
            let uses =
                |entry: &Entry| matches!(entry.target, RawTarget::Object(id) if look.contains(&id));
            let hit = self.routes.iter().filter(|(_, slot)| slot.entries.iter().any(uses));
            routes.extend(hit.map(|(prefix, _)| *prefix));
        }
        for prefix in routes {
            self.flush_route(prefix, out);
        }
        let room = self.routes_max.saturating_sub(self.reported_routes);
        let next: Vec<IpNet> = self.held_back.iter().copied().take(room).collect();
        next.into_iter().for_each(|prefix| self.flush_route(prefix, out));
        let held_back = self.held_back.len();
        if std::mem::replace(&mut self.reported_held_back, held_back) != held_back {
            out.push(Event::RoutesHeldBack { routes: held_back, max: self.routes_max });
        }
        out.extend(removed_objects.into_iter().map(|id| Event::NextHopRemoved { id }));
        out.extend(
            removed_links
                .into_iter()
                .map(|link| Event::LinkRemoved { ifindex: link.ifindex, name: link.name }),
        );
    }

    /// All that was reported, once more, for a consumer that has not heard of it.
    pub(in crate::kernel) fn repeat(&self) -> Vec<Event> {
        let links = self.reported_links.values().cloned().map(Event::LinkChanged);
        let addresses = self.reported_addresses.iter();
        let addresses =
            addresses.map(|&(ifindex, address)| Event::AddressAdded { ifindex, address });
        let neighbours = self.reported_neighbours.iter().map(|(&(ifindex, ip), &(mac, state))| {
            Event::NeighbourChanged { ifindex, ip, mac, state }
        });
        let objects = self.reported_objects.iter();
        let objects = objects
            .map(|(&id, next_hop)| Event::NextHopReplaced { id, next_hop: next_hop.clone() });
        let routes = self.routes.iter().filter_map(|(&prefix, slot)| {
            Some(Event::RouteReplaced { prefix, route: slot.reported.clone()? })
        });
        let (routes_held, max) = (self.reported_held_back, self.routes_max);
        let held_back = Event::RoutesHeldBack { routes: routes_held, max };
        let held_back = (routes_held > 0).then_some(held_back);
        links
            .chain(addresses)
            .chain(neighbours)
            .chain(objects)
            .chain(routes)
            .chain(held_back)
            .collect()
    }

    fn flush_addresses(
        &mut self,
        mut keys: HashSet<(u32, IpNet)>,
        all: bool,
        out: &mut Vec<Event>,
    ) {
        if all {
            keys.extend(self.addresses.iter().chain(&self.reported_addresses).copied());
        }
        for key in keys {
            let (ifindex, address) = key;
            let holds = self.watched.contains(&ifindex) && self.addresses.contains(&key);
            if holds && self.reported_addresses.insert(key) {
                out.push(Event::AddressAdded { ifindex, address });
            } else if !holds && self.reported_addresses.remove(&key) {
                out.push(Event::AddressRemoved { ifindex, address });
            }
        }
    }

    fn flush_neighbours(
        &mut self,
        mut keys: HashSet<(u32, IpAddr)>,
        all: bool,
        out: &mut Vec<Event>,
    ) {
        if all {
            keys.extend(self.neighbours.keys().chain(self.reported_neighbours.keys()).copied());
        }
        for key in keys {
            let (ifindex, ip) = key;
            let watched = self.watched.contains(&ifindex);
            match self.neighbours.get(&key).filter(|_| watched) {
                Some(value) => {
                    if self.reported_neighbours.insert(key, *value) != Some(*value) {
                        let (mac, state) = *value;
                        out.push(Event::NeighbourChanged { ifindex, ip, mac, state });
                    }
                }
                None => {
                    if self.reported_neighbours.remove(&key).is_some() {
                        out.push(Event::NeighbourRemoved { ifindex, ip });
                    }
                }
            }
        }
    }

    /// Returns the objects to be reported as removed once no route names them, and those whose
    /// routes have to be looked at.
    fn flush_objects(
        &mut self,
        mut keys: HashSet<u32>,
        used: &HashSet<u32>,
        all: bool,
        out: &mut Vec<Event>,
    ) -> (Vec<u32>, HashSet<u32>) {
        if all {
            keys.extend(self.objects.keys().chain(self.reported_objects.keys()).copied());
        } else if !keys.is_empty() {
            let groups: Vec<u32> = self
                .objects
                .iter()
                .filter(|(_, object)| match object {
                    Object::Group(members) => members.iter().any(|m| keys.contains(&m.id)),
                    _ => false,
                })
                .map(|(id, _)| *id)
                .collect();
            keys.extend(groups);
        }
        let (mut removed, mut look) = (Vec::new(), HashSet::new());
        for id in keys {
            let now = self.resolve(id);
            let before = self.reported_objects.get(&id);
            if now.as_ref() == before {
                continue;
            }
            let turned = now.is_some() != before.is_some();
            // A new object had no routes when it came: those that name it now are dirty anyway.
            if turned && (used.contains(&id) || self.is_group_in_use(id)) {
                look.insert(id);
            }
            match now {
                Some(next_hop) => {
                    self.reported_objects.insert(id, next_hop.clone());
                    out.push(Event::NextHopReplaced { id, next_hop });
                }
                None => {
                    self.reported_objects.remove(&id);
                    removed.push(id);
                }
            }
        }
        (removed, look)
    }

    /// A group can turn because of a member, and is then not marked itself.
    fn is_group_in_use(&self, id: u32) -> bool {
        matches!(self.objects.get(&id), Some(Object::Group(_))) && self.users.contains_key(&id)
    }

    fn usable_leg(&self, raw: &RawLeg) -> Option<Leg> {
        (!raw.unusable && self.usable.contains(&raw.leg.ifindex)).then_some(raw.leg)
    }

    fn resolve(&mut self, id: u32) -> Option<NextHop> {
        let mut legs: SmallVec<[Leg; 8]> = SmallVec::new();
        match self.objects.get(&id)? {
            Object::Blackhole => return Some(NextHop::Blackhole),
            Object::Unusable => return None,
            Object::Leg(raw) => legs.extend(self.usable_leg(raw)),
            Object::Group(members) => {
                for member in members {
                    match self.objects.get(&member.id) {
                        // The kernel allows a blackhole only as the sole member.
                        Some(Object::Blackhole) => return Some(NextHop::Blackhole),
                        Some(Object::Leg(raw)) => {
                            legs.extend(
                                self.usable_leg(raw)
                                    .map(|leg| Leg { weight: member.weight, ..leg }),
                            );
                            self.counts.foreign_legs +=
                                u64::from(!self.watched.contains(&raw.leg.ifindex));
                        }
                        _ => {}
                    }
                }
            }
        }
        legs.sort_unstable();
        settle_weight(&mut legs, |leg| leg);
        (!legs.is_empty()).then(|| NextHop::Legs(self.leg_sets.share(&legs)))
    }

    fn flush_route(&mut self, prefix: IpNet, out: &mut Vec<Event>) {
        let Some(slot) = self.routes.get(&prefix) else { return };
        let mut best = None;
        let mut foreign = 0;
        let mut entries: SmallVec<[&Entry; 4]> = slot.entries.iter().collect();
        entries.sort_by_key(|entry| entry.rank); // stable: the kernel's order within a rank
        for entry in entries {
            let target = match &entry.target {
                RawTarget::Blackhole => Target::Blackhole,
                RawTarget::Unreachable => Target::Unreachable,
                RawTarget::Prohibit => Target::Prohibit,
                RawTarget::Object(id) if self.reported_objects.contains_key(id) => {
                    Target::NextHop(*id)
                }
                RawTarget::Object(_) => continue,
                RawTarget::Legs(raw) => {
                    let mut legs: SmallVec<[Leg; 8]> =
                        raw.iter().filter_map(|raw| self.usable_leg(raw)).collect();
                    settle_weight(&mut legs, |leg| leg);
                    foreign =
                        raw.iter().filter(|raw| !self.watched.contains(&raw.leg.ifindex)).count();
                    if legs.is_empty() {
                        continue;
                    }
                    Target::Legs(self.leg_sets.share(&legs))
                }
            };
            best = Some(Route { target, metric: entry.metric, protocol: entry.protocol });
            break;
        }
        let empty = slot.entries.is_empty();
        let is_full = self.reported_routes >= self.routes_max && slot.reported.is_none();
        if best.is_some() && is_full {
            self.held_back.insert(prefix);
            return;
        }
        self.held_back.remove(&prefix);
        if best != slot.reported {
            match &best {
                Some(route) => {
                    self.counts.foreign_legs += foreign as u64;
                    self.reported_routes += usize::from(slot.reported.is_none());
                    out.push(Event::RouteReplaced { prefix, route: route.clone() });
                }
                None => {
                    self.reported_routes -= 1;
                    out.push(Event::RouteRemoved { prefix });
                }
            }
        }
        if empty {
            self.routes.remove(&prefix);
        } else if let Some(slot) = self.routes.get_mut(&prefix) {
            slot.reported = best;
        }
    }
}
