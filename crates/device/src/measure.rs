//! What a device costs: the time of a launch, and the rate of copies by their size.
//!
//! These are the measurements by which PacketShader (Table 1; §2.2 for launches), GSwitch (Figure 4) and
//! GASPP (Table 1) chose the sizes of their batches, on the user's own machine. A copy is measured alone
//! (enqueued, then waited for: what a single job pays) and streamed (many enqueued behind each other: what
//! the bus gives).
//!
//! Threads: as the driver's.

use std::time::{Duration, Instant};

use kernels::{Spec, files, source};

use crate::DeviceError;
use crate::driver::{Arguments, Driver, Memory, Program, Queue, Shape};

/// What is measured, and how often.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The program with the kernel `empty`, as [`program`] makes it; with PTX where there may be no
    /// compiler.
    pub program: Program,
    /// Launches of each size.
    pub launches: usize,
    /// Work items of a launch.
    pub items: Vec<u32>,
    /// Copies of each size, alone.
    pub copies: usize,
    /// Bytes of a copy; none is 0.
    pub bytes: Vec<usize>,
    /// Bytes that are streamed for each size, at most 4,096 copies of them.
    pub streamed_bytes: usize,
    /// A launch or copy that takes longer has hung.
    pub patience: Duration,
}

impl Default for Plan {
    /// 256 bytes to 64 MB, and launches of 1 to 65,536 items, in well under a minute.
    fn default() -> Self {
        Self {
            program: program(),
            launches: 1000,
            items: vec![1, 256, 4096, 65_536],
            copies: 100,
            bytes: (0..10).map(|step| 256 << (2 * step)).collect(),
            streamed_bytes: 256 << 20,
            patience: Duration::from_secs(30),
        }
    }
}

/// Work items of a group of [`program`].
const GROUP_ITEMS: u32 = 256;

/// The program that is launched: one kernel, `empty`.
pub fn program() -> Program {
    let spec = Spec::new("measure", &[&files::EMPTY], &[]).with_group_items(GROUP_ITEMS);
    Program { name: "measure".into(), source: source(&spec), defines: Vec::new(), ptx: None }
}

/// What a device costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Costs {
    /// By work items.
    pub launches: Vec<LaunchCost>,
    /// By bytes.
    pub copies: Vec<CopyCost>,
    /// Why the host's memory could not be registered; copies went from ordinary memory then.
    pub unregistered: Option<DeviceError>,
}

/// From the call that launches an empty kernel until its event is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchCost {
    /// Work items.
    pub items: u32,
    /// Median, in nanoseconds.
    pub latency_ns_median: u64,
    /// 99th percentile.
    pub latency_ns_p99: u64,
}

/// Copies of one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CopyCost {
    /// Bytes of each copy.
    pub bytes: usize,
    /// From the host to the device.
    pub up: Direction,
    /// From the device to the host.
    pub down: Direction,
}

/// One way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Direction {
    /// From the call that copies until its event is seen, alone; median, in nanoseconds.
    pub latency_ns_median: u64,
    /// 99th percentile.
    pub latency_ns_p99: u64,
    /// Many copies behind each other, in bytes a second.
    pub streamed_bytes_per_s: f64,
}

/// Measures `driver`, which has no other user meanwhile. Takes a queue of it for good.
///
/// # Errors
/// The driver's; [`DeviceError::Hang`] when something takes longer than the plan's patience.
pub fn measure(driver: &mut dyn Driver, plan: &Plan) -> Result<Costs, DeviceError> {
    let queue = driver.queue()?;
    let launches = launches(driver, queue, plan)?;
    let bytes_max = plan.bytes.iter().copied().max().unwrap_or(0);
    if bytes_max == 0 {
        return Ok(Costs { launches, copies: Vec::new(), unregistered: None });
    }
    let memory = driver.allocate(bytes_max)?;
    // Leaked until every copy is known to have ended: after an error one may still be under way.
    let host: *mut [u8] = Box::into_raw(vec![0x5a; bytes_max].into_boxed_slice());
    // SAFETY: the memory lives until it is unregistered below, or for good.
    let unregistered = unsafe { driver.register(host) }.err();
    let mut copies = Vec::new();
    for &bytes in &plan.bytes {
        let up = direction(driver, queue, (memory, host, bytes), plan, Way::Up)?;
        let down = direction(driver, queue, (memory, host, bytes), plan, Way::Down)?;
        copies.push(CopyCost { bytes, up, down });
    }
    if unregistered.is_none() {
        driver.unregister(host.cast())?;
    }
    driver.free(memory);
    // SAFETY: made by `Box::into_raw` above; each copy's event was waited for.
    drop(unsafe { Box::from_raw(host) });
    Ok(Costs { launches, copies, unregistered })
}

fn launches(
    driver: &mut dyn Driver,
    queue: Queue,
    plan: &Plan,
) -> Result<Vec<LaunchCost>, DeviceError> {
    let group = driver.info().group_items_max.clamp(1, GROUP_ITEMS);
    let kernel = driver.build(&plan.program, &["empty"])?[0];
    let memory = driver.allocate(4)?;
    let arguments =
        Arguments { arena: memory, payload: memory, tables: memory, state: memory, job: 0 };
    let mut costs = Vec::new();
    for &items in &plan.items {
        let shape = Shape::of_rows(items as usize, group.min(items));
        // Once before the clock runs: a kernel may be compiled or loaded at its first launch.
        let mut times = Vec::with_capacity(plan.launches + 1);
        for _ in 0..=plan.launches.max(1) {
            let begin = Instant::now();
            driver.launch(queue, kernel, shape, &arguments)?;
            wait(driver, queue, plan)?;
            times.push(begin.elapsed());
        }
        let (latency_ns_median, latency_ns_p99) = quantiles(&mut times[1..]);
        costs.push(LaunchCost { items, latency_ns_median, latency_ns_p99 });
    }
    driver.free(memory);
    Ok(costs)
}

#[derive(Clone, Copy)]
enum Way {
    Up,
    Down,
}

fn direction(
    driver: &mut dyn Driver,
    queue: Queue,
    (memory, host, bytes): (Memory, *mut [u8], usize),
    plan: &Plan,
    way: Way,
) -> Result<Direction, DeviceError> {
    let part = std::ptr::slice_from_raw_parts_mut(host.cast::<u8>(), bytes);
    let copy = |driver: &mut dyn Driver| match way {
        // SAFETY: the host's memory is leaked until all copies have ended, and is not read.
        Way::Up => unsafe { driver.upload(queue, part, memory, 0) },
        // SAFETY: see above.
        Way::Down => unsafe { driver.download(queue, memory, 0, part) },
    };
    let mut times = Vec::with_capacity(plan.copies + 1);
    for _ in 0..=plan.copies.max(1) {
        let begin = Instant::now();
        copy(driver)?;
        wait(driver, queue, plan)?;
        times.push(begin.elapsed());
    }
    let (latency_ns_median, latency_ns_p99) = quantiles(&mut times[1..]);

    let count = (plan.streamed_bytes / bytes.max(1)).clamp(1, 4096);
    let begin = Instant::now();
    for _ in 0..count {
        copy(driver)?;
    }
    wait(driver, queue, plan)?;
    let seconds = begin.elapsed().as_secs_f64().max(1e-9);
    let streamed_bytes_per_s = (count * bytes) as f64 / seconds;
    Ok(Direction { latency_ns_median, latency_ns_p99, streamed_bytes_per_s })
}

fn wait(driver: &mut dyn Driver, queue: Queue, plan: &Plan) -> Result<(), DeviceError> {
    let event = driver.event(queue)?;
    let is_done = driver.wait(event, plan.patience)?;
    if is_done { Ok(()) } else { Err(DeviceError::Hang(plan.patience)) }
}

/// Median and 99th percentile of at least one time, in nanoseconds: the smallest time that at least so
/// many per cent do not exceed.
fn quantiles(times: &mut [Duration]) -> (u64, u64) {
    times.sort_unstable();
    let at = |percent: usize| {
        let place = (times.len() * percent).div_ceil(100).saturating_sub(1);
        times.get(place).map_or(0, |t| u64::try_from(t.as_nanos()).unwrap_or(u64::MAX))
    };
    (at(50), at(99))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_the_sorted_times() {
        for (count, expected) in [(1, (1, 1)), (2, (1, 2)), (100, (50, 99)), (1000, (500, 990))] {
            let mut times: Vec<_> = (1..=count).rev().map(Duration::from_nanos).collect();
            assert_eq!(quantiles(&mut times), expected, "{count}");
        }
    }

    #[test]
    fn the_plan_goes_from_256_bytes_to_64_megabytes() {
        let bytes = Plan::default().bytes;
        assert_eq!((bytes[0], bytes[bytes.len() - 1]), (256, 64 << 20));
    }
}
