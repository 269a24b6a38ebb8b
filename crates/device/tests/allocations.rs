//! A job allocates nothing: launched and retired again and again on PoCL, every form of payload and every way of
//! columns, with records and in parts, it leaves the counts of the allocator as they were. The libraries' own memory does not come from there.

#[path = "opencl/fixture.rs"]
#[allow(dead_code)]
mod fixture;
#[path = "common/packets.rs"]
mod packets;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use device::Device;
use device::accelerator::{Options, Packing, PayloadWork};

use fixture::opencl;
use packets::{Kind, PacketJob, PartsJob, accelerator, accelerator_of, cells, recording};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Counts what each thread allocates.
struct Counting;

// SAFETY: everything is passed on to the system's allocator; the count is a plain number of the thread's own.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that ends has no count any more.
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's.
        unsafe { System.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's.
        unsafe { System.realloc(at, layout, bytes) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Rows of a small job, whose columns go in one block, and of a large one.
const ROWS: [usize; 2] = [200, 20_000];

fn frames(rows: usize) -> Vec<(Vec<u8>, bool)> {
    (0..rows).map(|row| (vec![row as u8; 20 + row % 60], row % 5 != 0)).collect()
}

#[test]
fn a_job_allocates_nothing() {
    for (rows, writes, packing, has_region, limit) in [
        (ROWS[0], false, Packing::Auto, true, false), // in place
        (ROWS[0], true, Packing::Auto, true, false),  // gathered
        (ROWS[0], true, Packing::Packed, false, false), // packed
        (ROWS[1], true, Packing::Auto, true, false),  // columns straight from the rows
        (ROWS[1], false, Packing::Packed, false, false), // the same
        (ROWS[0], true, Packing::Auto, true, true),   // an event behind each kernel
    ] {
        let Some(driver) = opencl() else { return };
        let (region, mut pool) = cells(2 * rows as u32 + 256);
        let options =
            Options { slots: 2, patience: Duration::from_secs(60), packing, ..Options::default() };
        let kind = Kind { writes, is_trusted: true, limit };
        let region = has_region.then_some(region);
        let (mut device, arenas) =
            accelerator(driver, rows, 2, kind, region, options).expect("an accelerator");
        let frames = frames(rows);
        let mut jobs: Vec<_> =
            arenas.iter().map(|arena| PacketJob::new(arena, &mut pool, &frames)).collect();
        let mut counts = Vec::with_capacity(16);
        for _ in 0..16 {
            let before = ALLOCATIONS.with(Cell::get);
            while let Some(job) = jobs.pop() {
                assert!(device.launch(job).is_ok());
            }
            while device.in_flight() > 0 {
                let Some((job, result)) = device.retire(Duration::from_millis(1)) else { continue };
                assert!(result.is_ok());
                jobs.push(job);
            }
            counts.push(ALLOCATIONS.with(Cell::get) - before);
        }
        // Lists grow in the first jobs of each slot.
        assert!(
            counts[4..].iter().all(|count| *count == 0),
            "{rows} rows, {packing:?}: {counts:?}"
        );
        assert!(counts[0] > 0, "the count counts");
        jobs.into_iter().for_each(|job| job.free(&mut pool));
    }
}

#[test]
fn a_job_of_parts_with_records_allocates_nothing() {
    // Gathered by the device, and packed by workers.
    for packing in [Packing::Auto, Packing::Packed] {
        let Some(driver) = opencl() else { return };
        let (region, mut pool) = cells(4096);
        let patience = Duration::from_secs(60);
        let options = Options { slots: 2, patience, packing, ..Options::default() };
        let segments = vec![Some(recording(1 << 16))];
        let (mut device, arenas) = accelerator_of(driver, 1024, 2, segments, Some(region), options)
            .expect("an accelerator");
        let (region, blocks) = match device.payload_work(0) {
            PayloadWork::Pack => (None, device.payload_blocks(2)),
            _ => (Some(region), Vec::new()),
        };
        let parts: Vec<_> = [200, 1, 100].map(frames).into();
        let mut jobs: Vec<_> =
            arenas.iter().map(|arena| PartsJob::new(arena, &mut pool, &parts)).collect();
        let (mut counts, mut records) = (Vec::with_capacity(16), Vec::new());
        for _ in 0..16 {
            let before = ALLOCATIONS.with(Cell::get);
            while let Some(mut job) = jobs.pop() {
                let block = blocks.get(jobs.len());
                block.into_iter().for_each(|block| assert!(block.reuse()));
                job.0.iter_mut().for_each(|part| part.look(region, block));
                assert!(device.launch(job).is_ok());
            }
            while device.in_flight() > 0 {
                let Some((mut job, result)) = device.retire(Duration::from_millis(1)) else {
                    continue;
                };
                assert!(result.is_ok());
                for part in &mut job.0 {
                    part.land(&mut records);
                    part.payload.clear();
                    assert!(part.rows.len() < 4 || !records.is_empty());
                }
                jobs.push(job);
            }
            counts.push(ALLOCATIONS.with(Cell::get) - before);
        }
        assert!(counts[4..].iter().all(|count| *count == 0), "{packing:?}: {counts:?}");
        jobs.into_iter().for_each(|job| job.free(&mut pool));
    }
}
