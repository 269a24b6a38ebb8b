//! The mirror's memory: what the kernel holds, what the consumer was told, and the difference.
//!
//! ```text
//! notifications ──apply──→ kernel's view ──flush──→ events
//! full dump ──────adopt──→      │ marks what     (told view catches up)
//!                                 changed
//! ```
//!
//! Nothing is told while messages are applied; they only mark keys. A flush compares the marked
//! keys with what was told and tells the net difference, so that a route that flapped ten times
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
    decode::{self, DecodedRoute, Object, RouteTarget, Skip},
    event::{Event, Leg, Link, NeighbourState, NextHop, Route, Target},
    fib::{Entries, Entry, RawLeg, RawTarget, Removal, settle_weight},
};
use crate::netlink::{Message, rtm};

/// What the kernel holds about one prefix, and what was told.
#[derive(Debug, Default)]
struct Slot {
    entries: Entries,
    told: Option<Route>,
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
    // What the kernel holds.
    links: HashMap<u32, Link>,
    addresses: HashSet<(u32, IpNet)>,
    neighbours: HashMap<(u32, IpAddr), ([u8; 6], NeighbourState)>,
    objects: HashMap<u32, Object>,
    routes: HashMap<IpNet, Slot>,
    /// Routes per object.
    users: HashMap<u32, usize>,
    raw_sets: Sets<RawLeg>,
    // What the consumer was told.
    told_links: HashMap<u32, Link>,
    told_addresses: HashSet<(u32, IpNet)>,
    told_neighbours: HashMap<(u32, IpAddr), ([u8; 6], NeighbourState)>,
    told_objects: HashMap<u32, NextHop>,
    told_routes: usize,
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
            links: HashMap::new(),
            addresses: HashSet::new(),
            neighbours: HashMap::new(),
            objects: HashMap::new(),
            routes: HashMap::new(),
            users: HashMap::new(),
            raw_sets: Sets::default(),
            told_links: HashMap::new(),
            told_addresses: HashSet::new(),
            told_neighbours: HashMap::new(),
            told_objects: HashMap::new(),
            told_routes: 0,
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

    /// Prefixes that the kernel holds, and those told.
    pub(super) fn route_counts(&self) -> (usize, usize) {
        (self.routes.len(), self.told_routes)
    }

    /// Whether a flush could tell anything.
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
        match decode::route(message.payload, self.table) {
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
                let route = decode::route(payload, self.table)?;
                let (prefix, entry) = self.entry(route);
                let v6 = matches!(prefix, IpNet::V6(_));
                self.change_route(prefix, |entries| entries.add(v6, message.flags, entry));
                false
            }
            rtm::DELROUTE => {
                let route = decode::route(payload, self.table)?;
                let (prefix, entry) = self.entry(route);
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
        (route.prefix, Entry { metric: route.metric, protocol: route.protocol, target })
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

/// Full dumps.
impl Model {
    /// From now on remember what messages touch, until [`Self::adopt`].
    pub(super) fn begin_dump(&mut self) {
        self.touched = Some(Keys::default());
    }

    pub(super) fn abandon_dump(&mut self) {
        self.touched = None;
    }

    /// An empty model to fill from a dump.
    pub(super) fn fresh(&mut self) -> Model {
        let mut fresh = Model::new(self.table, []);
        self.raw_sets.trim();
        self.leg_sets.trim();
        fresh.raw_sets = std::mem::take(&mut self.raw_sets);
        fresh
    }

    /// Makes the kernel's view what `fresh` says, except for keys touched since
    /// [`Self::begin_dump`], and marks the differences.
    pub(super) fn adopt(&mut self, fresh: Model) -> Mended {
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

/// Telling.
impl Model {
    /// Appends to `out` what changed since the last flush.
    pub(super) fn flush(&mut self, out: &mut Vec<Event>) {
        let dirty = std::mem::take(&mut self.dirty);
        let used_objects = std::mem::take(&mut self.used_objects);
        let watch_changed = std::mem::take(&mut self.watch_changed);

        let mut removed_links = Vec::new();
        for ifindex in dirty.links {
            match self.links.get(&ifindex) {
                Some(link) if self.told_links.get(&ifindex) != Some(link) => {
                    self.told_links.insert(ifindex, link.clone());
                    out.push(Event::LinkChanged(link.clone()));
                }
                Some(_) => {}
                None => removed_links.extend(self.told_links.remove(&ifindex)),
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
        out.extend(removed_objects.into_iter().map(|id| Event::NextHopRemoved { id }));
        out.extend(
            removed_links
                .into_iter()
                .map(|link| Event::LinkRemoved { ifindex: link.ifindex, name: link.name }),
        );
    }

    fn flush_addresses(
        &mut self,
        mut keys: HashSet<(u32, IpNet)>,
        all: bool,
        out: &mut Vec<Event>,
    ) {
        if all {
            keys.extend(self.addresses.iter().chain(&self.told_addresses).copied());
        }
        for key in keys {
            let (ifindex, address) = key;
            let holds = self.watched.contains(&ifindex) && self.addresses.contains(&key);
            if holds && self.told_addresses.insert(key) {
                out.push(Event::AddressAdded { ifindex, address });
            } else if !holds && self.told_addresses.remove(&key) {
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
            keys.extend(self.neighbours.keys().chain(self.told_neighbours.keys()).copied());
        }
        for key in keys {
            let (ifindex, ip) = key;
            let watched = self.watched.contains(&ifindex);
            match self.neighbours.get(&key).filter(|_| watched) {
                Some(value) => {
                    if self.told_neighbours.insert(key, *value) != Some(*value) {
                        let (mac, state) = *value;
                        out.push(Event::NeighbourChanged { ifindex, ip, mac, state });
                    }
                }
                None => {
                    if self.told_neighbours.remove(&key).is_some() {
                        out.push(Event::NeighbourRemoved { ifindex, ip });
                    }
                }
            }
        }
    }

    /// Returns the objects to be told as removed once no route names them, and those whose
    /// routes have to be looked at.
    fn flush_objects(
        &mut self,
        mut keys: HashSet<u32>,
        used: &HashSet<u32>,
        all: bool,
        out: &mut Vec<Event>,
    ) -> (Vec<u32>, HashSet<u32>) {
        if all {
            keys.extend(self.objects.keys().chain(self.told_objects.keys()).copied());
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
            let before = self.told_objects.get(&id);
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
                    self.told_objects.insert(id, next_hop.clone());
                    out.push(Event::NextHopReplaced { id, next_hop });
                }
                None => {
                    self.told_objects.remove(&id);
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
        for entry in slot.entries.iter() {
            let target = match &entry.target {
                RawTarget::Blackhole => Target::Blackhole,
                RawTarget::Unreachable => Target::Unreachable,
                RawTarget::Prohibit => Target::Prohibit,
                RawTarget::Object(id) if self.told_objects.contains_key(id) => Target::NextHop(*id),
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
        if best != slot.told {
            match &best {
                Some(route) => {
                    self.counts.foreign_legs += foreign as u64;
                    self.told_routes += usize::from(slot.told.is_none());
                    out.push(Event::RouteReplaced { prefix, route: route.clone() });
                }
                None => {
                    self.told_routes -= 1;
                    out.push(Event::RouteRemoved { prefix });
                }
            }
        }
        if empty {
            self.routes.remove(&prefix);
        } else if let Some(slot) = self.routes.get_mut(&prefix) {
            slot.told = best;
        }
    }
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
    use netlink_packet_route::{
        AddressFamily,
        link::{LinkAttribute, LinkFlags, LinkMessage},
        route::{RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteType},
    };
    use proptest::prelude::*;

    use super::*;
    use crate::netlink::{
        emit,
        nexthop::{NextHopAttribute, NextHopMessage},
    };

    const NEW: u16 = NLM_F_CREATE | NLM_F_EXCL;

    fn link(up: bool) -> Vec<u8> {
        let mut message = LinkMessage::default();
        message.header.index = 1;
        let running = LinkFlags::Up | LinkFlags::Running | LinkFlags::LowerUp;
        message.header.flags = if up { running } else { LinkFlags::empty() };
        message.attributes = vec![LinkAttribute::IfName("va".into()), LinkAttribute::Mtu(1500)];
        emit(&message)
    }

    fn route(third: u8, object: Option<u32>) -> Vec<u8> {
        let mut message = RouteMessage::default();
        message.header.address_family = AddressFamily::Inet;
        message.header.destination_prefix_length = 24;
        message.header.kind = RouteType::Unicast;
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.attributes = vec![
            RouteAttribute::Destination(RouteAddress::Inet([10, 0, third, 0].into())),
            object.map_or(RouteAttribute::Oif(1), RouteAttribute::NhId),
        ];
        emit(&message)
    }

    fn object(id: u32, gateway: u8) -> Vec<u8> {
        let attributes = vec![
            NextHopAttribute::Id(id),
            NextHopAttribute::Oif(1),
            NextHopAttribute::Gateway([10, 0, 0, gateway].into()),
        ];
        emit(&NextHopMessage { family: 2, attributes, ..Default::default() })
    }

    fn apply(model: &mut Model, kind: u16, payload: &[u8]) -> bool {
        model.apply(&Message { kind, flags: NEW, sequence: 0, payload })
    }

    fn flush(model: &mut Model) -> Vec<Event> {
        let mut events = Vec::new();
        model.flush(&mut events);
        events
    }

    fn started() -> Model {
        let mut model = Model::new(254, [1]);
        apply(&mut model, rtm::NEWLINK, &link(true));
        apply(&mut model, rtm::NEWROUTE, &route(1, None));
        apply(&mut model, rtm::NEWROUTE, &route(2, None));
        assert_eq!(flush(&mut model).len(), 3);
        assert!(!model.changed());
        model
    }

    /// What a dump of a kernel that holds these routes says.
    fn dumped(model: &mut Model, thirds: &[u8]) -> Model {
        let mut fresh = model.fresh();
        let take = |fresh: &mut Model, kind, payload: &[u8]| {
            fresh.take_dumped(&Message { kind, flags: 0, sequence: 0, payload });
        };
        take(&mut fresh, rtm::NEWLINK, &link(true));
        thirds.iter().for_each(|third| take(&mut fresh, rtm::NEWROUTE, &route(*third, None)));
        fresh
    }

    #[test]
    fn a_dump_mends_what_was_missed() {
        let mut model = started();
        model.begin_dump();
        let fresh = dumped(&mut model, &[2, 3]); // 1 went and 3 came unheard
        assert_eq!(model.adopt(fresh).entries, 2);
        let events = flush(&mut model);
        let (gone, new) = ("10.0.1.0/24".parse().unwrap(), "10.0.3.0/24".parse::<IpNet>().unwrap());
        assert_eq!(events.len(), 2);
        assert!(events.contains(&Event::RouteRemoved { prefix: gone }));
        let is_new = |e: &Event| matches!(e, Event::RouteReplaced { prefix, .. } if *prefix == new);
        assert!(events.iter().any(is_new));
        model.begin_dump();
        let fresh = dumped(&mut model, &[2, 3]);
        assert_eq!(model.adopt(fresh), Mended::default());
        assert!(!model.changed());
    }

    #[test]
    fn a_dump_is_older_than_what_was_heard_meanwhile() {
        let mut model = started();
        model.begin_dump();
        let fresh = dumped(&mut model, &[1, 2]);
        apply(&mut model, rtm::DELROUTE, &route(1, None));
        apply(&mut model, rtm::NEWROUTE, &route(4, None));
        assert_eq!(model.adopt(fresh).entries, 0);
        assert_eq!(flush(&mut model).len(), 2);
        assert_eq!(model.route_counts(), (2, 2));
    }

    #[test]
    fn a_flap_between_two_flushes_is_not_told() {
        let mut model = started();
        for _ in 0..3 {
            apply(&mut model, rtm::DELROUTE, &route(1, None));
            apply(&mut model, rtm::NEWROUTE, &route(1, None));
        }
        assert!(model.changed());
        assert_eq!(flush(&mut model), []);
    }

    #[test]
    fn routes_of_a_link_that_goes_down_go_unsaid() {
        let mut model = started();
        assert!(apply(&mut model, rtm::NEWLINK, &link(false)), "look again");
        assert_eq!(flush(&mut model).len(), 3);
        assert_eq!(model.route_counts(), (0, 0));
    }

    #[test]
    fn an_object_comes_before_its_routes_and_goes_after() {
        let mut model = started();
        apply(&mut model, rtm::NEWROUTE, &route(7, Some(5)));
        assert_eq!(flush(&mut model), [], "an unknown object leads nowhere");
        apply(&mut model, rtm::NEWNEXTHOP, &object(5, 9));
        let events = flush(&mut model);
        assert!(matches!(
            events[..],
            [
                Event::NextHopReplaced { id: 5, .. },
                Event::RouteReplaced { route: Route { target: Target::NextHop(5), .. }, .. }
            ]
        ));
        apply(&mut model, rtm::NEWNEXTHOP, &object(5, 10));
        assert!(matches!(flush(&mut model)[..], [Event::NextHopReplaced { id: 5, .. }]));
        apply(&mut model, rtm::DELNEXTHOP, &object(5, 10));
        let events = flush(&mut model);
        assert!(matches!(
            events[..],
            [Event::RouteRemoved { .. }, Event::NextHopRemoved { id: 5 }]
        ));
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(
            messages in proptest::collection::vec(
                (16..110u16, any::<u16>(), proptest::collection::vec(any::<u8>(), 0..90)), 1..20),
        ) {
            let mut model = Model::new(254, [1]);
            for (kind, flags, payload) in &messages {
                let message = Message { kind: *kind, flags: *flags, sequence: 0, payload };
                model.apply(&message);
                model.take_dumped(&message);
            }
            model.flush(&mut Vec::new());
        }

        #[test]
        fn damaged_messages_never_panic(
            which in 0..4usize, at: prop::sample::Index, value: u8, cut: prop::sample::Index,
        ) {
            let (kind, mut bytes) = [
                (rtm::NEWLINK, link(true)),
                (rtm::NEWROUTE, route(1, None)),
                (rtm::NEWROUTE, route(1, Some(5))),
                (rtm::NEWNEXTHOP, object(5, 1)),
            ][which].clone();
            let at = at.index(bytes.len());
            bytes[at] = value;
            let mut model = Model::new(254, [1]);
            apply(&mut model, kind, &bytes);
            apply(&mut model, kind, &bytes[..cut.index(bytes.len())]);
            flush(&mut model);
        }
    }
}
