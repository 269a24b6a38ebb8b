//! Frames that their sender left unfinished ([`chunk::Offload`]): where their parts are, and finished frames made of them.
//!
//! ```text
//!   unfinished  │ Ethernet, tags │ IP │ TCP or UDP │ payload: n · size + rest │    checksum field: sum of the pseudo-header
//!   finished    │ Ethernet, tags │ IP │ TCP or UDP │ size │   n times, then one with the rest; each with its checksums
//! ```
//!
//! What a network card does for TCP segmentation, receive checksums left aside: lengths and identification (RFC 6864
//! §4.2: one more for each datagram) of IP, sequence numbers, FIN and PSH on the last segment only, CWR on the first
//! only (RFC 3168 §6.1.2). In a tunnel ([`Layout::in_tunnel`]) also lengths, identification and checksums of the headers
//! round it.
//!
//! A checksum with its place ([`Offload::checksum_at`]) is filled in whatever the frame is.
//!
//! The sum of a packet with a right checksum is known without its payload: it is that of the pseudo-header, inverted. So
//! the checksum of a header round a tunnel needs a look at headers alone, and is the same while the inner one is open
//! (Linux, Documentation/networking/checksum-offloads.rst: local checksum offload).
//!
//! Reads a frame through its cells; nothing is copied but the headers. Pure functions: any thread.

mod layout;

use std::ops::Range;

use chunk::{Offload, Packet, Pool};

pub use layout::{Carrier, Layout, Outer};

use crate::bytes::put;
use crate::checksum::{finish, partial_sum};
use crate::decode::decode;
use crate::{EtherType, ethernet, ipv4, ipv6, tcp, udp};

/// Bytes of all headers together of a frame that can be finished: Ethernet, two tags, IPv6 with extension headers, a
/// tunnel, TCP with options, or fewer.
pub const HEADERS_LEN_MAX: usize = 256;

/// What becomes of the checksums of frames that are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// They are filled in.
    Filled,
    /// They stay open; those of headers round a tunnel are right as soon as the inner one is.
    Open,
}

/// Tags of a frame whose headers are in `frame`.
pub fn tags(frame: &[u8]) -> u8 {
    decode(frame, frame.len()).vlan_count
}

/// Bytes before the first header that is neither Ethernet nor a tag, of any number of tags.
pub fn link_len(frame: &[u8]) -> usize {
    let mut at = ethernet::HEADER_LEN;
    while EtherType(be16_at(frame, at - 2)).is_vlan() {
        at += 4;
    }
    at
}

/// Bytes of the longest frame that a packet is on the wire: of its segments, or of itself.
pub fn wire_len(packet: &Packet) -> usize {
    let Some(size) = packet.offload.segment_bytes() else { return packet.frame_len() };
    match Layout::of_packet(packet) {
        Some(layout) => packet.frame_len().min(usize::from(layout.payload) + size),
        None => packet.frame_len(),
    }
}

/// Where the sum of a checksum with its place begins, and where its field is, in bytes from the start of the frame. `None`
/// for any other packet, and if the field is not among the first [`HEADERS_LEN_MAX`] bytes of the frame.
pub fn checksum_place(packet: &Packet) -> Option<(usize, usize)> {
    let (from, field) = packet.offload.checksum_place()?;
    let from = from + link_len(packet.data());
    let at = from + field;
    (at + 2 <= packet.frame_len().min(HEADERS_LEN_MAX)).then_some((from, at))
}

/// The checksum of a packet whose checksum has a place, and where it belongs.
fn placed_checksum(packet: &Packet) -> Option<(usize, u16)> {
    let (from, at) = checksum_place(packet)?;
    // The field holds the sum of the pseudo-header, and is summed with the rest.
    Some((at, never_zero(finish(sum_of(packet, from..packet.frame_len())))))
}

/// Zero means that there is no checksum; all ones is the same sum.
fn never_zero(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

/// Fills in the checksum of a frame that is to stay one frame. `false`, and nothing changed, for a frame that is not a
/// TCP or UDP packet, unless its checksum has a place ([`Offload::checksum_at`]).
pub fn fill_checksum(packet: &mut Packet) -> bool {
    if packet.offload.checksum_place().is_some() {
        let Some((at, checksum)) = placed_checksum(packet) else { return false };
        return packet.write_at(at, &checksum.to_be_bytes());
    }
    let Some(layout) = Layout::of(packet.data(), packet.frame_len()) else { return false };
    let payload = usize::from(layout.payload)..layout.end as usize;
    let Some(headers) = packet.data().get(..payload.start) else { return false };
    let checksum = transport_checksum(&layout, headers, packet, payload);
    let at = usize::from(layout.l4) + layout.checksum_at();
    packet.write_at(at, &checksum.to_be_bytes())
}

/// Puts the sum of the pseudo-header where the checksum is: what a sender does that leaves the rest to a card. Of a frame
/// that is to be cut, inside the tunnel if there is one.
/// `false`, and nothing changed, for a frame that is not a TCP or UDP packet.
pub fn open_checksum(packet: &mut Packet) -> bool {
    let Some(layout) = Layout::of_packet(packet) else { return false };
    let sum = open_field(&layout, packet.data());
    packet.write_at(usize::from(layout.l4) + layout.checksum_at(), &sum.to_be_bytes())
}

/// What a sender leaves to do that says nothing of it: a checksum field that holds the sum of the pseudo-header is an open
/// one, also inside a tunnel. One packet of 65,536 has a right checksum of the same value, and filling it in does not
/// change it.
pub fn open_offload(packet: &Packet) -> Offload {
    let (frame, frame_len) = (packet.data(), packet.frame_len());
    let is_open = |layout: &Layout| {
        let at = usize::from(layout.l4) + layout.checksum_at();
        be16_at(frame, at) == open_field(layout, frame)
    };
    let plain = Layout::of(frame, frame_len);
    if plain.is_some_and(|layout| is_open(&layout)) {
        return Offload::CHECKSUM;
    }
    if plain.is_some_and(|layout| layout.is_tcp) {
        return Offload::NONE;
    }
    let inner = Layout::in_tunnel(frame, frame_len).filter(is_open);
    inner.map_or(Offload::NONE, |layout| layout.open())
}

/// What the checksum field of an open checksum holds.
fn open_field(layout: &Layout, headers: &[u8]) -> u16 {
    !finish(layout.pseudo_sum(headers, layout.end as usize - usize::from(layout.l4)))
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
    let checksum = finish(sum);
    if layout.is_tcp { checksum } else { never_zero(checksum) }
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
    /// `None` if the checksum has a place: one frame, whatever it is.
    layout: Option<Layout>,
    checksums: Checksums,
    /// Bytes of payload in each frame.
    size: usize,
    /// Where the next one's payload begins, and where the last one's ends.
    at: usize,
    end: usize,
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
    /// is not TCP or UDP and whose checksum has no place.
    pub fn new(packet: &'a Packet) -> Option<Self> {
        let (checksums, number, is_over) = (Checksums::Filled, 0, false);
        if packet.offload.checksum_place().is_some() {
            let (_, field) = checksum_place(packet)?;
            let (at, end) = (field + 2, packet.frame_len());
            let size = end;
            return Some(Self { packet, layout: None, checksums, size, at, end, number, is_over });
        }
        let layout = Layout::of_packet(packet)?;
        let (at, end) = (usize::from(layout.payload), layout.end as usize);
        let size = packet.offload.segment_bytes().unwrap_or(end - at).max(1);
        let layout = Some(layout);
        Some(Self { packet, layout, checksums, size, at, end, number, is_over })
    }

    /// What of a frame made of this one is left to do.
    fn left(&self) -> Offload {
        match (self.checksums, self.layout) {
            (Checksums::Open, Some(layout)) => layout.open(),
            _ => Offload::NONE,
        }
    }

    /// The headers of the frame with the payload in `range`.
    fn finished(&self, range: Range<usize>) -> Option<Finished> {
        let Some(layout) = &self.layout else { return self.placed(range) };
        let (l3, l4, payload) =
            (usize::from(layout.l3), usize::from(layout.l4), usize::from(layout.payload));
        let mut headers = [0; HEADERS_LEN_MAX];
        let all = headers.get_mut(..payload)?;
        all.copy_from_slice(self.packet.data().get(..payload)?);
        let (is_first, is_last) = (self.number == 0, range.end == self.end);
        let is_cut = !(is_first && is_last);
        if is_cut {
            number_ip(all, l3, layout.is_v4, range.len(), self.number);
            if layout.is_tcp {
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
                put(all, l4 + 4, ((udp::HEADER_LEN + range.len()) as u16).to_be_bytes());
            }
        }
        let pseudo = layout.pseudo_sum(all, payload - l4 + range.len());
        let checksum = match self.checksums {
            Checksums::Open => !finish(pseudo),
            Checksums::Filled => transport_checksum(layout, all, self.packet, range.clone()),
        };
        put(all, l4 + layout.checksum_at(), checksum.to_be_bytes());
        if let Some(outer) = &layout.outer {
            if is_cut {
                number_ip(all, outer.l3.into(), outer.is_v4, range.len(), self.number);
            }
            carry(all, layout, outer, finish(pseudo), range.len());
        }
        Some(Finished { headers, headers_len: payload, payload: range })
    }

    /// The one frame of a packet whose checksum has a place.
    fn placed(&self, range: Range<usize>) -> Option<Finished> {
        let (at, checksum) = placed_checksum(self.packet)?;
        let mut headers = [0; HEADERS_LEN_MAX];
        let all = headers.get_mut(..range.start)?;
        self.packet.read_at(0, all).then_some(())?;
        put(all, at, checksum.to_be_bytes());
        Some(Finished { headers, headers_len: range.start, payload: range })
    }
}

/// Sets the length of the packet whose IP header begins at `l3`, and whose payload of `len` bytes follows `headers`, and its
/// identification: that of the first packet, and one more for each before this one.
fn number_ip(headers: &mut [u8], l3: usize, is_v4: bool, len: usize, number: u16) {
    let len = headers.len() - l3 + len;
    if is_v4 {
        put(headers, l3 + 2, (len as u16).to_be_bytes());
        let identification = be16_at(headers, l3 + 4).wrapping_add(number);
        put(headers, l3 + 4, identification.to_be_bytes());
        ipv4::fill_checksum(&mut headers[l3..]);
    } else {
        put(headers, l3 + 4, ((len - ipv6::HEADER_LEN) as u16).to_be_bytes());
    }
}

/// Sets length and checksum of what carries the packet of `layout` in a tunnel; `inner` is the sum of that packet from its
/// TCP or UDP header on, and `len` the bytes of payload that follow `headers`.
fn carry(headers: &mut [u8], layout: &Layout, outer: &Outer, inner: u16, len: usize) {
    let at = usize::from(outer.l4);
    let (field, pseudo) = match outer.carrier {
        Carrier::Ip | Carrier::Gre => return,
        Carrier::GreChecksum => (at + 4, 0),
        Carrier::Udp => {
            let len = headers.len() - at + len;
            put(headers, at + 4, (len as u16).to_be_bytes());
            if be16_at(headers, at + 6) == 0 {
                return; // without a checksum
            }
            (at + 6, outer.pseudo_sum(headers, len))
        }
    };
    put(headers, field, [0, 0]);
    let between = headers.get(at..usize::from(layout.l4)).unwrap_or_default();
    let checksum = never_zero(finish(pseudo + partial_sum(between) + u32::from(inner)));
    put(headers, field, checksum.to_be_bytes());
}

impl Iterator for Cut<'_> {
    type Item = Finished;

    fn next(&mut self) -> Option<Finished> {
        if self.is_over {
            return None;
        }
        let range = self.at..self.end.min(self.at + self.size);
        self.is_over = range.end == self.end;
        let finished = self.finished(range.clone());
        self.at = range.end;
        self.number = self.number.wrapping_add(1);
        finished
    }
}

/// Appends the frames of `packet` to `out`, with its time, port and mark. `false`, and nothing appended, if too few cells
/// are free or the packet cannot be finished ([`Cut::new`]); `packet` stays the caller's.
pub fn cut(packet: &Packet, pool: &mut Pool, out: &mut Vec<Packet>, checksums: Checksums) -> bool {
    let before = out.len();
    let frames = Cut::new(packet).map(|cut| Cut { checksums, ..cut });
    let left = frames.as_ref().map_or(Offload::NONE, Cut::left);
    let is_cut = frames.is_some()
        && frames.into_iter().flatten().all(|frame| {
            let made = Packet::with_headers(pool, frame.headers(), packet, frame.payload());
            let is_made = made.is_some();
            out.extend(made.map(|mut packet| {
                packet.offload = left;
                packet
            }));
            is_made
        });
    if !is_cut {
        out.drain(before..).for_each(|packet| packet.free(pool));
    }
    is_cut
}
