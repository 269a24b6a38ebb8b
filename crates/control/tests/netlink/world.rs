//! A consumer that follows the mirror's events strictly, and iproute2's view to compare with.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    sync::mpsc::Receiver,
    time::{Duration, Instant},
};

use control::kernel::{Event, Leg, Link, Mirror, NextHop, Options, Route, Target};
use ipnet::IpNet;
use serde_json::Value;

use crate::namespace::run;

/// Where a prefix leads in the end: legs, or what happens instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    Legs(Vec<Leg>),
    Blackhole,
    Unreachable,
    Prohibit,
}

pub(crate) type Routes = BTreeMap<IpNet, (End, u32)>;

/// What the events add up to. Panics at an event that contradicts those before.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) links: BTreeMap<u32, Link>,
    pub(crate) addresses: BTreeSet<(u32, IpNet)>,
    pub(crate) neighbours: BTreeMap<(u32, IpAddr), [u8; 6]>,
    pub(crate) objects: HashMap<u32, NextHop>,
    pub(crate) routes: BTreeMap<IpNet, Route>,
    pub(crate) synced: bool,
    pub(crate) held_back: usize,
    pub(crate) route_events: usize,
    pub(crate) object_events: usize,
    pub(crate) batches: usize,
}

impl World {
    pub(crate) fn apply(&mut self, event: Event) {
        match event {
            Event::LinkChanged(link) => {
                let ifindex = link.ifindex;
                assert_ne!(self.links.insert(ifindex, link.clone()), Some(link), "reported twice");
            }
            Event::LinkRemoved { ifindex, name } => {
                assert_eq!(self.links.remove(&ifindex).expect("a known link").name, name);
                assert!(self.addresses.iter().all(|(on, _)| *on != ifindex));
                assert!(self.neighbours.keys().all(|(on, _)| *on != ifindex));
                assert!(!self.routes.values().any(|route| matches!(&route.target,
                    Target::Legs(legs) if legs.iter().any(|leg| leg.ifindex == ifindex))));
            }
            Event::AddressAdded { ifindex, address } => {
                assert!(self.links.contains_key(&ifindex));
                assert!(self.addresses.insert((ifindex, address)));
            }
            Event::AddressRemoved { ifindex, address } => {
                assert!(self.addresses.remove(&(ifindex, address)));
            }
            Event::NeighbourChanged { ifindex, ip, mac, .. } => {
                assert!(self.links.contains_key(&ifindex));
                self.neighbours.insert((ifindex, ip), mac);
            }
            Event::NeighbourRemoved { ifindex, ip } => {
                assert!(self.neighbours.remove(&(ifindex, ip)).is_some());
            }
            Event::NextHopReplaced { id, next_hop } => {
                self.object_events += 1;
                if let NextHop::Legs(legs) = &next_hop {
                    self.check_legs(legs);
                }
                assert_ne!(
                    self.objects.insert(id, next_hop.clone()),
                    Some(next_hop),
                    "reported twice"
                );
            }
            Event::NextHopRemoved { id } => {
                self.object_events += 1;
                assert!(self.objects.remove(&id).is_some());
                assert!(!self.routes.values().any(|route| route.target == Target::NextHop(id)));
            }
            Event::RouteReplaced { prefix, route } => {
                self.route_events += 1;
                match &route.target {
                    Target::NextHop(id) => assert!(self.objects.contains_key(id), "unknown {id}"),
                    Target::Legs(legs) => self.check_legs(legs),
                    _ => {}
                }
                assert_eq!(prefix, prefix.trunc());
                assert_ne!(
                    self.routes.insert(prefix, route.clone()),
                    Some(route),
                    "reported twice"
                );
            }
            Event::RouteRemoved { prefix } => {
                self.route_events += 1;
                assert!(self.routes.remove(&prefix).is_some(), "{prefix} was not there");
            }
            Event::RoutesHeldBack { routes, .. } => self.held_back = routes,
            Event::Synced => {
                assert!(!self.synced);
                self.synced = true;
            }
        }
    }

    fn check_legs(&self, legs: &[Leg]) {
        assert!(!legs.is_empty());
        for leg in legs {
            assert!(self.links.get(&leg.ifindex).is_some_and(|link| link.up), "{leg:?}");
            assert!(leg.weight >= 1);
        }
    }

    pub(crate) fn ifindex(&self, name: &str) -> u32 {
        self.links.values().find(|link| link.name == name).expect("a known link").ifindex
    }

    /// Routes with their objects followed.
    pub(crate) fn ends(&self) -> Routes {
        let end = |route: &Route| match &route.target {
            Target::Legs(legs) => End::Legs(legs.to_vec()),
            Target::NextHop(id) => match &self.objects[id] {
                NextHop::Legs(legs) => End::Legs(legs.to_vec()),
                NextHop::Blackhole => End::Blackhole,
            },
            Target::Blackhole => End::Blackhole,
            Target::Unreachable => End::Unreachable,
            Target::Prohibit => End::Prohibit,
        };
        self.routes.iter().map(|(prefix, route)| (*prefix, (end(route), route.metric))).collect()
    }
}

/// A mirror with its world.
pub(crate) struct Watching {
    pub(crate) mirror: Mirror,
    pub(crate) events: Receiver<Vec<Event>>,
    pub(crate) world: World,
}

impl Watching {
    /// Watches the named interfaces and takes in the first picture.
    pub(crate) fn start(names: &[&str], mut options: Options) -> Watching {
        options.watch.extend(names.iter().map(|name| ifindex(name)));
        let (mirror, events) = Mirror::channel(options, 1024).unwrap();
        let mut watching = Watching { mirror, events, world: World::default() };
        let limit = Instant::now() + Duration::from_secs(20);
        while !watching.world.synced {
            assert!(Instant::now() < limit, "no first picture: {:?}", watching.mirror.stats());
            watching.take(Duration::from_millis(50));
        }
        watching
    }

    /// Takes in what comes until nothing has come for `quiet`.
    pub(crate) fn take(&mut self, quiet: Duration) {
        while let Ok(batch) = self.events.recv_timeout(quiet) {
            self.world.batches += 1;
            batch.into_iter().for_each(|event| self.world.apply(event));
        }
    }

    /// Waits until `done`; the mirror has to get there without an audit.
    pub(crate) fn until(&mut self, what: &str, mut done: impl FnMut(&World) -> bool) {
        let limit = Instant::now() + Duration::from_secs(20);
        loop {
            self.take(Duration::from_millis(20));
            if done(&self.world) {
                return;
            }
            assert!(Instant::now() < limit, "never: {what}; {:?}", self.mirror.stats());
        }
    }

    /// Waits until the mirror's routes are iproute2's.
    pub(crate) fn settle(&mut self, what: &str) {
        // Far more than it takes: on a busy machine the kernel says again and again that messages were lost.
        let limit = Instant::now() + Duration::from_secs(120);
        loop {
            self.take(Duration::from_millis(20));
            let (reported, kernel) = (self.world.ends(), kernel_routes(&self.world));
            if reported == kernel {
                return;
            }
            if Instant::now() > limit {
                let only = |a: &Routes, b: &Routes| -> Vec<_> {
                    a.iter()
                        .filter(|(prefix, end)| b.get(prefix) != Some(end))
                        .map(|(prefix, end)| format!("{prefix}: {end:?}"))
                        .take(10)
                        .collect()
                };
                panic!(
                    "{what}: reported {:#?}\nkernel {:#?}\n{:?}",
                    only(&reported, &kernel),
                    only(&kernel, &reported),
                    self.mirror.stats()
                );
            }
        }
    }

    /// A full comparison finds nothing to mend.
    pub(crate) fn audit_is_clean(&mut self, what: &str) {
        let mended = self.mirror.audit();
        assert_eq!(mended, Ok(0), "{what}: {:#?}", self.mirror.stats().audit_mended_last);
    }
}

pub(crate) fn ifindex(name: &str) -> u32 {
    let links = json("ip -json link show");
    let links = links.as_array().unwrap();
    let link = links.iter().find(|link| link["ifname"] == name).expect("a link of this name");
    link["ifindex"].as_u64().unwrap() as u32
}

fn json(line: &str) -> Value {
    let text = run(line);
    if text.trim().is_empty() {
        return Value::Array(Vec::new());
    }
    serde_json::from_str(&text).unwrap()
}

/// The main table as iproute2 shows it, reduced to what a router does with it. All interfaces
/// of the world that are up count as watched.
pub(crate) fn kernel_routes(world: &World) -> Routes {
    let blackholes: BTreeSet<u64> = json("ip -json nexthop show")
        .as_array()
        .unwrap()
        .iter()
        .filter(|object| object.get("blackhole").is_some())
        .map(|object| object["id"].as_u64().unwrap())
        .collect();
    let mut all = Routes::new();
    for (family, any) in [("-4", "0.0.0.0/0"), ("-6", "::/0")] {
        let shown = json(&format!("ip -json {family} route show table main"));
        let mut best: BTreeMap<IpNet, (End, u32)> = BTreeMap::new();
        for route in shown.as_array().unwrap() {
            let text = route["dst"].as_str().unwrap();
            let prefix: IpNet = match text {
                "default" => any.parse().unwrap(),
                _ => text.parse().unwrap_or_else(|_| IpNet::from(text.parse::<IpAddr>().unwrap())),
            };
            let metric = route.get("metric").map_or(0, |m| m.as_u64().unwrap() as u32);
            let through_blackhole =
                route.get("nhid").is_some_and(|id| blackholes.contains(&id.as_u64().unwrap()));
            let end = match route.get("type").and_then(Value::as_str) {
                _ if through_blackhole => End::Blackhole,
                Some("blackhole") => End::Blackhole,
                Some("unreachable") => End::Unreachable,
                Some("prohibit") => End::Prohibit,
                None | Some("unicast") => {
                    let mut legs = Vec::new();
                    match route.get("nexthops").and_then(Value::as_array) {
                        Some(hops) => legs.extend(hops.iter().filter_map(|h| leg(world, h))),
                        None => legs.extend(leg(world, route)),
                    }
                    legs.sort();
                    match &mut legs[..] {
                        [] => continue,
                        [only] => only.weight = 1,
                        _ => {}
                    }
                    End::Legs(legs)
                }
                Some(other) => panic!("a route of type {other}"),
            };
            // The first of the lowest metric.
            if best.get(&prefix).is_none_or(|known| metric < known.1) {
                best.insert(prefix, (end, metric));
            }
        }
        all.extend(best);
    }
    all
}

fn leg(world: &World, hop: &Value) -> Option<Leg> {
    let flags = hop["flags"].as_array().map(Vec::as_slice).unwrap_or_default();
    let link = world.links.values().find(|link| link.name == hop["dev"].as_str().unwrap())?;
    if !link.up || flags.iter().any(|flag| flag == "dead") {
        return None;
    }
    let text = hop.get("gateway").or_else(|| hop.get("via").map(|via| &via["host"]));
    let gateway = text.map(|text| text.as_str().unwrap().parse().unwrap());
    let weight = hop.get("weight").map_or(1, |weight| weight.as_u64().unwrap() as u32);
    Some(Leg { gateway, ifindex: link.ifindex, weight })
}
