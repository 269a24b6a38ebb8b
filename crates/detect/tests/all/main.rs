//! Tests of the crate as it is used.

mod bed;
mod verify;
mod yaml;
