//! A small synchronous netlink client.
//!
//! Control talks to the kernel rarely and waits for each answer, so it needs
//! neither an executor nor a crate built around one. Two sockets do all:
//!
//! - a [`Client`] sends a request and waits for its acknowledgement, its one
//!   answer, or the end of its dump; refusals carry the kernel's extended
//!   acknowledgement, so that the user reads a sentence instead of a number;
//! - a [`Listener`] joins multicast groups and hands over datagrams, and says
//!   when the kernel dropped some ([`Received::Overrun`]).
//!
//! Links, addresses, neighbours and routes are decoded by
//! `netlink-packet-route`; next-hop objects, which it does not know, by
//! [`nexthop`].
//!
//! Threads: each socket belongs to one thread at a time (`Send`, not shared).
//! A socket stays in the network namespace of the thread that opened it.

mod attributes;
mod error;
pub mod nexthop;
mod socket;

pub use attributes::{Attributes, attributes};
pub use error::Error;
pub use socket::{Client, DumpEnd, Listener, Message, Messages, Received, emit};

/// Message types of rtnetlink (`linux/rtnetlink.h`) that this crate sends or reads.
pub mod rtm {
    #![allow(missing_docs, reason = "the kernel's own names")]
    pub const NEWLINK: u16 = 16;
    pub const DELLINK: u16 = 17;
    pub const GETLINK: u16 = 18;
    pub const SETLINK: u16 = 19;
    pub const NEWADDR: u16 = 20;
    pub const DELADDR: u16 = 21;
    pub const GETADDR: u16 = 22;
    pub const NEWROUTE: u16 = 24;
    pub const DELROUTE: u16 = 25;
    pub const GETROUTE: u16 = 26;
    pub const NEWNEIGH: u16 = 28;
    pub const DELNEIGH: u16 = 29;
    pub const GETNEIGH: u16 = 30;
    pub const NEWNEXTHOP: u16 = 104;
    pub const DELNEXTHOP: u16 = 105;
    pub const GETNEXTHOP: u16 = 106;
}

/// Multicast groups of rtnetlink (`enum rtnetlink_groups`).
pub mod group {
    #![allow(missing_docs, reason = "the kernel's own names")]
    pub const LINK: u32 = 1;
    pub const NEIGH: u32 = 3;
    pub const IPV4_IFADDR: u32 = 5;
    pub const IPV4_ROUTE: u32 = 7;
    pub const IPV6_IFADDR: u32 = 9;
    pub const IPV6_ROUTE: u32 = 11;
    pub const NEXTHOP: u32 = 32;
}
