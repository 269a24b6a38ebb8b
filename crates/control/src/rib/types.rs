//! The changes that sources report to the RIB.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use lookup::TableError;
use lookup::fib::{Interface, Options};
use serde::{Deserialize, Serialize};

/// The source of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// An interface's own address or subnet.
    Connected,
    /// `[[route]]`.
    Static,
    /// The control socket.
    Api,
    /// The kernel's tables.
    Kernel,
    /// The routes file of this number.
    File(u16),
    /// Router Advertisements, by way of the kernel.
    Advertised,
}

impl Source {
    /// Administrative preference: smaller wins.
    pub fn preference(self) -> u8 {
        match self {
            Source::Connected => 0,
            Source::Static | Source::Api => 1,
            Source::Kernel => 10,
            Source::File(_) => 20,
            Source::Advertised => 30,
        }
    }
}

/// The kind of source that announced a route, as clients see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteSource {
    /// A port's own address or subnet.
    Connected,
    /// `[[route]]`.
    Static,
    /// `[[routes]]`.
    File,
    /// The kernel's tables.
    Kernel,
    /// The control socket.
    Api,
    /// Router Advertisements (RFC 4861), of ports that accept them.
    #[serde(rename = "ra")]
    Advertised,
}

impl RouteSource {
    /// All of them.
    pub const ALL: [RouteSource; 6] = [
        RouteSource::Connected,
        RouteSource::Static,
        RouteSource::File,
        RouteSource::Kernel,
        RouteSource::Api,
        RouteSource::Advertised,
    ];

    /// Its word in tables, JSON and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            RouteSource::Connected => "connected",
            RouteSource::Static => "static",
            RouteSource::File => "file",
            RouteSource::Kernel => "kernel",
            RouteSource::Api => "api",
            RouteSource::Advertised => "ra",
        }
    }
}

impl std::fmt::Display for RouteSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl From<Source> for RouteSource {
    fn from(source: Source) -> RouteSource {
        match source {
            Source::Connected => RouteSource::Connected,
            Source::Static => RouteSource::Static,
            Source::Api => RouteSource::Api,
            Source::Kernel => RouteSource::Kernel,
            Source::File(_) => RouteSource::File,
            Source::Advertised => RouteSource::Advertised,
        }
    }
}

/// One way to leave the router, as a source says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Leg {
    /// The neighbour; `None`: the packet's destination, on the link of `interface`.
    pub gateway: Option<IpAddr>,
    /// The interface; `None`: the one that leads to `gateway`.
    pub interface: Option<u16>,
    /// Share among the legs of a route; 0 counts as 1.
    pub weight: u32,
}

/// Where a route leads, as a source says it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Target {
    /// By one of these. Legs that do not resolve are left out; without one that does the route is
    /// not used.
    Legs(Arc<[Leg]>),
    /// As the next-hop object of this number says ([`RibChange::Object`]).
    Object(u32),
    /// Dropped in silence.
    Blackhole,
    /// Dropped, and its sender gets an ICMP error.
    Unreachable,
    /// An address of this interface.
    Local(u16),
    /// The directed broadcast of this interface.
    Broadcast(u16),
}

impl Target {
    /// A single neighbour whose interface follows from its address.
    pub fn via(gateway: IpAddr) -> Target {
        Target::Legs([Leg { gateway: Some(gateway), interface: None, weight: 1 }].into())
    }

    /// The link of an interface.
    pub fn on(interface: u16) -> Target {
        Target::Legs([Leg { gateway: None, interface: Some(interface), weight: 1 }].into())
    }
}

/// One change. Changes are seen together, by [`RibManager::commit`](super::RibManager::commit).
#[derive(Debug, Clone)]
pub enum RibChange {
    /// An interface is there, has changed, or is gone. Its addresses make the connected routes while
    /// it is up; all routes over it follow its state.
    Interface {
        /// Its index.
        index: u16,
        /// What it is now.
        interface: Option<Interface>,
    },
    /// Adds a route, or replaces that of the same source (static: and metric) for the prefix.
    Route {
        /// Destinations; host bits are ignored.
        prefix: IpNet,
        /// The source of the routes.
        source: Source,
        /// Smaller wins within one preference.
        metric: u32,
        /// Where to.
        target: Target,
    },
    /// Takes a source's route away.
    RemoveRoute {
        /// Destinations; host bits are ignored.
        prefix: IpNet,
        /// The source of the route.
        source: Source,
        /// Only that of this metric.
        metric: Option<u32>,
    },
    /// A next-hop object is there, has changed, or is gone. It must not name another object.
    Object {
        /// Its number.
        id: u32,
        /// What it stands for.
        target: Option<Target>,
    },
    /// A neighbour is known, or not any more.
    Neighbour {
        /// The interface it is on.
        interface: u16,
        /// Its address.
        address: IpAddr,
        /// Its MAC address.
        mac: Option<[u8; 6]>,
    },
    /// The data path's options.
    Options(Options),
}

/// Why a change was refused. The RIB is as it was before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RibError {
    /// A forwarding table is full, or has no memory.
    #[error(transparent)]
    Table(#[from] TableError),
    /// There is no such route.
    #[error("there is no such route")]
    NoSuchRoute,
    /// An IPv6 route cannot lead to an IPv4 neighbour.
    #[error("IPv6 packets cannot be sent to the IPv4 neighbour {0}")]
    Family(IpAddr),
}
