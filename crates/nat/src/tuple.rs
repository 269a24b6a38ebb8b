//! Both ends of a packet: what a translator looks up, and what it writes.

use packet::query::Query;
use packet::{Decoded, IpProtocol, Kind};
use stream::{FlowKey, Side};

use crate::cache::Plain;
use crate::nat64;
use crate::segment::Tcp;

/// An address, IPv6 as `[high, low]`, IPv4 as `[0, address]`, and a port.
pub type End = ([u64; 2], u16);

/// Bytes of the upper layer that may have to be read or written: up to the checksum of TCP.
pub const L4_BYTES: usize = 18;

/// The ends of a packet in its direction. The port of an ICMP query, at both ends, is its identifier (RFC 5508 §3.1);
/// protocols without ports have 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tuple {
    /// Who sent it.
    pub src: End,
    /// Who gets it.
    pub dst: End,
    /// Upper-layer protocol (IANA).
    pub protocol: u8,
    /// 4 or 6.
    pub family: u8,
    /// Of an ICMP query, or of its answer: which.
    pub message: Message,
}

/// Which query of ICMP a packet is, or which answer. Identifiers of different kinds have nothing to do with one another, and an answer
/// is never a query: what a host outside asks is no answer to what a host inside has asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Message(u8);

impl Message {
    /// That of all packets of other protocols.
    pub const NONE: Message = Message(0);

    /// By the type of an ICMP or ICMPv6 message; `None` for other messages.
    pub const fn of(protocol: u8, kind: u8) -> Option<Message> {
        match Query::of(IpProtocol(protocol), kind) {
            Some((query, is_answer)) => Some(Message((query as u8) << 1 | is_answer as u8)),
            None => None,
        }
    }

    /// Whether it is a query, and no answer.
    pub const fn is_query(self) -> bool {
        self.0 != 0 && self.0 & 1 == 0
    }

    /// The kind of the query, and whether it is the answer.
    const fn query(self) -> Option<(Query, bool)> {
        let query = match self.0 >> 1 {
            1 => Query::Echo,
            2 => Query::Timestamp,
            3 => Query::Information,
            4 => Query::AddressMask,
            _ => return None,
        };
        Some((query, self.0 & 1 != 0))
    }

    /// Of the answer; of the query, if it is one.
    const fn reversed(self) -> Message {
        if self.0 == 0 { self } else { Message(self.0 ^ 1) }
    }
}

impl Tuple {
    /// The ends of a decoded packet whose upper layer starts with `l4`. `None` for fragments, for ICMP that is no query
    /// and its answer, and where the upper layer is cut off.
    pub fn of(d: &Decoded, l4: &[u8]) -> Option<Tuple> {
        let family = match d.kind {
            Kind::Ipv4 => 4,
            Kind::Ipv6 => 6,
            Kind::Arp | Kind::Other => return None,
        };
        let has_l4 = d.l4_offset > d.l3_offset && !d.has(Decoded::L4_TRUNCATED);
        if d.has(Decoded::FRAGMENT) || !has_l4 {
            return None;
        }
        let (src_port, dst_port, message) = ports(d.protocol.0, l4)?;
        Some(Tuple {
            src: (d.src, src_port),
            dst: (d.dst, dst_port),
            protocol: d.protocol.0,
            family,
            message,
        })
    }

    /// The ends of a *plain* packet, and what is known of its TCP segment: see [`Plain::of`]. It is what [`Tuple::of`] finds without a
    /// record, and most packets are so.
    #[inline]
    pub fn plain(ip: &[u8]) -> Option<(Tuple, Tcp)> {
        Plain::of(ip).map(|(plain, tcp)| (plain.tuple(), tcp))
    }

    /// The ends of the packet that an ICMP error quotes, from its IP header on, and where its upper layer starts. The
    /// packet may be cut off behind the first eight bytes of the upper layer (RFC 792). `None` where it quotes less, and
    /// for what [`Tuple::of`] has no answer to, but for first fragments.
    pub fn quoted(ip: &[u8]) -> Option<(Tuple, usize)> {
        let (family, l4_at, protocol, src, dst) = match ip.first()? >> 4 {
            4 => {
                let head = ip.first_chunk::<20>()?;
                let l4_at = usize::from(head[0] & 0xf) * 4;
                let offset = u16::from_be_bytes([head[6], head[7]]) & 0x1fff;
                if l4_at < 20 || offset != 0 {
                    return None;
                }
                let address = |at: usize| {
                    let bytes = [head[at], head[at + 1], head[at + 2], head[at + 3]];
                    [0, u64::from(u32::from_be_bytes(bytes))]
                };
                (4, l4_at, head[9], address(12), address(16))
            }
            6 => {
                let head = ip.first_chunk::<40>()?;
                let word =
                    |at: usize| u64::from_be_bytes(head[at..at + 8].try_into().unwrap_or_default());
                let (l4_at, protocol) = match head[6] {
                    // Of the first fragment the upper layer is there.
                    nat64::FRAGMENT => {
                        let own = ip.get(40..)?.first_chunk::<{ nat64::FRAGMENT_LEN }>()?;
                        if u16::from_be_bytes([own[2], own[3]]) & 0xfff8 != 0 {
                            return None;
                        }
                        (40 + nat64::FRAGMENT_LEN, own[0])
                    }
                    protocol => (40, protocol),
                };
                (6, l4_at, protocol, [word(8), word(16)], [word(24), word(32)])
            }
            _ => return None,
        };
        let (src_port, dst_port, message) = ports(protocol, ip.get(l4_at..)?)?;
        let (src, dst) = ((src, src_port), (dst, dst_port));
        Some((Tuple { src, dst, protocol, family, message }, l4_at))
    }

    /// Of the answer.
    #[must_use]
    pub const fn reversed(self) -> Tuple {
        Tuple { src: self.dst, dst: self.src, message: self.message.reversed(), ..self }
    }

    /// The key of a session, and the end that sent the packet.
    #[inline]
    pub fn key(&self) -> (FlowKey, Side) {
        let (key, side) = FlowKey::new(self.src, self.dst, self.protocol, self.family, 0);
        match self.message.query() {
            None => (key, side),
            Some((query, false)) => (key.of_query(query, Some(side)), side),
            Some((query, true)) => (key.of_query(query, Some(side.other())), side),
        }
    }

    /// The tuple of a key in the direction from `side`.
    #[inline]
    pub fn from_key(key: &FlowKey, side: Side) -> Tuple {
        let end = |side: Side| (key.addresses[side.index()], key.port(side));
        let (protocol, family) = (key.protocol, key.family);
        let message = match key.query() {
            None => Message::NONE,
            Some((query, asker)) => Message((query as u8) << 1 | u8::from(asker != side)),
        };
        Tuple { src: end(side), dst: end(side.other()), protocol, family, message }
    }

    /// Whether the protocol has ports or an identifier that a translator may change.
    pub const fn has_ports(&self) -> bool {
        has_ports(self.protocol)
    }
}

/// Whether a protocol has ports or an identifier that a translator may change: the checksum of SCTP is none that could
/// be updated, and others have none.
pub const fn has_ports(protocol: u8) -> bool {
    matches!(
        IpProtocol(protocol),
        IpProtocol::TCP | IpProtocol::UDP | IpProtocol::ICMP | IpProtocol::ICMPV6
    )
}

/// Ports of the upper layer, or the identifier at both ends, and which query that is.
fn ports(protocol: u8, l4: &[u8]) -> Option<(u16, u16, Message)> {
    let at = |at: usize| {
        let bytes = l4.get(at..at + 2)?;
        Some(u16::from_be_bytes([bytes[0], bytes[1]]))
    };
    match IpProtocol(protocol) {
        IpProtocol::TCP | IpProtocol::UDP => Some((at(0)?, at(2)?, Message::NONE)),
        IpProtocol::ICMP | IpProtocol::ICMPV6 => {
            Message::of(protocol, *l4.first()?).and_then(|own| Some((at(4)?, at(4)?, own)))
        }
        _ => Some((0, 0, Message::NONE)),
    }
}

/// Whether a type of ICMP is a query, whose identifier is that of its sender; `None` if it is neither query nor answer (RFC 792,
/// RFC 950, RFC 4443).
pub const fn is_request(protocol: u8, kind: u8) -> Option<bool> {
    match Message::of(protocol, kind) {
        Some(message) => Some(message.is_query()),
        None => None,
    }
}

/// Whether a type of ICMP or ICMPv6 is an error that quotes the packet that caused it.
pub const fn is_error(protocol: u8, kind: u8) -> bool {
    match IpProtocol(protocol) {
        IpProtocol::ICMP => matches!(kind, 3 | 4 | 11 | 12),
        IpProtocol::ICMPV6 => matches!(kind, 1..=4),
        _ => false,
    }
}
