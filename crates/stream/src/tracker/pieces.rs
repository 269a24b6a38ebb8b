//! Which flow a later fragment belongs to; the datagrams that fragments make, beside those that pass.
//!
//! A firewall passes fragments on one by one. The first fragment of a datagram has the ports and is a packet of its flow; the
//! others have what it was found to be. One that comes before the first fragment is of no flow: its sender sends in order,
//! and who does not wants to be let through unseen.
//!
//! ```text
//!  (addresses, identification, protocol) ─hash─▶ slot of the array: flow, state, when     the newest takes the place
//! ```

use packet::IpProtocol;

use super::input::{Input, segment_of};
use super::{Fragments, Module, OfFlow, PacketState, Row, Tracked, Tracker};
use crate::defrag::{self, DatagramKey};
use crate::table::{Handle, Slot};

/// Datagrams that are remembered at most.
pub(super) const PIECES: usize = 1 << 12;

/// What the first fragment of a datagram was found to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) key: DatagramKey,
    pub(super) time_ns: u64,
    pub(super) flow: Handle,
    /// Number of the flow: another one may begin in its place.
    pub(super) id: u64,
    pub(super) state: PacketState,
    pub(super) is_reply: bool,
}

/// The datagrams of one worker.
pub(super) struct Pieces {
    places: Box<[Option<Piece>]>,
    seed: u64,
    /// For how long, in nanoseconds, by family: as long as a receiver waits for fragments.
    timeouts_ns: [u64; 2],
}

impl Pieces {
    /// Memory is taken when the first fragment comes; `seed` as that of a table.
    pub(super) fn new(seed: u64, config: &defrag::Config) -> Self {
        let timeouts_ns = [config.timeout_v4_ns, config.timeout_v6_ns];
        Self { places: Box::default(), seed, timeouts_ns }
    }

    fn place(&self, key: &DatagramKey) -> usize {
        let family = u64::from(key.protocol) << 8 | u64::from(key.family);
        let words = [u64::from(key.identification) << 32 | u64::from(key.scope), family];
        let mut hash = self.seed;
        for pair in [key.src, key.dst, words] {
            hash = chunk::hash::key128([pair[0] ^ hash, pair[1]], self.seed);
        }
        hash as usize % PIECES
    }

    /// Remembers a datagram.
    pub(super) fn put(&mut self, piece: Piece) {
        if self.places.is_empty() {
            self.places = vec![None; PIECES].into();
        }
        let place = self.place(&piece.key);
        self.places[place] = Some(piece);
    }

    /// The datagram of a later fragment.
    pub(super) fn get(&self, key: &DatagramKey, time_ns: u64) -> Option<Piece> {
        let piece = (*self.places.get(self.place(key))?)?;
        let timeout_ns = self.timeouts_ns[usize::from(key.family == 6)];
        let is_late = time_ns.saturating_sub(piece.time_ns) > timeout_ns;
        (piece.key == *key && !is_late).then_some(piece)
    }
}

impl<M: Module> Tracker<M> {
    /// A fragment that is passed on by itself. The first one of its datagram is a packet of its flow, and the others are what
    /// that was. `None`: it is to come again, for its flow is not decided yet.
    pub(super) fn piece_of_flow(&mut self, number: usize, input: &Input<'_>) -> Option<Tracked> {
        let Ok(Some(fragment)) = defrag::Fragment::from_frame(input.decoded, input.frame) else {
            self.counts.malformed += 1;
            return Some(Tracked::INVALID);
        };
        let (key, time_ns) = (fragment.key, input.time_ns);
        if fragment.offset != 0 {
            let piece = self.pieces.get(&key, time_ns);
            let known = piece.and_then(|piece| Some((piece, self.table.resolve(piece.flow)?)));
            let is_there = |(piece, slot): &(Piece, Slot)| self.is_live(*slot, piece.id, time_ns);
            let Some((piece, slot)) = known.filter(is_there) else {
                self.counts.fragments += 1;
                self.counts.fragments_lost += 1;
                self.join(number, input);
                return Some(Tracked::INVALID);
            };
            if self.table.get(slot).is_some_and(|hot| hot.is_undecided) {
                return None;
            }
            self.counts.fragments += 1;
            self.counts.packets += 1;
            let first = self.rest.first(slot);
            let side = if piece.is_reply { first.other() } else { first };
            if let Some(key) = self.table.key(slot).copied() {
                // A sweep goes by the time at which the table saw the flow last.
                self.find(&key, Row { side, about: Some(None), ..Row::default() }, time_ns);
                self.rest.packet(
                    &key,
                    &OfFlow { number, slot, side, is_first: false, is_rest: false, input },
                );
            }
            self.rest.count(slot, side, input, 0, (1, input.frame_len.into()));
            self.join(number, input);
            let Piece { state, is_reply, .. } = piece;
            let number = self.rest.id(slot);
            return Some(Tracked { is_reply, slot: Some(slot), number, ..Tracked::of(state) });
        }
        let (flow_key, row) = match self.of_one(input) {
            Ok(row) => row,
            Err(why) => {
                self.rest.module.fragment(number, input);
                return Some(self.reject(number, input, 1, why));
            }
        };
        if self.rest.helpers.waits(&flow_key, row.side) {
            return None;
        }
        let found = self.find(&flow_key, row, time_ns);
        if self.is_undecided(found) {
            return None;
        }
        self.counts.fragments += 1;
        let tracked = match row.about {
            // The whole of it is inspected when it is there.
            Some(sequence) => self.error(row.side, found, sequence, time_ns),
            None => self.row(number, input, flow_key, row.side, found, (1, input.frame_len.into())),
        };
        self.remove_voids();
        let flow = tracked.slot.and_then(|slot| self.table.handle(slot));
        if let Some(flow) = flow.filter(|_| tracked.state != PacketState::Invalid) {
            let Tracked { state, is_reply, .. } = tracked;
            let id = self.rest.id(flow.slot);
            self.pieces.put(Piece { key, time_ns, flow, id, state, is_reply });
        }
        self.join(number, input);
        Some(tracked)
    }

    /// Keeps a copy of a fragment that is passed on. The one that completes its datagram brings the module the whole, so
    /// that whoever inspects it may have that fragment dropped, without which no host has the datagram.
    fn join(&mut self, number: usize, input: &Input<'_>) {
        self.rest.module.fragment(number, input);
        if !self.rest.module.reads() {
            return;
        }
        // Fragments that go on are counted already, and none of them is lost.
        let before = (self.counts, self.whole.lost);
        self.piece(input);
        (self.counts, self.whole.lost) = before;
        if !self.whole.is_there {
            return;
        }
        let time_ns = input.time_ns;
        let whole = self.whole.lend();
        let decoded = whole.decoded(input);
        let datagram = Input {
            decoded: &decoded,
            frame: &whole.frame,
            frame_len: whole.frame.len() as u32,
            segment: None,
            ..*input
        };
        self.joined(number, &datagram, time_ns);
        self.whole.take_back(whole);
    }

    /// A datagram is whole. Its own header says which flow it is of: others may have taken the place of its first fragment since.
    fn joined(&mut self, number: usize, datagram: &Input<'_>, time_ns: u64) {
        // No host takes a segment whose checksum is wrong.
        let Ok((key, Row { side, about, .. })) = self.of_one(datagram) else { return };
        let found = self.find(&key, Row { side, about: Some(None), ..Row::default() }, time_ns);
        // Its fragments have counted as far as they are of this flow.
        found.slot().into_iter().for_each(|slot| self.keeps_nothing(slot));
        let is_there = |slot: &Slot| {
            let is_void = self.table.get(*slot).is_none_or(|hot| hot.is_void);
            !is_void && self.is_live(*slot, self.rest.id(*slot), time_ns)
        };
        // Without a first fragment that was let through no host has it.
        let Some(slot) = found.slot().filter(is_there) else { return };
        if about.is_some() {
            return self.hear_error(number, slot, side, datagram);
        }
        let of_flow =
            OfFlow { number, slot, side, is_first: false, is_rest: false, input: datagram };
        self.rest.datagram(&key, &of_flow);
        let is_tcp = key.protocol == IpProtocol::TCP.0;
        if let Some(segment) = is_tcp.then(|| segment_of(datagram)).flatten() {
            // Its fragments have gone on, whatever the connection makes of it.
            let _ = self.rest.segment(slot, &key, side, &segment, time_ns);
        }
    }
}

/// Fragments that the caller holds back.
impl<M: Module> Tracker<M> {
    /// A datagram whose fragments the caller has held back until it was whole. `number` is the place of the fragment that goes
    /// on first, `frames` are how many there are, and their bytes. Everything before it is decided
    /// ([`Tracker::decide`]): with [`Options::confirms`](super::Options::confirms), too, it is taken now.
    ///
    /// [`Tracker::rest_of_datagram`] is called for each of the others, right behind it.
    pub fn datagram(&mut self, number: usize, whole: &Input<'_>, frames: (u64, u64)) -> Tracked {
        self.counts.fragments += frames.0;
        self.whole_datagram(number, whole, frames)
    }

    /// Another fragment of the datagram that was given to [`Tracker::datagram`], which was found to be `tracked`.
    pub fn rest_of_datagram(&mut self, number: usize, tracked: Tracked, piece: &Input<'_>) {
        let Some(slot) = tracked.slot else { return };
        let Some(key) = self.table.key(slot).copied() else { return };
        let first = self.rest.first(slot);
        let side = if tracked.is_reply { first.other() } else { first };
        let of_flow = OfFlow { number, slot, side, is_first: false, is_rest: true, input: piece };
        self.rest.packet(&key, &of_flow);
    }

    /// So many fragments that the caller has held back became a datagram, or did not and are lost. Returns whether the module
    /// wants the datagram dropped.
    pub fn held(&mut self, fragments: &Fragments, count: u64) -> bool {
        let drops = self.rest.module.fragments(fragments);
        if fragments.failed.is_some() {
            self.counts.fragments += count;
            self.counts.fragments_lost += count;
        }
        drops
    }
}
