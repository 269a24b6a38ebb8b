//! The kernel mirror and its helpers against a real kernel, in namespaces of their own.
//!
//! iproute2 makes the changes and is the reference: what the mirror reports must equal `ip -json`.

mod close;
mod frr;
mod links;
mod listeners;
mod mirror;
mod namespace;
mod world;
