//! What takes a device, or one segment's use of it, away: a kernel that is too slow, a program that does not build, a
//! device that stops at any of its calls.

use std::time::{Duration, Instant};

use chunk::{Columns, Pool};
use device::accelerator::{Accelerator, Options, Part, Step};
use device::faulty::{Faults, Faulty};
use device::{Device, DeviceError, Shadeable};
use kernels::files::EMPTY;

use crate::fixture::opencl;
use crate::packets::{Cols, Kind, PacketJob, accelerator, accelerator_of, cells, hash_of, segment};

const PATIENCE: Duration = Duration::from_secs(60);
const KIND: Kind = Kind { writes: false, is_trusted: true, limit: false };

/// One row takes it a good part of a second.
const SLOW: &str = "
    KERNEL(test_slow)
    {
        if (GLOBAL_ID < job_rows(arena)) {
            uint x = COL_KEY(arena)[GLOBAL_ID];
            for (uint i = 0u; i < 300000000u; i++)
                x = (x ^ x >> 7) * 1664525u + i;
            COL_HASH(arena)[GLOBAL_ID] = x;
        }
    }
    KERNEL(test_quick)
    {
        if (GLOBAL_ID < job_rows(arena))
            COL_PLACE(arena)[GLOBAL_ID] = COL_KEY(arena)[GLOBAL_ID] + 1u;
    }";

fn options() -> Options {
    Options { slots: 2, patience: PATIENCE, ..Options::default() }
}

fn ended(device: &mut Accelerator<PacketJob>) -> (PacketJob, Result<(), DeviceError>) {
    let begin = Instant::now();
    loop {
        if let Some(ended) = device.retire(Duration::from_millis(5)) {
            return ended;
        }
        assert!(begin.elapsed() < 2 * PATIENCE, "no job ends");
    }
}

fn limited(limit: Duration) -> Step {
    Step { limit: Some(limit), stage: "busy", ..Step::rows("test_slow", 64) }
}

#[test]
fn a_kernel_that_is_too_slow_is_named_and_leaves_the_others_their_device() {
    let Some(driver) = opencl() else { return };
    let limit = Duration::from_millis(20);
    let quick = || Step { limit: Some(PATIENCE), stage: "busy", ..Step::rows("test_quick", 64) };
    let segments = vec![
        Some(segment(SLOW, &[&EMPTY], vec![quick(), limited(limit), quick()], KIND)),
        Some(segment(SLOW, &[&EMPTY], vec![quick()], KIND)),
    ];
    let (_, mut pool) = cells(256);
    let (mut device, arenas) =
        accelerator_of(driver, 64, 2, segments, None, options()).expect("an accelerator");
    let job = |pool: &mut Pool, arena: usize, segment| {
        arenas[arena].close();
        arenas[arena].reopen();
        let job = PacketJob::new(&arenas[arena], pool, &[(vec![1; 60], true)]);
        PacketJob { segment, ..job }
    };
    assert_eq!(device.disabled(0), None);
    assert!(device.launch(job(&mut pool, 0, 0)).is_ok());
    let (mut failed, result) = ended(&mut device);
    let wanted = DeviceError::TooSlow { stage: "busy".into(), kernel: "test_slow".into(), limit };
    assert_eq!(result, Err(wanted.clone()));
    assert!(wanted.is_of_stage());
    assert_eq!(Cols::view(&mut failed.rows).key[0], 1, "its input is as it was");
    failed.free(&mut pool);
    assert_eq!((device.disabled(0), device.disabled(1)), (Some(&wanted), None));
    let Err((refused, error)) = device.launch(job(&mut pool, 0, 0)) else {
        panic!("the segment is used again")
    };
    assert_eq!(error, Some(wanted));
    refused.free(&mut pool);
    // The other one is as it was, with its own limit, which it keeps.
    assert!(device.launch(job(&mut pool, 1, 1)).is_ok());
    let (mut done, result) = ended(&mut device);
    assert_eq!((result, Cols::view(&mut done.rows).place[0]), (Ok(()), 2));
    done.free(&mut pool);
}

/// A part that is too slow is used no more; the jobs that were launched with it have the time that they need, and the device stays.
#[test]
fn a_part_that_is_too_slow_has_time_to_end() {
    let Some(driver) = opencl() else { return };
    let part = Part { name: "part".into(), instead: "test_quick".into() };
    let limit = Duration::from_millis(20);
    let slow = Step { stage: "busy", ..Step::rows("test_slow", 64) }.with_part(part, limit);
    let (_, mut pool) = cells(256);
    let options = Options { patience: Duration::from_millis(200), ..options() };
    let segments = vec![Some(segment(SLOW, &[&EMPTY], vec![slow], KIND))];
    let (mut device, arenas) =
        accelerator_of(driver, 64, 2, segments, None, options).expect("an accelerator");
    // A second or more each.
    let packets = vec![(vec![1; 60], true); 8];
    for arena in &arenas {
        assert!(device.launch(PacketJob::new(arena, &mut pool, &packets)).is_ok());
    }
    for _ in 0..2 {
        let (mut done, result) = ended(&mut device);
        assert_eq!(result, Ok(()), "late, and as good as any");
        assert_ne!(Cols::view(&mut done.rows).hash[0], 0);
        done.free(&mut pool);
    }
    let notice = DeviceError::PartTooSlow { part: "part".into(), limit };
    assert_eq!((device.take_notice(), device.take_notice()), (Some(notice), None));
    arenas[0].close();
    arenas[0].reopen();
    assert!(device.launch(PacketJob::new(&arenas[0], &mut pool, &packets)).is_ok());
    let (mut done, result) = ended(&mut device);
    assert_eq!((result, Cols::view(&mut done.rows).place[0]), (Ok(()), 2));
    done.free(&mut pool);
}

/// Its program names the file and the line of whoever wrote it.
#[test]
fn a_program_that_does_not_build_leaves_the_others_their_device() {
    let wrong = "\n#line 1 \"mine.k\"\nKERNEL(test_wrong)\n{\n    nonsense();\n}\n";
    let broken = || Some(segment(wrong, &[&EMPTY], vec![Step::rows("test_wrong", 64)], KIND));
    let sound = || Some(segment(SLOW, &[&EMPTY], vec![Step::rows("test_quick", 64)], KIND));
    let is_named = |error: &DeviceError| matches!(error, DeviceError::Build { log, .. } if log.contains("mine.k:3"));
    let Some(driver) = opencl() else { return };
    let segments = vec![None, broken(), sound()];
    let (mut device, arenas) =
        accelerator_of(driver, 64, 1, segments, None, options()).expect("an accelerator");
    assert!(device.disabled(0).is_none() && device.disabled(2).is_none());
    assert!(device.disabled(1).is_some_and(is_named), "{:?}", device.disabled(1));
    let (_, mut pool) = cells(256);
    let job = PacketJob::new(&arenas[0], &mut pool, &[(vec![1; 60], true)]);
    let Err((job, error)) = device.launch(PacketJob { segment: 1, ..job }) else {
        panic!("it runs what was not built")
    };
    assert!(error.as_ref().is_some_and(is_named));
    assert!(device.launch(PacketJob { segment: 2, ..job }).is_ok());
    let (mut job, result) = ended(&mut device);
    assert_eq!((result, Cols::view(&mut job.rows).place[0]), (Ok(()), 2));
    job.free(&mut pool);

    // A kernel that is built and that no device takes, because its groups are too large.
    let huge = || Some(segment(SLOW, &[&EMPTY], vec![Step::rows("test_quick", 1 << 24)], KIND));
    let Some(driver) = opencl() else { return };
    let (device, _) =
        accelerator_of::<PacketJob>(driver, 64, 1, vec![huge(), sound()], None, options())
            .expect("an accelerator");
    assert!(matches!(device.disabled(0), Some(DeviceError::Launch(_))), "{:?}", device.disabled(0));
    assert_eq!(device.disabled(1), None);
    let Some(driver) = opencl() else { return };
    let none = accelerator_of::<PacketJob>(driver, 64, 1, vec![huge()], None, options());
    assert!(matches!(none.err(), Some(DeviceError::Launch(_))));

    // Where none builds there is no device.
    let Some(driver) = opencl() else { return };
    let none = accelerator_of::<PacketJob>(driver, 64, 1, vec![None, broken()], None, options());
    assert!(none.is_err_and(|error| is_named(&error)));
}

impl PacketJob {
    /// What a shade would do.
    fn hash(&mut self) {
        for row in 0..self.rows() {
            let frame = self.frame(row);
            let view = Cols::view(&mut self.rows);
            view.hash[row] = hash_of(&frame);
        }
    }
}

/// From each call on that enqueues something, the device stops for good: a copy, a launch, an event, a wait, while it is
/// set up and in a short run. Every job comes back, in time, and can be done again.
#[test]
fn a_device_that_hangs_at_each_of_its_calls_in_turn() {
    const JOBS: usize = 4;
    let patience = Duration::from_millis(40);
    let mut struck = 0;
    for call in 0.. {
        let Some(driver) = opencl() else { return };
        let (region, mut pool) = cells(64);
        let faults = Faults { hang_call: Some(call), ..Faults::default() };
        let driver = Box::new(Faulty::new(driver, faults));
        // A warm-up is given its time: a library compiles there. Only where it hangs it ends early.
        let options = Options { patience, warm_up: Duration::from_millis(900), ..options() };
        let kind = Kind { writes: true, is_trusted: true, limit: false };
        let made = accelerator(driver, 64, 2, kind, Some(region), options);
        let (mut device, arenas) = match made {
            Ok(made) => made,
            Err(error) => {
                assert!(matches!(error, DeviceError::Hang(_)), "call {call}: {error}");
                struck += 1;
                continue;
            }
        };
        let frames: Vec<_> = (0..5).map(|row| (vec![row as u8 + 1; 70], true)).collect();
        let begin = Instant::now();
        let (mut back, mut is_hung) = (Vec::new(), false);
        for round in 0..JOBS {
            let arena = &arenas[round % 2];
            arena.close();
            if !arena.reopen() {
                break; // lost with the device
            }
            let job = PacketJob::new(arena, &mut pool, &frames);
            if let Err((job, error)) = device.launch(job) {
                assert!(matches!(error, Some(DeviceError::Hang(_))), "call {call}: {error:?}");
                is_hung = true;
                back.push(job);
                continue;
            }
            while device.in_flight() > 0 {
                let Some((job, result)) = device.retire(Duration::from_millis(1)) else {
                    assert!(begin.elapsed() < 100 * patience, "call {call}: no end");
                    continue;
                };
                match result {
                    Ok(()) => job.free(&mut pool),
                    Err(error) => {
                        assert!(matches!(error, DeviceError::Hang(_)), "call {call}: {error}");
                        is_hung = true;
                        back.push(job);
                    }
                }
            }
        }
        for mut job in back {
            job.hash();
            for (row, (frame, _)) in frames.iter().enumerate() {
                assert!(job.frame(row) == *frame, "call {call}: its packets are as they were");
                let view = Cols::view(&mut job.rows);
                assert_eq!((view.hash[row], view.key[row]), (hash_of(frame), row as u32 | 1));
            }
            job.free(&mut pool);
        }
        drop(device); // a call that would wait for ever panics there
        if !is_hung {
            // The run has fewer calls.
            assert!(struck > 30, "{struck} calls hung");
            return;
        }
        struck += 1;
    }
}
