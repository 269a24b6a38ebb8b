//! The router's columns.
//!
//! Few and narrow: at 15 million packets a second every column costs. What the rewrite needs of
//! a packet beyond these it reads from the header, whose cache line it must write anyway.

use chunk::Verdict;

chunk::columns! {
    /// Columns of the router. All but `decision` are written by `decode`.
    pub struct RouterColumns / RouterView {
        /// [`flags`]: family, and what is odd about the packet.
        pub flags: u16,
        /// Where the IP or ARP header starts, bytes from the frame's start: 14, 18 or 22.
        pub l3: u8,
        /// The interface that the packet came in by.
        pub interface: u16,
        /// Symmetric flow hash, for equal-cost groups.
        pub flow_hash: u32,
        /// IPv4 destination, host order; of IPv4 packets only.
        pub dst4: u32,
        /// IPv4 source; written only where `rpf` is in the pipeline.
        pub src4: u32,
        /// IPv6 destination; of IPv6 packets only.
        pub dst6: [u64; 2],
        /// IPv6 source; written only where `rpf` is in the pipeline.
        pub src6: [u64; 2],
        /// [`Decision`] of `route`.
        pub decision: u32,
    }
}

chunk::columns! {
    /// What `decode` writes where a later stage reads [headers](crate::firewall::HeaderColumns) or
    /// records.
    pub(crate) struct DecodeColumns / DecodeView {
        pub flags: u16,
        pub l3: u8,
        pub interface: u16,
        pub flow_hash: u32,
        pub dst4: u32,
        pub src4: u32,
        pub dst6: [u64; 2],
        pub src6: [u64; 2],
        pub filter_family: u8,
        pub filter_head0: [u64; 2],
        pub filter_head1: [u64; 2],
        pub filter_head2: [u64; 2],
        pub filter_l3: u8,
        pub record: [u64; 8],
        pub record_is_known: u8,
    }
}

/// Bits of the column `flags`.
///
/// ```text
///  15       8 7                                  0
/// ┌──────────┬───────────────────────────────────┐
/// │ argument │ may-fragment link-local answer 6 4│    a plain packet is exactly IPV4 or exactly IPV6
/// └──────────┴───────────────────────────────────┘
/// ```
pub(crate) mod flags {
    /// IPv4, to be routed.
    pub(crate) const IPV4: u16 = 1 << 0;
    /// IPv6, to be routed.
    pub(crate) const IPV6: u16 = 1 << 1;
    /// Not to be routed: the router itself answers, in the way that the argument says
    /// ([`Answer`](super::Answer)).
    pub(crate) const ANSWER: u16 = 1 << 2;
    /// An address is link-local: for us at most.
    pub(crate) const LINK_LOCAL: u16 = 1 << 3;
    /// IPv6 with a fragment header of the whole, from a stage that made it of IPv4 or is its source: it may leave in fragments
    /// ([`packet::fragment::Fragmenter6`]).
    pub(crate) const MAY_FRAGMENT: u16 = 1 << 4;
    /// The argument's lowest bit.
    pub(crate) const ARGUMENT_SHIFT: u32 = 8;
}

/// What the router itself answers, kept in `flags`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// An ARP request for one of our addresses.
    Arp,
    /// A neighbour solicitation for one of our addresses.
    Neighbour,
    /// An IPv6 packet to our link-local address.
    LinkLocal,
    /// A packet of IPv4 that the firewall rejected.
    RejectedV4,
    /// The same of IPv6.
    RejectedV6,
    /// A packet of IPv4 that is too long for what becomes of it; the column `decision` has the longest that is not.
    TooBigV4,
    /// The same of IPv6.
    TooBigV6,
    /// An ICMPv6 echo request to an address that stands for one of ours.
    Echo,
    /// An IPv4 header whose option at this offset is malformed.
    BadOption(u8),
}

impl Answer {
    /// As a value of the column `flags`. Offsets of options are 20 to 59, so that the others fit
    /// below.
    pub(crate) const fn encode(self) -> u16 {
        let argument = match self {
            Answer::Arp => 0,
            Answer::Neighbour => 1,
            Answer::LinkLocal => 2,
            Answer::RejectedV4 => 3,
            Answer::RejectedV6 => 4,
            Answer::TooBigV4 => 5,
            Answer::TooBigV6 => 6,
            Answer::Echo => 7,
            Answer::BadOption(pointer) => pointer as u16,
        };
        flags::ANSWER | argument << flags::ARGUMENT_SHIFT
    }

    /// What the firewall makes of a packet with these flags that it rejects.
    pub(crate) const fn rejected(flags: u16) -> Self {
        if flags & flags::IPV4 != 0 { Answer::RejectedV4 } else { Answer::RejectedV6 }
    }

    pub(super) const fn decode(flags: u16) -> Self {
        match (flags >> flags::ARGUMENT_SHIFT) as u8 {
            0 => Answer::Arp,
            1 => Answer::Neighbour,
            2 => Answer::LinkLocal,
            3 => Answer::RejectedV4,
            4 => Answer::RejectedV6,
            5 => Answer::TooBigV4,
            6 => Answer::TooBigV6,
            7 => Answer::Echo,
            pointer => Answer::BadOption(pointer),
        }
    }
}

/// The flags of an IPv6 packet that the route has taken for the IPv4 packet that it would have become.
pub(crate) const fn of_v6(flags: u16) -> u16 {
    if flags & flags::ANSWER == 0 {
        return flags & !flags::IPV4 | flags::IPV6;
    }
    match Answer::decode(flags) {
        Answer::RejectedV4 => Answer::RejectedV6.encode(),
        Answer::TooBigV4 => Answer::TooBigV6.encode(),
        _ => flags,
    }
}

/// What `route` decided about a packet, as one value of the column `decision`.
///
/// ```text
///   31  28 27                      0
///  ┌──────┬────────────────────────┐
///  │ kind │ adjacency or interface │    kind 0: an adjacency
///  └──────┴────────────────────────┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// To this adjacency.
    Adjacency(u32),
    /// To the destination itself, on the link of this interface.
    Connected(u16),
    /// To an address of this interface.
    Local(u16),
    /// To the directed broadcast of this interface.
    Broadcast(u16),
    /// No route covers the destination.
    NoRoute,
    /// The route says unreachable.
    Unreachable,
}

impl Decision {
    /// Adjacencies that the column can name.
    pub(super) const ADJACENCIES_MAX: u32 = 1 << 28;

    pub(super) const fn encode(self) -> u32 {
        match self {
            Decision::Adjacency(index) => index,
            Decision::Connected(interface) => 1 << 28 | interface as u32,
            Decision::Local(interface) => 2 << 28 | interface as u32,
            Decision::Broadcast(interface) => 3 << 28 | interface as u32,
            Decision::NoRoute => 4 << 28,
            Decision::Unreachable => 5 << 28,
        }
    }

    pub(super) const fn decode(value: u32) -> Self {
        match value >> 28 {
            0 => Decision::Adjacency(value),
            1 => Decision::Connected(value as u16),
            2 => Decision::Local(value as u16),
            3 => Decision::Broadcast(value as u16),
            5 => Decision::Unreachable,
            _ => Decision::NoRoute,
        }
    }
}

/// The column `decision` of a packet without a route.
pub(crate) const NOWHERE: u32 = Decision::NoRoute.encode();

/// The interface by which a packet leaves, by its column `decision`; `None` for one that does not.
pub(crate) fn egress(decision: u32, fib: &lookup::fib::Fib) -> Option<u16> {
    match Decision::decode(decision) {
        Decision::Adjacency(index) => fib.adjacency(index).map(|adjacency| adjacency.interface),
        Decision::Connected(interface) => Some(interface),
        _ => None,
    }
}

/// Whether the route of a packet says that it goes no further.
pub(crate) const fn leads_nowhere(decision: u32) -> bool {
    matches!(Decision::decode(decision), Decision::NoRoute | Decision::Unreachable)
}

/// Whether a row is still on its way.
#[inline(always)]
pub(super) const fn is_live(verdict: u32) -> bool {
    Verdict(verdict).is_next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_and_answers_survive_their_column() {
        let decisions = [
            Decision::Adjacency(0),
            Decision::Adjacency(Decision::ADJACENCIES_MAX - 1),
            Decision::Connected(u16::MAX),
            Decision::Local(3),
            Decision::Broadcast(4),
            Decision::NoRoute,
            Decision::Unreachable,
        ];
        for decision in decisions {
            assert_eq!(Decision::decode(decision.encode()), decision);
        }
        let answers = [
            Answer::Arp,
            Answer::Neighbour,
            Answer::LinkLocal,
            Answer::Echo,
            Answer::RejectedV4,
            Answer::RejectedV6,
            Answer::TooBigV4,
            Answer::TooBigV6,
            Answer::BadOption(20),
            Answer::BadOption(59),
        ];
        for answer in answers {
            assert_eq!(Answer::decode(answer.encode()), answer);
            assert_ne!(answer.encode() & flags::ANSWER, 0);
        }
    }
}
