//! Ticks of stages: a worker that sleeps wakes when one is due.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chunk::{HugePages, Region};
use engine::{Context, Engine, EngineSpec, Stage, WorkerSpec};
use teststages::harness::Numbered;

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

/// Wants a tick so long after each one.
struct Due {
    after_ns: u64,
    at_ns: u64,
    /// How late each tick came.
    late_ns: Arc<Mutex<Vec<u64>>>,
}

impl Stage<u64> for Due {
    fn name(&self) -> &'static str {
        "due"
    }

    fn tick(&mut self, cx: &mut Context<'_, u64>) {
        if let Some(late_ns) = cx.now_ns.checked_sub(self.at_ns) {
            self.late_ns.lock().unwrap().push(late_ns);
            self.at_ns = now_ns() + self.after_ns;
        }
    }

    fn next_tick_ns(&self) -> Option<u64> {
        Some(self.at_ns)
    }
}

/// Wants its tick at once, always.
struct Restless(Arc<AtomicU64>);

impl Stage<u64> for Restless {
    fn name(&self) -> &'static str {
        "restless"
    }

    fn tick(&mut self, _: &mut Context<'_, u64>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn next_tick_ns(&self) -> Option<u64> {
        Some(0)
    }
}

fn start(stage: Box<dyn Stage<u64>>) -> Engine<Numbered> {
    let (_, depot) = Region::new(1000, HugePages::Off).unwrap();
    let worker = WorkerSpec::new(Numbered::new(1), vec![stage]);
    Engine::start(EngineSpec::new(vec![worker], depot)).unwrap()
}

/// Nothing else wakes this worker: without the time of its stage it would sleep for 100 ms.
#[test]
fn a_worker_that_sleeps_wakes_for_the_tick_of_a_stage() {
    let late_ns: Arc<Mutex<Vec<u64>>> = Arc::default();
    let due = Due { after_ns: 3_000_000, at_ns: now_ns(), late_ns: late_ns.clone() };
    let engine = start(Box::new(due));
    let sleeps = engine.view().workers[0].sleeps.get();
    while late_ns.lock().unwrap().len() < 20 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(engine.view().workers[0].sleeps.get() > sleeps, "it slept in between");
    engine.stop(Duration::from_secs(5)).unwrap();
    // Other programs may keep it waiting, but not each time.
    let least = *late_ns.lock().unwrap().iter().min().unwrap();
    assert!(least < 20_000_000, "{least} ns late");
}

/// It goes on in steps, and the worker sleeps between them.
#[test]
fn a_stage_that_always_wants_its_tick_leaves_the_core() {
    let ticks = Arc::<AtomicU64>::default();
    let engine = start(Box::new(Restless(ticks.clone())));
    while ticks.load(Ordering::Relaxed) < 10_000 || engine.view().workers[0].sleeps.get() < 20 {
        std::thread::sleep(Duration::from_millis(1));
    }
    engine.stop(Duration::from_secs(5)).unwrap();
}
