//! Chunks that a stage divides: what comes first retires before the rest goes on.
//!
//! A stage may need to know what became of one packet before it sees the next one: whether a firewall dropped the packet
//! that opened a flow. All packets of a chunk pass its `pre_shade` before any has its verdict, and several chunks are in
//! flight. So the stage [divides](crate::Context::divide) the chunk at the first row that depends on packets before it:
//!
//! ```text
//!  packets  a b c│d e        columns of d, e are kept as the stages before have left them
//!           ─────┘           a b c go on, retire; then d e go on from the stage that divided
//! ```
//!
//! The chunk keeps its place in the order, its version of the tables and its slot: nothing overtakes the rest, and a chunk
//! may be divided as often as it has packets. What comes first may be nothing, where the first row depends on an older chunk.
//!
//! Where only some packets depend on those before them, [these alone](crate::Context::leave) are left behind, so that a chunk with many
//! new flows is divided once. The others overtake them, as they would at other workers: see [`overtake`](super::overtake).
//!
//! ```text
//!  packets  a b A c B C          a b c go on, retire; then A B C; they leave as a b A c B C
//! ```
//!
//! Packets that the stage held, fragments that have become whole, may be [put before](crate::Context::put_before) the rest. They take the
//! chunk's place from the first stage on, one chunk of them after the other, and the rest goes on when they have retired:
//!
//! ```text
//!  a b c │ h h h │ d e       h: held before; d completed them
//! ```

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use chunk::{Arena, Attached, Emitted, Packet, Rows, Verdict, VerdictKind, reasons};

use super::overtake::Apart;
use super::{OwnPipeline, Owned, Worker};
use crate::columns;
use crate::context;
use crate::in_flight::{InFlight, Traced};
use crate::ring::Again;
use crate::stage::{Stage, Versions};

/// How many packets a chunk takes: fewer where chunks are divided, as what is behind the place is copied each time.
#[derive(Debug)]
pub(crate) struct Room {
    packets: usize,
    most: usize,
    is_divided: bool,
}

impl Room {
    /// A chunk has room for so many parts as long as the last one.
    const PARTS: usize = 8;
    const LEAST: usize = 16;

    /// With so many packets at most.
    pub(crate) fn new(most: usize) -> Self {
        Self { packets: most, most, is_divided: false }
    }

    pub(crate) fn packets(&self) -> usize {
        self.packets
    }

    /// A turn begins: it is twice as large again if none was divided in the last one.
    pub(crate) fn begin_turn(&mut self) {
        if !std::mem::take(&mut self.is_divided) {
            self.packets = (2 * self.packets).min(self.most);
        }
    }

    /// A chunk was divided behind so many packets: once says little.
    fn divided(&mut self, packets: usize) {
        let wanted = (Self::PARTS * packets).max(Self::LEAST);
        self.packets = wanted.max(self.packets / 2).min(self.most);
        self.is_divided = true;
    }
}

/// The packets of a chunk that wait for those before them.
#[derive(Default)]
pub(crate) struct Rest {
    /// Where they go on: the segment, and the number of the stage. `None`: there are none.
    pub(crate) at: Option<(usize, usize)>,
    packets: Vec<Packet>,
    /// Packets that go through the pipeline before them.
    before: VecDeque<Packet>,
    emitted: Vec<Emitted>,
    attached: Attached,
    passes: Vec<u8>,
    traced: Vec<Traced>,
    /// Their columns; there for pipelines with a stage that divides.
    rows: Option<Rows>,
    /// How many of them count as received.
    count: usize,
    /// What has overtaken them.
    pub(super) apart: Apart,
}

impl Rest {
    /// Takes what a rest needs, for a chunk.
    pub(crate) fn prepare(&mut self, arena: &Arena) {
        self.rows = arena.reserve(chunk::CHUNK_PACKETS_MAX);
        self.packets.reserve(chunk::CHUNK_PACKETS_MAX);
        self.before.reserve(chunk::CHUNK_PACKETS_MAX);
        self.passes.reserve(chunk::CHUNK_PACKETS_MAX);
        self.apart.prepare();
    }

    /// Its packets, and those of the chunk that have retired and wait for them.
    pub(crate) fn lose(&mut self, lost: &mut Vec<Packet>) {
        lost.append(&mut self.packets);
        lost.extend(self.before.drain(..));
        self.apart.lose(lost);
    }
}

/// Moves the items in the places `left`, in ascending order, to the end of `to`. The others close up.
fn move_out<I>(from: &mut Vec<I>, left: &[u16], to: &mut Vec<I>) {
    let mut left = left.iter().copied().peekable();
    let mut place = 0;
    let is_left = |_: &mut I| {
        let is_it = left.next_if_eq(&place).is_some();
        place += 1;
        is_it
    };
    to.extend(from.extract_if(.., is_left));
}

/// By pipeline: the numbers of the stages that see chunks retire.
pub(super) fn see_retired<T>(
    stages: &[&dyn Stage<T>],
    pipelines: &[OwnPipeline],
    owned: &Owned,
) -> Vec<Box<[usize]>> {
    let sees = |number: &usize| stages[usize::from(owned.stages[*number])].sees_retired();
    pipelines.iter().map(|own| own.stages.clone().filter(sees).collect()).collect()
}

impl<V: Versions> Worker<V> {
    /// Leaves rows from `row` on behind: they go on at the stage `number` once those before have retired, and what the stage puts
    /// before them.
    #[cold]
    pub(super) fn divide(&mut self, flight: &mut InFlight<V>, number: usize, row: usize) {
        let mut before = std::mem::take(&mut self.before);
        let waiting = std::mem::take(&mut self.waiting);
        let is_left = match row < usize::MAX && !waiting.is_empty() {
            true => self.leave_rows(flight, number, row, &waiting),
            false => self.leave_rest(flight, number, row),
        };
        self.waiting = waiting;
        self.waiting.clear();
        if is_left {
            self.room.divided(flight.chunk.rows.len());
            flight.rest.before.extend(before.drain(..));
        }
        // The stage has divided what it must not: they are behind what is in flight.
        let place = self.path.pipelines[flight.pipeline].segments.start as u16;
        for packet in before.drain(..) {
            self.queue_again(Again { packet, place, passes: 1 });
        }
        self.before = before;
    }

    /// Whether there is such a row, and the chunk is not divided already.
    fn leave_rest(&mut self, flight: &mut InFlight<V>, number: usize, row: usize) -> bool {
        let InFlight { chunk, rest, .. } = flight;
        let (rows, Some(kept)) = (chunk.rows.len(), &mut rest.rows) else { return false };
        if row >= rows || rest.at.is_some() {
            return false;
        }
        kept.copy_rows_from(&chunk.rows, row..rows);
        chunk.rows.set_len(row);
        rest.packets.extend(chunk.packets.drain(row..));
        if !flight.passes.is_empty() {
            rest.passes.extend(flight.passes.drain(row..));
        }
        let of_rest = |cause: u16| usize::from(cause) >= row;
        rest.emitted.extend(chunk.emitted.extract_if(.., |e| of_rest(e.cause)));
        rest.emitted.iter_mut().for_each(|e| e.cause -= row as u16);
        chunk.attached.split_off(row, &mut rest.attached);
        rest.apart.split_off(row);
        rest.traced.extend(flight.traced.extract_if(.., |t| t.row >= row));
        rest.traced.iter_mut().for_each(|t| t.row -= row);
        rest.count = flight.count.saturating_sub(row);
        flight.count -= rest.count;
        self.is_left(flight, number);
        true
    }

    /// The rest goes on at the stage `number`, and its packets are counted when it is their turn.
    fn is_left(&self, flight: &mut InFlight<V>, number: usize) {
        let Rest { at, rows, .. } = &mut flight.rest;
        *at = Some((flight.segment, number));
        let local = usize::from(self.owned.stages[number]);
        let count = |rows: &mut Rows| context::count(rows, self.contexts[local]) as u32;
        let of_rest = rows.as_mut().map_or(0, count);
        if let Some(live) = flight.live.last_mut() {
            *live -= of_rest;
        }
    }

    /// The same where rows before `row` are left behind, too.
    fn leave_rows(
        &mut self,
        flight: &mut InFlight<V>,
        number: usize,
        row: usize,
        waiting: &[u16],
    ) -> bool {
        let InFlight { chunk, rest, .. } = flight;
        let (rows, Some(kept)) = (chunk.rows.len(), &mut rest.rows) else { return false };
        let is_row = waiting.last().is_some_and(|last| usize::from(*last) < rows);
        if !is_row || rest.at.is_some() {
            return false;
        }
        let left = &mut self.left;
        left.clear();
        left.extend_from_slice(waiting);
        left.extend((row..rows).map(|row| row as u16));
        let left = &left[..];
        // How many rows before one are left behind, and whether it is.
        let place = |row: usize| {
            let before = left.partition_point(|own| usize::from(*own) < row);
            (before, left.get(before).is_some_and(|own| usize::from(*own) == row))
        };
        rest.apart.leave(left, rows);
        chunk.rows.move_rows(left, kept);
        move_out(&mut chunk.packets, left, &mut rest.packets);
        if !flight.passes.is_empty() {
            move_out(&mut flight.passes, left, &mut rest.passes);
        }
        let of_rest = |e: &mut Emitted| place(usize::from(e.cause)).1;
        rest.emitted.extend(chunk.emitted.extract_if(.., of_rest));
        rest.emitted.iter_mut().for_each(|e| e.cause = place(usize::from(e.cause)).0 as u16);
        chunk.emitted.iter_mut().for_each(|e| e.cause -= place(usize::from(e.cause)).0 as u16);
        chunk.attached.move_rows(left, &mut rest.attached);
        rest.traced.extend(flight.traced.extract_if(.., |t| place(t.row).1));
        rest.traced.iter_mut().for_each(|t| t.row = place(t.row).0);
        flight.traced.iter_mut().for_each(|t| t.row -= place(t.row).0);
        rest.count = place(flight.count).0;
        flight.count -= rest.count;
        self.is_left(flight, number);
        true
    }

    /// The first part of a chunk has retired: packets before the rest, or the rest, take its place.
    #[cold]
    pub(super) fn go_on_with_rest(&mut self, flight: &mut InFlight<V>) {
        if !flight.rest.before.is_empty() {
            return self.go_on_before_rest(flight);
        }
        let InFlight { chunk, rest, .. } = flight;
        if let Some(rows) = flight.spare.take() {
            chunk.rows = rows;
        }
        let Some((segment, _)) = rest.at else { return };
        if let Some(kept) = &mut rest.rows {
            chunk.rows.copy_from(kept);
        }
        chunk.packets.append(&mut rest.packets);
        chunk.emitted.append(&mut rest.emitted);
        std::mem::swap(&mut chunk.attached, &mut rest.attached);
        rest.attached.clear();
        flight.passes.append(&mut rest.passes);
        flight.traced.append(&mut rest.traced);
        flight.count = std::mem::take(&mut rest.count);
        flight.segment = segment;
        flight.wanted = None;
        flight.is_spoilt = false;
        flight.resumes = rest.at.take().map(|(_, number)| number);
        rest.apart.go_on();
    }

    /// The next packets that go before the rest.
    fn go_on_before_rest(&mut self, flight: &mut InFlight<V>) {
        let InFlight { chunk, rest, .. } = flight;
        if let Some(rows) = flight.spare.take() {
            chunk.rows = rows;
        }
        // However small other chunks are: who puts packets here may settle them together, as fragments of one datagram.
        let count = rest.before.len().min(chunk::CHUNK_PACKETS_MAX);
        chunk.packets.extend(rest.before.drain(..count));
        chunk.rows.set_len(count);
        columns::begin(&mut chunk.rows, &self.path.zeroed);
        chunk.attached.clear();
        flight.passes.resize(count, 1);
        rest.apart.go_on_before(count);
        // They were received before.
        flight.count = 0;
        flight.segment = self.path.pipelines[flight.pipeline].segments.start;
        flight.wanted = None;
        flight.is_spoilt = false;
        flight.resumes = None;
        self.reports.counters.again.add(count as u64);
    }

    /// Tells the stages that want to know it that a chunk retires.
    pub(super) fn tell_retired(&mut self, flight: &mut InFlight<V>) {
        if flight.is_spoilt {
            for verdict in flight.chunk.rows.verdicts() {
                if Verdict(*verdict) != Verdict::TAKEN {
                    *verdict = Verdict::drop(reasons::STAGE_PANIC).0;
                }
            }
        }
        for verdict in flight.chunk.rows.verdicts() {
            let own = Verdict(*verdict);
            if own.kind() == VerdictKind::Host && !self.has_host(own.port()) {
                *verdict = Verdict::drop(reasons::HOST_ABSENT).0;
            }
        }
        for at in 0..self.see_retired[flight.pipeline].len() {
            let number = self.see_retired[flight.pipeline][at];
            let Some(pin) = flight.pin.as_ref().filter(|_| !self.gave_up) else { return };
            let local = usize::from(self.owned.stages[number]);
            let now_ns = flight.chunk.time_ns;
            let mut cx =
                context!(self, flight.pipeline, &**pin, V::number(pin), now_ns, &flight.passes);
            let (stage, chunk) = (&mut *self.path.stages[local], &mut flight.chunk);
            let done = catch_unwind(AssertUnwindSafe(|| stage.retired(chunk, &mut cx)));
            if let Err(panic) = done {
                // The packets have their verdicts.
                self.panicked(number, "retired", &*panic, None, 0);
            }
            let now = Instant::now();
            let ns = now.duration_since(self.timed).as_nanos() as u64;
            self.timed = now;
            self.reports.counters.stages[number].busy_ns.add(ns);
        }
        self.settle();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_as_large_as_their_parts_allow() {
        let mut room = Room::new(256);
        let mut after = |parts: &[usize]| {
            room.begin_turn();
            parts.iter().for_each(|packets| room.divided(*packets));
            room.packets()
        };
        assert_eq!(after(&[]), 256);
        assert_eq!(after(&[100]), 256);
        assert_eq!(after(&[2]), 128);
        assert_eq!(after(&[2, 2, 2, 0]), 16);
        assert_eq!(after(&[4]), 32);
        assert_eq!(after(&[]), 32); // of the turn before
        assert_eq!([after(&[]), after(&[]), after(&[]), after(&[])], [64, 128, 256, 256]);
        assert_eq!(Room::new(4).packets(), 4);
        let mut small = Room::new(4);
        small.divided(1);
        assert_eq!(small.packets(), 4);
    }
}
