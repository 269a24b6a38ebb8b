//! Which tables hold the routes.

use super::builder::Family;
use crate::{auto4, dir24_8, mtrie6, poptrie};

/// The table of each family, and how large it may grow.
#[derive(Debug, Clone, Copy, Default)]
pub struct RouteTables {
    /// For IPv4.
    pub v4: V4Table,
    /// For IPv6.
    pub v6: V6Table,
}

/// A table of IPv4 routes.
#[derive(Debug, Clone, Copy)]
pub enum V4Table {
    /// The quicker of the two for the routes there are: [`auto4`].
    Auto(auto4::Limits),
    /// One access, rarely two, in 64 MB: [`dir24_8`].
    Dir24_8(dir24_8::Limits),
    /// Two accesses, rarely three, in 1 MB and what the routes need: 6 MB for the full table, and 1 KB for each /24
    /// that has longer routes: [`poptrie`].
    Poptrie(poptrie::Limits),
}

/// A table of IPv6 routes.
#[derive(Debug, Clone, Copy)]
pub enum V6Table {
    /// Binary search on prefix lengths: [`bspl`](crate::bspl).
    Bspl,
    /// A multibit trie with buckets: [`mtrie6`].
    Mtrie6(mtrie6::Limits),
}

impl RouteTables {
    /// The table of a family, for messages.
    pub(super) fn name<A: Family>(&self) -> &'static str {
        match (A::V4, self.v4, self.v6) {
            (true, V4Table::Auto(_), _) => "IPv4, table auto",
            (true, V4Table::Dir24_8(_), _) => "IPv4, table dir24-8",
            (true, V4Table::Poptrie(_), _) => "IPv4, table poptrie",
            (false, _, V6Table::Bspl) => "IPv6, table bspl",
            (false, _, V6Table::Mtrie6(_)) => "IPv6, table mtrie6",
        }
    }
}

impl Default for V4Table {
    fn default() -> Self {
        Self::Auto(auto4::Limits::default())
    }
}

/// The quickest in `shadeline bench lpm6`, over the full table and over 200,000 random routes.
impl Default for V6Table {
    fn default() -> Self {
        Self::Mtrie6(mtrie6::Limits::default())
    }
}

/// DIR-24-8 of this size, and binary search on lengths.
impl From<dir24_8::Limits> for RouteTables {
    fn from(limits: dir24_8::Limits) -> Self {
        Self { v4: V4Table::Dir24_8(limits), v6: V6Table::Bspl }
    }
}
