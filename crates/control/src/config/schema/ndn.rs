//! `[ndn]`, `[ndn.face.NAME]`, `[[name]]` and `[[names]]`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use packet::MacAddr;
use packet::ndn::{MULTICAST_MAC, NameBuf, UDP_PORT};
use toml::de::DeValue;

use crate::config::kinds::{
    Custom, Kind, address, boolean, custom, duration, file, integer, list, name_of, unicast_mac,
};
use crate::config::names::parse_prefix;
use crate::config::next_hop::is_port_name;
use crate::config::read::NameSpans;
use crate::config::section::SectionValue;
use crate::config::values::{self, Value, Walk, string};
use crate::config::walk::{Place, Section};

/// Faces whose counters the forwarder makes at the start.
const FACES_MAX: usize = 1024;

// An Interest without a lifetime waits for 4 s (Packet Format 0.3), and a consumer that waits longer asks again.
crate::section! {
    /// Forwarding by the name of data.
    #[derive(Eq)]
    pub struct Ndn("ndn") {
        /// Maximum number of name prefixes.
        restart names: usize = 1 << 16, integer(16..=1 << 26);
        /// Pending Interests of each worker, about 300 bytes each. Twice as many faces may wait for them. All faces of a port may
        /// hold as many as are free, and each of them as many as its port may still have: one face alone gets a third.
        restart pit_entries: u32 = 1 << 16, integer(16..=1 << 24);
        /// Maximum lifetime of a pending Interest. Without a lifetime in the packet it is 4 s.
        restart lifetime_max: Duration = Duration::from_secs(10),
            duration(Duration::from_millis(1)..=Duration::from_hours(1));
        /// Data packets that the content store of each worker keeps for later Interests. `0`: none are kept.
        restart content_store: u32 = 1 << 14, integer(0..=1 << 24);
        /// Maximum size of the content store of each worker in MiB, with each packet rounded up to a multiple of 256 bytes.
        restart content_store_mib: u32 = 32, integer(1..=1 << 16);
        /// Maximum number of faces on demand (`faces` of a port). A port has no more of them than are still free: half of them, if the others have none.
        restart on_demand_faces: u32 = 1024, integer(1..=30_000);
        /// A face on demand is removed, with the prefixes registered over it, when it has received nothing for this long.
        live idle_timeout: Duration = Duration::from_mins(10),
            duration(Duration::from_secs(1)..=Duration::from_hours(24));
        /// Answer an Interest that has no route, or for which the table of pending Interests has no room, with a Nack.
        restart nack: bool = true, boolean();
    }
}

/// `[ndn.face.NAME]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Face {
    /// The name in routes and tables.
    pub name: String,
    /// Name of the port.
    pub port: String,
    /// What its frames are.
    pub link: FaceLink,
}

/// The frames of a face.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum FaceLink {
    /// NDN packets in Ethernet frames.
    Ethernet {
        /// The neighbour, or the group of all forwarders.
        mac: MacAddr,
    },
    /// NDN packets in UDP datagrams.
    Udp {
        /// Our address, one of the port's, and our UDP port.
        local: SocketAddr,
        /// The neighbour's, of the same family.
        remote: SocketAddr,
        /// Who takes datagrams to the neighbour; `None`: the neighbour is on the link.
        gateway: Option<IpAddr>,
        /// The MAC of the gateway or the neighbour; `None`: it is asked for.
        mac: Option<MacAddr>,
    },
}

/// `02:00:5e:10:00:07` or `192.0.2.1:6363 - 192.0.2.2:6363`.
impl std::fmt::Display for FaceLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ethernet { mac } => write!(f, "{mac}"),
            Self::Udp { local, remote, gateway, mac } => {
                write!(f, "{local} - {remote}")?;
                gateway.map_or(Ok(()), |gateway| write!(f, " by {gateway}"))?;
                mac.map_or(Ok(()), |mac| write!(f, " at {mac}"))
            }
        }
    }
}

crate::section! {
    /// A face: a way to a neighbour.
    pub(in crate::config) struct AnyFace("ndn.face.NAME") {
        /// Port of the face.
        live port: String = String::new(), name_of("a port").needed("\"lan\"");
    }
}

crate::section! {
    /// A face over Ethernet.
    pub(in crate::config) struct EthernetFace("ndn.face.NAME") {
        /// MAC address of the neighbour, or the group of all forwarders.
        live mac: MacAddr = MULTICAST_MAC, station_or_group();
    }
}

crate::section! {
    /// A face over UDP.
    pub(in crate::config) struct UdpFace("ndn.face.NAME") {
        /// One of the port's `addresses`, with or without a UDP port (6363).
        live local: Option<SocketAddr> = None, socket().optional().needed("\"192.0.2.1\"");
        /// Address of the neighbour, of the same family.
        live remote: Option<SocketAddr> = None, socket().optional().needed("\"192.0.2.2:6363\"");
        /// Router to the neighbour, if the neighbour is in no subnet of the port.
        live gateway: Option<IpAddr> = None, address().optional();
        /// MAC address of the gateway if there is one, otherwise of the neighbour.
        live mac: Option<MacAddr> = None, unicast_mac().optional().shown("Linux resolves it");
    }
}

crate::section! {
    /// A route for names.
    #[derive(Eq, Hash)]
    pub struct NameRoute("[[name]]") {
        /// Prefix of the names, a URI such as `"/org/example"`, at most 31 components. `"/"`: all names.
        live prefix: NameBuf = NameBuf::default(), prefix().needed("\"/org/example\"");
        /// Faces, best first: an Interest takes the first one that is up and is not the one that it arrived on.
        live faces: Vec<String> = Vec::new(),
            list(name_of("a face"), "an array of names of faces")
                .not_empty("at least one face")
                .needed("[\"west\"]");
    }
}

crate::section! {
    /// A file of routes for names, one `NAME FACE[,FACE]` per line.
    pub(in crate::config) struct NameFile("[[names]]") {
        /// Path of the file. A relative path starts at the folder of the configuration.
        live file: Option<PathBuf> = None,
            file("a file with one `NAME FACE[,FACE]` per line").optional().needed("\"names.txt.gz\"");
    }
}

/// `[ndn]` with its faces.
pub(in crate::config) fn ndn(
    section: &mut Section<'_, '_>,
    walk: &mut Walk<'_>,
    ndn: &mut Ndn,
) -> Vec<(Face, Place)> {
    ndn.read(section, walk);
    let faces = section.take(walk, "face", |walk, value| {
        Some((Section::of(walk, value, "ndn.face")?, value.span()))
    });
    let Some((faces, span)) = faces else { return Vec::new() };
    let entries = faces.entries();
    if entries.len() > FACES_MAX {
        walk.error(span, format!("{} faces", entries.len()))
            .expected(format!("at most {FACES_MAX}"));
    }
    let read = |(name, span, value)| face(walk, name, span, value);
    entries.into_iter().filter_map(read).collect()
}

/// `None` where the value is not a table.
fn face(
    walk: &mut Walk<'_>,
    name: &str,
    name_span: Range<usize>,
    value: &Value<'_>,
) -> Option<(Face, Place)> {
    if !is_port_name(name) {
        walk.error(name_span, format!("`{name}` cannot name a face")).expected(
            "at most 32 letters, digits, `.`, `_` and `-`, one letter at least, not blackhole, \
             unreachable, drops, host or all",
        );
    }
    let mut section = Section::of(walk, value, &format!("ndn.face.{name}"))?;
    let mut any = AnyFace::default();
    any.read(&mut section, walk);
    let is_udp = section.has("local") || section.has("remote");
    let link = if is_udp {
        let mut keys = UdpFace::default();
        keys.read(&mut section, walk);
        let UdpFace { local, remote, gateway, mac } = keys;
        let (local, remote) =
            (local.unwrap_or_else(|| any_like(remote)), remote.unwrap_or_else(|| any_like(local)));
        FaceLink::Udp { local, remote, gateway, mac }
    } else {
        let mut keys = EthernetFace::default();
        keys.read(&mut section, walk);
        section.know(UdpFace::KEYS);
        if let Some(value) = section.get(walk, "gateway") {
            walk.error(value.span(), "`gateway` at a face over Ethernet")
                .expected("`local` and `remote` with it, for a face over UDP");
        }
        FaceLink::Ethernet { mac: keys.mac }
    };
    let keys = section.place();
    section.finish(walk);
    Some((Face { name: name.to_owned(), port: any.port, link }, keys))
}

/// Stands in for the end of a UDP face whose other end is known.
fn any_like(other: Option<SocketAddr>) -> SocketAddr {
    let is_v6 = other.is_some_and(|other| other.is_ipv6());
    let any: IpAddr =
        if is_v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    (any, 0).into()
}

fn socket() -> Custom<SocketAddr> {
    custom("address", "`\"ADDRESS\"`, `\"ADDRESS:PORT\"`", read_socket, SocketAddr::to_string)
}

/// An address with a UDP port, NDN's own if it is left out.
fn read_socket(walk: &mut Walk<'_>, value: &Value<'_>) -> Option<SocketAddr> {
    let text = string(walk, value)?;
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let whole = text.parse().ok().filter(|socket: &SocketAddr| socket.port() != 0);
    let found = whole.or_else(|| Some((bare.parse::<IpAddr>().ok()?, UDP_PORT).into()));
    // A scope says what `port` says.
    found.filter(|socket| !matches!(socket, SocketAddr::V6(v6) if v6.scope_id() != 0)).or_else(
        || {
            let message = format!("{} is `{text}`", walk.subject());
            walk.error(value.span(), message).expected(
                "ADDRESS or ADDRESS:PORT such as \"192.0.2.1:6363\" or \"[2001:db8::1]:6363\"",
            );
            None
        },
    )
}

fn station_or_group() -> Custom<MacAddr> {
    let read = |walk: &mut Walk<'_>, value: &Value<'_>| match value.get_ref() {
        DeValue::String(text) if text.parse() == Ok(MULTICAST_MAC) => Some(MULTICAST_MAC),
        _ => values::unicast_mac(walk, value),
    };
    let allowed = format!("a station's MAC address, or `\"{MULTICAST_MAC}\"`");
    custom("MAC address", allowed, read, MacAddr::to_string)
}

fn prefix() -> Custom<NameBuf> {
    let read = |walk: &mut Walk<'_>, value: &Value<'_>| {
        let text = string(walk, value)?;
        match parse_prefix(text) {
            Ok(prefix) => Some(prefix),
            Err(error) => {
                let message = format!("{} is not a name: {error}", walk.subject());
                walk.error(value.span(), message).expected("a name such as \"/org/example\"");
                None
            }
        }
    };
    custom("name", "the prefix of a name", read, NameBuf::to_string)
}

pub(in crate::config) fn name(
    mut section: Section<'_, '_>,
    walk: &mut Walk<'_>,
) -> (NameRoute, NameSpans) {
    let mut route = NameRoute::default();
    route.read(&mut section, walk);
    let spans = NameSpans { keys: section.place(), faces: section.elements_of("faces") };
    section.finish(walk);
    (route, spans)
}

pub(in crate::config) fn names(
    mut section: Section<'_, '_>,
    walk: &mut Walk<'_>,
) -> Option<PathBuf> {
    let mut keys = NameFile::default();
    keys.read(&mut section, walk);
    section.finish(walk);
    keys.file
}
