//! A packet: its metadata, small and fixed, apart from its bytes.
//!
//! ```text
//!  Packet ──▶ │ link │ headroom │ frame … │ tailroom │      `off`, `len` of the packet
//!               └──▶ │ link │ headroom │ … frame │ tailroom │      `off`, `len` of the link before
//! ```
//!
//! Here is what needs the first cell only, which is nearly every frame whole. What goes over chains is in
//! `chain`.

mod chain;
mod offload;

pub use chain::{CELL_FRAME_BYTES, Segments};
pub use offload::Offload;

use crate::cell::{CELL_BYTES, Cell, Region};

/// The receive port of a packet that no port received.
pub const PORT_NONE: u16 = u16::MAX;

/// Bytes at the front of each cell that hold the link of a chain.
const LINK_BYTES: usize = 16;

/// The most bytes of a frame that is made, appended to or grown over cells. What [`Packet::push_front`] may add then
/// is left of the 21 bits that hold the length.
pub const FRAME_BYTES_MAX: usize = (1 << EXTENT_BITS) - 1 - CELL_BYTES;

/// The most cells of a frame.
pub const FRAME_CELLS_MAX: usize = (1 << (u32::BITS - EXTENT_BITS)) - 1;

/// Bits of a packet's extent that hold the frame's length; those above hold its number of cells.
const EXTENT_BITS: u32 = 21;

/// Bit of [`Packet::mark`] of a packet whose capture left bytes out, and the bits that hold how many.
const CUT: u32 = 1 << 27;
const CUT_BYTES: u32 = (1 << 20) - 1;

/// One cell, in an extent.
const ONE_CELL: u32 = 1 << EXTENT_BITS;

/// A frame in one cell or, if it is longer, in a chain of cells.
///
/// Not `Clone`, and no cell is given back by dropping it: a packet ends in [`Packet::free`] or in a
/// queue. (The pool belongs to a thread, which a destructor could not reach without cost.)
#[derive(Debug)]
pub struct Packet {
    cell: Option<Cell>,
    /// Time of receipt in nanoseconds since 1970; 0 where the queue gives none.
    pub time_ns: u64,
    /// Bytes of the frame and, above [`EXTENT_BITS`], its cells.
    extent: u32,
    off: u16,
    len: u16,
    /// What is left to do before the frame can be on a wire.
    pub offload: Offload,
    /// Index of the port that received it, [`PORT_NONE`] for one that a stage made.
    pub port: u16,
    /// For stages and queues that hand a packet on; the engine does not read it. Bit 27, see [`Packet::set_cut`], and the bits that
    /// crates above name by `MARK_…`.
    pub mark: u32,
}

const _: () = assert!(size_of::<Packet>() == 32);

impl Packet {
    /// The empty packet that is where one was taken out.
    #[inline]
    pub const fn empty() -> Self {
        Self {
            cell: None,
            time_ns: 0,
            extent: 0,
            off: 0,
            len: 0,
            offload: Offload::NONE,
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
            extent: ONE_CELL | len as u32,
            off: off as u16,
            len: len as u16,
            offload: Offload::NONE,
            port: PORT_NONE,
            mark: 0,
        }
    }

    /// Whether this is the placeholder of a packet that was taken out.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.cell.is_none()
    }

    /// Bytes of the whole frame.
    #[inline]
    pub fn frame_len(&self) -> usize {
        (self.extent & (ONE_CELL - 1)) as usize
    }

    /// The capture that the packet was read from left out its last `bytes` bytes: it has a snap length. Nothing happens for 0.
    #[inline]
    pub fn set_cut(&mut self, bytes: usize) {
        if bytes > 0 {
            self.mark = self.mark & !CUT_BYTES | CUT | bytes.min(CUT_BYTES as usize) as u32;
        }
    }

    /// Bytes that a capture left out at the end of the frame; 0 for a whole one.
    #[inline]
    pub fn cut_bytes(&self) -> usize {
        match self.mark & CUT {
            0 => 0,
            _ => (self.mark & CUT_BYTES) as usize,
        }
    }

    /// Bytes that the frame had on the wire.
    #[inline]
    pub fn wire_len(&self) -> usize {
        self.frame_len() + self.cut_bytes()
    }

    /// Number of cells the frame lies in.
    #[inline]
    pub fn cells(&self) -> usize {
        (self.extent >> EXTENT_BITS) as usize
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

    /// Moves the start of the frame `n` bytes forward: headers removed. `false`, and nothing
    /// changed, if its first cell has fewer; [`Packet::shrink_front`] goes on in the next.
    #[inline]
    pub fn pull_front(&mut self, n: usize) -> bool {
        let fits = n <= usize::from(self.len);
        if fits {
            self.off += n as u16;
            self.len -= n as u16;
            self.extent -= n as u32;
        }
        fits
    }

    /// Moves the start of the frame `n` bytes back: room for headers, to be written by the caller.
    /// `false`, and nothing changed, if the headroom is too small; [`Packet::grow_front`] takes a cell
    /// then.
    #[inline]
    pub fn push_front(&mut self, n: usize) -> bool {
        let fits = n <= self.headroom();
        if fits {
            self.off -= n as u16;
            self.len += n as u16;
            self.extent += n as u32;
        }
        fits && self.cell.is_some()
    }

    /// Adds `n` bytes behind a frame in one cell: room for a trailer, to be written by the caller. `false`, and nothing changed, if
    /// the cell has no room; [`Packet::grow_back`] takes another one then.
    #[inline]
    pub fn push_back(&mut self, n: usize) -> bool {
        let end = usize::from(self.off) + usize::from(self.len);
        let fits = self.cells() == 1 && n <= CELL_BYTES - end;
        if fits {
            self.len += n as u16;
            self.extent += n as u32;
        }
        fits
    }

    /// Bytes that [`Packet::push_front`] can add.
    #[inline]
    pub fn headroom(&self) -> usize {
        usize::from(self.off).saturating_sub(LINK_BYTES)
    }

    /// Byte offset in `region` of a frame that lies in one cell of it.
    pub fn offset_in(&self, region: &Region) -> Option<u64> {
        let cell = self.cell.as_ref().filter(|_| self.cells() == 1)?;
        Some(region.offset_of(cell)? + u64::from(self.off))
    }

    /// The cell, its offset and length, of a frame that lies in one; the packet itself for a chain.
    pub fn into_cell(mut self) -> Result<(Cell, usize, usize), Self> {
        match self.cell.take() {
            Some(cell) if self.cells() == 1 => Ok((cell, self.off.into(), self.len.into())),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::{HEADROOM_BYTES, HugePages, Pool};

    #[test]
    fn what_a_capture_left_out_counts_on_the_wire() {
        let (_, depot) = Region::new(1, HugePages::Off).unwrap();
        let mut pool = Pool::new(depot, 1);
        let mut p = Packet::copy_from(&mut pool, &[1, 2, 3]).unwrap();
        p.mark = 1 << 31 | 5;
        p.set_cut(0);
        assert_eq!((p.cut_bytes(), p.wire_len(), p.mark), (0, 3, 1 << 31 | 5));
        p.set_cut(1400);
        assert_eq!((p.cut_bytes(), p.wire_len(), p.frame_len()), (1400, 1403, 3));
        assert_eq!(p.mark >> 28, 1 << 3, "marks of others stay");
        p.set_cut(usize::MAX);
        assert_eq!(p.cut_bytes(), (1 << 20) - 1);
        p.free(&mut pool);
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
        assert!(!p.push_front(usize::MAX) && !p.push_front(1));
        assert!(!p.pull_front(1000));
        assert_eq!(p.frame_len(), headroom + 3);
        let tailroom = CELL_BYTES - LINK_BYTES - p.frame_len();
        assert!(!p.push_back(tailroom + 1) && !p.push_back(usize::MAX));
        assert!(p.push_back(tailroom) && p.push_back(0) && !p.push_back(1));
        assert_eq!((p.frame_len(), p.data().len()), (CELL_BYTES - LINK_BYTES, p.frame_len()));
        p.free(&mut pool);
        let mut none = Packet::empty();
        assert!(none.data().is_empty() && !none.push_front(0) && !none.pull_front(1));
        assert!(!none.push_back(0));
    }
}
