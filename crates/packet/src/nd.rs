//! Neighbour discovery (RFC 4861): solicitations and advertisements of neighbours and routers.
//!
//! All four are ICMPv6 messages with a fixed part and options of type, length in units of 8 bytes,
//! and data. A message with an option of length 0 is invalid as a whole (§4.6).

use crate::bytes::{array, be16, be32, put};
use crate::icmpv6::{Icmpv6Header, message};
use crate::{IpProtocol, MacAddr};
use std::net::Ipv6Addr;

/// Hop limit of every such message: a router in between would have lowered it (§7.1).
pub const HOP_LIMIT: u8 = 255;

/// Option types.
pub mod option {
    /// MAC of the sender.
    pub const SOURCE_LINK_LAYER: u8 = 1;
    /// MAC of the target.
    pub const TARGET_LINK_LAYER: u8 = 2;
    /// Prefix of a router advertisement.
    pub const PREFIX_INFORMATION: u8 = 3;
    /// Link MTU.
    pub const MTU: u8 = 5;
}

/// A message whose fixed part is there and whose options are well formed.
#[derive(Clone, Copy, Debug)]
pub enum NdView<'a> {
    /// Who has the target?
    NeighbourSolicitation(NeighbourView<'a>),
    /// I have it.
    NeighbourAdvertisement(NeighbourView<'a>),
    /// Is there a router?
    RouterSolicitation(NdOptions<'a>),
    /// I am one.
    RouterAdvertisement(RouterAdvertisementView<'a>),
}

impl<'a> NdView<'a> {
    /// `bytes` are the ICMPv6 message. `None` for other types, a code other than 0 and broken
    /// options. Checksum and hop limit are the caller's to check.
    pub fn new_checked(bytes: &'a [u8]) -> Option<Self> {
        let start = bytes.first_chunk::<8>()?;
        if start[1] != 0 {
            return None;
        }
        match start[0] {
            message::ROUTER_SOLICITATION => {
                Some(NdView::RouterSolicitation(NdOptions::new_checked(&bytes[8..])?))
            }
            message::ROUTER_ADVERTISEMENT => {
                let (fixed, rest) = bytes.split_first_chunk()?;
                let options = NdOptions::new_checked(rest)?;
                Some(NdView::RouterAdvertisement(RouterAdvertisementView { fixed, options }))
            }
            kind @ (message::NEIGHBOUR_SOLICITATION | message::NEIGHBOUR_ADVERTISEMENT) => {
                let (fixed, rest) = bytes.split_first_chunk()?;
                let view = NeighbourView { fixed, options: NdOptions::new_checked(rest)? };
                // A target is never a group (§7.1.1, §7.1.2).
                if view.target().is_multicast() {
                    None
                } else if kind == message::NEIGHBOUR_SOLICITATION {
                    Some(NdView::NeighbourSolicitation(view))
                } else {
                    Some(NdView::NeighbourAdvertisement(view))
                }
            }
            _ => None,
        }
    }
}

/// Neighbour solicitation or advertisement.
#[derive(Clone, Copy, Debug)]
pub struct NeighbourView<'a> {
    fixed: &'a [u8; 24],
    options: NdOptions<'a>,
}

impl<'a> NeighbourView<'a> {
    /// Address that is asked for or advertised.
    pub fn target(&self) -> Ipv6Addr {
        array::<16, 24>(self.fixed, 8).into()
    }

    /// R of an advertisement: the sender is a router.
    pub fn is_router(&self) -> bool {
        self.fixed[4] & 0x80 != 0
    }

    /// S of an advertisement: it answers a solicitation.
    pub fn is_solicited(&self) -> bool {
        self.fixed[4] & 0x40 != 0
    }

    /// O of an advertisement: it overrides what a cache holds.
    pub fn is_override(&self) -> bool {
        self.fixed[4] & 0x20 != 0
    }

    /// MAC of the sender, in solicitations.
    pub fn source_mac(&self) -> Option<MacAddr> {
        self.options.mac(option::SOURCE_LINK_LAYER)
    }

    /// MAC of the target, in advertisements.
    pub fn target_mac(&self) -> Option<MacAddr> {
        self.options.mac(option::TARGET_LINK_LAYER)
    }

    /// All options.
    pub fn options(&self) -> NdOptions<'a> {
        self.options
    }
}

/// Router advertisement.
#[derive(Clone, Copy, Debug)]
pub struct RouterAdvertisementView<'a> {
    fixed: &'a [u8; 16],
    options: NdOptions<'a>,
}

impl<'a> RouterAdvertisementView<'a> {
    /// Hop limit for hosts to use, 0 for unspecified.
    pub fn hop_limit(&self) -> u8 {
        self.fixed[4]
    }

    /// M: addresses come by DHCPv6.
    pub fn is_managed(&self) -> bool {
        self.fixed[5] & 0x80 != 0
    }

    /// O: other configuration comes by DHCPv6.
    pub fn is_other_config(&self) -> bool {
        self.fixed[5] & 0x40 != 0
    }

    /// As default router, seconds; 0 for none.
    pub fn lifetime_s(&self) -> u16 {
        be16(self.fixed, 6)
    }

    /// Milliseconds, 0 for unspecified.
    pub fn reachable_time_ms(&self) -> u32 {
        be32(self.fixed, 8)
    }

    /// Milliseconds, 0 for unspecified.
    pub fn retransmit_timer_ms(&self) -> u32 {
        be32(self.fixed, 12)
    }

    /// MAC of the router.
    pub fn source_mac(&self) -> Option<MacAddr> {
        self.options.mac(option::SOURCE_LINK_LAYER)
    }

    /// All options.
    pub fn options(&self) -> NdOptions<'a> {
        self.options
    }
}

/// Options that have been found well formed.
#[derive(Clone, Copy, Debug)]
pub struct NdOptions<'a> {
    rest: &'a [u8],
}

/// One option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NdOption<'a> {
    /// One of [`option`].
    pub kind: u8,
    /// Behind type and length; 6 bytes or 8 n - 2.
    pub data: &'a [u8],
}

impl<'a> NdOptions<'a> {
    /// `None` where an option has length 0 or runs over the end.
    pub fn new_checked(bytes: &'a [u8]) -> Option<Self> {
        let mut rest = bytes;
        while let [_, rest_of_it @ ..] = rest {
            let len = usize::from(*rest_of_it.first()?) * 8;
            if len == 0 {
                return None;
            }
            rest = rest.get(len..)?;
        }
        Some(NdOptions { rest: bytes })
    }

    /// The first link-layer address of this kind.
    pub fn mac(&self, kind: u8) -> Option<MacAddr> {
        let mut options = *self;
        let found = options.find(|option| option.kind == kind)?;
        found.data.first_chunk().copied().map(MacAddr)
    }
}

impl<'a> Iterator for NdOptions<'a> {
    type Item = NdOption<'a>;

    fn next(&mut self) -> Option<NdOption<'a>> {
        let [kind, units, ..] = *self.rest else { return None };
        let (option, rest) = self.rest.split_at_checked(usize::from(units) * 8)?;
        self.rest = rest;
        Some(NdOption { kind, data: option.get(2..)? })
    }
}

/// A neighbour solicitation or advertisement to write: the ICMPv6 message alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighbourMessage {
    /// Who has `target`?
    Solicitation {
        /// Address that is asked for.
        target: Ipv6Addr,
        /// MAC of the sender; left out when its address is unspecified.
        source_mac: Option<MacAddr>,
    },
    /// I have `target`.
    Advertisement {
        /// Address that is advertised.
        target: Ipv6Addr,
        /// Its MAC.
        target_mac: MacAddr,
        /// R: the sender is a router.
        router: bool,
        /// S: it answers a solicitation from a known address.
        solicited: bool,
        /// O: it overrides what a cache holds.
        overrides: bool,
    },
}

impl NeighbourMessage {
    /// Bytes that [`NeighbourMessage::emit`] writes: 24 or 32.
    pub const fn len(&self) -> usize {
        match self {
            NeighbourMessage::Solicitation { source_mac: None, .. } => 24,
            _ => 32,
        }
    }

    /// Never true; a message has bytes.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes the message, checksum included, as sent from `src` to `dst`; returns its length,
    /// `None` where there is no room. The IPv6 header in front of it takes [`HOP_LIMIT`] and
    /// [`IpProtocol::ICMPV6`].
    pub fn emit(&self, src: Ipv6Addr, dst: Ipv6Addr, out: &mut [u8]) -> Option<usize> {
        let out = out.get_mut(..self.len())?;
        let (kind, parameter, target, option) = match *self {
            NeighbourMessage::Solicitation { target, source_mac } => {
                let option = source_mac.map(|mac| (option::SOURCE_LINK_LAYER, mac));
                (message::NEIGHBOUR_SOLICITATION, 0, target, option)
            }
            NeighbourMessage::Advertisement {
                target,
                target_mac,
                router,
                solicited,
                overrides,
            } => {
                let flags = u32::from(router) << 31
                    | u32::from(solicited) << 30
                    | u32::from(overrides) << 29;
                let option = Some((option::TARGET_LINK_LAYER, target_mac));
                (message::NEIGHBOUR_ADVERTISEMENT, flags, target, option)
            }
        };
        put(out, 8, target.octets());
        if let Some((option, mac)) = option {
            put(out, 24, [option, 1]);
            put(out, 26, mac.0);
        }
        Icmpv6Header { kind, code: 0, parameter }.emit(src, dst, out)?;
        Some(out.len())
    }

    /// Writes IPv6 header and message; returns their length in bytes.
    pub fn emit_packet(&self, src: Ipv6Addr, dst: Ipv6Addr, out: &mut [u8]) -> Option<usize> {
        let mut header = crate::ipv6::Ipv6Header::new(src, dst, IpProtocol::ICMPV6);
        header.hop_limit = HOP_LIMIT;
        let header_len = header.emit(self.len(), out)?;
        Some(header_len + self.emit(src, dst, &mut out[header_len..])?)
    }
}
