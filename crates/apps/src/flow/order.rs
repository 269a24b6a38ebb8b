//! One order for what several workers say of a capture.
//!
//! ```text
//!  worker 0 ─ (time, flow, item) ─┐                 earliest first, as far as
//!  worker 1 ─ (time, flow, item) ─┤▶ heap ─────────▶ all workers have come ─▶ out
//!             advanced to time ───┘
//! ```
//!
//! An item has the time of its event, which depends on its flow's packets alone, so the order does not depend on the number
//! of workers. It goes out when every worker has said that nothing earlier follows from it. What comes later all the same,
//! from packets that were captured out of order, goes out at once.
//!
//! Threads: shared by the workers; a lock is taken once a chunk.

use std::cmp::Ordering;
use std::collections::binary_heap::{BinaryHeap, PeekMut};
use std::sync::{Mutex, PoisonError};

/// Where an item is in the order: its time, then the start and the number of its flow, then its place in the flow.
pub type Key = (u64, u64, u64, u32);

/// Sorts the items of several workers.
pub struct Ordered<I> {
    inner: Mutex<Inner<I>>,
}

struct Inner<I> {
    heap: BinaryHeap<Entry<I>>,
    /// By who has joined: how far it has come.
    advanced: Vec<Key>,
    out: Box<dyn FnMut(I) + Send>,
}

struct Entry<I> {
    key: Key,
    item: I,
}

impl<I> PartialEq for Entry<I> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl<I> Eq for Entry<I> {}

impl<I> PartialOrd for Entry<I> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<I> Ord for Entry<I> {
    /// The heap's greatest is the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        other.key.cmp(&self.key)
    }
}

impl<I> Ordered<I> {
    /// Items go to `out`.
    pub fn new(out: impl FnMut(I) + Send + 'static) -> Self {
        let inner = Inner { heap: BinaryHeap::new(), advanced: Vec::new(), out: Box::new(out) };
        Self { inner: Mutex::new(inner) }
    }

    /// One more says something: its number. All join before packets come; how many there are does not follow from the
    /// configuration, since captures may need a single worker.
    pub fn join(&self) -> usize {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.advanced.push((0, 0, 0, 0));
        inner.advanced.len() - 1
    }

    /// Takes the items of one that has joined, which are then no more in `items`. Nothing before `time_ns` follows from it.
    pub fn advance(&self, number: usize, items: &mut Vec<(Key, I)>, time_ns: u64) {
        self.advance_to(number, items, (time_ns, 0, 0, 0));
    }

    /// The same where nothing before `key` follows: at the end of a capture flows end at once, in the order of their starts.
    pub fn advance_to(&self, number: usize, items: &mut Vec<(Key, I)>, key: Key) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let inner = &mut *inner;
        let own = &mut inner.advanced[number];
        *own = key.max(*own);
        let least = inner.advanced.iter().copied().min().unwrap_or_default();
        // At the end of a capture all flows end at once: they come sorted, and are never in the heap.
        if !items.is_sorted_by_key(|(key, _)| *key) {
            items.sort_by_cached_key(|(key, _)| *key);
        }
        for (key, item) in items.drain(..) {
            if key >= least {
                inner.heap.push(Entry { key, item });
                continue;
            }
            inner.release(|first| *first < key);
            (inner.out)(item);
        }
        inner.release(|first| *first < least);
    }
}

impl<I> Inner<I> {
    /// Lets the earliest items of the heap go as long as they are wanted.
    fn release(&mut self, is_wanted: impl Fn(&Key) -> bool) {
        while let Some(first) = self.heap.peek_mut().filter(|first| is_wanted(&first.key)) {
            (self.out)(PeekMut::pop(first).item);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// However items are dealt out to workers, and whichever of them is ahead, they come out sorted.
        #[test]
        fn the_order_does_not_depend_on_workers(
            mut times in prop::collection::vec((0..50u64, 0..4usize, 1..6usize), 0..200),
            workers in 1..5usize,
        ) {
            times.sort_by_key(|(time, ..)| *time); // each worker's own are in order
            let seen = Arc::new(Mutex::new(Vec::new()));
            let sink = seen.clone();
            let ordered = Ordered::new(move |item: u64| sink.lock().unwrap().push(item));
            (0..workers).for_each(|number| assert_eq!(ordered.join(), number));
            let mut queues = vec![Vec::new(); workers];
            for (number, (time, worker, _)) in times.iter().enumerate() {
                queues[worker % workers].push(((*time, 0, number as u64, 0), number as u64));
            }
            // Workers take turns of different length.
            let turns = times.iter().map(|(_, worker, count)| (worker % workers, *count));
            for (worker, count) in turns {
                let count = count.min(queues[worker].len());
                let mut items: Vec<_> = queues[worker].drain(..count).collect();
                // Those of one turn come in any order, as flows that end at once do.
                items.reverse();
                let next = queues[worker].first().map_or(u64::MAX, |((time, ..), _)| *time);
                ordered.advance(worker, &mut items, next);
                prop_assert!(items.is_empty());
            }
            for (worker, queue) in queues.iter_mut().enumerate() {
                ordered.advance(worker, queue, u64::MAX);
            }
            let seen = seen.lock().unwrap();
            prop_assert_eq!(&*seen, &(0..times.len() as u64).collect::<Vec<_>>());
        }
    }
}
