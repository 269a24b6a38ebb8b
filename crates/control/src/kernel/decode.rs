//! From the kernel's messages to the mirror's own types.

use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_core::Parseable;
use netlink_packet_route::{
    AddressFamily,
    address::{AddressAttribute, AddressMessage},
    link::{LinkAttribute, LinkFlags, LinkMessage, LinkXdp, XdpAttached},
    neighbour::{
        NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage,
        NeighbourState as KernelState,
    },
    route::{
        RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteNextHopFlags, RoutePreference,
        RouteProtocol, RouteType, RouteVia,
    },
};

use super::{
    event::{Leg, Link, NeighbourState},
    fib::{Rank, RawLeg, settle_weight},
};
use crate::netlink::nexthop::{DEAD, GroupMember, NextHopAttribute, NextHopMessage};

/// Why the mirror ignores a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Skip {
    /// Not about the things mirrored (another table, a bridge's database, a cached route, a redirect, an
    /// advertisement that nobody wants).
    Foreign,
    /// A route that depends on more than the destination (TOS, source): not followed.
    Unsupported,
    /// Bytes that could not be read.
    Undecoded,
}

pub(super) type Decoded<T> = Result<T, Skip>;

fn parse<T: Parseable<[u8]>>(payload: &[u8]) -> Decoded<T> {
    T::parse(payload).map_err(|_| Skip::Undecoded)
}

/// An interface. Messages of other families (`AF_BRIDGE`) and partial ones say nothing about
/// the interface itself.
pub(super) fn link(payload: &[u8]) -> Decoded<Link> {
    let message: LinkMessage = parse(payload)?;
    if message.header.interface_family != AddressFamily::Unspec {
        return Err(Skip::Foreign);
    }
    let (mut name, mut mtu_bytes, mut mac) = (None, None, [0; 6]);
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(text) => name = Some(text),
            LinkAttribute::Mtu(bytes) => mtu_bytes = Some(bytes),
            LinkAttribute::Address(bytes) => mac = bytes.try_into().unwrap_or([0; 6]),
            _ => {}
        }
    }
    Ok(Link {
        ifindex: message.header.index,
        name: name.ok_or(Skip::Foreign)?,
        mac,
        mtu_bytes: mtu_bytes.ok_or(Skip::Foreign)?,
        up: message.header.flags.contains(LinkFlags::Up),
        carrier: message.header.flags.intersects(LinkFlags::Running | LinkFlags::LowerUp),
    })
}

/// The number of an interface with an XDP program.
pub(super) fn link_with_xdp(payload: &[u8]) -> Decoded<u32> {
    let message: LinkMessage = parse(payload)?;
    let is_attached =
        |own: &LinkXdp| matches!(own, LinkXdp::Attached(how) if !matches!(how, XdpAttached::None));
    let mut attributes = message.attributes.iter();
    let has =
        attributes.any(|own| matches!(own, LinkAttribute::Xdp(all) if all.iter().any(is_attached)));
    has.then_some(message.header.index).ok_or(Skip::Foreign)
}

/// An address with its interface.
pub(super) fn address(payload: &[u8]) -> Decoded<(u32, IpNet)> {
    let message: AddressMessage = parse(payload)?;
    let (mut local, mut peer) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(ip) => local = Some(*ip),
            AddressAttribute::Address(ip) => peer = Some(*ip),
            _ => {}
        }
    }
    // On a point-to-point interface ADDRESS is the other end's.
    let ip = local.or(peer).ok_or(Skip::Foreign)?;
    let net = IpNet::new(ip, message.header.prefix_len).map_err(|_| Skip::Undecoded)?;
    Ok((message.header.index, net))
}

/// A neighbour: interface, address, and what is known of it, `None` if nothing usable.
pub(super) type Neighbour = (u32, IpAddr, Option<([u8; 6], NeighbourState)>);

pub(super) fn neighbour(payload: &[u8]) -> Decoded<Neighbour> {
    let message: NeighbourMessage = parse(payload)?;
    if message.header.flags.contains(NeighbourFlags::Proxy) {
        return Err(Skip::Foreign);
    }
    let (mut ip, mut mac) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => ip = Some((*v4).into()),
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => ip = Some((*v6).into()),
            NeighbourAttribute::LinkLayerAddress(bytes) => {
                mac = <[u8; 6]>::try_from(bytes.as_slice()).ok();
            }
            _ => {}
        }
    }
    let ip: IpAddr = ip.ok_or(Skip::Foreign)?;
    if ip.is_multicast() {
        return Err(Skip::Foreign); // the kernel computes these, and so does the router
    }
    let state = match message.header.state {
        KernelState::Permanent => Some(NeighbourState::Permanent),
        KernelState::Noarp => Some(NeighbourState::NoArp),
        KernelState::Reachable => Some(NeighbourState::Reachable),
        KernelState::Stale => Some(NeighbourState::Stale),
        KernelState::Delay => Some(NeighbourState::Delay),
        KernelState::Probe => Some(NeighbourState::Probe),
        _ => None,
    };
    Ok((message.header.ifindex, ip, mac.zip(state)))
}

/// A next-hop object as the kernel holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Object {
    Leg(RawLeg),
    Group(Vec<GroupMember>),
    Blackhole,
    /// For a bridge's database, or of a kind this mirror does not know: leads nowhere.
    Unusable,
}

pub(super) fn object(payload: &[u8]) -> Decoded<(u32, Object)> {
    let message: NextHopMessage = parse(payload)?;
    let (mut id, mut gateway, mut ifindex, mut group) = (None, None, None, None);
    let (mut blackhole, mut fdb, mut encapsulated) = (false, false, false);
    for attribute in message.attributes {
        match attribute {
            NextHopAttribute::Id(value) => id = Some(value),
            NextHopAttribute::Gateway(ip) => gateway = Some(ip),
            NextHopAttribute::Oif(value) => ifindex = Some(value),
            NextHopAttribute::Group(members) => group = Some(members),
            NextHopAttribute::Blackhole => blackhole = true,
            NextHopAttribute::Fdb => fdb = true,
            NextHopAttribute::EncapType(kind) => encapsulated = kind != 0,
            _ => {}
        }
    }
    let object = if fdb {
        Object::Unusable
    } else if let Some(members) = group {
        Object::Group(members)
    } else if blackhole {
        Object::Blackhole
    } else if let Some(ifindex) = ifindex {
        let unusable = encapsulated || message.flags & DEAD != 0;
        Object::Leg(RawLeg { leg: Leg { gateway, ifindex, weight: 1 }, unusable })
    } else {
        Object::Unusable
    };
    Ok((id.ok_or(Skip::Undecoded)?, object))
}

/// Where a decoded route leads; legs sorted, because their order means nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RouteTarget {
    Legs(Vec<RawLeg>),
    Object(u32),
    Blackhole,
    Unreachable,
    Prohibit,
}

/// A route of the mirrored table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DecodedRoute {
    pub(super) prefix: IpNet,
    pub(super) metric: u32,
    pub(super) protocol: u8,
    pub(super) rank: Rank,
    pub(super) target: RouteTarget,
}

#[derive(Debug, Default)]
struct LegParts {
    gateway: Option<IpAddr>,
    ifindex: Option<u32>,
    encapsulated: bool,
}

impl LegParts {
    fn read(&mut self, attribute: &RouteAttribute) {
        match attribute {
            RouteAttribute::Gateway(RouteAddress::Inet(v4)) => self.gateway = Some((*v4).into()),
            RouteAttribute::Gateway(RouteAddress::Inet6(v6)) => self.gateway = Some((*v6).into()),
            RouteAttribute::Via(RouteVia::Inet(v4)) => self.gateway = Some((*v4).into()),
            RouteAttribute::Via(RouteVia::Inet6(v6)) => self.gateway = Some((*v6).into()),
            RouteAttribute::Oif(ifindex) => self.ifindex = Some(*ifindex),
            RouteAttribute::EncapType(_) | RouteAttribute::Encap(_) => self.encapsulated = true,
            _ => {}
        }
    }
}

/// A route of a table. Redirects are none: they are for hosts.
pub(super) fn route(payload: &[u8], table: u32) -> Decoded<DecodedRoute> {
    let message: RouteMessage = parse(payload)?;
    let header = &message.header;
    let v6 = match header.address_family {
        AddressFamily::Inet => false,
        AddressFamily::Inet6 => true,
        _ => return Err(Skip::Foreign),
    };
    if header.flags.contains(RouteFlags::Cloned) || header.protocol == RouteProtocol::IcmpRedirect {
        return Err(Skip::Foreign);
    }
    let mut in_table = u32::from(header.table);
    let (mut destination, mut metric, mut object) = (None, 0, None);
    let mut preference = RoutePreference::Medium;
    let mut single = LegParts::default();
    let mut legs = Vec::new();
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Table(number) => in_table = *number,
            RouteAttribute::Destination(RouteAddress::Inet(v4)) => {
                destination = Some(IpAddr::from(*v4));
            }
            RouteAttribute::Destination(RouteAddress::Inet6(v6)) => {
                destination = Some(IpAddr::from(*v6));
            }
            RouteAttribute::Priority(value) => metric = *value,
            RouteAttribute::NhId(id) => object = Some(*id),
            RouteAttribute::Preference(value) => preference = *value,
            RouteAttribute::MultiPath(hops) => {
                for hop in hops {
                    let mut parts = LegParts::default();
                    hop.attributes.iter().for_each(|attribute| parts.read(attribute));
                    let (gateway, ifindex) = (parts.gateway, hop.interface_index);
                    let weight = u32::from(hop.hops) + 1;
                    let dead = hop.flags.contains(RouteNextHopFlags::Dead);
                    let unusable = dead || parts.encapsulated;
                    legs.push(RawLeg { leg: Leg { gateway, ifindex, weight }, unusable });
                }
            }
            other => single.read(other),
        }
    }
    if in_table != table {
        return Err(Skip::Foreign);
    }
    if header.tos != 0 || header.source_prefix_length != 0 {
        return Err(Skip::Unsupported);
    }
    let target = match header.kind {
        RouteType::Unicast | RouteType::BlackHole if object.is_some() => {
            RouteTarget::Object(object.unwrap_or_default())
        }
        RouteType::Unicast => {
            if let (true, Some(ifindex)) = (legs.is_empty(), single.ifindex) {
                let leg = Leg { gateway: single.gateway, ifindex, weight: 1 };
                let unusable = single.encapsulated || header.flags.contains(RouteFlags::Dead);
                legs.push(RawLeg { leg, unusable });
            }
            legs.sort_unstable_by_key(|raw| raw.leg);
            settle_weight(&mut legs, |raw| &mut raw.leg);
            RouteTarget::Legs(legs)
        }
        RouteType::BlackHole => RouteTarget::Blackhole,
        RouteType::Unreachable | RouteType::Throw => RouteTarget::Unreachable,
        RouteType::Prohibit => RouteTarget::Prohibit,
        _ => return Err(Skip::Foreign),
    };
    let any: IpAddr = if v6 { IpAddr::from([0u8; 16]) } else { IpAddr::from([0u8; 4]) };
    let prefix = IpNet::new(destination.unwrap_or(any), header.destination_prefix_length)
        .map_err(|_| Skip::Undecoded)?
        .trunc();
    if destination.is_some_and(|ip| ip.is_ipv6() != v6) {
        return Err(Skip::Undecoded);
    }
    let rank = match (header.protocol, preference) {
        (RouteProtocol::Ra, RoutePreference::High) => Rank::AdvertisedHigh,
        (RouteProtocol::Ra, RoutePreference::Low) => Rank::AdvertisedLow,
        (RouteProtocol::Ra, _) => Rank::Advertised, // RFC 4191 §2.2: reserved is medium
        _ => Rank::Configured,
    };
    Ok(DecodedRoute { prefix, metric, protocol: header.protocol.into(), rank, target })
}
