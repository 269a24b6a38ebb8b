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
    /// Place of the number of rows.
    pub const COUNT_WORD: usize = 0;
    /// Place of the rows.
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
    /// Bytes of the state. The sorted rows are at its start.
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

/// Row numbers by keys of up to 64 bits, in an area of a job: the kernels of `order`, behind one that puts the keys.
///
/// In the area the sorted rows are first. The job numbers of all launches name the area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderPlan {
    area: u32,
    passes: u32,
}

impl OrderPlan {
    /// Rows of a group of the kernels `order_count` and `order_scatter`, for each of its items.
    pub const ROWS_PER_ITEM: u32 = SortPlan::RUN as u32;

    /// For keys below 2^`bits`, in the area of this number.
    ///
    /// # Panics
    /// If `bits` are more than 64 or the area's number more than 16 bits.
    pub fn new(area: usize, bits: u32) -> Self {
        assert!(bits <= 64 && area < 1 << 16, "{bits} bits, area {area}");
        Self { area: area as u32, passes: bits.div_ceil(SortPlan::DIGIT_BITS) }
    }

    /// The job number of the kernel that puts keys and rows.
    pub fn keys_job(&self) -> u32 {
        self.area << 16 | self.half(0)
    }

    /// The other launches, in order: kernel and job number. `order_scan` is one group, the others have groups of
    /// [`OrderPlan::ROWS_PER_ITEM`] rows to an item.
    pub fn launches(&self) -> impl Iterator<Item = (&'static str, u32)> + '_ {
        (0..self.passes).flat_map(|pass| {
            let job = self.area << 16 | self.half(pass) | (pass * SortPlan::DIGIT_BITS);
            ["order_count", "order_scan", "order_scatter"].map(|kernel| (kernel, job))
        })
    }

    /// Bytes of the area for `rows` rows: so many, and so many for each row.
    pub const AREA_BYTES: (usize, usize) = {
        // Rows rounded up to 16; one tile, and for groups of at least 16 items half a word of counts for each row.
        (6 * 16 * 4 + 4 * SortPlan::DIGITS, 6 * 4 + 4 * SortPlan::DIGITS / (16 * SortPlan::RUN) + 1)
    };

    /// Each pass goes from one half to the other, and the last one ends in the first.
    fn half(&self, pass: u32) -> u32 {
        if (self.passes - pass).is_multiple_of(2) { 0 } else { SortPlan::FROM_OTHER }
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
    fn an_order_ends_in_the_first_half_and_fits_its_area() {
        for bits in [0, 1, 4, 5, 40, 64] {
            let plan = OrderPlan::new(3, bits);
            let launches: Vec<_> = plan.launches().collect();
            assert_eq!(launches.len() as u32, 3 * bits.div_ceil(4));
            assert!(launches.iter().all(|(_, job)| job >> 16 == 3));
            match launches.last() {
                Some((_, job)) => {
                    assert_eq!(job & 0xffff, ((bits - 1) / 4 * 4) | SortPlan::FROM_OTHER);
                    assert_eq!(plan.keys_job() & 0xff, 0);
                    assert_eq!(plan.keys_job() & 0x100, launches[0].1 & 0x100);
                }
                None => assert_eq!(plan.keys_job(), 3 << 16),
            }
        }
        for rows in [0usize, 1, 15, 16, 127, 128, 129, 5000] {
            let (fixed, per_row) = OrderPlan::AREA_BYTES;
            let capacity = fixed + per_row * rows;
            for items in [16, 64, 256] {
                assert!(SortPlan::new(rows, 0, items).state_bytes <= capacity, "{rows} rows");
            }
        }
    }

    #[test]
    fn no_rows_are_one_group() {
        let plan = SelectPlan::new(0, SelectPlan::ALL, 128);
        assert!(plan.launches.iter().all(|launch| launch.groups == 1 && launch.items == 128));
        assert_eq!(plan.state_bytes, 68);
    }
}
