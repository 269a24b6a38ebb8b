//! Tests of the crate as it is used.

mod keys;
mod messages;
mod random;
mod recorded;
