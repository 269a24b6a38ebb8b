//! Many queues, states, panics, places: what must hold where there are two of everything.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use chunk::{
    Chunk, ColumnId, ColumnSet, Columns, Declaration, HugePages, Packet, Pool, Region, Rows,
    Verdict, reasons,
};
use device::accelerator::Options;
use device::driver::Api;
use device::faulty::{Faults, Faulty};
use device::tables::NoTables;
use engine::{
    Context, DeviceKind, DeviceSpec, Engine, EngineSpec, EngineView, KernelForm, Phases, Policy,
    QueueCounters, RxSlot, Shade, Stage, StagePanic, Step, TxSlot, Versions, WorkerSpec,
};
use io::memory::{Collect, Script};

chunk::columns! {
    /// What the stages of these tests share.
    pub struct Cols / View {
        /// The flow of a packet.
        pub flow: u32,
        /// Written by a stage without state.
        pub plain: u32,
        /// How many packets of the flow there were, by either counter.
        pub count_a: u32,
        /// The same.
        pub count_b: u32,
    }
}

/// Tables that are always the same.
struct One;

struct Unit(u64);

impl Deref for Unit {
    type Target = u64;
    fn deref(&self) -> &u64 {
        &self.0
    }
}

impl Versions for One {
    type Tables = u64;
    type Pin = Unit;
    fn pin(&mut self) -> Unit {
        Unit(1)
    }
    fn number(_: &Unit) -> u64 {
        1
    }
}

const FLOWS: usize = 256;

fn flow_of(packet: &Packet) -> u32 {
    packet.data().first().copied().unwrap_or(0).into()
}

fn fill_flows(chunk: &mut Chunk) {
    let view = Cols::view(&mut chunk.rows);
    for (flow, packet) in view.flow.iter_mut().zip(&chunk.packets) {
        *flow = flow_of(packet);
    }
}

/// A stage without state that ends its segment.
struct Plain;

impl Stage<u64> for Plain {
    fn name(&self) -> &'static str {
        "plain"
    }
    fn reads(&self) -> ColumnSet {
        ColumnSet::of(&[Cols::FLOW])
    }
    fn writes(&self) -> ColumnSet {
        ColumnSet::of(&[Cols::PLAIN])
    }
    fn ends_segment(&self) -> bool {
        true
    }
    fn columns(&self) -> &'static [Declaration] {
        &[Cols::COLUMNS]
    }
    fn phases(&self) -> Phases {
        Phases::PRE
    }
    fn pre_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, u64>) {
        fill_flows(chunk);
    }
    fn shader(&self) -> Option<Arc<dyn Shade<u64>>> {
        Some(Arc::new(Plain))
    }
}

impl Shade<u64> for Plain {
    fn shade(&self, rows: &mut Rows, _: &u64) {
        let view = Cols::view(rows);
        view.plain.iter_mut().zip(view.flow).for_each(|(plain, flow)| *plain = *flow + 1);
    }
    fn kernels(&self) -> Option<KernelForm> {
        Some(KernelForm {
            text: "
                KERNEL(plain)
                {
                    if (GLOBAL_ID < job_rows(arena)) {
                        const uint row = JOB_FIRST(arena) + GLOBAL_ID;
                        COL_PLAIN(arena)[row] = COL_FLOW(arena)[row] + 1u;
                    }
                }"
            .into(),
            steps: vec![Step::rows("plain", 64).into()],
            ..KernelForm::default()
        })
    }
}

/// Counts packets by flow. Two instances of it are two stages with state.
#[derive(Clone)]
struct Tally {
    is_second: bool,
    counts: Arc<Mutex<Vec<u32>>>,
}

impl Tally {
    fn new(is_second: bool) -> Self {
        Self { is_second, counts: Arc::new(Mutex::new(vec![0; FLOWS])) }
    }
    fn column(&self) -> ColumnId {
        if self.is_second { Cols::COUNT_B } else { Cols::COUNT_A }
    }
    fn sum(&self) -> u64 {
        self.counts.lock().unwrap().iter().map(|count| u64::from(*count)).sum()
    }
}

impl Stage<u64> for Tally {
    fn name(&self) -> &'static str {
        if self.is_second { "tally_b" } else { "tally_a" }
    }
    fn reads(&self) -> ColumnSet {
        ColumnSet::of(&[Cols::FLOW])
    }
    fn writes(&self) -> ColumnSet {
        ColumnSet::of(&[self.column()])
    }
    fn columns(&self) -> &'static [Declaration] {
        &[Cols::COLUMNS]
    }
    fn phases(&self) -> Phases {
        Phases::PRE
    }
    fn pre_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, u64>) {
        fill_flows(chunk);
    }
    fn shader(&self) -> Option<Arc<dyn Shade<u64>>> {
        Some(Arc::new(self.clone()))
    }
}

impl Shade<u64> for Tally {
    fn shade(&self, rows: &mut Rows, _: &u64) {
        let view = Cols::view(rows);
        let out = if self.is_second { view.count_b } else { view.count_a };
        let mut counts = self.counts.lock().unwrap();
        for (flow, count) in view.flow.iter().zip(out) {
            counts[*flow as usize % FLOWS] += 1;
            *count = counts[*flow as usize % FLOWS];
        }
    }
    fn kernels(&self) -> Option<KernelForm> {
        const A: &str = "
            KERNEL(tally_a)
            {
                GLOBAL uint *counts = (GLOBAL uint *)state;
                if (GLOBAL_ID == 0u)
                    for (uint i = 0u; i < job_rows(arena); i++) {
                        const uint row = JOB_FIRST(arena) + i;
                        COL_COUNT_A(arena)[row] = ++counts[COL_FLOW(arena)[row] & 255u];
                    }
            }";
        const B: &str = "
            KERNEL(tally_b)
            {
                GLOBAL uint *counts = (GLOBAL uint *)state;
                if (GLOBAL_ID == 0u)
                    for (uint i = 0u; i < job_rows(arena); i++) {
                        const uint row = JOB_FIRST(arena) + i;
                        COL_COUNT_B(arena)[row] = ++counts[COL_FLOW(arena)[row] & 255u];
                    }
            }";
        Some(KernelForm {
            text: if self.is_second { B } else { A }.into(),
            steps: vec![Step::rows(if self.is_second { "tally_b" } else { "tally_a" }, 64).into()],
            state_bytes: 4 * FLOWS,
            ..KernelForm::default()
        })
    }
    fn state(&self) -> Vec<u8> {
        self.counts.lock().unwrap().iter().flat_map(|count| count.to_le_bytes()).collect()
    }
    fn retired(&self, rows: &mut Rows, packets: &mut [Packet]) {
        assert_eq!(rows.len(), packets.len());
        let view = Cols::view(rows);
        let out = if self.is_second { view.count_b } else { view.count_a };
        let mut counts = self.counts.lock().unwrap();
        for (flow, count) in view.flow.iter().zip(out) {
            counts[*flow as usize % FLOWS] = *count;
        }
    }
}

/// When a stage panics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum At {
    Never,
    Pre,
    Shade,
    Post,
    Tick,
}

/// Panics over packets of flow 13, in one of its steps.
#[derive(Clone, Copy)]
struct Touchy(At);

impl Touchy {
    fn check(self, at: At, packet: &Packet) {
        assert!(self.0 != at || flow_of(packet) != 13, "flow 13, as planned");
    }
}

impl Stage<u64> for Touchy {
    fn name(&self) -> &'static str {
        "touchy"
    }
    fn origin(&self) -> String {
        "test.toml:7".into()
    }
    fn pre_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, u64>) {
        for (row, packet) in chunk.packets.iter().enumerate() {
            cx.at(row);
            self.check(At::Pre, packet);
        }
    }
    fn shader(&self) -> Option<Arc<dyn Shade<u64>>> {
        Some(Arc::new(*self))
    }
    fn post_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, u64>) {
        for (row, packet) in chunk.packets.iter().enumerate() {
            cx.at(row);
            self.check(At::Post, packet);
        }
    }
    fn tick(&mut self, _: &mut Context<'_, u64>) {
        assert!(self.0 != At::Tick, "a tick, as planned");
    }
}

impl Shade<u64> for Touchy {
    fn shade(&self, _: &mut Rows, _: &u64) {}
    fn shade_packets(&self, _: &mut Rows, packets: &mut [Packet], _: &u64) {
        packets.iter().for_each(|packet| self.check(At::Shade, packet));
    }
}

/// Sends everything to port 0.
struct Out;

impl Stage<u64> for Out {
    fn name(&self) -> &'static str {
        "out"
    }
    fn columns(&self) -> &'static [Declaration] {
        &[Cols::COLUMNS]
    }
    fn phases(&self) -> Phases {
        Phases::POST
    }
    fn post_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, u64>) {
        let next = chunk.rows.verdicts().iter_mut().filter(|verdict| Verdict(**verdict).is_next());
        next.for_each(|verdict| *verdict = Verdict::forward(0).0);
    }
}

fn flow_hash(frame: &[u8]) -> u32 {
    u32::from(frame[0]).wrapping_mul(0x9e37_79b9)
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

/// The OpenCL device of the tests, with faults.
fn pocl(faults: Faults, slots: usize, rows: usize) -> DeviceSpec<u64> {
    let driver = device::probe::open(Api::OpenCl, 0).expect("PoCL");
    let driver = Box::new(Faulty::new(driver, faults));
    let options = Options { patience: Duration::from_secs(60), ..Options::default() };
    let kind = DeviceKind::Driver { driver, tables: Box::new(NoTables), options };
    DeviceSpec { kind, slots, rows, policy: Policy::Device }
}

/// An engine to be built: one worker receives for all, and sends.
struct Bed {
    input: Vec<Vec<u8>>,
    workers: usize,
    devices: Vec<DeviceSpec<u64>>,
    chunks: usize,
    chunk_packets: usize,
}

/// What it left behind.
struct Done {
    frames: Vec<Vec<u8>>,
    dumped: u64,
    panics: Vec<StagePanic>,
    view: Arc<EngineView>,
    /// Cells that did not come back.
    lost_cells: usize,
}

impl Bed {
    fn new(input: Vec<Vec<u8>>) -> Self {
        Self { input, workers: 1, devices: Vec::new(), chunks: 64, chunk_packets: 256 }
    }

    fn run(self, stages: impl Fn(usize) -> Vec<Box<dyn Stage<u64>>>) -> Done {
        const CELLS: u32 = 100_000;
        let (_, depot) = Region::new(CELLS, HugePages::Off).unwrap();
        let out = Collect::new();
        let frames = out.frames();
        let dumped = Arc::new(AtomicU64::new(0));
        let panics = Arc::new(Mutex::new(Vec::new()));
        let mut workers: Vec<_> =
            (0..self.workers).map(|i| WorkerSpec::new(One, stages(i))).collect();
        for worker in &mut workers {
            worker.tx = vec![TxSlot::Worker(0)];
            let dumped = dumped.clone();
            worker.on_dump = Some(Box::new(move |_, _| _ = dumped.fetch_add(1, Ordering::Relaxed)));
        }
        workers[0].tx = vec![TxSlot::Own(Box::new(out), Arc::default())];
        workers[0].rx.push(RxSlot {
            port: 0,
            mark: 0,
            queue: Box::new(Script::untimed(self.input)),
            spread: (self.workers > 1).then_some(flow_hash as fn(&[u8]) -> u32),
            counters: Arc::default(),
        });
        let told = panics.clone();
        let engine = Engine::start(EngineSpec {
            chunk_packets: self.chunk_packets,
            chunks: self.chunks,
            devices: self.devices,
            until_finished: true,
            lossless: true,
            on_panic: Arc::new(move |panic| told.lock().unwrap().push(panic)),
            ..EngineSpec::new(workers, depot.clone())
        })
        .unwrap();
        let view = engine.view().clone();
        engine.join().unwrap();
        let frames = frames.lock().unwrap().iter().map(|(_, frame)| frame.clone()).collect();
        let panics = panics.lock().unwrap().clone();
        let lost_cells = CELLS as usize - depot.available();
        Done { frames, dumped: dumped.load(Ordering::Relaxed), panics, view, lost_cells }
    }
}

fn drops(view: &EngineView) -> u64 {
    view.reasons().iter().map(|reason| view.drops(reason.code())).sum()
}

/// Runs `what` on a thread and fails if it has not ended in time.
fn within<R: Send + 'static>(seconds: u64, what: impl FnOnce() -> R + Send + 'static) -> R {
    let (tx, rx) = mpsc::channel();
    std::thread::spawn(move || _ = tx.send(what()));
    rx.recv_timeout(Duration::from_secs(seconds)).expect("it hangs or has failed")
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
        let mut worker = WorkerSpec::new(One, vec![Box::new(Out) as Box<dyn Stage<u64>>]);
        worker.rx = counters
            .iter()
            .map(|counters| RxSlot {
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
        let (a, b) = (Tally::new(false), Tally::new(true));
        let stages = (a.clone(), b.clone());
        let done = within(120, move || {
            let bed = Bed { devices: vec![pocl(faults, 4, 8192)], ..Bed::new(input(PACKETS)) };
            bed.run(|_| vec![Box::new(stages.0.clone()), Box::new(stages.1.clone()), Box::new(Out)])
        });
        assert_eq!(done.frames.len(), PACKETS);
        assert_eq!((a.sum(), b.sum()), (PACKETS as u64, PACKETS as u64), "launch {at}");
        assert!(done.frames.is_sorted_by_key(|frame| frame[4..8].to_vec()), "launch {at}");
    }
}

/// A segment on the device before one with state: their chunks share few arenas.
#[test]
fn segments_that_share_few_arenas_come_to_their_end() {
    for (workers, slots, rows, chunks) in
        [(1, 2, 256, 64), (1, 2, 512, 64), (1, 4, 8192, 64), (4, 4, 8192, 64), (4, 1, 256, 4)]
    {
        let tallies: Vec<_> = (0..workers).map(|_| Tally::new(false)).collect();
        let kept = tallies.clone();
        let slow = Faults { slow: Some(Duration::from_millis(1)), ..Faults::default() };
        let done = within(120, move || {
            let devices = vec![pocl(slow, slots, rows)];
            let bed = Bed { workers, devices, chunks, ..Bed::new(input(30_000)) };
            bed.run(|i| vec![Box::new(Plain), Box::new(kept[i].clone()), Box::new(Out)])
        });
        let counted: u64 = tallies.iter().map(Tally::sum).sum();
        assert_eq!((done.frames.len(), counted), (30_000, 30_000));
        assert_eq!(done.lost_cells, 0);
    }
}

#[test]
fn a_panic_costs_its_chunk_and_names_stage_packet_and_line() {
    for at in [At::Pre, At::Shade, At::Post] {
        // One packet of flow 13 in each 251, ten of them in all.
        let done = within(60, move || {
            let bed = Bed { chunk_packets: 32, ..Bed::new(input(2_510)) };
            bed.run(|_| vec![Box::new(Touchy(at)), Box::new(Out)])
        });
        let dropped = done.view.drops(reasons::STAGE_PANIC);
        assert_eq!(done.frames.len() as u64 + dropped, 2_510, "{at:?}");
        assert_eq!(dropped, 10 * 32, "{at:?}: ten chunks of 32");
        assert!(done.frames.iter().all(|frame| frame[0] != 13));
        assert_eq!((done.panics.len(), done.lost_cells), (10, 0));
        assert_eq!(done.view.workers[0].panics.get(), 10);
        for panic in &done.panics {
            let (_, bytes) = panic.packet.clone().expect("the packet is known");
            assert_eq!((bytes[0], panic.stage), (13, (0, "touchy")));
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
        let done = within(60, move || {
            let bed = Bed { workers, chunk_packets: 16, ..Bed::new(input(60_000)) };
            bed.run(|i| {
                vec![Box::new(Touchy(if i == 0 { At::Pre } else { At::Never })), Box::new(Out)]
            })
        });
        let panicked = done.view.drops(reasons::STAGE_PANIC);
        assert_eq!(done.frames.len() as u64 + drops(&done.view), 60_000, "{workers} workers");
        let gave_up: Vec<_> = done.view.workers.iter().map(|w| w.gave_up.get()).collect();
        if flow_hash(&[13]) as u64 * workers as u64 >> 32 == 0 {
            assert_eq!(gave_up.iter().sum::<u64>(), 1, "{gave_up:?}");
            assert!(done.panics.last().unwrap().gave_up);
            if workers > 1 {
                let of_13 = done.frames.iter().filter(|frame| frame[0] == 13).count();
                assert!(of_13 > 0, "another worker takes the flow");
                assert!(panicked <= 16 * 16, "{panicked}");
            }
        }
        assert_eq!(done.lost_cells, 0);
    }
}

#[test]
fn a_tick_that_panics_is_counted_and_the_rest_goes_on() {
    let done = within(60, || {
        Bed::new(input(1_000)).run(|_| vec![Box::new(Touchy(At::Tick)), Box::new(Out)])
    });
    assert!(done.panics.iter().all(|panic| panic.step == "tick" && panic.packet.is_none()));
    assert!(!done.panics.is_empty());
    assert_eq!(done.frames.len() as u64 + drops(&done.view), 1_000);
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
fn a_worker_that_dies_keeps_nobody_from_stopping() {
    let ended = within(30, || {
        let (_, depot) = Region::new(6000, HugePages::Off).unwrap();
        let died = Arc::new(AtomicBool::new(false));
        let workers = (0..3)
            .map(|i| {
                let mut worker = WorkerSpec::new(One, vec![Box::new(Out) as Box<dyn Stage<u64>>]);
                let queue: Box<dyn io::RxQueue> = match i {
                    1 => Box::new(Broken(died.clone())),
                    _ => Box::new(Endless(io::QueueStats::default())),
                };
                let (spread, counters) = (Some(flow_hash as fn(&[u8]) -> u32), Arc::default());
                worker.rx = vec![RxSlot { port: 0, mark: 0, queue, spread, counters }];
                worker.tx = vec![TxSlot::Absent];
                worker
            })
            .collect();
        let engine = Engine::start(EngineSpec::new(workers, depot)).unwrap();
        while !died.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(20));
        engine.stop(Duration::from_secs(1))
    });
    assert!(ended.unwrap_err().contains("as planned"));
}

/// Sends packets of odd flows again from `target`, with one from each flow's number taken off until it is even or
/// the packet was dropped; hands packets of flow 8 to the worker of flow 9.
struct Loop {
    target: &'static str,
}

impl Stage<u64> for Loop {
    fn name(&self) -> &'static str {
        "loop"
    }
    fn sends_to(&self) -> &'static [&'static str] {
        &["first", "last"]
    }
    fn columns(&self) -> &'static [Declaration] {
        &[Cols::COLUMNS]
    }
    fn phases(&self) -> Phases {
        Phases::POST
    }
    fn post_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, u64>) {
        let (target, last) = (cx.place(self.target).unwrap(), cx.place("last").unwrap());
        for row in 0..chunk.len() {
            if !Verdict(chunk.rows.verdicts()[row]).is_next() {
                continue;
            }
            let flow = flow_of(&chunk.packets[row]);
            let verdict = match flow {
                8 => {
                    let mut packet = chunk.take(row);
                    packet.data_mut()[0] = 9;
                    let hash = flow_hash(&[9]);
                    cx.hand_over(packet, Some(row), hash, last);
                    Verdict::TAKEN
                }
                10 => {
                    let copy = chunk.packets[row].duplicate(cx.pool).unwrap();
                    chunk.emit(row, Verdict::again(last), copy);
                    Verdict::DUMP
                }
                11 => Verdict::again(target),
                flow if flow % 2 == 1 => {
                    chunk.packets[row].data_mut()[0] -= 1;
                    chunk.packets[row].data_mut()[1] += 1;
                    Verdict::again(target)
                }
                _ => Verdict::NEXT,
            };
            chunk.rows.verdicts()[row] = verdict.0;
        }
    }
}

/// Counts what it sees, by flow.
struct Named(&'static str, Arc<Mutex<Vec<Vec<u32>>>>);

impl Stage<u64> for Named {
    fn name(&self) -> &'static str {
        self.0
    }
    fn columns(&self) -> &'static [Declaration] {
        &[Cols::COLUMNS]
    }
    fn phases(&self) -> Phases {
        Phases::PRE
    }
    fn pre_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, u64>) {
        let mut seen = self.1.lock().unwrap();
        for (packet, verdict) in chunk.packets.iter().zip(chunk.rows.verdicts()) {
            if Verdict(*verdict).is_next() {
                let number = u32::from_be_bytes(packet.data()[4..8].try_into().unwrap());
                seen[flow_of(packet) as usize].push(number);
            }
        }
    }
}

#[test]
fn packets_go_through_again_and_to_other_workers_in_order() {
    for (workers, chunk_packets, target) in
        [(1, 7, "first"), (1, 64, "last"), (1, 256, "first"), (3, 32, "first"), (4, 256, "last")]
    {
        let seen: Arc<Mutex<Vec<Vec<u32>>>> = Arc::new(Mutex::new(vec![Vec::new(); FLOWS]));
        let kept = seen.clone();
        const PACKETS: usize = 4_000;
        let done = within(60, move || {
            let bed = Bed { workers, chunk_packets, ..Bed::new(input(PACKETS)) };
            bed.run(|_| {
                vec![
                    Box::new(Named("first", Arc::new(Mutex::new(vec![Vec::new(); FLOWS])))),
                    Box::new(Loop { target }),
                    Box::new(Named("last", kept.clone())),
                    Box::new(Out),
                ]
            })
        });
        let of = |flow: u8| (0..PACKETS).filter(|i| (i * 7 % 251) as u8 == flow).count() as u64;
        let view = &done.view;
        let sum = |f: fn(&engine::WorkerCounters) -> u64| -> u64 {
            view.workers.iter().map(|w| f(w)).sum()
        };
        let ring_full = view.drops(reasons::RING_FULL);
        assert_eq!(
            done.frames.len() as u64 + drops(view) + done.dumped,
            PACKETS as u64 + sum(|w| w.emitted.get()),
            "{workers} workers, {target}"
        );
        assert_eq!((sum(|w| w.dumped.get()), done.lost_cells), (done.dumped, 0));
        if ring_full == 0 {
            // A packet of flow 11 that turns to the start goes round until it has gone too often.
            let turns = if target == "first" { of(11) } else { 0 };
            assert_eq!(view.drops(reasons::AGAIN_TOO_OFTEN), turns);
            assert_eq!(
                (done.dumped, sum(|w| w.handed_over.get())),
                if target == "first" { (of(10), of(8) + of(9)) } else { (of(10), of(8)) }
            );
            // Nothing lost, and in order wherever a flow came one way.
            let seen = seen.lock().unwrap();
            assert_eq!(seen.iter().map(Vec::len).sum::<usize>(), done.frames.len());
            for flow in [12, 14, 100, 250] {
                if target == "last" || workers > 1 {
                    continue;
                }
                let own: Vec<u32> =
                    seen[flow].iter().copied().filter(|n| (n * 7 % 251) as usize == flow).collect();
                let turned: Vec<u32> =
                    seen[flow].iter().copied().filter(|n| (n * 7 % 251) as usize != flow).collect();
                assert!(own.is_sorted() && turned.is_sorted(), "flow {flow}: {own:?} {turned:?}");
            }
        }
    }
}

#[test]
fn a_place_that_the_pipeline_lacks_is_an_error() {
    let (_, depot) = Region::new(64, HugePages::Off).unwrap();
    let worker =
        WorkerSpec::new(One, vec![Box::new(Loop { target: "first" }) as Box<dyn Stage<u64>>]);
    let error = Engine::start(EngineSpec::new(vec![worker], depot)).err();
    let text = error.expect("it does not start").to_string();
    assert!(text.contains("`loop`") && text.contains("`first`"), "{text}");
}

/// Workers of two pipelines on two devices, one of which is lost: the other goes on.
#[test]
fn two_pipelines_share_two_devices_and_one_is_lost() {
    let lost = Faults { after_launches: 10, lost: Some(8), ..Faults::default() };
    let tallies: Vec<_> = (0..4).map(|i| Tally::new(i % 2 == 1)).collect();
    let kept = tallies.clone();
    let done = within(120, move || {
        let devices = vec![pocl(Faults::default(), 4, 2048), pocl(lost, 4, 2048)];
        let bed = Bed { workers: 4, devices, ..Bed::new(input(40_000)) };
        bed.run(|i| match i {
            0 | 2 => vec![Box::new(Plain), Box::new(kept[i].clone()), Box::new(Out)],
            _ => vec![Box::new(kept[i].clone()), Box::new(Out)],
        })
    });
    assert_eq!(done.view.pipelines, [0..3, 3..5]);
    assert_eq!(done.frames.len(), 40_000);
    let masters = done.view.masters();
    assert!(!masters[0].is_lost && masters[0].jobs > 0 && masters[0].failed == 0, "{masters:?}");
    let counted: u64 = tallies.iter().map(Tally::sum).sum();
    assert_eq!(counted, 40_000);
}
