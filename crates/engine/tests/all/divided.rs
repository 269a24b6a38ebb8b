//! Stages that divide chunks: a packet is seen once those before it have retired, whatever the chunks, workers and devices,
//! and all packets come out in order, also where some overtake others.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chunk::{Chunk, ColumnSet, Columns, Declaration, HugePages, ReasonBlock, Region, Verdict};
use device::{Cost, FaultPlan};
use engine::{
    Context, DeviceKind, DeviceSpec, Engine, EngineSpec, InOrder, KernelForm, Phases, Policy,
    RxSlot, Shade, Spread, Stage, Step, TxSlot, WorkerSpec,
};
use io::memory::{Collect, Script};

use super::merge::{NoTables, flow_hash, frames, serial};

chunk::columns! {
    /// What the stages pass on.
    pub struct Passing / PassingView {
        /// The serial number, by the first stage.
        pub serial: u32,
        /// What became of the packet of the flow before this one: 0 there is none, 1 it passed, 2 it was dropped.
        pub before: u32,
        /// By the shade.
        pub sum: u32,
    }
}

const NONE: u32 = 0;
const PASSED: u32 = 1;
const DROPPED: u32 = 2;

/// What becomes of a packet: every third that follows one that passed is dropped, and every other after a drop.
fn is_dropped(serial: u32, before: u32) -> bool {
    match before {
        NONE => serial.is_multiple_of(2),
        PASSED => serial.is_multiple_of(3),
        _ => serial.is_multiple_of(5),
    }
}

/// Writes the serial numbers, and ends a segment or not.
struct First;

impl Stage<()> for First {
    fn name(&self) -> &'static str {
        "first"
    }
    fn columns(&self) -> &'static [Declaration] {
        &[Passing::COLUMNS]
    }
    fn phases(&self) -> Phases {
        Phases::PRE
    }
    fn pre_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, ()>) {
        let view = Passing::view(&mut chunk.rows);
        for (to, packet) in view.serial.iter_mut().zip(&chunk.packets) {
            *to = serial(packet.data());
        }
    }
}

/// Where it divides a chunk.
#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    /// At the first packet that waits.
    All,
    /// Packets that wait are left behind, and one in every thirteenth row with all behind it.
    Single,
    /// At the first packet that waits, as a stage needs one worker.
    OfOneWorker,
    /// Likewise, as there is one worker and no merger.
    Unmerged,
}

impl How {
    fn lets_overtake(self) -> bool {
        matches!(self, How::All | How::Single)
    }
}

/// Divides where a packet of the flow is on its way.
struct Divider {
    how: How,
    fates: HashMap<u8, u32>,
    under_way: HashSet<u8>,
}

impl Stage<()> for Divider {
    fn name(&self) -> &'static str {
        "divider"
    }
    fn columns(&self) -> &'static [Declaration] {
        &[Passing::COLUMNS]
    }
    fn phases(&self) -> Phases {
        Phases::PRE
    }
    fn spread(&self) -> Spread {
        Spread::Hosts
    }
    fn divides(&self) -> bool {
        true
    }
    fn sees_retired(&self) -> bool {
        true
    }
    fn pre_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, ()>) {
        let view = Passing::view(&mut chunk.rows);
        let mut waiting = Vec::new();
        assert_eq!(cx.may_overtake(), self.how.lets_overtake().then_some(Spread::Any));
        for (row, packet) in chunk.packets.iter().enumerate() {
            let flow = packet.data()[0];
            assert_eq!(view.serial[row], serial(packet.data()), "columns go along");
            if self.under_way.contains(&flow) {
                if self.how == How::Single && (row == 0 || !row.is_multiple_of(13)) {
                    waiting.push(row as u16);
                    continue;
                }
                assert!(self.how.lets_overtake() || !cx.leave(std::iter::once(0), row + 1));
                assert!(match waiting.is_empty() {
                    true => cx.divide(row),
                    false => cx.leave(waiting.drain(..), row),
                });
                return;
            }
            self.under_way.insert(flow);
            view.before[row] = self.fates.get(&flow).copied().unwrap_or(NONE);
        }
        assert!(waiting.is_empty() || cx.leave(waiting.drain(..), chunk.packets.len()));
    }
    fn retired(&mut self, chunk: &mut Chunk, _: &mut Context<'_, ()>) {
        // Of a chunk that a panic ended no packet is here: all of them were dropped.
        if chunk.packets.is_empty() {
            self.under_way.drain().for_each(|flow| {
                let _ = self.fates.insert(flow, DROPPED);
            });
        }
        let verdicts = chunk.rows.verdicts();
        for (packet, verdict) in chunk.packets.iter().zip(verdicts) {
            let flow = packet.data()[0];
            assert!(self.under_way.remove(&flow));
            let is_forward = *verdict == Verdict::forward(0).0;
            self.fates.insert(flow, if is_forward { PASSED } else { DROPPED });
        }
    }
}

/// Sums on a device, decides, and copies some packets.
struct Judge {
    how: How,
    panics_over: Option<u32>,
    /// Packets that it saw behind later ones.
    overtaken: Arc<AtomicU32>,
    latest: u32,
}

/// Whether a packet has a copy, which leaves right behind it.
fn is_copied(serial: u32) -> bool {
    serial.is_multiple_of(11)
}

struct Sum;

impl Shade<()> for Sum {
    fn shade(&self, rows: &mut chunk::Rows, (): &()) {
        let view = Passing::view(rows);
        for (row, sum) in view.sum.iter_mut().enumerate() {
            *sum = view.serial[row].wrapping_add(view.before[row]);
        }
    }
    fn kernels(&self) -> Option<KernelForm> {
        Some(KernelForm { steps: vec![Step::rows("sum", 256).into()], ..KernelForm::default() })
    }
}

impl Stage<()> for Judge {
    fn name(&self) -> &'static str {
        "judge"
    }
    fn columns(&self) -> &'static [Declaration] {
        &[Passing::COLUMNS]
    }
    fn drop_reasons(&self) -> &'static [&'static ReasonBlock] {
        &[teststages::reasons::BLOCK]
    }
    fn reads(&self) -> ColumnSet {
        ColumnSet::of(&[Passing::SERIAL, Passing::BEFORE])
    }
    fn writes(&self) -> ColumnSet {
        ColumnSet::of(&[Passing::SUM])
    }
    fn phases(&self) -> Phases {
        Phases::POST
    }
    fn needs_one_worker(&self, (): &()) -> Option<&'static str> {
        (self.how == How::OfOneWorker).then_some("it numbers packets")
    }
    fn shader(&self) -> Option<Arc<dyn Shade<()>>> {
        Some(Arc::new(Sum))
    }
    fn post_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, ()>) {
        let view = Passing::view(&mut chunk.rows);
        let mut copies = Vec::new();
        for (row, packet) in chunk.packets.iter().enumerate() {
            let (serial, before) = (view.serial[row], view.before[row]);
            assert_eq!(serial, super::merge::serial(packet.data()));
            assert_eq!(view.sum[row], serial.wrapping_add(before));
            assert!(!self.panics_over.is_some_and(|n| serial.is_multiple_of(n)), "planned");
            self.overtaken.fetch_add(u32::from(serial < self.latest), Ordering::Relaxed);
            self.latest = self.latest.max(serial);
            if self.panics_over.is_none() && is_copied(serial) {
                copies.push((row, packet.duplicate(cx.pool).unwrap()));
            }
            view.verdict[row] = match is_dropped(serial, before) {
                true => Verdict::drop(teststages::reasons::TEST).0,
                false => Verdict::forward(0).0,
            };
        }
        copies.into_iter().for_each(|(row, copy)| chunk.emit(row, Verdict::forward(0), copy));
    }
}

type Serials = Vec<u32>;

/// What passes and what is dropped, in order.
fn run(
    how: How,
    workers: usize,
    n: u32,
    device: Option<DeviceSpec<()>>,
    panics: bool,
) -> [Serials; 2] {
    let (_, depot) = Region::new(40_000, HugePages::Off).unwrap();
    let drops: Arc<Mutex<Serials>> = Arc::default();
    let sink = drops.clone();
    let mut on_drop: Option<engine::DropSink> = Some(Box::new(move |packet, _, _| {
        sink.lock().unwrap().push(serial(packet.data()));
    }));
    let out = Collect::new();
    let passed = out.frames();
    let panics_over = panics.then_some(997);
    let overtaken = Arc::<AtomicU32>::default();
    let mut specs: Vec<_> = (0..workers)
        .map(|_| {
            let divider = Divider { how, fates: HashMap::new(), under_way: HashSet::new() };
            let judge = Judge { how, panics_over, overtaken: overtaken.clone(), latest: 0 };
            let stages: Vec<Box<dyn Stage<()>>> =
                vec![Box::new(First), Box::new(divider), Box::new(judge)];
            let mut spec = WorkerSpec::new(NoTables, stages);
            spec.tx = vec![TxSlot::Worker(0)];
            spec.on_drop = on_drop.take();
            spec
        })
        .collect();
    specs[0].tx = vec![TxSlot::Own(Box::new(out), Arc::default())];
    specs[workers - 1].rx.push(RxSlot {
        entry: engine::Entry::default(),
        port: 0,
        mark: 0,
        queue: Box::new(Script::new(frames(n))),
        spread: Some(flow_hash.into()),
        counters: Arc::default(),
    });
    let spec = EngineSpec {
        chunk_packets: 64,
        devices: device.into_iter().collect(),
        packet_time: true,
        until_finished: true,
        lossless: true,
        on_error: Arc::new(|port, error| panic!("port {port}: {error}")),
        ..EngineSpec::new(specs, depot)
    };
    let engine = match how {
        How::Unmerged => Engine::start(spec),
        _ => Engine::start_in_order(spec, InOrder::default()),
    };
    let engine = engine.unwrap();
    let (view, depot) = (engine.view().clone(), engine.depot().clone());
    engine.join().unwrap();
    assert_eq!(depot.available(), 40_000, "cells leaked");
    let overtaken = overtaken.load(Ordering::Relaxed);
    assert_eq!(overtaken > 0, how == How::Single, "{overtaken} were overtaken");
    if !panics {
        for stage in 0..3 {
            assert_eq!(view.stage(stage).packets, u64::from(n), "stage {stage}");
        }
    }
    let passed = passed.lock().unwrap().iter().map(|(_, frame)| serial(frame)).collect();
    [passed, std::mem::take(&mut *drops.lock().unwrap())]
}

/// The same, packet by packet.
fn plainly(n: u32) -> [Serials; 2] {
    let (mut fates, mut all) = (HashMap::new(), [Serials::new(), Serials::new()]);
    for (_, frame) in frames(n) {
        let (serial, before) = (serial(&frame), fates.get(&frame[0]).copied().unwrap_or(NONE));
        let is_dropped = is_dropped(serial, before);
        all[usize::from(is_dropped)].push(serial);
        all[0].extend(is_copied(serial).then_some(serial));
        fates.insert(frame[0], if is_dropped { DROPPED } else { PASSED });
    }
    all
}

#[test]
fn divided_chunks_are_packets_one_by_one() {
    let n = 20_000;
    let wanted = plainly(n);
    assert!(wanted.iter().all(|serials| serials.len() > 5_000));
    for how in [How::OfOneWorker, How::Unmerged] {
        assert!(run(how, 1, n, None, false) == wanted, "{how:?}");
    }
    let cost = Cost { launch: Duration::from_micros(30), row: Duration::from_nanos(200) };
    for how in [How::All, How::Single] {
        for workers in [1, 2, 4] {
            assert!(run(how, workers, n, None, false) == wanted, "{how:?}, {workers} workers");
        }
        for policy in [Policy::Device, Policy::Share { device: 1, of: 2 }] {
            let kind = DeviceKind::Simulated { cost, faults: FaultPlan::default() };
            let device = DeviceSpec { kind, slots: 8, rows: 2048, policy };
            assert!(run(how, 2, n, Some(device), false) == wanted, "{how:?}, with a device");
        }
    }
}

/// A panic ends the part of the chunk that it was over; the rest goes on.
#[test]
fn a_panic_leaves_the_rest_of_a_chunk() {
    let n = 3_000;
    for how in [How::All, How::Single] {
        let [passed, dropped] = run(how, 1, n, None, true);
        let mut all: Serials = passed.iter().chain(&dropped).copied().collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..n), "every packet has one fate");
        // What has overtaken the part over which a stage panicked goes before it.
        assert!(how == How::Single || passed.is_sorted());
        assert!(dropped.contains(&997) && passed.len() > 1_000);
    }
}
