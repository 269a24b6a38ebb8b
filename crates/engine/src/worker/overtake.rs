//! Packets that overtake others of their chunk, and leave in the order of receipt all the same.
//!
//! A stage may [leave](crate::Context::leave) single packets of a chunk behind until the others have retired. What the others made
//! waits here, and goes when all parts of the chunk have retired:
//!
//! ```text
//!  place    0 1 2 3 4 5
//!  packets  a b A c B C   ─▶ a b c retire ─▶ kept: 0 a, 1 b, 3 c
//!                            A B C retire ─▶ kept: 2 A, 4 B, 5 C ─▶ sent by their places: a b A c B C
//! ```
//!
//! Stages behind see packets in another order then: each sees those that must meet ([`Stage::spread`]) in their order, as if the others
//! were at another worker. So no packet overtakes another one where a stage [needs one worker](Stage::needs_one_worker): sequence
//! numbers of a tunnel, for example, would leave in another order than they were given. Over captures, what depends on all packets,
//! such as a limit to a rate, is left to the gate of the merger, so there is no overtaking without one.
//!
//! A panic over a part of a chunk drops that part; what has overtaken it leaves first.

use std::panic::{AssertUnwindSafe, catch_unwind};

use chunk::{DropReason, Emitted, Packet, Verdict};

use super::{OwnPipeline, Owned, Worker};
use crate::in_flight::InFlight;
use crate::merge::MARK_DEFERRED;
use crate::stage::{Spread, Stage, Versions};

/// A packet that has retired.
struct Done {
    /// Its place in the chunk, or that of the packet for which a stage made it.
    place: u16,
    passes: u8,
    is_emitted: bool,
    verdict: Verdict,
    packet: Packet,
}

/// The parts of a chunk that were taken out of their order.
#[derive(Default)]
pub(super) struct Apart {
    is_on: bool,
    /// By row of the chunk: its place.
    places: Vec<u16>,
    /// The same of its rest.
    left: Vec<u16>,
    done: Vec<Done>,
    /// Places and numbers of these, by which they are sent.
    order: Vec<(u16, u32)>,
    /// How many of them count as received.
    received: usize,
}

impl Apart {
    pub(super) fn prepare(&mut self) {
        self.places.reserve(chunk::CHUNK_PACKETS_MAX);
        self.left.reserve(chunk::CHUNK_PACKETS_MAX);
        self.done.reserve(2 * chunk::CHUNK_PACKETS_MAX);
        self.order.reserve(2 * chunk::CHUNK_PACKETS_MAX);
    }

    /// Whether packets have overtaken others.
    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Rows `rows`, in ascending order, of so many are left behind.
    pub(super) fn leave(&mut self, rows: &[u16], all: usize) {
        if !self.is_on {
            self.is_on = true;
            self.places.clear();
            self.places.extend(0..all as u16);
        }
        self.left.clear();
        let mut next = rows.iter().copied().peekable();
        let mut row = 0;
        let is_left = |_: &mut u16| {
            let is_it = next.next_if_eq(&row).is_some();
            row += 1;
            is_it
        };
        self.left.extend(self.places.extract_if(.., is_left));
    }

    /// All rows from `row` on are left behind.
    pub(super) fn split_off(&mut self, row: usize) {
        if self.is_on {
            self.left.clear();
            self.left.extend(self.places.drain(row..));
        }
    }

    /// The rest takes the place of the chunk.
    pub(super) fn go_on(&mut self) {
        self.places.clear();
        self.places.append(&mut self.left);
    }

    /// So many packets that were held go before the rest.
    pub(super) fn go_on_before(&mut self, count: usize) {
        if self.is_on {
            self.places.clear();
            self.places.resize(count, self.left.first().copied().unwrap_or_default());
        }
    }

    /// A packet that a stage held before goes before those of the chunk.
    #[cold]
    pub(super) fn keep_dropped(&mut self, packet: Packet, reason: DropReason) {
        let place = self.places.first().or(self.left.first()).copied().unwrap_or_default();
        let verdict = Verdict::drop(reason);
        self.done.push(Done { place, passes: 0, is_emitted: false, verdict, packet });
    }

    pub(super) fn lose(&mut self, lost: &mut Vec<Packet>) {
        lost.extend(self.done.drain(..).map(|own| own.packet));
    }
}

/// By stage of a worker that divides chunks: which packets must meet for the others of its pipeline. `None`: it divides none, or
/// another one spreads packets by a hash of its own.
pub(super) fn stages<T>(
    stages: &[&dyn Stage<T>],
    pipelines: &[OwnPipeline],
    owned: &Owned,
) -> Box<[Option<Spread>]> {
    let of = |number: usize| stages[usize::from(owned.stages[number])];
    let mut all = vec![None; stages.len()].into_boxed_slice();
    for own in pipelines {
        for number in own.stages.clone().filter(|number| of(*number).divides()) {
            let others = || own.stages.clone().filter(|other| *other != number).map(of);
            all[usize::from(owned.stages[number])] = others()
                .all(|other| other.spread_hash().is_none())
                .then(|| others().map(|other| other.spread()).max().unwrap_or_default());
        }
    }
    all
}

/// Keeps what a part of a chunk has made. `emitted` is in order of causes.
pub(super) fn keep<V: Versions>(
    flight: &mut InFlight<V>,
    packets: &mut Vec<Packet>,
    emitted: &mut Vec<Emitted>,
) {
    let Apart { places, done, received, .. } = &mut flight.rest.apart;
    if flight.passes.is_empty() && !flight.is_spoilt {
        *received += flight.count;
    }
    let verdicts = flight.chunk.rows.verdicts();
    for (row, packet) in packets.drain(..).enumerate() {
        let passes = flight.passes.get(row).copied().unwrap_or_default();
        let verdict = Verdict(verdicts[row]);
        done.push(Done { place: places[row], passes, is_emitted: false, verdict, packet });
    }
    let last = places.last().copied().unwrap_or_default();
    for Emitted { cause, verdict, packet, .. } in emitted.drain(..) {
        let passes = flight.passes.get(usize::from(cause)).copied().unwrap_or_default();
        let place = places.get(usize::from(cause)).copied().unwrap_or(last);
        done.push(Done { place, passes, is_emitted: true, verdict, packet });
    }
}

impl<V: Versions> Worker<V> {
    /// Which packets must not overtake each other in the `pre_shade` of a stage; `None`: none may overtake another one.
    #[inline]
    pub(super) fn overtakes(
        &self,
        pipeline: usize,
        number: usize,
        tables: &V::Tables,
    ) -> Option<Spread> {
        let spread = self.overtakes[usize::from(self.owned.stages[number])]?;
        let is_in_order = !self.settings.packet_time || self.links.lane.is_some();
        (is_in_order && self.may_be_spread(pipeline, tables)).then_some(spread)
    }

    /// Whether any number of workers gives the same answer. Not if a stage panics when it is asked.
    fn may_be_spread(&self, pipeline: usize, tables: &V::Tables) -> bool {
        let mut stages = self.path.pipelines[pipeline].stages.clone();
        let all = || {
            stages.all(|number| {
                let local = usize::from(self.owned.stages[number]);
                self.path.stages[local].needs_one_worker(tables).is_none()
            })
        };
        catch_unwind(AssertUnwindSafe(all)).unwrap_or(false)
    }

    /// Sends what has overtaken others, by their places.
    pub(super) fn send_apart(&mut self, flight: &mut InFlight<V>) {
        let apart = &mut flight.rest.apart;
        if apart.done.is_empty() {
            return;
        }
        let mut received = std::mem::take(&mut apart.received);
        let mut done = std::mem::take(&mut apart.done);
        let mut order = std::mem::take(&mut apart.order);
        order.clear();
        // Of one place: a packet, then what was made for it.
        order.extend(done.iter().zip(0..).map(|(own, number)| (own.place, number)));
        order.sort_unstable();
        let mut all = order.iter().peekable();
        while let Some((place, number)) = all.next() {
            let Some(Done { passes, is_emitted, verdict, packet, .. }) =
                done.get_mut(*number as usize)
            else {
                continue;
            };
            self.passes_now = *passes;
            let packet = std::mem::replace(packet, Packet::empty());
            match &mut self.links.lane {
                Some(lane) if *is_emitted && packet.mark & MARK_DEFERRED != 0 => {
                    lane.put(packet, *verdict);
                }
                _ => self.dispose(packet, *verdict),
            }
            if received > 0 && all.peek().is_none_or(|next| next.0 != *place) {
                received -= 1;
                self.retired_on_lane(1);
            }
        }
        done.clear();
        self.passes_now = 0;
        self.retired_on_lane(received);
        if self.links.lane.is_some() {
            self.hand_in();
        }
        let apart = &mut flight.rest.apart;
        (apart.done, apart.order) = (done, order);
    }

    /// All parts of a chunk have retired.
    #[inline]
    pub(super) fn end_apart(&mut self, flight: &mut InFlight<V>) {
        if flight.rest.apart.is_on {
            self.send_apart(flight);
            flight.rest.apart.is_on = false;
            flight.rest.apart.places.clear();
        }
    }
}
