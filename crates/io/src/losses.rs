//! Why a queue lost packets, for others to read.
//!
//! A packet that is lost in a queue never has a verdict, or has one that says it left. So that it has a
//! counted reason all the same, its queue counts it here, under one of the program's drop reasons.
//!
//! Threads: the queue's owner writes, anybody reads. Losses are rare, so a shared line costs nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use chunk::{DropReason, reasons};

use crate::QueueStats;

/// The reasons that queues have.
pub const LOSS_REASONS: [DropReason; 9] = [
    reasons::RX_FULL,
    reasons::RX_NO_CELLS,
    reasons::RX_OVERSIZE,
    reasons::RX_UNREADABLE,
    reasons::RX_OFFLOAD,
    reasons::FAULT_INJECTED,
    reasons::TX_OVERSIZE,
    reasons::TX_PORT_DOWN,
    reasons::TX_FAILED,
];

/// Packets that a queue lost since it was opened, by reason. Their sum is [`QueueStats::dropped`].
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Losses([AtomicU64; LOSS_REASONS.len()]);

impl Losses {
    /// Packets lost for `reason`; 0 for a reason that no queue has.
    pub fn get(&self, reason: DropReason) -> u64 {
        place(reason).map_or(0, |place| self.0[place].load(Relaxed))
    }

    /// Adds what other queues have lost.
    pub fn absorb(&self, other: &Losses) {
        for (own, other) in self.0.iter().zip(&other.0) {
            own.fetch_add(other.load(Relaxed), Relaxed);
        }
    }

    /// Counts `n` packets here and in the statistics of their queue.
    pub(crate) fn count(&self, stats: &mut QueueStats, reason: DropReason, n: u64) {
        stats.dropped += n;
        self.add(reason, n);
    }

    pub(crate) fn add(&self, reason: DropReason, n: u64) {
        debug_assert!(place(reason).is_some(), "{reason:?} is none of LOSS_REASONS");
        if let Some(place) = place(reason) {
            self.0[place].fetch_add(n, Relaxed);
        }
    }
}

fn place(reason: DropReason) -> Option<usize> {
    LOSS_REASONS.iter().position(|&known| known == reason)
}

/// Packets that some queues lost for `reason`.
pub fn lost(losses: &[Arc<Losses>], reason: DropReason) -> u64 {
    losses.iter().map(|losses| losses.get(reason)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_what_the_queue_lost() {
        let (losses, mut stats) = (Arc::new(Losses::default()), QueueStats::default());
        for (n, reason) in LOSS_REASONS.into_iter().enumerate() {
            losses.count(&mut stats, reason, n as u64);
        }
        let all = [losses];
        let sum: u64 = reasons::BLOCK.reasons().iter().map(|r| lost(&all, r.code())).sum();
        assert_eq!((stats.dropped, sum), (36, 36));
        assert_eq!((lost(&all, reasons::TX_FAILED), lost(&all, reasons::NO_CELLS)), (8, 0));
    }
}
