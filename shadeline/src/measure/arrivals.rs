//! What arrives of a numbered stream: unique packets, duplicates, packets out of order.
//!
//! A packet is reordered when one with a higher number came before it (RFC 4737 §3.3), duplicates
//! aside. Which numbers have come is kept for the last [`WINDOW`] of them; one that is older when it
//! comes counts as reordered, since it cannot be known whether it is a duplicate.

/// Numbers that are remembered: a fourth of a second at 16 Mpps.
const WINDOW: u64 = 1 << 22;

/// The numbers that came.
#[derive(Debug)]
pub(crate) struct Arrivals {
    /// One bit a number, by its remainder.
    seen: Vec<u64>,
    /// The number after the highest one that came.
    next: u64,
    pub(crate) unique: u64,
    pub(crate) duplicated: u64,
    pub(crate) reordered: u64,
}

impl Arrivals {
    pub(crate) fn new() -> Self {
        let seen = vec![0; (WINDOW / 64) as usize];
        Self { seen, next: 0, unique: 0, duplicated: 0, reordered: 0 }
    }

    /// Counts packet `number`; `false` for a duplicate.
    pub(crate) fn count(&mut self, number: u64) -> bool {
        if number >= self.next {
            // Forgets what falls out of the window.
            for skipped in self.next.max((number + 1).saturating_sub(WINDOW))..number {
                self.set(skipped, false);
            }
            self.next = number + 1;
        } else if self.next - number <= WINDOW && self.is_seen(number) {
            self.duplicated += 1;
            return false;
        } else {
            self.reordered += 1;
        }
        if self.next - number <= WINDOW {
            self.set(number, true);
        }
        self.unique += 1;
        true
    }

    fn is_seen(&self, number: u64) -> bool {
        let at = number % WINDOW;
        self.seen[(at / 64) as usize] >> (at % 64) & 1 != 0
    }

    fn set(&mut self, number: u64, seen: bool) {
        let at = number % WINDOW;
        let word = &mut self.seen[(at / 64) as usize];
        *word = *word & !(1 << (at % 64)) | u64::from(seen) << (at % 64);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn counts(numbers: &[u64]) -> (u64, u64, u64) {
        let mut arrivals = Arrivals::new();
        numbers.iter().for_each(|&number| {
            arrivals.count(number);
        });
        (arrivals.unique, arrivals.duplicated, arrivals.reordered)
    }

    #[test]
    fn cases() {
        assert_eq!(counts(&[]), (0, 0, 0));
        assert_eq!(counts(&[0, 1, 2]), (3, 0, 0));
        assert_eq!(counts(&[5, 9]), (2, 0, 0));
        assert_eq!(counts(&[0, 2, 1, 3]), (4, 0, 1));
        assert_eq!(counts(&[0, 0, 1, 0]), (2, 2, 0));
        assert_eq!(counts(&[2, 1, 0, 1]), (3, 1, 2));
        // Bits of numbers long gone are not those of their remainders.
        assert_eq!(counts(&[0, WINDOW, WINDOW + 1]), (3, 0, 0));
        assert_eq!(counts(&[3, 5 * WINDOW, 4 * WINDOW + 3]), (3, 0, 1));
        assert_eq!(counts(&[0, 2 * WINDOW, 0]), (3, 0, 1));
    }

    #[test]
    fn agrees_with_a_set() {
        let mut state = 7u64;
        let mut numbers = Vec::new();
        for i in 0..50_000u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            numbers.push((i * 3 + (state >> 54)).saturating_sub(state >> 56));
        }
        let (mut seen, mut highest, mut expected) = (HashSet::new(), None, (0, 0, 0));
        for &number in &numbers {
            if !seen.insert(number) {
                expected.1 += 1;
                continue;
            }
            expected.0 += 1;
            expected.2 += u64::from(highest.is_some_and(|h| number < h));
            highest = highest.max(Some(number));
        }
        assert!(expected.1 > 0 && expected.2 > 0);
        assert_eq!(counts(&numbers), expected);
    }
}
