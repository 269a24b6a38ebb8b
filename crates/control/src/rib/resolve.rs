//! From what a source says to what the forwarding tables need: legs become paths.

use std::collections::HashMap;
use std::net::IpAddr;

use ipnet::IpNet;
use lookup::Address;
use lookup::fib::{FibBuilder, Interface, Path, RouteTarget};

use super::types::{Leg, Target};

/// What a target comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Resolution {
    /// `None`: it does not resolve.
    pub(super) target: Option<RouteTarget>,
    /// Whether it depends on other routes: it changes with them, and no further route may depend
    /// on it.
    pub(super) recursive: bool,
}

/// Resolves `target`; `through` gives the paths of the longest route for a gateway, if that resolves by itself.
pub(super) fn resolve(
    target: &Target,
    fib: &FibBuilder,
    objects: &HashMap<u32, Target>,
    through: impl Fn(IpAddr) -> Option<Vec<Path>>,
) -> Resolution {
    let target = match target {
        Target::Object(id) => objects.get(id),
        target => Some(target),
    };
    let direct = |target| Resolution { target: Some(target), recursive: false };
    match target {
        None | Some(Target::Object(_)) => Resolution { target: None, recursive: false },
        Some(Target::Blackhole) => direct(RouteTarget::Blackhole),
        Some(Target::Unreachable) => direct(RouteTarget::Unreachable),
        Some(Target::Local(interface)) => direct(RouteTarget::Local(*interface)),
        Some(Target::Broadcast(interface)) => direct(RouteTarget::Broadcast(*interface)),
        Some(Target::Legs(legs)) => resolve_legs(legs, fib, through),
    }
}

fn resolve_legs(
    legs: &[Leg],
    fib: &FibBuilder,
    through: impl Fn(IpAddr) -> Option<Vec<Path>>,
) -> Resolution {
    let mut paths = Vec::with_capacity(legs.len());
    let mut recursive = false;
    for leg in legs {
        let weight = leg.weight.max(1);
        match (leg.interface, leg.gateway) {
            (Some(interface), gateway) => {
                let up = fib.interface(interface).is_some_and(|record| record.up);
                paths.extend(up.then_some(Path { interface, gateway, weight }));
            }
            (None, Some(gateway)) => match holder(gateway, fib) {
                Holder::Subnet(interface) => {
                    paths.push(Path { interface, gateway: Some(gateway), weight });
                }
                Holder::Nobody => {
                    recursive = true;
                    for path in through(gateway).unwrap_or_default() {
                        paths.push(Path {
                            gateway: path.gateway.or(Some(gateway)),
                            weight: weight.saturating_mul(path.weight.max(1)),
                            ..path
                        });
                    }
                }
                Holder::Ourselves => {}
            },
            (None, None) => {}
        }
    }
    let target = (!paths.is_empty()).then_some(RouteTarget::Paths(paths));
    Resolution { target, recursive }
}

/// Who holds an address.
pub(super) enum Holder {
    /// The subnet of this interface, which is up.
    Subnet(u16),
    /// It is an address of our own, or could be anywhere.
    Ourselves,
    /// No subnet of ours.
    Nobody,
}

/// The interface whose longest subnet holds `gateway`.
fn holder(gateway: IpAddr, fib: &FibBuilder) -> Holder {
    let mut best: Option<(u8, u16)> = None;
    let mut offer = |len: u8, index: u16| {
        if best.is_none_or(|(other, _)| other < len) {
            best = Some((len, index));
        }
    };
    match gateway {
        // On every link there is one: it needs its interface named.
        IpAddr::V6(v6) if v6.is_unicast_link_local() => return Holder::Ourselves,
        _ if gateway.is_unspecified() || gateway.is_multicast() => return Holder::Ourselves,
        IpAddr::V4(v4) => {
            for (index, interface) in up(fib) {
                for &(own, len) in &interface.addresses4 {
                    if own == v4.to_bits() {
                        return Holder::Ourselves;
                    }
                    if own.common_len(v4.to_bits()) >= len {
                        offer(len, index);
                    }
                }
            }
        }
        IpAddr::V6(v6) => {
            for (index, interface) in up(fib) {
                for &([high, low], len) in &interface.addresses6 {
                    let own = u128::from(high) << 64 | u128::from(low);
                    if own == v6.to_bits() {
                        return Holder::Ourselves;
                    }
                    if own.common_len(v6.to_bits()) >= len {
                        offer(len, index);
                    }
                }
            }
        }
    }
    best.map_or(Holder::Nobody, |(_, index)| Holder::Subnet(index))
}

fn up(fib: &FibBuilder) -> impl Iterator<Item = (u16, &Interface)> {
    fib.interfaces().filter(|(_, interface)| interface.up)
}

/// Which of `count` next hops a prefix of a file gets under `spread = N`: the same in every run and
/// on every machine. 0 for a `count` of 0.
pub fn spread(prefix: IpNet, count: usize) -> usize {
    let bits = match prefix {
        IpNet::V4(v4) => u128::from(v4.network().to_bits()),
        IpNet::V6(v6) => v6.network().to_bits(),
    };
    let mut x =
        (bits >> 64) as u64 ^ (bits as u64).rotate_left(32) ^ u64::from(prefix.prefix_len());
    // The finaliser of SplitMix64.
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^= x >> 31;
    ((u128::from(x) * count as u128) >> 64) as usize
}
