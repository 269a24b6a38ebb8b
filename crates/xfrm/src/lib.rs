//! Security associations and policies of the kernel: messages of NETLINK_XFRM.
//!
//! ```text
//!  wire ─▶ structs ─▶ attribute ─▶ message    Message: decode, encode
//!                       │
//!                   algorithm                 Keys: the suite of `crypto` that algorithms make
//!
//!  messages ─▶ mirror ─▶ Change: associations and policies added, replaced, removed (types)
//!  Counters, limits, packets without association ─▶ write_back ─▶ messages
//! ```
//!
//! [`reference::Kernel`] is the other end, in plain form: it answers and announces as the kernel does, for tests.
//!
//! [`Follower`] is a thread with the sockets, of `control::netlink`; all else knows bytes only.
#![forbid(unsafe_code)]

mod algorithm;
mod attribute;
mod follow;
mod message;
mod mirror;
pub mod reference;
pub mod structs;
mod types;
mod wire;
mod write_back;

pub use algorithm::{Algorithm, AlgorithmName, Keys, NAME_LEN, Unusable};
pub use attribute::Attribute;
pub use follow::{Follower, FollowerStats, Options};
pub use message::{Body, DecodeError, Kind, Message, NETLINK_XFRM, group};
pub use mirror::{Bounds, Change, Mirror, MirrorStats};
pub use types::{
    Association, AssociationId, Counters, Direction, Mode, Policy, PolicyDirection, PolicyId,
    Selector, Start, Template, Udp,
};
pub use wire::{AF_INET, AF_INET6, Address, Port, Spi, family};
pub use write_back::{acquire, counters, expire, expire_policy, mapping};

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
