//! How long flows are kept without packets.

use packet::IpProtocol;

use crate::record::FlowState;
use crate::table::Class;

/// How long flows are kept without packets, in nanoseconds, by protocol and state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleTimeouts {
    /// TCP before the handshake is over.
    pub tcp_new: u64,
    /// TCP after it.
    pub tcp_established: u64,
    /// TCP after both ends closed, or a reset.
    pub tcp_closed: u64,
    /// UDP without an answer.
    pub udp_new: u64,
    /// UDP with one.
    pub udp_established: u64,
    /// ICMP and ICMPv6.
    pub icmp: u64,
    /// Other protocols.
    pub other: u64,
}

/// The default: GASPP §4.1 removes connections after 60 s.
pub const IDLE_NS: u64 = 60_000_000_000;

impl Default for IdleTimeouts {
    fn default() -> Self {
        Self {
            tcp_new: IDLE_NS,
            tcp_established: 10 * IDLE_NS,
            tcp_closed: IDLE_NS,
            udp_new: IDLE_NS,
            udp_established: IDLE_NS,
            icmp: IDLE_NS,
            other: IDLE_NS,
        }
    }
}

impl IdleTimeouts {
    pub(super) fn of(&self, protocol: u8, state: FlowState) -> u64 {
        match (IpProtocol(protocol), state) {
            (IpProtocol::TCP, FlowState::New) => self.tcp_new,
            (IpProtocol::TCP, FlowState::Closed) => self.tcp_closed,
            (IpProtocol::TCP, _) => self.tcp_established,
            (IpProtocol::UDP, FlowState::New) => self.udp_new,
            (IpProtocol::UDP, _) => self.udp_established,
            (IpProtocol::ICMP | IpProtocol::ICMPV6, _) => self.icmp,
            _ => self.other,
        }
    }

    /// The shortest of a class of the table, in milliseconds.
    pub(super) fn shortest_ms(&self, class: Class) -> u32 {
        let shortest = match class {
            Class::HalfOpen => self.tcp_new.min(self.udp_new).min(self.icmp).min(self.other),
            Class::Full => self
                .tcp_established
                .min(self.tcp_closed)
                .min(self.udp_established)
                .min(self.icmp)
                .min(self.other),
        };
        timeout_ms(shortest)
    }
}

/// A time-out for the table: not shorter than it is, and never over if it is longer than the table can tell.
pub(super) fn timeout_ms(ns: u64) -> u32 {
    u32::try_from(ns.div_ceil(1_000_000)).unwrap_or(u32::MAX)
}

/// A time for the table, in milliseconds; they wrap around.
pub(super) fn ms_of(ns: u64) -> u32 {
    (ns / 1_000_000) as u32
}
