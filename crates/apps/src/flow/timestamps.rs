//! Timestamps of TCP segments: which are older than those before them (PAWS, RFC 7323 §5.3).
//!
//! Hosts with timestamps drop such a segment, and take the bytes of a later one for the same place. Who does not look at timestamps
//! takes those of the old one: an attacker shows it another stream. Per direction the *recent* timestamp is that of the last segment that
//! begins at or before the last acknowledgment (§4.3), so that segments out of order are none.
//!
//! Pure: any thread.

use packet::tcp::{TcpView, flags, options};
use stream::Side;
use stream::tracker::Input;

/// The option's kind (RFC 7323 §3.2).
const TIMESTAMPS: u8 = 8;

/// Clocks of timestamps may run so fast that a recent one says nothing after 24 days (RFC 7323 §5.5).
const OUTDATED_NS: u64 = 24 * 86_400 * 1_000_000_000;

/// What matters of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamped {
    sequence: u32,
    acknowledgment: Option<u32>,
    is_reset: bool,
    /// `None` without the option.
    timestamp: Option<u32>,
}

impl Stamped {
    /// Of a packet; `None` if it is no whole TCP header.
    pub(super) fn of(input: &Input<'_>) -> Option<Stamped> {
        let bytes = input.frame.get(usize::from(input.decoded.l4_offset)..)?;
        let view = TcpView::new_checked(bytes)?;
        let timestamp = options(view.options_bytes()).find_map(|(kind, content)| {
            let value = content.first_chunk::<4>().filter(|_| content.len() == 8)?;
            (kind == TIMESTAMPS).then(|| u32::from_be_bytes(*value))
        });
        let has = |flag: u16| view.flags() & flag != 0;
        Some(Stamped {
            sequence: view.sequence(),
            acknowledgment: has(flags::ACK).then(|| view.acknowledgment()),
            is_reset: has(flags::RST),
            timestamp,
        })
    }
}

/// What is known of one direction.
#[derive(Clone, Copy, Debug, Default)]
struct OfSide {
    recent: Option<(u32, u64)>,
    acknowledged: Option<u32>,
}

/// The timestamps of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timestamps([OfSide; 2]);

impl Timestamps {
    /// Takes a segment; whether its timestamp is old. Resets are not judged by theirs (RFC 7323 §5.2).
    pub(super) fn is_old(&mut self, side: Side, segment: &Stamped, time_ns: u64) -> bool {
        let is_before = |a: u32, b: u32| (a.wrapping_sub(b) as i32) < 0;
        let received = self.0[side.other().index()].acknowledged;
        let own = &mut self.0[side.index()];
        let is_old = match (segment.timestamp, own.recent) {
            _ if segment.is_reset => false,
            (Some(timestamp), Some((recent, since_ns))) => {
                is_before(timestamp, recent) && time_ns.saturating_sub(since_ns) < OUTDATED_NS
            }
            _ => false,
        };
        if is_old {
            // Its receiver drops it.
            return true;
        }
        if let Some(number) = segment.acknowledgment
            && own.acknowledged.is_none_or(|before| is_before(before, number))
        {
            own.acknowledged = Some(number);
        }
        if let Some(timestamp) = segment.timestamp
            && received.is_none_or(|received| !is_before(received, segment.sequence))
        {
            own.recent = Some((timestamp, time_ns));
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(sequence: u32, acknowledgment: u32, timestamp: u32) -> Stamped {
        Stamped {
            sequence,
            acknowledgment: Some(acknowledgment),
            is_reset: false,
            timestamp: Some(timestamp),
        }
    }

    #[test]
    fn an_older_timestamp_is_found_unless_the_segment_is_only_late() {
        let mut own = Timestamps::default();
        assert!(!own.is_old(Side::A, &Stamped { acknowledgment: None, ..segment(99, 0, 1000) }, 0));
        assert!(!own.is_old(Side::B, &segment(499, 100, 7), 0));
        assert!(!own.is_old(Side::A, &segment(100, 500, 2000), 0));
        // Behind a hole: what fills it may be older.
        assert!(!own.is_old(Side::A, &segment(120, 500, 2002), 0));
        assert!(!own.is_old(Side::A, &segment(110, 500, 2001), 0));
        assert!(own.is_old(Side::A, &segment(103, 500, 1), 0));
        // As a reset it is taken.
        assert!(!own.is_old(Side::A, &Stamped { is_reset: true, ..segment(103, 500, 1) }, 0));
        // Without the option nothing is known of it.
        assert!(!own.is_old(Side::A, &Stamped { timestamp: None, ..segment(103, 500, 1) }, 0));
        // The other direction has a clock of its own.
        assert!(!own.is_old(Side::B, &segment(500, 130, 8), 0));
        assert!(!own.is_old(Side::A, &segment(130, 500, 2003), 0));
        // All of it is acknowledged: nothing older may follow.
        assert!(own.is_old(Side::A, &segment(110, 500, 2001), 0));
    }

    #[test]
    fn timestamps_wrap_and_are_outdated_after_24_days() {
        let mut own = Timestamps::default();
        assert!(!own.is_old(Side::A, &segment(0, 0, u32::MAX), 0));
        assert!(!own.is_old(Side::A, &segment(0, 0, 3), 0));
        assert!(own.is_old(Side::A, &segment(0, 0, u32::MAX), OUTDATED_NS - 1));
        assert!(!own.is_old(Side::A, &segment(0, 0, u32::MAX), OUTDATED_NS));
    }
}
