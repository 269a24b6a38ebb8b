//! Stages that prove what no shipped stage needs yet: that payload stays on the device from stage to
//! stage, that it comes back changed, and that state has one home.
//!
//! | stage | reads | writes | |
//! | --- | --- | --- | --- |
//! | [`Sum`] | payload | `sum` | the sum of a packet's bytes |
//! | [`Xor`] | payload, `key` | payload | each byte exclusive-or the packet's key |
//! | [`Count`] | `slot` | `count`, state | packets of each flow |
//!
//! A packet's first byte names its flow and stays as it is; [`Deliver`] sends every packet to port 0.
//! Tables are a number, so that versions change.
#![forbid(unsafe_code)]

pub mod reasons;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use chunk::{Chunk, ColumnSet, Columns, Packet, Rows, Verdict};
use device::accelerator::PayloadUse;
use engine::{Context, KernelForm, Shade, Stage, Step, Steps};

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
        /// Packets of the flow after this packet's job.
        pub count: u32,
    }
}

/// Flows that are counted.
pub const SLOTS: usize = 256;

const PAYLOAD: PayloadUse =
    PayloadUse { at: TestColumns::PAYLOAD_AT, len: TestColumns::PAYLOAD_LEN, writes: false };

fn bytes_of(packet: &Packet) -> impl Iterator<Item = u8> + '_ {
    packet.segments().flat_map(|segment| segment.iter().copied())
}

/// Sums payloads.
pub struct Sum;

impl Stage<u64> for Sum {
    fn name(&self) -> &'static str {
        "sum"
    }
    fn writes(&self) -> ColumnSet {
        ColumnSet::of(&[TestColumns::SUM])
    }
    fn pre_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, u64>) {
        let view = TestColumns::view(&mut chunk.rows);
        for (row, packet) in chunk.packets.iter().enumerate() {
            let flow = u32::from(packet.data().first().copied().unwrap_or(0));
            (view.key[row], view.slot[row]) = (flow | 1, flow);
        }
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

    fn steps(&self) -> Steps {
        Steps::NONE
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
                KERNEL(test_xor)
                {
                    const uint row = JOB_FIRST(arena) + GLOBAL_ID;
                    if (GLOBAL_ID < job_rows(arena) && IS_NEXT(COL_VERDICT(arena)[row])) {
                        GLOBAL uchar *bytes = payload + COL_PAYLOAD_AT(arena)[row];
                        const uint len = COL_PAYLOAD_LEN(arena)[row];
                        const uchar key = (uchar)COL_KEY(arena)[row];
                        for (uint i = 1u; i < len; i++)
                            bytes[i] ^= key;
                    }
                }"
            .into(),
            steps: vec![Step::rows("test_xor", 64).into()],
            is_trusted: true,
            payload: Some(PayloadUse { writes: true, ..PAYLOAD }),
            ..KernelForm::default()
        })
    }
}

/// Counts packets by flow, in a shard of its own.
#[derive(Clone, Default)]
pub struct Count {
    /// The host's copy of the shard: packets of each flow.
    pub counts: Arc<Mutex<Vec<u32>>>,
    /// What a row costs the CPU more than it need.
    per_row: Duration,
}

impl Count {
    /// A shard in which nothing was counted.
    pub fn new() -> Self {
        Self { counts: Arc::new(Mutex::new(vec![0; SLOTS])), per_row: Duration::ZERO }
    }

    /// The same on a CPU that takes so long for each row.
    pub fn slow(per_row: Duration) -> Self {
        Self { per_row, ..Self::new() }
    }

    fn with<R>(&self, change: impl FnOnce(&mut [u32]) -> R) -> R {
        change(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Stage<u64> for Count {
    fn name(&self) -> &'static str {
        "count"
    }

    fn steps(&self) -> Steps {
        Steps::NONE
    }
    fn reads(&self) -> ColumnSet {
        ColumnSet::of(&[TestColumns::SLOT])
    }
    fn writes(&self) -> ColumnSet {
        ColumnSet::of(&[TestColumns::COUNT])
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
        self.with(|counts| {
            for (slot, count) in view.slot.iter().zip(view.count) {
                counts[*slot as usize % SLOTS] += 1;
                *count = counts[*slot as usize % SLOTS];
            }
        });
    }
    fn kernels(&self) -> Option<KernelForm> {
        Some(KernelForm {
            // One work item walks the rows, so that those of a slot run in their order.
            text: "
                KERNEL(test_count)
                {
                    GLOBAL uint *counts = (GLOBAL uint *)state;
                    if (GLOBAL_ID == 0u)
                        for (uint i = 0u; i < job_rows(arena); i++) {
                            const uint row = JOB_FIRST(arena) + i;
                            COL_COUNT(arena)[row] = ++counts[COL_SLOT(arena)[row] & 255u];
                        }
                }"
            .into(),
            steps: vec![Step::rows("test_count", 64).into()],
            state_bytes: 4 * SLOTS,
            ..KernelForm::default()
        })
    }
    fn state(&self) -> Vec<u8> {
        self.with(|counts| counts.iter().flat_map(|count| count.to_le_bytes()).collect())
    }
    fn retired(&self, rows: &mut Rows, _: &mut [Packet]) {
        let view = TestColumns::view(rows);
        self.with(|counts| {
            for (slot, count) in view.slot.iter().zip(view.count) {
                counts[*slot as usize % SLOTS] = *count;
            }
        });
    }
}

/// Sends every packet to port 0, its sum and count written behind its first byte where there is room.
pub struct Deliver;

impl Stage<u64> for Deliver {
    fn name(&self) -> &'static str {
        "deliver"
    }

    fn steps(&self) -> Steps {
        Steps::POST
    }
    fn post_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, u64>) {
        let view = TestColumns::view(&mut chunk.rows);
        for (row, packet) in chunk.packets.iter_mut().enumerate() {
            if let Some(room) = packet.data_mut().get_mut(1..9) {
                room[..4].copy_from_slice(&view.sum[row].to_be_bytes());
                room[4..].copy_from_slice(&view.count[row].to_be_bytes());
            }
            view.verdict[row] = Verdict::forward(0).0;
        }
    }
}
