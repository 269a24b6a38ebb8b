//! Finding neighbours: ARP (RFC 826) and neighbour discovery (RFC 4861 section 7).
//!
//! One resolver for all interfaces, apart from the packets' way. It is a pure state machine:
//! events and the time go in, frames to send and neighbours that became known or unknown come out.
//! It has no clock, no socket and no thread, so that tests replay loss and reordering exactly.
//!
//! ```text
//!               Wanted                 no answer: 3 requests
//!     (none) ───────────▶ incomplete ─────────────────────────▶ failed ──3 s──▶ (none)
//!        │                    │ answer                            │ answer
//!        │ it asks us         ▼        30 s         no answer:    ▼
//!        │                reachable ──────────▶ probe ──3 probes──▶ (none), unknown
//!        └──▶ stale ──5 s──▶──────────────────▶ ▲ │
//!               ▲                                 │ answer: reachable
//!               └── another MAC, or a mere mention of what was incomplete
//! ```
//!
//! Where it differs from the RFCs: the data path does not report the use of a known neighbour, so that
//! `reachable` is followed by `probe` at once (a unicast question each half minute) unless
//! [`Settings::assume_used`] is off; then only a neighbour that was wanted since is probed and
//! the others are forgotten after [`Settings::stale_ns`].
//!
//! What a neighbour says unasked is believed in this measure: an answer or a mention changes an
//! entry that exists; it makes a new one only if the sender asks for an address of ours (RFC 826
//! "merge", RFC 4861 section 7.2.3). Addresses outside the interface's subnets are ignored unless
//! they were wanted (on-link gateways), link-local ones excepted. The table is bounded: the oldest
//! failed, then incomplete, then stale, then other entry makes room.
//!
//! Thread rule: one owner, the control thread.

mod frames;
mod resolver;
mod row;
mod table;

#[cfg(test)]
mod tests;

pub use frames::announcement;
pub use resolver::{
    NeighbourChange, NeighbourCounters, NeighbourView, Output, Permanent, Resolver, Settings,
};
pub use row::NeighbourRow;
pub use table::NeighbourState;
