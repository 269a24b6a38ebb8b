//! The kernel beside the router: mirrored, adjusted, and kept off the wire.
//!
//! Each physical port has a TAP twin in the kernel. The twin carries the port's MAC, MTU,
//! addresses and routes; iproute2, FRR and BIRD act on it unmodified. This module
//!
//! - [`Mirror`]: turns the kernel's links, addresses, neighbours, next-hop objects and routes
//!   into a stream of [`Event`]s;
//! - [`links`]: reads and sets interfaces;
//! - [`offloads`]: switches off offloads that hand us frames no wire would carry;
//! - [`twin`]: makes the kernel a router on a twin;
//! - [`close`]: keeps the kernel from answering on the physical port;
//! - [`listeners`]: waits until routing daemons have read what the kernel announced.
//!
//! All of it acts in the network namespace of the calling thread.

pub mod close;
mod decode;
mod event;
mod fib;
pub mod links;
pub mod listeners;
mod mirror;
mod model;
pub mod neighbours;
pub mod offloads;
pub mod twin;

pub use event::{Event, Leg, Link, NeighbourState, NextHop, Route, Target};
pub use mirror::{Mirror, Options, Stats};
