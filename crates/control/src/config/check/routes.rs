//! Where routes lead.

use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::Range;

use ipnet::IpNet;

use super::addresses::{is_link_local, not_a_host, unknown_port};
use crate::config::next_hop::NextHop;
use crate::config::read::Spans;
use crate::config::types::*;
use crate::config::walk::Walk;

pub(super) fn check(config: &Config, spans: &Spans, walk: &mut Walk<'_>) {
    let mut seen: HashMap<(IpNet, u32), usize> = HashMap::new();
    for (route, spans) in config.routes.iter().zip(&spans.routes) {
        let span = spans.keys.at("prefix");
        let line = walk.line(span.start);
        if let Some(first) = seen.insert((route.prefix, route.metric), line) {
            let message = format!("the route to {} is on line {first} too", route.prefix);
            walk.error(span, message)
                .expected("each prefix once, or another `metric`")
                .help("for equal-cost paths: via = [\"…\", \"…\"]");
        }
        let v4 = route.prefix.addr().is_ipv4();
        for (hop, span) in &spans.next_hops {
            if hop.carries(v4) {
                next_hop(config, hop, span, walk);
            } else {
                let family = if v4 { "IPv4" } else { "IPv6" };
                walk.error(span.clone(), format!("`{hop}` for the prefix {}", route.prefix))
                    .expected(format!("an {family} address, or a port"));
            }
        }
    }
    for spans in &spans.route_files {
        // Next hops that `spread` made are in one place: one finding is enough.
        let mut wrong: Option<&Range<usize>> = None;
        for (hop, span) in &spans.next_hops {
            if wrong != Some(span) && !next_hop(config, hop, span, walk) {
                wrong = Some(span);
            }
        }
    }
}

/// Whether packets can leave by `hop`.
fn next_hop(config: &Config, hop: &NextHop, span: &Range<usize>, walk: &mut Walk<'_>) -> bool {
    match hop {
        NextHop::Blackhole | NextHop::Unreachable => true,
        NextHop::Group(members) => {
            let v4 = members.iter().all(|(member, _)| member.carries(true));
            let v6 = members.iter().all(|(member, _)| member.carries(false));
            if !v4 && !v6 {
                walk.error(span.clone(), format!("`{hop}` has members of both families"))
                    .expected("IPv4 or IPv6 members");
                return false;
            }
            members.iter().all(|(member, _)| next_hop(config, member, span, walk))
        }
        NextHop::Port(name) => {
            let known = config.port(name).is_some();
            if !known {
                unknown_port(config, name, span.clone(), walk);
            }
            known
        }
        NextHop::Address { port: Some(name), .. } if config.port(name).is_none() => {
            unknown_port(config, name, span.clone(), walk);
            false
        }
        NextHop::Address { address, port } => {
            neighbour(config, *address, port.as_deref(), span, walk)
        }
    }
}

fn neighbour(
    config: &Config,
    address: IpAddr,
    port: Option<&str>,
    span: &Range<usize>,
    walk: &mut Walk<'_>,
) -> bool {
    let nets = || config.ports.iter().flat_map(|port| &port.addresses);
    if nets().any(|net| net.addr() == address) {
        walk.error(span.clone(), format!("`{address}` is the router's own address"))
            .expected("the address of a neighbour");
        return false;
    }
    let home = nets().filter(|net| net.contains(&address)).max_by_key(|net| net.prefix_len());
    let in_subnet = home.map_or(IpNet::from(address), |home| {
        // The subnet's length with the neighbour's address; the length is the subnet's own.
        IpNet::new(address, home.prefix_len()).unwrap_or(*home)
    });
    if let Some(why) = not_a_host(in_subnet) {
        walk.error(span.clone(), format!("`{address}` is {why}"))
            .expected("the address of a neighbour");
        return false;
    }
    // Every link has fe80::/10: a subnet of it says nothing.
    let needs_port = is_link_local(address) && (address.is_ipv6() || home.is_none());
    if port.is_some() || home.is_some() && !needs_port {
        return true;
    }
    if needs_port {
        walk.error(span.clone(), format!("`{address}` is link-local, its port is unknown"))
            .expected(format!("`{address}%PORT`"));
        return false;
    }
    let message = format!("`{address}` is in no subnet of a port");
    let expected = "a neighbour in a port's `addresses`";
    if config.router.kernel {
        walk.warning(span.clone(), message)
            .expected(expected)
            .help("the route waits until the kernel gives a port such an address");
    } else {
        walk.error(span.clone(), message)
            .expected(expected)
            .help(format!("if it is on the link anyway: `{address}%PORT`"));
    }
    false
}
