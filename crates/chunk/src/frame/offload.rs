//! What the sender of a frame left for a network card to do.
//!
//! Linux hands frames over unfinished where it takes the other side for a card, as on a veth pair or a TAP interface: the
//! checksum of TCP or UDP is the sum of the pseudo-header only, and one frame of up to 64 KB holds many segments. Such a
//! frame passes the pipeline as one packet and leaves as it came where the way out can finish it; elsewhere it is finished
//! and cut in software before it leaves (`io::offload`).

use std::fmt;

/// Nothing, a checksum, or a checksum and a segmentation.
///
/// ```text
///   0                         nothing
///   1                         the checksum of TCP or UDP
///   2 to 32,767 = n           the checksum, and to be cut into segments of n bytes of payload
///   1 │ from 9 │ field / 2 6  the sum from a place on, stored in a field behind that place
/// ```
///
/// Which protocol it is, and where its header begins, the frame itself says: a stage that changes the link header has
/// nothing to change here. A checksum inside a tunnel has its place, counted from the header behind the tags, so that
/// nobody needs to know the tunnel to fill it in. In a frame of segments inside a tunnel the headers say where the inner
/// packet is; only known tunnels are taken. A stage that changes addresses or ports of an unfinished packet changes the sum
/// of the pseudo-header, which is in the checksum field, not inverted.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub struct Offload(u16);

/// Marks a checksum with its place.
const PLACED: u16 = 1 << 15;

const FIELD_BITS: u32 = 6;

impl Offload {
    /// The frame is as it will be on the wire.
    pub const NONE: Offload = Offload(0);
    /// The checksum of TCP or UDP is open.
    pub const CHECKSUM: Offload = Offload(1);

    /// Segments of `bytes` of payload each, the last one shorter, with their checksums. `None` for fewer than 2 bytes and
    /// for more than 32,767, which nothing sends: a frame has no room for two of those.
    #[inline]
    pub const fn segments(bytes: u16) -> Option<Offload> {
        if bytes > 1 && bytes < PLACED { Some(Offload(bytes)) } else { None }
    }

    /// An open checksum that is anywhere in the frame: the sum of the bytes from byte `from` on, counted from the header
    /// behind the Ethernet header and its tags, is to be stored in the two bytes at `from + field`, which hold the sum of
    /// the pseudo-header. `None` for a `from` of more than 511 bytes, and for a `field` that is odd or above 126.
    #[inline]
    pub const fn checksum_at(from: u16, field: u16) -> Option<Offload> {
        let fits =
            from < 1 << (15 - FIELD_BITS) && field.is_multiple_of(2) && field / 2 < 1 << FIELD_BITS;
        if fits { Some(Offload(PLACED | (from << FIELD_BITS) | (field / 2))) } else { None }
    }

    /// Whether nothing is left to do.
    #[inline]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Bytes of payload in each segment, of a frame that is to be cut.
    #[inline]
    pub const fn segment_bytes(self) -> Option<usize> {
        if self.0 > 1 && self.0 < PLACED { Some(self.0 as usize) } else { None }
    }

    /// `from` and `field` of a checksum with its place ([`Offload::checksum_at`]).
    #[inline]
    pub const fn checksum_place(self) -> Option<(usize, usize)> {
        if self.0 < PLACED {
            return None;
        }
        let from = (self.0 & !PLACED) >> FIELD_BITS;
        let field = (self.0 & ((1 << FIELD_BITS) - 1)) * 2;
        Some((from as usize, field as usize))
    }
}

impl fmt::Debug for Offload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.checksum_place()) {
            (_, Some((from, field))) => write!(f, "checksum from {from} at {field}"),
            (0, _) => f.write_str("none"),
            (1, _) => f.write_str("checksum"),
            (bytes, _) => write!(f, "segments of {bytes} bytes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_says_what_it_was_made_of_and_no_other() {
        // Each value; few of them where instructions are simulated.
        let step = if cfg!(miri) { 331 } else { 1 };
        for bytes in (0..=u16::MAX).step_by(step) {
            let offload = Offload::segments(bytes);
            assert_eq!(offload.is_some(), (2..=32_767).contains(&bytes), "{bytes}");
            let Some(offload) = offload else { continue };
            assert_eq!(
                (offload.segment_bytes(), offload.checksum_place()),
                (Some(bytes.into()), None)
            );
        }
        for from in (0..600).step_by(step) {
            for field in 0..140 {
                let offload = Offload::checksum_at(from, field);
                assert_eq!(offload.is_some(), from < 512 && field < 128 && field % 2 == 0);
                let Some(offload) = offload else { continue };
                let place = Some((usize::from(from), usize::from(field)));
                assert_eq!((offload.checksum_place(), offload.segment_bytes()), (place, None));
                assert!(!offload.is_none());
            }
        }
        for offload in [Offload::NONE, Offload::CHECKSUM] {
            assert_eq!((offload.checksum_place(), offload.segment_bytes()), (None, None));
        }
    }
}
