//! Jobs on PoCL that go wrong: nothing waits for a device that hangs, nothing that it may still write is
//! freed or used, and a job whose results came half down can be done again.

use std::sync::Arc;
use std::time::Duration;

use chunk::{Arena, ColumnSet, Columns, Layout, Packet, Rows};
use device::accelerator::{Accelerator, Offload, Options, SegmentProgram, State, StateForm, Step};
use device::driver::{Driver, Program};
use device::faulty::{Faults, Faulty};
use device::tables::{Change, TableSource};
use device::{Device, DeviceError, Shadeable};
use kernels::{Spec, files};

use crate::fixture::opencl;

chunk::columns! {
    /// One column in, one that is read and written, one out.
    struct Cols / View {
        pub key: u32,
        pub both: u32,
        pub out: u32,
    }
}

/// More than comes down in one piece.
const ROWS: usize = 40_001;
/// Launches of setting up: the kernel, over no rows.
const SET_UP: u64 = 1;

const STATE: State = State { form: StateForm { record_bytes: 4, slots_per_step: 16 }, shade: 0 };

const TEXT: &str = "
    KERNEL(work)
    {
        if (GLOBAL_ID < job_rows(arena)) {
            COL_OUT(arena)[GLOBAL_ID] = COL_KEY(arena)[GLOBAL_ID] * 3u + 1u;
            COL_BOTH(arena)[GLOBAL_ID] += COL_KEY(arena)[GLOBAL_ID];
        }
    }
    KERNEL(count)
    {
        GLOBAL uint *counts = (GLOBAL uint *)state_record(state, 0u, 0u, 0u, 16u, 4u);
        if (GLOBAL_ID == 0u) {
            counts[0] += job_rows(arena);
            for (uint row = 0u; row < job_rows(arena); row++) {
                COL_OUT(arena)[row] = counts[0];
                COL_BOTH(arena)[row] += COL_KEY(arena)[row];
            }
        }
    }";

struct Job {
    rows: Rows,
    number: u32,
}

impl Shadeable for Job {
    fn rows(&self) -> usize {
        self.rows.len()
    }
    fn shade(&mut self) {
        let view = Cols::view(&mut self.rows);
        for (row, key) in view.key.iter().enumerate() {
            view.out[row] = key.wrapping_mul(3).wrapping_add(1);
            view.both[row] = view.both[row].wrapping_add(*key);
        }
    }
}

impl Offload for Job {
    type Tables = ();
    fn segment(&self) -> usize {
        0
    }
    fn tables(&self) -> Option<(&(), u64)> {
        Some((&(), 1))
    }
    fn parts(&mut self, part: &mut dyn FnMut(&mut Rows)) {
        part(&mut self.rows);
    }
    fn packets(&mut self, _: &mut dyn FnMut(&mut Packet)) {}
    fn shards(&mut self, shard: &mut dyn FnMut(usize, bool)) {
        shard(0, false);
    }
    fn state_slots(&self, _: usize, _: usize) -> usize {
        16
    }
}

/// A table of one region.
struct OneTable(Arc<Vec<u32>>);

impl TableSource<()> for OneTable {
    fn regions<'a>(&self, _: &'a ()) -> Vec<std::borrow::Cow<'a, [u32]>> {
        vec![self.0.to_vec().into()]
    }
    fn changes(&self, _: u64, _: u64, _: &mut dyn FnMut(usize, Change<'_>)) -> bool {
        false
    }
}

fn accelerator(
    driver: Box<dyn Driver>,
    kernel: &'static str,
    options: Options,
) -> (Result<Accelerator<Job>, DeviceError>, Vec<Arena>) {
    let layout = Layout::new(Cols::COLUMNS, ROWS);
    let arenas: Vec<_> = (0..3).map(|_| Arena::new(layout.clone())).collect();
    let source = kernels::source_with(&Spec::new("test", &[&files::EMPTY], Cols::COLUMNS), TEXT);
    let segment = SegmentProgram {
        program: Program { name: "test".into(), source, defines: Vec::new(), ptx: None },
        steps: vec![Step::rows(kernel, 64)],
        reads: ColumnSet::of(&[Cols::KEY, Cols::BOTH]),
        writes: ColumnSet::of(&[Cols::BOTH, Cols::OUT]),
        fills: ColumnSet::of(&[Cols::OUT]),
        payload: None,
        payload_steps: 0,
        is_trusted: true,
        states: Vec::from_iter((kernel == "count").then_some(STATE)),
        shards: 1,
        ..SegmentProgram::default()
    };
    let tables = Box::new(OneTable(Arc::new(vec![7; 5000])));
    let (segments, arenas_in) = (vec![Some(segment)], arenas.clone());
    (Accelerator::new(driver, layout, segments, tables, arenas_in, None, options), arenas)
}

fn job(arena: &Arena, number: u32) -> Job {
    let mut rows = arena.reserve(ROWS).unwrap();
    let view = Cols::view(&mut rows);
    for row in 0..ROWS {
        view.key[row] = row as u32 ^ number << 20;
        (view.both[row], view.out[row]) = (row as u32, 0xabab_abab);
    }
    Job { rows, number }
}

/// The inputs are as they were, whatever came down.
fn is_untouched(job: &mut Job) -> bool {
    let number = job.number;
    let view = Cols::view(&mut job.rows);
    (0..ROWS).all(|row| view.key[row] == row as u32 ^ number << 20 && view.both[row] == row as u32)
}

fn is_done(job: &mut Job) -> bool {
    let number = job.number;
    let view = Cols::view(&mut job.rows);
    (0..ROWS).all(|row| {
        let key = row as u32 ^ number << 20;
        let both = (row as u32).wrapping_add(key);
        (view.both[row], view.out[row]) == (both, key.wrapping_mul(3).wrapping_add(1))
    })
}

fn patient() -> Options {
    let patience = Duration::from_secs(60);
    Options { slots: 2, patience, ..Options::default() }
}

#[test]
fn results_of_large_jobs_come_straight_to_the_rows() {
    let Some(driver) = opencl() else { return };
    let (device, arenas) = accelerator(driver, "work", patient());
    let mut device = device.unwrap();
    for (number, arena) in (0..).zip(&arenas[..2]) {
        assert!(device.launch(job(arena, number)).is_ok());
    }
    for _ in 0..2 {
        let (mut job, result) = device.retire(Duration::from_secs(60)).unwrap();
        assert!(result == Ok(()) && is_done(&mut job));
    }
    let traffic = device.traffic();
    // Block and two columns up; the column that was read too is staged, the other is not.
    assert_eq!(traffic.copies, 2 * (1 + 2 + 1 + 1), "{traffic:?}");
    assert_eq!(traffic.uploads, 2 * (1 + 2), "{traffic:?}");
    assert!(traffic.down_bytes >= 2 * 8 * ROWS as u64);
}

/// Jobs of one shard: their kernels run in order, on a queue of their own.
#[test]
fn state_is_counted_in_order_although_copies_have_queues_of_their_own() {
    let Some(driver) = opencl() else { return };
    let (device, arenas) = accelerator(driver, "count", Options { slots: 3, ..patient() });
    let mut device = device.unwrap();
    for round in 0..5u32 {
        for (number, arena) in (0..).zip(&arenas) {
            arena.close();
            arena.reopen();
            assert!(device.launch(job(arena, number)).is_ok());
        }
        let mut found = [0; 3];
        while device.in_flight() > 0 {
            let (mut job, result) = device.retire(Duration::from_secs(60)).unwrap();
            result.unwrap();
            found[job.number as usize] = Cols::view(&mut job.rows).out[ROWS - 1];
        }
        let expected = [1, 2, 3].map(|i| (3 * round + i) * ROWS as u32);
        assert_eq!(found, expected, "round {round}");
    }
}

#[test]
fn a_copy_that_fails_half_way_leaves_the_inputs_alone() {
    for faults in [
        Faults { download: Some(0), ..Faults::default() },
        Faults { download: Some(1), ..Faults::default() },
        Faults { upload: Some(0), ..Faults::default() }, // of the tables
        Faults { upload: Some(1), ..Faults::default() },
        Faults { upload: Some(2), ..Faults::default() }, // of the job
        Faults { upload: Some(4), ..Faults::default() },
        Faults { launch: Some(0), ..Faults::default() },
    ] {
        let Some(driver) = opencl() else { return };
        let faults = Faults { after_launches: SET_UP, ..faults };
        let (device, arenas) =
            accelerator(Box::new(Faulty::new(driver, faults)), "work", patient());
        let mut device = device.unwrap();
        let (mut failed, error) = device.launch(job(&arenas[0], 1)).unwrap_err();
        assert!(error.is_some() && is_untouched(&mut failed), "{faults:?}");
        failed.shade();
        assert!(is_done(&mut failed), "{faults:?}");
        // The device is whole: the next job is its own.
        assert!(device.launch(job(&arenas[1], 2)).is_ok(), "{faults:?}");
        let (mut job, result) = device.retire(Duration::from_secs(60)).unwrap();
        assert!(result == Ok(()) && is_done(&mut job), "{faults:?}");
    }
}

/// In warm-up, while tables come up, in flight: no call comes that would wait for ever ([`Faulty`] panics
/// then), and what the device writes long after goes where nobody looks.
#[test]
fn a_device_that_hangs_is_left_alone() {
    let short = Duration::from_millis(50);
    let hasty = Options { patience: short, warm_up: short, ..patient() };
    let base = Faults { after_launches: SET_UP, ..Faults::default() };
    for faults in [
        Faults { hang: Some(0), after_launches: 0, ..base }, // its first copy
        Faults { hang: Some(0), ..base },                    // its launches
    ] {
        let Some(driver) = opencl() else { return };
        let (device, _) = accelerator(Box::new(Faulty::new(driver, faults)), "work", hasty);
        assert_eq!(device.err(), Some(DeviceError::Hang(short)), "{faults:?}");
    }

    let Some(driver) = opencl() else { return };
    let faults = Faults { hang_upload: Some(0), ..base };
    let options = Options { warm_up: Duration::from_secs(60), ..hasty };
    let (device, arenas) = accelerator(Box::new(Faulty::new(driver, faults)), "work", options);
    let mut device = device.unwrap();
    let (mut failed, error) = device.launch(job(&arenas[0], 1)).unwrap_err();
    assert_eq!(error, Some(DeviceError::Hang(short)), "while the tables come up");
    assert!(is_untouched(&mut failed));
    let (_, error) = device.launch(job(&arenas[1], 1)).unwrap_err();
    assert_eq!(error, Some(DeviceError::Hang(short)), "it is asked no more");
}

#[test]
fn jobs_of_a_device_that_hangs_leave_their_rows() {
    let Some(driver) = opencl() else { return };
    let options = Options { patience: Duration::from_millis(400), ..patient() };
    let faults = Faults { after_launches: SET_UP + 1, hang: Some(0), ..Faults::default() };
    let (device, arenas) = accelerator(Box::new(Faulty::new(driver, faults)), "work", options);
    let mut device = device.unwrap();
    for (number, arena) in (1..).zip(&arenas[..2]) {
        assert!(device.launch(job(arena, number)).is_ok());
    }
    let mut back = Vec::new();
    while device.in_flight() > 0 {
        let Some((mut job, result)) = device.retire(Duration::from_secs(5)) else { continue };
        assert!(matches!(result, Err(DeviceError::Hang(_))), "{result:?}");
        assert!(is_untouched(&mut job));
        job.shade();
        assert!(!arenas.iter().any(|arena| arena.holds(&job.rows)), "it has left the arena");
        back.push(job);
    }
    assert_eq!(back.len(), 2);
    drop(device);
    for arena in &arenas[..2] {
        arena.close();
        assert!(!arena.reopen(), "its rows are never used again");
    }
    // Every copy that was under way comes now.
    std::thread::sleep(Duration::from_millis(800));
    assert!(back.iter_mut().all(is_done), "late copies went elsewhere");
}
