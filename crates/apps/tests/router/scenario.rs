//! Configurations, as the reference has them, and the tables that are made of them.

use std::net::IpAddr;

use apps::router::reference::Reference;
use lookup::Prefix;
use lookup::dir24_8::Limits;
use lookup::fib::{Fib, FibBuilder, Interface, Options, Path, RouteTables, RouteTarget};

/// Makes `address/len` to number and length.
pub fn subnet(text: &str) -> (u128, u8) {
    let (address, len) = text.split_once('/').expect("ADDRESS/LENGTH");
    let address = match address.parse().expect("an address") {
        IpAddr::V4(v4) => v4.to_bits().into(),
        IpAddr::V6(v6) => v6.to_bits(),
    };
    (address, len.parse().expect("a length"))
}

/// An interface that is up, with these own addresses.
pub fn interface(index: u16, port: u16, mtu: u16, own: &[&str]) -> Interface {
    let mut interface = Interface {
        name: format!("if{index}"),
        up: true,
        port,
        mac: [2, 0, 0, 0, 0x10, index as u8],
        mtu,
        ..Interface::default()
    };
    for text in own {
        let (address, len) = subnet(text);
        if text.contains(':') {
            interface.addresses6.push(([(address >> 64) as u64, address as u64], len));
        } else {
            interface.addresses4.push((address as u32, len));
        }
    }
    interface
}

/// Adds `interface` with what follows from its addresses: own addresses, broadcasts, subnets.
pub fn add_interface(reference: &mut Reference, interface: Interface) {
    let index = reference.interfaces.len() as u16;
    let link = RouteTarget::Paths(vec![Path { interface: index, gateway: None, weight: 1 }]);
    for &(own, len) in &interface.addresses4 {
        let own = u128::from(own);
        add_route4(reference, own, 32, RouteTarget::Local(index));
        if len < 31 {
            let broadcast = own | u128::from(u32::MAX >> len);
            add_route4(reference, broadcast, 32, RouteTarget::Broadcast(index));
        }
        add_route4(reference, own, len, link.clone());
    }
    for &(own, len) in &interface.addresses6 {
        let own = u128::from(own[0]) << 64 | u128::from(own[1]);
        if own >> 118 != 0x3fa {
            add_route6(reference, own, 128, RouteTarget::Local(index));
            add_route6(reference, own, len, link.clone());
        }
    }
    reference.interfaces.push(Some(interface));
}

/// Of equal prefixes the first one stays.
pub fn add_route4(reference: &mut Reference, address: u128, len: u8, target: RouteTarget) {
    let prefix = Prefix::masked(address as u32, len).addr().into();
    if !reference.routes4.iter().any(|route| (route.0, route.1) == (prefix, len)) {
        reference.routes4.push((prefix, len, target));
    }
}

/// Of equal prefixes the first one stays.
pub fn add_route6(reference: &mut Reference, address: u128, len: u8, target: RouteTarget) {
    let prefix = Prefix::masked(address, len).addr();
    if !reference.routes6.iter().any(|route| (route.0, route.1) == (prefix, len)) {
        reference.routes6.push((prefix, len, target));
    }
}

pub fn add_route(reference: &mut Reference, prefix: &str, target: RouteTarget) {
    let (address, len) = subnet(prefix);
    if prefix.contains(':') {
        add_route6(reference, address, len, target);
    } else {
        add_route4(reference, address, len, target);
    }
}

pub fn via(hops: &[(u16, &str)]) -> RouteTarget {
    let path = |&(interface, gateway): &(u16, &str)| Path {
        interface,
        gateway: Some(gateway.parse().expect("an address")),
        weight: 1,
    };
    RouteTarget::Paths(hops.iter().map(path).collect())
}

/// Tables of either kind, in turn.
fn tables(turn: usize) -> RouteTables {
    if turn.is_multiple_of(2) { RouteTables::default() } else { Limits::default().into() }
}

/// The builder of a reference's tables.
pub fn builder(reference: &Reference) -> FibBuilder {
    let mut builder = FibBuilder::new(reference.options, tables(reference.routes4.len()));
    for (index, interface) in (0u16..).zip(&reference.interfaces) {
        builder.set_interface(index, interface.clone());
    }
    for (address, len, target) in &reference.routes4 {
        let prefix = Prefix::<u32>::masked(*address as u32, *len);
        builder.add_route(prefix, target).expect("room");
    }
    for (address, len, target) in &reference.routes6 {
        builder.add_route(Prefix::<u128>::masked(*address, *len), target).expect("room");
    }
    for &(interface, address, mac) in &reference.neighbours {
        builder.set_neighbour(interface, address, Some(mac));
    }
    builder
}

pub fn fib(reference: &Reference) -> Fib {
    builder(reference).freeze().expect("tables")
}

/// Errors without limit, and room for all that waits.
pub fn unlimited() -> Options {
    Options {
        icmp_rate: 1_000_000_000,
        icmp_burst: u32::MAX,
        neighbour_queue_packets: 1000,
        neighbour_queue_total_packets: 1000,
        ..Options::default()
    }
}

/// Two ports, `10.0.1.1/24` and `10.0.2.1/24` (and `fd00:1::1/64`, `fd00:2::1/64`, a link-local
/// address each), MTU 1500, a host `.2` on each that is known, default routes by the second.
pub fn two_ports(options: Options) -> Reference {
    let mut reference = Reference { options, ..Reference::default() };
    for n in 1..=2u16 {
        let own = [&format!("10.0.{n}.1/24"), &format!("fd00:{n}::1/64"), &format!("fe80::{n}/64")];
        let own = own.map(String::as_str);
        add_interface(&mut reference, interface(n - 1, n - 1, 1500, &own));
        for host in [format!("10.0.{n}.2"), format!("fd00:{n}::2")] {
            let mac = [2, 0, 0, 0, n as u8, 2];
            reference.neighbours.push((n - 1, host.parse().expect("an address"), mac));
        }
    }
    add_route(&mut reference, "0.0.0.0/0", via(&[(1, "10.0.2.2")]));
    add_route(&mut reference, "::/0", via(&[(1, "fd00:2::2")]));
    reference
}

/// MAC of port `port` of [`two_ports`].
pub const fn port_mac(port: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0x10, port]
}

/// MAC of the host on port `port` of [`two_ports`].
pub const fn host_mac(port: u8) -> [u8; 6] {
    [2, 0, 0, 0, port + 1, 2]
}

/// A frame from the host on the first port to the router.
pub fn frame() -> testkit::frames::Frame {
    testkit::frames::Frame::new().macs(host_mac(0), port_mac(0))
}
