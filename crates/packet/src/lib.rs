//! Wire formats, checksums and flow keys.
//!
//! Every parser here follows two rules. A header is checked once: `new_checked` returns `None` for
//! bytes that do not hold it, and no accessor of the view it returns can fail. Bad bytes are never
//! an error: [`decode::decode`] names the first thing wrong with a frame as an
//! [`decode::Anomaly`], which the router counts as a drop reason.
//!
//! * [`decode`](mod@decode): one pass over a frame, the router's parser. Everything else is off the hot path
//!   or works on single fields.
//! * [`ethernet`], [`vlan`], [`arp`], [`ipv4`], [`ipv6`], [`icmpv4`], [`icmpv6`], [`nd`],
//!   [`tcp`], [`udp`], [`esp`]: views over bytes, and headers that are emitted into bytes.
//! * [`ndn`]: Interest and Data, their names, and the link packets around them.
//! * [`checksum`], [`flow`], [`icmp_error`], [`fragment`], [`filter`].
//!
//! Nothing here allocates except [`filter::Filter::parse`] and what makes [`ndn`] names and packets; nothing is shared between threads.
#![forbid(unsafe_code)]

mod addr;
mod anomaly;
pub mod arp;
mod bytes;
pub mod checksum;
pub mod decode;
mod decoded;
pub mod esp;
pub mod ethernet;
pub mod filter;
pub mod flow;
pub mod fragment;
pub mod icmp_error;
pub mod icmpv4;
pub mod icmpv6;
pub mod ipv4;
pub mod ipv6;
pub mod nd;
pub mod ndn;
pub mod reasons;
pub mod tcp;
pub mod tcp_reset;
mod types;
pub mod udp;
pub mod vlan;

pub use addr::{MacAddr, ParseMacError};
pub use decode::{Anomaly, Decoded, Kind, MacClass, decode, decode_into};
pub use types::{EtherType, IpProtocol};
