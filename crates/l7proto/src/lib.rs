//! Application protocols: which one a flow speaks, from its first bytes in both directions, and what its first messages
//! say.
//!
//! ```text
//!  first bytes of both sides ─▶ Identifier (64 bytes a flow, no allocation)
//!                                 │  signatures::stream, signatures::datagram: a table each
//!                                 ▼
//!                               Answer: NotYet, Likely(Label), Known(Label), Unknown
//!
//!  bytes of one side ─▶ http1::Head       places of method, target, Host, …
//!                       tls::HelloReader  ClientHello, ServerHello: name, ALPN, versions, JA3, JA3S, JA4
//!  datagrams ─────────▶ quic::InitialReader   the same hellos
//!                       dns::Message      questions, records, names
//!  lines ─────────────▶ lines::Lines      banners of SSH; replies and commands of SMTP, FTP, POP3
//! ```
//!
//! - A stream gets the same label and the same fields however it is cut into segments.
//! - Bytes never make a panic, an endless loop or an endless buffer: each parser has a bound, and an error beyond it.
//! - A label says what found it and how sure it is; a port alone is never more than a hint.
//!
//! It sees no packets and keeps no flows: who calls it reassembles and has the record of the flow. Each state belongs to
//! one flow; the tables are constants.
#![forbid(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod bytes;
pub mod dns;
pub mod http1;
mod identifier;
pub mod lines;
mod protocol;
pub mod quic;
mod signatures;
pub mod tls;

pub use identifier::{
    Answer, Confidence, DATAGRAMS_MAX, Direction, FoundBy, Identifier, Label, Ports,
    STREAM_BYTES_MAX,
};
pub use protocol::{Protocol, Transport};
