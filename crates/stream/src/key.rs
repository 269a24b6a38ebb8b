//! The identity of a flow: the same key for both directions.
//!
//! The two ends are in the order of (address, port), so that a packet and its answer have one key. Which end sent a packet
//! is its [`Side`]; which end opened the flow is a fact of the flow, not of its key.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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
    /// Ports of the ends; of ICMP echoes and the like the identifier at both; otherwise 0.
    pub ports: [u16; 2],
    /// VLANs, where flows of different ones are different; otherwise 0.
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

    /// Port of an end.
    pub fn port(&self, side: Side) -> u16 {
        self.ports[side.index()]
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
}
