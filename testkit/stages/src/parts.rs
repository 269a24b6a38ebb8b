//! Stages that make packets go round, wait, multiply, and panic.
//!
//! | stage | what it does |
//! | --- | --- |
//! | [`Plain`] | writes a column on the CPU or a device, and ends its segment |
//! | [`Stamp`] | writes what [`Sum`](crate::Sum) found into the packet |
//! | [`Age`] | looks whether the tables are one version throughout a chunk, on the device too |
//! | [`Sift`] | drops a quarter of the flows, in its shade |
//! | [`Key`] | sets contexts by the flow, in one of its steps |
//! | [`Steps`] | writes a column in each of its steps, from what it wrote in the one before, and sets contexts |
//! | [`Show`] | writes what [`Steps`] made into the packet |
//! | [`Touchy`] | panics |
//! | [`Named`] | a place that packets are sent to |
//! | [`Turn`] | sends packets again, hands them over, emits copies, dumps |
//! | [`Hold`] | holds packets until a tick |
//! | [`Spray`] | emits copies |
//! | [`Divert`] | dumps, drops, and sends to missing ports |
//! | [`Ask`] | emits copies that leave only if the gate lets them |
//! | [`Out`] | sends every packet to a port by its flow |
//! | [`Ending`] | another stage, behind which a segment ends |
//! | [`Meddler`] | writes a column that it did not declare |
//!
//! A packet's first byte is its flow. Stages that act once on a packet say so in its mark.

use std::sync::{Arc, Mutex, PoisonError};

use chunk::{Chunk, ColumnSet, Columns, Declaration, Packet, ReasonBlock, Rows, Verdict};
use engine::{Context, KernelForm, MARK_DEFERRED, Parameter, Phases, Shade, Spread, Stage, Step};

pub use crate::contexts::{Key, Show, Steps};
use crate::harness::flow_hash;
use crate::{TestColumns, fill_flows, reasons};

/// Set in the mark of a packet that [`Turn`] has sent elsewhere.
pub const TURNED: u32 = 1;
/// Set in the mark of a packet that [`Hold`] has held.
pub const HELD: u32 = 2;
/// Set in the time stamp of a copy by [`Turn`].
pub const COPY_OF_TURN: u64 = 1 << 63;
/// Set in the time stamp of a copy by [`Spray`].
pub const COPY_OF_SPRAY: u64 = 1 << 62;

/// Set in the time stamp of a copy by [`Ask`].
pub const COPY_OF_ASK: u64 = 1 << 61;

/// The flow of a packet.
pub fn flow_of(packet: &Packet) -> u8 {
    packet.data().first().copied().unwrap_or(0)
}

/// Rows whose verdict is still next.
pub(crate) fn next_rows(chunk: &mut Chunk) -> impl Iterator<Item = usize> + use<> {
    let verdicts: Vec<u32> = chunk.rows.verdicts().to_vec();
    (0..verdicts.len()).filter(move |row| Verdict(verdicts[*row]).is_next())
}

/// A stage without state that ends its segment.
pub struct Plain;

impl Stage<u64> for Plain {
    fn name(&self) -> &'static str {
        "plain"
    }
    fn columns(&self) -> &'static [Declaration] {
        &[TestColumns::COLUMNS]
    }
    fn reads(&self) -> ColumnSet {
        ColumnSet::of(&[TestColumns::SLOT])
    }
    fn writes(&self) -> ColumnSet {
        ColumnSet::of(&[TestColumns::SUM])
    }
    fn ends_segment(&self) -> bool {
        true
    }
    fn phases(&self) -> Phases {
        Phases::PRE
    }
    fn pre_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, u64>) {
        fill_flows(chunk);
    }
    fn shader(&self) -> Option<Arc<dyn Shade<u64>>> {
        Some(Arc::new(Plain))
    }
}

impl Shade<u64> for Plain {
    fn shade(&self, rows: &mut Rows, _: &u64) {
        let view = TestColumns::view(rows);
        view.sum.iter_mut().zip(view.slot).for_each(|(plain, flow)| *plain = *flow + 1);
    }
    fn kernels(&self) -> Option<KernelForm> {
        Some(KernelForm {
            text: "
                KERNEL(test_plain)
                {
                    if (GLOBAL_ID < job_rows(arena)) {
                        const uint row = JOB_FIRST(arena) + GLOBAL_ID;
                        COL_SUM(arena)[row] = COL_SLOT(arena)[row] + 1u;
                    }
                }"
            .into(),
            steps: vec![Step::rows("test_plain", 64).into()],
            ..KernelForm::default()
        })
    }
}

/// Writes the column `sum` into bytes 8 to 11, where there are so many.
pub struct Stamp;

impl Stage<u64> for Stamp {
    fn name(&self) -> &'static str {
        "stamp"
    }
    fn columns(&self) -> &'static [Declaration] {
        &[TestColumns::COLUMNS]
    }
    fn phases(&self) -> Phases {
        Phases::POST
    }
    fn post_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, u64>) {
        for row in next_rows(chunk) {
            let sum = TestColumns::view(&mut chunk.rows).sum[row];
            if let Some(capacity) = chunk.packets[row].data_mut().get_mut(8..12) {
                capacity.copy_from_slice(&sum.to_be_bytes());
            }
        }
    }
}

/// Sees the tables in each of its steps. They must be one version, and no older than those of a chunk before.
pub struct Age {
    newest: u64,
    /// Where they were not.
    pub odd: Arc<Mutex<Vec<String>>>,
}

impl Age {
    /// It adds to `odd`.
    pub fn new(odd: Arc<Mutex<Vec<String>>>) -> Self {
        Self { newest: 0, odd }
    }

    fn tell(&self, what: impl FnOnce() -> String) {
        self.odd.lock().unwrap_or_else(PoisonError::into_inner).push(what());
    }
}

impl Stage<u64> for Age {
    fn name(&self) -> &'static str {
        "age"
    }
    fn columns(&self) -> &'static [Declaration] {
        &[TestColumns::COLUMNS]
    }
    fn writes(&self) -> ColumnSet {
        ColumnSet::of(&[TestColumns::AGE])
    }
    fn ends_segment(&self) -> bool {
        true
    }
    fn pre_shade(&mut self, _: &mut Chunk, cx: &mut Context<'_, u64>) {
        let (tables, version, newest) = (*cx.tables, cx.version, self.newest);
        if tables < newest || tables != version {
            self.tell(|| format!("tables {tables} as version {version} behind version {newest}"));
        }
        self.newest = tables;
    }
    fn shader(&self) -> Option<Arc<dyn Shade<u64>>> {
        struct Seen;
        impl Shade<u64> for Seen {
            fn shade(&self, rows: &mut Rows, tables: &u64) {
                let view = TestColumns::view(rows);
                for (verdict, age) in view.verdict.iter().zip(view.age) {
                    if Verdict(*verdict).is_next() {
                        *age = *tables as u32;
                    }
                }
            }
            fn kernels(&self) -> Option<KernelForm> {
                Some(KernelForm {
                    text: "
                        KERNEL(test_age)
                        {
                            const uint row = JOB_FIRST(arena) + GLOBAL_ID;
                            if (GLOBAL_ID < job_rows(arena) && IS_NEXT(COL_VERDICT(arena)[row]))
                                COL_AGE(arena)[row] = LOAD(table_region(tables, 0u).words);
                        }"
                    .into(),
                    steps: vec![Step::rows("test_age", 64).into()],
                    ..KernelForm::default()
                })
            }
        }
        Some(Arc::new(Seen))
    }
    fn post_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, u64>) {
        for row in next_rows(chunk) {
            let age = TestColumns::view(&mut chunk.rows).age[row];
            if age != *cx.tables as u32 {
                let (seq, home) = (chunk.seq, cx.home);
                self.tell(|| {
                    format!("chunk {seq}, row {row}: {age}, not {}; {home:?}", *cx.tables)
                });
            }
        }
    }
}

/// Drops the flows 1, 5, 9 and so on, in its shade.
pub struct Sift;

impl Sift {
    /// Whether it drops a flow.
    pub fn drops(flow: u8) -> bool {
        flow & 3 == 1
    }
}

impl Stage<u64> for Sift {
    fn name(&self) -> &'static str {
        "sift"
    }
    fn columns(&self) -> &'static [Declaration] {
        &[TestColumns::COLUMNS]
    }
    fn drop_reasons(&self) -> &'static [&'static ReasonBlock] {
        &[reasons::BLOCK]
    }
    fn reads(&self) -> ColumnSet {
        ColumnSet::of(&[TestColumns::SLOT])
    }
    fn phases(&self) -> Phases {
        Phases::PRE
    }
    fn pre_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, u64>) {
        fill_flows(chunk);
    }
    fn shader(&self) -> Option<Arc<dyn Shade<u64>>> {
        Some(Arc::new(Sift))
    }
}

impl Shade<u64> for Sift {
    fn shade(&self, rows: &mut Rows, _: &u64) {
        let view = TestColumns::view(rows);
        for (verdict, slot) in view.verdict.iter_mut().zip(view.slot) {
            if Verdict(*verdict).is_next() && Sift::drops(*slot as u8) {
                *verdict = Verdict::drop(reasons::TEST).0;
            }
        }
    }
    fn kernels(&self) -> Option<KernelForm> {
        Some(KernelForm {
            text: "
                KERNEL(test_sift)
                {
                    const uint row = JOB_FIRST(arena) + GLOBAL_ID;
                    if (GLOBAL_ID < job_rows(arena) && IS_NEXT(COL_VERDICT(arena)[row]))
                        if ((COL_SLOT(arena)[row] & 3u) == 1u)
                            COL_VERDICT(arena)[row] = DROPPED;
                }"
            .into(),
            parameters: vec![("DROPPED".into(), Parameter::U32(Verdict::drop(reasons::TEST).0))],
            steps: vec![Step::rows("test_sift", 64).into()],
            ..KernelForm::default()
        })
    }
}

/// In which step a stage panics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum At {
    /// In none.
    Never,
    /// `pre_shade`.
    Pre,
    /// `shade`.
    Shade,
    /// `post_shade`.
    Post,
    /// `tick`.
    Tick,
}

/// Panics over packets of a flow whose time stamp is a multiple, in one of its steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Touchy {
    /// The step.
    pub at: At,
    /// The flow.
    pub flow: u8,
    /// The time stamp is a multiple of this, which is not 0.
    pub every: u64,
}

impl Touchy {
    /// One that panics over packets of flow 13, whatever their time.
    pub fn new(at: At) -> Self {
        Self { at, flow: 13, every: 1 }
    }

    fn check(self, at: At, packet: &Packet) {
        let strikes = flow_of(packet) == self.flow && packet.time_ns.is_multiple_of(self.every);
        assert!(self.at != at || packet.is_empty() || !strikes, "flow {}, as planned", self.flow);
    }
}

impl Stage<u64> for Touchy {
    fn name(&self) -> &'static str {
        "touchy"
    }
    fn columns(&self) -> &'static [Declaration] {
        &[TestColumns::COLUMNS]
    }
    fn pre_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, u64>) {
        for (row, packet) in chunk.packets.iter().enumerate() {
            cx.at(row);
            self.check(At::Pre, packet);
        }
    }
    fn shader(&self) -> Option<Arc<dyn Shade<u64>>> {
        Some(Arc::new(*self))
    }
    fn post_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, u64>) {
        for (row, packet) in chunk.packets.iter().enumerate() {
            cx.at(row);
            self.check(At::Post, packet);
        }
    }
    fn tick(&mut self, _: &mut Context<'_, u64>) {
        assert!(self.at != At::Tick, "a tick, as planned");
    }
}

impl Shade<u64> for Touchy {
    fn shade(&self, _: &mut Rows, _: &u64) {}
    fn shade_packets(&self, _: &mut Rows, packets: &mut [Packet], _: &u64) {
        packets.iter().for_each(|packet| self.check(At::Shade, packet));
    }
}

/// A place.
pub struct Named(pub &'static str);

impl Stage<u64> for Named {
    fn name(&self) -> &'static str {
        self.0
    }
    fn columns(&self) -> &'static [Declaration] {
        &[TestColumns::COLUMNS]
    }
    fn phases(&self) -> Phases {
        Phases::NONE
    }
}

/// Sends packets elsewhere by their flow, modulo 16, once each: 0 again from `first`; 2 to the worker of another flow,
/// from `last`; 4 to the sink of dumps, a copy of them again from `last`; 6 again from `first` without end; 8 again
/// from `last`.
pub struct Turn;

impl Turn {
    /// Where it sends packets.
    pub const FIRST: &'static str = "first";
    /// The same.
    pub const LAST: &'static str = "last";

    /// The flow of what was flow `flow` before it was handed over.
    pub fn handed(flow: u8) -> u8 {
        flow ^ 0x80
    }
}

impl Stage<u64> for Turn {
    fn name(&self) -> &'static str {
        "turn"
    }
    fn columns(&self) -> &'static [Declaration] {
        &[TestColumns::COLUMNS]
    }
    fn sends_to(&self) -> &'static [&'static str] {
        &[Turn::FIRST, Turn::LAST]
    }
    fn phases(&self) -> Phases {
        Phases::POST
    }
    fn post_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, u64>) {
        let [first, last] =
            [Turn::FIRST, Turn::LAST].map(|name| cx.place(name).unwrap_or(u16::MAX));
        for row in next_rows(chunk) {
            let packet = &mut chunk.packets[row];
            let flow = flow_of(packet);
            if packet.mark & TURNED != 0 && flow & 15 != 6 {
                continue;
            }
            packet.mark |= TURNED;
            chunk.rows.verdicts()[row] = match flow & 15 {
                0 => Verdict::again(first),
                2 => {
                    let mut packet = chunk.take(row);
                    packet.data_mut()[0] = Turn::handed(flow);
                    cx.hand_over(packet, Some(row), flow_hash(&[Turn::handed(flow)]), last);
                    Verdict::TAKEN
                }
                4 => {
                    // Where cells are short there is no copy.
                    if let Some(mut copy) = packet.duplicate(cx.pool) {
                        copy.time_ns |= COPY_OF_TURN;
                        chunk.emit(row, Verdict::again(last), copy);
                    }
                    Verdict::DUMP
                }
                6 => Verdict::again(first),
                8 => Verdict::again(last),
                _ => Verdict::NEXT,
            }
            .0;
        }
    }
}

/// Holds packets of flows that are 7 modulo 8 until the next tick, and sends them to port 0; those that the end finds
/// here are dropped.
#[derive(Default)]
pub struct Hold(Vec<Packet>);

impl Hold {
    /// Whether it holds packets of a flow.
    pub fn holds(flow: u8) -> bool {
        flow & 7 == 7
    }
}

impl Stage<u64> for Hold {
    fn name(&self) -> &'static str {
        "hold"
    }
    fn columns(&self) -> &'static [Declaration] {
        &[TestColumns::COLUMNS]
    }
    fn drop_reasons(&self) -> &'static [&'static ReasonBlock] {
        &[reasons::BLOCK]
    }
    fn phases(&self) -> Phases {
        Phases::POST
    }
    fn post_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, u64>) {
        for row in next_rows(chunk) {
            let packet = &mut chunk.packets[row];
            if Hold::holds(flow_of(packet)) && packet.mark & HELD == 0 {
                packet.mark |= HELD;
                self.0.push(chunk.take(row));
                chunk.rows.verdicts()[row] = Verdict::TAKEN.0;
            }
        }
    }
    fn tick(&mut self, cx: &mut Context<'_, u64>) {
        self.0.drain(..).for_each(|packet| cx.release(packet, Verdict::forward(0)));
    }
    fn held(&self) -> usize {
        self.0.len()
    }
    fn drain(&mut self, cx: &mut Context<'_, u64>) {
        self.0.drain(..).for_each(|packet| cx.drop_packet(packet, reasons::TEST));
    }
}

/// Emits a copy of each packet whose time stamp is a multiple of 16, for port 0.
pub struct Spray;

impl Stage<u64> for Spray {
    fn name(&self) -> &'static str {
        "spray"
    }
    fn columns(&self) -> &'static [Declaration] {
        &[TestColumns::COLUMNS]
    }
    fn phases(&self) -> Phases {
        Phases::POST
    }
    fn post_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, u64>) {
        for row in next_rows(chunk) {
            if chunk.packets[row].time_ns.is_multiple_of(16)
                && let Some(mut copy) = chunk.packets[row].duplicate(cx.pool)
            {
                copy.time_ns |= COPY_OF_SPRAY;
                chunk.emit(row, Verdict::forward(0), copy);
            }
        }
    }
}

/// Gives packets odd verdicts by their flow, modulo 32: 3 to the sink of dumps, 11 to a twin that there is not, 19 to a
/// port that there is not, 27 dropped.
pub struct Divert;

impl Divert {
    /// A port that does not exist.
    const NO_PORT: u16 = 999;

    /// The verdict on a flow.
    pub fn verdict(flow: u8) -> Verdict {
        match flow & 31 {
            3 => Verdict::DUMP,
            11 => Verdict::host(0),
            19 => Verdict::forward(Divert::NO_PORT),
            27 => Verdict::drop(reasons::TEST),
            _ => Verdict::NEXT,
        }
    }
}

impl Stage<u64> for Divert {
    fn name(&self) -> &'static str {
        "divert"
    }
    fn columns(&self) -> &'static [Declaration] {
        &[TestColumns::COLUMNS]
    }
    fn drop_reasons(&self) -> &'static [&'static ReasonBlock] {
        &[reasons::BLOCK]
    }
    fn phases(&self) -> Phases {
        Phases::POST
    }
    fn post_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, u64>) {
        for row in next_rows(chunk) {
            let flow = flow_of(&chunk.packets[row]);
            chunk.rows.verdicts()[row] = Divert::verdict(flow).0;
        }
    }
}

/// Emits a copy of each packet of the flows 2, 6, 10 and so on, for the port of its flow, which leaves only if the
/// [`engine::Gate`] lets it. Of the flows 6, 22, 38 and so on it emits an empty packet instead.
pub struct Ask {
    /// How many ports there are.
    pub ports: u16,
}

impl Ask {
    /// Whether it asks about packets of a flow.
    pub fn asks(flow: u8) -> bool {
        flow & 3 == 2
    }

    /// Whether it has nothing to send then.
    pub fn is_empty(flow: u8) -> bool {
        flow & 15 == 6
    }
}

impl Stage<u64> for Ask {
    fn name(&self) -> &'static str {
        "ask"
    }
    fn columns(&self) -> &'static [Declaration] {
        &[TestColumns::COLUMNS]
    }
    fn phases(&self) -> Phases {
        Phases::POST
    }
    fn post_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, u64>) {
        for row in next_rows(chunk) {
            let packet = &chunk.packets[row];
            let flow = flow_of(packet);
            if !Ask::asks(flow) {
                continue;
            }
            let mut copy = match Ask::is_empty(flow) {
                true => Packet::empty(),
                false => packet.duplicate(cx.pool).unwrap_or(Packet::empty()),
            };
            copy.time_ns = packet.time_ns | COPY_OF_ASK;
            copy.mark = MARK_DEFERRED;
            chunk.emit(row, Verdict::forward(u16::from(flow) % self.ports.max(1)), copy);
        }
    }
}

/// Sends every packet to the port that is its flow modulo their number.
pub struct Out {
    /// How many ports there are.
    pub ports: u16,
}

impl Stage<u64> for Out {
    fn name(&self) -> &'static str {
        "out"
    }
    fn columns(&self) -> &'static [Declaration] {
        &[TestColumns::COLUMNS]
    }
    fn phases(&self) -> Phases {
        Phases::POST
    }
    fn post_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, u64>) {
        for row in next_rows(chunk) {
            let port = u16::from(flow_of(&chunk.packets[row])) % self.ports.max(1);
            chunk.rows.verdicts()[row] = Verdict::forward(port).0;
        }
    }
}

/// Another stage, behind which a segment ends.
pub struct Ending(pub Box<dyn Stage<u64>>);

impl Stage<u64> for Ending {
    fn name(&self) -> &'static str {
        self.0.name()
    }
    fn columns(&self) -> &'static [Declaration] {
        self.0.columns()
    }
    fn drop_reasons(&self) -> &'static [&'static ReasonBlock] {
        self.0.drop_reasons()
    }
    fn reads(&self) -> ColumnSet {
        self.0.reads()
    }
    fn writes(&self) -> ColumnSet {
        self.0.writes()
    }
    fn zeroed(&self) -> ColumnSet {
        self.0.zeroed()
    }
    fn sets_context(&self) -> Phases {
        self.0.sets_context()
    }
    fn ends_segment(&self) -> bool {
        true
    }
    fn phases(&self) -> Phases {
        self.0.phases()
    }
    fn spread(&self) -> Spread {
        self.0.spread()
    }
    fn pre_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, u64>) {
        self.0.pre_shade(chunk, cx);
    }
    fn shader(&self) -> Option<Arc<dyn Shade<u64>>> {
        self.0.shader()
    }
    fn next_sweep_ns(&self) -> Option<u64> {
        self.0.next_sweep_ns()
    }
    fn sweep(&mut self, rows: &mut Rows, cx: &mut Context<'_, u64>) -> usize {
        self.0.sweep(rows, cx)
    }
    fn post_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, u64>) {
        self.0.post_shade(chunk, cx);
    }
}

/// Keeps by flow the numbers, bytes 4 to 7, of the packets that it sees.
pub struct Witness {
    /// Its name.
    pub name: &'static str,
    /// By flow.
    pub seen: Arc<Mutex<Vec<Vec<u32>>>>,
}

impl Stage<u64> for Witness {
    fn name(&self) -> &'static str {
        self.name
    }
    fn columns(&self) -> &'static [Declaration] {
        &[TestColumns::COLUMNS]
    }
    fn phases(&self) -> Phases {
        Phases::PRE
    }
    fn pre_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, u64>) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        for row in next_rows(chunk) {
            let packet = &chunk.packets[row];
            let number = packet.data().get(4..8).and_then(|bytes| bytes.try_into().ok());
            if let (Some(number), Some(seen)) = (number, seen.get_mut(usize::from(flow_of(packet))))
            {
                seen.push(u32::from_be_bytes(number));
            }
        }
    }
}

/// Writes the column `sum` in one of its steps, though it did not say so.
#[derive(Clone, Copy, Debug)]
pub struct Meddler(pub At);

impl Stage<u64> for Meddler {
    fn name(&self) -> &'static str {
        "meddler"
    }
    fn pre_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, u64>) {
        self.meddle(At::Pre, &mut chunk.rows);
    }
    fn shader(&self) -> Option<Arc<dyn Shade<u64>>> {
        Some(Arc::new(*self))
    }
    fn post_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, u64>) {
        self.meddle(At::Post, &mut chunk.rows);
    }
}

impl Meddler {
    fn meddle(self, at: At, rows: &mut Rows) {
        if self.0 == at {
            TestColumns::view(rows).sum.iter_mut().for_each(|sum| *sum = !*sum);
        }
    }
}

impl Shade<u64> for Meddler {
    fn shade(&self, rows: &mut Rows, _: &u64) {
        self.meddle(At::Shade, rows);
    }
}
