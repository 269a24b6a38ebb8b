//! A datagram that came in fragments.

use packet::Decoded;

use super::input::Input;
use super::module::{Fragments, Module};
use crate::defrag;

/// A datagram that became whole.
#[derive(Default)]
pub(super) struct Whole {
    pub(super) frame: Vec<u8>,
    pub(super) ip_at: usize,
    /// Frames that it came in, and their bytes.
    pub(super) pieces: u32,
    pub(super) bytes: u64,
    pub(super) is_there: bool,
    pub(super) lost: u64,
}

impl Whole {
    /// Takes what becomes of a datagram by a fragment, or at a time. One that did not become whole in time ended when that was
    /// over, whatever came then.
    pub(super) fn take(
        &mut self,
        output: defrag::Output<'_, u32>,
        time_ns: u64,
        config: &defrag::Config,
        module: &mut impl Module,
    ) {
        let failed = match output.outcome {
            defrag::Outcome::Whole { .. } => None,
            defrag::Outcome::Failed(why) => Some(why),
        };
        let time_ns = match failed {
            Some(defrag::Reason::Timeout) => {
                output.start_ns.saturating_add(config.timeout_ns(output.key.family))
            }
            _ => time_ns,
        };
        let _ =
            module.fragments(&Fragments { key: output.key, failed, notes: output.notes, time_ns });
        match output.outcome {
            defrag::Outcome::Whole { frame, ip_at } => {
                self.frame.clear();
                self.frame.extend_from_slice(frame);
                (self.ip_at, self.is_there) = (ip_at, true);
                let frames = output.tokens;
                self.pieces = frames.len() as u32;
                self.bytes = frames.map(u64::from).sum();
            }
            defrag::Outcome::Failed(_) => self.lost += output.tokens.len() as u64,
        }
    }

    /// The datagram, to be given [back](Self::take_back). Meanwhile others may be lost.
    pub(super) fn lend(&mut self) -> Self {
        let lost = self.lost;
        std::mem::replace(self, Self { lost, ..Self::default() })
    }

    pub(super) fn take_back(&mut self, whole: Self) {
        let lost = self.lost;
        *self = Self { lost, ..whole };
    }

    /// Its headers; `last` is the fragment that completed it.
    pub(super) fn decoded(&self, last: &Input<'_>) -> Decoded {
        match self.ip_at {
            // It was in a tunnel, without a link header.
            0 => Decoded {
                vlan_tci: last.decoded.vlan_tci,
                vlan_count: last.decoded.vlan_count,
                ..packet::decode::decode_ip(&self.frame, self.frame.len())
            },
            _ => packet::decode::decode(&self.frame, self.frame.len()),
        }
    }
}
