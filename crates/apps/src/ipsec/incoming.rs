//! Stage `esp_in`: opens ESP packets, and asks whether packets came as the policies say.
//!
//! | | |
//! | --- | --- |
//! | reads | `flags`, the packets |
//! | writes | the packets, and for opened ones all that `decode` writes |
//! | next | the stages behind it; IKE and other messages for the router go on as they are |
//! | drop | unknown SPI; replayed, forged and malformed packets; what did not come as the policies say |
//!
//! Fragments of ESP packets for the router are put together before. Opened packets take the place of those that they were in,
//! and `decode` looks at them again: they may be for the router, malformed, or ESP once more, a few times. ESP for other
//! addresses without an association is transit.
//!
//! Where an association has one worker (`workers` of `[ipsec]`), others hand its packets over, from `decode` on: this stage is behind
//! that one, so no other stage sees a packet twice.
//!
//! The packets of a chunk are opened in batches, in the order of receipt, so that the window sees them so. With `device` those that
//! a device may take are offered to it before (`device`); all else follows when they are open, in the order of receipt.

use std::any::Any;
use std::sync::Arc;

use arrayvec::ArrayVec;
use chunk::{
    Chunk, ColumnSet, Columns, Declaration, DropReason, Packet, ReasonBlock, Verdict, VerdictKind,
};
use control::config::SaWorkers;
use controlplane::{PartId, Tables};
use crypto::esp;
use engine::{Context, Phases, Shade, Stage};
use ipsec::inbound::{self, Found};
use ipsec::path::is_too_big;
use ipsec::{Ahead, Association, Direction, Room, View, Words};
use lookup::fib::Fib;
use packet::Decoded;

use super::current::{Counters, Reader, Why};
use super::device::keys::{EspKeys, EspPart};
use super::device::shade::EspShade;
use super::device::{self, EspColumns};
use super::owners::Owners;
use super::tunnels::Tunnels;
use super::{MARK_TOO_BIG, asks_itself, prefetch, reasons};
use crate::fragments::{Fragments, Taken};
use crate::received;
use crate::records::{self, RecordColumns, Records};
use crate::router::columns::{DecodeColumns, RouterColumns, flags};
use crate::router::decode::Decode;
use crate::router::{MARK_OPENED, PipelineOptions, RouterCounters, RouterPart};

mod judge;
mod open;

use judge::{Questions, may_be_esp};
pub(super) use judge::{is_own, is_own_ike};
use open::{How, how_opened, opened, refused};

/// Packets that are opened together.
const GROUP: usize = 32;
/// Packets whose associations are on their way while one is looked at.
const AHEAD: usize = 16;
/// Tunnels within tunnels that are opened.
const NESTED_MAX: usize = 4;
/// How often fragments are looked at that wait for others, nanoseconds.
const EXPIRE_NS: u64 = 1_000_000_000;
/// Bytes of the longest frame.
const FRAME_MAX: usize = 66_000;

/// The stage of one worker.
pub struct EspIn {
    reader: Reader,
    decode: Decode,
    counters: Arc<Counters>,
    with_headers: bool,
    /// Stages share records of headers.
    shares: bool,
    /// Rows whose packet is another one now, and was not looked at again.
    changed: Vec<u16>,
    /// Rows that are looked at, and those of the next turn.
    rows: Vec<u16>,
    next: Vec<u16>,
    /// By row: the number of the association that it was opened by.
    reqids: Box<[u32]>,
    /// By row: the tunnel interface of that association; 0: none.
    if_ids: Box<[u32]>,
    tunnels: Tunnels,
    /// Of the interfaces.
    router: Arc<RouterCounters>,
    verdicts: Vec<u32>,
    questions: Questions,
    fragments: Fragments,
    now_ns: u64,
    /// Who opens the packets of an association.
    owners: Owners,
    /// Rows of packets that another worker opens, with its index.
    away: Vec<(u16, u16)>,
    scratch: Vec<u8>,
    /// Decryption is a step of its own, with these keys.
    split: Option<(PartId<EspPart>, Arc<EspShade>)>,
    /// By row: whether that step has opened the packet, and its number.
    shaded: Box<[Option<Shaded>]>,
}

/// The associations of a chunk's ESP packets, by place among its rows, where it is not that of the packet before.
type Near<'v> = ArrayVec<Option<Ahead<&'v Association>>, { chunk::CHUNK_PACKETS_MAX }>;

/// Looks for them, and has the page table searched for them. Nothing here waits for what was found, so that several are on their way
/// at once.
fn find_near<'v>(
    view: &'v View,
    rows: &[u16],
    packets: &[Packet],
    records: &mut Option<Records<'_>>,
    near: &mut Near<'v>,
) {
    let mut last = None;
    for row in rows {
        let row = usize::from(*row);
        let decoded;
        let d = match records {
            Some(records) => records.of(row, &packets[row]),
            None => {
                decoded = received::decode(&packets[row]);
                &decoded
            }
        };
        near.push(match inbound::found(packets[row].data(), d) {
            Found::Esp { spi, .. } if last != Some((d.dst, spi)) => {
                last = Some((d.dst, spi));
                let family = if d.kind == packet::Kind::Ipv4 { 4 } else { 6 };
                view.first_inbound(family, d.dst, spi)
            }
            _ => None,
        });
    }
    Ahead::prefetch_pages(near);
}

/// The association of the packet before, with what found it: packets that follow one another often have one.
#[derive(Default)]
struct Last<'v>(Option<((u8, Words, u32), &'v Association)>);

impl<'v> Last<'v> {
    #[inline]
    fn find(
        &mut self,
        view: &'v View,
        (family, destination, spi): (u8, Words, u32),
    ) -> Option<&'v Association> {
        let key = (family, destination, spi);
        if let Some((known, own)) = self.0
            && known == key
        {
            return Some(own);
        }
        let own = view.inbound(family, destination, spi)?;
        self.0 = Some((key, own));
        Some(own)
    }
}

/// What the step in between has made of a packet.
#[derive(Clone, Copy)]
struct Shaded {
    /// The place of its key, from 1.
    key: u32,
    number: u64,
    is_genuine: bool,
}

/// ESP that is to be opened.
#[derive(Clone, Copy)]
struct Esp<'v> {
    association: &'v Association,
    /// From the SPI to the end of the check value, in bytes of the frame.
    at: usize,
    end: usize,
    /// In UDP: the source port.
    port: Option<u16>,
}

/// A packet of a group.
struct Member<'v> {
    row: usize,
    esp: Esp<'v>,
    d: Decoded,
    now_ns: u64,
    /// It is open, or not genuine.
    shaded: Option<Shaded>,
}

impl EspIn {
    /// A stage behind a `decode` with these options, in a pipeline with these stages.
    pub fn new(
        reader: Reader,
        options: &PipelineOptions,
        stages: &[String],
        counters: Arc<Counters>,
    ) -> Self {
        let has = |stage: &str| stages.iter().any(|own| own == stage);
        // The packets of subinterfaces are counted as they came.
        let router = options.counters.clone();
        let own = Arc::new(RouterCounters::new(router.interfaces()));
        let options = PipelineOptions { counters: own, ..options.clone() };
        let decode = Decode::new(has("rpf"), &options);
        let with_headers = has(crate::firewall::STAGE);
        let decode = if with_headers { decode.with_headers() } else { decode };
        let shares = records::are_shared(stages);
        let max = chunk::CHUNK_PACKETS_MAX;
        let owners = Owners::new(reader.workers());
        Self {
            reader,
            away: Vec::with_capacity(if owners.hand_over() { max } else { 0 }),
            owners,
            decode: if shares { decode.with_records() } else { decode },
            counters,
            with_headers,
            shares,
            changed: Vec::with_capacity(max),
            rows: Vec::with_capacity(max),
            next: Vec::with_capacity(max),
            reqids: vec![0; max].into(),
            if_ids: vec![0; max].into(),
            tunnels: Tunnels::default(),
            router,
            verdicts: Vec::with_capacity(max),
            questions: Questions { asked: Vec::with_capacity(max), room: Room::for_packets(max) },
            fragments: Fragments::new(options.seed, reasons::ESP_FRAGMENT),
            now_ns: 0,
            scratch: Vec::with_capacity(FRAME_MAX),
            split: None,
            shaded: Box::default(),
        }
    }

    /// With decryption as a step of its own, by the keys of this part.
    #[must_use]
    pub fn with_device(mut self, part: PartId<EspPart>) -> Self {
        self.split = Some((part, Arc::new(EspShade::new(Direction::In, part))));
        // What that step has opened is no ESP packet any more.
        self.owners = Owners::new(SaWorkers::Any);
        self.shaded = vec![None; chunk::CHUNK_PACKETS_MAX].into();
        self
    }

    /// `decode` looks at the opened packets.
    fn look_again(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, Tables>) {
        let verdicts = chunk.rows.verdicts();
        self.verdicts.clear();
        self.verdicts.extend_from_slice(verdicts);
        verdicts.fill(Verdict::TAKEN.0);
        for row in &self.next {
            verdicts[usize::from(*row)] = Verdict::NEXT.0;
        }
        let Some(fib) = cx.tables.find::<RouterPart>() else { return };
        self.decode.look(chunk, &mut cx.over(|_| fib), true);
        let verdicts = chunk.rows.verdicts();
        let mut opened = self.next.iter().peekable();
        for (row, before) in self.verdicts.iter().enumerate() {
            if opened.next_if(|own| usize::from(**own) == row).is_none() {
                verdicts[row] = *before;
            }
        }
    }
}

impl Stage<Tables> for EspIn {
    fn name(&self) -> &'static str {
        super::IN
    }

    fn sends_to(&self) -> &'static [&'static str] {
        if self.owners.hand_over() { &[super::PLACE] } else { &[] }
    }

    fn drop_reasons(&self) -> &'static [&'static ReasonBlock] {
        super::REASONS
    }

    fn columns(&self) -> &'static [Declaration] {
        const ROUTER: Declaration = RouterColumns::COLUMNS;
        const DECODE: Declaration = DecodeColumns::COLUMNS;
        const RECORD: Declaration = RecordColumns::COLUMNS;
        const ESP: Declaration = EspColumns::COLUMNS;
        match (self.shares, self.with_headers, self.split.is_some()) {
            (true, _, false) => &[ROUTER, DECODE, RECORD],
            (true, _, true) => &[ROUTER, DECODE, RECORD, ESP],
            (false, true, false) => &[ROUTER, DECODE],
            (false, true, true) => &[ROUTER, DECODE, ESP],
            (false, false, false) => &[ROUTER],
            (false, false, true) => &[ROUTER, ESP],
        }
    }

    fn zeroed(&self) -> ColumnSet {
        if self.shares { records::zeroed() } else { ColumnSet::EMPTY }
    }

    fn phases(&self) -> Phases {
        if self.split.is_some() { Phases::BOTH } else { Phases::PRE }
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

    fn changes_packets(&self) -> bool {
        self.split.is_some()
    }

    fn reads_packets(&self) -> bool {
        self.split.is_some()
    }

    /// Packets are what was inside behind `post_shade` only.
    fn ends_segment(&self) -> bool {
        self.split.is_some()
    }

    fn shader(&self) -> Option<Arc<dyn Shade<Tables>>> {
        self.split.as_ref().map(|(_, shade)| shade.clone() as _)
    }

    fn needs_one_worker(&self, _: &Tables) -> Option<&'static str> {
        Some("replay windows and lifetimes depend on the order of all packets of an association")
    }

    fn pre_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, Tables>) {
        match &self.split {
            Some((part, _)) => {
                let keys = cx.tables.part(*part);
                self.offer(chunk, keys, cx);
            }
            None => self.receive(chunk, cx, None),
        }
        if !self.away.is_empty() {
            self.hand_over(chunk, cx);
        }
    }

    fn post_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, Tables>) {
        let Some((part, _)) = &self.split else { return };
        let keys = cx.tables.part(*part);
        let view = EspColumns::view(&mut chunk.rows);
        for (row, packet) in chunk.packets.iter().enumerate() {
            let (key, high, is_genuine) =
                (view.esp_key[row], view.esp_high[row], view.esp_done[row] != 0);
            let packet = packet.data().get(usize::from(view.esp_at[row])..);
            let header = packet.and_then(esp::Header::parse).filter(|_| key != 0);
            self.shaded[row] = header.map(|header| {
                let number = u64::from(high) << 32 | u64::from(header.number);
                Shaded { key, number, is_genuine }
            });
        }
        self.receive(chunk, cx, Some(keys));
    }

    /// Keys of associations that are gone are wiped, although no packet comes.
    fn tick(&mut self, cx: &mut Context<'_, Tables>) {
        self.reader.get();
        if cx.is_live() {
            self.now_ns = cx.now_ns;
            self.fragments.expire(cx.now_ns, cx);
        }
    }

    fn next_tick_ns(&self) -> Option<u64> {
        (self.fragments.held() > 0).then_some(self.now_ns + EXPIRE_NS)
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

    fn describe(&self, chunk: &mut Chunk, row: usize, _: &Tables) -> String {
        let packet = &chunk.packets[row];
        let d = received::decode(packet);
        match inbound::found(packet.data(), &d) {
            Found::Esp { spi, .. } => format!("ESP with SPI {spi:#x}"),
            _ if packet.mark & MARK_OPENED != 0 => "opened".to_owned(),
            _ => String::new(),
        }
    }
}

impl EspIn {
    /// Leaves to the step in between what it may open: whole packets in one cell, of associations that are among `keys`.
    fn offer(&mut self, chunk: &mut Chunk, keys: &EspKeys, cx: &mut Context<'_, Tables>) {
        let view = self.reader.get();
        EspColumns::view(&mut chunk.rows).esp_key.fill(0);
        if view.is_empty() {
            return;
        }
        for (row, packet) in chunk.packets.iter().enumerate() {
            let columns = RouterColumns::view(&mut chunk.rows);
            let is_ip = columns.flags[row] & (flags::IPV4 | flags::IPV6) != 0;
            if !Verdict(columns.verdict[row]).is_next() || !is_ip || packet.cells() > 1 {
                continue;
            }
            cx.at(row);
            let d = received::decode(packet);
            let Found::Esp { at, spi, end, port } = inbound::found(packet.data(), &d) else {
                continue;
            };
            let family = if d.kind == packet::Kind::Ipv4 { 4 } else { 6 };
            let Some(association) = view.inbound(family, d.dst, spi) else { continue };
            let Some(place) = keys.place(association) else { continue };
            let bytes = packet.data().get(at..end);
            let number = bytes.zip(association.opener()).map(|(bytes, own)| own.number(bytes));
            // What the window refuses now it refuses later.
            let Some(Ok(number)) = number else { continue };
            if !inbound::is_encapsulated_right(association, port) {
                continue;
            }
            let columns = EspColumns::view(&mut chunk.rows);
            columns.esp_key[row] = place as u32 + 1;
            (columns.esp_at[row], columns.esp_l3[row]) = (at as u16, d.l3_offset);
            columns.esp_len[row] = (end - at) as u32;
            columns.esp_high[row] = (number >> 32) as u32;
        }
    }

    /// Gives packets to the workers of their associations.
    #[cold]
    fn hand_over(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, Tables>) {
        let place = cx.place(super::PLACE).unwrap_or(0);
        for (row, worker) in self.away.drain(..) {
            let packet = chunk.take(usize::from(row));
            cx.hand_to(packet, Some(row.into()), worker, place);
        }
    }

    /// Opens the packets of a chunk that the step in between, which has `keys`, has not, and goes on with what was inside.
    fn receive(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, Tables>, keys: Option<&EspKeys>) {
        self.owners.look(cx);
        self.away.clear();
        let view = self.reader.get();
        if view.is_empty() {
            return;
        }
        let Some(fib) = cx.tables.find::<RouterPart>() else { return };
        self.tunnels.look(cx.version, fib);
        let columns = RouterColumns::view(&mut chunk.rows);
        self.now_ns = cx.now_ns;
        self.rows.clear();
        for (row, (verdict, bits)) in columns.verdict.iter().zip(&*columns.flags).enumerate() {
            (self.reqids[row], self.if_ids[row]) = (0, 0);
            if Verdict(*verdict).is_next() && bits & (flags::IPV4 | flags::IPV6) != 0 {
                self.rows.push(row as u16);
            }
        }
        self.changed.clear();
        // Without policies what is no ESP passes, and nothing is asked.
        let (has_none, mut passed) = (view.incoming.is_empty(), 0);
        let is_large = view.is_large() && keys.is_none();
        for depth in 0..=NESTED_MAX {
            self.next.clear();
            let rows = std::mem::take(&mut self.rows);
            {
                let (verdicts, mut records) = match self.shares {
                    true => {
                        let view = RecordColumns::view(&mut chunk.rows);
                        (view.verdict, Some(Records::new(view.record, view.record_is_known)))
                    }
                    false => (chunk.rows.verdicts(), None),
                };
                // A step in between may have changed packets, and nobody has looked at them since.
                records.take_if(|_| depth == 0 && keys.is_some());
                let mut near: Near<'_> = ArrayVec::new();
                if depth == 0 && is_large {
                    find_near(&view, &rows, &chunk.packets, &mut records, &mut near);
                }
                near.iter().take(AHEAD).flatten().for_each(Ahead::prefetch);
                let mut last = Last::default();
                let mut members: ArrayVec<Member<'_>, GROUP> = ArrayVec::new();
                for (at, &row) in rows.iter().enumerate() {
                    let row = usize::from(row);
                    if let Some(Some(ahead)) = near.get(at + AHEAD) {
                        ahead.prefetch();
                    }
                    if let Some(Some(ahead)) = near.get(at + AHEAD / 2) {
                        ahead.association().prefetch_numbers();
                    }
                    if let Some(Some(ahead)) = near.get(at + AHEAD / 4) {
                        ahead.association().prefetch_window();
                    }
                    if !Verdict(verdicts[row]).is_next() {
                        // What was inside is not to be forwarded. The host gets what policies let in.
                        let is_host = Verdict(verdicts[row]).kind() == VerdictKind::Host;
                        if depth > 0 && is_host {
                            let d = received::decode(&chunk.packets[row]);
                            if let Some(reason) =
                                self.judge(&view, row, (&chunk.packets[row], &d), fib)
                            {
                                verdicts[row] = Verdict::drop(reason).0;
                            }
                        }
                        continue;
                    }
                    cx.at(row);
                    let packet = &mut chunk.packets[row];
                    let mut d = match &mut records {
                        Some(records) => *records.of(row, packet),
                        None => received::decode(packet),
                    };
                    if is_too_big(&d) {
                        packet.mark |= MARK_TOO_BIG;
                    }
                    if inbound::is_other(&d) && self.if_ids[row] == 0 {
                        match has_none && self.reqids[row] == 0 {
                            true => passed += 1,
                            false => self.questions.put(row, &d, fib),
                        }
                        continue;
                    }
                    let arrival_ns = cx.arrival_ns(packet);
                    if d.has(Decoded::FRAGMENT) && is_own(fib, &d) && may_be_esp(&view, &d) {
                        match self.fragments.take(packet, &d, arrival_ns, cx) {
                            Taken::Nothing => {}
                            Taken::Waits => {
                                verdicts[row] = Verdict::TAKEN.0;
                                continue;
                            }
                            // What it is of its flow does not change: addresses are those of its fragments.
                            Taken::Whole(datagram) => {
                                *packet = datagram;
                                d = received::decode(packet);
                                self.changed.push(row as u16);
                            }
                        }
                    }
                    let packet = &mut chunk.packets[row];
                    let shaded = match keys {
                        Some(keys) if depth == 0 => {
                            let own = self.shaded[row];
                            own.and_then(|own| Some((own, &**keys.get(own.key as usize - 1)?)))
                        }
                        _ => None,
                    };
                    let found = match shaded {
                        Some(own) => opened(packet, &d, own, arrival_ns),
                        None => self.find((&view, &mut last), row, packet, &d, (fib, arrival_ns)),
                    };
                    match found {
                        Ok(Some(_)) if depth == NESTED_MAX => {
                            verdicts[row] = Verdict::drop(reasons::ESP_MALFORMED).0;
                        }
                        Ok(Some(esp))
                            if depth == 0
                                && let Some(worker) =
                                    self.owners.elsewhere(esp.association, cx.is_again(row)) =>
                        {
                            verdicts[row] = Verdict::TAKEN.0;
                            self.away.push((row as u16, worker));
                        }
                        Ok(Some(esp)) => {
                            let shaded = shaded.map(|own| own.0);
                            // In the order of their rows, whoever opens them: a small window would refuse one that is late.
                            let how = how_opened(row, shaded, &chunk.packets);
                            let last = members.last();
                            let before =
                                last.map(|own| how_opened(own.row, own.shaded, &chunk.packets));
                            if before.is_some_and(|before| before != how || how == How::Alone) {
                                self.open(&members, verdicts, &mut chunk.packets, cx.pool);
                                members.clear();
                            }
                            if shaded.is_none() {
                                let is_whole = !asks_itself(esp.association);
                                prefetch(&chunk.packets[row], 0, is_whole);
                            }
                            let now_ns = arrival_ns;
                            members.push(Member { row, esp, d, now_ns, shaded });
                        }
                        Ok(None) if self.if_ids[row] != 0 => {} // judged by the policies of its interface
                        Ok(None) if has_none && self.reqids[row] == 0 => passed += 1,
                        Ok(None) => self.questions.put(row, &d, fib),
                        Err(reason) => verdicts[row] = Verdict::drop(reason).0,
                    }
                    if members.is_full() {
                        self.open(&members, verdicts, &mut chunk.packets, cx.pool);
                        members.clear();
                    }
                }
                self.open(&members, verdicts, &mut chunk.packets, cx.pool);
                self.ask(&view, verdicts, &chunk.packets);
            }
            self.rows = rows;
            if self.next.is_empty() {
                break;
            }
            self.look_again(chunk, cx);
            std::mem::swap(&mut self.rows, &mut self.next);
        }
        if passed > 0 {
            self.counters.passed.add(passed);
        }
        if self.shares {
            let mut records = Records::of_rows(&mut chunk.rows);
            self.changed.iter().for_each(|row| records.forget(usize::from(*row)));
        }
    }

    /// Whether a packet is to be opened, and by what. `None`: the policies say what becomes of it.
    fn find<'v>(
        &self,
        (view, last): (&'v View, &mut Last<'v>),
        row: usize,
        packet: &Packet,
        d: &Decoded,
        (fib, now_ns): (&Fib, u64),
    ) -> Result<Option<Esp<'v>>, DropReason> {
        let found = inbound::found(packet.data(), d);
        // What is opened and is to be opened once more, or is dropped for another reason, has to have come right before.
        let is_first = self.reqids[row] != 0 && (found != Found::Other || self.if_ids[row] != 0);
        if let Some(reason) = is_first.then(|| self.judge(view, row, (packet, d), fib)).flatten() {
            return Err(reason);
        }
        let family = if d.kind == packet::Kind::Ipv4 { 4 } else { 6 };
        match found {
            Found::Esp { at, spi, end, port } => {
                let Some(association) = last.find(view, (family, d.dst, spi)) else {
                    return match is_own(fib, d) {
                        true => {
                            let told = || refused(Why::UnknownSpi, spi, d, packet.data(), at);
                            self.reader.refuse(told, now_ns);
                            Err(reasons::ESP_UNKNOWN_SPI)
                        }
                        false => Ok(None),
                    };
                };
                if !inbound::is_encapsulated_right(association, port) {
                    return Err(reasons::ESP_ENCAPSULATION);
                }
                if association.has_ended() || association.is_over_time(now_ns) {
                    return Err(reasons::SA_EXPIRED);
                }
                Ok(Some(Esp { association, at, end, port }))
            }
            Found::KeepAlive if is_own(fib, d) => Err(reasons::ESP_KEEP_ALIVE),
            Found::Fragment if is_own(fib, d) => Err(reasons::ESP_FRAGMENT),
            Found::Short if is_own(fib, d) => Err(reasons::ESP_SHORT),
            _ => Ok(None),
        }
    }
}
