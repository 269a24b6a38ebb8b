//! Security associations and policies of the kernel: messages of NETLINK_XFRM.
//!
//! ```text
//!  wire ─▶ structs ─▶ attribute ─▶ message    Message: decode, encode
//!                       │
//!                   algorithm                 Keys: the suite of `crypto` that algorithms make
//! ```
//!
//! Nothing here opens sockets.
#![forbid(unsafe_code)]

mod algorithm;
mod attribute;
mod message;
pub mod structs;
mod wire;

pub use algorithm::{Algorithm, AlgorithmName, Keys, NAME_LEN, Unusable};
pub use attribute::Attribute;
pub use message::{Body, DecodeError, Kind, Message, NETLINK_XFRM, group};
pub use wire::{AF_INET, AF_INET6, Address, Port, Spi, family};

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
