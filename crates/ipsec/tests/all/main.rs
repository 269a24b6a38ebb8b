//! Tests of the crate, as one program.

mod associations;
mod packets;
mod policies;
