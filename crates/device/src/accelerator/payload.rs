//! A job's payload: in place, as cells, or packed (GASPP §5.1).

use chunk::Region;

use super::{CELL_BYTES, FRAME_ALIGN, Offload, PACKED_BELOW, Packing, Slot, Staging};
use crate::DeviceError;
use crate::driver::{Driver, Memory};

pub(super) struct PayloadPlan {
    /// To be copied up.
    pub(super) bytes: usize,
    /// The frames' places are those in the region of all cells.
    pub(super) is_in_place: bool,
    pub(super) frames: Vec<(usize, usize)>,
}

/// Copies the frames of a job to the staging block of its slot.
pub(super) fn stage_payload<J: Offload>(
    slot: &mut Slot<J>,
    job: &mut J,
    packing: Packing,
    region: Option<&Region>,
) -> PayloadPlan {
    let (mut packets, mut used) = (0usize, 0usize);
    let mut longest = 0;
    job.packets(&mut |packet| {
        packets += 1;
        used += packet.frame_len();
        longest = longest.max(packet.frame_len());
    });
    let is_packed = match packing {
        Packing::Packed => true,
        // A chain of cells has no place of one cell.
        Packing::Cells | Packing::Auto if longest > CELL_BYTES => true,
        Packing::Cells => false,
        Packing::Auto => (used as f64) < PACKED_BELOW * (packets * CELL_BYTES) as f64,
    };
    if let Some(region) = region.filter(|_| !is_packed) {
        let mut frames = Vec::with_capacity(packets);
        job.packets(&mut |packet| {
            let at = packet.offset_in(region).filter(|at| *at <= u64::from(u32::MAX));
            frames.extend(at.map(|at| (at as usize, packet.frame_len())));
        });
        if frames.len() == packets {
            return PayloadPlan { bytes: 0, is_in_place: true, frames };
        }
    }
    let place = |at: usize, i: usize| if is_packed { at } else { i * CELL_BYTES };
    let bytes_max = if is_packed { used + packets * FRAME_ALIGN } else { packets * CELL_BYTES };
    if slot.payload_host.0.len() * 8 < bytes_max {
        slot.payload_host = Staging::new(bytes_max.next_power_of_two());
    }
    let host = slot.payload_host.bytes();
    let (mut at, mut frames) = (0, Vec::with_capacity(packets));
    job.packets(&mut |packet| {
        let start = place(at, frames.len());
        let mut to = start;
        for segment in packet.segments() {
            host[to..to + segment.len()].copy_from_slice(segment);
            to += segment.len();
        }
        frames.push((start, packet.frame_len()));
        at = to.next_multiple_of(FRAME_ALIGN);
    });
    let bytes = if is_packed { at } else { packets * CELL_BYTES };
    PayloadPlan { bytes, is_in_place: false, frames }
}

/// The payload memory of a slot, at least `bytes` long.
pub(super) fn payload_memory<J>(
    driver: &mut dyn Driver,
    slot: &mut Slot<J>,
    bytes: usize,
) -> Result<Memory, DeviceError> {
    if let Some((memory, room)) = slot.payload {
        if room >= bytes {
            return Ok(memory);
        }
        driver.free(memory);
        slot.payload = None;
    }
    let room = bytes.next_power_of_two().max(1 << 16);
    let memory = driver.allocate(room)?;
    slot.payload = Some((memory, room));
    Ok(memory)
}
