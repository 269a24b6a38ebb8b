//! What the router sends itself and `esp_out` has to look at: ICMP errors, resets and echo replies (RFC 4301 §5.1, §6.2).
//!
//! `rewrite`, behind `esp_out`, makes them. Those that policies protect or discard go through the pipeline again, as frames that the
//! twin of their interface sends; all others leave at once, in their place behind the packet that they are about.
//!
//! Threads: workers; each question takes the view anew, because answers are few and their rate is limited.

use std::sync::Arc;

use chunk::Packet;
use ipsec::{Action, Tuple};

use super::current::Current;
use crate::received;
use crate::router::{Guard, MARK_OPENED};

/// The policies in use.
pub(super) struct Protection(pub(super) Arc<Current>);

impl std::fmt::Debug for Protection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Protection")
    }
}

impl Guard for Protection {
    fn holds(&self, frame: &Packet) -> bool {
        if frame.mark & MARK_OPENED != 0 {
            return true;
        }
        let view = self.0.get();
        let d = received::decode(frame);
        let Some(tuple) = Tuple::of(&d) else { return false };
        match view.outgoing().find(&tuple) {
            Some(Action::Bypass) => false,
            Some(Action::Protect(_) | Action::Discard) => true,
            None => {
                let answer = Tuple::answering(frame.data(), &d);
                let action = answer.and_then(|answer| view.outgoing().find(&answer));
                matches!(action, Some(Action::Protect(_)))
            }
        }
    }
}
