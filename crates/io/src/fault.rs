//! Faults on purpose: loss, duplication, reordering and corruption of what any queue receives.
//!
//! What comes of it depends on the seed and the packets alone, so that a failing run can be done
//! again. After smoltcp's `FaultInjector`.
//!
//! Reordering is bounded: a packet is held back while at most `reorder_distance` later ones pass, and
//! not at all once nothing more comes.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use chunk::{Packet, Pool, reasons};

use crate::random::Random;
use crate::{Losses, QueueStats, RxQueue};

/// Which faults, each with its probability per packet from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Options {
    /// Seed of the random numbers.
    pub seed: u64,
    /// A packet is lost.
    pub loss: f64,
    /// A packet comes twice.
    pub duplication: f64,
    /// A packet is held back.
    pub reordering: f64,
    /// By how many later packets it is overtaken at most; 0 is taken as 1.
    pub reorder_distance: u32,
    /// One bit of a packet is turned.
    pub corruption: f64,
}

/// How often each fault happened, for others to read.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Counters {
    /// Packets lost.
    pub lost: AtomicU64,
    /// Packets that came twice.
    pub duplicated: AtomicU64,
    /// Packets held back.
    pub reordered: AtomicU64,
    /// Packets with a turned bit.
    pub corrupted: AtomicU64,
}

/// A queue with faults.
pub struct Fault {
    inner: Box<dyn RxQueue>,
    options: Options,
    random: Random,
    counters: Arc<Counters>,
    /// Packets to hand out, in their new order.
    ready: VecDeque<Packet>,
    /// Packets held back, each with the count of passed packets at which it goes on.
    held: Vec<(u64, Packet)>,
    passed: u64,
    received: Vec<Packet>,
    delivered: QueueStats,
    losses: Arc<Losses>,
}

impl std::fmt::Debug for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Fault({:?}, {:?})", self.options, self.counters)
    }
}

impl Fault {
    /// Puts faults on what `inner` receives.
    pub fn new(inner: Box<dyn RxQueue>, options: Options) -> Self {
        Self {
            inner,
            options,
            random: Random::new(options.seed),
            counters: Arc::default(),
            ready: VecDeque::new(),
            held: Vec::new(),
            passed: 0,
            received: Vec::new(),
            delivered: QueueStats::default(),
            losses: Arc::default(),
        }
    }

    /// The counters, to be kept and read by others.
    pub fn counters(&self) -> Arc<Counters> {
        self.counters.clone()
    }

    /// One packet goes through. The same random numbers are drawn for each, whatever happens to it.
    fn pass(&mut self, mut packet: Packet, pool: &mut Pool) {
        let options = self.options;
        let is_lost = self.random.chance(options.loss);
        let is_doubled = self.random.chance(options.duplication);
        let is_held = self.random.chance(options.reordering);
        let is_corrupt = self.random.chance(options.corruption);
        let distance = 1 + self.random.below(options.reorder_distance.max(1).into());
        let place = self.random.next();
        let count = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed);
        if is_lost {
            count(&self.counters.lost);
            self.losses.add(reasons::FAULT_INJECTED, 1);
            packet.free(pool);
            return;
        }
        if is_corrupt && !packet.data().is_empty() {
            let bit = place as usize % (packet.data().len() * 8);
            packet.data_mut()[bit / 8] ^= 1 << (bit % 8);
            count(&self.counters.corrupted);
        }
        let copy = if is_doubled { packet.duplicate(pool) } else { None };
        if let Some(copy) = copy {
            count(&self.counters.duplicated);
            self.ready.push_back(copy);
        }
        if is_held {
            count(&self.counters.reordered);
            self.held.push((self.passed + distance, packet));
            return;
        }
        self.ready.push_back(packet);
        self.passed += 1;
        self.let_go(self.passed);
    }

    /// Lets those go on that were held until `passed`.
    fn let_go(&mut self, passed: u64) {
        let (ready, held) = (&mut self.ready, &mut self.held);
        ready.extend(held.extract_if(.., |(until, _)| *until <= passed).map(|(_, packet)| packet));
    }
}

impl RxQueue for Fault {
    fn recv(&mut self, pool: &mut Pool, out: &mut Vec<Packet>, max: usize) -> usize {
        if self.ready.len() < max {
            let mut received = std::mem::take(&mut self.received);
            self.inner.recv(pool, &mut received, max - self.ready.len());
            if received.is_empty() {
                self.let_go(u64::MAX);
            }
            received.drain(..).for_each(|packet| self.pass(packet, pool));
            self.received = received;
        }
        let n = self.ready.len().min(max);
        for packet in self.ready.drain(..n) {
            self.delivered.count(packet.frame_len() as u64);
            out.push(packet);
        }
        n
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.fd()
    }

    fn arm(&mut self) -> bool {
        self.ready.is_empty() && self.held.is_empty() && self.inner.arm()
    }

    fn is_finished(&self) -> bool {
        self.ready.is_empty() && self.held.is_empty() && self.inner.is_finished()
    }

    fn peek_time_ns(&mut self) -> Option<u64> {
        match self.ready.front() {
            Some(packet) => Some(packet.time_ns),
            None => self
                .inner
                .peek_time_ns()
                .or_else(|| self.held.first().map(|(_, packet)| packet.time_ns)),
        }
    }

    fn progress(&self) -> Option<(u64, u64)> {
        self.inner.progress()
    }

    fn take_error(&mut self) -> Option<String> {
        self.inner.take_error()
    }

    fn release(&mut self, pool: &mut Pool) {
        // The end comes before their turn.
        let held = self.held.drain(..).map(|(_, packet)| packet);
        for packet in self.ready.drain(..).chain(held) {
            self.counters.lost.fetch_add(1, Ordering::Relaxed);
            self.losses.add(reasons::FAULT_INJECTED, 1);
            packet.free(pool);
        }
        self.inner.release(pool);
    }

    fn stats(&self) -> QueueStats {
        let inner = self.inner.stats();
        let lost = self.counters.lost.load(Ordering::Relaxed);
        QueueStats { dropped: inner.dropped + lost, errors: inner.errors, ..self.delivered }
    }

    fn losses(&self) -> Vec<Arc<Losses>> {
        let mut losses = self.inner.losses();
        losses.push(self.losses.clone());
        losses
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Script;
    use chunk::{HugePages, Region};
    use proptest::prelude::*;

    /// What comes of 500 numbered frames, and the counters: lost, duplicated, reordered, corrupted.
    fn run(options: Options, burst: usize) -> (Vec<Vec<u8>>, [u64; 4]) {
        let (_, depot) = Region::new(2000, HugePages::Off).unwrap();
        let mut pool = Pool::new(depot.clone(), 16);
        let frames = (0..500u16).map(|i| [[0; 60].as_slice(), &i.to_be_bytes()].concat());
        let mut fault = Fault::new(Box::new(Script::untimed(frames)), options);
        let counters = fault.counters();
        let (mut out, mut result) = (Vec::new(), Vec::new());
        while !fault.is_finished() {
            let n = fault.recv(&mut pool, &mut out, burst);
            assert!(n <= burst && n == out.len());
            for packet in out.drain(..) {
                result.push(packet.data().to_vec());
                packet.free(&mut pool);
            }
        }
        let counts =
            [&counters.lost, &counters.duplicated, &counters.reordered, &counters.corrupted]
                .map(|counter| counter.load(Ordering::Relaxed));
        let stats = fault.stats();
        assert_eq!(crate::lost(&fault.losses(), reasons::FAULT_INJECTED), stats.dropped);
        assert_eq!((stats.packets as usize, stats.dropped), (result.len(), counts[0]));
        drop((fault, pool));
        assert_eq!(depot.available(), 2000);
        (result, counts)
    }

    fn number(frame: &[u8]) -> i64 {
        i64::from(u16::from_be_bytes([frame[60], frame[61]]))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn each_fault_does_what_it_says(
            seed: u64,
            p in 0.0..0.5f64,
            distance in 1u32..20,
            burst in 1usize..50,
        ) {
            let none = Options { seed, reorder_distance: distance, ..Options::default() };
            prop_assert_eq!(run(none, burst).0.len(), 500);

            let (frames, [lost, ..]) = run(Options { loss: p, ..none }, burst);
            prop_assert_eq!(frames.len() as u64, 500 - lost);
            prop_assert!(frames.windows(2).all(|w| number(&w[0]) < number(&w[1])));

            let (frames, [_, doubled, ..]) = run(Options { duplication: p, ..none }, burst);
            prop_assert_eq!(frames.len() as u64, 500 + doubled);
            let equal = frames.windows(2).filter(|w| w[0] == w[1]).count();
            prop_assert_eq!(equal as u64, doubled);

            let (frames, [.., reordered, _]) = run(Options { reordering: p, ..none }, burst);
            let mut sorted: Vec<_> = frames.iter().map(|f| number(f)).collect();
            // No packet is overtaken by more than the distance and what is itself held back.
            for (i, &n) in sorted.iter().enumerate() {
                let later = sorted[..i].iter().filter(|&&m| m > n).count();
                prop_assert!(later <= distance as usize + reordered as usize);
            }
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..500).collect::<Vec<_>>());

            let (frames, [.., corrupted]) = run(Options { corruption: p, ..none }, burst);
            let clean = run(none, burst).0;
            let bits: u32 =
                frames.concat().iter().zip(clean.concat()).map(|(a, b)| (a ^ b).count_ones()).sum();
            prop_assert_eq!(u64::from(bits), corrupted);
        }

        #[test]
        fn the_same_seed_gives_the_same_whatever_the_bursts(seed: u64, a in 1usize..40, b in 1usize..40) {
            // Held packets go on when a call finds nothing, which only the end does here.
            let options = Options {
                seed,
                loss: 0.1,
                duplication: 0.1,
                reordering: 0.1,
                reorder_distance: 5,
                corruption: 0.1,
            };
            prop_assert_eq!(run(options, a), run(options, b));
        }
    }

    #[test]
    fn what_is_held_at_the_end_is_given_back_and_counted() {
        let (_, depot) = Region::new(100, HugePages::Off).unwrap();
        let mut pool = Pool::new(depot.clone(), 16);
        let options = Options { reordering: 1.0, reorder_distance: 9, ..Options::default() };
        let script = Script::untimed((0..20).map(|_| vec![0; 60]));
        let mut fault = Fault::new(Box::new(script), options);
        let mut out = Vec::new();
        fault.recv(&mut pool, &mut out, 4);
        fault.release(&mut pool);
        assert_eq!(out.len() as u64 + crate::lost(&fault.losses(), reasons::FAULT_INJECTED), 4);
        out.drain(..).for_each(|packet| packet.free(&mut pool));
        drop((fault, pool));
        assert_eq!(depot.available(), 100);
    }

    #[test]
    fn probabilities_are_kept() {
        let options = Options { seed: 1, loss: 0.2, corruption: 0.5, ..Options::default() };
        let (_, [lost, _, _, corrupted]) = run(options, 32);
        assert!((70..130).contains(&lost) && (150..250).contains(&corrupted));
    }

    #[test]
    fn reordering_stays_within_its_distance() {
        let options = Options { reordering: 0.05, reorder_distance: 3, ..Options::default() };
        let numbers: Vec<_> = run(options, 32).0.iter().map(|f| number(f)).collect();
        let late = |i: usize| numbers[..i].iter().filter(|&&m| m > numbers[i]).count();
        let most = (0..500).map(late).max().unwrap();
        assert!((1..=6).contains(&most), "{most}");
    }
}
