//! The mirror's memory: the kernel's state, the state reported to the consumer, and the difference.
//!
//! ```text
//! notifications ──apply──→ kernel's view ──flush──→ events
//! full dump ──────adopt──→      │ marks what     (reported view follows)
//!                                 changed
//! ```
//!
//! Nothing is reported while messages are applied; they only mark keys. A flush compares the marked
//! keys with the reported state and reports the net difference, so that a route that flapped ten times
//! between two flushes makes one event or none.
//!
//! Routes name next-hop objects by number and the consumer follows the number: changing one
//! object under 100,000 routes is one event. Only when an object begins or ceases to lead
//! anywhere are the routes looked through (in one pass for all such objects).
//!
//! No sockets here; all of it can be tested with bytes.

use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
    net::IpAddr,
    sync::Arc,
};

use ipnet::IpNet;
use smallvec::SmallVec;

use super::{
    decode::{self, Decoded, DecodedRoute, Object, RouteTarget, Skip},
    event::{Leg, Link, NeighbourState, NextHop, Route},
    fib::{Entries, Entry, Rank, RawLeg, RawTarget, Removal},
};
use crate::netlink::{Message, rtm};

mod dump;
mod report;

/// The kernel's routes of one prefix, and the reported one.
#[derive(Debug, Default)]
struct Slot {
    entries: Entries,
    reported: Option<Route>,
}

/// Equal leg sets share one allocation: full tables have few of them.
#[derive(Debug)]
struct Sets<L>(HashSet<Arc<[L]>>);

impl<L> Default for Sets<L> {
    fn default() -> Self {
        Sets(HashSet::new())
    }
}

impl<L: Copy + Eq + Hash> Sets<L> {
    fn share(&mut self, legs: &[L]) -> Arc<[L]> {
        if let Some(known) = self.0.get(legs) {
            return known.clone();
        }
        let new: Arc<[L]> = legs.into();
        self.0.insert(new.clone());
        new
    }

    fn trim(&mut self) {
        self.0.retain(|set| Arc::strong_count(set) > 1);
    }
}

/// Keys that messages touched.
#[derive(Debug, Default)]
struct Keys {
    links: HashSet<u32>,
    addresses: HashSet<(u32, IpNet)>,
    neighbours: HashSet<(u32, IpAddr)>,
    objects: HashSet<u32>,
    routes: HashSet<IpNet>,
}

/// What happened to messages; added up over the mirror's life.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Counts {
    pub(super) messages: u64,
    pub(super) undecoded: u64,
    pub(super) unsupported_routes: u64,
    pub(super) foreign_legs: u64,
}

/// What a full dump set right.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Mended {
    /// The first few of them, in words.
    pub(super) samples: Vec<String>,
    /// Links, addresses, next-hop objects and prefixes that differed.
    pub(super) entries: u64,
    /// Neighbours that differed; they age by themselves.
    pub(super) neighbours: u64,
}

impl Mended {
    fn note(&mut self, sample: impl FnOnce() -> String) {
        self.entries += 1;
        if self.samples.len() < 8 {
            self.samples.push(sample());
        }
    }
}

#[derive(Debug)]
pub(super) struct Model {
    table: u32,
    watched: HashSet<u32>,
    /// Interfaces whose Router Advertisements give routes.
    advertised: HashSet<u32>,
    // What the kernel holds.
    links: HashMap<u32, Link>,
    addresses: HashSet<(u32, IpNet)>,
    neighbours: HashMap<(u32, IpAddr), ([u8; 6], NeighbourState)>,
    objects: HashMap<u32, Object>,
    routes: HashMap<IpNet, Slot>,
    /// Routes per object.
    users: HashMap<u32, usize>,
    raw_sets: Sets<RawLeg>,
    // What was reported to the consumer.
    reported_links: HashMap<u32, Link>,
    reported_addresses: HashSet<(u32, IpNet)>,
    reported_neighbours: HashMap<(u32, IpAddr), ([u8; 6], NeighbourState)>,
    reported_objects: HashMap<u32, NextHop>,
    reported_routes: usize,
    routes_max: usize,
    /// Prefixes with a route that is not reported, for there is no room.
    held_back: HashSet<IpNet>,
    reported_held_back: usize,
    leg_sets: Sets<Leg>,
    /// Watched interfaces that are up, as of the last flush.
    usable: HashSet<u32>,
    // What changed since.
    dirty: Keys,
    /// Objects that had routes when they were touched: their routes may have to be looked at.
    used_objects: HashSet<u32>,
    watch_changed: bool,
    /// What messages touched since a dump began; the dump's word on these is old.
    touched: Option<Keys>,
    pub(super) counts: Counts,
}

impl Model {
    pub(super) fn new(table: u32, watched: impl IntoIterator<Item = u32>) -> Model {
        Model {
            table,
            watched: watched.into_iter().collect(),
            advertised: HashSet::new(),
            links: HashMap::new(),
            addresses: HashSet::new(),
            neighbours: HashMap::new(),
            objects: HashMap::new(),
            routes: HashMap::new(),
            users: HashMap::new(),
            raw_sets: Sets::default(),
            reported_links: HashMap::new(),
            reported_addresses: HashSet::new(),
            reported_neighbours: HashMap::new(),
            reported_objects: HashMap::new(),
            reported_routes: 0,
            routes_max: usize::MAX,
            held_back: HashSet::new(),
            reported_held_back: 0,
            leg_sets: Sets::default(),
            usable: HashSet::new(),
            dirty: Keys::default(),
            used_objects: HashSet::new(),
            watch_changed: true,
            touched: None,
            counts: Counts::default(),
        }
    }

    pub(super) fn watch(&mut self, ifindex: u32, on: bool) {
        self.watch_changed |=
            if on { self.watched.insert(ifindex) } else { self.watched.remove(&ifindex) };
    }

    /// Whether the Router Advertisements of an interface give routes, from now on.
    pub(super) fn advertise(&mut self, ifindex: u32, on: bool) {
        if on {
            self.advertised.insert(ifindex)
        } else {
            self.advertised.remove(&ifindex)
        };
    }

    /// How many routes are reported at most; those that are stay.
    pub(super) fn limit_routes(&mut self, max: usize) {
        self.routes_max = max;
    }

    /// Prefixes that the kernel holds, those reported, and those for which there is no room.
    pub(super) fn route_counts(&self) -> (usize, usize, usize) {
        (self.routes.len(), self.reported_routes, self.held_back.len())
    }

    /// A route in a message, unless it is none that is mirrored.
    fn route(&self, payload: &[u8]) -> Decoded<DecodedRoute> {
        let route = decode::route(payload, self.table)?;
        let is_wanted = route.rank == Rank::Configured
            || matches!(&route.target, RouteTarget::Legs(legs)
                if legs.iter().all(|raw| self.advertised.contains(&raw.leg.ifindex)));
        if is_wanted { Ok(route) } else { Err(Skip::Foreign) }
    }

    /// Whether a flush could report anything.
    pub(super) fn changed(&self) -> bool {
        self.watch_changed
            || !(self.dirty.links.is_empty()
                && self.dirty.addresses.is_empty()
                && self.dirty.neighbours.is_empty()
                && self.dirty.objects.is_empty()
                && self.dirty.routes.is_empty())
    }

    /// Applies one notification. `true`: the kernel has changed more than it says; look again.
    pub(super) fn apply(&mut self, message: &Message<'_>) -> bool {
        self.counts.messages += 1;
        match self.try_apply(message) {
            Ok(look_again) => look_again,
            Err(skip) => {
                match skip {
                    Skip::Foreign => {}
                    Skip::Unsupported => self.counts.unsupported_routes += 1,
                    Skip::Undecoded => self.counts.undecoded += 1,
                }
                false
            }
        }
    }

    /// Takes in one message of a dump.
    pub(super) fn take_dumped(&mut self, message: &Message<'_>) {
        if message.kind != rtm::NEWROUTE {
            self.apply(message);
            return;
        }
        self.counts.messages += 1;
        match self.route(message.payload) {
            Ok(route) => {
                let (prefix, entry) = self.entry(route);
                self.change_route(prefix, |entries| entries.push(entry));
            }
            Err(Skip::Undecoded) => self.counts.undecoded += 1,
            Err(Skip::Unsupported) => self.counts.unsupported_routes += 1,
            Err(Skip::Foreign) => {}
        }
    }

    fn try_apply(&mut self, message: &Message<'_>) -> Result<bool, Skip> {
        let payload = message.payload;
        Ok(match message.kind {
            rtm::NEWLINK => {
                let link = decode::link(payload)?;
                self.set_link(link)
            }
            rtm::DELLINK => {
                let link = decode::link(payload)?;
                self.remove_link(link.ifindex);
                true
            }
            rtm::NEWADDR => {
                let key = decode::address(payload)?;
                self.addresses.insert(key);
                self.mark_address(key);
                // The first address of an interface brings its dead IPv4 legs back to life.
                key.1.addr().is_ipv4() && self.has_dead_leg_over(key.0)
            }
            rtm::DELADDR => {
                let key = decode::address(payload)?;
                self.addresses.remove(&key);
                self.mark_address(key);
                key.1.addr().is_ipv4() // IPv4 routes that preferred it as source go silently
            }
            rtm::NEWNEIGH | rtm::DELNEIGH => {
                let (ifindex, ip, known) = decode::neighbour(payload)?;
                let key = (ifindex, ip);
                match known {
                    Some(value) if message.kind == rtm::NEWNEIGH => {
                        self.neighbours.insert(key, value);
                    }
                    _ => {
                        self.neighbours.remove(&key);
                    }
                }
                self.mark_neighbour(key);
                false
            }
            rtm::NEWNEXTHOP => {
                let (id, object) = decode::object(payload)?;
                self.objects.insert(id, object);
                self.mark_object(id);
                false
            }
            rtm::DELNEXTHOP => {
                let (id, _) = decode::object(payload)?;
                self.objects.remove(&id);
                self.mark_object(id);
                if self.users.contains_key(&id) {
                    // Its IPv4 routes go silently.
                    self.drop_routes(|entry| entry.target == RawTarget::Object(id));
                }
                false
            }
            rtm::NEWROUTE => {
                let (prefix, entry) = self.route(payload).map(|route| self.entry(route))?;
                let v6 = matches!(prefix, IpNet::V6(_));
                self.change_route(prefix, |entries| entries.add(v6, message.flags, entry));
                false
            }
            rtm::DELROUTE => {
                let (prefix, entry) = self.route(payload).map(|route| self.entry(route))?;
                let v6 = matches!(prefix, IpNet::V6(_));
                self.change_route(prefix, |entries| entries.remove(v6, &entry)) == Removal::Unknown
            }
            _ => false,
        })
    }

    fn entry(&mut self, route: DecodedRoute) -> (IpNet, Entry) {
        let target = match route.target {
            RouteTarget::Legs(legs) => RawTarget::Legs(self.raw_sets.share(&legs)),
            RouteTarget::Object(id) => RawTarget::Object(id),
            RouteTarget::Blackhole => RawTarget::Blackhole,
            RouteTarget::Unreachable => RawTarget::Unreachable,
            RouteTarget::Prohibit => RawTarget::Prohibit,
        };
        let DecodedRoute { prefix, metric, protocol, rank, .. } = route;
        (prefix, Entry { metric, protocol, rank, target })
    }

    fn change_route<R>(&mut self, prefix: IpNet, change: impl FnOnce(&mut Entries) -> R) -> R {
        let slot = self.routes.entry(prefix).or_default();
        count_users(&mut self.users, &slot.entries, false);
        let result = change(&mut slot.entries);
        count_users(&mut self.users, &slot.entries, true);
        self.mark_route(prefix);
        result
    }

    /// Drops routes as the kernel does without saying so.
    fn drop_routes(&mut self, mut gone: impl FnMut(&Entry) -> bool) {
        let hit: Vec<IpNet> = self
            .routes
            .iter()
            .filter(|(_, slot)| slot.entries.iter().any(&mut gone))
            .map(|(prefix, _)| *prefix)
            .collect();
        for prefix in hit {
            self.change_route(prefix, |entries| entries.retain(|entry| !gone(entry)));
        }
    }

    /// `true`: the link went up or down, and routes with it.
    fn set_link(&mut self, link: Link) -> bool {
        let ifindex = link.ifindex;
        let (up, carrier) = (link.up, link.carrier);
        let before = self.links.insert(ifindex, link);
        self.mark_link(ifindex);
        let was = before.map_or((false, false), |link| (link.up, link.carrier));
        if was.0 && !up {
            self.drop_over(ifindex);
        } else if was.1 && !carrier {
            self.drop_objects_over(ifindex);
        }
        was != (up, carrier)
    }

    fn remove_link(&mut self, ifindex: u32) {
        if self.links.remove(&ifindex).is_none() {
            return;
        }
        self.mark_link(ifindex);
        self.drop_over(ifindex);
        let addresses: Vec<_> =
            self.addresses.iter().filter(|key| key.0 == ifindex).copied().collect();
        for key in addresses {
            self.addresses.remove(&key);
            self.mark_address(key);
        }
        let neighbours: Vec<_> =
            self.neighbours.keys().filter(|key| key.0 == ifindex).copied().collect();
        for key in neighbours {
            self.neighbours.remove(&key);
            self.mark_neighbour(key);
        }
    }

    /// An interface went down: routes over it alone go, the legs of others die. IPv4 routes and
    /// next-hop objects do so without a message.
    fn drop_over(&mut self, ifindex: u32) {
        self.drop_objects_over(ifindex);
        let over = |raw: &RawLeg| raw.leg.ifindex == ifindex;
        let mut hit = Vec::new();
        for (prefix, slot) in &self.routes {
            let has = |entry: &Entry| match &entry.target {
                RawTarget::Legs(legs) => legs.iter().any(over),
                _ => false,
            };
            if slot.entries.iter().any(has) {
                hit.push(*prefix);
            }
        }
        let mut sets = std::mem::take(&mut self.raw_sets);
        for prefix in hit {
            self.change_route(prefix, |entries| {
                entries.retain(|entry| {
                    let RawTarget::Legs(legs) = &mut entry.target else { return true };
                    if legs.iter().all(over) {
                        return false;
                    }
                    let dead: SmallVec<[RawLeg; 8]> = legs
                        .iter()
                        .map(|raw| RawLeg { unusable: raw.unusable || over(raw), ..*raw })
                        .collect();
                    *legs = sets.share(&dead);
                    true
                });
            });
        }
        self.raw_sets = sets;
    }

    fn drop_objects_over(&mut self, ifindex: u32) {
        let mut gone: HashSet<u32> = self
            .objects
            .iter()
            .filter(|(_, object)| matches!(object, Object::Leg(raw) if raw.leg.ifindex == ifindex))
            .map(|(id, _)| *id)
            .collect();
        if gone.is_empty() {
            return;
        }
        let mut shrunk = Vec::new();
        for (id, object) in &mut self.objects {
            let Object::Group(members) = object else { continue };
            let before = members.len();
            members.retain(|member| !gone.contains(&member.id));
            if members.len() < before {
                shrunk.push((*id, members.is_empty()));
            }
        }
        for (id, empty) in shrunk {
            self.mark_object(id);
            if empty {
                gone.insert(id);
            }
        }
        for id in &gone {
            self.objects.remove(id);
            self.mark_object(*id);
        }
        if gone.iter().any(|id| self.users.contains_key(id)) {
            self.drop_routes(
                |entry| matches!(entry.target, RawTarget::Object(id) if gone.contains(&id)),
            );
        }
    }

    fn has_dead_leg_over(&self, ifindex: u32) -> bool {
        let dead = |raw: &RawLeg| raw.unusable && raw.leg.ifindex == ifindex;
        self.raw_sets.0.iter().any(|set| set.iter().any(dead))
    }

    fn mark_link(&mut self, ifindex: u32) {
        self.dirty.links.insert(ifindex);
        self.touched.iter_mut().for_each(|keys| _ = keys.links.insert(ifindex));
    }

    fn mark_address(&mut self, key: (u32, IpNet)) {
        self.dirty.addresses.insert(key);
        self.touched.iter_mut().for_each(|keys| _ = keys.addresses.insert(key));
    }

    fn mark_neighbour(&mut self, key: (u32, IpAddr)) {
        self.dirty.neighbours.insert(key);
        self.touched.iter_mut().for_each(|keys| _ = keys.neighbours.insert(key));
    }

    fn mark_object(&mut self, id: u32) {
        self.dirty.objects.insert(id);
        if self.users.contains_key(&id) {
            self.used_objects.insert(id);
        }
        self.touched.iter_mut().for_each(|keys| _ = keys.objects.insert(id));
    }

    fn mark_route(&mut self, prefix: IpNet) {
        self.dirty.routes.insert(prefix);
        self.touched.iter_mut().for_each(|keys| _ = keys.routes.insert(prefix));
    }
}

fn count_users(users: &mut HashMap<u32, usize>, entries: &Entries, more: bool) {
    for entry in entries.iter() {
        let RawTarget::Object(id) = entry.target else { continue };
        let count = users.entry(id).or_default();
        *count = if more { *count + 1 } else { count.saturating_sub(1) };
        if *count == 0 {
            users.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests;
