//! Tests of the crate as it is used.

mod charon;
mod ip;
mod kernel;
mod keys;
mod messages;
mod mirror;
mod random;
mod recorded;
mod recorder;
