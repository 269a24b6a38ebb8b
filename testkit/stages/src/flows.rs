//! [`Flows`]: state whose order shows, that grows, is swept, and of which slots may be ignored.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use chunk::{Chunk, ColumnId, ColumnSet, Columns, Declaration, Packet, Rows, Verdict};
use engine::{
    Context, KernelForm, KernelStep, Parameter, Phases, Shade, Shard, SlotSet, SortKey, Stage,
    StateForm, Step,
};

chunk::columns! {
    /// What both instances of [`Flows`] share, and what each writes.
    pub struct FlowColumns / FlowView {
        /// The flow's slot.
        pub flow_slot: u32,
        /// What the packet adds to its flow's record.
        pub flow_value: u32,
        /// What the rows are for the first instance: 0 packets, 1 slots to be swept.
        pub sweep_a: u32,
        /// The same for the second one.
        pub sweep_b: u32,
        /// The first one's record after the row: an order-sensitive sum,
        pub sum_a: u32,
        /// packets, of rows that are in it,
        pub packets_a: u32,
        /// and sweeps.
        pub sweeps_a: u32,
        /// The second one's.
        pub sum_b: u32,
        /// The same.
        pub packets_b: u32,
        /// The same.
        pub sweeps_b: u32,
    }
}

/// A flow's record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// `31 * sum + value`, packet after packet.
    pub sum: u32,
    /// Packets.
    pub packets: u32,
    /// How often it was swept.
    pub sweeps: u32,
}

const RECORD_BYTES: usize = 12;

impl Record {
    /// One more packet, of this value.
    pub fn add(&mut self, value: u32) {
        self.sum = self.sum.wrapping_mul(31).wrapping_add(value);
        self.packets += 1;
    }
}

#[derive(Default)]
struct Shared {
    /// By slot.
    records: Vec<Record>,
    /// By slot: how often a sweep was asked for.
    asked: Vec<u32>,
}

/// The flow of a frame, and what it adds to the flow's record. Bytes that a short frame lacks count as 0.
pub fn flow_and_value(frame: &[u8]) -> (u16, u32) {
    let bytes = std::array::from_fn(|i| frame.get(i).copied().unwrap_or(0));
    let [a, b, c, d, e, f] = bytes;
    (u16::from_be_bytes([a, b]), u32::from_be_bytes([c, d, e, f]))
}

/// Sums up the packets of each flow in an order-sensitive way. A packet's first two bytes name its flow, the next four are
/// its value.
#[derive(Clone)]
pub struct Flows {
    is_second: bool,
    /// By how many slots the state grows.
    step: usize,
    shared: Arc<Mutex<Shared>>,
    /// Only the stage's own: the slot of each flow.
    slots: HashMap<u16, u32>,
    /// Nanoseconds between sweeps; 0 for none.
    sweep_every: u64,
    next_sweep: u64,
    next_swept: u32,
    /// After so many packets a flow is ignored.
    ignores_after: u32,
    /// Slots whose packets are of no concern any more.
    pub ignored: Arc<SlotSet>,
}

const TEXT: &str = "
#define OP (WHICH == 0u ? COL_SWEEP_A(arena) : COL_SWEEP_B(arena))
FN uint OWN(is_row)(GLOBAL uchar *arena, uint row)
{
    return IS_NEXT(COL_VERDICT(arena)[row]) || OP[row] != 0u;
}
KERNEL(flows)
{
    if (GLOBAL_ID < job_rows(arena)) {
        GLOBAL const uint *sorted = SORTED(arena);
        const uint first = sorted[GLOBAL_ID];
        const uint shard = COL_SHARD(arena)[first], slot = COL_FLOW_SLOT(arena)[first];
        const uint before = sorted[GLOBAL_ID == 0u ? 0u : GLOBAL_ID - 1u];
        const uint is_first = GLOBAL_ID == 0u || COL_SHARD(arena)[before] != shard ||
                              COL_FLOW_SLOT(arena)[before] != slot;
        GLOBAL uint *record = (GLOBAL uint *)STATE_RECORD(arena, state, first, slot);
        // The rows of a slot, in their order.
        for (uint i = GLOBAL_ID; is_first != 0u && i < job_rows(arena); i++) {
            const uint row = sorted[i];
            if (COL_SHARD(arena)[row] != shard || COL_FLOW_SLOT(arena)[row] != slot)
                break;
            if (OWN(is_row)(arena, row) == 0u || slot >= STATE_SLOTS(arena, state, row))
                continue;
            if (OP[row] != 0u) {
                record[2]++;
            } else {
                record[0] = record[0] * 31u + COL_FLOW_VALUE(arena)[row];
                record[1]++;
            }
            (WHICH == 0u ? COL_SUM_A(arena) : COL_SUM_B(arena))[row] = record[0];
            (WHICH == 0u ? COL_PACKETS_A(arena) : COL_PACKETS_B(arena))[row] = record[1];
            (WHICH == 0u ? COL_SWEEPS_A(arena) : COL_SWEEPS_B(arena))[row] = record[2];
        }
    }
}
#undef OP
";

impl Flows {
    /// The first of two, or the second, whose state grows by `step` slots.
    pub fn new(is_second: bool, step: usize) -> Self {
        Self {
            is_second,
            step,
            shared: Arc::default(),
            slots: HashMap::new(),
            sweep_every: 0,
            next_sweep: 0,
            next_swept: 0,
            ignores_after: u32::MAX,
            ignored: Arc::default(),
        }
    }

    /// The same, swept this often.
    #[must_use]
    pub fn swept_every(self, ns: u64) -> Self {
        Self { sweep_every: ns, ..self }
    }

    /// The same; a flow is ignored once it has had so many packets.
    #[must_use]
    pub fn ignoring_after(self, packets: u32) -> Self {
        Self { ignores_after: packets, ..self }
    }

    fn with<R>(&self, change: impl FnOnce(&mut Shared) -> R) -> R {
        change(&mut self.shared.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The host's copy of the records, and how often a sweep of each was asked for.
    pub fn records(&self) -> (Vec<Record>, Vec<u32>) {
        self.with(|shared| (shared.records.clone(), shared.asked.clone()))
    }

    fn op(&self) -> ColumnId {
        if self.is_second { FlowColumns::SWEEP_B } else { FlowColumns::SWEEP_A }
    }

    fn results(&self) -> [ColumnId; 3] {
        match self.is_second {
            false => [FlowColumns::SUM_A, FlowColumns::PACKETS_A, FlowColumns::SWEEPS_A],
            true => [FlowColumns::SUM_B, FlowColumns::PACKETS_B, FlowColumns::SWEEPS_B],
        }
    }

    /// Visits the rows that concern this instance: slot, whether it is swept, value, and the record's columns.
    fn rows(&self, rows: &mut Rows, mut visit: impl FnMut(usize, bool, u32, [&mut u32; 3])) {
        let v = FlowColumns::view(rows);
        let (op, [sum, packets, sweeps]) = match self.is_second {
            false => (v.sweep_a, [v.sum_a, v.packets_a, v.sweeps_a]),
            true => (v.sweep_b, [v.sum_b, v.packets_b, v.sweeps_b]),
        };
        for row in 0..op.len() {
            let is_swept = op[row] != 0;
            if is_swept || Verdict(v.verdict[row]).is_next() {
                let results = [&mut sum[row], &mut packets[row], &mut sweeps[row]];
                visit(v.flow_slot[row] as usize, is_swept, v.flow_value[row], results);
            }
        }
    }

    fn check(&self, slot: usize, record: Record) {
        if record.packets >= self.ignores_after {
            self.ignored.insert(slot);
        }
    }
}

impl Stage<u64> for Flows {
    fn name(&self) -> &'static str {
        if self.is_second { "flows_b" } else { "flows_a" }
    }
    fn columns(&self) -> &'static [Declaration] {
        &[FlowColumns::COLUMNS, Shard::COLUMNS]
    }
    fn zeroed(&self) -> ColumnSet {
        let [_, packets, _] = self.results();
        ColumnSet::of(&[self.op(), packets])
    }
    fn phases(&self) -> Phases {
        Phases::PRE
    }
    fn reads(&self) -> ColumnSet {
        let [slot, value] = [FlowColumns::FLOW_SLOT, FlowColumns::FLOW_VALUE];
        ColumnSet::of(&[slot, value, self.op()])
    }
    fn writes(&self) -> ColumnSet {
        ColumnSet::of(&self.results())
    }
    fn pre_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, u64>) {
        let view = FlowColumns::view(&mut chunk.rows);
        for (row, packet) in chunk.packets.iter().enumerate() {
            let (flow, value) = flow_and_value(packet.data());
            let new = self.slots.len() as u32;
            let slot = *self.slots.entry(flow).or_insert(new);
            view.flow_slot[row] = slot;
            view.flow_value[row] = value;
            if self.ignored.contains(slot as usize) {
                view.verdict[row] = Verdict::forward(0).0;
            }
        }
        let slots = self.slots.len();
        self.with(|shared| {
            shared.records.resize(slots, Record::default());
            shared.asked.resize(slots, 0);
        });
    }
    fn shader(&self) -> Option<Arc<dyn Shade<u64>>> {
        Some(Arc::new(self.clone()))
    }
    fn next_sweep_ns(&self) -> Option<u64> {
        (self.sweep_every > 0 && !self.slots.is_empty()).then_some(self.next_sweep)
    }
    fn sweep(&mut self, rows: &mut Rows, cx: &mut Context<'_, u64>) -> usize {
        self.next_sweep = cx.now_ns + self.sweep_every;
        let count = self.slots.len().min(rows.reserved()).min(50);
        let (first, all) = (self.next_swept as usize, self.slots.len());
        self.next_swept = ((first + count) % all) as u32;
        let view = FlowColumns::view(rows);
        let op = if self.is_second { view.sweep_b } else { view.sweep_a };
        self.with(|shared| {
            for (row, (to, op)) in view.flow_slot.iter_mut().zip(op).enumerate().take(count) {
                let slot = (first + row) % all;
                (*to, *op) = (slot as u32, 1);
                shared.asked[slot] += 1;
            }
        });
        count
    }
}

impl Shade<u64> for Flows {
    fn shade(&self, rows: &mut Rows, _: &u64) {
        self.with(|shared| {
            self.rows(rows, |slot, is_swept, value, [sum, packets, sweeps]| {
                let record = &mut shared.records[slot];
                if is_swept {
                    record.sweeps += 1
                } else {
                    record.add(value)
                }
                (*sum, *packets, *sweeps) = (record.sum, record.packets, record.sweeps);
                self.check(slot, *record);
            });
        });
    }
    fn kernels(&self) -> Option<KernelForm> {
        Some(KernelForm {
            text: TEXT.into(),
            parameters: vec![("WHICH".into(), Parameter::U32(self.is_second.into()))],
            steps: vec![KernelStep::Sort, Step::rows("flows", 64).into()],
            sort: vec![
                SortKey { column: Shard::SHARD, bits: 4 },
                SortKey { column: FlowColumns::FLOW_SLOT, bits: 12 },
            ],
            state: Some(StateForm { record_bytes: RECORD_BYTES, slots_per_step: self.step }),
            ..KernelForm::default()
        })
    }
    fn state_slots(&self) -> usize {
        self.with(|shared| shared.records.len())
    }
    fn state(&self, step: usize, bytes: &mut [u8]) {
        self.with(|shared| {
            let records = shared.records.iter().skip(step * self.step);
            for (to, record) in bytes.chunks_exact_mut(RECORD_BYTES).zip(records) {
                let Record { sum, packets, sweeps } = *record;
                for (to, word) in to.chunks_exact_mut(4).zip([sum, packets, sweeps]) {
                    to.copy_from_slice(&word.to_le_bytes());
                }
            }
        });
    }
    fn twin(&self) -> Option<Arc<dyn Shade<u64>>> {
        // It takes no part in ignoring: that is for the host to decide.
        Some(Arc::new(Flows::new(self.is_second, self.step)))
    }
    fn set_state(&self, step: usize, bytes: &[u8]) {
        self.with(|shared| {
            let end = (step + 1) * self.step;
            shared.records.resize(end.max(shared.records.len()), Record::default());
            let records = shared.records[step * self.step..].iter_mut();
            for (record, from) in records.zip(bytes.chunks_exact(RECORD_BYTES)) {
                let word = |i: usize| {
                    let bytes = from[4 * i..4 * i + 4].iter().rev();
                    bytes.fold(0, |word, byte| word << 8 | u32::from(*byte))
                };
                *record = Record { sum: word(0), packets: word(1), sweeps: word(2) };
            }
        });
    }
    fn retired(&self, rows: &mut Rows, _: &mut [Packet]) {
        // Not by their verdicts: a stage behind this one may have dropped packets that are in the records.
        let v = FlowColumns::view(rows);
        let (op, [sum, packets, sweeps]) = match self.is_second {
            false => (v.sweep_a, [v.sum_a, v.packets_a, v.sweeps_a]),
            true => (v.sweep_b, [v.sum_b, v.packets_b, v.sweeps_b]),
        };
        self.with(|shared| {
            for row in (0..op.len()).filter(|&row| packets[row] != 0 || op[row] != 0) {
                let record = Record { sum: sum[row], packets: packets[row], sweeps: sweeps[row] };
                let slot = v.flow_slot[row] as usize;
                shared.records[slot] = record;
                self.check(slot, record);
            }
        });
    }
}
