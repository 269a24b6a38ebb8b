//! A job's payload: in place, gathered by the device, as cells, or packed (GASPP §5.1).
//!
//! ```text
//!  region of all cells, registered          memory of the slot
//!  │ …frame…  │  …frame…  │ ……  │ ─ gather ─▶ │frame│frame│frame│   for several kernels, or where one writes
//!  └── read in place by a segment's only kernel
//!  └─ host copies to staging, packed or as cells ─ upload ─▶ │…│    where the device does not reach the region
//! ```
//!
//! What kernels have changed comes down into the staging block and is copied into the cells when the job has
//! ended well. Coming down straight into the cells would save that copy, but a copy that fails half way
//! would leave nothing from which the job could be done again.

use chunk::Region;
use kernels::Spec;

use super::staging::{Quiet, Staging};
use super::{CELL_BYTES, FRAME_ALIGN, Offload, PACKED_BELOW, Packing, Slot};
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

pub(super) struct PayloadPlan {
    pub(super) source: Source,
    /// Bytes of device memory.
    pub(super) bytes: usize,
    /// Place and length of each frame, there.
    pub(super) frames: Vec<(usize, usize)>,
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
    slot: &mut Slot<J>,
    job: &mut J,
    packing: Packing,
    (reach, region): (Reach, Option<&Region>),
) -> Result<PayloadPlan, DeviceError> {
    let (mut packets, mut used, mut longest) = (0usize, 0usize, 0);
    job.packets(&mut |packet| {
        packets += 1;
        used += packet.frame_len();
        longest = longest.max(packet.frame_len());
    });
    let reach = if packing == Packing::Packed { Reach::None } else { reach };
    if let (Some(region), Reach::InPlace) = (region, reach)
        && let Some(frames) = in_place(job, region, packets)
    {
        return Ok(PayloadPlan { source: Source::InPlace, bytes: 0, frames });
    }
    if let (Some(region), Packing::Auto, Reach::InPlace | Reach::Gather) = (region, packing, reach)
        && let Some(plan) = gathered(driver, quiet, slot, job, region)?
    {
        return Ok(plan);
    }
    let is_packed = match packing {
        Packing::Packed => true,
        // A chain of cells has no place of one cell.
        Packing::Cells | Packing::Auto if longest > CELL_BYTES => true,
        Packing::Cells => false,
        Packing::Auto => (used as f64) < PACKED_BELOW * (packets * CELL_BYTES) as f64,
    };
    let bytes_max = if is_packed { used + packets * FRAME_ALIGN } else { packets * CELL_BYTES };
    slot.payload_host.grow(driver, quiet, bytes_max, "the staging block of payload")?;
    let host = slot.payload_host.bytes();
    let (mut at, mut frames) = (0, Vec::with_capacity(packets));
    job.packets(&mut |packet| {
        let start = if is_packed { at } else { frames.len() * CELL_BYTES };
        let mut to = start;
        for segment in packet.segments() {
            host[to..to + segment.len()].copy_from_slice(segment);
            to += segment.len();
        }
        frames.push((start, packet.frame_len()));
        at = to.next_multiple_of(FRAME_ALIGN);
    });
    let bytes = if is_packed { at } else { packets * CELL_BYTES };
    Ok(PayloadPlan { source: Source::Staged(bytes), bytes, frames })
}

/// The frames where they lie; `None` if one is a chain or elsewhere.
fn in_place<J: Offload>(
    job: &mut J,
    region: &Region,
    packets: usize,
) -> Option<Vec<(usize, usize)>> {
    let mut frames = Vec::with_capacity(packets);
    job.packets(&mut |packet| {
        let at = packet.offset_in(region).filter(|at| *at <= u64::from(u32::MAX));
        frames.extend(at.map(|at| (at as usize, packet.frame_len())));
    });
    (frames.len() == packets).then_some(frames)
}

/// Writes the list for the kernel `gather`; `None` if a piece lies elsewhere.
fn gathered<J: Offload>(
    driver: &mut dyn Driver,
    quiet: &Quiet,
    slot: &mut Slot<J>,
    job: &mut J,
    region: &Region,
) -> Result<Option<PayloadPlan>, DeviceError> {
    let base = region.base().as_ptr().addr();
    let mut list = std::mem::take(&mut slot.pieces);
    list.clear();
    list.extend([0; 4]);
    let (mut at, mut frames, mut is_reached) = (0usize, Vec::new(), true);
    job.packets(&mut |packet| {
        // The first piece keeps its place within a word, so that whole words are copied.
        let mut to = None;
        let mut start = at;
        for segment in packet.segments() {
            let from = segment.as_ptr().addr().wrapping_sub(base);
            is_reached &= from < region.bytes() && u32::try_from(from + segment.len()).is_ok();
            let place = *to.get_or_insert_with(|| {
                start = at + from % FRAME_ALIGN;
                start
            });
            list.extend([from as u32, place as u32, segment.len() as u32, 0]);
            to = Some(place + segment.len());
        }
        frames.push((start, packet.frame_len()));
        at = to.unwrap_or(at).next_multiple_of(FRAME_ALIGN);
    });
    is_reached &= u32::try_from(at).is_ok();
    let pieces = list.len() / 4 - 1;
    list[0] = pieces as u32;
    if is_reached {
        slot.list_host.grow(driver, quiet, 4 * list.len(), "the staging block of lists")?;
        for (to, word) in slot.list_host.bytes().chunks_exact_mut(4).zip(&list) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
    }
    slot.pieces = list;
    let source = Source::Gathered(pieces);
    Ok(is_reached.then_some(PayloadPlan { source, bytes: at, frames }))
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

/// Makes room for what comes down: a gathered job has staged nothing.
pub(super) fn room_down(
    driver: &mut dyn Driver,
    quiet: &Quiet,
    host: &mut Staging,
    bytes: usize,
) -> Result<(), DeviceError> {
    host.grow(driver, quiet, bytes, "the staging block of payload")
}
