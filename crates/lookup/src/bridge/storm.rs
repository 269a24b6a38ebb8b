//! Storm control: how many frames of a port may be flooded.
//!
//! A loop or a broken station sends broadcasts as fast as the link takes them, and a switch multiplies each by
//! its ports. So each port has a token bucket for each kind of flooded frame, counted at ingress.
//!
//! The bucket is one number, the *theoretical arrival time* of the generic cell rate algorithm (ITU-T I.371
//! annex A, the virtual scheduling form): a frame conforms when that lies at most `burst` intervals ahead of
//! now, and moves it on by one interval. One compare-and-swap on a word of its own cache line; workers of one
//! port share it, other ports' do not touch it, and frames that are not flooded never do.

use std::sync::atomic::{AtomicU64, Ordering};

/// Why a frame is flooded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum FloodKind {
    /// To everybody.
    Broadcast = 0,
    /// To a group.
    Multicast = 1,
    /// To a station that is in no table.
    Unknown = 2,
}

/// The rate of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StormRate {
    /// Frames a second; 0 lets none pass.
    pub packets_per_s: u32,
    /// Frames that may come at once; at least 1.
    pub burst: u32,
}

/// Limits of a port; `None` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StormLimits {
    /// Of broadcasts.
    pub broadcast: Option<StormRate>,
    /// Of multicasts.
    pub multicast: Option<StormRate>,
    /// Of unicasts to unknown stations.
    pub unknown: Option<StormRate>,
}

impl StormLimits {
    /// The limit of a kind.
    #[inline]
    pub fn of(&self, kind: FloodKind) -> Option<StormRate> {
        match kind {
            FloodKind::Broadcast => self.broadcast,
            FloodKind::Multicast => self.multicast,
            FloodKind::Unknown => self.unknown,
        }
    }
}

/// The buckets of one port: theoretical arrival times, nanoseconds since 1970.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct StormBuckets([AtomicU64; 3]);

impl StormBuckets {
    /// Takes a token; `false` when there is none.
    pub(super) fn take(&self, kind: FloodKind, rate: StormRate, now_ns: u64) -> bool {
        if rate.packets_per_s == 0 {
            return false;
        }
        let interval = 1_000_000_000 / u64::from(rate.packets_per_s);
        let ahead = interval * u64::from(rate.burst.max(1) - 1);
        let moved = |arrival: u64| {
            let arrival = arrival.max(now_ns);
            (arrival - now_ns <= ahead).then_some(arrival + interval)
        };
        let bucket = &self.0[kind as usize];
        bucket.fetch_update(Ordering::Relaxed, Ordering::Relaxed, moved).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_passes_a_burst_and_then_its_rate() {
        let buckets = StormBuckets::default();
        let rate = StormRate { packets_per_s: 1000, burst: 5 };
        let take = |now_ns| buckets.take(FloodKind::Unknown, rate, now_ns);
        let start = 1_700_000_000_000_000_000;
        assert_eq!((0..20).filter(|_| take(start)).count(), 5);
        // A second of 100 attempts a millisecond: one of them each.
        let passed = (1..=100_000u64).filter(|i| take(start + i * 10_000)).count();
        assert_eq!(passed, 1000);
        assert_eq!((0..20).filter(|_| take(start + 10_000_000_000)).count(), 5, "it fills again");
        // Another kind has its own; a rate of 0 lets nothing pass.
        assert!(buckets.take(FloodKind::Broadcast, rate, start));
        let none = StormRate { packets_per_s: 0, burst: 9 };
        assert!(!buckets.take(FloodKind::Multicast, none, start));
        let one = StormRate { packets_per_s: u32::MAX, burst: 0 };
        assert!(buckets.take(FloodKind::Multicast, one, start));
    }

    /// Two workers together get what one would.
    #[test]
    fn workers_share_a_bucket() {
        let buckets = StormBuckets::default();
        let rate = StormRate { packets_per_s: 1_000_000, burst: 1000 };
        let passed: usize = std::thread::scope(|scope| {
            let count =
                || (0..10_000).filter(|_| buckets.take(FloodKind::Unknown, rate, 5)).count();
            let threads = [scope.spawn(count), scope.spawn(count)];
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(passed, 1000);
    }
}
