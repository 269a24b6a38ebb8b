//! The gateway with a device, by the number of its workers: packets go up and come back, and workers put them where they were.

use std::time::{Duration, Instant};

use controlplane::TablesImages;
use device::accelerator::{Options, Packing, Scheduling};
use device::measure::{self, Costs};
use device::{Backend, accelerator};
use engine::{DeviceKind, DeviceSpec, EngineView, Policy};

use super::gateway::{Cipher, Gateway, Load, Way};
use crate::nat::sent;
use crate::on_device::{PATIENCE, open, text};
use crate::{Args, Report, Row};

/// Associations: workers that run apart stay in the windows of all.
const ASSOCIATIONS: usize = 64;
/// Of what copies alone would do, end to end.
const SHARE_AIM: f64 = 0.8;
/// Jobs in flight, rows of one at most, and chunks of a worker.
const JOBS: usize = 4;
const ROWS: usize = 16_384;
pub(super) const CHUNKS: usize = 64;
/// Cases: suite, way.
const CASES: [(Cipher, Way); 3] =
    [(Cipher::CtrSha1, Way::Seal), (Cipher::CtrSha1, Way::Open), (Cipher::Gcm, Way::Seal)];
/// Bytes of inner packets.
const SIZE: usize = 1420;

/// Rows of each case by number of workers.
///
/// # Errors
/// The device's; packets that were lost.
pub(super) fn run(
    args: &Args,
    gateway: &Gateway,
    backend: Backend,
    workers: &[usize],
    packets: usize,
    report: &mut Report,
) -> Result<(), String> {
    let mut driver = open(backend)?;
    let is_gpu = driver.info().is_gpu;
    let costs = measure::measure(&mut *driver, &measure::Plan::default()).map_err(text)?;
    drop(driver);
    for (cipher, way) in CASES {
        let load = Load { cipher, way, associations: ASSOCIATIONS, packets, sizes: &[SIZE] };
        let limit = limit(&costs, &load);
        let mut best: Vec<f64> = Vec::new();
        for &count in workers {
            let mut rates = Vec::new();
            for _ in 0..args.rounds.max(1) {
                let rate = gateway.measure_on_device(&load, count, device(backend)?)?;
                rates.push(8.0 * rate * SIZE as f64 / 1e9);
            }
            if best.is_empty() || crate::report::median(&rates) > crate::report::median(&best) {
                best.clone_from(&rates);
            }
            let name = super::name_of(cipher, SIZE, way);
            let row = Row::new(format!("{name}, on a device, {count} workers"), "Gbit/s", rates);
            report.rows.push(row.note("end to end, by the clock"));
        }
        if best.is_empty() {
            continue;
        }
        let name =
            format!("{}, on a device, share of the copy limit", super::name_of(cipher, SIZE, way));
        let share = best.iter().map(|rate| rate / limit).collect();
        let row = Row::new(name, "ratio", share).note(format!("{limit:.0} Gbit/s by copies alone"));
        report.rows.push(if is_gpu { row.at_least(SHARE_AIM) } else { row });
    }
    Ok(())
}

/// Gigabits of inner packets a second that copies of whole frames allow: both ways at once, the slower one counts.
fn limit(costs: &Costs, load: &Load<'_>) -> f64 {
    let peak =
        |way: fn(&measure::CopyCost) -> f64| costs.copies.iter().map(way).fold(0.0, f64::max);
    let slower = peak(|c| c.up.streamed_bytes_per_s).min(peak(|c| c.down.streamed_bytes_per_s));
    8.0 * slower / 1e9 * load.bytes() as f64 / load.received_bytes() as f64
}

fn device(
    backend: Backend,
) -> Result<impl FnOnce(TablesImages) -> DeviceSpec<controlplane::Tables>, String> {
    let driver = open(backend)?;
    let options = Options {
        packing: Packing::Measured,
        scheduling: Scheduling::Measured,
        ..accelerator::Options::default()
    };
    Ok(move |images| {
        let kind = DeviceKind::Driver { driver, tables: Box::new(images), options };
        DeviceSpec { kind, slots: JOBS, rows: ROWS, policy: Policy::Device }
    })
}

/// Packets a second that an engine sends, from a quarter of them until nine tenths: neither begin nor end is of interest.
///
/// # Errors
/// They do not come.
pub(super) fn rate(view: &EngineView, packets: usize) -> Result<f64, String> {
    let mark = |share: usize| -> Result<(Instant, u64), String> {
        let begin = Instant::now();
        loop {
            let (now, done) = (Instant::now(), sent(view));
            if done >= (packets * share / 100) as u64 {
                return Ok((now, done));
            }
            if begin.elapsed() > PATIENCE {
                return Err(format!("{done} of {packets} packets were sent"));
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    };
    let (first, last) = (mark(25)?, mark(90)?);
    if first.1 == last.1 {
        return Err(format!("{packets} packets are too few: they are sent at once"));
    }
    Ok((last.1 - first.1) as f64 / (last.0 - first.0).as_secs_f64())
}
