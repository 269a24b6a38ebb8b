//! Launches that belong together: selecting rows and sorting them.
//!
//! A plan says which kernels to launch, in order, in one queue, and what room they need in the memory
//! that they get as `state`. Offsets there are in words of 4 bytes.

use crate::Launch;

/// Rows on their way of one context: the kernels of `select`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectPlan {
    /// In order.
    pub launches: [Launch; 3],
    /// Bytes of the state.
    pub state_bytes: usize,
}

impl SelectPlan {
    /// Where the number of rows stands.
    pub const COUNT_WORD: usize = 0;
    /// Where the rows stand.
    pub const LIST_WORD: usize = 16;
    /// Rows of every context.
    pub const ALL: u32 = u32::MAX;

    /// For a launch over `rows` rows, in groups of the size that the program was built with.
    ///
    /// # Panics
    /// If there are 2^31 rows or more.
    pub fn new(rows: usize, context: u32, group_items: u32) -> Self {
        let groups = groups(rows, group_items as usize);
        let launch = |kernel, groups| Launch { kernel, groups, items: group_items, job: context };
        Self {
            launches: [
                launch("select_count", groups),
                launch("select_scan", 1),
                launch("select_write", groups),
            ],
            state_bytes: 4 * (Self::LIST_WORD + rows.next_multiple_of(16) + groups as usize),
        }
    }
}

/// Row numbers by (protocol, context key, length): the kernels of `sort` (GASPP §5.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortPlan {
    /// In order.
    pub launches: Vec<Launch>,
    /// Bytes of the state. The sorted rows stand at its start.
    pub state_bytes: usize,
}

impl SortPlan {
    const RUN: usize = 8;
    const DIGIT_BITS: u32 = 4;
    const DIGITS: usize = 1 << Self::DIGIT_BITS;
    const FROM_OTHER: u32 = 0x100;

    /// For a launch over `rows` rows of which all context keys are below 2^`context_bits`, in groups of the
    /// size that the program was built with, at least 16. Fewer context bits are fewer launches: three for
    /// each four.
    ///
    /// # Panics
    /// If there are 2^31 rows or more.
    pub fn new(rows: usize, context_bits: u32, group_items: u32) -> Self {
        let launch = |kernel, groups, job| Launch { kernel, groups, items: group_items, job };
        let digits = |low: u32, bits: u32| (low..low + bits).step_by(Self::DIGIT_BITS as usize);
        // The key's fields, lowest first: length, context, protocol.
        let shifts: Vec<u32> =
            digits(0, 16).chain(digits(16, context_bits.min(32))).chain(digits(48, 8)).collect();
        let tiles = groups(rows, group_items as usize * Self::RUN);
        // Each pass goes from one half to the other, and the last one ends in the first.
        let half = |pass: usize| {
            if (shifts.len() - pass).is_multiple_of(2) { 0 } else { Self::FROM_OTHER }
        };
        let mut launches = vec![launch("sort_keys", groups(rows, group_items as usize), half(0))];
        for (pass, shift) in shifts.iter().enumerate() {
            let job = shift | half(pass);
            launches.push(launch("sort_count", tiles, job));
            launches.push(launch("sort_scan", 1, job));
            launches.push(launch("sort_scatter", tiles, job));
        }
        let words = 6 * rows.next_multiple_of(16) + Self::DIGITS * tiles as usize;
        Self { launches, state_bytes: 4 * words }
    }
}

fn groups(rows: usize, each: usize) -> u32 {
    assert!(rows < 1 << 31, "rows are numbered with 32 bits");
    rows.div_ceil(each).max(1) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sort_ends_where_its_result_is_looked_for() {
        for context_bits in [0, 4, 8, 9, 32] {
            let plan = SortPlan::new(5000, context_bits, 64);
            let last = plan.launches.last().unwrap();
            assert_eq!(last.kernel, "sort_scatter");
            assert_eq!(last.job, 52 | SortPlan::FROM_OTHER, "from the other half to the first");
            let passes = (plan.launches.len() - 1) / 3;
            assert_eq!(passes as u32, 4 + context_bits.div_ceil(4) + 2);
            assert_eq!(plan.launches[1].job & SortPlan::FROM_OTHER, plan.launches[0].job);
        }
        assert_eq!(SortPlan::new(5000, 0, 64).launches[1].groups, 10);
    }

    #[test]
    fn no_rows_are_one_group() {
        let plan = SelectPlan::new(0, SelectPlan::ALL, 128);
        assert!(plan.launches.iter().all(|launch| launch.groups == 1 && launch.items == 128));
        assert_eq!(plan.state_bytes, 68);
    }
}
