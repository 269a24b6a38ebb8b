//! Exact match: a cuckoo hash table of two buckets for each key (CuckooSwitch: Zhou, Fan, Lim, Kaminsky and
//! Andersen, "Scalable, High Performance Ethernet Forwarding with CuckooSwitch", CoNEXT 2013).
//!
//! A switch asks for each frame which of a million addresses this is. A chained or probing table has long walks
//! where it is full; a cuckoo table has none: a key is in one of two lines of memory, or nowhere, and yet
//! 90 % of the ways are in use.
//!
//! ```text
//!            ┌ upper half of the hash ─▶ bucket 3   [ a │ b │ c │ d ]  full
//!  key x ────┤                                        │ b's other bucket
//!            └ lower half ────────────▶ bucket 8   [ e │ f │ g │ h ]  full
//!                                                     ▼
//!                                       bucket 5   [ i │ – │ – │ – ]  b moves here, then x takes its place
//! ```
//!
//! - *Insert* looks for the shortest path of moves by breadth first (CuckooSwitch §4.3) and does the last move
//!   first, so that an entry is written to its new place before it is gone from the old one. Patches keep that
//!   order.
//! - What finds no path goes to a *stash* of a few lines, which a lookup reads only when there is something in
//!   it and the buckets gave nothing.
//! - A table that becomes full, or whose stash fills, is *built anew aside*, larger or with another seed, in
//!   bounded steps ([`CuckooBuilder::step`]), while the old one serves and takes changes; one
//!   [`Patch::Replace`](crate::Patch::Replace) ends it. No entry is ever missing and no lookup waits.
//! - At its limit the table answers [`TableError::Full`](crate::TableError::Full) and keeps what it holds.
//!
//! Lookups are written once, as [`Cuckoo::find`]; what runs them, and which is best, is in [`Cuckoo`]'s
//! methods.
//!
//! Thread rule: the builder belongs to the control thread; a view is `Copy` and read-only, over a blob that
//! [`versions`](crate::versions) keeps from changing.

mod builder;
mod layout;
mod table;
mod view;

pub use builder::{CuckooBuilder, Limits};
pub use layout::CuckooKey;
pub use view::Cuckoo;
