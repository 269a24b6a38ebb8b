//! The OpenCL driver on PoCL, which runs kernels on the CPU.

mod accelerator;
mod cache;
mod driver;
mod failures;
mod fixture;
mod landing;
mod measure;
#[path = "../common/packets.rs"]
mod packets;
mod parts;
mod payload;
