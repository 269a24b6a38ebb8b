//! What followers leave for a stage behind `flow`, chunk by chunk.
//!
//! ```text
//!  flow, in its pre_shade ─▶ followers ─▶ Calls ─▶ the stage, in its pre_shade
//!    └─ flow_call: the number of the call, by row ───────▶ what was left in that call
//! ```
//!
//! Between both a chunk may wait for a device, while `flow` looks at those behind it: what is there at last is of another chunk then.
//!
//! Threads: one worker.

use std::collections::VecDeque;
use std::sync::Arc;

/// What is left in one call.
pub trait OfCall: Default {
    /// Another call uses it.
    fn clear(&mut self);

    /// Nothing was left.
    fn is_empty(&self) -> bool;
}

/// Of several calls: the one under way, and those before it that nobody has asked for.
#[derive(Debug, Default)]
pub struct Calls<C> {
    now: (u32, C),
    before: VecDeque<(u32, C)>,
    spare: Vec<C>,
    /// The latest call that was asked for.
    asked: u32,
    asker: Asker,
}

/// Who asks. Where nobody does, nothing is kept: the pipeline has no such stage, or a reload has removed it.
#[derive(Clone, Debug, Default)]
pub struct Asker(Arc<()>);

/// Unused ones that are kept.
const SPARE_MAX: usize = 8;

impl<C: OfCall> Calls<C> {
    /// The call of this number begins; it is not 0.
    pub fn begin(&mut self, number: u32) {
        let next = (number, self.spare.pop().unwrap_or_default());
        let last = std::mem::replace(&mut self.now, next);
        match last.0 == self.asked || last.1.is_empty() || !self.is_asked() {
            true => self.keep(last.1),
            false => self.before.push_back(last),
        }
        if !self.is_asked() {
            self.before.clear();
        }
    }

    /// A stage has this one as long as it may ask.
    pub fn asker(&self) -> Asker {
        self.asker.clone()
    }

    /// Whether a stage may ask.
    pub fn is_asked(&self) -> bool {
        Arc::strong_count(&self.asker.0) > 1
    }

    /// What is left in the call under way.
    pub fn now(&mut self) -> &mut C {
        &mut self.now.1
    }

    /// A stage is at the chunk of this call. Chunks come in order: what was left in earlier ones is forgotten.
    pub fn ask(&mut self, number: u32) {
        if number == 0 {
            return;
        }
        self.asked = number;
        while let Some((_, own)) = self.before.pop_front_if(|own| is_before(own.0, number)) {
            self.keep(own);
        }
    }

    /// What was left in a call that was [asked](Self::ask) for, if anything was.
    pub fn known(&self, number: u32) -> Option<&C> {
        let all = self.before.iter().chain([&self.now]);
        { all }.find(|own| own.0 == number && number != 0).map(|own| &own.1)
    }

    /// The same for one that changes it.
    pub fn of(&mut self, number: u32) -> Option<&mut C> {
        self.ask(number);
        let all = self.before.iter_mut().chain([&mut self.now]);
        { all }.find(|own| own.0 == number && number != 0).map(|own| &mut own.1)
    }

    /// What was left in the calls behind one, in their order.
    pub fn behind(&self, number: u32) -> impl Iterator<Item = &C> {
        let all = self.before.iter().chain([&self.now]);
        all.filter(move |own| is_before(number, own.0)).map(|own| &own.1)
    }

    /// Keeps one that is not needed any more for another call.
    pub fn keep(&mut self, mut own: C) {
        if self.spare.len() < SPARE_MAX {
            own.clear();
            self.spare.push(own);
        }
    }
}

/// Numbers begin again after the last one.
fn is_before(number: u32, other: u32) -> bool {
    number.wrapping_sub(other).cast_signed() < 0
}

#[cfg(test)]
mod tests {
    use super::*;

    impl OfCall for Vec<u32> {
        fn clear(&mut self) {
            Vec::clear(self);
        }

        fn is_empty(&self) -> bool {
            Vec::is_empty(self)
        }
    }

    #[test]
    fn nothing_is_kept_for_nobody() {
        let mut calls = Calls::<Vec<u32>>::default();
        let asker = calls.asker();
        for number in 1..100_u32 {
            calls.begin(number);
            calls.now().push(number);
        }
        assert_eq!((calls.is_asked(), calls.before.len()), (true, 98));
        drop(asker);
        for number in 100..200_u32 {
            calls.begin(number);
            calls.now().push(number);
        }
        assert_eq!((calls.is_asked(), calls.before.len()), (false, 0));
    }

    /// A stage that comes later by this many calls finds what was left for each chunk, and nothing else is kept.
    #[test]
    fn stages_that_come_later() {
        for later in 0..20 {
            let mut calls = Calls::<Vec<u32>>::default();
            let _asker = calls.asker();
            let is_left = |number: u32| number % 3 != 1;
            for number in 1..100_u32 {
                calls.begin(number);
                if is_left(number) {
                    calls.now().push(number);
                }
                let Some(asked) = number.checked_sub(later).filter(|own| *own != 0) else {
                    continue;
                };
                // A chunk without rows of flows has no number, and one that a panic ended does not ask.
                if asked % 5 == 4 {
                    assert!(calls.of(0).is_none());
                    continue;
                }
                let expected = [asked].into_iter().filter(|own| is_left(*own));
                for _ in 0..2 {
                    let found = calls.of(asked).map_or(&[][..], |own| own);
                    assert!(found.iter().copied().eq(expected.clone()), "{asked} {later}");
                    let behind = (asked + 1..=number).filter(|own| is_left(*own));
                    assert!(calls.behind(asked).flatten().copied().eq(behind), "{asked} {later}");
                }
                assert!(calls.before.len() <= later as usize && calls.spare.len() <= SPARE_MAX);
            }
        }
    }
}
