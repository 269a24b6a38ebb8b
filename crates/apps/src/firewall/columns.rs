//! What the stage's device form adds to the columns of the pipeline that it stands in.
//!
//! ```text
//!  verdict, context │ the router's or the switch's │ family │ head0 head1 head2 │ rule
//!                                                    └── the CPU writes ──────┘  └ the device writes
//! ```
//!
//! A pipeline whose firewall stays on the CPU has none of them.

use chunk::{Columns, Declaration};
use kernels::FilterColumns;

use super::stage::Place;
use crate::router::RouterColumns;
use crate::switch::SwitchColumns;

impl Place {
    /// The columns that the stage needs on the CPU: those of the pipeline itself.
    pub const fn columns(self) -> &'static [Declaration] {
        match self {
            Place::Router => &[RouterColumns::COLUMNS],
            Place::Switch => &[SwitchColumns::COLUMNS],
        }
    }

    /// The columns that its device form needs.
    pub const fn columns_for_device(self) -> &'static [Declaration] {
        match self {
            Place::Router => &[RouterColumns::COLUMNS, FilterColumns::COLUMNS],
            Place::Switch => &[SwitchColumns::COLUMNS, FilterColumns::COLUMNS],
        }
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
