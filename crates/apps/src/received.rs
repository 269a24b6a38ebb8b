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
use packet::{Anomaly, Decoded};

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

/// [`packet::decode()`] for a received packet.
pub(crate) fn decode(packet: &Packet) -> Decoded {
    let mut d = Decoded::default();
    decode_into(packet, &mut d);
    d
}
