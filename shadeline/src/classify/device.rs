//! `shadeline classify --backend`: the headers as jobs of a device.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ::classify::{Match, Tables};
use ::device::accelerator::Options;
use ::device::driver::{DeviceInfo, Driver};
use ::device::{Backend, probe};
use bench::classify_job::{self, RuleImages, Still};
use serde::Serialize;

use super::{Built, MEASURED};
use crate::backend;
use crate::failure::Failure;

/// Headers of a job at most.
const ROWS_MAX: usize = 1 << 16;

/// What takes longer has hung. A search through many rules takes its time on a CPU.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a device did with one structure.
#[derive(Serialize)]
pub(super) struct DeviceFigures {
    /// The kernel; none where the structure has no device form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kernel: Option<&'static str>,
    /// Jobs from the host's memory and back, several in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rate_mpps: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ns_per_packet: Option<f64>,
    /// The kernel alone, headers and answers on the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kernel_rate_mpps: Option<f64>,
    /// Whose clock that is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kernel_clock: Option<&'static str>,
}

/// A device that has passed its self-test.
pub(super) struct Chosen {
    info: DeviceInfo,
    /// Whether the operator named it: then a structure must have a form there.
    is_named: bool,
}

/// The device that a backend means; `None` for the CPU.
///
/// # Errors
/// A device that was named and is absent, or does not answer rightly; the simulated one.
pub(super) fn choose(backend: Backend) -> Result<Option<Chosen>, Failure> {
    if backend == Backend::Sim {
        let expected = "expected auto, cpu, opencl, opencl:N, cuda or cuda:N";
        return Err(Failure::usage(format!("classify has no --backend sim: {expected}")));
    }
    let driver = backend::driver(backend)?;
    let is_named = backend != Backend::Auto;
    Ok(driver.map(|driver| Chosen { info: driver.info().clone(), is_named }))
}

impl Chosen {
    /// Its name.
    pub(super) fn name(&self) -> &str {
        &self.info.name
    }

    fn open(&self) -> Result<Box<dyn Driver>, String> {
        probe::open(self.info.api, self.info.number).map_err(|error| error.to_string())
    }

    /// Classifies by a structure, and says how quickly. `out` holds all answers, also where the device fails on the
    /// way: that is a warning, and the CPU does the rest.
    ///
    /// # Errors
    /// A structure without a device form, if it is the only one and the device was named.
    pub(super) fn classify(
        &self,
        built: &Built,
        is_only: bool,
        headers: &[u32],
        out: &mut [Match],
    ) -> Result<DeviceFigures, Failure> {
        let mut figures = DeviceFigures {
            kernel: None,
            rate_mpps: None,
            ns_per_packet: None,
            kernel_rate_mpps: None,
            kernel_clock: None,
        };
        let Some(form) = classify_job::form(&built.tables) else {
            if is_only && self.is_named {
                let name = built.algorithm.name;
                return Err(Failure::usage(format!(
                    "--algorithm {name} has no device form: use linear, tuple or bloom, or --backend cpu"
                )));
            }
            return Ok(figures);
        };
        figures.kernel = Some(form.kernel);
        if out.is_empty() {
            return Ok(figures);
        }
        let alone = self.open().and_then(|mut driver| {
            let (driver, tables) = (&mut *driver, &built.tables);
            classify_job::kernel_alone(driver, tables, &form, headers, out)
        });
        match alone {
            Ok((ns, clock)) => {
                figures.kernel_rate_mpps = Some(1e3 / ns);
                figures.kernel_clock = Some(clock);
            }
            Err(error) => tracing::warn!("device {}: {error}", self.name()),
        }
        match self.end_to_end(&built.tables, &form, headers, out) {
            Ok(ns) => {
                figures.ns_per_packet = Some(ns);
                figures.rate_mpps = Some(1e3 / ns);
            }
            Err(error) => {
                tracing::warn!("device {}: {error}; the CPU classifies the rest", self.name());
            }
        }
        Ok(figures)
    }

    /// Nanoseconds a header, over passes that take [`MEASURED`] together, behind one that brings the table along.
    /// After an error `out` holds the CPU's answers where there is none of the device's.
    fn end_to_end(
        &self,
        tables: &Tables,
        form: &kernels::classifiers::Classifier,
        headers: &[u32],
        out: &mut [Match],
    ) -> Result<f64, String> {
        let rows = out.len().clamp(256, ROWS_MAX);
        let ready = self.open().and_then(|driver| {
            let made = classify_job::accelerator::<Still>(
                driver,
                RuleImages(None),
                form,
                rows,
                Options { patience: PATIENCE, ..Options::default() },
            );
            made.map_err(|error| error.to_string())
        });
        let blob = tables.blob().try_clone().map_err(|error| error.to_string())?;
        let rules = Arc::new(Still(Tables::new(blob)));
        let mut ready = ready.inspect_err(|_| {
            ::classify::Classify::classify(tables, headers, out);
        })?;
        let mut pass = |out: &mut [Match]| match classify_job::classify_all(
            &mut ready, &rules, *form, headers, out,
        ) {
            Some(error) => Err(error),
            None => Ok(()),
        };
        pass(out)?;
        let (begin, mut passes) = (Instant::now(), 0_u32);
        while passes == 0 || begin.elapsed() < MEASURED {
            pass(out)?;
            passes += 1;
        }
        Ok(begin.elapsed().as_secs_f64() * 1e9 / f64::from(passes) / out.len() as f64)
    }
}
