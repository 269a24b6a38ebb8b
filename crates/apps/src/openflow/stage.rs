//! Stage `openflow`: packets through tables, groups and meters.
//!
//! | | |
//! | --- | --- |
//! | next | packets to NORMAL, for the stages of a switch |
//! | forward | out by the port of the packet's first output; frames that Linux sends by the port's twin: out by that port as they are |
//! | drop | `flow_miss`, `flow_drop`, `flow_meter`, `flow_ttl`, `flow_port`, `flow_group`, `flow_no_room`, `no_controller`, `to_controller`, `controller_rate`, `flow_normal`, `queue_full`, `queue_end` |
//! | emits | the packet's other outputs, in their order; packets that leave a queue |
//! | holds | packets in queues of ports ([`flowtable::queues`]) |
//!
//! A packet that is sent somewhere and to a controller as well is counted by what was sent; what there is no controller for is
//! [counted](Counters::to_controller).
//!
//! Packets for a queue are in no row any more: they wait, and leave in front of the first packet that comes after their time, or in
//! `tick`. Over captures their time is that of their departure then. They come into their queues when their chunk retires, and leave
//! only then: everything that came before has left, also where stages behind, or a device, keep several chunks at work.
//!
//! With a [`shade`], keys are read in `pre_shade`, and the lookups are a device's, or any thread's.

mod firsts;

use std::collections::VecDeque;
use std::sync::Arc;

use chunk::{
    Chunk, ColumnSet, Columns, Declaration, DropReason, Emitted, Packet, Pool, ReasonBlock, Verdict,
};
use engine::{Context, Counter, MARK_FROM_HOST, Phases, Shade, Stage};
use flowtable::edit::Frame;
use flowtable::pipeline::Lookups;
use flowtable::queues::{PortShape, Shaper};
use flowtable::{Dropped, Egress, FlowTables, Pipeline, Sent};
use openflow::PortNo;
use openflow::flow::InReason;

use super::channel::{ForController, Offered, ToControl};
use super::columns::KeyColumns;
use super::reasons;
use super::shade::{self, Walk};

/// Set in [`Packet::mark`] of packets that a controller sends to NORMAL as if their port had received them.
pub(super) const MARK_NORMAL: u32 = 1 << 27;

/// Set in [`Packet::mark`] of packets that a controller sends by their port, whose queues they take: the place of the queue and 1,
/// or 0 for none, is in [`MARK_QUEUE`].
pub(super) const MARK_OUT: u32 = 1 << 26;
/// See [`MARK_OUT`].
pub(super) const MARK_QUEUE: u32 = 0xffff;

/// How ports of the program are numbered in OpenFlow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PortNumbers {
    /// The port that is LOCAL.
    pub local: Option<u16>,
}

impl PortNumbers {
    /// The number of a port.
    #[inline]
    pub fn number(self, port: u16) -> PortNo {
        match self.local == Some(port) {
            true => PortNo::LOCAL,
            false => PortNo(u32::from(port) + 1),
        }
    }

    /// The port with a number.
    #[inline]
    pub fn port(self, number: PortNo) -> Option<u16> {
        if number == PortNo::LOCAL {
            return self.local;
        }
        let port = number.is_ordinary().then(|| u16::try_from(number.0 - 1).ok()).flatten();
        port.filter(|port| self.local != Some(*port))
    }
}

/// What one worker counted. Written by that worker alone, read by anybody.
#[derive(Debug)]
#[repr(align(128))]
pub struct Counters {
    /// Packets, or copies, that were handed over for the controllers.
    pub to_controller: Counter,
    /// Those that exceeded the rate.
    pub controller_rate: Counter,
    /// Packets, or copies, that went on to the switch that NORMAL is.
    pub to_normal: Counter,
    /// Frames that were sent beside the first one of a packet.
    pub copies: Counter,
    /// Copies for which no cell was free, and those to NORMAL of packets that are there.
    pub copies_lost: Counter,
    /// By table: packets looked up, and packets that a flow took.
    pub tables: Vec<[Counter; 2]>,
}

impl Counters {
    /// All zero, of so many tables.
    pub fn new(tables: u8) -> Self {
        let tables = (0..tables).map(|_| <[Counter; 2]>::default()).collect();
        let zero = Counter::default;
        let (to_controller, controller_rate, to_normal) = (zero(), zero(), zero());
        Self {
            to_controller,
            controller_rate,
            to_normal,
            copies: zero(),
            copies_lost: zero(),
            tables,
        }
    }
}

/// A frame in cells.
struct CellFrame(Packet);

impl Frame for CellFrame {
    fn head(&self) -> &[u8] {
        self.0.data()
    }

    fn head_mut(&mut self) -> &mut [u8] {
        self.0.data_mut()
    }

    fn frame_len(&self) -> usize {
        self.0.frame_len()
    }

    fn grow(&mut self, n: usize) -> bool {
        self.0.push_front(n)
    }

    fn shrink(&mut self, n: usize) -> bool {
        self.0.pull_front(n)
    }
}

/// The stage.
pub struct OpenFlow {
    name: &'static str,
    pipeline: Pipeline<CellFrame>,
    counters: Arc<Counters>,
    /// Where packets for controllers go.
    controllers: Option<ToControl>,
    ports: PortNumbers,
    /// The stages of a switch are behind this one.
    has_switch: bool,
    /// Lookups that the counters have.
    counted: Vec<Lookups>,
    /// Packets in queues.
    shaper: Shaper<Packet>,
    /// What ports with queues get of chunks that have not retired, the oldest first. The last one is of the chunk at hand.
    shares: VecDeque<Share>,
    /// Those that are over, for their memory.
    unused: Vec<Share>,
    /// There is a clock.
    is_live: bool,
    /// What a device can do of it.
    shade: Option<Arc<Walk>>,
}

/// Whether a packet goes through the tables: not if a host sends it by the twin of a port, or a controller by a port, nor if it goes to
/// NORMAL at once.
fn is_for_tables(packet: &Packet, all_normal: bool) -> bool {
    packet.mark & (MARK_FROM_HOST | MARK_OUT | MARK_NORMAL) == 0 && !all_normal
}

/// What ports with queues get of a chunk.
#[derive(Default)]
struct Share {
    /// The chunk's number.
    seq: u64,
    /// When its packets came, by row.
    times: Vec<u64>,
    /// Packets, as they were sent.
    packets: Vec<Shaped>,
}

/// A packet for a port with queues, which a row sends.
struct Shaped {
    row: usize,
    port: u16,
    how: How,
}

enum How {
    /// It waits in the queue at this place.
    Queue(usize, Packet),
    /// It goes by, with so many bytes.
    Passes(usize),
}

impl OpenFlow {
    /// A stage of one worker.
    pub fn new(
        name: &'static str,
        counters: Arc<Counters>,
        controllers: Option<ToControl>,
        shapes: &[Option<Arc<PortShape>>],
    ) -> Self {
        let counted = vec![Lookups::default(); counters.tables.len()];
        Self {
            name,
            pipeline: Pipeline::of_worker(),
            counters,
            controllers,
            ports: PortNumbers::default(),
            has_switch: false,
            counted,
            shaper: Shaper::new(shapes),
            shares: VecDeque::new(),
            unused: Vec::new(),
            is_live: false,
            shade: None,
        }
    }

    /// The same with the lookups of all tables in a shade ([`super::shade`]). Its part of the tables begins with region
    /// `first_region` of a device's image.
    #[must_use]
    pub fn with_shade(self, first_region: usize) -> Self {
        Self { shade: Some(Arc::new(Walk { first_region })), ..self }
    }

    /// The same with other numbers of ports, and with the stages of a switch behind it.
    #[must_use]
    pub fn with_ports(self, ports: PortNumbers, has_switch: bool) -> Self {
        Self { ports, has_switch, ..self }
    }

    /// Whether ports have queues.
    fn shapes(&self) -> bool {
        !self.shaper.is_idle()
    }

    /// The share of the chunk at hand.
    fn share(&mut self, seq: u64, times: impl Iterator<Item = u64>) {
        let mut share = self.unused.pop().unwrap_or_default();
        share.seq = seq;
        share.times.clear();
        for time in times {
            // Of a packet that is no longer here the time does not matter.
            share.times.push(time.max(share.times.last().copied().unwrap_or_default()));
        }
        self.shares.push_back(share);
    }

    /// The packets of a share go into their queues, and those leave whose time has come: in front of the first packet that came
    /// later, so behind that before it.
    fn shape(
        &mut self,
        share: &mut Share,
        emitted: &mut Vec<Emitted>,
        cx: &mut Context<'_, FlowTables>,
    ) {
        share.packets.sort_by_key(|own| own.row); // stable: outputs of a packet in their order
        let is_live = self.is_live;
        let timed = |mut packet: Packet, at_ns| {
            if !is_live {
                packet.time_ns = at_ns;
            }
            packet
        };
        let mut packets = share.packets.drain(..).peekable();
        for (row, &now_ns) in share.times.iter().enumerate() {
            let before = row.checked_sub(1);
            self.shaper.leave(now_ns, |port, packet, at_ns| {
                let (packet, verdict) = (timed(packet, at_ns), Verdict::forward(port));
                match before {
                    Some(row) => emitted.push(Emitted { cause: row as u16, verdict, packet }),
                    None => cx.release(packet, verdict), // in front of the chunk
                }
            });
            let cause = row as u16;
            while let Some(Shaped { port, how, .. }) = packets.next_if(|own| own.row == row) {
                let (queue, packet) = match how {
                    How::Queue(queue, packet) => (queue, packet),
                    How::Passes(len) => {
                        self.shaper.passes(port, len, now_ns);
                        continue;
                    }
                };
                let len = packet.frame_len();
                if let Err(packet) = self.shaper.push(port, queue, packet, len, now_ns) {
                    let verdict = Verdict::drop(reasons::QUEUE_FULL);
                    emitted.push(Emitted { cause, verdict, packet });
                }
                self.shaper.leave(now_ns, |port, packet, at_ns| {
                    let (packet, verdict) = (timed(packet, at_ns), Verdict::forward(port));
                    emitted.push(Emitted { cause, verdict, packet });
                });
            }
        }
    }

    /// Packets of a chunk go to the tables, each as a frame of its own.
    fn push_all(&mut self, chunk: &mut Chunk, cx: &Context<'_, FlowTables>) {
        let all_normal = self.has_switch && cx.tables.is_standalone();
        for row in 0..chunk.len() {
            let verdict = chunk.rows.verdicts()[row];
            if !Verdict(verdict).is_next() {
                continue;
            }
            let packet = &chunk.packets[row];
            let (port, arrival_ns) = (packet.port, cx.arrival_ns(packet));
            if packet.mark & MARK_FROM_HOST != 0 {
                chunk.rows.verdicts()[row] = Verdict::forward(port).0;
                continue;
            }
            if packet.mark & MARK_OUT != 0 {
                self.send_out(chunk, row);
                continue;
            }
            if all_normal || packet.mark & MARK_NORMAL != 0 {
                self.counters.to_normal.add(1);
                continue;
            }
            let path = self.shade.as_ref().map(|_| KeyColumns::view(&mut chunk.rows).path(row));
            let (packet, number) = (CellFrame(chunk.take(row)), self.ports.number(port));
            match path {
                Some(path) => self.pipeline.push_known(row, packet, number, arrival_ns, path),
                None => self.pipeline.push(row, packet, number, arrival_ns),
            }
        }
    }

    /// A packet of a controller waits in its queue, or goes by its port.
    fn send_out(&mut self, chunk: &mut Chunk, row: usize) {
        let mut packet = chunk.take(row);
        let (port, queue) = (packet.port, (packet.mark & MARK_QUEUE) as usize);
        packet.mark &= !(MARK_OUT | MARK_QUEUE);
        let mut share = if self.shapes() { self.shares.back_mut() } else { None };
        let queue = queue.checked_sub(1).filter(|_| share.is_some());
        let len = packet.frame_len();
        let (how, verdict) = match queue {
            Some(queue) => (How::Queue(queue, packet), Verdict::TAKEN),
            None => {
                chunk.packets[row] = packet;
                (How::Passes(len), Verdict::forward(port))
            }
        };
        if let Some(share) = &mut share {
            share.packets.push(Shaped { row, port, how });
        }
        chunk.rows.verdicts()[row] = verdict.0;
    }

    fn count(&mut self) {
        let tables = self.counters.tables.iter().zip(&mut self.counted);
        for ((counters, counted), now) in tables.zip(self.pipeline.lookups()) {
            if now.looked_up > counted.looked_up {
                counters[0].add(now.looked_up - counted.looked_up);
                counters[1].add(now.matched - counted.matched);
                *counted = *now;
            }
        }
    }
}

impl Stage<FlowTables> for OpenFlow {
    fn name(&self) -> &'static str {
        self.name
    }

    fn phases(&self) -> Phases {
        if self.shade.is_some() { Phases::BOTH } else { Phases::POST }
    }

    fn columns(&self) -> &'static [Declaration] {
        if self.shade.is_some() { &[KeyColumns::COLUMNS] } else { &[] }
    }

    fn reads(&self) -> ColumnSet {
        if self.shade.is_some() { shade::reads() } else { ColumnSet::EMPTY }
    }

    fn writes(&self) -> ColumnSet {
        if self.shade.is_some() { shade::writes() } else { ColumnSet::EMPTY }
    }

    fn shader(&self) -> Option<Arc<dyn Shade<FlowTables>>> {
        self.shade.clone().map(|shade| shade as _)
    }

    /// It takes the packets, and those that it leaves have changed.
    fn ends_segment(&self) -> bool {
        self.shade.is_some()
    }

    fn reads_packets(&self) -> bool {
        self.shade.is_some()
    }

    fn pre_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, FlowTables>) {
        if self.shade.is_none() {
            return;
        }
        let all_normal = self.has_switch && cx.tables.is_standalone();
        let Chunk { packets, rows, .. } = chunk;
        let mut view = KeyColumns::view(rows);
        for (row, packet) in packets.iter().enumerate() {
            let is_next = Verdict(view.verdict[row]).is_next();
            match is_next && is_for_tables(packet, all_normal) {
                true => shade::put(&mut view, row, packet, self.ports.number(packet.port)),
                false => view.leave(row),
            }
        }
    }

    fn changes_packets(&self) -> bool {
        true
    }

    fn drop_reasons(&self) -> &'static [&'static ReasonBlock] {
        super::REASONS
    }

    fn needs_one_worker(&self, tables: &FlowTables) -> Option<&'static str> {
        if tables.has_meters() {
            return Some("meters measure the packets of all workers together");
        }
        if !self.shaper.is_idle() {
            return Some("queues measure the packets of all workers together");
        }
        let leaves = tables.flows().any(|flow| flow.idle_timeout > 0 || flow.hard_timeout > 0);
        leaves.then_some("flows leave by the time of packets, which workers share")
    }

    fn post_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, FlowTables>) {
        self.is_live = cx.is_live();
        if self.shapes() {
            self.share(chunk.seq, chunk.packets.iter().map(|packet| cx.arrival_ns(packet)));
        }
        match self.shade.is_some() || self.shapes() {
            true => self.push_all(chunk, cx),
            false => self.settle(chunk, cx),
        }
        if self.pipeline.is_empty() {
            return self.count();
        }
        let Chunk { packets, rows, emitted, .. } = chunk;
        let mut out = Out {
            packets,
            verdicts: rows.verdicts(),
            emitted,
            pool: &mut *cx.pool,
            counters: &self.counters,
            controllers: self.controllers.as_ref(),
            ports: self.ports,
            has_switch: self.has_switch,
            now_ns: cx.now_ns,
            refused: None,
            shaper: &self.shaper,
            share: self.shares.back_mut(),
        };
        self.pipeline.run(cx.tables, &mut out, &mut ());
        self.count();
    }

    fn sees_retired(&self) -> bool {
        self.shapes()
    }

    /// Packets of the chunk go into their queues.
    fn retired(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, FlowTables>) {
        // One that a panic ended may have none.
        while self.shares.front().is_some_and(|share| share.seq <= chunk.seq)
            && let Some(mut share) = self.shares.pop_front()
        {
            self.shape(&mut share, &mut chunk.emitted, cx);
            self.unused.push(share);
        }
    }

    fn tick(&mut self, cx: &mut Context<'_, FlowTables>) {
        self.is_live = cx.is_live();
        // Over captures what leaves has its place among the packets that come.
        if self.is_live {
            let now_ns = cx.now_ns;
            self.shaper.leave(now_ns, |port, packet, _| cx.release(packet, Verdict::forward(port)));
        }
    }

    fn next_tick_ns(&self) -> Option<u64> {
        if self.is_live { self.shaper.next_ns() } else { None }
    }

    fn held(&self) -> usize {
        let is_queued = |own: &&Shaped| matches!(own.how, How::Queue(..));
        let of = |share: &Share| share.packets.iter().filter(is_queued).count();
        self.shaper.len() + self.shares.iter().map(of).sum::<usize>()
    }

    fn drain(&mut self, cx: &mut Context<'_, FlowTables>) {
        for (_, packet) in self.shaper.drain() {
            cx.drop_packet(packet, reasons::QUEUE_END);
        }
        // Where a panic has ended everything, chunks that never retired.
        for own in self.shares.drain(..).flat_map(|share| share.packets) {
            if let How::Queue(_, packet) = own.how {
                cx.drop_packet(packet, reasons::QUEUE_END);
            }
        }
    }

    /// What waits in queues goes on waiting.
    fn inherit(&mut self, before: &mut dyn Stage<FlowTables>) {
        let before = before.as_any().and_then(|before| before.downcast_mut::<Self>());
        if let Some(before) = before {
            std::mem::swap(&mut self.shaper, &mut before.shaper);
        }
    }

    fn as_any(&mut self) -> Option<&mut dyn std::any::Any> {
        Some(self)
    }
}

impl Out<'_> {
    /// A frame goes on to the stages of a switch: it takes the place of its packet, once.
    fn normal(&mut self, row: usize, frame: CellFrame) {
        let (packet, verdict) = (&mut self.packets[row], Verdict(self.verdicts[row]));
        if !packet.is_empty() {
            if verdict.is_next() {
                self.counters.copies_lost.add(1);
                return frame.0.free(self.pool);
            }
            self.counters.copies.add(1);
            let packet = std::mem::replace(packet, frame.0);
            self.emitted.push(Emitted { cause: row as u16, verdict, packet });
        } else {
            *packet = frame.0;
        }
        self.counters.to_normal.add(1);
        self.verdicts[row] = Verdict::NEXT.0;
    }
}

/// Where frames go: the first of a row takes its place in the chunk, others are emitted.
struct Out<'a> {
    packets: &'a mut [Packet],
    verdicts: &'a mut [u32],
    emitted: &'a mut Vec<Emitted>,
    pool: &'a mut Pool,
    counters: &'a Counters,
    controllers: Option<&'a ToControl>,
    ports: PortNumbers,
    has_switch: bool,
    now_ns: u64,
    /// A frame of the row at hand that was sent to where nothing is, and why that goes nowhere.
    refused: Option<(CellFrame, DropReason)>,
    shaper: &'a Shaper<Packet>,
    /// `None`: no port has queues.
    share: Option<&'a mut Share>,
}

impl Egress for Out<'_> {
    type Frame = CellFrame;

    fn copy(&mut self, frame: &CellFrame) -> Option<CellFrame> {
        let copy = frame.0.duplicate(self.pool).map(CellFrame);
        if copy.is_none() {
            self.counters.copies_lost.add(1);
        }
        copy
    }

    fn send(&mut self, row: usize, frame: CellFrame, to: &Sent) {
        let refused = match to.port {
            PortNo::CONTROLLER => {
                // Of a frame in several cells the first one has what a controller looks at.
                let packet = || ForController::of(frame.0.data(), to);
                let offered = self.controllers.map(|own| own.offer(self.now_ns, packet));
                let reason = match offered {
                    Some(Offered::Taken) => {
                        self.counters.to_controller.add(1);
                        reasons::TO_CONTROLLER
                    }
                    Some(Offered::TooFast) => {
                        self.counters.controller_rate.add(1);
                        reasons::CONTROLLER_RATE
                    }
                    Some(Offered::Nobody) | None => reasons::NO_CONTROLLER,
                };
                match to.controller.map(|told| told.reason) {
                    // The controllers are told where they want to be; no flow has sent it there.
                    Some(InReason::InvalidTtl) => reasons::FLOW_TTL,
                    _ => reason,
                }
            }
            PortNo::NORMAL if self.has_switch => return self.normal(row, frame),
            number => match self.ports.port(number) {
                Some(port) => {
                    if let Some(share) = &mut self.share {
                        if let Some(queue) = self.shaper.queue(port, to.queue) {
                            let how = How::Queue(queue, frame.0);
                            share.packets.push(Shaped { row, port, how });
                            if self.packets[row].is_empty() {
                                self.verdicts[row] = Verdict::TAKEN.0;
                            }
                            return;
                        }
                        let how = How::Passes(frame.0.frame_len());
                        share.packets.push(Shaped { row, port, how });
                    }
                    let verdict = Verdict::forward(port);
                    if self.packets[row].is_empty() {
                        self.packets[row] = frame.0;
                        self.verdicts[row] = verdict.0;
                    } else {
                        self.counters.copies.add(1);
                        let packet = frame.0;
                        self.emitted.push(Emitted { cause: row as u16, verdict, packet });
                    }
                    return;
                }
                None => reasons::FLOW_NORMAL,
            },
        };
        match self.refused {
            None => self.refused = Some((frame, refused)),
            Some(_) => self.free(frame),
        }
    }

    fn done(&mut self, row: usize, frame: Option<CellFrame>, why: Option<Dropped>) {
        let (refused, because) = self.refused.take().unzip();
        let mut frames = frame.into_iter().chain(refused);
        if self.packets[row].is_empty()
            && self.verdicts[row] != Verdict::TAKEN.0
            && let Some(frame) = frames.next()
        {
            let reason = because.unwrap_or(match why.unwrap_or(Dropped::Actions) {
                Dropped::Miss => reasons::FLOW_MISS,
                Dropped::Actions => reasons::FLOW_DROP,
                Dropped::Meter => reasons::FLOW_METER,
                Dropped::Ttl => reasons::FLOW_TTL,
                Dropped::NoRoom => reasons::FLOW_NO_ROOM,
                Dropped::Port => reasons::FLOW_PORT,
                Dropped::Group => reasons::FLOW_GROUP,
            });
            self.packets[row] = frame.0;
            self.verdicts[row] = Verdict::drop(reason).0;
        }
        frames.for_each(|frame| frame.0.free(self.pool));
    }

    fn free(&mut self, frame: CellFrame) {
        frame.0.free(self.pool);
    }
}
