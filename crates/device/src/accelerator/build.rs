//! A segment's kernels, built and launched once, before the first packet.

use std::time::Duration;

use chunk::{ColumnId, Layout};

use super::payload::Reach;
use super::steps::{Areas, Work};
use super::{Built, SegmentProgram, columns, upload_all};
use crate::DeviceError;
use crate::driver::{Arguments, Driver, Kernel, Memory, Queue, Shape};

/// Builds a segment's kernels.
///
/// # Errors
/// [`DeviceError::Build`], with the compiler's log.
pub(super) fn build(
    driver: &mut dyn Driver,
    layout: &Layout,
    mut segment: SegmentProgram,
) -> Result<Built, DeviceError> {
    let groups = driver.info().groups_at_once().max(1);
    for step in segment.steps.iter_mut().filter(|step| step.part.is_some()) {
        step.job.get_or_insert(groups);
    }
    let own = segment.steps.iter().map(|step| &*step.kernel);
    let others = segment.steps.iter().filter_map(|step| Some(&*step.part.as_ref()?.instead));
    let names: Vec<&str> = own.chain(others).collect();
    let mut kernels = driver.build(&segment.program, &names)?;
    let mut others = kernels.split_off(segment.steps.len()).into_iter();
    let instead = segment.steps.iter().map(|step| step.part.as_ref().and_then(|_| others.next()));
    let instead = instead.collect();
    let order = columns::order(layout, &segment);
    // Blocks are found by the order of the frames, and nothing lies between these.
    let has_blocks = segment.steps.iter().any(|step| step.work == Work::Blocks);
    let is_trusted = segment.is_trusted && !has_blocks;
    let reach = match segment.payload {
        None => Reach::None,
        // Over the bus once for each kernel, and never back. Around the frames are the cells' other bytes, chains'
        // links among them.
        Some(uses) if !uses.writes && segment.payload_steps <= 1 && is_trusted => Reach::InPlace,
        Some(_) => Reach::Gather,
    };
    let name = segment.program.name;
    let payload = segment.payload.map(|uses| {
        let place = |column: ColumnId| {
            let missing = || DeviceError::Build {
                name: name.clone(),
                log: format!("the payload's column `{}` is not in the layout", column.name),
            };
            column.place_in(layout.columns()).ok_or_else(missing)
        };
        Ok((uses, [place(uses.at)?, place(uses.len)?]))
    });
    let payload = payload.transpose()?;
    let SegmentProgram { states, shards, areas, outputs, schedules, .. } = segment;
    let has_limits = segment.steps.iter().any(|step| step.limit.is_some());
    Ok(Built {
        steps: kernels.into_iter().zip(segment.steps).collect(),
        instead,
        order,
        payload,
        reach,
        areas: Areas { all: areas, outputs },
        schedules,
        has_limits,
        states,
        shards,
        state: None,
        spoilt_to: None,
    })
}

/// Launches every kernel once, over no rows: libraries do part of their work at the first launch
/// (PoCL compiles then), which must not fall on packets.
///
/// # Errors
/// The driver's; [`DeviceError::Launch`] for a kernel that the device does not take.
pub(super) fn warm_up(
    driver: &mut dyn Driver,
    (queue, arena, nothing): (Queue, Memory, Memory),
    head: &[u8],
    kernels: impl Iterator<Item = (Kernel, u32, Option<u32>)>,
    limit: Duration,
) -> Result<(), DeviceError> {
    upload_all(driver, queue, nothing, &[(&[0; 256], 0)], limit)?;
    upload_all(driver, queue, arena, &[(head, 0)], limit)?;
    for (kernel, items, job) in kernels {
        let job = job.unwrap_or(0);
        let arguments = Arguments { arena, payload: nothing, tables: nothing, state: nothing, job };
        driver.launch(queue, kernel, Shape { groups: 1, items }, &arguments)?;
    }
    let event = driver.event(queue)?;
    if driver.wait(event, limit)? { Ok(()) } else { Err(DeviceError::Hang(limit)) }
}
