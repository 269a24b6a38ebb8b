//! What a translator is made of and what it says: bounds, refusals, counts, sessions as they are shown.

use packet::IpProtocol;

use super::flags;
use crate::tuple::Tuple;

/// Idle times after which a session ends, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// TCP, established (RFC 5382 REQ-5: at least 2 hours 4 minutes).
    pub tcp_established: u32,
    /// TCP, partially open or closing (RFC 5382 REQ-5: at least 4 minutes).
    pub tcp_transitory: u32,
    /// UDP (RFC 4787 REQ-5: at least 2 minutes, 5 recommended).
    pub udp: u32,
    /// ICMP queries (RFC 5508 REQ-2: at least 60 seconds).
    pub icmp: u32,
    /// Other protocols.
    pub other: u32,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { tcp_established: 7440, tcp_transitory: 240, udp: 300, icmp: 60, other: 600 }
    }
}

impl Timeouts {
    /// No session ends earlier.
    pub(super) fn shortest(&self) -> u32 {
        let Self { tcp_established, tcp_transitory, udp, icmp, other } = *self;
        tcp_established.min(tcp_transitory).min(udp).min(icmp).min(other)
    }

    pub(super) fn of(&self, protocol: u8, bits: u8) -> u32 {
        let is_closing = bits & (flags::FIN | flags::FIN_BACK) == flags::FIN | flags::FIN_BACK;
        match IpProtocol(protocol) {
            IpProtocol::TCP if bits & flags::RESET != 0 || is_closing => self.tcp_transitory,
            IpProtocol::TCP if bits & flags::ESTABLISHED != 0 => self.tcp_established,
            IpProtocol::TCP => self.tcp_transitory,
            IpProtocol::UDP => self.udp,
            IpProtocol::ICMP | IpProtocol::ICMPV6 => self.icmp,
            _ => self.other,
        }
    }
}

/// Bounds and policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Sessions at most.
    pub sessions: usize,
    /// Bindings of an inside host at most.
    pub bindings_per_host: u32,
    /// Only remote ends that a host has sent to may answer (address- and port-dependent filtering); otherwise everybody
    /// may (endpoint-independent filtering).
    pub filter_by_remote: bool,
    /// Idle times.
    pub timeouts: Timeouts,
    /// Ports of FTP servers, whose control connections are read; none: FTP is a protocol like others.
    pub ftp_ports: &'static [u16],
    /// Selects hashes and ports: draw it at random.
    pub seed: u64,
}

/// Why a packet cannot be translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No free port at the outside address.
    Ports,
    /// No room for another session.
    Sessions,
    /// The host has as many bindings as it may.
    HostLimit,
    /// Another session has the same ends behind the translator.
    Conflict,
    /// The interface has no address.
    NoAddress,
    /// It is a TCP segment of no session, and begins none.
    Stray,
    /// Its rule is gone since it was looked up.
    Gone,
}

/// What a refusal is about, where a rule would change a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Number of the rule.
    pub rule: u16,
    /// The outside address, host order; `None`: the rule has none now.
    pub outside: Option<u32>,
    /// The ends of the packet before the translator.
    pub original: Tuple,
}

/// What a packet's source becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// It stays; the rule of this number changes the destination.
    Keep(u16),
    /// What the rule of this number says, of a packet that leaves by this interface.
    Rule(u16, u16),
    /// The same for a host that reaches another one of the inside by its outside address (RFC 4787 REQ-9). Both meet
    /// at the worker of the other one, so the port is of that one's class.
    Hairpin(u16, u16),
    /// The same of IPv6 hosts (RFC 6146 §3.8): source and destination become addresses of the prefix of this rule.
    Hairpin64(u16),
}

/// Which way a packet of a session goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// As its first packet.
    Forward,
    /// Back.
    Back,
}

impl Way {
    /// The other one.
    #[must_use]
    pub const fn back(self) -> Way {
        match self {
            Way::Forward => Way::Back,
            Way::Back => Way::Forward,
        }
    }
}

/// Events since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sessions made.
    pub sessions: u64,
    /// Sessions that were idle.
    pub expired: u64,
    /// Sessions that made room for new ones.
    pub given_up: u64,
    /// Packets of sessions.
    pub packets: u64,
    /// Resets that their receivers would not take: they leave their sessions as they are.
    pub resets_ignored: u64,
    /// ICMP errors translated.
    pub errors: u64,
    /// Packets for which there was no free port.
    pub ports_exhausted: u64,
    /// Packets for which there was no room for a session.
    pub sessions_exhausted: u64,
    /// Packets of hosts with too many bindings.
    pub host_limit: u64,
    /// Packets whose ends behind the translator another session has.
    pub conflicts: u64,
    /// Data connections of FTP that inside ends announced.
    pub ftp_announced: u64,
    /// Those that came.
    pub ftp_related: u64,
    /// Announcements of another host's address, or of a port below 1024: they stay as they are.
    pub ftp_refused: u64,
    /// Announcements that stay as they are for want of room or because they came in pieces, and control connections for
    /// which there was no room.
    pub ftp_left: u64,
}

impl Counts {
    pub(super) fn refuse(&mut self, refusal: Refusal) {
        *match refusal {
            Refusal::Ports | Refusal::NoAddress => &mut self.ports_exhausted,
            Refusal::Sessions => &mut self.sessions_exhausted,
            Refusal::HostLimit => &mut self.host_limit,
            Refusal::Conflict => &mut self.conflicts,
            Refusal::Stray | Refusal::Gone => return,
        } += 1;
    }
}

/// A session as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// Ends before the translator.
    pub original: Tuple,
    /// Ends behind it.
    pub translated: Tuple,
    /// Number of its rule.
    pub rule: u16,
    /// An answer was seen.
    pub is_answered: bool,
    /// Seconds since its last packet.
    pub idle_s: u32,
    /// Seconds until it ends if it stays idle.
    pub left_s: u32,
}

/// An outside address and how much of it is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolUse {
    /// Number of the rule.
    pub rule: u16,
    /// Address, host order.
    pub address: u32,
    /// Ports in use, of all protocols.
    pub used: u32,
}
