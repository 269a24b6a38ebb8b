//! Frames that their sender left unfinished ([`chunk::Offload`]): where their parts are, and finished frames made of them.
//!
//! ```text
//!   unfinished  │ Ethernet, tags │ IP │ TCP or UDP │ payload: n · size + rest │    checksum field: sum of the pseudo-header
//!   finished    │ Ethernet, tags │ IP │ TCP or UDP │ size │   n times, then one with the rest; each with its checksums
//! ```
//!
//! What a network card does for TCP segmentation, receive checksums left aside: lengths and identification (RFC 6864
//! §4.2: one more for each datagram) of IP, sequence numbers, FIN and PSH on the last segment only, CWR on the first
//! only (RFC 3168 §6.1.2).
//!
//! Reads a frame through its cells; nothing is copied but the headers. Pure functions: any thread.

use std::ops::Range;

use chunk::{Packet, Pool};

use crate::bytes::put;
use crate::checksum::{finish, partial_sum};
use crate::decode::{Decoded, Kind, decode};
use crate::{IpProtocol, ipv4, tcp};

/// Bytes of all headers together of a frame that can be finished: Ethernet, two tags, IPv6 with extension headers, TCP
/// with options, or fewer.
pub const HEADERS_LEN_MAX: usize = 256;

/// Where the parts of a TCP or UDP packet are, in bytes from the start of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The IP header.
    pub l3: u16,
    /// The TCP or UDP header.
    pub l4: u16,
    /// What that header is of.
    pub payload: u16,
    /// The end of the packet; bytes behind it are padding.
    pub end: u32,
    /// IPv4, else IPv6.
    pub is_v4: bool,
    /// TCP, else UDP.
    pub is_tcp: bool,
    /// Tags of the frame.
    pub tags: u8,
}

impl Layout {
    /// The layout of a frame of `frame_len` bytes whose headers are in `frame`; `None` for other protocols, fragments,
    /// and lengths that contradict each other.
    pub fn of(frame: &[u8], frame_len: usize) -> Option<Layout> {
        let d = decode(frame, frame_len);
        let is_tcp = d.protocol == IpProtocol::TCP;
        let is_whole = d.is_ip() && d.flags & (Decoded::FRAGMENT | Decoded::L4_TRUNCATED) == 0;
        if !is_whole || !(is_tcp || d.protocol == IpProtocol::UDP) {
            return None;
        }
        let (l3, l4) = (usize::from(d.l3_offset), usize::from(d.l4_offset));
        let is_v4 = d.kind == Kind::Ipv4;
        if l4 < l3 + if is_v4 { 20 } else { 40 } {
            return None;
        }
        let header_len = match is_tcp {
            true => usize::from(frame.get(l4 + 12)? >> 4) * 4,
            false => crate::udp::HEADER_LEN,
        };
        let (payload, end) = (l4 + header_len, d.l3_end());
        let fits =
            payload <= end && end <= frame_len && payload <= frame.len().min(HEADERS_LEN_MAX);
        if !fits || (is_tcp && header_len < tcp::HEADER_LEN) {
            return None;
        }
        Some(Layout {
            l3: l3 as u16,
            l4: l4 as u16,
            payload: payload as u16,
            end: end as u32,
            is_v4,
            is_tcp,
            tags: d.vlan_count,
        })
    }

    /// Where the checksum of TCP or UDP is in its header.
    pub fn checksum_at(&self) -> usize {
        if self.is_tcp { 16 } else { 6 }
    }

    /// Sum of the pseudo-header (RFC 9293 §3.1, RFC 8200 §8.1) for `len` bytes of TCP or UDP.
    fn pseudo_sum(&self, headers: &[u8], len: usize) -> u32 {
        let at = usize::from(self.l3) + if self.is_v4 { 12 } else { 8 };
        let addresses = headers.get(at..at + if self.is_v4 { 8 } else { 32 }).unwrap_or_default();
        let protocol = if self.is_tcp { IpProtocol::TCP } else { IpProtocol::UDP };
        // Only IPv6 has packets whose length needs more than 16 bits, and none is handled here.
        partial_sum(addresses) + u32::from(protocol.0) + len as u32
    }
}

/// Tags of a frame whose headers are in `frame`.
pub fn tags(frame: &[u8]) -> u8 {
    decode(frame, frame.len()).vlan_count
}

/// Bytes of the longest frame that a packet is on the wire: of its segments, or of itself.
pub fn wire_len(packet: &Packet) -> usize {
    let Some(size) = packet.offload.segment_bytes() else { return packet.frame_len() };
    match Layout::of(packet.data(), packet.frame_len()) {
        Some(layout) => packet.frame_len().min(usize::from(layout.payload) + size),
        None => packet.frame_len(),
    }
}

/// Fills in the checksum of a frame that is to stay one frame. `false`, and nothing changed, for a frame that is not a
/// TCP or UDP packet.
pub fn fill_checksum(packet: &mut Packet) -> bool {
    let Some(layout) = Layout::of(packet.data(), packet.frame_len()) else { return false };
    let payload = usize::from(layout.payload)..layout.end as usize;
    let Some(headers) = packet.data().get(..payload.start) else { return false };
    let checksum = transport_checksum(&layout, headers, packet, payload);
    let at = usize::from(layout.l4) + layout.checksum_at();
    packet.write_at(at, &checksum.to_be_bytes())
}

/// Puts the sum of the pseudo-header where the checksum is: what a sender does that leaves the rest to a card.
/// `false`, and nothing changed, for a frame that is not a TCP or UDP packet.
pub fn open_checksum(packet: &mut Packet) -> bool {
    let Some(layout) = Layout::of(packet.data(), packet.frame_len()) else { return false };
    let len = layout.end as usize - usize::from(layout.l4);
    let sum = !finish(layout.pseudo_sum(packet.data(), len));
    packet.write_at(usize::from(layout.l4) + layout.checksum_at(), &sum.to_be_bytes())
}

/// Whether the checksum field holds the sum of the pseudo-header: an open checksum, where nothing else says so. One packet
/// of 65,536 has a right checksum of the same value, and filling it in does not change it.
pub fn is_checksum_open(packet: &Packet) -> bool {
    let Some(layout) = Layout::of(packet.data(), packet.frame_len()) else { return false };
    let len = layout.end as usize - usize::from(layout.l4);
    let at = usize::from(layout.l4) + layout.checksum_at();
    be16_at(packet.data(), at) == !finish(layout.pseudo_sum(packet.data(), len))
}

/// The checksum of TCP or UDP over its header in `headers`, whose checksum field counts as zero, and a range of the
/// packet.
fn transport_checksum(
    layout: &Layout,
    headers: &[u8],
    packet: &Packet,
    payload: Range<usize>,
) -> u16 {
    let l4 = headers.get(usize::from(layout.l4)..).unwrap_or_default();
    let field = be16_at(l4, layout.checksum_at());
    let sum = layout.pseudo_sum(headers, l4.len() + payload.len())
        + partial_sum(l4)
        + u32::from(!field) // takes the field out
        + sum_of(packet, payload);
    match finish(sum) {
        0 if !layout.is_tcp => 0xffff, // zero means that there is none
        checksum => checksum,
    }
}

fn be16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u16::from_be_bytes(*b))
}

/// One's complement sum of a range of the frame, whose first byte is the high half of a word.
fn sum_of(packet: &Packet, range: Range<usize>) -> u32 {
    let (mut skip, mut left) = (range.start, range.len());
    let (mut sum, mut is_odd) = (0u32, false);
    for segment in packet.segments() {
        let from = &segment[skip.min(segment.len())..];
        skip -= skip.min(segment.len());
        let part = &from[..from.len().min(left)];
        let own = partial_sum(part) as u16;
        // The bytes of a part that begins in the middle of a word have changed places.
        sum += u32::from(if is_odd { own.swap_bytes() } else { own });
        is_odd ^= part.len() % 2 == 1;
        left -= part.len();
        if left == 0 {
            break;
        }
    }
    sum
}

/// The finished frames of an unfinished one, in order. An iterator over [`Finished`].
#[derive(Debug)]
pub struct Cut<'a> {
    packet: &'a Packet,
    layout: Layout,
    /// Bytes of payload in each frame.
    size: usize,
    /// Where the next one's payload begins.
    at: usize,
    number: u16,
    is_over: bool,
}

/// One finished frame: its headers, and which bytes of the packet follow them.
#[derive(Clone, Debug)]
pub struct Finished {
    headers: [u8; HEADERS_LEN_MAX],
    headers_len: usize,
    payload: Range<usize>,
}

impl Finished {
    /// All headers of the frame.
    pub fn headers(&self) -> &[u8] {
        &self.headers[..self.headers_len]
    }

    /// The bytes of the unfinished packet that follow.
    pub fn payload(&self) -> Range<usize> {
        self.payload.clone()
    }

    /// Bytes of the frame.
    pub fn frame_len(&self) -> usize {
        self.headers_len + self.payload.len()
    }
}

impl<'a> Cut<'a> {
    /// The frames of `packet`: one, with its checksum, unless it is to be cut into segments. `None` for a packet that
    /// is not TCP or UDP.
    pub fn new(packet: &'a Packet) -> Option<Self> {
        let layout = Layout::of(packet.data(), packet.frame_len())?;
        let payload = layout.end as usize - usize::from(layout.payload);
        let size = packet.offload.segment_bytes().unwrap_or(payload).max(1);
        let at = usize::from(layout.payload);
        Some(Self { packet, layout, size, at, number: 0, is_over: false })
    }

    /// The headers of the frame with the payload in `range`.
    fn finished(&self, range: Range<usize>) -> Option<Finished> {
        let Layout { l3, l4, payload, end, is_v4, is_tcp, .. } = self.layout;
        let (l3, l4, payload) = (usize::from(l3), usize::from(l4), usize::from(payload));
        let mut headers = [0; HEADERS_LEN_MAX];
        let all = headers.get_mut(..payload)?;
        all.copy_from_slice(self.packet.data().get(..payload)?);
        let (is_first, is_last) = (self.number == 0, range.end == end as usize);
        if !(is_first && is_last) {
            let len = payload - l3 + range.len();
            if is_v4 {
                put(all, l3 + 2, (len as u16).to_be_bytes());
                let identification = be16_at(all, l3 + 4).wrapping_add(self.number);
                put(all, l3 + 4, identification.to_be_bytes());
                ipv4::fill_checksum(&mut all[l3..]);
            } else {
                put(all, l3 + 4, ((len - 40) as u16).to_be_bytes());
            }
            if is_tcp {
                let passed = (range.start - payload) as u32;
                let sequence = all.get(l4 + 4..).and_then(|b| b.first_chunk())?;
                let sequence = u32::from_be_bytes(*sequence).wrapping_add(passed);
                put(all, l4 + 4, sequence.to_be_bytes());
                if !is_last {
                    all[l4 + 13] &= !((tcp::flags::FIN | tcp::flags::PSH) as u8);
                }
                if !is_first {
                    all[l4 + 13] &= !(tcp::flags::CWR as u8);
                }
            } else {
                let len = crate::udp::HEADER_LEN + range.len();
                put(all, l4 + 4, (len as u16).to_be_bytes());
            }
        }
        let checksum = transport_checksum(&self.layout, all, self.packet, range.clone());
        put(all, l4 + self.layout.checksum_at(), checksum.to_be_bytes());
        Some(Finished { headers, headers_len: payload, payload: range })
    }
}

impl Iterator for Cut<'_> {
    type Item = Finished;

    fn next(&mut self) -> Option<Finished> {
        if self.is_over {
            return None;
        }
        let end = self.layout.end as usize;
        let range = self.at..end.min(self.at + self.size);
        self.is_over = range.end == end;
        let finished = self.finished(range.clone());
        self.at = range.end;
        self.number = self.number.wrapping_add(1);
        finished
    }
}

/// Appends the finished frames of `packet` to `out`, with its time, port and mark. `false`, and nothing appended, if too
/// few cells are free or the packet is not TCP or UDP; `packet` stays the caller's.
pub fn cut(packet: &Packet, pool: &mut Pool, out: &mut Vec<Packet>) -> bool {
    let before = out.len();
    let frames = Cut::new(packet);
    let is_cut = frames.is_some()
        && frames.into_iter().flatten().all(|frame| {
            let made = Packet::with_headers(pool, frame.headers(), packet, frame.payload());
            made.map(|packet| out.push(packet)).is_some()
        });
    if !is_cut {
        out.drain(before..).for_each(|packet| packet.free(pool));
    }
    is_cut
}
