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
//! Time is that of each packet. In the same way a flow that goes on is reported at fixed times after its start, as it was
//! then: by a sweep, or by its next packet, whichever comes first.
//!
//! | module | holds |
//! | --- | --- |
//! | `input` | packets: to which flow they belong |
//! | `flows` | what is kept of flows beside the table |
//! | `module` | who is given streams and records |
//! | `timeouts` | how long flows are kept |
//! | `tracked` | what becomes of a packet |
//!
//! Threads: a tracker belongs to one worker.

mod flows;
mod input;
mod module;
#[cfg(test)]
mod tests;
mod timeouts;
mod tracked;

use std::ops::Range;

use packet::{Decoded, IpProtocol};

use crate::defrag::{self, Defragmenter};
use crate::key::{FlowKey, Side};
use crate::record::{FlowRecord, FlowState, Reason};
use crate::table::{Class, FlowTable, Found, Limits, Slot, TableError, Timeouts};
use crate::tcp::{self, Reassembler};

use flows::{Admission, Hot, Rest};
use input::{key_of, segment_of};
use timeouts::{ms_of, timeout_ms};

pub use input::{Input, Reject};
pub use module::{Fragments, Identity, Module};
pub use timeouts::{IDLE_NS, IdleTimeouts};
pub use tracked::{PacketState, Tracked};

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
    /// Key of the table's hash.
    pub seed: u64,
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
            seed: 0,
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
    /// Frames that are not IP.
    pub not_ip: u64,
    /// Packets whose IP header is wrong, or whose upper-layer header is missing or wrong.
    pub malformed: u64,
    /// Packets with a wrong checksum of TCP.
    pub checksum: u64,
    /// Packets for whose flow there was no place.
    pub no_room: u64,
    /// Fragments.
    pub fragments: u64,
    /// Fragments that did not become a datagram.
    pub fragments_lost: u64,
}

/// What looking at a flow that goes on costs in a sweep, in records.
const WALK_RECORDS: usize = 8;

/// How many rows before its turn a flow is asked for.
const AHEAD: usize = 16;

/// Packets that are looked up together are no further apart: the table has one time for them, and a sweep finds an idle flow
/// that much later at most.
pub const SPAN_NS: u64 = 250_000_000;

/// Flows of one worker.
pub struct Tracker<M: Module> {
    table: FlowTable<Hot>,
    rest: Rest<M>,
    defrag: Defragmenter<u32>,
    /// Datagrams that became whole: their bytes, one after the other.
    whole: Whole,
    keys: Vec<(FlowKey, Side)>,
    plain_keys: Vec<FlowKey>,
    found: Vec<Found>,
    options: Options,
    counts: Counts,
    /// Where the walk over flows that go on is; `None` between two of them.
    walk: Option<u32>,
}

/// A datagram that became whole.
#[derive(Default)]
struct Whole {
    frame: Vec<u8>,
    ip_at: usize,
    /// Frames that it came in, and their bytes.
    pieces: u32,
    bytes: u64,
    is_there: bool,
    lost: u64,
}

impl<M: Module> Tracker<M> {
    /// Takes memory for all flows and the buffers of TCP and fragments.
    ///
    /// # Errors
    /// There is not so much, or a bound is out of range.
    pub fn new(options: Options, module: M) -> Result<Self, TableError> {
        let limits = Limits { capacity: options.flows, half_open_max: options.half_open };
        let table = FlowTable::new(limits, options.seed)?;
        let reassembler = Reassembler::new(options.tcp);
        let rest = Rest::new(&options, reassembler, module)?;
        Ok(Self {
            table,
            rest,
            defrag: Defragmenter::new(options.defrag),
            whole: Whole::default(),
            keys: Vec::new(),
            plain_keys: Vec::new(),
            found: Vec::new(),
            options,
            counts: Counts::default(),
            walk: None,
        })
    }

    /// Memory that [`Tracker::new`] reserves, in bytes.
    pub fn memory_bytes(options: &Options) -> usize {
        FlowTable::<Hot>::memory_bytes(options.flows)
            + Rest::<M>::memory_bytes(options.flows)
            + options.tcp.buffer_bytes
            + options.defrag.bytes
    }

    /// Flows that are followed now.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// What was counted.
    pub fn counts(&self) -> Counts {
        Counts { timed_out: self.rest.timed_out, ..self.counts }
    }

    /// The table's counts.
    pub fn statistics(&self) -> crate::table::Statistics {
        self.table.statistics()
    }

    /// Bytes of segments that wait for others.
    pub fn buffered_bytes(&self) -> usize {
        self.rest.reassembler.buffer_bytes_used()
    }

    /// The module.
    pub fn module(&mut self) -> &mut M {
        &mut self.rest.module
    }

    /// Takes a batch of packets, in the order of their arrival, and says of each what it is.
    pub fn packets<'a>(
        &mut self,
        count: usize,
        input: impl Fn(usize) -> Input<'a>,
        mut output: impl FnMut(usize, Tracked),
    ) {
        let (mut first, mut begin_ns) = (0, 0);
        for at in 0..count {
            let own = input(at);
            if at == first {
                begin_ns = own.time_ns;
            } else if own.time_ns.abs_diff(begin_ns) > SPAN_NS {
                self.whole_packets(first..at, &input, &mut output);
                (first, begin_ns) = (at, own.time_ns);
            }
            if !own.decoded.has(Decoded::FRAGMENT) || !own.decoded.is_ip() {
                continue;
            }
            // What was before it comes first.
            self.whole_packets(first..at, &input, &mut output);
            first = at + 1;
            output(at, self.fragment(at, &own));
        }
        self.whole_packets(first..count, &input, &mut output);
    }

    /// The key of a packet and the side that sent it. One that belongs to no flow is counted, with the frames that it came
    /// in, and never reaches the table: it must neither evict a flow nor keep an idle one.
    fn key(&mut self, input: &Input<'_>, frames: u64) -> Result<(FlowKey, Side), Tracked> {
        let reject = match key_of(input, self.options.by_vlan) {
            Ok(found) => return Ok(found),
            Err(reject) => reject,
        };
        self.rest.module.rejected(input, reject);
        let (count, tracked) = match reject {
            Reject::NotIp => (&mut self.counts.not_ip, Tracked::default()),
            Reject::Malformed => (&mut self.counts.malformed, Tracked::INVALID),
            Reject::Checksum => (&mut self.counts.checksum, Tracked::INVALID),
        };
        *count += frames;
        Err(tracked)
    }

    /// Packets that are no fragments.
    fn whole_packets<'a>(
        &mut self,
        rows: Range<usize>,
        input: &impl Fn(usize) -> Input<'a>,
        output: &mut impl FnMut(usize, Tracked),
    ) {
        self.keys.clear();
        self.plain_keys.clear();
        let mut latest = 0;
        for row in rows.clone() {
            let own = input(row);
            let (key, side) = self.key(&own, 1).unwrap_or_else(|tracked| {
                output(row, tracked);
                Default::default()
            });
            self.keys.push((key, side));
            self.plain_keys.push(key);
            latest = latest.max(own.time_ns);
        }
        if self.keys.is_empty() {
            return;
        }
        self.found.clear();
        self.found.resize(self.keys.len(), Found::NONE);
        let mut policy = Admission { rest: &mut self.rest, now_ns: latest };
        self.table.lookup(&self.plain_keys, ms_of(latest), &mut policy, &mut self.found);
        self.found.iter().take(AHEAD).for_each(|found| self.rest.prefetch(*found));
        for (at, row) in rows.enumerate() {
            if let Some(later) = self.found.get(at + AHEAD) {
                self.rest.prefetch(*later);
            }
            let (key, side) = self.keys[at];
            if key.family == 0 {
                continue;
            }
            let own = input(row);
            output(row, self.row(row, &own, key, side, self.found[at], (1, own.frame_len.into())));
        }
    }

    /// A fragment; the one that completes its datagram has the datagram's state.
    fn fragment(&mut self, row: usize, input: &Input<'_>) -> Tracked {
        self.counts.fragments += 1;
        let (whole, module) = (&mut self.whole, &mut self.rest.module);
        whole.is_there = false;
        let mut take = |output: defrag::Output<'_, u32>| {
            let why = match output.outcome {
                defrag::Outcome::Whole { .. } => None,
                defrag::Outcome::Failed(why) => Some(why),
            };
            module.fragments(&Fragments {
                key: output.key,
                failed: why,
                notes: output.notes,
                time_ns: input.time_ns,
            });
            match output.outcome {
                defrag::Outcome::Whole { frame, ip_at } => {
                    whole.frame.clear();
                    whole.frame.extend_from_slice(frame);
                    (whole.ip_at, whole.is_there) = (ip_at, true);
                    let frames = output.tokens;
                    whole.pieces = frames.len() as u32;
                    whole.bytes = frames.map(u64::from).sum();
                }
                defrag::Outcome::Failed(_) => whole.lost += output.tokens.len() as u64,
            }
        };
        let time_ns = input.time_ns;
        self.defrag.push_frame(input.decoded, input.frame, input.frame_len, time_ns, &mut take);
        self.counts.fragments_lost = whole.lost;
        if !whole.is_there {
            return Tracked::INVALID;
        }
        let whole = std::mem::take(&mut self.whole);
        let decoded = packet::decode::decode(&whole.frame, whole.frame.len());
        let input = Input {
            decoded: &decoded,
            frame: &whole.frame,
            frame_len: whole.frame.len() as u32,
            ..*input
        };
        let tracked = match self.key(&input, u64::from(whole.pieces)) {
            Ok((key, side)) => {
                let mut found = [Found::NONE];
                let mut policy = Admission { rest: &mut self.rest, now_ns: time_ns };
                self.table.lookup(&[key], ms_of(time_ns), &mut policy, &mut found);
                let frames = (u64::from(whole.pieces), whole.bytes);
                self.row(row, &input, key, side, found[0], frames)
            }
            Err(tracked) => tracked,
        };
        self.whole = whole;
        tracked
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
            return Tracked::INVALID;
        };
        self.counts.packets += frames.0;
        let segment = if key.protocol == IpProtocol::TCP.0 { segment_of(input) } else { None };
        let rest = &mut self.rest;
        rest.make_place(slot);
        if found.is_new() {
            self.counts.flows += 1;
            rest.begin(slot, &key, side, input, false);
            hot = Hot::default();
        } else if rest.is_over(slot, &key, hot, input.time_ns) {
            rest.time_out(slot, &key, hot);
            self.counts.flows += 1;
            rest.begin(slot, &key, side, input, true);
            hot = Hot::default();
            self.table.set_class(slot, Class::HalfOpen);
        } else {
            rest.report(slot, &key, hot, input.time_ns);
        }
        rest.packet(slot, &key, side, number, hot.timeout_ms == 0);
        let mut is_valid = true;
        if let Some(segment) = segment {
            let mut outcome = rest.segment(slot, &key, side, &segment, input.time_ns);
            if outcome == tcp::Outcome::Restart {
                rest.end_at(slot, &key, hot, Reason::Closed, input.time_ns);
                self.counts.flows += 1;
                rest.begin(slot, &key, side, input, true);
                hot = Hot::default();
                self.table.set_class(slot, Class::HalfOpen);
                rest.packet(slot, &key, side, number, true);
                outcome = rest.segment(slot, &key, side, &segment, input.time_ns);
            }
            is_valid = outcome != tcp::Outcome::Ignored;
        }
        rest.count(slot, side, input, segment.map_or(0, |segment| segment.flags), frames);
        let state = rest.state(slot, &key);
        if state != hot.state || hot.timeout_ms == 0 {
            if state != FlowState::New && hot.state == FlowState::New {
                self.table.set_class(slot, Class::Full);
            }
            let timeout_ms = timeout_ms(self.rest.timeouts.of(key.protocol, state));
            let is_tcp = key.protocol == IpProtocol::TCP.0;
            if let Some(own) = self.table.get_mut(slot) {
                *own = Hot { timeout_ms, state, is_tcp };
            }
        }
        self.rest.tracked(slot, side, is_valid)
    }

    /// Removes flows that are idle at `now_ns`, and then reports those that go on, in a piece of about so many records;
    /// whether the piece reached the end of both.
    pub fn sweep(&mut self, records: usize, now_ns: u64) -> bool {
        if let Some(from) = self.walk {
            return self.walk(from, records / WALK_RECORDS, now_ns);
        }
        let timeouts = &self.options.timeouts;
        let shortest = Timeouts {
            half_open: timeouts.shortest_ms(Class::HalfOpen),
            full: timeouts.shortest_ms(Class::Full),
        };
        let rest = &mut self.rest;
        let swept = self.table.sweep(
            records,
            ms_of(now_ns),
            shortest,
            |_, hot| hot.timeout_ms.saturating_add(1), // times of the table are rounded
            |slot, key, hot| rest.time_out(slot, key, *hot),
        );
        if swept.is_round && self.options.active_ns.is_some() {
            self.walk = Some(0);
            return false;
        }
        swept.is_round
    }

    /// Reports flows that go on, a piece of them; whether it was the last piece.
    fn walk(&mut self, from: u32, count: usize, now_ns: u64) -> bool {
        self.walk = None;
        for (number, flow) in self.table.iter_from(Slot(from)).enumerate() {
            if number == count.max(1) {
                self.walk = Some(flow.slot.0);
                break;
            }
            self.rest.report(flow.slot, flow.key, *flow.hot, now_ns);
        }
        self.walk.is_none()
    }

    /// Ends all flows; `now_ns` is the time of the last packet of all workers.
    pub fn finish(&mut self, now_ns: u64) {
        let (rest, table) = (&mut self.rest, &mut self.table);
        let slots: Vec<Slot> = table.iter().map(|flow| flow.slot).collect();
        for slot in slots {
            let Some((key, hot)) = table.remove(slot) else { continue };
            let is_over = rest.is_over(slot, &key, hot, now_ns);
            match is_over {
                true => rest.time_out(slot, &key, hot),
                false => rest.end_at(slot, &key, hot, Reason::Shutdown, now_ns),
            }
        }
        let lost = &mut self.whole.lost;
        self.defrag
            .clear(&mut |output: defrag::Output<'_, u32>| *lost += output.tokens.len() as u64);
        self.counts.fragments_lost = *lost;
    }

    /// Calls `visit` with the records of at most `count` flows, from slot `from` on; the slot to go on with, `None` at the
    /// end.
    pub fn visit(
        &self,
        from: u32,
        count: usize,
        visit: &mut impl FnMut(FlowRecord),
    ) -> Option<u32> {
        for (number, flow) in self.table.iter_from(Slot(from)).enumerate() {
            if number == count {
                return Some(flow.slot.0);
            }
            visit(self.rest.record(flow.slot, flow.key, *flow.hot, Reason::Active));
        }
        None
    }
}
