//! Stage `modules`: the modules of a program, in their order.
//!
//! | | |
//! | --- | --- |
//! | reads | frames, and what `flow` tells of them ([`gather`](super::gather)) |
//! | writes | packets, if a module changes them; contexts; its own columns |
//! | next | what all modules let pass |
//! | drop | `module_drop`, reasons of Rust modules; `module_failed` |
//! | host, dump | as a module says |
//!
//! Rust modules run in `pre_shade`, packet by packet. Those with a source are its shade, and `post_shade` counts what they
//! did. A packet is decoded once for all of them.
//!
//! ```text
//!  [[module]]   rust  rust  source  source │ rust  source │ rust
//!  stage        modules                    │ modules.2    │ modules.3       a group each: what is done before a device,
//!               └ knows what flow tells ─columns, attached─▶ those behind it    and what is done on it
//! ```
//!
//! Modules run in the order of the file. Where a Rust module stands behind a source, it waits for the device, so a stage of its
//! own follows ([`module_groups`]). The first stage leaves what it knows of flows and streams in columns, and attaches
//! bytes to packets ([`pieces`]): chunks are at different stages at a time. The state of a flow begins anew where
//! the generation of its place is another one.

use std::any::Any;
use std::sync::Arc;

use chunk::{Chunk, ColumnSet, Columns, Declaration, ReasonBlock, Verdict, VerdictKind};
use control::config::{Config, ModuleEntry, module_groups};
use controlplane::module::{Act, AnyModule, Joined, PacketAt, PacketId, Piece, reasons};
use engine::{Context, Phases, Shade, Shard, Spread, Stage};
use packet::Decoded;
use packet::checksum::Checksums;

use super::columns::{self, BY_STREAM, ModuleColumns, ModuleView, layers};
use super::counters::{Column, Counters};
use super::gather::{OfChunk, Shared};
use super::held::{Bytes, Held, OfSide};
use super::kernels::{KernelShade, Sources};
use super::pieces;
use crate::flow::by_worker::lock;
use crate::flow::calls::Asker;
use crate::flow::columns::{self as columns_of_flow, CallColumns};
use crate::received;
use crate::records::{self, RecordColumns, Records};

/// A module in Rust.
pub struct Rust {
    /// What the configuration says of it.
    pub entry: ModuleEntry,
    /// Its number among all modules.
    pub number: usize,
    /// The bits of the contexts that it sees; 0: all.
    pub contexts: u32,
    /// It.
    pub module: Box<dyn AnyModule>,
}

/// What the stage of a group has to do for those behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// It hears of flows from the stage `flow`; the others find in columns what the first one knew.
    pub is_first: bool,
    /// No stage of modules is behind it.
    pub is_last: bool,
    /// All pieces are attached: Rust modules of later groups read them, or a module may change a packet before a source reads
    /// them, which sees them as they came.
    pub attaches: bool,
    /// A source of this or a later group reads streams.
    pub kernels_read: bool,
    /// One reads UDP datagrams.
    pub kernels_join: bool,
}

/// The number of a module, and its verdict.
type Decision = (usize, Verdict);

/// Of the module that comes first.
fn earlier(a: Option<Decision>, b: Option<Decision>) -> Option<Decision> {
    a.into_iter().chain(b).min_by_key(|own| own.0)
}

/// What groups before this one found that was decided about bytes of a packet.
fn held_of(view: &ModuleView<'_>, row: usize) -> Option<Decision> {
    let number = view.module_held[row].checked_sub(1)?;
    Some((number as usize, Verdict(view.module_held_verdict[row])))
}

/// For the groups behind this one.
fn keep(view: &mut ModuleView<'_>, row: usize, held: Option<Decision>) {
    if let Some((number, verdict)) = held {
        view.module_held[row] = number as u32 + 1;
        view.module_held_verdict[row] = verdict.0;
    }
}

impl Group {
    /// That of modules which are all in one stage.
    pub const ALONE: Self = Self {
        is_first: true,
        is_last: true,
        attaches: false,
        kernels_read: true,
        kernels_join: true,
    };

    /// Group `at` of a configuration whose sources these are, by group.
    pub fn of(config: &Config, all: &[Sources], at: usize) -> Self {
        let is_rust = |number: &usize| config.modules[*number].kind.is_some();
        let all_rust = (0..config.modules.len()).filter(is_rust);
        let last_reader = all.iter().flat_map(Sources::stream_readers).max();
        let first_change = all.iter().flat_map(Sources::changers).chain(all_rust.clone()).min();
        let is_behind_change =
            first_change.zip(last_reader).is_some_and(|(change, reader)| change < reader);
        // There is none in front of those of the first group that is not in it.
        let first = module_groups(&config.modules).into_iter().next().unwrap_or(0..0);
        let has_later_rust = all_rust.max().is_some_and(|last| last >= first.end);
        Self {
            is_first: at == 0,
            is_last: at + 1 >= all.len(),
            attaches: has_later_rust || is_behind_change,
            kernels_read: last_reader.is_some(),
            kernels_join: all.iter().any(Sources::reads_datagrams),
        }
    }
}

/// The stage of one worker.
pub struct Modules {
    name: &'static str,
    group: Group,
    gathered: Shared,
    _asker: Option<Asker>,
    rust: Vec<Rust>,
    kernels: Option<Arc<KernelShade>>,
    /// By port: which modules see its packets, a bit each; the last one is for further ports.
    by_port: Vec<u32>,
    contexts: Arc<[String]>,
    counters: Arc<Counters>,
    needs_one_worker: Option<&'static str>,
    /// By place of a flow: how many flows had it, and the Rust modules that have later ones ignore it, a bit each.
    flows: Vec<(u32, u32)>,
    /// Bytes of streams that Rust modules did not let pass, in the order of `pre_shade`, and those of modules with a source, in
    /// that of `post_shade`.
    held: [Held; 2],
    packets: u64,
    decoded: Decoded,
    shares: bool,
    worker: u16,
}

/// What the stage of a worker is made of.
pub struct Parts {
    /// Its name.
    pub name: &'static str,
    /// Its place among the stages of modules.
    pub group: Group,
    /// What `flow` tells it.
    pub gathered: Shared,
    /// Rust modules.
    pub rust: Vec<Rust>,
    /// Modules with a source.
    pub kernels: Option<Arc<KernelShade>>,
    /// By port: which modules see its packets.
    pub by_port: Vec<u32>,
    /// Contexts by their bits.
    pub contexts: Arc<[String]>,
    /// Its counters.
    pub counters: Arc<Counters>,
    /// Why captures must go through one worker.
    pub needs_one_worker: Option<&'static str>,
    /// Other stages need the headers of packets, too: they are in records.
    pub shares: bool,
}

/// What is known of the flow of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct OfFlow {
    /// Its place, and how many flows had that; `None` for a packet of no flow.
    slot: Option<(usize, u32)>,
    /// Its number.
    flow: u64,
    is_reply: bool,
    /// The bytes of its segment, and the new ones.
    segment: Bytes,
    fresh: Bytes,
}

impl OfFlow {
    fn side(&self) -> Option<OfSide> {
        let (slot, generation) = self.slot?;
        Some(OfSide { slot, generation, is_reply: self.is_reply })
    }
}

/// The pieces of a packet, wherever they are.
#[derive(Clone, Copy)]
enum Pieces<'a> {
    None,
    /// Those of the packet at this place.
    Gathered(&'a OfChunk, usize),
    /// What is attached to its row, and how many they are.
    Attached(&'a [u8], u32),
}

impl Pieces<'_> {
    /// What `run` says, and whether it took a piece.
    fn visit(self, run: impl FnOnce(&mut dyn Iterator<Item = Piece<'_>>) -> Act) -> (Act, bool) {
        let mut taken = false;
        let see = |_: &Piece<'_>| taken = true;
        let act = match self {
            Self::None => run(&mut std::iter::empty()),
            Self::Gathered(gathered, at) => {
                run(&mut gathered.pieces(at).map(|(piece, _)| piece).inspect(see))
            }
            Self::Attached(bytes, count) => run(&mut pieces::read(bytes, count).inspect(see)),
        };
        (act, taken)
    }
}

impl Modules {
    /// That of a worker.
    pub fn new(parts: Parts) -> Self {
        let Parts {
            name,
            group,
            gathered,
            rust,
            kernels,
            by_port,
            contexts,
            counters,
            needs_one_worker,
            shares,
        } = parts;
        let _asker = group.is_first.then(|| lock(&gathered).asker());
        Self {
            name,
            group,
            gathered,
            _asker,
            rust,
            kernels,
            by_port,
            contexts,
            counters,
            needs_one_worker,
            flows: Vec::new(),
            held: Default::default(),
            packets: 0,
            decoded: Decoded::default(),
            shares,
            worker: 0,
        }
    }

    /// Whether something of a packet is in columns.
    fn has_columns(&self) -> bool {
        self.kernels.is_some() || !self.group.is_last || !self.group.is_first
    }

    /// A flow has this place, of which it is the `generation`th; its states are new if another one had it before.
    fn renew(&mut self, slot: usize, generation: u32) {
        if self.flows.len() <= slot {
            self.flows.resize(slot + 1, (0, 0));
        }
        if self.flows[slot].0 != generation {
            self.flows[slot] = (generation, 0);
            self.rust.iter_mut().for_each(|own| own.module.begin(slot));
        }
    }

    /// A flow begins in this place.
    fn begin(&mut self, slot: usize) {
        let before = self.flows.get(slot).map_or(0, |flow| flow.0);
        self.renew(slot, ((before + 1) & 0x7fff_ffff).max(1));
    }

    /// The Rust modules of a packet. Which decided, and how; and which modules have it ignored by later ones, those before among them.
    fn run_rust(
        &mut self,
        at: &mut PacketAt<'_>,
        (sees, mut over): (u32, u32),
        of_flow: &OfFlow,
        pieces: Pieces<'_>,
    ) -> (Option<Decision>, u32) {
        let (slot, side) = (of_flow.slot.map(|(slot, _)| slot), of_flow.side());
        over |= slot.map_or(0, |slot| self.flows[slot].1);
        for own in &mut self.rust {
            let number = own.number;
            if over & ((1 << number) - 1) != 0 {
                break;
            }
            let is_seen =
                sees >> number & 1 == 1 && (own.contexts == 0 || *at.context & own.contexts != 0);
            if !is_seen {
                continue;
            }
            self.counters.add(number, Column::Packets);
            let (act, by_stream) = pieces.visit(|pieces| own.module.process(at, slot, pieces));
            let verdict = match act {
                Act::Pass => continue,
                Act::Ignore => None,
                Act::Drop(reason) => Some(Verdict::drop(reason)),
                Act::ToHost => Some(Verdict::host(at.packet.port)),
                Act::Dump => Some(Verdict::DUMP),
            };
            if let Some(verdict) = verdict {
                if let Some(side) = side.filter(|_| by_stream) {
                    self.held[0].hold(side, number, of_flow.fresh, verdict);
                }
                return (Some((number, verdict)), over);
            }
            self.counters.add(number, Column::Ignored);
            over |= 1 << number;
            if let Some(slot) = slot {
                self.flows[slot].1 |= 1 << number;
            }
        }
        (None, over)
    }

    /// Leaves the pieces of a packet for kernels and later stages: in columns if there is one that is in the packet, else
    /// attached to it.
    fn leave_pieces(
        &self,
        chunk: &mut Chunk,
        row: usize,
        (gathered, at): (&OfChunk, usize),
        is_as_it_came: bool,
    ) {
        let view = ModuleColumns::view(&mut chunk.rows);
        if let Some(joined) = gathered.joined(at) {
            // A datagram has no pieces of streams.
            let is_read = self.group.attaches || self.group.kernels_join;
            if is_read && pieces::attach_joined(&mut chunk.attached, row, joined) {
                view.module_layers[row] |= layers::JOINED;
            }
            return;
        }
        let all = gathered.pieces(at);
        let is_in_one_cell = {
            let packet = &chunk.packets[row];
            packet.data().len() == packet.frame_len()
        };
        if all.len() == 0 {
            return;
        }
        if !self.group.attaches
            && all.len() == 1
            && is_as_it_came
            && is_in_one_cell
            && let Some((piece, Some(begin))) = all.clone().next()
            && begin + piece.bytes.len() <= 0xffff
        {
            view.module_layers[row] |= layers::STREAM;
            view.module_piece[row] = begin as u32 | (piece.bytes.len() as u32) << 16;
            view.module_offset[row] = piece.offset;
            return;
        }
        let count = pieces::attach(&mut chunk.attached, row, all);
        view.module_pieces[row] = count;
        if count > 0 {
            view.module_layers[row] |= layers::STREAM;
        }
    }

    /// What counts of what a module decided about a packet, and another one about bytes of it before: the module that comes first. The
    /// latter where nothing else was decided, and no group is left that may decide.
    fn settle(now: Option<Decision>, held: Option<Decision>, is_last: bool) -> Option<Decision> {
        match (now, held) {
            (Some(now), Some(held)) if held.0 < now.0 => Some(held),
            (None, held) if is_last => held,
            (now, _) => now,
        }
    }

    /// Keeps what a module with a source decided about new bytes of a stream, and gives a row the verdict of bytes that one did not
    /// let pass before. The module whose verdict that is, if it was given.
    fn hold(&mut self, view: &mut ModuleView<'_>, row: usize) -> Option<usize> {
        let (slot, generation) = (view.module_slot[row], view.module_generation[row]);
        if slot == u32::MAX {
            return None;
        }
        let is_reply = view.module_layers[row] & layers::REPLY != 0;
        let side = OfSide { slot: slot as usize, generation, is_reply };
        let by = if view.module_sees[row] != 0 { view.module_by[row] } else { 0 };
        let (number, own) = ((by & !BY_STREAM).checked_sub(1), Verdict(view.verdict[row]));
        // Of bytes that came before: a packet does not find those that it brings itself.
        let held = self.held[1].of(side, Bytes::unpack(view.module_segment[row]));
        if let Some(number) = number.filter(|_| by & BY_STREAM != 0) {
            let fresh = Bytes::unpack(view.module_fresh[row]);
            self.held[1].hold(side, number as usize, fresh, own);
        }
        let held = earlier(held, held_of(view, row));
        let now = match number {
            Some(number) => Some((number as usize, own)),
            None if own.is_next() => None,
            None => return None, // a Rust module has decided
        };
        keep(view, row, held);
        let settled =
            Self::settle(now, held, self.group.is_last).filter(|own| Some(*own) != now)?;
        (view.module_by[row], view.verdict[row]) = (settled.0 as u32 + 1, settled.1.0);
        Some(settled.0)
    }

    /// Its modules with their numbers.
    fn entries(&self) -> Vec<(usize, ModuleEntry)> {
        let rust = self.rust.iter().map(|own| (own.number, &own.entry));
        let sources = self.kernels.iter().flat_map(|kernels| kernels.sources().entries());
        rust.chain(sources).map(|(number, entry)| (number, entry.clone())).collect()
    }

    /// The bit of each module of this stage.
    fn sources(&self) -> u32 {
        self.kernels.as_ref().map_or(0, |kernels| kernels.sources().bits())
    }
}

/// How a verdict that does not let a packet pass is counted.
fn column_of(verdict: Verdict) -> Column {
    match verdict.kind() {
        VerdictKind::Host => Column::ToHost,
        VerdictKind::Dump => Column::Dumped,
        _ => Column::Dropped,
    }
}

/// Nothing is known of a row in columns.
fn blank(view: &mut ModuleView<'_>, row: usize) {
    (view.module_sees[row], view.module_slot[row], view.module_layers[row]) = (0, u32::MAX, 0);
    (view.module_pieces[row], view.module_flow[row], view.module_over[row]) = (0, 0, 0);
    (view.module_piece[row], view.module_offset[row], view.module_generation[row]) = (0, 0, 0);
    (view.module_segment[row], view.module_fresh[row]) = (0, 0);
}

impl<T: Send + Sync + 'static> Stage<T> for Modules {
    fn name(&self) -> &'static str {
        self.name
    }

    fn columns(&self) -> &'static [Declaration] {
        match &self.kernels {
            Some(_) if self.shares => &[
                CallColumns::COLUMNS,
                ModuleColumns::COLUMNS,
                Shard::COLUMNS,
                RecordColumns::COLUMNS,
            ],
            Some(_) => &[CallColumns::COLUMNS, ModuleColumns::COLUMNS, Shard::COLUMNS],
            None if self.has_columns() && self.shares => {
                &[CallColumns::COLUMNS, ModuleColumns::COLUMNS, RecordColumns::COLUMNS]
            }
            None if self.has_columns() => &[CallColumns::COLUMNS, ModuleColumns::COLUMNS],
            None if self.shares => &[CallColumns::COLUMNS, RecordColumns::COLUMNS],
            None => &[CallColumns::COLUMNS],
        }
    }

    /// Without a stage `flow`, nothing is known of rows.
    fn zeroed(&self) -> ColumnSet {
        let own = ColumnSet::of(&[CallColumns::FLOW_CALL]);
        if self.shares { own.union(&records::zeroed()) } else { own }
    }

    fn drop_reasons(&self) -> &'static [&'static ReasonBlock] {
        &[reasons::BLOCK]
    }

    fn reads(&self) -> ColumnSet {
        let read = |kernels: &Arc<KernelShade>| columns::reads(kernels.sources().uses_time());
        self.kernels.as_ref().map_or(ColumnSet::EMPTY, read)
    }

    fn writes(&self) -> ColumnSet {
        let written = |kernels: &Arc<KernelShade>| columns::writes(kernels.sources().has_state());
        self.kernels.as_ref().map_or(ColumnSet::EMPTY, written)
    }

    fn sets_context(&self) -> Phases {
        if self.rust.is_empty() { Phases::NONE } else { Phases::PRE }
    }

    fn phases(&self) -> Phases {
        if self.kernels.is_some() { Phases::BOTH } else { Phases::PRE }
    }

    fn changes_packets(&self) -> bool {
        self.kernels.as_ref().is_some_and(|own| own.sources().changes_packets())
    }

    fn reads_packets(&self) -> bool {
        true
    }

    /// Streams and states need both directions of a flow.
    fn spread(&self) -> Spread {
        Spread::Hosts
    }

    fn needs_one_worker(&self, _: &T) -> Option<&'static str> {
        self.needs_one_worker
    }

    fn pre_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, T>) {
        let gathered = match self.group.is_first {
            true => {
                let call = columns_of_flow::call(CallColumns::view(&mut chunk.rows).flow_call);
                lock(&self.gathered).take(call)
            }
            false => OfChunk::default(),
        };
        self.worker = cx.worker;
        let has_columns = self.has_columns();
        let uses_time = self.kernels.as_ref().is_some_and(|own| own.sources().uses_time());
        let mut next = 0;
        for row in 0..chunk.packets.len() {
            let (mut own, mut over, mut place) = (OfFlow::default(), 0, None);
            if self.group.is_first {
                // The last one of a row: a flow that ended with it is gone.
                while let Some(known) = gathered.packets().get(next).filter(|own| own.row <= row) {
                    if known.is_first || self.flows.get(known.slot).is_none_or(|flow| flow.0 == 0) {
                        self.begin(known.slot);
                    }
                    if known.row == row {
                        let slot = Some((known.slot, self.flows[known.slot].0));
                        let (flow, is_reply, segment) = (known.flow, known.is_reply, known.segment);
                        let fresh = gathered.fresh(next);
                        own = OfFlow { slot, flow, is_reply, segment, fresh };
                        place = Some(next);
                    }
                    next += 1;
                }
                if has_columns {
                    blank(&mut ModuleColumns::view(&mut chunk.rows), row);
                }
            }
            let is_next = Verdict(chunk.rows.verdicts()[row]).is_next();
            if !self.group.is_first {
                let view = ModuleColumns::view(&mut chunk.rows);
                view.module_sees[row] = 0;
                let slot = view.module_slot[row];
                own = OfFlow {
                    slot: (slot != u32::MAX)
                        .then_some((slot as usize, view.module_generation[row])),
                    flow: view.module_flow[row],
                    is_reply: view.module_layers[row] & layers::REPLY != 0,
                    segment: Bytes::unpack(view.module_segment[row]),
                    fresh: Bytes::unpack(view.module_fresh[row]),
                };
                over = view.module_over[row];
                if let Some((slot, generation)) = own.slot {
                    self.renew(slot, generation);
                }
            }
            if !is_next || over != 0 {
                continue;
            }
            cx.at(row);
            let packet = &mut chunk.packets[row];
            if !self.rust.is_empty() {
                // For modules with a source, the device decodes.
                match self.shares {
                    true => {
                        let mut records = Records::of_rows(&mut chunk.rows);
                        self.decoded = *records.of(row, packet);
                        // A module may change the packet.
                        records.forget(row);
                    }
                    false => received::decode_into(packet, &mut self.decoded),
                }
            }
            let port = packet.port;
            let last = self.by_port.len() - 1;
            let sees = self.by_port[usize::from(port).min(last)];
            let decoded = self.decoded;
            let id = PacketId {
                worker: self.worker,
                number: self.packets,
                port,
                arrival_ns: cx.arrival_ns(packet),
                flow: own.flow,
                is_reply: own.is_reply,
            };
            self.packets += 1;
            let contexts = self.contexts.clone();
            let mut verdict = Verdict::NEXT;
            let mut held = None;
            let before = (packet.data().as_ptr().addr(), packet.frame_len());
            if !self.rust.is_empty() {
                let (count, is_joined) = match self.group.is_first {
                    true => (0, false),
                    false => {
                        let view = ModuleColumns::view(&mut chunk.rows);
                        (view.module_pieces[row], view.module_layers[row] & layers::JOINED != 0)
                    }
                };
                let attached = is_joined.then(|| pieces::joined_frame(chunk.attached.of(row)));
                let headers = attached.map(|frame| packet::decode::decode(frame, frame.len()));
                let joined = match place {
                    Some(place) => gathered.joined(place),
                    None => headers
                        .as_ref()
                        .zip(attached)
                        .map(|(decoded, frame)| Joined { decoded, frame }),
                };
                let pieces = match place {
                    Some(place) => Pieces::Gathered(&gathered, place),
                    None if count > 0 => Pieces::Attached(chunk.attached.of(row), count),
                    None => Pieces::None,
                };
                // Of bytes that came before: a packet does not find those that it brings itself.
                held = own.side().and_then(|side| self.held[0].of(side, own.segment));
                if !self.group.is_first {
                    held = earlier(held, held_of(&ModuleColumns::view(&mut chunk.rows), row));
                }
                let (_, context) = chunk.rows.common();
                let mut at = PacketAt {
                    id,
                    packet,
                    decoded: &decoded,
                    context: &mut context[row],
                    contexts: &contexts,
                    joined,
                };
                let now;
                (now, over) = self.run_rust(&mut at, (sees, 0), &own, pieces);
                let is_last = self.group.is_last && self.kernels.is_none();
                if let Some((number, own)) = Self::settle(now, held, is_last) {
                    self.counters.add(number, column_of(own));
                    verdict = own;
                }
                chunk.rows.verdicts()[row] = verdict.0;
            }
            if !has_columns {
                continue;
            }
            if self.group.is_first {
                let view = &mut ModuleColumns::view(&mut chunk.rows);
                if let Some((slot, generation)) = own.slot {
                    view.module_slot[row] = slot as u32;
                    view.module_generation[row] = generation;
                }
                view.module_flow[row] = own.flow;
                view.module_held[row] = 0;
                view.module_segment[row] = own.segment.pack();
                view.module_fresh[row] = own.fresh.pack();
                view.module_layers[row] = if own.is_reply { layers::REPLY } else { 0 };
            }
            let view = &mut ModuleColumns::view(&mut chunk.rows);
            keep(view, row, held);
            view.module_over[row] = over;
            if !verdict.is_next() || over != 0 {
                continue;
            }
            let packet = &chunk.packets[row];
            let is_as_it_came = before == (packet.data().as_ptr().addr(), packet.frame_len());
            let Group { kernels_read, kernels_join, attaches, .. } = self.group;
            if let Some(place) = place.filter(|_| kernels_read || kernels_join || attaches) {
                self.leave_pieces(chunk, row, (&gathered, place), is_as_it_came);
            }
            if self.kernels.is_some() {
                let (sources, packet) = (self.sources(), &chunk.packets[row]);
                let view = &mut ModuleColumns::view(&mut chunk.rows);
                view.module_sees[row] = sees & sources;
                let is_forgiven = received::checksums(packet) == Checksums::Ignore;
                if is_forgiven {
                    view.module_layers[row] |= layers::FORGIVEN;
                }
                // A cell has fewer bytes than 16 bits can number.
                view.module_info[row] = u32::from(port) | (packet.data().len() as u32) << 16;
                if uses_time {
                    view.module_time[row] = id.arrival_ns;
                }
                if !is_as_it_came {
                    view.module_layers[row] |= layers::MOVED;
                }
            }
        }
        if self.group.is_first {
            lock(&self.gathered).give_back(gathered);
        }
        if let Some(kernels) = &self.kernels {
            kernels.reserve(self.flows.len());
        }
    }

    fn shader(&self) -> Option<Arc<dyn Shade<T>>> {
        self.kernels.clone().map(|kernels| kernels as _)
    }

    /// Counts what kernels did.
    fn post_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, T>) {
        let changes = self.kernels.as_ref().is_some_and(|own| own.sources().changes_packets());
        if self.shares && changes {
            Records::of_rows(&mut chunk.rows).forget_all();
        }
        let view = &mut ModuleColumns::view(&mut chunk.rows);
        for row in 0..view.verdict.len() {
            let sees = view.module_sees[row];
            let held = self.hold(view, row);
            if sees == 0 {
                if let Some(number) = held {
                    self.counters.add(number, column_of(Verdict(view.verdict[row])));
                }
                continue;
            }
            view.module_over[row] |= view.module_ignored[row];
            let (seen, error) = (view.module_seen[row], view.module_error[row]);
            self.counters.add_bits(sees & seen, Column::Packets);
            self.counters.add_bits(sees & seen & error, Column::Errors);
            self.counters.add_bits(sees & !seen & error, Column::Failed);
            self.counters.add_bits(sees & seen & view.module_ignored[row], Column::Ignored);
            let by = view.module_by[row] & !BY_STREAM;
            if (1..=32).contains(&by) {
                self.counters.add(by as usize - 1, column_of(Verdict(view.verdict[row])));
            }
        }
    }

    /// States go on where the modules are the same; others begin anew.
    fn inherit(&mut self, before: &mut dyn Stage<T>) {
        let Some(before) = before.as_any().and_then(|before| before.downcast_mut::<Self>()) else {
            return;
        };
        // Places of flows stay what they are: the stage `flow` goes on.
        self.flows = std::mem::take(&mut before.flows);
        self.packets = before.packets;
        for own in &mut self.rust {
            match before.rust.iter_mut().find(|before| before.entry == own.entry) {
                Some(before) => std::mem::swap(&mut own.module, &mut before.module),
                None => (0..self.flows.len()).for_each(|slot| own.module.begin(slot)),
            }
        }
        self.flows.iter_mut().for_each(|flow| flow.1 = 0);
        let kept = [self.entries(), before.entries()];
        self.held = before.held.each_mut().map(|held| {
            held.renumbered(|number| {
                let (_, entry) = kept[1].iter().find(|own| own.0 == number)?;
                kept[0].iter().find(|own| own.1 == *entry).map(|own| own.0)
            })
        });
        if let (Some(kernels), Some(before)) = (&self.kernels, &before.kernels) {
            kernels.inherit(before);
        }
    }

    fn as_any(&mut self) -> Option<&mut dyn Any> {
        Some(self)
    }

    fn describe(&self, chunk: &mut Chunk, row: usize, _: &T) -> String {
        if self.kernels.is_none() {
            return String::new();
        }
        let view = ModuleColumns::view(&mut chunk.rows);
        let (seen, by) = (view.module_seen[row], view.module_by[row] & !BY_STREAM);
        match (view.module_sees[row], by) {
            (0, _) => String::new(),
            (_, 0) => format!("processed by {} modules", seen.count_ones()),
            (_, by) => format!("decided by {}", self.counters.name(by as usize - 1)),
        }
    }
}
