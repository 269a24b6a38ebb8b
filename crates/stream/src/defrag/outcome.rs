//! What comes out: whole datagrams, failures with their reasons, counts.

use super::fragment::DatagramKey;

/// Why a datagram, or a fragment by itself, did not become whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Reason {
    /// A packet of more than 65,535 bytes ("ping of death").
    TooLong,
    /// A fragment before the last whose length is not a multiple of 8; it is discarded alone.
    Misaligned,
    /// A fragment without payload; it is discarded alone.
    ZeroLength,
    /// A first fragment whose header is malformed or longer than [`HEADER_ROOM`](super::HEADER_ROOM); discarded alone.
    BadHeader,
    /// The decoder found something wrong with the packet, or not all of its bytes are there; it is discarded alone.
    Malformed,
    /// Two last fragments that end at different places.
    TwoEnds,
    /// Bytes behind the end of the last fragment.
    BeyondEnd,
    /// More fragments than a datagram may have.
    TooMany,
    /// The upper-layer header is split ([`TinyFirst::Drop`](super::TinyFirst)).
    TinyFirst,
    /// Fragments overlap ([`Policy::Drop`](super::Policy)).
    Overlap,
    /// Not whole within the time-out.
    Timeout,
    /// Its memory was needed for another datagram.
    Evicted,
    /// The run ended.
    Shutdown,
}

impl Reason {
    /// All of them, in the order of their numbers.
    pub const ALL: [Reason; 13] = [
        Reason::TooLong,
        Reason::Misaligned,
        Reason::ZeroLength,
        Reason::BadHeader,
        Reason::Malformed,
        Reason::TwoEnds,
        Reason::BeyondEnd,
        Reason::TooMany,
        Reason::TinyFirst,
        Reason::Overlap,
        Reason::Timeout,
        Reason::Evicted,
        Reason::Shutdown,
    ];

    /// Name for counters and events, in snake case.
    pub const fn name(self) -> &'static str {
        match self {
            Reason::TooLong => "too_long",
            Reason::Misaligned => "misaligned",
            Reason::ZeroLength => "zero_length",
            Reason::BadHeader => "bad_header",
            Reason::Malformed => "malformed",
            Reason::TwoEnds => "two_ends",
            Reason::BeyondEnd => "beyond_end",
            Reason::TooMany => "too_many",
            Reason::TinyFirst => "tiny_first",
            Reason::Overlap => "overlap",
            Reason::Timeout => "timeout",
            Reason::Evicted => "evicted",
            Reason::Shutdown => "shutdown",
        }
    }

    /// Plain text.
    pub const fn text(self) -> &'static str {
        match self {
            Reason::TooLong => "the reassembled packet would exceed 65,535 bytes",
            Reason::Misaligned => "the length of a fragment before the last is not a multiple of 8",
            Reason::ZeroLength => "a fragment without payload",
            Reason::BadHeader => "the header of the first fragment is malformed or too long",
            Reason::Malformed => "the packet is malformed or truncated",
            Reason::TwoEnds => "two last fragments end at different places",
            Reason::BeyondEnd => "a fragment has bytes behind the end of the datagram",
            Reason::TooMany => "the datagram has too many fragments",
            Reason::TinyFirst => "the upper-layer header is split over fragments",
            Reason::Overlap => "fragments overlap",
            Reason::Timeout => "not all fragments arrived within the time-out",
            Reason::Evicted => "the memory of the datagram was needed for another one",
            Reason::Shutdown => "the run ended before all fragments arrived",
        }
    }

    /// The datagram is remembered until its time-out, so that later fragments fail for the same reason, instead of
    /// becoming another datagram (RFC 5722 §4).
    pub(super) const fn is_remembered(self) -> bool {
        !matches!(self, Reason::Timeout | Reason::Evicted | Reason::Shutdown)
    }
}

/// What happened to the fragments of a datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// Fragments that had arrived before: same offset, length and bytes.
    pub duplicates: u32,
    /// Fragments that overlapped others, duplicates not counted.
    pub overlaps: u32,
    /// Those among them with other bytes at the same place: an error of the sender, or an attempt to evade inspection.
    pub conflicts: u32,
    /// The upper-layer header was split.
    pub tiny_first: bool,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// The datagram is whole. An IPv6 datagram may contain a fragment header again: who follows it bounds how often.
    Whole {
        /// The frame: link header of the first fragment, corrected IP header, payload.
        frame: &'a [u8],
        /// Where the IP header starts in it.
        ip_at: usize,
    },
    /// The datagram, or a fragment alone, failed.
    Failed(Reason),
}

/// A datagram that came to an end, or a fragment that was discarded alone.
#[derive(Debug)]
pub struct Output<'a, P> {
    /// The datagram.
    pub key: DatagramKey,
    /// How it ended.
    pub outcome: Outcome<'a>,
    /// Tokens of its fragments in the order in which they arrived; those that the receiver leaves are dropped. Later
    /// fragments of a datagram that failed come one by one.
    pub tokens: std::vec::Drain<'a, P>,
    /// What happened on the way.
    pub notes: Notes,
    /// The first fragment is among them: after a time-out its sender gets an ICMP error (RFC 792, RFC 4443 §3.3).
    pub has_first: bool,
    /// When the first of the fragments arrived, in nanoseconds.
    pub start_ns: u64,
}

/// Counts since creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Fragments that came in.
    pub fragments: u64,
    /// Datagrams that became whole, atomic ones included.
    pub whole: u64,
    /// Datagrams that were whole in one fragment (RFC 6946).
    pub atomic: u64,
    /// See [`Notes::duplicates`].
    pub duplicates: u64,
    /// See [`Notes::overlaps`].
    pub overlaps: u64,
    /// See [`Notes::conflicts`].
    pub conflicts: u64,
    /// Datagrams whose upper-layer header was split.
    pub tiny_first: u64,
    /// Failures by [`Reason`]; of a datagram that failed, also each later fragment.
    pub failed: [u64; Reason::ALL.len()],
}
