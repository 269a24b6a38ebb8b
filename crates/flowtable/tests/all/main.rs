//! Tests of the crate as its users see it.
#![allow(unreachable_pub)] // modules of a test

mod control;
mod differential;
mod generate;
mod networks;
mod ovs;
mod queues;
mod random;
mod replace;
mod ryu;
mod world;
