//! The reference: all routes in one list, everything worked out anew from it for each question.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use lookup::dir24_8::Limits;
use lookup::fib::{Fib, Interface, Options, Path, Resolved, RouteTables, RouteTarget};
use lookup::versions::{Reader, Writer, versions};
use lookup::{Address, Prefix};
use proptest::prelude::*;

use super::*;

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn interface(up: bool, addresses: &[&str]) -> Interface {
    let mut interface = Interface { up, mtu: 1500, ..Interface::default() };
    for address in addresses {
        match net(address) {
            IpNet::V4(v4) => interface.addresses4.push((v4.addr().to_bits(), v4.prefix_len())),
            IpNet::V6(v6) => {
                let bits = v6.addr().to_bits();
                interface.addresses6.push(([(bits >> 64) as u64, bits as u64], v6.prefix_len()));
            }
        }
    }
    interface
}

fn manager() -> RibManager {
    RibManager::new(Options::default(), RouteTables::default())
}

fn route(prefix: &str, source: Source, metric: u32, target: Target) -> RibChange {
    RibChange::Route { prefix: net(prefix), source, metric, target }
}

fn up(index: u16, addresses: &[&str]) -> RibChange {
    RibChange::Interface { index, interface: Some(interface(true, addresses)) }
}

/// `prefix source metric [installed] → resolved`, for routes that do not come from interfaces.
fn lines(rib: &RibManager) -> Vec<String> {
    let routes = rib.routes(None).filter(|route| route.source != Source::Connected);
    routes
        .map(|route| {
            let to = match route.resolved {
                None => "nowhere".to_owned(),
                Some(RouteTarget::Paths(paths)) => {
                    let path = |path: &Path| match path.gateway {
                        Some(gateway) => format!("{gateway}%{}*{}", path.interface, path.weight),
                        None => format!("%{}*{}", path.interface, path.weight),
                    };
                    paths.iter().map(path).collect::<Vec<_>>().join(" ")
                }
                Some(other) => format!("{other:?}"),
            };
            let mark = if route.installed { "*" } else { "" };
            format!("{mark}{} {:?} {} {to}", route.prefix, route.source, route.metric)
        })
        .collect()
}

#[derive(Debug, Clone)]
enum Step {
    Change(RibChange),
    Static(Vec<(IpNet, u32, Target)>),
    File(u16, u32, Vec<(IpNet, Option<Target>)>),
    Commit,
}

#[derive(Debug, Clone, PartialEq)]
struct Candidate {
    prefix: IpNet,
    source: Source,
    metric: u32,
    target: Target,
}

#[derive(Default)]
struct Twin {
    interfaces: BTreeMap<u16, Interface>,
    objects: BTreeMap<u32, Target>,
    known: Vec<Candidate>, // the latest change last
}

impl Twin {
    fn add(&mut self, new: Candidate) {
        let same = |old: &Candidate| {
            old.prefix == new.prefix
                && old.source == new.source
                && (new.source != Source::Static || old.metric == new.metric)
        };
        if !self.known.contains(&new) {
            self.known.retain(|old| !same(old));
            self.known.push(new);
        }
    }

    fn connected(&self) -> Vec<Candidate> {
        let mut connected = Vec::new();
        for (&index, interface) in self.interfaces.iter().filter(|(_, i)| i.up) {
            let mut add = |prefix: IpNet, target: Target, metric| {
                connected.push(Candidate { prefix, source: Source::Connected, metric, target });
            };
            for &(own, len) in &interface.addresses4 {
                let subnet = ipnet::Ipv4Net::new(own.into(), len).unwrap().trunc();
                add(IpNet::new(own.to_ip().into(), 32).unwrap(), Target::Local(index), 0);
                add(subnet.into(), Target::on(index), 0);
                let last = IpNet::new(subnet.broadcast().into(), 32).unwrap();
                add(last, Target::Broadcast(index), 1);
            }
            for &([high, low], len) in &interface.addresses6 {
                let own = std::net::Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low));
                let subnet = ipnet::Ipv6Net::new(own, len).unwrap().trunc();
                add(IpNet::new(own.into(), 128).unwrap(), Target::Local(index), 0);
                add(subnet.into(), Target::on(index), 0);
                add(IpNet::new(subnet.addr().into(), 128).unwrap(), Target::Local(index), 1);
            }
        }
        connected
    }

    /// The interface whose subnet holds it; `Err` for what cannot be a gateway.
    fn holder(&self, gateway: IpAddr) -> Result<Option<u16>, ()> {
        if matches!(gateway, IpAddr::V6(v6) if v6.is_unicast_link_local()) {
            return Err(()); // every link has one
        }
        let mut found = None;
        for (index, interface) in self.interfaces.iter().filter(|(_, i)| i.up) {
            let v4 =
                interface.addresses4.iter().map(|(own, len)| (IpAddr::V4((*own).into()), *len));
            let v6 = interface.addresses6.iter().map(|([high, low], len)| {
                (IpAddr::V6((u128::from(*high) << 64 | u128::from(*low)).into()), *len)
            });
            for (own, len) in v4.chain(v6) {
                if own == gateway {
                    return Err(());
                }
                if IpNet::new(own, len).unwrap().trunc().contains(&gateway) {
                    found = Some(*index);
                }
            }
        }
        Ok(found)
    }

    /// What a target comes to by interfaces alone, and the gateways that need more than that.
    fn legs(&self, target: &Target) -> Option<Arc<[Leg]>> {
        match target {
            Target::Object(id) => match self.objects.get(id) {
                Some(Target::Legs(legs)) => Some(legs.clone()),
                _ => None,
            },
            Target::Legs(legs) => Some(legs.clone()),
            _ => None,
        }
    }

    fn is_recursive(&self, target: &Target) -> bool {
        self.legs(target).is_some_and(|legs| {
            legs.iter().any(|leg| {
                leg.interface.is_none()
                    && leg.gateway.is_some_and(|gateway| self.holder(gateway) == Ok(None))
            })
        })
    }

    fn resolve(&self, candidate: &Candidate, all: &[Candidate], deep: bool) -> Option<RouteTarget> {
        let target = match &candidate.target {
            Target::Object(id) => self.objects.get(id)?,
            target => target,
        };
        let v4 = candidate.prefix.addr().is_ipv4();
        match target {
            Target::Object(_) => None,
            Target::Blackhole => Some(RouteTarget::Blackhole),
            Target::Unreachable => Some(RouteTarget::Unreachable),
            Target::Local(i) => Some(RouteTarget::Local(*i)),
            Target::Broadcast(i) => Some(RouteTarget::Broadcast(*i)),
            Target::Legs(legs) => {
                let mut paths = Vec::new();
                for leg in legs.iter() {
                    match (leg.interface, leg.gateway) {
                        (Some(interface), gateway) => {
                            if self.interfaces.get(&interface).is_some_and(|i| i.up) {
                                paths.push(Path { interface, gateway, weight: leg.weight });
                            }
                        }
                        (None, None) => {}
                        (None, Some(gateway)) => match self.holder(gateway) {
                            Err(()) => {}
                            Ok(Some(interface)) => paths.push(Path {
                                interface,
                                gateway: Some(gateway),
                                weight: leg.weight,
                            }),
                            Ok(None) if deep => {
                                paths.extend(self.carried(gateway, leg.weight, all))
                            }
                            Ok(None) => {}
                        },
                    }
                }
                paths.retain(|path| v4 || path.gateway.is_none_or(|gateway| gateway.is_ipv6()));
                (!paths.is_empty()).then_some(RouteTarget::Paths(paths))
            }
        }
    }

    fn carried(&self, gateway: IpAddr, weight: u32, all: &[Candidate]) -> Vec<Path> {
        let direct: Vec<&Candidate> = all
            .iter()
            .filter(|candidate| {
                candidate.prefix.prefix_len() > 0 && candidate.prefix.contains(&gateway)
            })
            .filter(|candidate| !self.is_recursive(&candidate.target))
            .filter(|candidate| self.resolve(candidate, all, false).is_some())
            .collect();
        let Some(longest) = direct.iter().map(|candidate| candidate.prefix.prefix_len()).max()
        else {
            return Vec::new();
        };
        let of_longest =
            direct.into_iter().filter(|candidate| candidate.prefix.prefix_len() == longest);
        match best(of_longest).and_then(|candidate| self.resolve(candidate, all, false)) {
            Some(RouteTarget::Paths(paths)) => paths
                .into_iter()
                .map(|path| Path {
                    gateway: path.gateway.or(Some(gateway)),
                    weight: weight * path.weight,
                    ..path
                })
                .collect(),
            _ => Vec::new(),
        }
    }

    /// All routes, what they resolve to, and whether they are installed.
    fn rows(&self) -> Vec<(Candidate, Option<RouteTarget>, bool)> {
        let mut all = self.connected();
        all.extend(self.known.iter().cloned());
        let mut rows = Vec::new();
        for candidate in &all {
            let others = all.iter().filter(|other| other.prefix == candidate.prefix);
            let best = best(others.filter(|other| self.resolve(other, &all, true).is_some()));
            rows.push((
                candidate.clone(),
                self.resolve(candidate, &all, true),
                best == Some(candidate),
            ));
        }
        rows
    }
}

fn best<'a>(candidates: impl Iterator<Item = &'a Candidate>) -> Option<&'a Candidate> {
    // Of equals `min_by_key` takes the first one, which is to be the latest one.
    let candidates: Vec<&Candidate> = candidates.collect();
    candidates
        .into_iter()
        .rev()
        .min_by_key(|candidate| (candidate.source.preference(), candidate.metric))
}

fn run(first: Vec<Step>, then: Vec<Step>) {
    let mut rib = manager();
    let mut twin = Twin::default();
    for step in first {
        take(&mut rib, &mut twin, None, step);
    }
    let (mut writer, reader) = versions(rib.freeze().unwrap());
    compare(&rib, &twin, &reader);
    for step in then {
        take(&mut rib, &mut twin, Some((&mut writer, &reader)), step);
    }
    take(&mut rib, &mut twin, Some((&mut writer, &reader)), Step::Commit);
    // What is taken away leaves nothing.
    rib.sync_static(Vec::new()).unwrap();
    for file in 0..2 {
        rib.sync_file(file, 0, Vec::new(), Vec::new(), |_, _| None).unwrap();
    }
    let singly = [Source::Api, Source::Kernel, Source::Advertised];
    for candidate in twin.known.iter().filter(|candidate| singly.contains(&candidate.source)) {
        let (prefix, source) = (candidate.prefix, candidate.source);
        rib.apply(RibChange::RemoveRoute { prefix, source, metric: Some(candidate.metric) })
            .unwrap();
    }
    for index in 0..3 {
        rib.apply(RibChange::Interface { index, interface: None }).unwrap();
    }
    rib.commit(&mut writer);
    assert_eq!(rib.routes(None).count(), 0);
    assert_eq!(rib.stats(), RibStats::default());
}

fn take(
    rib: &mut RibManager,
    twin: &mut Twin,
    tables: Option<(&mut Writer<Fib>, &Reader<Fib>)>,
    step: Step,
) {
    match step {
        Step::Commit => {
            if let Some((writer, reader)) = tables {
                rib.commit(writer);
                compare(rib, twin, reader);
            }
        }
        Step::Static(routes) => {
            rib.sync_static(routes.clone()).unwrap();
            let mut joined: BTreeMap<(IpNet, u32), Target> = BTreeMap::new();
            for (prefix, metric, target) in routes {
                let target = match (joined.get(&(prefix, metric)), target) {
                    (Some(Target::Legs(legs)), Target::Legs(more)) => {
                        let new = more.iter().filter(|leg| !legs.contains(leg));
                        Target::Legs(legs.iter().chain(new).copied().collect())
                    }
                    (_, target) => target,
                };
                joined.insert((prefix, metric), target);
            }
            let kept =
                |candidate: &Candidate| joined.contains_key(&(candidate.prefix, candidate.metric));
            twin.known.retain(|candidate| candidate.source != Source::Static || kept(candidate));
            for ((prefix, metric), target) in joined {
                twin.add(Candidate { prefix, source: Source::Static, metric, target });
            }
        }
        Step::File(file, metric, routes) => {
            let (mut v4, mut v6) = (Vec::new(), Vec::new());
            for (token, (prefix, _)) in (100u32..).zip(&routes) {
                match prefix {
                    IpNet::V4(p) => {
                        v4.push((Prefix::masked(p.addr().to_bits(), p.prefix_len()), token));
                    }
                    IpNet::V6(p) => {
                        v6.push((Prefix::masked(p.addr().to_bits(), p.prefix_len()), token));
                    }
                }
            }
            let target = |_, token: u32| routes[token as usize - 100].1.clone();
            let loaded = rib.sync_file(file, metric, v4, v6, target).unwrap();
            let source = Source::File(file);
            let mut last: BTreeMap<IpNet, Target> = BTreeMap::new();
            for (prefix, target) in &routes {
                last.extend(target.clone().map(|target| (*prefix, target)));
            }
            assert_eq!(loaded.routes, last.len());
            assert_eq!(loaded.skipped, routes.iter().filter(|(_, t)| t.is_none()).count());
            twin.known.retain(|candidate| {
                candidate.source != source || last.contains_key(&candidate.prefix)
            });
            for (prefix, target) in last {
                twin.add(Candidate { prefix, source, metric, target });
            }
        }
        Step::Change(change) => {
            let done = rib.apply(change.clone());
            match change {
                RibChange::Interface { index, interface } => {
                    match interface {
                        Some(interface) => twin.interfaces.insert(index, interface),
                        None => twin.interfaces.remove(&index),
                    };
                }
                RibChange::Object { id, target } => {
                    match target {
                        Some(target) => twin.objects.insert(id, target),
                        None => twin.objects.remove(&id),
                    };
                }
                RibChange::Route { prefix, source, metric, target } => {
                    let v4 = |leg: &Leg| leg.gateway.is_some_and(|gateway| gateway.is_ipv4());
                    let refused = prefix.addr().is_ipv6()
                        && matches!(&target, Target::Legs(legs) if legs.iter().any(v4));
                    assert_eq!(done.is_err(), refused);
                    if !refused {
                        twin.add(Candidate { prefix, source, metric, target });
                    }
                }
                RibChange::RemoveRoute { prefix, source, metric } => {
                    let before = twin.known.len();
                    twin.known.retain(|candidate| {
                        candidate.prefix != prefix
                            || candidate.source != source
                            || metric.is_some_and(|metric| metric != candidate.metric)
                    });
                    assert_eq!(done.is_ok(), before != twin.known.len());
                }
                _ => {}
            }
        }
    }
}

fn compare(rib: &RibManager, twin: &Twin, reader: &Reader<Fib>) {
    looks_at_parts(rib);
    let rows = twin.rows();
    let text = |candidate: &Candidate, resolved: &Option<RouteTarget>, installed: bool| {
        format!("{candidate:?} {resolved:?} {installed}")
    };
    let expected: BTreeSet<String> = rows.iter().map(|(t, r, i)| text(t, r, *i)).collect();
    let views: Vec<RouteView<'_>> = rib.routes(None).collect();
    let seen = views.iter().map(|view| {
        let candidate = Candidate {
            prefix: view.prefix,
            source: view.source,
            metric: view.metric,
            target: view.target.clone(),
        };
        text(&candidate, &view.resolved.cloned(), view.installed)
    });
    assert_eq!(seen.collect::<BTreeSet<String>>(), expected);
    assert_eq!(views.len(), rows.len());
    assert!(views.is_sorted_by_key(|view| (view.prefix.addr(), view.prefix.prefix_len())));
    // Pages continue where they were left.
    if let Some(middle) = views.get(views.len() / 2) {
        let rest = views.iter().filter(|view| {
            (view.prefix.addr(), view.prefix.prefix_len())
                > (middle.prefix.addr(), middle.prefix.prefix_len())
        });
        assert!(rib.routes(Some(middle.prefix)).eq(rest.cloned()));
    }
    let stats = rib.stats();
    assert_eq!(stats.unresolved, rows.iter().filter(|(_, resolved, _)| resolved.is_none()).count());
    let of_kernel = stats.kernel + stats.advertised;
    let known = stats.connected + stats.static_ + stats.api + stats.file + of_kernel;
    assert_eq!(known, rows.len());
    assert_eq!(
        stats.installed_v4 + stats.installed_v6,
        rows.iter().filter(|(_, _, installed)| *installed).count()
    );
    // The data path does what the list says.
    let fib = reader.pin();
    for prefix in rows.iter().map(|(candidate, _, _)| candidate.prefix) {
        for address in [prefix.network(), prefix.broadcast()] {
            let covers = rows.iter().filter(|(candidate, _, installed)| {
                *installed && candidate.prefix.contains(&address)
            });
            let route = covers.max_by_key(|(candidate, _, _)| candidate.prefix.prefix_len());
            assert_eq!(rib.route_get(address).map(|r| r.prefix), route.map(|r| r.0.prefix));
            let expected = match route {
                None => BTreeSet::from(["NoRoute".to_owned()]),
                Some((_, Some(RouteTarget::Paths(paths)), _)) => paths
                    .iter()
                    .map(|path| match path.gateway {
                        Some(gateway) => format!("{gateway}%{}", path.interface),
                        None => format!("Connected({})", path.interface),
                    })
                    .collect(),
                Some((_, resolved, _)) => {
                    BTreeSet::from([format!("{:?}", resolved.clone().unwrap())])
                }
            };
            let id = fib.lookup_one(address);
            let seen = (0..256u32).map(|n| match fib.resolve(id, n << 24) {
                Resolved::Adjacency(a, _) => {
                    let bits = u128::from(a.address[0]) << 64 | u128::from(a.address[1]);
                    let gateway: IpAddr = match a.family {
                        4 => IpAddr::V4((bits as u32).into()),
                        _ => IpAddr::V6(bits.into()),
                    };
                    format!("{gateway}%{}", a.interface)
                }
                other => format!("{other:?}"),
            });
            assert_eq!(seen.collect::<BTreeSet<String>>(), expected, "{address}");
        }
    }
}

/// Routes of a prefix, and of all within it, are those of the whole list.
fn looks_at_parts(rib: &RibManager) {
    type Row<'a> = (IpNet, Source, u32, &'a Target, bool);
    fn row<'a>(view: RouteView<'a>) -> Row<'a> {
        (view.prefix, view.source, view.metric, view.target, view.installed)
    }
    let all: Vec<_> = rib.routes(None).map(row).collect();
    for net in all.iter().flat_map(|(own, ..)| [Some(*own), own.supernet()]).flatten() {
        let own = all.iter().filter(|(prefix, ..)| *prefix == net).copied();
        assert!(rib.routes_of(net).map(row).eq(own), "{net}");
        let within = all.iter().filter(|(prefix, ..)| net.contains(prefix)).copied();
        assert!(rib.routes_within(net).map(row).eq(within), "{net}");
    }
}

fn prefixes() -> impl Strategy<Value = IpNet> + Clone {
    prop::sample::select(
        [
            "0.0.0.0/0",
            "10.1.0.0/24",
            "10.1.0.0/25",
            "10.2.0.9/32",
            "172.16.0.0/16",
            "172.16.1.0/24",
            "172.16.2.0/24",
            "172.16.2.1/32",
            "192.168.0.0/16",
            "192.168.7.0/24",
            "::/0",
            "2001:db8:1::/64",
            "2001:db8:f00::/48",
            "2001:db8:f00:1::/64",
        ]
        .map(net)
        .to_vec(),
    )
}

fn gateways() -> impl Strategy<Value = IpAddr> + Clone {
    prop::sample::select(
        [
            "10.0.0.9",
            "10.1.0.9",
            "10.1.0.200",
            "10.2.0.9",
            "172.16.1.1",
            "172.16.2.1",
            "192.168.7.1",
            "10.0.0.1",
            "2001:db8:1::9",
            "2001:db8:f00:1::9",
            "fe80::9",
        ]
        .map(ip)
        .to_vec(),
    )
}

fn targets() -> impl Strategy<Value = Target> + Clone {
    let leg =
        (prop::option::weighted(0.8, gateways()), prop::option::weighted(0.3, 0u16..3), 1u32..3)
            .prop_map(|(gateway, interface, weight)| Leg { gateway, interface, weight });
    prop_oneof![
        6 => prop::collection::vec(leg.clone(), 1).prop_map(|legs| Target::Legs(legs.into())),
        2 => prop::collection::vec(leg, 0..4).prop_map(|legs| Target::Legs(legs.into())),
        1 => Just(Target::Blackhole),
        1 => Just(Target::Unreachable),
        2 => (0u32..3).prop_map(Target::Object),
    ]
}

/// Of a family that the prefix can have.
fn fit(prefix: IpNet, target: Target) -> Target {
    match target {
        Target::Legs(legs) if prefix.addr().is_ipv6() => {
            let v4 = |leg: &&Leg| !leg.gateway.is_some_and(|gateway| gateway.is_ipv4());
            Target::Legs(legs.iter().filter(v4).copied().collect())
        }
        target => target,
    }
}

fn steps(max: usize) -> impl Strategy<Value = Vec<Step>> {
    let interfaces = (0u16..3, 0u8..5).prop_map(|(index, variant)| {
        let a = [format!("10.{index}.0.1/24"), format!("2001:db8:{index}::1/64")];
        let b = [format!("10.{index}.0.129/25"), format!("2001:db8:{index}::1/64")];
        let (addresses, up) = if variant == 4 { (&b, true) } else { (&a, variant != 1) };
        let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        let interface = (variant != 0).then(|| interface(up, &addresses));
        RibChange::Interface { index, interface }
    });
    let sources = prop::sample::select(vec![Source::Api, Source::Kernel, Source::Advertised]);
    let routes = (prefixes(), sources.clone(), 0u32..2, targets()).prop_map(
        |(prefix, source, metric, target)| RibChange::Route { prefix, source, metric, target },
    );
    let removals = (prefixes(), sources, prop::option::of(0u32..2))
        .prop_map(|(prefix, source, metric)| RibChange::RemoveRoute { prefix, source, metric });
    let objects = (0u32..3, prop::option::weighted(0.8, targets()))
        .prop_map(|(id, target)| RibChange::Object { id, target });
    let statics = prop::collection::vec((prefixes(), 0u32..2, targets()), 0..6);
    let statics = statics.prop_map(|routes| {
        routes.into_iter().map(|(p, metric, target)| (p, metric, fit(p, target))).collect()
    });
    let files = prop::collection::vec((prefixes(), prop::option::weighted(0.9, targets())), 0..8);
    let files = (0u16..2, 0u32..2, files).prop_map(|(file, metric, routes)| {
        let routes = routes.into_iter().map(|(p, target)| (p, target.map(|t| fit(p, t))));
        Step::File(file, metric, routes.collect())
    });
    let step = prop_oneof![
        4 => interfaces.prop_map(Step::Change),
        6 => routes.prop_map(Step::Change),
        3 => removals.prop_map(Step::Change),
        2 => objects.prop_map(Step::Change),
        2 => statics.prop_map(Step::Static),
        2 => files,
        4 => Just(Step::Commit),
    ];
    prop::collection::vec(step, 0..max)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn agrees_with_its_twin(first in steps(12), then in steps(40)) {
        run(first, then);
    }
}

#[test]
fn preference_then_metric_then_the_latest() {
    let mut rib = manager();
    rib.apply(up(0, &["10.0.0.1/24"])).unwrap();
    let via = |last: u8| Target::via(IpAddr::from([10, 0, 0, last]));
    rib.apply(route("10.9.0.0/16", Source::File(0), 0, via(20))).unwrap();
    rib.apply(route("10.9.0.0/16", Source::Kernel, 100, via(10))).unwrap();
    assert_eq!(
        lines(&rib),
        ["10.9.0.0/16 File(0) 0 10.0.0.20%0*1", "*10.9.0.0/16 Kernel 100 10.0.0.10%0*1"]
    );
    rib.apply(route("10.9.0.0/16", Source::Api, 0, via(2))).unwrap();
    rib.sync_static(vec![(net("10.9.0.0/16"), 0, via(3)), (net("10.9.0.0/16"), 5, via(4))])
        .unwrap();
    let installed = |rib: &RibManager| rib.route_get(ip("10.9.9.9")).map(|r| (r.source, r.metric));
    assert_eq!(installed(&rib), Some((Source::Static, 0)));
    rib.apply(route("10.9.0.0/16", Source::Api, 0, via(7))).unwrap();
    assert_eq!(installed(&rib), Some((Source::Api, 0)));
    // A reload that changes nothing takes nothing back.
    rib.sync_static(vec![(net("10.9.0.0/16"), 0, via(3)), (net("10.9.0.0/16"), 5, via(4))])
        .unwrap();
    assert_eq!(installed(&rib), Some((Source::Api, 0)));
    let gone = |source| RibChange::RemoveRoute { prefix: net("10.9.0.0/16"), source, metric: None };
    rib.apply(gone(Source::Api)).unwrap();
    assert_eq!(installed(&rib), Some((Source::Static, 0)));
    rib.sync_static(vec![(net("10.9.0.0/16"), 5, via(4))]).unwrap();
    assert_eq!(installed(&rib), Some((Source::Static, 5)));
    rib.sync_static(Vec::new()).unwrap();
    assert_eq!(installed(&rib), Some((Source::Kernel, 100)));
    rib.apply(gone(Source::Kernel)).unwrap();
    assert_eq!(installed(&rib), Some((Source::File(0), 0)));
    assert_eq!(rib.apply(gone(Source::Kernel)), Err(RibError::NoSuchRoute));
    assert!(rib.contains(net("10.9.0.0/16"), Source::File(0)));
    assert!(!rib.contains(net("10.9.0.0/16"), Source::Api));
    let found = rib.route(net("10.9.0.0/16"), Source::File(0)).unwrap();
    assert_eq!((found.prefix, found.source), (net("10.9.0.0/16"), Source::File(0)));
    assert!(rib.route(net("10.9.0.0/16"), Source::Api).is_none());
    assert!(rib.route(net("10.9.0.0/17"), Source::File(0)).is_none());
}

#[test]
fn routes_leave_with_their_interface_and_come_back() {
    let mut rib = manager();
    rib.apply(up(0, &["10.0.0.1/24"])).unwrap();
    rib.apply(up(1, &["10.1.0.1/24"])).unwrap();
    let two = Target::Legs(
        ["10.0.0.9", "10.1.0.9"]
            .map(|gateway| Leg { gateway: Some(ip(gateway)), interface: None, weight: 1 })
            .into(),
    );
    rib.apply(route("172.16.0.0/16", Source::Kernel, 0, Target::via(ip("10.1.0.9")))).unwrap();
    rib.apply(route("172.16.0.0/16", Source::File(0), 0, two)).unwrap();
    let all = [
        "*172.16.0.0/16 Kernel 0 10.1.0.9%1*1",
        "172.16.0.0/16 File(0) 0 10.0.0.9%0*1 10.1.0.9%1*1",
    ];
    assert_eq!(lines(&rib), all);
    let down = Interface { up: false, ..interface(true, &["10.1.0.1/24"]) };
    rib.apply(RibChange::Interface { index: 1, interface: Some(down) }).unwrap();
    rib.take_patches();
    assert_eq!(
        lines(&rib),
        ["172.16.0.0/16 Kernel 0 nowhere", "*172.16.0.0/16 File(0) 0 10.0.0.9%0*1"]
    );
    assert_eq!(rib.stats().unresolved, 1);
    assert!(rib.route_get(ip("10.1.0.1")).is_none());
    rib.apply(up(1, &["10.1.0.1/24"])).unwrap();
    rib.take_patches();
    assert_eq!(lines(&rib), all);
}

#[test]
fn a_gateway_beyond_the_subnets_goes_one_step_through_other_routes() {
    let mut rib = manager();
    rib.apply(up(0, &["10.0.0.1/24"])).unwrap();
    rib.apply(route("0.0.0.0/0", Source::Kernel, 0, Target::via(ip("10.0.0.254")))).unwrap();
    rib.apply(route("20.0.0.0/8", Source::Kernel, 0, Target::via(ip("192.0.2.9")))).unwrap();
    rib.apply(route("30.0.0.0/8", Source::Kernel, 0, Target::via(ip("20.0.0.1")))).unwrap();
    rib.take_patches();
    let default = "*0.0.0.0/0 Kernel 0 10.0.0.254%0*1";
    let none = ["20.0.0.0/8 Kernel 0 nowhere", "30.0.0.0/8 Kernel 0 nowhere"];
    assert_eq!(lines(&rib), [default, none[0], none[1]]);
    rib.apply(route("192.0.2.0/24", Source::File(0), 0, Target::via(ip("10.0.0.7")))).unwrap();
    rib.take_patches();
    assert_eq!(
        lines(&rib),
        [
            default,
            "*20.0.0.0/8 Kernel 0 10.0.0.7%0*1",
            "30.0.0.0/8 Kernel 0 nowhere", // one step, not two
            "*192.0.2.0/24 File(0) 0 10.0.0.7%0*1",
        ]
    );
    let gone = RibChange::RemoveRoute {
        prefix: net("192.0.2.0/24"),
        source: Source::File(0),
        metric: None,
    };
    rib.apply(gone).unwrap();
    rib.take_patches();
    assert_eq!(lines(&rib), [default, none[0], none[1]]);
}

#[test]
fn a_route_for_its_own_gateway_does_not_swing() {
    let mut rib = manager();
    rib.apply(up(0, &["10.0.0.1/24"])).unwrap();
    rib.apply(route("20.0.0.0/8", Source::File(0), 0, Target::via(ip("10.0.0.7")))).unwrap();
    rib.apply(route("20.0.0.0/8", Source::Api, 0, Target::via(ip("20.0.0.1")))).unwrap();
    for _ in 0..3 {
        rib.take_patches();
        assert_eq!(
            lines(&rib),
            ["20.0.0.0/8 File(0) 0 10.0.0.7%0*1", "*20.0.0.0/8 Api 0 10.0.0.7%0*1"]
        );
    }
}

#[test]
fn addresses_make_connected_routes() {
    let cases: [(&[&str], &[&str]); 5] = [
        (
            &["10.0.0.1/24"],
            &["10.0.0.0/24 Connected", "10.0.0.1/32 Local", "10.0.0.255/32 Broadcast"],
        ),
        (&["10.0.0.1/31"], &["10.0.0.0/31 Connected", "10.0.0.1/32 Local"]),
        (&["10.0.0.1/32", "2001:db8::1/128"], &["10.0.0.1/32 Local", "2001:db8::1/128 Local"]),
        (
            &["2001:db8::1/64", "2001:db8::2/64", "2001:db8:1::/127"],
            &[
                "2001:db8::/64 Connected",
                "2001:db8::/128 Local", // the routers' anycast address
                "2001:db8::1/128 Local",
                "2001:db8::2/128 Local",
                "2001:db8:1::/127 Connected",
                "2001:db8:1::/128 Local",
            ],
        ),
        // What one subnet implies is another one's own address.
        (
            &["10.0.0.1/24", "10.0.0.255/16"],
            &[
                "10.0.0.0/16 Connected",
                "10.0.0.0/24 Connected",
                "10.0.0.1/32 Local",
                "10.0.0.255/32 Local",
                "10.0.255.255/32 Broadcast",
            ],
        ),
    ];
    for (addresses, expected) in cases {
        let mut rib = manager();
        rib.apply(up(3, addresses)).unwrap();
        let installed = rib.routes(None).filter(|route| route.installed).map(|route| {
            let kind = match route.target {
                Target::Local(3) => "Local",
                Target::Broadcast(3) => "Broadcast",
                target if *target == Target::on(3) => "Connected",
                other => panic!("{other:?}"),
            };
            format!("{} {kind}", route.prefix)
        });
        assert_eq!(installed.collect::<Vec<_>>(), expected);
        rib.apply(up(3, &["192.0.2.1/32"])).unwrap();
        assert_eq!(rib.routes(None).count(), 1);
    }
}

#[test]
fn two_interfaces_may_share_a_subnet() {
    let mut rib = manager();
    rib.apply(up(0, &["fe80::1/64"])).unwrap();
    rib.apply(up(1, &["fe80::1/64", "fe80::2/64"])).unwrap();
    assert_eq!(rib.routes(None).filter(|route| route.prefix == net("fe80::/64")).count(), 2);
    for gone in [1, 0] {
        assert!(rib.route_get(ip("fe80::9")).is_some());
        rib.apply(RibChange::Interface { index: gone, interface: None }).unwrap();
    }
    assert_eq!(rib.routes(None).count(), 0);
}

#[test]
fn a_reload_is_one_version_and_touches_only_what_changed() {
    let mut rib = manager();
    rib.apply(up(0, &["10.0.0.1/24"])).unwrap();
    let via = |last: u8| Target::via(IpAddr::from([10, 0, 0, last]));
    let file = |count: u32| -> Vec<(Prefix<u32>, u32)> {
        (0..count).map(|n| (Prefix::masked(0x0b00_0000 | n << 8, 24), n % 4)).collect()
    };
    let target = |_, token: u32| Some(via(10 + token as u8));
    rib.sync_file(0, 0, file(1000), Vec::new(), target).unwrap();
    let (mut writer, reader) = versions(rib.freeze().unwrap());
    let version = reader.pin().version();
    assert_eq!(rib.commit(&mut writer), version, "nothing changed");
    rib.sync_file(0, 0, file(1000), Vec::new(), target).unwrap();
    assert_eq!(rib.commit(&mut writer), version, "nothing changed");
    rib.sync_file(0, 0, file(999), Vec::new(), target).unwrap();
    rib.sync_static(vec![(net("11.0.0.0/24"), 0, via(2)), (net("11.0.1.0/24"), 0, via(2))])
        .unwrap();
    let before = reader.pin();
    assert_eq!(rib.commit(&mut writer), version + 1);
    let after = reader.pin();
    assert_eq!(before.lookup_one(ip("11.0.0.1")), rib_number(&before, "11.0.4.1"));
    assert_ne!(before.lookup_one(ip("11.3.231.1")), 0);
    assert_eq!(after.lookup_one(ip("11.3.231.1")), 0);
    assert_eq!(after.lookup_one(ip("11.0.0.1")), after.lookup_one(ip("11.0.1.1")));
    assert_ne!(after.lookup_one(ip("11.0.0.1")), rib_number(&after, "11.0.4.1"));
}

fn rib_number(fib: &Fib, address: &str) -> u32 {
    fib.lookup_one(ip(address))
}

#[test]
fn a_target_may_move_from_one_prefix_to_another() {
    let mut rib = manager();
    let (one, other) = (net("172.16.0.0/16"), net("172.16.1.0/24"));
    rib.sync_static(vec![(one, 0, Target::Unreachable)]).unwrap();
    rib.sync_static(vec![(one, 0, Target::Blackhole), (other, 0, Target::Unreachable)]).unwrap();
    assert_eq!(
        lines(&rib),
        ["*172.16.0.0/16 Static 0 Blackhole", "*172.16.1.0/24 Static 0 Unreachable"]
    );
}

#[test]
fn equal_cost_static_routes_are_one_group() {
    let mut rib = manager();
    rib.apply(up(0, &["10.0.0.1/24"])).unwrap();
    let via = |last: u8| Target::via(IpAddr::from([10, 0, 0, last]));
    let prefix = net("172.16.0.0/16");
    rib.sync_static(vec![(prefix, 0, via(2)), (prefix, 0, via(3)), (prefix, 0, via(2))]).unwrap();
    assert_eq!(lines(&rib), ["*172.16.0.0/16 Static 0 10.0.0.2%0*1 10.0.0.3%0*1"]);
    rib.sync_static(vec![(prefix, 0, via(3))]).unwrap();
    assert_eq!(lines(&rib), ["*172.16.0.0/16 Static 0 10.0.0.3%0*1"]);
}

#[test]
fn a_full_table_refuses_and_keeps_what_it_holds() {
    let mut rib = RibManager::new(Options::default(), Limits { groups: 2 });
    let (mut writer, reader) = versions(rib.freeze().unwrap());
    let half = |n: u8| format!("10.0.{n}.0/25");
    rib.apply(route(&half(0), Source::Api, 0, Target::Blackhole)).unwrap();
    rib.apply(route(&half(1), Source::Api, 0, Target::Blackhole)).unwrap();
    let refused = rib.apply(route(&half(2), Source::Api, 0, Target::Unreachable));
    assert!(matches!(refused, Err(RibError::Table(_))), "{refused:?}");
    assert!(!rib.contains(net(&half(2)), Source::Api));
    assert_eq!(rib.stats().refused, 1);
    assert_eq!(rib.stats().origins, 1);
    rib.commit(&mut writer);
    let fib = reader.pin();
    let seen = |address: &str| fib.resolve(fib.lookup_one(ip(address)), 0);
    assert_eq!(seen("10.0.1.1"), Resolved::Blackhole);
    assert_eq!(seen("10.0.2.1"), Resolved::NoRoute);
    // Those of a file make room for each other.
    let file = |n: u32| vec![(Prefix::masked(10 << 24 | n << 8, 25), 0)];
    let sync = |rib: &mut RibManager, routes| {
        rib.sync_file(0, 0, routes, Vec::new(), |_, _| Some(Target::Blackhole))
    };
    rib.apply(RibChange::RemoveRoute { prefix: net(&half(1)), source: Source::Api, metric: None })
        .unwrap();
    sync(&mut rib, file(3)).unwrap();
    sync(&mut rib, file(4)).unwrap();
    // A copy is what there was: what a change left half done is not in it.
    let copy = rib.clone();
    let before = lines(&rib);
    assert!(sync(&mut rib, [file(5), file(6)].concat()).is_err());
    assert_ne!(lines(&rib), before);
    rib = copy;
    assert_eq!(lines(&rib), before);
    sync(&mut rib, Vec::new()).unwrap();
    rib.apply(route(&half(1), Source::Api, 0, Target::Blackhole)).unwrap();
    rib.commit(&mut writer);
    // An interface's subnet gets in where its address does not.
    assert!(rib.apply(up(0, &["10.5.0.1/24"])).is_err());
    assert!(rib.contains(net("10.5.0.0/24"), Source::Connected));
}

#[test]
fn spread_is_even_and_stays_as_it_is() {
    let mut counts = [0; 8];
    for n in 0..8000u32 {
        let prefix = ipnet::Ipv4Net::new((n << 8).into(), 24).unwrap();
        counts[spread(prefix.into(), 8)] += 1;
    }
    assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    let pinned = ["0.0.0.0/0", "10.0.0.0/8", "192.0.2.0/24", "::/0", "2001:db8::/32"]
        .map(|prefix| spread(net(prefix), 16));
    assert_eq!(pinned, [0, 4, 11, 0, 15]); // another hash would move every route
    assert_eq!(spread(net("10.0.0.0/8"), 0), 0);
}
