//! What the router answers for itself: packets to its own addresses.
//!
//! With a twin the kernel gets them and answers. Without one (tests, captures, live use without
//! TAP) the router answers ARP requests (RFC 826), neighbour solicitations (RFC 4861 §7.2.4) and
//! echo requests (RFC 1812 §4.3.3.6, RFC 4443 §4.2); the rest ends as `host_absent`.
//!
//! A packet that was answered is dropped as `consumed`; its answer is emitted behind it.

use std::net::Ipv6Addr;

use chunk::{Packet, Verdict};
use engine::Context;
use lookup::fib::Fib;
use packet::arp::ArpView;
use packet::icmp_error::{build_icmpv4_echo_reply, build_icmpv6_echo_reply};
use packet::nd::{NdView, NeighbourMessage};
use packet::{EtherType, MacAddr};

use super::control::ipv6;
use super::errors::reply_link;
use super::frames::{self, Link};
use super::reasons;
use super::rewrite::{Rewrite, Transit};
use super::size::gather;
use crate::received;

const ABSENT: Verdict = Verdict::drop(chunk::reasons::HOST_ABSENT);
const CONSUMED: Verdict = Verdict::drop(reasons::CONSUMED);

impl Rewrite {
    /// A packet to an address of ours, of whichever interface: the host is one, and the twin of
    /// the interface that it came in by takes it.
    pub(super) fn deliver(
        &mut self,
        packet: &mut Packet,
        transit: Transit,
        cx: &mut Context<'_, Fib>,
    ) -> Verdict {
        match cx.tables.interface(transit.interface) {
            Some(interface) if interface.twin => {
                frames::strip_tags(packet, transit.l3());
                Verdict::host(transit.interface)
            }
            Some(_) => self.answer_echo(packet, transit, cx),
            None => ABSENT,
        }
    }

    /// A broadcast of the subnet that it came from: for the host, and never answered.
    pub(super) fn deliver_group(
        &mut self,
        packet: &mut Packet,
        transit: Transit,
        cx: &mut Context<'_, Fib>,
    ) -> Verdict {
        match cx.tables.interface(transit.interface) {
            Some(interface) if interface.twin => self.deliver(packet, transit, cx),
            _ => ABSENT,
        }
    }

    pub(super) fn answer_echo(
        &mut self,
        packet: &Packet,
        transit: Transit,
        cx: &mut Context<'_, Fib>,
    ) -> Verdict {
        let is_v4 = transit.is_v4();
        let Some(link) = reply_link(packet, transit, cx.tables) else { return ABSENT };
        let len = transit.ip_len(packet);
        if len > usize::from(link.mtu) {
            return ABSENT; // the answer is as long, and would have to be fragmented
        }
        gather(packet, transit.l3(), len, &mut self.linear);
        let out = &mut self.piece[link.header().len()..];
        let checksums = received::checksums(packet);
        let made = if is_v4 {
            build_icmpv4_echo_reply(&self.linear, checksums, out)
        } else {
            let own = ipv6(transit.addresses(packet).1);
            build_icmpv6_echo_reply(&self.linear, own, checksums, out)
        };
        let Some(len) = made else { return ABSENT };
        if !self.emit_piece(&link, len, is_v4, packet, cx) {
            return Verdict::drop(chunk::reasons::NO_CELLS);
        }
        self.counters.answers_sent.add(1);
        CONSUMED
    }

    pub(super) fn answer_arp(
        &mut self,
        packet: &Packet,
        transit: Transit,
        cx: &mut Context<'_, Fib>,
    ) -> Verdict {
        let Some(interface) = cx.tables.interface(transit.interface) else { return ABSENT };
        let Some(request) = ArpView::new_checked(transit.ip(packet)) else {
            return Verdict::drop(packet::reasons::ARP_MALFORMED);
        };
        let mac = request.sender_mac();
        let link = Link::new(cx.tables, transit.interface, mac, EtherType::ARP);
        let Some(link) = link else { return ABSENT };
        let reply = request.header().reply(MacAddr(interface.mac));
        let Some(len) = reply.emit(&mut self.piece[link.header().len()..]) else { return ABSENT };
        self.emit_answer(&link, len, packet.time_ns, cx)
    }

    pub(super) fn answer_neighbour(
        &mut self,
        packet: &Packet,
        transit: Transit,
        cx: &mut Context<'_, Fib>,
    ) -> Verdict {
        const MALFORMED: Verdict = Verdict::drop(packet::reasons::ND_MALFORMED);
        let Some(interface) = cx.tables.interface(transit.interface) else { return ABSENT };
        let (src, _) = transit.addresses(packet);
        let frame = packet.data();
        let d = packet::decode(frame, packet.frame_len());
        let message = frame.get(usize::from(d.l4_offset)..d.l3_end()).and_then(NdView::new_checked);
        let Some(NdView::NeighbourSolicitation(asked)) = message else { return MALFORMED };
        // A host without an address asks whether the address is in use: the answer goes to all nodes.
        let src = ipv6(src);
        let is_probe = src.is_unspecified();
        let to = if is_probe { Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1) } else { src };
        let mac = if is_probe {
            MacAddr([0x33, 0x33, 0, 0, 0, 1])
        } else {
            asked.source_mac().unwrap_or_else(|| frames::source_mac(frame))
        };
        let answer = NeighbourMessage::Advertisement {
            target: asked.target(),
            target_mac: MacAddr(interface.mac),
            router: true,
            solicited: !is_probe,
            overrides: true,
        };
        let link = Link::new(cx.tables, transit.interface, mac, EtherType::IPV6);
        let Some(link) = link else { return ABSENT };
        let out = &mut self.piece[link.header().len()..];
        let Some(len) = answer.emit_packet(asked.target(), to, out) else { return ABSENT };
        self.emit_answer(&link, len, packet.time_ns, cx)
    }

    /// As [`Rewrite::emit_piece`], for what has a TTL of its own or none.
    fn emit_answer(
        &mut self,
        link: &Link,
        len: usize,
        time_ns: u64,
        cx: &mut Context<'_, Fib>,
    ) -> Verdict {
        let start = link.header().len();
        self.piece[..start].copy_from_slice(link.header());
        let Some(mut frame) = Packet::copy_from(cx.pool, &self.piece[..start + len]) else {
            return Verdict::drop(chunk::reasons::NO_CELLS);
        };
        frame.time_ns = time_ns;
        self.make(frame, link);
        self.counters.answers_sent.add(1);
        CONSUMED
    }
}
