//! Segments off the fast path: which of them a host would take, what they acknowledge, how they end a connection.

use std::ops::Range;

use packet::tcp::flags;

use super::behind::Behind;
use super::connection::{Connection, SCALE_UNKNOWN, bits, distance, is_after, marks};
use super::data::Data;
use super::{End, Event, Outcome, Reassembler, Segment, Sink};
use crate::key::Side;
use crate::record::TcpState;

/// A window is never taken as smaller: it may have shrunk since it was seen (as conntrack's `MAXACKWINCONST`).
const WINDOW_MIN: u32 = 66_000;
/// Distance of sequence numbers that is no longer ahead or behind.
const DISTANCE_MAX: i32 = 1 << 30;
/// After a loss of both directions, one side acknowledges at most that much beyond a segment that the other one sent.
const FAR_MAX: i32 = 1 << 24;

impl Reassembler {
    /// A segment with neither SYN nor RST.
    pub(super) fn plain(
        &mut self,
        connection: &mut Connection,
        side: Side,
        segment: &Segment<'_>,
        now_ns: u64,
        sink: &mut impl Sink,
    ) -> Outcome {
        if segment.flags & flags::ACK == 0 {
            sink.event(side, Event::NoFlags);
            return Outcome::Ignored;
        }
        if connection.state == TcpState::None {
            if !self.options.midstream {
                return Outcome::Ignored;
            }
            sink.event(side, Event::JoinedMidstream);
            establish(connection);
        }
        if !self.options.resynchronise && connection.state == TcpState::SynSent {
            // Every packet passes, and no SYN-ACK did: the client has nothing to send, and the other end may challenge SYN, if
            // it has another connection with these ports.
            sink.event(side, Event::AckInvalid);
            if side == connection.client {
                return Outcome::Ignored;
            }
            // The client resets by this number.
            connection.cold_mut(side.other()).far = segment.acknowledgment;
            connection.mark(side.other(), marks::FAR);
            return if segment.is_empty() { Outcome::Accepted } else { Outcome::Unread };
        }
        if self.options.resynchronise && self.is_of_another(connection, side, segment, now_ns) {
            return Outcome::Restart;
        }
        if connection.has(side, bits::UNKNOWN)
            && !self.acknowledge(connection, side, segment.acknowledgment, now_ns, sink)
        {
            return Outcome::Ignored; // Its numbers are not to be trusted.
        }
        self.learn(connection, side, segment, sink);
        if !is_within(connection, side, segment) {
            return self.out_of_window(connection, side, segment, now_ns, sink);
        }
        if is_old(connection, side, segment.acknowledgment) {
            sink.event(side, Event::AckInvalid);
            return Outcome::Unread;
        }
        if !self.acknowledge(connection, side, segment.acknowledgment, now_ns, sink) {
            return Outcome::Ignored;
        }
        note_window(connection, side, segment.window);
        if connection.marked(side, marks::DOUBTED) {
            self.settle_doubt(connection, side, segment.sequence, sink);
        }
        if is_beyond(connection, side, segment) {
            // A receiver does not take it, unless the capture lost an acknowledgment.
            sink.event(side, Event::BeyondWindow);
            if !self.options.resynchronise {
                return Outcome::Unread;
            }
        }
        let other = side.other();
        let has_both = connection.marked(side, marks::ACKED)
            && (connection.marked(other, marks::ACKED) || connection.has(other, bits::GUESSED));
        if connection.has(side, bits::OPENING)
            && (has_both || connection.state == TcpState::SynSent)
        {
            let is_seen =
                connection.marked(Side::A, marks::SYN) && connection.marked(Side::B, marks::SYN);
            if is_seen && connection.handshake_ns != 0 {
                connection.handshake_ns = now_ns.saturating_sub(connection.handshake_ns);
                connection.is_handshake_timed = true;
            }
            establish(connection);
        }
        match self.content(connection, side, segment, now_ns, sink) {
            true => Outcome::Accepted,
            false => Outcome::Unread,
        }
    }

    /// Whether a segment shows that a SYN that was kept began another connection. One that may be behind it is copied.
    fn is_of_another(
        &mut self,
        connection: &mut Connection,
        side: Side,
        segment: &Segment<'_>,
        now_ns: u64,
    ) -> bool {
        // Unknown windows are very large.
        let plausible = [side, side.other()].map(|side| window_max(connection, side).min(FAR_MAX));
        if connection.goes_on_again(side, segment, FAR_MAX, plausible) {
            return true;
        }
        if let Some(number) = connection.follows_again(side, segment, FAR_MAX) {
            self.behind.keep(number, segment, now_ns);
        }
        false
    }

    /// The first segment of a connection that a SYN began which was kept: those that were copied come before it. Not before a SYN-ACK,
    /// which is the first that the other end sends: it has not taken what came earlier. Nor those that acknowledge what the
    /// other end is far from sending. The numbers of that end are those of its own segment, whatever was acknowledged.
    #[cold]
    pub(super) fn bring_copies(
        &mut self,
        connection: &mut Connection,
        (client, number): (Side, u16),
        (side, first): (Side, &Segment<'_>),
        sink: &mut impl Sink,
    ) {
        let is_server = side != client;
        let (known, most) = match is_server {
            true => (first.sequence, i32::try_from(first.len()).unwrap_or(FAR_MAX)),
            false => (first.acknowledgment, 0),
        };
        let mut room = Behind::room();
        while let Some((copy, time_ns)) = self.behind.take(number, &mut room) {
            let is_near = (-FAR_MAX..=most).contains(&distance(known, copy.acknowledgment));
            if first.flags & flags::SYN != 0 || !is_near {
                continue;
            }
            let guess = |connection: &mut Connection| {
                if is_server {
                    guess(connection, side, first.sequence);
                }
            };
            guess(connection);
            let _ = self.plain(connection, client, &copy, time_ns, sink);
            guess(connection);
        }
    }

    /// The first segments of a side tell its numbers, where SYN did not.
    fn learn(
        &mut self,
        connection: &mut Connection,
        side: Side,
        segment: &Segment<'_>,
        sink: &mut impl Sink,
    ) {
        let ahead = distance(connection.next(side), segment.sequence);
        if connection.has(side, bits::UNKNOWN) {
            connection.base[side.index()] = segment.sequence;
            connection.unset(side, bits::UNKNOWN);
        } else if connection.has(side, bits::GUESSED) {
            let is_keep_alive = ahead == -1 && segment.len() <= 1;
            if ahead < 0 && !is_keep_alive {
                connection.base[side.index()] = segment.sequence;
            }
            connection.unset(side, bits::GUESSED);
        }
        if connection.marked(side, marks::HELD) {
            self.release_held(connection, side, ahead > 0, sink);
        }
    }

    /// Data and FIN of an acceptable segment; whether all its data belongs to the stream.
    fn content(
        &mut self,
        connection: &mut Connection,
        side: Side,
        segment: &Segment<'_>,
        now_ns: u64,
        sink: &mut impl Sink,
    ) -> bool {
        let (is_fin, len) = (segment.flags & flags::FIN != 0, segment.len());
        let ahead = i64::from(distance(connection.next(side), segment.sequence));
        let is_all_acknowledged =
            connection.acknowledged(side.other()) == Some(connection.next(side));
        if ahead == -1 && !is_fin && len <= 1 && (len == 0 || is_all_acknowledged) {
            let cold = connection.cold_mut(side);
            cold.keep_alives = cold.keep_alives.saturating_add(1);
            return true;
        }
        let end = segment.sequence.wrapping_add(len as u32);
        if is_after(end, seen_end(connection, side)) {
            connection.cold_mut(side).highest = end;
        }
        let place = connection.place(side);
        let fin_place = place.checked_add_signed(ahead + len as i64);
        let mut is_read = true;
        if len > 0 {
            let (cut, place) = match ahead {
                ..0 => (ahead.unsigned_abs() as usize, place),
                _ => (0, place + ahead.unsigned_abs()),
            };
            is_read = self.payload(connection, side, segment, cut, place, now_ns, sink);
        }
        if is_fin {
            match fin_place {
                Some(fin_place) => self.fin(connection, side, fin_place, sink),
                None => sink.event(side, Event::FinConflict),
            }
        }
        is_read
    }

    /// `cut` bytes are before the next one; the others begin at `place`. Whether none of them is behind FIN.
    #[allow(clippy::too_many_arguments)] // one more than else
    fn payload(
        &mut self,
        connection: &mut Connection,
        side: Side,
        segment: &Segment<'_>,
        cut: usize,
        place: u64,
        now_ns: u64,
        sink: &mut impl Sink,
    ) -> bool {
        let mut bytes = segment.payload.get(cut..).unwrap_or_default();
        // They were not captured, and follow the others.
        let mut missing = segment.len().saturating_sub(cut) - bytes.len();
        let mut is_read = true;
        if connection.has(side, bits::FIN) {
            let fin_place = connection.cold(side).fin_place;
            let room = usize::try_from(fin_place.saturating_sub(place)).unwrap_or(usize::MAX);
            if room < bytes.len() + missing {
                sink.event(side, Event::DataAfterFin);
                is_read = false;
                bytes = &bytes[..room.min(bytes.len())];
                missing = room - bytes.len();
            }
            if place.saturating_sub(cut as u64) >= fin_place {
                return false;
            }
        }
        if connection.has(side, bits::STOPPED) {
            if bytes.len() + missing > 0 {
                // What is between is not missed any more.
                connection.skip(side, place - connection.place(side));
                connection.position[side.index()] += (bytes.len() + missing) as u64;
            }
            return is_read;
        }
        if bytes.is_empty() && missing == 0 {
            let cold = connection.cold_mut(side);
            cold.retransmissions = cold.retransmissions.saturating_add(1);
            connection.rtt_start_ns[side.index()] = 0;
            sink.event(side, Event::Retransmission);
            return is_read;
        }
        let mut urgent = None;
        if segment.flags & flags::URG != 0 {
            let at = usize::from(segment.urgent_pointer.saturating_sub(1));
            urgent = at.checked_sub(cut).filter(|&at| at < bytes.len());
            sink.event(side, Event::Urgent);
        }
        let before = connection.offset(side);
        let at = place + bytes.len() as u64;
        self.take(connection, side, Data { place, bytes, urgent, is_cut: cut > 0 }, now_ns, sink);
        if missing > 0 {
            let before = (cut == 0).then_some(before);
            self.leave_out(connection, side, at..at + missing as u64, (before, now_ns), sink);
        }
        is_read
    }

    /// Bytes of a segment that were not captured. If the bytes before them were delivered, they are a gap at once; else they are a
    /// hole like any other. `before` is the offset of the next byte before the segment, of one without repeated bytes.
    #[cold]
    #[inline(never)]
    fn leave_out(
        &mut self,
        connection: &mut Connection,
        side: Side,
        places: Range<u64>,
        (before, now_ns): (Option<u64>, u64),
        sink: &mut impl Sink,
    ) {
        if connection.place(side) < places.start {
            return;
        }
        let sampled_ns = connection.rtt_start_ns[side.index()];
        self.give_up(connection, side, places.end, sink);
        // They were sent all the same, and so they are acknowledged.
        connection.rtt_start_ns[side.index()] = sampled_ns;
        if let Some(before) = before.filter(|_| connection.place(side) == places.end) {
            connection.time_data(side, before, now_ns);
        }
    }

    /// Takes an acknowledgment of the other side's data by `side`; `false` if it is invalid.
    pub(super) fn acknowledge(
        &mut self,
        connection: &mut Connection,
        side: Side,
        acknowledgment: u32,
        now_ns: u64,
        sink: &mut impl Sink,
    ) -> bool {
        let other = side.other();
        let is_guess = connection.has(other, bits::UNKNOWN | bits::GUESSED);
        let mut beyond = distance(connection.next(other), acknowledgment);
        if is_guess && (connection.has(other, bits::UNKNOWN) || beyond > 0) {
            connection.base[other.index()] = acknowledgment;
            connection.unset(other, bits::UNKNOWN);
            connection.set(other, bits::GUESSED);
        }
        if !is_guess {
            let is_before_all =
                connection.place(other).checked_add_signed(i64::from(beyond)).is_none();
            if connection.has(side, bits::OPENING) && is_before_all {
                sink.event(side, Event::AckInvalid);
                return false;
            }
            if connection.marked(other, marks::HELD) {
                self.release_held(connection, other, beyond > 0, sink);
                beyond = distance(connection.next(other), acknowledgment);
            }
            if beyond > 0 {
                match self.acknowledge_beyond(connection, side, beyond, sink) {
                    Believed::Yes => {}
                    Believed::NotYet => {
                        note_acknowledged(connection, side, acknowledgment);
                        return true;
                    }
                    Believed::No => return false,
                }
            } else if connection.marked(other, marks::DOUBTED) && beyond == 0 {
                // It says itself that this is all.
                self.settle_doubt(connection, other, acknowledgment.wrapping_sub(1), sink);
            }
        }
        if note_acknowledged(connection, side, acknowledgment) {
            connection.time_acknowledgment(other, acknowledgment, now_ns);
        }
        self.acknowledge_fin(connection, side);
        true
    }

    /// An acknowledgment of `beyond` bytes that were not seen in order.
    fn acknowledge_beyond(
        &mut self,
        connection: &mut Connection,
        side: Side,
        beyond: i32,
        sink: &mut impl Sink,
    ) -> Believed {
        let other = side.other();
        let acknowledgment = connection.next(other).wrapping_add(beyond as u32);
        let next = connection.next(other);
        let known = connection.acknowledged(side).map_or(next, |known| latest(known, next));
        let has_fin = connection.has(other, bits::FIN);
        let fin = u32::from(has_fin && !connection.marked(other, marks::FIN_PASSED));
        let is_seen = !is_after(acknowledgment, seen_end(connection, other).wrapping_add(fin));
        let may_jump = self.options.resynchronise;
        // Where every packet passes, what was sent was seen.
        let is_all_seen = !may_jump
            && connection.marked(other, marks::SYN)
            && !connection.marked(other, marks::FRAGMENTS);
        let is_plausible = match is_all_seen {
            true => is_seen,
            false => distance(known, acknowledgment) <= window_max(connection, side),
        };
        let is_confirmed = may_jump && is_confirmed(connection, other, acknowledgment);
        if !(is_plausible || is_confirmed) {
            sink.event(side, Event::AckInvalid);
            return Believed::No;
        }
        if may_jump && !is_seen && !is_confirmed {
            if !connection.marked(other, marks::DOUBTED) {
                connection.mark(other, marks::DOUBTED);
                sink.event(side, Event::AckUnseen);
            }
            return Believed::NotYet;
        }
        if !is_all_seen {
            connection.mark(other, marks::LEAPT);
        }
        self.pass_acknowledged(connection, other, beyond, sink);
        Believed::Yes
    }

    /// The other end has acknowledged `beyond` bytes of a side that are missing.
    fn pass_acknowledged(
        &mut self,
        connection: &mut Connection,
        side: Side,
        beyond: i32,
        sink: &mut impl Sink,
    ) {
        connection.unmark(side, marks::DOUBTED);
        let mut to = connection.place(side) + u64::from(beyond.unsigned_abs());
        if connection.has(side, bits::FIN) {
            to = to.min(connection.cold(side).fin_place);
        }
        if connection.has(side, bits::STOPPED) {
            let numbers = to.saturating_sub(connection.place(side));
            connection.skip(side, numbers);
            self.pass_fin(connection, side, sink);
        } else if self.options.acknowledged_is_lost && to > connection.place(side) {
            sink.event(side.other(), Event::AcknowledgedLost);
            self.give_up(connection, side, to, sink);
        }
    }

    /// A side of which the other one has acknowledged what nobody has seen is at this number: if that is behind what was acknowledged,
    /// the capture has lost it; if not, it was never sent.
    #[cold]
    fn settle_doubt(
        &mut self,
        connection: &mut Connection,
        side: Side,
        sequence: u32,
        sink: &mut impl Sink,
    ) {
        let (next, other) = (connection.next(side), side.other());
        connection.unmark(side, marks::DOUBTED);
        let acknowledged = connection.acked[other.index()];
        let beyond = distance(next, acknowledged);
        if beyond <= 0 {
            return; // it was seen after all
        }
        if distance(acknowledged, sequence) >= 0 {
            connection.mark(side, marks::LEAPT);
            return self.pass_acknowledged(connection, side, beyond, sink);
        }
        sink.event(other, Event::AckInvalid);
        connection.acked[other.index()] = next;
    }

    fn acknowledge_fin(&mut self, connection: &mut Connection, side: Side) {
        let other = side.other();
        if connection.has(other, bits::FIN) && !connection.marked(other, marks::FIN_ACKED) {
            let ahead = distance(connection.next(other), connection.acked[side.index()]);
            let place = connection.place(other).saturating_add_signed(i64::from(ahead));
            if place > connection.cold(other).fin_place {
                connection.mark(other, marks::FIN_ACKED);
                connection.unset(side, bits::OWES_ACK);
            }
        }
        let is_acknowledged = |side| connection.marked(side, marks::FIN_ACKED);
        connection.state = match connection.state {
            TcpState::FinWait1 if is_acknowledged(connection.client) => TcpState::FinWait2,
            TcpState::LastAck if is_acknowledged(side) && is_acknowledged(other) => {
                TcpState::TimeWait
            }
            state => state,
        };
    }

    fn fin(
        &mut self,
        connection: &mut Connection,
        side: Side,
        fin_place: u64,
        sink: &mut impl Sink,
    ) {
        if connection.has(side, bits::FIN) {
            if fin_place != connection.cold(side).fin_place {
                sink.event(side, Event::FinConflict);
            }
            return;
        }
        if fin_place < connection.place(side) {
            sink.event(side, Event::FinConflict);
            return;
        }
        connection.set(side, bits::FIN);
        connection.set(side.other(), bits::OWES_ACK);
        connection.cold_mut(side).fin_place = fin_place;
        if self.truncate(connection, side, fin_place) {
            sink.event(side, Event::DataAfterFin);
        }
        establish(connection);
        connection.state = match (connection.state, side == connection.client) {
            (TcpState::Established, true) => TcpState::FinWait1,
            (TcpState::Established, false) => TcpState::CloseWait,
            (TcpState::FinWait1 | TcpState::FinWait2, false) | (TcpState::CloseWait, true) => {
                TcpState::LastAck
            }
            (state, _) => state,
        };
        self.serve(connection, side, sink);
    }

    /// Passes FIN if it is next.
    pub(super) fn pass_fin(
        &mut self,
        connection: &mut Connection,
        side: Side,
        sink: &mut impl Sink,
    ) {
        if connection.has(side, bits::FIN)
            && !connection.marked(side, marks::FIN_PASSED)
            && connection.place(side) == connection.cold(side).fin_place
        {
            connection.mark(side, marks::FIN_PASSED);
            connection.skip(side, 1);
            self.report_end(connection, side, End::Fin, sink);
        }
    }

    /// A segment that no host would take, unless the capture lost what is between.
    fn out_of_window(
        &mut self,
        connection: &mut Connection,
        side: Side,
        segment: &Segment<'_>,
        now_ns: u64,
        sink: &mut impl Sink,
    ) -> Outcome {
        let other = side.other();
        if self.options.resynchronise && is_confirmed(connection, other, segment.acknowledgment) {
            sink.event(side, Event::Resynchronised);
            let far = connection.cold(other).far;
            for (side, to) in [(other, far), (side, segment.sequence)] {
                let ahead = distance(connection.next(side), to);
                let to_place = connection.place(side).saturating_add_signed(i64::from(ahead));
                if connection.has(side, bits::STOPPED) {
                    let numbers = to_place.saturating_sub(connection.place(side));
                    connection.skip(side, numbers);
                } else {
                    self.give_up(connection, side, to_place, sink);
                }
                connection.acked[side.other().index()] = connection.next(side);
                connection.mark(side.other(), marks::ACKED);
                connection.unmark(side, marks::FAR);
            }
            if is_within(connection, side, segment) {
                return self.plain(connection, side, segment, now_ns, sink);
            }
            return Outcome::Ignored;
        }
        sink.event(side, Event::OutOfWindow);
        connection.cold_mut(side).far = segment.sequence;
        connection.mark(side, marks::FAR);
        Outcome::Ignored
    }

    /// RST. It closes if a host would take it: with exactly the number that it expects (RFC 5961 §3.2).
    pub(super) fn reset(
        &mut self,
        connection: &mut Connection,
        side: Side,
        segment: &Segment<'_>,
        sink: &mut impl Sink,
    ) -> Outcome {
        let other = side.other();
        let acknowledged = connection.acknowledged(other);
        let (is_exact, is_in_window) = if connection.state == TcpState::None {
            (self.options.midstream, false)
        } else if connection.has(side, bits::UNKNOWN) {
            // The answer to SYN, or to a segment of a connection that the host does not have.
            let ahead = distance(connection.next(other), segment.acknowledgment);
            let sent = distance(connection.next(other), connection.cold(other).highest).max(0);
            let is_answer =
                (0..=sent).contains(&ahead) || connection.is_refused_again(side, segment);
            (segment.flags & flags::ACK != 0 && is_answer, false)
        } else if connection.state == TcpState::SynSent && connection.marked(side, marks::FAR) {
            // The answer to a challenge of SYN: it resets a connection that the other end has, and this is not (RFC 9293 §3.5.1).
            (
                segment.sequence == connection.next(side),
                segment.sequence == connection.cold(side).far,
            )
        } else {
            let next = connection.next(side);
            let is_last = acknowledged.is_none() && segment.sequence == connection.highest(side);
            // Acknowledgments of what was not captured are ahead of it.
            let expected = acknowledged.map_or(next, |own| latest(own, next));
            // Or they are of what was never sent.
            let is_doubted = connection.marked(side, marks::DOUBTED);
            let is_next = segment.sequence == expected || is_doubted && segment.sequence == next;
            let ahead = distance(acknowledged.unwrap_or(next), segment.sequence);
            let window = connection.window(other).min(DISTANCE_MAX as u32) as i32;
            (is_next || is_last, (0..window).contains(&ahead))
        };
        if connection.state == TcpState::Closed {
            // The one before may have been lost behind this place: it is sent again.
            return if is_exact || is_in_window { Outcome::Accepted } else { Outcome::Ignored };
        }
        let is_accepted = is_exact || is_in_window && self.options.reset_in_window;
        if !is_accepted && is_in_window {
            // What is between may have been lost: the other end challenges it (RFC 5961 §3).
            sink.event(side, Event::ResetInWindow);
            return Outcome::Accepted;
        }
        if !is_accepted {
            sink.event(side, Event::ResetOutOfWindow);
            return Outcome::Ignored;
        }
        if connection.marked(side, marks::DOUBTED) {
            self.settle_doubt(connection, side, segment.sequence, sink);
        }
        self.finish(connection, End::Reset, sink);
        connection.state = TcpState::Closed;
        Outcome::Accepted
    }
}

/// Whether an acknowledgment is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Believed {
    Yes,
    /// Once the other end goes on behind it.
    NotYet,
    No,
}

/// A side of which nothing else is known is at this number.
fn guess(connection: &mut Connection, side: Side, sequence: u32) {
    if connection.has(side, bits::UNKNOWN | bits::GUESSED) {
        connection.base[side.index()] = sequence;
        connection.unset(side, bits::UNKNOWN);
        connection.set(side, bits::GUESSED);
    }
}

/// Keeps the highest acknowledgment by a side; whether it is that.
fn note_acknowledged(connection: &mut Connection, side: Side, acknowledgment: u32) -> bool {
    let at = side.index();
    let is_first = !connection.marked(side, marks::ACKED);
    let is_highest = is_first || is_after(acknowledgment, connection.acked[at]);
    if is_highest {
        connection.mark(side, marks::ACKED);
        connection.acked[at] = acknowledgment;
    }
    is_highest
}

/// Whether data that is not the next begins beyond what the other end has acknowledged and the largest window that it has announced: the
/// last one may be of a segment that came late. Of an unknown scale it is not known.
fn is_beyond(connection: &Connection, side: Side, segment: &Segment<'_>) -> bool {
    let (other, next) = (side.other(), connection.next(side));
    let ahead = distance(next, segment.sequence);
    if ahead <= 0 || segment.is_empty() || connection.cold(other).scale == SCALE_UNKNOWN {
        return false;
    }
    let Some(acknowledged) = connection.acknowledged(other) else { return false };
    let window = connection.window(other).max(connection.cold(other).window_largest);
    let end = latest(acknowledged, next).wrapping_add(window);
    distance(end, segment.sequence) >= 0
}

/// A segment without SYN and RST of a connection that was reset: on its way before its sender has heard of that, or another one.
pub(super) fn after_reset(connection: &Connection, side: Side, segment: &Segment<'_>) -> Outcome {
    let is_known = !connection.has(side, bits::UNKNOWN | bits::GUESSED);
    match segment.flags & flags::ACK != 0 && is_known && is_within(connection, side, segment) {
        true if segment.is_empty() => Outcome::Accepted,
        true => Outcome::Unread,
        false => Outcome::Ignored,
    }
}

/// A side advertises a window.
fn note_window(connection: &mut Connection, side: Side, window: u16) {
    let before = match connection.marked(side, marks::SCALED) {
        true => connection.window(side), // on the fast path
        false => 0,
    };
    connection.window[side.index()] = window;
    connection.mark(side, marks::SCALED);
    let largest = connection.window(side).max(before);
    let cold = connection.cold_mut(side);
    cold.window_largest = cold.window_largest.max(largest);
}

/// Whether an acknowledgment is further behind the last one of its side than the largest window of that reaches: hosts discard
/// the segment (RFC 5961 §5.2). Not judged where the last one acknowledged what was not seen.
fn is_old(connection: &Connection, side: Side, acknowledgment: u32) -> bool {
    let cold = connection.cold(side);
    if cold.scale == SCALE_UNKNOWN
        || !connection.marked(side, marks::ACKED)
        || connection.marked(side.other(), marks::LEAPT)
    {
        return false;
    }
    let before = match connection.marked(side, marks::SCALED) {
        true => connection.window(side),
        false => 0,
    };
    let largest = cold.window_largest.max(before).min(DISTANCE_MAX as u32) as i32;
    // What may never have been sent does not count.
    let last = match connection.marked(side.other(), marks::DOUBTED) {
        true => connection.next(side.other()),
        false => connection.acked[side.index()],
    };
    distance(last, acknowledgment) < -largest
}

/// One beyond the highest sequence number that was seen of a side, which may be behind a hole.
fn seen_end(connection: &Connection, side: Side) -> u32 {
    let (next, highest) = (connection.next(side), connection.cold(side).highest);
    // One that the fast path has left far behind is none.
    let ahead = distance(next, highest);
    if (1..=window_max(connection, side.other())).contains(&ahead) { highest } else { next }
}

/// The handshake is over.
pub(super) fn establish(connection: &mut Connection) {
    for side in Side::BOTH {
        connection.unset(side, bits::OPENING);
    }
    connection.state = connection.state.max(TcpState::Established);
}

/// The later of two sequence numbers. Windows are counted from what was acknowledged or delivered: acknowledgments may be
/// missing from a capture.
fn latest(a: u32, b: u32) -> u32 {
    if is_after(a, b) { a } else { b }
}

/// Bytes that may be between the last acknowledgment by `side` and what the other one sends.
fn window_max(connection: &Connection, side: Side) -> i32 {
    if connection.cold(side).scale == SCALE_UNKNOWN {
        return DISTANCE_MAX;
    }
    let window = connection.window(side).max(WINDOW_MIN);
    window.saturating_mul(2).min(DISTANCE_MAX as u32) as i32
}

/// Whether the numbers of a segment are neither far behind the next one nor beyond the window of the other side.
fn is_within(connection: &Connection, side: Side, segment: &Segment<'_>) -> bool {
    let other = side.other();
    let next = connection.next(side);
    let end = segment.sequence.wrapping_add(segment.len() as u32);
    let (limit, known) = match connection.acknowledged(other) {
        Some(acknowledged) => (window_max(connection, other), latest(acknowledged, next)),
        None => (DISTANCE_MAX, next),
    };
    let ahead = distance(next, segment.sequence);
    ahead > -DISTANCE_MAX && ahead < DISTANCE_MAX && distance(known, end) <= limit
}

/// Whether an acknowledgment is one of the segment of `side` that was far outside of the window.
fn is_confirmed(connection: &Connection, side: Side, acknowledgment: u32) -> bool {
    let ahead = distance(connection.cold(side).far, acknowledgment);
    connection.marked(side, marks::FAR) && (0..FAR_MAX).contains(&ahead)
}
