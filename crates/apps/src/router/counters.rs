//! Counters of what the router makes beside the packets it was given, and of what passes
//! subinterfaces. Every received packet has its one fate in the engine's counters; an ICMP error that
//! the rate limit withheld is not a packet and is only here.
//!
//! A port's queues count its packets. A subinterface has no queue, and that of a tunnel has no packets, so the stages
//! count what comes in with its tags and what leaves with them: on their tagged paths alone, the untagged one pays nothing.

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
    /// Packets that were fragmented.
    pub fragmented: Counter,
    /// Fragments made.
    pub fragments_made: Counter,
    /// Neighbour events that found the channel full.
    pub events_lost: Counter,
    /// By interface.
    tagged: Box<[TaggedCounters]>,
}

/// Packets of one interface that have tags, or are those of a tunnel.
#[derive(Debug, Default)]
pub struct TaggedCounters {
    /// Packets that came in with its tags, or by its associations.
    pub rx_packets: Counter,
    /// Their bytes, tags and link header included.
    pub rx_bytes: Counter,
    /// Packets that were handed to its port with its tags, or sealed.
    pub tx_packets: Counter,
    /// Their bytes.
    pub tx_bytes: Counter,
}

impl RouterCounters {
    /// Counters for a router of so many interfaces; with [`RouterCounters::default`] those of
    /// subinterfaces are not kept.
    pub fn new(interfaces: usize) -> Self {
        let tagged = (0..interfaces).map(|_| TaggedCounters::default()).collect();
        Self { tagged, ..Self::default() }
    }

    /// How many interfaces it counts for.
    pub(crate) fn interfaces(&self) -> usize {
        self.tagged.len()
    }

    /// The tagged packets of an interface; `None` where they are not kept.
    pub fn tagged(&self, interface: u16) -> Option<&TaggedCounters> {
        self.tagged.get(usize::from(interface))
    }

    pub(crate) fn count_tagged_rx(&self, interface: u16, bytes: usize) {
        if let Some(counters) = self.tagged(interface) {
            counters.rx_packets.add(1);
            counters.rx_bytes.add(bytes as u64);
        }
    }

    pub(crate) fn count_tagged_tx(&self, interface: u16, bytes: usize) {
        if let Some(counters) = self.tagged(interface) {
            counters.tx_packets.add(1);
            counters.tx_bytes.add(bytes as u64);
        }
    }
}
