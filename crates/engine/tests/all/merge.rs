//! Several workers before a merger write what one worker writes: the same packets to each port and
//! the same drops, in the same order.

use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chunk::{Chunk, Columns, Declaration, HugePages, Packet, Region, Verdict, reasons};
use device::{Cost, FaultPlan};
use engine::{
    Context, DeviceKind, DeviceSpec, Engine, EngineError, EngineSpec, Gate, InOrder, KernelForm,
    MARK_DEFERRED, Policy, RxSlot, Shade, Stage, Step, TxSlot, Versions, WorkerSpec,
};
use io::memory::{Collect, Frames, Script};

chunk::columns! {
    /// The verdict alone.
    pub struct NoColumns / NoView {}
}

#[derive(Clone)]
pub(super) struct NoTables;

pub(super) struct Nothing;

impl Deref for Nothing {
    type Target = ();
    fn deref(&self) -> &() {
        &()
    }
}

impl Versions for NoTables {
    type Tables = ();
    type Pin = Nothing;
    fn pin(&mut self) -> Nothing {
        Nothing
    }
    fn number(_: &Nothing) -> u64 {
        0
    }
}

/// A packet's fate is in its bytes: flow, port, kind, serial number. Now and then a worker sleeps.
struct Fates {
    defers: bool,
    /// It panics over every packet whose serial number is a multiple.
    panics_over: Option<u32>,
    chunks: u64,
    /// Of one worker, what the gate does.
    gate: EveryThird,
}

impl Stage<()> for Fates {
    fn name(&self) -> &'static str {
        "fates"
    }
    fn columns(&self) -> &'static [Declaration] {
        &[NoColumns::COLUMNS]
    }

    fn shader(&self) -> Option<Arc<dyn Shade<()>>> {
        struct Nothing;
        impl Shade<()> for Nothing {
            fn shade(&self, _: &mut chunk::Rows, (): &()) {}
        }
        Some(Arc::new(Nothing))
    }

    fn post_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, ()>) {
        self.chunks += 1;
        if self.chunks.is_multiple_of(3 + u64::from(cx.worker)) {
            std::thread::sleep(Duration::from_micros(300));
        }
        for row in 0..chunk.len() {
            let data = chunk.packets[row].data();
            let (port, kind) = (u16::from(data[1]), data[2]);
            let serial = serial(data);
            assert!(!self.panics_over.is_some_and(|n| serial.is_multiple_of(n)), "planned");
            chunk.rows.verdicts()[row] = match kind {
                0 => Verdict::drop(teststages::reasons::TEST).0,
                1 => Verdict::forward(9).0, // no such port
                2 => Verdict::host(0).0,
                _ => Verdict::forward(port).0,
            };
            for copy in 0..kind.saturating_sub(5) {
                let Some(mut packet) = chunk.packets[row].duplicate(cx.pool) else { continue };
                packet.data_mut()[3] = copy + 1;
                chunk.emit(row, Verdict::forward(u16::from(copy) % 2), packet);
            }
            if kind == 4 {
                let Some(mut packet) = chunk.packets[row].duplicate(cx.pool) else { continue };
                packet.data_mut()[3] = 100;
                if self.defers {
                    packet.mark = MARK_DEFERRED;
                } else if !self.gate.admits(&packet) {
                    packet.free(cx.pool);
                    continue;
                }
                chunk.emit(row, Verdict::forward(1), packet);
            }
        }
    }
}

pub(super) fn serial(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[4..8].try_into().unwrap())
}

#[derive(Default)]
struct EveryThird(u32);

impl Gate for EveryThird {
    fn admits(&mut self, packet: &Packet) -> bool {
        assert_eq!(packet.data()[2], 4);
        self.0 += 1;
        self.0.is_multiple_of(3)
    }
}

fn gated() -> InOrder {
    InOrder { gate: Some(Box::<EveryThird>::default()), ..InOrder::default() }
}

#[derive(PartialEq)]
struct Output {
    ports: Vec<Vec<(u64, Vec<u8>)>>,
    drops: Vec<(Vec<u8>, &'static str, u64)>,
    counts: (u64, u64, u64),
}

type Drops = Arc<Mutex<Vec<(Vec<u8>, &'static str, u64)>>>;

pub(super) fn frames(n: u32) -> Vec<(u64, Vec<u8>)> {
    let mut seed = 7u32;
    (0..n)
        .map(|i| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let [_, flow, port, kind] = seed.to_be_bytes();
            let mut frame = vec![flow % 50, port % 2, kind % 9, 0];
            frame.extend(i.to_be_bytes());
            frame.resize(if i % 97 == 0 { 5000 } else { 64 }, 0);
            (1_000 + u64::from(i), frame)
        })
        .collect()
}

pub(super) fn flow_hash(frame: &[u8]) -> u32 {
    u32::from(frame[0]).wrapping_mul(0x9e37_79b9)
}

fn spec(
    workers: usize,
    cells: u32,
    input: Vec<(u64, Vec<u8>)>,
    device: Option<DeviceSpec<()>>,
    defers: bool,
) -> (EngineSpec<NoTables>, Vec<Frames>, Drops) {
    let (_, depot) = Region::new(cells, HugePages::Off).unwrap();
    let drops = Drops::default();
    let sink = drops.clone();
    let mut on_drop: Option<engine::DropSink> = Some(Box::new(move |packet, reason, _| {
        let bytes = packet.segments().collect::<Vec<_>>().concat();
        sink.lock().unwrap().push((bytes, reason.name(), packet.time_ns));
    }));
    let outs = [Collect::new(), Collect::new()];
    let collected = outs.iter().map(Collect::frames).collect();
    let mut specs: Vec<_> = (0..workers)
        .map(|_| {
            let stage = Fates { defers, panics_over: None, chunks: 0, gate: EveryThird::default() };
            let mut spec = WorkerSpec::new(NoTables, vec![Box::new(stage) as _]);
            spec.tx = vec![TxSlot::Worker(0), TxSlot::Worker(0)];
            spec.host = vec![TxSlot::Absent];
            spec.on_drop = on_drop.take();
            spec
        })
        .collect();
    specs[0].tx = outs.into_iter().map(|out| TxSlot::Own(Box::new(out), Arc::default())).collect();
    specs[workers - 1].rx.push(RxSlot {
        entry: engine::Entry::default(),
        port: 0,
        mark: 0,
        queue: Box::new(Script::new(input)),
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
    (spec, collected, drops)
}

fn output(engine: Engine<NoTables>, cells: u32, frames: &[Frames], drops: &Drops) -> Output {
    let (view, depot) = (engine.view().clone(), engine.depot().clone());
    engine.join().unwrap();
    assert_eq!(depot.available(), cells as usize, "cells leaked");
    let all: u64 = view.reasons().iter().map(|r| view.drops(r.code())).sum();
    assert_eq!(view.drops(reasons::RING_FULL), 0);
    Output {
        ports: frames.iter().map(|f| std::mem::take(&mut *f.lock().unwrap())).collect(),
        drops: std::mem::take(&mut *drops.lock().unwrap()),
        counts: (all, view.emitted(), view.stage(0).packets),
    }
}

/// One worker, without a merger.
fn plainly(n: u32) -> Output {
    let (spec, collected, drops) = spec(1, 40_000, frames(n), None, false);
    output(Engine::start(spec).unwrap(), 40_000, &collected, &drops)
}

fn merged(workers: usize, cells: u32, n: u32, device: Option<DeviceSpec<()>>) -> Output {
    let (spec, collected, drops) = spec(workers, cells, frames(n), device, true);
    let engine = Engine::start_in_order(spec, gated()).unwrap();
    output(engine, cells, &collected, &drops)
}

fn assert_same(one: &Output, several: &Output, what: &str) {
    assert_eq!(one.counts, several.counts, "{what}");
    for (port, (a, b)) in one.ports.iter().zip(&several.ports).enumerate() {
        let at = a.iter().zip(b).position(|(a, b)| a != b);
        assert!(at.is_none() && a.len() == b.len(), "{what}: port {port} differs at {at:?}");
    }
    assert!(one.drops == several.drops, "{what}: other drops");
}

#[test]
fn several_workers_write_what_one_writes() {
    let one = plainly(60_000);
    assert!(one.ports.iter().all(|port| port.len() > 10_000) && one.drops.len() > 10_000);
    for workers in [1, 2, 3, 4, 8] {
        assert_same(&one, &merged(workers, 40_000, 60_000, None), &format!("{workers} workers"));
    }
}

/// With cells for little more than a burst of the longest packets, the reader waits.
#[test]
fn few_cells_hold_the_reader_up() {
    let one = plainly(20_000);
    assert_same(&one, &merged(4, 12_000, 20_000, None), "few cells");
}

#[test]
fn chunks_that_a_device_shades_come_out_in_order() {
    let one = plainly(20_000);
    let cost = Cost { launch: Duration::from_micros(30), row: Duration::from_nanos(200) };
    for policy in [Policy::Device, Policy::Share { device: 1, of: 2 }] {
        let kind = DeviceKind::Simulated { cost, faults: FaultPlan::default() };
        let device = DeviceSpec { kind, slots: 8, rows: 2048, policy };
        assert_same(&one, &merged(3, 40_000, 20_000, Some(device)), "with a device");
    }
}

/// [`EveryThird`], which says how often it was asked.
struct Counted(EveryThird, Arc<Mutex<usize>>);

impl Gate for Counted {
    fn admits(&mut self, packet: &Packet) -> bool {
        *self.1.lock().unwrap() += 1;
        self.0.admits(packet)
    }
}

/// A panic costs its chunk, wherever that is in the order: its packets are dropped at their places, and the gate is not
/// asked about what it had made. A worker that gives up drops what it was given and the others go on.
#[test]
fn panics_cost_their_chunks_and_leave_the_rest_in_order() {
    for (every, gives_up) in [(4_000, false), (100, true)] {
        let n = 40_000;
        let (mut spec, collected, drops) = spec(4, 40_000, frames(n), None, true);
        // The reader goes on, for packets that it kept would be dropped without a worker to take them.
        for (i, worker) in spec.workers.iter_mut().enumerate() {
            worker.pipelines[0].stages = vec![Box::new(Fates {
                defers: true,
                panics_over: (i > 0).then_some(every),
                chunks: 0,
                gate: EveryThird::default(),
            })];
        }
        let seen = Arc::new(Mutex::new(0));
        let sink = seen.clone();
        spec.on_panic = Arc::new(move |_| *sink.lock().unwrap() += 1);
        let asked = Arc::new(Mutex::new(0));
        let gate = Counted(EveryThird::default(), asked.clone());
        let in_order = InOrder { gate: Some(Box::new(gate)), ..InOrder::default() };
        let engine = Engine::start_in_order(spec, in_order).unwrap();
        let view = engine.view().clone();
        let out = output(engine, 40_000, &collected, &drops);
        assert!(*seen.lock().unwrap() > 0);
        let gave_up: u64 = view.workers.iter().map(|worker| worker.gave_up.get()).sum();
        assert_eq!(gave_up > 0, gives_up);
        let received = |frame: &&(u64, Vec<u8>)| frame.1[3] == 0;
        let sent: usize = out.ports.iter().map(|port| port.iter().filter(received).count()).sum();
        let dropped = out.drops.iter().filter(|drop| drop.0[3] == 0).count();
        assert_eq!(sent + dropped, n as usize, "every packet has one fate");
        for port in &out.ports {
            assert!(port.is_sorted_by_key(|(_, frame)| serial(frame)));
        }
        assert!(out.drops.is_sorted_by_key(|(frame, ..)| serial(frame)));
        let asks = |port: &Vec<(u64, Vec<u8>)>| {
            port.iter().filter(|(_, frame)| frame[2] == 4 && frame[3] == 0).count()
        };
        assert_eq!(*asked.lock().unwrap(), out.ports.iter().map(asks).sum::<usize>());
    }
}

/// A worker's thread dies, the reader's or another: its packets are lost, those of the others come out in order, and
/// nothing waits for it.
#[test]
fn a_worker_that_dies_leaves_a_gap_and_no_more() {
    for dies in [0, 1, 3] {
        let n = 40_000;
        let (mut spec, collected, _) = spec(4, 40_000, frames(n), None, true);
        spec.workers[dies].pipelines[0].stages = vec![Box::new(Fates {
            defers: true,
            panics_over: Some(500),
            chunks: 0,
            gate: EveryThird::default(),
        })];
        spec.on_panic = Arc::new(|panic| panic!("{panic}"));
        let engine = Engine::start_in_order(spec, gated()).unwrap();
        let limit = Duration::from_secs(60);
        let ended =
            teststages::harness::watchdog::within(limit, "four workers", String::new, || {
                engine.join()
            });
        assert!(ended.unwrap_err().contains("planned"));
        let ports: Vec<_> =
            collected.iter().map(|f| std::mem::take(&mut *f.lock().unwrap())).collect();
        for port in &ports {
            assert!(port.is_sorted_by_key(|(_, frame)| serial(frame)));
        }
        let last = ports.iter().flatten().map(|(_, frame)| serial(frame)).max().unwrap();
        // The last worker reads.
        assert!(dies == 3 || last > n - 500, "{dies}: the others go on, up to {last}");
    }
}

/// A device may shade it.
struct Shaded;

impl Stage<()> for Shaded {
    fn name(&self) -> &'static str {
        "shaded"
    }
    fn shader(&self) -> Option<Arc<dyn Shade<()>>> {
        Some(Arc::new(Shaded))
    }
}

impl Shade<()> for Shaded {
    fn shade(&self, _: &mut chunk::Rows, (): &()) {}
    fn kernels(&self) -> Option<KernelForm> {
        Some(KernelForm {
            text: "KERNEL(nothing)\n{\n}\n".into(),
            steps: vec![Step::rows("nothing", 64).into()],
            ..KernelForm::default()
        })
    }
}

/// A worker gives up while a device has chunks of it: what it receives then is dropped behind them.
#[test]
fn a_worker_that_gives_up_drops_nothing_before_what_is_away() {
    for workers in [1, 3] {
        let n = 20_000;
        let cost = Cost { launch: Duration::from_millis(1), row: Duration::ZERO };
        let kind = DeviceKind::Simulated { cost, faults: FaultPlan::default() };
        let device = DeviceSpec { kind, slots: 2, rows: 512, policy: Policy::Device };
        let (mut spec, collected, drops) = spec(workers, 40_000, frames(n), Some(device), true);
        for worker in &mut spec.workers {
            let gate = EveryThird::default();
            let panics_over = Some(300);
            let fates = Fates { defers: true, panics_over, chunks: 0, gate };
            worker.pipelines[0].stages = vec![Box::new(Shaded), Box::new(fates)];
        }
        spec.on_panic = Arc::new(|_| {});
        let engine = Engine::start_in_order(spec, gated()).unwrap();
        let view = engine.view().clone();
        let out = output(engine, 40_000, &collected, &drops);
        let gave_up: u64 = view.workers.iter().map(|worker| worker.gave_up.get()).sum();
        assert_eq!(gave_up, workers as u64);
        assert!(view.master().is_some_and(|master| master.jobs > 0));
        assert!(out.drops.is_sorted_by_key(|(frame, ..)| serial(frame)), "{workers} workers");
        for port in &out.ports {
            assert!(port.is_sorted_by_key(|(_, frame)| serial(frame)), "{workers} workers");
        }
    }
}

/// Takes few packets at a time.
struct Slow(Collect);

impl io::TxQueue for Slow {
    fn send(&mut self, pool: &mut chunk::Pool, packets: &mut Vec<Packet>) {
        std::thread::sleep(Duration::from_micros(100));
        let rest = packets.split_off(packets.len().min(20));
        self.0.send(pool, packets);
        *packets = rest;
    }
    fn flush(&mut self, _: &mut chunk::Pool) {}
    fn stats(&self) -> io::QueueStats {
        self.0.stats()
    }
}

/// An engine that is stopped gives its merger the same time to send as its workers.
#[test]
fn a_stop_waits_for_what_a_slow_queue_still_takes() {
    let n = 4_000;
    let (mut spec, _, drops) = spec(2, 40_000, frames(n), None, true);
    let outs = [Collect::new(), Collect::new()];
    let collected: Vec<Frames> = outs.iter().map(Collect::frames).collect();
    let slow = |out| TxSlot::Own(Box::new(Slow(out)), Arc::default());
    spec.workers[0].tx = outs.into_iter().map(slow).collect();
    spec.until_finished = false;
    let counters = spec.workers[1].rx[0].counters.clone();
    let engine = Engine::start_in_order(spec, gated()).unwrap();
    while counters.get().packets < u64::from(n) {
        std::thread::sleep(Duration::from_micros(100));
    }
    engine.stop(Duration::from_secs(60)).unwrap();
    let received = |frame: &&(u64, Vec<u8>)| frame.1[3] == 0;
    let of = |port: &Frames| port.lock().unwrap().iter().filter(received).count();
    let sent: usize = collected.iter().map(of).sum();
    let dropped = drops.lock().unwrap().iter().filter(|drop| drop.0[3] == 0).count();
    assert_eq!(sent + dropped, n as usize);
}

struct Broken;

impl Gate for Broken {
    fn admits(&mut self, _: &Packet) -> bool {
        panic!("the gate breaks, as planned");
    }
}

/// The merger's thread dies: nothing waits for it, and the engine says why it failed.
#[test]
fn a_merger_that_dies_holds_up_no_worker() {
    let (spec, ..) = spec(4, 40_000, frames(40_000), None, true);
    let in_order = InOrder { gate: Some(Box::new(Broken)), ..InOrder::default() };
    let engine = Engine::start_in_order(spec, in_order).unwrap();
    let limit = Duration::from_secs(60);
    let ended =
        teststages::harness::watchdog::within(limit, "four workers", String::new, || engine.join());
    assert!(ended.unwrap_err().contains("as planned"));
}

#[test]
fn queues_that_have_no_order_are_refused() {
    let refused = |change: fn(&mut EngineSpec<NoTables>)| {
        let (mut spec, ..) = spec(2, 10_000, frames(1), None, true);
        change(&mut spec);
        matches!(Engine::start_in_order(spec, InOrder::default()), Err(EngineError::Spec(_)))
    };
    assert!(!refused(|_| {}));
    assert!(refused(|spec| spec.workers[1].rx[0].spread = None));
    assert!(refused(|spec| spec.workers[1].rx.clear()));
    assert!(refused(|spec| {
        let queue = Box::new(io::memory::Sink::new());
        spec.workers[1].tx[0] = TxSlot::Own(queue, Arc::default());
    }));
}
