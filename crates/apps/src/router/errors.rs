//! ICMP and ICMPv6 errors: which one, from which address, whereto, how many.
//!
//! An error has the address of the interface by which the packet came in (RFC 1812 §4.3.2.4,
//! RFC 4443 §2.2), another interface's where that has none. It is routed like any packet to the
//! offender's source. Where that way's neighbour is not known yet it goes straight back to the
//! station that the packet came from; without a route there is none. A token bucket for each port and worker bounds
//! them (RFC 1812 §4.3.2.8, RFC 4443 §2.4 f): whoever floods a port with packets that need errors leaves those of other
//! ports theirs.

use chunk::{Packet, Verdict};
use engine::{Context, MARK_FROM_HOST};
use lookup::fib::{Fib, Interface, Options};
use packet::checksum::update_u16;
use packet::icmp_error::{
    Icmpv4Error, Icmpv6Error, build_icmpv4_error, build_icmpv6_error, may_send_icmpv4_error,
    may_send_icmpv6_error,
};
use packet::tcp_reset::build_tcp_reset;
use packet::{Decoded, IpProtocol, icmpv4, icmpv6};

use super::columns::{Decision, flags};
use super::control::{ethertype, ipv4, ipv6};
use super::decode::is_link_local;
use super::frames::{self, Link};
use super::gate;
use super::rewrite::{AGAIN, Rewrite, Transit, derived, ip_address};
use super::route::decide;
use crate::firewall::answer::{PROHIBITED_V4, PROHIBITED_V6};
use crate::received;

/// Why a packet cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    /// TTL or hop limit 0 or 1.
    TtlExceeded,
    /// No route.
    NoRoute,
    /// A route that says unreachable.
    Unreachable,
    /// The neighbour did not answer.
    NeighbourFailed,
    /// Longer than the next link's MTU (bytes), and not to be fragmented.
    TooBig(u16),
    /// A link-local source with a destination beyond the link.
    BeyondScope,
    /// A malformed IPv4 option at this offset.
    BadOption(u8),
    /// A rule of the firewall rejects it.
    Prohibited,
}

impl Problem {
    /// RFC 792, RFC 1812 §4.3.3 and §5.2.7.1.
    const fn icmpv4(self) -> Icmpv4Error {
        match self {
            Problem::TtlExceeded => Icmpv4Error::TtlExceeded,
            Problem::NoRoute => Icmpv4Error::Unreachable(icmpv4::unreachable::NET),
            Problem::Unreachable | Problem::NeighbourFailed | Problem::BeyondScope => {
                Icmpv4Error::Unreachable(icmpv4::unreachable::HOST)
            }
            Problem::TooBig(mtu) => Icmpv4Error::FragmentationNeeded { mtu },
            Problem::BadOption(pointer) => Icmpv4Error::ParameterProblem { pointer },
            Problem::Prohibited => PROHIBITED_V4,
        }
    }

    /// RFC 4443 §3.
    const fn icmpv6(self) -> Icmpv6Error {
        match self {
            Problem::TtlExceeded => Icmpv6Error::HopLimitExceeded,
            Problem::NoRoute => Icmpv6Error::Unreachable(icmpv6::unreachable::NO_ROUTE),
            Problem::Unreachable | Problem::NeighbourFailed => {
                Icmpv6Error::Unreachable(icmpv6::unreachable::ADDRESS)
            }
            Problem::BeyondScope => Icmpv6Error::Unreachable(icmpv6::unreachable::BEYOND_SCOPE),
            Problem::TooBig(mtu) => Icmpv6Error::PacketTooBig { mtu: mtu as u32 },
            Problem::BadOption(pointer) => {
                Icmpv6Error::ParameterProblem { code: 0, pointer: pointer as u32 }
            }
            Problem::Prohibited => PROHIBITED_V6,
        }
    }
}

/// A token bucket whose tokens are counted in nanoseconds of waiting.
pub(crate) struct Limit {
    credit_ns: u64,
    seen_ns: Option<u64>,
}

impl Limit {
    pub(crate) const fn new() -> Self {
        Self { credit_ns: 0, seen_ns: None }
    }

    /// Takes a token of a bucket of `burst` tokens that come at `rate` a second. It starts full; time that runs backwards
    /// fills nothing.
    fn take(&mut self, rate: u32, burst: u32, now_ns: u64) -> bool {
        if rate == 0 {
            return false;
        }
        let token_ns = (1_000_000_000 / u64::from(rate)).max(1);
        let full_ns = token_ns.saturating_mul(u64::from(burst.max(1)));
        let passed_ns = self.seen_ns.map_or(full_ns, |seen| now_ns.saturating_sub(seen));
        self.seen_ns = Some(now_ns.max(self.seen_ns.unwrap_or(0)));
        self.credit_ns = self.credit_ns.saturating_add(passed_ns).min(full_ns);
        let granted = self.credit_ns >= token_ns;
        if granted {
            self.credit_ns -= token_ns;
        }
        granted
    }
}

/// A bucket for each port by which packets come in.
pub(crate) struct Limits(Vec<Limit>);

impl Limits {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Takes a token of the port's bucket. Ports that do not exist, as of packets that were made here, have the last one.
    pub(crate) fn take(&mut self, port: u16, rate: u32, burst: u32, now_ns: u64) -> bool {
        let place = usize::from(port.min(gate::PORT_MAX));
        if place >= self.0.len() {
            self.0.resize_with(place + 1, Limit::new); // once for each port
        }
        self.0[place].take(rate, burst, now_ns)
    }
}

impl Rewrite {
    /// Makes the error about `packet`, if one may be sent now.
    pub(super) fn report(
        &mut self,
        packet: &Packet,
        transit: Transit,
        problem: Problem,
        cx: &mut Context<'_, Fib>,
    ) {
        if packet.mark & super::MARK_OPENED != 0 && self.guard.is_none() {
            return;
        }
        match self.as_sent(packet, transit, cx) {
            Some((sent, own)) => {
                // Headers of the other family have another length (RFC 7915 §4 and §5).
                let problem = match (problem, transit.is_v4(), own.is_v4()) {
                    (Problem::TooBig(mtu), true, false) => Problem::TooBig(mtu.saturating_add(20)),
                    (Problem::TooBig(mtu), false, true) => Problem::TooBig(mtu.saturating_sub(20)),
                    _ => problem,
                };
                self.report_sent(&sent, own, problem, cx);
                sent.free(cx.pool);
            }
            None => self.report_sent(packet, transit, problem, cx),
        }
    }

    /// The packet as its sender sent it, where a stage has changed its ends; as far as its first cell goes.
    fn as_sent(
        &self,
        packet: &Packet,
        transit: Transit,
        cx: &mut Context<'_, Fib>,
    ) -> Option<(Packet, Transit)> {
        let origin = self.origin.as_ref()?;
        let mut sent = Packet::copy_from(cx.pool, packet.data())?;
        (sent.port, sent.mark, sent.time_ns) = (packet.port, packet.mark, packet.time_ns);
        if origin.restore(&mut sent, transit.l3()) {
            let is_v4 = sent.data().get(transit.l3()).is_some_and(|first| first >> 4 == 4);
            let family = if is_v4 { flags::IPV4 } else { flags::IPV6 };
            let other = transit.flags & !(flags::IPV4 | flags::IPV6);
            return Some((sent, Transit { flags: other | family, ..transit }));
        }
        sent.free(cx.pool);
        None
    }

    /// The same about a packet as it was sent.
    fn report_sent(
        &mut self,
        packet: &Packet,
        transit: Transit,
        problem: Problem,
        cx: &mut Context<'_, Fib>,
    ) {
        let is_v4 = transit.is_v4();
        let original = transit.ip(packet);
        let to_group = packet.data().first().is_none_or(|first| first & 1 != 0);
        let allowed = if is_v4 {
            may_send_icmpv4_error(original, to_group, received::checksums(packet))
        } else {
            may_send_icmpv6_error(original, problem.icmpv6(), to_group)
        };
        if !allowed {
            return;
        }
        // Before anything that costs, and spent whether or not there is a way back: a flood of
        // packets without a route must not become one of lookups for their errors.
        if self.defers_errors {
            let before = self.made.len();
            self.deferring = Some(packet.port);
            self.emit_error(packet, transit, problem, cx);
            self.deferring = None;
            if self.made.len() == before {
                // The token is spent all the same.
                self.made.push((gate::nothing(packet.time_ns, packet.port), Verdict::TAKEN));
            }
            return;
        }
        let Options { icmp_rate, icmp_burst, .. } = *cx.tables.options();
        if !self.limits.take(packet.port, icmp_rate, icmp_burst, cx.arrival_ns(packet)) {
            self.counters.icmp_errors_withheld.add(1);
            return;
        }
        if self.emit_error(packet, transit, problem, cx) {
            self.counters.icmp_errors_sent.add(1);
        }
    }

    /// Makes the error, whatever the limit; `false` where there is no way back or no cell.
    fn emit_error(
        &mut self,
        packet: &Packet,
        transit: Transit,
        problem: Problem,
        cx: &mut Context<'_, Fib>,
    ) -> bool {
        let is_v4 = transit.is_v4();
        let original = transit.ip(packet);
        let Some(link) = reply_link(packet, transit, cx.tables) else { return false };
        let to = transit.addresses(packet).0;
        let Some(source) = own_address(cx.tables, transit.interface, is_v4, to) else {
            return false;
        };
        let start = link.header().len();
        let out = &mut self.piece[start..];
        let len = if is_v4 {
            build_icmpv4_error(original, problem.icmpv4(), ipv4(source), out)
        } else {
            build_icmpv6_error(original, problem.icmpv6(), ipv6(source), out)
        };
        len.is_some_and(|len| self.emit_piece(&link, len, is_v4, packet, cx))
    }

    /// Tells the source of a packet that the firewall rejected: a segment by a reset, which seems to
    /// come from its destination, anything else by an error.
    pub(super) fn report_rejected(
        &mut self,
        packet: &Packet,
        transit: Transit,
        cx: &mut Context<'_, Fib>,
    ) {
        if packet.mark & super::MARK_OPENED != 0 && self.guard.is_none() {
            return;
        }
        if let Some((sent, own)) = self.as_sent(packet, transit, cx) {
            self.report_rejected_as_sent(&sent, own, cx);
            return sent.free(cx.pool);
        }
        self.report_rejected_as_sent(packet, transit, cx);
    }

    fn report_rejected_as_sent(
        &mut self,
        packet: &Packet,
        transit: Transit,
        cx: &mut Context<'_, Fib>,
    ) {
        let d = packet::decode(packet.data(), packet.frame_len());
        if d.protocol != IpProtocol::TCP || d.has(Decoded::FRAGMENT) {
            return self.report_sent(packet, transit, Problem::Prohibited, cx);
        }
        let is_v4 = transit.is_v4();
        let to_group = packet.data().first().is_none_or(|first| first & 1 != 0);
        let Some(link) = reply_link(packet, transit, cx.tables).filter(|_| !to_group) else {
            return;
        };
        let out = &mut self.piece[link.header().len()..];
        if let Some(len) = build_tcp_reset(&d, packet.data(), out)
            && self.emit_piece(&link, len, is_v4, packet, cx)
        {
            self.counters.answers_sent.add(1);
        }
    }

    /// Turns the `len` bytes of an IP packet behind the link header's place in `piece` into a frame, in answer to `cause`.
    /// `false` when no cell is free: there is nothing to be done about an answer then.
    pub(super) fn emit_piece(
        &mut self,
        link: &Link,
        len: usize,
        is_v4: bool,
        cause: &Packet,
        cx: &mut Context<'_, Fib>,
    ) -> bool {
        let start = link.header().len();
        self.piece[..start].copy_from_slice(link.header());
        set_ttl(&mut self.piece[start..start + len], is_v4, cx.tables.options().ttl);
        let Some(mut frame) = Packet::copy_from(cx.pool, &self.piece[..start + len]) else {
            return false;
        };
        frame.time_ns = cause.time_ns;
        if let Some(guard) = &self.guard {
            // As the twin of the interface would send it.
            let Some(mut plain) = Packet::copy_from(cx.pool, frame.data()) else {
                frame.free(cx.pool);
                return false;
            };
            frames::strip_tags(&mut plain, start);
            (plain.port, plain.time_ns) = (link.interface, frame.time_ns);
            plain.mark = MARK_FROM_HOST | cause.mark & super::MARK_OPENED;
            let is_tunnel = cx.tables.interface(link.interface).is_some_and(|own| own.if_id != 0);
            if is_tunnel || guard.holds(&plain) {
                frame.free(cx.pool);
                let place = cx.place(AGAIN).unwrap_or(0);
                self.made.push((plain, Verdict::again(place)));
                return true;
            }
            plain.free(cx.pool);
        }
        self.make(frame, link);
        true
    }
}

/// Sets the TTL of a packet of ours.
fn set_ttl(ip: &mut [u8], is_v4: bool, ttl: u8) {
    if is_v4 {
        let Some(header) = ip.first_chunk_mut::<20>() else { return };
        let old = u16::from_be_bytes([header[8], header[9]]);
        let new = u16::from_be_bytes([ttl, header[9]]);
        let checksum = u16::from_be_bytes([header[10], header[11]]);
        header[8] = ttl;
        [header[10], header[11]] = update_u16(checksum, old, new).to_be_bytes();
    } else if let Some(hop_limit) = ip.get_mut(7) {
        *hop_limit = ttl;
    }
}

/// The link by which something is sent to the source of `packet`: as the route says; straight back
/// where the neighbour is not known. `None` if nothing is to be sent there.
pub(super) fn reply_link(packet: &Packet, transit: Transit, fib: &Fib) -> Option<Link> {
    let is_v4 = transit.is_v4();
    let to = transit.addresses(packet).0;
    let ethertype = ethertype(is_v4);
    let back = || {
        let mac = frames::source_mac(packet.data());
        Link::new(fib, transit.interface, mac, ethertype).filter(|_| mac.is_unicast())
    };
    if !is_v4 && is_link_local(to[0]) {
        return back();
    }
    let address = ip_address(is_v4, to);
    let (known, interface, neighbour) =
        match decide(fib, fib.lookup_one(address), transit.flow_hash).ok()? {
            Decision::Adjacency(index) => {
                let adjacency = fib.adjacency(index)?;
                let neighbour = ip_address(adjacency.family != 6, adjacency.address);
                (Some(adjacency), adjacency.interface, neighbour)
            }
            Decision::Connected(interface) => {
                (fib.neighbour(interface, address).map(|(a, _)| a), interface, address)
            }
            // Nobody is there, or we ourselves.
            Decision::NoRoute
            | Decision::Unreachable
            | Decision::Local(_)
            | Decision::Broadcast(_) => return None,
        };
    match known {
        Some(adjacency) if adjacency.resolved != 0 => Link::of(adjacency, ethertype),
        _ if fib.options().derive_neighbours => derived(fib, interface, neighbour, ethertype),
        _ => back(),
    }
}

/// The address of ours that is in what is sent to `to` about a packet from `interface`.
fn own_address(fib: &Fib, interface: u16, is_v4: bool, to: [u64; 2]) -> Option<[u64; 2]> {
    let of = |record: &Interface| {
        if is_v4 {
            return record.addresses4.first().map(|own| [0, u64::from(own.0)]);
        }
        // An address of the scope of the one that it is sent to.
        let near = is_link_local(to[0]);
        let fits = |own: &&([u64; 2], u8)| is_link_local(own.0[0]) == near;
        record.addresses6.iter().find(fits).map(|own| own.0)
    };
    let own = fib.interface(interface).and_then(of);
    own.or_else(|| fib.interfaces().find_map(|(_, record)| of(record)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bucket_gives_a_burst_and_then_the_rate() {
        let mut limit = Limit::new();
        let start = 1_700_000_000_000_000_000;
        let granted =
            |limit: &mut Limit, at: u64| (0..10).filter(|_| limit.take(10, 3, at)).count();
        assert_eq!(granted(&mut limit, start), 3);
        assert_eq!(granted(&mut limit, start + 99_999_999), 0);
        assert_eq!(granted(&mut limit, start + 100_000_000), 1);
        assert_eq!(granted(&mut limit, start), 0, "time that runs back fills nothing");
        assert_eq!(granted(&mut limit, start + 60_000_000_000), 3, "no more than the burst");
        assert!(!limit.take(0, 3, start + 90_000_000_000));
    }

    #[test]
    fn each_port_has_a_bucket() {
        let mut limits = Limits::new();
        let start = 1_700_000_000_000_000_000;
        let mut granted = |port: u16| (0..1000).filter(|_| limits.take(port, 10, 3, start)).count();
        for port in [7, 0, chunk::PORT_NONE, 4096] {
            assert_eq!((granted(port), granted(port)), (3, 0), "{port}");
        }
        // No memory for all numbers.
        assert!(limits.0.len() <= usize::from(gate::PORT_MAX) + 1);
    }
}
