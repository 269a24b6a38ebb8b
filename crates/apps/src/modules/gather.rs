//! What the stage `flow` tells the stage `modules` of a chunk's packets: their flows, and bytes in order.
//!
//! ```text
//!  flow, in its pre_shade ─▶ Gathered ─▶ the first stage `modules`, in its pre_shade
//!                                           └─▶ columns, and attached to packets (`pieces`) ─▶ kernels, further stages
//! ```
//!
//! Both stages are of one pipeline and worker, and `flow` comes first: when its `pre_shade` is through, everything is here. Chunks may wait
//! for a device between both, so what is left is [kept by call](crate::flow::calls).
//! A follower copies the bytes: some waited in the buffer of the tracker, which is theirs no more after the call.
//!
//! Threads: one worker; the lock is never contended.

use std::ops::Range;

use controlplane::module::{Joined, Piece, payload_offset};
use packet::{Decoded, IpProtocol};
use stream::tcp::Want;
use stream::tracker::{Identity, OfFlow};
use stream::{FlowRecord, Side};

use super::held::Bytes;
use crate::flow::by_worker::{self, ByWorker, lock};
use crate::flow::calls::{Asker, Calls, OfCall};
use crate::flow::follow::{Follower, Kept, Listener, Place};

/// A packet of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its row in the chunk.
    pub row: usize,
    /// The place of its flow.
    pub slot: usize,
    /// Whether a flow begins here in this place.
    pub is_first: bool,
    /// The number of the flow.
    pub flow: u64,
    /// Whether the end that answers sent it.
    pub is_reply: bool,
    /// The bytes that a TCP segment carries, whether they are new or not.
    pub segment: Bytes,
    /// Pieces before it, of the chunk.
    pieces: usize,
}

/// A piece of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    is_reply: bool,
    offset: u64,
    begin: usize,
    len: usize,
    /// Where it is in its frame; nothing for bytes that waited, or came in fragments.
    in_frame: Option<usize>,
    /// The sequence number of its first byte; nothing for bytes that waited.
    sequence: Option<u32>,
}

/// What is known of a chunk.
#[derive(Debug, Default)]
pub struct OfChunk {
    packets: Vec<Known>,
    parts: Vec<Part>,
    bytes: Vec<u8>,
    /// UDP datagrams that came in fragments: the packet each is with, its headers, and where in `bytes` it is.
    joined: Vec<(usize, Decoded, Range<usize>)>,
}

/// What is known of chunks, and of the packet at hand.
#[derive(Debug, Default)]
pub struct Gathered {
    calls: Calls<OfChunk>,
    /// The frame of the last packet.
    frame: Range<usize>,
    /// The payload of the last packet, by address; of one that came in fragments elsewhere than in the frame.
    payload: Range<usize>,
    /// The flow of the last packet is taken in; one that ends brings bytes that no packet brings.
    is_closing: bool,
    /// Whether somebody reads streams.
    has_readers: bool,
}

impl OfChunk {
    /// Packets of flows, in the order of their rows. A row with several: a flow ended and the next one began.
    pub fn packets(&self) -> &[Known] {
        &self.packets
    }

    /// The pieces of packet `at`, each with where it is in the frame, if it is there.
    pub fn pieces(
        &self,
        at: usize,
    ) -> impl ExactSizeIterator<Item = (Piece<'_>, Option<usize>)> + Clone {
        self.parts_of(at).iter().map(|part| {
            let bytes = &self.bytes[part.begin..part.begin + part.len];
            (Piece { is_reply: part.is_reply, offset: part.offset, bytes }, part.in_frame)
        })
    }

    /// The UDP datagram that came in fragments and is with packet `at`.
    pub fn joined(&self, at: usize) -> Option<Joined<'_>> {
        let own = self.joined.binary_search_by_key(&at, |own| own.0).ok()?;
        let (_, decoded, place) = &self.joined[own];
        Some(Joined { decoded, frame: &self.bytes[place.clone()] })
    }

    /// The new bytes of its sender that packet `at` brings, those among them that waited for it.
    pub fn fresh(&self, at: usize) -> Bytes {
        let known = &self.packets[at];
        let own = || self.parts_of(at).iter().filter(|part| part.is_reply == known.is_reply);
        let (Some(first), Some(last)) = (own().next(), own().next_back()) else {
            return Bytes::default();
        };
        let Some((part, sequence)) = own().find_map(|part| Some((part, part.sequence?))) else {
            return known.segment;
        };
        let begin = sequence.wrapping_sub((part.offset - first.offset) as u32);
        Bytes { begin, len: (last.offset + last.len as u64 - first.offset) as u32 }
    }

    fn parts_of(&self, at: usize) -> &[Part] {
        let begin = self.packets[at].pieces;
        let end = self.packets.get(at + 1).map_or(self.parts.len(), |next| next.pieces);
        &self.parts[begin..end]
    }
}

impl OfCall for OfChunk {
    fn clear(&mut self) {
        self.packets.clear();
        self.parts.clear();
        self.bytes.clear();
        self.joined.clear();
    }

    fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }
}

impl Gathered {
    /// What a stage has as long as it takes what is known.
    pub fn asker(&self) -> Asker {
        self.calls.asker()
    }

    /// What is known of the chunk that the call of this number looked at; it is taken.
    pub fn take(&mut self, call: u32) -> OfChunk {
        self.calls.of(call).map(std::mem::take).unwrap_or_default()
    }

    /// It is not needed any more.
    pub fn give_back(&mut self, chunk: OfChunk) {
        self.calls.keep(chunk);
    }
}

impl OfChunk {
    /// Keeps a datagram that came in fragments, for the last packet. What a tunnel carries is not what modules see.
    fn join(&mut self, whole: &OfFlow<'_>) {
        let (d, frame) = (whole.input.decoded, whole.input.frame);
        let Some(at) = self.packets.len().checked_sub(1) else { return };
        let is_whole = d.protocol == IpProtocol::UDP && d.ports().is_some() && !whole.is_piece();
        if is_whole && whole.input.tunnels.is_none() {
            let begin = self.bytes.len();
            self.bytes.extend_from_slice(frame);
            self.joined.push((at, *d, begin..self.bytes.len()));
        }
    }
}

/// What a follower and a stage share.
pub type Shared = by_worker::Shared<Gathered>;

/// What is shared in each pipeline and worker.
pub type Places = ByWorker<Gathered>;

impl Places {
    /// Whether streams are read there.
    pub fn set_readers(&self, has_readers: bool) {
        self.all().iter().for_each(|shared| lock(shared).has_readers = has_readers);
    }
}

impl Listener for Places {
    /// Nobody asks for a follower without its place.
    fn follower(&self, worker: usize, _workers: usize) -> Box<dyn Follower> {
        Box::new(Gathering(self.of("", worker)))
    }

    fn stage(&self) -> Option<&'static str> {
        Some(super::STAGE)
    }

    fn follower_in(&self, pipeline: &str, at: usize, _number: (usize, usize)) -> Box<dyn Follower> {
        Box::new(Gathering(self.of(pipeline, at)))
    }
}

/// What a TCP segment carries, and at which addresses; nothing for fragments that are passed on by themselves.
fn segment_of(packet: &OfFlow<'_>) -> (Bytes, Range<usize>) {
    let (d, frame) = (packet.input.decoded, packet.input.frame);
    let l4 = usize::from(d.l4_offset);
    let is_segment = d.protocol == IpProtocol::TCP && d.ports().is_some() && !packet.is_piece();
    let header = frame.get(l4..l4 + 14).filter(|_| is_segment);
    let (Some(header), Some(begin)) = (header, payload_offset(d, frame)) else {
        return (Bytes::default(), 0..0);
    };
    let sequence = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
    // A SYN has a sequence number before its bytes.
    let sequence = sequence.wrapping_add(u32::from(header[13] >> 1 & 1));
    let len = d.l3_end().saturating_sub(begin);
    let address = frame.as_ptr().addr() + begin;
    (Bytes { begin: sequence, len: len as u32 }, address..address + len)
}

/// Puts into [`Gathered`] what it hears.
struct Gathering(Shared);

impl Follower for Gathering {
    fn asks_for_frames(&self) -> bool {
        true
    }

    fn begin(&mut self, call: u32) {
        let mut all = lock(&self.0);
        all.calls.begin(call);
        all.is_closing = false;
    }

    fn packet(&mut self, flow: &Identity, _: &mut Kept, at: &Place, packet: &OfFlow<'_>) {
        let OfFlow { side, is_first, .. } = *packet;
        let all = &mut *lock(&self.0);
        let chunk = all.calls.now();
        let pieces = chunk.parts.len();
        let is_reply = side != flow.client;
        (all.frame, all.is_closing) = (at.frame.clone(), false);
        let segment;
        (segment, all.payload) = segment_of(packet);
        chunk.packets.push(Known {
            row: at.row,
            slot: at.slot.index(),
            is_first,
            flow: flow.id,
            is_reply,
            segment,
            pieces,
        });
        // What was put together is in no frame.
        let own = packet.input.frame.as_ptr_range();
        let is_inside = at.frame.start <= own.start.addr() && own.end.addr() <= at.frame.end;
        if !is_inside && !packet.is_rest {
            chunk.join(packet);
        }
    }

    fn datagram(&mut self, _: &Identity, _: &mut Kept, _: &Place, whole: &OfFlow<'_>) {
        lock(&self.0).calls.now().join(whole);
    }

    fn closing(&mut self, _: &Identity) {
        lock(&self.0).is_closing = true;
    }

    fn data(
        &mut self,
        flow: &Identity,
        _: &mut Kept,
        side: Side,
        offset: u64,
        bytes: &[u8],
    ) -> Want {
        let all = &mut *lock(&self.0);
        if !all.has_readers {
            return Want::EnoughOfFlow;
        }
        // The end of a flow gives up what waited; no packet is there to bring it then, whichever came last.
        let chunk = all.calls.now();
        if !all.is_closing && !chunk.packets.is_empty() {
            let begin = chunk.bytes.len();
            chunk.bytes.extend_from_slice(bytes);
            let (address, len) = (bytes.as_ptr().addr(), bytes.len());
            let is_inside = all.frame.start <= address && address + len <= all.frame.end;
            let in_frame = is_inside.then(|| address - all.frame.start);
            let is_reply = side != flow.client;
            let sequence = chunk.packets.last().and_then(|known| {
                let is_own = all.payload.contains(&address) && known.is_reply == is_reply;
                let behind = |first: usize| (address - first) as u32;
                is_own.then(|| known.segment.begin.wrapping_add(behind(all.payload.start)))
            });
            chunk.parts.push(Part { is_reply, offset, begin, len, in_frame, sequence });
        }
        Want::More
    }

    fn ended(&mut self, _: &FlowRecord, _: Side, _: &mut Kept, _: u64) {}
}
