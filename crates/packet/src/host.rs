//! What packets for the machine itself are about: classes with budgets of their own.
//!
//! What a router needs to keep its neighbours and its routes must not compete with everything else that is sent to it.
//! The classes follow what routers of others police apart (RFC 6192 §3): address resolution, routing protocols, the rest.

use chunk::DropReason;

use crate::{Decoded, EtherType, IpProtocol, Kind, reasons};

/// A class of packets for the machine itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum HostClass {
    /// ARP.
    Arp,
    /// IPv6 neighbour discovery (RFC 4861): solicitations, advertisements, redirects.
    Nd,
    /// Protocols of routers: BGP, OSPF, IS-IS, RIP, EIGRP, Babel, BFD, PIM, LDP, RSVP, VRRP, LLDP, LACP.
    Routing,
    /// Everything else: echo, SSH, whatever a program listens to.
    Other,
}

impl HostClass {
    /// All of them, in order of their numbers.
    pub const ALL: [HostClass; 4] =
        [HostClass::Arp, HostClass::Nd, HostClass::Routing, HostClass::Other];

    /// The class of a frame, of which `frame` are the first bytes and `frame_len` is the length.
    pub fn of(frame: &[u8], frame_len: usize) -> HostClass {
        let d = crate::decode(frame, frame_len);
        match d.kind {
            Kind::Arp => HostClass::Arp,
            Kind::Ipv4 | Kind::Ipv6 => of_packet(&d),
            Kind::Other => of_link(frame, &d),
        }
    }

    /// Why packets of the class are dropped beyond its rate.
    pub const fn reason(self) -> DropReason {
        match self {
            HostClass::Arp => reasons::HOST_ARP_RATE,
            HostClass::Nd => reasons::HOST_ND_RATE,
            HostClass::Routing => reasons::HOST_ROUTING_RATE,
            HostClass::Other => reasons::HOST_OTHER_RATE,
        }
    }
}

/// Hop limit of neighbour discovery: such a packet comes from the link itself.
const ND_HOP_LIMIT: u8 = 255;

fn of_packet(d: &Decoded) -> HostClass {
    /// TCP and UDP: BGP, LDP.
    const OF_BOTH: [u16; 2] = [179, 646];
    /// UDP: RIP, RIPng, BFD (RFC 5881, RFC 5883, RFC 7130, RFC 7880), Babel.
    const OF_UDP: [u16; 8] = [520, 521, 3784, 3785, 4784, 6784, 7784, 6696];
    /// Protocols of their own: RSVP, EIGRP, OSPF, PIM, VRRP.
    const OWN: [IpProtocol; 5] =
        [IpProtocol(46), IpProtocol(88), IpProtocol::OSPF, IpProtocol::PIM, IpProtocol::VRRP];
    if let Some((133..=137, _)) = d.icmp_type_code()
        && d.kind == Kind::Ipv6
        && d.ttl == ND_HOP_LIMIT
    {
        return HostClass::Nd;
    }
    let has_port = |of: &[u16]| d.ports().is_some_and(|(a, b)| of.contains(&a) || of.contains(&b));
    let is_routing = match d.protocol {
        IpProtocol::TCP => has_port(&OF_BOTH),
        IpProtocol::UDP => has_port(&OF_BOTH) || has_port(&OF_UDP),
        protocol => OWN.contains(&protocol),
    };
    if is_routing { HostClass::Routing } else { HostClass::Other }
}

/// Frames that are not of IP.
fn of_link(frame: &[u8], d: &Decoded) -> HostClass {
    /// LACP and other slow protocols (IEEE 802.3 annex 57A), IS-IS in long frames.
    const SLOW: EtherType = EtherType(0x8809);
    const LONG_ISIS: EtherType = EtherType(0x8870);
    /// The service access points of OSI network protocols (ISO/IEC TR 9577) behind a length (IEEE 802.3).
    const OSI: [u8; 2] = [0xfe, 0xfe];
    const LENGTH_MAX: u16 = 1500;
    let is_osi = d.ethertype.0 <= LENGTH_MAX
        && frame.get(usize::from(d.l3_offset)..).is_some_and(|llc| llc.starts_with(&OSI));
    match d.ethertype {
        EtherType::LLDP | SLOW | LONG_ISIS => HostClass::Routing,
        _ if is_osi => HostClass::Routing,
        _ => HostClass::Other,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ethernet(ethertype: u16, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend(ethertype.to_be_bytes());
        frame.extend(payload);
        frame.resize(frame.len().max(60), 0);
        frame
    }

    fn ipv4(protocol: u8, ports: (u16, u16)) -> Vec<u8> {
        let mut packet =
            vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1];
        let sum = crate::checksum::internet_checksum(&packet);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet.extend([ports.0, ports.1].into_iter().flat_map(u16::to_be_bytes));
        packet.resize(40, 0);
        ethernet(0x0800, &packet)
    }

    fn ipv6(next: u8, hop_limit: u8, upper: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0, 24, next, hop_limit];
        packet.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
        packet.extend([0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        packet.extend(upper);
        packet.resize(64, 0);
        ethernet(0x86dd, &packet)
    }

    #[test]
    fn each_protocol_has_its_class() {
        use HostClass::{Arp, Nd, Other, Routing};
        let cases: [(&str, Vec<u8>, HostClass); 17] = [
            ("ARP", ethernet(0x0806, &[0, 1, 8, 0, 6, 4, 0, 1]), Arp),
            ("ARP that is malformed", ethernet(0x0806, &[9; 30]), Arp),
            ("BGP, to us", ipv4(6, (40_000, 179)), Routing),
            ("BGP, an answer", ipv4(6, (179, 40_000)), Routing),
            ("SSH", ipv4(6, (40_000, 22)), Other),
            ("BFD", ipv4(17, (49_152, 3784)), Routing),
            ("DNS", ipv4(17, (40_000, 53)), Other),
            ("OSPF", ipv4(89, (0, 0)), Routing),
            ("VRRP", ipv4(112, (0, 0)), Routing),
            ("echo", ipv4(1, (0x0800, 0)), Other),
            ("OSPFv3", ipv6(89, 1, &[3]), Routing),
            ("a neighbour solicitation", ipv6(58, 255, &[135, 0, 0, 0]), Nd),
            ("a forwarded one is none", ipv6(58, 64, &[135, 0, 0, 0]), Other),
            ("echo of IPv6", ipv6(58, 255, &[128, 0, 0, 0]), Other),
            ("IS-IS", ethernet(40, &[0xfe, 0xfe, 3, 0x83]), Routing),
            ("spanning tree", ethernet(40, &[0x42, 0x42, 3]), Other),
            ("LACP", ethernet(0x8809, &[1, 1]), Routing),
        ];
        for (name, frame, expected) in cases {
            assert_eq!(HostClass::of(&frame, frame.len()), expected, "{name}");
            // Whatever tag is before it.
            let mut tagged = frame[..12].to_vec();
            tagged.extend([0x81, 0, 0, 7]);
            tagged.extend(&frame[12..]);
            assert_eq!(HostClass::of(&tagged, tagged.len()), expected, "{name}, tagged");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_class(bytes in prop::collection::vec(any::<u8>(), 0..120), more in 0..100usize) {
            let class = HostClass::of(&bytes, bytes.len() + more);
            prop_assert_eq!(HostClass::ALL[class as usize], class);
        }
    }
}
