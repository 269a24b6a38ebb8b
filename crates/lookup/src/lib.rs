//! Longest-prefix match, exact match and versions of tables.
//!
//! A router asks one question per packet: which of a million prefixes that cover this address is
//! the longest? This crate answers it in batches: slices of keys in, slices of next-hop numbers
//! out. It sees no sockets and no packets.
//!
//! ```text
//!  routes file ─┐
//!  control ─────┴→ Rib ─→ builder of one table ─→ Blob, later Patch lists
//!                                                  │ versions: two copies, left-right
//!                                                  ▼
//!                                       view: lookup(keys, out)
//! ```
//!
//! - [`rib`]: the set of prefixes, mutable, on the control side.
//! - [`dir24_8`] and [`poptrie`] (IPv4), [`bspl`] and [`mtrie6`] (IPv6): builders that freeze a
//!   [`rib::Rib`] into a pointer-free [`blob::Blob`] and turn each later change into
//!   [`blob::Patch`]es; views that look up in it, in the forms of the crate `interleave` and, where
//!   the processor has them, with vectors.
//! - [`trie`]: the reference that all are tested against.
//! - [`cuckoo`]: exact match of keys of 8 and 16 bytes, with its builder.
//! - [`bridge`]: all tables of a layer-2 switch, and the station table that control keeps.
//! - [`versions`]: readers never block, writers publish a patch list as a whole.
//! - [`routes`]: reads prefixes and next hops from text.
//!
//! Thread rule: builders belong to one control thread; views are `Copy` and read-only; the only
//! meeting point of the two sides is [`versions`].
//!
//! Unsafe code is in marked leaves: `blob` (memory mapping), `versions` (the two copies),
//! and `arch` and the `avx512` modules (prefetch and vector gathers).

mod address;
mod arch;
pub mod auto4;
pub mod blob;
pub mod bridge;
pub mod bspl;
pub mod cuckoo;
pub mod dir24_8;
pub mod fib;
pub mod mtrie6;
pub mod names;
pub mod poptrie;
pub mod rib;
pub mod routes;
mod shadow;
pub mod trie;
pub mod versions;

pub use address::{Address, Key6, Prefix, PrefixError};
pub use arch::gathers_are_quick;
pub use blob::{Blob, Patch};

/// Number of a next hop, below 2^31; [`NO_ROUTE`] is a miss. What a number stands for (an adjacency,
/// an equal-cost group, a blackhole) is the caller's.
pub type NextHopId = u32;

/// The answer for a key that no prefix covers.
pub const NO_ROUTE: NextHopId = 0;

/// The largest next-hop number: bit 31 marks an extension in the tables.
pub const NEXT_HOP_MAX: NextHopId = (1 << 31) - 1;

/// Longest-prefix match over a batch, implemented by every table of this crate.
///
/// Keys are `u32` (IPv4, host order) or [`Key6`] (IPv6).
pub trait Lpm<K> {
    /// Writes the next hop of `keys[i]`, or [`NO_ROUTE`], to `out[i]`.
    ///
    /// # Panics
    /// When the slices differ in length.
    fn lookup(&self, keys: &[K], out: &mut [NextHopId]);
}

/// Why a table refused a change. The table is as it was before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// The next hop is [`NO_ROUTE`] or above [`NEXT_HOP_MAX`].
    #[error("next hop {0} is outside 1..=2147483647")]
    NextHop(NextHopId),
    /// The value is the one that stands for a miss.
    #[error("this value marks an absent key and cannot be stored")]
    Reserved,
    /// The table has no room.
    #[error("the table is full: {used} of {limit} {what} in use")]
    Full {
        /// What ran out.
        what: &'static str,
        /// How many are in use.
        used: u32,
        /// How many there may be.
        limit: u32,
    },
    /// The system gave no memory.
    #[error("no memory for a table of {bytes} bytes: {reason}")]
    Memory {
        /// Size asked for.
        bytes: usize,
        /// What the system said.
        reason: String,
    },
    /// One of several tables refused.
    #[error("{table}: {error}")]
    Of {
        /// Which one.
        table: &'static str,
        /// What it said.
        error: Box<TableError>,
    },
}

pub(crate) fn check_next_hop(next_hop: NextHopId) -> Result<(), TableError> {
    if next_hop == NO_ROUTE || next_hop > NEXT_HOP_MAX {
        return Err(TableError::NextHop(next_hop));
    }
    Ok(())
}
