//! Frames over chains of cells: made, grown, cut, split, joined, read and written.
//!
//! ```text
//!  grow_front │░░░░░░░░│ first │ … │ last │            split at: │ first │ … │ la  │   │ st │ … │
//!  grow_back           │ first │ … │ last │░░░░│                 └ keeps it        ┘   └ result ┘
//! ```
//!
//! The first 16 bytes of each cell but the last hold the link to the next one with its range there; a
//! packet's `cells` counts the cells, so what is in the last one's first bytes is never read. Each
//! step over a link is in one of five places here: [`Packet::nth`], [`Packet::pieces_mut`],
//! [`Packet::pop_cell`], [`Packet::detach`] and [`Segments`]. Everything else is safe code over these.
//!
//! What cells are missing for is not done at all: such an operation takes its cells first.

use std::ops::Range;

use super::{FRAME_BYTES_MAX, FRAME_CELLS_MAX, LINK_BYTES, ONE_CELL, Offload, Packet};
use crate::cell::{CELL_BYTES, Cell, HEADROOM_BYTES, Pool};

/// Bytes of a frame in each cell of a chain that is made here.
const CELL_CAPACITY: usize = CELL_BYTES - HEADROOM_BYTES;

const _: () = assert!(CELL_CAPACITY == 1856); // said in the docs below

/// The most bytes of a frame in one cell.
pub const CELL_FRAME_BYTES: usize = CELL_BYTES - LINK_BYTES;

/// A cell of a chain, to change: its token, and its range wherever that is.
struct Piece<'a> {
    cell: &'a mut Cell,
    off: &'a mut u16,
    len: &'a mut u16,
}

impl Packet {
    /// A packet with a copy of `bytes`, in as many cells as it takes. `None` when too few cells are
    /// free (none is kept then) or the frame is longer than
    /// [`FRAME_BYTES_MAX`].
    pub fn copy_from(pool: &mut Pool, bytes: &[u8]) -> Option<Self> {
        Self::build(pool, bytes.len(), |at, piece| {
            piece.copy_from_slice(&bytes[at..][..piece.len()]);
        })
    }

    /// [`Packet::copy_from`] for a frame that lies in several parts.
    pub fn copy_of(pool: &mut Pool, parts: &[&[u8]]) -> Option<Self> {
        let len = parts.iter().map(|part| part.len()).sum();
        let mut packet = Self::build(pool, len, |_, _| {})?;
        packet.write_from(0, parts.iter().copied());
        Some(packet)
    }

    /// A packet of `len` bytes that are yet to be written: they are what was in its cells before. `None` as for
    /// [`Packet::copy_from`].
    pub fn with_len(pool: &mut Pool, len: usize) -> Option<Self> {
        Self::build(pool, len, |_, _| {})
    }

    /// Gives `f` the frame's bytes, cell by cell, to write.
    pub fn for_each_piece(&mut self, mut f: impl FnMut(&mut [u8])) {
        self.pieces_mut(|piece| {
            f(piece);
            true
        });
    }

    /// A packet that begins with `headers`, followed by the bytes of `of` in `range`, with its time, port and mark and
    /// nothing left to do. `None` as for [`Packet::copy_from`], or if `of` does not have all the bytes.
    pub fn with_headers(
        pool: &mut Pool,
        headers: &[u8],
        of: &Packet,
        range: Range<usize>,
    ) -> Option<Self> {
        if range.start > range.end || range.end > of.frame_len() {
            return None;
        }
        let len = headers.len() + range.len();
        let mut packet = Self::build(pool, len, |at, piece| {
            let own = headers.get(at..).unwrap_or_default();
            let n = own.len().min(piece.len());
            let (front, behind) = piece.split_at_mut(n);
            front.copy_from_slice(&own[..n]);
            of.read_at(range.start + (at + n).saturating_sub(headers.len()), behind);
        })?;
        packet.take_metadata(of);
        packet.offload = Offload::NONE;
        Some(packet)
    }

    /// A packet of `len` bytes; `fill` writes each piece of it, given the place of its first byte in the
    /// frame. `None` as for [`Packet::copy_from`].
    fn build(pool: &mut Pool, len: usize, mut fill: impl FnMut(usize, &mut [u8])) -> Option<Self> {
        let cells = len.div_ceil(CELL_CAPACITY).max(1);
        if len > FRAME_BYTES_MAX {
            return None;
        }
        let mut packet = Self::empty();
        // From the tail to the head, so that each cell can be linked to the one behind it.
        for at in (0..cells).rev().map(|i| i * CELL_CAPACITY) {
            let Some(mut cell) = pool.get() else {
                packet.free(pool);
                return None;
            };
            let n = (len - at).min(CELL_CAPACITY);
            let off = cell.frame_offset(n);
            fill(at, &mut cell.bytes_mut()[off..][..n]);
            packet.chain_in_front(cell, off, n);
        }
        Some(packet)
    }

    /// Puts `len` bytes from `off` in `cell` before the frame.
    fn chain_in_front(&mut self, mut cell: Cell, off: usize, len: usize) {
        debug_assert!(off >= LINK_BYTES && off + len <= CELL_BYTES);
        if let Some(next) = self.cell.take() {
            cell.link(next, self.off, self.len);
        }
        self.cell = Some(cell);
        self.off = off as u16;
        self.len = len as u16;
        self.extent += ONE_CELL + len as u32;
    }

    /// A copy in cells of its own. `None` when too few are free.
    pub fn duplicate(&self, pool: &mut Pool) -> Option<Self> {
        let mut copy = if self.cells() <= 1 {
            let mut cell = pool.get()?;
            let (off, data) = (usize::from(self.off).max(LINK_BYTES), self.data());
            cell.bytes_mut()[off..][..data.len()].copy_from_slice(data);
            Self::from_cell(cell, off, data.len())
        } else {
            let mut copy = Self::build(pool, self.frame_len(), |_, _| {})?;
            copy.write_from(0, self.segments());
            copy
        };
        copy.take_metadata(self);
        Some(copy)
    }

    /// Time, port, mark and offload of `other`.
    fn take_metadata(&mut self, other: &Packet) {
        (self.time_ns, self.port, self.mark) = (other.time_ns, other.port, other.mark);
        self.offload = other.offload;
    }

    /// Gives all its cells back.
    pub fn free(mut self, pool: &mut Pool) {
        while let Some(cell) = self.pop_cell() {
            pool.put(cell);
        }
    }

    /// Takes the first cell off with its part of the frame; `None` when there is none.
    fn pop_cell(&mut self) -> Option<Cell> {
        let mut cell = self.cell.take()?;
        self.extent -= ONE_CELL + u32::from(self.len);
        (self.off, self.len) = (0, 0);
        if self.cells() > 0 {
            // SAFETY: `cells` counted this link, which `chain_in_front` or `append` wrote. Since
            // then nothing else wrote the cell's first 16 bytes: each `off` is behind them, and
            // `data_mut`, `push_front` and `pieces_mut` reach from `off` only.
            let (next, off, len) = unsafe { cell.unlink() };
            (self.cell, self.off, self.len) = (Some(next), off, len);
        }
        Some(cell)
    }

    /// Cell number `k`, which must be less than `cells`.
    fn nth(&mut self, k: usize) -> Option<Piece<'_>> {
        assert!(k < self.cells());
        let cell = self.cell.as_mut()?;
        let mut piece = Piece { cell, off: &mut self.off, len: &mut self.len };
        for _ in 0..k {
            // SAFETY: at most `k < cells` steps, so the link is one of those that `cells` counts; they
            // are whole for the reason given in `pop_cell`.
            let (cell, off, len) = unsafe { piece.cell.linked_mut() };
            piece = Piece { cell, off, len };
        }
        Some(piece)
    }

    /// Gives `f` the frame's bytes, cell by cell, until it answers `false`.
    fn pieces_mut(&mut self, mut f: impl FnMut(&mut [u8]) -> bool) {
        let cells = self.cells();
        let Some(cell) = &mut self.cell else { return };
        let mut piece = Piece { cell, off: &mut self.off, len: &mut self.len };
        for left in (0..cells).rev() {
            let range = usize::from(*piece.off)..usize::from(*piece.off) + usize::from(*piece.len);
            if !f(&mut piece.cell.bytes_mut()[range]) || left == 0 {
                return;
            }
            // SAFETY: `left` links of those that `cells` counts are ahead; they are whole for the reason
            // given in `pop_cell`.
            let (cell, off, len) = unsafe { piece.cell.linked_mut() };
            piece = Piece { cell, off, len };
        }
    }

    /// Takes the cells behind number `k`, which must be less than `cells`, as a packet of their own; an
    /// empty one where there are none.
    fn detach(&mut self, k: usize) -> Packet {
        let kept: usize = self.segments().take(k + 1).map(<[u8]>::len).sum();
        let mut tail = Packet::empty();
        let ours = (k + 1) as u32 * ONE_CELL + kept as u32;
        tail.extent = self.extent - ours;
        if tail.cells() > 0
            && let Some(piece) = self.nth(k)
        {
            // SAFETY: there are cells behind number `k`, so it has a link of those that `cells` counts,
            // whole for the reason given in `pop_cell`. `cells` leaves it out from now on.
            let (next, off, len) = unsafe { piece.cell.unlink() };
            (tail.cell, tail.off, tail.len) = (Some(next), off, len);
            self.extent = ours;
        }
        tail
    }

    /// The first cell that byte `at` of the frame is in or behind, and the bytes of the frame that it
    /// holds before `at`. `at` is at most the frame's length.
    fn place_of(&self, at: usize) -> (usize, usize) {
        let mut rest = at;
        for (k, segment) in self.segments().enumerate() {
            if rest <= segment.len() {
                return (k, rest);
            }
            rest -= segment.len();
        }
        unreachable!("byte {at} of a frame of {} bytes", self.frame_len())
    }

    /// Puts `n` zero bytes before the frame: in the headroom or, where that is too short, all of them in
    /// cells of their own, so that a header of up to 1,856 bytes lies in one piece.
    /// `false`, and nothing changed, when too few cells are free or the frame would be too long.
    pub fn grow_front(&mut self, pool: &mut Pool, n: usize) -> bool {
        if self.push_front(n) {
            self.data_mut()[..n].fill(0);
            return true;
        }
        if self.is_empty() {
            return false;
        }
        let Some(mut front) = Self::build(pool, n, |_, piece| piece.fill(0)) else { return false };
        front.take_metadata(self);
        std::mem::swap(self, &mut front);
        let Err(behind) = self.append(front) else { return true };
        // Too long a chain: as before.
        std::mem::replace(self, behind).free(pool);
        false
    }

    /// Puts `n` zero bytes behind the frame: in the room behind it in its last cell, then in cells of
    /// their own. `false`, and nothing changed, when too few cells are free or the frame would be too
    /// long.
    pub fn grow_back(&mut self, pool: &mut Pool, n: usize) -> bool {
        if self.is_empty() {
            return false;
        }
        let Some(last) = self.nth(self.cells() - 1) else { return false };
        let end = usize::from(*last.off) + usize::from(*last.len);
        let here = n.min(CELL_BYTES - end);
        let mut behind = Packet::empty();
        if here < n {
            match Self::build(pool, n - here, |_, piece| piece.fill(0)) {
                Some(more) => behind = more,
                None => return false,
            }
        }
        if !self.may_take(here, &behind) {
            behind.free(pool);
            return false;
        }
        if let Some(last) = self.nth(self.cells() - 1) {
            last.cell.bytes_mut()[end..][..here].fill(0);
            *last.len += here as u16;
            self.extent += here as u32;
        }
        behind.is_empty() || self.append(behind).is_ok()
    }

    /// Takes `n` bytes off the frame's front; cells that become empty go back, but one stays. `false`, and
    /// nothing changed, if the frame is shorter. [`Packet::pull_front`] is enough within the first cell.
    pub fn shrink_front(&mut self, pool: &mut Pool, n: usize) -> bool {
        if n > self.frame_len() {
            return false;
        }
        let mut rest = n;
        while self.cells() > 1 && rest >= usize::from(self.len) {
            rest -= usize::from(self.len);
            if let Some(cell) = self.pop_cell() {
                pool.put(cell);
            }
        }
        self.pull_front(rest)
    }

    /// Cuts the frame to `len` bytes; cells behind them go back, but one stays. `false`, and nothing
    /// changed, if the frame is shorter.
    #[inline]
    pub fn truncate(&mut self, pool: &mut Pool, len: usize) -> bool {
        if self.cells() > 1 {
            return self.truncate_chain(pool, len);
        }
        let fits = len <= usize::from(self.len);
        if fits {
            self.len = len as u16;
            self.set_frame_len(len);
        }
        fits
    }

    #[inline(never)]
    fn truncate_chain(&mut self, pool: &mut Pool, len: usize) -> bool {
        if len > self.frame_len() {
            return false;
        }
        let (k, rest) = self.place_of(len);
        self.detach(k).free(pool);
        if let Some(last) = self.nth(k) {
            *last.len = rest as u16;
            self.set_frame_len(len);
        }
        true
    }

    /// Splits the frame: it keeps its first `at` bytes, the result has the others, with the same time,
    /// port and mark. What is behind `at` in its cell is copied to a cell of its own. `None`, and nothing
    /// changed, if the frame is shorter or no cell is free. Either part may be an empty frame.
    pub fn split(&mut self, pool: &mut Pool, at: usize) -> Option<Packet> {
        if at > self.frame_len() || self.is_empty() {
            return None;
        }
        let (k, rest) = self.place_of(at);
        let has_more = k + 1 < self.cells();
        let last = self.nth(k)?;
        let moved = usize::from(*last.len) - rest;
        let from = usize::from(*last.off) + rest;
        let mut tail;
        if moved == 0 && has_more {
            tail = self.detach(k); // between two cells
        } else {
            let mut cell = pool.get()?;
            let off = match moved <= CELL_CAPACITY {
                true => cell.frame_offset(moved),
                false => CELL_BYTES - moved,
            };
            let bytes = &last.cell.bytes()[from..][..moved];
            cell.bytes_mut()[off..][..moved].copy_from_slice(bytes);
            tail = self.detach(k);
            tail.chain_in_front(cell, off, moved);
            if let Some(last) = self.nth(k) {
                *last.len = rest as u16;
                self.set_frame_len(at);
            }
        }
        tail.take_metadata(self);
        Some(tail)
    }

    /// Puts the frame of `other` behind this one; its time, port and mark are lost. Copies nothing.
    ///
    /// # Errors
    /// `other`, and nothing is changed, where the frame would have more than [`FRAME_BYTES_MAX`] bytes or
    /// [`FRAME_CELLS_MAX`] cells, or one of both is [`Packet::empty`].
    pub fn append(&mut self, mut other: Packet) -> Result<(), Packet> {
        if self.is_empty() || !self.may_take(0, &other) {
            return Err(other);
        }
        let Some(next) = other.cell.take() else { return Err(other) };
        if let Some(last) = self.nth(self.cells() - 1) {
            last.cell.link(next, other.off, other.len);
        }
        self.extent += other.extent;
        Ok(())
    }

    /// Whether the frame stays short enough with `more` bytes and the cells of `behind`.
    fn may_take(&self, more: usize, behind: &Packet) -> bool {
        self.frame_len() + more + behind.frame_len() <= FRAME_BYTES_MAX
            && self.cells() + behind.cells() <= FRAME_CELLS_MAX
    }

    /// Sets the length alone.
    fn set_frame_len(&mut self, len: usize) {
        self.extent = self.extent & !(ONE_CELL - 1) | len as u32;
    }

    /// Brings at least the first `n` bytes into the first cell, so that [`Packet::data`] shows them.
    /// Takes no cell; those that become empty go back. `false`, and nothing changed, if the frame is
    /// shorter or `n` is more than [`CELL_FRAME_BYTES`].
    #[inline]
    pub fn linearise(&mut self, pool: &mut Pool, n: usize) -> bool {
        n <= usize::from(self.len) || self.linearise_chain(pool, n)
    }

    #[inline(never)]
    fn linearise_chain(&mut self, pool: &mut Pool, n: usize) -> bool {
        if n > self.frame_len() || n > CELL_FRAME_BYTES {
            return false;
        }
        let mut rest = self.detach(0);
        let (off, len) = (usize::from(self.off), usize::from(self.len));
        // As much of the headroom as the bytes leave.
        let to = off.min(CELL_BYTES - n);
        if let Some(cell) = &mut self.cell {
            let bytes = cell.bytes_mut();
            bytes.copy_within(off..off + len, to);
            let done = rest.read_at(0, &mut bytes[to + len..to + n]);
            debug_assert!(done);
        }
        (self.off, self.len) = (to as u16, n as u16);
        self.set_frame_len(n);
        rest.shrink_front(pool, n - len);
        if rest.frame_len() == 0 {
            rest.free(pool);
            return true;
        }
        self.append(rest).is_ok()
    }

    /// The bytes of the frame in `range` in one piece: where they lie if that is one cell, otherwise copied
    /// into `scratch`. `None` if the frame does not have them all. `scratch` allocates only where it has
    /// too little capacity.
    #[inline]
    pub fn linear<'a>(&'a self, range: Range<usize>, scratch: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        match self.data().get(range.clone()) {
            Some(here) => Some(here),
            None => self.linear_behind(range, scratch),
        }
    }

    #[inline(never)]
    fn linear_behind<'a>(
        &'a self,
        range: Range<usize>,
        scratch: &'a mut Vec<u8>,
    ) -> Option<&'a [u8]> {
        if range.start > range.end || range.end > self.frame_len() {
            return None;
        }
        let mut start = range.start;
        for segment in self.segments() {
            if start < segment.len() {
                match segment.get(start..start + range.len()) {
                    Some(here) => return Some(here),
                    None => break,
                }
            }
            start -= segment.len();
        }
        scratch.clear();
        scratch.resize(range.len(), 0);
        self.read_at(range.start, scratch).then_some(scratch)
    }

    /// Copies the bytes of the frame from place `at` to `out`. `false`, and `out` unchanged, if the frame
    /// does not have them all.
    pub fn read_at(&self, at: usize, out: &mut [u8]) -> bool {
        if !self.has(at, out.len()) {
            return false;
        }
        let (mut skip, mut out) = (at, out);
        for segment in self.segments() {
            let from = &segment[skip.min(segment.len())..];
            skip = skip.saturating_sub(segment.len());
            let n = from.len().min(out.len());
            let (now, later) = out.split_at_mut(n);
            now.copy_from_slice(&from[..n]);
            out = later;
            if out.is_empty() {
                break;
            }
        }
        true
    }

    /// Writes `bytes` over the frame from place `at`. `false`, and nothing changed, if they would go beyond
    /// its end.
    pub fn write_at(&mut self, at: usize, bytes: &[u8]) -> bool {
        let fits = self.has(at, bytes.len());
        if fits {
            self.write_from(at, std::iter::once(bytes));
        }
        fits
    }

    /// Writes the whole frame anew, cell by cell; `bytes` beyond its length are left out.
    pub fn write_all(&mut self, bytes: &[u8]) {
        self.write_from(0, std::iter::once(bytes));
    }

    fn has(&self, at: usize, n: usize) -> bool {
        at.checked_add(n).is_some_and(|end| end <= self.frame_len())
    }

    /// Writes `pieces`, one behind the other, over the frame from place `at` up to its end.
    fn write_from<'a>(&mut self, at: usize, mut pieces: impl Iterator<Item = &'a [u8]>) {
        let mut skip = at;
        let mut piece: &[u8] = &[];
        self.pieces_mut(|to| {
            let from = skip.min(to.len());
            skip -= from;
            let mut to = &mut to[from..];
            loop {
                let n = piece.len().min(to.len());
                to[..n].copy_from_slice(&piece[..n]);
                (piece, to) = (&piece[n..], &mut to[n..]);
                if to.is_empty() {
                    return true;
                }
                match pieces.next() {
                    Some(next) => piece = next,
                    None => return false,
                }
            }
        });
    }

    /// The frame's bytes, cell by cell.
    pub fn segments(&self) -> Segments<'_> {
        let next = self.cell.as_ref().map(|cell| (cell, self.off, self.len));
        Segments { next, left: self.cells() }
    }
}

/// Iterator over a frame's bytes, one slice a cell.
#[derive(Debug)]
pub struct Segments<'a> {
    next: Option<(&'a Cell, u16, u16)>,
    left: usize,
}

impl<'a> Iterator for Segments<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (cell, off, len) = self.next.take()?;
        self.left -= 1;
        if self.left > 0 {
            // SAFETY: `left` links of those that the packet's `cells` counts are ahead; they are whole for
            // the reason given in `Packet::pop_cell`.
            self.next = Some(unsafe { cell.linked() });
        }
        Some(&cell.bytes()[usize::from(off)..][..usize::from(len)])
    }
}

#[cfg(test)]
mod tests;
