//! Evaluation of intrusion detection rules (Snort 2.9, Suricata) over packets, streams and application buffers.
//!
//! ```text
//!  signatures::RuleSet ─compile─▶ Ruleset (immutable, shared) ◀── Detector (per worker) ──▶ alerts, verdict
//!                                                                  ▲
//!    packet ─ begin ─┐                                             │
//!    stream ─ data ──┼──────────── a step ─────────────── finish ──┘
//!    buffers, ends ──┘                └ FlowState (per flow)
//! ```
//!
//! Thread rule: a [`Ruleset`] is read-only and shared; a [`Detector`] and the flows that it sees belong to one worker.
#![forbid(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod alert;
mod assemble;
mod checks;
mod compile;
mod conditions;
mod dear;
mod detector;
mod events;
mod explain;
mod feed;
mod flow;
mod header;
mod headers;
mod index;
mod input;
mod keywords;
mod late;
mod literals;
mod passing;
mod pattern;
mod plain;
mod reputation;
mod rule;
mod ruleset;
mod sets;
mod solve;
mod tables;
mod transactions;
mod transform;
mod window;

pub use alert::{Alert, Found, Verdict};
pub use dear::Dear;
pub use detector::{Counts, Detector};
pub use events::{EVENTS, Event, STREAM_EVENTS};
pub use explain::{Answered, Line};
pub use feed::{Feed, buffer_of, sender_of};
pub use flow::FlowState;
pub use input::{BufferPart, Packet, Sender};
pub use keywords::{is_later, keywords};
pub use late::Late;
pub use pattern::PatternLimits;
pub use reputation::{Reputation, ReputationError, ReputationProblem};
pub use ruleset::{ActionKind, Options, Refused, RuleInfo, Ruleset, Search};
pub use sets::{Dataset, Datasets, SetKind};
pub use tables::HostTables;
