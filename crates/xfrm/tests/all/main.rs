//! Tests of the crate as it is used.

mod charon;
mod ip;
mod keys;
mod messages;
mod mirror;
mod random;
mod recorded;
mod recorder;
