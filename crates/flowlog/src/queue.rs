//! A bounded queue from any number of threads to one that waits for disks and peers.
//!
//! Two vectors take turns: callers append to one, the writer empties the other, and then they are swapped. So nothing is
//! allocated for an entry, a burst of entries is one wake-up, and a lock is held for a copy only.
//!
//! A caller does not wait for room unless it wants to: what does not fit is refused. A *mark* is a place in the order of entries at which the
//! writer does something else first (it opens its file again).
//!
//! Threads: all; the writer is one.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a caller that waits for room sleeps: the writer takes all entries at once.
const ROOM_WAIT: Duration = Duration::from_millis(1);

/// See the module.
pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    capacity: usize,
}

struct State<T> {
    entries: Vec<T>,
    mark: Option<usize>,
    closed: Option<Instant>,
}

/// What the writer has to do next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Entries were moved to the writer's vector, in front of `mark` if there is one.
    Entries {
        /// Number of entries in front of the mark.
        mark: Option<usize>,
    },
    /// The time is up, and nothing came.
    Nothing,
    /// The queue is closed and empty.
    End,
}

impl<T: Clone> Queue<T> {
    /// A queue of at most `capacity` entries.
    pub(crate) fn new(capacity: usize) -> Self {
        let state = State { entries: Vec::new(), mark: None, closed: None };
        Self { state: Mutex::new(state), changed: Condvar::new(), capacity }
    }

    /// Appends all entries or, where they do not fit or the queue is closed, none; says whether it did.
    pub(crate) fn push(&self, entries: &[T]) -> bool {
        let mut state = self.lock();
        if state.closed.is_some() || state.entries.len() + entries.len() > self.capacity {
            return false;
        }
        state.entries.extend_from_slice(entries);
        drop(state);
        self.changed.notify_one();
        true
    }

    /// The same, and waits for room, unless the queue is closed or `gives_up` says so.
    pub(crate) fn push_in_time(&self, entries: &[T], gives_up: impl Fn() -> bool) -> bool {
        while !self.push(entries) {
            let is_closed = self.lock().closed.is_some();
            if is_closed || entries.len() > self.capacity || gives_up() {
                return false;
            }
            std::thread::sleep(ROOM_WAIT);
        }
        true
    }

    /// Sets a mark behind the last entry. An earlier mark that the writer has not reached stays where it is.
    pub(crate) fn mark(&self) {
        let mut state = self.lock();
        let end = state.entries.len();
        state.mark.get_or_insert(end);
        drop(state);
        self.changed.notify_one();
    }

    /// No further entries; the writer ends after those that are there.
    pub(crate) fn close(&self) {
        self.lock().closed.get_or_insert_with(Instant::now);
        self.changed.notify_all();
    }

    /// How long it has been closed.
    pub(crate) fn closed_for(&self) -> Option<Duration> {
        self.lock().closed.map(|at| at.elapsed())
    }

    /// Waits up to `timeout` for entries or a mark, and moves them to `entries`, whose contents are dropped.
    pub(crate) fn take(&self, entries: &mut Vec<T>, timeout: Duration) -> Turn {
        entries.clear();
        let end = Instant::now() + timeout;
        let mut state = self.lock();
        loop {
            if !state.entries.is_empty() || state.mark.is_some() {
                std::mem::swap(entries, &mut state.entries);
                return Turn::Entries { mark: state.mark.take() };
            }
            if state.closed.is_some() {
                return Turn::End;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Turn::Nothing;
            }
            let waited = self.changed.wait_timeout(state, left);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A vector of entries is valid at any time, so a panic elsewhere does not spoil it.
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_or_nothing_within_the_capacity() {
        let queue = Queue::new(4);
        assert!(queue.push(&[1, 2, 3]));
        assert!(!queue.push(&[4, 5]));
        assert!(queue.push(&[4]));
        let mut taken = vec![9];
        assert_eq!(queue.take(&mut taken, Duration::ZERO), Turn::Entries { mark: None });
        assert_eq!(taken, [1, 2, 3, 4]);
        assert_eq!(queue.take(&mut taken, Duration::ZERO), Turn::Nothing);
        assert!(queue.push(&[5]));
        queue.close();
        assert!(!queue.push(&[6]));
        assert_eq!(queue.take(&mut taken, Duration::ZERO), Turn::Entries { mark: None });
        assert_eq!(queue.take(&mut taken, Duration::ZERO), Turn::End);
    }

    #[test]
    fn a_mark_keeps_its_place() {
        let queue = Queue::new(8);
        queue.push(&[1, 2]);
        queue.mark();
        queue.push(&[3]);
        queue.mark();
        let mut taken = Vec::new();
        assert_eq!(queue.take(&mut taken, Duration::ZERO), Turn::Entries { mark: Some(2) });
        queue.mark();
        assert_eq!(queue.take(&mut taken, Duration::ZERO), Turn::Entries { mark: Some(0) });
        assert!(taken.is_empty());
    }
}
