//! The header that Linux puts before frames that their sender left unfinished (`struct virtio_net_hdr`).
//!
//! ```text
//!   flags 8 │ type 8 │ headers 16 │ segment 16 │ checksum from 16 │ checksum at 16 │ frame …      in the host's byte order
//! ```
//!
//! AF_PACKET and TAP take and give it on request. What it says is in [`chunk::Offload`] and in the frame itself, so nothing
//! of it is kept: it is made anew from the frame when that leaves.
//!
//! Of frames in a tunnel, the kernel gives what is left to do with the inner packet, as `virtio_net_hdr_from_skb` does: the
//! type is the inner one, the place of the checksum says how far in it is, and the outer lengths are those of the whole. It
//! does not take such segments back, because the header does not say that there is a tunnel (its form with tunnels,
//! Linux 6.17, is for TAP alone). An open checksum in a tunnel goes both ways.
//!
//! See Linux, include/uapi/linux/virtio_net.h; Virtio 1.2 §5.1.6.

use chunk::{Offload, Packet};
use packet::offload::{Layout, checksum_place, link_len, open_checksum};

/// Bytes of the header.
pub(crate) const HEADER_LEN: usize = 10;

const NEEDS_CHECKSUM: u8 = 1;

const TYPE_NONE: u8 = 0;
const TYPE_TCP_V4: u8 = 1;
const TYPE_TCP_V6: u8 = 4;
const TYPE_UDP: u8 = 5;
/// The first segment reduces the congestion window, the others must not say so.
const TYPE_ECN: u8 = 0x80;

/// Where the checksum is in the header of SCTP.
const SCTP_CHECKSUM_AT: u16 = 8;

/// The CWR bit in byte 13 of a TCP header.
const CWR: u8 = 0x80;

/// Bytes of tags of a frame with one.
const TAG_LEN: usize = 4;

/// Sets what is left to do with a frame that came with this header; `tag` if the kernel had taken a tag out, which is
/// back in the frame. `false` for a frame that nobody here knows how to finish: segments of another protocol than TCP
/// and UDP or in an unknown tunnel, datagrams of an odd size above 32 KB, and SCTP, whose checksum is a CRC.
pub(crate) fn read(header: &[u8; HEADER_LEN], tag: bool, packet: &mut Packet) -> bool {
    let [flags, kind, _, _, a, b, c, d, e, f] = *header;
    let is_open = flags & NEEDS_CHECKSUM != 0;
    if kind == TYPE_NONE && !is_open {
        return true;
    }
    let from = usize::from(u16::from_ne_bytes([c, d])) + if tag { TAG_LEN } else { 0 };
    let field = u16::from_ne_bytes([e, f]);
    if kind & !TYPE_ECN == TYPE_NONE {
        return read_checksum(from, field, packet);
    }
    let size = u16::from_ne_bytes([a, b]);
    // Segments of TCP may be a byte shorter; datagrams may not.
    let shorter = || match kind & !TYPE_ECN {
        TYPE_TCP_V4 | TYPE_TCP_V6 => Offload::segments(size.saturating_sub(1)),
        _ => None,
    };
    let Some(offload) = Offload::segments(size).or_else(shorter) else { return false };
    packet.offload = offload;
    // What is cut later is found in the same way, so it is what the kernel means.
    let is_known = Layout::of_packet(packet).is_some_and(|layout| {
        let is_kind = match kind & !TYPE_ECN {
            TYPE_TCP_V4 => layout.is_tcp && layout.is_v4,
            TYPE_TCP_V6 => layout.is_tcp && !layout.is_v4,
            TYPE_UDP => !layout.is_tcp,
            _ => false,
        };
        let place = (usize::from(layout.l4), layout.checksum_at());
        is_kind && (!is_open || (from, usize::from(field)) == place)
    });
    // A segment merged by a card comes with a finished checksum.
    is_known && (is_open || open_checksum(packet))
}

/// Sets what is left to do with a frame whose sum from byte `from` on is to be stored `field` bytes behind that.
fn read_checksum(from: usize, field: u16, packet: &mut Packet) -> bool {
    let frame = packet.data();
    let place = (from, usize::from(field));
    let is_plain = Layout::of(frame, packet.frame_len())
        .is_some_and(|layout| (usize::from(layout.l4), layout.checksum_at()) == place);
    if is_plain {
        packet.offload = Offload::CHECKSUM;
        return true;
    }
    let from = from.checked_sub(link_len(frame)).and_then(|from| u16::try_from(from).ok());
    // The header does not say that the checksum of SCTP is a CRC, but no other checksum is there.
    let offload = from
        .filter(|_| field != SCTP_CHECKSUM_AT)
        .and_then(|from| Offload::checksum_at(from, field));
    packet.offload = offload.unwrap_or_default();
    checksum_place(packet).is_some()
}

/// The header for a frame; all zero for one that is finished. `None` for a frame that is not what its offload says, and for
/// segments in a tunnel: the kernel takes those by no header of this length.
pub(crate) fn write(packet: &Packet) -> Option<[u8; HEADER_LEN]> {
    let mut header = [0; HEADER_LEN];
    if packet.offload.is_none() {
        return Some(header);
    }
    header[0] = NEEDS_CHECKSUM;
    if packet.offload.checksum_place().is_some() {
        let (from, at) = checksum_place(packet)?;
        header[6..8].copy_from_slice(&(from as u16).to_ne_bytes());
        header[8..10].copy_from_slice(&((at - from) as u16).to_ne_bytes());
        return Some(header);
    }
    let frame = packet.data();
    let layout = Layout::of_packet(packet).filter(|layout| layout.outer.is_none())?;
    if let Some(size) = packet.offload.segment_bytes() {
        let flags = frame.get(usize::from(layout.l4) + 13).copied().unwrap_or(0);
        header[1] = match (layout.is_tcp, layout.is_v4) {
            (false, _) => TYPE_UDP,
            (true, true) => TYPE_TCP_V4,
            (true, false) => TYPE_TCP_V6,
        };
        if layout.is_tcp && flags & CWR != 0 {
            header[1] |= TYPE_ECN;
        }
        header[2..4].copy_from_slice(&layout.payload.to_ne_bytes());
        header[4..6].copy_from_slice(&(size as u16).to_ne_bytes());
    }
    header[6..8].copy_from_slice(&layout.l4.to_ne_bytes());
    header[8..10].copy_from_slice(&(layout.checksum_at() as u16).to_ne_bytes());
    Some(header)
}

#[cfg(test)]
mod tests;
