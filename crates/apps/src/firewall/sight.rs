//! What a firewall sees of a packet.
//!
//! The packet is decoded as the router decodes it; this module says what that means for rules:
//!
//! | packet | is seen as |
//! | --- | --- |
//! | not IP: ARP, LLDP, PPPoE, MPLS, … | nothing: it passes |
//! | IP whose headers are broken, three VLAN tags | malformed: it is dropped |
//! | whole, or a first fragment | with ports, TCP flags, or ICMP type and code |
//! | a later fragment | without these: rules that ask for them do not match |
//! | a TCP, UDP, SCTP, DCCP, UDP-Lite or ICMP header that is not all there | too short: it is dropped |
//! | a TCP fragment at offset 8 | too short: it could write over the flags (RFC 1858 §4, RFC 3128) |
//!
//! IPv6 extension headers are walked over; ESP has no ports that anybody can see.

use chunk::{DropReason, Packet};
use classify::filter::{self, Tail, WORDS_V4, WORDS_V6, shape};
use packet::{Anomaly, Decoded, IpProtocol, Kind};

use super::reasons;

/// What of a packet rules can match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sight {
    /// Nothing; the packet passes.
    Nothing,
    /// Nothing; the packet ends here.
    Never(DropReason),
    /// A header of [`filter::schema_v4`].
    V4([u32; WORDS_V4]),
    /// A header of [`filter::schema_v6`].
    V6([u32; WORDS_V6]),
}

/// Looks at a packet that came in by `interface`. `d` is left as it was decoded.
#[inline]
pub fn look(packet: &Packet, interface: u16, d: &mut Decoded) -> Sight {
    let frame = packet.data();
    packet::decode::decode_into(frame, packet.frame_len(), d);
    if !d.is_ip() {
        return match d.anomaly {
            Anomaly::TooManyVlanTags => Sight::Never(reasons::FIREWALL_MALFORMED),
            _ => Sight::Nothing,
        };
    }
    // What is wrong with addresses alone (DHCP's among them) is for others to judge.
    let judged =
        matches!(d.anomaly, Anomaly::None | Anomaly::MartianSource | Anomaly::MartianDestination);
    if !judged {
        return Sight::Never(reasons::FIREWALL_MALFORMED);
    }
    let Some(tail) = tail(d, frame, interface) else {
        return Sight::Never(reasons::FIREWALL_SHORT);
    };
    match d.kind {
        Kind::Ipv4 => Sight::V4(filter::header_v4(d.src_v4(), d.dst_v4(), tail)),
        _ => Sight::V6(filter::header_v6(d.src, d.dst, tail)),
    }
}

/// Everything but the addresses; `None` for what is too short.
#[inline]
fn tail(d: &Decoded, frame: &[u8], interface: u16) -> Option<Tail> {
    let proto = d.protocol;
    let of = |condition: bool, bit: u8| if condition { bit } else { 0 };
    let fragment = of(d.has(Decoded::FRAGMENT), shape::FRAGMENT);
    let plain = Tail { proto: proto.0, shape: fragment, interface, ..Tail::default() };
    if d.fragment_offset != 0 {
        return (proto != IpProtocol::TCP || d.fragment_offset > 8).then_some(plain);
    }
    let l4 = usize::from(d.l4_offset);
    let needed = needed(d.kind, proto);
    if needed > 0 && (d.has(Decoded::L4_TRUNCATED) || frame.len() < l4 + needed) {
        return None;
    }
    if let Some((sport, dport)) = d.ports() {
        let flags = if proto == IpProtocol::TCP { frame.get(l4 + 13).copied()? } else { 0 };
        return Some(Tail { sport, dport, flags, shape: fragment | shape::PORTS, ..plain });
    }
    Some(match d.icmp_type_code() {
        Some((kind, code)) => {
            Tail { sport: kind.into(), dport: code.into(), shape: fragment | shape::ICMP, ..plain }
        }
        None => plain,
    })
}

/// Bytes of the upper layer that rules may ask for.
#[inline]
fn needed(kind: Kind, protocol: IpProtocol) -> usize {
    match (kind, protocol) {
        (_, IpProtocol::TCP) => 14,
        (_, IpProtocol::UDP | IpProtocol::SCTP | IpProtocol::DCCP | IpProtocol::UDP_LITE) => 4,
        (Kind::Ipv4, IpProtocol::ICMP) | (Kind::Ipv6, IpProtocol::ICMPV6) => 4,
        _ => 0,
    }
}
