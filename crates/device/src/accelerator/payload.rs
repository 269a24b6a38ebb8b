//! A job's payload: in place, gathered by the device, or packed by the host (GASPP §5.1).
//!
//! ```text
//!  region of all cells, registered          memory of the slot
//!  │ …frame…  │  …frame…  │ ……  │ ─ gather ─▶ │frame│frame│frame│   for several kernels, or where one writes
//!  └── read in place by a segment's only kernel
//!  └─ workers pack into blocks ──── upload ─▶ │…│    where the device does not reach the region
//! ```
//!
//! Frames in the slot's memory start at multiples of 16 bytes, in order of their rows, and are followed by zeros
//! up to the next multiple, and then by what is attached to the packet ([`chunk::Attached`]), to which the same applies. Rows that were settled before the shade have a length of 0 and no bytes there.
//!
//! Kernels that are not ours get packed or gathered frames only: in place, they would see bytes outside the frames of
//! their job.
//!
//! What kernels have changed comes down into the job's landing and is copied into the cells when the job has
//! ended well. Coming down straight into the cells would save that copy, but a copy that fails half way
//! would leave nothing from which the job could be done again.
//!
//! Who does what: workers find their frames and pack them (`part.rs`), before they hand a chunk in, and copy what comes
//! down into their packets (`landing.rs`). The master adds up where each chunk's payload begins, and writes the columns of
//! places and the list of pieces from numbers. It looks at packets itself only where no worker has looked, for jobs
//! that are not the engine's, and copies only frames that did not fit in a block.

use std::ops::Range;

use chunk::Region;
use kernels::{Spec, files};

use super::columns::Runs;
use super::part::{Frame, PayloadPart, copy_attached, copy_frame};
use super::staging::{Quiet, Staging};
use super::{Landing, Offload, Packing, PayloadWay, RUNS};
use crate::DeviceError;
use crate::driver::{Driver, Kernel, Memory, Program};

/// How a segment uses the region of all cells.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Not at all.
    None,
    /// Its one kernel reads the cells where they are.
    InPlace,
    /// The frames are brought to the device once, for all its kernels.
    Gather,
}

/// Where the payload of a job is, and what has to be done for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// In the region.
    InPlace,
    /// To be gathered from the region, so many pieces; the list is staged.
    Gathered(usize),
    /// Packed, in the runs of [`Memories::runs`].
    Packed,
}

/// What the log calls the memory from which payload goes up, or into which it comes down.
pub(super) const STAGING: &str = "the staging block of payload";

/// Bytes of a piece in the list for `gather`, and of the list's head.
pub(super) const PIECE_BYTES: usize = size_of::<super::part::Piece>();

/// What a slot has for payload on its way up.
#[derive(Default)]
pub(super) struct Memories {
    /// Frames on the device.
    pub(super) frames: Option<(Memory, usize)>,
    /// The list of the pieces to be gathered: on the device, staged, and to be filled again.
    pub(super) list: Option<(Memory, usize)>,
    pub(super) list_host: Staging,
    /// Packed frames, and where each run goes.
    pub(super) runs: Runs,
    /// What was found of a job that no worker has looked at.
    own: PayloadPart,
    /// Rows whose frames no worker has packed, and their bytes.
    left: Vec<(Range<usize>, Range<usize>)>,
}

impl Memories {
    /// For jobs of so many rows, with lists for common jobs.
    pub(super) fn with_capacity(rows: usize) -> Self {
        // Most jobs' frames are found by their workers.
        let rows = rows.min(RUNS);
        Self {
            runs: Runs::with_capacity(RUNS),
            own: PayloadPart::with_capacity(rows),
            left: Vec::with_capacity(RUNS),
            ..Self::default()
        }
    }
}

/// The frames' places are in the landing.
pub(super) struct PayloadPlan {
    pub(super) source: Source,
    /// Bytes of device memory, but for those read in place.
    pub(super) bytes: usize,
}

/// How a segment's kernels may see payload.
#[derive(Clone, Copy)]
pub(super) struct View {
    pub(super) packing: Packing,
    pub(super) reach: Reach,
    /// The cells, as far as the device reaches them.
    pub(super) region: Option<&'static Region>,
    /// What was chosen for the job.
    pub(super) way: Option<PayloadWay>,
}

impl View {
    /// Whether the device is to fetch frames by itself, one way or the other.
    pub(super) fn is_reached(&self) -> bool {
        match (self.packing, self.reach) {
            (Packing::Packed, _) | (_, Reach::None) | (Packing::InPlace, Reach::Gather) => false,
            _ if self.way == Some(PayloadWay::Packed) => false,
            (Packing::InPlace, Reach::InPlace) | (Packing::Auto | Packing::Measured, _) => {
                self.region.is_some()
            }
        }
    }
}

/// The kernel that gathers frames, and the work items of its groups.
#[derive(Clone, Copy)]
pub(super) struct Gather {
    pub(super) kernel: Kernel,
    pub(super) items: u32,
}

impl Gather {
    /// # Errors
    /// Where the kernel does not build.
    pub(super) fn new(driver: &mut dyn Driver) -> Result<Self, DeviceError> {
        let spec = Spec::of_file(&files::GATHER);
        let source = kernels::source(&spec);
        let program = Program { name: "gather".into(), source, defines: Vec::new(), ptx: None };
        let kernel = driver.build(&program, &["gather"])?[0];
        Ok(Self { kernel, items: spec.group_items })
    }
}

/// The region of all cells as kernels see it, and the kernel that gathers from it.
pub(super) struct Cells {
    pub(super) region: &'static Region,
    pub(super) memory: Memory,
    pub(super) gather: Gather,
}

/// Finds the place of each frame of a job: in the landing. Puts down what has to be copied for it.
///
/// # Errors
/// More than 4 GiB, or the driver's when more memory is needed.
pub(super) fn plan<J: Offload>(
    driver: &mut dyn Driver,
    quiet: &Quiet,
    (slot, landing): (&mut Memories, &mut Landing),
    job: &mut J,
    view: View,
) -> Result<PayloadPlan, DeviceError> {
    let region = view.region.filter(|_| view.is_reached());
    let Memories { own, runs, left, list_host, .. } = slot;
    runs.clear();
    left.clear();
    let is_known = job.payload(&mut |_| ());
    if !is_known {
        look(own, job, region);
    }
    let mut parts = Parts { job, own, is_known };

    let (mut bytes, mut pieces, mut is_in_one_cell) = (0, 0, true);
    let mut is_reached = region.is_some();
    parts.visit(&mut |part| {
        bytes += part.bytes();
        pieces += part.pieces().len();
        is_in_one_cell &= part.is_in_one_cell();
        is_reached &= region.is_some_and(|region| part.bytes() == 0 || part.is_in(region));
    });
    if u32::try_from(bytes).is_err() {
        return Err(DeviceError::Memory("a job's payload is more than 4 GiB".into()));
    }

    let may_stay = view.reach == Reach::InPlace && view.way != Some(PayloadWay::Gathered);
    if is_reached && is_in_one_cell && may_stay {
        parts.visit(&mut |part| {
            let mut pieces = part.pieces().iter();
            landing.frames.extend(part.frames().iter().map(|frame| {
                let piece = if frame.len > 0 { pieces.next() } else { None };
                Frame { at: piece.map_or(0, |piece| piece[0]), ..*frame }
            }));
        });
        return Ok(PayloadPlan { source: Source::InPlace, bytes: 0 });
    }

    let is_gathered = is_reached && view.packing != Packing::InPlace;
    if is_gathered {
        let list_bytes = PIECE_BYTES * (pieces + 1);
        list_host.grow(driver, quiet, list_bytes, "the staging block of lists")?;
        let head = &mut list_host.bytes_mut()[..PIECE_BYTES];
        head.fill(0);
        head[..4].copy_from_slice(&(pieces as u32).to_ne_bytes());
    }
    let mut list = list_host.bytes_mut().chunks_exact_mut(PIECE_BYTES).skip(1);
    let mut base = 0;
    parts.visit(&mut |part| {
        let start = base as u32;
        let first = landing.frames.len();
        let frames = part.frames().iter();
        landing.frames.extend(frames.map(|frame| Frame { at: start + frame.at, ..*frame }));
        let range = base..base + part.bytes();
        base = range.end;
        if is_gathered {
            for (&[from, to, len, zeros], entry) in part.pieces().iter().zip(&mut list) {
                let words = [from, start + to, len, zeros];
                for (to, word) in entry.chunks_exact_mut(4).zip(words) {
                    to.copy_from_slice(&word.to_ne_bytes());
                }
            }
        } else if range.is_empty() {
        } else if let Some(packed) = part.packed() {
            runs.push(&raw mut *packed, range.start);
        } else {
            left.push((first..landing.frames.len(), range));
        }
    });
    if is_gathered {
        return Ok(PayloadPlan { source: Source::Gathered(pieces), bytes });
    }
    if !left.is_empty() {
        landing.payload.grow(driver, quiet, bytes, STAGING)?;
        let host = landing.payload.bytes_mut();
        let (mut row, mut ranges) = (0, left.iter().peekable());
        job.packets(&mut |packet| {
            while ranges.next_if(|(rows, _)| rows.end <= row).is_some() {}
            if let Some(frame) = landing.frames.get(row)
                && ranges.peek().is_some_and(|(rows, _)| rows.contains(&row))
            {
                copy_frame(frame, packet, host);
            }
            row += 1;
        });
        job.attached(&mut |row, bytes| {
            if let Some(frame) = landing.frames.get(row)
                && left.iter().any(|(rows, _)| rows.contains(&row))
            {
                copy_attached(frame, bytes, host);
            }
        });
        for (_, range) in left {
            runs.push(&raw mut host[range.clone()], range.start);
        }
    }
    Ok(PayloadPlan { source: Source::Packed, bytes })
}

/// What is known of a job's packets, part by part.
struct Parts<'a, J> {
    job: &'a mut J,
    own: &'a mut PayloadPart,
    is_known: bool,
}

impl<J: Offload> Parts<'_, J> {
    fn visit(&mut self, part: &mut dyn FnMut(&mut PayloadPart)) {
        if self.is_known {
            self.job.payload(part);
        } else {
            part(self.own);
        }
    }
}

/// Looks at a job's packets as one part.
fn look<J: Offload>(own: &mut PayloadPart, job: &mut J, region: Option<&'static Region>) {
    own.begin(region);
    job.parts(&mut |rows| own.add_rows(rows.verdicts()));
    job.attached(&mut |row, bytes| own.add_attached(row, bytes.len()));
    job.packets(&mut |packet| own.add_packet(packet));
    own.end();
}

/// Memory that is kept from job to job, at least `bytes` long.
pub(super) fn at_least(
    driver: &mut dyn Driver,
    quiet: &Quiet,
    kept: &mut Option<(Memory, usize)>,
    bytes: usize,
) -> Result<Memory, DeviceError> {
    if let Some((memory, capacity)) = *kept {
        if capacity >= bytes {
            return Ok(memory);
        }
        quiet.wait(driver)?;
        driver.free(memory);
        *kept = None;
    } else {
        quiet.wait(driver)?;
    }
    let capacity = bytes.next_power_of_two().max(1 << 16);
    let memory = driver.allocate(capacity)?;
    *kept = Some((memory, capacity));
    Ok(memory)
}
