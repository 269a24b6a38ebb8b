//! Slots that a stage does not look at: for what a home on a device need not see any more.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Slots of the first part; each further one has as many as all before it.
const FIRST: usize = 4096;
/// Parts: more slots than a number of 32 bits can name.
const PARTS: usize = 21;
const BITS: usize = 64;

/// A set of slots that many threads share: bits that are set and cleared one by one, over parts that come when a slot of
/// them is set and stay where they are.
///
/// Its use: the state of a flow is at home on a device, and what is left of the flow's packets is of no concern to it.
/// `retired`, or the control side, puts the slot in; `pre_shade` sees it there and settles the rows of that slot, so that
/// their bytes do not travel, and a chunk of such rows does not travel at all.
///
/// A slot that is put in is seen by later calls of [`SlotSet::contains`] on the same thread at once and on others soon:
/// it orders nothing else.
#[derive(Debug, Default)]
pub struct SlotSet {
    parts: [OnceLock<Box<[AtomicU64]>>; PARTS],
}

impl SlotSet {
    /// No slot.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether a slot is in it. Never blocks.
    #[inline]
    pub fn contains(&self, slot: usize) -> bool {
        let Some((part, word, bit)) = place(slot) else { return false };
        let words = self.parts[part].get();
        words.is_some_and(|words| words[word].load(Ordering::Relaxed) & bit != 0)
    }

    /// Puts a slot in; whether it was not there. The first slot of a part takes memory for that part. Slots of 2³² and
    /// on are never in it.
    pub fn insert(&self, slot: usize) -> bool {
        let Some((part, word, bit)) = place(slot) else { return false };
        let words = self.parts[part].get_or_init(|| {
            let words = slots_of(part) / BITS;
            (0..words).map(|_| AtomicU64::new(0)).collect()
        });
        words[word].fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    /// Takes a slot out; whether it was there. For a slot that another flow gets.
    pub fn remove(&self, slot: usize) -> bool {
        let Some((part, word, bit)) = place(slot) else { return false };
        let words = self.parts[part].get();
        words.is_some_and(|words| words[word].fetch_and(!bit, Ordering::Relaxed) & bit != 0)
    }
}

/// Slots of a part.
fn slots_of(part: usize) -> usize {
    if part == 0 { FIRST } else { FIRST << (part - 1) }
}

/// Part, word and bit of a slot.
#[inline]
fn place(slot: usize) -> Option<(usize, usize, u64)> {
    if slot > u32::MAX as usize {
        return None;
    }
    let part = (slot / FIRST).checked_ilog2().map_or(0, |log| log as usize + 1);
    let within = if part == 0 { slot } else { slot - slots_of(part) };
    Some((part, within / BITS, 1 << (within % BITS)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_slot_has_a_place_of_its_own() {
        let mut before = None;
        for slot in 0..5 * FIRST {
            let (part, word, bit) = place(slot).unwrap();
            let here = (part, BITS * word + bit.trailing_zeros() as usize);
            assert!(before < Some(here) && here.1 < slots_of(part), "{slot}");
            before = Some(here);
        }
        let (part, word, _) = place(u32::MAX as usize).unwrap();
        assert_eq!((part, word), (PARTS - 1, slots_of(PARTS - 1) / BITS - 1));
        assert_eq!(place(1 << 32), None);
    }

    proptest! {
        #[test]
        fn it_is_a_set(
            steps in proptest::collection::vec((0usize..3, prop_oneof![0usize..200, 0usize..100_000]), 0..300),
        ) {
            let (set, mut reference) = (SlotSet::new(), BTreeSet::new());
            for (what, slot) in steps {
                match what {
                    0 => prop_assert_eq!(set.insert(slot), reference.insert(slot)),
                    1 => prop_assert_eq!(set.remove(slot), reference.remove(&slot)),
                    _ => prop_assert_eq!(set.contains(slot), reference.contains(&slot)),
                }
            }
            prop_assert!((0..100_000).all(|slot| set.contains(slot) == reference.contains(&slot)));
        }
    }

    #[test]
    fn many_threads_put_slots_in() {
        let set = SlotSet::new();
        let new: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|i| {
                    scope.spawn({
                        let set = &set;
                        move || {
                            (0..20_000).filter(|slot| set.insert((slot * 7 + i) % 20_000)).count()
                        }
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(new, 20_000, "each is new to one of them");
        assert!((0..20_000).all(|slot| set.contains(slot)) && !set.contains(20_000));
    }
}
