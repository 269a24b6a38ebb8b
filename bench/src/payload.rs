//! Payload on a device: cells as they are against frames packed back to back, and rows in order of
//! length against rows as they came (GASPP §5.1 and §5.3).

use std::time::{Duration, Instant};

use chunk::{Arena, ColumnSet, Columns, HugePages, Layout, Packet, Pool, Region, Rows};
use device::accelerator::{
    Accelerator, Offload, Options, Packing, PayloadUse, SegmentProgram, Step,
};
use device::driver::{Arguments, Program, Shape};
use device::tables::NoTables;
use device::{Backend, Device, Shadeable};
use kernels::plan::SortPlan;
use kernels::{Launch, PayloadColumns, files};

use crate::on_device::{finish, open, program_of, text};
use crate::tables::Random;
use crate::{Args, Report, Row};

const PATIENCE: Duration = Duration::from_secs(60);

/// Packets of a job.
const PACKETS: usize = 1024;

/// Frame lengths, bytes.
const SIZES: [usize; 6] = [64, 128, 256, 512, 1024, 1500];

/// Packets of the sort.
const SORTED: usize = 1 << 15;

chunk::columns! {
    /// What the sort and the sums read.
    struct SortColumns / SortView {
        /// Byte offset of the frame in the payload.
        pub payload_at: u32,
        /// Its length in bytes.
        pub payload_len: u32,
        /// Upper protocol.
        pub protocol: u8,
        /// What was found.
        pub sum: u32,
    }
}

/// Sums payloads by the list of rows in `state`.
const SUM_BY_LIST: &str = "
    FN uint sum_of(GLOBAL const uchar *bytes, uint len)
    {
        uint sum = 0u;
        for (uint i = 0u; i < len; i++)
            sum = sum * 31u + bytes[i];
        return sum;
    }
    KERNEL(sum_in_order)
    {
        if (GLOBAL_ID < job_rows(arena)) {
            const uint row = GLOBAL_ID;
            COL_SUM(arena)[row] = sum_of(payload + COL_PAYLOAD_AT(arena)[row], COL_PAYLOAD_LEN(arena)[row]);
        }
    }
    KERNEL(sum_by_list)
    {
        if (GLOBAL_ID < job_rows(arena)) {
            const uint row = ((GLOBAL const uint *)state)[GLOBAL_ID];
            COL_SUM(arena)[row] = sum_of(payload + COL_PAYLOAD_AT(arena)[row], COL_PAYLOAD_LEN(arena)[row]);
        }
    }";

/// The program of packing.
pub(crate) fn summing() -> Program {
    program_of("payload", &[&files::PAYLOAD], PayloadColumns::COLUMNS, "")
}

/// The program of scheduling.
pub(crate) fn sorting() -> Program {
    program_of("scheduling", &[&files::SORT], SortColumns::COLUMNS, SUM_BY_LIST)
}

struct PayloadJob {
    rows: Rows,
    packets: Vec<Packet>,
}

impl Shadeable for PayloadJob {
    fn rows(&self) -> usize {
        self.rows.len()
    }
    fn shade(&mut self) {}
}

impl Offload for PayloadJob {
    type Tables = ();
    fn segment(&self) -> usize {
        0
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

pub(crate) fn run(
    args: &Args,
    backend: Backend,
    seconds: f64,
    report: &mut Report,
) -> Result<(), String> {
    packing(args, backend, seconds, report)?;
    scheduling(args, backend, report)
}

fn packing(args: &Args, backend: Backend, seconds: f64, report: &mut Report) -> Result<(), String> {
    let kinds = packing_rates(args, backend, seconds, &SIZES)?;
    let rates = |kind: usize, i: usize| kinds[kind].1[i].clone();
    for (i, size) in SIZES.into_iter().enumerate() {
        for (kind, (name, _)) in kinds.iter().enumerate() {
            let name = format!("payload of {size} bytes, {name}");
            report.rows.push(Row::new(name, "Mpps", rates(kind, i)));
        }
        let ratio = rates(1, i).iter().zip(rates(0, i)).map(|(p, c)| p / c).collect();
        let name = format!("payload of {size} bytes, packed/cells");
        report.rows.push(Row::new(name, "ratio", ratio));
    }
    Ok(())
}

/// How packets reach the device, and the rates by size and round.
pub(crate) type RatesOfKind = (&'static str, Vec<Vec<f64>>);

/// Rates in Mpps of packets whose bytes a kernel reads once, by how they reach it (packed, as cells, gathered), size
/// and round.
pub(crate) fn packing_rates(
    args: &Args,
    backend: Backend,
    seconds: f64,
    sizes: &[usize],
) -> Result<Vec<RatesOfKind>, String> {
    let cells = 16 * PACKETS as u32;
    let (region, depot) = Region::new(cells, HugePages::Advise).map_err(text)?;
    let mut pool = Pool::new(depot, 64);
    let time = Duration::from_secs_f64(seconds / 2.0);
    let kinds = [
        ("packed", Packing::Packed, None),
        ("cells in place", Packing::InPlace, Some(region)),
        ("gathered by the device", Packing::Auto, Some(region)),
    ];
    let mut devices = Vec::new();
    for (name, packing, region) in kinds {
        let segment = SegmentProgram {
            program: summing(),
            steps: vec![Step::rows("payload_sum", 64)],
            reads: ColumnSet::EMPTY,
            writes: ColumnSet::of(&[PayloadColumns::SUM]),
            fills: ColumnSet::of(&[PayloadColumns::SUM]),
            payload: Some(PayloadUse {
                at: PayloadColumns::PAYLOAD_AT,
                len: PayloadColumns::PAYLOAD_LEN,
                writes: false,
            }),
            // With one kernel the cells would be read in place.
            payload_steps: if packing == Packing::Auto { 2 } else { 1 },
            is_trusted: true,
            ..SegmentProgram::default()
        };
        let layout = Layout::new(PayloadColumns::COLUMNS, PACKETS);
        let arenas: Vec<_> = (0..4).map(|_| Arena::new(layout.clone())).collect();
        let options = Options { packing, patience: PATIENCE, ..Options::default() };
        let device: Accelerator<PayloadJob> = Accelerator::new(
            open(backend)?,
            layout,
            vec![Some(segment)],
            Box::new(NoTables),
            arenas.clone(),
            region,
            options,
        )
        .map_err(text)?;
        devices.push((name, device, arenas));
    }
    let mut rates = vec![vec![Vec::new(); sizes.len()]; kinds.len()];
    for _ in 0..args.rounds.max(1) {
        for (i, size) in sizes.iter().enumerate() {
            for (kind, (_, device, arenas)) in devices.iter_mut().enumerate() {
                rates[kind][i].push(stream(device, arenas, &mut pool, *size, time)?);
            }
        }
    }
    Ok(kinds.iter().map(|(name, ..)| *name).zip(rates).collect())
}

/// Jobs of packets of one size for `time`; million packets a second.
fn stream(
    device: &mut Accelerator<PayloadJob>,
    arenas: &[Arena],
    pool: &mut Pool,
    size: usize,
    time: Duration,
) -> Result<f64, String> {
    let mut jobs = Vec::new();
    let frame: Vec<u8> = (0..size).map(|i| i as u8).collect();
    let wanted: u32 = frame.iter().map(|byte| u32::from(*byte)).sum();
    for arena in arenas.iter().take(device.slots()) {
        arena.close();
        arena.reopen();
        let rows = arena.reserve(PACKETS).ok_or("an arena is still in use")?;
        let packets: Option<Vec<_>> =
            (0..PACKETS).map(|_| Packet::copy_from(pool, &frame)).collect();
        jobs.push(PayloadJob { rows, packets: packets.ok_or("too few cells")? });
    }
    let (begin, mut done, mut ended) = (Instant::now(), 0u64, Vec::new());
    while begin.elapsed() < time || done == 0 {
        for job in jobs.drain(..) {
            device.launch(job).map_err(|(_, e)| e.map_or("no slot".into(), |e| e.to_string()))?;
        }
        let (mut job, result) = device.retire(PATIENCE).ok_or("a job does not come back")?;
        result.map_err(text)?;
        if done == 0 {
            let sums = PayloadColumns::view(&mut job.rows).sum;
            if let Some(row) = sums.iter().position(|sum| *sum != wanted) {
                return Err(format!("row {row}: sum {}, not {wanted}", sums[row]));
            }
        }
        done += PACKETS as u64;
        jobs.push(job);
    }
    let rate = done as f64 / begin.elapsed().as_secs_f64() / 1e6;
    while device.in_flight() > 0 {
        ended.extend(device.retire(PATIENCE).map(|(job, _)| job));
    }
    for packet in jobs.into_iter().chain(ended).flat_map(|job| job.packets) {
        packet.free(pool);
    }
    Ok(rate)
}

/// Work of very different lengths: neighbours on a device wait for one another, unless rows come in order
/// of protocol and length.
fn scheduling(args: &Args, backend: Backend, report: &mut Report) -> Result<(), String> {
    let mut device = open(backend)?;
    let driver = &mut *device;
    let plan = SortPlan::new(SORTED, 4, 256);
    let mut names: Vec<&str> = plan.launches.iter().map(|launch| launch.kernel).collect();
    names.extend(["sum_in_order", "sum_by_list"]);
    names.sort_unstable();
    names.dedup();
    let kernels = driver.build(&sorting(), &names).map_err(text)?;
    let kernel = |name: &str| kernels[names.iter().position(|n| *n == name).unwrap_or(0)];

    let mut random = Random(3);
    let layout = Layout::new(SortColumns::COLUMNS, SORTED);
    let arena = Arena::new(layout.clone());
    let mut rows = arena.reserve(SORTED).ok_or("an arena is in use")?;
    let (mut payload, mut wanted) = (Vec::new(), Vec::new());
    let view = SortColumns::view(&mut rows);
    for row in 0..SORTED {
        // Short and long ones as on real links: half of them small, a third full.
        let len = match random.below(6) {
            0..3 => 26 + random.below(40),
            3 => 66 + random.below(1000),
            _ => 1400 + random.below(60),
        };
        (view.payload_at[row], view.payload_len[row]) = (payload.len() as u32, len as u32);
        view.protocol[row] = if random.below(4) == 0 { 17 } else { 6 };
        let frame: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
        wanted.push(frame.iter().fold(0u32, |s, b| s.wrapping_mul(31).wrapping_add((*b).into())));
        payload.extend(frame);
        payload.resize(payload.len().next_multiple_of(16), 0);
    }
    let queue = driver.queue().map_err(text)?;
    let memory = [layout.bytes(), payload.len(), plan.state_bytes]
        .map(|bytes| driver.allocate(bytes).map_err(text));
    let [job, bytes, state] = memory;
    let (job, bytes, state) = (job?, bytes?, state?);
    let mut header = vec![0; layout.header_bytes()];
    layout.write_header(0, SORTED as u32, 1, &mut header);
    let mut parts = vec![(&header[..], 0)];
    for column in 0..layout.columns().len() {
        parts.push((rows.column_bytes(column), layout.offset(column)));
    }
    device::upload_all(driver, queue, job, &parts, PATIENCE).map_err(text)?;
    device::upload_all(driver, queue, bytes, &[(&payload, 0)], PATIENCE).map_err(text)?;

    let arguments =
        |job_word| Arguments { arena: job, payload: bytes, tables: job, state, job: job_word };
    let shape = Shape::of_rows(SORTED, 256);
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    for round in 0..=args.rounds.max(1) {
        let begin = Instant::now();
        driver.launch(queue, kernel("sum_in_order"), shape, &arguments(0)).map_err(text)?;
        finish(driver, queue)?;
        let in_order = begin.elapsed();
        let begin = Instant::now();
        for Launch { kernel: name, groups, items, job } in &plan.launches {
            let shape = Shape { groups: *groups, items: *items };
            driver.launch(queue, kernel(name), shape, &arguments(*job)).map_err(text)?;
        }
        finish(driver, queue)?;
        let sort = begin.elapsed();
        let begin = Instant::now();
        driver.launch(queue, kernel("sum_by_list"), shape, &arguments(0)).map_err(text)?;
        finish(driver, queue)?;
        let by_list = begin.elapsed();
        let mut sums = vec![0; 4 * SORTED];
        let place = layout.offset(layout.column(SortColumns::SUM));
        device::download_all(driver, queue, job, place, &mut sums, PATIENCE).map_err(text)?;
        let got = sums.chunks_exact(4).map(|b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]]));
        if !got.eq(wanted.iter().copied()) {
            return Err("sums by the sorted list differ from the CPU's".into());
        }
        // The first round warms up.
        if round > 0 {
            for (times, time) in times.iter_mut().zip([in_order, sort, by_list]) {
                times.push(time.as_secs_f64() * 1e6);
            }
        }
    }
    let [off, sort, on] = times;
    let ratio = |with_sort: bool| -> Vec<f64> {
        let sum = |i: usize| on[i] + if with_sort { sort[i] } else { 0.0 };
        (0..off.len()).map(|i| off[i] / sum(i)).collect()
    };
    let (alone, with_sort) = (ratio(false), ratio(true));
    report.rows.push(Row::new(format!("{SORTED} packets as they came"), "us", off));
    report.rows.push(Row::new("the sort", "us", sort));
    report.rows.push(Row::new("in order of protocol and length", "us", on));
    report.rows.push(Row::new("scheduling: gain, sort left out", "ratio", alone));
    report.rows.push(Row::new("scheduling: gain, sort included", "ratio", with_sort));
    Ok(())
}
