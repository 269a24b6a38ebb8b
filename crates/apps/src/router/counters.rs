//! Counters of what the router makes beside the packets it was given. Every received packet has
//! its one fate in the engine's counters; an ICMP error that the rate limit withheld is no packet
//! and stands only here.

use engine::Counter;

/// Counters of one worker's router stages. Written by that worker alone, read by anybody.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct RouterCounters {
    /// ICMP and ICMPv6 errors sent.
    pub icmp_errors_sent: Counter,
    /// ICMP and ICMPv6 errors withheld by the rate limit.
    pub icmp_errors_withheld: Counter,
    /// Answers sent for the router's own addresses: ARP, neighbour advertisements, echo replies.
    pub answers_sent: Counter,
    /// IPv4 packets that were fragmented.
    pub fragmented: Counter,
    /// Fragments made.
    pub fragments_made: Counter,
    /// Neighbour events that found the channel full.
    pub events_lost: Counter,
}
