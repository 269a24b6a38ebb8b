//! The answer to the sender of a rejected frame in a switch or a wire, where no router would send one.
//!
//! A switch has no address of its own, so the answer has the address of the destination host as its source, as
//! in Linux bridges (`nf_reject_ipv4.c`): a TCP reset, for anything else ICMP "administratively prohibited"
//! (RFC 1812 §5.2.7.1 code 13, RFC 4443 §3.1 code 1). It leaves by the port that received the frame, with
//! the same tags. Errors keep to the rules for errors and to a token bucket per worker; a reset answers one
//! segment, and is never longer.

use std::net::Ipv6Addr;

use chunk::{Packet, Pool};
use packet::checksum::Checksums;
use packet::icmp_error::{
    ICMPV6_ERROR_LEN_MAX, Icmpv4Error, Icmpv6Error, build_icmpv4_error, build_icmpv6_error,
    may_send_icmpv4_error, may_send_icmpv6_error,
};
use packet::tcp_reset::{build_tcp_reset, build_tcp_reset_onward};
use packet::{Decoded, IpProtocol, Kind, icmpv4, icmpv6};

use super::tables::FirewallOptions;
use crate::received;
use crate::router::errors::Limits;
use crate::router::gate;

/// The error about a packet of IPv4.
pub(crate) const PROHIBITED_V4: Icmpv4Error =
    Icmpv4Error::Unreachable(icmpv4::unreachable::ADMINISTRATIVELY_PROHIBITED);

/// The error about a packet of IPv6.
pub(crate) const PROHIBITED_V6: Icmpv6Error =
    Icmpv6Error::Unreachable(icmpv6::unreachable::ADMINISTRATIVELY_PROHIBITED);

/// Bytes of a link header with two tags.
const LINK_LEN_MAX: usize = 22;

/// Makes answers for one worker.
pub(crate) struct Answers {
    pub(crate) limits: Limits,
    /// The limit is kept by a gate over all workers.
    pub(crate) defers: bool,
    piece: Box<[u8]>,
}

/// An answer, or why there is none.
pub(crate) enum Answer {
    /// The frame.
    Made(Packet),
    /// The rate limit withheld it.
    Withheld,
    /// The frame, if the gate lets it leave; or none, where one would be due.
    Deferred(Packet),
    /// None is due, or there is no cell for it.
    None,
}

impl Answers {
    pub(crate) fn new() -> Self {
        let piece = vec![0; LINK_LEN_MAX + ICMPV6_ERROR_LEN_MAX].into_boxed_slice();
        Self { limits: Limits::new(), defers: false, piece }
    }

    /// The answer to `packet`, which was rejected and in which `d` was found.
    #[cold]
    pub(crate) fn make(
        &mut self,
        packet: &Packet,
        d: &Decoded,
        options: &FirewallOptions,
        now_ns: u64,
        pool: &mut Pool,
    ) -> Answer {
        let (frame, l3) = (packet.data(), usize::from(d.l3_offset));
        let Some(original) = frame.get(l3..).filter(|_| l3 <= LINK_LEN_MAX) else {
            return Answer::None;
        };
        if !may_answer(original, d, frame[0] & 1 != 0, received::checksums(packet)) {
            return Answer::None;
        }
        let is_reset = d.protocol == IpProtocol::TCP && !d.has(Decoded::FRAGMENT);
        let is_deferred = self.defers && !is_reset;
        if !is_reset
            && !is_deferred
            && !self.limits.take(packet.port, options.icmp_rate, options.icmp_burst, now_ns)
        {
            return Answer::Withheld;
        }
        match self.build(packet, d, is_reset, original, pool) {
            Some(mut answer) if is_deferred => {
                answer.mark = gate::mark(packet.port, None);
                Answer::Deferred(answer)
            }
            Some(answer) => Answer::Made(answer),
            // The token is spent all the same.
            None if is_deferred => Answer::Deferred(gate::nothing(packet.time_ns, packet.port)),
            None => Answer::None,
        }
    }

    /// What goes on in the place of `packet`, a TCP segment that was rejected, so that its receiver ends the connection;
    /// `None` for anything else, and where there is no cell for it.
    #[cold]
    pub(crate) fn onward(
        &mut self,
        packet: &Packet,
        d: &Decoded,
        pool: &mut Pool,
    ) -> Option<Packet> {
        let (frame, l3) = (packet.data(), usize::from(d.l3_offset));
        let link = frame.get(..l3).filter(|_| l3 <= LINK_LEN_MAX)?;
        let len = build_tcp_reset_onward(d, frame, &mut self.piece[l3..])?;
        self.piece[..l3].copy_from_slice(link);
        let mut reset = Packet::copy_from(pool, &self.piece[..l3 + len])?;
        reset.time_ns = packet.time_ns;
        reset.port = packet.port;
        Some(reset)
    }

    fn build(
        &mut self,
        packet: &Packet,
        d: &Decoded,
        is_reset: bool,
        original: &[u8],
        pool: &mut Pool,
    ) -> Option<Packet> {
        let (frame, l3) = (packet.data(), usize::from(d.l3_offset));
        let (link, ip) = self.piece.split_at_mut(l3);
        let made = match d.kind {
            _ if is_reset => build_tcp_reset(d, frame, ip),
            Kind::Ipv4 => build_icmpv4_error(original, PROHIBITED_V4, d.dst_v4().into(), ip),
            _ => build_icmpv6_error(original, PROHIBITED_V6, address(d.dst), ip),
        };
        let len = made?;
        link.copy_from_slice(&frame[..l3]);
        link[..6].copy_from_slice(&frame[6..12]);
        link[6..12].copy_from_slice(&frame[..6]);
        let mut answer = Packet::copy_from(pool, &self.piece[..l3 + len])?;
        answer.time_ns = packet.time_ns;
        answer.port = packet.port;
        Some(answer)
    }
}

/// Whether an answer may be sent: from one host to one host, and not about an ICMP error.
fn may_answer(original: &[u8], d: &Decoded, to_group: bool, checksums: Checksums) -> bool {
    match d.kind {
        Kind::Ipv4 => {
            may_send_icmpv4_error(original, to_group, checksums)
                && !packet::decode::is_martian_destination_v4(d.dst_v4())
        }
        _ => may_send_icmpv6_error(original, PROHIBITED_V6, to_group),
    }
}

fn address(halves: [u64; 2]) -> Ipv6Addr {
    Ipv6Addr::from_bits(u128::from(halves[0]) << 64 | u128::from(halves[1]))
}
