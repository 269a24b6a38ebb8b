//! The state of one TCP connection: a plain structure of 256 bytes, which an array holds by flow slot.
//!
//! ```text
//!   byte 0                                                              64                                        256
//!   │ position · RTT sample · next number · acknowledged · window · flags │ lists · statistics · scales · handshake │
//!   └─ all that a segment in order reads and writes ──────────────────────┴─ the slow path ─────────────────────────┘
//! ```
//!
//! Numbers of a side: `next = base + position` (mod 2^32), where `position` is the offset of the next byte of the stream,
//! as 64 bits. What takes a sequence number and is no byte of the stream (FIN, an urgent byte that is left out) moves `base`
//! and is counted in `skipped`. The *place* of a byte is `position + skipped`: linear in sequence numbers, and never wraps.

use super::buffer::Waiting;
use super::policy::Policy;
use crate::key::{FlowKey, Side};
use crate::record::{SideRecord, TcpState};

/// Bits by side that send its segments to the slow path.
pub(super) mod bits {
    /// No sequence number of the side is known.
    pub(in crate::tcp) const UNKNOWN: u8 = 1 << 0;
    /// The handshake is not over.
    pub(in crate::tcp) const OPENING: u8 = 1 << 1;
    /// Segments are buffered.
    pub(in crate::tcp) const BUFFERED: u8 = 1 << 2;
    /// Nothing is delivered any more.
    pub(in crate::tcp) const STOPPED: u8 = 1 << 3;
    /// FIN was seen, at `fin_place`.
    pub(in crate::tcp) const FIN: u8 = 1 << 4;
    /// The end was reported.
    pub(in crate::tcp) const FINISHED: u8 = 1 << 5;
    /// FIN of the other side is not acknowledged yet.
    pub(in crate::tcp) const OWES_ACK: u8 = 1 << 6;
    /// The next number is known from acknowledgments of the other side only.
    pub(in crate::tcp) const GUESSED: u8 = 1 << 7;
}

/// Bits by side that only the slow path reads.
pub(super) mod marks {
    /// `acked` of the side is valid.
    pub(in crate::tcp) const ACKED: u16 = 1 << 0;
    /// The other side acknowledged its FIN.
    pub(in crate::tcp) const FIN_ACKED: u16 = 1 << 1;
    /// Its SYN was seen.
    pub(in crate::tcp) const SYN: u16 = 1 << 2;
    /// `far` is valid.
    pub(in crate::tcp) const FAR: u16 = 1 << 3;
    /// It asked for fast open.
    pub(in crate::tcp) const FAST_OPEN: u16 = 1 << 4;
    /// FIN was consumed: the next number is behind it.
    pub(in crate::tcp) const FIN_PASSED: u16 = 1 << 5;
    /// Data of SYN is buffered until the other side accepts it.
    pub(in crate::tcp) const HELD: u16 = 1 << 6;
    /// Some of its segments came in fragments, whose numbers are not followed.
    pub(in crate::tcp) const FRAGMENTS: u16 = 1 << 7;
    /// An acknowledgment of the other side reached beyond what was seen of it.
    pub(in crate::tcp) const LEAPT: u16 = 1 << 8;
    /// Its window is that of a segment behind SYN: it is scaled.
    pub(in crate::tcp) const SCALED: u16 = 1 << 9;
    /// The other side acknowledged what nobody has seen of it: the capture has lost it, or it was never sent.
    pub(in crate::tcp) const DOUBTED: u16 = 1 << 10;
}

/// The shift of a side whose SYN was not seen: windows are taken as large as they can be.
pub(super) const SCALE_UNKNOWN: u8 = 0xff;
/// SYN without the option.
pub(super) const SCALE_NONE: u8 = 0xfe;
const SCALE_MAX: u8 = 14;

/// State of a TCP connection, by the names of Linux's conntrack (`nf_conntrack_proto_tcp.c`). Unlike
/// [`TcpState`] it does not matter which end closes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Conntrack {
    /// SYN of one end.
    #[default]
    SynSent = 0,
    /// SYN of both ends.
    SynRecv = 1,
    /// The handshake is over, or the connection was joined in the middle.
    Established = 2,
    /// FIN of one end.
    FinWait = 3,
    /// It is acknowledged, and the other end may go on sending.
    CloseWait = 4,
    /// FIN of both ends; one is not acknowledged yet.
    LastAck = 5,
    /// Both are acknowledged.
    TimeWait = 6,
    /// Reset.
    Close = 7,
}

impl Conntrack {
    /// All, in the order of their numbers.
    pub const ALL: [Conntrack; 8] = [
        Self::SynSent,
        Self::SynRecv,
        Self::Established,
        Self::FinWait,
        Self::CloseWait,
        Self::LastAck,
        Self::TimeWait,
        Self::Close,
    ];

    /// Its name in `/proc/net/nf_conntrack`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SynSent => "SYN_SENT",
            Self::SynRecv => "SYN_RECV",
            Self::Established => "ESTABLISHED",
            Self::FinWait => "FIN_WAIT",
            Self::CloseWait => "CLOSE_WAIT",
            Self::LastAck => "LAST_ACK",
            Self::TimeWait => "TIME_WAIT",
            Self::Close => "CLOSE",
        }
    }
}

/// What only the slow path needs of a side.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Cold {
    pub(super) skipped: u64,
    pub(super) gap_bytes: u64,
    pub(super) rtt_min_ns: u64,
    /// Place of FIN.
    pub(super) fin_place: u64,
    /// Place behind the last byte that was not kept for lack of room; 0 if there was none.
    pub(super) lost_end: u64,
    /// Highest sequence number seen, one beyond.
    pub(super) highest: u32,
    /// Sequence number of the last segment far outside of the window.
    pub(super) far: u32,
    pub(super) retransmissions: u32,
    pub(super) out_of_order: u32,
    pub(super) overlaps: u32,
    pub(super) conflicts: u32,
    pub(super) gaps: u32,
    pub(super) keep_alives: u32,
    /// The largest window that segments off the fast path advertised, in bytes.
    pub(super) window_largest: u32,
    pub(super) marks: u16,
    pub(super) scale: u8,
}

/// SYN of a side that came while the connection was open: the connection that it may have begun is known by the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Again {
    side: Option<Side>,
    sequence: u32,
    /// The number that the side would have used next.
    next: u32,
    /// Bytes of data.
    len: u16,
    window: u16,
    scale: u8,
    /// Number of the copies of segments behind it; 0 for none.
    number: u16,
}

impl Again {
    const NONE: Again = Again {
        side: None,
        sequence: 0,
        next: 0,
        len: 0,
        window: 0,
        scale: SCALE_UNKNOWN,
        number: 0,
    };

    /// The end that sent SYN.
    pub fn client(&self) -> Option<Side> {
        self.side
    }
}

/// Both directions of a TCP connection. It refers to the [`Reassembler`](super::Reassembler) that served it, which must
/// [close](super::Reassembler::close) it before it is dropped or overwritten, or its buffered segments are lost.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Connection {
    pub(super) position: [u64; 2],
    /// When the sample of the round-trip time was sent; 0 for none.
    pub(super) rtt_start_ns: [u64; 2],
    pub(super) base: [u32; 2],
    /// Highest acknowledgment *by* this side.
    pub(super) acked: [u32; 2],
    /// An acknowledgment of this number ends the sample.
    pub(super) rtt_sequence: [u32; 2],
    /// As last advertised by this side, unscaled.
    pub(super) window: [u16; 2],
    pub(super) flags: [u8; 2],
    pub(super) state: TcpState,
    pub(super) client: Side,

    pub(super) cold: [Cold; 2],
    /// When SYN was seen, then the round-trip time of the handshake; 0 for none.
    pub(super) handshake_ns: u64,
    again: Again,
    /// What both sides have in the buffer.
    pub(super) waiting: Waiting,
    pub(super) is_handshake_timed: bool,
    /// Index of the policy; another value for that of the reassembler.
    policy: u8,
}

const _: () = assert!(size_of::<Connection>() == 256);
const _: () = assert!(std::mem::offset_of!(Connection, cold) == 64);

impl Connection {
    /// A connection of which nothing was seen. `guess` is the client if it is joined in the middle; a SYN decides otherwise.
    pub fn new(guess: Side) -> Self {
        let cold = Cold {
            skipped: 0,
            gap_bytes: 0,
            rtt_min_ns: u64::MAX,
            fin_place: 0,
            lost_end: 0,
            highest: 0,
            far: 0,
            retransmissions: 0,
            out_of_order: 0,
            overlaps: 0,
            conflicts: 0,
            gaps: 0,
            keep_alives: 0,
            window_largest: 0,
            marks: 0,
            scale: SCALE_UNKNOWN,
        };
        Self {
            position: [0; 2],
            rtt_start_ns: [0; 2],
            base: [0; 2],
            acked: [0; 2],
            rtt_sequence: [0; 2],
            window: [0; 2],
            flags: [bits::UNKNOWN | bits::OPENING; 2],
            state: TcpState::None,
            client: guess,
            cold: [cold; 2],
            handshake_ns: 0,
            again: Again::NONE,
            waiting: Waiting::NONE,
            is_handshake_timed: false,
            policy: u8::MAX,
        }
    }

    /// A connection of which nothing was seen, where `first` sends the first segment. Joined in the middle, the client is
    /// the end with the higher port, as [`FlowRecord`](crate::FlowRecord) has it; with equal ports it is `first`.
    pub fn for_key(key: &FlowKey, first: Side) -> Self {
        Self::new(match key.ports[0].cmp(&key.ports[1]) {
            std::cmp::Ordering::Greater => Side::A,
            std::cmp::Ordering::Less => Side::B,
            std::cmp::Ordering::Equal => first,
        })
    }

    /// Resolves overlaps by another policy than that of the reassembler; `None` for that one. Both ends may differ, but a
    /// connection has one policy: that of the end that is protected.
    pub fn set_policy(&mut self, policy: Option<Policy>) {
        self.policy = policy.map_or(u8::MAX, |policy| policy as u8);
    }

    pub(super) fn policy(&self) -> Option<Policy> {
        Policy::from_index(self.policy)
    }

    /// Keeps SYN of a side, whatever is to become of it. Copies of what follows it have this number.
    pub(super) fn note_again(
        &mut self,
        side: Side,
        segment: &super::Segment<'_>,
        scale: u8,
        number: u16,
    ) {
        self.again = Again {
            side: Some(side),
            sequence: segment.sequence,
            next: self.next(side),
            len: segment.len().min(u16::MAX.into()) as u16,
            window: segment.window,
            scale,
            number,
        };
    }

    /// The number of a SYN that was kept, if this segment may be one behind it, at most `reach` further.
    pub(super) fn follows_again(
        &self,
        side: Side,
        segment: &super::Segment<'_>,
        reach: i32,
    ) -> Option<u16> {
        let ahead = distance(self.again.sequence.wrapping_add(1), segment.sequence);
        (self.has_left(side) && (0..=reach).contains(&ahead)).then_some(self.again.number)
    }

    /// The client and the number of its copies, of a connection that a SYN began which was kept, and that has not been given them.
    #[inline]
    pub(super) fn take_copies(&mut self) -> Option<(Side, u16)> {
        if self.state != TcpState::SynSent || self.again.side.is_some() {
            return None;
        }
        let number = std::mem::take(&mut self.again.number);
        (number != 0).then_some((self.client, number))
    }

    /// The number of the copies behind a SYN of `side` that was kept, if it is this one again.
    pub(super) fn copies_of(&self, side: Side, sequence: u32) -> Option<u16> {
        let is_it = self.has_left(side) && self.again.sequence == sequence;
        is_it.then_some(self.again.number)
    }

    /// Whether a SYN was kept.
    pub(super) fn keeps_syn(&self) -> bool {
        self.again.side.is_some()
    }

    /// Whether `side` has not carried on with this connection since a SYN that was kept.
    fn has_left(&self, side: Side) -> bool {
        self.again.side == Some(side) && self.again.next == self.next(side)
    }

    /// Whether a SYN-ACK of `side` answers the SYN that was kept, and not the one that began the connection.
    pub(super) fn is_answered_again(&self, side: Side, segment: &super::Segment<'_>) -> bool {
        let ahead = distance(self.again.sequence.wrapping_add(1), segment.acknowledgment);
        self.has_left(side.other())
            && (0..=i32::from(self.again.len)).contains(&ahead)
            && self.initial_sequence(side) != Some(segment.sequence)
    }

    /// Whether a segment shows that the SYN that was kept began a connection, whose SYN-ACK was not captured: the other end
    /// acknowledges a number behind SYN, at most `reach` further, and its numbers are not those of the connection before: it does
    /// not go on there, and its acknowledgment, or its own number, is further than `plausible` (of that and of this) from what comes
    /// next. Of the end that sent SYN, what goes on behind it counts only if nothing was ever seen of the other end: two packets
    /// that do not arrive there would show it else.
    pub(super) fn goes_on_again(
        &self,
        side: Side,
        segment: &super::Segment<'_>,
        reach: i32,
        plausible: [i32; 2],
    ) -> bool {
        let first = self.again.sequence.wrapping_add(1);
        if self.has_left(side) {
            return segment.sequence == first
                && segment.sequence != self.next(side)
                && !self.marked(side.other(), marks::ACKED);
        }
        let client = side.other();
        let is_far = |next: u32, number: u32, plausible: i32| {
            distance(next, number).unsigned_abs() > plausible.unsigned_abs()
        };
        self.has_left(client)
            && (0..=reach).contains(&distance(first, segment.acknowledgment))
            && segment.sequence != self.next(side)
            && (is_far(self.next(client), segment.acknowledgment, plausible[0])
                || !self.has(side, bits::UNKNOWN)
                    && is_far(self.next(side), segment.sequence, plausible[1]))
    }

    /// Whether a reset of `side` refuses the SYN that was kept.
    pub(super) fn is_refused_again(&self, side: Side, segment: &super::Segment<'_>) -> bool {
        let ahead = distance(self.again.sequence.wrapping_add(1), segment.acknowledgment);
        self.has_left(side.other()) && (0..=i32::from(self.again.len)).contains(&ahead)
    }

    /// A segment of a side came in fragments: its numbers are not followed.
    pub(crate) fn note_fragment(&mut self, side: Side) {
        self.mark(side, marks::FRAGMENTS);
    }

    /// What is known of the connection that a segment belongs to for which the answer was
    /// [`Outcome::Restart`](super::Outcome::Restart): nothing, or its SYN.
    pub fn again(&self, segment: &super::Segment<'_>) -> Again {
        use packet::tcp::flags::{ACK, SYN};
        match segment.flags & (SYN | ACK) {
            SYN => Again::NONE,
            _ => self.again,
        }
    }

    /// Makes a connection of which nothing was seen the one that this SYN began. Its first segment brings those that were copied.
    pub fn begin_again(&mut self, again: &Again) {
        let Some(side) = again.side else { return };
        self.again = Again { number: again.number, ..Again::NONE };
        let first = again.sequence.wrapping_add(1);
        self.client = side;
        self.state = TcpState::SynSent;
        self.base[side.index()] = first;
        self.window[side.index()] = again.window;
        self.unset(side, bits::UNKNOWN | bits::GUESSED);
        self.mark(side, marks::SYN);
        let cold = self.cold_mut(side);
        cold.highest = first.wrapping_add(again.len.into());
        cold.scale = again.scale;
        cold.window_largest = again.window.into();
    }

    /// State by the names of RFC 9293; the diagram is that of [`tcp`](crate::tcp).
    pub fn state(&self) -> TcpState {
        self.state
    }

    /// State by the names of Linux's conntrack.
    pub fn conntrack(&self) -> Conntrack {
        match self.state {
            TcpState::None | TcpState::SynSent => Conntrack::SynSent,
            TcpState::SynReceived => Conntrack::SynRecv,
            TcpState::Established => Conntrack::Established,
            TcpState::FinWait1 | TcpState::FinWait2 | TcpState::CloseWait => {
                let is_owed = (self.flags[0] | self.flags[1]) & bits::OWES_ACK != 0;
                if is_owed { Conntrack::FinWait } else { Conntrack::CloseWait }
            }
            TcpState::LastAck => Conntrack::LastAck,
            TcpState::TimeWait => Conntrack::TimeWait,
            TcpState::Closed => Conntrack::Close,
        }
    }

    /// Whether a side has sent data or FIN that the other side has not acknowledged.
    #[inline]
    pub fn is_unacknowledged(&self) -> bool {
        self.owes_acknowledgment_of(Side::A) || self.owes_acknowledgment_of(Side::B)
    }

    #[inline(always)]
    fn owes_acknowledgment_of(&self, side: Side) -> bool {
        let acknowledged = self.acked[side.other().index()];
        if self.has(side, bits::UNKNOWN | bits::GUESSED) {
            return false;
        }
        // 0 is what nobody has acknowledged, too.
        if acknowledged == 0 && !self.marked(side.other(), marks::ACKED) {
            return self.position[side.index()] > 0;
        }
        self.has(side, bits::BUFFERED) || is_after(self.next(side), acknowledged)
    }

    /// Whether data of a side waits for bytes before it.
    #[inline(always)]
    pub fn waits(&self, side: Side) -> bool {
        self.has(side, bits::BUFFERED)
    }

    /// The side that opened the connection.
    pub fn client(&self) -> Side {
        self.client
    }

    /// Whether the handshake is over, or the connection was joined in the middle.
    pub fn is_established(&self) -> bool {
        self.state >= TcpState::Established
    }

    /// Whether nothing but late packets is expected.
    pub fn is_closed(&self) -> bool {
        self.state >= TcpState::TimeWait
    }

    /// Whether nothing of this side is delivered any more: its end was reported.
    pub fn is_finished(&self, side: Side) -> bool {
        self.has(side, bits::FINISHED)
    }

    /// Offset of the next byte of a side.
    pub fn offset(&self, side: Side) -> u64 {
        self.position[side.index()]
    }

    /// The sequence number that is expected next of a side; 0 if none is known.
    #[inline]
    pub fn next(&self, side: Side) -> u32 {
        self.base[side.index()].wrapping_add(self.position[side.index()] as u32)
    }

    /// Sequence number of SYN; `None` if it was not seen.
    pub fn initial_sequence(&self, side: Side) -> Option<u32> {
        let cold = self.cold(side);
        let initial = self.base[side.index()].wrapping_sub(cold.skipped as u32).wrapping_sub(1);
        (cold.marks & marks::SYN != 0).then_some(initial)
    }

    /// Whether this side may have sent a segment that begins with this number: not beyond what it is known to have sent, and
    /// not further back than a window of 2^30 allows.
    pub fn may_have_sent(&self, side: Side, sequence: u32) -> bool {
        let is_known = !self.has(side, bits::UNKNOWN | bits::GUESSED);
        let ahead = distance(self.cold(side).highest, sequence);
        let next = distance(self.next(side), sequence);
        !is_known || (ahead <= 0 || next <= 0) && next > -(1 << 30)
    }

    /// One beyond the highest sequence number that a side used, so far as segments were acceptable.
    pub fn highest(&self, side: Side) -> u32 {
        let (next, highest) = (self.next(side), self.cold(side).highest);
        if is_after(highest, next) && self.has(side, bits::BUFFERED) { highest } else { next }
    }

    /// Highest acknowledgment that a side sent; `None` if it sent none.
    pub fn acknowledged(&self, side: Side) -> Option<u32> {
        self.marked(side, marks::ACKED).then_some(self.acked[side.index()])
    }

    /// Receive window of a side in bytes, as last advertised; as large as it can be if its scale is unknown.
    pub fn window(&self, side: Side) -> u32 {
        let shift = match self.cold(side).scale {
            SCALE_NONE => 0,
            scale => scale.min(SCALE_MAX),
        };
        u32::from(self.window[side.index()]) << shift
    }

    /// Keep-alives and zero-window probes of a side: segments of at most one byte that had been acknowledged.
    pub fn keep_alives(&self, side: Side) -> u32 {
        self.cold(side).keep_alives
    }

    /// Time between SYN and the ACK that ends the handshake, in nanoseconds.
    pub fn handshake_rtt_ns(&self) -> Option<u64> {
        self.is_handshake_timed.then_some(self.handshake_ns)
    }

    /// Writes what is known of the stream of a side; packets, bytes, TTL and flags are the caller's.
    pub fn report(&self, side: Side, record: &mut SideRecord) {
        let cold = self.cold(side);
        record.stream_bytes = self.offset(side).saturating_sub(cold.gap_bytes);
        record.retransmissions = cold.retransmissions;
        record.out_of_order = cold.out_of_order;
        record.overlaps = cold.overlaps;
        record.conflicts = cold.conflicts;
        record.gaps = cold.gaps;
        record.gap_bytes = cold.gap_bytes;
        record.rtt_min_ns = (cold.rtt_min_ns != u64::MAX).then_some(cold.rtt_min_ns);
    }

    #[inline(always)]
    pub(super) fn cold(&self, side: Side) -> &Cold {
        &self.cold[side.index()]
    }

    pub(super) fn cold_mut(&mut self, side: Side) -> &mut Cold {
        &mut self.cold[side.index()]
    }

    #[inline(always)]
    pub(super) fn has(&self, side: Side, bits: u8) -> bool {
        self.flags[side.index()] & bits != 0
    }

    pub(super) fn set(&mut self, side: Side, bits: u8) {
        self.flags[side.index()] |= bits;
    }

    pub(super) fn unset(&mut self, side: Side, bits: u8) {
        self.flags[side.index()] &= !bits;
    }

    #[inline(always)]
    pub(super) fn marked(&self, side: Side, marks: u16) -> bool {
        self.cold(side).marks & marks != 0
    }

    pub(super) fn mark(&mut self, side: Side, marks: u16) {
        self.cold_mut(side).marks |= marks;
    }

    pub(super) fn unmark(&mut self, side: Side, marks: u16) {
        self.cold_mut(side).marks &= !marks;
    }

    /// Place of the next byte.
    pub(super) fn place(&self, side: Side) -> u64 {
        self.offset(side) + self.cold(side).skipped
    }

    /// Passes sequence numbers that are no bytes of the stream.
    pub(super) fn skip(&mut self, side: Side, numbers: u64) {
        self.base[side.index()] = self.base[side.index()].wrapping_add(numbers as u32);
        self.cold_mut(side).skipped += numbers;
    }

    /// Starts a sample of the round-trip time with the bytes that end at `position`: the first ones of a side, and then
    /// where they cross a multiple of 16 KiB, so that acknowledgments seldom write to the cold part.
    #[inline]
    pub(super) fn time_data(&mut self, side: Side, before: u64, now_ns: u64) {
        let at = side.index();
        let after = self.position[at];
        if (before == 0 || (before ^ after) >> 14 != 0) && self.rtt_start_ns[at] == 0 {
            self.rtt_start_ns[at] = now_ns.max(1);
            self.rtt_sequence[at] = self.base[at].wrapping_add(after as u32);
        }
    }

    /// Ends a sample of the data of `side` if the acknowledgment covers it.
    #[inline]
    pub(super) fn time_acknowledgment(&mut self, side: Side, acknowledgment: u32, now_ns: u64) {
        let at = side.index();
        let start = self.rtt_start_ns[at];
        if start != 0 && !is_after(self.rtt_sequence[at], acknowledgment) {
            self.rtt_start_ns[at] = 0;
            let cold = &mut self.cold[at];
            cold.rtt_min_ns = cold.rtt_min_ns.min(now_ns.saturating_sub(start));
        }
    }
}

/// Whether a sequence number is after another one, within half of their circle.
#[inline]
pub(super) fn is_after(a: u32, b: u32) -> bool {
    distance(b, a) > 0
}

/// From one sequence number to another one, within half of their circle.
#[inline]
pub(super) fn distance(from: u32, to: u32) -> i32 {
    to.wrapping_sub(from) as i32
}
