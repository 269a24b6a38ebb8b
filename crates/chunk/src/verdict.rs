//! What a stage decides about a packet, as one 32-bit column value.
//!
//! ```text
//!   31      24 23                     0
//!  ┌──────────┬───────────────────────┐
//!  │ kind     │ argument              │   argument: port index (forward, host), drop reason (drop), place (again)
//!  └──────────┴───────────────────────┘
//! ```

use std::fmt;

use crate::reasons::{self, DropReason};

/// A verdict; see the module for its encoding. Zero is [`Verdict::NEXT`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct Verdict(pub u32);

/// The kind of a [`Verdict`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum VerdictKind {
    /// Goes to the next stage.
    Next = 0,
    /// Leaves by a port.
    Forward = 1,
    /// Is dropped, for a reason.
    Drop = 2,
    /// Goes to the Linux twin of a port.
    Host = 3,
    /// Goes to the capture sink and nowhere else.
    Dump = 4,
    /// Was taken over by a stage, which answers for it.
    Taken = 5,
    /// Goes through the pipeline again, from a place on.
    Again = 6,
}

impl Verdict {
    /// To the next stage.
    pub const NEXT: Verdict = Verdict(0);
    /// Taken over by a stage.
    pub const TAKEN: Verdict = Verdict((VerdictKind::Taken as u32) << 24);
    /// To the capture sink.
    pub const DUMP: Verdict = Verdict((VerdictKind::Dump as u32) << 24);

    /// Through the pipeline again, from the stage at `place` on, as the packet is when the chunk retires.
    #[inline]
    pub const fn again(place: u16) -> Self {
        Verdict((VerdictKind::Again as u32) << 24 | place as u32)
    }

    /// Out of port `port`.
    #[inline]
    pub const fn forward(port: u16) -> Self {
        Verdict((VerdictKind::Forward as u32) << 24 | port as u32)
    }

    /// To the Linux twin of `port`.
    #[inline]
    pub const fn host(port: u16) -> Self {
        Verdict((VerdictKind::Host as u32) << 24 | port as u32)
    }

    /// Dropped for `reason`.
    #[inline]
    pub const fn drop(reason: DropReason) -> Self {
        Verdict((VerdictKind::Drop as u32) << 24 | reason.code() as u32)
    }

    /// Its kind. An unknown code, which only a broken kernel could write, reads as a drop.
    #[inline]
    pub const fn kind(self) -> VerdictKind {
        match self.0 >> 24 {
            0 => VerdictKind::Next,
            1 => VerdictKind::Forward,
            3 => VerdictKind::Host,
            4 => VerdictKind::Dump,
            5 => VerdictKind::Taken,
            6 => VerdictKind::Again,
            _ => VerdictKind::Drop,
        }
    }

    /// The port of a forward or host verdict, or the place of an again verdict.
    #[inline]
    pub const fn port(self) -> u16 {
        self.0 as u16
    }

    /// The reason of a drop; [`reasons::UNKNOWN`] where the argument is too large for a code. A code that was not
    /// declared has a name, a text and a counter all the same: those of [`reasons::UNKNOWN`].
    #[inline]
    pub const fn reason(self) -> DropReason {
        match self.0 & 0xff_0000 {
            0 => DropReason::from_code(self.0 as u16),
            _ => reasons::UNKNOWN,
        }
    }

    /// Whether the next stage sees the packet.
    #[inline]
    pub const fn is_next(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Debug for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind() {
            VerdictKind::Next => f.write_str("next"),
            VerdictKind::Forward => write!(f, "forward(port {})", self.port()),
            VerdictKind::Drop => write!(f, "drop({})", self.reason().name()),
            VerdictKind::Host => write!(f, "host(port {})", self.port()),
            VerdictKind::Dump => f.write_str("dump"),
            VerdictKind::Taken => f.write_str("taken"),
            VerdictKind::Again => write!(f, "again(place {})", self.port()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reasons;

    #[test]
    fn a_drop_carries_its_reason() {
        for code in [0, 1, 0x00ff, 0x0100, 0x1234, u16::MAX] {
            let reason = DropReason::from_code(code);
            assert_eq!(Verdict::drop(reason).reason(), reason);
            assert_eq!(Verdict::drop(reason).kind(), VerdictKind::Drop);
        }
        assert_eq!(Verdict::drop(reasons::NO_CELLS).to_string(), "drop(no_cells)");
    }

    #[test]
    fn an_unknown_code_is_a_drop() {
        assert_eq!(Verdict(0xff00_0000).kind(), VerdictKind::Drop);
        assert_eq!(Verdict(0x02ff_ffff).to_string(), "drop(unknown)");
        assert_eq!(Verdict(0x0201_0002).reason(), reasons::UNKNOWN, "a code has 16 bits");
    }
}
