//! Who is given the streams and records of flows.

use crate::defrag::{DatagramKey, Notes, Reason};
use crate::key::{FlowKey, Side};
use crate::record::FlowRecord;
use crate::table::Slot;
use crate::tcp::{End, Event, Segment, Want};
use crate::tracker::{Input, Reject};

/// What is done with flows: a module at GASPP's layer `process_stream` (§3.1).
pub trait Module {
    /// What it keeps for each flow.
    type State: Default;

    /// A packet belongs to the flow. Its bytes of a stream follow.
    fn packet(&mut self, _flow: &Identity, _state: &mut Self::State, _packet: &OfFlow<'_>) {}

    /// A datagram whose fragments are passed on by themselves is whole; [`Module::packet`] was given each of them. It is at the place
    /// of the fragment that completed it. Its bytes of a stream follow.
    fn datagram(&mut self, _flow: &Identity, _state: &mut Self::State, _whole: &OfFlow<'_>) {}

    /// An ICMP error is about a packet of the flow. It is not given as a packet of the flow; `side` is the end that it is for. One
    /// about no flow is a packet of a flow of its own, unless flows are tracked for a firewall.
    fn error(&mut self, _flow: &Identity, _state: &mut Self::State, _error: &OfFlow<'_>) {}

    /// The number of what decides which flows are passed over ([`Want::PassOver`]); 0 where none are. With another number, all are
    /// looked at again.
    fn passing(&self) -> u32 {
        0
    }

    /// Whether it looks at a segment all the same that its flow passes over.
    fn looks_at(&self, _input: &Input<'_>, _segment: &Segment<'_>) -> bool {
        false
    }

    /// Packets of flows that are passed over: the module heard of none of them.
    fn passed(&mut self, _packets: &Passed) {}

    /// Whether [`Module::datagram`] and bytes of streams matter to it: otherwise fragments are not put together where they are
    /// passed on by themselves.
    fn reads(&self) -> bool {
        true
    }

    /// The flow ends: what waited for others is given up. The bytes and gaps that follow are brought by no packet.
    fn closing(&mut self, _flow: &Identity) {}

    /// Bytes of a side in order. With [`Want::PassOver`] nothing is heard any more of packets that only carry the streams of the flow
    /// on, in order and without flags but ACK and PSH, and their checksums are not verified, unless flows are tracked for a
    /// firewall. What is kept of the flow and reported of it is the same.
    fn data(
        &mut self,
        flow: &Identity,
        state: &mut Self::State,
        side: Side,
        offset: u64,
        bytes: &[u8],
    ) -> Want;

    /// The segment that was given last, which no stream takes: it is invalid, or passes and changes nothing
    /// ([`Outcome::Unread`](crate::tcp::Outcome::Unread)). Its data is in no [`data`](Module::data).
    fn unread(&mut self, _flow: &Identity, _state: &mut Self::State, _packet: &OfFlow<'_>) {}

    /// Bytes that will not come.
    fn gap(
        &mut self,
        _flow: &Identity,
        _state: &mut Self::State,
        _side: Side,
        _offset: u64,
        _bytes: u64,
        _time_ns: u64,
    ) {
    }

    /// Nothing more of a side follows.
    fn end_of_side(
        &mut self,
        _flow: &Identity,
        _state: &mut Self::State,
        _side: Side,
        _offset: u64,
        _end: End,
    ) {
    }

    /// Something notable about a segment.
    fn event(
        &mut self,
        _flow: &Identity,
        _state: &mut Self::State,
        _side: Side,
        _event: Event,
        _time_ns: u64,
    ) {
    }

    /// A flow goes on: the record says what it was at `time_ns`, a multiple of [`Options::active_ns`](super::Options) after
    /// its start. One without packets since the report before is not reported.
    fn goes_on(
        &mut self,
        _record: &FlowRecord,
        _client: Side,
        _state: &mut Self::State,
        _time_ns: u64,
    ) {
    }

    /// A packet belongs to no flow. `number` is its place in the batch; of a datagram in fragments that of the last one that came.
    fn rejected(&mut self, _number: usize, _input: &Input<'_>, _why: Reject) {}

    /// The packet at this place in the batch has a tunnel in it that is not looked into. What is outside of it is given as ever.
    fn not_looked_into(&mut self, _number: usize, _input: &Input<'_>, _why: Unseen) {}

    /// A fragment has come, at this place in the batch. It is given once, whatever becomes of its datagram; not where the caller
    /// holds fragments back.
    fn fragment(&mut self, _number: usize, _input: &Input<'_>) {}

    /// A datagram of fragments is whole or has failed, or a fragment was discarded. Returns whether the datagram is to be dropped,
    /// which only a caller can do that holds fragments back ([`Tracker::held`](super::Tracker::held)).
    fn fragments(&mut self, _fragments: &Fragments) -> bool {
        false
    }

    /// The flow of this number never was: the packet that opened it, which the module has seen, was dropped
    /// ([`Tracker::decide`](super::Tracker::decide)). Its end is not reported.
    fn never_was(&mut self, _flow: u64) {}

    /// [`Tracker::finish`](super::Tracker::finish) ends flows in the order of the time of their end, their start and their number; none
    /// before this one follows.
    fn ends_from(&mut self, _next: (u64, u64, u64)) {}

    /// A flow has ended, at `time_ns`. `client` is the side of the client.
    fn ended(&mut self, record: &FlowRecord, client: Side, state: &mut Self::State, time_ns: u64);
}

/// A packet of a flow.
#[derive(Clone, Copy, Debug)]
pub struct OfFlow<'a> {
    /// Its place in the batch. Of a datagram in fragments it is that of the last one that came.
    pub number: usize,
    /// The place of its flow in the table.
    pub slot: Slot,
    /// Who sent it.
    pub side: Side,
    /// It began the flow, which has the place from now on.
    pub is_first: bool,
    /// It is a fragment of the datagram that was given right before: see [`Tracker::datagram`](super::Tracker::datagram).
    pub is_rest: bool,
    /// The packet; a datagram that came in fragments is whole, unless fragments are passed on by themselves.
    pub input: &'a Input<'a>,
}

impl<'a> OfFlow<'a> {
    /// It is a fragment that is passed on by itself. The whole is given later.
    pub fn is_piece(&self) -> bool {
        self.input.decoded.has(packet::Decoded::FRAGMENT)
    }

    /// What a UDP datagram carries, as far as it was captured; `None` for packets of other protocols, and for fragments.
    pub fn datagram(&self) -> Option<&'a [u8]> {
        let d = self.input.decoded;
        if d.protocol != packet::IpProtocol::UDP || self.is_piece() {
            return None;
        }
        let begin = usize::from(d.l4_offset);
        let frame = self.input.frame;
        let end = d.l3_end().min(frame.len());
        let bytes = frame.get(begin..end)?;
        let (header, payload) = bytes.split_at_checked(8)?;
        // Padding behind the datagram is none of it; 0 is a jumbogram.
        let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
        Some(match len.checked_sub(8) {
            Some(len) => payload.get(..len).unwrap_or(payload),
            None => payload,
        })
    }
}

/// Why a tunnel is not looked into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unseen {
    /// There are as many around it as are looked into.
    TooDeep,
    /// Its packet came in fragments.
    InFragments,
}

/// How many packets, such as those of flows that were passed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// How many.
    pub packets: u64,
    /// Bytes of their frames.
    pub bytes: u64,
    /// The times of the earliest and the latest of them, in nanoseconds since 1970.
    pub times_ns: (u64, u64),
}

impl Passed {
    /// One more, of so many bytes.
    pub fn add(&mut self, bytes: u64, time_ns: u64) {
        let (earliest, latest) = self.times_ns;
        let earliest = if self.packets == 0 { time_ns } else { earliest.min(time_ns) };
        self.times_ns = (earliest, latest.max(time_ns));
        self.packets += 1;
        self.bytes += bytes;
    }
}

/// What became of a datagram that came in fragments.
#[derive(Clone, Copy, Debug)]
pub struct Fragments {
    /// The datagram.
    pub key: DatagramKey,
    /// Why it did not become whole.
    pub failed: Option<Reason>,
    /// What happened to its fragments.
    pub notes: Notes,
    /// The time of the fragment that decided it, or when its time-out was due; in nanoseconds since 1970.
    pub time_ns: u64,
}

/// Which flow it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Both ends.
    pub key: FlowKey,
    /// The number of the flow: a hash of key and start, so that it is the same in each run over a capture. Of the flows
    /// with one key that begin at the same time each has another number, unless the first was evicted.
    pub id: u64,
    /// When it began, in nanoseconds since 1970.
    pub start_ns: u64,
    /// The time of its latest packet before the one at hand.
    pub latest_ns: u64,
    /// The end that opened it, as far as is known.
    pub client: Side,
}
