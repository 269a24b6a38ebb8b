//! Nothing is allocated for a packet: sealing and opening leave the count of the allocator as it was.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::key;
use crypto::esp::{self, Inbound, Open, Outbound, Seal};
use crypto::{Suite, seal_batch};

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
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn count() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

#[test]
fn packets_allocate_nothing() {
    let before = count();
    drop(vec![1; 100]);
    assert!(count() > before, "the count counts");
    for suite in Suite::all() {
        let sending = Outbound::new(key(suite, 1), 0x1000, true).unwrap();
        let receiving = Inbound::new(key(suite, 1), 0x1000, true, 1024).unwrap();
        let (front, back) = (esp::front_len(suite), esp::back_len(suite, 200));
        let mut buffers = vec![vec![5; front + 200 + back]; 70];
        let mut seals: Vec<Seal<'_>> = Vec::with_capacity(buffers.len());
        let before = count();
        for (number, buffer) in sending.take(70).zip(&mut buffers) {
            seals.push(number.seal(buffer, front..front + 200, 4, 0));
        }
        esp::seal_batch(&mut seals);
        assert!(seals.iter().all(|seal| seal.result().is_ok()));
        assert_eq!(count(), before, "{suite}");
        drop(seals);
        let mut opens: Vec<Open<'_>> = Vec::with_capacity(buffers.len());
        let before = count();
        opens.extend(buffers.iter_mut().map(|buffer| receiving.open(buffer)));
        esp::open_batch(&mut opens);
        assert!(opens.iter().all(|open| open.result().is_ok()));
        assert_eq!(count(), before, "{suite}");
        let before = count();
        seal_batch(&mut []);
        assert_eq!(count(), before);
    }
}
