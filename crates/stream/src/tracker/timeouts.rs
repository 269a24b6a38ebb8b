//! How long flows are kept without packets.

use packet::IpProtocol;

use crate::record::FlowState;
use crate::table::Class;
use crate::tcp::Conntrack;

/// How long flows are kept without packets, in nanoseconds, by protocol and state. Names and meaning are those of Linux's
/// `nf_conntrack_*_timeout_*` (Documentation/networking/nf_conntrack-sysctl.rst); [`Conntrack`] has the states of TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleTimeouts {
    /// TCP after SYN.
    pub tcp_syn_sent: u64,
    /// TCP after SYN and its answer.
    pub tcp_syn_recv: u64,
    /// TCP after the handshake.
    pub tcp_established: u64,
    /// TCP after the first FIN.
    pub tcp_fin_wait: u64,
    /// TCP after the acknowledgment of the first FIN.
    pub tcp_close_wait: u64,
    /// TCP after the FIN of the other end.
    pub tcp_last_ack: u64,
    /// TCP after the acknowledgment of both.
    pub tcp_time_wait: u64,
    /// TCP after a reset.
    pub tcp_close: u64,
    /// TCP with data that nobody has acknowledged, where the time-out of the state is longer.
    pub tcp_unacknowledged: u64,
    /// UDP without an answer.
    pub udp: u64,
    /// UDP with one.
    pub udp_stream: u64,
    /// ICMP.
    pub icmp: u64,
    /// ICMPv6.
    pub icmpv6: u64,
    /// Other protocols.
    pub generic: u64,
}

/// The default: GASPP §4.1 removes connections after 60 s.
pub const IDLE_NS: u64 = 60_000_000_000;

impl Default for IdleTimeouts {
    /// GASPP's 60 s for what has no answer or has ended, and 10 minutes for established connections. For connections that one
    /// end has closed, and for data without an acknowledgment, those of Linux.
    fn default() -> Self {
        Self {
            tcp_syn_sent: IDLE_NS,
            tcp_syn_recv: IDLE_NS,
            tcp_established: 10 * IDLE_NS,
            tcp_fin_wait: 2 * IDLE_NS,
            tcp_close_wait: IDLE_NS,
            // The last FIN is sent again after up to that time (TCP_RTO_MAX of Linux).
            tcp_last_ack: 2 * IDLE_NS,
            tcp_time_wait: IDLE_NS,
            tcp_close: IDLE_NS,
            tcp_unacknowledged: 5 * IDLE_NS,
            udp: IDLE_NS,
            udp_stream: IDLE_NS,
            icmp: IDLE_NS,
            icmpv6: IDLE_NS,
            generic: IDLE_NS,
        }
    }
}

/// Which time-out a flow has, in a byte.
///
/// ```text
///   7                    6 … 4      3 … 0
///  ┌────────────────────┬──────────┬───────────────────────────────────┐
///  │ unacknowledged data│ protocol │ state: of TCP, or 1 with an answer│
///  └────────────────────┴──────────┴───────────────────────────────────┘
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Phase(u8);

impl Phase {
    const UNACKNOWLEDGED: u8 = 0x80;
    const OTHER: u8 = 0 << 4;
    const TCP: u8 = 1 << 4;
    const UDP: u8 = 2 << 4;
    const ICMP: u8 = 3 << 4;
    const ICMPV6: u8 = 4 << 4;

    /// Of a TCP connection.
    #[inline(always)]
    pub(super) fn of_tcp(state: Conntrack, is_unacknowledged: bool) -> Self {
        let bit = if is_unacknowledged { Self::UNACKNOWLEDGED } else { 0 };
        Self(bit | Self::TCP | state as u8)
    }

    /// The same, with or without data that is not acknowledged.
    #[inline(always)]
    pub(super) fn with_unacknowledged(self, is_unacknowledged: bool) -> Self {
        let bit = if is_unacknowledged { Self::UNACKNOWLEDGED } else { 0 };
        Self(self.0 & !Self::UNACKNOWLEDGED | bit)
    }

    /// Of a flow of another protocol, with or without an answer.
    pub(super) fn of_other(protocol: u8, is_answered: bool) -> Self {
        let protocol = match IpProtocol(protocol) {
            IpProtocol::UDP => Self::UDP,
            IpProtocol::ICMP => Self::ICMP,
            IpProtocol::ICMPV6 => Self::ICMPV6,
            _ => Self::OTHER,
        };
        Self(protocol | u8::from(is_answered))
    }

    /// Whether it is that of an established TCP connection.
    #[inline(always)]
    pub(super) fn is_established_tcp(self) -> bool {
        self.0 & !Self::UNACKNOWLEDGED == Self::TCP | Conntrack::Established as u8
    }

    /// The class in the table of a flow that both ends have sent packets of: an established TCP connection stays, one that is
    /// over goes first where there is no room.
    pub(super) fn class(self) -> Class {
        match (self.0 & 0x70, self.conntrack()) {
            (_, Some(Conntrack::LastAck | Conntrack::TimeWait | Conntrack::Close)) => Class::Closed,
            (Self::UDP | Self::ICMP | Self::ICMPV6, _) => Class::Yielding,
            _ => Class::Full,
        }
    }

    fn conntrack(self) -> Option<Conntrack> {
        let state = Conntrack::ALL.into_iter().find(|state| *state as u8 == self.0 & 0xf);
        state.filter(|_| self.0 & 0x70 == Self::TCP)
    }

    /// How far the flow came.
    pub(super) fn state(self) -> FlowState {
        match self.conntrack() {
            Some(Conntrack::SynSent | Conntrack::SynRecv) => FlowState::New,
            Some(Conntrack::TimeWait | Conntrack::Close) => FlowState::Closed,
            Some(_) => FlowState::Established,
            None if self.0 & 0xf != 0 => FlowState::Established,
            None => FlowState::New,
        }
    }
}

impl IdleTimeouts {
    fn of_conntrack(&self, state: Conntrack) -> u64 {
        match state {
            Conntrack::SynSent => self.tcp_syn_sent,
            Conntrack::SynRecv => self.tcp_syn_recv,
            Conntrack::Established => self.tcp_established,
            Conntrack::FinWait => self.tcp_fin_wait,
            Conntrack::CloseWait => self.tcp_close_wait,
            Conntrack::LastAck => self.tcp_last_ack,
            Conntrack::TimeWait => self.tcp_time_wait,
            Conntrack::Close => self.tcp_close,
        }
    }

    fn of(&self, phase: Phase) -> u64 {
        let is_answered = phase.0 & 0xf != 0;
        let own = match (phase.0 & 0x70, phase.conntrack()) {
            (Phase::TCP, Some(state)) => self.of_conntrack(state),
            (Phase::UDP, _) if is_answered => self.udp_stream,
            (Phase::UDP, _) => self.udp,
            (Phase::ICMP, _) => self.icmp,
            (Phase::ICMPV6, _) => self.icmpv6,
            _ => self.generic,
        };
        match phase.0 & Phase::UNACKNOWLEDGED {
            0 => own,
            _ => own.min(self.tcp_unacknowledged),
        }
    }

    /// The same by phase.
    pub(super) fn by_phase(&self) -> ByPhase {
        let ns = std::array::from_fn(|phase| self.of(Phase(phase as u8)));
        ByPhase { ns, ms: ns.map(timeout_ms) }
    }

    /// The shortest of a class of the table, in milliseconds.
    pub(super) fn shortest_ms(&self, class: Class) -> u32 {
        let closing = [self.tcp_fin_wait, self.tcp_close_wait, self.tcp_last_ack];
        let closed = [self.tcp_time_wait, self.tcp_close, self.tcp_unacknowledged];
        let others = [self.icmp, self.icmpv6, self.generic];
        // A flow of a firewall stays half-open as long as one end is silent, whatever the other one sends.
        let own = match class {
            Class::HalfOpen => [self.tcp_syn_sent, self.tcp_syn_recv, self.udp],
            _ => [self.udp_stream; 3],
        };
        let all = [closing, closed, others, own];
        let shortest = all.as_flattened().iter().copied().fold(self.tcp_established, u64::min);
        timeout_ms(shortest)
    }
}

/// Time-outs by phase: one is looked up for each packet.
pub(super) struct ByPhase {
    ns: [u64; 256],
    ms: [u32; 256],
}

impl ByPhase {
    #[inline(always)]
    pub(super) fn of(&self, phase: Phase) -> u64 {
        self.ns[usize::from(phase.0)]
    }

    /// The same for the table: see [`timeout_ms`].
    #[inline(always)]
    pub(super) fn ms_of(&self, phase: Phase) -> u32 {
        self.ms[usize::from(phase.0)]
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Each state has the time-out of its name.
    #[test]
    fn each_phase_has_its_own_time_out() {
        let own = IdleTimeouts {
            tcp_syn_sent: 1,
            tcp_syn_recv: 2,
            tcp_established: 30,
            tcp_fin_wait: 4,
            tcp_close_wait: 5,
            tcp_last_ack: 6,
            tcp_time_wait: 7,
            tcp_close: 8,
            tcp_unacknowledged: 9,
            udp: 10,
            udp_stream: 11,
            icmp: 12,
            icmpv6: 13,
            generic: 14,
        };
        let tcp = |state, is_unacknowledged| own.of(Phase::of_tcp(state, is_unacknowledged));
        assert_eq!(Conntrack::ALL.map(|state| tcp(state, false)), [1, 2, 30, 4, 5, 6, 7, 8]);
        assert_eq!(Conntrack::ALL.map(|state| tcp(state, true)), [1, 2, 9, 4, 5, 6, 7, 8]);
        let other = |protocol: IpProtocol| {
            [false, true].map(|is_answered| own.of(Phase::of_other(protocol.0, is_answered)))
        };
        assert_eq!(other(IpProtocol::UDP), [10, 11]);
        assert_eq!(other(IpProtocol::ICMP), [12, 12]);
        assert_eq!(other(IpProtocol::ICMPV6), [13, 13]);
        assert_eq!(other(IpProtocol::ESP), [14, 14]);
        let closed = [Conntrack::TimeWait, Conntrack::Close];
        for state in Conntrack::ALL {
            let expected = match state {
                Conntrack::SynSent | Conntrack::SynRecv => FlowState::New,
                _ if closed.contains(&state) => FlowState::Closed,
                _ => FlowState::Established,
            };
            assert_eq!(Phase::of_tcp(state, true).state(), expected);
        }
        assert_eq!(Phase::default(), Phase::of_other(0, false));
    }
}
