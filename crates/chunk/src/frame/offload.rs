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
///   0: nothing    1: the checksum of TCP or UDP    n > 1: the checksum, and to be cut into segments of n bytes of payload
/// ```
///
/// Which protocol it is, and where its header begins, the frame itself says: a stage that changes the link header has
/// nothing to change here. A stage that changes addresses or ports of an unfinished packet changes the sum of the
/// pseudo-header, which is in the checksum field, not inverted.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub struct Offload(u16);

impl Offload {
    /// The frame is as it will be on the wire.
    pub const NONE: Offload = Offload(0);
    /// The checksum of TCP or UDP is open.
    pub const CHECKSUM: Offload = Offload(1);

    /// Segments of `bytes` of payload each, the last one shorter, with their checksums. `None` for fewer than 2 bytes,
    /// which nothing sends.
    #[inline]
    pub const fn segments(bytes: u16) -> Option<Offload> {
        if bytes > 1 { Some(Offload(bytes)) } else { None }
    }

    /// Whether nothing is left to do.
    #[inline]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Bytes of payload in each segment, of a frame that is to be cut.
    #[inline]
    pub const fn segment_bytes(self) -> Option<usize> {
        if self.0 > 1 { Some(self.0 as usize) } else { None }
    }
}

impl fmt::Debug for Offload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("none"),
            1 => f.write_str("checksum"),
            bytes => write!(f, "segments of {bytes} bytes"),
        }
    }
}
