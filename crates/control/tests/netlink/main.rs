//! The kernel mirror and its helpers against a real kernel, in namespaces of their own.
//!
//! iproute2 acts and iproute2 judges: what the mirror told must equal `ip -json`.

mod close;
mod frr;
mod links;
mod mirror;
mod namespace;
mod world;
