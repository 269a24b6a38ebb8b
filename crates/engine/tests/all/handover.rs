//! One engine after another over the same queues: every packet has one fate, packets of a flow keep their order, and
//! counters, state, captures and what stages hold go on.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chunk::{Chunk, Depot, HugePages, Packet, Pool, Region, Rows, Verdict};
use device::{Cost, FaultPlan};
use engine::{
    Capture, CapturePoint, Context, DeviceKind, DeviceSpec, Engine, EngineSpec, EngineView, Entry,
    PipelineSpec, Policy, QueueCounters, RxSlot, Shade, Stage, Suspended, TxSlot, WorkerQueues,
    WorkerSpec,
};
use io::RxQueue;
use io::memory::{Collect, MemoryTx, pair};
use teststages::harness::{Numbered, Random, flow_hash};

const CELLS: u32 = 16_384;
const PATIENCE: Duration = Duration::from_secs(10);

/// Counts its packets, and holds the last 20 or so of flow 255.
#[derive(Default)]
struct Holds {
    seen: u64,
    held: VecDeque<Packet>,
}

impl Stage<u64> for Holds {
    fn name(&self) -> &'static str {
        "holds"
    }
    fn post_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, u64>) {
        for row in 0..chunk.len() {
            self.seen += 1;
            if chunk.packets[row].data()[0] == 255 {
                let packet = chunk.take(row);
                self.held.push_back(packet);
                chunk.rows.verdicts()[row] = Verdict::TAKEN.0;
            }
        }
    }
    fn tick(&mut self, cx: &mut Context<'_, u64>) {
        while self.held.len() > 20 {
            let packet = self.held.pop_front().unwrap();
            cx.release(packet, Verdict::forward(0));
        }
    }
    fn held(&self) -> usize {
        self.held.len()
    }
    fn drain(&mut self, cx: &mut Context<'_, u64>) {
        while let Some(packet) = self.held.pop_front() {
            cx.drop_packet(packet, teststages::reasons::TEST);
        }
    }
    fn drop_reasons(&self) -> &'static [&'static chunk::ReasonBlock] {
        &[teststages::reasons::BLOCK]
    }
    fn inherit(&mut self, before: &mut dyn Stage<u64>) {
        let before = before.as_any().and_then(|before| before.downcast_mut::<Self>()).unwrap();
        std::mem::swap(self, before);
    }
    fn as_any(&mut self) -> Option<&mut dyn std::any::Any> {
        Some(self)
    }
}

/// A stage that comes and goes.
struct Passes(&'static str);

impl Stage<u64> for Passes {
    fn name(&self) -> &'static str {
        self.0
    }
    fn shader(&self) -> Option<Arc<dyn Shade<u64>>> {
        Some(Arc::new(Passes(self.0)))
    }
}

impl Shade<u64> for Passes {
    fn shade(&self, _: &mut Rows, _: &u64) {}
}

/// Sends each packet by the port of its flow.
struct Sends;

impl Stage<u64> for Sends {
    fn name(&self) -> &'static str {
        "sends"
    }
    fn post_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, u64>) {
        for row in 0..chunk.len() {
            if Verdict(chunk.rows.verdicts()[row]).is_next() {
                let port = u16::from(chunk.packets[row].data()[0] % 2);
                chunk.rows.verdicts()[row] = Verdict::forward(port).0;
            }
        }
    }
}

/// A frame of 64 bytes: flow and number.
fn frame(flow: u8, number: u32) -> Vec<u8> {
    let mut frame = vec![0; 64];
    frame[0] = flow;
    frame[4..8].copy_from_slice(&number.to_be_bytes());
    frame
}

fn spec(
    random: &mut Random,
    version: &Numbered,
    depot: &Arc<Depot>,
    queues: Vec<WorkerQueues>,
    before: Option<Arc<EngineView>>,
) -> EngineSpec<Numbered> {
    let extra = random.below(3);
    let order = random.below(2) == 0;
    let stages = || {
        let mut stages: Vec<Box<dyn Stage<u64>>> = vec![Box::new(Holds::default())];
        stages.extend((0..extra).map(|i| Box::new(Passes(["one", "two"][i])) as _));
        if order && extra == 2 {
            stages.swap(1, 2);
        }
        stages.push(Box::new(Sends));
        stages
    };
    let aside =
        || PipelineSpec::new("aside", vec![Box::new(Passes("aside")) as _, Box::new(Sends)]);
    let main = || PipelineSpec::new("main", stages());
    // The pipelines change their numbers.
    let (is_alone, is_first) = (random.below(2) == 0, random.below(2) == 0);
    let workers = queues.into_iter().map(|queues| {
        let (pipelines, own) = match (is_alone, is_first) {
            (true, _) => (vec![main()], 0),
            (_, true) => (vec![main(), aside()], 0),
            (_, false) => (vec![aside(), main()], 1),
        };
        let rx = queues.rx.into_iter();
        let rx = rx.map(|slot| RxSlot { entry: Entry::Pipeline(own), ..slot }).collect();
        let worker = WorkerSpec::with_pipelines(version.clone(), pipelines);
        WorkerSpec { rx, tx: queues.tx, ..worker }
    });
    let mut simulated = || DeviceSpec {
        kind: DeviceKind::Simulated {
            cost: Cost { launch: Duration::from_micros(20), row: Duration::from_nanos(10) },
            faults: FaultPlan::default(),
        },
        slots: 4,
        rows: 1024,
        policy: [Policy::Device, Policy::Share { device: 1, of: 2 }][random.below(2)],
    };
    let workers = workers.collect();
    EngineSpec {
        devices: if extra > 0 { vec![simulated()] } else { Vec::new() },
        chunk_packets: random.between(1, 64),
        chunks: random.between(2, 8),
        lossless: true,
        before,
        on_panic: Arc::new(|panic| panic!("{panic}")),
        ..EngineSpec::new(workers, depot.clone())
    }
}

/// Two queues, one of each worker; both send by port 0 of the first and port 1 of the second.
fn queues(rx: [Box<dyn RxQueue>; 2], tx: [Collect; 2]) -> Vec<WorkerQueues> {
    let [first, second] = tx.map(|tx| TxSlot::Own(Box::new(tx), Arc::default()));
    let slot = |queue, port| RxSlot {
        port,
        mark: 0,
        queue,
        spread: Some(flow_hash.into()),
        entry: Entry::default(),
        counters: Arc::<QueueCounters>::default(),
    };
    let [a, b] = rx;
    vec![
        WorkerQueues { rx: vec![slot(a, 0)], tx: vec![first, TxSlot::Worker(1)], host: Vec::new() },
        WorkerQueues {
            rx: vec![slot(b, 1)],
            tx: vec![TxSlot::Worker(0), second],
            host: Vec::new(),
        },
    ]
}

/// Feeds packets as fast as they are taken until it is told to stop; how many.
fn feed(mut tx: MemoryTx, depot: Arc<Depot>, flows: [u8; 3], stop: Arc<AtomicBool>) -> u64 {
    let (mut pool, mut sent) = (Pool::new(depot, 64), 0);
    for number in 0u32.. {
        for flow in flows {
            let Some(mut packet) = Packet::copy_from(&mut pool, &frame(flow, number)) else {
                std::thread::yield_now();
                continue; // a number is left out
            };
            loop {
                match tx.push(packet) {
                    Ok(()) => break sent += 1,
                    Err(back) => packet = back,
                }
                std::thread::yield_now();
            }
        }
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    sent
}

fn go_on(
    random: &mut Random,
    version: &Numbered,
    depot: &Arc<Depot>,
    mut before: Suspended<Numbered>,
) -> Engine<Numbered> {
    let (view, none) = (before.view().clone(), [(); 2].map(|()| WorkerQueues::default()));
    let mut spec = spec(random, version, depot, none.into(), Some(view));
    let reserve = spec.reserve().unwrap();
    before.bequeath(&mut spec.workers);
    let queues = before.into_queues();
    for (worker, queues) in spec.workers.iter_mut().zip(queues) {
        let own = worker.pipelines.iter().position(|own| own.name == "main").unwrap();
        let rx = queues.rx.into_iter();
        worker.rx = rx.map(|slot| RxSlot { entry: Entry::Pipeline(own), ..slot }).collect();
        worker.tx = queues.tx;
    }
    Engine::start_reserved(spec, reserve).unwrap()
}

#[test]
fn threads_are_reserved_for_one_engine() {
    let (_, depot) = Region::new(64, HugePages::Off).unwrap();
    let worker = || WorkerSpec::new(Numbered::new(0), vec![Box::new(Sends) as _]);
    let mut one = EngineSpec::new(vec![worker()], depot.clone());
    let two = EngineSpec::new(vec![worker(), worker()], depot);
    let refused = Engine::start_reserved(two, one.reserve().unwrap()).err().unwrap();
    assert_eq!(refused.to_string(), "the threads were reserved for another engine");
    let reserve = one.reserve().unwrap();
    Engine::start_reserved(one, reserve).unwrap().stop(PATIENCE).unwrap();
}

fn run(seed: u64) {
    let mut random = Random::new(seed);
    let (_, depot) = Region::new(CELLS, HugePages::Off).unwrap();
    let version = Numbered::new(0);
    let stop = Arc::new(AtomicBool::new(false));
    let [(tx_a, rx_a), (tx_b, rx_b)] = [pair(512), pair(512)];
    let outs = [Collect::new(), Collect::new()];
    let frames = [outs[0].frames(), outs[1].frames()];
    let feeds = [(tx_a, [2, 5, 255]), (tx_b, [4, 7, 9])].map(|(tx, flows)| {
        let (depot, stop) = (depot.clone(), stop.clone());
        std::thread::spawn(move || feed(tx, depot, flows, stop))
    });
    let own = queues([Box::new(rx_a), Box::new(rx_b)], outs);
    let mut engine = Engine::start(spec(&mut random, &version, &depot, own, None)).unwrap();
    let held = || {
        let capture = Capture { point: CapturePoint::Stage(0), filter: None, frames: 16 };
        engine.view().hooks.capture(capture).unwrap()
    };
    let capture = held();
    let mut received = 0;
    for _ in 0..random.between(5, 20) {
        std::thread::sleep(Duration::from_micros(random.between(0, 2000) as u64));
        let suspended = engine.suspend(PATIENCE).expect("no worker dies");
        let view = suspended.view().clone();
        let sum = |view: &EngineView| -> u64 {
            view.workers.iter().map(|worker| worker.rx_packets.get()).sum()
        };
        assert!(sum(&view) >= received, "seed {seed}: counters go on");
        received = sum(&view);
        engine = go_on(&mut random, &version, &depot, suspended);
        assert!(sum(engine.view()) >= received, "seed {seed}: from where they were");
        assert!(Arc::ptr_eq(&engine.view().hooks, &view.hooks));
    }
    stop.store(true, Ordering::Relaxed);
    let sent: u64 = feeds.into_iter().map(|feed| feed.join().unwrap()).sum();
    let view = engine.view().clone();
    let rx = |view: &EngineView| -> u64 {
        view.workers.iter().map(|worker| worker.rx_packets.get()).sum()
    };
    while rx(&view) < sent {
        std::thread::yield_now();
    }
    assert_eq!(view.drops(teststages::reasons::TEST), 0, "seed {seed}: they were inherited");
    engine.stop(PATIENCE).unwrap();
    drop(capture);

    // Every packet has one fate; what was held at the end was drained, and nothing before.
    let out: Vec<Vec<Vec<u8>>> = frames
        .iter()
        .map(|frames| frames.lock().unwrap().drain(..).map(|(_, bytes)| bytes).collect())
        .collect();
    let arrived: usize = out.iter().map(Vec::len).sum();
    let drained = view.drops(teststages::reasons::TEST);
    let dropped = view.reasons().iter().filter(|reason| view.drops(reason.code()) > 0);
    let dropped: Vec<_> = dropped.map(|r| (r.name(), view.drops(r.code()))).collect();
    assert_eq!(arrived as u64 + drained, sent, "seed {seed}: {dropped:?}");
    // Stages that were always there counted all of them.
    let stage = |name| {
        let all = view.pipelines.iter().filter(|own| own.name == "main");
        let at = all.flat_map(|own| own.stages.clone()).find(|at| view.stages[*at] == name);
        view.stage(at.unwrap()).packets
    };
    assert_eq!(stage("holds"), sent, "seed {seed}");
    // In order, flow by flow.
    let mut last = [None; 256];
    for (port, frames) in out.iter().enumerate() {
        for frame in frames {
            let flow = usize::from(frame[0]);
            let number = u32::from_be_bytes(frame[4..8].try_into().unwrap());
            assert!(flow == 255 || flow % 2 == port, "seed {seed}: flow {flow} at port {port}");
            assert!(last[flow] < Some(number), "seed {seed}: flow {flow}: {number} too late");
            last[flow] = Some(number);
        }
    }
    drop(view);
    assert_eq!(depot.available(), CELLS as usize, "seed {seed}: cells leaked");
}

#[test]
fn packets_counters_and_state_go_on() {
    let seed = Random::from_time().word();
    for round in 0..8 {
        run(seed.wrapping_add(round));
    }
}

/// A capture at a stage stands at that stage, wherever it is in the next engine, and at none if it is gone.
#[test]
fn captures_stay_at_their_stages() {
    let (_, depot) = Region::new(CELLS, HugePages::Off).unwrap();
    let (version, mut pool) = (Numbered::new(0), Pool::new(depot.clone(), 64));
    let (mut tx, rx) = pair(64);
    let out = Collect::new();
    let names = |names: &[&'static str]| -> Vec<Box<dyn Stage<u64>>> {
        let all = names.iter().map(|name| Box::new(Passes(name)) as Box<dyn Stage<u64>>);
        all.chain([Box::new(Sends) as _]).collect()
    };
    let mut worker = WorkerSpec::new(version.clone(), names(&["one", "two"]));
    worker.rx = vec![RxSlot {
        port: 0,
        mark: 0,
        queue: Box::new(rx),
        spread: None,
        entry: Entry::default(),
        counters: Arc::default(),
    }];
    worker.tx = vec![TxSlot::Own(Box::new(out), Arc::default())];
    let mut engine = Engine::start(EngineSpec::new(vec![worker], depot.clone())).unwrap();
    let capture = |stage| {
        let point = CapturePoint::Stage(stage);
        engine.view().hooks.capture(Capture { point, filter: None, frames: 64 }).unwrap()
    };
    let (mut one, mut two) = (capture(0), capture(1));
    let lists: [&[&'static str]; 3] = [&["two", "one"], &["aside", "two"], &["two"]];
    let mut seen = Vec::new();
    for (i, list) in lists.iter().enumerate() {
        let suspended = engine.suspend(PATIENCE).unwrap();
        let before = Some(suspended.view().clone());
        let [queues] = <[WorkerQueues; 1]>::try_from(suspended.into_queues()).ok().unwrap();
        let mut worker = WorkerSpec::new(version.clone(), names(list));
        (worker.rx, worker.tx) = (queues.rx, queues.tx);
        let spec = EngineSpec::new(vec![worker], depot.clone());
        engine = Engine::start(EngineSpec { before, ..spec }).unwrap();
        tx.push(Packet::copy_from(&mut pool, &frame(i as u8 * 2, 0)).unwrap()).unwrap();
        let frame = |reader: &mut engine::CaptureReader| {
            reader.recv_timeout(Duration::from_millis(200)).map(|frame| frame.bytes[0])
        };
        seen.push((frame(&mut one), frame(&mut two)));
    }
    assert_eq!(seen, [(Some(0), Some(0)), (None, Some(2)), (None, Some(4))]);
    engine.stop(PATIENCE).unwrap();
}
