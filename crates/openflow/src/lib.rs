//! OpenFlow 1.0 and 1.3.
//!
//! | module | holds |
//! | --- | --- |
//! | [`field`], [`mod@matches`], [`action`] | what flows match, what they do |
//! | [`monitor`] | subscriptions of changes of flows |
//! | [`flow`], [`group`], [`port`], [`table`] | what a switch has: flows, groups and meters, ports and queues, tables |
//! | [`wire`] | messages to bytes and back |
//! | [`syntax`] | the flow syntax of ovs-ofctl |
//! | [`agent`] | what a switch says to its controllers, over the trait [`Switch`] |
//! | [`serve`] | sockets and threads for an agent |
//! | [`message`], [`error`] | what controller and switch say to each other |
//!
//! The types are those of 1.3; what 1.0 says in another way is mapped onto them. Nothing but [`serve`] knows sockets or
//! threads, and time is given by the caller.

#![forbid(unsafe_code)]

pub mod action;
pub mod agent;
mod bits;
pub mod error;
pub mod field;
pub mod flow;
pub mod group;
pub mod matches;
pub mod message;
pub mod monitor;
pub mod port;
pub mod serve;
pub mod syntax;
pub mod table;
pub mod wire;

pub use action::{Action, Instruction};
pub use agent::{Agent, Switch};
pub use error::{ErrorCode, Version};
pub use field::Field;
pub use flow::{FlowCommand, FlowFlags, FlowMod};
pub use group::{GroupMod, GroupType, MeterMod};
pub use matches::{FieldMatch, Match};
pub use message::{Body, Message};
pub use port::{PortDesc, PortNo};
pub use syntax::Syntax;
pub use wire::{Extensions, Header, Unencodable, decode, decode_with, encode, encode_with};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
