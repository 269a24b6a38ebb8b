//! NAT64: IPv4 addresses in IPv6 ones (RFC 6052), headers from one family to the other (RFC 7915).

use packet::checksum::{finish, internet_checksum, partial_sum};
use packet::ipv6::Ipv6View;
use packet::{Decoded, IpProtocol, Kind};

use crate::rules::Prefix;
use crate::tuple::Tuple;

mod extended;

use extended::Extended;

/// Lengths of prefixes that may hold addresses (RFC 6052 §2.2).
pub const PREFIX_LENGTHS: [u8; 6] = [32, 40, 48, 56, 64, 96];

/// 64:ff9b::/96 (RFC 6052 §2.1).
pub const WELL_KNOWN: Prefix = Prefix { family: 6, address: [0x0064_ff9b_0000_0000, 0], len: 96 };

/// No address of a host that is reached by a route: this network, loopback, link-local, multicast, and the reserved ones with
/// the limited broadcast (RFC 6890).
const NO_HOSTS: [(u32, u8); 4] = [(0, 8), (0x7f00_0000, 8), (0xa9fe_0000, 16), (0xe000_0000, 3)];

/// Not global: private, shared, assigned by IETF protocols, for benchmarks (RFC 6890). Those for documentation are left out.
const NOT_GLOBAL: [(u32, u8); 6] = [
    (0x0a00_0000, 8),
    (0x6440_0000, 10),
    (0xac10_0000, 12),
    (0xc000_0000, 24),
    (0xc0a8_0000, 16),
    (0xc612_0000, 15),
];

/// Whether packets to the IPv4 address `to`, which is in the IPv6 `address`, may be translated: it is one of a host, and a
/// global one if it is in the well-known prefix (RFC 6052 §3.1).
pub fn is_reachable(address: [u64; 2], to: u32) -> bool {
    let is_in = |own: &(u32, u8)| (to ^ own.0) >> (32 - own.1) == 0;
    let must_be_global = WELL_KNOWN.has(6, address);
    !(NO_HOSTS.iter().any(is_in) || must_be_global && NOT_GLOBAL.iter().any(is_in))
}

/// The places of the bytes of the IPv4 address behind a prefix: byte 8 is 0 (RFC 6052 §2.2).
fn places(len: u8) -> [usize; 4] {
    let first = usize::from(len / 8);
    let mut at = first;
    [(); 4].map(|()| {
        if at == 8 && first < 12 {
            at += 1;
        }
        at += 1;
        at - 1
    })
}

fn bytes(address: [u64; 2]) -> [u8; 16] {
    (u128::from(address[0]) << 64 | u128::from(address[1])).to_be_bytes()
}

/// The IPv4 address in an address of `prefix`; `None` for one of another prefix, or whose byte 8 is not 0.
pub fn extract(prefix: &Prefix, address: [u64; 2]) -> Option<u32> {
    if !prefix.has(6, address) {
        return None;
    }
    let all = bytes(address);
    if all[8] != 0 {
        return None;
    }
    Some(u32::from_be_bytes(places(prefix.len).map(|at| all[at])))
}

/// The address of `prefix` that holds an IPv4 address.
pub fn embed(prefix: &Prefix, address: u32) -> [u64; 2] {
    let mut all = bytes(prefix.address);
    for (at, byte) in places(prefix.len).into_iter().zip(address.to_be_bytes()) {
        all[at] = byte;
    }
    let all = u128::from_be_bytes(all);
    [(all >> 64) as u64, all as u64]
}

/// A new IP header for a packet whose upper layer stays where it is.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    bytes: [u8; V6_LEN + FRAGMENT_LEN],
    len: usize,
}

impl Head {
    /// The header.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Whether the packet may leave in fragments: it is IPv6, with a fragment header of the whole.
    pub fn may_fragment(&self) -> bool {
        self.len == V6_LEN + FRAGMENT_LEN
    }

    fn v4(of: &Fields, l4_len: usize, to: &Tuple) -> Option<Head> {
        let mut bytes = [0; V6_LEN + FRAGMENT_LEN];
        let header = &mut bytes[..V4_LEN];
        (header[0], header[1]) = (0x45, of.traffic_class);
        let len = u16::try_from(V4_LEN + l4_len).ok()?;
        header[2..4].copy_from_slice(&len.to_be_bytes());
        header[4..6].copy_from_slice(&of.identification.to_be_bytes());
        header[6] = u8::from(of.dont_fragment) << 6 | u8::from(of.more_fragments) << 5;
        (header[8], header[9]) = (of.ttl, to.protocol);
        header[12..16].copy_from_slice(&(to.src.0[1] as u32).to_be_bytes());
        header[16..20].copy_from_slice(&(to.dst.0[1] as u32).to_be_bytes());
        let checksum = internet_checksum(header);
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
        Some(Head { bytes, len: V4_LEN })
    }

    /// `in_fragments`: with a fragment header of the whole, by which it may be cut.
    fn v6(of: &Fields, l4_len: usize, to: &Tuple, in_fragments: bool) -> Option<Head> {
        let mut bytes = [0; V6_LEN + FRAGMENT_LEN];
        (bytes[0], bytes[1]) = (0x60 | of.traffic_class >> 4, of.traffic_class << 4);
        let len = l4_len + if in_fragments { FRAGMENT_LEN } else { 0 };
        bytes[4..6].copy_from_slice(&u16::try_from(len).ok()?.to_be_bytes());
        (bytes[6], bytes[7]) = (to.protocol, of.ttl);
        let words = [to.src.0[0], to.src.0[1], to.dst.0[0], to.dst.0[1]];
        for (place, word) in bytes[8..V6_LEN].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        if !in_fragments {
            return Some(Head { bytes, len: V6_LEN });
        }
        bytes[6] = FRAGMENT;
        bytes[V6_LEN] = to.protocol;
        bytes[V6_LEN + 6..].copy_from_slice(&of.identification.to_be_bytes());
        Some(Head { bytes, len: V6_LEN + FRAGMENT_LEN })
    }
}

/// Bytes of a header without options.
pub(crate) const V4_LEN: usize = 20;
pub(crate) const V6_LEN: usize = 40;

/// Bytes that a packet grows by from IPv4 to IPv6.
pub const GROWTH: usize = V6_LEN - V4_LEN;

/// The fragment header (RFC 8200 §4.5): its number and bytes.
pub(crate) const FRAGMENT: u8 = 44;
pub(crate) const FRAGMENT_LEN: usize = 8;

/// Longest IPv6 packet that leaves whole if its IPv4 packet may be fragmented (RFC 7915 §4).
pub(crate) const WHOLE_MAX: usize = 1280;

/// What both families have in their headers.
struct Fields {
    traffic_class: u8,
    ttl: u8,
    identification: u16,
    dont_fragment: bool,
    /// Of a first fragment that an ICMP error quotes; IPv4 alone.
    more_fragments: bool,
}

/// Longest IPv4 packet that may be fragmented behind the translator (RFC 7915 §5.1).
const MAY_FRAGMENT: usize = 1260;

/// Whether a packet with such an upper layer may be fragmented behind the translator for its length.
#[inline(always)]
pub(crate) const fn may_fragment_v4(l4_len: usize) -> bool {
    V4_LEN + l4_len <= MAY_FRAGMENT
}

/// Translates an IPv6 packet: writes the upper layer, which begins with byte `l4` of `ip`, and returns the IPv4 header
/// that replaces what is before it (RFC 7915 §5.1). `identification` is that of a packet that may be fragmented; it may be
/// if it is short, or came in fragments (`was_fragmented`). `None` for what IPv4 does not have.
pub fn to_v4(
    d: &Decoded,
    ip: &mut [u8],
    to: &Tuple,
    identification: u16,
    was_fragmented: bool,
) -> Option<Head> {
    let l4 = usize::from(d.l4_offset).checked_sub(d.l3_offset.into())?;
    let len = (d.ip_total_len as usize).checked_sub(l4)?;
    if d.has(Decoded::FRAGMENT) || l4 > V6_LEN && !is_ignored(ip) {
        return None;
    }
    let old = Tuple::of(d, ip.get(l4..)?)?;
    let identification = fragment_header(ip).unwrap_or(identification);
    upper_layer(ip.get_mut(l4..)?, len, &old, to, None)?;
    let fields = Fields {
        traffic_class: d.traffic_class,
        ttl: d.ttl,
        identification,
        dont_fragment: !may_fragment_v4(len) && !was_fragmented && !d.has(Decoded::FRAGMENT_HEADER),
        more_fragments: false,
    };
    Head::v4(&fields, len, to)
}

/// Whether extension headers may be left out: a routing header if it has no addresses left (RFC 7915 §5.1), an authentication
/// header never, as what it authenticates changes.
fn is_ignored(ip: &[u8]) -> bool {
    let is_kept = |own: packet::ipv6::ExtensionHeader<'_>| {
        own.has_segments_left() || own.kind == IpProtocol::AH
    };
    Ipv6View::new_quoted(ip).is_some_and(|packet| !packet.extensions().any(is_kept))
}

/// The identification in the fragment header right behind an IPv6 header, its low half as IPv4 has it (RFC 7915 §5.1.1).
fn fragment_header(ip: &[u8]) -> Option<u16> {
    let header = ip.first_chunk::<{ V6_LEN + FRAGMENT_LEN }>()?;
    let is_there = header[0] >> 4 == 6 && header[6] == FRAGMENT;
    is_there.then(|| u16::from_be_bytes([header[46], header[47]]))
}

/// The same of an IPv4 packet, which becomes an IPv6 packet (RFC 7915 §4.1). One without DF that would be longer than 1,280
/// bytes gets a fragment header, by which it is to be cut. UDP without a checksum needs `sum`, its [`datagram_sum`]
/// (RFC 7915 §4.5).
pub fn to_v6(d: &Decoded, ip: &mut [u8], to: &Tuple, sum: Option<u32>) -> Option<Head> {
    let l4 = usize::from(d.l4_offset).checked_sub(d.l3_offset.into())?;
    let len = (d.ip_total_len as usize).checked_sub(l4)?;
    if d.has(Decoded::FRAGMENT) {
        return None;
    }
    let old = Tuple::of(d, ip.get(l4..)?)?;
    upper_layer(ip.get_mut(l4..)?, len, &old, to, sum)?;
    let identification = ip.get(4..6).map_or(0, |own| u16::from_be_bytes([own[0], own[1]]));
    let fields = Fields {
        traffic_class: d.traffic_class,
        ttl: d.ttl,
        identification,
        dont_fragment: false,
        more_fragments: false,
    };
    let in_fragments = !d.has(Decoded::DONT_FRAGMENT) && V6_LEN + len > WHOLE_MAX;
    Head::v6(&fields, len, to, in_fragments)
}

/// One's complement sum of the first `len` bytes of `pieces`; `None` if they have fewer.
fn sum_of<'a>(pieces: impl Iterator<Item = &'a [u8]>, len: usize) -> Option<u32> {
    let (mut sum, mut left) = (0, len);
    for piece in pieces {
        let piece = &piece[..piece.len().min(left)];
        let own = partial_sum(piece) as u16;
        // Its first byte is the low half of a word if an odd number of bytes is before it.
        let is_odd = (len - left) % 2 == 1;
        sum += u32::from(if is_odd { own.swap_bytes() } else { own });
        left -= piece.len();
    }
    (left == 0).then_some(sum)
}

/// The sum that [`to_v6`] needs: that of a UDP datagram without a checksum, which begins with `l4` and goes on in `rest`. What
/// follows the datagram in its packet is not summed. `None` for other packets, and where a part is missing.
pub fn datagram_sum<'a>(
    d: &Decoded,
    l4: &'a [u8],
    rest: impl Iterator<Item = &'a [u8]>,
) -> Option<u32> {
    let head = l4.first_chunk::<8>().filter(|_| d.protocol == IpProtocol::UDP)?;
    let len = usize::from(u16::from_be_bytes([head[4], head[5]]));
    let header = usize::from(d.l4_offset.checked_sub(d.l3_offset)?);
    let in_packet = (d.ip_total_len as usize).checked_sub(header)?;
    let is_one = head[6..] == [0, 0] && (8..=in_packet).contains(&len);
    is_one.then(|| sum_of(std::iter::once(l4).chain(rest), len))?
}

/// The sum of the pseudo header that the checksum of a protocol includes; 0 for ICMP.
fn pseudo_header(of: &Tuple, len: usize) -> u32 {
    if of.protocol == IpProtocol::ICMP.0 {
        return 0;
    }
    let words = [of.src.0[0], of.src.0[1], of.dst.0[0], of.dst.0[1]];
    let addresses: u32 = words.iter().map(|word| partial_sum(&word.to_be_bytes())).sum();
    addresses + u32::from(of.protocol) + (len as u32 & 0xffff) + (len as u32 >> 16)
}

/// Writes ports or identifier, type and checksum of an upper layer of `len` bytes. `None` for what the other family does
/// not have. `sum`: that of a UDP datagram whose checksum of 0 is computed.
fn upper_layer(l4: &mut [u8], len: usize, old: &Tuple, to: &Tuple, sum: Option<u32>) -> Option<()> {
    let at = match IpProtocol(old.protocol) {
        IpProtocol::TCP => 16,
        IpProtocol::UDP => 6,
        IpProtocol::ICMP | IpProtocol::ICMPV6 => 2,
        _ => return None,
    };
    let end = l4.len().min(at + 2) & !1;
    // The checksum counts neither before nor after.
    let fixed_sum = |l4: &[u8]| {
        let other = partial_sum(&l4[..end.min(at)]);
        other + l4.get(at + 2..8.max(at + 2)).map_or(0, partial_sum)
    };
    let before = fixed_sum(l4) + pseudo_header(old, len);
    if matches!(IpProtocol(old.protocol), IpProtocol::ICMP | IpProtocol::ICMPV6) {
        let kind = match (IpProtocol(old.protocol), *l4.first()?) {
            (IpProtocol::ICMP, 8) => 128,
            (IpProtocol::ICMP, 0) => 129,
            (IpProtocol::ICMPV6, 128) => 8,
            (IpProtocol::ICMPV6, 129) => 0,
            _ => return None,
        };
        l4[0] = kind;
        l4.get_mut(4..6)?.copy_from_slice(&to.src.1.to_be_bytes());
    } else {
        l4.get_mut(..2)?.copy_from_slice(&to.src.1.to_be_bytes());
        l4.get_mut(2..4)?.copy_from_slice(&to.dst.1.to_be_bytes());
    }
    let after = fixed_sum(l4) + pseudo_header(to, len);
    let Some(field) = l4.get(at..at + 2) else { return Some(()) };
    let checksum = u16::from_be_bytes([field[0], field[1]]);
    let is_udp = old.protocol == IpProtocol::UDP.0;
    let checksum = if is_udp && checksum == 0 {
        if to.family == 4 {
            return Some(());
        }
        // A zero checksum is not for IPv6.
        let datagram_len = u16::from_be_bytes([*l4.get(4)?, *l4.get(5)?]);
        finish(sum? + pseudo_header(old, datagram_len.into()))
    } else {
        checksum
    };
    let fold = |sum: u32| (sum & 0xffff) + (sum >> 16);
    let before = fold(fold(before));
    let new = finish(u32::from(!checksum) + (!before & 0xffff) + fold(after));
    let new = if is_udp && new == 0 { 0xffff } else { new };
    l4[at..at + 2].copy_from_slice(&new.to_be_bytes());
    Some(())
}

/// Type, code and the four bytes behind the checksum of an ICMP error in ICMPv6 (RFC 7915 §4.2); `None`: it is dropped.
pub fn icmp_to_v6(kind: u8, code: u8, parameter: u32) -> Option<(u8, u8, u32)> {
    Some(match (kind, code) {
        (3, 0 | 1 | 5 | 6 | 7 | 8 | 11 | 12) => (1, 0, 0),
        (3, 2) => (4, 1, 6),
        (3, 3) => (1, 4, 0),
        // An MTU of 0 comes of routers before RFC 1191.
        (3, 4) => (2, 0, ((parameter & 0xffff) + 20).max(1280)),
        (3, 9 | 10 | 13 | 15) => (1, 1, 0),
        (11, _) => (3, code, 0),
        (12, 0 | 2) => {
            let pointer = match parameter >> 24 {
                0 => 0,
                1 => 1,
                2 | 3 => 4,
                8 => 7,
                9 => 6,
                12..=15 => 8,
                16..=19 => 24,
                _ => return None,
            };
            (4, 0, pointer)
        }
        _ => return None,
    })
}

/// The same of ICMPv6 in ICMP (RFC 7915 §5.2).
pub fn icmp_to_v4(kind: u8, code: u8, parameter: u32) -> Option<(u8, u8, u32)> {
    Some(match (kind, code) {
        (1, 0 | 2 | 3) => (3, 1, 0),
        (1, 1) => (3, 10, 0),
        (1, 4) => (3, 3, 0),
        (2, _) => (3, 4, parameter.clamp(20 + 68, 0xffff) - 20),
        (3, _) => (11, code, 0),
        (4, 0) => {
            let pointer: u32 = match parameter {
                0 => 0,
                1 => 1,
                4 | 5 => 2,
                6 => 9,
                7 => 8,
                8..=23 => 12,
                24..=39 => 16,
                _ => return None,
            };
            (12, 0, pointer << 24)
        }
        (4, 1) => (3, 2, 0),
        _ => return None,
    })
}

/// The likely MTU of a path, by the length of a packet that did not fit, where a router before RFC 1191 does not say it: the
/// greatest plateau below (RFC 1191 §7.1, RFC 7915 §4.2).
fn plateau(len: usize) -> u32 {
    const PLATEAUS: [u32; 11] =
        [65_535, 32_000, 17_914, 8166, 4352, 2002, 1492, 1006, 508, 296, 68];
    PLATEAUS.into_iter().find(|plateau| (*plateau as usize) < len).unwrap_or(68)
}

/// Longest error that is made, bytes: 576 of IPv4 (RFC 1812 §4.3.2.3), 1280 of IPv6.
const fn error_len_max(family: u8) -> usize {
    if family == 4 { 576 } else { 1280 }
}

/// Translates an ICMP error, the IP packet `ip` whose ICMP header begins with byte `l4`, into the other family, with the
/// packet that it quotes: that one gets the ends `sent`, the error the addresses `from` and that of the sender. Extensions
/// (RFC 4884) are copied, and a wrong checksum stays as wrong as it is. `rest` is what follows `ip` in the packet. Writes the error
/// to `out` and returns its length. `None` for what the other family does not have.
pub fn error<'a>(
    d: &Decoded,
    ip: &'a [u8],
    rest: impl Iterator<Item = &'a [u8]>,
    sent: &Tuple,
    from: [u64; 2],
    out: &mut [u8],
) -> Option<usize> {
    let l4 = usize::from(d.l4_offset).checked_sub(d.l3_offset.into())?;
    let total_len = d.ip_total_len as usize;
    let icmp = ip.get(l4..total_len.min(ip.len()))?;
    let icmp_len = total_len.checked_sub(l4)?;
    // 0 if the checksum is right.
    let before = {
        let (src, dst, protocol) = ((d.src, 0), (d.dst, 0), d.protocol.0);
        let own = Tuple { src, dst, protocol, ..Tuple::default() };
        let sum = sum_of(std::iter::once(icmp).chain(rest), icmp_len)?;
        finish(sum + pseudo_header(&own, icmp_len))
    };
    let came_as = if d.kind == Kind::Ipv4 { 4 } else { 6 };
    let extended = Extended::of(came_as, icmp)?;
    let quoted = extended.quoted;
    let (old, quoted_l4) = Tuple::quoted(quoted)?;
    let parameter = u32::from_be_bytes(icmp.get(4..8)?.try_into().ok()?);
    let field = |at: usize| usize::from(u16::from_be_bytes([quoted[at], quoted[at + 1]]));
    // Extension headers of the quoted packet: none, or a fragment header.
    let extensions = if old.family == 6 { quoted_l4 - V6_LEN } else { 0 };
    let (kind, code, parameter) = match sent.family {
        6 => {
            let is_silent = (icmp[0], icmp[1]) == (3, 4) && parameter & 0xffff == 0;
            let mtu = if is_silent { plateau(field(2)) } else { parameter };
            icmp_to_v6(icmp[0], icmp[1], mtu)?
        }
        _ => {
            // What the fragment header takes is not there in IPv4 (RFC 7915 §5.2).
            let is_mtu = icmp[0] == 2;
            let less = if is_mtu { extensions as u32 } else { 0 };
            icmp_to_v4(icmp[0], icmp[1], parameter.saturating_sub(less))?
        }
    };
    let (own_len, protocol) = match sent.family {
        6 => (V6_LEN, IpProtocol::ICMPV6.0),
        _ => (V4_LEN, IpProtocol::ICMP.0),
    };
    // The quoted packet: its header, and as much of the rest as there is room for.
    let fields = match old.family {
        4 => Fields {
            traffic_class: quoted[1],
            ttl: quoted[8],
            identification: 0,
            dont_fragment: false,
            more_fragments: false,
        },
        _ => Fields {
            traffic_class: quoted[0] << 4 | quoted[1] >> 4,
            ttl: quoted[7],
            identification: fragment_header(quoted).unwrap_or(0),
            dont_fragment: extensions == 0,
            more_fragments: extensions > 0 && quoted[V6_LEN + 3] & 1 != 0,
        },
    };
    let quoted_len = match old.family {
        4 => field(2).checked_sub(quoted_l4)?,
        _ => field(4).checked_sub(extensions)?,
    };
    let head = match sent.family {
        6 => Head::v6(&fields, quoted_len, sent, false)?,
        _ => Head::v4(&fields, quoted_len, sent)?,
    };
    let max = error_len_max(sent.family).min(out.len());
    let places = extended.room(sent.family, kind, max.checked_sub(own_len + 8)?);
    let room = places.quoted_max.checked_sub(head.len)?;
    let rest = quoted.get(quoted_l4..)?;
    let rest = &rest[..rest.len().min(room).min(quoted_len)];
    let end = head.len + rest.len();
    let padded = places.padded(end);
    let parameter = places.parameter(parameter, padded);
    let len = own_len + 8 + padded + places.extensions.len();
    let (src, dst, family) = ((from, 0), (sent.src.0, 0), sent.family);
    let to = Tuple { src, dst, protocol, family, ..Tuple::default() };
    let own_fields = Fields {
        traffic_class: d.traffic_class,
        ttl: d.ttl,
        identification: 0,
        dont_fragment: false,
        more_fragments: false,
    };
    let own = match sent.family {
        6 => Head::v6(&own_fields, len - own_len, &to, false)?,
        _ => Head::v4(&own_fields, len - own_len, &to)?,
    };
    let (header, message) = out.get_mut(..len)?.split_at_mut(own_len);
    header.copy_from_slice(own.bytes());
    message[..8].copy_from_slice(&[kind, code, 0, 0, 0, 0, 0, 0]);
    message[4..8].copy_from_slice(&parameter.to_be_bytes());
    message[8..8 + head.len].copy_from_slice(head.bytes());
    let (inner, extensions) = message[8 + head.len..].split_at_mut(padded - head.len);
    inner[..rest.len()].copy_from_slice(rest);
    inner[rest.len()..].fill(0);
    extensions.copy_from_slice(places.extensions);
    // What it quotes may have no checksum.
    let _ = upper_layer(&mut inner[..rest.len()], quoted_len, &old, sent, None);
    let own = partial_sum(message) + pseudo_header(&to, message.len());
    let checksum = finish(own + u32::from(before));
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    Some(len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    /// RFC 6052 §2.4, tables 2 and 3.
    #[test]
    fn addresses_of_the_rfc() {
        let cases = [
            ("2001:db8::", 32, "2001:db8:c000:221::"),
            ("2001:db8:100::", 40, "2001:db8:1c0:2:21::"),
            ("2001:db8:122::", 48, "2001:db8:122:c000:2:2100::"),
            ("2001:db8:122:300::", 56, "2001:db8:122:3c0:0:221::"),
            ("2001:db8:122:344::", 64, "2001:db8:122:344:c0:2:2100::"),
            ("2001:db8:122:344::", 96, "2001:db8:122:344::c000:221"),
            ("64:ff9b::", 96, "64:ff9b::c000:221"),
        ];
        let halves = |text: &str| {
            let all = text.parse::<Ipv6Addr>().unwrap().to_bits();
            [(all >> 64) as u64, all as u64]
        };
        let own = u32::from(Ipv4Addr::new(192, 0, 2, 33));
        for (prefix, len, whole) in cases {
            let prefix = Prefix { family: 6, address: halves(prefix), len };
            assert_eq!(embed(&prefix, own), halves(whole), "{whole}");
            assert_eq!(extract(&prefix, halves(whole)), Some(own), "{whole}");
        }
        let prefix = Prefix { family: 6, address: halves("64:ff9b::"), len: 96 };
        assert_eq!(extract(&prefix, halves("64:ff9c::c000:221")), None);
    }

    /// A frame with such an IP packet.
    fn decoded(ip: &[u8]) -> Decoded {
        let kind = if ip[0] >> 4 == 6 { [0x86, 0xdd] } else { [8, 0] };
        let frame = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2][..], &kind, ip].concat();
        packet::decode(&frame, frame.len())
    }

    /// RFC 7915 §5.1: a routing header is ignored if no segments are left.
    #[test]
    fn a_routing_header_that_is_used_up_is_ignored() {
        for (left, is_translated) in [(0, true), (1, false)] {
            let mut ip = vec![0x60, 0, 0, 0, 0, 8 + 24, 43, 64];
            ip.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]);
            ip.extend([0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0, 198, 51, 100, 9]);
            ip.extend([17, 2, 0, left, 0, 0, 0, 0]);
            ip.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
            ip.extend([0x9c, 0x40, 0, 53, 0, 8, 0x12, 0x34]);
            let d = decoded(&ip);
            assert!(d.has(Decoded::ROUTING_HEADER));
            let to = Tuple {
                src: ([0, 0xc000_0201], 5000),
                dst: ([0, 0xc633_6409], 53),
                protocol: 17,
                family: 4,
                ..Tuple::default()
            };
            assert_eq!(to_v4(&d, &mut ip, &to, 1, false).is_some(), is_translated, "{left}");
        }
    }

    /// An authentication header cannot be left out.
    #[test]
    fn authenticated_packets_are_not_translated() {
        let mut ip = vec![0x60, 0, 0, 0, 0, 8 + 12, 51, 64];
        ip.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]);
        ip.extend([0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0, 198, 51, 100, 9]);
        ip.extend([17, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1]);
        ip.extend([0x9c, 0x40, 0, 53, 0, 8, 0x12, 0x34]);
        let d = decoded(&ip);
        let to = Tuple {
            src: ([0, 0xc000_0201], 5000),
            dst: ([0, 0xc633_6409], 53),
            protocol: 17,
            family: 4,
            ..Tuple::default()
        };
        assert_eq!((d.protocol, d.l4_offset), (IpProtocol::UDP, 14 + 40 + 12));
        assert!(to_v4(&d, &mut ip, &to, 1, false).is_none());
    }

    /// RFC 7915 §4.5: a checksum of 0 is computed over the datagram, and not over what follows it in the packet.
    #[test]
    fn bytes_behind_a_datagram_are_not_summed() {
        let mut ip =
            vec![0x45, 0, 0, 20 + 12, 0, 1, 0x40, 0, 64, 17, 0, 0, 198, 51, 100, 9, 192, 0, 2, 1];
        ip.extend([0, 53, 0x9c, 0x40, 0, 10, 0, 0, b'h', b'i', 0xaa, 0xbb]);
        let sum = internet_checksum(&ip[..20]);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        let d = decoded(&ip);
        let to = Tuple {
            src: ([0x64_ff9b << 32, 0xc633_6409], 53),
            dst: ([0x2001_0db8 << 32, 7], 40_000),
            protocol: 17,
            family: 6,
            ..Tuple::default()
        };
        let sum = datagram_sum(&d, &ip[20..], std::iter::empty());
        assert!(to_v6(&d, &mut ip, &to, sum).is_some());
        assert_eq!(finish(partial_sum(&ip[20..30]) + pseudo_header(&to, 10)), 0);
    }
}
