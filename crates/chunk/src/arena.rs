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
use std::collections::{HashMap, HashSet};
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

use crate::columns::{COMMON, ColumnDesc, ColumnId, Declaration, Element};

/// What is at the start of every arena, in the machine's byte order. Behind it come the byte offsets of all columns
/// from the start of the arena, a word each, and zeros up to a multiple of 64 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobHeader {
    /// Rows in use.
    pub count: u32,
    /// Rows there is room for.
    pub capacity: u32,
    /// Low and high half of the table version that the job is shaded with.
    pub version: [u32; 2],
    /// Columns.
    pub columns: u32,
    /// First row of the launch: it covers rows `first .. first + count`.
    pub first: u32,
    /// Byte offset of the list of a launch's areas, or 0; for a device.
    pub areas: u32,
    /// Zero.
    pub reserved: u32,
}

const _: () = assert!(size_of::<JobHeader>() == 4 * JobHeader::OFFSETS_WORD);

impl JobHeader {
    /// Index, in 32-bit words, of the first column's offset.
    pub const OFFSETS_WORD: usize = 8;

    /// Bytes of a header with the offsets of so many columns.
    pub const fn bytes_with(columns: usize) -> usize {
        (size_of::<Self>() + 4 * columns).next_multiple_of(64)
    }

    /// Writes what comes before the offsets to the start of an arena's bytes.
    ///
    /// # Panics
    /// If these are fewer.
    pub fn write(&self, bytes: &mut [u8]) {
        let [low, high] = self.version;
        let words = [self.count, self.capacity, low, high, self.columns, self.first, self.areas];
        let words = words.into_iter().chain([self.reserved]);
        for (place, word) in bytes[..size_of::<Self>()].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
    }

    /// Index, in 32-bit words, of the offset of the list of areas.
    pub const AREAS_WORD: usize = 6;

    /// Writes the offset of the list of areas to the header at the start of `bytes`.
    ///
    /// # Panics
    /// If these are fewer.
    pub fn write_areas(bytes: &mut [u8], offset: u32) {
        bytes[4 * Self::AREAS_WORD..][..4].copy_from_slice(&offset.to_ne_bytes());
    }

    /// Writes the offset of a column to the header at the start of `bytes`.
    ///
    /// # Panics
    /// If these are fewer.
    pub fn write_offset(bytes: &mut [u8], column: usize, offset: u32) {
        let at = 4 * (Self::OFFSETS_WORD + column);
        bytes[at..at + 4].copy_from_slice(&offset.to_ne_bytes());
    }
}

/// Why declarations of columns make no layout. Declarations are numbered in the order in which they were given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// Two declarations give one name to columns of different types; or one gives another type to `verdict` or
    /// `context`, which is then the `first`, without a number.
    Clash {
        /// The first column, and the number of its declaration.
        first: (&'static ColumnDesc, Option<usize>),
        /// The other one.
        second: (&'static ColumnDesc, usize),
    },
    /// A declaration has two columns of one name.
    Twice {
        /// The name.
        name: &'static str,
        /// The number of the declaration.
        declaration: usize,
    },
    /// An arena of so many rows would pass 4 GiB.
    TooLarge {
        /// Rows.
        capacity: usize,
        /// Columns.
        columns: usize,
    },
}

impl std::fmt::Display for LayoutError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Clash { first: (one, _), second: (other, _) } => {
                write!(f, "column `{}` is declared as {one} and as {other}", one.name)
            }
            Self::Twice { name, .. } => write!(f, "a declaration names column `{name}` twice"),
            Self::TooLarge { capacity, columns } => {
                write!(f, "{capacity} rows of {columns} columns take more than 4 GiB")
            }
        }
    }
}

impl std::error::Error for LayoutError {}

/// Where the columns of some declarations lie in an arena of some capacity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    columns: SharedColumns,
    capacity: u32,
    /// Where all columns lie.
    places: Box<[Place]>,
    /// By declaration: where its own columns lie.
    declared: Box<[Declared]>,
    bytes: usize,
}

/// All columns, each once; shared by layouts that differ in their capacity alone.
type SharedColumns = std::sync::Arc<[ColumnDesc]>;

/// Where the columns of one declaration lie, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Declared {
    columns: Declaration,
    places: Box<[Place]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    offset: u32,
    width: u32,
}

impl Layout {
    /// The layout of one declaration for `capacity` rows.
    ///
    /// # Panics
    /// Where [`Layout::join`] gives an error.
    pub fn new(columns: Declaration, capacity: usize) -> Self {
        Self::join(&[columns], capacity).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The layout of any number of declarations for `capacity` rows. Columns of one name are one column. First come
    /// `verdict` and `context`, then all others in the order in which they are first declared. Rows of this layout
    /// are rows of each of the declarations.
    ///
    /// # Errors
    /// Columns of one name but different types; a name twice in one declaration; an arena of more than 4 GiB.
    pub fn join(declared: &[Declaration], capacity: usize) -> Result<Self, LayoutError> {
        let mut all: Vec<(&'static ColumnDesc, Option<usize>)> =
            COMMON.iter().map(|column| (column, None)).collect();
        let mut places: HashMap<&str, usize> =
            COMMON.iter().enumerate().map(|(place, column)| (column.name, place)).collect();
        for (number, columns) in declared.iter().enumerate() {
            let mut own = HashSet::new();
            for column in *columns {
                if !own.insert(column.name) {
                    return Err(LayoutError::Twice { name: column.name, declaration: number });
                }
                let place = *places.entry(column.name).or_insert(all.len());
                match all.get(place) {
                    None => all.push((column, Some(number))),
                    Some(first) if first.0 == column => {}
                    Some(first) => {
                        let (first, second) = (*first, (column, number));
                        return Err(LayoutError::Clash { first, second });
                    }
                }
            }
        }
        let mut known: Vec<Declaration> = Vec::with_capacity(declared.len());
        for columns in declared {
            if !known.iter().any(|other| std::ptr::eq(*other, *columns)) {
                known.push(columns);
            }
        }
        let columns = all.into_iter().map(|(column, _)| *column).collect();
        Self::of_columns(columns, &mut known.into_iter(), capacity)
    }

    /// The layout of these columns for declarations that have no others.
    fn of_columns(
        columns: SharedColumns,
        declared: &mut dyn Iterator<Item = Declaration>,
        capacity: usize,
    ) -> Result<Self, LayoutError> {
        let too_large = LayoutError::TooLarge { capacity, columns: columns.len() };
        let mut by_name = HashMap::with_capacity(columns.len());
        let mut places = Vec::with_capacity(columns.len());
        let mut bytes = JobHeader::bytes_with(columns.len());
        for column in &*columns {
            let fits = |bytes: usize| u32::try_from(bytes).map_err(|_| too_large.clone());
            let place = Place { offset: fits(bytes)?, width: fits(column.width)? };
            by_name.insert(column.name, place);
            places.push(place);
            let column_bytes = column.width.checked_mul(capacity).ok_or(too_large.clone())?;
            fits(column_bytes)?;
            bytes += column_bytes.next_multiple_of(64);
        }
        // The last column too ends below, so that an offset within it is one.
        if u32::try_from(bytes).is_err() || capacity >= CLOSED as usize {
            return Err(too_large);
        }
        let declared = declared.map(|columns| {
            let places = columns.iter().map(|column| by_name[column.name]).collect();
            Declared { columns, places }
        });
        let (declared, places) = (declared.collect(), places.into());
        Ok(Self { columns, capacity: capacity as u32, places, declared, bytes })
    }

    /// The same columns for another number of rows.
    ///
    /// # Panics
    /// If an arena of so many would pass 4 GiB.
    pub fn with_capacity(&self, capacity: usize) -> Self {
        let mut declared = self.declared.iter().map(|declared| declared.columns);
        Self::of_columns(self.columns.clone(), &mut declared, capacity)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// Where the columns of a declaration lie; `None` if it is not one of those of the layout.
    #[inline]
    fn places_of(&self, columns: Declaration) -> Option<&[Place]> {
        let known = self.declared.iter().find(|known| std::ptr::eq(known.columns, columns));
        match known {
            Some(known) => Some(&known.places),
            None => self.places_by_content(columns),
        }
    }

    /// The same for a declaration that is not a static and has several addresses.
    #[cold]
    fn places_by_content(&self, columns: Declaration) -> Option<&[Place]> {
        let known = self.declared.iter().find(|known| known.columns == columns);
        known.map(|known| &*known.places)
    }

    /// The columns.
    pub fn columns(&self) -> &[ColumnDesc] {
        &self.columns
    }

    /// The place of a column among all.
    ///
    /// # Panics
    /// If it is not one of them.
    pub fn column(&self, column: ColumnId) -> usize {
        let place = column.place_in(&self.columns);
        place.unwrap_or_else(|| panic!("no declaration has the column `{}`", column.name))
    }

    /// Rows there is room for.
    pub fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// Bytes of an arena, header included.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of the header; the first column begins behind it.
    pub fn header_bytes(&self) -> usize {
        JobHeader::bytes_with(self.columns.len())
    }

    /// Byte offset of a column from the start of an arena.
    ///
    /// # Panics
    /// If there is no such column.
    pub fn offset(&self, column: usize) -> usize {
        self.places[column].offset as usize
    }

    /// The header of a launch over rows `first .. first + count`, with this version of the tables; without the offsets.
    pub fn header(&self, first: u32, count: u32, version: u64) -> JobHeader {
        JobHeader {
            count,
            capacity: self.capacity,
            version: [version as u32, (version >> 32) as u32],
            columns: self.columns.len() as u32,
            first,
            areas: 0,
            reserved: 0,
        }
    }

    /// Writes the header of a launch, offsets included, to the start of an arena's bytes.
    ///
    /// # Panics
    /// If these are fewer than [`Layout::header_bytes`].
    pub fn write_header(&self, first: u32, count: u32, version: u64, bytes: &mut [u8]) {
        self.header(first, count, version).write(bytes);
        for (column, place) in self.places.iter().enumerate() {
            JobHeader::write_offset(bytes, column, place.offset);
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

// SAFETY: `memory` is reached only through `Rows`, whose ranges never overlap while alive; the header is written
// before the arena is shared.
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
        let mut header = vec![0; layout.header_bytes()];
        layout.write_header(0, 0, 0, &mut header);
        let header = header.as_chunks::<64>().0.iter().copied();
        let memory: Box<[Line]> = header
            .chain(std::iter::repeat([0; 64]))
            .take(lines)
            .map(|line| Line(UnsafeCell::new(line)))
            .collect();
        let shared =
            Shared { layout, memory, reserved: AtomicU32::new(0), outstanding: AtomicU32::new(0) };
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

    /// Where its bytes lie, for registering them with a device. Code that copies from there reads only
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
        let Place { offset, width } = self.shared.layout.places[column];
        let (offset, width) = (offset as usize, width as usize);
        (offset + self.start as usize * width, self.len as usize * width)
    }

    /// The verdict column.
    #[inline]
    pub fn verdicts(&mut self) -> &mut [u32] {
        self.common().0
    }

    /// The verdict column and the context column.
    #[inline]
    pub fn common(&mut self) -> (&mut [u32], &mut [u32]) {
        // These come first, whatever was declared.
        let mut split = Split::new(self, |layout| &layout.places[..COMMON.len()]);
        (split.column::<u32>(), split.column::<u32>())
    }

    /// Sets some columns of the rows in use to zero.
    ///
    /// # Panics
    /// If there is no such column.
    pub fn clear(&mut self, columns: &[usize]) {
        for column in columns {
            self.column_bytes_mut(*column).fill(0);
        }
    }

    /// Copies every column of `from`, and its length.
    ///
    /// # Panics
    /// If `from` is laid out differently or longer than what was reserved here.
    pub fn copy_from(&mut self, from: &mut Rows) {
        self.set_len(from.len());
        let (own, other) = (&self.shared.layout.columns, &from.shared.layout.columns);
        assert!(std::sync::Arc::ptr_eq(own, other) || own == other, "rows of other columns");
        for i in 0..own.len() {
            self.column_bytes_mut(i).copy_from_slice(from.column_bytes(i));
        }
    }

    /// Copies row `row` of `from` into the first row, which becomes the only one in use.
    ///
    /// # Panics
    /// If `from` is laid out differently or has no such row, or nothing was reserved here.
    pub fn copy_row_from(&mut self, from: &Rows, row: usize) {
        self.copy_rows_from(from, row..row + 1);
    }

    /// Copies some rows of `from` into the first rows, which become those in use.
    ///
    /// # Panics
    /// If `from` is laid out differently or has no such rows, or fewer were reserved here.
    pub fn copy_rows_from(&mut self, from: &Rows, rows: std::ops::Range<usize>) {
        self.set_len(rows.len());
        let columns = self.shared.layout.columns.clone();
        assert_eq!(columns, from.shared.layout.columns, "rows of other columns");
        for (i, column) in columns.iter().enumerate() {
            let bytes = rows.start * column.width..rows.end * column.width;
            self.column_bytes_mut(i).copy_from_slice(&from.column_bytes(i)[bytes]);
        }
    }

    /// Moves the rows `rows`, in ascending order, to the first rows of `to`, which become those in use there. The others close up.
    ///
    /// # Panics
    /// If `to` is laid out differently, fewer rows were reserved there, or there are no such rows.
    pub fn move_rows(&mut self, rows: &[u16], to: &mut Rows) {
        let Some(first) = rows.first() else { return to.set_len(0) };
        let first = usize::from(*first);
        assert!(rows.is_sorted_by(|a, b| a < b) && usize::from(rows[rows.len() - 1]) < self.len());
        to.set_len(rows.len());
        let columns = self.shared.layout.columns.clone();
        assert_eq!(columns, to.shared.layout.columns, "rows of other columns");
        for (i, column) in columns.iter().enumerate() {
            let width = column.width;
            let own = &mut self.column_bytes_mut(i)[first * width..];
            let moved = to.column_bytes_mut(i);
            let rows = rows.iter().map(|row| usize::from(*row) - first);
            match width {
                1 => part_with::<1>(own, moved, rows),
                2 => part_with::<2>(own, moved, rows),
                4 => part_with::<4>(own, moved, rows),
                8 => part_with::<8>(own, moved, rows),
                16 => part_with::<16>(own, moved, rows),
                _ => part_with_any(own, moved, rows, width),
            }
        }
        self.set_len(self.len() - rows.len());
    }

    /// Starts the walk over the columns of `columns`, for [`columns!`](crate::columns!).
    ///
    /// # Panics
    /// If this declaration is not one of those by which the rows were laid out.
    #[doc(hidden)]
    #[inline]
    pub fn split(&mut self, columns: Declaration) -> Split<'_> {
        Split::new(self, |layout| {
            let places = layout.places_of(columns);
            places.expect("this declaration is one of those by which the rows were laid out")
        })
    }
}

/// Moves the elements of a column in the places `rows` to `moved`; the others close up. An element has `W` bytes.
fn part_with<const W: usize>(
    own: &mut [u8],
    moved: &mut [u8],
    rows: impl ExactSizeIterator<Item = usize>,
) {
    let (own, moved) = (own.as_chunks_mut::<W>().0, moved.as_chunks_mut::<W>().0);
    let (mut to, mut from) = (0, 0);
    for (row, moved) in rows.zip(moved) {
        while from < row {
            own[to] = own[from];
            (to, from) = (to + 1, from + 1);
        }
        *moved = own[row];
        from = row + 1;
    }
    own.copy_within(from.., to);
}

/// The same of elements of `width` bytes.
fn part_with_any(
    own: &mut [u8],
    moved: &mut [u8],
    rows: impl ExactSizeIterator<Item = usize>,
    width: usize,
) {
    let (mut to, mut from) = (0, 0);
    for (row, moved) in rows.zip(moved.chunks_exact_mut(width)) {
        let at = row * width;
        own.copy_within(from..at, to);
        to += at - from;
        moved.copy_from_slice(&own[at..at + width]);
        from = at + width;
    }
    own.copy_within(from.., to);
}

impl Drop for Rows {
    fn drop(&mut self) {
        self.shared.outstanding.fetch_sub(self.reserved, Ordering::AcqRel);
    }
}

/// Hands out the columns of one declaration over some rows, each once, in order.
#[doc(hidden)]
#[derive(Debug)]
pub struct Split<'a> {
    /// Of columns that were not handed out yet: no two of them are the same (`Layout::join`).
    places: &'a [Place],
    base: *mut u8,
    start: usize,
    len: usize,
    rows: PhantomData<&'a mut Rows>,
}

impl<'a> Split<'a> {
    /// The columns at some places of the rows' own layout, no two of them the same.
    #[inline]
    fn new(rows: &'a mut Rows, places: impl FnOnce(&'a Layout) -> &'a [Place]) -> Self {
        let rows: &'a Rows = rows;
        let (start, len) = (rows.start as usize, rows.len as usize);
        let (places, base) = (places(&rows.shared.layout), rows.shared.base());
        Self { places, base, start, len, rows: PhantomData }
    }

    /// The next column.
    ///
    /// # Panics
    /// If `T` has not the width that was declared, or there is no column left.
    #[inline]
    pub fn column<T: Element>(&mut self) -> &'a mut [T] {
        let (place, rest) = self.places.split_first().expect("the declaration has this column");
        self.places = rest;
        assert_eq!(place.width as usize, size_of::<T>());
        let offset = place.offset as usize + self.start * size_of::<T>();
        // SAFETY: rows `start..start + len` of this column lie within the arena (reserve checked
        // the capacity, set_len the reservation); `offset` is a multiple of T's alignment, because
        // columns start at multiples of 64; any bytes are a T (`Element`). The slice aliases
        // nothing: other `Rows` hold other rows, other columns other bytes, each place is handed out
        // once, and the borrow of `rows` for 'a keeps a second `Split` away. The memory outlives 'a,
        // because the borrowed `Rows` hold it.
        unsafe {
            let first = self.base.add(offset).cast::<T>();
            std::slice::from_raw_parts_mut(first, self.len)
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
        assert_eq!(arena.layout().bytes(), 64 + 2 * 64);
        let mut rows = arena.reserve(10).unwrap();
        rows.verdicts().fill(u32::MAX);
        let layout = arena.layout();
        let words = |bytes: &[u8]| -> Vec<u32> {
            bytes.as_chunks().0.iter().map(|word| u32::from_ne_bytes(*word)).collect()
        };
        // SAFETY: the header is only written when the arena is made.
        let header =
            unsafe { std::slice::from_raw_parts(arena.shared.base(), layout.header_bytes()) };
        assert_eq!(words(header), [0, 10, 0, 0, 2, 0, 0, 0, 64, 128, 0, 0, 0, 0, 0, 0]);
        assert_eq!(rows.column_bytes(0), [0xff; 40]);
        let mut launch = vec![7; layout.header_bytes()];
        layout.write_header(3, 4, 5 << 32 | 6, &mut launch);
        assert_eq!(words(&launch)[..10], [4, 10, 6, 5, 2, 3, 0, 0, 64, 128]);
        JobHeader::write_offset(&mut launch, 1, 9);
        assert_eq!(words(&launch)[8..10], [64, 9]);
    }

    #[test]
    fn what_makes_no_layout_is_named() {
        const NARROW: Declaration = &[ColumnDesc { name: "flags", width: 2, dialect: "ushort" }];
        const WIDE: Declaration = &[ColumnDesc { name: "flags", width: 4, dialect: "uint" }];
        const OTHER: Declaration = &[ColumnDesc { name: "verdict", width: 1, dialect: "uchar" }];
        const TWICE: Declaration = &[WIDE[0], WIDE[0]];
        let error = Layout::join(&[ONE, NARROW, WIDE], 8).unwrap_err();
        let (first, second) = ((&NARROW[0], Some(1)), (&WIDE[0], 2));
        assert_eq!(error, LayoutError::Clash { first, second });
        assert_eq!(
            error.to_string(),
            "column `flags` is declared as ushort (2 bytes) and as uint (4 bytes)"
        );
        let error = Layout::join(&[OTHER], 8).unwrap_err();
        assert_eq!(error, LayoutError::Clash { first: (&ONE[0], None), second: (&OTHER[0], 0) });
        let error = Layout::join(&[ONE, TWICE], 8).unwrap_err();
        assert_eq!(error, LayoutError::Twice { name: "flags", declaration: 1 });
        let error = Layout::join(&[ONE], 1 << 29).unwrap_err();
        assert_eq!(error, LayoutError::TooLarge { capacity: 1 << 29, columns: 2 });
        assert_eq!(error.to_string(), "536870912 rows of 2 columns take more than 4 GiB");
        assert!(Layout::join(&[ONE], usize::MAX).is_err());
    }

    #[test]
    fn rows_without_declarations_have_verdict_and_context() {
        let mut rows = Arena::new(Layout::join(&[], 4).unwrap()).reserve(4).unwrap();
        let (verdict, context) = rows.common();
        verdict.fill(1);
        context.fill(2);
        assert!(rows.verdicts().iter().all(|verdict| *verdict == 1));
        assert_eq!(rows.column_bytes(1), [2u32.to_ne_bytes(); 4].concat());
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
