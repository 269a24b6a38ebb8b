//! The reference: routes are a list that is scanned, neighbours a map; every lookup must agree,
//! through several versions.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::group::members_by_weight;
use super::*;
use crate::dir24_8::Limits;
use crate::versions::{Reader, Writer, versions};
use crate::{NO_ROUTE, Prefix};

const INTERFACES: u16 = 4;

#[derive(Debug, Clone)]
enum Step {
    Add(u8, u8, RouteTarget),
    Remove(u8, u8),
    Neighbour(u16, u8, Option<u8>),
    Interface(u16, Option<u16>),
    Publish,
}

/// What a packet sees, in a form that the reference can also make.
#[derive(Debug, PartialEq)]
enum Seen {
    NoRoute,
    Adjacency { interface: u16, address: IpAddr, mac: Option<[u8; 6]>, mtu: u16 },
    Connected(u16),
    Local(u16),
    Broadcast(u16),
    Blackhole,
    Unreachable,
    Bad,
}

/// A family of 256 addresses below one base, so that everything overlaps.
trait Universe: Family {
    const LENS: &'static [u8];
    fn at(low: u8) -> Self;
    fn ip(self) -> IpAddr;
}

impl Universe for u32 {
    const LENS: &'static [u8] = &[0, 7, 23, 24, 25, 26, 28, 30, 31, 32, 32];
    fn at(low: u8) -> u32 {
        0x0a00_0000 | u32::from(low)
    }
    fn ip(self) -> IpAddr {
        Ipv4Addr::from_bits(self).into()
    }
}

impl Universe for u128 {
    const LENS: &'static [u8] = &[0, 32, 64, 120, 121, 122, 124, 126, 127, 128, 128];
    fn at(low: u8) -> u128 {
        0x2001_0db8 << 96 | u128::from(low)
    }
    fn ip(self) -> IpAddr {
        Ipv6Addr::from_bits(self).into()
    }
}

struct Twin<A> {
    routes: Vec<(Prefix<A>, RouteTarget)>,
    neighbours: HashMap<(u16, IpAddr), [u8; 6]>,
    mtus: HashMap<u16, u16>,
}

impl<A: Universe> Twin<A> {
    fn resolve(&self, address: A, hash: u32) -> Seen {
        let covers = self.routes.iter().filter(|(prefix, _)| prefix.contains(address));
        let Some((_, target)) = covers.max_by_key(|(prefix, _)| prefix.len()) else {
            return Seen::NoRoute;
        };
        let to = |interface: u16, address: IpAddr| Seen::Adjacency {
            interface,
            address,
            mac: self
                .neighbours
                .get(&(interface, address))
                .copied()
                .filter(|_| self.mtus.contains_key(&interface)),
            mtu: self.mtus.get(&interface).copied().unwrap_or(0),
        };
        match target {
            RouteTarget::Local(i) => Seen::Local(*i),
            RouteTarget::Broadcast(i) => Seen::Broadcast(*i),
            RouteTarget::Blackhole => Seen::Blackhole,
            RouteTarget::Unreachable => Seen::Unreachable,
            RouteTarget::Paths(paths) => match paths.as_slice() {
                [] => Seen::NoRoute,
                [Path { interface, gateway: None, .. }] => {
                    if self.neighbours.contains_key(&(*interface, address.ip())) {
                        to(*interface, address.ip())
                    } else {
                        Seen::Connected(*interface)
                    }
                }
                paths => {
                    let weights: Vec<u32> = paths.iter().map(|path| path.weight).collect();
                    let members = members_by_weight(&weights);
                    let members: Vec<&Path> = (paths.iter().zip(members))
                        .flat_map(|(path, count)| std::iter::repeat_n(path, count))
                        .collect();
                    let index = (u64::from(hash) * members.len() as u64) >> 32;
                    let path = members[index as usize];
                    match path.gateway {
                        Some(gateway) => to(path.interface, gateway),
                        None => Seen::Connected(path.interface),
                    }
                }
            },
        }
    }
}

fn see(fib: &Fib, address: IpAddr, hash: u32) -> Seen {
    match fib.resolve(fib.lookup_one(address), hash) {
        Resolved::NoRoute => Seen::NoRoute,
        Resolved::Connected(i) => Seen::Connected(i),
        Resolved::Local(i) => Seen::Local(i),
        Resolved::Broadcast(i) => Seen::Broadcast(i),
        Resolved::Blackhole => Seen::Blackhole,
        Resolved::Unreachable => Seen::Unreachable,
        Resolved::Bad => Seen::Bad,
        Resolved::Adjacency(a, index) => {
            assert_eq!(fib.adjacency(index), Some(a));
            let ip = match a.family {
                4 => IpAddr::V4(Ipv4Addr::from_bits(a.address[1] as u32)),
                _ => Ipv6Addr::from_bits(u128::from(a.address[0]) << 64 | u128::from(a.address[1]))
                    .into(),
            };
            if ip.is_ipv4() == address.is_ipv4() {
                assert_eq!(fib.neighbour(a.interface, ip), Some((a, index)));
            }
            let tags = usize::from(a.interface % 3) * 4;
            let mut mac = None;
            if a.resolved == 1 {
                let ethertype: &[u8] = if address.is_ipv4() { &[8, 0] } else { &[0x86, 0xdd] };
                assert_eq!(usize::from(a.rewrite_len), 14 + tags);
                assert_eq!(&a.rewrite[12 + tags..14 + tags], ethertype);
                assert_eq!(a.rewrite[11], a.interface as u8);
                assert_eq!(a.tx_port, a.interface / 2);
                mac = a.rewrite.first_chunk().copied();
            }
            Seen::Adjacency { interface: a.interface, address: ip, mac, mtu: a.mtu }
        }
    }
}

fn interface(index: u16, mtu: u16) -> Interface {
    Interface {
        name: format!("if{index}"),
        up: true,
        port: index / 2,
        tags: (0..index % 3).map(|tag| (0x8100, 100 * index + tag)).collect(),
        mac: [2, 0, 0, 0, 0, index as u8],
        mtu,
        ..Interface::default()
    }
}

fn run<A: Universe>(first: Vec<Step>, steps: Vec<Step>) {
    // One that goes over to the other table at its second page of records or group.
    let poptrie = crate::poptrie::Limits { pages: 2 };
    let v4 = V4Table::Auto(crate::auto4::Limits { poptrie, ..Default::default() });
    for tables in
        [RouteTables::default(), Limits::default().into(), RouteTables { v4, ..Default::default() }]
    {
        run_over::<A>(tables, first.clone(), steps.clone());
    }
}

fn run_over<A: Universe>(tables: RouteTables, first: Vec<Step>, steps: Vec<Step>) {
    let mut builder = FibBuilder::new(Options::default(), tables);
    let mut twin: Twin<A> =
        Twin { routes: Vec::new(), neighbours: HashMap::new(), mtus: HashMap::new() };
    for index in 0..INTERFACES {
        builder.set_interface(index, Some(interface(index, 1500)));
        twin.mtus.insert(index, 1500);
    }
    for step in first {
        change(&mut builder, &mut twin, step);
    }
    let (mut writer, reader) = versions(builder.freeze().unwrap());
    compare(&reader, &twin);
    for step in steps {
        match step {
            Step::Publish => publish(&mut builder, &mut writer, &reader, &twin),
            step => change(&mut builder, &mut twin, step),
        }
    }
    publish(&mut builder, &mut writer, &reader, &twin);
    publish(&mut builder, &mut writer, &reader, &twin); // the other copy says the same
    // What has all been taken away leaves nothing behind.
    for (prefix, _) in std::mem::take(&mut twin.routes) {
        assert!(builder.remove_route(prefix));
    }
    for (interface, address) in std::mem::take(&mut twin.neighbours).into_keys() {
        builder.set_neighbour(interface, address, None);
    }
    publish(&mut builder, &mut writer, &reader, &twin);
    assert_eq!(builder.len::<A>(), 0);
    assert!(reader.pin().neighbours.is_empty());
    let fib = reader.pin();
    assert!(fib.next_hops.iter().all(|hop| *hop == NextHop::default()));
    assert!(fib.adjacencies.iter().all(|a| *a == Adjacency::default()));
}

fn change<A: Universe>(builder: &mut FibBuilder, twin: &mut Twin<A>, step: Step) {
    match step {
        Step::Add(low, len, target) => {
            let prefix = Prefix::masked(A::at(low), len);
            builder.add_route(prefix, &target).unwrap();
            twin.routes.retain(|(other, _)| *other != prefix);
            twin.routes.push((prefix, target));
        }
        Step::Remove(low, len) => {
            let prefix = Prefix::masked(A::at(low), len);
            let there = twin.routes.iter().any(|(other, _)| *other == prefix);
            assert_eq!(builder.remove_route(prefix), there);
            twin.routes.retain(|(other, _)| *other != prefix);
        }
        Step::Neighbour(interface, low, mac) => {
            let address = A::at(low).ip();
            let mac = mac.map(|last| [6, 0, 0, 0, 0, last]);
            builder.set_neighbour(interface, address, mac);
            match mac {
                Some(mac) => twin.neighbours.insert((interface, address), mac),
                None => twin.neighbours.remove(&(interface, address)),
            };
        }
        Step::Interface(index, mtu) => {
            builder.set_interface(index, mtu.map(|mtu| interface(index, mtu)));
            match mtu {
                Some(mtu) => twin.mtus.insert(index, mtu),
                None => twin.mtus.remove(&index),
            };
        }
        Step::Publish => {}
    }
    twin.routes.sort_by_key(|(prefix, _)| *prefix);
    let listed: Vec<Prefix<A>> = builder.routes(None).map(|(prefix, _)| prefix).collect();
    assert_eq!(listed, twin.routes.iter().map(|(prefix, _)| *prefix).collect::<Vec<_>>());
}

fn publish<A: Universe>(
    builder: &mut FibBuilder,
    writer: &mut Writer<Fib>,
    reader: &Reader<Fib>,
    twin: &Twin<A>,
) {
    writer.publish(builder.take_patches());
    compare(reader, twin);
}

fn compare<A: Universe>(reader: &Reader<Fib>, twin: &Twin<A>) {
    let fib = reader.pin();
    for low in 0..=255 {
        for hash in [0, 0x4000_0001, 0x9e37_79b9, u32::MAX] {
            let address = A::at(low);
            assert_eq!(see(&fib, address.ip(), hash), twin.resolve(address, hash), "{low} {hash}");
        }
    }
}

fn gateway<A: Universe>() -> impl Strategy<Value = Option<IpAddr>> + Clone {
    prop_oneof![
        4 => Just(None),
        4 => any::<u8>().prop_map(|low| Some(A::at(low).ip())),
        1 => (0u16..3).prop_map(|n| Some(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, n).into())),
    ]
}

fn target<A: Universe>() -> impl Strategy<Value = RouteTarget> {
    let path = (0..INTERFACES, gateway::<A>(), 0u32..300)
        .prop_map(|(interface, gateway, weight)| Path { interface, gateway, weight });
    prop_oneof![
        12 => prop::collection::vec(path.clone(), 1).prop_map(RouteTarget::Paths),
        4 => prop::collection::vec(path, 0..5).prop_map(RouteTarget::Paths),
        1 => (0..INTERFACES).prop_map(RouteTarget::Local),
        1 => (0..INTERFACES).prop_map(RouteTarget::Broadcast),
        1 => Just(RouteTarget::Blackhole),
        1 => Just(RouteTarget::Unreachable),
    ]
}

fn steps<A: Universe>(max: usize) -> impl Strategy<Value = Vec<Step>> {
    let len = || prop::sample::select(A::LENS);
    // Few values, so that steps meet.
    let low = || prop_oneof![0u8..8, any::<u8>()];
    let step = prop_oneof![
        6 => (low(), len(), target::<A>()).prop_map(|(low, len, t)| Step::Add(low, len, t)),
        4 => (low(), len()).prop_map(|(low, len)| Step::Remove(low, len)),
        5 => (0..INTERFACES, low(), prop::option::weighted(0.7, any::<u8>()))
            .prop_map(|(i, low, mac)| Step::Neighbour(i, low, mac)),
        1 => (0..INTERFACES, prop::option::of(576u16..9000))
            .prop_map(|(i, mtu)| Step::Interface(i, mtu)),
        2 => Just(Step::Publish),
    ];
    prop::collection::vec(step, 0..max)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn v4_agrees_with_its_twin(first in steps::<u32>(12), then in steps::<u32>(60)) {
        run::<u32>(first, then);
    }

    #[test]
    fn v6_agrees_with_its_twin(first in steps::<u128>(12), then in steps::<u128>(60)) {
        run::<u128>(first, then);
    }
}

#[test]
fn numbers_out_of_range_are_bad_and_nothing_more() {
    let mut builder = FibBuilder::new(Options::default(), Limits::default());
    builder.set_interface(0, Some(interface(0, 1500)));
    let mut fib = builder.freeze().unwrap();
    assert_eq!(fib.resolve(NO_ROUTE, 0), Resolved::NoRoute);
    for id in [1, 77, u32::MAX] {
        assert_eq!(fib.resolve(id, u32::MAX), Resolved::Bad);
        assert_eq!(fib.next_hop(id), NextHop::default());
        assert!(!fib.leads_to(id, 0));
    }
    fib.next_hops.push(NextHop { kind: NextHopKind::Group, pad: 0, count: 4, first: u32::MAX });
    assert_eq!(fib.resolve(1, u32::MAX), Resolved::Bad);
    fib.next_hops.push(NextHop { kind: NextHopKind::Adjacency, pad: 0, count: 1, first: 9 });
    assert_eq!(fib.resolve(2, 0), Resolved::Bad);
    assert_eq!(fib.interface(9), None);
    assert!(builder.freeze().is_err());
}

#[test]
fn frames_belong_to_interfaces_by_port_and_tags() {
    let mut builder = FibBuilder::new(Options::default(), Limits::default());
    let tagged = |port, tags: &[u16]| Interface {
        port,
        tags: tags.iter().map(|vlan| (0x8100, *vlan)).collect(),
        ..Interface::default()
    };
    for (index, record) in
        [tagged(0, &[]), tagged(1, &[]), tagged(0, &[100]), tagged(0, &[100, 7]), tagged(1, &[7])]
            .into_iter()
            .enumerate()
    {
        builder.set_interface(index as u16, Some(record));
    }
    let fib = builder.freeze().unwrap();
    for (port, count, tci, interface) in [
        (0, 0, [0, 0], Some(0)),
        (1, 0, [100, 0], Some(1)),
        (2, 0, [0, 0], Some(2)), // a number that is not a port: the caller's defect, no panic
        (9, 0, [0, 0], None),
        (0, 1, [100, 0], Some(2)),
        (0, 1, [0xe064, 0], Some(2)), // with a priority
        (0, 1, [0xe000, 0], Some(0)), // a priority alone
        (0, 1, [100, 7], Some(2)),    // what is behind the count does not matter
        (0, 2, [100, 7], Some(3)),
        (0, 2, [100, 8], None),
        (0, 2, [0, 100], Some(2)),
        (1, 1, [100, 0], None),
        (1, 1, [7, 0], Some(4)),
        (3, 1, [7, 0], None),
    ] {
        assert_eq!(fib.classify(port, count, tci), interface, "{port} {count} {tci:?}");
    }
}

#[test]
fn reverse_path_sees_all_members() {
    let mut builder = FibBuilder::new(Options::default(), Limits::default());
    let path = |interface, gateway: Option<IpAddr>| Path { interface, gateway, weight: 1 };
    let via: IpAddr = "10.0.0.1".parse().unwrap();
    let paths = vec![path(1, Some(via)), path(2, None)];
    builder.add_route(Prefix::<u32>::default_route(), &RouteTarget::Paths(paths)).unwrap();
    let on_link = RouteTarget::Paths(vec![path(3, None)]);
    builder.add_route("10.0.0.0/8".parse::<Prefix<u32>>().unwrap(), &on_link).unwrap();
    let fib = builder.freeze().unwrap();
    let leads = |address: &str| -> Vec<u16> {
        let id = fib.lookup_one(address.parse().unwrap());
        (0..5).filter(|i| fib.leads_to(id, *i)).collect()
    };
    assert_eq!(leads("192.0.2.1"), [1, 2]);
    assert_eq!(leads("10.1.1.1"), [3]);
    assert_eq!(leads("2001:db8::1"), [0u16; 0]);
}

#[test]
fn a_neighbour_that_changes_is_one_record() {
    let mut builder = FibBuilder::new(Options::default(), Limits::default());
    builder.set_interface(0, Some(interface(0, 1500)));
    let gateway: IpAddr = "10.0.0.1".parse().unwrap();
    let target = RouteTarget::Paths(vec![Path { interface: 0, gateway: Some(gateway), weight: 1 }]);
    for third in 0..100 {
        let prefix = Prefix::<u32>::masked(0x0b00_0000 | third << 8, 24);
        builder.add_route(prefix, &target).unwrap();
    }
    builder.freeze().unwrap();
    builder.set_neighbour(0, gateway, Some([2; 6]));
    builder.take_patches();
    builder.set_neighbour(0, gateway, Some([4; 6]));
    let patches = builder.take_patches();
    assert!(matches!(patches.as_slice(), [FibPatch::Adjacency(0, a)] if a.rewrite[0] == 4));
    builder.set_neighbour(0, gateway, Some([4; 6]));
    assert!(builder.take_patches().is_empty());
}

#[test]
fn loading_equals_inserting() {
    let routes: Vec<(Prefix<u32>, u8)> = (0..2000u32)
        .map(|n| {
            let x = n.wrapping_mul(0x9e37_79b9);
            (Prefix::masked(x, 8 + (n % 25) as u8), (x & 3) as u8)
        })
        .collect();
    let target = |n: u8| {
        let gateway = Some(Ipv4Addr::new(10, 0, 0, n).into());
        RouteTarget::Paths(vec![Path { interface: 0, gateway, weight: 1 }])
    };
    let mut one = FibBuilder::new(Options::default(), Limits::default());
    let mut many = FibBuilder::new(Options::default(), Limits::default());
    let ids: Vec<_> = (0..4).map(|n| many.create_hop::<u32>(&target(n)).unwrap()).collect();
    for (prefix, n) in &routes {
        one.add_route(*prefix, &target(*n)).unwrap();
    }
    let (early, late) = routes.split_at(300);
    for (prefix, n) in early {
        many.insert(*prefix, ids[usize::from(*n)]).unwrap();
    }
    many.load(late.iter().map(|(p, n)| (*p, ids[usize::from(*n)])).collect()).unwrap();
    let (one, many) = (one.freeze().unwrap(), many.freeze().unwrap());
    for n in 0..20_000u32 {
        let address = IpAddr::V4(Ipv4Addr::from_bits(n.wrapping_mul(0x85eb_ca6b)));
        assert_eq!(see(&one, address, n), see(&many, address, n), "{address}");
    }
}
