//! A packet: its metadata, small and fixed, apart from its bytes.

use crate::cell::{CELL_BYTES, Cell, HEADROOM_BYTES, Pool, Region};

/// The receive port of a packet that no port received.
pub const PORT_NONE: u16 = u16::MAX;

/// Bytes at the front of each cell that hold the link of a chain.
const LINK_BYTES: usize = 16;

/// A frame in one cell or, if it is longer, in a chain of cells.
///
/// Not `Clone`, and no cell is given back by dropping it: a packet ends in [`Packet::free`] or in a
/// queue. (The pool belongs to a thread, which a destructor could not reach without cost.)
#[derive(Debug)]
pub struct Packet {
    cell: Option<Cell>,
    /// Time of receipt in nanoseconds since 1970; 0 where the queue gives none.
    pub time_ns: u64,
    frame_len: u32,
    off: u16,
    len: u16,
    cells: u16,
    /// Index of the port that received it, [`PORT_NONE`] for one that a stage made.
    pub port: u16,
    /// For stages and queues that hand a packet on; the engine does not read it.
    pub mark: u32,
}

const _: () = assert!(size_of::<Packet>() == 32);

impl Packet {
    /// The empty packet that stands where one was taken out.
    pub const fn empty() -> Self {
        Self {
            cell: None,
            time_ns: 0,
            frame_len: 0,
            off: 0,
            len: 0,
            cells: 0,
            port: PORT_NONE,
            mark: 0,
        }
    }

    /// The frame of `len` bytes from `off` in `cell`.
    ///
    /// # Panics
    /// If the range does not lie in a cell behind the link's 16 bytes.
    #[inline]
    pub fn from_cell(cell: Cell, off: usize, len: usize) -> Self {
        assert!(off >= LINK_BYTES && off + len <= CELL_BYTES);
        Self {
            cell: Some(cell),
            time_ns: 0,
            frame_len: len as u32,
            off: off as u16,
            len: len as u16,
            cells: 1,
            port: PORT_NONE,
            mark: 0,
        }
    }

    /// A packet with a copy of `bytes`, in as many cells as it takes. `None` when too few cells are
    /// free (none is kept then) or the frame is longer than 65,535 cells.
    pub fn copy_from(pool: &mut Pool, bytes: &[u8]) -> Option<Self> {
        const ROOM: usize = CELL_BYTES - HEADROOM_BYTES;
        let mut packet = Self::empty();
        let mut pieces = bytes.chunks(ROOM).rev();
        if bytes.len() > ROOM * usize::from(u16::MAX) {
            return None;
        }
        if bytes.is_empty() {
            return Some(Self::from_cell(pool.get()?, HEADROOM_BYTES, 0));
        }
        // From the tail to the head, so that each cell can be linked to the one behind it.
        for piece in &mut pieces {
            let Some(mut cell) = pool.get() else {
                packet.free(pool);
                return None;
            };
            let off = cell.frame_offset(piece.len());
            cell.bytes_mut()[off..][..piece.len()].copy_from_slice(piece);
            packet.chain_in_front(cell, off, piece.len());
        }
        Some(packet)
    }

    /// Puts `len` bytes from `off` in `cell` before the frame.
    fn chain_in_front(&mut self, mut cell: Cell, off: usize, len: usize) {
        if let Some(next) = self.cell.take() {
            cell.link(next, self.off, self.len);
        }
        self.cell = Some(cell);
        self.off = off as u16;
        self.len = len as u16;
        self.cells += 1;
        self.frame_len += len as u32;
    }

    /// A copy in cells of its own. `None` when too few are free.
    pub fn duplicate(&self, pool: &mut Pool) -> Option<Self> {
        let mut copy = if self.cells <= 1 {
            let mut cell = pool.get()?;
            let (off, data) = (usize::from(self.off).max(LINK_BYTES), self.data());
            cell.bytes_mut()[off..][..data.len()].copy_from_slice(data);
            Self::from_cell(cell, off, data.len())
        } else {
            let mut bytes = Vec::with_capacity(self.frame_len());
            self.segments().for_each(|s| bytes.extend_from_slice(s));
            Self::copy_from(pool, &bytes)?
        };
        copy.time_ns = self.time_ns;
        copy.port = self.port;
        copy.mark = self.mark;
        Some(copy)
    }

    /// Gives all its cells back.
    pub fn free(mut self, pool: &mut Pool) {
        let Some(mut cell) = self.cell.take() else { return };
        for _ in 1..self.cells {
            // SAFETY: `cells` counts the links, each written by `chain_in_front`; the first 16
            // bytes are out of reach of `data_mut` and `push_front`.
            let (next, _, _) = unsafe { cell.unlink() };
            pool.put(cell);
            cell = next;
        }
        pool.put(cell);
    }

    /// Whether this is the placeholder of a packet that was taken out.
    pub fn is_empty(&self) -> bool {
        self.cell.is_none()
    }

    /// Bytes of the whole frame.
    #[inline]
    pub fn frame_len(&self) -> usize {
        self.frame_len as usize
    }

    /// Number of cells the frame lies in.
    pub fn cells(&self) -> usize {
        self.cells.into()
    }

    /// The frame's bytes in its first cell: all of them unless it is a chain.
    #[inline]
    pub fn data(&self) -> &[u8] {
        match &self.cell {
            Some(cell) => &cell.bytes()[usize::from(self.off)..][..usize::from(self.len)],
            None => &[],
        }
    }

    /// As [`Packet::data`], to write.
    #[inline]
    pub fn data_mut(&mut self) -> &mut [u8] {
        match &mut self.cell {
            Some(cell) => &mut cell.bytes_mut()[usize::from(self.off)..][..usize::from(self.len)],
            None => &mut [],
        }
    }

    /// Writes the whole frame anew, cell by cell; `bytes` beyond its length are left out.
    pub fn write_all(&mut self, bytes: &[u8]) {
        let (mut cell, mut off, mut len) = match &mut self.cell {
            Some(cell) => (cell, self.off, self.len),
            None => return,
        };
        let mut rest = bytes;
        for left in (0..self.cells).rev() {
            let n = usize::from(len).min(rest.len());
            let (now, later) = rest.split_at(n);
            cell.bytes_mut()[usize::from(off)..][..n].copy_from_slice(now);
            rest = later;
            if left == 0 {
                return;
            }
            // SAFETY: `cells` counts the links, each written by `chain_in_front`; the first 16 bytes
            // are out of reach of `data_mut` and `push_front`, and of the write above, for `off` is
            // behind them.
            (cell, off, len) = unsafe { cell.linked_mut() };
        }
    }

    /// The frame's bytes, cell by cell.
    pub fn segments(&self) -> Segments<'_> {
        let next = self.cell.as_ref().map(|cell| (cell, self.off, self.len));
        Segments { next, left: self.cells }
    }

    /// Moves the start of the frame `n` bytes forward: headers removed. `false`, and nothing
    /// changed, if its first cell has fewer.
    pub fn pull_front(&mut self, n: usize) -> bool {
        let fits = n <= usize::from(self.len);
        if fits {
            self.off += n as u16;
            self.len -= n as u16;
            self.frame_len -= n as u32;
        }
        fits
    }

    /// Moves the start of the frame `n` bytes back: room for headers, to be written by the caller.
    /// `false`, and nothing changed, if the headroom is too small.
    pub fn push_front(&mut self, n: usize) -> bool {
        let fits = self.cell.is_some() && n + LINK_BYTES <= usize::from(self.off);
        if fits {
            self.off -= n as u16;
            self.len += n as u16;
            self.frame_len += n as u32;
        }
        fits
    }

    /// Cuts a frame that lies in one cell to `len` bytes; `false` for a chain or a shorter frame.
    pub fn truncate(&mut self, len: usize) -> bool {
        let fits = self.cells == 1 && len <= usize::from(self.len);
        if fits {
            self.len = len as u16;
            self.frame_len = len as u32;
        }
        fits
    }

    /// Byte offset in `region` of a frame that lies in one cell of it.
    pub fn offset_in(&self, region: &Region) -> Option<u64> {
        let cell = self.cell.as_ref().filter(|_| self.cells == 1)?;
        Some(region.offset_of(cell)? + u64::from(self.off))
    }

    /// The cell, its offset and length, of a frame that lies in one; the packet itself for a chain.
    pub fn into_cell(mut self) -> Result<(Cell, usize, usize), Self> {
        match self.cell.take() {
            Some(cell) if self.cells == 1 => Ok((cell, self.off.into(), self.len.into())),
            cell => {
                self.cell = cell;
                Err(self)
            }
        }
    }

    /// Brings the first line of the frame near.
    #[inline(always)]
    pub fn prefetch(&self) {
        if let Some(cell) = &self.cell {
            cell.prefetch(self.off.into());
        }
    }
}

/// Iterator over a frame's bytes, one slice a cell.
#[derive(Debug)]
pub struct Segments<'a> {
    next: Option<(&'a Cell, u16, u16)>,
    left: u16,
}

impl<'a> Iterator for Segments<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (cell, off, len) = self.next.take()?;
        self.left -= 1;
        if self.left > 0 {
            // SAFETY: `left` counts the links that `chain_in_front` wrote.
            self.next = Some(unsafe { cell.linked() });
        }
        Some(&cell.bytes()[usize::from(off)..][..usize::from(len)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::HugePages;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn frames_of_any_length_come_out_as_they_went_in(len in 0usize..20_000, head in 0usize..64) {
            let (_, depot) = Region::new(40, HugePages::Off).unwrap();
            let mut pool = Pool::new(depot.clone(), 4);
            let bytes: Vec<u8> = (0..len).map(|i| (i * 7 + i / 251) as u8).collect();
            let mut packet = Packet::copy_from(&mut pool, &bytes).unwrap();
            prop_assert_eq!(packet.frame_len(), len);
            prop_assert!(packet.push_front(head));
            packet.data_mut()[..head].fill(9);
            prop_assert!(packet.pull_front(head));
            let turned: Vec<u8> = bytes.iter().map(|b| !b).collect();
            packet.write_all(&turned);
            prop_assert_eq!(packet.segments().collect::<Vec<_>>().concat(), turned);
            packet.write_all(&bytes);
            let copy = packet.duplicate(&mut pool).unwrap();
            prop_assert_eq!(copy.segments().collect::<Vec<_>>().concat(), bytes);
            packet.free(&mut pool);
            copy.free(&mut pool);
            drop(pool);
            prop_assert_eq!(depot.available(), 40);
        }
    }

    #[test]
    fn a_frame_that_finds_too_few_cells_keeps_none() {
        let (_, depot) = Region::new(3, HugePages::Off).unwrap();
        let mut pool = Pool::new(depot.clone(), 1);
        assert!(Packet::copy_from(&mut pool, &[1; 6000]).is_none());
        drop(pool);
        assert_eq!(depot.available(), 3);
    }

    #[test]
    fn headroom_and_length_are_respected() {
        let (_, depot) = Region::new(1, HugePages::Off).unwrap();
        let mut pool = Pool::new(depot, 1);
        let mut p = Packet::copy_from(&mut pool, &[1, 2, 3]).unwrap();
        let headroom = usize::from(p.off) - LINK_BYTES;
        assert!(headroom >= HEADROOM_BYTES - LINK_BYTES);
        assert!(!p.push_front(headroom + 1));
        assert!(p.push_front(headroom));
        assert!(!p.pull_front(1000));
        assert!(p.truncate(4) && !p.truncate(5));
        p.free(&mut pool);
        assert!(Packet::empty().data().is_empty());
    }
}
