//! The packet that an ICMP error is about: errors quote its beginning (RFC 792, RFC 4443 §2.4).
//!
//! Pure functions: any thread.

use crate::IpProtocol;
use crate::bytes::{be16, be32};
use crate::decode::{Decoded, Kind};
use crate::ipv4::Ipv4View;
use crate::ipv6::Ipv6View;

/// What is known of a quoted packet: enough to find its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quoted {
    /// Source address, as [`Decoded`] has it.
    pub src: [u64; 2],
    /// Destination address, likewise.
    pub dst: [u64; 2],
    /// Upper-layer protocol.
    pub protocol: IpProtocol,
    /// Source and destination port of TCP, UDP, SCTP, DCCP and UDP-Lite.
    pub ports: Option<(u16, u16)>,
    /// Type, code and identifier of an ICMP or ICMPv6 message.
    pub icmp: Option<(u8, u8, u16)>,
    /// Sequence number of TCP.
    pub sequence: Option<u32>,
}

/// Whether a message of this type is an error, or a redirect, which quotes a packet too.
pub const fn is_error(kind: Kind, icmp_type: u8) -> bool {
    match kind {
        Kind::Ipv4 => matches!(icmp_type, 3 | 4 | 5 | 11 | 12),
        Kind::Ipv6 => icmp_type < 128,
        _ => false,
    }
}

/// Whether a decoded packet is an ICMP error.
pub fn is_error_packet(d: &Decoded) -> bool {
    let is_icmp = match d.kind {
        Kind::Ipv4 => d.protocol == IpProtocol::ICMP,
        Kind::Ipv6 => d.protocol == IpProtocol::ICMPV6,
        _ => false,
    };
    is_icmp && d.icmp_type_code().is_some_and(|(icmp_type, _)| is_error(d.kind, icmp_type))
}

/// The packet that `frame`, an ICMP error decoded to `d`, quotes; `None` if it is not there, or without what names its flow: a
/// later fragment, or cut off.
pub fn quoted(frame: &[u8], d: &Decoded) -> Option<Quoted> {
    let end = d.l3_end().min(frame.len());
    let bytes = frame.get(usize::from(d.l4_offset) + 8..end)?;
    match d.kind {
        Kind::Ipv4 => quoted_v4(bytes),
        Kind::Ipv6 => quoted_v6(bytes),
        _ => None,
    }
}

fn quoted_v4(bytes: &[u8]) -> Option<Quoted> {
    let view = Ipv4View::new_quoted(bytes)?;
    if view.fragment_offset() != 0 {
        return None;
    }
    let word = |address: std::net::Ipv4Addr| [0, u64::from(address.to_bits())];
    upper(word(view.src()), word(view.dst()), view.protocol(), view.payload())
}

fn quoted_v6(bytes: &[u8]) -> Option<Quoted> {
    let view = Ipv6View::new_quoted(bytes)?;
    let is_later = |f: crate::ipv6::FragmentHeader| f.offset != 0;
    if view.extensions().any(|extension| extension.fragment().is_some_and(is_later)) {
        return None;
    }
    let (protocol, payload) = view.upper_layer()?;
    let halves = |address: std::net::Ipv6Addr| {
        let bits = address.to_bits();
        [(bits >> 64) as u64, bits as u64]
    };
    upper(halves(view.src()), halves(view.dst()), protocol, payload)
}

fn upper(src: [u64; 2], dst: [u64; 2], protocol: IpProtocol, payload: &[u8]) -> Option<Quoted> {
    let mut quoted = Quoted { src, dst, protocol, ports: None, icmp: None, sequence: None };
    match protocol {
        IpProtocol::TCP
        | IpProtocol::UDP
        | IpProtocol::UDP_LITE
        | IpProtocol::SCTP
        | IpProtocol::DCCP => {
            let head = payload.first_chunk::<8>()?;
            quoted.ports = Some((be16(head, 0), be16(head, 2)));
            quoted.sequence = (protocol == IpProtocol::TCP).then(|| be32(head, 4));
        }
        IpProtocol::ICMP | IpProtocol::ICMPV6 => {
            let head = payload.first_chunk::<8>()?;
            quoted.icmp = Some((head[0], head[1], be16(head, 4)));
        }
        _ => {}
    }
    Some(quoted)
}
