//! What an association is, but for its key (RFC 4301 §4.4.2.1).

use std::net::IpAddr;

/// Which way packets go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// They are received.
    In,
    /// They are sent.
    Out,
}

/// What ESP is around (RFC 4303 §3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// A whole packet, behind a header of its own.
    Tunnel,
    /// What is behind the headers of the packet.
    Transport,
}

/// The differentiated services code point of an outer header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dscp {
    /// That of the inner header.
    Copy,
    /// Always this one, 6 bits.
    Set(u8),
}

/// DF of an outer IPv4 header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dont {
    /// That of the inner header; set over IPv6.
    Copy,
    /// Set.
    Set,
    /// Not set: the outer packet may be fragmented.
    Clear,
}

/// UDP around ESP (RFC 3948): ports of the packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Udp {
    /// Source port of what is sent.
    pub source: u16,
    /// Destination port of what is sent, by which received packets are known, too.
    pub destination: u16,
}

/// A soft and a hard limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Limit {
    /// Where a new association is due.
    pub soft: Option<u64>,
    /// Where the association ends.
    pub hard: Option<u64>,
}

/// The lifetime of an association.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Limits {
    /// Bytes of payload.
    pub bytes: Limit,
    /// Packets.
    pub packets: Limit,
    /// Seconds since it was added; over captures, since its first packet.
    pub seconds: Limit,
}

/// What an association is, but for its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameters {
    /// Which way.
    pub direction: Direction,
    /// Security parameters index.
    pub spi: u32,
    /// Sender of the outer packets; in transport mode of the packets.
    pub source: IpAddr,
    /// Receiver.
    pub destination: IpAddr,
    /// Tunnel or transport.
    pub mode: Mode,
    /// The number by which policies name it.
    pub reqid: u32,
    /// The tunnel interface whose packets it carries; 0: those that policies protect.
    pub if_id: u32,
    /// Sequence numbers have 64 bits.
    pub is_extended: bool,
    /// Numbers of the replay window; 0 for none.
    pub window: u32,
    /// The first number that is sent: numbers before were used with this key.
    pub first_number: u64,
    /// UDP around ESP.
    pub udp: Option<Udp>,
    /// Tunnel mode: shorter inner packets are padded to this length in bytes (RFC 4303 §2.7).
    pub pad_to: u16,
    /// Outer code point.
    pub dscp: Dscp,
    /// Outer DF.
    pub dont_fragment: Dont,
    /// Congestion marks go between the headers (RFC 6040); otherwise the outer header has none.
    pub ecn: bool,
    /// TTL or hop limit of outer headers.
    pub hop_limit: u8,
    /// Its lifetime.
    pub limits: Limits,
}

impl Parameters {
    /// An association in tunnel mode between two ends, with 32-bit numbers and a window of 64.
    pub fn new(direction: Direction, spi: u32, ends: (IpAddr, IpAddr), reqid: u32) -> Self {
        Self {
            direction,
            spi,
            source: ends.0,
            destination: ends.1,
            mode: Mode::Tunnel,
            reqid,
            if_id: 0,
            is_extended: false,
            window: 64,
            first_number: 1,
            udp: None,
            pad_to: 0,
            dscp: Dscp::Copy,
            dont_fragment: Dont::Copy,
            ecn: true,
            hop_limit: 64,
            limits: Limits::default(),
        }
    }
}
