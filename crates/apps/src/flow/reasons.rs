//! Drop reasons of a monitor, and of fragments that are held back for inspection.

chunk::drop_reasons! {
    /// What a monitor drops for.
    pub const BLOCK: 7, "monitor";

    MONITORED = 0, "monitored", "the packet was processed; a monitor forwards nothing",
        "Nothing: this is where packets of a monitor end.";
}

pub use held::BLOCK as HELD;

/// Fragments that were held back for a stage that inspects the whole datagram.
pub mod held {
    use chunk::DropReason;
    use stream::defrag::Reason;

    chunk::drop_reasons! {
        /// What fragments are dropped for that do not become a datagram.
        pub const BLOCK: 17, "fragments before inspection";

        FRAGMENT_TIMEOUT = 0, "fragment_timeout", "the other fragments of the datagram did not come in time, so it could not be inspected",
            "Look for loss on the path. `frag` of `[flow]` says how long fragments wait.";
        FRAGMENT_EVICTED = 1, "fragment_evicted", "too many fragments waited for others; those of the pair of hosts with the most gave way",
            "Find the sender: a host that sends fragments that never complete attacks the memory for them.";
        FRAGMENT_CONFLICT = 2, "fragment_conflict", "fragments of a datagram overlap with other bytes, or contradict each other about its end",
            "Find the sender: hosts put such fragments together in different ways, and that is used to evade inspection.";
        FRAGMENT_INVALID = 3, "fragment_invalid", "a fragment that no host takes: empty, too long, with a wrong header or length, or one of too many",
            "Find the sender: it is broken, or it attacks the receiver's reassembly.";
    }

    /// What a fragment is dropped for whose datagram failed for this reason.
    pub const fn of(reason: Reason) -> DropReason {
        match reason {
            Reason::Timeout | Reason::Shutdown => FRAGMENT_TIMEOUT,
            Reason::Evicted => FRAGMENT_EVICTED,
            Reason::TwoEnds | Reason::BeyondEnd | Reason::Overlap => FRAGMENT_CONFLICT,
            Reason::TooLong
            | Reason::Misaligned
            | Reason::ZeroLength
            | Reason::BadHeader
            | Reason::Malformed
            | Reason::TooMany
            | Reason::TinyFirst => FRAGMENT_INVALID,
        }
    }
}
