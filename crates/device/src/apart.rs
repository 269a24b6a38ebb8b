//! Programs that a process of its own compiles before this one builds them.
//!
//! PoCL runs no kernel of a process that compiles one, so packets that need a device would wait for seconds. What another process has
//! compiled is in the folders of PoCL and of this program ([`crate::cache`]), so that building it here takes a moment.

use std::time::Duration;

use crate::DeviceError;
use crate::accelerator::upload_all;
use crate::driver::{Api, Arguments, Driver, Program, Shape};

/// A program, and its kernels with the work items of their groups.
pub type Kernels = (Program, Vec<(String, u32)>);

/// Bytes of the memories that kernels get: a header of a job without rows, and more than they touch then.
const BYTES: usize = 1 << 20;

/// Groups of a launch: a library may compile a form for few of them, and one for many.
const GROUPS: [u32; 2] = [1, 256];

/// Builds the programs and launches each kernel over no rows: some libraries compile only then. A program that does not build is left
/// out; whoever builds it next hears why.
///
/// # Errors
/// The driver's.
pub fn compile(
    driver: &mut dyn Driver,
    programs: &[Kernels],
    limit: Duration,
) -> Result<(), DeviceError> {
    let queue = driver.queue()?;
    let arena = driver.allocate(BYTES)?;
    let other = driver.allocate(BYTES)?;
    for memory in [arena, other] {
        upload_all(driver, queue, memory, &[(&vec![0; BYTES], 0)], limit)?;
    }
    let arguments = Arguments { arena, payload: other, tables: other, state: other, job: 0 };
    for (program, kernels) in programs {
        let names: Vec<&str> = kernels.iter().map(|(name, _)| &**name).collect();
        let Ok(built) = driver.build(program, &names) else { continue };
        for (kernel, (_, items)) in built.into_iter().zip(kernels) {
            for groups in GROUPS {
                let shape = Shape { groups, items: *items };
                driver.launch(queue, kernel, shape, &arguments)?;
                let event = driver.event(queue)?;
                if !driver.wait(event, limit)? {
                    return Err(DeviceError::Hang(limit));
                }
            }
        }
    }
    Ok(())
}

/// The device that a process of its own is to open, where that is worth it.
pub fn place(driver: &dyn Driver) -> Option<(Api, u32)> {
    let info = driver.info();
    driver.stops_to_build().then_some((info.api, info.number))
}
