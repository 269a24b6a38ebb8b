//! Jobs of packets, and kernels that look at every byte of them. Not every program of tests uses all of it.
#![allow(dead_code)]

use std::sync::Arc;
use std::time::Duration;

use chunk::{Arena, ColumnSet, Columns, HugePages, Layout, Packet, Pool, Region, Rows, Verdict};
use device::accelerator::{
    Accelerator, Landing, Offload, Options, Output, PayloadBlock, PayloadPart, PayloadUse,
    PayloadWay, SegmentProgram, Step,
};
use device::driver::{Driver, Program};
use device::tables::NoTables;
use device::{DeviceError, Shadeable};
use kernels::files::{AREAS, EMPTY};
use kernels::{KernelFile, Spec};

chunk::columns! {
    /// What the kernels need.
    pub(crate) struct Cols / View {
        /// Byte offset of the frame in the payload.
        pub payload_at: u32,
        /// Its length in bytes.
        pub payload_len: u32,
        /// Exclusive or'ed to each byte.
        pub key: u32,
        /// A hash of the frame's bytes, and of the zeros behind them.
        pub hash: u32,
        /// The frame's place within 16 bytes, and its length.
        pub place: u32,
    }
}

/// A kernel that hashes frames, and one that changes them.
pub(crate) const TEXT: &str = "
    KERNEL(test_hash)
    {
        const uint row = JOB_FIRST(arena) + GLOBAL_ID;
        if (GLOBAL_ID < job_rows(arena)) {
            const uint at = COL_PAYLOAD_AT(arena)[row], len = COL_PAYLOAD_LEN(arena)[row];
            uint hash = 0u;
            for (uint i = 0u; i < len + 3u; i++)
                hash = hash * 31u + payload_byte(payload, at, len, i);
            for (uint i = 0u; i < len + 3u; i += 3u)
                hash = hash * 31u + payload_le32(payload, at, len, i) + payload_be32(payload, at, len, i);
            COL_HASH(arena)[row] = hash;
            COL_PLACE(arena)[row] = (at & 15u) << 24 | len;
        }
    }
    KERNEL(test_change)
    {
        const uint row = JOB_FIRST(arena) + GLOBAL_ID;
        if (GLOBAL_ID < job_rows(arena)) {
            const uint at = COL_PAYLOAD_AT(arena)[row], len = COL_PAYLOAD_LEN(arena)[row];
            for (uint i = 0u; i < len + 5u; i++)
                payload_set_byte(payload, at, len, i, payload_byte(payload, at, len, i) ^ COL_KEY(arena)[row]);
        }
    }";

/// Kernels that write the number of each row and its frame's length as often as the row's number has it, up to 3 times.
const RECORDS: &str = "
    KERNEL(test_count)
    {
        if (GLOBAL_ID < job_rows(arena))
            output_count(arena, 0u, 3u, GLOBAL_ID, GLOBAL_ID & 3u);
    }
    KERNEL(test_write)
    {
        if (GLOBAL_ID < job_rows(arena))
            for (uint i = 0u; i < (GLOBAL_ID & 3u); i++)
                output_word(arena, 0u, GLOBAL_ID, i, GLOBAL_ID << 16 ^ COL_PAYLOAD_LEN(arena)[GLOBAL_ID]);
    }";

/// The records of a row of the job.
pub(crate) fn records_of(row: usize, len: usize) -> Vec<u32> {
    vec![(row << 16 ^ len) as u32; row & 3]
}

/// What `test_hash` makes of a frame.
pub(crate) fn hash_of(frame: &[u8]) -> u32 {
    let byte = |i: usize| u32::from(frame.get(i).copied().unwrap_or(0));
    let mut hash = 0u32;
    for i in 0..frame.len() + 3 {
        hash = hash.wrapping_mul(31).wrapping_add(byte(i));
    }
    for i in (0..frame.len() + 3).step_by(3) {
        let word = u32::from_le_bytes([0, 1, 2, 3].map(|n| byte(i + n) as u8));
        hash = hash.wrapping_mul(31).wrapping_add(word).wrapping_add(word.swap_bytes());
    }
    hash
}

pub(crate) struct PacketJob {
    pub(crate) segment: usize,
    pub(crate) rows: Rows,
    pub(crate) packets: Vec<Packet>,
}

impl PacketJob {
    /// A job over these frames; a frame that is `None` belongs to a row that is settled.
    pub(crate) fn new(arena: &Arena, pool: &mut Pool, frames: &[(Vec<u8>, bool)]) -> Self {
        let mut rows = arena.reserve(frames.len()).expect("rows");
        let view = Cols::view(&mut rows);
        for (row, (_, is_live)) in frames.iter().enumerate() {
            view.verdict[row] = if *is_live { Verdict::NEXT } else { Verdict::forward(1) }.0;
            (view.key[row], view.hash[row], view.place[row]) = (row as u32 & 0xff | 1, 7, 7);
        }
        let packet = |frame: &(Vec<u8>, bool)| Packet::copy_from(pool, &frame.0).expect("cells");
        Self { segment: 0, packets: frames.iter().map(packet).collect(), rows }
    }

    /// The bytes of a packet.
    pub(crate) fn frame(&self, row: usize) -> Vec<u8> {
        self.packets[row].segments().flatten().copied().collect()
    }

    pub(crate) fn free(self, pool: &mut Pool) {
        self.packets.into_iter().for_each(|packet| packet.free(pool));
    }
}

impl Shadeable for PacketJob {
    fn rows(&self) -> usize {
        self.rows.len()
    }
    fn shade(&mut self) {}
}

impl Offload for PacketJob {
    type Tables = ();
    fn segment(&self) -> usize {
        self.segment
    }
    fn tables(&self) -> Option<(&(), u64)> {
        Some((&(), 1))
    }
    fn parts(&mut self, part: &mut dyn FnMut(&mut Rows)) {
        part(&mut self.rows);
    }
    fn packets(&mut self, packet: &mut dyn FnMut(&mut Packet)) {
        self.packets.iter_mut().for_each(packet);
    }
}

/// A part of a job, as a worker has it.
pub(crate) struct Part {
    pub(crate) rows: Rows,
    pub(crate) packets: Vec<Packet>,
    /// Number of its first row in the job.
    pub(crate) first: usize,
    pub(crate) landing: Option<Arc<Landing>>,
    pub(crate) payload: PayloadPart,
}

impl Part {
    /// Looks at its packets as a worker does.
    pub(crate) fn look(&mut self, region: Option<&'static Region>, block: Option<&PayloadBlock>) {
        let attached = chunk::Attached::default();
        self.payload.find(&mut self.rows, (&self.packets, &attached), region);
        if let Some(block) = block {
            self.payload.pack((&self.packets, &attached), block);
        }
    }

    /// Takes what came down for it; the records of each row, if `records` are wanted.
    pub(crate) fn land(&mut self, records: &mut Vec<u32>) {
        let Some(landing) = self.landing.take() else { return };
        landing.land(self.first, &mut self.rows, &mut self.packets);
        records.clear();
        for (shade, all) in landing.records() {
            assert_eq!(shade, 5);
            (self.first..self.first + self.rows.len()).for_each(|row| records.extend(all.row(row)));
        }
    }
}

/// A job of several parts that takes what came down along with it.
pub(crate) struct PartsJob(pub(crate) Vec<Part>, pub(crate) Option<PayloadWay>);

impl PartsJob {
    pub(crate) fn new(arena: &Arena, pool: &mut Pool, parts: &[Vec<(Vec<u8>, bool)>]) -> Self {
        let mut at = 0;
        let part = |frames: &Vec<_>| {
            let PacketJob { rows, packets, .. } = PacketJob::new(arena, pool, frames);
            at += rows.len();
            let payload = PayloadPart::with_capacity(rows.len());
            Part { first: at - rows.len(), landing: None, rows, packets, payload }
        };
        Self(parts.iter().map(part).collect(), None)
    }

    pub(crate) fn free(self, pool: &mut Pool) {
        self.0.into_iter().flat_map(|part| part.packets).for_each(|packet| packet.free(pool));
    }
}

impl Shadeable for PartsJob {
    fn rows(&self) -> usize {
        self.0.iter().map(|part| part.rows.len()).sum()
    }
    fn shade(&mut self) {}
}

impl Offload for PartsJob {
    type Tables = ();
    fn segment(&self) -> usize {
        0
    }
    fn tables(&self) -> Option<(&(), u64)> {
        Some((&(), 1))
    }
    fn parts(&mut self, part: &mut dyn FnMut(&mut Rows)) {
        self.0.iter_mut().for_each(|own| part(&mut own.rows));
    }
    fn packets(&mut self, packet: &mut dyn FnMut(&mut Packet)) {
        self.0.iter_mut().flat_map(|part| &mut part.packets).for_each(packet);
    }
    fn payload(&mut self, part: &mut dyn FnMut(&mut PayloadPart)) -> bool {
        let is_known = self.0.iter().all(|own| own.payload.is_known());
        self.0.iter_mut().filter(|_| is_known).for_each(|own| part(&mut own.payload));
        is_known
    }
    fn payload_way(&self) -> Option<PayloadWay> {
        self.1
    }
    fn landed(&mut self, landing: &Arc<Landing>) {
        self.0.iter_mut().for_each(|part| part.landing = Some(landing.clone()));
    }
}

/// How a test's segment is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// With `test_change` behind `test_hash`.
    pub(crate) writes: bool,
    pub(crate) is_trusted: bool,
    /// With a limit that no kernel comes to.
    pub(crate) limit: bool,
}

/// An accelerator that hashes, and changes, packets.
pub(crate) fn accelerator(
    driver: Box<dyn Driver>,
    capacity: usize,
    arenas: usize,
    kind: Kind,
    region: Option<&'static Region>,
    options: Options,
) -> Result<(Accelerator<PacketJob>, Vec<Arena>), DeviceError> {
    let names = if kind.writes { &["test_hash", "test_change"][..] } else { &["test_hash"] };
    let limit = kind.limit.then_some(Duration::from_secs(3600));
    let step = |kernel: &&'static str| Step { limit, stage: "test", ..Step::rows(*kernel, 64) };
    let steps = names.iter().map(step).collect();
    let segments = vec![Some(segment(TEXT, &[&EMPTY], steps, kind))];
    accelerator_of(driver, capacity, arenas, segments, region, options)
}

/// A segment of these kernels over the columns of packets.
pub(crate) fn segment(
    text: &str,
    files: &[&'static KernelFile],
    steps: Vec<Step>,
    kind: Kind,
) -> SegmentProgram {
    let source = kernels::source_with(&Spec::new("test", files, Cols::COLUMNS), text);
    SegmentProgram {
        program: Program { name: "test".into(), source, ..Program::default() },
        payload_steps: steps.len(),
        steps,
        reads: ColumnSet::of(&[Cols::VERDICT, Cols::KEY]),
        writes: ColumnSet::of(&[Cols::VERDICT, Cols::HASH, Cols::PLACE]),
        payload: Some(PayloadUse {
            at: Cols::PAYLOAD_AT,
            len: Cols::PAYLOAD_LEN,
            writes: kind.writes,
        }),
        is_trusted: kind.is_trusted,
        ..SegmentProgram::default()
    }
}

/// A segment that hashes and changes packets, and writes records.
pub(crate) fn recording(words_per_job: usize) -> SegmentProgram {
    let names =
        ["test_hash", "test_change", "clear_area", "test_count", "output_scan", "test_write"];
    let step = |name: &'static str| match name {
        "clear_area" | "output_scan" => Step::group(name, 256).with_job(0),
        _ => Step::rows(name, 64),
    };
    let kind = Kind { writes: true, is_trusted: true, limit: false };
    let steps = names.map(step).into();
    SegmentProgram {
        areas: vec![Output::STARTS, Output::words(3, words_per_job)],
        outputs: vec![Output { area: 0, shade: 5, stage: "test" }],
        ..segment(&[TEXT, RECORDS].concat(), &[&AREAS], steps, kind)
    }
}

/// An accelerator of these segments.
pub(crate) fn accelerator_of<J: Offload<Tables = ()>>(
    driver: Box<dyn Driver>,
    capacity: usize,
    arenas: usize,
    segments: Vec<Option<SegmentProgram>>,
    region: Option<&'static Region>,
    options: Options,
) -> Result<(Accelerator<J>, Vec<Arena>), DeviceError> {
    let layout = Layout::new(Cols::COLUMNS, capacity);
    let arenas: Vec<_> = (0..arenas).map(|_| Arena::new(layout.clone())).collect();
    let kept = arenas.clone();
    Accelerator::new(driver, layout, segments, Box::new(NoTables), kept, region, options)
        .map(|device| (device, arenas))
}

/// Cells, and the pool that gives them out.
pub(crate) fn cells(number: u32) -> (&'static Region, Pool) {
    let (region, depot) = Region::new(number, HugePages::Off).expect("cells");
    (region, Pool::new(depot, 64))
}
