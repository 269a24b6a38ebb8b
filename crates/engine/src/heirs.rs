//! Workers that gave their stages up, and who does their work.
//!
//! A worker whose stages panic again and again runs none of them any more. It keeps its queues, for a queue belongs to
//! one thread, and hands what they receive to its heir; the spread by flow hash passes it over. Its transmit queues
//! go on as before.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// By worker: who works on its packets; itself, at the start.
#[derive(Debug)]
pub(crate) struct Heirs(Box<[AtomicUsize]>, Mutex<()>);

impl Heirs {
    pub(crate) fn new(workers: usize) -> Self {
        Self((0..workers).map(AtomicUsize::new).collect(), Mutex::new(()))
    }

    /// The worker that works on the packets of `worker`.
    #[inline]
    pub(crate) fn of(&self, worker: usize) -> usize {
        let mut at = worker;
        // Heirs lead upwards round the circle; whoever gives up last is its own heir.
        for _ in 0..self.0.len() {
            let next = self.0.get(at).map_or(at, |heir| heir.load(Ordering::Relaxed));
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
            self.0[worker].store(heir, Ordering::Relaxed);
        }
        heir.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_goes_to_somebody_who_still_works() {
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
