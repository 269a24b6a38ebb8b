//! Associations and policies of IPsec.

use std::ops::RangeInclusive;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::config::Topic;
use crate::config::read::Spans;
use crate::config::types::*;
use crate::config::walk::{Place, Walk};

/// The stage that seals.
const STAGE: &str = "esp_out";

/// `may_be`: whether the pipeline can have IPsec.
pub(super) fn check(may_be: bool, config: &Config, spans: &Spans, walk: &mut Walk<'_>) {
    if may_be {
        stages(config, spans, walk);
    }
    for (number, (own, place)) in config.associations.iter().zip(&spans.associations).enumerate() {
        association(own, place, walk);
        interface(config, own, place, walk);
        let is_same =
            |other: &SaEntry| (other.spi, other.destination) == (own.spi, own.destination);
        if place.is_right("spi") && config.associations[..number].iter().any(is_same) {
            let message = format!(
                "an earlier association has SPI {:#x} and destination {}",
                own.spi, own.destination
            );
            walk.error(place.at("spi"), message).expected("each SPI once for each destination");
        }
    }
    for (number, (own, place)) in config.policies.iter().zip(&spans.policies).enumerate() {
        policy(config, own, place, walk);
        if let Some(first) = covering(&config.policies[..number], own) {
            let first = first + 1;
            let message =
                format!("this policy never matches: policy {first} matches all its packets");
            walk.warning(place.header(), message).expected(format!("it before policy {first}"));
        }
    }
}

/// Pipelines that do not ask the policies: packets would leave unprotected.
fn stages(config: &Config, spans: &Spans, walk: &mut Walk<'_>) {
    let is_used = match (config.ipsec.linux, config.policies.is_empty()) {
        (_, false) => Some("policy"),
        (true, true) => Some("ipsec"),
        (false, true) => (!config.associations.is_empty()).then_some("sa"),
    };
    let Some(section) = is_used else { return };
    if !config.in_use().any(|pipeline| pipeline.has(STAGE)) {
        let name = &config.pipeline.name;
        // As with rules of a firewall: whoever writes policies relies on them.
        let message = format!(
            "`{section}` has no effect: the pipeline `{name}` has no `{STAGE}`: packets would leave unprotected"
        );
        walk.error(spans.file.at(section), message)
            .expected("`esp_in` and `esp_out` in its `stages`");
        return;
    }
    let routes = |pipeline: &&Pipeline| pipeline.has("route") && !pipeline.has(STAGE);
    for pipeline in config.in_use().filter(routes) {
        let name = &pipeline.name;
        let message = format!(
            "`{section}` has no effect at ports of `{name}`: it has no `{STAGE}`, and packets leave unprotected"
        );
        walk.warning(spans.file.at(section), message).about(Topic::Unfiltered);
    }
}

/// The packets of a policy in one direction.
struct Packets {
    ends: [Option<IpNet>; 2],
    protocol: Option<PolicyProtocol>,
    ports: [RangeInclusive<u16>; 2],
}

impl Packets {
    fn of(own: &PolicyEntry, direction: PolicyDirection) -> Option<Self> {
        let is_both = own.direction == PolicyDirection::Both;
        if !is_both && own.direction != direction {
            return None;
        }
        let ports =
            |own: &Option<PortRange>| own.as_ref().map_or(0..=u16::MAX, |own| own.0.clone());
        // Where one end is given, the other one is of its family.
        let any = own.source.or(own.destination).map(|net| match net {
            IpNet::V4(_) => IpNet::from(Ipv4Net::default()),
            IpNet::V6(_) => IpNet::from(Ipv6Net::default()),
        });
        let mut ends = [own.source, own.destination].map(|net| net.or(any));
        let mut ports = [&own.source_port, &own.destination_port].map(ports);
        if is_both && direction == PolicyDirection::In {
            ends.reverse();
            ports.reverse();
        }
        Some(Self { ends, protocol: own.protocol, ports })
    }

    fn covers(&self, other: &Self) -> bool {
        let holds = |(own, other): (&Option<IpNet>, &Option<IpNet>)| match (own, other) {
            (None, _) => true,
            (Some(own), Some(other)) => own.contains(other),
            (Some(_), None) => false,
        };
        let has = |(own, other): (&RangeInclusive<u16>, &RangeInclusive<u16>)| {
            own.contains(other.start()) && own.contains(other.end())
        };
        self.ends.iter().zip(&other.ends).all(holds)
            && (self.protocol.is_none() || self.protocol == other.protocol)
            && self.ports.iter().zip(&other.ports).all(has)
    }
}

/// The place of the first policy that a policy behind it is never asked for: one that matches all its packets, in each direction.
fn covering(before: &[PolicyEntry], own: &PolicyEntry) -> Option<usize> {
    let mut found = None;
    for direction in [PolicyDirection::Out, PolicyDirection::In] {
        let Some(packets) = Packets::of(own, direction) else { continue };
        let covers = |other: &PolicyEntry| {
            let other_packets = Packets::of(other, direction);
            other.if_id == own.if_id && other_packets.is_some_and(|other| other.covers(&packets))
        };
        found = found.max(Some(before.iter().position(covers)?));
    }
    found
}

fn association(own: &SaEntry, place: &Place, walk: &mut Walk<'_>) {
    use SaEncryption as E;
    if place.is_right("source")
        && place.is_right("destination")
        && own.source.is_ipv4() != own.destination.is_ipv4()
    {
        walk.error(place.at("destination"), "source and destination are of two address families")
            .expected("two addresses of IPv4, or two of IPv6");
    }
    for (key, address) in [("source", own.source), ("destination", own.destination)] {
        let is_host =
            !address.is_unspecified() && (key == "destination" || !address.is_multicast());
        if place.is_right(key) && !is_host {
            walk.error(place.at(key), format!("{address} is not the address of a host"))
                .expected(format!("the address of the end that is the `{key}`"));
        }
    }
    let is_whole = !matches!(
        own.encryption,
        E::Null | E::Cbc128 | E::Cbc192 | E::Cbc256 | E::Ctr128 | E::Ctr192 | E::Ctr256
    );
    let key = if place.has("authentication") { "authentication" } else { "encryption" };
    let at = if place.has(key) { place.at(key) } else { place.header() };
    match (is_whole, own.authentication) {
        _ if !place.is_right("encryption") || !place.is_right("authentication") => {}
        (false, SaAuthentication::None) => {
            let message = "encryption without authentication: changed packets would be accepted";
            walk.error(at, message)
                .expected("`authentication`, or a cipher that authenticates such as aes-128-gcm");
        }
        (true, other) if other != SaAuthentication::None => {
            walk.error(at, "the cipher authenticates, and `authentication` does so, too")
                .expected("one of both");
        }
        _ => {}
    }
    if own.esn && own.window == 0 && own.direction == SaDirection::In {
        walk.error(place.at("esn"), "`esn` without a replay window")
            .expected("`window` of 1 or more");
    }
    if own.first_number > u64::from(u32::MAX) && !own.esn && place.is_right("first_number") {
        walk.error(place.at("first_number"), "without `esn` the last number is 4,294,967,295")
            .expected("a lower `first_number`, or esn = true");
    }
    let (no_effect, way) = match own.direction {
        SaDirection::In => ("first_number", "out"),
        SaDirection::Out => ("window", "in"),
    };
    if place.has(no_effect) && place.is_right("direction") {
        let message = format!("`{no_effect}` has no effect in this direction");
        walk.warning(place.at(no_effect), message).expected(format!("direction = \"{way}\""));
    }
    for (unit, soft, hard) in [
        ("bytes", own.soft_bytes, own.hard_bytes),
        ("packets", own.soft_packets, own.hard_packets),
        ("seconds", own.soft_seconds, own.hard_seconds),
    ] {
        if let (Some(soft), Some(hard)) = (soft, hard)
            && soft >= hard
        {
            let message = format!("`soft_{unit}` comes no sooner than `hard_{unit}`");
            walk.warning(place.at(&format!("soft_{unit}")), message)
                .expected("a lower value, so that a new association is there in time");
        }
    }
    if place.has("udp_port") && !own.udp {
        walk.error(place.at("udp_port"), "`udp_port` without `udp`").expected("udp = true");
    }
    for key in ["pad_to", "df", "dscp"] {
        if place.has(key) && own.mode == SaMode::Transport {
            walk.error(place.at(key), format!("`{key}` has no effect in transport mode"))
                .expected("mode = \"tunnel\"");
        }
    }
}

/// The tunnel interface with a number; without one, `what` is said of the entry.
fn tunnel(config: &Config, if_id: u32, place: &Place, what: &str, walk: &mut Walk<'_>) {
    let is_it = |port: &Physical| port.backend == Backend::Ipsec && port.if_id == Some(if_id);
    if !config.physical_ports().any(|(_, port)| is_it(port)) {
        walk.warning(place.at("if_id"), format!("no port has if_id {if_id}: {what}"))
            .expected("a port with `backend = \"ipsec\"` and this `if_id`");
    }
}

/// The port whose packets an association carries.
fn interface(config: &Config, own: &SaEntry, place: &Place, walk: &mut Walk<'_>) {
    if let Some(if_id) = own.if_id {
        tunnel(config, if_id, place, "no packet comes or leaves by it", walk);
    }
    if own.if_id.is_some() && own.mode == SaMode::Transport {
        let message =
            "associations of a tunnel interface are in tunnel mode: packets would be dropped";
        walk.error(place.at("mode"), message).expected("mode = \"tunnel\", or no `if_id`");
    }
}

fn policy(config: &Config, own: &PolicyEntry, place: &Place, walk: &mut Walk<'_>) {
    match (own.action, own.reqid) {
        _ if !place.is_right("action") || !place.is_right("reqid") => {}
        (PolicyAction::Protect, None) => {
            walk.error(place.header(), "a `protect` policy without `reqid`")
                .expected("`reqid` of its associations");
        }
        (PolicyAction::Protect, Some(reqid))
            if config.ipsec.linux
                || config
                    .associations
                    .iter()
                    .any(|sa| (sa.reqid, sa.if_id) == (reqid, own.if_id)) => {}
        (PolicyAction::Protect, Some(reqid)) => {
            let is_other = config.associations.iter().any(|sa| sa.reqid == reqid);
            let (message, expected) = match (is_other, own.if_id) {
                (false, _) => (
                    format!("no [[sa]] has reqid {reqid}: these packets are dropped"),
                    "an association with this `reqid`, or one by `ctl sa add`",
                ),
                (true, Some(if_id)) => (
                    format!(
                        "no [[sa]] has reqid {reqid} and if_id {if_id}: these packets are dropped"
                    ),
                    "the `if_id` of these associations, or this one for them",
                ),
                (true, None) => (
                    format!(
                        "each [[sa]] with reqid {reqid} has an `if_id`: these packets are dropped"
                    ),
                    "the same `if_id`, or associations without it",
                ),
            };
            walk.warning(place.at("reqid"), message).expected(expected);
        }
        (PolicyAction::Bypass | PolicyAction::Discard, Some(_)) => {
            walk.error(place.at("reqid"), "`reqid` has no effect without `protect`")
                .expected("action = \"protect\"");
        }
        _ => {}
    }
    if let Some(if_id) = own.if_id {
        tunnel(config, if_id, place, "this policy is never asked", walk);
    }
    if let (Some(from), Some(to)) = (own.source, own.destination)
        && from.addr().is_ipv4() != to.addr().is_ipv4()
    {
        walk.error(place.at("destination"), "source and destination are of two address families")
            .expected("two prefixes of IPv4, or two of IPv6");
    }
    let has_ports = matches!(own.protocol, Some(PolicyProtocol(6 | 17 | 132)));
    for key in ["source_port", "destination_port"] {
        if place.has(key) && !has_ports {
            walk.error(place.at(key), format!("`{key}` without a protocol that has ports"))
                .expected("protocol = \"tcp\", \"udp\" or \"sctp\"");
        }
    }
}
