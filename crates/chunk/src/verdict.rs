//! What a stage decides about a packet, as one 32-bit column value.
//!
//! ```text
//!   31      24 23                     0
//!  ┌──────────┬───────────────────────┐
//!  │ kind     │ argument              │   argument: port index (forward, host), drop reason (drop), place (again)
//!  └──────────┴───────────────────────┘
//! ```

use std::fmt;

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
    pub const fn again(place: u16) -> Self {
        Verdict((VerdictKind::Again as u32) << 24 | place as u32)
    }

    /// Out of port `port`.
    pub const fn forward(port: u16) -> Self {
        Verdict((VerdictKind::Forward as u32) << 24 | port as u32)
    }

    /// To the Linux twin of `port`.
    pub const fn host(port: u16) -> Self {
        Verdict((VerdictKind::Host as u32) << 24 | port as u32)
    }

    /// Dropped for `reason`.
    pub const fn drop(reason: DropReason) -> Self {
        Verdict((VerdictKind::Drop as u32) << 24 | reason as u32)
    }

    /// Its kind. An unknown code, which only a broken kernel could write, reads as a drop.
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
    pub const fn port(self) -> u16 {
        self.0 as u16
    }

    /// The reason of a drop; [`DropReason::Unknown`] for a code that is none.
    pub fn reason(self) -> DropReason {
        DropReason::from_code((self.0 & 0xff_ffff) as u16)
    }

    /// Whether the next stage sees the packet.
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

macro_rules! drop_reasons {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $text:literal;)*) => {
        /// Why a packet was dropped. The one list of the whole program: names appear in counters,
        /// in Prometheus labels and in `dropped.pcapng`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u16)]
        pub enum DropReason {
            $(#[doc = $text] $(#[$doc])* $variant,)*
        }

        /// Every reason, in order of its code.
        pub const DROP_REASONS: &[DropReason] = &[$(DropReason::$variant,)*];

        impl DropReason {
            /// Its name in counters: lower case, words joined by `_`.
            pub const fn name(self) -> &'static str {
                match self { $(DropReason::$variant => $name,)* }
            }

            /// One sentence for people.
            pub const fn text(self) -> &'static str {
                match self { $(DropReason::$variant => $text,)* }
            }
        }
    };
}

drop_reasons! {
    Unknown = "unknown", "a stage gave a verdict that does not exist";
    NoVerdict = "no_verdict", "the last stage passed the packet on, and there was no next one";
    // Receive and transmit
    RxFull = "rx_full", "the kernel's receive queue was full";
    RxNoCells = "rx_no_cells", "no cell was free at receive";
    RxOversize = "rx_oversize", "the frame is longer than the queue or all cells can hold";
    RxUnreadable = "rx_unreadable", "the record is no frame that can be read: another link type, a broken descriptor";
    TxFull = "tx_full", "the transmit queue was full";
    TxOversize = "tx_oversize", "the frame is longer than the port can send";
    TxPortDown = "tx_port_down", "the port is down or gone";
    TxFailed = "tx_failed", "the kernel, the driver or the file refused the frame";
    TxNoPort = "tx_no_port", "the verdict names a port that does not exist";
    HostUnreachable = "host_absent", "for the host, and the port has no twin";
    RingFull = "ring_full", "the ring to another worker was full";
    NoCells = "no_cells", "no cell was free for a packet that a stage had to make";
    StagePanic = "stage_panic", "a stage panicked while it worked on the packet's chunk, or the worker has given its stages up";
    AgainTooOften = "again_too_often", "sent through the pipeline more often than it may be";
    AgainFull = "again_full", "too many packets wait to go through the pipeline again";
    FaultInjected = "fault_injected", "lost on purpose by a port's `fault`";
    // Link layer
    Truncated = "truncated", "the frame ends within a header";
    NotForUs = "not_for_us", "the destination MAC address is not the port's";
    VlanUnknown = "vlan_unknown", "nobody here takes frames with this VLAN tag";
    VlanTruncated = "vlan_truncated", "the frame ends within a VLAN tag";
    VlanTooMany = "vlan_too_many", "more than two VLAN tags";
    SourceMacGroup = "source_mac_group", "the source MAC address is a group's, which no station may use";
    InterfaceDown = "interface_down", "the interface is down, or there is none on this port";
    EtherTypeUnknown = "ethertype_unknown", "nothing that is forwarded here, and there is no host to take it";
    ArpMalformed = "arp_malformed", "the ARP packet is malformed";
    NdMalformed = "nd_malformed", "the neighbour discovery packet is malformed";
    // IP header, RFC 1812 section 5.2.2
    IpBadVersion = "ip_bad_version", "the IP version contradicts the EtherType";
    IpBadHeaderLength = "ip_bad_header_length", "the IPv4 header length is below 20 bytes or beyond the packet";
    IpBadTotalLength = "ip_bad_total_length", "the IP total length is below the header's or beyond the frame";
    IpBadChecksum = "ip_bad_checksum", "the IPv4 header checksum is wrong";
    IpMartianSource = "ip_martian_source", "the source address must not appear on the wire";
    IpMartianDestination = "ip_martian_destination", "the destination address must not be forwarded";
    IpBadOptions = "ip_bad_options", "an IPv4 option is longer than the header, or has no length";
    Ip6ExtensionHeaders = "ip6_extension_headers", "an IPv6 extension header runs over the end of the packet";
    Ip6ExtensionLoop = "ip6_extension_loop", "an IPv6 extension header more often than it may occur, or hop-by-hop options not first";
    Ip6ExtensionsTooMany = "ip6_extensions_too_many", "more IPv6 extension headers than are followed";
    IpZeroLengthFragment = "ip_zero_length_fragment", "a fragment without payload";
    IpOverlongFragment = "ip_overlong_fragment", "a fragment that ends beyond 65,535 bytes";
    // Forwarding
    TtlExpired = "ttl_expired", "the TTL or hop limit ran out";
    NoRoute = "no_route", "no route to the destination";
    Blackhole = "blackhole", "the route is a blackhole";
    Unreachable = "unreachable", "the route is marked unreachable";
    ReversePath = "reverse_path", "the reverse-path check failed";
    MulticastNotForwarded = "multicast_not_forwarded", "multicast is not forwarded";
    BroadcastNotForwarded = "broadcast_not_forwarded", "a link-layer broadcast or multicast is not forwarded";
    LinkLocalNotForwarded = "link_local_not_forwarded", "a link-local address is not forwarded";
    FragmentationNeeded = "fragmentation_needed", "larger than the MTU, and fragmentation is not allowed";
    TooBig = "too_big", "larger than the MTU of the next link";
    SourceRoute = "source_route", "source routing is not honoured";
    NeighbourQueueFull = "neighbour_queue_full", "too many packets wait for this neighbour";
    NeighbourFailed = "neighbour_failed", "the neighbour did not answer, or is not known";
    Consumed = "consumed", "control traffic that the router itself answered or learnt from";
    NotMine = "not_mine", "an ARP or neighbour question about somebody else's address";
    BadLookup = "bad_lookup", "a table entry out of range";
    // Layer-2 switch
    VlanNotAllowed = "vlan_not_allowed", "the port does not carry this VLAN, or takes no tags";
    SourceMacZero = "source_mac_zero", "the source MAC address is zero, which no station has";
    BridgeReserved = "bridge_reserved", "the destination is one of 01:80:c2:00:00:00 to 0f, which no bridge forwards";
    SamePort = "same_port", "the station is behind the port that the frame came in by";
    FloodNowhere = "flood_nowhere", "no other port carries the VLAN";
    StormControl = "storm_control", "more flooded frames than the port may send";
    // Firewall
    FirewallDrop = "firewall_drop", "a rule of the firewall, or its default, says so";
    FirewallReject = "firewall_reject", "a rule of the firewall, or its default, says so, and its sender is told";
    FirewallShort = "firewall_short", "ends before ports, type or flags that rules may ask for, or a fragment that could write over them";
    FirewallMalformed = "firewall_malformed", "a malformed IP packet, which no rule can judge";
    // Named data
    NdnMalformed = "ndn_malformed", "not an NDN packet of format 0.3, or a wrong UDP checksum around it";
    NdnTooLong = "ndn_too_long", "an NDN packet in a frame of more than one cell";
    NdnFragment = "ndn_fragment", "a fragment of an NDN packet or of the datagram around it";
    NdnNoFace = "ndn_no_face", "from a neighbour that is no face";
    NdnHopLimit = "ndn_hop_limit", "the Interest's hop limit ran out";
    NdnNoNonce = "ndn_no_nonce", "an Interest without a nonce";
    NdnLoop = "ndn_loop", "the Interest's nonce has been here before";
    NdnPitFull = "ndn_pit_full", "no room for another pending Interest";
    NdnAggregated = "ndn_aggregated", "the Interest waits with an earlier one for the same name";
    NdnUnsolicited = "ndn_unsolicited", "Data that nobody waits for";
    NdnSatisfied = "ndn_satisfied", "Data whose only asker was the face that it came by, or that no longer waits";
    NdnNack = "ndn_nack", "an Interest that came back";
    NdnIdle = "ndn_idle", "a link packet that carries nothing";
    Test = "test", "dropped by a test stage";
}

impl DropReason {
    /// How many reasons there are.
    pub const COUNT: usize = DROP_REASONS.len();

    /// The reason of code `code`, [`DropReason::Unknown`] where there is none.
    pub fn from_code(code: u16) -> Self {
        DROP_REASONS.get(code as usize).copied().unwrap_or(DropReason::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_keep_their_codes_and_have_distinct_names() {
        let mut names: Vec<_> = DROP_REASONS.iter().map(|r| r.name()).collect();
        for (code, &reason) in DROP_REASONS.iter().enumerate() {
            assert_eq!(reason as usize, code);
            assert_eq!(Verdict::drop(reason).reason(), reason);
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), DropReason::COUNT);
    }

    #[test]
    fn an_unknown_code_is_a_drop() {
        assert_eq!(Verdict(0xff00_0000).kind(), VerdictKind::Drop);
        assert_eq!(Verdict(0x02ff_ffff).reason(), DropReason::Unknown);
    }
}
