//! Payload and state on a real driver (PoCL): the same packets as on the CPU, one upload for all stages
//! of a segment, order with eight jobs in flight, the right counts after a failure in mid-state, and
//! shards that move. `CI=true` wants an OpenCL platform.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use chunk::{Chunk, ColumnSet, Declaration, Packet, Rows};
use device::accelerator::{Options, Packing, Scheduling, Traffic};
use device::faulty::Faults;
use engine::{Context, KernelForm, MasterView, Policy, Segment, Shade, Stage, Step};
use teststages::harness::{Backing, Bed, Case, NumberImage, Random, Setup, Subject, numbered};
use teststages::{Count, Deliver, Find, HostXor, SLOTS, Sum, Xor};

/// What a run left behind.
struct Run {
    frames: Vec<Vec<u8>>,
    counts: Vec<u32>,
    master: Option<MasterView>,
    moves: u64,
    errors: usize,
    segments: Vec<Segment>,
}

/// Launches of setting up: each kernel of the segment once, over no rows, and the one that gathers cells.
const KERNELS: u64 = 4 + SORT;

/// Of these, and of a job whose rows are sorted, those of the sort for [`Xor`].
const SORT: u64 = 7;

fn run(input: Vec<Vec<u8>>, setup: Option<Setup>) -> Run {
    let count = Count::new();
    let counts = count.counts.clone();
    let stages: Vec<Box<dyn Stage<u64>>> =
        vec![Box::new(Sum), Box::new(Xor), Box::new(count), Box::new(Deliver)];
    run_stages(input, setup, stages, counts)
}

fn run_stages(
    input: Vec<Vec<u8>>,
    setup: Option<Setup>,
    stages: Vec<Box<dyn Stage<u64>>>,
    counts: Arc<Mutex<Vec<u32>>>,
) -> Run {
    let setup = setup.unwrap_or_else(Setup::cpu);
    let bed = Bed {
        devices: setup.devices(|| Box::new(NumberImage) as Box<_>),
        chunks: setup.chunks,
        cells: 40_000,
        ..Bed::new(input)
    };
    let stages = Mutex::new(stages);
    let run = bed.run(numbered(1, |_| std::mem::take(&mut *stages.lock().unwrap())));
    run.conserves().unwrap();
    assert!(run.panics.is_empty(), "{}", run.panics[0]);
    Run {
        frames: run.frames().cloned().collect(),
        counts: counts.lock().unwrap().clone(),
        master: run.view.master(),
        moves: run.view.workers[0].shard_moves.get(),
        errors: run.device_errors.len(),
        segments: run.view.segments.clone(),
    }
}

/// Frames of many flows and lengths; a long one lies in several cells.
fn input(packets: usize) -> Vec<Vec<u8>> {
    let mut seed = 5u64;
    let mut random = move |n: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % n
    };
    (0..packets)
        .map(|i| {
            let long = if i == packets / 2 { 5000 } else { 1 + random(600) as usize };
            let mut frame: Vec<u8> = (0..long).map(|_| random(256) as u8).collect();
            frame[0] = random(20) as u8;
            frame
        })
        .collect()
}

fn is_ready() -> bool {
    testkit::require_opencl()
}

#[test]
fn a_device_gives_the_same_packets_and_counts_and_one_upload_serves_all_stages() {
    if !is_ready() {
        return;
    }
    let input = input(20_000);
    let bytes: u64 = input.iter().map(|frame| frame.len() as u64).sum();
    let cpu = run(input.clone(), None);
    assert_eq!(cpu.frames.len(), 20_000);
    for packing in [Packing::Auto, Packing::Packed, Packing::InPlace] {
        let setup = Setup::default();
        let options = Options { packing, ..setup.options };
        let faults = Faults { slow: Some(Duration::from_millis(150)), ..Faults::default() };
        let device = run(input.clone(), Some(Setup { options, faults, ..setup }));
        assert!(device.frames == cpu.frames, "{packing:?}: other packets, or another order");
        assert_eq!(device.counts, cpu.counts, "{packing:?}");
        let master = device.master.expect("a master");
        assert_eq!((master.packets, master.failed, device.errors), (20_000, 0, 0), "{packing:?}");
        // As many as the machine had time to hand in before the first one came back; a busy one had time for few.
        assert!((2..=8).contains(&master.in_flight_max), "{packing:?}: {master:?}");
        let traffic = master.traffic;
        assert_eq!(traffic.launches, 3 * traffic.jobs, "{packing:?}");
        assert_eq!(traffic.state_up_bytes, 4 * SLOTS as u64, "the shard moved once");
        // Two stages use the payload and one changes it: up once, down once. Frames start at multiples of 16.
        let up = traffic.payload_up_bytes;
        assert!((bytes..bytes + 20_000 * 16).contains(&up), "{up}");
        let gathered = if packing == Packing::Auto { traffic.jobs } else { 0 };
        assert_eq!((traffic.payload_gathered, traffic.payload_in_place), (gathered, 0));
        assert!(traffic.payload_down_bytes <= up && traffic.payload_down_bytes >= bytes);
    }
}

#[test]
fn payload_that_is_only_read_stays_where_it_is() {
    if !is_ready() {
        return;
    }
    // One cell each: a chain would be packed.
    let input: Vec<_> = input(5000).into_iter().filter(|frame| frame.len() < 1500).collect();
    let only_sum = || -> Vec<Box<dyn Stage<u64>>> { vec![Box::new(Sum), Box::new(Deliver)] };
    let cpu = run_stages(input.clone(), None, only_sum(), Arc::default());
    let setup = Setup::default();
    let options = Options { packing: Packing::InPlace, ..setup.options };
    let setup = Setup { options, ..setup };
    let device = run_stages(input, Some(setup), only_sum(), Arc::default());
    assert!(device.frames == cpu.frames, "other packets, or another order");
    let traffic = device.master.expect("a master").traffic;
    assert!(traffic.jobs > 0 && traffic.payload_in_place == traffic.jobs, "{traffic:?}");
    assert_eq!((traffic.payload_up_bytes, traffic.payload_down_bytes), (0, 0));
}

/// Rows that are sorted before the kernels, those that are not, and both in turn, while it is measured: the same packets in
/// the same order.
#[test]
fn rows_are_sorted_for_kernels_where_that_is_chosen() {
    if !is_ready() {
        return;
    }
    let input = input(20_000);
    let cpu = run(input.clone(), None);
    for scheduling in [Scheduling::Never, Scheduling::Always, Scheduling::Measured] {
        let setup = Setup::default();
        let options = Options { scheduling, ..setup.options };
        let device = run(input.clone(), Some(Setup { options, ..setup }));
        assert!(device.frames == cpu.frames, "{scheduling:?}: other packets, or another order");
        assert_eq!(device.counts, cpu.counts, "{scheduling:?}");
        let master = device.master.expect("a master");
        assert_eq!((master.packets, master.failed), (20_000, 0), "{scheduling:?}");
        let traffic = master.traffic;
        assert_eq!(traffic.launches, 3 * traffic.jobs + SORT * traffic.scheduled);
        match scheduling {
            Scheduling::Never => assert_eq!(traffic.scheduled, 0),
            Scheduling::Always => assert_eq!(traffic.scheduled, traffic.jobs),
            Scheduling::Measured => {
                assert!((1..traffic.jobs).contains(&traffic.scheduled), "{traffic:?}");
            }
        }
    }
}

/// Payload that takes each way in turn, while it is measured: the same packets in the same order.
#[test]
fn payload_takes_the_way_that_is_chosen() {
    if !is_ready() {
        return;
    }
    let setup = Setup::default();
    let options = Options { packing: Packing::Measured, ..setup.options };
    let setup = Setup { options, ..setup };
    let changed = input(20_000);
    let cpu = run(changed.clone(), None);
    let device = run(changed, Some(setup.clone()));
    assert!(device.frames == cpu.frames, "other packets, or another order");
    assert_eq!(device.counts, cpu.counts);
    let traffic = device.master.expect("a master").traffic;
    let Traffic { jobs, payload_gathered, payload_packed, payload_in_place, .. } = traffic;
    assert!(payload_gathered > 0 && payload_packed > 0, "{traffic:?}");
    assert_eq!((payload_gathered + payload_packed, payload_in_place), (jobs, 0), "{traffic:?}");
    // One kernel that only reads may find the frames where they are. State has all chunks go to the device.
    let read: Vec<_> = input(20_000).into_iter().filter(|frame| frame.len() < 1500).collect();
    let counted = |setup| {
        let count = Count::new();
        let counts = count.counts.clone();
        let stages: Vec<Box<dyn Stage<u64>>> =
            vec![Box::new(Sum), Box::new(count), Box::new(Deliver)];
        run_stages(read.clone(), setup, stages, counts)
    };
    let (cpu, device) = (counted(None), counted(Some(setup)));
    assert!(device.frames == cpu.frames, "other packets, or another order");
    assert_eq!(device.counts, cpu.counts);
    let traffic = device.master.expect("a master").traffic;
    let Traffic { jobs, payload_gathered, payload_packed, payload_in_place, .. } = traffic;
    let ways = [payload_gathered, payload_packed, payload_in_place];
    assert!(ways.iter().all(|way| *way > 0), "{traffic:?}");
    assert_eq!(ways.iter().sum::<u64>(), jobs);
}

#[test]
fn a_failure_in_mid_state_leaves_the_right_counts() {
    if !is_ready() {
        return;
    }
    let input = input(12_000);
    let cpu = run(input.clone(), None);
    // The first job's cells are gathered and its first kernel and what comes before it go well.
    let after_launches = KERNELS + 2;
    let base = Faults { after_launches, ..Faults::default() };
    for faults in [
        Faults { launch: Some(7), ..base },
        Faults { upload: Some(9), ..base },
        Faults { download: Some(3), ..base },
        Faults { lost: Some(6), ..base },
        Faults { hang: Some(6), ..base },
        Faults { build: true, ..base },
        // Jobs that could overtake the one that fails must not have changed packets that are done again.
        Faults { late_then_lost: Some(after_launches + 8), ..base },
        // It hangs while it is set up: nothing waits for it, and the CPU shades.
        Faults { hang: Some(0), after_launches: 0, ..base },
    ] {
        let setup = Setup::default();
        let patience = Duration::from_secs(if faults.hang.is_some() { 2 } else { 60 });
        let options = Options { patience, warm_up: patience, ..setup.options };
        let device = run(input.clone(), Some(Setup { faults, options, ..setup }));
        assert!(device.frames == cpu.frames, "{faults:?}: other packets, or another order");
        assert_eq!(device.counts, cpu.counts, "{faults:?}");
        assert_eq!(device.errors, 1, "reported once: {faults:?}");
        match device.master {
            None => assert!(faults.build || faults.after_launches == 0),
            Some(master) => assert!(master.failed > 0, "{faults:?}: {master:?}"),
        }
    }
}

/// Under full load, with a CPU that takes 20 µs a packet, the shard goes to the device once and stays; with
/// one that takes none, it tries the device for some chunks and comes back.
#[test]
fn auto_moves_shards_to_the_cheaper_side() {
    if !is_ready() {
        return;
    }
    let input = input(30_000);
    let cpu = run(input.clone(), None);
    for (per_row, device_is_cheaper) in [(20, true), (0, false)] {
        let count = Count::slow(Duration::from_micros(per_row));
        let counts = count.counts.clone();
        let stages: Vec<Box<dyn Stage<u64>>> =
            vec![Box::new(Sum), Box::new(Xor), Box::new(count), Box::new(Deliver)];
        let faults = match device_is_cheaper {
            true => Faults::default(),
            false => Faults { slow: Some(Duration::from_millis(5)), ..Faults::default() },
        };
        let setup = Setup { policy: Policy::Auto, faults, ..Setup::default() };
        let device = run_stages(input.clone(), Some(setup), stages, counts);
        assert!(device.frames == cpu.frames, "other packets, or another order");
        assert_eq!(device.counts, cpu.counts);
        let (moves, master) = (device.moves, device.master.expect("a master"));
        assert_eq!(master.traffic.state_up_bytes, moves.div_ceil(2) * 4 * SLOTS as u64);
        // The choice goes with measured costs, on a machine that others use too: what is fixed is that a
        // shard moves whole, and not with single chunks (118 of them).
        assert!(moves <= 4, "{per_row} µs a row: {moves} moves, {master:?}");
        if device_is_cheaper {
            assert!(moves > 0 && master.packets > 10_000, "{moves} moves, {master:?}");
        } else {
            assert!(master.packets < 20_000, "{moves} moves, {master:?}");
        }
    }
}

#[test]
fn shards_move_whole() {
    if !is_ready() {
        return;
    }
    let input = input(12_000);
    let cpu = run(input.clone(), None);
    let policy = Policy::Share { device: 1, of: 3 };
    let device = run(input, Some(Setup { policy, ..Setup::default() }));
    assert!(device.frames == cpu.frames, "other packets, or another order");
    assert_eq!(device.counts, cpu.counts);
    assert!(device.moves >= 10, "{} moves", device.moves);
    let master = device.master.expect("a master");
    assert!(master.packets > 0 && master.packets < 12_000, "both sides worked: {master:?}");
    assert_eq!(master.traffic.state_up_bytes, device.moves.div_ceil(2) * 4 * SLOTS as u64);
}

/// A shade without kernels takes no device from its neighbours, on any kind of device.
#[test]
fn segments_follow_from_kernels() {
    if !is_ready() {
        return;
    }
    let input = input(5000);
    let stages = || -> Vec<Box<dyn Stage<u64>>> {
        vec![Box::new(Sum), Box::new(HostXor), Box::new(Deliver)]
    };
    let cpu = run_stages(input.clone(), None, stages(), Arc::default());
    for backing in [Backing::Driver, Backing::Simulated] {
        let setup = Setup { backing, ..Setup::default() };
        let device = run_stages(input.clone(), Some(setup), stages(), Arc::default());
        assert!(device.frames == cpu.frames, "other packets, or another order");
        let shown: Vec<_> = device.segments.iter().map(|s| (s.first, s.end, s.on_device)).collect();
        assert_eq!(shown, [(0, 1, true), (1, 2, false), (2, 3, false)], "{backing:?}");
        assert_eq!(device.segments, cpu.segments, "as without a device");
        // Where all arenas are full, a chunk without state is shaded here.
        assert!(device.master.is_some_and(|master| master.packets > 0));
    }
}

/// Two instances of a stage in one segment, each with its own parameters, scratch, sort and records: by blocks, by
/// rows, over a list. Where the records are more than there is room for, the job is done again here, and nothing
/// differs.
#[test]
fn kernels_of_every_shape_write_records() {
    if !is_ready() {
        return;
    }
    let input = input(4000);
    for (words_per_job, fits) in [(1 << 20, true), (40, false)] {
        let finds = || [Find::new(false, 3, words_per_job), Find::new(true, 20, 1 << 20)];
        let stages = |[first, second]: &[Find; 2]| -> Vec<Box<dyn Stage<u64>>> {
            let (first, second) = (Box::new(first.clone()), Box::new(second.clone()));
            vec![Box::new(Sum), first, second, Box::new(Deliver)]
        };
        let records = |finds: &[Find; 2]| {
            finds.each_ref().map(|find| {
                let mut records = find.records.lock().unwrap().clone();
                records.sort_unstable();
                (records, *find.odd.lock().unwrap())
            })
        };
        let on_cpu = finds();
        let cpu = run_stages(input.clone(), None, stages(&on_cpu), Arc::default());
        for packing in [Packing::Auto, Packing::InPlace] {
            let setup = Setup::default();
            let options = Options { packing, ..setup.options };
            let there = finds();
            let setup = Setup { options, ..setup };
            let device = run_stages(input.clone(), Some(setup), stages(&there), Arc::default());
            assert!(device.frames == cpu.frames, "{packing:?}: other packets, or another order");
            assert!(records(&there) == records(&on_cpu), "{packing:?}, {words_per_job} words");
            let shown: Vec<_> = device.segments.iter().map(|s| (s.end, s.on_device)).collect();
            assert_eq!(shown, [(3, true), (4, false)]);
            let master = device.master.expect("a master");
            assert!(master.jobs > 0 && (master.failed == 0) == fits, "{master:?}");
            assert_eq!(device.errors == 0, fits);
        }
    }
}

/// Payload that is read and changed, state, and a shade that only a CPU has: on every kind of device, in chunks of any
/// size, by several workers, with failures and moves, as one worker on the CPU does it.
#[test]
fn any_way_to_run_the_stages_gives_the_same() {
    let subject = |workers: usize| {
        let counts: Vec<_> = (0..workers).map(|_| Count::new()).collect();
        let stages = counts.iter().map(|count| -> Vec<Box<dyn Stage<u64>>> {
            let count = Box::new(count.clone());
            vec![Box::new(Sum), Box::new(Xor), count, Box::new(HostXor), Box::new(Deliver)]
        });
        let workers = stages.collect();
        let of = move |flow| counts.iter().map(|count| count.of(flow)).sum::<u64>() as u32;
        let state = move || (0..=255).flat_map(|flow| of(flow).to_le_bytes()).collect();
        Subject { workers, state: Box::new(state) }
    };
    let case = Case::new("sum, xor, count", input(3000), &subject);
    case.check_random(Random::from_time().word(), 6, None);
}

/// Each worker takes its own part of what came down: changed payload, columns and records, by several workers, in
/// chunks of any size, whatever fails.
#[test]
fn workers_take_their_parts_of_a_job() {
    let subject = |workers: usize| {
        let finds = [Find::new(false, 3, 1 << 20), Find::new(true, 20, 1 << 20)];
        let stages = (0..workers).map(|_| -> Vec<Box<dyn Stage<u64>>> {
            let [first, second] = finds.each_ref().map(|find| Box::new(find.clone()));
            vec![Box::new(Sum), Box::new(Xor), first, second, Box::new(Deliver)]
        });
        let workers = stages.collect();
        let state = move || {
            let words = finds.iter().flat_map(|find| {
                let mut records = find.records.lock().unwrap().clone();
                records.sort_unstable();
                let odd = *find.odd.lock().unwrap() as u32;
                records.into_iter().flatten().chain([odd]).collect::<Vec<_>>()
            });
            words.flat_map(u32::to_le_bytes).collect()
        };
        Subject { workers, state: Box::new(state) }
    };
    let case = Case::new("sum, xor, find, find", input(3000), &subject);
    let reference = case.run(&Setup::cpu()).0;
    for backing in [Backing::Driver, Backing::Simulated] {
        if backing == Backing::Driver && !is_ready() {
            continue;
        }
        let run = case.check(&Setup { workers: 4, backing, ..Setup::default() }, &reference);
        assert!(run.view.master().is_some_and(|master| master.packets > 0), "{backing:?}");
    }
    case.check_random(Random::from_time().word(), 4, Some(&reference));
}

/// [`Xor`] by one of several workers that takes its time over what comes back.
struct Late {
    is_late: bool,
}

impl Stage<u64> for Late {
    fn name(&self) -> &'static str {
        "late"
    }
    fn columns(&self) -> &'static [Declaration] {
        Xor.columns()
    }
    fn pre_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, u64>) {
        Xor.pre_shade(chunk, cx);
    }
    fn reads(&self) -> ColumnSet {
        Xor.reads()
    }
    fn shader(&self) -> Option<Arc<dyn Shade<u64>>> {
        Some(Arc::new(Self { ..*self }))
    }
}

impl Shade<u64> for Late {
    fn shade(&self, _: &mut Rows, _: &u64) {}
    fn shade_packets(&self, rows: &mut Rows, packets: &mut [Packet], tables: &u64) {
        Xor.shade_packets(rows, packets, tables);
    }
    fn kernels(&self) -> Option<KernelForm> {
        Xor.kernels()
    }
    fn retired(&self, _: &mut Rows, _: &mut [Packet]) {
        if self.is_late {
            std::thread::sleep(Duration::from_millis(3));
        }
    }
}

/// A worker holds what came down for its chunks for long, and the device has one slot: the others' packets go on,
/// here or there, and nothing is overwritten.
#[test]
fn a_slow_worker_holds_up_no_other() {
    if !is_ready() {
        return;
    }
    let subject = |workers: usize| {
        let stages = (0..workers).map(|worker| -> Vec<Box<dyn Stage<u64>>> {
            let is_late = workers > 1 && worker == 1;
            vec![Box::new(Sum), Box::new(Late { is_late }), Box::new(Deliver)]
        });
        Subject { workers: stages.collect(), state: Box::new(Vec::new) }
    };
    let case = Case::new("sum, late", input(6000), &subject);
    let reference = case.run(&Setup::cpu()).0;
    for (slots, packing) in [(1, Packing::Auto), (1, Packing::Packed), (3, Packing::Packed)] {
        let setup = Setup::default();
        let options = Options { packing, ..setup.options };
        let setup = Setup { workers: 4, slots, chunk_packets: 32, rows: 512, options, ..setup };
        let run = case.check(&setup, &reference);
        let master = run.view.master().expect("a master");
        assert!(master.packets > 0 && master.failed == 0, "{master:?}");
    }
}

/// [`Xor`] with kernels that are unusable: they do not compile, or take long.
struct Bad(&'static str);

impl Stage<u64> for Bad {
    fn name(&self) -> &'static str {
        "bad"
    }
    fn shader(&self) -> Option<Arc<dyn Shade<u64>>> {
        Some(Arc::new(Bad(self.0)))
    }
}

impl Shade<u64> for Bad {
    fn shade(&self, _: &mut Rows, _: &u64) {}
    fn shade_packets(&self, rows: &mut Rows, packets: &mut [Packet], tables: &u64) {
        Xor.shade_packets(rows, packets, tables);
    }
    fn kernels(&self) -> Option<KernelForm> {
        Some(KernelForm {
            text: self.0.into(),
            file: "bad.k".into(),
            steps: vec![Step::rows("bad", 64).into()],
            time_limit: Some(Duration::from_millis(1)),
            ..KernelForm::default()
        })
    }
}

/// A stage whose kernels are unusable loses no packet, and the stage before it has its device.
#[test]
fn kernels_that_are_no_good_lose_nothing() {
    if !is_ready() {
        return;
    }
    let input = input(3000);
    let broken = "KERNEL(bad)\n{\n    nonsense();\n}\n";
    // It would leave wrong packets, were they taken: it changes none.
    let slow = "KERNEL(bad)
        {
            uint x = GLOBAL_ID;
            for (uint i = 0u; i < 20000000u && job_rows(arena) > 0u; i++)
                x = (x ^ x >> 7) * 1664525u + i;
            if (GLOBAL_ID < job_rows(arena) && x == 1u)
                COL_VERDICT(arena)[GLOBAL_ID] = DROP_TEST;
        }";
    for text in [broken, slow] {
        let stages = || -> Vec<Box<dyn Stage<u64>>> {
            vec![Box::new(Sum), Box::new(Bad(text)), Box::new(Deliver)]
        };
        let cpu = run_stages(input.clone(), None, stages(), Arc::default());
        let device = run_stages(input.clone(), Some(Setup::default()), stages(), Arc::default());
        assert!(device.frames == cpu.frames, "other packets, or another order");
        assert!(device.errors > 0);
        let traffic = device.master.expect("a master").traffic;
        assert!(traffic.jobs > 0, "the first stage: {traffic:?}");
    }
}
