//! Rules of the configuration, ready for use.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use control::config::{Config, NatFilter, NatKind, NatProtocol, NatRule, NatTarget};
use controlplane::Interfaces;
use ipnet::IpNet;
use nat::deterministic::Blocks;
use nat::rules::{Action, Own, Prefix, Rule, Rules};
use nat::translator::{Options, Timeouts};
use packet::IpProtocol;

use super::source::Wanted;

/// The bounds and policies that a configuration has.
pub(super) fn options(config: &Config, ftp_ports: &'static [u16], seed: u64) -> Options {
    let own = &config.translation;
    let seconds = |time: std::time::Duration| u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
    Options {
        sessions: own.sessions,
        bindings_per_host: own.bindings_per_host,
        filter_by_remote: own.filter == NatFilter::Remote,
        timeouts: Timeouts {
            tcp_established: seconds(own.tcp_established),
            tcp_transitory: seconds(own.tcp_transitory),
            udp: seconds(own.udp),
            icmp: seconds(own.icmp),
            other: seconds(own.other),
        },
        ftp_ports,
        seed,
    }
}

/// The rules of a configuration, or of `ctl`. Those that `before` has keep their numbers.
pub(super) fn rules(
    listed: &[NatRule],
    interfaces: &Interfaces,
    workers: usize,
    own: &Arc<Own>,
    has_ftp: bool,
    before: &[Rule],
) -> Result<Rules, String> {
    let mut all: Vec<Rule> = Vec::with_capacity(listed.len());
    for rule in listed {
        let new = of(rule, interfaces)?;
        let is_same = |old: &&Rule| Rule { number: 0, ..(*old).clone() } == new;
        let taken = |number: u16| all.iter().any(|own| own.number == number);
        let known = before.iter().filter(is_same).map(|old| old.number).find(|own| !taken(*own));
        let free =
            |number: &u16| !taken(*number) && !before.iter().any(|own| own.number == *number);
        let number = known.or_else(|| (0..Wanted::RULES_MAX as u16).find(free));
        let number = number.ok_or("too many [[nat]] rules")?;
        all.push(Rule { number, ..new });
    }
    Ok(Rules::new(all, workers, own.clone()).with_ftp(has_ftp))
}

fn prefix(net: &IpNet) -> Prefix {
    match net {
        IpNet::V4(net) => Prefix::v4(net.network().to_bits(), net.prefix_len()),
        IpNet::V6(net) => {
            let bits = net.network().to_bits();
            Prefix { family: 6, address: [(bits >> 64) as u64, bits as u64], len: net.prefix_len() }
        }
    }
}

fn v4(address: &IpAddr) -> Option<u32> {
    match address {
        IpAddr::V4(address) => Some(address.to_bits()),
        IpAddr::V6(_) => None,
    }
}

/// The addresses of a target; none of IPv6.
fn addresses(to: Option<NatTarget>) -> Vec<u32> {
    match to {
        Some(NatTarget::Net(IpNet::V4(net))) => {
            let first = net.network().to_bits();
            let count = 1u32 << (32 - u32::from(net.prefix_len())).min(20);
            (first..first.saturating_add(count)).collect()
        }
        _ => Vec::new(),
    }
}

/// A rule with the number 0.
fn of(rule: &NatRule, interfaces: &Interfaces) -> Result<Rule, String> {
    let wrong = || format!("[[nat]] {rule}: the rule is not whole");
    let number = |name: &String| {
        interfaces.number(name).ok_or_else(|| format!("[[nat]] {rule}: there is no port `{name}`"))
    };
    let first = |net: IpNet| prefix(&net);
    let inside = || rule.source.first().copied().map(first).ok_or_else(wrong);
    let outside = || match rule.to {
        Some(NatTarget::Net(net)) => Ok(first(net)),
        _ => Err(wrong()),
    };
    let action = match rule.kind {
        NatKind::Masquerade => Action::Masquerade,
        NatKind::Source => Action::Source(addresses(rule.to)),
        NatKind::Destination => {
            let (to, to_port) = match rule.to {
                Some(NatTarget::Net(net)) => (v4(&net.addr()), None),
                Some(NatTarget::Socket(SocketAddr::V4(to))) => {
                    (Some(to.ip().to_bits()), Some(to.port()))
                }
                _ => (None, None),
            };
            let at = rule.destination.iter().filter_map(v4).collect();
            Action::Destination { at, to: to.ok_or_else(wrong)?, to_port }
        }
        NatKind::Static => Action::Static { inside: inside()?, outside: outside()? },
        NatKind::Deterministic => {
            let (inside, outside) = (inside()?, outside()?);
            let range = |prefix: &Prefix| (prefix.address[1] as u32, prefix.count());
            let blocks = Blocks::new(range(&inside), range(&outside), &rule.ports.0);
            Action::Deterministic { inside, blocks: blocks.map_err(|_| wrong())? }
        }
        NatKind::Nat64 => Action::Nat64 { prefix: prefix(&rule.prefix), to: addresses(rule.to) },
    };
    let ports = match (rule.kind, &rule.port) {
        (NatKind::Destination, None) => 0..=u16::MAX,
        (NatKind::Destination, Some(port)) => port.0.clone(),
        _ => rule.ports.0.clone(),
    };
    Ok(Rule {
        number: 0,
        outside: rule.outside.iter().map(number).collect::<Result<_, _>>()?,
        sources: rule.source.iter().map(prefix).collect(),
        protocol: rule.protocol.map(|protocol| match protocol {
            NatProtocol::Tcp => IpProtocol::TCP.0,
            NatProtocol::Udp => IpProtocol::UDP.0,
            NatProtocol::Icmp => IpProtocol::ICMP.0,
        }),
        ports,
        action,
    })
}
