//! GASPP §7.1: how data gets to a device.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use chunk::{
    Chunk, ColumnSet, Columns, Declaration, Depot, HugePages, Packet, Pool, Region, Rows, Verdict,
};
use device::accelerator::{self, Packing, PayloadUse};
use device::driver::Program;
use device::measure::{Plan, measure};
use device::tables::NoTables;
use device::{Backend, Cost, FaultPlan};
use engine::{
    Context, DeviceKind, DeviceSpec, Engine, EngineSpec, KernelForm, Policy, RxSlot, Shade, Stage,
    Step, TxSlot, WorkerSpec,
};
use io::memory::Replay;

use crate::on_device::{open, text};
use crate::order::OneVersion;
use crate::payload::packing_rates;
use crate::{Args, Report, Row};

/// Bytes of the buffers of Table 1.
const BUFFERS: [usize; 6] = [1 << 10, 4 << 10, 64 << 10, 256 << 10, 1 << 20, 16 << 20];

/// Bytes of the packets of Table 2 and Figure 8, check sequence included.
const SIZES: [usize; 6] = [64, 128, 256, 512, 1024, 1518];
const CHECK_SEQUENCE: usize = 4;

/// Packets that go round in Figure 8: their cells are more than a cache near a core holds.
const PACKETS: usize = 1 << 14;

/// Jobs of Figure 8, as the program wires them.
const JOBS: usize = 4;
const JOB_ROWS: usize = 8192;

/// What a frame takes of a link besides its bytes: preamble and gap (GASPP counts them in its 29.09 Gbit/s).
const LINE_BYTES: usize = 20;

/// GASPP, Table 1.
pub(super) fn copies(args: &Args, backend: Backend) -> Result<Report, String> {
    let mut driver = open(backend)?;
    let data = format!("GASPP, Table 1: copies one behind the other; {}", driver.info().name);
    let mut report = Report::new("paper", data);
    let plan = Plan {
        launches: 1,
        items: Vec::new(),
        copies: 3,
        bytes: BUFFERS.to_vec(),
        ..Plan::default()
    };
    let mut rates = [const { [const { Vec::new() }; BUFFERS.len()] }; 2];
    for _ in 0..args.rounds.max(1) {
        let costs = measure(&mut *driver, &plan).map_err(text)?;
        for (at, copy) in costs.copies.iter().enumerate() {
            for (rates, way) in rates.iter_mut().zip([copy.up, copy.down]) {
                rates[at].push(way.streamed_bytes_per_s * 8.0 / 1e9);
            }
        }
    }
    for (name, rates) in ["host to device", "device to host"].into_iter().zip(rates) {
        for (bytes, rates) in BUFFERS.into_iter().zip(rates) {
            let row = Row::new(format!("{name}, {bytes} bytes"), "Gbit/s", rates);
            report.rows.push(row.curve("copies", name, Some(bytes)).over("bytes of a buffer"));
        }
    }
    Ok(report)
}

/// GASPP, Table 2.
pub(super) fn packing(args: &Args, backend: Backend, seconds: f64) -> Result<Report, String> {
    let data = "GASPP, Table 2: packets to the device, where a kernel reads each byte once; bytes of packets only";
    let mut report = Report::new("paper", data);
    let sizes = SIZES.map(|size| size - CHECK_SEQUENCE);
    for (name, rates) in packing_rates(args, backend, seconds, &sizes)? {
        for (size, rates) in SIZES.into_iter().zip(rates) {
            let bits = (size - CHECK_SEQUENCE) as f64 * 8.0 / 1e3;
            let rates = rates.into_iter().map(|rate| rate * bits).collect();
            let row = Row::new(format!("{size} bytes, {name}"), "Gbit/s", rates);
            report
                .rows
                .push(row.curve("to the device", name, Some(size)).over("bytes of a packet"));
        }
    }
    Ok(report)
}

chunk::columns! {
    /// What [`Carry`] needs.
    struct CarryColumns / CarryView {
        /// Byte offset of the frame in the payload.
        pub payload_at: u32,
        /// Its length in bytes.
        pub payload_len: u32,
        /// Its first byte, as the device sees it.
        pub first: u32,
    }
}

/// Sends packets out by port 0; on the way they are at the device, where nothing is computed. A packet whose first byte is
/// another one there is dropped.
struct Carry;

impl Stage<()> for Carry {
    fn name(&self) -> &'static str {
        "carry"
    }
    fn columns(&self) -> &'static [Declaration] {
        &[CarryColumns::COLUMNS]
    }
    fn writes(&self) -> ColumnSet {
        ColumnSet::of(&[CarryColumns::FIRST])
    }
    fn shader(&self) -> Option<Arc<dyn Shade<()>>> {
        Some(Arc::new(Carry))
    }
    fn post_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, ()>) {
        let view = CarryColumns::view(&mut chunk.rows);
        for (row, packet) in chunk.packets.iter().enumerate() {
            let is_right =
                Some(view.first[row]) == packet.data().first().map(|byte| (*byte).into());
            // A row that stays undecided is dropped, and counted.
            if is_right {
                view.verdict[row] = Verdict::forward(0).0;
            }
        }
    }
}

impl Shade<()> for Carry {
    fn shade(&self, _: &mut Rows, (): &()) {}
    fn shade_packets(&self, rows: &mut Rows, packets: &mut [Packet], (): &()) {
        let view = CarryColumns::view(rows);
        for (row, packet) in packets.iter().enumerate() {
            view.first[row] = packet.data().first().copied().unwrap_or(0).into();
        }
    }
    fn kernels(&self) -> Option<KernelForm> {
        Some(KernelForm {
            text: "
                KERNEL(carry)
                {
                    const uint row = JOB_FIRST(arena) + GLOBAL_ID;
                    if (GLOBAL_ID < job_rows(arena) && IS_NEXT(COL_VERDICT(arena)[row]))
                        COL_FIRST(arena)[row] = payload[COL_PAYLOAD_AT(arena)[row]];
                }"
            .into(),
            steps: vec![Step::rows("carry", 64).into()],
            is_trusted: true,
            payload: Some(PayloadUse {
                at: CarryColumns::PAYLOAD_AT,
                len: CarryColumns::PAYLOAD_LEN,
                writes: false,
            }),
            ..KernelForm::default()
        })
    }
}

/// What is between receive and transmit.
#[derive(Clone, Copy)]
enum Between {
    /// The CPU's form of [`Carry`].
    Nothing,
    /// The simulated device, without cost.
    Simulated,
    /// A device, to which packets are copied back to back.
    Packed(Backend),
    /// The same with the copy of least cost.
    Chosen(Backend),
}

/// GASPP, Figure 8.
pub(super) fn forwarding(args: &Args, backend: Backend, seconds: f64) -> Result<Report, String> {
    let data = "GASPP, Figure 8: packets from memory to memory, one worker, no computation; Gbit/s as on a link";
    let mut report = Report::new("paper", data);
    let ways = [
        ("receive and transmit", Between::Nothing),
        ("with a simulated device", Between::Simulated),
        ("with the device, packed", Between::Packed(backend)),
        ("with the device, copies by least cost", Between::Chosen(backend)),
    ];
    let time = Duration::from_secs_f64(seconds);
    let mut rates = vec![vec![Vec::new(); SIZES.len()]; ways.len()];
    for _ in 0..args.rounds.max(1) {
        for (at, size) in SIZES.into_iter().enumerate() {
            for ((name, between), rates) in ways.iter().zip(&mut rates) {
                let rate = forward(*between, size - CHECK_SEQUENCE, time);
                let rate = rate.map_err(|error| format!("{name}, {size} bytes: {error}"))?;
                rates[at].push(rate * ((size + LINE_BYTES) * 8) as f64 / 1e9);
            }
        }
    }
    for ((name, _), rates) in ways.iter().zip(rates) {
        for (size, rates) in SIZES.into_iter().zip(rates) {
            let row = Row::new(format!("{size} bytes, {name}"), "Gbit/s", rates);
            report.rows.push(row.curve("forwarding", name, Some(size)).over("bytes of a packet"));
        }
    }
    Ok(report)
}

/// How long packets are waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a device builds for it.
pub(crate) fn programs() -> Vec<Program> {
    let stages: Vec<Box<dyn Stage<()>>> = vec![Box::new(Carry)];
    let made = engine::device_programs(&stages).expect("columns of one stage fit");
    made.into_iter().map(|(program, _)| program).collect()
}

/// Packets a second.
fn forward(between: Between, size: usize, time: Duration) -> Result<f64, String> {
    let depot = depot()?;
    let mut pool = Pool::new(depot.clone(), 512);
    let frames: Vec<Vec<u8>> = (0..PACKETS).map(|number| vec![number as u8; size]).collect();
    let frames = frames.iter().map(Vec::as_slice);
    let mut replay = Replay::new(&mut pool, frames, false).ok_or("too few cells")?;
    let mut worker = WorkerSpec::new(OneVersion, vec![Box::new(Carry) as _]);
    worker.tx = vec![TxSlot::Own(Box::new(replay.recycle(4096)), Arc::default())];
    worker.rx.push(RxSlot {
        entry: engine::Entry::default(),
        port: 0,
        mark: 0,
        queue: Box::new(replay),
        spread: None,
        counters: Arc::default(),
    });
    drop(pool);
    let driver = |backend, packing| {
        let options = accelerator::Options { packing, ..accelerator::Options::default() };
        Ok::<_, String>(DeviceKind::Driver {
            driver: open(backend)?,
            tables: Box::new(NoTables),
            options,
        })
    };
    let kind = match between {
        Between::Nothing => None,
        Between::Simulated => Some(DeviceKind::Simulated {
            cost: Cost { launch: Duration::ZERO, row: Duration::ZERO },
            faults: FaultPlan::default(),
        }),
        Between::Packed(backend) => Some(driver(backend, Packing::Packed)?),
        Between::Chosen(backend) => Some(driver(backend, Packing::Auto)?),
    };
    let has_device = kind.is_some();
    let device = |kind| DeviceSpec { kind, slots: JOBS, rows: JOB_ROWS, policy: Policy::Device };
    let failures = Arc::new(AtomicU64::new(0));
    let failed = failures.clone();
    let engine = Engine::start(EngineSpec {
        chunks: 64,
        devices: kind.map(device).into_iter().collect(),
        on_device_error: Arc::new(move |_, event| {
            files::output::note(format_args!("{event:?}"));
            failed.fetch_add(1, Ordering::Relaxed);
        }),
        ..EngineSpec::new(vec![worker], depot)
    });
    let engine = engine.map_err(|e| e.to_string())?;
    let view = engine.view().clone();
    let sent = || view.workers.iter().map(|worker| worker.tx_packets.get()).sum::<u64>();
    let on_device = || view.masters().iter().map(|master| master.packets).sum::<u64>();
    // A device builds its program first, and what stands for one may be slow: until packets come, for a time.
    let wait = |time: Duration, (before, before_on_device): (u64, u64)| {
        let begin = Instant::now();
        std::thread::sleep(time);
        let comes = || sent() > before && (!has_device || on_device() > before_on_device);
        while !comes() && begin.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
        begin.elapsed().as_secs_f64()
    };
    wait(time / 4, (0, 0));
    let (before, before_on_device) = (sent(), on_device());
    let seconds = wait(time, (before, before_on_device));
    let (packets, shaded) = (sent() - before, on_device() - before_on_device);
    let dropped: u64 = view.reasons().iter().map(|reason| view.drops(reason.code())).sum();
    engine.stop(Duration::from_secs(5))?;
    let failures = failures.load(Ordering::Relaxed);
    if packets == 0 || dropped > 0 || failures > 0 || has_device != (shaded > 0) {
        return Err(format!(
            "{packets} packets sent, {shaded} of them were at the device, {dropped} dropped, {failures} failures"
        ));
    }
    Ok(packets as f64 / seconds)
}

/// Cells for the packets of a case and those under way, which all cases share.
fn depot() -> Result<Arc<Depot>, String> {
    static DEPOT: OnceLock<Arc<Depot>> = OnceLock::new();
    if DEPOT.get().is_none() {
        let made = Region::new(PACKETS as u32 + 32_768, HugePages::Advise).map_err(text)?;
        DEPOT.get_or_init(|| made.1);
    }
    DEPOT.get().cloned().ok_or_else(|| "no cells".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_pass_with_and_without_a_device() {
        let time = Duration::from_millis(40);
        for between in [Between::Nothing, Between::Simulated] {
            assert!(forward(between, 60, time).unwrap() > 0.0);
        }
    }
}
