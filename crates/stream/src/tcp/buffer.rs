//! The segments that wait for a byte before them: blocks of a slab, and a list of them for each side of a connection.
//!
//! ```text
//!   side ─▶ head ⇄ piece ⇄ piece ⇄ tail          sorted by place, never overlapping, at least one hole before the head
//!                    │       │
//!   data:  [block 0][block 1][block 2] …          BLOCK bytes each; a longer segment is several pieces
//! ```
//!
//! A piece knows the bounds of the segment of which it is a part, because policies compare those. Its number is that of its
//! block. All memory is taken at creation; free blocks are a stack, so that the ones used last, which caches hold, are used
//! next.
//!
//! Neighbours without a hole between them are a *run*. The first and the last piece of a run know each other (`far`), so that
//! a place is searched by steps of a run, and from both ends of the list at once: the usual segment belongs at one of them.
//! Runs are as long as they can be, so a piece is the last of its run if a hole follows it.

use std::ops::Range;

use super::policy::Policy;

/// Bytes of a block: a full-size segment of Ethernet fits one.
pub(super) const BLOCK: usize = 1536;

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Piece {
    next: u32,
    prev: u32,
    start: u64,
    /// Bytes of its segment before and after it.
    before: u32,
    after: u32,
    /// Of the first and the last piece of a run: the other one.
    far: u32,
    len: u16,
    /// Where its bytes begin in the block; with [`URGENT`], it is an urgent byte that is no part of the stream.
    at: u16,
}

const URGENT: u16 = 1 << 15;

const _: () = assert!(size_of::<Piece>() == 32);

impl Piece {
    fn end(&self) -> u64 {
        self.start + u64::from(self.len)
    }

    fn is_urgent(&self) -> bool {
        self.at & URGENT != 0
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

pub(super) struct Buffer {
    data: Vec<u8>,
    pieces: Vec<Piece>,
    free: u32,
    used: u32,
}

impl Buffer {
    /// A slab of at most `bytes` bytes, at least one block.
    pub(super) fn new(bytes: usize) -> Self {
        let blocks = (bytes / BLOCK).clamp(1, NONE as usize - 1);
        let piece = |next| Piece {
            next,
            prev: NONE,
            start: 0,
            before: 0,
            after: 0,
            far: NONE,
            len: 0,
            at: 0,
        };
        let pieces =
            (1..=blocks).map(|next| piece(if next == blocks { NONE } else { next as u32 }));
        // Written now, and in huge pages where there are such: late segments come in blocks that no cache and no TLB holds.
        let mut data = Vec::with_capacity(blocks * BLOCK);
        chunk::prefer_huge_pages(data.spare_capacity_mut());
        data.resize(blocks * BLOCK, 0);
        Self { data, pieces: pieces.collect(), free: 0, used: 0 }
    }

    /// Asks for both ends of a list, where the usual segment belongs.
    #[inline(always)]
    pub(super) fn prefetch(&self, list: List) {
        for end in [list.head, list.tail] {
            if let Some(piece) = self.pieces.get(end as usize) {
                interleave::prefetch_at(piece);
            }
        }
    }

    pub(super) fn blocks_used(&self) -> u32 {
        self.used
    }

    pub(super) fn blocks_free(&self) -> u32 {
        self.pieces.len() as u32 - self.used
    }

    pub(super) fn blocks_total(&self) -> u32 {
        self.pieces.len() as u32
    }

    fn piece(&self, index: u32) -> &Piece {
        &self.pieces[index as usize]
    }

    fn piece_mut(&mut self, index: u32) -> &mut Piece {
        &mut self.pieces[index as usize]
    }

    fn bytes(&self, index: u32) -> &[u8] {
        let piece = self.piece(index);
        let begin = index as usize * BLOCK + usize::from(piece.at & !URGENT);
        &self.data[begin..begin + usize::from(piece.len)]
    }

    pub(super) fn head(&self, list: List) -> Option<Head<'_>> {
        let piece = self.pieces.get(list.head as usize)?;
        Some(Head {
            start: piece.start,
            bytes: self.bytes(list.head),
            is_urgent: piece.is_urgent(),
            bounds: piece.bounds(),
        })
    }

    /// Place behind the last byte of a list.
    pub(super) fn end(&self, list: List) -> Option<u64> {
        self.pieces.get(list.tail as usize).map(Piece::end)
    }

    /// Removes the bytes of a list before `to`, which is in the first piece or at its end.
    pub(super) fn cut_head(&mut self, list: &mut List, to: u64) {
        if list.is_empty() {
            return;
        }
        if self.piece(list.head).end() <= to {
            self.remove(list, list.head);
        } else {
            self.cut_front(list.head, to);
        }
    }

    /// Whether two neighbours are of one run.
    fn is_joined(&self, left: u32, right: u32) -> bool {
        match (self.pieces.get(left as usize), self.pieces.get(right as usize)) {
            (Some(left), Some(right)) => left.end() == right.start,
            _ => false,
        }
    }

    /// Marks a run by its ends.
    fn set_run(&mut self, first: u32, last: u32) {
        self.piece_mut(first).far = last;
        self.piece_mut(last).far = first;
    }

    /// First and last piece of the run of a piece.
    fn run_of(&self, index: u32) -> (u32, u32) {
        let Piece { prev, next, far, .. } = *self.piece(index);
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
        let prev = self.piece(index).prev;
        if self.is_joined(prev, index) && to > self.piece(index).start {
            let (first, last) = self.run_of(index);
            self.set_run(first, prev);
            self.set_run(index, last);
        }
        let piece = self.piece_mut(index);
        let cut = to.saturating_sub(piece.start);
        piece.start += cut;
        piece.before += cut as u32;
        piece.len -= cut as u16;
        piece.at += cut as u16;
    }

    fn cut_back(&mut self, index: u32, to: u64) {
        let next = self.piece(index).next;
        if self.is_joined(index, next) && to < self.piece(index).end() {
            let (first, last) = self.run_of(index);
            self.set_run(first, index);
            self.set_run(next, last);
        }
        let piece = self.piece_mut(index);
        let cut = piece.end().saturating_sub(to);
        piece.after += cut as u32;
        piece.len -= cut as u16;
    }

    /// Removes all bytes of a list from the place `from` on; whether there were any.
    pub(super) fn truncate(&mut self, list: &mut List, from: u64) -> bool {
        let mut is_any = false;
        while !list.is_empty() && self.piece(list.tail).end() > from {
            is_any = true;
            if self.piece(list.tail).start >= from {
                self.remove(list, list.tail);
            } else {
                self.cut_back(list.tail, from);
            }
        }
        is_any
    }

    pub(super) fn clear(&mut self, list: &mut List) {
        while !list.is_empty() {
            self.remove(list, list.head);
        }
    }

    /// Unlinks a piece and frees its block.
    fn remove(&mut self, list: &mut List, index: u32) {
        let Piece { prev, next, .. } = *self.piece(index);
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
        match self.pieces.get_mut(prev as usize) {
            Some(piece) => piece.next = next,
            None => list.head = next,
        }
        match self.pieces.get_mut(next as usize) {
            Some(piece) => piece.prev = prev,
            None => list.tail = prev,
        }
        self.piece_mut(index).next = self.free;
        self.free = index;
        self.used -= 1;
    }

    /// Takes a block for the bytes at `start` and links it between two pieces. `None` if no block is free; the caller asks
    /// for room before.
    fn add(
        &mut self,
        list: &mut List,
        (prev, next): (u32, u32),
        start: u64,
        bytes: &[u8],
    ) -> Option<u32> {
        let index = self.free;
        let piece = self.pieces.get_mut(index as usize)?;
        self.free = piece.next;
        self.used += 1;
        let following = piece.next as usize;
        (piece.prev, piece.next, piece.start) = (prev, next, start);
        (piece.at, piece.len) = (0, bytes.len() as u16);
        let begin = index as usize * BLOCK;
        self.data[begin..begin + bytes.len()].copy_from_slice(bytes);
        let (mut first, mut last) = (index, index);
        match self.pieces.get_mut(prev as usize) {
            Some(piece) => {
                piece.next = index;
                if piece.end() == start {
                    first = piece.far;
                }
            }
            None => list.head = index,
        }
        match self.pieces.get_mut(next as usize) {
            Some(piece) => {
                piece.prev = index;
                if piece.start == start + bytes.len() as u64 {
                    last = piece.far;
                }
            }
            None => list.tail = index,
        }
        self.set_run(first, last);
        // The block of the next one.
        if let Some(piece) = self.pieces.get(following) {
            interleave::prefetch_at(piece);
            interleave::prefetch(&self.data[following * BLOCK..][..BLOCK]);
        }
        Some(index)
    }

    /// The last piece that begins at or before `start`, of the run with the piece `last` at its end. It is `last`, unless
    /// the place is taken.
    fn find_in_run(&self, last: u32, start: u64) -> u32 {
        let mut at = last;
        while let Some(piece) = self.pieces.get(at as usize)
            && piece.start > start
        {
            at = piece.prev;
        }
        at
    }

    /// Where `start..end` belongs.
    pub(super) fn find(&self, list: List, start: u64, end: u64) -> Place {
        // The last piece that begins at or before `start`: run by run, from both ends at once.
        let (mut low, mut high) = (list.head, list.tail);
        let mut prev = loop {
            let Some(last) = self.pieces.get(high as usize) else { break NONE };
            let first = self.piece(last.far);
            if first.start <= start {
                break self.find_in_run(high, start);
            }
            high = first.prev;
            let Some(first) = self.pieces.get(low as usize) else { break NONE };
            if first.start > start {
                break self.find_in_run(first.prev, start);
            }
            low = self.piece(first.far).next;
        };
        let mut next = list.head;
        if let Some(piece) = self.pieces.get(prev as usize) {
            next = piece.next;
            if piece.end() > start {
                (prev, next) = (piece.prev, prev);
            }
        }
        let (mut overlaps, mut at) = (0, next);
        while let Some(piece) = self.pieces.get(at as usize)
            && piece.start < end
        {
            overlaps += 1;
            at = piece.next;
        }
        Place { prev, next, overlaps }
    }

    /// Blocks that [`Buffer::insert`] takes at most for a part of `len` bytes.
    pub(super) fn blocks_needed(place: Place, len: usize) -> usize {
        match place.overlaps {
            0 => len.div_ceil(BLOCK),
            // Each run of new bytes, and one piece that is cut in two.
            overlaps => len / BLOCK + overlaps + 2,
        }
    }

    /// Copies a part to its place; where it overlaps pieces, the policy decides byte by byte.
    pub(super) fn insert(
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
        while let Some(&piece) = self.pieces.get(next as usize)
            && piece.start < end
        {
            let from = piece.start.max(scanned);
            let to = piece.end().min(end);
            found.new += from - scanned;
            found.seen += to - from;
            let old = &self.bytes(next)[(from - piece.start) as usize..(to - piece.start) as usize];
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
        let piece = *self.piece(index);
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
                let mut rest = [0; BLOCK];
                let from = (range.end - piece.start) as usize;
                let rest = &mut rest[..usize::from(piece.len) - from];
                rest.copy_from_slice(&self.bytes(index)[from..]);
                self.cut_back(index, range.start);
                let neighbours = (index, piece.next);
                let Some(behind) = self.add(list, neighbours, range.end, rest) else {
                    return neighbours;
                };
                let added = self.piece_mut(behind);
                added.before = piece.before + from as u32;
                added.after = piece.after;
                added.at |= piece.at & URGENT;
                (index, behind)
            }
        }
    }

    /// Adds a range of a part behind `prev`.
    fn fill(
        &mut self,
        list: &mut List,
        mut prev: u32,
        next: u32,
        part: &Part<'_>,
        range: Range<u64>,
    ) {
        let mut start = range.start;
        for bytes in part.range(range).chunks(BLOCK) {
            let Some(index) = self.add(list, (prev, next), start, bytes) else { return };
            let piece = self.piece_mut(index);
            start += bytes.len() as u64;
            piece.before = (piece.start - part.bounds.start) as u32;
            piece.after = (part.bounds.end - start) as u32;
            piece.at |= if part.is_urgent { URGENT } else { 0 };
            prev = index;
        }
    }
}

#[cfg(test)]
impl Buffer {
    /// Panics if a list is not sorted, if its links or runs do not fit, or if it has other than `blocks` blocks.
    pub(super) fn check(&self, lists: [List; 2], blocks: u32) {
        let mut count = 0;
        for list in lists {
            let (mut at, mut before, mut first) = (list.head, NONE, NONE);
            while at != NONE {
                let piece = self.piece(at);
                assert_eq!(piece.prev, before, "links fit");
                assert!(before == NONE || self.piece(before).end() <= piece.start, "sorted");
                assert!(piece.len > 0 && usize::from(piece.at & !URGENT) < BLOCK);
                if !self.is_joined(before, at) {
                    first = at;
                }
                if !self.is_joined(at, piece.next) {
                    assert_eq!((self.piece(first).far, piece.far), (at, first), "runs fit");
                }
                count += 1;
                assert!(count <= blocks);
                (before, at) = (at, piece.next);
            }
            assert_eq!(list.tail, before);
        }
        assert_eq!(count, blocks);
    }
}
