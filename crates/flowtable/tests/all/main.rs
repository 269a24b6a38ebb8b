//! Tests of the crate as its users see it.
#![allow(unreachable_pub)] // modules of a test

mod compare;
mod control;
mod differential;
mod firsts;
mod generate;
mod index;
mod known;
mod masks;
mod networks;
mod ovs;
mod queues;
mod random;
mod replace;
mod ryu;
mod world;
