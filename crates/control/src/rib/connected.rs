//! The routes that an interface's addresses make.

use lookup::Prefix;
use lookup::fib::Interface;

use super::types::Target;

/// A connected route: prefix, metric, target.
pub(super) type Connected<A> = (Prefix<A>, u32, Target);

/// Of the IPv4 addresses: each one itself, its subnet, and the subnet's broadcast address, which a
/// /31 (RFC 3021) and a /32 do not have.
pub(super) fn connected4(index: u16, interface: Option<&Interface>) -> Vec<Connected<u32>> {
    let mut routes = Vec::new();
    for &(address, len) in up(interface).map_or(&[][..], |i| &i.addresses4) {
        let subnet = Prefix::masked(address, len);
        routes.push((Prefix::masked(address, 32), OWN, Target::Local(index)));
        if len < 32 {
            routes.push((subnet, OWN, Target::on(index)));
        }
        if len < 31 {
            let last = Prefix::masked(subnet.last(), 32);
            routes.push((last, IMPLIED, Target::Broadcast(index)));
        }
    }
    dedup(routes)
}

/// Of the IPv6 addresses: each one itself, its subnet, and the subnet-router anycast address
/// (RFC 4291 section 2.6.1), which a /127 (RFC 6164) and a /128 do not have.
pub(super) fn connected6(index: u16, interface: Option<&Interface>) -> Vec<Connected<u128>> {
    let mut routes = Vec::new();
    for &([high, low], len) in up(interface).map_or(&[][..], |i| &i.addresses6) {
        let address = u128::from(high) << 64 | u128::from(low);
        let subnet = Prefix::masked(address, len);
        routes.push((Prefix::masked(address, 128), OWN, Target::Local(index)));
        if len < 128 {
            routes.push((subnet, OWN, Target::on(index)));
        }
        if len < 127 {
            let anycast = Prefix::masked(subnet.addr(), 128);
            routes.push((anycast, IMPLIED, Target::Local(index)));
        }
    }
    dedup(routes)
}

// An address that one subnet implies may be another one's own.
const OWN: u32 = 0;
const IMPLIED: u32 = 1;

fn up(interface: Option<&Interface>) -> Option<&Interface> {
    interface.filter(|interface| interface.up)
}

fn dedup<A: lookup::Address>(routes: Vec<Connected<A>>) -> Vec<Connected<A>> {
    let mut once: Vec<Connected<A>> = Vec::with_capacity(routes.len());
    for route in routes {
        // Own before implied, of the same prefix and target.
        match once.iter_mut().find(|other| other.0 == route.0 && other.2 == route.2) {
            Some(other) => other.1 = other.1.min(route.1),
            None => once.push(route),
        }
    }
    once
}
