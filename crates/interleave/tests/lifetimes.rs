//! Futures are dropped once, in their call, also when something panics; turns are what they say.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};

use interleave::{Memory, map_switched};

/// Counts what lives; boxed, so that a double drop or a leak is one of memory, which AddressSanitizer and
/// valgrind see.
struct Guard<'a> {
    live: &'a Cell<usize>,
    _memory: Box<u64>,
    panics: bool,
}

impl<'a> Guard<'a> {
    fn new(live: &'a Cell<usize>, panics: bool) -> Self {
        live.set(live.get() + 1);
        Self { live, _memory: Box::new(1), panics }
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.live.set(self.live.get() - 1);
        if self.panics && !std::thread::panicking() {
            panic!("a guard panics");
        }
    }
}

/// Where one lookup of the batch panics.
#[derive(Clone, Copy, PartialEq, Debug)]
enum At {
    Never,
    Creation,
    FirstPoll,
    LaterPoll,
    Drop,
}

async fn guarded<M: Memory>(memory: M, live: &Cell<usize>, key: u32, at: At) -> u32 {
    let _guard = Guard::new(live, at == At::Drop);
    assert!(at != At::FirstPoll, "a first poll panics");
    for step in 0..key % 5 + 1 {
        memory.touch(&step).await;
        assert!(at != At::LaterPoll, "a later poll panics");
    }
    key * 2
}

fn run<const B: usize>(count: u32, bad: u32, at: At) -> (Vec<u32>, bool, usize) {
    let live = Cell::new(0);
    let keys: Vec<u32> = (0..count).collect();
    let mut out = vec![u32::MAX; keys.len()];
    let result = catch_unwind(AssertUnwindSafe(|| {
        map_switched::<B, _, _, _, _>(&keys, &mut out, |memory, &key| {
            let at = if key == bad { at } else { At::Never };
            assert!(at != At::Creation, "a creation panics");
            guarded(memory, &live, key, at)
        });
    }));
    (out, result.is_ok(), live.get())
}

#[test]
fn a_panic_drops_all_that_is_under_way_and_goes_on() {
    for count in [1, 5, 40, 100] {
        for bad in [0, 1, 3, 31, 32, 60, 99].into_iter().filter(|bad| *bad < count) {
            for at in [At::Creation, At::FirstPoll, At::LaterPoll, At::Drop] {
                let (out, well, live) = run::<32>(count, bad, at);
                assert!(!well, "{at:?} at {bad} of {count} was swallowed");
                assert_eq!(live, 0, "{at:?} at {bad} of {count}");
                // What ended before has its result, nothing else was written.
                for (key, value) in out.iter().enumerate() {
                    assert!(*value == u32::MAX || *value == key as u32 * 2, "{key}: {value}");
                }
            }
        }
    }
}

#[test]
fn nothing_outlives_the_call() {
    for count in [0, 1, 31, 32, 33, 500] {
        let (out, well, live) = run::<32>(count, 0, At::Never);
        assert!(well);
        assert_eq!(live, 0);
        assert_eq!(out, (0..count).map(|key| key * 2).collect::<Vec<_>>());
    }
}

/// Three slots: a slot is refilled at once, and turns go round.
#[test]
fn a_finished_slot_is_refilled_at_once() {
    let log = RefCell::new(Vec::new());
    let mut out = [0; 5];
    map_switched::<3, _, _, _, _>(&[1, 2, 1, 1, 1], &mut out, |memory, &steps| {
        let number = {
            let log = log.borrow();
            log.iter().filter(|(_, step)| *step == 0).count()
        };
        log.borrow_mut().push((number, 0));
        let log = &log;
        async move {
            for step in 1..=steps {
                memory.touch(&number).await;
                log.borrow_mut().push((number, step));
            }
            number
        }
    });
    assert_eq!(out, [0, 1, 2, 3, 4]);
    let expected = [
        (0, 0),
        (1, 0),
        (2, 0), // three start
        (0, 1),
        (3, 0), // the first ends, the fourth has its slot
        (1, 1),
        (2, 1),
        (4, 0), // the third ends, the fifth has its slot
        (3, 1),
        (4, 1),
        (1, 2),
    ];
    let mut sorted = log.borrow().clone();
    let mut wanted = expected.to_vec();
    assert_eq!(log.borrow()[..8], expected[..8]);
    // The drain may take those left in any order.
    sorted.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(sorted, wanted);
}

/// A future that waits for something else is polled again until it is ready.
#[test]
fn other_futures_are_polled_again() {
    let mut out = [0; 10];
    map_switched::<4, _, _, _, _>(&[1u32; 10], &mut out, |_, &key| {
        let mut left = 3;
        std::future::poll_fn(move |_| {
            left -= 1;
            if left == 0 { std::task::Poll::Ready(key) } else { std::task::Poll::Pending }
        })
    });
    assert_eq!(out, [1; 10]);
}

/// Values with a destructor: results that are replaced are dropped, once.
#[test]
fn results_may_own_memory() {
    let mut out = vec![String::from("before"); 50];
    let keys: Vec<u32> = (0..50).collect();
    map_switched::<8, _, _, _, _>(&keys, &mut out, |memory, key| async move {
        memory.touch(key).await;
        format!("after {key}")
    });
    assert!(out.iter().enumerate().all(|(key, text)| *text == format!("after {key}")));
}
