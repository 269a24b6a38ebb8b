//! Flow keys and the symmetric flow hash.
//!
//! Packets of a flow belong to one worker, in both directions, and all fragments of a datagram go
//! the same way. So the hash mixes only what does not change when the two ends are swapped, and a
//! fragment, the first one included, is hashed without its ports.
//!
//! Pure functions: any thread.

use crate::decode::{Decoded, Kind};
use crate::{EtherType, IpProtocol};

/// A 5-tuple. Addresses as in [`Decoded`]; ports are 0 where the packet has none or is a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[repr(C)]
pub struct FlowKey {
    /// Source address: IPv6 as `[high, low]`, IPv4 as `[0, address]`.
    pub src: [u64; 2],
    /// Destination address, likewise.
    pub dst: [u64; 2],
    /// Source port, host order.
    pub src_port: u16,
    /// Destination port, host order.
    pub dst_port: u16,
    /// Upper-layer protocol; of IPv6 fragments always [`IpProtocol::IPV6_FRAGMENT`], because only
    /// the first of them can tell.
    pub protocol: IpProtocol,
    /// 4 or 6.
    pub version: u8,
}

impl FlowKey {
    /// The key of an IP packet; `None` for anything else.
    #[inline]
    pub fn of(d: &Decoded) -> Option<FlowKey> {
        let version = match d.kind {
            Kind::Ipv4 => 4,
            Kind::Ipv6 => 6,
            Kind::Arp | Kind::Other => return None,
        };
        let whole = !d.has(Decoded::FRAGMENT);
        let (src_port, dst_port) = if whole { d.ports().unwrap_or((0, 0)) } else { (0, 0) };
        let protocol = if whole || version == 4 { d.protocol } else { IpProtocol::IPV6_FRAGMENT };
        Some(FlowKey { src: d.src, dst: d.dst, src_port, dst_port, protocol, version })
    }

    /// The key of the opposite direction.
    pub const fn reversed(self) -> FlowKey {
        FlowKey {
            src: self.dst,
            dst: self.src,
            src_port: self.dst_port,
            dst_port: self.src_port,
            ..self
        }
    }

    /// One of the two directions, the same for both: the smaller (address, port) first.
    pub fn canonical(self) -> FlowKey {
        let swap = (self.src, self.src_port) > (self.dst, self.dst_port);
        if swap { self.reversed() } else { self }
    }

    /// Symmetric: `key.hash32() == key.reversed().hash32()`.
    #[inline]
    pub fn hash32(&self) -> u32 {
        let end_a = fold_end(self.src, self.src_port);
        let end_b = fold_end(self.dst, self.dst_port);
        mix(end_a, end_b, self.protocol.0)
    }
}

/// Symmetric flow hash of a decoded frame; 0 where it is not IP.
#[inline]
pub fn flow_hash(d: &Decoded) -> u32 {
    FlowKey::of(d).map_or(0, |key| key.hash32())
}

/// [`flow_hash`] for frames that nobody has decoded yet, without checking them: it spreads
/// received packets over workers. Equal to [`flow_hash`] wherever decoding finds no anomaly.
pub fn flow_hash_of_frame(frame: &[u8]) -> u32 {
    let _ = (frame, EtherType::IPV4);
    todo!()
}

/// One end of a flow in 64 bits.
#[inline(always)]
fn fold_end(address: [u64; 2], port: u16) -> u64 {
    let a = address[0].wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32) ^ address[1];
    a ^ (u64::from(port) << 40)
}

/// Sum and exclusive or of the ends are symmetric, and together they determine the pair.
#[inline(always)]
fn mix(a: u64, b: u64, protocol: u8) -> u32 {
    let mut x = a.wrapping_add(b) ^ u64::from(protocol);
    x = (x ^ (x >> 32)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^= a ^ b;
    x = (x ^ (x >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((x ^ (x >> 32)) >> 16) as u32
}
