//! Templates: which information elements a record has, in which order.
//!
//! A template is a list of fields; the record of a flow is written by walking along it, so the two cannot differ.

use std::net::IpAddr;

use stream::FlowRecord;
use stream::record::Reason;

use super::deltas::Delta;
use crate::{community_id, protocol};

/// Identifiers of templates: 256 and above (RFC 7011 §3.4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum Template {
    Ipv4 = 256,
    Ipv6 = 257,
    Icmpv4 = 258,
    Icmpv6 = 259,
}

/// An information element (IANA, *IPFIX Information Elements*), with its number and the length that it has here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    FlowId,
    SourceIpv4Address,
    DestinationIpv4Address,
    SourceIpv6Address,
    DestinationIpv6Address,
    SourceTransportPort,
    DestinationTransportPort,
    IcmpTypeCodeIpv4,
    IcmpTypeCodeIpv6,
    ProtocolIdentifier,
    TcpControlBits,
    IngressInterface,
    VlanId,
    Dot1qCustomerVlanId,
    MinimumTtl,
    MaximumTtl,
    OctetDeltaCount,
    PacketDeltaCount,
    FlowStartMilliseconds,
    FlowEndMilliseconds,
    FlowEndReason,
}

impl Field {
    /// Number of the element, and length in bytes.
    const fn specifier(self) -> (u16, u16) {
        match self {
            Field::FlowId => (148, 8),
            Field::SourceIpv4Address => (8, 4),
            Field::DestinationIpv4Address => (12, 4),
            Field::SourceIpv6Address => (27, 16),
            Field::DestinationIpv6Address => (28, 16),
            Field::SourceTransportPort => (7, 2),
            Field::DestinationTransportPort => (11, 2),
            Field::IcmpTypeCodeIpv4 => (32, 2),
            Field::IcmpTypeCodeIpv6 => (139, 2),
            Field::ProtocolIdentifier => (4, 1),
            Field::TcpControlBits => (6, 2),
            Field::IngressInterface => (10, 4),
            Field::VlanId => (58, 2),
            Field::Dot1qCustomerVlanId => (245, 2),
            Field::MinimumTtl => (52, 1),
            Field::MaximumTtl => (53, 1),
            Field::OctetDeltaCount => (1, 8),
            Field::PacketDeltaCount => (2, 8),
            Field::FlowStartMilliseconds => (152, 8),
            Field::FlowEndMilliseconds => (153, 8),
            Field::FlowEndReason => (136, 1),
        }
    }
}

/// Fields that all templates end with.
const COMMON: [Field; 13] = [
    Field::ProtocolIdentifier,
    Field::TcpControlBits,
    Field::IngressInterface,
    Field::VlanId,
    Field::Dot1qCustomerVlanId,
    Field::MinimumTtl,
    Field::MaximumTtl,
    Field::OctetDeltaCount,
    Field::PacketDeltaCount,
    Field::FlowStartMilliseconds,
    Field::FlowEndMilliseconds,
    Field::FlowEndReason,
    Field::FlowId,
];

impl Template {
    pub(super) const ALL: [Template; 4] =
        [Template::Ipv4, Template::Ipv6, Template::Icmpv4, Template::Icmpv6];

    /// The template of what one side of a flow sent. Collectors show the type and code of ICMP in the place of the
    /// destination port, so a record has the one or the other.
    pub(super) fn of(record: &FlowRecord, side: usize) -> Template {
        let has_icmp = icmp(record, side).is_some();
        match (record.client, record.protocol) {
            (IpAddr::V4(_), protocol::ICMP) if has_icmp => Template::Icmpv4,
            (IpAddr::V6(_), protocol::ICMPV6) if has_icmp => Template::Icmpv6,
            (IpAddr::V4(_), _) => Template::Ipv4,
            (IpAddr::V6(_), _) => Template::Ipv6,
        }
    }

    /// Identifier of the template, and of its sets of records.
    pub(super) const fn id(self) -> u16 {
        self as u16
    }

    fn fields(self) -> impl Iterator<Item = Field> + Clone {
        use Field::*;
        let own: &[Field] = match self {
            Template::Ipv4 => &[
                SourceIpv4Address,
                DestinationIpv4Address,
                SourceTransportPort,
                DestinationTransportPort,
            ],
            Template::Ipv6 => &[
                SourceIpv6Address,
                DestinationIpv6Address,
                SourceTransportPort,
                DestinationTransportPort,
            ],
            Template::Icmpv4 => &[SourceIpv4Address, DestinationIpv4Address, IcmpTypeCodeIpv4],
            Template::Icmpv6 => &[SourceIpv6Address, DestinationIpv6Address, IcmpTypeCodeIpv6],
        };
        own.iter().chain(&COMMON).copied()
    }

    /// Length of a record in bytes.
    pub(super) fn record_len(self) -> usize {
        self.fields().map(|field| usize::from(field.specifier().1)).sum()
    }

    /// Appends the template record (RFC 7011 §3.4.1).
    pub(super) fn describe(self, out: &mut Vec<u8>) {
        let fields = self.fields();
        out.extend(self.id().to_be_bytes());
        out.extend((fields.clone().count() as u16).to_be_bytes());
        for field in fields {
            let (element, len) = field.specifier();
            out.extend(element.to_be_bytes());
            out.extend(len.to_be_bytes());
        }
    }

    /// Appends the data record of what one side of a flow sent.
    pub(super) fn write(self, record: &FlowRecord, delta: &Delta, side: usize, out: &mut Vec<u8>) {
        let sent = &record.sides[side];
        let client = (record.client, record.client_port);
        let server = (record.server, record.server_port);
        let (src, dst) = if side == 0 { (client, server) } else { (server, client) };
        let start = out.len();
        for field in self.fields() {
            match field {
                Field::FlowId => out.extend(record.id.to_be_bytes()),
                Field::SourceIpv4Address | Field::SourceIpv6Address => address(src.0, out),
                Field::DestinationIpv4Address | Field::DestinationIpv6Address => {
                    address(dst.0, out);
                }
                Field::SourceTransportPort => out.extend(port(record, src.1).to_be_bytes()),
                Field::DestinationTransportPort => out.extend(port(record, dst.1).to_be_bytes()),
                Field::IcmpTypeCodeIpv4 | Field::IcmpTypeCodeIpv6 => {
                    let (kind, code) = icmp(record, side).unwrap_or_default();
                    out.extend([kind, code]);
                }
                Field::ProtocolIdentifier => out.push(record.protocol),
                Field::TcpControlBits => out.extend(sent.tcp_flags.to_be_bytes()),
                Field::IngressInterface => {
                    // By which port the answers come in is not known.
                    let port = if side == 0 { record.port.into() } else { 0 };
                    out.extend(u32::to_be_bytes(port));
                }
                Field::VlanId => out.extend(record.vlans[0].to_be_bytes()),
                Field::Dot1qCustomerVlanId => out.extend(record.vlans[1].to_be_bytes()),
                Field::MinimumTtl => out.push(sent.ttl.0),
                Field::MaximumTtl => out.push(sent.ttl.1),
                Field::OctetDeltaCount => out.extend(delta.counts[side].bytes.to_be_bytes()),
                Field::PacketDeltaCount => out.extend(delta.counts[side].packets.to_be_bytes()),
                Field::FlowStartMilliseconds => out.extend(ms(delta.start_ns).to_be_bytes()),
                Field::FlowEndMilliseconds => out.extend(ms(record.end_ns).to_be_bytes()),
                Field::FlowEndReason => out.push(end_reason(record.reason)),
            }
        }
        debug_assert_eq!(out.len() - start, self.record_len());
    }
}

fn address(address: IpAddr, out: &mut Vec<u8>) {
    match address {
        IpAddr::V4(address) => out.extend(address.octets()),
        IpAddr::V6(address) => out.extend(address.octets()),
    }
}

/// The identifier of an ICMP echo is not a port.
fn port(record: &FlowRecord, port: u16) -> u16 {
    if matches!(record.protocol, protocol::ICMP | protocol::ICMPV6) { 0 } else { port }
}

/// Type and code of what a side sent. A flow has those of its first packet; the server sent what answers that type.
fn icmp(record: &FlowRecord, side: usize) -> Option<(u8, u8)> {
    match side {
        0 => record.icmp,
        _ => community_id::icmp_answer(record.protocol, record.icmp),
    }
}

fn ms(ns: u64) -> u64 {
    ns / 1_000_000
}

/// IANA, *IPFIX flowEndReason (Value 136)*.
const fn end_reason(reason: Reason) -> u8 {
    match reason {
        Reason::Timeout => 1,
        Reason::Active => 2,
        Reason::Closed => 3,
        Reason::Shutdown => 4,
        Reason::Evicted => 5,
    }
}
