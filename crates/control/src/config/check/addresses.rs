//! The router's own addresses and its static neighbours.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use ipnet::IpNet;

use crate::config::read::Spans;
use crate::config::types::*;
use crate::config::walk::Walk;

pub(super) fn check(config: &Config, spans: &Spans, walk: &mut Walk<'_>) {
    let mut owners: HashMap<(IpAddr, Option<&str>), &str> = HashMap::new();
    let mut subnets: Vec<(IpNet, &str)> = Vec::new();
    for (port, spans) in config.ports.iter().zip(&spans.ports) {
        for (net, span) in port.addresses.iter().zip(&spans.addresses) {
            let address = net.addr();
            if let Some(why) = not_a_host(*net) {
                walk.error(span.clone(), format!("`{address}` is {why}"))
                    .expected("the address of a host");
                continue;
            }
            // Link-local addresses are each port's own affair.
            let link_local = is_link_local(address);
            let scope = link_local.then_some(port.name.as_str());
            if let Some(other) = owners.insert((address, scope), &port.name) {
                walk.error(
                    span.clone(),
                    format!("`{address}` is an address of port `{other}` too"),
                )
                .expected("each address once");
                continue;
            }
            let overlap = subnets.iter().find(|(other, owner)| {
                *owner != port.name && (other.contains(&net.trunc()) || net.trunc().contains(other))
            });
            if let Some((other, owner)) = overlap {
                let message = format!("subnet {} overlaps {other} of port `{owner}`", net.trunc());
                walk.warning(span.clone(), message)
                    .expected("subnets that do not overlap")
                    .help("the longer prefix gets the packets");
            }
            if !link_local {
                subnets.push((net.trunc(), &port.name));
            }
        }
    }
    neighbours(config, spans, walk);
}

fn neighbours(config: &Config, spans: &Spans, walk: &mut Walk<'_>) {
    let mut known = HashSet::new();
    for (neighbour, place) in config.neighbours.iter().zip(&spans.neighbours) {
        let Neighbour { port: name, address, .. } = neighbour;
        if !place.is_right("port") {
            continue;
        }
        let Some(port) = config.port(name) else {
            unknown_port(config, name, place.at("port"), walk);
            continue;
        };
        if !place.is_right("address") {
            continue;
        }
        let span = place.at("address");
        if !known.insert((name, address)) {
            walk.error(span, format!("neighbour `{address}` on `{name}` is listed twice"))
                .expected("each neighbour once");
        } else if port.addresses.iter().any(|net| net.addr() == *address) {
            walk.error(span, format!("`{address}` is the router's own address"))
                .expected("the address of a neighbour");
        } else if !is_link_local(*address)
            && !port.addresses.iter().any(|net| net.contains(address))
        {
            walk.warning(span, format!("`{address}` is in no subnet of port `{name}`"))
                .expected("an address that packets on this port are sent to");
        }
    }
}

/// Says that a name is not a port's.
pub(super) fn unknown_port(
    config: &Config,
    name: &str,
    span: std::ops::Range<usize>,
    walk: &mut Walk<'_>,
) {
    let names = || config.ports.iter().map(|port| port.name.as_str());
    let mut expected = names().take(8).collect::<Vec<_>>().join(", ");
    if config.ports.len() > 8 {
        expected.push_str(", …");
    }
    walk.error(span, format!("unknown port `{name}`"))
        .nearest(name, names())
        .expected(format!("one of {expected}"));
}

/// Unicast that is valid on its link only.
pub(super) fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// Why an address, in its subnet, is not a host's.
pub(super) fn not_a_host(net: IpNet) -> Option<&'static str> {
    let address = net.addr();
    match address {
        _ if address.is_unspecified() => Some("no address"),
        _ if address.is_loopback() => Some("a loopback address"),
        _ if address.is_multicast() => Some("a multicast address"),
        // RFC 3021: a /31 has no network and no broadcast address.
        IpAddr::V4(_) if net.prefix_len() >= 31 => None,
        IpAddr::V4(_) if address == net.network() => Some("the network's own address"),
        IpAddr::V4(_) if address == net.broadcast() => Some("the network's broadcast address"),
        _ => None,
    }
}
