//! What a trace sees of a packet.

use std::fmt;

use chunk::Verdict;

/// One thing that a trace saw of its packet. Ports are numbers here: whoever knows names of them gives them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceEvent {
    /// It was received.
    Received {
        /// Its port.
        port: u16,
        /// Bytes of the frame.
        frame_len: usize,
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

impl fmt::Display for TraceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Received { port, frame_len } => write!(f, "rx: port {port}, {frame_len} bytes"),
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
