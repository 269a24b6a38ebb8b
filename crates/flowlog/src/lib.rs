//! Flow records and events, in the forms that other programs read.
//!
//! The flow table reports a [`FlowRecord`](stream::FlowRecord) when a flow ends, and from time to time while it lasts.
//! Analysts read such records with tools that exist: log pipelines take Suricata's EVE JSON, collectors take IPFIX, and
//! data frames take Parquet. This crate is the step between, and knows neither packets nor the flow table.
//!
//! ```text
//!                    ┌─ eve::Eve ── a line of JSON ──▶ sink::Sink ── file, Unix socket, standard output
//!  FlowRecord ───────┼─ ipfix::Exporter ── messages ── UDP or TCP to a collector
//!  Anomaly (eve) ────┘─ parquet::Table ── columns ── a file   (feature `parquet`)
//! ```
//!
//! * [`eve`]: records and events as lines, by Suricata's names.
//! * [`fast`]: alerts as lines for people; [`stats`]: counters as a table.
//! * [`sink`]: where lines go; [`json`]: how their objects are written.
//! * [`ipfix`]: records by RFC 7011, for collectors.
//! * `parquet`: records as a table of columns.
//! * [`community_id`]: the hash of a 5-tuple that other programs compute in the same way.
//!
//! Threads: [`eve::Eve`] is a function of its arguments. A [`sink::Sink`] and an [`ipfix::Exporter`] have a thread each,
//! which waits for disks and peers; their callers never do. What a thread cannot take in time is dropped and counted. A
//! `parquet::Table` writes on the thread of its caller.

#![forbid(unsafe_code)]

pub mod community_id;
pub mod eve;
pub mod fast;
pub mod ipfix;
pub mod json;
#[cfg(feature = "parquet")]
pub mod parquet;
mod queue;
pub mod sink;
pub mod stats;
mod time;

pub use time::write_timestamp;

/// Protocol numbers (IANA, *Assigned Internet Protocol Numbers*) that are treated specially.
pub(crate) mod protocol {
    pub(crate) const ICMP: u8 = 1;
    pub(crate) const TCP: u8 = 6;
    pub(crate) const UDP: u8 = 17;
    pub(crate) const ESP: u8 = 50;
    pub(crate) const ICMPV6: u8 = 58;
    pub(crate) const SCTP: u8 = 132;
}
