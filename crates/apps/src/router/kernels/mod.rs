//! The router's kernels: `rpf` and `route`, whose CPU form is in the stages of those names; `decode` and `rewrite`, which no
//! stage uses on a device yet, after [`packet::decode()`] and the plain way of `rewrite`.
//!
//! | file | kernels | CPU form |
//! | --- | --- | --- |
//! | `route` | `rpf`, `route` | [`rpf`](super::rpf), [`route`](super::route) |
//! | `decode` | `decode` | [`packet::decode()`] |
//! | `rewrite` | `rewrite` | [`packet::checksum`] |
//!
//! `rpf` and `route` get the first region of the router's part of the tables as their job argument.

mod columns;
mod known;

use chunk::Columns;
use kernels::files::headers;
use kernels::{KernelFile, KernelInfo};
use lookup::fib::{ReversePath, image};

use super::columns::Decision;

pub use columns::{
    HeaderColumns, HeaderView, RewriteColumns, RewriteView, RouteColumns, RouteView,
};

/// All of them.
pub const FILES: &[&KernelFile] = &[&ROUTE, &DECODE, &REWRITE];

/// The router's stages `rpf` and `route`.
pub const ROUTE: KernelFile = KernelFile {
    name: "route",
    columns: RouteColumns::COLUMNS,
    text: include_str!("route.k"),
    headers: &[headers::LPM, headers::TRIES],
    kernels: &[
        KernelInfo::new(
            "route",
            &["verdict", "flags", "flow_hash", "dst4", "dst6", "decision"],
            256,
        ),
        KernelInfo::new("rpf", &["verdict", "flags", "interface", "src4", "src6"], 256),
    ],
    constants: CONSTANTS,
    known: known::routes,
    ..KernelFile::NONE
};

/// How a frame is decoded: the twin of [`packet::decode()`].
pub(crate) const DECODE_HEADER: &str = include_str!("decode.h");

/// Headers into columns.
pub const DECODE: KernelFile = KernelFile {
    name: "decode",
    columns: HeaderColumns::COLUMNS,
    text: include_str!("decode.k"),
    headers: &[headers::HASH, DECODE_HEADER],
    kernels: &[KernelInfo::new("decode", DECODE_COLUMNS, 128)],
    known: known::decodes,
    ..KernelFile::NONE
};

/// Plain packets, forwarded in place.
pub const REWRITE: KernelFile = KernelFile {
    name: "rewrite",
    columns: RewriteColumns::COLUMNS,
    text: include_str!("rewrite.k"),
    kernels: &[KernelInfo::new("rewrite", REWRITE_COLUMNS, 128)],
    constants: CONSTANTS,
    known: known::rewrites,
    ..KernelFile::NONE
};

/// Bits of the column `flags` that kernels look at.
pub mod flags {
    use crate::router::columns::flags;

    /// IPv4, to be routed.
    pub const IPV4: u16 = flags::IPV4;
    /// IPv6, to be routed.
    pub const IPV6: u16 = flags::IPV6;
    /// An address is link-local.
    pub const LINK_LOCAL: u16 = flags::LINK_LOCAL;
}

/// Values of the column `decision`: a kind in the top four bits, an adjacency (kind 0) or an interface below.
pub mod decision {
    use super::Decision;

    /// Adjacencies that the column can name.
    pub const ADJACENCIES_MAX: u32 = Decision::ADJACENCIES_MAX;
    /// To the destination itself, on the link of an interface.
    pub const CONNECTED: u32 = Decision::Connected(0).encode();
    /// To an address of an interface.
    pub const LOCAL: u32 = Decision::Local(0).encode();
    /// To the directed broadcast of an interface.
    pub const BROADCAST: u32 = Decision::Broadcast(0).encode();
    /// No route covers the destination.
    pub const NO_ROUTE: u32 = Decision::NoRoute.encode();
    /// The route says unreachable.
    pub const UNREACHABLE: u32 = Decision::Unreachable.encode();
}

/// The words of a next hop: its kind's number, members of a group, and adjacency, first member or interface.
pub const fn next_hop(kind: u8, count: u16, first: u32) -> [u32; 2] {
    [kind as u32 | (count as u32) << 16, first]
}

/// The word of an adjacency: family 0 (the packet's destination is the neighbour), 4 or 6, and interface.
pub const fn adjacency(family: u16, interface: u16) -> u32 {
    (family as u32) << 16 | interface as u32
}

/// What the texts share with the host.
const CONSTANTS: &[(&str, u32)] = &[
    ("REGION_ROUTES4", image::V4 as u32),
    ("REGION_ROUTES6", image::V6 as u32),
    ("REGION_NEXT_HOPS", image::NEXT_HOPS as u32),
    ("REGION_GROUP_MEMBERS", image::GROUP_MEMBERS as u32),
    ("REGION_ADJACENCIES", image::ADJACENCIES as u32),
    ("REGION_REVERSE_PATH", image::INTERFACES as u32),
    ("REVERSE_PATH_OFF", ReversePath::Off as u32),
    ("REVERSE_PATH_STRICT", ReversePath::Strict as u32),
    ("REVERSE_PATH_LOOSE", ReversePath::Loose as u32),
    ("FLAG_IPV4", flags::IPV4 as u32),
    ("FLAG_IPV6", flags::IPV6 as u32),
    ("FLAG_LINK_LOCAL", flags::LINK_LOCAL as u32),
    ("DECISION_ADJACENCIES_MAX", decision::ADJACENCIES_MAX),
    ("DECISION_CONNECTED", decision::CONNECTED),
    ("DECISION_LOCAL", decision::LOCAL),
    ("DECISION_BROADCAST", decision::BROADCAST),
    ("DECISION_NO_ROUTE", decision::NO_ROUTE),
    ("DECISION_UNREACHABLE", decision::UNREACHABLE),
];

const DECODE_COLUMNS: &[&str] = &[
    "payload_at",
    "payload_len",
    "frame_len",
    "src",
    "dst",
    "ip_total_len",
    "l4_word",
    "vlan_tci",
    "flow_hash",
    "ethertype",
    "l3_offset",
    "l4_offset",
    "ip_header_len",
    "fragment_offset",
    "header_flags",
    "kind",
    "protocol",
    "ttl",
    "traffic_class",
    "anomaly",
    "counts",
];

const REWRITE_COLUMNS: &[&str] =
    &["verdict", "payload_at", "payload_len", "frame_len", "flags", "l3", "mtu", "tx_port", "macs"];
