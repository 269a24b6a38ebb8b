//! Configuration, RIB, rtnetlink mirror, API and metrics.
#![forbid(unsafe_code)]

pub mod api;
pub mod config;
pub mod firewall;
pub mod kernel;
pub mod metrics;
pub mod module_patterns;
pub mod module_source;
pub mod neighbour;
pub mod netlink;
pub mod rib;
