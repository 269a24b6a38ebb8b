//! The bytes of a side: delivered in place, buffered, served from the buffer, given up.
//!
//! `position` moves here only, and with it what the sink has been given: data, or a gap.

use super::buffer::{Buffer, Found, Part};
use super::connection::{Connection, bits, marks};
use super::policy::Policy;
use super::{End, Event, Reassembler, Sink, Urgent, Want};
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
        loop {
            data = data.behind(connection.place(side));
            if data.bytes.is_empty() || connection.has(side, bits::STOPPED) {
                return;
            }
            if data.place == connection.place(side) {
                return self.take_next(connection, side, data, now_ns, sink);
            }
            if self.try_buffer(connection, side, data, sink) {
                return;
            }
            self.give_up_hole(connection, side, data.place, sink);
        }
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
            let list = connection.cold(side).list;
            let Some(head) = self.buffer.head(list).filter(|head| head.start < end) else {
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
        let used = self.buffer.blocks_used();
        self.buffer.cut_head(&mut connection.cold_mut(side).list, to);
        connection.blocks -= used - self.buffer.blocks_used();
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
        let policy = self.policy_of(connection);
        let mut list = connection.cold(side).list;
        let whole = self.buffer.find(list, data.place, data.end());
        let mut needed = Buffer::blocks_needed(whole, data.bytes.len());
        if data.urgent.is_some() {
            needed += 2 + 2 * 2;
        }
        let of_flow = self.blocks_per_flow.saturating_sub(connection.blocks);
        let free = self.buffer.blocks_free();
        if needed > of_flow.min(free) as usize {
            let counter = if needed > of_flow as usize {
                &mut self.counters.given_up_flow
            } else {
                &mut self.counters.given_up_total
            };
            *counter += 1;
            sink.event(side, Event::GivenUp);
            return false;
        }
        let used = self.buffer.blocks_used();
        let mut found = Found::default();
        for part in data.parts() {
            let place = match data.urgent {
                None => whole,
                Some(_) => self.buffer.find(list, part.start, part.end()),
            };
            let of_part = self.buffer.insert(&mut list, place, &part, policy);
            found.seen += of_part.seen;
            found.new += of_part.new;
            found.is_conflict |= of_part.is_conflict;
        }
        connection.blocks =
            connection.blocks.wrapping_add(self.buffer.blocks_used().wrapping_sub(used));
        connection.cold_mut(side).list = list;
        connection.set(side, bits::BUFFERED);
        self.count(connection, side, data, found, ahead > 0, sink);
        true
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
        while let Some(head) = self.buffer.head(connection.cold(side).list) {
            if head.start != connection.place(side) {
                break;
            }
            let end = head.end();
            let answer =
                emit(self.options.depth, connection, side, head.bytes, head.is_urgent, sink);
            self.drop_head(connection, side, end);
            self.heed(connection, side, answer, sink);
        }
        if connection.cold(side).list.is_empty() {
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
        let head = self.buffer.head(connection.cold(side).list);
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
        let used = self.buffer.blocks_used();
        self.buffer.clear(&mut connection.cold_mut(side).list);
        connection.blocks -= used - self.buffer.blocks_used();
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
        for side in Side::BOTH {
            if connection.marked(side, marks::HELD) {
                self.release_held(connection, side, false, sink);
            }
            let mut to = self.buffer.end(connection.cold(side).list).unwrap_or(0);
            if connection.has(side, bits::FIN) {
                to = to.max(connection.cold(side).fin_place);
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
        let used = self.buffer.blocks_used();
        let is_any = self.buffer.truncate(&mut connection.cold_mut(side).list, from);
        connection.blocks -= used - self.buffer.blocks_used();
        if connection.cold(side).list.is_empty() {
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
