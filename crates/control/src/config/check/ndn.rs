//! Faces and routes of a named-data forwarder.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use packet::MacAddr;
use packet::ndn::NameBuf;

use super::addresses::{is_link_local, not_a_host, unknown_port};
use crate::config::read::Spans;
use crate::config::types::*;
use crate::config::walk::{Place, Walk};

/// How a frame names its face, beside its port.
#[derive(PartialEq, Eq, Hash)]
enum Arrival {
    Ethernet(MacAddr),
    Udp(SocketAddr, SocketAddr),
}

pub(super) fn check(config: &Config, spans: &Spans, walk: &mut Walk<'_>) {
    let mut arrivals: HashMap<(&str, Arrival), &str> = HashMap::new();
    for (face, place) in config.faces.iter().zip(&spans.faces) {
        let port = config.port(&face.port);
        if port.is_none() && place.is_right("port") {
            unknown_port(config, &face.port, place.at("port"), walk);
        }
        if port.is_some() && !config.pipeline_of(&face.port).uses("ndn") {
            let message = format!("`{}` is not a port of a named-data forwarder", face.port);
            walk.error(place.at("port"), message)
                .expected("a port whose pipeline has the stages of a named-data forwarder");
        }
        let (key, arrival) = match &face.link {
            FaceLink::Ethernet { mac } => ("mac", Arrival::Ethernet(*mac)),
            FaceLink::Udp { local, remote, .. } => ("remote", Arrival::Udp(*local, *remote)),
        };
        let is_whole =
            port.is_some() && ["mac", "local", "remote"].iter().all(|key| place.is_right(key));
        let other = is_whole.then(|| arrivals.insert((&face.port, arrival), &face.name)).flatten();
        if let Some(other) = other {
            walk.error(place.at(key), format!("face `{other}` has this neighbour too"))
                .expected("each neighbour of a port once");
        } else if let FaceLink::Udp { local, remote, gateway, mac } = &face.link {
            let ends = Ends {
                local: place.is_right("local").then_some(local.ip()),
                remote: place.is_right("remote").then_some(remote.ip()),
                gateway: *gateway,
            };
            ends.check(port, mac.is_some(), place, walk);
            let is_unknown = mac.is_none() && place.is_right("gateway");
            if let Some(port) = port.filter(|_| is_whole && is_unknown) {
                can_be_asked(config, port, gateway.unwrap_or(remote.ip()), place, walk);
            }
        }
    }
    routes(config, spans, walk);
}

/// The ends of a face; `None`: it is missing or wrong, which was reported.
struct Ends {
    local: Option<IpAddr>,
    remote: Option<IpAddr>,
    gateway: Option<IpAddr>,
}

impl Ends {
    /// `port`: where it is known.
    fn check(&self, port: Option<&Port>, has_mac: bool, place: &Place, walk: &mut Walk<'_>) {
        let addresses = port.map_or(&[][..], |port| &port.addresses);
        let is_own = |address: &IpAddr| addresses.iter().any(|net| net.addr() == *address);
        let mut is_good = true;
        for (key, address) in [("remote", &self.remote), ("gateway", &self.gateway)] {
            let Some(address) = address else { continue };
            let home = addresses.iter().find(|net| net.contains(address));
            let length = home.filter(|_| key == "gateway" || self.gateway.is_none());
            let net = length.and_then(|net| IpNet::new(*address, net.prefix_len()).ok());
            if self.local.is_some_and(|local| local.is_ipv4() != address.is_ipv4()) {
                walk.error(place.at(key), format!("`{key}` and `local` are of different families"))
                    .expected("IPv4 addresses or IPv6 addresses");
            } else if let Some(why) = not_a_host(net.unwrap_or(IpNet::from(*address))) {
                walk.error(place.at(key), format!("`{address}` is {why}"))
                    .expected("the address of a neighbour");
            } else if is_own(address) {
                walk.error(place.at(key), format!("`{address}` is our own address"))
                    .expected("the address of a neighbour");
            } else {
                continue;
            }
            is_good = false;
        }
        if let (Some(local), Some(port)) = (self.local, port)
            && !is_own(&local)
        {
            let own = port.addresses.iter().map(|net| net.addr().to_string());
            let own: Vec<_> = own.filter(|text| text.contains(':') == local.is_ipv6()).collect();
            let expected = match own.as_slice() {
                [] => format!("`addresses` with one of this family at port `{}`", port.name),
                own => format!("one of its `addresses`: {}", own.join(", ")),
            };
            walk.error(
                place.at("local"),
                format!("`{local}` is not an address of port `{}`", port.name),
            )
            .expected(expected);
            is_good = false;
        }
        if has_mac && place.has("gateway") {
            walk.warning(place.at("gateway"), "`gateway` has no effect together with `mac`")
                .expected("one of them");
        }
        let is_right = ["mac", "gateway"].iter().all(|key| place.is_right(key));
        if let (Some(port), Some(hop)) = (port, self.gateway.or(self.remote))
            && is_good
            && is_right
        {
            let on_link = is_link_local(hop) || addresses.iter().any(|net| net.contains(&hop));
            if !has_mac && !on_link {
                let key = if self.gateway.is_some() { "gateway" } else { "remote" };
                let message = format!("`{hop}` is in no subnet of port `{}`", port.name);
                walk.warning(place.at(key), message)
                    .expected("a `gateway` in a subnet of the port, or `mac`");
            }
        }
    }
}

/// Without a twin Linux cannot ask for the neighbour's MAC.
fn can_be_asked(config: &Config, port: &Port, hop: IpAddr, place: &Place, walk: &mut Walk<'_>) {
    let is_given = config.neighbours.iter().any(|n| n.port == port.name && n.address == hop);
    let is_live = match &port.kind {
        PortKind::Physical(physical) => {
            !matches!(physical.backend, Backend::Memory | Backend::Pcap | Backend::Ipsec)
        }
        PortKind::Vlan { .. } => false,
    };
    if is_live && port.twin.is_none() && !is_given {
        let message = format!(
            "port `{}` has no twin, so the MAC address of {hop} cannot be resolved",
            port.name
        );
        walk.warning(place.at("remote"), message)
            .expected("`mac`, a [[neighbour]], or `twin = true` at the port");
    }
}

fn routes(config: &Config, spans: &Spans, walk: &mut Walk<'_>) {
    let mut seen: HashMap<&NameBuf, usize> = HashMap::new();
    for (route, spans) in config.names.iter().zip(&spans.names) {
        let span = spans.keys.at("prefix");
        let line = walk.line(span.start);
        let is_right = spans.keys.is_right("prefix");
        if let Some(first) = is_right.then(|| seen.insert(&route.prefix, line)).flatten() {
            walk.error(span, format!("the route for {} is on line {first} too", route.prefix))
                .expected("each prefix once")
                .help("for several paths: faces =  [\"BEST\", \"SECOND\"]");
        }
        for (at, (name, span)) in route.faces.iter().zip(&spans.faces).enumerate() {
            if config.face(name).is_none() {
                let names = || config.faces.iter().map(|face| face.name.as_str());
                let mut expected = names().take(8).collect::<Vec<_>>().join(", ");
                if config.faces.len() > 8 {
                    expected.push_str(", …");
                }
                let expected = match expected.as_str() {
                    "" => "a face: [ndn.face.NAME]".to_owned(),
                    names => format!("one of {names}"),
                };
                walk.error(span.clone(), format!("unknown face `{name}`"))
                    .nearest(name, names())
                    .expected(expected);
            } else if route.faces[..at].contains(name) {
                walk.error(span.clone(), format!("face `{name}` is listed twice"))
                    .expected("each face of a route once");
            }
        }
    }
    if config.names.len() > config.ndn.names {
        walk.error(spans.ndn.at("names"), format!("room for {} names", config.ndn.names))
            .expected(format!("room for the {} of [[name]] at least", config.names.len()));
    }
}
