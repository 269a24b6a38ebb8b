//! The bytes of a side: delivered in place, buffered, served from the buffer, given up.
//!
//! When memory is short, what is farthest ahead of the next byte is not kept, and the hole in front stays: its bytes are the
//! ones that the sender repeats first.
//!
//! `position` moves here only, and with it what the sink has been given: data, or a gap.

use super::buffer::{Buffer, Found, Part, Place};
use super::connection::{Connection, bits, distance, marks};
use super::policy::Policy;
use super::{End, Event, Full, Reassembler, Sink, Urgent, Want};
use crate::key::Side;

/// Data of a segment at its place. It does not reach beyond FIN, and begins at or after the next byte.
#[derive(Clone, Copy)]
pub(super) struct Data<'a> {
    pub(super) place: u64,
    pub(super) bytes: &'a [u8],
    /// Index of an urgent byte.
    pub(super) urgent: Option<usize>,
    /// Some bytes before `place` were seen and are cut off.
    pub(super) is_cut: bool,
}

impl<'a> Data<'a> {
    fn end(&self) -> u64 {
        self.place + self.bytes.len() as u64
    }

    /// The bytes from a place on.
    fn behind(mut self, place: u64) -> Self {
        let cut = usize::try_from(place.saturating_sub(self.place)).unwrap_or(usize::MAX);
        if cut > 0 {
            self.bytes = self.bytes.get(cut..).unwrap_or_default();
            self.urgent = self.urgent.and_then(|at| at.checked_sub(cut));
            self.place = place;
            self.is_cut = true;
        }
        self
    }

    /// All of it, or the bytes before the urgent one, that one, and those behind it.
    fn parts(self) -> impl Iterator<Item = Part<'a>> {
        let len = self.bytes.len();
        let urgent = self.urgent.unwrap_or(len).min(len);
        let cuts = [(0, urgent), (urgent, (urgent + 1).min(len)), ((urgent + 1).min(len), len)];
        let bounds = self.place..self.end();
        cuts.into_iter().enumerate().filter(|(_, (from, to))| from < to).map(
            move |(index, (from, to))| Part {
                start: bounds.start + from as u64,
                bytes: &self.bytes[from..to],
                is_urgent: index == 1,
                bounds: bounds.clone(),
            },
        )
    }
}

impl Reassembler {
    fn policy_of(&self, connection: &Connection) -> Policy {
        connection.policy().unwrap_or(self.options.policy)
    }

    /// Takes data that is not only a repetition: delivers or buffers it.
    pub(super) fn take(
        &mut self,
        connection: &mut Connection,
        side: Side,
        data: Data<'_>,
        now_ns: u64,
        sink: &mut impl Sink,
    ) {
        let mut data = data;
        if self.options.urgent == Urgent::Inline {
            data.urgent = None;
        }
        self.hear_lost(connection, sink);
        data = data.behind(connection.place(side));
        if data.bytes.is_empty() || connection.has(side, bits::STOPPED) {
            return;
        }
        if data.place == connection.place(side) {
            return self.take_next(connection, side, data, now_ns, sink);
        }
        self.try_buffer(connection, side, data, sink);
    }

    /// Data that begins with the next byte: its own bytes and those that are buffered, as the policy decides; then what
    /// follows in the buffer.
    fn take_next(
        &mut self,
        connection: &mut Connection,
        side: Side,
        data: Data<'_>,
        now_ns: u64,
        sink: &mut impl Sink,
    ) {
        let before = connection.offset(side);
        let mut found = Found::default();
        for part in data.parts() {
            self.merge(connection, side, &part, &mut found, sink);
            if connection.has(side, bits::STOPPED) {
                return;
            }
        }
        connection.time_data(side, before, now_ns);
        self.count(connection, side, data, found, false, sink);
        self.serve(connection, side, sink);
    }

    fn merge(
        &mut self,
        connection: &mut Connection,
        side: Side,
        part: &Part<'_>,
        found: &mut Found,
        sink: &mut impl Sink,
    ) {
        let policy = self.policy_of(connection);
        let end = part.end();
        loop {
            let place = connection.place(side);
            if place >= end || connection.has(side, bits::STOPPED) {
                return;
            }
            let head = self.buffer.head(connection.waiting, side);
            let Some(head) = head.filter(|head| head.start < end) else {
                found.new += end - place;
                self.emit(connection, side, part.range(place..end), part.is_urgent, sink);
                continue;
            };
            if head.start > place {
                found.new += head.start - place;
                let bytes = part.range(place..head.start);
                self.emit(connection, side, bytes, part.is_urgent, sink);
                continue;
            }
            let to = head.end().min(end);
            let old = &head.bytes[..(to - place) as usize];
            let new = part.range(place..to);
            found.seen += to - place;
            found.is_conflict |= old != new || head.is_urgent != part.is_urgent;
            let answer = if policy.new_wins(&part.bounds, &head.bounds) {
                emit(self.options.depth, connection, side, new, part.is_urgent, sink)
            } else {
                emit(self.options.depth, connection, side, old, head.is_urgent, sink)
            };
            self.drop_head(connection, side, to);
            self.heed(connection, side, answer, sink);
        }
    }

    fn drop_head(&mut self, connection: &mut Connection, side: Side, to: u64) {
        self.buffer.cut_head(&mut connection.waiting, side, to);
    }

    /// Copies data that is behind a hole, or data of SYN; `false` if there is no room.
    pub(super) fn try_buffer(
        &mut self,
        connection: &mut Connection,
        side: Side,
        mut data: Data<'_>,
        sink: &mut impl Sink,
    ) -> bool {
        // Bytes beyond the depth are never delivered.
        let left = self.options.depth.saturating_sub(connection.offset(side));
        let ahead = data.place - connection.place(side);
        let room = usize::try_from(left.saturating_sub(ahead)).unwrap_or(usize::MAX);
        data.bytes = &data.bytes[..room.min(data.bytes.len())];
        data.urgent = data.urgent.filter(|&at| at < data.bytes.len());
        if left == 0 {
            self.stop(connection, side, End::Depth, sink);
        }
        if data.bytes.is_empty() {
            return true;
        }
        let Some(whole) = self.make_room(connection, side, data, sink) else {
            self.buffer.settle(&mut connection.waiting);
            return false;
        };
        let policy = self.policy_of(connection);
        let mut found = Found::default();
        for part in data.parts() {
            let place = match data.urgent {
                None => whole,
                Some(_) => self.buffer.find(connection.waiting, side, part.start, part.end()),
            };
            let of_part = self.buffer.insert(connection.waiting, side, place, &part, policy);
            found.seen += of_part.seen;
            found.new += of_part.new;
            found.is_conflict |= of_part.is_conflict;
        }
        connection.set(side, bits::BUFFERED);
        self.count(connection, side, data, found, ahead > 0, sink);
        true
    }

    /// Where data belongs, when there is room for it; `None` if it is not kept.
    #[inline(always)]
    fn make_room(
        &mut self,
        connection: &mut Connection,
        side: Side,
        data: Data<'_>,
        sink: &mut impl Sink,
    ) -> Option<Place> {
        if self.buffer.hold(&mut connection.waiting) {
            let (start, end) = (data.place, data.end());
            let place = self.buffer.find(connection.waiting, side, start, end);
            let need = Buffer::need(place, data.bytes.len(), data.urgent.is_some());
            let held = self.buffer.units_of(connection.waiting);
            if self.buffer.cost(need).is_some_and(|cost| held + cost <= self.units_per_flow) {
                return Some(place);
            }
        }
        self.give_way(connection, side, data, sink)
    }

    /// The same when there is no room: what is farthest ahead gives way, of the connection itself if it has its share, else of
    /// the one that holds most. That is the new data, if the connection would be that one and has nothing farther ahead.
    #[cold]
    #[inline(never)]
    fn give_way(
        &mut self,
        connection: &mut Connection,
        side: Side,
        data: Data<'_>,
        sink: &mut impl Sink,
    ) -> Option<Place> {
        let mut is_said = [false; 2];
        loop {
            let is_held = self.buffer.hold(&mut connection.waiting);
            let (own, end) = (connection.waiting, data.end());
            let place = self.buffer.find(own, side, data.place, end);
            let need = Buffer::need(place, data.bytes.len(), data.urgent.is_some());
            let held = self.buffer.units_of(own);
            let cost = self.buffer.cost(need);
            let has_share = held + cost.unwrap_or(need.least()) <= self.units_per_flow;
            if has_share && is_held && cost.is_some() {
                return Some(place);
            }
            *match has_share {
                true => &mut self.counters.given_up_total,
                false => &mut self.counters.given_up_flow,
            } += 1;
            let wanted = held + need.least();
            let most = self.buffer.greatest().filter(|_| has_share && self.keeps_nearest());
            let other = most.filter(|&most| most != own && self.buffer.units_of(most) > wanted);
            if let Some(other) = other {
                let [a, b] = Side::BOTH.map(|side| self.buffer.units_of_side(other, side));
                let of = if a >= b { Side::A } else { Side::B };
                let lost = self.buffer.cut_tail(other, of)?;
                self.buffer.tell_lost(other, of, lost);
                continue;
            }
            let [mine, others] =
                [side, side.other()].map(|side| self.buffer.units_of_side(own, side));
            let of = if others > mine + need.least() { side.other() } else { side };
            let is_farther = of != side || self.buffer.last(own, of) > Some(data.place);
            let cut = match is_farther && self.keeps_nearest() {
                true => self.buffer.cut_tail(own, of),
                false => None,
            };
            let (of, lost) = cut.map_or((side, end), |lost| (of, lost));
            let cold = connection.cold_mut(of);
            cold.lost_end = cold.lost_end.max(lost);
            if !std::mem::replace(&mut is_said[of.index()], true) {
                sink.event(of, Event::GivenUp);
            }
            cut?;
        }
    }

    fn keeps_nearest(&self) -> bool {
        self.options.full == Full::KeepNearest
    }

    /// Says what was given up for other connections since the last segment.
    #[inline(always)]
    fn hear_lost(&mut self, connection: &mut Connection, sink: &mut impl Sink) {
        let Some(lost) = self.buffer.take_lost(connection.waiting) else { return };
        for (side, lost) in Side::BOTH.into_iter().zip(lost).filter(|(_, lost)| *lost > 0) {
            let cold = connection.cold_mut(side);
            cold.lost_end = cold.lost_end.max(lost);
            sink.event(side, Event::GivenUp);
        }
    }

    fn count(
        &mut self,
        connection: &mut Connection,
        side: Side,
        data: Data<'_>,
        found: Found,
        is_ahead: bool,
        sink: &mut impl Sink,
    ) {
        let is_overlap = found.new > 0 && (found.seen > 0 || data.is_cut);
        let is_repeated = found.new == 0;
        let cold = connection.cold_mut(side);
        cold.retransmissions = cold.retransmissions.saturating_add(u32::from(is_repeated));
        cold.overlaps = cold.overlaps.saturating_add(u32::from(is_overlap));
        cold.out_of_order = cold.out_of_order.saturating_add(u32::from(is_ahead && found.new > 0));
        if is_repeated {
            sink.event(side, Event::Retransmission);
        }
        if is_repeated || is_overlap {
            connection.rtt_start_ns[side.index()] = 0; // Karn: whose acknowledgment follows is unknown.
        }
        if found.is_conflict {
            let cold = connection.cold_mut(side);
            cold.conflicts = cold.conflicts.saturating_add(1);
            sink.event(side, Event::Conflict);
        }
    }

    /// Delivers what is buffered at the next byte, and FIN if it is there.
    pub(super) fn serve(&mut self, connection: &mut Connection, side: Side, sink: &mut impl Sink) {
        if connection.marked(side, marks::HELD) {
            return;
        }
        while let Some(head) = self.buffer.head(connection.waiting, side) {
            if head.start != connection.place(side) {
                break;
            }
            let end = head.end();
            let answer =
                emit(self.options.depth, connection, side, head.bytes, head.is_urgent, sink);
            self.drop_head(connection, side, end);
            self.heed(connection, side, answer, sink);
        }
        if self.buffer.is_empty(connection.waiting, side) {
            self.buffer.settle(&mut connection.waiting);
            connection.unset(side, bits::BUFFERED);
        }
        self.pass_fin(connection, side, sink);
    }

    /// The first hole of a side is given up, at most to the place `to`.
    fn give_up_hole(
        &mut self,
        connection: &mut Connection,
        side: Side,
        to: u64,
        sink: &mut impl Sink,
    ) {
        let head = self.buffer.head(connection.waiting, side);
        let to = head.map_or(to, |head| head.start.min(to));
        self.lose(connection, side, to, sink);
        self.serve(connection, side, sink);
    }

    /// Gives up all holes before the place `to`, and before FIN.
    pub(super) fn give_up(
        &mut self,
        connection: &mut Connection,
        side: Side,
        to: u64,
        sink: &mut impl Sink,
    ) {
        let fin_place = connection.cold(side).fin_place;
        let to = if connection.has(side, bits::FIN) { to.min(fin_place) } else { to };
        while connection.place(side) < to && !connection.has(side, bits::STOPPED) {
            self.give_up_hole(connection, side, to, sink);
        }
    }

    /// A gap from the next byte to the place `to`.
    fn lose(&mut self, connection: &mut Connection, side: Side, to: u64, sink: &mut impl Sink) {
        let bytes = to.saturating_sub(connection.place(side));
        if bytes == 0 {
            return;
        }
        let offset = connection.offset(side);
        connection.position[side.index()] += bytes;
        connection.rtt_start_ns[side.index()] = 0;
        let cold = connection.cold_mut(side);
        cold.gaps = cold.gaps.saturating_add(1);
        cold.gap_bytes += bytes;
        sink.gap(side, offset, bytes);
    }

    fn emit(
        &mut self,
        connection: &mut Connection,
        side: Side,
        bytes: &[u8],
        is_urgent: bool,
        sink: &mut impl Sink,
    ) {
        let answer = emit(self.options.depth, connection, side, bytes, is_urgent, sink);
        self.heed(connection, side, answer, sink);
    }

    fn heed(
        &mut self,
        connection: &mut Connection,
        side: Side,
        answer: Answer,
        sink: &mut impl Sink,
    ) {
        if !matches!(answer.want, Want::More | Want::PassOver) {
            self.enough(connection, side, answer.want, sink);
        }
        if answer.beyond > 0 {
            self.stop(connection, side, End::Depth, sink);
            connection.position[side.index()] += answer.beyond;
        }
    }

    /// The sink had enough of a side, or of both.
    #[cold]
    #[inline(never)]
    pub(super) fn enough(
        &mut self,
        connection: &mut Connection,
        side: Side,
        want: Want,
        sink: &mut impl Sink,
    ) {
        self.stop(connection, side, End::Enough, sink);
        if want == Want::EnoughOfFlow {
            self.stop(connection, side.other(), End::Enough, sink);
        }
    }

    /// Nothing more of a side is delivered; what it has in the buffer is dropped.
    pub(super) fn stop(
        &mut self,
        connection: &mut Connection,
        side: Side,
        end: End,
        sink: &mut impl Sink,
    ) {
        self.buffer.clear(&mut connection.waiting, side);
        connection.unset(side, bits::BUFFERED);
        connection.unmark(side, marks::HELD);
        connection.set(side, bits::STOPPED);
        self.report_end(connection, side, end, sink);
    }

    pub(super) fn report_end(
        &mut self,
        connection: &mut Connection,
        side: Side,
        end: End,
        sink: &mut impl Sink,
    ) {
        if !connection.has(side, bits::FINISHED) {
            connection.set(side, bits::FINISHED);
            sink.end(side, connection.offset(side), end);
        }
    }

    /// Delivers all that is left, with the gaps before it, and ends both sides.
    pub(super) fn finish(&mut self, connection: &mut Connection, end: End, sink: &mut impl Sink) {
        self.hear_lost(connection, sink);
        for side in Side::BOTH {
            if connection.marked(side, marks::HELD) {
                self.release_held(connection, side, false, sink);
            }
            let mut to = self.buffer.end(connection.waiting, side).unwrap_or(0);
            to = to.max(connection.cold(side).lost_end);
            if connection.has(side, bits::FIN) {
                to = to.max(connection.cold(side).fin_place);
            }
            if connection.marked(side, marks::DOUBTED) && self.options.acknowledged_is_lost {
                // It may have been the last.
                let acknowledged = connection.acked[side.other().index()];
                let ahead = distance(connection.next(side), acknowledged).max(0);
                to = to.max(connection.place(side) + u64::from(ahead.unsigned_abs()));
            }
            self.give_up(connection, side, to, sink);
        }
        for side in Side::BOTH {
            self.stop(connection, side, end, sink);
        }
    }

    /// Data of SYN is accepted or not.
    pub(super) fn release_held(
        &mut self,
        connection: &mut Connection,
        side: Side,
        is_accepted: bool,
        sink: &mut impl Sink,
    ) {
        connection.unmark(side, marks::HELD);
        if !is_accepted {
            self.truncate(connection, side, 0);
        }
        self.serve(connection, side, sink);
    }

    /// Drops what is buffered from a place on; whether there was any.
    pub(super) fn truncate(&mut self, connection: &mut Connection, side: Side, from: u64) -> bool {
        let cold = connection.cold_mut(side);
        let had_lost = cold.lost_end > from;
        cold.lost_end = cold.lost_end.min(from);
        let is_any = self.buffer.truncate(&mut connection.waiting, side, from) | had_lost;
        if self.buffer.is_empty(connection.waiting, side) {
            connection.unset(side, bits::BUFFERED);
        }
        is_any
    }
}

/// What a sink answered, and the bytes beyond the depth, which it was not given.
struct Answer {
    want: Want,
    beyond: u64,
}

/// Delivers bytes that are next.
fn emit(
    depth: u64,
    connection: &mut Connection,
    side: Side,
    bytes: &[u8],
    is_urgent: bool,
    sink: &mut impl Sink,
) -> Answer {
    if is_urgent {
        connection.skip(side, bytes.len() as u64);
        return Answer { want: Want::More, beyond: 0 };
    }
    let offset = connection.offset(side);
    let room = usize::try_from(depth.saturating_sub(offset)).unwrap_or(usize::MAX);
    let (within, beyond) = bytes.split_at(room.min(bytes.len()));
    connection.position[side.index()] += within.len() as u64;
    let want = if within.is_empty() { Want::More } else { sink.data(side, offset, within) };
    Answer { want, beyond: beyond.len() as u64 }
}
