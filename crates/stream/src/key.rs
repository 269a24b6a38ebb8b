//! The identity of a flow: the same key for both directions.
//!
//! The two ends are in the order of (address, port), so that a packet and its answer have one key. Which end sent a packet
//! is its [`Side`]; which end opened the flow is a fact of the flow, not of its key.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use packet::IpProtocol;
use packet::query::Query;
use packet::tunnel::Path;

/// The end of a [`FlowKey`] that sent a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Side {
    /// The first end of the key.
    #[default]
    A = 0,
    /// The second end.
    B = 1,
}

impl Side {
    /// Both, in order.
    pub const BOTH: [Side; 2] = [Side::A, Side::B];

    /// The other end.
    #[inline]
    pub const fn other(self) -> Side {
        match self {
            Side::A => Side::B,
            Side::B => Side::A,
        }
    }

    /// 0 or 1: a place in arrays by side.
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// Both ends of a flow, and what else distinguishes flows. 48 bytes without padding, pointer-free: host and device compare
/// it byte for byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(C)]
pub struct FlowKey {
    /// Addresses of the ends, as [`packet::Decoded`] has them: IPv6 as `[high, low]`, IPv4 as `[0, address]`.
    pub addresses: [[u64; 2]; 2],
    /// Ports of the ends. Of ICMP queries the identifier at both, of its other messages type and code, of errors without a flow
    /// what they quote; otherwise 0.
    pub ports: [u16; 2],
    /// VLANs, where flows of different ones are different (bits 0 to 12 and 16 to 28); of ICMP what the ports are (bits 13 to 15:
    /// 0 type and code, 1 to 4 a [`Query`], 7 what an error quotes), and whether the second end asked (bit 31).
    pub scope: u32,
    /// Upper-layer protocol (IANA).
    pub protocol: u8,
    /// 4 or 6; 0 in a key that is none.
    pub family: u8,
    /// The tunnels that its packets are in, and their identifier ([`packet::tunnel::Path::key`]); 0 for none.
    pub tunnels: u16,
    /// Likewise.
    pub tunnel_id: u32,
}

const _: () = assert!(size_of::<FlowKey>() == 48);

/// Where a scope has what the ports of an ICMP message are.
const MESSAGE: u32 = 13;
const MESSAGE_MASK: u32 = 7 << MESSAGE;
/// Of an error: its ports are what it quotes.
const QUOTING: u32 = 7 << MESSAGE;
/// The second end asked. Both may ask by one identifier, and a request is never an answer.
const ASKED_BY_B: u32 = 1 << 31;

impl FlowKey {
    /// That of no flow.
    pub(crate) const NONE: Self = Self {
        addresses: [[0; 2]; 2],
        ports: [0; 2],
        scope: 0,
        protocol: 0,
        family: 0,
        tunnels: 0,
        tunnel_id: 0,
    };

    /// The key of a packet from `src` to `dst`, and the side that sent it. Both addresses are of one family (4 or 6).
    #[inline]
    pub fn new(
        src: ([u64; 2], u16),
        dst: ([u64; 2], u16),
        protocol: u8,
        family: u8,
        scope: u32,
    ) -> (Self, Side) {
        let (side, [a, b]) = if src <= dst { (Side::A, [src, dst]) } else { (Side::B, [dst, src]) };
        let (addresses, ports) = ([a.0, b.0], [a.1, b.1]);
        (Self { addresses, ports, scope, protocol, family, tunnels: 0, tunnel_id: 0 }, side)
    }

    /// The same inside tunnels.
    #[inline]
    #[must_use]
    pub fn inside(self, path: Option<&Path>) -> Self {
        let (tunnels, tunnel_id) = path.map_or((0, 0), Path::key);
        Self { tunnels, tunnel_id, ..self }
    }

    /// The same of an ICMP query of this kind and of its answer. `asker` is who asked, where both may ask by one identifier.
    #[inline]
    #[must_use]
    pub const fn of_query(self, query: Query, asker: Option<Side>) -> Self {
        let asked = if matches!(asker, Some(Side::B)) { ASKED_BY_B } else { 0 };
        Self { scope: self.scope | (query as u32) << MESSAGE | asked, ..self }
    }

    /// The kind of an ICMP query, and who asked ([`FlowKey::of_query`]): side A unless it is said. `None` for any other flow.
    #[inline]
    pub const fn query(&self) -> Option<(Query, Side)> {
        let asker = if self.scope & ASKED_BY_B == 0 { Side::A } else { Side::B };
        let query = match (self.scope & MESSAGE_MASK) >> MESSAGE {
            1 => Query::Echo,
            2 => Query::Timestamp,
            3 => Query::Information,
            4 => Query::AddressMask,
            _ => return None,
        };
        Some((query, asker))
    }

    /// The same of another ICMP message, which `side` has sent: it has no answer.
    #[inline]
    #[must_use]
    pub(crate) const fn of_message(self, icmp_type: u8, code: u8, side: Side) -> Self {
        let own = (icmp_type as u16) << 8 | code as u16;
        let sent = if matches!(side, Side::B) { ASKED_BY_B } else { 0 };
        Self { ports: [own; 2], scope: self.scope | sent, ..self }
    }

    /// The key of an ICMP error of no flow, by the hash of the hosts that it quotes ([`packet::flow::quoted_hash`]): errors with one
    /// key are at one worker. Errors of different types have different keys, but for one in 2^32.
    #[must_use]
    pub(crate) const fn quoting(self, hash: u32) -> Self {
        let own = hash ^ (self.ports[0] as u32).wrapping_mul(0x9e37_79b1);
        Self { ports: [(own >> 16) as u16, own as u16], scope: self.scope | QUOTING, ..self }
    }

    /// The symmetric hash by which workers share flows: that of [`packet::flow`].
    #[inline]
    pub fn flow_hash(&self) -> u32 {
        let [a, b] = self.addresses;
        chunk::hash::flow(a, b, self.ports, self.protocol)
    }

    /// Address of an end.
    pub fn address(&self, side: Side) -> IpAddr {
        let [high, low] = self.addresses[side.index()];
        match self.family {
            6 => IpAddr::V6(Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low))),
            _ => IpAddr::V4(Ipv4Addr::from_bits(low as u32)),
        }
    }

    /// Port of an end; of ICMP the identifier of a query, and 0 of other messages.
    pub fn port(&self, side: Side) -> u16 {
        let is_icmp = matches!(IpProtocol(self.protocol), IpProtocol::ICMP | IpProtocol::ICMPV6);
        if is_icmp && self.query().is_none() { 0 } else { self.ports[side.index()] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_have_one_key() {
        let (a, b) = (([0, 0x0a00_0001], 40_000), ([0, 0x0a00_0002], 80));
        let (there, from_a) = FlowKey::new(a, b, 6, 4, 0);
        let (back, from_b) = FlowKey::new(b, a, 6, 4, 0);
        assert_eq!((there, from_a, from_b), (back, Side::A, Side::B));
        assert_eq!(there.address(Side::A), IpAddr::from([10, 0, 0, 1]));
        assert_eq!((there.port(Side::A), there.port(Side::B)), (40_000, 80));
        // One host with itself: ports decide.
        let (there, from) = FlowKey::new((a.0, 2), (a.0, 1), 17, 4, 0);
        assert_eq!((there.ports, from), ([1, 2], Side::B));
        assert_ne!(there, FlowKey::new((a.0, 2), (a.0, 1), 17, 4, 7).0);
    }

    #[test]
    fn messages_of_icmp_have_keys_by_what_they_are() {
        let (a, b) = (([0, 0x0a00_0001], 7), ([0, 0x0a00_0002], 7));
        let (plain, _) = FlowKey::new(a, b, 1, 4, 0x0fff_0fff);
        let kinds = [Query::Echo, Query::Timestamp, Query::Information, Query::AddressMask];
        let askers = [Side::A, Side::B];
        let mut all: Vec<FlowKey> = Vec::new();
        for (query, asker) in kinds.iter().flat_map(|kind| askers.map(|side| (*kind, side))) {
            let own = plain.of_query(query, Some(asker));
            assert_eq!((own.query(), own.port(asker)), (Some((query, asker)), 7));
            all.push(own);
        }
        assert_eq!(plain.of_query(Query::Echo, None), all[0]);
        for (kind, code, side) in
            [(3, 1, Side::A), (3, 1, Side::B), (3, 2, Side::A), (10, 0, Side::A)]
        {
            let own = plain.of_message(kind, code, side);
            all.extend([own, own.quoting(0), own.quoting(1 << 31)]);
        }
        assert!(all[8..].iter().all(|own| own.query().is_none() && own.port(Side::B) == 0));
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
