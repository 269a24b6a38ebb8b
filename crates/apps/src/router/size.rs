//! Packets that are longer than the next link takes.
//!
//! What counts is the IP packet's length, not the frame's: bytes behind the packet (padding, or
//! the rest of a captured 1 MB frame, which no total length can express) are cut off where the
//! frame does not fit with them.
//!
//! A packet of several segments ([`chunk::Offload`]) fits if each of them does.
//!
//! IPv4 packets without DF leave in fragments (RFC 791 §3.2), in order and all or none, and so do IPv6 packets that were such
//! ones (RFC 7915 §4). Others cause fragmentation needed (RFC 1191) or packet too big (RFC 8201).

use chunk::{Packet, Verdict};
use engine::Context;
use lookup::fib::Fib;
use packet::checksum::ipv4_decrement_ttl;
use packet::fragment::{Fragmenter, Fragmenter6};
use packet::ipv6::decrement_hop_limit;
use packet::offload::{Checksums, cut, fill_checksum, wire_len};

use super::columns::flags;
use super::errors::Problem;
use super::frames::Link;
use super::reasons;
use super::rewrite::{Rewrite, Transit};

/// Longest packet from IPv4 to IPv6 that is not fragmented, bytes, if it may be (RFC 7915 §4): what each link of IPv6 takes.
const FROM_V4_MAX: u16 = 1280;

impl Transit {
    /// The longest IP packet that leaves whole by a link.
    pub(super) fn len_max(&self, link: &Link) -> u16 {
        if self.may_fragment_v6() { link.mtu.min(FROM_V4_MAX) } else { link.mtu }
    }

    fn may_fragment_v6(&self) -> bool {
        self.flags & (flags::IPV6 | flags::MAY_FRAGMENT) == flags::IPV6 | flags::MAY_FRAGMENT
    }
}

/// Whether a frame, or each segment of it, has at most `len` bytes.
#[inline(always)]
pub(super) fn is_within(packet: &Packet, len: usize) -> bool {
    packet.frame_len() <= len || (!packet.offload.is_none() && wire_len(packet) <= len)
}

impl Rewrite {
    /// Makes `packet` fit the MTU of `link`. `Err` is its verdict: it left in fragments or is
    /// dropped.
    pub(super) fn fit(
        &mut self,
        packet: &mut Packet,
        transit: Transit,
        link: &Link,
        cx: &mut Context<'_, Fib>,
    ) -> Result<(), Verdict> {
        let len = transit.ip_len(packet);
        if len <= usize::from(transit.len_max(link)) {
            // What lies behind the IP packet does not count. The packet is whole: `decode` looked.
            packet.truncate(cx.pool, transit.l3() + len);
            return Ok(());
        }
        const DONT_FRAGMENT: u8 = 0x40;
        let may_fragment = transit.may_fragment_v6()
            || transit.is_v4()
                && cx.tables.options().fragment
                && transit.ip(packet).get(6).is_some_and(|byte| byte & DONT_FRAGMENT == 0);
        if !may_fragment {
            self.report(packet, transit, Problem::TooBig(link.mtu), cx);
            return Err(Verdict::drop(if transit.is_v4() {
                reasons::FRAGMENTATION_NEEDED
            } else {
                packet::reasons::TOO_BIG
            }));
        }
        Err(match packet.offload.segment_bytes() {
            Some(_) => self.fragment_segments(packet, transit, link, cx),
            None => self.fragment(packet, transit, link, cx),
        })
    }

    /// Cuts a packet into its segments, and these into fragments: all leave, or none.
    fn fragment_segments(
        &mut self,
        packet: &mut Packet,
        transit: Transit,
        link: &Link,
        cx: &mut Context<'_, Fib>,
    ) -> Verdict {
        let mut segments = std::mem::take(&mut self.segments);
        let first = self.made.len();
        let mut verdict = match cut(packet, cx.pool, &mut segments, Checksums::Filled) {
            true => Verdict::TAKEN,
            false => Verdict::drop(chunk::reasons::NO_CELLS),
        };
        for mut segment in segments.drain(..) {
            if verdict == Verdict::TAKEN {
                verdict = self.fragment(&mut segment, transit, link, cx);
            }
            segment.free(cx.pool);
        }
        self.segments = segments;
        match verdict == Verdict::TAKEN {
            true => std::mem::replace(packet, Packet::empty()).free(cx.pool),
            false => self.made.drain(first..).for_each(|(frame, _)| frame.free(cx.pool)),
        }
        verdict
    }

    fn fragment(
        &mut self,
        packet: &mut Packet,
        transit: Transit,
        link: &Link,
        cx: &mut Context<'_, Fib>,
    ) -> Verdict {
        let l3 = transit.l3();
        if !packet.offload.is_none() && fill_checksum(packet) {
            packet.offload = chunk::Offload::NONE;
        }
        gather(packet, l3, transit.ip_len(packet), &mut self.linear);
        let (four, six) = if transit.is_v4() {
            ipv4_decrement_ttl(&mut self.linear);
            (Fragmenter::new(&self.linear, link.mtu), None)
        } else {
            decrement_hop_limit(&mut self.linear);
            (None, Fragmenter6::new(&self.linear, transit.len_max(link)))
        };
        if four.is_none() && six.is_none() {
            // Only an MTU with no room behind the header is left as a cause.
            self.report(packet, transit, Problem::TooBig(link.mtu), cx);
            return Verdict::drop(reasons::FRAGMENTATION_NEEDED);
        }
        let first = self.made.len();
        for fragment in four.into_iter().flatten().chain(six.into_iter().flatten()) {
            let (link_header, ip_header) = (link.header(), fragment.header());
            let payload = self.linear.get(fragment.payload.clone()).unwrap_or_default();
            let mut len = 0;
            for part in [link_header, ip_header, payload] {
                self.piece[len..len + part.len()].copy_from_slice(part);
                len += part.len();
            }
            let Some(mut frame) = Packet::copy_from(cx.pool, &self.piece[..len]) else {
                for (frame, _) in self.made.drain(first..) {
                    frame.free(cx.pool);
                }
                return Verdict::drop(chunk::reasons::NO_CELLS);
            };
            frame.time_ns = packet.time_ns;
            self.made.push((frame, Verdict::forward(link.port)));
        }
        if link.is_tagged() {
            for (frame, _) in &self.made[first..] {
                self.counters.count_tagged_tx(link.interface, frame.frame_len());
            }
        }
        self.counters.fragmented.add(1);
        self.counters.fragments_made.add((self.made.len() - first) as u64);
        std::mem::replace(packet, Packet::empty()).free(cx.pool);
        Verdict::TAKEN
    }
}

/// Copies `len` bytes of a frame from `from` on, over all its cells, to `out`.
pub(super) fn gather(packet: &Packet, from: usize, len: usize, out: &mut Vec<u8>) {
    out.clear();
    let (mut skip, mut left) = (from, len);
    for segment in packet.segments() {
        let start = skip.min(segment.len());
        skip -= start;
        let part = &segment[start..];
        let part = &part[..part.len().min(left)];
        out.extend_from_slice(part);
        left -= part.len();
        if left == 0 {
            break;
        }
    }
}
