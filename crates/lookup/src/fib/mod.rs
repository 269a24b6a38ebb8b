//! The forwarding information base: all tables of a router, seen as one version.
//!
//! Longest-prefix match gives the number of a *next hop*; the record of that number says what to do:
//!
//! ```text
//!  address ─▶ Poptrie or DIR-24-8; multibit trie or binary search on lengths
//!          ─▶ NextHop ┬ adjacency ─▶ Adjacency (rewrite, port)
//!                     ├ group ─▶ members by flow hash ─▶ Adjacency
//!                     ├ connected ─▶ neighbour still to be found
//!                     └ local, blackhole, unreachable, no route
//!  (port, tags) ─▶ Interface (addresses, MAC, MTU, checks)
//! ```
//!
//! Adjacencies are numbers, not pointers: a neighbour that changes its MAC is one record changed,
//! however many routes lead there (the idea of VPP's adjacencies).
//!
//! Threads: the data side reads a pinned version; only `FibBuilder`'s patches change one.

mod adjacency;
mod builder;
mod choice;
mod family;
mod group;
mod hops;
pub mod image;
mod own;
mod records;
mod tables;
#[cfg(test)]
mod tests;

pub use builder::{Family, FibBuilder};
pub use choice::{RouteTables, V4Table, V6Table};
pub use group::{GROUP_MEMBERS, GROUP_PATHS_MAX};
pub use hops::{Path, RouteTarget};
pub use own::OwnAddresses;
pub use records::{
    Adjacency, Interface, NeighbourEvent, NextHop, NextHopKind, Options, ReversePath,
};
pub use tables::{Fib, FibPatch, Resolved};
