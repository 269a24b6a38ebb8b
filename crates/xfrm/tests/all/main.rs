//! Tests of the crate as it is used.

mod keys;
mod messages;
mod mirror;
mod random;
mod recorded;
