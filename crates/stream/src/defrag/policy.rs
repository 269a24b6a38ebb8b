//! Which bytes win where fragments overlap.
//!
//! RFC 791 lets a receiver use either copy, and systems differ. An inspector that decides otherwise than the target can be
//! evaded: it sees harmless bytes where the target sees an attack (Ptacek and Newsham 1998). So the policy is the target's
//! (Shankar and Paxson, Active Mapping, 2003; Novak, Target-Based Fragmentation Reassembly, 2005), under the names that
//! Suricata and Snort use.
//!
//! What is held of a datagram is a sorted list of pieces that do not overlap. A new fragment is compared with each piece
//! that it overlaps, as that piece is now: what an earlier overlap took of it no longer counts.
//!
//! ```text
//!  held   ├───1───┤     ├───2───┤        ├──3──┤
//!  new          ├─────────4──────────────────────┤
//!                 bsd: 1 wins (starts before), 2 and 3 lose
//!                 windows: 1 wins, 2 and 3 lose (4 starts before and ends behind them)
//! ```

use super::Piece;

/// Which of two overlapping fragments keeps the bytes that both have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// The one that arrived first.
    First,
    /// The one that arrived last.
    Last,
    /// The held one if it starts at or before the new one; otherwise the new one. 4.4BSD, AIX, FreeBSD, HP-UX 10, IRIX.
    #[default]
    Bsd,
    /// The held one if it starts at or behind the new one and ends behind it; otherwise the new one. HP JetDirect.
    BsdRight,
    /// The held one if it starts before the new one; otherwise the new one. Linux before 4.19, OpenBSD.
    Linux,
    /// The new one if it starts before the held one and ends behind it; otherwise the held one.
    Windows,
    /// The new one if it starts before the held one and ends with it or behind it; otherwise the held one.
    Solaris,
    /// None: the whole datagram is discarded, also fragments that come later (RFC 5722 §4). Linux since 4.19 for IPv4 too.
    Drop,
}

impl Policy {
    /// All of them.
    pub const ALL: [Policy; 8] = [
        Policy::First,
        Policy::Last,
        Policy::Bsd,
        Policy::BsdRight,
        Policy::Linux,
        Policy::Windows,
        Policy::Solaris,
        Policy::Drop,
    ];

    /// The name in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            Policy::First => "first",
            Policy::Last => "last",
            Policy::Bsd => "bsd",
            Policy::BsdRight => "bsd-right",
            Policy::Linux => "linux",
            Policy::Windows => "windows",
            Policy::Solaris => "solaris",
            Policy::Drop => "drop",
        }
    }

    /// The policy of a name.
    pub fn from_name(name: &str) -> Option<Policy> {
        Policy::ALL.into_iter().find(|policy| policy.name() == name)
    }

    /// Whether a new fragment takes the bytes that it has in common with a held piece.
    #[inline]
    pub(super) const fn new_wins(self, held: Piece, new: Piece) -> bool {
        match self {
            Policy::First | Policy::Drop => false,
            Policy::Last => true,
            Policy::Bsd => held.start > new.start,
            Policy::BsdRight => held.start < new.start || held.end <= new.end,
            Policy::Linux => held.start >= new.start,
            Policy::Windows => new.start < held.start && new.end > held.end,
            Policy::Solaris => new.start < held.start && new.end >= held.end,
        }
    }
}

/// Adds a fragment to the sorted pieces `held`: appends the pieces that then are held to `out`, and calls `won` with each
/// range of which the fragment keeps the bytes.
pub(super) fn merge(
    policy: Policy,
    held: &[Piece],
    new: Piece,
    out: &mut Vec<Piece>,
    mut won: impl FnMut(Piece),
) {
    // Where the part of `new` that is not settled yet starts.
    let mut at = new.start;
    let mut keep = |start: u16, end: u16, out: &mut Vec<Piece>| {
        if start < end {
            out.push(Piece { start, end });
            won(Piece { start, end });
        }
    };
    for piece in held {
        if piece.end <= new.start {
            out.push(*piece);
        } else if piece.start >= new.end {
            keep(at, new.end, out);
            at = new.end;
            out.push(*piece);
        } else if policy.new_wins(*piece, new) {
            if piece.start < new.start {
                out.push(Piece { start: piece.start, end: new.start });
            }
            if piece.end > new.end {
                keep(at, new.end, out);
                at = new.end;
                out.push(Piece { start: new.end, end: piece.end });
            }
        } else {
            keep(at, piece.start, out);
            out.push(*piece);
            at = piece.end;
        }
    }
    keep(at, new.end, out);
}
