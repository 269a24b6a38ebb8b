//! EVE JSON: a line for each record or event, by the names that Suricata gives its own.
//!
//! Log pipelines know Suricata's *Extensible Event Format* (Suricata User Guide, *EVE JSON Output* and *EVE JSON
//! Format*), so what is written here needs no parser of its own. Event types:
//!
//! | `event_type` | of | lines |
//! | --- | --- | --- |
//! | `flow` | a [`FlowRecord`] | 1, both directions together |
//! | `netflow` | a [`FlowRecord`] | 1 for each direction that sent packets |
//! | `anomaly` | an [`Anomaly`] of a packet or of a TCP stream, an [`ApplicationAnomaly`] | 1 |
//! | `alert` | an [`Alert`] of a rule | 1 |
//! | `drop` | a packet that a rule dropped ([`Drop`]), or a rule of a firewall ([`Refused`]) | 1 |
//! | `http`, `dns`, `tls`, `ssh`, `smtp`, `ftp` | a transaction of `applayer` | 1 |
//! | `fileinfo` | a file within a transaction | 1 |
//! | `packet` | a packet that a rule tags, in base64 | 1 |
//! | `stats` | counters ([`Stats`]) | 1 |
//! | `ipsec` | a change of a security association ([`AssociationEvent`]), which Suricata has not | 1 |
//!
//! Suricata has no event type for a TCP stream: it reports what is odd in one as `anomaly` of the `type` `stream`, and what is
//! odd in a packet as one of the `type` `decode`, so this does, too. Names that Suricata has are its own; the others are
//! formed like them ([`AnomalyKind::name`]).
//!
//! Where the records differ from Suricata's:
//!
//! * `netflow` has no line for a direction without packets; Suricata always writes the one to the server.
//! * `reason` is `timeout` for a closed flow, as in Suricata, which keeps closed flows for a time; `state` is `closed`
//!   then. `forced` is a flow whose place was needed. `active` is not Suricata's: it marks a flow that goes on.
//! * The type of ICMP that the server sent is the one that answers the client's first packet: a record does not have it.
//!   It is missing where no type answers.
//! * IPv6 addresses are written as RFC 5952 has them, not with all their digits.
//! * `tcp` has further fields, prefixed by the direction (`ts_`, to the server; `tc_`, to the client), where they are not
//!   0: `retransmissions`, `out_of_order`, `overlaps`, `conflicts`, `gap_bytes`, `rtt_us`; and `handshake_rtt_us`. It does not have
//!   `ts_max_regions` and `tc_max_regions`, which are of Suricata's buffers, nor the offsets of urgent bytes. `closing` is `last_ack`.
//! * `tunnels` is not Suricata's: the tunnels around the flow, the outermost first, each with its `type` and, if it has one, its
//!   `id`. It is missing where there are none.
//! * `app_proto` is there where the record has an application. Its name is Suricata's for protocols that Suricata knows. The other
//!   protocols of a flow ([`Protocols`]) are there as in Suricata, where they differ from it.
//!
//! A function of its arguments, which appends lines to a buffer of the caller.

mod alert;
mod anomaly;
mod application;
mod association;
mod names;
mod refused;
mod stats;
mod tagged;

use std::net::IpAddr;

use packet::tcp::flags;
use stream::record::{FlowRecord, FlowState, Reason, SideRecord, TcpState};

use crate::json::{self, Object};
use crate::{community_id, protocol, time};
pub use alert::{Alert, Decision, Drop, Dropped};
pub use anomaly::{Anomaly, AnomalyKind, Range};
pub use application::ApplicationAnomaly;
pub use association::AssociationEvent;
pub use refused::Refused;
pub use stats::Stats;
pub use tagged::Link;

/// Settings of all lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Eve {
    /// Seed of [`community_id`]; `None` leaves the field out.
    pub community_id_seed: Option<u16>,
}

/// What a line says beside the record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Context<'a> {
    /// Name of the interface by which the first packet came in (`in_iface`); empty for none.
    pub in_iface: &'a str,
    /// When the line is written (`timestamp`), in nanoseconds since 1970.
    pub at_ns: u64,
    /// What its sides speak beside its application.
    pub protocols: Protocols,
}

/// Protocols of a flow beside its application, by Suricata's names; none where they are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Protocols {
    /// What the client speaks (`app_proto_ts`).
    pub to_server: Option<&'static str>,
    /// What the server speaks (`app_proto_tc`).
    pub to_client: Option<&'static str>,
    /// What it was before it changed (`app_proto_orig`).
    pub original: Option<&'static str>,
    /// What was announced to follow (`app_proto_expected`).
    pub expected: Option<&'static str>,
}

impl Protocols {
    /// Of a flow with this application.
    pub fn of(others: &applayer::Others, application: Option<l7proto::Protocol>) -> Self {
        let other = |own: Option<l7proto::Protocol>| {
            own.filter(|own| Some(*own) != application).map(l7proto::Protocol::name)
        };
        let spoken = |own: Option<applayer::Spoken>| match own? {
            applayer::Spoken::Known(own) => other(Some(own)),
            applayer::Spoken::Unknown => Some("failed"),
        };
        let [to_server, to_client] = others.sides.map(spoken);
        let (original, expected) = (other(others.original), other(others.expected));
        Self { to_server, to_client, original, expected }
    }

    fn write(&self, line: &mut Object<'_>) {
        let all = [
            ("app_proto_ts", self.to_server),
            ("app_proto_tc", self.to_client),
            ("app_proto_orig", self.original),
            ("app_proto_expected", self.expected),
        ];
        for (name, own) in all {
            own.iter().for_each(|own| line.string(name, own));
        }
    }
}

/// Which packet or flow a line is of, from the one who sent to the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin<'a> {
    /// [`FlowRecord::id`](stream::FlowRecord::id); `None` of a packet that belongs to no flow.
    pub flow_id: Option<u64>,
    /// Address and port of the sender; port 0 is none.
    pub src: (IpAddr, u16),
    /// Address and port of the other end.
    pub dst: (IpAddr, u16),
    /// Upper-layer protocol (IANA).
    pub protocol: u8,
    /// Type and code of ICMP.
    pub icmp: Option<(u8, u8)>,
    /// VLAN identifiers, outer first; 0 for none.
    pub vlans: [u16; 2],
    /// Name of the interface; empty for none.
    pub in_iface: &'a str,
    /// When (`timestamp`), in nanoseconds since 1970.
    pub at_ns: u64,
}

impl<'a> Origin<'a> {
    fn head(&self, event_type: &'static str) -> Head<'a> {
        let &Self { flow_id, src, dst, protocol, icmp, vlans, in_iface, at_ns } = self;
        let context = Context { in_iface, at_ns, ..Context::default() };
        Head { event_type, flow_id, src, dst, protocol, icmp, vlans, context }
    }
}

/// What the lines of all event types begin with.
struct Head<'a> {
    event_type: &'static str,
    flow_id: Option<u64>,
    src: (IpAddr, u16),
    dst: (IpAddr, u16),
    protocol: u8,
    icmp: Option<(u8, u8)>,
    vlans: [u16; 2],
    context: Context<'a>,
}

impl Eve {
    /// Appends the line of event type `flow`.
    pub fn flow(&self, record: &FlowRecord, context: Context<'_>, out: &mut Vec<u8>) {
        let [to_server, to_client] = &record.sides;
        let mut line = Object::begin(out);
        head(&mut line, &Head::of(record, "flow", context));
        let answer = community_id::icmp_answer(record.protocol, record.icmp);
        if let Some((kind, code)) = answer.filter(|_| to_client.packets > 0) {
            line.number("response_icmp_type", kind);
            line.number("response_icmp_code", code);
        }
        tunnels(&mut line, record);
        application(&mut line, record, &context);
        let mut flow = line.object("flow");
        flow.number("pkts_toserver", to_server.packets);
        flow.number("pkts_toclient", to_client.packets);
        flow.number("bytes_toserver", to_server.bytes);
        flow.number("bytes_toclient", to_client.bytes);
        times(&mut flow, record);
        flow.string("state", state(record.state));
        if record.state == FlowState::Bypassed {
            flow.string("bypass", "local");
        }
        flow.string("reason", reason(record.reason));
        flow.boolean("alerted", record.is_alerted);
        flow.end();
        self.community_id(&mut line, record);
        if let Some(state) = record.tcp {
            let mut tcp = line.object("tcp");
            tcp_flags(&mut tcp, "tcp_flags", to_server.tcp_flags | to_client.tcp_flags);
            tcp_flags(&mut tcp, "tcp_flags_ts", to_server.tcp_flags);
            tcp_flags(&mut tcp, "tcp_flags_tc", to_client.tcp_flags);
            each_flag(&mut tcp, to_server.tcp_flags | to_client.tcp_flags);
            tcp.string("state", tcp_state(state));
            tcp_details(&mut tcp, record);
            tcp.end();
        }
        line.end();
        out.push(b'\n');
    }

    /// Appends the lines of event type `netflow`: one for each direction that sent packets; none if neither did.
    pub fn netflow(&self, record: &FlowRecord, context: Context<'_>, out: &mut Vec<u8>) {
        for (side, sent) in record.sides.iter().enumerate().filter(|(_, sent)| sent.packets > 0) {
            let mut of = Head::of(record, "netflow", context);
            if side == 1 {
                std::mem::swap(&mut of.src, &mut of.dst);
                of.icmp = community_id::icmp_answer(record.protocol, record.icmp);
            }
            let mut line = Object::begin(out);
            head(&mut line, &of);
            tunnels(&mut line, record);
            application(&mut line, record, &context);
            let mut netflow = line.object("netflow");
            netflow.number("pkts", sent.packets);
            netflow.number("bytes", sent.bytes);
            times(&mut netflow, record);
            netflow.number("min_ttl", sent.ttl.0);
            netflow.number("max_ttl", sent.ttl.1);
            netflow.end();
            self.community_id(&mut line, record);
            if record.tcp.is_some() {
                let mut tcp = line.object("tcp");
                tcp_flags(&mut tcp, "tcp_flags", sent.tcp_flags);
                each_flag(&mut tcp, sent.tcp_flags);
                tcp.end();
            }
            line.end();
            out.push(b'\n');
        }
    }

    /// Appends the line of event type `anomaly`.
    pub fn anomaly(&self, anomaly: &Anomaly, context: Context<'_>, out: &mut Vec<u8>) {
        let &Anomaly { kind, flow_id, protocol, src, dst, vlans, range } = anomaly;
        let event_type = "anomaly";
        let of = Head { event_type, flow_id, src, dst, protocol, icmp: None, vlans, context };
        let mut line = Object::begin(out);
        head(&mut line, &of);
        if let Some(seed) = self.community_id_seed.filter(|_| flow_id.is_some()) {
            id(&mut line, &community_id::v1(seed, src, dst, protocol, None));
        }
        let mut object = line.object("anomaly");
        object.string("type", kind.layer());
        object.string("event", kind.name(src.0.is_ipv6(), protocol));
        if let Some(Range { offset, bytes }) = range {
            object.number("offset", offset);
            object.number("length", bytes);
        }
        object.end();
        line.end();
        out.push(b'\n');
    }

    /// The line of an event with what all of them have, open for more.
    fn begin<'o>(
        &self,
        event_type: &'static str,
        origin: &Origin<'_>,
        out: &'o mut Vec<u8>,
    ) -> Object<'o> {
        let mut line = Object::begin(out);
        head(&mut line, &origin.head(event_type));
        if let Some(seed) = self.community_id_seed.filter(|_| origin.flow_id.is_some()) {
            let Origin { src, dst, protocol, icmp, .. } = *origin;
            id(&mut line, &community_id::v1(seed, src, dst, protocol, icmp));
        }
        line
    }

    fn community_id(&self, line: &mut Object<'_>, record: &FlowRecord) {
        let Some(seed) = self.community_id_seed else { return };
        let (client, server) = ends(record);
        id(line, &community_id::v1(seed, client, server, record.protocol, record.icmp));
    }
}

/// Both ends, as addresses and ports.
fn ends(record: &FlowRecord) -> ((IpAddr, u16), (IpAddr, u16)) {
    ((record.client, record.client_port), (record.server, record.server_port))
}

impl<'a> Head<'a> {
    /// From the client to the server.
    fn of(record: &FlowRecord, event_type: &'static str, context: Context<'a>) -> Self {
        let (src, dst) = ends(record);
        let (flow_id, protocol) = (Some(record.id), record.protocol);
        let (icmp, vlans) = (record.icmp, record.vlans);
        Self { event_type, flow_id, src, dst, protocol, icmp, vlans, context }
    }
}

fn head(line: &mut Object<'_>, head: &Head<'_>) {
    timestamp(line, "timestamp", head.context.at_ns);
    if let Some(id) = head.flow_id {
        line.number("flow_id", id);
    }
    if !head.context.in_iface.is_empty() {
        line.string("in_iface", head.context.in_iface);
    }
    line.string("event_type", head.event_type);
    if head.vlans[0] != 0 {
        let out = line.value("vlan");
        out.push(b'[');
        json::number(head.vlans[0].into(), out);
        if head.vlans[1] != 0 {
            out.push(b',');
            json::number(head.vlans[1].into(), out);
        }
        out.push(b']');
    }
    let has_ports = matches!(head.protocol, protocol::TCP | protocol::UDP | protocol::SCTP);
    line.address("src_ip", head.src.0);
    if has_ports {
        line.number("src_port", head.src.1);
    }
    line.address("dest_ip", head.dst.0);
    if has_ports {
        line.number("dest_port", head.dst.1);
    }
    line.number("ip_v", if head.src.0.is_ipv4() { 4_u8 } else { 6 });
    match protocol_name(head.protocol) {
        Some(name) => line.string("proto", name),
        None => line.plain("proto", head.protocol),
    }
    if let Some((kind, code)) = head.icmp {
        line.number("icmp_type", kind);
        line.number("icmp_code", code);
    }
}

/// The tunnels around a flow, the outermost first; nothing without one.
fn tunnels(line: &mut Object<'_>, record: &FlowRecord) {
    if record.tunnels.is_empty() {
        return;
    }
    let out = line.value("tunnels");
    for (number, tunnel) in record.tunnels.iter().enumerate() {
        out.extend_from_slice(if number == 0 { b"[" } else { b"," });
        let mut own = Object::begin(out);
        own.string("type", tunnel.kind.name());
        if tunnel.id != 0 {
            own.number("id", tunnel.id);
        }
        own.end();
    }
    out.push(b']');
}

fn application(line: &mut Object<'_>, record: &FlowRecord, context: &Context<'_>) {
    if let Some(name) = record.application {
        line.string("app_proto", name);
    }
    context.protocols.write(line);
}

fn id(line: &mut Object<'_>, id: &[u8; community_id::LEN]) {
    let out = line.value("community_id");
    out.push(b'"');
    out.extend_from_slice(id);
    out.push(b'"');
}

fn timestamp(object: &mut Object<'_>, name: &'static str, ns: u64) {
    let out = object.value(name);
    out.push(b'"');
    time::write_timestamp(ns, out);
    out.push(b'"');
}

/// `age` is in whole seconds, of the two times without their fractions, as in Suricata.
fn times(object: &mut Object<'_>, record: &FlowRecord) {
    const NS_PER_SECOND: u64 = 1_000_000_000;
    timestamp(object, "start", record.start_ns);
    timestamp(object, "end", record.end_ns);
    let seconds = |ns| ns / NS_PER_SECOND;
    object.number("age", seconds(record.end_ns).saturating_sub(seconds(record.start_ns)));
}

/// Two hexadecimal digits: the flags of RFC 9293, without the ninth one.
fn tcp_flags(tcp: &mut Object<'_>, name: &'static str, flags: u16) {
    tcp.plain(name, format_args!("{:02x}", flags & 0xff));
}

fn each_flag(tcp: &mut Object<'_>, set: u16) {
    let names = [
        ("syn", flags::SYN),
        ("fin", flags::FIN),
        ("rst", flags::RST),
        ("psh", flags::PSH),
        ("ack", flags::ACK),
        ("urg", flags::URG),
        ("ecn", flags::ECE),
        ("cwr", flags::CWR),
    ];
    for (name, _) in names.into_iter().filter(|(_, flag)| set & flag != 0) {
        tcp.boolean(name, true);
    }
}

fn tcp_details(tcp: &mut Object<'_>, record: &FlowRecord) {
    for (sent, names) in record.sides.iter().zip(&DETAIL_NAMES) {
        if sent.gaps > 0 {
            tcp.boolean(names.0, true);
        }
        for (name, value) in names.1.into_iter().zip(details(sent)).filter(|(_, n)| *n > 0) {
            tcp.number(name, value);
        }
    }
    if let Some(ns) = record.handshake_rtt_ns {
        tcp.number("handshake_rtt_us", ns / 1000);
    }
}

fn details(sent: &SideRecord) -> [u64; 6] {
    [
        sent.retransmissions.into(),
        sent.out_of_order.into(),
        sent.overlaps.into(),
        sent.conflicts.into(),
        sent.gap_bytes,
        sent.rtt_min_ns.unwrap_or(0) / 1000,
    ]
}

/// By side: what Suricata says of a gap, and names of [`details`].
const DETAIL_NAMES: [(&str, [&str; 6]); 2] = [
    (
        "ts_gap",
        [
            "ts_retransmissions",
            "ts_out_of_order",
            "ts_overlaps",
            "ts_conflicts",
            "ts_gap_bytes",
            "ts_rtt_us",
        ],
    ),
    (
        "tc_gap",
        [
            "tc_retransmissions",
            "tc_out_of_order",
            "tc_overlaps",
            "tc_conflicts",
            "tc_gap_bytes",
            "tc_rtt_us",
        ],
    ),
];

pub(crate) const fn state(state: FlowState) -> &'static str {
    match state {
        FlowState::New => "new",
        FlowState::Established => "established",
        FlowState::Closed => "closed",
        FlowState::Bypassed => "bypassed",
    }
}

const fn reason(reason: Reason) -> &'static str {
    match reason {
        Reason::Active => "active",
        Reason::Timeout | Reason::Closed => "timeout",
        Reason::Evicted => "forced",
        Reason::Shutdown => "shutdown",
    }
}

pub(crate) const fn tcp_state(state: TcpState) -> &'static str {
    match state {
        TcpState::None => "none",
        TcpState::SynSent => "syn_sent",
        TcpState::SynReceived => "syn_recv",
        TcpState::Established => "established",
        TcpState::FinWait1 => "fin_wait1",
        TcpState::FinWait2 => "fin_wait2",
        TcpState::CloseWait => "close_wait",
        TcpState::LastAck => "last_ack",
        TcpState::TimeWait => "time_wait",
        TcpState::Closed => "closed",
    }
}

/// Names of protocols by Suricata's table (`src/util-proto-name.c`), of those that occur; others are a number.
pub(crate) const fn protocol_name(protocol: u8) -> Option<&'static str> {
    Some(match protocol {
        protocol::ICMP => "ICMP",
        2 => "IGMP",
        4 => "IPv4",
        protocol::TCP => "TCP",
        protocol::UDP => "UDP",
        33 => "DCCP",
        41 => "IPv6",
        46 => "RSVP",
        47 => "GRE",
        protocol::ESP => "ESP",
        51 => "AH",
        protocol::ICMPV6 => "IPv6-ICMP",
        88 => "EIGRP",
        89 => "OSPFIGP",
        94 => "IPIP",
        103 => "PIM",
        112 => "VRRP",
        115 => "L2TP",
        protocol::SCTP => "SCTP",
        136 => "UDPLite",
        137 => "MPLS-in-IP",
        _ => return None,
    })
}
