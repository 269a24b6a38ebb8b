//! What is around ESP in packets that are sent.
//!
//! ```text
//!  tunnel     │ outer IP, perhaps a fragment header of IPv6 │ UDP │ ESP │ inner packet │ TFC padding, padding, trailer, check value │
//!  transport  │ IP, headers before ESP │ UDP │ ESP │ the rest of the packet │ padding, trailer, check value │
//!             ◀── kept ───▶◀── front ──▶◀── payload ───────▶◀── back ──▶
//! ```
//!
//! [`plan`] says how much room a packet needs and where; whoever has the packet makes it, in front of the payload and
//! behind; [`Plan::write_headers`] fills the headers; `crypto::esp` seals the payload; [`finish`] does what depends on the
//! sealed bytes.

use std::net::{IpAddr, Ipv6Addr};
use std::ops::Range;

use crypto::esp;
use packet::checksum::{ipv4_decrement_ttl, partial_sum, pseudo_header_v6};
use packet::ipv4::{Ipv4Header, fill_checksum};
use packet::ipv6::{Ipv6Header, decrement_hop_limit};
use packet::{Decoded, IpProtocol, Kind};

use crate::association::Association;
use crate::parameters::{Dont, Dscp, Mode, Parameters};

/// IPv4 in a tunnel.
pub const IPV4: u8 = 4;
/// IPv6 in a tunnel.
pub const IPV6: u8 = 41;
/// Bytes of the fragment header of IPv6.
const FRAGMENT_LEN: usize = 8;
/// Bytes of UDP's header.
pub const UDP_LEN: usize = 8;

/// Why a packet cannot be protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Transport mode protects whole packets (RFC 4303 §3.3.4).
    Fragment,
    /// The packet that would come out is longer than any.
    TooLong,
    /// Its headers are not right, or the association does not send.
    Malformed,
}

/// Where everything goes in a packet that is to be protected. Places are bytes from the first IP header on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Bytes of the packet that stay in front of all that is added.
    pub kept: u32,
    /// Bytes that are added behind them.
    pub front: u32,
    /// Bytes of the packet that are sealed.
    pub payload: u32,
    /// TFC padding.
    pub padding: u32,
    /// Bytes behind the payload: TFC padding and all of ESP's.
    pub back: u32,
    /// Where in the kept bytes the protocol of what follows is; in transport mode.
    protocol_at: u32,
    /// Protocol of the payload.
    pub next_header: u8,
    /// The family of the packet that comes out, 4 or 6.
    pub family: u8,
    /// The packet is one of the gateway's own, which no router has forwarded: its TTL stays.
    pub is_own: bool,
    /// The outer packet may be fragmented, whatever the inner one says ([`Plan::divided`]).
    pub may_divide: bool,
}

/// Small, because there is one for each packet of a group.
const _: () = assert!(size_of::<Plan>() <= 28);

/// Room for a packet: its bytes from the IP header on begin `ip`, at least its headers, and `d` is its record, counted from
/// anywhere. TFC padding makes it no longer than `mtu` bytes.
///
/// # Errors
/// Why it cannot be protected by this association.
#[inline]
pub fn plan(own: &Association, ip: &[u8], d: &Decoded, mtu: usize) -> Result<Plan, Refusal> {
    let Parameters { mode, udp, .. } = own.parameters();
    let plan = match mode {
        Mode::Tunnel => plan_tunnel(own, d, mtu),
        Mode::Transport if d.has(Decoded::FRAGMENT) => return Err(Refusal::Fragment),
        Mode::Transport => {
            let (kept, protocol_at, next_header) = place(ip, d).ok_or(Refusal::Malformed)?;
            let payload = (d.ip_total_len as usize).checked_sub(kept).ok_or(Refusal::Malformed)?;
            let udp = if udp.is_some() { UDP_LEN } else { 0 };
            // All are bounded by the length of a packet.
            Plan {
                kept: kept as u32,
                front: (udp + esp::front_len(own.suite())) as u32,
                payload: payload as u32,
                padding: 0,
                back: esp::back_len(own.suite(), payload) as u32,
                protocol_at: protocol_at as u32,
                next_header,
                family: if d.kind == Kind::Ipv4 { 4 } else { 6 },
                is_own: false,
                may_divide: false,
            }
        }
    };
    plan.bounded()
}

/// The same by an association in tunnel mode, however long the packet becomes.
#[inline]
pub fn plan_tunnel(own: &Association, d: &Decoded, mtu: usize) -> Plan {
    let Parameters { udp, pad_to, .. } = own.parameters();
    let (suite, len) = (own.suite(), d.ip_total_len as usize);
    let udp = if udp.is_some() { UDP_LEN } else { 0 };
    let outer = if own.family() == 4 { 20 } else { 40 };
    let front = outer + udp + esp::front_len(suite);
    let padding = match usize::from(*pad_to).saturating_sub(len) {
        0 => 0,
        wanted => {
            let most = esp::payload_max(suite, mtu.saturating_sub(front));
            wanted.min(most.saturating_sub(len))
        }
    };
    Plan {
        kept: 0,
        front: front as u32,
        payload: d.ip_total_len,
        padding: padding as u32,
        back: (padding + esp::back_len(suite, len + padding)) as u32,
        protocol_at: 0,
        next_header: if d.kind == Kind::Ipv4 { IPV4 } else { IPV6 },
        family: own.family(),
        is_own: false,
        may_divide: false,
    }
}

/// Where ESP goes in transport mode (RFC 4303 §3.1.1): behind the headers that routers look at, and before destination
/// options for the receiver. Where the header before it says what follows, and what follows.
fn place(ip: &[u8], d: &Decoded) -> Option<(usize, usize, u8)> {
    if d.kind == Kind::Ipv4 {
        let len = usize::from(*ip.first()? & 0xf) * 4;
        return Some((len, 9, *ip.get(9)?));
    }
    let (mut at, mut protocol_at) = (40, 6);
    // Headers up to here stay in front.
    let mut found = (at, protocol_at);
    for _ in 0..packet::decode::MAX_EXTENSION_HEADERS {
        let kind = IpProtocol(*ip.get(protocol_at)?);
        let is_option = kind == IpProtocol::DESTINATION_OPTIONS;
        let stays = [IpProtocol::HOP_BY_HOP, IpProtocol::IPV6_ROUTING, IpProtocol::IPV6_FRAGMENT];
        if !is_option && !stays.contains(&kind) {
            break;
        }
        let len = match kind {
            IpProtocol::IPV6_FRAGMENT => 8,
            _ => (usize::from(*ip.get(at + 1)?) + 1) * 8,
        };
        (protocol_at, at) = (at, at + len);
        if !is_option {
            found = (at, protocol_at);
        }
    }
    Some((found.0, found.1, *ip.get(found.1)?))
}

/// The longest inner packet in bytes with which a tunnel's packets have at most `mtu` bytes.
pub fn inner_max(own: &Association, mtu: usize) -> usize {
    let outer = if own.family() == 4 { 20 } else { 40 };
    let udp = if own.parameters().udp.is_some() { UDP_LEN } else { 0 };
    let front = outer + udp + esp::front_len(own.suite());
    esp::payload_max(own.suite(), mtu.saturating_sub(front))
}

/// The longest packet in bytes of transport mode that has at most `mtu` bytes when it is sealed: `plan` is one with its headers.
pub fn packet_max(own: &Association, plan: &Plan, mtu: usize) -> usize {
    let (kept, front) = (plan.kept as usize, plan.front as usize);
    match esp::payload_max(own.suite(), mtu.saturating_sub(kept + front)) {
        0 => 0,
        payload => kept + payload,
    }
}

impl Plan {
    /// Bytes of the packet that comes out.
    #[inline]
    pub fn len(&self) -> usize {
        (self.kept + self.front + self.payload + self.back) as usize // each is below 2^18
    }

    /// The same of a packet of tunnel mode that may leave in fragments: over IPv4 it has no DF, unless the association sets it; over
    /// IPv6 it has a fragment header of the whole, by which [`packet::fragment::Fragmenter6`] cuts it (RFC 2473 §7).
    ///
    /// # Errors
    /// [`Refusal::TooLong`].
    pub fn divided(mut self) -> Result<Self, Refusal> {
        if self.family == 6 && !self.may_divide {
            self.front += FRAGMENT_LEN as u32;
        }
        self.may_divide = true;
        self.bounded()
    }

    fn bounded(self) -> Result<Self, Refusal> {
        // IPv6 counts what is behind its header.
        let most = if self.family == 4 { 65_535 } else { 65_575 };
        if self.len() > most { Err(Refusal::TooLong) } else { Ok(self) }
    }

    /// Bytes of the outer headers of a tunnel in front of UDP or ESP.
    #[inline]
    fn outer_len(&self) -> usize {
        match (self.family, self.may_divide) {
            (4, _) => 20,
            (_, false) => 40,
            (_, true) => 40 + FRAGMENT_LEN,
        }
    }

    /// Never true.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where the payload is, once there is room.
    #[inline]
    pub fn payload_range(&self) -> Range<usize> {
        let start = (self.kept + self.front) as usize;
        start..start + self.payload as usize
    }

    /// Fills the headers of a packet that has room: exactly [`Plan::len`] bytes. `number` is its sequence number. A TTL in
    /// a tunnel is taken down, as routers do, if the packet is not the gateway's own; it must have more than 1 left.
    #[inline]
    pub fn write_headers(&self, own: &Association, packet: &mut [u8], number: u64) {
        let parameters = own.parameters();
        let (peer, port) = own.peer();
        let kept = self.kept as usize;
        let behind = packet.len() - kept;
        let protocol = if parameters.udp.is_some() { IpProtocol::UDP } else { IpProtocol::ESP };
        let udp_at = match parameters.mode {
            Mode::Tunnel => {
                let outer = self.outer_len();
                let (header, inner) = packet.split_at_mut(self.front as usize);
                let next = (protocol, number, self.may_divide);
                write_outer(own, peer, next, header, inner, behind - outer);
                if !self.is_own {
                    lower_ttl(inner);
                }
                outer
            }
            Mode::Transport => {
                packet[self.protocol_at as usize] = protocol.0;
                if self.family == 4 {
                    let len = (packet.len() as u16).to_be_bytes(); // bounded by `plan`
                    packet[2..4].copy_from_slice(&len);
                    fill_checksum(packet);
                } else {
                    let len = (packet.len() - 40) as u16; // likewise
                    packet[4..6].copy_from_slice(&len.to_be_bytes());
                }
                kept
            }
        };
        if let (Some(udp), Some(port)) = (parameters.udp, port) {
            let len = (packet.len() - udp_at) as u16;
            let fields = [udp.source, port, len, 0].map(u16::to_be_bytes);
            packet[udp_at..udp_at + UDP_LEN].copy_from_slice(fields.as_flattened());
        }
    }
}

/// Takes one from the TTL of a packet.
#[inline]
fn lower_ttl(packet: &mut [u8]) {
    match packet.first().map(|byte| byte >> 4) {
        Some(4) if packet.len() >= 12 => ipv4_decrement_ttl(packet),
        Some(4) | None => {}
        _ => decrement_hop_limit(packet),
    }
}

/// Writes an outer header to the front of `header`.
#[inline]
fn write_outer(
    own: &Association,
    peer: IpAddr,
    (protocol, number, may_divide): (IpProtocol, u64, bool),
    header: &mut [u8],
    inner: &[u8],
    payload_len: usize,
) {
    let parameters = own.parameters();
    let (class, inner_df) = match inner {
        [first, _, _, _, _, _, bits, _, ..] if *first >> 4 == 4 => (inner[1], *bits & 0x40 != 0),
        [_, _, ..] => {
            // IPv6 is never fragmented on its way.
            ((u16::from_be_bytes([inner[0], inner[1]]) >> 4) as u8, true)
        }
        _ => return,
    };
    let dscp = match parameters.dscp {
        Dscp::Copy => class >> 2,
        Dscp::Set(own) => own & 0x3f,
    };
    // RFC 6040 §4.1: normal mode copies, compatibility mode marks nothing.
    let ecn = if parameters.ecn { class & 3 } else { 0 };
    let traffic_class = dscp << 2 | ecn;
    let ttl = parameters.hop_limit;
    let dont_fragment = match parameters.dont_fragment {
        Dont::Copy => inner_df && !may_divide,
        Dont::Set => true,
        Dont::Clear => false,
    };
    match (parameters.source, peer) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let outer = Ipv4Header {
                traffic_class,
                identification: own.identification(number, !dont_fragment),
                dont_fragment,
                ttl,
                ..Ipv4Header::new(src, dst, protocol)
            };
            emit_v4(&outer, payload_len, header);
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let outer =
                Ipv6Header { traffic_class, hop_limit: ttl, ..Ipv6Header::new(src, dst, protocol) };
            if !may_divide {
                let _ = outer.emit(payload_len, header);
                return;
            }
            let outer = Ipv6Header { next_header: IpProtocol::IPV6_FRAGMENT, ..outer };
            let _ = outer.emit(FRAGMENT_LEN + payload_len, header);
            if let Some(fragment) = header.get_mut(40..40 + FRAGMENT_LEN) {
                fragment[..4].copy_from_slice(&[protocol.0, 0, 0, 0]);
                fragment[4..].copy_from_slice(&own.identification_v6(number).to_be_bytes());
            }
        }
        _ => {} // no association has two families
    }
}

/// What [`Ipv4Header::emit`] does of a header without options and fragments, in five words that nothing reads back: each packet of
/// a tunnel over IPv4 has one. Nothing where `out` has no room.
#[inline]
fn emit_v4(outer: &Ipv4Header<'_>, payload_len: usize, out: &mut [u8]) {
    let Some(out) = out.first_chunk_mut::<20>() else { return };
    let total = (payload_len + 20) as u16; // bounded by `plan`
    let first = 0x4500_0000 | u32::from(outer.traffic_class) << 16 | u32::from(total);
    let fragment = u32::from(outer.dont_fragment) << 14;
    let second = u32::from(outer.identification) << 16 | fragment;
    let third = u32::from(outer.ttl) << 24 | u32::from(outer.protocol.0) << 16;
    let (src, dst) = (outer.src.to_bits(), outer.dst.to_bits());
    // The sum of the halves of all words, carries added (RFC 1071). Words stay in registers: an array of them would be read back.
    let wide = |word: u32| u64::from(word);
    let sum = wide(first) + wide(second) + wide(third) + wide(src) + wide(dst);
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let third = third | u32::from(!(sum as u16));
    let pair = |high: u32, low: u32| wide(high) << 32 | wide(low);
    let (head, last) = out.split_at_mut(16);
    if let ([a, b], Some(last)) = (head.as_chunks_mut::<8>().0, last.first_chunk_mut::<4>()) {
        *a = pair(first, second).to_be_bytes();
        *b = pair(third, src).to_be_bytes();
        *last = dst.to_be_bytes();
    }
}

/// Does what is left when the packet is sealed: UDP over IPv6 has a checksum (RFC 8200 §8.1); over IPv4 there is none (RFC
/// 3948 §2.1).
#[inline]
pub fn finish(own: &Association, plan: &Plan, packet: &mut [u8]) {
    if own.parameters().udp.is_none() || plan.family == 4 {
        return;
    }
    let is_tunnel = own.parameters().mode == Mode::Tunnel;
    let at = if is_tunnel { plan.outer_len() } else { plan.kept as usize };
    finish_udp(packet, at);
}

/// The same of a packet of IPv6 whose UDP header is `at`, once its checksum field is 0.
pub fn finish_udp(packet: &mut [u8], at: usize) {
    let Some((header, udp)) = packet.split_at_mut_checked(at) else { return };
    // Those of the header: the peer may have moved since.
    let address = |at: usize| header.get(at..).and_then(|rest| rest.first_chunk::<16>());
    let (Some(src), Some(dst)) = (address(8), address(24)) else { return };
    let [src, dst] = [*src, *dst].map(Ipv6Addr::from);
    let Ok(len) = u32::try_from(udp.len()) else { return };
    let sum = pseudo_header_v6(src, dst, IpProtocol::UDP, len) + partial_sum(udp);
    let checksum = match packet::checksum::finish(sum) {
        0 => 0xffff, // 0 says that there is none
        other => other,
    };
    if let Some(place) = udp.get_mut(6..8) {
        place.copy_from_slice(&checksum.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The header in words beside the general one, over fields and addresses of all bits.
    #[test]
    fn the_outer_header_in_words_is_the_general_one() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            state >> 20
        };
        for at in 0..20_000 {
            let addresses = match at % 4 {
                0 => [0, 0],
                1 => [u32::MAX, u32::MAX],
                _ => [next() as u32, next() as u32],
            };
            let [src, dst] = addresses.map(std::net::Ipv4Addr::from_bits);
            let header = Ipv4Header {
                traffic_class: next() as u8,
                identification: next() as u16,
                dont_fragment: next() & 1 == 1,
                ttl: next() as u8,
                ..Ipv4Header::new(src, dst, IpProtocol(next() as u8))
            };
            let len = next() as usize % (65_536 - 20);
            let (mut own, mut general) = ([0xa5; 24], [0xa5; 24]);
            emit_v4(&header, len, &mut own);
            assert_eq!(header.emit(len, &mut general), Some(20));
            assert_eq!(own, general, "{header:?}, {len} bytes");
        }
        emit_v4(&Ipv4Header::new([1; 4].into(), [2; 4].into(), IpProtocol::ESP), 9, &mut [0; 19]);
    }
}
