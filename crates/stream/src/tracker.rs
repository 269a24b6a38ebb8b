//! Follows the flows of one worker: from decoded packets to connections, their byte streams, and a record of each.
//!
//! ```text
//!  batch ─▶ fragments ─▶ keys ─▶ FlowTable::lookup ─▶ row by row: counts ─▶ Reassembler ─▶ Module
//!           (defrag)             all rows at once      (time-out, TCP)       in order
//! ```
//!
//! When a flow ends does not depend on when the table is swept, on batches, or on what other workers do: a flow ends with
//! its last packet plus the time-out of its state, whether a sweep finds it later or a packet of the next flow with the same
//! key comes first. So any number of workers, over batches of any size, report the same flows, as long as no table is full.
//! Time is that of each packet. It may run back: a packet that is earlier than others before it ends no flow, and its flow is not
//! idle before it is so by the latest time. Who sweeps at a time before which no packet comes any more keeps the promise above.
//! In the same way a flow that goes on is reported at fixed times after its start, as it was
//! then: by a sweep, or by its next packet, whichever comes first.
//!
//! | module | holds |
//! | --- | --- |
//! | `input` | packets: to which flow they belong |
//! | `ending` | the end of all flows |
//! | `errors` | ICMP errors: the flows that they are about |
//! | `flows` | what is kept of flows beside the table |
//! | `gather` | the rows that are looked up together, and their keys |
//! | `module` | who is given streams and records |
//! | `numbers` | packets of connections that somebody knows by a number |
//! | `passing` | flows that the module passes over |
//! | `pieces` | fragments, where flows are tracked for a firewall |
//! | `sharing` | packets that are known to be of one flow |
//! | `sweep` | ends what is idle, and reports what goes on |
//! | `timeouts` | how long flows are kept |
//! | `tracked` | what becomes of a packet |
//! | `waiting` | packets that others overtake, where flows are tracked for a firewall |
//! | `whole` | a datagram out of fragments |
//!
//! Threads: a tracker belongs to one worker.

mod ending;
mod errors;
mod flows;
mod gap;
mod gather;
mod input;
mod module;
mod numbers;
mod passing;
mod pieces;
mod sharing;
mod sweep;
#[cfg(test)]
mod tests;
mod timeouts;
mod tracked;
mod visit;
mod waiting;
mod whole;

use packet::checksum::Checksums;
use packet::{Anomaly, Decoded, IpProtocol, tunnel};

use crate::defrag::{self, Defragmenter};
use crate::helper::{self, Helpers};
use crate::key::{FlowKey, Side};
use crate::record::{FlowState, Reason};
use crate::table::{Class, FlowTable, Found, Handle, Limits, Outcome, Slot, TableError};
use crate::tcp::{self, Reassembler};

use flows::{Admission, Hot, Rest};
use gather::{Gathered, is_piece};
use input::{check_segment, has_odd_flags, is_encapsulated, opens, segment_of};
use passing::Passing;
use pieces::Pieces;
use sharing::Sharing;
use timeouts::{Phase, ms_of};
use waiting::Waiting;
use whole::Whole;

pub use input::{Input, Reject, checked_segment};
pub use module::{Fragments, Identity, Module, OfFlow, Passed, Unseen};
pub use numbers::NO_NUMBER;
pub use sharing::NO_GROUP;
pub use timeouts::{IDLE_NS, IdleTimeouts};
pub use tracked::{PacketState, Tracked, TrackedFlow};
pub use waiting::Overtaking;

/// Bounds and policies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Flows at most.
    pub flows: usize,
    /// Of them without an answer.
    pub half_open: usize,
    /// Idle time-outs.
    pub timeouts: IdleTimeouts,
    /// How often a flow that goes on is reported, in nanoseconds: see [`Module::goes_on`]. `None`: never.
    pub active_ns: Option<u64>,
    /// TCP; its buffer is taken at creation.
    pub tcp: tcp::Options,
    /// Fragments.
    pub defrag: defrag::Config,
    /// Whether flows of different VLANs are different.
    pub by_vlan: bool,
    /// The tunnels that the caller looks into.
    pub tunnels: tunnel::Kinds,
    /// Key of the table's hash.
    pub seed: u64,
    /// Helpers, where flows are tracked for a firewall.
    pub helpers: helper::Options,
    /// Whether a flow counts only once its first packet got through, and packets that no flow may begin with begin none: as
    /// a firewall needs it. Who sets it calls [`Tracker::decide`].
    pub confirms: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            flows: 1 << 18,
            half_open: 1 << 17,
            timeouts: IdleTimeouts::default(),
            active_ns: None,
            tcp: tcp::Options::default(),
            defrag: defrag::Config::default(),
            by_vlan: false,
            tunnels: tunnel::Kinds::NONE,
            seed: 0,
            helpers: helper::Options::default(),
            confirms: false,
        }
    }
}

/// What was not followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Flows that began.
    pub flows: u64,
    /// Flows that ended because they were idle.
    pub timed_out: u64,
    /// Packets of flows.
    pub packets: u64,
    /// Of them ICMP errors about flows, which no record counts.
    pub errors: u64,
    /// Frames that are not IP.
    pub not_ip: u64,
    /// Of them those with MPLS, PPPoE or more than two VLAN tags, which may have IP behind.
    pub encapsulated: u64,
    /// Packets whose IP header is wrong, or whose upper-layer header is missing or wrong.
    pub malformed: u64,
    /// Packets with a wrong checksum of IPv4 or TCP.
    pub checksum: u64,
    /// Packets that were not captured to their end; the caller [counts](Tracker::count_cut) them.
    pub cut: u64,
    /// Packets for whose flow there was no place.
    pub no_room: u64,
    /// Packets that were earlier than one before them by more than [`LATE_NS`].
    pub late: u64,
    /// Flows that began with such a packet.
    pub late_flows: u64,
    /// Fragments.
    pub fragments: u64,
    /// Fragments that did not become a datagram.
    pub fragments_lost: u64,
    /// Packets out of tunnels.
    pub tunnelled: u64,
    /// Of them those with a tunnel inside that was not looked into, because there were too many around it.
    pub tunnels_too_deep: u64,
    /// Datagrams of tunnels that came in fragments: they are not looked into.
    pub tunnels_in_fragments: u64,
}

/// What looking at a flow that goes on costs in a sweep, in records.
const WALK_RECORDS: usize = 8;

/// How many rows before their turn flows are asked for, at once: their searches for pages overlap then, where one prefetch among
/// the work of a packet waits for its own. Of 10 million flows, 32 at once make 8.5 Mpps, 16 make 8.0, one by one 5.3.
const AHEAD: usize = 32;

/// And the bytes of a packet that are likely to be copied.
const NEAR: usize = 8;

/// And what waits of its connection.
const NEAREST: usize = 4;

/// Packets that are looked up together are no further apart: the table has one time for them, and a sweep finds an idle flow
/// that much later at most.
pub const SPAN_NS: u64 = 250_000_000;

/// In captures the time may run back: they are merged, or the clock was set. Who sweeps so much behind the latest packet has the same
/// flows and events, in the same order, with any number of workers, if no packet is [later](Counts::late) than that.
pub const LATE_NS: u64 = 10_000_000_000;

/// Flows of one worker.
pub struct Tracker<M: Module> {
    table: FlowTable<Hot>,
    rest: Rest<M>,
    defrag: Defragmenter<u32>,
    pieces: Pieces,
    /// Datagrams that became whole: their bytes, one after the other.
    whole: Whole,
    rows: Vec<Row>,
    keys: Vec<FlowKey>,
    found: Vec<Found>,
    /// Places of the batch that may have no flow.
    voids: Vec<Slot>,
    /// Packets of the batch that were not taken.
    waiting: Waiting,
    options: Options,
    passing: Passing,
    sharing: Sharing,
    counts: Counts,
    /// Packets by the number of their state.
    states: [u64; 8],
    /// Where the walk over flows that go on is; `None` between two of them.
    walk: Option<u32>,
    /// The latest time of a packet.
    latest_ns: u64,
    /// All of the table was swept after this time; `None` before the first packet.
    crossed_ns: Option<u64>,
    /// When sweeps by pieces last came to the end of the table.
    round_ns: Option<u64>,
}

/// What is known of a row of the batch, beside its key.
#[derive(Clone, Copy, Default)]
struct Row {
    side: Side,
    /// It is an ICMP error about a packet of that flow, sent by that side, with this sequence number if it is of TCP.
    about: Option<Option<u32>>,
    /// It belongs to no flow; its key is none.
    none: Option<Unkeyed>,
    /// The checksum of its segment is not verified yet.
    is_unchecked: bool,
    /// Its flow passes it over, and it is done.
    is_taken: bool,
}

impl Row {
    /// Nothing is known.
    const NONE: Self =
        Self { side: Side::A, about: None, none: None, is_unchecked: false, is_taken: false };
}

/// Why a packet has no flow that could be looked up.
#[derive(Clone, Copy)]
enum Unkeyed {
    Rejected(Reject),
    /// An ICMP error that quotes nothing of a flow.
    AboutNothing,
}

impl<M: Module> Tracker<M> {
    /// Takes memory for all flows and the buffers of TCP and fragments.
    ///
    /// # Errors
    /// There is not so much, or a bound is out of range.
    pub fn new(options: Options, module: M) -> Result<Self, TableError> {
        let limits = Limits { capacity: options.flows, half_open_max: options.half_open };
        let table = FlowTable::new(limits, options.seed)?;
        let resynchronise = options.tcp.resynchronise && !options.confirms;
        let reassembler = Reassembler::new(tcp::Options { resynchronise, ..options.tcp });
        let rest = Rest::new(&options, reassembler, module)?;
        Ok(Self {
            table,
            rest,
            defrag: Defragmenter::new(options.defrag),
            pieces: Pieces::new(options.seed, &options.defrag),
            whole: Whole::default(),
            rows: Vec::new(),
            keys: Vec::new(),
            found: Vec::new(),
            voids: Vec::new(),
            waiting: Waiting::default(),
            options,
            passing: Passing::default(),
            sharing: Sharing::default(),
            counts: Counts::default(),
            states: [0; 8],
            walk: None,
            latest_ns: 0,
            crossed_ns: None,
            round_ns: None,
        })
    }

    /// Memory that [`Tracker::new`] reserves, in bytes.
    pub fn memory_bytes(options: &Options) -> usize {
        FlowTable::<Hot>::memory_bytes(options.flows)
            + Rest::<M>::memory_bytes(options.flows)
            + options.tcp.buffer_bytes
            + Reassembler::memory_bytes_beside(&options.tcp)
            + options.defrag.bytes
            + Helpers::memory_bytes(options.helpers)
    }

    /// Flows that are followed now.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Packets by state, each with its number.
    pub fn states(&self) -> [(PacketState, u64); 5] {
        PacketState::ALL.map(|state| (state, self.states[state as usize]))
    }

    /// Counts a packet by its state. Who uses the states does.
    #[inline(always)]
    pub fn count_states(&mut self, packets: &[u64; 8]) {
        self.states.iter_mut().zip(packets).for_each(|(all, own)| *all += own);
    }

    /// Counts packets of which the capture has a part only. Who decodes them knows.
    #[cold]
    pub fn count_cut(&mut self, packets: usize) {
        self.counts.cut += packets as u64;
    }

    /// Changes [`Options::confirms`]; a flow that is not decided yet stays so.
    pub fn set_confirms(&mut self, confirms: bool) {
        self.options.confirms = confirms;
        self.rest.reassembler.set_resynchronise(!confirms);
        self.rest.helpers.set_on(confirms);
    }

    /// Whether every packet passes, so that none is missing: see [`tcp::Options::resynchronise`]. With [`Options::confirms`] it is
    /// so.
    pub fn set_complete(&mut self, is_complete: bool) {
        self.rest.reassembler.set_resynchronise(!is_complete && !self.options.confirms);
    }

    /// Both ends of the flow in a place.
    pub fn key(&self, slot: Slot) -> Option<FlowKey> {
        self.table.key(slot).copied()
    }

    /// What was counted.
    pub fn counts(&self) -> Counts {
        Counts { timed_out: self.rest.timed_out, ..self.counts }
    }

    /// What helpers counted.
    pub fn helper_counts(&self) -> helper::Counts {
        self.rest.helpers.counts()
    }

    /// The table's counts.
    pub fn statistics(&self) -> crate::table::Statistics {
        self.table.statistics()
    }

    /// Segments that were not kept for lack of memory.
    pub fn given_up(&self) -> tcp::Counters {
        self.rest.reassembler.counters()
    }

    /// Bytes of segments that wait for others.
    pub fn buffered_bytes(&self) -> usize {
        self.rest.reassembler.buffer_bytes_used()
    }

    /// The module.
    pub fn module(&mut self) -> &mut M {
        &mut self.rest.module
    }

    /// Takes a batch of packets, in the order of their arrival, and says of each what it is. Returns how many it has taken:
    /// with [`Options::confirms`] it stops before a packet of a flow that is not decided yet, and goes on there with the next
    /// batch. If others may [overtake](Tracker::let_overtake) it, it is among those that are [waiting](Tracker::waiting).
    pub fn packets<'a>(
        &mut self,
        count: usize,
        input: impl Fn(usize) -> Input<'a>,
        output: impl FnMut(usize, Tracked),
    ) -> usize {
        let taken = self.take(count, input, output);
        self.end_sharing();
        taken
    }

    /// See [`Tracker::packets`].
    #[inline(always)]
    fn take<'a>(
        &mut self,
        count: usize,
        input: impl Fn(usize) -> Input<'a>,
        mut output: impl FnMut(usize, Tracked),
    ) -> usize {
        let mut first = 0;
        self.waiting.begin();
        while first < count {
            let own = input(first);
            if is_piece(&own) {
                let tracked = match self.options.confirms {
                    true => self.piece_of_flow(first, &own),
                    false => {
                        self.rest.module.fragment(first, &own);
                        Some(self.fragment(first, &own))
                    }
                };
                let Some(tracked) = tracked else { return first };
                output(first, tracked);
                first += 1;
                continue;
            }
            if self.is_lone_error(&own) {
                let tracked = self.lone_error(first, &own);
                output(first, tracked);
                first += 1;
                continue;
            }
            // As many as are no fragments, and not far apart.
            let gathered = self.gather(first..count, &input);
            let taken = self.whole_packets(&gathered, &input, &mut output);
            if taken < gathered.rows.end || !self.waiting.is_empty() {
                return taken;
            }
            first = taken;
        }
        count
    }

    /// What became of the packet that opened a flow: it `got_through`, and the flow counts, or it was dropped, and the flow
    /// never was. The same of a packet that announced flows.
    pub fn decide(&mut self, flow: Handle, got_through: bool) {
        let Some(slot) = self.table.resolve(flow) else { return };
        let Some(hot) = self.table.get_mut(slot) else { return };
        if std::mem::take(&mut hot.is_announcing) {
            self.rest.helpers.decide(slot, got_through);
        }
        if !hot.is_undecided {
            return;
        }
        if got_through {
            hot.is_undecided = false;
            hot.timeout_ms = self.rest.timeouts.ms_of(hot.phase);
            self.counts.flows += 1;
            self.note_gap(slot);
        } else if let Some((_, hot)) = self.table.remove(slot) {
            self.rest.forget(slot, hot);
        }
    }

    /// What becomes of a packet, in so many frames, that belongs to no flow. It never reaches the table: it must neither evict a
    /// flow nor keep an idle one.
    fn reject(&mut self, number: usize, input: &Input<'_>, frames: u64, why: Unkeyed) -> Tracked {
        let Unkeyed::Rejected(reject) = why else { return Tracked::INVALID };
        self.rest.module.rejected(number, input, reject);
        let (count, tracked) = match reject {
            Reject::NotIp => {
                self.counts.encapsulated += if is_encapsulated(input) { frames } else { 0 };
                (&mut self.counts.not_ip, Tracked::default())
            }
            Reject::Untracked => return Tracked::default(),
            Reject::Malformed if input.decoded.anomaly != Anomaly::BadChecksum => {
                (&mut self.counts.malformed, Tracked::INVALID)
            }
            Reject::Malformed | Reject::Checksum => (&mut self.counts.checksum, Tracked::INVALID),
        };
        *count += frames;
        tracked
    }

    /// Counts a packet out of tunnels.
    #[inline(always)]
    fn count_tunnels(&mut self, input: &Input<'_>, frames: u64) {
        if let Some(path) = input.tunnels {
            self.counts.tunnelled += frames;
            self.counts.tunnels_too_deep += u64::from(path.is_too_deep());
        }
    }

    /// Packets that are no fragments; the row before which it stopped.
    fn whole_packets<'a>(
        &mut self,
        gathered: &Gathered,
        input: &impl Fn(usize) -> Input<'a>,
        output: &mut impl FnMut(usize, Tracked),
    ) -> usize {
        let Gathered { rows, defers, latest_ns: latest, earliest_ns } = gathered.clone();
        if earliest_ns.saturating_add(LATE_NS) < self.latest_ns {
            self.count_late(rows.clone().map(|row| input(row).time_ns));
        }
        let seen_ms = self.seen_ms(latest);
        self.search(rows.start);
        let are_others = !defers || self.pass_all(rows.start, input, output);
        let mut policy = Admission { rest: &mut self.rest, now_ns: latest, rows: &self.rows };
        self.table.settle(&self.keys, seen_ms, &mut policy, &mut self.found);
        self.sharing.numbers.learn(rows.start, &self.found);
        if !are_others {
            self.end_passing();
            return rows.end;
        }
        self.found.iter().take(AHEAD).for_each(|found| self.rest.prefetch(*found));
        for (at, row) in rows.clone().enumerate() {
            if at.is_multiple_of(AHEAD) {
                let later = self.found.iter().skip(at + AHEAD).take(AHEAD);
                later.for_each(|found| self.rest.prefetch(*found));
            }
            if self.rest.reassembler.is_waiting()
                && let Some(found) = self.found.get(at + NEAR)
            {
                if self.rest.copies(*found, self.rows[at + NEAR].side) {
                    interleave::prefetch(input(row + NEAR).frame);
                }
                let at = at + NEAREST;
                self.rest.prefetch_waiting(self.found[at], self.rows[at].side);
            }
            let Row { side, about, none, is_unchecked, is_taken } = self.rows[at];
            if is_taken {
                continue;
            }
            let own = input(row);
            let found = self.found[at];
            if self.waits_with_others(at, &own) {
                self.leave(row, at, &own);
                continue;
            }
            // Only now: a packet behind one that waits comes again.
            if let Some(why) = none {
                self.count_tunnels(&own, 1);
                output(row, self.reject(row, &own, 1, why));
                continue;
            }
            let may_be_usual = about.is_none() && !is_unchecked && !self.rest.helpers.are_pending();
            if may_be_usual && let Some(tracked) = self.usual(row, &own, side, found) {
                output(row, tracked);
                continue;
            }
            let key = self.keys[at];
            if self.is_undecided(found) || self.rest.helpers.waits(&key, side) {
                // What comes again must not have been taken.
                debug_assert!(self.options.confirms && !defers);
                if self.waiting.may_be_overtaken() {
                    self.leave(row, at, &own);
                    continue;
                }
                self.take_back(at);
                self.remove_voids();
                self.end_passing();
                return row;
            }
            if self.passing.is_on
                && let Some(tracked) = self.pass(&own, side, found)
            {
                output(row, tracked);
                continue;
            }
            if is_unchecked && let Err(why) = check_segment(&own) {
                output(row, self.reject(row, &own, 1, Unkeyed::Rejected(why)));
                continue;
            }
            self.count_tunnels(&own, 1);
            self.rest.note_depth(row, &own);
            let tracked = match about {
                Some(sequence) => self.whole_error(row, &own, (side, found), sequence),
                None => self.row(row, &own, key, side, found, (1, own.frame_len.into())),
            };
            output(row, tracked);
        }
        self.remove_voids();
        self.end_passing();
        rows.end
    }

    /// Counts those of a batch that come very late; it is shorter than that.
    #[cold]
    fn count_late(&mut self, times: impl Iterator<Item = u64>) {
        let late = times.filter(|time_ns| time_ns.saturating_add(LATE_NS) < self.latest_ns);
        self.counts.late += late.count() as u64;
    }

    /// A packet that cannot be the first one of a flow, in the place that it would have.
    fn begins_nothing(&mut self, slot: Slot) -> Tracked {
        self.rest.helpers.ignore();
        self.rest.helpers.end(slot);
        if let Some(own) = self.table.get_mut(slot) {
            // When it was seen is still to be put right: by the row that begins it.
            *own = Hot { is_void: true, is_early: own.is_early, ..Hot::default() };
        }
        self.voids.push(slot);
        Tracked::INVALID
    }

    /// A packet that does not count has found this flow: a sweep finds it idle all the same.
    fn keeps_nothing(&mut self, slot: Slot) {
        // It may have gone with the packet that would have begun it.
        let Some(hot) = self.table.get_mut(slot) else { return };
        hot.is_early = true;
        self.table.set_seen(slot, ms_of(self.rest.latest(slot)));
        // The table tells no times apart that are weeks from each other.
        self.note_gap(slot);
    }

    /// Removes flows that no packet of the batch has begun.
    fn remove_voids(&mut self) {
        for slot in self.voids.drain(..) {
            if self.table.get(slot).is_some_and(|hot| hot.is_void) {
                self.table.remove(slot);
            }
        }
    }

    /// Whether a flow that was there is not decided yet.
    #[inline(always)]
    fn is_undecided(&self, found: Found) -> bool {
        self.options.confirms
            && found.outcome == Outcome::Known
            && found
                .slot()
                .and_then(|slot| self.table.get(slot))
                .is_some_and(|hot| hot.is_undecided || hot.is_announcing)
    }

    /// What the rows of the batch from place `first` on have done to the table is undone.
    fn take_back(&mut self, first: usize) {
        (first..self.found.len()).for_each(|at| self.undo(at));
    }

    /// What a row that is not taken has done to the table is undone: the flow that it would have begun goes, and the one that it found
    /// was not seen by it.
    fn undo(&mut self, at: usize) {
        let found = self.found[at];
        let Some(slot) = found.slot() else { return };
        match found.is_new() {
            true => drop(self.table.remove(slot)),
            false => self.keeps_nothing(slot),
        }
    }

    /// A fragment; the one that completes its datagram has the datagram's state.
    fn fragment(&mut self, number: usize, input: &Input<'_>) -> Tracked {
        self.piece(input);
        if !self.whole.is_there {
            return Tracked::INVALID;
        }
        let whole = self.whole.lend();
        let decoded = whole.decoded(input);
        let datagram = Input {
            decoded: &decoded,
            frame: &whole.frame,
            frame_len: whole.frame.len() as u32,
            segment: None,
            ..*input
        };
        let tracked =
            self.whole_datagram(number, &datagram, (u64::from(whole.pieces), whole.bytes));
        self.whole.take_back(whole);
        tracked
    }

    /// A datagram that came in so many frames, with so many bytes.
    fn whole_datagram(
        &mut self,
        number: usize,
        datagram: &Input<'_>,
        frames: (u64, u64),
    ) -> Tracked {
        // Its flow may be another worker's.
        let (kinds, checksums) = (&self.options.tunnels, Checksums::Verify);
        let (frame, decoded) = (datagram.frame, datagram.decoded);
        let is_tunnel =
            !kinds.is_empty() && tunnel::inside(frame, decoded, kinds, checksums).is_some();
        self.counts.tunnels_in_fragments += u64::from(is_tunnel);
        if is_tunnel {
            self.rest.module.not_looked_into(number, datagram, Unseen::InFragments);
        }
        self.count_tunnels(datagram, frames.0);
        self.rest.note_depth(number, datagram);
        match self.of_one(datagram) {
            Ok((key, row)) => {
                let Row { side, about, .. } = row;
                let found = self.find(&key, row, datagram.time_ns);
                let tracked = match about {
                    Some(sequence) => self.whole_error(number, datagram, (side, found), sequence),
                    None => self.row(number, datagram, key, side, found, frames),
                };
                self.remove_voids();
                tracked
            }
            Err(why) => self.reject(number, datagram, frames.0, why),
        }
    }

    /// Whether the flow in a place is the one with this number, and not over, whether a sweep has found it or not.
    fn is_live(&self, slot: Slot, id: u64, time_ns: u64) -> bool {
        self.table.get(slot).is_some_and(|hot| {
            self.rest.id(slot) == id
                && (hot.is_undecided || !self.rest.is_over(slot, *hot, time_ns))
        })
    }

    /// The flow of a single row.
    fn find(&mut self, key: &FlowKey, row: Row, time_ns: u64) -> Found {
        let mut found = [Found::NONE];
        let seen_ms = self.seen_ms(time_ns);
        let mut policy = Admission { rest: &mut self.rest, now_ns: time_ns, rows: &[row] };
        self.table.lookup(&[*key], seen_ms, &mut policy, &mut found);
        found[0]
    }

    /// Takes a fragment, and what becomes whole by it.
    fn piece(&mut self, input: &Input<'_>) {
        self.counts.fragments += 1;
        let (whole, module, config) =
            (&mut self.whole, &mut self.rest.module, &self.options.defrag);
        whole.is_there = false;
        let mut take =
            |output: defrag::Output<'_, u32>| whole.take(output, input.time_ns, config, module);
        let time_ns = input.time_ns;
        let fragment = |path: &tunnel::Path| {
            let mut fragment = defrag::Fragment::from_frame(input.decoded, input.frame).ok()??;
            fragment.key.tunnels = path.key();
            Some(fragment)
        };
        match input.tunnels.and_then(fragment) {
            Some(fragment) => self.defrag.push(&fragment, input.frame_len, time_ns, &mut take),
            None => {
                let (decoded, frame) = (input.decoded, input.frame);
                self.defrag.push_frame(decoded, frame, input.frame_len, time_ns, &mut take);
            }
        }
        self.counts.fragments_lost = whole.lost;
    }

    /// A packet and the place of its flow. `number`: its place in the batch. `frames`: how many frames it came in, and their
    /// bytes.
    fn row(
        &mut self,
        number: usize,
        input: &Input<'_>,
        key: FlowKey,
        side: Side,
        found: Found,
        frames: (u64, u64),
    ) -> Tracked {
        let place = found.slot().and_then(|slot| Some((slot, *self.table.get(slot)?)));
        let Some((slot, mut hot)) = place else {
            self.counts.no_room += frames.0;
            return Tracked::REFUSED;
        };
        self.counts.packets += frames.0;
        let is_segment = key.protocol == IpProtocol::TCP.0 && !input.decoded.has(Decoded::FRAGMENT);
        let segment = if is_segment { segment_of(input) } else { None };
        let (is_undecided, was_early) = (self.options.confirms, hot.is_early);
        let fresh = Hot { is_undecided, ..Hot::default() };
        let rest = &mut self.rest;
        rest.make_place(slot);
        let mut opener = side;
        let mut is_first = found.is_new() || hot.is_void;
        if is_first {
            rest.begin(slot, &key, side, input, false);
            hot = fresh;
        } else if rest.is_over(slot, hot, input.time_ns) {
            rest.time_out(slot, &key, hot);
            rest.begin(slot, &key, side, input, true);
            (hot, is_first) = (fresh, true);
            self.table.set_class(slot, Class::HalfOpen);
        } else {
            rest.report(slot, &key, hot, input.time_ns);
        }
        let may_begin = !is_undecided || opens(input, segment.as_ref(), &self.options);
        if is_first && !may_begin {
            return self.begins_nothing(slot);
        }
        if is_undecided && input.decoded.has(Decoded::FRAGMENT) {
            rest.note_fragment(slot, &key, side);
        }
        let is_first_packet = hot.timeout_ms == 0;
        let of_flow =
            OfFlow { number, slot, side, is_first: is_first_packet, is_rest: false, input };
        rest.packet(&key, &of_flow);
        let mut is_valid = true;
        if let Some(segment) = segment {
            let mut outcome = match is_undecided && has_odd_flags(segment.flags) {
                true => tcp::Outcome::Ignored,
                false => rest.segment(slot, &key, side, &segment, input.time_ns),
            };
            if outcome == tcp::Outcome::Restart {
                let again = rest.again(slot, &segment);
                opener = again.client().unwrap_or(side);
                rest.end_at(slot, &key, hot, Reason::Closed, input.time_ns);
                rest.begin(slot, &key, opener, input, true);
                rest.begin_again(slot, &again);
                (hot, is_first) = (fresh, true);
                self.table.set_class(slot, Class::HalfOpen);
                rest.packet(&key, &OfFlow { is_first: true, ..of_flow });
                outcome = rest.segment(slot, &key, side, &segment, input.time_ns);
            }
            is_valid = outcome != tcp::Outcome::Ignored;
            if outcome != tcp::Outcome::Accepted {
                rest.unread(&key, &of_flow);
            }
            if rest.passes {
                hot.passing = self.begin_to_pass(slot, &key);
            }
        }
        let rest = &mut self.rest;
        if is_undecided && !is_valid && is_first {
            rest.never_was(slot);
            return self.begins_nothing(slot);
        }
        if is_undecided && !is_valid {
            // Nothing of the flow changes.
            self.rest.helpers.ignore();
            self.keeps_nothing(slot);
            return Tracked { slot: Some(slot), ..self.rest.tracked(slot, side, false) };
        }
        if is_first && !is_undecided {
            self.counts.flows += 1;
            let is_late = input.time_ns.saturating_add(LATE_NS) < self.latest_ns;
            self.counts.late_flows += u64::from(is_late);
        }
        if is_undecided && is_first {
            rest.relate(slot, &key, opener, input.time_ns);
        }
        rest.count(slot, side, input, segment.map_or(0, |segment| segment.flags), frames);
        if was_early {
            self.table.set_seen(slot, ms_of(self.latest_ns));
            hot.is_early = false;
            self.table.get_mut(slot).into_iter().for_each(|own| own.is_early = false);
        }
        let rest = &mut self.rest;
        let phase = rest.phase(slot, &key);
        if phase != hot.phase || !hot.is_firm || hot.timeout_ms == 0 {
            self.set_phase(slot, &key, hot, phase);
        }
        let announces = is_undecided && self.rest.announces(slot, &key, input.time_ns);
        if let Some(own) = self.table.get_mut(slot).filter(|_| announces) {
            own.is_announcing = true;
        }
        let opens = if hot.is_undecided || announces { self.table.handle(slot) } else { None };
        let tracked = self.rest.tracked(slot, side, is_valid);
        let number = if hot.is_undecided { 0 } else { tracked.number };
        Tracked { opens, number, ..tracked }
    }

    /// A packet has brought a flow into a phase.
    #[inline(never)]
    fn set_phase(&mut self, slot: Slot, key: &FlowKey, hot: Hot, phase: Phase) {
        let is_open = phase.state() != FlowState::New;
        let is_firm =
            hot.is_firm || is_open && (!self.options.confirms || self.rest.is_answered(slot));
        if is_firm {
            self.table.set_class(slot, phase.class());
        }
        let timeout_ms = match hot.is_undecided {
            true => u32::MAX, // no sweep ends it meanwhile
            false => self.rest.timeouts.ms_of(phase),
        };
        let is_tcp = key.protocol == IpProtocol::TCP.0;
        if let Some(own) = self.table.get_mut(slot) {
            *own = Hot { timeout_ms, phase, is_tcp, is_firm, ..hot };
        }
    }
}
