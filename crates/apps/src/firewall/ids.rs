//! Numbers of rules, and what each had counted when its rule began.
//!
//! A packet that is under way may still count for a rule that is gone, so a number rests before it is given to
//! another rule.

use std::collections::VecDeque;

use super::Hit;
use super::hits::IDS_MAX;

/// Numbers that rest.
const RESTING: usize = 4096;

/// Which numbers are free. 0 is the default's.
#[derive(Debug, Clone)]
pub(super) struct Ids {
    /// Given back, the one that has rested longest first.
    free: VecDeque<u32>,
    /// By number; one that is beyond was never given.
    base: Vec<Hit>,
}

impl Ids {
    pub(super) fn new() -> Self {
        Self { free: VecDeque::new(), base: vec![Hit::default()] }
    }

    /// A number for a rule. There are more of them than rules may be.
    pub(super) fn next(&mut self) -> u32 {
        if (self.free.len() > RESTING || self.base.len() == IDS_MAX)
            && let Some(id) = self.free.pop_front()
        {
            return id;
        }
        self.base.push(Hit::default());
        self.base.len() as u32 - 1
    }

    /// The rule of this number is gone.
    pub(super) fn give_back(&mut self, id: u32) {
        self.free.push_back(id);
    }

    /// The rule of this number begins, with `counted` on its counters.
    pub(super) fn begin(&mut self, id: u32, counted: Hit) {
        if let Some(base) = self.base.get_mut(id as usize) {
            *base = counted;
        }
    }

    pub(super) fn base(&self, id: u32) -> Hit {
        self.base.get(id as usize).copied().unwrap_or_default()
    }

    /// What the rule of this number counted, with `counted` on its counters.
    pub(super) fn since(&self, id: u32, counted: Hit) -> Hit {
        since(counted, self.base(id))
    }
}

/// What was counted since `base`.
pub(super) fn since(counted: Hit, base: Hit) -> Hit {
    let packets = counted.packets.wrapping_sub(base.packets);
    Hit {
        packets,
        bytes: counted.bytes.wrapping_sub(base.bytes),
        last_ns: if packets > 0 { counted.last_ns } else { 0 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_rest_and_counters_begin_at_zero() {
        let mut ids = Ids::new();
        let first: Vec<_> = (0..3).map(|_| ids.next()).collect();
        assert_eq!(first, [1, 2, 3]);
        ids.give_back(2);
        assert_eq!(ids.next(), 4, "2 rests");
        let many: Vec<_> = (0..RESTING).map(|_| ids.next()).collect();
        many.iter().for_each(|id| ids.give_back(*id));
        assert_eq!(ids.next(), 2, "the one that has rested longest");
        let counted = Hit { packets: 7, bytes: 700, last_ns: 5 };
        ids.begin(2, counted);
        assert_eq!(ids.since(2, counted), Hit::default());
        let more = Hit { packets: 8, bytes: 760, last_ns: 9 };
        assert_eq!(ids.since(2, more), Hit { packets: 1, bytes: 60, last_ns: 9 });
    }
}
