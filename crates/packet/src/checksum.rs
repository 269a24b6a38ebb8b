//! The Internet checksum (RFC 1071) and its incremental update (RFC 1624).
//!
//! A one's complement sum does not depend on byte order, so long runs are added as native 32-bit
//! words into 64-bit accumulators, which cannot overflow below 16 GiB, and are swapped once at the
//! end. Partial sums are numbers in host order below 2^17 or so: add them up, then [`finish`].

use crate::IpProtocol;
use std::net::{Ipv4Addr, Ipv6Addr};

/// What is done about checksums of received packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksums {
    /// A wrong one makes the packet invalid.
    #[default]
    Verify,
    /// They are not looked at: a capture taken on the sender holds packets whose checksums the network card was to fill in.
    Ignore,
}

/// Checksum of `bytes` (the checksum field inside taken as zero by the caller), host order.
/// Over bytes whose checksum field is filled in, 0 means correct.
#[inline]
pub fn internet_checksum(bytes: &[u8]) -> u16 {
    !fold_be(native_sum(bytes))
}

/// One's complement sum of `bytes`, host order, at most 0xffff. An odd last byte counts as the
/// high half of a word, so only the last of several parts may be odd.
#[inline]
pub fn partial_sum(bytes: &[u8]) -> u32 {
    u32::from(fold_be(native_sum(bytes)))
}

/// Checksum of what the partial sums added up to, host order.
#[inline]
pub fn finish(sum: u32) -> u16 {
    !fold(u64::from(sum))
}

/// Partial sum of the IPv4 pseudo header (RFC 9293 §3.1). `length` is header and payload of the
/// upper layer, in bytes.
#[inline]
pub fn pseudo_header_v4(src: Ipv4Addr, dst: Ipv4Addr, protocol: IpProtocol, length: u16) -> u32 {
    let (s, d) = (u32::from(src), u32::from(dst));
    (s >> 16) + (s & 0xffff) + (d >> 16) + (d & 0xffff) + u32::from(protocol.0) + u32::from(length)
}

/// Partial sum of the IPv6 pseudo header (RFC 8200 §8.1). `length` in bytes, without extension
/// headers.
#[inline]
pub fn pseudo_header_v6(src: Ipv6Addr, dst: Ipv6Addr, protocol: IpProtocol, length: u32) -> u32 {
    partial_sum(&src.octets())
        + partial_sum(&dst.octets())
        + u32::from(protocol.0)
        + (length >> 16)
        + (length & 0xffff)
}

/// Partial sum of the pseudo header of either family, with addresses as [`Decoded`](crate::Decoded) has them: IPv6 as
/// `[high, low]`, IPv4 as `[0, address]`. At most 0xffff.
#[inline]
pub fn pseudo_header(src: [u64; 2], dst: [u64; 2], protocol: IpProtocol, length: u32) -> u32 {
    // Both halves of four words, below 2^35: a number and the sum of its 16-bit words are equal modulo 0xffff.
    let halves = |word: u64| (word >> 32) + (word & 0xffff_ffff);
    let ends = halves(src[0]) + halves(src[1]) + halves(dst[0]) + halves(dst[1]);
    u32::from(fold(ends + u64::from(length) + u64::from(protocol.0)))
}

/// RFC 1624 equation 3, `HC' = ~(~HC + ~m + m')`: the checksum after a 16-bit field changed from
/// `old` to `new`. All in host order. It is the value that a full sum gives,
/// 0x0000 and 0xffff included, unless all the data summed are now zero (no IP header is).
#[inline]
pub fn update_u16(checksum: u16, old: u16, new: u16) -> u16 {
    !fold(u64::from(!checksum) + u64::from(!old) + u64::from(new))
}

/// [`update_u16`] for a 32-bit field that starts at an even offset, such as an address.
#[inline]
pub fn update_u32(checksum: u16, old: u32, new: u32) -> u16 {
    let (old, new) = (!old, u64::from(new));
    !fold(
        u64::from(!checksum)
            + u64::from(old >> 16)
            + u64::from(old & 0xffff)
            + (new >> 16)
            + (new & 0xffff),
    )
}

/// Takes one from the TTL of an IPv4 header and updates its checksum. A header shorter than 12
/// bytes or with TTL 0 is left alone: a forwarder has checked the TTL before.
#[inline]
pub fn ipv4_decrement_ttl(header: &mut [u8]) {
    let Some(h) = header.first_chunk_mut::<12>() else { return };
    if h[8] == 0 {
        return;
    }
    h[8] -= 1;
    // The word of TTL and protocol fell by 0x0100, and ~m + m' is ~0x0100 whatever m was.
    let old = u16::from_be_bytes([h[10], h[11]]);
    let new = !fold(u64::from(!old) + u64::from(!0x0100u16));
    [h[10], h[11]] = new.to_be_bytes();
}

/// Sum of an array of a length known to the compiler: no loop is left of it.
#[inline(always)]
pub(crate) fn sum20(header: &[u8; 20]) -> u16 {
    let mut sum = 0u64;
    let mut at = 0;
    while at < 20 {
        sum += u64::from(u32::from_ne_bytes([
            header[at],
            header[at + 1],
            header[at + 2],
            header[at + 3],
        ]));
        at += 4;
    }
    fold(sum)
}

#[inline]
fn native_sum(bytes: &[u8]) -> u64 {
    let (blocks, rest) = bytes.as_chunks::<32>();
    let mut sum = if blocks.is_empty() { 0 } else { sum_of_blocks(blocks) };
    let (words, tail) = rest.as_chunks::<4>();
    for word in words {
        sum += u64::from(u32::from_ne_bytes(*word));
    }
    // Places of 16-bit words within words of 32 do not matter.
    let (words, odd) = tail.as_chunks::<2>();
    if let [word] = words {
        sum += u64::from(u16::from_ne_bytes(*word));
    }
    if let [byte] = odd {
        sum += u64::from(u16::from_ne_bytes([*byte, 0]));
    }
    sum
}

/// Both halves of 64-bit words, four words at a time. Without iterators and calls, so that any build makes vectors of it.
fn sum_of_blocks(blocks: &[[u8; 32]]) -> u64 {
    const LOW: u64 = 0xffff_ffff;
    let (mut low, mut high) = ([0_u64; 4], [0_u64; 4]);
    let mut rest = blocks;
    while let [block, more @ ..] = rest {
        rest = more;
        let mut lane = 0;
        while lane < 4 {
            let at = 8 * lane;
            let word = u64::from_ne_bytes([
                block[at],
                block[at + 1],
                block[at + 2],
                block[at + 3],
                block[at + 4],
                block[at + 5],
                block[at + 6],
                block[at + 7],
            ]);
            low[lane] += word & LOW;
            high[lane] += word >> 32;
            lane += 1;
        }
    }
    low[0] + low[1] + low[2] + low[3] + high[0] + high[1] + high[2] + high[3]
}

/// Folds a sum of native words and gives it in host order of big-endian words.
#[inline]
fn fold_be(sum: u64) -> u16 {
    u16::from_be(fold(sum))
}

#[inline(always)]
fn fold(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff); // below 2^33
    let sum = (sum >> 16) + (sum & 0xffff); // below 2^18
    let sum = (sum >> 16) + (sum & 0xffff); // below 2^16 + 3
    ((sum >> 16) + (sum & 0xffff)) as u16
}
