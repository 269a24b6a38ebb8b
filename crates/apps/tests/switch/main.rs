//! The switch's stages, run as the engine runs them, against the plain switch.

#![allow(unreachable_pub)] // modules of a test binary

mod bench;
mod learning;
mod storm;
mod twin;
