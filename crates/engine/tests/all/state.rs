//! State on devices, simulated and real (PoCL): of several stages, over many workers, that grows, is swept and of which
//! slots are ignored. Whatever fails, the host's copy ends as one CPU's would.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use chunk::{Chunk, ColumnSet, Columns, Declaration, HugePages, Region, Rows, Verdict};
use device::accelerator::Options;
use device::driver::Api;
use device::faulty::{Faults, Faulty};
use device::tables::NoTables;
use device::{Cost, FaultPlan};
use engine::{
    Context, DeviceKind, DeviceSpec, Engine, EngineSpec, EngineView, KernelForm, Phases, Policy,
    RxSlot, Shade, Stage, Step, TxSlot, Versions, WorkerSpec,
};
use io::memory::{Collect, Script};
use proptest::prelude::*;
use teststages::{Count, Deliver, Find, FlowColumns, Flows, Record, Sum, TestColumns, Xor};

/// Tables whose version changes with every so many chunks.
struct Changing {
    every: u64,
    pinned: u64,
}

struct Unit(u64);

impl Deref for Unit {
    type Target = u64;
    fn deref(&self) -> &u64 {
        &self.0
    }
}

impl Versions for Changing {
    type Tables = u64;
    type Pin = Unit;
    fn pin(&mut self) -> Unit {
        self.pinned += 1;
        Unit(1 + self.pinned / self.every)
    }
    fn number(pin: &Unit) -> u64 {
        pin.0
    }
}

/// Kernels without state, which share the segment with those that have it.
struct Plain;

impl Stage<u64> for Plain {
    fn name(&self) -> &'static str {
        "plain"
    }
    fn columns(&self) -> &'static [Declaration] {
        &[FlowColumns::COLUMNS, TestColumns::COLUMNS]
    }
    fn phases(&self) -> Phases {
        Phases::NONE
    }
    fn reads(&self) -> ColumnSet {
        ColumnSet::of(&[FlowColumns::FLOW_VALUE])
    }
    fn writes(&self) -> ColumnSet {
        ColumnSet::of(&[TestColumns::SUM])
    }
    fn shader(&self) -> Option<Arc<dyn Shade<u64>>> {
        Some(Arc::new(Plain))
    }
}

impl Shade<u64> for Plain {
    fn shade(&self, rows: &mut Rows, _: &u64) {
        let values: Vec<u32> = FlowColumns::view(rows).flow_value.to_vec();
        let view = TestColumns::view(rows);
        for (row, value) in values.iter().enumerate() {
            if Verdict(view.verdict[row]).is_next() {
                view.sum[row] = !value;
            }
        }
    }
    fn kernels(&self) -> Option<KernelForm> {
        Some(KernelForm {
            text: "
                KERNEL(plain)
                {
                    const uint row = GLOBAL_ID;
                    if (row < job_rows(arena) && IS_NEXT(COL_VERDICT(arena)[row]))
                        COL_SUM(arena)[row] = ~COL_FLOW_VALUE(arena)[row];
                }"
            .into(),
            steps: vec![Step::rows("plain", 64).into()],
            ..KernelForm::default()
        })
    }
}

/// Writes what the kernels found behind the packet's first bytes, and sends it to port 0.
struct Out;

impl Stage<u64> for Out {
    fn name(&self) -> &'static str {
        "out"
    }
    fn columns(&self) -> &'static [Declaration] {
        &[FlowColumns::COLUMNS, TestColumns::COLUMNS]
    }
    fn phases(&self) -> Phases {
        Phases::POST
    }
    fn post_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, u64>) {
        for row in 0..chunk.packets.len() {
            if !Verdict(chunk.rows.verdicts()[row]).is_next() {
                continue;
            }
            let sum = TestColumns::view(&mut chunk.rows).sum[row];
            let view = FlowColumns::view(&mut chunk.rows);
            let found =
                [view.sum_a[row], view.packets_a[row], view.sum_b[row], view.packets_b[row], sum];
            view.verdict[row] = Verdict::forward(0).0;
            let words = chunk.packets[row].data_mut()[10..].chunks_exact_mut(4);
            words.zip(found).for_each(|(to, word)| to.copy_from_slice(&word.to_be_bytes()));
        }
    }
}

fn flow_hash(frame: &[u8]) -> u32 {
    u32::from(u16::from_be_bytes([frame[0], frame[1]])).wrapping_mul(0x9e37_79b9)
}

/// Frames of `flows` flows, some of them much more often than others.
fn input(packets: usize, flows: u64, mut seed: u64) -> Vec<Vec<u8>> {
    let mut random = move |n: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % n
    };
    (0..packets)
        .map(|number| {
            let mut frame = vec![0; 60];
            let most = if random(2) == 0 { flows } else { flows.div_ceil(10) };
            frame[..2].copy_from_slice(&(random(most) as u16).to_be_bytes());
            frame[2..6].copy_from_slice(&(number as u32).to_be_bytes());
            frame
        })
        .collect()
}

/// What each flow's record is in the end, sweeps aside, and the frames that come out, in order of their numbers.
fn reference(input: &[Vec<u8>]) -> (Vec<(u32, u32)>, Vec<Vec<u8>>) {
    let mut flows: BTreeMap<[u8; 2], (u32, u32)> = BTreeMap::new();
    let frames = input.iter().map(|frame| {
        let record = flows.entry([frame[0], frame[1]]).or_default();
        let value = u32::from_be_bytes([frame[2], frame[3], frame[4], frame[5]]);
        *record = (record.0.wrapping_mul(31).wrapping_add(value), record.1 + 1);
        let mut frame = frame.clone();
        let found = [record.0, record.1, record.0, record.1, !value];
        let words = frame[10..].chunks_exact_mut(4);
        words.zip(found).for_each(|(to, word)| to.copy_from_slice(&word.to_be_bytes()));
        frame
    });
    let frames = frames.collect();
    let mut records: Vec<_> = flows.into_values().collect();
    records.sort_unstable();
    (records, frames)
}

fn device(kind: DeviceKind<u64>, policy: Policy) -> DeviceSpec<u64> {
    DeviceSpec { kind, slots: 4, rows: 1024, policy }
}

fn simulated(faults: FaultPlan, policy: Policy) -> DeviceSpec<u64> {
    let cost = Cost { launch: Duration::from_micros(100), row: Duration::from_nanos(100) };
    device(DeviceKind::Simulated { cost, faults }, policy)
}

fn is_ready() -> bool {
    // One cache of PoCL's for this process.
    static CACHE: std::sync::OnceLock<tempfile::TempDir> = std::sync::OnceLock::new();
    let _ = CACHE.get_or_init(|| tempfile::tempdir().expect("a folder"));
    testkit::require_opencl()
}

fn pocl(faults: Faults, policy: Policy) -> DeviceSpec<u64> {
    let driver = device::probe::open(Api::OpenCl, 0).expect("PoCL");
    let driver = Box::new(Faulty::new(driver, faults));
    let patience = Duration::from_secs(if faults.hang.is_some() { 1 } else { 60 });
    let options = Options { patience, ..Options::default() };
    device(DeviceKind::Driver { driver, tables: Box::new(NoTables), options }, policy)
}

struct Done {
    frames: Vec<Vec<u8>>,
    view: Arc<EngineView>,
    lost_cells: usize,
}

fn run(
    input: Vec<Vec<u8>>,
    workers: usize,
    chunk_packets: usize,
    device: Option<DeviceSpec<u64>>,
    stages: impl Fn(usize) -> Vec<Box<dyn Stage<u64>>>,
) -> Done {
    run_with((input, 7), workers, chunk_packets, device, stages)
}

fn run_with(
    (input, every): (Vec<Vec<u8>>, u64),
    workers: usize,
    chunk_packets: usize,
    device: Option<DeviceSpec<u64>>,
    stages: impl Fn(usize) -> Vec<Box<dyn Stage<u64>>>,
) -> Done {
    const CELLS: u32 = 120_000;
    let (_, depot) = Region::new(CELLS, HugePages::Off).unwrap();
    let out = Collect::new();
    let frames = out.frames();
    let mut specs: Vec<_> =
        (0..workers).map(|i| WorkerSpec::new(Changing { every, pinned: 0 }, stages(i))).collect();
    specs.iter_mut().for_each(|worker| worker.tx = vec![TxSlot::Worker(0)]);
    specs[0].tx = vec![TxSlot::Own(Box::new(out), Arc::default())];
    specs[0].rx.push(RxSlot {
        entry: engine::Entry::default(),
        port: 0,
        mark: 0,
        queue: Box::new(Script::untimed(input)),
        spread: (workers > 1).then(|| flow_hash.into()),
        counters: Arc::default(),
    });
    let engine = Engine::start(EngineSpec {
        chunk_packets,
        chunks: 64,
        devices: device.into_iter().collect(),
        until_finished: true,
        lossless: true,
        on_panic: Arc::new(|panic| panic!("{panic}")),
        on_device_error: Arc::new(|_, _| ()),
        ..EngineSpec::new(specs, depot.clone())
    })
    .unwrap();
    let view = engine.view().clone();
    // A watchdog: a test that hangs says so.
    let (ended, end) = mpsc::channel();
    let thread = std::thread::spawn(move || _ = ended.send(engine.join()));
    end.recv_timeout(Duration::from_secs(120)).expect("it hangs").expect("no worker died");
    thread.join().unwrap();
    let frames = frames.lock().unwrap().iter().map(|(_, frame)| frame.clone()).collect();
    Done { frames, view, lost_cells: CELLS as usize - depot.available() }
}

/// One case: both instances of [`Flows`] in one segment, at some workers.
#[derive(Clone, Debug)]
struct Case {
    packets: usize,
    flows: u64,
    seed: u64,
    workers: usize,
    chunk_packets: usize,
    steps: [usize; 2],
    sweep_every: u64,
    policy: Policy,
}

fn case() -> impl Strategy<Value = Case> {
    let policy = prop_oneof![
        3 => Just(Policy::Device),
        1 => Just(Policy::Auto),
        1 => (1u32..3).prop_map(|device| Policy::Share { device, of: 3 }),
    ];
    let sizes = (500usize..4000, 1u64..400, any::<u64>(), 1usize..5, 16usize..257);
    let sweeps = prop_oneof![Just(0u64), 1_000u64..200_000];
    (sizes, [1usize..65, 1usize..65], sweeps, policy).prop_map(
        |(sizes, steps, sweep_every, policy)| {
            let (packets, flows, seed, workers, chunk_packets) = sizes;
            Case { packets, flows, seed, workers, chunk_packets, steps, sweep_every, policy }
        },
    )
}

fn check(case: Case, device: Option<DeviceSpec<u64>>) -> Arc<EngineView> {
    let input = input(case.packets, case.flows, case.seed);
    let (records, frames) = reference(&input);
    let make = |_| {
        let [a, b] = case.steps;
        let of = |is_second, step| Flows::new(is_second, step).swept_every(case.sweep_every);
        [of(false, a), of(true, b)]
    };
    let flows: Vec<[Flows; 2]> = (0..case.workers).map(make).collect();
    let done = run(input, case.workers, case.chunk_packets, device, |worker| {
        let [a, b] = flows[worker].clone();
        vec![Box::new(a), Box::new(Plain), Box::new(b), Box::new(Out)]
    });
    let mut sent = done.frames;
    sent.sort_unstable_by(|a, b| a[2..6].cmp(&b[2..6]));
    assert!(sent == frames, "{case:?}: other packets");
    assert_eq!(done.lost_cells, 0, "{case:?}");
    for instance in 0..2 {
        let mut found = Vec::new();
        for flows in &flows {
            let (records, asked) = flows[instance].records();
            let swept: Vec<u32> = records.iter().map(|record| record.sweeps).collect();
            assert_eq!(swept, asked, "{case:?}: sweeps of instance {instance}");
            found.extend(records.iter().map(|Record { sum, packets, .. }| (*sum, *packets)));
        }
        found.sort_unstable();
        assert!(found == records, "{case:?}: other records of instance {instance}");
    }
    done.view
}

#[test]
fn without_a_device_the_reference_is_right() {
    let policy = Policy::Cpu;
    let case = Case {
        packets: 3000,
        flows: 200,
        seed: 3,
        workers: 3,
        chunk_packets: 64,
        steps: [8, 64],
        sweep_every: 1000,
        policy,
    };
    check(case, None);
}

fn faults() -> impl Strategy<Value = FaultPlan> {
    let some = || proptest::collection::btree_set(0u64..60, 0..8);
    let hang = (0u64..40, 1u64..20).prop_map(|(at, ms)| (at, Duration::from_millis(ms)));
    (
        some(),
        some(),
        proptest::option::weighted(0.2, 0u64..60),
        proptest::option::weighted(0.2, hang),
    )
        .prop_map(|(failing, failing_copy, lost_from, hangs)| FaultPlan {
            no_build: false,
            failing,
            failing_copy,
            lost_from,
            hangs,
        })
}

/// So many cases, or as many as `PROPTEST_CASES` says.
fn config(cases: u32) -> ProptestConfig {
    let wanted = std::env::var("PROPTEST_CASES").ok().and_then(|wanted| wanted.parse().ok());
    let cases = wanted.unwrap_or(cases);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

fn driver_faults() -> impl Strategy<Value = Faults> {
    // Launches of setting up: the kernels of the segment, over no rows.
    let base = Faults { after_launches: 40, ..Faults::default() };
    prop_oneof![
        2 => Just(Faults::default()),
        2 => (0u64..200).prop_map(move |at| Faults { launch: Some(at), ..base }),
        2 => (0u64..60).prop_map(move |at| Faults { upload: Some(at), ..base }),
        2 => (0u64..60).prop_map(move |at| Faults { download: Some(at), ..base }),
        1 => (0u64..60).prop_map(move |at| Faults { lost: Some(at), ..base }),
        1 => (0u64..60).prop_map(move |at| Faults { late_then_lost: Some(at), ..base }),
        1 => (0u64..60).prop_map(move |at| Faults { hang: Some(at), ..base }),
    ]
}

proptest! {
    #![proptest_config(config(50))]

    #[test]
    fn state_on_the_simulated_device_is_as_on_a_cpu(case in case(), faults in faults()) {
        let device = simulated(faults, case.policy);
        let view = check(case, Some(device));
        let shown: Vec<_> = view.segments.iter().map(|s| (s.first, s.end, s.on_device)).collect();
        prop_assert_eq!(shown, [(0, 3, true), (3, 4, false)], "both stages with state in one segment");
    }
}

proptest! {
    #![proptest_config(config(8))]

    #[test]
    fn state_on_a_driver_is_as_on_a_cpu(case in case(), faults in driver_faults()) {
        if is_ready() {
            let device = pocl(faults, case.policy);
            check(case, Some(device));
        }
    }
}

/// A shard of thousands of slots, in small steps: its memory doubles several times.
#[test]
fn a_shard_grows_while_jobs_are_under_way() {
    if !is_ready() {
        return;
    }
    let case = Case {
        packets: 20_000,
        flows: 4000,
        seed: 9,
        workers: 2,
        chunk_packets: 256,
        steps: [16, 100],
        sweep_every: 0,
        policy: Policy::Device,
    };
    let slow = Faults { slow: Some(Duration::from_millis(2)), ..Faults::default() };
    let view = check(case, Some(pocl(slow, Policy::Device)));
    let master = view.master().expect("a master");
    assert_eq!((master.failed, master.packets), (0, 20_000), "{master:?}");
    // Each step was sent once: no more than the records of all slots and the rest of each shard's last step.
    let sent = master.traffic.state_up_bytes;
    assert!(sent <= 2 * 12 * (4000 + 2 * 100), "{sent} bytes");
}

/// Sweeps reach all slots on each side, and jobs of sweeps have no packets.
#[test]
fn sweeps_reach_the_home_of_the_state() {
    let cpu = None;
    let sim = Some(simulated(FaultPlan::default(), Policy::Device));
    let real = is_ready().then(|| pocl(Faults::default(), Policy::Device));
    for (number, device) in [cpu, sim, real].into_iter().enumerate() {
        if number == 2 && device.is_none() {
            continue;
        }
        let has_device = device.is_some();
        let flows = Flows::new(false, 64).swept_every(1);
        let kept = flows.clone();
        let done = run(input(30_000, 100, 1), 1, 32, device, move |_| {
            vec![Box::new(kept.clone()), Box::new(Plain), Box::new(Out)]
        });
        let (records, asked) = flows.records();
        let swept: Vec<u32> = records.iter().map(|record| record.sweeps).collect();
        assert_eq!(swept, asked);
        assert!(asked.iter().all(|times| *times > 0), "{asked:?}");
        assert_eq!(done.frames.len(), 30_000);
        if has_device {
            let master = done.view.master().expect("a master");
            assert_eq!((master.packets, master.failed), (30_000, 0), "{master:?}");
        }
    }
}

/// Rows of slots that are ignored have no part in the state any more, and chunks of nothing else do not travel.
#[test]
fn ignored_slots_stay_at_home() {
    for real in [false, true] {
        if real && !is_ready() {
            continue;
        }
        let device = match real {
            true => pocl(Faults::default(), Policy::Device),
            false => simulated(FaultPlan::default(), Policy::Device),
        };
        const FLOWS: u64 = 20;
        let flows: Vec<_> = (0..2).map(|_| Flows::new(false, 64).ignoring_after(100)).collect();
        let kept = flows.clone();
        let input = input(60_000, FLOWS, 4);
        let done = run(input, 2, 64, Some(device), move |i| {
            vec![Box::new(kept[i].clone()), Box::new(Plain), Box::new(Out)]
        });
        assert_eq!((done.frames.len(), done.lost_cells), (60_000, 0));
        let master = done.view.master().expect("a master");
        let counted: u32 =
            flows.iter().flat_map(|flows| flows.records().0).map(|record| record.packets).sum();
        assert!(counted >= 100 * FLOWS as u32 && u64::from(counted) <= master.packets);
        assert!(master.packets < 50_000, "{master:?}");
        let ignored =
            flows.iter().map(|f| (0..30).filter(|slot| f.ignored.contains(*slot)).count());
        assert_eq!(ignored.sum::<usize>(), FLOWS as usize);
    }
}

/// Payload that kernels change in the segment of a stage with state, on the simulated device: jobs behind one that fails
/// do not change it twice.
#[test]
fn changed_payload_and_state_are_done_again_together() {
    let input: Vec<Vec<u8>> = input(6000, 200, 8);
    let run_on = |device| {
        let count = Count::new();
        let kept = count.clone();
        let done = run(input.clone(), 1, 32, device, move |_| {
            vec![Box::new(Sum), Box::new(Xor), Box::new(kept.clone()), Box::new(Deliver)]
        });
        (done, count.counts.lock().unwrap().clone())
    };
    let (cpu, counts) = run_on(None);
    for every in [2, 7, 30] {
        let failing = (0..400).step_by(every).collect();
        let faults = FaultPlan { failing, ..FaultPlan::default() };
        let (device, counted) = run_on(Some(simulated(faults, Policy::Device)));
        assert!(device.frames == cpu.frames, "every {every}: other packets, or another order");
        assert_eq!(counted, counts, "every {every}");
        let master = device.view.master().expect("a master");
        // Where every other launch fails, all those behind may fail with them.
        assert!(master.failed > 0 && (every < 30 || master.jobs > master.failed), "{master:?}");
    }
}

/// A job whose records are too many fails when others on the same state are under way behind it.
#[test]
fn jobs_behind_one_that_overflows_change_no_packet_twice() {
    if !is_ready() {
        return;
    }
    let frame = |number: usize| {
        let mut frame = vec![200; 60];
        frame[0] = 100 + (number % 50) as u8;
        if number % 900 == 100 {
            frame[6..].fill(0);
        }
        frame
    };
    let input: Vec<Vec<u8>> = (0..9000).map(frame).collect();
    let run_on = |device| {
        let (count, find) = (Count::new(), Find::new(false, 3, 40));
        let kept = (count.clone(), find.clone());
        let done = run(input.clone(), 1, 64, device, move |_| {
            let (count, find) = kept.clone();
            vec![Box::new(Sum), Box::new(find), Box::new(Xor), Box::new(count), Box::new(Deliver)]
        });
        let (mut records, counts) = (find.records.lock().unwrap().clone(), count.counts);
        records.sort_unstable();
        (done, records, counts.lock().unwrap().clone())
    };
    let (cpu, records, counts) = run_on(None);
    let slow = Faults { slow: Some(Duration::from_millis(5)), ..Faults::default() };
    let (device, found, counted) = run_on(Some(pocl(slow, Policy::Device)));
    assert!(device.frames == cpu.frames, "other packets, or another order");
    assert_eq!((counted, found == records), (counts, true));
    let master = device.view.master().expect("a master");
    assert!(master.failed > 1 && master.jobs > master.failed && !master.is_lost, "{master:?}");
}
