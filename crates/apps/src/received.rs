//! Received packets, and what is done about their checksums.
//!
//! Whether checksums are verified is a choice of the port (`checksums` in `[port.NAME]`, or `-k`). The queue marks the
//! packets of a port that ignores them, so no stage needs to know ports. What was ignored stays as it is: `rewrite` updates
//! a checksum incrementally (RFC 1624), so a wrong one is forwarded wrong.
//!
//! Pure functions: any thread.

use chunk::Packet;
use engine::MARK_CHECKSUMS_IGNORED;
use packet::checksum::Checksums;
use packet::{Anomaly, Decoded, IpProtocol};

/// What is done about the checksums of a packet.
#[inline]
pub(crate) fn checksums(packet: &Packet) -> Checksums {
    match packet.mark & MARK_CHECKSUMS_IGNORED {
        0 => Checksums::Verify,
        _ => Checksums::Ignore,
    }
}

/// Whether what is wrong with a packet by its record `d` is a checksum that is ignored.
#[inline]
pub(crate) fn is_forgiven(packet: &Packet, d: &Decoded) -> bool {
    d.anomaly == Anomaly::BadChecksum && checksums(packet) == Checksums::Ignore
}

/// Takes a wrong checksum that is ignored back from the record `d` of a packet.
#[inline]
pub(crate) fn forgive(packet: &Packet, d: &mut Decoded) {
    if is_forgiven(packet, d) {
        packet::decode::ignore_checksum(d);
    }
}

/// [`packet::decode_into`] for a received packet.
#[inline]
pub(crate) fn decode_into(packet: &Packet, d: &mut Decoded) {
    packet::decode::decode_into(packet.data(), packet.frame_len(), d);
    forgive(packet, d);
}

/// What [`decode_into`] finds of a packet that a capture cut, by the length that it had on the wire: the payload may end before
/// the packet does. For stages that follow packets and send none. A fragment stays truncated, for its datagram cannot be put
/// together, and so does a packet that was cut within its headers, or whose sender sent fewer bytes than its header says. Whether it
/// changed the record.
#[cold]
pub(crate) fn decode_cut(packet: &Packet, d: &mut Decoded) -> bool {
    if packet.cut_bytes() == 0 {
        return false;
    }
    let mut own = Decoded::default();
    packet::decode::decode_into(packet.data(), packet.wire_len(), &mut own);
    forgive(packet, &mut own);
    let has_headers = own.anomaly != Anomaly::Truncated
        && packet.data().len()
            >= usize::from(own.l4_offset) + upper_header_len(packet.data(), &own);
    let is_better = has_headers && !own.has(Decoded::FRAGMENT);
    if is_better {
        *d = own;
    }
    is_better
}

/// Bytes of the header behind that of IP, without which a packet has no flow.
fn upper_header_len(frame: &[u8], d: &Decoded) -> usize {
    match d.protocol {
        IpProtocol::TCP => {
            let words = frame.get(usize::from(d.l4_offset) + 12).map_or(0, |byte| byte >> 4);
            packet::tcp::HEADER_LEN.max(4 * usize::from(words))
        }
        IpProtocol::UDP | IpProtocol::ICMP | IpProtocol::ICMPV6 => 8,
        _ => 0,
    }
}

/// [`packet::decode()`] for a received packet.
pub(crate) fn decode(packet: &Packet) -> Decoded {
    let mut d = Decoded::default();
    decode_into(packet, &mut d);
    d
}
