//! TCP connections: their state, and the byte streams of both directions in order.
//!
//! # Problem
//!
//! Who inspects a stream needs its bytes as the receiving host gets them. Segments come lost, twice, out of order, and
//! overlapping with other bytes, by accident or to deceive; memory is bounded, and nearly every segment is simply the next
//! one.
//!
//! # Idea
//!
//! The usual segment — established, in order, nothing buffered — takes a few branches on 64 bytes of state, and its bytes go
//! to the [`Sink`] in place, never copied (Pigasus, OSDI 2020: in-order packets in constant time, the others apart).
//! Everything else is out of line. A segment that comes before its predecessor is copied into a bounded buffer and served
//! right after the segment that fills the hole (GASPP §4.3).
//!
//! ```text
//!                       ┌── next ──▶ Sink::data, in place
//!   Segment ─▶ fast? ───┤
//!                       └── slow ──▶ SYN · RST · window · ACK · FIN
//!                                      │ before next: retransmission        hole     buffered
//!                                      │ next: data, then what it joins   ───┐   ┌──────────┐
//!                                      └ after next: buffer ───────▶  ……▓▓▓▓▓░░░░░▓▓▓▓▓▓░░▓▓▓
//!                                                                     delivered ▲ next
//! ```
//!
//! A hole ends in three ways: its bytes come; the other side acknowledges them, so that they are lost to this observer
//! ([`Options::acknowledged_is_lost`]); or it is given up at the end. The latter two are [`Sink::gap`], and what follows is
//! delivered. When memory is short, the segments that are farthest ahead are not kept ([`Full`]): they come again, or become a
//! gap in one of these ways. So offsets of data and gaps of a side follow each other without holes or repetition.
//!
//! Of delivered bytes nothing is kept: a retransmission of them with other bytes cannot be recognised. Among buffered bytes
//! a [`Policy`] decides, and differences are [`Event::Conflict`].
//!
//! # States
//!
//! As Linux's conntrack follows them: by what both sides sent, whether or not all of it was captured.
//!
//! ```text
//!   None ──SYN──▶ SynSent ──SYN-ACK, SYN──▶ SynReceived ──ACK──▶ Established
//!    │               └──── other segments (SYN-ACK not captured) ────▲  │  │
//!    └──────────── joined in the middle (Options::midstream) ────────┘  │  │
//!               ┌───────────────────── FIN of client ───────────────────┘  └── FIN of server ──┐
//!               ▼                                                                              ▼
//!           FinWait1 ──ACK──▶ FinWait2 ──FIN of server──▶ LastAck ◀──FIN of client──────── CloseWait
//!               └───────────FIN of server────────────────────▲ └── both acknowledged ──▶ TimeWait
//!
//!   any ──RST with the expected number──▶ Closed
//!   TimeWait, Closed ──SYN──▶ Outcome::Restart; others: SYN is kept, and its SYN-ACK is Outcome::Restart
//! ```
//!
//! # Decisions
//!
//! | case | what is done |
//! | --- | --- |
//! | data on SYN or SYN-ACK | [`Options::syn_data`]; held until the other side acknowledges it, dropped if it acknowledges only SYN |
//! | another SYN before the answer | the first and the last one are kept, and SYN-ACK chooses |
//! | urgent data | [`Options::urgent`]: a byte like others, or no byte of the stream. The byte is the one before the pointer (RFC 6093), if it is in the segment with URG |
//! | SYN of an open connection | [`Event::SynConflict`]; its number is kept. The other end may challenge it (RFC 5961 §4), and the first one resets the old connection by the number of the challenge (RFC 9293 §3.5.1). If a SYN-ACK acknowledges it, and its sender has sent nothing else that is next, it began another connection; with [`Options::resynchronise`] so does another segment of that end which acknowledges a number behind SYN, and what followed SYN is kept for that. Without it, SYN of the client alone may do so |
//! | simultaneous open, split handshake | established when both sides acknowledged; the client is the first that sent SYN |
//! | one direction only | streams advance; numbers of the unseen side follow the acknowledgments |
//! | FIN again; with another number | nothing; [`Event::FinConflict`], ignored |
//! | data after FIN, or at its place | [`Event::DataAfterFin`], [`Outcome::Unread`] |
//! | RST | closes with exactly the number that is expected next (RFC 5961 §3.2); within the window by option, else it is [`Event::ResetInWindow`] without effect, as the other end challenges it |
//! | RST again, or data, after RST | passes within the window; data is [`Outcome::Unread`] |
//! | keep-alive, zero-window probe | at most one byte that had been acknowledged: [`Connection::keep_alives`] |
//! | new byte into a closed window | delivered: if the host refused it, it comes again, and is a retransmission |
//! | outside of the window | [`Event::OutOfWindow`], ignored. If both sides jump consistently (the capture lost both), they continue there, by option: [`Event::Resynchronised`] |
//! | acknowledgment of data that was not sent | [`Event::AckInvalid`], the segment is ignored. With [`Options::resynchronise`] the data may be missing: within the window it is [`Event::AckUnseen`], and becomes a gap once its sender goes on behind it. If a side sent fragments, or SYN was not seen, it is believed within the window |
//! | not next, and beyond the announced window, but not far | [`Event::BeyondWindow`]; taken with [`Options::resynchronise`], as acknowledgments may be missing, else [`Outcome::Unread`] |
//! | acknowledgment further behind the last one than the largest window (RFC 5961 §5.2) | [`Event::AckInvalid`], [`Outcome::Unread`] |
//!
//! # Limits
//!
//! A waiting segment takes 32 bytes more than its own, in units of 32 bytes. A full one, of more than 1,376 bytes, takes 1,568. The
//! time for a late segment is that of its copy and of a search over the holes of its side, which are at most as many as the
//! units of a connection. If all memory is taken by connections that hold no more than two full segments each, none of them
//! gives way, and new segments that come before others are not kept. `examples/reassembly.rs` measures both.
//!
//! # Threads
//!
//! A [`Reassembler`] belongs to one worker, as do the connections that it serves. It takes its memory at creation. Time is
//! the caller's.

mod behind;
mod buffer;
mod connection;
mod data;
mod policy;
mod state;
mod syn;
#[cfg(test)]
mod tests;

use packet::tcp::{TcpView, flags};

use self::behind::Behind;
use self::buffer::{BLOCK, Buffer, UNIT};
use self::connection::distance;
pub use self::connection::{Again, Connection, Conntrack};
pub use self::policy::{Policy, UnknownPolicy};
use self::state::after_reset;
use crate::key::Side;
use crate::record::TcpState;

/// A TCP segment. Its checksum is correct, and it belongs to the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment<'a> {
    /// Sequence number of the first byte, or of SYN.
    pub sequence: u32,
    /// Acknowledgment number; meaningful with ACK.
    pub acknowledgment: u32,
    /// Bits of [`packet::tcp::flags`].
    pub flags: u16,
    /// Receive window, unscaled.
    pub window: u16,
    /// Meaningful with URG.
    pub urgent_pointer: u16,
    /// Options as bytes.
    pub options: &'a [u8],
    /// Data, as far as it was captured.
    pub payload: &'a [u8],
    /// Bytes of data behind those, which a capture with a snap length left out.
    pub missing: u16,
}

impl Segment<'_> {
    /// Bytes of data on the wire.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.payload.len() + usize::from(self.missing)
    }

    /// Whether it has no data.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<'a> From<&TcpView<'a>> for Segment<'a> {
    #[inline(always)]
    fn from(view: &TcpView<'a>) -> Self {
        Self {
            sequence: view.sequence(),
            acknowledgment: view.acknowledgment(),
            flags: view.flags(),
            window: view.window(),
            urgent_pointer: view.urgent_pointer(),
            options: view.options_bytes(),
            payload: view.payload(),
            missing: 0,
        }
    }
}

/// How much more a [`Sink`] wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Want {
    /// All that follows.
    #[default]
    More,
    /// Nothing more of this side: [`Sink::end`] follows, and nothing of it is buffered any more.
    EnoughOfSide,
    /// Nothing more of either side.
    EnoughOfFlow,
    /// Bytes that come in order need not be read any more, by whom else they are not wanted; ends, gaps and events are. A
    /// [`Reassembler`] takes it as [`Want::More`].
    PassOver,
}

/// Why nothing more of a side follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// FIN: all bytes were delivered, or reported as gaps.
    Fin,
    /// The connection was reset.
    Reset,
    /// [`Options::depth`] was reached.
    Depth,
    /// The sink had enough.
    Enough,
    /// The connection was closed by the caller before its end was seen.
    Incomplete,
}

/// What is notable about a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Event {
    /// The connection was joined in the middle.
    JoinedMidstream,
    /// SYN carries data; it asks for fast open (RFC 7413).
    FastOpen,
    /// SYN carries data and does not ask for fast open.
    DataOnSyn,
    /// Both sides sent SYN without ACK: a simultaneous open or a split handshake.
    SimultaneousOpen,
    /// SYN of a connection that is open, with another number (RFC 5961 §4: the host challenges it).
    SynConflict,
    /// An acknowledgment of data that cannot have been sent.
    AckInvalid,
    /// An acknowledgment of data that nobody has seen: it was not captured, or never sent.
    AckUnseen,
    /// An acknowledgment of data that was not captured.
    AcknowledgedLost,
    /// The segment is far outside of the window.
    OutOfWindow,
    /// Data that is not next begins beyond the announced window, but not far: its receiver refuses it, or acknowledgments were not
    /// captured.
    BeyondWindow,
    /// Both sides continue beyond their windows: the capture lost what is between.
    Resynchronised,
    /// Other bytes than those that are buffered for the same place.
    Conflict,
    /// All bytes of the segment came before, or come too late.
    Retransmission,
    /// An urgent byte.
    Urgent,
    /// Data behind FIN.
    DataAfterFin,
    /// FIN at another place than the FIN before, or before bytes that were delivered.
    FinConflict,
    /// RST within the window, but not with the expected number (RFC 5961 §3).
    ResetInWindow,
    /// RST outside of the window.
    ResetOutOfWindow,
    /// Neither SYN, ACK nor RST: hosts drop it.
    NoFlags,
    /// A segment of a connection that was reset.
    AfterReset,
    /// Bytes that came before others were not kept, because a bound of the buffer was reached.
    GivenUp,
}

/// Receives the streams of a connection. Bytes are valid during the call only.
pub trait Sink {
    /// Bytes of a side in order; `offset` counts from the first byte of its stream, or from the first one that was seen.
    fn data(&mut self, side: Side, offset: u64, bytes: &[u8]) -> Want;
    /// `bytes` bytes at `offset` are missing, and will not follow.
    fn gap(&mut self, side: Side, offset: u64, bytes: u64);
    /// Nothing more of this side follows; its next byte would have had this offset. Once for each side.
    fn end(&mut self, side: Side, offset: u64, end: End);
    /// Something notable about a segment of this side.
    fn event(&mut self, side: Side, event: Event) {
        let _ = (side, event);
    }
}

/// What the caller does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// The segment belongs to the connection.
    Accepted,
    /// It passes as one of the connection and changes nothing, and its data, if it has any, is no part of a stream: after a
    /// reset, behind FIN, with SYN that is not the first one, or with an acknowledgment that is too old.
    Unread,
    /// It has no effect on the connection: a host would drop it.
    Ignored,
    /// It is of another connection with the same addresses and ports, and has no effect on this one: ask this one what it knows
    /// of [that](Connection::again), close it, [tell](Connection::begin_again) a new [`Connection`], and give the segment to it.
    Restart,
}

/// Which data of SYN is part of the stream, if the other side acknowledges it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SynData {
    /// None.
    Ignore,
    /// That of segments with the option of fast open (RFC 7413), and of their answers.
    FastOpen,
    /// All (RFC 9293 §3.5: a host may send data with SYN, which the other one takes when the handshake is over).
    #[default]
    Accept,
}

/// What becomes of an urgent byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Urgent {
    /// It is a byte of the stream, as with `SO_OOBINLINE`.
    #[default]
    Inline,
    /// It is none, as sockets deliver it by default.
    Drop,
}

/// What becomes of segments that wait when memory for them is short. The hole before them stays in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Full {
    /// The segments farthest ahead are not kept: of the connection, if it has its share; of the one that holds most, if there is
    /// no memory at all.
    #[default]
    KeepNearest,
    /// New segments are not kept. The caller, who hears [`Event::GivenUp`] of each, drops the packet, and its sender repeats it: so
    /// no byte passes that is not delivered.
    RefuseNew,
}

/// How connections are followed. Sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How overlaps are resolved, unless the connection has its own policy.
    pub policy: Policy,
    /// Memory for segments that wait, of all connections; rounded down to blocks of 1,536 bytes. What is known of the blocks is
    /// beside it: 1% more.
    pub buffer_bytes: usize,
    /// Of it for one connection, at least two blocks. A segment takes its own, rounded up to 64, and 64 more; up to 28
    /// bytes take only those 64; more than 1,344 take 1,600 for each 1,536; a connection with such segments takes 64 more.
    pub buffer_bytes_per_flow: usize,
    /// What is not kept when either is used up.
    pub full: Full,
    /// Bytes of each side after which nothing is delivered or buffered.
    pub depth: u64,
    /// Whether a connection may be joined in the middle.
    pub midstream: bool,
    /// Whether bytes that the other side acknowledged, and that were not seen, are a gap at once. Captures that order the
    /// directions badly may see the acknowledgment first.
    pub acknowledged_is_lost: bool,
    /// Whether both sides may go on beyond their windows if they do so consistently: the capture lost what is between. A
    /// firewall, which every packet passes, must not believe that.
    pub resynchronise: bool,
    /// Whether RST closes if it is within the window.
    pub reset_in_window: bool,
    /// Data of SYN.
    pub syn_data: SynData,
    /// Urgent bytes.
    pub urgent: Urgent,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            buffer_bytes: 64 << 20,
            buffer_bytes_per_flow: 8 << 20,
            full: Full::default(),
            depth: u64::MAX,
            midstream: true,
            acknowledged_is_lost: true,
            resynchronise: true,
            reset_in_window: false,
            syn_data: SynData::default(),
            urgent: Urgent::default(),
        }
    }
}

/// What a reassembler did for lack of room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Segments, or parts of them, that were not kept because their connection had its share of the buffer.
    pub given_up_flow: u64,
    /// The same because the buffer was full.
    pub given_up_total: u64,
}

/// Follows the connections of one worker, and holds the segments that wait.
pub struct Reassembler {
    buffer: Buffer,
    behind: Behind,
    options: Options,
    /// Units of one connection at most.
    units_per_flow: u32,
    counters: Counters,
}

impl Reassembler {
    /// Takes all memory.
    pub fn new(options: Options) -> Self {
        let buffer = Buffer::new(options.buffer_bytes);
        let per_flow = (options.buffer_bytes_per_flow / UNIT).max(2 * BLOCK / UNIT);
        let units_per_flow = u32::try_from(per_flow).unwrap_or(u32::MAX);
        Self {
            units_per_flow: units_per_flow.min(buffer.units_total()),
            buffer,
            behind: Behind::new(options.buffer_bytes),
            options,
            counters: Counters::default(),
        }
    }

    /// Bytes of memory beside [`Options::buffer_bytes`].
    pub const fn memory_bytes_beside(options: &Options) -> usize {
        Behind::memory_bytes(options.buffer_bytes)
    }

    /// The options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Changes [`Options::resynchronise`].
    pub fn set_resynchronise(&mut self, resynchronise: bool) {
        self.options.resynchronise = resynchronise;
    }

    /// Bytes of the buffer in use.
    pub fn buffer_bytes_used(&self) -> usize {
        self.buffer.units_used() as usize * UNIT
    }

    /// Whether segments wait for others.
    #[inline(always)]
    pub fn is_waiting(&self) -> bool {
        self.buffer.units_used() > 0
    }

    /// Asks for what the next late segment of a side reads of those that wait.
    #[inline(always)]
    pub(crate) fn prefetch(&self, connection: &Connection, side: Side) {
        self.buffer.prefetch(connection.waiting, side);
    }

    /// Asks for what [`prefetch`](Self::prefetch) reads.
    #[inline(always)]
    pub(crate) fn prefetch_lists(&self, connection: &Connection) {
        self.buffer.prefetch_lists(connection.waiting);
    }

    /// What was done for lack of room.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Takes the next segment of a connection, sent by `side` at `now_ns`, and delivers what is in order now.
    #[inline]
    pub fn segment(
        &mut self,
        connection: &mut Connection,
        side: Side,
        segment: &Segment<'_>,
        now_ns: u64,
        sink: &mut impl Sink,
    ) -> Outcome {
        if !self.is_usual(connection, side, segment) {
            return self.slow(connection, side, segment, now_ns, sink);
        }
        let offset = self.carry_on(connection, side, segment, now_ns);
        if !segment.payload.is_empty() {
            match sink.data(side, offset, segment.payload) {
                Want::More | Want::PassOver => {}
                want => self.enough(connection, side, want, sink),
            }
        }
        Outcome::Accepted
    }

    /// Whether all that a segment of a connection does whose bytes nobody reads is to carry the stream on: it is the next one of an
    /// established side of which nothing waits, and has no flags but ACK and PSH. Of its payload the length counts alone. Then
    /// [`carry_on`](Self::carry_on) leaves the connection as [`segment`](Self::segment) would.
    #[inline(always)]
    pub(crate) fn passes(
        &self,
        connection: &Connection,
        side: Side,
        segment: &Segment<'_>,
    ) -> bool {
        segment.flags & !flags::PSH == flags::ACK && self.is_next(connection, side, segment)
    }

    /// Whether a segment only carries the stream on: see [`carry_on`](Self::carry_on).
    #[inline(always)]
    pub(crate) fn is_usual(
        &self,
        connection: &Connection,
        side: Side,
        segment: &Segment<'_>,
    ) -> bool {
        use flags::{ACK, FIN, RST, SYN, URG};
        segment.flags & (SYN | FIN | RST | URG | ACK) == ACK
            && self.is_next(connection, side, segment)
    }

    /// Takes such a segment, all but its data; the offset of that. What the sink answers to it is for
    /// [`had_enough`](Self::had_enough), if it is not [`Want::More`] or [`Want::PassOver`].
    #[inline(always)]
    pub(crate) fn carry_on(
        &self,
        connection: &mut Connection,
        side: Side,
        segment: &Segment<'_>,
        now_ns: u64,
    ) -> u64 {
        let offset = connection.position[side.index()];
        advance(connection, side, segment, now_ns);
        offset
    }

    /// The sink wants nothing more of a side, or of both.
    pub(crate) fn had_enough(
        &mut self,
        connection: &mut Connection,
        side: Side,
        want: Want,
        sink: &mut impl Sink,
    ) {
        self.enough(connection, side, want, sink);
    }

    /// Whether a segment is the next of an established side, acknowledges what there is to acknowledge, and does not reach beyond
    /// the depth.
    #[inline(always)]
    fn is_next(&self, connection: &Connection, side: Side, segment: &Segment<'_>) -> bool {
        let (at, acknowledgment) = (side.index(), segment.acknowledgment);
        connection.flags[at] == 0
            && segment.missing == 0
            && segment.sequence == connection.next(side)
            && distance(connection.acked[at], acknowledgment) >= 0
            && distance(acknowledgment, connection.next(side.other())) >= 0
            && segment.payload.len() as u64
                <= self.options.depth.saturating_sub(connection.position[at])
    }

    /// Ends a connection: on a time-out, or at the end of a run. What is buffered is delivered, with the gaps before it, and
    /// its memory is free again. Nothing happens if it is closed again.
    pub fn close(&mut self, connection: &mut Connection, sink: &mut impl Sink) {
        self.finish(connection, End::Incomplete, sink);
    }

    #[cold]
    #[inline(never)]
    fn slow(
        &mut self,
        connection: &mut Connection,
        side: Side,
        segment: &Segment<'_>,
        now_ns: u64,
        sink: &mut impl Sink,
    ) -> Outcome {
        if segment.len() > PAYLOAD_MAX {
            return Outcome::Ignored;
        }
        if let Some(copies) = connection.take_copies() {
            self.bring_copies(connection, copies, (side, segment), sink);
        }
        if segment.flags & flags::RST != 0 {
            return self.reset(connection, side, segment, sink);
        }
        if segment.flags & flags::SYN != 0 {
            return self.synchronise(connection, side, segment, now_ns, sink);
        }
        if connection.state == TcpState::Closed {
            sink.event(side, Event::AfterReset);
            return after_reset(connection, side, segment);
        }
        self.plain(connection, side, segment, now_ns, sink)
    }
}

/// What the next segment of a side changes.
#[inline(always)]
fn advance(connection: &mut Connection, side: Side, segment: &Segment<'_>, now_ns: u64) {
    let (at, acknowledgment) = (side.index(), segment.acknowledgment);
    if acknowledgment != connection.acked[at] {
        connection.acked[at] = acknowledgment;
        connection.time_acknowledgment(side.other(), acknowledgment, now_ns);
    }
    connection.window[at] = segment.window;
    if !segment.payload.is_empty() {
        let offset = connection.position[at];
        connection.position[at] = offset.wrapping_add(segment.payload.len() as u64);
        connection.time_data(side, offset, now_ns);
    }
}

/// Bytes of data in a segment at most: beyond any packet, and far below half of the sequence numbers.
const PAYLOAD_MAX: usize = 1 << 20;
