//! The window against replays (RFC 4303 §3.4.3), for several threads at once.
//!
//! A packet may come late by as many numbers as the window is long, and each number is accepted once. RFC 6479 keeps a
//! ring of words, so that the window moves without shifting; one word more than the window needs makes it right. Here
//! each word of the ring also says which numbers it is for, so that nothing is cleared when the window moves, and one
//! compare-and-swap of one word decides about a number, whoever else decides about others.
//!
//! ```text
//!  word    │ 31 … 0  which 32 numbers: number / 32, its lower half │ 31 … 0  a bit for each that was accepted │
//!
//!  ring      … │ 40 │ 41 │ 42 │ 11 │ 12 │ …        number 1,350 is bit 6 of word 42; where 11 is, 43 comes next
//!                           ▲ top
//! ```
//!
//! - A number is looked at before its packet is authenticated ([`ReplayWindow::check`]), which saves work, and set
//!   afterwards ([`ReplayWindow::update`]), which decides. Forged packets change nothing.
//! - The highest number is raised before a word is changed, and read after a word is: so `top` is never below what a word
//!   is for, and a word of other numbers than ours is an older one, as those of a window lie in different places of the
//!   ring and we are within the window.
//! - **No number is accepted twice.** A word for the same numbers only gains bits, each by the one thread whose swap
//!   succeeds. When a word for later numbers has replaced it, whoever reads that word reads a `top` that has left ours
//!   behind.
//! - **A fresh number within the window is accepted**, but for one case without practical meaning: half of a word names
//!   its numbers, so it seems to be the word of others that lie a multiple of 2^37 higher if nothing passed over it in
//!   between, which takes 32 gaps in a row of nearly 2^32 numbers, the longest that a receiver can follow.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

use std::fmt;

/// Numbers of the longest window.
pub const WINDOW_MAX: u32 = 4096;
/// Numbers of one word.
pub(crate) const WORD: u64 = 32;

/// Which numbers of an association were accepted.
pub struct ReplayWindow {
    /// The highest number that was accepted; 0 before the first.
    top: AtomicU64,
    /// A power of two, one more at least than the window fills.
    words: Box<[AtomicU64]>,
    len: u64,
}

/// Why a number is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replay {
    /// Number 0 is never sent.
    Zero,
    /// It lies behind the window.
    Old,
    /// It was accepted before.
    Seen,
}

impl fmt::Display for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Zero => "the sequence number is 0",
            Self::Old => "the sequence number is behind the replay window",
            Self::Seen => "the sequence number was accepted before",
        })
    }
}

impl std::error::Error for Replay {}

/// A length that a window cannot have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowError {
    /// In numbers.
    pub len: u32,
}

impl fmt::Display for WindowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a replay window has 1 to {WINDOW_MAX} numbers, not {}", self.len)
    }
}

impl std::error::Error for WindowError {}

impl fmt::Debug for ReplayWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReplayWindow({} numbers up to {})", self.len, self.top())
    }
}

impl ReplayWindow {
    /// A window of `len` numbers: 1 to [`WINDOW_MAX`].
    ///
    /// # Errors
    ///
    /// Another length.
    pub fn new(len: u32) -> Result<Self, WindowError> {
        if !(1..=WINDOW_MAX).contains(&len) {
            return Err(WindowError { len });
        }
        // A window touches a word at either end in part.
        let words = (u64::from(len).div_ceil(WORD) + 1).next_power_of_two();
        let words = (0..words).map(|_| AtomicU64::new(0)).collect();
        Ok(Self { top: AtomicU64::new(0), words, len: len.into() })
    }

    /// Its length in numbers.
    pub fn len(&self) -> u32 {
        self.len as u32 // WINDOW_MAX at most
    }

    /// Whether nothing was accepted yet.
    pub fn is_empty(&self) -> bool {
        self.top() == 0
    }

    /// The highest number that was accepted; 0 before the first.
    #[inline]
    pub fn top(&self) -> u64 {
        self.top.load(Ordering::Relaxed)
    }

    /// Starts to load the word that the next number is looked for in.
    #[inline]
    pub fn prefetch(&self) {
        interleave::prefetch(self.place(self.top().wrapping_add(1)).0);
    }

    /// The whole number of a packet that carries the lower half of it: the one nearest to the window (RFC 4303,
    /// appendix A2.2).
    pub fn extend(&self, low: u32) -> u64 {
        let top = self.top();
        let (high, top_low) = (top >> 32, top & u64::from(u32::MAX));
        let low = u64::from(low);
        let high = match top_low.checked_sub(self.len - 1) {
            // The window lies within numbers of one higher half.
            Some(bottom) if low >= bottom => high,
            Some(_) => high.wrapping_add(1),
            // It reaches back into those of the half before.
            None if low >= (top_low + (1 << 32)) - (self.len - 1) => high.saturating_sub(1),
            None => high,
        };
        high << 32 | low
    }

    /// Whether a number would be accepted now.
    ///
    /// # Errors
    ///
    /// Why it would not.
    #[inline]
    pub fn check(&self, number: u64) -> Result<(), Replay> {
        let (word, generation, bit) = self.place(number);
        let word = word.load(Ordering::Acquire);
        self.check_top(number)?;
        accepted(word, generation, bit).map(drop)
    }

    /// Accepts a number, once. For packets that are genuine.
    ///
    /// # Errors
    ///
    /// Why it is not accepted: another thread may have been quicker since [`ReplayWindow::check`].
    #[inline]
    pub fn update(&self, number: u64) -> Result<(), Replay> {
        // Above all that were accepted, it is fresh, and one of those who offer it now accepts it.
        self.top.fetch_max(number, Ordering::Relaxed);
        let (word, generation, bit) = self.place(number);
        let mut before = word.load(Ordering::Acquire);
        loop {
            // Behind the word: see the module.
            self.check_top(number)?;
            let after = accepted(before, generation, bit)?;
            // Release: whoever finds the word finds `top` as it was raised before.
            let (done, not_done) = (Ordering::AcqRel, Ordering::Acquire);
            match word.compare_exchange_weak(before, after, done, not_done) {
                Ok(_) => return Ok(()),
                Err(now) => before = now,
            }
        }
    }

    /// Accepts `count` numbers from `first` on, as [`ReplayWindow::update`] of one after the other would, by one change of their
    /// word. Bit n of the answer says that number `first` + n is accepted; the others were accepted before. For packets that are
    /// genuine.
    ///
    /// `None`: none is accepted. They are of several words, or the window is shorter than a word, or a number lies behind it: then
    /// they are to be accepted one by one.
    #[inline]
    pub fn update_run(&self, first: u64, count: u32) -> Option<u32> {
        let last = first.checked_add(u64::from(count).checked_sub(1)?)?;
        if first == 0 || first / WORD != last / WORD || self.len < WORD {
            return None;
        }
        // Above the window as it was, none of them is behind the window that ends with the last.
        self.top.fetch_max(last, Ordering::Relaxed);
        let (word, generation, _) = self.place(first);
        let bits = (u64::MAX >> (WORD * 2 - u64::from(count))) << (first % WORD);
        let mut before = word.load(Ordering::Acquire);
        loop {
            // Behind the word, as for one number: whoever is ahead of the first is ahead of all.
            self.check_top(first).ok()?;
            let (kept, seen) = match (before >> 32) as u32 == generation {
                true => (before, before & bits),
                false => (u64::from(generation) << 32, 0),
            };
            let accepted = (bits & !seen) >> (first % WORD);
            let (done, not_done) = (Ordering::AcqRel, Ordering::Acquire);
            match word.compare_exchange_weak(before, kept | bits, done, not_done) {
                Ok(_) => return Some(accepted as u32), // below 2^32, as all bits of a word
                Err(now) => before = now,
            }
        }
    }

    #[inline]
    fn check_top(&self, number: u64) -> Result<(), Replay> {
        match number {
            0 => Err(Replay::Zero),
            _ if self.top().checked_sub(number).is_some_and(|late| late >= self.len) => {
                Err(Replay::Old)
            }
            _ => Ok(()),
        }
    }

    /// Word, generation of it, and bit of a number.
    #[inline]
    fn place(&self, number: u64) -> (&AtomicU64, u32, u64) {
        let generation = number / WORD;
        let at = (generation & (self.words.len() as u64 - 1)) as usize;
        (&self.words[at], generation as u32, 1 << (number % WORD))
    }
}

/// The word with a number's bit in it, where it is not newer than that of the number.
#[inline]
fn accepted(word: u64, generation: u32, bit: u64) -> Result<u64, Replay> {
    match (word >> 32) as u32 == generation {
        true if word & bit != 0 => Err(Replay::Seen),
        true => Ok(word | bit),
        false => Ok(u64::from(generation) << 32 | bit),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// All numbers that were ever accepted.
    struct Reference {
        seen: BTreeSet<u64>,
        len: u64,
    }

    impl Reference {
        fn check(&self, number: u64) -> Result<(), Replay> {
            let top = self.seen.last().copied().unwrap_or(0);
            match number {
                0 => Err(Replay::Zero),
                _ if number + self.len <= top => Err(Replay::Old),
                _ if self.seen.contains(&number) => Err(Replay::Seen),
                _ => Ok(()),
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 200, ..ProptestConfig::default() })]

        /// Steps forward by little and by much, and back by about a window.
        #[test]
        fn agrees_with_a_set(
            len in prop_oneof![1u32..70, Just(1024), Just(4095), Just(WINDOW_MAX)],
            start in prop_oneof![Just(0u64), Just((1 << 32) - 100), Just((1 << 37) - 40)],
            steps in prop::collection::vec((0u32..9, any::<u32>()), 1..300),
        ) {
            let window = ReplayWindow::new(len).unwrap();
            let mut reference = Reference { seen: BTreeSet::new(), len: len.into() };
            // As a sender that gets so far: by steps that a receiver can follow.
            let mut at = 0;
            while at < start {
                at = (at + (1 << 31)).min(start);
                let all = at.saturating_sub(2 * u64::from(WINDOW_MAX)).max(1)..=at;
                for number in all.step_by(17) {
                    prop_assert_eq!(window.update(number), reference.check(number));
                    reference.seen.insert(number);
                }
            }
            for (kind, by) in steps {
                let top = reference.seen.last().copied().unwrap_or(0);
                let by = u64::from(by);
                let number = match kind {
                    0..3 => top + 1,
                    3 => top + by % 70,
                    4 => top + by % 10_000,
                    5 => top + by,
                    6 => top.saturating_sub(by % 70),
                    7 => top.saturating_sub(by % (2 * u64::from(len))),
                    _ => (top + (by & 1)).saturating_sub(u64::from(len)), // on either side of the border
                };
                let expected = reference.check(number);
                prop_assert_eq!(window.check(number), expected);
                prop_assert_eq!(window.update(number), expected);
                if expected.is_ok() {
                    reference.seen.insert(number);
                    prop_assert_eq!(window.check(number), Err(Replay::Seen));
                }
                prop_assert_eq!(window.top(), reference.seen.last().copied().unwrap_or(0));
            }
        }

        /// Runs of numbers, ahead of the window, in it and behind it, are one number after the other.
        #[test]
        fn a_run_is_one_after_the_other(
            len in prop_oneof![1u32..70, Just(1024), Just(WINDOW_MAX)],
            start in prop_oneof![Just(0u64), Just((1 << 32) - 50), Just((1 << 37) - 40)],
            runs in prop::collection::vec((0u32..6, any::<u32>(), 0u32..34), 1..200),
        ) {
            let [window, plain] = [(); 2].map(|()| ReplayWindow::new(len).unwrap());
            let mut at = 0;
            while at < start {
                at = (at + (1 << 31)).min(start);
                prop_assert_eq!(window.update(at), plain.update(at));
            }
            for (kind, by, count) in runs {
                let (top, by) = (plain.top(), u64::from(by));
                let first = match kind {
                    0..2 => top + 1,
                    2 => top + by % 70,
                    3 => top + by % 10_000,
                    4 => top.saturating_sub(by % 70),
                    _ => top.saturating_sub(by % (2 * u64::from(len))),
                };
                let numbers = || first..first + u64::from(count);
                let expected: Vec<_> = numbers().map(|number| plain.update(number)).collect();
                match window.update_run(first, count) {
                    Some(accepted) => {
                        for (n, expected) in expected.iter().enumerate() {
                            let found = if accepted >> n & 1 == 1 { Ok(()) } else { Err(Replay::Seen) };
                            prop_assert_eq!(&found, expected, "{} from {}", n, first);
                        }
                        prop_assert!(u64::from(accepted) >> count == 0 && first > 0);
                    }
                    None => {
                        let found: Vec<_> = numbers().map(|number| window.update(number)).collect();
                        prop_assert_eq!(found, expected);
                    }
                }
                prop_assert_eq!(window.top(), plain.top());
            }
        }

        /// Every number of a window, and those ahead of it, is found by its lower half.
        #[test]
        fn halves_are_extended(
            len in 1u32..=WINDOW_MAX,
            top in prop_oneof![1u64..10_000, (1u64 << 32) - 5000..(1 << 32) + 5000, (7u64 << 32)..(8 << 32)],
            ahead in prop_oneof![0u64..10_000, Just((1 << 32) - 1 - u64::from(WINDOW_MAX))],
            late in 0u64..u64::from(WINDOW_MAX),
        ) {
            let window = ReplayWindow::new(len).unwrap();
            window.update(top).unwrap();
            prop_assert_eq!(window.extend((top + ahead) as u32), top + ahead);
            let late = late % u64::from(len);
            if let Some(number) = top.checked_sub(late).filter(|number| *number > 0) {
                prop_assert_eq!(window.extend(number as u32), number);
            }
        }
    }

    #[test]
    fn lengths_have_bounds() {
        assert!(ReplayWindow::new(0).is_err());
        let error = ReplayWindow::new(WINDOW_MAX + 1).unwrap_err();
        assert_eq!(error.to_string(), "a replay window has 1 to 4096 numbers, not 4097");
        assert_eq!(ReplayWindow::new(WINDOW_MAX).unwrap().words.len(), 256);
        assert_eq!(ReplayWindow::new(64).unwrap().words.len(), 4);
    }

    /// All threads offer all numbers, a little out of order: each is accepted by one.
    #[test]
    fn threads_accept_each_number_once() {
        let window = ReplayWindow::new(WINDOW_MAX).unwrap();
        let accepted: u64 = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3u64)
                .map(|n| {
                    let window = &window;
                    scope.spawn(move || {
                        let numbers = (0..4000).map(|at| 1 + (at ^ (5 * n)) % 4000);
                        numbers.filter(|number| window.update(*number).is_ok()).count() as u64
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        let distinct: BTreeSet<u64> =
            (0..3u64).flat_map(|n| (0..4000).map(move |at| 1 + (at ^ (5 * n)) % 4000)).collect();
        assert_eq!(accepted, distinct.len() as u64);
    }
}

/// All interleavings of two threads, by the model checker.
#[cfg(all(test, loom))]
mod model {
    use loom::sync::Arc;

    use super::*;

    fn race(len: u32, before: &[u64], numbers: [[u64; 2]; 2]) {
        let before = before.to_vec();
        loom::model(move || {
            let window = Arc::new(ReplayWindow::new(len).unwrap());
            before.iter().for_each(|number| window.update(*number).unwrap());
            let other = {
                let window = window.clone();
                loom::thread::spawn(move || numbers[1].map(|number| window.update(number).is_ok()))
            };
            let own = numbers[0].map(|number| window.update(number).is_ok());
            let other = other.join().unwrap();
            let pairs = numbers[0].into_iter().zip(own).chain(numbers[1].into_iter().zip(other));
            let mut accepted: Vec<u64> =
                pairs.filter(|(_, is_accepted)| *is_accepted).map(|(number, _)| number).collect();
            accepted.extend(&before);
            let count = accepted.len();
            accepted.sort_unstable();
            accepted.dedup();
            assert_eq!(accepted.len(), count, "a number is accepted twice");
            let top = numbers.iter().flatten().chain(&before).copied().max();
            assert_eq!(Some(window.top()), top);
            assert_eq!(accepted.last().copied(), top, "the highest number is accepted");
            // Nothing that was accepted is accepted later.
            assert!(accepted.iter().all(|number| window.update(*number).is_err()));
        });
    }

    /// A run and numbers of its word, one by one.
    #[test]
    fn a_run_and_single_numbers() {
        loom::model(|| {
            let window = Arc::new(ReplayWindow::new(64).unwrap());
            let other = {
                let window = window.clone();
                loom::thread::spawn(move || [3, 6].map(|number| window.update(number).is_ok()))
            };
            let own = window.update_run(2, 3).unwrap_or(0);
            let [three, six] = other.join().unwrap();
            assert!((own >> 1 & 1 == 1) != three, "number 3 is accepted once");
            assert!(own & 0b101 == 0b101 && six);
            assert_eq!(window.top(), 6);
            assert!([2, 3, 4, 6].iter().all(|number| window.update(*number).is_err()));
        });
    }

    #[test]
    fn the_same_number() {
        race(64, &[1], [[2, 3], [2, 3]]);
    }

    /// Number 140 takes the place in the ring that 12 has.
    #[test]
    fn a_word_of_two_generations() {
        race(64, &[12], [[13, 140], [140, 13]]);
    }
}
