//! Jobs: rows of columns in one block of memory that a device can copy whole.
//!
//! ```text
//!  Arena  │ header │ verdict[capacity] │ context[capacity] │ column 2 │ …      each at a multiple of 64
//!         └ count, capacity, table version, offset of each column
//! ```
//!
//! Workers write straight into a master's open arena, so that gathering copies nothing (PacketShader
//! §5.4 "gather/scatter"): [`Arena::reserve`] gives out ranges of rows, each to be written by its
//! holder alone. The master closes the arena, waits until it holds every range that was given out,
//! and has the whole block to itself; when the last range is gone, it opens the arena again.
//!
//! Threads: `reserve` is lock-free and may be called by any thread; `close` and `reopen` belong to
//! one owner. The states are checked in every order under loom.

use std::cell::UnsafeCell;
use std::marker::PhantomData;

#[cfg(loom)]
use loom::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};
#[cfg(not(loom))]
use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use crate::columns::{ColumnDesc, Element};

/// The most columns that a declaration may have.
pub const JOB_COLUMNS_MAX: usize = 24;

/// Columns that come first in every declaration.
pub(crate) const COMMON_COLUMNS: usize = 2;

/// What stands at the start of every arena, in the machine's byte order.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct JobHeader {
    /// Rows in use.
    pub count: u32,
    /// Rows there is room for.
    pub capacity: u32,
    /// Low and high half of the table version that the job is shaded with.
    pub version: [u32; 2],
    /// Columns in use.
    pub columns: u32,
    /// Byte offset of each column from the start of the arena.
    pub offsets: [u32; JOB_COLUMNS_MAX],
    /// First row of the launch: it covers rows `first .. first + count`.
    pub first: u32,
    /// Zero.
    pub reserved: [u32; 2],
}

const _: () = assert!(size_of::<JobHeader>() == 128);

impl JobHeader {
    /// Its bytes, as they stand at the start of an arena.
    pub fn to_bytes(&self) -> [u8; 128] {
        let mut bytes = [0; 128];
        let words = [self.count, self.capacity, self.version[0], self.version[1], self.columns]
            .into_iter()
            .chain(self.offsets)
            .chain([self.first])
            .chain(self.reserved);
        for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// Index, in 32-bit words, of the first column's offset.
    pub const OFFSETS_WORD: usize = 5;
}

/// Where the columns of a declaration lie in an arena of some capacity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    columns: &'static [ColumnDesc],
    /// The declarations that `columns` are made of; the second one is empty where there is one alone.
    declared: [&'static [ColumnDesc]; 2],
    capacity: u32,
    offsets: [u32; JOB_COLUMNS_MAX],
    bytes: usize,
}

impl Layout {
    /// The layout of `columns` for `capacity` rows.
    ///
    /// # Panics
    /// If there are more than [`JOB_COLUMNS_MAX`] columns or the arena would pass 4 GiB.
    pub fn new(columns: &'static [ColumnDesc], capacity: usize) -> Self {
        assert!(columns.len() <= JOB_COLUMNS_MAX && capacity < CLOSED as usize);
        let mut offsets = [0; JOB_COLUMNS_MAX];
        let mut bytes = size_of::<JobHeader>();
        for (offset, column) in offsets.iter_mut().zip(columns) {
            *offset = u32::try_from(bytes).expect("an arena is below 4 GiB");
            bytes += (column.width * capacity).next_multiple_of(64);
        }
        Self { columns, declared: [columns, &[]], capacity: capacity as u32, offsets, bytes }
    }

    /// The layout of a pipeline's columns and, behind them, those of a stage that stands in several pipelines:
    /// `columns` is what [`joined`](crate::joined) made of both declarations. Rows of it are rows of either.
    ///
    /// # Panics
    /// As [`Layout::new`], or if `columns` are others.
    pub fn of_both(
        columns: &'static [ColumnDesc],
        declared: [&'static [ColumnDesc]; 2],
        capacity: usize,
    ) -> Self {
        let [first, second] = declared;
        let (one, other) = columns.split_at(first.len());
        assert!(one == first && other == &second[COMMON_COLUMNS..], "others were joined");
        Self { declared, ..Self::new(columns, capacity) }
    }

    /// The same columns for another number of rows.
    ///
    /// # Panics
    /// As [`Layout::new`].
    pub fn with_capacity(&self, capacity: usize) -> Self {
        Self { declared: self.declared, ..Self::new(self.columns, capacity) }
    }

    /// Columns that lie between the common ones and those that a declaration adds; `None` for a declaration of which
    /// the columns are not.
    #[inline]
    fn skipped(&self, columns: &'static [ColumnDesc]) -> Option<usize> {
        let [first, second] = self.declared;
        let behind = || first.len() - COMMON_COLUMNS;
        if std::ptr::eq(first, columns) || std::ptr::eq(self.columns, columns) {
            return Some(0);
        }
        if std::ptr::eq(second, columns) {
            return Some(behind());
        }
        // A declaration may have several addresses.
        if first == columns || self.columns == columns {
            return Some(0);
        }
        (second == columns).then(behind)
    }

    /// The columns.
    pub fn columns(&self) -> &'static [ColumnDesc] {
        self.columns
    }

    /// Rows there is room for.
    pub fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// Bytes of an arena, header included.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Byte offset of a column from the start of an arena.
    ///
    /// # Panics
    /// If there is no such column.
    pub fn offset(&self, column: usize) -> usize {
        assert!(column < self.columns.len());
        self.offsets[column] as usize
    }

    /// The header of a launch over rows `first .. first + count`, with this version of the tables.
    pub fn header(&self, first: u32, count: u32, version: u64) -> JobHeader {
        JobHeader {
            count,
            capacity: self.capacity,
            version: [version as u32, (version >> 32) as u32],
            columns: self.columns.len() as u32,
            offsets: self.offsets,
            first,
            reserved: [0; 2],
        }
    }
}

/// The bit of `reserved` that says closed.
const CLOSED: u32 = 1 << 31;

#[repr(C, align(64))]
struct Line(UnsafeCell<[u8; 64]>);

struct Shared {
    layout: Layout,
    memory: Box<[Line]>,
    /// Rows given out so far, and `CLOSED`.
    reserved: AtomicU32,
    /// Rows given out and not yet given back.
    outstanding: AtomicU32,
}

// SAFETY: `memory` is reached only through `Rows`, whose ranges never overlap while alive, and
// through the header, which is written under `&mut Arena`-like ownership in `close`.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    fn base(&self) -> *mut u8 {
        // `UnsafeCell` makes writing through this pointer allowed; `memory` covers `layout.bytes`.
        self.memory.as_ptr() as *mut u8
    }
}

/// A block of rows. Cloning makes another handle to the same block, for another worker.
#[derive(Clone)]
pub struct Arena {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Arena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Arena({} rows)", self.shared.layout.capacity)
    }
}

impl Arena {
    /// An open arena, its bytes zero.
    pub fn new(layout: Layout) -> Self {
        let lines = layout.bytes.div_ceil(64);
        let memory: Box<[Line]> = (0..lines).map(|_| Line(UnsafeCell::new([0; 64]))).collect();
        let header = layout.header(0, 0, 0);
        let shared =
            Shared { layout, memory, reserved: AtomicU32::new(0), outstanding: AtomicU32::new(0) };
        // SAFETY: the memory is at least a header long, 64-byte aligned and not shared yet.
        unsafe { shared.base().cast::<JobHeader>().write(header) };
        Self { shared: Arc::new(shared) }
    }

    /// Its layout.
    pub fn layout(&self) -> &Layout {
        &self.shared.layout
    }

    /// `n` rows for the caller alone; `None` if the arena is closed or has fewer left.
    pub fn reserve(&self, n: usize) -> Option<Rows> {
        let n = u32::try_from(n).ok()?;
        // Counted before the range is taken: whoever closes the arena and sees the range must see
        // it as outstanding.
        self.shared.outstanding.fetch_add(n, Ordering::AcqRel);
        let taken = self.shared.reserved.fetch_update(Ordering::AcqRel, Ordering::Acquire, |r| {
            (r & CLOSED == 0 && r + n <= self.shared.layout.capacity).then(|| r + n)
        });
        match taken {
            Ok(start) => Some(Rows {
                shared: self.shared.clone(),
                start,
                reserved: n,
                len: n,
                lent: PhantomData,
            }),
            Err(_) => {
                self.shared.outstanding.fetch_sub(n, Ordering::AcqRel);
                None
            }
        }
    }

    /// Ends reservation; returns how many rows were given out since the arena was opened.
    pub fn close(&self) -> usize {
        (self.shared.reserved.fetch_or(CLOSED, Ordering::AcqRel) & !CLOSED) as usize
    }

    /// Rows given out so far.
    pub fn reserved(&self) -> usize {
        (self.shared.reserved.load(Ordering::Acquire) & !CLOSED) as usize
    }

    /// Rows given out and not given back yet.
    pub fn outstanding(&self) -> usize {
        self.shared.outstanding.load(Ordering::Acquire) as usize
    }

    /// Opens a closed arena again, if every range was given back. Only its owner may call this.
    pub fn reopen(&self) -> bool {
        let idle = self.shared.reserved.load(Ordering::Acquire) & CLOSED != 0
            && self.shared.outstanding.load(Ordering::Acquire) == 0;
        if idle {
            self.shared.reserved.store(0, Ordering::Release);
        }
        idle
    }

    /// Where its bytes lie, for registering them with a device. Whoever copies from there reads only
    /// rows that it holds.
    pub fn memory(&self) -> *mut [u8] {
        std::ptr::slice_from_raw_parts_mut(self.shared.base(), self.shared.layout.bytes)
    }

    /// Whether `rows` lie in this arena.
    pub fn holds(&self, rows: &Rows) -> bool {
        Arc::ptr_eq(&self.shared, &rows.shared)
    }
}

/// Sole right to a range of an arena's rows, across all columns. Given back when dropped.
pub struct Rows {
    shared: Arc<Shared>,
    start: u32,
    reserved: u32,
    len: u32,
    lent: PhantomData<UnsafeCell<u8>>,
}

// SAFETY: the range is its holder's alone, like a `Box<[u8]>`; nothing in it is tied to a thread.
unsafe impl Send for Rows {}

impl std::fmt::Debug for Rows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Rows({}..{})", self.start, self.start + self.len)
    }
}

impl Rows {
    /// Rows in use.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether no row is in use.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Rows that were reserved.
    pub fn reserved(&self) -> usize {
        self.reserved as usize
    }

    /// Uses the first `n` of the reserved rows.
    ///
    /// # Panics
    /// If fewer were reserved.
    pub fn set_len(&mut self, n: usize) {
        assert!(n <= self.reserved as usize);
        self.len = n as u32;
    }

    /// First row's number in the arena.
    pub fn start(&self) -> usize {
        self.start as usize
    }

    /// The layout they follow.
    pub fn layout(&self) -> &Layout {
        &self.shared.layout
    }

    /// The bytes of one column of the rows in use.
    ///
    /// # Panics
    /// If there is no such column.
    pub fn column_bytes(&self, column: usize) -> &[u8] {
        let (at, len) = self.place(column);
        // SAFETY: the range lies within the arena and is this holder's alone (see `Split::column`);
        // `&self` excludes its writers.
        unsafe { std::slice::from_raw_parts(self.shared.base().add(at), len) }
    }

    /// As [`Rows::column_bytes`], to write. Every bit pattern is a value ([`Element`]).
    ///
    /// # Panics
    /// If there is no such column.
    pub fn column_bytes_mut(&mut self, column: usize) -> &mut [u8] {
        let (at, len) = self.place(column);
        // SAFETY: as above, and `&mut self` excludes all other borrows.
        unsafe { std::slice::from_raw_parts_mut(self.shared.base().add(at), len) }
    }

    /// Byte offset in the arena, and bytes, of one column of the rows in use.
    fn place(&self, column: usize) -> (usize, usize) {
        let width = self.shared.layout.columns[column].width;
        (self.shared.layout.offset(column) + self.start as usize * width, self.len as usize * width)
    }

    /// The verdict column.
    #[inline]
    pub fn verdicts(&mut self) -> &mut [u32] {
        self.split(self.shared.layout.columns).column::<u32>()
    }

    /// Copies every column of `from`, and its length.
    ///
    /// # Panics
    /// If `from` is laid out differently or longer than what was reserved here.
    pub fn copy_from(&mut self, from: &mut Rows) {
        self.set_len(from.len());
        let layout = self.shared.layout.columns;
        assert_eq!(layout, from.shared.layout.columns);
        for i in 0..layout.len() {
            self.column_bytes_mut(i).copy_from_slice(from.column_bytes(i));
        }
    }

    /// Copies row `row` of `from` into the first row, which becomes the only one in use.
    ///
    /// # Panics
    /// If `from` is laid out differently or has no such row, or nothing was reserved here.
    pub fn copy_row_from(&mut self, from: &Rows, row: usize) {
        self.set_len(1);
        let layout = self.shared.layout.columns;
        assert_eq!(layout, from.shared.layout.columns);
        for (i, column) in layout.iter().enumerate() {
            let value = &from.column_bytes(i)[row * column.width..][..column.width];
            self.column_bytes_mut(i).copy_from_slice(value);
        }
    }

    /// Starts the walk over the columns of `columns`, for [`columns!`](crate::columns!).
    ///
    /// # Panics
    /// If the rows were not laid out by this declaration, or by it and another one.
    #[doc(hidden)]
    #[inline]
    pub fn split(&mut self, columns: &'static [ColumnDesc]) -> Split<'_> {
        let skipped = self.shared.layout.skipped(columns);
        let skipped = skipped.expect("the rows were laid out by this declaration of columns");
        Split { rows: self, next: 0, skipped }
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        self.shared.outstanding.fetch_sub(self.reserved, Ordering::AcqRel);
    }
}

/// Hands out the columns of some rows, each once, in order.
#[doc(hidden)]
#[derive(Debug)]
pub struct Split<'a> {
    rows: &'a mut Rows,
    next: usize,
    /// Columns of another declaration, behind the common ones.
    skipped: usize,
}

impl<'a> Split<'a> {
    /// The next column.
    ///
    /// # Panics
    /// If `T` has not the width that was declared, or there is no column left.
    #[inline]
    pub fn column<T: Element>(&mut self) -> &'a mut [T] {
        let layout = &self.rows.shared.layout;
        assert_eq!(layout.columns[self.next].width, size_of::<T>());
        let offset = layout.offsets[self.next] as usize + self.rows.start as usize * size_of::<T>();
        self.next += 1;
        if self.next == COMMON_COLUMNS {
            self.next += self.skipped;
        }
        // SAFETY: rows `start..start + len` of this column lie within the arena (reserve checked
        // the capacity, set_len the reservation); `offset` is a multiple of T's alignment, because
        // columns start at multiples of 64; any bytes are a T (`Element`). The slice aliases
        // nothing: other `Rows` hold other rows, other columns other bytes, `next` only goes up,
        // and the borrow of `rows` for 'a keeps a second `Split` away. `Shared`
        // outlives 'a, because `rows` holds it.
        unsafe {
            let first = self.rows.shared.base().add(offset).cast::<T>();
            std::slice::from_raw_parts_mut(first, self.rows.len as usize)
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const ONE: &[ColumnDesc] = &[ColumnDesc { name: "verdict", width: 4, dialect: "uint" }];

    #[test]
    fn a_closed_arena_opens_when_the_last_range_is_gone() {
        let arena = Arena::new(Layout::new(ONE, 10));
        let a = arena.reserve(6).unwrap();
        assert!(arena.reserve(5).is_none(), "only four are left");
        let b = arena.reserve(4).unwrap();
        assert!(!arena.reopen(), "it is not closed");
        assert_eq!(arena.close(), 10);
        assert!(arena.reserve(0).is_none());
        drop(a);
        assert!(!arena.reopen(), "one range is still out");
        drop(b);
        assert!(arena.reopen());
        assert_eq!(arena.reserve(10).unwrap().start(), 0);
    }

    #[test]
    fn the_header_says_where_the_columns_are() {
        let arena = Arena::new(Layout::new(ONE, 10));
        assert_eq!(arena.layout().bytes(), 128 + 64);
        let mut rows = arena.reserve(10).unwrap();
        rows.verdicts().fill(u32::MAX);
        // SAFETY: the header is only written when the arena is made.
        let header = unsafe { arena.shared.base().cast::<JobHeader>().read() };
        assert_eq!((header.capacity, header.columns, header.offsets[0]), (10, 1, 128));
        assert_eq!(rows.column_bytes(0), [0xff; 40]);
        let launch = arena.layout().header(3, 4, 5 << 32 | 6);
        let word = |i: usize| {
            u32::from_ne_bytes(launch.to_bytes()[4 * i..][..4].try_into().expect("four bytes"))
        };
        assert_eq!([0, 1, 2, 3, 4, 5, 29].map(word), [4, 10, 6, 5, 1, 128, 3]);
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;

    const ONE: &[ColumnDesc] = &[ColumnDesc { name: "verdict", width: 4, dialect: "uint" }];

    /// Two workers reserve while the master closes: what the master counted is what was given out,
    /// ranges never overlap, and the arena opens only when all are back.
    #[test]
    fn close_counts_every_range() {
        loom::model(|| {
            let arena = Arena::new(Layout::new(ONE, 3));
            let workers: Vec<_> = (0..2)
                .map(|_| {
                    let arena = arena.clone();
                    loom::thread::spawn(move || {
                        arena.reserve(2).map(|mut rows| {
                            rows.verdicts().fill(1);
                            rows.start()
                        })
                    })
                })
                .collect();
            let closed = arena.close();
            let early = arena.reopen();
            let starts: Vec<_> = workers.into_iter().filter_map(|w| w.join().unwrap()).collect();
            if !early {
                assert_eq!(closed, 2 * starts.len());
                assert!(starts.len() <= 1, "three rows hold one range of two");
                assert!(arena.reopen());
            }
        });
    }
}
