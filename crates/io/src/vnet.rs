//! The header that Linux puts before frames that their sender left unfinished (`struct virtio_net_hdr`).
//!
//! ```text
//!   flags 8 │ type 8 │ headers 16 │ segment 16 │ checksum from 16 │ checksum at 16 │ frame …      in the host's byte order
//! ```
//!
//! AF_PACKET and TAP take and give it on request. What it says is in [`chunk::Offload`] and in the frame itself, so nothing
//! of it is kept: it is made anew from the frame when that leaves.
//!
//! See Linux, include/uapi/linux/virtio_net.h; Virtio 1.2 §5.1.6.

use chunk::{Offload, Packet};
use packet::offload::{Layout, open_checksum};

/// Bytes of the header.
pub(crate) const HEADER_LEN: usize = 10;

const NEEDS_CHECKSUM: u8 = 1;

const TYPE_NONE: u8 = 0;
const TYPE_TCP_V4: u8 = 1;
const TYPE_TCP_V6: u8 = 4;
const TYPE_UDP: u8 = 5;
/// The first segment reduces the congestion window, the others must not say so.
const TYPE_ECN: u8 = 0x80;

/// The CWR bit in byte 13 of a TCP header.
const CWR: u8 = 0x80;

/// Bytes of tags of a frame with one.
const TAG_LEN: usize = 4;

/// Sets what is left to do with a frame that came with this header; `tag` if the kernel had taken a tag out, which is
/// back in the frame. `false` for a frame that nobody here knows how to finish: a tunnel, or another protocol than TCP
/// and UDP.
pub(crate) fn read(header: &[u8; HEADER_LEN], tag: bool, packet: &mut Packet) -> bool {
    let [flags, kind, _, _, a, b, c, d, e, f] = *header;
    let is_open = flags & NEEDS_CHECKSUM != 0;
    if kind == TYPE_NONE && !is_open {
        return true;
    }
    let Some(layout) = Layout::of(packet.data(), packet.frame_len()) else { return false };
    if is_open {
        let from = usize::from(u16::from_ne_bytes([c, d])) + if tag { TAG_LEN } else { 0 };
        let at = usize::from(u16::from_ne_bytes([e, f]));
        if (from, at) != (usize::from(layout.l4), layout.checksum_at()) {
            return false;
        }
    }
    let is_known = match kind & !TYPE_ECN {
        TYPE_NONE => {
            packet.offload = Offload::CHECKSUM;
            return true;
        }
        TYPE_TCP_V4 => layout.is_tcp && layout.is_v4,
        TYPE_TCP_V6 => layout.is_tcp && !layout.is_v4,
        TYPE_UDP => !layout.is_tcp,
        _ => false,
    };
    let Some(offload) = Offload::segments(u16::from_ne_bytes([a, b])).filter(|_| is_known) else {
        return false;
    };
    packet.offload = offload;
    // A segment merged by a card comes with a finished checksum.
    is_open || open_checksum(packet)
}

/// The header for a frame; all zero for one that is finished. `None` for a frame that is not what its offload says.
pub(crate) fn write(packet: &Packet) -> Option<[u8; HEADER_LEN]> {
    let mut header = [0; HEADER_LEN];
    if packet.offload.is_none() {
        return Some(header);
    }
    let frame = packet.data();
    let layout = Layout::of(frame, packet.frame_len())?;
    header[0] = NEEDS_CHECKSUM;
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
