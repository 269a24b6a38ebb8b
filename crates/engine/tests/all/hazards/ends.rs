//! What ends for good: state that can never be read, sources that panic, workers that give up.

use device::tables::Change;

use super::*;

/// A stage's state cannot be read, ever: the worker reports each time, and gives up after so many.
#[test]
fn state_that_can_never_be_read_is_reported_and_bounded() {
    if !testkit::require_opencl() {
        return;
    }
    for (call, step) in [(Call::State, "state"), (Call::Slots, "state_slots")] {
        let bed = Bed { devices: vec![device(Faults::default(), 4, 1024)], ..bed(input(60_000)) };
        let breaks = Breaks { call, is_late: false, every: 1, times: u64::MAX };
        let done = run(bed, 1, |_| {
            vec![Box::new(Brittle::new(Box::new(Count::new()), breaks)), Box::new(Plain), out()]
        });
        assert!(!done.panics.is_empty(), "{step}");
        let is_named = |panic: &StagePanic| panic.step == step && panic.stage.1 == "count";
        assert!(done.panics.iter().all(is_named), "{step}: {:?}", done.panics.first());
        // Those that were under way when the worker gave up come on top.
        assert!(done.panics.len() < 16 + 64, "{step}: {} times", done.panics.len());
        assert_eq!(done.view.workers[0].gave_up.get(), u64::from(done.panics.len() >= 16));
    }
}

/// A source of tables that panics.
struct BrokenSource(NumberImage);

impl device::tables::TableSource<u64> for BrokenSource {
    fn regions<'a>(&self, _: &'a u64) -> Vec<std::borrow::Cow<'a, [u32]>> {
        panic!("the source breaks, as planned")
    }
    fn changes(&self, from: u64, to: u64, change: &mut dyn FnMut(usize, Change<'_>)) -> bool {
        self.0.changes(from, to, change)
    }
}

/// What is the application's own panics on a master's thread: the device is given up, and no packet is lost.
#[test]
fn a_source_of_tables_that_panics_costs_the_device_alone() {
    if !testkit::require_opencl() {
        return;
    }
    let setup = Setup { slots: 2, rows: 1024, ..Setup::default() };
    let devices = setup.devices(|| Box::new(BrokenSource(NumberImage)) as Box<_>);
    let done = run(Bed { devices, ..bed(input(20_000)) }, 2, |_| vec![Box::new(Xor), out()]);
    assert_eq!(sent(&done), 20_000);
    let is_named = |(_, text): &(usize, String)| text.contains("as planned");
    assert!(done.device_errors.iter().any(is_named), "{:?}", done.device_errors);
}

/// Takes packets of flow 3, and panics over those of flow 9.
struct Keeper(Vec<Packet>, bool);

impl Stage<u64> for Keeper {
    fn name(&self) -> &'static str {
        "keeper"
    }
    fn post_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, u64>) {
        for row in 0..chunk.len() {
            let flow = chunk.packets[row].data()[0];
            assert!(!self.1 || flow != 9, "as planned");
            if flow == 3 {
                self.0.push(chunk.take(row));
                chunk.rows.verdicts()[row] = Verdict::TAKEN.0;
            }
        }
    }
    fn held(&self) -> usize {
        self.0.len()
    }
    fn drain(&mut self, cx: &mut Context<'_, u64>) {
        self.0.drain(..).for_each(|packet| cx.release(packet, Verdict::forward(0)));
    }
}

/// Bursts of eight: packets that are kept, and then those that make the stage panic until its worker gives up.
struct Bursts(usize);

impl io::RxQueue for Bursts {
    fn recv(&mut self, pool: &mut Pool, out: &mut Vec<Packet>, max: usize) -> usize {
        if self.0 == 19 || max < 8 {
            return 0;
        }
        self.0 += 1;
        let flow = if self.0 < 4 { 3 } else { 9 };
        out.extend((0..8).map(|_| Packet::copy_from(pool, &[flow; 60]).unwrap()));
        std::thread::sleep(Duration::from_micros(300));
        8
    }
    fn stats(&self) -> io::QueueStats {
        io::QueueStats::default()
    }
}

/// A worker that gives up parts with what its stages hold at once, also where chunks wait to fill.
#[test]
fn who_gives_up_parts_with_what_it_holds() {
    for with_device in [false, true] {
        let (_, depot) = Region::new(4000, HugePages::Off).unwrap();
        let workers = (0..2).map(|i| {
            let keeper = Keeper(Vec::new(), i == 0);
            let stages: Stages<u64> = vec![Box::new(Xor), Box::new(keeper), out()];
            let mut worker = WorkerSpec::new(one(), stages);
            let (queue, counters) = (Box::new(Bursts(0)), Arc::default());
            let slot = RxSlot {
                entry: engine::Entry::default(),
                port: 0,
                mark: 0,
                queue,
                spread: None,
                counters,
            };
            worker.rx.extend((i == 0).then_some(slot));
            worker.tx = vec![TxSlot::Own(Box::new(io::memory::Sink::new()), Arc::default())];
            worker
        });
        let cost = device::Cost { launch: Duration::from_millis(5), row: Duration::ZERO };
        let kind = engine::DeviceKind::Simulated { cost, faults: device::FaultPlan::default() };
        let simulated = DeviceSpec { kind, slots: 2, rows: 512, policy: engine::Policy::Device };
        let spec = EngineSpec::new(workers.collect(), depot);
        let engine = Engine::start(EngineSpec {
            chunk_packets: 8,
            chunks: 32,
            devices: with_device.then_some(simulated).into_iter().collect(),
            max_delay: Some(Duration::from_micros(200)),
            on_panic: Arc::new(|_| {}),
            ..spec
        })
        .unwrap();
        let counters = engine.view().workers[0].clone();
        let has_parted = || {
            counters.gave_up.get() == 1
                && counters.tx_packets.get() == 24
                && counters.held.get() == 0
        };
        assert!(testkit::wait_until(Duration::from_secs(30), has_parted), "{with_device}");
        engine.stop(Duration::from_secs(5)).unwrap();
    }
}

/// Marks of how far the two workers of the test below are.
#[derive(Default)]
struct Marks {
    may_panic: AtomicBool,
    gave_up: AtomicBool,
    is_asleep: AtomicBool,
    is_done: AtomicBool,
    looks: AtomicU64,
}

impl Marks {
    fn is(mark: &AtomicBool) -> bool {
        mark.load(Ordering::SeqCst)
    }
}

/// A queue without packets; the first worker's says when that has looked at it.
struct Empty(Arc<Marks>, bool);

impl io::RxQueue for Empty {
    fn recv(&mut self, _: &mut Pool, _: &mut Vec<Packet>, _: usize) -> usize {
        if self.1 {
            self.0.is_done.store(false, Ordering::SeqCst);
        }
        0
    }
    fn is_finished(&self) -> bool {
        if self.1 {
            self.0.is_done.store(true, Ordering::SeqCst);
        }
        true
    }
    fn stats(&self) -> io::QueueStats {
        io::QueueStats::default()
    }
}

/// A transmit queue by which a worker waits at a chosen place.
struct Waits(Arc<Marks>, bool);

impl io::TxQueue for Waits {
    fn send(&mut self, _: &mut Pool, _: &mut Vec<Packet>) {}
    fn flush(&mut self, _: &mut Pool) {}
    fn stats(&self) -> io::QueueStats {
        io::QueueStats::default()
    }
    fn is_drained(&self) -> bool {
        let Self(marks, is_first) = self;
        if *is_first && Marks::is(&marks.is_done) && !Marks::is(&marks.is_asleep) {
            // The first worker is about to become quiet.
            marks.may_panic.store(true, Ordering::SeqCst);
            while !Marks::is(&marks.is_asleep) {
                std::thread::yield_now();
            }
        } else if !*is_first
            && Marks::is(&marks.gave_up)
            && marks.looks.fetch_add(1, Ordering::SeqCst) == 2
        {
            // The second one, in the turn after it gave up.
            marks.is_asleep.store(true, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(300));
        }
        true
    }
}

/// Panics when it is asked for a time, once it may.
struct Late(Option<Arc<Marks>>);

impl Stage<u64> for Late {
    fn name(&self) -> &'static str {
        "late"
    }
    fn next_tick_ns(&self) -> Option<u64> {
        let may_panic = self.0.as_ref().is_some_and(|marks| Marks::is(&marks.may_panic));
        assert!(!may_panic, "as planned");
        None
    }
}

/// A worker gives up while it is quiet, and the only other one becomes quiet meanwhile: both end.
#[test]
fn a_quiet_worker_that_gives_its_queues_away_ends() {
    let marks = Arc::new(Marks::default());
    let (_, depot) = Region::new(2000, HugePages::Off).unwrap();
    let workers = (0..2).map(|i| {
        let late = Late((i == 1).then(|| marks.clone()));
        let mut worker = WorkerSpec::new(one(), vec![Box::new(late) as _, out()]);
        let queue = Box::new(Empty(marks.clone(), i == 0));
        worker.rx = vec![RxSlot {
            entry: engine::Entry::default(),
            port: 0,
            mark: 0,
            queue,
            spread: None,
            counters: Arc::default(),
        }];
        worker.tx = vec![TxSlot::Own(Box::new(Waits(marks.clone(), i == 0)), Arc::default())];
        worker
    });
    let seen = marks.clone();
    let spec = EngineSpec {
        until_finished: true,
        on_panic: Arc::new(move |panic| seen.gave_up.store(panic.gave_up, Ordering::SeqCst)),
        ..EngineSpec::new(workers.collect(), depot)
    };
    let limit = Duration::from_secs(30);
    let ended =
        watchdog::within(limit, "two workers", String::new, || Engine::start(spec).unwrap().join());
    assert_eq!(ended, Ok(()));
    assert!(Marks::is(&marks.gave_up));
}
