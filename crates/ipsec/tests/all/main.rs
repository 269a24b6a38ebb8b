//! Tests of the crate, as one program.

mod associations;
mod captures;
mod packets;
mod paths;
mod policies;
