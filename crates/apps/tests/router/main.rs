//! The router's stages, run as the engine runs them.

#![allow(unreachable_pub)] // modules of a test binary

mod allocations;
mod anomalies;
mod bench;
mod checksums;
mod local;
mod neighbours;
mod promiscuous;
mod random;
mod scenario;
mod sizes;
mod twin;
