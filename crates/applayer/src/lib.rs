//! Application-layer sessions: what the two streams of a flow say, as transactions, named buffers, files and anomalies.
//!
//! ```text
//!  bytes in order, gaps, ends ─▶ Session ─ l7proto::Identifier ─▶ protocol ─▶ parser ─▶ Sink
//!                                                                                     piece: buffers that rules look into
//!                                                                                     transaction: for logs and keywords
//!                                                                                     file, anomaly
//! ```
//!
//! - The transactions, buffers and files of a stream are the same however it is cut into segments.
//! - Bytes never make a panic, and every state has a bound ([`Limits`]); what exceeds one is left out, with an anomaly.
//! - It sees no packets and knows no rules: who calls it reassembles, and who takes what the [`Sink`] is given decides.
//!
//! A session belongs to one flow, and to one thread at a time. It allocates while it reads: the head that is being read, one
//! record for each open transaction.
#![forbid(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod anomaly;
mod buffer;
mod dns;
mod file;
mod ftp;
mod http1;
mod http2;
mod limits;
mod line;
mod mime;
mod output;
mod parser;
mod session;
mod sink;
mod smtp;
mod ssh;
mod tls;
mod transaction;
mod unseen;

pub use anomaly::{Anomaly, AnomalyKind};
pub use buffer::Buffer;
pub use file::{Digests, File, FileState};
pub use limits::Limits;
pub use session::{Others, Session, Spoken, Start, Want};
pub use sink::{Direction, Piece, Progress, Sink};
pub use transaction::{
    Certificate, Data, Dns, DnsData, DnsQuestion, DnsRecord, Email, Ftp, Http, Smtp, Ssh, SshSide,
    Tls, Transaction,
};
pub use unseen::{UNSEEN, unseen};
