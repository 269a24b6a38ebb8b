//! Addresses and ports of a packet in place, with checksums updated by what changed (RFC 1624): a checksum that was
//! wrong stays wrong, so that the receiver finds it.
//!
//! Whatever a packet's bytes are, nothing here fails: what is not there is not written.

use packet::IpProtocol;
use packet::checksum::{finish, partial_sum};

use crate::tuple::{Tuple, is_request};

/// Which end of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Who sent it.
    Source,
    /// Who gets it.
    Destination,
}

/// What 16-bit words of a packet changed by, as a one's complement sum.
#[derive(Clone, Copy, Debug, Default)]
struct Change(u32);

impl Change {
    fn bytes(&mut self, old: &[u8], new: &[u8]) {
        self.0 += (!partial_sum(old) & 0xffff) + partial_sum(new);
    }

    /// The checksum after the change (RFC 1624 equation 3).
    fn apply(self, checksum: u16) -> u16 {
        finish(u32::from(!checksum) + (self.0 & 0xffff) + (self.0 >> 16))
    }
}

fn update(bytes: &mut [u8], at: usize, change: Change) {
    if let Some(field) = bytes.get_mut(at..at + 2) {
        let new = change.apply(u16::from_be_bytes([field[0], field[1]]));
        field.copy_from_slice(&new.to_be_bytes());
    }
}

/// Writes `new` over the bytes at `at`, and notes the change.
fn write(bytes: &mut [u8], at: usize, new: &[u8], change: &mut Change) {
    if let Some(old) = bytes.get_mut(at..at + new.len()) {
        change.bytes(old, new);
        old.copy_from_slice(new);
    }
}

/// Writes one end of an IP packet: address, and port or identifier. `ip` begins with the IP header, the upper layer with
/// byte `l4`. The identifier of an ICMP query belongs to its source, that of the answer to its destination; the other end's
/// is left alone. A UDP checksum of 0 stays (RFC 768).
pub fn set_end(ip: &mut [u8], l4: usize, protocol: u8, which: Which, end: crate::tuple::End) {
    let mut addresses = Change::default();
    let is_v4 = ip.first().is_some_and(|first| first >> 4 == 4);
    let source = which == Which::Source;
    if is_v4 {
        let at = if source { 12 } else { 16 };
        write(ip, at, &(end.0[1] as u32).to_be_bytes(), &mut addresses);
        update(ip, 10, addresses);
    } else {
        let at = if source { 8 } else { 24 };
        write(ip, at, &end.0[0].to_be_bytes(), &mut addresses);
        write(ip, at + 8, &end.0[1].to_be_bytes(), &mut addresses);
    }
    let Some(l4) = ip.get_mut(l4..) else { return };
    let mut change = addresses;
    let port = end.1.to_be_bytes();
    match IpProtocol(protocol) {
        IpProtocol::TCP => {
            write(l4, if source { 0 } else { 2 }, &port, &mut change);
            update(l4, 16, change);
        }
        IpProtocol::UDP => {
            write(l4, if source { 0 } else { 2 }, &port, &mut change);
            let has_checksum = l4.get(6..8).is_some_and(|field| field != [0, 0]);
            if has_checksum {
                update(l4, 6, change);
                // 0 would say that there is none.
                if let Some(field) = l4.get_mut(6..8).filter(|field| **field == [0, 0]) {
                    field.fill(0xff);
                }
            }
        }
        IpProtocol::ICMP | IpProtocol::ICMPV6 => {
            // Only ICMPv6 has a pseudo header.
            let mut change = if is_v4 { Change::default() } else { addresses };
            let kind = l4.first().copied().unwrap_or(0);
            if is_request(protocol, kind) == Some(source) {
                write(l4, 4, &port, &mut change);
            }
            update(l4, 2, change);
        }
        // Checksums over the addresses, at the places of UDP-Lite and DCCP (RFC 3828, RFC 4340).
        IpProtocol(136 | 33) => update(l4, 6, change),
        _ => {}
    }
}

/// [`set_end`] for a plain packet, as [`Tuple::plain`] finds them, in a few instructions. `false`, and nothing was written,
/// if it is none.
#[inline]
pub fn set_end_plain(ip: &mut [u8], which: Which, address: u32, port: u16) -> bool {
    // Where the checksum of the upper layer is.
    let at = match ip.first_chunk::<28>() {
        Some(head) if (head[0] != 0x45) | ((head[6] & 0x3f) | head[7] != 0) => return false,
        Some(head) if head[9] == IpProtocol::TCP.0 && ip.len() >= 40 => 36,
        Some(head) if head[9] == IpProtocol::UDP.0 => 26,
        _ => return false,
    };
    let Some(head) = ip.first_chunk_mut::<28>() else { return false };
    let (address_at, port_at) = if which == Which::Source { (12, 20) } else { (16, 22) };
    let word = |head: &[u8; 28], at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    // No array is mapped here or anywhere else on the way of each packet: the compiler makes calls of that.
    let old_address = u32::from(!word(head, address_at)) + u32::from(!word(head, address_at + 2));
    let addresses = old_address + (address >> 16) + (address & 0xffff);
    let all = Change(addresses + u32::from(!word(head, port_at)) + u32::from(port));
    head[address_at..address_at + 4].copy_from_slice(&address.to_be_bytes());
    head[port_at..port_at + 2].copy_from_slice(&port.to_be_bytes());
    let header = Change(addresses).apply(word(head, 10));
    head[10..12].copy_from_slice(&header.to_be_bytes());
    let Some(field) = ip.get_mut(at..at + 2) else { return true };
    let checksum = u16::from_be_bytes([field[0], field[1]]);
    let new = match (at, checksum, all.apply(checksum)) {
        (26, 0, _) => 0,
        (26, _, 0) => 0xffff,
        (_, _, new) => new,
    };
    field.copy_from_slice(&new.to_be_bytes());
    true
}

/// Writes what a TCP segment acknowledges: `number` gives a number and whether all before it was received, otherwise it is an
/// edge of a block of selective acknowledgements (RFC 2018 §3), and gets what it becomes.
pub fn set_acknowledged(ip: &mut [u8], l4: usize, mut number: impl FnMut(u32, bool) -> u32) {
    const ACK: u8 = 0x10;
    const END: u8 = 0;
    const NOTHING: u8 = 1;
    const SACK: u8 = 5;
    let Some(tcp) = ip.get_mut(l4..) else { return };
    let Some(head) = tcp.first_chunk::<20>() else { return };
    let (has_ack, len) = (head[13] & ACK != 0, usize::from(head[12] >> 4) * 4);
    let mut change = Change::default();
    if has_ack {
        let own = u32::from_be_bytes([head[8], head[9], head[10], head[11]]);
        write(tcp, 8, &number(own, true).to_be_bytes(), &mut change);
    }
    // Options are of any alignment, all of them together are not.
    let Some(options) = tcp.get_mut(20..len) else { return update(tcp, 16, change) };
    let before = partial_sum(options);
    let mut rest = &mut *options;
    while let Some((&kind, behind)) = rest.split_first() {
        let own = match kind {
            END => break,
            NOTHING => 1,
            _ => usize::from(behind.first().copied().unwrap_or(0)),
        };
        if own == 0 || own > rest.len() || kind > NOTHING && own < 2 {
            break;
        }
        let (option, behind) = std::mem::take(&mut rest).split_at_mut(own);
        if kind == SACK {
            for edge in option[2..].chunks_exact_mut(4) {
                let old = u32::from_be_bytes([edge[0], edge[1], edge[2], edge[3]]);
                edge.copy_from_slice(&number(old, false).to_be_bytes());
            }
        }
        rest = behind;
    }
    change.0 += (!before & 0xffff) + partial_sum(options);
    update(tcp, 16, change);
}

/// Other bytes of a TCP segment.
#[derive(Clone, Copy, Debug)]
pub struct Resized {
    /// Sums ([`partial_sum`]) of its bytes before and now.
    pub sums: [u32; 2],
    /// Their number, before and now.
    pub lens: [u16; 2],
    /// Flags that it has no more.
    pub cleared: u8,
}

/// Writes the sequence number of a TCP segment over IPv4, and what follows from other bytes that it has: lengths and checksums.
pub fn set_segment(ip: &mut [u8], l4: usize, seq: u32, resized: Option<Resized>) {
    let mut change = Change::default();
    if let Some(Resized { sums, lens, cleared }) = resized
        && let Some(&[high, low]) = ip.get(2..4)
        && let Some(&flags) = ip.get(l4 + 13)
        && let Some(&offset) = ip.get(l4 + 12)
    {
        let total = u16::from_be_bytes([high, low]);
        let new = total.wrapping_sub(lens[0]).wrapping_add(lens[1]);
        let mut header = Change::default();
        write(ip, 2, &new.to_be_bytes(), &mut header);
        update(ip, 10, header);
        // The pseudo header has the length of the segment.
        change = header;
        change.0 += (!sums[0] & 0xffff) + sums[1];
        write(ip, l4 + 12, &[offset, flags & !cleared], &mut change);
    }
    write(ip, l4 + 4, &seq.to_be_bytes(), &mut change);
    update(ip, l4 + 16, change);
}

/// Writes the sequence number of the TCP segment that an ICMP error quotes; `ip` and places as for [`set_quoted`].
pub fn set_quoted_number(ip: &mut [u8], l4: usize, quoted_l4: usize, seq: u32) {
    let Some(icmp) = ip.get_mut(l4..) else { return };
    let Some(quoted) = icmp.get_mut(8..) else { return };
    let len = quoted.len().min(quoted_l4 + crate::tuple::L4_BYTES) & !1;
    let before = partial_sum(&quoted[..len]);
    set_segment(quoted, quoted_l4, seq, None);
    let after = partial_sum(&quoted[..len]);
    update(icmp, 2, Change((!before & 0xffff) + after));
}

/// Writes both ends of an IP packet.
pub fn set_ends(ip: &mut [u8], l4: usize, to: &Tuple) {
    set_end(ip, l4, to.protocol, Which::Source, to.src);
    set_end(ip, l4, to.protocol, Which::Destination, to.dst);
}

/// Writes both ends of the packet that an ICMP error quotes, and brings the checksum of the error up to date. `ip` begins
/// with the header of the error's packet, its ICMP header with byte `l4`; the quoted upper layer begins with byte
/// `quoted_l4` of the quoted packet (RFC 5508 REQ-4 and REQ-5). A quoted checksum that is cut in two stays.
pub fn set_quoted(ip: &mut [u8], l4: usize, quoted_l4: usize, to: &Tuple) {
    let Some(icmp) = ip.get_mut(l4..) else { return };
    let Some(quoted) = icmp.get_mut(8..) else { return };
    // An even number of bytes, up to the checksum of TCP.
    let len = quoted.len().min(quoted_l4 + crate::tuple::L4_BYTES) & !1;
    let before = partial_sum(&quoted[..len]);
    set_ends(quoted, quoted_l4, to);
    let after = partial_sum(&quoted[..len]);
    update(icmp, 2, Change((!before & 0xffff) + after));
}
