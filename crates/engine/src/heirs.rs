//! Workers that gave their stages up, and who does their work.
//!
//! A worker whose stages panic again and again runs none of them any more. It gives its receive queues to its heir,
//! hands it the packets that other workers still pass on, and is passed over by the spread by flow hash. Its transmit
//! queues go on as before, for other workers send through them. Over captures with several workers the reader keeps its
//! one queue: it goes on spreading what that receives.
//!
//! A worker whose thread dies, by a panic outside of its stages, takes its queues along: one of them may be what made
//! it panic.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::worker::RxSlot;

/// By worker: who works on its packets, and what it was given.
pub(crate) struct Heirs(Box<[Heir]>, Mutex<()>);

struct Heir {
    /// Who works on this worker's packets; itself, at the start.
    of: AtomicUsize,
    /// Queues that others gave it and that it has not taken yet, and whether there are any.
    queues: Mutex<Vec<RxSlot>>,
    has_queues: AtomicBool,
}

impl Heirs {
    pub(crate) fn new(workers: usize) -> Self {
        let heir = |worker| Heir {
            of: AtomicUsize::new(worker),
            queues: Mutex::default(),
            has_queues: AtomicBool::new(false),
        };
        Self((0..workers).map(heir).collect(), Mutex::new(()))
    }

    /// How many workers there are.
    pub(crate) fn workers(&self) -> usize {
        self.0.len()
    }

    /// Gives queues to a worker. The giver is not quiet ([`crate::quiet`]) until they are taken.
    pub(crate) fn give(&self, worker: usize, queues: &mut Vec<RxSlot>) {
        let heir = &self.0[worker];
        heir.queues.lock().unwrap_or_else(PoisonError::into_inner).append(queues);
        heir.has_queues.store(true, Ordering::Release);
    }

    /// Whether queues wait for a worker.
    #[inline]
    pub(crate) fn has_queues(&self, worker: usize) -> bool {
        self.0[worker].has_queues.load(Ordering::Acquire)
    }

    /// Takes the queues that wait for a worker.
    #[cold]
    pub(crate) fn take(&self, worker: usize) -> Vec<RxSlot> {
        let heir = &self.0[worker];
        let mut queues = heir.queues.lock().unwrap_or_else(PoisonError::into_inner);
        heir.has_queues.store(false, Ordering::Release);
        std::mem::take(&mut *queues)
    }

    /// The worker that works on the packets of `worker`.
    #[inline]
    pub(crate) fn of(&self, worker: usize) -> usize {
        let mut at = worker;
        // Heirs lead upwards round the circle; the last worker is its own heir.
        for _ in 0..self.0.len() {
            let next = self.0.get(at).map_or(at, |heir| heir.of.load(Ordering::Relaxed));
            if next == at {
                break;
            }
            at = next;
        }
        at
    }

    /// Worker `worker` gives its stages up; the next one of its `peers`, in ascending order, that has not is its heir.
    /// `false` if there is none.
    pub(crate) fn give_up(&self, worker: usize, peers: &[usize]) -> bool {
        // One at a time, or two might become each other's heirs.
        let _alone = self.1.lock().unwrap_or_else(PoisonError::into_inner);
        let place = peers.partition_point(|&peer| peer <= worker);
        let mut others = peers[place..].iter().chain(&peers[..place]).copied();
        let heir = others.find(|&other| other != worker && self.of(other) == other);
        if let Some(heir) = heir {
            self.0[worker].of.store(heir, Ordering::Relaxed);
        }
        heir.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_goes_to_a_worker_that_still_runs() {
        let heirs = Heirs::new(4);
        let all = [0, 1, 2, 3];
        assert!(heirs.give_up(1, &all));
        assert_eq!([0, 1, 2, 3].map(|w| heirs.of(w)), [0, 2, 2, 3]);
        assert!(heirs.give_up(2, &all));
        assert_eq!([0, 1, 2, 3].map(|w| heirs.of(w)), [0, 3, 3, 3]);
        assert!(heirs.give_up(3, &all) && !heirs.give_up(0, &all));
        assert_eq!([0, 1, 2, 3].map(|w| heirs.of(w)), [0; 4]);
    }
}
