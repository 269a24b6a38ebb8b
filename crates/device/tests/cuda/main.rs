//! The CUDA driver on a library that plays a device (`fake/libcuda.rs`): no GPU is needed to prove which
//! calls are made, with what, in which order, and what becomes of their codes.

#[path = "../common/mod.rs"]
mod common;
mod compiled;
mod driver;
mod fixture;
