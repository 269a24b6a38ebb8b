//! Rules of address translation.

use std::net::IpAddr;

use ipnet::IpNet;

use super::addresses::unknown_port;
use crate::config::read::Spans;
use crate::config::types::*;
use crate::config::walk::{Place, Walk};

/// Outside addresses of a rule at most: each has maps of its ports.
const ADDRESSES_MAX: u32 = 1024;

/// Lengths of prefixes that hold IPv4 addresses (RFC 6052 §2.2).
const NAT64_LENGTHS: [u8; 6] = [32, 40, 48, 56, 64, 96];

pub(super) fn check(config: &Config, spans: &Spans, walk: &mut Walk<'_>) {
    for (number, (rule, place)) in config.nat.iter().zip(&spans.nat).enumerate() {
        for (at, name) in rule.outside.iter().enumerate() {
            if config.port(name).is_none() {
                unknown_port(config, name, place.at("outside"), walk);
            } else if rule.outside[..at].contains(name) {
                walk.error(place.at("outside"), format!("`{name}` is listed twice"))
                    .expected("each port once");
            }
        }
        if rule.outside.is_empty() && place.has("outside") && place.is_right("outside") {
            walk.error(place.at("outside"), "`outside` is empty").expected("names of ports");
        }
        for address in rule.destination.iter().filter(|own| !is_of_host(**own)) {
            walk.error(place.at("destination"), format!("{address} is not an address of a host"))
                .expected("an address that packets from outside are sent to");
        }
        if !place.is_right("kind") {
            continue;
        }
        keys(rule, place, walk);
        target(rule, place, walk);
        answers(config, rule, place, walk);
        if config.nat[..number].iter().any(|other| forwards_the_same(other, rule)) {
            let key = if place.has("port") { "port" } else { "kind" };
            walk.error(place.at(key), "an earlier rule forwards these packets already")
                .expected("each outside address, protocol and port in one rule");
        }
        if let Some(other) = config.nat[..number].iter().position(|other| takes_all_of(other, rule))
        {
            let message = format!("rule {} takes all packets of this one", other + 1);
            walk.warning(place.at("kind"), message)
                .help("it never matches: move it before that rule, or remove it");
        }
    }
}

/// Keys that the kind of a rule lacks, or that have no effect.
fn keys(rule: &NatRule, place: &Place, walk: &mut Walk<'_>) {
    use NatKind::{Destination, Deterministic, Masquerade, Nat64, Source, Static};
    let needs: &[&str] = match rule.kind {
        Masquerade => &["outside"],
        Source | Destination | Nat64 => &["to"],
        Static | Deterministic => &["source", "to"],
    };
    for key in needs.iter().filter(|key| !place.has(key)) {
        walk.error(place.header(), format!("a `{}` rule without `{key}`", word(rule.kind)))
            .expected(format!("`{key}`"));
    }
    let takes: &[&str] = match rule.kind {
        Masquerade => &["outside", "source", "protocol", "ports"],
        Source | Deterministic => &["outside", "source", "protocol", "to", "ports"],
        Destination => &["outside", "destination", "protocol", "port", "to"],
        Static => &["outside", "source", "to"],
        Nat64 => &["source", "protocol", "to", "ports", "prefix"],
    };
    let all = ["outside", "source", "destination", "protocol", "port", "to", "ports", "prefix"];
    for key in all.iter().filter(|key| place.has(key) && !takes.contains(key)) {
        let kind = word(rule.kind);
        walk.error(place.at(key), format!("`{key}` has no effect in a `{kind}` rule"))
            .expected(format!("one of {}", takes.join(", ")));
    }
    if rule.kind == Destination && !place.has("outside") && !place.has("destination") {
        walk.error(place.header(), "a `destination` rule without outside addresses")
            .expected("`destination`, or `outside` for the addresses of ports");
    }
    let has_ports = matches!(rule.protocol, Some(NatProtocol::Tcp | NatProtocol::Udp));
    if rule.kind == Destination && place.has("port") && !has_ports {
        walk.error(place.at("port"), "`port` without a protocol that has ports")
            .expected("protocol = \"tcp\" or \"udp\"");
    }
    if rule.kind == Nat64 && !NAT64_LENGTHS.contains(&rule.prefix.prefix_len()) {
        let message = format!("{} cannot hold IPv4 addresses", rule.prefix);
        walk.error(place.at("prefix"), message)
            .expected("an IPv6 prefix of 32, 40, 48, 56, 64 or 96 bits (RFC 6052)");
    }
    let v6_sources = rule.source.iter().any(|net| matches!(net, IpNet::V6(_)));
    let is_v6 = rule.kind == Nat64;
    let is_mixed =
        if is_v6 { rule.source.iter().any(|net| matches!(net, IpNet::V4(_))) } else { v6_sources };
    if is_mixed && takes.contains(&"source") {
        let family = if is_v6 { "IPv6" } else { "IPv4" };
        walk.error(
            place.at("source"),
            format!("a `{}` rule has {family} sources", word(rule.kind)),
        )
        .expected(format!("{family} prefixes"));
    }
}

/// Whether a firewall that asks for states lets answers of NAT64 through in a gateway of IPsec: there, packets of IPv6 hosts become
/// IPv4 before the firewall, and their answers IPv6, so these belong to no flow.
fn answers(config: &Config, rule: &NatRule, place: &Place, walk: &mut Walk<'_>) {
    let rules = config.firewall.rules.iter().filter_map(|entry| match entry {
        RuleEntry::One(own) => Some(&own.conditions),
        RuleEntry::File(_) => None,
    });
    let asks = { rules.clone() }.any(|own| own.state.is_some());
    let accepts = { rules }.any(|own| own.state.is_none() && own.src == Some(rule.prefix));
    let is_followed = {
        config.in_use().any(|own| ["flow", "firewall", "esp_out"].iter().all(|kind| own.has(kind)))
    };
    if rule.kind == NatKind::Nat64 && asks && !accepts && is_followed {
        let message = "with IPsec, a firewall sees the answers to hosts of a `nat64` rule as `new` connections";
        walk.warning(place.header(), message)
            .help(format!("a [[rule]] with src = \"{}\" accepts them", rule.prefix));
    }
}

/// Whether `to` is what the kind of the rule needs.
fn target(rule: &NatRule, place: &Place, walk: &mut Walk<'_>) {
    let (Some(to), true) = (rule.to, place.is_right("to")) else { return };
    let first = match to {
        NatTarget::Net(net) => net.network(),
        NatTarget::Socket(socket) => socket.ip(),
    };
    if !is_of_host(first) && rule.kind != NatKind::Masquerade {
        walk.error(place.at("to"), format!("{first} is not an address of a host"))
            .expected("an address that hosts can have");
        return;
    }
    let problem = match (rule.kind, to) {
        (NatKind::Masquerade, _) => None,
        (_, NatTarget::Net(IpNet::V6(_))) | (_, NatTarget::Socket(std::net::SocketAddr::V6(_))) => {
            Some(("`to` is an IPv6 address".to_owned(), "an IPv4 address"))
        }
        (NatKind::Destination, NatTarget::Socket(to)) => {
            let has_ports = matches!(rule.protocol, Some(NatProtocol::Tcp | NatProtocol::Udp));
            let message = "`to` has a port, and the rule no protocol with ports".to_owned();
            (!has_ports).then_some((message, "protocol = \"tcp\" or \"udp\"")).or_else(|| {
                let ports = rule.port.as_ref().map_or(0, |port| port.0.len());
                let last = usize::from(to.port()) + ports.saturating_sub(1);
                let message = format!("{ports} ports from {} on end at {last}", to.port());
                let expected = "a port such that the last one is 65535 at most";
                (last > usize::from(u16::MAX)).then_some((message, expected))
            })
        }
        (NatKind::Destination, NatTarget::Net(net)) => {
            (net.prefix_len() < 32).then(|| (format!("`to` is the prefix {net}"), "one address"))
        }
        (_, NatTarget::Socket(_)) => Some(("`to` has a port".to_owned(), "an address or a prefix")),
        (NatKind::Static, NatTarget::Net(net)) => match rule.source[..] {
            [source] if source.prefix_len() == net.prefix_len() => None,
            [source] => Some((
                format!("{source} and {net} have different lengths"),
                "two prefixes of the same length",
            )),
            _ => Some(("a `static` rule has one prefix".to_owned(), "one prefix in `source`")),
        },
        (_, NatTarget::Net(net)) => {
            let count = 1u64 << (32 - net.prefix_len().min(32));
            let message = format!("{net} has {count} addresses");
            (count > u64::from(ADDRESSES_MAX))
                .then_some((message, "1024 outside addresses at most"))
        }
    };
    if let Some((message, expected)) = problem {
        walk.error(place.at("to"), message).expected(expected);
        return;
    }
    if rule.kind == NatKind::Deterministic {
        subscribers(rule, to, place, walk);
    }
}

/// Whether a host can have an address, and others can reach it there.
fn is_of_host(address: IpAddr) -> bool {
    let is_reserved = match address {
        IpAddr::V4(own) => own.is_broadcast() || own.octets()[0] == 0,
        IpAddr::V6(own) => own.is_unspecified(),
    };
    !is_reserved && !address.is_loopback() && !address.is_multicast()
}

/// Whether each subscriber has a port.
fn subscribers(rule: &NatRule, to: NatTarget, place: &Place, walk: &mut Walk<'_>) {
    let ([source], NatTarget::Net(net)) = (&rule.source[..], to) else {
        walk.error(place.at("source"), "a `deterministic` rule has one prefix of subscribers")
            .expected("one prefix in `source`");
        return;
    };
    if !matches!(source, IpNet::V4(_)) || source.prefix_len() < 8 {
        walk.error(place.at("source"), format!("{source} cannot be a prefix of subscribers"))
            .expected("an IPv4 prefix of at least 8 bits");
        return;
    }
    let hosts = 1u64 << (32 - source.prefix_len().min(32));
    let addresses = 1u64 << (32 - net.prefix_len().min(32));
    let (sharing, ports) = (hosts.div_ceil(addresses), rule.ports.0.len() as u64);
    if sharing > ports {
        walk.error(
            place.at("to"),
            format!("{sharing} subscribers share an address, which has {ports} ports"),
        )
        .expected("more outside addresses, or a longer prefix of subscribers");
    }
}

fn word(kind: NatKind) -> &'static str {
    crate::config::walk::Word::word(kind)
}

/// Whether rule `a`, which comes first, takes each packet that `b` takes.
fn takes_all_of(a: &NatRule, b: &NatRule) -> bool {
    use NatKind::{Destination, Deterministic, Masquerade, Nat64, Source, Static};
    if let (Static, Destination, Some(NatTarget::Net(to))) = (a.kind, b.kind, a.to) {
        return !b.destination.is_empty() && b.destination.iter().all(|own| to.contains(own));
    }
    let is_alike = match (a.kind, b.kind) {
        (Nat64, Nat64) => a.prefix == b.prefix,
        (Masquerade | Source | Static | Deterministic, Masquerade | Source | Deterministic) => {
            a.outside.is_empty()
                || !b.outside.is_empty() && b.outside.iter().all(|own| a.outside.contains(own))
        }
        _ => false,
    };
    let has = |own: &IpNet| a.source.iter().any(|all| all.contains(own));
    let takes_sources = match a.source.is_empty() {
        true => !matches!(a.kind, Static | Deterministic),
        // Without sources it has all of its family.
        false if b.source.is_empty() => a.source.iter().any(|own| own.prefix_len() == 0),
        false => b.source.iter().all(has),
    };
    is_alike && takes_sources && a.protocol.is_none_or(|own| b.protocol == Some(own))
}

/// Whether two port forwards take the same packets.
fn forwards_the_same(a: &NatRule, b: &NatRule) -> bool {
    let ports = |rule: &NatRule| rule.port.as_ref().map_or(0..=u16::MAX, |port| port.0.clone());
    let (x, y) = (ports(a), ports(b));
    let addresses = |rule: &NatRule| -> Vec<IpAddr> { rule.destination.clone() };
    let share_addresses = addresses(a).iter().any(|own| b.destination.contains(own))
        || a.destination.is_empty()
            && b.destination.is_empty()
            && a.outside.iter().any(|own| b.outside.contains(own));
    a.kind == NatKind::Destination
        && b.kind == NatKind::Destination
        && share_addresses
        && a.protocol.zip(b.protocol).is_none_or(|(a, b)| a == b)
        && x.start() <= y.end()
        && y.start() <= x.end()
}
