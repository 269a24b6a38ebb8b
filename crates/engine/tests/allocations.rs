//! While captures and a trace run, workers allocate nothing. The only test of its program, for it counts
//! the allocations of all threads.

use std::alloc::System;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use chunk::{Chunk, Columns, Declaration, HugePages, Packet, Pool, Region, Verdict};
use engine::{
    Capture, CapturePoint, Context, Engine, EngineSpec, RxSlot, Stage, Trace, TxSlot, Versions,
    WorkerSpec,
};
use io::{QueueStats, RxQueue};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

chunk::columns! {
    /// None but the common ones.
    pub struct NoColumns / NoView {
        /// Not used.
        pub unused: u32,
    }
}

#[derive(Clone)]
struct Constant;

impl Deref for Constant {
    type Target = ();
    fn deref(&self) -> &() {
        &()
    }
}

impl Versions for Constant {
    type Tables = ();
    type Pin = Constant;
    fn pin(&mut self) -> Constant {
        Constant
    }
    fn number(_: &Constant) -> u64 {
        0
    }
}

/// Forwards packets to port 0 and drops every tenth.
struct Sorter(u64);

impl Stage<()> for Sorter {
    fn name(&self) -> &'static str {
        "sorter"
    }
    fn columns(&self) -> &'static [Declaration] {
        &[NoColumns::COLUMNS]
    }
    fn post_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, ()>) {
        for verdict in chunk.rows.verdicts() {
            self.0 += 1;
            let drops = self.0.is_multiple_of(10);
            let fate =
                if drops { Verdict::drop(teststages::reasons::TEST) } else { Verdict::forward(0) };
            *verdict = fate.0;
        }
    }
}

/// A queue on which there is always a packet: short ones, and some over two cells.
struct Endless(QueueStats);

impl RxQueue for Endless {
    fn recv(&mut self, pool: &mut Pool, out: &mut Vec<Packet>, max: usize) -> usize {
        const FRAME: [u8; 3000] = [3; 3000];
        for i in 0..max {
            let len = if self.0.packets.is_multiple_of(8) { FRAME.len() } else { 60 };
            let Some(packet) = Packet::copy_from(pool, &FRAME[..len]) else { return i };
            self.0.packets += 1;
            out.push(packet);
        }
        max
    }
    fn stats(&self) -> QueueStats {
        self.0
    }
}

#[test]
fn captures_and_traces_allocate_nothing_for_a_packet() {
    let (_, depot) = Region::new(4096, HugePages::Off).unwrap();
    let stages = vec![Box::new(Sorter(0)) as Box<dyn Stage<()>>];
    let worker = WorkerSpec {
        rx: vec![RxSlot {
            entry: engine::Entry::default(),
            port: 0,
            mark: 0,
            queue: Box::new(Endless(QueueStats::default())),
            spread: None,
            counters: Arc::default(),
        }],
        tx: vec![TxSlot::Own(Box::new(io::memory::Sink::default()), Arc::default())],
        ..WorkerSpec::new(Constant, stages)
    };
    let engine = Engine::start(EngineSpec {
        chunk_packets: 64,
        chunks: 4,
        ..EngineSpec::new(vec![worker], depot)
    })
    .unwrap();
    let view = engine.view().clone();
    let capture = |point, frames| {
        let filter: engine::FrameFilter = Arc::new(|packet: &Packet| packet.frame_len() > 0);
        view.hooks.capture(Capture { point, filter: Some(filter), frames }).unwrap()
    };
    let mut readers = [capture(CapturePoint::Port(0), 4096), capture(CapturePoint::Drops, 512)];
    // It wants a packet, but none that comes.
    let (sender, _reports) = std::sync::mpsc::sync_channel(1);
    let filter: engine::FrameFilter = Arc::new(|packet: &Packet| packet.frame_len() == 0);
    let _trace = view.hooks.trace(Trace { filter: Some(filter), left: AtomicU64::new(1), sender });
    let received = || view.workers[0].rx_packets.get();
    let wait_for = |packets: u64| {
        let (end, begin) = (received() + packets, Instant::now());
        while received() < end {
            assert!(begin.elapsed() < Duration::from_secs(60), "the engine has stopped");
            std::thread::yield_now();
        }
    };
    // The first frame of a thread registers it with the list of captures.
    wait_for(1000);
    for round in 0..10 {
        for reader in &mut readers {
            while reader.try_recv().is_some_and(|frame| frame.bytes.len() == frame.len) {}
        }
        let before = ALLOCATOR.stats();
        wait_for(5000);
        let after = ALLOCATOR.stats();
        let counts = |s: stats_alloc::Stats| (s.allocations, s.deallocations, s.reallocations);
        assert_eq!(counts(before), counts(after), "round {round}");
        let waiting = readers.each_mut().map(|reader| reader.try_recv().is_some());
        assert_eq!(waiting, [true; 2], "frames were captured in round {round}");
    }
    engine.stop(Duration::from_secs(5)).unwrap();
    assert!(readers.iter().any(|reader| reader.lost() > 0), "the captures were full too");
}
