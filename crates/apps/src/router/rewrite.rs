//! Stage `rewrite`: does to the packets what was decided about them.
//!
//! | | |
//! | --- | --- |
//! | reads | `flags`, `l3`, `interface`, `flow_hash`, `decision`, the packets |
//! | writes | the packets |
//! | forward | TTL taken down, link header of the adjacency, tags pushed or popped |
//! | host | packets to our addresses and broadcasts, where there is a twin |
//! | taken | packets that wait for a neighbour; packets that left as fragments |
//! | drop | `ttl_expired`, `no_route`, `unreachable`, `fragmentation_needed`, `too_big`, `neighbour_…`, `link_local_not_forwarded`, `broadcast_not_forwarded`, `ip_bad_options`, `consumed`, `host_absent`, `no_cells`, `firewall_reject` |
//! | emits | fragments; ICMP and ICMPv6 errors; resets; answers to ARP, ND and echo without a twin |
//! | again | errors, resets and echo replies that a `Guard` holds, as frames of the host |
//!
//! A plain packet to a known neighbour takes a straight line: one comparison of lengths, the TTL,
//! twelve bytes. Everything else goes to `act`, which works on one packet apart from its chunk,
//! so that a packet that waited for its neighbour takes the same way when it is let go.
//!
//! Every received packet has exactly one counted fate. A packet that causes an ICMP error is
//! dropped for its own reason, whether the error is sent (an emitted packet) or withheld by the rate
//! limit (`RouterCounters::icmp_errors_withheld`). A packet that leaves in fragments is taken, its
//! fragments are emitted: all, or none when cells run out.

use std::net::IpAddr;
use std::sync::Arc;

use chunk::{Chunk, Columns, Declaration, DropReason, Packet, ReasonBlock, Verdict};
use engine::{Context, Phases, Stage};
use lookup::fib::{Adjacency, Fib};
use packet::checksum::ipv4_decrement_ttl;
use packet::{EtherType, MacAddr, ipv6::decrement_hop_limit};

use super::PipelineOptions;
use super::columns::{Answer, Decision, RouterColumns, flags, is_live};
use super::control::{ethertype, ipv4, ipv6};
use super::counters::RouterCounters;
use super::errors::{Limits, Problem};
use super::events::Events;
use super::frames::{self, ETHERNET_LEN, Link};
use super::gate;
use super::neighbours::{Full, Waiting};
use super::reasons;
use super::route::decide;
use super::size::is_within;

/// How often neighbours in use are reported, so that the resolver confirms them: well within the
/// 30 seconds for which a confirmation holds.
const IN_USE_NS: u64 = 10_000_000_000;

/// Bytes of the longest packet that is made here, with room for a link header.
const PIECE_LEN: usize = 66_000;

/// Where what is made here enters that a [`Guard`](super::Guard) holds.
pub(super) const AGAIN: &str = "decode";

/// No version of the tables.
const NEVER: u64 = u64::MAX;

/// The stage.
pub struct Rewrite {
    pub(super) counters: Arc<RouterCounters>,
    pub(super) events: Events,
    pub(super) limits: Limits,
    pub(super) defers_errors: bool,
    pub(super) guard: Option<Arc<dyn super::Guard>>,
    pub(super) origin: Option<Arc<dyn super::Origin>>,
    /// An error is being made whose fate a gate decides.
    pub(super) deferring: Option<u16>,
    pub(super) waiting: Waiting,
    /// Packets made while one packet was acted on; they follow it.
    pub(super) made: Vec<(Packet, Verdict)>,
    /// A packet that lies in several cells, in one piece, from its IP header on.
    pub(super) linear: Vec<u8>,
    /// A packet that is being made.
    pub(super) piece: Box<[u8]>,
    /// The segments of a packet that is being cut.
    pub(super) segments: Vec<Packet>,
    /// By adjacency: whether packets went there since the last report.
    in_use: Vec<bool>,
    in_use_reported_ns: u64,
    /// The version with which waiting packets were last looked up.
    retried_version: u64,
}

/// What is known of a packet beside its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transit {
    pub(super) flags: u16,
    pub(super) l3: u8,
    pub(super) interface: u16,
    pub(super) flow_hash: u32,
    /// When it arrived here.
    pub(super) since_ns: u64,
}

impl Transit {
    pub(super) fn is_v4(&self) -> bool {
        self.flags & flags::IPV4 != 0
    }

    pub(super) fn l3(&self) -> usize {
        usize::from(self.l3)
    }

    /// The packet from its IP header on, as far as its first cell goes.
    pub(super) fn ip<'a>(&self, packet: &'a Packet) -> &'a [u8] {
        packet.data().get(self.l3()..).unwrap_or_default()
    }

    /// Source and destination, IPv4 as `[0, address]`.
    pub(super) fn addresses(&self, packet: &Packet) -> ([u64; 2], [u64; 2]) {
        let ip = self.ip(packet);
        let word = |at: usize| {
            let bytes = ip.get(at..at + 8).and_then(|b| b.first_chunk().copied());
            u64::from_be_bytes(bytes.unwrap_or_default())
        };
        if self.is_v4() {
            let both = word(12);
            ([0, both >> 32], [0, both & 0xffff_ffff])
        } else {
            ([word(8), word(16)], [word(24), word(32)])
        }
    }

    /// Bytes of the IP packet, without what is behind it in the frame.
    pub(super) fn ip_len(&self, packet: &Packet) -> usize {
        let ip = self.ip(packet);
        let at = |at: usize| ip.get(at).map_or(0, |&byte| usize::from(byte));
        if self.is_v4() { at(2) << 8 | at(3) } else { (at(4) << 8 | at(5)) + 40 }
    }

    fn ttl(&self, packet: &Packet) -> u8 {
        self.ip(packet).get(if self.is_v4() { 8 } else { 7 }).copied().unwrap_or(0)
    }
}

pub(super) fn ip_address(is_v4: bool, address: [u64; 2]) -> IpAddr {
    if is_v4 { IpAddr::V4(ipv4(address)) } else { IpAddr::V6(ipv6(address)) }
}

impl Rewrite {
    /// A stage with no packet waiting.
    pub fn new(options: &PipelineOptions) -> Self {
        Self {
            counters: options.counters.clone(),
            events: Events::new(options.events.clone(), options.counters.clone(), options.seed),
            limits: Limits::new(),
            defers_errors: options.defers_errors,
            guard: options.guard.clone(),
            origin: options.origin.clone(),
            deferring: None,
            waiting: Waiting::new(),
            made: Vec::with_capacity(chunk::CHUNK_PACKETS_MAX),
            linear: Vec::with_capacity(PIECE_LEN),
            piece: vec![0; PIECE_LEN].into_boxed_slice(),
            segments: Vec::new(),
            in_use: Vec::new(),
            in_use_reported_ns: 0,
            retried_version: NEVER,
        }
    }
}

impl<T: AsRef<Fib>> Stage<T> for Rewrite {
    fn name(&self) -> &'static str {
        "rewrite"
    }

    fn sends_to(&self) -> &'static [&'static str] {
        if self.guard.is_some() { &[AGAIN] } else { &[] }
    }

    fn columns(&self) -> &'static [Declaration] {
        &[RouterColumns::COLUMNS]
    }

    fn phases(&self) -> Phases {
        Phases::POST
    }

    /// Segments that are too long are cut before they leave (`Rewrite::fit`).
    fn takes_offloads(&self) -> bool {
        true
    }

    fn drop_reasons(&self) -> &'static [&'static ReasonBlock] {
        super::REASONS
    }

    fn post_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, T>) {
        let cx = &mut cx.over(T::as_ref);
        // Packets that waited go before those that came later.
        if self.waiting.len() > 0 && self.retried_version != cx.version {
            self.retry(cx);
        }
        let view = RouterColumns::view(&mut chunk.rows);
        let mut answered = 0;
        for (row, packet) in chunk.packets.iter_mut().enumerate() {
            if !is_live(view.verdict[row]) {
                if !is_to_answer(view.verdict[row], view.flags[row]) {
                    continue;
                }
                answered += 1;
            }
            let (bits, decision) = (view.flags[row], view.decision[row]);
            if let Some(adjacency) = cx.tables.adjacency(decision)
                && forward_plain(packet, bits, view.l3[row], adjacency, &self.counters)
            {
                view.verdict[row] = Verdict::forward(adjacency.tx_port).0;
                if let Some(in_use) = self.in_use.get_mut(decision as usize) {
                    *in_use = true;
                }
                continue;
            }
            let transit = Transit {
                flags: bits,
                l3: view.l3[row],
                interface: view.interface[row],
                flow_hash: view.flow_hash[row],
                since_ns: cx.now_ns,
            };
            view.verdict[row] = self.act_on(packet, transit, decision, cx).0;
            for (packet, verdict) in self.made.drain(..) {
                chunk.emitted.push(chunk::Emitted { cause: row as u16, verdict, packet });
            }
        }
        cx.count_answered(answered);
    }

    fn tick(&mut self, cx: &mut Context<'_, T>) {
        let cx = &mut cx.over(T::as_ref);
        if self.waiting.len() > 0 {
            if self.retried_version != cx.version {
                self.retry(cx);
            }
            self.expire(cx);
        }
        self.report_in_use(cx);
    }

    fn next_tick_ns(&self) -> Option<u64> {
        self.waiting.expires_ns()
    }

    fn drain(&mut self, cx: &mut Context<'_, T>) {
        let cx = &mut cx.over(T::as_ref);
        while self.waiting.first(0).is_some() {
            let mut queue = self.waiting.take(0);
            while let Some((packet, _)) = self.waiting.pop(&mut queue) {
                cx.drop_packet(packet, packet::reasons::NEIGHBOUR_FAILED);
            }
        }
    }

    fn held(&self) -> usize {
        self.waiting.len()
    }

    /// Packets that wait for a neighbour go on waiting, and limits go on.
    fn inherit(&mut self, before: &mut dyn Stage<T>) {
        let before = before.as_any().and_then(|before| before.downcast_mut::<Self>());
        if let Some(before) = before {
            std::mem::swap(&mut self.waiting, &mut before.waiting);
            std::mem::swap(&mut self.limits, &mut before.limits);
            std::mem::swap(&mut self.in_use, &mut before.in_use);
        }
    }

    fn as_any(&mut self) -> Option<&mut dyn std::any::Any> {
        Some(self)
    }

    fn describe(&self, chunk: &mut Chunk, row: usize, tables: &T) -> String {
        let tables = tables.as_ref();
        let packet = &chunk.packets[row];
        if packet.is_empty() {
            return format!("{} packets wait or left in fragments", self.waiting.len());
        }
        let view = RouterColumns::view(&mut chunk.rows);
        let verdict = Verdict(view.verdict[row]);
        if verdict.kind() != chunk::VerdictKind::Forward {
            return String::new();
        }
        let port = tables.interface(verdict.port()).map_or("?", |interface| &interface.name);
        let frame = packet.data();
        let to = frame.first_chunk().copied().map(MacAddr).unwrap_or_default();
        let sent = engine::frame_text(packet.frame_len(), packet.offload);
        format!("{sent} to {to} from {} by {port}", frames::source_mac(frame))
    }
}

/// Whether a firewall has dropped the packet and left the answer to its sender to `rewrite`.
fn is_to_answer(verdict: u32, bits: u16) -> bool {
    Verdict(verdict) == REJECTED && bits & flags::ANSWER != 0
}

/// What a firewall drops, and its sender is told of.
const REJECTED: Verdict = Verdict::drop(crate::firewall::reasons::FIREWALL_REJECT);

/// Forwards a plain packet in place; `false`, and nothing changed, if anything about it is not
/// plain: family, TTL, length, neighbour.
#[inline(always)]
fn forward_plain(
    packet: &mut Packet,
    bits: u16,
    l3: u8,
    adjacency: &Adjacency,
    counters: &RouterCounters,
) -> bool {
    let l3 = usize::from(l3);
    let fits = is_within(packet, l3 + usize::from(adjacency.mtu));
    if !fits | (adjacency.resolved == 0) | ((bits != flags::IPV4) & (bits != flags::IPV6)) {
        return false;
    }
    if (l3 != ETHERNET_LEN) | (usize::from(adjacency.rewrite_len) != ETHERNET_LEN) {
        return forward_tagged(packet, bits, l3, adjacency, counters);
    }
    let Some(head) = packet.data_mut().first_chunk_mut::<34>() else { return false };
    if !lower_ttl(bits, &mut head[ETHERNET_LEN..]) {
        return false;
    }
    // The EtherType stays the packet's own.
    head[..12].copy_from_slice(&adjacency.rewrite[..12]);
    true
}

/// The same with tags to be pushed, popped or changed.
#[inline(never)]
fn forward_tagged(
    packet: &mut Packet,
    bits: u16,
    l3: usize,
    adjacency: &Adjacency,
    counters: &RouterCounters,
) -> bool {
    let Some(link) = Link::of(adjacency, ethertype(bits == flags::IPV4)) else { return false };
    // Everything is looked at before anything is changed.
    let ttl_at = l3 + if bits == flags::IPV4 { 8 } else { 7 };
    let alive = packet.data().get(ttl_at).is_some_and(|&ttl| ttl > 1);
    if !alive || !frames::replace_link_header(packet, l3, link.header()) {
        return false;
    }
    if link.is_tagged() {
        counters.count_tagged_tx(link.interface, packet.frame_len());
    }
    packet.data_mut().get_mut(link.header().len()..).is_some_and(|ip| lower_ttl(bits, ip))
}

/// Takes one from TTL or hop limit; `false`, and nothing changed, where that leaves none.
#[inline(always)]
fn lower_ttl(bits: u16, ip: &mut [u8]) -> bool {
    let at = if bits == flags::IPV4 { 8 } else { 7 };
    if ip.get(at).is_none_or(|&ttl| ttl <= 1) {
        return false;
    }
    if bits == flags::IPV4 {
        ipv4_decrement_ttl(ip)
    } else {
        ip[at] -= 1
    }
    true
}

impl Rewrite {
    /// What becomes of a packet that is not plain. What it makes waits in `made`.
    #[cold]
    #[inline(never)]
    fn act_on(
        &mut self,
        packet: &mut Packet,
        transit: Transit,
        decision: u32,
        cx: &mut Context<'_, Fib>,
    ) -> Verdict {
        if transit.flags & flags::ANSWER == 0 {
            return self.act(packet, transit, Decision::decode(decision), cx);
        }
        match Answer::decode(transit.flags) {
            Answer::Arp => self.answer_arp(packet, transit, cx),
            Answer::Neighbour => self.answer_neighbour(packet, transit, cx),
            Answer::Echo => self.answer_echo(packet, Transit { flags: flags::IPV6, ..transit }, cx),
            Answer::LinkLocal => {
                self.deliver(packet, Transit { flags: flags::IPV6, ..transit }, cx)
            }
            answer @ (Answer::RejectedV4 | Answer::RejectedV6) => {
                let is_v4 = answer == Answer::RejectedV4;
                let flags = if is_v4 { flags::IPV4 } else { flags::IPV6 };
                self.report_rejected(packet, Transit { flags, ..transit }, cx);
                Verdict::drop(crate::firewall::reasons::FIREWALL_REJECT)
            }
            answer @ (Answer::TooBigV4 | Answer::TooBigV6) => {
                let is_v4 = answer == Answer::TooBigV4;
                let flags = if is_v4 { flags::IPV4 } else { flags::IPV6 };
                let mtu = u16::try_from(decision).unwrap_or(u16::MAX);
                self.refuse(packet, Transit { flags, ..transit }, Problem::TooBig(mtu), cx)
            }
            Answer::BadOption(pointer) => {
                let transit = Transit { flags: flags::IPV4, ..transit };
                self.report(packet, transit, Problem::BadOption(pointer), cx);
                Verdict::drop(packet::reasons::IP_BAD_OPTIONS)
            }
        }
    }

    /// Carries out a decision about one packet of either family.
    pub(super) fn act(
        &mut self,
        packet: &mut Packet,
        transit: Transit,
        decision: Decision,
        cx: &mut Context<'_, Fib>,
    ) -> Verdict {
        let is_v4 = transit.is_v4();
        let near = transit.flags & flags::LINK_LOCAL != 0;
        if near && !matches!(decision, Decision::Local(_)) {
            // IPv4 has no error for this (RFC 3927 §7).
            return if is_v4 {
                Verdict::drop(reasons::LINK_LOCAL_NOT_FORWARDED)
            } else {
                self.refuse(packet, transit, Problem::BeyondScope, cx)
            };
        }
        match decision {
            Decision::NoRoute => self.refuse(packet, transit, Problem::NoRoute, cx),
            Decision::Unreachable => self.refuse(packet, transit, Problem::Unreachable, cx),
            Decision::Local(_) => self.deliver(packet, transit, cx),
            Decision::Broadcast(interface) if interface == transit.interface => {
                self.deliver_group(packet, transit, cx)
            }
            Decision::Broadcast(_) => Verdict::drop(reasons::BROADCAST_NOT_FORWARDED),
            // Whatever the next hop, the TTL must allow the packet to reach it.
            Decision::Adjacency(_) | Decision::Connected(_) if transit.ttl(packet) <= 1 => {
                self.refuse(packet, transit, Problem::TtlExceeded, cx)
            }
            Decision::Adjacency(index) => match cx.tables.adjacency(index) {
                Some(adjacency) => {
                    let (interface, address) = (adjacency.interface, adjacency.address);
                    let address = ip_address(adjacency.family != 6, address);
                    self.pass_to(packet, transit, Some((adjacency, index)), interface, address, cx)
                }
                None => Verdict::drop(kernels::reasons::BAD_LOOKUP),
            },
            Decision::Connected(interface) => {
                let address = ip_address(is_v4, transit.addresses(packet).1);
                let known = cx.tables.neighbour(interface, address);
                self.pass_to(packet, transit, known, interface, address, cx)
            }
        }
    }

    fn pass_to(
        &mut self,
        packet: &mut Packet,
        transit: Transit,
        known: Option<(&Adjacency, u32)>,
        interface: u16,
        address: IpAddr,
        cx: &mut Context<'_, Fib>,
    ) -> Verdict {
        let ethertype = ethertype(transit.is_v4());
        if let Some((adjacency, index)) = known
            && adjacency.resolved != 0
        {
            if let Some(in_use) = self.in_use.get_mut(index as usize) {
                *in_use = true;
            }
            return match Link::of(adjacency, ethertype) {
                Some(link) => self.send(packet, transit, &link, cx),
                None => Verdict::drop(kernels::reasons::BAD_LOOKUP),
            };
        }
        if cx.tables.options().derive_neighbours {
            return match derived(cx.tables, interface, address, ethertype) {
                Some(link) => self.send(packet, transit, &link, cx),
                None => Verdict::drop(kernels::reasons::BAD_LOOKUP),
            };
        }
        self.hold(packet, transit, interface, address, cx)
    }

    /// Sends a packet by a link: cut down to what the link takes, TTL down, header on.
    fn send(
        &mut self,
        packet: &mut Packet,
        transit: Transit,
        link: &Link,
        cx: &mut Context<'_, Fib>,
    ) -> Verdict {
        if !is_within(packet, transit.l3() + usize::from(transit.len_max(link)))
            && let Err(verdict) = self.fit(packet, transit, link, cx)
        {
            return verdict;
        }
        let l3 = transit.l3();
        let ip = packet.data_mut().get_mut(l3..).unwrap_or_default();
        if transit.is_v4() {
            ipv4_decrement_ttl(ip)
        } else {
            decrement_hop_limit(ip)
        }
        if frames::replace_link_header(packet, l3, link.header()) {
            if link.is_tagged() {
                self.counters.count_tagged_tx(link.interface, packet.frame_len());
            }
            Verdict::forward(link.port)
        } else {
            Verdict::drop(chunk::reasons::NO_CELLS)
        }
    }

    /// Lets a packet that was made here follow its cause.
    pub(super) fn make(&mut self, mut frame: Packet, link: &Link) {
        if let Some(port) = self.deferring {
            frame.mark = gate::mark(port, link.is_tagged().then_some(link.interface));
        } else if link.is_tagged() {
            self.counters.count_tagged_tx(link.interface, frame.frame_len());
        }
        self.made.push((frame, Verdict::forward(link.port)));
    }

    /// Drops a packet and sends an ICMP error to its source.
    fn refuse(
        &mut self,
        packet: &Packet,
        transit: Transit,
        problem: Problem,
        cx: &mut Context<'_, Fib>,
    ) -> Verdict {
        self.report(packet, transit, problem, cx);
        Verdict::drop(match problem {
            Problem::TtlExceeded => reasons::TTL_EXPIRED,
            Problem::NoRoute => kernels::reasons::NO_ROUTE,
            Problem::Unreachable => kernels::reasons::UNREACHABLE,
            Problem::NeighbourFailed => packet::reasons::NEIGHBOUR_FAILED,
            Problem::BeyondScope => reasons::LINK_LOCAL_NOT_FORWARDED,
            Problem::TooBig(_) if transit.is_v4() => reasons::FRAGMENTATION_NEEDED,
            Problem::TooBig(_) => packet::reasons::TOO_BIG,
            Problem::BadOption(_) => packet::reasons::IP_BAD_OPTIONS,
            Problem::Prohibited => crate::firewall::reasons::FIREWALL_REJECT,
        })
    }

    /// Looks up again what waits, with a version in which its neighbours may be known, and lets it
    /// go in order.
    fn retry(&mut self, cx: &mut Context<'_, Fib>) {
        self.retried_version = cx.version;
        let mut place = 0;
        while let Some((key, first)) = self.waiting.first(place) {
            let is_known = |known: Option<&Adjacency>| known.is_some_and(|a| a.resolved != 0);
            let still = match self.look_up(&first.0, first.1, cx.tables) {
                Ok(Decision::Adjacency(index)) => cx.tables.adjacency(index).is_some_and(|a| {
                    let address = ip_address(a.family != 6, a.address);
                    !is_known(Some(a)) && (a.interface, address) == key
                }),
                Ok(Decision::Connected(interface)) => {
                    let neighbour = cx.tables.neighbour(interface, key.1);
                    interface == key.0 && !is_known(neighbour.map(|(a, _)| a))
                }
                _ => false,
            };
            if still && !cx.tables.options().derive_neighbours {
                self.waiting.doubt(place);
                place += 1;
                continue;
            }
            // Taken out before any of them is sent on: one may come to wait here again.
            let mut queue = self.waiting.take(place);
            while let Some((mut packet, transit)) = self.waiting.pop(&mut queue) {
                let verdict = match self.look_up(&packet, transit, cx.tables) {
                    Ok(decision) => self.act(&mut packet, transit, decision, cx),
                    Err(reason) => Verdict::drop(reason),
                };
                self.part_with(packet, verdict, cx);
            }
        }
    }

    fn look_up(
        &self,
        packet: &Packet,
        transit: Transit,
        fib: &Fib,
    ) -> Result<Decision, DropReason> {
        let dst = ip_address(transit.is_v4(), transit.addresses(packet).1);
        decide(fib, fib.lookup_one(dst), transit.flow_hash)
    }

    /// Ends what has waited too long.
    fn expire(&mut self, cx: &mut Context<'_, Fib>) {
        let wait_ns = cx.tables.options().neighbour_wait_ns;
        let mut place = 0;
        while let Some((key, first)) = self.waiting.first(place) {
            if cx.now_ns < first.1.since_ns.saturating_add(wait_ns) {
                self.waiting.ask(place, cx.now_ns, || self.events.wanted(key.0, key.1));
                place += 1;
                continue;
            }
            let mut queue = self.waiting.take(place);
            let mut is_first = true;
            while let Some((packet, transit)) = self.waiting.pop(&mut queue) {
                if std::mem::take(&mut is_first) {
                    self.report(&packet, transit, Problem::NeighbourFailed, cx);
                }
                self.part_with(packet, Verdict::drop(packet::reasons::NEIGHBOUR_FAILED), cx);
            }
        }
        self.waiting.set_wait_ns(wait_ns);
    }

    /// Hands a packet that was held, and what it made, back to the engine.
    fn part_with(&mut self, packet: Packet, verdict: Verdict, cx: &mut Context<'_, Fib>) {
        match verdict.kind() {
            chunk::VerdictKind::Taken => packet.free(cx.pool),
            chunk::VerdictKind::Drop => cx.drop_packet(packet, verdict.reason()),
            _ => cx.release(packet, verdict),
        }
        for (packet, verdict) in self.made.drain(..) {
            cx.release(packet, verdict);
        }
    }

    fn hold(
        &mut self,
        packet: &mut Packet,
        transit: Transit,
        interface: u16,
        address: IpAddr,
        cx: &mut Context<'_, Fib>,
    ) -> Verdict {
        if self.retried_version != cx.version {
            self.retried_version = NEVER;
        }
        let key = (interface, address);
        match self.waiting.push(key, packet, transit, cx.tables.options()) {
            Ok(place) => {
                self.waiting.ask(place, cx.now_ns, || self.events.wanted(interface, address));
                Verdict::TAKEN
            }
            Err(full) => {
                // It is not known the sooner for other packets that wait; of those that come later one may pass.
                if full == Full::Room {
                    self.events.wanted_by(packet.port, interface, address, cx.now_ns);
                }
                Verdict::drop(reasons::NEIGHBOUR_QUEUE_FULL)
            }
        }
    }

    /// Asks for confirmation of the neighbours that packets went to.
    fn report_in_use(&mut self, cx: &Context<'_, Fib>) {
        if cx.now_ns < self.in_use_reported_ns.saturating_add(IN_USE_NS) {
            return;
        }
        self.in_use_reported_ns = cx.now_ns;
        let mut index = 0;
        while let Some(adjacency) = cx.tables.adjacency(index as u32) {
            match self.in_use.get_mut(index) {
                None => self.in_use.push(false),
                Some(in_use) => {
                    if std::mem::take(in_use) && adjacency.resolved != 0 {
                        let address = ip_address(adjacency.family != 6, adjacency.address);
                        // One that is lost is said the next time.
                        self.events.wanted(adjacency.interface, address);
                    }
                }
            }
            index += 1;
        }
        self.in_use.truncate(index);
    }
}

/// The link to a neighbour whose MAC is made up from its address.
pub(super) fn derived(
    fib: &Fib,
    interface: u16,
    address: IpAddr,
    ethertype: EtherType,
) -> Option<Link> {
    Link::new(fib, interface, MacAddr::for_ip(address), ethertype)
}
