//! Memory, copies, kernels, queues, events, registered memory; every way to fail.

use device::driver::{Api, Arguments, Queue, Shape};
use device::measure::{Plan, measure};
use device::{DeviceError, probe};

use crate::fixture::{LIMIT, all, cuda, fail, live, on_the_fake, program, read, words};

macro_rules! cases {
    ($($(#[$doc:meta])* fn $name:ident() $body:block)*) => {$(
        $(#[$doc])*
        #[test]
        fn $name() {
            on_the_fake(concat!("driver::", stringify!($name)), || $body);
        }
    )*};
}

cases! {
    fn the_device_is_found_and_looking_takes_nothing() {
        let probes = probe::devices();
        let of_cuda: Vec<_> = probes.iter().filter(|p| p.api == Api::Cuda).collect();
        let [probe] = of_cuda[..] else { panic!("{probes:?}") };
        let info = probe.found.as_ref().unwrap();
        assert_eq!((info.name.as_str(), info.target.as_str()), ("Fake GPU", "sm_90"));
        assert_eq!((info.units, info.group_items_max, info.group_bytes), (132, 1024, 48 << 10));
        assert!(info.memory_bytes == 1 << 30 && info.is_gpu && info.driver.starts_with("CUDA 13.0"));
        assert_eq!(live(), 0);
        let beyond = probe::open(Api::Cuda, 1).map(|d| d.info().clone());
        assert!(matches!(beyond, Err(DeviceError::Absent(_))), "{beyond:?}");
    }

    fn a_kernel_gets_all_five_arguments() {
        let mut driver = cuda();
        let queue = driver.queue().unwrap();
        let kernels = driver.build(&program(), &["mix_all"]).unwrap();
        let [arena, payload, tables, state] =
            [1, 2, 3, 4].map(|value| words(&mut *driver, queue, &[value; 12]));
        let arguments = Arguments { arena, payload, tables, state, job: 5 };
        driver.launch(queue, kernels[0], Shape { groups: 3, items: 4 }, &arguments).unwrap();
        assert_eq!(read(&mut *driver, queue, arena, 12), [1239; 12]);
    }

    /// What is enqueued is pending until its event is reached, and queues wait for one another.
    fn events_are_reached_in_time_and_used_again() {
        let mut driver = cuda();
        let (one, two) = (driver.queue().unwrap(), driver.queue().unwrap());
        let kernels = driver.build(&program(), &["mix_all"]).unwrap();
        let (from, to) = (words(&mut *driver, one, &[1; 4]), words(&mut *driver, one, &[0; 4]));
        for round in 0..5 {
            let shape = Shape { groups: 1, items: 4 };
            let zero = words(&mut *driver, one, &[0; 4]);
            driver.launch(one, kernels[0], shape, &all(zero, 7 + round)).unwrap();
            driver.copy(one, (zero, 0), (from, 0), 16).unwrap();
            let event = driver.event(one).unwrap();
            assert!(!driver.is_done(event).unwrap());
            driver.wait_for(two, event).unwrap();
            driver.copy(two, (from, 0), (to, 0), 16).unwrap();
            assert_eq!(read(&mut *driver, two, to, 4), [7 + round; 4], "the second waits for the first");
            assert!(driver.wait(event, LIMIT).unwrap(), "and the event is still there");
            assert!(driver.is_done(event).is_err() && driver.wait_for(two, event).is_err(), "used up");
            driver.free(zero);
        }
        // Two memories, two queues, the context, one module; all events of all rounds are two.
        assert_eq!(live(), 2 + 2 + 1 + 1 + 2);
    }

    fn ranges_are_checked_before_the_library_is_asked() {
        let mut driver = cuda();
        let queue = driver.queue().unwrap();
        let memory = words(&mut *driver, queue, &[1, 2, 3, 4]);
        // Large memory right behind would make the library accept what lies beyond.
        let mut bytes = [0u8; 16];
        for at in [1, 17, usize::MAX] {
            // SAFETY: nothing is enqueued.
            let up = unsafe { driver.upload(queue, &raw const bytes[..], memory, at) };
            // SAFETY: nothing is enqueued.
            let down = unsafe { driver.download(queue, memory, at, &raw mut bytes[..]) };
            let copy = driver.copy(queue, (memory, 0), (memory, at), 16);
            for result in [up, down, copy] {
                assert!(matches!(result, Err(DeviceError::Copy(_))), "{at} {result:?}");
            }
        }
        assert!(driver.copy(queue, (memory, 0), (memory, 4), 8).is_err(), "overlap");
        driver.copy(queue, (memory, 0), (memory, 8), 8).unwrap();
        assert_eq!(read(&mut *driver, queue, memory, 4), [1, 2, 1, 2]);
        driver.free(memory);
        let unknown = driver.copy(queue, (memory, 0), (memory, 8), 8);
        assert!(matches!(unknown, Err(DeviceError::Call(_))), "{unknown:?}");
        assert!(driver.event(Queue(9)).is_err());
    }

    fn a_driver_moves_between_threads() {
        let mut driver = cuda();
        let queue = driver.queue().unwrap();
        let memory = words(&mut *driver, queue, &[5; 4]);
        let thread = std::thread::spawn(move || {
            assert_eq!(read(&mut *driver, queue, memory, 4), [5; 4]);
            driver
        });
        let mut driver = thread.join().unwrap();
        assert_eq!(read(&mut *driver, queue, memory, 4), [5; 4]);
        std::thread::spawn(move || drop(driver)).join().unwrap();
        assert_eq!(live(), 0, "given back on a thread that made nothing");
    }

    fn all_is_given_back_and_work_is_waited_for() {
        let mut driver = cuda();
        let queue = driver.queue().unwrap();
        driver.build(&program(), &["mix_all", "fault"]).unwrap();
        let memory = words(&mut *driver, queue, &[6; 4]);
        let mut back = [0u8; 16];
        let mut host = vec![0u64; 64];
        // SAFETY: the driver is dropped before both.
        unsafe {
            let bytes = std::ptr::slice_from_raw_parts_mut(host.as_mut_ptr().cast::<u8>(), 512);
            driver.register(bytes).unwrap().unwrap();
            driver.download(queue, memory, 0, &raw mut back[..]).unwrap();
        }
        driver.event(queue).unwrap();
        assert!(live() > 5);
        drop(driver);
        assert_eq!(live(), 0);
        assert_eq!(back[0], 6, "the copy was waited for");
    }

    fn launches_are_timed_by_the_device() {
        let mut driver = cuda();
        let queue = driver.queue().unwrap();
        let kernels = driver.build(&program(), &["mix_all"]).unwrap();
        let memory = words(&mut *driver, queue, &[0; 4]);
        let launch = (kernels[0], Shape { groups: 1, items: 4 }, all(memory, 1));
        for _ in 0..2 {
            let time = driver.timed(&[launch; 7], LIMIT).unwrap();
            assert_eq!(time, Some(std::time::Duration::from_millis(7)), "one a launch");
        }
        drop(driver);
        assert_eq!(live(), 0);
    }

    /// The fake's streams do not run until they are synchronised: abandoning must not do that.
    fn nothing_is_given_back_of_a_device_that_was_abandoned() {
        let mut driver = cuda();
        let queue = driver.queue().unwrap();
        let memory = words(&mut *driver, queue, &[6; 4]);
        let mut back = [0u8; 16];
        // SAFETY: `back` outlives the process's use of the library: nothing runs after this.
        unsafe { driver.download(queue, memory, 0, &raw mut back[..]).unwrap() };
        let event = driver.event(queue).unwrap();
        assert!(!driver.wait(event, std::time::Duration::ZERO).unwrap());
        let before = live();
        driver.free(memory);
        drop(driver);
        assert_eq!((live(), back), (before, [0; 16]), "nothing was waited for");
    }

    fn kernels_reach_registered_memory_where_it_is() {
        let mut driver = cuda();
        let queue = driver.queue().unwrap();
        let kernels = driver.build(&program(), &["mix_all"]).unwrap();
        let state = words(&mut *driver, queue, &[0; 4]);
        let mut host = vec![2u32; 4];
        let bytes = std::ptr::slice_from_raw_parts_mut(host.as_mut_ptr().cast::<u8>(), 16);
        // SAFETY: unregistered below; looked at only after the launch's event.
        let alias = unsafe { driver.register(bytes) }.unwrap().unwrap();
        // SAFETY: refused.
        assert!(unsafe { driver.register(bytes) }.is_err(), "twice");
        driver.free(alias); // not the way to end it
        let arguments = Arguments { arena: alias, ..all(state, 1) };
        driver.launch(queue, kernels[0], Shape { groups: 1, items: 4 }, &arguments).unwrap();
        let event = driver.event(queue).unwrap();
        assert!(driver.wait(event, LIMIT).unwrap());
        assert_eq!(host, [2001; 4]);
        driver.unregister(bytes.cast()).unwrap();
        assert!(driver.unregister(bytes.cast()).is_err(), "once");
        let gone = driver.launch(queue, kernels[0], Shape { groups: 1, items: 4 }, &arguments);
        assert!(gone.is_err(), "the alias went with it");
        drop(driver);
        assert_eq!(live(), 0);
    }

    fn two_drivers_reach_the_same_memory() {
        let mut host = vec![2u32; 4];
        let bytes = std::ptr::slice_from_raw_parts_mut(host.as_mut_ptr().cast::<u8>(), 16);
        let (mut one, mut other) = (cuda(), cuda());
        // SAFETY: both drivers are gone before the memory is; looked at only after the launch's event.
        let aliases = [&mut one, &mut other].map(|own| unsafe { own.register(bytes) }.unwrap());
        drop(one);
        let queue = other.queue().unwrap();
        let kernels = other.build(&program(), &["mix_all"]).unwrap();
        let state = words(&mut *other, queue, &[0; 4]);
        let arguments = Arguments { arena: aliases[1].unwrap(), ..all(state, 1) };
        other.launch(queue, kernels[0], Shape { groups: 1, items: 4 }, &arguments).unwrap();
        let event = other.event(queue).unwrap();
        assert!(other.wait(event, LIMIT).unwrap());
        assert_eq!(host, [2001; 4]);
        drop(other);
        assert_eq!(live(), 0);
        let mut again = cuda();
        // SAFETY: gone before the memory is.
        assert!(unsafe { again.register(bytes) }.unwrap().is_some(), "nobody has it any more");
        drop(again);
        assert_eq!(live(), 0);
    }

    fn programs_that_cannot_be_say_why() {
        let mut driver = cuda();
        for (ptx, names, complaint) in [
            (None, &["mix_all"][..], "no NVRTC"),
            (Some("garbage"), &["mix_all"], "line 1: no PTX"),
            (Some("// PTX"), &["mix_all", "no_such"], "no kernel no_such"),
            (Some("// PTX"), &["two"], "argument 1"),
            (Some("// PTX"), &["a\0b"], "can be called"),
        ] {
            let error = driver.build(&device::driver::Program { ptx, ..program() }, names).unwrap_err();
            let DeviceError::Build { name, log } = error else { panic!("{error:?}") };
            assert!(name == "test" && log.contains(complaint), "{log}");
        }
    }

    fn each_failing_call_is_named_and_the_device_goes_on() {
        let mut driver = cuda();
        let queue = driver.queue().unwrap();
        let kernels = driver.build(&program(), &["mix_all"]).unwrap();
        let memory = words(&mut *driver, queue, &[0; 4]);
        let shape = Shape { groups: 1, items: 4 };
        let text = |result: Result<(), DeviceError>, call: &str| {
            let text = result.unwrap_err().to_string();
            assert!(text.contains(call) && text.contains("CUDA_ERROR_INVALID_VALUE (1)"), "{text}");
        };
        fail("cuLaunchKernel", 1);
        text(driver.launch(queue, kernels[0], shape, &all(memory, 0)), "the launch failed: cuLaunchKernel");
        fail("cuMemcpyDtoDAsync", 1);
        text(driver.copy(queue, (memory, 0), (memory, 8), 8), "a copy failed: cuMemcpyDtoDAsync");
        fail("cuEventRecord", 1);
        text(driver.event(queue).map(drop), "cuEventRecord");
        fail("cuStreamCreate", 1);
        text(driver.queue().map(drop), "cuStreamCreate");
        assert!(matches!(driver.allocate(2 << 30), Err(DeviceError::Memory(t)) if t.contains("OUT_OF_MEMORY (2)")));
        fail("cuMemcpyHtoDAsync", 2);
        // SAFETY: nothing is enqueued.
        let result = unsafe { driver.upload(queue, &raw const host()[..], memory, 0) };
        assert!(matches!(result, Err(DeviceError::Memory(_))), "{result:?}");
        let large = driver.launch(queue, kernels[0], Shape { groups: 1, items: 1025 }, &all(memory, 0));
        assert!(matches!(large, Err(DeviceError::Launch(_))), "{large:?}");
        assert_eq!(read(&mut *driver, queue, memory, 4), [0; 4]);
        drop(driver);
        assert_eq!(live(), 0);
    }

    /// A kernel's fault comes with the event; from then on the device is lost, and another can be opened.
    fn a_fault_loses_the_device() {
        let mut driver = cuda();
        let queue = driver.queue().unwrap();
        let kernels = driver.build(&program(), &["fault", "mix_all"]).unwrap();
        let memory = words(&mut *driver, queue, &[0; 4]);
        let shape = Shape { groups: 1, items: 4 };
        driver.launch(queue, kernels[0], shape, &all(memory, 0)).unwrap();
        driver.launch(queue, kernels[1], shape, &all(memory, 0)).unwrap();
        let event = driver.event(queue).unwrap();
        let error = driver.wait(event, LIMIT).unwrap_err();
        let DeviceError::Lost(text) = &error else { panic!("{error:?}") };
        assert!(text.contains("cuEventQuery: CUDA_ERROR_ILLEGAL_ADDRESS (700)"), "{text}");
        assert_eq!(driver.allocate(4).unwrap_err(), error);
        assert_eq!(driver.event(queue).unwrap_err(), error);
        assert_eq!(driver.launch(queue, kernels[1], shape, &all(memory, 0)).unwrap_err(), error);
        driver.free(memory);
        drop(driver);
        let mut driver = cuda();
        let queue = driver.queue().unwrap();
        let memory = words(&mut *driver, queue, &[3; 4]);
        assert_eq!(read(&mut *driver, queue, memory, 4), [3; 4]);
    }

    fn the_costs_are_measured_with_registered_memory() {
        let mut driver = cuda();
        let plan = Plan {
            program: program(),
            launches: 3,
            items: vec![1, 1000],
            copies: 2,
            bytes: vec![256, 4096],
            streamed_bytes: 1 << 16,
            patience: LIMIT,
        };
        for is_refused in [false, true] {
            if is_refused {
                fail("cuMemHostRegister", 1);
            }
            let costs = measure(&mut *driver, &plan).unwrap();
            assert_eq!((costs.launches.len(), costs.copies.len()), (2, 2));
            assert_eq!(costs.unregistered.is_some(), is_refused, "{:?}", costs.unregistered);
        }
        let objects = live();
        let without = Plan { program: device::driver::Program { ptx: None, ..program() }, ..plan };
        let error = measure(&mut *driver, &without).unwrap_err();
        assert!(matches!(error, DeviceError::Build { .. }), "{error:?}");
        assert_eq!(live(), objects + 1, "its queue");
        drop(driver);
        assert_eq!(live(), 0);
    }
}

/// Bytes that nobody frees.
fn host() -> &'static [u8; 16] {
    &[0; 16]
}
