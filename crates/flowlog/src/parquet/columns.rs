//! The columns of a table of flow records: name, type, and where the value comes from.
//!
//! Types are those that pandas and DuckDB read without further ado: counts are signed 64-bit numbers, since both make
//! floating-point numbers or 128-bit sums of unsigned ones; what is larger is written as the largest. Only `flow_id` is
//! unsigned: it is compared, not added. Addresses are text, which DuckDB casts to `INET` and pandas to `ipaddress`. Times
//! are timestamps in nanoseconds, UTC.

use std::fmt::Write;

use stream::record::{FlowRecord, Reason, SideRecord};

use crate::{community_id, eve};

/// Where the values of a column come from.
#[derive(Clone, Copy)]
pub(super) enum Source {
    /// Nanoseconds since 1970.
    Time(fn(&FlowRecord) -> u64),
    /// An identifier of 64 bits.
    Id(fn(&FlowRecord) -> u64),
    /// A count, bytes or nanoseconds.
    Count(fn(&FlowRecord) -> u64),
    /// The same, where it is known.
    CountIfKnown(fn(&FlowRecord) -> Option<u64>),
    /// A number of at most 31 bits.
    Small(fn(&FlowRecord) -> u32),
    /// The same, where there is one.
    SmallIfAny(fn(&FlowRecord) -> Option<u32>),
    /// One of a few words.
    Word(fn(&FlowRecord) -> &'static str),
    /// The same, where there is one.
    WordIfAny(fn(&FlowRecord) -> Option<&'static str>),
    /// Text that is appended to the string.
    Text(fn(&FlowRecord, &mut String)),
    /// The same; none is nothing.
    TextIfAny(fn(&FlowRecord, &mut String)),
    /// The Community ID, where the table has a seed.
    CommunityId,
}

/// A column.
pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) source: Source,
}

const fn column(name: &'static str, source: Source) -> Column {
    Column { name, source }
}

/// Counts of a side, each as a column of the client and one of the server.
macro_rules! sides {
    ($($field:ident $source:ident $value:expr),* $(,)?) => {
        &[
            $(column(concat!("client_", stringify!($field)), Source::$source(|r| {
                let value: fn(&SideRecord) -> _ = $value;
                value(&r.sides[0])
            })),)*
            $(column(concat!("server_", stringify!($field)), Source::$source(|r| {
                let value: fn(&SideRecord) -> _ = $value;
                value(&r.sides[1])
            })),)*
        ]
    };
}

const FLOW: &[Column] = &[
    column("flow_id", Source::Id(|r| r.id)),
    column("start", Source::Time(|r| r.start_ns)),
    column("end", Source::Time(|r| r.end_ns)),
    column("client", Source::Text(|r, text| address(r.client, text))),
    column("server", Source::Text(|r, text| address(r.server, text))),
    column("client_port", Source::Small(|r| r.client_port.into())),
    column("server_port", Source::Small(|r| r.server_port.into())),
    column("protocol", Source::Small(|r| r.protocol.into())),
    column("proto", Source::WordIfAny(|r| eve::protocol_name(r.protocol))),
    column("icmp_type", Source::SmallIfAny(|r| r.icmp.map(|(kind, _)| kind.into()))),
    column("icmp_code", Source::SmallIfAny(|r| r.icmp.map(|(_, code)| code.into()))),
    column("vlan", Source::SmallIfAny(|r| vlan(r.vlans[0]))),
    column("vlan_inner", Source::SmallIfAny(|r| vlan(r.vlans[1]))),
    column("tunnels", Source::TextIfAny(|r, text| tunnels(&r.tunnels, text))),
    column("port", Source::Small(|r| r.port.into())),
    column("state", Source::Word(|r| eve::state(r.state))),
    column("reason", Source::Word(|r| reason(r.reason))),
    column("tcp_state", Source::WordIfAny(|r| r.tcp.map(eve::tcp_state))),
    column("handshake_rtt_ns", Source::CountIfKnown(|r| r.handshake_rtt_ns)),
    column("community_id", Source::CommunityId),
];

const SIDES: &[Column] = sides![
    packets Count |s| s.packets,
    bytes Count |s| s.bytes,
    ip_bytes Count |s| s.ip_bytes,
    ttl_min Small |s| s.ttl.0.into(),
    ttl_max Small |s| s.ttl.1.into(),
    tcp_flags Small |s| s.tcp_flags.into(),
    stream_bytes Count |s| s.stream_bytes,
    retransmissions Count |s| s.retransmissions.into(),
    out_of_order Count |s| s.out_of_order.into(),
    overlaps Count |s| s.overlaps.into(),
    conflicts Count |s| s.conflicts.into(),
    gaps Count |s| s.gaps.into(),
    gap_bytes Count |s| s.gap_bytes,
    rtt_min_ns CountIfKnown |s| s.rtt_min_ns,
];

/// All columns, in order.
pub(super) fn all() -> impl Iterator<Item = &'static Column> {
    FLOW.iter().chain(SIDES)
}

/// The Community ID of a record.
pub(super) fn community_id(seed: u16, record: &FlowRecord, text: &mut String) {
    let client = (record.client, record.client_port);
    let server = (record.server, record.server_port);
    let id = community_id::v1(seed, client, server, record.protocol, record.icmp);
    text.extend(id.map(char::from));
}

fn address(address: std::net::IpAddr, text: &mut String) {
    // A string takes whatever is written to it.
    let _ = write!(text, "{address}");
}

fn tunnels(path: &packet::tunnel::Path, text: &mut String) {
    // A string takes whatever is written to it.
    let _ = write!(text, "{path}");
}

fn vlan(id: u16) -> Option<u32> {
    (id != 0).then_some(id.into())
}

fn reason(reason: Reason) -> &'static str {
    match reason {
        Reason::Active => "active",
        Reason::Timeout => "timeout",
        Reason::Closed => "closed",
        Reason::Evicted => "evicted",
        Reason::Shutdown => "shutdown",
    }
}
