//! The stage: decodes packets and gives them to the tracker of its worker.

use std::any::Any;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chunk::{Chunk, ColumnSet, Columns, Declaration, Packet, ReasonBlock, Verdict, VerdictKind};
use engine::{Context, Phases, Spread, SpreadHash, Stage};
use packet::tunnel::{Kinds, Path};
use packet::{Anomaly, Decoded, tunnel};
use stream::Tracker;
use stream::tracker::{Input, LATE_NS, Overtaking, Reject};

use super::columns::{self, FlowColumns};
use super::connections::ConnectionColumns;
use super::decode::{self, HeadColumns, HeadView};
use super::follow::Followers;
use super::held::{self, Held, Taken};
use super::reasons;
use super::reassembly::ReassemblyColumns;
use super::search::SearchColumns;
use crate::firewall::header::Whole;
use crate::firewall::refused::{Mailbox, Refused};
use crate::records::{self, RecordColumns, Records};

/// The flows of a worker, which control reads.
pub type Shared = Arc<Mutex<Tracker<Followers>>>;

/// Records that a piece of a sweep looks at: less than 100 µs.
const PIECE: usize = 1 << 14;

/// Rows that are looked at together at least.
const AHEAD_MIN: usize = 8;

/// How often all flows are looked at, in nanoseconds.
const SWEEP_NS: u64 = 1_000_000_000;

/// Events of flows that a sweep ends are earlier than the sweep by less than this.
const SORTED_NS: u64 = 1_000_000_000;
const _: () = assert!(SORTED_NS > stream::tracker::SPAN_NS);

/// The stage of one worker.
pub struct Flow {
    /// `None` after another stage has taken it over.
    tracker: Option<Shared>,
    /// The time of the latest packet of all workers.
    latest_ns: Arc<AtomicU64>,
    decoded: Box<[Decoded]>,
    /// What the stage before it found of the segments of packets, where there is one: see [`decode`].
    segments: Box<[[u64; 2]]>,
    is_decoded: bool,
    /// And numbers of connections.
    is_numbered: bool,
    /// It has searched packets, too.
    is_searched: bool,
    /// Other stages need the headers, too.
    shares: bool,
    /// Frames of more than one cell, one after the other, and where each row's is, as far as there are such.
    linear: Vec<u8>,
    places: Vec<Option<Range<usize>>>,
    /// Rows of a chunk that are looked at.
    rows: Vec<u16>,
    /// Those whose packets a capture cut, by place in `decoded`.
    cut: Vec<usize>,
    /// How many of them are decoded and looked up at once. Those behind a packet that waits are looked at again: the more
    /// chunks are divided, the fewer.
    ahead: usize,
    /// What tunnels carry, by place in `decoded`; empty if none are looked into.
    inner: Vec<Option<(usize, Path)>>,
    tunnels: Kinds,
    /// A firewall behind it asks what it found: flows count once their first packet got through.
    confirms: bool,
    /// Every packet of its connections passes.
    is_complete: bool,
    /// Fragments that wait until their datagram is whole, where stages behind it inspect and drop.
    held: Option<Box<Held>>,
    /// Over captures: the time of the packets, as far as this worker has come.
    now_ns: u64,
    /// What rules of a firewall behind it drop, where somebody hears of that.
    mailbox: Option<Arc<Mailbox>>,
    /// Over captures, where a firewall decides which flows count: the numbers of the chunks in flight, of which it has not heard all,
    /// and the time of the earliest packet of each.
    unheard: VecDeque<(u64, u64)>,
    /// The number of the latest call in which followers heard of packets.
    call: u32,
    /// When the sweep under way began; its end is the end of the table.
    sweep_ns: u64,
    /// It does not find flows of which nothing was heard when it began: they began at this time at the earliest.
    sweep_unheard_ns: u64,
    is_sweeping: bool,
}

impl Flow {
    /// With the flows of its worker. `latest_ns` is shared by all workers.
    pub fn new(tracker: Shared, latest_ns: Arc<AtomicU64>) -> Self {
        Self {
            tracker: Some(tracker),
            latest_ns,
            decoded: vec![Decoded::default(); chunk::CHUNK_PACKETS_MAX].into_boxed_slice(),
            segments: vec![[0; 2]; chunk::CHUNK_PACKETS_MAX].into_boxed_slice(),
            is_decoded: false,
            is_numbered: false,
            is_searched: false,
            shares: false,
            linear: Vec::new(),
            places: Vec::new(),
            rows: Vec::with_capacity(chunk::CHUNK_PACKETS_MAX),
            cut: Vec::new(),
            ahead: chunk::CHUNK_PACKETS_MAX,
            inner: Vec::new(),
            tunnels: Kinds::NONE,
            confirms: false,
            is_complete: false,
            held: None,
            now_ns: 0,
            mailbox: None,
            unheard: VecDeque::new(),
            call: 0,
            sweep_ns: 0,
            sweep_unheard_ns: u64::MAX,
            is_sweeping: false,
        }
    }

    /// Flows count once their first packet got through.
    #[must_use]
    pub fn confirming(mut self, confirms: bool) -> Self {
        self.confirms = confirms;
        self
    }

    /// Rules drop what no stream takes: what did not pass is no reason to believe that it was sent.
    #[must_use]
    pub fn complete(mut self, is_complete: bool) -> Self {
        self.is_complete = is_complete;
        self
    }

    /// Fragments are held back until their datagram is whole, with these bounds, by so many workers.
    #[must_use]
    pub fn holding(mut self, bounds: Option<stream::defrag::Config>, workers: usize) -> Self {
        self.held = bounds.map(|bounds| Box::new(Held::new(bounds, workers)));
        self
    }

    /// The packets of these tunnels are what is inside.
    #[must_use]
    pub fn looking_into(mut self, tunnels: Kinds) -> Self {
        self.tunnels = tunnels;
        self
    }

    /// Followers hear of packets that rules of a firewall behind it drop.
    #[must_use]
    pub fn hearing_of_refused(mut self, mailbox: Option<Arc<Mailbox>>) -> Self {
        self.mailbox = mailbox;
        self
    }

    /// A [`FlowDecode`](super::FlowDecode) is right before it.
    #[must_use]
    pub fn decoded(mut self, is_decoded: bool) -> Self {
        self.is_decoded = is_decoded;
        self
    }

    /// The stage right before it [numbers connections](super::FlowDecode::numbering).
    #[must_use]
    pub fn numbered(mut self, is_numbered: bool) -> Self {
        self.is_numbered = is_numbered && self.is_decoded;
        self
    }

    /// A [`FlowSearch`](super::FlowSearch) is right before it.
    #[must_use]
    pub fn searched(mut self, is_searched: bool) -> Self {
        self.is_searched = is_searched && self.is_decoded;
        self
    }

    /// Headers are in columns of records if a stage before has left them there, and are left there for later stages.
    #[must_use]
    pub fn sharing(mut self, shares: bool) -> Self {
        self.shares = shares && !self.is_decoded;
        self
    }

    fn lock(tracker: &Shared) -> MutexGuard<'_, Tracker<Followers>> {
        tracker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Followers hear of packets that rules of a firewall dropped since.
    fn hear_of_refused(&mut self) {
        let Some((mailbox, tracker)) = self.mailbox.as_ref().zip(self.tracker.as_ref()) else {
            return;
        };
        let packets = mailbox.take();
        if !packets.is_empty() {
            tell_of_refused(packets, &mut Self::lock(tracker));
        }
    }

    /// Followers hear of packets that a stage before has dropped and that cannot be decoded.
    #[cold]
    fn hear_of_undecoded<T>(&self, packets: &[Packet], verdicts: &[u32], cx: &Context<'_, T>) {
        let Some(tracker) = &self.tracker else { return };
        let mut tracker = Self::lock(tracker);
        if tracker.module().all.is_empty() {
            return;
        }
        for (packet, verdict) in packets.iter().zip(verdicts) {
            if Verdict(*verdict).kind() != VerdictKind::Drop {
                continue;
            }
            let decoded = crate::received::decode(packet);
            if !decoded.is_ip() || is_right(&decoded) {
                continue;
            }
            let input = Input {
                decoded: &decoded,
                frame: packet.data(),
                frame_len: packet.wire_len() as u32,
                time_ns: cx.arrival_ns(packet),
                port: packet.port,
                checksums: true,
                tunnels: None,
                segment: None,
            };
            let followers = tracker.module().all.iter_mut();
            followers.for_each(|own| own.rejected(None, &input, Reject::Malformed));
        }
    }

    /// Drops fragments that have waited too long at a time, or all of them.
    fn end_held<T>(&mut self, now_ns: u64, ends_all: bool, cx: &mut Context<'_, T>) {
        let Some(held) = self.held.as_deref_mut() else { return };
        held.end(now_ns, ends_all, cx);
        if let Some(tracker) = self.tracker.as_ref().filter(|_| !held.news.is_empty()) {
            tell(held, &mut Self::lock(tracker));
        }
    }

    /// The time of the earliest packet of which it has not heard all.
    fn unheard_ns(&self) -> u64 {
        self.unheard.iter().map(|own| own.1).min().unwrap_or(u64::MAX)
    }

    /// Ends idle flows, a piece at a time.
    fn sweep(&mut self, now_ns: u64) {
        if !self.is_sweeping {
            if now_ns.saturating_sub(self.sweep_ns) < SWEEP_NS {
                return;
            }
            (self.sweep_ns, self.is_sweeping) = (now_ns, true);
            self.sweep_unheard_ns = self.unheard_ns();
        }
        let Some(tracker) = &self.tracker else { return };
        let mut tracker = Self::lock(tracker);
        if tracker.sweep(PIECE, self.sweep_ns) {
            self.is_sweeping = false;
            let unheard_ns = self.sweep_unheard_ns.min(self.unheard_ns());
            let until_ns = self.sweep_ns.saturating_sub(SORTED_NS).min(unheard_ns);
            tracker.module().all.iter_mut().for_each(|follower| follower.advanced(until_ns));
        }
    }
}

/// Followers hear of packets that rules of a firewall dropped.
fn tell_of_refused(packets: Vec<Refused>, tracker: &mut Tracker<Followers>) {
    for own in packets {
        let flow = own.flow.map(|(number, _)| number).filter(|number| *number != 0);
        tracker.module().all.iter_mut().for_each(|follower| follower.refused(&own, flow));
    }
}

/// Whether a packet is a fragment that is to be held back. One that came out of an ESP packet cannot enter the pipeline again: its
/// association would be forgotten.
fn is_held(d: &Decoded, packet: &Packet) -> bool {
    d.has(Decoded::FRAGMENT) && d.is_ip() && packet.mark & crate::router::MARK_OPENED == 0
}

/// Followers hear what became of fragments, and may want a datagram dropped.
fn tell(held: &mut Held, tracker: &mut Tracker<Followers>) {
    for (fragments, count) in held.news.drain(..) {
        let drops = tracker.held(&fragments, count);
        if let Some(released) = held.released.as_mut().filter(|own| own.key == fragments.key)
            && drops
            && fragments.failed.is_none()
        {
            released.dropped.get_or_insert(crate::ids::reasons::IDS_DROP);
        }
    }
}

/// Whether nothing is wrong with the IP header of a packet, but for its addresses perhaps.
const fn is_right(d: &Decoded) -> bool {
    matches!(d.anomaly, Anomaly::None | Anomaly::MartianSource | Anomaly::MartianDestination)
}

/// What is known of the headers of packets.
enum Known<'a> {
    Nothing,
    /// What the stage before it found, on a device perhaps.
    Heads(HeadView<'a>),
    /// What any stage found.
    Records(Records<'a>),
}

/// Whether a packet with this verdict leaves, or goes on otherwise: a stage has taken it, or it enters the pipeline again.
fn gets_through(verdict: Verdict) -> bool {
    !matches!(verdict.kind(), VerdictKind::Drop | VerdictKind::Dump | VerdictKind::Next)
}

impl<T: Send + Sync + 'static> Stage<T> for Flow {
    fn name(&self) -> &'static str {
        if self.is_decoded { super::TRACKER } else { super::STAGE }
    }

    fn columns(&self) -> &'static [Declaration] {
        match (self.is_decoded, self.shares) {
            (true, _) if self.is_searched && self.is_numbered => &[
                FlowColumns::COLUMNS,
                HeadColumns::COLUMNS,
                ReassemblyColumns::COLUMNS,
                ConnectionColumns::COLUMNS,
                SearchColumns::COLUMNS,
            ],
            (true, _) if self.is_numbered => &[
                FlowColumns::COLUMNS,
                HeadColumns::COLUMNS,
                ReassemblyColumns::COLUMNS,
                ConnectionColumns::COLUMNS,
            ],
            (true, _) if self.is_searched => &[
                FlowColumns::COLUMNS,
                HeadColumns::COLUMNS,
                ReassemblyColumns::COLUMNS,
                SearchColumns::COLUMNS,
            ],
            (true, _) => &[FlowColumns::COLUMNS, HeadColumns::COLUMNS, ReassemblyColumns::COLUMNS],
            (false, true) => &[FlowColumns::COLUMNS, RecordColumns::COLUMNS],
            (false, false) => &[FlowColumns::COLUMNS],
        }
    }

    /// Rows that it does not look at are not tracked.
    fn zeroed(&self) -> ColumnSet {
        let own = ColumnSet::of(&[
            FlowColumns::FLOW_STATE,
            FlowColumns::FLOW_OPENS,
            FlowColumns::FLOW_CALL,
        ]);
        let own = match self.held {
            Some(_) => own.union(&ColumnSet::of(&[FlowColumns::FLOW_WHOLE])),
            None => own,
        };
        if self.shares { own.union(&records::zeroed()) } else { own }
    }

    fn drop_reasons(&self) -> &'static [&'static ReasonBlock] {
        &[reasons::HELD]
    }

    fn phases(&self) -> Phases {
        Phases::PRE
    }

    fn spread(&self) -> Spread {
        Spread::Hosts
    }

    /// The hosts inside, if tunnels are looked into.
    fn spread_hash(&self) -> Option<SpreadHash> {
        let tunnels = self.tunnels;
        let hash = move |frame: &[u8]| tunnel::hash_of_frame(frame, &tunnels);
        (!tunnels.is_empty()).then(|| SpreadHash::from(hash))
    }

    fn pre_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, T>) {
        self.hear_of_refused();
        if self.confirms && !cx.is_live() {
            let earliest_ns = chunk.packets.iter().map(|own| own.time_ns).min();
            self.unheard.extend(earliest_ns.map(|own| (chunk.seq, own)));
        }
        let Chunk { packets, rows, .. } = chunk;
        self.rows.clear();
        let verdicts = rows.verdicts().iter().zip(0..);
        self.rows
            .extend(verdicts.filter(|(verdict, _)| Verdict(**verdict).is_next()).map(|own| own.1));
        if self.rows.is_empty() {
            FlowColumns::view(rows).flow_call.fill(0);
            self.hear_of_undecoded(packets, rows.verdicts(), cx);
            return;
        }
        if let Some(held) = self.held.as_mut().filter(|_| !cx.is_again(0)) {
            held.released = None;
        }
        let Some(tracker) = &self.tracker else { return };
        let mut owned = Self::lock(tracker);
        owned.set_confirms(self.confirms);
        // Followers hear of packets in the order of receipt.
        let has_followers = self.held.is_some() || !owned.module().all.is_empty();
        let may_overtake = self.confirms && !has_followers;
        owned.let_overtake(match cx.may_overtake().filter(|_| may_overtake) {
            None => Overtaking::None,
            Some(Spread::Hosts) => Overtaking::OtherHosts,
            Some(_) => Overtaking::OtherFlows,
        });
        owned.set_complete(self.is_complete);
        let mut call = 0;
        if !owned.module().all.is_empty() {
            // Not 0, which is that of rows that nobody looked at.
            self.call = self.call.wrapping_add(1).max(1);
            owned.module().all.iter_mut().for_each(|follower| follower.begin(self.call));
            call = self.call;
        }
        // Rows that were left behind have the number of another call.
        FlowColumns::view(rows).flow_call.fill(call);
        let mut states = [0; 8];
        let (mut first, mut latest_ns) = (0, 0);
        // Rows from there on are looked at again.
        let mut end = packets.len();
        while let Some(piece) = self.rows.get(first..).filter(|rest| !rest.is_empty()) {
            let piece = &piece[..piece.len().min(self.ahead)];
            self.places.clear();
            self.linear.clear();
            self.inner.clear();
            self.cut.clear();
            owned.module().clean.clear();
            if self.is_searched {
                let clean = SearchColumns::view(rows).flow_clean;
                let own = piece.iter().map(|row| clean[usize::from(*row)]);
                owned.module().clean.extend(own);
            }
            if self.is_decoded {
                let own = ReassemblyColumns::view(rows);
                owned.shares(piece.iter().map(|row| {
                    let row = usize::from(*row);
                    decode::group_of(own.flow_segment[row], own.flow_group[row])
                }));
            }
            if self.is_numbered {
                let own = ConnectionColumns::view(rows);
                owned.numbers(piece.iter().map(|row| {
                    let row = usize::from(*row);
                    decode::group_of(own.flow_segment[row], own.flow_number[row])
                }));
            }
            let mut known = match (self.is_decoded, self.shares) {
                (true, _) => Known::Heads(HeadColumns::view(rows)),
                (false, true) => Known::Records(Records::of_rows(rows)),
                (false, false) => Known::Nothing,
            };
            let records = self.decoded.iter_mut().zip(&mut self.segments);
            let mut fragment = None;
            for (at, (row, (decoded, segment))) in piece.iter().zip(records).enumerate() {
                let row = usize::from(*row);
                let packet = &packets[row];
                match &mut known {
                    Known::Heads(heads) if decode::is_known(heads.flow_segment[row]) => {
                        let ([w0, w1], [w2, w3]) =
                            (heads.flow_header0[row], heads.flow_header1[row]);
                        let (src, dst) = (heads.flow_src[row], heads.flow_dst[row]);
                        *decoded = Decoded::from_words(src, dst, [w0, w1, w2, w3]);
                        *segment = heads.flow_segment[row];
                    }
                    Known::Records(records) => *decoded = *records.of(row, packet),
                    Known::Heads(_) => {
                        crate::received::decode_into(packet, decoded);
                        *segment = [0; 2];
                    }
                    Known::Nothing => crate::received::decode_into(packet, decoded),
                }
                if decoded.anomaly == Anomaly::Truncated
                    && crate::received::decode_cut(packet, decoded)
                {
                    self.cut.push(at);
                }
                if !self.tunnels.is_empty() {
                    let checksums = crate::received::checksums(packet);
                    let inner = tunnel::inside(packet.data(), decoded, &self.tunnels, checksums);
                    if let Some(inner) = &inner {
                        // What was found before is of the packet outside.
                        (*decoded, *segment) = (inner.decoded, [0; 2]);
                    }
                    self.inner.push(inner.map(|inner| (inner.at, inner.path)));
                }
                if packet.cells() > 1 {
                    let begin = self.linear.len();
                    packet.segments().for_each(|segment| self.linear.extend_from_slice(segment));
                    self.places.resize(at, None);
                    self.places.push(Some(begin..self.linear.len()));
                }
                if self.held.is_some() && is_held(decoded, packet) {
                    fragment = Some(at);
                    break;
                }
            }
            // What is before a fragment comes first.
            let fragment = fragment.map(|at| (at, piece[at]));
            let piece = &piece[..fragment.map_or(piece.len(), |(at, _)| at)];
            let frame = |at: usize| match self.places.get(at) {
                Some(Some(place)) => &self.linear[place.clone()],
                _ => packets[usize::from(piece[at])].data(),
            };
            let view = FlowColumns::view(rows);
            let has_segments = self.is_decoded;
            let input = |at: usize| {
                let packet = &packets[usize::from(piece[at])];
                let inner = self.inner.get(at).and_then(Option::as_ref);
                let frame = &frame(at)[inner.map_or(0, |(at, _)| *at)..];
                Input {
                    decoded: &self.decoded[at],
                    frame,
                    frame_len: packet.wire_len() as u32,
                    time_ns: cx.arrival_ns(packet),
                    port: packet.port,
                    checksums: crate::received::checksums(packet)
                        == packet::checksum::Checksums::Verify,
                    tunnels: inner.map(|(_, path)| path),
                    segment: match has_segments {
                        true => decode::segment_of(self.segments[at], &self.decoded[at], frame),
                        false => None,
                    },
                }
            };
            let followers = owned.module();
            followers.rows.clear();
            followers.rows.extend_from_slice(piece);
            followers.frames.clear();
            if self.is_searched || followers.all.iter().any(|own| own.asks_for_frames()) {
                followers.frames.extend((0..piece.len()).map(|at| {
                    let bytes = frame(at).as_ptr_range();
                    bytes.start.addr()..bytes.end.addr()
                }));
            }
            let is_heard = self.mailbox.is_some();
            let taken = owned.packets(piece.len(), input, |at, tracked| {
                states[tracked.state as usize & 7] += 1;
                let row = usize::from(piece[at]);
                (view.flow_state[row], view.flow_slot[row], view.flow_opens[row]) =
                    columns::encode(tracked);
                if is_heard {
                    view.flow_id[row] = tracked.number;
                }
            });
            let waiting = owned.waiting();
            if !self.cut.is_empty() {
                let is_taken = |at: usize| at < taken && !waiting.contains(&(at as u32));
                let cut = self.cut.iter().filter(|at| is_taken(**at)).count();
                owned.count_cut(cut);
            }
            // Time has come as far as the packets that were looked at: the others may be of flows that a sweep would end.
            let arrival = |row: &u16| cx.arrival_ns(&packets[usize::from(*row)]);
            // Of a clock they have all the same.
            let times = &piece[..if cx.is_live() { taken.min(1) } else { taken }];
            latest_ns = times.iter().map(arrival).fold(latest_ns, u64::max);
            let waiting = owned.waiting();
            if !waiting.is_empty() {
                // They wait, and so does what the tracker has not seen.
                end = self.rows.get(first + taken).map_or(packets.len(), |row| usize::from(*row));
                let _ = cx.leave(waiting.iter().map(|at| piece[*at as usize]), end);
                let taken = taken - waiting.len();
                self.ahead = (2 * taken).clamp(AHEAD_MIN, chunk::CHUNK_PACKETS_MAX);
                break;
            }
            if let Some(row) = piece.get(taken) {
                // What became of the packet that opened its flow decides what it is. Apart from a worker it is not tracked.
                end = usize::from(*row);
                let _ = cx.divide(end);
                self.ahead = (2 * taken).clamp(AHEAD_MIN, chunk::CHUNK_PACKETS_MAX);
                break;
            }
            first += taken;
            let Some((at, row)) = fragment else {
                self.ahead = (2 * self.ahead).min(chunk::CHUNK_PACKETS_MAX);
                continue;
            };
            first += 1;
            self.ahead = (2 * taken).clamp(AHEAD_MIN, chunk::CHUNK_PACKETS_MAX);
            let Some(held) = self.held.as_deref_mut() else { continue };
            let row = usize::from(row);
            let now_ns = cx.arrival_ns(&packets[row]);
            latest_ns = latest_ns.max(now_ns);
            let (decoded, inner) = (&self.decoded[at], self.inner.get(at).and_then(Option::as_ref));
            let path = inner.map(|(_, path)| path);
            let packet = &packets[row];
            let bytes = match self.places.get(at) {
                Some(Some(place)) => &self.linear[place.clone()],
                _ => packet.data(),
            };
            let bytes = bytes.get(inner.map_or(0, |(at, _)| *at)..).unwrap_or_default();
            let of_released = held::fragment(decoded, bytes, path)
                .is_some_and(|own| cx.is_again(row) && held.is_released(&own));
            let input = Input {
                decoded,
                frame: bytes,
                frame_len: packet.wire_len() as u32,
                time_ns: now_ns,
                port: packet.port,
                checksums: crate::received::checksums(packet)
                    == packet::checksum::Checksums::Verify,
                tunnels: path,
                segment: None,
            };
            if of_released {
                let view = FlowColumns::view(rows);
                let (followers, mut decided) = (owned.module(), None);
                followers.rows.clear();
                followers.rows.push(row as u16);
                followers.frames.clear();
                followers.frames.push(0..0);
                let whole = held.decoded(decoded);
                let Held { whole: frame, released, .. } = held;
                if let Some(released) = released {
                    released.left -= 1;
                    let tracked = match released.tracked {
                        None => {
                            let frame_len = frame.len() as u32;
                            let datagram = Input { decoded: &whole, frame, frame_len, ..input };
                            owned.datagram(0, &datagram, released.frames)
                        }
                        Some(tracked) => {
                            owned.rest_of_datagram(0, tracked, &input);
                            tracked
                        }
                    };
                    released.tracked = Some(stream::tracker::Tracked { opens: None, ..tracked });
                    states[tracked.state as usize & 7] += 1;
                    (view.flow_state[row], view.flow_slot[row], view.flow_opens[row]) =
                        columns::encode(tracked);
                    view.flow_id[row] = tracked.number;
                    view.flow_whole[row] = Whole::of(frame, &whole).bits();
                    decided = released.dropped;
                }
                if let Some(reason) = decided {
                    view.verdict[row] = Verdict::drop(reason).0;
                }
                continue;
            }
            if !cx.is_again(row) && owned.module().fragment_in(row, &input) {
                continue;
            }
            let (time_ns, decoded, inner) = (packet.time_ns, *decoded, inner.cloned());
            let own = std::mem::replace(&mut packets[row], Packet::empty());
            rows.verdicts()[row] = Verdict::TAKEN.0;
            let taken = held.take(own, (&decoded, inner.as_ref()), now_ns, cx);
            tell(held, &mut owned);
            if let Taken::Whole = taken {
                // They leave now, not before others that have left.
                let done = held.done.drain(..).map(|mut own| {
                    own.time_ns = time_ns;
                    own
                });
                if cx.put_before(row, done) {
                    end = row;
                    break;
                }
            }
        }
        owned.count_states(&states);
        drop(owned);
        if self.rows.len() < packets.len() {
            self.hear_of_undecoded(&packets[..end], rows.verdicts(), cx);
        }
        self.now_ns = self.now_ns.max(latest_ns);
        self.latest_ns.fetch_max(latest_ns, Ordering::Relaxed);
        let late_ns = if cx.is_live() { 0 } else { LATE_NS };
        let swept_ns = self.now_ns.saturating_sub(late_ns);
        self.end_held(swept_ns, false, cx);
        self.sweep(swept_ns);
    }

    fn divides(&self) -> bool {
        self.confirms || self.held.is_some()
    }

    fn sees_retired(&self) -> bool {
        self.confirms || self.held.is_some()
    }

    /// Flows count whose first packet got through. Of a datagram all fragments are dropped if one is.
    fn retired(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, T>) {
        // Chunks retire in order. What the firewall has dropped of this one is in the mailbox.
        while self.unheard.front().is_some_and(|(seq, _)| *seq <= chunk.seq) {
            self.unheard.pop_front();
        }
        let view = FlowColumns::view(&mut chunk.rows);
        if let Some(held) = self.held.as_mut().filter(|_| cx.is_again(0))
            && let Some(released) = &mut held.released
        {
            let own = || view.flow_whole.iter().enumerate().filter(|(_, whole)| **whole != 0);
            let dropped = own().map(|(row, _)| Verdict(view.verdict[row]));
            let mut dropped = dropped.filter(|own| own.kind() == VerdictKind::Drop);
            released.dropped = released.dropped.or(dropped.next().map(Verdict::reason));
            if let Some(reason) = released.dropped {
                for (row, _) in own() {
                    if Verdict(view.verdict[row]).kind() != VerdictKind::Taken {
                        view.verdict[row] = Verdict::drop(reason).0;
                    }
                }
            }
        }
        if view.flow_opens.iter().all(|opens| *opens == 0) {
            return;
        }
        let Some(tracker) = &self.tracker else { return };
        let mut tracker = Self::lock(tracker);
        for (row, verdict) in view.verdict.iter().enumerate() {
            if let Some(flow) = columns::opened(view.flow_slot[row], view.flow_opens[row]) {
                tracker.decide(flow, gets_through(Verdict(*verdict)));
            }
        }
    }

    /// Live, time goes on without packets.
    fn tick(&mut self, cx: &mut Context<'_, T>) {
        if cx.is_live() {
            self.now_ns = cx.now_ns;
            self.hear_of_refused();
            self.end_held(cx.now_ns, false, cx);
            self.sweep(cx.now_ns);
        }
    }

    fn next_tick_ns(&self) -> Option<u64> {
        let sweep_ns = if self.is_sweeping { self.now_ns } else { self.sweep_ns + SWEEP_NS };
        let held_ns = self.held.as_ref().and_then(|held| held.next_timeout_ns());
        (self.now_ns > 0).then(|| held_ns.map_or(sweep_ns, |own| own.min(sweep_ns)))
    }

    fn held(&self) -> usize {
        self.held.as_ref().map_or(0, |held| held.len())
    }

    fn drain(&mut self, cx: &mut Context<'_, T>) {
        let latest_ns = self.latest_ns.load(Ordering::Relaxed);
        let now_ns = if cx.is_live() { cx.now_ns } else { latest_ns };
        self.end_held(now_ns, true, cx);
        self.hear_of_refused();
        let Some(tracker) = &self.tracker else { return };
        let mut tracker = Self::lock(tracker);
        tracker.finish(now_ns);
        tracker.module().all.iter_mut().for_each(|follower| follower.finished());
    }

    fn inherit(&mut self, before: &mut dyn Stage<T>) {
        if let Some(before) = before.as_any().and_then(|before| before.downcast_mut::<Self>()) {
            // The part of the control plane gave both the same one.
            self.tracker = before.tracker.take().or_else(|| self.tracker.take());
            self.latest_ns = before.latest_ns.clone();
            self.call = before.call;
            if let (Some(held), Some(before)) = (&mut self.held, &mut before.held) {
                std::mem::swap(held, before);
            }
        }
    }

    fn as_any(&mut self) -> Option<&mut dyn Any> {
        Some(self)
    }
}
