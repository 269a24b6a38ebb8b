//! Bytes of streams that a module did not let pass: they must not leave with a later packet either.
//!
//! ```text
//!  sequence numbers of one side  ──────────┤ dropped ├───────┤ dropped ├──────▶
//!  a later segment                      └────┘ overlaps: it gets the verdict of that module
//! ```
//!
//! A stream has each byte once, so a module never sees a retransmission. The verdict stays with the places of the bytes, until
//! another flow has the place of this one. New bytes are in order: each range begins behind the one before.
//!
//! Threads: one worker.

use std::collections::HashMap;

use chunk::Verdict;

/// Ranges that are kept apart; the last one is extended by further ones.
const RANGES_MAX: usize = 16;

/// Bytes of one side of a TCP connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes {
    /// The sequence number of the first one.
    pub begin: u32,
    /// How many.
    pub len: u32,
}

impl Bytes {
    /// As one number, for a column.
    pub fn pack(self) -> u64 {
        u64::from(self.begin) | u64::from(self.len) << 32
    }

    /// What [`pack`](Self::pack) made.
    pub fn unpack(packed: u64) -> Self {
        Self { begin: packed as u32, len: (packed >> 32) as u32 }
    }

    fn overlaps(self, other: Self) -> bool {
        self.len > 0
            && other.len > 0
            && (other.begin.wrapping_sub(self.begin) < self.len
                || self.begin.wrapping_sub(other.begin) < other.len)
    }
}

/// A flow: its place, how many flows had that, and which end sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfSide {
    /// The place.
    pub slot: usize,
    /// How many flows had it.
    pub generation: u32,
    /// The end that answers.
    pub is_reply: bool,
}

/// What a module decided about bytes of one side.
#[derive(Debug)]
struct Decided {
    number: usize,
    is_reply: bool,
    verdict: Verdict,
    ranges: Vec<Bytes>,
}

/// What modules decided about bytes, by the place of the flow.
#[derive(Debug, Default)]
pub struct Held {
    flows: HashMap<usize, (u32, Vec<Decided>)>,
}

impl Held {
    /// Module `number` has decided about these bytes.
    pub fn hold(&mut self, of: OfSide, number: usize, bytes: Bytes, verdict: Verdict) {
        if bytes.len == 0 {
            return;
        }
        let (generation, all) = self.flows.entry(of.slot).or_default();
        if *generation != of.generation {
            (*generation, *all) = (of.generation, Vec::new());
        }
        let is_own = |own: &Decided| own.number == number && own.is_reply == of.is_reply;
        let at = all.iter().position(is_own).unwrap_or_else(|| {
            let (is_reply, ranges) = (of.is_reply, Vec::new());
            all.push(Decided { number, is_reply, verdict, ranges });
            all.len() - 1
        });
        let ranges = &mut all[at].ranges;
        let is_full = ranges.len() >= RANGES_MAX;
        match ranges.last_mut() {
            Some(last) if is_full || last.begin.wrapping_add(last.len) == bytes.begin => {
                last.len = bytes.begin.wrapping_sub(last.begin).saturating_add(bytes.len);
            }
            _ => ranges.push(bytes),
        }
    }

    /// The first module that decided about some of these bytes, and its verdict.
    pub fn of(&mut self, of: OfSide, bytes: Bytes) -> Option<(usize, Verdict)> {
        if self.flows.is_empty() || bytes.len == 0 {
            return None;
        }
        let (generation, all) = self.flows.get(&of.slot)?;
        if *generation != of.generation {
            self.flows.remove(&of.slot);
            return None;
        }
        let own = all.iter().filter(|own| own.is_reply == of.is_reply);
        let first = own
            .filter(|own| own.ranges.iter().any(|range| range.overlaps(bytes)))
            .min_by_key(|own| own.number)?;
        Some((first.number, first.verdict))
    }

    /// Goes on with other modules: `number` gives the new number of a module, or nothing for one that is there no more.
    pub fn renumbered(&mut self, number: impl Fn(usize) -> Option<usize>) -> Self {
        let mut flows = std::mem::take(&mut self.flows);
        for (_, all) in flows.values_mut() {
            all.retain_mut(|own| {
                let new = number(own.number);
                own.number = new.unwrap_or_default();
                new.is_some()
            });
        }
        flows.retain(|_, (_, all)| !all.is_empty());
        Self { flows }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: OfSide = OfSide { slot: 3, generation: 1, is_reply: false };

    fn bytes(begin: u32, len: u32) -> Bytes {
        Bytes { begin, len }
    }

    #[test]
    fn a_verdict_stays_with_its_bytes() {
        let mut held = Held::default();
        assert_eq!(held.of(A, bytes(0, 9)), None);
        // Across the end of sequence numbers.
        held.hold(A, 2, bytes(u32::MAX - 4, 10), Verdict::DUMP);
        held.hold(A, 2, bytes(20, 5), Verdict::DUMP);
        held.hold(A, 1, bytes(22, 1), Verdict::host(4));
        for (begin, len, expected) in [
            (u32::MAX - 9, 5, None),
            (u32::MAX - 9, 6, Some((2, Verdict::DUMP))),
            (4, 1, Some((2, Verdict::DUMP))),
            (5, 15, None),
            (5, 16, Some((2, Verdict::DUMP))),
            (0, 0, None),
            (10, 50, Some((1, Verdict::host(4)))),
            (25, 100, None),
        ] {
            assert_eq!(held.of(A, bytes(begin, len)), expected, "{begin} {len}");
        }
        assert_eq!(held.of(OfSide { is_reply: true, ..A }, bytes(20, 5)), None);
        let mut held = held.renumbered(|number| (number == 2).then_some(0));
        assert_eq!(held.of(A, bytes(22, 1)), Some((0, Verdict::DUMP)));
        // Another flow has the place.
        assert_eq!(held.of(OfSide { generation: 2, ..A }, bytes(20, 5)), None);
        assert_eq!(held.of(A, bytes(20, 5)), None);
    }

    #[test]
    fn ranges_have_a_bound() {
        let mut held = Held::default();
        for i in 0..1000 {
            held.hold(A, 0, bytes(10 * i, 5), Verdict::DUMP);
        }
        assert!(held.flows[&3].1[0].ranges.len() <= RANGES_MAX);
        for i in 0..1000 {
            assert!(held.of(A, bytes(10 * i + 4, 1)).is_some());
        }
        assert_eq!(held.of(A, bytes(15, 5)), None);
        assert_eq!(held.of(A, bytes(9995, 5)), None);
    }
}
