//! The fields of OpenFlow 1.3 (OXM basic class, section 7.2.3.7) in one table.

use std::fmt;

/// VLAN_VID with this bit: the packet has a VLAN tag; the low 12 bits are its identifier. Without it: no tag.
pub const VLAN_PRESENT: u16 = 0x1000;

macro_rules! fields {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal, $bits:literal, $maskable:literal, $form:ident, $needs:expr;)*) => {
        /// A field that flows match and actions set. The discriminant is the OXM field number.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Field {
            $($(#[$doc])* $name = $number,)*
        }

        impl Field {
            /// All fields, in order of their OXM numbers.
            pub const ALL: [Self; 40] = [$(Self::$name,)*];

            const TABLE: [Facts; 40] = [$(
                Facts { name: $text, bits: $bits, maskable: $maskable, form: Form::$form, needs: $needs },
            )*];
        }
    };
}

struct Facts {
    name: &'static str,
    bits: u32,
    maskable: bool,
    form: Form,
    needs: &'static [Need],
}

/// How a field's value is written in text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A decimal number.
    Decimal,
    /// A hexadecimal number.
    Hex,
    /// A port by number or name.
    Port,
    /// An Ethernet address.
    Mac,
    /// An IPv4 address.
    Ipv4,
    /// An IPv6 address.
    Ipv6,
}

/// What else a match must say so that a field is there: the field has one of the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// The field that is needed.
    pub field: Field,
    /// One of these values, exactly; empty: any value (of VLAN_VID: any with [`VLAN_PRESENT`]).
    pub values: &'static [u128],
}

const fn need(field: Field, values: &'static [u128]) -> Need {
    Need { field, values }
}

const IP: Need = need(Field::EthType, &[0x0800, 0x86dd]);
const IPV4: Need = need(Field::EthType, &[0x0800]);
const IPV6: Need = need(Field::EthType, &[0x86dd]);
const ARP: Need = need(Field::EthType, &[0x0806]);
const MPLS: Need = need(Field::EthType, &[0x8847, 0x8848]);
const PBB: Need = need(Field::EthType, &[0x88e7]);
const TCP: Need = need(Field::IpProto, &[6]);
const UDP: Need = need(Field::IpProto, &[17]);
const SCTP: Need = need(Field::IpProto, &[132]);
const ICMPV4: Need = need(Field::IpProto, &[1]);
const ICMPV6: Need = need(Field::IpProto, &[58]);
const SOLICITED: Need = need(Field::Icmpv6Type, &[135]);
const ADVERTISED: Need = need(Field::Icmpv6Type, &[136]);
const NEIGHBOUR: Need = need(Field::Icmpv6Type, &[135, 136]);

fields! {
    /// Port of entry.
    InPort = 0, "in_port", 32, false, Port, &[];
    /// Physical port of entry, below a logical one.
    InPhyPort = 1, "in_phy_port", 32, false, Port, &[need(Field::InPort, &[])];
    /// What the tables so far handed on.
    Metadata = 2, "metadata", 64, true, Hex, &[];
    /// Ethernet destination.
    EthDst = 3, "eth_dst", 48, true, Mac, &[];
    /// Ethernet source.
    EthSrc = 4, "eth_src", 48, true, Mac, &[];
    /// Ethernet type behind all VLAN tags.
    EthType = 5, "eth_type", 16, false, Hex, &[];
    /// VLAN identifier with [`VLAN_PRESENT`]; 0: no tag.
    VlanVid = 6, "vlan_vid", 13, true, Decimal, &[];
    /// VLAN priority.
    VlanPcp = 7, "vlan_pcp", 3, false, Decimal, &[need(Field::VlanVid, &[])];
    /// Upper six bits of the type of service or traffic class.
    IpDscp = 8, "ip_dscp", 6, false, Decimal, &[IP];
    /// Lower two bits of the type of service or traffic class.
    IpEcn = 9, "nw_ecn", 2, false, Decimal, &[IP];
    /// IPv4 protocol, IPv6 next header behind the extension headers.
    IpProto = 10, "nw_proto", 8, false, Decimal, &[IP];
    /// IPv4 source.
    Ipv4Src = 11, "ip_src", 32, true, Ipv4, &[IPV4];
    /// IPv4 destination.
    Ipv4Dst = 12, "ip_dst", 32, true, Ipv4, &[IPV4];
    /// TCP source port.
    TcpSrc = 13, "tcp_src", 16, true, Decimal, &[IP, TCP];
    /// TCP destination port.
    TcpDst = 14, "tcp_dst", 16, true, Decimal, &[IP, TCP];
    /// UDP source port.
    UdpSrc = 15, "udp_src", 16, true, Decimal, &[IP, UDP];
    /// UDP destination port.
    UdpDst = 16, "udp_dst", 16, true, Decimal, &[IP, UDP];
    /// SCTP source port.
    SctpSrc = 17, "sctp_src", 16, true, Decimal, &[IP, SCTP];
    /// SCTP destination port.
    SctpDst = 18, "sctp_dst", 16, true, Decimal, &[IP, SCTP];
    /// ICMP type.
    Icmpv4Type = 19, "icmp_type", 8, false, Decimal, &[IPV4, ICMPV4];
    /// ICMP code.
    Icmpv4Code = 20, "icmp_code", 8, false, Decimal, &[IPV4, ICMPV4];
    /// ARP operation.
    ArpOp = 21, "arp_op", 16, false, Decimal, &[ARP];
    /// ARP sender's protocol address.
    ArpSpa = 22, "arp_spa", 32, true, Ipv4, &[ARP];
    /// ARP target's protocol address.
    ArpTpa = 23, "arp_tpa", 32, true, Ipv4, &[ARP];
    /// ARP sender's hardware address.
    ArpSha = 24, "arp_sha", 48, true, Mac, &[ARP];
    /// ARP target's hardware address.
    ArpTha = 25, "arp_tha", 48, true, Mac, &[ARP];
    /// IPv6 source.
    Ipv6Src = 26, "ipv6_src", 128, true, Ipv6, &[IPV6];
    /// IPv6 destination.
    Ipv6Dst = 27, "ipv6_dst", 128, true, Ipv6, &[IPV6];
    /// IPv6 flow label.
    Ipv6Flabel = 28, "ipv6_label", 20, true, Hex, &[IPV6];
    /// ICMPv6 type.
    Icmpv6Type = 29, "icmpv6_type", 8, false, Decimal, &[IPV6, ICMPV6];
    /// ICMPv6 code.
    Icmpv6Code = 30, "icmpv6_code", 8, false, Decimal, &[IPV6, ICMPV6];
    /// Target of a neighbour solicitation or advertisement.
    Ipv6NdTarget = 31, "nd_target", 128, true, Ipv6, &[IPV6, ICMPV6, NEIGHBOUR];
    /// Source link-layer address of a neighbour solicitation.
    Ipv6NdSll = 32, "nd_sll", 48, true, Mac, &[IPV6, ICMPV6, SOLICITED];
    /// Target link-layer address of a neighbour advertisement.
    Ipv6NdTll = 33, "nd_tll", 48, true, Mac, &[IPV6, ICMPV6, ADVERTISED];
    /// Label of the first MPLS entry.
    MplsLabel = 34, "mpls_label", 20, false, Decimal, &[MPLS];
    /// Traffic class of the first MPLS entry.
    MplsTc = 35, "mpls_tc", 3, false, Decimal, &[MPLS];
    /// Bottom-of-stack bit of the first MPLS entry.
    MplsBos = 36, "mpls_bos", 1, false, Decimal, &[MPLS];
    /// Service identifier of the PBB tag.
    PbbIsid = 37, "pbb_isid", 24, true, Hex, &[PBB];
    /// Identifier of the tunnel that a logical port took the packet out of.
    TunnelId = 38, "tun_id", 64, true, Hex, &[];
    /// Which IPv6 extension headers there are: nine bits, section 7.2.3.8.
    Ipv6Exthdr = 39, "ipv6_exthdr", 9, true, Hex, &[IPV6];
}

impl Field {
    /// The field of an OXM field number of the basic class (0x8000).
    pub fn from_oxm(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Its OXM field number.
    pub const fn oxm(self) -> u8 {
        self as u8
    }

    /// Its name in the flow syntax of ovs-ofctl.
    pub const fn name(self) -> &'static str {
        Self::TABLE[self as usize].name
    }

    /// Its width in bits.
    pub const fn bits(self) -> u32 {
        Self::TABLE[self as usize].bits
    }

    /// Its width on the wire in bytes: the next power of two, but that of addresses and of the PBB service.
    pub const fn bytes(self) -> usize {
        match self.bits() {
            20 => 4,
            bits => bits.div_ceil(8) as usize,
        }
    }

    /// All bits of the field: the mask of an exact match.
    pub const fn full(self) -> u128 {
        u128::MAX >> (128 - self.bits())
    }

    /// Parts of the value may be left open by a mask: where 1.3 says so, and of ports and neighbour discovery, which 1.3 wants exact
    /// and Open vSwitch takes with masks.
    pub const fn is_maskable(self) -> bool {
        Self::TABLE[self as usize].maskable
    }

    /// How its values are written.
    pub const fn form(self) -> Form {
        Self::TABLE[self as usize].form
    }

    /// What a match on this field must also say (all of it).
    pub const fn needs(self) -> &'static [Need] {
        Self::TABLE[self as usize].needs
    }

    /// SET_FIELD may name the field: not a port of entry, not the metadata (section 7.2.5).
    pub const fn is_settable(self) -> bool {
        !matches!(self, Self::InPort | Self::InPhyPort | Self::Metadata)
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
