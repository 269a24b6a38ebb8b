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
///   0                           nothing
///   1                           the checksum of TCP or UDP
///   2 to 32,767 = n             the checksum, and to be cut into segments of n bytes of payload
///   1 0 │ from 8 │ field / 2 6  the sum from a place on, stored in a field behind that place
///   1 1 │ n / 2 - 16,384 14     as above, for an even n from 32,768 on: a link with an MTU of 64 KB has such segments
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

/// Marks long segments, together with [`PLACED`].
const LONG: u16 = PLACED | 1 << 14;

const FIELD_BITS: u32 = 6;

impl Offload {
    /// The frame is as it will be on the wire.
    pub const NONE: Offload = Offload(0);
    /// The checksum of TCP or UDP is open.
    pub const CHECKSUM: Offload = Offload(1);

    /// Segments of `bytes` of payload each, the last one shorter, with their checksums. `None` for fewer than 2 bytes, and
    /// for an odd number above 32,767, which has no room here.
    #[inline]
    pub const fn segments(bytes: u16) -> Option<Offload> {
        match bytes {
            0 | 1 => None,
            2..PLACED => Some(Offload(bytes)),
            _ if bytes.is_multiple_of(2) => Some(Offload(LONG | ((bytes - PLACED) / 2))),
            _ => None,
        }
    }

    /// An open checksum that is anywhere in the frame: the sum of the bytes from byte `from` on, counted from the header
    /// behind the Ethernet header and its tags, is to be stored in the two bytes at `from + field`, which hold the sum of
    /// the pseudo-header. `None` for a `from` of more than 255 bytes, and for a `field` that is odd or above 126.
    #[inline]
    pub const fn checksum_at(from: u16, field: u16) -> Option<Offload> {
        let fits =
            from < 1 << (14 - FIELD_BITS) && field.is_multiple_of(2) && field / 2 < 1 << FIELD_BITS;
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
        match self.0 {
            2..PLACED => Some(self.0 as usize),
            LONG.. => Some((PLACED + (self.0 - LONG) * 2) as usize),
            _ => None,
        }
    }

    /// `from` and `field` of a checksum with its place ([`Offload::checksum_at`]).
    #[inline]
    pub const fn checksum_place(self) -> Option<(usize, usize)> {
        if self.0 < PLACED || self.0 >= LONG {
            return None;
        }
        let from = (self.0 & !PLACED) >> FIELD_BITS;
        let field = (self.0 & ((1 << FIELD_BITS) - 1)) * 2;
        Some((from as usize, field as usize))
    }
}

impl fmt::Debug for Offload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.segment_bytes(), self.checksum_place()) {
            (Some(bytes), _) => write!(f, "segments of {bytes} bytes"),
            (_, Some((from, field))) => write!(f, "checksum from {from} at {field}"),
            _ => f.write_str(if self.is_none() { "none" } else { "checksum" }),
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
            let is_odd = bytes % 2 == 1;
            assert_eq!(offload.is_some(), bytes > 1 && !(is_odd && bytes > 32_767), "{bytes}");
            let Some(offload) = offload else { continue };
            assert_eq!(
                (offload.segment_bytes(), offload.checksum_place()),
                (Some(bytes.into()), None)
            );
        }
        for from in (0..600).step_by(step) {
            for field in 0..140 {
                let offload = Offload::checksum_at(from, field);
                assert_eq!(offload.is_some(), from < 256 && field < 128 && field % 2 == 0);
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
