//! What the plain twin does to bytes: options, extensions, fragments, headers, checksums.

use std::net::IpAddr;

use chunk::DropReason;
use lookup::fib::Interface;

use super::{Fate, Ip, Outcome, Refused};

/// A drop with one of these sets of frames that are made because of it.
pub(super) fn dropped(reason: DropReason, emitted: Vec<Vec<(u16, Vec<u8>)>>) -> Vec<Outcome> {
    let outcome = |emitted| Outcome { fate: Fate::Drop(reason), emitted };
    emitted.into_iter().map(outcome).collect()
}

pub(super) enum OptionFault {
    SourceRoute,
    Malformed(usize),
}

pub(super) fn options_fault(options: &[u8]) -> Option<OptionFault> {
    let mut at = 0;
    while at < options.len() && options[at] != 0 {
        if options[at] == 1 {
            at += 1;
            continue;
        }
        let len = options.get(at + 1).map_or(0, |&len| usize::from(len));
        if len < 2 || at + len > options.len() {
            return Some(OptionFault::Malformed(at));
        }
        if options[at] == 131 || options[at] == 137 {
            return Some(OptionFault::SourceRoute);
        }
        at += len;
    }
    None
}

type Chain = (u8, usize, Option<(usize, bool)>, bool);

/// Bytes of a frame that are looked at: those in its first cell.
pub(super) const FIRST_CELL: usize = chunk::CELL_BYTES - chunk::HEADROOM_BYTES;

/// Walks the extension headers, as far as `room` bytes: upper protocol, length of all headers, fragment, whether there is
/// a fragment header.
pub(super) fn extensions(packet: &[u8], available: usize) -> Refused<Chain> {
    let (mut kind, mut at, mut seen) = (packet[6], 40, Vec::new());
    let (mut fragment, mut fragment_header) = (None, false);
    while matches!(kind, 0 | 43 | 44 | 51 | 60) {
        if seen.len() == 8 {
            return Err(packet::reasons::IP6_EXTENSIONS_TOO_MANY);
        }
        let before = seen.iter().filter(|&&other| other == kind).count();
        let misplaced = kind == 0 && !seen.is_empty();
        if misplaced || before >= if kind == 60 { 2 } else { 1 } {
            return Err(packet::reasons::IP6_EXTENSION_LOOP);
        }
        if at + 8 > packet.len() {
            return Err(packet::reasons::IP6_EXTENSION_HEADERS);
        }
        if at + 8 > available {
            return Err(packet::reasons::IP6_EXTENSIONS_TOO_MANY);
        }
        let units = usize::from(packet[at + 1]);
        let len = match kind {
            44 => 8,
            51 => (units + 2) * 4,
            _ => (units + 1) * 8,
        };
        if at + len > packet.len() || (kind == 51 && len < 12) {
            return Err(packet::reasons::IP6_EXTENSION_HEADERS);
        }
        if kind == 44 {
            fragment_header = true;
            let field = be16(packet, at + 2);
            let (offset, more) = (usize::from(field & 0xfff8), field & 1 != 0);
            fragment = (offset > 0 || more).then_some((offset, more));
        }
        seen.push(kind);
        kind = packet[at];
        at += len;
        if fragment.is_some_and(|(offset, _)| offset > 0) {
            break;
        }
    }
    Ok((kind, at, fragment, fragment_header))
}

pub(super) fn has_fragment_header(ip: &Ip<'_>) -> bool {
    extensions(ip.bytes, usize::MAX).is_ok_and(|chain| chain.3)
}

pub(super) fn lower_ttl(ip: &Ip<'_>) -> Vec<u8> {
    let mut packet = ip.bytes.to_vec();
    if ip.v4 {
        packet[8] -= 1;
        fill_checksum(&mut packet, ip.header_len);
    } else {
        packet[7] -= 1;
    }
    packet
}

/// RFC 791 §3.2. `None` where no 8 bytes fit behind the header.
pub(super) fn fragments(packet: &[u8], header_len: usize, mtu: usize) -> Option<Vec<Vec<u8>>> {
    if mtu < header_len + 8 {
        return None;
    }
    let (mut copied, mut at) = (Vec::new(), 20);
    while at < header_len && packet[at] != 0 {
        let len = if packet[at] == 1 { 1 } else { usize::from(packet[at + 1]) };
        if packet[at] & 0x80 != 0 {
            copied.extend(&packet[at..at + len]);
        }
        at += len;
    }
    copied.resize(copied.len().next_multiple_of(4), 0);
    let later = [&packet[..20], &copied].concat();
    let (start, was_more) = (be16(packet, 6) & 0x1fff, be16(packet, 6) & 0x2000);
    let body = &packet[header_len..];
    let (mut pieces, mut done) = (Vec::new(), 0);
    while done < body.len() {
        let mut piece = if done == 0 { packet[..header_len].to_vec() } else { later.clone() };
        let (len, available) = (piece.len(), mtu - piece.len());
        let rest = body.len() - done;
        let take = if rest <= available { rest } else { available / 8 * 8 };
        let more = if take < rest { 0x2000 } else { was_more };
        piece[0] = 0x40 | (len / 4) as u8;
        piece[2..4].copy_from_slice(&((len + take) as u16).to_be_bytes());
        piece[6..8].copy_from_slice(&((start + (done / 8) as u16) | more).to_be_bytes());
        fill_checksum(&mut piece, len);
        piece.extend(&body[done..done + take]);
        pieces.push(piece);
        done += take;
    }
    Some(pieces)
}

pub(super) fn packet4(
    src: u128,
    dst: u128,
    tos: u8,
    id: u16,
    flags: u16,
    ttl: u8,
    payload: Vec<u8>,
) -> Vec<u8> {
    let mut packet = vec![0x45, tos];
    packet.extend((20 + payload.len() as u16).to_be_bytes());
    packet.extend(id.to_be_bytes());
    packet.extend(flags.to_be_bytes());
    packet.extend([ttl, 1, 0, 0]);
    packet.extend((src as u32).to_be_bytes());
    packet.extend((dst as u32).to_be_bytes());
    fill_checksum(&mut packet, 20);
    packet.extend(payload);
    packet
}

/// Fills in the ICMPv6 checksum too.
pub(super) fn packet6(
    src: u128,
    dst: u128,
    next: u8,
    hop_limit: u8,
    mut payload: Vec<u8>,
) -> Vec<u8> {
    payload[2..4].fill(0);
    let checksum = !sum6(src, dst, next, &payload);
    payload[2..4].copy_from_slice(&checksum.to_be_bytes());
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend([next, hop_limit]);
    packet.extend(src.to_be_bytes());
    packet.extend(dst.to_be_bytes());
    packet.extend(payload);
    packet
}

pub(super) fn tag_bytes(interface: &Interface) -> Vec<u8> {
    interface
        .tags
        .iter()
        .flat_map(|tag| [tag.0.to_be_bytes(), tag.1.to_be_bytes()])
        .flatten()
        .collect()
}

pub(super) fn header(interface: &Interface, to: &[u8], ethertype: u16) -> Vec<u8> {
    let tags = tag_bytes(interface);
    [to, &interface.mac, &tags, &ethertype.to_be_bytes()].concat()
}

pub(super) fn ip_address(v4: bool, address: u128) -> IpAddr {
    if v4 { IpAddr::V4((address as u32).into()) } else { IpAddr::V6(address.into()) }
}

pub(super) fn fill_checksum(packet: &mut [u8], header_len: usize) {
    packet[10..12].fill(0);
    let checksum = !sum(&packet[..header_len]);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// One's complement sum of 16-bit words (RFC 1071).
pub(super) fn sum(bytes: &[u8]) -> u16 {
    let mut sum = 0u64;
    for pair in bytes.chunks(2) {
        sum += u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0));
    }
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}

/// The same over an IPv6 pseudo header and a message.
pub(super) fn sum6(src: u128, dst: u128, next: u8, message: &[u8]) -> u16 {
    let mut bytes = src.to_be_bytes().to_vec();
    bytes.extend(dst.to_be_bytes());
    bytes.extend((message.len() as u32).to_be_bytes());
    bytes.extend([0, 0, 0, next]);
    bytes.extend(message);
    sum(&bytes)
}

pub(super) fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

pub(super) fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from(be16(bytes, at)) << 16 | u32::from(be16(bytes, at + 2))
}
