//! Sequence numbers of packets that are sent, each taken once (RFC 4303 §3.3.3).

use std::ops::Range;

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

/// The next number of an association, for any number of threads. It never wraps: a number is the initialisation vector of
/// counter modes, and two packets with the same one would give each other away.
#[derive(Debug)]
pub struct Sequence {
    next: AtomicU64,
    /// The first that is not given.
    end: u64,
}

impl Sequence {
    /// From 1, to 2^32 - 1 or, where numbers are extended, to 2^64 - 2.
    pub fn new(is_extended: bool) -> Self {
        Self::starting_at(1, is_extended)
    }

    /// From another number, for an association that moves here.
    pub fn starting_at(next: u64, is_extended: bool) -> Self {
        let end = if is_extended { u64::MAX } else { 1 << 32 };
        Self { next: AtomicU64::new(next.clamp(1, end)), end }
    }

    /// Takes `count` numbers, or as many as there are: the range is shorter where they end, and empty behind.
    #[inline]
    pub fn take(&self, count: u64) -> Range<u64> {
        let mut first = self.next.load(Ordering::Relaxed);
        loop {
            let behind = first.saturating_add(count).min(self.end);
            // Only the numbers themselves must be apart; nothing else is passed between threads.
            let (found, expected) = (Ordering::Relaxed, Ordering::Relaxed);
            match self.next.compare_exchange_weak(first, behind, found, expected) {
                Ok(_) => return first..behind,
                Err(now) => first = now,
            }
        }
    }

    /// The next number that would be taken.
    pub fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Whether numbers have more than 32 bits.
    pub fn is_extended(&self) -> bool {
        self.end > 1 << 32
    }

    /// How many are left: an association is replaced before there are none.
    pub fn left(&self) -> u64 {
        self.end - self.next()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn numbers_end_and_do_not_wrap() {
        let sequence = Sequence::new(false);
        assert_eq!(sequence.take(3), 1..4);
        assert_eq!((sequence.next(), sequence.left()), (4, (1 << 32) - 4));
        let sequence = Sequence::starting_at((1 << 32) - 2, false);
        assert_eq!(sequence.take(5), (1 << 32) - 2..1 << 32);
        assert_eq!(sequence.take(5), 1 << 32..1 << 32);
        assert_eq!(sequence.left(), 0);
        let sequence = Sequence::starting_at(u64::MAX - 1, true);
        assert_eq!(sequence.take(u64::MAX), u64::MAX - 1..u64::MAX);
        assert!(sequence.take(1).is_empty());
        assert!(Sequence::starting_at(u64::MAX, false).take(1).is_empty());
        assert_eq!(Sequence::starting_at(0, false).next(), 1);
    }

    #[test]
    fn threads_share_the_numbers() {
        let sequence = Sequence::new(false);
        let mut taken: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (1..4)
                .map(|_| {
                    scope.spawn(|| (0..500).flat_map(|_| sequence.take(3)).collect::<Vec<_>>())
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        taken.sort_unstable();
        assert!(taken.iter().copied().eq(1..=4500));
    }
}
