//! What the stage's device form adds to the columns of the pipeline that it stands in.
//!
//! ```text
//!  verdict, context │ the router's or the switch's │ family │ head0 head1 head2 │ rule
//!                                                    └── the CPU writes ──────┘  └ the device writes
//! ```
//!
//! A pipeline whose firewall stays on the CPU has none of them.

use chunk::{ColumnDesc, ColumnId, ColumnSet, Columns, Layout, joined, joined_id};
use kernels::FilterColumns;

use super::stage::Place;
use crate::router::RouterColumns;
use crate::switch::SwitchColumns;

/// Columns that the stage adds: all but verdict and context.
const ADDED: usize = FilterColumns::COLUMNS.len() - 2;

static ROUTER: [ColumnDesc; RouterColumns::COLUMNS.len() + ADDED] =
    joined(RouterColumns::COLUMNS, FilterColumns::COLUMNS);

static SWITCH: [ColumnDesc; SwitchColumns::COLUMNS.len() + ADDED] =
    joined(SwitchColumns::COLUMNS, FilterColumns::COLUMNS);

impl Place {
    /// The columns of the pipeline itself.
    const fn own(self) -> &'static [ColumnDesc] {
        match self {
            Place::Router => RouterColumns::COLUMNS,
            Place::Switch => SwitchColumns::COLUMNS,
        }
    }

    /// The columns of a pipeline whose firewall has its device form, for so many rows.
    pub fn layout(self, capacity: usize) -> Layout {
        let all: &'static [ColumnDesc] = match self {
            Place::Router => &ROUTER,
            Place::Switch => &SWITCH,
        };
        Layout::of_both(all, [self.own(), FilterColumns::COLUMNS], capacity)
    }

    /// What the device form reads.
    pub(super) const fn reads(self) -> ColumnSet {
        ColumnSet::of(&[
            self.id(FilterColumns::FILTER_FAMILY),
            self.id(FilterColumns::FILTER_HEAD0),
            self.id(FilterColumns::FILTER_HEAD1),
            self.id(FilterColumns::FILTER_HEAD2),
        ])
    }

    /// What it writes.
    pub(super) const fn writes(self) -> ColumnSet {
        ColumnSet::of(&[self.id(FilterColumns::FILTER_RULE)])
    }

    const fn id(self, added: ColumnId) -> ColumnId {
        joined_id(self.own(), added)
    }
}

/// Words of a header as they stand in a column.
#[inline]
pub(super) const fn column(words: [u32; 4]) -> [u64; 2] {
    let [a, b, c, d] = words;
    [(b as u64) << 32 | a as u64, (d as u64) << 32 | c as u64]
}

/// The words of a column.
#[inline]
pub(super) const fn words(column: [u64; 2]) -> [u32; 4] {
    let [low, high] = column;
    [low as u32, (low >> 32) as u32, high as u32, (high >> 32) as u32]
}
