//! Memory, copies, kernels, queues and events; errors that name their cause.

use device::DeviceError;
use device::driver::{Arguments, Queue, Shape};

use crate::fixture::{LIMIT, all, download, opencl, program, upload};

static WORD: [u8; 4] = [0; 4];

#[test]
fn a_kernel_sees_all_five_arguments_and_what_was_uploaded() {
    let Some(mut driver) = opencl() else { return };
    let program = program(
        "__kernel void gather(ARGUMENTS) {
            uint i = get_global_id(0);
            if (i < 1000) arena[i] = arena[i] * 1000000 + payload[i] * 10000 + tables[i] * FACTOR + state[i] + job;
        }",
    );
    let program =
        device::driver::Program { defines: vec![("FACTOR".into(), "(50 * 2)".into())], ..program };
    let kernels = driver.build(&program, &["gather"]).unwrap();
    let queue = driver.queue().unwrap();
    let [arena, payload, tables, state] = [1u32, 2, 3, 4].map(|value| {
        let memory = driver.allocate(4000).unwrap();
        upload(&mut *driver, queue, &[value; 1000], memory);
        memory
    });
    let arguments = Arguments { arena, payload, tables, state, job: 5 };
    for items in [1, 7, 64, 256] {
        upload(&mut *driver, queue, &[1; 1000], arena);
        driver.launch(queue, kernels[0], Shape::of_rows(1000, items), &arguments).unwrap();
        assert_eq!(download(&mut *driver, queue, arena, 1000), [1_020_309; 1000], "{items}");
    }
}

#[test]
fn launches_are_timed_by_the_device() {
    let Some(mut driver) = opencl() else { return };
    let text = "__kernel void spin(ARGUMENTS) { for (uint i = 0; i < 1000; i++) arena[get_global_id(0)] += i ^ job; }";
    let kernels = driver.build(&program(text), &["spin"]).unwrap();
    let memory = driver.allocate(4 << 12).unwrap();
    let launch = (kernels[0], Shape::of_rows(1 << 12, 64), all(memory, 1));
    for count in [1, 20] {
        let begin = std::time::Instant::now();
        let time = driver.timed(&vec![launch; count], LIMIT).unwrap().expect("PoCL measures");
        assert!(time > std::time::Duration::ZERO && time <= begin.elapsed(), "{time:?}");
    }
    assert_eq!(driver.timed(&vec![launch; 1000], LIMIT), Ok(None), "too many");
}

#[test]
fn copies_hit_their_range_and_nothing_else() {
    let Some(mut driver) = opencl() else { return };
    let queue = driver.queue().unwrap();
    let (from, to) = (driver.allocate(16).unwrap(), driver.allocate(32).unwrap());
    upload(&mut *driver, queue, &[1, 2, 3, 4], from);
    upload(&mut *driver, queue, &[9; 8], to);
    driver.copy(queue, (from, 4), (to, 8), 8).unwrap();
    driver.copy(queue, (to, 8), (to, 24), 8).unwrap();
    assert_eq!(download(&mut *driver, queue, to, 8), [9, 9, 2, 3, 9, 9, 2, 3]);
    let mut word = [0u8; 4];
    // SAFETY: waited for below.
    unsafe { driver.download(queue, to, 12, &raw mut word[..]).unwrap() };
    let event = driver.event(queue).unwrap();
    assert!(driver.wait(event, LIMIT).unwrap());
    assert_eq!(u32::from_le_bytes(word), 3);
}

#[test]
fn ranges_beyond_memory_are_refused_and_leave_it_alone() {
    let Some(mut driver) = opencl() else { return };
    let queue = driver.queue().unwrap();
    let memory = driver.allocate(16).unwrap();
    upload(&mut *driver, queue, &[1, 2, 3, 4], memory);
    let mut bytes = [7u8; 16];
    let is_copy = |result| matches!(result, Err(DeviceError::Copy(_)));
    for at in [1, 16, 17, usize::MAX] {
        // SAFETY: nothing is enqueued.
        let result = unsafe { driver.upload(queue, &raw const bytes[..], memory, at) };
        assert!(is_copy(result), "{at}");
        // SAFETY: nothing is enqueued.
        let result = unsafe { driver.download(queue, memory, at, &raw mut bytes[..]) };
        assert!(is_copy(result), "{at}");
        assert!(is_copy(driver.copy(queue, (memory, at), (memory, 0), 16)), "{at}");
        assert!(is_copy(driver.copy(queue, (memory, 0), (memory, at), 16)), "{at}");
    }
    assert!(is_copy(driver.copy(queue, (memory, 0), (memory, 4), 8)), "overlap");
    assert_eq!(download(&mut *driver, queue, memory, 4), [1, 2, 3, 4]);
    assert_eq!(bytes, [7; 16]);
}

#[test]
fn what_does_not_exist_is_an_error() {
    let Some(mut driver) = opencl() else { return };
    let queue = driver.queue().unwrap();
    let memory = driver.allocate(16).unwrap();
    driver.free(memory);
    driver.free(memory);
    let other = driver.allocate(16).unwrap();
    assert_ne!(memory, other, "the number of what was freed is not given again at once");
    // SAFETY: nothing is enqueued.
    let result = unsafe { driver.upload(queue, &raw const WORD[..], memory, 0) };
    assert!(matches!(result, Err(DeviceError::Call(_))), "{result:?}");
    // SAFETY: nothing is enqueued.
    let result = unsafe { driver.upload(Queue(9), &raw const WORD[..], other, 0) };
    assert!(matches!(result, Err(DeviceError::Call(_))), "{result:?}");
    let event = driver.event(queue).unwrap();
    assert!(driver.wait(event, LIMIT).unwrap());
    assert!(driver.is_done(event).is_err(), "used up");
    assert!(driver.wait_for(queue, event).is_err(), "used up");
}

#[test]
fn more_memory_than_there_is_is_an_error_and_the_driver_goes_on() {
    let Some(mut driver) = opencl() else { return };
    let result = driver.allocate(1 << 52);
    assert!(matches!(result, Err(DeviceError::Memory(_))), "{result:?}");
    driver.allocate(16).unwrap();
}

#[test]
fn a_program_that_does_not_build_shows_the_compilers_log() {
    let Some(mut driver) = opencl() else { return };
    let source = "__kernel void good(ARGUMENTS) { arena[0] = 1; }\n__kernel void bad(ARGUMENTS) { arena[0] = nothing_here; }";
    let mut bad = program(source);
    bad.defines.push(("UNUSED".into(), "1".into()));
    let error = driver.build(&bad, &["good"]).unwrap_err();
    let DeviceError::Build { name, log } = &error else { panic!("{error:?}") };
    assert_eq!(name, "test");
    assert!(log.contains("nothing_here"), "{log}");
    assert!(log.contains(":2:"), "the line is the source's own: {log}");
}

#[test]
fn kernels_that_are_missing_or_take_other_arguments_are_refused() {
    let Some(mut driver) = opencl() else { return };
    let source = "__kernel void a(ARGUMENTS) { arena[0] = 1; }\n__kernel void two(__global uint *x, uint y) { x[0] = y; }";
    let program = program(source);
    for (name, complaint) in
        [("b", "no kernel b"), ("two", "takes 2 arguments"), ("a\0", "can be called")]
    {
        let error = driver.build(&program, &["a", name]).unwrap_err();
        let DeviceError::Build { log, .. } = &error else { panic!("{error:?}") };
        assert!(log.contains(complaint), "{log}");
    }
    assert_eq!(driver.build(&program, &["a", "a"]).unwrap().len(), 2);
}

#[test]
fn a_launch_of_too_large_groups_fails_and_the_queue_goes_on() {
    let Some(mut driver) = opencl() else { return };
    let kernels = driver
        .build(
            &program("__kernel void add(ARGUMENTS) { arena[get_global_id(0)] += job; }"),
            &["add"],
        )
        .unwrap();
    let queue = driver.queue().unwrap();
    let memory = driver.allocate(16).unwrap();
    upload(&mut *driver, queue, &[1, 2, 3, 4], memory);
    let items = driver.info().group_items_max + 1;
    let result = driver.launch(queue, kernels[0], Shape { groups: 1, items }, &all(memory, 1));
    assert!(
        matches!(&result, Err(DeviceError::Launch(text)) if text.contains("CL_INVALID_WORK_GROUP_SIZE")),
        "{result:?}"
    );
    driver.launch(queue, kernels[0], Shape { groups: 2, items: 2 }, &all(memory, 10)).unwrap();
    assert_eq!(download(&mut *driver, queue, memory, 4), [11, 12, 13, 14]);
}

/// Each queue works on memory of its own; what one makes the other takes over after an event.
#[test]
fn queues_go_their_own_ways_and_wait_for_each_other_on_request() {
    let Some(mut driver) = opencl() else { return };
    let source = "__kernel void grow(ARGUMENTS) {
        uint i = get_global_id(0);
        uint x = arena[i];
        for (uint n = 0; n < 20000; n++) x = x * 1664525u + 1013904223u;
        arena[i] = x;
    }
    __kernel void take(ARGUMENTS) { uint i = get_global_id(0); arena[i] = payload[i] + job; }";
    let kernels = driver.build(&program(source), &["grow", "take"]).unwrap();
    let rows = 256usize;
    let expected = {
        let mut x = 7u32;
        (0..20000 * 8).for_each(|_| x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
        x
    };
    let queues = [driver.queue().unwrap(), driver.queue().unwrap(), driver.queue().unwrap()];
    let memories = queues.map(|queue| {
        let memory = driver.allocate(rows * 4).unwrap();
        upload(&mut *driver, queue, &vec![7; rows], memory);
        memory
    });
    let target = driver.allocate(rows * 4).unwrap();
    let shape = Shape::of_rows(rows, 64);
    let mut events = Vec::new();
    for (queue, memory) in queues.into_iter().zip(memories) {
        for _ in 0..8 {
            driver.launch(queue, kernels[0], shape, &all(memory, 0)).unwrap();
        }
        events.push(driver.event(queue).unwrap());
    }
    // The first queue takes from the second what the second has not made yet.
    driver.wait_for(queues[0], events[1]).unwrap();
    let arguments = Arguments { payload: memories[1], ..all(target, 5) };
    driver.launch(queues[0], kernels[1], shape, &arguments).unwrap();
    let taken = download(&mut *driver, queues[0], target, rows);
    assert_eq!(taken, vec![expected.wrapping_add(5); rows]);
    assert!(
        driver.is_done(events[1]).unwrap(),
        "what was waited for is done, and still to be asked for"
    );
    for event in [events[0], events[2]] {
        assert!(driver.wait(event, LIMIT).unwrap());
    }
    assert_eq!(download(&mut *driver, queues[2], memories[2], rows), vec![expected; rows]);
}

#[test]
fn thousands_of_commands_without_an_event_end_all_the_same() {
    let Some(mut driver) = opencl() else { return };
    let kernels = driver
        .build(
            &program("__kernel void add(ARGUMENTS) { arena[get_global_id(0)] += job; }"),
            &["add"],
        )
        .unwrap();
    let queue = driver.queue().unwrap();
    let memory = driver.allocate(16).unwrap();
    upload(&mut *driver, queue, &[0; 4], memory);
    for _ in 0..2000 {
        driver.launch(queue, kernels[0], Shape { groups: 1, items: 4 }, &all(memory, 3)).unwrap();
    }
    assert_eq!(download(&mut *driver, queue, memory, 4), [6000; 4]);
}

/// A driver that is dropped at work waits for its queues.
#[test]
fn a_driver_dropped_at_work_ends_what_was_enqueued() {
    let Some(mut driver) = opencl() else { return };
    let queue = driver.queue().unwrap();
    let memory = driver.allocate(1 << 24).unwrap();
    let sent = vec![0xa5u8; 1 << 24];
    let mut back = vec![0u8; 1 << 24];
    // SAFETY: the driver is dropped before the bytes are.
    unsafe {
        driver.upload(queue, &raw const sent[..], memory, 0).unwrap();
        driver.download(queue, memory, 0, &raw mut back[..]).unwrap();
    }
    let _event = driver.event(queue).unwrap();
    drop(driver);
    assert!(sent == back);
}

/// Launches of one kernel over several queues at once, each larger than all before: PoCL before 7.0 loads its code anew for
/// each size, and ended the process when one of another size was under way.
#[test]
fn launches_of_one_kernel_grow_while_others_are_under_way() {
    let Some(mut driver) = opencl() else { return };
    let source = "__kernel void work(ARGUMENTS) {
        uint x = job;
        uint rounds = get_group_id(0) == 0u ? 20000u : 20u;
        for (uint n = 0u; n < rounds; n++) x = x * 1664525u + 1013904223u;
        atomic_add(&arena[x == job ? 1u : 0u], 1u);
    }";
    let kernels = driver.build(&program(source), &["work"]).unwrap();
    let queues: [Queue; 6] = std::array::from_fn(|_| driver.queue().unwrap());
    let memory = driver.allocate(16).unwrap();
    upload(&mut *driver, queues[0], &[0; 4], memory);
    let mut items = 0;
    for round in 1..=200_u32 {
        for queue in queues {
            for groups in [round, 1, round.div_ceil(2)] {
                let shape = Shape { groups, items: 4 };
                driver.launch(queue, kernels[0], shape, &all(memory, 1)).unwrap();
                items += groups * 4;
            }
        }
    }
    for queue in queues {
        let event = driver.event(queue).unwrap();
        assert!(driver.wait(event, LIMIT).unwrap());
    }
    let [near, far] = [0, 1].map(|at| download(&mut *driver, queues[0], memory, 2)[at]);
    assert_eq!(near + far, items);
}
