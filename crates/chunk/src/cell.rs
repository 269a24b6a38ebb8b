//! The huge packet buffer: one region cut into cells (PacketShader §4.2).
//!
//! ```text
//!  Region  ├─ 2,048 ─┼─ 2,048 ─┼─ …            (an AF_XDP UMEM has just this form)
//!  Cell    │ 16 link │ headroom up to 192 │ frame … │
//! ```
//!
//! Cells are never allocated or freed while packets flow: a [`Pool`] hands them out and takes them
//! back. A [`Cell`] is a token: only its holder may access the cell's bytes.
//!
//! A region stays mapped for the life of the process. That makes a token valid wherever it is, and
//! costs nothing: a program has one.

use std::io;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of a cell.
pub const CELL_BYTES: usize = 2048;

/// Bytes before the frame in a cell that is filled by copying: room for the link of a chain and for
/// headers that a stage puts in front. (AF_XDP puts a frame at 256.)
pub const HEADROOM_BYTES: usize = 192;

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// Places, a line apart, at which frames begin: as many as leave room for 1,536 bytes. Sixteen for short
/// frames measured no better.
const PLACES: usize = 5;

/// Whether to ask for huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum HugePages {
    /// Transparent huge pages by `madvise`: as good as reserved ones where the kernel grants them.
    #[default]
    Advise,
    /// Ordinary pages.
    Off,
}

/// What the start of a region is a multiple of.
const ALIGN: usize = 2 << 20;

/// `bytes` bytes of zeros for the life of the process.
#[cfg(not(miri))]
fn map(bytes: usize, huge: HugePages) -> io::Result<NonNull<u8>> {
    // SAFETY: an anonymous mapping at an address of the kernel's choice aliases nothing.
    let map = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes + ALIGN,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if map == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let start = (map as usize).next_multiple_of(ALIGN);
    if huge == HugePages::Advise {
        // SAFETY: the range lies within the mapping just made; advice changes no contents.
        // Its refusal is not an error: the pages are ordinary then.
        unsafe { libc::madvise(start as *mut libc::c_void, bytes, libc::MADV_HUGEPAGE) };
    }
    Ok(NonNull::new(start as *mut u8).ok_or(io::ErrorKind::OutOfMemory)?)
}

/// The same under Miri, which has no such mappings.
#[cfg(miri)]
fn map(bytes: usize, _: HugePages) -> io::Result<NonNull<u8>> {
    let layout = std::alloc::Layout::from_size_align(bytes, ALIGN).map_err(io::Error::other)?;
    // SAFETY: a region has cells, so the layout's size is not zero.
    let start = unsafe { std::alloc::alloc_zeroed(layout) };
    Ok(NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?)
}

/// Memory of all cells.
#[derive(Debug)]
pub struct Region {
    base: NonNull<u8>,
    cells: u32,
}

// SAFETY: `base` is a mapping that lives as long as the process; its bytes are reached only through
// `Cell` tokens, each held by one owner.
unsafe impl Send for Region {}
// SAFETY: as above; the methods on `&Region` only compute addresses.
unsafe impl Sync for Region {}

impl Region {
    /// Maps a region of `cells` cells, 2 MB aligned, and the depot that holds all of them.
    ///
    /// # Errors
    /// The error of `mmap`, or `InvalidInput` for no cells at all.
    pub fn new(cells: u32, huge: HugePages) -> io::Result<(&'static Region, Arc<Depot>)> {
        if cells == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a region needs cells"));
        }
        let base = map(cells as usize * CELL_BYTES, huge)?;
        let region: &'static Region = Box::leak(Box::new(Region { base, cells }));
        let free = (0..cells).rev().map(|i| region.token(i)).collect();
        Ok((region, Arc::new(Depot { region, free: Mutex::new(free) })))
    }

    /// The token of cell `index`. Private: each index is turned into a token once, in `new`, and
    /// again only after `lend` has swallowed it.
    fn token(&self, index: u32) -> Cell {
        assert!(index < self.cells);
        // SAFETY: the index is in range, so the address lies within the mapping.
        Cell(unsafe { self.base.add(index as usize * CELL_BYTES) })
    }

    /// Number of cells.
    pub fn cells(&self) -> u32 {
        self.cells
    }

    /// Address of the first cell, 2 MB aligned, for registering the region (UMEM, device).
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Bytes of the region.
    pub fn bytes(&self) -> usize {
        self.cells as usize * CELL_BYTES
    }

    /// Offset of `cell` in the region, if it is one of this region.
    pub fn offset_of(&self, cell: &Cell) -> Option<u64> {
        let offset = (cell.0.as_ptr() as usize).checked_sub(self.base.as_ptr() as usize)?;
        (offset < self.bytes()).then_some(offset as u64)
    }

    /// Hands `cell` to an interface that uses offsets (the kernel's rings); the token is gone until
    /// [`Region::take_back`]. `None` gives nothing up: the cell is of another region.
    pub fn lend(&self, cell: Cell) -> Result<u64, Cell> {
        self.offset_of(&cell).ok_or(cell)
    }

    /// The token of the cell that offset `offset` lies in.
    ///
    /// # Safety
    /// The cell was given away by [`Region::lend`] and has not been taken back since; the borrower
    /// no longer touches it.
    pub unsafe fn take_back(&self, offset: u64) -> Cell {
        let index = offset as usize / CELL_BYTES;
        debug_assert!(index < self.cells as usize);
        self.token(index as u32)
    }
}

/// Sole right to the bytes of one cell.
#[derive(Debug)]
#[repr(transparent)]
pub struct Cell(NonNull<u8>);

// SAFETY: a token is the only way to its bytes, so it may move to another thread like a `Box`.
unsafe impl Send for Cell {}
// SAFETY: `&Cell` gives only shared reads.
unsafe impl Sync for Cell {}

/// What is in the first bytes of a cell whose frame goes on in another one.
#[repr(C)]
pub(crate) struct Link {
    next: Option<Cell>,
    off: u16,
    len: u16,
}

const _: () = assert!(size_of::<Link>() == 16 && align_of::<Link>() == 8);

impl Cell {
    /// All bytes of the cell.
    #[inline]
    pub fn bytes(&self) -> &[u8; CELL_BYTES] {
        // SAFETY: the token has the sole right to these mapped, initialised (zero-filled) bytes.
        unsafe { self.0.cast().as_ref() }
    }

    /// All bytes of the cell, to write.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8; CELL_BYTES] {
        // SAFETY: as above, and `&mut self` excludes other borrows.
        unsafe { self.0.cast().as_mut() }
    }

    /// Where a frame of at most `CELL_BYTES - HEADROOM_BYTES` bytes that is copied into this cell begins:
    /// behind the headroom and,
    /// where the frame leaves room, up to [`PLACES`] cache lines further on.
    ///
    /// Cells lie 2,048 bytes apart. If every frame began at the same offset, the first lines of all
    /// frames would share two of the 64 sets of a first-level cache, and a burst would push itself out
    /// of it (DPDK's memory pools spread their objects for the like reason).
    #[inline]
    pub(crate) fn frame_offset(&self, len: usize) -> usize {
        let spare = CELL_BYTES - HEADROOM_BYTES - len;
        let number = self.0.as_ptr() as usize / CELL_BYTES;
        HEADROOM_BYTES + if spare < PLACES * LINE_BYTES { 0 } else { number % PLACES * LINE_BYTES }
    }

    /// Brings the cache line at `off` near; a hint without other effect.
    #[inline(always)]
    pub fn prefetch(&self, off: usize) {
        debug_assert!(off < CELL_BYTES);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: prefetching reads nothing and faults never.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(self.0.as_ptr().wrapping_add(off).cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = off;
    }

    /// Writes the link to the next cell of a chain, `len` bytes from `off` there.
    pub(crate) fn link(&mut self, next: Cell, off: u16, len: u16) {
        // SAFETY: a cell is 2,048-byte aligned and longer than a link; we own its bytes. The old
        // contents are plain bytes, so nothing is dropped.
        unsafe { self.0.cast::<Link>().write(Link { next: Some(next), off, len }) }
    }

    /// The next cell of a chain with its range.
    ///
    /// # Safety
    /// [`Cell::link`] was called on this cell, its first 16 bytes have not been written since, and
    /// [`Cell::unlink`] was not called.
    pub(crate) unsafe fn linked(&self) -> (&Cell, u16, u16) {
        // SAFETY: by the contract a valid `Link` lies here.
        let link = unsafe { self.0.cast::<Link>().as_ref() };
        (link.next.as_ref().expect("a linked cell"), link.off, link.len)
    }

    /// As [`Cell::linked`], to write; the range may be changed too, to one that lies in the cell behind
    /// its link.
    ///
    /// # Safety
    /// As for [`Cell::linked`].
    pub(crate) unsafe fn linked_mut(&mut self) -> (&mut Cell, &mut u16, &mut u16) {
        // SAFETY: by the contract a valid `Link` lies here, and `&mut self` excludes other borrows of
        // it.
        let link = unsafe { self.0.cast::<Link>().as_mut() };
        (link.next.as_mut().expect("a linked cell"), &mut link.off, &mut link.len)
    }

    /// Takes the next cell of a chain out of its link.
    ///
    /// # Safety
    /// As for [`Cell::linked`].
    pub(crate) unsafe fn unlink(&mut self) -> (Cell, u16, u16) {
        // SAFETY: by the contract a valid `Link` lies here; it counts as moved out from now on.
        let link = unsafe { self.0.cast::<Link>().read() };
        (link.next.expect("a linked cell"), link.off, link.len)
    }
}

/// Cells that no pool holds, shared by all pools of a region.
#[derive(Debug)]
pub struct Depot {
    region: &'static Region,
    free: Mutex<Vec<Cell>>,
}

impl Depot {
    /// The region whose cells these are.
    pub fn region(&self) -> &'static Region {
        self.region
    }

    /// Cells lying in the depot now (those in pools, queues and packets are not counted).
    pub fn available(&self) -> usize {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// One thread's stock of free cells. It trades with the depot some hundred at a time, so that a
/// thread that only sends and one that only receives keep each other supplied.
#[derive(Debug)]
pub struct Pool {
    depot: Arc<Depot>,
    free: Vec<Cell>,
    batch: usize,
}

impl Pool {
    /// A pool over `depot` that holds at most `2 * batch` cells.
    pub fn new(depot: Arc<Depot>, batch: usize) -> Self {
        let batch = batch.max(1);
        Self { depot, free: Vec::with_capacity(2 * batch), batch }
    }

    /// The region of its cells.
    pub fn region(&self) -> &'static Region {
        self.depot.region
    }

    /// The depot behind it, to make a pool for another thread.
    pub fn depot(&self) -> &Arc<Depot> {
        &self.depot
    }

    /// A free cell; its contents are whatever was there. `None` when all are in use.
    #[inline]
    pub fn get(&mut self) -> Option<Cell> {
        if let Some(cell) = self.free.pop() {
            return Some(cell);
        }
        self.refill();
        self.free.pop()
    }

    /// Takes `cell` back.
    #[inline]
    pub fn put(&mut self, cell: Cell) {
        if self.free.len() == self.free.capacity() {
            self.spill();
        }
        self.free.push(cell);
    }

    #[cold]
    fn refill(&mut self) {
        let mut depot = self.depot.free.lock().unwrap_or_else(PoisonError::into_inner);
        let keep = depot.len().saturating_sub(self.batch);
        self.free.extend(depot.drain(keep..));
    }

    #[cold]
    fn spill(&mut self) {
        let mut depot = self.depot.free.lock().unwrap_or_else(PoisonError::into_inner);
        let keep = self.free.len() - self.batch.min(self.free.len());
        depot.extend(self.free.drain(keep..));
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut depot = self.depot.free.lock().unwrap_or_else(PoisonError::into_inner);
        depot.append(&mut self.free);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_trade_through_the_depot_and_lose_nothing() {
        let (region, depot) = Region::new(100, HugePages::Off).unwrap();
        let mut receiver = Pool::new(depot.clone(), 8);
        let mut sender = Pool::new(depot.clone(), 8);
        for _ in 0..1000 {
            let mut cell = receiver.get().expect("the sender gives back what it gets");
            cell.bytes_mut()[0] = 1;
            sender.put(cell);
        }
        let all: Vec<_> = std::iter::from_fn(|| receiver.get()).collect();
        assert!(all.len() >= 100 - 16, "the sender keeps at most two batches");
        drop((receiver, sender));
        assert_eq!(depot.available() + all.len(), 100);
        let mut offsets: Vec<_> = all.iter().map(|c| region.offset_of(c).unwrap()).collect();
        offsets.sort_unstable();
        offsets.dedup();
        assert_eq!(offsets.len(), all.len(), "no cell is handed out twice");
    }

    #[test]
    fn an_empty_region_is_refused() {
        assert!(Region::new(0, HugePages::Off).is_err());
    }

    #[test]
    fn a_lent_cell_comes_back_as_itself() {
        let (region, depot) = Region::new(4, HugePages::Off).unwrap();
        let (other, _) = Region::new(4, HugePages::Off).unwrap();
        let mut pool = Pool::new(depot, 1);
        let mut cell = pool.get().unwrap();
        cell.bytes_mut()[5] = 77;
        let cell = other.lend(cell).expect_err("another region's cell is not taken");
        let offset = region.lend(cell).unwrap();
        // SAFETY: lent in the line above, taken back once.
        let cell = unsafe { region.take_back(offset + 256) };
        assert_eq!(cell.bytes()[5], 77);
    }
}
