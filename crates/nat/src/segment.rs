//! What of a TCP segment says something about its session, and which resets count.
//!
//! Whoever does not see a connection can send a reset with its ends. If it ended the session, the connection would lose its port. So
//! a reset counts only if its receiver may take it: RFC 7857 §2 asks for such a check, and Linux has it (`nf_conntrack`, "invalid
//! rst"). A receiver takes a reset with exactly the number that it expects next, which is at least what it has acknowledged, and
//! answers one within its window by an acknowledgment (RFC 5961 §3). Numbers before that never count.
//!
//! The acknowledgments that decide are those of the receiver: packets that are forged in the name of the other end do not change them.
//!
//! ```text
//!              last known acknowledgment    + STEP + WINDOW
//!   ── ignored ─┼──────────── counts ────────────┼─ ignored ──▶ sequence number of the reset
//! ```
//!
//! A reset that counts wrongly, because its number is by chance in that range, costs little: the next packet of the connection, such
//! as the acknowledgment by which the receiver answers it, opens the session again.

const RST: u8 = 4;
const ACK: u8 = 16;

/// A TCP segment: flags and numbers. All zero for other protocols.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tcp {
    /// The eight lower flags.
    pub flags: u8,
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgment, if ACK is set.
    pub acknowledgment: u32,
}

impl Tcp {
    /// Of the bytes of a segment; zeros where its header is not there.
    #[inline(always)]
    pub fn of(segment: &[u8]) -> Self {
        let Some(head) = segment.first_chunk::<14>() else { return Self::default() };
        let number =
            |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        Self { flags: head[13], sequence: number(4), acknowledgment: number(8) }
    }

    /// With these flags; its numbers are zero.
    pub const fn with(flags: u8) -> Self {
        Self { flags, sequence: 0, acknowledgment: 0 }
    }

    /// Whether it says what its sender expects next.
    pub(crate) const fn acknowledges(self) -> bool {
        self.flags & (RST | ACK) == ACK
    }
}

/// How far a reset may be beyond the last acknowledgment that is known: the largest window without scaling.
const WINDOW: u32 = 0xffff;

/// The acknowledgment in a cache is written when another part of so many bytes begins: it is at most so old.
pub(crate) const STEP: u32 = 1 << 15;

/// Whether an end that has acknowledged this may take a reset with that number.
pub(crate) const fn fits(acknowledged: u32, sequence: u32) -> bool {
    sequence.wrapping_sub(acknowledged) < STEP + WINDOW
}

/// The same where edited lines of FTP have moved the numbers by some bytes.
pub(crate) const fn fits_nearly(acknowledged: u32, sequence: u32) -> bool {
    fits(acknowledged.wrapping_sub(WINDOW), sequence) || fits(acknowledged, sequence)
}
