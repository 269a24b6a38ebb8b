//! What a table of flows shows.

use control::api::table::{Row, thousands, time};
use serde::{Deserialize, Serialize};
use stream::record::{FlowState, TcpState};
use stream::tracker::TrackedFlow;
use stream::{FlowRecord, SideRecord};

/// A flow that is followed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlowRow {
    /// The number of the flow in events and records.
    pub id: u64,
    /// `tcp`, `udp`, … or the number.
    pub proto: String,
    /// Address and port of the client.
    pub client: String,
    /// Address and port of the server.
    pub server: String,
    /// The tunnels around it, the outermost first: `vxlan:100/gre`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tunnels: String,
    /// State of the connection, or of the flow.
    pub state: String,
    /// Packets of the client.
    pub client_packets: u64,
    /// Packets of the server.
    pub server_packets: u64,
    /// Bytes of frames of the client.
    pub client_bytes: u64,
    /// Bytes of frames of the server.
    pub server_bytes: u64,
    /// Since its first packet, seconds.
    pub age_s: f64,
    /// Since its last packet, seconds.
    pub idle_s: f64,
}

/// The state of a flow: of TCP that of the connection.
pub(super) fn state_of(record: &FlowRecord) -> &'static str {
    match record.tcp {
        Some(state) if record.state != FlowState::Bypassed => tcp_state(state),
        _ => flow_state(record.state),
    }
}

impl FlowRow {
    /// The row of a flow, `now_ns` nanoseconds since 1970.
    pub fn of(record: &FlowRecord, now_ns: u64) -> Self {
        let [client, server] = &record.sides;
        let since = |ns: u64| now_ns.saturating_sub(ns) as f64 / 1e9;
        let packets = |side: &SideRecord| side.packets;
        Self {
            id: record.id,
            proto: protocol(record.protocol),
            client: end(record.client, record.client_port),
            server: end(record.server, record.server_port),
            tunnels: record.tunnels.to_string(),
            state: state_of(record).to_owned(),
            client_packets: packets(client),
            server_packets: packets(server),
            client_bytes: client.bytes,
            server_bytes: server.bytes,
            age_s: since(record.start_ns),
            idle_s: since(record.end_ns),
        }
    }
}

impl Row for FlowRow {
    const COLUMNS: &'static [&'static str] = &[
        "proto",
        "client",
        "server",
        "state",
        ">packets",
        ">packets back",
        ">bytes",
        ">bytes back",
        ">age",
        ">idle",
    ];
    const EMPTY: &'static str = "no flows";

    fn cells(&self) -> Vec<String> {
        vec![
            self.proto.clone(),
            in_tunnels(&self.tunnels, &self.client),
            self.server.clone(),
            self.state.clone(),
            thousands(self.client_packets),
            thousands(self.server_packets),
            thousands(self.client_bytes),
            thousands(self.server_bytes),
            time(self.age_s),
            time(self.idle_s),
        ]
    }
}

/// The client of a flow, behind the tunnels around it.
pub fn in_tunnels(tunnels: &str, client: &str) -> String {
    if tunnels.is_empty() { client.to_owned() } else { format!("{tunnels} {client}") }
}

/// States of connections, by the names of Linux's conntrack.
pub const CONNECTION_STATES: [&str; 10] = [
    "SYN_SENT",
    "SYN_RECV",
    "ESTABLISHED",
    "FIN_WAIT",
    "CLOSE_WAIT",
    "LAST_ACK",
    "TIME_WAIT",
    "CLOSE",
    "UNREPLIED",
    "REPLIED",
];

/// The connection that announced another one, such as FTP's control connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelatedTo {
    /// Its number.
    pub id: u64,
    /// Address and port of its two ends, the one that opened it first; nothing if it has ended.
    pub ends: Option<[String; 2]>,
}

/// A connection that the firewall tracks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConnectionRow {
    /// The number of the flow, as in events and records.
    pub id: u64,
    /// `tcp`, `udp`, … or the number.
    pub proto: String,
    /// State of TCP, or `UNREPLIED` and `REPLIED`.
    pub state: String,
    /// Address and port of the end that sent the first packet: source of the original direction.
    pub src: String,
    /// Address and port of the other end.
    pub dst: String,
    /// Packets of the original direction.
    pub packets: u64,
    /// Its bytes, link headers included.
    pub bytes: u64,
    /// Packets of the reply direction.
    pub reply_packets: u64,
    /// Its bytes.
    pub reply_bytes: u64,
    /// Time left until it ends if no packet comes, seconds.
    pub timeout_s: f64,
    /// Its first packet got through.
    pub confirmed: bool,
    /// The connection that announced it.
    pub related_to: Option<RelatedTo>,
    /// ICMP errors about it.
    pub icmp_errors: u32,
}

impl ConnectionRow {
    /// The row of a connection, `now_ns` nanoseconds since 1970.
    pub fn of(flow: &TrackedFlow, now_ns: u64) -> Self {
        let record = &flow.record;
        let (client, server) =
            ((record.client, record.client_port), (record.server, record.server_port));
        let [mut src, mut dst] = [client, server];
        let [mut original, mut reply] = record.sides;
        if !flow.is_original_client {
            std::mem::swap(&mut src, &mut dst);
            std::mem::swap(&mut original, &mut reply);
        }
        let state = match flow.conntrack {
            Some(state) => state.name(),
            None if reply.packets > 0 => "REPLIED",
            None => "UNREPLIED",
        };
        let ends_ns = record.end_ns.saturating_add(flow.timeout_ns);
        Self {
            id: record.id,
            proto: protocol(record.protocol),
            state: state.to_owned(),
            src: end(src.0, src.1),
            dst: end(dst.0, dst.1),
            packets: original.packets,
            bytes: original.bytes,
            reply_packets: reply.packets,
            reply_bytes: reply.bytes,
            timeout_s: ends_ns.saturating_sub(now_ns) as f64 / 1e9,
            confirmed: flow.is_confirmed,
            related_to: flow.announced_by.map(|id| RelatedTo { id, ends: None }),
            icmp_errors: flow.errors,
        }
    }
}

impl Row for ConnectionRow {
    const COLUMNS: &'static [&'static str] = &[
        "proto",
        "state",
        "source",
        "destination",
        ">packets",
        ">bytes",
        ">packets back",
        ">bytes back",
        ">timeout",
        "confirmed",
        "related to",
        ">ICMP errors",
    ];
    const EMPTY: &'static str = "no connections";

    fn cells(&self) -> Vec<String> {
        vec![
            self.proto.clone(),
            self.state.clone(),
            self.src.clone(),
            self.dst.clone(),
            thousands(self.packets),
            thousands(self.bytes),
            thousands(self.reply_packets),
            thousands(self.reply_bytes),
            time(self.timeout_s),
            if self.confirmed { "yes" } else { "no" }.to_owned(),
            match &self.related_to {
                Some(RelatedTo { ends: Some([src, dst]), .. }) => format!("{src} > {dst}"),
                Some(RelatedTo { ends: None, .. }) => "ended".to_owned(),
                None => "-".to_owned(),
            },
            thousands(self.icmp_errors.into()),
        ]
    }
}

/// How many flows there are of a protocol and state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SummaryRow {
    /// `tcp`, `udp`, … or the number.
    pub proto: String,
    /// State of the flows, as in the list of them.
    pub state: String,
    /// How many there are.
    pub flows: u64,
    /// Packets of both ends.
    pub packets: u64,
    /// Bytes of their frames.
    pub bytes: u64,
}

impl Row for SummaryRow {
    const COLUMNS: &'static [&'static str] = &["proto", "state", ">flows", ">packets", ">bytes"];
    const EMPTY: &'static str = "no flows";

    fn cells(&self) -> Vec<String> {
        let [flows, packets, bytes] = [self.flows, self.packets, self.bytes].map(thousands);
        vec![self.proto.clone(), self.state.clone(), flows, packets, bytes]
    }
}

/// Address and port, as they are written in one word; without a port the address.
pub fn end(address: std::net::IpAddr, port: u16) -> String {
    match port {
        0 => address.to_string(),
        port => std::net::SocketAddr::new(address, port).to_string(),
    }
}

/// A protocol's name as rules of the firewall have it, or its number.
pub fn protocol(number: u8) -> String {
    control::firewall::Protocol(number).to_string()
}

/// The protocol that a user names or numbers, by its name if it has one here.
///
/// # Errors
/// What is expected instead.
pub fn protocol_word(word: &str) -> Result<String, String> {
    let mut names: Vec<String> = (0..=u8::MAX).map(protocol).collect();
    names.retain(|name| name.parse::<u8>().is_err());
    let lower = word.to_ascii_lowercase();
    match word.parse::<u8>() {
        Ok(number) => Ok(protocol(number)),
        Err(_) if names.contains(&lower) => Ok(lower),
        Err(_) => Err(format!("expected a number or one of {}", names.join(", "))),
    }
}

/// Whether a request's `word` is that protocol.
pub fn is_protocol(word: &str, number: u8) -> bool {
    protocol_word(word).is_ok_and(|name| name == protocol(number))
}

/// The state of a flow in a word.
pub const fn flow_state(state: FlowState) -> &'static str {
    match state {
        FlowState::New => "new",
        FlowState::Established => "established",
        FlowState::Closed => "closed",
        FlowState::Bypassed => "bypassed",
    }
}

/// All words for the state of a flow: those of all protocols, then those of TCP alone.
pub const STATES: [&str; 12] = [
    flow_state(FlowState::New),
    flow_state(FlowState::Established),
    flow_state(FlowState::Closed),
    flow_state(FlowState::Bypassed),
    tcp_state(TcpState::None),
    tcp_state(TcpState::SynSent),
    tcp_state(TcpState::SynReceived),
    tcp_state(TcpState::FinWait1),
    tcp_state(TcpState::FinWait2),
    tcp_state(TcpState::CloseWait),
    tcp_state(TcpState::LastAck),
    tcp_state(TcpState::TimeWait),
];

/// The state of a TCP connection, as `ss` and RFC 9293 name it.
pub const fn tcp_state(state: TcpState) -> &'static str {
    match state {
        TcpState::None => "none",
        TcpState::SynSent => "syn-sent",
        TcpState::SynReceived => "syn-received",
        TcpState::Established => "established",
        TcpState::FinWait1 => "fin-wait-1",
        TcpState::FinWait2 => "fin-wait-2",
        TcpState::CloseWait => "close-wait",
        TcpState::LastAck => "last-ack",
        TcpState::TimeWait => "time-wait",
        TcpState::Closed => "closed",
    }
}
