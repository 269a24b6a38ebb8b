//! How often each rule was hit, and when last.
//!
//! A rule's counters must outlive the version of the tables that a packet saw, so they are in an array by
//! the rule's id that all versions share. Each worker has its own, in pages that control makes before a version
//! names their rules:
//!
//! ```text
//!  worker 0   [page 0: ids 0…4095] [page 1] [ – ] …     page: packets, bytes, time of the last one
//!  worker 1   [page 0            ] [page 1] [ – ] …     id 0: packets that no rule matched
//! ```
//!
//! Thread rule: a worker writes its own counters; anybody reads; control makes pages.

use std::sync::OnceLock;

use engine::Counter;

/// Rules of a page.
const PAGE: usize = 4096;

/// Ids that rules may have, with 0, which is the default's.
pub const IDS_MAX: usize = 1024 * PAGE;

/// Counters of one rule at one worker.
#[derive(Debug, Default)]
struct Counters {
    packets: Counter,
    bytes: Counter,
    last_ns: Counter,
}

/// Counters of one worker.
#[derive(Debug)]
#[repr(align(128))]
struct Worker {
    pages: Box<[OnceLock<Box<[Counters]>>]>,
    copies: Counter,
    copies_lost: Counter,
    answers: Counter,
    answers_withheld: Counter,
}

/// How often a rule was hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hit {
    /// Packets.
    pub packets: u64,
    /// Their bytes, link headers included.
    pub bytes: u64,
    /// When the last one came, nanoseconds since 1970; 0: none has.
    pub last_ns: u64,
}

/// What the stage made beside the packets that it was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Made {
    /// Copies sent to a port by `mirror`.
    pub copies: u64,
    /// Copies for which no cell was free.
    pub copies_lost: u64,
    /// Answers to rejected frames of a switch; a router counts its own.
    pub answers: u64,
    /// Those that the rate limit withheld.
    pub answers_withheld: u64,
}

/// Counters of all rules at all workers.
#[derive(Debug, Default)]
pub struct Hits {
    workers: Box<[Worker]>,
}

impl Hits {
    /// For so many workers. Only the default's counters are there yet.
    pub fn new(workers: usize) -> Self {
        let worker = |_| Worker {
            pages: (0..IDS_MAX / PAGE).map(|_| OnceLock::new()).collect(),
            copies: Counter::default(),
            copies_lost: Counter::default(),
            answers: Counter::default(),
            answers_withheld: Counter::default(),
        };
        let hits = Self { workers: (0..workers).map(worker).collect() };
        hits.make(0);
        hits
    }

    /// Sees to it that the rule `id`, below [`IDS_MAX`], has counters. Control calls it before a version names the
    /// rule.
    pub fn make(&self, id: u32) {
        for worker in &self.workers {
            if let Some(page) = worker.pages.get(id as usize / PAGE) {
                page.get_or_init(|| (0..PAGE).map(|_| Counters::default()).collect());
            }
        }
    }

    /// Counts a packet. Only the worker itself may call this.
    #[inline]
    pub(super) fn count(&self, worker: u16, id: u32, bytes: usize, now_ns: u64) {
        let page = self.workers.get(usize::from(worker));
        let page = page.and_then(|worker| worker.pages.get(id as usize / PAGE)?.get());
        if let Some(counters) = page.and_then(|page| page.get(id as usize % PAGE)) {
            counters.packets.add(1);
            counters.bytes.add(bytes as u64);
            // Captures may run back; the sum over workers takes the last one, too.
            counters.last_ns.set(counters.last_ns.get().max(now_ns));
        }
    }

    /// Counts a copy, or that there was no cell for one. Only the worker itself may call this.
    pub(super) fn count_copy(&self, worker: u16, is_made: bool) {
        if let Some(worker) = self.workers.get(usize::from(worker)) {
            if is_made { &worker.copies } else { &worker.copies_lost }.add(1);
        }
    }

    /// The same of an answer, made or withheld.
    pub(super) fn count_answer(&self, worker: u16, is_made: bool) {
        if let Some(worker) = self.workers.get(usize::from(worker)) {
            if is_made { &worker.answers } else { &worker.answers_withheld }.add(1);
        }
    }

    /// What the rule `id` counted since the start, over all workers. An id that had another rule before goes on
    /// where that one ended.
    pub fn get(&self, id: u32) -> Hit {
        let mut sum = Hit::default();
        for worker in &self.workers {
            let page = worker.pages.get(id as usize / PAGE).and_then(OnceLock::get);
            if let Some(counters) = page.and_then(|page| page.get(id as usize % PAGE)) {
                sum.packets += counters.packets.get();
                sum.bytes += counters.bytes.get();
                sum.last_ns = sum.last_ns.max(counters.last_ns.get());
            }
        }
        sum
    }

    /// What was made since the start.
    pub fn made(&self) -> Made {
        let sum = |counter: fn(&Worker) -> &Counter| {
            self.workers.iter().map(|worker| counter(worker).get()).sum()
        };
        Made {
            copies: sum(|w| &w.copies),
            copies_lost: sum(|w| &w.copies_lost),
            answers: sum(|w| &w.answers),
            answers_withheld: sum(|w| &w.answers_withheld),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_count_apart_and_are_read_together() {
        let hits = Hits::new(2);
        hits.count(0, 5000, 60, 7);
        assert_eq!(hits.get(5000), Hit::default(), "it has no counters");
        hits.make(5000);
        hits.count(0, 5000, 60, 9);
        hits.count(1, 5000, 100, 8);
        hits.count(7, 5000, 100, 8);
        hits.count(0, u32::MAX - 1, 1, 1);
        assert_eq!(hits.get(5000), Hit { packets: 2, bytes: 160, last_ns: 9 });
        hits.count(1, 0, 1, 3);
        assert_eq!(hits.get(0).packets, 1);
        hits.make(u32::MAX - 1);
        assert_eq!(hits.get(u32::MAX - 1), Hit::default());
        assert_eq!(Hits::default().get(0), Hit::default());
        hits.count_copy(1, true);
        hits.count_answer(0, false);
        assert_eq!(hits.made(), Made { copies: 1, answers_withheld: 1, ..Made::default() });
    }
}
