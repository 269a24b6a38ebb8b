//! Link types, and what can be made into Ethernet.
//!
//! The pipeline sees Ethernet frames only. Captures of layers that say little more than the protocol
//! (raw IP, loopback, Cisco HDLC, Linux "cooked") get an Ethernet header in front; the rest is refused by name.
//! Numbers: the registry of link types, draft-ietf-opsawg-pcaplinktype.

use std::fmt;

/// A number of the registry of link types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkType(pub u32);

impl LinkType {
    /// Ethernet II or 802.3.
    pub const ETHERNET: LinkType = LinkType(1);

    /// Whether packets of this type are Ethernet frames or can be made into them.
    pub fn is_convertible(self) -> bool {
        matches!(self.0, 0 | 1 | 12 | 14 | 101 | 104 | 108 | 113 | 228 | 229 | 276)
    }

    /// How many bytes of `data` to leave out and which EtherType to put in front; `None` when the
    /// packet is too short or of a protocol without an EtherType. Not for Ethernet itself.
    pub(super) fn to_ethertype(self, data: &[u8]) -> Option<(usize, u16)> {
        const IPV4: u16 = 0x0800;
        const IPV6: u16 = 0x86dd;
        let u16_at = |at: usize| Some(u16::from_be_bytes(*data.get(at..)?.first_chunk()?));
        match self.0 {
            // NULL and LOOP: an address family of four bytes, in the order of the capturing host
            // and of the network. It is below 256 everywhere, so either order can be read.
            0 | 108 => {
                let family: [u8; 4] = *data.first_chunk()?;
                let family = u32::from_be_bytes(family).min(u32::from_le_bytes(family));
                match family {
                    2 => Some((4, IPV4)),
                    10 | 24 | 28 | 30 => Some((4, IPV6)),
                    _ => None,
                }
            }
            12 | 14 | 101 => match data.first()? >> 4 {
                4 => Some((0, IPV4)),
                6 => Some((0, IPV6)),
                _ => None,
            },
            // Cisco HDLC: address, control, then a protocol, an EtherType from 0x0600 on.
            104 => u16_at(2).filter(|&p| p >= 0x600).map(|p| (4, p)),
            228 => Some((0, IPV4)),
            229 => Some((0, IPV6)),
            // Linux cooked, two versions: the protocol is an EtherType from 0x0600 on.
            113 => u16_at(14).filter(|&p| p >= 0x600 && data.len() >= 16).map(|p| (16, p)),
            276 => u16_at(0).filter(|&p| p >= 0x600 && data.len() >= 20).map(|p| (20, p)),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self.0 {
            0 => "BSD loopback",
            1 => "Ethernet",
            6 => "IEEE 802.5 token ring",
            9 => "PPP",
            10 => "FDDI",
            12 | 14 | 101 => "raw IP",
            50 => "PPP in HDLC framing",
            51 => "PPPoE",
            104 => "Cisco HDLC",
            105 => "IEEE 802.11",
            107 => "frame relay",
            108 => "OpenBSD loopback",
            113 => "Linux cooked v1",
            117 => "OpenBSD pflog",
            119 => "IEEE 802.11 with Prism header",
            127 => "IEEE 802.11 with radiotap header",
            163 => "IEEE 802.11 with AVS header",
            189 | 220 => "Linux USB",
            192 => "per-packet information",
            195 | 230 => "IEEE 802.15.4",
            201 | 187 => "Bluetooth HCI",
            227 => "CAN",
            228 => "raw IPv4",
            229 => "raw IPv6",
            239 => "Linux netfilter log",
            249 => "USBPcap",
            253 => "Linux netlink",
            276 => "Linux cooked v2",
            _ => "unknown",
        }
    }
}

impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.0, self.name())
    }
}
