//! Ciphers and ESP against vectors of standards, other implementations and one packet at a time.

mod batches;
#[path = "../common/mod.rs"]
mod common;
mod packets;
mod providers;
mod rsa;
mod vectors;
