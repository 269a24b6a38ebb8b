//! Wire formats, checksums and flow keys.
//!
//! Every parser here follows two rules. A header is checked once: `new_checked` returns `None` for
//! bytes that do not hold it, and no accessor of the view it returns can fail. Bad bytes are never
//! an error: [`decode::decode`] names the first thing wrong with a frame as an
//! [`decode::Anomaly`], which the router counts as a drop reason.
//!
//! * [`decode`](mod@decode): one pass over a frame, the router's parser. Everything else is off the hot path
//!   or works on single fields.
//! * [`ethernet`], [`vlan`], [`arp`], [`ipv4`], [`ipv6`], [`icmpv4`], [`icmpv6`], [`nd`],
//!   [`tcp`], [`udp`], [`sctp`], [`esp`], [`mpls`], [`pbb`]: views over bytes, and headers that are emitted into bytes.
//! * [`ndn`]: Interest and Data, their names, and the link packets around them.
//! * [`host`]: classes of packets for the machine itself.
//! * [`tunnel`]: what tunnels carry, decoded by the same pass.
//! * [`checksum`], [`flow`], [`icmp_error`], [`fragment`], [`offload`], [`filter`].
//!
//! Nothing here allocates except [`filter::Filter::parse`] and what makes [`ndn`] names and packets; nothing is shared between threads.
#![forbid(unsafe_code)]

mod addr;
mod anomaly;
pub mod arp;
mod bytes;
pub mod checksum;
pub mod decode;
mod decoded;
pub mod esp;
pub mod ethernet;
pub mod filter;
pub mod flow;
pub mod fragment;
pub mod host;
pub mod icmp_error;
pub mod icmpv4;
pub mod icmpv6;
pub mod ipv4;
pub mod ipv6;
pub mod mpls;
pub mod nd;
pub mod ndn;
pub mod offload;
pub mod pbb;
pub mod query;
pub mod quoted;
pub mod reasons;
pub mod sctp;
pub mod tcp;
pub mod tcp_reset;
pub mod tunnel;
mod types;
pub mod udp;
pub mod vlan;

pub use addr::{MacAddr, ParseMacError};
pub use decode::{Anomaly, Decoded, Kind, MacClass, decode, decode_into};
pub use types::{EtherType, IpProtocol};

/// The differentiated services code point (RFC 2474, 6 bits) of an IPv4 or IPv6 header; `None` for other bytes.
#[inline]
pub fn dscp(header: &[u8]) -> Option<u8> {
    match header {
        [version, traffic, ..] if version >> 4 == 4 => Some(traffic >> 2),
        [first, second, ..] if first >> 4 == 6 => Some((first & 0xf) << 2 | second >> 6),
        _ => None,
    }
}

/// Sets the differentiated services code point of an IPv4 or IPv6 packet; other bytes are left alone.
pub fn set_dscp(packet: &mut [u8], dscp: u8) {
    match packet.first().map(|first| first >> 4) {
        Some(4) => ipv4::set_dscp_v4(packet, dscp),
        Some(6) => ipv6::set_dscp_v6(packet, dscp),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_point_is_read_as_it_was_set() {
        for version in [4u8, 6] {
            for point in 0..64 {
                let mut packet = [0xff; 40];
                packet[0] = version << 4 | 5;
                ipv4::fill_checksum(&mut packet);
                set_dscp(&mut packet, point);
                assert_eq!((dscp(&packet), packet[0] >> 4), (Some(point), version));
            }
        }
        assert_eq!(dscp(&[0x45]), None);
        assert_eq!(dscp(&[0x15, 0]), None);
    }
}
