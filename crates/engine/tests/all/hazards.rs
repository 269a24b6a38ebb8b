//! Many queues, states, panics, places: what must hold where there are two of everything.

mod ends;
mod pipelines;
mod places;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chunk::{Chunk, HugePages, Packet, Pool, Region, Verdict, reasons};
use device::accelerator::Options;
use device::faulty::Faults;
use engine::{
    Context, DeviceSpec, Engine, EngineSpec, KernelForm, QueueCounters, RxSlot, Shade, Stage,
    StagePanic, StateForm, TxSlot, WorkerSpec,
};
use teststages::brittle::{Breaks, Brittle, Call};
use teststages::harness::{
    Backing, Bed, Feed, NumberImage, Numbered, Run, Setup, Stages, flow_hash, numbered, watchdog,
};
use teststages::parts::{At, Meddler, Named, Out, Plain, Sift, Touchy, Turn, flow_of};
use teststages::{Count, Find, Sum, Xor};

const FLOWS: usize = 256;

fn one() -> Numbered {
    Numbered::new(1)
}

/// Sends everything to port 0.
fn out() -> Box<dyn Stage<u64>> {
    Box::new(Out { ports: 1 })
}

/// `packets` frames of 60 bytes: a flow, and a number that grows.
fn input(packets: usize) -> Vec<Vec<u8>> {
    (0..packets)
        .map(|i| {
            let mut frame = vec![0; 60];
            frame[0] = (i * 7 % 251) as u8;
            frame[4..8].copy_from_slice(&(i as u32).to_be_bytes());
            frame
        })
        .collect()
}

/// The device of the tests, with faults.
fn device(faults: Faults, slots: usize, rows: usize) -> DeviceSpec<u64> {
    let options = Options { patience: Duration::from_secs(60), ..Options::default() };
    let setup = Setup { faults, slots, rows, options, ..Setup::default() };
    setup.devices(|| Box::new(NumberImage) as Box<_>).remove(0)
}

/// The first worker receives for all, and sends.
fn bed(input: Vec<Vec<u8>>) -> Bed<Numbered> {
    Bed::new(input)
}

/// Runs a bed with so many workers; nothing is lost by it.
fn run(bed: Bed<Numbered>, workers: usize, stages: impl Fn(usize) -> Stages<u64>) -> Run {
    let done = bed.run(numbered(workers, stages));
    done.conserves().unwrap();
    done
}

fn sent(done: &Run) -> usize {
    done.frames().count()
}

/// A queue that always has packets.
struct Endless(io::QueueStats);

impl io::RxQueue for Endless {
    fn recv(&mut self, pool: &mut Pool, out: &mut Vec<Packet>, max: usize) -> usize {
        let before = out.len();
        out.extend((0..max).map_while(|_| Packet::copy_from(pool, &[1; 60])));
        self.0.packets += (out.len() - before) as u64;
        out.len() - before
    }
    fn stats(&self) -> io::QueueStats {
        self.0
    }
}

#[test]
fn queues_that_are_always_full_are_served_alike() {
    for (queues, chunks) in [(12, 8), (40, 2), (3, 64)] {
        let (_, depot) = Region::new(40_000, HugePages::Off).unwrap();
        let counters: Vec<Arc<QueueCounters>> = (0..queues).map(|_| Arc::default()).collect();
        let mut worker = WorkerSpec::new(one(), vec![out()]);
        worker.rx = counters
            .iter()
            .map(|counters| RxSlot {
                entry: engine::Entry::default(),
                port: 0,
                mark: 0,
                queue: Box::new(Endless(io::QueueStats::default())),
                spread: None,
                counters: counters.clone(),
            })
            .collect();
        worker.tx = vec![TxSlot::Own(Box::new(io::memory::Sink::new()), Arc::default())];
        let spec = EngineSpec { chunks, ..EngineSpec::new(vec![worker], depot) };
        let engine = Engine::start(spec).unwrap();
        let total = || counters.iter().map(|c| c.get().packets).sum::<u64>();
        while total() < 1_000 * 256 {
            std::thread::sleep(Duration::from_millis(1));
        }
        engine.stop(Duration::from_secs(5)).unwrap();
        let served: Vec<u64> = counters.iter().map(|c| c.get().packets).collect();
        let (min, max) = (served.iter().min().unwrap(), served.iter().max().unwrap());
        assert!(max - min <= 2 * 256, "{queues} queues, {chunks} chunks: {served:?}");
    }
}

/// Two stages with state in segments of their own; each launch fails once.
#[test]
fn a_failed_launch_loses_the_state_of_no_segment() {
    const PACKETS: usize = 20_000;
    for at in 4..24 {
        let faults = Faults { after_launches: 3, launch: Some(at), ..Faults::default() };
        let (a, b) = (Count::new(), Count::second());
        let bed = Bed { devices: vec![device(faults, 4, 8192)], ..bed(input(PACKETS)) };
        let done = run(bed, 1, |_| vec![Box::new(a.clone()), Box::new(b.clone()), out()]);
        assert_eq!(sent(&done), PACKETS);
        assert_eq!((a.sum(), b.sum()), (PACKETS as u64, PACKETS as u64), "launch {at}");
        let frames: Vec<_> = done.frames().collect();
        assert!(frames.is_sorted_by_key(|frame| frame[4..8].to_vec()), "launch {at}");
    }
}

/// A segment on the device before one with state: their chunks share few arenas.
#[test]
fn segments_that_share_few_arenas_come_to_their_end() {
    for (workers, slots, rows, chunks) in
        [(1, 2, 256, 64), (1, 2, 512, 64), (1, 4, 8192, 64), (4, 4, 8192, 64), (4, 1, 256, 4)]
    {
        let counts: Vec<_> = (0..workers).map(|_| Count::new()).collect();
        let slow = Faults { slow: Some(Duration::from_millis(1)), ..Faults::default() };
        let bed = Bed { devices: vec![device(slow, slots, rows)], chunks, ..bed(input(30_000)) };
        let done = run(bed, workers, |i| vec![Box::new(Plain), Box::new(counts[i].clone()), out()]);
        let counted: u64 = counts.iter().map(Count::sum).sum();
        assert_eq!((sent(&done), counted), (30_000, 30_000));
    }
}

/// A stage that writes a column which it did not declare is named with the column, and its chunks are dropped.
#[test]
#[cfg(debug_assertions)]
fn a_stage_that_writes_columns_of_others_is_caught() {
    for (at, step) in [(At::Pre, "pre_shade"), (At::Shade, "shade"), (At::Post, "post_shade")] {
        let bed = Bed { chunk_packets: 32, ..bed(input(64)) };
        let done = run(bed, 1, |_| vec![Box::new(Meddler(at)), Box::new(Sum), out()]);
        assert_eq!(done.view.drops(reasons::STAGE_PANIC), 64);
        assert_eq!(done.panics.len(), 2);
        let StagePanic { stage, step: named, message, packets, .. } = &done.panics[0];
        assert_eq!((*stage, *named, *packets), ((0, "meddler"), step, 32));
        assert_eq!(message, "stage `meddler` wrote column `sum`, which it did not declare");
    }
    let done = run(bed(input(64)), 1, |_| vec![Box::new(Meddler(At::Never)), Box::new(Sum), out()]);
    assert_eq!((sent(&done), done.panics.len()), (64, 0));
}

#[test]
fn a_panic_costs_its_chunk_and_names_stage_packet_and_line() {
    for at in [At::Pre, At::Shade, At::Post] {
        // One packet of flow 13 in each 251, ten of them in all.
        let bed = Bed { chunk_packets: 32, ..bed(input(2_510)) };
        let done = run(bed, 1, |_| vec![Box::new(Touchy::new(at)), out()]);
        let dropped = done.view.drops(reasons::STAGE_PANIC);
        assert_eq!(sent(&done) as u64 + dropped, 2_510, "{at:?}");
        assert_eq!(dropped, 10 * 32, "{at:?}: ten chunks of 32");
        assert!(done.frames().all(|frame| frame[0] != 13));
        assert_eq!(done.panics.len(), 10);
        assert_eq!(done.view.workers[0].panics.get(), 10);
        for panic in &done.panics {
            let (_, bytes) = panic.packet.clone().expect("the packet is known");
            assert_eq!((bytes[0], panic.stage), (13, (0, "touchy")));
            // The engine knows no configuration: who wires the stages does.
            let panic = StagePanic { origin: "test.toml:7".into(), ..panic.clone() };
            let text = panic.to_string();
            assert!(
                text.contains("`touchy` (test.toml:7)") && text.contains("as planned"),
                "{text}"
            );
        }
    }
}

#[test]
fn a_worker_that_panics_too_often_gives_its_work_to_another() {
    for workers in [1, 3] {
        let bed = Bed { chunk_packets: 16, ..bed(input(60_000)) };
        let done = run(bed, workers, |i| {
            vec![Box::new(Touchy::new(if i == 0 { At::Pre } else { At::Never })), out()]
        });
        let panicked = done.view.drops(reasons::STAGE_PANIC);
        assert_eq!(sent(&done) as u64 + done.drops(), 60_000, "{workers} workers");
        let gave_up: Vec<_> = done.view.workers.iter().map(|w| w.gave_up.get()).collect();
        if (u64::from(flow_hash(&[13])) * workers as u64) >> 32 == 0 {
            assert_eq!(gave_up.iter().sum::<u64>(), 1, "{gave_up:?}");
            assert!(done.panics.last().unwrap().gave_up);
            if workers > 1 {
                let of_13 = done.frames().filter(|frame| frame[0] == 13).count();
                assert!(of_13 > 0, "another worker takes the flow");
                assert!(panicked <= 16 * 16, "{panicked}");
            }
        }
    }
}

/// Three workers with a queue each, of which the first one gives up: the second one, and after it the third, receive
/// what comes there. In the end one worker is left with all queues.
#[test]
fn a_worker_that_gives_up_gives_its_queues_to_the_next() {
    for touchy in [vec![0], vec![0, 1], vec![1, 2], vec![2]] {
        let (_, depot) = Region::new(20_000, HugePages::Off).unwrap();
        let workers = (0..3).map(|i| {
            let at = if touchy.contains(&i) { At::Pre } else { At::Never };
            let mut worker = WorkerSpec::new(one(), vec![Box::new(Touchy::new(at)), out()]);
            let queue = Box::new(io::memory::Script::untimed(input(60_000)));
            worker.rx = vec![RxSlot {
                entry: engine::Entry::default(),
                port: 0,
                mark: 0,
                queue,
                spread: None,
                counters: Arc::default(),
            }];
            worker.tx = vec![TxSlot::Own(Box::new(io::memory::Sink::new()), Arc::default())];
            worker
        });
        let spec = EngineSpec::new(workers.collect(), depot);
        let on_panic = Arc::new(|_: StagePanic| {});
        let spec = EngineSpec {
            chunk_packets: 16,
            lossless: true,
            until_finished: true,
            on_panic,
            ..spec
        };
        let engine = Engine::start(spec).unwrap();
        let view = engine.view().clone();
        engine.join().unwrap();
        let received: Vec<u64> =
            view.workers.iter().map(|worker| worker.rx_packets.get()).collect();
        let gave_up: Vec<usize> = (0..3).filter(|&i| view.workers[i].gave_up.get() == 1).collect();
        assert_eq!(received.iter().sum::<u64>(), 180_000);
        assert_eq!(gave_up, touchy);
        assert!(touchy.iter().all(|&i| received[i] < 60_000), "{touchy:?}: {received:?}");
        let dropped = view.drops(reasons::STAGE_PANIC);
        assert_eq!(dropped, 16 * 16 * touchy.len() as u64, "{touchy:?}: nothing else is lost");
        let sent: u64 = view.workers.iter().map(|worker| worker.tx_packets.get()).sum();
        assert_eq!(sent + dropped, 180_000);
    }
}

/// Panics where the engine asks for a time or a number.
struct Asked(&'static str);

impl Asked {
    fn answer(&self, step: &str) {
        assert!(self.0 != step, "as planned");
    }
}

impl Stage<u64> for Asked {
    fn name(&self) -> &'static str {
        "asked"
    }
    fn next_tick_ns(&self) -> Option<u64> {
        self.answer("next_tick_ns");
        None
    }
    fn next_sweep_ns(&self) -> Option<u64> {
        self.answer("next_sweep_ns");
        Some(0)
    }
    fn sweep(&mut self, _: &mut chunk::Rows, _: &mut Context<'_, u64>) -> usize {
        self.answer("sweep");
        0
    }
    fn held(&self) -> usize {
        self.answer("held");
        0
    }
}

#[test]
fn a_stage_that_panics_when_it_is_asked_gives_up_and_the_other_worker_goes_on() {
    for step in ["next_tick_ns", "next_sweep_ns", "sweep", "held"] {
        let done = run(bed(input(20_000)), 2, |i| {
            vec![Box::new(Asked(if i == 0 { step } else { "" })), out()]
        });
        assert!(!done.panics.is_empty(), "{step}");
        assert!(done.panics.iter().all(|panic| panic.step == step && panic.stage.1 == "asked"));
        assert_eq!(sent(&done), 20_000, "{step}: it costs no packet");
    }
}

#[test]
fn a_tick_that_panics_is_counted_and_the_rest_goes_on() {
    let done = run(bed(input(1_000)), 1, |_| vec![Box::new(Touchy::new(At::Tick)), out()]);
    assert!(done.panics.iter().all(|panic| panic.step == "tick" && panic.packet.is_none()));
    assert!(!done.panics.is_empty());
    assert_eq!(sent(&done) as u64 + done.drops(), 1_000);
}

/// A receive queue that panics: no stage's fault, so the thread dies.
struct Broken(Arc<AtomicBool>);

impl io::RxQueue for Broken {
    fn recv(&mut self, _: &mut Pool, _: &mut Vec<Packet>, _: usize) -> usize {
        self.0.store(true, Ordering::Relaxed);
        panic!("the queue is broken, as planned");
    }
    fn stats(&self) -> io::QueueStats {
        io::QueueStats::default()
    }
}

#[test]
fn a_worker_that_dies_does_not_keep_others_from_stopping() {
    let limit = Duration::from_secs(30);
    let ended = watchdog::within(limit, "three workers", String::new, || {
        let (_, depot) = Region::new(6000, HugePages::Off).unwrap();
        let died = Arc::new(AtomicBool::new(false));
        let workers = (0..3)
            .map(|i| {
                let mut worker = WorkerSpec::new(one(), vec![out()]);
                let queue: Box<dyn io::RxQueue> = match i {
                    1 => Box::new(Broken(died.clone())),
                    _ => Box::new(Endless(io::QueueStats::default())),
                };
                let (spread, counters) = (Some(flow_hash.into()), Arc::default());
                worker.rx = vec![RxSlot {
                    entry: engine::Entry::default(),
                    port: 0,
                    mark: 0,
                    queue,
                    spread,
                    counters,
                }];
                worker.tx = vec![TxSlot::Absent];
                worker
            })
            .collect();
        let engine = Engine::start(EngineSpec::new(workers, depot)).unwrap();
        while !died.load(Ordering::Relaxed) || !engine.is_finished() {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(20));
        engine.stop(Duration::from_secs(1))
    });
    assert!(ended.unwrap_err().contains("as planned"));
}

/// A receive queue that gives packets for a while and panics then.
struct Breaking {
    left: usize,
    stats: io::QueueStats,
}

impl io::RxQueue for Breaking {
    fn recv(&mut self, pool: &mut Pool, out: &mut Vec<Packet>, max: usize) -> usize {
        assert!(self.left > 0, "the queue breaks, as planned");
        let n = max.min(self.left).min(64);
        self.left -= n;
        out.extend((0..n).map_while(|_| Packet::copy_from(pool, &[1; 60])));
        n
    }
    fn stats(&self) -> io::QueueStats {
        self.stats
    }
}

/// A worker dies while its shard is at home on the device and chunks of it are there: the others and the master go on.
#[test]
fn a_worker_that_dies_while_its_state_is_away_ends_alone() {
    if !testkit::require_opencl() {
        return;
    }
    let counts = [Count::new(), Count::new()];
    let kept = counts.clone();
    let ended = watchdog::within(Duration::from_secs(60), "two workers", String::new, move || {
        let (_, depot) = Region::new(20_000, HugePages::Off).unwrap();
        let slow = Faults { slow: Some(Duration::from_millis(5)), ..Faults::default() };
        let workers = kept
            .iter()
            .enumerate()
            .map(|(i, count)| {
                let stages: Vec<Box<dyn Stage<u64>>> = vec![Box::new(count.clone()), out()];
                let mut worker = WorkerSpec::new(one(), stages);
                let left = if i == 0 { 2_000 } else { 20_000 };
                let queue: Box<dyn io::RxQueue> =
                    Box::new(Breaking { left, stats: io::QueueStats::default() });
                let (spread, counters) = (None, Arc::default());
                worker.rx = vec![RxSlot {
                    entry: engine::Entry::default(),
                    port: 0,
                    mark: 0,
                    queue,
                    spread,
                    counters,
                }];
                let sink = io::memory::Sink::new();
                worker.tx = vec![TxSlot::Own(Box::new(sink), Arc::default())];
                worker
            })
            .collect();
        let devices = vec![device(slow, 4, 1024)];
        let spec = EngineSpec { devices, chunks: 64, ..EngineSpec::new(workers, depot) };
        Engine::start(spec).unwrap().join()
    });
    assert!(ended.unwrap_err().contains("as planned"));
    let sum = |count: &Count| (0..=255).map(|flow| count.of(flow)).sum::<u64>();
    // What came back before the worker died was counted once.
    assert!(sum(&counts[0]) <= 2_000 && sum(&counts[1]) <= 20_000);
    assert!(sum(&counts[1]) > 2_000, "the second one went on without the first");
}

/// Workers of two pipelines on two devices, one of which is lost: the other goes on.
#[test]
fn two_pipelines_share_two_devices_and_one_is_lost() {
    let lost = Faults { after_launches: 10, lost: Some(8), ..Faults::default() };
    let counts: Vec<_> =
        (0..4).map(|i| if i % 2 == 1 { Count::second() } else { Count::new() }).collect();
    let devices = vec![device(Faults::default(), 4, 2048), device(lost, 4, 2048)];
    let bed = Bed { devices, ..bed(input(40_000)) };
    let done = run(bed, 4, |i| match i {
        0 | 2 => vec![Box::new(Plain), Box::new(counts[i].clone()), out()],
        _ => vec![Box::new(counts[i].clone()), out()],
    });
    let pipelines: Vec<_> = done.view.pipelines.iter().map(|own| own.stages.clone()).collect();
    assert_eq!(pipelines, [0..3, 3..5]);
    assert_eq!(sent(&done), 40_000);
    let masters = done.view.masters();
    assert!(!masters[0].is_lost && masters[0].jobs > 0 && masters[0].failed == 0, "{masters:?}");
    let counted: u64 = counts.iter().map(Count::sum).sum();
    assert_eq!(counted, 40_000);
}

/// A second pipeline's segment on the simulated device is shaded by its own stages.
#[test]
fn each_pipeline_has_its_own_shades_on_the_simulated_device() {
    let setup = Setup { backing: Backing::Simulated, ..Setup::default() };
    let devices = setup.devices(|| Box::new(NumberImage) as Box<_>);
    // Two workers of the first pipeline, two of the second; a queue of each is spread over its own pipeline's.
    let queue = || Box::new(io::memory::Script::untimed(input(20_000)));
    let feed = |worker| Feed {
        worker,
        port: 0,
        queue: queue(),
        spread: Some(flow_hash.into()),
        entry: engine::Entry::default(),
    };
    let bed = Bed { devices, feeds: vec![feed(0), feed(3)], ..bed(Vec::new()) };
    let done = run(bed, 4, |i| match i {
        0 | 2 => vec![out()],
        _ => vec![Box::new(Sift), out()],
    });
    let sifted = input(20_000).iter().filter(|f| Sift::drops(f[0])).count();
    assert!(sifted > 1_000 && done.view.master().is_some_and(|master| master.packets > 0));
    assert_eq!(done.view.drops(teststages::reasons::TEST), sifted as u64);
    assert!(done.view.workers.iter().all(|worker| worker.chunks.get() > 0), "all have work");
}

/// Keeps the number of the last chunk that it saw, in each of its steps.
struct InOrder {
    seen: [u64; 2],
    odd: Arc<Mutex<usize>>,
}

impl InOrder {
    fn look(&mut self, step: usize, chunk: &Chunk) {
        let is_odd = std::mem::replace(&mut self.seen[step], chunk.seq + 1) > chunk.seq;
        *self.odd.lock().unwrap() += usize::from(is_odd);
    }
}

impl Stage<u64> for InOrder {
    fn name(&self) -> &'static str {
        "in_order"
    }
    fn pre_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, u64>) {
        self.look(0, chunk);
    }
    fn post_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, u64>) {
        self.look(1, chunk);
    }
}

/// Chunks that begin at a place let none behind them overtake those before them.
#[test]
fn stages_see_chunks_in_order_beside_those_that_begin_at_a_place() {
    for workers in [1, 3] {
        let odd: Arc<Mutex<usize>> = Arc::default();
        let slow = Faults { slow: Some(Duration::from_millis(1)), ..Faults::default() };
        let devices = vec![device(slow, 4, 512)];
        let bed = Bed { devices, chunk_packets: 16, ..bed(input(8_000)) };
        let done = run(bed, workers, |_| {
            vec![
                Box::new(Named(Turn::FIRST)),
                Box::new(Turn),
                Box::new(Plain),
                Box::new(InOrder { seen: [0; 2], odd: odd.clone() }),
                Box::new(Named(Turn::LAST)),
                out(),
            ]
        });
        assert!(done.sum(|w| w.again.get()) > 1_000);
        assert_eq!(*odd.lock().unwrap(), 0, "{workers} workers");
    }
}

/// What a stage took over before another one panicked, behind a segment on a device, has one fate.
#[test]
fn a_panic_behind_a_device_counts_no_packet_twice() {
    let devices = vec![device(Faults::default(), 4, 2048)];
    let bed = Bed { devices, chunk_packets: 64, ..bed(input(2_510)) };
    let done = run(bed, 1, |_| {
        vec![
            Box::new(Named(Turn::FIRST)),
            Box::new(Plain),
            Box::new(Turn),
            Box::new(Touchy::new(At::Pre)),
            Box::new(Named(Turn::LAST)),
            out(),
        ]
    });
    assert_eq!(done.panics.len(), 10);
    assert!(done.sum(|w| w.handed_over.get()) > 100);
}

/// Counts packets by port, and is slower than all who send.
struct ByPort(Arc<[AtomicU64; 5]>);

impl Stage<u64> for ByPort {
    fn name(&self) -> &'static str {
        "by_port"
    }
    fn post_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, u64>) {
        for packet in &chunk.packets {
            self.0[usize::from(packet.port)].fetch_add(1, Ordering::Relaxed);
        }
        chunk.rows.verdicts().fill(Verdict::drop(teststages::reasons::TEST).0);
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Workers whose queues are always full spread all they get to the last one, whose own queue may be full as well. Its
/// chunks are so small that each ring could fill them all.
///
/// A sender that gets no processor leaves its ring empty, which is not the receiver's fault: of many windows one is
/// enough in which all were served alike. Without the rotation there is none.
#[test]
fn rings_that_are_always_full_are_served_alike() {
    for (rings, own, lossless) in
        [(2, false, true), (2, true, true), (3, false, true), (4, true, true), (4, true, false)]
    {
        let (_, depot) = Region::new(40_000, HugePages::Off).unwrap();
        let seen: Arc<[AtomicU64; 5]> = Arc::default();
        let workers = (0..=rings)
            .map(|i| {
                let mut worker = WorkerSpec::new(one(), vec![Box::new(ByPort(seen.clone())) as _]);
                let (queue, counters) =
                    (Box::new(Endless(io::QueueStats::default())), Arc::default());
                let spread = (i < rings).then(|| (|_: &[u8]| u32::MAX).into());
                worker.rx = vec![RxSlot {
                    entry: engine::Entry::default(),
                    port: i as u16,
                    mark: 0,
                    queue,
                    spread,
                    counters,
                }];
                worker.rx.truncate(usize::from(i < rings || own));
                worker
            })
            .collect();
        let spec = EngineSpec { chunk_packets: 16, lossless, ..EngineSpec::new(workers, depot) };
        let engine = Engine::start(spec).unwrap();
        let read = || [0, 1, 2, 3, 4].map(|port: usize| seen[port].load(Ordering::Relaxed));
        let mut windows = Vec::new();
        let is_fair = (0..40).any(|_| {
            let before = read();
            let served = || -> Vec<u64> {
                read().iter().zip(before).map(|(now, before)| now - before).collect()
            };
            while served()[..rings].iter().sum::<u64>() < 16_000 {
                std::thread::sleep(Duration::from_millis(1));
            }
            let served = served();
            windows.push(served.clone());
            let (least, most) = (served[..rings].iter().min(), served[..rings].iter().max());
            // Half of each chunk is for the queues.
            let (queue, all) = (served[rings], served[..rings].iter().sum::<u64>());
            2 * least.unwrap() > *most.unwrap() && (!own || queue.abs_diff(all) < all / 2)
        });
        engine.stop(Duration::from_secs(5)).unwrap();
        assert!(is_fair, "{rings} rings, own queue: {own}: {windows:?}");
    }
}

/// Sends packets once more, by turns from two places.
struct Fork;

impl Stage<u64> for Fork {
    fn name(&self) -> &'static str {
        "fork"
    }
    fn sends_to(&self) -> &'static [&'static str] {
        &["left", "right"]
    }
    fn post_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, u64>) {
        let places = [cx.place("left").unwrap(), cx.place("right").unwrap()];
        for (row, verdict) in chunk.rows.verdicts().iter_mut().enumerate() {
            *verdict = Verdict::again(places[row % 2]).0;
        }
    }
}

/// A place.
struct Somewhere(&'static str);

impl Stage<u64> for Somewhere {
    fn name(&self) -> &'static str {
        self.0
    }
}

#[test]
fn packets_for_places_by_turns_are_not_lost() {
    let done = run(bed(input(30_000)), 1, |_| {
        vec![Box::new(Fork), Box::new(Somewhere("left")), Box::new(Somewhere("right")), out()]
    });
    assert_eq!((done.frames().count(), done.view.workers[0].again.get()), (30_000, 30_000));
}

/// [`Plain`] whose shade panics over flow 13, also on the simulated device.
struct Explosive;

impl Stage<u64> for Explosive {
    fn name(&self) -> &'static str {
        "explosive"
    }
    fn columns(&self) -> &'static [chunk::Declaration] {
        Plain.columns()
    }
    fn shader(&self) -> Option<Arc<dyn engine::Shade<u64>>> {
        Some(Arc::new(Explosive))
    }
}

impl engine::Shade<u64> for Explosive {
    fn shade(&self, _: &mut chunk::Rows, _: &u64) {}
    fn shade_packets(&self, _: &mut chunk::Rows, packets: &mut [Packet], _: &u64) {
        assert!(packets.iter().all(|packet| flow_of(packet) != 13), "flow 13, as planned");
    }
    fn kernels(&self) -> Option<engine::KernelForm> {
        Some(engine::KernelForm {
            text: "KERNEL(nothing)\n{\n}\n".into(),
            steps: vec![engine::Step::rows("nothing", 64).into()],
            ..engine::KernelForm::default()
        })
    }
}

#[test]
fn a_shade_that_panics_on_the_simulated_device_costs_its_chunks() {
    let cost = device::Cost { launch: Duration::from_micros(20), row: Duration::ZERO };
    let kind = engine::DeviceKind::Simulated { cost, faults: device::FaultPlan::default() };
    let device = DeviceSpec { kind, slots: 4, rows: 1024, policy: engine::Policy::Device };
    let limit = Duration::from_secs(60);
    let done = watchdog::within(limit, "a shade that panics", String::new, move || {
        let bed = Bed { devices: vec![device], chunk_packets: 32, ..bed(input(2_510)) };
        run(bed, 1, |_| vec![Box::new(Xor), Box::new(Explosive), out()])
    });
    assert_eq!(done.view.segments.len(), 2, "both shades make one job");
    // What the first shade had changed in the job's other chunks was not changed twice.
    assert!(done.frames().all(|frame| frame[1] == frame[0] | 1));
    let dropped = done.view.drops(reasons::STAGE_PANIC);
    assert_eq!((done.frames().count() as u64 + dropped, dropped), (2_510, 10 * 32));
    assert_eq!(done.panics.len(), 10);
}

/// A shade with state and without a twin.
struct Alone;

impl Stage<u64> for Alone {
    fn name(&self) -> &'static str {
        "alone"
    }
    fn shader(&self) -> Option<Arc<dyn Shade<u64>>> {
        Some(Arc::new(Alone))
    }
}

impl Shade<u64> for Alone {
    fn shade(&self, _: &mut chunk::Rows, _: &u64) {}
    fn kernels(&self) -> Option<KernelForm> {
        let state = Some(StateForm { record_bytes: 4, slots_per_step: 16 });
        Some(KernelForm { state, ..KernelForm::default() })
    }
}

/// Sends packets to a stage that is there twice.
struct Lost;

impl Stage<u64> for Lost {
    fn name(&self) -> &'static str {
        "lost"
    }
    fn sends_to(&self) -> &'static [&'static str] {
        &["twice"]
    }
}

/// What cannot work is an error at the start, which names what is wrong; nothing goes on behind it.
#[test]
fn what_cannot_work_is_refused_at_the_start() {
    let refused = |device: Option<DeviceSpec<u64>>, stages: &dyn Fn(usize) -> Stages<u64>| {
        let (_, depot) = Region::new(2_000, HugePages::Off).unwrap();
        let workers = (0..2).map(|i| WorkerSpec::new(one(), stages(i))).collect();
        let spec =
            EngineSpec { devices: device.into_iter().collect(), ..EngineSpec::new(workers, depot) };
        match Engine::start(spec) {
            Ok(engine) => engine.stop(Duration::from_secs(5)).map(|()| String::new()).unwrap(),
            Err(error) => error.to_string(),
        }
    };
    let simulated = |rows| {
        let cost = device::Cost { launch: Duration::ZERO, row: Duration::ZERO };
        let faults = device::FaultPlan::default();
        let kind = engine::DeviceKind::Simulated { cost, faults };
        Some(DeviceSpec { kind, slots: 2, rows, policy: engine::Policy::Device })
    };
    assert_eq!(refused(simulated(256), &|_| vec![out()]), "");
    assert_eq!(
        refused(simulated(255), &|_| vec![out()]),
        "device 0: a job of 255 rows has no room for a chunk of 256"
    );
    assert_eq!(refused(None, &|_| vec![Box::new(Alone), out()]), "");
    assert_eq!(
        refused(simulated(256), &|_| vec![Box::new(Alone), out()]),
        "stage `alone` keeps state on devices, but its shade has no twin"
    );
    let twice = || Box::new(Named("twice"));
    assert_eq!(
        refused(None, &|_| vec![Box::new(Lost), twice(), twice(), out()]),
        "stage `lost` sends packets to stage `twice`, of which the pipeline has several"
    );
    assert_eq!(
        refused(None, &|_| vec![Box::new(Lost), out()]),
        "stage `lost` sends packets to stage `twice`, which the pipeline lacks"
    );
    if testkit::require_opencl() {
        let of_other_kernels = |i: usize| -> Stages<u64> {
            vec![Box::new(if i == 0 { Count::new() } else { Count::second() }), out()]
        };
        let message = refused(Some(device(Faults::default(), 2, 256)), &of_other_kernels);
        assert!(message.is_empty(), "other names are other pipelines: {message}");
        let finds = |i: usize| -> Stages<u64> {
            vec![Box::new(Find::new(false, 10 + i as u32, 1000)), out()]
        };
        let message = refused(Some(device(Faults::default(), 2, 256)), &finds);
        assert_eq!(
            message,
            "worker 1 has stages of the same names as a worker before it, with other kernels: find, out"
        );
    }
}

/// A stage's state cannot be read for a device: what that makes of the job counts for nothing, packets least of all.
#[test]
fn state_that_cannot_be_read_changes_no_packet_and_no_count() {
    if !testkit::require_opencl() {
        return;
    }
    for call in [Call::State, Call::Slots] {
        for (is_late, every) in [(false, 1), (false, 4), (true, 3)] {
            let count = Count::new();
            let slow = Faults { slow: Some(Duration::from_millis(1)), ..Faults::default() };
            let bed = Bed { devices: vec![device(slow, 4, 1024)], ..bed(input(20_000)) };
            let breaks = Breaks { call, is_late, every, times: 6 };
            let done = run(bed, 1, |_| {
                let brittle = Brittle::new(Box::new(count.clone()), breaks);
                vec![Box::new(brittle), Box::new(Xor), out()]
            });
            assert!(done.view.master().is_some_and(|master| master.failed > 0), "{breaks:?}");
            let once = |frame: &&Vec<u8>| frame[1] == frame[0] | 1;
            assert_eq!(done.frames().filter(once).count(), 20_000, "{breaks:?}");
            assert_eq!(count.sum(), 20_000, "{breaks:?}");
        }
    }
}

/// Jobs with state fail one behind the other, and others are launched meanwhile: none is done by both sides, or its
/// packets would be changed twice.
#[test]
fn jobs_behind_one_that_failed_change_no_packet_twice() {
    for round in 0..30 {
        let cost = device::Cost { launch: Duration::from_micros(50), row: Duration::ZERO };
        let failing = (round % 7..200).step_by(7).collect();
        let faults = device::FaultPlan { failing, ..device::FaultPlan::default() };
        let kind = engine::DeviceKind::Simulated { cost, faults };
        let device = DeviceSpec { kind, slots: 6, rows: 512, policy: engine::Policy::Device };
        let counts: Vec<Count> = (0..4).map(|_| Count::new()).collect();
        let bed = Bed { devices: vec![device], chunk_packets: 24, ..bed(input(20_000)) };
        let done = run(bed, 4, |i| vec![Box::new(counts[i].clone()), Box::new(Xor), out()]);
        assert!(done.view.master().is_some_and(|master| master.failed > 0));
        let once = |frame: &&Vec<u8>| frame[1] == frame[0] | 1;
        assert_eq!(done.frames().filter(once).count(), 20_000, "round {round}");
        assert_eq!(counts.iter().map(Count::sum).sum::<u64>(), 20_000, "round {round}");
    }
}
