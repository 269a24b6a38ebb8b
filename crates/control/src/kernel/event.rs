//! The mirror's events: changes of the kernel's view of the watched interfaces.

use std::{net::IpAddr, sync::Arc};

use ipnet::IpNet;
use netlink_packet_route::route::RouteProtocol;

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The kernel's number of it.
    pub ifindex: u32,
    /// Its name.
    pub name: String,
    /// Its Ethernet address; zero for interfaces that have none of six bytes.
    pub mac: [u8; 6],
    /// Largest packet above Ethernet, bytes.
    pub mtu_bytes: u32,
    /// Switched on by the administrator (`IFF_UP`).
    pub up: bool,
    /// The other end is there (`IFF_LOWER_UP`).
    pub carrier: bool,
}

/// How far a neighbour entry can be trusted (`NUD_…`); only states that have an address to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the kernel's own names")]
pub enum NeighbourState {
    Permanent,
    NoArp,
    Reachable,
    Stale,
    Delay,
    Probe,
}

/// One way to leave the box.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Leg {
    /// The neighbour that packets go to; `None`: the destination itself is on the link.
    /// Its family may differ from the route's (RFC 8950).
    pub gateway: Option<IpAddr>,
    /// The interface.
    pub ifindex: u32,
    /// Share among the legs of one route, 1 or more; 1 if there is only one.
    pub weight: u32,
}

/// What a next-hop object stands for, groups resolved.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum NextHop {
    /// At least one leg, all over watched interfaces that are up. Equal sets share one allocation.
    Legs(Arc<[Leg]>),
    /// Drop.
    Blackhole,
}

/// Where a route leads.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Target {
    /// At least one leg, as in [`NextHop::Legs`].
    Legs(Arc<[Leg]>),
    /// The next-hop object of this number, announced before by [`Event::NextHopReplaced`].
    NextHop(u32),
    /// Drop silently.
    Blackhole,
    /// Drop and answer "host unreachable" (`unreachable` and `throw` routes).
    Unreachable,
    /// Drop and answer "administratively prohibited".
    Prohibit,
}

/// The best route of a prefix: the lowest metric that has a usable leg.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Route {
    /// Where it leads.
    pub target: Target,
    /// The kernel's priority; lower wins.
    pub metric: u32,
    /// Who installed it (`RTPROT_…`: 2 kernel, 4 static, 9 Router Advertisements, 11 zebra, 12 BIRD, 186 BGP, …).
    pub protocol: u8,
}

impl Route {
    /// Whether a Router Advertisement brought it. Such a route is reported where there is no other one.
    pub fn is_advertised(&self) -> bool {
        self.protocol == u8::from(RouteProtocol::Ra)
    }
}

/// One change. Within a batch, and over batches, an event names only interfaces and objects
/// that earlier events announced and no event has removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// An interface appeared or changed. Reported for all interfaces, watched or not.
    LinkChanged(Link),
    /// An interface is gone; everything about it was removed before.
    LinkRemoved {
        /// Its number.
        ifindex: u32,
        /// Its last name.
        name: String,
    },
    /// A watched interface has this address (host bits kept, so that it is both address and
    /// prefix).
    AddressAdded {
        /// The interface.
        ifindex: u32,
        /// The address and its prefix length.
        address: IpNet,
    },
    /// It no longer has it.
    AddressRemoved {
        /// The interface.
        ifindex: u32,
        /// The address and its prefix length.
        address: IpNet,
    },
    /// A neighbour on a watched interface has this Ethernet address.
    NeighbourChanged {
        /// The interface.
        ifindex: u32,
        /// The neighbour's address.
        ip: IpAddr,
        /// Its Ethernet address.
        mac: [u8; 6],
        /// How far to trust it.
        state: NeighbourState,
    },
    /// A neighbour is unknown again (removed, failed, or being asked anew).
    NeighbourRemoved {
        /// The interface.
        ifindex: u32,
        /// The neighbour's address.
        ip: IpAddr,
    },
    /// A next-hop object appeared or changed; the routes that name it follow it and are not
    /// reported again.
    NextHopReplaced {
        /// Its number.
        id: u32,
        /// What it stands for.
        next_hop: NextHop,
    },
    /// A next-hop object is gone or leads nowhere; no route names it any more.
    NextHopRemoved {
        /// Its number.
        id: u32,
    },
    /// The best route of a prefix appeared or changed.
    RouteReplaced {
        /// Destination, host bits zero.
        prefix: IpNet,
        /// The route.
        route: Route,
    },
    /// A prefix has no usable route any more.
    RouteRemoved {
        /// Destination.
        prefix: IpNet,
    },
    /// So many prefixes have a route that is not reported, for
    /// [`Options::routes_max`](super::Options::routes_max) routes are. They follow when there is room.
    RoutesHeldBack {
        /// How many.
        routes: usize,
        /// How many are reported at most.
        max: usize,
    },
    /// The state of the kernel at the start of the mirror has been reported completely.
    Synced,
}
