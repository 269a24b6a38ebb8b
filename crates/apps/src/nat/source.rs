//! Stage `nat_source`: translates sources when the way out is known, and begins sessions.
//!
//! | | |
//! | --- | --- |
//! | reads | `nat`, `decision`, `flags`, `l3`, `interface`, `dst4`, the packets |
//! | writes | the packets; `flags` of IPv6 packets that do not become IPv4 |
//! | next | `rewrite` |
//! | drop | no free port, no room for a session, too many bindings of a host, two sessions with the same ends; resets of no session; segments of FTP that wait for others |
//!
//! Of most packets `nat` has written the source already, where no stage between the two reads packets; nothing is left to do
//! then. IPv6 packets become IPv4 here where a stage between the two reads packets: it sees both directions in one family.
//! A packet that goes nowhere, and one whose TTL runs out, begins no session: `rewrite` answers it as it is.
//!
//! Rules and sessions may go while a chunk is between the two stages. What `nat` has found of a session is written all the same, as if the
//! packet had passed before; a session begins only by rules that are there ([`Refusal::Gone`]).

use std::any::Any;
use std::sync::atomic::Ordering;

use chunk::{Chunk, ColumnSet, Columns, Declaration, DropReason, Packet, ReasonBlock, Verdict};
use controlplane::Tables;
use engine::{Context, Phases, Stage};
use lookup::fib::Fib;
use nat::Translator;
use nat::families::{Plain6, Turn};
use nat::rewrite::{Which, set_end, set_end_plain};
use nat::translator::{Refusal, Source};
use nat::tuple::Tuple;
use packet::{Decoded, IpProtocol};

use super::ahead::Open;
use super::columns::{SourceColumns, SourceView};
use super::destination::{begin64, seconds, tcp_of};
use super::family::{turn, turn_error, turn_plain};
use super::ftp::ControlRow;
use super::{Shared, lock, reasons, rows};
use crate::received;
use crate::records::{self, RecordColumns, Records};
use crate::router::RouterPart;
use crate::router::columns::{self, RouterColumns, flags};
use crate::router::egress;

/// What the stage `nat` leaves to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Nothing.
    Nothing,
    /// The packet has no session; a rule for its source may begin one.
    New,
    /// Nor has this one, but its destination was translated by a rule from this address and port.
    NewTo(u16, (u32, u16)),
    /// The source becomes this address and port.
    Source((u32, u16)),
    /// The source of the IPv6 packet becomes the address that holds this one for this rule, and this port.
    Source6(u16, (u32, u16)),
    /// The same as `Source` of a control connection of FTP, if the source becomes another one.
    Control(Option<(u32, u16)>),
    /// The source is written already; it was this address and port. Where the packet goes no further it becomes that again.
    Written((u32, u16)),
    /// The IPv6 packet becomes an IPv4 packet with this source, to `dst4`.
    Turn((u32, u16)),
    /// The same of a packet that has no session yet, by this rule.
    TurnNew(u16),
    /// The IPv6 packet is an ICMP error about one of IPv4.
    TurnError,
}

/// The stage.
pub struct SourceStage {
    translator: Shared,
    stopped: Stopped,
    control: ControlRow,
    /// Over captures: bursts that are not finished.
    open: Option<Open>,
    /// Stages share records.
    shares: bool,
    turning: Turning,
}

/// What it takes for IPv6 packets to become IPv4.
struct Turning {
    /// Of the last packet that became IPv4.
    identification: u16,
    decoded: Decoded,
    /// A packet that is made.
    made: Box<[u8]>,
}

/// Packets that were not translated, for the log.
#[derive(Default)]
pub(super) struct Stopped {
    said_s: u32,
    ports: bool,
    pub(super) is_live: bool,
}

/// Rows that are asked at once whether something is left to do.
const GROUP: usize = 64;

/// Seconds between two lines of the log about exhaustion.
const QUIET_S: u32 = 10;

impl SourceStage {
    /// With the translator of its worker. `seed`: as that of the translator.
    pub fn new(translator: Shared, seed: u64) -> Self {
        let control = ControlRow::default();
        let made = vec![0; 576].into_boxed_slice();
        let turning = Turning { identification: seed as u16, decoded: Decoded::default(), made };
        let stopped = Stopped::default();
        Self { translator, stopped, control, open: None, shares: false, turning }
    }

    /// Counts bursts, over captures.
    #[must_use]
    pub(super) fn counting(mut self, open: Option<Open>) -> Self {
        self.open = open;
        self
    }

    /// Stages share records of headers, and those of packets that change here are forgotten.
    #[must_use]
    pub(super) fn sharing(mut self, shares: bool) -> Self {
        self.shares = shares;
        self
    }

    /// Does what a row wants that is not done in one write.
    #[inline(never)]
    fn act(
        &mut self,
        view: &mut SourceView<'_>,
        row: usize,
        packet: &mut Packet,
        fib: &Fib,
        cx: &mut Context<'_, Tables>,
    ) {
        let mut translator = lock(&self.translator);
        let to = match Wanted::decode(view.nat[row]) {
            Wanted::Nothing => return,
            Wanted::Source((address, port)) | Wanted::Written((address, port)) => {
                let d = received::decode(packet);
                let (l3, l4) = (usize::from(d.l3_offset), usize::from(d.l4_offset));
                let ip = packet.data_mut().get_mut(l3..).unwrap_or_default();
                let end = ([0, address.into()], port);
                set_end(ip, l4 - l3, d.protocol.0, Which::Source, end);
                return;
            }
            Wanted::Source6(rule, (address, port)) => {
                let d = received::decode(packet);
                let (l3, l4) = (usize::from(d.l3_offset), usize::from(d.l4_offset));
                let ip = packet.data_mut().get_mut(l3..).unwrap_or_default();
                match translator.rules().embed_by(rule, address) {
                    Some(address) => {
                        set_end(ip, l4 - l3, d.protocol.0, Which::Source, (address, port));
                    }
                    // Its rule is gone.
                    None => view.verdict[row] = Verdict::drop(reasons::NAT_NO_SESSION).0,
                }
                return;
            }
            Wanted::Control(end) => {
                let d = received::decode(packet);
                let (l3, l4) = (usize::from(d.l3_offset), usize::from(d.l4_offset));
                let ip = packet.data_mut().get_mut(l3..).unwrap_or_default();
                if let Some((address, port)) = end {
                    let end = ([0, address.into()], port);
                    set_end(ip, l4 - l3, d.protocol.0, Which::Source, end);
                }
                let mtu = egress(view.decision[row], fib).and_then(|own| fib.interface(own));
                let mtu = mtu.map_or(u16::MAX, |own| own.mtu);
                let now_s = seconds(cx.arrival_ns(packet));
                let announced = self.control.announce(packet, &mut translator, mtu, now_s, cx.pool);
                if let Err(stop) = announced {
                    view.verdict[row] = Verdict::drop(stop.reason()).0;
                    stop.refusal()
                        .into_iter()
                        .for_each(|own| self.stopped.note(&translator, own, now_s));
                }
                return;
            }
            Wanted::New => None,
            Wanted::NewTo(rule, dst) => Some((rule, dst)),
            Wanted::Turn(_) | Wanted::TurnNew(_) | Wanted::TurnError => return,
        };
        let outside = egress(view.decision[row], fib);
        if outside.is_none() && to.is_none() {
            return;
        }
        let now_s = seconds(cx.arrival_ns(packet));
        let new = Row { packet, inside: view.interface[row], outside, now_s };
        match begin(&mut translator, new, to) {
            // The first packet of a control connection says where its stream begins.
            Ok(true) => {
                let begun =
                    self.control.announce(packet, &mut translator, u16::MAX, now_s, cx.pool);
                if let Err(stop) = begun {
                    view.verdict[row] = Verdict::drop(stop.reason()).0;
                }
            }
            Ok(false) => {}
            Err(refusal) => {
                view.verdict[row] = Verdict::drop(reason(refusal)).0;
                self.stopped.note(&translator, refusal, now_s);
            }
        }
    }
}

impl SourceStage {
    /// Makes the IPv6 packet of a row the IPv4 packet that its columns are of already.
    #[inline(never)]
    fn turn(
        &mut self,
        view: &mut SourceView<'_>,
        row: usize,
        packet: &mut Packet,
        fib: &Fib,
        cx: &mut Context<'_, Tables>,
    ) {
        let is_answer = view.flags[row] & flags::ANSWER != 0;
        if is_answer || !Verdict(view.verdict[row]).is_next() {
            // Somebody between the stages has settled it: it stays what its sender sent.
            view.flags[row] = columns::of_v6(view.flags[row]);
            return;
        }
        let (wanted, dst, l3) = (Wanted::decode(view.nat[row]), view.dst4[row], view.l3[row]);
        if matches!(wanted, Wanted::TurnNew(_)) && !goes_on(packet, view.decision[row], fib) {
            // `rewrite` answers it as it is.
            view.flags[row] = columns::of_v6(view.flags[row]);
            return;
        }
        let turning = &mut self.turning;
        turning.identification = turning.identification.wrapping_add(1);
        if let Wanted::Turn(source) = wanted
            && let ip = packet.data().get(usize::from(l3)..).unwrap_or_default()
            && let Some((six, _)) = Plain6::of(ip)
            && let from = six.tuple()
            && let Some(turn) = Turn::new(&from, &to_v4(&from, source, dst))
            && turn.is_simple(ip)
        {
            if !turn_plain(packet, usize::from(l3), &turn, turning.identification) {
                view.verdict[row] = Verdict::drop(reasons::NAT_UNTRANSLATABLE).0;
            }
            return;
        }
        let d = &mut turning.decoded;
        received::decode_into(packet, d);
        let l4 = packet.data().get(usize::from(d.l4_offset)..).unwrap_or_default();
        let to = match (wanted, Tuple::of(d, l4)) {
            (Wanted::Turn(source), Some(tuple)) => Ok(to_v4(&tuple, source, dst)),
            (Wanted::TurnNew(_), Some(tuple)) => {
                let now_s = seconds(cx.arrival_ns(packet));
                let mut translator = lock(&self.translator);
                let rules = translator.rules().clone();
                let by = (tcp_of(packet, d, &tuple), now_s);
                let begun = begin64(&mut translator, (&rules, fib), &tuple, by, &mut self.stopped);
                // Its rule is gone.
                begun.unwrap_or(Err(reasons::NAT_NO_SESSION))
            }
            (Wanted::TurnError, _) => {
                if !turn_quoting(&self.translator, packet, d, &mut turning.made, cx) {
                    view.verdict[row] = Verdict::drop(reasons::NAT_UNTRANSLATABLE).0;
                }
                return;
            }
            _ => Err(reasons::NAT_UNTRANSLATABLE),
        };
        let turned = to.and_then(|to| {
            // Longer than what the link brings: it was put together here.
            let mtu = fib.interface(view.interface[row]).map_or(u16::MAX, |own| own.mtu);
            let is_long = d.ip_total_len > u32::from(mtu);
            let head = turn(packet, d, &to, turning.identification, is_long);
            head.ok_or(reasons::NAT_UNTRANSLATABLE)
        });
        if let Err(reason) = turned {
            view.verdict[row] = Verdict::drop(reason).0;
        }
    }
}

/// Whether a packet has a way, and its hop limit does not run out there.
fn goes_on(packet: &Packet, decision: u32, fib: &Fib) -> bool {
    let runs_out = || egress(decision, fib).is_some() && received::decode(packet).ttl <= 1;
    !columns::leads_nowhere(decision) && !runs_out()
}

/// The ends of the IPv4 packet that an IPv6 packet with the ends `from` becomes.
fn to_v4(from: &Tuple, (address, port): (u32, u16), dst: u32) -> Tuple {
    // The identifier of an ICMP query is at both ends.
    let is_icmp = from.protocol == IpProtocol::ICMPV6.0;
    let dst_port = if is_icmp { port } else { from.dst.1 };
    let protocol = if is_icmp { IpProtocol::ICMP.0 } else { from.protocol };
    let (src, dst) = (([0, address.into()], port), ([0, dst.into()], dst_port));
    Tuple { src, dst, protocol, family: 4, ..*from }
}

/// Turns an ICMPv6 error about an IPv4 packet; `false`: it must not go on.
fn turn_quoting(
    translator: &Shared,
    packet: &mut Packet,
    d: &Decoded,
    made: &mut [u8],
    cx: &mut Context<'_, Tables>,
) -> bool {
    let quoted = packet.data().get(usize::from(d.l4_offset) + 8..).and_then(Tuple::quoted);
    let Some((quoted, _)) = quoted else { return false };
    let (sent, rules) = {
        let translator = lock(translator);
        (translator.restore(&quoted), translator.rules().clone())
    };
    sent.is_some_and(|sent| turn_error(packet, d, &sent, &rules, made, cx.pool))
}

/// A packet and what is known of it.
struct Row<'a> {
    packet: &'a mut Packet,
    /// Interfaces by which it came, and by which it leaves.
    inside: u16,
    outside: Option<u16>,
    now_s: u32,
}

/// Begins the session of a packet, and writes its source; whether it may be a control connection of FTP.
fn begin(
    translator: &mut Translator,
    row: Row<'_>,
    to: Option<(u16, (u32, u16))>,
) -> Result<bool, Refusal> {
    let d = received::decode(row.packet);
    let l4 = row.packet.data().get(usize::from(d.l4_offset)..).unwrap_or_default();
    let Some(tuple) = Tuple::of(&d, l4) else { return Ok(false) };
    if d.ttl <= 1 && to.is_none() {
        return Ok(false);
    }
    let rules = translator.rules().clone();
    let is_back = row.outside == Some(row.inside);
    let source = match (row.outside, to) {
        (_, Some((rule, _))) if tuple.family == 6 => Some(Source::Hairpin64(rule)),
        // A host that reaches another one by its outside address must get the answer from there (RFC 4787 REQ-9).
        (Some(_), Some(_)) if is_back => {
            rules.hairpin(&tuple).map(|(rule, interface)| Source::Hairpin(rule, interface))
        }
        (Some(outside), _) => rules.source(outside, &tuple).map(|rule| Source::Rule(rule, outside)),
        (None, _) => None,
    };
    let source = match (source, to) {
        (Some(source), _) => source,
        (None, Some((rule, _))) => Source::Keep(rule),
        (None, None) => return Ok(false),
    };
    let dst = match to {
        Some((rule, (address, port))) if tuple.family == 6 => {
            (rules.embed_by(rule, address).ok_or(Refusal::Gone)?, port)
        }
        Some((_, (address, port))) => ([0, address.into()], port),
        None => tuple.dst,
    };
    let original = Tuple { dst, ..tuple };
    let by = (tcp_of(row.packet, &d, &tuple), row.now_s);
    let new = translator.begin_by(&original, tuple.dst, tuple.family, source, by)?;
    if new.src != tuple.src {
        let (l3, l4) = (usize::from(d.l3_offset), usize::from(d.l4_offset));
        let ip = row.packet.data_mut().get_mut(l3..).unwrap_or_default();
        set_end(ip, l4 - l3, tuple.protocol, Which::Source, new.src);
    }
    Ok(tuple.family == 4 && translator.may_be_control(&original) || translator.may_be_control(&new))
}

/// Writes the source of a plain packet; whether it is one.
#[inline(always)]
fn write(packet: &mut Packet, l3: u8, (address, port): (u32, u16)) -> bool {
    let ip = packet.data_mut().get_mut(usize::from(l3)..).unwrap_or_default();
    set_end_plain(ip, Which::Source, address, port)
}

/// The drop reason of a refusal.
pub(super) const fn reason(refusal: Refusal) -> DropReason {
    match refusal {
        Refusal::Ports | Refusal::NoAddress => reasons::NAT_PORTS_EXHAUSTED,
        Refusal::Sessions => reasons::NAT_SESSIONS_EXHAUSTED,
        Refusal::HostLimit => reasons::NAT_HOST_LIMIT,
        Refusal::Conflict => reasons::NAT_CONFLICT,
        Refusal::Stray => reasons::NAT_STRAY,
        Refusal::Gone => reasons::NAT_NO_SESSION,
    }
}

impl Stopped {
    /// Says what is exhausted, once in a while.
    pub(super) fn note(&mut self, translator: &Translator, refusal: Refusal, now_s: u32) {
        if self.ports && now_s.wrapping_sub(self.said_s) < QUIET_S {
            return;
        }
        let Some(what) = said(translator, refusal) else { return };
        (self.ports, self.said_s) = (true, now_s);
        let more = if self.is_live { " (`ctl show nat`, `ctl show drops`)" } else { "" };
        tracing::warn!("address translation: {what}; packets are dropped{more}");
    }
}

/// What is exhausted, with rule, outside address and inside host; `None`: nothing is.
fn said(translator: &Translator, refusal: Refusal) -> Option<String> {
    let about = translator.refused();
    let rule = about.map(|own| rows::place(translator.rules(), own.rule)).unwrap_or_default();
    let host = about.map(|own| rows::address(own.original.family, own.original.src.0));
    let host = host.map(|own| own.to_string()).unwrap_or_default();
    let outside = about.and_then(|own| own.outside).map(std::net::Ipv4Addr::from_bits);
    let outside = outside.map(|own| own.to_string()).unwrap_or_default();
    let protocol =
        about.map(|own| crate::flow::rows::protocol(own.original.protocol)).unwrap_or_default();
    Some(match refusal {
        Refusal::Ports => {
            format!("rule {rule} has no free port at {outside} for {host} ({protocol})")
        }
        Refusal::NoAddress => format!("rule {rule} has no outside address for {host}"),
        Refusal::Sessions => "the table of sessions is full".to_owned(),
        Refusal::HostLimit => {
            format!("{host} has as many ports as it may by `bindings_per_host` (rule {rule})")
        }
        Refusal::Conflict | Refusal::Stray | Refusal::Gone => return None,
    })
}

impl Stage<Tables> for SourceStage {
    fn name(&self) -> &'static str {
        super::SOURCE_STAGE
    }

    fn drop_reasons(&self) -> &'static [&'static ReasonBlock] {
        super::REASONS
    }

    fn columns(&self) -> &'static [Declaration] {
        match self.shares {
            true => &[RouterColumns::COLUMNS, SourceColumns::COLUMNS, RecordColumns::COLUMNS],
            false => &[RouterColumns::COLUMNS, SourceColumns::COLUMNS],
        }
    }

    fn zeroed(&self) -> ColumnSet {
        if self.shares { records::zeroed() } else { ColumnSet::EMPTY }
    }

    fn phases(&self) -> Phases {
        Phases::POST
    }

    fn changes_packets(&self) -> bool {
        true
    }

    fn post_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, Tables>) {
        if let Some(open) = &self.open {
            // The receive queue may have given up on a burst.
            let done = chunk.packets.len() as u64;
            let less = |open: u64| Some(open.saturating_sub(done));
            let _ = open.fetch_update(Ordering::Release, Ordering::Relaxed, less);
        }
        let Some(fib): Option<&Fib> = cx.tables.find::<RouterPart>() else { return };
        self.stopped.is_live = cx.is_live();
        let mut view = SourceColumns::view(&mut chunk.rows);
        for first in (0..chunk.packets.len()).step_by(GROUP) {
            let group = first..chunk.packets.len().min(first + GROUP);
            // Mostly all rows are done, which is known without a branch for each.
            let rows = view.nat[group.clone()].iter().zip(&view.verdict[group.clone()]);
            let is_open = |(wanted, verdict): (&u64, &u32)| {
                (*wanted != 0) & !(Wanted::is_written(*wanted) & Verdict(*verdict).is_next())
            };
            if !rows.map(is_open).fold(false, |any, own| any | own) {
                continue;
            }
            // Others need one write.
            for row in group {
                let packet = &mut chunk.packets[row];
                let (wanted, is_next) = (view.nat[row], Verdict(view.verdict[row]).is_next());
                if Wanted::is_turn(wanted) {
                    self.turn(&mut view, row, packet, fib, cx);
                    continue;
                }
                if wanted == 0 || Wanted::is_written(wanted) == is_next {
                    continue;
                }
                let is_done = match Wanted::decode(wanted) {
                    // Somebody between the stages has settled it.
                    Wanted::Written(end) => write(packet, view.l3[row], end),
                    Wanted::Source(end) => write(packet, view.l3[row], end),
                    _ => false,
                };
                if !is_done {
                    self.act(&mut view, row, packet, fib, cx);
                }
            }
        }
        if self.shares {
            Records::of_rows(&mut chunk.rows).forget_all();
        }
    }

    fn as_any(&mut self) -> Option<&mut dyn Any> {
        Some(self)
    }

    fn describe(&self, chunk: &mut Chunk, row: usize, _tables: &Tables) -> String {
        let d = received::decode(&chunk.packets[row]);
        match (d.src_ip(), d.ports()) {
            (Some(address), Some((port, _))) => {
                format!("from {}", std::net::SocketAddr::new(address, port))
            }
            (Some(address), None) => format!("from {address}"),
            _ => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nat::rules::{Action, Own, Rule, Rules};
    use nat::translator::{Options, Timeouts};
    use std::sync::Arc;

    /// What is exhausted is said with the rule as `ctl show nat` numbers it, the outside address and the inside host.
    #[test]
    fn what_is_exhausted_has_names() {
        let rule = |number, action| {
            let ports = 5000..=5000;
            Rule { number, outside: vec![], sources: vec![], protocol: None, ports, action }
        };
        let all = vec![
            rule(4, Action::Masquerade),
            rule(9, Action::Source(vec![u32::from_be_bytes([203, 0, 113, 1])])),
        ];
        let options = Options {
            sessions: 4,
            bindings_per_host: 1,
            filter_by_remote: true,
            timeouts: Timeouts::default(),
            ftp_ports: &[],
            seed: 7,
        };
        let rules = Arc::new(Rules::new(all, 1, Arc::new(Own::new(2))));
        let mut translator = Translator::new(options, rules).unwrap();
        let mut begin = |host: u64, port: u16, rule: u16| {
            let (src, dst) = (([0, 0xc0a8_0100 + host], port), ([0, 0x0808_0808], 53));
            let original = Tuple { src, dst, protocol: 17, family: 4, ..Tuple::default() };
            let refusal = translator.begin(&original, dst, 4, Source::Rule(rule, 1), 1).err()?;
            said(&translator, refusal)
        };
        assert_eq!(begin(7, 6000, 9), None);
        assert_eq!(
            begin(8, 6000, 9).unwrap(),
            "rule 2 has no free port at 203.0.113.1 for 192.168.1.8 (udp)"
        );
        assert_eq!(
            begin(7, 6001, 9).unwrap(),
            "192.168.1.7 has as many ports as it may by `bindings_per_host` (rule 2)"
        );
        assert_eq!(begin(8, 6000, 4).unwrap(), "rule 1 has no outside address for 192.168.1.8");
    }
}
