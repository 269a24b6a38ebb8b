//! What the first bytes of each protocol look like.
//!
//! [`stream`] and [`datagram`] hold a table each; the order of a table is the order in which its rows are believed.

pub(crate) mod datagram;
pub(crate) mod stream;

/// Masks of signatures have a bit for each.
pub(crate) const SIGNATURES_MAX: usize = 64;
