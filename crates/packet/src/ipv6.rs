//! IPv6 and its extension headers (RFC 8200).

use crate::IpProtocol;
use crate::bytes::{array, be16, be32, put};
use crate::decode::MAX_EXTENSION_HEADERS;
use std::net::Ipv6Addr;

/// Bytes of the fixed header.
pub const HEADER_LEN: usize = 40;

/// A packet whose fixed header is there and whose payload length fits the bytes. Jumbograms
/// (RFC 2675) are not known: their payload length of 0 is taken as it stands.
#[derive(Clone, Copy, Debug)]
pub struct Ipv6View<'a> {
    fixed: &'a [u8; HEADER_LEN],
    payload: &'a [u8],
}

impl<'a> Ipv6View<'a> {
    /// `None` where the version is wrong or the bytes end early. Bytes behind the payload are
    /// padding and left out.
    pub fn new_checked(bytes: &'a [u8]) -> Option<Self> {
        let (fixed, rest) = bytes.split_first_chunk::<HEADER_LEN>()?;
        let payload = rest.get(..usize::from(be16(fixed, 4)))?;
        (fixed[0] >> 4 == 6).then_some(Ipv6View { fixed, payload })
    }

    /// [`Ipv6View::new_checked`] for a packet that may be cut off behind its fixed header.
    pub fn new_quoted(bytes: &'a [u8]) -> Option<Self> {
        let (fixed, rest) = bytes.split_first_chunk::<HEADER_LEN>()?;
        let payload = rest.get(..usize::from(be16(fixed, 4))).unwrap_or(rest);
        (fixed[0] >> 4 == 6).then_some(Ipv6View { fixed, payload })
    }

    /// DSCP (6 bits) and ECN (2 bits).
    pub fn traffic_class(&self) -> u8 {
        (be16(self.fixed, 0) >> 4) as u8
    }

    /// Flow label, 20 bits.
    pub fn flow_label(&self) -> u32 {
        be32(self.fixed, 0) & 0xf_ffff
    }

    /// Bytes behind the fixed header, extension headers included.
    pub fn payload_len(&self) -> u16 {
        be16(self.fixed, 4)
    }

    /// What follows the fixed header.
    pub fn next_header(&self) -> IpProtocol {
        IpProtocol(self.fixed[6])
    }

    /// Hop limit.
    pub fn hop_limit(&self) -> u8 {
        self.fixed[7]
    }

    /// Source.
    pub fn src(&self) -> Ipv6Addr {
        array::<16, HEADER_LEN>(self.fixed, 8).into()
    }

    /// Destination.
    pub fn dst(&self) -> Ipv6Addr {
        array::<16, HEADER_LEN>(self.fixed, 24).into()
    }

    /// Everything behind the fixed header, without padding.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The extension headers in order.
    pub fn extensions(&self) -> ExtensionHeaders<'a> {
        ExtensionHeaders {
            next: self.next_header(),
            rest: self.payload,
            left: MAX_EXTENSION_HEADERS,
        }
    }

    /// Where the packet goes in the end: its destination, or the last address of a routing header that is not used up, of the types
    /// 0, 2 (RFC 6275 §6.4) and 4 (segment routing, RFC 8754 §2). Checksums of upper layers have this one (RFC 8200 §8.1).
    pub fn final_dst(&self) -> Ipv6Addr {
        self.extensions().find_map(|extension| extension.last_address()).unwrap_or(self.dst())
    }

    /// Upper-layer protocol and its bytes. Behind the header of a later fragment that is the
    /// middle of something. `None` where the chain breaks off or is longer than
    /// [`MAX_EXTENSION_HEADERS`].
    pub fn upper_layer(&self) -> Option<(IpProtocol, &'a [u8])> {
        let mut walk = self.extensions();
        for extension in walk.by_ref() {
            if extension.fragment().is_some_and(|fragment| fragment.offset != 0) {
                return Some((walk.next, walk.rest));
            }
        }
        (!walk.next.is_extension_header()).then_some((walk.next, walk.rest))
    }
}

/// One extension header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtensionHeader<'a> {
    /// Which one this is.
    pub kind: IpProtocol,
    /// All of it, next header field first; at least 8 bytes.
    pub bytes: &'a [u8],
}

/// Contents of a fragment header (RFC 8200 §4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentHeader {
    /// In bytes.
    pub offset: u16,
    /// More fragments follow.
    pub more: bool,
    /// Common to the fragments of a packet.
    pub identification: u32,
}

impl ExtensionHeader<'_> {
    /// Whether it is a routing header with addresses that are still to be visited.
    pub fn has_segments_left(&self) -> bool {
        self.kind == IpProtocol::IPV6_ROUTING && self.bytes.get(3).is_some_and(|left| *left > 0)
    }

    /// The last address of a routing header with some left; `None` for any other, and for types that are not known.
    fn last_address(&self) -> Option<Ipv6Addr> {
        let at = match self.bytes.get(2)? {
            _ if !self.has_segments_left() => return None,
            0 | 2 => self.bytes.len().checked_sub(16).filter(|at| *at >= 8)?,
            // The list is in reverse.
            4 => 8,
            _ => return None,
        };
        self.bytes.get(at..)?.first_chunk::<16>().map(|address| (*address).into())
    }

    /// The contents of a fragment header, `None` for any other.
    pub fn fragment(&self) -> Option<FragmentHeader> {
        let header = self.bytes.first_chunk::<8>()?;
        (self.kind == IpProtocol::IPV6_FRAGMENT).then(|| FragmentHeader {
            offset: be16(header, 2) & 0xfff8,
            more: header[3] & 1 != 0,
            identification: be32(header, 4),
        })
    }
}

/// Bounded walk: at most [`MAX_EXTENSION_HEADERS`] headers, and none that runs over the end.
#[derive(Clone, Debug)]
pub struct ExtensionHeaders<'a> {
    next: IpProtocol,
    rest: &'a [u8],
    left: usize,
}

impl<'a> ExtensionHeaders<'a> {
    /// What follows the headers walked so far.
    pub fn next_header(&self) -> IpProtocol {
        self.next
    }

    /// The bytes behind the headers walked so far.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for ExtensionHeaders<'a> {
    type Item = ExtensionHeader<'a>;

    fn next(&mut self) -> Option<ExtensionHeader<'a>> {
        if !self.next.is_extension_header() {
            return None;
        }
        self.left = self.left.checked_sub(1)?;
        let start = self.rest.first_chunk::<8>()?;
        let len = extension_len(self.next, start);
        if len < extension_len_min(self.next) {
            return None;
        }
        let (bytes, rest) = self.rest.split_at_checked(len)?;
        let header = ExtensionHeader { kind: self.next, bytes };
        self.next = IpProtocol(start[0]);
        self.rest = rest;
        Some(header)
    }
}

/// Bytes of the extension header of `kind` that starts with `start`.
#[inline]
pub(crate) fn extension_len(kind: IpProtocol, start: &[u8; 8]) -> usize {
    match kind {
        IpProtocol::IPV6_FRAGMENT => 8,
        IpProtocol::AH => (usize::from(start[1]) + 2) * 4, // RFC 4302 §2.2
        _ => (usize::from(start[1]) + 1) * 8,
    }
}

/// An authentication header ends behind its sequence number at the earliest (RFC 4302 §2).
#[inline]
pub(crate) fn extension_len_min(kind: IpProtocol) -> usize {
    if kind == IpProtocol::AH { 12 } else { 8 }
}

/// A fixed header to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Header {
    /// DSCP (6 bits) and ECN (2 bits).
    pub traffic_class: u8,
    /// 20 bits.
    pub flow_label: u32,
    /// What follows.
    pub next_header: IpProtocol,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source.
    pub src: Ipv6Addr,
    /// Destination.
    pub dst: Ipv6Addr,
}

impl Ipv6Header {
    /// Without marking or label; hop limit 64.
    pub const fn new(src: Ipv6Addr, dst: Ipv6Addr, next_header: IpProtocol) -> Self {
        Ipv6Header { traffic_class: 0, flow_label: 0, next_header, hop_limit: 64, src, dst }
    }

    /// Writes the header for `payload_len` bytes behind it; returns 40. `None` where `out` has no
    /// room or the payload exceeds 65,535 bytes.
    pub fn emit(&self, payload_len: usize, out: &mut [u8]) -> Option<usize> {
        let payload_len = u16::try_from(payload_len).ok()?;
        let out = out.get_mut(..HEADER_LEN)?;
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0xf_ffff;
        put(out, 0, first.to_be_bytes());
        put(out, 4, payload_len.to_be_bytes());
        put(out, 6, [self.next_header.0, self.hop_limit]);
        put(out, 8, self.src.octets());
        put(out, 24, self.dst.octets());
        Some(HEADER_LEN)
    }
}

/// Sets the differentiated services code point (RFC 2474, 6 bits); ECN and flow label stay. Bytes
/// too few are left alone.
pub fn set_dscp_v6(packet: &mut [u8], dscp: u8) {
    let Some(h) = packet.first_chunk_mut::<2>() else { return };
    h[0] = h[0] & 0xf0 | dscp >> 2 & 0x0f;
    h[1] = dscp << 6 | h[1] & 0x3f;
}

/// Takes one from the hop limit; nothing where it is 0 or the bytes are shorter than a header.
#[inline]
pub fn decrement_hop_limit(packet: &mut [u8]) {
    if let Some(header) = packet.first_chunk_mut::<HEADER_LEN>() {
        header[7] = header[7].saturating_sub(1);
    }
}

/// The link-local address of an interface by EUI-64 (RFC 4291 appendix A).
pub const fn link_local(mac: crate::MacAddr) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac.0;
    let [w0, w1] = [u16::from_be_bytes([a ^ 2, b]), u16::from_be_bytes([c, 0xff])];
    let [w2, w3] = [u16::from_be_bytes([0xfe, d]), u16::from_be_bytes([e, f])];
    Ipv6Addr::new(0xfe80, 0, 0, 0, w0, w1, w2, w3)
}

/// The group in which a node listens for solicitations of `address` (RFC 4291 §2.7.1).
pub const fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let o = address.octets();
    Ipv6Addr::new(
        0xff02,
        0,
        0,
        0,
        0,
        1,
        u16::from_be_bytes([0xff, o[13]]),
        u16::from_be_bytes([o[14], o[15]]),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet with a routing header and nothing behind.
    fn routed(kind: u8, left: u8, addresses: &[Ipv6Addr]) -> Vec<u8> {
        let mut routing = vec![59, 2 * addresses.len() as u8, kind, left, 0, 0, 0, 0];
        addresses.iter().for_each(|address| routing.extend(address.octets()));
        let (src, dst) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
        let mut packet = vec![0; HEADER_LEN];
        Ipv6Header::new(src, dst, IpProtocol::IPV6_ROUTING)
            .emit(routing.len(), &mut packet)
            .unwrap();
        [packet, routing].concat()
    }

    #[test]
    fn the_last_destination_is_that_of_a_routing_header_with_segments_left() {
        let all: Vec<Ipv6Addr> =
            (3..6).map(|last| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last)).collect();
        for (kind, left, addresses, expected) in [
            (0, 1, &all[..], "2001:db8::5"),
            (2, 1, &all[..1], "2001:db8::3"),
            (4, 2, &all[..], "2001:db8::3"),
            (4, 0, &all[..], "2001:db8::2"),
            (3, 1, &all[..], "2001:db8::2"),
            (0, 1, &[], "2001:db8::2"),
            (4, 1, &[], "2001:db8::2"),
        ] {
            let packet = routed(kind, left, addresses);
            let view = Ipv6View::new_checked(&packet).unwrap();
            assert_eq!(view.final_dst(), expected.parse::<Ipv6Addr>().unwrap(), "{kind} {left}");
        }
    }
}
