//! Segments behind a SYN that came while a connection was open, and that may have begun another one.
//!
//! Whether it did, the other end says. In a capture without the SYN-ACK it may say so only after data of the new connection, which
//! is none of the old one. So segments behind such a SYN are copied, and given to the new connection once the other end is heard
//! of it:
//!
//! ```text
//!   client   SYN  ACK  "first"                     "second"
//!   server                      ACK of "first"               …
//!                └──┬──────────┘└─ begins the new connection: what was copied comes first
//!                   copied, each with the number of its SYN
//! ```
//!
//! All memory is taken at creation. The oldest copy makes room for a new one; of one SYN there are at most
//! [`OF_ONE`](Behind::OF_ONE).

use super::Segment;

/// Bytes of data of a copy at most.
const LEN_MAX: usize = 2048;

/// A segment, and when it came. Options are left out: outside of SYN nobody reads them.
#[derive(Clone, Debug, Default)]
struct Copy {
    /// Number of its SYN; 0 for none.
    number: u16,
    sequence: u32,
    acknowledgment: u32,
    flags: u16,
    window: u16,
    urgent_pointer: u16,
    missing: u16,
    len: u16,
    time_ns: u64,
}

/// The copies of a reassembler.
#[derive(Debug)]
pub(super) struct Behind {
    copies: Vec<Copy>,
    bytes: Vec<u8>,
    /// The place of the next one.
    next: usize,
    /// Number of the latest SYN.
    number: u16,
}

impl Behind {
    /// Copies of one SYN.
    const OF_ONE: usize = 8;

    /// How many there are beside a buffer of so many bytes: 1% of it, at most 512 KiB.
    const fn count(buffer_bytes: usize) -> usize {
        let count = buffer_bytes / 100 / LEN_MAX;
        match count {
            0..Self::OF_ONE => Self::OF_ONE,
            Self::OF_ONE..256 => count,
            _ => 256,
        }
    }

    /// Bytes of memory beside a buffer of so many bytes.
    pub(super) const fn memory_bytes(buffer_bytes: usize) -> usize {
        Self::count(buffer_bytes) * (LEN_MAX + size_of::<Copy>())
    }

    pub(super) fn new(buffer_bytes: usize) -> Self {
        let count = Self::count(buffer_bytes);
        let (copies, bytes) = (vec![Copy::default(); count], vec![0; count * LEN_MAX]);
        Self { copies, bytes, next: 0, number: 0 }
    }

    /// The number of a SYN: no copy has it.
    pub(super) fn begin(&mut self) -> u16 {
        self.number = self.number.wrapping_add(1);
        if self.number == 0 {
            self.copies.iter_mut().for_each(|copy| copy.number = 0);
            self.number = 1;
        }
        self.number
    }

    /// Copies a segment behind the SYN of this number, if it is not too long and there are not too many.
    pub(super) fn keep(&mut self, number: u16, segment: &Segment<'_>, time_ns: u64) {
        let own = self.copies.iter().filter(|copy| copy.number == number).count();
        let len = segment.payload.len();
        if len > LEN_MAX || own == Self::OF_ONE {
            return;
        }
        let at = self.next;
        self.next = (at + 1) % self.copies.len();
        self.bytes[at * LEN_MAX..][..len].copy_from_slice(segment.payload);
        let &Segment { sequence, acknowledgment, flags, window, urgent_pointer, missing, .. } =
            segment;
        let len = len as u16;
        self.copies[at] = Copy {
            number,
            sequence,
            acknowledgment,
            flags,
            window,
            urgent_pointer,
            missing,
            len,
            time_ns,
        };
    }

    /// The oldest copy behind the SYN of this number, and when it came; its bytes are written to `bytes`. It is no copy any more.
    pub(super) fn take<'a>(
        &mut self,
        number: u16,
        bytes: &'a mut [u8; LEN_MAX],
    ) -> Option<(Segment<'a>, u64)> {
        let count = self.copies.len();
        let mut places = (self.next..count).chain(0..self.next);
        let at = places.find(|&at| self.copies[at].number == number)?;
        let copy = std::mem::take(&mut self.copies[at]);
        let bytes = &mut bytes[..copy.len.into()];
        bytes.copy_from_slice(&self.bytes[at * LEN_MAX..][..bytes.len()]);
        let segment = Segment {
            sequence: copy.sequence,
            acknowledgment: copy.acknowledgment,
            flags: copy.flags,
            window: copy.window,
            urgent_pointer: copy.urgent_pointer,
            options: &[],
            payload: bytes,
            missing: copy.missing,
        };
        Some((segment, copy.time_ns))
    }

    /// Room for the bytes of a copy.
    pub(super) const fn room() -> [u8; LEN_MAX] {
        [0; LEN_MAX]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(sequence: u32, payload: &[u8]) -> Segment<'_> {
        Segment { sequence, payload, ..Segment::default() }
    }

    #[test]
    fn copies_come_back_in_order_and_only_to_their_syn() {
        let mut behind = Behind::new(0);
        let mut room = Behind::room();
        let (one, other) = (behind.begin(), behind.begin());
        for at in 0..10 {
            behind.keep(one, &segment(at, &[at as u8; 3]), at.into());
        }
        behind.keep(one, &segment(0, &[0; LEN_MAX + 1]), 0);
        // It takes the place of the oldest one.
        behind.keep(other, &segment(77, b"other"), 7);
        for at in 1..8 {
            let taken = behind.take(one, &mut room);
            assert_eq!(taken, Some((segment(at, &[at as u8; 3]), at.into())));
        }
        assert_eq!(behind.take(one, &mut room), None);
        assert_eq!(behind.take(other, &mut room), Some((segment(77, b"other"), 7)));
        // Numbers that come round find nothing of those before.
        behind.keep(other, &segment(1, b"old"), 0);
        (0..u16::MAX).for_each(|_| _ = behind.begin());
        assert_eq!((behind.begin(), behind.take(other, &mut room)), (other + 1, None));
    }
}
