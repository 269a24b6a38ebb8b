//! Jobs on a device allocate nothing: payload that is gathered, or packed by workers, and changed; records; chunks of
//! two workers. The only test of its program, for it counts the allocations of all threads; the library's own memory does
//! not come from there.

use std::alloc::System;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use chunk::{ColumnSet, Declaration, HugePages, Packet, Pool, Region, Rows};
use device::accelerator::{Options, Packing, Records, Scheduling};
use engine::{
    DeviceKind, DeviceSpec, Engine, EngineSpec, KernelForm, Policy, RxSlot, Shade, Stage, TxSlot,
    WorkerSpec,
};
use io::{QueueStats, RxQueue};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use teststages::harness::{NumberImage, Numbered, device_of_tests};
use teststages::{Deliver, Find, Sum, Xor};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// A stage that works on a device alone, as those here allocate on the CPU; of records it counts the words.
struct There<S>(Arc<S>, Arc<AtomicU64>);

impl<S> Clone for There<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone(), self.1.clone())
    }
}

impl<S: Stage<u64> + Shade<u64> + Sync + 'static> Stage<u64> for There<S> {
    fn name(&self) -> &'static str {
        self.0.name()
    }
    fn columns(&self) -> &'static [Declaration] {
        self.0.columns()
    }
    fn reads(&self) -> ColumnSet {
        self.0.reads()
    }
    fn writes(&self) -> ColumnSet {
        self.0.writes()
    }
    fn shader(&self) -> Option<Arc<dyn Shade<u64>>> {
        Some(Arc::new(self.clone()))
    }
}

impl<S: Shade<u64> + 'static> Shade<u64> for There<S> {
    fn shade(&self, _: &mut Rows, _: &u64) {}
    fn kernels(&self) -> Option<KernelForm> {
        self.0.kernels()
    }
    fn records(&self, rows: &mut Rows, records: Records<'_>, first: usize) {
        let words: usize = (0..rows.len()).map(|row| records.row(first + row).count()).sum();
        self.1.fetch_add(words as u64, Ordering::Relaxed);
    }
}

/// A queue on which there is always a packet: short ones, and some over two cells.
struct Endless(QueueStats);

impl RxQueue for Endless {
    fn recv(&mut self, pool: &mut Pool, out: &mut Vec<Packet>, max: usize) -> usize {
        const FRAME: [u8; 3000] = {
            let mut frame = [0; 3000];
            let mut i = 0;
            while i < frame.len() {
                frame[i] = (i * 37) as u8;
                i += 1;
            }
            frame
        };
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
fn jobs_allocate_nothing() {
    if !testkit::require_opencl() {
        return;
    }
    for (packing, scheduling) in [
        (Packing::Auto, Scheduling::Never),
        (Packing::Packed, Scheduling::Always),
        (Packing::Measured, Scheduling::Measured),
    ] {
        run(packing, scheduling);
    }
}

fn run(packing: Packing, scheduling: Scheduling) {
    let (_, depot) = Region::new(16_384, HugePages::Off).unwrap();
    let words = Arc::new(AtomicU64::new(0));
    let worker = || {
        let stages: Vec<Box<dyn Stage<u64>>> = vec![
            Box::new(There(Arc::new(Sum), words.clone())),
            Box::new(There(Arc::new(Xor), words.clone())),
            Box::new(There(Arc::new(Find::new(false, 20, 1 << 18)), words.clone())),
            Box::new(teststages::Count::new()),
            Box::new(Deliver),
        ];
        WorkerSpec {
            rx: vec![RxSlot {
                entry: engine::Entry::default(),
                port: 0,
                mark: 0,
                queue: Box::new(Endless(QueueStats::default())),
                spread: None,
                counters: Arc::default(),
            }],
            tx: vec![TxSlot::Own(Box::new(io::memory::Sink::default()), Arc::default())],
            ..WorkerSpec::new(Numbered::new(1), stages)
        }
    };
    let (api, number) = device_of_tests();
    let driver = device::probe::open(api, number).unwrap();
    let patience = Duration::from_secs(60);
    let options = Options { packing, scheduling, patience, ..Options::default() };
    let kind = DeviceKind::Driver { driver, tables: Box::new(NumberImage), options };
    let devices = vec![DeviceSpec { kind, slots: 3, rows: 1024, policy: Policy::Device }];
    let engine = Engine::start(EngineSpec {
        chunk_packets: 64,
        chunks: 8,
        devices,
        ..EngineSpec::new(vec![worker(), worker()], depot)
    })
    .unwrap();
    let view = engine.view().clone();
    let received = || view.workers.iter().map(|worker| worker.rx_packets.get()).sum::<u64>();
    let wait_for = |packets: u64| {
        let (end, begin) = (received() + packets, Instant::now());
        while received() < end {
            assert!(begin.elapsed() < Duration::from_secs(120), "the engine has stopped");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    // Lists and memory grow to what jobs need.
    wait_for(20_000);
    let words_before = words.load(Ordering::Relaxed);
    let count = |stats: stats_alloc::Stats| stats.allocations + stats.reallocations;
    let counts: [usize; 8] = std::array::from_fn(|_| {
        let before = count(ALLOCATOR.stats());
        wait_for(4000);
        count(ALLOCATOR.stats()) - before
    });
    engine.stop(Duration::from_secs(10)).unwrap();
    let master = view.master().expect("a master");
    assert_eq!(master.failed, 0);
    assert!(words.load(Ordering::Relaxed) > words_before, "records came");
    assert!(master.jobs >= 30 && master.packets > 5000, "{master:?}");
    assert_eq!(master.traffic.payload_gathered > 0, packing != Packing::Packed);
    assert_eq!(master.traffic.payload_packed > 0, packing != Packing::Auto);
    assert_eq!(master.traffic.scheduled > 0, scheduling != Scheduling::Never);
    // A list may grow late, once. What was allocated for each job or packet would be seen in every round.
    let quiet = counts.iter().filter(|count| **count == 0).count();
    assert!(quiet >= 5, "{packing:?}: {counts:?}");
}
