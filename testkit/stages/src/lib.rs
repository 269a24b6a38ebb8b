//! Stages that only tests have, and the [`harness`] that runs stages on workers and devices.
//!
//! These prove what no shipped stage needs yet: that payload stays on the device from stage to stage, that it comes
//! back changed, and that state has one home. Those of [`parts`] make packets go round, wait, multiply and panic;
//! [`brittle::Brittle`] makes any of them panic. A [`soak`] puts all of them together at random.
//!
//! | stage | reads | writes | |
//! | --- | --- | --- | --- |
//! | [`Sum`] | payload | `sum` | the sum of a packet's bytes |
//! | [`Xor`] | payload, `key` | payload | each byte exclusive-or the packet's key |
//! | [`HostXor`] | payload, `key` | payload | the same without kernels |
//! | [`Count`] | `slot` | `count` or `also_count`, state | packets of each flow |
//! | [`Flows`] | flows' slots | the flow's record, state | an order-sensitive sum of each flow, in state that grows |
//! | [`Find`] | payload, `slot` | `found`, `also_found`, records | where small bytes are |
//!
//! A packet's first byte names its flow and stays as it is; [`Deliver`] sends every packet to port 0.
//! Tables are a number, so that versions change.
#![forbid(unsafe_code)]

pub mod brittle;
mod contexts;
mod flows;
pub mod harness;
pub mod parts;
pub mod reasons;
pub mod soak;

pub use flows::{FlowColumns, FlowView, Flows, Record, flow_and_value};

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use chunk::{Chunk, ColumnSet, Columns, Declaration, Packet, Rows, Verdict};
use device::accelerator::PayloadUse;
use engine::{
    Context, KernelForm, KernelStep, OutputForm, Parameter, Phases, Records, ScheduleForm, Scratch,
    Shade, SortKey, Stage, StateForm, Step,
};

chunk::columns! {
    /// What the stages need.
    pub struct TestColumns / TestView {
        /// Byte offset of the frame in the payload.
        pub payload_at: u32,
        /// Its length in bytes.
        pub payload_len: u32,
        /// Key of [`Xor`].
        pub key: u32,
        /// Flow of [`Count`].
        pub slot: u32,
        /// What [`Sum`] found.
        pub sum: u32,
        /// Packets of the flow up to this one, by the first [`Count`]; 0 for one that it did not count.
        pub count: u32,
        /// The same by the second one.
        pub also_count: u32,
        /// Bytes that the first [`Find`] found.
        pub found: u32,
        /// Bytes that the second one found.
        pub also_found: u32,
        /// What both [`Find`]s saw of the sorted rows, a bit each.
        pub ordered: u32,
        /// The tables' number that [`parts::Age`] saw.
        pub age: u32,
        /// What the first [`parts::Steps`] wrote in its pre-shade, its shade and its post-shade.
        pub begun: u32,
        /// The same.
        pub shaded: u32,
        /// The same.
        pub ended: u32,
        /// What the second one wrote.
        pub also_begun: u32,
        /// The same.
        pub also_shaded: u32,
        /// The same.
        pub also_ended: u32,
    }
}

/// Flows that are counted.
pub const SLOTS: usize = 256;

/// Flows by which the state of [`Count`] grows.
const STEP: usize = 64;

const PAYLOAD: PayloadUse =
    PayloadUse { at: TestColumns::PAYLOAD_AT, len: TestColumns::PAYLOAD_LEN, writes: false };

fn bytes_of(packet: &Packet) -> impl Iterator<Item = u8> + '_ {
    packet.segments().flat_map(|segment| segment.iter().copied())
}

/// Fills the columns that follow from a packet's first byte.
fn fill_flows(chunk: &mut Chunk) {
    let view = TestColumns::view(&mut chunk.rows);
    for (row, packet) in chunk.packets.iter().enumerate() {
        let flow = u32::from(packet.data().first().copied().unwrap_or(0));
        (view.key[row], view.slot[row]) = (flow | 1, flow);
    }
}

/// Sums payloads.
pub struct Sum;

impl Stage<u64> for Sum {
    fn name(&self) -> &'static str {
        "sum"
    }
    fn columns(&self) -> &'static [Declaration] {
        &[TestColumns::COLUMNS]
    }
    fn writes(&self) -> ColumnSet {
        ColumnSet::of(&[TestColumns::SUM])
    }
    fn pre_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, u64>) {
        fill_flows(chunk);
    }
    fn shader(&self) -> Option<Arc<dyn Shade<u64>>> {
        Some(Arc::new(Sum))
    }
}

impl Shade<u64> for Sum {
    fn shade(&self, _: &mut Rows, _: &u64) {}
    fn shade_packets(&self, rows: &mut Rows, packets: &mut [Packet], _: &u64) {
        let view = TestColumns::view(rows);
        for (row, packet) in packets.iter().enumerate() {
            if Verdict(view.verdict[row]).is_next() {
                view.sum[row] = bytes_of(packet).fold(0, |sum, byte| sum.wrapping_add(byte.into()));
            }
        }
    }
    fn kernels(&self) -> Option<KernelForm> {
        Some(KernelForm {
            text: "
                KERNEL(test_sum)
                {
                    const uint row = JOB_FIRST(arena) + GLOBAL_ID;
                    if (GLOBAL_ID < job_rows(arena) && IS_NEXT(COL_VERDICT(arena)[row])) {
                        GLOBAL const uchar *bytes = payload + COL_PAYLOAD_AT(arena)[row];
                        const uint len = COL_PAYLOAD_LEN(arena)[row];
                        uint sum = 0u;
                        for (uint i = 0u; i < len; i++)
                            sum += bytes[i];
                        COL_SUM(arena)[row] = sum;
                    }
                }"
            .into(),
            steps: vec![Step::rows("test_sum", 64).into()],
            is_trusted: true,
            payload: Some(PAYLOAD),
            ..KernelForm::default()
        })
    }
}

/// Rewrites payloads, all but the first byte.
pub struct Xor;

impl Stage<u64> for Xor {
    fn name(&self) -> &'static str {
        "xor"
    }
    fn columns(&self) -> &'static [Declaration] {
        &[TestColumns::COLUMNS]
    }

    fn phases(&self) -> Phases {
        Phases::PRE
    }
    fn pre_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, u64>) {
        fill_flows(chunk);
    }
    fn reads(&self) -> ColumnSet {
        ColumnSet::of(&[TestColumns::KEY])
    }
    fn shader(&self) -> Option<Arc<dyn Shade<u64>>> {
        Some(Arc::new(Xor))
    }
}

impl Shade<u64> for Xor {
    fn shade(&self, _: &mut Rows, _: &u64) {}
    fn shade_packets(&self, rows: &mut Rows, packets: &mut [Packet], _: &u64) {
        let view = TestColumns::view(rows);
        for (row, packet) in packets.iter_mut().enumerate() {
            if !Verdict(view.verdict[row]).is_next() {
                continue;
            }
            let key = view.key[row] as u8;
            let mut bytes: Vec<u8> = bytes_of(packet).collect();
            bytes.iter_mut().skip(1).for_each(|byte| *byte ^= key);
            packet.write_all(&bytes);
        }
    }
    fn kernels(&self) -> Option<KernelForm> {
        Some(KernelForm {
            text: "
                FN ulong OWN(xor_key)(GLOBAL uchar *arena, uint row)
                {
                    return COL_PAYLOAD_LEN(arena)[row] >> 4u & 63u;
                }
                KERNEL(test_xor)
                {
                    if (GLOBAL_ID >= job_rows(arena))
                        return;
                    const uint row = SCHEDULED(arena, GLOBAL_ID);
                    const uint before = SCHEDULED(arena, GLOBAL_ID > 0u ? GLOBAL_ID - 1u : 0u);
                    // In their order, or sorted with those of one key in their order; else the packet stays as it is.
                    const ulong key_before = OWN(xor_key)(arena, before), own_key = OWN(xor_key)(arena, row);
                    const uint fits = GLOBAL_ID == 0u || before + 1u == row || key_before < own_key
                        || (key_before == own_key && before < row);
                    if (fits && IS_NEXT(COL_VERDICT(arena)[row])) {
                        GLOBAL uchar *bytes = payload + COL_PAYLOAD_AT(arena)[row];
                        const uint len = COL_PAYLOAD_LEN(arena)[row];
                        const uchar key = (uchar)COL_KEY(arena)[row];
                        for (uint i = 1u; i < len; i++)
                            bytes[i] ^= key;
                    }
                }"
            .into(),
            steps: vec![KernelStep::Schedule, Step::rows("test_xor", 64).into()],
            schedule: Some(ScheduleForm { key: "xor_key".into(), bits: 6 }),
            is_trusted: true,
            payload: Some(PayloadUse { writes: true, ..PAYLOAD }),
            ..KernelForm::default()
        })
    }
}

/// [`Xor`] without its kernels.
pub struct HostXor;

impl Stage<u64> for HostXor {
    fn name(&self) -> &'static str {
        "host_xor"
    }
    fn columns(&self) -> &'static [Declaration] {
        &[TestColumns::COLUMNS]
    }
    fn phases(&self) -> Phases {
        Phases::PRE
    }
    fn pre_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, u64>) {
        fill_flows(chunk);
    }
    fn shader(&self) -> Option<Arc<dyn Shade<u64>>> {
        Some(Arc::new(HostXor))
    }
}

impl Shade<u64> for HostXor {
    fn shade(&self, _: &mut Rows, _: &u64) {}
    fn shade_packets(&self, rows: &mut Rows, packets: &mut [Packet], tables: &u64) {
        Xor.shade_packets(rows, packets, tables);
    }
}

/// Counts packets by flow, in a shard of its own. Two of them are two stages with state.
#[derive(Clone, Default)]
pub struct Count {
    /// The host's copy of the shard: packets of each flow.
    pub counts: Arc<Mutex<Vec<u32>>>,
    /// Which of two.
    second: bool,
    /// What a row costs the CPU more than it need.
    per_row: Duration,
}

impl Count {
    /// A shard in which nothing was counted.
    pub fn new() -> Self {
        Self { counts: Arc::new(Mutex::new(vec![0; SLOTS])), ..Self::default() }
    }

    /// The same of the second stage.
    pub fn second() -> Self {
        Self { second: true, ..Self::new() }
    }

    /// The same on a CPU that takes so long for each row.
    pub fn slow(per_row: Duration) -> Self {
        Self { per_row, ..Self::new() }
    }

    /// The packets counted, of all flows.
    pub fn sum(&self) -> u64 {
        self.with(|counts| counts.iter().map(|count| u64::from(*count)).sum())
    }

    /// The packets counted of a flow.
    pub fn of(&self, flow: u8) -> u64 {
        self.with(|counts| counts[usize::from(flow)].into())
    }

    fn with<R>(&self, change: impl FnOnce(&mut [u32]) -> R) -> R {
        change(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Stage<u64> for Count {
    fn name(&self) -> &'static str {
        if self.second { "count_more" } else { "count" }
    }
    fn columns(&self) -> &'static [Declaration] {
        &[TestColumns::COLUMNS]
    }

    fn phases(&self) -> Phases {
        Phases::PRE
    }
    fn pre_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, u64>) {
        fill_flows(chunk);
    }
    fn reads(&self) -> ColumnSet {
        ColumnSet::of(&[TestColumns::SLOT])
    }
    fn writes(&self) -> ColumnSet {
        let count = if self.second { TestColumns::ALSO_COUNT } else { TestColumns::COUNT };
        ColumnSet::of(&[count])
    }
    fn shader(&self) -> Option<Arc<dyn Shade<u64>>> {
        Some(Arc::new(self.clone()))
    }
}

impl Shade<u64> for Count {
    fn shade(&self, rows: &mut Rows, _: &u64) {
        let begin = Instant::now();
        let view = TestColumns::view(rows);
        while begin.elapsed() < self.per_row * view.slot.len() as u32 {
            std::hint::spin_loop();
        }
        let out = if self.second { view.also_count } else { view.count };
        self.with(|counts| {
            for ((slot, verdict), count) in view.slot.iter().zip(view.verdict).zip(out) {
                let slot = &mut counts[*slot as usize % SLOTS];
                let is_counted = Verdict(*verdict).is_next();
                *slot += u32::from(is_counted);
                *count = if is_counted { *slot } else { 0 };
            }
        });
    }
    fn kernels(&self) -> Option<KernelForm> {
        Some(KernelForm {
            // One work item walks the rows, so that those of a slot run in their order.
            text: "
                KERNEL(test_count)
                {
                    GLOBAL uint *out = SECOND != 0u ? COL_ALSO_COUNT(arena) : COL_COUNT(arena);
                    if (GLOBAL_ID == 0u)
                        for (uint i = 0u; i < job_rows(arena); i++) {
                            const uint row = JOB_FIRST(arena) + i, slot = COL_SLOT(arena)[row] & 255u;
                            uint now = 0u;
                            if (IS_NEXT(COL_VERDICT(arena)[row])) {
                                GLOBAL uint *count = (GLOBAL uint *)STATE_RECORD(arena, state, row, slot);
                                now = ++*count;
                            }
                            out[row] = now;
                        }
                }"
            .into(),
            parameters: vec![("SECOND".into(), Parameter::U32(self.second.into()))],
            steps: vec![Step::rows("test_count", 64).into()],
            state: Some(StateForm { record_bytes: 4, slots_per_step: STEP }),
            ..KernelForm::default()
        })
    }
    fn state_slots(&self) -> usize {
        SLOTS
    }
    fn state(&self, step: usize, bytes: &mut [u8]) {
        self.with(|counts| {
            for (to, count) in bytes.chunks_exact_mut(4).zip(&counts[step * STEP..]) {
                to.copy_from_slice(&count.to_le_bytes());
            }
        });
    }
    fn twin(&self) -> Option<Arc<dyn Shade<u64>>> {
        let second = self.second;
        Some(Arc::new(Count { second, ..Count::new() }))
    }
    fn set_state(&self, step: usize, bytes: &[u8]) {
        self.with(|counts| {
            for (count, from) in counts[step * STEP..].iter_mut().zip(bytes.chunks_exact(4)) {
                *count = from.iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte));
            }
        });
    }
    fn retired(&self, rows: &mut Rows, packets: &mut [Packet]) {
        assert_eq!(rows.len(), packets.len(), "a packet for each row");
        let view = TestColumns::view(rows);
        let out = if self.second { view.also_count } else { view.count };
        self.with(|counts| {
            for (slot, count) in view.slot.iter().zip(out).filter(|(_, count)| **count > 0) {
                counts[*slot as usize % SLOTS] = *count;
            }
        });
    }
}

/// Finds the bytes below a limit, and writes where they are as records of any length. Its kernels are of every shape: by
/// blocks, by rows, over a list, and a sort.
#[derive(Clone)]
pub struct Find {
    /// Which of two.
    second: bool,
    limit: u32,
    seed: u64,
    words_per_job: u32,
    /// The records, in no order: of each packet its flow and, for each byte that was found, its place made odd by the
    /// seed.
    pub records: Arc<Mutex<Vec<Vec<u32>>>>,
    /// Rows of a device of which the column says another number than the records.
    pub odd: Arc<Mutex<usize>>,
}

const FIND: &str = "
// Scratch, in words: for each row how many bytes were found; behind them the length of a list, and the list.
FN uint OWN(is_found)(uint byte)
{
    return byte < LIMIT;
}
FN GLOBAL uint *OWN(found)(GLOBAL uchar *arena)
{
    return WHICH == 0u ? COL_FOUND(arena) : COL_ALSO_FOUND(arena);
}
KERNEL(find_in_blocks)
{
    GLOBAL uint *words = (GLOBAL uint *)SCRATCH(arena);
    uint row = 0u, block = 0u;
    if (payload_block(COL_PAYLOAD_AT(arena), COL_PAYLOAD_LEN(arena), job_rows(arena), GLOBAL_ID, &row, &block)) {
        const uint at = COL_PAYLOAD_AT(arena)[row], len = COL_PAYLOAD_LEN(arena)[row];
        uint found = 0u;
        for (uint i = 16u * block; i < 16u * block + 16u && i < len; i++)
            found += OWN(is_found)(payload_byte(payload, at, len, i));
        uint seen = 0u;
        for (;;) {
            const uint was = ATOMIC_CAS(&words[row], seen, seen + found);
            if (was == seen)
                break;
            seen = was;
        }
    }
}
KERNEL(find_count)
{
    GLOBAL uint *words = (GLOBAL uint *)SCRATCH(arena);
    const uint rows = job_rows(arena), row = GLOBAL_ID;
    if (row < rows && IS_NEXT(COL_VERDICT(arena)[row])) {
        OWN(found)(arena)[row] = 0u;
        OUTPUT_COUNT(arena, row, words[row]);
        if (words[row] != 0u)
            words[rows + 1u + ATOMIC_ADD(&words[rows], 1u)] = row;
    }
}
KERNEL(find_listed)
{
    GLOBAL const uint *words = (GLOBAL const uint *)SCRATCH(arena);
    const uint rows = job_rows(arena);
    if (GLOBAL_ID < words[rows]) {
        const uint row = words[rows + 1u + GLOBAL_ID];
        OWN(found)(arena)[row] = words[row];
    }
}
KERNEL(find_write)
{
    const uint row = GLOBAL_ID;
    if (row < job_rows(arena) && IS_NEXT(COL_VERDICT(arena)[row])) {
        const uint at = COL_PAYLOAD_AT(arena)[row], len = COL_PAYLOAD_LEN(arena)[row];
        uint word = 0u;
        for (uint i = 0u; i < len; i++)
            if (OWN(is_found)(payload_byte(payload, at, len, i)))
                OUTPUT_WORD(arena, row, word++, i ^ (uint)(SEED >> 32));
    }
}
KERNEL(find_ordered)
{
    if (GLOBAL_ID < job_rows(arena)) {
        const uint row = SORTED(arena)[GLOBAL_ID], slot = COL_SLOT(arena)[row] & 255u;
        const uint before = GLOBAL_ID > 0u ? SORTED(arena)[GLOBAL_ID - 1u] : row;
        const uint slot_before = COL_SLOT(arena)[before] & 255u;
        const uint fits = GLOBAL_ID == 0u || slot_before < slot || (slot_before == slot && before < row);
        COL_ORDERED(arena)[row] = fits != 0u && (WHICH == 0u || COL_ORDERED(arena)[row] == 1u) ? WHICH + 1u : 7u;
    }
}
";

impl Find {
    /// The first of two, or the second, of bytes below `limit`, with room for so many records in a job.
    pub fn new(second: bool, limit: u32, words_per_job: u32) -> Self {
        let seed = 0x0001_2345_0000_0000 << u32::from(second);
        Self { second, limit, seed, words_per_job, records: Arc::default(), odd: Arc::default() }
    }

    /// The record of a frame; `None` for one in which nothing is found.
    pub fn record_of(&self, flow: u8, frame: &[u8]) -> Option<Vec<u32>> {
        let found = (0..).zip(frame).filter(|(_, byte)| u32::from(**byte) < self.limit);
        let places = found.map(|(i, _): (u32, _)| i ^ (self.seed >> 32) as u32);
        let record: Vec<u32> = std::iter::once(flow.into()).chain(places).collect();
        (record.len() > 1).then_some(record)
    }

    fn record(&self, flow: u32, places: impl Iterator<Item = u32>) {
        let record: Vec<u32> = std::iter::once(flow).chain(places).collect();
        if record.len() > 1 {
            self.records.lock().unwrap_or_else(PoisonError::into_inner).push(record);
        }
    }

    fn found<'a>(&self, view: TestView<'a>) -> &'a mut [u32] {
        if self.second { view.also_found } else { view.found }
    }
}

impl Stage<u64> for Find {
    fn name(&self) -> &'static str {
        if self.second { "find_more" } else { "find" }
    }
    fn columns(&self) -> &'static [Declaration] {
        &[TestColumns::COLUMNS]
    }
    fn phases(&self) -> Phases {
        Phases::PRE
    }
    fn pre_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, u64>) {
        fill_flows(chunk);
    }
    fn reads(&self) -> ColumnSet {
        ColumnSet::of(&[TestColumns::SLOT])
    }
    fn writes(&self) -> ColumnSet {
        let found = if self.second { TestColumns::ALSO_FOUND } else { TestColumns::FOUND };
        ColumnSet::of(&[found, TestColumns::ORDERED])
    }
    fn shader(&self) -> Option<Arc<dyn Shade<u64>>> {
        Some(Arc::new(self.clone()))
    }
}

impl Shade<u64> for Find {
    fn shade(&self, _: &mut Rows, _: &u64) {}
    fn shade_packets(&self, rows: &mut Rows, packets: &mut [Packet], _: &u64) {
        for (row, packet) in packets.iter().enumerate() {
            let view = TestColumns::view(rows);
            if !Verdict(view.verdict[row]).is_next() {
                continue;
            }
            let is_found = |(_, byte): &(u32, u8)| u32::from(*byte) < self.limit;
            let places = || (0..).zip(bytes_of(packet)).filter(is_found).map(|(i, _)| i);
            view.ordered[row] = 1 + u32::from(self.second);
            self.record(view.slot[row], places().map(|i| i ^ (self.seed >> 32) as u32));
            self.found(TestColumns::view(rows))[row] = places().count() as u32;
        }
    }
    fn kernels(&self) -> Option<KernelForm> {
        Some(KernelForm {
            text: FIND.into(),
            file: "find.k".into(),
            parameters: vec![
                ("LIMIT".into(), Parameter::U32(self.limit)),
                ("WHICH".into(), Parameter::U32(self.second.into())),
                ("SEED".into(), Parameter::U64(self.seed)),
            ],
            steps: vec![
                Step::blocks("find_in_blocks", 64).into(),
                Step::rows("find_count", 64).into(),
                KernelStep::ScanOutput,
                Step::list("find_listed", 32, 0, 1).into(),
                Step::rows("find_write", 64).into(),
                KernelStep::Sort,
                Step::rows("find_ordered", 64).into(),
            ],
            payload: Some(PAYLOAD),
            scratch: Some(Scratch { bytes: 4, bytes_per_row: 8, is_zeroed: true, is_first: false }),
            sort: vec![SortKey { column: TestColumns::SLOT, bits: 8 }],
            output: Some(OutputForm { words_per_row: 8192, words_per_job: self.words_per_job }),
            ..KernelForm::default()
        })
    }
    fn records(&self, rows: &mut Rows, records: Records<'_>, first: usize) {
        for row in 0..rows.len() {
            let (found, slot) =
                (self.found(TestColumns::view(rows))[row], TestColumns::view(rows).slot[row]);
            let is_odd = records.row(first + row).count() != found as usize;
            *self.odd.lock().unwrap_or_else(PoisonError::into_inner) += usize::from(is_odd);
            self.record(slot, records.row(first + row));
        }
    }
}

/// Sends every packet to port 0, what the stages found written behind its first byte where there is room.
pub struct Deliver;

impl Stage<u64> for Deliver {
    fn name(&self) -> &'static str {
        "deliver"
    }
    fn columns(&self) -> &'static [Declaration] {
        &[TestColumns::COLUMNS]
    }

    fn phases(&self) -> Phases {
        Phases::POST
    }
    fn post_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, u64>) {
        let view = TestColumns::view(&mut chunk.rows);
        for (row, packet) in chunk.packets.iter_mut().enumerate() {
            if let Some(capacity) = packet.data_mut().get_mut(1..9) {
                capacity[..4].copy_from_slice(&view.sum[row].to_be_bytes());
                capacity[4..].copy_from_slice(&view.count[row].to_be_bytes());
            }
            if let Some(capacity) = packet.data_mut().get_mut(9..12) {
                let [found, also] = [view.found[row], view.also_found[row]].map(|n| n as u8);
                capacity.copy_from_slice(&[found, also, view.ordered[row] as u8]);
            }
            view.verdict[row] = Verdict::forward(0).0;
        }
    }
}
