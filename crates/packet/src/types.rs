//! Numbers of the registries: EtherTypes (IEEE 802) and IP protocols (IANA).

use std::fmt;

use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes};

/// An EtherType in host order. Values below 0x0600 are IEEE 802.3 lengths.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    TryFromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
)]
#[repr(transparent)]
pub struct EtherType(pub u16);

#[allow(missing_docs)] // the names are the registry's
impl EtherType {
    pub const IPV4: EtherType = EtherType(0x0800);
    pub const ARP: EtherType = EtherType(0x0806);
    pub const RARP: EtherType = EtherType(0x8035);
    pub const IPV6: EtherType = EtherType(0x86dd);
    /// 802.1Q, customer tag.
    pub const VLAN: EtherType = EtherType(0x8100);
    /// 802.1ad, service tag.
    pub const QINQ: EtherType = EtherType(0x88a8);
    /// The service tag of equipment older than 802.1ad.
    pub const QINQ_OLD: EtherType = EtherType(0x9100);
    pub const MPLS: EtherType = EtherType(0x8847);
    pub const MPLS_MULTICAST: EtherType = EtherType(0x8848);
    /// 802.1ah, I-TAG.
    pub const PBB: EtherType = EtherType(0x88e7);
    pub const PPPOE_SESSION: EtherType = EtherType(0x8864);
    pub const LLDP: EtherType = EtherType(0x88cc);

    /// One of the three tag protocol identifiers that are followed here.
    #[inline]
    pub const fn is_vlan(self) -> bool {
        matches!(self, EtherType::VLAN | EtherType::QINQ | EtherType::QINQ_OLD)
    }
}

impl fmt::Debug for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match *self {
            EtherType::IPV4 => "ipv4",
            EtherType::ARP => "arp",
            EtherType::IPV6 => "ipv6",
            EtherType::VLAN => "802.1q",
            EtherType::QINQ => "802.1ad",
            EtherType::MPLS => "mpls",
            EtherType::LLDP => "lldp",
            EtherType(other) => return write!(f, "{other:#06x}"),
        };
        f.pad(name)
    }
}

/// The IPv4 protocol field and the IPv6 next header share one registry.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    TryFromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
)]
#[repr(transparent)]
pub struct IpProtocol(pub u8);

#[allow(missing_docs)] // the names are the registry's
impl IpProtocol {
    pub const HOP_BY_HOP: IpProtocol = IpProtocol(0);
    pub const ICMP: IpProtocol = IpProtocol(1);
    pub const IGMP: IpProtocol = IpProtocol(2);
    pub const TCP: IpProtocol = IpProtocol(6);
    pub const UDP: IpProtocol = IpProtocol(17);
    pub const DCCP: IpProtocol = IpProtocol(33);
    pub const IPV6_ROUTING: IpProtocol = IpProtocol(43);
    pub const IPV6_FRAGMENT: IpProtocol = IpProtocol(44);
    pub const GRE: IpProtocol = IpProtocol(47);
    pub const ESP: IpProtocol = IpProtocol(50);
    pub const AH: IpProtocol = IpProtocol(51);
    pub const ICMPV6: IpProtocol = IpProtocol(58);
    pub const NO_NEXT_HEADER: IpProtocol = IpProtocol(59);
    pub const DESTINATION_OPTIONS: IpProtocol = IpProtocol(60);
    pub const OSPF: IpProtocol = IpProtocol(89);
    pub const PIM: IpProtocol = IpProtocol(103);
    pub const VRRP: IpProtocol = IpProtocol(112);
    pub const SCTP: IpProtocol = IpProtocol(132);
    pub const UDP_LITE: IpProtocol = IpProtocol(136);

    /// The extension headers that are walked over: hop-by-hop and destination options, routing,
    /// fragment, authentication. ESP hides what follows; mobility, HIP and shim6 are taken as
    /// upper layers.
    pub const fn is_extension_header(self) -> bool {
        matches!(self.0, 0 | 43 | 44 | 51 | 60)
    }
}

impl fmt::Debug for IpProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for IpProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match *self {
            IpProtocol::ICMP => "icmp",
            IpProtocol::IGMP => "igmp",
            IpProtocol::TCP => "tcp",
            IpProtocol::UDP => "udp",
            IpProtocol::GRE => "gre",
            IpProtocol::ESP => "esp",
            IpProtocol::AH => "ah",
            IpProtocol::ICMPV6 => "icmp6",
            IpProtocol::OSPF => "ospf",
            IpProtocol::SCTP => "sctp",
            IpProtocol(other) => return write!(f, "{other}"),
        };
        f.pad(name)
    }
}
