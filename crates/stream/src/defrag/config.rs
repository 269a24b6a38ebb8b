//! Bounds and policies of a defragmenter.

use super::policy::Policy;

/// What to do with a datagram whose upper-layer header is split over fragments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TinyFirst {
    /// Reassemble it and report it in [`Notes::tiny_first`](super::Notes::tiny_first).
    #[default]
    Report,
    /// Discard it ([`Reason::TinyFirst`](super::Reason::TinyFirst)).
    Drop,
}

/// Bounds and policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Key of the hashes: drawn at random, so that nobody can choose fragments that collide.
    pub seed: u64,
    /// Incomplete datagrams at a time.
    pub datagrams: usize,
    /// Held fragments at a time, of all datagrams.
    pub fragments: usize,
    /// Fragments of one datagram, duplicates included. 65,535 bytes at an MTU of 576 are 119.
    pub fragments_per_datagram: usize,
    /// Bytes of all incomplete datagrams, in blocks of 2,048. At least one datagram of 65,535 bytes has room.
    pub bytes: usize,
    /// IPv4 time-out in nanoseconds; Linux has 30 s (`ipfrag_time`).
    pub timeout_v4_ns: u64,
    /// IPv6 time-out in nanoseconds; RFC 8200 has 60 s.
    pub timeout_v6_ns: u64,
    /// IPv4 overlaps.
    pub policy_v4: Policy,
    /// IPv6 overlaps.
    pub policy_v6: Policy,
    /// Split upper-layer headers.
    pub tiny_first: TinyFirst,
}

impl Config {
    /// How long the fragments of a datagram of a family, 4 or 6, are waited for, in nanoseconds.
    pub fn timeout_ns(&self, family: u8) -> u64 {
        if family == 6 { self.timeout_v6_ns } else { self.timeout_v4_ns }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            seed: 0,
            datagrams: 1024,
            fragments: 8192,
            fragments_per_datagram: 128,
            bytes: 4 << 20,
            timeout_v4_ns: 30_000_000_000,
            timeout_v6_ns: 60_000_000_000,
            policy_v4: Policy::Bsd,
            policy_v6: Policy::Drop,
            tiny_first: TinyFirst::Report,
        }
    }
}
