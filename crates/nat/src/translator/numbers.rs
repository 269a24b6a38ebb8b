//! Numbers of TCP connections, by which resets are judged: see [`segment`](crate::segment).
//!
//! Each entry of a session has the last acknowledgment of the end that sends its packets. As long as the opener has acknowledged
//! nothing, its entry has the number behind its SYN instead. A line of a cache has a later one: packets that the cache knows leave
//! theirs there, and others bring it up to date. It comes to the table when the line goes. Control connections of FTP, which no cache
//! knows, have theirs in their own records.

use stream::Side;
use stream::table::Slot;

use super::{Cached, Translator, Way, flags, tcp};
use crate::cache::{Stamp, TCP};
use crate::families::Either;
use crate::segment::{Tcp, fits, fits_nearly};
use crate::tuple::Tuple;

impl Translator {
    /// Keeps what a segment of a session says that is no reset, by the original entry.
    pub(super) fn note_numbers(&mut self, original: Slot, way: Way, tcp: Tcp) {
        let is_syn = way == Way::Forward && tcp.flags & (tcp::SYN | tcp::ACK) == tcp::SYN;
        if !is_syn && !tcp.acknowledges() {
            return;
        }
        let Some(hot) = self.table.get(original).copied() else { return };
        // The other end may know the connection that a SYN ends.
        let is_new = hot.flags & (flags::ANSWERED | flags::ESTABLISHED) == 0;
        if hot.flags & flags::CONTROL != 0 {
            return match is_syn {
                true => self.forget_control_numbers(hot.count, is_new),
                false => self.note_control_number(hot.count, way, tcp.acknowledgment),
            };
        }
        let slot = if way == Way::Forward { original } else { Slot(hot.other) };
        if !is_syn {
            return self.set_number(slot, tcp.acknowledgment, flags::ACKED);
        }
        self.uncache(original);
        self.set_number(original, tcp.sequence.wrapping_add(1), 0);
        if is_new {
            self.set_number(Slot(hot.other), 0, 0);
        }
    }

    /// The number of an entry, and whether it is an acknowledgment.
    fn set_number(&mut self, slot: Slot, number: u32, acked: u8) {
        if let Some(own) = self.table.get_mut(slot) {
            (own.count, own.flags) = (number, own.flags & !flags::ACKED | acked);
        }
    }

    /// Brings to the table what a line of a cache says about packets of an entry.
    pub(super) fn bring(&mut self, slot: Slot, protocol: u8, last: Stamp) {
        if self.table.seen(slot).is_some_and(|seen| seen < last.seen_s()) {
            self.table.set_seen(slot, last.seen_s());
        }
        if protocol == TCP {
            self.set_number(slot, last.acked(), flags::ACKED);
        }
    }

    /// Makes an acknowledgment known to the cache that knows plain packets of the same end: of a packet that is not plain.
    #[cold]
    pub(super) fn refresh(&mut self, slot: Slot, side: Side, acked: u32) {
        let Some(tuple) = self.table.key(slot).map(|key| Tuple::from_key(key, side)) else {
            return;
        };
        match Either::of_tuple(&tuple) {
            Some(Either::V4(plain)) if self.cache.set_acked(plain, acked) => {}
            Some(plain) => self.turns.set_acked(&plain, acked),
            None => {}
        }
    }

    /// Whether the receiver of a reset that goes `way` may take it.
    #[cold]
    pub(super) fn is_reset(&self, original: Slot, way: Way, tcp: Tcp) -> bool {
        let Some(hot) = self.table.get(original).copied() else { return false };
        if hot.flags & flags::CONTROL != 0 {
            let acked = self.control_number(hot.count, way.back());
            return acked.is_none_or(|acked| fits_nearly(acked, tcp.sequence));
        }
        let receiver = if way == Way::Back { original } else { Slot(hot.other) };
        let [forward, back] = self.plain(original);
        let cached = self.last(if way == Way::Back { forward } else { back });
        let known = self.table.get(receiver).filter(|own| own.flags & flags::ACKED != 0);
        if let Some(acked) = cached.map(Stamp::acked).or(known.map(|own| own.count)) {
            return fits(acked, tcp.sequence);
        }
        // The receiver has acknowledged nothing yet.
        match way {
            // Its SYN is refused.
            Way::Back => tcp.flags & tcp::ACK != 0 && fits(hot.count, tcp.acknowledgment),
            // The opener gives up, behind its SYN.
            Way::Forward if hot.flags & flags::ACKED == 0 => fits(hot.count, tcp.sequence),
            Way::Forward => true,
        }
    }

    /// What a cache says about plain packets.
    pub(super) fn last(&self, plain: Option<Cached>) -> Option<Stamp> {
        match plain? {
            Cached::Change(plain) => self.cache.last(plain),
            Cached::Turn(plain) => self.turns.last(&plain),
        }
    }
}
