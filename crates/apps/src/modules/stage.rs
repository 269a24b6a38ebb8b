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

use std::any::Any;
use std::sync::Arc;

use chunk::{Chunk, ColumnSet, Columns, Declaration, ReasonBlock, Verdict};
use control::config::ModuleEntry;
use controlplane::module::{Act, AnyModule, PacketAt, PacketId, is_right, payload_offset, reasons};
use engine::{Context, Phases, Shade, Shard, Spread, Stage};
use packet::{Decoded, IpProtocol};

use super::columns::{self, ModuleColumns, ModuleView, layers};
use super::counters::{Column, Counters};
use super::gather::{Gathered, Known, Shared, lock};
use super::kernels::KernelShade;
use crate::received;

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

/// The stage of one worker.
pub struct Modules {
    name: &'static str,
    gathered: Shared,
    rust: Vec<Rust>,
    kernels: Option<Arc<KernelShade>>,
    /// By port: which modules see its packets, a bit each; the last one is for further ports.
    by_port: Vec<u32>,
    contexts: Arc<[String]>,
    counters: Arc<Counters>,
    needs_one_worker: Option<&'static str>,
    /// By place of a flow: how many flows had it, and the first Rust module that has later ones ignore it.
    flows: Vec<(u32, u32)>,
    packets: u64,
    decoded: Decoded,
    worker: u16,
}

/// No Rust module has later ones ignore a flow.
const NONE: u32 = u32::MAX;

/// What the stage of a worker is made of.
pub struct Parts {
    /// Its name.
    pub name: &'static str,
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
}

impl Modules {
    /// That of a worker.
    pub fn new(parts: Parts) -> Self {
        let Parts { name, gathered, rust, kernels, by_port, contexts, counters, needs_one_worker } =
            parts;
        Self {
            name,
            gathered,
            rust,
            kernels,
            by_port,
            contexts,
            counters,
            needs_one_worker,
            flows: Vec::new(),
            packets: 0,
            decoded: Decoded::default(),
            worker: 0,
        }
    }

    /// Flows that begin: their places are theirs from now on.
    fn begin(&mut self, known: &Known) {
        if self.flows.len() <= known.slot {
            self.flows.resize(known.slot + 1, (0, NONE));
        }
        if known.is_first {
            let generation = (self.flows[known.slot].0 + 1) & 0x7fff_ffff;
            self.flows[known.slot] = (generation.max(1), NONE);
            self.rust.iter_mut().for_each(|own| own.module.begin(known.slot));
        }
    }

    /// The Rust modules of a packet. The verdict, and whether no later module sees it.
    fn run_rust(
        &mut self,
        at: &mut PacketAt<'_>,
        sees: u32,
        known: Option<(usize, &Known)>,
        gathered: &Gathered,
    ) -> (Verdict, bool) {
        let slot = known.map(|(_, known)| known.slot);
        let mut ignored_by = slot.map_or(NONE, |slot| self.flows[slot].1);
        for own in &mut self.rust {
            let number = own.number;
            if ignored_by < number as u32 {
                break;
            }
            let is_seen =
                sees >> number & 1 == 1 && (own.contexts == 0 || *at.context & own.contexts != 0);
            if !is_seen {
                continue;
            }
            self.counters.add(number, Column::Packets);
            let act = match known {
                Some((place, _)) => own.module.process(at, slot, &mut gathered.pieces(place)),
                None => own.module.process(at, None, &mut std::iter::empty()),
            };
            let column = match act {
                Act::Pass => continue,
                Act::Ignore => Column::Ignored,
                Act::Drop(_) => Column::Dropped,
                Act::ToHost => Column::ToHost,
                Act::Dump => Column::Dumped,
            };
            self.counters.add(number, column);
            let verdict = match act {
                Act::Pass | Act::Ignore => {
                    ignored_by = number as u32;
                    if let Some(slot) = slot {
                        self.flows[slot].1 = ignored_by;
                    }
                    continue;
                }
                Act::Drop(reason) => Verdict::drop(reason),
                Act::ToHost => Verdict::host(at.packet.port),
                Act::Dump => Verdict::DUMP,
            };
            return (verdict, true);
        }
        (Verdict::NEXT, ignored_by != NONE)
    }
}

/// What kernels need of a packet.
fn fill(view: &mut ModuleView<'_>, row: usize, d: &Decoded, frame: &[u8], port: u16) {
    let mut has = layers::ETH;
    let (mut l3, mut l4, mut data, mut end) = (0, 0, 0, 0);
    if is_right(d) {
        has |= layers::IP | if d.kind == packet::Kind::Ipv6 { layers::IPV6 } else { 0 };
        (l3, l4) = (usize::from(d.l3_offset), usize::from(d.l4_offset));
        end = d.l3_end();
        let is_whole = d.ports().is_some() && !d.has(Decoded::FRAGMENT);
        let of_layer = match d.protocol {
            IpProtocol::UDP => layers::UDP,
            IpProtocol::TCP => layers::TCP,
            _ => 0,
        };
        if is_whole && of_layer != 0 {
            has |= of_layer;
            data = payload_offset(d, frame).unwrap_or(0).min(end);
        }
    }
    view.module_layers[row] = has;
    let part = |value: usize| value.min(0xffff) as u64;
    view.module_head[row] = part(l3) | part(l4) << 16 | part(data) << 32 | part(end) << 48;
    view.module_info[row] = u32::from(d.protocol.0) | u32::from(d.ttl) << 8 | u32::from(port) << 16;
}

impl<T: Send + Sync + 'static> Stage<T> for Modules {
    fn name(&self) -> &'static str {
        self.name
    }

    fn columns(&self) -> &'static [Declaration] {
        match self.kernels {
            Some(_) => &[ModuleColumns::COLUMNS, Shard::COLUMNS],
            None => &[],
        }
    }

    fn drop_reasons(&self) -> &'static [&'static ReasonBlock] {
        &[reasons::BLOCK]
    }

    fn reads(&self) -> ColumnSet {
        if self.kernels.is_some() { columns::reads() } else { ColumnSet::EMPTY }
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
        let shared = self.gathered.clone();
        let mut gathered = lock(&shared);
        self.worker = cx.worker;
        for known in gathered.packets() {
            self.begin(known);
        }
        let mut next = 0;
        for row in 0..chunk.packets.len() {
            // The last one of a row: a flow that ended with it is gone.
            let mut place = None;
            while let Some(known) = gathered.packets().get(next).filter(|known| known.row <= row) {
                place = (known.row == row).then_some(next).or(place);
                next += 1;
            }
            let is_next = Verdict(chunk.rows.verdicts()[row]).is_next();
            if !is_next {
                if self.kernels.is_some() {
                    let view = ModuleColumns::view(&mut chunk.rows);
                    (view.module_sees[row], view.module_slot[row]) = (0, u32::MAX);
                }
                continue;
            }
            cx.at(row);
            let packet = &mut chunk.packets[row];
            received::decode_into(packet, &mut self.decoded);
            let port = packet.port;
            let last = self.by_port.len() - 1;
            let sees = self.by_port[usize::from(port).min(last)];
            let known = place.map(|place| (place, &gathered.packets()[place]));
            let decoded = self.decoded;
            let piece = known.map(|(place, _)| gathered.in_frame(place, packet.data()));
            let id = PacketId {
                worker: self.worker,
                number: self.packets,
                port,
                arrival_ns: cx.arrival_ns(packet),
                flow: known.map_or(0, |(_, known)| known.flow),
                is_reply: known.is_some_and(|(_, known)| known.is_reply),
            };
            self.packets += 1;
            let contexts = self.contexts.clone();
            let (mut verdict, mut is_settled) = (Verdict::NEXT, false);
            if !self.rust.is_empty() {
                let (_, context) = chunk.rows.common();
                let mut at = PacketAt {
                    id,
                    packet,
                    decoded: &decoded,
                    context: &mut context[row],
                    contexts: &contexts,
                };
                (verdict, is_settled) = self.run_rust(&mut at, sees, known, &gathered);
                chunk.rows.verdicts()[row] = verdict.0;
            }
            let Some(kernels) = &self.kernels else { continue };
            let view = &mut ModuleColumns::view(&mut chunk.rows);
            let own = sees & kernels.sources().bits();
            let is_seen = verdict.is_next() && !is_settled;
            view.module_sees[row] = if is_seen { own } else { 0 };
            fill(view, row, &decoded, chunk.packets[row].data(), port);
            let slot = known.map(|(_, known)| known.slot);
            view.module_slot[row] = slot.map_or(u32::MAX, |slot| slot as u32);
            view.module_generation[row] = slot.map_or(0, |slot| self.flows[slot].0);
            if id.is_reply {
                view.module_layers[row] |= layers::REPLY;
            }
            let (in_frame, elsewhere) = piece.unwrap_or_default();
            (view.module_piece[row], view.module_offset[row]) = (0, 0);
            if let Some((begin, len, offset)) = in_frame
                && begin + len <= 0xffff
            {
                view.module_layers[row] |= layers::STREAM;
                view.module_piece[row] = begin as u32 | (len as u32) << 16;
                view.module_offset[row] = offset;
            }
            if elsewhere > 0 && kernels.sources().reads_streams() {
                self.counters.missed(elsewhere);
            }
        }
        gathered.clear();
        if let Some(kernels) = &self.kernels {
            kernels.reserve(self.flows.len());
        }
    }

    fn shader(&self) -> Option<Arc<dyn Shade<T>>> {
        self.kernels.clone().map(|kernels| kernels as _)
    }

    /// Counts what kernels did.
    fn post_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, T>) {
        let view = ModuleColumns::view(&mut chunk.rows);
        for row in 0..view.verdict.len() {
            let sees = view.module_sees[row];
            if sees == 0 {
                continue;
            }
            let (seen, error) = (view.module_seen[row], view.module_error[row]);
            self.counters.add_bits(sees & seen, Column::Packets);
            self.counters.add_bits(sees & seen & error, Column::Errors);
            self.counters.add_bits(sees & !seen & error, Column::Failed);
            self.counters.add_bits(sees & seen & view.module_ignored[row], Column::Ignored);
            let by = view.module_by[row];
            if (1..=32).contains(&by) {
                let column = match Verdict(view.verdict[row]).kind() {
                    chunk::VerdictKind::Host => Column::ToHost,
                    chunk::VerdictKind::Dump => Column::Dumped,
                    _ => Column::Dropped,
                };
                self.counters.add(by as usize - 1, column);
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
        self.flows.iter_mut().for_each(|flow| flow.1 = NONE);
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
        let (seen, by) = (view.module_seen[row], view.module_by[row]);
        match (view.module_sees[row], by) {
            (0, _) => String::new(),
            (_, 0) => format!("processed by {} modules", seen.count_ones()),
            (_, by) => format!("decided by {}", self.counters.name(by as usize - 1)),
        }
    }
}
