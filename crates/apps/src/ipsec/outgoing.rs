//! Stage `esp_out`: asks the policies about packets that leave, and seals those that they protect.
//!
//! | | |
//! | --- | --- |
//! | reads | `decision`, `flags`, `l3`, the packets |
//! | writes | the packets; of tunnels `decision`, `flags`, `flow_hash` and the destination |
//! | next | `rewrite` |
//! | drop | what policies discard; no association, or one that has ended; no route to the peer; too long |
//!
//! A packet that goes nowhere, and one whose TTL runs out, is left as it is: `rewrite` answers it. So it does for a packet that
//! is too long when it is sealed, with the longest that is not. The packets of a chunk are sealed in batches; with `device` all
//! but encryption and check value is done before (`device`).
//!
//! Where an association has one worker (`workers` of `[ipsec]`), others hand packets over that only a number is missing to. They enter
//! here, as chunks of their own in which no stage before has written anything, so none sees a packet twice. This stage looks at their
//! headers and asks the policies again; what is not sealed then, because those have changed, is dropped.

use std::sync::Arc;

use arrayvec::ArrayVec;
use chunk::{Chunk, ColumnSet, Columns, Declaration, Packet, ReasonBlock, Verdict, VerdictKind};
use control::config::SaWorkers;
use controlplane::{PartId, Tables};
use engine::{Context, MARK_FROM_HOST, Phases, Shade, Stage};
use ipsec::outbound::{self, Plan};
use ipsec::{Ahead, Association, Direction, Mode, Number, Room, Tuple, View};
use lookup::fib::Fib;
use packet::{Decoded, IpProtocol, Kind};

use super::current::{Counters, Reader};
use super::device::keys::{EspKeys, EspPart};
use super::device::shade::EspShade;
use super::device::{self, EspColumns};
use super::owners::Owners;
use super::tunnels::Tunnels;
use super::{LINE, MARK_TOO_BIG, asks_itself, prefetch, reasons};
use crate::received;
use crate::records::{self, RecordColumns, Records};
use crate::router::columns::{Answer, RouterColumns, RouterView, flags};
use crate::router::{NOWHERE, PipelineOptions, RouterCounters, RouterPart, egress, way};

mod decide;
mod learn;
mod seal;

use decide::{Fate, Last, Outer, tunnel_of};

/// Packets that are sealed together.
const GROUP: usize = 32;
/// Bytes of the longest frame.
const FRAME_MAX: usize = 66_000;
/// Packets whose lines are on their way while one is looked at.
const AHEAD: usize = 16;
/// Set in [`Packet::mark`]: another worker has handed it over to be sealed.
const MARK_HANDED: u32 = 1 << 25;
/// What every link of IPv6 takes.
const IPV6_MTU_MIN: usize = 1280;

chunk::columns! {
    /// The column of address translation, where it is in the pipeline.
    struct NatColumns / NatView {
        pub nat: u64,
    }
}

/// The stage of one worker.
pub struct EspOut {
    reader: Reader,
    with_nat: bool,
    /// Stages share records of headers.
    shares: bool,
    /// Rows of a chunk that are sealed.
    sealed: Vec<u16>,
    /// Rows that the policies are asked about, their headers, and the answers.
    rows: Vec<u16>,
    headers: Vec<Decoded>,
    room: Room,
    /// What is loaded of packets whose association is not known yet: by that of those before.
    loads_whole: bool,
    tunnels: Tunnels,
    counters: Arc<Counters>,
    /// Of the interfaces.
    router: Arc<RouterCounters>,
    scratch: Vec<u8>,
    /// Encryption is a step of its own, with these keys.
    split: Option<(PartId<EspPart>, Arc<EspShade>)>,
    /// Packets of a chunk that are prepared for it.
    prepared: Vec<Ready>,
    /// Who seals the packets of an association.
    owners: Owners,
    /// The chunk at work was handed over.
    is_handed: bool,
    /// Rows of packets that another worker seals, with its index.
    away: Vec<(u16, u16)>,
}

/// A packet that is sealed but for encryption and check value.
struct Ready {
    row: usize,
    key: usize,
    l3: usize,
    /// From the SPI on, in bytes of the frame.
    packet: std::ops::Range<usize>,
    high: u32,
}

/// A packet of a group.
struct Member<'v> {
    association: &'v Association,
    plan: Plan,
    row: u16,
    l3: u16,
}

impl EspOut {
    /// A stage in a pipeline with these stages.
    pub fn new(
        reader: Reader,
        options: &PipelineOptions,
        stages: &[String],
        counters: Arc<Counters>,
    ) -> Self {
        let with_nat = stages.iter().any(|own| own == crate::nat::STAGE);
        let shares = records::are_shared(stages);
        let max = chunk::CHUNK_PACKETS_MAX;
        let owners = Owners::new(reader.workers());
        Self {
            reader,
            is_handed: false,
            away: Vec::with_capacity(if owners.hand_over() { max } else { 0 }),
            owners,
            with_nat,
            shares,
            sealed: Vec::with_capacity(max),
            rows: Vec::with_capacity(max),
            headers: Vec::with_capacity(max),
            room: Room::for_packets(max),
            loads_whole: true,
            tunnels: Tunnels::default(),
            counters,
            router: options.counters.clone(),
            scratch: Vec::with_capacity(FRAME_MAX),
            split: None,
            prepared: Vec::new(),
        }
    }

    /// With encryption as a step of its own, by the keys of this part.
    #[must_use]
    pub fn with_device(mut self, part: PartId<EspPart>) -> Self {
        self.split = Some((part, Arc::new(EspShade::new(Direction::Out, part))));
        self.owners = Owners::new(SaWorkers::Any);
        self.prepared.reserve(chunk::CHUNK_PACKETS_MAX);
        self
    }

    /// The packets of a chunk that the policies are asked about, and the answers.
    fn ask(&mut self, view: &View, chunk: &mut Chunk, fib: &Fib) {
        self.rows.clear();
        self.headers.clear();
        self.room.clear();
        let columns = RouterColumns::view(&mut chunk.rows);
        for row in 0..chunk.packets.len() {
            let bits = columns.flags[row];
            let is_ip = bits & (flags::IPV4 | flags::IPV6) != 0 && bits & flags::LINK_LOCAL == 0;
            let is_next = Verdict(columns.verdict[row]).is_next();
            let leaves = self.is_handed || egress(columns.decision[row], fib).is_some();
            if is_next && is_ip && leaves {
                self.rows.push(row as u16);
            }
        }
        let mut records = self.shares.then(|| Records::of_rows(&mut chunk.rows));
        self.rows.retain(|row| {
            let packet = &chunk.packets[usize::from(*row)];
            let decoded;
            let d = match &mut records {
                Some(records) => &*records.of(usize::from(*row), packet),
                None => {
                    decoded = received::decode(packet);
                    &decoded
                }
            };
            let Some(tuple) = Tuple::of(d) else { return false };
            self.room.put(&tuple);
            self.headers.push(*d);
            true
        });
        view.outgoing().find_in(&mut self.room);
    }
}

/// Says of a row what its packet has become, which is the last one.
fn tell(columns: &mut RouterView<'_>, member: &Member<'_>, decision: u32, last: &Last<'_>) {
    let Member { row, association, plan, .. } = member;
    if association.parameters().mode == Mode::Transport {
        return;
    }
    let Some((_, Some(Outer { flow_hash, dst, .. }))) = last.way else { return };
    lead(columns, (*row).into(), (plan.family, dst), (decision, flow_hash));
    if plan.family == 6 && plan.may_divide {
        columns.flags[usize::from(*row)] |= flags::MAY_FRAGMENT;
    }
}

/// Gives the packet of a row a destination, its way there and its flow hash.
fn lead(
    columns: &mut RouterView<'_>,
    row: usize,
    (family, dst): (u8, [u64; 2]),
    (decision, flow_hash): (u32, u32),
) {
    columns.decision[row] = decision;
    columns.flow_hash[row] = flow_hash;
    match family {
        4 => {
            columns.flags[row] = flags::IPV4;
            columns.dst4[row] = dst[1] as u32;
        }
        _ => {
            columns.flags[row] = flags::IPV6;
            columns.dst6[row] = dst;
        }
    }
}

/// Has `rewrite` send a packet of Linux or of control as any other, by its way.
fn send(columns: &mut RouterView<'_>, row: usize, packet: &mut Packet, l3: usize) {
    packet.mark &= !MARK_FROM_HOST;
    columns.verdict[row] = Verdict::NEXT.0;
    columns.l3[row] = l3 as u8;
    columns.interface[row] = packet.port;
}

impl Stage<Tables> for EspOut {
    fn name(&self) -> &'static str {
        super::OUT
    }

    fn sends_to(&self) -> &'static [&'static str] {
        if self.owners.hand_over() { &[super::OUT] } else { &[] }
    }

    fn drop_reasons(&self) -> &'static [&'static ReasonBlock] {
        super::REASONS
    }

    fn columns(&self) -> &'static [Declaration] {
        const ROUTER: Declaration = RouterColumns::COLUMNS;
        const NAT: Declaration = NatColumns::COLUMNS;
        const RECORD: Declaration = RecordColumns::COLUMNS;
        const ESP: Declaration = EspColumns::COLUMNS;
        match (self.with_nat, self.shares, self.split.is_some()) {
            (true, true, true) => &[ROUTER, NAT, RECORD, ESP],
            (true, true, false) => &[ROUTER, NAT, RECORD],
            (true, false, true) => &[ROUTER, NAT, ESP],
            (true, false, false) => &[ROUTER, NAT],
            (false, true, true) => &[ROUTER, RECORD, ESP],
            (false, true, false) => &[ROUTER, RECORD],
            (false, false, true) => &[ROUTER, ESP],
            (false, false, false) => &[ROUTER],
        }
    }

    fn zeroed(&self) -> ColumnSet {
        if self.shares { records::zeroed() } else { ColumnSet::EMPTY }
    }

    fn phases(&self) -> Phases {
        if self.split.is_some() { Phases::BOTH } else { Phases::POST }
    }

    fn reads(&self) -> ColumnSet {
        if self.split.is_some() { ColumnSet::of(device::READS) } else { ColumnSet::EMPTY }
    }

    fn writes(&self) -> ColumnSet {
        if self.split.is_some() { ColumnSet::of(device::WRITES) } else { ColumnSet::EMPTY }
    }

    fn keeps(&self) -> ColumnSet {
        if self.split.is_some() { device::all() } else { ColumnSet::EMPTY }
    }

    fn reads_packets(&self) -> bool {
        self.split.is_some()
    }

    /// Packets get their numbers, and grow, when the stages before have decided about them.
    fn begins_segment(&self) -> bool {
        self.split.is_some()
    }

    /// Packets are right behind `post_shade` only.
    fn ends_segment(&self) -> bool {
        self.split.is_some()
    }

    fn shader(&self) -> Option<Arc<dyn Shade<Tables>>> {
        self.split.as_ref().map(|(_, shade)| shade.clone() as _)
    }

    fn changes_packets(&self) -> bool {
        true
    }

    fn needs_one_worker(&self, _: &Tables) -> Option<&'static str> {
        Some("sequence numbers depend on the order of all packets of an association")
    }

    fn pre_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, Tables>) {
        let Some((part, _)) = &self.split else { return };
        let part = *part;
        self.prepared.clear();
        EspColumns::view(&mut chunk.rows).esp_key.fill(0);
        self.protect(chunk, cx, Some(cx.tables.part(part)));
        let view = EspColumns::view(&mut chunk.rows);
        for Ready { row, key, l3, packet, high } in &self.prepared {
            let row = *row;
            view.esp_key[row] = *key as u32 + 1;
            (view.esp_at[row], view.esp_l3[row]) = (packet.start as u16, *l3 as u16);
            (view.esp_len[row], view.esp_high[row]) = (packet.len() as u32, *high);
        }
    }

    fn post_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, Tables>) {
        let Some((part, _)) = &self.split else {
            self.protect(chunk, cx, None);
            return self.part(chunk, cx);
        };
        let keys = cx.tables.part(*part);
        let view = EspColumns::view(&mut chunk.rows);
        for (row, packet) in chunk.packets.iter_mut().enumerate() {
            let key = view.esp_key[row] as usize;
            if key == 0 || !Verdict(view.verdict[row]).is_next() {
                continue;
            }
            cx.at(row);
            if view.esp_done[row] == 0 {
                view.verdict[row] = Verdict::drop(reasons::ESP_TOO_BIG).0;
                continue;
            }
            let is_in_udp = keys.get(key - 1).is_some_and(|own| own.parameters().udp.is_some());
            let (l3, at) = (usize::from(view.esp_l3[row]), usize::from(view.esp_at[row]));
            let ip = packet.data_mut().get_mut(l3..).unwrap_or_default();
            if is_in_udp && ip.first().is_some_and(|byte| byte >> 4 == 6) {
                outbound::finish_udp(ip, at - l3 - outbound::UDP_LEN);
            }
        }
    }

    /// Keys of associations that are gone are wiped, although no packet comes.
    fn tick(&mut self, _: &mut Context<'_, Tables>) {
        self.reader.get();
    }

    fn describe(&self, chunk: &mut Chunk, row: usize, _: &Tables) -> String {
        let d = received::decode(&chunk.packets[row]);
        match (d.dst_ip(), d.protocol) {
            (Some(to), IpProtocol::ESP) => format!("ESP to {to}"),
            _ => String::new(),
        }
    }
}

impl EspOut {
    /// Writes of packets that were handed over what the stages before wrote of them, as far as it is asked for behind this one.
    #[cold]
    fn arrive(&mut self, chunk: &mut Chunk) {
        let columns = RouterColumns::view(&mut chunk.rows);
        for (row, packet) in chunk.packets.iter_mut().enumerate() {
            packet.mark &= !MARK_HANDED;
            let d = received::decode(packet);
            columns.flags[row] = if d.kind == Kind::Ipv4 { flags::IPV4 } else { flags::IPV6 };
            columns.l3[row] = d.l3_offset as u8;
            columns.interface[row] = packet.port;
            columns.flow_hash[row] = packet::flow::flow_hash(&d);
            columns.decision[row] = NOWHERE;
        }
    }

    /// Gives packets to the workers of their associations. Of those that were given to this one, what was not sealed ends here.
    fn part(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, Tables>) {
        if self.is_handed {
            let mut sealed = self.sealed.iter().peekable();
            for (row, verdict) in chunk.rows.verdicts().iter_mut().enumerate() {
                let is_sealed = sealed.next_if(|own| usize::from(**own) == row).is_some();
                if !is_sealed && Verdict(*verdict).is_next() {
                    *verdict = Verdict::drop(reasons::SA_MISSING).0;
                }
            }
        }
        if self.away.is_empty() {
            return;
        }
        let place = cx.place(super::OUT).unwrap_or(0);
        for (row, worker) in self.away.drain(..) {
            let mut packet = chunk.take(usize::from(row));
            packet.mark |= MARK_HANDED;
            cx.hand_to(packet, Some(row.into()), worker, place);
        }
    }

    /// Asks the policies about the packets of a chunk, and seals, or prepares, those that they protect.
    fn protect(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, Tables>, keys: Option<&EspKeys>) {
        let view = self.reader.get();
        self.sealed.clear();
        self.owners.look(cx);
        self.is_handed = chunk.packets.first().is_some_and(|own| own.mark & MARK_HANDED != 0);
        if self.is_handed {
            self.arrive(chunk);
        }
        let Some(fib) = cx.tables.find::<RouterPart>() else { return };
        self.tunnels.look(cx.version, fib);
        let has_tunnels = self.tunnels.is_any();
        if view.outgoing().is_empty()
            && (view.incoming.is_empty() || !self.with_nat)
            && !has_tunnels
            && !view.sends_in_udp
        {
            return;
        }
        self.ask(&view, chunk, fib);
        for row in self.rows.iter().take(AHEAD) {
            prefetch(&chunk.packets[usize::from(*row)], LINE, self.loads_whole);
        }
        let mut near: ArrayVec<Option<Ahead<&Association>>, { chunk::CHUNK_PACKETS_MAX }> =
            ArrayVec::new();
        if view.is_large() {
            // Nothing here waits for what is found, so that several are on their way at once.
            let mut before = Number::NONE;
            near.extend((0..self.rows.len()).map(|at| {
                let number = self.room.number(at);
                if std::mem::replace(&mut before, number) == number {
                    return None;
                }
                view.first_outbound(number)
            }));
            Ahead::prefetch_pages(&near);
        }
        near.iter().take(AHEAD).flatten().for_each(Ahead::prefetch);
        let (mut asked, mut last) = (0, Last::default());
        let mut columns = RouterColumns::view(&mut chunk.rows);
        let mut members: ArrayVec<Member<'_>, GROUP> = ArrayVec::new();
        for row in 0..chunk.packets.len() {
            let (bits, decision) = (columns.flags[row], columns.decision[row]);
            let verdict = Verdict(columns.verdict[row]);
            let mark = chunk.packets[row].mark;
            let is_own = mark & MARK_FROM_HOST != 0;
            if mark & MARK_TOO_BIG != 0 {
                // It may be about packets that are not sealed yet, and those behind it go by what it says.
                self.seal(&members, columns.verdict, &mut chunk.packets, (cx.pool, keys));
                members.clear();
                last.forget();
                let now_ns = cx.arrival_ns(&chunk.packets[row]);
                self.learn(&view, (verdict, &mut chunk.packets[row]), (fib, now_ns));
            }
            let is_sent = is_own && verdict.kind() == VerdictKind::Forward;
            let at = asked;
            let is_asked = self.rows.get(at).is_some_and(|own| usize::from(*own) == row);
            if is_asked {
                asked += 1;
            } else if !is_sent {
                continue;
            }
            cx.at(row);
            if let Some(ahead) = self.rows.get(at + AHEAD) {
                prefetch(&chunk.packets[usize::from(*ahead)], LINE, self.loads_whole);
            }
            if let Some(Some(ahead)) = near.get(at + AHEAD) {
                ahead.prefetch();
            }
            if let Some(Some(ahead)) = near.get(at + AHEAD / 2) {
                ahead.association().prefetch_numbers();
            }
            let packet = &mut chunk.packets[row];
            let now_ns = cx.arrival_ns(packet);
            if !is_sent && let Some(again) = self.decide_again((at, row), now_ns, &mut last) {
                match again {
                    Ok((member, decision)) => {
                        tell(&mut columns, &member, decision, &last);
                        self.sealed.push(row as u16);
                        members.push(member);
                        if members.is_full() {
                            let own = (&mut *cx.pool, keys);
                            self.seal(&members, columns.verdict, &mut chunk.packets, own);
                            members.clear();
                        }
                    }
                    Err(reason) => columns.verdict[row] = Verdict::drop(reason).0,
                }
                continue;
            }
            let fate = match is_sent {
                true => self.decide_own(&view, row, packet, (now_ns, fib), &mut last),
                false => {
                    let decision = match self.is_handed {
                        true => {
                            let d = &self.headers[at];
                            let family = if d.kind == Kind::Ipv4 { 4 } else { 6 };
                            let own = way(fib, family, d.dst, columns.flow_hash[row]);
                            columns.decision[row] = own.map_or(NOWHERE, |own| own.0);
                            columns.decision[row]
                        }
                        false => decision,
                    };
                    let tunnel = if has_tunnels { tunnel_of(decision, fib) } else { None };
                    let own = (decision, now_ns, fib);
                    self.decide(&view, (at, row), packet, own, tunnel, &mut last)
                }
            };
            match fate {
                Ok(Fate::Pass) => {}
                Ok(Fate::Seal(member, way)) => {
                    if let Some(decision) = way {
                        tell(&mut columns, &member, decision, &last);
                    }
                    if is_sent && way.is_some() {
                        send(&mut columns, row, packet, member.l3.into());
                    }
                    if !is_sent && !has_tunnels && !self.with_nat {
                        last.remember(self.room.number(at), &member);
                    }
                    self.loads_whole = !asks_itself(member.association);
                    self.sealed.push(row as u16);
                    members.push(member);
                }
                Ok(Fate::Send(decision)) => {
                    let d = received::decode(packet);
                    let family = if d.kind == Kind::Ipv4 { 4 } else { 6 };
                    lead(&mut columns, row, (family, d.dst), (decision, 0));
                    send(&mut columns, row, packet, usize::from(d.l3_offset));
                }
                Ok(Fate::Away(worker)) => {
                    columns.verdict[row] = Verdict::TAKEN.0;
                    self.away.push((row as u16, worker));
                }
                // Another worker has found that it is not: the way has changed meanwhile.
                Ok(Fate::TooBig(_)) if self.is_handed => {
                    columns.verdict[row] = Verdict::drop(reasons::ESP_TOO_BIG).0;
                }
                Ok(Fate::TooBig(most)) => {
                    let is_v4 = bits & flags::IPV4 != 0;
                    let answer = if is_v4 { Answer::TooBigV4 } else { Answer::TooBigV6 };
                    columns.flags[row] = answer.encode();
                    columns.decision[row] = most;
                }
                Err(reason) => columns.verdict[row] = Verdict::drop(reason).0,
            }
            if members.is_full() {
                self.seal(&members, columns.verdict, &mut chunk.packets, (cx.pool, keys));
                members.clear();
            }
        }
        self.seal(&members, columns.verdict, &mut chunk.packets, (cx.pool, keys));
        if self.shares {
            let mut records = Records::of_rows(&mut chunk.rows);
            self.sealed.iter().for_each(|row| records.forget(usize::from(*row)));
        }
        if self.with_nat {
            // What is sealed is not translated.
            let columns = NatColumns::view(&mut chunk.rows);
            self.sealed.iter().for_each(|row| columns.nat[usize::from(*row)] = 0);
        }
    }
}
