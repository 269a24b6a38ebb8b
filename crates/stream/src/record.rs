//! What is reported of a flow: the source of events, of IPFIX and of tables.

use std::net::IpAddr;

use packet::tunnel::Path;

/// A flow, ended or not, as it is reported. The *client* is the end that opened the flow; without its first packet, the end
/// that sent the first packet that was seen, or the one with the higher port if a TCP flow was joined in the middle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRecord {
    /// A number that no other flow of this run has.
    pub id: u64,
    /// Address of the client.
    pub client: IpAddr,
    /// Address of the server.
    pub server: IpAddr,
    /// Port of the client; 0 for protocols without ports; of ICMP the identifier of an echo.
    pub client_port: u16,
    /// Port of the server; likewise.
    pub server_port: u16,
    /// Upper-layer protocol (IANA).
    pub protocol: u8,
    /// Type and code of the first packet, for ICMP and ICMPv6.
    pub icmp: Option<(u8, u8)>,
    /// VLAN identifiers of the first packet, outer first; 0 for none.
    pub vlans: [u16; 2],
    /// The tunnels that the first packet was in.
    pub tunnels: Path,
    /// Number of the port by which the first packet came in.
    pub port: u16,
    /// When the first packet came, in nanoseconds since 1970.
    pub start_ns: u64,
    /// When the last packet came.
    pub end_ns: u64,
    /// What the client and the server sent, in this order.
    pub sides: [SideRecord; 2],
    /// How far it came.
    pub state: FlowState,
    /// Why it is reported.
    pub reason: Reason,
    /// State of the TCP connection; `None` for other protocols.
    pub tcp: Option<TcpState>,
    /// Time between SYN and the ACK that ends the handshake, in nanoseconds; `None` if it was not seen.
    pub handshake_rtt_ns: Option<u64>,
    /// The application, by its name, where somebody has found it out: the tracker does not look into payloads.
    pub application: Option<&'static str>,
    /// A rule of somebody who inspects it has raised an alert.
    pub is_alerted: bool,
}

/// What one end of a flow sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SideRecord {
    /// Packets.
    pub packets: u64,
    /// Bytes of their frames, link header included.
    pub bytes: u64,
    /// Bytes from the start of their IP headers on.
    pub ip_bytes: u64,
    /// Lowest and highest TTL or hop limit.
    pub ttl: (u8, u8),
    /// All flags of its TCP segments, or-ed ([`packet::tcp::flags`]).
    pub tcp_flags: u16,
    /// TCP: bytes of the stream in order, without gaps.
    pub stream_bytes: u64,
    /// TCP: segments whose bytes had all been seen.
    pub retransmissions: u32,
    /// TCP: segments that came before a byte that precedes them.
    pub out_of_order: u32,
    /// TCP: segments of which some bytes had been seen, and some not.
    pub overlaps: u32,
    /// TCP: segments that had other bytes than those before, at the same place.
    pub conflicts: u32,
    /// TCP: ranges of bytes that never came.
    pub gaps: u32,
    /// TCP: their bytes.
    pub gap_bytes: u64,
    /// TCP: smallest time between bytes of this side and their acknowledgment, in nanoseconds.
    pub rtt_min_ns: Option<u64>,
}

/// How far a flow came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FlowState {
    /// Packets of one end only, or an unfinished handshake.
    #[default]
    New,
    /// Packets of both ends; of TCP a finished handshake.
    Established,
    /// TCP: ended by both ends, or reset.
    Closed,
    /// No longer inspected, though it may go on or have closed: the module passes over it
    /// ([`Want::PassOver`](crate::tcp::Want::PassOver)).
    Bypassed,
}

/// Why a flow is reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reason {
    /// It is still there: reported because it is long.
    #[default]
    Active,
    /// It was idle for the time-out of its state.
    Timeout,
    /// TCP: it was closed.
    Closed,
    /// Its place was needed for another flow.
    Evicted,
    /// The run ended.
    Shutdown,
}

/// State of a TCP connection, by the names of RFC 9293 §3.3.2 where both ends are meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum TcpState {
    /// Nothing is known.
    #[default]
    None = 0,
    /// The client sent SYN.
    SynSent = 1,
    /// The server answered it, or both ends sent SYN.
    SynReceived = 2,
    /// The handshake is over, or the flow was joined in the middle.
    Established = 3,
    /// The client sent FIN first.
    FinWait1 = 4,
    /// The server acknowledged it, and may go on sending.
    FinWait2 = 5,
    /// The server sent FIN first, and the client may go on sending.
    CloseWait = 6,
    /// Both sent FIN; one is not acknowledged yet.
    LastAck = 7,
    /// Both ends are closed, late packets may come.
    TimeWait = 8,
    /// Reset.
    Closed = 9,
}
