//! Who has what in the buffer: two units for each connection of which segments wait, and lists of those that hold much.

use super::{BLOCK_UNITS, Buffer, List, NONE, UNIT};
use crate::key::Side;

/// What a connection has in the buffer; nothing at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tcp) struct Waiting(u32);

impl Waiting {
    pub(in crate::tcp) const NONE: Waiting = Waiting(NONE);

    pub(in crate::tcp) fn is_none(self) -> bool {
        self == Self::NONE
    }
}

/// Units of a connection beside those of its pieces.
const UNITS: u32 = 2;
const BYTES: usize = UNITS as usize * UNIT;

/// A connection that holds no more units than that gives none for others: two segments.
const SPARED_UNITS: u32 = 2 * (1 + BLOCK_UNITS);

/// Classes of connections by what they hold, four for each power of two.
pub(super) const CLASSES: usize = 128;

#[derive(Clone, Copy)]
pub(super) struct Holder {
    pub(super) lists: [List; 2],
    /// Units of the pieces of each side.
    pub(super) units: [u32; 2],
    /// The others of its class.
    next: u32,
    prev: u32,
    /// Place behind the last byte that was given up for others; 0 if none was.
    lost: [u64; 2],
}

impl Holder {
    const EMPTY: Holder =
        Holder { lists: [List::EMPTY; 2], units: [0; 2], next: NONE, prev: NONE, lost: [0; 2] };

    #[inline(always)]
    fn read(bytes: &[u8; BYTES]) -> Self {
        let word = |at: usize| super::word(bytes, at);
        let list = |at: usize| List { head: word(at), tail: word(at + 1) };
        let place = |at: usize| u64::from(word(at)) | u64::from(word(at + 1)) << 32;
        Self {
            lists: [list(0), list(2)],
            units: [word(4), word(5)],
            next: word(6),
            prev: word(7),
            lost: [place(8), place(10)],
        }
    }

    #[inline(always)]
    fn write(&self, bytes: &mut [u8]) {
        let [a, b] = self.lists;
        let [c, d] = self.lost;
        let words = [
            a.head,
            a.tail,
            b.head,
            b.tail,
            self.units[0],
            self.units[1],
            self.next,
            self.prev,
            c as u32,
            (c >> 32) as u32,
            d as u32,
            (d >> 32) as u32,
        ];
        super::put_words(bytes, &words);
    }

    fn class(&self) -> Option<usize> {
        let units = self.units[0] + self.units[1];
        if units <= SPARED_UNITS {
            return None;
        }
        let octave = units.ilog2() - 2;
        Some(((octave * 4 + (units >> octave) - 4) as usize).min(CLASSES - 1))
    }
}

impl Buffer {
    #[inline(always)]
    pub(super) fn holder(&self, at: u32) -> Holder {
        let begin = self.begin(at);
        self.data[begin..].first_chunk().map_or(Holder::EMPTY, Holder::read)
    }

    /// Asks for what a connection holds.
    #[inline(always)]
    pub(in crate::tcp) fn prefetch_lists(&self, waiting: Waiting) {
        if !waiting.is_none() {
            interleave::prefetch_at(&self.data[self.begin(waiting.0)]);
        }
    }

    #[inline(always)]
    fn put_holder(&mut self, at: u32, holder: &Holder) {
        let begin = self.begin(at);
        holder.write(&mut self.data[begin..begin + BYTES]);
    }

    /// Gives a connection units for what it holds, if it has none; `false` if none are free.
    pub(in crate::tcp) fn hold(&mut self, waiting: &mut Waiting) -> bool {
        if waiting.is_none() {
            let Some(unit) = self.units.take_all(UNITS) else { return false };
            self.put_holder(unit, &Holder::EMPTY);
            *waiting = Waiting(unit);
        }
        true
    }

    /// Gives those back if nothing waits.
    pub(in crate::tcp) fn settle(&mut self, waiting: &mut Waiting) {
        if !waiting.is_none() && self.holder(waiting.0).lists == [List::EMPTY; 2] {
            let _ = self.take_lost(*waiting);
            self.units.give_back_all(waiting.0, UNITS);
            *waiting = Waiting::NONE;
        }
    }

    /// Units that a connection has, those of the connection itself among them.
    pub(in crate::tcp) fn units_of(&self, waiting: Waiting) -> u32 {
        if waiting.is_none() {
            return 0;
        }
        let [a, b] = self.holder(waiting.0).units;
        UNITS + a + b
    }

    /// Units of the pieces of a side.
    pub(in crate::tcp) fn units_of_side(&self, waiting: Waiting, side: Side) -> u32 {
        if waiting.is_none() { 0 } else { self.holder(waiting.0).units[side.index()] }
    }

    #[inline(always)]
    pub(in crate::tcp) fn list(&self, waiting: Waiting, side: Side) -> List {
        if waiting.is_none() { List::EMPTY } else { self.holder(waiting.0).lists[side.index()] }
    }

    /// Changes the list of a side of a connection that holds some.
    pub(super) fn change<R>(
        &mut self,
        waiting: Waiting,
        side: Side,
        change: impl FnOnce(&mut Self, &mut List) -> R,
    ) -> R {
        let mut holder = self.holder(waiting.0);
        let before = self.units.used();
        let result = change(self, &mut holder.lists[side.index()]);
        let more = self.units.used().wrapping_sub(before);
        let class = holder.class();
        let units = &mut holder.units[side.index()];
        *units = units.wrapping_add(more);
        self.put_holder(waiting.0, &holder);
        if holder.class() != class {
            self.move_class(waiting.0, holder, class);
        }
        result
    }

    #[inline(never)]
    fn move_class(&mut self, at: u32, mut holder: Holder, from: Option<usize>) {
        if let Some(class) = from {
            if holder.next != NONE {
                let mut next = self.holder(holder.next);
                next.prev = holder.prev;
                self.put_holder(holder.next, &next);
            }
            if holder.prev != NONE {
                let mut prev = self.holder(holder.prev);
                prev.next = holder.next;
                self.put_holder(holder.prev, &prev);
            } else {
                self.classes[class] = holder.next;
                if holder.next == NONE {
                    self.classes_used &= !(1 << class);
                }
            }
        }
        (holder.next, holder.prev) = (NONE, NONE);
        if let Some(class) = holder.class() {
            holder.next = std::mem::replace(&mut self.classes[class], at);
            self.classes_used |= 1 << class;
            if holder.next != NONE {
                let mut next = self.holder(holder.next);
                next.prev = at;
                self.put_holder(holder.next, &next);
            }
        }
        self.put_holder(at, &holder);
    }

    /// The connection that holds most, to within a quarter; `None` if none holds more than two segments.
    pub(in crate::tcp) fn greatest(&self) -> Option<Waiting> {
        let class = self.classes_used.checked_ilog2()?;
        Some(Waiting(self.classes[class as usize]))
    }

    /// Removes the last piece of a side; the place behind it.
    pub(in crate::tcp) fn cut_tail(&mut self, waiting: Waiting, side: Side) -> Option<u64> {
        let end = self.end(waiting, side)?;
        self.change(waiting, side, |buffer, list| buffer.remove(list, list.tail));
        Some(end)
    }

    /// Tells a connection that bytes before `end` were given up for another one.
    pub(in crate::tcp) fn tell_lost(&mut self, waiting: Waiting, side: Side, end: u64) {
        let mut holder = self.holder(waiting.0);
        self.told += usize::from(holder.lost == [0; 2] && end > 0);
        let lost = &mut holder.lost[side.index()];
        *lost = end.max(*lost);
        self.put_holder(waiting.0, &holder);
    }

    /// What was [told](Self::tell_lost), once.
    #[inline(always)]
    pub(in crate::tcp) fn take_lost(&mut self, waiting: Waiting) -> Option<[u64; 2]> {
        if self.told == 0 || waiting.is_none() {
            return None;
        }
        self.lost(waiting)
    }

    #[cold]
    fn lost(&mut self, waiting: Waiting) -> Option<[u64; 2]> {
        let mut holder = self.holder(waiting.0);
        if holder.lost == [0; 2] {
            return None;
        }
        self.told -= 1;
        let lost = std::mem::take(&mut holder.lost);
        self.put_holder(waiting.0, &holder);
        Some(lost)
    }
}
