//! Order, conservation and recovery of the whole engine, with a stage that counts and one that
//! chooses ports. A packet is 64 bytes: a flow number and a sequence number.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use chunk::{
    Chunk, ColumnSet, Columns, Declaration, HugePages, Packet, Pool, ReasonBlock, Region, Rows,
    Verdict, reasons,
};
use device::{Cost, FaultPlan};
use engine::{
    Capture, CapturePoint, Context, DeviceKind, DeviceSpec, Engine, EngineSpec, KernelForm,
    PipelineSpec, Policy, QueueCounters, RxSlot, Shade, Stage, Step, Trace, TraceEvent, TxSlot,
    WorkerSpec,
};
use io::memory::{Collect, Script, pair};
use teststages::harness::{Bed, Feed, Numbered, flow_hash};

chunk::columns! {
    /// What the test stages need.
    pub struct TestColumns / TestView {
        /// The flow of the packet.
        pub flow: u32,
        /// The port that the first stage chose.
        pub out: u32,
        /// The port that the second stage made of it.
        pub port: u32,
    }
}

/// Reads the flow in pre-shade; its shade sends odd flows to the next stage with `out` set and drops
/// flow 13.
struct First;
impl Stage<u64> for First {
    fn name(&self) -> &'static str {
        "first"
    }
    fn columns(&self) -> &'static [Declaration] {
        &[TestColumns::COLUMNS]
    }
    fn drop_reasons(&self) -> &'static [&'static ReasonBlock] {
        &[teststages::reasons::BLOCK]
    }
    fn reads(&self) -> ColumnSet {
        ColumnSet::of(&[TestColumns::FLOW])
    }
    fn writes(&self) -> ColumnSet {
        ColumnSet::of(&[TestColumns::OUT])
    }
    fn pre_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, u64>) {
        let view = TestColumns::view(&mut chunk.rows);
        for (flow, packet) in view.flow.iter_mut().zip(&chunk.packets) {
            *flow = u32::from(packet.data()[0]);
        }
    }
    fn shader(&self) -> Option<Arc<dyn Shade<u64>>> {
        Some(Arc::new(First))
    }
    fn ends_segment(&self) -> bool {
        true
    }
    fn describe(&self, chunk: &mut Chunk, row: usize, _: &u64) -> String {
        format!("flow {}", TestColumns::view(&mut chunk.rows).flow[row])
    }
}
impl Shade<u64> for First {
    fn shade(&self, rows: &mut Rows, _: &u64) {
        let view = TestColumns::view(rows);
        for i in 0..view.flow.len() {
            if !Verdict(view.verdict[i]).is_next() {
                continue;
            }
            view.out[i] = view.flow[i] % 2;
            if view.flow[i] == 13 {
                view.verdict[i] = Verdict::drop(teststages::reasons::TEST).0;
            }
        }
    }
    fn kernels(&self) -> Option<KernelForm> {
        Some(KernelForm {
            text: "
                KERNEL(first)
                {
                    const uint row = JOB_FIRST(arena) + GLOBAL_ID;
                    if (GLOBAL_ID < job_rows(arena) && IS_NEXT(COL_VERDICT(arena)[row])) {
                        COL_OUT(arena)[row] = COL_FLOW(arena)[row] % 2u;
                        if (COL_FLOW(arena)[row] == 13u)
                            COL_VERDICT(arena)[row] = DROP_TEST;
                    }
                }"
            .into(),
            steps: vec![Step::rows("first", 64).into()],
            ..KernelForm::default()
        })
    }
}

/// Sends each packet to the port in `out`; every 100th packet makes a copy for port 0 behind it.
struct Second(u64);
impl Stage<u64> for Second {
    fn name(&self) -> &'static str {
        "second"
    }
    fn columns(&self) -> &'static [Declaration] {
        &[TestColumns::COLUMNS]
    }
    fn reads(&self) -> ColumnSet {
        ColumnSet::of(&[TestColumns::OUT])
    }
    fn writes(&self) -> ColumnSet {
        ColumnSet::of(&[TestColumns::PORT])
    }
    fn shader(&self) -> Option<Arc<dyn Shade<u64>>> {
        Some(Arc::new(Second(0)))
    }
    fn post_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, u64>) {
        for row in 0..chunk.len() {
            self.0 += 1;
            if self.0.is_multiple_of(100)
                && let Some(mut copy) = chunk.packets[row].duplicate(cx.pool)
            {
                copy.data_mut()[0] = 200;
                chunk.emit(row, Verdict::forward(0), copy);
            }
        }
    }
}
impl Shade<u64> for Second {
    fn shade(&self, rows: &mut Rows, _: &u64) {
        let view = TestColumns::view(rows);
        for i in 0..view.out.len() {
            if Verdict(view.verdict[i]).is_next() {
                view.port[i] = view.out[i];
                view.verdict[i] = Verdict::forward(view.out[i] as u16).0;
            }
        }
    }
    fn kernels(&self) -> Option<KernelForm> {
        Some(KernelForm {
            text: "
                KERNEL(second)
                {
                    const uint row = JOB_FIRST(arena) + GLOBAL_ID;
                    if (GLOBAL_ID < job_rows(arena) && IS_NEXT(COL_VERDICT(arena)[row])) {
                        COL_PORT(arena)[row] = COL_OUT(arena)[row];
                        COL_VERDICT(arena)[row] = VERDICT_FORWARD | COL_OUT(arena)[row];
                    }
                }"
            .into(),
            steps: vec![Step::rows("second", 64).into()],
            ..KernelForm::default()
        })
    }
}

fn frames(flows: u8, each: u32) -> Vec<Vec<u8>> {
    (0..each)
        .flat_map(|seq| {
            (0..flows).map(move |flow| {
                let mut frame = vec![flow; 64];
                frame[4..8].copy_from_slice(&seq.to_be_bytes());
                frame
            })
        })
        .collect()
}

fn simulated(policy: Policy, faults: FaultPlan) -> DeviceSpec<u64> {
    let cost = Cost { launch: Duration::from_micros(30), row: Duration::from_nanos(200) };
    DeviceSpec { kind: DeviceKind::Simulated { cost, faults }, slots: 8, rows: 2048, policy }
}

struct Run {
    out: Vec<Vec<Vec<u8>>>,
    drops: u64,
    emitted: u64,
    master: Option<engine::MasterView>,
    device_errors: usize,
    /// Chunks that came to the first stage.
    calls: u64,
    version: Arc<AtomicU64>,
}

/// Sends `input` through two workers: the first owns the receive queue and port 0, the second port 1.
fn run(input: Vec<Vec<u8>>, device: Option<DeviceSpec<u64>>) -> Run {
    run_beside(0, Box::new(Script::untimed(input)), device)
}

/// The same from any queue, beside `idle` queues of the first worker on which nothing comes.
fn run_beside(idle: usize, input: Box<dyn io::RxQueue>, device: Option<DeviceSpec<u64>>) -> Run {
    run_spread(Some(flow_hash.into()), idle, None, input, device)
}

/// The same, with the flows spread over the workers, or all at the first one.
fn run_spread(
    spread: Option<engine::SpreadHash>,
    idle: usize,
    max_delay: Option<Duration>,
    input: Box<dyn io::RxQueue>,
    device: Option<DeviceSpec<u64>>,
) -> Run {
    let feed = |port, queue, spread| Feed {
        worker: 0,
        port,
        queue,
        spread,
        entry: engine::Entry::default(),
    };
    let none = || Box::new(Script::untimed(Vec::new()));
    let mut feeds = vec![feed(0, input, spread)];
    feeds.extend((0..idle).map(|_| feed(1, none(), None)));
    let bed = Bed {
        feeds,
        ports: 2,
        devices: device.into_iter().collect(),
        chunk_packets: 64,
        chunks: 32,
        max_delay,
        lossless: false,
        ..Bed::new(Vec::new())
    };
    let version = Numbered::new(0);
    let stages = || vec![Box::new(First) as Box<dyn Stage<u64>>, Box::new(Second(0))];
    let workers = (0..2).map(|_| (version.clone(), stages())).collect();
    let changed = version.0.clone();
    let run = bed.run_while(workers, move |_| _ = changed.fetch_add(1, Ordering::Relaxed));
    assert!(run.panics.is_empty(), "{}", run.panics[0]);
    // Every packet has one fate and every cell is back.
    run.conserves().unwrap();
    let bytes =
        |port: &Vec<_>| port.iter().map(|(_, bytes): &(u64, Vec<u8>)| bytes.clone()).collect();
    Run {
        out: run.ports.iter().map(bytes).collect(),
        drops: run.drops(),
        emitted: run.sum(|worker| worker.emitted.get()),
        master: run.view.master(),
        device_errors: run.device_errors.len(),
        calls: run.view.stage(0).calls,
        version: version.0,
    }
}

fn check_order_and_count(run: &Run, flows: u8, each: u32) {
    let ring_full = run.drops - if flows > 13 { u64::from(each) } else { 0 };
    let total: usize = run.out.iter().map(Vec::len).sum();
    assert_eq!(
        total as u64 + run.drops,
        u64::from(flows) * u64::from(each) + run.emitted,
        "every packet has one fate"
    );
    assert!(ring_full < u64::from(flows) * u64::from(each), "something must get through");
    let mut last = vec![None; 256];
    for (port, frames) in run.out.iter().enumerate() {
        for frame in frames.iter().filter(|f| f[0] != 200) {
            let flow = usize::from(frame[0]);
            let seq = u32::from_be_bytes(frame[4..8].try_into().unwrap());
            assert_eq!(flow % 2, port, "flow {flow} left by the wrong port");
            assert!(
                last[flow].is_none_or(|l| l < seq),
                "flow {flow}: {seq} after {:?}",
                last[flow]
            );
            last[flow] = Some(seq);
        }
    }
    assert!(run.version.load(Ordering::Relaxed) > 0);
}

#[test]
fn cpu_keeps_order_over_two_workers() {
    check_order_and_count(&run(frames(20, 2000), None), 20, 2000);
}

#[test]
fn eight_jobs_in_flight_keep_order() {
    for policy in
        [Policy::Device, Policy::Share { device: 1, of: 2 }, Policy::Share { device: 3, of: 4 }]
    {
        let run = run(frames(20, 2000), Some(simulated(policy, FaultPlan::default())));
        check_order_and_count(&run, 20, 2000);
        let master = run.master.unwrap();
        assert!(master.jobs > 0 && master.packets > 0 && master.failed == 0, "{master:?}");
    }
}

/// A port that is flooded fills its worker, however many idle ports and twins that worker has too.
#[test]
fn auto_asks_the_device_under_load_beside_idle_queues() {
    let input = Box::new(Script::untimed(frames(10, 100_000)));
    let device = simulated(Policy::Auto, FaultPlan::default());
    let run = run_beside(7, input, Some(device));
    check_order_and_count(&run, 10, 100_000);
    let master = run.master.unwrap();
    assert!(master.jobs > 0, "no chunk went to the device: {master:?}");
}

/// Packets with pauses between them: none waits for a chunk to fill while the worker shades.
#[test]
fn light_load_does_not_wait_for_full_chunks() {
    struct Slowly(Script, std::time::Instant);
    impl io::RxQueue for Slowly {
        fn recv(&mut self, pool: &mut Pool, out: &mut Vec<chunk::Packet>, _: usize) -> usize {
            if self.1.elapsed() < Duration::from_millis(1) {
                return 0;
            }
            self.1 = std::time::Instant::now();
            self.0.recv(pool, out, 1)
        }
        fn is_finished(&self) -> bool {
            self.0.is_finished()
        }
        fn stats(&self) -> io::QueueStats {
            self.0.stats()
        }
    }
    let slowly = || Box::new(Slowly(Script::untimed(frames(2, 100)), std::time::Instant::now()));
    let light = |policy, faults| {
        let delay = Some(Duration::from_millis(20));
        let run = run_spread(None, 0, delay, slowly(), Some(simulated(policy, faults)));
        check_order_and_count(&run, 2, 100);
        run
    };
    let run = light(Policy::Auto, FaultPlan::default());
    // Each packet by itself: the queue gives one at a time, however late the worker asks.
    assert_eq!((run.master.unwrap().jobs, run.calls), (0, 200));
    // Nor once the device is gone, which the first jobs find out.
    let run = light(Policy::Device, FaultPlan { lost_from: Some(0), ..FaultPlan::default() });
    assert!(run.calls > 100, "{} chunks of 200 packets, a lost device", run.calls);
    let run = light(Policy::Device, FaultPlan::default());
    assert!(run.calls < 100, "{} chunks of 200 packets for a device", run.calls);
}

#[test]
fn jobs_that_fail_are_done_by_the_cpu() {
    let faults = FaultPlan { failing: (0..50).step_by(3).collect(), ..FaultPlan::default() };
    let failing = run(frames(10, 2000), Some(simulated(Policy::Device, faults)));
    let plans = [
        FaultPlan { failing_copy: (0..3).collect(), ..FaultPlan::default() },
        FaultPlan { no_build: true, ..FaultPlan::default() },
        FaultPlan { hangs: Some((2, Duration::from_millis(20))), ..FaultPlan::default() },
    ];
    for faults in plans {
        let named = format!("{faults:?}");
        let run = run(frames(10, 2000), Some(simulated(Policy::Device, faults)));
        check_order_and_count(&run, 10, 2000);
        assert_eq!(run.device_errors, 1, "reported once: {named}");
    }
    check_order_and_count(&failing, 10, 2000);
    assert!(failing.master.unwrap().failed > 0);
    let faults = FaultPlan { lost_from: Some(3), ..FaultPlan::default() };
    let lost = run(frames(10, 2000), Some(simulated(Policy::Device, faults)));
    check_order_and_count(&lost, 10, 2000);
    let master = lost.master.unwrap();
    assert!(master.failed + 3 >= master.jobs, "{master:?}");
}

#[test]
fn stopping_loses_nothing_that_was_received() {
    let (_, depot) = Region::new(4096, HugePages::Off).unwrap();
    let mut pool = Pool::new(depot.clone(), 64);
    let (mut feed, rx) = pair(2048);
    let out = Collect::new();
    let frames_out = out.frames();
    let (reports_in, reports) = mpsc::sync_channel(4);
    let counters = Arc::new(QueueCounters::default());
    let engine = Engine::start(EngineSpec {
        before: None,
        hooks: Arc::default(),
        host_gate: None,
        workers: vec![WorkerSpec {
            cpu: None,
            versions: Numbered::new(0),
            pipelines: vec![PipelineSpec::new(
                "",
                vec![Box::new(First) as Box<dyn Stage<u64>>, Box::new(Second(0))],
            )],
            rx: vec![RxSlot {
                entry: engine::Entry::default(),
                port: 7,
                mark: 0,
                queue: Box::new(rx),
                spread: None,
                counters: counters.clone(),
            }],
            tx: vec![TxSlot::Own(Box::new(out), Arc::default()), TxSlot::Closed],
            host: Vec::new(),
            on_drop: None,
            device: None,
            on_dump: None,
        }],
        depot: depot.clone(),
        chunk_packets: 32,
        chunks: 16,
        devices: vec![simulated(Policy::Device, FaultPlan::default())],
        max_delay: None,
        packet_time: false,
        until_finished: false,
        lossless: false,
        on_error: Arc::new(|_, _| {}),
        on_device_error: Arc::new(|_, _| {}),
        on_panic: Arc::new(|panic| eprintln!("{panic}")),
    })
    .unwrap();
    let view = engine.view().clone();
    let drops = Capture { point: CapturePoint::Drops, filter: None, frames: 1024 };
    let mut captured = view.hooks.capture(drops).unwrap();
    let _trace =
        view.hooks.trace(Trace { filter: None, left: AtomicU64::new(1), sender: reports_in });
    let sent = 1500u64;
    for frame in frames(3, sent as u32 / 3) {
        feed.push(Packet::copy_from(&mut pool, &frame).unwrap()).unwrap();
    }
    while view.workers[0].rx_packets.get() == 0 {
        std::thread::yield_now();
    }
    let begin = Instant::now();
    engine.stop(Duration::from_secs(5)).unwrap();
    assert!(begin.elapsed() < Duration::from_secs(4), "nothing had to be given up");
    let received = view.workers[0].rx_packets.get();
    let emitted = view.workers[0].emitted.get();
    let forwarded = frames_out.lock().unwrap().len() as u64;
    assert_eq!(forwarded + view.drops(reasons::TX_PORT_DOWN), received + emitted);
    assert_eq!(counters.get().packets, received);
    let dropped = captured.try_recv().expect("flow 1 goes to a port that is closed");
    assert_eq!((dropped.reason, dropped.bytes[0]), (Some(reasons::TX_PORT_DOWN), 1));
    let report = reports.try_recv().expect("the first packet was traced");
    assert_eq!(
        report[0],
        TraceEvent::Received { port: 7, frame_len: 64, offload: chunk::Offload::NONE }
    );
    let (detail, verdict) = ("flow 0".into(), Verdict::NEXT);
    assert_eq!(report[1], TraceEvent::Stage { name: "first", detail, verdict });
    assert_eq!(report.last(), Some(&TraceEvent::End { verdict: Verdict::forward(0) }));
    let lines: Vec<_> = report[..2].iter().map(ToString::to_string).collect();
    assert_eq!(lines, ["rx: port 7, 64 bytes", "first: flow 0 → next"]);
    let stage = view.stage(0);
    assert_eq!(stage.packets, received);
    view.clear();
    assert_eq!((view.stage(0).packets, view.drops(reasons::TX_PORT_DOWN)), (0, 0));
    // Those not received were given back with the queue.
    assert!(received <= sent);
    drop((feed, pool));
    assert_eq!(depot.available(), 4096, "cells leaked");
}
