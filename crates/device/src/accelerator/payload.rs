//! A job's payload: in place, gathered by the device, as cells, or packed (GASPP §5.1).
//!
//! ```text
//!  region of all cells, registered          memory of the slot
//!  │ …frame…  │  …frame…  │ ……  │ ─ gather ─▶ │frame│frame│frame│   for several kernels, or where one writes
//!  └── read in place by a segment's only kernel
//!  └─ host copies to staging, packed or as cells ─ upload ─▶ │…│    where the device does not reach the region
//! ```
//!
//! Frames in the slot's memory start at multiples of 16 bytes, in order of their rows, and are followed by zeros
//! up to the next multiple. Rows that were settled before the shade have a length of 0 and no bytes there.
//!
//! Kernels that are not ours get packed or gathered frames only: in place, and as cells, they would see bytes that
//! are no frame's of their job.
//!
//! What kernels have changed comes down into the staging block and is copied into the cells when the job has
//! ended well. Coming down straight into the cells would save that copy, but a copy that fails half way
//! would leave nothing from which the job could be done again.

use chunk::{Packet, Region, Verdict};
use kernels::Spec;

use super::staging::{Quiet, Staging};
use super::{CELL_BYTES, FRAME_ALIGN, Landing, Offload, PACKED_BELOW, Packing};
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
pub(super) enum Source {
    /// In the region.
    InPlace,
    /// To be gathered from the region, so many pieces; the list is staged.
    Gathered(usize),
    /// In the staging block, so many bytes.
    Staged(usize),
}

/// Where the frame of a row is in the payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) at: usize,
    pub(super) len: usize,
    /// The row was not settled before the shade: only such frames travel.
    pub(super) is_live: bool,
}

/// What the log calls the memory from which payload goes up, or into which it comes down.
pub(super) const STAGING: &str = "the staging block of payload";

/// What a slot has for payload on its way up.
#[derive(Default)]
pub(super) struct Memories {
    /// Frames on the device.
    pub(super) frames: Option<(Memory, usize)>,
    /// The list of the pieces to be gathered: on the device, staged, and to be filled again.
    pub(super) list: Option<(Memory, usize)>,
    pub(super) list_host: Staging,
    pieces: Vec<u32>,
}

/// The frames' places are in the landing.
pub(super) struct PayloadPlan {
    pub(super) source: Source,
    /// Bytes of device memory.
    pub(super) bytes: usize,
}

/// How a segment's kernels may see payload.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) packing: Packing,
    pub(super) reach: Reach,
    /// Kernels are ours, and keep to their rows' bytes.
    pub(super) is_trusted: bool,
    pub(super) region: Option<&'a Region>,
}

/// The region of all cells as kernels see it, and the kernel that gathers from it.
pub(super) struct Cells {
    pub(super) region: &'static Region,
    pub(super) memory: Memory,
    pub(super) gather: Kernel,
    pub(super) items: u32,
}

impl Cells {
    /// # Errors
    /// Where the kernel does not build.
    pub(super) fn new(
        driver: &mut dyn Driver,
        region: &'static Region,
        memory: Memory,
    ) -> Result<Self, DeviceError> {
        let spec = Spec::new("gather", &["gather"], &[]);
        let source = kernels::source(&spec);
        let program = Program { name: "gather".into(), source, defines: Vec::new(), ptx: None };
        let gather = driver.build(&program, &["gather"])?[0];
        Ok(Self { region, memory, gather, items: spec.group_items })
    }
}

/// Finds the place of each frame of a job, and stages what the device does not reach.
pub(super) fn plan<J: Offload>(
    driver: &mut dyn Driver,
    quiet: &Quiet,
    (slot, landing): (&mut Memories, &mut Landing),
    job: &mut J,
    view: View<'_>,
) -> Result<PayloadPlan, DeviceError> {
    let frames = &mut landing.frames;
    frames.clear();
    job.parts(&mut |rows| {
        let is_live = |verdict: &u32| Verdict(*verdict).is_next();
        let frame = |verdict| Frame { is_live: is_live(verdict), ..Frame::default() };
        frames.extend(rows.verdicts().iter().map(frame));
    });
    let (mut packets, mut used, mut longest) = (0usize, 0usize, 0);
    live(frames, job, |frame, packet| {
        frame.len = packet.frame_len();
        packets += 1;
        used += frame.len;
        longest = longest.max(frame.len);
    });
    let View { packing, is_trusted, .. } = view;
    let reach = if packing == Packing::Packed { Reach::None } else { view.reach };
    if let (Some(region), Reach::InPlace) = (view.region, reach)
        && in_place(frames, job, region)
    {
        return Ok(PayloadPlan { source: Source::InPlace, bytes: 0 });
    }
    if let (Some(region), Packing::Auto, Reach::InPlace | Reach::Gather) =
        (view.region, packing, reach)
        && let Some(plan) = gathered(driver, quiet, (slot, &mut landing.frames), job, region)?
    {
        return Ok(plan);
    }
    let is_packed = match packing {
        Packing::Packed => true,
        _ if !is_trusted => true,
        // A chain of cells has no place of one cell.
        Packing::Cells | Packing::Auto if longest > CELL_BYTES => true,
        Packing::Cells => false,
        Packing::Auto => (used as f64) < PACKED_BELOW * (packets * CELL_BYTES) as f64,
    };
    let bytes_max = if is_packed { used + packets * FRAME_ALIGN } else { packets * CELL_BYTES };
    landing.payload.grow(driver, quiet, bytes_max, STAGING)?;
    let host = landing.payload.bytes_mut();
    let mut at = 0;
    for frame in &mut landing.frames {
        frame.at = at;
        at += match (frame.is_live, is_packed) {
            (false, _) => 0,
            (true, true) => frame.len.next_multiple_of(FRAME_ALIGN),
            (true, false) => CELL_BYTES,
        };
    }
    live(&mut landing.frames, job, |frame, packet| {
        let mut to = frame.at;
        for segment in packet.segments() {
            host[to..to + segment.len()].copy_from_slice(segment);
            to += segment.len();
        }
        host[to..to.next_multiple_of(FRAME_ALIGN)].fill(0);
    });
    Ok(PayloadPlan { source: Source::Staged(at), bytes: at })
}

/// Visits each live row's frame and packet.
pub(super) fn live<J: Offload>(
    frames: &mut [Frame],
    job: &mut J,
    mut visit: impl FnMut(&mut Frame, &mut Packet),
) {
    let mut frames = frames.iter_mut();
    job.packets(&mut |packet| {
        if let Some(frame) = frames.next().filter(|frame| frame.is_live) {
            visit(frame, packet);
        }
    });
}

/// The frames where they lie; whether none is a chain or elsewhere.
fn in_place<J: Offload>(frames: &mut [Frame], job: &mut J, region: &Region) -> bool {
    let mut all = true;
    live(frames, job, |frame, packet| {
        let at = packet.offset_in(region).filter(|at| *at <= u64::from(u32::MAX));
        all &= at.is_some();
        frame.at = at.unwrap_or(0) as usize;
    });
    all
}

/// Writes the list for the kernel `gather`; `None` if a piece lies elsewhere.
fn gathered<J: Offload>(
    driver: &mut dyn Driver,
    quiet: &Quiet,
    (slot, frames): (&mut Memories, &mut [Frame]),
    job: &mut J,
    region: &Region,
) -> Result<Option<PayloadPlan>, DeviceError> {
    let base = region.base().as_ptr().addr();
    let list = &mut slot.pieces;
    list.clear();
    list.extend([0; 4]);
    let mut at = 0usize;
    for frame in &mut *frames {
        frame.at = at;
        at += if frame.is_live { frame.len.next_multiple_of(FRAME_ALIGN) } else { 0 };
    }
    let mut is_reached = u32::try_from(at).is_ok();
    live(frames, job, |frame, packet| {
        let mut to = frame.at;
        for segment in packet.segments().filter(|segment| !segment.is_empty()) {
            let from = segment.as_ptr().addr().wrapping_sub(base);
            is_reached &= from < region.bytes() && u32::try_from(from + segment.len()).is_ok();
            list.extend([from as u32, to as u32, segment.len() as u32, 0]);
            to += segment.len();
        }
        if let Some(zeros) = list.last_mut().filter(|_| to > frame.at) {
            *zeros = (to.next_multiple_of(FRAME_ALIGN) - to) as u32;
        }
    });
    if !is_reached {
        return Ok(None);
    }
    let pieces = list.len() / 4 - 1;
    list[0] = pieces as u32;
    let bytes = size_of_val(&list[..]);
    slot.list_host.grow(driver, quiet, bytes, "the staging block of lists")?;
    for (to, word) in slot.list_host.bytes_mut().chunks_exact_mut(4).zip(&slot.pieces) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    Ok(Some(PayloadPlan { source: Source::Gathered(pieces), bytes: at }))
}

/// Memory that is kept from job to job, at least `bytes` long.
pub(super) fn room(
    driver: &mut dyn Driver,
    quiet: &Quiet,
    kept: &mut Option<(Memory, usize)>,
    bytes: usize,
) -> Result<Memory, DeviceError> {
    if let Some((memory, room)) = *kept {
        if room >= bytes {
            return Ok(memory);
        }
        quiet.wait(driver)?;
        driver.free(memory);
        *kept = None;
    } else {
        quiet.wait(driver)?;
    }
    let room = bytes.next_power_of_two().max(1 << 16);
    let memory = driver.allocate(room)?;
    *kept = Some((memory, room));
    Ok(memory)
}
