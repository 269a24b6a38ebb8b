//! Network address translation: what a packet is translated to, and how.
//!
//! | module | holds |
//! | --- | --- |
//! | [`tuple`](mod@tuple) | both ends of a packet: addresses, ports or identifier |
//! | [`rewrite`] | addresses and ports of a packet in place, checksums updated (RFC 1624), ICMP errors with what they quote |
//! | [`rules`] | which packets are translated and to what; which worker a packet belongs to |
//! | [`ports`] | free ports of outside addresses |
//! | [`cache`] | what plain packets of sessions become, in one cache line |
//! | [`families`] | the same of sessions between IPv6 and IPv4 |
//! | [`translator`] | sessions and bindings of a worker (RFC 4787, RFC 5382, RFC 5508) |
//! | [`segment`] | what of a TCP segment matters, and which resets count |
//! | [`ftp`] | control connections of FTP, and the addresses and ports in their lines |
//! | [`edits`] | what sequence numbers become where a stream is edited |
//! | [`deterministic`] | addresses and ports of subscribers by arithmetic (RFC 7422) |
//! | [`nat64`] | IPv4 addresses in IPv6 ones (RFC 6052), headers from one family to the other (RFC 7915) |
//!
//! A *session* is a conversation, with the tuple before and behind the translator. A *binding* is an inside end (address,
//! port, protocol) with its outside end, shared by all sessions of that inside end: the mapping does not depend on the
//! remote end (RFC 4787 REQ-1).
//!
//! ```text
//!            before the translator             behind it
//!  session   192.168.1.7:4000 ─▶ 198.51.100.9:80      203.0.113.1:4000 ─▶ 198.51.100.9:80
//!  binding   192.168.1.7:4000                         203.0.113.1:4000
//! ```
//!
//! Nothing here knows stages or threads: an instance belongs to one worker, and time is given by the caller.

#![forbid(unsafe_code)]

pub mod cache;
pub mod deterministic;
pub mod edits;
pub mod families;
pub mod ftp;
pub mod nat64;
pub mod ports;
pub mod rewrite;
pub mod rules;
pub mod segment;
pub mod translator;
pub mod tuple;

pub use cache::Plain;
pub use rules::{Rule, Rules};
pub use segment::Tcp;
pub use translator::Translator;
pub use tuple::Tuple;
