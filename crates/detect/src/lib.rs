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

mod alert;
mod detector;
mod flow;
mod input;
mod ruleset;

pub use alert::{Alert, Found, Verdict};
pub use detector::Detector;
pub use flow::FlowState;
pub use input::{BufferPart, Packet, Sender};
pub use ruleset::{ActionKind, Options, Refused, RuleInfo, Ruleset};
