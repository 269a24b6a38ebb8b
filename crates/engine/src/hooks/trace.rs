//! What a trace sees of a packet.

use std::fmt;

use chunk::{Offload, Verdict};

/// One thing that a trace saw of its packet. Ports are numbers here: whoever knows names of them gives them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceEvent {
    /// It was received.
    Received {
        /// Its port.
        port: u16,
        /// Bytes of the frame.
        frame_len: usize,
        /// What its sender left to a network card.
        offload: Offload,
    },
    /// It left a stage.
    Stage {
        /// The stage's name.
        name: &'static str,
        /// What the stage made of it ([`Stage::describe`](crate::Stage::describe)); may be empty.
        detail: String,
        /// Its verdict behind the stage's `post_shade`, where the shades of the whole segment have run.
        verdict: Verdict,
    },
    /// A stage made a packet because of it.
    Emitted {
        /// Bytes of the frame that was made.
        frame_len: usize,
        /// That packet's verdict.
        verdict: Verdict,
    },
    /// It came to its end.
    End {
        /// Its last verdict.
        verdict: Verdict,
    },
}

/// How long a received frame is, and how its sender left it.
pub fn frame_text(frame_len: usize, offload: Offload) -> String {
    match (offload.segment_bytes(), offload.is_none()) {
        (Some(bytes), _) => format!("{frame_len} bytes in segments of {bytes}"),
        (None, false) => format!("{frame_len} bytes, checksum open"),
        (None, true) => format!("{frame_len} bytes"),
    }
}

impl fmt::Display for TraceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Received { port, frame_len, offload } => {
                write!(f, "rx: port {port}, {}", frame_text(*frame_len, *offload))
            }
            Self::Stage { name, detail, verdict } if detail.is_empty() => {
                write!(f, "{name}: {verdict}")
            }
            Self::Stage { name, detail, verdict } => write!(f, "{name}: {detail} → {verdict}"),
            Self::Emitted { frame_len, verdict } => {
                write!(f, "emitted {frame_len} bytes: {verdict}")
            }
            Self::End { verdict } => write!(f, "end: {verdict}"),
        }
    }
}
