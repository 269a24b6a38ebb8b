//! The segments that wait for a byte before them: pieces in units of memory, and a list of them for each side of a connection.
//!
//! ```text
//!   side ─▶ head ⇄ piece ⇄ piece ⇄ tail          sorted by place, never overlapping, at least one hole before the head
//!                    │       │
//!   units: [links][links] …   [▓▓▓▓▓▓▓▓ …]       a unit of 32 bytes for the links of a piece, and others for its bytes
//! ```
//!
//! The links of pieces are close to each other, apart from their bytes, so that caches hold those that a search reads. A segment
//! of one byte takes two units; one of 1,460 takes one and a block of 48; a longer one is several pieces. If no block has as
//! many free units in one place, a segment is divided into what there is ([`units`]). A connection of which something waits
//! takes two units more, where its lists are and what it holds ([`holders`]): so who holds most is known when memory is short.
//! All memory is taken at creation, and the memory used last, which caches hold, is used next.
//!
//! A piece knows the bounds of the segment of which it is a part, because policies compare those. Its number is that of the
//! unit of its links.
//!
//! Neighbours without a hole between them are a *run*. The first and the last piece of a run know each other (`far`), so that
//! a place is searched by steps of a run, and from both ends of the list at once: the usual segment belongs at one of them.
//! Runs are as long as they can be, so a piece is the last of its run if a hole follows it.

mod holders;
mod units;

use std::ops::Range;

use self::holders::CLASSES;
pub(super) use self::holders::Waiting;
use self::units::{BLOCK_UNITS, Units};
use super::policy::Policy;
use crate::key::Side;

/// Bytes of a unit.
pub(super) const UNIT: usize = 32;
/// Bytes of a block: a full-size segment of Ethernet fits one.
pub(super) const BLOCK: usize = BLOCK_UNITS as usize * UNIT;
/// Where blocks begin.
const ALIGN: usize = 64;
/// Bytes of a piece at most.
const PIECE_MAX: usize = BLOCK;

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Piece {
    next: u32,
    prev: u32,
    start: u64,
    /// Of the first and the last piece of a run: the other one.
    far: u32,
    /// First of the units with its bytes.
    data: u32,
    /// Bytes of its segment before and after it; a segment has less than 64 KiB.
    before: u16,
    after: u16,
    len: u16,
    /// Where its bytes begin in them. With [`URGENT`], it is an urgent byte that is no part of the stream; with [`WHOLE`], they are
    /// a block.
    at: u16,
}

const URGENT: u16 = 1 << 15;
const WHOLE: u16 = 1 << 14;

/// The word of four bytes at an index.
#[inline(always)]
fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.as_chunks().0.get(at).map_or(0, |word| u32::from_ne_bytes(*word))
}

#[inline(always)]
fn put_words(bytes: &mut [u8], words: &[u32]) {
    for (to, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
        *to = word.to_ne_bytes();
    }
}

impl Piece {
    #[inline(always)]
    fn read(bytes: &[u8; UNIT]) -> Self {
        let word = |at: usize| word(bytes, at);
        Self {
            next: word(0),
            prev: word(1),
            start: u64::from(word(2)) | u64::from(word(3)) << 32,
            far: word(4),
            data: word(5),
            before: word(6) as u16,
            after: (word(6) >> 16) as u16,
            len: word(7) as u16,
            at: (word(7) >> 16) as u16,
        }
    }

    #[inline(always)]
    fn write(&self, bytes: &mut [u8]) {
        let both = |low: u16, high: u16| u32::from(low) | u32::from(high) << 16;
        let words = [
            self.next,
            self.prev,
            self.start as u32,
            (self.start >> 32) as u32,
            self.far,
            self.data,
            both(self.before, self.after),
            both(self.len, self.at),
        ];
        put_words(bytes, &words);
    }

    fn end(&self) -> u64 {
        self.start + u64::from(self.len)
    }

    fn is_urgent(&self) -> bool {
        self.at & URGENT != 0
    }

    /// Where its bytes begin in its units.
    #[inline(always)]
    fn begin(&self) -> usize {
        usize::from(self.at & (WHOLE - 1))
    }

    fn bounds(&self) -> Range<u64> {
        self.start - u64::from(self.before)..self.end() + u64::from(self.after)
    }
}

/// The pieces of one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct List {
    head: u32,
    tail: u32,
}

impl List {
    pub(super) const EMPTY: List = List { head: NONE, tail: NONE };

    pub(super) fn is_empty(self) -> bool {
        self.head == NONE
    }
}

/// The first piece of a list.
pub(super) struct Head<'a> {
    pub(super) start: u64,
    pub(super) bytes: &'a [u8],
    pub(super) is_urgent: bool,
    pub(super) bounds: Range<u64>,
}

impl Head<'_> {
    pub(super) fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

/// A part of a segment: all of it, the bytes before or after an urgent byte, or that byte.
#[derive(Clone)]
pub(super) struct Part<'a> {
    pub(super) start: u64,
    pub(super) bytes: &'a [u8],
    pub(super) is_urgent: bool,
    /// Of the whole segment.
    pub(super) bounds: Range<u64>,
}

impl Part<'_> {
    pub(super) fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    pub(super) fn range(&self, range: Range<u64>) -> &[u8] {
        let at = |place: u64| place.saturating_sub(self.start) as usize;
        self.bytes.get(at(range.start)..at(range.end)).unwrap_or_default()
    }
}

/// What became of the bytes of a segment.
#[derive(Clone, Copy, Default)]
pub(super) struct Found {
    /// Bytes whose place had been seen.
    pub(super) seen: u64,
    /// Bytes whose place had not.
    pub(super) new: u64,
    /// Some of the seen ones were others.
    pub(super) is_conflict: bool,
}

/// Where a part belongs in a list.
#[derive(Clone, Copy)]
pub(super) struct Place {
    prev: u32,
    next: u32,
    /// Pieces that the part overlaps.
    overlaps: usize,
}

/// Memory that a segment takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    pieces: u32,
    /// With room for each piece in one place, and divided as much as can be.
    units: u32,
    divided: u32,
}

impl Need {
    /// Units that it takes at least.
    pub(super) fn least(self) -> u32 {
        self.units.min(self.divided)
    }
}

pub(super) struct Buffer {
    data: Vec<u8>,
    /// Index of the first unit in `data`, where a cache line begins.
    origin: usize,
    units: Units,
    /// The first of the connections of a class that hold much, and a bit for each class that has one.
    classes: [u32; CLASSES],
    classes_used: u128,
    /// Connections that are still to hear what was given up for others.
    told: usize,
}

impl Buffer {
    /// Units of at most `bytes` bytes, at least one block.
    pub(super) fn new(bytes: usize) -> Self {
        let blocks = (bytes / BLOCK).clamp(1, (NONE / BLOCK_UNITS) as usize - 1);
        // Written now, and in huge pages where there are such: late segments come in blocks that no cache and no TLB holds.
        let bytes = blocks * BLOCK + ALIGN;
        let mut data: Vec<u8> = Vec::with_capacity(bytes);
        chunk::prefer_huge_pages(data.spare_capacity_mut());
        data.resize(bytes, 0);
        let origin = data.as_ptr().align_offset(ALIGN).min(ALIGN);
        Self {
            data,
            origin,
            units: Units::new(blocks as u32),
            classes: [NONE; CLASSES],
            classes_used: 0,
            told: 0,
        }
    }

    /// Asks for both ends of a list, where the usual segment belongs.
    #[inline(always)]
    pub(super) fn prefetch(&self, waiting: Waiting, side: Side) {
        let list = self.list(waiting, side);
        for end in [list.head, list.tail] {
            if end != NONE {
                interleave::prefetch_at(&self.data[self.begin(end)]);
            }
        }
    }

    pub(super) fn units_used(&self) -> u32 {
        self.units.used()
    }

    pub(super) fn units_total(&self) -> u32 {
        self.units.total()
    }

    #[inline(always)]
    fn begin(&self, index: u32) -> usize {
        self.origin + index as usize * UNIT
    }

    #[inline(always)]
    fn get(&self, index: u32) -> Option<Piece> {
        if index == NONE {
            return None;
        }
        self.data[self.begin(index)..].first_chunk().map(Piece::read)
    }

    /// A piece that there is.
    #[inline(always)]
    fn piece(&self, index: u32) -> Piece {
        let begin = self.begin(index);
        let mut bytes = [0; UNIT];
        bytes.copy_from_slice(&self.data[begin..begin + UNIT]);
        Piece::read(&bytes)
    }

    #[inline(always)]
    fn put(&mut self, index: u32, piece: &Piece) {
        let begin = self.begin(index);
        piece.write(&mut self.data[begin..begin + UNIT]);
    }

    /// Changes a piece, if there is one.
    #[inline(always)]
    fn edit(&mut self, index: u32, edit: impl FnOnce(&mut Piece)) -> bool {
        let Some(mut piece) = self.get(index) else { return false };
        edit(&mut piece);
        self.put(index, &piece);
        true
    }

    #[inline(always)]
    fn bytes(&self, piece: &Piece) -> &[u8] {
        let begin = self.begin(piece.data) + piece.begin();
        &self.data[begin..begin + usize::from(piece.len)]
    }

    pub(super) fn head(&self, waiting: Waiting, side: Side) -> Option<Head<'_>> {
        let head = self.list(waiting, side).head;
        let piece = self.get(head)?;
        Some(Head {
            start: piece.start,
            bytes: self.bytes(&piece),
            is_urgent: piece.is_urgent(),
            bounds: piece.bounds(),
        })
    }

    pub(super) fn is_empty(&self, waiting: Waiting, side: Side) -> bool {
        self.list(waiting, side).is_empty()
    }

    /// Place behind the last byte of a side.
    pub(super) fn end(&self, waiting: Waiting, side: Side) -> Option<u64> {
        self.get(self.list(waiting, side).tail).map(|piece| piece.end())
    }

    /// Place of the last piece of a side.
    pub(super) fn last(&self, waiting: Waiting, side: Side) -> Option<u64> {
        self.get(self.list(waiting, side).tail).map(|piece| piece.start)
    }

    /// Removes the bytes of a side before `to`, which is in the first piece or at its end.
    pub(super) fn cut_head(&mut self, waiting: &mut Waiting, side: Side, to: u64) {
        if waiting.is_none() {
            return;
        }
        let is_empty = self.change(*waiting, side, |buffer, list| {
            match buffer.get(list.head) {
                None => {}
                Some(piece) if piece.end() <= to => buffer.remove_head(list, &piece),
                Some(_) => buffer.cut_front(list.head, to),
            }
            list.is_empty()
        });
        if is_empty {
            self.settle(waiting);
        }
    }

    /// Whether two neighbours are of one run.
    fn is_joined(&self, left: u32, right: u32) -> bool {
        match (self.get(left), self.get(right)) {
            (Some(left), Some(right)) => left.end() == right.start,
            _ => false,
        }
    }

    /// Marks a run by its ends.
    fn set_run(&mut self, first: u32, last: u32) {
        self.edit(first, |piece| piece.far = last);
        self.edit(last, |piece| piece.far = first);
    }

    /// First and last piece of the run of a piece.
    fn run_of(&self, index: u32) -> (u32, u32) {
        let Piece { prev, next, far, .. } = self.piece(index);
        if !self.is_joined(prev, index) {
            return (index, far);
        }
        if !self.is_joined(index, next) {
            return (far, index);
        }
        let mut first = prev;
        while self.is_joined(self.piece(first).prev, first) {
            first = self.piece(first).prev;
        }
        (first, self.piece(first).far)
    }

    fn cut_front(&mut self, index: u32, to: u64) {
        let Piece { prev, start, .. } = self.piece(index);
        if self.is_joined(prev, index) && to > start {
            let (first, last) = self.run_of(index);
            self.set_run(first, prev);
            self.set_run(index, last);
        }
        self.edit(index, |piece| {
            let cut = to.saturating_sub(piece.start);
            piece.start += cut;
            piece.before = piece.before.saturating_add(cut as u16);
            piece.len -= cut as u16;
            piece.at += cut as u16;
        });
    }

    fn cut_back(&mut self, index: u32, to: u64) {
        let piece = self.piece(index);
        let next = piece.next;
        if self.is_joined(index, next) && to < piece.end() {
            let (first, last) = self.run_of(index);
            self.set_run(first, index);
            self.set_run(next, last);
        }
        self.edit(index, |piece| {
            let cut = piece.end().saturating_sub(to);
            piece.after = piece.after.saturating_add(cut as u16);
            piece.len -= cut as u16;
        });
    }

    /// Removes all bytes of a side from the place `from` on; whether there were any.
    pub(super) fn truncate(&mut self, waiting: &mut Waiting, side: Side, from: u64) -> bool {
        if waiting.is_none() {
            return false;
        }
        let is_any = self.change(*waiting, side, |buffer, list| {
            let mut is_any = false;
            while let Some(piece) = buffer.get(list.tail).filter(|piece| piece.end() > from) {
                is_any = true;
                if piece.start >= from {
                    buffer.remove(list, list.tail);
                } else {
                    buffer.cut_back(list.tail, from);
                }
            }
            is_any
        });
        self.settle(waiting);
        is_any
    }

    /// Removes all of a side.
    pub(super) fn clear(&mut self, waiting: &mut Waiting, side: Side) {
        if waiting.is_none() {
            return;
        }
        self.change(*waiting, side, |buffer, list| {
            while !list.is_empty() {
                buffer.remove(list, list.head);
            }
        });
        self.settle(waiting);
    }

    /// The same as [`Buffer::remove`] for the first piece of a list.
    #[inline(always)]
    fn remove_head(&mut self, list: &mut List, piece: &Piece) {
        let (index, next) = (list.head, piece.next);
        let mut is_joined = false;
        let is_any = self.edit(next, |behind| {
            behind.prev = NONE;
            is_joined = behind.start == piece.end();
            if is_joined {
                behind.far = piece.far;
            }
        });
        if is_joined && piece.far != next {
            self.edit(piece.far, |last| last.far = next);
        }
        list.head = next;
        if !is_any {
            list.tail = NONE;
        }
        self.free(index, piece);
    }

    #[inline(always)]
    fn free(&mut self, index: u32, piece: &Piece) {
        match piece.at & WHOLE {
            0 => self.units.give_back(piece.data),
            _ => self.units.give_back_all(piece.data, BLOCK_UNITS),
        }
        self.units.give_back_all(index, 1);
    }

    /// Unlinks a piece and frees its units.
    fn remove(&mut self, list: &mut List, index: u32) {
        let piece = self.piece(index);
        let Piece { prev, next, .. } = piece;
        let (follows, precedes) = (self.is_joined(prev, index), self.is_joined(index, next));
        if follows || precedes {
            let (first, last) = self.run_of(index);
            if follows {
                self.set_run(first, prev);
            }
            if precedes {
                self.set_run(next, last);
            }
        }
        if !self.edit(prev, |piece| piece.next = next) {
            list.head = next;
        }
        if !self.edit(next, |piece| piece.prev = prev) {
            list.tail = prev;
        }
        self.free(index, &piece);
    }

    /// Takes units for bytes of a piece and links it between two others; for fewer bytes than there are if no block has as many
    /// units in one place. `None` if no unit is free; the caller asks for room before.
    fn add(
        &mut self,
        list: &mut List,
        (prev, next): (u32, u32),
        mut piece: Piece,
        bytes: &[u8],
    ) -> Option<(u32, usize)> {
        let index = self.units.take_all(1)?;
        let Some((unit, units)) = self.units.take(bytes.len().div_ceil(UNIT) as u32) else {
            self.units.give_back_all(index, 1);
            return None;
        };
        let len = bytes.len().min(units as usize * UNIT);
        piece.data = unit;
        piece.at |= if units == BLOCK_UNITS { WHOLE } else { 0 };
        (piece.prev, piece.next, piece.len) = (prev, next, len as u16);
        // Bytes that come behind, of the same segment.
        piece.after = piece.after.saturating_add((bytes.len() - len) as u16);
        let (mut first, mut last) = (index, index);
        let is_first = !self.edit(prev, |before| {
            before.next = index;
            if before.end() == piece.start {
                first = before.far;
            }
        });
        if is_first {
            list.head = index;
        }
        let is_last = !self.edit(next, |behind| {
            behind.prev = index;
            if behind.start == piece.end() {
                last = behind.far;
            }
        });
        if is_last {
            list.tail = index;
        }
        // As `set_run`, with one store less.
        piece.far = if first == index { last } else { first };
        self.put(index, &piece);
        let begin = self.begin(unit);
        self.data[begin..begin + len].copy_from_slice(&bytes[..len]);
        self.set_run(first, last);
        // The block of the next one.
        if let Some(following) = self.units.next_whole() {
            let begin = self.begin(following);
            interleave::prefetch(&self.data[begin..begin + BLOCK]);
        }
        Some((index, len))
    }

    /// The last piece that begins at or before `start`, of the run with the piece `last` at its end. It is `last`, unless
    /// the place is taken.
    fn find_in_run(&self, last: u32, start: u64) -> u32 {
        let mut at = last;
        while let Some(piece) = self.get(at)
            && piece.start > start
        {
            at = piece.prev;
        }
        at
    }

    /// Where `start..end` of a side belongs.
    pub(super) fn find(&self, waiting: Waiting, side: Side, start: u64, end: u64) -> Place {
        let list = self.list(waiting, side);
        // The last piece that begins at or before `start`: run by run, from both ends at once.
        let (mut low, mut high) = (list.head, list.tail);
        let mut prev = loop {
            let Some(last) = self.get(high) else { break NONE };
            let first = self.piece(last.far);
            if first.start <= start {
                break self.find_in_run(high, start);
            }
            high = first.prev;
            let Some(first) = self.get(low) else { break NONE };
            if first.start > start {
                break self.find_in_run(first.prev, start);
            }
            low = self.piece(first.far).next;
        };
        let mut next = list.head;
        if let Some(piece) = self.get(prev) {
            next = piece.next;
            if piece.end() > start {
                (prev, next) = (piece.prev, prev);
            }
        }
        let (mut overlaps, mut at) = (0, next);
        while let Some(piece) = self.get(at)
            && piece.start < end
        {
            overlaps += 1;
            at = piece.next;
        }
        Place { prev, next, overlaps }
    }

    /// What [`Buffer::insert`] takes for a segment of `len` bytes, at most. It is three parts if it has an urgent byte.
    pub(super) fn need(place: Place, len: usize, has_urgent: bool) -> Need {
        let whole = len / PIECE_MAX;
        if place.overlaps == 0 && !has_urgent {
            let (rest, is_any) = (len % PIECE_MAX, !len.is_multiple_of(PIECE_MAX));
            return Need {
                pieces: (whole + usize::from(is_any)) as u32,
                units: whole as u32 * BLOCK_UNITS
                    + whole as u32
                    + if is_any { units_for(rest) } else { 0 },
                divided: len.div_ceil(UNIT / 2) as u32 + 2,
            };
        }
        // Each run of new bytes, and for each part a piece that is cut in two.
        let parts = if has_urgent { 3 } else { 1 };
        let (runs, bytes) = (place.overlaps + 4 * parts, len + parts * PIECE_MAX);
        let pieces = bytes / PIECE_MAX + runs;
        Need {
            pieces: pieces as u32,
            units: (bytes.div_ceil(UNIT) + 4 * pieces) as u32,
            divided: (bytes.div_ceil(UNIT / 2) + 2 * runs) as u32,
        }
    }

    /// Units that it takes now, at most; `None` if there are not as many.
    #[inline(always)]
    pub(super) fn cost(&mut self, need: Need) -> Option<u32> {
        if self.has_whole(need) {
            return Some(need.units);
        }
        self.units.settle();
        if self.has_whole(need) {
            return Some(need.units);
        }
        (self.units.free() >= need.divided).then_some(need.divided)
    }

    /// Whether there is a block for each piece, and one for those links that find no unit elsewhere.
    #[inline(always)]
    fn has_whole(&self, need: Need) -> bool {
        let (whole, pieces) = (self.units.whole_blocks(), need.pieces);
        let others = self.units.free() - whole * BLOCK_UNITS;
        let has_links = others >= pieces && pieces <= BLOCK_UNITS;
        whole >= pieces + if has_links { 0 } else { 1 + pieces / BLOCK_UNITS }
    }

    /// Copies a part to its place; where it overlaps pieces, the policy decides byte by byte. The connection
    /// [holds](Self::hold) some.
    pub(super) fn insert(
        &mut self,
        waiting: Waiting,
        side: Side,
        place: Place,
        part: &Part<'_>,
        policy: Policy,
    ) -> Found {
        self.change(waiting, side, |buffer, list| buffer.insert_into(list, place, part, policy))
    }

    fn insert_into(
        &mut self,
        list: &mut List,
        place: Place,
        part: &Part<'_>,
        policy: Policy,
    ) -> Found {
        let Place { mut prev, mut next, .. } = place;
        let (end, mut found) = (part.end(), Found::default());
        // Bytes before `filled` are in pieces; bytes from there to `scanned` are the part's.
        let (mut filled, mut scanned) = (part.start, part.start);
        while let Some(piece) = self.get(next)
            && piece.start < end
        {
            let from = piece.start.max(scanned);
            let to = piece.end().min(end);
            found.new += from - scanned;
            found.seen += to - from;
            let old =
                &self.bytes(&piece)[(from - piece.start) as usize..(to - piece.start) as usize];
            found.is_conflict |= piece.is_urgent() != part.is_urgent || old != part.range(from..to);
            if policy.new_wins(&part.bounds, &piece.bounds()) {
                (prev, next) = self.carve(list, next, from..to, prev);
            } else {
                self.fill(list, prev, next, part, filled..from);
                filled = to;
                (prev, next) = (next, piece.next);
            }
            scanned = to;
        }
        found.new += end.saturating_sub(scanned);
        self.fill(list, prev, next, part, filled..end);
        found
    }

    /// Takes a range out of a piece, which is behind `prev`; the pieces around the range.
    fn carve(&mut self, list: &mut List, index: u32, range: Range<u64>, prev: u32) -> (u32, u32) {
        let piece = self.piece(index);
        match (piece.start < range.start, range.end < piece.end()) {
            (false, false) => {
                self.remove(list, index);
                (prev, piece.next)
            }
            (false, true) => {
                self.cut_front(index, range.end);
                (prev, index)
            }
            (true, false) => {
                self.cut_back(index, range.start);
                (index, piece.next)
            }
            (true, true) => {
                let mut rest = [0; PIECE_MAX];
                let from = (range.end - piece.start) as usize;
                let rest = &mut rest[..usize::from(piece.len) - from];
                rest.copy_from_slice(&self.bytes(&piece)[from..]);
                self.cut_back(index, range.start);
                let neighbours = (index, piece.next);
                let behind = Piece {
                    start: range.end,
                    before: piece.before.saturating_add(from as u16),
                    after: piece.after,
                    at: piece.at & URGENT, // of units of its own
                    ..piece
                };
                (index, self.add_all(list, neighbours, behind, rest).unwrap_or(piece.next))
            }
        }
    }

    /// Adds bytes as one piece behind another, or as several; the first one.
    fn add_all(
        &mut self,
        list: &mut List,
        (mut prev, next): (u32, u32),
        mut piece: Piece,
        mut bytes: &[u8],
    ) -> Option<u32> {
        let (after, mut first) = (piece.after, None);
        while !bytes.is_empty() {
            let own = bytes.len().min(PIECE_MAX);
            piece.after = after.saturating_add(short(bytes.len() - own));
            let Some((index, len)) = self.add(list, (prev, next), piece, &bytes[..own]) else {
                break;
            };
            first = first.or(Some(index));
            piece.start += len as u64;
            piece.before = piece.before.saturating_add(len as u16);
            bytes = &bytes[len..];
            prev = index;
        }
        first
    }

    /// Adds a range of a part behind `prev`.
    fn fill(&mut self, list: &mut List, prev: u32, next: u32, part: &Part<'_>, range: Range<u64>) {
        let piece = Piece {
            next,
            prev,
            start: range.start,
            before: short(range.start.saturating_sub(part.bounds.start) as usize),
            after: short(part.bounds.end.saturating_sub(range.end) as usize),
            far: NONE,
            data: NONE,
            len: 0,
            at: if part.is_urgent { URGENT } else { 0 },
        };
        self.add_all(list, (prev, next), piece, part.range(range));
    }
}

/// Units of a piece that is not divided.
fn units_for(len: usize) -> u32 {
    1 + Units::rounded(len.div_ceil(UNIT) as u32)
}

/// Bytes of a part of a segment.
fn short(bytes: usize) -> u16 {
    u16::try_from(bytes).unwrap_or(u16::MAX)
}

#[cfg(test)]
impl Buffer {
    /// Panics if a list of a connection is not sorted, if its links or runs do not fit, or if it has other units than are counted.
    pub(super) fn check(&self, waiting: Waiting) {
        for side in Side::BOTH {
            let list = self.list(waiting, side);
            let (mut at, mut before, mut first, mut units) = (list.head, NONE, NONE, 0);
            while at != NONE {
                let piece = self.piece(at);
                assert_eq!(piece.prev, before, "links fit");
                assert!(before == NONE || self.piece(before).end() <= piece.start, "sorted");
                assert!(piece.len > 0 && piece.begin() < BLOCK);
                if !self.is_joined(before, at) {
                    first = at;
                }
                if !self.is_joined(at, piece.next) {
                    assert_eq!((self.piece(first).far, piece.far), (at, first), "runs fit");
                }
                assert_eq!(self.units.count(at), 1);
                let of_bytes = self.units.count(piece.data);
                let end = piece.begin() + usize::from(piece.len);
                assert!(end <= of_bytes as usize * UNIT);
                units += 1 + of_bytes;
                (before, at) = (at, piece.next);
            }
            assert_eq!(list.tail, before);
            assert_eq!(units, self.units_of_side(waiting, side));
        }
    }
}
