//! What a job brought down, taken by several threads, at any time.

use std::time::Duration;

use chunk::{Columns, Pool, Region};
use device::accelerator::{Accelerator, Options};
use device::{Device, DeviceError};

use crate::fixture::opencl;
use crate::packets::{Cols, Part, PartsJob, accelerator_of, cells, hash_of, recording, records_of};

const WAIT: Duration = Duration::from_secs(60);

fn accelerator(
    slots: usize,
    region: Option<&'static Region>,
    words_per_job: usize,
) -> Option<(Accelerator<PartsJob>, Vec<chunk::Arena>)> {
    let options = Options { slots, patience: WAIT, ..Options::default() };
    let segments = vec![Some(recording(words_per_job))];
    accelerator_of(opencl()?, 256, 8, segments, region, options).map(Some).expect("an accelerator")
}

/// Four chunks, of which one is empty; `seed` makes other frames.
fn frames(seed: usize) -> Vec<Vec<(Vec<u8>, bool)>> {
    let frame =
        |row: usize| (vec![(row ^ seed) as u8; 1 + (seed + 7 * row) % 90], !row.is_multiple_of(5));
    [30, 0, 64, 7].map(|rows: usize| (0..rows).map(frame).collect()).into()
}

/// Takes what came for a part and compares it with what plain Rust makes of its frames.
fn check_part(part: &mut Part, frames: &[(Vec<u8>, bool)]) {
    assert!(part.landing.is_some());
    let (mut records, mut wanted) = (Vec::new(), Vec::new());
    part.land(&mut records);
    let view = Cols::view(&mut part.rows);
    for (row, (frame, is_live)) in frames.iter().enumerate() {
        let seen: &[u8] = if *is_live { frame } else { &[] };
        assert_eq!(view.hash[row], hash_of(seen), "row {row}");
        let key = if *is_live { view.key[row] as u8 } else { 0 };
        let changed: Vec<u8> = frame.iter().map(|byte| byte ^ key).collect();
        assert!(part.packets[row].data() == changed, "row {row}");
        wanted.extend(records_of(part.first + row, seen.len()));
    }
    assert_eq!(records, wanted);
}

fn retire(device: &mut Accelerator<PartsJob>) -> PartsJob {
    let (job, result) = device.retire(WAIT).expect("it ends");
    assert_eq!(result, Ok(()));
    job
}

fn launch(device: &mut Accelerator<PartsJob>, arena: &chunk::Arena, pool: &mut Pool, seed: usize) {
    assert!(device.launch(PartsJob::new(arena, pool, &frames(seed))).is_ok());
}

#[test]
fn every_worker_takes_its_own_part() {
    for has_region in [true, false] {
        let (region, mut pool) = cells(2048);
        let region = has_region.then_some(region);
        let Some((mut device, arenas)) = accelerator(2, region, 1 << 16) else { return };
        for (seed, arena) in arenas.iter().enumerate() {
            launch(&mut device, arena, &mut pool, seed);
            let mut job = retire(&mut device);
            std::thread::scope(|scope| {
                for (part, frames) in job.0.iter_mut().zip(frames(seed)) {
                    scope.spawn(move || check_part(part, &frames));
                }
            });
            job.free(&mut pool);
        }
    }
}

/// One worker is slow: the others go on, other jobs run, and its part stays what it is. When nothing is left to bring
/// results to, the device has no room.
#[test]
fn a_part_that_is_not_taken_holds_its_memory_and_nothing_else() {
    let (region, mut pool) = cells(4096);
    let Some((mut device, arenas)) = accelerator(2, Some(region), 1 << 16) else { return };
    // Two slots and two spares.
    let mut slow = Vec::new();
    for (seed, arena) in arenas[..4].iter().enumerate() {
        assert!(device.has_capacity());
        launch(&mut device, arena, &mut pool, seed);
        let mut job = retire(&mut device);
        let frames = frames(seed);
        for (part, frames) in job.0.iter_mut().zip(&frames).skip(1) {
            check_part(part, frames);
        }
        slow.push(job);
    }
    assert!(!device.has_capacity() && device.in_flight() == 0);
    let refused = PartsJob::new(&arenas[4], &mut pool, &frames(4));
    let Err((refused, None)) = device.launch(refused) else { panic!("it has no room") };
    // Any one will do.
    let mut given_back = slow.remove(2);
    check_part(&mut given_back.0[0], &frames(2)[0]);
    assert!(device.has_capacity());
    assert!(device.launch(refused).is_ok());
    assert!(!device.has_capacity());
    let mut job = retire(&mut device);
    for (part, frames) in job.0.iter_mut().zip(&frames(4)) {
        check_part(part, frames);
    }
    for (job, seed) in slow.iter_mut().zip([0, 1, 3]) {
        check_part(&mut job.0[0], &frames(seed)[0]);
    }
    assert!(device.has_capacity());
    slow.into_iter().chain([given_back, job]).for_each(|job| job.free(&mut pool));
}

/// A job whose records are more than there is room for lands nowhere, and holds nothing.
#[test]
fn a_job_that_failed_brings_nothing() {
    let (region, mut pool) = cells(2048);
    let Some((mut device, arenas)) = accelerator(1, Some(region), 9) else { return };
    for (seed, arena) in arenas.iter().enumerate() {
        launch(&mut device, arena, &mut pool, seed);
        let (mut job, result) = device.retire(WAIT).expect("it ends");
        assert_eq!(result, Err(DeviceError::Overflow("test".into())));
        for (part, frames) in job.0.iter_mut().zip(frames(seed)) {
            assert!(part.landing.is_none());
            assert!(part.packets.iter().zip(&frames).all(|(p, (frame, _))| p.data() == frame));
        }
        assert!(device.has_capacity());
        job.free(&mut pool);
    }
}

/// The device goes first: what came down stays as long as somebody reads it.
#[test]
fn what_came_down_outlives_the_device() {
    let (region, mut pool) = cells(1024);
    let Some((mut device, arenas)) = accelerator(1, Some(region), 1 << 16) else { return };
    launch(&mut device, &arenas[0], &mut pool, 9);
    let mut job = retire(&mut device);
    drop(device);
    for (part, frames) in job.0.iter_mut().zip(&frames(9)) {
        check_part(part, frames);
    }
    job.free(&mut pool);
}
