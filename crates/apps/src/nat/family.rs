//! Packets of the other family: the IP header is replaced in place.

use chunk::{Packet, Pool};
use nat::families::Turn;
use nat::nat64::{self, Head};
use nat::rules::Rules;
use nat::tuple::Tuple;
use packet::{Decoded, EtherType};

/// Bytes of a link header, an IPv6 header and a fragment header.
const HEADERS: usize = LINK_MAX + 48;

/// Bytes of a link header with two tags.
const LINK_MAX: usize = 22;

/// Turns a packet with the record `d` into one of the other family with the ends `to`; `None`, and it must not go on,
/// where the other family does not have what it is. Otherwise its new header. `identification`: of an IPv4 packet that may be fragmented.
/// `was_fragmented`: it came in fragments.
pub(super) fn turn(
    packet: &mut Packet,
    d: &Decoded,
    to: &Tuple,
    identification: u16,
    was_fragmented: bool,
) -> Option<Head> {
    let (l3, l4) = (usize::from(d.l3_offset), usize::from(d.l4_offset));
    let sum = match to.family {
        6 => {
            let l4 = packet.data().get(l4..).unwrap_or_default();
            nat64::datagram_sum(d, l4, packet.segments().skip(1))
        }
        _ => None,
    };
    let ip = packet.data_mut().get_mut(l3..).unwrap_or_default();
    let head = match to.family {
        4 => nat64::to_v4(d, ip, to, identification, was_fragmented),
        _ => nat64::to_v6(d, ip, to, sum),
    };
    let head = head.filter(|_| (14..=22).contains(&l3))?;
    let mut bytes = [0; HEADERS];
    let len = l3 + head.bytes().len();
    bytes[..l3].copy_from_slice(&packet.data()[..l3]);
    bytes[l3 - 2..l3].copy_from_slice(&ethertype(to.family).0.to_be_bytes());
    bytes[l3..len].copy_from_slice(head.bytes());
    replace_front(packet, l4, &bytes[..len]).then_some(head)
}

/// Turns a plain packet whose IP header begins with byte `l3` into what it is known to become; otherwise as [`turn`]. `false`:
/// it must not go on.
#[inline(always)]
pub(super) fn turn_plain(packet: &mut Packet, l3: usize, turn: &Turn, identification: u16) -> bool {
    // A link header with two tags, or one without and the bytes behind it, which are written again.
    let Some(mut link) = packet.data().first_chunk::<LINK_MAX>().copied() else { return false };
    if !(14..=LINK_MAX).contains(&l3) {
        return false;
    }
    let ip = packet.data_mut().get_mut(l3..).unwrap_or_default();
    if turn.is_to_v4() {
        link[l3 - 2..l3].copy_from_slice(&EtherType::IPV4.0.to_be_bytes());
        let Some(head) = turn.to_v4(ip, identification) else { return false };
        packet.pull_front(nat64::GROWTH) && write_front(packet, &link, l3, &head)
    } else {
        link[l3 - 2..l3].copy_from_slice(&EtherType::IPV6.0.to_be_bytes());
        let Some(head) = turn.to_v6(ip) else { return false };
        packet.push_front(nat64::GROWTH) && write_front(packet, &link, l3, &head)
    }
}

#[inline(always)]
fn write_front<const N: usize>(
    packet: &mut Packet,
    link: &[u8; LINK_MAX],
    l3: usize,
    head: &[u8; N],
) -> bool {
    let data = packet.data_mut();
    let Some(front) = data.first_chunk_mut::<LINK_MAX>() else { return false };
    *front = *link;
    let Some(place) = data.get_mut(l3..l3 + N) else { return false };
    place.copy_from_slice(head);
    true
}

/// Replaces a packet by an IP packet of the other family behind its link header of `l3` bytes. `false`: there is no cell.
fn replace(packet: &mut Packet, l3: usize, ip: &[u8], family: u8, pool: &mut Pool) -> bool {
    let mut link = [0; 22];
    let Some(own) = packet.data().get(..l3).filter(|own| (14..=22).contains(&own.len())) else {
        return false;
    };
    link[..l3].copy_from_slice(own);
    link[l3 - 2..l3].copy_from_slice(&ethertype(family).0.to_be_bytes());
    let Some(mut new) = Packet::copy_of(pool, &[&link[..l3], ip]) else { return false };
    (new.port, new.mark, new.time_ns) = (packet.port, packet.mark, packet.time_ns);
    std::mem::replace(packet, new).free(pool);
    true
}

/// Translates an ICMP error with the record `d` into the other family, with the packet that it quotes, whose ends were `sent`
/// at first. `false`: the other family does not have it, or there is no cell. `made` is room for the new packet.
pub(super) fn turn_error(
    packet: &mut Packet,
    d: &Decoded,
    sent: &Tuple,
    rules: &Rules,
    made: &mut [u8],
    pool: &mut Pool,
) -> bool {
    let l3 = usize::from(d.l3_offset);
    // Whoever sent it has no address in the other family but by the prefix, or is in front of the translator.
    let from = match sent.family {
        6 => rules.embed(sent.dst.0, d.src_v4()),
        _ => sent.dst.0,
    };
    let ip = packet.data().get(l3..).unwrap_or_default();
    let len = nat64::error(d, ip, packet.segments().skip(1), sent, from, made);
    len.is_some_and(|len| replace(packet, l3, &made[..len], sent.family, pool))
}

const fn ethertype(family: u8) -> EtherType {
    if family == 4 { EtherType::IPV4 } else { EtherType::IPV6 }
}

/// Replaces the first `old` bytes of a packet.
fn replace_front(packet: &mut Packet, old: usize, new: &[u8]) -> bool {
    let fits = match new.len().checked_sub(old) {
        Some(more) => packet.push_front(more),
        None => packet.pull_front(old - new.len()),
    };
    match packet.data_mut().get_mut(..new.len()).filter(|_| fits) {
        Some(front) => {
            front.copy_from_slice(new);
            true
        }
        None => false,
    }
}
