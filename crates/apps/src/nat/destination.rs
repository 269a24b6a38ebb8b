//! Stage `nat`: finds the session of each packet, and translates its destination.
//!
//! | | |
//! | --- | --- |
//! | reads | `flags`, `l3`, `interface`, the packets |
//! | writes | the packets, `dst4`, `dst6`, `flags`, what a firewall sees; `nat`, what is left to `nat_source` |
//! | next | the stages behind it |
//! | taken | fragments: their datagram goes on when it is whole, from `decode` on, at the worker of its session |
//! | answers | echo requests of IPv6 hosts to IPv4 addresses of the router |
//! | drop | outside addresses without a session, what NAT64 does not translate, fragments that do not become whole |
//!
//! What becomes of most packets is known without the table ([`nat::cache`]); the others of a chunk are looked up in one
//! batch. An ICMP error is translated here with the packet that it quotes (RFC 5508 REQ-4 and REQ-5): outer source,
//! destination and quoted ends.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use chunk::{Chunk, Columns, Declaration, DropReason, Packet, ReasonBlock, Rows, Verdict};
use controlplane::Tables;
use engine::{Context, Phases, Spread, SpreadHash, Stage};
use lookup::fib::Fib;
use nat::cache::{Place, Places};
use nat::families::{Plain6, Turn};
use nat::rewrite::{Which, set_end, set_quoted, set_quoted_number};
use nat::rules::{Action, Rules};
use nat::translator::{Source, Way};
use nat::tuple::{Tuple, is_error};
use nat::{Plain, Tcp, Translator};
use packet::{Decoded, IpProtocol, Kind};
use stream::table::Found;
use stream::{FlowKey, Side};

use super::ahead::Open;
use super::columns::{DestinationColumns, DestinationView, HeadersColumns, HeadersView};
use super::family::{turn, turn_error};
use super::known::{AHEAD, PlainRow, prefetch_turned};
use super::source::{Stopped, Wanted, reason};
use super::{Current, Shared, lock, reasons};
use crate::firewall::Headers;
use crate::fragments::{Fragments, Taken};
use crate::received;
use crate::records::{self, RecordColumns, Records};
use crate::router::RouterPart;
use crate::router::columns::{Answer, RouterColumns, flags};

/// Where datagrams that became whole enter the pipeline.
pub const PLACE: &str = "decode";

/// Entries of the table that a piece of a sweep looks at.
const PIECE: usize = 1 << 12;

/// How often all sessions are looked at, seconds.
const SWEEP_S: u32 = 1;

/// The stage.
pub struct Destination {
    translator: Shared,
    current: Current,
    fragments: Fragments,
    with_headers: bool,
    pub(super) writes_sources: bool,
    pub(super) turns_early: bool,
    pub(super) decoded: Box<[Decoded]>,
    /// Rows whose packets are looked up, and their keys.
    pub(super) asked: Vec<Asked>,
    /// Rows whose packets are plain; and whether some may become packets of the other family, by the rules when they came.
    pub(super) plain: Vec<PlainRow>,
    pub(super) has_turns: bool,
    /// Rows whose packets become known ones of the other family, behind others that are looked up.
    pub(super) turns: Vec<(u16, Turn)>,
    pub(super) places: Places,
    /// Places in `asked`, in the order of rows.
    order: Vec<u16>,
    errors: Vec<u16>,
    keys: Vec<FlowKey>,
    found: Vec<Found>,
    sweep_s: u32,
    is_sweeping: bool,
    now_ns: u64,
    stopped: Stopped,
    /// Of the last packet that became IPv4.
    pub(super) identification: u16,
    /// A packet that is made.
    made: Box<[u8]>,
    /// Over captures: bursts that are not finished.
    open: Option<Open>,
    /// Stages share records.
    shares: bool,
    /// Rows whose packets changed, and to what, for those.
    changed: Vec<(u16, Changed)>,
}

/// What of the headers of a packet has changed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Changed {
    /// Address and port of an end.
    End(Which, u32, u16),
    /// Anything.
    All,
}

/// A row whose packet is looked up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    row: u16,
    /// The end of the key that sent it.
    side: Side,
    /// What is known of its TCP segment.
    tcp: Tcp,
    /// It is plain, and was not decoded.
    is_plain: bool,
}

/// A packet whose key was looked up, and what is known around it.
struct Looked<'a> {
    tuple: Tuple,
    /// What its session says.
    step: Option<(Tuple, Way)>,
    /// It is of a control connection of FTP.
    is_control: bool,
    rules: &'a Rules,
    fib: &'a Fib,
    now_s: u32,
}

/// The columns that the stage writes.
pub(super) struct Out<'a> {
    pub(super) verdict: &'a mut [u32],
    pub(super) flags: &'a mut [u16],
    pub(super) l3: &'a mut [u8],
    pub(super) interface: &'a mut [u16],
    pub(super) dst4: &'a mut [u32],
    pub(super) src4: &'a mut [u32],
    pub(super) dst6: &'a mut [[u64; 2]],
    pub(super) src6: &'a mut [[u64; 2]],
    pub(super) nat: &'a mut [u64],
    pub(super) headers: Option<Headers<'a>>,
}

impl<'a> From<DestinationView<'a>> for Out<'a> {
    fn from(view: DestinationView<'a>) -> Self {
        let DestinationView { verdict, flags, l3, interface, dst4, src4, dst6, src6, nat, .. } =
            view;
        Self { verdict, flags, l3, interface, dst4, src4, dst6, src6, nat, headers: None }
    }
}

impl<'a> From<HeadersView<'a>> for Out<'a> {
    fn from(view: HeadersView<'a>) -> Self {
        let HeadersView { verdict, flags, l3, interface, dst4, src4, dst6, src6, nat, .. } = view;
        let headers = Headers {
            family: view.filter_family,
            head0: view.filter_head0,
            head1: view.filter_head1,
            head2: view.filter_head2,
            l3: view.filter_l3,
        };
        let headers = Some(headers);
        Self { verdict, flags, l3, interface, dst4, src4, dst6, src6, nat, headers }
    }
}

impl Out<'_> {
    /// The IPv6 packet of a row becomes an IPv4 packet in `nat_source`: what the route looks at is of that one.
    #[inline(always)]
    pub(super) fn becomes_v4(&mut self, row: usize, src: u32, dst: u32, wanted: Wanted) {
        self.flags[row] = self.flags[row] & !flags::IPV6 | flags::IPV4;
        (self.src4[row], self.dst4[row], self.nat[row]) = (src, dst, wanted.encode());
    }

    /// Says what the packet of a row has become.
    pub(super) fn changed(&mut self, row: usize, packet: &Packet, d: &mut Decoded) {
        received::decode_into(packet, d);
        let other = self.flags[row] & !(flags::IPV4 | flags::IPV6);
        if d.kind == Kind::Ipv6 {
            self.flags[row] = other | flags::IPV6;
            (self.dst6[row], self.src6[row]) = (d.dst, d.src);
        } else {
            self.flags[row] = other | flags::IPV4;
            (self.dst4[row], self.src4[row]) = (d.dst_v4(), d.src_v4());
        }
        if let Some(headers) = &mut self.headers {
            headers.put(row, packet.data(), d, self.interface[row]);
        }
    }
}

impl Destination {
    /// With the translator of its worker. `with_headers`: a later stage reads the headers of packets. `seed`: as that of
    /// the translator.
    pub fn new(translator: Shared, current: Current, with_headers: bool, seed: u64) -> Self {
        let max = chunk::CHUNK_PACKETS_MAX;
        let places = lock(&translator).places();
        Self {
            translator,
            current,
            fragments: Fragments::new(seed, reasons::NAT_FRAGMENT),
            with_headers,
            writes_sources: false,
            turns_early: true,
            decoded: vec![Decoded::default(); max].into_boxed_slice(),
            asked: Vec::with_capacity(max),
            plain: Vec::with_capacity(max),
            has_turns: false,
            turns: Vec::with_capacity(max),
            places,
            order: Vec::with_capacity(max),
            errors: Vec::with_capacity(max),
            keys: Vec::with_capacity(max),
            found: Vec::with_capacity(max),
            sweep_s: 0,
            is_sweeping: false,
            now_ns: 0,
            stopped: Stopped::default(),
            identification: seed as u16,
            made: vec![0; 1280].into_boxed_slice(),
            open: None,
            shares: false,
            changed: Vec::new(),
        }
    }

    /// Stages share records of headers, which follow what changes here.
    #[must_use]
    pub(super) fn sharing(mut self, shares: bool) -> Self {
        self.shares = shares;
        if shares {
            self.changed.reserve(2 * chunk::CHUNK_PACKETS_MAX);
        }
        self
    }

    /// The packet of a row has changed.
    #[inline(always)]
    pub(super) fn note(&mut self, row: usize, changed: Changed) {
        if self.shares {
            self.changed.push((row as u16, changed));
        }
    }

    /// Writes sources of sessions that are known at once: no stage reads packets between this one and `nat_source`.
    #[must_use]
    pub fn writing_sources(mut self, writes_sources: bool) -> Self {
        self.writes_sources = writes_sources;
        self
    }

    /// Whether IPv6 packets become IPv4 here. Otherwise they do in `nat_source`, and stages between see them as their hosts
    /// send them and as answers come, while the route is that of the IPv4 packet.
    #[must_use]
    pub fn turning_early(mut self, turns_early: bool) -> Self {
        self.turns_early = turns_early;
        self
    }

    /// Counts bursts, over captures.
    #[must_use]
    pub(super) fn counting(mut self, open: Option<Open>) -> Self {
        self.open = open;
        self
    }

    /// The packet of a row is looked up with the next batch.
    #[inline]
    pub(super) fn ask(&mut self, row: u16, tuple: &Tuple, tcp: Tcp, is_plain: bool) {
        let (key, side) = tuple.key();
        self.keys.push(key);
        self.asked.push(Asked { row, side, tcp, is_plain });
    }

    /// Makes records what packets are now.
    fn follow_changes(&mut self, rows: &mut Rows) {
        if self.changed.is_empty() {
            return;
        }
        let mut records = Records::of_rows(rows);
        for (row, changed) in self.changed.drain(..) {
            let row = usize::from(row);
            let Changed::End(which, address, port) = changed else {
                records.forget(row);
                continue;
            };
            let Some(record) = records.known(row) else { continue };
            let (end, shift) = match which {
                Which::Source => (&mut record.src, 16),
                Which::Destination => (&mut record.dst, 0),
            };
            *end = [0, address.into()];
            record.l4_word = record.l4_word & !(0xffff << shift) | u32::from(port) << shift;
        }
    }

    /// Ends idle sessions, a piece at a time.
    fn sweep(&mut self, now_ns: u64, is_live: bool) {
        let now_s = seconds(now_ns);
        if !self.is_sweeping {
            if now_s.wrapping_sub(self.sweep_s) < SWEEP_S {
                return;
            }
            (self.sweep_s, self.is_sweeping) = (now_s, true);
        }
        let mut translator = lock(&self.translator);
        // Over captures all at once, so that it does not depend on the size of chunks.
        while self.is_sweeping {
            self.is_sweeping = !translator.sweep(PIECE, self.sweep_s);
            if is_live {
                return;
            }
        }
    }

    /// Translates the packets of the rows in `plain` and `asked`, which came in the same second.
    fn translate(&mut self, out: &mut Out<'_>, packets: &mut [Packet], now_s: u32, fib: &Fib) {
        let translator = self.translator.clone();
        let mut translator = lock(&translator);
        self.translate_known(out, packets, &mut translator, now_s);
        if self.asked.is_empty() {
            return;
        }
        self.found.clear();
        self.found.resize(self.keys.len(), Found::NONE);
        translator.find(&self.keys, now_s, &mut self.found);
        // Control waits for the lock; but what was found may end by a packet of the batch itself.
        let ended = translator.ended();
        let rules = translator.rules().clone();
        // Plain rows were asked for behind the others; what is numbered or begun is so in the order of receipt.
        let mut order = std::mem::take(&mut self.order);
        order.clear();
        order.extend(0..self.asked.len() as u16);
        order.sort_unstable_by_key(|at| self.asked[usize::from(*at)].row);
        let mut turns = std::mem::take(&mut self.turns);
        let mut turned = turns.iter().peekable();
        for &at in &order {
            let at = usize::from(at);
            let (Asked { row, side, tcp, is_plain }, key) = (self.asked[at], self.keys[at]);
            self.note(usize::from(row), Changed::All);
            while let Some((before, turn)) = turned.next_if(|own| own.0 < row) {
                let before = usize::from(*before);
                self.turn_known(out, before, &mut packets[before], turn);
            }
            let row = usize::from(row);
            let tuple = Tuple::from_key(&key, side);
            // A session that made room for that of a packet before may have been of this one, as may those of an address that
            // a masquerade has no more.
            let slot = match translator.ended() == ended {
                true => self.found[at].slot(),
                false => translator.find_again(&key),
            };
            let step = slot.and_then(|slot| match is_plain {
                true => translator.step_plain(slot, side, &tuple, tcp, now_s),
                false => translator.step(slot, side, tcp),
            });
            if is_plain {
                received::decode_into(&packets[row], &mut self.decoded[row]);
            }
            let control = slot.filter(|slot| translator.is_control(*slot));
            if let (Some(slot), Some((_, way))) = (control, step) {
                let d = &self.decoded[row];
                let (l3, l4) = (usize::from(d.l3_offset), usize::from(d.l4_offset));
                let ip = packets[row].data_mut().get_mut(l3..).unwrap_or_default();
                translator.acknowledge(slot, way, ip, l4 - l3);
            }
            let is_control = control.is_some();
            let looked = Looked { tuple, step, is_control, rules: &rules, fib, now_s };
            self.translate_row(out, row, &mut packets[row], &mut translator, &looked);
        }
        for (row, turn) in turned {
            let row = usize::from(*row);
            self.turn_known(out, row, &mut packets[row], turn);
        }
        drop(translator);
        turns.clear();
        (self.order, self.turns) = (order, turns);
        self.asked.clear();
        self.keys.clear();
    }

    /// Translates a packet with its record, whatever it is.
    fn translate_row(
        &mut self,
        out: &mut Out<'_>,
        row: usize,
        packet: &mut Packet,
        translator: &mut Translator,
        looked: &Looked<'_>,
    ) {
        let Looked { ref tuple, step, is_control, rules, fib, now_s } = *looked;
        if tuple.family == 6 && self.stays_v6(out, row, packet, translator, looked) {
            return;
        }
        if tuple.family == 6 && !self.turns_early {
            return route_as_v4(out, row, (rules, fib), tuple, step.map(|(to, _)| to));
        }
        let d = &mut self.decoded[row];
        let other = match step {
            Some((to, _)) if to.family != tuple.family => Some(Ok(to)),
            None if tuple.family == 6 => {
                let tcp = tcp_of(packet, d, tuple);
                begin64(translator, (rules, fib), tuple, (tcp, now_s), &mut self.stopped)
            }
            _ => None,
        };
        if let Some(to) = other {
            self.identification = self.identification.wrapping_add(1);
            let turned = to.and_then(|to| {
                // Longer than what the link brings: it was put together here.
                let mtu = fib.interface(out.interface[row]).map_or(u16::MAX, |own| own.mtu);
                let is_long = d.ip_total_len > u32::from(mtu);
                let head = turn(packet, d, &to, self.identification, is_long);
                head.ok_or(reasons::NAT_UNTRANSLATABLE)
            });
            match turned {
                Ok(head) => {
                    out.changed(row, packet, d);
                    if head.may_fragment() {
                        out.flags[row] |= flags::MAY_FRAGMENT;
                    }
                }
                Err(reason) => out.verdict[row] = Verdict::drop(reason).0,
            }
            return;
        }
        if tuple.family == 6 {
            return;
        }
        let wanted = match step {
            Some((to, way)) => {
                let is_moved = to.dst.0 != tuple.dst.0
                    || (to.dst.1 != tuple.dst.1 && (way == Way::Back || !is_icmp(tuple)));
                if is_moved {
                    set(packet, d, tuple.protocol, Which::Destination, to.dst);
                    out.changed(row, packet, d);
                }
                let source = (to.src != tuple.src).then_some((to.src.0[1] as u32, to.src.1));
                match source {
                    _ if is_control => Wanted::Control(source),
                    Some(end) => Wanted::Source(end),
                    None => Wanted::Nothing,
                }
            }
            None => {
                let dst = (tuple.dst.0[1] as u32, tuple.dst.1);
                let to = rules.destination(tuple.protocol, dst.0, dst.1);
                let to = to.or_else(|| {
                    let inward = translator.expected(tuple).or_else(|| translator.inward(tuple));
                    let (rule, end) = inward?;
                    Some((rule, end.0[1] as u32, end.1))
                });
                match to {
                    Some((rule, address, port)) => {
                        let end = ([0, address.into()], port);
                        set(packet, d, tuple.protocol, Which::Destination, end);
                        out.changed(row, packet, d);
                        Wanted::NewTo(rule, dst)
                    }
                    None if rules.is_pool(dst.0) => {
                        out.verdict[row] = Verdict::drop(reasons::NAT_NO_SESSION).0;
                        return;
                    }
                    None => Wanted::New,
                }
            }
        };
        out.nat[row] = wanted.encode();
    }

    /// Whether an IPv6 packet is for another inside host, by the outside end of that one, or an echo request to the router, by an
    /// IPv4 address of it (RFC 6146 §3.8): it stays IPv6, goes to that host, or is answered as it is.
    fn stays_v6(
        &mut self,
        out: &mut Out<'_>,
        row: usize,
        packet: &mut Packet,
        translator: &Translator,
        looked: &Looked<'_>,
    ) -> bool {
        let Looked { ref tuple, step, rules, fib, .. } = *looked;
        let d = &mut self.decoded[row];
        let (end, wanted) = match step {
            Some((to, _)) if to.family == 6 => {
                let Some((rule, source)) = rules.embedded(to.src.0) else { return false };
                (to.dst, Wanted::Source6(rule, (source, to.src.1)))
            }
            Some(_) => return false,
            None => {
                let Some((rule, dst)) = rules.nat64(tuple) else { return false };
                if !rules.may_hairpin64(tuple, dst) {
                    return self.answers_v6(out, row, (tuple, dst), (rules, fib));
                }
                match translator.inward64(tuple.protocol, ([0, dst.into()], tuple.dst.1)) {
                    Some(end) => (end, Wanted::NewTo(rule, (dst, tuple.dst.1))),
                    None => return self.answers_v6(out, row, (tuple, dst), (rules, fib)),
                }
            }
        };
        set(packet, d, tuple.protocol, Which::Destination, end);
        out.changed(row, packet, d);
        out.nat[row] = wanted.encode();
        true
    }

    /// Whether an IPv6 packet is an echo request to the router's own IPv4 address `dst`; the router answers it, then.
    fn answers_v6(
        &self,
        out: &mut Out<'_>,
        row: usize,
        (tuple, dst): (&Tuple, u32),
        (rules, fib): (&Rules, &Fib),
    ) -> bool {
        let is_echo = tuple.protocol == IpProtocol::ICMPV6.0 && tuple.message.is_query();
        let is_own = rules.is_own(dst) || fib.own_addresses().has4(dst);
        let is_it = is_echo && is_own && rules.may_reach_inside(tuple, dst);
        if is_it {
            out.flags[row] = Answer::Echo.encode();
        }
        is_it
    }

    /// Translates an ICMP error with the packet that it quotes.
    fn translate_error(
        &mut self,
        out: &mut Out<'_>,
        row: usize,
        packet: &mut Packet,
        pool: &mut chunk::Pool,
    ) {
        let d = &mut self.decoded[row];
        let (l3, l4) = (usize::from(d.l3_offset), usize::from(d.l4_offset));
        let quoted = packet.data().get(l4 + 8..).and_then(Tuple::quoted);
        let mut translator = lock(&self.translator);
        let known =
            quoted.and_then(|(quoted, at)| Some((quoted, at, translator.restore(&quoted)?)));
        let Some((quoted, quoted_l4, sent)) = known else {
            // Routed, it would come back from whoever routes the outside address to this router.
            if belongs_to_nobody(translator.rules(), d) {
                out.verdict[row] = Verdict::drop(reasons::NAT_NO_SESSION).0;
            }
            return;
        };
        let number = quoted_number(packet.data(), l4 + 8 + quoted_l4, &quoted)
            .map(|number| translator.restore_number(&quoted, number));
        translator.counts_mut().errors += 1;
        let rules = translator.rules().clone();
        drop(translator);
        if sent.family == 4 && quoted.family == 6 && !self.turns_early {
            let (src, dst) = (sent.dst.0[1] as u32, sent.src.0[1] as u32);
            return out.becomes_v4(row, src, dst, Wanted::TurnError);
        }
        if sent.family != quoted.family {
            match turn_error(packet, d, &sent, &rules, &mut self.made, pool) {
                true => out.changed(row, packet, d),
                false => out.verdict[row] = Verdict::drop(reasons::NAT_UNTRANSLATABLE).0,
            }
            return;
        }
        let ip = packet.data_mut().get_mut(l3..).unwrap_or_default();
        set_quoted(ip, l4 - l3, quoted_l4, &sent);
        if let Some(number) = number {
            set_quoted_number(ip, l4 - l3, quoted_l4, number);
        }
        let icmp = d.protocol.0;
        set_end(ip, l4 - l3, icmp, Which::Destination, (sent.src.0, 0));
        // Whoever sent it seems to be in front of the translator, if the packet went to an address there.
        if sent.dst.0 != quoted.dst.0 {
            set_end(ip, l4 - l3, icmp, Which::Source, (sent.dst.0, 0));
        }
        out.changed(row, packet, d);
    }
}

/// Begins the session of an IPv6 packet that a rule translates to IPv4; `None` for one that none does.
pub(super) fn begin64(
    translator: &mut Translator,
    (rules, fib): (&Rules, &Fib),
    tuple: &Tuple,
    (tcp, now_s): (Tcp, u32),
    stopped: &mut Stopped,
) -> Option<Result<Tuple, DropReason>> {
    let (rule, dst) = rules.nat64(tuple)?;
    if !rules.may_turn(tuple, dst) || fib.own_addresses().has4(dst) {
        return Some(Err(reasons::NAT64_ADDRESS));
    }
    let dst = ([0, dst.into()], tuple.dst.1);
    let begun = translator.begin_by(tuple, dst, 4, Source::Rule(rule, 0), (tcp, now_s));
    Some(begun.map_err(|refusal| {
        stopped.note(translator, refusal, now_s);
        reason(refusal)
    }))
}

/// Has the route take an IPv6 packet for the IPv4 packet that it becomes in `nat_source`, with the ends `to` if it has a session.
fn route_as_v4(
    out: &mut Out<'_>,
    row: usize,
    (rules, fib): (&Rules, &Fib),
    tuple: &Tuple,
    to: Option<Tuple>,
) {
    if let Some(to) = to.filter(|to| to.family == 4) {
        let source = (to.src.0[1] as u32, to.src.1);
        return out.becomes_v4(row, source.0, to.dst.0[1] as u32, Wanted::Turn(source));
    }
    let Some((rule, dst)) = rules.nat64(tuple).filter(|_| to.is_none()) else { return };
    if !rules.may_turn(tuple, dst) || fib.own_addresses().has4(dst) {
        out.verdict[row] = Verdict::drop(reasons::NAT64_ADDRESS).0;
        return;
    }
    // Its source is not known before its session begins; one of the rule's.
    let own = rules.all.iter().find(|own| own.number == rule);
    let source = own.and_then(|own| match &own.action {
        Action::Nat64 { to, .. } => to.first().copied(),
        _ => None,
    });
    out.becomes_v4(row, source.unwrap_or(0), dst, Wanted::TurnNew(rule));
}

/// Whether a packet that belongs to no session goes to an address that is a translator's alone.
fn belongs_to_nobody(rules: &Rules, d: &Decoded) -> bool {
    match d.kind {
        Kind::Ipv4 => rules.is_translators(d.dst_v4()),
        Kind::Ipv6 => rules.takes64(d.src, d.dst),
        Kind::Arp | Kind::Other => false,
    }
}

/// Writes an end of a packet.
fn set(packet: &mut Packet, d: &Decoded, protocol: u8, which: Which, end: nat::tuple::End) {
    let (l3, l4) = (usize::from(d.l3_offset), usize::from(d.l4_offset));
    let ip = packet.data_mut().get_mut(l3..).unwrap_or_default();
    set_end(ip, l4 - l3, protocol, which, end);
}

fn is_icmp(tuple: &Tuple) -> bool {
    tuple.protocol == IpProtocol::ICMP.0 || tuple.protocol == IpProtocol::ICMPV6.0
}

/// The sequence number of a TCP segment that is quoted, whose upper layer begins with byte `at`.
fn quoted_number(data: &[u8], at: usize, quoted: &Tuple) -> Option<u32> {
    let is_tcp = quoted.protocol == IpProtocol::TCP.0 && quoted.family == 4;
    let number = data.get(at + 4..)?.first_chunk::<4>().filter(|_| is_tcp)?;
    Some(u32::from_be_bytes(*number))
}

/// What is known of a TCP segment; nothing of other packets.
pub(super) fn tcp_of(packet: &Packet, d: &Decoded, tuple: &Tuple) -> Tcp {
    let is_tcp = tuple.protocol == IpProtocol::TCP.0;
    let segment = packet.data().get(usize::from(d.l4_offset)..).filter(|_| is_tcp);
    segment.map_or(Tcp::default(), Tcp::of)
}

/// Seconds since 1970, modulo 2^32.
pub(super) const fn seconds(ns: u64) -> u32 {
    (ns / 1_000_000_000) as u32
}

impl Stage<Tables> for Destination {
    fn name(&self) -> &'static str {
        super::STAGE
    }

    fn sends_to(&self) -> &'static [&'static str] {
        &[PLACE]
    }

    fn drop_reasons(&self) -> &'static [&'static ReasonBlock] {
        super::REASONS
    }

    fn columns(&self) -> &'static [Declaration] {
        match self.with_headers {
            true if self.shares => {
                &[RouterColumns::COLUMNS, HeadersColumns::COLUMNS, RecordColumns::COLUMNS]
            }
            true => &[RouterColumns::COLUMNS, HeadersColumns::COLUMNS],
            false if self.shares => {
                &[RouterColumns::COLUMNS, DestinationColumns::COLUMNS, RecordColumns::COLUMNS]
            }
            false => &[RouterColumns::COLUMNS, DestinationColumns::COLUMNS],
        }
    }

    fn zeroed(&self) -> chunk::ColumnSet {
        let own = chunk::ColumnSet::of(&[DestinationColumns::NAT]);
        if self.shares { own.union(&records::zeroed()) } else { own }
    }

    fn phases(&self) -> Phases {
        Phases::PRE
    }

    fn spread(&self) -> Spread {
        Spread::Flow
    }

    fn spread_hash(&self) -> Option<SpreadHash> {
        let current = self.current.clone();
        Some(SpreadHash::from(move |frame: &[u8]| {
            current.read().unwrap_or_else(std::sync::PoisonError::into_inner).frame_hash(frame)
        }))
    }

    fn pre_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, Tables>) {
        let mut out: Out<'_> = match self.with_headers {
            true => HeadersColumns::view(&mut chunk.rows).into(),
            false => DestinationColumns::view(&mut chunk.rows).into(),
        };
        let packets = &mut chunk.packets[..];
        let Some(fib) = cx.tables.find::<RouterPart>() else { return };
        let (rules, keys) = {
            let translator = lock(&self.translator);
            (translator.rules().clone(), translator.keys())
        };
        let has_v6 = rules.has_v6();
        self.has_turns = keys.is_on();
        self.stopped.is_live = cx.is_live();
        if let Some(open) = &self.open {
            open.fetch_add(packets.len() as u64, Ordering::Release);
        }
        self.errors.clear();
        self.asked.clear();
        self.keys.clear();
        self.plain.clear();
        let families = if has_v6 { flags::IPV4 | flags::IPV6 } else { flags::IPV4 };
        let (mut second, mut second_of) = (0, 0);
        let mut next = 0;
        while next < packets.len() {
            let row = next;
            next += 1;
            if keys.is_on()
                && let Some(ahead) = packets.get(row + AHEAD)
            {
                prefetch_turned(ahead, out.flags[row + AHEAD]);
            }
            if !Verdict(out.verdict[row]).is_next() || out.flags[row] & families == 0 {
                continue;
            }
            let arrival_ns = cx.arrival_ns(&packets[row]);
            if arrival_ns != second_of && seconds(arrival_ns) != second {
                self.translate(&mut out, packets, second, fib);
                second = seconds(arrival_ns);
                self.now_ns = self.now_ns.max(arrival_ns);
                self.sweep(self.now_ns, cx.is_live());
            }
            second_of = arrival_ns;
            if !keys.is_on() {
                // Most packets are plain.
                let within = (!cx.is_live()).then_some(second);
                let other = self.take_plain(&out, packets, row, (families, within));
                if other != row {
                    next = other;
                    continue;
                }
            }
            let packet = &mut packets[row];
            let ip = packet.data().get(usize::from(out.l3[row])..).unwrap_or_default();
            let row16 = row as u16;
            if keys.is_on() {
                let found = match out.flags[row] {
                    flags::IPV4 => Plain::of(ip).map(|(plain, tcp)| {
                        (plain, self.places.of(plain), keys.of4(plain), tcp, false)
                    }),
                    flags::IPV6 => Plain6::of(ip).map(|(six, tcp)| {
                        (Plain::default(), Place::default(), keys.of6(&six), tcp, true)
                    }),
                    _ => None,
                };
                if let Some((plain, place, pair, tcp, is_v6)) = found {
                    self.plain.push(PlainRow::new(plain, (place, pair), row16, tcp, is_v6));
                    continue;
                }
            }
            // An error or a fragment changes elsewhere than others.
            self.note(row, Changed::All);
            let d = &mut self.decoded[row];
            received::decode_into(packet, d);
            if d.has(Decoded::FRAGMENT) && d.kind == Kind::Ipv6 && !rules.is_nat64(d.dst) {
                continue;
            }
            if d.has(Decoded::FRAGMENT) {
                // A datagram that is whole is handed over to the worker of its session. Over captures there is one worker, and it
                // takes the place of the fragment: handed over, it would come after all packets in flight, and how many those
                // are depends on what shades.
                match self.fragments.take(packet, d, arrival_ns, cx) {
                    Taken::Nothing => continue,
                    Taken::Whole(datagram) if !cx.is_live() => *packet = datagram,
                    taken => {
                        if let Taken::Whole(datagram) = taken {
                            let hash = hash_of(&rules, datagram.data());
                            let place = cx.place(PLACE).unwrap_or(0);
                            cx.hand_over(datagram, Some(row), hash, place);
                        }
                        out.verdict[row] = Verdict::TAKEN.0;
                        continue;
                    }
                }
                out.changed(row, packet, d);
            }
            let l4 = packet.data().get(usize::from(d.l4_offset)..).unwrap_or_default();
            match Tuple::of(d, l4) {
                Some(tuple) => {
                    let tcp = tcp_of(packet, d, &tuple);
                    self.ask(row as u16, &tuple, tcp, false);
                }
                None if matches!(d.protocol, IpProtocol::ICMP | IpProtocol::ICMPV6)
                    && l4.first().is_some_and(|kind| is_error(d.protocol.0, *kind)) =>
                {
                    self.errors.push(row as u16);
                }
                None if d.kind == Kind::Ipv4 && belongs_to_nobody(&rules, d) => {
                    out.verdict[row] = Verdict::drop(reasons::NAT_NO_SESSION).0;
                }
                None => {}
            }
        }
        self.translate(&mut out, packets, second, fib);
        for at in 0..self.errors.len() {
            let row = usize::from(self.errors[at]);
            self.translate_error(&mut out, row, &mut packets[row], cx.pool);
        }
        self.sweep(self.now_ns, cx.is_live());
        self.follow_changes(&mut chunk.rows);
    }

    fn tick(&mut self, cx: &mut Context<'_, Tables>) {
        if cx.is_live() {
            self.now_ns = cx.now_ns;
            self.sweep(cx.now_ns, true);
            self.fragments.expire(cx.now_ns, cx);
        }
    }

    fn next_tick_ns(&self) -> Option<u64> {
        let sweep_ns = match self.is_sweeping {
            true => self.now_ns,
            false => u64::from(self.sweep_s + SWEEP_S) * 1_000_000_000,
        };
        (self.now_ns > 0).then_some(sweep_ns)
    }

    fn held(&self) -> usize {
        self.fragments.held()
    }

    fn drain(&mut self, cx: &mut Context<'_, Tables>) {
        self.fragments.drain(cx);
    }

    fn inherit(&mut self, before: &mut dyn Stage<Tables>) {
        if let Some(before) = before.as_any().and_then(|before| before.downcast_mut::<Self>()) {
            std::mem::swap(&mut self.fragments, &mut before.fragments);
        }
    }

    fn as_any(&mut self) -> Option<&mut dyn Any> {
        Some(self)
    }

    fn describe(&self, chunk: &mut Chunk, row: usize, _tables: &Tables) -> String {
        let d = received::decode(&chunk.packets[row]);
        let nat = match self.with_headers {
            true => HeadersColumns::view(&mut chunk.rows).nat[row],
            false => DestinationColumns::view(&mut chunk.rows).nat[row],
        };
        let to = match (d.dst_ip(), d.ports()) {
            (Some(address), Some((_, port))) => {
                std::net::SocketAddr::new(address, port).to_string()
            }
            (Some(address), None) => address.to_string(),
            _ => return String::new(),
        };
        match Wanted::decode(nat) {
            Wanted::Nothing => format!("to {to}"),
            Wanted::New => format!("to {to}, no session"),
            Wanted::NewTo(rule, _) => format!("to {to} by rule {}", rule + 1),
            Wanted::Source(_) | Wanted::Source6(..) | Wanted::Written(_) => {
                format!("to {to}, its source is translated")
            }
            Wanted::Control(_) => format!("to {to}, a control connection of FTP"),
            Wanted::Turn(_) | Wanted::TurnNew(_) | Wanted::TurnError => {
                format!("to {to}, becomes IPv4 after the route lookup")
            }
        }
    }
}

/// The worker's hash of a packet, by the rules in use: for datagrams that are handed over.
fn hash_of(rules: &Arc<Rules>, frame: &[u8]) -> u32 {
    rules.frame_hash(frame)
}
