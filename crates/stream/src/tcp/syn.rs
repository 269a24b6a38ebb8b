//! SYN: the beginning of a connection, and whatever claims to be one.

use packet::tcp::flags;

use super::connection::{Connection, SCALE_NONE, SCALE_UNKNOWN, bits, distance, marks};
use super::data::Data;
use super::state::establish;
use super::{Event, Outcome, Reassembler, Segment, Sink, SynData};
use crate::key::Side;
use crate::record::TcpState;

const SHIFT_MAX: u8 = 14;

/// Options of SYN that matter here.
#[derive(Debug, Default, PartialEq, Eq)]
struct SynOptions {
    scale: Option<u8>,
    is_fast_open: bool,
}

impl SynOptions {
    /// Reads options until their end, or until one is malformed.
    fn parse(bytes: &[u8]) -> Self {
        let mut options = Self::default();
        for option in packet::tcp::options(bytes) {
            match option {
                (3, [shift]) => options.scale = Some((*shift).min(SHIFT_MAX)),
                // RFC 7413, and its experimental form before it had a number.
                (34, _) | (253 | 254, [0xf9, 0x89, ..]) => options.is_fast_open = true,
                _ => {}
            }
        }
        options
    }
}

impl Reassembler {
    /// A segment with SYN.
    pub(super) fn synchronise(
        &mut self,
        connection: &mut Connection,
        side: Side,
        segment: &Segment<'_>,
        now_ns: u64,
        sink: &mut impl Sink,
    ) -> Outcome {
        if segment.flags & flags::ACK == 0 {
            self.open(connection, side, segment, now_ns, sink)
        } else {
            self.answer(connection, side, segment, now_ns, sink)
        }
    }

    /// SYN without ACK.
    fn open(
        &mut self,
        connection: &mut Connection,
        side: Side,
        segment: &Segment<'_>,
        now_ns: u64,
        sink: &mut impl Sink,
    ) -> Outcome {
        let is_same = connection.initial_sequence(side) == Some(segment.sequence);
        // Of a SYN that is not the first one, the data is kept nowhere.
        let repeated = match segment.is_empty() {
            true => Outcome::Accepted,
            false => Outcome::Unread,
        };
        match connection.state {
            TcpState::None => {
                connection.client = side;
                connection.state = TcpState::SynSent;
                connection.handshake_ns = now_ns.max(1);
                let options = learn(connection, side, segment);
                if options.is_fast_open {
                    connection.mark(side, marks::FAST_OPEN);
                }
                self.hold(connection, side, segment, sink);
                Outcome::Accepted
            }
            TcpState::SynSent if side == connection.client => {
                if is_same {
                    connection.handshake_ns = now_ns.max(1);
                } else {
                    // Which of both has arrived, SYN-ACK says.
                    sink.event(side, Event::SynConflict);
                    self.keep_syn(connection, side, segment);
                }
                repeated
            }
            TcpState::SynSent => {
                sink.event(side, Event::SimultaneousOpen);
                connection.state = TcpState::SynReceived;
                learn(connection, side, segment);
                self.hold(connection, side, segment, sink);
                Outcome::Accepted
            }
            TcpState::Closed => Outcome::Restart,
            _ if is_same => repeated,
            TcpState::TimeWait => Outcome::Restart,
            // The other end has the connection, and challenges the SYN (RFC 5961 §4), or has it no more, and answers it.
            _ => {
                sink.event(side, Event::SynConflict);
                if side != connection.client && !self.options.resynchronise {
                    return Outcome::Ignored;
                }
                self.keep_syn(connection, side, segment);
                repeated
            }
        }
    }

    /// Keeps SYN, whose answer is to show what it began.
    fn keep_syn(&mut self, connection: &mut Connection, side: Side, segment: &Segment<'_>) {
        let scale = SynOptions::parse(segment.options).scale.unwrap_or(SCALE_NONE);
        let number = match self.options.resynchronise {
            true => connection.copies_of(side, segment.sequence),
            false => Some(0),
        };
        let number = number.unwrap_or_else(|| self.behind.begin());
        connection.note_again(side, segment, scale, number);
    }

    /// Data of SYN or SYN-ACK, which waits until it is acknowledged.
    fn hold(
        &mut self,
        connection: &mut Connection,
        side: Side,
        segment: &Segment<'_>,
        sink: &mut impl Sink,
    ) {
        if segment.payload.is_empty() {
            return;
        }
        // An answer with data is part of the fast open of SYN.
        let is_fast_open = Side::BOTH.iter().any(|side| connection.marked(*side, marks::FAST_OPEN));
        sink.event(side, if is_fast_open { Event::FastOpen } else { Event::DataOnSyn });
        if self.accepts(is_fast_open) {
            let data = Data { place: 0, bytes: segment.payload, urgent: None, is_cut: false };
            if self.try_buffer(connection, side, data, sink) {
                connection.mark(side, marks::HELD);
            }
        }
    }

    fn accepts(&self, is_fast_open: bool) -> bool {
        match self.options.syn_data {
            SynData::Ignore => false,
            SynData::FastOpen => is_fast_open,
            SynData::Accept => true,
        }
    }

    /// SYN with ACK.
    fn answer(
        &mut self,
        connection: &mut Connection,
        side: Side,
        segment: &Segment<'_>,
        now_ns: u64,
        sink: &mut impl Sink,
    ) -> Outcome {
        let other = side.other();
        match connection.state {
            TcpState::None => {
                if !self.options.midstream {
                    return Outcome::Ignored;
                }
                sink.event(side, Event::JoinedMidstream);
                connection.client = other;
            }
            TcpState::SynSent if side != connection.client => {
                let next = connection.next(other);
                let sent = distance(next, connection.cold(other).highest);
                let is_valid = (0..=sent).contains(&distance(next, segment.acknowledgment));
                if !is_valid && connection.is_answered_again(side, segment) {
                    return Outcome::Restart;
                }
                if !is_valid {
                    sink.event(side, Event::AckInvalid);
                    return Outcome::Ignored;
                }
            }
            _ => return self.answer_again(connection, side, segment, now_ns, sink),
        }
        connection.state = TcpState::SynReceived;
        learn(connection, side, segment);
        let _ = self.acknowledge(connection, side, segment.acknowledgment, now_ns, sink);
        self.hold(connection, side, segment, sink);
        Outcome::Accepted
    }

    /// Whether SYN-ACK began another connection in a capture that has this direction only: nothing was ever seen of the end that it
    /// answers, and the side has sent SYN-ACK of another number before.
    fn is_lone(&self, connection: &Connection, side: Side, segment: &Segment<'_>) -> bool {
        let other = side.other();
        self.options.resynchronise
            && self.options.midstream
            && side != connection.client
            && !connection.keeps_syn()
            && connection.initial_sequence(side).is_some_and(|own| own != segment.sequence)
            && !connection.marked(other, marks::SYN | marks::ACKED)
            && connection.has(other, bits::GUESSED)
    }

    /// SYN with ACK of a side that may have sent SYN before.
    fn answer_again(
        &mut self,
        connection: &mut Connection,
        side: Side,
        segment: &Segment<'_>,
        now_ns: u64,
        sink: &mut impl Sink,
    ) -> Outcome {
        if connection.is_answered_again(side, segment) || self.is_lone(connection, side, segment) {
            return Outcome::Restart;
        }
        let is_late = connection.has(side, bits::GUESSED)
            && connection.next(side) == segment.sequence.wrapping_add(1);
        if is_late {
            // The acknowledgment of it came first.
            learn(connection, side, segment);
        } else if connection.initial_sequence(side) != Some(segment.sequence) {
            sink.event(side, Event::SynConflict);
            return Outcome::Ignored;
        }
        if connection.state == TcpState::Closed {
            return Outcome::Ignored;
        }
        if !self.acknowledge(connection, side, segment.acknowledgment, now_ns, sink) {
            return Outcome::Ignored;
        }
        let has_acknowledged = |side| connection.marked(side, marks::ACKED);
        if connection.state == TcpState::SynReceived && Side::BOTH.into_iter().all(has_acknowledged)
        {
            establish(connection);
        }
        // What is behind a late one was delivered, and data of the first one is held.
        if segment.is_empty() { Outcome::Accepted } else { Outcome::Unread }
    }
}

/// Takes the numbers of a side from its SYN.
fn learn(connection: &mut Connection, side: Side, segment: &Segment<'_>) -> SynOptions {
    let options = SynOptions::parse(segment.options);
    let first = segment.sequence.wrapping_add(1);
    connection.base[side.index()] = first;
    connection.window[side.index()] = segment.window;
    connection.unset(side, bits::UNKNOWN | bits::GUESSED);
    connection.mark(side, marks::SYN);
    let cold = connection.cold_mut(side);
    cold.highest = first.wrapping_add(segment.len() as u32);
    cold.scale = options.scale.unwrap_or(SCALE_NONE);
    cold.window_largest = segment.window.into(); // of SYN it is not scaled
    // Windows are scaled if both sides offer it (RFC 7323 §2.2).
    let scales = connection.cold.map(|cold| cold.scale);
    if scales.contains(&SCALE_NONE) && !scales.contains(&SCALE_UNKNOWN) {
        connection.cold[0].scale = SCALE_NONE;
        connection.cold[1].scale = SCALE_NONE;
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_syn() {
        let cases: [(&[u8], Option<u8>, bool); 9] = [
            (&[], None, false),
            (&[2, 4, 5, 180, 1, 3, 3, 7], Some(7), false),
            (&[3, 3, 200], Some(14), false),
            (&[0, 3, 3, 7], None, false),
            (&[3, 3], None, false),
            (&[3, 1, 7], None, false),
            (&[1, 1, 34, 2], None, true),
            (&[254, 4, 0xf9, 0x89], None, true),
            (&[254, 4, 0, 1, 3, 3, 2, 9], Some(2), false),
        ];
        for (bytes, scale, is_fast_open) in cases {
            assert_eq!(SynOptions::parse(bytes), SynOptions { scale, is_fast_open }, "{bytes:?}");
        }
    }
}
