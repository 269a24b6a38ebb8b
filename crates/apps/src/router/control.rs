//! The cold half of [`decode`](super::decode): everything that is not plain transit.
//!
//! The order of judgement: ARP and unknown EtherTypes, then anomalies, then by family groups and
//! broadcasts, link-layer groups, options, neighbour discovery, link-local addresses. What
//! remains is routed.
//!
//! With a twin the kernel answers and learns for itself; without one `rewrite` answers. Either
//! way the neighbour resolver hears what was seen.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Weak;

use chunk::Packet;
use engine::Context;
use lookup::fib::{Fib, Interface, NeighbourEvent};
use packet::arp::{ArpOperation, ArpView};
use packet::checksum::Checksums;
use packet::icmpv6::Icmpv6View;
use packet::nd::{HOP_LIMIT, NdView};
use packet::{Anomaly, Decoded, EtherType, Kind, MacClass};

use super::columns::{Answer, flags};
use super::decode::{Decode, Outcome, is_link_local, is_link_local_v4, is_mapped_v4, reason};
use super::frames;
use super::reasons;
use crate::received;

/// Whether `interface` has the IPv4 address.
pub(super) fn owns4(interface: &Interface, address: u32) -> bool {
    interface.addresses4.iter().any(|own| own.0 == address)
}

/// Whether `interface` has the IPv6 address.
pub(super) fn owns6(interface: &Interface, address: [u64; 2]) -> bool {
    interface.addresses6.iter().any(|own| own.0 == address)
}

/// Whether `address` is the directed broadcast of a subnet of `interface`. A /31 and a /32 have
/// none (RFC 3021).
pub(super) fn is_subnet_broadcast(interface: &Interface, address: u32) -> bool {
    interface.addresses4.iter().any(|&(own, len)| {
        len < 31 && {
            let host = u32::MAX >> len;
            own | host == address
        }
    })
}

/// Both halves of an IPv6 address.
pub(super) fn halves(address: Ipv6Addr) -> [u64; 2] {
    let bits = address.to_bits();
    [(bits >> 64) as u64, bits as u64]
}

/// Whether a neighbour on the link of an interface is known to have an address.
fn is_neighbour(fib: &Fib, index: u16, address: IpAddr) -> bool {
    fib.neighbour(index, address).is_some_and(|(adjacency, _)| adjacency.resolved != 0)
}

fn host_if(interface: &Interface) -> Outcome {
    if interface.twin { Outcome::Host } else { Outcome::Drop(chunk::reasons::HOST_ABSENT) }
}

impl Decode {
    /// What becomes of a packet that came in by `interface` (`index`), to our MAC or a group.
    pub(super) fn judge(
        &mut self,
        packet: &Packet,
        d: &Decoded,
        index: u16,
        interface: &Interface,
        cx: &Context<'_, Fib>,
    ) -> Outcome {
        if d.kind == Kind::Arp && d.anomaly == Anomaly::None {
            return self.arp(packet, d, index, interface, cx);
        }
        if d.anomaly == Anomaly::NonIp && interface.twin {
            return Outcome::Host;
        }
        if d.anomaly != Anomaly::None {
            return Outcome::Drop(reason(d.anomaly));
        }
        match d.kind {
            Kind::Ipv4 => judge4(packet, d, interface),
            Kind::Ipv6 => self.judge6(packet, d, index, interface, cx),
            Kind::Arp | Kind::Other => Outcome::Drop(packet::reasons::ETHERTYPE_UNKNOWN),
        }
    }

    /// Whether the router answers for an IPv4 address on a link that is none of its own, nor a neighbour's.
    fn proxies4(&self, index: u16, interface: &Interface, address: u32, fib: &Fib) -> bool {
        let Some(proxy) = self.proxy.as_ref().and_then(Weak::upgrade) else { return false };
        let is_near =
            |&(own, len): &(u32, u8)| len < 32 && (own ^ address) >> (32 - len.max(1)) == 0;
        interface.addresses4.iter().any(is_near)
            && !is_subnet_broadcast(interface, address)
            && proxy.has4(index, address)
            && !is_neighbour(fib, index, IpAddr::V4(Ipv4Addr::from_bits(address)))
    }

    /// The same of IPv6.
    fn proxies6(&self, index: u16, interface: &Interface, address: [u64; 2], fib: &Fib) -> bool {
        let Some(proxy) = self.proxy.as_ref().and_then(Weak::upgrade) else { return false };
        let bits = |of: [u64; 2]| u128::from(of[0]) << 64 | u128::from(of[1]);
        let is_near = |&(own, len): &([u64; 2], u8)| {
            len < 128 && (bits(own) ^ bits(address)) >> (128 - len.max(1)) == 0
        };
        !is_link_local(address[0])
            && interface.addresses6.iter().any(is_near)
            && proxy.has6(index, address)
            && !is_neighbour(fib, index, IpAddr::V6(ipv6(address)))
    }

    /// RFC 826, RFC 5227.
    fn arp(
        &mut self,
        packet: &Packet,
        d: &Decoded,
        index: u16,
        interface: &Interface,
        cx: &Context<'_, Fib>,
    ) -> Outcome {
        let arp = packet.data().get(usize::from(d.l3_offset)..).and_then(ArpView::new_checked);
        let Some(arp) = arp else { return Outcome::Drop(packet::reasons::ARP_MALFORMED) };
        let (sender, mac) = (arp.sender_ip(), arp.sender_mac());
        if !mac.is_unicast() || sender.is_multicast() || sender.is_broadcast() {
            return Outcome::Drop(packet::reasons::ARP_MALFORMED);
        }
        let is_reply = arp.operation() == ArpOperation::Reply;
        // A probe has no sender address yet; an address of our own would be a conflict, which is
        // the kernel's to defend.
        let target = arp.target_ip().to_bits();
        let is_request = arp.operation() == ArpOperation::Request;
        let is_proxied = is_request && self.proxies4(index, interface, target, cx.tables);
        let is_ours = is_proxied || owns4(interface, target);
        if !sender.is_unspecified() && !owns4(interface, sender.to_bits()) {
            let event = NeighbourEvent::Seen {
                interface: index,
                address: IpAddr::V4(sender),
                mac: mac.0,
                solicited: is_reply && d.dst_mac == MacClass::Unicast,
                overrides: true,
                asks_us: is_ours && !is_reply,
            };
            self.events.seen(packet.port, event, cx.now_ns);
        }
        if is_proxied {
            Outcome::Answer(Answer::Arp)
        } else if interface.twin {
            Outcome::Host
        } else if is_reply {
            Outcome::Drop(reasons::CONSUMED)
        } else if !is_ours {
            Outcome::Drop(reasons::NOT_MINE)
        } else if is_request {
            Outcome::Answer(Answer::Arp)
        } else {
            Outcome::Drop(reasons::CONSUMED)
        }
    }

    fn judge6(
        &mut self,
        packet: &Packet,
        d: &Decoded,
        index: u16,
        interface: &Interface,
        cx: &Context<'_, Fib>,
    ) -> Outcome {
        if is_mapped_v4(d.src) {
            return Outcome::Drop(packet::reasons::IP_MARTIAN_SOURCE);
        }
        if is_mapped_v4(d.dst) {
            return Outcome::Drop(packet::reasons::IP_MARTIAN_DESTINATION);
        }
        let own = owns6(interface, d.dst);
        let to_link = if d.has(Decoded::DST_MULTICAST) {
            const LINK_LOCAL_SCOPE: u64 = 2;
            if d.dst[0] >> 48 & 0xf != LINK_LOCAL_SCOPE {
                return Outcome::Drop(reasons::MULTICAST_NOT_FORWARDED);
            }
            true
        } else if d.dst_mac != MacClass::Unicast {
            return Outcome::Drop(reasons::BROADCAST_NOT_FORWARDED);
        } else {
            is_link_local(d.dst[0])
        };
        // From this link itself: a router in between would have lowered the hop limit.
        let is_nd = matches!(d.icmp_type_code(), Some((133..=137, _))) && d.ttl == HOP_LIMIT;
        if is_nd && (to_link || own) {
            return self.neighbour_discovery(packet, d, index, interface, cx);
        }
        if to_link && interface.twin {
            Outcome::Host
        } else if to_link && own {
            Outcome::Answer(Answer::LinkLocal)
        } else if to_link && d.has(Decoded::DST_MULTICAST) {
            Outcome::Drop(chunk::reasons::HOST_ABSENT)
        } else if to_link {
            Outcome::Drop(reasons::LINK_LOCAL_NOT_FORWARDED)
        } else if is_link_local(d.src[0]) {
            Outcome::Route(flags::IPV6 | flags::LINK_LOCAL)
        } else {
            Outcome::Route(flags::IPV6)
        }
    }

    /// RFC 4861 §7.1, §7.2.
    fn neighbour_discovery(
        &mut self,
        packet: &Packet,
        d: &Decoded,
        index: u16,
        interface: &Interface,
        cx: &Context<'_, Fib>,
    ) -> Outcome {
        const MALFORMED: Outcome = Outcome::Drop(packet::reasons::ND_MALFORMED);
        let (src, dst) = (ipv6(d.src), ipv6(d.dst));
        let Some(bytes) = packet.data().get(usize::from(d.l4_offset)..d.l3_end()) else {
            return MALFORMED; // longer than a cell: no such message is
        };
        // RFC 6980: never in fragments.
        let correct = !d.has(Decoded::FRAGMENT_HEADER)
            && Icmpv6View::new_checked(bytes).is_some_and(|m| {
                received::checksums(packet) == Checksums::Ignore || m.is_checksum_correct(src, dst)
            });
        if !correct {
            return MALFORMED;
        }
        let Some(message) = NdView::new_checked(bytes) else {
            // A redirect, which routers ignore; the kernel may look at it.
            return match bytes[0] {
                137 => host_if(interface),
                _ => MALFORMED,
            };
        };
        match message {
            NdView::NeighbourSolicitation(view) => {
                let target = halves(view.target());
                let is_proxied = self.proxies6(index, interface, target, cx.tables);
                let is_ours = is_proxied || owns6(interface, target);
                let mac = view.source_mac().filter(|mac| mac.is_unicast());
                if let (Some(mac), false) = (mac, src.is_unspecified()) {
                    let event = NeighbourEvent::Seen {
                        interface: index,
                        address: IpAddr::V6(src),
                        mac: mac.0,
                        solicited: false,
                        overrides: true,
                        asks_us: is_ours,
                    };
                    self.events.seen(packet.port, event, cx.now_ns);
                }
                if is_proxied {
                    Outcome::Answer(Answer::Neighbour)
                } else if interface.twin {
                    Outcome::Host
                } else if is_ours {
                    Outcome::Answer(Answer::Neighbour)
                } else {
                    Outcome::Drop(reasons::NOT_MINE)
                }
            }
            NdView::NeighbourAdvertisement(view) => {
                // The option may be missing in an answer to a unicast solicitation.
                let mac = view.target_mac().unwrap_or_else(|| frames::source_mac(packet.data()));
                if mac.is_unicast() && !owns6(interface, halves(view.target())) {
                    let event = NeighbourEvent::Seen {
                        interface: index,
                        address: IpAddr::V6(view.target()),
                        mac: mac.0,
                        solicited: view.is_solicited() && !d.has(Decoded::DST_MULTICAST),
                        overrides: view.is_override(),
                        asks_us: false,
                    };
                    self.events.seen(packet.port, event, cx.now_ns);
                }
                if interface.twin { Outcome::Host } else { Outcome::Drop(reasons::CONSUMED) }
            }
            NdView::RouterSolicitation(_) | NdView::RouterAdvertisement(_) => host_if(interface),
        }
    }
}

fn judge4(packet: &Packet, d: &Decoded, interface: &Interface) -> Outcome {
    const ALL_LINK_LOCAL_GROUPS: u32 = 0x00e0_0000; // 224.0.0.0/24
    let dst = d.dst_v4();
    if d.has(Decoded::DST_BROADCAST) {
        return host_if(interface);
    }
    if d.has(Decoded::DST_MULTICAST) {
        return if dst >> 8 == ALL_LINK_LOCAL_GROUPS {
            host_if(interface)
        } else {
            Outcome::Drop(reasons::MULTICAST_NOT_FORWARDED)
        };
    }
    if d.dst_mac != MacClass::Unicast {
        // RFC 1812 §5.3.4: a link-layer broadcast must not be forwarded.
        return if is_subnet_broadcast(interface, dst) {
            host_if(interface)
        } else {
            Outcome::Drop(reasons::BROADCAST_NOT_FORWARDED)
        };
    }
    // RFC 3927 §7: such a packet is for us, or for no host beyond the link.
    let near = is_link_local_v4(dst) || is_link_local_v4(d.src_v4());
    let family = if near { flags::IPV4 | flags::LINK_LOCAL } else { flags::IPV4 };
    if d.has(Decoded::HAS_OPTIONS) {
        let l3 = usize::from(d.l3_offset);
        let options = packet.data().get(l3 + 20..l3 + usize::from(d.ip_header_len));
        return judge_options(options.unwrap_or_default(), family);
    }
    Outcome::Route(family)
}

/// Source routes end here, used up or not (RFC 7126 §4.3, §4.4); malformed options are reported to
/// the sender. All others, known or not, are left as they are (RFC 1812 §4.2.2.1).
fn judge_options(options: &[u8], family: u16) -> Outcome {
    let mut at = 0;
    while let Some(&kind) = options.get(at) {
        let len = match kind {
            0 => break,
            1 => 1,
            _ => usize::from(options.get(at + 1).copied().unwrap_or(0)),
        };
        if len == 0 || (kind > 1 && len < 2) || at + len > options.len() {
            return Outcome::Answer(Answer::BadOption(20 + at as u8));
        }
        if matches!(kind, 131 | 137) {
            return Outcome::Drop(reasons::SOURCE_ROUTE);
        }
        at += len;
    }
    Outcome::Route(family)
}

pub(super) fn ipv6(address: [u64; 2]) -> Ipv6Addr {
    Ipv6Addr::from_bits(u128::from(address[0]) << 64 | u128::from(address[1]))
}

pub(super) fn ipv4(address: [u64; 2]) -> Ipv4Addr {
    Ipv4Addr::from_bits(address[1] as u32)
}

/// The EtherType of a family.
pub(super) const fn ethertype(is_v4: bool) -> EtherType {
    if is_v4 { EtherType::IPV4 } else { EtherType::IPV6 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_judged_one_by_one() {
        const V4: u16 = flags::IPV4;
        let fine: [&[u8]; 4] = [&[], &[1, 1, 1, 0], &[148, 4, 0, 0], &[0, 137, 3, 4]];
        for options in fine {
            assert!(matches!(judge_options(options, V4), Outcome::Route(V4)), "{options:?}");
        }
        let routed: [&[u8]; 3] = [&[131, 7, 4, 10, 0, 0, 1, 0], &[1, 137, 3, 3], &[131, 2, 0, 0]];
        for options in routed {
            let judged = judge_options(options, V4);
            assert!(matches!(judged, Outcome::Drop(reasons::SOURCE_ROUTE)), "{options:?}");
        }
        let broken: [(&[u8], u8); 4] =
            [(&[7, 0, 0, 0], 20), (&[1, 7, 1, 0], 21), (&[1, 1, 7, 40], 22), (&[1, 1, 1, 9], 23)];
        for (options, pointer) in broken {
            match judge_options(options, V4) {
                Outcome::Answer(answer) => assert_eq!(answer, Answer::BadOption(pointer)),
                _ => panic!("{options:?}"),
            }
        }
    }

    #[test]
    fn broadcasts_of_a_subnet() {
        let interface = Interface {
            addresses4: vec![(0x0a00_0001, 24), (0x0a00_0100, 31)],
            ..Interface::default()
        };
        assert!(is_subnet_broadcast(&interface, 0x0a00_00ff));
        assert!(!is_subnet_broadcast(&interface, 0x0a00_0101));
        assert!(!is_subnet_broadcast(&interface, 0x0a00_01ff));
    }
}
