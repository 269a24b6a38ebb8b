//! Ports beside each other: interfaces, twins, VLANs, MTUs, and keys without effect.

use std::collections::HashMap;

use crate::config::read::Spans;
use crate::config::stages::Machine;
use crate::config::types::*;
use crate::config::walk::{Place, Walk, Word, distance};

/// A wire joins the first port with the second, the third with the fourth.
pub(super) fn in_pairs(config: &Config, spans: &Spans, walk: &mut Walk<'_>) {
    if spans.has_lost_ports {
        return;
    }
    let is_in_pairs = |port: &Port| config.pipeline_of(&port.name).main().in_pairs;
    let physical: Vec<_> = config.physical_ports().map(|(port, _)| port).collect();
    let all_in_pairs = config.in_use().all(|pipeline| pipeline.main().in_pairs);
    for pair in physical.chunks(2) {
        let alone = match pair {
            [one] if is_in_pairs(one) => one,
            [one, two] if is_in_pairs(one) != is_in_pairs(two) => {
                if is_in_pairs(one) {
                    one
                } else {
                    two
                }
            }
            _ => continue,
        };
        let at = config.ports.iter().position(|port| port.name == alone.name);
        if all_in_pairs {
            let span = spans.ports.last().map_or(0..0, |port| port.keys.at(""));
            let count = physical.len();
            walk.error(span, format!("a wire joins ports in pairs, and there are {count}"))
                .expected("two ports, or four …");
        } else {
            let span = at.map_or(0..0, |at| spans.ports[at].keys.at("pipeline"));
            walk.error(span, format!("port `{}` of a wire has no partner", alone.name))
                .expected("ports of a wire in pairs: the first and second of the file, the third and fourth, …");
        }
        return;
    }
}

pub(super) fn check(config: &Config, spans: &Spans, walk: &mut Walk<'_>) {
    if config.physical_ports().next().is_none() && !spans.has_lost_ports {
        walk.error(spans.file.at("port"), "no port").expected("at least one [port.NAME]");
    }
    let mut interfaces: HashMap<&str, &str> = HashMap::new();
    let mut tags: HashMap<(&str, VlanTag), &str> = HashMap::new();
    let mut tunnels: HashMap<u32, &str> = HashMap::new();
    for (port, spans) in config.ports.iter().zip(&spans.ports) {
        match &port.kind {
            PortKind::Physical(physical) => {
                effects(physical, &spans.keys, walk);
                // A pipeline that was refused has none.
                let main = config.pipeline_of(&port.name).applications.first();
                let is_routed = main.is_none_or(|main| main.name == "router");
                if physical.backend == Backend::Ipsec && !is_routed {
                    walk.error(spans.keys.at("backend"), "a tunnel interface without a router")
                        .expected("mode = \"router\"");
                }
                let if_id = physical.if_id.filter(|_| physical.backend == Backend::Ipsec);
                if let Some(other) = if_id.and_then(|id| tunnels.insert(id, &port.name)) {
                    walk.error(
                        spans.keys.at("if_id"),
                        format!("port `{other}` has this `if_id` too"),
                    )
                    .expected("a number of its own for each tunnel interface");
                }
                let is_kernels = has_interface(physical.backend);
                let other = is_kernels
                    .then(|| interfaces.insert(&physical.interface, &port.name))
                    .flatten();
                if let Some(other) = other {
                    let message = format!("interface `{}` is port `{other}`'s", physical.interface);
                    walk.error(spans.keys.at("interface"), message)
                        .expected("an interface of its own for each port");
                }
            }
            PortKind::Vlan { parent, tag } => {
                vlan(config, port, parent, &spans.keys, walk);
                let known = *tag != VlanTag::Single(0) && !parent.is_empty();
                let other = known.then(|| tags.insert((parent, *tag), &port.name)).flatten();
                if let Some(other) = other {
                    walk.error(spans.keys.at("vlan"), format!("port `{other}` has this VLAN too"))
                        .expected(format!("each VLAN of `{parent}` once"));
                }
            }
        }
        let has_v6 = port.addresses.iter().any(|net| net.addr().is_ipv6());
        if let Some(mtu) = port.mtu.filter(|mtu| *mtu < 1280 && has_v6) {
            walk.error(spans.keys.at("mtu"), format!("an MTU of {mtu} with an IPv6 address"))
                .expected("at least 1280 (RFC 8200 §5)");
        }
    }
    twins(config, spans, &interfaces, walk);
}

/// Interfaces that the machine does not have. A TAP device is made by the program.
pub(super) fn interfaces(config: &Config, spans: &Spans, machine: &Machine, walk: &mut Walk<'_>) {
    /// Names that are listed.
    const LISTED: usize = 8;
    for (port, spans) in config.ports.iter().zip(&spans.ports) {
        let PortKind::Physical(physical) = &port.kind else { continue };
        let name = physical.interface.as_str();
        let is_on_wire = has_interface(physical.backend) && physical.backend != Backend::Tap;
        if !is_on_wire || name.is_empty() || machine.interfaces.iter().any(|own| own == name) {
            continue;
        }
        // No port uses the loopback interface by mistake.
        let mut there: Vec<&str> = machine.interfaces.iter().map(String::as_str).collect();
        there.retain(|own| *own != "lo");
        there.sort_by_key(|own| (distance(name, own), *own));
        let more = there.len().saturating_sub(LISTED);
        let listed = there.iter().take(LISTED).copied().collect::<Vec<_>>().join(", ");
        let expected = match (there.is_empty(), more) {
            (true, _) => "an interface: this machine has none except `lo`".to_owned(),
            (_, 0) => format!("one of {listed}"),
            (_, more) => format!("one of {listed} and {more} more"),
        };
        let message = format!("this machine has no interface `{name}`");
        let place = spans.keys.at("interface");
        let diagnostic = match machine.is_needed {
            true => walk.error(place, message),
            false => walk.warning(place, message),
        };
        diagnostic.nearest(name, there.iter().copied()).expected(expected);
        if !spans.keys.has("interface") {
            let key = format!(
                "`interface` of port `{}` names it, if it is not the port's name",
                port.name
            );
            diagnostic.help(key);
        }
    }
}

/// Whether a port is on an interface of the kernel.
fn has_interface(backend: Backend) -> bool {
    !matches!(backend, Backend::Memory | Backend::Pcap | Backend::Ipsec)
}

/// Keys that this back end does not read.
fn effects(physical: &Physical, keys: &Place, walk: &mut Walk<'_>) {
    let backend = physical.backend;
    let xdp = matches!(backend, Backend::Auto | Backend::AfXdp);
    let kernels = has_interface(backend);
    let is_tunnel = backend == Backend::Ipsec;
    let pcap = backend == Backend::Pcap;
    for (key, used, by) in [
        ("xdp", xdp, "backend = \"af_xdp\" or \"auto\""),
        ("zero_copy", xdp, "backend = \"af_xdp\" or \"auto\""),
        ("interface", kernels, "a back end with a kernel interface"),
        ("promiscuous", kernels || pcap, "a back end with a kernel interface, or \"pcap\""),
        ("read", pcap, "backend = \"pcap\""),
        ("write", pcap, "backend = \"pcap\""),
        ("if_id", is_tunnel, "backend = \"ipsec\""),
        ("queues", !is_tunnel, "a back end with packets of its own"),
        ("pipeline", !is_tunnel, "`pipeline` of the ports that ESP packets come by"),
        ("checksums", !is_tunnel, "a back end with packets of its own"),
    ] {
        if keys.has(key) && !used {
            let message = format!("`{key}` has no effect with backend = \"{}\"", backend.word());
            walk.warning(keys.at(key), message).expected(by);
        }
    }
    if is_tunnel && physical.if_id.is_none() && keys.is_right("if_id") {
        walk.error(keys.at("backend"), "a tunnel interface without `if_id`")
            .expected("the `if_id` of its associations");
    }
    if pcap && !keys.has("read") && !keys.has("write") {
        walk.error(keys.at("backend"), "a pcap port that reads and writes nothing")
            .expected("`read = \"in.pcap\"`, `write = \"out.pcap\"` or both");
    }
}

fn vlan(config: &Config, port: &Port, parent: &str, keys: &Place, walk: &mut Walk<'_>) {
    if parent.is_empty() {
        return; // Missing, and reported.
    }
    match config.port(parent) {
        None => {
            let known = config.physical_ports().map(|(port, _)| port.name.as_str());
            walk.error(keys.at("parent"), format!("unknown port `{parent}`"))
                .nearest(parent, known)
                .expected("the name of a [port.NAME] with an interface");
        }
        Some(Port { kind: PortKind::Vlan { .. }, .. }) => {
            walk.error(keys.at("parent"), format!("port `{parent}` is itself a VLAN"))
                .expected("a port with an interface")
                .help("for two tags: vlan = [OUTER, INNER] on that port");
        }
        Some(Port { mtu: Some(most), .. }) if port.mtu.is_some_and(|mtu| mtu > *most) => {
            walk.error(keys.at("mtu"), "an MTU above the parent's")
                .expected(format!("at most {most}, as `{parent}` has it"));
        }
        Some(_) => {}
    }
}

/// Twins are interfaces of the kernel, beside those that ports are on.
fn twins(config: &Config, spans: &Spans, interfaces: &HashMap<&str, &str>, walk: &mut Walk<'_>) {
    let mut twins: HashMap<&str, &str> = HashMap::new();
    for (port, spans) in config.ports.iter().zip(&spans.ports) {
        if port.accept_ra && (port.twin.is_none() || !config.router.kernel) {
            let message = "`accept_ra` without a twin whose routes are used";
            walk.warning(spans.keys.at("accept_ra"), message)
                .expected("`twin` in the port, and `kernel = true` in [router]");
        }
        if port.accept_ra_routes && !port.accept_ra {
            walk.warning(
                spans.keys.at("accept_ra_routes"),
                "`accept_ra_routes` without `accept_ra`",
            )
            .expected("`accept_ra = true` in the port");
        }
        let Some(twin) = &port.twin else { continue };
        let other = twins.insert(twin, &port.name).map(|other| format!("port `{other}`'s twin"));
        let other = other
            .or_else(|| interfaces.get(twin.as_str()).map(|o| format!("port `{o}`'s interface")));
        if let Some(other) = other {
            walk.error(spans.keys.at("twin"), format!("`{twin}` is {other}"))
                .expected("a name of its own: twin = \"NAME\"");
        }
    }
}
