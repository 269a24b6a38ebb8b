//! How the columns of a job travel, and where they lie on the device.
//!
//! ```text
//!  device │ header │ read only │ read and written │ written, some rows │ written, all rows │
//!         └───────────────── up ─────────────────────────────────────┘
//!                              └─ staged, down ─┘ └────── straight to the rows, down ─────┘
//! ```
//!
//! A column that no kernel reads may come down straight into the rows: whatever a failed copy leaves there,
//! doing the job again writes anew. One that is read and written (the verdict) comes down into the staging
//! block and is copied when the job has ended well, so that its input is never half overwritten.

use chunk::{Arena, JobHeader, Layout, Rows};

use super::{Offload, SegmentProgram};

/// How a column travels.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    /// Read only.
    Up,
    /// Read and written.
    Both,
    /// Written in some rows; the others keep what they have.
    Some,
    /// Written in all rows.
    All,
}

impl Way {
    pub(super) fn is_up(self) -> bool {
        self != Way::All
    }
    pub(super) fn is_down(self) -> bool {
        self != Way::Up
    }
    /// Whether the rows' own bytes may be overwritten before the job has ended.
    pub(super) fn is_straight(self) -> bool {
        matches!(self, Way::Some | Way::All)
    }
}

/// Columns by how they travel, in the order in which they lie on the device.
pub(super) fn order(layout: &Layout, segment: &SegmentProgram) -> Vec<(usize, Way)> {
    let columns = layout.columns().iter().enumerate();
    let mut order: Vec<(usize, Way)> = columns
        .filter_map(|(column, desc)| {
            let payload = segment.payload.is_some_and(|p| *p.at == *desc || *p.len == *desc);
            match (segment.reads.contains(desc) || payload, segment.writes.contains(desc)) {
                (true, false) => Some((column, Way::Up)),
                (true, true) => Some((column, Way::Both)),
                (false, true) if segment.fills.contains(desc) => Some((column, Way::All)),
                (false, true) => Some((column, Way::Some)),
                (false, false) => None,
            }
        })
        .collect();
    order.sort_by_key(|(column, way)| (*way, *column));
    order
}

/// Where the columns of one job lie.
pub(super) struct Places {
    /// Column, byte offset, way.
    pub(super) columns: Vec<(usize, usize, Way)>,
    /// End of what goes up.
    pub(super) up_end: usize,
    /// Start of what comes down.
    pub(super) down: usize,
    /// Start of what may come down straight.
    pub(super) straight: usize,
    pub(super) end: usize,
}

impl Places {
    /// For a job of `rows` rows. Columns begin at `head_bytes`; `columns` is a list to be filled again.
    pub(super) fn new(
        layout: &Layout,
        order: &[(usize, Way)],
        rows: usize,
        (head_bytes, mut columns): (usize, Vec<(usize, usize, Way)>),
    ) -> Self {
        let mut at = head_bytes;
        let (mut up_end, mut down, mut straight) = (head_bytes, None, None);
        columns.clear();
        for &(column, way) in order {
            columns.push((column, at, way));
            if way.is_down() {
                down.get_or_insert(at);
            }
            if way.is_straight() {
                straight.get_or_insert(at);
            }
            at += (layout.columns()[column].width * rows).next_multiple_of(64);
            if way.is_up() {
                up_end = at;
            }
        }
        let (down, straight) = (down.unwrap_or(at), straight.unwrap_or(at));
        Self { columns, up_end, down, straight, end: at }
    }

    /// Writes the header of the job to the start of its bytes. Columns that do not travel keep an offset within an
    /// arena, as it is on the host.
    pub(super) fn write_header(&self, layout: &Layout, rows: usize, version: u64, to: &mut [u8]) {
        layout.write_header(0, rows as u32, version, to);
        for &(column, at, _) in &self.columns {
            JobHeader::write_offset(to, column, at as u32);
        }
    }

    pub(super) fn of(&self, column: usize) -> Option<usize> {
        self.columns.iter().find(|(c, _, _)| *c == column).map(|(_, place, _)| *place)
    }
}

/// A run of host bytes, and its place on the device.
pub(super) type Run = (*mut [u8], usize);

/// Runs of host bytes that are to be copied; empty between jobs.
#[derive(Default)]
pub(super) struct Runs(Vec<Run>);

// SAFETY: the pointers are numbers here, and stay in the list no longer than it takes to fill and to empty it; who
// copies from or to them argues for each copy, on whatever thread.
unsafe impl Send for Runs {}

impl Runs {
    pub(super) fn with_capacity(runs: usize) -> Self {
        Self(Vec::with_capacity(runs))
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = Run> + '_ {
        self.0.drain(..)
    }

    /// Adds `bytes` for place `at`, to the run before it where both follow on one another.
    pub(super) fn push(&mut self, bytes: *mut [u8], at: usize) {
        if let Some((last, place)) = self.0.last_mut() {
            let end = last.cast::<u8>().wrapping_add(last.len());
            if end == bytes.cast::<u8>() && *place + last.len() == at {
                *last = std::ptr::slice_from_raw_parts_mut(last.cast(), last.len() + bytes.len());
                return;
            }
        }
        self.0.push((bytes, at));
    }
}

/// Moves a job's rows to memory that no device knows of: a device that hangs may write its results into
/// the old ones long after the job was done again. The old rows are never given back. Columns that the
/// device may write are not taken along.
pub(super) fn leave<J: Offload>(job: &mut J, order: &[(usize, Way)]) {
    let written = |column| order.iter().any(|&(c, way)| c == column && way.is_straight());
    job.parts(&mut |rows: &mut Rows| {
        let layout = rows.layout().with_capacity(rows.reserved());
        // An arena of as many rows has them.
        let Some(mut own) = Arena::new(layout).reserve(rows.reserved()) else { return };
        own.set_len(rows.len());
        for column in (0..rows.layout().columns().len()).filter(|column| !written(*column)) {
            own.column_bytes_mut(column).copy_from_slice(rows.column_bytes(column));
        }
        std::mem::forget(std::mem::replace(rows, own));
    });
}
